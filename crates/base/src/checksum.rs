//! XXH3-64 (Yann Collet, <https://xxhash.com>), the one hash of Gannet's formats. It is not cryptographic: it
//! finds accidents, not attackers.

use crate::id::PageId;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Checksum of a page's bytes behind its checksum field. `page` and the database's `salt` are mixed in, so a
/// page written to the wrong place, or one of another database, does not verify.
pub fn page(salt: u64, page: PageId, bytes: &[u8]) -> u64 {
    // 0 is kept for "never written", so that an all-zero page can be told from a written one.
    xxh3_64_with_seed(bytes, salt ^ page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)).max(1)
}

/// Checksum of `bytes` under `seed`.
pub fn seeded(seed: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// A checksum fed piece by piece; equal to [`seeded`] over the concatenation.
#[derive(Clone)]
pub struct Streaming(Xxh3);

impl std::fmt::Debug for Streaming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streaming")
    }
}

impl Streaming {
    /// Starts with `seed`.
    pub fn new(seed: u64) -> Self {
        Streaming(Xxh3::with_seed(seed))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of everything added.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_at_another_place_or_of_another_database_does_not_verify() {
        let bytes = vec![7; 8184];
        assert_ne!(page(1, PageId(5), &bytes), page(1, PageId(6), &bytes));
        assert_ne!(page(1, PageId(5), &bytes), page(2, PageId(5), &bytes));
    }

    #[test]
    fn streaming_equals_one_shot() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let mut streaming = Streaming::new(9);
        bytes.chunks(777).for_each(|c| streaming.update(c));
        assert_eq!(streaming.finish(), seeded(9, &bytes));
    }
}
