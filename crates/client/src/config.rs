//! `client.toml`: the raw file, and what it means.
//!
//! Only three things must be said: the client's key, where the proxy is, and the proxy's key. The
//! sample `configs/client.toml` shows every key with its default.

mod allowance;
mod dns;
mod inbound;
mod saving;
mod share;
mod tun;

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ropewalk_control::config::{ConfigError, ConfigFile, ControlConfig, Source};
use ropewalk_control::config::{ControlFile, absolute};
use ropewalk_daemon::proxies::preference;
use ropewalk_proto::fleet::Preference;
use ropewalk_settings::{
    Bitrate, Cost, DEFAULT_TLS_PORT, Direction, HistoryDays, HistorySection, HostPort, Importance,
    InvitationToken, Keepalive, LinkPolicy, NamePattern, OneOrMany, Parsed, PresharedKey,
    PrivateKey, PublicKey, Sandbox, SettingError, TlsUse, TunnelSection, TunnelSettings, Usage,
};
use serde::Deserialize;
use toml::Spanned;

pub use allowance::Allowance;
pub use dns::Dns;
pub use inbound::Inbound;
pub use saving::{save_limit, save_link, text_with_link};
pub use share::{AddressRange, MAX_LIMITS, ShareConfig};
pub use tun::{MAX_PREFIXES, MAX_RULES, TunConfig};
pub(crate) use tun::{check_lists, prefixes};

/// Why a client's config has no `[tunnel.link.NAME]`.
pub(crate) const OF_PROXY: &str = "a client says what it says of a link in its [[link]], for both directions: \
    move it there (a `rate` is `rate_up` there)";

/// Most links a client may list: a link id is one byte, and rejoining links need new ones.
pub const MAX_LINKS: usize = 64;

/// Most addresses of a proxy.
const MAX_ADDRESSES: usize = 16;

/// Most proxies beside the first.
pub const MAX_OTHER_PROXIES: usize = 3;

/// Most patterns in `include_interfaces`, and in `exclude_interfaces`.
const MAX_PATTERNS: usize = 64;

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
    pub tunnel: TunnelSettings,
    /// The socket for `ropewalk status`.
    pub control: ControlConfig,
    /// The file in which the counts of allowances survive a restart.
    pub counters_file: PathBuf,
    /// Where names are looked up while the tunnel is up.
    pub dns: Dns,
    /// Whether nothing leaves this machine outside the tunnel, also after a crash of the client.
    pub kill_switch: bool,
    /// Whose hosts use the tunnel too.
    pub share: ShareConfig,
    /// What may begin connections to this machine out of the tunnel.
    pub inbound: Inbound,
    /// The folder for what must survive a power cut: what stood in a file that was replaced.
    pub state_dir: PathBuf,
    /// Whether the client gives up at its start what it does not need.
    pub sandbox: Sandbox,
    /// For how many days it remembers what it carried.
    pub history: HistoryDays,
}

/// The TUN where nothing is said.
pub(crate) const TUN_NAME: &str = "ropewalk0";

/// The state folder where nothing is said.
pub(crate) const STATE_DIR: &str = "/var/lib/ropewalk-client";

/// Where the counts are where nothing is said: beside nothing of the proxy's, which may run as another user.
const COUNTERS_FILE: &str = "/var/lib/ropewalk-client/counters.json";

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
    /// Others of the same operator, which know this client too.
    pub others: Vec<OtherProxy>,
    /// Which of all that are known may be used.
    pub choose: Preference,
    /// When links go over TLS.
    pub tls: TlsUse,
    /// The TCP port at which proxies take them.
    pub tls_port: u16,
}

impl ProxyConfig {
    /// All names and addresses, those of the first proxy first, with how many are whose.
    #[must_use]
    pub fn endpoints(&self) -> Vec<(PublicKey, &[HostPort])> {
        let others = self.others.iter().map(|other| (other.public_key, &other.addresses[..]));
        std::iter::once((self.public_key, &self.addresses[..])).chain(others).collect()
    }

    /// The same in one list, as they are looked up.
    #[must_use]
    pub fn all_addresses(&self) -> Vec<HostPort> {
        self.endpoints().into_iter().flat_map(|(_, addresses)| addresses.iter().cloned()).collect()
    }

    /// The TCP port to which links over TLS go, where they may.
    #[must_use]
    pub fn tls_port_in_use(&self) -> Option<u16> {
        (self.tls != TlsUse::Never).then_some(self.tls_port)
    }
}

/// Another proxy of the same operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherProxy {
    /// Names or addresses, at least one; all are tried.
    pub addresses: Vec<HostPort>,
    /// Its public key.
    pub public_key: PublicKey,
}

