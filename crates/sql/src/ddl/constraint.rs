//! Constraints: from syntax to the table's definition, for a new table and for one that has rows.

use super::{DdlContext, build, names, no_relation, not_a, relation_exists, validate};
use crate::bind::{columns_mentioned, identifier};
use crate::catalog::{
    Check, Column, ColumnNumber, ForeignKey, Index, IndexColumn, Oid, ReferentialAction, Relation, Table,
    TableKey,
};
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast;
use std::sync::Arc;

/// Columns of an index or key, at most.
pub(super) const MOST_COLUMNS: usize = 32;

/// A constraint as it was written.
#[derive(Clone, Debug)]
pub(super) enum Spec {
    /// UNIQUE or PRIMARY KEY
    Key { name: Option<String>, columns: Vec<String>, primary: bool },
    /// CHECK
    Check { name: Option<String>, expression: String },
    /// FOREIGN KEY
    Foreign {
        name: Option<String>,
        columns: Vec<String>,
        parent: ast::ObjectName,
        parent_columns: Vec<String>,
        on_delete: ReferentialAction,
        on_update: ReferentialAction,
    },
}

impl Spec {
    /// Constraints of a new table are made in this order, as PostgreSQL does: names depend on it.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Spec::Key { primary: true, .. } => 0,
            Spec::Key { .. } => 1,
            Spec::Check { .. } => 2,
            Spec::Foreign { .. } => 3,
        }
    }

    pub(super) fn of_table(constraint: &ast::TableConstraint) -> Result<Self> {
        match constraint {
            ast::TableConstraint::PrimaryKey(key) => primary(key, None),
            ast::TableConstraint::Unique(key) => unique(key, None),
            ast::TableConstraint::Check(check) => Spec::check(check, None),
            ast::TableConstraint::ForeignKey(key) => Spec::foreign(key, None),
            ast::TableConstraint::PrimaryKeyUsingIndex(_) => {
                Err(Error::unsupported("PRIMARY KEY USING INDEX"))
            }
            ast::TableConstraint::UniqueUsingIndex(_) => Err(Error::unsupported("UNIQUE USING INDEX")),
            ast::TableConstraint::Exclude(_) => Err(Error::unsupported("EXCLUDE")),
            ast::TableConstraint::Index(_) => Err(Error::unsupported("INDEX within CREATE TABLE")),
            ast::TableConstraint::FulltextOrSpatial(_) => {
                Err(Error::unsupported("FULLTEXT or SPATIAL within CREATE TABLE"))
            }
        }
    }

    /// Of a column's definition: `column` is its name, `name` that of the constraint.
    pub(super) fn of_primary(
        key: &ast::PrimaryKeyConstraint,
        column: &str,
        name: Option<&ast::Ident>,
    ) -> Result<Self> {
        primary(key, Some((column, name)))
    }

    pub(super) fn of_unique(
        key: &ast::UniqueConstraint,
        column: &str,
        name: Option<&ast::Ident>,
    ) -> Result<Self> {
        unique(key, Some((column, name)))
    }

    pub(super) fn check(check: &ast::CheckConstraint, outer: Option<&ast::Ident>) -> Result<Self> {
        let ast::CheckConstraint { name, expr, no_inherit: _, enforced } = check;
        if *enforced == Some(false) {
            return Err(Error::unsupported("NOT ENFORCED"));
        }
        let name = name.as_ref().or(outer).map(identifier).transpose()?;
        Ok(Spec::Check { name, expression: expr.to_string() })
    }

    /// `column`: of a column's definition, its name and the constraint's.
    pub(super) fn foreign(
        key: &ast::ForeignKeyConstraint,
        column: Option<(&str, Option<&ast::Ident>)>,
    ) -> Result<Self> {
        let ast::ForeignKeyConstraint {
            name,
            index_name,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            match_kind,
            characteristics,
        } = key;
        if index_name.is_some() {
            return Err(Error::unsupported("an index name within FOREIGN KEY"));
        }
        check_characteristics(characteristics.as_ref())?;
        let outer = column.and_then(|(_, name)| name);
        let columns = match column {
            Some((column, _)) => vec![column.to_owned()],
            None => identifiers(columns)?,
        };
        match match_kind {
            None | Some(ast::ConstraintReferenceMatchKind::Simple) => {}
            // The same for a single column.
            Some(ast::ConstraintReferenceMatchKind::Full) if columns.len() == 1 => {}
            Some(kind) => return Err(Error::unsupported(kind)),
        }
        Ok(Spec::Foreign {
            name: name.as_ref().or(outer).map(identifier).transpose()?,
            columns,
            parent: foreign_table.clone(),
            parent_columns: identifiers(referred_columns)?,
            on_delete: action(*on_delete),
            on_update: action(*on_update),
        })
    }
}

