//! All sessions by index, and which of them need attention: an ordered set of timers, a list of those
//! that were touched, a list of those that received in this batch.
//!
//! What a packet costs does not grow with their number: it is one search in a [`Table`], and what is found is
//! put on a list where it lies. The set of timers, whose cost grows with its logarithm, is left alone until all
//! packets of a batch are in.

use std::collections::{BTreeMap, VecDeque};

use super::table::Table;
use super::{ENDING_LIFETIME, IDLE_LIFETIME, PENDING_LIFETIME};
use crate::event::SessionInfo;
use crate::time::Instant;
use crate::timer::{Timer, Wakeup, sooner};
use crate::tunnel::Tunnel;
use crate::units::SessionIndex;
use ropewalk_settings::PublicKey;

/// How far a session is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Granted; the client was not heard under its keys.
    Pending,
    /// In use.
    Confirmed,
    /// Only the goodbye is left to say.
    Ending,
}

/// One session.
pub(super) struct Session {
    pub(super) peer: PublicKey,
    pub(super) info: SessionInfo,
    pub(super) tunnel: Tunnel,
    pub(super) phase: Phase,
    /// Since when it is in this phase.
    pub(super) since: Instant,
    /// When something authentic came last.
    pub(super) last_heard: Instant,
    /// The entry among the timers.
    timer: Option<Wakeup>,
    touched: bool,
    received: bool,
}

impl Session {
    pub(super) fn pending(
        now: Instant,
        peer: PublicKey,
        info: SessionInfo,
        tunnel: Tunnel,
    ) -> Box<Self> {
        Box::new(Self {
            peer,
            info,
            tunnel,
            phase: Phase::Pending,
            since: now,
            last_heard: now,
            timer: None,
            touched: false,
            received: false,
        })
    }

    /// When it is forgotten unless something happens.
    pub(super) fn expires(&self) -> Instant {
        match self.phase {
            Phase::Pending => self.since + PENDING_LIFETIME,
            Phase::Confirmed => self.last_heard + IDLE_LIFETIME,
            Phase::Ending => self.since + ENDING_LIFETIME,
        }
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let expires = Some((self.expires(), Timer::Session));
        match self.phase {
            Phase::Ending => expires,
            Phase::Pending | Phase::Confirmed => sooner(expires, self.tunnel.poll_timeout()),
        }
    }
}

/// A session that was found, with the lists that it can be put on.
pub(super) struct Found<'a> {
    pub(super) session: &'a mut Session,
    index: SessionIndex,
    touched: &'a mut VecDeque<SessionIndex>,
    received: &'a mut Vec<SessionIndex>,
}

impl Found<'_> {
    /// The session may have something to send, and another timer.
    pub(super) fn touch(&mut self) {
        if !self.session.touched {
            self.session.touched = true;
            self.touched.push_back(self.index);
        }
    }

    /// As [`touch`](Self::touch), for a session that received a datagram.
    pub(super) fn touch_received(&mut self) {
        self.touch();
        if !self.session.received {
            self.session.received = true;
            self.received.push(self.index);
        }
    }
}

/// All sessions.
#[derive(Default)]
pub(super) struct Sessions {
    all: Table<SessionIndex, Box<Session>>,
    timers: BTreeMap<(Instant, SessionIndex), Timer>,
    /// Those that may have something to send; in the order of their turn.
    touched: VecDeque<SessionIndex>,
    received: Vec<SessionIndex>,
}

impl Sessions {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn contains(&self, index: SessionIndex) -> bool {
        self.all.contains_key(&index)
    }

    pub(super) fn indices(&self) -> Vec<SessionIndex> {
        self.all.keys().copied().collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.all.values().map(|session| &**session)
    }

    pub(super) fn get(&self, index: SessionIndex) -> Option<&Session> {
        self.all.get(&index).map(|session| &**session)
    }

    pub(super) fn get_mut(&mut self, index: SessionIndex) -> Option<&mut Session> {
        self.all.get_mut(&index).map(|session| &mut **session)
    }

    /// The session, to be used and put on lists.
    pub(super) fn find(&mut self, index: SessionIndex) -> Option<Found<'_>> {
        let Self { all, touched, received, .. } = self;
        let session = all.get_mut(&index)?;
        Some(Found { session, index, touched, received })
    }

    pub(super) fn insert(&mut self, index: SessionIndex, session: Box<Session>) {
        self.all.insert(index, session);
        self.touch(index);
    }

    pub(super) fn remove(&mut self, index: SessionIndex) -> Option<Box<Session>> {
        let session = self.all.remove(&index)?;
        if let Some((at, _)) = session.timer {
            self.timers.remove(&(at, index));
        }
        // The lists hold what was touched since the last turn: nothing, or this session first, as a rule.
        if self.touched.front() == Some(&index) {
            self.touched.pop_front();
        } else if session.touched {
            self.touched.retain(|other| *other != index);
        }
        if session.received {
            self.received.retain(|other| *other != index);
        }
        Some(session)
    }

    /// The session may have something to send, and another timer.
    pub(super) fn touch(&mut self, index: SessionIndex) {
        if let Some(mut found) = self.find(index) {
            found.touch();
        }
    }

    /// The next session that received something in this batch.
    pub(super) fn pop_received(&mut self) -> Option<&mut Session> {
        let index = self.received.pop()?;
        let session = self.get_mut(index)?;
        session.received = false;
        Some(session)
    }

    /// The session whose turn it is to send. It stays first until [`settle`](Self::settle) or
    /// [`rotate`](Self::rotate).
    pub(super) fn first_touched(&mut self) -> Option<(SessionIndex, &mut Session)> {
        let index = *self.touched.front()?;
        self.get_mut(index).map(|session| (index, session))
    }

    /// The first session found the batch full: it goes on after the others.
    pub(super) fn rotate(&mut self) {
        if !self.touched.is_empty() {
            self.touched.rotate_left(1);
        }
    }

    /// The first session has sent all it may: its timer is set.
    pub(super) fn settle(&mut self) {
        let Some(index) = self.touched.pop_front() else { return };
        let Some(session) = self.all.get_mut(&index) else { return };
        session.touched = false;
        let timer = session.poll_timeout();
        if timer == session.timer {
            return;
        }
        if let Some((old, _)) = session.timer {
            self.timers.remove(&(old, index));
        }
        if let Some((new, why)) = timer {
            self.timers.insert((new, index), why);
        }
        session.timer = timer;
    }

    /// The next session whose timer is due. Its timer is set again when it is settled.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<(SessionIndex, &mut Session)> {
        let entry = self.timers.first_entry()?;
        let (at, index) = *entry.key();
        if at > now {
            return None;
        }
        entry.remove();
        self.touch(index);
        let session = self.all.get_mut(&index)?;
        session.timer = None;
        Some((index, session))
    }

    pub(super) fn next_timer(&self) -> Option<Wakeup> {
        self.timers.first_key_value().map(|((at, _), why)| (*at, *why))
    }

    /// The earliest timer of the sessions whose timers are not settled: none, if everything was polled.
    pub(super) fn next_of_touched(&self) -> Option<Wakeup> {
        let touched = self.touched.iter().filter_map(|index| self.all.get(index));
        touched.fold(None, |next, session| sooner(next, session.poll_timeout()))
    }
}
