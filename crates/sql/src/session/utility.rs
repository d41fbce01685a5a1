//! Statements without a plan: transactions, settings, EXPLAIN, PREPARE, definitions, VACUUM.

use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::settings::{self, DEFINITIONS, Key};
use super::transaction::Open;
use super::{Session, copy};
use crate::bind::{self, Parsed};
use crate::ddl;
use crate::plan::explain::{self, ExplainOptions, Format};
use crate::types::cast;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_store::Isolation;
use sqlparser::ast::{self, Statement};
use std::sync::Arc;

/// Whether a statement may be run in a failed transaction.
pub(super) fn ends_transaction(parsed: &Parsed) -> bool {
    matches!(&parsed.statement, Statement::Commit { .. } | Statement::Rollback { .. })
}

fn tag(command: &'static str) -> CommandTag {
    CommandTag::plain(command)
}

/// Whether a statement has a plan.
fn is_planned(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
    )
}

impl Session {
    /// What a utility statement gives: `None`: it is none; `Some(None)`: no rows.
    pub(super) fn utility_columns(&self, parsed: &Parsed) -> Result<Option<Option<Vec<OutputColumn>>>> {
        let text = |name: &str| OutputColumn {
            name: name.to_owned(),
            ty: Type::Text,
            modifier: crate::types::NO_MODIFIER,
            origin: None,
        };
        Ok(match &parsed.statement {
            statement if is_planned(statement) => None,
            Statement::Explain { .. } => Some(Some(vec![text("QUERY PLAN")])),
            Statement::ShowVariable { variable } => Some(Some(match show_name(variable) {
                None => ["name", "setting", "description"].map(text).to_vec(),
                Some(name) => vec![text(DEFINITIONS[settings::find(&name)?].name)],
            })),
            Statement::Execute { name, .. } => {
                let prepared = self.prepared(&prepared_name(name.as_ref())?)?;
                Some(prepared.columns().map(<[OutputColumn]>::to_vec))
            }
            _ => Some(None),
        })
    }

