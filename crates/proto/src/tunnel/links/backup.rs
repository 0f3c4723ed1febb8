//! Links that are kept back: one that is *used when needed* carries packets only when the links that are always used have
//! failed or are full, a *backup* only when all others have failed.
//!
//! | the others | a link used when needed | and takes |
//! | --- | --- | --- |
//! | one of them carries packets, and has room now and then | rests | nothing |
//! | none of them carries packets | carries | packets as any link, by the scheduler |
//! | none had room for [`FULL_AFTER`] while packets waited | helps | what finds no room on the others |
//!
//! Helping ends when, over [`EASE_AFTER`], less than one packet in [`EASE_SHARE`] found no room on the others: a burst
//! needs no help, and a full link does not switch one on and off with each swing of its window. Others that come back
//! are helped for as long, until they show that they manage alone. A backup helps then only, and no longer. For a backup the
//! others have failed also when an answer is overdue on all of them for [`SILENT_AFTER`].
//!
//! Each end decides for what it sends; the client tells the proxy how its links are used. A link that rests says so in
//! each of its datagrams, so that the peer's resequencer does not wait for word from it.

use std::cmp::Reverse;

use ropewalk_settings::Usage;

use super::LinkSet;
use crate::time::{Duration, Instant};
use crate::tunnel::link::{Duty, Link};

/// The others are full when none had room for this long while packets waited: a page comes in less, and who downloads
/// for longer wants more than they carry.
const FULL_AFTER: Duration = Duration::from_millis(500);
/// Room that lasts no longer than this is only the swing of a window: a few round trips.
const GAP: Duration = Duration::from_millis(250);
/// A backup does not wait until the others are down: that an answer is overdue for this long is no handover of a radio link.
const SILENT_AFTER: Duration = Duration::from_millis(500);
/// How long a link that is kept back helps at least, and the time over which its help is judged.
const EASE_AFTER: Duration = Duration::from_secs(5);
/// It was not needed if it took less than one packet in so many.
const EASE_SHARE: u64 = 20;

/// Whether links that are kept back are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backups {
    /// Since when the others have no room, and when they last had none.
    full: Option<(Instant, Instant)>,
    help: Option<Help>,
    /// The links that are always used have carried packets: before that they have not failed, they only come up later.
    proven: bool,
    /// The same of all links but backups.
    others_proven: bool,
    /// When those had last failed.
    others_failed: Option<Instant>,
}

/// What is judged at the end of a while of helping.
#[derive(Clone, Copy, Debug)]
struct Help {
    since: Instant,
    /// Packets that found no room on the others.
    over: u64,
    /// Packets in all.
    all: u64,
}

impl Help {
    const fn new(now: Instant) -> Self {
        Self { since: now, over: 0, all: 0 }
    }
}

impl Backups {
    /// A packet waits and none of the others has room.
    fn on_full(&mut self, now: Instant) {
        let since = match self.full {
            Some((since, last)) if now.since(last) <= GAP => since,
            _ => now,
        };
        self.full = Some((since, now));
        if now.since(since) >= FULL_AFTER {
            self.help.get_or_insert(Help::new(now));
        }
    }

    /// None of the others carries packets.
    fn on_failed(&mut self, now: Instant) {
        self.help = self.proven.then(|| Help::new(now));
    }

    /// A packet went, over a link that is kept back because the others had no room, or not.
    fn on_sent(&mut self, over: bool) {
        if let Some(help) = &mut self.help {
            help.all += 1;
            help.over += u64::from(over);
        }
    }

    /// Whether links used when needed help, looked at again when it is time.
    fn help(&mut self, now: Instant) -> bool {
        if let Some(help) = self.help.filter(|help| now >= help.since + EASE_AFTER) {
            let needed = help.over * EASE_SHARE > help.all;
            self.help = needed.then(|| Help::new(now));
            if !needed {
                self.full = None;
            }
        }
        self.help.is_some()
    }

    /// What a link that is used when needed does, where one that is always used carries packets, or none does.
    fn when_needed(&mut self, now: Instant, always: bool) -> Duty {
        if !always {
            self.on_failed(now);
            return Duty::Carries;
        }
        self.proven = true;
        if self.help(now) { Duty::Helps } else { Duty::Rests }
    }

    /// What a backup does, where one of the others could carry packets, or none.
    fn backup(&mut self, now: Instant, others: bool) -> Duty {
        if !others {
            self.others_failed = self.others_proven.then_some(now);
            return Duty::Carries;
        }
        self.others_proven = true;
        self.others_failed = self.others_failed.filter(|failed| now < *failed + EASE_AFTER);
        if self.others_failed.is_some() { Duty::Helps } else { Duty::Rests }
    }

    /// When help is judged.
    fn poll_timeout(&self) -> Option<Instant> {
        let judged = self.help.map(|help| help.since + EASE_AFTER);
        judged.into_iter().chain(self.others_failed.map(|failed| failed + EASE_AFTER)).min()
    }
}

