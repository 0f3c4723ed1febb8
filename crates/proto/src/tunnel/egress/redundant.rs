//! Packets that go over two links at once, so that the cut of a link is no gap for a call.
//!
//! A packet that is meant ([`Redundant`]) goes where the scheduler says, as any. When all that may leave in this turn has left, a *copy*
//! of it goes over the link of the others on which it arrives soonest: the same packet, under the same global number, in a
//! datagram of its own. The receiver delivers a number once (PROTOCOL §8.1). The bytes are those that [`repair`](super::repair) keeps until
//! either datagram is confirmed.
//!
//! A copy is sent now or never. It is withheld where no other link has room for it, and where it would exceed the budget. Nothing waits
//! for it, the scheduler does not hear of it, and it is no repair.
//!
//! Small copies for one link share a datagram, as new packets do ([`bundle`](super::bundle)).

use std::collections::VecDeque;

use ropewalk_settings::{Bitrate, Redundant};

use super::bundle::{Load, MAX_PACKETS, is_small};
use super::repair::{Repair, Unconfirmed, Way};
use super::resend::outgoing;
use super::{Egress, Outlet};
use crate::link::carried::Packets;
use crate::queue::Label;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::tunnel::link::Link;
use crate::tunnel::links::LinkSet;
use crate::tunnel::session::Made;
use crate::units::LinkId;
use crate::wire::frame::PACKET_FRAME_HEADER;
use crate::wire::header::OVERHEAD;

/// Packets of one turn that are to be copied: the largest budget allows no more small ones in what it saves up.
const MOST_WANTED: usize = 4096;

/// What was sent over two links at once, and what was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Redundancy {
    /// Packets sent a second time.
    pub packets: u64,
    /// What that cost, bytes at IP level.
    pub bytes: u64,
    /// Packets that went once because the budget was used up.
    pub over_budget: u64,
    /// What their copies would have cost, bytes at IP level.
    pub over_budget_bytes: u64,
    /// Packets that went once because no other link had room.
    pub no_room: u64,
}

/// Which packets go over two links, and which of them still have to.
#[derive(Debug)]
pub(super) struct Copies {
    settings: Redundant,
    budget: Budget,
    /// The global numbers of packets that left in this turn.
    wanted: VecDeque<u64>,
    redundancy: Redundancy,
}

impl Copies {
    /// Nothing has left.
    pub(super) fn new(now: Instant, settings: Redundant) -> Self {
        Self {
            budget: Budget { used_until: now },
            settings,
            wanted: VecDeque::new(),
            redundancy: Redundancy::default(),
        }
    }

    /// Whether this packet is one of those that go over two links.
    #[inline]
    pub(super) fn means(&self, label: &Label) -> bool {
        let Redundant { marked, ref ports, ref addresses, .. } = self.settings;
        let tuple = &label.meta.tuple;
        let has_port = |(source, destination)| {
            ports.iter().any(|range| range.contains(source) || range.contains(destination))
        };
        marked && label.dscp >= Redundant::LEAST_MARK
            || !ports.is_empty() && tuple.ports.is_some_and(has_port)
            || addresses.iter().any(|network| {
                network.contains(&tuple.source) || network.contains(&tuple.destination)
            })
    }

    /// The packet `global` left, and is to go over a second link.
    pub(super) fn want(&mut self, global: u64) {
        match self.wanted.len() < MOST_WANTED {
            true => self.wanted.push_back(global),
            false => self.redundancy.no_room += 1,
        }
    }

    /// Gives back memory that only matters while packets go.
    pub(super) fn release_memory(&mut self) {
        self.wanted = VecDeque::new();
    }

    /// The first packet goes once: the budget is used up.
    fn withhold(&mut self, bytes: u64) {
        self.wanted.pop_front();
        self.redundancy.over_budget += 1;
        self.redundancy.over_budget_bytes += bytes;
    }

    /// How many of the first packets share a datagram of at most so many bytes on `link`, and their bytes with frames.
    fn run(&self, repair: &Repair, link: LinkId, most: usize) -> (usize, usize) {
        let (mut count, mut framed, mut first, mut before) = (0, 0, None, None);
        for &global in self.wanted.iter().take(MAX_PACKETS) {
            let Some(kept) = repair.kept(global) else { break };
            let with = framed + PACKET_FRAME_HEADER + kept.packet.len();
            let (lowest, mark) = *first.get_or_insert((global, kept.sent.mark));
            // In a datagram numbers rise.
            let rises = before.replace(global).is_none_or(|before| before < global);
            let near = rises && global - lowest <= u64::from(u16::MAX);
            let fits = is_small(kept.packet.len()) && with <= most && kept.sent.mark == mark;
            if !(near && fits && kept.sent.link != link) {
                break;
            }
            (count, framed) = (count + 1, with);
        }
        (count, framed)
    }
}

