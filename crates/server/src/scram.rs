//! SCRAM-SHA-256, the server's side, without channel binding: RFC 5802 and 7677.
//!
//! A name that does not exist, or has no password, goes through the same exchange with made-up salt, so that nobody learns from
//! the server which names there are. As a real one, that salt is another one in each database, and the same for as long as the database is there, across starts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use gannet_sql::scram::Verifier as Stored;
use gannet_sql::{Error, Result, SqlState};
use ring::{digest, hmac};

/// The mechanism's name.
pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// Bytes of randomness in the server's nonce.
const NONCE_BYTES: usize = 18;
/// Iterations that made-up verifiers claim: PostgreSQL's default.
const ITERATIONS: u32 = 4096;

/// By what a client is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verifier {
    stored: Stored,
    /// Made up: no password fits.
    fake: bool,
}

impl Verifier {
    /// Reads what is stored of a password.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Stored::parse(text).map(|stored| Verifier { stored, fake: false })
    }

    /// One that no password fits, always the same for a user of a database by one secret.
    pub(crate) fn made_up(secret: &[u8], database: &str, user: &str) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        // No name has a NUL.
        let salt = hmac::sign(&key, format!("{database}\0{user}").as_bytes()).as_ref()[..16].to_vec();
        let stored = Stored { iterations: ITERATIONS, salt, stored_key: [0; 32], server_key: [0; 32] };
        Verifier { stored, fake: true }
    }
}

/// An exchange under way, after the server's first message.
#[derive(Debug)]
pub(crate) struct Exchange {
    verifier: Verifier,
    nonce: String,
    /// What the proof covers so far: the client's first message without its header, and the server's.
    covered: String,
    header: String,
}

fn refused(why: &'static str) -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, format!("malformed SCRAM message: {why}"))
}

/// Answers the client's first message; gives the server's first one.
pub(crate) fn begin(
    verifier: Verifier,
    first: &str,
    random: &[u8; NONCE_BYTES],
) -> Result<(Exchange, String)> {
    let mut parts = first.splitn(3, ',');
    let (binding, identity, bare) = (parts.next(), parts.next(), parts.next());
    let (Some(binding), Some(identity), Some(bare)) = (binding, identity, bare) else {
        return Err(refused("the header is incomplete"));
    };
    match binding {
        "n" | "y" => {}
        _ if binding.starts_with("p=") => return Err(refused("channel binding was not offered")),
        _ => return Err(refused("the channel binding flag is unknown")),
    }
    if !identity.is_empty() {
        return Err(Error::unsupported("a SCRAM authorization identity"));
    }
    if bare.starts_with("m=") {
        return Err(Error::unsupported("a mandatory SCRAM extension"));
    }
    // The name in the message is passed over: the one of the start-up message counts.
    let client_nonce = bare
        .split(',')
        .find_map(|attribute| attribute.strip_prefix("r="))
        .filter(|nonce| !nonce.is_empty() && nonce.bytes().all(|b| (0x21..=0x7e).contains(&b)))
        .ok_or_else(|| refused("the nonce is missing"))?;
    let nonce = format!("{client_nonce}{}", BASE64.encode(random));
    let reply =
        format!("r={nonce},s={},i={}", BASE64.encode(&verifier.stored.salt), verifier.stored.iterations);
    let covered = format!("{bare},{reply}");
    let header = BASE64.encode(format!("{binding},{identity},"));
    Ok((Exchange { verifier, nonce, covered, header }, reply))
}

