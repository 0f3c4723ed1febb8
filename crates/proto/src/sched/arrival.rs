//! Packets by arrival: each goes where it is soonest at the other end.
//!
//! A link that is open is no reason to use it. Where the soonest link is closed for a moment, another one is worth a
//! packet only if that comes before the others have delivered all that waits: else it would arrive last, and hold up
//! what was sent after it. So a flow with little to send takes the fastest link and no other, and a link that is worth
//! nothing gets nothing, without a threshold. (The rule of ECF, Lim et al. 2017, over more than two links, by
//! one-way delays.)
//!
//! A link on which an answer is overdue arrives never: the others take all, until it answers.
//!
//! A connection whose receiver's window is full gets nothing of a later link that would cost it more than it carries
//! (`arrival/least_under_way.rs`).
//!
//! What the schedule needs must be allowed to wait: with links whose delays differ by 100 ms the slow one is worth a
//! packet when the fast one delivers 100 ms' worth before it.

mod least_under_way;

use least_under_way::LeastUnderWay;
use ropewalk_settings::Bitrate;

use super::{Awaited, LinkFacts, LinkView, PacketMeta, Pick, Scheduler};
use crate::link::sensing::as_f64;
use crate::link::train::{TRAIN, takes_trains};
use crate::queue::Demand;
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// By how much later a packet may come than those after it, µs: more than delays vary on steady links, and the
/// resequencer holds little.
const MARGIN_US: i64 = 10_000;

/// Links whose delays differ by more are not waited for longer.
const MOST_SPREAD: Duration = Duration::from_millis(500);

/// A link is worth the whole wait for it if it carries one part in so many of what the sooner ones carry, and with less a part of the
/// wait: what waits lengthens the round trip of all.
const WORTH: u64 = 4;

/// A link of which nobody knows what it carries is worth a wait of so long, µs: that shows only when it is used, and it is used
/// only when so much waits.
const MOST_TRIED_US: u64 = 100_000;

/// The same where the wait lengthens no sender's round trip. A satellite is tried; beyond it a flow would stand still for longer
/// while the first bursts are on their way than the link is likely to give back.
const MOST_TRIED_AT_NO_COST_US: u64 = 350_000;

/// What the margin makes wait where that lengthens no sender's round trip, bytes at most: within the margin a later link is taken
/// without a wait, and what waits should stay in the processor's caches (at 5 Gbit/s links that differ by 10 ms had 6 MB).
const MOST_OF_MARGIN: u64 = 512 * 1024;

/// When a packet arrives on a link that is worth nothing to it, µs: after all others, but before never.
const UNWANTED_US: i64 = i64::MAX - 1;

/// Bytes of a full packet on the wire.
const FULL_PACKET: f64 = 1500.0;

/// Soonest arrival.
#[derive(Clone, Debug, Default)]
pub struct SoonestArrival {
    /// By how much longer than the fastest link the slowest one takes that is worth the wait.
    spread: Duration,
    demand: Demand,
    /// The link that took the last packet.
    last: Option<LinkId>,
    /// What has to be under way of all flows together for a link to be worth something beside the sooner ones, bytes.
    least_under_way: LeastUnderWay,
}

/// The link that has a packet there soonest, of all. If it is closed for a moment, one of those behind it may go on another: there it
/// arrives in its turn.
#[must_use]
pub fn soonest(links: &[LinkView]) -> Pick {
    let arrival = |link: &LinkView| link.arrives_us.unwrap_or(i64::MIN);
    // Of those alike, one with room.
    let least = links.iter().enumerate().min_by_key(|(_, link)| (arrival(link), link.room == 0));
    match least {
        Some((index, link)) if link.room > 0 => Pick::Send(index),
        _ => {
            let open = links.iter().enumerate().filter(|(_, link)| link.room > 0);
            let Some((open, _)) = open.min_by_key(|(_, link)| arrival(link)) else {
                return Pick::Blocked;
            };
            match usize::try_from(delivered_before(links, open, arrival)) {
                Ok(ahead) => Pick::SendBehind(open, ahead),
                Err(_) => Pick::Blocked,
            }
        }
    }
}

