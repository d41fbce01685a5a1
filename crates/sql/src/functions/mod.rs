//! Functions, operators and aggregates: what there is, which one a call means, and how it is computed.
//!
//! An operator is a function with another spelling, as in PostgreSQL: [`resolve_operator`] gives the [`Function`] behind it.
//! Comparisons, AND, OR, NOT, CASE, COALESCE and their kin are no functions, but nodes of [`Scalar`](crate::logical::Scalar).
//!
//! # Guarantees
//! 1. Every function and aggregate has a number of its own: PostgreSQL's, or one from 9000 to 9999.
//! 2. A strict function is never called with NULL; whoever computes expressions sees to it.
//! 3. A body finds values of the variants that its argument types have. It does not trust in that: another variant is an
//!    internal error, not a panic.
//!
//! | module | job |
//! |---|---|
//! | `registry` | the lists of all that follows, by name and by symbol |
//! | `resolve` | which one a call means |
//! | `arithmetic`, `numeric`, `math` | operators and functions of numbers |
//! | `string`, `quote`, `bytes`, `digest`, `encoding` | strings and bytea |
//! | `like`, `regex`, `pattern` | LIKE; regular expressions, translated and cached |
//! | `datetime` | dates and timestamps |
//! | `picture` | to_char of numbers, to_number |
//! | `array` | arrays |
//! | `session`, `describe`, `size`, `sequence` | what clients ask a server about itself |
//! | `representation` | functions that stand for how a type is read and written: they have names and numbers only |
//! | `accumulator`, `aggregate` | aggregates |
//! | `table`, `keywords` | functions that give rows |

use crate::Result;
use crate::exec::{Context, RowSource};
use crate::types::{Type, Value};

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
    /// As `AnyElement`, but no array.
    AnyNonArray,
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

/// Starts a function that gives rows.
pub type OpenRows = fn(&Call<'_, '_>, Vec<Value>) -> Result<Box<dyn RowSource>>;

/// A function that gives rows.
#[derive(Debug)]
pub struct TableFunction {
    /// PostgreSQL's number of it.
    pub oid: u32,
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
    pub open: OpenRows,
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

impl Function {
    /// A function that is strict and immutable, and takes all its arguments.
    const fn new(
        oid: u32,
        name: &'static str,
        arguments: &'static [Argument],
        returns: Returns,
        body: fn(&Call<'_, '_>, &[Value]) -> Result<Value>,
    ) -> Self {
        let (optional, variadic, strict, volatility) = (0, false, true, Volatility::Immutable);
        Function { oid, name, arguments, optional, variadic, returns, strict, volatility, body }
    }

    /// It is called with NULL, too.
    const fn lax(mut self) -> Self {
        self.strict = false;
        self
    }

    const fn stable(mut self) -> Self {
        self.volatility = Volatility::Stable;
        self
    }

    const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }

    /// So many of the last arguments may be left out.
    const fn optional(mut self, count: usize) -> Self {
        self.optional = count;
        self
    }

    /// The last argument may be repeated.
    const fn variadic(mut self) -> Self {
        self.variadic = true;
        self
    }
}

/// An [`Argument`] as the lists of functions write it.
macro_rules! argument {
    (any) => {
        $crate::functions::Argument::Any
    };
    (anyarray) => {
        $crate::functions::Argument::AnyArray
    };
    (anyelement) => {
        $crate::functions::Argument::AnyElement
    };
    (anynonarray) => {
        $crate::functions::Argument::AnyNonArray
    };
    ($ty:ident) => {
        $crate::functions::Argument::Is($crate::types::Type::$ty)
    };
}

/// A [`Returns`] as the lists of functions write it.
macro_rules! returns {
    (anyarray) => {
        $crate::functions::Returns::Array
    };
    (anyelement) => {
        $crate::functions::Returns::Element
    };
    ($ty:ident) => {
        $crate::functions::Returns::Is($crate::types::Type::$ty)
    };
}

