//! One client. Of many few are ever here: what is to be said only of one that was stands apart ([`Life`]).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use ropewalk_control::api::TunnelState;
use ropewalk_proto::endpoint::{IDLE_LIFETIME, PeerConfig as CorePeer};
use ropewalk_proto::event::{DownReason, EndReason, Event};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_settings::{PresharedKey, PublicKey, Scheduling};

use super::RouteChange;
use crate::config::{Config, PeerConfig};
use crate::core::{self, Inside};
use crate::leases::{Lease, LeaseError, LeaseTable};

/// Why a disabled client has no session.
const DISABLED: &str = "disabled: `ropewalk peer enable NAME` lets it in again";

/// Why any other has none before its first one.
const NOT_SEEN: &str = "not seen since the proxy's start";

/// One client.
#[derive(Debug)]
pub struct Peer {
    /// How it is called. Whoever keeps this client, too, shares the text.
    pub name: Arc<str>,
    /// Its public key.
    pub public_key: PublicKey,
    rare: Option<Box<Rare>>,
    /// Since when it is known.
    since: Instant,
    life: Option<Box<Life>>,
    /// Its addresses, IPv6 included whether or not that is handed out.
    leased: Option<Lease>,
    /// Whether IPv6 is handed out.
    ipv6: bool,
    /// It gets no session, and is told so.
    pub disabled: bool,
}

/// What few clients have, and only the proxy's config says of them.
#[derive(Debug)]
struct Rare {
    preshared_key: Option<Box<PresharedKey>>,
    /// The IPv6 network behind it.
    prefix_v6: Option<Ipv6Net>,
}

impl Rare {
    /// What of that this client has; `None`: nothing.
    fn of(config: &PeerConfig) -> Option<Box<Self>> {
        let PeerConfig { preshared_key, prefix_v6, .. } = config;
        if preshared_key.is_none() && prefix_v6.is_none() {
            return None;
        }
        Some(Box::new(Self { preshared_key: preshared_key.clone(), prefix_v6: *prefix_v6 }))
    }
}

/// What is known besides of a client that was here, or of which there is something else to say.
#[derive(Debug)]
struct Life {
    state: TunnelState,
    since: Instant,
    reason: Option<Cow<'static, str>>,
    keys_since: Instant,
    session_since: Instant,
    seen: Option<Instant>,
    scheduling: Option<Box<Scheduling>>,
    up: BTreeSet<LinkId>,
}

impl Life {
    /// Of a client that is known since then, and has no session for this reason.
    fn new(since: Instant, reason: Option<Cow<'static, str>>) -> Self {
        Self {
            state: TunnelState::Idle,
            since,
            reason,
            keys_since: since,
            session_since: since,
            seen: None,
            scheduling: None,
            up: BTreeSet::new(),
        }
    }

    fn turn(&mut self, now: Instant, state: TunnelState, reason: Option<Cow<'static, str>>) {
        if self.state != state {
            (self.state, self.since) = (state, now);
        }
        self.reason = reason;
    }
}

impl Peer {
    pub(super) fn new(now: Instant, config: &PeerConfig, leases: &LeaseTable, ipv6: bool) -> Self {
        let refusal = leases.refusal(&config.public_key);
        let own = || Some(Lease { v4: config.address_v4?, v6: config.address_v6 });
        let leased = leases.get(&config.public_key);
        let refused =
            |error: &LeaseError| Box::new(Life::new(now, Some(format!("refused: {error}").into())));
        Self {
            name: Arc::clone(&config.name),
            public_key: config.public_key,
            rare: Rare::of(config),
            since: now,
            // Those of a registry that several proxies share stand there alone.
            leased: leased.or_else(|| own().filter(|_| refusal.is_none())),
            life: refusal.map(refused),
            ipv6,
            disabled: config.disabled,
        }
    }

    fn life(&mut self) -> &mut Life {
        let (since, reason) = (self.since, usual_reason(self.disabled));
        self.life.get_or_insert_with(|| Box::new(Life::new(since, Some(reason.into()))))
    }

