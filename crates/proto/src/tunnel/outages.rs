//! Links that stopped carrying packets, for people: when, who said so, how many packets were moved to other links, and for how
//! long nothing of what was under way there was confirmed.
//!
//! An outage begins when packets are moved because an answer is overdue, when somebody says that nothing passes, or when the link
//! counts as down or leaves. What happens to the same link until it answers again belongs to it. One that was overdue and
//! answers within 200 ms was late, and is counted as that.

mod stalls;

use arrayvec::{ArrayString, ArrayVec};
pub use stalls::{STALL_BOUNDS, Stalls};

use super::Tunnel;
use super::link::{Link, LinkState};
use crate::event::Event;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// Outages that are told of one by one: those of some minutes on a bad day. The counters have all.
pub(super) const MAX_TOLD: usize = 16;

/// An answer that comes within so long after it was overdue was late, and its link is no news: a queue that fills within a round trip,
/// or a handover of a radio link (50 to 150 ms).
pub(super) const BRIEF: Duration = Duration::from_millis(200);

/// By what an end knew that a link carries nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutageCause {
    /// An answer was overdue: nobody said anything.
    Silent,
    /// This end's kernel refused to send there.
    Refused,
    /// This end took the link out: its interface or address is gone, or a person said so.
    Removed,
    /// The peer said that nothing passes, or took the link out.
    Peer,
}

impl OutageCause {
    /// All of them, in the order of [`Outages::counts`].
    pub const ALL: [Self; 4] = [Self::Silent, Self::Refused, Self::Removed, Self::Peer];
}

/// A time in which a link carried nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// The link.
    pub link: LinkId,
    /// Its name.
    pub name: ArrayString<MAX_NAME>,
    /// When this end knew.
    pub at: Instant,
    /// By what.
    pub cause: OutageCause,
    /// Packets that were under way there and had to go over other links.
    pub moved: u64,
    /// Since when nothing of these was confirmed: when the oldest of what got no answer was sent.
    pub since: Instant,
    /// How long that was, from the sending of the first until one of them was confirmed, over whichever link. `None`: none is yet, or
    /// none was moved.
    pub stall: Option<Duration>,
    /// When the link answered again, or one of its name was taken in.
    pub returned: Option<Instant>,
    /// How sure it is, and whether the owner knows.
    pub stage: OutageStage,
}

/// How sure an outage is, and whether the owner knows of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutageStage {
    /// An answer is overdue, and may come yet.
    Suspected,
    /// It is counted.
    Confirmed,
    /// The owner was told.
    Reported,
}

/// The outages of a tunnel's links.
#[derive(Clone, Debug, Default)]
pub struct Outages {
    /// How many there were, in the order of [`OutageCause::ALL`].
    pub counts: [u64; OutageCause::ALL.len()],
    /// How often an answer was overdue and came within 200 ms all the same.
    pub brief: u64,
    /// Packets that were moved, for these too.
    pub moved: u64,
    /// How long what was moved stood still, in the order of [`OutageCause::ALL`], of each outage of `counts` where that is known.
    pub stalls: [Stalls; OutageCause::ALL.len()],
    /// The newest, oldest first.
    pub newest: ArrayVec<Outage, MAX_TOLD>,
}

impl Outages {
    /// A link carries nothing, as was known by this. `is_sure`: it is more than an answer that is overdue. `since`: when the oldest
    /// of what got no answer was sent; so many packets were moved. Returns the outage if it is to be told now.
    fn begin(
        &mut self,
        now: Instant,
        gone: &Gone,
        cause: OutageCause,
        is_sure: bool,
        moved: u64,
    ) -> Option<Outage> {
        self.moved += moved;
        if self.open_of(gone.id).is_none() {
            if self.newest.is_full() {
                self.newest.remove(0);
            }
            self.newest.push(Outage {
                link: gone.id,
                name: gone.name,
                at: now,
                cause,
                moved: 0,
                since: gone.since,
                stall: None,
                returned: None,
                stage: OutageStage::Suspected,
            });
        }
        let open = self.open_of(gone.id)?;
        if open.moved == 0 {
            open.since = gone.since;
        }
        open.moved += moved;
        if is_sure {
            self.confirm(gone.id);
        }
        self.news(gone.id)
    }