fn identifiers(idents: &[ast::Ident]) -> Result<Vec<String>> {
    idents.iter().map(identifier).collect()
}

fn action(action: Option<ast::ReferentialAction>) -> ReferentialAction {
    match action {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

pub(super) fn check_characteristics(characteristics: Option<&ast::ConstraintCharacteristics>) -> Result<()> {
    let Some(ast::ConstraintCharacteristics { deferrable, initially, enforced }) = characteristics else {
        return Ok(());
    };
    if *deferrable == Some(true) || *initially == Some(ast::DeferrableInitial::Deferred) {
        return Err(Error::unsupported("DEFERRABLE"));
    }
    if *enforced == Some(false) {
        return Err(Error::unsupported("NOT ENFORCED"));
    }
    Ok(())
}

fn primary(key: &ast::PrimaryKeyConstraint, column: Option<(&str, Option<&ast::Ident>)>) -> Result<Spec> {
    let ast::PrimaryKeyConstraint {
        name,
        index_name,
        index_type,
        columns,
        include,
        index_options,
        characteristics,
    } = key;
    check_characteristics(characteristics.as_ref())?;
    refuse_index_parts(index_name.as_ref(), index_type.as_ref(), include, index_options)?;
    key_spec(name.as_ref(), columns, column, true)
}

fn unique(key: &ast::UniqueConstraint, column: Option<(&str, Option<&ast::Ident>)>) -> Result<Spec> {
    let ast::UniqueConstraint {
        name,
        index_name,
        index_type_display,
        index_type,
        columns,
        include,
        index_options,
        characteristics,
        nulls_distinct,
    } = key;
    check_characteristics(characteristics.as_ref())?;
    refuse_index_parts(index_name.as_ref(), index_type.as_ref(), include, index_options)?;
    if !matches!(index_type_display, ast::KeyOrIndexDisplay::None) {
        return Err(Error::unsupported("UNIQUE KEY or UNIQUE INDEX within CREATE TABLE"));
    }
    match nulls_distinct {
        ast::NullsDistinctOption::None | ast::NullsDistinctOption::Distinct => {}
        ast::NullsDistinctOption::NotDistinct => return Err(Error::unsupported("NULLS NOT DISTINCT")),
    }
    key_spec(name.as_ref(), columns, column, false)
}

fn refuse_index_parts(
    name: Option<&ast::Ident>,
    kind: Option<&ast::IndexType>,
    include: &[ast::Ident],
    options: &[ast::IndexOption],
) -> Result<()> {
    if name.is_some() || kind.is_some() || !options.is_empty() {
        return Err(Error::unsupported("an index name, type or option within a constraint"));
    }
    if !include.is_empty() {
        return Err(Error::unsupported("INCLUDE"));
    }
    Ok(())
}

fn key_spec(
    name: Option<&ast::Ident>,
    columns: &[ast::IndexColumn],
    column: Option<(&str, Option<&ast::Ident>)>,
    primary: bool,
) -> Result<Spec> {
    let outer = column.and_then(|(_, name)| name);
    let columns = match column {
        Some((column, _)) => vec![column.to_owned()],
        None => columns.iter().map(plain_column).collect::<Result<_>>()?,
    };
    Ok(Spec::Key { name: name.or(outer).map(identifier).transpose()?, columns, primary })
}

/// A column of a key: a name and nothing else.
fn plain_column(column: &ast::IndexColumn) -> Result<String> {
    let ast::IndexColumn { column: ast::OrderByExpr { expr, options, with_fill }, operator_class } = column;
    match expr {
        ast::Expr::Identifier(ident)
            if options.sort.is_none()
                && options.nulls_first.is_none()
                && with_fill.is_none()
                && operator_class.is_none() =>
        {
            identifier(ident)
        }
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{column}\""))),
    }
}

