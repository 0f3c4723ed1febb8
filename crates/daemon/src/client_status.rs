//! The tunnel of a client in the status document, and how it stands with its session, in words.
//!
//! Up is client to proxy: what the core *accepts* from the TUN here, and what its links *send*.

use std::collections::BTreeMap;

use ipnet::IpNet;
use ropewalk_control::api::{
    LinkStatus, SessionStatus, SpendingStatus, TunnelState, TunnelStatus, TunnelTrouble,
};
use ropewalk_link_io::tun::TunCounters;
use ropewalk_proto::client::{ClientState, ClientStats, Trouble};
use ropewalk_proto::event::EndReason;
use ropewalk_proto::time::Instant;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_settings::{PublicKey, TlsUse, TunnelSettings};

use crate::{scheduling_status, status};

/// Seconds without an answer after which a person is told what may be wrong.
pub const PATIENCE: f64 = 5.0;

/// What the document is made of, beside the links.
#[derive(Clone, Copy, Debug)]
pub struct ClientFacts<'a> {
    /// The present.
    pub now: Instant,
    /// How this end sends and receives.
    pub settings: &'a TunnelSettings,
    /// The proxy in use, as the document names it.
    pub peer: &'a str,
    /// Its key.
    pub peer_public_key: PublicKey,
    /// The core.
    pub state: &'a ClientState,
    /// Why packets do not find their way into the tunnel; `None`: they do.
    pub unrouted: Option<&'a str>,
    /// Why the proxy's name has no address.
    pub unresolved: Option<&'a str>,
    /// Since when it has been in this state.
    pub since: Instant,
    /// When the keys in use were agreed.
    pub keys_since: Instant,
    /// What the core counted.
    pub stats: &'a ClientStats,
    /// The TUN.
    pub tun: TunCounters,
    /// Datagrams that the kernel refused, by reason.
    pub send_errors: &'a BTreeMap<&'static str, u64>,
}

/// The tunnel, with these links.
#[must_use]
pub fn tunnel(
    facts: &ClientFacts<'_>,
    mut links: Vec<LinkStatus>,
    spending: Option<SpendingStatus>,
) -> TunnelStatus {
    let stats = facts.stats;
    let tunnel = stats.tunnel.as_ref();
    let (up, down) = (stats.accepted, stats.delivered);
    let [up_bps, down_bps] = tunnel.map(|tunnel| tunnel.rates(facts.now)).unwrap_or_default();
    let own = |is_v4: bool| {
        let own = stats.session.iter().flat_map(|session| &session.own);
        own.copied().find(|net| net.addr().is_ipv4() == is_v4)
    };
    // Those without an id keep their place behind the others.
    links.sort_by_key(|link| link.id.map_or(u16::MAX, u16::from));
    TunnelStatus {
        peer: facts.peer.to_owned(),
        peer_public_key: facts.peer_public_key,
        state: tunnel_state(facts.state, facts.unrouted.is_none()),
        reason: reason(facts),
        trouble: trouble(facts.state),
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
        policy: status::policy(facts.settings, None),
        up: status::packets(up_bps, up),
        down: status::packets(down_bps, down),
        queue: tunnel.map(status::queue).unwrap_or_default(),
        resequencer: tunnel.map(|tunnel| status::resequencer(&tunnel.reseq)).unwrap_or_default(),
        repairs: tunnel.and_then(status::repairs),
        redundancy: tunnel.and_then(status::redundancy),
        outages: status::outages(facts.now, &stats.outages),
        local_acks: tunnel.map(status::local_acks).unwrap_or_default(),
        links,
        flows: tunnel.and_then(|tunnel| tunnel.flows).map(scheduling_status::flow_table),
        spending,
        drops: drops(facts),
    }
}

