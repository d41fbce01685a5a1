//! The initial population, by the specification's distributions.

use super::connection::Connection;
use super::{DISTRICTS, Size};
use crate::random::{Random, Shuffle};
use anyhow::Result;
use std::fmt::{self, Write as _};

/// Bytes of a piece of COPY data.
const PIECE: usize = 64 << 10;

/// What last names consist of, three of them each (clause 4.3.2.3).
pub(super) const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The constants of the non-uniform distribution for a run (clause 2.1.6): those of the load and those of the run have to differ by
/// the right distance.
#[derive(Clone, Copy, Debug)]
pub struct Constants {
    /// For last names.
    pub last_name: u32,
    /// For customers.
    pub customer: u32,
    /// For items.
    pub item: u32,
}

impl Constants {
    /// Those of the load.
    pub const LOAD: Constants = Constants { last_name: 157, customer: 259, item: 7911 };
    /// Those of a run: the distance of the constant for last names is 66, within the limits of clause 2.1.6.1.
    pub const RUN: Constants = Constants { last_name: 223, customer: 259, item: 7911 };
}

/// Random values as the specification defines them.
pub trait Distributions {
    /// Uniform, both ends included.
    fn uniform(&mut self, low: u32, high: u32) -> u32;

    /// NURand(a, low, high) with constant `c` (clause 2.1.6).
    fn non_uniform(&mut self, a: u32, low: u32, high: u32, c: u32) -> u32 {
        let mixed = self.uniform(0, a) | self.uniform(low, high);
        (mixed + c) % (high - low + 1) + low
    }

    /// Letters and digits (clause 4.3.2.2).
    fn letters(&mut self, shortest: u32, longest: u32, out: &mut String) {
        for _ in 0..self.uniform(shortest, longest) {
            out.push(char::from(LETTERS[self.uniform(0, 61) as usize]));
        }
    }

    /// Digits.
    fn digits(&mut self, count: u32, out: &mut String) {
        for _ in 0..count {
            out.push(char::from(b'0' + self.uniform(0, 9) as u8));
        }
    }

    /// The number of a customer (clause 2.4.1.5 and others).
    fn customer(&mut self, size: Size, constants: Constants) -> u32 {
        self.non_uniform(1023, 1, size.customers, constants.customer)
    }

    /// The number of an item.
    fn item(&mut self, size: Size, constants: Constants) -> u32 {
        self.non_uniform(8191, 1, size.items, constants.item)
    }

    /// A last name as customers of a run have it (clause 4.3.2.3).
    fn last_name(&mut self, size: Size, constants: Constants) -> String {
        last_name(self.non_uniform(255, 0, size.names() - 1, constants.last_name))
    }
}

impl Distributions for Random {
    fn uniform(&mut self, low: u32, high: u32) -> u32 {
        low + self.below(u64::from(high - low) + 1) as u32
    }
}

/// Three syllables (clause 4.3.2.3).
pub fn last_name(number: u32) -> String {
    [number / 100 % 10, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize]).concat()
}

/// Gives rows one at a time, as lines of COPY.
struct Rows<F> {
    next: u64,
    count: u64,
    row: F,
    line: String,
}

impl<F: FnMut(u64, &mut String)> Rows<F> {
    fn new(count: u64, row: F) -> Self {
        Rows { next: 0, count, row, line: String::new() }
    }

    fn more(&mut self, out: &mut Vec<u8>) -> bool {
        let before = out.len();
        while self.next < self.count && out.len() - before < PIECE {
            self.line.clear();
            (self.row)(self.next, &mut self.line);
            out.extend_from_slice(self.line.as_bytes());
            self.next += 1;
        }
        out.len() > before
    }
}

/// Why there is less than was to be loaded: whoever is told how far it has come wanted no more.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted before everything was loaded")
    }
}

impl std::error::Error for Interrupted {}

/// Loads a table: `row` appends whole lines for each number below `count`. `progress` is told of each piece, and gives whether there is to be more.
fn load(
    connection: &mut dyn Connection,
    table: &str,
    count: u64,
    progress: &mut dyn FnMut(u64) -> bool,
    row: impl FnMut(u64, &mut String),
) -> Result<u64> {
    let mut rows = Rows::new(count, row);
    let (mut told, mut goes_on) = (0, true);
    let loaded = connection.load(table, &mut |out| {
        if !goes_on {
            return false;
        }
        let more = rows.more(out);
        goes_on = progress(rows.next - told);
        told = rows.next;
        more
    })?;
    if goes_on { Ok(loaded) } else { Err(Interrupted.into()) }
}

fn line(out: &mut String, fields: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(fields);
    out.push('\n');
}

