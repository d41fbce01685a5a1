//! Statements that change definitions: CREATE, ALTER, DROP, TRUNCATE, ANALYZE.
//!
//! # Guarantees
//! 1. All of it belongs to the session's transaction: definitions, trees, the rows of a rewritten table. A rollback, also one to a
//!    savepoint, takes it back. (Numbers that were drawn stay drawn, see [`crate::catalog::sequences`].)
//! 2. A definition is changed under an exclusive lock on its entry, and looked at again once the lock was had. What is checked or
//!    built from existing rows reads what is committed *then*.
//! 3. A statement that fails leaves the private catalog as it was. (What it changed in the store, the session reverts
//!    with the statement's savepoint.)
//! 4. Syntax is matched exhaustively: a clause that is not implemented is an error that names it.
//!
//! | module | statements |
//! |---|---|
//! | `table`, `column`, `constraint` | CREATE TABLE and its parts, which ALTER TABLE shares |
//! | `alter` | ALTER TABLE, ALTER INDEX |
//! | `index` | CREATE INDEX |
//! | `drop` | DROP of everything |
//! | `truncate` | TRUNCATE |
//! | `sequence` | CREATE, ALTER SEQUENCE |
//! | `role` | CREATE, ALTER ROLE |
//! | `analyze` | ANALYZE |
//! | `build`, `sort` | filling indexes and rewritten tables |
//! | `load` | rows of a dump put into an empty table (no statement: [`crate::load`]) |
//! | `validate` | rules that existing rows have to follow |
//! | `names`, `text`, `run` | generated names, stored expressions, queries that statements need |

mod alter;
mod analyze;
mod build;
mod column;
mod constraint;
mod drop;
mod index;
mod load;
mod names;
mod role;
mod run;
mod sequence;
mod sort;
mod table;
mod text;
mod truncate;
mod validate;

use crate::bind::utility::{CopyRelation, Maintenance, Utility};
use crate::bind::{Kind, Parsed};
use crate::catalog::{self, Catalog, Numbers, Oid, Relation, Role, Sequence, Table, storage};
use crate::session::{CommandTag, Notice, PlannerSettings, Rights, SessionState};
use crate::{Error, Result, SqlState};
use gannet_store::Transaction;
use sqlparser::ast::{self, Statement};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use load::{Encoded, Sorting, Spare, Take, fill};
pub(crate) use text::sequences_mentioned;

/// What a definition statement runs with.
pub struct DdlContext<'a> {
    /// The session's transaction.
    pub transaction: &'a RefCell<Transaction>,
    /// The session's private copy of the definitions, changed along with the stored ones. Its version is the session's affair.
    pub catalog: &'a mut Arc<Catalog>,
    /// Numbers of new objects, positions of sequences.
    pub numbers: &'a Numbers,
    /// The session.
    pub session: &'a SessionState,
    /// How queries are planned that a statement needs.
    pub planner: &'a PlannerSettings,
    /// Set when the statement shall end.
    pub cancel: &'a AtomicBool,
    /// Somebody else has changed what the statement is about since `catalog` was taken: the statement has failed and is to begin anew.
    pub is_stale: Cell<bool>,
}

impl std::fmt::Debug for DdlContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DdlContext").finish_non_exhaustive()
    }
}

/// Whether [`execute`] runs a statement (or says why it does not).
pub fn is_ddl(parsed: &Parsed) -> bool {
    match &parsed.kind {
        Kind::Sql(statement) => {
            matches!(
                **statement,
                Statement::Truncate(_)
                    | Statement::CreateTable(_)
                    | Statement::CreateIndex(_)
                    | Statement::AlterTable(_)
                    | Statement::AlterIndex { .. }
                    | Statement::Drop { .. }
            ) || refused(statement).is_some()
        }
        Kind::Utility(utility) => matches!(
            **utility,
            Utility::Analyze(_)
                | Utility::CreateRole { .. }
                | Utility::AlterRole { .. }
                | Utility::DropRole { .. }
                | Utility::CreateSequence { .. }
                | Utility::AlterSequence { .. }
        ),
    }
}