// ---- adding ---------------------------------------------------------------------------------------------------------

/// Adds a constraint to a table that is being created: its tree is there and empty.
pub(super) fn add_to_new(context: &mut DdlContext<'_>, table: &mut Table, spec: &Spec) -> Result<()> {
    match spec {
        Spec::Key { name, columns, primary } => {
            let Some(index) = key_index(context, table, name.as_deref(), columns, *primary)? else {
                return Ok(());
            };
            if *primary {
                make_primary(table, &index);
            }
            table.indexes.push(index);
            Ok(())
        }
        Spec::Check { name, expression } => add_check(context, table, name.as_deref(), expression),
        Spec::Foreign { .. } => add_foreign_key(context, table, spec).map(drop),
    }
}

/// Adds a constraint to a table that is there: its rows are looked at, or written anew. Gives the table as it is then.
pub(super) fn add_to_existing(
    context: &mut DdlContext<'_>,
    old: &Arc<Table>,
    spec: &Spec,
) -> Result<Arc<Table>> {
    let mut table = Table::clone(old);
    match spec {
        Spec::Key { name, columns, primary } => {
            let Some(index) = key_index(context, &table, name.as_deref(), columns, *primary)? else {
                return Ok(Arc::clone(old));
            };
            if *primary {
                make_primary(&mut table, &index);
            }
            table.indexes.push(index);
            if *primary {
                let everything: Vec<usize> = (0..old.columns.len()).collect();
                table = build::rewrite(context, old, table, &everything, |_| Ok(()))?;
                context.put_table(table)
            } else {
                build::fill_index(context, &table, table.indexes.len() - 1)?;
                context.put_table(table)
            }
        }
        Spec::Check { name, expression } => {
            add_check(context, &mut table, name.as_deref(), expression)?;
            let table = context.put_table(table)?;
            validate::check(context, &table, table.checks.last().expect("just added"))?;
            Ok(table)
        }
        Spec::Foreign { .. } => {
            let parent = add_foreign_key(context, &mut table, spec)?;
            let table = context.put_table(table)?;
            let parent = parent.unwrap_or_else(|| Arc::clone(&table));
            validate::foreign_key(context, &table, &parent, table.foreign_keys.last().expect("just added"))?;
            Ok(table)
        }
    }
}

/// Puts the rows of a table in the order of an index that is about to become its primary key.
fn make_primary(table: &mut Table, index: &Index) {
    let numbers: Vec<ColumnNumber> = index.columns.iter().map(|column| column.column).collect();
    for column in &mut table.columns {
        column.not_null |= numbers.contains(&column.number);
    }
    table.key = TableKey::Columns(numbers);
}

/// The columns of a key, by number.
fn key_columns(table: &Table, columns: &[String], what: &str) -> Result<Vec<ColumnNumber>> {
    if columns.len() > MOST_COLUMNS {
        return Err(Error::new(
            SqlState::TOO_MANY_COLUMNS,
            format!("cannot use more than {MOST_COLUMNS} columns in an index"),
        ));
    }
    let mut numbers = Vec::with_capacity(columns.len());
    for name in columns {
        let position = table.find_column(name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })?;
        let number = table.columns[position].number;
        if numbers.contains(&number) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" appears twice in {what} constraint"),
            ));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// The index behind a UNIQUE or PRIMARY KEY constraint; `None` when another one of the statement does already.
