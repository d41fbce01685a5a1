//! What the clients do: transfers between accounts, each a transaction over several tables.
//!
//! A transaction is a function of the seed, its client and its number; so is what must be there after it. All clients change
//! the same accounts; what else they change is their own.
//!
//! | table | what is in it |
//! |---|---|
//! | `account` | a balance; all clients' transfers move it |
//! | `entry` | each client's last [`KEPT`] transfers, with a note that now and then is long; older ones are deleted |
//! | `total` | for each client the number of its last transaction, and what it has moved in all |
//! | `ground` | more rows than the server has memory for; each transaction changes one of them |
//! | `side_N` | a table that client N creates, indexes and drops now and then |

use crate::ledger::{Ledger, Mark};
use crate::server::{Client, STUCK};
use gannet_base::sim::Generator;
use gannet_io::trace;
use gannet_server::frontend::{Address, Failure, Report};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Connections that work at a time.
pub(crate) const CLIENTS: u64 = 6;
/// Accounts, numbered from 0.
pub(crate) const ACCOUNTS: u64 = 24;
/// Each account's balance in the beginning.
pub(crate) const BALANCE: i64 = 1000;
/// Entries of a client that are kept.
pub(crate) const KEPT: u64 = 40;
/// Rows of `ground`, numbered from 0, and bytes of each.
pub(crate) const GROUND: (u64, u64) = (9000, 1000);
/// In so many transactions a client's side table is made and dropped once.
const SIDE_PERIOD: u64 = 16;
/// Looks at the whole file beside the load; a row for each thing that is not sound.
const CHECK: &str = "check database";
/// What is asked for beside the load, and its number as a phase.
pub(crate) const CHORES: [(&str, u8); 6] =
    [("checkpoint", 1), ("checkpoint", 1), ("vacuum", 2), ("vacuum", 2), (CHECK, 3), ("compact database", 4)];

/// One transaction of a client.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) debit: u64,
    pub(crate) credit: u64,
    pub(crate) amount: i64,
    /// Its row of `ground`.
    pub(crate) place: u64,
    random: Generator,
}

