//! Views, scans that borrow nothing, and writes to rows as they were seen.

use gannet_base::memory::Purpose;
use gannet_base::sync::Mutex;
use gannet_base::thread;
use gannet_io::Disk;
use gannet_io::sim::SimDisk;
use gannet_store::{
    CreateOptions, Database, Engine, EngineOptions, Error, Isolation, LockMode, LongValues, OpenOptions,
    Outcome, Result, Scan, Transaction, TransactionOptions, Tree, View, Visitor, WorkMemory,
};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

const ALL: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Unbounded);
const REPEATABLE: TransactionOptions = TransactionOptions {
    isolation: Isolation::RepeatableRead,
    durability: gannet_store::Durability::Sync,
    lock_timeout: None,
    snapshot_limit: None,
};

fn create() -> Database {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
    let engine =
        Engine::with_disk(disk, &EngineOptions { memory: 8 << 20, ..EngineOptions::default() }).unwrap();
    let create = CreateOptions { page_size: 4096, segment_size: 1 << 18 };
    engine.create(Path::new("v.gnt"), &create, &OpenOptions::default()).unwrap()
}

fn begin(db: &Database) -> Transaction {
    db.begin(TransactionOptions::default())
}

/// A database with one tree and some committed rows.
fn sample(rows: &[(&str, &str)]) -> (Database, Tree) {
    let db = create();
    let mut txn = begin(&db);
    let tree = txn.create_tree("t").unwrap();
    for (key, value) in rows {
        txn.insert(&tree, key.as_bytes(), value.as_bytes()).unwrap();
    }
    txn.commit().unwrap();
    (db, tree)
}

/// Commits one change.
fn elsewhere(db: &Database, change: impl FnOnce(&mut Transaction)) {
    let mut txn = begin(db);
    change(&mut txn);
    txn.commit().unwrap();
}

fn text(value: Option<Vec<u8>>) -> Option<String> {
    value.map(|v| String::from_utf8(v).unwrap())
}

fn get(view: &View, tree: &Tree, key: &str) -> Option<String> {
    text(view.get(tree, key.as_bytes()).unwrap())
}

fn step(row: Result<Option<(&[u8], &[u8])>>) -> Option<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    row.unwrap().map(|(key, value)| (text(key), text(value)))
}

fn forward(scan: &mut Scan) -> Vec<(String, String)> {
    std::iter::from_fn(|| step(scan.next())).collect()
}

fn backward(scan: &mut Scan) -> Vec<(String, String)> {
    std::iter::from_fn(|| step(scan.previous())).collect()
}

fn rows(view: &View, tree: &Tree) -> Vec<(String, String)> {
    forward(&mut view.scan(tree, ALL).unwrap())
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn a_view_shows_what_its_transaction_did_before_it_and_nothing_later() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut txn = begin(&db);
    let first = txn.view();
    assert!(txn.update(&tree, b"a", b"2").unwrap());
    txn.insert(&tree, b"d", b"2").unwrap();
    assert!(txn.delete(&tree, b"b").unwrap());
    let second = txn.view();
    // Several changes of one row, a lock among them, a row that comes again, and one that comes and goes.
    assert!(txn.lock(&tree, b"a", LockMode::Exclusive).unwrap());
    assert!(txn.update(&tree, b"a", b"3").unwrap());
    assert!(txn.update(&tree, b"a", b"4").unwrap());
    txn.insert(&tree, b"b", b"3").unwrap();
    txn.insert(&tree, b"e", b"3").unwrap();
    assert!(txn.delete(&tree, b"e").unwrap());
    assert!(txn.delete(&tree, b"d").unwrap());
    let third = txn.view();

    assert_eq!(rows(&first, &tree), pairs(&[("a", "1"), ("b", "1"), ("c", "1")]));
    assert_eq!(rows(&second, &tree), pairs(&[("a", "2"), ("c", "1"), ("d", "2")]));
    assert_eq!(rows(&third, &tree), pairs(&[("a", "4"), ("b", "3"), ("c", "1")]));
    assert_eq!((get(&second, &tree, "a"), get(&second, &tree, "b")), (Some("2".into()), None));
    assert_eq!(
        second.multi_get(&tree, &["a", "x", "d"]).unwrap(),
        [Some(b"2".into()), None, Some(b"2".into())]
    );
    assert_eq!(third.with_value(&tree, b"a", |v| v.len()).unwrap(), Some(1));
    // The transaction itself sees everything, as ever.
    assert_eq!(text(txn.get(&tree, b"a").unwrap()), Some("4".into()));
    second.clone().prefetch(&tree, &["a", "b", "zzz"]).unwrap();
}

