//! Operators: comparisons, AND and OR, and what the functions know as operators.

use super::binder::{Binder, Typed, place};
use super::tokens::position;
use crate::functions::{Resolved, compared_moment, resolve_comparison, resolve_operator};
use crate::logical::{Comparison, Scalar};
use crate::types::cast::CastContext;
use crate::types::datetime::is_near;
use crate::types::{NO_MODIFIER, Type, Value};
use crate::{Error, Result, SqlState};
use sqlparser::ast::{self, BinaryOperator, Expr, Spanned, UnaryOperator};

/// An operator, as far as binding tells them apart.
pub(super) enum Symbol {
    And,
    Or,
    Compare(Comparison),
    Other(String),
}

/// What an operator of the syntax tree is.
pub(super) fn symbol(op: &BinaryOperator) -> Result<Symbol> {
    Ok(match op {
        BinaryOperator::And => Symbol::And,
        BinaryOperator::Or => Symbol::Or,
        // No operator has a point in its name.
        BinaryOperator::Custom(name) => match name.rsplit_once('.') {
            None => symbol_of(name),
            Some(("pg_catalog", name)) => symbol_of(name),
            Some(_) => {
                let message = format!("operator does not exist: {name}");
                return Err(Error::new(SqlState::UNDEFINED_FUNCTION, message));
            }
        },
        BinaryOperator::PGBitwiseXor | BinaryOperator::BitwiseXor => Symbol::Other("#".to_owned()),
        BinaryOperator::Overlaps => return Err(Error::unsupported("OVERLAPS")),
        // What is an operator's name comes as the one above.
        BinaryOperator::PGCustomBinaryOperator(parts) => {
            let name = parts.last().map_or("", String::as_str);
            return Err(Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{name}\"")));
        }
        BinaryOperator::Xor
        | BinaryOperator::DuckIntegerDivide
        | BinaryOperator::MyIntegerDivide
        | BinaryOperator::Match
        | BinaryOperator::Regexp
        | BinaryOperator::Glob
        | BinaryOperator::Assignment
        | BinaryOperator::Spaceship => {
            return Err(Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{op}\"")));
        }
        other => symbol_of(&other.to_string()),
    })
}

fn symbol_of(name: &str) -> Symbol {
    match name {
        "=" => Symbol::Compare(Comparison::Equal),
        "<>" | "!=" => Symbol::Compare(Comparison::NotEqual),
        "<" => Symbol::Compare(Comparison::Less),
        "<=" => Symbol::Compare(Comparison::LessOrEqual),
        ">" => Symbol::Compare(Comparison::Greater),
        ">=" => Symbol::Compare(Comparison::GreaterOrEqual),
        other => Symbol::Other(other.to_owned()),
    }
}