impl Exchange {
    /// Checks the client's last message; gives the server's last one, or `None` where the proof is wrong.
    pub(crate) fn finish(self, last: &str) -> Result<Option<String>> {
        let Some((without_proof, proof)) = last.rsplit_once(",p=") else {
            return Err(refused("the proof is missing"));
        };
        let mut attributes = without_proof.split(',');
        if attributes.next() != Some(&format!("c={}", self.header)) {
            return Err(refused("the channel binding does not match"));
        }
        if attributes.next() != Some(&format!("r={}", self.nonce)) {
            return Err(refused("the nonce does not match"));
        }
        let proof = BASE64.decode(proof).map_err(|_| refused("the proof is no base64"))?;
        if proof.len() != digest::SHA256_OUTPUT_LEN {
            return Err(refused("the proof has the wrong length"));
        }
        let covered = format!("{},{without_proof}", self.covered);
        let stored = hmac::Key::new(hmac::HMAC_SHA256, &self.verifier.stored.stored_key);
        let signature = hmac::sign(&stored, covered.as_bytes());
        let client_key: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        let key_digest = digest::digest(&digest::SHA256, &client_key);
        let matches = same(key_digest.as_ref(), &self.verifier.stored.stored_key);
        if !matches || self.verifier.fake {
            return Ok(None);
        }
        let server = hmac::Key::new(hmac::HMAC_SHA256, &self.verifier.stored.server_key);
        Ok(Some(format!("v={}", BASE64.encode(hmac::sign(&server, covered.as_bytes())))))
    }
}

/// Compares in a time that does not depend on where they differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's side.
    fn client(password: &str, reply: &str, bare: &str) -> String {
        let attribute = |name: &str| reply.split(',').find_map(|a| a.strip_prefix(name)).unwrap().to_owned();
        let salt = BASE64.decode(attribute("s=")).unwrap();
        let mut salted = [0; 32];
        let iterations = attribute("i=").parse().unwrap();
        ring::pbkdf2::derive(
            ring::pbkdf2::PBKDF2_HMAC_SHA256,
            iterations,
            &salt,
            password.as_bytes(),
            &mut salted,
        );
        let sign = |key: &[u8], text: &str| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
        };
        let client_key = sign(&salted, "Client Key");
        let stored = digest::digest(&digest::SHA256, &client_key);
        let without = format!("c={},r={}", BASE64.encode("n,,"), attribute("r="));
        let signature = sign(stored.as_ref(), &format!("{bare},{reply},{without}"));
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        format!("{without},p={}", BASE64.encode(proof))
    }

    /// The verifier that PostgreSQL 15 stores for the password "pencil" with this salt.
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn the_right_password_is_let_in_and_no_other() {
        for (password, fits) in [("pencil", true), ("Pencil", false), ("", false)] {
            let verifier = Verifier::parse(PENCIL).unwrap();
            let (exchange, reply) = begin(verifier, "n,,n=,r=abc", &[7; NONCE_BYTES]).unwrap();
            let answer = exchange.finish(&client(password, &reply, "n=,r=abc")).unwrap();
            assert_eq!(answer.is_some(), fits, "{password}");
        }
    }

    #[test]
    fn a_made_up_verifier_fits_nothing_and_stays_the_same() {
        let made_up = Verifier::made_up(b"secret", "shop", "nobody");
        assert_eq!(made_up, Verifier::made_up(b"secret", "shop", "nobody"));
        for (database, user) in [("shop", "somebody"), ("stock", "nobody"), ("shopn", "obody")] {
            let other = Verifier::made_up(b"secret", database, user);
            assert_ne!(made_up.stored.salt, other.stored.salt, "{database}, {user}");
        }
        let (exchange, reply) = begin(made_up, "n,,n=,r=abc", &[7; NONCE_BYTES]).unwrap();
        assert_eq!(exchange.finish(&client("", &reply, "n=,r=abc")).unwrap(), None);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let first = |text: &str| begin(Verifier::parse(PENCIL).unwrap(), text, &[7; NONCE_BYTES]).is_err();
        for text in
            ["", "n,,", "n,,n=", "p=tls-unique,,n=,r=a", "n,a=me,n=,r=a", "x,,n=,r=a", "n,,m=1,n=,r=a"]
        {
            assert!(first(text), "{text}");
        }
        for text in ["", "c=biws", "c=biws,r=wrong,p=AAAA", "c=biws,r=abc,p=!"] {
            let (exchange, _) =
                begin(Verifier::parse(PENCIL).unwrap(), "n,,n=,r=abc", &[7; NONCE_BYTES]).unwrap();
            assert!(exchange.finish(text).is_err(), "{text}");
        }
        for text in ["", "md5abc", "SCRAM-SHA-256$x:AA==$AA==:AA=="] {
            assert!(Verifier::parse(text).is_none(), "{text}");
        }
    }
}
