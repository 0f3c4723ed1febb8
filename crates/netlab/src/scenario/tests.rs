//! Scenario files: what they mean, and how they are refused.

use rand::SeedableRng;
use ropewalk_proto::ecn::Ecn;
use ropewalk_settings::Bitrate;

use super::*;
use crate::generate::{Direction, Draw, Kind};

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(text, Path::new("."))
}

/// A file with one link that has these lines.
fn with_link(lines: &str) -> Result<Scenario, ScenarioError> {
    parse(&format!("name = \"x\"\n[[links]]\nname = \"a\"\n{lines}"))
}

#[test]
fn every_scenario_of_the_project_can_be_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let scenario = Scenario::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(path.file_stem().unwrap().to_str(), Some(scenario.name.as_str()));
        assert!(!scenario.traffic.is_empty() && !scenario.checks.is_empty(), "{}", scenario.name);
        names.push(scenario.name);
    }
    assert!(names.contains(&"demo".to_owned()), "{names:?}");
}

#[test]
fn the_demo_has_the_links_of_the_paper() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let demo = Scenario::open(&folder.join("demo.toml")).unwrap();
    let shape = |course: &Course| {
        let c = &course.initial;
        (
            c.rate.mean().unwrap(),
            c.delay.as_millis(),
            c.queue.bytes_at(&c.rate),
            course.changes.len(),
        )
    };
    let expected = [(Bitrate::from_mbps(8), 5, 100_000, 0), (Bitrate::from_mbps(2), 50, 25_000, 0)];
    for (link, expected) in demo.links.iter().zip(expected) {
        assert_eq!((shape(&link.upstream), shape(&link.downstream)), (expected, expected));
    }
}

#[test]
fn the_special_setting_wins_over_the_general_one() {
    let scenario = with_link(
        "profile = \"dsl\"\nrtt_ms = 40\nboth = { rate_mbit = 5, loss = 0.01 }\nup = { rate_mbit = 1, delay_ms = 7 }",
    );
    let link = &scenario.unwrap().links[0];
    let (up, down) = (&link.upstream.initial, &link.downstream.initial);
    assert_eq!(up.rate, Rate::Fixed(Bitrate::from_mbps(1)));
    assert_eq!(down.rate, Rate::Fixed(Bitrate::from_mbps(5)));
    assert_eq!((up.delay.as_millis(), down.delay.as_millis()), (7, 20));
    assert_eq!((up.loss, down.loss), (Loss::Bernoulli(0.01), Loss::Bernoulli(0.01)));
    // What nobody mentions is the profile's.
    assert_eq!(down.queue.time, Some(Duration::from_millis(250)));
}

#[test]
fn a_link_told_again_keeps_what_is_not_said_of_it() {
    let link = |text: &str| -> LinkSection { toml::from_str(text).unwrap() };
    let base = link(
        "name = \"a\"\nrtt_ms = 10\nboth = { rate_mbit = 5, queue_ms = 100 }\n\
         outages = [{ at_s = 1, for_s = 1 }]",
    );
    let other = link("name = \"a\"\nboth = { trace = \"t\", loss = 0.1 }\nup = { mtu = 9 }");
    let expected = link(
        "name = \"a\"\nrtt_ms = 10\nboth = { trace = \"t\", loss = 0.1, queue_ms = 100 }\n\
         up = { mtu = 9 }\noutages = [{ at_s = 1, for_s = 1 }]",
    );
    assert_eq!(base.with(&other), expected);
}

#[test]
fn changes_and_outages_happen_in_the_order_of_time() {
    let scenario = with_link(
        "outages = [{ at_s = 3, for_s = 2 }, { at_s = 1, for_s = 0.5, direction = \"up\", lose = \"arrivals\" }]\n\
         changes = [{ at_s = 4, both = { mtu = 1300 } }, { at_s = 2, down = { rate_mbit = 3 } }]",
    );
    let link = &scenario.unwrap().links[0];
    let course = |course: &Course| -> Vec<(u128, Option<Cut>, u32)> {
        course.changes.iter().map(|(at, c)| (at.as_millis(), c.cut, c.mtu)).collect()
    };
    let (any, all) = (u32::MAX, Some(Cut::Everything));
    let expected = [
        (1_000, Some(Cut::Arrivals), any),
        (1_500, None, any),
        (3_000, all, any),
        (4_000, all, 1300),
        (5_000, None, 1300),
    ];
    assert_eq!(course(&link.upstream), expected);
    let expected = [(2_000, None, any), (3_000, all, any), (4_000, all, 1300), (5_000, None, 1300)];
    assert_eq!(course(&link.downstream), expected);
}