/// How a comparison is written.
pub(super) fn written(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal | Comparison::Distinct | Comparison::NotDistinct => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

impl<'a> Binder<'a> {
    /// A binary operator. Chains lean to the left and may be long, so the left side is walked in a loop.
    pub(super) fn binary(&mut self, expr: &'a Expr) -> Result<Typed> {
        let mut spine = Vec::new();
        let bottom = unwind(expr, &mut spine);
        let Some(_) = spine.last() else { return self.connective(expr) };
        // A row at the bottom is a comparison of rows.
        let mut typed = match (spine.last(), self.row_parts(bottom)?) {
            (Some(step), Some(parts)) if row_of(step.right).is_some() => {
                let at = self.operator_place(step.left.span());
                let typed = self.compare_rows(step.op, parts, step.right, at)?;
                spine.pop();
                typed
            }
            (Some(step), Some(_)) if matches!(inner(step.right), Expr::Subquery(_)) => {
                let at = self.operator_place(step.left.span());
                return Err(place(Error::unsupported("comparison of a row with that of a subquery"), at));
            }
            (_, Some(_)) => self.expr(bottom)?,
            (_, None) => self.operand(bottom, &mut spine)?,
        };
        while let Some(step) = spine.pop() {
            let right = self.operand(step.right, &mut spine)?;
            let right = self.signed(&step.signs, right)?;
            typed = self.step(typed, &step, right)?;
        }
        Ok(typed)
    }

    /// One operator of a chain.
    fn step(&mut self, left: Typed, step: &Step<'a>, right: Typed) -> Result<Typed> {
        let at = self.operator_place(step.left.span());
        let begins = left.position;
        let mut typed = match symbol(step.op).map_err(|error| place(error, at))? {
            Symbol::Compare(op) => self.compare(op, left, right, at)?,
            Symbol::Other(name) => self.operator(&name, Some(left), right, at)?,
            Symbol::And | Symbol::Or => return Err(Error::internal("a connective among operators")),
        };
        typed.position = begins;
        Ok(typed)
    }

    /// An operand, with what of the chain behind it belongs to it: `@ -5 + 3` is `@ (-5 + 3)`.
    fn operand(&mut self, expr: &'a Expr, spine: &mut Vec<Step<'a>>) -> Result<Typed> {
        let Expr::UnaryOp { op, expr: inner } = expr else { return self.expr(expr) };
        if !loose(*op) || !spine.last().is_some_and(|step| arithmetic(step.op)) {
            return self.expr(expr);
        }
        let mut typed = self.operand(inner, spine)?;
        while let Some(step) = spine.pop_if(|step| arithmetic(step.op)) {
            let right = self.operand(step.right, spine)?;
            let right = self.signed(&step.signs, right)?;
            typed = self.step(typed, &step, right)?;
        }
        self.prefix(*op, typed, position(expr.span()))
    }

    fn signed(&mut self, signs: &[UnaryOperator], mut typed: Typed) -> Result<Typed> {
        for sign in signs.iter().rev() {
            let at = typed.position;
            typed = self.prefix(*sign, typed, at)?;
        }
        Ok(typed)
    }

    /// AND and OR: nested ones of the same kind become one.
    fn connective(&mut self, expr: &'a Expr) -> Result<Typed> {
        let Expr::BinaryOp { op: kind, .. } = expr else {
            return Err(Error::internal("no connective"));
        };
        let what = if *kind == BinaryOperator::And { "argument of AND" } else { "argument of OR" };
        let mut terms = Vec::new();
        let mut pending = vec![expr];
        while let Some(next) = pending.pop() {
            match inner(next) {
                Expr::BinaryOp { left, op, right } if op == kind => {
                    pending.push(right);
                    pending.push(left);
                }
                _ => {
                    let typed = self.expr(next)?;
                    terms.push(self.condition(typed, what)?);
                }
            }
        }
        let scalar = if *kind == BinaryOperator::And { Scalar::And(terms) } else { Scalar::Or(terms) };
        Ok(Typed::new(scalar, Type::Bool).at(position(expr.span())))
    }

    /// Converts both sides of a comparison to one type.
    pub(super) fn comparands(
        &mut self,
        op: Comparison,
        left: Typed,
        right: Typed,
        at: Option<usize>,
    ) -> Result<(Typed, Typed)> {
        if left.ty.is_integer() && right.ty.is_integer() {
            return Ok((left, right));
        }
        if left.ty == Type::Record && right.ty == Type::Record {
            return Ok((left, right));
        }
        let ty = resolve_comparison(written(op), left.ty, right.ty).map_err(|error| place(error, at))?;
        let explicit = CastContext::Explicit;
        Ok((self.comparand(left, ty, explicit)?, self.comparand(right, ty, explicit)?))
    }

    /// Converts a side of a comparison. Moments that the type does not reach are beyond all that it has, short of infinity: a comparison
    /// does not fail for them.
    pub(super) fn comparand(&mut self, typed: Typed, ty: Type, allowed: CastContext) -> Result<Typed> {
        let is_near = matches!(typed.scalar, Scalar::Literal { value: Value::Int(moment), .. } if is_near(moment, typed.ty));
        match compared_moment(typed.ty, ty) {
            Some(function) if !is_near => {
                let scalar = Scalar::Call { function, arguments: vec![typed.scalar], ty };
                Ok(Typed::new(scalar, ty).at(typed.position))
            }
            _ => self.coerce(typed, ty, NO_MODIFIER, allowed),
        }
    }

    pub(super) fn compare(
        &mut self,
        op: Comparison,
        left: Typed,
        right: Typed,
        at: Option<usize>,
    ) -> Result<Typed> {
        if let (Scalar::Row(left), Scalar::Row(right)) = (&left.scalar, &right.scalar)
            && left.len() != right.len()
        {
            return Err(place(
                Error::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"),
                at,
            ));
        }
        let (left, right) = self.comparands(op, left, right, at)?;
        let scalar = Scalar::Compare { op, left: Box::new(left.scalar), right: Box::new(right.scalar) };
        Ok(Typed::new(scalar, Type::Bool).at(left.position))
    }

    /// The parts of a row of expressions.
    pub(super) fn row_parts(&mut self, expr: &'a Expr) -> Result<Option<Vec<Typed>>> {
        let Some(parts) = row_of(expr) else { return Ok(None) };
        parts.into_iter().map(|part| self.expr(part)).collect::<Result<Vec<_>>>().map(Some)
    }

    fn compare_rows(
        &mut self,
        op: &BinaryOperator,
        left: Vec<Typed>,
        right: &'a Expr,
        at: Option<usize>,
    ) -> Result<Typed> {
        let right = self.row_parts(right)?.unwrap_or_default();
        let Symbol::Compare(op) = symbol(op).map_err(|error| place(error, at))? else {
            return Err(place(Error::unsupported("an operator other than a comparison between rows"), at));
        };
        self.compare_parts(op, left, right, at)
    }

    pub(super) fn compare_parts(
        &mut self,
        op: Comparison,
        left: Vec<Typed>,
        right: Vec<Typed>,
        at: Option<usize>,
    ) -> Result<Typed> {
        if left.len() != right.len() {
            let error = Error::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions");
            return Err(place(error, at));
        }
        if left.is_empty() {
            let error = Error::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot compare rows of zero length");
            return Err(place(error, at));
        }
        let begins = left[0].position;
        let mut pairs = Vec::with_capacity(left.len());
        for (left, right) in left.into_iter().zip(right) {
            let (left, right) = self.comparands(op, left, right, at)?;
            pairs.push((left.scalar, right.scalar));
        }
        Ok(Typed::new(compared_rows(op, pairs), Type::Bool).at(begins))
    }

    /// An operator that is a function.
    pub(super) fn operator(
        &mut self,
        name: &str,
        left: Option<Typed>,
        right: Typed,
        at: Option<usize>,
    ) -> Result<Typed> {
        let resolution = resolve_operator(name, left.as_ref().map(|left| left.ty), right.ty)
            .map_err(|error| place(error, at))?;
        let Resolved::Function(function) = resolution.target else {
            return Err(Error::internal("an operator that is no function of values"));
        };
        let begins = left.as_ref().map_or(at, |left| left.position);
        let mut arguments = Vec::with_capacity(2);
        for (argument, ty) in left.into_iter().chain([right]).zip(&resolution.types) {
            arguments.push(self.argument(argument, *ty)?);
        }
        let ty = resolution.returns;
        Ok(Typed::new(Scalar::Call { function, arguments, ty }, ty).at(begins))
    }

    /// An argument, as the function takes it.
    pub(super) fn argument(&mut self, typed: Typed, ty: Type) -> Result<Scalar> {
        let ty = match (ty, &typed.scalar) {
            // Nothing says what it is: an error at the end, unless something else does.
            (Type::Unknown, Scalar::Parameter { .. }) => return Ok(typed.scalar),
            (Type::Unknown, _) => Type::Text,
            (ty, _) => ty,
        };
        // What the function chose is right, also where the conversion is weaker than an implicit one.
        Ok(self.coerce(typed, ty, NO_MODIFIER, CastContext::Explicit)?.scalar)
    }

    /// A prefix operator.
    pub(super) fn unary(&mut self, op: UnaryOperator, expr: &'a Expr, at: Option<usize>) -> Result<Typed> {
        // So that -9223372036854775808 is a number.
        if op == UnaryOperator::Minus
            && let Some((digits, negative)) = negated(expr)
        {
            return if negative { self.number(&format!("-{digits}"), at) } else { self.number(digits, at) };
        }
        // A sign binds tighter than `^`.
        if let (UnaryOperator::Minus | UnaryOperator::Plus, Some((mut signs, base, mut spine))) =
            (op, power(expr))
        {
            signs.insert(0, op);
            let mut typed = self.expr(base)?;
            typed = self.signed(&signs, typed)?;
            while let Some(step) = spine.pop() {
                let right = self.expr(step.right)?;
                let right = self.signed(&step.signs, right)?;
                typed = self.step(typed, &step, right)?;
            }
            return Ok(typed);
        }
        let typed = self.expr(expr)?;
        self.prefix(op, typed, at)
    }

    /// A prefix operator and its operand.
    fn prefix(&mut self, op: UnaryOperator, typed: Typed, at: Option<usize>) -> Result<Typed> {
        let name = match op {
            UnaryOperator::Not => {
                let scalar = self.condition(typed, "argument of NOT")?;
                return Ok(Typed::new(Scalar::Not(Box::new(scalar)), Type::Bool).at(at));
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::Minus => "-",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGPrefixFactorial => "!!",
            UnaryOperator::PGPostfixFactorial | UnaryOperator::BangNot => "!",
            UnaryOperator::AtDashAt => "@-@",
            UnaryOperator::DoubleAt => "@@",
            UnaryOperator::Hash => "#",
            UnaryOperator::QuestionDash => "?-",
            UnaryOperator::QuestionPipe => "?|",
        };
        self.operator(name, None, typed, at)
    }
}

/// An operator of a chain, and what is right of it.
struct Step<'a> {
    left: &'a Expr,
    op: &'a BinaryOperator,
    /// Signs in front of the right side.
    signs: Vec<UnaryOperator>,
    right: &'a Expr,
}

/// Splits a chain of binary operators as PostgreSQL's precedence has it, where the parser's differs; gives its first
/// operand. Steps are added in reverse.
fn unwind<'a>(mut bottom: &'a Expr, spine: &mut Vec<Step<'a>>) -> &'a Expr {
    while let Expr::BinaryOp { left, op, right } = bottom {
        if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
            break;
        }
        let mut step = Step { left, op, signs: Vec::new(), right };
        if *op == BinaryOperator::PGExp
            && let Some((signs, base, steps)) = power(right)
        {
            (step.signs, step.right) = (signs, base);
            spine.extend(steps);
        } else if matching(op) {
            // `a ~ b || c` is `(a ~ b) || c`.
            while let Expr::BinaryOp { left, op, right: last } = step.right
                && !arithmetic(op)
                && !matches!(op, BinaryOperator::And | BinaryOperator::Or)
            {
                spine.push(Step { left, op, signs: Vec::new(), right: last });
                step.right = left;
            }
        }
        spine.push(step);
        bottom = left;
    }
    bottom
}

