//! Connections over a bare link.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::{Load, TcpFlow};
use crate::lab::Towards;
use crate::loss::Loss;
use crate::netem::{Conditions, Cut};
use crate::network::Wire;
use crate::pair::conditions;
use crate::stream::run_all;

const MTU: u16 = 1500;
/// What TCP with timestamps can have of a link.
const LIMIT: f64 = 1448.0 / 1500.0;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A link that is ideal on the way back.
fn wire(link: Conditions) -> Wire {
    let back = Conditions { loss: Loss::None, jitter: Duration::ZERO, ..link.clone() };
    Wire::new(link, back, 1)
}

/// Cuts the way down between two moments; what is under way still comes.
fn cut(wire: &mut Wire, link: &Conditions, from: u64, until: Duration) {
    let from = Instant::from_millis(from);
    wire.down.plan_change(from, Conditions { cut: Some(Cut::Arrivals), ..link.clone() });
    wire.down.plan_change(from + until, link.clone());
}

fn carry(wire: &mut Wire, towards: Towards, load: Load) -> TcpFlow {
    let mut flows = [TcpFlow::new(towards, load, MTU, Instant::ZERO)];
    run_all(wire, &mut [], &mut flows, Instant::from_millis(300_000));
    let [flow] = flows;
    assert!(flow.is_over() && flow.wrong() == 0, "{:?}", flow.stats());
    flow
}

fn download(wire: &mut Wire, bytes: u64) -> TcpFlow {
    let flow = carry(wire, Towards::Client, Load::Bytes(bytes));
    assert!(flow.is_complete(), "{} of {bytes}", flow.received());
    flow
}

#[test]
fn links_of_all_kinds_are_filled_in_both_directions() {
    for (mbit, rtt, queue) in
        [(10.0, 50, 100), (10.0, 10, 100), (2.0, 100, 100), (50.0, 20, 100), (1.0, 300, 300)]
    {
        for towards in [Towards::Client, Towards::Proxy] {
            let mut wire = wire(conditions(mbit, rtt, queue));
            let flow = carry(&mut wire, towards, Load::For(Duration::from_secs(30)));
            let share = flow.mbit() / mbit / LIMIT;
            assert!(share >= 0.95, "{mbit} Mbit/s, {rtt} ms: {share} {:?}", flow.stats());
            assert_eq!(flow.stats().timeouts, 0, "{mbit} Mbit/s, {rtt} ms");
            assert_eq!(flow.stats().needless, 0, "{mbit} Mbit/s, {rtt} ms");
        }
    }
}

#[test]
fn the_window_opens_far_beyond_sixty_four_kilobytes() {
    // 1.25 MB are under way.
    let mut wire = wire(conditions(100.0, 100, 100));
    let flow = carry(&mut wire, Towards::Client, Load::For(Duration::from_secs(20)));
    let late = flow.mbit_between(Instant::from_millis(5000), Instant::from_millis(20_000));
    assert!(late >= 95.0 * LIMIT, "{late}");
}

#[test]
fn losses_of_one_flight_are_repaired_together_and_without_a_timeout() {
    // 1448 bytes of payload take 1.2 ms; so many are lost in the time of the cut.
    for (length, least) in [(Duration::from_micros(1200), 1), (ms(12), 8), (ms(40), 30)] {
        let link = conditions(10.0, 50, 200);
        let mut wire = wire(link.clone());
        cut(&mut wire, &link, 2000, length);
        let flow = download(&mut wire, 4_000_000);
        let lost = wire.down.counters().cut;
        let stats = flow.stats();
        assert!(lost >= least && lost == stats.retransmissions, "{lost} lost, {stats:?}");
        assert_eq!((stats.timeouts, stats.recoveries, stats.undone), (0, 1, 0), "{lost}");
        let repair = flow.samples().iter().filter(|sample| sample.recovering);
        let [began, ended] = [repair.clone().next(), repair.clone().next_back()];
        let took = ended.unwrap().at.since(began.unwrap().at);
        let rtt = repair.filter_map(|sample| sample.rtt).max().unwrap();
        assert!(took <= 3 * rtt, "{lost} lost: {took:?} of {rtt:?}");
    }
}

#[test]
fn a_lost_tail_is_probed_and_not_waited_for() {
    let link = conditions(10.0, 50, 200);
    let plain = download(&mut wire(link.clone()), 100_000);
    let end = plain.arrivals().last().unwrap().at;
    let mut wire = wire(link.clone());
    // What comes in the last 10 ms is lost.
    let lost = Conditions { cut: Some(Cut::Everything), ..link.clone() };
    wire.down.plan_change(end - ms(10), lost);
    wire.down.plan_change(end, link);
    let flow = download(&mut wire, 100_000);
    let stats = flow.stats();
    assert!(stats.probes >= 1 && stats.timeouts == 0, "{stats:?}");
    assert!(flow.arrivals().last().unwrap().at.since(end) < ms(400), "{stats:?}");
}

