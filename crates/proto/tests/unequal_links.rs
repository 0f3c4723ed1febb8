//! Stories of one TCP download over two links that have little in common, in virtual time: it must never have less than over the
//! better link alone, without a tunnel. Each prints its figures and asserts them.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, QueueLimit, Rate};
use ropewalk_netlab::network::{Network, Wire};
use ropewalk_netlab::pair::{link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{Bitrate, Keepalive};

/// What of a packet is payload in a tunnel, of what is without one.
const TUNNELLED: f64 = 0.959;

const LENGTH: Duration = Duration::from_secs(15);

/// kbit/s, one way in ms, its jitter in ms, loss, the queue in ms, and whether datagrams stay in order.
#[derive(Clone, Copy, Debug)]
struct Link(u64, f64, f64, f64, u64, bool);

impl Link {
    fn conditions(self) -> Conditions {
        let Self(kbit, ms, jitter, loss, queue, keep_order) = self;
        Conditions {
            rate: Rate::Fixed(Bitrate::from_bps(kbit * 1000)),
            delay: Duration::from_secs_f64(ms / 1e3),
            jitter: Duration::from_secs_f64(jitter / 1e3),
            keep_order,
            loss: if loss > 0.0 { Loss::Bernoulli(loss) } else { Loss::None },
            queue: QueueLimit::of_time(Duration::from_millis(queue)),
            ..Conditions::default()
        }
    }

    /// Mbit/s of a download without a tunnel.
    fn alone(self, seed: u64) -> f64 {
        let mut wire = Wire::new(self.conditions(), self.conditions(), seed);
        let start = Instant::ZERO + Duration::from_secs(3);
        wire.run_until(start);
        let mut flows = [TcpFlow::new(Towards::Client, Load::For(LENGTH), 1500, start)];
        run_all(&mut wire, &mut [], &mut flows, start + LENGTH);
        flows[0].mbit_between(start, start + LENGTH)
    }
}

/// Mbit/s of a download through a tunnel over these links.
fn download(links: &[Link], seed: u64) -> f64 {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, seed);
    for (number, link) in (0..).zip(links) {
        let path = lab.add_link(link.conditions(), link.conditions(), seed * 77 + number);
        let link = link_config(&format!("wan{number}"), path, Keepalive::default());
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    let (start, mtu) = (lab.now, lab.client.stats().inner_mtu.unwrap_or(1200));
    let mut flows = [TcpFlow::new(Towards::Client, Load::For(LENGTH), mtu, start)];
    run_all(&mut lab, &mut [], &mut flows, start + LENGTH);
    flows[0].mbit_between(start, start + LENGTH)
}

#[test]
fn a_download_has_no_less_than_over_the_better_link_alone() {
    let lte = Link(40_000, 35.0, 0.0, 0.0, 100, true);
    // At 300 Mbit/s one of three has to do.
    let (three, one) = (&[1, 5, 9][..], &[5][..]);
    for (why, links, seeds) in [
        (
            "a satellite that loses packets is tried now and then",
            vec![lte, Link(20_000, 320.0, 20.0, 0.005, 100, true)],
            three,
        ),
        (
            "a slow start has more under way than the link is known to carry",
            vec![Link(158_400, 117.8, 0.0, 0.0, 217, true)],
            three,
        ),
        (
            "a late link whose delay varies is late by more than its delay says",
            vec![Link(44_700, 12.6, 6.3, 0.0, 401, true), Link(4_500, 140.5, 24.7, 0.0, 34, true)],
            three,
        ),
        (
            "what a later link loses takes so long that the window of the receiver is full meanwhile",
            vec![
                Link(300_000, 8.0, 0.0, 0.0, 100, true),
                Link(30_000, 40.0, 8.0, 0.005, 100, false),
            ],
            one,
        ),
        (
            "the same over a satellite",
            vec![lte, Link(20_000, 320.0, 20.0, 0.005, 100, false)],
            three,
        ),
    ] {
        let ratio = |&seed: &u64| {
            let alone = links.iter().map(|link| link.alone(seed)).fold(0.0, f64::max);
            let both = download(&links, seed);
            println!("{why}, seed {seed}: {both:.1} Mbit/s; the better link alone: {alone:.1}");
            both / alone
        };
        let mut ratios: Vec<_> = seeds.iter().map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        assert!(ratios[ratios.len() / 2] >= 0.95 * TUNNELLED, "{why}: {ratios:.3?}");
    }
}

#[test]
fn packets_that_overtake_on_a_late_link_come_in_their_turn_so_that_both_links_are_full() {
    for (links, least) in [
        ([Link(50_000, 20.0, 0.0, 0.0, 100, true), Link(50_000, 40.0, 0.0, 0.0, 100, true)], 93.0),
        ([Link(50_000, 20.0, 0.0, 0.0, 100, true), Link(50_000, 70.0, 0.0, 0.0, 100, true)], 90.0),
    ] {
        let sum: u64 = links.iter().map(|link| link.0).sum();
        let percent = 100.0 * download(&links, 1) / 0.9253 / (sum as f64 / 1000.0);
        println!("{links:?}: {percent:.1} %");
        assert!(percent >= least, "{links:?}: {percent:.1} %, at least {least} %");
    }
}

#[test]
fn more_udp_than_the_links_carry_waits_in_the_tunnels_queue_and_nowhere_else() {
    for links in [
        [Link(50_000, 20.0, 0.0, 0.0, 100, true), Link(50_000, 40.0, 0.0, 0.0, 100, true)],
        [Link(50_000, 20.0, 0.0, 0.0, 100, true), Link(50_000, 120.0, 0.0, 0.0, 100, true)],
        [Link(8_000, 5.0, 0.0, 0.0, 100, true), Link(2_000, 50.0, 0.0, 0.0, 100, true)],
    ] {
        let config = TunnelConfig::default();
        let seed = 4;
        let mut lab = tunnels(&config, &config, seed);
        for (number, link) in (0..).zip(&links) {
            let path = lab.add_link(link.conditions(), link.conditions(), seed * 77 + number);
            let link = link_config(&format!("wan{number}"), path, Keepalive::default());
            lab.client.add_link(lab.now, &link).expect("few links");
        }
        lab.run_until(Instant::ZERO + Duration::from_secs(3));
        let start = lab.now;
        let mbit = links.iter().map(|link| link.0 as f64 / 1000.0).sum::<f64>() * 1.1 * TUNNELLED;
        let mtu = usize::from(lab.client.stats().inner_mtu.unwrap_or(1200));
        let mut streams = [Stream::at_rate(Towards::Client, mbit, mtu, start, LENGTH)];
        let settled = start + Duration::from_secs(4);
        run_all(&mut lab, &mut streams, &mut [], settled);
        let before = lab.client.stats().reseq;
        run_all(&mut lab, &mut streams, &mut [], start + LENGTH);
        let after = lab.client.stats().reseq;
        let skipped = after.skipped_by_deadline - before.skipped_by_deadline;
        let delays = streams[0].delays_from(settled);
        println!("{links:?}: {delays:?}, {skipped} waited for in vain");
        assert!(skipped < 10, "{links:?}: {skipped} packets that were never sent were waited for");
        let longest = links.map(|link| link.1).into_iter().fold(0.0, f64::max);
        assert!(delays.p50_ms < longest + 250.0, "{links:?}: {delays:?}");
    }
}