/// The digits of what is a number with any signs and parentheses around it, and whether it is negative with one sign more in front.
fn negated(mut expr: &Expr) -> Option<(&str, bool)> {
    let mut negative = true;
    loop {
        match inner(expr) {
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: operand } => {
                negative = !negative;
                expr = operand;
            }
            Expr::Value(ast::ValueWithSpan { value: ast::Value::Number(digits, _), .. }) => {
                return Some((digits, negative));
            }
            _ => return None,
        }
    }
}

/// The signs, the base, and the rest of `- - a ^ b ^ c` without its first sign; `None` where there is no `^`.
fn power(mut expr: &Expr) -> Option<(Vec<UnaryOperator>, &Expr, Vec<Step<'_>>)> {
    let mut signs = Vec::new();
    while let Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::Plus), expr: inner } = expr {
        signs.push(*op);
        expr = inner;
    }
    let mut spine = Vec::new();
    match expr {
        Expr::BinaryOp { op: BinaryOperator::PGExp, .. } => {
            let base = unwind(expr, &mut spine);
            Some((signs, base, spine))
        }
        _ => None,
    }
}

/// Prefix operators that bind looser than arithmetic.
fn loose(op: UnaryOperator) -> bool {
    !matches!(op, UnaryOperator::Minus | UnaryOperator::Plus | UnaryOperator::Not)
}

