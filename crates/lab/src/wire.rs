//! Connections by PostgreSQL's protocol, for SQL workloads: the same driver for Gannet's server and for PostgreSQL.
//!
//! The client is [`gannet_server::frontend`], which waits in the system and nowhere else. What a client takes of the processors is missing to the server on the same
//! machine: with `postgres` (0.19), whose runtime is also woken when its question was taken, clients of TPC-C had a third of them.

use crate::isolation::client::Supply;
use crate::tpcc::connection::{Ask, Conflict, Connect, Connection, Datum, Rows, Statement};
use anyhow::{Context, Result, anyhow, bail};
use gannet_server::frontend::{self, Address, Failure, Prepared, SslMode};
use gannet_sql::Type;
use std::io;

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// How to reach it, in words as libpq takes them, or `postgres://…`.
    pub target: String,
    /// Whether statements that do not need each other's rows are asked at once, instead of each behind the answer to the one before.
    pub pipelined: bool,
}

impl Connect for Server {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        let user = whoami::username().unwrap_or_else(|_| "gannet".to_owned());
        let mut address = Address::parse(&self.target, &|_| None, &user)
            .map_err(|error| anyhow!("{:?}: {error}", self.target))?;
        if !self.target.contains("sslmode") {
            // The same for everybody, whether or not a server has a certificate.
            address.ssl = SslMode::Disable;
        }
        let connection = frontend::Connection::open(&address, "gannet-lab")
            .map_err(|error| anyhow!("cannot connect to {address:?}: {error}"))?;
        Ok(Box::new(WireConnection { connection, prepared: Vec::new(), pipelined: self.pipelined }))
    }
}

struct WireConnection {
    connection: frontend::Connection,
    prepared: Vec<Prepared>,
    pipelined: bool,
}

/// The server is gone, or says that it goes (57P01): no failure of whoever has ended it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Gone(pub String);

/// An error as a workload sees it.
fn judged(failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Server(report) if report.state == "57P01" => {
            Gone(format!("{}: {}", report.state, report.message)).into()
        }
        Failure::Server(report) if ["40001", "40P01"].contains(&&*report.state) => {
            Conflict(report.message).into()
        }
        Failure::Server(report) => anyhow!("{}: {}", report.state, report.message),
        // What the protocol does not allow is no end of a connection.
        Failure::Connection(error) if error.kind() != io::ErrorKind::InvalidData => {
            Gone(error.to_string()).into()
        }
        Failure::Receiver(error) | Failure::Connection(error) => error.into(),
    }
}

