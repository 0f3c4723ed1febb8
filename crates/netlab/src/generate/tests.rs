//! Generated links against the figures of the recordings that they stand for.

use super::summary::Summary;
use super::*;

fn draw(seed: u64, direction: Direction) -> Draw<'static> {
    Draw { seed, link: "a", direction, length: Duration::from_secs(200) }
}

/// Means over 20 seeds: of mean, 5th and 95th percentile in Mbit/s, and share of outages in percent;
/// and the largest second of all.
fn figures(kind: Kind, direction: Direction) -> [f64; 5] {
    let mut figures = [0.0; 5];
    for seed in 0..20 {
        let summary = Summary::of(&kind.generate(&draw(seed, direction)).unwrap().trace);
        figures[0] += summary.mean_mbit / 20.0;
        figures[1] += summary.p5_mbit / 20.0;
        figures[2] += summary.p95_mbit / 20.0;
        #[expect(clippy::cast_precision_loss, reason = "at most 200 seconds")]
        let outage = 100.0 * summary.outage_s as f64 / summary.seconds as f64;
        figures[3] += outage / 20.0;
        figures[4] = summary.max_mbit.max(figures[4]);
    }
    figures
}

#[test]
fn downstream_figures_lie_among_those_of_the_recordings() {
    // Lowest and highest of the recordings named in `model`: mean, p5, p95 in Mbit/s, outages in percent.
    type Band = (f64, f64);
    let table: [(Kind, Band, Band, Band, Band); 7] = [
        // NYC timessq and home1.
        (Kind::LteStill, (5.97, 7.62), (1.94, 4.1), (10.45, 11.99), (0.0, 0.0)),
        // ATT 2016, ATT, T-Mobile, NYC taxi.
        (Kind::LteDriving, (4.16, 18.39), (0.59, 6.79), (8.66, 26.88), (0.0, 0.5)),
        // The nine of LEO.
        (Kind::FiveG, (23.8, 238.3), (1.2, 146.0), (72.9, 306.0), (0.0, 2.0)),
        // The five walks.
        (Kind::WlanWalking, (13.5, 52.2), (0.0, 19.4), (29.7, 80.9), (0.0, 54.0)),
        // LEO's three and Osnabrück.
        (Kind::Starlink, (37.8, 285.2), (0.0, 69.4), (201.0, 421.4), (0.0, 80.0)),
        // Train, T-Mobile UMTS, bus.
        (Kind::Hspa, (1.17, 2.96), (0.0, 0.62), (2.21, 5.88), (0.0, 17.9)),
        // The uploads of BATCP's authors, 0.31 to 0.36 Mbit/s of payload, and what else a sender leaves unused.
        (Kind::HspaModem, (0.38, 0.5), (0.0, 0.3), (0.6, 1.2), (0.0, 10.0)),
    ];
    for (kind, mean, p5, p95, outage) in table {
        let measured = figures(kind, Direction::Down);
        println!("{kind}: {measured:.2?}");
        for (value, (least, most)) in measured.iter().zip([mean, p5, p95, outage]) {
            assert!((least..=most).contains(value), "{kind}: {measured:?}");
        }
        // A tenth for packets that come by chance above the rate.
        assert!(measured[4] <= 1.1 * kind.model().ceiling_mbit, "{kind}: {measured:?}");
    }
}

#[test]
fn the_mean_of_each_kind_is_that_of_its_model() {
    for kind in Kind::ALL {
        let model = kind.model();
        let spread = model.intervals.map_or(0.0, |of| of.spread).hypot(model.fading.spread);
        let left: f64 = model
            .interruptions
            .iter()
            .map(|one| (one.every_s + one.leaves * one.for_s) / (one.every_s + one.for_s))
            .product();
        // The mean of a log-normal variable, which the ceiling and gaps lower.
        let most = model.median_mbit * (spread * spread / 2.0).exp() * left;
        let mean = figures(kind, Direction::Down)[0];
        assert!((0.7 * most..1.1 * most).contains(&mean), "{kind}: {mean} of {most}");
        let upstream = figures(kind, Direction::Up)[0];
        let ratio = upstream / mean / model.uplink;
        // Twice 4,000 s hold some 250 independent values each where rates vary most slowly.
        assert!((0.8..1.25).contains(&ratio), "{kind}: upstream {upstream} of {mean}");
    }
}

#[test]
fn a_trace_depends_on_seed_link_and_direction_alone() {
    for kind in Kind::ALL {
        let once = draw(1, Direction::Down);
        let trace = |draw: &Draw<'_>| kind.generate(draw).unwrap();
        let first = trace(&once);
        assert_eq!(first, trace(&once), "{kind}");
        assert_eq!(first.trace.period(), once.length);
        for other in [draw(2, Direction::Down), draw(1, Direction::Up), Draw { link: "b", ..once }]
        {
            assert_ne!(first.trace, trace(&other).trace, "{kind}");
        }
    }
}

#[test]
fn both_directions_of_a_link_are_out_of_range_together() {
    let seconds =
        |direction| Kind::WlanWalking.generate(&draw(3, direction)).unwrap().trace.per_second();
    let (down, up) = (seconds(Direction::Down), seconds(Direction::Up));
    let out = |mbit: &f64| *mbit == 0.0;
    let both = down.iter().zip(&up).filter(|(down, up)| out(down) && out(up)).count();
    assert!(both >= 5, "{both}");
    assert_eq!(both, down.iter().filter(|mbit| out(mbit)).count());
}

#[test]
fn only_satellites_move_the_delay_and_only_every_15_seconds() {
    for kind in Kind::ALL {
        let delays = kind.generate(&draw(1, Direction::Down)).unwrap().delays;
        let up = kind.generate(&draw(1, Direction::Up)).unwrap().delays;
        assert_eq!(delays, up);
        if kind != Kind::Starlink {
            assert_eq!(delays, []);
            continue;
        }
        assert!((6..=14).contains(&delays.len()), "{delays:?}");
        for pair in delays.windows(2) {
            let apart = (pair[1].0 - pair[0].0).as_millis();
            assert_eq!(apart % 15_000, 0, "{delays:?}");
        }
        assert!(delays.iter().all(|(_, delay)| *delay <= Duration::from_millis(10)));
        assert!(delays.windows(2).all(|pair| pair[0].1 != pair[1].1), "{delays:?}");
    }
}

#[test]
fn names_are_those_of_scenario_files() {
    for kind in Kind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        let section: crate::scenario::file::SettingsSection =
            toml::from_str(&format!("generated = \"{kind}\"")).unwrap();
        assert_eq!(section.generated, Some(kind));
    }
    let error = "isdn".parse::<Kind>().unwrap_err().to_string();
    assert!(error.starts_with("there is no link `isdn`; there are lte-still, "), "{error}");
}
