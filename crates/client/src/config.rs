//! `client.toml`: the raw file, and what it means.
//!
//! Only three things must be said: the client's key, where the proxy is, and the proxy's key. The
//! sample `configs/client.toml` shows every key with its default.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use ropewalk_control::config::scheduler::Direction;
use ropewalk_control::config::tunnel::{ControlFile, TunnelFile};
use ropewalk_control::config::value::{OneOrMany, Parsed};
use ropewalk_control::config::{
    ConfigError, ConfigFile, ControlConfig, HostPort, InterfaceName, Keepalive, Mtu, Source,
    TunnelConfig,
};
use ropewalk_control::invitation::Token;
use ropewalk_control::keys::{PresharedKey, PrivateKey, PublicKey};
use serde::Deserialize;
use toml::Spanned;

/// Most links a client may list: a link id is one byte, and rejoining links need new ones.
pub const MAX_LINKS: usize = 64;

/// Most addresses of a proxy.
const MAX_ADDRESSES: usize = 16;

/// Most prefixes in `routes` and `exclude` together: the kernel asks its rules one after the other for each packet that
/// it routes, so there is room for 256, of which name servers take up to 8 for the time of a look-up.
pub const MAX_PREFIXES: usize = 248;

/// Characters of the longest name of a link.
const MAX_LINK_NAME: usize = 32;

/// What a valid `client.toml` means.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This client's key.
    pub private_key: PrivateKey,
    /// The other end.
    pub proxy: ProxyConfig,
    /// The TUN, and what goes into it.
    pub tun: TunConfig,
    /// Which interfaces are links.
    pub links: LinksConfig,
    /// How the tunnel sends and receives.
    pub tunnel: TunnelConfig,
    /// The socket for `ropewalk status`.
    pub control: ControlConfig,
}

/// The other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Names or addresses, at least one; all are tried.
    pub addresses: Vec<HostPort>,
    /// Its public key.
    pub public_key: PublicKey,
    /// The secret shared besides the keys.
    pub preshared_key: Option<PresharedKey>,
    /// What lets this client in, until the proxy knows its key.
    pub invitation: Option<PendingInvitation>,
}

/// An invitation that is not used up yet, as far as this end knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingInvitation {
    /// Where it stands; the daemon removes the file with the first session.
    pub file: PathBuf,
    /// What lets the client in.
    pub token: Token,
}

/// The TUN of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunConfig {
    /// Its name.
    pub name: InterfaceName,
    /// Its MTU.
    pub mtu: Mtu,
    /// Destinations that go into the tunnel. Empty: only what is bound to the TUN or the inner address.
    pub routes: Vec<IpNet>,
    /// Destinations within `routes` that do not.
    pub exclude: Vec<IpNet>,
}

/// Which interfaces are links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinksConfig {
    /// Whether others than the listed ones are links.
    pub select: Select,
    /// Keepalives of links that say nothing of their own.
    pub keepalive: Keepalive,
    /// The listed ones, in the order of the file.
    pub listed: Vec<LinkConfig>,
}

/// Whether other interfaces than the listed ones are links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Select {
    /// Every interface with a default route, now and later; `[[link]]` only adjusts some of them.
    Auto,
    /// Only those with a `[[link]]`.
    Listed,
}

/// One `[[link]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// The interface.
    pub interface: InterfaceName,
    /// How it is called in `status` and in logs.
    pub name: String,
    /// Its keepalives.
    pub keepalive: Keepalive,
    /// Its routers, instead of those that the system's routes name: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Whether bytes cost money on it.
    pub metered: bool,
    /// Whether it is used at all.
    pub enabled: bool,
}

