//! MD5 (RFC 1321) and SHA-2 (FIPS 180-4).

use super::arguments::{bytes, text};
use super::encoding::hex;
use super::{Call, Function};
use crate::Result;
use crate::types::Value;

/// The message with a one bit, zeros, and its length in bits in the last `length_bytes` bytes of a block.
fn padded(message: &[u8], block: usize, length_bytes: usize, big_endian: bool) -> Vec<u8> {
    let mut padded = Vec::with_capacity(message.len() + 2 * block);
    padded.extend_from_slice(message);
    padded.push(0x80);
    while padded.len() % block != block - length_bytes {
        padded.push(0);
    }
    let bits = message.len() as u128 * 8;
    if big_endian {
        padded.extend_from_slice(&bits.to_be_bytes()[16 - length_bytes..]);
    } else {
        padded.extend_from_slice(&bits.to_le_bytes()[..length_bytes]);
    }
    padded
}

/// The MD5 digest.
pub fn md5(message: &[u8]) -> [u8; 16] {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(message, 64, 8, false).chunks_exact(64) {
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

macro_rules! sha2 {
    ($name:ident $word:ty, $bytes:literal, $rounds:literal, $length_bytes:literal,
     $big:expr, $small:expr, $constants:expr) => {
        fn $name(message: &[u8], mut state: [$word; 8]) -> Vec<u8> {
            const BLOCK: usize = 16 * $bytes;
            let rotations = |value: $word, by: [u32; 3]| {
                value.rotate_right(by[0]) ^ value.rotate_right(by[1]) ^ value.rotate_right(by[2])
            };
            let schedule = |value: $word, by: [u32; 3]| {
                value.rotate_right(by[0]) ^ value.rotate_right(by[1]) ^ (value >> by[2])
            };
            let (big, small): ([[u32; 3]; 2], [[u32; 3]; 2]) = ($big, $small);
            for block in padded(message, BLOCK, $length_bytes, true).chunks_exact(BLOCK) {
                let mut words = [0; $rounds];
                for (word, bytes) in words.iter_mut().zip(block.chunks_exact($bytes)) {
                    *word = bytes.iter().fold(0, |word: $word, byte| word << 8 | <$word>::from(*byte));
                }
                for index in 16..$rounds {
                    words[index] = schedule(words[index - 2], small[1])
                        .wrapping_add(words[index - 7])
                        .wrapping_add(schedule(words[index - 15], small[0]))
                        .wrapping_add(words[index - 16]);
                }
                let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
                for (word, constant) in words.iter().zip($constants) {
                    let first = h
                        .wrapping_add(rotations(e, big[1]))
                        .wrapping_add((e & f) ^ (!e & g))
                        .wrapping_add(constant)
                        .wrapping_add(*word);
                    let second = rotations(a, big[0]).wrapping_add((a & b) ^ (a & c) ^ (b & c));
                    (h, g, f, e, d, c, b, a) =
                        (g, f, e, d.wrapping_add(first), c, b, a, first.wrapping_add(second));
                }
                for (sum, part) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
                    *sum = sum.wrapping_add(part);
                }
            }
            state.iter().flat_map(|word| word.to_be_bytes()).collect()
        }
    };
}

sha2!(short u32, 4, 64, 8, [[2, 13, 22], [6, 11, 25]], [[7, 18, 3], [17, 19, 10]], ROOTS.iter().map(|root| (root >> 32) as u32));
sha2!(long u64, 8, 80, 16, [[28, 34, 39], [14, 18, 41]], [[1, 8, 7], [19, 61, 6]], ROOTS);

/// The first 64 fractional bits of the cube roots of the first 80 primes; SHA-256 takes 32 bits of the first 64.
#[rustfmt::skip]
const ROOTS: [u64; 80] = [
    0x428a_2f98_d728_ae22, 0x7137_4491_23ef_65cd, 0xb5c0_fbcf_ec4d_3b2f, 0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538, 0x59f1_11f1_b605_d019, 0x923f_82a4_af19_4f9b, 0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242, 0x1283_5b01_4570_6fbe, 0x2431_85be_4ee4_b28c, 0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f, 0x80de_b1fe_3b16_96b1, 0x9bdc_06a7_25c7_1235, 0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2, 0xefbe_4786_384f_25e3, 0x0fc1_9dc6_8b8c_d5b5, 0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275, 0x4a74_84aa_6ea6_e483, 0x5cb0_a9dc_bd41_fbd4, 0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab, 0xa831_c66d_2db4_3210, 0xb003_27c8_98fb_213f, 0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2, 0xd5a7_9147_930a_a725, 0x06ca_6351_e003_826f, 0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc, 0x2e1b_2138_5c26_c926, 0x4d2c_6dfc_5ac4_2aed, 0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de, 0x766a_0abb_3c77_b2a8, 0x81c2_c92e_47ed_aee6, 0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364, 0xa81a_664b_bc42_3001, 0xc24b_8b70_d0f8_9791, 0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218, 0xd699_0624_5565_a910, 0xf40e_3585_5771_202a, 0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8, 0x1e37_6c08_5141_ab53, 0x2748_774c_df8e_eb99, 0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63, 0x4ed8_aa4a_e341_8acb, 0x5b9c_ca4f_7763_e373, 0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc, 0x78a5_636f_4317_2f60, 0x84c8_7814_a1f0_ab72, 0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28, 0xa450_6ceb_de82_bde9, 0xbef9_a3f7_b2c6_7915, 0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c, 0xd186_b8c7_21c0_c207, 0xeada_7dd6_cde0_eb1e, 0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba, 0x0a63_7dc5_a2c8_98a6, 0x113f_9804_bef9_0dae, 0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84, 0x32ca_ab7b_40c7_2493, 0x3c9e_be0a_15c9_bebc, 0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6, 0x597f_299c_fc65_7e2a, 0x5fcb_6fab_3ad6_faec, 0x6c44_198c_4a47_5817,
];

/// The first 64 fractional bits of the square roots of the first 8 primes.
#[rustfmt::skip]
const SQUARE_ROOTS: [u64; 8] = [
    0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1, 0x9b05_688c_2b3e_6c1f, 0x1f83_d9ab_fb41_bd6b, 0x5be0_cd19_137e_2179,
];

/// The first 64 fractional bits of the square roots of the next 8 primes; SHA-224 takes the last 32 bits.
#[rustfmt::skip]
const NEXT_ROOTS: [u64; 8] = [
    0xcbbb_9d5d_c105_9ed8, 0x629a_292a_367c_d507, 0x9159_015a_3070_dd17, 0x152f_ecd8_f70e_5939,
    0x6733_2667_ffc0_0b31, 0x8eb4_4a87_6858_1511, 0xdb0c_2e0d_64f9_8fa7, 0x47b5_481d_befa_4fa4,
];

/// The SHA-224 digest.
pub fn sha224(message: &[u8]) -> Vec<u8> {
    let mut digest = short(message, NEXT_ROOTS.map(|root| root as u32));
    digest.truncate(28);
    digest
}

/// The SHA-256 digest.
pub fn sha256(message: &[u8]) -> Vec<u8> {
    short(message, SQUARE_ROOTS.map(|root| (root >> 32) as u32))
}

/// The SHA-384 digest.
pub fn sha384(message: &[u8]) -> Vec<u8> {
    let mut digest = long(message, NEXT_ROOTS);
    digest.truncate(48);
    digest
}

/// The SHA-512 digest.
pub fn sha512(message: &[u8]) -> Vec<u8> {
    long(message, SQUARE_ROOTS)
}

fn md5_text(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::text(hex(&md5(text(a, 0)?.as_bytes()))))
}

