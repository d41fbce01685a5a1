//! Logical statements as text, one relation a line: for golden tests, and for whoever wants to see what the binder made.
//! A column is its name and number, `a#3`.

use super::{
    AggregateCall, ColumnId, Columns, Comparison, InsertValue, JoinKind, LockStrength, LockWait, Output,
    Planned, Query, Recheck, RecheckStep, Rel, Scalar, SetOperation, SortKey, Subquery, SubqueryKind,
};
use crate::types::text::{TextStyle, write};
use crate::types::{NO_MODIFIER, Value};
use std::fmt::Write;

/// A statement as text.
pub fn print(planned: &Planned, columns: &Columns) -> String {
    let mut printer = Printer { columns, out: String::new(), depth: 0 };
    printer.planned(planned);
    printer.out
}

/// An expression as text.
pub fn print_scalar(scalar: &Scalar, columns: &Columns) -> String {
    let mut printer = Printer { columns, out: String::new(), depth: 0 };
    printer.scalar(scalar);
    printer.out
}

struct Printer<'c> {
    columns: &'c Columns,
    out: String,
    depth: usize,
}

impl Printer<'_> {
    fn line(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        for _ in 0..self.depth {
            self.out.push_str("  ");
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn column(&mut self, id: ColumnId) {
        let name = self.columns.0.get(id.0 as usize).map_or("?", |info| info.name.as_str());
        let _ = write!(self.out, "{name}#{}", id.0);
    }

    fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        for (index, one) in items.iter().enumerate() {
            if index > 0 {
                self.text(", ");
            }
            item(self, one);
        }
    }

    fn planned(&mut self, planned: &Planned) {
        match planned {
            Planned::Query(query) => self.query(query),
            Planned::Insert(insert) => {
                self.line();
                let _ = write!(self.out, "Insert {} row [", insert.table.name);
                self.list(&insert.row, |this, id| this.column(*id));
                self.text("] values [");
                self.list(&insert.values, |this, value| match value {
                    InsertValue::Source(id) => this.column(*id),
                    InsertValue::Default(scalar) => {
                        this.text("default ");
                        this.scalar(scalar);
                    }
                });
                self.text("]");
                self.checks(&insert.checks);
                self.returning(insert.returning.as_deref());
                self.below(|this| this.rel(&insert.source.rel));
            }
            Planned::Update(update) => {
                self.line();
                let _ = write!(self.out, "Update {} row [", update.table.name);
                self.list(&update.row, |this, id| this.column(*id));
                self.text("] set [");
                self.list(&update.assignments, |this, (positions, scalar)| {
                    this.list(positions, |this, index| this.text(&update.table.columns[*index].name));
                    this.text(" = ");
                    this.scalar(scalar);
                });
                self.text("]");
                self.checks(&update.checks);
                self.returning(update.returning.as_deref());
                self.recheck(update.recheck.as_ref());
                self.below(|this| this.rel(&update.source));
            }
            Planned::Delete(delete) => {
                self.line();
                let _ = write!(self.out, "Delete {}", delete.table.name);
                self.returning(delete.returning.as_deref());
                self.recheck(delete.recheck.as_ref());
                self.below(|this| this.rel(&delete.source));
            }
        }
    }

    fn checks(&mut self, checks: &[(String, Scalar)]) {
        for (name, scalar) in checks {
            let _ = write!(self.out, " check {name} ");
            self.scalar(scalar);
        }
    }

    fn returning(&mut self, returning: Option<&[(Output, Scalar)]>) {
        if let Some(list) = returning {
            self.text(" returning [");
            self.list(list, |this, (output, scalar)| {
                let _ = write!(this.out, "{} = ", output.name);
                this.scalar(scalar);
            });
            self.text("]");
        }
    }

    fn recheck(&mut self, recheck: Option<&Scalar>) {
        if let Some(scalar) = recheck {
            self.text(" recheck ");
            self.scalar(scalar);
        }
    }

    fn steps(&mut self, recheck: &Recheck) {
        if !recheck.fixed.is_empty() {
            self.text(" fixed ");
            self.list(&recheck.fixed, |this, scalar| this.scalar(scalar));
        }
        for step in &recheck.steps {
            match step {
                RecheckStep::Holds(scalar) => self.recheck(Some(scalar)),
                RecheckStep::Joins { on, columns } => {
                    self.text(" optional [");
                    self.list(columns, |this, id| this.column(*id));
                    self.text("] on ");
                    self.scalar(on);
                }
            }
        }
    }

    fn below(&mut self, body: impl FnOnce(&mut Self)) {
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    fn query(&mut self, query: &Query) {
        self.line();
        self.text("Output ");
        self.list(&query.output, |this, output| {
            let info = this.columns.get(output.column);
            let _ =
                write!(this.out, "{}#{} {}", output.name, output.column.0, info.ty.display(info.modifier));
        });
        self.below(|this| this.rel(&query.rel));
    }

    fn rel(&mut self, rel: &Rel) {
        self.line();
        match rel {
            Rel::Table { table, alias, columns } => {
                let _ = write!(self.out, "Table {}", table.name);
                self.relation(&table.name, alias, columns);
            }
            Rel::System { table, alias, columns } => {
                let _ = write!(self.out, "System {}.{}", table.schema, table.name);
                self.relation(table.name, alias, columns);
            }
            Rel::Values { columns, rows } => {
                self.text("Values [");
                self.list(columns, |this, id| this.column(*id));
                self.text("]");
                for row in rows {
                    self.text(" (");
                    self.list(row, |this, scalar| this.scalar(scalar));
                    self.text(")");
                }
            }
            Rel::Function { function, arguments, columns, ordinality, listed } => {
                let listed = if *listed { "Listed function" } else { "Function" };
                let _ = write!(self.out, "{listed} {}(", function.name);
                self.list(arguments, |this, scalar| this.scalar(scalar));
                self.text(") [");
                self.list(columns, |this, id| this.column(*id));
                self.text("]");
                if let Some(id) = ordinality {
                    self.text(" ordinality ");
                    self.column(*id);
                }
            }
            Rel::Common { common, alias, columns } => {
                let _ = write!(self.out, "Common {}", common.name);
                self.relation(&common.name, alias, columns);
                self.below(|this| this.rel(&common.query.rel));
            }
            other => self.node(other),
        }
    }

    fn relation(&mut self, name: &str, alias: &str, columns: &[ColumnId]) {
        if name != alias {
            let _ = write!(self.out, " {alias}");
        }
        match columns {
            [] => {}
            [first, .., last] => {
                let _ = write!(self.out, " #{}..#{}", first.0, last.0);
            }
            [only] => {
                let _ = write!(self.out, " #{}", only.0);
            }
        }
    }

    /// Relations with an input.
    fn node(&mut self, rel: &Rel) {
        match rel {
            Rel::Table { .. }
            | Rel::System { .. }
            | Rel::Values { .. }
            | Rel::Function { .. }
            | Rel::Common { .. } => {}
            Rel::Join { kind, left, right, on, lateral } => {
                self.text(match kind {
                    JoinKind::Inner => "Join",
                    JoinKind::Left => "Left join",
                    JoinKind::Full => "Full join",
                    JoinKind::Semi => "Semi join",
                    JoinKind::Anti => "Anti join",
                });
                if *lateral {
                    self.text(" lateral");
                }
                if let Some(on) = on {
                    self.text(" on ");
                    self.scalar(on);
                }
                self.below(|this| {
                    this.rel(left);
                    this.rel(right);
                });
            }
            Rel::Filter { input, predicate } => {
                self.text("Filter ");
                self.scalar(predicate);
                self.below(|this| this.rel(input));
            }
            Rel::Project { input, columns } => {
                self.text("Project ");
                self.list(columns, |this, (id, scalar)| this.definition(*id, scalar));
                self.below(|this| this.rel(input));
            }
            Rel::Aggregate { input, groups, aggregates } => {
                self.text("Aggregate by [");
                self.list(groups, |this, (id, scalar)| this.definition(*id, scalar));
                self.text("] ");
                self.list(aggregates, |this, (id, call)| {
                    this.column(*id);
                    this.text(" = ");
                    this.aggregate(call);
                });
                self.below(|this| this.rel(input));
            }
            Rel::Distinct { input, on } => {
                self.text("Distinct");
                if let Some(on) = on {
                    self.text(" on ");
                    self.list(on, |this, scalar| this.scalar(scalar));
                }
                self.below(|this| this.rel(input));
            }
            Rel::Sort { input, keys } => {
                self.text("Sort ");
                self.keys(keys);
                self.below(|this| this.rel(input));
            }
            Rel::Limit { input, limit, offset } => {
                self.text("Limit");
                for (what, scalar) in [(" ", limit), (" offset ", offset)] {
                    if let Some(scalar) = scalar {
                        self.text(what);
                        self.scalar(scalar);
                    }
                }
                self.below(|this| this.rel(input));
            }
            Rel::Set { .. } | Rel::Lock { .. } => self.set_or_lock(rel),
        }
    }

    fn set_or_lock(&mut self, rel: &Rel) {
        match rel {
            Rel::Set { operation, all, left, right, columns } => {
                self.text(match operation {
                    SetOperation::Union => "Union",
                    SetOperation::Except => "Except",
                    SetOperation::Intersect => "Intersect",
                });
                if *all {
                    self.text(" all");
                }
                self.text(" [");
                self.list(columns, |this, id| this.column(*id));
                self.text("]");
                for (rel, columns) in [left, right] {
                    self.below(|this| {
                        this.line();
                        this.text("of [");
                        this.list(columns, |this, id| this.column(*id));
                        this.text("]");
                        this.below(|this| this.rel(rel));
                    });
                }
            }
            Rel::Lock { input, tables, recheck } => {
                self.text("Lock ");
                self.list(tables, |this, (id, strength, wait)| {
                    this.column(*id);
                    this.text(match strength {
                        LockStrength::KeyShare => " key share",
                        LockStrength::Share => " share",
                        LockStrength::Update => " update",
                    });
                    this.text(match wait {
                        LockWait::Block => "",
                        LockWait::NoWait => " nowait",
                        LockWait::SkipLocked => " skip locked",
                    });
                });
                self.steps(recheck);
                self.below(|this| this.rel(input));
            }
            _ => {}
        }
    }

    fn definition(&mut self, id: ColumnId, scalar: &Scalar) {
        self.column(id);
        if !matches!(scalar, Scalar::Column(same) if *same == id) {
            self.text(" = ");
            self.scalar(scalar);
        }
    }

    fn keys(&mut self, keys: &[SortKey]) {
        self.list(keys, |this, key| {
            this.scalar(&key.scalar);
            this.text(match (key.descending, key.nulls_first) {
                (false, false) => "",
                (false, true) => " nulls first",
                (true, true) => " desc",
                (true, false) => " desc nulls last",
            });
        });
    }

    fn aggregate(&mut self, call: &AggregateCall) {
        let _ = write!(self.out, "{}({}", call.aggregate.name, if call.distinct { "distinct " } else { "" });
        self.list(&call.arguments, |this, scalar| this.scalar(scalar));
        if !call.order.is_empty() {
            self.text(" order by ");
            self.keys(&call.order);
        }
        self.text(")");
        if let Some(filter) = &call.filter {
            self.text(" filter ");
            self.scalar(filter);
        }
    }

    fn scalar(&mut self, scalar: &Scalar) {
        match scalar {
            Scalar::Literal { value, ty } => self.literal(value, *ty),
            Scalar::Column(id) => self.column(*id),
            Scalar::Parameter { index, ty } => {
                let _ = write!(self.out, "${}::{}", index + 1, ty.name());
            }
            Scalar::Call { function, arguments, .. } => self.call(function.name, arguments),
            Scalar::Cast { argument, ty, modifier, explicit } => {
                self.scalar(argument);
                let sign = if *explicit { "::" } else { ":" };
                let _ = write!(self.out, "{sign}{}", ty.display(*modifier));
            }
            Scalar::And(terms) => self.chain(terms, " and "),
            Scalar::Or(terms) => self.chain(terms, " or "),
            Scalar::Not(argument) => self.call("not", std::slice::from_ref(argument)),
            Scalar::Compare { op, left, right } => {
                self.text("(");
                self.scalar(left);
                self.text(symbol(*op));
                self.scalar(right);
                self.text(")");
            }
            Scalar::CompareRows { op, left, right } => {
                self.call("", left);
                self.text(symbol(*op));
                self.call("", right);
            }
            Scalar::IsNull(argument) => {
                self.scalar(argument);
                self.text(" is null");
            }
            Scalar::IsBool { argument, value } => {
                self.scalar(argument);
                self.text(if *value { " is true" } else { " is false" });
            }
            other => self.construct(other),
        }
    }

    fn construct(&mut self, scalar: &Scalar) {
        match scalar {
            Scalar::Case { branches, otherwise, .. } => {
                self.text("case");
                for (condition, value) in branches {
                    self.text(" when ");
                    self.scalar(condition);
                    self.text(" then ");
                    self.scalar(value);
                }
                self.text(" else ");
                self.scalar(otherwise);
                self.text(" end");
            }
            Scalar::Hold { value, body } => {
                self.text("hold ");
                self.scalar(value);
                self.text(" in ");
                self.scalar(body);
            }
            Scalar::Held { .. } => self.text("held"),
            Scalar::Coalesce { arguments, .. } => self.call("coalesce", arguments),
            Scalar::Extreme { arguments, greatest, .. } => {
                self.call(if *greatest { "greatest" } else { "least" }, arguments);
            }
            Scalar::InList { argument, list } => {
                self.scalar(argument);
                self.call(" in ", list);
            }
            Scalar::Quantified { argument, op, array, all } => {
                self.scalar(argument);
                self.text(symbol(*op));
                self.text(if *all { "all " } else { "any " });
                self.scalar(array);
            }
            Scalar::Array { elements, .. } => {
                self.text("array[");
                self.list(elements, |this, scalar| this.scalar(scalar));
                self.text("]");
            }
            Scalar::Subscript { array, index, .. } => {
                self.scalar(array);
                self.text("[");
                self.scalar(index);
                self.text("]");
            }
            Scalar::Row(parts) => self.call("row", parts),
            Scalar::Subquery(subquery) => self.subquery(subquery),
            _ => {}
        }
    }

    fn subquery(&mut self, subquery: &Subquery) {
        match &subquery.kind {
            SubqueryKind::Scalar => self.text("scalar {"),
            SubqueryKind::Exists => self.text("exists {"),
            SubqueryKind::Array(_) => self.text("array {"),
            SubqueryKind::Quantified { arguments, op, all } => {
                self.call("", arguments);
                self.text(symbol(*op));
                self.text(if *all { "all {" } else { "any {" });
            }
        }
        self.depth += 2;
        self.query(&subquery.query);
        self.depth -= 2;
        self.text(" }");
    }

    fn call<T: std::borrow::Borrow<Scalar>>(&mut self, name: &str, arguments: &[T]) {
        let _ = write!(self.out, "{name}(");
        self.list(arguments, |this, scalar| this.scalar(scalar.borrow()));
        self.text(")");
    }

    fn chain(&mut self, terms: &[Scalar], separator: &str) {
        self.text("(");
        for (index, term) in terms.iter().enumerate() {
            if index > 0 {
                self.text(separator);
            }
            self.scalar(term);
        }
        self.text(")");
    }

    fn literal(&mut self, value: &Value, ty: crate::Type) {
        if value.is_null() {
            let _ = write!(self.out, "null::{}", ty.name());
            return;
        }
        let mut text = String::new();
        write(value, ty, &TextStyle::default(), &mut text);
        if ty.is_integer() || ty == crate::Type::Bool {
            self.text(&text);
            if ty != crate::Type::Int4 && ty != crate::Type::Bool {
                let _ = write!(self.out, "::{}", ty.name());
            }
        } else {
            let _ = write!(self.out, "'{text}'::{}", ty.display(NO_MODIFIER));
        }
    }
}

fn symbol(op: Comparison) -> &'static str {
    match op {
        Comparison::Equal => " = ",
        Comparison::NotEqual => " <> ",
        Comparison::Less => " < ",
        Comparison::LessOrEqual => " <= ",
        Comparison::Greater => " > ",
        Comparison::GreaterOrEqual => " >= ",
        Comparison::Distinct => " is distinct from ",
        Comparison::NotDistinct => " is not distinct from ",
    }
}
