//! What is remembered of this client: what its links carry, and what happens to them.

use ropewalk_control::api::{EventKind, TunnelState};
use ropewalk_daemon::history::{Counters, LinkSample, Sample};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;

use super::Daemon;
use crate::links::Obstacle;

/// The name of a link, and why it is not used, as far as config and host are concerned.
pub(super) type Standing = (String, Option<Obstacle>);

impl Daemon {
    /// Looks at what was carried, if it is time.
    pub(super) fn remember(&mut self, now: Instant) {
        if self.history.is_due(now) {
            let seen = self.seen(now);
            self.history.look(seen);
        }
    }

    /// What was carried until now.
    pub(super) fn seen(&self, now: Instant) -> Sample {
        let stats = self.client.stats();
        let mut links: Vec<LinkSample> = Vec::new();
        for link in self.links.iter() {
            let name = &link.decision.name;
            // Links of one name are one for whoever counts by name.
            if links.iter().any(|known| known.name == *name) {
                continue;
            }
            let core = link.in_use(&stats).and_then(|way| way.core);
            let carries = core.is_some_and(|core| core.state == LinkState::Up);
            let sender = core.map(|core| &core.sender);
            // Nothing sent is confirmed or lost yet: there is no share to tell of.
            let proven = sender.filter(|sender| sender.confirmed + sender.lost > 0);
            let metered = stats.ledger.of(name);
            links.push(LinkSample {
                name: name.clone(),
                counters: Counters { down: metered.received, up: metered.sent },
                carries,
                rtt: sender.and_then(|sender| sender.srtt),
                loss: proven.map(|sender| sender.loss_ratio),
            });
        }
        let all = Counters { down: stats.delivered.bytes, up: stats.accepted.bytes };
        let unix_ms = u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX);
        Sample { at: now, unix_ms, all, links }
    }

    /// How the links stand.
    pub(super) fn standing(&self) -> Vec<Standing> {
        self.links.iter().map(|link| (link.decision.name.clone(), link.obstacle())).collect()
    }

    /// What became of the links that stood so before.
    pub(super) fn note_links(&mut self, now: Instant, before: &[Standing]) {
        // At the start all of them are new, and none is news.
        if before.is_empty() {
            return;
        }
        let after = self.standing();
        for (name, obstacle) in &after {
            let known = before.iter().find(|(known, _)| known == name);
            match (known, obstacle) {
                (None, _) => self.history.note(now, EventKind::LinkAdded, Some(name), ""),
                // Where the proxy is, is no trouble of this link's.
                (Some((_, None)), Some(why)) if *why != Obstacle::Unresolved => {
                    self.history.note(now, EventKind::LinkDown, Some(name), &why.to_string());
                }
                (Some(_), _) => {}
            }
        }
        let gone = before.iter().filter(|(name, _)| !after.iter().any(|(known, _)| known == name));
        for (name, _) in gone {
            self.history.note(now, EventKind::LinkRemoved, Some(name), "");
        }
    }

    /// The tunnel is in another state from now on.
    pub(super) fn note_tunnel(&mut self, now: Instant, state: TunnelState) {
        match (self.state.0, state) {
            _ if self.stopping => {}
            (_, TunnelState::Up) => {
                let text = format!("with {}", self.peer(now));
                self.history.note(now, EventKind::TunnelUp, None, &text);
            }
            (TunnelState::Up, TunnelState::Stalled | TunnelState::Idle) => {
                self.history.note(now, EventKind::AllLinksLost, None, "");
            }
            _ => {}
        }
    }

    /// What there is to tell of allowances.
    pub(super) fn note_allowances(&mut self, now: Instant) {
        for news in self.budget.take_news() {
            self.history.note(now, news.kind, Some(&news.link), &news.text);
        }
    }
}