impl Egress {
    /// From now on these packets go over two links.
    pub(in crate::tunnel) fn set_redundant(&mut self, settings: Redundant) {
        self.redundant.settings = settings;
    }

    /// What was sent over two links; `None`: nothing is, since the receiver would not know a copy.
    pub(in crate::tunnel) fn redundancy(&self) -> Option<Redundancy> {
        self.repair.as_ref().map(|_| self.redundant.redundancy)
    }

    /// Step 6: sends the copies of what left in this turn. `false`: the batch is full.
    #[inline]
    pub(super) fn send_copies<T: TransmitSink>(
        &mut self,
        now: Instant,
        to: &mut Outlet<'_, T>,
    ) -> bool {
        while let Some(&global) = self.redundant.wanted.front() {
            match self.send_copy(now, global, to) {
                Made::Sent => {}
                Made::Full => return false,
                // Nothing can be sealed now.
                Made::Refused => self.redundant.wanted.clear(),
            }
        }
        true
    }

    /// Sends a copy of the first packet that wants one, with others that share its datagram, or withholds it.
    fn send_copy<T: TransmitSink>(
        &mut self,
        now: Instant,
        global: u64,
        to: &mut Outlet<'_, T>,
    ) -> Made {
        let (Some(repair), copies) = (&mut self.repair, &mut self.redundant) else {
            return Made::Refused;
        };
        let Some(kept) = repair.kept(global) else {
            copies.wanted.pop_front();
            return Made::Sent;
        };
        let Some(at) = second_link(now, to.links, kept) else {
            copies.wanted.pop_front();
            copies.redundancy.no_room += 1;
            return Made::Sent;
        };
        let link = &mut to.links[at];
        let header = OVERHEAD + usize::from(link.path().header_len());
        let left = copies.budget.left(now, &copies.settings);
        let most = usize::from(link.inner_mtu()).min(left.saturating_sub(header));
        let (count, framed) = copies.run(repair, link.id, most);
        let body = if count > 1 { framed } else { kept.packet.len() };
        if body + header > left {
            copies.withhold((body + header) as u64);
            return Made::Sent;
        }
        let way = Way { link: link.id, number: link.sender.next_number() };
        let made = if count > 1 {
            let numbers = copies.wanted.iter().take(count);
            let packets =
                numbers.filter_map(|&global| Some(outgoing((global, repair.kept(global)?))));
            let last = copies.wanted.get(count - 1).copied().unwrap_or(global);
            let packed = Packets::several(global, last, count);
            let load = Load { framed, places: 1, ride: None, packets: packed };
            to.session.framed(now, link, &load, packets, to.out)
        } else {
            to.session.packet(now, link, &outgoing((global, kept)), None, to.out)
        };
        if made == Made::Sent {
            copies.budget.spend(now, body + header, copies.settings.budget);
            copies.redundancy.packets += count.max(1) as u64;
            copies.redundancy.bytes += (body + header) as u64;
            for global in copies.wanted.drain(..count.max(1)) {
                repair.on_copied(global, way);
            }
        }
        made
    }
}

/// The link on which a copy of this packet arrives soonest, of those that carry packets and have room for it now.
pub(super) fn second_link(now: Instant, links: &LinkSet, kept: &Unconfirmed) -> Option<usize> {
    let len = kept.packet.len();
    let takes = |link: &Link| {
        link.id != kept.sent.link
            && !link.agreed.is_kept_back()
            && link.carries(now)
            && len <= usize::from(link.inner_mtu())
            && link.takes_copy(now)
    };
    let arrives = |link: &Link| link.view_with_arrival(now, len).arrives_us.unwrap_or(i64::MAX);
    let others = links.iter().enumerate().filter(|(_, link)| takes(link));
    others.min_by_key(|(_, link)| arrives(link)).map(|(at, _)| at)
}

/// What copies may cost: a rate, of which some time is saved up.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Until when what was spent uses up the rate.
    used_until: Instant,
}

impl Budget {
    /// Bytes at IP level that may be spent now.
    fn left(&self, now: Instant, settings: &Redundant) -> usize {
        let used = u128::from(settings.budget.as_bps()) * self.used_until.since(now).as_nanos();
        let used = u64::try_from(used.div_ceil(8_000_000_000)).unwrap_or(u64::MAX);
        usize::try_from(settings.burst().saturating_sub(used)).unwrap_or(usize::MAX)
    }

    /// So many bytes left.
    fn spend(&mut self, now: Instant, bytes: usize, rate: Bitrate) {
        self.used_until = self.used_until.max(now) + rate.time_for(bytes as u64);
    }
}

#[cfg(test)]
mod tests;
