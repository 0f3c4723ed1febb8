//! The status document of a client: what the core counts, beside what the daemon knows of each
//! interface.
//!
//! Up is client to proxy: what the core *accepts* from the TUN here, and what its links *send*. Every
//! interface of the config is shown, with the reason where it carries nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ipnet::IpNet;
use ropewalk_control::api::{
    DaemonStatus, DatagramTraffic, LinkState, LinkStatus, PacketTraffic, PolicyStatus, QueueStatus,
    ResequencerStatus, Role, STATUS_VERSION, SessionStatus, StatusReport, TunnelState,
    TunnelStatus,
};
use ropewalk_link_io::tun::TunCounters;
use ropewalk_proto::client::{ClientLinkStats, ClientState, ClientStats};
use ropewalk_proto::path::SocketId;
use ropewalk_proto::reseq;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};

use crate::config::Config;
use crate::links::{Link, Links, Obstacle};
use crate::rates::Span;

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
    /// The interfaces.
    pub(crate) links: &'a Links,
    /// The core.
    pub(crate) state: ClientState,
    /// Whether packets find their way into the tunnel.
    pub(crate) routed: bool,
    /// What it counted.
    pub(crate) stats: &'a ClientStats,
    /// What rates are given for.
    pub(crate) span: Span<'a>,
    /// Since when it has been in this state.
    pub(crate) since: Instant,
    /// Why the proxy's name has no address.
    pub(crate) unresolved: Option<&'a str>,
    /// What the user should know and do.
    pub(crate) warnings: Vec<String>,
    /// The TUN.
    pub(crate) tun: TunCounters,
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
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            role: Role::Client,
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: facts.seconds(facts.started),
            warnings,
        },
        tunnels: vec![tunnel(facts, local)],
        drops: BTreeMap::new(),
        proxy: None,
    }
}

/// Whether packets pass, in the document's words. Up means that they find their way into the tunnel too:
/// whoever waits for it may send at once.
pub(crate) fn tunnel_state(state: &ClientState, routed: bool) -> TunnelState {
    match state {
        ClientState::Connected { .. } if routed => TunnelState::Up,
        ClientState::Connected { .. } => TunnelState::Connecting,
        ClientState::Joining { .. } | ClientState::Asking { .. } | ClientState::Waiting { .. } => {
            TunnelState::Connecting
        }
        ClientState::Stalled { .. } => TunnelState::Stalled,
        ClientState::NoLinks => TunnelState::Idle,
        ClientState::Closed => TunnelState::Closed,
    }
}

fn tunnel(facts: &Facts<'_>, local: impl Fn(SocketId) -> Option<SocketAddr>) -> TunnelStatus {
    let (config, stats) = (facts.config, facts.stats);
    let addresses: Vec<String> = config.proxy.addresses.iter().map(ToString::to_string).collect();
    let tunnel = stats.tunnel.as_ref();
    let (up, down) = (stats.accepted, stats.delivered);
    let (up_bps, down_bps) = facts.span.of(None, (up.bytes, down.bytes));
    let own = |is_v4: bool| {
        let own = stats.session.iter().flat_map(|session| &session.own);
        own.copied().find(|net| net.addr().is_ipv4() == is_v4)
    };
    TunnelStatus {
        peer: addresses.join(", "),
        peer_public_key: config.proxy.public_key,
        state: tunnel_state(&facts.state, facts.routed),
        reason: reason(facts),
        state_age_s: facts.seconds(facts.since),
        inner_v4: own(true).and_then(|net| match net {
            IpNet::V4(net) => Some(net.addr()),
            IpNet::V6(_) => None,
        }),
        inner_v6: own(false).and_then(|net| match net {
            IpNet::V6(net) => Some(net.addr()),
            IpNet::V4(_) => None,
        }),
        inner_mtu: tunnel.and_then(|tunnel| tunnel.inner_mtu),
        session: session(facts),
        policy: PolicyStatus {
            scheduler: config.tunnel.scheduler.to_string(),
            controller: config.tunnel.controller.to_string(),
            when_closed: config.tunnel.when_closed.to_string(),
        },
        up: PacketTraffic { rate_bps: up_bps, packets: up.datagrams, bytes: up.bytes },
        down: PacketTraffic { rate_bps: down_bps, packets: down.datagrams, bytes: down.bytes },
        queue: tunnel.map_or_else(QueueStatus::default, |tunnel| QueueStatus {
            packets: tunnel.queued.0 as u64,
            bytes: tunnel.queued.1 as u64,
        }),
        resequencer: tunnel.map(|tunnel| resequencer(&tunnel.reseq)).unwrap_or_default(),
        links: links(facts, local),
        drops: drops(facts),
    }
}

/// Why packets do not pass.
fn reason(facts: &Facts<'_>) -> Option<String> {
    match &facts.state {
        ClientState::Connected { .. } if !facts.routed => {
            Some("the routes into the tunnel are not in place yet".to_owned())
        }
        ClientState::Connected { .. } | ClientState::Closed => None,
        ClientState::Joining { .. } => Some("the links are being opened".to_owned()),
        ClientState::Stalled { trouble, .. } => {
            Some(format!("no link answers; another session is sought: {trouble}"))
        }
        ClientState::Asking { trouble, .. } => Some(trouble.to_string()),
        ClientState::Waiting { until, trouble } => {
            let seconds = until.since(facts.now).as_secs_f64().ceil();
            Some(format!("{trouble}; asking again in {seconds} s"))
        }
        ClientState::NoLinks => Some(match facts.unresolved {
            Some(trouble) => trouble.to_owned(),
            None => "no link is usable".to_owned(),
        }),
    }
}

