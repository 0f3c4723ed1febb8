//! The status document of a client: what the core counts, beside what the daemon knows of each
//! interface.
//!
//! Up is client to proxy: what the core *accepts* from the TUN here, and what its links *send*. Every
//! interface of the config is shown, with the reason where it carries nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use ropewalk_control::api::{
    AllowanceStatus, DaemonStatus, HistoryStatus, KillSwitch, LinkState, LinkStatus, OffloadStatus,
    Role, STATUS_VERSION, SessionStatus, SpendingStatus, StatusReport, TunnelState, TunnelStatus,
    TunnelTrouble,
};
use ropewalk_daemon::scheduling_status;
use ropewalk_daemon::status::{self, LinkFacts};
use ropewalk_link_io::tun::TunCounters;
use ropewalk_proto::client::{ClientState, ClientStats, Trouble};
use ropewalk_proto::path::SocketId;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::{LinkState as CoreLinkState, LinkStats};
use ropewalk_settings::{Direction, LinkTerms, PublicKey, TlsUse};

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
    let tunnel = stats.tunnel.as_ref();
    let (up, down) = (stats.accepted, stats.delivered);
    let [up_bps, down_bps] = tunnel.map(|tunnel| tunnel.rates(facts.now)).unwrap_or_default();
    let own = |is_v4: bool| {
        let own = stats.session.iter().flat_map(|session| &session.own);
        own.copied().find(|net| net.addr().is_ipv4() == is_v4)
    };
    TunnelStatus {
        peer: facts.peer.0.clone(),
        peer_public_key: facts.peer.1,
        state: tunnel_state(&facts.state, facts.routed),
        reason: reason(facts),
        trouble: trouble(&facts.state),
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
        policy: status::policy(&config.tunnel, None),
        up: status::packets(up_bps, up),
        down: status::packets(down_bps, down),
        queue: tunnel.map(status::queue).unwrap_or_default(),
        resequencer: tunnel.map(|tunnel| status::resequencer(&tunnel.reseq)).unwrap_or_default(),
        repairs: tunnel.and_then(status::repairs),
        redundancy: tunnel.and_then(status::redundancy),
        outages: status::outages(facts.now, &stats.outages),
        local_acks: tunnel.map(status::local_acks).unwrap_or_default(),
        links: links(facts, local),
        flows: tunnel.and_then(|tunnel| tunnel.flows).map(scheduling_status::flow_table),
        spending: spending(facts),
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
        ClientState::Stalled { since, trouble } => Some(stalled(facts.seconds(*since), trouble)),
        ClientState::Asking { since, trouble } => Some(asking(facts.seconds(*since), trouble)),
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

/// Why there is no session, for programs.
fn trouble(state: &ClientState) -> Option<TunnelTrouble> {
    let (ClientState::Stalled { trouble, .. }
    | ClientState::Asking { trouble, .. }
    | ClientState::Waiting { trouble, .. }) = state
    else {
        return None;
    };
    Some(match trouble {
        Trouble::NoAnswer => TunnelTrouble::NoAnswer,
        Trouble::Refused(_) => TunnelTrouble::Refused,
        Trouble::OtherVersions(_) => TunnelTrouble::OtherVersions,
        Trouble::NotAuthentic => TunnelTrouble::NotAuthentic,
        Trouble::Closed(_) => TunnelTrouble::Closed,
    })
}

/// The proxy has been asked for a session for so many seconds.
fn asking(seconds: f64, trouble: &Trouble) -> String {
    match trouble {
        Trouble::NoAnswer if seconds < PATIENCE => {
            "the proxy is being asked for a session".to_owned()
        }
        trouble => trouble.to_string(),
    }
}

/// No link of the session has answered for so many seconds.
fn stalled(seconds: f64, trouble: &Trouble) -> String {
    const STALLED: &str = "no link answers; another session is sought";
    match trouble {
        Trouble::NoAnswer if seconds < PATIENCE => STALLED.to_owned(),
        trouble => format!("{STALLED}: {trouble}"),
    }
}

fn session(facts: &Facts<'_>) -> Option<SessionStatus> {
    let session = facts.stats.session.as_ref()?;
    let since = match facts.state {
        ClientState::Connected { since } | ClientState::Joining { since } => since,
        // The core tells only since when it is stalled; the keys are at most as old as the session.
        _ => facts.keys_since,
    };
    let ages = (facts.seconds(since), facts.seconds(facts.keys_since));
    Some(status::session(session.cipher.as_str(), ages, facts.stats.tunnel.as_ref()))
}

fn links(facts: &Facts<'_>, local: impl Fn(SocketId) -> Option<SocketAddr>) -> Vec<LinkStatus> {
    let mut links: Vec<LinkStatus> =
        facts.links.iter().map(|link| status_of(facts, link, &local)).collect();
    // Those without an id keep their place behind the others.
    links.sort_by_key(|link| link.id.map_or(u16::MAX, u16::from));
    links
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

/// Why a link goes over TLS.
fn way_of(setting: TlsUse) -> &'static str {
    match setting {
        TlsUse::Always => "over TLS, as the config says (tls = \"always\")",
        TlsUse::Auto | TlsUse::Never => "over TLS, because UDP is not answered here",
    }
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

/// What the proxy's own word makes of links that wait for a session: they were heard.
pub(crate) fn heard(state: &ClientState) -> Option<&'static str> {
    let (ClientState::Stalled { trouble, .. }
    | ClientState::Asking { trouble, .. }
    | ClientState::Waiting { trouble, .. }) = state
    else {
        return None;
    };
    match trouble {
        Trouble::NoAnswer => None,
        Trouble::Refused(_) => Some("the proxy answers, and refuses this client"),
        Trouble::OtherVersions(_) => Some("the proxy answers, in another version of the protocol"),
        Trouble::NotAuthentic => Some("answers come, and do not decrypt"),
        Trouble::Closed(_) => Some("the proxy ended the session"),
    }
}

/// Seconds without an answer after which a person is told what may be wrong.
const PATIENCE: f64 = 5.0;

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
            (LinkState::Up, Some(way_of(facts.config.proxy.tls).to_owned()))
        }
        // One family of two may have no socket; that is worth a word even then.
        Some(CoreLinkState::Up) => (LinkState::Up, link.trouble.clone()),
        Some(CoreLinkState::Joining) | None => (LinkState::Joining, no_answer()),
        Some(CoreLinkState::Down) => (LinkState::Down, no_answer()),
    }
}