/// Text of 26 to 50 letters, one in ten with "ORIGINAL" within (clause 4.3.3.1).
fn original(random: &mut Random, out: &mut String) {
    let start = out.len();
    random.letters(26, 50, out);
    if random.uniform(1, 10) == 1 {
        let at = start + random.uniform(0, (out.len() - start) as u32 - 8) as usize;
        out.replace_range(at..at + 8, "ORIGINAL");
    }
}

/// Street, street, city, state, zip, separated by tabs.
fn address(random: &mut Random, out: &mut String) {
    for _ in 0..3 {
        random.letters(10, 20, out);
        out.push('\t');
    }
    for _ in 0..2 {
        out.push(char::from(b'A' + random.uniform(0, 25) as u8));
    }
    out.push('\t');
    random.digits(4, out);
    out.push_str("11111");
}

fn text(random: &mut Random, shortest: u32, longest: u32) -> String {
    let mut text = String::new();
    random.letters(shortest, longest, &mut text);
    text
}

fn built(fill: impl FnOnce(&mut String)) -> String {
    let mut text = String::new();
    fill(&mut text);
    text
}

/// How much is told to `progress` altogether: the rows, but an order with all its lines counts once as such, and once for the lines.
pub fn steps(size: Size) -> u64 {
    let warehouses = u64::from(size.warehouses);
    let districts = warehouses * u64::from(DISTRICTS);
    let customers = districts * u64::from(size.customers);
    let undelivered = districts * u64::from(size.customers - size.first_undelivered() + 1);
    let items = u64::from(size.items);
    items + warehouses + districts + warehouses * items + 4 * customers + undelivered
}