/// Whether packets pass, in the document's words. Up means that they find their way into the tunnel too:
/// whoever waits for it may send at once.
#[must_use]
pub const fn tunnel_state(state: &ClientState, routed: bool) -> TunnelState {
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

/// Why packets do not pass.
#[must_use]
pub fn reason(facts: &ClientFacts<'_>) -> Option<String> {
    match facts.state {
        ClientState::Connected { .. } => facts.unrouted.map(str::to_owned),
        ClientState::Closed => None,
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
const fn trouble(state: &ClientState) -> Option<TunnelTrouble> {
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

fn session(facts: &ClientFacts<'_>) -> Option<SessionStatus> {
    let session = facts.stats.session.as_ref()?;
    let since = match facts.state {
        ClientState::Connected { since } | ClientState::Joining { since } => *since,
        // The core tells only since when it is stalled; the keys are at most as old as the session.
        _ => facts.keys_since,
    };
    let ages = (facts.seconds(since), facts.seconds(facts.keys_since));
    Some(status::session(session.cipher.as_str(), ages, facts.stats.tunnel.as_ref()))
}

fn drops(facts: &ClientFacts<'_>) -> BTreeMap<String, u64> {
    let core = facts.stats.drops.iter().map(|(reason, count)| (reason.as_str(), count));
    let sent = facts.send_errors.iter().map(|(reason, count)| (*reason, *count));
    status::drops(core.chain(sent).chain(facts.tun.drops()))
}

/// Until when the proxy has this client wait for a session. What it said before, while it is asked again or a session
/// stalls, says nothing of the network the client is in now. Neither does what an observer can forge.
#[must_use]
pub fn told_to_wait(state: &ClientState) -> Option<Instant> {
    let ClientState::Waiting { until, trouble: Trouble::Refused(_) | Trouble::Closed(_) } = state
    else {
        return None;
    };
    Some(*until)
}

/// What the proxy's own word makes of links that wait for a session: they were heard.
#[must_use]
pub const fn heard(state: &ClientState) -> Option<&'static str> {
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

/// Why a link goes over TLS.
#[must_use]
pub const fn why_over_tls(setting: TlsUse) -> &'static str {
    match setting {
        TlsUse::Always => "over TLS, as the config says (tls = \"always\")",
        TlsUse::Auto | TlsUse::Never => "over TLS, because UDP is not answered here",
    }
}

/// Why a session is over.
#[must_use]
pub const fn end_in_words(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed(CloseReason::Shutdown) => "the proxy stopped",
        EndReason::Closed(CloseReason::Replaced) => "another machine connected with the same key",
        EndReason::Closed(CloseReason::Removed) => {
            "the proxy's owner took this client's key out: to come back, join with a new invitation"
        }
        EndReason::Closed(CloseReason::Other(_)) => "the proxy ended it",
        EndReason::Replaced | EndReason::Elsewhere => "a newer one took its place",
        EndReason::Idle => "nothing came for too long",
        EndReason::Withdrawn | EndReason::Removed => "it was withdrawn",
        EndReason::Stopped => "this end stops",
    }
}

impl ClientFacts<'_> {
    fn seconds(&self, since: Instant) -> f64 {
        status::seconds(self.now, since)
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::wire::hello::answer::Refusal;

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

    #[test]
    fn only_a_pause_that_the_proxy_asked_for_is_waited_for() {
        let (since, until) = (Instant::from_millis(1), Instant::from_millis(2));
        let closed = || Trouble::Closed(CloseReason::Shutdown);
        let refused = || Trouble::Refused(Refusal::Full);
        let forged = || Trouble::OtherVersions([2].into_iter().collect());
        let table = [
            (ClientState::Waiting { until, trouble: closed() }, Some(until)),
            (ClientState::Waiting { until, trouble: refused() }, Some(until)),
            (ClientState::Waiting { until, trouble: forged() }, None),
            (ClientState::Waiting { until, trouble: Trouble::NotAuthentic }, None),
            (ClientState::Asking { since, trouble: closed() }, None),
            (ClientState::Asking { since, trouble: refused() }, None),
            (ClientState::Asking { since, trouble: forged() }, None),
            (ClientState::Stalled { since, trouble: refused() }, None),
            (ClientState::Connected { since }, None),
            (ClientState::NoLinks, None),
        ];
        for (state, expected) in table {
            assert_eq!(told_to_wait(&state), expected, "{state:?}");
        }
    }
}
