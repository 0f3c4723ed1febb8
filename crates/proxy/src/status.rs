//! The status document of a proxy: what the core counts, beside what the daemon knows of each client.
//!
//! Up is client to proxy: what the core *delivers* here, and what its links *receive*.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ropewalk_control::api::{
    ConntrackStatus, DaemonStatus, ForwardStatus, ForwardTraffic, HandshakeCounters, HistoryStatus,
    LinkState, LinkStatus, OffloadStatus, PacketTraffic, PeerStatus, PoolStatus, ProxyStatus,
    RegistryStatus, Role, STATUS_VERSION, SpendingStatus, StatusReport, TlsStatus, TunnelStatus,
    TurnedAwayStatus,
};
use ropewalk_daemon::scheduling_status;
use ropewalk_daemon::status::{self, LinkFacts};
use ropewalk_proto::endpoint::{EndpointStats, PeerStats, SessionStats};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::SocketId;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};
use ropewalk_settings::{Direction, LinkTerms, Scheduling, pattern};
use ropewalk_tls::Sources;

use crate::config::Config;
use crate::forward::Key;
use crate::forward::conflicts::Conflict;
use crate::peers::{Peer, PeerBook};
use crate::registry::Registry;

/// What is known of the host, besides the core.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Interfaces to the Internet.
    pub uplinks: Vec<String>,
    /// The kernel's table of connections, where there is one.
    pub conntrack: Option<ConntrackStatus>,
    /// What the firewall has turned away, where it could be read.
    pub turned_away: Option<TurnedAwayStatus>,
    /// What each forward that leads to a client has carried.
    pub forwards: BTreeMap<Key, ForwardTraffic>,
    /// What else on the host wants forwarded ports.
    pub conflicts: Vec<Conflict>,
    /// Why the host's network is not as it should be.
    pub failure: Option<String>,
    /// What the operator should know and do.
    pub warnings: Vec<String>,
}

/// All that the document is made of.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The present.
    pub now: Instant,
    /// When the daemon was ready.
    pub started: Instant,
    /// What the file says.
    pub config: &'a Config,
    /// The sockets that clients send to, with their ports.
    pub sockets: &'a [(SocketId, u16)],
    /// Whose links come over TLS, where they may.
    pub tls: Option<&'a Sources>,
    /// The clients.
    pub peers: &'a PeerBook,
    /// IPv4 and IPv6 addresses that are somebody's.
    pub leased: (usize, usize),
    /// Ports that lead to clients.
    pub forwards: Vec<ForwardStatus>,
    /// The registry that several proxies share.
    pub registry: Option<RegistryStatus>,
    /// The core.
    pub stats: &'a EndpointStats,
    /// The host.
    pub host: &'a HostFacts,
    /// How it remembers what it carried.
    pub history: HistoryStatus,
    /// Drops that the core did not see, by reason.
    pub driver_drops: &'a BTreeMap<&'static str, u64>,
    /// What is left to the kernel.
    pub offload: OffloadStatus,
}

impl Facts<'_> {
    /// The port that datagrams of this socket come to.
    fn port_of(&self, socket: SocketId) -> u16 {
        let known = self.sockets.iter().find(|(id, _)| *id == socket);
        known.map_or(self.config.listen.port(), |(_, port)| *port)
    }
}

/// The document.
#[must_use]
pub fn report(facts: &Facts<'_>) -> StatusReport {
    let tunnels = shown(facts).into_iter().map(|(peer, stats)| tunnel(facts, peer, stats));
    let warnings = facts.host.warnings.iter().chain(&facts.history.trouble).cloned().collect();
    let uptime_s = seconds(facts, facts.started);
    let daemon = status::daemon(Role::Proxy, uptime_s, warnings, facts.offload);
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus { history: Some(facts.history.clone()), ..daemon },
        tunnels: tunnels.collect(),
        drops: drops(facts),
        proxy: Some(ProxyStatus {
            listen: facts.config.listen,
            more_ports: facts.config.more_ports.clone(),
            tls: tls(facts),
            pools: pools(facts),
            uplinks: facts.host.uplinks.clone(),
            handshakes: handshakes(facts.stats),
            conntrack: facts.host.conntrack,
            turned_away: facts.host.turned_away,
            forwards: facts.forwards.clone(),
            registry: facts.registry.clone(),
        }),
        rules: Vec::new(),
        proxies: None,
    }
}

