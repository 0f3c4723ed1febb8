//! `ropewalk check-config`: whether a config file is valid, and what it means.

use std::fmt::Write as _;

use ipnet::IpNet;
use ropewalk_client::config::{Dns, Inbound, Select};
use ropewalk_client::split::cgroups::Tree;
use ropewalk_client::split::users::{PASSWD, id_of};
use ropewalk_control::config::{ConfigFile as _, ControlConfig, Source};
use ropewalk_proxy::closed;
use ropewalk_proxy::config::{Ipv6Mode, Uplinks};
use ropewalk_proxy::forward::conflicts;
use ropewalk_proxy::leases::{LeaseError, Leases};
use ropewalk_proxy::overlap;
use ropewalk_proxy::registry::peers_file::{PeersFile, RegistryError};
use ropewalk_settings::{Direction, Selector, TunnelSettings};

use crate::args::{CheckConfig, RoleArgument};
use crate::exit::{Failure, print};

/// Checks a file and prints what it means.
pub(crate) fn run(check: &CheckConfig) -> Result<(), Failure> {
    let source = Source::read(&check.file)?;
    let role = match check.role {
        Some(role) => role,
        None => role_of(&source)?,
    };
    let meaning = match role {
        RoleArgument::Client => {
            let config = ropewalk_client::Config::parse(&source)?;
            let passwd = std::fs::read_to_string(PASSWD).unwrap_or_default();
            has_users(&config, &passwd)?;
            client(&config)
        }
        RoleArgument::Proxy => {
            let config = ropewalk_proxy::Config::parse(&source)?;
            fits_host(&config)?;
            proxy(&config, &peers(&config)?)
        }
    };
    print(&format!("{}: OK\n{meaning}", check.file.display()))
}

/// Whether the users that a client's config names are known on this host.
fn has_users(config: &ropewalk_client::Config, passwd: &str) -> Result<(), Failure> {
    let entries = config.tun.routes.iter().chain(&config.tun.exclude);
    let mut users = entries.filter_map(|entry| match entry {
        Selector::User(user) => Some((entry, user)),
        _ => None,
    });
    match users.find(|(_, user)| id_of(user, passwd).is_none()) {
        None => Ok(()),
        Some((entry, _)) => Err(Failure::Usage(format!(
            "`{entry}`: {PASSWD} has no user of this name: write another one, or the number if another source knows it"
        ))),
    }
}