/// Operators that bind tighter than those without a precedence of their own.
fn arithmetic(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo
            | BinaryOperator::PGExp
    )
}

/// Operators of regular expressions, which the parser takes for a kind of LIKE.
fn matching(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
            | BinaryOperator::PGLikeMatch
            | BinaryOperator::PGILikeMatch
            | BinaryOperator::PGNotLikeMatch
            | BinaryOperator::PGNotILikeMatch
    )
}

/// Without parentheses.
pub(super) fn inner(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(nested) = expr {
        expr = nested;
    }
    expr
}

/// The parts of `(a, b)` or `ROW(a, b)`.
pub(super) fn row_of(expr: &Expr) -> Option<Vec<&Expr>> {
    match inner(expr) {
        Expr::Tuple(parts) => Some(parts.iter().collect()),
        Expr::Function(function) => super::calls::row_constructor(function),
        _ => None,
    }
}

/// A comparison of rows by pairs of their columns. Whether they are equal is asked of each pair alone, so that it may be looked up or joined by.
fn compared_rows(op: Comparison, pairs: Vec<(Scalar, Scalar)>) -> Scalar {
    let alone = |(left, right)| Scalar::Compare { op, left: Box::new(left), right: Box::new(right) };
    match op {
        Comparison::Equal | Comparison::NotDistinct => all_of(pairs.into_iter().map(alone).collect(), true),
        Comparison::NotEqual | Comparison::Distinct => all_of(pairs.into_iter().map(alone).collect(), false),
        Comparison::Less | Comparison::LessOrEqual | Comparison::Greater | Comparison::GreaterOrEqual => {
            let (mut left, mut right): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
            match (left.len(), left.pop(), right.pop()) {
                (1, Some(left), Some(right)) => alone((left, right)),
                (_, last, other) => {
                    left.extend(last);
                    right.extend(other);
                    Scalar::CompareRows { op, left, right }
                }
            }
        }
    }
}

/// AND (`and`) or OR of terms; of one alone it is that.
fn all_of(mut terms: Vec<Scalar>, and: bool) -> Scalar {
    match (terms.len(), and) {
        (1, _) => terms.remove(0),
        (_, true) => Scalar::And(terms),
        (_, false) => Scalar::Or(terms),
    }
}
