//! How many rows conditions let pass, how many different values there are: from what ANALYZE found, or PostgreSQL's guesses without.

use super::Planner;
use super::columns::{ColumnSet, columns_of};
use super::scalar::{constant, mirrored, strip};
use crate::catalog::{ColumnStatistics, Oid, Table};
use crate::logical::{ColumnId, Comparison, Scalar, SubqueryKind, type_of};
use crate::types::text::TextStyle;
use crate::types::{NO_MODIFIER, Type, Value};

/// An equality of which nothing is known.
const EQUAL: f64 = 0.005;
/// A comparison of which nothing is known.
const UNEQUAL: f64 = 1.0 / 3.0;
/// Both bounds of a range of which nothing is known.
const BETWEEN: f64 = 0.005;
/// A condition of which nothing is known.
const UNKNOWN: f64 = 0.333;
/// A pattern with a fixed beginning.
const PREFIX: f64 = 0.01;
/// A pattern without.
const PATTERN: f64 = 0.05;
/// Different values, when nothing is known.
const DISTINCT: f64 = 200.0;

impl Planner<'_> {
    /// Rows of a table.
    pub(super) fn table_rows(&self, table: &Table) -> f64 {
        let mut known = self.table_sizes.borrow_mut();
        if let Some((_, rows)) = known.iter().find(|(oid, _)| *oid == table.oid) {
            return *rows;
        }
        let rows = self.estimator.rows(table).max(1.0);
        known.push((table.oid, rows));
        rows
    }

    fn rows_of(&self, table: Oid) -> Option<f64> {
        self.catalog.tables.get(&table).map(|table| self.table_rows(table))
    }

    /// What ANALYZE found out about a column.
    pub(super) fn statistics(&self, column: ColumnId) -> Option<&ColumnStatistics> {
        let (table, number) = self.columns.get(column).origin?;
        self.catalog.statistics.get(&table)?.columns.get(&number)
    }

    /// Different values of a column in its table.
    pub(super) fn distinct(&self, column: ColumnId) -> f64 {
        if let Some(known) = self.distincts.borrow().get(&column) {
            return *known;
        }
        let distinct = self.estimate_distinct(column);
        self.distincts.borrow_mut().insert(column, distinct);
        distinct
    }

    fn estimate_distinct(&self, column: ColumnId) -> f64 {
        let info = self.columns.get(column);
        let Some((oid, number)) = info.origin else {
            return if info.ty == Type::Bool { 2.0 } else { DISTINCT };
        };
        let rows = self.rows_of(oid).unwrap_or(1000.0);
        if let Some(statistics) = self.statistics(column) {
            let distinct = statistics.distinct;
            if distinct > 0.0 {
                return distinct.min(rows).max(1.0);
            }
            if distinct < 0.0 {
                return (-distinct * rows).max(1.0);
            }
        }
        let unique = self.catalog.tables.get(&oid).is_some_and(|table| {
            table
                .indexes
                .iter()
                .any(|index| index.unique && index.columns.len() == 1 && index.columns[0].column == number)
        });
        if unique {
            rows
        } else if info.ty == Type::Bool {
            2.0
        } else {
            DISTINCT.min(rows)
        }
    }

    /// The share of rows that fulfil all conditions. `local`: the columns of the rows; others are constants.
    pub(super) fn all_hold<'a>(
        &self,
        conditions: impl Iterator<Item = &'a Scalar>,
        local: &ColumnSet,
    ) -> f64 {
        let mut share = 1.0;
        // Bounds of the same column belong together.
        let mut ranges: Vec<(ColumnId, Option<f64>, Option<f64>)> = Vec::new();
        // Those with a bound that is not known before it is run.
        let mut vague = ColumnSet::new();
        for condition in conditions {
            if let Some((column, other, lower)) = self.as_bound(condition, local) {
                let at = ranges.iter().position(|range| range.0 == column).unwrap_or_else(|| {
                    ranges.push((column, None, None));
                    ranges.len() - 1
                });
                if self.below(Some(column), other).is_none() {
                    vague.insert(column);
                }
                let place = if lower { &mut ranges[at].1 } else { &mut ranges[at].2 };
                let this = self.holds(condition, local);
                *place = Some(place.map_or(this, |other: f64| other.min(this)));
            } else {
                share *= self.holds(condition, local);
            }
        }
        for (column, lower, upper) in ranges {
            share *= match (lower, upper) {
                (Some(lower), Some(upper)) => {
                    if vague.contains(column) {
                        BETWEEN
                    } else {
                        // NULLs are in neither.
                        let nulls = self.statistics(column).map_or(0.0, |it| it.null_fraction);
                        let between = lower + upper - 1.0 + nulls;
                        if between > 0.0 { between } else { BETWEEN.min(lower).min(upper) }
                    }
                }
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => 1.0,
            };
        }
        share.clamp(0.0, 1.0)
    }

    fn as_bound<'a>(&self, condition: &'a Scalar, local: &ColumnSet) -> Option<(ColumnId, &'a Scalar, bool)> {
        let (op, left, right) = match condition {
            Scalar::Compare { op, left, right } => (op, &**left, &**right),
            // Mostly the first columns decide.
            Scalar::CompareRows { op, left, right } => (op, left.first()?, right.first()?),
            _ => return None,
        };
        let (column, other, op) = match (strip(left, &self.columns), strip(right, &self.columns)) {
            (Scalar::Column(id), other) if local.contains(*id) => (*id, other, *op),
            (other, Scalar::Column(id)) if local.contains(*id) => (*id, other, mirrored(*op)),
            _ => return None,
        };
        if columns_of(other).intersects(local) {
            return None;
        }
        match op {
            Comparison::Greater | Comparison::GreaterOrEqual => Some((column, other, true)),
            Comparison::Less | Comparison::LessOrEqual => Some((column, other, false)),
            _ => None,
        }
    }

    /// The share of rows that fulfil a condition.
    pub(super) fn holds(&self, condition: &Scalar, local: &ColumnSet) -> f64 {
        match condition {
            Scalar::Literal { value, .. } => f64::from(value.as_bool() == Some(true)),
            Scalar::And(list) => self.all_hold(list.iter(), local),
            Scalar::Or(list) => {
                1.0 - list.iter().fold(1.0, |none, part| none * (1.0 - self.holds(part, local)))
            }
            Scalar::Not(inner) => match &**inner {
                Scalar::IsNull(argument) => 1.0 - self.is_null(argument),
                other => 1.0 - self.holds(other, local),
            },
            Scalar::IsNull(argument) => self.is_null(argument),
            Scalar::IsBool { argument, value } => {
                let share = self.holds(argument, local);
                if *value { share } else { 1.0 - share }
            }
            Scalar::Column(id) => self
                .statistics(*id)
                .and_then(|statistics| self.common_share(*id, statistics, &Value::Bool(true)))
                .unwrap_or(0.5),
            Scalar::Compare { op, left, right } => self.compares(*op, left, right, local),
            Scalar::CompareRows { op, left, right } => match op {
                Comparison::Equal => EQUAL,
                Comparison::NotEqual => 1.0 - EQUAL,
                _ => self.compares_rows(*op, left, right, local),
            },
            Scalar::InList { argument, list } => {
                let sum: f64 =
                    list.iter().map(|item| self.compares(Comparison::Equal, argument, item, local)).sum();
                sum.min(1.0)
            }
            Scalar::Quantified { argument, op, all, .. } => {
                let one = self.compares(*op, argument, &super::scalar::null(Type::Unknown), local);
                if *all { one.powi(10) } else { 1.0 - (1.0 - one).powi(10) }
            }
            Scalar::Subquery(subquery) => match subquery.kind {
                SubqueryKind::Exists | SubqueryKind::Quantified { .. } => 0.5,
                _ => UNKNOWN,
            },
            Scalar::Call { function, arguments, .. } if super::search::is_like(function) => {
                match arguments.get(1).and_then(constant).and_then(Value::as_str) {
                    Some(pattern) if !pattern.starts_with(['%', '_']) => PREFIX,
                    Some(_) => PATTERN,
                    None => EQUAL,
                }
            }
            _ => UNKNOWN,
        }
    }

    fn is_null(&self, argument: &Scalar) -> f64 {
        match strip(argument, &self.columns) {
            Scalar::Column(id) => match self.statistics(*id) {
                Some(statistics) => statistics.null_fraction,
                None if !self.columns.get(*id).nullable => 0.0,
                None => EQUAL,
            },
            _ => EQUAL,
        }
    }

    fn compares(&self, op: Comparison, left: &Scalar, right: &Scalar, local: &ColumnSet) -> f64 {
        let (left, right) = (strip(left, &self.columns), strip(right, &self.columns));
        let column = |scalar: &Scalar| match scalar {
            Scalar::Column(id) if local.contains(*id) => Some(*id),
            _ => None,
        };
        let (column, other, op) = match (column(left), column(right)) {
            (Some(a), Some(b)) => return self.joins(op, a, b),
            (Some(a), None) => (Some(a), right, op),
            (None, Some(b)) => (Some(b), left, mirrored(op)),
            (None, None) => (None, right, op),
        };
        let statistics = column.and_then(|id| self.statistics(id));
        let null_share = statistics.map_or(0.0, |statistics| statistics.null_fraction);
        let equal = || {
            let Some(column) = column else { return EQUAL };
            if let (Some(statistics), Some(value)) = (statistics, self.value(other)) {
                if let Some(share) = self.common_share(column, statistics, &value) {
                    return share;
                }
                let common: f64 = statistics.common.iter().map(|(_, share)| share).sum();
                let others = (self.distinct(column) - statistics.common.len() as f64).max(1.0);
                return ((1.0 - common - null_share).max(0.0) / others).max(1.0e-9);
            }
            (1.0 - null_share) / self.distinct(column)
        };
        match op {
            Comparison::Equal | Comparison::NotDistinct => equal(),
            Comparison::NotEqual | Comparison::Distinct => (1.0 - equal() - null_share).clamp(0.0, 1.0),
            Comparison::Less | Comparison::LessOrEqual => self.below(column, other).unwrap_or(UNEQUAL),
            Comparison::Greater | Comparison::GreaterOrEqual => {
                self.below(column, other).map_or(UNEQUAL, |below| (1.0 - below - null_share).clamp(0.0, 1.0))
            }
        }
    }

    /// The share of rows that are above, or below, a row: those that are so in the first column, and of those that are equal there the ones that are
    /// so in the rest.
    fn compares_rows(&self, op: Comparison, left: &[Scalar], right: &[Scalar], local: &ColumnSet) -> f64 {
        let (Some((a, left)), Some((b, right))) = (left.split_first(), right.split_first()) else {
            return UNEQUAL;
        };
        let first = self.compares(op, a, b, local);
        if left.is_empty() {
            return first;
        }
        let equal = self.compares(Comparison::Equal, a, b, local);
        let rest = self.compares_rows(op, left, right, local);
        // What is equal counts as above already.
        let share = match op {
            Comparison::Greater | Comparison::GreaterOrEqual => first - equal * (1.0 - rest),
            _ => first + equal * rest,
        };
        share.clamp(0.0, 1.0)
    }

    /// Of all pairs of rows, the share that agrees in two columns.
    fn joins(&self, op: Comparison, a: ColumnId, b: ColumnId) -> f64 {
        let nulls = |id| self.statistics(id).map_or(0.0, |statistics| statistics.null_fraction);
        let equal = (1.0 - nulls(a)) * (1.0 - nulls(b)) / self.distinct(a).max(self.distinct(b)).max(1.0);
        match op {
            Comparison::Equal | Comparison::NotDistinct => equal,
            Comparison::NotEqual | Comparison::Distinct => 1.0 - equal,
            _ => UNEQUAL,
        }
    }

    /// The value of a constant expression, as far as it is known when the statement is planned.
    fn value(&self, scalar: &Scalar) -> Option<Value> {
        if let Some(value) = constant(scalar) {
            return (!value.is_null()).then(|| value.clone());
        }
        let expr = super::compile::compile_constant(scalar, &self.columns)?;
        self.estimator.constant(&expr).filter(|value| !value.is_null())
    }

    /// The share of a common value.
    fn common_share(&self, column: ColumnId, statistics: &ColumnStatistics, value: &Value) -> Option<f64> {
        let ty = self.columns.get(column).ty;
        statistics
            .common
            .iter()
            .find(|(text, _)| read(text, ty).as_ref() == Some(value))
            .map(|(_, share)| *share)
    }

    /// The share of rows below a value.
    fn below(&self, column: Option<ColumnId>, other: &Scalar) -> Option<f64> {
        let column = column?;
        let statistics = self.statistics(column)?;
        let ty = self.columns.get(column).ty;
        let value = self.value(other)?;
        let mut share = 0.0;
        let mut common = 0.0;
        for (text, part) in &statistics.common {
            common += part;
            if read(text, ty)? < value {
                share += part;
            }
        }
        let rest = (1.0 - common - statistics.null_fraction).max(0.0);
        let bounds = &statistics.histogram;
        if bounds.len() < 2 {
            return if statistics.common.is_empty() { None } else { Some(share + rest * UNEQUAL) };
        }
        // The first bound that is not below the value.
        let mut failed = false;
        let at = bounds.partition_point(|text| match read(text, ty) {
            Some(bound) => bound < value,
            None => {
                failed = true;
                false
            }
        });
        if failed {
            return None;
        }
        let parts = bounds.len() as f64 - 1.0;
        let position = if at == 0 {
            0.0
        } else if at == bounds.len() {
            parts
        } else {
            let (low, high) = (read(&bounds[at - 1], ty)?, read(&bounds[at], ty)?);
            at as f64 - 1.0 + within(&low, &high, &value)
        };
        // Never quite nothing, never quite all: the histogram is older than the data.
        let inside = (position / parts).clamp(0.0001, 0.9999);
        Some(share + rest * inside)
    }

    /// How many groups expressions make of `rows` rows.
    pub(super) fn groups<'s>(&self, exprs: impl Iterator<Item = &'s Scalar>, rows: f64) -> f64 {
        let mut count = 1.0;
        let mut seen = ColumnSet::new();
        for scalar in exprs {
            let columns = columns_of(scalar);
            if columns.is_empty() {
                continue;
            }
            if matches!(type_of(scalar, &self.columns), Type::Bool) && !matches!(scalar, Scalar::Column(_)) {
                count *= 2.0;
                continue;
            }
            for column in columns.iter().filter(|column| !seen.contains(*column)) {
                let distinct = self.distinct(column);
                // Of many values, few rows show few.
                let table = self.columns.get(column).origin.and_then(|(table, _)| self.rows_of(table));
                count *= match table {
                    Some(all) if rows < all && distinct > 1.0 => {
                        let each = all / distinct;
                        (distinct * (1.0 - (1.0 - rows / all).powf(each))).max(1.0)
                    }
                    _ => distinct,
                };
            }
            seen.add(&columns);
            if count > rows {
                break;
            }
        }
        count.clamp(1.0, rows.max(1.0))
    }

    /// Average bytes of a column's values.
    pub(super) fn column_width(&self, column: ColumnId) -> f64 {
        if let Some(statistics) = self.statistics(column)
            && statistics.width > 0.0
        {
            return statistics.width;
        }
        let info = self.columns.get(column);
        match info.ty.len() {
            length if length > 0 => f64::from(length),
            _ if info.modifier > 4 && info.ty != Type::Numeric => f64::from(info.modifier - 4).min(64.0),
            _ => 32.0,
        }
    }

    /// Average bytes of rows of these columns.
    pub(super) fn width<'c>(&self, columns: impl Iterator<Item = &'c ColumnId>) -> f64 {
        columns.filter(|id| self.used.contains(**id)).map(|id| self.column_width(*id)).sum()
    }

    /// Leaf pages of a tree.
    pub(super) fn tree_pages(&self, storage: &crate::catalog::Storage) -> f64 {
        let place = std::ptr::from_ref(storage).addr();
        let mut known = self.tree_sizes.borrow_mut();
        if let Some((_, pages)) = known.iter().find(|(other, _)| *other == place) {
            return *pages;
        }
        let pages = self.estimator.pages(storage).max(1.0);
        known.push((place, pages));
        pages
    }
}

