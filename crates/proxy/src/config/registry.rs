//! `[registry]`: the registry in etcd that several proxies share, and what this proxy is in it.

use std::net::IpAddr;
use std::path::PathBuf;

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_fleet::store::TlsFiles;
use serde::Deserialize;
use toml::Spanned;

use super::{check_peer_name, closed_to_others};

/// What all keys begin with where `prefix` does not say otherwise.
const DEFAULT_PREFIX: &str = "/ropewalk";

/// Most members of etcd: it is made for at most seven.
const MAX_ENDPOINTS: usize = 9;

/// Characters of the longest prefix.
const MAX_PREFIX: usize = 64;

/// Characters of the longest id of a proxy, and bytes of the longest region.
const MAX_WORD: usize = 32;

/// What `[registry]` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryConfig {
    /// The members of etcd, as URLs.
    pub endpoints: Vec<String>,
    /// What all keys begin with, without a slash at the end.
    pub prefix: String,
    /// How the fleet is called.
    pub fleet: String,
    /// This proxy's id in it.
    pub id: String,
    /// Where it stands.
    pub region: String,
    /// Clients that it is made for.
    pub capacity: u32,
    /// The files of TLS.
    pub tls: Option<TlsFiles>,
}

/// `[registry]` as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RegistryFile {
    endpoints: Spanned<Vec<String>>,
    prefix: Option<Spanned<String>>,
    pub(super) fleet: Spanned<String>,
    id: Spanned<String>,
    region: Option<Spanned<String>>,
    capacity: Option<Spanned<u32>>,
    tls_ca_file: Option<Spanned<PathBuf>>,
    tls_certificate_file: Option<Spanned<PathBuf>>,
    tls_key_file: Option<Spanned<PathBuf>>,
}

impl RegistryFile {
    pub(super) fn resolve(
        &self,
        source: &Source,
        max_peers: usize,
    ) -> Result<RegistryConfig, ConfigError> {
        let fleet = self.fleet.get_ref();
        check_peer_name(fleet).map_err(|_| {
            source.error(self.fleet.span(), "a fleet's name has 1 to 64 printable characters")
        })?;
        let id = self.id.get_ref();
        if !is_id(id) {
            return Err(source.error(
                self.id.span(),
                "an id has 1 to 32 small letters, digits and hyphens, such as \"fra-1\"",
            ));
        }
        let tls = self.tls(source)?;
        Ok(RegistryConfig {
            endpoints: self.endpoints(source, tls.is_some())?,
            prefix: self.prefix(source)?,
            fleet: fleet.clone(),
            id: id.clone(),
            region: self.region(source)?,
            capacity: self.capacity(source, max_peers)?,
            tls,
        })
    }

    fn endpoints(&self, source: &Source, tls: bool) -> Result<Vec<String>, ConfigError> {
        let (span, endpoints) = (self.endpoints.span(), self.endpoints.get_ref());
        if !(1..=MAX_ENDPOINTS).contains(&endpoints.len()) {
            let message =
                format!("{} endpoints; 1 to {MAX_ENDPOINTS} are possible", endpoints.len());
            return Err(source.error(span, &message));
        }
        for endpoint in endpoints {
            let safe = match endpoint.split_once("://") {
                Some(("https", host)) if !host.is_empty() && tls => continue,
                Some(("https", host)) if !host.is_empty() => {
                    return Err(source.error(
                        span,
                        "https needs tls_ca_file, tls_certificate_file and tls_key_file",
                    ));
                }
                Some(("http", host)) if tls => {
                    let message = format!("`http://{host}` does not use the files of TLS");
                    return Err(source.error(span, &message).with_help("write https"));
                }
                Some(("http", host)) => is_loopback(host),
                _ => {
                    let message =
                        format!("`{endpoint}` is not a URL such as \"https://10.0.0.1:2379\"");
                    return Err(source.error(span, &message));
                }
            };
            if !safe {
                let message = format!(
                    "`{endpoint}` is another machine without TLS: whoever is on the way could let clients in"
                );
                return Err(source.error(span, &message).with_help(
                    "write https, with tls_ca_file, tls_certificate_file and tls_key_file",
                ));
            }
        }
        Ok(endpoints.clone())
    }

    fn prefix(&self, source: &Source) -> Result<String, ConfigError> {
        let Some(prefix) = &self.prefix else { return Ok(DEFAULT_PREFIX.to_owned()) };
        let text = prefix.get_ref();
        let good = (2..=MAX_PREFIX).contains(&text.len())
            && text.starts_with('/')
            && !text.ends_with('/')
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        match good {
            true => Ok(text.clone()),
            false => Err(source.error(
                prefix.span(),
                "a prefix begins with a slash, ends without one, and has 2 to 64 ASCII characters, such as \"/ropewalk/home\"",
            )),
        }
    }

    fn region(&self, source: &Source) -> Result<String, ConfigError> {
        let Some(region) = &self.region else { return Ok(String::new()) };
        let text = region.get_ref();
        match text.len() <= MAX_WORD && !text.chars().any(char::is_control) {
            true => Ok(text.clone()),
            false => Err(source.error(region.span(), "a region has at most 32 printable bytes")),
        }
    }

    fn capacity(&self, source: &Source, max_peers: usize) -> Result<u32, ConfigError> {
        match &self.capacity {
            None => Ok(u32::try_from(max_peers).unwrap_or(u32::MAX)),
            Some(capacity) if *capacity.get_ref() > 0 => Ok(*capacity.get_ref()),
            Some(capacity) => Err(source.error(capacity.span(), "a capacity is at least 1 client")),
        }
    }

    fn tls(&self, source: &Source) -> Result<Option<TlsFiles>, ConfigError> {
        let files = [&self.tls_ca_file, &self.tls_certificate_file, &self.tls_key_file];
        let [Some(ca), Some(certificate), Some(key)] = files else {
            return match files.into_iter().flatten().next() {
                None => Ok(None),
                Some(one) => Err(source.error(
                    one.span(),
                    "tls_ca_file, tls_certificate_file and tls_key_file belong together: write all three",
                )),
            };
        };
        closed_to_others(source, key)?;
        let path = |file: &Spanned<PathBuf>| source.beside(file.get_ref());
        Ok(Some(TlsFiles { ca: path(ca), certificate: path(certificate), key: path(key) }))
    }
}

fn is_id(id: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_WORD).contains(&id.len()) && id.bytes().all(allowed)
}

/// Whether a host with a port is this machine.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name.trim_start_matches('[').trim_end_matches(']');
    name == "localhost" || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}