/// An invitation that is not used up yet, as far as this end knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingInvitation {
    /// Where it stands; the daemon removes the file with the first session.
    pub file: PathBuf,
    /// What lets the client in.
    pub token: InvitationToken,
}

/// Which interfaces are links.
#[derive(Clone, Debug, PartialEq)]
pub struct LinksConfig {
    /// Whether others than the listed ones are links.
    pub select: Select,
    /// With [`Select::Auto`]: only interfaces that one of these means are links, tunnels among them; none: every one that
    /// is no tunnel.
    pub include: Vec<NamePattern>,
    /// What one of these means is no link; interfaces that are shared are among them.
    pub exclude: Vec<NamePattern>,
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

impl fmt::Display for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Listed => "listed",
        })
    }
}

impl LinksConfig {
    /// What is said of this interface: under its own name, else under the first pattern that means it.
    #[must_use]
    pub fn of(&self, interface: &str) -> Option<&LinkConfig> {
        let exact = self.listed.iter().find(|link| link.interface.as_str() == interface);
        exact.or_else(|| self.listed.iter().find(|link| link.interface.matches(interface)))
    }

    /// Whether every link has a section of its own: there are no others.
    fn are_all_named(&self) -> bool {
        self.select == Select::Listed && self.listed.iter().all(|link| link.interface.is_exact())
    }

    /// What is said of the link of this name: those of a pattern, and those of which nothing is said, are called like
    /// their interfaces.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&LinkConfig> {
        self.listed.iter().find(|link| link.name == name).or_else(|| self.of(name))
    }

    /// Whether the policies of the links make sense together.
    ///
    /// # Errors
    /// What does not.
    pub(crate) fn check_policies(&self) -> Result<(), SettingError> {
        let used = self.listed.iter().filter(|link| link.enabled);
        let links: Vec<_> = used.map(|link| (link.name.as_str(), &link.policy)).collect();
        LinkPolicy::check_together(&links, self.are_all_named())
    }

    /// The patterns that mean none of these interfaces, where nothing but the listed is a link.
    pub fn waited_for<'a>(
        &'a self,
        is_there: impl Fn(&NamePattern) -> bool + 'a,
    ) -> impl Iterator<Item = &'a NamePattern> {
        let listed = self.listed.iter().filter(|_| self.select == Select::Listed);
        let patterns = listed.filter(|link| link.enabled).map(|link| &link.interface);
        patterns.filter(move |pattern| !pattern.is_exact() && !is_there(pattern))
    }
}

/// One `[[link]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// The interface, or those that a pattern means.
    pub interface: NamePattern,
    /// How it is called in `status` and in logs; those of a pattern are called like their interfaces.
    pub name: String,
    /// Its keepalives.
    pub keepalive: Keepalive,
    /// Its routers, instead of those that the system's routes name: at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Whether bytes cost money on it.
    pub metered: bool,
    /// Whether it is used at all.
    pub enabled: bool,
    /// How it is used, in both directions.
    pub policy: LinkPolicy,
    /// How much it may carry in a month.
    pub allowance: Option<Allowance>,
}

