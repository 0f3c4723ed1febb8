//! What an expiry should release: the paper says "one packet" and is silent whether those that directly
//! follow it go too. Both, on the links of the demo (8 Mbit/s 5 ms and 2 Mbit/s 50 ms one way), in virtual
//! time. The table it prints stands in docs/RESEQUENCER.md.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::reseq::{Config, Evidence, EvidenceKind, Resequencer, Stats};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Release, Resequencer as Settings};
use std::collections::BTreeMap;

const SEED: u64 = 7;
const LENGTH: Duration = Duration::from_secs(120);
const DATAGRAM: u64 = 1460;

#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    /// Independent loss on both links.
    loss: f64,
    /// A stall of the slow link: how often, how long at most. It keeps its order through it.
    stall: Option<(Duration, Duration)>,
    /// A third link that is live but sends no marks, and no previous numbers: nothing can be proven.
    proof: bool,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "no loss", loss: 0.0, stall: None, proof: true },
    Scenario { name: "1 % loss", loss: 0.01, stall: None, proof: true },
    Scenario { name: "1 % loss, no proof", loss: 0.01, stall: None, proof: false },
    Scenario {
        name: "stalls of 50-300 ms",
        loss: 0.0,
        stall: Some((Duration::from_secs(1), Duration::from_millis(300))),
        proof: true,
    },
    Scenario {
        name: "stalls, 1 % loss, no proof",
        loss: 0.01,
        stall: Some((Duration::from_secs(1), Duration::from_millis(300))),
        proof: false,
    },
];

#[derive(Default)]
struct Out {
    delivered: u64,
    out_of_order: u64,
    highest: u64,
}

impl PacketSink for Out {
    fn deliver(&mut self, packet: Packet<'_>) {
        let global = u64::from_be_bytes(packet.bytes.try_into().expect("packets here are numbers"));
        self.delivered += 1;
        self.out_of_order += u64::from(global < self.highest);
        self.highest = self.highest.max(global);
    }
}

struct Link {
    rate: Bitrate,
    delay: Duration,
    /// When the last datagram has left the sender's end.
    busy_until: Instant,
    latest: Instant,
    stalled_until: Instant,
    next_local: u64,
    last_data: Option<u64>,
}

/// The datagrams of a run by arrival, and how many arrive.
fn arrivals(scenario: &Scenario) -> BTreeMap<(Instant, u64), Evidence> {
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut links = [(8, 5), (2, 50)].map(|(mbit, ms)| Link {
        rate: Bitrate::from_mbps(mbit),
        delay: Duration::from_millis(ms),
        busy_until: Instant::ZERO,
        latest: Instant::ZERO,
        stalled_until: Instant::ZERO,
        next_local: 0,
        last_data: None,
    });
    let mut arrivals = BTreeMap::new();
    let mut next_stall = Instant::ZERO;
    for global in 0.. {
        // The link that is free first takes the packet: what a full window does.
        let index = usize::from(links[1].busy_until < links[0].busy_until);
        let link = &mut links[index];
        let now = link.busy_until;
        if now.since(Instant::ZERO) > LENGTH {
            return arrivals;
        }
        if let Some((every, longest)) = scenario.stall
            && index == 1
            && now >= next_stall
        {
            let length = rng.random_range(Duration::from_millis(50)..longest);
            link.stalled_until = now + length;
            next_stall = now + every;
        }
        link.busy_until += link.rate.time_for(DATAGRAM);
        let jitter = Duration::from_micros(rng.random_range(0..2_000));
        let arrives =
            (link.busy_until.max(link.stalled_until) + link.delay + jitter).max(link.latest);
        link.latest = arrives;
        let prev_on_link = link.last_data.replace(global).filter(|_| scenario.proof);
        let arrival = Evidence {
            link: LinkId(u8::try_from(index).expect("two links")),
            local: link.next_local,
            sent_us: i64::try_from(now.as_micros()).expect("short"),
            global,
            kind: EvidenceKind::Data { prev_on_link },
        };
        link.next_local += 1;
        if !rng.random_bool(scenario.loss) {
            arrivals.insert((arrives, global), arrival);
        }
    }
    arrivals
}

fn run(scenario: &Scenario, release: Release) -> (Stats, Out) {
    let settings = Settings { release, ..Settings::default() };
    let mut reseq = Resequencer::new(Config { settings, ..Config::default() }, 0);
    for link in 0..if scenario.proof { 2 } else { 3 } {
        reseq.link_added(LinkId(link), 0);
    }
    let mut out = Out::default();
    for ((at, global), arrival) in arrivals(scenario) {
        while let Some(due) = reseq.poll_timeout().filter(|due| *due < at) {
            reseq.handle_timeout(due, &mut out);
        }
        reseq.offer(at, &arrival, Packet::whole(&global.to_be_bytes()), &mut out);
    }
    while let Some(due) = reseq.poll_timeout() {
        reseq.handle_timeout(due, &mut out);
    }
    (reseq.stats(), out)
}

#[test]
fn draining_waits_less_than_releasing_one_and_orders_lossy_links_better() {
    println!(
        "| scenario | release | delivered | waited | wait p50 ms | wait p99 ms | out of order | expiries |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for scenario in &SCENARIOS {
        let [one, drain] = [Release::One, Release::Drain].map(|release| {
            let (stats, out) = run(scenario, release);
            println!(
                "| {} | {release:?} | {} | {} | {:.1} | {:.1} | {} | {} |",
                scenario.name,
                out.delivered,
                stats.resequenced,
                stats.wait_p50_us as f64 / 1e3,
                stats.wait_p99_us as f64 / 1e3,
                out.out_of_order,
                stats.expiries,
            );
            (stats, out)
        });
        let arrived = arrivals(scenario).len() as u64;
        assert_eq!((one.1.delivered, drain.1.delivered), (arrived, arrived), "{}", scenario.name);
        assert!(drain.0.wait_p99_us <= one.0.wait_p99_us, "{}", scenario.name);
        // In a stall the timer that starts again waits longer, for the little order that buys.
        if scenario.stall.is_none() {
            assert!(drain.1.out_of_order <= one.1.out_of_order, "{}", scenario.name);
            // The links' difference is 45 ms of delay and 4.4 ms of time on the wire.
            assert!(drain.0.wait_p99_us <= 49_400 + 20_000, "{}", scenario.name);
            if scenario.proof {
                assert_eq!((drain.1.out_of_order, drain.0.expiries), (0, 0), "{}", scenario.name);
            }
        }
    }
}
