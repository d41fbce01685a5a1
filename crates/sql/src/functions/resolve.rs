//! Which function, operator or common type a statement means: PostgreSQL's rules (chapter "Type Conversion").
//!
//! Candidates are those that take so many arguments and whose argument types the given ones convert to implicitly. Among
//! several, those win that match most types exactly; then those that take the preferred type of its category in most places;
//! then an unknown literal is taken for a string, or for the category on which all candidates agree; then for what the
//! known arguments are, when they are all alike.
//!
//! Where PostgreSQL calls something ambiguous only because of types that do not exist here (`- 'x'` with type interval), it is not.

use super::registry::{self, REGISTRY};
use super::{Argument, Resolution, Resolved, Returns};
use crate::types::Type;
use crate::types::cast::{self, CastContext};
use crate::{Error, Result, SqlState};
use std::fmt::Write;

/// The function, aggregate or table function that a call means, by PostgreSQL's rules (exact match, then preferred types, unknown
/// literals taken as what fits). `arguments`: the types, [`Type::Unknown`] for a string literal or NULL or parameter without type.
/// Errors: 42883 with PostgreSQL's message and hint, 42725.
pub fn resolve_function(name: &str, arguments: &[Type]) -> Result<Resolution> {
    let named = REGISTRY.functions.get(name).map_or(&[][..], Vec::as_slice);
    let mut candidates = Vec::with_capacity(named.len());
    for target in named {
        if let Some(expanded) = expand(*target, arguments.len()) {
            if expanded.takes(arguments) {
                return settle(*target, &expanded.arguments, arguments);
            }
            candidates.push(expanded);
        }
    }
    match select(arguments, candidates) {
        Choice::One(chosen) => settle(chosen.target, &chosen.arguments, arguments),
        Choice::Many => {
            let message = format!("function {} is not unique", signature(name, arguments));
            Err(Error::new(SqlState::AMBIGUOUS_FUNCTION, message).hint(
                "Could not choose a best candidate function. You might need to add explicit type casts.",
            ))
        }
        Choice::None => Err(no_function(name, arguments, !named.is_empty())),
    }
}

fn no_function(name: &str, arguments: &[Type], known: bool) -> Error {
    if !known && registry::is_unsupported(name) {
        return Error::unsupported(format!("function {name}"));
    }
    if known && name == "generate_series" && arguments.iter().any(|ty| ty.category() == 'D') {
        return Error::unsupported("generate_series over dates and times (it needs type interval, which)");
    }
    let message = format!("function {} does not exist", signature(name, arguments));
    Error::new(SqlState::UNDEFINED_FUNCTION, message).hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    )
}

fn signature(name: &str, arguments: &[Type]) -> String {
    let mut text = format!("{name}(");
    for (index, ty) in arguments.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{}", ty.name());
    }
    text.push(')');
    text
}

/// The function behind a binary operator (`left` given) or prefix operator, other than the comparisons = <> < <= > >=.
pub fn resolve_operator(symbol: &str, left: Option<Type>, right: Type) -> Result<Resolution> {
    // `!=` has been `<>` since the parser.
    let given: &[Type] = match &left {
        Some(left) => &[*left, right],
        None => &[right],
    };
    // A literal beside a value is first taken for the value's type.
    let assumed: Vec<Type> = match left {
        Some(Type::Unknown) => vec![right, right],
        Some(left) if right == Type::Unknown => vec![left, left],
        _ => given.to_vec(),
    };
    let named = REGISTRY.operators.get(symbol).map_or(&[][..], Vec::as_slice);
    let mut candidates = Vec::with_capacity(named.len());
    for function in named {
        if let Some(expanded) = expand(Resolved::Function(function), given.len()) {
            if expanded.takes(&assumed) {
                return settle(expanded.target, &expanded.arguments, &assumed);
            }
            candidates.push(expanded);
        }
    }
    match select(given, candidates) {
        Choice::One(chosen) => settle(chosen.target, &chosen.arguments, given),
        Choice::Many => Err(ambiguous_operator(symbol, left, right)),
        Choice::None => Err(no_operator(symbol, left, right)),
    }
}

fn operation(symbol: &str, left: Option<Type>, right: Type) -> String {
    match left {
        Some(left) => format!("{} {symbol} {}", left.name(), right.name()),
        None => format!("{symbol} {}", right.name()),
    }
}