    /// Its addresses; IPv6 only while it is handed out.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        let Lease { v4, v6 } = self.leased?;
        Some(Lease { v4, v6: v6.filter(|_| self.ipv6) })
    }

    /// Its inner addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let lease = self.lease();
        let v6 = lease.and_then(|lease| lease.v6).map(IpAddr::V6);
        lease.map(|lease| IpAddr::V4(lease.v4)).into_iter().chain(v6)
    }

    /// The IPv6 network behind it.
    fn behind(&self) -> Option<Ipv6Net> {
        self.rare.as_ref()?.prefix_v6
    }

    /// All that is routed to it: its inner addresses, and where one of them is of IPv6, the network behind it.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> + use<> {
        let has_v6 = self.lease().is_some_and(|lease| lease.v6.is_some());
        let behind = self.behind().filter(|_| has_v6).map(IpNet::V6);
        self.addresses().map(IpNet::from).chain(behind)
    }

    /// IPv6 is handed out from now on. Returns what is routed to it besides.
    pub(super) fn hand_out_ipv6(&mut self) -> impl Iterator<Item = IpNet> + use<> {
        self.ipv6 = true;
        self.networks().filter(|net| net.addr().is_ipv6())
    }

    /// Whether packets pass.
    #[must_use]
    pub fn state(&self) -> TunnelState {
        self.life.as_ref().map_or(TunnelState::Idle, |life| life.state)
    }

    /// Whether it has a session.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state(), TunnelState::Up | TunnelState::Stalled)
    }

    /// Since when.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.life.as_ref().map_or(self.since, |life| life.since)
    }

    /// Why, where there is something to say.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.life {
            Some(life) => life.reason.as_deref(),
            None => Some(usual_reason(self.disabled)),
        }
    }

    /// Since when the keys in use are.
    #[must_use]
    pub fn keys_since(&self) -> Instant {
        self.life.as_ref().map_or(self.since, |life| life.keys_since)
    }

    /// Since when the session is.
    #[must_use]
    pub fn session_since(&self) -> Instant {
        self.life.as_ref().map_or(self.since, |life| life.session_since)
    }

    /// When it was last heard of before the present session; none since the proxy's start.
    #[must_use]
    pub fn seen(&self) -> Option<Instant> {
        self.life.as_ref()?.seen
    }

    /// How the proxy sends to it, if otherwise than to all.
    #[must_use]
    pub fn scheduling(&self) -> Option<&Scheduling> {
        self.life.as_ref()?.scheduling.as_deref()
    }

    /// The proxy sends to it so.
    pub fn set_scheduling(&mut self, scheduling: Scheduling) {
        self.life().scheduling = Some(Box::new(scheduling));
    }

    /// The proxy sends to it as to all.
    pub(super) fn schedule_alike(&mut self) {
        if let Some(life) = &mut self.life {
            life.scheduling = None;
        }
    }

    /// It gets no session from now on, or is let in again.
    pub(super) fn enable(&mut self, enabled: bool) {
        self.disabled = !enabled;
        self.life().reason = (!enabled).then_some(DISABLED.into());
    }

    /// What the endpoint is told of it.
    #[must_use]
    pub fn for_core(&self, config: &Config, inside: &Inside) -> CorePeer {
        let preshared_key = self.rare.as_ref().and_then(|rare| rare.preshared_key.as_deref());
        let who = (&self.name, preshared_key, !self.disabled);
        core::peer(who, self.lease(), self.behind(), &config.pools, inside)
    }

    /// Whether the registry says the same of both.
    pub(super) fn is_as(&self, fresh: &Self) -> bool {
        (&self.name, self.disabled) == (&fresh.name, fresh.disabled) && self.leased == fresh.leased
    }

    /// The file or the registry says this of it from now on.
    pub(super) fn update(&mut self, fresh: Self) {
        if self.disabled != fresh.disabled {
            let reason = fresh.reason().filter(|_| fresh.disabled);
            self.life().reason = reason.map(|reason| reason.to_owned().into());
        }
        *self = Self { since: self.since, life: self.life.take(), ..fresh };
    }

    pub(super) fn note(&mut self, now: Instant, event: &Event) -> RouteChange {
        let disabled = self.disabled;
        let life = self.life();
        match event {
            Event::SessionEstablished(_) => {
                (life.keys_since, life.session_since) = (now, now);
                life.up.clear();
                life.turn(now, TunnelState::Stalled, Some("no link has joined yet".into()));
            }
            Event::LinkUp(link) => {
                life.up.insert(*link);
                life.turn(now, TunnelState::Up, None);
            }
            Event::LinkDown(link, reason) => {
                life.up.remove(link);
                if life.up.is_empty() {
                    let why = format!("the last link is down: {}", down_reason(*reason));
                    life.turn(now, TunnelState::Stalled, Some(why.into()));
                }
            }
            Event::InnerMtu(mtu) => return RouteChange::Route(*mtu),
            Event::Rekeyed(_) => life.keys_since = now,
            // The newer session is told of next; the routes stay.
            Event::SessionEnded(EndReason::Replaced) => {}
            Event::SessionEnded(reason) => {
                life.up.clear();
                life.seen = Some(match reason {
                    EndReason::Idle => {
                        let ago = u64::try_from(IDLE_LIFETIME.as_nanos()).unwrap_or(u64::MAX);
                        Instant::from_nanos(now.as_nanos().saturating_sub(ago))
                    }
                    _ => now,
                });
                let state = match reason {
                    EndReason::Idle => TunnelState::Idle,
                    _ => TunnelState::Closed,
                };
                let why = if disabled { DISABLED } else { end_reason(*reason) };
                life.turn(now, state, Some(why.into()));
                return RouteChange::Remove;
            }
            Event::PathMoved(..) | Event::PacketsMoved(_) | Event::Moving | Event::SpeedTest => {}
            // These are a client's, or end in a tunnel's owner.
            Event::Closed(_)
            | Event::Refused(_)
            | Event::Displaced(_)
            | Event::OtherVersions(_)
            | Event::Fleet(_)
            | Event::SpeedWish => {}
        }
        RouteChange::Keep
    }
}

/// Why a client that was never here has no session.
fn usual_reason(disabled: bool) -> &'static str {
    if disabled { DISABLED } else { NOT_SEEN }
}

/// Why a link carries nothing, for people.
#[must_use]
pub fn down_reason(reason: DownReason) -> &'static str {
    match reason {
        DownReason::NoAnswer => "nothing is confirmed any more",
        DownReason::Left => "the client took it out",
        DownReason::Removed => "taken out",
    }
}

/// Why a session is over, for people.
#[must_use]
pub fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed(CloseReason::Shutdown) => "the client was stopped",
        EndReason::Closed(CloseReason::Replaced) => "the client began another session",
        EndReason::Closed(CloseReason::Removed | CloseReason::Other(_)) => "the client closed it",
        EndReason::Replaced => "replaced by a newer session of the same key",
        EndReason::Elsewhere => "replaced by a newer session with another proxy of the fleet",
        EndReason::Idle => "nothing was heard of the client for half an hour",
        EndReason::Withdrawn => "the peer was changed",
        EndReason::Removed => "the peer was removed",
        EndReason::Stopped => "the proxy stops",
    }
}