    /// Runs a statement that has no plan; false when it has one. `alone`: the statement is the only one of its text.
    pub(super) fn utility(
        &mut self,
        parsed: &Arc<Parsed>,
        parameters: &[Value],
        alone: bool,
        client: &mut dyn Client,
    ) -> Result<bool> {
        self.refuse_in_failed(parsed)?;
        let statement = &parsed.statement;
        if is_planned(statement) {
            return Ok(false);
        }
        if !parameters.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        if let Some(done) = self.transaction_statement(statement)? {
            self.complete(&done, client)?;
            return Ok(true);
        }
        let done = match statement {
            Statement::Set(set) => self.set(set)?,
            Statement::Reset(reset) => self.reset(&reset.reset)?,
            Statement::ShowVariable { variable } => self.show(variable, client)?,
            Statement::Explain { .. } => self.explain(parsed, client)?,
            Statement::Prepare { name, data_types, statement } => {
                self.prepare_sql(parsed, name, data_types, statement)?
            }
            Statement::Execute { .. } => return self.execute_sql(statement, client).map(|()| true),
            Statement::Deallocate { name, prepare: _ } => self.deallocate(name)?,
            Statement::Discard { object_type } => self.discard(*object_type)?,
            Statement::Vacuum(vacuum) => self.vacuum(vacuum, alone)?,
            Statement::Copy { .. } => copy::run(self, statement, client)?,
            definition if ddl::is_ddl(definition) => self.define(definition)?,
            other => {
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                return Err(Error::unsupported(words.join(" ").to_uppercase()));
            }
        };
        // What may fail at the end has to fail before success is reported.
        if alone {
            self.end_implicit()?;
        }
        self.complete(&done, client)?;
        Ok(true)
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    fn transaction_statement(&mut self, statement: &Statement) -> Result<Option<CommandTag>> {
        Ok(Some(match statement {
            Statement::StartTransaction { modes, begin, transaction: _, modifier, statements, exception, has_end_keyword } => {
                if modifier.is_some() || !statements.is_empty() || exception.is_some() || *has_end_keyword {
                    return Err(Error::unsupported("this form of BEGIN"));
                }
                self.begin(modes)?;
                tag(if *begin { "BEGIN" } else { "START TRANSACTION" })
            }
            Statement::Commit { chain, end: _, modifier } => {
                if modifier.is_some() {
                    return Err(Error::unsupported("this form of COMMIT"));
                }
                self.end_transaction(*chain, Self::commit_explicit)?
            }
            Statement::Rollback { chain, savepoint: None } => {
                self.end_transaction(*chain, |session| session.rollback().map(|()| tag("ROLLBACK")))?
            }
            Statement::Rollback { chain: _, savepoint: Some(name) } => {
                self.rollback_to(&bind::identifier(name)?)?;
                tag("ROLLBACK")
            }
            Statement::Savepoint { name } => {
                let name = bind::identifier(name)?;
                self.explicit("SAVEPOINT")?;
                if let Some(open) = &mut self.transaction {
                    open.savepoint(name, &self.state)?;
                }
                tag("SAVEPOINT")
            }
            Statement::ReleaseSavepoint { name } => {
                let name = bind::identifier(name)?;
                self.explicit("RELEASE SAVEPOINT")?;
                if let Some(open) = &mut self.transaction {
                    open.release(&name)?;
                }
                tag("RELEASE")
            }
            _ => return Ok(None),
        }))
    }

    fn begin(&mut self, modes: &[ast::TransactionMode]) -> Result<()> {
        match &mut self.transaction {
            Some(open) if open.explicit => {
                self.state.notice(Notice::warning(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "there is already a transaction in progress",
                ));
            }
            // What ran before in the same text belongs to it, as in PostgreSQL.
            Some(open) => open.explicit = true,
            None => self.transaction = Some(Open::new(&self.database.0, &self.state, true)),
        }
        self.set_modes(modes)?;
        let (isolation, read_only) = match &self.transaction {
            Some(open) => (open.isolation, open.read_only),
            None => return Ok(()),
        };
        self.note_transaction(isolation, read_only);
        Ok(())
    }

    fn note_transaction(&self, isolation: Isolation, read_only: bool) {
        let name = match isolation {
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
        };
        self.state.note_setting(Key::TransactionIsolation, name);
        self.state.note_setting(Key::TransactionReadOnly, if read_only { "on" } else { "off" });
    }

    fn set_modes(&mut self, modes: &[ast::TransactionMode]) -> Result<()> {
        for mode in modes {
            let Some(open) = &mut self.transaction else { return Ok(()) };
            match mode {
                ast::TransactionMode::AccessMode(access) => {
                    let read_only = matches!(access, ast::TransactionAccessMode::ReadOnly);
                    if open.read_only && !read_only && open.used {
                        return Err(Error::new(
                            SqlState::ACTIVE_SQL_TRANSACTION,
                            "transaction read-write mode must be set before any query",
                        ));
                    }
                    open.read_only = read_only;
                }
                ast::TransactionMode::IsolationLevel(level) => {
                    open.set_isolation(&self.database.0, &self.state, isolation(*level)?)?;
                }
            }
        }
        if let Some(open) = &self.transaction {
            self.note_transaction(open.isolation, open.read_only);
        }
        Ok(())
    }

    /// Savepoints live within BEGIN and COMMIT only.
    fn explicit(&self, command: &str) -> Result<()> {
        match &self.transaction {
            Some(open) if open.explicit => Ok(()),
            _ => Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                format!("{command} can only be used in transaction blocks"),
            )),
        }
    }

    fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.explicit("ROLLBACK TO SAVEPOINT")?;
        self.portals.clear();
        match &mut self.transaction {
            Some(open) => open.rollback_to(name, &self.state),
            None => Ok(()),
        }
    }

    fn commit_explicit(&mut self) -> Result<CommandTag> {
        Ok(tag(if self.commit()? { "COMMIT" } else { "ROLLBACK" }))
    }

    fn end_transaction(
        &mut self,
        chain: bool,
        end: impl FnOnce(&mut Self) -> Result<CommandTag>,
    ) -> Result<CommandTag> {
        let (isolation, read_only) = match &self.transaction {
            Some(open) if open.explicit => (open.isolation, open.read_only),
            _ => {
                if chain {
                    return Err(Error::new(
                        SqlState::NO_ACTIVE_SQL_TRANSACTION,
                        "COMMIT AND CHAIN can only be used in transaction blocks",
                    ));
                }
                self.state.notice(Notice::warning(
                    SqlState::NO_ACTIVE_SQL_TRANSACTION,
                    "there is no transaction in progress",
                ));
                return end(self);
            }
        };
        let done = end(self)?;
        if chain {
            let mut open = Open::new(&self.database.0, &self.state, true);
            open.set_isolation(&self.database.0, &self.state, isolation)?;
            open.read_only = read_only;
            self.transaction = Some(open);
        } else {
            let (isolation, read_only) = {
                let settings = self.state.settings();
                (settings.isolation, settings.read_only)
            };
            self.note_transaction(isolation, read_only);
        }
        Ok(done)
    }

    // ---- settings ---------------------------------------------------------------------------------------------

    fn set(&mut self, set: &ast::Set) -> Result<CommandTag> {
        match set {
            ast::Set::SingleAssignment { scope, hivevar, variable, values } => {
                if *hivevar {
                    return Err(Error::unsupported("SET HIVEVAR"));
                }
                let local = match scope {
                    None | Some(ast::ContextModifier::Session) => false,
                    Some(ast::ContextModifier::Local) => true,
                    Some(other) => return Err(Error::unsupported(format!("SET {other}"))),
                };
                let name = variable.to_string();
                let value = setting_value(values)?;
                self.set_one(&name, value.as_deref(), local)?;
            }
            ast::Set::SetTimeZone { local, value } => {
                let value = setting_value(std::slice::from_ref(value))?;
                let value = value.filter(|value| !value.eq_ignore_ascii_case("local"));
                self.set_one("TimeZone", value.as_deref(), *local)?;
            }
            ast::Set::SetNames { charset_name, collation_name } => {
                if collation_name.is_some() {
                    return Err(Error::unsupported("SET NAMES ... COLLATE"));
                }
                self.set_one("client_encoding", Some(&charset_name.value), false)?;
            }
            ast::Set::SetNamesDefault {} => self.set_one("client_encoding", None, false)?,
            ast::Set::SetTransaction { modes, snapshot, session } => {
                if snapshot.is_some() {
                    return Err(Error::unsupported("SET TRANSACTION SNAPSHOT"));
                }
                if *session {
                    self.set_session_modes(modes)?;
                } else if self.transaction.is_some() {
                    self.set_modes(modes)?;
                } else {
                    self.state.notice(Notice::warning(
                        SqlState::NO_ACTIVE_SQL_TRANSACTION,
                        "SET TRANSACTION can only be used in transaction blocks",
                    ));
                }
            }
            other => return Err(Error::unsupported(other)),
        }
        Ok(tag("SET"))
    }

    fn set_session_modes(&mut self, modes: &[ast::TransactionMode]) -> Result<()> {
        for mode in modes {
            match mode {
                ast::TransactionMode::AccessMode(access) => {
                    let read_only = matches!(access, ast::TransactionAccessMode::ReadOnly);
                    let value = if read_only { "on" } else { "off" };
                    self.set_one("default_transaction_read_only", Some(value), false)?;
                }
                ast::TransactionMode::IsolationLevel(level) => {
                    let level = level.to_string().to_lowercase();
                    self.set_one("default_transaction_isolation", Some(&level), false)?;
                }
            }
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        let index = settings::find(name)?;
        if local && !self.transaction.as_ref().is_some_and(|open| open.explicit) {
            self.state.notice(Notice::warning(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET LOCAL can only be used in transaction blocks",
            ));
        }
        self.ensure_transaction()?;
        if index == Key::TransactionIsolation as usize {
            let wanted = settings::isolation(&value.unwrap_or("read committed").to_lowercase())?;
            let level = match wanted {
                Isolation::ReadCommitted => ast::TransactionIsolationLevel::ReadCommitted,
                Isolation::RepeatableRead => ast::TransactionIsolationLevel::RepeatableRead,
            };
            return self.set_modes(&[ast::TransactionMode::IsolationLevel(level)]);
        }
        self.state.change_setting(index, value, local)?;
        if index == Key::TransactionReadOnly as usize {
            let read_only = self.state.settings().get(Key::TransactionReadOnly) == "on";
            let mode = if read_only {
                ast::TransactionAccessMode::ReadOnly
            } else {
                ast::TransactionAccessMode::ReadWrite
            };
            self.set_modes(&[ast::TransactionMode::AccessMode(mode)])?;
        }
        Ok(())
    }

    fn reset(&mut self, reset: &ast::Reset) -> Result<CommandTag> {
        match reset {
            ast::Reset::ALL => {
                self.ensure_transaction()?;
                self.state.reset_settings();
            }
            ast::Reset::ConfigurationParameter(name) => self.set_one(&name.to_string(), None, false)?,
        }
        Ok(tag("RESET"))
    }

    fn show(&mut self, variable: &[ast::Ident], client: &mut dyn Client) -> Result<CommandTag> {
        let text = |name: &str| OutputColumn {
            name: name.to_owned(),
            ty: Type::Text,
            modifier: crate::types::NO_MODIFIER,
            origin: None,
        };
        let (columns, rows) = match show_name(variable) {
            None => {
                let columns = ["name", "setting", "description"].map(text).to_vec();
                let settings = self.state.settings();
                let row = |(index, definition): (usize, &settings::Definition)| {
                    [definition.name, settings.text(index), definition.description].map(Value::text).to_vec()
                };
                (columns, DEFINITIONS.iter().enumerate().map(row).collect::<Vec<_>>())
            }
            Some(name) => {
                let index = settings::find(&name)?;
                let value = self.state.settings().text(index).to_owned();
                (vec![text(DEFINITIONS[index].name)], vec![vec![Value::text(value)]])
            }
        };
        give(&columns, &rows, self, client)?;
        Ok(tag("SHOW"))
    }

    // ---- EXPLAIN ----------------------------------------------------------------------------------------------

    fn explain(&mut self, parsed: &Arc<Parsed>, client: &mut dyn Client) -> Result<CommandTag> {
        let Statement::Explain { describe_alias, analyze, verbose, query_plan, estimate, statement, format, options } =
            &parsed.statement
        else {
            return Err(Error::internal("EXPLAIN of something else"));
        };
        if !matches!(describe_alias, ast::DescribeAlias::Explain) || *query_plan || *estimate || format.is_some() {
            return Err(Error::unsupported("this form of EXPLAIN"));
        }
        let mut chosen = ExplainOptions { analyze: *analyze, verbose: *verbose, ..ExplainOptions::default() };
        for option in options.iter().flatten() {
            explain_option(&mut chosen, option)?;
        }
        if !is_planned(statement) {
            return Err(Error::unsupported("EXPLAIN of this statement"));
        }
        let inner = Arc::new(Parsed { statement: (**statement).clone(), text: statement.to_string() });
        self.ensure_transaction()?;
        let started = gannet_base::clock::now();
        let prepared = self.plan(&inner, &[])?;
        let planning = started.elapsed();
        let plan = prepared.plan.as_ref().ok_or_else(|| Error::internal("no plan"))?;
        let text = if chosen.analyze {
            let mut running = self.start(&prepared, Vec::new(), true)?;
            let started = gannet_base::clock::now();
            self.exhaust(&mut running)?;
            let execution = started.elapsed();
            let profile = running.profile();
            explain::text(running.plan(), &chosen, Some((&profile, planning, execution)))
        } else {
            explain::text(&plan.statement, &chosen, None)
        };
        let columns = [OutputColumn {
            name: "QUERY PLAN".to_owned(),
            ty: Type::Text,
            modifier: crate::types::NO_MODIFIER,
            origin: None,
        }];
        let rows: Vec<Vec<Value>> = match chosen.format {
            Format::Text => text.lines().map(|line| vec![Value::text(line)]).collect(),
            Format::Json => vec![vec![Value::text(text)]],
        };
        give(&columns, &rows, self, client)?;
        Ok(tag("EXPLAIN"))
    }

    // ---- prepared statements in SQL -----------------------------------------------------------------------------

    fn prepare_sql(
        &mut self,
        parsed: &Parsed,
        name: &ast::Ident,
        data_types: &[ast::DataType],
        statement: &Statement,
    ) -> Result<CommandTag> {
        if !is_planned(statement) {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "only SELECT, INSERT, UPDATE and DELETE can be prepared"));
        }
        let types: Vec<Type> =
            data_types.iter().map(|ty| bind::bind_type(ty).map(|(ty, _)| ty)).collect::<Result<_>>()?;
        self.ensure_transaction()?;
        let inner = Arc::new(Parsed { statement: statement.clone(), text: parsed.text.clone() });
        let prepared = self.plan(&inner, &types)?;
        self.keep_prepared(&bind::identifier(name)?, prepared)?;
        Ok(tag("PREPARE"))
    }

    fn execute_sql(&mut self, statement: &Statement, client: &mut dyn Client) -> Result<()> {
        let Statement::Execute { name, parameters, has_parentheses: _, immediate, into, using, output, default } = statement
        else {
            return Err(Error::internal("EXECUTE of something else"));
        };
        if *immediate || !into.is_empty() || !using.is_empty() || *output || *default {
            return Err(Error::unsupported("this form of EXECUTE"));
        }
        let name = prepared_name(name.as_ref())?;
        let prepared = self.prepared(&name)?;
        if parameters.len() != prepared.parameters.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!("Expected {} parameters but got {}.", prepared.parameters.len(), parameters.len())));
        }
        self.ensure_transaction()?;
        let values = parameters
            .iter()
            .zip(&prepared.parameters)
            .map(|(expression, ty)| self.constant(expression, *ty))
            .collect::<Result<Vec<_>>>()?;
        let mut running = self.start(&prepared, values, false)?;
        if prepared.columns.is_some() {
            client.columns(running.columns(), &self.state.style)?;
        }
        self.advance(&mut running, 0, client)?;
        let tag = running.tag();
        drop(running);
        self.complete(&tag, client)
    }

    /// The value of an expression without columns, as an assignment to `ty` gives it.
    fn constant(&mut self, expression: &ast::Expr, ty: Type) -> Result<Value> {
        let parsed = bind::parse(&format!("select {expression}"))?.pop();
        let parsed = Arc::new(parsed.ok_or_else(|| Error::internal("an expression vanished"))?);
        let prepared = self.plan(&parsed, &[])?;
        let mut running = self.start(&prepared, Vec::new(), false)?;
        let mut rows = super::Rows::default();
        self.advance(&mut running, 0, &mut rows)?;
        let value = rows.rows.pop().and_then(|mut row| row.pop()).unwrap_or_default();
        let from = running.columns().first().map_or(Type::Unknown, |column| column.ty);
        if cast::context(from, ty).is_none_or(|context| context > cast::CastContext::Assignment) {
            return Err(Error::new(
                SqlState::DATATYPE_MISMATCH,
                format!("a parameter of type {} cannot be coerced to the expected type {}", from.name(), ty.name()),
            ));
        }
        cast::cast(value, from, ty, crate::types::NO_MODIFIER, false, &self.state.style)
    }

    fn deallocate(&mut self, name: &ast::Ident) -> Result<CommandTag> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.prepared.retain(|name, _| name.is_empty());
            return Ok(tag("DEALLOCATE ALL"));
        }
        let name = bind::identifier(name)?;
        self.prepared(&name)?;
        self.close_prepared(&name);
        Ok(tag("DEALLOCATE"))
    }

    fn discard(&mut self, object: ast::DiscardObject) -> Result<CommandTag> {
        Ok(match object {
            ast::DiscardObject::ALL => {
                if self.transaction.as_ref().is_some_and(|open| open.explicit) {
                    return Err(Error::new(
                        SqlState::ACTIVE_SQL_TRANSACTION,
                        "DISCARD ALL cannot run inside a transaction block",
                    ));
                }
                self.portals.clear();
                self.prepared.clear();
                self.ensure_transaction()?;
                self.state.reset_settings();
                self.state.forget_sequences();
                tag("DISCARD ALL")
            }
            ast::DiscardObject::PLANS => tag("DISCARD PLANS"),
            ast::DiscardObject::SEQUENCES => {
                self.state.forget_sequences();
                tag("DISCARD SEQUENCES")
            }
            // There are no temporary tables to be discarded.
            ast::DiscardObject::TEMP => tag("DISCARD TEMP"),
        })
    }

    // ---- definitions and upkeep -------------------------------------------------------------------------------

    fn define(&mut self, statement: &Statement) -> Result<CommandTag> {
        self.ensure_transaction()?;
        let shared = Arc::clone(&self.database.0);
        let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
        if open.read_only {
            return Err(Error::new(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot change definitions in a read-only transaction",
            ));
        }
        open.used = true;
        open.define(&shared, &self.state, &self.interrupt, statement)
    }

    fn vacuum(&mut self, vacuum: &ast::VacuumStatement, alone: bool) -> Result<CommandTag> {
        let ast::VacuumStatement { full, sort_only, delete_only, reindex, recluster, table_name, threshold, boost } =
            vacuum;
        if *full || *sort_only || *delete_only || *reindex || *recluster || threshold.is_some() || *boost {
            return Err(Error::unsupported("this form of VACUUM"));
        }
        if !alone || self.transaction.as_ref().is_some_and(|open| open.explicit) {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "VACUUM cannot run inside a transaction block",
            ));
        }
        if let Some(name) = table_name {
            let catalog = self.database.catalog();
            ddl::find_table(&catalog, name)?;
        }
        // Garbage is found through undo, not through tables: one sweep takes it from all of them.
        self.rollback()?;
        self.database.store().sweep()?;
        Ok(tag("VACUUM"))
    }
}

