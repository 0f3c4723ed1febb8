//! When the client moves to another proxy, and how.

use std::collections::BTreeMap;

use rand::Rng;
use ropewalk_settings::PublicKey;

use super::{
    ASK_AGAIN, ASK_OFTEN, ASK_ROAMING, ASK_SLOWLY, Beside, Candidate, Client, ClientConfig, FRESH,
    FleetClient, FleetEvent, Known, OPENING_PATIENCE, Pins, QUICK_ROUNDS, ROAMING, SHUN,
    SILENT_AFTER, Slot, WORD_PATIENCE, Watch, Why, draw, nearest,
};
use crate::fleet::ProxyState;
use crate::fleet::choice::{HYSTERESIS, ROAMED};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};

/// Answers that come so soon after the first one count as well at the start.
const LEAST_WAIT: Duration = Duration::from_millis(20);

impl FleetClient {
    /// Looks at everything: which proxy answers, and whether to move.
    pub(super) fn look(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.looked = now;
        if self.closed {
            return;
        }
        self.settle_beside(now, sink);
        if !self.has_choice() || self.links.is_empty() {
            return self.begin_with_first(now, sink);
        }
        self.shunned.retain(|_, until| *until > now);
        self.note_doubt(now);
        self.ask_round(now);
        match self.choosing {
            Some(until) => self.choose(now, until, sink),
            None => self.leave(now, sink),
        }
    }

    /// Whether no session was asked for yet.
    pub(super) fn is_fresh(&self) -> bool {
        self.moves == 0 && self.present.client.is_fresh()
    }

    /// The first proxy, by the answers that came.
    fn choose(&mut self, now: Instant, until: Instant, sink: &mut impl PacketSink) {
        let candidates = self.candidates(now, FRESH);
        let shortest = candidates.iter().filter_map(|one| one.rtt).min();
        let until = shortest.map_or(until, |trip| until.min(now + trip.max(LEAST_WAIT)));
        self.choosing = Some(until);
        if now < until && !self.questions.all_answered() {
            return;
        }
        let first = || candidates.first().map(|one| (one.key, Why::First));
        let best = nearest(&candidates).map(|key| (key, Why::Nearest)).or_else(first);
        if let Some((key, why)) = best {
            self.why = why;
            if key != self.present.key
                && let Some(slot) = self.open(now, key)
            {
                *self.present = slot;
            }
        }
        self.begin(now, sink);
    }

    fn begin_with_first(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if self.choosing.is_some() {
            self.begin(now, sink);
        }
    }

    fn begin(&mut self, now: Instant, sink: &mut impl PacketSink) {
        (self.choosing, self.since) = (None, now);
        for (key, link) in &self.links {
            self.present.set_link(now, *key, Some(link), sink);
        }
    }

    /// Whether the present proxy may be silent, or is.
    fn is_doubted(&self) -> bool {
        self.choosing.is_none() && self.present.client.is_doubted()
    }

    /// The same, and nothing follows from it yet.
    pub(super) fn has_new_doubt(&self) -> bool {
        self.doubt.is_none() && self.is_doubted()
    }

    /// Whether the present proxy has turned the client away, and nothing follows from it yet.
    pub(super) fn is_newly_turned_away(&self) -> bool {
        self.choosing.is_none() && !self.turned_away && self.present.client.is_turned_away()
    }

