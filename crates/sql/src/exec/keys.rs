//! Distinct keys, numbered as they come: what groups, sets and the lists of IN are looked up in.

use super::arena::{Arena, RowRef};
use super::computed::RowCharges;
use super::expr::eval_into;
use super::hash::{hash_key, is_exact};
use super::spill::{Fields, encode_row};
use super::{Context, LARGE_BYTES};
use crate::physical::Expr;
use crate::types::{Shape, Value};
use crate::{Error, Result, SqlState};
use hashbrown::HashTable;

/// How the key of a row is got at.
#[derive(Debug, Default)]
pub(super) struct KeyExprs {
    exprs: Vec<Expr>,
    /// The key is a part of the row, and begins here.
    part_of_row: Option<usize>,
}

impl KeyExprs {
    pub(super) fn new(exprs: &[Expr]) -> Self {
        let first = match exprs.first() {
            Some(Expr::Column(first)) => Some(*first),
            _ => None,
        };
        let in_row = |first: &usize| {
            let follows = |(index, expr): (usize, &Expr)| matches!(expr, Expr::Column(column) if *column == first + index);
            exprs.iter().enumerate().all(follows)
        };
        KeyExprs { exprs: exprs.to_vec(), part_of_row: first.filter(in_row) }
    }

    /// How many values a key has.
    pub(super) fn len(&self) -> usize {
        self.exprs.len()
    }

    /// The key of a row, borrowed where that is possible.
    #[inline]
    pub(super) fn of<'a>(
        &'a self,
        row: &'a [Value],
        context: &'a Context<'_>,
        made: &'a mut MadeKey,
    ) -> Result<&'a [Value]> {
        if let Some(first) = self.part_of_row {
            return Ok(&row[first..first + self.exprs.len()]);
        }
        made.clear();
        made.charges = eval_into(&self.exprs, row, context, &mut made.values)?;
        Ok(&made.values)
    }

    /// Whether the key of a row is that of another one by other expressions.
    pub(super) fn agree(
        &self,
        row: &[Value],
        others: &KeyExprs,
        other: &[Value],
        context: &Context<'_>,
    ) -> Result<bool> {
        for (expr, of_other) in self.exprs.iter().zip(&others.exprs) {
            if *expr.eval(row, context)? != *of_other.eval(other, context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A key that is no part of its row. A long one is charged until the next one is made, or it is forgotten; whoever keeps it charges it, too.
#[derive(Debug, Default)]
pub(super) struct MadeKey {
    values: Vec<Value>,
    charges: RowCharges,
}

impl MadeKey {
    /// Forgets it.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.charges.clear();
    }
}

/// Numbers for distinct keys. NULL equals NULL here.
#[derive(Debug)]
pub(super) struct KeyTable {
    slots: HashTable<Slot>,
    /// The keys, encoded, by number.
    rows: Vec<RowRef>,
    arena: Arena,
    /// All keys are one whole number each: equal hashes are equal keys.
    exact: bool,
    encoded: Vec<u8>,
    shapes: Shapes,
}

/// What records among values to be compared are made of, by position: dissimilar ones cannot be compared, and need not meet.
#[derive(Debug, Default)]
pub(super) struct Shapes(Vec<Shape>);

impl Shapes {
    /// Fails if a value is a record unlike those before it at this position.
    #[inline]
    pub(super) fn admit(&mut self, position: usize, value: &Value) -> Result<()> {
        if matches!(value, Value::Record(_)) { self.admit_record(position, value) } else { Ok(()) }
    }

    #[cold]
    fn admit_record(&mut self, position: usize, value: &Value) -> Result<()> {
        if self.0.len() <= position {
            self.0.resize_with(position + 1, Shape::default);
        }
        self.0[position].admit(value)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    number: u32,
}

/// Bytes of a hash table with room for so many slots of a size.
pub(super) fn table_bytes(slots: usize, slot: usize) -> usize {
    if slots == 0 { 0 } else { (slots * 8 / 7 + 1).next_power_of_two().max(4) * (slot + 1) + 16 }
}

impl KeyTable {
    pub(super) fn new() -> Self {
        KeyTable {
            slots: HashTable::new(),
            rows: Vec::new(),
            arena: Arena::new(0),
            exact: true,
            encoded: Vec::new(),
            shapes: Shapes::default(),
        }
    }

    /// Keys in it.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The hash of a key, as [`KeyTable::find`] wants it.
    pub(super) fn hash(key: &[Value]) -> u64 {
        hash_key(key.iter())
    }

    /// The number of a key.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[Value]) -> Option<usize> {
        let exact = self.exact && is_exact(key);
        let equal = |slot: &Slot| slot.hash == hash && (exact || self.key(slot.number as usize).equal(key));
        self.slots.find(hash, equal).map(|slot| slot.number as usize)
    }

    /// Fails if a key has a record that cannot be compared with that of a key before: [`KeyTable::find`] does not tell.
    #[inline]
    pub(super) fn admit(&mut self, key: &[Value]) -> Result<()> {
        key.iter().enumerate().try_for_each(|(position, value)| self.shapes.admit(position, value))
    }

    /// Gives a number to a key that has none. `encoded`: the bytes for which there is [room](KeyTable::bytes_with).
    pub(super) fn insert(&mut self, hash: u64, key: &[Value], encoded: usize) -> Result<usize> {
        self.admit(key)?;
        let number = self.rows.len();
        let Ok(short) = u32::try_from(number) else {
            return Err(Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "too many distinct rows"));
        };
        self.exact &= is_exact(key);
        if encoded > LARGE_BYTES {
            self.encoded.reserve_exact(encoded);
        }
        encode_row(key, &mut self.encoded)?;
        self.rows.push(self.arena.push(&self.encoded));
        self.encoded.clear();
        self.encoded.shrink_to(LARGE_BYTES);
        self.slots.insert_unique(hash, Slot { hash, number: short }, |slot| slot.hash);
        Ok(number)
    }

    /// A key.
    pub(super) fn key(&self, number: usize) -> Fields<'_> {
        self.arena.fields(self.rows[number])
    }

    /// Bytes it may need while a key of this many encoded bytes is inserted.
    pub(super) fn bytes_with(&self, encoded: usize) -> usize {
        let slots = self.slots.capacity();
        let mut bytes = table_bytes(slots, size_of::<Slot>());
        if self.slots.len() == slots {
            // The old table goes only when everything stands in the new one.
            bytes += table_bytes((slots + 1).max(3) * 2, size_of::<Slot>());
        }
        let mut rows = self.rows.capacity();
        if self.rows.len() == rows {
            rows += rows.max(4) * 2;
        }
        // A long key is there twice for a while.
        let copy = if encoded > LARGE_BYTES { encoded } else { 0 };
        bytes + rows * size_of::<RowRef>() + self.arena.bytes_with(encoded) + copy
    }

    /// Forgets all keys, but not what they were made of.
    pub(super) fn clear(&mut self) {
        let shapes = std::mem::take(&mut self.shapes);
        *self = KeyTable { shapes, ..KeyTable::new() };
    }
}

/// About how many bytes a key takes when it is encoded: an estimate from above.
pub(super) fn encoded_bytes(key: &[Value]) -> usize {
    16 + key.iter().map(|value| 16 + value.heap_bytes().max(24)).sum::<usize>()
}
