//! Resolution and results, compared with PostgreSQL's.
//!
//! `samples.txt` has a call on each line, and what PostgreSQL 15 said to it (with UTF-8, character type `C.UTF-8`, time zone
//! Europe/Berlin): type and value, or SQLSTATE and message. Literals are `type:text`; `\N` is NULL.

use super::*;
use crate::SqlState;
use crate::exec::Environment;
use crate::session::{Database, Interrupt, SessionState};
use crate::types::NO_MODIFIER;
use crate::types::cast;
use crate::types::datetime::Zone;
use crate::types::text as representation;
use crate::types::text::TextStyle;
use gannet_io::sim::SimDisk;
use gannet_store::{CreateOptions, Engine, EngineOptions, OpenOptions, TransactionOptions};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs something with a context such as a statement has.
fn with_context<T>(body: impl FnOnce(&Context<'_>) -> T) -> T {
    let options = EngineOptions { memory: 64 << 20, ..EngineOptions::default() };
    let engine = Engine::with_disk(Arc::new(SimDisk::new(1)), &options).unwrap();
    let (create, open) = (CreateOptions::default(), OpenOptions::default());
    let database = Database::create(&engine, Path::new("/test.gnt"), &create, &open, "tester").unwrap();
    let role = database.role("tester").unwrap();
    let mut session = SessionState::new(database.clone(), &role, 7, Interrupt::default());
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
        read_only: false,
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
    let named = routines().map(|routine| (routine.oid, routine.name));
    for (oid, name) in all().map(|resolved| (resolved.oid(), resolved.name())).chain(named) {
        if let Some(other) = seen.insert(oid, name) {
            panic!("{oid} is the number of both {other} and {name}");
        }
    }
}

/// Every pair of these was given to each operator and function of `resolution.txt`.
const GIVEN: &str = "bool bytea char name int8 int2 int4 regproc text oid xid float4 float8 unknown bpchar varchar date timestamp \
    timestamptz numeric regclass regtype _int4 _text _numeric";

/// What the arguments resolve to: the result's type, `?` for ambiguous, `-` for nothing.
fn outcome(kind: &str, name: &str, given: &[Type]) -> String {
    let type_of = |result: Result<Resolution>| result.map(|resolution| resolution.returns);
    let result = match kind {
        "operator" => type_of(resolve_operator(name, Some(given[0]), given[1])),
        "prefix" => type_of(resolve_operator(name, None, given[0])),
        "function" => type_of(resolve_function(name, given)),
        "comparison" => resolve_comparison(name, given[0], given[1]).map(|_| Type::Bool),
        "common" => return common_type(given).map_or("-".to_owned(), |ty| ty.internal_name().to_owned()),
        other => panic!("{other} is nothing that is resolved"),
    };
    match result {
        Ok(ty) => ty.internal_name().to_owned(),
        Err(error) if error.state() == SqlState::AMBIGUOUS_FUNCTION => "?".to_owned(),
        Err(error) if error.state() == SqlState::FEATURE_NOT_SUPPORTED => "unsupported".to_owned(),
        Err(_) => "-".to_owned(),
    }
}

/// Groups of `resolution.txt`: kind and name, and PostgreSQL's results of those arguments that have any.
fn resolutions() -> Vec<(&'static str, HashMap<&'static str, &'static str>)> {
    let mut groups: Vec<(&str, HashMap<&str, &str>)> = Vec::new();
    for line in include_str!("resolution.txt").lines() {
        match line.strip_prefix("  ") {
            None => groups.push((line, HashMap::new())),
            Some(results) => {
                let (result, arguments) = results.split_once(": ").unwrap();
                let group = &mut groups.last_mut().unwrap().1;
                group.extend(arguments.split(' ').map(|arguments| (arguments, result)));
            }
        }
    }
    groups
}

#[test]
fn calls_resolve_as_in_postgresql() {
    let types: Vec<&str> = GIVEN.split_whitespace().collect();
    let mut wrong = Vec::new();
    for (group, expected) in resolutions() {
        let (kind, name) = group.split_once(' ').unwrap_or((group, ""));
        let one = expected.keys().any(|arguments| !arguments.contains(','));
        let pairs = types.iter().flat_map(|a| types.iter().map(move |b| format!("{a},{b}")));
        let all: Vec<String> =
            if one { types.iter().map(|ty| (*ty).to_owned()).collect() } else { pairs.collect() };
        for arguments in all {
            let given: Vec<Type> =
                arguments.split(',').map(|name| Type::from_internal_name(name).unwrap()).collect();
            let expected = expected.get(arguments.as_str()).copied().unwrap_or("-");
            // Types that are not here make a call ambiguous in PostgreSQL, or are its result.
            if expected == "?" || (expected != "-" && Type::from_internal_name(expected).is_none()) {
                continue;
            }
            let found = outcome(kind, name, &given);
            // Arrays of different types are compared element by element here, and numbers of transactions with nothing else.
            let lenient = matches!(name, "@>" | "&&") && found == "bool";
            let strict = kind == "comparison" && arguments.contains("xid");
            if found != expected && found != "unsupported" && !lenient && !strict {
                wrong.push(format!("{group} ({arguments}): PostgreSQL {expected}, here {found}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_sleep_ends_when_the_statement_is_cancelled() {
    with_context(|context| {
        context.cancel.store(true, Ordering::Relaxed);
        let error = run_call(context, &["pg_sleep", "float8:1000"]).unwrap_err();
        assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    });
}

#[test]
fn random_numbers_repeat_after_setseed() {
    with_context(|context| {
        let mut numbers = Vec::new();
        for _ in 0..2 {
            run_call(context, &["setseed", "float8:0.5"]).unwrap();
            numbers.push((run_call(context, &["random"]).unwrap(), run_call(context, &["random"]).unwrap()));
        }
        assert_eq!(numbers[0], numbers[1]);
        assert_ne!(numbers[0].0, numbers[0].1);
    });
}

#[test]
fn what_is_missing_is_told() {
    let message = |result: Result<Resolution>| {
        let error = result.unwrap_err();
        format!("{} {error}", error.state())
    };
    let timestamp = Type::Timestamp;
    let cases = [
        (
            resolve_function("pg_advisory_lock", &[Type::Int8]),
            "0A000 function pg_advisory_lock is not supported",
        ),
        (resolve_function("age", &[timestamp]), "0A000 function age is not supported"),
        (resolve_function("lower", &[]), "42883 function lower() does not exist"),
        (resolve_function("no", &[Type::Unknown]), "42883 function no(unknown) does not exist"),
        (resolve_operator("-", None, Type::Bool), "42883 operator does not exist: - boolean"),
    ];
    for (result, expected) in cases {
        assert_eq!(message(result), expected);
    }
    let error = resolve_operator("-", Some(timestamp), timestamp).unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
    let hint = resolve_function("lower", &[]).unwrap_err().fields().hint.clone().unwrap();
    assert!(hint.starts_with("No function matches the given name and argument types."));
}

#[test]
fn states_of_aggregates_are_small_and_counted() {
    assert!(size_of::<Accumulator>() <= 48, "{}", size_of::<Accumulator>());
    let start = |name: &str, types: &[Type]| match resolve_function(name, types).unwrap().target {
        Resolved::Aggregate(aggregate) => (aggregate.start)(types),
        other => panic!("{other:?}"),
    };
    let mut count = start("count", &[]);
    count.add(&[]).unwrap();
    assert_eq!((count.heap_bytes(), count.finish().unwrap()), (0, Value::Int(1)));
    let mut text = start("string_agg", &[Type::Text, Type::Text]);
    let mut array = start("array_agg", &[Type::Text]);
    for _ in 0..1000 {
        let value = Value::text("a text of more than twenty-four bytes");
        text.add(&[value.clone(), Value::text(", ")]).unwrap();
        array.add(&[value]).unwrap();
    }
    assert!(text.heap_bytes() >= 38_998 && array.heap_bytes() >= 68_000);
    assert_eq!(text.finish().unwrap().as_str().unwrap().len(), 38_998);
}