#[test]
fn a_lock_hides_nothing_and_changes_nothing() {
    let (db, tree) = sample(&[("a", "1")]);
    let mut txn = begin(&db);
    let view = txn.view();
    assert!(txn.lock(&tree, b"a", LockMode::Exclusive).unwrap());
    assert_eq!(get(&view, &tree, "a"), Some("1".into()));
    // A statement locks a row and then changes it: that is one change.
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"1", b"2").unwrap(), Outcome::Done);
    assert!(txn.lock(&tree, b"a", LockMode::Exclusive).unwrap());
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"2", b"3").unwrap(), Outcome::Repeated);
    assert_eq!(get(&txn.view(), &tree, "a"), Some("2".into()));
}

#[test]
fn long_values_have_versions_like_others() {
    let (db, tree) = sample(&[]);
    let long = |fill: u8| vec![fill; 50_000];
    elsewhere(&db, |txn| txn.insert(&tree, b"k", &long(1)).unwrap());
    let mut txn = begin(&db);
    let before = txn.view();
    assert_eq!(txn.update_seen(&before, &tree, b"k", &long(1), &long(2)).unwrap(), Outcome::Done);
    let after = txn.view();
    assert_eq!(txn.update_seen(&after, &tree, b"k", &long(2), b"short").unwrap(), Outcome::Done);
    assert_eq!(before.get(&tree, b"k").unwrap(), Some(long(1)));
    assert_eq!(after.get(&tree, b"k").unwrap(), Some(long(2)));
    assert_eq!(after.with_value(&tree, b"k", |v| v[0]).unwrap(), Some(2));
    let mut scan = after.scan(&tree, ALL).unwrap();
    assert_eq!(scan.next().unwrap().map(|(_, v)| v.to_vec()), Some(long(2)));
    drop(txn);
    // Compared byte by byte, whether or not the lengths agree.
    let mut txn = begin(&db);
    let view = txn.view();
    elsewhere(&db, |other| assert!(other.update(&tree, b"k", &long(3)).unwrap()));
    let outcome = txn.update_seen(&view, &tree, b"k", &long(1), b"x").unwrap();
    assert_eq!(outcome, Outcome::Changed(long(3)));
    let outcome = txn.lock_seen(&view, &tree, b"k", b"short", LockMode::Share, true).unwrap();
    assert_eq!(outcome, Outcome::Changed(long(3)));
    assert_eq!(txn.delete_seen(&view, &tree, b"k", &long(3)).unwrap(), Outcome::Done);
    txn.commit().unwrap();
    let findings = db.check().unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

/// Notes lengths, and refuses those from 100,000 bytes on.
#[derive(Debug)]
struct Watcher(Engine, Mutex<Vec<u64>>);

impl LongValues for Watcher {
    fn expect(&self, bytes: u64) -> Result<Option<WorkMemory>> {
        self.1.lock().push(bytes);
        if bytes >= 100_000 { Err(Error::Cancelled) } else { self.0.memory(Purpose::Work, bytes).map(Some) }
    }
}

#[test]
fn who_watches_long_values_is_told_before_they_are_read() {
    let (db, tree) = sample(&[("short", "1")]);
    let long = |len: usize| vec![7; len];
    elsewhere(&db, |txn| {
        txn.insert(&tree, b"k", &long(50_000)).unwrap();
        txn.insert(&tree, b"l", &long(100_000)).unwrap();
    });
    let watcher = Arc::new(Watcher(db.engine().clone(), Mutex::default()));
    let charged = || db.engine().budget().used_for(Purpose::Work);
    let told = || std::mem::take(&mut *watcher.1.lock());
    let mut txn = db.begin_watched(TransactionOptions::default(), watcher.clone());
    let view = txn.view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    let before = charged();
    assert_eq!(scan.next().unwrap().map(|(_, v)| v.len()), Some(50_000));
    assert_eq!((charged() - before, told()), (50_000, vec![50_000]));
    // What is refused is not read. The step stays the same, and whoever wants what is behind it says so.
    assert!(matches!(scan.next(), Err(Error::Cancelled)));
    assert!(matches!(scan.next(), Err(Error::Cancelled)));
    assert_eq!((charged() - before, told()), (0, vec![100_000, 100_000]));
    scan.seek(b"m");
    assert_eq!(scan.next().unwrap().map(|(_, v)| v.len()), Some(1));
    assert!(matches!(scan.previous(), Err(Error::Cancelled)));
    scan.seek(b"l");
    assert_eq!(scan.previous().unwrap().map(|(_, v)| v.len()), Some(50_000));
    scan.forget_long();
    assert_eq!((charged() - before, told()), (0, vec![100_000, 50_000]));
    assert_eq!(
        view.with_value(&tree, b"k", |v| (v.len(), charged() - before)).unwrap(),
        Some((50_000, 50_000))
    );
    assert_eq!((charged() - before, told()), (0, vec![50_000]));
    // What was changed since is read, to be shown, as is what the transaction itself asks for.
    assert!(matches!(txn.update_seen(&view, &tree, b"l", b"another", b"x"), Err(Error::Cancelled)));
    assert!(matches!(txn.get(&tree, b"l"), Err(Error::Cancelled)));
    assert_eq!(txn.get(&tree, b"k").unwrap().map(|v| v.len()), Some(50_000));
    assert_eq!((charged() - before, told()), (0, vec![100_000, 100_000, 50_000]));
    // What is as it was is only compared.
    let mut changed = long(100_000);
    changed[99_999] = 8;
    assert!(matches!(txn.update_seen(&view, &tree, b"l", &changed, b"x"), Err(Error::Cancelled)));
    assert_eq!(told(), [100_000]);
    assert_eq!(txn.update_seen(&view, &tree, b"l", &long(100_000), b"x").unwrap(), Outcome::Done);
    assert_eq!(told(), [0_u64; 0]);
}

#[test]
fn what_somebody_changed_since_is_looked_at_again() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut txn = begin(&db);
    let view = txn.view();
    elsewhere(&db, |other| {
        assert!(other.update(&tree, b"a", b"2").unwrap());
        assert!(other.delete(&tree, b"b").unwrap());
    });
    let outcome = txn.update_seen(&view, &tree, b"a", b"1", b"x").unwrap();
    assert_eq!(outcome, Outcome::Changed(b"2".to_vec()));
    assert_eq!(txn.lock_seen(&view, &tree, b"a", b"1", LockMode::KeyShare, true).unwrap(), outcome);
    // With the value as it is now it goes through.
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"2", b"x").unwrap(), Outcome::Done);
    assert_eq!(txn.delete_seen(&view, &tree, b"b", b"1").unwrap(), Outcome::Gone);
    assert_eq!(txn.lock_seen(&view, &tree, b"b", b"1", LockMode::Share, true).unwrap(), Outcome::Gone);
    assert_eq!(txn.update_seen(&view, &tree, b"nothing", b"1", b"x").unwrap(), Outcome::Gone);
    // Changed and changed back is the same row.
    elsewhere(&db, |other| assert!(other.update(&tree, b"c", b"2").unwrap()));
    elsewhere(&db, |other| assert!(other.update(&tree, b"c", b"1").unwrap()));
    assert_eq!(txn.delete_seen(&view, &tree, b"c", b"1").unwrap(), Outcome::Done);
    txn.commit().unwrap();
    assert_eq!(rows(&begin(&db).view(), &tree), pairs(&[("a", "x")]));
}

