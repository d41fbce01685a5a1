//! The five transactions (clause 2).

use super::connection::{Connection, Datum, Statement};
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
fn one(rows: Vec<Vec<Datum>>, what: &str) -> Result<Vec<Datum>> {
    rows.into_iter().next().with_context(|| format!("{what} is not there"))
}

impl Terminal {
    /// Runs a request as one transaction; false when it rolled back as the specification wants one in a hundred new orders to. On an
    /// error the transaction is rolled back.
    pub fn run(&self, connection: &mut dyn Connection, request: &Request) -> Result<bool> {
        let read_only = matches!(request, Request::OrderStatus { .. } | Request::StockLevel { .. });
        connection.execute(if read_only { self.begin_read_only } else { self.begin }, &[])?;
        let done = match request {
            Request::NewOrder { district, customer, lines } => {
                self.new_order(connection, *district, *customer, lines)
            }
            Request::Payment { district, home, customer, cents } => {
                self.payment(connection, *district, *home, customer, *cents).map(|()| true)
            }
            Request::OrderStatus { district, customer } => {
                self.order_status(connection, *district, customer).map(|()| true)
            }
            Request::Delivery { carrier } => self.delivery(connection, *carrier).map(|()| true),
            Request::StockLevel { district, threshold } => {
                self.stock_level(connection, *district, *threshold).map(|()| true)
            }
        };
        match done {
            Ok(true) => connection.execute(self.commit, &[]).map(|_| true),
            Ok(false) => connection.execute(self.rollback, &[]).map(|_| false),
            Err(error) => {
                // Where the connection is gone, so is the transaction.
                let _ = connection.execute(self.rollback, &[]);
                Err(error)
            }
        }
    }

    fn new_order(
        &self,
        connection: &mut dyn Connection,
        district: u32,
        customer: u32,
        lines: &[(u32, u32, u32)],
    ) -> Result<bool> {
        let (home, place) = (int(self.warehouse), int(district));
        let found = connection.query(self.order_customer, &[home.clone(), place.clone(), int(customer)])?;
        one(found, "the customer")?;
        let next = one(connection.query(self.next_order, &[home.clone(), place.clone()])?, "the district")?;
        let order = next[0].clone();
        let local = lines.iter().all(|(_, supplier, _)| *supplier == self.warehouse);
        connection.execute(
            self.insert_order,
            &[
                home.clone(),
                place.clone(),
                order.clone(),
                int(customer),
                int(lines.len() as u32),
                int(u32::from(local)),
            ],
        )?;
        connection.execute(self.insert_new_order, &[home.clone(), place.clone(), order.clone()])?;
        for (number, (item, supplier, quantity)) in lines.iter().enumerate() {
            let Some(found) = connection.query(self.item, &[int(*item)])?.into_iter().next() else {
                return Ok(false);
            };
            let amount = found[0].cents()? * i64::from(*quantity);
            let stock = self.stock[district as usize - 1];
            let stock = one(connection.query(stock, &[int(*supplier), int(*item)])?, "the stock")?;
            let (have, wanted) = (stock[0].int()?, i64::from(*quantity));
            let left = if have >= wanted + 10 { have - wanted } else { have - wanted + 91 };
            connection.execute(
                self.update_stock,
                &[
                    int(*supplier),
                    int(*item),
                    Datum::Int(left),
                    int(*quantity),
                    int(u32::from(*supplier != self.warehouse)),
                ],
            )?;
            connection.execute(
                self.insert_line,
                &[
                    home.clone(),
                    place.clone(),
                    order.clone(),
                    int(number as u32 + 1),
                    int(*item),
                    int(*supplier),
                    int(*quantity),
                    cents(amount),
                    stock[1].clone(),
                ],
            )?;
        }
        Ok(true)
    }

