//! The five transactions (clause 2).

use super::connection::{Ask, Connection, Datum, Rows, Statement};
use super::data::{Constants, Distributions};
use super::{DISTRICTS, Size};
use crate::random::Random;
use anyhow::{Context, Result};

/// Which transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Clause 2.4
    NewOrder,
    /// Clause 2.5
    Payment,
    /// Clause 2.6
    OrderStatus,
    /// Clause 2.7
    Delivery,
    /// Clause 2.8
    StockLevel,
}

impl Kind {
    /// Every kind, in the specification's order.
    pub const ALL: [Kind; 5] =
        [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NewOrder => "new-order",
            Kind::Payment => "payment",
            Kind::OrderStatus => "order-status",
            Kind::Delivery => "delivery",
            Kind::StockLevel => "stock-level",
        }
    }

    /// The next transaction of a terminal, by the shares of clause 5.2.3.
    pub fn draw(random: &mut Random) -> Kind {
        match random.uniform(1, 100) {
            1..=43 => Kind::Payment,
            44..=47 => Kind::OrderStatus,
            48..=51 => Kind::Delivery,
            52..=55 => Kind::StockLevel,
            _ => Kind::NewOrder,
        }
    }
}

/// What is to be done, drawn before the transaction so that it can be run again unchanged.
#[derive(Clone, Debug)]
pub enum Request {
    /// Clause 2.4.1
    NewOrder {
        /// District and customer.
        district: u32,
        /// The customer.
        customer: u32,
        /// Item (one that does not exist makes the transaction roll back), supplying warehouse, quantity.
        lines: Vec<(u32, u32, u32)>,
    },
    /// Clause 2.5.1
    Payment {
        /// The terminal's district.
        district: u32,
        /// Where the customer belongs.
        home: (u32, u32),
        /// Who pays.
        customer: Customer,
        /// How much, in cents.
        cents: i64,
    },
    /// Clause 2.6.1
    OrderStatus {
        /// The district.
        district: u32,
        /// Whose order.
        customer: Customer,
    },
    /// Clause 2.7.1
    Delivery {
        /// Who delivers.
        carrier: u32,
    },
    /// Clause 2.8.1
    StockLevel {
        /// The district.
        district: u32,
        /// Which stock is low.
        threshold: u32,
    },
}

/// A customer, by number or last name.
#[derive(Clone, Debug)]
pub enum Customer {
    /// By number.
    Number(u32),
    /// By last name: the one in the middle, by first name.
    Name(String),
}

impl Request {
    /// Draws a request of a terminal of `warehouse`.
    pub fn draw(kind: Kind, warehouse: u32, size: Size, random: &mut Random) -> Request {
        let warehouses = size.warehouses;
        let district = random.uniform(1, DISTRICTS);
        match kind {
            Kind::NewOrder => {
                let customer = random.customer(size, Constants::RUN);
                let count = random.uniform(5, 15);
                let fails = random.uniform(1, 100) == 1;
                let mut lines: Vec<(u32, u32, u32)> = (0..count)
                    .map(|_| {
                        let remote = warehouses > 1 && random.uniform(1, 100) == 1;
                        let supplier = if remote { other(warehouse, warehouses, random) } else { warehouse };
                        (random.item(size, Constants::RUN), supplier, random.uniform(1, 10))
                    })
                    .collect();
                // One order for all, so that two of them do not wait for each other in a circle.
                lines.sort_unstable_by_key(|(item, supplier, _)| (*supplier, *item));
                if let (true, Some(last)) = (fails, lines.last_mut()) {
                    last.0 = size.items + 1;
                }
                Request::NewOrder { district, customer, lines }
            }
            Kind::Payment => {
                let home = if warehouses > 1 && random.uniform(1, 100) > 85 {
                    (other(warehouse, warehouses, random), random.uniform(1, DISTRICTS))
                } else {
                    (warehouse, district)
                };
                let customer = customer(size, random);
                Request::Payment { district, home, customer, cents: i64::from(random.uniform(100, 500_000)) }
            }
            Kind::OrderStatus => Request::OrderStatus { district, customer: customer(size, random) },
            Kind::Delivery => Request::Delivery { carrier: random.uniform(1, 10) },
            Kind::StockLevel => Request::StockLevel { district, threshold: random.uniform(10, 20) },
        }
    }
}

