//! What must hold. Ratios are taken within a repetition, of two that followed each other, and then their median: what else
//! the machine did meanwhile met both.

use super::figures::{Check, Figures, Measured};
use super::load::{FULL, SMALL, at_rate};
use super::udp::Way;
use crate::results::{Spread, rounded};

/// The contender that the others are compared with.
pub const REFERENCE: &str = "wireguard-go";
/// Ours, as it is shipped.
pub const OURS: &str = "ropewalk, 2 links";
const ONE_LINK: &str = "ropewalk, 1 link";
const THROUGH_NAT: &str = "ropewalk, 2 links, NAT";
const NO_TUNNEL: &str = "veth";
const NO_SANDBOX: &str = "ropewalk, 2 links, no sandbox";
const CROWDED: &str = "ropewalk, 2 links, 10,000 sessions";

/// The rate in thousands of packets a second at which proxies of one and many sessions are compared: both are to carry it.
const COMPARED_AT: f64 = 50.0;

/// The rate in thousands of packets a second at which the cost of small packets is judged.
pub const JUDGED_AT: f64 = 92.0;

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

/// All checks, of whatever was measured.
#[must_use]
pub fn checks(figures: &Figures) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |what: String, bound: Bound, values: Vec<f64>| {
        let measured = Spread::of(values).map(|spread| rounded(spread.median));
        let (at_least, at_most) = match bound {
            AtLeast(bound) => (Some(bound), None),
            AtMost(bound) => (None, Some(bound)),
        };
        let ok = measured.is_some_and(|measured| {
            at_least.is_none_or(|bound| measured >= bound)
                && at_most.is_none_or(|bound| measured <= bound)
        });
        checks.push(Check { what, at_least, at_most, measured, ok });
    };
    let ours = figures.of(OURS);
    for way in Way::ALL {
        let way = way.as_str();
        let gbit = format!("tcp1-{way}.gbit");
        let ratio = |to: &str| pairs(ours, figures.of(to), &gbit, |ours, other| ours / other);
        check(format!("one TCP, {way}: times {REFERENCE}"), AtLeast(2.4), ratio(REFERENCE));
        check(format!("one TCP, {way}: two links, times one"), AtLeast(0.9), ratio(ONE_LINK));
        check(
            format!("one TCP, {way}: in the sandbox, times without"),
            AtLeast(0.95),
            ratio(NO_SANDBOX),
        );
        for end in ["near", "far"] {
            let who = if end == "near" { "client" } else { "proxy" };
            check(
                format!("one TCP, {way}: CPU s/GB of the {who}"),
                AtMost(1.0),
                values(ours, &format!("tcp1-{way}.{end}_s_per_gb")),
            );
        }
        check(
            format!("one TCP through NAT, {way}, Gbit/s"),
            AtLeast(4.5),
            values(figures.of(THROUGH_NAT), &gbit),
        );
    }
    for way in Way::ALL {
        let lossless = |size: usize| format!("udp{size}-{}.lossless_kpps", way.as_str());
        let gbit = values(ours, &lossless(FULL.size));
        #[expect(clippy::cast_precision_loss, reason = "a packet")]
        let bits = FULL.size as f64 * 8.0;
        check(
            format!("UDP 1400 B, {}: Gbit/s without loss", way.as_str()),
            AtLeast(0.9),
            gbit.into_iter().map(|kpps| kpps * bits / 1e6).collect(),
        );
        check(
            format!("UDP 160 B, {}: thousand packets/s without loss", way.as_str()),
            AtLeast(90.0),
            values(ours, &lossless(SMALL.size)),
        );
        for (end, who) in [("near_us", "client"), ("far_us", "proxy")] {
            check(
                format!("UDP 160 B, {}: CPU µs per packet of the {who}", way.as_str()),
                AtMost(3.5),
                values(ours, &at_rate(SMALL, way, JUDGED_AT, end)),
            );
            check(
                format!(
                    "UDP 160 B, {}: CPU of the {who} in the sandbox, times without",
                    way.as_str()
                ),
                AtMost(1.05),
                pairs(
                    ours,
                    figures.of(NO_SANDBOX),
                    &at_rate(SMALL, way, JUDGED_AT, end),
                    |ours, other| ours / other,
                ),
            );
        }
    }
    let veth = figures.of(NO_TUNNEL);
    check(
        "idle round trip added by both ends, ms".into(),
        AtMost(0.3),
        pairs(ours, veth, "idle.p50_ms", |ours, other| ours - other),
    );
    check(
        "ping beside a full download, ms".into(),
        AtMost(3.0),
        values(ours, "ping-beside.p50_ms"),
    );
    let crowded = figures.of(CROWDED);
    check("10,000 sessions: KiB each".into(), AtMost(64.0), values(crowded, "sessions.kib"));
    check(
        "10,000 sessions: CPU µs of the proxy to begin one".into(),
        AtMost(500.0),
        values(crowded, "sessions.us_to_begin"),
    );
    check(
        "10,000 idle sessions: % of a core".into(),
        AtMost(5.0),
        values(crowded, "idle.far_core_percent"),
    );
    let cost = at_rate(SMALL, Way::Up, COMPARED_AT, "far_us");
    check(
        "10,000 sessions: a packet's cost at the proxy, times that of one session".into(),
        AtMost(1.2),
        pairs(crowded, ours, &cost, |crowded, ours| crowded / ours),
    );
    checks
}

