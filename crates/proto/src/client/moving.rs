//! What a client of several proxies asks the client of one ([`FleetClient`](crate::fleet::FleetClient)).

use super::{Client, Seek, Trouble};
use crate::event::EndReason;
use crate::time::{Duration, Instant};
use crate::tunnel::LocalAcks;
use crate::wire::frame::CloseReason;
use crate::wire::header::steering_index;
use crate::wire::hello::answer::Refusal;

impl Client {
    /// Whether a datagram is for this client's session, or an answer to what it asked.
    pub(crate) fn owns(&self, datagram: &[u8]) -> bool {
        let Some(index) = steering_index(datagram) else { return false };
        let asked = matches!(&self.seek, Seek::Asking(asking) if asking.index() == index);
        asked || self.session.as_ref().is_some_and(|session| session.info.index == index)
    }

    /// Whether it has asked for nothing yet.
    pub(crate) const fn is_fresh(&self) -> bool {
        self.counters.attempts == 0
    }

    /// Whether a link of its session carries packets.
    pub(crate) fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.up.is_empty())
    }

    /// Since when there is a session.
    pub(crate) fn session_since(&self) -> Option<Instant> {
        self.session.as_ref().map(|session| session.since)
    }

    /// Whether it looks for a session: it has none, or the one it has may be dead.
    pub(crate) fn is_doubted(&self) -> bool {
        !self.closed
            && !self.links.is_empty()
            && (self.session.is_none() || !matches!(self.seek, Seek::Idle))
    }

    /// How long a session may be silent; `None`: no link of one was ever up.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.session.as_ref().filter(|session| session.was_up).map(super::Session::patience)
    }

    /// Whether its proxy gives it no session, and another may.
    pub(crate) fn is_turned_away(&self) -> bool {
        let other_may = match &self.trouble {
            Some(Trouble::Refused(refusal)) => !concerns_key(*refusal),
            Some(Trouble::Closed(reason)) => *reason == CloseReason::Shutdown,
            _ => false,
        };
        self.session.is_none() && other_may
    }

    /// Whether it has no session for a reason that holds at every proxy of a fleet.
    pub(crate) fn is_yielding(&self) -> bool {
        let everywhere = match &self.trouble {
            Some(Trouble::Refused(refusal)) => concerns_key(*refusal),
            Some(Trouble::Closed(reason)) => {
                matches!(reason, CloseReason::Replaced | CloseReason::Removed)
            }
            _ => false,
        };
        self.session.is_none() && everywhere
    }

    /// Its proxy is to know that the session stays for a while beside one with another proxy.
    pub(crate) fn tell_moving(&mut self) {
        if let Some(session) = &mut self.session {
            session.tunnel.tell_moving();
        }
    }

    /// Whether its proxy has confirmed that, or there is none to be told.
    pub(crate) fn has_told_moving(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.tunnel.has_told_moving())
    }

    /// What was acknowledged to senders of TCP goes to the session that takes the place of this one.
    pub(crate) fn hand_over(&mut self) -> Option<LocalAcks> {
        Some(self.session.as_mut()?.tunnel.hand_over())
    }

    /// Takes that over. Nothing was sent in this session yet.
    pub(crate) fn take_over(&mut self, acknowledged: LocalAcks) {
        if let Some(session) = self.session.as_mut().filter(|_| !acknowledged.is_empty()) {
            session.tunnel.take_over(acknowledged);
        }
    }

    /// Another client is over; what it counted goes on here, and what its senders of TCP were told waits here.
    pub(crate) fn inherit(&mut self, now: Instant, mut other: Self) {
        other.end_session(now, EndReason::Stopped);
        self.totals.merge(&other.totals);
        self.totals.forget_links(|key| self.links.contains(key));
        self.counters.add(&other.counters);
        self.left.take_in(now, &mut other.left);
    }
}

/// Whether a refusal is about the client's key or token, which all proxies of a fleet judge alike.
const fn concerns_key(refusal: Refusal) -> bool {
    matches!(
        refusal,
        Refusal::InUse | Refusal::InvitationUsed | Refusal::InvitationExpired | Refusal::Disabled
    )
}
