//! For each outer row, rows of a table found by key.
//!
//! # Guarantees
//! 1. The outer rows' order is kept, and for each of them that of the index.
//! 2. With look-ahead the leaves of many keys are asked for at once: those of the index for the outer rows that wait to be looked up,
//!    those of the table's rows through a [`Window`]. Outer rows are taken early enough for both to stay filled. Without
//!    look-ahead each leaf is read when its turn comes.
//! 3. Where an entry of the index says all there is to say, the table is not visited.

use super::super::{BATCH_ROWS, Batch, Context, Operator, memory::Memory, row_bytes};
use super::access::{Rows, index_tree, scan, table_tree};
use super::ahead::{Keys, Window, prefetch};
use crate::codec::key::{KeyColumn, successor};
use crate::codec::range::{Range, encode_equal};
use crate::exec::spill::RowValues;
use crate::logical::JoinKind;
use crate::physical::{Expr, Node, Plan};
use crate::types::Value;
use crate::{Error, Result};
use gannet_base::memory::Purpose;
use gannet_store::{Scan, Tree, View};
use std::collections::VecDeque;

/// Outer rows that wait to be looked up, at first and at most.
const FIRST_OUTER: usize = 64;
const MOST_OUTER: usize = 1024;
/// Visits and ends of outer rows that are known ahead, at most.
const MOST_EVENTS: usize = 4 * MOST_OUTER;
/// Leaves of the index that are asked for together.
const PROBES_AT_ONCE: usize = 128;

/// Index join: gives outer columns, then those of the inner side.
#[derive(Debug)]
pub(super) struct IndexJoin {
    join: Join,
    outer: Box<dyn Operator>,
    outer_done: bool,
    /// Rows as the outer side gives them.
    incoming: Batch,
    /// Outer rows from number `first` on, which is the oldest that something is still to be done for. All numbers of outer rows are
    /// counted from the beginning.
    batch: Batch,
    first: usize,
    /// What is looked up for each of them, nothing where its key has a NULL.
    probes: Keys,
    known: VecDeque<bool>,
    /// How many outer rows may wait to be looked up.
    lead: usize,
    /// Up to which outer row the index was asked ahead.
    asked: usize,
    /// The outer row whose turn it is to be looked up.
    next_probe: usize,
    memory: Memory,
    /// Entries for the outer row before that.
    scan: Option<Box<Scan>>,
    /// What is still to be done in visits: see [`Event`].
    events: VecDeque<Event>,
    window: Window,
    /// Whether the outer row under way has found something.
    matched: bool,
    /// An outer row with an inner one, of which nothing is given.
    scratch: RowValues,
}

/// What comes next in visits to the table.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An inner row for this outer one: its key is the window's first.
    Visit(usize),
    /// There are no more for this outer row.
    End(usize),
}

impl Event {
    fn outer(self) -> usize {
        let (Event::Visit(number) | Event::End(number)) = self;
        number
    }
}

/// What does not change.
#[derive(Debug)]
struct Join {
    kind: JoinKind,
    rows: Rows,
    outer_width: usize,
    /// By position in the table; `None`: the primary key.
    index: Option<usize>,
    /// The index has all that is taken.
    index_only: bool,
    keys: Vec<Expr>,
    /// A key has one entry at most.
    whole_key: bool,
    residual: Option<Expr>,
    look_ahead: bool,
}

impl Join {
    fn columns(&self) -> &[KeyColumn] {
        let codec = self.rows.access.table.codec();
        self.index.map_or(codec.key_columns(), |index| codec.index_columns(index))
    }

    /// Where the keys are looked up.
    fn tree(&self, view: &View) -> Result<&Tree> {
        match self.index {
            Some(index) => index_tree(&self.rows.access.table, index, view),
            None => table_tree(&self.rows.access.table, view),
        }
    }

    /// Whether rows are fetched by keys that were found before.
    fn visits(&self) -> bool {
        if self.index.is_some() { !self.index_only } else { self.whole_key }
    }

    fn width(&self) -> usize {
        self.outer_width + if self.gives_inner() { self.rows.width() } else { 0 }
    }

    fn gives_inner(&self) -> bool {
        matches!(self.kind, JoinKind::Inner | JoinKind::Left)
    }