/// Whether a proxy of this config could start on this host.
fn fits_host(config: &ropewalk_proxy::Config) -> Result<(), Failure> {
    if let Some(overlap) = overlap::find(config)? {
        return Err(anyhow::Error::new(overlap).into());
    }
    if config.registry.is_some() {
        // Its addresses stand in the registry.
        return Ok(());
    }
    match Leases::check(&config.leases_file(), &config.pools, &config.peers) {
        // Another user's check says what it can.
        Err(LeaseError::Read { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(anyhow::Error::new(error).into()),
    }
}

/// Whose file it is: it has more keys of that role.
pub(crate) fn role_of(source: &Source) -> Result<RoleArgument, Failure> {
    let keys = source.top_keys()?;
    let count = |of: &[&str]| of.iter().filter(|key| keys.contains(**key)).count();
    let client = count(ropewalk_client::Config::TOP_KEYS);
    let proxy = count(ropewalk_proxy::Config::TOP_KEYS);
    match client.cmp(&proxy) {
        std::cmp::Ordering::Greater => Ok(RoleArgument::Client),
        std::cmp::Ordering::Less => Ok(RoleArgument::Proxy),
        std::cmp::Ordering::Equal => Err(Failure::Usage(format!(
            "{}: its keys do not tell whether it is a client's or a proxy's file: say --role client \
             or --role proxy",
            source.file().display()
        ))),
    }
}

fn client(config: &ropewalk_client::Config) -> String {
    let addresses: Vec<String> = config.proxy.addresses.iter().map(ToString::to_string).collect();
    let links: Vec<String> = config
        .links
        .listed
        .iter()
        .map(|link| {
            let mut facts = vec![link.interface.to_string()];
            if link.enabled {
                facts.push(format!("keepalive {}", link.keepalive));
                facts.extend(link.gateways.iter().map(|gateway| format!("gateway {gateway}")));
                facts.extend(link.metered.then(|| "metered".to_owned()));
                facts.extend(Some(link.policy.in_words()).filter(|words| !words.is_empty()));
                facts.extend(link.allowance.map(|allowance| allowance.to_string()));
            } else {
                facts.push("not used".to_owned());
            }
            format!("{} ({})", link.name, facts.join(", "))
        })
        .collect();
    let links = match (config.links.select, links.is_empty()) {
        (Select::Listed, _) => links.join(", "),
        (Select::Auto, true) => "every interface with a default route".to_owned(),
        (Select::Auto, false) => {
            format!("every interface with a default route; adjusted: {}", links.join(", "))
        }
    };
    let mut lines = Lines::default();
    lines.add("role", "client");
    lines.add("public key", &config.private_key.public_key().to_string());
    lines.add("proxy", &addresses.join(", "));
    lines.add("its key", &config.proxy.public_key.to_string());
    lines.add("preshared", if config.proxy.preshared_key.is_some() { "yes" } else { "no" });
    let tls = config.proxy.tls_port_in_use().map(|port| format!(", at TCP {port}"));
    lines.add("over TLS", &format!("{}{}", config.proxy.tls, tls.unwrap_or_default()));
    lines.add("links", &links);
    for (what, patterns) in [("only of", &config.links.include), ("never", &config.links.exclude)] {
        if !patterns.is_empty() {
            let patterns: Vec<_> = patterns.iter().map(ToString::to_string).collect();
            lines.add(what, &patterns.join(", "));
        }
    }
    lines.add("keepalive", &config.links.keepalive.to_string());
    lines.add("TUN", &format!("{}, MTU {}", config.tun.name, config.tun.mtu));
    let routes = &config.tun.routes;
    lines.add("routes", &if routes.is_empty() { "none".to_owned() } else { list(routes) });
    if !config.tun.exclude.is_empty() {
        lines.add("but not", &list(&config.tun.exclude));
    }
    lines.rules(config, &running(config));
    lines.machine(config);
    lines.add("history", &config.history.to_string());
    lines.tunnel(&config.tunnel);
    for link in &config.links.listed {
        let terms = link.policy.terms(Direction::Both);
        for idle in config.tunnel.scheduling.without_effect_on(&link.name, &terms) {
            lines.add("note", &idle);
        }
    }
    lines.control(&config.control);
    lines.0
}

/// The entries by control groups that have some now; `None`: this host has no such groups.
type Running = Option<Vec<Selector>>;

fn running(config: &ropewalk_client::Config) -> Running {
    let entries = config.tun.routes.iter().chain(&config.tun.exclude);
    let by_group: Vec<&Selector> = entries.filter(|entry| entry.is_by_cgroup()).collect();
    let found = Tree::mounted()?.find(&by_group, |_| ());
    let there = by_group.into_iter().zip(found.paths).filter(|(_, paths)| !paths.is_empty());
    Some(there.map(|(entry, _)| entry.clone()).collect())
}

/// Who may connect: those of the file, and those who joined by an invitation.
fn peers(config: &ropewalk_proxy::Config) -> Result<String, Failure> {
    if let Some(registry) = &config.registry {
        return Ok(format!(
            "in the registry of the fleet {} at {}, of at most {}: `ropewalk fleet` asks it",
            registry.fleet,
            registry.endpoints.join(", "),
            config.max_peers
        ));
    }
    let (of_file, most) = (config.peers.len(), config.max_peers);
    let book = config.registry_file();
    let registry = match PeersFile::open(book.clone()) {
        Ok(registry) => registry,
        // Another user's check says what it can.
        Err(RegistryError::Read { .. }) => {
            let joined = format!("who joined by an invitation stands in {}", book.display());
            return Ok(format!(
                "{of_file} in this file, of at most {most}; {joined}, which needs sudo"
            ));
        }
        Err(error) => return Err(anyhow::Error::new(error).into()),
    };
    let all = registry.peers(&config.peers).0.len();
    Ok(match (all, all.saturating_sub(of_file)) {
        (0, _) => "none yet: `ropewalk peer add NAME` invites one".to_owned(),
        (all, 0) => format!("{all} of at most {most}"),
        (all, joined) => {
            format!("{all} of at most {most}, {joined} of them joined by an invitation")
        }
    })
}

fn proxy(config: &ropewalk_proxy::Config, peers: &str) -> String {
    let v6 = match (config.pools.v6(), config.ipv6) {
        (None, _) => "none".to_owned(),
        (Some(pool), Ipv6Mode::Nat66) => format!("{pool}, NAT66"),
        (Some(pool), Ipv6Mode::Routed) => format!("{pool}, routed"),
    };
    let uplinks = match &config.uplinks {
        Uplinks::Auto => "every interface with a default route".to_owned(),
        Uplinks::Named(names) => {
            names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
    };
    let mut lines = Lines::default();
    lines.add("role", "proxy");
    lines.add("public key", &config.private_key.public_key().to_string());
    let ports: Vec<_> = std::iter::once(config.listen.to_string())
        .chain(config.more_ports.iter().map(ToString::to_string))
        .collect();
    lines.add("listen", &format!("{}/udp", ports.join(", ")));
    let tls = config.tls.as_ref().map_or_else(|| "off".to_owned(), ToString::to_string);
    lines.add("over TLS", &tls);
    lines.add("TUN", config.tun_name.as_str());
    lines.add("IPv4 pool", &format!("{}, NAT", config.pools.v4()));
    lines.add("IPv6 pool", &v6);
    lines.add("uplinks", &uplinks);
    if !config.dns.is_empty() {
        lines.add("names", &format!("looked up by clients at {}", list(&config.dns)));
    }
    if !config.no_nat.is_empty() {
        let no_nat: Vec<String> = config.no_nat.iter().map(ToString::to_string).collect();
        lines.add("no NAT", &no_nat.join(", "));
    }
    lines.reach(config);
    lines.forwards(config);
    let switch = if config.client_to_client { "on" } else { "off" };
    lines.add("peers", &format!("{peers}; client-to-client: {switch}"));
    lines.add("speed tests", &config.speed_tests.to_string());
    lines.tunnel(&config.tunnel);
    lines.add("leases", &config.leases_file().display().to_string());
    lines.add("history", &config.history.to_string());
    lines.control(&config.control);
    lines.0
}

fn list(of: &[impl ToString]) -> String {
    of.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A list of names and what they mean.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, meaning: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "  {name:<11} {meaning}");
    }

    /// Where a proxy's clients get, and who gets to them.
    fn reach(&mut self, config: &ropewalk_proxy::Config) {
        let is_inner = |net: &IpNet| match net {
            IpNet::V4(net) => config.pools.v4().contains(net),
            IpNet::V6(net) => config.pools.v6().is_some_and(|pool| pool.contains(net)),
        };
        let (inner, kept): (Vec<IpNet>, Vec<IpNet>) =
            config.no_nat.iter().partition(|net| is_inner(net));
        let (opened, others): (Vec<IpNet>, Vec<IpNet>) =
            kept.iter().partition(|net| closed::opened_by_no_nat(net));
        let mut reach = vec!["the Internet and the proxy's inner address".to_owned()];
        reach.extend(config.allow.iter().map(ToString::to_string));
        reach.extend(opened.iter().map(|net| format!("{net} (no_nat)")));
        self.add("clients to", &reach.join(", "));
        if config.allow.is_empty() {
            self.add(
                "note",
                "private networks behind the proxy, its neighbours and its other addresses are closed: write those that \
                 clients need to `allow`",
            );
        }
        for net in others {
            let what = "no_nat opens private networks only: what is not the Internet in";
            self.add("note", &format!("{what} {net} stays closed; see `allow`"));
        }
        if !config.inbound.is_empty() {
            self.add("to clients", &format!("connections from {}", list(&config.inbound)));
        } else if config.ipv6 == Ipv6Mode::Routed || !inner.is_empty() {
            self.add(
                "note",
                "only answers reach clients: write who may begin connections to them to `inbound`",
            );
        }
        let (most, rate) = (config.client_connections, config.client_connection_rate);
        self.add("each client", &format!("at most {most} connections, {rate} new ones a second"));
    }

    /// Which ports of the host lead to clients, and what else on this host wants them.
    fn forwards(&mut self, config: &ropewalk_proxy::Config) {
        for forward in &config.forwards {
            self.add("forward", &format!("{} to {forward}", forward.ports_in_words()));
        }
        for conflict in conflicts::find(&conflicts::ports(&config.forwards), true) {
            let name = if conflict.is_listener() { "warning" } else { "note" };
            self.add(name, &conflict.to_string());
        }
    }

    /// Entries that choose nothing on this host at present; `running` are those by control groups that have some.
    fn rules(&mut self, config: &ropewalk_client::Config, running: &Running) {
        let entries = || config.tun.routes.iter().chain(&config.tun.exclude);
        for entry in entries().filter(|entry| entry.is_by_cgroup()) {
            match running {
                None => self.add(
                    "note",
                    &format!(
                        "{entry} has no effect here: there are no control groups of version 2"
                    ),
                ),
                Some(running) if !running.contains(entry) => self.add(
                    "note",
                    &format!("{entry} is not running now: it has an effect when it runs"),
                ),
                Some(_) => {}
            }
        }
        if entries().any(Selector::is_by_domain) {
            self.add(
                "note",
                "domains are known by the answers of this machine's name servers: a browser with DNS over HTTPS of its own \
                 goes past them",
            );
        }
    }

    /// What a client does to its machine beside routing.
    fn machine(&mut self, config: &ropewalk_client::Config) {
        let names = match &config.dns {
            Dns::Proxy => "looked up at the servers that the proxy hands out".to_owned(),
            Dns::Untouched => "looked up as without the tunnel".to_owned(),
            Dns::Servers(servers) => format!("looked up at {}", list(servers)),
        };
        self.add("names", &names);
        let reached = match &config.inbound {
            Inbound::Proxy => "by what the proxy lets through".to_owned(),
            Inbound::Nothing => "by nothing that begins at the other end".to_owned(),
            ports @ Inbound::Ports { .. } => format!("out of the tunnel at {ports} only"),
        };
        self.add("reached", &reached);
        if !config.share.is_empty() {
            self.add("shared", &format!("with the hosts behind {}", list(&config.share)));
        }
        if config.kill_switch {
            self.add("locked", "nothing leaves outside the tunnel, after a crash neither");
            if ![true, false].iter().all(|is_ipv4| config.tun.routes_all(*is_ipv4)) {
                self.add(
                    "note",
                    "with kill_switch what is neither in `routes` nor in `exclude` has no way out",
                );
            }
        }
    }

    fn control(&mut self, control: &ControlConfig) {
        self.add("control", &control.socket.display().to_string());
        if let Some(address) = control.web {
            self.add("page", &format!("http://{address}/, for Prometheus /metrics"));
        }
    }

    fn tunnel(&mut self, tunnel: &TunnelSettings) {
        self.add(
            "sends by",
            &format!(
                "{}, {}, order {}, {}",
                tunnel.scheduling.in_words(),
                tunnel.controller,
                tunnel.order,
                tunnel.when_closed_in_words()
            ),
        );
        for (name, terms) in &tunnel.scheduling.terms {
            self.add("told", &format!("{name}: {}", terms.in_words()));
        }
        let redundant = &tunnel.scheduling.redundant;
        if !redundant.is_off() {
            self.add("sent twice", &redundant.in_words());
        }
        for idle in tunnel.without_effect() {
            self.add("note", &idle);
        }
    }
}