fn other(warehouse: u32, warehouses: u32, random: &mut Random) -> u32 {
    let drawn = random.uniform(1, warehouses - 1);
    if drawn >= warehouse { drawn + 1 } else { drawn }
}

fn customer(size: Size, random: &mut Random) -> Customer {
    if random.uniform(1, 100) <= 60 {
        Customer::Name(random.last_name(size, Constants::RUN))
    } else {
        Customer::Number(random.customer(size, Constants::RUN))
    }
}

macro_rules! statements {
    ($($name:ident = $sql:expr;)*) => {
        /// The prepared statements of a terminal.
        #[derive(Debug)]
        pub struct Terminal {
            warehouse: u32,
            begin: Statement,
            begin_read_only: Statement,
            commit: Statement,
            rollback: Statement,
            /// By district.
            stock: Vec<Statement>,
            $($name: Statement,)*
        }

        impl Terminal {
            /// Prepares everything for a terminal of this warehouse.
            pub fn new(connection: &mut dyn Connection, warehouse: u32) -> Result<Self> {
                let stock = (1..=DISTRICTS)
                    .map(|district| connection.prepare(&format!(
                        "select s_quantity, s_dist_{district:02}, s_data from stock where s_w_id = $1 and s_i_id = $2 for update"
                    )))
                    .collect::<Result<_>>()?;
                Ok(Terminal {
                    warehouse,
                    begin: connection.prepare("begin")?,
                    begin_read_only: connection.prepare("begin isolation level repeatable read read only")?,
                    commit: connection.prepare("commit")?,
                    rollback: connection.prepare("rollback")?,
                    stock,
                    $($name: connection.prepare($sql).with_context(|| $sql)?,)*
                })
            }
        }
    };
}

statements! {
    order_customer = "select c_discount, c_last, c_credit, w_tax from customer, warehouse \
        where w_id = $1 and c_w_id = w_id and c_d_id = $2 and c_id = $3";
    next_order = "update district set d_next_o_id = d_next_o_id + 1 where d_w_id = $1 and d_id = $2 \
        returning d_next_o_id - 1, d_tax";
    insert_order = "insert into orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
        values ($1, $2, $3, $4, localtimestamp, null, $5, $6)";
    insert_new_order = "insert into new_order (no_w_id, no_d_id, no_o_id) values ($1, $2, $3)";
    item = "select i_price, i_name, i_data from item where i_id = $1";
    update_stock = "update stock set s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1, \
        s_remote_cnt = s_remote_cnt + $5 where s_w_id = $1 and s_i_id = $2";
    insert_line = "insert into order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, \
        ol_delivery_d, ol_quantity, ol_amount, ol_dist_info) values ($1, $2, $3, $4, $5, $6, null, $7, $8, $9)";
    pay_warehouse = "update warehouse set w_ytd = w_ytd + $2 where w_id = $1 \
        returning w_name, w_street_1, w_street_2, w_city, w_state, w_zip";
    pay_district = "update district set d_ytd = d_ytd + $3 where d_w_id = $1 and d_id = $2 \
        returning d_name, d_street_1, d_street_2, d_city, d_state, d_zip";
    by_name = "select c_id from customer where c_w_id = $1 and c_d_id = $2 and c_last = $3 order by c_first";
    pay_customer = "update customer set c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, \
        c_payment_cnt = c_payment_cnt + 1 where c_w_id = $1 and c_d_id = $2 and c_id = $3 \
        returning c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_since, \
        c_credit, c_credit_lim, c_discount, c_balance";
    bad_credit = "update customer set c_data = substr($4 || c_data, 1, 500) \
        where c_w_id = $1 and c_d_id = $2 and c_id = $3 returning substr(c_data, 1, 200)";
    insert_history = "insert into history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
        values ($1, $2, $3, $4, $5, localtimestamp, $6, $7)";
    status_customer = "select c_first, c_middle, c_last, c_balance from customer \
        where c_w_id = $1 and c_d_id = $2 and c_id = $3";
    last_order = "select o_id, o_entry_d, o_carrier_id from orders \
        where o_w_id = $1 and o_d_id = $2 and o_c_id = $3 order by o_id desc limit 1";
    order_lines = "select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line \
        where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3";
    oldest = "select no_o_id from new_order where no_w_id = $1 and no_d_id = $2 order by no_o_id limit 1 for update";
    delete_new_order = "delete from new_order where no_w_id = $1 and no_d_id = $2 and no_o_id = $3";
    deliver_order = "update orders set o_carrier_id = $4 where o_w_id = $1 and o_d_id = $2 and o_id = $3 \
        returning o_c_id";
    deliver_lines = "update order_line set ol_delivery_d = localtimestamp \
        where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3";
    sum_lines = "select sum(ol_amount) from order_line where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3";
    deliver_customer = "update customer set c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1 \
        where c_w_id = $1 and c_d_id = $2 and c_id = $3";
    district_next = "select d_next_o_id from district where d_w_id = $1 and d_id = $2";
    low_stock = "select count(distinct s_i_id) from order_line, stock where ol_w_id = $1 and ol_d_id = $2 \
        and ol_o_id < $3 and ol_o_id >= $3 - 20 and s_w_id = $1 and s_i_id = ol_i_id and s_quantity < $4";
}