    /// Appends what a lookup has found.
    fn decode(&self, key: &[u8], value: &[u8], values: &mut Vec<Value>) -> Result<()> {
        match self.index.filter(|_| self.index_only) {
            Some(index) => self.rows.decode_entry(index, key, value, values),
            None => self.rows.decode(key, value, values),
        }
    }

    /// Joins an outer row with an inner one, which `decode` appends if it is there; true when they belong together.
    fn candidate(
        &self,
        context: &Context<'_>,
        outer: &[Value],
        (out, scratch): (&mut Batch, &mut RowValues),
        decode: impl FnOnce(&mut Vec<Value>) -> Result<bool>,
    ) -> Result<bool> {
        // Who gives no inner columns needs the outer ones for a condition on both only.
        let outer = if self.gives_inner() || self.residual.is_some() { outer } else { &[] };
        let fill = |values: &mut Vec<Value>| {
            let start = values.len();
            values.extend_from_slice(outer);
            if !decode(values)? || !self.rows.passes(&values[start + outer.len()..], context)? {
                return Ok(false);
            }
            match &self.residual {
                Some(residual) => residual.is_true(&values[start..], context),
                None => Ok(true),
            }
        };
        if self.gives_inner() {
            return out.push_with(fill);
        }
        let charge = |bytes| context.session.engine.memory(Purpose::Work, bytes);
        let belong = fill(scratch.begin(row_bytes(outer), charge)?);
        // The inner row's long values are charged as they are read.
        scratch.forget();
        belong
    }

    /// What an outer row gives when all its inner rows were seen.
    fn end(&self, outer: &[Value], matched: bool, out: &mut Batch) {
        match self.kind {
            JoinKind::Left if !matched => {
                let nulls = std::iter::repeat_n(Value::Null, self.rows.width());
                out.push(outer.iter().cloned().chain(nulls));
            }
            JoinKind::Semi if matched => out.push(outer.iter().cloned()),
            JoinKind::Anti if !matched => out.push(outer.iter().cloned()),
            _ => {}
        }
    }

    /// Whether further inner rows make no difference.
    fn is_settled(&self, matched: bool) -> bool {
        matched && !self.gives_inner()
    }
}

impl IndexJoin {
    pub(super) fn new(plan: &Plan, outer: Box<dyn Operator>, outer_width: usize) -> Result<Self> {
        let Node::IndexJoin { kind, access, index, index_only, keys, residual, look_ahead, .. } = &plan.node
        else {
            return Err(Error::internal("not an index join"));
        };
        if *kind == JoinKind::Full {
            return Err(Error::internal("an index join does not see inner rows without partner"));
        }
        let table = &access.table;
        let index = index.filter(|index| !table.indexes[*index].primary);
        let unique = index.is_none_or(|index| table.indexes[index].unique);
        let mut join = Join {
            kind: *kind,
            rows: Rows::new(plan.id, access),
            outer_width,
            index,
            index_only: *index_only && index.is_some(),
            keys: keys.clone(),
            whole_key: false,
            residual: residual.clone(),
            look_ahead: *look_ahead,
        };
        join.whole_key = unique && keys.len() == join.columns().len();
        if !join.gives_inner()
            && join.rows.access.filter.is_none()
            && join.residual.is_none()
            && index.is_some()
        {
            // Whether there is a row is all that is asked.
            join.rows = join.rows.without_columns();
            join.index_only = true;
        }
        let mut batch = Batch::new();
        batch.reset(outer_width);
        Ok(IndexJoin {
            window: Window::new(join.look_ahead),
            join,
            outer,
            outer_done: false,
            incoming: Batch::new(),
            batch,
            first: 0,
            probes: Keys::default(),
            known: VecDeque::new(),
            lead: 0,
            asked: 0,
            memory: Memory::default(),
            next_probe: 0,
            scan: None,
            events: VecDeque::new(),
            matched: false,
            scratch: RowValues::default(),
        })
    }

    /// Outer rows that wait to be looked up.
    fn waiting(&self) -> usize {
        self.first + self.batch.len() - self.next_probe
    }

