//! The kept corpus, and its seeds: what a database of every kind of page and record writes.

use super::*;
use crate::{CreateOptions, Engine, EngineOptions, OpenOptions as DatabaseOptions, TransactionOptions};
use gannet_base::corpus;
use std::collections::BTreeMap;

/// Most bytes of one seed, and most seeds of one kind.
const LONGEST: usize = 1500;
const OF_A_KIND: usize = 6;

const FILE: &str = "f.gnt";

#[test]
fn kept_inputs_pass() {
    corpus::replay("page", page);
    corpus::replay("change", change);
    corpus::replay("record", record);
    corpus::replay("files", files);
}

#[test]
fn what_a_database_writes_passes() {
    let disk = written();
    let contents = |path: &Path| disk.contents(path).expect("it was written");
    let data = contents(Path::new(FILE));
    let records: Vec<_> = (disk.files().iter())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .flat_map(|path| {
            log::records(&contents(path), meta::Meta::read(&*reopened(&disk, FILE)).unwrap().database_id)
        })
        .collect();
    corpus::offer("page", &pages(&data), page);
    corpus::offer("record", &few(records.iter().map(|record| (log::key(record), record.clone()))), record);
    corpus::offer("change", &histories(&records), change);
    let hot =
        disk.files().into_iter().find(|path| path.ends_with("hot")).map(|path| contents(&path)[8..].to_vec());
    corpus::offer("files", &file_seeds(&data, hot), files);
}

fn reopened(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    disk.open(Path::new(name), &OpenOptions::read_write()).unwrap()
}

/// The disk of a database whose trees were split, merged and dropped, with long values, versions and a rollback.
fn written() -> SimDisk {
    let disk = SimDisk::new(1);
    let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let options = EngineOptions { memory: 8 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(as_disk, &options).unwrap();
    let create = CreateOptions { page_size: PAGE, segment_size: 1 << 18 };
    let db = engine.create(Path::new(FILE), &create, &DatabaseOptions::default()).unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    let tree = txn.create_tree("t").unwrap();
    let gone = txn.create_tree("gone").unwrap();
    for i in 0..900u32 {
        let key = format!("key {:03}", i * 7 % 900);
        txn.put(&tree, key.as_bytes(), &vec![i as u8; 20 + i as usize % 60]).unwrap();
    }
    txn.put(&tree, b"long", &vec![7; 30_000]).unwrap();
    txn.put(&gone, b"a", b"b").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    for i in 100..700u32 {
        txn.delete(&tree, format!("key {i:03}").as_bytes()).unwrap();
    }
    txn.drop_tree("gone").unwrap();
    txn.commit().unwrap();
    let mut txn = db.begin(TransactionOptions::default());
    txn.put(&tree, b"key 001", b"other").unwrap();
    txn.put(&tree, b"long", b"short").unwrap();
    txn.rollback().unwrap();
    db.close().unwrap();
    disk
}

/// As many as are wanted of each kind.
fn few<K: Ord>(seeds: impl Iterator<Item = (K, Vec<u8>)>) -> Vec<Vec<u8>> {
    let mut kept = BTreeMap::<K, Vec<Vec<u8>>>::new();
    for (kind, seed) in seeds {
        let of_kind = kept.entry(kind).or_default();
        if of_kind.len() < OF_A_KIND && !of_kind.contains(&seed) {
            of_kind.push(seed);
        }
    }
    kept.into_values().flatten().collect()
}

fn trimmed(bytes: &[u8]) -> Vec<u8> {
    let len = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

fn pages(data: &[u8]) -> Vec<Vec<u8>> {
    let kind = |page: &[u8]| {
        let inner = page::kind(page) == Some(PageKind::Node) && crate::node::NodeRef::new(page).is_inner();
        (page[20], inner)
    };
    few(data
        .chunks_exact(PAGE)
        .filter(|page| page::kind(page).is_some())
        .map(|page| (kind(page), trimmed(page))))
}

/// Changes of one page from its first contents on, as [`change`] takes them.
fn histories(records: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut pages = BTreeMap::<PageId, (Vec<u8>, Vec<u8>)>::new();
    let mut kinds = Vec::new();
    for bytes in records {
        log::record(bytes, &mut |change| {
            if change.init {
                kinds.extend(pages.remove(&change.page));
            }
            let known = pages.contains_key(&change.page);
            if !known && !change.init {
                return;
            }
            let (kind, history) = pages.entry(change.page).or_default();
            if history.len() + change.bytes.len() + 3 > LONGEST {
                return;
            }
            // Of a kind are those with the same first changes.
            if kind.len() < 4 {
                kind.push(change.kind);
                kind.extend(change.bytes.first().filter(|_| change.kind == change::NODE));
            }
            history.push(change.kind | if change.init { 0x80 } else { 0 });
            history.extend_from_slice(&(change.bytes.len() as u16).to_le_bytes());
            history.extend_from_slice(change.bytes);
        });
    }
    kinds.extend(pages.into_values());
    few(kinds.into_iter().filter(|(_, history)| !history.is_empty()))
}

fn file_seeds(data: &[u8], hot: Option<Vec<u8>>) -> Vec<Vec<u8>> {
    let header = trimmed(&data[..2 * PAGE]);
    let pages = [(PageId(3), gannet_base::Lsn(8)), (PageId(9), gannet_base::Lsn(16))];
    let mut slot = ring::header(3, 1, SALT, pages.into_iter())[8..].to_vec();
    slot.extend_from_slice(&trimmed(&data[2 * PAGE..3 * PAGE]));
    let mut block = vec![0; page_list::BLOCK];
    page_list::encode(&[PageId(2), PageId(3), PageId(300), PageId(70_000)], 3, SALT, &mut block);
    let hot = hot.unwrap_or_else(|| block[8..].to_vec());
    [(0, header), (1, slot), (2, trimmed(&block[8..])), (2, trimmed(&hot))]
        .map(|(which, bytes)| [&[which][..], &bytes].concat())
        .to_vec()
}
