//! What the server's clients have been told, and so what must be there afterwards.
//!
//! A client's transactions are numbered from 1 and run one after the other, so what is there of a client is one number: its
//! last transaction. The ledger says which numbers can be explained.
//!
//! # Invariants
//! 1. A synchronous commit that was acknowledged is there.
//! 2. An asynchronous one is there when any synchronous one was acknowledged whose COMMIT was sent after the acknowledgement
//!    of the asynchronous one: the log has an order.
//! 3. A transaction whose COMMIT was never sent is not there.

use std::ops::RangeInclusive;

/// A client's place in the ledger.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Its commits are asynchronous.
    asynchronous: bool,
    /// The last transaction whose COMMIT was sent.
    sent: u64,
    /// The last one that was acknowledged.
    acknowledged: u64,
    /// The last one that must be there.
    promised: u64,
    /// What all clients had been told when this one sent its COMMIT.
    seen: Vec<u64>,
}

/// Something told to the ledger, or by it to a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// The tables are there, and `seed` makes the load.
    Ready { seed: u64 },
    /// A client sends the COMMIT of this transaction.
    Sent { client: u64, number: u64 },
    /// A client was told that this transaction is committed.
    Acknowledged { client: u64, number: u64 },
    /// This transaction was found to be the last one of a client.
    Found { client: u64, number: u64 },
}

impl Mark {
    /// As bytes, for a trace.
    pub(crate) fn to_bytes(self) -> [u8; 17] {
        let (kind, first, second) = match self {
            Mark::Ready { seed } => (1, seed, 0),
            Mark::Sent { client, number } => (2, client, number),
            Mark::Acknowledged { client, number } => (3, client, number),
            Mark::Found { client, number } => (4, client, number),
        };
        let mut bytes = [kind; 17];
        bytes[1..9].copy_from_slice(&first.to_le_bytes());
        bytes[9..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// From the bytes of a trace.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let (client, number) = (number(1), number(9));
        match bytes[0] {
            1 => Mark::Ready { seed: client },
            2 => Mark::Sent { client, number },
            3 => Mark::Acknowledged { client, number },
            4 => Mark::Found { client, number },
            kind => panic!("a mark of kind {kind}"),
        }
    }
}

/// What may be there, see the head of the module.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// What makes the load, once its tables are there.
    seed: Option<u64>,
    clients: Vec<Entry>,
}

impl Ledger {
    /// Nothing has happened; `asynchronous` says of each client how it commits.
    pub(crate) fn new(asynchronous: impl IntoIterator<Item = bool>) -> Self {
        let entry = |asynchronous| Entry { asynchronous, ..Entry::default() };
        Ledger { seed: None, clients: asynchronous.into_iter().map(entry).collect() }
    }

    /// Takes notice of something.
    pub(crate) fn note(&mut self, mark: Mark) {
        match mark {
            Mark::Ready { seed } => self.seed = Some(seed),
            Mark::Sent { client, number } => {
                let seen = self.clients.iter().map(|entry| entry.acknowledged).collect();
                let entry = &mut self.clients[client as usize];
                (entry.sent, entry.seen) = (number, seen);
            }
            Mark::Acknowledged { client, number } => {
                let entry = &mut self.clients[client as usize];
                assert_eq!(entry.sent, number, "client {client} was told of a COMMIT that it did not send");
                entry.acknowledged = number;
                if !entry.asynchronous {
                    entry.promised = number;
                    let seen = std::mem::take(&mut entry.seen);
                    for (entry, seen) in self.clients.iter_mut().zip(seen) {
                        entry.promised = entry.promised.max(seen);
                    }
                }
            }
            Mark::Found { client, number } => {
                let entry = &mut self.clients[client as usize];
                (entry.sent, entry.acknowledged, entry.promised) = (number, number, number);
            }
        }
    }

    /// What makes the load; none as long as its tables need not be there.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// How many clients there are.
    pub(crate) fn clients(&self) -> u64 {
        self.clients.len() as u64
    }

    /// Which transactions may be the last one of a client.
    pub(crate) fn allowed(&self, client: u64) -> RangeInclusive<u64> {
        let entry = &self.clients[client as usize];
        entry.promised..=entry.sent
    }

    /// Acknowledged transactions of all clients.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.clients.iter().map(|entry| entry.acknowledged).sum()
    }
}

#[test]
fn an_asynchronous_commit_is_promised_by_a_later_synchronous_one_only() {
    let mut ledger = Ledger::new([false, true]);
    let (sent, told) = (
        |client, number| Mark::Sent { client, number },
        |client, number| Mark::Acknowledged { client, number },
    );
    ledger.note(sent(0, 1));
    ledger.note(sent(1, 1));
    ledger.note(told(1, 1));
    ledger.note(told(0, 1));
    assert_eq!((ledger.allowed(0), ledger.allowed(1)), (1..=1, 0..=1), "sent before it was told");
    ledger.note(sent(1, 2));
    ledger.note(sent(0, 2));
    ledger.note(told(0, 2));
    assert_eq!((ledger.allowed(0), ledger.allowed(1)), (2..=2, 1..=2));
    for mark in [Mark::Ready { seed: u64::MAX }, sent(1, 2), told(0, 9), Mark::Found { client: 2, number: 3 }]
    {
        assert_eq!(Mark::from_bytes(&mark.to_bytes()), mark);
    }
}
