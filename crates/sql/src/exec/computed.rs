//! Values of expressions, and the memory of the large ones.
//!
//! # Guarantees
//! 1. A large value that an expression makes is charged to the budget as long as it lives: while others are computed from it it holds
//!    its own charge, in a row on its way its row holds it, then the batch or the operator that took it.
//! 2. What a function [`Context::reserve`]s while it makes its result becomes the result's charge, so between the two it is nobody's.
//!
//! What is borrowed from a row, a constant or a parameter is charged by its owner.

use super::{Context, memory};
use crate::Result;
use crate::types::Value;
use gannet_base::memory::Purpose;
use gannet_store::WorkMemory;
use std::ops::Deref;

/// From here on a value that an expression makes is charged to the budget.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// What a large value is charged as.
pub(crate) type Charge = Option<Box<WorkMemory>>;

/// The value of an expression.
#[derive(Debug)]
pub enum Computed<'a> {
    /// It is there already, and its owner's.
    There(&'a Value),
    /// It was made.
    Made(Made),
}

/// A value that was made, with what it is charged as.
#[derive(Debug, Default)]
pub struct Made {
    value: Value,
    charge: Charge,
}

impl Deref for Computed<'_> {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        match self {
            Computed::There(value) => value,
            Computed::Made(made) => &made.value,
        }
    }
}

impl Deref for Made {
    type Target = Value;

    #[inline]
    fn deref(&self) -> &Value {
        &self.value
    }
}

impl From<Value> for Computed<'_> {
    /// A value that is small, or that somebody else has charged.
    #[inline]
    fn from(value: Value) -> Self {
        Computed::Made(Made { value, charge: None })
    }
}

impl Computed<'_> {
    /// The value, for somebody who charges it. What it was charged as is given back.
    #[inline]
    pub fn into_owned(self) -> Value {
        match self {
            Computed::There(value) => value.clone(),
            Computed::Made(made) => made.value,
        }
    }

    /// The value for a row that is being made; what it is charged as goes to the row's charges.
    #[inline]
    pub(super) fn into_row(self, context: &Context<'_>, charges: &mut RowCharges) -> Result<Value> {
        let Made { value, charge } = self.keep(context)?;
        charges.0.extend(charge.map(|memory| *memory));
        Ok(value)
    }

    /// The value as one's own, charged where it is large.
    #[inline]
    pub(super) fn keep(self, context: &Context<'_>) -> Result<Made> {
        match self {
            Computed::There(value) => Made::copy(value, context),
            Computed::Made(made) => Ok(made),
        }
    }
}

impl Made {
    /// A value that was made just now.
    #[inline]
    pub(super) fn new(value: Value, context: &Context<'_>) -> Result<Self> {
        Made::with_room(value, None, context)
    }

    /// A value for which there was `room`, which becomes its charge.
    #[inline]
    pub(super) fn with_room(value: Value, room: Charge, context: &Context<'_>) -> Result<Self> {
        if value.heap_bytes() <= LARGE_BYTES {
            return Ok(Made { value, charge: None });
        }
        Made::large(value, room, context)
    }

    #[cold]
    #[inline(never)]
    fn large(mut value: Value, mut room: Charge, context: &Context<'_>) -> Result<Self> {
        if let Value::Text(text) | Value::Padded(text) = &mut value
            && text.capacity() - text.len() > text.len() / 8
        {
            text.shrink_to_fit();
        }
        memory::await_room(context, value.heap_bytes())?;
        let bytes = value.heap_bytes() as u64;
        match &mut room {
            Some(memory) if memory.bytes() < bytes => memory.grow(bytes - memory.bytes())?,
            Some(memory) => memory.shrink_to(bytes),
            None => room = Some(Box::new(context.session.engine.memory(Purpose::Work, bytes)?)),
        }
        Ok(Made { value, charge: room })
    }

    /// A copy of a value that stays where it is. What only counts its owners is no more memory than it was.
    #[inline]
    pub(super) fn copy(value: &Value, context: &Context<'_>) -> Result<Self> {
        match value {
            Value::Text(text) | Value::Padded(text) if text.len() > LARGE_BYTES => {
                Made::copy_large(value, text.len(), context)
            }
            _ => Ok(Made { value: value.clone(), charge: None }),
        }
    }

    #[cold]
    #[inline(never)]
    fn copy_large(value: &Value, bytes: usize, context: &Context<'_>) -> Result<Self> {
        memory::await_room(context, bytes)?;
        let room = context.session.engine.memory(Purpose::Work, bytes as u64)?;
        Made::with_room(value.clone(), Some(Box::new(room)), context)
    }

    /// The value, and what it is charged as.
    #[inline]
    pub(super) fn into_parts(self) -> (Value, Charge) {
        (self.value, self.charge)
    }
}

/// What the large values of a row that is being made are charged as.
#[derive(Debug, Default)]
pub(super) struct RowCharges(Vec<WorkMemory>);

impl RowCharges {
    /// Keeps what something of the row is charged as.
    pub(super) fn hold(&mut self, memory: WorkMemory) {
        self.0.push(memory);
    }

    /// Gives them back: the row is no more, or somebody else has charged it.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Context<'_> {
    /// Charges `bytes` in all for what a function makes, until it is made. An error where the budget has no room for them.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<()> {
        memory::await_room(self, bytes)?;
        let mut room = self.room.take();
        let bytes = bytes as u64;
        match &mut room {
            Some(memory) => memory.grow(bytes.saturating_sub(memory.bytes()))?,
            None => room = Some(Box::new(self.session.engine.memory(Purpose::Work, bytes)?)),
        }
        self.room.set(room);
        Ok(())
    }
}