fn int(value: u32) -> Datum {
    Datum::Int(i64::from(value))
}

fn cents(value: i64) -> Datum {
    Datum::Decimal(value, 2)
}

/// The first row.
fn one(rows: Rows, what: &str) -> Result<Vec<Datum>> {
    rows.into_iter().next().with_context(|| format!("{what} is not there"))
}

/// The statements of a transaction that wait to be asked. The first batch begins it, the last one ends it: a client that asks all of a batch at once waits for
/// answers only where it needs them.
struct Transaction<'c> {
    connection: &'c mut dyn Connection,
    waiting: Vec<Ask>,
}

impl Transaction<'_> {
    /// To be asked with the next batch, for nothing but the effect.
    fn add(&mut self, ask: Ask) {
        self.waiting.push(ask);
    }

    /// Asks what waits, and these; gives the rows of these.
    fn ask<const N: usize>(&mut self, asks: [Ask; N]) -> Result<[Rows; N]> {
        let rows = self.ask_all(asks)?;
        rows.try_into()
            .map_err(|rows: Vec<Rows>| anyhow::anyhow!("{N} statements gave {} results", rows.len()))
    }

    /// The same for however many.
    fn ask_all(&mut self, asks: impl IntoIterator<Item = Ask>) -> Result<Vec<Rows>> {
        let before = self.waiting.len();
        self.waiting.extend(asks);
        let rows = self.connection.query_all(&self.waiting)?;
        self.waiting.clear();
        Ok(rows.into_iter().skip(before).collect())
    }
}

impl Terminal {
    /// Runs a request as one transaction; false when it rolled back as the specification wants one in a hundred new orders to. On an
    /// error the transaction is rolled back.
    pub fn run(&self, connection: &mut dyn Connection, request: &Request) -> Result<bool> {
        let read_only = matches!(request, Request::OrderStatus { .. } | Request::StockLevel { .. });
        let begin = if read_only { self.begin_read_only } else { self.begin };
        let mut transaction = Transaction { connection, waiting: vec![begin.with([])] };
        let done = self.work(&mut transaction, request).and_then(|commits| {
            transaction.ask([if commits { self.commit } else { self.rollback }.with([])])?;
            Ok(commits)
        });
        if done.is_err() {
            // Where the connection is gone, so is the transaction.
            let _ = connection.execute(self.rollback, &[]);
        }
        done
    }

    /// All but its begin and end; whether it is to be committed.
    fn work(&self, transaction: &mut Transaction<'_>, request: &Request) -> Result<bool> {
        match request {
            Request::NewOrder { district, customer, lines } => {
                return self.new_order(transaction, *district, *customer, lines);
            }
            Request::Payment { district, home, customer, cents } => {
                self.payment(transaction, *district, *home, customer, *cents)?;
            }
            Request::OrderStatus { district, customer } => {
                self.order_status(transaction, *district, customer)?;
            }
            Request::Delivery { carrier } => self.delivery(transaction, *carrier)?,
            Request::StockLevel { district, threshold } => {
                self.stock_level(transaction, *district, *threshold)?;
            }
        }
        Ok(true)
    }