fn md5_bytes(_: &Call<'_, '_>, a: &[Value]) -> Result<Value> {
    Ok(Value::text(hex(&md5(bytes(a, 0)?))))
}

macro_rules! digest {
    ($function:expr) => {
        |_, a| Ok(Value::Bytes($function(bytes(a, 0)?).into()))
    };
}

#[rustfmt::skip]
pub(super) const FUNCTIONS: &[Function] = functions! {
    2311 "md5" (Text) Text = md5_text;
    2321 "md5" (Bytea) Text = md5_bytes;
    3419 "sha224" (Bytea) Bytea = digest!(sha224);
    3420 "sha256" (Bytea) Bytea = digest!(sha256);
    3421 "sha384" (Bytea) Bytea = digest!(sha384);
    3422 "sha512" (Bytea) Bytea = digest!(sha512);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_postgresql() {
        for length in [0_usize, 3, 55, 56, 63, 64, 111, 112, 127, 128, 200] {
            let message: Vec<u8> = "abc".bytes().cycle().take(length).collect();
            let line = DIGESTS.lines().find(|line| line.starts_with(&format!("{length} "))).unwrap();
            let expected: Vec<&str> = line.split(' ').skip(1).collect();
            let got = [
                hex(&md5(&message)),
                hex(&sha224(&message)),
                hex(&sha256(&message)),
                hex(&sha384(&message)),
                hex(&sha512(&message)),
            ];
            assert_eq!(got.to_vec(), expected, "{length} bytes");
        }
    }

    /// Of so many bytes "abcabc...": md5, sha224, sha256, sha384, sha512, by PostgreSQL.
    const DIGESTS: &str = "\
0 d41d8cd98f00b204e9800998ecf8427e d14a028c2a3a2bc9476102bb288234c415a2b01f828ea62ac5b3e42f e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 38b060a751ac96384cd9327eb1b1e36a21fdb71114be07434c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e\n\
3 900150983cd24fb0d6963f7d28e17f72 23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7 ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f\n\
55 b229ce3e9155c1262b8110f9ac78dc62 f6d1a0d9d9fb11f8b886f71b8960f00f80fb1c1d15f0288eed3415fb 61fd29acc674f5bf68ff548a1aef2a05ba3523a9ba8e5c82b194cbbfdf28bf1f d4d0380c683a5771b14b4972034e4c1d9a8bf1db13acba9497cce551ddea4112d7dbc9248ce6129abee44a898db88a41 00521d935d46a8ff6d90f58a39b7b4761ac6f17218050531e68dc3e3332d2552665d27495a645522a29fa68281dc00a3feb6dc4bf8dc2b2a39c1eeb531f8359b\n\
56 c136138d8f1ce2350527a24d0db231ae 7e9fc1f518c44c97cfd1a642c658898852eae73040d7a89f177dfa9f 63bb88000afff2d2569ece88877c4271c9f28de8620585c27538ce4e5a3701bb e62522a1b414415b17e4ddbacda63c9261d5e0ea68b969be4d0f37d487431b8e6226ed287e3c532b530f74ff35e64e23 d50773734520e35e4fc8b38cce14ebbe2f47e76c593f8ea9642c8cf839bb973c3190fdc05d8f7530ba8e97dd36f813e89518fa820292cd41e6d7b0748510e02a\n\
63 25982a1d97e97318d387f77aa0252ac4 118a4fd6cd72c47dba48dd82c884251f7d91bb5396c6bdf7d21fc096 23fdd92cd8f2cdf8d057479d7bc39d74d0bd90bef2191627dcc9936102a2e90f 7efa118f5f45198aec5756a8a440ccbd78efc98819da7bae6953525f1895820a77a6150a8c70489f3792a32160a8804e 7ae41793495e6e3719bcf8bed826b2a108bd9f6694dec7f0414e8b38059326dc539e7fba22004889b089cad9c637d370f17b0d3ed4283c065f14b88b8d9093c3\n\
64 efefeedae197ed614b582e1490f9e33e 89cbd2d0b7deb2f3be3315d49287721aad87c3d59294960b5e670064 9ed060c766efa8e4a9e451aef0915daf135de966d62728466cc7215baf33c0a2 a20587738e1402135261a71469840ed5054a4d15847900f8dc30dde912f0ca114d03cf3a6cfdbcb9d39b250894237100 b99546fb14f6c5e8459f132168b1726fb1a717ee87337411bad7b38f5099e051ad2d7ed6a1a3004f502fca511738da95de49a1935d774155af5242b4eb08cf69\n\
111 f05a9a81d3a84aca51ca41cbb0535a3b 2f9ea55ee7602d889f70dc5c3f3a0c6b4991d6bdaa8347c9b01ba206 e9aac042f794d23350d00a9b4d7107465742d97cc82936fe5ab0530a15b5d1dd f031b53f8b9cc6a72eb24114d0dfd7da3fb2e8a1e5ef71ade7369293779f0c648acfb53f0425b6c9ec2584913e1652e1 c793b4ff0b2eb049192615ad1d2a9cb507bacfaa528599145752dc420199b9134cdbe02bb3e2ce9c48289abd0c97d9b51dc875bc2994468c120e306c657c8447\n\
112 e5b31ea1d4f9d35cdea0b8c183a967e0 0642c9975586e0fe0a32b341000240a01cba39e3c3a1e119a4762213 6773510bff3f9ea20b64df5fdcaa9ac6558615098b834a310a2c3af6716ae3cd ac1558e9953bce9373d223d355ab26b5c43d97ca10585b6aedefc10fc6a5beb9950cdb8ef1a0a9afdea3f9608dbb12ce f6d73e02bec5cadaf1bbca4a1230022aca4ec37e02d0a5b7b5924a21992803bb4b0490a3047bc7735fc08600930c22e13a2e94d6109a8d9be60fdbc3edfc6e59\n\
127 c42263085350ff8160f58c5494d2601c aa3aeb3f924eaa9e3f937d625d4743d7a0fa702b0f8faafe2f6f66a8 777ffd658dbf11698ef7ae506f3cc0c34387680460bf84e3517414bf56c49c25 4cc11190676f8719b7d241d476c5c74ec518724ad55673812c55ad270cd1a7b1ec97da2c4673c84fa6190b5d0a50b476 593515eb0f49a080e8bf5566f5be1587244e9f62aef6ceafff3b086dfee1c37068ff2c6f1efd94af39fbed4dd8e6ab14a14bd350ca7bb86a8323496c26053731\n\
128 d9ca6199cb0cb38ac4b7b94be835b423 d1c2ed13f9a490852e1beaaf40a17fb981b2e246478e3f07a4a8832c 4635ebf5d999837daa19d22dd0fa1067db65aabd0fd559968bd252077a9eada6 9eb8d7b0dfcd8267d73cf49a6d9bfcd050b87b8433dad3bdc01f6cab759721276a89f87892f72596b9772fc6676f1149 3c72b3f06f95ebdf5dcdc47d3f4e1182106b261e0e6ea3b035127c480f580ee7d1dc04b5e5e3b54adc3364bb0b7b6e8d897a9a36bc037da01ce4f5bb52177418\n\
200 e4cb2d9659bb46833acbb166bc90a4ca 4668ebffd71795963ffd5fe1866bedc95ad5b770ba354f39355170ab aabe614a1097005a5acec29c91394f2ebdd6ea34f6cc8cbeac512b5a58e471a6 796bd6d0ee8aae78d6f8b9cd22e12cc513533f4391c5bf60408342320c2603ebd01f09b642ec578fd30d4ebd82c4da13 be43cf3fc2d14699e06198bf8afaa2ae98944714ed0a6d23a6654cdb94f9ef040454130b2d933f50bd58eccf042508cdb5bb818140c1152692ac2d7327383142";
}
