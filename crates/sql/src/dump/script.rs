//! Definitions as a script: what comes before the rows, the tables whose rows there are, and what comes behind them.
//!
//! # What it guarantees
//! 1. Each part is text that both PostgreSQL 15 and Gannet read, and stands behind everything that it needs.
//! 2. Keys, checks, indexes and references come behind the rows, so that these can be loaded without them.

use crate::bind::default_clause;
use crate::catalog::{Catalog, Column, Oid, Sequence, Table};
use crate::ddl::sequences_mentioned;
use crate::system::definition::{self, quote_identifier};
use crate::types::Type;
use crate::{Error, Result, SqlState, TableName};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;

/// A statement, and what it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The object's name.
    pub(super) name: String,
    /// Of a sequence, the table that it belongs to, if there is one.
    pub(super) owner: Option<String>,
    /// The tables that it is part of, or needed by; of a reference, both.
    pub(super) tables: Vec<String>,
    /// The statement, or several, with their semicolons.
    pub(super) sql: String,
}

/// A table whose rows are dumped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableRows {
    /// Its name.
    pub(super) name: String,
    /// Its columns' names, in order.
    pub(super) columns: Vec<String>,
    /// Bytes that it takes in the database, about.
    pub(super) bytes: u64,
    /// The other tables that it refers to.
    pub(super) refers_to: Vec<String>,
}

/// Everything that is defined, in the order in which it is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Script {
    /// Sequences and tables.
    pub(super) before: Vec<Part>,
    /// Tables, each behind those that it refers to, as far as there is no circle; else in the order of their names.
    pub(super) tables: Vec<TableRows>,
    /// Where sequences stand.
    pub(super) positions: Vec<Part>,
    /// Keys, checks, indexes, references, and defaults that need other tables.
    pub(super) after: Vec<Part>,
}

impl Script {
    /// Of the tables of these names only (all, where there are none), with what belongs to them. A reference to a table that is not among
    /// them is left out. Where definitions are not dumped (`defines`), a sequence that belongs to another table stays where it is: that table's rows
    /// are as they are, too.
    ///
    /// # Errors
    /// 42P01 for a name that no table has, 3F000 for another schema.
    pub(super) fn only(mut self, tables: &[TableName], defines: bool) -> Result<Script> {
        if tables.is_empty() {
            return Ok(self);
        }
        let tables: Vec<&str> = tables.iter().map(TableName::in_public).collect::<Result<_>>()?;
        if let Some(unknown) =
            tables.iter().find(|name| !self.tables.iter().any(|table| table.name == **name))
        {
            let message = format!("there is no table \"{unknown}\"");
            return Err(Error::new(SqlState::UNDEFINED_TABLE, message));
        }
        self.tables.retain(|table| tables.contains(&table.name.as_str()));
        for parts in [&mut self.before, &mut self.positions] {
            parts.retain(|part| part.tables.iter().any(|of| tables.contains(&of.as_str())));
        }
        if !defines {
            let is_there = |owner: &String| tables.contains(&owner.as_str());
            self.positions.retain(|part| part.owner.as_ref().is_none_or(is_there));
        }
        self.after.retain(|part| part.tables.iter().all(|of| tables.contains(&of.as_str())));
        Ok(self)
    }

    /// What is to be said where rows alone are dumped of tables that refer to each other in a circle: none of them can be loaded first,
    /// unless its rows refer to none. (That a table refers to itself is no matter: its rows come together.)
    pub(super) fn warning_for_rows_alone(&self) -> Option<String> {
        let by_name: HashMap<&str, &TableRows> =
            self.tables.iter().map(|table| (table.name.as_str(), table)).collect();
        let is_in_circle = |table: &&TableRows| {
            let mut seen = HashSet::new();
            let mut next = vec![*table];
            while let Some(of) = next.pop() {
                let parents = of.refers_to.iter().filter_map(|name| by_name.get(name.as_str()));
                next.extend(parents.filter(|parent| seen.insert(parent.name.as_str())));
            }
            seen.contains(table.name.as_str())
        };
        let names: Vec<_> =
            self.tables.iter().filter(is_in_circle).map(|table| quote_identifier(&table.name)).collect();
        if names.is_empty() {
            return None;
        }
        let text = format!(
            "tables refer to each other in a circle: {}. Their rows alone may not load into tables that have these references; a dump with \
             definitions loads, as references come behind the rows there",
            names.join(", ")
        );
        // It stands in a comment of one line.
        Some(text.replace(char::is_control, " "))
    }
}