fn drops(facts: &Facts<'_>) -> BTreeMap<String, u64> {
    let core = facts.stats.drops.iter().map(|(reason, count)| (reason.as_str(), count));
    let sent = facts.send_errors.iter().map(|(reason, count)| (*reason, *count));
    status::drops(core.chain(sent).chain(facts.tun.drops()))
}

impl Facts<'_> {
    fn seconds(&self, since: Instant) -> f64 {
        status::seconds(self.now, since)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::wire::frame::CloseReason;

    use super::*;

    #[test]
    fn nothing_is_said_to_be_wrong_before_a_slow_proxy_would_have_answered() {
        for (seconds, trouble, said) in [
            (0.0, Trouble::NoAnswer, "the proxy is being asked"),
            (4.9, Trouble::NoAnswer, "the proxy is being asked"),
            (5.0, Trouble::NoAnswer, "no answer: the proxy cannot be reached"),
            (0.0, Trouble::Closed(CloseReason::Shutdown), "the proxy stopped"),
        ] {
            let text = asking(seconds, &trouble);
            assert!(text.contains(said), "{seconds} s, {trouble:?}: {text}");
        }
        assert!(!stalled(4.9, &Trouble::NoAnswer).contains("no answer"));
        assert!(stalled(5.0, &Trouble::NoAnswer).contains("cannot be reached"));
        assert!(stalled(0.0, &Trouble::Closed(CloseReason::Shutdown)).contains("stopped"));
    }

    #[test]
    fn programs_are_told_in_a_word_why_there_is_no_session() {
        let at = Instant::from_millis(7);
        let table = [
            (Trouble::NoAnswer, TunnelTrouble::NoAnswer),
            (Trouble::OtherVersions([2, 3].into_iter().collect()), TunnelTrouble::OtherVersions),
            (Trouble::NotAuthentic, TunnelTrouble::NotAuthentic),
            (Trouble::Closed(CloseReason::Removed), TunnelTrouble::Closed),
        ];
        for (known, told) in table {
            for state in [
                ClientState::Stalled { since: at, trouble: known.clone() },
                ClientState::Asking { since: at, trouble: known.clone() },
                ClientState::Waiting { until: at, trouble: known.clone() },
            ] {
                assert_eq!(trouble(&state), Some(told), "{state:?}");
            }
        }
        assert_eq!(trouble(&ClientState::Connected { since: at }), None);
        assert_eq!(trouble(&ClientState::NoLinks), None);
    }
}