    /// One of the packets that were moved away from this link was confirmed. Returns the outage if it is to be told now.
    fn resume(&mut self, now: Instant, link: LinkId) -> Option<Outage> {
        let waits = |outage: &&mut Outage| outage.link == link && outage.stall.is_none();
        let outage = self.newest.iter_mut().rev().find(waits).filter(|outage| outage.moved > 0)?;
        let stall = now.since(outage.since);
        outage.stall = Some(stall);
        // A link that is suspected may only be late.
        if outage.stage != OutageStage::Suspected {
            self.stalls[outage.cause as usize].add(stall);
        }
        self.news(link)
    }

    /// The link answers again. Returns the outage if it is to be told now.
    fn end(&mut self, now: Instant, link: LinkId) -> Option<Outage> {
        let open = self.open_of(link)?;
        if open.stage == OutageStage::Suspected && now.since(open.at) < BRIEF {
            self.brief += 1;
            self.newest.retain(|outage| outage.link != link || outage.returned.is_some());
            return None;
        }
        open.returned = Some(now);
        self.confirm(link);
        self.resume(now, link).or_else(|| self.news(link))
    }

    /// A link of this name was taken in: one that left under it is back.
    fn replace(&mut self, now: Instant, name: &str) {
        let gone = |outage: &&mut Outage| outage.name.as_str() == name && outage.returned.is_none();
        self.newest.iter_mut().filter(gone).for_each(|outage| outage.returned = Some(now));
    }

    /// The newest outage of this link is one, and no late answer.
    fn confirm(&mut self, link: LinkId) {
        let newest = self.newest.iter_mut().rev().find(|outage| outage.link == link);
        if let Some(outage) = newest.filter(|outage| outage.stage == OutageStage::Suspected) {
            outage.stage = OutageStage::Confirmed;
            self.counts[outage.cause as usize] += 1;
            if let Some(stall) = outage.stall {
                self.stalls[outage.cause as usize].add(stall);
            }
        }
    }

    /// The newest outage of this link, if it is to be told now: once, when all is known but when the link is back.
    fn news(&mut self, link: LinkId) -> Option<Outage> {
        let outage = self.newest.iter_mut().rev().find(|outage| outage.link == link)?;
        let is_news = outage.stage == OutageStage::Confirmed && outage.stall.is_some();
        is_news.then(|| {
            outage.stage = OutageStage::Reported;
            *outage
        })
    }

    fn open_of(&mut self, link: LinkId) -> Option<&mut Outage> {
        self.newest.iter_mut().rev().find(|outage| outage.link == link && outage.returned.is_none())
    }

    /// Those of a later session belong to these.
    pub(crate) fn merge(&mut self, later: &Self) {
        for (count, more) in self.counts.iter_mut().zip(later.counts) {
            *count += more;
        }
        self.brief += later.brief;
        self.moved += later.moved;
        for (stalls, more) in self.stalls.iter_mut().zip(&later.stalls) {
            stalls.merge(more);
        }
        for outage in &later.newest {
            if self.newest.is_full() {
                self.newest.remove(0);
            }
            self.newest.push(*outage);
        }
    }
}

/// How a link stands that carries nothing any more.
pub(super) struct Gone {
    id: LinkId,
    name: ArrayString<MAX_NAME>,
    since: Instant,
    /// It never carried anything: that is no outage.
    is_joining: bool,
}

impl Gone {
    pub(super) fn of(now: Instant, link: &Link) -> Self {
        Self {
            id: link.id,
            name: link.name,
            since: link.sender.unanswered_since().unwrap_or(now),
            is_joining: link.life.state() == LinkState::Joining,
        }
    }
}