impl ConfigFile for Config {
    const TOP_KEYS: &'static [&'static str] = &["proxy", "tun", "links", "keepalive", "link"];

    fn parse(source: &Source) -> Result<Self, ConfigError> {
        source.raw::<File>()?.resolve(source)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    private_key: Option<Spanned<Parsed<PrivateKey>>>,
    private_key_file: Option<Spanned<PathBuf>>,
    proxy: ProxyFile,
    #[serde(default)]
    tun: TunFile,
    links: Option<Select>,
    keepalive: Option<Parsed<Keepalive>>,
    #[serde(default)]
    link: Vec<Spanned<LinkFile>>,
    #[serde(default)]
    tunnel: TunnelFile,
    #[serde(default)]
    control: ControlFile,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFile {
    address: Spanned<OneOrMany<HostPort>>,
    public_key: Spanned<Parsed<PublicKey>>,
    preshared_key_file: Option<Spanned<PathBuf>>,
    invitation_file: Option<Spanned<PathBuf>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TunFile {
    name: Option<Parsed<InterfaceName>>,
    mtu: Option<Mtu>,
    routes: Option<Spanned<OneOrMany<IpNet>>>,
    exclude: Option<Spanned<OneOrMany<IpNet>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    interface: Spanned<Parsed<InterfaceName>>,
    name: Option<Spanned<String>>,
    keepalive: Option<Parsed<Keepalive>>,
    gateway: Option<Spanned<OneOrMany<IpAddr>>>,
    #[serde(default)]
    metered: bool,
    enabled: Option<bool>,
}

impl File {
    fn resolve(self, source: &Source) -> Result<Config, ConfigError> {
        let private_key =
            source.private_key(self.private_key.as_ref(), self.private_key_file.as_ref())?;
        let proxy = self.proxy.resolve(source)?;
        if private_key.public_key() == proxy.public_key {
            return Err(source
                .error(self.proxy.public_key.span(), "this is the client's own public key")
                .with_help(
                    "put the proxy's here: `ropewalk keygen --public < FILE` on the proxy",
                ));
        }
        let links = resolve_links(source, self.links, self.keepalive, &self.link)?;
        let tunnel = self.tunnel.resolve(source)?;
        if links.select == Select::Listed {
            let names: Vec<_> = links.listed.iter().map(|link| link.name.as_str()).collect();
            self.tunnel.check_links(source, &tunnel.scheduling, &names, Direction::Up)?;
        }
        Ok(Config {
            private_key,
            proxy,
            tun: self.tun.resolve(source)?,
            links,
            tunnel,
            control: self.control.resolve(source, ropewalk_control::CLIENT_SOCKET)?,
        })
    }
}

impl ProxyFile {
    fn resolve(&self, source: &Source) -> Result<ProxyConfig, ConfigError> {
        let addresses = self.address.get_ref().0.clone();
        if addresses.is_empty() || addresses.len() > MAX_ADDRESSES {
            let message =
                format!("{} addresses; 1 to {MAX_ADDRESSES} are possible", addresses.len());
            return Err(source.error(self.address.span(), &message));
        }
        let preshared_key =
            self.preshared_key_file.as_ref().map(|name| source.key_file(name)).transpose()?;
        let public_key = self.public_key.get_ref().0;
        let invitation = match &self.invitation_file {
            None => None,
            Some(name) => match source.invitation_file(name)? {
                Some((_, invitation)) if invitation.public_key != public_key => {
                    let message = "this invitation is another proxy's: its key is not `public_key`";
                    return Err(source.error(name.span(), message).with_help(
                        "join that proxy with a config of its own: `ropewalk join --config FILE`",
                    ));
                }
                found => found.map(|(file, invitation)| PendingInvitation {
                    file,
                    token: invitation.token.clone(),
                }),
            },
        };
        Ok(ProxyConfig { addresses, public_key, preshared_key, invitation })
    }
}

impl TunFile {
    fn resolve(self, source: &Source) -> Result<TunConfig, ConfigError> {
        let everything =
            vec![IpNet::V4(ipnet::Ipv4Net::default()), IpNet::V6(ipnet::Ipv6Net::default())];
        let name = match self.name {
            Some(Parsed(name)) => name,
            None => InterfaceName::new("ropewalk0").expect("a valid name"),
        };
        let places = [&self.routes, &self.exclude].map(|list| list.as_ref().map(Spanned::span));
        let list = |list: Option<Spanned<OneOrMany<IpNet>>>| list.map(|list| list.into_inner().0);
        let routes = list(self.routes).unwrap_or(everything);
        let exclude = list(self.exclude).unwrap_or_default();
        let count = routes.len() + exclude.len();
        if count > MAX_PREFIXES {
            let message = format!(
                "routes and exclude have {count} prefixes; at most {MAX_PREFIXES} are possible together"
            );
            // The longer one is the one to shorten.
            let [of_routes, of_exclude] = places;
            let place = if routes.len() >= exclude.len() { of_routes } else { of_exclude };
            return Err(source.error(place.unwrap_or_default(), &message));
        }
        Ok(TunConfig { name, mtu: self.mtu.unwrap_or(Mtu::Auto), routes, exclude })
    }
}

fn resolve_links(
    source: &Source,
    select: Option<Select>,
    keepalive: Option<Parsed<Keepalive>>,
    files: &[Spanned<LinkFile>],
) -> Result<LinksConfig, ConfigError> {
    let select = select.unwrap_or(if files.is_empty() { Select::Auto } else { Select::Listed });
    let keepalive = keepalive.map_or(Keepalive::DEFAULT, |Parsed(keepalive)| keepalive);
    if select == Select::Listed && files.is_empty() {
        return Err(source
            .error_of_file("links = \"listed\", but there is no [[link]]")
            .with_help("add [[link]] with interface = \"NAME\", or write links = \"auto\""));
    }
    if let Some(beyond) = files.get(MAX_LINKS) {
        let message = format!("more than {MAX_LINKS} links");
        return Err(source.error(beyond.span(), &message));
    }
    let mut names = BTreeSet::new();
    let mut interfaces = BTreeSet::new();
    let mut listed = Vec::new();
    for file in files.iter().map(Spanned::get_ref) {
        let interface = file.interface.get_ref().0.clone();
        let (name, span) = match &file.name {
            Some(name) => (name.get_ref().clone(), name.span()),
            None => (interface.to_string(), file.interface.span()),
        };
        if !interfaces.insert(interface.clone()) {
            let message = format!("the interface `{interface}` is listed twice");
            return Err(source.error(file.interface.span(), &message));
        }
        let printable = name.chars().all(|c| c.is_ascii_graphic());
        if name.is_empty() || name.len() > MAX_LINK_NAME || !printable {
            let message = format!(
                "a link's name has 1 to {MAX_LINK_NAME} printable characters without spaces"
            );
            return Err(source.error(span, &message));
        }
        if !names.insert(name.clone()) {
            return Err(source.error(span, &format!("two links are called `{name}`")));
        }
        listed.push(LinkConfig {
            interface,
            name,
            keepalive: file.keepalive.map_or(keepalive, |Parsed(keepalive)| keepalive),
            gateways: file
                .gateway
                .as_ref()
                .map_or(Ok(Vec::new()), |list| gateways(source, list))?,
            metered: file.metered,
            enabled: file.enabled.unwrap_or(true),
        });
    }
    if select == Select::Listed && listed.iter().all(|link| !link.enabled) {
        return Err(source
            .error_of_file("no link is enabled: nothing could reach the proxy")
            .with_help("remove `enabled = false` from one [[link]], or write links = \"auto\""));
    }
    Ok(LinksConfig { select, keepalive, listed })
}

fn gateways(
    source: &Source,
    list: &Spanned<OneOrMany<IpAddr>>,
) -> Result<Vec<IpAddr>, ConfigError> {
    let gateways = &list.get_ref().0;
    let of = |is_ipv4| gateways.iter().filter(|gateway| gateway.is_ipv4() == is_ipv4).count();
    if gateways.is_empty() || of(true) > 1 || of(false) > 1 {
        let message = "a link's gateway is one IPv4 address, one IPv6 address, or one of each";
        return Err(source.error(list.span(), message));
    }
    // An IPv6 router is usually known by its link-local address.
    let is_router = |gateway: &&IpAddr| {
        let broadcast = **gateway == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
        !(gateway.is_unspecified() || gateway.is_multicast() || gateway.is_loopback() || broadcast)
    };
    if let Some(other) = gateways.iter().find(|gateway| !is_router(gateway)) {
        return Err(source.error(list.span(), &format!("`{other}` is no router's address")));
    }
    Ok(gateways.clone())
}
