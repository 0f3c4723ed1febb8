//! The emulator measured from outside, by the kernel's timestamps.
//!
//! Several links are measured at the same time, beside each other: that is how the emulator is
//! used, and it keeps the whole below half a minute.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]
#![expect(clippy::print_stdout, reason = "the figures measured are the result")]

mod bed;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use ropewalk_netlab::emulator::Direction;
use ropewalk_netlab::loss::{GilbertElliott, Loss};
use ropewalk_netlab::netem::{Conditions, Marking, QueueLimit, Rate};
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::scenario::Scenario;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use crate::bed::{Bed, Flow, HEADERS, Sample, delays, measure, percentile, v4, v6};

/// One measurement at a time: they would disturb each other.
fn alone(name: &str, body: impl FnOnce(&str)) {
    lab_test_alone(name, || body(name));
}

fn fixed(bps: u64, delay_ms: u64) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_bps(bps)),
        delay: Duration::from_millis(delay_ms),
        queue: QueueLimit::of_time(Duration::from_millis(100)),
        ..Conditions::default()
    }
}

fn delayed(delay_ms: u64, jitter_ms: u64, keep_order: bool) -> Conditions {
    Conditions {
        delay: Duration::from_millis(delay_ms),
        jitter: Duration::from_millis(jitter_ms),
        keep_order,
        ..Conditions::default()
    }
}

fn one_way(conditions: &[Conditions]) -> Vec<(Conditions, Conditions)> {
    conditions.iter().map(|upstream| (upstream.clone(), Conditions::default())).collect()
}

/// Runs one flow on each link at the same time.
fn flows(bed: &Bed, flows: &[Flow]) -> Vec<Vec<Sample>> {
    thread::scope(|scope| {
        let running: Vec<_> = flows
            .iter()
            .enumerate()
            .map(|(link, flow)| scope.spawn(move || bed.flow(link, *flow)))
            .collect();
        running.into_iter().map(|flow| flow.join().unwrap()).collect()
    })
}

#[test]
fn rate_and_delay_are_as_asked_for() {
    alone("rate_and_delay_are_as_asked_for", |name| {
        // Three links driven at 1.1 times their rate for 10.5 s, and two probed for their delay.
        let rates = [2_000_000, 8_000_000, 40_000_000];
        let lengths_ms = [5, 50];
        let mut conditions: Vec<_> = rates.iter().map(|&bps| fixed(bps, 5)).collect();
        conditions.extend(lengths_ms.map(|ms| delayed(ms, 0, true)));
        let overload = rates.map(|bps| {
            let every = Bitrate::from_bps(bps + bps / 10).time_for(1500);
            let count = u32::try_from(10_500_000_000 / every.as_nanos()).unwrap();
            Flow { count, size: 1500, every }
        });
        let probe = Flow { count: 2_000, size: 200, every: Duration::from_millis(5) };
        let wanted = [&overload[..], &[probe; 2]].concat();

        let measured = measure(name, || {
            let bed = Bed::build(&one_way(&conditions));
            let samples = flows(&bed, &wanted);
            (samples, bed.emulator.report().unwrap())
        });
        let Some(samples) = measured else { return };
        for (bps, samples) in rates.iter().zip(&samples) {
            let first = samples[0].received_ns;
            let within =
                samples[1..].iter().filter(|s| s.received_ns - first <= 10_000_000_000).count();
            let measured = (within * 1500 * 8) as f64 / 10.0;
            println!("{bps} bit/s: measured {measured} bit/s over 10 s");
            assert!((measured / *bps as f64 - 1.0).abs() < 0.01, "{bps}: {measured}");
        }
        for (ms, samples) in lengths_ms.iter().zip(&samples[rates.len()..]) {
            assert_eq!(samples.len(), 2_000, "lost packets on the link of {ms} ms");
            let delays = delays(samples);
            let (median, p99) = (percentile(&delays, 50), percentile(&delays, 99));
            println!(
                "{ms} ms: median {median:.3}, p99 {p99:.3}, max {:.3}",
                delays[delays.len() - 1]
            );
            let ms = *ms as f64;
            let bound = if std::env::var("CI").is_ok_and(|ci| ci == "true") { 5.0 } else { 2.0 };
            assert!((median - ms).abs() < 0.3, "{ms} ms: median {median}");
            assert!(p99 - ms < bound, "{ms} ms: p99 {p99}");
            assert!(delays[0] >= ms, "{ms} ms: the fastest took {}", delays[0]);
        }
    });
}

