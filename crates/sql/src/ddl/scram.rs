//! Password verifiers: SCRAM-SHA-256 (RFC 5802, RFC 7677), in the text form PostgreSQL keeps them in, so that one can be taken over
//! from there. What is stored lets the server check a password and prove that it knows the verifier; the password itself is
//! not in it.

use gannet_base::random;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// PostgreSQL's number of rounds.
const ITERATIONS: u32 = 4096;
const PREFIX: &str = "SCRAM-SHA-256$";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

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

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut group = [0; 4];
        group[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(group);
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { letter as char } else { '=' });
        }
    }
    text
}

fn is_base64(text: &str, bytes: usize) -> bool {
    let digits = text.trim_end_matches('=');
    text.len() == bytes.div_ceil(3) * 4
        && digits.len() == (bytes * 4).div_ceil(3)
        && digits.bytes().all(|b| ALPHABET.contains(&b))
}

fn verifier_with(password: &str, salt: &[u8], iterations: u32) -> String {
    let salted = salted(password.as_bytes(), salt, iterations);
    let stored: [u8; 32] = Sha256::digest(hmac(&salted, &[b"Client Key"])).into();
    let server = hmac(&salted, &[b"Server Key"]);
    format!("{PREFIX}{iterations}:{}${}:{}", base64(salt), base64(&stored), base64(&server))
}

/// The verifier of a password. (The salt need not be secret, only another one each time.)
pub(super) fn verifier(password: &str) -> String {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&random::next_u64().to_le_bytes());
    salt[8..].copy_from_slice(&random::next_u64().to_le_bytes());
    verifier_with(password, &salt, ITERATIONS)
}

/// Whether a text is a verifier already.
pub(super) fn is_verifier(text: &str) -> bool {
    let Some((head, keys)) = text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('$')) else {
        return false;
    };
    let (Some((iterations, salt)), Some((stored, server))) = (head.split_once(':'), keys.split_once(':'))
    else {
        return false;
    };
    iterations.parse::<u32>().is_ok_and(|n| n > 0)
        && !salt.is_empty()
        && salt.bytes().all(|b| ALPHABET.contains(&b) || b == b'=')
        && is_base64(stored, 32)
        && is_base64(server, 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_rfc_4648() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, encoded) in cases {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }

    #[test]
    fn keys_as_in_rfc_7677() {
        // The exchange there: user "user", password "pencil".
        let salt = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
        assert_eq!(base64(salt), "W22ZaJ0SNY7soEsUEjb6gQ==");
        let salted = salted(b"pencil", salt, 4096);
        let auth = b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                     s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let server = hmac(&hmac(&salted, &[b"Server Key"]), &[auth]);
        assert_eq!(base64(&server), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn what_is_a_verifier_is_known_as_one() {
        assert!(is_verifier(&verifier("secret")));
        assert_ne!(verifier("secret"), verifier("secret"));
        for text in ["", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA", "secret"] {
            assert!(!is_verifier(text), "{text}");
        }
    }
}
