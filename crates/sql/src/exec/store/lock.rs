//! FOR UPDATE and its kin.

use super::super::expr::eval_all;
use super::super::{Batch, Context, Operator};
use super::access::table_tree;
use super::describe::{self, waited_too_long};
use crate::logical::{LockStrength, LockWait};
use crate::physical::{LockTarget, Recheck, RecheckStep, Target};
use crate::types::Value;
use crate::{Error, Result, SqlState};
use gannet_store::{Error as StoreError, LockMode, Outcome};
use std::sync::Arc;

/// Key and bytes of a row, where a row of the input has it; `None` where an outer join found no partner.
pub(super) type Identity = Option<(Arc<[u8]>, Arc<[u8]>)>;

/// Takes a row's identity out of a row of the input.
pub(super) fn identity(row: &[Value], at: usize) -> Result<Identity> {
    match (&row[at], &row[at + 1]) {
        (Value::Bytes(key), Value::Bytes(bytes)) => Ok(Some((Arc::clone(key), Arc::clone(bytes)))),
        (Value::Null, _) => Ok(None),
        _ => Err(Error::internal("a row without identity")),
    }
}

impl Target {
    /// Puts the row as it is now in the place of what was seen of it.
    pub(super) fn reread(&self, row: &mut [Value], key: &[u8], bytes: &[u8]) -> Result<()> {
        let columns: Vec<usize> = self.columns.iter().map(|(in_table, _)| *in_table).collect();
        let mut values = Vec::with_capacity(columns.len());
        self.table.codec().decode_row(key, bytes, &columns, &mut values)?;
        for ((_, in_row), value) in self.columns.iter().zip(values) {
            row[*in_row] = value;
        }
        row[self.identity + 1] = Value::Bytes(bytes.into());
        Ok(())
    }
}

/// Locks rows that pass. One that somebody else has changed meanwhile is looked at again as it is now, and passes if it fulfils the
/// conditions still.
#[derive(Debug)]
pub(super) struct LockRows {
    input: Box<dyn Operator>,
    targets: Arc<[LockTarget]>,
    recheck: Arc<Recheck>,
    width: usize,
    batch: Batch,
}

impl LockRows {
    pub(super) fn new(
        input: Box<dyn Operator>,
        targets: &Arc<[LockTarget]>,
        recheck: &Arc<Recheck>,
        width: usize,
    ) -> Self {
        let (targets, recheck) = (Arc::clone(targets), Arc::clone(recheck));
        LockRows { input, targets, recheck, width, batch: Batch::new() }
    }

    /// Locks what stands behind a row of the input; false when the row does not pass. It is looked at again when all of it is locked: what another
    /// transaction has changed together is seen together.
    fn lock(&self, context: &Context<'_>, row: &mut [Value]) -> Result<bool> {
        let mut before = None;
        for target in &*self.targets {
            while let Some((key, bytes)) = identity(row, target.target.identity)? {
                match target.lock(context, &key, &bytes)? {
                    None | Some(Outcome::Gone | Outcome::Repeated) => return Ok(false),
                    Some(Outcome::Moved) => return Err(describe::moved()),
                    Some(Outcome::Done) => break,
                    Some(Outcome::Changed(newer)) => {
                        if before.is_none() {
                            before = Some(eval_all(&self.recheck.fixed, row, context)?);
                        }
                        target.target.reread(row, &key, &newer)?;
                    }
                }
            }
        }
        before.map_or(Ok(true), |before| self.recheck.passes(row, &before.0, context))
    }
}

impl Recheck {
    /// Whether a row that was read anew passes. `before`: what is not to change.
    fn passes(&self, row: &mut [Value], before: &[Value], context: &Context<'_>) -> Result<bool> {
        self.stays(row, before, context)?;
        for step in &self.steps {
            match step {
                RecheckStep::Holds(condition) => {
                    if !condition.is_true(row, context)? {
                        return Ok(false);
                    }
                }
                RecheckStep::Joins { on, columns } => {
                    if !on.is_true(row, context)? {
                        columns.iter().for_each(|column| row[*column] = Value::Null);
                        self.stays(row, before, context)?;
                    }
                }
            }
        }
        Ok(true)
    }

    fn stays(&self, row: &[Value], before: &[Value], context: &Context<'_>) -> Result<()> {
        for (expr, before) in self.fixed.iter().zip(before) {
            if !expr.eval(row, context)?.is_identical(before) {
                return Err(describe::stale());
            }
        }
        Ok(())
    }
}

impl LockTarget {
    /// Locks a row; `None` when it is to be left out.
    fn lock(&self, context: &Context<'_>, key: &[u8], seen: &[u8]) -> Result<Option<Outcome>> {
        let mode = match self.strength {
            LockStrength::KeyShare => LockMode::KeyShare,
            LockStrength::Share => LockMode::Share,
            LockStrength::Update => LockMode::Exclusive,
        };
        let table = &self.target.table;
        let tree = table_tree(table, context.view)?;
        let wait = self.wait == LockWait::Block;
        let outcome = context.transaction.borrow_mut().lock_seen(context.view, tree, key, seen, mode, wait);
        match outcome {
            Ok(outcome) => Ok(Some(outcome)),
            Err(StoreError::Locked(_)) if self.wait == LockWait::SkipLocked => Ok(None),
            Err(StoreError::Locked(_)) if self.wait == LockWait::NoWait => {
                let message = format!("could not obtain lock on row in relation \"{}\"", table.name);
                Err(Error::new(SqlState::LOCK_NOT_AVAILABLE, message))
            }
            Err(error) => Err(waited_too_long(error)),
        }
    }
}

impl Operator for LockRows {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width);
        // No more rows are asked for than are wanted: all that come are locked.
        while out.is_empty() {
            context.check()?;
            let mut batch = std::mem::take(&mut self.batch);
            let more = self.input.next(context, limit, &mut batch)?;
            for index in 0..if more { batch.len() } else { 0 } {
                if self.lock(context, batch.row_mut(index))? {
                    out.push(batch.row_mut(index).iter_mut().map(std::mem::take));
                }
            }
            batch.give_back();
            out.has_room(context, limit)?;
            self.batch = batch;
            if !more {
                break;
            }
        }
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.input.rewind(context)
    }
}
