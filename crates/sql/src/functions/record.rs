//! What is asked of a row that is one value. The binder calls these for `IS [NOT] NULL`; no name leads to them.

use super::{Argument, Call, Function, Returns, Volatility};
use crate::Result;
use crate::types::{Type, Value};

/// A row IS NULL when all of it is. A row within it is not looked into.
pub static IS_NULL: Function = test("row_is_null", |_, a| {
    Ok(Value::Bool(match a {
        [Value::Record(record)] => record.values.iter().all(Value::is_null),
        _ => true,
    }))
});

/// A row IS NOT NULL when nothing of it is.
pub static IS_NOT_NULL: Function = test("row_is_not_null", |_, a| {
    Ok(Value::Bool(match a {
        [Value::Record(record)] => !record.values.iter().any(Value::is_null),
        _ => false,
    }))
});

const fn test(name: &'static str, body: fn(&Call<'_, '_>, &[Value]) -> Result<Value>) -> Function {
    Function {
        oid: 0,
        name,
        arguments: &[Argument::Any],
        optional: 0,
        variadic: false,
        returns: Returns::Is(Type::Bool),
        strict: false,
        volatility: Volatility::Immutable,
        body,
    }
}