impl Transfer {
    pub(crate) fn new(seed: u64, client: u64, number: u64) -> Self {
        let mut random = Generator::new(seed ^ client << 48 ^ number);
        let debit = random.below(ACCOUNTS);
        let credit = (debit + 1 + random.below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + random.below(100) as i64;
        let place = random.below(GROUND.0 / CLIENTS) * CLIENTS + client;
        Transfer { debit, credit, amount, place, random }
    }

    /// What is written beside it: mostly short, sometimes longer than a page, seldom longer than an undo page or a log block.
    pub(crate) fn note(&self) -> String {
        let mut random = self.random.clone();
        let len = match random.below(24) {
            0 => random.below(60_000),
            1..4 => random.below(9_000),
            _ => random.below(160),
        };
        let mut note = String::with_capacity(len as usize + 16);
        while (note.len() as u64) < len {
            let _ = write!(note, "{:016x}", random.next_u64());
        }
        note.truncate(len as usize);
        note
    }
}

/// The row in a client's side table after its transaction of this number; none when there is no such table.
pub(crate) fn side_row(number: u64) -> Option<u64> {
    (3..11).contains(&(number % SIDE_PERIOD)).then(|| number / SIDE_PERIOD * SIDE_PERIOD + 3)
}

/// Whether a client's commits are asynchronous.
pub(crate) fn is_asynchronous(client: u64) -> bool {
    client % 3 == 2
}

/// The statements of a transaction without its COMMIT, each to be sent alone.
fn statements(seed: u64, client: u64, number: u64) -> Vec<String> {
    let transfer = Transfer::new(seed, client, number);
    let Transfer { debit, credit, amount, place, .. } = transfer;
    let note = transfer.note();
    let mut all = vec![
        "begin".to_owned(),
        format!("update account set balance = balance - {amount} where id = {debit}"),
        format!("insert into entry values ({client}, {number}, {debit}, {credit}, {amount}, '{note}')"),
        format!("update total set last = {number}, moved = moved + {amount} where client = {client}"),
        format!("update ground set hits = hits + {number} where id = {place}"),
        format!("update account set balance = balance + {amount} where id = {credit}"),
    ];
    if number.is_multiple_of(5) {
        all.push("savepoint here".to_owned());
        all.push(format!("update entry set note = note || '{number}' where client = {client}"));
        all.push("rollback to here".to_owned());
    }
    if let Some(old) = number.checked_sub(KEPT).filter(|old| *old > 0) {
        all.push(format!("delete from entry where client = {client} and number = {old}"));
    }
    match (side_row(number - 1), side_row(number)) {
        (None, Some(row)) => {
            all.push(format!("create table side_{client} (id bigint primary key, word text, note text)"));
            all.push(format!("insert into side_{client} values ({row}, 'side', ''), (-1, 'gone', '{note}')"));
            all.push(format!("create index on side_{client} (word)"));
            all.push(format!("delete from side_{client} where id = -1"));
        }
        (Some(_), None) => all.push(format!("drop table side_{client}")),
        _ => {}
    }
    all
}

/// Makes the tables of the load.
pub(crate) fn set_up(client: &mut Client) -> Result<(), Failure> {
    let (rows, bytes) = GROUND;
    client.query(&format!(
        "begin;
         create table account (id int primary key, balance bigint not null);
         insert into account select id, {BALANCE} from generate_series(0, {ACCOUNTS} - 1) as id;
         create table entry (client int, number bigint, debit int not null references account, credit int not null,
           amount bigint not null, note text not null, primary key (client, number));
         create index on entry (debit);
         create index on entry (credit, amount);
         create table ground (id int primary key, hits bigint not null, stuff text not null);
         insert into ground select id, 0, repeat('g', {bytes}) from generate_series(0, {rows} - 1) as id;
         create table total (client int primary key, last bigint not null, moved bigint not null);
         insert into total select client, 0, 0 from generate_series(0, {CLIENTS} - 1) as client;
         commit"
    ))?;
    Ok(())
}

/// A ledger for these clients.
pub(crate) fn new_ledger() -> Ledger {
    Ledger::new((0..CLIENTS).map(is_asynchronous))
}

/// What a client does after an error of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Runs the transaction again.
    Again,
    /// Ends its work.
    End,
}

/// What the clients of a server know.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) ledger: Ledger,
    /// What the server refused: SQLSTATEs, how often, and what was said the first time.
    refused: BTreeMap<String, (u64, String)>,
}

impl Known {
    /// How often this SQLSTATE was seen.
    pub(crate) fn refused(&self, state: &str) -> u64 {
        self.refused.get(state).map_or(0, |(count, _)| *count)
    }
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("refused")?;
        for (state, (count, message)) in &self.refused {
            write!(f, " {count} times {state} ({message})")?;
        }
        Ok(())
    }
}

/// What clients share.
pub(crate) struct Shared {
    known: Mutex<Known>,
    /// Told of every change of `known`.
    changed: Condvar,
    trace: Option<trace::Writer>,
    stop: AtomicBool,
    /// Judges what the server refuses; a panic where it must not refuse it.
    judge: fn(&Report) -> Verdict,
}

impl Shared {
    pub(crate) fn new(ledger: Ledger, trace: Option<trace::Writer>, judge: fn(&Report) -> Verdict) -> Self {
        let known = Mutex::new(Known { ledger, refused: BTreeMap::new() });
        Shared { known, changed: Condvar::new(), trace, stop: AtomicBool::new(false), judge }
    }

    /// Notes something, in the ledger and in the trace, in one order.
    pub(crate) fn note(&self, mark: Mark) {
        let mut known = self.known.lock().unwrap();
        known.ledger.note(mark);
        self.changed.notify_all();
        if let Some(trace) = &self.trace {
            trace.write(&trace::Event::Mark(&mark.to_bytes())).expect("the trace takes a mark");
        }
    }

    /// Ends the work of all clients after their present transaction.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What is known now.
    pub(crate) fn known(&self) -> Known {
        self.known.lock().unwrap().clone()
    }

    /// The ledger of now.
    pub(crate) fn ledger(&self) -> Ledger {
        self.known().ledger
    }

