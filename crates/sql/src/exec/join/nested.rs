//! Join of all with all: the right side is kept, or run anew for each row of the left side. It is read as the first row of the left side looks for
//! partners, so that whoever wants few rows does not wait for all of it; and not kept where there is no more than one row on the left.

use super::buffer::{RowBuffer, RowCursor, RowGatherer};
use super::hash::Sides;
use super::nulls;
use crate::Result;
use crate::exec::memory::Memory;
use crate::exec::{BATCH_ROWS, Batch, Context, LARGE_BYTES, Operator, walk};
use crate::logical::JoinKind;
use crate::physical::Expr;
use crate::types::Value;
use gannet_base::memory::Purpose;
use gannet_store::WorkMemory;

/// Pairs looked at between two looks at the cancellation flag.
const CHECK_EVERY: u32 = 1 << 10;

/// See the module's head.
#[derive(Debug)]
pub(in crate::exec) struct NestedLoop {
    node: usize,
    sides: Sides,
    /// There is no more than one row on the left.
    one_left: bool,
    /// What the right side takes from the left row; nothing: it is kept.
    bind: Vec<(usize, Expr)>,
    condition: Option<Expr>,
    /// Columns of the left side that the condition reads, and of the right one.
    read_left: Vec<usize>,
    read: Vec<usize>,
    inner: Inner,
    /// Which rows of the right side had a partner, for FULL.
    matched: Vec<bool>,
    matched_memory: Memory,
    batch: Batch,
    current: usize,
    /// Whether the left row at hand was begun, and had a partner.
    begun: bool,
    had_partner: bool,
    /// Of the left row at hand, and of a right one, the columns that the condition reads; what the left ones take, and what all of them are
    /// charged as where they are long.
    pair: Vec<Value>,
    left_bytes: usize,
    pair_memory: Option<WorkMemory>,
    stage: Stage,
    steps: u32,
    /// Rows of the left side to ask for: more and more.
    wanted: usize,
    /// It was run more than once, and may be once more.
    rewound: bool,
}

#[derive(Debug)]
enum Inner {
    /// Not read yet.
    Unread,
    /// The first row of the left side looks at it, and it is kept meanwhile.
    Filling(Box<Filling>),
    Kept(Box<(RowBuffer, RowCursor)>),
    /// Run for each row of the left side, or for the only one.
    Bound {
        batch: Batch,
        next: usize,
    },
}

/// Rows of the right side on their way.
#[derive(Debug)]
struct Filling {
    gathered: RowGatherer,
    batch: Batch,
    next: usize,
    /// The row before the next one is looked at: it is gathered when that is over.
    at_hand: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Probe,
    /// Rows of the right side without partner.
    Unmatched,
    Done,
}

impl NestedLoop {
    pub(in crate::exec) fn new(
        node: usize,
        sides: Sides,
        one_left: bool,
        bind: &[(usize, Expr)],
        condition: Option<&Expr>,
    ) -> Self {
        let (mut read_left, mut read) = (Vec::new(), Vec::new());
        if let Some(condition) = condition {
            walk::expressions(condition, &mut |expr| {
                if let Expr::Column(column) = expr {
                    match column.checked_sub(sides.left_width) {
                        Some(column) => read.push(column),
                        None => read_left.push(*column),
                    }
                }
            });
        }
        for columns in [&mut read_left, &mut read] {
            columns.sort_unstable();
            columns.dedup();
        }
        NestedLoop {
            node,
            sides,
            one_left,
            bind: bind.to_vec(),
            condition: condition.cloned(),
            read_left,
            read,
            inner: Inner::Unread,
            matched: Vec::new(),
            matched_memory: Memory::default(),
            batch: Batch::new(),
            current: 0,
            begun: false,
            had_partner: false,
            pair: Vec::new(),
            left_bytes: 0,
            pair_memory: None,
            stage: Stage::Probe,
            steps: 0,
            wanted: 0,
            rewound: false,
        }
    }