#[test]
fn a_change_waits_for_others_and_then_looks_again() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1")]);
    let db = Arc::new(db);
    let mut first = begin(&db);
    assert!(first.update(&tree, b"a", b"2").unwrap());
    assert!(first.update(&tree, b"b", b"2").unwrap());
    let waiting = {
        let (db, tree) = (Arc::clone(&db), tree.clone());
        thread::spawn("second", move || {
            let mut second = begin(&db);
            let view = second.view();
            let outcome = second.update_seen(&view, &tree, b"a", b"1", b"3").unwrap();
            second.rollback().unwrap();
            outcome
        })
    };
    while first.id().is_some() && db.stats().active_transactions < 2 {
        thread::yield_now();
    }
    let mut third = begin(&db);
    let view = third.view();
    let refused = third.lock_seen(&view, &tree, b"b", b"1", LockMode::Exclusive, false);
    assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
    let refused = third.lock_seen(&view, &tree, b"b", b"1", LockMode::Share, false);
    assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
    // The key alone is not in danger.
    assert_eq!(third.lock_seen(&view, &tree, b"b", b"1", LockMode::KeyShare, false).unwrap(), Outcome::Done);
    first.commit().unwrap();
    assert_eq!(waiting.join().unwrap(), Outcome::Changed(b"2".to_vec()));
}