    fn new_order(
        &self,
        transaction: &mut Transaction<'_>,
        district: u32,
        customer: u32,
        lines: &[(u32, u32, u32)],
    ) -> Result<bool> {
        let place = [int(self.warehouse), int(district)];
        let customer = int(customer);
        let [found, next] = transaction.ask([
            self.order_customer.with([&place[..], std::slice::from_ref(&customer)].concat()),
            self.next_order.with(place.clone()),
        ])?;
        one(found, "the customer")?;
        let order = one(next, "the district")?.swap_remove(0);
        let key = [&place[..], &[order]].concat();
        let local = lines.iter().all(|(_, supplier, _)| *supplier == self.warehouse);
        let rest = [customer, int(lines.len() as u32), int(u32::from(local))];
        transaction.add(self.insert_order.with([&key[..], &rest].concat()));
        transaction.add(self.insert_new_order.with(key.clone()));
        let stock = self.stock[district as usize - 1];
        let items = lines.iter().map(|(item, ..)| self.item.with([int(*item)]));
        let stocks = lines.iter().map(|(item, supplier, _)| stock.with([int(*supplier), int(*item)]));
        let mut items = transaction.ask_all(items.chain(stocks))?;
        let stocks = items.split_off(lines.len());
        // What is left of an item that the order has twice.
        let mut before: Option<((u32, u32), i64)> = None;
        for (((item, supplier, quantity), found), (number, stock)) in
            lines.iter().zip(items).zip((1..).zip(stocks))
        {
            // The specification wants all the other lines to be worked on before the transaction rolls back.
            let Some(found) = found.into_iter().next() else { return Ok(false) };
            let amount = found[0].cents()? * i64::from(*quantity);
            let stock = one(stock, "the stock")?;
            let have = match before {
                Some((last, left)) if last == (*supplier, *item) => left,
                _ => stock[0].int()?,
            };
            let wanted = i64::from(*quantity);
            let left = if have >= wanted + 10 { have - wanted } else { have - wanted + 91 };
            before = Some(((*supplier, *item), left));
            let remote = int(u32::from(*supplier != self.warehouse));
            let parameters = [int(*supplier), int(*item), Datum::Int(left), int(*quantity), remote];
            transaction.add(self.update_stock.with(parameters));
            let line =
                [int(number), int(*item), int(*supplier), int(*quantity), cents(amount), stock[1].clone()];
            transaction.add(self.insert_line.with([&key[..], &line].concat()));
        }
        Ok(true)
    }

    /// Asks for the number of a customer who is known by name only (clause 2.5.2.2).
    fn ask_for(&self, home: (u32, u32), customer: &Customer) -> Option<Ask> {
        match customer {
            Customer::Number(_) => None,
            Customer::Name(name) => {
                Some(self.by_name.with([int(home.0), int(home.1), Datum::Text(name.clone())]))
            }
        }
    }

    fn payment(
        &self,
        transaction: &mut Transaction<'_>,
        district: u32,
        home: (u32, u32),
        customer: &Customer,
        amount: i64,
    ) -> Result<()> {
        let (warehouse, place) = (int(self.warehouse), int(district));
        let asks = [
            self.pay_warehouse.with([warehouse.clone(), cents(amount)]),
            self.pay_district.with([warehouse.clone(), place.clone(), cents(amount)]),
        ];
        let found = transaction.ask_all(asks.into_iter().chain(self.ask_for(home, customer)))?;
        let mut found = found.into_iter();
        let of_warehouse = one(found.next().unwrap_or_default(), "the warehouse")?;
        let of_district = one(found.next().unwrap_or_default(), "the district")?;
        let customer = number(customer, found.next())?;
        let key = [int(home.0), int(home.1), customer.clone()];
        let [paid] = transaction.ask([self.pay_customer.with([&key[..], &[cents(amount)]].concat())])?;
        let paid = one(paid, "the customer")?;
        if paid[10].text()? == "BC" {
            let note = format!(
                "{} {} {} {district} {} {}.{:02} ",
                customer.int()?,
                home.1,
                home.0,
                self.warehouse,
                amount / 100,
                amount % 100
            );
            transaction.add(self.bad_credit.with([&key[..], &[Datum::Text(note)]].concat()));
        }
        let names = format!("{}    {}", of_warehouse[0].text()?, of_district[0].text()?);
        let [home_warehouse, home_district, customer] = key;
        transaction.add(self.insert_history.with([
            customer,
            home_district,
            home_warehouse,
            place,
            warehouse,
            cents(amount),
            Datum::Text(names),
        ]));
        Ok(())
    }

