//! Senders of TCP are acknowledged where they enter the tunnel: stories in virtual time, with the kernel's ways of TCP.

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::{Conditions, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::run_all;
use ropewalk_netlab::tcp::{Load, TcpFlow};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{Acknowledge, Bitrate, Keepalive, Profile};

#[derive(Clone, Copy)]
struct Link {
    mbit: u64,
    ms: u64,
    jitter_ms: u64,
    loss: f64,
}

const fn link(mbit: u64, ms: u64, jitter_ms: u64, loss: f64) -> Link {
    Link { mbit, ms, jitter_ms, loss }
}

impl Link {
    fn conditions(self) -> Conditions {
        Conditions {
            rate: Rate::Fixed(Bitrate::from_bps(self.mbit * 1_000_000)),
            delay: Duration::from_millis(self.ms),
            jitter: Duration::from_millis(self.jitter_ms),
            keep_order: true,
            loss: if self.loss > 0.0 { Loss::Bernoulli(self.loss) } else { Loss::None },
            queue: QueueLimit::of_time(Duration::from_millis(100)),
            ..Conditions::default()
        }
    }
}

fn lab(config: &TunnelConfig, links: &[Link], seed: u64) -> TunnelLab {
    let mut lab = tunnels(config, config, seed);
    for (place, link) in (0..).zip(links) {
        let path = lab.add_link(link.conditions(), link.conditions(), seed * 77 + place);
        let name = format!("link{place}");
        let added = lab.client.add_link(lab.now, &link_config(&name, path, Keepalive::default()));
        added.expect("a link");
    }
    lab.run_until(Instant::ZERO + Duration::from_secs(3));
    lab
}

fn config(acknowledge: Acknowledge) -> TunnelConfig {
    TunnelConfig { acknowledge, ..TunnelConfig::default() }
}

fn flow(lab: &TunnelLab, towards: Towards, load: Load) -> TcpFlow {
    let mtu = lab.client.stats().inner_mtu.expect("links are up");
    TcpFlow::new(towards, load, mtu, lab.now)
}

/// Mbit/s of one download of 10 s.
fn download(acknowledge: Acknowledge, towards: Towards, links: &[Link], seed: u64) -> f64 {
    let mut lab = lab(&config(acknowledge), links, seed);
    let start = lab.now;
    let length = Duration::from_secs(10);
    let mut flows = vec![flow(&lab, towards, Load::For(length))];
    run_all(&mut lab, &mut [], &mut flows, start + length);
    assert_eq!(flows[0].wrong(), 0, "not a byte is altered");
    flows[0].mbit_between(start, start + length)
}

#[test]
fn one_tcp_has_most_of_links_over_which_it_would_never_begin() {
    use Acknowledge::{EndToEnd, Local};
    let cases = [
        ("jitter", vec![link(50, 20, 20, 0.0); 2], 50.0, 45.0),
        ("loss", vec![link(50, 20, 0, 0.02); 2], 80.0, 75.0),
        (
            "narrow and short beside wide and long",
            vec![link(1, 5, 0, 0.0), link(58, 102, 0, 0.0)],
            40.0,
            30.0,
        ),
        (
            "delays that differ by 300 ms",
            vec![link(50, 20, 0, 0.0), link(50, 320, 0, 0.0)],
            60.0,
            55.0,
        ),
    ];
    for (name, links, least, most) in cases {
        for (towards, seed) in [(Towards::Client, 1), (Towards::Proxy, 2)] {
            let local = download(Local, towards, &links, seed);
            let end_to_end = download(EndToEnd, towards, &links, seed);
            println!("{name}, seed {seed}: {local:.1} Mbit/s, end to end {end_to_end:.1}");
            assert!(local > least, "{name}: {local:.1} Mbit/s, seed {seed}");
            assert!(end_to_end < most, "{name}: {end_to_end:.1} Mbit/s is no reason, seed {seed}");
        }
    }
}

#[test]
fn what_was_acknowledged_arrives_though_all_links_are_dead_for_a_while() {
    for dead_ms in [500, 1500, 4000] {
        for seed in [3, 4] {
            let links = [link(20, 20, 0, 0.0), link(10, 40, 0, 0.01)];
            let mut lab = lab(&config(Acknowledge::Local), &links, seed);
            let start = lab.now;
            let mut flows = vec![flow(&lab, Towards::Client, Load::Bytes(8_000_000))];
            let dies = start + Duration::from_millis(900);
            for (at, link) in links.iter().enumerate() {
                let dead = Link { loss: 1.0, ..*link }.conditions();
                let lab_link = &mut lab.links[at];
                for way in [&mut lab_link.down, &mut lab_link.up] {
                    way.plan_change(dies, dead.clone());
                    way.plan_change(dies + Duration::from_millis(dead_ms), link.conditions());
                }
            }
            run_all(&mut lab, &mut [], &mut flows, start + Duration::from_secs(60));
            assert!(flows[0].is_complete(), "dead for {dead_ms} ms, seed {seed}");
            let kept = lab.proxy.stats().local_acks.kept_bytes;
            // The last acknowledgement of a client that is done need not come.
            assert!(kept < 3000, "{kept} bytes, dead for {dead_ms} ms, seed {seed}");
        }
    }
}

#[test]
fn what_was_acknowledged_arrives_though_it_fits_no_link_any_more() {
    for (narrow, seed) in [(1, 5), (2, 6), (2, 7)] {
        let links = [link(20, 20, 0, 0.0), link(10, 40, 0, 0.0)];
        let mut lab = lab(&config(Acknowledge::Local), &links, seed);
        let start = lab.now;
        let mut flows = vec![flow(&lab, Towards::Client, Load::Bytes(8_000_000))];
        let shrinks = start + Duration::from_millis(900);
        for (at, link) in links.iter().enumerate().take(narrow) {
            let small = Conditions { mtu: 1300, ..link.conditions() };
            let lab_link = &mut lab.links[at];
            for way in [&mut lab_link.down, &mut lab_link.up] {
                way.plan_change(shrinks, small.clone());
            }
        }
        run_all(&mut lab, &mut [], &mut flows, start + Duration::from_secs(20));
        let done = flows[0].is_complete();
        println!("{narrow} of 2 links carry less, seed {seed}: {} bytes", flows[0].received());
        assert!(done, "{narrow} of 2 links carry less, seed {seed}");
        assert_eq!(lab.proxy.stats().local_acks.lost, 0, "seed {seed}");
    }
}

#[test]
fn the_papers_profile_leaves_acknowledgements_to_the_ends() {
    let mut lab = lab(&TunnelConfig::of(Profile::Paper), &[link(20, 20, 0, 0.0)], 5);
    let start = lab.now;
    let mut flows = vec![flow(&lab, Towards::Client, Load::Bytes(1_000_000))];
    run_all(&mut lab, &mut [], &mut flows, start + Duration::from_secs(5));
    assert_eq!(
        lab.proxy.stats().local_acks,
        ropewalk_proto::tunnel::LocallyAcknowledged::default()
    );
}