#[test]
fn a_course_runs_in_virtual_time() {
    let link = &with_link("rtt_ms = 10\noutages = [{ at_s = 1, for_s = 1 }]").unwrap().links[0];
    let start = Instant::from_millis(500);
    let mut netem = link.upstream.netem(start, SmallRng::seed_from_u64(1));
    for tenth in 0..30_u64 {
        netem.handle_packet(start + Duration::from_millis(100 * tenth), tenth, 100, Ecn::NotEct);
    }
    let end = start + Duration::from_secs(9);
    let came: Vec<u64> = std::iter::from_fn(|| netem.poll_packet(end)).map(|d| d.payload).collect();
    assert_eq!(came, (0..10).chain(20..30).collect::<Vec<_>>());
}

#[test]
fn a_recording_is_used_where_its_folder_is_given_and_else_a_generated_link() {
    let text = "name = \"x\"\nseed = 4\nduration_s = 10\n[[links]]\nname = \"a\"\nrtt_ms = 10\n\
        both = { recorded = \"walk.down\", generated = \"wlan-walking\" }\n\
        up = { generated = \"hspa\" }";
    let recordings = tempfile::tempdir().unwrap();
    std::fs::write(recordings.path().join("walk.down.mm.gz"), "500\n1000\n").unwrap();
    let with = |recordings| Scenario::parse(text, Folders { traces: Path::new("."), recordings });
    let link = |scenario: Scenario| scenario.links[0].clone();

    let recorded = link(with(Some(recordings.path())).unwrap());
    assert_eq!(recorded.downstream.traces, [TraceSource::Recorded("walk.down".into())]);
    assert_eq!(recorded.downstream.capacity(Duration::ZERO, 3), [0.024; 3]);
    assert_eq!(recorded.upstream.traces, [TraceSource::Generated(Kind::Hspa)]);

    let generated = link(with(None).unwrap());
    assert_eq!(generated.downstream.traces[0].to_string(), "generated wlan-walking");
    let (initial, first) = (&generated.downstream.initial, &generated.downstream.changes[0]);
    let Rate::Trace(trace) = &first.1.rate else { panic!("{first:?}") };
    assert_eq!((first.0, trace.period().as_secs()), (Duration::ZERO, 10));
    assert_eq!(initial.rate, Rate::Fixed(trace.mean_rate()));
    assert_eq!(generated.downstream, link(with(None).unwrap()).downstream);
    let stand_in =
        Draw { seed: 4, link: "walk.down", direction: Direction::Down, length: trace.period() };
    assert_eq!(**trace, Kind::WlanWalking.generate(&stand_in).unwrap().trace);

    let told = with(Some(recordings.path())).unwrap().traces();
    assert_eq!(told, ["a down: recording walk.down", "a up: generated hspa"]);

    let absent = with(Some(Path::new("/nowhere"))).unwrap_err().to_string();
    assert_eq!(absent, "link `a`: cannot read the trace /nowhere/walk.down.mm.gz");
}

#[test]
fn a_satellite_moves_the_delay_until_another_rate_holds() {
    let scenario = with_link(
        "rtt_ms = 30\ndown = { generated = \"starlink\" }\n\
         changes = [{ at_s = 100, both = { mtu = 1300 } }, { at_s = 200, down = { rate_mbit = 5 } }]",
    );
    let changes = &scenario.unwrap().links[0].downstream.changes;
    let base = Duration::from_millis(15);
    let in_reach = |delay| (base..base + Duration::from_millis(10)).contains(&delay);
    assert!(changes.len() > 10, "{}", changes.len());
    for (at, conditions) in changes {
        let seconds = at.as_secs_f64();
        assert_eq!(conditions.mtu == 1300, seconds >= 100.0, "{seconds}");
        assert_eq!(matches!(conditions.rate, Rate::Trace(_)), seconds < 200.0, "{seconds}");
        assert!(in_reach(conditions.delay), "{seconds}");
    }
    let delay_at = |second: u64| {
        let before = changes.iter().rfind(|change| change.0 <= Duration::from_secs(second));
        before.unwrap().1.delay
    };
    assert_ne!(delay_at(99), base);
    assert_eq!(delay_at(99), delay_at(100));
    assert_eq!(delay_at(200), base);
}