impl TableRows {
    /// `COPY public.t (a, b) FROM stdin;`
    pub(super) fn copy_statement(&self) -> String {
        format!("COPY {} FROM stdin;", self.copy_target())
    }

    /// `public.t (a, b)`; `public.t` where there are no columns.
    fn copy_target(&self) -> String {
        let name = quote_identifier(&self.name);
        if self.columns.is_empty() {
            return format!("public.{name}");
        }
        let columns: Vec<_> = self.columns.iter().map(|name| quote_identifier(name)).collect();
        format!("public.{name} ({})", columns.join(", "))
    }
}

/// Makes the script. `bytes`: what a table takes in the database; `position`: where a sequence stands, and whether that value was given.
pub(super) fn script(
    catalog: &Catalog,
    bytes: &mut dyn FnMut(&Table) -> Result<u64>,
    position: &mut dyn FnMut(&Sequence) -> Result<(i64, bool)>,
) -> Result<Script> {
    let mut tables: Vec<&Table> = catalog.tables.values().map(|table| &**table).collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    let mut script = Script::default();
    let drawn_from = drawn_from(&tables)?;
    for sequence in catalog.sequences.values() {
        let owner = sequence.owned_by.and_then(|(oid, _)| catalog.tables.get(&oid));
        let owner = owner.map(|table| table.name.clone());
        let needed_by = needed_by(sequence, owner.as_deref(), &drawn_from);
        if !sequence.identity {
            script.before.push(create_sequence(sequence, owner.clone(), needed_by.clone()));
        }
        let (value, called) = position(sequence)?;
        let name = format!("public.{}", quote_identifier(&sequence.name));
        script.positions.push(Part {
            name: sequence.name.clone(),
            owner,
            tables: needed_by,
            sql: format!("SELECT pg_catalog.setval({}, {value}, {called});", literal(&name)),
        });
    }
    for table in &tables {
        script.before.push(create_table(catalog, table)?);
    }
    for table in in_order_of_references(&tables) {
        script.tables.push(TableRows {
            name: table.name.clone(),
            columns: table.columns.iter().map(|column| column.name.clone()).collect(),
            bytes: bytes(table)?,
            refers_to: others_referred_to(catalog, table),
        });
    }
    for table in &tables {
        late_defaults(catalog, table, &mut script.after)?;
        behind_rows(catalog, table, &mut script.after)?;
    }
    for table in &tables {
        for key in &table.foreign_keys {
            let parent = catalog.tables.get(&key.parent);
            let parent = parent.ok_or_else(|| Error::internal("a reference to a table that is not there"))?;
            let mut part = constraint(table, &key.name, &definition::foreign_key(catalog, table, key));
            part.tables.push(parent.name.clone());
            script.after.push(part);
        }
    }
    Ok(script)
}

/// The other tables that a table refers to.
fn others_referred_to(catalog: &Catalog, table: &Table) -> Vec<String> {
    let parents: BTreeSet<Oid> = table.foreign_keys.iter().map(|key| key.parent).collect();
    let others = parents.into_iter().filter(|parent| *parent != table.oid);
    others.filter_map(|parent| catalog.tables.get(&parent)).map(|parent| parent.name.clone()).collect()
}

/// The tables whose defaults or checks draw from a sequence, by its name.
fn drawn_from(tables: &[&Table]) -> Result<HashMap<String, BTreeSet<String>>> {
    let mut found: HashMap<String, BTreeSet<String>> = HashMap::new();
    for table in tables {
        for expression in expressions(table) {
            for sequence in sequences_mentioned(expression)? {
                found.entry(sequence).or_default().insert(table.name.clone());
            }
        }
    }
    Ok(found)
}