impl ConfigFile for Config {
    const TOP_KEYS: &'static [&'static str] = &[
        "proxy",
        "tun",
        "links",
        "include_interfaces",
        "exclude_interfaces",
        "keepalive",
        "counters_file",
        "dns",
        "kill_switch",
        "share",
        "inbound",
        "state_dir",
        "sandbox",
        "link",
    ];

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
    tun: tun::TunFile,
    links: Option<Select>,
    include_interfaces: Option<Spanned<OneOrMany<NamePattern>>>,
    exclude_interfaces: Option<Spanned<OneOrMany<NamePattern>>>,
    keepalive: Option<Parsed<Keepalive>>,
    counters_file: Option<Spanned<PathBuf>>,
    dns: Option<Spanned<OneOrMany<dns::Word>>>,
    #[serde(default)]
    kill_switch: bool,
    share: Option<Spanned<share::ShareFile>>,
    inbound: Option<Spanned<OneOrMany<inbound::Word>>>,
    state_dir: Option<Spanned<PathBuf>>,
    #[serde(default)]
    sandbox: Sandbox,
    #[serde(default)]
    link: Vec<Spanned<LinkFile>>,
    #[serde(default)]
    tunnel: TunnelSection,
    #[serde(default)]
    history: HistorySection,
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
    choose: Option<Spanned<String>>,
    #[serde(default)]
    tls: TlsUse,
    tls_port: Option<Spanned<u16>>,
    #[serde(default)]
    other: Vec<Spanned<OtherProxyFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherProxyFile {
    address: Spanned<OneOrMany<HostPort>>,
    public_key: Spanned<Parsed<PublicKey>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkFile {
    interface: Spanned<Parsed<NamePattern>>,
    name: Option<Spanned<String>>,
    keepalive: Option<Parsed<Keepalive>>,
    gateway: Option<Spanned<OneOrMany<IpAddr>>>,
    #[serde(default)]
    metered: bool,
    enabled: Option<bool>,
    #[serde(default, rename = "use")]
    usage: Usage,
    #[serde(default)]
    direction: Direction,
    max_up: Option<Parsed<Bitrate>>,
    max_down: Option<Parsed<Bitrate>>,
    rate_up: Option<Parsed<Bitrate>>,
    rate_down: Option<Parsed<Bitrate>>,
    weight: Option<f64>,
    cost: Option<Parsed<Cost>>,
    importance: Option<Importance>,
    allowance: Option<allowance::Written>,
}

impl LinkFile {
    fn policy(&self) -> LinkPolicy {
        let rate = |rate: Option<Parsed<Bitrate>>| rate.map(|Parsed(rate)| rate);
        LinkPolicy {
            usage: self.usage,
            direction: self.direction,
            max_up: rate(self.max_up),
            max_down: rate(self.max_down),
            rate_up: rate(self.rate_up),
            rate_down: rate(self.rate_down),
            weight: self.weight,
            cost: self.cost.as_ref().map(|Parsed(cost)| cost.clone()),
            importance: self.importance,
        }
    }
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
        let patterns = [&self.include_interfaces, &self.exclude_interfaces];
        let mut links = resolve_links(source, self.links, patterns, self.keepalive, &self.link)?;
        let share = share::resolve(source, self.share.as_ref(), &links)?;
        // Devices are behind it, whatever routes lead out of it.
        links.exclude.extend(share.interfaces.iter().map(NamePattern::exact));
        let setting = |error| source.error_of_setting(&error);
        let tunnel = self.tunnel.resolve().map_err(setting)?;
        if let Some(name) = tunnel.scheduling.terms.keys().next() {
            let error = SettingError::new(["link", name], OF_PROXY.to_owned());
            return Err(setting(error));
        }
        if links.are_all_named() {
            let names: Vec<_> = links.listed.iter().map(|link| link.name.as_str()).collect();
            tunnel.scheduling.check_links(&names).map_err(setting)?;
        }
        let dns = dns::resolve(source, self.dns.as_ref())?;
        Ok(Config {
            private_key,
            proxy,
            tun: self.tun.resolve(source, &dns)?,
            links,
            tunnel,
            control: self.control.resolve(source, ropewalk_control::CLIENT_SOCKET)?,
            counters_file: absolute_path(source, self.counters_file, COUNTERS_FILE)?,
            dns,
            kill_switch: self.kill_switch,
            share,
            inbound: inbound::resolve(source, self.inbound.as_ref())?,
            state_dir: absolute_path(source, self.state_dir, STATE_DIR)?,
            sandbox: self.sandbox,
            history: self.history.days,
        })
    }
}

fn absolute_path(
    source: &Source,
    path: Option<Spanned<PathBuf>>,
    default: &str,
) -> Result<PathBuf, ConfigError> {
    let Some(path) = path else { return Ok(PathBuf::from(default)) };
    absolute(path.get_ref()).map_err(|message| source.error(path.span(), &message))?;
    Ok(path.into_inner())
}

impl ProxyFile {
    fn resolve(&self, source: &Source) -> Result<ProxyConfig, ConfigError> {
        let addresses = addresses(source, &self.address)?;
        let choose = match &self.choose {
            None => Preference::Auto,
            Some(text) => {
                preference(text.get_ref()).map_err(|message| source.error(text.span(), &message))?
            }
        };
        let others = self.others(source)?;
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
        let (tls, tls_port) = (self.tls, self.tls_port(source)?);
        Ok(ProxyConfig {
            addresses,
            public_key,
            preshared_key,
            invitation,
            others,
            choose,
            tls,
            tls_port,
        })
    }

    fn tls_port(&self, source: &Source) -> Result<u16, ConfigError> {
        match &self.tls_port {
            None => Ok(DEFAULT_TLS_PORT),
            Some(port) if *port.get_ref() == 0 => {
                Err(source.error(port.span(), "port 0 is no port"))
            }
            Some(port) => Ok(*port.get_ref()),
        }
    }

    fn others(&self, source: &Source) -> Result<Vec<OtherProxy>, ConfigError> {
        if let Some(beyond) = self.other.get(MAX_OTHER_PROXIES) {
            let message = format!("more than {MAX_OTHER_PROXIES} [[proxy.other]]");
            return Err(source
                .error(beyond.span(), &message)
                .with_help("one that answers is enough: a proxy of a fleet tells of all others"));
        }
        let mut keys = vec![self.public_key.get_ref().0];
        let mut others = Vec::new();
        for other in self.other.iter().map(Spanned::get_ref) {
            let public_key = other.public_key.get_ref().0;
            if keys.contains(&public_key) {
                let message = "two proxies have this public key: each has one of its own";
                return Err(source.error(other.public_key.span(), message));
            }
            keys.push(public_key);
            others.push(OtherProxy { addresses: addresses(source, &other.address)?, public_key });
        }
        Ok(others)
    }
}