#[test]
fn an_outage_is_asked_about_ever_more_seldom_and_survived() {
    let link = conditions(10.0, 50, 100);
    let mut wire = wire(link.clone());
    cut(&mut wire, &link, 2000, Duration::from_secs(20));
    let flow = download(&mut wire, 10_000_000);
    let stats = flow.stats();
    // 0.3, 0.6, 1.2, 2.4, 4.8 and 9.6 s.
    assert!((5..=7).contains(&stats.timeouts), "{stats:?}");
    assert!((ms(20_000)..ms(32_000)).contains(&flow.longest_stall()), "{stats:?}");
    let back = flow.arrivals().iter().find(|came| came.at > Instant::from_millis(22_000)).unwrap();
    let after = flow.mbit_between(back.at + ms(1000), back.at + ms(4000));
    assert!(after > 9.0, "{after} Mbit/s, {stats:?}");
}

#[test]
fn a_delay_that_looks_like_a_loss_is_taken_back() {
    // For a moment the path is 400 ms longer: a timeout, all of whose repetitions are needless.
    let link = conditions(10.0, 50, 400);
    let mut wire = wire(link.clone());
    let slow = Conditions { delay: ms(825), ..link.clone() };
    wire.down.plan_change(Instant::from_millis(2000), slow);
    wire.down.plan_change(Instant::from_millis(2100), link);
    let flow = download(&mut wire, 10_000_000);
    let stats = flow.stats();
    assert!(stats.timeouts >= 1 && stats.undone >= 1, "{stats:?}");
    let before = flow.samples().iter().rfind(|sample| sample.at < Instant::from_millis(2000));
    let after =
        flow.samples().iter().find(|sample| sample.at > Instant::from_millis(3500)).unwrap();
    assert!(after.cwnd >= before.unwrap().cwnd, "{after:?}");
}

#[test]
fn a_link_that_reorders_is_learnt_and_filled() {
    let link = Conditions { jitter: ms(2), keep_order: false, ..conditions(10.0, 50, 100) };
    let flow = carry(&mut wire(link), Towards::Client, Load::For(Duration::from_secs(30)));
    let stats = flow.stats();
    assert!(stats.undone >= 1 && stats.timeouts == 0, "{stats:?}");
    assert!(flow.mbit() >= 9.0, "{} {stats:?}", flow.mbit());
}

#[test]
fn acknowledgements_are_delayed_once_the_window_is_open() {
    let mut wire = wire(conditions(10.0, 50, 100));
    let flow = carry(&mut wire, Towards::Client, Load::For(Duration::from_secs(20)));
    let (sent, answered) = (flow.stats().segments, wire.up.counters().received);
    assert!(answered * 10 < sent * 6, "{answered} for {sent}");
}

#[test]
fn a_smaller_path_costs_a_repetition_and_no_window() {
    let link = conditions(10.0, 50, 100);
    let mut flows = [TcpFlow::new(Towards::Client, Load::Bytes(3_000_000), MTU, Instant::ZERO)];
    let mut wire = wire(link);
    run_all(&mut wire, &mut [], &mut flows, Instant::from_millis(1000));
    let before = flows[0].samples().last().unwrap().cwnd;
    flows[0].handle_packet(wire.now, Towards::Proxy, &super::segment::Incoming::TooBig(1300));
    assert!(flows[0].stats().retransmissions > 0);
    run_all(&mut wire, &mut [], &mut flows, Instant::from_millis(60_000));
    let [flow] = flows;
    assert!(flow.is_complete() && flow.stats().timeouts == 0, "{:?}", flow.stats());
    assert!(flow.samples().iter().all(|sample| sample.cwnd + 1 >= before.min(10)));
}

#[test]
fn a_lossy_link_gives_the_same_for_the_same_seed() {
    let run = |seed| {
        let link = Conditions { loss: Loss::Bernoulli(0.01), ..conditions(20.0, 40, 100) };
        let mut wire = Wire::new(link.clone(), link, seed);
        let flow = carry(&mut wire, Towards::Client, Load::For(Duration::from_secs(30)));
        (flow.arrivals().to_vec(), flow.stats())
    };
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
    // The model of Padhye et al. for 1 % and 40 ms is about 3 Mbit/s for Reno; CUBIC has a little more.
    let mbit = crate::stats::mbit(first.0.last().unwrap().bytes, Duration::from_secs(30));
    assert!((2.0..7.0).contains(&mbit), "{mbit} {:?}", first.1);
}

#[test]
fn a_handshake_outlives_lost_questions() {
    let link = conditions(10.0, 50, 100);
    let mut wire = wire(link.clone());
    cut(&mut wire, &link, 0, ms(2500));
    let flow = download(&mut wire, 100_000);
    // At 0, 1 and 3 s.
    let first = flow.arrivals()[0].at;
    assert!((ms(3000)..ms(3300)).contains(&first.since(Instant::ZERO)), "{first:?}");
}