impl Tunnel {
    /// What was under way on a link was moved to others, so many packets, for this cause.
    pub(super) fn note_outage(
        &mut self,
        now: Instant,
        gone: &Gone,
        cause: OutageCause,
        moved: u64,
    ) {
        if !gone.is_joining {
            let news = self.outages.begin(now, gone, cause, true, moved);
            self.tell_outage(news);
        }
    }

    /// The same where an answer is overdue, and perhaps no more than that.
    pub(super) fn note_silence(&mut self, now: Instant, gone: &Gone, moved: u64) {
        let news = self.outages.begin(now, gone, OutageCause::Silent, false, moved);
        self.tell_outage(news);
    }

    /// Something was confirmed: perhaps packets that were moved to other links.
    pub(super) fn note_resumed(&mut self, now: Instant) {
        while let Some(link) = self.egress.poll_resumed() {
            let news = self.outages.resume(now, link);
            self.tell_outage(news);
        }
    }

    /// Something on link `at` was confirmed: it may be that it answers again.
    pub(super) fn note_answer(&mut self, now: Instant, at: usize) {
        let link = &self.links[at];
        if link.life.is_up() && !link.sender.is_suspect(now) {
            let news = self.outages.end(now, link.id);
            self.tell_outage(news);
        }
    }

    /// Link `at` was taken in.
    pub(super) fn note_joined(&mut self, now: Instant, at: usize) {
        let name = self.links[at].name;
        self.outages.replace(now, &name);
    }

