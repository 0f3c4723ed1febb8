//! What is known of one client. A proxy may have a million, of which few are ever here: what is the same for most of them is kept once
//! ([`Terms`]), and what only a client has that asked for a session stands apart ([`Life`]).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrayvec::ArrayVec;
use ipnet::{Ipv4Net, Ipv6Net};

use ropewalk_settings::{PresharedKey, Scheduling};

use super::Totals;
use super::peers::PeerConfig;
use super::speed::SpeedAccount;
use crate::crypto::freshness::{FreshnessRecord, Timestamp};
use crate::time::{Duration, Instant};
use crate::tunnel::{InnerFilter, SpeedUse};
use crate::units::SessionIndex;

/// Pending sessions of one client. A client has two questions open at most, and may take either answer.
const MAX_PENDING: usize = 2;

/// Sessions of one client: those that are pending, and the one in use.
const MAX_SESSIONS: usize = MAX_PENDING + 1;

/// A client asks once a second at most, whatever it hears (PROTOCOL §6.6): more is not spared.
const SPARED_EVERY: Duration = Duration::from_secs(1);

/// What is the same for most clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    psk: PresharedKey,
    /// Bits of the prefix of the tunnel's network; 0 for a client without an address of the family.
    prefix_v4: u8,
    prefix_v6: u8,
    /// Its own inner addresses are the only sources; they do not stand in the filter then.
    own_sources: bool,
    filter: InnerFilter,
}

impl Terms {
    /// Those of one client.
    pub(super) fn of(config: &PeerConfig) -> Self {
        let mut filter = config.filter.clone();
        let own_sources = filter.sources.iter().copied().eq(config.addresses());
        if own_sources {
            filter.sources.clear();
        }
        Self {
            psk: config.psk.clone(),
            prefix_v4: config.inner_v4.map_or(0, |net| net.prefix_len()),
            prefix_v6: config.inner_v6.map_or(0, |net| net.prefix_len()),
            own_sources,
            filter,
        }
    }

    /// Whether they are no secret of one client, and name no network behind one, so that others may share them.
    pub(super) fn are_common(&self) -> bool {
        self.psk == PresharedKey::NONE && self.filter.network.is_none()
    }
}

/// What only a client has that asked for a session.
struct Life {
    freshness: FreshnessRecord,
    /// Granted, but not used yet; oldest first.
    pending: ArrayVec<SessionIndex, MAX_PENDING>,
    /// In use.
    session: Option<SessionIndex>,
    /// Sessions so far.
    sessions: u64,
    /// How this end sends to it, if otherwise than to all.
    scheduling: Option<Box<Scheduling>>,
    /// Sum over the sessions that are over; none is yet.
    totals: Option<Box<Totals>>,
    /// When a first message of it was last spared the limit on decryptions.
    spared_at: Option<Instant>,
    /// What it used of an hour's speed tests, if it ever tested.
    speed: Option<Box<SpeedAccount>>,
}

impl Life {
    /// Of a client whose key is known since then.
    fn new(known: Timestamp) -> Self {
        Self {
            freshness: FreshnessRecord::since(known),
            pending: ArrayVec::new(),
            session: None,
            sessions: 0,
            scheduling: None,
            totals: None,
            spared_at: None,
            speed: None,
        }
    }
}

/// What is known of a client.
pub(super) struct Peer {
    name: Arc<str>,
    terms: Arc<Terms>,
    life: Option<Box<Life>>,
    /// Since when its key is known.
    known: Timestamp,
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
    enabled: bool,
}

impl Peer {
    /// One with these terms, whose key is known since `known`.
    pub(super) fn new(config: PeerConfig, terms: Arc<Terms>, known: Timestamp) -> Self {
        let PeerConfig { name, inner_v4, inner_v6, enabled, .. } = config;
        let (v4, v6) = (inner_v4.map(|net| net.addr()), inner_v6.map(|net| net.addr()));
        Self { name, terms, life: None, known, v4, v6, enabled }
    }

    /// The owner says this of it from now on.
    pub(super) fn set(&mut self, config: PeerConfig, terms: Arc<Terms>) {
        let life = self.life.take();
        *self = Self { life, ..Self::new(config, terms, self.known) };
    }

    /// What the owner says of it.
    pub(super) fn config(&self) -> PeerConfig {
        let Terms { psk, prefix_v4, prefix_v6, own_sources, filter } = &*self.terms;
        let mut config = PeerConfig {
            name: Arc::clone(&self.name),
            psk: psk.clone(),
            inner_v4: self.v4.and_then(|v4| Ipv4Net::new(v4, *prefix_v4).ok()),
            inner_v6: self.v6.and_then(|v6| Ipv6Net::new(v6, *prefix_v6).ok()),
            filter: filter.clone(),
            enabled: self.enabled,
        };
        if *own_sources {
            config.filter.sources = config.addresses().collect();
        }
        config
    }