#[test]
fn capacity_follows_rates_traces_and_outages() {
    let folder = tempfile::tempdir().unwrap();
    // Two in each round of half a second.
    std::fs::write(folder.path().join("t.mm"), "250\n500\n").unwrap();
    let text = "name = \"x\"\n[[links]]\nname = \"a\"\ndown = { rate_mbit = 8 }\n\
        outages = [{ at_s = 1.5, for_s = 1 }]\n\
        changes = [{ at_s = 3.25, down = { trace = \"t.mm\" } }, { at_s = 4.25, down = { mtu = 99 } }]";
    let link = &Scenario::parse(text, folder.path()).unwrap().links[0];
    let expected = [8.0, 4.0, 4.0, 2.0 + 3.0 * 0.012, 4.0 * 0.012];
    let capacity = link.downstream.capacity(Duration::ZERO, 5);
    for (second, expected) in expected.iter().enumerate() {
        assert!((capacity[second] - expected).abs() < 1e-9, "{second}: {capacity:?}");
    }
    let later = link.downstream.capacity(Duration::from_millis(1250), 1);
    assert!((later[0] - 8.0 * 0.25).abs() < 1e-9, "{later:?}");
    assert_eq!(link.upstream.capacity(Duration::ZERO, 2), [f64::INFINITY, f64::INFINITY]);
}