fn key_index(
    context: &DdlContext<'_>,
    table: &Table,
    name: Option<&str>,
    columns: &[String],
    primary: bool,
) -> Result<Option<Index>> {
    if primary && table.primary().is_some() {
        return Err(Error::new(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("multiple primary keys for table \"{}\" are not allowed", table.name),
        ));
    }
    let numbers = key_columns(table, columns, if primary { "primary key" } else { "unique" })?;
    let new = !context.catalog.tables.contains_key(&table.oid);
    let same = table.indexes.iter().any(|index| {
        index.unique && index.columns.iter().map(|column| column.column).eq(numbers.iter().copied())
    });
    if new && same && !primary && name.is_none() {
        return Ok(None);
    }
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let name = match name {
        // The index has its name, too.
        Some(name) if names::is_relation(context.catalog, Some(table), name) => {
            return Err(relation_exists(name));
        }
        Some(name) if names::has_constraint(table, name) => return Err(constraint_exists(table, name)),
        Some(name) => name.to_owned(),
        None => names::index(context.catalog, table, &names, if primary { "pkey" } else { "key" }),
    };
    let column = |&column| IndexColumn { column, descending: false, nulls_first: false };
    Ok(Some(Index {
        oid: context.new_oid()?,
        name,
        columns: numbers.iter().map(column).collect(),
        unique: true,
        primary,
        constraint: Some(context.new_oid()?),
        storage: if primary { table.storage.clone() } else { context.new_storage("i")? },
    }))
}

pub(super) fn constraint_exists(table: &Table, name: &str) -> Error {
    Error::new(
        SqlState::DUPLICATE_OBJECT,
        format!("constraint \"{name}\" for relation \"{}\" already exists", table.name),
    )
}

fn add_check(
    context: &mut DdlContext<'_>,
    table: &mut Table,
    name: Option<&str>,
    expression: &str,
) -> Result<()> {
    let (expression, mentions) = context.define_check(table, expression)?;
    context.draw_from(&expression)?;
    let mut columns: Vec<&str> = columns_mentioned(&mentions)
        .into_iter()
        .filter_map(|number| Some(table.column(number)?.name.as_str()))
        .collect();
    if mentions.iter().any(|mention| mention.column.is_none()) {
        // The row: the name that is made up tells of no column.
        columns.clear();
    }
    let name = match name {
        Some(name) if names::has_constraint(table, name) => return Err(constraint_exists(table, name)),
        Some(name) => name.to_owned(),
        None => names::check(context.catalog, table, &columns),
    };
    table.checks.push(Check { oid: context.new_oid()?, name, expression });
    Ok(())
}

/// Adds a foreign key, and the table to those that refer to the parent; gives the parent if it is another table.
fn add_foreign_key(
    context: &mut DdlContext<'_>,
    table: &mut Table,
    spec: &Spec,
) -> Result<Option<Arc<Table>>> {
    let Spec::Foreign { name, columns, parent, parent_columns, on_delete, on_update } = spec else {
        return Err(Error::internal("no foreign key"));
    };
    let parent_table = find_parent(context, table, parent)?;
    let referred = parent_table.as_deref().unwrap_or(table);
    let numbers = foreign_columns(table, columns)?;
    let (parent_numbers, parent_index) = parent_key(referred, parent_columns, numbers.len())?;
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let name = match name {
        Some(name) if names::has_constraint(table, name) => return Err(constraint_exists(table, name)),
        Some(name) => name.clone(),
        None => names::foreign_key(context.catalog, table, &names),
    };
    for (&child, &parent) in numbers.iter().zip(&parent_numbers) {
        if let (Some(child), Some(parent)) = (table.column(child), referred.column(parent)) {
            check_types(&name, child, parent)?;
        }
    }
    let parent_oid = referred.oid;
    table.foreign_keys.push(ForeignKey {
        oid: context.new_oid()?,
        name,
        columns: numbers,
        parent: parent_oid,
        parent_columns: parent_numbers,
        parent_index,
        on_delete: *on_delete,
        on_update: *on_update,
    });
    match parent_table {
        Some(parent) => {
            let mut parent = Table::clone(&parent);
            if !parent.referenced_by.contains(&table.oid) {
                parent.referenced_by.push(table.oid);
            }
            // Also where it stays as it was: who waits for the parent, to change a column that is referred to, begins anew, and finds the key.
            context.put_table(parent).map(Some)
        }
        None => {
            if !table.referenced_by.contains(&table.oid) {
                table.referenced_by.push(table.oid);
            }
            Ok(None)
        }
    }
}