    /// Notes whether the present proxy may be silent.
    fn note_doubt(&mut self, now: Instant) {
        let is_news = self.is_newly_turned_away();
        self.turned_away = self.present.client.is_turned_away();
        match (self.is_doubted(), self.doubt) {
            (true, None) => {
                // Who just begins has just asked.
                let client = &self.present.client;
                let begins = client.patience().is_none() && !client.is_turned_away();
                let pause = if begins { ASK_AGAIN } else { Duration::ZERO };
                (self.doubt, self.next_round, self.quick_rounds) = (Some(now), now + pause, 0);
            }
            (false, Some(_)) => {
                self.doubt = None;
                if matches!(self.beside, Some(Beside::Next(_, Why::Silent, _))) {
                    // The one before answers again: nobody has to move.
                    self.drop_beside(now);
                }
            }
            // Another one is to say at once that it is there.
            (true, Some(_)) if is_news => (self.next_round, self.quick_rounds) = (now, 0),
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// The client came into another network, which may be on another continent: what was measured says nothing any more.
    pub(super) fn roam(&mut self, now: Instant) {
        self.roamed = Some(now);
        self.watch = Watch::default();
        (self.next_round, self.quick_rounds) = (now, 0);
    }

    fn is_roaming(&self, now: Instant) -> bool {
        self.roamed.is_some_and(|roamed| now < roamed + ROAMING)
    }

    /// Whether that was under the present session: its round trips say nothing of how soon its proxy answers here.
    fn came_elsewhere(&self, now: Instant) -> bool {
        self.is_roaming(now) && self.roamed > self.present.client.session_since()
    }

    /// How long a better proxy has to be better.
    pub(super) fn hysteresis(&self, now: Instant) -> Duration {
        if self.is_roaming(now) { ROAMED } else { HYSTERESIS }
    }

    /// Asks all, if it is time.
    fn ask_round(&mut self, now: Instant) {
        if now < self.next_round {
            return;
        }
        let is_left = self.known.iter().any(|one| {
            one.key == self.present.key
                && (one.state == ProxyState::Draining || !self.is_wanted(one))
        });
        let seeks = is_left && self.beside.is_none();
        let urgent = self.choosing.is_some() || self.doubt.is_some() || seeks;
        let targets = self.known.iter().map(|one| (one.key, self.paths_to(one, urgent))).collect();
        self.questions.ask(now, &mut self.rng, targets);
        let pause = match (urgent, self.quick_rounds < QUICK_ROUNDS) {
            (true, true) => ASK_AGAIN,
            (true, false) => ASK_SLOWLY,
            (false, _) if self.is_roaming(now) => ASK_ROAMING,
            (false, _) => ASK_OFTEN.mul_f64(self.rng.random_range(0.75..1.25)),
        };
        self.quick_rounds = if urgent { self.quick_rounds.saturating_add(1) } else { 0 };
        self.next_round = now + pause;
    }

    /// The proxies that may be used, with what their answers of the last `age` say.
    pub(super) fn candidates(&self, now: Instant, age: Duration) -> Vec<Candidate> {
        let since = Instant::ZERO + now.since(Instant::ZERO).saturating_sub(age);
        let usable = self.known.iter().filter(|one| self.is_usable(one));
        let candidate = |one: &Known| Candidate {
            key: one.key,
            rtt: self.questions.trip(&one.key, since),
            load: one.load,
            state: one.state,
        };
        usable.map(candidate).collect()
    }

    fn is_usable(&self, proxy: &Known) -> bool {
        self.is_wanted(proxy) && !self.shunned.contains_key(&proxy.key)
    }

    /// Begins to move, if there is a reason.
    fn leave(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if matches!(self.beside, Some(Beside::Next(..))) {
            return;
        }
        if let Some(since) = self.doubt {
            return self.leave_silent(now, since, sink);
        }
        // One move at a time.
        if self.beside.is_some() || now < self.follow_list {
            return;
        }
        let candidates = self.candidates(now, FRESH);
        let patience = self.hysteresis(now);
        if let Some((to, why)) = self.watch.look(now, self.present.key, &candidates, patience) {
            self.begin_move(now, to, why, sink);
        }
    }

    fn leave_silent(&mut self, now: Instant, since: Instant, sink: &mut impl PacketSink) {
        let client = &self.present.client;
        if client.is_yielding() {
            return;
        }
        let refused = client.is_turned_away();
        let waited = now.since(since);
        let answers = self.questions.trip(&self.present.key, since).is_some();
        // One that answers strangers has a session for us as a rule.
        let patience = match answers {
            true => OPENING_PATIENCE,
            false if self.came_elsewhere(now) => self.present.patience().max(SILENT_AFTER),
            false => self.present.patience(),
        };
        if !refused && waited < patience {
            return;
        }
        let mut candidates = self.candidates(now, waited);
        candidates.retain(|one| one.key != self.present.key);
        if let Some(to) = nearest(&candidates) {
            let why = if refused { Why::Refused } else { Why::Silent };
            self.begin_move(now, to, why, sink);
        }
    }

    fn begin_move(&mut self, now: Instant, to: PublicKey, why: Why, sink: &mut impl PacketSink) {
        self.drop_beside(now);
        let Some(mut slot) = self.open(now, to) else { return };
        if keeps_flows(why) {
            // Another proxy is asked when the present one has heard it: else it may hear first that there is a newer session, and end its own
            // with all that is under way.
            self.present.client.tell_moving();
            slot.waits = true;
        }
        for (key, link) in &self.links {
            slot.set_link(now, *key, Some(link), sink);
        }
        self.beside = Some(Beside::Next(Box::new(slot), why, now));
    }

    /// Whether the next proxy waits, and need not any more: the present one knows that the client moves, or may be silent.
    pub(super) fn may_ask_next(&self) -> bool {
        let waits = matches!(&self.beside, Some(Beside::Next(slot, ..)) if slot.waits);
        waits && (self.present.client.has_told_moving() || self.is_doubted())
    }

    /// Asks the next proxy for a session, if it need not wait any more.
    fn ask_next(&mut self, now: Instant, sink: &mut impl PacketSink) {
        let may = self.may_ask_next();
        if let Some(Beside::Next(slot, _, since)) = &mut self.beside
            && (may || now >= *since + WORD_PATIENCE)
        {
            (slot.waits, *since) = (false, now);
            for (key, link) in &self.links {
                slot.set_link(now, *key, Some(link), sink);
            }
        }
    }

    /// A client towards this proxy, without links.
    fn open(&mut self, now: Instant, key: PublicKey) -> Option<Slot> {
        let known = self.known.iter().find(|one| one.key == key)?;
        let addresses = known.addresses.clone();
        let config = ClientConfig { proxy: key, ..self.config.clone() };
        let client = Client::new(now, config, draw(&mut self.rng));
        Some(Slot::new(key, addresses, client))
    }

    /// Goes on with the session beside the present one.
    fn settle_beside(&mut self, now: Instant, sink: &mut impl PacketSink) {
        match &mut self.beside {
            Some(Beside::Next(slot, ..)) if slot.waits => self.ask_next(now, sink),
            Some(Beside::Next(slot, _, since)) => {
                if slot.is_up() {
                    self.promote(now);
                } else if slot.client.is_turned_away() || now >= *since + OPENING_PATIENCE {
                    self.shunned.insert(slot.key, now + SHUN);
                    (self.next_round, self.quick_rounds) = (now, 0);
                    self.drop_beside(now);
                }
            }
            Some(Beside::Old(slot, pins)) => {
                if !slot.is_up() {
                    self.drop_beside(now);
                } else if pins.are_over(now)
                    && let Some(Beside::Old(mut slot, _)) = self.beside.take()
                {
                    slot.client.close(now);
                    self.beside = Some(Beside::Closing(slot));
                }
            }
            Some(Beside::Closing(slot)) if slot.client.is_closed() => self.drop_beside(now),
            Some(Beside::Closing(_)) | None => {}
        }
    }

    /// The next session takes the place of the present one.
    fn promote(&mut self, now: Instant) {
        // What happened before belongs to the one before.
        self.take_events();
        let Some(Beside::Next(next, why, _)) = self.beside.take() else { return };
        let mut old = std::mem::replace(&mut self.present, next);
        let (from, to) = (old.key, self.present.key);
        self.events.push_back(FleetEvent::Moved { from, to, why });
        let events = std::mem::take(&mut self.present.events);
        events.into_iter().for_each(|event| self.note(event));
        (self.why, self.since, self.doubt, self.watch) = (why, now, None, Watch::default());
        self.moves += 1;
        self.next_round = self.next_round.max(now + ASK_AGAIN);
        // With another inner address they could not go on.
        let inner = |slot: &Slot| slot.client.session().map(|session| session.own.clone());
        let stay = old.is_up() && inner(&old) == inner(&self.present);
        if stay && keeps_flows(why) {
            self.beside = Some(Beside::Old(old, Pins::new(now)));
            return;
        }
        if let Some(acknowledged) = old.client.hand_over() {
            self.present.client.take_over(acknowledged);
        }
        if old.is_up() {
            old.client.close(now);
            self.beside = Some(Beside::Closing(old));
        } else {
            self.present.client.inherit(now, old.client);
        }
    }

    /// The session beside the present one is given up; what it counted is kept.
    pub(super) fn drop_beside(&mut self, now: Instant) {
        let slot = match self.beside.take() {
            Some(Beside::Next(slot, ..) | Beside::Old(slot, _) | Beside::Closing(slot)) => slot,
            None => return,
        };
        self.present.client.inherit(now, slot.client);
    }

    /// Which were tried in vain, and until when they are not tried again.
    pub(super) const fn shunned(&self) -> &BTreeMap<PublicKey, Instant> {
        &self.shunned
    }
}

/// Whether the present proxy still serves the flows that began there.
const fn keeps_flows(why: Why) -> bool {
    matches!(why, Why::Better | Why::Drained | Why::Asked)
}