/// The table that a sequence belongs to, and those that draw from it; one of an identity column is made with that, and not for others.
fn needed_by(
    sequence: &Sequence,
    owner: Option<&str>,
    drawn_from: &HashMap<String, BTreeSet<String>>,
) -> Vec<String> {
    let drawn = drawn_from.get(&sequence.name).filter(|_| !sequence.identity);
    let mut names = drawn.cloned().unwrap_or_default();
    names.extend(owner.map(str::to_owned));
    names.into_iter().collect()
}

/// The expressions of a table that may draw from a sequence.
fn expressions(table: &Table) -> impl Iterator<Item = &str> {
    let defaults = table.columns.iter().filter_map(|column| column.default.as_deref());
    defaults.chain(table.checks.iter().map(|check| check.expression.as_str()))
}

fn create_sequence(sequence: &Sequence, owner: Option<String>, tables: Vec<String>) -> Part {
    let ty = if sequence.ty == Type::Int8 { String::new() } else { format!(" AS {}", sequence.ty.name()) };
    Part {
        name: sequence.name.clone(),
        owner,
        tables,
        sql: format!(
            "CREATE SEQUENCE public.{}{ty}{};",
            quote_identifier(&sequence.name),
            sequence_options(sequence)
        ),
    }
}

fn sequence_options(sequence: &Sequence) -> String {
    let cycle = if sequence.cycle { " CYCLE" } else { "" };
    format!(
        " INCREMENT BY {} MINVALUE {} MAXVALUE {} START WITH {} CACHE 1{cycle}",
        sequence.increment, sequence.minimum, sequence.maximum, sequence.start
    )
}

/// The table of an identity column whose sequence an expression draws from.
fn identity_of_another(catalog: &Catalog, expression: &str) -> Result<Option<Oid>> {
    let mentioned = sequences_mentioned(expression)?;
    let mut identities = catalog.sequences.values().filter(|sequence| sequence.identity);
    let found = identities.find(|sequence| mentioned.contains(&sequence.name));
    Ok(found.and_then(|sequence| sequence.owned_by).map(|(table, _)| table))
}

/// Defaults that draw from the sequences of other tables' identity columns, which are made with these.
fn late_defaults(catalog: &Catalog, table: &Table, out: &mut Vec<Part>) -> Result<()> {
    for column in &table.columns {
        let owned = owned_sequences(catalog, table.oid, column);
        let identity = owned.iter().any(|sequence| sequence.identity);
        let Some(default) = column.default.as_deref().filter(|_| !identity) else { continue };
        let Some(other) = identity_of_another(catalog, default)?.and_then(|oid| catalog.tables.get(&oid))
        else {
            continue;
        };
        let default = default_clause(default)?;
        out.push(Part {
            name: table.name.clone(),
            tables: vec![table.name.clone(), other.name.clone()],
            sql: format!(
                "ALTER TABLE ONLY public.{} ALTER COLUMN {} SET DEFAULT {default};",
                quote_identifier(&table.name),
                quote_identifier(&column.name)
            ),
            ..Part::default()
        });
    }
    Ok(())
}

fn create_table(catalog: &Catalog, table: &Table) -> Result<Part> {
    let name = quote_identifier(&table.name);
    let mut sql = format!("CREATE TABLE public.{name} (");
    let mut behind = String::new();
    for (place, column) in table.columns.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let column_name = quote_identifier(&column.name);
        let _ = write!(sql, "{comma}\n    {column_name} {}", type_name(column));
        let owned = owned_sequences(catalog, table.oid, column);
        match (&column.default, owned.iter().find(|sequence| sequence.identity)) {
            (_, Some(sequence)) => {
                let (sequence_name, options) = (quote_identifier(&sequence.name), sequence_options(sequence));
                // It is made with the column's type, which may not have its limits.
                let is_of_type = sequence.ty == column.ty;
                if !is_of_type {
                    let ty = sequence.ty.name();
                    let _ =
                        write!(behind, "\nALTER SEQUENCE public.{sequence_name} AS {ty}{options} RESTART;");
                }
                // With its name, which may be another one than it would be given here.
                let _ = write!(
                    sql,
                    " GENERATED BY DEFAULT AS IDENTITY (SEQUENCE NAME public.{sequence_name}{})",
                    if is_of_type { options.as_str() } else { "" },
                );
            }
            (Some(default), _) if identity_of_another(catalog, default)?.is_some() => {}
            (Some(default), _) => {
                let _ = write!(sql, " DEFAULT {}", default_clause(default)?);
            }
            (None, _) => {}
        }
        if column.not_null {
            sql.push_str(" NOT NULL");
        }
        for sequence in owned.iter().filter(|sequence| !sequence.identity) {
            let _ = write!(
                behind,
                "\nALTER SEQUENCE public.{} OWNED BY public.{name}.{column_name};",
                quote_identifier(&sequence.name)
            );
        }
    }
    sql.push_str(if table.columns.is_empty() { ");" } else { "\n);" });
    sql.push_str(&behind);
    Ok(Part { name: table.name.clone(), tables: vec![table.name.clone()], sql, ..Part::default() })
}

