//! What people are told of the model of a link (`controller = "model"`), in situations arranged in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::{Conditions, Cut, QueueLimit, Rate};
use ropewalk_netlab::pair::{TunnelLab, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run_all};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::congestion::{PathLimit, PathModel};
use ropewalk_proto::time::Instant;
use ropewalk_settings::{Bitrate, ControllerKind, Keepalive};

/// The emulator's draws; no rate, delay or loss here depends on chance.
const SEED: u64 = 1;

const MBIT: f64 = 20.0;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A link of 20 Mbit/s with a round trip of 40 ms, up for two seconds.
fn lab(controller: ControllerKind, queue_ms: u64) -> TunnelLab {
    let config = TunnelConfig { controller, ..TunnelConfig::default() };
    let mut lab = tunnels(&config, &config, SEED);
    let path = lab.add_link(conditions(queue_ms), conditions(queue_ms), SEED);
    lab.client.add_link(lab.now, &link_config("wan", path, Keepalive::default())).expect("one");
    lab.run_until(Instant::ZERO + s(2));
    lab
}

fn conditions(queue_ms: u64) -> Conditions {
    Conditions {
        rate: Rate::Fixed(Bitrate::from_mbps(MBIT as u64)),
        delay: Duration::from_millis(20),
        queue: QueueLimit::of_time(Duration::from_millis(queue_ms)),
        ..Conditions::default()
    }
}

/// What the proxy, which sends, believes.
fn model(lab: &TunnelLab) -> Option<PathModel> {
    lab.proxy.stats().links[0].model
}

/// Sends down so many Mbit/s for so long, and looks every 20 ms in the last half.
fn send(lab: &mut TunnelLab, mbit: f64, length: Duration) -> Vec<PathModel> {
    let mtu = lab.client.stats().inner_mtu.unwrap_or(1200);
    let start = lab.now;
    let mut streams =
        [Stream::at_rate(Towards::Client, 0.96 * mbit, usize::from(mtu), start, length)];
    let mut seen = vec![];
    while lab.now < start + length {
        let next = lab.now + Duration::from_millis(20);
        run_all(lab, &mut streams, &mut [], next);
        if lab.now >= start + length / 2 {
            seen.extend(model(lab));
        }
    }
    seen
}

/// The share of what was seen in which this was the limit, in percent.
fn shares(seen: &[PathModel]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for model in seen {
        let limit = match model.limit {
            PathLimit::Losses(_) => "Losses".to_owned(),
            other => format!("{other:?}"),
        };
        *counts.entry(limit).or_insert(0) += 1;
    }
    counts.into_iter().map(|(limit, count)| (limit, 100 * count / seen.len())).collect()
}

#[test]
fn each_situation_of_a_link_is_named_with_what_was_found() {
    let mut lab = lab(ControllerKind::Model, 100);
    let fresh = model(&lab).expect("a model");
    assert_eq!(fresh.limit, PathLimit::Starting, "{fresh:?}");

    let full = send(&mut lab, 1.2 * MBIT, s(6));
    let last = full.last().copied().expect("it was looked at");
    println!("full: {:?}, {last:?}", shares(&full));
    assert!(shares(&full).get("Rate") >= Some(&70), "{:?}", shares(&full));
    let rate = last.rate.expect("a rate").as_bps() as f64 / 1e6;
    assert!((0.9 * MBIT..1.1 * MBIT).contains(&rate), "{rate:.1} Mbit/s");
    let trip = last.min_rtt.expect("a round trip").as_secs_f64() * 1e3;
    assert!((39.0..46.0).contains(&trip), "{trip:.1} ms");
    let queue = last.queue.as_secs_f64() * 1e3;
    assert!(queue < 20.0, "{queue:.1} ms");
    assert!(last.usual_loss < 0.01, "{last:?}");

    let little = send(&mut lab, 0.2 * MBIT, s(4));
    println!("little: {:?}", shares(&little));
    assert!(shares(&little).get("Nothing") >= Some(&95), "{:?}", shares(&little));
    let rate = little[0].rate.expect("still known").as_bps() as f64 / 1e6;
    assert!(rate > 0.8 * MBIT, "{rate:.1} Mbit/s: a time with little to send changes nothing");

    let cut = Conditions { cut: Some(Cut::Everything), ..conditions(100) };
    lab.links[0].down.plan_change(lab.now, cut);
    let silent = send(&mut lab, 1.2 * MBIT, s(1));
    println!("silent: {:?}", shares(&silent));
    assert_eq!(silent.last().map(|model| model.limit), Some(PathLimit::Silence));
}

#[test]
fn losses_without_a_queue_are_told_with_the_rate_beyond_which_they_came() {
    let mut lab = lab(ControllerKind::Model, 3);
    let seen = send(&mut lab, 1.5 * MBIT, s(16));
    println!("{:?}", shares(&seen));
    let bounds: Vec<f64> = seen
        .iter()
        .filter_map(|model| match model.limit {
            PathLimit::Losses(most) => Some(most.as_bps() as f64 / 1e6),
            _ => None,
        })
        .collect();
    assert!(bounds.len() * 2 >= seen.len(), "{:?}", shares(&seen));
    for most in bounds {
        assert!((0.8 * MBIT..1.1 * MBIT).contains(&most), "{most:.1} Mbit/s");
    }
}

#[test]
fn a_controller_without_a_model_has_none_to_tell_of() {
    for controller in [ControllerKind::Ccid2, ControllerKind::Fixed(20)] {
        assert_eq!(model(&lab(controller, 100)), None, "{controller:?}");
    }
}