/// A list of functions: number, name, arguments, result, what is unusual about it, body.
macro_rules! functions {
    ($($oid:literal $name:literal ($($argument:ident)*) $returns:ident $(.$option:ident($($count:literal)?))* = $body:expr;)*) => {
        &[$(
            $crate::functions::Function::new($oid, $name, &[$(argument!($argument)),*], returns!($returns), $body)
                $(.$option($($count)?))*
        ),*]
    };
}

/// A list of operators: symbol, then as in a list of functions.
macro_rules! operators {
    ($($symbol:literal $oid:literal $name:literal ($($argument:ident)*) $returns:ident $(.$option:ident($($count:literal)?))* = $body:expr;)*) => {
        &[$((
            $symbol,
            $crate::functions::Function::new($oid, $name, &[$(argument!($argument)),*], returns!($returns), $body)
                $(.$option($($count)?))*
        )),*]
    };
}

mod accumulator;
mod aggregate;
mod arguments;
mod arithmetic;
mod array;
mod bytes;
mod datetime;
mod describe;
mod digest;
mod encoding;
mod keywords;
pub(crate) mod like;
mod math;
mod numeric;
mod pattern;
mod picture;
mod quote;
pub mod record;
mod regex;
mod registry;
mod representation;
mod resolve;
mod sequence;
mod session;
mod size;
mod string;
mod table;
#[cfg(test)]
mod tests;

pub use accumulator::Accumulator;
pub(crate) use accumulator::SHORT_BYTES;
pub(crate) use datetime::compared_moment;
pub(crate) use regex::Patterns;
pub use registry::{all, name_of, numbers_of, operators, symbol};
pub use representation::{Routine, routines, routines_of};
pub use resolve::{common_type, resolve_comparison, resolve_function, resolve_operator};
pub use session::VERSION;

/// What a name and arguments came to.
#[derive(Clone, Copy, Debug)]
pub enum Resolved {
    /// A function of values.
    Function(&'static Function),
    /// An aggregate.
    Aggregate(&'static Aggregate),
    /// A function that gives rows.
    Table(&'static TableFunction),
}

impl Resolved {
    /// Its number.
    pub fn oid(self) -> u32 {
        match self {
            Resolved::Function(function) => function.oid,
            Resolved::Aggregate(aggregate) => aggregate.oid,
            Resolved::Table(function) => function.oid,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Resolved::Function(function) => function.name,
            Resolved::Aggregate(aggregate) => aggregate.name,
            Resolved::Table(function) => function.name,
        }
    }

    /// What it takes.
    pub fn arguments(self) -> &'static [Argument] {
        match self {
            Resolved::Function(function) => function.arguments,
            Resolved::Aggregate(aggregate) => aggregate.arguments,
            Resolved::Table(function) => function.arguments,
        }
    }

    /// How many of the last arguments may be left out.
    pub fn optional(self) -> usize {
        match self {
            Resolved::Function(function) => function.optional,
            Resolved::Aggregate(_) => 0,
            Resolved::Table(function) => function.optional,
        }
    }

    /// Whether the last argument may be repeated.
    pub fn variadic(self) -> bool {
        matches!(self, Resolved::Function(function) if function.variadic)
    }

    /// What it gives: of a function that gives rows, the first column, or a record where it has several.
    pub fn returns(self) -> Returns {
        match self {
            Resolved::Function(function) => function.returns,
            Resolved::Aggregate(aggregate) => aggregate.returns,
            Resolved::Table(function) => match function.columns {
                [(_, returns)] => *returns,
                _ => Returns::Is(Type::Record),
            },
        }
    }
}

/// A resolved call: what is called, and which types the arguments have to be cast to.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// What is called.
    pub target: Resolved,
    /// One for each argument given.
    pub types: Vec<Type>,
    /// What it gives; for a table function see its columns, among which [`Resolution::element`] is [`Returns::Element`].
    pub returns: Type,
    /// The type that the `AnyElement` arguments and the elements of the `AnyArray` arguments have; unknown where there are none.
    pub element: Type,
}
