//! Roles.

use super::{FALSE, NULL, Rows, TRUE, int, text};
use crate::catalog::Role;
use crate::exec::Context;
use crate::types::Value;
use crate::{Error, SqlState};

fn flag(value: bool) -> Value {
    Value::Bool(value)
}

/// `pg_authid`: with the verifiers of passwords, so for superusers only.
pub(super) fn authids(context: &Context<'_>) -> Rows {
    if !super::activity::is_superuser(context) {
        let message = "permission denied for table pg_authid";
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    let row = |role: &Role| {
        vec![
            int(role.oid),
            text(&role.name),
            flag(role.superuser),
            TRUE,
            flag(role.superuser),
            flag(role.superuser),
            flag(role.login),
            FALSE,
            FALSE,
            int(-1),
            super::optional(role.password.as_deref(), text),
            NULL,
        ]
    };
    Ok(context.catalog.roles.values().map(|role| row(role)).collect())
}

pub(super) fn roles(context: &Context<'_>) -> Rows {
    let row = |role: &Role| {
        vec![
            text(&role.name),
            flag(role.superuser),
            TRUE,
            flag(role.superuser),
            flag(role.superuser),
            flag(role.login),
            FALSE,
            int(-1),
            text("********"),
            NULL,
            FALSE,
            NULL,
            int(role.oid),
        ]
    };
    Ok(context.catalog.roles.values().map(|role| row(role)).collect())
}

pub(super) fn users(context: &Context<'_>) -> Rows {
    let row = |role: &Role| {
        vec![
            text(&role.name),
            int(role.oid),
            flag(role.superuser),
            flag(role.superuser),
            FALSE,
            FALSE,
            text("********"),
            NULL,
            NULL,
        ]
    };
    Ok(context.catalog.roles.values().filter(|role| role.login).map(|role| row(role)).collect())
}
