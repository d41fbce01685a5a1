//! Rows of a plan that gives the same ones each time, within another one that is run again and again with other slots.
//!
//! # Guarantees
//! 1. Nothing is kept of what is run but once: rows are gathered from the second run on, while they are handed on, and given from
//!    there once a run has come to its end. So no row is computed that nobody asked for.
//! 2. What is gathered is charged to the budget, and spills where that ends.

use super::join::buffer::{RowBuffer, RowCursor, RowGatherer};
use super::{Batch, Context, Operator};
use crate::Result;

/// See the module.
#[derive(Debug)]
pub(super) struct Keep {
    node: usize,
    width: usize,
    state: State,
    /// A run was cut short when its rows filled a file already: they are not gathered again.
    hopeless: bool,
}

#[derive(Debug)]
enum State {
    /// Rows come from the input.
    Run(Box<dyn Operator>, Option<RowGatherer>),
    /// Rows are kept; the cursor is gone at the end.
    Kept(RowBuffer, Option<RowCursor>),
}

impl Keep {
    pub(super) fn new(node: usize, input: Box<dyn Operator>, width: usize) -> Self {
        Keep { node, width, state: State::Run(input, None), hopeless: false }
    }
}

impl Operator for Keep {
    fn next(&mut self, context: &Context<'_>, limit: usize, out: &mut Batch) -> Result<bool> {
        match &mut self.state {
            State::Run(input, gathered) => {
                let more = input.next(context, limit, out)?;
                if more {
                    if let Some(gathered) = gathered {
                        for row in out.iter() {
                            gathered.push_copy(row, context)?;
                        }
                    }
                } else if let Some(gathered) = gathered.take() {
                    self.state = State::Kept(gathered.finish(self.node, context)?, None);
                }
                Ok(more)
            }
            State::Kept(rows, cursor) => {
                out.reset(self.width);
                while let Some(at) = cursor
                    && out.has_room(context, limit)?
                {
                    match at.next(rows)? {
                        Some((_, row)) => out.push(row.iter().cloned()),
                        None => *cursor = None,
                    }
                }
                Ok(!out.is_empty())
            }
        }
    }

    fn rewind(&mut self, context: &Context<'_>) -> Result<()> {
        match &mut self.state {
            State::Run(input, gathered) => {
                self.hopeless |= gathered.as_ref().is_some_and(RowGatherer::spilled);
                *gathered = (!self.hopeless).then(|| RowGatherer::new(self.width));
                input.rewind(context)
            }
            State::Kept(rows, cursor) => {
                *cursor = Some(rows.cursor()?);
                Ok(())
            }
        }
    }
}
