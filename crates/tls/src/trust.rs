//! TLS without trust: any certificate will do, for the tunnel inside has keys of its own.
//!
//! Only TLS 1.3, in which the certificate is encrypted: whoever looks on sees a handshake with ALPN `http/1.1`, as of a
//! browser, and the proxy's name where the client's config has one (SNI). Sessions are not resumed, so that connections
//! of one client are not linked by a ticket.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The application protocol that both ends name: what HTTPS without HTTP/2 names.
const ALPN: &[u8] = b"http/1.1";

/// The name in a certificate that a proxy makes itself. Nobody looks for it there.
const NAME: &str = "localhost";

/// A certificate and its key, in the form of TLS.
#[derive(Clone)]
pub struct Identity(Arc<ServerConfig>);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// There is none.
    #[error("there is no certificate in it (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// It, or the key, cannot be read.
    #[error("it cannot be read as PEM: {0}")]
    Pem(#[from] pem::Error),
    /// The key does not belong to the certificate, or is of a kind that TLS does not know.
    #[error("TLS cannot use it: {0}")]
    Tls(#[from] Error),
}

impl Identity {
    /// A certificate, with those that vouch for it, and its key; both in PEM.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>()?;
        if chain.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key)?;
        let config = ServerConfig::builder_with_provider(provider());
        let config = config.with_protocol_versions(&[&TLS13])?.with_no_client_auth();
        let mut config = config.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

/// A new certificate that vouches for itself, and its key: both in PEM, one behind the other.
///
/// # Errors
/// The system has no randomness, in the library's words.
pub fn make_identity() -> Result<String, String> {
    let made = generate_simple_self_signed(vec![NAME.to_owned()]);
    let CertifiedKey { cert, signing_key } = made.map_err(|error| error.to_string())?;
    Ok(format!("{}{}", cert.pem(), signing_key.serialize_pem()))
}

/// How a client begins TLS.
pub(crate) fn connector() -> Result<TlsConnector, Error> {
    let provider = provider();
    let anybody = Anybody(provider.signature_verification_algorithms.supported_schemes());
    let config = ClientConfig::builder_with_provider(provider);
    let config = config.with_protocol_versions(&[&TLS13])?.dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(anybody));
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Takes every certificate: who the other end is, the handshake of the tunnel inside proves, and to that end alone.
#[derive(Debug)]
struct Anybody(Vec<SignatureScheme>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_was_made_here_is_one_that_can_be_used() {
        let made = make_identity().unwrap();
        assert!(Identity::from_pem(made.as_bytes(), made.as_bytes()).is_ok());
        let other = make_identity().unwrap();
        assert_ne!(made, other);
        let told = |certificate: &str, key: &str| {
            let made = Identity::from_pem(certificate.as_bytes(), key.as_bytes());
            made.err().map(|error| error.to_string()).unwrap_or_default()
        };
        for (certificate, key, expected) in [
            (made.as_str(), other.as_str(), "TLS cannot use it"),
            ("", made.as_str(), "there is no certificate in it"),
            ("no certificate at all\n", made.as_str(), "there is no certificate in it"),
            (made.as_str(), "", "it cannot be read as PEM"),
        ] {
            let told = told(certificate, key);
            assert!(told.starts_with(expected), "{told}");
        }
    }
}
