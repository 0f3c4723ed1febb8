//! Operations on the machines: the resequencer, a link's sender, and a whole tunnel with its network.

use std::collections::BTreeMap;

use rand::Rng;
use ropewalk_netlab::operation::{Mood, draw};
use ropewalk_netlab::play::Script;
use ropewalk_proto::link::carried::Carried;
use ropewalk_proto::link::received::{Range, Report};
use ropewalk_proto::link::reordering::Tolerance;
use ropewalk_proto::link::sender::{LinkSender, Via};
use ropewalk_proto::link::sent::{Fate, Sent, Settled};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::reseq::{Config, Evidence, EvidenceKind, Resequencer};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::ControllerKind;

use crate::input::Input;

/// Steps of one input.
const MOST: usize = 400;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    match input.byte() % 3 {
        0 => resequencer(&mut input),
        1 => sender(&mut input),
        _ => tunnel(&mut input),
    }
}

/// Arrivals as no honest network makes them: still nothing twice, nothing invented, all bounds kept.
fn resequencer(input: &mut Input<'_>) {
    let config = Config {
        settings: ropewalk_settings::Resequencer { buffer: 2000, ..Default::default() },
        max_packets: 64,
    };
    let mut reseq = Resequencer::new(config, 0);
    let mut tun = Once::default();
    let mut now = Instant::ZERO;
    let mut next = 0_u64;
    for step in 0..MOST {
        if input.is_empty() {
            break;
        }
        now += Duration::from_micros(u64::from(input.byte()).pow(2));
        let link = LinkId(input.byte() % 4);
        match input.byte() % 12 {
            0 => reseq.link_added(link, reseq.next_unseen()),
            1 => reseq.link_left(now, link, None, &mut tun),
            2 => reseq.link_left(now, link, Some(input.byte().into()), &mut tun),
            3 => reseq.link_down(now, link, &mut tun),
            4 => reseq.link_up(link),
            5 => reseq.link_rerouted(now, link),
            6 => {
                let lateness = Duration::from_micros(u64::from(input.byte()) * 100);
                let tolerance = Tolerance { distance: input.byte().into(), lateness };
                reseq.set_tolerance(link, tolerance);
            }
            7 if reseq.poll_timeout().is_some_and(|due| due <= now) => {
                reseq.handle_timeout(now, &mut tun);
                assert!(reseq.poll_timeout().is_none_or(|due| due > now), "a timer that spins");
            }
            _ => {
                let arrival = arrival(input, link, step as u64, &mut next);
                tun.offered = Some(arrival.global);
                tun.by_flow |= matches!(arrival.kind, EvidenceKind::FlowData { .. });
                let packet = arrival.global.to_be_bytes();
                let packet = &packet.repeat(1 + usize::from(input.byte() % 8));
                reseq.offer(now, &arrival, Packet::whole(packet), &mut tun);
            }
        }
        let stats = reseq.stats();
        assert!(stats.held <= config.max_packets && stats.held_bytes <= config.settings.buffer);
        let delivered = stats.in_order + stats.resequenced + stats.late;
        assert_eq!(delivered, tun.delivered.len() as u64);
    }
}

fn arrival(input: &mut Input<'_>, link: LinkId, step: u64, next: &mut u64) -> Evidence {
    let choice = input.byte();
    let jump = u64::from(input.byte());
    let global = match choice % 8 {
        0 => next.saturating_sub(jump),
        1 => *next + jump,
        2 => *next + (jump << 20),
        _ => *next,
    };
    *next = (*next).max(global + 1).min(1 << 40);
    let data = choice & 8 == 0;
    let distance = u64::from(input.byte());
    let kind = if data {
        let prev_on_link = (distance > 0).then(|| global.checked_sub(distance)).flatten();
        EvidenceKind::Data { prev_on_link }
    } else if let Some(distance) = distance.checked_sub(128) {
        let prev_of_flow = (distance > 0).then(|| global.checked_sub(distance)).flatten();
        EvidenceKind::FlowData { prev_of_flow }
    } else {
        EvidenceKind::Mark
    };
    let local = (step + u64::from(choice >> 4)).saturating_sub(8);
    Evidence { link, local, sent_us: (jump << 10) as i64 - 50_000, global, kind }
}

/// Takes each packet once, and only if it was offered; in the order of all as long as nothing else was asked for.
#[derive(Default)]
struct Once {
    offered: Option<u64>,
    by_flow: bool,
    highest: u64,
    delivered: BTreeMap<u64, ()>,
}

