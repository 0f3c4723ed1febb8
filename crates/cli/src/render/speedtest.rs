//! How a speed test looks, while it goes on and when it is over.

use ropewalk_control::api::{Speed, SpeedPhaseProgress, SpeedTestReport, SpeedWay};
use ropewalk_settings::figures::{megabits, rate, size};

use super::{Page, clean, decimal};

/// How far it is, in a line.
pub(crate) fn speed_progress(progress: &SpeedPhaseProgress) -> String {
    let SpeedPhaseProgress { number, of, link, way, elapsed_s, of_s, rate_bps } = progress;
    let what = match (link, way) {
        (_, None) => "links at rest".to_owned(),
        (None, Some(way)) => format!("all links {}", way.word()),
        (Some(link), Some(way)) => format!("{} {}", clean(link), way.word()),
    };
    let now = match way {
        None => String::new(),
        Some(_) => format!(", {}", rate(*rate_bps)),
    };
    format!("[{number} of {of}] {what}{now} ({elapsed_s:.0} of {of_s:.0} s)")
}

/// A table of what was found of each link and way, and what that means.
pub(crate) fn speed_test(report: &SpeedTestReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    page.line(0, &format!("Speed of the links to {}", report.proxy));
    let header = ["link", "way", "Mbit/s", "at IP", "idle ms", "loaded ms", "95 % ms", "loss %"];
    let mut table = page.new_table(&header, 2);
    let mut row = |name: &str, way: SpeedWay, idle: Option<f64>, speed: &Speed| {
        table.add_row([
            clean(name),
            way.word().to_owned(),
            megabits(speed.rate_bps),
            megabits(speed.wire_bps),
            decimal(idle, 1),
            decimal(speed.rtt_p50_ms, 1),
            decimal(speed.rtt_p95_ms, 1),
            decimal(speed.loss.map(|share| share * 100.0), 2),
        ]);
    };
    for link in &report.links {
        for way in SpeedWay::BOTH {
            if let Some(speed) = link.way(way) {
                row(&link.name, way, link.idle_rtt_ms, speed);
            }
        }
    }
    for way in SpeedWay::BOTH {
        if let Some(sum) = report.together.as_ref().and_then(|together| together.way(way)) {
            row("together", way, None, &sum.sum);
        }
    }
    if table.row_count() > 0 {
        page.table(&table);
    }
    for link in &report.links {
        if let Some(why) = &link.skipped {
            page.line(2, &format!("{}: {why}", link.name));
        }
    }
    if table.row_count() > 0 {
        page.line(
            0,
            &format!(
                "Mbit/s of packets, and of the same at IP level with all headers; round trips before the test, and while the link is \
                 full: half of them, and 95 %, were shorter. Test data: {}.",
                size(report.test_bytes)
            ),
        );
    }
    if !report.summary.is_empty() {
        page.gap();
    }
    for sentence in &report.summary {
        page.line(0, sentence);
    }
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::{LinkSpeed, SumSpeed, TogetherSpeed};

    fn speed(mbps: f64) -> Speed {
        Speed {
            rate_bps: mbps * 1e6,
            wire_bps: mbps * 1.04e6,
            rtt_p50_ms: Some(31.26),
            rtt_p95_ms: Some(54.04),
            loss: Some(0.0123),
            over_s: 7.0,
            ..Speed::default()
        }
    }

    #[test]
    fn each_link_and_way_has_a_row_of_eighty_columns_and_below_stands_what_it_means() {
        let wlan = LinkSpeed {
            name: "wlan0\u{1b}[2J".to_owned(),
            idle_rtt_ms: Some(20.13),
            down: Some(speed(48.2)),
            up: Some(speed(10.0)),
            ..LinkSpeed::default()
        };
        let why = Some("bytes cost on it: --metered with --max DATA tests it".to_owned());
        let lte = LinkSpeed { name: "lte".to_owned(), skipped: why, ..LinkSpeed::default() };
        let sum = SumSpeed { sum: speed(59.0), ..SumSpeed::default() };
        let report = SpeedTestReport {
            proxy: "vps.example.org:51900".to_owned(),
            links: vec![wlan, lte],
            together: Some(TogetherSpeed { down: Some(sum), up: None }),
            test_bytes: 123_400_000,
            summary: vec!["The links together: down 59 Mbit/s, 93 % of their sum.".to_owned()],
            ..SpeedTestReport::default()
        };
        let text = speed_test(&report, 80);
        for part in ["48.2", "50.1", "20.1", "31.3", "54.0", "1.23", "together", "lte: bytes cost"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("123 MB") && text.ends_with("93 % of their sum.\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let rows = text.lines().filter(|line| line.contains(" down ") || line.contains(" up "));
        assert_eq!(rows.count(), 4, "three, and the sentence: {text}");
    }

    #[test]
    fn a_test_that_found_nothing_shows_no_empty_table() {
        let text = speed_test(&SpeedTestReport::default(), 80);
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn how_far_it_is_fits_in_a_line() {
        let down = SpeedPhaseProgress {
            number: 3,
            of: 7,
            link: Some("wlan0".to_owned()),
            way: Some(SpeedWay::Down),
            elapsed_s: 3.4,
            of_s: 10.0,
            rate_bps: 48.2e6,
        };
        assert_eq!(speed_progress(&down), "[3 of 7] wlan0 down, 48.2 Mbit/s (3 of 10 s)");
        let all = SpeedPhaseProgress { link: None, way: Some(SpeedWay::Up), ..down.clone() };
        assert_eq!(speed_progress(&all), "[3 of 7] all links up, 48.2 Mbit/s (3 of 10 s)");
        let rest = SpeedPhaseProgress { way: None, ..down };
        assert_eq!(speed_progress(&rest), "[3 of 7] links at rest (3 of 10 s)");
    }
}