/// The clients that are shown: all, but of a fleet only those that were here. The others may be a million, so that they are not looked at.
fn shown<'a>(facts: &Facts<'a>) -> Vec<(&'a Peer, Option<&'a PeerStats>)> {
    let (peers, stats) = (facts.peers, facts.stats);
    if facts.registry.is_none() {
        let known: BTreeMap<_, _> = stats.peers.iter().map(|peer| (peer.key, peer)).collect();
        let all = peers.iter();
        return all.map(|peer| (peer, known.get(&peer.public_key).copied())).collect();
    }
    let place = |of: &'a PeerStats| Some((peers.place(&of.key)?, peers.get(&of.key)?, of));
    let mut here: Vec<_> = stats.peers.iter().filter_map(place).collect();
    here.sort_unstable_by_key(|(place, ..)| *place);
    here.into_iter().map(|(_, peer, stats)| (peer, Some(stats))).collect()
}

fn tunnel(facts: &Facts<'_>, peer: &Peer, stats: Option<&PeerStats>) -> TunnelStatus {
    let session = stats.and_then(|stats| stats.session.as_ref());
    let tunnel = session.map(|session| &session.tunnel);
    let (up, down) = stats.map(|stats| traffic(facts, stats)).unwrap_or_default();
    TunnelStatus {
        peer: peer.name.to_string(),
        peer_public_key: peer.public_key,
        state: peer.state(),
        reason: peer.reason().map(str::to_owned),
        trouble: None,
        state_age_s: seconds(facts, peer.since()),
        inner_v4: peer.lease().map(|lease| lease.v4),
        inner_v6: peer.lease().and_then(|lease| lease.v6),
        inner_mtu: tunnel.and_then(|tunnel| tunnel.inner_mtu),
        session: session.map(|session| {
            let ages = (seconds(facts, peer.session_since()), seconds(facts, peer.keys_since()));
            status::session(session.info.cipher.as_str(), ages, tunnel)
        }),
        policy: status::policy(&facts.config.tunnel, peer.scheduling()),
        up,
        down,
        queue: tunnel.map(status::queue).unwrap_or_default(),
        resequencer: tunnel.map(|tunnel| status::resequencer(&tunnel.reseq)).unwrap_or_default(),
        repairs: tunnel.and_then(status::repairs),
        redundancy: tunnel.and_then(status::redundancy),
        outages: stats.map(|stats| status::outages(facts.now, &stats.outages)).unwrap_or_default(),
        local_acks: tunnel.map(status::local_acks).unwrap_or_default(),
        links: session.map(|session| links(facts, peer, session)).unwrap_or_default(),
        flows: tunnel.and_then(|tunnel| tunnel.flows).map(scheduling_status::flow_table),
        spending: stats.and_then(|stats| spending(scheduling(facts.config, peer), stats)),
        drops: stats
            .map(|stats| {
                let counts = stats.drops.iter();
                status::drops(counts.map(|(reason, count)| (reason.as_str(), count)))
            })
            .unwrap_or_default(),
    }
}

/// A client's packets, up and down.
fn traffic(facts: &Facts<'_>, peer: &PeerStats) -> (PacketTraffic, PacketTraffic) {
    let (up, down) = (peer.delivered, peer.accepted);
    let tunnel = peer.session.as_ref().map(|session| &session.tunnel);
    let [down_bps, up_bps] = tunnel.map(|tunnel| tunnel.rates(facts.now)).unwrap_or_default();
    (status::packets(up_bps, up), status::packets(down_bps, down))
}

