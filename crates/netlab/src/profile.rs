//! Links of everyday life by name, for tests and scenarios that want "some LTE" and not a certain
//! recording. Every number has its source beside it; what has none is said to be a choice.
//!
//! A profile is a stationary link in good order. Outages, handovers and drives belong into a
//! scenario or a recorded trace.

use std::time::Duration;

use serde::Deserialize;

use ropewalk_settings::Bitrate;

use crate::loss::Loss;
use crate::netem::{Conditions, QueueLimit, Rate};

/// A kind of access link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// ADSL2+ at the end of a middling line.
    Dsl,
    /// A wireless LAN in a busy building, with something fast behind it.
    Wlan,
    /// LTE in a city, standing still.
    Lte,
    /// Low-orbit satellites: Starlink on the road.
    Starlink,
    /// A geostationary satellite.
    Geo,
}

/// Both directions of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// From the user.
    pub upstream: Conditions,
    /// To the user.
    pub downstream: Conditions,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Dsl, Self::Wlan, Self::Lte, Self::Starlink, Self::Geo];

    /// The conditions of this kind of link.
    #[must_use]
    pub fn conditions(self) -> Pair {
        match self {
            // ITU-T G.992.5 allows 24 Mbit/s down and 1.4 up (annex A); two thirds down and 1 up are a
            // choice. Round trip: FCC, Measuring Fixed Broadband, DSL between 20 and 61 ms. Queue: a
            // choice, a modem's usual fault.
            Self::Dsl => {
                pair(Shape { down: 16.0, up: 1.0, rtt_ms: 30.0, jitter_ms: 0.0, queue_ms: 250 })
            }
            // Rate: SBU multipath traces (CNERT 2023), Wi-Fi of walk 12_2, mean 22 Mbit/s, both ways by
            // choice. Round trip (a nearby fibre) and jitter (a few contended slots) are a choice.
            Self::Wlan => {
                pair(Shape { down: 22.0, up: 22.0, rtt_ms: 15.0, jitter_ms: 2.0, queue_ms: 100 })
            }
            // Rate: mahimahi's TMobile-LTE-short, mean 16.7 down and 13.2 up. Round trip: drives of 2023
            // in the PAM 2025 multi-carrier data set, medians between 39 and 58 ms, deviation of the
            // quieter runs 10 to 14 ms, so about 7 ms each way. Queue: a choice (deep, as in base stations).
            Self::Lte => {
                pair(Shape { down: 16.7, up: 13.2, rtt_ms: 50.0, jitter_ms: 7.0, queue_ms: 300 })
            }
            // Rate: Starlink-on-the-Road (TMA 2024), the downlink's 5th percentile of 69 Mbit/s, the
            // uplink's mean of 17. Round trip: starlink.com, network update of June 2025, median
            // 25.7 ms at peak hours and 1 % above 55 ms, hence the jitter. Loss: a choice.
            Self::Starlink => {
                let mut pair = pair(Shape {
                    down: 69.0,
                    up: 17.0,
                    rtt_ms: 26.0,
                    jitter_ms: 6.0,
                    queue_ms: 100,
                });
                pair.upstream.loss = Loss::Bernoulli(0.002);
                pair.downstream.loss = Loss::Bernoulli(0.002);
                pair
            }
            // Round trip: RFC 2488 §2, 558 ms at the edge of the view of the satellite. Rates and queue
            // are a choice.
            Self::Geo => {
                pair(Shape { down: 20.0, up: 3.0, rtt_ms: 558.0, jitter_ms: 3.0, queue_ms: 500 })
            }
        }
    }
}

/// What distinguishes most links: rates in Mbit/s, round trip without queue, deviation of the delay
/// each way, depth of the queue.
#[derive(Clone, Copy)]
struct Shape {
    down: f64,
    up: f64,
    rtt_ms: f64,
    jitter_ms: f64,
    queue_ms: u64,
}

fn pair(shape: Shape) -> Pair {
    let Shape { down, up, rtt_ms, jitter_ms, queue_ms } = shape;
    let direction = |mbit: f64| Conditions {
        rate: Rate::Fixed(bitrate(mbit)),
        delay: Duration::from_secs_f64(rtt_ms / 2e3),
        jitter: Duration::from_secs_f64(jitter_ms / 1e3),
        queue: QueueLimit::of_time(Duration::from_millis(queue_ms)),
        mtu: 1500,
        ..Conditions::default()
    };
    Pair { upstream: direction(up), downstream: direction(down) }
}

/// A rate in Mbit/s, rounded to bits per second; what is no rate is zero.
pub(crate) fn bitrate(mbit: f64) -> Bitrate {
    // A float becomes the nearest integer that exists: never negative, at most `u64::MAX`.
    Bitrate::from_bps((mbit * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_a_link_that_passes_full_packets() {
        for profile in Profile::ALL {
            let Pair { upstream, downstream } = profile.conditions();
            for conditions in [upstream, downstream] {
                assert!(conditions.rate.mean().unwrap() >= Bitrate::from_mbps(1), "{profile:?}");
                assert!(conditions.queue.bytes_at(&conditions.rate) >= 1500, "{profile:?}");
                assert!(conditions.loss.is_valid() && conditions.mtu == 1500, "{profile:?}");
                assert!(conditions.jitter * 2 < conditions.delay, "{profile:?}");
            }
        }
    }

    #[test]
    fn rates_are_rounded_to_bits() {
        assert_eq!(bitrate(16.7), Bitrate::from_bps(16_700_000));
        assert_eq!(bitrate(-1.0), Bitrate::default());
        assert_eq!(bitrate(f64::NAN), Bitrate::default());
    }
}
