//! `[control]`: the socket of a daemon, and its page.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

use super::error::ConfigError;
use super::source::{Source, absolute};

/// The socket on which a daemon answers `ropewalk status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// Its file.
    pub socket: PathBuf,
    /// The group whose members may use it besides root and the daemon's own user.
    pub group: Option<String>,
    /// Where the page and the numbers for Prometheus are served over TCP: an address of the loopback interface.
    pub web: Option<SocketAddr>,
}

/// `[control]` as it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlFile {
    socket: Option<Spanned<PathBuf>>,
    group: Option<Spanned<String>>,
    web: Option<Spanned<String>>,
}

impl ControlFile {
    /// What the section means; `default` is the role's own socket.
    ///
    /// # Errors
    /// A relative path, an empty group, or an address that others than this machine reach.
    pub fn resolve(&self, source: &Source, default: &str) -> Result<ControlConfig, ConfigError> {
        let socket = match &self.socket {
            None => PathBuf::from(default),
            Some(path) => {
                absolute(path.get_ref()).map_err(|message| source.error(path.span(), &message))?;
                path.get_ref().clone()
            }
        };
        let group = match &self.group {
            Some(group) if group.get_ref().is_empty() || group.get_ref().contains('\0') => {
                return Err(source.error(group.span(), "this is not the name of a group"));
            }
            group => group.as_ref().map(|group| group.get_ref().clone()),
        };
        let web = self.web.as_ref().map(|text| web_address(source, text)).transpose()?;
        Ok(ControlConfig { socket, group, web })
    }
}

/// Where the page is served: for programs of this machine only, since whoever can connect may read it.
fn web_address(source: &Source, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
    let wrong = |message: &str, help: &str| Err(source.error(text.span(), message).with_help(help));
    match text.get_ref().parse::<SocketAddr>() {
        Err(_) => wrong(
            "this is no address with a port",
            "write one of this machine's own, such as \"127.0.0.1:9586\" or \"[::1]:9586\"",
        ),
        Ok(address) if !address.ip().is_loopback() => wrong(
            "the page and the numbers are for this machine only: other machines could read them here without a password",
            "write \"127.0.0.1:9586\", and from elsewhere use `ssh -L 9586:127.0.0.1:9586 HOST`, or a web server of \
             yours that asks for a password in front of it",
        ),
        Ok(address) if address.port() == 0 => wrong(
            "port 0 would be another one at each start",
            "write a port, such as \"127.0.0.1:9586\"",
        ),
        Ok(address) => Ok(address),
    }
}
