//! CREATE INDEX.

use super::constraint::MOST_COLUMNS;
use super::{DdlContext, build, names, storage_parameter};
use crate::bind::identifier;
use crate::catalog::{Index, IndexColumn, Table};
use crate::{Error, Result, SqlState, Type};
use sqlparser::ast;

pub(super) fn create(context: &mut DdlContext<'_>, statement: &ast::CreateIndex) -> Result<&'static str> {
    const DONE: &str = "CREATE INDEX";
    let ast::CreateIndex {
        name,
        table_name,
        using,
        columns,
        unique,
        concurrently,
        r#async,
        if_not_exists,
        include,
        nulls_distinct,
        with,
        predicate,
        index_options,
        alter_options,
    } = statement;
    check_method(using.as_ref())?;
    // An option elsewhere; here it is a name, which stands where no other one does.
    let is_named_so = *r#async && name.is_none();
    let refused = [
        (!include.is_empty(), "INCLUDE"),
        (*nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (predicate.is_some(), "a partial index"),
        (
            *r#async && !is_named_so || !index_options.is_empty() || !alter_options.is_empty(),
            "the option of CREATE INDEX",
        ),
    ];
    if let Some((_, what)) = refused.iter().find(|(there, _)| *there) {
        return Err(Error::unsupported(what));
    }
    if *concurrently {
        return Err(Error::unsupported("CREATE INDEX CONCURRENTLY")
            .hint("CREATE INDEX lets others read the table meanwhile; who writes to it waits."));
    }
    let table = context.claim_named_table(table_name, false)?;
    let table = table.ok_or_else(|| Error::internal("a table that may be missing"))?;
    let named_so = is_named_so.then(|| ast::ObjectName::from(vec![ast::Ident::new("async")]));
    let name = name.as_ref().or(named_so.as_ref()).map(|name| context.new_name(name)).transpose()?;
    if let Some(name) = &name
        && context.catalog.names.contains_key(name)
    {
        let message = format!("relation \"{name}\" already exists");
        if *if_not_exists {
            context.notice("NOTICE", SqlState::DUPLICATE_TABLE, format!("{message}, skipping"));
            return Ok(DONE);
        }
        return Err(Error::new(SqlState::DUPLICATE_TABLE, message));
    }
    for parameter in with {
        parameter_of(context, parameter)?;
    }
    let columns = index_columns(&table, columns)?;
    let mut table = Table::clone(&table);
    let name = match name {
        Some(name) => name,
        None => {
            let of = |column: &IndexColumn| table.column(column.column).map(|column| column.name.as_str());
            let of: Vec<&str> = columns.iter().filter_map(of).collect();
            names::index(context.catalog, &table, &of, "idx")
        }
    };
    table.indexes.push(Index {
        oid: context.new_oid()?,
        name,
        columns,
        unique: *unique,
        primary: false,
        constraint: None,
        storage: context.new_storage("i")?,
    });
    build::fill_index(context, &table, table.indexes.len() - 1)?;
    context.put_table(table)?;
    Ok(DONE)
}

fn check_method(method: Option<&ast::IndexType>) -> Result<()> {
    match method {
        None | Some(ast::IndexType::BTree) => Ok(()),
        Some(
            ast::IndexType::Hash
            | ast::IndexType::GIN
            | ast::IndexType::GiST
            | ast::IndexType::SPGiST
            | ast::IndexType::BRIN
            | ast::IndexType::Bloom,
        ) => Err(Error::unsupported(format!(
            "access method \"{}\"",
            method.map(ToString::to_string).unwrap_or_default().to_lowercase()
        ))),
        // Quoted, for one.
        Some(ast::IndexType::Custom(name)) => match &*identifier(name)? {
            "btree" => Ok(()),
            method @ ("hash" | "gin" | "gist" | "spgist" | "brin") => {
                Err(Error::unsupported(format!("access method \"{method}\"")))
            }
            method => Err(Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("access method \"{method}\" does not exist"),
            )),
        },
    }
}

/// A storage parameter, which stands as an expression `name = value`.
fn parameter_of(context: &DdlContext<'_>, parameter: &ast::Expr) -> Result<()> {
    match parameter {
        ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right: _ } => match &**left {
            ast::Expr::Identifier(name) => storage_parameter(context, &identifier(name)?),
            _ => Err(Error::unsupported(format!("the storage parameter {parameter}"))),
        },
        ast::Expr::Identifier(name) => storage_parameter(context, &identifier(name)?),
        _ => Err(Error::unsupported(format!("the storage parameter {parameter}"))),
    }
}