    /// For people.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its inner IPv4 address.
    pub(super) fn v4(&self) -> Option<Ipv4Addr> {
        self.v4
    }

    /// Its inner IPv6 address.
    pub(super) fn v6(&self) -> Option<Ipv6Addr> {
        self.v6
    }

    /// The IPv6 network behind it, which few have.
    pub(super) fn network(&self) -> Option<Ipv6Net> {
        self.terms.filter.network
    }

    fn life(&mut self) -> &mut Life {
        let known = self.known;
        self.life.get_or_insert_with(|| Box::new(Life::new(known)))
    }

    /// By what its first messages are judged.
    pub(super) fn freshness(&self) -> FreshnessRecord {
        let life = self.life.as_ref();
        life.map_or_else(|| FreshnessRecord::since(self.known), |life| life.freshness)
    }

    /// By this they are judged from now on.
    pub(super) fn set_freshness(&mut self, freshness: FreshnessRecord) {
        self.life().freshness = freshness;
    }

    /// Another session is granted. Returns the one that has to go for it.
    pub(super) fn grant(&mut self, index: SessionIndex) -> Option<SessionIndex> {
        let pending = &mut self.life().pending;
        let oldest = pending.is_full().then(|| pending.remove(0));
        pending.push(index);
        oldest
    }

    /// A session that was granted is in use. Returns the one that was until now.
    pub(super) fn take_up(&mut self, index: SessionIndex) -> Option<SessionIndex> {
        self.detach(index);
        let life = self.life();
        life.sessions += 1;
        life.session.replace(index)
    }

    /// It has this session no more.
    pub(super) fn detach(&mut self, index: SessionIndex) {
        if let Some(life) = &mut self.life {
            life.session.take_if(|present| *present == index);
            life.pending.retain(|present| *present != index);
        }
    }

    /// The session in use.
    pub(super) fn session(&self) -> Option<SessionIndex> {
        self.life.as_ref()?.session
    }

    /// All its sessions, the one in use last.
    pub(super) fn indices(&self) -> ArrayVec<SessionIndex, MAX_SESSIONS> {
        let lives = self.life.iter();
        lives.flat_map(|life| life.pending.iter().copied().chain(life.session)).collect()
    }

    /// How many sessions it has.
    pub(super) fn count(&self) -> usize {
        self.indices().len()
    }

    /// Sessions so far.
    pub(super) fn sessions(&self) -> u64 {
        self.life.as_ref().map_or(0, |life| life.sessions)
    }

    /// Whether it never had a session, nor has one that waits to be used.
    pub(super) fn is_unused(&self) -> bool {
        self.sessions() == 0 && self.count() == 0
    }

    /// How this end sends to it, if otherwise than to all.
    pub(super) fn scheduling(&self) -> Option<&Scheduling> {
        self.life.as_ref()?.scheduling.as_deref()
    }

    /// This end sends to it so.
    pub(super) fn set_scheduling(&mut self, scheduling: Scheduling) {
        self.life().scheduling = Some(Box::new(scheduling));
    }

    /// This end sends to it as to all.
    pub(super) fn schedule_alike(&mut self) {
        if let Some(life) = &mut self.life {
            life.scheduling = None;
        }
    }

    /// Sum over the sessions that are over, if any is.
    pub(super) fn totals(&self) -> Option<&Totals> {
        self.life.as_ref()?.totals.as_deref()
    }

    /// The same, to be added to.
    pub(super) fn totals_mut(&mut self) -> &mut Totals {
        self.life().totals.get_or_insert_default()
    }

    /// Whether a first message that brought it a session is spared the limit on decryptions.
    pub(super) fn is_spared(&mut self, now: Instant) -> bool {
        let life = self.life();
        let spared = life.spared_at.is_none_or(|at| now.since(at) >= SPARED_EVERY);
        if spared {
            life.spared_at = Some(now);
        }
        spared
    }

    /// It used so much for speed tests.
    pub(super) fn note_speed_use(&mut self, now: Instant, used: SpeedUse) {
        if used != SpeedUse::default() {
            self.speed_account(now).add(now, used);
        }
    }

    /// What it has had of an hour's speed tests.
    pub(super) fn speed_account(&mut self, now: Instant) -> &mut SpeedAccount {
        self.life().speed.get_or_insert_with(|| Box::new(SpeedAccount::new(now)))
    }
}
