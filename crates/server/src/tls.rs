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
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| bad(key, format!("no private key can be read: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private))
        .map_err(|error| bad(certificate, error.to_string()))?;
    Ok(Arc::new(config))
}
