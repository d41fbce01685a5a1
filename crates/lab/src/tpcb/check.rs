//! Whether a bank's sums agree (clause 2.3), and what each session's counter says.

use crate::tpcc::connection::Connection;
use anyhow::{Context, Result, bail};

/// What has to hold, in words, and a query that counts what violates it.
const CONDITIONS: [(&str, &str); 4] = [
    (
        "a branch has what its tellers have",
        "select count(*) from tpcb_branches b join (select bid, sum(tbalance) as has from tpcb_tellers group by bid) t \
         on t.bid = b.bid where b.bbalance <> t.has",
    ),
    (
        "a branch has what its history says",
        "select count(*) from tpcb_branches b left join (select bid, sum(delta) as has from tpcb_history group by bid) h \
         on h.bid = b.bid where b.bbalance <> coalesce(h.has, 0)",
    ),
    (
        "the accounts have what the branches have",
        "select count(*) from (select sum(abalance) as has from tpcb_accounts) a, (select sum(bbalance) as has from tpcb_branches) b \
         where a.has <> b.has",
    ),
    (
        "the history has as many rows as the sessions have counted",
        "select count(*) from (select count(*) as has from tpcb_history) h, (select sum(done) as has from tpcb_sessions) s \
         where h.has <> s.has",
    ),
];

/// How many conditions there are.
pub const COUNT: usize = CONDITIONS.len();

/// Judges all of them.
///
/// # Errors
/// One is violated; or the database's.
pub fn sums(connection: &mut dyn Connection) -> Result<()> {
    for (says, sql) in CONDITIONS {
        let statement = connection.prepare(sql)?;
        let rows = connection.query(statement, &[])?;
        let found = rows.first().and_then(|row| row.first()).context("a count without a row")?.int()?;
        if found != 0 {
            bail!("the bank's books are wrong: it does not hold that {says}");
        }
    }
    Ok(())
}

/// What each session has counted, by its number.
///
/// # Errors
/// The database's.
pub fn counted(connection: &mut dyn Connection) -> Result<Vec<u64>> {
    let statement = connection.prepare("select done from tpcb_sessions order by sid")?;
    let rows = connection.query(statement, &[])?;
    rows.iter().map(|row| Ok(u64::try_from(row.first().context("a row without a column")?.int()?)?)).collect()
}

/// What a client knows of a session's transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Told {
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// Commits that were sent, and not answered.
    pub unknown: u64,
}

/// Compares what is there with what was told: nothing acknowledged may be missing, nothing be there that was never sent.
///
/// # Errors
/// What is missing, or too much.
pub fn compare(found: &[u64], told: &[Told]) -> Result<()> {
    if found.len() < told.len() {
        bail!("there are {} sessions' counters, and were {}", found.len(), told.len());
    }
    for (session, (&found, told)) in found.iter().zip(told).enumerate() {
        if found < told.acknowledged {
            bail!(
                "{} commits are lost: session {session} was told of {}, and {found} are there",
                told.acknowledged - found,
                told.acknowledged
            );
        }
        if found > told.acknowledged + told.unknown {
            bail!(
                "session {session} has {found} commits, of which {} were never sent",
                found - told.acknowledged - told.unknown
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Booking, Prepared, Size, load};
    use super::*;
    use crate::gannet;
    use crate::random::Random;
    use crate::table::Table;
    use crate::tpcc::connection::Connect;

    #[test]
    fn what_is_lost_or_was_never_sent_is_named() {
        let told = [Told { acknowledged: 5, unknown: 1 }, Told::default()];
        for right in [[5, 0], [6, 0]] {
            compare(&right, &told).unwrap();
        }
        assert!(compare(&[4, 0], &told).unwrap_err().to_string().contains("1 commits are lost: session 0"));
        assert!(compare(&[5, 1], &told).unwrap_err().to_string().contains("session 1 has 1 commits"));
        assert!(compare(&[5], &told).is_err());
    }

    #[test]
    fn books_that_agree_pass_and_each_forgery_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let options = gannet::Options {
            folder: folder.path().to_owned(),
            memory: 64 << 20,
            wal_limit: 64 << 20,
            ..gannet::Options::default()
        };
        let table = Table::open(&options, true).unwrap();
        let (embedded, size) = (table.embedded(), Size { branches: 1, sessions: 2 });
        load::tables(&embedded, size).unwrap();
        let mut connection = embedded.connect().unwrap();
        let prepared = Prepared::new(&mut *connection).unwrap();
        let mut random = Random::new(1);
        for number in 0..30 {
            prepared.book(&mut *connection, number % 2, Booking::random(size, &mut random)).unwrap();
        }
        sums(&mut *connection).unwrap();
        assert_eq!(counted(&mut *connection).unwrap(), [15, 15]);
        for (forgery, says) in [
            ("update tpcb_tellers set tbalance = tbalance + 1 where tid = 3", "tellers"),
            ("delete from tpcb_history where delta = (select max(delta) from tpcb_history)", "history says"),
            ("update tpcb_accounts set abalance = abalance + 1 where aid = 3", "accounts"),
            ("update tpcb_sessions set done = done + 1 where sid = 1", "counted"),
        ] {
            connection.batch("begin").unwrap();
            connection.batch(forgery).unwrap();
            let error = sums(&mut *connection).unwrap_err().to_string();
            assert!(error.contains(says), "{forgery}: {error}");
            connection.batch("rollback").unwrap();
        }
        sums(&mut *connection).unwrap();
        drop((connection, embedded));
        table.close().unwrap();
    }
}