#[test]
fn all_kinds_of_loss_are_understood() {
    let loss = |text: &str| {
        with_link(&format!("both = {{ loss = {text} }}")).map(|s| s.links[0].upstream.initial.loss)
    };
    assert_eq!(loss("0.5").unwrap(), Loss::Bernoulli(0.5));
    assert!((loss("{ mean = 0.02, burst = 4 }").unwrap().mean() - 0.02).abs() < 1e-12);
    let chain = "{ good_to_bad = 0.1, bad_to_good = 0.3, loss_in_good = 0.0, loss_in_bad = 0.8 }";
    assert!((loss(chain).unwrap().mean() - 0.2).abs() < 1e-12);
    for wrong in ["1.5", "{ mean = 1.0, burst = 4 }", "{ mean = 0.1, burst = 0.1 }"] {
        let text = loss(wrong).unwrap_err().to_string();
        assert_eq!(text, "link `a`: no such loss exists", "{wrong}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_place() {
    let table = [
        (
            "both = { rate_mbit = 0 }",
            "link `a`: rate_mbit must be between 0.001 and 1000000, not 0",
        ),
        (
            "both = { rate_mbit = -1 }",
            "link `a`: rate_mbit must be between 0.001 and 1000000, not -1",
        ),
        ("rtt_ms = -5", "link `a`: rtt_ms must be between 0 and a day, not -5"),
        ("both = { delay_ms = nan }", "link `a`: delay_ms must be between 0 and a day, not NaN"),
        (
            "up = { mark_probability = 2 }",
            "link `a`: mark_probability must be between 0 and 1, not 2",
        ),
        (
            "up = { rate_mbit = 1, trace = \"t\" }",
            "link `a`: either rate_mbit or trace or generated",
        ),
        (
            "up = { trace = \"t\", generated = \"5g\" }",
            "link `a`: either rate_mbit or trace or generated",
        ),
        (
            "up = { recorded = \"t\" }",
            "link `a`: recorded needs a folder of recordings, or generated beside it",
        ),
        ("up = { trace = \"absent.mm\" }", "link `a`: cannot read the trace ./absent.mm"),
        (
            "outages = [{ at_s = 1, for_s = 2 }, { at_s = 2, for_s = 1 }]",
            "link `a`: the outage at 2s begins within the one before",
        ),
        ("[[links]]\nname = \"a\"", "link `a`: the name is taken"),
        ("[[traffic]]\nkind = \"udp\"\nbytes = 1", "traffic 1: a UDP stream needs rate_mbit"),
        (
            "[[traffic]]\nkind = \"tcp\"\ndirection = \"up\"\nbytes = 1\ncongestion = \"bbr\"\n\
             [[traffic]]\nkind = \"http\"\ndirection = \"up\"\nbytes = 1",
            "traffic: all uploads use the same congestion control",
        ),
        (
            "[[traffic]]\nkind = \"udp\"\nrate_mbit = 1\nbytes = 1\nflows = 2",
            "traffic 1: flows must be 1 to 64, and 1 but for tcp and http",
        ),
        (
            "[[traffic]]\nkind = \"tcp\"\nbytes = 1\nflows = 65",
            "traffic 1: flows must be 1 to 64, and 1 but for tcp and http",
        ),
        ("[[traffic]]\nkind = \"tcp\"", "traffic 1: needs bytes or duration_s, else it never ends"),
        ("[[checks]]\nname = \"loss\"", "check `loss`: needs a minimum or a maximum"),
    ];
    for (lines, expected) in table {
        assert_eq!(with_link(lines).unwrap_err().to_string(), expected);
    }
    assert_eq!(
        parse("name = \"x\"\nlinks = []").unwrap_err().to_string(),
        "links: a scenario needs at least one"
    );
}

#[test]
fn an_unknown_name_is_refused_with_line_and_column() {
    for lines in [
        "rate = 8",
        "both = { rtt_ms = 8 }",
        "outages = [{ at = 8, for_s = 1 }]",
        "[tunnel]\nsheduler = \"x\"",
        "[[checks]]\nname = \"x\"\nmin = 1",
        "profile = \"isdn\"",
        "up = { generated = \"isdn\" }",
        "both = { loss = { mean = 0.1 } }",
    ] {
        let text = with_link(lines).unwrap_err().to_string();
        assert!(text.contains("line ") && text.contains("column "), "{lines}: {text}");
    }
}

#[test]
fn a_setting_of_the_tunnel_that_makes_no_sense_is_refused_by_its_name() {
    let table = [
        ("[tunnel]\nscheduler = \"best\"", "unknown variant `best`"),
        ("[tunnel]\nqueue = \"1s\"", "tunnel: queue: 1s is outside 1ms to 100ms"),
        ("[tunnel]\nkeepalive = \"1h\"", "1h is outside 500ms to 10m"),
        ("[tunnel]\nlink.b.weight = 2", "tunnel: there is no link `b`"),
    ];
    for (lines, expected) in table {
        let text = with_link(lines).unwrap_err().to_string();
        assert!(text.contains(expected), "{lines}: {text}");
    }
}

#[test]
fn a_check_holds_within_its_bounds() {
    let check = |minimum, maximum| Check { name: String::new(), minimum, maximum };
    for (bounds, value, expected) in [
        ((Some(80.0), None), 80.0, true),
        ((Some(80.0), None), 79.9, false),
        ((None, Some(2.0)), 2.1, false),
        ((Some(1.0), Some(2.0)), 1.5, true),
        ((Some(1.0), None), f64::NAN, false),
    ] {
        assert_eq!(check(bounds.0, bounds.1).holds(value), expected, "{bounds:?} {value}");
    }
}

#[test]
fn what_others_send_is_taken_from_the_capacity() {
    let scenario = with_link(
        "both = { rate_mbit = 5 }\nchanges = [\
         { at_s = 1, down = { background_mbit = 4 } }, { at_s = 2.5, down = { background_mbit = 0 } },\
         { at_s = 3, down = { background_mbit = 9 } }]",
    );
    let link = &scenario.unwrap().links[0];
    assert_eq!(link.downstream.capacity(Duration::ZERO, 4), [5.0, 1.0, 3.0, 0.0]);
    assert!(link.downstream.varies() && !link.upstream.varies());
    let error = with_link("both = { rate_mbit = 5, background_mbit = -1 }").unwrap_err();
    assert_eq!(error.to_string(), "link `a`: background_mbit cannot be -1");
}

#[test]
fn a_policer_bounds_what_a_link_carries_behind_a_faster_transmitter() {
    let link = "{ name = 'a', both = { rate_mbit = 50, queue_ms = 100 }, down = { policer = { rate_mbit = 20, burst_ms = 10 } } }";
    let text = format!("name = 'x'\nlinks = [{link}]");
    let scenario = Scenario::parse(&text, Path::new(".")).unwrap();
    let course = &scenario.links[0].downstream;
    let burst = Duration::from_millis(10);
    let policer = Policer { rate: Bitrate::from_mbps(20), burst };
    assert_eq!(course.initial.policer, Some(policer));
    assert_eq!(course.capacity(Duration::ZERO, 2), [20.0, 20.0]);
    assert_eq!(scenario.links[0].upstream.initial.mean_rate(), Some(Bitrate::from_mbps(50)));
    assert!(!course.varies(), "it is the same at all times");
}