    fn order_status(
        &self,
        transaction: &mut Transaction<'_>,
        district: u32,
        customer: &Customer,
    ) -> Result<()> {
        let home = (self.warehouse, district);
        let found = match self.ask_for(home, customer) {
            Some(ask) => transaction.ask_all([ask])?.pop(),
            None => None,
        };
        let key = [int(home.0), int(home.1), number(customer, found)?];
        let [status, order] =
            transaction.ask([self.status_customer.with(key.clone()), self.last_order.with(key)])?;
        one(status, "the customer")?;
        let order = one(order, "the customer's last order")?.swap_remove(0);
        transaction.add(self.order_lines.with([int(home.0), int(home.1), order]));
        Ok(())
    }

    fn delivery(&self, transaction: &mut Transaction<'_>, carrier: u32) -> Result<()> {
        let home = int(self.warehouse);
        let oldest = (1..=DISTRICTS).map(|district| self.oldest.with([home.clone(), int(district)]));
        let oldest = transaction.ask_all(oldest)?;
        // Where there is none, nothing is to be delivered, or somebody else is at it.
        let orders: Vec<Vec<Datum>> = (1..)
            .zip(oldest)
            .filter_map(|(district, found)| {
                let order = found.into_iter().next()?.swap_remove(0);
                Some(vec![home.clone(), int(district), order])
            })
            .collect();
        let asks = orders.iter().flat_map(|order| {
            [
                self.delete_new_order.with(order.clone()),
                self.deliver_order.with([&order[..], &[int(carrier)]].concat()),
                self.deliver_lines.with(order.clone()),
                self.sum_lines.with(order.clone()),
            ]
        });
        let mut found = transaction.ask_all(asks)?.into_iter();
        for mut parameters in orders {
            let [_, customer, _, sum] = std::array::from_fn(|_| found.next().unwrap_or_default());
            parameters[2] = one(customer, "the order")?.swap_remove(0);
            parameters.push(cents(one(sum, "the sum")?[0].cents()?));
            transaction.add(self.deliver_customer.with(parameters));
        }
        Ok(())
    }

    fn stock_level(&self, transaction: &mut Transaction<'_>, district: u32, threshold: u32) -> Result<()> {
        let place = [int(self.warehouse), int(district)];
        let [next] = transaction.ask([self.district_next.with(place.clone())])?;
        let next = one(next, "the district")?.swap_remove(0);
        let [home, place] = place;
        transaction.add(self.low_stock.with([home, place, next, int(threshold)]));
        Ok(())
    }
}

