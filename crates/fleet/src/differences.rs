//! What differs between a copy and the one that takes its place, told in parts: nobody holds the copy for long.

use crate::cache::{Cache, Change};
use crate::mirror::part_size;

/// The differences, of which [`part`](Self::part) tells one part after the other.
#[derive(Debug)]
#[must_use = "nobody hears of them until they are told"]
pub struct Differences {
    before: Cache,
    /// Clients, or sessions, that are looked at for one part.
    most: usize,
    step: Step,
}

/// What is looked at next, from which place on.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Clients that were there before, and are gone or have other addresses now.
    Gone(usize),
    /// Clients that are there now.
    Came(usize),
    /// Sessions that were there before.
    Ended(usize),
    /// Sessions that are there now.
    Begun(usize),
    /// The proxies.
    Proxies,
    /// Nothing.
    Over,
}

impl Differences {
    /// Between what was known before and what is now.
    pub(crate) fn new(before: Cache, now: &Cache) -> Self {
        let most = part_size(before.clients.len() + now.clients.len());
        Self { before, most, step: Step::Gone(0) }
    }

    /// The next part, which may be empty; `None`: all was told.
    pub fn part(&mut self, now: &Cache) -> Option<Vec<Change>> {
        let (before, most) = (&self.before, self.most);
        let mut changes = Vec::new();
        self.step = match self.step {
            Step::Gone(from) => {
                let (part, next) = before.clients.part(from, most);
                // One with other addresses was out meanwhile, so that it goes first and comes again: whoever has its old ones now comes
                // when nobody has them any more.
                let gone = part.filter(|(key, client)| {
                    let known = now.clients.get(key);
                    known.is_none_or(|known| known.addresses() != client.addresses())
                });
                changes.extend(gone.map(|(key, _)| Change::Gone(*key)));
                next.map_or(Step::Came(0), Step::Gone)
            }
            Step::Came(from) => {
                let (part, next) = now.clients.part(from, most);
                let came = part.filter(|(key, client)| before.clients.get(key) != Some(*client));
                changes.extend(came.map(|(key, client)| Change::Came(*key, client.clone())));
                next.map_or(Step::Ended(0), Step::Came)
            }
            Step::Ended(from) => {
                let (part, next) = before.sessions.part(from, most);
                let other = part.filter(|(key, known)| now.sessions.get(key) != Some(*known));
                changes.extend(other.map(|(key, _)| Change::Session(*key)));
                next.map_or(Step::Begun(0), Step::Ended)
            }
            Step::Begun(from) => {
                let (part, next) = now.sessions.part(from, most);
                let begun = part.filter(|(key, _)| !before.sessions.contains_key(key));
                changes.extend(begun.map(|(key, _)| Change::Session(*key)));
                next.map_or(Step::Proxies, Step::Begun)
            }
            Step::Proxies => {
                if before.proxies != now.proxies || before.drains != now.drains {
                    changes.push(Change::Proxies);
                }
                Step::Over
            }
            Step::Over => return None,
        };
        Some(changes)
    }
}