fn ambiguous_operator(symbol: &str, left: Option<Type>, right: Type) -> Error {
    let message = format!("operator is not unique: {}", operation(symbol, left, right));
    Error::new(SqlState::AMBIGUOUS_FUNCTION, message)
        .hint("Could not choose a best candidate operator. You might need to add explicit type casts.")
}

fn no_operator(symbol: &str, left: Option<Type>, right: Type) -> Error {
    let is_time = |ty: Type| matches!(ty, Type::Timestamp | Type::TimestampTz | Type::Date | Type::Unknown);
    let times = |ty: Type| matches!(ty, Type::Timestamp | Type::TimestampTz);
    if let Some(left) = left
        && matches!(symbol, "+" | "-")
        && is_time(left)
        && is_time(right)
        && (times(left) || times(right))
    {
        let what = operation(symbol, Some(left), right);
        return Error::unsupported(format!("{what} (it needs type interval, which)"));
    }
    let message = format!("operator does not exist: {}", operation(symbol, left, right));
    Error::new(SqlState::UNDEFINED_FUNCTION, message).hint(if left.is_some() {
        "No operator matches the given name and argument types. You might need to add explicit type casts."
    } else {
        "No operator matches the given name and argument type. You might need to add an explicit type cast."
    })
}

/// Types that can be compared with each other, and what both are converted to: PostgreSQL's operators `=` and `<`.
#[rustfmt::skip]
const COMPARABLE: &[(Type, Type, Type)] = {
    use Type::*;
    &[
        (Bool, Bool, Bool), (Bytea, Bytea, Bytea), (Char, Char, Char), (Name, Name, Name), (Text, Text, Text), (Bpchar, Bpchar, Bpchar),
        (Name, Text, Text), (Text, Name, Text), (Int2, Int2, Int2), (Int4, Int4, Int4), (Int8, Int8, Int8), (Int2, Int4, Int4),
        (Int4, Int2, Int4), (Int2, Int8, Int8), (Int8, Int2, Int8), (Int4, Int8, Int8), (Int8, Int4, Int8), (Oid, Oid, Oid),
        (Float4, Float4, Float4), (Float8, Float8, Float8), (Float4, Float8, Float8), (Float8, Float4, Float8),
        (Numeric, Numeric, Numeric), (Date, Date, Date), (Timestamp, Timestamp, Timestamp), (TimestampTz, TimestampTz, TimestampTz),
        (Date, Timestamp, Timestamp), (Timestamp, Date, Timestamp), (Date, TimestampTz, TimestampTz), (TimestampTz, Date, TimestampTz),
        (Timestamp, TimestampTz, TimestampTz), (TimestampTz, Timestamp, TimestampTz), (OidVector, OidVector, OidVector),
    ]
};

/// The type to which both sides of a comparison are converted, by the rules for operators; 42883 or 42725 where PostgreSQL has none that
/// fits. Of integers of different widths it is the wider one, though comparisons take them as they are. Not for records.
pub fn resolve_comparison(symbol: &str, left: Type, right: Type) -> Result<Type> {
    if left == right && left != Type::Unknown && COMPARABLE.iter().any(|(l, r, _)| *l == left && *r == right)
    {
        return Ok(left);
    }
    // xid has no order.
    if [left, right].iter().all(|ty| matches!(ty, Type::Xid | Type::Unknown)) && left != right {
        return Ok(Type::Xid);
    }
    if left == Type::Xid && right == Type::Xid && matches!(symbol, "=" | "<>") {
        return Ok(Type::Xid);
    }
    if left == Type::Xid && matches!(right, Type::Int4) && matches!(symbol, "=" | "<>") {
        return Ok(Type::Int4);
    }
    if let Some(array) = comparable_arrays(left, right) {
        return Ok(array);
    }
    let assumed = match (left, right) {
        (Type::Unknown, known) | (known, Type::Unknown) => (known, known),
        both => both,
    };
    if let Some((.., to)) = COMPARABLE.iter().find(|(l, r, _)| (*l, *r) == assumed) {
        return Ok(*to);
    }
    let candidates = COMPARABLE.iter().map(|(left, right, to)| Expanded {
        target: *to,
        arguments: vec![Argument::Is(*left), Argument::Is(*right)],
    });
    match select(&[left, right], candidates.collect()) {
        Choice::One(chosen) => Ok(chosen.target),
        Choice::Many => Err(ambiguous_operator(symbol, Some(left), right)),
        Choice::None => Err(no_operator(symbol, Some(left), right)),
    }
}

