//! The status document of a proxy: what the core counts, beside what the daemon knows of each client.
//!
//! Up is client to proxy: what the core *delivers* here, and what its links *receive*.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ropewalk_control::api::{
    ConntrackStatus, DaemonStatus, DatagramTraffic, HandshakeCounters, LinkState, LinkStatus,
    PacketTraffic, PolicyStatus, PoolStatus, ProxyStatus, QueueStatus, ResequencerStatus, Role,
    STATUS_VERSION, SessionStatus, StatusReport, TunnelStatus,
};
use ropewalk_control::config::TunnelConfig;
use ropewalk_proto::endpoint::{EndpointStats, PeerStats, SessionStats};
use ropewalk_proto::error::{DropCounters, DropReason};
use ropewalk_proto::reseq;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};

use crate::config::Config;
use crate::core;
use crate::leases::Leases;
use crate::peers::{Peer, PeerBook};
use crate::rates::{Bytes, Span};

/// What is known of the host, besides the core.
#[derive(Clone, Debug, Default)]
pub struct HostFacts {
    /// Interfaces to the Internet.
    pub uplinks: Vec<String>,
    /// The kernel's table of connections, where there is one.
    pub conntrack: Option<ConntrackStatus>,
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
    /// The clients.
    pub peers: &'a PeerBook,
    /// Their addresses.
    pub leases: &'a Leases,
    /// The core.
    pub stats: &'a EndpointStats,
    /// What rates are given for.
    pub span: Span<'a>,
    /// The host.
    pub host: &'a HostFacts,
    /// Drops that the core did not see, by reason.
    pub driver_drops: &'a BTreeMap<&'static str, u64>,
}

/// The document.
#[must_use]
pub fn report(facts: &Facts<'_>) -> StatusReport {
    let known: BTreeMap<_, _> = facts.stats.peers.iter().map(|peer| (peer.key, peer)).collect();
    let tunnels = facts.peers.iter().map(|peer| {
        let key = core::public_key(&peer.config.public_key);
        tunnel(facts, peer, known.get(&key).copied())
    });
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            role: Role::Proxy,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: seconds(facts, facts.started),
            warnings: facts.host.warnings.clone(),
        },
        tunnels: tunnels.collect(),
        drops: drops(facts),
        proxy: Some(ProxyStatus {
            listen: facts.config.listen,
            pools: pools(facts),
            uplinks: facts.host.uplinks.clone(),
            handshakes: handshakes(facts.stats),
            conntrack: facts.host.conntrack,
        }),
    }
}

fn tunnel(facts: &Facts<'_>, peer: &Peer, stats: Option<&PeerStats>) -> TunnelStatus {
    let session = stats.and_then(|stats| stats.session.as_ref());
    let tunnel = session.map(|session| &session.tunnel);
    let (up, down) = stats.map(|stats| traffic(facts, stats)).unwrap_or_default();
    TunnelStatus {
        peer: peer.config.name.clone(),
        peer_public_key: peer.config.public_key,
        state: peer.state,
        reason: peer.reason.clone(),
        state_age_s: seconds(facts, peer.since),
        inner_v4: peer.lease.map(|lease| lease.v4),
        inner_v6: peer.lease.and_then(|lease| lease.v6),
        inner_mtu: tunnel.and_then(|tunnel| tunnel.inner_mtu),
        session: session.map(|session| SessionStatus {
            cipher: session.info.cipher.as_str().to_owned(),
            age_s: seconds(facts, peer.session_since),
            key_age_s: seconds(facts, peer.keys_since),
            rekeys: session.tunnel.epoch.into(),
        }),
        policy: policy(&facts.config.tunnel),
        up,
        down,
        queue: tunnel.map_or_else(QueueStatus::default, |tunnel| QueueStatus {
            packets: tunnel.queued.0 as u64,
            bytes: tunnel.queued.1 as u64,
        }),
        resequencer: tunnel.map(|tunnel| resequencer(&tunnel.reseq)).unwrap_or_default(),
        links: stats
            .zip(session)
            .map(|(peer, session)| links(facts, peer, session))
            .unwrap_or_default(),
        drops: stats.map(|stats| by_name(&stats.drops)).unwrap_or_default(),
    }
}

/// A client's packets, up and down.
fn traffic(facts: &Facts<'_>, peer: &PeerStats) -> (PacketTraffic, PacketTraffic) {
    let (up, down) = (peer.delivered, peer.accepted);
    let rates = facts.span.of_peer(&peer.key, Bytes { up: up.bytes, down: down.bytes });
    (
        PacketTraffic { rate_bps: rates.0, packets: up.datagrams, bytes: up.bytes },
        PacketTraffic { rate_bps: rates.1, packets: down.datagrams, bytes: down.bytes },
    )
}

/// How this end sends, in the words of the config file.
fn policy(config: &TunnelConfig) -> PolicyStatus {
    PolicyStatus {
        scheduler: config.scheduler.to_string(),
        controller: config.controller.to_string(),
        when_closed: config.when_closed.to_string(),
    }
}