    /// Sees to it that outer rows wait to be looked up; false when there are no more.
    fn load(&mut self, context: &Context<'_>, limit: usize) -> Result<bool> {
        let enough = if self.join.look_ahead { self.lead / 2 } else { 0 };
        if self.waiting() > enough || self.outer_done {
            return Ok(self.waiting() > 0);
        }
        if self.lead == 0 {
            self.window.begin(limit);
            self.lead = limit.clamp(1, FIRST_OUTER);
        } else {
            self.lead = (self.lead * 2).min(if self.join.look_ahead { MOST_OUTER } else { BATCH_ROWS });
        }
        self.forget();
        let mut bytes: usize = self.batch.iter().map(row_bytes).sum();
        while self.waiting() < self.lead && self.memory.reserve(context, bytes)? {
            let wanted = (self.lead - self.waiting()).min(BATCH_ROWS);
            if !self.outer.next(context, wanted, &mut self.incoming)? {
                self.outer_done = true;
                break;
            }
            for index in 0..self.incoming.len() {
                bytes += row_bytes(self.incoming.row(index));
                self.take(context, index)?;
            }
        }
        Ok(self.waiting() > 0)
    }

    /// Forgets outer rows that nothing is to be done for any more.
    fn forget(&mut self) {
        let looked_up = self.next_probe - usize::from(self.scan.is_some());
        let oldest = self.events.front().map_or(looked_up, |event| event.outer().min(looked_up));
        let gone = oldest - self.first;
        self.batch.drop_first(gone);
        self.probes.drop_first(gone);
        self.known.drain(..gone);
        self.first = oldest;
    }

    /// Takes an outer row, and works out what is looked up for it.
    fn take(&mut self, context: &Context<'_>, index: usize) -> Result<()> {
        let row = self.incoming.row_mut(index);
        let mut probe = Vec::with_capacity(16);
        let mut known = true;
        for (expr, column) in self.join.keys.iter().zip(self.join.columns()) {
            let value = expr.eval(row, context)?;
            known = known && encode_equal(std::slice::from_ref(column), [&*value], &mut probe)?;
        }
        self.probes.push(if known { &probe } else { &[] });
        self.known.push_back(known);
        self.batch.push(row.iter_mut().map(std::mem::take));
        Ok(())
    }

    /// Takes the next outer row to be looked up: its number, and whether there is anything to look for.
    fn next_outer(&mut self, context: &Context<'_>) -> Result<(usize, bool)> {
        self.ask(context)?;
        self.next_probe += 1;
        let number = self.next_probe - 1;
        Ok((number, self.known[number - self.first]))
    }

    /// Asks for the leaves of the next keys. Those of whole primary keys go through the window.
    fn ask(&mut self, context: &Context<'_>) -> Result<()> {
        if !self.join.look_ahead || self.join.index.is_none() && self.join.whole_key {
            return Ok(());
        }
        let end = self.first + self.batch.len();
        let from = self.asked.max(self.next_probe);
        // Either a good number of them, or what there is before it is too late.
        if from == end || end - from < PROBES_AT_ONCE && from > self.next_probe || end - self.next_probe < 2 {
            return Ok(());
        }
        let keys = (from - self.first..end - self.first).filter(|place| self.known[*place]);
        prefetch(context.view, self.join.tree(context.view)?, keys.map(|place| self.probes.get(place)))?;
        self.asked = end;
        Ok(())
    }

    /// Begins to look for the entries that begin with an outer row's key.
    fn open_scan(&mut self, context: &Context<'_>, number: usize) -> Result<()> {
        let lower = self.probes.get(number - self.first).to_vec();
        let mut upper = lower.clone();
        let upper = successor(&mut upper).then_some(upper);
        let mut scan = scan(context.view, self.join.tree(context.view)?, &Range { lower, upper })?;
        scan.look_ahead(self.join.look_ahead);
        self.scan = Some(Box::new(scan));
        Ok(())
    }

    /// One entry, or the end of an outer row, where what is found is all that is needed; false when there are no more.
    fn step(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        if let Some(scan) = &mut self.scan {
            let join = &self.join;
            let outer = self.batch.row(self.next_probe - 1 - self.first);
            if !join.is_settled(self.matched)
                && let Some((key, value)) = scan.next()?
            {
                self.matched |= join.candidate(context, outer, (out, &mut self.scratch), |values| {
                    join.decode(key, value, values).map(|()| true)
                })?;
                scan.forget_long();
                return Ok(true);
            }
            self.scan = None;
            join.end(outer, std::mem::take(&mut self.matched), out);
            return Ok(true);
        }
        if !self.load(context, limit)? {
            return Ok(false);
        }
        let (number, known) = self.next_outer(context)?;
        if known && !self.join.whole_key {
            self.open_scan(context, number)?;
            return Ok(true);
        }
        let join = &self.join;
        let outer = self.batch.row(number - self.first);
        let mut matched = false;
        if known {
            let key = self.probes.get(number - self.first);
            let tree = join.tree(context.view)?;
            matched = join.candidate(context, outer, (out, &mut self.scratch), |values| {
                let found = context.view.with_value(tree, key, |value| join.decode(key, value, values))?;
                found.transpose().map(|found| found.is_some())
            })?;
        }
        join.end(outer, matched, out);
        Ok(true)
    }

