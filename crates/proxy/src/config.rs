//! `proxy.toml`: the raw file, and what it means.
//!
//! Only the proxy's key must be said. Clients are a `[[peer]]` each, or join by an invitation
//! ([`registry`](crate::registry)). The sample `configs/proxy.toml` shows every
//! key with its default.

mod forward;
mod listen;
mod peers;
mod pools;
mod registry;
mod speed_test;
mod tls;
mod workers;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net};
use ropewalk_control::api::PeerOrigin;
use ropewalk_control::config::ControlFile;
use ropewalk_control::config::{ConfigError, ConfigFile, ControlConfig, Source};
use ropewalk_control::invitation::MAX_ADDRESSES;
use ropewalk_proto::wire::hello::parameters::MAX_NAME_SERVERS;
use ropewalk_settings::{
    HistoryDays, HistorySection, HostPort, InterfaceName, OneOrMany, Parsed, PrivateKey, PublicKey,
    Sandbox, SpeedTests, TunnelSection, TunnelSettings, is_name_server,
};
use serde::Deserialize;
use toml::Spanned;

use crate::allow::Allowed;
use crate::pool::Pools;

pub use forward::{Forward, MAX_FORWARDS};
pub use peers::{MAX_PEERS, PeerConfig, check_peer_name};
pub use pools::unique_local_pool;
pub use registry::RegistryConfig;
pub use tls::{CertificateFiles, TlsConfig};
pub use workers::Workers;

/// The folder for what must survive a restart, where `state_dir` does not say otherwise.
pub const STATE_DIR: &str = "/var/lib/ropewalk";

/// Connections of one client where `client_connections` does not say otherwise: several times what a house full of people
/// or a torrent opens. The kernel looks at each of them when the client begins another one: more would cost too much.
const DEFAULT_CLIENT_CONNECTIONS: u32 = 4096;

/// Most connections of one client: as many as the largest usual table of the kernel has.
const MAX_CLIENT_CONNECTIONS: u32 = 262_144;

/// New connections of one client in a second where `client_connection_rate` does not say otherwise.
const DEFAULT_CLIENT_CONNECTION_RATE: u32 = 500;

/// Most new connections of one client in a second: more than one core of a proxy can begin.
const MAX_CLIENT_CONNECTION_RATE: u32 = 100_000;

/// Most entries of `no_nat`, `allow` and `inbound`, and most uplinks: each becomes an element of a kernel table.
const MAX_LIST: usize = 4096;

/// What a valid `proxy.toml` means.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This proxy's key.
    pub private_key: PrivateKey,
    /// The UDP socket for all clients.
    pub listen: SocketAddr,
    /// Other UDP ports of that address at which the same is served, for networks that let few ports through.
    pub more_ports: Vec<u16>,
    /// Links over TLS; `None`: it takes none.
    pub tls: Option<TlsConfig>,
    /// Where clients find this proxy, for invitations; empty: at the addresses of this host.
    pub public_addresses: Vec<HostPort>,
    /// The name of the TUN.
    pub tun_name: InterfaceName,
    /// Where the clients' inner addresses come from.
    pub pools: Pools,
    /// Where clients may look up names; at most two of each family.
    pub dns: Vec<IpAddr>,
    /// How the clients' IPv6 packets reach the Internet, where there is an IPv6 pool.
    pub ipv6: Ipv6Mode,
    /// Destinations and inner prefixes whose packets keep their address.
    pub no_nat: Vec<IpNet>,
    /// What clients may reach although it is not the Internet.
    pub allow: Vec<Allowed>,
    /// Networks whose hosts may begin connections to clients.
    pub inbound: Vec<IpNet>,
    /// Most connections of one client's inner address at a time.
    pub client_connections: u32,
    /// Most that it may begin in a second.
    pub client_connection_rate: u32,
    /// Interfaces to the Internet.
    pub uplinks: Uplinks,
    /// Whether clients may reach each other through the proxy.
    pub client_to_client: bool,
    /// Ports of this host that lead to clients, in the order of the file.
    pub forwards: Vec<Forward>,
    /// The clients, in the order of the file.
    pub peers: Vec<PeerConfig>,
    /// Most clients.
    pub max_peers: usize,
    /// Threads that carry packets.
    pub workers: Workers,
    /// How much clients may use up with speed tests.
    pub speed_tests: SpeedTests,
    /// How the tunnels send and receive.
    pub tunnel: TunnelSettings,
    /// The registry that this proxy shares with others; `None`: it keeps files of its own.
    pub registry: Option<RegistryConfig>,
    /// The folder for what must survive a restart: the address leases.
    pub state_dir: PathBuf,
    /// Whether the proxy gives up at its start what it does not need.
    pub sandbox: Sandbox,
    /// For how many days it remembers what it carried.
    pub history: HistoryDays,
    /// The socket for `ropewalk status`.
    pub control: ControlConfig,
}

