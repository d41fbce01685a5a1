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
type More<'m> = &'m mut dyn FnMut(&mut Vec<u8>) -> bool;

/// Gathers what a statement gives.
#[derive(Default)]
struct Gather<'m> {
    rows: Vec<Vec<Datum>>,
    affected: u64,
    more: Option<More<'m>>,
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

impl Client for Gather<'_> {
    fn columns(&mut self, _columns: &[OutputColumn], _style: &TextStyle) -> gannet_sql::Result<()> {
        Ok(())
    }

    fn row(
        &mut self,
        values: &[Value],
        columns: &[OutputColumn],
        _style: &TextStyle,
    ) -> gannet_sql::Result<()> {
        let row = values.iter().zip(columns).map(|(value, column)| datum(value, column.ty));
        self.rows.push(row.collect::<Result<_, _>>()?);
        Ok(())
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

    fn copy_write(&mut self, _data: &[u8]) -> gannet_sql::Result<()> {
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

impl EmbeddedConnection {
    fn run(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Gather<'static>> {
        let prepared = Arc::clone(&self.prepared[statement.0]);
        let values: Vec<Value> =
            parameters.iter().zip(prepared.parameters()).map(|(datum, ty)| value(datum, *ty)).collect();
        let mut gather = Gather::default();
        self.session.execute_prepared(&prepared, &values, &mut gather).map_err(judged)?;
        Ok(gather)
    }
}

impl Connection for EmbeddedConnection {
    fn batch(&mut self, sql: &str) -> Result<()> {
        self.session.run(sql, &mut Gather::default()).map_err(judged)
    }

    fn prepare(&mut self, sql: &str) -> Result<Statement> {
        let prepared = self.session.prepare_unnamed(sql, &[])?;
        self.prepared.push(prepared);
        Ok(Statement(self.prepared.len() - 1))
    }

    fn query(&mut self, statement: Statement, parameters: &[Datum]) -> Result<Vec<Vec<Datum>>> {
        Ok(self.run(statement, parameters)?.rows)
    }

    fn execute(&mut self, statement: Statement, parameters: &[Datum]) -> Result<u64> {
        Ok(self.run(statement, parameters)?.affected)
    }

    fn load(&mut self, table: &str, more: &mut dyn FnMut(&mut Vec<u8>) -> bool) -> Result<u64> {
        let mut gather = Gather { more: Some(more), ..Gather::default() };
        self.session.run(&format!("copy {table} from stdin"), &mut gather).map_err(judged)?;
        Ok(gather.affected)
    }
}
