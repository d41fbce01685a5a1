//! TLS: certificate and key from PEM files, by rustls with ring.

use crate::{Error, Result};
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;

/// Reads a certificate chain and its key.
pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let bad = |path: &Path, what: String| Error::Setup(format!("{}: {what}", path.display()));
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| bad(certificate, format!("no certificate can be read: {error}")))?;
    if chain.is_empty() {
        return Err(bad(certificate, "there is no certificate in the file".into()));
    }
    if std::fs::read(key).is_ok_and(|text| is_encrypted(&text)) {
        let way_out = "the private key is encrypted, and nobody is asked for its passphrase: decrypt it into a file that only the server's user can \
                       read (umask 077; openssl pkey -in KEY -out FILE)";
        return Err(bad(key, way_out.into()));
    }
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| bad(key, format!("no private key can be read: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| bad(certificate, error.to_string()))?;
    Ok(Arc::new(config))
}

/// Whether a PEM file has an encrypted key, of PKCS #8 or of OpenSSL's older form.
fn is_encrypted(text: &[u8]) -> bool {
    let marks: [&[u8]; 2] = [b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED"];
    text.split(|byte| *byte == b'\n').any(|line| marks.contains(&line.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_was_called_none() {
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\r\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n",
        ] {
            assert!(is_encrypted(text.as_bytes()), "{text}");
        }
        assert!(!is_encrypted(b"-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"));
    }
}
