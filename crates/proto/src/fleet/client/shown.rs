//! What the client of a fleet shows of itself.

use std::net::SocketAddr;

use ropewalk_settings::PublicKey;

use super::{Beside, FRESH, FleetClient, Why};
use crate::client::{ClientState, ClientStats, Trouble};
use crate::event::SessionInfo;
use crate::fleet::ProxyState;
use crate::fleet::choice::Candidate;
use crate::time::{Duration, Instant};

/// A proxy that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyView {
    /// Its key.
    pub key: PublicKey,
    /// Its name, where the fleet told one.
    pub id: Option<String>,
    /// Where it stands; empty: nothing is said.
    pub region: String,
    /// Where it is reached.
    pub addresses: Vec<SocketAddr>,
    /// Whether it takes sessions.
    pub state: ProxyState,
    /// Percent of what it can carry.
    pub load: u8,
    /// The round trip, where it answered lately.
    pub rtt: Option<Duration>,
    /// How far away it counts as being.
    pub distance: Option<Duration>,
    /// How long ago it answered.
    pub answered: Option<Duration>,
    /// Whether it is in use.
    pub present: bool,
    /// So many flows that began there stay there, while another is in use.
    pub staying: Option<usize>,
    /// Whether it may be used by what the owner asked for.
    pub wanted: bool,
    /// It gave no session, and is not tried for so long.
    pub shunned: Option<Duration>,
}

impl FleetClient {
    /// The key of the proxy in use.
    #[must_use]
    pub const fn present(&self) -> PublicKey {
        self.present.key
    }

    /// Why that one, and since when.
    #[must_use]
    pub const fn why(&self) -> (Why, Instant) {
        (self.why, self.since)
    }

    /// How often it moved to another.
    #[must_use]
    pub const fn moves(&self) -> u64 {
        self.moves
    }

    /// All that are known: those that the owner named first.
    #[must_use]
    pub fn proxies(&self, now: Instant) -> Vec<ProxyView> {
        let fresh = Instant::ZERO + now.since(Instant::ZERO).saturating_sub(FRESH);
        let staying = |key| match &self.beside {
            Some(Beside::Old(slot, pins)) if slot.key == key => Some(pins.on_old()),
            _ => None,
        };
        let view = |one: &super::Known| {
            let rtt = self.questions.trip(&one.key, fresh);
            let candidate = Candidate { key: one.key, rtt, load: one.load, state: one.state };
            ProxyView {
                key: one.key,
                id: one.id.map(|id| id.to_string()),
                region: one.region.to_string(),
                addresses: one.addresses.clone(),
                state: one.state,
                load: one.load,
                rtt,
                distance: candidate.distance(),
                answered: self.questions.answered(&one.key).map(|at| now.since(at)),
                present: one.key == self.present.key,
                staying: staying(one.key),
                wanted: self.is_wanted(one),
                shunned: self.shunned().get(&one.key).map(|until| until.since(now)),
            }
        };
        self.known.iter().map(view).collect()
    }

    /// The session in use.
    #[must_use]
    pub fn session(&self) -> Option<&SessionInfo> {
        self.present.client.session()
    }

    /// How it stands with it, and if there is none, why.
    #[must_use]
    pub fn state(&self) -> ClientState {
        match self.choosing {
            Some(_) if !self.links.is_empty() => {
                ClientState::Asking { since: self.since, trouble: Trouble::NoAnswer }
            }
            _ => self.present.client.state(),
        }
    }

    /// Everything, as it is now: counts of all sessions, and the links as they are in the one in use.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let mut stats = self.present.client.stats();
        if let Some(beside) = self.beside() {
            stats.add(&beside.client.stats());
        }
        stats
    }
}
