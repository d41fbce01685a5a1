//! Connections by PostgreSQL's protocol, for SQL workloads: the same driver for Gannet's server and for PostgreSQL.

use crate::tpcc::connection::{Conflict, Connect, Connection, Datum, Statement};
use anyhow::{Context, Result, bail};
use postgres::error::SqlState;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, NoTls, Row};
use std::error::Error;
use std::io::Write;

type Failure = Box<dyn Error + Sync + Send>;

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    /// How to reach it, in words as libpq takes them.
    pub target: String,
}

impl Connect for Server {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        let client = Client::connect(&self.target, NoTls)
            .with_context(|| format!("cannot connect to {:?}", self.target))?;
        Ok(Box::new(WireConnection { client, prepared: Vec::new() }))
    }
}

struct WireConnection {
    client: Client,
    prepared: Vec<postgres::Statement>,
}

/// An error as a workload sees it.
fn judged(error: postgres::Error) -> anyhow::Error {
    match error.code() {
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
            Conflict(error.to_string()).into()
        }
        _ => match error.as_db_error() {
            Some(told) => anyhow::anyhow!("{}: {}", told.code().code(), told.message()),
            None => error.into(),
        },
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

impl ToSql for Datum {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Failure> {
        match (self, ty) {
            (Datum::Null, _) => return Ok(IsNull::Yes),
            (Datum::Int(value), &Type::INT2) => out.extend_from_slice(&i16::try_from(*value)?.to_be_bytes()),
            (Datum::Int(value), &Type::INT4) => out.extend_from_slice(&i32::try_from(*value)?.to_be_bytes()),
            (
                Datum::Int(value) | Datum::Timestamp(value),
                &Type::INT8 | &Type::TIMESTAMP | &Type::TIMESTAMPTZ,
            ) => {
                out.extend_from_slice(&value.to_be_bytes());
            }
            (Datum::Int(_) | Datum::Decimal(..), &Type::NUMERIC) => {
                let (digits, scale) = match self {
                    Datum::Decimal(digits, scale) => (*digits, *scale),
                    other => (other.int()?, 0),
                };
                let (groups, weight) = to_groups(digits, scale);
                let sign = if digits < 0 { 0x4000_i16 } else { 0 };
                for word in [groups.len() as i16, weight, sign, i16::from(scale)].iter().chain(&groups) {
                    out.extend_from_slice(&word.to_be_bytes());
                }
            }
            (Datum::Text(text), _) => out.extend_from_slice(text.as_bytes()),
            _ => return Err(format!("{self:?} as {ty}").into()),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Datum {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Failure> {
        Ok(match *ty {
            Type::INT2 => Datum::Int(i16::from_be_bytes(raw.try_into()?).into()),
            Type::INT4 => Datum::Int(i32::from_be_bytes(raw.try_into()?).into()),
            Type::INT8 => Datum::Int(i64::from_be_bytes(raw.try_into()?)),
            Type::TIMESTAMP | Type::TIMESTAMPTZ => Datum::Timestamp(i64::from_be_bytes(raw.try_into()?)),
            Type::NUMERIC => {
                let words: Vec<i16> =
                    raw.chunks_exact(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect();
                let [_, weight, sign, scale, groups @ ..] = words.as_slice() else {
                    return Err("a number that is cut off".into());
                };
                let mut digits = 0_i128;
                let below = (i32::from(*scale) + 3) / 4;
                for place in 0..=(i32::from(*weight) + below) {
                    let group = groups.get(place as usize).copied().unwrap_or(0);
                    digits = digits.checked_mul(10_000).ok_or("a number too large")? + i128::from(group);
                }
                digits /= 10_i128.pow((below * 4 - i32::from(*scale)) as u32);
                let digits = i64::try_from(digits)?;
                Datum::Decimal(if *sign == 0 { digits } else { -digits }, u8::try_from(*scale)?)
            }
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME => {
                Datum::Text(std::str::from_utf8(raw)?.to_owned())
            }
            _ => return Err(format!("a workload with {ty}").into()),
        })
    }

    fn from_sql_null(_: &Type) -> Result<Self, Failure> {
        Ok(Datum::Null)
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

fn references(parameters: &[Datum]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|datum| datum as &(dyn ToSql + Sync)).collect()
}

fn taken(row: &Row) -> Result<Vec<Datum>> {
    (0..row.len()).map(|index| Ok(row.try_get(index)?)).collect()
}

impl Connection for WireConnection {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.client.batch_execute(sql).map_err(judged)
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        self.prepared.push(self.client.prepare(sql).map_err(judged)?);
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        let rows = self.client.query(&self.prepared[statement.0], &references(parameters)).map_err(judged)?;
        rows.iter().map(taken).collect()
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        self.client.execute(&self.prepared[statement.0], &references(parameters)).map_err(judged)
    }

    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let mut copy = self.client.copy_in(&format!("copy {table} from stdin")).map_err(judged)?;
        let mut data = Vec::new();
        loop {
            data.clear();
            let goes_on = more(&mut data);
            if let Err(error) = copy.write_all(&data) {
                bail!("COPY {table}: {error}");
            }
            if !goes_on {
                return copy.finish().map_err(judged);
            }
        }
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
            let mut out = BytesMut::new();
            let datum = Datum::Decimal(digits, scale);
            datum.to_sql(&Type::NUMERIC, &mut out).unwrap();
            assert_eq!(Datum::from_sql(&Type::NUMERIC, &out).unwrap(), datum);
        }
    }
}