/// The table a foreign key refers to, locked for a change; `None` if it is the table itself.
fn find_parent(
    context: &mut DdlContext<'_>,
    table: &Table,
    name: &ast::ObjectName,
) -> Result<Option<Arc<Table>>> {
    let (last, relation) = context.find(name)?;
    match relation {
        Some(Relation::Table(oid)) if oid == table.oid => Ok(None),
        Some(Relation::Table(oid)) => {
            // Before it is claimed, so that nobody waits for who may not; that it has another owner by now would show then.
            check_may_refer(context, oid)?;
            let parent = context.claim_table(oid)?.ok_or_else(|| no_relation(&last))?;
            Ok(Some(parent))
        }
        Some(_) => Err(not_a(&last, "table").hint("A foreign key refers to a table.")),
        // A table that is being created has no name yet.
        None if last == table.name => Ok(None),
        None => Err(no_relation(&last)),
    }
}

/// Who refers to a table keeps its owner from removing rows, and finds out which keys there are.
fn check_may_refer(context: &DdlContext<'_>, parent: Oid) -> Result<()> {
    let Some(parent) = context.catalog.tables.get(&parent) else { return Ok(()) };
    if context.rights()?.has(parent.owner) {
        return Ok(());
    }
    let message = format!("permission denied for table {}", parent.name);
    Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .hint("A foreign key onto a table is for its owner and for superusers."))
}

fn foreign_columns(table: &Table, columns: &[String]) -> Result<Vec<ColumnNumber>> {
    let mut numbers = Vec::with_capacity(columns.len());
    for name in columns {
        let position = table.find_column(name).ok_or_else(|| missing_key_column(name))?;
        numbers.push(table.columns[position].number);
    }
    Ok(numbers)
}

fn missing_key_column(name: &str) -> Error {
    Error::new(
        SqlState::UNDEFINED_COLUMN,
        format!("column \"{name}\" referenced in foreign key constraint does not exist"),
    )
}

/// The columns a foreign key refers to, and their unique index.
fn parent_key(parent: &Table, columns: &[String], count: usize) -> Result<(Vec<ColumnNumber>, u32)> {
    let disagree = || {
        Error::new(
            SqlState::INVALID_FOREIGN_KEY,
            "number of referencing and referenced columns for foreign key disagree",
        )
    };
    if columns.is_empty() {
        let primary = parent.primary().ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("there is no primary key for referenced table \"{}\"", parent.name),
            )
        })?;
        if primary.columns.len() != count {
            return Err(disagree());
        }
        return Ok((primary.columns.iter().map(|column| column.column).collect(), primary.oid));
    }
    let mut numbers = Vec::with_capacity(columns.len());
    for name in columns {
        let position = parent.find_column(name).ok_or_else(|| missing_key_column(name))?;
        let number = parent.columns[position].number;
        if numbers.contains(&number) {
            let message = "foreign key referenced-columns list must not contain duplicates";
            return Err(Error::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        numbers.push(number);
    }
    if numbers.len() != count {
        return Err(disagree());
    }
    let fits = |index: &&Index| {
        index.unique
            && index.columns.len() == numbers.len()
            && index.columns.iter().all(|column| numbers.contains(&column.column))
    };
    // The primary key is the cheapest to look into.
    let mut found = parent.indexes.iter().filter(fits);
    let index = parent.indexes.iter().find(|index| index.primary && fits(index)).or_else(|| found.next());
    let index = index.ok_or_else(|| {
        Error::new(
            SqlState::INVALID_FOREIGN_KEY,
            format!(
                "there is no unique constraint matching given keys for referenced table \"{}\"",
                parent.name
            ),
        )
    })?;
    Ok((numbers, index.oid))
}

/// A child's value has to be looked up in the parent's index as it is.
fn check_types(constraint: &str, child: &Column, parent: &Column) -> Result<()> {
    let variable_text = |ty| matches!(ty, Type::Text | Type::Varchar | Type::Name);
    let alike = child.ty == parent.ty
        || child.ty.is_integer() && parent.ty.is_integer()
        || variable_text(child.ty) && variable_text(parent.ty);
    if alike {
        return Ok(());
    }
    Err(Error::new(
        SqlState::DATATYPE_MISMATCH,
        format!("foreign key constraint \"{constraint}\" cannot be implemented"),
    )
    .detail(format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        child.name,
        parent.name,
        child.ty.name(),
        parent.ty.name()
    )))
}