#[test]
fn under_repeatable_read_a_change_since_the_snapshot_is_a_conflict() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let mut txn = db.begin(REPEATABLE);
    let view = txn.view();
    elsewhere(&db, |other| {
        assert!(other.update(&tree, b"a", b"2").unwrap());
        assert!(other.delete(&tree, b"b").unwrap());
    });
    // The snapshot is the transaction's, whenever the view is taken; the latest view is not bound by it.
    assert_eq!(get(&txn.view(), &tree, "a"), Some("1".into()));
    let latest = txn.latest_view();
    assert_eq!((get(&latest, &tree, "a"), get(&latest, &tree, "b")), (Some("2".into()), None));
    for view in [&view, &latest] {
        let refused = txn.update_seen(view, &tree, b"a", b"1", b"x");
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        let refused = txn.delete_seen(view, &tree, b"b", b"1");
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
        let refused = txn.lock_seen(view, &tree, b"a", b"1", LockMode::Share, true);
        assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    }
    assert_eq!(txn.lock_seen(&view, &tree, b"a", b"1", LockMode::KeyShare, true).unwrap(), Outcome::Done);
    assert_eq!(txn.update_seen(&view, &tree, b"c", b"1", b"3").unwrap(), Outcome::Done);
    assert_eq!(txn.update_seen(&view, &tree, b"c", b"3", b"4").unwrap(), Outcome::Repeated);
    let view = txn.view();
    assert_eq!(txn.update_seen(&view, &tree, b"c", b"3", b"4").unwrap(), Outcome::Done);
}

#[test]
fn a_statement_changes_a_row_once() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1")]);
    let mut txn = begin(&db);
    let view = txn.view();
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"1", b"2").unwrap(), Outcome::Done);
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"1", b"3").unwrap(), Outcome::Repeated);
    assert_eq!(txn.delete_seen(&view, &tree, b"a", b"2").unwrap(), Outcome::Repeated);
    assert_eq!(txn.lock_seen(&view, &tree, b"a", b"1", LockMode::Share, true).unwrap(), Outcome::Repeated);
    assert_eq!(txn.delete_seen(&view, &tree, b"b", b"1").unwrap(), Outcome::Done);
    assert_eq!(txn.delete_seen(&view, &tree, b"b", b"1").unwrap(), Outcome::Repeated);
    // The next statement may.
    let view = txn.view();
    assert_eq!(txn.update_seen(&view, &tree, b"a", b"2", b"3").unwrap(), Outcome::Done);
    assert_eq!(txn.delete_seen(&view, &tree, b"b", b"1").unwrap(), Outcome::Gone);
    // A view is good for its own transaction only.
    let refused = begin(&db).update_seen(&view, &tree, b"a", b"3", b"4");
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[test]
fn views_outlast_a_rollback_to_a_savepoint() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1")]);
    let long = vec![7; 30_000];
    let mut txn = begin(&db);
    assert!(txn.update(&tree, b"a", b"2").unwrap());
    let kept = txn.view();
    let savepoint = txn.savepoint();
    assert!(txn.update(&tree, b"a", b"3").unwrap());
    txn.insert(&tree, b"c", &long).unwrap();
    let lost = txn.view();
    let mut scan = lost.scan(&tree, ALL).unwrap();
    assert_eq!(step(scan.next()), Some(("a".into(), "3".into())));
    txn.rollback_to(savepoint).unwrap();
    // The scan's copy of the leaf still holds what was taken back, a long value among it.
    assert_eq!(forward(&mut scan), pairs(&[("b", "1")]));
    assert_eq!(rows(&lost, &tree), pairs(&[("a", "2"), ("b", "1")]));
    // Numbers are not given again: new changes are not taken for those that went.
    assert!(txn.update(&tree, b"a", b"4").unwrap());
    txn.insert(&tree, b"c", b"4").unwrap();
    txn.insert(&tree, b"d", b"4").unwrap();
    assert_eq!(rows(&lost, &tree), pairs(&[("a", "2"), ("b", "1")]));
    assert_eq!(rows(&kept, &tree), pairs(&[("a", "2"), ("b", "1")]));
    assert_eq!(txn.update_seen(&lost, &tree, b"a", b"4", b"5").unwrap(), Outcome::Repeated);
    assert_eq!(rows(&txn.view(), &tree), pairs(&[("a", "4"), ("b", "1"), ("c", "4"), ("d", "4")]));
}