    fn width(&self) -> usize {
        match self.sides.kind {
            JoinKind::Semi | JoinKind::Anti => self.sides.left_width,
            JoinKind::Inner | JoinKind::Left | JoinKind::Full => {
                self.sides.left_width + self.sides.right_width
            }
        }
    }

    /// Makes the right side ready for the left row at hand.
    fn begin_row(&mut self, context: &Context<'_>) -> Result<()> {
        self.begun = true;
        self.had_partner = false;
        self.begin_pair(context)?;
        let row = self.batch.row(self.current);
        if !self.bind.is_empty() {
            for (slot, expr) in &self.bind {
                let value = expr.eval(row, context)?.keep(context)?;
                context.slots.borrow_mut()[*slot] = value;
            }
            self.sides.right.rewind(context)?;
            match &mut self.inner {
                Inner::Bound { batch, next } => {
                    batch.reset(self.sides.right_width);
                    *next = 0;
                }
                inner => *inner = Inner::Bound { batch: Batch::new(), next: 0 },
            }
            return Ok(());
        }
        let is_full = self.sides.kind == JoinKind::Full;
        self.inner = match std::mem::replace(&mut self.inner, Inner::Unread) {
            Inner::Kept(mut kept) => {
                kept.1 = kept.0.cursor()?;
                Inner::Kept(kept)
            }
            Inner::Filling(mut filling) => {
                // Of whoever looks for any partner, the first one is enough.
                if !self.wants_any() {
                    filling.read_rest(&mut *self.sides.right, context)?;
                }
                filling.keep(self.node, context)?
            }
            // Who is run again and again has all of it kept for the next run, however early that ends.
            _ if is_full || self.rewound && self.sides.right_fixed && !self.wants_any() => {
                let (right, width) = (&mut *self.sides.right, self.sides.right_width);
                let buffer = RowBuffer::read(right, width, self.node, context)?;
                if is_full {
                    self.matched_memory.demand(context, buffer.len())?;
                    self.matched = vec![false; buffer.len()];
                }
                Inner::kept(buffer)?
            }
            _ if self.one_left && !(self.rewound && self.sides.right_fixed) => {
                Inner::Bound { batch: Batch::new(), next: 0 }
            }
            _ => {
                let gathered = RowGatherer::new(self.sides.right_width);
                let batch = Batch::new();
                Inner::Filling(Box::new(Filling { gathered, batch, next: 0, at_hand: false }))
            }
        };
        Ok(())
    }

    /// Whether a row of the left side looks for one partner only, and takes any.
    fn wants_any(&self) -> bool {
        matches!(self.sides.kind, JoinKind::Semi | JoinKind::Anti) && self.condition.is_none()
    }

    /// Puts the columns of the left row that the condition reads into the pair.
    fn begin_pair(&mut self, context: &Context<'_>) -> Result<()> {
        let row = self.batch.row(self.current);
        self.pair.resize(self.sides.left_width + self.sides.right_width, Value::Null);
        self.left_bytes = 0;
        if self.batch.is_charged() {
            self.left_bytes = self.read_left.iter().map(|column| row[*column].copy_bytes()).sum();
            hold_pair(&mut self.pair_memory, self.left_bytes, context)?;
        }
        for &column in &self.read_left {
            self.pair[column].clone_from(&row[column]);
        }
        Ok(())
    }

    /// The pair is not looked at any more.
    fn forget_pair(&mut self) {
        self.pair.clear();
        self.pair_memory = None;
    }