/// Gives rows that were computed here to the client.
fn give(columns: &[OutputColumn], rows: &[Vec<Value>], session: &Session, client: &mut dyn Client) -> Result<()> {
    client.columns(columns, &session.state.style)?;
    for row in rows {
        client.row(row, columns, &session.state.style)?;
    }
    Ok(())
}

fn isolation(level: ast::TransactionIsolationLevel) -> Result<Isolation> {
    use ast::TransactionIsolationLevel as Level;
    settings::isolation(match level {
        Level::ReadUncommitted | Level::ReadCommitted => "read committed",
        Level::RepeatableRead => "repeatable read",
        Level::Serializable => "serializable",
        Level::Snapshot => return Err(Error::unsupported("isolation level SNAPSHOT")),
    })
}

/// The setting that SHOW names; `None` for all.
fn show_name(variable: &[ast::Ident]) -> Option<String> {
    let words: Vec<String> = variable.iter().map(|word| word.value.to_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["all"] => None,
        ["transaction", "isolation", "level"] => Some("transaction_isolation".to_owned()),
        ["time", "zone"] => Some("TimeZone".to_owned()),
        ["session", "authorization"] => Some("session_authorization".to_owned()),
        words => Some(words.join(".")),
    }
}

fn prepared_name(name: Option<&ast::ObjectName>) -> Result<String> {
    match name.map(|name| name.0.as_slice()) {
        Some([ast::ObjectNamePart::Identifier(ident)]) => bind::identifier(ident),
        _ => Err(Error::new(SqlState::SYNTAX_ERROR, "EXECUTE needs the name of a prepared statement")),
    }
}

