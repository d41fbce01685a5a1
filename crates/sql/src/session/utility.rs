//! Statements without a plan: transactions, settings, EXPLAIN, PREPARE, definitions, VACUUM.

use super::client::{Client, CommandTag, Notice, OutputColumn};
use super::prepared::Parameters;
use super::settings::{self, DEFINITIONS, Key, Level};
use super::statement::Running;
use super::transaction::Open;
use super::{Prepared, Session, Standing, backup, copy, jobs, load, restore, verify};
use crate::bind::utility::{Discard, ExplainFormat, ExplainOptions, Maintenance, TransactionModes};
use crate::bind::{self, Kind, Parsed, Utility};
use crate::catalog::Table;
use crate::plan::explain;
use crate::{Error, Result, SqlState, Type, Value};
use gannet_store::{JobKind, JobOrder, JobReport, Watch};
use sqlparser::ast::{self, Statement};
use std::sync::Arc;

/// Whether a statement may be run in a failed transaction.
pub(super) fn ends_transaction(parsed: &Parsed) -> bool {
    match &parsed.kind {
        Kind::Utility(utility) => {
            matches!(**utility, Utility::Commit { .. } | Utility::Rollback { .. } | Utility::RollbackTo(_))
        }
        Kind::Sql(_) => false,
    }
}

fn tag(command: &'static str) -> CommandTag {
    CommandTag::plain(command)
}

fn text_column(name: &str) -> OutputColumn {
    OutputColumn { name: name.to_owned(), ty: Type::Text, modifier: crate::types::NO_MODIFIER, origin: None }
}

/// Whether a statement has a plan.
fn is_planned(parsed: &Parsed) -> bool {
    matches!(
        parsed.statement(),
        Some(Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_))
    )
}

/// The statement with a plan that an EXPLAIN is of. Its parameters are the EXPLAIN's.
pub(super) fn explained(parsed: &Parsed) -> Option<&Parsed> {
    let Kind::Utility(utility) = &parsed.kind else { return None };
    match &**utility {
        Utility::Explain { statement, .. } if is_planned(statement) => Some(statement),
        _ => None,
    }
}

impl Session {
    /// What a utility statement gives: `None`: it is none; `Some(None)`: no rows.
    pub(super) fn utility_columns(&self, parsed: &Parsed) -> Result<Option<Option<Vec<OutputColumn>>>> {
        if is_planned(parsed) {
            return Ok(None);
        }
        let Kind::Utility(utility) = &parsed.kind else { return Ok(Some(None)) };
        Ok(Some(match &**utility {
            Utility::Explain { .. } => Some(vec![text_column("QUERY PLAN")]),
            Utility::BackupDatabase(backup) => backup::columns(backup),
            Utility::CheckDatabase { .. } => Some(jobs::check_columns()),
            Utility::CompactDatabase { .. } => Some(jobs::compact_columns()),
            Utility::DumpDatabase(dump) => jobs::columns_of_dump(dump),
            Utility::LoadDatabase(load) => load::columns_of(load),
            Utility::RestoreDatabase(_) => Some(restore::columns()),
            Utility::StatDatabase { .. } => Some(jobs::stat_columns()),
            Utility::SweepDatabase { .. } => Some(jobs::sweep_columns()),
            Utility::Verify(_) => Some(verify::columns()),
            Utility::Show(None) => Some(["name", "setting", "description"].map(text_column).to_vec()),
            Utility::Show(Some(name)) => Some(vec![text_column(DEFINITIONS[settings::find(name)?].name)]),
            Utility::Execute { name, .. } => self.prepared(name)?.columns().map(<[OutputColumn]>::to_vec),
            _ => None,
        }))
    }