fn index_columns(table: &Table, columns: &[ast::IndexColumn]) -> Result<Vec<IndexColumn>> {
    if columns.len() > MOST_COLUMNS {
        return Err(Error::new(
            SqlState::TOO_MANY_COLUMNS,
            format!("cannot use more than {MOST_COLUMNS} columns in an index"),
        ));
    }
    let mut result: Vec<IndexColumn> = Vec::with_capacity(columns.len());
    for ast::IndexColumn { column: ast::OrderByExpr { expr, options, with_fill }, operator_class } in columns
    {
        if with_fill.is_some() {
            return Err(Error::unsupported("WITH FILL"));
        }
        let ast::OrderByOptions { sort, nulls_first } = options;
        let descending = match sort {
            None | Some(ast::OrderBySort::Asc) => false,
            Some(ast::OrderBySort::Desc) => true,
            Some(ast::OrderBySort::Using(_)) => return Err(Error::unsupported("USING in an index")),
        };
        let name = column_name(expr)?;
        let position = table.find_column(&name).ok_or_else(|| {
            Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist"))
        })?;
        if let Some(class) = operator_class {
            check_operator_class(class, table.columns[position].ty)?;
        }
        let column = table.columns[position].number;
        // A column that stands there already adds nothing to the order.
        if !result.iter().any(|other| other.column == column) {
            result.push(IndexColumn { column, descending, nulls_first: nulls_first.unwrap_or(descending) });
        }
    }
    Ok(result)
}

/// Whether an operator class has the order that the type has anyway. Strings are compared byte by byte, which is what `text_pattern_ops` is for.
fn check_operator_class(class: &ast::ObjectName, ty: Type) -> Result<()> {
    let parts: Option<Vec<&ast::Ident>> = class.0.iter().map(ast::ObjectNamePart::as_ident).collect();
    let names = parts.into_iter().flatten().map(identifier).collect::<Result<Vec<String>>>()?;
    let name = match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [name] | ["pg_catalog", name] => name,
        _ => "",
    };
    let is_its_order = match name {
        "text_ops" | "varchar_ops" | "text_pattern_ops" | "varchar_pattern_ops" => {
            matches!(ty, Type::Text | Type::Varchar)
        }
        "bpchar_pattern_ops" => ty == Type::Bpchar,
        _ => name.strip_suffix("_ops") == Some(ty.internal_name()),
    };
    if is_its_order { Ok(()) } else { Err(Error::unsupported(format!("the operator class {class}"))) }
}

fn column_name(expr: &ast::Expr) -> Result<String> {
    match expr {
        ast::Expr::Identifier(ident) => identifier(ident),
        ast::Expr::Nested(inner) => match column_name(inner) {
            Ok(name) => Ok(name),
            Err(_) => Err(Error::unsupported("an index on an expression")),
        },
        ast::Expr::Collate { expr, collation } => {
            let last = collation.0.last().and_then(ast::ObjectNamePart::as_ident);
            match last.map(|ident| ident.value.as_str()) {
                Some("C" | "POSIX" | "default" | "ucs_basic") => column_name(expr),
                _ => Err(Error::unsupported(format!("the collation {collation}"))),
            }
        }
        _ => Err(Error::unsupported("an index on an expression")),
    }
}
