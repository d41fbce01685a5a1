//! Exact numbers of any length.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// An exact number.
#[derive(Clone, Debug)]
pub struct Numeric(i64);

impl Numeric {
    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        0
    }
}
impl PartialEq for Numeric {
    fn eq(&self, o: &Self) -> bool {
        self.0 == o.0
    }
}
impl Eq for Numeric {}
impl PartialOrd for Numeric {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Numeric {
    fn cmp(&self, o: &Self) -> Ordering {
        self.0.cmp(&o.0)
    }
}
impl Hash for Numeric {
    fn hash<H: Hasher>(&self, s: &mut H) {
        self.0.hash(s)
    }
}
