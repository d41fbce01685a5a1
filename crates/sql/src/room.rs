//! Memory for long rows that are under way between the threads of a dump or a load.
//!
//! # What it guarantees
//! 1. What is held is charged to the budget before it is taken.
//! 2. While some are under way, all together take no more than half of the budget; a row that is alone takes whatever the budget has. So a row
//!    that fits alone waits for the others, and does not fail because of them.
//!
//! Who waits holds none of the rows that are under way, and these do not wait for him.

use crate::Result;
use gannet_base::memory::Purpose;
use gannet_store::{Engine, Error as StoreError, WorkMemory};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The part of the budget that several rows under way take together, at most.
const SHARE: u64 = 2;

/// Gives out memory, as others give it back.
#[derive(Debug)]
pub(crate) struct Room {
    engine: Engine,
    held: Mutex<Held>,
    freed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    bytes: u64,
    rows: usize,
}

impl Room {
    pub(crate) fn new(engine: &Engine) -> Arc<Self> {
        Arc::new(Room { engine: engine.clone(), held: Mutex::default(), freed: Condvar::new() })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a row; `None` where there will be some only when others have given back theirs.
    pub(crate) fn try_take(self: &Arc<Self>, bytes: u64) -> gannet_store::Result<Option<Taken>> {
        self.take_from(&mut self.held(), bytes)
    }

    /// Memory for a row, once there is some.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Result<Taken> {
        self.wait_for(|held| self.take_from(held, bytes))
    }

    /// More memory for what whoever waits keeps for himself. It does not count as a row.
    pub(crate) fn grow(&self, memory: &mut Option<WorkMemory>, bytes: u64) -> Result<()> {
        self.wait_for(|held| {
            let grown = match memory {
                Some(memory) => memory.grow(bytes),
                None => self.engine.memory(Purpose::Work, bytes).map(|taken| *memory = Some(taken)),
            };
            unless_others(held, grown)
        })
    }

    fn wait_for<T>(&self, mut take: impl FnMut(&mut Held) -> gannet_store::Result<Option<T>>) -> Result<T> {
        let mut held = self.held();
        loop {
            if let Some(taken) = take(&mut held)? {
                return Ok(taken);
            }
            held = self.freed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take_from(self: &Arc<Self>, held: &mut Held, bytes: u64) -> gannet_store::Result<Option<Taken>> {
        if held.rows > 0 && held.bytes + bytes > self.engine.budget().limit() / SHARE {
            return Ok(None);
        }
        let Some(memory) = unless_others(held, self.engine.memory(Purpose::Work, bytes))? else {
            return Ok(None);
        };
        held.bytes += bytes;
        held.rows += 1;
        Ok(Some(Taken { room: Arc::clone(self), memory }))
    }
}

/// `None` where there is no memory because of rows under way.
fn unless_others<T>(held: &Held, taken: gannet_store::Result<T>) -> gannet_store::Result<Option<T>> {
    match taken {
        Err(StoreError::Memory(_)) if held.rows > 0 => Ok(None),
        taken => taken.map(Some),
    }
}

/// Memory of a row under way, given back when dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    memory: WorkMemory,
}

impl Taken {
    /// Whether no other row is under way.
    pub(crate) fn is_alone(&self) -> bool {
        self.room.held().rows == 1
    }

    /// How much it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Gives back all but `bytes`.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let mut held = self.room.held();
        let before = self.memory.bytes();
        self.memory.shrink_to(bytes);
        held.bytes -= before - self.memory.bytes();
        drop(held);
        self.room.freed.notify_all();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shrink_to(0);
        self.room.held().rows -= 1;
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_store::EngineOptions;

    #[test]
    fn a_row_that_fits_alone_waits_for_those_under_way() {
        let engine = Engine::new(&EngineOptions { memory: 32 << 20, temp_folder: None }).unwrap();
        let room = Room::new(&engine);
        let first = room.try_take(12 << 20).unwrap().unwrap();
        assert!(room.try_take(12 << 20).unwrap().is_none());
        let second = std::thread::scope(|scope| {
            let waits = scope.spawn(|| room.take(12 << 20));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(first);
            waits.join().unwrap().unwrap()
        });
        // What others will never give back is not waited for.
        assert!(room.try_take(1 << 40).unwrap().is_none());
        drop(second);
        assert!(room.take(1 << 40).is_err());
        let mut own = None;
        room.grow(&mut own, 1 << 20).unwrap();
        assert_eq!(engine.budget().used_for(Purpose::Work), 1 << 20);
    }
}