#[test]
fn a_savepoint_is_good_until_one_before_it_is_gone_back_to() {
    let (db, tree) = sample(&[]);
    let mut txn = begin(&db);
    let mut savepoints = Vec::new();
    for i in 0..6u8 {
        savepoints.push(txn.savepoint());
        txn.insert(&tree, &[i], b"").unwrap();
    }
    txn.rollback_to(savepoints[4]).unwrap();
    txn.rollback_to(savepoints[4]).unwrap();
    assert!(txn.rollback_to(savepoints[5]).is_err());
    let later = txn.savepoint();
    txn.insert(&tree, b"later", b"").unwrap();
    txn.rollback_to(later).unwrap();
    txn.rollback_to(savepoints[1]).unwrap();
    assert_eq!(rows(&txn.view(), &tree).len(), 1);
    for gone in [savepoints[2], savepoints[4], later] {
        assert!(txn.rollback_to(gone).is_err());
    }
    let last = txn.savepoint();
    txn.rollback_to(last).unwrap();
    txn.rollback_to(savepoints[0]).unwrap();
    assert!(txn.rollback_to(last).is_err() && txn.rollback_to(savepoints[1]).is_err());
    assert!(rows(&txn.view(), &tree).is_empty());
}

#[test]
fn a_scan_that_sees_nothing_ends_when_its_transaction_is_cancelled() {
    let (db, tree) = sample(&[]);
    let mut other = begin(&db);
    for number in 0..2000_u32 {
        other.put(&tree, &number.to_be_bytes(), &[7; 100]).unwrap();
    }
    let mut txn = begin(&db);
    let view = txn.view();
    let canceller = txn.canceller();
    assert_eq!(rows(&view, &tree), []);
    canceller.cancel();
    let mut scan = view.scan(&tree, ALL).unwrap();
    assert!(matches!(scan.next(), Err(Error::Cancelled)));
    assert!(matches!(scan.previous(), Err(Error::Cancelled)));
    assert!(matches!(scan.pass_over(10), Err(Error::Cancelled)));
    // Later ones are not.
    canceller.reset();
    assert!(scan.next().unwrap().is_none());
}

#[test]
fn a_view_ends_with_a_transaction_that_has_written() {
    let (db, tree) = sample(&[("a", "1")]);
    for commit in [true, false] {
        let mut txn = begin(&db);
        let before = txn.view();
        assert!(txn.update(&tree, b"a", b"2").unwrap());
        let view = txn.view();
        let mut scan = view.scan(&tree, ALL).unwrap();
        if commit { txn.commit() } else { txn.rollback() }.unwrap();
        let refused = view.get(&tree, b"a");
        assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("ended")), "{refused:?}");
        assert!(scan.next().is_err() && view.scan(&tree, ALL).is_err() && view.tree("t").is_err());
        assert!(view.multi_get(&tree, &[b"a"]).is_err() && view.prefetch(&tree, &[b"a"]).is_err());
        // One that shows nothing of the transaction goes on.
        assert_eq!(get(&before, &tree, "a"), Some(if commit { "1" } else { "2" }.into()));
    }
}

/// Enough rows for many leaves.
fn many(db: &Database, tree: &Tree, count: u32) {
    elsewhere(db, |txn| {
        for i in 0..count {
            txn.put(tree, format!("{i:06}").as_bytes(), &[b'v'; 60]).unwrap();
        }
    });
}

#[test]
fn scans_go_both_ways_while_others_change_everything() {
    let (db, tree) = sample(&[]);
    many(&db, &tree, 3000);
    let mut txn = begin(&db);
    let view = txn.view();
    let expected = rows(&view, &tree);
    assert_eq!(expected.len(), 3000);
    let mut up = view.scan(&tree, ALL).unwrap();
    let mut down = view.scan(&tree, ALL).unwrap();
    down.look_ahead(false);
    let (mut upwards, mut downwards) = (Vec::new(), Vec::new());
    for round in 0..30u32 {
        upwards.extend((0..100).map_while(|_| step(up.next())));
        downwards.extend((0..100).map_while(|_| step(down.previous())));
        elsewhere(&db, |other| {
            for i in (0..3000).skip(round as usize).step_by(31) {
                let key = format!("{i:06}");
                match i % 3 {
                    0 => drop(other.delete(&tree, key.as_bytes()).unwrap()),
                    1 => other.put(&tree, key.as_bytes(), &[b'w'; 200]).unwrap(),
                    _ => other.put(&tree, format!("{key}x").as_bytes(), &[b'n'; 300]).unwrap(),
                }
            }
        });
    }
    assert_eq!((step(up.next()), step(down.previous())), (None, None));
    assert_eq!(upwards, expected);
    downwards.reverse();
    assert_eq!(downwards, expected);
    // Turning round, and seeking.
    assert_eq!(step(up.previous()).as_ref(), expected.last());
    up.seek(b"001500");
    assert_eq!(step(up.next()).as_ref(), Some(&expected[1500]));
    assert_eq!(step(up.previous()).as_ref(), Some(&expected[1499]));
    let within = (Bound::Excluded(&b"000010"[..]), Bound::Included(&b"000020"[..]));
    assert_eq!(forward(&mut view.scan(&tree, within).unwrap()), expected[11..=20]);
    let mut expected_down = expected[11..=20].to_vec();
    expected_down.reverse();
    assert_eq!(backward(&mut view.scan(&tree, within).unwrap()), expected_down);
}

