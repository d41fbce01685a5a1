//! CREATE, ALTER, DROP ROLE. A password is turned into its verifier at once; the clear text goes nowhere else.

use super::{DdlContext, drop};
use crate::bind::utility::RoleOptions;
use crate::catalog::{Role, storage};
use crate::{Error, Result, SqlState, scram};
use std::sync::Arc;

fn denied(what: &str) -> Error {
    Error::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what}"))
}

fn check_superuser(context: &DdlContext<'_>, what: &str) -> Result<()> {
    if context.rights()?.superuser { Ok(()) } else { Err(denied(what)) }
}

fn check_role_name(name: &str) -> Result<()> {
    match name {
        "public" | "none" => {
            Err(Error::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved")))
        }
        name if name.starts_with("pg_") => {
            let error = Error::new(SqlState::RESERVED_NAME, format!("role name \"{name}\" is reserved"));
            Err(error.detail("Role names starting with \"pg_\" are reserved."))
        }
        _ => Ok(()),
    }
}

/// What is kept of a password.
fn verifier(context: &DdlContext<'_>, password: Option<&str>) -> Result<Option<String>> {
    match password {
        None => Ok(None),
        Some("") => {
            let message = "empty string is not a valid password, clearing password";
            context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
            Ok(None)
        }
        Some(text) if scram::Verifier::parse(text).is_some() => Ok(Some(text.to_owned())),
        Some(text) if text.len() == 35 && text.starts_with("md5") => {
            Err(Error::unsupported("a password encrypted with MD5"))
        }
        Some(text) => Ok(Some(scram::verifier(text))),
    }
}

/// CREATE ROLE
pub(super) fn create(
    context: &mut DdlContext<'_>,
    name: &str,
    options: &RoleOptions,
) -> Result<&'static str> {
    check_superuser(context, "create role")?;
    check_role_name(name)?;
    let role = Role {
        oid: context.new_oid()?,
        name: name.to_owned(),
        login: options.login.unwrap_or(false),
        superuser: options.superuser.unwrap_or(false),
        password: verifier(context, options.password.as_ref().and_then(|p| p.as_deref()))?,
        revision: 0,
    };
    let catalog = Arc::make_mut(context.catalog);
    storage::put_role(&mut context.transaction.borrow_mut(), catalog, role)?;
    Ok("CREATE ROLE")
}

fn claim(context: &mut DdlContext<'_>, name: &str) -> Result<Role> {
    let oid = context.find_role(name)?.oid;
    let catalog = Arc::make_mut(context.catalog);
    let role = storage::claim_role(&mut context.transaction.borrow_mut(), catalog, oid)?;
    let missing = || Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"));
    role.map(|role| Role::clone(&role)).ok_or_else(missing)
}

/// `current_user` and its kin stand for who is connected.
fn alias(context: &DdlContext<'_>, name: String) -> String {
    match name.as_str() {
        "current_user" | "current_role" | "session_user" => context.session.user.clone(),
        _ => name,
    }
}

/// ALTER ROLE
pub(super) fn alter(context: &mut DdlContext<'_>, name: &str, changes: &RoleOptions) -> Result<&'static str> {
    let name = &alias(context, name.to_owned());
    let only_password = changes.login.is_none() && changes.superuser.is_none();
    let rights = context.rights()?;
    let own = context.find_role(name).is_ok_and(|role| role.oid == rights.role);
    if !(rights.superuser || own && only_password) {
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied"));
    }
    let mut role = claim(context, name)?;
    role.login = changes.login.unwrap_or(role.login);
    if role.oid == crate::catalog::BOOTSTRAP_ROLE {
        // There may be nobody else who could take it back.
        let refuse = |what| {
            let message = format!("role \"{name}\" has to stay {what}");
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        };
        match (changes.superuser, changes.login) {
            (Some(false), _) => return refuse("a superuser"),
            (_, Some(false)) => return refuse("able to log in"),
            _ => {}
        }
    }
    role.superuser = changes.superuser.unwrap_or(role.superuser);
    if let Some(password) = &changes.password {
        role.password = verifier(context, password.as_deref())?;
    }
    let catalog = Arc::make_mut(context.catalog);
    storage::put_role(&mut context.transaction.borrow_mut(), catalog, role)?;
    Ok("ALTER ROLE")
}

/// DROP ROLE
pub(super) fn drop_roles(
    context: &mut DdlContext<'_>,
    names: &[String],
    if_exists: bool,
) -> Result<&'static str> {
    check_superuser(context, "drop role")?;
    for name in names {
        let Ok(found) = context.find_role(name) else {
            drop::missing(context, if_exists, SqlState::UNDEFINED_OBJECT, "role", name)?;
            continue;
        };
        if found.oid == context.session.role {
            return Err(Error::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped"));
        }
        let role = claim(context, name)?;
        if role.oid == crate::catalog::BOOTSTRAP_ROLE {
            return Err(depends(name, "it is required by the database system"));
        }
        // Who makes it an owner holds it: by now that is committed, or will not be. But it may be newer than what the statement began with.
        let view = context.transaction.borrow_mut().latest_view();
        let newest = storage::reload(&view, context.catalog)?;
        let owned = newest.tables.values().filter(|table| table.owner == role.oid);
        let owned = owned.map(|table| format!("owner of table {}", table.name));
        let sequences = newest.sequences.values().filter(|s| s.owner == role.oid);
        let sequences = sequences.map(|sequence| format!("owner of sequence {}", sequence.name));
        let lines: Vec<String> = owned.chain(sequences).collect();
        if !lines.is_empty() {
            return Err(depends(name, "some objects depend on it").detail(lines.join("\n")));
        }
        let catalog = Arc::make_mut(context.catalog);
        storage::remove_role(&mut context.transaction.borrow_mut(), catalog, role.oid)?;
    }
    Ok("DROP ROLE")
}

fn depends(name: &str, why: &str) -> Error {
    Error::new(
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!("role \"{name}\" cannot be dropped because {why}"),
    )
}
