//! Stories of a tunnel over emulated links, in virtual time: each prints its figures and asserts them.
//!
//! The tunnels are bare (they share keys from the start); handshakes are in `tests/sessions`.

#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

mod backups;
mod bundles;
mod close;
mod cuts;
mod frames;
mod idle;
mod links;
mod marks;
mod mtu;
mod nat;
mod order;
mod partial;
mod parts;
mod rekey;
mod schedulers;
mod sensing;
mod sparse;
mod speed;
mod speed_test;

use std::time::Duration;

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::netem::Counters;
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::TunnelStats;
use ropewalk_settings::Keepalive;

/// Decides losses and jitter; any other number gives other figures within the same bounds.
const SEED: u64 = 1;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A lab with links of these rates (Mbit/s) and round-trip times (ms), queues of 100 ms, two seconds after they
/// were joined.
pub(crate) fn settled(
    config: &TunnelConfig,
    keepalive: Keepalive,
    links: &[(f64, u64)],
) -> TunnelLab {
    let mut lab = tunnels(config, config, SEED);
    for (place, &(mbit, rtt)) in links.iter().enumerate() {
        let conditions = conditions(mbit, rtt, 100);
        let path = lab.add_link(conditions.clone(), conditions, SEED + place as u64);
        let link = link_config(&format!("wan{place}"), path, keepalive);
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(Instant::ZERO + s(2));
    lab
}

/// The end that sends this way.
pub(crate) fn sender(lab: &TunnelLab, towards: Towards) -> TunnelStats {
    match towards {
        Towards::Client => lab.proxy.stats(),
        Towards::Proxy => lab.client.stats(),
    }
}

/// Datagrams that one direction of a link did not deliver.
pub(crate) fn lost(counters: Counters) -> u64 {
    counters.lost + counters.queue_full + counters.too_big + counters.cut
}