/// Every client, in brief.
#[must_use]
pub fn peers(
    now: Instant,
    config: &Config,
    peers: &PeerBook,
    stats: &EndpointStats,
    registry: &dyn Registry,
) -> Vec<PeerStatus> {
    let known: BTreeMap<_, _> = stats.peers.iter().map(|peer| (peer.key, peer)).collect();
    let shown = peers.iter().map(|peer| {
        let stats = known.get(&peer.public_key);
        let session = stats.and_then(|stats| stats.session.as_ref());
        let seen = session.map(|session| session.last_heard).or(peer.seen());
        let links = session.map(|session| session.tunnel.links.as_slice()).unwrap_or_default();
        let mut remotes: Vec<_> = links.iter().map(|link| link.path.remote).collect();
        remotes.sort_unstable();
        remotes.dedup();
        PeerStatus {
            name: peer.name.to_string(),
            public_key: peer.public_key,
            origin: config.origin(&peer.public_key),
            disabled: peer.disabled,
            state: Some(peer.state()),
            last_seen_s: seen.map(|seen| status::seconds(now, seen)),
            up_bytes: stats.map_or(0, |stats| stats.delivered.bytes),
            down_bytes: stats.map_or(0, |stats| stats.accepted.bytes),
            inner_v4: peer.lease().map(|lease| lease.v4),
            inner_v6: peer.lease().and_then(|lease| lease.v6),
            remotes,
            proxy: registry.proxy_of(&peer.public_key),
        }
    });
    shown.collect()
}

/// How the proxy sends to a client.
#[must_use]
pub fn scheduling<'a>(config: &'a Config, peer: &'a Peer) -> &'a Scheduling {
    peer.scheduling().unwrap_or(&config.tunnel.scheduling)
}

fn links(facts: &Facts<'_>, peer: &Peer, session: &SessionStats) -> Vec<LinkStatus> {
    let scheduling = scheduling(facts.config, peer);
    let links = session.tunnel.links.iter();
    links.map(|each| link(facts, session, each, scheduling)).collect()
}

fn link(
    facts: &Facts<'_>,
    session: &SessionStats,
    link: &LinkStats,
    scheduling: &Scheduling,
) -> LinkStatus {
    let (up, down) = (link.received, link.sent);
    let [down_bps, up_bps] = link.rates(facts.now);
    let over_tls = facts.tls.and_then(|sources| sources.of(link.path.remote));
    let (state, reason) = match link.state {
        CoreLinkState::Joining => (LinkState::Joining, Some("its path is not proven yet")),
        CoreLinkState::Up => (LinkState::Up, over_tls.map(|_| "its client comes over TLS")),
        CoreLinkState::Down => (LinkState::Down, Some("nothing is confirmed any more")),
    };
    // That of a link over TLS is a loopback address, which tells nobody anything.
    let local = link.path.local.filter(|_| over_tls.is_none());
    let facts = LinkFacts {
        name: link.name.to_string(),
        interface: None,
        state,
        reason: reason.map(str::to_owned),
        sign_in: None,
        state_age_s: seconds(facts, link.since),
        local: local.map(|local| SocketAddr::new(local, facts.port_of(link.path.socket))),
        remote: over_tls,
        over_tls: over_tls.is_some(),
        up: status::datagrams(up_bps, up),
        down: status::datagrams(down_bps, down),
        allowance: None,
        limits: Some(status::limits(facts.now, link)),
        told: told(scheduling, link),
        share: scheduling_status::share(scheduling.scheduler, link, &session.tunnel.links),
    };
    status::link(facts, Some(link))
}

/// Links over TLS.
fn tls(facts: &Facts<'_>) -> Option<TlsStatus> {
    let (config, counts) = (facts.config.tls.as_ref()?, facts.tls?.counts());
    Some(TlsStatus {
        listen: config.listen,
        clients: counts.clients,
        strangers: counts.strangers,
        refused: counts.refused,
        unproven: counts.unproven,
    })
}