/// Digits of a base of 10,000, the exponent of the first of them, and the number of decimals: PostgreSQL's exact numbers.
fn to_groups(digits: i64, scale: u8) -> (Vec<i16>, i16) {
    let below = i16::from(scale).div_euclid(4) + i16::from(!scale.is_multiple_of(4));
    let mut rest = digits.unsigned_abs() as u128 * 10_u128.pow((below * 4 - i16::from(scale)) as u32);
    let mut groups = Vec::new();
    while rest > 0 {
        groups.push((rest % 10_000) as i16);
        rest /= 10_000;
    }
    groups.reverse();
    let weight = groups.len() as i16 - below - 1;
    (groups, weight)
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Appends a value in the type's binary format; false: it is NULL.
fn write(datum: &Datum, oid: u32, out: &mut Vec<u8>) -> io::Result<bool> {
    let ty = Type::from_oid(oid);
    let large = |value: &i64| invalid(format!("{value} as {ty:?}"));
    match (datum, ty) {
        (Datum::Null, _) => return Ok(false),
        (Datum::Int(value), Some(Type::Int2)) => {
            out.extend_from_slice(&i16::try_from(*value).map_err(|_| large(value))?.to_be_bytes());
        }
        (Datum::Int(value), Some(Type::Int4)) => {
            out.extend_from_slice(&i32::try_from(*value).map_err(|_| large(value))?.to_be_bytes());
        }
        (
            Datum::Int(value) | Datum::Timestamp(value),
            Some(Type::Int8 | Type::Timestamp | Type::TimestampTz),
        ) => out.extend_from_slice(&value.to_be_bytes()),
        (Datum::Int(digits), Some(Type::Numeric)) => write_exact(*digits, 0, out),
        (Datum::Decimal(digits, scale), Some(Type::Numeric)) => write_exact(*digits, *scale, out),
        (Datum::Text(text), _) => out.extend_from_slice(text.as_bytes()),
        _ => return Err(invalid(format!("a workload gives {datum:?} for type {oid}"))),
    }
    Ok(true)
}

fn write_exact(digits: i64, scale: u8, out: &mut Vec<u8>) {
    let (groups, weight) = to_groups(digits, scale);
    let sign = if digits < 0 { 0x4000_i16 } else { 0 };
    for word in [groups.len() as i16, weight, sign, i16::from(scale)].iter().chain(&groups) {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// Reads a value of a type.
fn read(oid: u32, raw: Option<&[u8]>) -> io::Result<Datum> {
    let Some(raw) = raw else { return Ok(Datum::Null) };
    let cut_off = |_| invalid(format!("a value of type {oid} has {} bytes", raw.len()));
    Ok(match Type::from_oid(oid) {
        Some(Type::Int2) => Datum::Int(i16::from_be_bytes(raw.try_into().map_err(cut_off)?).into()),
        Some(Type::Int4) => Datum::Int(i32::from_be_bytes(raw.try_into().map_err(cut_off)?).into()),
        Some(Type::Int8) => Datum::Int(i64::from_be_bytes(raw.try_into().map_err(cut_off)?)),
        Some(Type::Timestamp | Type::TimestampTz) => {
            Datum::Timestamp(i64::from_be_bytes(raw.try_into().map_err(cut_off)?))
        }
        Some(Type::Numeric) => {
            read_exact(raw).ok_or_else(|| invalid("an exact number is too large, or cut off".to_owned()))?
        }
        Some(Type::Text | Type::Varchar | Type::Bpchar | Type::Name) => {
            let text = std::str::from_utf8(raw).map_err(|error| invalid(error.to_string()))?;
            Datum::Text(text.to_owned())
        }
        _ => return Err(invalid(format!("a workload reads a value of type {oid}"))),
    })
}

fn read_exact(raw: &[u8]) -> Option<Datum> {
    let words: Vec<i16> = raw.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect();
    // No infinity, and no NaN.
    let [count, weight, sign @ (0 | 0x4000), scale, groups @ ..] = words.as_slice() else { return None };
    if usize::try_from(*count) != Ok(groups.len()) || groups.iter().any(|group| !(0..10_000).contains(group))
    {
        return None;
    }
    let mut digits = 0_i128;
    let below = (i32::from(*scale) + 3) / 4;
    for place in 0..=(i32::from(*weight) + below) {
        let group = groups.get(place as usize).copied().unwrap_or(0);
        digits = digits.checked_mul(10_000)? + i128::from(group);
    }
    digits /= 10_i128.checked_pow(u32::try_from(below * 4 - i32::from(*scale)).ok()?)?;
    let digits = i64::try_from(digits).ok()?;
    Some(Datum::Decimal(if *sign == 0 { digits } else { -digits }, u8::try_from(*scale).ok()?))
}

impl WireConnection {
    /// Runs statements; `take` gets each row with the place of its statement. Gives the statements' tags.
    fn run(
        &mut self,
        asks: &[(Statement, &[Datum])],
        mut take: impl FnMut(usize, Vec<Datum>),
    ) -> Result<Vec<String>> {
        let statements = asks.iter().map(|&(statement, parameters)| {
            let prepared =
                self.prepared.get(statement.0).context("the statement is of another connection")?;
            let (given, wanted) = (parameters.len(), prepared.parameters().len());
            if given != wanted {
                bail!("a statement has {wanted} parameters and is given {given}");
            }
            Ok(prepared)
        });
        let statements = statements.collect::<Result<Vec<_>>>()?;
        let mut give =
            |number: usize, place: usize, ty: u32, out: &mut Vec<u8>| write(&asks[number].1[place], ty, out);
        let mut row = |number: usize, values: &[Option<&[u8]>]| {
            let pairs = statements[number].columns().iter().zip(values);
            let row = pairs.map(|(column, value)| read(column.type_oid, *value));
            take(number, row.collect::<io::Result<_>>()?);
            Ok(())
        };
        self.connection.run(&statements, &mut give, &mut row).map_err(judged)
    }
}

/// The number of rows that a tag such as `UPDATE 1` tells; 0 where it tells none.
fn rows_of(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

impl Connection for WireConnection {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.connection.query(sql, &mut Supply(|_: &mut Vec<u8>| false)).map_err(judged)
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.prepared.push(self.connection.prepare(sql).map_err(judged)?);
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Rows> {
        let mut rows = Vec::new();
        self.run(&[(statement, parameters)], |_, row| rows.push(row))?;
        Ok(rows)
    }

    fn query_all(&mut self, asks: &[Ask]) -> Result<Vec<Rows>> {
        if !self.pipelined {
            return asks.iter().map(|ask| self.query(ask.statement, &ask.parameters)).collect();
        }
        let mut rows = vec![Rows::new(); asks.len()];
        let asks: Vec<_> = asks.iter().map(|ask| (ask.statement, &ask.parameters[..])).collect();
        self.run(&asks, |number, row| rows[number].push(row))?;
        Ok(rows)
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        let tags = self.run(&[(statement, parameters)], |_, _| ())?;
        Ok(tags.last().map_or(0, |tag| rows_of(tag)))
    }

    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let mut supply = Loading { more, rows: None };
        self.connection.query(&format!("copy {table} from stdin"), &mut supply).map_err(judged)?;
        match supply.rows {
            Some(rows) => Ok(rows),
            None => bail!("COPY {table}: the server does not say how many rows it has got"),
        }
    }
}

/// The data of a COPY, and what the server says of it.
struct Loading<'m> {
    more: &'m mut dyn FnMut(&mut Vec<u8>) -> bool,
    rows: Option<u64>,
}

impl frontend::Receiver for Loading<'_> {
    fn columns(&mut self, _: &[frontend::Column]) -> io::Result<()> {
        Ok(())
    }

    fn row(&mut self, _: &[Option<&str>]) -> io::Result<()> {
        Ok(())
    }

    fn complete(&mut self, tag: &str) -> io::Result<()> {
        self.rows = Some(rows_of(tag));
        Ok(())
    }

    fn notice(&mut self, _: &frontend::Report) {}

    fn copy_read(&mut self, data: &mut Vec<u8>) -> io::Result<bool> {
        Ok((self.more)(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_numbers_come_back() {
        for (digits, scale) in [
            (0, 0),
            (0, 2),
            (1, 2),
            (-1, 4),
            (123_456_789, 2),
            (50_000, 4),
            (-99_999_999_999, 2),
            (i64::MAX, 0),
        ] {
            let mut out = Vec::new();
            let datum = Datum::Decimal(digits, scale);
            assert!(write(&datum, Type::Numeric.oid(), &mut out).unwrap());
            assert_eq!(read(Type::Numeric.oid(), Some(&out)).unwrap(), datum);
        }
        for cut in [&[0, 1, 0][..], &[0, 1, 0, 0, 0, 0, 0, 0]] {
            assert!(read(Type::Numeric.oid(), Some(cut)).is_err());
        }
    }

    #[test]
    fn only_a_lost_connection_and_a_shutdown_say_that_the_server_is_gone() {
        let of = |state: &str| {
            let report = frontend::Report { state: state.to_owned(), ..frontend::Report::default() };
            judged(Failure::Server(Box::new(report)))
        };
        let lost = |kind| judged(Failure::Connection(io::Error::new(kind, "x")));
        assert!(of("57P01").is::<Gone>() && lost(io::ErrorKind::ConnectionReset).is::<Gone>());
        assert!(lost(io::ErrorKind::UnexpectedEof).is::<Gone>());
        assert!(of("40001").is::<Conflict>());
        for real in [of("53200"), of("57014"), lost(io::ErrorKind::InvalidData)] {
            assert!(!real.is::<Gone>(), "{real}");
        }
        assert!(!judged(Failure::Receiver(invalid("x".to_owned()))).is::<Gone>());
    }

    #[test]
    fn what_does_not_fit_its_type_is_refused_and_null_is_null() {
        let mut out = Vec::new();
        assert!(write(&Datum::Int(70_000), Type::Int2.oid(), &mut out).is_err());
        assert!(write(&Datum::Decimal(1, 1), Type::Int4.oid(), &mut out).is_err());
        assert!(!write(&Datum::Null, Type::Int4.oid(), &mut out).unwrap());
        assert_eq!(read(Type::Int8.oid(), None).unwrap(), Datum::Null);
        assert!(read(Type::Int8.oid(), Some(&[1, 2])).is_err());
        assert_eq!((rows_of("UPDATE 12"), rows_of("INSERT 0 3"), rows_of("BEGIN")), (12, 3, 0));
    }
}