/// Arrays of one type can be compared, and with a literal.
fn comparable_arrays(left: Type, right: Type) -> Option<Type> {
    let known = if left == Type::Unknown { right } else { left };
    let other = if right == Type::Unknown { known } else { right };
    known.element()?;
    let alike = known == other || known.element() == other.element();
    alike.then_some(known)
}

/// The type to which all branches of CASE, COALESCE, UNION, IN, VALUES are converted, by PostgreSQL's rules; `None` where there is
/// none. Unknown with unknown is text. (For the two sides of a comparison see [`resolve_comparison`].)
pub fn common_type(types: &[Type]) -> Option<Type> {
    let common = types.iter().copied().fold(None, |common: Option<Option<Type>>, ty| match common {
        None => Some(Some(ty)),
        Some(None) => Some(None),
        Some(Some(common)) => Some(wider(common, ty)),
    });
    match common? {
        None => None,
        Some(Type::Unknown) => Some(Type::Text),
        Some(common) => types.iter().all(|ty| converts(*ty, common)).then_some(common),
    }
}

fn wider(common: Type, ty: Type) -> Option<Type> {
    if ty == Type::Unknown || ty == common {
        Some(common)
    } else if common == Type::Unknown {
        Some(ty)
    } else if common.category() != ty.category() {
        None
    } else if !common.is_preferred() && converts(common, ty) && !converts(ty, common) {
        Some(ty)
    } else {
        Some(common)
    }
}

fn converts(from: Type, to: Type) -> bool {
    from == to || from == Type::Unknown || cast::context(from, to) == Some(CastContext::Implicit)
}

/// A candidate, with an argument type for each argument given.
#[derive(Debug)]
struct Expanded<T> {
    target: T,
    arguments: Vec<Argument>,
}

impl<T> Expanded<T> {
    /// Whether it takes exactly these types.
    fn takes(&self, types: &[Type]) -> bool {
        self.arguments.iter().zip(types).all(|(argument, ty)| *argument == Argument::Is(*ty))
    }
}

fn expand(target: Resolved, count: usize) -> Option<Expanded<Resolved>> {
    let declared = target.arguments();
    let least = declared.len() - target.optional();
    if count < least || (count > declared.len() && !target.variadic()) {
        return None;
    }
    let last = declared.last().copied().unwrap_or(Argument::Any);
    let arguments = (0..count).map(|index| declared.get(index).copied().unwrap_or(last)).collect();
    Some(Expanded { target, arguments })
}

enum Choice<T> {
    One(Expanded<T>),
    Many,
    None,
}

/// Category and preference of what a candidate takes; pseudo-types are a category of their own.
fn category(argument: Argument) -> (char, bool) {
    match argument {
        Argument::Is(ty) => (ty.category(), ty.is_preferred()),
        _ => ('P', false),
    }
}

fn fits(given: &[Type], arguments: &[Argument]) -> bool {
    let each = given.iter().zip(arguments).all(|(ty, argument)| match argument {
        Argument::Is(to) => converts(*ty, *to),
        Argument::Any | Argument::AnyElement => true,
        Argument::AnyNonArray => ty.element().is_none(),
        Argument::AnyArray => *ty == Type::Unknown || ty.element().is_some(),
    });
    each && element_type(given, arguments).is_ok()
}

/// What the `AnyElement` arguments and the elements of the `AnyArray` arguments have in common: `Unknown` where nothing is
/// known of them, an error where they have nothing in common.
fn element_type(given: &[Type], arguments: &[Argument]) -> std::result::Result<Type, ()> {
    let mut known = Vec::new();
    for (ty, argument) in given.iter().zip(arguments) {
        match argument {
            Argument::AnyArray => known.extend(ty.element()),
            Argument::AnyElement | Argument::AnyNonArray if *ty != Type::Unknown => known.push(*ty),
            _ => {}
        }
    }
    if known.is_empty() { Ok(Type::Unknown) } else { common_type(&known).ok_or(()) }
}

fn select<T>(given: &[Type], mut candidates: Vec<Expanded<T>>) -> Choice<T> {
    candidates.retain(|candidate| fits(given, &candidate.arguments));
    if candidates.is_empty() {
        return Choice::None;
    }
    let is_exact = |ty: Type, argument: Argument| ty != Type::Unknown && argument == Argument::Is(ty);
    keep_best(&mut candidates, given, is_exact);
    keep_best(&mut candidates, given, |ty, argument| {
        let (category, preferred) = category(argument);
        ty != Type::Unknown && (argument == Argument::Is(ty) || (preferred && category == ty.category()))
    });
    if candidates.len() > 1 && given.contains(&Type::Unknown) {
        keep_likely(&mut candidates, given);
        if candidates.len() > 1 {
            keep_alike(&mut candidates, given);
        }
    }
    match candidates.len() {
        1 => Choice::One(candidates.swap_remove(0)),
        _ => Choice::Many,
    }
}

