//! Resolution and results, compared with PostgreSQL's.
//!
//! `samples.txt` has a call on each line, and what PostgreSQL 15 said to it (with UTF-8, character type `C.UTF-8`, time zone
//! Europe/Berlin): type and value, or SQLSTATE and message. Literals are `type:text`; `\N` is NULL.

use super::*;
use crate::exec::Environment;
use crate::session::{Database, Interrupt, SessionState};
use crate::types::cast;
use crate::types::datetime::Zone;
use crate::types::text as representation;
use crate::types::text::TextStyle;
use crate::types::{Array, NO_MODIFIER};
use crate::{Error, SqlState};
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs something with a context such as a statement has.
fn with_context<T>(body: impl FnOnce(&Context<'_>) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::new(&EngineOptions::default()).unwrap();
    let (create, open) = (CreateOptions::default(), OpenOptions::default());
    let database =
        Database::create(&engine, &folder.path().join("test.db"), &create, &open, "tester").unwrap();
    let mut session = SessionState::new(database.clone(), "tester", 7, Interrupt::default());
    session.style.zone = Zone::parse("Europe/Berlin").unwrap();
    let catalog = database.catalog();
    session.style.catalog = Some(Arc::clone(&catalog));
    let mut transaction = database.store().begin(TransactionOptions::default());
    let view = transaction.view();
    let environment = Environment {
        catalog: &catalog,
        view: &view,
        transaction: &RefCell::new(transaction),
        session: &session,
        cancel: &AtomicBool::new(false),
        work_bytes: u64::MAX,
    };
    environment.run(&[], body)
}

/// A literal of a sample: its type and its value.
fn literal(text: &str, style: &TextStyle) -> Result<(Type, Value)> {
    let (name, text) = text.split_once(':').expect("a type and a colon");
    let ty = Type::from_internal_name(name).unwrap_or_else(|| panic!("no type {name}"));
    if text == "\\N" {
        return Ok((ty, Value::Null));
    }
    if ty == Type::Unknown {
        return Ok((ty, Value::text(text)));
    }
    Ok((ty, representation::read(text, ty, NO_MODIFIER, style)?))
}

/// The arguments, as the executor would hand them over.
fn converted(given: Vec<(Type, Value)>, types: &[Type], style: &TextStyle) -> Result<Vec<Value>> {
    let convert = |((from, value), to): ((Type, Value), &Type)| {
        if from == Type::Unknown && !value.is_null() {
            return representation::read(value.as_str().unwrap_or_default(), *to, NO_MODIFIER, style);
        }
        cast::cast(value, from, *to, NO_MODIFIER, false, style)
    };
    given.into_iter().zip(types).map(convert).collect()
}

/// A value as a cast to text shows it.
fn shown(value: Value, ty: Type, style: &TextStyle) -> String {
    match value {
        Value::Null => "\\N".to_owned(),
        value if ty == Type::Void => value.as_str().unwrap_or_default().to_owned(),
        value => {
            let text = cast::cast(value, ty, Type::Text, NO_MODIFIER, true, style).unwrap();
            text.as_str().unwrap_or_default().replace('\\', "\\\\").replace('\n', "\\n")
        }
    }
}

fn resolve(name: &str, types: &[Type]) -> Result<Resolution> {
    let is_operator = !name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    match types {
        [right] if is_operator => resolve_operator(name, None, *right),
        [left, right] if is_operator => resolve_operator(name, Some(*left), *right),
        _ => resolve_function(name, types),
    }
}

fn run_call(context: &Context<'_>, fields: &[&str]) -> Result<String> {
    let style = &context.session.style;
    let given = fields[1..].iter().map(|field| literal(field, style)).collect::<Result<Vec<_>>>()?;
    let types: Vec<Type> = given.iter().map(|(ty, _)| *ty).collect();
    let resolution = resolve(fields[0], &types)?;
    let Resolved::Function(function) = resolution.target else { panic!("{} is no function", fields[0]) };
    let arguments = converted(given, &resolution.types, style)?;
    let call = Call { context, types: &resolution.types, ty: resolution.returns };
    let value = if function.strict && arguments.iter().any(Value::is_null) {
        Value::Null
    } else {
        (function.body)(&call, &arguments)?
    };
    let name = resolution.returns.name();
    Ok(format!("{name}\t{}", shown(value, resolution.returns, style)))
}

fn run_aggregate(context: &Context<'_>, fields: &[&str]) -> Result<String> {
    let style = &context.session.style;
    let ty = Type::from_internal_name(fields[1]).unwrap();
    let resolution = resolve_function(fields[0], &[ty])?;
    let Resolved::Aggregate(aggregate) = resolution.target else { panic!("{} is no aggregate", fields[0]) };
    let mut state = (aggregate.start)(&resolution.types);
    for text in fields[2].split(';').filter(|text| !text.is_empty()) {
        let given = vec![literal(&format!("{}:{text}", fields[1]), style)?];
        state.add(&converted(given, &resolution.types, style)?)?;
    }
    Ok(format!("{}\t{}", resolution.returns.name(), shown(state.finish()?, resolution.returns, style)))
}

fn run_rows(context: &Context<'_>, fields: &[&str]) -> Result<String> {
    let style = &context.session.style;
    let given = fields[1..].iter().map(|field| literal(field, style)).collect::<Result<Vec<_>>>()?;
    let types: Vec<Type> = given.iter().map(|(ty, _)| *ty).collect();
    let resolution = resolve_function(fields[0], &types)?;
    let Resolved::Table(function) = resolution.target else { panic!("{} gives no rows", fields[0]) };
    let arguments = converted(given, &resolution.types, style)?;
    let call = Call { context, types: &resolution.types, ty: resolution.returns };
    let mut source = (function.open)(&call, arguments)?;
    let column = |returns: Returns| match returns {
        Returns::Is(ty) => ty,
        Returns::Element => resolution.element,
        Returns::Array => resolution.element.array().unwrap(),
    };
    let mut rows = Vec::new();
    let mut row = Vec::new();
    while source.next(context, &mut row)? {
        assert_eq!(row.len(), function.columns.len());
        let values: Vec<String> = row
            .drain(..)
            .zip(function.columns)
            .map(|(value, (_, returns))| shown(value, column(*returns), style))
            .collect();
        rows.push(match values.as_slice() {
            [value] => value.replace("\\N", "\\\\N"),
            values => format!("({})", values.join(",").replace("\\N", "")),
        });
    }
    Ok(format!("text\t{}", if rows.is_empty() { "\\N".to_owned() } else { rows.join(";") }))
}

#[test]
fn calls_give_what_postgresql_gives() {
    let mut wrong = Vec::new();
    with_context(|context| {
        for line in include_str!("samples.txt").lines().filter(|line| line.contains("\t=>\t")) {
            let (call, expected) = line.split_once("\t=>\t").unwrap();
            let fields: Vec<&str> = call.split('\t').collect();
            let result = match fields[0] {
                "call" => run_call(context, &fields[1..]),
                "aggregate" => run_aggregate(context, &fields[1..]),
                "rows" => run_rows(context, &fields[1..]),
                other => panic!("a sample of what? {other}"),
            };
            let result = result.unwrap_or_else(|error| format!("!{}\t{error}", error.state()));
            if result != expected {
                wrong.push(format!("{call}\n   PostgreSQL: {expected}\n   here:       {result}"));
            }
        }
    });
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_number_is_given_once() {
    let mut seen = HashMap::new();
    for resolved in all() {
        if let Some(other) = seen.insert(resolved.oid(), resolved.name()) {
            panic!("{} is the number of both {other} and {}", resolved.oid(), resolved.name());
        }
    }
}