/// What holds for what is sent on a link: what the client says of it, and what this proxy says beside.
fn told(scheduling: &Scheduling, link: &LinkStats) -> Option<LinkTerms> {
    let of_client = link.policy.terms(Direction::Down);
    let told = match scheduling.told(&link.name) {
        Some(own) => own.beside(&of_client),
        None => of_client,
    };
    Some(told).filter(|told| *told != LinkTerms::default())
}

/// What a client's links cost. Of one that left the proxy knows only the price that it says itself.
fn spending(scheduling: &Scheduling, stats: &PeerStats) -> Option<SpendingStatus> {
    let links = stats.session.as_ref().map_or(&[][..], |session| &session.tunnel.links);
    let price = |name: &str| {
        let link = links.iter().find(|link| link.name.as_str() == name);
        let told = link.and_then(|link| told(scheduling, link));
        told.or_else(|| scheduling.told(name).cloned())?.cost
    };
    let own = scheduling.terms.keys().filter(|name| pattern::is_exact(name)).cloned();
    scheduling_status::spending(own, price, &stats.ledger)
}

/// Drops that belong to no client: those of the endpoint itself, and the driver's.
fn drops(facts: &Facts<'_>) -> BTreeMap<String, u64> {
    let stats = facts.stats;
    let of_peers = |reason| -> u64 { stats.peers.iter().map(|peer| peer.drops.get(reason)).sum() };
    let own = DropReason::ALL
        .iter()
        .map(|&reason| (reason.as_str(), stats.drops.get(reason).saturating_sub(of_peers(reason))));
    let driver = facts.driver_drops.iter().map(|(name, count)| (*name, *count));
    status::drops(own.chain(driver))
}

fn pools(facts: &Facts<'_>) -> Vec<PoolStatus> {
    let (pools, (leased_v4, leased_v6)) = (&facts.config.pools, facts.leased);
    let v4 = PoolStatus {
        prefix: pools.v4().into(),
        gateway: IpAddr::V4(pools.gateway_v4()),
        leased: leased_v4 as u64,
        size: pools.size_v4().into(),
    };
    let v6 = pools.v6().zip(pools.gateway_v6()).map(|(prefix, gateway)| PoolStatus {
        prefix: prefix.into(),
        gateway: IpAddr::V6(gateway),
        leased: leased_v6 as u64,
        size: pools.size_v6(),
    });
    [v4].into_iter().chain(v6).collect()
}

/// First messages by what became of them.
fn handshakes(stats: &EndpointStats) -> HandshakeCounters {
    let drops = &stats.drops;
    let sum = |reasons: &[DropReason]| reasons.iter().map(|reason| drops.get(*reason)).sum();
    HandshakeCounters {
        completed: stats.peers.iter().map(|peer| peer.sessions).sum(),
        unauthentic: sum(&[
            DropReason::HandshakeMalformed,
            DropReason::WrongMac,
            DropReason::HandshakeNotAuthentic,
            DropReason::HandshakeBadContent,
        ]),
        unknown_key: sum(&[DropReason::UnknownClient, DropReason::UnknownInvitation]),
        replayed: sum(&[DropReason::FirstMessageStale, DropReason::FirstMessageRepeated]),
        other_version: sum(&[DropReason::OtherVersion, DropReason::HandshakeDowngrade]),
        rate_limited: drops.get(DropReason::HandshakeRateLimited),
        no_cookie: drops.get(DropReason::HandshakeNoCookie),
        wrong_cookie: drops.get(DropReason::HandshakeWrongCookie),
        with_cookie: stats.admission.with_cookie,
        address_limited: drops.get(DropReason::HandshakeAddressLimited),
    }
}

fn seconds(facts: &Facts<'_>, since: Instant) -> f64 {
    status::seconds(facts.now, since)
}
