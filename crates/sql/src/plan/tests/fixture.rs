//! Tables, statistics, and short ways to write logical trees.

use crate::Result;
use crate::bind::utility::{ExplainFormat, ExplainOptions};
use crate::bind::{Bound, Scope, bind, parse};
use crate::catalog::{
    Catalog, Column, ColumnStatistics, Index, IndexColumn, Layout, Relation, Storage, Table, TableKey,
    TableStatistics,
};
use crate::functions::{Resolved, resolve_function, resolve_operator};
use crate::logical::{
    AggregateCall, ColumnId, ColumnInfo, Columns, Comparison, JoinKind, Output, Planned, Query, Rel, Scalar,
    SortKey,
};
use crate::physical::Statement;
use crate::plan::{Estimator, plan};
use crate::session::PlannerSettings;
use crate::types::text::TextStyle;
use crate::types::{NO_MODIFIER, Type, Value};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

/// Sizes of tables, by number.
#[derive(Default)]
pub(super) struct Sizes(HashMap<String, (f64, f64)>);

impl Estimator for Sizes {
    fn rows(&self, table: &Table) -> f64 {
        self.0.get(&table.storage.name).map_or(1000.0, |(rows, _)| *rows)
    }

    fn pages(&self, storage: &Storage) -> f64 {
        self.0.get(&storage.name).map_or(10.0, |(_, pages)| *pages)
    }
}

/// A database without data.
pub(super) struct Fixture {
    pub(super) catalog: Catalog,
    pub(super) sizes: Sizes,
    pub(super) settings: PlannerSettings,
    columns: Columns,
}

/// A table in a query.
pub(super) struct Source {
    pub(super) rel: Rel,
    ids: Vec<(String, ColumnId)>,
}

impl Source {
    pub(super) fn col(&self, name: &str) -> Scalar {
        Scalar::Column(self.id(name))
    }

    pub(super) fn id(&self, name: &str) -> ColumnId {
        self.ids.iter().find(|(own, _)| own == name).map(|(_, id)| *id).expect("a column of the table")
    }