/// Loads the items (once for all warehouses); gives the number of rows.
pub fn fill_items(
    connection: &mut dyn Connection,
    size: Size,
    seed: u64,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64> {
    let mut random = Random::new(seed);
    load(connection, "item", u64::from(size.items), progress, |number, out| {
        let (image, price) = (random.uniform(1, 10_000), random.uniform(100, 10_000));
        let name = text(&mut random, 14, 24);
        let data = built(|out| original(&mut random, out));
        line(
            out,
            format_args!("{}\t{image}\t{name}\t{}.{:02}\t{data}", number + 1, price / 100, price % 100),
        );
    })
}

/// Loads a warehouse with all that belongs to it; gives the number of rows. `now`: the timestamp of its orders, as text.
pub fn fill_warehouse(
    connection: &mut dyn Connection,
    size: Size,
    warehouse: u32,
    seed: u64,
    now: &str,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<u64> {
    let mut random = Random::new(seed ^ u64::from(warehouse) << 32);
    let random = &mut random;
    let mut rows = load(connection, "warehouse", 1, progress, |_, out| {
        let name = text(random, 6, 10);
        let place = built(|out| address(random, out));
        // What its customers have paid, 10.00 each: 300000.00 at the specification's size.
        let paid = 10 * size.customers * DISTRICTS;
        line(out, format_args!("{warehouse}\t{name}\t{place}\t0.{:04}\t{paid}.00", random.uniform(0, 2000)));
    })?;
    rows += load(connection, "district", u64::from(DISTRICTS), progress, |number, out| {
        let name = text(random, 6, 10);
        let place = built(|out| address(random, out));
        line(
            out,
            format_args!(
                "{warehouse}\t{}\t{name}\t{place}\t0.{:04}\t{}.00\t{}",
                number + 1,
                random.uniform(0, 2000),
                10 * size.customers,
                size.customers + 1
            ),
        );
    })?;
    rows += load(connection, "stock", u64::from(size.items), progress, |number, out| {
        let _ = write!(out, "{warehouse}\t{}\t{}", number + 1, random.uniform(10, 100));
        for _ in 0..DISTRICTS {
            out.push('\t');
            random.letters(24, 24, out);
        }
        out.push_str("\t0\t0\t0\t");
        original(random, out);
        out.push('\n');
    })?;
    let plan = Warehouse { size, warehouse, now };
    rows += plan.fill_customers(connection, random, progress)?;
    rows += plan.fill_orders(connection, random, progress)?;
    Ok(rows)
}

/// What is common to the tables of a warehouse.
#[derive(Clone, Copy)]
struct Warehouse<'a> {
    size: Size,
    warehouse: u32,
    now: &'a str,
}

impl Warehouse<'_> {
    /// Customers of the warehouse, and its orders.
    fn count(self) -> u64 {
        u64::from(DISTRICTS) * u64::from(self.size.customers)
    }

    /// District and number within it, both from 1, of the `index`-th customer or order of a warehouse.
    fn place(self, index: u64) -> (u64, u64) {
        let customers = u64::from(self.size.customers);
        (index / customers + 1, index % customers + 1)
    }

    fn fill_customers(
        self,
        connection: &mut dyn Connection,
        random: &mut Random,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let Warehouse { size, warehouse, now } = self;
        let mut rows = load(connection, "customer", self.count(), progress, |index, out| {
            let (district, customer) = self.place(index);
            // The first thousand have all names once (clause 4.3.3.1).
            let last = if customer <= 1000 {
                last_name(customer as u32 - 1)
            } else {
                random.last_name(size, Constants::LOAD)
            };
            let first = text(random, 8, 16);
            let home = built(|out| address(random, out));
            let phone = built(|out| random.digits(16, out));
            let credit = if random.uniform(1, 10) == 1 { "BC" } else { "GC" };
            let discount = random.uniform(0, 5000);
            let data = text(random, 300, 500);
            line(
                out,
                format_args!(
                    "{warehouse}\t{district}\t{customer}\t{first}\tOE\t{last}\t{home}\t{phone}\t{now}\t{credit}\t\
                 50000.00\t0.{discount:04}\t-10.00\t10.00\t1\t0\t{data}"
                ),
            );
        })?;
        rows += load(connection, "history", self.count(), progress, |index, out| {
            let (district, customer) = self.place(index);
            let data = text(random, 12, 24);
            line(
                out,
                format_args!(
                    "{customer}\t{district}\t{warehouse}\t{district}\t{warehouse}\t{now}\t10.00\t{data}"
                ),
            );
        })?;
        Ok(rows)
    }

    fn fill_orders(
        self,
        connection: &mut dyn Connection,
        random: &mut Random,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let Warehouse { size, warehouse, now } = self;
        let customers = u64::from(size.customers);
        let seed = random.next_u64();
        // Lines of an order, the same wherever they are asked for.
        let lines = |index: u64| Random::new(seed ^ index).uniform(5, 15);
        let mut rows = load(connection, "orders", self.count(), progress, |index, out| {
            let (district, order) = self.place(index);
            // Customers in an order without pattern, each once (clause 4.3.3.1).
            let customer = Shuffle::new(customers, seed ^ district).at(order - 1) + 1;
            let carrier = if order < u64::from(size.first_undelivered()) {
                random.uniform(1, 10).to_string()
            } else {
                "\\N".to_owned()
            };
            line(
                out,
                format_args!(
                    "{warehouse}\t{district}\t{order}\t{customer}\t{now}\t{carrier}\t{}\t1",
                    lines(index)
                ),
            );
        })?;
        rows += load(connection, "order_line", self.count(), progress, |index, out| {
            let (district, order) = self.place(index);
            let delivered = order < u64::from(size.first_undelivered());
            for number in 1..=lines(index) {
                let item = random.uniform(1, size.items);
                let info = text(random, 24, 24);
                let (date, cents) = if delivered { (now, 0) } else { ("\\N", random.uniform(1, 999_999)) };
                line(
                    out,
                    format_args!(
                        "{warehouse}\t{district}\t{order}\t{number}\t{item}\t{warehouse}\t{date}\t5\t{}.{:02}\t{info}",
                        cents / 100,
                        cents % 100
                    ),
                );
            }
        })?;
        let first = u64::from(size.first_undelivered());
        let undelivered = customers - first + 1;
        rows += load(connection, "new_order", u64::from(DISTRICTS) * undelivered, progress, |index, out| {
            let (district, order) = (index / undelivered + 1, index % undelivered + first);
            line(out, format_args!("{warehouse}\t{district}\t{order}"));
        })?;
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ranges_are_the_specifications() {
        assert_eq!((last_name(0), last_name(371)), ("BARBARBAR".to_owned(), "PRICALLYOUGHT".to_owned()));
        let mut random = Random::new(1);
        let size = Size::new(1);
        assert_eq!((size.first_undelivered(), size.names()), (2101, 1000));
        for _ in 0..10_000 {
            assert!((1..=3_000).contains(&random.customer(size, Constants::RUN)));
            assert!((1..=100_000).contains(&random.item(size, Constants::RUN)));
            assert!((0..=999).contains(&random.non_uniform(255, 0, 999, 223)));
            let text = built(|out| original(&mut random, out));
            assert!((26..=50).contains(&text.len()));
        }
    }

    #[test]
    fn the_run_constant_keeps_the_distance_the_specification_asks_for() {
        let distance = Constants::RUN.last_name.abs_diff(Constants::LOAD.last_name);
        assert!((65..=119).contains(&distance) && distance != 96 && distance != 112);
    }
}
