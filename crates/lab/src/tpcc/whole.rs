//! All of a database read once through its server, so that what fits into its memory is there.
//!
//! Rows are read by their keys, in pieces so small that nobody takes them for a long scan: whoever scans much keeps what he reads out of the memory that others work with,
//! Gannet and PostgreSQL alike. Indexes that lead to rows are read by ranges of theirs.

use super::connection::{Connection, Datum, Statement};
use super::data::SYLLABLES;
use super::{DISTRICTS, Size};
use anyhow::{Context, Result, bail};
use std::sync::atomic::{AtomicBool, Ordering};

/// What of a table is read at a time.
struct Pieces {
    sql: &'static str,
    /// Keys of a piece, which are `$1` to `$2` behind what is common to it.
    step: u32,
}

const ITEM: Pieces =
    Pieces { sql: "select count(*), max(i_data) from item where i_id between $1 and $2", step: 1000 };
const STOCK: Pieces = Pieces {
    sql: "select count(*), max(s_data) from stock where s_w_id = $3 and s_i_id between $1 and $2",
    step: 400,
};
const CUSTOMER: Pieces = Pieces {
    sql: "select count(*), max(c_data) from customer where c_w_id = $3 and c_d_id = $4 and c_id between $1 and $2",
    step: 200,
};
const ORDERS: Pieces = Pieces {
    sql: "select count(*), max(o_ol_cnt) from orders where o_w_id = $3 and o_d_id = $4 and o_id between $1 and $2",
    step: 1000,
};
const ORDERS_OF: Pieces = Pieces {
    sql: "select count(*), max(o_id) from orders where o_w_id = $3 and o_d_id = $4 and o_c_id between $1 and $2",
    step: 300,
};
const NEW_ORDER: Pieces = Pieces {
    sql: "select count(*), max(no_o_id) from new_order where no_w_id = $3 and no_d_id = $4 and no_o_id between $1 and $2",
    step: 1000,
};
const ORDER_LINE: Pieces = Pieces {
    sql: "select count(*), max(ol_quantity) from order_line where ol_w_id = $3 and ol_d_id = $4 and ol_o_id between $1 and $2",
    step: 100,
};
/// By last names, which begin with one of ten syllables each.
const BY_NAME: &str = "select count(*), max(c_first) from customer \
     where c_w_id = $3 and c_d_id = $4 and c_last >= $1 and c_last < $2";
/// Tables that are small, or only added to.
const SMALL: [&str; 3] = [
    "select count(*), max(w_ytd) from warehouse",
    "select count(*), max(d_ytd) from district",
    "select count(*), max(h_amount) from history",
];

/// The texts that begin with a syllable: from it to the first one behind them. No syllable ends with a Z.
fn range_of(syllable: &str) -> [String; 2] {
    let mut next = syllable.to_owned();
    let behind = next.pop().map_or('A', |last| char::from(last as u8 + 1));
    next.push(behind);
    [syllable.to_owned(), next]
}

/// A connection, with what was prepared on it.
struct Reader<'c> {
    connection: &'c mut dyn Connection,
    prepared: Vec<(&'static str, Statement)>,
    stop: &'c AtomicBool,
}

impl Reader<'_> {
    /// Reads a piece; gives how many rows it has.
    fn read(&mut self, sql: &'static str, parameters: &[Datum]) -> Result<u64> {
        if self.stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let known = self.prepared.iter().find(|(text, _)| *text == sql).map(|(_, statement)| *statement);
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.connection.prepare(sql).context(sql)?;
                self.prepared.push((sql, statement));
                statement
            }
        };
        let rows = self.connection.query(statement, parameters).context(sql)?;
        let count = rows.first().and_then(|row| row.first()).context(sql)?;
        Ok(count.int()? as u64)
    }

    /// Reads all pieces, of keys up to `most`.
    fn each(&mut self, pieces: &Pieces, most: u32, place: &[u32]) -> Result<u64> {
        let mut rows = 0;
        for first in (1..=most).step_by(pieces.step as usize) {
            let numbers = [first, first + pieces.step - 1].into_iter().chain(place.iter().copied());
            let numbers: Vec<Datum> = numbers.map(|number| Datum::Int(number.into())).collect();
            rows += self.read(pieces.sql, &numbers)?;
        }
        Ok(rows)
    }
}

/// Reads every row of a loaded database that nobody has changed yet, and its indexes. Gives how many rows there are.
///
/// # Errors
/// The database's; or `stop` was set.
pub fn all(connection: &mut dyn Connection, size: Size, stop: &AtomicBool) -> Result<u64> {
    let mut reader = Reader { connection, prepared: Vec::new(), stop };
    let mut rows = reader.each(&ITEM, size.items, &[])?;
    for sql in SMALL {
        rows += reader.read(sql, &[])?;
    }
    for warehouse in 1..=size.warehouses {
        rows += reader.each(&STOCK, size.items, &[warehouse])?;
        for district in 1..=DISTRICTS {
            let place = [warehouse, district];
            for pieces in [&CUSTOMER, &ORDERS, &NEW_ORDER, &ORDER_LINE] {
                rows += reader.each(pieces, size.customers, &place)?;
            }
            // The same rows once more, by indexes.
            reader.each(&ORDERS_OF, size.customers, &place)?;
            for syllable in SYLLABLES {
                let names = range_of(syllable).map(Datum::Text).into_iter();
                let place = place.map(|number| Datum::Int(number.into()));
                reader.read(BY_NAME, &names.chain(place).collect::<Vec<_>>())?;
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::super::connection::Connect;
    use super::super::load;
    use super::super::schema::TABLES;
    use super::*;
    use crate::sql::Embedded;
    use gannet_sql::Database;
    use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};

    #[test]
    fn every_row_is_read_once() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::new(&EngineOptions { memory: 32 << 20, temp_folder: None }).unwrap();
        let (create, open) = (CreateOptions::default(), OpenOptions::default());
        let database =
            Database::create(&engine, &folder.path().join("whole.gnt"), &create, &open, "lab").unwrap();
        let embedded = Embedded { database, user: "lab".to_owned() };
        let size = Size::new(1).shrunk(100);
        load::tables(&embedded, &load::Load { size, seed: 1, loaders: 1 }, |_| true).unwrap();
        let connection = &mut *embedded.connect().unwrap();
        load::finish(connection, || true).unwrap();
        let mut there = 0;
        for table in TABLES {
            let counted = connection.prepare(&format!("select count(*) from {table}")).unwrap();
            there += connection.query(counted, &[]).unwrap()[0][0].int().unwrap() as u64;
        }
        let go_on = AtomicBool::new(false);
        assert_eq!(all(connection, size, &go_on).unwrap(), there);
        go_on.store(true, Ordering::Relaxed);
        assert!(all(connection, size, &go_on).unwrap_err().to_string().contains("interrupted"));
    }

    #[test]
    fn every_last_name_is_in_one_range() {
        let mut ranges = SYLLABLES.map(range_of);
        ranges.sort();
        assert!(ranges.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "{ranges:?}");
    }
}