    /// Runs a statement that has no plan, and gives how it has ended; `None` when it has one. Of parameters, only EXPLAIN has some: as in PostgreSQL,
    /// nobody asks for those that others are given.
    pub(super) fn utility(
        &mut self,
        parsed: &Arc<Parsed>,
        parameters: Parameters<'_>,
        standing: Standing,
        client: &mut dyn Client,
    ) -> Result<Option<CommandTag>> {
        let alone = !standing.is_of_several();
        self.refuse_in_failed(parsed)?;
        if is_planned(parsed) {
            return Ok(None);
        }
        let utility = match &parsed.kind {
            Kind::Utility(utility) => &**utility,
            Kind::Sql(_) => {
                let done = self.define(parsed)?;
                return self.finish_utility(done, standing, client).map(Some);
            }
        };
        if let Utility::Execute { name, arguments } = utility {
            return self.execute_sql(name, arguments, standing, client).map(Some);
        }
        if let Some(done) = self.transaction_statement(parsed, utility, standing)? {
            self.complete(&done, client)?;
            return Ok(Some(done));
        }
        let done = match utility {
            Utility::Set { name, values, local } => {
                let value = values.as_ref().map(|values| values.join(", "));
                self.set_one(name, value.as_deref(), *local)?;
                tag("SET")
            }
            Utility::Reset(None) => {
                self.ensure_transaction()?;
                self.state.reset_settings();
                tag("RESET")
            }
            Utility::Reset(Some(name)) => {
                self.set_one(name, None, false)?;
                tag("RESET")
            }
            Utility::Show(name) => self.show(name.as_deref(), client)?,
            Utility::Explain { options, statement } => {
                self.explain(options, statement, parameters, client)?
            }
            Utility::Prepare { name, types, statement } => self.prepare_sql(name, types, statement)?,
            Utility::Deallocate(name) => self.deallocate(name.as_deref())?,
            Utility::Discard(what) => self.discard(*what, alone)?,
            Utility::CloseAll => {
                self.close_portals();
                tag("CLOSE CURSOR ALL")
            }
            Utility::Unlisten => tag("UNLISTEN"),
            Utility::OwnRole(command) => tag(command),
            Utility::Vacuum(options) => self.vacuum(parsed, options, alone)?,
            Utility::Checkpoint => {
                if !self.is_superuser() {
                    return Err(Error::new(
                        SqlState::INSUFFICIENT_PRIVILEGE,
                        "must be superuser or have privileges of pg_checkpoint to do CHECKPOINT",
                    ));
                }
                self.database.store().checkpoint()?;
                tag("CHECKPOINT")
            }
            Utility::BackupDatabase(backup) => self.backup_database(backup, alone, client)?,
            Utility::CheckDatabase { verbose } => self.check_database(*verbose, alone, client)?,
            Utility::CompactDatabase { verbose } => self.compact_database(*verbose, alone, client)?,
            Utility::DumpDatabase(dump) => self.dump_database(dump, alone, client)?,
            Utility::LoadDatabase(load) => self.load_database(load, alone, client)?,
            Utility::RestoreDatabase(restore) => self.restore_database(restore, alone, client)?,
            Utility::StatDatabase { table, records, verbose } => {
                self.stat_database(table.as_ref(), *records, *verbose, alone, client)?
            }
            Utility::SweepDatabase { show, verbose } => {
                self.sweep_database(*show, *verbose, alone, client)?
            }
            Utility::Verify(statement) => self.verify(statement, alone, client)?,
            Utility::Copy(statement) => copy::run(self, statement, client)?,
            Utility::Analyze(_)
            | Utility::CreateRole { .. }
            | Utility::AlterRole { .. }
            | Utility::DropRole { .. }
            | Utility::CreateSequence { .. }
            | Utility::AlterSequence { .. } => self.define(parsed)?,
            Utility::Unsupported(name) => return Err(Error::unsupported(name)),
            Utility::Begin(_)
            | Utility::Commit { .. }
            | Utility::Rollback { .. }
            | Utility::Savepoint(_)
            | Utility::Release(_)
            | Utility::RollbackTo(_)
            | Utility::SetTransaction { .. }
            | Utility::Execute { .. } => return Err(Error::internal("a statement was dispatched twice")),
        };
        self.finish_utility(done, standing, client).map(Some)
    }

    /// What may fail at the end has to fail before success is reported, unless more is to come before the end.
    fn finish_utility(
        &mut self,
        done: CommandTag,
        standing: Standing,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        if standing.ends_text() {
            self.end_implicit()?;
        }
        self.complete(&done, client)?;
        Ok(done)
    }

