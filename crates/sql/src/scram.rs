//! Password verifiers: SCRAM-SHA-256 (RFC 5802, RFC 7677), in the text form PostgreSQL keeps them in, so that one can be taken over
//! from there. What is stored lets the server check a password and prove that it knows the verifier; the password itself is
//! not in it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use gannet_base::random;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// PostgreSQL's number of rounds.
const ITERATIONS: u32 = 4096;
const PREFIX: &str = "SCRAM-SHA-256$";
/// As PostgreSQL reads it: bits behind the last byte are nobody's.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// What is stored of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verifier {
    /// Rounds of hashing.
    pub iterations: u32,
    /// What the password is hashed with.
    pub salt: Vec<u8>,
    /// By which the client's proof is checked.
    pub stored_key: [u8; 32],
    /// By which the server proves that it knows the verifier.
    pub server_key: [u8; 32],
}

impl Verifier {
    /// Reads `SCRAM-SHA-256$iterations:salt$stored:server`; anything else is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        // Clients read a number that has a sign.
        let iterations =
            iterations.parse().ok().filter(|rounds| (1..=i32::MAX.unsigned_abs()).contains(rounds));
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty());
        Some(Verifier {
            iterations: iterations?,
            salt: salt?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// PBKDF2 with HMAC-SHA-256, for one block.
fn salted(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let mut round = hmac(password, &[salt, &1_u32.to_be_bytes()]);
    let mut result = round;
    for _ in 1..iterations {
        round = hmac(password, &[&round]);
        result.iter_mut().zip(round).for_each(|(byte, other)| *byte ^= other);
    }
    result
}

fn verifier_with(password: &str, salt: &[u8], iterations: u32) -> String {
    let salted = salted(password.as_bytes(), salt, iterations);
    let stored: [u8; 32] = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
    let server = hmac(&salted, &[b"Server Key"]);
    let [salt, stored, server] = [salt, &stored, &server].map(|bytes| BASE64.encode(bytes));
    format!("{PREFIX}{iterations}:{salt}${stored}:{server}")
}

/// A password as it is hashed: what SASLprep (RFC 4013) makes of it, so that it does not matter in which of several ways a keyboard writes a letter. One that it
/// forbids, or leaves nothing of, is taken as it is, as PostgreSQL and its clients do.
pub fn prepared(password: &str) -> Cow<'_, str> {
    match stringprep::saslprep(password) {
        Ok(prepared) if !prepared.is_empty() => prepared,
        _ => Cow::Borrowed(password),
    }
}

/// The verifier of a password. (The salt need not be secret, only another one each time.)
pub(crate) fn verifier(password: &str) -> String {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&random::next_u64().to_le_bytes());
    salt[8..].copy_from_slice(&random::next_u64().to_le_bytes());
    verifier_with(&prepared(password), &salt, ITERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_as_in_rfc_7677() {
        // The exchange there: user "user", password "pencil".
        let salt = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
        assert_eq!(BASE64.encode(salt), "W22ZaJ0SNY7soEsUEjb6gQ==");
        let salted = salted(b"pencil", salt, 4096);
        let auth = b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let server = hmac(&hmac(&salted, &[b"Server Key"]), &[auth]);
        assert_eq!(BASE64.encode(server), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn what_is_a_verifier_is_known_as_one() {
        assert!(Verifier::parse(&verifier("secret")).is_some());
        assert_ne!(verifier("secret"), verifier("secret"));
        for text in ["", "md5abc", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "secret"] {
            assert_eq!(Verifier::parse(text), None, "{text}");
        }
        let key = format!("{}=", "A".repeat(43));
        let with = |head: &str| Verifier::parse(&format!("SCRAM-SHA-256${head}${key}:{key}"));
        assert!(with("4096:AAAA").is_some());
        // What log-in could not read, or no client would take, is a password like any other.
        for head in
            ["4096:A===", "4096:", "4096:A", "0:AAAA", "-1:AAAA", "4294967295:AAAA", "x:AAAA", "4096:!!!!"]
        {
            assert_eq!(with(head), None, "{head}");
        }
    }

    #[test]
    fn passwords_are_prepared_as_in_postgresql() {
        // Those of RFC 4013, then one that is composed, a blank of another kind, and an unassigned character.
        for (text, expected) in [
            ("I\u{ad}X", "IX"),
            ("user", "user"),
            ("\u{aa}", "a"),
            ("\u{2168}", "IX"),
            ("a\u{7}b", "a\u{7}b"),
            ("\u{627}1", "\u{627}1"),
            ("u\u{308}ber", "\u{fc}ber"),
            ("\u{fc}\u{a0}b", "\u{fc} b"),
            ("\u{221}\u{aa}", "\u{221}\u{aa}"),
            ("\u{ad}", "\u{ad}"),
        ] {
            assert_eq!(prepared(text), expected, "{text:?}");
        }
        let salt = b"0123456789abcdef";
        assert_eq!(
            verifier_with(&prepared("u\u{308}ber"), salt, 1),
            verifier_with(&prepared("\u{fc}ber"), salt, 1)
        );
    }
}