    /// The number of a customer (clause 2.5.2.2); `None` when nobody has the name.
    fn find(
        &self,
        connection: &mut dyn Connection,
        home: (u32, u32),
        customer: &Customer,
    ) -> Result<Option<Datum>> {
        let name = match customer {
            Customer::Number(number) => return Ok(Some(int(*number))),
            Customer::Name(name) => name,
        };
        let mut rows =
            connection.query(self.by_name, &[int(home.0), int(home.1), Datum::Text(name.clone())])?;
        let middle = rows.len().div_ceil(2);
        Ok(if rows.is_empty() { None } else { Some(rows.swap_remove(middle - 1).swap_remove(0)) })
    }

    fn payment(
        &self,
        connection: &mut dyn Connection,
        district: u32,
        home: (u32, u32),
        customer: &Customer,
        amount: i64,
    ) -> Result<()> {
        let warehouse = connection.query(self.pay_warehouse, &[int(self.warehouse), cents(amount)])?;
        let warehouse = one(warehouse, "the warehouse")?;
        let place = [int(self.warehouse), int(district), cents(amount)];
        let place = one(connection.query(self.pay_district, &place)?, "the district")?;
        let Some(customer) = self.find(connection, home, customer)? else {
            anyhow::bail!("no customer has the name {customer:?}");
        };
        let key = [int(home.0), int(home.1), customer.clone()];
        let mut parameters = key.to_vec();
        parameters.push(cents(amount));
        let found = one(connection.query(self.pay_customer, &parameters)?, "the customer")?;
        if found[10].text()? == "BC" {
            let note = format!(
                "{} {} {} {district} {} {}.{:02} ",
                customer.int()?,
                home.1,
                home.0,
                self.warehouse,
                amount / 100,
                amount % 100
            );
            let mut parameters = key.to_vec();
            parameters.push(Datum::Text(note));
            connection.query(self.bad_credit, &parameters)?;
        }
        let names = format!("{}    {}", warehouse[0].text()?, place[0].text()?);
        let [home_warehouse, home_district, customer] = key;
        connection.execute(
            self.insert_history,
            &[
                customer,
                home_district,
                home_warehouse,
                int(district),
                int(self.warehouse),
                cents(amount),
                Datum::Text(names),
            ],
        )?;
        Ok(())
    }

    fn order_status(
        &self,
        connection: &mut dyn Connection,
        district: u32,
        customer: &Customer,
    ) -> Result<()> {
        let home = (self.warehouse, district);
        let Some(customer) = self.find(connection, home, customer)? else {
            anyhow::bail!("no customer has the name {customer:?}");
        };
        let key = [int(home.0), int(home.1), customer];
        one(connection.query(self.status_customer, &key)?, "the customer")?;
        let order = one(connection.query(self.last_order, &key)?, "the customer's last order")?;
        connection.query(self.order_lines, &[int(home.0), int(home.1), order[0].clone()])?;
        Ok(())
    }

    fn delivery(&self, connection: &mut dyn Connection, carrier: u32) -> Result<()> {
        for district in 1..=DISTRICTS {
            let place = [int(self.warehouse), int(district)];
            // Nothing to be delivered, or somebody else is at it.
            let Some(found) = connection.query(self.oldest, &place)?.into_iter().next() else { continue };
            let [home, place] = place;
            let order = [home.clone(), place.clone(), found[0].clone()];
            connection.execute(self.delete_new_order, &order)?;
            let mut parameters = order.to_vec();
            parameters.push(int(carrier));
            let customer = one(connection.query(self.deliver_order, &parameters)?, "the order")?;
            connection.execute(self.deliver_lines, &order)?;
            let sum = one(connection.query(self.sum_lines, &order)?, "the sum")?;
            let parameters = [home, place, customer[0].clone(), cents(sum[0].cents()?)];
            connection.execute(self.deliver_customer, &parameters)?;
        }
        Ok(())
    }

    fn stock_level(&self, connection: &mut dyn Connection, district: u32, threshold: u32) -> Result<()> {
        let place = [int(self.warehouse), int(district)];
        let next = one(connection.query(self.district_next, &place)?, "the district")?;
        let [home, place] = place;
        connection.query(self.low_stock, &[home, place, next[0].clone(), int(threshold)])?;
        Ok(())
    }
}
