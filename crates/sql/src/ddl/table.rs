//! CREATE TABLE.

use super::column::{self, ColumnSpec};
use super::constraint::{self, Spec};
use super::{DdlContext, storage_parameters};
use crate::catalog::{ColumnNumber, Layout, Table, TableKey};
use crate::{Error, Result, SqlState};
use sqlparser::ast;

/// Fails for every part of the statement that other systems have, or that is not implemented.
fn refuse(create: &ast::CreateTable) -> Result<()> {
    let ast::CreateTable {
        or_replace,
        temporary,
        unlogged,
        external,
        dynamic,
        global,
        if_not_exists: _,
        transient,
        volatile,
        iceberg,
        snapshot,
        name: _,
        columns: _,
        constraints: _,
        hive_distribution,
        hive_formats,
        table_options: _,
        file_format,
        location,
        query,
        without_rowid,
        like,
        clone,
        version,
        comment,
        on_commit,
        on_cluster,
        primary_key,
        order_by,
        partition_by,
        cluster_by,
        clustered_by,
        inherits,
        partition_of,
        for_values,
        strict,
        copy_grants,
        enable_schema_evolution,
        change_tracking,
        data_retention_time_in_days,
        max_data_extension_time_in_days,
        default_ddl_collation,
        with_aggregation_policy,
        with_row_access_policy,
        with_storage_lifecycle_policy,
        with_tags,
        external_volume,
        with_connection,
        base_location,
        catalog,
        catalog_sync,
        storage_serialization_policy,
        target_lag,
        warehouse,
        refresh_mode,
        initialize,
        require_user,
        diststyle,
        distkey,
        sortkey,
        backup,
        multiset,
        fallback,
        with_data,
    } = create;
    let parts = [
        (*temporary, "CREATE TEMPORARY TABLE"),
        (*unlogged, "CREATE UNLOGGED TABLE"),
        (query.is_some(), "CREATE TABLE AS"),
        (like.is_some(), "CREATE TABLE with LIKE"),
        (partition_by.is_some(), "PARTITION BY"),
        (partition_of.is_some() || for_values.is_some(), "PARTITION OF"),
        (inherits.is_some(), "INHERITS"),
        (on_commit.is_some(), "ON COMMIT"),
        (global.is_some(), "GLOBAL or LOCAL"),
        (with_data.is_some(), "WITH DATA"),
        (*or_replace, "CREATE OR REPLACE TABLE"),
    ];
    if let Some((_, what)) = parts.iter().find(|(there, _)| *there) {
        return Err(Error::unsupported(what));
    }
    let hive = !matches!(hive_distribution, ast::HiveDistributionStyle::NONE)
        || hive_formats.as_ref().is_some_and(|formats| *formats != ast::HiveFormat::default());
    let foreign = [
        *external,
        *dynamic,
        *transient,
        *volatile,
        *iceberg,
        *snapshot,
        hive,
        file_format.is_some(),
        location.is_some(),
        *without_rowid,
        clone.is_some(),
        version.is_some(),
        comment.is_some(),
        on_cluster.is_some(),
        primary_key.is_some(),
        order_by.is_some(),
        cluster_by.is_some(),
        clustered_by.is_some(),
        *strict,
        *copy_grants,
        enable_schema_evolution.is_some(),
        change_tracking.is_some(),
        data_retention_time_in_days.is_some(),
        max_data_extension_time_in_days.is_some(),
        default_ddl_collation.is_some(),
        with_aggregation_policy.is_some(),
        with_row_access_policy.is_some(),
        with_storage_lifecycle_policy.is_some(),
        with_tags.is_some(),
        external_volume.is_some(),
        with_connection.is_some(),
        base_location.is_some(),
        catalog.is_some(),
        catalog_sync.is_some(),
        storage_serialization_policy.is_some(),
        target_lag.is_some(),
        warehouse.is_some(),
        refresh_mode.is_some(),
        initialize.is_some(),
        *require_user,
        diststyle.is_some(),
        distkey.is_some(),
        sortkey.is_some(),
        backup.is_some(),
        multiset.is_some(),
        fallback.is_some(),
    ];
    if foreign.contains(&true) {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "CREATE TABLE has a clause that is not part of PostgreSQL's language",
        ));
    }
    Ok(())
}

pub(super) fn create(context: &mut DdlContext<'_>, create: &ast::CreateTable) -> Result<&'static str> {
    const DONE: &str = "CREATE TABLE";
    refuse(create)?;
    let name = context.new_name(&create.name)?;
    if context.catalog.names.contains_key(&name) {
        let message = format!("relation \"{name}\" already exists");
        if create.if_not_exists {
            context.notice("NOTICE", SqlState::DUPLICATE_TABLE, format!("{message}, skipping"));
            return Ok(DONE);
        }
        return Err(Error::new(SqlState::DUPLICATE_TABLE, message));
    }
    let specs = create
        .columns
        .iter()
        .map(|definition| ColumnSpec::new(definition, &name))
        .collect::<Result<Vec<_>>>()?;
    check_columns(&specs)?;
    let mut constraints: Vec<Spec> = specs.iter().flat_map(|spec| spec.constraints.clone()).collect();
    for constraint in &create.constraints {
        constraints.push(Spec::of_table(constraint)?);
    }
    constraints.sort_by_key(Spec::rank);
    table_options(context, &create.table_options)?;
    let mut table = new_table(context, name, &specs)?;
    for constraint in &constraints {
        constraint::add_to_new(context, &mut table, constraint)?;
    }
    context.put_table(table)?;
    Ok(DONE)
}

fn check_columns(specs: &[ColumnSpec]) -> Result<()> {
    if specs.len() > column::MOST_COLUMNS {
        return Err(column::too_many());
    }
    let mut seen = std::collections::HashSet::new();
    for spec in specs {
        column::check_name(&spec.name)?;
        if !seen.insert(spec.name.as_str()) {
            let message = format!("column \"{}\" specified more than once", spec.name);
            return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    Ok(())
}

/// A table without constraints, and its tree.
fn new_table(context: &mut DdlContext<'_>, name: String, specs: &[ColumnSpec]) -> Result<Table> {
    let oid = context.new_oid()?;
    let owner = context.rights()?.role;
    context.hold_owner(owner)?;
    let mut columns = Vec::with_capacity(specs.len());
    for (number, spec) in (1..).zip(specs) {
        columns.push(spec.finish(context, (oid, &name), owner, number)?);
    }
    let numbers: Vec<ColumnNumber> = columns.iter().map(|column| column.number).collect();
    Ok(Table {
        oid,
        name,
        next_column: columns.len() as ColumnNumber + 1,
        columns,
        storage: context.new_storage("t")?,
        key: TableKey::RowId,
        layouts: vec![Layout(numbers)],
        indexes: Vec::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        referenced_by: Vec::new(),
        owner,
        revision: 0,
        codec: crate::catalog::CodecCell::default(),
    })
}

fn table_options(context: &DdlContext<'_>, options: &ast::CreateTableOptions) -> Result<()> {
    match options {
        ast::CreateTableOptions::None => Ok(()),
        ast::CreateTableOptions::With(options) => storage_parameters(context, options),
        ast::CreateTableOptions::Plain(options)
            if options.iter().all(|option| matches!(option, ast::SqlOption::TableSpace(_))) =>
        {
            Err(Error::unsupported("TABLESPACE"))
        }
        ast::CreateTableOptions::Options(_)
        | ast::CreateTableOptions::Plain(_)
        | ast::CreateTableOptions::TableProperties(_) => {
            Err(Error::unsupported(format!("the table option {options}")))
        }
    }
}
