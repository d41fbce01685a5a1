//! XXH3-64 (Yann Collet, <https://xxhash.com>), the one hash of Gannet's formats. It is not cryptographic: it
//! finds accidents, not attackers.

use crate::id::PageId;
use std::hash::Hasher;
use twox_hash::XxHash3_64;

/// Checksum of a page's bytes behind its checksum field. `page` and the database's `salt` are mixed in, so a
/// page written to the wrong place, or one of another database, does not verify.
pub fn page(salt: u64, page: PageId, bytes: &[u8]) -> u64 {
    // 0 is kept for "never written", so that an all-zero page can be told from a written one.
    XxHash3_64::oneshot_with_seed(salt ^ page.0.wrapping_mul(0x9E37_79B9_7F4A_7C15), bytes).max(1)
}

/// Checksum of `bytes` under `seed`.
pub fn seeded(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// A checksum fed piece by piece; equal to [`seeded`] over the concatenation.
#[derive(Clone)]
pub struct Streaming(XxHash3_64);

impl std::fmt::Debug for Streaming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Streaming")
    }
}

impl Streaming {
    /// Starts with `seed`.
    pub fn new(seed: u64) -> Self {
        Streaming(XxHash3_64::with_seed(seed))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of everything added.
    pub fn finish(&self) -> u64 {
        self.0.finish()
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

    const KNOWN: [(usize, u64); 8] = [
        (0, 0x8e1a_eea8_bc92_8d25),
        (3, 0xdd6f_a3b6_a343_279b),
        (8, 0x91c4_34ad_2908_12b4),
        (100, 0x2503_c1d1_3fef_7fd8),
        (200, 0xaef7_ff4a_dbfb_641d),
        (241, 0x170c_292f_7e0d_0c81),
        (8184, 0xe0b8_6cea_a14d_1463),
        (10_000, 0xb1d7_ac85_5531_e95f),
    ];

    #[test]
    fn the_formats_hash_stays_the_one_of_the_formats() {
        // XXH3-64 with a seed, of lengths that take each of its ways; by another implementation.
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7 + 3) as u8).collect();
        let known = KNOWN.map(|(length, _)| (length, seeded(9, &bytes[..length])));
        assert_eq!(known, KNOWN);
    }

    #[test]
    fn streaming_equals_one_shot() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let mut streaming = Streaming::new(9);
        bytes.chunks(777).for_each(|c| streaming.update(c));
        assert_eq!(streaming.finish(), seeded(9, &bytes));
    }
}
