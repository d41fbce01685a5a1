//! TLS, the client's side. As with libpq, `prefer` and `require` encrypt for whoever answers, unless a root certificate is given; `verify-full`
//! makes sure of who it is.

use super::{Address, Host, SslMode, invalid};
use crate::stream::Socket;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::io;
use std::sync::Arc;

/// Encrypts a connection.
pub(super) fn encrypt(
    socket: Socket,
    address: &Address,
) -> io::Result<StreamOwned<ClientConnection, Socket>> {
    let Host::Name(host) = &address.host else { return Err(invalid("TLS is for TCP")) };
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let config = match (&address.root_certificate, address.ssl) {
        (Some(path), _) => {
            let cannot = |error: &dyn std::fmt::Display| invalid(format!("{}: {error}", path.display()));
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| cannot(&error))? {
                roots.add(certificate.map_err(|error| cannot(&error))?).map_err(|error| cannot(&error))?;
            }
            config.with_root_certificates(roots).with_no_client_auth()
        }
        (None, SslMode::VerifyFull) => {
            return Err(invalid("sslmode=verify-full needs a root certificate: sslrootcert=FILE"));
        }
        (None, _) => {
            let anybody = Arc::new(Anybody(provider));
            config.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()
        }
    };
    let name = ServerName::try_from(host.clone()).map_err(|error| invalid(format!("{host}: {error}")))?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut tls = StreamOwned::new(connection, socket);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).map_err(|error| explain(error, address))?;
    }
    Ok(tls)
}

/// What is to be done about a certificate that is refused, where its refusal does not say so.
fn explain(error: io::Error, address: &Address) -> io::Error {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref());
    let (Some(rustls::Error::InvalidCertificate(why)), Some(roots)) = (refused, &address.root_certificate)
    else {
        return error;
    };
    match why {
        CertificateError::UnknownIssuer => invalid(format!(
            "the server's certificate is not signed by an authority in sslrootcert={}",
            roots.display()
        )),
        // As `openssl req -x509` makes it. rustls has no name for it, only its verifier's.
        CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => invalid(
            "the server's certificate is one of an authority (CA:TRUE), which only signs others: give the server one with \
             basicConstraints=CA:FALSE, signed by itself or by an authority in sslrootcert",
        ),
        _ => error,
    }
}

/// Takes any certificate, but sees to it that the server has its key.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
