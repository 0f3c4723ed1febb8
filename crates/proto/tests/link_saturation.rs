//! A sender that always has packets, one bottleneck with a drop-tail queue, and the receiver's reports: the
//! link is used to the full, and the reports cost little.

#![expect(clippy::unwrap_used, reason = "a test may panic in its helpers too")]

use std::collections::VecDeque;

use ropewalk_proto::link::carried::Carried;
use ropewalk_proto::link::received::Report;
use ropewalk_proto::link::receiver::{LinkReceiver, NumberedDatagram};
use ropewalk_proto::link::sender::{LinkSender, SenderStats, Via};
use ropewalk_proto::link::sent::Sent;
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, ControllerKind};

const SIZE: u32 = 1450;
const RUN: Duration = Duration::from_secs(10);
/// IP and UDP.
const BELOW: u64 = 28;

struct Bottleneck {
    mbit: u64,
    rtt: Duration,
    /// How much the queue holds, as time at the link's rate.
    queue: Duration,
}

struct Result {
    delivered_percent: u64,
    reports_permille: u64,
    stats: SenderStats,
}

#[test]
fn a_saturated_link_is_used_to_the_full() {
    let ms = Duration::from_millis;
    // Mbit/s, round trip, queue, at least so many percent in the first 10 s, reports at most so many permille.
    let table = [
        (8, 10, 100, 97, 30),
        (2, 100, 100, 97, 30),
        (100, 20, 20, 95, 10),
        (100, 1, 50, 97, 10),
        (1000, 2, 10, 95, 10),
        (1000, 40, 40, 90, 10),
        (50, 300, 100, 50, 15),
        (1, 600, 500, 75, 30),
    ];
    for (mbit, rtt, queue, percent, permille) in table {
        let result = saturate(&Bottleneck { mbit, rtt: ms(rtt), queue: ms(queue) });
        let Result { delivered_percent, reports_permille, stats } = result;
        println!(
            "{mbit} Mbit/s {rtt} ms: {delivered_percent} %, reports {reports_permille} permille"
        );
        assert!(
            delivered_percent >= percent,
            "{mbit} Mbit/s {rtt} ms: {delivered_percent} % {stats:?}"
        );
        assert!(
            reports_permille <= permille,
            "{mbit} Mbit/s {rtt} ms: {reports_permille} permille"
        );
        assert_eq!(stats.timeouts, 0, "{mbit} Mbit/s {rtt} ms: {stats:?}");
        assert!(stats.min_rtt.unwrap() >= ms(rtt), "{stats:?}");
        assert!(stats.srtt.unwrap() <= ms(rtt + queue) + ms(25), "{stats:?}");
    }
}

fn saturate(link: &Bottleneck) -> Result {
    let mut sender = LinkSender::new(ControllerKind::Ccid2, 0);
    let mut receiver = LinkReceiver::new(LinkId(0), 0);
    let rate = Bitrate::from_mbps(link.mbit);
    let per_datagram = rate.time_for(u64::from(SIZE) + BELOW);
    let mut now = Instant::from_millis(1);
    let end = now + RUN;
    let mut free_at = now;
    let mut forward: VecDeque<(Instant, u64)> = VecDeque::new();
    let mut back: VecDeque<(Instant, Report)> = VecDeque::new();
    let (mut delivered, mut report_bytes) = (0, 0);
    while now < end {
        while let Some(report) = take_due(&mut back, now) {
            sender.on_report(now, &report, Via::Own, 0, |_| {}).unwrap();
        }
        sender.handle_timeout(now, |_| {});
        while sender.room() > 0 {
            let sent = Sent {
                size: SIZE,
                header: 0,
                places: 1,
                eliciting: true,
                window_limited: true,
                window_full: true,
                paced: false,
                carried: Carried::default(),
            };
            let number = sender.on_sent(now, sent);
            if free_at.since(now) <= link.queue {
                free_at = free_at.max(now) + per_datagram;
                forward.push_back((free_at + link.rtt / 2, number));
            }
        }
        while let Some(number) = take_due(&mut forward, now) {
            let arrival = NumberedDatagram { number, size: SIZE, eliciting: 1, ce: false };
            receiver.on_datagram(now, arrival);
            delivered += u64::from(SIZE) + BELOW;
        }
        receiver.end_of_batch(now);
        if let Some(report) = receiver.poll_report(now) {
            let token = receiver.report_sent(now, &report);
            // 60 bytes with one range, 4 more for each further one, and IP and UDP.
            report_bytes += 60 + BELOW + 4 * (report.ranges.len() as u64 - 1);
            back.push_back((now + link.rtt / 2, report));
            // The way back loses nothing, so that the report is as good as confirmed.
            receiver.on_report_confirmed(now, token);
        }
        let network = earliest(forward.front().map(|at| at.0), back.front().map(|at| at.0));
        let timers = earliest(sender.poll_timeout(), receiver.poll_timeout());
        now = earliest(network, timers).unwrap();
    }
    let capacity = link.mbit * 1_000_000 / 8 * RUN.as_secs();
    Result {
        delivered_percent: delivered * 100 / capacity,
        reports_permille: report_bytes * 1000 / delivered,
        stats: sender.stats(),
    }
}

fn take_due<T>(flying: &mut VecDeque<(Instant, T)>, now: Instant) -> Option<T> {
    flying.front().filter(|(at, _)| *at <= now)?;
    flying.pop_front().map(|(_, what)| what)
}
