//! Models of the store's lock-free code: the very sources of latch and page table, compiled against the atomics of crate `loom`,
//! which runs them in every order of steps, and with every value a load may give, that the C11 memory model allows.
//!
//! | model | what it shows |
//! |---|---|
//! | [`exclusion`] | the latch excludes, orders what its holders write, and forgets no waiter |
//! | [`optimistic`] | what an optimistic reader trusts was there at one time |
//! | [`eviction`] | a page found in the table is that page, whether it is read under the latch or without, while its frame gets another |
//!
//! Memory orderings are checked here and nowhere else: the simulation runs one thread at a time. What is not checked here: the
//! spinning before a latch parks, and the pool around these two. The protocol of a frame (who loads, who evicts, its states) is
//! written down in [`eviction`] once more, as short as possible, so that is a model and no proof of the pool's code.
//!
//! Each model takes a fault, and the tests show that it is found. Of the sources themselves it is found when the release fence of
//! [`exclusion`]'s writer, the acquire fence of a validation, the release of an exclusive holder or the waking of waiters is taken
//! away. It is *not* found when the first look at the version is no acquire any more: that order rests on the argument beside it.

// The sources say `gannet_base`, and get what is below.
extern crate self as gannet_base;

mod models;
mod pool;
pub mod sim;
pub mod sync;

pub use models::{Fault, eviction, exclusion, optimistic};

/// Number of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageId(pub u64);

type Result<T> = std::result::Result<T, std::collections::TryReserveError>;