    pub(super) fn ids(&self) -> Vec<ColumnId> {
        self.ids.iter().map(|(_, id)| *id).collect()
    }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Fixture {
            catalog: Catalog::default(),
            sizes: Sizes::default(),
            settings: PlannerSettings::new(1 << 30, 16 << 20),
            columns: Columns::default(),
        }
    }

    /// Defines a table: columns as `name type` (`!` behind for NOT NULL), the primary key, indexes as `name: columns` (`unique` in front).
    pub(super) fn table(&mut self, name: &str, columns: &str, key: &str, indexes: &[&str], rows: f64) {
        let oid = 16384 + self.catalog.tables.len() as u32 * 100;
        let mut definitions = Vec::new();
        for (position, text) in columns.split(", ").enumerate() {
            let (text, not_null) = match text.strip_suffix('!') {
                Some(text) => (text, true),
                None => (text, false),
            };
            let (name, ty) = text.split_once(' ').expect("a name and a type");
            definitions.push(Column {
                number: position as u16 + 1,
                name: name.to_owned(),
                ty: Type::from_internal_name(ty).expect("a type"),
                modifier: NO_MODIFIER,
                not_null,
                default: None,
                missing: None,
            });
        }
        let number = |name: &str| {
            definitions
                .iter()
                .find(|column| column.name == name)
                .map(|column| column.number)
                .expect("a column")
        };
        let part = |text: &str| {
            let (name, descending) = match text.strip_suffix(" desc") {
                Some(name) => (name, true),
                None => (text, false),
            };
            IndexColumn { column: number(name), descending, nulls_first: descending }
        };
        let mut list = Vec::new();
        let mut table_key = TableKey::RowId;
        if !key.is_empty() {
            let parts: Vec<IndexColumn> = key.split(", ").map(part).collect();
            table_key = TableKey::Columns(parts.iter().map(|part| part.column).collect());
            list.push(index(oid + 1, &format!("{name}_pkey"), parts, true, true));
        }
        for (position, text) in indexes.iter().enumerate() {
            let (text, unique) = match text.strip_prefix("unique ") {
                Some(text) => (text, true),
                None => (*text, false),
            };
            let (index_name, columns) = text.split_once(": ").expect("a name and columns");
            let parts = columns.split(", ").map(part).collect();
            list.push(index(oid + 2 + position as u32, index_name, parts, unique, false));
            self.sizes.0.insert(index_name.to_owned(), (rows, (rows / 300.0).ceil()));
        }
        self.sizes.0.insert(name.to_owned(), (rows, (rows / 80.0).ceil()));
        let layouts = vec![Layout(definitions.iter().map(|column| column.number).collect())];
        let next_column = definitions.len() as u16 + 1;
        let table = Table {
            oid,
            name: name.to_owned(),
            columns: definitions,
            storage: Storage::new(name.to_owned()),
            key: table_key,
            layouts,
            indexes: list,
            checks: Vec::new(),
            foreign_keys: Vec::new(),
            referenced_by: Vec::new(),
            owner: 10,
            next_column,
            revision: 0,
            codec: Default::default(),
        };
        self.catalog.names.insert(name.to_owned(), Relation::Table(oid));
        self.catalog.tables.insert(oid, Arc::new(table));
    }

    /// Statistics of a column.
    pub(super) fn statistics(&mut self, table: &str, column: &str, statistics: ColumnStatistics) {
        let table = self.catalog.table(table).expect("a table").clone();
        let number = table.columns[table.find_column(column).expect("a column")].number;
        let all = self.catalog.statistics.entry(table.oid).or_default();
        let mut changed = TableStatistics::clone(all);
        changed.columns.insert(number, statistics);
        *all = Arc::new(changed);
    }

    /// A table as part of a query.
    pub(super) fn from(&mut self, name: &str, alias: &str) -> Source {
        let table = self.catalog.table(name).expect("a table").clone();
        let mut ids = Vec::new();
        for column in &table.columns {
            let id = self.columns.add(ColumnInfo {
                name: column.name.clone(),
                ty: column.ty,
                modifier: column.modifier,
                origin: Some((table.oid, column.number)),
                nullable: !column.not_null,
            });
            ids.push((column.name.clone(), id));
        }
        let columns = ids.iter().map(|(_, id)| *id).collect();
        Source { rel: Rel::Table { table, alias: alias.to_owned(), columns }, ids }
    }

    /// A computed column.
    pub(super) fn new_column(&mut self, name: &str, ty: Type) -> ColumnId {
        self.columns.add(ColumnInfo {
            name: name.to_owned(),
            ty,
            modifier: NO_MODIFIER,
            origin: None,
            nullable: true,
        })
    }

    pub(super) fn plan(&self, planned: Planned) -> Statement {
        let bound = Bound { planned, columns: self.columns.clone(), parameters: Vec::new() };
        plan(bound, &Arc::new(self.catalog.clone()), &self.settings, &self.sizes).expect("a plan")
    }

    /// The plan of a query, as text without costs.
    pub(super) fn explain(&self, rel: Rel, output: &[ColumnId]) -> String {
        let output = output.iter().map(|column| Output { column: *column, name: String::new() }).collect();
        self.explain_planned(Planned::Query(Query { rel, output }))
    }

    pub(super) fn explain_planned(&self, planned: Planned) -> String {
        let options = ExplainOptions { costs: false, ..ExplainOptions::default() };
        super::super::explain::explain(&self.plan(planned), &options, None)
    }
}

fn index(oid: u32, name: &str, columns: Vec<IndexColumn>, unique: bool, primary: bool) -> Index {
    Index {
        oid,
        name: name.to_owned(),
        columns,
        unique,
        primary,
        constraint: None,
        storage: Storage::new(name.to_owned()),
    }
}