fn resequencer(stats: &reseq::Stats) -> ResequencerStatus {
    // Nothing waited yet: there is no wait to tell of.
    let wait = |micros: u64| (stats.resequenced > 0).then(|| millis(Duration::from_micros(micros)));
    ResequencerStatus {
        held: stats.held as u64,
        held_bytes: stats.held_bytes as u64,
        in_order: stats.in_order + stats.resequenced,
        late: stats.late,
        duplicate: stats.duplicates + stats.too_old,
        skipped_by_proof: stats.skipped_by_proof,
        skipped_by_deadline: stats.skipped_by_deadline,
        released_by_full_buffer: stats.skipped_by_full,
        wait_p50_ms: wait(stats.wait_p50_us),
        wait_p99_ms: wait(stats.wait_p99_us),
    }
}

fn links(facts: &Facts<'_>, peer: &PeerStats, session: &SessionStats) -> Vec<LinkStatus> {
    session.tunnel.links.iter().map(|stats| link(facts, peer, session, stats)).collect()
}

fn link(
    facts: &Facts<'_>,
    peer: &PeerStats,
    session: &SessionStats,
    link: &LinkStats,
) -> LinkStatus {
    let (up, down) = (link.received, link.sent);
    let bytes = Bytes { up: up.bytes, down: down.bytes };
    let rates = facts.span.of_link(&peer.key, session.info.index, link.id, bytes);
    let sender = &link.sender;
    let resolved = sender.confirmed + sender.lost;
    let (state, reason) = match link.state {
        CoreLinkState::Joining => (LinkState::Joining, Some("its path is not proven yet")),
        CoreLinkState::Up => (LinkState::Up, None),
        CoreLinkState::Down => (LinkState::Down, Some("nothing is confirmed any more")),
    };
    LinkStatus {
        id: Some(link.id.0),
        name: link.name.to_string(),
        interface: None,
        state,
        reason: reason.map(str::to_owned),
        state_age_s: seconds(facts, link.since),
        local: link.path.local.map(|local| SocketAddr::new(local, facts.config.listen.port())),
        remote: Some(link.path.remote),
        srtt_ms: sender.srtt.map(millis),
        rttvar_ms: sender.rttvar.map(millis),
        owd_variation_ms: link.delay_variation.map(millis),
        loss_recent: (resolved > 0).then_some(sender.loss_ratio),
        loss_total: (resolved > 0).then(|| share(sender.lost, resolved)),
        path_mtu: Some(link.path_mtu),
        cwnd: Some(sender.window),
        in_flight: sender.in_flight,
        keepalive_s: link.keepalive.map(|every| every.as_secs_f64()),
        up: DatagramTraffic { rate_bps: rates.0, datagrams: up.datagrams, bytes: up.bytes },
        down: DatagramTraffic { rate_bps: rates.1, datagrams: down.datagrams, bytes: down.bytes },
    }
}

/// Drops that belong to no client: those of the endpoint itself, and the driver's.
fn drops(facts: &Facts<'_>) -> BTreeMap<String, u64> {
    let stats = facts.stats;
    let of_peers = |reason| -> u64 { stats.peers.iter().map(|peer| peer.drops.get(reason)).sum() };
    let own = DropReason::ALL
        .iter()
        .map(|&reason| (reason.as_str(), stats.drops.get(reason).saturating_sub(of_peers(reason))));
    let driver = facts.driver_drops.iter().map(|(name, count)| (*name, *count));
    let all = own.chain(driver).filter(|(_, count)| *count > 0);
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn by_name(drops: &DropCounters) -> BTreeMap<String, u64> {
    drops.iter().map(|(reason, count)| (reason.as_str().to_owned(), count)).collect()
}

fn pools(facts: &Facts<'_>) -> Vec<PoolStatus> {
    let (pools, leases) = (&facts.config.pools, facts.leases);
    let v4 = PoolStatus {
        prefix: pools.v4().into(),
        gateway: IpAddr::V4(pools.gateway_v4()),
        leased: leases.len() as u64,
        size: pools.size_v4().into(),
    };
    let v6 = pools.v6().zip(pools.gateway_v6()).map(|(prefix, gateway)| PoolStatus {
        prefix: prefix.into(),
        gateway: IpAddr::V6(gateway),
        leased: leases.len_v6() as u64,
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
        unknown_key: drops.get(DropReason::UnknownClient),
        replayed: sum(&[DropReason::FirstMessageStale, DropReason::FirstMessageRepeated]),
        other_version: sum(&[DropReason::OtherVersion, DropReason::HandshakeDowngrade]),
        rate_limited: drops.get(DropReason::HandshakeRateLimited),
    }
}

fn seconds(facts: &Facts<'_>, since: Instant) -> f64 {
    facts.now.since(since).as_secs_f64()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