#[test]
fn losses_come_at_the_rate_and_in_the_bursts_asked_for() {
    alone("losses_come_at_the_rate_and_in_the_bursts_asked_for", |name| {
        const COUNT: u32 = 20_000;
        let (mean, burst) = (0.05, 4.0);
        let chain = GilbertElliott::from_mean_and_burst(mean, burst).unwrap();
        let lossy = |loss| Conditions { loss, ..Conditions::default() };
        let conditions =
            [lossy(Loss::Bernoulli(0.02)), lossy(Loss::GilbertElliott(chain)), lossy(Loss::None)];
        let flow = Flow { count: COUNT, size: 100, every: Duration::from_micros(125) };

        let measured = measure(name, || {
            let bed = Bed::build(&one_way(&conditions));
            (flows(&bed, &[flow; 3]), bed.emulator.report().unwrap())
        });
        let Some(samples) = measured else { return };
        assert_eq!(samples[2].len(), COUNT as usize, "the link without loss lost something");

        // 99.99 % confidence is 3.9 standard deviations of a binomial share: 0.0039 here.
        let (share, _) = losses(&samples[0], COUNT);
        let bound = 3.9 * (0.02 * 0.98 / f64::from(COUNT)).sqrt();
        println!("Bernoulli 2 %: {share:.4} ± {bound:.4}");
        assert!((share - 0.02).abs() < bound, "{share}");

        // About 250 bursts of geometric length: its deviation is 3.5, so the mean burst lies within
        // 3.9 * 3.5 / sqrt(250) = 0.86; the share deviates in both number and length of bursts, by
        // sqrt(2 / 250) of itself, times 3.9: 35 %.
        let (share, length) = losses(&samples[1], COUNT);
        println!("Gilbert-Elliott 5 % in bursts of 4: {share:.4}, bursts of {length:.2}");
        assert!((share / mean - 1.0).abs() < 0.35, "{share}");
        assert!((length - burst).abs() < 0.86, "{length}");
    });
}

/// (share lost, mean length of a run of losses).
fn losses(samples: &[Sample], count: u32) -> (f64, f64) {
    let mut came = vec![false; count as usize];
    samples.iter().for_each(|sample| came[sample.number as usize] = true);
    let lost = came.iter().filter(|came| !**came).count();
    let bursts = came.windows(2).filter(|pair| pair[0] && !pair[1]).count() + usize::from(!came[0]);
    (lost as f64 / f64::from(count), lost as f64 / bursts.max(1) as f64)
}

#[test]
fn jitter_reorders_only_where_it_may() {
    alone("jitter_reorders_only_where_it_may", |name| {
        let conditions = [delayed(30, 4, true), delayed(30, 4, false)];
        let flow = Flow { count: 4_000, size: 200, every: Duration::from_millis(1) };
        let measured = measure(name, || {
            let bed = Bed::build(&one_way(&conditions));
            (flows(&bed, &[flow; 2]), bed.emulator.report().unwrap())
        });
        let Some(samples) = measured else { return };
        let overtakings = |samples: &[Sample]| {
            samples.windows(2).filter(|pair| pair[1].number < pair[0].number).count()
        };
        assert_eq!(overtakings(&samples[0]), 0);
        // The next packet, 1 ms behind, overtakes if N(0, 4 * sqrt(2)) > 1 ms: 43 % of the pairs.
        // Counted are neighbours in the order of arrival, which are fewer; a fifth is safe.
        let reordered = overtakings(&samples[1]);
        println!("{reordered} of {} packets came behind a later one", samples[1].len());
        assert!(reordered > samples[1].len() / 5, "{reordered}");

        let delays = delays(&samples[1]);
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let variance = delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / delays.len() as f64;
        println!("jitter: mean {mean:.3} ms, deviation {:.3} ms", variance.sqrt());
        // Four standard errors (4 / sqrt(4,000) and 4 / sqrt(8,000)) and the 0.3 ms of the delay.
        assert!((mean - 30.0).abs() < 0.55, "{mean}");
        assert!((variance.sqrt() - 4.0).abs() < 0.3, "{}", variance.sqrt());
    });
}

#[test]
fn a_scenario_with_an_outage_runs_alike_in_virtual_and_real_time() {
    alone("a_scenario_with_an_outage_runs_alike_in_virtual_and_real_time", |name| {
        let text = "name = \"outage\"\n[[links]]\nname = \"a\"\nrtt_ms = 20\n\
             outages = [{ at_s = 0.3, for_s = 0.4, direction = \"up\" }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        let link = &scenario.links[0];
        let flow = Flow { count: 1_000, size: 200, every: Duration::from_millis(1) };

        let mut netem = link.upstream.netem(Instant::ZERO, SmallRng::seed_from_u64(1));
        for number in 0..flow.count {
            let at = Instant::ZERO + flow.every * number;
            netem.handle_packet(at, number, flow.size, Ecn::NotEct);
        }
        let end = Instant::from_millis(5_000);
        let virtual_ms: Vec<f64> = std::iter::from_fn(|| netem.poll_packet(end))
            .map(|delivery| delivery.due.as_micros() as f64 / 1e3)
            .collect();

        let measured = measure(name, || {
            let initial = (link.upstream.initial.clone(), link.downstream.initial.clone());
            let bed = Bed::build(&[initial]);
            bed.emulator.follow(0, link, bed.emulator.now() + Duration::from_millis(100)).unwrap();
            let samples = bed.flow(0, flow);
            let report = bed.emulator.report().unwrap();
            let counters = report.links[0].upstream;
            assert_eq!(counters.cut + samples.len() as u64, 1_000);
            assert_eq!(counters.received, 1_000);
            (samples, report)
        });
        let Some(samples) = measured else { return };
        let real_ms: Vec<f64> = samples.iter().map(|s| s.received_ns as f64 / 1e6).collect();
        let longest_gap =
            |times: &[f64]| times.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        // 400 ms of lost arrivals and the 10 ms that were under way when it began. In real time more
        // if the sender was held up just then, and one packet more or less.
        let (virtual_gap, real_gap) = (longest_gap(&virtual_ms), longest_gap(&real_ms));
        println!("silence in virtual time {virtual_gap:.1} ms, in real time {real_gap:.1} ms");
        println!("came: {} in virtual, {} in real time", virtual_ms.len(), real_ms.len());
        assert!((virtual_gap - 410.0).abs() < 0.1, "{virtual_gap}");
        assert!((409.0..450.0).contains(&real_gap), "{real_gap}");
        assert!(virtual_ms.len().abs_diff(real_ms.len()) <= 40, "{}", real_ms.len());
    });
}

