//! CREATE, ALTER, DROP ROLE. A password is turned into its verifier at once; the clear text goes nowhere else.

use super::{DdlContext, drop, scram};
use crate::bind::identifier;
use crate::catalog::{Role, storage};
use crate::{Error, Result, SqlState};
use sqlparser::ast;
use std::sync::Arc;

/// Options as they were written.
#[derive(Default)]
pub(super) struct Options {
    pub(super) login: Option<bool>,
    pub(super) superuser: Option<bool>,
    /// `Some(None)`: PASSWORD NULL.
    pub(super) password: Option<Option<String>>,
}

impl Options {
    fn password(&mut self, password: &ast::Password) -> Result<()> {
        self.password = Some(match password {
            ast::Password::NullPassword => None,
            ast::Password::Password(ast::Expr::Value(value)) => match &value.value {
                ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Some(text.clone()),
                // Not repeated in the message: it may be a password all the same.
                _ => return Err(Error::new(SqlState::SYNTAX_ERROR, "a password is a string constant")),
            },
            ast::Password::Password(_) => {
                return Err(Error::new(SqlState::SYNTAX_ERROR, "a password is a string constant"));
            }
        });
        Ok(())
    }
}

/// Attributes that roles do not have here: as long as they are off, that is no difference.
fn attribute(context: &DdlContext<'_>, name: &str, on: bool) {
    if on {
        let message = format!("{name} has no effect");
        context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
    }
}

fn denied(what: &str) -> Error {
    Error::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("permission denied to {what}"))
}

fn check_superuser(context: &DdlContext<'_>, what: &str) -> Result<()> {
    if context.role()?.superuser { Ok(()) } else { Err(denied(what)) }
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
        Some(text) if scram::is_verifier(text) => Ok(Some(text.to_owned())),
        Some(text) if text.len() == 35 && text.starts_with("md5") => {
            Err(Error::unsupported("a password encrypted with MD5"))
        }
        Some(text) => Ok(Some(scram::verifier(text))),
    }
}

/// CREATE ROLE
pub(super) fn create(context: &mut DdlContext<'_>, statement: &ast::CreateRole) -> Result<&'static str> {
    let ast::CreateRole {
        names,
        if_not_exists,
        login,
        inherit,
        bypassrls,
        password,
        superuser,
        create_db,
        create_role,
        replication,
        connection_limit,
        valid_until,
        in_role,
        in_group,
        role,
        user,
        admin,
        authorization_owner,
    } = statement;
    let members = [in_role, in_group, role, user, admin];
    let refused = [
        (connection_limit.is_some(), "CONNECTION LIMIT"),
        (valid_until.is_some(), "VALID UNTIL"),
        (members.iter().any(|list| !list.is_empty()), "membership of roles"),
        (authorization_owner.is_some(), "AUTHORIZATION"),
        (*if_not_exists, "CREATE ROLE IF NOT EXISTS"),
    ];
    if let Some((_, what)) = refused.iter().find(|(there, _)| *there) {
        return Err(Error::unsupported(what));
    }
    attribute(context, "NOINHERIT", *inherit == Some(false));
    attribute(context, "BYPASSRLS", *bypassrls == Some(true));
    attribute(context, "CREATEDB", *create_db == Some(true));
    attribute(context, "CREATEROLE", *create_role == Some(true));
    attribute(context, "REPLICATION", *replication == Some(true));
    let mut options = Options { login: *login, superuser: *superuser, password: None };
    if let Some(password) = password {
        options.password(password)?;
    }
    for name in names {
        create_one(context, &role_name(context, name)?, &options)?;
    }
    Ok("CREATE ROLE")
}

fn role_name(context: &DdlContext<'_>, name: &ast::ObjectName) -> Result<String> {
    match context.local_name(name)? {
        (None, name) => Ok(name),
        (Some(_), _) => Err(Error::new(SqlState::SYNTAX_ERROR, format!("\"{name}\" is no name of a role"))),
    }
}

/// Creates a role.
pub(super) fn create_one(context: &mut DdlContext<'_>, name: &str, options: &Options) -> Result<()> {
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
    Ok(())
}

fn claim(context: &mut DdlContext<'_>, name: &str) -> Result<Role> {
    let oid = context.find_role(name)?.oid;
    let catalog = Arc::make_mut(context.catalog);
    let role = storage::claim_role(&mut context.transaction.borrow_mut(), catalog, oid)?;
    let missing = || Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"));
    role.map(|role| Role::clone(&role)).ok_or_else(missing)
}

/// ALTER ROLE
pub(super) fn alter(
    context: &mut DdlContext<'_>,
    name: &ast::Ident,
    operation: &ast::AlterRoleOperation,
) -> Result<&'static str> {
    const DONE: &str = "ALTER ROLE";
    let name = alias(context, identifier(name)?);
    match operation {
        ast::AlterRoleOperation::RenameRole { role_name } => rename(context, &name, &identifier(role_name)?)?,
        ast::AlterRoleOperation::WithOptions { options } => alter_options(context, &name, options)?,
        ast::AlterRoleOperation::AddMember { .. } | ast::AlterRoleOperation::DropMember { .. } => {
            return Err(Error::unsupported("membership of roles"));
        }
        ast::AlterRoleOperation::Set { .. } | ast::AlterRoleOperation::Reset { .. } => {
            return Err(Error::unsupported("ALTER ROLE SET"));
        }
    }
    Ok(DONE)
}

