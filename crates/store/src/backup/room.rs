//! Slots for frames of a backup that goes into an object.
//!
//! # Invariant
//! All frames that have slots find room in the object, each of the greatest length and behind what was given on by then, and so does one of the log
//! besides, until it is given on: the next one of the log may have to wait for a part to end. What room there is does not get less, so a frame with a slot is
//! taken without waiting.

use super::slot::{Lane, Slots};
use super::stream::LOOK_EVERY;
use crate::Result;
use gannet_base::sync::Mutex;
use gannet_io::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// See the module's head.
pub(super) struct Room {
    pub(super) data: Arc<dyn File>,
    /// Where the next frame goes. It has moved on before the slot of one that went there comes back.
    pub(super) next: Arc<AtomicU64>,
    /// Bytes of a frame, at most.
    pub(super) frame: u64,
    /// Slots that somebody has, by lane.
    pub(super) held: Mutex<[u64; 2]>,
}

impl Room {
    /// Up to where there has to be room for one more slot.
    fn end(&self, [pages, log]: [u64; 2], lane: Lane) -> u64 {
        let frames = match lane {
            Lane::Pages => pages + 1 + log.max(1),
            Lane::Log => pages + log + 1,
        };
        self.next.load(Ordering::Relaxed) + frames * self.frame
    }
}

impl Slots for Room {
    fn take(&self, lane: Lane) -> Result<bool> {
        let mut held = self.held.lock();
        let is_there = self.data.has_room(self.end(*held, lane), Duration::ZERO);
        held[lane as usize] += u64::from(is_there);
        Ok(is_there)
    }

    fn wait(&self, lane: Lane) -> Result<bool> {
        let end = self.end(*self.held.lock(), lane);
        Ok(self.data.has_room(end, LOOK_EVERY))
    }

    fn give_back(&self, lane: Lane) {
        self.held.lock()[lane as usize] -= 1;
    }
}
