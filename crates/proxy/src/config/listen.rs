//! `listen` and `more_ports`: where the proxy takes datagrams.

use std::net::{Ipv6Addr, SocketAddr};

use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{DEFAULT_PORT, Parsed};
use toml::Spanned;

/// Most ports: a client tries eight addresses of a proxy on each link.
const MAX_MORE_PORTS: usize = 7;

/// The socket for all clients.
pub(super) fn address(
    source: &Source,
    listen: Option<&Spanned<Parsed<SocketAddr>>>,
) -> Result<SocketAddr, ConfigError> {
    match listen {
        None => Ok(SocketAddr::from((Ipv6Addr::UNSPECIFIED, DEFAULT_PORT))),
        Some(address) if address.get_ref().0.port() == 0 => Err(source
            .error(address.span(), "port 0 would be another port at each start")
            .with_help(format!("write a port the clients know, such as {DEFAULT_PORT}"))),
        Some(address) => Ok(address.get_ref().0),
    }
}

/// The other ports of that address; `first`: the one of `listen`.
pub(super) fn more_ports(
    source: &Source,
    ports: Option<&Spanned<Vec<u16>>>,
    first: u16,
) -> Result<Vec<u16>, ConfigError> {
    let Some(ports) = ports else { return Ok(Vec::new()) };
    let list = ports.get_ref();
    let twice = |(at, port): (usize, &u16)| *port == first || list[..at].contains(port);
    let message = if list.len() > MAX_MORE_PORTS {
        format!("{} ports; at most {MAX_MORE_PORTS} are possible beside `listen`", list.len())
    } else if list.contains(&0) {
        "port 0 would be another port at each start".to_owned()
    } else if list.iter().enumerate().any(twice) {
        "a port stands twice, or is that of `listen` already".to_owned()
    } else {
        return Ok(list.clone());
    };
    Err(source.error(ports.span(), &message))
}