/// What a definition statement is called that a read-only transaction refuses. ANALYZE is none: it changes nothing that queries show.
pub fn changing(parsed: &Parsed) -> Option<&'static str> {
    Some(match &parsed.kind {
        Kind::Sql(statement) => match &**statement {
            Statement::Truncate(_) => "TRUNCATE TABLE",
            Statement::CreateTable(_) => "CREATE TABLE",
            Statement::CreateIndex(_) => "CREATE INDEX",
            Statement::AlterTable(_) => "ALTER TABLE",
            Statement::AlterIndex { .. } => "ALTER INDEX",
            Statement::Drop { object_type, .. } => match object_type {
                ast::ObjectType::Table => "DROP TABLE",
                ast::ObjectType::Index => "DROP INDEX",
                ast::ObjectType::Sequence => "DROP SEQUENCE",
                ast::ObjectType::View => "DROP VIEW",
                ast::ObjectType::MaterializedView => "DROP MATERIALIZED VIEW",
                ast::ObjectType::Schema => "DROP SCHEMA",
                ast::ObjectType::Type => "DROP TYPE",
                ast::ObjectType::Collation => "DROP COLLATION",
                _ => "DROP",
            },
            other => refused(other)?,
        },
        Kind::Utility(utility) => match &**utility {
            Utility::CreateRole { .. } => "CREATE ROLE",
            Utility::AlterRole { .. } => "ALTER ROLE",
            Utility::DropRole { .. } => "DROP ROLE",
            Utility::CreateSequence { .. } => "CREATE SEQUENCE",
            Utility::AlterSequence { .. } => "ALTER SEQUENCE",
            _ => return None,
        },
    })
}

/// The name of a definition statement that is not implemented.
fn refused(statement: &Statement) -> Option<&'static str> {
    Some(match statement {
        Statement::CreateView(view) if view.materialized => "CREATE MATERIALIZED VIEW",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::AlterView { .. } => "ALTER VIEW",
        Statement::CreateVirtualTable { .. } => "CREATE VIRTUAL TABLE",
        Statement::CreateSecret { .. } => "CREATE SECRET",
        Statement::CreateServer(_) => "CREATE SERVER",
        Statement::CreatePolicy(_) => "CREATE POLICY",
        Statement::AlterPolicy(_) => "ALTER POLICY",
        Statement::DropPolicy(_) => "DROP POLICY",
        Statement::CreateConnector(_) => "CREATE CONNECTOR",
        Statement::AlterConnector { .. } => "ALTER CONNECTOR",
        Statement::DropConnector { .. } => "DROP CONNECTOR",
        Statement::CreateOperator(_) => "CREATE OPERATOR",
        Statement::CreateOperatorFamily(_) => "CREATE OPERATOR FAMILY",
        Statement::CreateOperatorClass(_) => "CREATE OPERATOR CLASS",
        Statement::AlterOperator(_) => "ALTER OPERATOR",
        Statement::AlterOperatorFamily(_) => "ALTER OPERATOR FAMILY",
        Statement::AlterOperatorClass(_) => "ALTER OPERATOR CLASS",
        Statement::DropOperator(_) => "DROP OPERATOR",
        Statement::DropOperatorFamily(_) => "DROP OPERATOR FAMILY",
        Statement::DropOperatorClass(_) => "DROP OPERATOR CLASS",
        Statement::CreateTextSearch(_) => "CREATE TEXT SEARCH",
        Statement::AlterTextSearch(_) => "ALTER TEXT SEARCH",
        Statement::AlterSchema(_) => "ALTER SCHEMA",
        Statement::AlterFunction(_) => "ALTER FUNCTION",
        Statement::AlterType(_) => "ALTER TYPE",
        Statement::AlterCollation(_) => "ALTER COLLATION",
        Statement::CreateCollation(_) => "CREATE COLLATION",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::CreateFunction(_) => "CREATE FUNCTION",
        Statement::DropFunction(_) => "DROP FUNCTION",
        Statement::CreateProcedure { .. } => "CREATE PROCEDURE",
        Statement::DropProcedure { .. } => "DROP PROCEDURE",
        Statement::CreateTrigger(_) => "CREATE TRIGGER",
        Statement::DropTrigger(_) => "DROP TRIGGER",
        Statement::CreateMacro { .. } => "CREATE MACRO",
        Statement::CreateStage { .. } => "CREATE STAGE",
        Statement::CreateFileFormat { .. } => "CREATE FILE FORMAT",
        Statement::CreateWarehouse(_) => "CREATE WAREHOUSE",
        Statement::CreateExtension(_) => "CREATE EXTENSION",
        Statement::DropExtension(_) => "DROP EXTENSION",
        Statement::CreateDomain(_) => "CREATE DOMAIN",
        Statement::DropDomain(_) => "DROP DOMAIN",
        Statement::CreateType { .. } => "CREATE TYPE",
        Statement::DropSecret { .. } => "DROP SECRET",
        Statement::Grant(_) => "GRANT",
        Statement::Revoke(_) => "REVOKE",
        Statement::Comment { .. } => "COMMENT",
        Statement::RenameTable(_) => "RENAME TABLE",
        Statement::Deny(_) => "DENY",
        _ => return None,
    })
}