fn read(text: &str, ty: Type) -> Option<Value> {
    thread_local! {
        static STYLE: TextStyle = TextStyle::default();
    }
    STYLE.with(|style| crate::types::text::read(text, ty, NO_MODIFIER, style).ok())
}

/// Where a value stands between two others, from 0 to 1.
fn within(low: &Value, high: &Value, value: &Value) -> f64 {
    let (low, high, value) = match (low, high, value) {
        (
            Value::Text(a) | Value::Padded(a),
            Value::Text(b) | Value::Padded(b),
            Value::Text(c) | Value::Padded(c),
        ) => {
            let common = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            (fraction(a.as_bytes(), common), fraction(b.as_bytes(), common), fraction(c.as_bytes(), common))
        }
        _ => match (number(low), number(high), number(value)) {
            (Some(a), Some(b), Some(c)) => (a, b, c),
            _ => return 0.5,
        },
    };
    if high > low { ((value - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) if value.is_finite() => Some(*value),
        Value::Numeric(_) => {
            let mut text = String::new();
            crate::types::text::write(value, Type::Numeric, &TextStyle::default(), &mut text);
            text.parse().ok().filter(|number: &f64| number.is_finite())
        }
        _ => None,
    }
}

/// A string from a place on, as a fraction.
fn fraction(bytes: &[u8], from: usize) -> f64 {
    let mut scale = 1.0;
    let mut sum = 0.0;
    for byte in bytes.iter().skip(from).take(6) {
        scale /= 256.0;
        sum += f64::from(*byte) * scale;
    }
    sum
}