impl LinkSet {
    /// Gives each link its duty.
    pub(in crate::tunnel) fn call_backups(&mut self, now: Instant) {
        let as_any =
            |link: &Link| !link.agreed.is_kept_back() && link.agreed.duty() == Duty::Carries;
        if self.links.iter().all(as_any) {
            return;
        }
        let able = |usage| {
            self.links.iter().any(|link| link.agreed.usage() == usage && link.may_carry(now))
        };
        let always = able(Usage::Always);
        let answers = |link: &Link| link.may_carry(now) && !link.is_silent(now, SILENT_AFTER);
        let others =
            self.links.iter().any(|link| link.agreed.usage() < Usage::Backup && answers(link));
        let when_needed = self.backups.when_needed(now, always);
        let backup = self.backups.backup(now, others);
        for link in &mut self.links {
            link.set_duty(match link.agreed.usage() {
                Usage::Always => Duty::Carries,
                Usage::WhenNeeded => when_needed,
                Usage::Backup => backup,
            });
        }
    }

    /// A packet of `len` bytes waits and no link that carries packets has room: the one that takes it, if one helps.
    pub(in crate::tunnel) fn helper(&mut self, now: Instant, len: usize) -> Option<usize> {
        if !self.links.iter().any(|link| link.agreed.is_kept_back()) {
            return None;
        }
        self.backups.on_full(now);
        self.call_backups(now);
        let links = self.links.iter().enumerate();
        let fits = |link: &Link| usize::from(link.inner_mtu()) >= len && link.room(now) > 0;
        let helping = links.filter(|(_, link)| link.helps(now) && fits(link));
        // Backups last.
        let order = |link: &Link| (Reverse(link.agreed.usage()), link.room(now));
        helping.max_by_key(|(_, link)| order(link)).map(|(at, _)| at)
    }

    /// A packet went.
    pub(in crate::tunnel) fn note_helped(&mut self, over: bool) {
        self.backups.on_sent(over);
    }

    /// When the duties are looked at again though nothing comes.
    pub(super) fn poll_backups(&self) -> Option<Instant> {
        let helps = self.links.iter().any(|link| link.agreed.duty() == Duty::Helps);
        self.backups.poll_timeout().filter(|_| helps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has packets find no room from one time to another, every 10 ms.
    fn full(backups: &mut Backups, from_ms: u64, until_ms: u64) {
        for at in (from_ms..until_ms).step_by(10) {
            backups.on_full(Instant::from_millis(at));
            backups.on_sent(true);
        }
    }

    #[test]
    fn a_burst_calls_no_help_and_lasting_fullness_does() {
        let at = Instant::from_millis;
        let mut backups = Backups::default();
        for start in [1000, 3000, 5000] {
            full(&mut backups, start, start + 400);
            assert!(!backups.help(at(start + 400)), "{start}");
        }
        // A window's swing leaves room for a moment.
        full(&mut backups, 10_000, 10_300);
        full(&mut backups, 10_500, 10_700);
        assert!(backups.help(at(10_700)));
    }

    #[test]
    fn help_goes_on_while_it_is_needed_and_ends_when_it_is_not() {
        let at = Instant::from_millis;
        let mut backups = Backups::default();
        full(&mut backups, 0, 20_000);
        assert!(backups.help(at(20_000)), "needed all the time");
        // From here on one packet in a hundred.
        let mut ended = None;
        for step in 0..2000 {
            let now = at(20_000 + step * 10);
            if step % 100 == 0 {
                backups.on_full(now);
            }
            backups.on_sent(step % 100 == 0);
            if !backups.help(now) {
                ended = Some(step * 10);
                break;
            }
        }
        assert!(ended.is_some_and(|ms| (1_000..=10_500).contains(&ms)), "{ended:?}");
        assert_eq!(backups.poll_timeout(), None);
    }

    #[test]
    fn a_backup_carries_only_without_others_and_helps_those_that_come_back_for_a_while() {
        let at = Instant::from_millis;
        let mut backups = Backups::default();
        assert_eq!(backups.backup(at(0), false), Duty::Carries, "they only come up later");
        assert_eq!(backups.backup(at(100), true), Duty::Rests);
        full(&mut backups, 1000, 5000);
        assert_eq!(backups.backup(at(5000), true), Duty::Rests, "full is not failed");
        assert_eq!(backups.backup(at(6000), false), Duty::Carries);
        assert_eq!(backups.backup(at(6100), true), Duty::Helps);
        full(&mut backups, 6100, 10_900);
        assert_eq!(backups.backup(at(10_900), true), Duty::Helps);
        assert_eq!(backups.backup(at(11_000), true), Duty::Rests);
    }

    #[test]
    fn those_that_come_back_are_helped_until_they_manage_alone() {
        let at = Instant::from_millis;
        let mut backups = Backups { proven: true, ..Backups::default() };
        backups.on_failed(at(1000));
        assert!(backups.help(at(5900)));
        assert!(!backups.help(at(6000)));
        let mut coming_up = Backups::default();
        coming_up.on_failed(at(1000));
        assert!(!coming_up.help(at(1100)), "they only came up later");
    }
}