impl PacketSink for Once {
    fn deliver(&mut self, packet: Packet<'_>) {
        let (first, rest) =
            packet.bytes.split_first_chunk::<8>().expect("a number stands in front");
        let global = u64::from_be_bytes(*first);
        assert!(rest.chunks(8).all(|chunk| chunk == first), "altered");
        assert!(self.delivered.insert(global, ()).is_none(), "{global} twice");
        let in_order = global >= self.highest || self.offered == Some(global);
        assert!(in_order || self.by_flow, "{global} out of order");
        self.highest = self.highest.max(global);
    }
}

/// Reports as no honest peer makes them: every datagram settles in one of the ways there are.
fn sender(input: &mut Input<'_>) {
    let kind = if input.byte() & 1 == 0 { ControllerKind::Ccid2 } else { ControllerKind::Model };
    let mut sender = LinkSender::new(kind, 0);
    let mut fates: BTreeMap<u64, Fate> = BTreeMap::new();
    let mut now = Instant::ZERO;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        now += Duration::from_micros(u64::from(input.byte()).pow(2));
        let choice = input.byte();
        let mut settle = |settled: Settled| settled_once(&mut fates, settled);
        match choice % 4 {
            0 | 1 => {
                let in_window = choice & 4 == 0;
                let eliciting = in_window || choice & 8 == 0;
                let sent = Sent {
                    size: 1200,
                    header: 28,
                    places: if in_window { 1 + (choice >> 6) } else { 0 },
                    eliciting,
                    window_limited: choice & 16 == 0,
                    window_full: choice & 48 == 0,
                    paced: choice & 32 == 0,
                    carried: Carried::default(),
                };
                let number = sender.next_number();
                assert_eq!(sender.on_sent(now, sent), number);
            }
            2 => {
                let report = report(input, sender.next_number());
                let via = if choice & 4 == 0 { Via::Own } else { Via::Other };
                // A clock that jumps, stands still, and runs backwards.
                let sealed_us = (i64::from(input.byte()) - 128) << (input.byte() % 56);
                let before = sender.stats();
                if sender.on_report(now, &report, via, sealed_us, settle).is_err() {
                    assert_eq!(format!("{before:?}"), format!("{:?}", sender.stats()));
                }
            }
            _ => {
                sender.handle_timeout(now, &mut settle);
                assert!(sender.poll_timeout().is_none_or(|due| due > now), "a timer that spins");
            }
        }
        let stats = sender.stats();
        assert!((1..=*ControllerKind::WINDOW.end()).contains(&stats.window));
        assert!(sender.pacing_rate().is_none_or(|rate| rate.as_bps() > 0));
        // Each has four places at most.
        let open = u64::from(stats.in_flight).div_ceil(4);
        assert!(open + stats.confirmed + stats.lost <= stats.sent);
    }
}

fn settled_once(fates: &mut BTreeMap<u64, Fate>, settled: Settled) {
    let before = fates.insert(settled.number, settled.fate);
    let allowed = match settled.fate {
        Fate::Confirmed | Fate::Lost | Fate::TimedOut => before.is_none(),
        Fate::ConfirmedLate => matches!(before, Some(Fate::Lost | Fate::TimedOut)),
    };
    assert!(allowed, "{}: {before:?}, then {:?}", settled.number, settled.fate);
}

fn report(input: &mut Input<'_>, next: u64) -> Report {
    let mut ranges = ropewalk_proto::link::received::Ranges::new();
    let mut last = next
        .saturating_sub(u64::from(input.byte() % 16))
        .wrapping_add(u64::from(input.byte() % 8 == 7));
    for _ in 0..input.byte() % 6 {
        let first = last.saturating_sub(u64::from(input.byte() % 8));
        ranges.push(Range { first, last });
        last = first.saturating_sub(u64::from(input.byte() % 8));
    }
    let delay_us = u32::from(input.byte()) * 300;
    Report { link: LinkId(0), delay_us, ce_count: (input.byte() % 4).into(), ranges }
}

/// A few operations on a tunnel and its network, against the reference model.
fn tunnel(input: &mut Input<'_>) {
    let mood = [Mood::Wild, Mood::Orderly, Mood::Restless][usize::from(input.byte() % 3)];
    let links = 1 + usize::from(input.byte() % 3);
    let rekey_after = Duration::from_secs(1 + u64::from(input.byte() % 4));
    let seed = u64::from(input.byte());
    let count = input.random_range(1..=12);
    let script = Script { seed, links, rekey_after, operations: draw(input, mood, count) };
    let outcome = script.play();
    assert!(outcome.is_ok(), "{:?}\n{script:#?}", outcome.err());
}