/// `current_user` and its kin stand for who is connected.
fn alias(context: &DdlContext<'_>, name: String) -> String {
    match name.as_str() {
        "current_user" | "current_role" | "session_user" => context.session.user.clone(),
        _ => name,
    }
}

fn rename(context: &mut DdlContext<'_>, old: &str, new: &str) -> Result<()> {
    check_superuser(context, "rename role")?;
    check_role_name(new)?;
    if old == context.session.user {
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "session user cannot be renamed"));
    }
    let mut role = claim(context, old)?;
    role.name = new.to_owned();
    let catalog = Arc::make_mut(context.catalog);
    storage::put_role(&mut context.transaction.borrow_mut(), catalog, role)?;
    Ok(())
}

fn alter_options(context: &mut DdlContext<'_>, name: &str, options: &[ast::RoleOption]) -> Result<()> {
    let mut changes = Options::default();
    for option in options {
        match option {
            ast::RoleOption::Login(on) => changes.login = Some(*on),
            ast::RoleOption::SuperUser(on) => changes.superuser = Some(*on),
            ast::RoleOption::Password(password) => changes.password(password)?,
            ast::RoleOption::BypassRLS(on) => attribute(context, "BYPASSRLS", *on),
            ast::RoleOption::CreateDB(on) => attribute(context, "CREATEDB", *on),
            ast::RoleOption::CreateRole(on) => attribute(context, "CREATEROLE", *on),
            ast::RoleOption::Inherit(on) => attribute(context, "NOINHERIT", !*on),
            ast::RoleOption::Replication(on) => attribute(context, "REPLICATION", *on),
            ast::RoleOption::ConnectionLimit(_) => return Err(Error::unsupported("CONNECTION LIMIT")),
            ast::RoleOption::ValidUntil(_) => return Err(Error::unsupported("VALID UNTIL")),
        }
    }
    let only_password = changes.login.is_none() && changes.superuser.is_none();
    let own = name == context.session.user;
    if !(context.role()?.superuser || own && only_password) {
        return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, "permission denied"));
    }
    let mut role = claim(context, name)?;
    role.login = changes.login.unwrap_or(role.login);
    if changes.superuser == Some(false) && role.oid == crate::catalog::BOOTSTRAP_ROLE {
        let message = format!("role \"{name}\" has to stay a superuser");
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    role.superuser = changes.superuser.unwrap_or(role.superuser);
    if let Some(password) = &changes.password {
        role.password = verifier(context, password.as_deref())?;
    }
    let catalog = Arc::make_mut(context.catalog);
    storage::put_role(&mut context.transaction.borrow_mut(), catalog, role)?;
    Ok(())
}

/// DROP ROLE
pub(super) fn drop_roles(
    context: &mut DdlContext<'_>,
    names: &[ast::ObjectName],
    if_exists: bool,
) -> Result<&'static str> {
    check_superuser(context, "drop role")?;
    for name in names {
        let name = role_name(context, name)?;
        if context.find_role(&name).is_err() {
            drop::missing(context, if_exists, SqlState::UNDEFINED_OBJECT, "role", &name)?;
            continue;
        }
        if name == context.session.user {
            return Err(Error::new(SqlState::OBJECT_IN_USE, "current user cannot be dropped"));
        }
        let role = claim(context, &name)?;
        if role.oid == crate::catalog::BOOTSTRAP_ROLE {
            return Err(depends(&name, "it is required by the database system"));
        }
        let owned = context.catalog.tables.values().filter(|table| table.owner == role.oid);
        let owned = owned.map(|table| format!("owner of table {}", table.name));
        let sequences = context.catalog.sequences.values().filter(|s| s.owner == role.oid);
        let sequences = sequences.map(|sequence| format!("owner of sequence {}", sequence.name));
        let lines: Vec<String> = owned.chain(sequences).collect();
        if !lines.is_empty() {
            return Err(depends(&name, "some objects depend on it").detail(lines.join("\n")));
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
