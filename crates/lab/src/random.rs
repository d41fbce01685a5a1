//! Cheap random numbers for workloads: reproducible from a seed, one generator per thread.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        // Mixed, since states a step apart give the same sequence a step apart.
        Random(mix(seed ^ 0x6C62_272E_07BB_0142))
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The numbers below `count` in an order without pattern, each once: a Feistel network over the next power of four,
/// walked until the result is in range.
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Shuffle {
    /// An order of `0..count`.
    pub fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - count.max(2).saturating_sub(1).leading_zeros();
        Shuffle { count, half_bits: bits.div_ceil(2), seed }
    }

    /// The number at `place`, which is below the count.
    pub fn at(&self, place: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let mut value = place;
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for round in 0..4 {
                let scrambled = mix(right ^ self.seed.rotate_left(round * 16) ^ u64::from(round)) & mask;
                (left, right) = (right, left ^ scrambled);
            }
            value = left << self.half_bits | right;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_seeds_have_nothing_in_common() {
        let take = |seed| {
            (0..100)
                .map({
                    let mut r = Random::new(seed);
                    move |_| r.next_u64()
                })
                .collect::<Vec<_>>()
        };
        assert!(take(1).iter().all(|number| !take(2).contains(number)));
    }

    #[test]
    fn a_shuffle_gives_every_number_once() {
        for count in [1, 2, 3, 100, 1000, 4096] {
            let shuffle = Shuffle::new(count, 7);
            let mut all: Vec<_> = (0..count).map(|place| shuffle.at(place)).collect();
            assert!(count < 100 || all[..10] != (0..10).collect::<Vec<_>>()[..]);
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..count));
        }
    }
}
