//! Models of the store's code that threads share: the very sources of latch, page table, and the log's ring and flushing,
//! compiled against the atomics of crate `loom`, which runs them in every order of steps, and with every value a load may give, that
//! the C11 memory model allows.
//!
//! | model | what it shows |
//! |---|---|
//! | [`exclusion`] | the latch excludes, orders what its holders write, and forgets no waiter |
//! | [`optimistic`] | what an optimistic reader trusts was there at one time |
//! | [`eviction`] | a page found in the table is that page, whether it is read under the latch or without, while its frame gets another |
//! | [`reuse`] | who waits for a page's frame is let go when the frame gets another page |
//! | [`commits`] | whose commit returns has its bytes on the device, whoever wrote them; everybody is woken; no two writes touch one block |
//! | [`ring`] | what is in the ring stays there until it is written |
//! | [`failing`] | when the device fails everybody is told, and nothing is called durable that is not |
//!
//! Memory orderings are checked here and nowhere else: the simulation runs one thread at a time. What is not checked here: the
//! spinning before a latch parks, and the pool around these two. The protocol of a frame (who loads, who evicts, its states) is
//! written down in [`eviction`] once more, as short as possible, so that is a model and no proof of the pool's code. The same holds for
//! the append in front of the last three; time stands still there, and a sleep with a limit ends whenever its thread is let go on.
//!
//! Each model takes a fault, and the tests show that it is found. Of the sources themselves it is found when the release fence of
//! [`exclusion`]'s writer, the acquire fence of a validation, the release of an exclusive holder or the waking of waiters is taken
//! away. It is *not* found when the first look at the version is no acquire any more: that order rests on the argument beside it.

// The sources say `gannet_base` and `gannet_io`, and get what is below.
extern crate self as gannet_base;
extern crate self as gannet_io;

pub mod clock;
mod device;
mod log;
mod models;
mod pool;
pub mod sim;
pub mod sync;
pub mod thread;

pub use device::{AlignedBuffer, Class, Durability};
pub use models::{Fault, commits, eviction, exclusion, failing, optimistic, reuse, ring};

/// Number of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageId(pub u64);

/// What the sources fail with.
#[derive(Debug)]
pub enum Error {
    /// No memory.
    Memory,
    /// A mistake of the model.
    Invalid(String),
    /// The log has failed before.
    Poisoned(String),
    /// The device.
    Device,
}

impl From<std::collections::TryReserveError> for Error {
    fn from(_: std::collections::TryReserveError) -> Self {
        Error::Memory
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

type Result<T> = std::result::Result<T, Error>;