fn session(facts: &Facts<'_>) -> Option<SessionStatus> {
    let session = facts.stats.session.as_ref()?;
    let since = match facts.state {
        ClientState::Connected { since } | ClientState::Joining { since } => since,
        // The core tells only since when it is stalled; the keys are at most as old as the session.
        _ => facts.keys_since,
    };
    Some(SessionStatus {
        cipher: session.cipher.as_str().to_owned(),
        age_s: facts.seconds(since),
        key_age_s: facts.seconds(facts.keys_since),
        rekeys: facts.stats.tunnel.as_ref().map_or(0, |tunnel| tunnel.epoch.into()),
    })
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

fn links(facts: &Facts<'_>, local: impl Fn(SocketId) -> Option<SocketAddr>) -> Vec<LinkStatus> {
    let mut links: Vec<LinkStatus> = facts
        .links
        .iter()
        .map(|link| {
            let stats = link.key().and_then(|key| {
                let mut stats = facts.stats.links.iter();
                stats.find(|stats| stats.key == key)
            });
            status_of(facts, link, stats, &local)
        })
        .collect();
    // Those without an id keep their place behind the others.
    links.sort_by_key(|link| link.id.map_or(u16::MAX, u16::from));
    links
}

fn status_of(
    facts: &Facts<'_>,
    link: &Link,
    stats: Option<&ClientLinkStats>,
    local: impl Fn(SocketId) -> Option<SocketAddr>,
) -> LinkStatus {
    let core = stats.and_then(|stats| stats.link.as_ref());
    let (state, reason) = state_of(link, core);
    let (sent, received) = stats.map(|stats| (stats.sent, stats.received)).unwrap_or_default();
    let (up_bps, down_bps) = facts.span.of(link.key(), (sent.bytes, received.bytes));
    let sender = core.map(|core| &core.sender);
    let resolved = sender.map_or(0, |sender| sender.confirmed + sender.lost);
    LinkStatus {
        id: core.map(|core| core.id.0),
        name: link.decision.name.clone(),
        interface: Some(link.decision.interface.clone()),
        state,
        reason,
        state_age_s: facts.seconds(core.map_or(link.since, |core| core.since.max(link.since))),
        local: core.map(|core| core.path.socket).or_else(|| link.socket()).and_then(local),
        remote: core.map(|core| core.path.remote),
        srtt_ms: sender.and_then(|sender| sender.srtt).map(millis),
        rttvar_ms: sender.and_then(|sender| sender.rttvar).map(millis),
        owd_variation_ms: core.and_then(|core| core.delay_variation).map(millis),
        loss_recent: sender.filter(|_| resolved > 0).map(|sender| sender.loss_ratio),
        loss_total: sender.filter(|_| resolved > 0).map(|sender| share(sender.lost, resolved)),
        path_mtu: core.map(|core| core.path_mtu),
        cwnd: sender.map(|sender| sender.window),
        in_flight: sender.map_or(0, |sender| sender.in_flight),
        keepalive_s: core.and_then(|core| core.keepalive).map(|every| every.as_secs_f64()),
        up: DatagramTraffic { rate_bps: up_bps, datagrams: sent.datagrams, bytes: sent.bytes },
        down: DatagramTraffic {
            rate_bps: down_bps,
            datagrams: received.datagrams,
            bytes: received.bytes,
        },
    }
}

/// The state of a link and its reason: config and host first, then the socket, then the core.
fn state_of(link: &Link, core: Option<&LinkStats>) -> (LinkState, Option<String>) {
    if let Some(obstacle) = link.obstacle() {
        let disabled = obstacle == Obstacle::Disabled;
        let state = if disabled { LinkState::Disabled } else { LinkState::Down };
        return (state, Some(obstacle.to_string()));
    }
    if link.key().is_none() {
        return (LinkState::Down, link.trouble.clone());
    }
    let refusal = || link.refusal().map(str::to_owned);
    let no_answer = || Some(refusal().unwrap_or_else(|| "no answer from the proxy".to_owned()));
    match core.map(|core| core.state) {
        // One family of two may have no socket; that is worth a word even then.
        Some(CoreLinkState::Up) => (LinkState::Up, link.trouble.clone()),
        Some(CoreLinkState::Joining) | None => (LinkState::Joining, no_answer()),
        Some(CoreLinkState::Down) => (LinkState::Down, no_answer()),
    }
}

fn drops(facts: &Facts<'_>) -> BTreeMap<String, u64> {
    let core = facts.stats.drops.iter().map(|(reason, count)| (reason.as_str(), count));
    let sent = facts.send_errors.iter().map(|(reason, count)| (*reason, *count));
    let tun = ("tun_refused", facts.tun.dropped_out);
    let all = core.chain(sent).chain([tun]).filter(|(_, count)| *count > 0);
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}

impl Facts<'_> {
    fn seconds(&self, since: Instant) -> f64 {
        self.now.since(since).as_secs_f64()
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
