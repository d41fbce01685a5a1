//! TPC-B: banks' branches, tellers and accounts; each transaction books an amount on one of each and into the history.
//!
//! One row is added to what the benchmark prescribes: each session counts its transactions in a row of its own, in the same transaction. What a client was told is
//! then compared with what is there: a commit that was acknowledged and is gone shows as a counter that is behind, and a transaction that is there by half shows as
//! sums that differ.

pub mod check;
pub mod load;

use crate::random::Random;
use crate::tpcc::connection::{Connection, Datum, Statement};
use anyhow::{Result, bail};

/// Tellers of a branch.
pub const TELLERS: u64 = 10;
/// Accounts of a branch.
pub const ACCOUNTS: u64 = 100_000;
/// What fills a row of the history.
const FILLER: &str = "of twenty-two letters.";
/// Largest amount, either way.
const LARGEST: u64 = 999_999;
/// Of a hundred accounts, those of the teller's own branch, where there are others (clause 5.3.5).
const LOCAL_PERCENT: u64 = 85;

/// How large the bank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Branches, 1 or more.
    pub branches: u64,
    /// Sessions that have a row to count in, numbered from 0.
    pub sessions: u64,
}

/// What one transaction books.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Booking {
    /// The account, from 1.
    pub account: u64,
    /// The teller, from 1.
    pub teller: u64,
    /// The teller's branch, from 1.
    pub branch: u64,
    /// The amount, negative where it is taken off.
    pub amount: i64,
}

impl Booking {
    /// By chance.
    pub fn random(size: Size, random: &mut Random) -> Self {
        let teller = random.below(size.branches * TELLERS) + 1;
        let branch = (teller - 1) / TELLERS + 1;
        let is_local = size.branches == 1 || random.below(100) < LOCAL_PERCENT;
        let of = match is_local {
            true => branch,
            false => (branch + random.below(size.branches - 1)) % size.branches + 1,
        };
        let account = (of - 1) * ACCOUNTS + random.below(ACCOUNTS) + 1;
        Booking { account, teller, branch, amount: random.below(2 * LARGEST + 1) as i64 - LARGEST as i64 }
    }

    /// The whole transaction as text, for a client that prepares nothing.
    pub fn statements(&self, session: u64) -> String {
        let Booking { account, teller, branch, amount } = self;
        format!(
            "begin; update tpcb_accounts set abalance = abalance + {amount} where aid = {account}; \
             select abalance from tpcb_accounts where aid = {account}; \
             update tpcb_tellers set tbalance = tbalance + {amount} where tid = {teller}; \
             update tpcb_branches set bbalance = bbalance + {amount} where bid = {branch}; \
             insert into tpcb_history (tid, bid, aid, delta, mtime, filler) \
             values ({teller}, {branch}, {account}, {amount}, localtimestamp, '{FILLER}'); \
             update tpcb_sessions set done = done + 1 where sid = {session}; commit"
        )
    }
}

/// A session's statements.
#[derive(Debug)]
pub struct Prepared {
    account: Statement,
    balance: Statement,
    teller: Statement,
    branch: Statement,
    history: Statement,
    counter: Statement,
}

/// Where a transaction that came to nothing stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It was not committed.
    Undone,
    /// Its commit was sent, and not answered: it may be there.
    Unknown,
}

impl Prepared {
    /// Prepares a session.
    ///
    /// # Errors
    /// The database's.
    pub fn new(connection: &mut dyn Connection) -> Result<Self> {
        Ok(Prepared {
            account: connection
                .prepare("update tpcb_accounts set abalance = abalance + $1 where aid = $2")?,
            balance: connection.prepare("select abalance from tpcb_accounts where aid = $1")?,
            teller: connection.prepare("update tpcb_tellers set tbalance = tbalance + $1 where tid = $2")?,
            branch: connection.prepare("update tpcb_branches set bbalance = bbalance + $1 where bid = $2")?,
            history: connection.prepare(&format!(
                "insert into tpcb_history (tid, bid, aid, delta, mtime, filler) values ($1, $2, $3, $4, localtimestamp, '{FILLER}')"
            ))?,
            counter: connection.prepare("update tpcb_sessions set done = done + 1 where sid = $1")?,
        })
    }

    /// Books, in a transaction of its own; on return it is committed.
    ///
    /// # Errors
    /// What the database says, and whether the transaction may be there all the same.
    pub fn book(
        &self,
        connection: &mut dyn Connection,
        session: u64,
        booking: Booking,
    ) -> std::result::Result<(), (Fate, anyhow::Error)> {
        self.changes(connection, session, booking).map_err(|error| (Fate::Undone, error))?;
        connection.batch("commit").map_err(|error| (Fate::Unknown, error))
    }

    fn changes(&self, connection: &mut dyn Connection, session: u64, booking: Booking) -> Result<()> {
        let Booking { account, teller, branch, amount } = booking;
        let [account, teller, branch, session] =
            [account, teller, branch, session].map(|number| Datum::Int(number as i64));
        let amount = Datum::Int(amount);
        connection.batch("begin")?;
        let one = |changed: u64, what: &str, number: &Datum| match changed {
            1 => Ok(()),
            other => bail!("{other} rows of {what} {number:?}"),
        };
        one(connection.execute(self.account, &[amount.clone(), account.clone()])?, "account", &account)?;
        let balance = connection.query(self.balance, std::slice::from_ref(&account))?;
        one(balance.len() as u64, "account", &account)?;
        one(connection.execute(self.teller, &[amount.clone(), teller.clone()])?, "teller", &teller)?;
        one(connection.execute(self.branch, &[amount.clone(), branch.clone()])?, "branch", &branch)?;
        connection.execute(self.history, &[teller, branch, account, amount])?;
        one(connection.execute(self.counter, std::slice::from_ref(&session))?, "session", &session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookings_are_within_the_bank_and_mostly_local() {
        let size = Size { branches: 7, sessions: 1 };
        let mut random = Random::new(1);
        let mut local = 0;
        for _ in 0..10_000 {
            let booking = Booking::random(size, &mut random);
            assert!((1..=size.branches * ACCOUNTS).contains(&booking.account), "{booking:?}");
            assert!((1..=size.branches * TELLERS).contains(&booking.teller), "{booking:?}");
            assert_eq!(booking.branch, (booking.teller - 1) / TELLERS + 1);
            assert!(booking.amount.unsigned_abs() <= LARGEST);
            local += u64::from((booking.account - 1) / ACCOUNTS + 1 == booking.branch);
        }
        assert!((8_300..8_700).contains(&local), "{local}");
        let only = Size { branches: 1, sessions: 1 };
        assert!((0..100).all(|_| Booking::random(only, &mut random).account <= ACCOUNTS));
    }
}
