//! The sources under test.
#![expect(dead_code, reason = "the models use a part of them")]

use crate::Result;

#[path = "../../crates/store/src/pool/latch.rs"]
pub(crate) mod latch;
#[path = "../../crates/store/src/pool/table.rs"]
pub(crate) mod table;

fn allocate<T>(count: usize, make: impl FnMut(usize) -> T) -> Result<Box<[T]>> {
    let mut items = Vec::new();
    items.try_reserve_exact(count)?;
    items.extend((0..count).map(make));
    Ok(items.into_boxed_slice())
}