/// The bytes that the other links deliver before a packet on this one would arrive.
fn delivered_before(links: &[LinkView], on: usize, arrival: impl Fn(&LinkView) -> i64) -> u64 {
    let (id, arrives) = (links[on].id, arrival(&links[on]));
    let ahead = |link: &LinkView| arrives.saturating_sub(arrival(link)).saturating_sub(MARGIN_US);
    let others = links.iter().filter(|link| link.id != id);
    others.map(|link| link.delivers(ahead(link))).fold(0, u64::saturating_add)
}

impl Scheduler for SoonestArrival {
    fn pick(&mut self, _now: Instant, packet: &PacketMeta, links: &[LinkView]) -> Pick {
        let arrival = arrival_of(packet, links, &self.least_under_way);
        let by_arrival = || links.iter().map(&arrival).enumerate();
        let is_open = |(index, _): &(usize, i64)| links[*index].room > 0;
        let first = by_arrival().min_by_key(|(_, arrives)| *arrives);
        if let Some((first, soonest)) = first.filter(is_open) {
            // It goes on while it is no later than the soonest by more than a train: so trains are long, and arrive in long rows.
            let goes_on = |(index, at): &(usize, i64)| {
                let link = &links[*index];
                Some(link.id) == self.last
                    && takes_trains(Bitrate::from_bps(link.rate.saturating_mul(8)))
                    && at.saturating_sub(soonest) <= micros(TRAIN)
            };
            let last = by_arrival().filter(is_open).find(goes_on);
            let index = last.map_or(first, |(index, _)| index);
            self.last = Some(links[index].id);
            return Pick::Send(index);
        }
        let Some((open, _)) = by_arrival().filter(is_open).min_by_key(|(_, at)| *at) else {
            return Pick::Blocked;
        };
        // The flows that take turns share what the others deliver before this one would.
        let own = delivered_before(links, open, arrival) / packet.backlogged_flows.max(1) as u64;
        match usize::try_from(own) {
            Ok(0) => Pick::Send(open),
            Ok(own) if packet.backlog > own => Pick::SendBehind(open, own),
            _ => Pick::Blocked,
        }
    }

    fn refresh(&mut self, links: &[LinkFacts]) {
        let carrying = || links.iter().filter(|link| link.carries);
        let delay = |link: &LinkFacts| Some(link.one_way_us?.saturating_add(link.held_up_us));
        let known = || carrying().filter_map(|link| Some((delay(link)?, link.rate)));
        let Some(least) = known().map(|(delay, _)| delay).min() else { return };
        let worth = |link: &LinkFacts, tried_us: u64| {
            let (delay, rate) = (delay(link)?, link.rate);
            let later = u64::try_from(delay.saturating_sub(least)).unwrap_or(0);
            let sooner = known().filter(|(other, _)| *other < delay).map(|(_, rate)| rate).sum();
            let share = WORTH.saturating_mul(rate).min(sooner).max(1);
            let by_share = u128::from(later) * u128::from(share) / u128::from(sooner.max(1));
            let at_least = if link.opening { later.min(tried_us) } else { 0 };
            u64::try_from(by_share.max(u128::from(at_least))).ok()
        };
        let spread = |tried_us| {
            let most = carrying().filter_map(|link| worth(link, tried_us)).max().unwrap_or(0);
            Duration::from_micros(most).min(MOST_SPREAD)
        };
        // What the others deliver before the latest that is waited for.
        let ahead = |spread: Duration, margin_us: i64| {
            let latest = least.saturating_add(micros(spread)).saturating_sub(margin_us);
            let ahead = |(delay, rate): (i64, u64)| {
                let ahead = u64::try_from(latest.saturating_sub(delay)).unwrap_or(0);
                u64::try_from(u128::from(rate) * u128::from(ahead) / 1_000_000).unwrap_or(u64::MAX)
            };
            known().map(ahead).fold(0, u64::saturating_add)
        };
        self.spread = spread(MOST_TRIED_US);
        let shortest = carrying().filter_map(|link| link.srtt).min().unwrap_or_default();
        self.least_under_way = LeastUnderWay::of(carrying(), shortest);
        let open = |link: &LinkFacts| {
            let trip = link.srtt.unwrap_or_default().as_secs_f64();
            link.loss * trip * as_f64(Bitrate::from_bps(link.rate)) / FULL_PACKET
        };
        let sum = |rates: &mut dyn Iterator<Item = u64>| rates.fold(0, u64::saturating_add);
        let rate = sum(&mut known().map(|(_, rate)| rate));
        let opening = sum(&mut carrying().filter(|link| link.opening).map(|link| link.rate));
        let tried = spread(MOST_TRIED_AT_NO_COST_US);
        let without_margin = ahead(tried, MARGIN_US);
        self.demand = Demand {
            rate,
            bytes: ahead(self.spread, 0),
            bytes_at_no_cost: ahead(tried, 0).min(without_margin.saturating_add(MOST_OF_MARGIN)),
            round_trip: self.spread + shortest,
            repairs: carrying().map(open).sum(),
            opening: opening > rate / 2,
        };
    }