#[test]
fn tcp_passes_in_ordinary_frames_with_sound_checksums() {
    alone("tcp_passes_in_ordinary_frames_with_sound_checksums", |_| {
        // Segmentation offload would send frames of up to 64 KB: they would be too big here.
        let conditions = Conditions { mtu: 1500, ..fixed(100_000_000, 1) };
        let bed = Bed::build(&[(conditions.clone(), conditions)]);
        let listener = bed
            .far
            .run(|| TcpListener::bind(SocketAddr::new(v4(0, 2).into(), 0)))
            .unwrap()
            .unwrap();
        let there = listener.local_addr().unwrap();
        let data: Vec<u8> = (0..8_000_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut received = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = bed.near.run(|| TcpStream::connect(there)).unwrap().unwrap();
                stream.write_all(&data).unwrap();
            });
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        });
        assert!(received == data, "the data were altered");
        let counters = bed.emulator.report().unwrap().links[0];
        println!("TCP: {counters:?}");
        assert_eq!((counters.upstream.too_big, counters.downstream.too_big), (0, 0));
        // 5,500 full segments: fewer frames would have to be larger ones.
        assert!(counters.upstream.delivered > 5_500, "{}", counters.upstream.delivered);
    });
}

#[test]
fn a_black_hole_of_the_mtu_takes_large_packets_without_a_word() {
    alone("a_black_hole_of_the_mtu_takes_large_packets_without_a_word", |_| {
        let bed = Bed::build(&one_way(&[Conditions::default()]));
        bed.emulator.update_both(0, |conditions| conditions.mtu = 1_300).unwrap();
        let flow = |size| Flow { count: 20, size, every: Duration::from_millis(1) };
        assert_eq!(bed.flow(0, flow(1_300)).len(), 20);
        assert_eq!(bed.flow(0, flow(1_301)).len(), 0);
        bed.emulator.update_both(0, |conditions| conditions.mtu = 1_500).unwrap();
        assert_eq!(bed.flow(0, flow(1_500)).len(), 20);
        assert_eq!(bed.emulator.report().unwrap().links[0].upstream.too_big, 20);
        assert!(bed.emulator.update(1, Direction::Upstream, |_| ()).is_err());
    });
}

#[test]
fn marked_packets_arrive_marked_over_both_versions_of_ip() {
    alone("marked_packets_arrive_marked_over_both_versions_of_ip", |_| {
        let marking = Marking { above: None, probability: 1.0 };
        let conditions = Conditions { marking, ..Conditions::default() };
        let bed = Bed::build_with(&one_way(&[conditions]), true);
        for (near, far) in [(v4(0, 1).into(), v4(0, 2).into()), (v6(0, 1).into(), v6(0, 2).into())]
        {
            for (sent, expected) in
                [(0b00, 0b00), (0b01, 0b11), (0b10, 0b11), (0b1011_1010, 0b1011_1011)]
            {
                let (near, far) = (bed.socket(&bed.near, near), bed.socket(&bed.far, far));
                assert_eq!(bed::received_tos(&near, &far, sent), expected, "{near:?} {sent:#b}");
            }
        }
    });
}

#[test]
fn an_idle_emulator_sleeps() {
    alone("an_idle_emulator_sleeps", |_| {
        let bed = Bed::build(&one_way(&[fixed(8_000_000, 5), delayed(20, 5, true)]));
        // Something passes first, so that no timer is left over from it.
        let flow = Flow { count: 20, size: 100 + HEADERS, every: Duration::from_millis(1) };
        assert_eq!(flows(&bed, &[flow; 2]).iter().map(Vec::len).sum::<usize>(), 40);
        let before = bed::emulator_ticks();
        thread::sleep(Duration::from_secs(1));
        let spent = bed::emulator_ticks() - before;
        // Ticks are hundredths of a second.
        assert!(spent <= 1, "{spent} % of a core");
    });
}
