//! Links over TLS, where the config takes them: the port, and the certificate.
//!
//! The certificate convinces nobody of anything, for clients take any: the handshake of the tunnel inside proves who is
//! who. So one that the proxy has made itself will do, and one that is damaged is made again.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_link_io::clock::Clock;
use ropewalk_tls::{Identity, Listener, make_identity};

use crate::config::{CertificateFiles, Config, TlsConfig};
use crate::port;

/// Bytes of the longest file of certificates or of a key that is read: a chain of a dozen.
const MAX_FILE: u64 = 64 * 1024;

/// Opens the port, where the config takes links over TLS.
///
/// # Errors
/// It is taken or forbidden; what to do.
pub(crate) fn bind(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    let Some(TlsConfig { listen, .. }) = &config.tls else { return Ok(None) };
    match ropewalk_tls::bind(*listen) {
        Ok(bound) => Ok(Some(bound)),
        Err(error) => Err(unusable(*listen, error)),
    }
}

fn unusable(listen: std::net::SocketAddr, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::AddrInUse => {
            let holder = port::tcp_holder(listen.port());
            let holder = holder.map_or_else(|| "another process".to_owned(), |it| it.to_string());
            anyhow!(
                "{holder} holds TCP {listen}, which [tls] asks for: end that one, or write another port into `listen` of [tls], \
                 and into `tls_port` of each client's config"
            )
        }
        ErrorKind::PermissionDenied => anyhow!(
            "listening at TCP {listen}, which [tls] asks for, needs the capability CAP_NET_BIND_SERVICE (run as root, or \
             grant it)"
        ),
        _ => anyhow::Error::new(error)
            .context(format!("cannot listen at TCP {listen}, which [tls] asks for")),
    }
}

/// Begins to take links over TLS.
///
/// # Errors
/// The operator's certificate cannot be used, none can be made, or the system has no thread to give.
pub(crate) fn start(
    config: &Config,
    bound: Option<TcpListener>,
    clock: Clock,
) -> anyhow::Result<Option<Listener>> {
    let (Some(bound), Some(tls)) = (bound, &config.tls) else { return Ok(None) };
    let identity = match &tls.files {
        Some(files) => given(files)?,
        None => own(&config.tls_file())?,
    };
    let started = Listener::start(bound, &identity, config.listen, clock);
    Ok(Some(started.context("cannot take links over TLS")?))
}

/// The operator's certificate.
fn given(files: &CertificateFiles) -> anyhow::Result<Identity> {
    let CertificateFiles { certificate, key } = files;
    let read = |file: &Path| {
        let content = folder::read(file, MAX_FILE);
        content.with_context(|| format!("cannot read {}, which [tls] names", file.display()))
    };
    let made = Identity::from_pem(&read(certificate)?.bytes, &read(key)?.bytes);
    made.with_context(|| format!("the certificate {}, which [tls] names", certificate.display()))
}

/// The proxy's own, which is made the first time.
fn own(file: &Path) -> anyhow::Result<Identity> {
    match folder::read(file, MAX_FILE) {
        Ok(content) => match Identity::from_pem(&content.bytes, &content.bytes) {
            Ok(identity) => return Ok(identity),
            Err(error) => {
                tracing::warn!(
                    "the certificate {} is damaged ({error}): another one is made",
                    file.display()
                );
            }
        },
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", file.display()));
        }
    }
    let made = make_identity().map_err(|why| anyhow!("cannot make a certificate: {why}"))?;
    file::replace(file, made.as_bytes())
        .with_context(|| format!("cannot write the certificate {}", file.display()))?;
    Ok(Identity::from_pem(made.as_bytes(), made.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_again_when_it_is_damaged_and_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state").join("tls.pem");
        assert!(own(&file).is_ok());
        let first = std::fs::read(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(own(&file).is_ok());
        assert_eq!(std::fs::read(&file).unwrap(), first);
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\ncut off").unwrap();
        assert!(own(&file).is_ok());
        assert_ne!(std::fs::read(&file).unwrap(), first);
    }

    #[test]
    fn a_certificate_of_the_operators_that_cannot_be_used_is_told_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = CertificateFiles { certificate: path("c.pem"), key: path("k.pem") };
        let told = |files: &CertificateFiles| {
            given(files).err().map(|error| format!("{error:#}")).unwrap_or_default()
        };
        assert!(told(&files).contains("c.pem, which [tls] names: "), "{}", told(&files));
        std::fs::write(&files.certificate, "nothing").unwrap();
        std::fs::write(&files.key, make_identity().unwrap()).unwrap();
        assert!(told(&files).contains("there is no certificate in it"), "{}", told(&files));
        std::fs::write(&files.certificate, make_identity().unwrap()).unwrap();
        assert!(told(&files).contains("TLS cannot use it"), "{}", told(&files));
        std::fs::copy(&files.key, &files.certificate).unwrap();
        assert_eq!(told(&files), "");
    }

    #[test]
    fn a_port_that_is_taken_is_told_with_who_holds_it() {
        let taken = ropewalk_tls::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = taken.local_addr().unwrap();
        let error = ropewalk_tls::bind(at).unwrap_err();
        let told = unusable(at, error).to_string();
        let holds =
            format!("(process {}) holds TCP {at}, which [tls] asks for", std::process::id());
        assert!(told.contains(&holds) && told.contains("`tls_port`"), "{told}");
    }
}