    fn tell_outage(&mut self, news: Option<Outage>) {
        if let Some(outage) = news {
            self.outbox.tell(Event::PacketsMoved(outage));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn gone(id: u8, name: &str, since: u64) -> Gone {
        let name = ropewalk_settings::shortened(name);
        Gone { id: LinkId(id), name, since: at(since), is_joining: false }
    }

    #[test]
    fn what_happens_to_a_link_until_it_answers_is_one_outage_and_told_once() {
        let (mut outages, wlan) = (Outages::default(), gone(1, "wlan", 40));
        assert_eq!(outages.begin(at(100), &wlan, OutageCause::Silent, false, 30), None);
        assert_eq!(outages.resume(at(160), LinkId(1)), None, "it may be a late answer");
        assert_eq!(outages.counts, [0; 4]);
        let told =
            outages.begin(at(1100), &wlan, OutageCause::Silent, true, 2).expect("it is down");
        assert_eq!((told.stall, told.moved), (Some(Duration::from_millis(120)), 32));
        assert_eq!(outages.begin(at(1200), &wlan, OutageCause::Peer, true, 0), None);
        assert_eq!(outages.end(at(2000), LinkId(1)), None, "told of before");
        assert_eq!(
            outages.begin(at(3000), &gone(1, "wlan", 3000), OutageCause::Removed, true, 0),
            None
        );
        outages.replace(at(4000), "wlan");
        assert_eq!((outages.counts, outages.moved, outages.brief), ([1, 0, 1, 0], 32, 0));
        let returned: Vec<_> = outages.newest.iter().map(|outage| outage.returned).collect();
        assert_eq!(returned, [Some(at(2000)), Some(at(4000))]);
    }

    #[test]
    fn an_answer_that_is_late_is_no_outage_and_a_longer_silence_is_told_when_it_ends() {
        let (mut outages, wlan) = (Outages::default(), gone(1, "wlan", 40));
        outages.begin(at(100), &wlan, OutageCause::Silent, false, 3);
        assert_eq!(outages.end(at(130), LinkId(1)), None);
        assert_eq!((outages.brief, outages.moved, outages.newest.len()), (1, 3, 0));
        outages.begin(at(500), &gone(1, "wlan", 450), OutageCause::Silent, false, 3);
        let told = outages.end(at(900), LinkId(1)).expect("nothing was confirmed before");
        assert_eq!((told.stall, told.returned), (Some(Duration::from_millis(450)), Some(at(900))));
        assert_eq!((outages.counts, outages.brief), ([1, 0, 0, 0], 1));
    }

    #[test]
    fn what_somebody_says_is_sure_and_told_with_the_first_packet_that_is_confirmed() {
        let mut outages = Outages::default();
        let lte = gone(2, "lte", 80);
        assert_eq!(outages.begin(at(100), &lte, OutageCause::Refused, true, 5), None);
        let told = outages.resume(at(150), LinkId(2)).expect("the first");
        assert_eq!(
            (told.cause, told.stall),
            (OutageCause::Refused, Some(Duration::from_millis(70)))
        );
        assert_eq!(outages.resume(at(160), LinkId(2)), None);
        assert_eq!(outages.end(at(170), LinkId(2)), None);
        assert_eq!(outages.counts, [0, 1, 0, 0]);
    }

    #[test]
    fn each_stall_that_is_known_is_counted_once_by_its_cause_and_that_of_a_late_answer_is_not() {
        let (mut outages, ms) = (Outages::default(), Duration::from_millis);
        let known =
            |outages: &Outages| outages.stalls.map(|stalls| stalls.counts.iter().sum::<u64>());
        // What was moved is confirmed elsewhere, and the link answers soon: it was late.
        outages.begin(at(100), &gone(1, "wlan", 40), OutageCause::Silent, false, 3);
        outages.resume(at(120), LinkId(1));
        outages.end(at(130), LinkId(1));
        assert_eq!(known(&outages), [0; 4]);
        // The same, and it does not answer: known before it is sure.
        outages.begin(at(500), &gone(1, "wlan", 440), OutageCause::Silent, false, 3);
        outages.resume(at(530), LinkId(1));
        assert_eq!(known(&outages), [0; 4], "it may be a late answer");
        outages.begin(at(1500), &gone(1, "wlan", 440), OutageCause::Silent, true, 2);
        outages.resume(at(1600), LinkId(1));
        outages.end(at(2000), LinkId(1));
        // Sure before it is known; and one of which nothing was moved stands still for nobody.
        outages.begin(at(3000), &gone(2, "lte", 2990), OutageCause::Refused, true, 5);
        assert_eq!(known(&outages), [1, 0, 0, 0], "nothing of it is confirmed yet");
        outages.resume(at(3020), LinkId(2));
        outages.begin(at(4000), &gone(3, "eth", 4000), OutageCause::Removed, true, 0);
        outages.end(at(5000), LinkId(3));
        assert_eq!((known(&outages), outages.counts), ([1, 1, 0, 0], [1, 1, 1, 0]));
        assert_eq!(outages.stalls.map(|stalls| stalls.sum), [ms(90), ms(30), ms(0), ms(0)]);

        let mut both = outages.clone();
        both.merge(&outages);
        assert_eq!(known(&both), [2, 2, 0, 0]);
        assert_eq!(both.stalls[0].sum, ms(180));
    }

    #[test]
    fn the_newest_are_told_one_by_one_and_all_are_counted_over_sessions_too() {
        let (mut first, wlan) = (Outages::default(), gone(1, "wlan", 0));
        for ms in 0..20 {
            first.begin(at(ms), &wlan, OutageCause::Removed, true, 1);
            first.end(at(ms), LinkId(1));
        }
        let mut later = Outages::default();
        later.begin(at(50), &gone(2, "lte", 50), OutageCause::Refused, true, 5);
        first.merge(&later);
        assert_eq!((first.counts, first.moved, first.newest.len()), ([0, 1, 20, 0], 25, MAX_TOLD));
        assert_eq!(first.newest.last().map(|outage| outage.at), Some(at(50)));
        assert_eq!(first.newest.first().map(|outage| outage.at), Some(at(5)));
    }
}