/// How the clients' IPv6 packets reach the Internet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ipv6Mode {
    /// Their source becomes the proxy's own address (NAT66).
    #[default]
    Nat66,
    /// They keep their address: the pool is a prefix that the provider routes to this host.
    Routed,
}

impl fmt::Display for Ipv6Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nat66 => "nat66",
            Self::Routed => "routed",
        })
    }
}

/// Interfaces to the Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uplinks {
    /// Every interface but the TUN.
    Auto,
    /// These.
    Named(Vec<InterfaceName>),
}

impl fmt::Display for Uplinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Named(names) => {
                let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                f.pad(&names.join(", "))
            }
        }
    }
}

impl ConfigFile for Config {
    const TOP_KEYS: &'static [&'static str] = &[
        "listen",
        "more_ports",
        "pool_v4",
        "pool_v6",
        "dns",
        "ipv6",
        "no_nat",
        "allow",
        "inbound",
        "client_connections",
        "client_connection_rate",
        "uplinks",
        "client_to_client",
        "max_peers",
        "workers",
        "state_dir",
        "sandbox",
        "public_addresses",
        "forward",
        "peer",
        "registry",
        "tls",
        "speed_test",
    ];

    fn parse(source: &Source) -> Result<Self, ConfigError> {
        source.raw::<File>()?.resolve(source)
    }
}

impl Config {
    /// Where a client is known from.
    #[must_use]
    pub fn origin(&self, key: &PublicKey) -> PeerOrigin {
        match self.peers.iter().any(|of_file| of_file.public_key == *key) {
            true => PeerOrigin::Config,
            false => PeerOrigin::Invitation,
        }
    }

    /// The file of the clients that joined by an invitation, and of the invitations.
    #[must_use]
    pub fn registry_file(&self) -> PathBuf {
        self.state_dir.join("peers.json")
    }

    /// The lowest port at which the proxy listens: below 1024 that takes a capability.
    #[must_use]
    pub fn lowest_port(&self) -> u16 {
        let tls = self.tls.as_ref().map(|tls| tls.listen.port());
        let more = self.more_ports.iter().copied().chain(tls);
        more.fold(self.listen.port(), u16::min)
    }

    /// The file of the certificate that the proxy makes itself.
    #[must_use]
    pub fn tls_file(&self) -> PathBuf {
        self.state_dir.join("tls.pem")
    }

    /// The file of the address leases.
    #[must_use]
    pub fn leases_file(&self) -> PathBuf {
        self.state_dir.join("leases.json")
    }