    /// Ends the transaction that was begun to read this statement, as it is to run in none; refused where one has done something.
    /// `alone`: no other statement is of the same text.
    pub(super) fn leave_transaction(&mut self, statement: &str, alone: bool) -> Result<()> {
        let open = self.transaction.as_ref();
        let message = if !alone || open.is_some_and(|open| open.explicit) {
            format!("{statement} cannot run inside a transaction block")
        } else if open.is_some_and(|open| open.has_work(&self.state)) {
            format!("{statement} cannot be executed within a pipeline")
        } else {
            return self.rollback();
        };
        Err(Error::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
    }

    // ---- transactions -----------------------------------------------------------------------------------------

    fn transaction_statement(
        &mut self,
        parsed: &Parsed,
        utility: &Utility,
        standing: Standing,
    ) -> Result<Option<CommandTag>> {
        Ok(Some(match utility {
            Utility::Begin(modes) => {
                self.begin(*modes)?;
                let start =
                    parsed.text.trim_start().get(..5).is_some_and(|word| word.eq_ignore_ascii_case("start"));
                tag(if start { "START TRANSACTION" } else { "BEGIN" })
            }
            Utility::Commit { chain } => self.end_transaction(*chain, Self::commit_explicit)?,
            Utility::Rollback { chain } => {
                self.end_transaction(*chain, |session| session.rollback().map(|()| tag("ROLLBACK")))?
            }
            Utility::RollbackTo(name) => {
                self.rollback_to(name)?;
                tag("ROLLBACK")
            }
            Utility::Savepoint(name) => {
                self.explicit("SAVEPOINT")?;
                if let Some(open) = &mut self.transaction {
                    open.savepoint(name.clone(), &self.state)?;
                }
                tag("SAVEPOINT")
            }
            Utility::Release(name) => {
                self.explicit("RELEASE SAVEPOINT")?;
                if let Some(open) = &mut self.transaction {
                    let left = open.release(name, &self.state)?;
                    self.portals
                        .values_mut()
                        .for_each(|portal| portal.savepoints = portal.savepoints.min(left));
                }
                self.note_open();
                tag("RELEASE")
            }
            Utility::SetTransaction { modes, session } => {
                if *session {
                    self.set_session_modes(*modes)?;
                } else {
                    self.ensure_transaction()?;
                    // Those of one text are one transaction, as if BEGIN and COMMIT were around them. Otherwise it is one that ends soon, most often at once.
                    let is_block = self.transaction.as_ref().is_some_and(|open| open.explicit)
                        || standing.is_of_several();
                    if !is_block {
                        self.state.notice(Notice::warning(
                            SqlState::NO_ACTIVE_SQL_TRANSACTION,
                            "SET TRANSACTION can only be used in transaction blocks",
                        ));
                    }
                    self.set_modes(*modes)?;
                    if standing.ends_text() {
                        self.end_implicit()?;
                    }
                }
                tag("SET")
            }
            _ => return Ok(None),
        }))
    }

    fn begin(&mut self, modes: TransactionModes) -> Result<()> {
        let was_explicit = self.transaction.as_ref().is_some_and(|open| open.explicit);
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
        let done = self.set_modes(modes);
        if let (Err(_), Some(open)) = (&done, &mut self.transaction) {
            // A BEGIN that fails leaves no failed transaction behind, which its client would have to end.
            open.explicit = was_explicit;
        }
        done
    }

    fn note_transaction(&self, level: Level, read_only: bool) {
        self.state.note_setting(Key::TransactionIsolation, level.name);
        self.state.note_setting(Key::TransactionReadOnly, if read_only { "on" } else { "off" });
    }

    /// Shows the open transaction's modes.
    pub(super) fn note_open(&self) {
        if let Some(open) = &self.transaction {
            self.note_transaction(open.level, open.read_only);
        }
    }

    fn set_modes(&mut self, modes: TransactionModes) -> Result<()> {
        let TransactionModes { isolation, read_only, deferrable } = modes;
        let Some(open) = &mut self.transaction else { return Ok(()) };
        if let Some(isolation) = isolation {
            open.set_level(&self.database.0, &self.state, Level::named(isolation.name())?)?;
        }
        if let Some(read_only) = read_only {
            if open.read_only && !read_only && open.used {
                return Err(Error::new(
                    SqlState::ACTIVE_SQL_TRANSACTION,
                    "transaction read-write mode must be set before any query",
                ));
            }
            open.read_only = read_only;
        }
        if deferrable == Some(true) {
            self.state.notice(Notice::warning(
                SqlState::FEATURE_NOT_SUPPORTED,
                "DEFERRABLE has an effect on SERIALIZABLE transactions only",
            ));
        }
        self.note_open();
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
        if let Some(open) = &mut self.transaction {
            let before = open.rollback_to(name, &self.state)?;
            self.portals.forget_behind(Some(before));
        }
        self.note_open();
        Ok(())
    }

    fn commit_explicit(&mut self) -> Result<CommandTag> {
        Ok(tag(if self.commit()? { "COMMIT" } else { "ROLLBACK" }))
    }

    fn end_transaction(
        &mut self,
        chain: bool,
        end: impl FnOnce(&mut Self) -> Result<CommandTag>,
    ) -> Result<CommandTag> {
        let (level, read_only) = match &self.transaction {
            Some(open) if open.explicit => (open.level, open.read_only),
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
            open.set_level(&self.database.0, &self.state, level)?;
            open.read_only = read_only;
            self.transaction = Some(open);
            self.state.begin_chained();
            self.note_open();
        } else {
            let (level, read_only) = {
                let settings = self.state.settings();
                (settings.level, settings.read_only)
            };
            self.note_transaction(level, read_only);
        }
        Ok(done)
    }

    // ---- settings ---------------------------------------------------------------------------------------------

    fn set_session_modes(&mut self, modes: TransactionModes) -> Result<()> {
        if let Some(read_only) = modes.read_only {
            self.set_one("default_transaction_read_only", Some(if read_only { "on" } else { "off" }), false)?;
        }
        if let Some(isolation) = modes.isolation {
            self.set_one("default_transaction_isolation", Some(isolation.name()), false)?;
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
            let default = self.state.settings().level;
            let level = value.map_or(Ok(default), |value| Level::named(&value.to_lowercase()))?;
            if let Some(open) = &mut self.transaction {
                open.set_level(&self.database.0, &self.state, level)?;
            }
            self.note_open();
            return Ok(());
        }
        self.state.change_setting(index, value, local)?;
        if index == Key::TransactionReadOnly as usize {
            let read_only = Some(self.state.settings().get(Key::TransactionReadOnly) == "on");
            self.set_modes(TransactionModes { read_only, ..TransactionModes::default() })?;
        }
        Ok(())
    }

    fn show(&mut self, name: Option<&str>, client: &mut dyn Client) -> Result<CommandTag> {
        // Some settings are the transaction's.
        self.ensure_transaction()?;
        let (columns, rows) = match name {
            None => {
                let columns = ["name", "setting", "description"].map(text_column).to_vec();
                let settings = self.state.settings();
                let row = |(index, definition): (usize, &settings::Definition)| {
                    [definition.name, settings.text(index), definition.description].map(Value::text).to_vec()
                };
                (columns, DEFINITIONS.iter().enumerate().map(row).collect::<Vec<_>>())
            }
            Some(name) => {
                let index = settings::find(name)?;
                let value = self.state.settings().text(index).to_owned();
                (vec![text_column(DEFINITIONS[index].name)], vec![vec![Value::text(value)]])
            }
        };
        give(&columns, &rows, self, client)?;
        Ok(tag("SHOW"))
    }

    // ---- EXPLAIN ----------------------------------------------------------------------------------------------

    fn explain(
        &mut self,
        options: &ExplainOptions,
        statement: &Parsed,
        parameters: Parameters<'_>,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let prepared;
        let started = gannet_base::clock::now();
        self.ensure_transaction()?;
        let values = match &statement.kind {
            Kind::Utility(utility) => match &**utility {
                Utility::Execute { name, arguments } => {
                    let known = self.prepared(name)?;
                    let values = self.arguments(name, &known, arguments)?;
                    // What EXECUTE would do now; what is to be run finds out itself.
                    prepared = match &known.parsed {
                        Some(parsed) if !options.analyze && is_planned(parsed) => {
                            self.plan(parsed, &known.parameters)?
                        }
                        _ => known,
                    };
                    values
                }
                _ => return Err(Error::unsupported("EXPLAIN of a utility statement")),
            },
            Kind::Sql(_) if is_planned(statement) => {
                prepared = self.plan_given(&Arc::new(statement.clone()), parameters.types)?;
                parameters.values.to_vec()
            }
            Kind::Sql(_) => return Err(Error::unsupported("EXPLAIN of a definition")),
        };
        let planning = started.elapsed();
        let plan = prepared.plan.clone().ok_or_else(|| Error::internal("no plan"))?;
        let text = if options.analyze {
            let mut running = self.start(&prepared, values, true)?;
            let started = gannet_base::clock::now();
            self.exhaust(&mut running)?;
            let run = explain::Run { nodes: running.profile(), planning, execution: started.elapsed() };
            explain::explain(running.plan(), options, Some(&run))
        } else {
            explain::explain(&plan.statement, options, None)
        };
        let rows: Vec<Vec<Value>> = match options.format {
            ExplainFormat::Text => text.lines().map(|line| vec![Value::text(line)]).collect(),
            ExplainFormat::Json => vec![vec![Value::text(text)]],
        };
        give(&[text_column("QUERY PLAN")], &rows, self, client)?;
        Ok(tag("EXPLAIN"))
    }

    // ---- prepared statements in SQL -----------------------------------------------------------------------------

    fn prepare_sql(&mut self, name: &str, types: &[Type], statement: &Parsed) -> Result<CommandTag> {
        if !is_planned(statement) {
            return Err(Error::unsupported("PREPARE of this statement"));
        }
        self.ensure_transaction()?;
        let prepared = self.plan(&Arc::new(statement.clone()), types)?;
        self.keep_prepared(name, prepared, true)?;
        Ok(tag("PREPARE"))
    }

    fn execute_sql(
        &mut self,
        name: &str,
        arguments: &[ast::Expr],
        standing: Standing,
        client: &mut dyn Client,
    ) -> Result<CommandTag> {
        let (prepared, values) = self.executed(name, arguments)?;
        let Some(parsed) = prepared.parsed.clone().filter(|_| prepared.plan.is_none()) else {
            let mut running = self.start(&prepared, values, false)?;
            if prepared.columns.is_some() {
                client.columns(running.columns(), &self.state.style)?;
            }
            self.advance(&mut running, 0, client)?;
            let tag = running.tag();
            drop(running);
            if standing.ends_text() {
                // What may fail at the end has to fail before success is reported.
                self.end_implicit()?;
            }
            self.complete(&tag, client)?;
            return Ok(tag);
        };
        let parameters = Parameters { types: &prepared.parameters, values: &values };
        let done = self.utility(&parsed, parameters, Standing::OneOfSeveral, client)?;
        if standing.ends_text() {
            self.end_implicit()?;
        }
        done.ok_or_else(|| Error::internal("a statement that is neither planned nor a utility"))
    }

    /// What EXECUTE runs, and with what.
    fn executed(&mut self, name: &str, arguments: &[ast::Expr]) -> Result<(Arc<Prepared>, Vec<Value>)> {
        let prepared = self.prepared(name)?;
        // By the protocol an EXECUTE can be prepared, too, and then be another one's, which is its own.
        let is_execute =
            |kind: &Kind| matches!(kind, Kind::Utility(it) if matches!(**it, Utility::Execute { .. }));
        if prepared.parsed.as_ref().is_some_and(|parsed| is_execute(&parsed.kind)) {
            return Err(Error::unsupported("EXECUTE of a prepared EXECUTE"));
        }
        self.ensure_transaction()?;
        let values = self.arguments(name, &prepared, arguments)?;
        Ok((prepared, values))
    }

    /// Starts what an EXECUTE runs, where that has a plan; `None`: it is no EXECUTE, or of a statement that has none.
    pub(super) fn start_executed(&mut self, parsed: &Parsed) -> Result<Option<Running>> {
        let Kind::Utility(utility) = &parsed.kind else { return Ok(None) };
        let Utility::Execute { name, arguments } = &**utility else { return Ok(None) };
        if self.prepared(name)?.plan.is_none() {
            return Ok(None);
        }
        let (prepared, values) = self.executed(name, arguments)?;
        self.start(&prepared, values, false).map(Some)
    }

    fn arguments(&mut self, name: &str, prepared: &Prepared, arguments: &[ast::Expr]) -> Result<Vec<Value>> {
        if arguments.len() != prepared.parameters.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {} parameters but got {}.",
                prepared.parameters.len(),
                arguments.len()
            )));
        }
        if arguments.is_empty() {
            return Ok(Vec::new());
        }
        self.values(|scope| {
            let typed = arguments.iter().zip(&prepared.parameters).enumerate();
            let bind = |(index, (expr, ty)): (usize, (&ast::Expr, &Type))| {
                Ok((bind::bind_argument(scope, index + 1, *ty, expr)?, *ty))
            };
            typed.map(bind).collect()
        })
    }

    fn deallocate(&mut self, name: Option<&str>) -> Result<CommandTag> {
        let Some(name) = name else {
            self.prepared.close_all(&self.portals);
            self.state.forget_prepared(None);
            return Ok(tag("DEALLOCATE ALL"));
        };
        self.prepared(name)?;
        self.close_prepared(name);
        Ok(tag("DEALLOCATE"))
    }

    fn discard(&mut self, what: Discard, alone: bool) -> Result<CommandTag> {
        Ok(match what {
            Discard::All => {
                self.leave_transaction("DISCARD ALL", alone)?;
                self.close_portals();
                self.prepared.clear();
                self.state.forget_prepared(None);
                self.ensure_transaction()?;
                self.state.reset_settings();
                self.state.forget_sequences();
                tag("DISCARD ALL")
            }
            // Plans are kept by the definitions they were made with; there are no others to be forgotten.
            Discard::Plans => tag("DISCARD PLANS"),
            Discard::Sequences => {
                self.state.forget_sequences();
                tag("DISCARD SEQUENCES")
            }
            // There are no temporary tables to be discarded.
            Discard::Temporary => tag("DISCARD TEMP"),
        })
    }

    // ---- definitions and upkeep -------------------------------------------------------------------------------

    fn define(&mut self, parsed: &Parsed) -> Result<CommandTag> {
        if let Some(command) = crate::ddl::changing(parsed) {
            self.refuse_in_read_only(|| format!("cannot execute {command} in a read-only transaction"))?;
        }
        self.ensure_transaction()?;
        let shared = Arc::clone(&self.database.0);
        let open = self.transaction.as_mut().ok_or_else(|| Error::internal("no transaction"))?;
        open.used = true;
        open.define(&shared, &self.state, &self.interrupt, parsed)
    }

    fn vacuum(&mut self, parsed: &Parsed, options: &Maintenance, alone: bool) -> Result<CommandTag> {
        let Maintenance { analyze, verbose: _, full, freeze, passed_over, tables } = options;
        if *full {
            return Err(Error::unsupported("VACUUM FULL"));
        }
        if *freeze {
            self.state.notice(Notice::warning(
                SqlState::FEATURE_NOT_SUPPORTED,
                "FREEZE has no effect: transaction numbers never wrap around",
            ));
        }
        for option in passed_over {
            self.state.notice(Notice::warning(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("{option} has no effect: a sweep removes what there is, see gannet_jobs"),
            ));
        }
        self.leave_transaction("VACUUM", alone)?;
        let catalog = self.database.catalog();
        let mut own = Vec::new();
        for (relation, columns) in tables {
            let Some(table) = catalog.table(&relation.name) else {
                return Err(Error::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{}\" does not exist", relation.name),
                )
                .at(relation.position));
            };
            if self.may_vacuum(table) {
                own.push((relation.clone(), columns.clone()));
            }
        }
        if own.is_empty() && !tables.is_empty() {
            return Ok(tag("VACUUM"));
        }
        // Garbage is found through undo, not through tables: one sweep takes it from all of them.
        let interrupt = self.interrupt();
        let mut order = JobOrder::new(JobKind::Sweep);
        order.owner = u64::try_from(self.state.pid).ok();
        order.reason = format!("VACUUM by {}", self.state.user);
        order.pace = self.state.settings().job_pace;
        let job = self.database.store().jobs().begin(order);
        let mut tell = |_: &JobReport| interrupt.check().map_err(|_| gannet_store::Error::Cancelled);
        let swept = job.end(self.database.store().sweep_watched(false, &mut Watch::new(&job, &mut tell)));
        interrupt.check()?;
        swept?;
        if *analyze {
            let text = parsed.text.clone();
            let mut analyze = parsed.clone();
            let options = Maintenance { tables: own, passed_over: Vec::new(), ..options.clone() };
            analyze.kind = Kind::Utility(Box::new(Utility::Analyze(options)));
            analyze.text = text;
            self.define(&analyze)?;
        }
        Ok(tag("VACUUM"))
    }

    /// Whether the table is the role's own; tells the client that others are passed over.
    fn may_vacuum(&self, table: &Table) -> bool {
        let own = self.state.rights(None).is_ok_and(|rights| rights.has(table.owner));
        if !own {
            let message =
                format!("skipping \"{}\" --- only table or database owner can vacuum it", table.name);
            self.state.notice(Notice::warning(SqlState::WARNING, message));
        }
        own
    }

    pub(super) fn is_superuser(&self) -> bool {
        let private = self.transaction.as_ref().and_then(|open| open.private.as_ref());
        self.state.is_superuser(private.map(|private| &*private.catalog))
    }
}

/// Gives rows that were computed here to the client.
pub(super) fn give(
    columns: &[OutputColumn],
    rows: &[Vec<Value>],
    session: &Session,
    client: &mut dyn Client,
) -> Result<()> {
    client.columns(columns, &session.state.style)?;
    for row in rows {
        client.row(row, columns, &session.state.style)?;
    }
    Ok(())
}
