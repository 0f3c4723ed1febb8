//! What a scheduler's decision costs: choosing one of four links for a full packet, and noting that it went.
//!
//! `cargo bench -p ropewalk-proto --bench scheduler`. The goal is 100 ns a decision: at 10 Gbit/s a full packet leaves
//! every 1,150.

use std::hint::black_box;

use criterion::Criterion;
use ropewalk_proto::packet::FlowKey;
use ropewalk_proto::sched::{AnyScheduler, LinkFacts, LinkView, PacketMeta, Pick, Scheduler};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, SchedulerKind};

/// Flows whose packets come in turn: more than the nearest cache holds of SAFIRE's table, fewer than the table does.
const FLOWS: usize = 1024;
/// Between two packets: at 1 Gbit/s.
const GAP: Duration = Duration::from_nanos(11_500);

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("decision");
    for kind in SchedulerKind::ALL {
        let mut scheduler = AnyScheduler::new(Instant::ZERO, &kind.into());
        scheduler.refresh(&facts());
        let (links, packets) = (links(), packets());
        let (mut now, mut next) = (Instant::ZERO, 0);
        let mut decide = || {
            now += GAP;
            next = (next + 1) % FLOWS;
            let packet = black_box(&packets[next]);
            let pick = scheduler.pick(now, packet, black_box(&links));
            if let Pick::Send(index) = pick {
                scheduler.on_sent(now, packet, links[index].id);
            }
            pick
        };
        // Every flow is known by then.
        (0..2 * FLOWS).for_each(|_| assert!(matches!(decide(), Pick::Send(_)), "{kind}"));
        group.bench_function(kind.to_string(), |bencher| bencher.iter(&mut decide));
    }
    group.finish();
    criterion.final_summary();
}

/// Four links with room.
fn links() -> [LinkView; 4] {
    [0, 1, 2, 3].map(|id| LinkView::of_room(LinkId(id), 20 + u32::from(id)))
}

/// Each carries another rate, so that it has another weight.
fn facts() -> [LinkFacts; 4] {
    [(0, 4_000), (1, 3_000), (2, 2_000), (3, 1_000)].map(|(id, kbps)| LinkFacts {
        capacity: Some(Bitrate::from_kbps(kbps)),
        throughput: Some(f64::from(kbps) / 8.0),
        ..LinkFacts::unknown(LinkId(id))
    })
}

/// A full packet of each flow.
fn packets() -> Vec<PacketMeta> {
    let key = |n: u64| FlowKey(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let packet = |n| PacketMeta { flow: key(n), ..PacketMeta::of_len(1400) };
    (0..FLOWS as u64).map(packet).collect()
}
