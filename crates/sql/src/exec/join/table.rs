//! The hash table of a join's right side.

use crate::Result;
use crate::exec::arena::{Arena, RowRef};
use crate::exec::keys::table_bytes;
use crate::exec::memory::Memory;
use crate::exec::spill::{Fields, encode_row};
use crate::exec::{CHECK_EVERY, Context, LARGE_BYTES};
use crate::types::Value;
use hashbrown::HashTable;

/// Header of a row: its hash, the next row of equal hash, and flags.
const HEADER: usize = 17;
/// The row has a key, and may be found.
const KEYED: u8 = 1;
/// The row has had a partner.
const MATCHED: u8 = 2;

/// Rows to be found by their hash. Rows are added first; then [`Table::index`] makes them be found.
#[derive(Debug)]
pub(super) struct Table {
    arena: Arena,
    slots: HashTable<Slot>,
    /// All keys are one whole number each: equal hashes are equal keys.
    exact: bool,
    memory: Memory,
    encoded: Vec<u8>,
}

/// The first row of a hash.
#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u64,
    first: RowRef,
}

/// The hash of a row's join key, and whether it tells the key from all others of which this is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyHash {
    pub(super) hash: u64,
    pub(super) exact: bool,
}

impl Table {
    pub(super) fn new() -> Self {
        Table {
            arena: Arena::new(HEADER),
            slots: HashTable::new(),
            exact: true,
            memory: Memory::default(),
            encoded: Vec::new(),
        }
    }

    /// Whether it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.arena.is_empty()
    }

    /// Adds a row; without a key it is never found. `room`: bytes that it may take encoded, where these may be many. False when there is no
    /// room for it; a table without rows has room in any case.
    pub(super) fn add(
        &mut self,
        key: Option<KeyHash>,
        row: &[Value],
        room: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        if room > LARGE_BYTES {
            // It is there twice for a while.
            if !self.has_room(room, room, context)? {
                return Ok(false);
            }
            self.encoded.reserve_exact(room);
        }
        let mut encoded = std::mem::take(&mut self.encoded);
        let added = encode_row(row, &mut encoded).and_then(|()| self.add_encoded(key, &encoded, context));
        encoded.clear();
        encoded.shrink_to(LARGE_BYTES);
        self.encoded = encoded;
        added
    }

    /// The same for a row that is encoded already, with its length.
    pub(super) fn add_encoded(
        &mut self,
        key: Option<KeyHash>,
        row: &[u8],
        context: &Context<'_>,
    ) -> Result<bool> {
        if !self.has_room(row.len(), 0, context)? {
            return Ok(false);
        }
        let place = self.arena.push(row);
        if let Some(key) = key {
            self.exact &= key.exact;
            let header = self.arena.header_mut(place);
            header[..8].copy_from_slice(&key.hash.to_le_bytes());
            header[16] = KEYED;
        }
        Ok(true)
    }

    /// Whether there is room for a row of `len` bytes, and for so many `beside`; a table without rows has it in any case.
    #[inline]
    fn has_room(&mut self, len: usize, beside: usize, context: &Context<'_>) -> Result<bool> {
        let rows = self.arena.bytes_with(len) + table_bytes(self.arena.len() + 1, size_of::<Slot>());
        if !self.memory.reserve(context, rows + beside)? {
            if !self.arena.is_empty() {
                return Ok(false);
            }
            self.memory.demand(context, rows + beside)?;
        }
        Ok(true)
    }

    /// All rows are there: from now on they can be found.
    pub(super) fn index(&mut self, context: &Context<'_>) -> Result<()> {
        self.slots = HashTable::with_capacity(self.arena.len());
        let mut next = self.arena.next(None);
        let mut steps = 0_usize;
        while let Some(row) = next {
            steps += 1;
            if steps.is_multiple_of(CHECK_EVERY) {
                context.check()?;
            }
            next = self.arena.next(Some(row));
            let header = self.arena.header_mut(row);
            if header[16] & KEYED == 0 {
                continue;
            }
            let hash = word(header, 0);
            let found = self.slots.find_mut(hash, |slot| slot.hash == hash);
            let behind = match found {
                Some(slot) => std::mem::replace(&mut slot.first, row),
                None => {
                    self.slots.insert_unique(hash, Slot { hash, first: row }, |slot| slot.hash);
                    RowRef::NONE
                }
            };
            header[8..16].copy_from_slice(&behind.to_bits().to_le_bytes());
        }
        Ok(())
    }

    /// The first row that may have this key, and whether that is certain.
    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<(RowRef, bool)> {
        let slot = self.slots.find(key.hash, |slot| slot.hash == key.hash)?;
        Some((slot.first, self.exact && key.exact))
    }

    /// The next row that may have the same key.
    #[inline]
    pub(super) fn next_match(&self, row: RowRef) -> Option<RowRef> {
        let next = RowRef::from_bits(word(self.arena.header(row), 8));
        (next != RowRef::NONE).then_some(next)
    }

    /// The values of a row.
    #[inline]
    pub(super) fn fields(&self, row: RowRef) -> Fields<'_> {
        self.arena.fields(row)
    }

    /// Notes that a row has a partner.
    #[inline]
    pub(super) fn set_matched(&mut self, row: RowRef) {
        self.arena.header_mut(row)[16] |= MATCHED;
    }

    /// The first row behind `row` that has no partner.
    pub(super) fn next_unmatched(&self, row: Option<RowRef>) -> Option<RowRef> {
        let mut next = self.arena.next(row);
        while let Some(row) = next.filter(|row| self.arena.header(*row)[16] & MATCHED != 0) {
            next = self.arena.next(Some(row));
        }
        next
    }

    /// All rows as they were added, with the hashes of those that have a key.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Option<u64>, &[u8])> {
        self.arena.iter().map(|row| {
            let header = self.arena.header(row);
            ((header[16] & KEYED != 0).then(|| word(header, 0)), self.arena.row(row))
        })
    }

    /// Whether all rows that can be found have one hash.
    pub(super) fn has_one_hash(&self) -> bool {
        let mut hashes = self.rows().filter_map(|(hash, _)| hash);
        let first = hashes.next();
        hashes.all(|hash| Some(hash) == first)
    }

    /// Forgets all rows; their memory is kept for the next ones.
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.slots = HashTable::new();
        self.exact = true;
    }

    /// It has no rows: gives back what it may not hold any more.
    pub(super) fn give_back(&mut self, context: &Context<'_>) {
        self.memory.shrink_to_share(context, self.arena.bytes());
    }

    /// Its rows are about to be written: see [`Memory::begin_writer`].
    pub(super) fn begin_writer(&mut self) {
        self.memory.begin_writer();
    }

    /// Forgets all rows and gives everything back.
    pub(super) fn close(&mut self) {
        self.clear();
        self.arena = Arena::new(HEADER);
        self.memory.release();
    }

    /// The most memory it had, in bytes.
    pub(super) fn peak(&self) -> u64 {
        self.memory.peak()
    }
}

fn word(header: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"))
}
