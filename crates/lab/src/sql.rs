//! Connections to an embedded Gannet, for SQL workloads.

use crate::tpcc::connection::{Conflict, Connect, Connection, Datum, Statement};
use anyhow::Result;
use gannet_sql::session::{CopyFormat, Session};
use gannet_sql::types::Numeric;
use gannet_sql::types::text::TextStyle;
use gannet_sql::{
    Client, CommandTag, Database, Error, Notice, OutputColumn, Prepared, SqlState, Type, Value,
};
use std::sync::Arc;

/// Connects to a database that this process has open.
#[derive(Debug)]
pub struct Embedded {
    /// The database.
    pub database: Database,
    /// The role.
    pub user: String,
}

impl Connect for Embedded {
    fn connect(&self) -> Result<Box<dyn Connection>> {
        let session = self.database.session(&self.user)?;
        Ok(Box::new(EmbeddedConnection { session, prepared: Vec::new() }))
    }
}

struct EmbeddedConnection {
    session: Session,
    prepared: Vec<Arc<Prepared>>,
}

/// Gives more data of a COPY; false: there is none.
pub(crate) type More<'m> = &'m mut dyn FnMut(&mut Vec<u8>) -> bool;

/// A client that hands each row to `take`, and has data for a COPY where it was given some.
pub(crate) struct Taker<'m, T> {
    /// Gets each row.
    pub(crate) take: T,
    /// Rows that the last statement gave or changed.
    pub(crate) affected: u64,
    /// Where a COPY's data comes from.
    pub(crate) more: Option<More<'m>>,
}

impl<T> Taker<'_, T> {
    pub(crate) fn new(take: T) -> Self {
        Taker { take, affected: 0, more: None }
    }
}

fn unexpected(value: &Value, ty: Type) -> Error {
    Error::unsupported(format!("a workload with {value:?} of type {}", ty.name()))
}

fn datum(value: &Value, ty: Type) -> Result<Datum, Error> {
    Ok(match value {
        Value::Null => Datum::Null,
        Value::Int(value) if matches!(ty, Type::Timestamp | Type::TimestampTz) => Datum::Timestamp(*value),
        Value::Int(value) => Datum::Int(*value),
        Value::Text(text) | Value::Padded(text) => Datum::Text(text.to_string()),
        Value::Numeric(number) => {
            // As text, since a workload's numbers are short.
            let text = number.to_string();
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            let digits = format!("{whole}{fraction}");
            let digits = digits.parse().map_err(|_| unexpected(value, ty))?;
            Datum::Decimal(digits, fraction.len() as u8)
        }
        other => return Err(unexpected(other, ty)),
    })
}

impl<T> Client for Taker<'_, T>
where
    T: FnMut(&[Value], &[OutputColumn]) -> gannet_sql::Result<()>,
{
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn row(
        &mut self,
        values: &[Value],
        columns: &[OutputColumn],
        _style: &TextStyle,
    ) -> gannet_sql::Result<()> {
        (self.take)(values, columns)
    }

    fn complete(&mut self, tag: &CommandTag) -> gannet_sql::Result<()> {
        self.affected = tag.rows.unwrap_or(0);
        Ok(())
    }

    fn empty(&mut self) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn notice(&mut self, _notice: &Notice) {}

    fn setting_changed(&mut self, _name: &str, _value: &str) {}

    fn copy_in(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn copy_read(&mut self, data: &mut Vec<u8>) -> gannet_sql::Result<bool> {
        Ok(self.more.as_mut().is_some_and(|more| more(data)))
    }

    fn copy_out(&mut self, _format: &CopyFormat) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn copy_write(&mut self, data: &[u8]) -> gannet_sql::Result<()> {
        std::hint::black_box(data);
        Ok(())
    }

    fn copy_out_end(&mut self) -> gannet_sql::Result<()> {
        Ok(())
    }
}

/// An error as a workload sees it.
fn judged(error: Error) -> anyhow::Error {
    match error.state() {
        SqlState::SERIALIZATION_FAILURE | SqlState::DEADLOCK_DETECTED => Conflict(error.to_string()).into(),
        _ => error.into(),
    }
}

/// A parameter of this type.
fn value(datum: &Datum, ty: Type) -> Value {
    match (datum, ty) {
        (Datum::Null, _) => Value::Null,
        (Datum::Int(value), Type::Numeric) => Value::Numeric(Numeric::from_i128(i128::from(*value), 0)),
        (Datum::Int(value) | Datum::Timestamp(value), _) => Value::Int(*value),
        (Datum::Decimal(digits, scale), _) => {
            Value::Numeric(Numeric::from_i128(i128::from(*digits), u16::from(*scale)))
        }
        (Datum::Text(text), Type::Bpchar) => Value::Padded(text.as_str().into()),
        (Datum::Text(text), _) => Value::text(text),
    }
}

/// Throws rows away.
pub(crate) fn ignore(values: &[Value], _: &[OutputColumn]) -> gannet_sql::Result<()> {
    std::hint::black_box(values);
    Ok(())
}

impl EmbeddedConnection {
    /// Runs a statement; gives its rows, and how many it gave or changed.
    fn run(&mut self, statement: Statement, parameters: &[Datum]) -> Result<(Vec<Vec<Datum>>, u64)> {
        let prepared = Arc::clone(&self.prepared[statement.0]);
        let values: Vec<Value> =
            parameters.iter().zip(prepared.parameters()).map(|(datum, ty)| value(datum, *ty)).collect();
        let mut rows = Vec::new();
        let mut taker = Taker::new(|values: &[Value], columns: &[OutputColumn]| {
            let row = values.iter().zip(columns).map(|(value, column)| datum(value, column.ty));
            rows.push(row.collect::<Result<_, _>>()?);
            Ok(())
        });
        self.session.execute_prepared(&prepared, &values, &mut taker).map_err(judged)?;
        let affected = taker.affected;
        Ok((rows, affected))
    }
}

impl Connection for EmbeddedConnection {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.session.run(sql, &mut Taker::new(ignore)).map_err(judged)
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        let prepared = self.session.prepare_unnamed(sql, &[])?;
        self.prepared.push(prepared);
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Ok(self.run(statement, parameters)?.0)
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        Ok(self.run(statement, parameters)?.1)
    }

    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let mut taker = Taker { more: Some(more), ..Taker::new(ignore) };
        self.session.run(&format!("copy {table} from stdin"), &mut taker).map_err(judged)?;
        Ok(taker.affected)
    }
}