/// A value in each repetition that has it.
fn values(of: Option<&Measured>, name: &str) -> Vec<f64> {
    of.map(|one| one.runs.iter().filter_map(|run| run.get(name).copied()).collect())
        .unwrap_or_default()
}

/// What becomes of a value of two contenders in each repetition that has both.
pub fn pairs(
    ours: Option<&Measured>,
    other: Option<&Measured>,
    name: &str,
    of: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let (Some(ours), Some(other)) = (ours, other) else { return Vec::new() };
    let both = ours.runs.iter().zip(&other.runs);
    both.filter_map(|(ours, other)| Some(of(*ours.get(name)?, *other.get(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contender::Kind;
    use super::*;
    use crate::results::Machine;

    fn measured(name: &str, runs: &[&[(&str, f64)]]) -> Measured {
        let run = |values: &&[(&str, f64)]| {
            values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        Measured {
            name: name.into(),
            kind: Kind::Ropewalk,
            links: 1,
            nat: false,
            missing: None,
            runs: runs.iter().map(run).collect(),
            summary: std::collections::BTreeMap::default(),
        }
        .with_summary()
    }

    #[test]
    fn a_ratio_is_taken_within_a_repetition() {
        let gbit = "tcp1-up.gbit";
        let machine = Machine { cpu: "".into(), cores: 2, kernel: "".into(), os: "".into() };
        let figures = Figures {
            schema: super::super::figures::SCHEMA,
            quick: false,
            commit: "".into(),
            dirty: false,
            date: "".into(),
            machine,
            repetitions: 3,
            // The second repetition was disturbed, for both; the third lacks one of them.
            contenders: vec![
                measured(REFERENCE, &[&[(gbit, 2.0)], &[(gbit, 0.5)], &[]]),
                measured(OURS, &[&[(gbit, 5.0)], &[(gbit, 1.25)], &[(gbit, 9.0)]]),
            ],
            checks: Vec::new(),
        };
        let checks = checks(&figures);
        let of = |what: &str| checks.iter().find(|check| check.what == what).unwrap();
        let held = of("one TCP, up: times wireguard-go");
        assert_eq!((held.measured, held.at_least, held.ok), (Some(2.5), Some(2.4), true));
        let unknown = of("one TCP, down: times wireguard-go");
        assert_eq!(
            (unknown.measured, unknown.ok),
            (None, false),
            "what is not known does not hold"
        );
    }
}
