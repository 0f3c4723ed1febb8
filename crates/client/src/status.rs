//! The status document of a client: what the core counts, beside what the daemon knows of each
//! interface.
//!
//! Up is client to proxy: what the core *accepts* from the TUN here, and what its links *send*. Every
//! interface of the config is shown, with the reason where it carries nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ropewalk_control::api::{
    AllowanceStatus, DaemonStatus, HistoryStatus, KillSwitch, LinkState, LinkStatus, OffloadStatus,
    Role, STATUS_VERSION, SpendingStatus, StatusReport, TunnelStatus,
};
use ropewalk_daemon::client_status::{self, ClientFacts, PATIENCE, heard, why_over_tls};
use ropewalk_daemon::scheduling_status;
use ropewalk_daemon::status::{self, LinkFacts};
use ropewalk_link_io::tun::TunCounters;
use ropewalk_proto::client::{ClientState, ClientStats};
use ropewalk_proto::path::SocketId;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};
use ropewalk_settings::{Direction, LinkTerms, PublicKey};

use crate::allowance::Allowances;
use crate::config::Config;
use crate::links::{Link, Links, Obstacle};

/// All that the document is made of.
pub(crate) struct Facts<'a> {
    /// The present.
    pub(crate) now: Instant,
    /// When the daemon was ready.
    pub(crate) started: Instant,
    /// When the keys in use were agreed.
    pub(crate) keys_since: Instant,
    /// What the file says.
    pub(crate) config: &'a Config,
    /// The proxy in use, as the document names it, and its key.
    pub(crate) peer: (String, PublicKey),
    /// The interfaces.
    pub(crate) links: &'a Links,
    /// What keeps the carrier of a socket from carrying, for people.
    pub(crate) carrier_trouble: &'a dyn Fn(SocketId) -> Option<String>,
    /// What they may carry.
    pub(crate) allowances: &'a Allowances,
    /// The core.
    pub(crate) state: ClientState,
    /// Whether packets find their way into the tunnel.
    pub(crate) routed: bool,
    /// What it counted.
    pub(crate) stats: &'a ClientStats,
    /// Since when it has been in this state.
    pub(crate) since: Instant,
    /// Why the proxy's name has no address.
    pub(crate) unresolved: Option<&'a str>,
    /// What the user should know and do.
    pub(crate) warnings: Vec<String>,
    /// How it remembers what it carried.
    pub(crate) history: HistoryStatus,
    /// Whether packets can leave outside the tunnel.
    pub(crate) kill_switch: KillSwitch,
    /// The TUN.
    pub(crate) tun: TunCounters,
    /// What is left to the kernel.
    pub(crate) offload: OffloadStatus,
    /// Datagrams that the kernel refused, by reason.
    pub(crate) send_errors: &'a BTreeMap<&'static str, u64>,
}

/// The document. `local` tells the address and port of a socket.
pub(crate) fn report(
    mut facts: Facts<'_>,
    local: impl Fn(SocketId) -> Option<SocketAddr>,
) -> StatusReport {
    let warnings = std::mem::take(&mut facts.warnings);
    let facts = &facts;
    let daemon =
        status::daemon(Role::Client, facts.seconds(facts.started), warnings, facts.offload);
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            kill_switch: Some(facts.kill_switch),
            history: Some(facts.history.clone()),
            ..daemon
        },
        tunnels: vec![tunnel(facts, local)],
        drops: BTreeMap::new(),
        proxy: None,
        rules: Vec::new(),
        proxies: None,
    }
}

fn tunnel(facts: &Facts<'_>, local: impl Fn(SocketId) -> Option<SocketAddr>) -> TunnelStatus {
    let shared = ClientFacts {
        now: facts.now,
        settings: &facts.config.tunnel,
        peer: &facts.peer.0,
        peer_public_key: facts.peer.1,
        state: &facts.state,
        unrouted: (!facts.routed).then_some("the routes into the tunnel are not in place yet"),
        unresolved: facts.unresolved,
        since: facts.since,
        keys_since: facts.keys_since,
        stats: facts.stats,
        tun: facts.tun,
        send_errors: facts.send_errors,
    };
    client_status::tunnel(&shared, links(facts, local), spending(facts))
}

fn links(facts: &Facts<'_>, local: impl Fn(SocketId) -> Option<SocketAddr>) -> Vec<LinkStatus> {
    facts.links.iter().map(|link| status_of(facts, link, &local)).collect()
}

