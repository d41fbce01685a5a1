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
}

/// The conditions. 3.3.2.11 holds for the initial population only and is left out.
pub const CONDITIONS: &[Condition] = &[
    Condition {
        number: 1,
        says: "a warehouse's year-to-date is the sum of its districts'",
        sql: "select count(*) from warehouse where w_ytd <> (select sum(d_ytd) from district where d_w_id = w_id)",
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
    },
    Condition {
        number: 3,
        says: "the undelivered orders of a district have no gaps",
        sql: "select count(*) from (select no_w_id, no_d_id from new_order group by no_w_id, no_d_id \
              having max(no_o_id) - min(no_o_id) + 1 <> count(*)) as gaps",
    },
    Condition {
        number: 4,
        says: "the orders of a district have as many lines as they say",
        sql: "select count(*) from (select o_w_id, o_d_id, sum(o_ol_cnt) as said from orders group by o_w_id, o_d_id) o \
              left join (select ol_w_id, ol_d_id, count(*) as there from order_line group by ol_w_id, ol_d_id) l \
                on ol_w_id = o_w_id and ol_d_id = o_d_id where said <> coalesce(there, 0)",
    },
    Condition {
        number: 5,
        says: "an order without carrier is an undelivered one, and the other way round",
        sql: "select count(*) from orders left join new_order \
                on no_w_id = o_w_id and no_d_id = o_d_id and no_o_id = o_id \
              where (o_carrier_id is null) <> (no_o_id is not null)",
    },
    Condition {
        number: 6,
        says: "an order has as many lines as it says",
        sql: "select count(*) from orders left join (select ol_w_id, ol_d_id, ol_o_id, count(*) as there \
                from order_line group by ol_w_id, ol_d_id, ol_o_id) l \
                on ol_w_id = o_w_id and ol_d_id = o_d_id and ol_o_id = o_id where o_ol_cnt <> coalesce(there, 0)",
    },
    Condition {
        number: 7,
        says: "a line has a delivery date when its order has a carrier",
        sql: "select count(*) from order_line join orders on o_w_id = ol_w_id and o_d_id = ol_d_id and o_id = ol_o_id \
              where (ol_delivery_d is null) <> (o_carrier_id is null)",
    },
    Condition {
        number: 8,
        says: "a warehouse's year-to-date is the sum of its history",
        sql: "select count(*) from warehouse where w_ytd <> (select coalesce(sum(h_amount), 0) from history where h_w_id = w_id)",
    },
    Condition {
        number: 9,
        says: "a district's year-to-date is the sum of its history",
        sql: "select count(*) from district left join (select h_w_id, h_d_id, sum(h_amount) as paid \
                from history group by h_w_id, h_d_id) h on h_w_id = d_w_id and h_d_id = d_id where d_ytd <> coalesce(paid, 0)",
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
    },
];

/// Counts a condition's violations.
pub fn violations(connection: &mut dyn Connection, condition: &Condition) -> Result<i64> {
    let statement = connection.prepare(condition.sql)?;
    let rows = connection.query(statement, &[])?;
    ensure!(rows.len() == 1, "a count has {} rows", rows.len());
    rows[0][0].int()
}