/// Keeps what it is shown, and does something behind a key.
struct Meddling<'m> {
    behind: &'static str,
    work: &'m mut dyn FnMut() -> Result<()>,
    rows: Vec<(String, String)>,
}

impl Visitor for Meddling<'_> {
    type Error = Error;

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.rows.push((text(key), text(value)));
        if text(key) == self.behind { (self.work)() } else { Ok(()) }
    }

    fn goes_on(&mut self) -> Result<bool> {
        Ok(true)
    }
}

#[test]
fn what_a_visitor_undoes_is_not_shown_to_it_and_where_it_fails_the_scan_stands() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    let mut txn = begin(&db);
    let savepoint = txn.savepoint();
    txn.put(&tree, b"c", b"2").unwrap();
    txn.put(&tree, b"d", b"2").unwrap();
    let view = txn.view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    let mut undo = || txn.rollback_to(savepoint);
    let mut visitor = Meddling { behind: "c", work: &mut undo, rows: Vec::new() };
    assert!(!scan.show(&mut visitor).unwrap());
    let shown: Vec<_> = visitor.rows.iter().map(|(key, value)| format!("{key}{value}")).collect();
    assert_eq!(shown, ["a1", "b1", "c2", "d1"]);
    // An error.
    let mut fail = || Err(Error::Invalid("enough".to_owned()));
    let mut scan = view.scan(&tree, ALL).unwrap();
    let mut visitor = Meddling { behind: "c", work: &mut fail, rows: Vec::new() };
    assert!(matches!(scan.show(&mut visitor), Err(Error::Invalid(_))));
    assert_eq!(step(scan.previous()).unwrap().0, "b");
    assert_eq!(step(scan.next()).unwrap().0, "c");
    assert_eq!(step(scan.next()).unwrap().0, "d");
    // And backwards.
    let mut visitor = Meddling { behind: "b", work: &mut fail, rows: Vec::new() };
    let mut scan = view.scan(&tree, ALL).unwrap();
    assert!(scan.show_back(&mut visitor).is_err());
    assert_eq!(visitor.rows.len(), 3);
    assert_eq!(step(scan.previous()).unwrap().0, "a");
    assert!(!scan.show_back(&mut Shown::default()).unwrap());
}

/// Keeps what it is shown, so many at most; 0: all.
#[derive(Default)]
struct Shown {
    most: usize,
    rows: Vec<(String, String)>,
}

impl Visitor for Shown {
    type Error = Error;

    fn entry(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        self.rows.push((text(key), text(value)));
        Ok(())
    }

    fn goes_on(&mut self) -> Result<bool> {
        Ok(self.rows.len() != self.most)
    }
}

