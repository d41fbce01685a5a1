//! Functions, operators and aggregates: what there is, which one a call means, and how it is computed.
//!
//! An operator is a function with another spelling, as in PostgreSQL: [`resolve_operator`] gives the [`Function`] behind it.
//! Comparisons, AND, OR, NOT, CASE, COALESCE and their kin are no functions, but nodes of [`Scalar`](crate::logical::Scalar).

use crate::exec::{Context, RowSource};
use crate::types::{Type, Value};
use crate::{Error, Result, SqlState};

/// What a function accepts in one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Argument {
    /// This type.
    Is(Type),
    /// Anything, unconverted.
    Any,
    /// Any array.
    AnyArray,
    /// Any type, the same for all of them; the element type of an `AnyArray` beside it.
    AnyElement,
}

/// What a function gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// This type.
    Is(Type),
    /// The type of the `AnyElement` arguments.
    Element,
    /// An array of the type of the `AnyElement` arguments.
    Array,
}

/// When a function gives the same result for the same arguments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Volatility {
    /// Always: it is computed when the statement is planned.
    Immutable,
    /// During a statement: it may bound an index range.
    Stable,
    /// Never sure.
    Volatile,
}

/// A function of values.
#[derive(Debug)]
pub struct Function {
    /// PostgreSQL's number of it, where it has one; unique.
    pub oid: u32,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub arguments: &'static [Argument],
    /// How many of the last arguments may be left out.
    pub optional: usize,
    /// Whether the last argument may be repeated.
    pub variadic: bool,
    /// What it gives.
    pub returns: Returns,
    /// Whether it is NULL when an argument is, without being called.
    pub strict: bool,
    /// When it gives the same again.
    pub volatility: Volatility,
    /// What it does. The types of arguments and result are given for those that take any.
    pub body: fn(&Call<'_, '_>, &[Value]) -> Result<Value>,
}

/// How a function is called.
#[derive(Debug)]
pub struct Call<'a, 'c> {
    /// The statement it is part of.
    pub context: &'a Context<'c>,
    /// Types of the arguments.
    pub types: &'a [Type],
    /// Type of the result.
    pub ty: Type,
}

/// A function that gives rows.
#[derive(Debug)]
pub struct TableFunction {
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub arguments: &'static [Argument],
    /// How many of the last arguments may be left out.
    pub optional: usize,
    /// Names and types of its columns.
    pub columns: &'static [(&'static str, Returns)],
    /// About how many rows it gives, for the planner, where constant arguments say so.
    pub estimate: fn(&[Option<Value>]) -> f64,
    /// Its rows, made as they are asked for.
    pub open: fn(&Call<'_, '_>, Vec<Value>) -> Result<Box<dyn RowSource>>,
}

/// An aggregate function.
#[derive(Debug)]
pub struct Aggregate {
    /// PostgreSQL's number of it.
    pub oid: u32,
    /// Its name.
    pub name: &'static str,
    /// What it takes; none for count(*).
    pub arguments: &'static [Argument],
    /// What it gives.
    pub returns: Returns,
    /// A fresh state. The types are those of the arguments.
    pub start: fn(&[Type]) -> Accumulator,
}

mod accumulator;
pub use accumulator::Accumulator;

/// What a name and arguments came to.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// A function of values.
    Function(&'static Function),
    /// An aggregate.
    Aggregate(&'static Aggregate),
    /// A function that gives rows.
    Table(&'static TableFunction),
}

/// A resolved call: what is called, and which types the arguments have to be cast to.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// What is called.
    pub target: Resolved,
    /// One for each argument given.
    pub types: Vec<Type>,
    /// What it gives; for a table function see its columns.
    pub returns: Type,
}

/// The function, aggregate or table function that a call means, by PostgreSQL's rules (exact match, then preferred types, unknown
/// literals taken as what fits). `arguments`: the types, [`Type::Unknown`] for a string literal or NULL or parameter without type.
/// Errors: 42883 with PostgreSQL's message and hint, 42725.
pub fn resolve_function(name: &str, arguments: &[Type]) -> Result<Resolution> {
    let _ = arguments;
    Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist")))
}

/// The function behind a binary operator (`left` given) or prefix operator, other than the comparisons = <> < <= > >=.
pub fn resolve_operator(symbol: &str, left: Option<Type>, right: Type) -> Result<Resolution> {
    let _ = (left, right);
    Err(Error::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {symbol}")))
}

/// The type to which both sides of a comparison (or all branches of CASE, COALESCE, UNION, IN, VALUES) are converted, by PostgreSQL's
/// rules; `None` where there is none. Unknown with unknown is text.
pub fn common_type(types: &[Type]) -> Option<Type> {
    let _ = types;
    None
}