/// The sequences that belong to a column: that of an identity column, and those that were given to it.
fn owned_sequences<'c>(catalog: &'c Catalog, table: Oid, column: &Column) -> Vec<&'c Sequence> {
    let owner = Some((table, column.number));
    catalog
        .sequences
        .values()
        .map(|sequence| &**sequence)
        .filter(|sequence| sequence.owned_by == owner)
        .collect()
}

fn type_name(column: &Column) -> String {
    match (column.ty, column.modifier) {
        // `character` alone means a length of 1.
        (Type::Bpchar, ..0) => "bpchar".to_owned(),
        (ty, modifier) => ty.display(modifier),
    }
}

/// A table's own constraints and indexes. A check that draws from another table's identity column is one of both.
fn behind_rows(catalog: &Catalog, table: &Table, out: &mut Vec<Part>) -> Result<()> {
    let mut indexes: Vec<_> = table.indexes.iter().collect();
    indexes.sort_by_key(|index| (!index.primary, index.constraint.is_none(), index.oid));
    for index in indexes {
        if index.constraint.is_some() || index.primary {
            out.push(constraint(table, &index.name, &definition::key(table, index)));
        } else {
            out.push(Part {
                name: index.name.clone(),
                tables: vec![table.name.clone()],
                sql: format!("{};", definition::index(table, index, false)),
                ..Part::default()
            });
        }
    }
    for check in &table.checks {
        let mut part = constraint(table, &check.name, &definition::check(check, true));
        let other = identity_of_another(catalog, &check.expression)?.and_then(|oid| catalog.tables.get(&oid));
        part.tables.extend(other.map(|other| other.name.clone()));
        out.push(part);
    }
    Ok(())
}

fn constraint(table: &Table, name: &str, text: &str) -> Part {
    Part {
        name: name.to_owned(),
        tables: vec![table.name.clone()],
        sql: format!(
            "ALTER TABLE ONLY public.{} ADD CONSTRAINT {} {text};",
            quote_identifier(&table.name),
            quote_identifier(name)
        ),
        ..Part::default()
    }
}

/// Each table behind those that it refers to, so that rows alone can be loaded where the tables are; of those that may come next the first by its name. In a
/// circle somebody has to be first: who is so by his name.
fn in_order_of_references<'t>(tables: &[&'t Table]) -> Vec<&'t Table> {
    let place: HashMap<Oid, usize> =
        tables.iter().enumerate().map(|(place, table)| (table.oid, place)).collect();
    let mut waits_for = vec![0; tables.len()];
    let mut referred_by = vec![Vec::new(); tables.len()];
    for (child, table) in tables.iter().enumerate() {
        for parent in table.foreign_keys.iter().filter_map(|key| place.get(&key.parent)) {
            if *parent != child {
                waits_for[child] += 1;
                referred_by[*parent].push(child);
            }
        }
    }
    let mut left: BTreeSet<usize> = (0..tables.len()).collect();
    let mut next: BTreeSet<usize> = left.iter().copied().filter(|&place| waits_for[place] == 0).collect();
    let mut ordered = Vec::with_capacity(tables.len());
    while let Some(place) = next.pop_first().or_else(|| left.first().copied()) {
        if !left.remove(&place) {
            continue;
        }
        ordered.push(tables[place]);
        for &child in &referred_by[place] {
            waits_for[child] -= 1;
            if waits_for[child] == 0 {
                next.insert(child);
            }
        }
    }
    ordered
}

/// A string as SQL writes it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