#[test]
fn keys_that_are_passed_over_are_those_that_would_have_been_given() {
    let (db, tree) = sample(&[]);
    many(&db, &tree, 3000);
    elsewhere(&db, |txn| txn.put(&tree, b"000035", &[b'l'; 20_000]).unwrap());
    let mut txn = begin(&db);
    // What others do to some rows after the view, and the transaction before it.
    for i in (0..3000).step_by(17) {
        txn.delete(&tree, format!("{i:06}").as_bytes()).unwrap();
        txn.put(&tree, format!("{i:06}-own").as_bytes(), &[b'o'; 40]).unwrap();
    }
    txn.put(&tree, b"000034-own", &[b'l'; 20_000]).unwrap();
    let view = txn.view();
    elsewhere(&db, |other| {
        for i in (1000..2000).step_by(2).filter(|i| i % 17 != 0) {
            other.delete(&tree, format!("{i:06}").as_bytes()).unwrap();
            other.put(&tree, format!("{i:06}-other").as_bytes(), &[b'x'; 1500]).unwrap();
        }
    });
    let keys = [&b""[..], b"000000", b"000003", b"000034", b"000034-own", b"001500", b"002998", b"9"];
    let bounds = |key: &'static [u8]| [Bound::Included(key), Bound::Excluded(key), Bound::Unbounded];
    for lower in keys.into_iter().flat_map(bounds) {
        for upper in keys.into_iter().flat_map(bounds) {
            let expected = forward(&mut view.scan(&tree, (lower, upper)).unwrap());
            let mut scan = view.scan(&tree, (lower, upper)).unwrap();
            let passed: u64 = std::iter::from_fn(|| scan.pass_over(u64::MAX).unwrap()).sum();
            assert_eq!(passed, expected.len() as u64, "{lower:?} {upper:?}");
            assert_eq!((scan.pass_over(1).unwrap(), step(scan.next())), (None, None));
            assert_eq!(step(scan.previous()).as_ref(), expected.last(), "{lower:?} {upper:?}");
            let (mut scan, mut shown) = (view.scan(&tree, (lower, upper)).unwrap(), Shown::default());
            assert!(!scan.show(&mut shown).unwrap() && !scan.show(&mut shown).unwrap());
            assert_eq!(shown.rows, expected, "{lower:?} {upper:?}");
            assert_eq!(step(scan.previous()).as_ref(), expected.last(), "{lower:?} {upper:?}");
        }
    }
    let expected = rows(&view, &tree);
    let (mut scan, mut at) = (view.scan(&tree, ALL).unwrap(), 0);
    for most in (1..200).cycle() {
        let Some(passed) = scan.pass_over(most).unwrap() else { break };
        assert!(passed > 0 && passed <= most, "there are not many in a row that it does not see");
        at += passed as usize;
        match most % 3 {
            0 => assert_eq!(step(scan.previous()), at.checked_sub(2).map(|at| expected[at].clone())),
            1 => assert_eq!(step(scan.next()).as_ref(), expected.get(at)),
            _ => continue,
        }
        at = if most % 3 == 0 { at - 1 } else { (at + 1).min(expected.len()) };
    }
    assert_eq!(at, expected.len());
    // The same of those that are shown, so many at a time.
    let (mut scan, mut at) = (view.scan(&tree, ALL).unwrap(), 0);
    for most in (1..200).cycle() {
        let mut shown = Shown { most, rows: Vec::new() };
        let more = scan.show(&mut shown).unwrap();
        assert!(if more { shown.rows.len() == most } else { shown.rows.len() <= most });
        assert_eq!(shown.rows, expected[at..at + shown.rows.len()]);
        at += shown.rows.len();
        if !more {
            break;
        }
        match most % 3 {
            0 => assert_eq!(step(scan.previous()), at.checked_sub(2).map(|at| expected[at].clone())),
            1 => assert_eq!(step(scan.next()).as_ref(), expected.get(at)),
            _ => continue,
        }
        at = if most % 3 == 0 { at - 1 } else { (at + 1).min(expected.len()) };
    }
    assert_eq!(at, expected.len());
    // Found by key are the same, in any order of asking.
    let all_keys =
        || (0..3000).flat_map(|i| ["", "-none", "-other", "-own"].map(|end| format!("{i:06}{end}")));
    let backwards: Vec<_> = all_keys().step_by(7).collect();
    let mut finder = view.scan(&tree, ALL).unwrap();
    for (asked, key) in all_keys().chain(backwards.into_iter().rev()).enumerate() {
        let place = expected.binary_search_by(|(known, _)| known.cmp(&key));
        let found =
            finder.find(key.as_bytes()).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap());
        assert_eq!(found.as_ref(), place.ok().map(|place| &expected[place].1), "{key}");
        if asked % 5 == 0 {
            let behind = place.map_or_else(|place| place, |place| place + 1);
            assert_eq!(step(finder.next()).as_ref(), expected.get(behind), "behind {key}");
        }
    }
}

#[test]
fn a_scan_does_not_meet_what_its_own_transaction_puts_in_its_way() {
    let (db, tree) = sample(&[]);
    many(&db, &tree, 2000);
    let mut txn = begin(&db);
    // Before the first write, and after it.
    for round in 0..2 {
        let view = txn.view();
        let expected = rows(&view, &tree);
        assert_eq!(expected.len(), 2000 * (1 + round));
        let mut scan = view.scan(&tree, ALL).unwrap();
        let mut found = Vec::new();
        while let Some((key, value)) = step(scan.next()) {
            // Ahead of it, behind it, and the row itself.
            txn.put(&tree, format!("{key}+{round}").as_bytes(), &[b'n'; 70]).unwrap();
            let outcome = txn.update_seen(&view, &tree, key.as_bytes(), value.as_bytes(), &[b'u'; 90]);
            assert_eq!(outcome.unwrap(), Outcome::Done);
            found.push((key, value));
        }
        assert_eq!(found, expected);
    }
}