    fn awaited(&self, packet: &PacketMeta, links: &[LinkView]) -> Option<Awaited> {
        let mut asked = self.clone();
        if asked.pick(Instant::ZERO, packet, links) != Pick::Blocked {
            return None;
        }
        let arrival = arrival_of(packet, links, &self.least_under_way);
        let first = links.iter().min_by_key(|link| arrival(link))?;
        let open = links.iter().filter(|link| link.room > 0).map(&arrival).min();
        let later = open.filter(|open| *open < UNWANTED_US).map(|open| {
            let later = open.saturating_sub(arrival(first));
            Duration::from_micros(u64::try_from(later).unwrap_or(0))
        });
        Some(Awaited { link: first.id, later })
    }

    fn looks_at_arrivals(&self) -> bool {
        true
    }

    fn allowance(&self) -> Duration {
        self.spread
    }

    fn demand(&self) -> Option<Demand> {
        Some(self.demand)
    }
}

/// When a packet arrives on each of the links, µs.
fn arrival_of(
    packet: &PacketMeta,
    links: &[LinkView],
    least_under_way: &LeastUnderWay,
) -> impl Fn(&LinkView) -> i64 {
    // A link of which nothing is known yet is tried as if it were as soon as any.
    let soonest = links.iter().filter_map(|link| link.arrives_us).min().unwrap_or(0);
    // Of a flow of which more waits, what comes behind a lost packet waits for it.
    let follows = packet.backlog > packet.len;
    // Most windows may still open.
    let is_bounded = packet.most_under_way < u32::MAX;
    let of_all = u64::from(packet.most_under_way) * packet.backlogged_flows.max(1) as u64;
    move |link| {
        if is_bounded && least_under_way.is_worth_nothing(link.id, of_all) {
            return UNWANTED_US;
        }
        let held_up = if follows { link.held_up_us } else { 0 };
        link.arrives_us.map_or(soonest, |arrives| arrives.saturating_add(held_up))
    }
}

