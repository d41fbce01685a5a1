//! FOR UPDATE and its kin.

use super::binder::{Level, RelationKind, Visible, place};
use super::bridge::KEY_SHARE;
use super::{identifier, tokens};
use crate::logical::{ColumnId, LockStrength, LockWait};
use crate::{Error, Result, SqlState};
use sqlparser::ast;

/// A clause as it was written: the name of the strength, and the table it is of.
struct Clause<'c> {
    strength: LockStrength,
    of: Option<&'c ast::Ident>,
    wait: LockWait,
}

fn read(lock: &ast::LockClause) -> Result<Clause<'_>> {
    let ast::LockClause { lock_type, of, nonblock } = lock;
    let mut parts: Vec<&ast::Ident> = Vec::new();
    for part in of.iter().flat_map(|name| &name.0) {
        match part {
            ast::ObjectNamePart::Identifier(ident) => parts.push(ident),
            ast::ObjectNamePart::Function(_) => {
                return Err(Error::unsupported("a function as part of a name"));
            }
        }
    }
    let key_share = parts.first().is_some_and(|first| first.value == KEY_SHARE);
    if key_share {
        parts.remove(0);
    }
    let strength = match lock_type {
        ast::LockType::Update => LockStrength::Update,
        ast::LockType::Share if key_share => LockStrength::KeyShare,
        ast::LockType::Share => LockStrength::Share,
    };
    let wait = match nonblock {
        None => LockWait::Block,
        Some(ast::NonBlock::Nowait) => LockWait::NoWait,
        Some(ast::NonBlock::SkipLocked) => LockWait::SkipLocked,
    };
    if parts.len() > 1 {
        let message = format!("{} must specify unqualified relation names", name(strength));
        return Err(place(Error::new(SqlState::SYNTAX_ERROR, message), tokens::position(parts[0].span)));
    }
    Ok(Clause { strength, of: parts.first().copied(), wait })
}

fn name(strength: LockStrength) -> &'static str {
    match strength {
        LockStrength::KeyShare => "FOR KEY SHARE",
        LockStrength::Share => "FOR SHARE",
        LockStrength::Update => "FOR UPDATE",
    }
}

/// How a clause is called in errors.
pub(super) fn written(lock: &ast::LockClause) -> &'static str {
    read(lock).map_or("FOR UPDATE", |clause| name(clause.strength))
}

/// The tables that are locked.
pub(super) fn tables(
    level: &Level,
    locks: &[&ast::LockClause],
) -> Result<Vec<(ColumnId, LockStrength, LockWait)>> {
    let mut tables: Vec<(ColumnId, LockStrength, LockWait)> = Vec::new();
    for lock in locks {
        let Clause { strength, of, wait } = read(lock)?;
        let relations: Vec<&Visible> = match of {
            None => level
                .sight
                .relations
                .iter()
                .filter(|relation| matches!(relation.kind, RelationKind::Table | RelationKind::Subquery))
                .collect(),
            Some(ident) => {
                let wanted = identifier(ident)?;
                let found =
                    level.sight.relations.iter().find(|relation| relation.name.as_deref() == Some(&wanted));
                let Some(found) = found else {
                    let message = format!(
                        "relation \"{wanted}\" in {} clause not found in FROM clause",
                        name(strength)
                    );
                    return Err(place(
                        Error::new(SqlState::UNDEFINED_TABLE, message),
                        tokens::position(ident.span),
                    ));
                };
                // There is nothing in it to be locked.
                if found.kind == RelationKind::Values { vec![] } else { vec![found] }
            }
        };
        for relation in relations {
            let first = lockable(relation, strength, of.and_then(|ident| tokens::position(ident.span)))?;
            match tables.iter_mut().find(|(id, ..)| *id == first) {
                // The strongest of several wins, and the most impatient.
                Some((_, held, waits)) => {
                    *held = (*held).max(strength);
                    if *waits == LockWait::Block || wait == LockWait::NoWait {
                        *waits = wait;
                    }
                }
                None => tables.push((first, strength, wait)),
            }
        }
    }
    Ok(tables)
}

/// The first column of a table whose rows can be locked.
fn lockable(relation: &Visible, strength: LockStrength, at: Option<usize>) -> Result<ColumnId> {
    let wrong = |what: &str| {
        let message = format!("{} cannot be applied to {what}", name(strength));
        Err(place(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), at))
    };
    if relation.optional {
        return wrong("the nullable side of an outer join");
    }
    match (relation.kind, relation.columns.first()) {
        (RelationKind::Table, Some((_, first))) => Ok(*first),
        (RelationKind::Table, None) => wrong("a table without columns"),
        (RelationKind::Subquery, _) => {
            Err(place(Error::unsupported(format!("{} of a subquery", name(strength))), at))
        }
        (RelationKind::Common, _) => wrong("a WITH query"),
        (RelationKind::Values, _) => wrong("VALUES"),
        (RelationKind::System, _) => wrong("a system table"),
        (RelationKind::Function, _) => wrong("a function"),
        (RelationKind::Join, _) => wrong("a join"),
    }
}