    /// Looks for partners of the row at hand, until there are so many rows; true when there are no more.
    fn join_row(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        let one = matches!(self.sides.kind, JoinKind::Semi | JoinKind::Anti);
        // Of whoever looks for one partner only, few rows are wanted.
        let wanted = if self.wants_any() { 1 } else { BATCH_ROWS };
        let left = self.batch.row(self.current);
        while out.has_room(context, limit)? {
            self.steps = self.steps.wrapping_add(1);
            if self.steps.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            let (number, right, may_be_long) = match &mut self.inner {
                Inner::Kept(kept) => match kept.1.next(&kept.0)? {
                    Some((number, row)) => (number, row, kept.0.has_long()),
                    None => return Ok(true),
                },
                Inner::Filling(filling) => {
                    if filling.at_hand {
                        filling.gather(context)?;
                    }
                    if filling.next >= filling.batch.len() {
                        filling.next = 0;
                        if !self.sides.right.next(context, wanted, &mut filling.batch)? {
                            self.inner = match std::mem::replace(&mut self.inner, Inner::Unread) {
                                Inner::Filling(filling) => filling.keep(self.node, context)?,
                                other => other,
                            };
                            return Ok(true);
                        }
                    }
                    let row = filling.batch.row(filling.next);
                    (filling.next, filling.at_hand) = (filling.next + 1, true);
                    (0, row, filling.batch.is_charged())
                }
                Inner::Bound { batch, next } => {
                    if *next >= batch.len() {
                        *next = 0;
                        if !self.sides.right.next(context, wanted, batch)? {
                            batch.reset(self.sides.right_width);
                            return Ok(true);
                        }
                    }
                    *next += 1;
                    (0, batch.row(*next - 1), batch.is_charged())
                }
                Inner::Unread => return Ok(true),
            };
            if let Some(condition) = &self.condition {
                let pair = &mut self.pair[self.sides.left_width..];
                if may_be_long {
                    let bytes = self.read.iter().map(|column| right[*column].copy_bytes()).sum::<usize>();
                    self.read.iter().for_each(|column| pair[*column] = Value::Null);
                    hold_pair(&mut self.pair_memory, self.left_bytes + bytes, context)?;
                }
                for &column in &self.read {
                    pair[column].clone_from(&right[column]);
                }
                if !condition.is_true(&self.pair, context)? {
                    continue;
                }
            }
            self.had_partner = true;
            if one {
                return Ok(true);
            }
            if let Some(matched) = self.matched.get_mut(number) {
                *matched = true;
            }
            out.push(left.iter().chain(right).cloned());
        }
        Ok(false)
    }

    /// The row at hand has no more partners. There is room for one more row.
    fn finish_row(&mut self, out: &mut Batch) {
        let left = self.batch.row(self.current).iter().cloned();
        match (self.sides.kind, self.had_partner) {
            (JoinKind::Left | JoinKind::Full, false) => out.push(left.chain(nulls(self.sides.right_width))),
            (JoinKind::Semi, true) | (JoinKind::Anti, false) => out.push(left),
            _ => {}
        }
        self.current += 1;
        self.begun = false;
        if self.pair_memory.is_some() {
            self.forget_pair();
        }
    }

    fn probe(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        while out.has_room(context, limit)? {
            if self.current >= self.batch.len() {
                context.check()?;
                self.current = 0;
                // With a LIMIT above, a few rows of the left side may be enough.
                self.wanted = (self.wanted * 2).clamp(limit, BATCH_ROWS);
                if !self.sides.left.next(context, self.wanted, &mut self.batch)? {
                    self.batch.reset(self.sides.left_width);
                    self.stage = Stage::Done;
                    if self.sides.kind == JoinKind::Full {
                        self.begin_unmatched(context)?;
                    }
                    return Ok(());
                }
                continue;
            }
            if !self.begun {
                self.begin_row(context)?;
            }
            if self.join_row(context, limit, out)? && out.has_room(context, limit)? {
                self.finish_row(out);
            }
        }
        Ok(())
    }

    fn begin_unmatched(&mut self, context: &Context<'_>) -> Result<()> {
        self.stage = Stage::Unmatched;
        match &mut self.inner {
            Inner::Kept(kept) => kept.1 = kept.0.cursor()?,
            inner => {
                // There was no row on the left: all are without partner.
                let buffer =
                    RowBuffer::read(&mut *self.sides.right, self.sides.right_width, self.node, context)?;
                // The next run, which this may be kept for, may have some.
                self.matched_memory.demand(context, buffer.len())?;
                self.matched = vec![false; buffer.len()];
                *inner = Inner::kept(buffer)?;
            }
        }
        Ok(())
    }