/// A duration in µs.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Losses;

    /// Links by room, arrival in ms, and rate in kB/s.
    fn links<const N: usize>(links: [(u32, i64, u64); N]) -> Vec<LinkView> {
        (0..)
            .zip(links)
            .map(|(id, (room, ms, rate))| LinkView {
                arrives_us: Some(ms * 1000),
                rate: rate * 1000,
                ..LinkView::of_room(LinkId(id), room)
            })
            .collect()
    }

    fn pick(backlog: usize, links: &[LinkView]) -> Pick {
        let packet = PacketMeta { backlog, ..PacketMeta::of_len(1400) };
        SoonestArrival::default().pick(Instant::ZERO, &packet, links)
    }

    #[test]
    fn the_soonest_link_takes_it_while_it_is_open() {
        assert_eq!(pick(1_000_000, &links([(1, 50, 1000), (9, 60, 9000)])), Pick::Send(0));
        assert_eq!(pick(1400, &links([(9, 60, 9000), (1, 50, 1000)])), Pick::Send(1));
    }

    #[test]
    fn a_link_goes_on_until_another_is_sooner_by_more_than_a_train_is_worth() {
        let mut scheduler = SoonestArrival::default();
        let packet = PacketMeta { backlog: 1_000_000, ..PacketMeta::of_len(1400) };
        let mut links = links([(9, 10, 100_000), (9, 10, 100_000)]);
        let mut picks = Vec::new();
        for _ in 0..100 {
            let Pick::Send(index) = scheduler.pick(Instant::ZERO, &packet, &links) else {
                panic!("both are open");
            };
            picks.push(index);
            // 14 µs a packet.
            links[index].arrives_us = links[index].arrives_us.map(|at| at + 14);
        }
        let trains = picks.chunk_by(|one, next| one == next).map(<[usize]>::len);
        assert_eq!(trains.take(2).collect::<Vec<_>>(), [18, 36]);
        // One that is shut does not go on.
        let last = picks[99];
        links[last].room = 0;
        links[1 - last].arrives_us = links[last].arrives_us;
        assert_ne!(scheduler.pick(Instant::ZERO, &packet, &links), Pick::Send(last));
    }

    #[test]
    fn slow_links_take_turns_packet_by_packet() {
        let mut scheduler = SoonestArrival { last: Some(LinkId(1)), ..SoonestArrival::default() };
        let packet = PacketMeta { backlog: 1_000_000, ..PacketMeta::of_len(1400) };
        for (kilobytes, index) in [(12_499, 0), (12_500, 1)] {
            let links = links([(9, 10, kilobytes), (9, 10, kilobytes)]);
            assert_eq!(scheduler.pick(Instant::ZERO, &packet, &links), Pick::Send(index));
            scheduler.last = Some(LinkId(1));
        }
    }

    #[test]
    fn a_later_link_takes_what_the_others_could_not_deliver_before_it() {
        // 50 ms later, 10 of which do not count: the soonest delivers 40 kB until then.
        let links = links([(0, 10, 1000), (5, 60, 1000)]);
        assert_eq!(pick(40_000, &links), Pick::Blocked);
        assert_eq!(pick(40_001, &links), Pick::SendBehind(1, 40_000));
    }

    #[test]
    fn a_packet_that_waits_waits_for_the_soonest_link_and_not_for_a_later_one_that_has_room() {
        let awaited = |backlog, links: &[LinkView]| {
            let packet = PacketMeta { backlog, ..PacketMeta::of_len(1400) };
            SoonestArrival::default().awaited(&packet, links)
        };
        let two = links([(0, 10, 1000), (5, 60, 1000)]);
        let later = Some(Duration::from_millis(50));
        assert_eq!(awaited(40_000, &two), Some(Awaited { link: LinkId(0), later }));
        assert_eq!(awaited(40_001, &two), None, "the later link takes one");
        let full = links([(0, 30, 1000), (0, 20, 1000)]);
        assert_eq!(awaited(1400, &full), Some(Awaited { link: LinkId(1), later: None }));
        assert_eq!(awaited(1400, &links([(1, 10, 1000)])), None);
    }

    #[test]
    fn all_links_that_are_sooner_count_and_those_that_are_later_do_not() {
        let links = links([(0, 10, 1000), (0, 30, 2000), (5, 60, 500), (0, 200, 9000)]);
        assert_eq!(pick(40_000 + 40_000, &links), Pick::Blocked);
        assert_eq!(pick(40_000 + 40_001, &links), Pick::SendBehind(2, 80_000));
    }

    #[test]
    fn flows_that_take_turns_share_what_the_others_deliver() {
        let links = links([(0, 10, 1000), (5, 60, 1000)]);
        let pick = |backlog| {
            let packet = PacketMeta { backlog, backlogged_flows: 4, ..PacketMeta::of_len(1400) };
            SoonestArrival::default().pick(Instant::ZERO, &packet, &links)
        };
        assert_eq!((pick(10_000), pick(10_001)), (Pick::Blocked, Pick::SendBehind(1, 10_000)));
    }

    #[test]
    fn the_queue_holds_what_the_sooner_links_deliver_before_the_latest() {
        let fact = |id, ms: i64, rate, srtt| LinkFacts {
            one_way_us: Some(ms * 1000),
            rate,
            srtt: Some(Duration::from_millis(srtt)),
            ..LinkFacts::unknown(LinkId(id))
        };
        let mut scheduler = SoonestArrival::default();
        assert_eq!(scheduler.demand(), Some(Demand::default()));
        scheduler.refresh(&[fact(0, 10, 4000, 25), fact(1, 40, 2000, 80), fact(2, 90, 2000, 170)]);
        let demand = Demand {
            rate: 8000,
            bytes: 4000 * 80 / 1000 + 2000 * 50 / 1000,
            bytes_at_no_cost: 4000 * 80 / 1000 + 2000 * 50 / 1000,
            round_trip: Duration::from_millis(80 + 25),
            repairs: 0.0,
            opening: false,
        };
        assert_eq!(scheduler.demand(), Some(demand));
        // 1 MB/s, of which 1.5 % are lost: one packet in 100 ms, for so long as a round trip takes.
        let lossy = LinkFacts { loss: 0.015, ..fact(0, 10, 1_000_000, 50) };
        scheduler.refresh(&[lossy, fact(1, 10, 1_000_000, 50)]);
        let repairs = scheduler.demand().map_or(0.0, |demand| demand.repairs);
        assert!((repairs - 0.5).abs() < 0.01, "{repairs}");
        // Of the later nobody knows yet what it carries.
        let unknown = LinkFacts { opening: true, ..fact(1, 310, 1000, 620) };
        scheduler.refresh(&[fact(0, 10, 1_000_000, 20), unknown]);
        let demand = scheduler.demand().unwrap_or_default();
        assert_eq!((demand.bytes, demand.bytes_at_no_cost), (100_000, 300_000));
        // Of the 15 ms of fast links, the 10 of the margin are no reason for megabytes.
        scheduler.refresh(&[fact(0, 10, 500_000_000, 20), fact(1, 25, 500_000_000, 50)]);
        let demand = scheduler.demand().unwrap_or_default();
        assert_eq!(
            (demand.bytes, demand.bytes_at_no_cost),
            (7_500_000, 2_500_000 + MOST_OF_MARGIN)
        );
    }

    #[test]
    fn a_link_that_is_opening_delivers_more_meanwhile_than_its_rate_says() {
        let mut links = links([(0, 10, 100), (1, 130, 1000)]);
        assert_eq!(pick(11_001, &links), Pick::SendBehind(1, 11_000));
        links[0].doubles_us = Some(25_000);
        // Within 110 ms it doubles four times.
        assert_eq!(
            (pick(59_000, &links), pick(60_000, &links)),
            (Pick::Blocked, Pick::SendBehind(1, 59_583))
        );
        links[0].doubles_us = Some(0);
        assert_eq!(pick(11_001, &links), Pick::SendBehind(1, 11_000));
    }

    #[test]
    fn links_as_fast_as_each_other_are_both_used() {
        assert_eq!(pick(1400, &links([(0, 25, 6000), (3, 20, 6000)])), Pick::Send(1));
        assert_eq!(pick(1400, &links([(0, 20, 6000), (3, 25, 6000)])), Pick::Send(1));
    }

    #[test]
    fn a_link_of_which_nothing_is_known_is_better_than_none() {
        let unknown = LinkView::of_room(LinkId(0), 4);
        assert_eq!(pick(1400, &[unknown]), Pick::Send(0));
        let known = links([(0, 20, 6000)])[0];
        let other = LinkView { id: LinkId(1), ..known };
        assert_eq!(pick(1400, &[unknown, other]), Pick::Send(0));
        assert_eq!(pick(1400, &[other, LinkView { id: LinkId(0), ..unknown }]), Pick::Send(1));
        let open = LinkView { room: 1, ..other };
        assert_eq!(pick(1400, &[LinkView { room: 0, ..unknown }, open]), Pick::Send(1));
    }

    /// 300 Mbit/s and 8 ms; beside it 30 Mbit/s and 40 ms, where packets wait 160 ms more for what is lost.
    fn fiber_and_lossy_lte() -> (SoonestArrival, Vec<LinkView>) {
        let fact = |id, ms: i64, held_up_ms: i64, kilobytes: u64| LinkFacts {
            one_way_us: Some(ms * 1000),
            losses: Losses {
                held_up_us: held_up_ms * 1000,
                repair_us: held_up_ms * 1000,
                share: 0.01,
            },
            rate: kilobytes * 1000,
            srtt: Some(Duration::from_millis(2 * u64::try_from(ms).unwrap())),
            ..LinkFacts::unknown(LinkId(id))
        };
        let mut scheduler = SoonestArrival::default();
        scheduler.refresh(&[fact(0, 8, 0, 36_000), fact(1, 40, 160, 3600)]);
        (scheduler, links([(0, 8, 36_000), (9, 40, 3600)]))
    }

    #[test]
    fn a_later_link_gets_nothing_of_a_connection_whose_window_the_sooner_ones_fill_meanwhile() {
        // 192 ms later than the first, and that takes 16. From one lost in a hundred to the next it carries what takes the first 4.2.
        let needed = (36_000 + 3600) * 208 - (36_000 + 3600) * 25 / 6;
        for (most_under_way, flows, expected) in [
            (u32::MAX, 1, true),
            (needed - 10, 1, false),
            (needed + 10, 1, true),
            (needed / 4 - 10, 4, false),
            (needed / 4 + 10, 4, true),
        ] {
            let (mut scheduler, links) = fiber_and_lossy_lte();
            let packet = PacketMeta {
                backlog: 10_000_000,
                backlogged_flows: flows,
                most_under_way,
                ..PacketMeta::of_len(1400)
            };
            let picked = scheduler.pick(Instant::ZERO, &packet, &links);
            assert_eq!(matches!(picked, Pick::SendBehind(1, _)), expected, "{most_under_way}");
        }
    }

    #[test]
    fn a_link_that_is_worth_nothing_is_better_than_one_that_does_not_answer() {
        let (mut scheduler, mut links) = fiber_and_lossy_lte();
        let packet =
            PacketMeta { backlog: 10_000_000, most_under_way: 64_000, ..PacketMeta::of_len(1400) };
        assert_eq!(scheduler.pick(Instant::ZERO, &packet, &links), Pick::Blocked);
        links[0].arrives_us = Some(i64::MAX);
        assert_eq!(scheduler.pick(Instant::ZERO, &packet, &links), Pick::Send(1));
        assert_eq!(scheduler.pick(Instant::ZERO, &packet, &links[1..]), Pick::Send(0), "alone");
    }

    #[test]
    fn packets_may_wait_for_as_long_as_the_links_differ() {
        let mut scheduler = SoonestArrival::default();
        let fact = |id, one_way_us, carries| LinkFacts {
            one_way_us,
            carries,
            rate: 1_000_000,
            ..LinkFacts::unknown(LinkId(id))
        };
        let narrow = |id, us| LinkFacts { rate: 50_000, ..fact(id, Some(us), true) };
        let fresh = |id, us| LinkFacts { opening: true, ..narrow(id, us) };
        for (facts, millis) in [
            (vec![], 0),
            (vec![fact(0, None, true)], 0),
            (vec![fact(0, Some(-7_000), true), fact(1, Some(93_000), true)], 100),
            (vec![fact(0, Some(5_000), true), fact(1, Some(905_000), false)], 0),
            (vec![fact(0, Some(5_000), true), fact(1, Some(905_000), true)], 500),
            // A fifth of what would be worth it all, but where nobody knows yet.
            (vec![fact(0, Some(5_000), true), narrow(1, 405_000)], 80),
            (vec![fact(0, Some(5_000), true), fresh(1, 405_000)], 100),
            (vec![fact(0, Some(5_000), true), fresh(1, 55_000)], 50),
            (vec![narrow(0, 5_000), fact(1, Some(405_000), true)], 400),
        ] {
            scheduler.refresh(&facts);
            assert_eq!(scheduler.allowance(), Duration::from_millis(millis));
        }
    }
}