fn addresses(
    source: &Source,
    list: &Spanned<OneOrMany<HostPort>>,
) -> Result<Vec<HostPort>, ConfigError> {
    let addresses = list.get_ref().0.clone();
    if addresses.is_empty() || addresses.len() > MAX_ADDRESSES {
        let message = format!("{} addresses; 1 to {MAX_ADDRESSES} are possible", addresses.len());
        return Err(source.error(list.span(), &message));
    }
    Ok(addresses)
}

fn resolve_links(
    source: &Source,
    select: Option<Select>,
    patterns: [&Option<Spanned<OneOrMany<NamePattern>>>; 2],
    keepalive: Option<Parsed<Keepalive>>,
    files: &[Spanned<LinkFile>],
) -> Result<LinksConfig, ConfigError> {
    let select = select.unwrap_or(if files.is_empty() { Select::Auto } else { Select::Listed });
    let keepalive = keepalive.map_or(Keepalive::default(), |Parsed(keepalive)| keepalive);
    if select == Select::Listed && files.is_empty() {
        return Err(source
            .error_of_file("links = \"listed\", but there is no [[link]]")
            .with_help("add [[link]] with interface = \"NAME\", or write links = \"auto\""));
    }
    if let Some(beyond) = files.get(MAX_LINKS) {
        let message = format!("more than {MAX_LINKS} links");
        return Err(source.error(beyond.span(), &message));
    }
    let [include, exclude] = name_patterns(source, select, patterns)?;
    let mut names = BTreeSet::new();
    let mut interfaces = BTreeSet::new();
    let mut listed = Vec::new();
    for (section, file) in files.iter().map(|file| (file.span(), file.get_ref())) {
        let interface = file.interface.get_ref().0.clone();
        let (name, span) = match &file.name {
            Some(name) => (name.get_ref().clone(), name.span()),
            None => (interface.to_string(), file.interface.span()),
        };
        if !interfaces.insert(interface.clone()) {
            let message = format!("the interface `{interface}` is listed twice");
            return Err(source.error(file.interface.span(), &message));
        }
        let excluded = exclude.iter().find(|pattern| pattern.matches(interface.as_str()));
        if let Some(pattern) = excluded.filter(|_| file.enabled != Some(false)) {
            let message =
                format!("`{interface}` has a [[link]], but exclude_interfaces has `{pattern}`");
            return Err(source
                .error(file.interface.span(), &message)
                .with_help("remove one of the two, or write `enabled = false` here"));
        }
        if let Some(name) = file.name.as_ref().filter(|_| !interface.is_exact()) {
            return Err(source
                .error(name.span(), "several links cannot have one name")
                .with_help("remove `name`: each link of a pattern is called like its interface"));
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
        let policy = file.policy();
        policy.check().map_err(|problem| source.error(section, &format!("{name}: {problem}")))?;
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
            policy,
            allowance: file.allowance.as_ref().map(|file| file.resolve(source)).transpose()?,
        });
    }
    if select == Select::Listed && listed.iter().all(|link| !link.enabled) {
        return Err(source
            .error_of_file("no link is enabled: nothing could reach the proxy")
            .with_help("remove `enabled = false` from one [[link]], or write links = \"auto\""));
    }
    let links = LinksConfig { select, include, exclude, keepalive, listed };
    links.check_policies().map_err(|error| source.error_of_file(error.to_string()))?;
    Ok(links)
}

/// Which names `auto` takes, and which are never links.
fn name_patterns(
    source: &Source,
    select: Select,
    patterns: [&Option<Spanned<OneOrMany<NamePattern>>>; 2],
) -> Result<[Vec<NamePattern>; 2], ConfigError> {
    if let (Some(include), Select::Listed) = (patterns[0], select) {
        return Err(source
            .error(include.span(), "include_interfaces goes with links = \"auto\"")
            .with_help("a [[link]] takes a pattern too: interface = \"wlan*\""));
    }
    let long =
        patterns.iter().copied().flatten().find(|list| list.get_ref().0.len() > MAX_PATTERNS);
    if let Some(long) = long {
        return Err(source.error(long.span(), &format!("more than {MAX_PATTERNS} patterns")));
    }
    Ok(patterns.map(|list| list.as_ref().map_or_else(Vec::new, |list| list.get_ref().0.clone())))
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
