//! Expressions written down as SQL, the way PostgreSQL's EXPLAIN does.

use crate::functions::{Function, symbol};
use crate::logical::Comparison;
use crate::physical::{Expr, OrderBy, PlanColumn, SubplanKind};
use crate::types::text::{TextStyle, write};
use crate::types::{Array, Type, Value};
use std::fmt::Write as _;
use std::sync::Arc;

/// What the positions and slots of an expression stand for.
pub(super) struct Names<'a> {
    pub(super) row: Vec<&'a PlanColumn>,
    pub(super) slots: &'a [String],
    pub(super) style: &'a TextStyle,
    /// What [`Expr::Held`] stands for.
    pub(super) held: Option<String>,
}

pub(super) fn comparison(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
        Comparison::Distinct => "IS DISTINCT FROM",
        Comparison::NotDistinct => "IS NOT DISTINCT FROM",
    }
}

impl Names<'_> {
    /// The type of an expression, where it shows.
    fn type_of(&self, expr: &Expr) -> Option<Type> {
        match expr {
            Expr::Column(position) => self.row.get(*position).map(|column| column.ty),
            Expr::Call { ty, .. } => Some(*ty),
            Expr::Cast { to, .. } => Some(*to),
            Expr::Array { element, .. } => element.array(),
            Expr::Case { otherwise, .. } => self.type_of(otherwise),
            Expr::Hold { body, .. } => self.type_of(body),
            Expr::Coalesce(list) => list.iter().find_map(|part| self.type_of(part)),
            Expr::Extreme { arguments, .. } => arguments.iter().find_map(|part| self.type_of(part)),
            _ => None,
        }
    }

    /// A constant of a type, which is guessed where it is not known.
    pub(super) fn literal(&self, value: &Value, ty: Option<Type>, out: &mut String) {
        let ty = ty.unwrap_or(match value {
            Value::Null | Value::Text(_) => Type::Text,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int8,
            Value::Float(_) => Type::Float8,
            Value::Numeric(_) => Type::Numeric,
            Value::Padded(_) => Type::Bpchar,
            Value::Bytes(_) => Type::Bytea,
            Value::Array(array) => array.element.array().unwrap_or(Type::TextArray),
            Value::Record(_) => Type::Record,
        });
        if value.is_null() {
            _ = write!(out, "NULL::{}", ty.name());
            return;
        }
        let mut text = String::new();
        write(value, ty, self.style, &mut text);
        match ty {
            Type::Bool => out.push_str(if value.as_bool() == Some(true) { "true" } else { "false" }),
            ty if ty.is_integer() && !text.starts_with('-') => out.push_str(&text),
            _ => _ = write!(out, "'{}'::{}", text.replace('\'', "''"), ty.name()),
        }
    }

    /// An expression where a value of a type is expected.
    fn typed(&self, expr: &Expr, ty: Option<Type>, out: &mut String) {
        match expr {
            Expr::Literal(value) => self.literal(value, ty, out),
            other => self.write(other, out),
        }
    }

    fn list(&self, list: &[Expr], between: &str, out: &mut String) {
        for (position, expr) in list.iter().enumerate() {
            if position > 0 {
                out.push_str(between);
            }
            self.write(expr, out);
        }
    }

    /// An expression as text.
    pub(super) fn text(&self, expr: &Expr) -> String {
        let mut out = String::new();
        self.write(expr, &mut out);
        out
    }

    /// A condition as text: in parentheses.
    pub(super) fn condition(&self, expr: &Expr) -> String {
        let text = self.text(expr);
        if text.starts_with('(') && text.ends_with(')') { text } else { format!("({text})") }
    }

    fn binary(&self, left: &Expr, op: &str, right: &Expr, out: &mut String) {
        let (a, b) = (self.type_of(left), self.type_of(right));
        out.push('(');
        self.typed(left, a.or(b), out);
        _ = write!(out, " {op} ");
        self.typed(right, b.or(a), out);
        out.push(')');
    }

    /// Appends an expression.
    pub(super) fn write(&self, expr: &Expr, out: &mut String) {
        match expr {
            Expr::Literal(value) => self.literal(value, None, out),
            Expr::Column(position) => match self.row.get(*position) {
                Some(column) => out.push_str(&column.name),
                None => _ = write!(out, "#{position}"),
            },
            Expr::Parameter(index) => _ = write!(out, "${}", index + 1),
            Expr::Slot(slot) => match self.slots.get(*slot).filter(|name| !name.is_empty()) {
                Some(name) => out.push_str(name),
                None => _ = write!(out, "@{slot}"),
            },
            Expr::Call { function, arguments, types, .. } => self.call(function, arguments, types, out),
            Expr::Cast { argument, from, to, modifier, .. } => {
                out.push('(');
                self.typed(argument, Some(*from), out);
                _ = write!(out, ")::{}", to.display(*modifier));
            }
            Expr::And(list) => self.junction(list, " AND ", out),
            Expr::Or(list) => self.junction(list, " OR ", out),
            Expr::Not(argument) => match &**argument {
                Expr::IsNull(inner) => self.postfix(inner, "IS NOT NULL", out),
                Expr::IsBool { argument, value } => {
                    self.postfix(argument, if *value { "IS NOT TRUE" } else { "IS NOT FALSE" }, out);
                }
                other => {
                    out.push_str("(NOT ");
                    self.write(other, out);
                    out.push(')');
                }
            },
            Expr::Compare { op, left, right } => self.binary(left, comparison(*op), right, out),
            Expr::CompareRows { op, left, right } => {
                out.push_str("(ROW(");
                self.list(left, ", ", out);
                _ = write!(out, ") {} ROW(", comparison(*op));
                self.list(right, ", ", out);
                out.push_str("))");
            }
            Expr::IsNull(argument) => self.postfix(argument, "IS NULL", out),
            Expr::IsBool { argument, value } => {
                self.postfix(argument, if *value { "IS TRUE" } else { "IS FALSE" }, out);
            }
            Expr::Case { branches, otherwise } => {
                out.push_str("CASE");
                let ty = self.type_of(expr);
                for (condition, value) in branches {
                    out.push_str(" WHEN ");
                    self.write(condition, out);
                    out.push_str(" THEN ");
                    self.typed(value, ty, out);
                }
                out.push_str(" ELSE ");
                self.typed(otherwise, ty, out);
                out.push_str(" END");
            }
            Expr::Hold { value, body } => {
                let held = Some(self.text(value));
                Names { row: self.row.clone(), slots: self.slots, style: self.style, held }.write(body, out);
            }
            Expr::Held => out.push_str(self.held.as_deref().unwrap_or_default()),
            Expr::Coalesce(list) => self.function("COALESCE", list, out),
            Expr::Extreme { arguments, greatest } => {
                self.function(if *greatest { "GREATEST" } else { "LEAST" }, arguments, out);
            }
            Expr::InList { argument, list } => {
                out.push('(');
                self.write(argument, out);
                out.push_str(" = ANY (ARRAY[");
                self.list(list, ", ", out);
                out.push_str("]))");
            }
            Expr::InSet { argument, set, null } => self.set(argument, set, *null, out),
            Expr::Quantified { argument, op, array, all } => {
                out.push('(');
                self.write(argument, out);
                _ = write!(out, " {} {} (", comparison(*op), if *all { "ALL" } else { "ANY" });
                self.typed(array, self.type_of(argument).and_then(Type::array), out);
                out.push_str("))");
            }
            Expr::Array { elements, .. } => {
                out.push_str("ARRAY[");
                self.list(elements, ", ", out);
                out.push(']');
            }
            Expr::Subscript { array, index } => {
                self.write(array, out);
                out.push('[');
                self.write(index, out);
                out.push(']');
            }
            Expr::Row { elements, .. } => self.function("ROW", elements, out),
            Expr::Subquery { subplan, kind, .. } => self.subquery(*subplan, kind, out),
        }
    }

    fn junction(&self, list: &[Expr], between: &str, out: &mut String) {
        out.push('(');
        self.list(list, between, out);
        out.push(')');
    }

    fn postfix(&self, argument: &Expr, what: &str, out: &mut String) {
        out.push('(');
        self.write(argument, out);
        _ = write!(out, " {what})");
    }

    fn function(&self, name: &str, arguments: &[Expr], out: &mut String) {
        _ = write!(out, "{name}(");
        self.list(arguments, ", ", out);
        out.push(')');
    }

    fn call(&self, function: &Function, arguments: &[Expr], types: &[Type], out: &mut String) {
        let ty = |position: usize| types.get(position).copied();
        match (symbol(function), arguments) {
            (Some(symbol), [left, right]) => {
                out.push('(');
                self.typed(left, ty(0), out);
                _ = write!(out, " {symbol} ");
                self.typed(right, ty(1), out);
                out.push(')');
            }
            (Some(symbol), [argument]) => {
                _ = write!(out, "({symbol} ");
                self.typed(argument, ty(0), out);
                out.push(')');
            }
            _ => {
                _ = write!(out, "{}(", function.name);
                for (position, argument) in arguments.iter().enumerate() {
                    if position > 0 {
                        out.push_str(", ");
                    }
                    self.typed(argument, ty(position), out);
                }
                out.push(')');
            }
        }
    }

    fn set(&self, argument: &Expr, set: &Arc<[Value]>, null: bool, out: &mut String) {
        let element = self.type_of(argument).unwrap_or(match set.first() {
            Some(Value::Int(_)) => Type::Int8,
            _ => Type::Text,
        });
        let mut values = set.to_vec();
        if null {
            values.push(Value::Null);
        }
        out.push('(');
        self.write(argument, out);
        out.push_str(" = ANY (");
        match element.array() {
            Some(ty) => {
                self.literal(&Value::Array(Arc::new(Array { element, values, lower: 1 })), Some(ty), out)
            }
            None => {
                for (position, value) in values.iter().enumerate() {
                    if position > 0 {
                        out.push_str(", ");
                    }
                    self.literal(value, Some(element), out);
                }
            }
        }
        out.push_str("))");
    }

    fn subquery(&self, subplan: usize, kind: &SubplanKind, out: &mut String) {
        let name = format!("SubPlan {}", subplan + 1);
        match kind {
            SubplanKind::Scalar => _ = write!(out, "({name})"),
            SubplanKind::Exists => _ = write!(out, "EXISTS({name})"),
            SubplanKind::Array(_) => _ = write!(out, "ARRAY({name})"),
            SubplanKind::Quantified { arguments, op, all } => {
                out.push('(');
                if arguments.len() == 1 {
                    self.list(arguments, ", ", out);
                } else {
                    self.function("ROW", arguments, out);
                }
                _ = write!(out, " {} {} ({name}))", comparison(*op), if *all { "ALL" } else { "ANY" });
            }
        }
    }

    /// Sort keys as text.
    pub(super) fn order(&self, keys: &[OrderBy]) -> String {
        let mut out = String::new();
        for (position, key) in keys.iter().enumerate() {
            if position > 0 {
                out.push_str(", ");
            }
            self.write(&key.expr, &mut out);
            if key.descending {
                out.push_str(" DESC");
            }
            if key.nulls_first != key.descending {
                out.push_str(if key.nulls_first { " NULLS FIRST" } else { " NULLS LAST" });
            }
        }
        out
    }

    /// Expressions as text.
    pub(super) fn all<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> String {
        let list: Vec<String> = exprs.into_iter().map(|expr| self.text(expr)).collect();
        list.join(", ")
    }
}
