//! `[[forward]]`: ports of this host that lead to a client.

use std::fmt;
use std::net::SocketAddr;

use ropewalk_control::api::ForwardProtocol;
use ropewalk_control::config::{ConfigError, ControlConfig, Source};
use ropewalk_settings::{Network, OneOrMany, PortRange};
use serde::Deserialize;
use toml::Spanned;

use super::{TlsConfig, check_peer_name};
use crate::allow::Transport;

/// Most forwards: each becomes some rules of the firewall, which are asked one after the other for the first packet of a
/// connection to one of their ports.
pub const MAX_FORWARDS: usize = 256;

/// Most networks in `from` of one forward.
const MAX_FROM: usize = 64;

/// One `[[forward]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Whose ports.
    pub protocol: ForwardProtocol,
    /// The port of this host, or several in a row.
    pub ports: PortRange,
    /// The client's name.
    pub to: String,
    /// Where the first port leads there; of several each leads to its own number.
    pub to_port: u16,
    /// Who may come in; empty: everybody.
    pub from: Vec<Network>,
}

impl Forward {
    /// The protocols of its ports.
    #[must_use]
    pub const fn transports(&self) -> &'static [Transport] {
        transports(self.protocol)
    }

    /// Whether this port is one of its own.
    #[must_use]
    pub fn has(&self, transport: Transport, port: u16) -> bool {
        self.transports().contains(&transport) && self.ports.contains(port)
    }

    /// Its ports as people say them: "TCP 8443".
    #[must_use]
    pub fn ports_in_words(&self) -> String {
        format!("{} {}", self.protocol.in_words(), self.ports)
    }

    /// Whether both have a port in common.
    fn overlaps(&self, other: &Self) -> bool {
        let shared = self.transports().iter().any(|one| other.transports().contains(one));
        shared && self.ports.overlaps(other.ports)
    }
}

impl fmt::Display for Forward {
    /// Where it leads, and for whom: "laptop port 443, from 198.51.100.0/24".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to)?;
        if self.ports.is_one() {
            write!(f, " port {}", self.to_port)?;
        }
        if !self.from.is_empty() {
            let from: Vec<_> = self.from.iter().map(ToString::to_string).collect();
            write!(f, ", from {}", from.join(", "))?;
        }
        Ok(())
    }
}

/// The protocols that a word of the config means.
const fn transports(protocol: ForwardProtocol) -> &'static [Transport] {
    match protocol {
        ForwardProtocol::Tcp => &[Transport::Tcp],
        ForwardProtocol::Udp => &[Transport::Udp],
        ForwardProtocol::Both => &[Transport::Tcp, Transport::Udp],
    }
}

/// A port that the proxy itself uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnPort {
    transport: Transport,
    number: u16,
    /// What for, and which key of the config says so.
    what: &'static str,
}

/// The ports that cannot be forwarded: the tunnel's, whose datagrams are not tracked and so never translated, and those of
/// links over TLS and of the page.
pub(super) fn own_ports(
    listen: SocketAddr,
    more_ports: &[u16],
    tls: Option<&TlsConfig>,
    control: &ControlConfig,
) -> Vec<OwnPort> {
    let udp = |number, what| OwnPort { transport: Transport::Udp, number, what };
    let more = more_ports.iter().map(|port| udp(*port, "clients connect there (`more_ports`)"));
    let tcp = |address: SocketAddr, what| OwnPort {
        transport: Transport::Tcp,
        number: address.port(),
        what,
    };
    let tls = tls.map(|tls| tcp(tls.listen, "clients connect there over TLS (`listen` in [tls])"));
    let page = control.web.map(|address| tcp(address, "its page is there (`web` in [control])"));
    let first = udp(listen.port(), "clients connect there (`listen`)");
    std::iter::once(first).chain(more).chain(tls).chain(page).collect()
}

/// `[[forward]]` as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForwardFile {
    protocol: ForwardProtocol,
    port: Spanned<PortRange>,
    to: Spanned<String>,
    to_port: Option<Spanned<i64>>,
    from: Option<Spanned<OneOrMany<Network>>>,
}

/// All of them, none of which has a port of another one or of the proxy.
pub(super) fn resolve(
    source: &Source,
    files: &[Spanned<ForwardFile>],
    own: &[OwnPort],
) -> Result<Vec<Forward>, ConfigError> {
    if let Some(beyond) = files.get(MAX_FORWARDS) {
        let message = format!("{} forwards; at most {MAX_FORWARDS} are possible", files.len());
        return Err(source
            .error(beyond.span(), &message)
            .with_help("several ports in a row are one: port = \"5000-5010\""));
    }
    let mut forwards: Vec<Forward> = Vec::with_capacity(files.len());
    for file in files.iter().map(Spanned::get_ref) {
        let forward = file.resolve(source)?;
        let place = || file.port.span();
        if let Some(own) = own.iter().find(|own| forward.has(own.transport, own.number)) {
            let OwnPort { transport, number, what } = own;
            let message =
                format!("{} {number} is the proxy's own: {what}", transport.in_capitals());
            return Err(source
                .error(place(), &message)
                .with_help("forward another port, or give the proxy another one"));
        }
        if let Some(other) = forwards.iter().find(|other| other.overlaps(&forward)) {
            let message = format!("{} leads to `{}` already", other.ports_in_words(), other.to);
            return Err(source
                .error(place(), &message)
                .with_help("a port leads to one client: forward another one, or take one out"));
        }
        forwards.push(forward);
    }
    Ok(forwards)
}

impl ForwardFile {
    fn resolve(&self, source: &Source) -> Result<Forward, ConfigError> {
        let ports = *self.port.get_ref();
        let to = self.to.get_ref();
        check_peer_name(to).map_err(|message| source.error(self.to.span(), &message))?;
        Ok(Forward {
            protocol: self.protocol,
            ports,
            to: to.clone(),
            to_port: self.to_port(source, ports)?,
            from: self.sources(source)?,
        })
    }

    fn to_port(&self, source: &Source, ports: PortRange) -> Result<u16, ConfigError> {
        let Some(to_port) = &self.to_port else { return Ok(ports.first()) };
        if !ports.is_one() {
            return Err(source
                .error(to_port.span(), "several ports keep their numbers at the client")
                .with_help("take `to_port` out, or write a [[forward]] for each of the ports"));
        }
        match u16::try_from(*to_port.get_ref()) {
            Ok(port) if port > 0 => Ok(port),
            _ => {
                let message = format!("{} is no port: write 1 to 65535", to_port.get_ref());
                Err(source.error(to_port.span(), &message))
            }
        }
    }

    fn sources(&self, source: &Source) -> Result<Vec<Network>, ConfigError> {
        let Some(from) = &self.from else { return Ok(Vec::new()) };
        let networks = &from.get_ref().0;
        if networks.is_empty() {
            return Err(source
                .error(from.span(), "nobody may come in")
                .with_help("name networks, or take `from` out, which lets everybody in"));
        }
        if networks.len() > MAX_FROM {
            let message = format!("{} networks; at most {MAX_FROM} are possible", networks.len());
            return Err(source.error(from.span(), &message));
        }
        Ok(networks.clone())
    }
}