/// Runs a definition statement.
pub fn execute(context: &mut DdlContext<'_>, parsed: &Parsed) -> Result<CommandTag> {
    let before = Arc::clone(context.catalog);
    let result = match &parsed.kind {
        Kind::Sql(statement) => definition(context, statement),
        Kind::Utility(utility) => self::utility(context, utility),
    };
    if result.is_err() {
        *context.catalog = before;
    }
    result.map(|command| CommandTag { command, rows: None })
}

/// Brings what ANALYZE finds out about tables up to date: ANALYZE, and VACUUM with it.
pub fn analyze(context: &mut DdlContext<'_>, maintenance: &Maintenance) -> Result<()> {
    analyze::analyze(context, maintenance)
}

fn utility(context: &mut DdlContext<'_>, utility: &Utility) -> Result<&'static str> {
    match utility {
        Utility::Analyze(maintenance) => analyze(context, maintenance).map(|()| "ANALYZE"),
        Utility::CreateSequence { name, if_not_exists, options } => {
            sequence::create(context, name, *if_not_exists, options)
        }
        Utility::AlterSequence { name, if_exists, action } => {
            sequence::alter(context, name, *if_exists, action)
        }
        Utility::CreateRole { name, options } => role::create(context, name, options),
        Utility::AlterRole { name, options } => role::alter(context, name, options),
        Utility::DropRole { names, if_exists } => role::drop_roles(context, names, *if_exists),
        other => Err(Error::internal(format!("no definition statement: {other:?}"))),
    }
}

fn definition(context: &mut DdlContext<'_>, statement: &Statement) -> Result<&'static str> {
    if let Some(name) = refused(statement) {
        return Err(Error::unsupported(name));
    }
    match statement {
        Statement::CreateTable(create) => table::create(context, create),
        Statement::CreateIndex(create) => index::create(context, create),
        Statement::AlterTable(alter) => alter::table(context, alter),
        Statement::AlterIndex { name, operation } => alter::index(context, name, operation),
        Statement::Truncate(truncate) => truncate::truncate(context, truncate),
        Statement::Drop { object_type, if_exists, names, cascade, restrict: _, purge, temporary, table } => {
            if *purge || *temporary || table.is_some() {
                return Err(Error::unsupported("DROP with PURGE, TEMPORARY or ON"));
            }
            drop::drop_objects(context, *object_type, names, *if_exists, *cascade)
        }
        other => Err(Error::internal(format!("no definition statement: {other}"))),
    }
}

/// A name of a utility statement, as syntax trees have it.
fn object_name(relation: &CopyRelation) -> ast::ObjectName {
    let part = |name: &String| ast::ObjectNamePart::Identifier(ast::Ident::with_quote('"', name));
    ast::ObjectName(relation.schema.iter().chain([&relation.name]).map(part).collect())
}

impl DdlContext<'_> {
    /// Fails when the statement was cancelled.
    fn check(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(self.session.cancel_reason());
        }
        Ok(())
    }

    fn notice(&self, severity: &'static str, state: SqlState, message: impl Into<String>) {
        self.session.notice(Notice { severity, error: Error::new(state, message.into()) });
    }

    /// The database in a name of three parts, and the schema, have to be ours; gives the name within it.
    fn local_name(&self, name: &ast::ObjectName) -> Result<(Option<String>, String)> {
        let parts = name.0.iter().map(|part| match part {
            ast::ObjectNamePart::Identifier(ident) => crate::bind::identifier(ident),
            ast::ObjectNamePart::Function(_) => Err(Error::unsupported(format!("the name {name}"))),
        });
        let mut parts: Vec<String> = parts.collect::<Result<_>>()?;
        let Some(last) = parts.pop() else { return Err(Error::internal("a name without parts")) };
        let schema = parts.pop();
        match parts.pop() {
            None => {}
            Some(database) if database == self.session.database && parts.is_empty() => {}
            Some(_) => {
                let message = format!("cross-database references are not implemented: \"{name}\"");
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
        }
        Ok((schema, last))
    }

    /// A name for a new relation, role or other object in schema `public`.
    fn new_name(&self, name: &ast::ObjectName) -> Result<String> {
        match self.local_name(name)? {
            (None, name) => Ok(name),
            (Some(schema), name) if schema == "public" => Ok(name),
            (Some(schema), name) if schema == "pg_catalog" || schema == "information_schema" => {
                Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    format!("permission denied to create \"{schema}.{name}\""),
                )
                .detail("System catalog modifications are currently disallowed."))
            }
            (Some(schema), _) => Err(no_schema(&schema)),
        }
    }

    /// The relation of a name, if there is one; a system table is refused.
    fn find(&self, name: &ast::ObjectName) -> Result<(String, Option<Relation>)> {
        let (schema, last) = self.local_name(name)?;
        match schema.as_deref() {
            None | Some("pg_catalog" | "information_schema") => {
                if crate::system::find(schema.as_deref(), &last).is_some() {
                    let message = format!("permission denied: \"{last}\" is a system catalog");
                    return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
                }
            }
            Some("public") => {}
            Some(other) => return Err(no_schema(other)),
        }
        let relation = match schema.as_deref() {
            None | Some("public") => self.catalog.names.get(&last).copied(),
            Some(_) => None,
        };
        Ok((last, relation))
    }

    /// The schema in a name of a relation, where there is none of that name.
    fn unknown_schema(&self, name: &ast::ObjectName) -> Result<Option<String>> {
        let known =
            |schema: &String| ["public", "pg_catalog", "information_schema"].contains(&schema.as_str());
        Ok(self.local_name(name)?.0.filter(|schema| !known(schema)))
    }

    /// As [`find`](Self::find), for a statement with or without IF EXISTS.
    fn find_if(&self, name: &ast::ObjectName, if_exists: bool) -> Result<(String, Option<Relation>)> {
        if if_exists && self.unknown_schema(name)?.is_some() {
            return Ok((self.local_name(name)?.1, None));
        }
        self.find(name)
    }

    /// The table of a name, locked for a change of its definition.
    fn claim_named_table(&mut self, name: &ast::ObjectName, if_exists: bool) -> Result<Option<Arc<Table>>> {
        loop {
            let (last, relation) = self.find_if(name, if_exists)?;
            let oid = match relation {
                Some(Relation::Table(oid)) => oid,
                Some(_) => return Err(not_a(&last, "table")),
                None if if_exists => {
                    let message = format!("relation \"{last}\" does not exist, skipping");
                    self.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
                    return Ok(None);
                }
                None => return Err(no_relation(&last)),
            };
            // What it was called may have changed before the lock was had.
            match self.claim_table(oid)? {
                Some(table) if table.name == last => {
                    self.check_owner(table.owner, "table", &table.name)?;
                    return Ok(Some(table));
                }
                _ => {}
            }
        }
    }

    fn claim_table(&mut self, oid: Oid) -> Result<Option<Arc<Table>>> {
        let known = self.catalog.tables.get(&oid).cloned();
        let catalog = Arc::make_mut(self.catalog);
        let found = storage::claim_table(&mut self.transaction.borrow_mut(), catalog, oid)?;
        let is_as_known =
            known.as_ref().map(|table| table.revision) == found.as_ref().map(|table| table.revision);
        if is_as_known {
            return Ok(found);
        }
        Err(self.stale(known.or(found).map(|table| table.name.clone())))
    }

    /// What is called so has changed before its lock was had.
    fn stale(&self, name: Option<String>) -> Error {
        self.is_stale.set(true);
        let name = name.unwrap_or_default();
        Error::new(
            SqlState::SERIALIZATION_FAILURE,
            format!("could not change definitions: others keep changing those of \"{name}\""),
        )
    }

    /// A table that others refer to, and that therefore is there.
    fn claim_known_table(&mut self, oid: Oid) -> Result<Arc<Table>> {
        self.claim_table(oid)?.ok_or_else(|| no_relation(&format!("{oid}")))
    }

    fn put_table(&mut self, table: Table) -> Result<Arc<Table>> {
        let catalog = Arc::make_mut(self.catalog);
        storage::put_table(&mut self.transaction.borrow_mut(), catalog, table)
    }

    fn put_sequence(&mut self, sequence: Sequence) -> Result<Arc<Sequence>> {
        let catalog = Arc::make_mut(self.catalog);
        storage::put_sequence(&mut self.transaction.borrow_mut(), catalog, sequence)
    }

    fn claim_sequence(&mut self, oid: Oid) -> Result<Option<Arc<Sequence>>> {
        let known = self.catalog.sequences.get(&oid).cloned();
        let catalog = Arc::make_mut(self.catalog);
        let found = storage::claim_sequence(&mut self.transaction.borrow_mut(), catalog, oid)?;
        let is_as_known = known.as_ref().map(|sequence| sequence.revision)
            == found.as_ref().map(|sequence| sequence.revision);
        if is_as_known {
            return Ok(found);
        }
        Err(self.stale(known.or(found).map(|sequence| sequence.name.clone())))
    }

    /// A default or check draws from sequences, which it names. Who renames or removes one of them looks for such texts in what he knows of all tables:
    /// one that is being stored he does not see. So the sequence gets another revision along with it, and whoever waits for the sequence
    /// begins anew, with the default. It is not gone meanwhile, and not called otherwise, as it is claimed.
    fn draw_from(&mut self, text: &str) -> Result<()> {
        for name in text::sequences_mentioned(text)? {
            let Some(&Relation::Sequence(oid)) = self.catalog.names.get(&name) else { continue };
            if let Some(sequence) = self.claim_sequence(oid)? {
                self.put_sequence(Sequence::clone(&sequence))?;
            }
        }
        Ok(())
    }

    fn new_oid(&self) -> Result<Oid> {
        self.numbers.new_oid()
    }

    /// A new, empty tree.
    fn new_storage(&self, prefix: &str) -> Result<catalog::Storage> {
        let name = format!("{prefix}.{}", self.new_oid()?);
        Ok(catalog::Storage::created(self.transaction.borrow_mut().create_tree(&name)?))
    }

    fn drop_storage(&self, storage: &catalog::Storage) -> Result<()> {
        self.transaction.borrow_mut().drop_tree(&storage.name)?;
        Ok(())
    }

    /// What the role may do that the session runs as.
    fn rights(&self) -> Result<Rights> {
        self.session.rights(Some(&**self.catalog))
    }

    fn find_role(&self, name: &str) -> Result<&Arc<Role>> {
        let found = self.catalog.roles.values().find(|role| role.name == name);
        found.ok_or_else(|| Error::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist")))
    }

    /// A role is about to own something: it stays until the transaction ends.
    fn hold_owner(&self, owner: Oid) -> Result<()> {
        // Nobody can drop this one, and most things are its.
        if owner == catalog::BOOTSTRAP_ROLE {
            return Ok(());
        }
        let held = storage::hold_role(&mut self.transaction.borrow_mut(), self.catalog, owner)?;
        match held {
            Some(_) => Ok(()),
            None => Err(self.stale(self.catalog.roles.get(&owner).map(|role| role.name.clone()))),
        }
    }

    fn check_owner(&self, owner: Oid, what: &str, name: &str) -> Result<()> {
        if self.rights()?.has(owner) {
            return Ok(());
        }
        Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, format!("must be owner of {what} {name}")))
    }
}