    /// Waits until `done` says so.
    pub(crate) fn wait(&self, mut done: impl FnMut(&Known) -> bool) {
        let known = self.known.lock().unwrap();
        let waited = self.changed.wait_timeout_while(known, STUCK, |known| !done(known)).unwrap();
        assert!(!waited.1.timed_out(), "the clients are stuck: {}", *waited.0);
    }

    /// Whether an error is to be tried again. Who lost the connection is done: it is not for clients to say why.
    fn goes_on(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Server(report) => {
                let mut known = self.known.lock().unwrap();
                let first = || (0, report.message.clone());
                known.refused.entry(report.state.clone()).or_insert_with(first).0 += 1;
                self.changed.notify_all();
                drop(known);
                (self.judge)(report) == Verdict::Again
            }
            Failure::Connection(_) => false,
            Failure::Receiver(error) => panic!("a client failed: {error}"),
        }
    }

    /// Works as one client until stopped, or until there is no server any more.
    pub(crate) fn work(&self, address: &Address, client: u64) {
        let Ok(mut connection) = Client::connect(address) else { return };
        let mode = if is_asynchronous(client) { "off" } else { "on" };
        if connection.query(&format!("set synchronous_commit = {mode}")).is_err() {
            return;
        }
        let ledger = self.ledger();
        let seed = ledger.seed().expect("the tables are there");
        let mut number = ledger.allowed(client).start() + 1;
        while !self.is_stopped() {
            match self.transact(&mut connection, seed, client, number) {
                Ok(true) => number += 1,
                Ok(false) => {}
                Err(failure) if self.goes_on(&failure) => {
                    // Where even that fails, the next statement tells why.
                    let _ = connection.query("rollback");
                }
                Err(_) => return,
            }
        }
    }

    /// Runs a transaction; false where it turned out, after an error at its end, that it did not happen.
    fn transact(
        &self,
        connection: &mut Client,
        seed: u64,
        client: u64,
        number: u64,
    ) -> Result<bool, Failure> {
        for statement in statements(seed, client, number) {
            connection.query(&statement)?;
        }
        if number.is_multiple_of(7) && Generator::new(number ^ seed).one_in(2) {
            // The same once more, this time to stay.
            connection.query("rollback")?;
            for statement in statements(seed, client, number) {
                connection.query(&statement)?;
            }
        }
        self.note(Mark::Sent { client, number });
        match connection.query("commit") {
            Ok(_) => {}
            Err(failure) if self.goes_on(&failure) => {
                let last = connection.query(&format!("select last from total where client = {client}"))?;
                if last[0][0] != number.to_string() {
                    return Ok(false);
                }
            }
            Err(failure) => return Err(failure),
        }
        self.note(Mark::Acknowledged { client, number });
        Ok(true)
    }

    /// Asks for chores, and says which of them is going on: 0 for none, or its number.
    pub(crate) fn keep_house(&self, address: &Address, chores: &[(&str, u8)], phase: &AtomicU8, seed: u64) {
        let mut random = Generator::new(seed);
        let Ok(mut client) = Client::connect(address) else { return };
        while !self.is_stopped() {
            let (sql, number) = chores[random.below(chores.len() as u64) as usize];
            phase.store(number, Ordering::Relaxed);
            let done = client.query(sql);
            phase.store(0, Ordering::Relaxed);
            match done {
                Ok(rows) => {
                    assert!(sql != CHECK || rows.is_empty(), "not sound beside the load: {rows:?}");
                }
                Err(failure) if self.goes_on(&failure) => {}
                Err(_) => return,
            }
            std::thread::sleep(Duration::from_micros(random.below(50_000)));
        }
    }
}

/// Of a server that has no trouble, and may end: conflicts among clients are tried again, its end is taken for the end.
pub(crate) fn ordinary(report: &Report) -> Verdict {
    match report.state.as_str() {
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => Verdict::Again,
        // admin_shutdown, crash_shutdown, cannot_connect_now
        "57P01" | "57P02" | "57P03" => Verdict::End,
        state => panic!("a server without trouble says {state}: {report}"),
    }
}
