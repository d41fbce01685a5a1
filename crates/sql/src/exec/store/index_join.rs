//! For each outer row, rows of a table found by key.
//!
//! # Guarantees
//! 1. The outer rows' order is kept, and for each of them that of the index.
//! 2. With look-ahead the leaves of many keys are asked for at once: those of the index as soon as a batch of outer rows is there,
//!    those of the table's rows through a [`Window`]. Without it each is read when its turn comes.
//! 3. Where an entry of the index says all there is to say, the table is not visited.

use super::super::{BATCH_ROWS, Batch, Context, Operator, memory::Memory, row_bytes};
use super::access::{Rows, index_tree, scan, table_tree};
use super::ahead::{Keys, Window, prefetch};
use crate::codec::key::{KeyColumn, successor};
use crate::codec::range::{Range, encode_equal};
use crate::logical::JoinKind;
use crate::physical::{Expr, Node, Plan};
use crate::types::Value;
use crate::{Error, Result};
use gannet_store::{Scan, Tree, View};
use std::collections::VecDeque;

/// Outer rows looked up together, at first and at most.
const FIRST_OUTER: usize = 64;
const MOST_OUTER: usize = 1024;
/// Leaves of the index that are asked for ahead.
const PROBES_AHEAD: usize = 256;

/// Index join: gives outer columns, then those of the inner side.
#[derive(Debug)]
pub(super) struct IndexJoin {
    join: Join,
    outer: Box<dyn Operator>,
    outer_done: bool,
    /// Rows as the outer side gives them.
    incoming: Batch,
    /// Outer rows that are looked up together.
    batch: Batch,
    wanted: usize,
    memory: Memory,
    /// What is looked up for each of them, nothing where its key has a NULL.
    probes: Keys,
    known: Vec<bool>,
    /// How many of them were asked for ahead.
    asked: usize,
    /// The outer row whose turn it is to be looked up.
    next_probe: usize,
    /// Entries for the outer row before that.
    scan: Option<Box<Scan>>,
    /// What is still to be done in visits: see [`Event`].
    events: VecDeque<Event>,
    window: Window,
    /// Whether the outer row under way has found something.
    matched: bool,
}

