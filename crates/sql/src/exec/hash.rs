//! Hashing of keys for joins, groups and sets: fast, the same in every run, and good enough for tables of powers of two.

use crate::types::Value;
use std::hash::{Hash, Hasher};

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hasher by folded multiplication.
#[derive(Clone, Copy, Debug)]
struct Folding(u64);

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(u64::from_le_bytes(word.try_into().expect("eight bytes")));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word) ^ (rest.len() as u64) << 56);
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        let product = u128::from(self.0 ^ value) * u128::from(FACTOR);
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(SEED);
    }

    #[inline]
    fn write_i64(&mut self, value: i64) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

/// A number whose bits all depend on all bits of the given one; different numbers give different ones.
#[inline]
pub(super) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The hash of a key. Keys of one whole number have equal hashes only when they are equal: see [`is_exact`].
#[inline]
pub(super) fn hash_key<'a>(key: impl ExactSizeIterator<Item = &'a Value>) -> u64 {
    let one = key.len() == 1;
    let mut hasher = Folding(SEED);
    for value in key {
        if let (true, Value::Int(value)) = (one, value) {
            return mix(*value as u64);
        }
        value.hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the hash of a key tells it from every other key for which this is true.
#[inline]
pub(super) fn is_exact(key: &[Value]) -> bool {
    matches!(key, [Value::Int(_)])
}

/// To which of `count` (a power of two) partitions a hash goes. Different levels divide differently.
#[inline]
pub(super) fn partition(hash: u64, level: u32, count: usize) -> usize {
    let again = mix(hash ^ FACTOR.wrapping_mul(u64::from(level) + 1));
    (again >> 32) as usize & (count - 1)
}

/// Values that differ, and have one hash.
#[cfg(test)]
pub(super) fn colliding(count: u64) -> impl Iterator<Item = Value> {
    (0..count).map(|number| {
        let mut state = Folding(SEED);
        state.write_usize(16);
        state.write_u64(number);
        // Whatever the state was, it is the same behind this word.
        let second = state.0 ^ 1;
        Value::Bytes([number.to_le_bytes(), second.to_le_bytes()].concat().into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_knows_the_function_can_make_values_collide() {
        let hashes: Vec<_> = colliding(10).map(|value| hash_key(std::iter::once(&value))).collect();
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }

    #[test]
    fn equal_values_hash_alike_and_others_do_not() {
        let hash = |values: &[Value]| hash_key(values.iter());
        assert_eq!(hash(&[Value::Float(0.0)]), hash(&[Value::Float(-0.0)]));
        assert_eq!(hash(&[Value::Padded("a ".into())]), hash(&[Value::Padded("a".into())]));
        assert_ne!(
            hash(&[Value::text("ab"), Value::text("c")]),
            hash(&[Value::text("a"), Value::text("bc")])
        );
        assert_ne!(hash(&[Value::text("a")]), hash(&[Value::text("a\0")]));
        assert_ne!(hash(&[Value::Int(1)]), hash(&[Value::Int(2)]));
    }

    #[test]
    fn partitions_of_two_levels_are_independent() {
        let mut counts = [[0_usize; 8]; 8];
        for number in 0..64_000 {
            let hash = hash_key([Value::Int(number)].iter());
            counts[partition(hash, 0, 8)][partition(hash, 1, 8)] += 1;
        }
        assert!(counts.iter().flatten().all(|&count| (800..1200).contains(&count)), "{counts:?}");
    }
}
