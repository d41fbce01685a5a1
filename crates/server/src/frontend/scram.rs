//! SCRAM-SHA-256, the client's side, without channel binding: RFC 5802 and 7677.

use super::invalid;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gannet_sql::scram::prepared;
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac, pbkdf2};
use std::io;
use std::num::NonZeroU32;

/// More iterations than this are a server that wants to keep us busy.
const ITERATIONS_MAX: u32 = 10_000_000;

/// An exchange under way.
#[derive(Debug)]
pub(super) struct Exchange {
    password: String,
    nonce: String,
    /// What the server has to send at the end.
    expected: Option<Vec<u8>>,
    proven: bool,
}

/// Begins; gives the first message.
pub(super) fn begin(password: &str) -> io::Result<(Exchange, String)> {
    let mut random = [0; 18];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| io::Error::other("the system has no randomness to give"))?;
    Ok(with_nonce(password, BASE64.encode(random)))
}

fn with_nonce(password: &str, nonce: String) -> (Exchange, String) {
    let first = format!("n,,{}", bare(&nonce));
    (Exchange { password: prepared(password).into_owned(), nonce, expected: None, proven: false }, first)
}

/// The first message without its header; the name is that of the start-up message.
fn bare(nonce: &str) -> String {
    format!("n=,r={nonce}")
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

impl Exchange {
    /// Answers the server's first message.
    pub(super) fn prove(&mut self, reply: &str) -> io::Result<String> {
        let attribute = |name: &str| {
            let found = reply.split(',').find_map(|part| part.strip_prefix(name));
            found.ok_or_else(|| invalid(format!("SCRAM: the server's message has no {name}")))
        };
        let nonce = attribute("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(invalid("SCRAM: the server's nonce does not continue ours"));
        }
        let salt = BASE64.decode(attribute("s=")?).map_err(|_| invalid("SCRAM: the salt is no base64"))?;
        let iterations = attribute("i=")?.parse().ok().filter(|count| *count <= ITERATIONS_MAX);
        let iterations = iterations.and_then(NonZeroU32::new);
        let iterations =
            iterations.ok_or_else(|| invalid("SCRAM: a number of iterations that makes no sense"))?;
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, &salt, self.password.as_bytes(), &mut salted);
        let client_key = sign(&salted, "Client Key");
        let stored_key = digest::digest(&digest::SHA256, &client_key);
        let without_proof = format!("c={},r={nonce}", BASE64.encode("n,,"));
        let covered = format!("{},{reply},{without_proof}", bare(&self.nonce));
        let signature = sign(stored_key.as_ref(), &covered);
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        self.expected = Some(sign(&sign(&salted, "Server Key"), &covered));
        Ok(format!("{without_proof},p={}", BASE64.encode(proof)))
    }

    /// Checks the server's last message.
    pub(super) fn check(&mut self, last: &str) -> io::Result<()> {
        let given = last.strip_prefix("v=").and_then(|text| BASE64.decode(text).ok());
        if given.is_none() || given != self.expected {
            return Err(invalid("the server did not prove that it knows the password"));
        }
        self.proven = true;
        Ok(())
    }

    /// Whether the server has proven that it knows the password.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scram::{Verifier, begin as server_begin};

    /// The verifier that PostgreSQL 15 stores for the password "pencil" with this salt.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn both_sides_agree_on_the_right_password_only() {
        // With a hyphen that is not to be seen, which SASLprep takes out.
        for (password, fits) in [("pencil", true), ("pen\u{ad}cil", true), ("Pencil", false)] {
            let (mut client, first) = begin(password).unwrap();
            let (server, reply) = server_begin(Verifier::parse(PENCIL).unwrap(), &first, &[7; 18]).unwrap();
            let last = server.finish(&client.prove(&reply).unwrap()).unwrap();
            assert_eq!(last.is_some(), fits);
            assert!(!client.is_proven());
            if let Some(last) = last {
                client.check(&last).unwrap();
                assert!(client.is_proven());
            }
        }
    }

    #[test]
    fn a_server_that_cheats_is_found_out() {
        let (mut client, _) = with_nonce("pencil", "abc".into());
        for reply in [
            "",
            "r=abc,s=AAAA,i=1",
            "r=xyz1,s=AAAA,i=1",
            "r=abc1,s=!,i=1",
            "r=abc1,s=AAAA,i=0",
            "r=abc1,s=AAAA,i=99999999",
        ] {
            assert!(client.prove(reply).is_err(), "{reply}");
        }
        client.prove("r=abc1,s=AAAA,i=1").unwrap();
        for last in ["", "v=", "v=AAAA", "e=other"] {
            assert!(client.check(last).is_err(), "{last}");
        }
        assert!(!client.is_proven());
    }
}
