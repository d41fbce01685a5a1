//! The lists of all functions, by name and by symbol.

use super::{Aggregate, Function, Resolved, TableFunction, representation};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Functions by name, operators by symbol.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) functions: HashMap<&'static str, Vec<Resolved>>,
    pub(super) operators: HashMap<&'static str, Vec<&'static Function>>,
    /// Symbols of the functions that stand behind operators, by number.
    symbols: HashMap<u32, &'static str>,
    /// Numbers of all that `pg_proc` lists, by name, and the other way round.
    numbers: HashMap<&'static str, Vec<u32>>,
    names: HashMap<u32, &'static str>,
}

const FUNCTIONS: &[&[Function]] = &[
    super::arithmetic::FUNCTIONS,
    super::math::FUNCTIONS,
    super::numeric::FUNCTIONS,
    super::string::FUNCTIONS,
    super::quote::FUNCTIONS,
    super::bytes::FUNCTIONS,
    super::digest::FUNCTIONS,
    super::encoding::FUNCTIONS,
    super::like::FUNCTIONS,
    super::pattern::FUNCTIONS,
    super::array::FUNCTIONS,
    super::datetime::FUNCTIONS,
    super::picture::FUNCTIONS,
    super::sequence::FUNCTIONS,
    super::session::FUNCTIONS,
    super::size::FUNCTIONS,
    super::describe::FUNCTIONS,
];

const OPERATORS: &[&[(&str, Function)]] = &[
    super::arithmetic::OPERATORS,
    super::math::OPERATORS,
    super::numeric::OPERATORS,
    super::string::OPERATORS,
    super::bytes::OPERATORS,
    super::like::OPERATORS,
    super::pattern::OPERATORS,
    super::array::OPERATORS,
];

/// Operators whose functions are called by name, too.
const NAMED: &[(&str, u32)] = &[("||", 378), ("||", 379), ("||", 383), ("^@", 3696)];

const AGGREGATES: &[&[Aggregate]] = &[super::aggregate::AGGREGATES];

const TABLES: &[&[TableFunction]] = &[super::table::TABLES, super::pattern::TABLES, super::keywords::TABLES];

pub(super) static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry {
        functions: HashMap::new(),
        operators: HashMap::new(),
        symbols: HashMap::new(),
        numbers: HashMap::new(),
        names: HashMap::new(),
    };
    for resolved in all() {
        registry.functions.entry(resolved.name()).or_default().push(resolved);
    }
    let routines = representation::routines().map(|routine| (routine.name, routine.oid));
    for (name, oid) in all().map(|resolved| (resolved.name(), resolved.oid())).chain(routines) {
        registry.numbers.entry(name).or_default().push(oid);
        registry.names.insert(oid, name);
    }
    for (symbol, function) in operators() {
        registry.operators.entry(symbol).or_default().push(function);
        registry.symbols.insert(function.oid, symbol);
    }
    registry
});

/// The numbers of the functions of this name, as `pg_proc` lists them.
pub fn numbers_of(name: &str) -> &'static [u32] {
    REGISTRY.numbers.get(name).map_or(&[], Vec::as_slice)
}

/// The name of the function of this number, and whether it is the only one of that name.
pub fn name_of(oid: u32) -> Option<(&'static str, bool)> {
    let name = *REGISTRY.names.get(&oid)?;
    Some((name, numbers_of(name).len() == 1))
}

/// Everything that can be called, the functions behind operators included. `pg_proc` lists these and [`routines`](super::routines).
pub fn all() -> impl Iterator<Item = Resolved> {
    let functions = FUNCTIONS.iter().copied().flatten().map(Resolved::Function);
    let operators = OPERATORS.iter().copied().flatten().map(|(_, function)| Resolved::Function(function));
    let aggregates = AGGREGATES.iter().copied().flatten().map(Resolved::Aggregate);
    let tables = TABLES.iter().copied().flatten().map(Resolved::Table);
    functions.chain(operators).chain(aggregates).chain(tables)
}

/// Symbols and the functions behind them; those with one argument are prefix operators.
pub fn operators() -> impl Iterator<Item = (&'static str, &'static Function)> {
    let own = OPERATORS.iter().copied().flatten().map(|(symbol, function)| (*symbol, function));
    let named = NAMED.iter().filter_map(|(symbol, oid)| {
        let function = FUNCTIONS.iter().copied().flatten().find(|function| function.oid == *oid)?;
        Some((*symbol, function))
    });
    own.chain(named)
}

/// The symbol of the operator that a function stands behind, for those who show expressions.
pub fn symbol(function: &Function) -> Option<&'static str> {
    REGISTRY.symbols.get(&function.oid).copied()
}

/// Whether PostgreSQL has a function of this name and we do not: said so, it is clearer than "does not exist".
pub(super) fn is_unsupported(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "age",
        "array_to_json",
        "convert",
        "convert_from",
        "convert_to",
        "cume_dist",
        "currtid2",
        "date_bin",
        "dense_rank",
        "first_value",
        "gen_random_uuid",
        "get_bit",
        "lag",
        "last_value",
        "lead",
        "make_interval",
        "make_time",
        "mode",
        "normalize",
        "nth_value",
        "ntile",
        "percent_rank",
        "percentile_cont",
        "percentile_disc",
        "rank",
        "row_number",
        "row_to_json",
        "set_bit",
        "similar_escape",
        "similar_to_escape",
        "to_json",
        "to_jsonb",
        "unistr",
    ];
    const PREFIXES: &[&str] = &[
        "pg_advisory_",
        "pg_try_advisory_",
        "json",
        "justify_",
        "lo_",
        "ts_",
        "to_ts",
        "xml",
        "regr_",
        "covar_",
    ];
    // Those that are known, and cannot be called, stand for how types are read and written.
    NAMES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || !numbers_of(name).is_empty()
}
