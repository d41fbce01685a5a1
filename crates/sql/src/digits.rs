//! Decimal digits, eight at a time: a division for each of them, and a branch for how many there are, would take several times as long.

/// What makes characters of eight digits.
pub(crate) const ASCII: u64 = u64::from_le_bytes([b'0'; 8]);

/// The digits of a number below 10^8, the most significant one in the lowest byte; no characters yet. Splits the number in halves, these
/// in halves, and these, all parts at once within a word: Paul Khuong, "How to print integers really fast" (2017).
#[inline]
pub(crate) fn eight(value: u32) -> u64 {
    debug_assert!(value < 100_000_000);
    let halves = u64::from(value / 10_000) | u64::from(value % 10_000) << 32;
    // Below 10000, n * 10486 >> 20 is n / 100; below 100, n * 103 >> 10 is n / 10.
    let hundreds = (halves * 10_486) >> 20 & 0x0000_007f_0000_007f;
    let pairs = hundreds | (halves - 100 * hundreds) << 16;
    let tens = (pairs * 103) >> 10 & 0x000f_000f_000f_000f;
    tens | (pairs - 10 * tens) << 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_number() {
        let all = (0..100_000).chain((0..100_000_000).step_by(997)).chain(99_990_000..100_000_000);
        for value in all {
            let text = (eight(value) | ASCII).to_le_bytes();
            assert_eq!(text.as_slice(), format!("{value:08}").as_bytes());
        }
    }
}