fn no_schema(name: &str) -> Error {
    Error::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

fn no_relation(name: &str) -> Error {
    Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

fn relation_exists(name: &str) -> Error {
    Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

fn not_a(name: &str, what: &str) -> Error {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    Error::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not {article} {what}"))
}

/// Parameters of PostgreSQL's storage, which ours does not have. They are accepted, so that scripts run, and named.
fn storage_parameters(context: &DdlContext<'_>, options: &[ast::SqlOption]) -> Result<()> {
    for option in options {
        let name = match option {
            ast::SqlOption::KeyValue { key, value: _ } | ast::SqlOption::Ident(key) => {
                crate::bind::identifier(key)?
            }
            other => return Err(Error::unsupported(format!("the storage parameter {other}"))),
        };
        storage_parameter(context, &name)?;
    }
    Ok(())
}

fn storage_parameter(context: &DdlContext<'_>, name: &str) -> Result<()> {
    let known =
        matches!(name, "fillfactor" | "parallel_workers" | "deduplicate_items" | "user_catalog_table")
            || name.starts_with("autovacuum_")
            || name.starts_with("toast.")
            || name.starts_with("toast_")
            || name.starts_with("vacuum_");
    if !known {
        let message = format!("unrecognized parameter \"{name}\"");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    let message = format!("storage parameter \"{name}\" has no effect");
    context.notice("NOTICE", SqlState::SUCCESSFUL_COMPLETION, message);
    Ok(())
}
