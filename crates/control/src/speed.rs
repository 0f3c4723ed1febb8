//! What a speed test found, in sentences.
//!
//! Pure: of the figures alone. They are in the document that the daemon gives, so that every program says the same.

use std::collections::BTreeSet;

use ropewalk_settings::figures;

use crate::api::{LinkSpeed, Speed, SpeedTestReport, SpeedWay, SumSpeed, TogetherSpeed};
use crate::words::{millis, percent};

/// A bundle that carries less of the sum of its links has a reason beyond the links.
const GOOD_SHARE: f64 = 0.8;

/// A queue that is longer is heard in a conversation, of which all delay one way is to be below 150 ms (ITU-T G.114).
const LONG_QUEUE_MS: f64 = 100.0;

/// A test that looks for the rate of a link loses some datagrams; more than this share is the link's own.
const HIGH_LOSS: f64 = 0.01;

/// From this share of the rate on, packets beside the test are worth a sentence.
const OTHER_SHARE: f64 = 0.02;

/// And from so many bits per second on: what the tunnel says by itself is less.
const OTHER_BPS: f64 = 100_000.0;

/// What the figures mean.
#[must_use]
pub fn sentences(report: &SpeedTestReport) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(together) = &report.together {
        said.extend(sums(together));
        said.extend(additions(together));
        said.extend(shortfalls(together));
    }
    for link in &report.links {
        said.extend(of_link(link));
    }
    said
}

/// A bundle in this way, and what it carries.
fn ways(together: &TogetherSpeed) -> impl Iterator<Item = (SpeedWay, &SumSpeed)> {
    SpeedWay::BOTH.into_iter().filter_map(move |way| Some((way, together.way(way)?)))
}

/// The share of its links' sum that a bundle carries; `None`: they carry nothing.
fn share(sum: &SumSpeed) -> Option<f64> {
    (sum.alone_bps > 0.0).then(|| sum.sum.rate_bps / sum.alone_bps)
}

fn sums(together: &TogetherSpeed) -> Option<String> {
    let of_way = |(way, sum): (SpeedWay, &SumSpeed)| {
        let (way, rate, share) = (way.word(), figures::rate(sum.sum.rate_bps), share(sum)?);
        Some(format!("{way} {rate}, {} of their sum", percent(share)))
    };
    let said: Vec<String> = ways(together).filter_map(of_way).collect();
    (!said.is_empty()).then(|| format!("The links together: {}.", said.join("; ")))
}

/// What each link adds to the one that carries most.
fn additions(together: &TogetherSpeed) -> Vec<String> {
    let names: BTreeSet<&String> = ways(together).flat_map(|(_, sum)| sum.by_link.keys()).collect();
    let of_link = |name: &String| {
        let adds = ways(together).filter_map(|(way, sum)| {
            let rate = figures::rate(sum.by_link.get(name)?.rate_bps);
            (most(sum) != Some(name)).then(|| format!("{rate} {}", way.word()))
        });
        let adds: Vec<String> = adds.collect();
        (!adds.is_empty()).then(|| format!("{name} adds {}.", adds.join(" and ")))
    };
    names.into_iter().filter_map(of_link).collect()
}

/// The link that carries most of a bundle.
fn most(sum: &SumSpeed) -> Option<&String> {
    let links = sum.by_link.iter();
    links.max_by(|(_, a), (_, b)| a.rate_bps.total_cmp(&b.rate_bps)).map(|(name, _)| name)
}

fn shortfalls(together: &TogetherSpeed) -> Option<String> {
    let less = ways(together).filter(|(_, sum)| share(sum).is_some_and(|share| share < GOOD_SHARE));
    let less: Vec<&str> = less.map(|(way, _)| way.word()).collect();
    (!less.is_empty()).then(|| {
        format!(
            "That is less than they could ({}): they share a part of the way, or the proxy or this machine can do no more.",
            less.join(" and ")
        )
    })
}

