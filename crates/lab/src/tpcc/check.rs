//! The consistency conditions (clause 3.3.2), as queries that count what violates them.

use super::connection::Connection;
use anyhow::{Result, ensure};

/// A condition: its number in clause 3.3.2, what it says, and a query whose one value is the number of violations.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Clause 3.3.2.n
    pub number: u32,
    /// In words.
    pub says: &'static str,
    sql: &'static str,
    /// The same for a database that joins by keys only, see [`Connection::joins_by_keys`]: where the other one would read a table anew for each row.
    by_keys: Option<&'static str>,
}

/// The conditions. 3.3.2.11 holds for the initial population only and is left out.
pub const CONDITIONS: &[Condition] = &[
    Condition {
        number: 1,
        says: "a warehouse's year-to-date is the sum of its districts'",
        sql: "select count(*) from warehouse where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id)",
        by_keys: None,
    },
    Condition {
        number: 2,
        says: "a district's next order follows its newest order and its newest undelivered one",
        sql: "select count(*) from district \
              join (select o_w_id, o_d_id, max(o_id) as newest from orders group by o_w_id, o_d_id) o \
                on o_w_id = d_w_id and o_d_id = d_id \
              left join (select no_w_id, no_d_id, max(no_o_id) as newest_new from new_order group by no_w_id, no_d_id) n \
                on no_w_id = d_w_id and no_d_id = d_id \
              where d_next_o_id - 1 <> newest or newest_new <> newest",
        by_keys: Some(
            "select count(*) from district where d_next_o_id - 1 <> \
              (select max(o_id) from orders where o_w_id = d_w_id and o_d_id = d_id) \
              or d_next_o_id - 1 <> (select max(no_o_id) from new_order where no_w_id = d_w_id and no_d_id = d_id)",
        ),
    },
    Condition {
        number: 3,
        says: "the undelivered orders of a district have no gaps",
        sql: "select count(*) from (select no_w_id, no_d_id from new_order group by no_w_id, no_d_id \
              having max(no_o_id) - min(no_o_id) + 1 <> count(*)) as gaps",
        by_keys: None,
    },
    Condition {
        number: 4,
        says: "the orders of a district have as many lines as they say",
        sql: "select count(*) from (select o_w_id, o_d_id, sum(o_ol_cnt) as said from orders group by o_w_id, o_d_id) o \
              left join (select ol_w_id, ol_d_id, count(*) as there from order_line group by ol_w_id, ol_d_id) l \
                on ol_w_id = o_w_id and ol_d_id = o_d_id where said <> coalesce(there, 0)",
        by_keys: Some(
            "select count(*) from district where \
              (select sum(o_ol_cnt) from orders where o_w_id = d_w_id and o_d_id = d_id) <> \
              (select count(*) from order_line where ol_w_id = d_w_id and ol_d_id = d_id)",
        ),
    },
    Condition {
        number: 5,
        says: "an order without carrier is an undelivered one, and the other way round",
        sql: "select count(*) from orders left join new_order \
                on no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id \
              where (o_carrier_id is null) <> (no_o_id is not null)",
        by_keys: None,
    },
    Condition {
        number: 6,
        says: "an order has as many lines as it says",
        sql: "select count(*) from orders left join (select ol_w_id, ol_d_id, ol_o_id, count(*) as there \
                from order_line group by ol_w_id, ol_d_id, ol_o_id) l \
                on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id where o_ol_cnt <> coalesce(there, 0)",
        by_keys: Some(
            "select count(*) from orders where o_ol_cnt <> \
              (select count(*) from order_line where ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id)",
        ),
    },
    Condition {
        number: 7,
        says: "a line has a delivery date when its order has a carrier",
        sql: "select count(*) from order_line join orders on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id \
              where (ol_delivery_d is null) <> (o_carrier_id is null)",
        by_keys: None,
    },
    Condition {
        number: 8,
        says: "a warehouse's year-to-date is the sum of its history",
        sql: "select count(*) from warehouse where w_ytd <> (select coalesce(sum(h_amount), 0) from history where h_w_id = w_id)",
        by_keys: None,
    },
    Condition {
        number: 9,
        says: "a district's year-to-date is the sum of its history",
        sql: "select count(*) from district left join (select h_w_id, h_d_id, sum(h_amount) as paid \
                from history group by h_w_id, h_d_id) h on h_w_id = d_w_id and h_d_id = d_id where d_ytd <> coalesce(paid, 0)",
        by_keys: Some(
            "select (select count(*) from district) - count(*) from (select h_w_id, h_d_id, sum(h_amount) as paid \
                from history group by h_w_id, h_d_id) h \
              join district on d_w_id = h_w_id and d_id = h_d_id where d_ytd = paid",
        ),
    },
    Condition {
        number: 10,
        says: "a customer owes what was delivered less what was paid",
        sql: "select count(*) from customer \
              left join (select o_w_id, o_d_id, o_c_id, sum(ol_amount) as delivered from orders \
                join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id \
                where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) l \
                on o_w_id = c_w_id and o_d_id = c_d_id and o_c_id = c_id \
              left join (select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) as paid from history \
                group by h_c_w_id, h_c_d_id, h_c_id) h \
                on h_c_w_id = c_w_id and h_c_d_id = c_d_id and h_c_id = c_id \
              where c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
        by_keys: Some(
            "select (select count(*) from customer) - count(*) from (select h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) as paid \
                from history group by h_c_w_id, h_c_d_id, h_c_id) h \
              join customer on c_w_id = h_c_w_id and c_d_id = h_c_d_id and c_id = h_c_id \
              where c_balance + paid = coalesce((select sum(ol_amount) from orders \
                join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id \
                where o_w_id = c_w_id and o_d_id = c_d_id and o_c_id = c_id and ol_delivery_d is not null), 0)",
        ),
    },
    Condition {
        number: 12,
        says: "a customer's balance and payments are what was delivered",
        sql: "select count(*) from customer \
              left join (select o_w_id, o_d_id, o_c_id, sum(ol_amount) as delivered from orders \
                join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id \
                where ol_delivery_d is not null group by o_w_id, o_d_id, o_c_id) l \
                on o_w_id = c_w_id and o_d_id = c_d_id and o_c_id = c_id \
              where c_balance + c_ytd_payment <> coalesce(delivered, 0)",
        by_keys: Some(
            "select count(*) from customer where c_balance + c_ytd_payment <> coalesce((select sum(ol_amount) from orders \
                join order_line on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id \
                where o_w_id = c_w_id and o_d_id = c_d_id and o_c_id = c_id and ol_delivery_d is not null), 0)",
        ),
    },
];

