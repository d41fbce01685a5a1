//! TRUNCATE: tables get new, empty trees.

use super::{DdlContext, build, sequence};
use crate::catalog::{Oid, Sequence, Table};
use crate::{Error, Result, SqlState};
use sqlparser::ast;
use std::sync::Arc;

pub(super) fn truncate(context: &mut DdlContext<'_>, statement: &ast::Truncate) -> Result<&'static str> {
    let ast::Truncate { table_names, partitions, table: _, if_exists, identity, cascade, on_cluster } =
        statement;
    if partitions.is_some() || *if_exists || on_cluster.is_some() {
        return Err(Error::unsupported("TRUNCATE with PARTITION, IF EXISTS or ON CLUSTER"));
    }
    let cascade = matches!(cascade, Some(ast::CascadeOption::Cascade));
    let mut tables: Vec<Arc<Table>> = Vec::new();
    for ast::TruncateTableTarget { name, only: _, has_asterisk: _ } in table_names {
        if let Some(table) = context.claim_named_table(name, false)?
            && !tables.iter().any(|other| other.oid == table.oid)
        {
            tables.push(table);
        }
    }
    add_referring(context, &mut tables, cascade)?;
    for table in &tables {
        empty(context, table)?;
        if matches!(identity, Some(ast::TruncateIdentityOption::Restart)) {
            for owned in sequence::owned(context, table.oid, None) {
                let Some(owned) = context.claim_sequence(owned.oid)? else { continue };
                let mut owned = Sequence::clone(&owned);
                sequence::restart(context, &mut owned)?;
                context.put_sequence(owned)?;
            }
        }
    }
    Ok("TRUNCATE TABLE")
}

/// Tables that refer to those in the list have to be in it as well.
fn add_referring(context: &mut DdlContext<'_>, tables: &mut Vec<Arc<Table>>, cascade: bool) -> Result<()> {
    let mut next = 0;
    while let Some(table) = tables.get(next).cloned() {
        next += 1;
        for &child in &table.referenced_by {
            if tables.iter().any(|other| other.oid == child) {
                continue;
            }
            let Some(child) = claim_child(context, child)? else { continue };
            if !cascade {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    "cannot truncate a table referenced in a foreign key constraint",
                )
                .detail(format!("Table \"{}\" references \"{}\".", child.name, table.name))
                .hint(format!(
                    "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
                    child.name
                )));
            }
            context.check_owner(child.owner, "table", &child.name)?;
            let message = format!("truncate cascades to table \"{}\"", child.name);
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            tables.push(child);
        }
    }
    Ok(())
}

fn claim_child(context: &mut DdlContext<'_>, child: Oid) -> Result<Option<Arc<Table>>> {
    context.claim_table(child)
}

fn empty(context: &mut DdlContext<'_>, old: &Arc<Table>) -> Result<()> {
    let mut table = Table::clone(old);
    table.storage = context.new_storage("t")?;
    // Nobody has rows of earlier layouts any more.
    if table.layouts.len() > 1 {
        table.layouts.drain(..table.layouts.len() - 1);
    }
    for index in 0..table.indexes.len() {
        table.indexes[index].storage =
            if table.indexes[index].primary { table.storage.clone() } else { context.new_storage("i")? };
    }
    build::drop_trees(context, old)?;
    context.put_table(table)?;
    Ok(())
}