fn of_link(link: &LinkSpeed) -> Vec<String> {
    let mut said = Vec::new();
    let name = &link.name;
    let ways = || SpeedWay::BOTH.into_iter().filter_map(move |way| Some((way, link.way(way)?)));
    for (way, speed) in ways() {
        let grown = speed.rtt_p95_ms.zip(link.idle_rtt_ms).map(|(loaded, idle)| loaded - idle);
        if let Some(grown) = grown.filter(|grown| *grown > LONG_QUEUE_MS) {
            let (way, grown) = (way.word(), millis(grown));
            said.push(format!("{name}'s queue grows by {grown} while its way {way} is full."));
        }
        if let Some(loss) = speed.loss.filter(|loss| *loss > HIGH_LOSS) {
            said.push(format!("{name} loses {} of what goes {}.", percent(loss), way.word()));
        }
        if speed.other_bps > OTHER_BPS.max(speed.rate_bps * OTHER_SHARE) {
            let (way, other) = (way.word(), figures::rate(speed.other_bps));
            said.push(format!(
                "Of {name}'s rate {way}, {other} were packets that went beside the test."
            ));
        }
    }
    if ways().any(|(_, Speed { cut_short, .. })| *cut_short) {
        said.push(format!(
            "The test of {name} ended early, for its data was used up: more data makes its figures better."
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(mbps: f64) -> Speed {
        Speed {
            rate_bps: mbps * 1e6,
            wire_bps: mbps * 1.05e6,
            rtt_p50_ms: Some(25.0),
            rtt_p95_ms: Some(30.0),
            loss: Some(0.001),
            over_s: 7.0,
            ..Speed::default()
        }
    }

    fn link(name: &str, down: Speed, up: Speed) -> LinkSpeed {
        LinkSpeed {
            name: name.to_owned(),
            idle_rtt_ms: Some(20.0),
            down: Some(down),
            up: Some(up),
            ..LinkSpeed::default()
        }
    }

    fn sum(parts: &[(&str, f64)], alone: f64) -> Option<SumSpeed> {
        let by_link = parts.iter().map(|(name, mbps)| ((*name).to_owned(), speed(*mbps)));
        Some(SumSpeed {
            sum: speed(parts.iter().map(|(_, mbps)| mbps).sum()),
            alone_bps: alone * 1e6,
            by_link: by_link.collect(),
        })
    }

    fn report(links: Vec<LinkSpeed>, together: Option<TogetherSpeed>) -> SpeedTestReport {
        SpeedTestReport { links, together, ..SpeedTestReport::default() }
    }

    fn together(down: Option<SumSpeed>, up: Option<SumSpeed>) -> Option<TogetherSpeed> {
        Some(TogetherSpeed { down, up })
    }

    #[test]
    fn a_bundle_is_told_by_its_share_of_the_sum_and_by_what_each_link_adds() {
        let links =
            vec![link("wlan0", speed(50.0), speed(10.0)), link("lte", speed(14.0), speed(12.0))];
        let down = sum(&[("wlan0", 47.0), ("lte", 12.3)], 64.0);
        let both = together(down, sum(&[("wlan0", 9.5), ("lte", 11.9)], 22.0));
        let said = sentences(&report(links.clone(), both));
        let expected = [
            "The links together: down 59.3 Mbit/s, 93 % of their sum; up 21.4 Mbit/s, 97 % of their sum.",
            "lte adds 12.3 Mbit/s down.",
            "wlan0 adds 9.5 Mbit/s up.",
        ];
        assert_eq!(said, expected);
        let shared = together(sum(&[("wlan0", 26.0), ("lte", 12.0)], 64.0), None);
        let said = sentences(&report(links, shared));
        assert_eq!(said[0], "The links together: down 38 Mbit/s, 59 % of their sum.");
        assert!(said[2].starts_with("That is less than they could (down): "), "{said:?}");
    }

    #[test]
    fn long_queues_losses_other_packets_and_rough_figures_are_told_and_what_is_usual_is_not() {
        assert!(sentences(&report(vec![link("lte", speed(9.0), speed(2.0))], None)).is_empty());
        let down = Speed { rtt_p95_ms: Some(220.0), other_bps: 3.2e6, ..speed(50.0) };
        let up = Speed { loss: Some(0.023), cut_short: true, other_bps: 90_000.0, ..speed(2.0) };
        let said = sentences(&report(vec![link("wlan0", down, up)], None));
        let expected = [
            "wlan0's queue grows by 200 ms while its way down is full.",
            "Of wlan0's rate down, 3.2 Mbit/s were packets that went beside the test.",
            "wlan0 loses 2.3 % of what goes up.",
            "The test of wlan0 ended early, for its data was used up: more data makes its figures better.",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_test_that_found_nothing_says_nothing() {
        let skipped = LinkSpeed { skipped: Some("it is down".to_owned()), ..LinkSpeed::default() };
        assert!(sentences(&report(vec![skipped], None)).is_empty());
        let nothing = together(sum(&[], 0.0), None);
        assert!(sentences(&report(Vec::new(), nothing)).is_empty());
    }
}