#[test]
fn a_view_can_be_read_by_other_threads_while_its_transaction_writes() {
    let (db, tree) = sample(&[]);
    many(&db, &tree, 1000);
    let mut txn = begin(&db);
    assert!(txn.delete(&tree, b"000500").unwrap());
    let view = txn.view();
    let expected = rows(&view, &tree);
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (view, tree, expected) = (view.clone(), tree.clone(), expected.clone());
            thread::spawn("reader", move || {
                for _ in 0..10 {
                    assert_eq!(rows(&view, &tree), expected);
                    assert_eq!(view.get(&tree, b"000500").unwrap(), None);
                }
            })
        })
        .collect();
    for i in 0..1000 {
        txn.put(&tree, format!("{i:06}").as_bytes(), &[b'x'; 100]).unwrap();
        txn.put(&tree, format!("{i:06}+").as_bytes(), &[b'y'; 100]).unwrap();
    }
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn a_view_keeps_what_it_shows() {
    let (db, tree) = sample(&[("a", "1"), ("b", "1")]);
    let view = begin(&db).view();
    let horizon = db.stats().horizon;
    elsewhere(&db, |txn| {
        assert!(txn.delete(&tree, b"a").unwrap());
        assert!(txn.update(&tree, b"b", b"2").unwrap());
    });
    elsewhere(&db, |txn| assert!(txn.drop_tree("t").unwrap()));
    db.sweep().unwrap();
    assert_eq!(db.stats().horizon, horizon);
    assert_eq!(rows(&view, &tree), pairs(&[("a", "1"), ("b", "1")]));
    assert!(view.tree("t").unwrap().is_some() && begin(&db).view().tree("t").unwrap().is_none());
    drop(view);
    assert!(db.stats().horizon > horizon);
}

#[test]
fn trees_of_the_own_transaction_are_seen_from_their_creation_on() {
    let (db, old) = sample(&[("a", "1")]);
    let mut txn = begin(&db);
    let before = txn.view();
    let new = txn.create_tree("new").unwrap();
    let created = txn.view();
    assert!(before.tree("new").unwrap().is_none() && created.tree("new").unwrap().is_some());
    let entries: Vec<(Vec<u8>, Vec<u8>)> =
        (0..500u32).map(|i| (i.to_be_bytes().to_vec(), vec![1; 50])).collect();
    txn.bulk_load(&new, entries.iter().map(|(k, v)| (&k[..], &v[..]))).unwrap();
    let loaded = txn.view();
    // The rows of a bulk load carry no number of their own.
    for view in [&before, &created] {
        assert_eq!(view.get(&new, &7u32.to_be_bytes()).unwrap(), None);
        assert!(view.scan(&new, ALL).unwrap().next().unwrap().is_none());
        assert_eq!(view.multi_get(&new, &[7u32.to_be_bytes()]).unwrap(), [None]);
    }
    let mut scan = loaded.scan(&new, ALL).unwrap();
    assert!(txn.drop_tree("new").unwrap() && txn.drop_tree("t").unwrap());
    assert_eq!(std::iter::from_fn(|| scan.next().unwrap().map(|_| ())).count(), 500);
    assert_eq!(get(&loaded, &old, "a"), Some("1".into()));
    let refused = txn.view().get(&old, b"a");
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    // Somebody who has got hold of the tree's handle does not see the rows either.
    let foreign = begin(&db).view();
    txn.rollback().unwrap();
    assert!(foreign.get(&new, &7u32.to_be_bytes()).is_err());
    assert_eq!(rows(&foreign, &old), pairs(&[("a", "1")]));
}

#[test]
fn a_tree_taken_back_to_a_savepoint_is_gone_for_views() {
    let (db, _) = sample(&[]);
    let mut txn = begin(&db);
    let savepoint = txn.savepoint();
    let tree = txn.create_tree("new").unwrap();
    txn.put(&tree, b"a", b"1").unwrap();
    let view = txn.view();
    let mut scan = view.scan(&tree, ALL).unwrap();
    assert!(scan.next().unwrap().is_some());
    txn.rollback_to(savepoint).unwrap();
    for refused in [scan.next().map(drop), view.get(&tree, b"a").map(drop)] {
        assert!(matches!(&refused, Err(Error::Invalid(text)) if text.contains("rolled back")), "{refused:?}");
    }
    assert!(view.tree("new").unwrap().is_none());
}

#[test]
fn what_statements_work_with_can_go_to_other_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<View>();
    sync::<View>();
    send::<Scan>();
    send::<Transaction>();
    send::<gannet_store::TempWriter>();
    send::<gannet_store::TempReader>();
    send::<gannet_store::WorkMemory>();
}