/// Counts a condition's violations.
pub fn violations(connection: &mut dyn Connection, condition: &Condition) -> Result<i64> {
    let by_keys = condition.by_keys.filter(|_| connection.joins_by_keys());
    let statement = connection.prepare(by_keys.unwrap_or(condition.sql))?;
    let rows = connection.query(statement, &[])?;
    ensure!(rows.len() == 1, "a count has {} rows", rows.len());
    rows[0][0].int()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Embedded;
    use crate::tpcc::connection::Connect;
    use crate::tpcc::{Size, load};
    use gannet_sql::Database;
    use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions};

    fn count(connection: &mut dyn Connection, sql: &str) -> i64 {
        let statement = connection.prepare(sql).unwrap();
        connection.query(statement, &[]).unwrap()[0][0].int().unwrap()
    }

    #[test]
    fn both_wordings_of_a_condition_find_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::new(&EngineOptions { memory: 32 << 20, temp_folder: None }).unwrap();
        let (create, open) = (CreateOptions::default(), OpenOptions::default());
        let database =
            Database::create(&engine, &folder.path().join("check.gnt"), &create, &open, "lab").unwrap();
        let embedded = Embedded { database, user: "lab".to_owned() };
        let load = load::Load { size: Size::new(1).shrunk(100), seed: 1, loaders: 1 };
        load::tables(&embedded, &load, |_| true).unwrap();
        let connection = &mut *embedded.connect().unwrap();
        load::finish(connection, || true).unwrap();
        let worded = || CONDITIONS.iter().filter_map(|one| Some((one.number, one.sql, one.by_keys?)));
        assert_eq!(worded().map(|one| one.0).collect::<Vec<_>>(), [2, 4, 6, 9, 10, 12]);
        for (number, sql, by_keys) in worded() {
            assert_eq!((count(connection, sql), count(connection, by_keys)), (0, 0), "condition {number}");
        }
        for damage in [
            "update district set d_next_o_id = d_next_o_id + 1, d_ytd = d_ytd + 1 where d_id <= 2",
            "delete from order_line where ol_number = 1 and ol_d_id = 3 and ol_o_id <= 2",
            "update customer set c_balance = c_balance + 1 where c_id <= 3",
        ] {
            connection.batch(damage).unwrap();
        }
        for (number, sql, by_keys) in worded() {
            let found = count(connection, sql);
            assert!(found > 0, "condition {number}");
            assert_eq!(count(connection, by_keys), found, "condition {number}");
        }
    }
}
