//! MD5 (RFC 1321), and SHA-2 by crate `sha2`.

use super::arguments::{bytes, text};
use super::encoding::hex;
use super::string::reserve;
use super::{Call, Function};
use crate::Result;
use crate::types::Value;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

/// The message with a one bit, zeros, and its length in bits, in blocks of 64 bytes.
fn padded(message: &[u8]) -> Vec<u8> {
    let mut padded = Vec::with_capacity(message.len() + 128);
    padded.extend_from_slice(message);
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64).wrapping_mul(8).to_le_bytes());
    padded
}

/// The MD5 digest.
fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(message).chunks_exact(64) {
        let word = |index: usize| {
            u32::from_le_bytes([
                block[index * 4],
                block[index * 4 + 1],
                block[index * 4 + 2],
                block[index * 4 + 3],
            ])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mixed, index) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(word(index));
            let rotated = sum.rotate_left(SHIFTS[step / 16][step % 4]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(rotated));
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

/// Integer parts of 2^32 |sin(i)|.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a,
    0xa830_4613, 0xfd46_9501, 0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be,
    0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821, 0xf61e_2562, 0xc040_b340,
    0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8,
    0x676f_02d9, 0x8d2a_4c8a, 0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c,
    0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70, 0x289b_7ec6, 0xeaa1_27fa,
    0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92,
    0xffef_f47d, 0x8584_5dd1, 0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1,
    0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];

fn md5_text(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let text = text(a, 0)?;
    reserve(call, Some(text.len()))?;
    Ok(Value::text(hex(&md5(text.as_bytes()))))
}

fn md5_bytes(call: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    let bytes = bytes(a, 0)?;
    reserve(call, Some(bytes.len()))?;
    Ok(Value::text(hex(&md5(bytes))))
}

macro_rules! digest {
    ($algorithm:ty) => {
        |_, a| Ok(Value::Bytes(<$algorithm>::digest(bytes(a, 0)?).as_slice().into()))
    };
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2311 "md5" (Text) Text = md5_text;
    2321 "md5" (Bytea) Text = md5_bytes;
    3419 "sha224" (Bytea) Bytea = digest!(Sha224);
    3420 "sha256" (Bytea) Bytea = digest!(Sha256);
    3421 "sha384" (Bytea) Bytea = digest!(Sha384);
    3422 "sha512" (Bytea) Bytea = digest!(Sha512);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_postgresql() {
        for length in [0_usize, 3, 55, 56, 63, 64, 111, 112, 127, 128, 200] {
            let message: Vec<u8> = "abc".bytes().cycle().take(length).collect();
            let line = DIGESTS.lines().find(|line| line.starts_with(&format!("{length} "))).unwrap();
            let expected = line.split(' ').nth(1);
            assert_eq!(Some(hex(&md5(&message)).as_str()), expected, "{length} bytes");
        }
    }

    /// MD5 of so many bytes "abcabc...", by PostgreSQL.
    const DIGESTS: &str = "\
0 d41d8cd98f00b204e9800998ecf8427e\n\
3 900150983cd24fb0d6963f7d28e17f72\n\
55 b229ce3e9155c1262b8110f9ac78dc62\n\
56 c136138d8f1ce2350527a24d0db231ae\n\
63 25982a1d97e97318d387f77aa0252ac4\n\
64 efefeedae197ed614b582e1490f9e33e\n\
111 f05a9a81d3a84aca51ca41cbb0535a3b\n\
112 e5b31ea1d4f9d35cdea0b8c183a967e0\n\
127 c42263085350ff8160f58c5494d2601c\n\
128 d9ca6199cb0cb38ac4b7b94be835b423\n\
200 e4cb2d9659bb46833acbb166bc90a4ca";
}