/// The text that SET gives; `None` for DEFAULT.
fn setting_value(values: &[ast::Expr]) -> Result<Option<String>> {
    let mut texts = Vec::new();
    for value in values {
        texts.push(match value {
            ast::Expr::Identifier(ident) => {
                if values.len() == 1 && ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") {
                    return Ok(None);
                }
                ident.value.clone()
            }
            ast::Expr::Value(literal) => literal_text(&literal.value)?,
            ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => match &**expr {
                ast::Expr::Value(literal) => format!("-{}", literal_text(&literal.value)?),
                other => return Err(Error::unsupported(format!("SET ... TO {other}"))),
            },
            other => return Err(Error::unsupported(format!("SET ... TO {other}"))),
        });
    }
    Ok(Some(texts.join(", ")))
}

fn literal_text(value: &ast::Value) -> Result<String> {
    match value {
        ast::Value::Number(number, _) => Ok(number.clone()),
        ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => Ok(text.clone()),
        ast::Value::Boolean(value) => Ok(if *value { "on" } else { "off" }.to_owned()),
        other => Err(Error::unsupported(format!("SET ... TO {other}"))),
    }
}

fn explain_option(options: &mut ExplainOptions, option: &ast::UtilityOption) -> Result<()> {
    let ast::UtilityOption { name, arg } = option;
    let text = match arg {
        None => None,
        Some(arg) => setting_value(std::slice::from_ref(arg))?.map(|text| text.to_lowercase()),
    };
    let on = || match text.as_deref() {
        None | Some("on" | "true" | "1") => Ok(true),
        Some("off" | "false" | "0") => Ok(false),
        Some(other) => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("{} requires a Boolean value, not \"{other}\"", name.value.to_lowercase()),
        )),
    };
    match name.value.to_lowercase().as_str() {
        "analyze" => options.analyze = on()?,
        "verbose" => options.verbose = on()?,
        "costs" => options.costs = on()?,
        "buffers" => options.buffers = on()?,
        "timing" => options.timing = on()?,
        "summary" => options.summary = Some(on()?),
        "format" => {
            options.format = match text.as_deref() {
                Some("text") => Format::Text,
                Some("json") => Format::Json,
                other => {
                    return Err(Error::unsupported(format!("EXPLAIN (FORMAT {})", other.unwrap_or_default())));
                }
            }
        }
        other => return Err(Error::new(SqlState::SYNTAX_ERROR, format!("unrecognized EXPLAIN option \"{other}\""))),
    }
    Ok(())
}