/// The number of a customer, of whom `found` was told where only the name is known.
fn number(customer: &Customer, found: Option<Rows>) -> Result<Datum> {
    let name = match customer {
        Customer::Number(number) => return Ok(int(*number)),
        Customer::Name(name) => name,
    };
    let mut rows = found.unwrap_or_default();
    let middle = rows.len().div_ceil(2);
    if rows.is_empty() {
        anyhow::bail!("no customer has the name {name:?}");
    }
    Ok(rows.swap_remove(middle - 1).swap_remove(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Statements that were asked at once, with what they were given.
    type Batch = Vec<(String, Vec<Datum>)>;

    /// Answers as it was told, and keeps what it was asked, by batches.
    #[derive(Default)]
    struct Recorder {
        prepared: Vec<String>,
        answers: VecDeque<Rows>,
        batches: Vec<Batch>,
    }

    impl Connection for Recorder {
        fn batch(&mut self, _sql: &str) -> Result<()> {
            unreachable!()
        }

        fn prepare(&mut self, sql: &str) -> Result<Statement> {
            self.prepared.push(sql.to_owned());
            Ok(Statement(self.prepared.len() - 1))
        }

        fn query(&mut self, _statement: Statement, _parameters: &[Datum]) -> Result<Rows> {
            unreachable!()
        }

        fn query_all(&mut self, asks: &[Ask]) -> Result<Vec<Rows>> {
            let told =
                asks.iter().map(|ask| (self.prepared[ask.statement.0].clone(), ask.parameters.clone()));
            self.batches.push(told.collect());
            // Only what gives rows has an answer.
            let answer = |ask: &Ask| {
                let sql = &self.prepared[ask.statement.0];
                let has_rows = sql.starts_with("select") || sql.contains("returning");
                if has_rows { self.answers.pop_front().unwrap() } else { Rows::new() }
            };
            Ok(asks.iter().map(answer).collect())
        }

        fn execute(&mut self, _statement: Statement, _parameters: &[Datum]) -> Result<u64> {
            unreachable!()
        }

        fn load(&mut self, _table: &str, _more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
            unreachable!()
        }
    }

    fn text(text: &str) -> Datum {
        Datum::Text(text.to_owned())
    }

    /// A new order of these lines: what was asked, and whether it was to be committed. Each item costs 1.50; the last one is not there if `fails`.
    fn ordered(lines: &[(u32, u32, u32)], have: &[i64], fails: bool) -> (Vec<Batch>, bool) {
        let mut recorder = Recorder::default();
        let terminal = Terminal::new(&mut recorder, 1).unwrap();
        let customer = vec![cents(0), text("BAR"), text("GC"), cents(0)];
        recorder.answers.extend([vec![customer], vec![vec![Datum::Int(3001), cents(5)]]]);
        let item = vec![vec![cents(150), text("item"), text("data")]];
        recorder.answers.extend((0..lines.len()).map(|at| match fails && at + 1 == lines.len() {
            true => Rows::new(),
            false => item.clone(),
        }));
        let stock = |have: i64| vec![Datum::Int(have), text("dist"), text("data")];
        recorder
            .answers
            .extend((0..lines.len()).map(|at| have.get(at).map(|&have| stock(have)).into_iter().collect()));
        let request = Request::NewOrder { district: 4, customer: 77, lines: lines.to_vec() };
        let commits = terminal.run(&mut recorder, &request).unwrap();
        (recorder.batches, commits)
    }

    fn of<'b>(batches: &'b [Batch], words: &str) -> Vec<(usize, &'b [Datum])> {
        let all = batches.iter().enumerate().flat_map(|(at, batch)| batch.iter().map(move |ask| (at, ask)));
        all.filter(|(_, ask)| ask.0.starts_with(words)).map(|(at, ask)| (at, &ask.1[..])).collect()
    }

    #[test]
    fn a_new_order_is_asked_in_three_batches_and_takes_from_stock_what_it_orders() {
        // The second item twice: what the first line has left is what the second one takes from.
        let lines = [(5, 1, 3), (8, 1, 6), (8, 1, 7), (2, 2, 1)];
        let (batches, commits) = ordered(&lines, &[50, 20, 20, 10], false);
        assert!(commits && batches.len() == 3);
        assert_eq!((&*batches[0][0].0, &*batches[2].last().unwrap().0), ("begin", "commit"));
        let stock: Vec<_> =
            of(&batches, "update stock").into_iter().map(|(_, given)| given.to_vec()).collect();
        let row = |values: [i64; 5]| values.map(Datum::Int).to_vec();
        let expected =
            [[1, 5, 47, 3, 0], [1, 8, 14, 6, 0], [1, 8, 14 - 7 + 91, 7, 0], [2, 2, 10 - 1 + 91, 1, 1]];
        assert_eq!(stock, expected.map(row));
        let inserted = of(&batches, "insert into order_line");
        assert_eq!(inserted.len(), 4);
        assert_eq!(inserted[3].1[2..8], [Datum::Int(3001), int(4), int(2), int(2), int(1), cents(150)]);
        // Not all of it is from the own warehouse.
        assert_eq!(of(&batches, "insert into orders")[0].1[5], int(0));
        assert_eq!(of(&batches, "insert into new_order").len(), 1);
    }

    #[test]
    fn an_order_of_an_item_that_is_not_there_rolls_back_what_was_done_of_its_other_lines() {
        let (batches, commits) = ordered(&[(5, 1, 3), (100_001, 1, 6)], &[50], true);
        assert!(!commits && batches.len() == 3);
        assert_eq!(batches[2].last().unwrap().0, "rollback");
        assert_eq!(
            (of(&batches, "update stock").len(), of(&batches, "insert into order_line").len()),
            (1, 1)
        );
        assert_eq!(of(&batches, "commit").len(), 0);
    }
}
