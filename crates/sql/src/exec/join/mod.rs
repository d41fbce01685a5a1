//! Joins that need no index.
//!
//! | module | job |
//! |---|---|
//! | `hash` | join by a hash table of the right side, divided into parts where it has no room |
//! | `table` | that hash table |
//! | `nested` | join of all with all |
//! | `buffer` | rows kept to be read many times, in memory or in a temporary file |

pub(super) mod buffer;
pub(super) mod hash;
pub(super) mod nested;
mod table;

use crate::types::Value;

/// A row of NULLs.
fn nulls(count: usize) -> impl Iterator<Item = Value> {
    std::iter::repeat_with(|| Value::Null).take(count)
}