pub(super) fn int(value: i64) -> Scalar {
    Scalar::Literal { value: Value::Int(value), ty: Type::Int4 }
}

pub(super) fn text(value: &str) -> Scalar {
    Scalar::Literal { value: Value::text(value), ty: Type::Text }
}

pub(super) fn parameter(number: usize, ty: Type) -> Scalar {
    Scalar::Parameter { index: number - 1, ty }
}

pub(super) fn compare(op: Comparison, left: Scalar, right: Scalar) -> Scalar {
    Scalar::Compare { op, left: Box::new(left), right: Box::new(right) }
}

pub(super) fn eq(left: Scalar, right: Scalar) -> Scalar {
    compare(Comparison::Equal, left, right)
}

pub(super) fn and(list: Vec<Scalar>) -> Scalar {
    Scalar::And(list)
}

pub(super) fn filter(input: Rel, predicate: Scalar) -> Rel {
    Rel::Filter { input: Box::new(input), predicate }
}

pub(super) fn join(kind: JoinKind, left: Rel, right: Rel, on: Option<Scalar>) -> Rel {
    Rel::Join { kind, left: Box::new(left), right: Box::new(right), on, lateral: false }
}

pub(super) fn sort(input: Rel, keys: &[(Scalar, bool)]) -> Rel {
    let keys = keys
        .iter()
        .map(|(scalar, descending)| SortKey {
            scalar: scalar.clone(),
            descending: *descending,
            nulls_first: *descending,
        })
        .collect();
    Rel::Sort { input: Box::new(input), keys }
}

pub(super) fn limit(input: Rel, rows: i64) -> Rel {
    let limit = Some(Scalar::Literal { value: Value::Int(rows), ty: Type::Int8 });
    Rel::Limit { input: Box::new(input), limit, offset: None }
}

pub(super) fn aggregate(name: &str, arguments: Vec<Scalar>, types: &[Type]) -> AggregateCall {
    let resolution = resolve_function(name, types).expect("an aggregate");
    let Resolved::Aggregate(aggregate) = resolution.target else { panic!("{name} is no aggregate") };
    AggregateCall {
        aggregate,
        arguments,
        distinct: false,
        filter: None,
        order: Vec::new(),
        ty: resolution.returns,
    }
}

pub(super) fn operator(symbol: &str, left: Scalar, right: Scalar, ty: Type) -> Scalar {
    let resolution = resolve_operator(symbol, Some(ty), ty).expect("an operator");
    let Resolved::Function(function) = resolution.target else { panic!("{symbol} is no function") };
    Scalar::Call { function, arguments: vec![left, right], ty: resolution.returns }
}

impl Fixture {
    /// The plan of a statement, as text without costs.
    pub(super) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The plan of a statement as JSON.
    pub(super) fn json(&self, sql: &str) -> String {
        let options = ExplainOptions { format: ExplainFormat::Json, ..ExplainOptions::default() };
        self.explained(sql, &options).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(super) fn try_sql(&self, sql: &str) -> Result<String> {
        self.explained(sql, &ExplainOptions { costs: false, ..ExplainOptions::default() })
    }

    fn explained(&self, sql: &str, options: &ExplainOptions) -> Result<String> {
        let statement = self.planned_by(sql, &self.sizes)?;
        Ok(super::super::explain::explain(&statement, options, None))
    }

    /// The plan of a statement by what an estimator says.
    pub(super) fn planned_by(&self, sql: &str, estimator: &dyn Estimator) -> Result<Statement> {
        let catalog = Arc::new(self.catalog.clone());
        let style = TextStyle::default();
        let scope = Scope {
            catalog: &catalog,
            style: &style,
            database: "test",
            user: "test",
            of_the_moment: Cell::default(),
        };
        let bound = bind(&scope, &parse(sql)?[0], &[])?;
        plan(bound, &catalog, &self.settings, estimator)
    }
}