/// Keeps the candidates for which the most places have the property.
fn keep_best<T>(
    candidates: &mut Vec<Expanded<T>>,
    given: &[Type],
    property: impl Fn(Type, Argument) -> bool,
) {
    let count = |candidate: &Expanded<T>| {
        given.iter().zip(&candidate.arguments).filter(|(ty, argument)| property(**ty, **argument)).count()
    };
    let best = candidates.iter().map(count).max().unwrap_or(0);
    candidates.retain(|candidate| count(candidate) == best);
}

/// Takes each unknown literal for a string where some candidate takes one, else for the category on which all agree, and
/// keeps the candidates that take that, or its preferred type where some do.
fn keep_likely<T>(candidates: &mut Vec<Expanded<T>>, given: &[Type]) {
    let mut wanted = Vec::new();
    for (index, _) in given.iter().enumerate().filter(|(_, ty)| **ty == Type::Unknown) {
        let mut slot: Option<(char, bool)> = None;
        let mut conflict = false;
        for candidate in candidates.iter() {
            let (category, preferred) = category(candidate.arguments[index]);
            match &mut slot {
                None => slot = Some((category, preferred)),
                Some((same, any)) if *same == category => *any |= preferred,
                Some(slot) if category == 'S' => *slot = (category, preferred),
                Some(_) => conflict = true,
            }
        }
        match slot {
            Some((category, preferred)) if !conflict || category == 'S' => {
                wanted.push((index, category, preferred));
            }
            _ => return,
        }
    }
    let likely = |candidate: &Expanded<T>| {
        wanted.iter().all(|(index, wanted, wants_preferred)| {
            let (category, preferred) = category(candidate.arguments[*index]);
            category == *wanted && (preferred || !wants_preferred)
        })
    };
    if candidates.iter().any(likely) {
        candidates.retain(likely);
    }
}

/// Where all known arguments are of one type, takes the unknown ones for that type, too.
fn keep_alike<T>(candidates: &mut Vec<Expanded<T>>, given: &[Type]) {
    let mut known = given.iter().copied().filter(|ty| *ty != Type::Unknown);
    let Some(first) = known.next() else { return };
    if known.any(|ty| ty != first) {
        return;
    }
    let alike = vec![first; given.len()];
    let matching = |candidate: &Expanded<T>| fits(&alike, &candidate.arguments);
    if candidates.iter().filter(|candidate| matching(candidate)).count() == 1 {
        candidates.retain(matching);
    }
}

/// The types the arguments are cast to, and the result's.
fn settle(target: Resolved, arguments: &[Argument], given: &[Type]) -> Result<Resolution> {
    let mut element = element_type(given, arguments).unwrap_or(Type::Unknown);
    let polymorphic = |argument: &Argument| !matches!(argument, Argument::Is(_) | Argument::Any);
    if element == Type::Unknown && arguments.iter().any(polymorphic) {
        if arguments.contains(&Argument::AnyArray) {
            let message = "could not determine polymorphic type because input has type unknown";
            return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
        }
        element = Type::Text;
    }
    let mut types = Vec::with_capacity(given.len());
    for (ty, argument) in given.iter().zip(arguments) {
        types.push(match argument {
            Argument::Is(to) => *to,
            Argument::Any if *ty == Type::Unknown => Type::Text,
            Argument::Any => *ty,
            Argument::AnyElement | Argument::AnyNonArray => element,
            Argument::AnyArray if ty.element() == Some(element) => *ty,
            Argument::AnyArray => array_of(element)?,
        });
    }
    let returns = match target.returns() {
        Returns::Is(ty) => ty,
        Returns::Element => element,
        Returns::Array => array_of(element)?,
    };
    Ok(Resolution { target, types, returns, element })
}

fn array_of(element: Type) -> Result<Type> {
    element.array().ok_or_else(|| {
        let message = format!("could not find array type for data type {}", element.name());
        Error::new(SqlState::UNDEFINED_OBJECT, message)
    })
}
