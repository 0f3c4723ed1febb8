//! `[tls]`: links over TLS, for clients in networks that let no UDP through.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{DEFAULT_TLS_PORT, Parsed};
use serde::Deserialize;
use toml::Spanned;

use super::closed_to_others;

/// What `[tls]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The TCP address at which links over TLS are taken.
    pub listen: SocketAddr,
    /// The operator's own certificate; `None`: one that the proxy makes itself.
    pub files: Option<CertificateFiles>,
}

/// A certificate and its key, each in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, with those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl fmt::Display for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.files {
            None => write!(f, "{}, certificate of its own making", self.listen),
            Some(files) => {
                write!(f, "{}, certificate {}", self.listen, files.certificate.display())
            }
        }
    }
}

/// `[tls]` as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsFile {
    listen: Option<Spanned<Parsed<SocketAddr>>>,
    certificate_file: Option<Spanned<PathBuf>>,
    key_file: Option<Spanned<PathBuf>>,
}

impl TlsFile {
    pub(super) fn resolve(&self, source: &Source) -> Result<TlsConfig, ConfigError> {
        let listen = match &self.listen {
            None => SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_TLS_PORT)),
            Some(address) if address.get_ref().0.port() == 0 => {
                let message = "port 0 would be another port at each start";
                let help =
                    format!("write a port the clients know, such as \"[::]:{DEFAULT_TLS_PORT}\"");
                return Err(source.error(address.span(), message).with_help(&help));
            }
            Some(address) => address.get_ref().0,
        };
        Ok(TlsConfig { listen, files: self.files(source)? })
    }

    fn files(&self, source: &Source) -> Result<Option<CertificateFiles>, ConfigError> {
        let (certificate, key) = match (&self.certificate_file, &self.key_file) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(one), None) | (None, Some(one)) => {
                let message = "certificate_file and key_file belong together: write both";
                return Err(source.error(one.span(), message));
            }
        };
        closed_to_others(source, key)?;
        let path = |file: &Spanned<PathBuf>| source.beside(file.get_ref());
        Ok(Some(CertificateFiles { certificate: path(certificate), key: path(key) }))
    }
}