/// What comes next in visits to the table.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// An inner row for this outer one: its key is the window's first.
    Visit(usize),
    /// There are no more for this outer row.
    End(usize),
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
        let codec = self.rows.table.codec();
        self.index.map_or(codec.key_columns(), |index| codec.index_columns(index))
    }

    /// Where the keys are looked up.
    fn tree(&self, view: &View) -> Result<&Tree> {
        match self.index {
            Some(index) => index_tree(&self.rows.table, index, view),
            None => table_tree(&self.rows.table, view),
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
        out: &mut Batch,
        decode: impl FnOnce(&mut Vec<Value>) -> Result<bool>,
    ) -> Result<bool> {
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
        let mut scratch = Vec::new();
        fill(&mut scratch)
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
        if !join.gives_inner() && join.rows.filter.is_none() && join.residual.is_none() && index.is_some() {
            // Whether there is a row is all that is asked.
            join.rows.columns.clear();
            join.rows.identity = false;
            join.index_only = true;
        }
        Ok(IndexJoin {
            window: Window::new(join.look_ahead),
            join,
            outer,
            outer_done: false,
            incoming: Batch::new(),
            batch: Batch::new(),
            wanted: 0,
            memory: Memory::default(),
            probes: Keys::default(),
            known: Vec::new(),
            asked: 0,
            next_probe: 0,
            scan: None,
            events: VecDeque::new(),
            matched: false,
        })
    }

    /// Takes the next outer rows; false when there are no more.
    fn load(&mut self, context: &Context<'_>, limit: usize) -> Result<bool> {
        let most = if self.join.look_ahead { MOST_OUTER } else { BATCH_ROWS };
        if self.wanted == 0 {
            self.window.begin(limit);
            self.wanted = limit.clamp(1, FIRST_OUTER);
        } else {
            self.wanted = (self.wanted * 2).min(most);
        }
        self.batch.reset(self.join.outer_width);
        self.probes.clear();
        self.known.clear();
        (self.asked, self.next_probe) = (0, 0);
        let mut bytes = 0;
        while self.batch.len() < self.wanted && !self.outer_done {
            let wanted = (self.wanted - self.batch.len()).min(BATCH_ROWS);
            if !self.outer.next(context, wanted, &mut self.incoming)? {
                self.outer_done = true;
                break;
            }
            for index in 0..self.incoming.len() {
                let row = self.incoming.row_mut(index);
                bytes += row_bytes(row);
                self.batch.push(row.iter_mut().map(std::mem::take));
            }
            if !self.memory.reserve(context, bytes)? {
                break;
            }
        }
        let mut probe = Vec::with_capacity(16);
        for row in self.batch.iter() {
            probe.clear();
            let mut known = true;
            for (expr, column) in self.join.keys.iter().zip(self.join.columns()) {
                let value = expr.eval(row, context)?;
                known = known && encode_equal(std::slice::from_ref(column), [&*value], &mut probe)?;
            }
            self.probes.push(if known { &probe } else { &[] });
            self.known.push(known);
        }
        Ok(!self.batch.is_empty())
    }

    /// Asks for the leaves of the next keys. Those of whole primary keys go through the window.
    fn ask(&mut self, context: &Context<'_>) -> Result<()> {
        if !self.join.look_ahead || self.join.index.is_none() && self.join.whole_key || self.batch.len() < 2 {
            return Ok(());
        }
        let until = (self.next_probe + 2 * PROBES_AHEAD).min(self.batch.len());
        if until - self.asked < PROBES_AHEAD && until < self.batch.len() || until == self.asked {
            return Ok(());
        }
        let keys = (self.asked..until).filter(|place| self.known[*place]).map(|place| self.probes.get(place));
        prefetch(context, self.join.tree(context.view)?, keys)?;
        self.asked = until;
        Ok(())
    }

    /// Begins to look for the entries that begin with an outer row's key.
    fn open_scan(&mut self, context: &Context<'_>, outer: usize) -> Result<()> {
        let lower = self.probes.get(outer).to_vec();
        let mut upper = lower.clone();
        let upper = successor(&mut upper).then_some(upper);
        let mut scan = scan(context.view, self.join.tree(context.view)?, &Range { lower, upper })?;
        scan.look_ahead(self.join.look_ahead);
        self.scan = Some(Box::new(scan));
        Ok(())
    }

    /// One entry, or the end of an outer row, where what is found is all that is needed; false when the batch is done.
    fn step(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<bool> {
        let join = &self.join;
        if let Some(scan) = &mut self.scan {
            let outer = self.batch.row(self.next_probe - 1);
            if !join.is_settled(self.matched)
                && let Some((key, value)) = scan.next()?
            {
                self.matched |= join.candidate(context, outer, out, |values| {
                    join.decode(key, value, values).map(|()| true)
                })?;
                return Ok(true);
            }
            self.scan = None;
            join.end(outer, std::mem::take(&mut self.matched), out);
            return Ok(true);
        }
        if self.next_probe == self.batch.len() {
            return Ok(false);
        }
        self.ask(context)?;
        let place = self.next_probe;
        self.next_probe += 1;
        if self.known[place] && !self.join.whole_key {
            self.open_scan(context, place)?;
            return Ok(true);
        }
        let join = &self.join;
        let outer = self.batch.row(place);
        let mut matched = false;
        if self.known[place] {
            let key = self.probes.get(place);
            let tree = join.tree(context.view)?;
            matched = join.candidate(context, outer, out, |values| {
                let found = context.view.with_value(tree, key, |value| join.decode(key, value, values))?;
                found.transpose().map(|found| found.is_some())
            })?;
        }
        join.end(outer, matched, out);
        Ok(true)
    }

    /// Looks keys up in the index, and takes those of the rows found into the window.
    fn fill(&mut self, context: &Context<'_>) -> Result<()> {
        let wanted = self.window.wanted();
        let mut added = 0;
        while added < wanted {
            if let Some(scan) = &mut self.scan {
                let Some((key, value)) = scan.next()? else {
                    self.scan = None;
                    self.events.push_back(Event::End(self.next_probe - 1));
                    continue;
                };
                let index = self.join.index.ok_or_else(|| Error::internal("a visit without an index"))?;
                self.window.keys.push(self.join.rows.table.codec().index_row_key(index, key, value)?);
                self.events.push_back(Event::Visit(self.next_probe - 1));
                added += 1;
                continue;
            }
            if self.next_probe == self.batch.len() {
                break;
            }
            self.ask(context)?;
            let place = self.next_probe;
            self.next_probe += 1;
            if self.known[place] && !self.join.whole_key {
                self.open_scan(context, place)?;
                continue;
            }
            if self.known[place] && self.find_one(context, place)? {
                self.events.push_back(Event::Visit(place));
                added += 1;
            }
            self.events.push_back(Event::End(place));
        }
        self.window.fetch(context, self.join.rows.tree(context.view)?, added)
    }

    /// Takes the key of the only row there can be for an outer one into the window; false when there is none.
    fn find_one(&mut self, context: &Context<'_>, place: usize) -> Result<bool> {
        let probe = self.probes.get(place);
        if self.join.index.is_none() {
            self.window.keys.push(probe);
            return Ok(true);
        }
        let (tree, keys) = (self.join.tree(context.view)?, &mut self.window.keys);
        Ok(context.view.with_value(tree, probe, |row_key| keys.push(row_key))?.is_some())
    }

    /// The next visit, or the end of an outer row; false when the batch is done.
    fn visit(&mut self, context: &Context<'_>, out: &mut Batch) -> Result<bool> {
        self.fill(context)?;
        let join = &self.join;
        match self.events.pop_front() {
            None => return Ok(false),
            Some(Event::End(place)) => {
                join.end(self.batch.row(place), std::mem::take(&mut self.matched), out);
            }
            Some(Event::Visit(place)) => {
                if !join.is_settled(self.matched) {
                    let key = self.window.keys.get(0);
                    let tree = join.rows.tree(context.view)?;
                    self.matched |= join.candidate(context, self.batch.row(place), out, |values| {
                        let found =
                            context.view.with_value(tree, key, |row| join.rows.decode(key, row, values))?;
                        match (found.transpose()?, join.index) {
                            (Some(()), _) => Ok(true),
                            (None, None) => Ok(false),
                            (None, Some(index)) => Err(join.rows.missing_row(index)),
                        }
                    })?;
                }
                self.window.keys.advance();
            }
        }
        Ok(true)
    }
}

impl Operator for IndexJoin {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.join.width());
        let mut steps = 0;
        while out.len() < limit {
            if steps % super::table_scan::CHECK_EVERY == 0 {
                context.check()?;
            }
            steps += 1;
            let more = if self.join.visits() { self.visit(context, out)? } else { self.step(context, out)? };
            if !more {
                if self.outer_done || !self.load(context, limit)? {
                    break;
                }
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
        (self.wanted, self.asked, self.next_probe) = (0, 0, 0);
        self.scan = None;
        self.events.clear();
        self.window.release();
        self.matched = false;
        Ok(())
    }
}