    /// Looks keys up in the index, and takes those of the rows found into the window.
    fn fill(&mut self, context: &Context<'_>, limit: usize) -> Result<()> {
        if self.lead == 0 {
            self.load(context, limit)?;
        }
        let wanted = self.window.wanted();
        let mut added = 0;
        // Outer rows without partner are not passed over for ever: they are to be given, or to be forgotten.
        while added < wanted && self.events.len() < MOST_EVENTS {
            if let Some(scan) = &mut self.scan {
                let Some((key, value)) = scan.next()? else {
                    self.scan = None;
                    self.events.push_back(Event::End(self.next_probe - 1));
                    continue;
                };
                let index = self.join.index.ok_or_else(|| Error::internal("a visit without an index"))?;
                self.window.keys.push(self.join.rows.access.table.codec().index_row_key(index, key, value)?);
                self.events.push_back(Event::Visit(self.next_probe - 1));
                added += 1;
                continue;
            }
            if !self.load(context, limit)? {
                break;
            }
            let (number, known) = self.next_outer(context)?;
            if known && !self.join.whole_key {
                self.open_scan(context, number)?;
                continue;
            }
            if known && self.find_one(context, number)? {
                self.events.push_back(Event::Visit(number));
                added += 1;
            }
            self.events.push_back(Event::End(number));
        }
        self.window.fetch(context, self.join.rows.tree(context.view)?, added)
    }

    /// Takes the key of the only row there can be for an outer one into the window; false when there is none.
    fn find_one(&mut self, context: &Context<'_>, number: usize) -> Result<bool> {
        let probe = self.probes.get(number - self.first);
        if self.join.index.is_none() {
            self.window.keys.push(probe);
            return Ok(true);
        }
        let (tree, keys) = (self.join.tree(context.view)?, &mut self.window.keys);
        Ok(context.view.with_value(tree, probe, |row_key| keys.push(row_key))?.is_some())
    }

    /// The next visit, or the end of an outer row; false when there are no more.
    fn visit(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        self.fill(context, limit)?;
        let Some(event) = self.events.pop_front() else { return Ok(false) };
        let (join, outer) = (&self.join, self.batch.row(event.outer() - self.first));
        let Event::Visit(_) = event else {
            join.end(outer, std::mem::take(&mut self.matched), out);
            return Ok(true);
        };
        if !join.is_settled(self.matched) {
            let key = self.window.keys.get(0);
            let tree = join.rows.tree(context.view)?;
            self.matched |= join.candidate(context, outer, (out, &mut self.scratch), |values| {
                let found = context.view.with_value(tree, key, |row| join.rows.decode(key, row, values))?;
                match (found.transpose()?, join.index) {
                    (Some(()), _) => Ok(true),
                    (None, None) => Ok(false),
                    (None, Some(index)) => Err(join.rows.missing_row(index)),
                }
            })?;
        }
        self.window.keys.advance();
        Ok(true)
    }
}

impl Operator for IndexJoin {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.join.width());
        let mut steps = 0;
        while out.has_room(context, limit)? {
            if steps % super::table_scan::CHECK_EVERY == 0 {
                context.check()?;
            }
            steps += 1;
            let more = if self.join.visits() {
                self.visit(context, limit, out)?
            } else {
                self.step(context, limit, out)?
            };
            if !more {
                break;
            }
        }
        context.note(self.join.rows.node, |profile| {
            profile.memory_bytes = profile.memory_bytes.max(self.memory.peak());
        });
        Ok(!out.is_empty())
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.outer.rewind(context)?;
        self.outer_done = false;
        self.batch.reset(self.join.outer_width);
        self.probes.clear();
        self.known.clear();
        (self.first, self.lead, self.asked, self.next_probe) = (0, 0, 0, 0);
        self.scan = None;
        self.events.clear();
        self.window.release();
        self.matched = false;
        Ok(())
    }
}
