//! What every layer of one open database shares.

use crate::log::{GroupBuilder, Log};
use crate::pool::{Pool, Volume};
use crate::space::Space;
use crate::{Error, Result};
use gannet_base::clock;
use gannet_base::memory::Budget;
use gannet_base::sync::Mutex;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Share of `wal_limit`, in percent, from which on writers are slowed.
const SLOW_FROM: u64 = 75;
/// Pause of a writer just below `wal_limit`.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// The switch that ends all changes after a failure that cannot be undone.
#[derive(Default)]
pub(crate) struct Poison {
    set: AtomicBool,
    cause: Mutex<Option<String>>,
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poison").field("cause", &self.cause).finish_non_exhaustive()
    }
}

impl Poison {
    /// Ends all changes; the first cause is kept.
    pub(crate) fn set(&self, cause: String) {
        self.cause.lock().get_or_insert(cause);
        self.set.store(true, Ordering::SeqCst);
        if let Some(alarm) = self.alarm.get() {
            alarm();
        }
    }

    /// Has `alarm` wake those who wait for something that will never happen now. It is called under any latches and
    /// locks, each time the switch is thrown. Once, before the database is used.
    pub(crate) fn on_set(&self, alarm: impl Fn() + Send + Sync + 'static) {
        let first = self.alarm.set(Box::new(alarm)).is_ok();
        assert!(first, "there is one alarm");
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    /// Fails once the switch was thrown.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        Err(Error::Poisoned(self.cause.lock().clone().unwrap_or_default()))
    }
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) pool: Arc<Pool>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) log: Log,
    pub(crate) space: Space,
    pub(crate) budget: Budget,
    pub(crate) poison: Arc<Poison>,
    pub(crate) page_size: usize,
    /// The longest log record in bytes: at least four page images, which a root split needs.
    pub(crate) max_record_len: usize,
    /// Bytes of log that redo may have to go through after a crash.
    pub(crate) wal_limit: u64,
    builders: Mutex<Vec<GroupBuilder>>,
}

impl Core {
    pub(crate) fn new(
        pool: Arc<Pool>,
        volume: Arc<Volume>,
        log: Log,
        space: Space,
        budget: Budget,
        max_record_len: usize,
        wal_limit: u64,
    ) -> Self {
        let page_size = pool.page_size();
        assert!(max_record_len >= 4 * page_size, "checked when the database was created");
        Core {
            pool,
            volume,
            log,
            space,
            budget,
            poison: Arc::default(),
            page_size,
            max_record_len,
            wal_limit,
            builders: Mutex::default(),
        }
    }

    pub(crate) fn take_builder(&self) -> GroupBuilder {
        self.builders.lock().pop().unwrap_or_default()
    }

    pub(crate) fn give_builder(&self, mut builder: GroupBuilder) {
        builder.clear();
        let mut builders = self.builders.lock();
        if builders.len() < 16 {
            builders.push(builder);
        }
    }

    /// Called by writers before a change, without latches: slows them as the log nears its limit, so that the
    /// checkpoint keeps up and nobody is ever stopped for long.
    pub(crate) fn throttle(&self) -> Result<()> {
        self.poison.check()?;
        let slow_from = self.wal_limit * SLOW_FROM / 100;
        let mut used = self.log.used_bytes();
        if used <= slow_from {
            return Ok(());
        }
        // The pause grows linearly from nothing to its longest at the limit; behind it, wait for the checkpoint.
        let share = (used - slow_from) as f64 / (self.wal_limit - slow_from) as f64;
        clock::sleep(LONGEST_PAUSE.mul_f64(share.min(1.0).powi(2)));
        while used > self.wal_limit {
            self.poison.check()?;
            clock::sleep(LONGEST_PAUSE);
            used = self.log.used_bytes();
        }
        Ok(())
    }
}