    /// The file of the fleet's registry as it was last known.
    #[must_use]
    pub fn fleet_file(&self) -> PathBuf {
        self.state_dir.join("fleet.json")
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    private_key: Option<Spanned<Parsed<PrivateKey>>>,
    private_key_file: Option<Spanned<PathBuf>>,
    listen: Option<Spanned<Parsed<SocketAddr>>>,
    more_ports: Option<Spanned<Vec<u16>>>,
    #[serde(default)]
    tun: TunFile,
    pool_v4: Option<Spanned<Parsed<Ipv4Net>>>,
    pool_v6: Option<Spanned<Parsed<pools::PoolV6>>>,
    dns: Option<Spanned<OneOrMany<IpAddr>>>,
    #[serde(default)]
    ipv6: Ipv6Mode,
    no_nat: Option<Spanned<OneOrMany<IpNet>>>,
    allow: Option<Spanned<OneOrMany<Allowed>>>,
    inbound: Option<Spanned<OneOrMany<IpNet>>>,
    client_connections: Option<Spanned<i64>>,
    client_connection_rate: Option<Spanned<i64>>,
    uplinks: Option<Spanned<OneOrMany<InterfaceName>>>,
    #[serde(default)]
    client_to_client: bool,
    max_peers: Option<Spanned<i64>>,
    workers: Option<Spanned<toml::Value>>,
    state_dir: Option<Spanned<PathBuf>>,
    #[serde(default)]
    sandbox: Sandbox,
    public_addresses: Option<Spanned<OneOrMany<HostPort>>>,
    #[serde(default)]
    forward: Vec<Spanned<forward::ForwardFile>>,
    #[serde(default)]
    peer: Vec<Spanned<peers::PeerFile>>,
    registry: Option<Spanned<registry::RegistryFile>>,
    tls: Option<tls::TlsFile>,
    #[serde(default)]
    speed_test: speed_test::SpeedTestFile,
    #[serde(default)]
    tunnel: TunnelSection,
    #[serde(default)]
    history: HistorySection,
    #[serde(default)]
    control: ControlFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TunFile {
    name: Option<Parsed<InterfaceName>>,
}

impl File {
    fn resolve(self, source: &Source) -> Result<Config, ConfigError> {
        let private_key =
            source.private_key(self.private_key.as_ref(), self.private_key_file.as_ref())?;
        let public_key = private_key.public_key();
        let pools = self.pools(source, &public_key)?;
        let of_fleet = self.registry.is_some();
        let max_peers = peers::max_peers(source, self.max_peers.as_ref(), of_fleet)?;
        let registry = self.registry.as_ref();
        let registry =
            registry.map(|file| file.get_ref().resolve(source, max_peers)).transpose()?;
        if let (Some(_), Some(peer)) = (&registry, self.peer.first()) {
            let help = match self.peer.iter().any(|peer| peer.get_ref().prefix_v6.is_some()) {
                true => {
                    "take it out, and invite it with `ropewalk peer add NAME`. A network behind a client (prefix_v6) is \
                     routed to one host, so that a fleet has none: leave such a client with a proxy without [registry]"
                }
                false => "take it out, and invite it with `ropewalk peer add NAME`",
            };
            return Err(source
                .error(peer.span(), "with [registry] the clients stand there, and no [[peer]] here")
                .with_help(help));
        }
        let peers = peers::resolve(source, &self.peer, &public_key, &pools, max_peers)?;
        let tun_name = match self.tun.name {
            Some(Parsed(name)) => name,
            None => InterfaceName::new("ropewalk-proxy0").expect("a valid name"),
        };
        let listen = listen::address(source, self.listen.as_ref())?;
        let more_ports = listen::more_ports(source, self.more_ports.as_ref(), listen.port())?;
        let control = self.control.resolve(source, ropewalk_control::PROXY_SOCKET)?;
        let tls = self.tls.as_ref().map(|file| file.resolve(source)).transpose()?;
        let own = forward::own_ports(listen, &more_ports, tls.as_ref(), &control);
        Ok(Config {
            private_key,
            listen,
            more_ports,
            tls,
            public_addresses: public_addresses(source, self.public_addresses)?,
            tun_name,
            pools,
            dns: dns(source, self.dns)?,
            ipv6: self.ipv6,
            no_nat: list(source, self.no_nat)?,
            allow: list(source, self.allow)?,
            inbound: list(source, self.inbound)?,
            client_connections: connections(
                source,
                self.client_connections.as_ref(),
                (DEFAULT_CLIENT_CONNECTIONS, MAX_CLIENT_CONNECTIONS),
            )?,
            client_connection_rate: connections(
                source,
                self.client_connection_rate.as_ref(),
                (DEFAULT_CLIENT_CONNECTION_RATE, MAX_CLIENT_CONNECTION_RATE),
            )?,
            uplinks: uplinks(source, self.uplinks)?,
            client_to_client: self.client_to_client,
            forwards: forward::resolve(source, &self.forward, &own)?,
            peers,
            max_peers,
            workers: workers::resolve(source, self.workers.as_ref())?,
            speed_tests: self.speed_test.resolve(source)?,
            tunnel: self.tunnel.resolve().map_err(|error| source.error_of_setting(&error))?,
            registry,
            state_dir: state_dir(source, self.state_dir)?,
            sandbox: self.sandbox,
            history: self.history.days,
            control,
        })
    }
}

/// Whether a file with a private key is closed to others. One that cannot be looked at is found out where it is read.
fn closed_to_others(source: &Source, file: &Spanned<PathBuf>) -> Result<(), ConfigError> {
    let path = source.beside(file.get_ref());
    let mode = std::fs::metadata(&path).map(|file| file.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let shown = path.display().to_string();
        let message = format!("others may read the private key {shown}");
        let help = format!("chmod 600 {shown}");
        return Err(source.error(file.span(), &message).with_help(&help));
    }
    Ok(())
}

fn connections(
    source: &Source,
    number: Option<&Spanned<i64>>,
    (usual, most): (u32, u32),
) -> Result<u32, ConfigError> {
    let Some(number) = number else { return Ok(usual) };
    match u32::try_from(*number.get_ref()) {
        Ok(found) if (1..=most).contains(&found) => Ok(found),
        _ => Err(source.error(
            number.span(),
            &format!("{} is outside 1 to {most} connections", number.get_ref()),
        )),
    }
}

fn public_addresses(
    source: &Source,
    addresses: Option<Spanned<OneOrMany<HostPort>>>,
) -> Result<Vec<HostPort>, ConfigError> {
    let Some(addresses) = addresses else { return Ok(Vec::new()) };
    let (span, addresses) = (addresses.span(), addresses.into_inner().0);
    if addresses.len() > MAX_ADDRESSES {
        let message =
            format!("{} addresses; at most {MAX_ADDRESSES} fit an invitation", addresses.len());
        return Err(source.error(span, &message));
    }
    Ok(addresses)
}

/// Name servers, at most as many as are handed out, that a client could ask through the tunnel.
fn dns(
    source: &Source,
    servers: Option<Spanned<OneOrMany<IpAddr>>>,
) -> Result<Vec<IpAddr>, ConfigError> {
    let Some(servers) = servers else { return Ok(Vec::new()) };
    let (span, servers) = (servers.span(), servers.into_inner().0);
    for is_v4 in [true, false] {
        let count = servers.iter().filter(|server| server.is_ipv4() == is_v4).count();
        if count > MAX_NAME_SERVERS {
            let message = format!(
                "{count} name servers with an IPv{} address; at most {MAX_NAME_SERVERS} are handed out",
                if is_v4 { 4 } else { 6 }
            );
            return Err(source.error(span, &message));
        }
    }
    match servers.iter().find(|server| !is_name_server(**server)) {
        Some(server) => {
            let message = format!("{server} is no address at which a client could ask for names");
            Err(source
                .error(span, &message)
                .with_help("write a public resolver, or one that the proxy reaches"))
        }
        None => Ok(servers),
    }
}

fn list<T>(source: &Source, list: Option<Spanned<OneOrMany<T>>>) -> Result<Vec<T>, ConfigError> {
    let Some(list) = list else { return Ok(Vec::new()) };
    let span = list.span();
    let list = list.into_inner().0;
    if list.len() > MAX_LIST {
        let message = format!("{} entries; at most {MAX_LIST} are possible", list.len());
        return Err(source.error(span, &message));
    }
    Ok(list)
}

fn uplinks(
    source: &Source,
    names: Option<Spanned<OneOrMany<InterfaceName>>>,
) -> Result<Uplinks, ConfigError> {
    let Some(names) = names else { return Ok(Uplinks::Auto) };
    let span = names.span();
    let names = list(source, Some(names))?;
    match names.as_slice() {
        [] => Err(source
            .error(span, "no uplink: nothing could reach the Internet")
            .with_help("name one, or write uplinks = \"auto\"")),
        [one] if one.as_str() == "auto" => Ok(Uplinks::Auto),
        _ => Ok(Uplinks::Named(names)),
    }
}

fn state_dir(source: &Source, folder: Option<Spanned<PathBuf>>) -> Result<PathBuf, ConfigError> {
    match folder {
        None => Ok(PathBuf::from(STATE_DIR)),
        Some(folder) if folder.get_ref().is_absolute() => Ok(folder.into_inner()),
        Some(folder) => Err(source.error(
            folder.span(),
            &format!("`{}` is not an absolute path", folder.get_ref().display()),
        )),
    }
}