fn status_of(
    facts: &Facts<'_>,
    link: &Link,
    local: impl Fn(SocketId) -> Option<SocketAddr>,
) -> LinkStatus {
    let way = link.in_use(facts.stats);
    let over_tls = way.is_some_and(|way| way.over_tls);
    let core = way.and_then(|way| way.core);
    let since = core.map_or(link.since, |core| core.since.max(link.since));
    let (state, reason) = state_of(facts, link, core, over_tls, facts.seconds(since));
    let all = facts.stats.links.iter().filter(|stats| link.has(stats.key));
    let (sent, received) = all.fold(Default::default(), |(sent, received), stats| {
        (stats.sent.plus(sent), stats.received.plus(received))
    });
    let remote = core.filter(|_| over_tls).map(|core| core.path.remote.ip());
    let [up_bps, down_bps] = core.map(|core| core.rates(facts.now)).unwrap_or_default();
    let (name, scheduling) = (&link.decision.name, &facts.config.tunnel.scheduling);
    let allowance = facts.allowances.of(name).map(|(allowance, count, until)| AllowanceStatus {
        bytes: allowance.bytes,
        used: count.bytes,
        since: count.since.to_string(),
        until: until.to_string(),
        stop: allowance.stop,
    });
    let all = facts.stats.tunnel.as_ref().map_or(&[][..], |tunnel| &tunnel.links);
    // A page belongs to the network that the link's socket is in, and is for those who are not through.
    let is_held_back = state != LinkState::Up && link.key().is_some();
    let facts = LinkFacts {
        name: name.clone(),
        interface: Some(link.decision.interface.clone()),
        state,
        reason,
        sign_in: link.portal.clone().filter(|_| is_held_back),
        state_age_s: facts.seconds(since),
        local: core.map(|core| core.path.socket).or_else(|| link.socket()).and_then(local),
        remote: remote.map(|ip| SocketAddr::new(ip, facts.config.proxy.tls_port)),
        over_tls,
        up: status::datagrams(up_bps, sent),
        down: status::datagrams(down_bps, received),
        told: Some(link.decision.policy.terms(Direction::Up))
            .filter(|told| *told != LinkTerms::default()),
        allowance,
        limits: core.map(|core| status::limits(facts.now, core)),
        share: core.and_then(|core| scheduling_status::share(scheduling.scheduler, core, all)),
    };
    status::link(facts, core)
}

/// What the links with a price cost.
fn spending(facts: &Facts<'_>) -> Option<SpendingStatus> {
    let links = &facts.config.links;
    let known = facts.links.iter().map(|link| link.decision.name.clone());
    let price = |name: &str| links.named(name)?.policy.cost.clone();
    scheduling_status::spending(known, price, &facts.stats.ledger)
}

/// A link has an address and no answer: what was asked, and since when.
fn no_answer(facts: &Facts<'_>, link: &Link, seconds: f64) -> String {
    let trouble = link.tls_socket().and_then(facts.carrier_trouble);
    if link.key().is_none() {
        let why = trouble.map_or_else(String::new, |why| format!(": {why}"));
        return format!("no answer from the proxy over TLS for {seconds:.0} s{why}");
    }
    let over_tls = trouble.map_or_else(String::new, |why| format!("; over TLS: {why}"));
    let remotes = link.decision.wish.as_ref().map_or(&[][..], |wish| &wish.remotes);
    let mut ports: Vec<(IpAddr, Vec<String>)> = Vec::new();
    for remote in remotes {
        let port = remote.port().to_string();
        match ports.iter_mut().find(|(address, _)| *address == remote.ip()) {
            Some((_, known)) => known.push(port),
            None => ports.push((remote.ip(), vec![port])),
        }
    }
    let asked: Vec<String> = ports
        .into_iter()
        .map(|(address, ports)| format!("{address} at UDP {}", ports.join(", ")))
        .collect();
    let hint = match (&link.portal, seconds) {
        (Some(page), _) => format!("; this network wants a sign-in first, perhaps at {page}"),
        // Most networks that hold one back do so for good; a slow one has answered by now.
        (None, PATIENCE..) => {
            "; UDP may be blocked here, or this network wants a sign-in first".to_owned()
        }
        (None, _) => String::new(),
    };
    let asked = asked.join(" and ");
    format!("no answer from the proxy for {seconds:.0} s: asked {asked}{hint}{over_tls}")
}

/// The state of a link and its reason: config and host first, then the socket, then the core.
fn state_of(
    facts: &Facts<'_>,
    link: &Link,
    core: Option<&LinkStats>,
    over_tls: bool,
    seconds: f64,
) -> (LinkState, Option<String>) {
    if let Some(obstacle) = link.obstacle() {
        let disabled = obstacle == Obstacle::Disabled;
        let state = if disabled { LinkState::Disabled } else { LinkState::Down };
        return (state, Some(obstacle.to_string()));
    }
    if link.key().is_none() && link.tls_key().is_none() {
        return (LinkState::Down, link.trouble.clone());
    }
    let known = || link.refusal().or(heard(&facts.state)).map(str::to_owned);
    let no_answer = || Some(known().unwrap_or_else(|| no_answer(facts, link, seconds)));
    match core.map(|core| core.state) {
        Some(CoreLinkState::Up) if over_tls => {
            (LinkState::Up, Some(why_over_tls(facts.config.proxy.tls).to_owned()))
        }
        // One family of two may have no socket; that is worth a word even then.
        Some(CoreLinkState::Up) => (LinkState::Up, link.trouble.clone()),
        Some(CoreLinkState::Joining) | None => (LinkState::Joining, no_answer()),
        Some(CoreLinkState::Down) => (LinkState::Down, no_answer()),
    }
}

impl Facts<'_> {
    fn seconds(&self, since: Instant) -> f64 {
        status::seconds(self.now, since)
    }
}