    fn give_unmatched(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<()> {
        let Inner::Kept(kept) = &mut self.inner else {
            self.stage = Stage::Done;
            return Ok(());
        };
        let (buffer, cursor) = &mut **kept;
        while out.has_room(context, limit)? {
            let Some((number, row)) = cursor.next(buffer)? else {
                self.stage = Stage::Done;
                break;
            };
            if self.matched.get(number) != Some(&true) {
                out.push(nulls(self.sides.left_width).chain(row.iter().cloned()));
            }
        }
        Ok(())
    }

    /// Whether what is kept of the right side serves the next run too.
    fn serves_again(&self) -> bool {
        self.sides.right_fixed && self.rewound && matches!(self.inner, Inner::Kept(..))
    }

    fn close(&mut self) {
        self.inner = Inner::Unread;
        self.forget_pair();
        self.matched = Vec::new();
        self.matched_memory.release();
    }
}

impl Inner {
    /// At its first row.
    fn kept(buffer: RowBuffer) -> Result<Self> {
        let cursor = buffer.cursor()?;
        Ok(Inner::Kept(Box::new((buffer, cursor))))
    }
}

impl Filling {
    /// The row at hand is not looked at any more.
    fn gather(&mut self, context: &Context<'_>) -> Result<()> {
        self.at_hand = false;
        self.gathered.push(self.batch.row_mut(self.next - 1), context)
    }

    /// Reads what nobody has looked at yet.
    fn read_rest(&mut self, right: &mut dyn Operator, context: &Context<'_>) -> Result<()> {
        if self.at_hand {
            self.gather(context)?;
        }
        let Filling { gathered, batch, next, .. } = self;
        loop {
            context.check()?;
            for index in std::mem::take(next)..batch.len() {
                gathered.push(batch.row_mut(index), context)?;
            }
            if !right.next(context, BATCH_ROWS, batch)? {
                return Ok(());
            }
        }
    }

    /// There are no more rows, or none that anybody wants; `node` is charged with what was spilled.
    fn keep(mut self, node: usize, context: &Context<'_>) -> Result<Inner> {
        if self.at_hand {
            self.gather(context)?;
        }
        Inner::kept(self.gathered.finish(node, context)?)
    }
}

/// Charges the values of a pair where they are long.
fn hold_pair(memory: &mut Option<WorkMemory>, bytes: usize, context: &Context<'_>) -> Result<()> {
    let held = memory.as_ref().map_or(0, WorkMemory::bytes);
    if bytes > LARGE_BYTES && bytes as u64 > held {
        match memory {
            Some(memory) => memory.grow(bytes as u64 - held)?,
            None => *memory = Some(context.session.engine.memory(Purpose::Work, bytes as u64)?),
        }
    }
    Ok(())
}

impl Operator for NestedLoop {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        out.reset(self.width());
        let limit = limit.min(BATCH_ROWS);
        while out.is_empty() {
            match self.stage {
                Stage::Probe => self.probe(context, limit, out)?,
                Stage::Unmatched => self.give_unmatched(context, limit, out)?,
                Stage::Done => {
                    if !self.serves_again() {
                        self.close();
                    }
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        self.batch.reset(self.sides.left_width);
        self.current = 0;
        self.begun = false;
        self.forget_pair();
        self.stage = Stage::Probe;
        if self.rewound && self.sides.right_fixed && self.wants_any() {
            // One of whom any is wanted is enough for the next run, too.
            self.inner = match std::mem::replace(&mut self.inner, Inner::Unread) {
                Inner::Filling(filling) if filling.at_hand => filling.keep(self.node, context)?,
                other => other,
            };
        }
        let keep = self.serves_again();
        self.rewound = true;
        self.wanted = 0;
        if keep {
            self.matched.fill(false);
        } else {
            self.close();
            if self.bind.is_empty() {
                self.sides.right.rewind(context)?;
            }
        }
        self.sides.left.rewind(context)
    }
}
