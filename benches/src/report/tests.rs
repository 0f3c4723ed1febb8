//! Tables and pictures of made-up results.

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::results::{
    Case, Checked, LinkSummary, Machine, Mode, Point, Results, Run, SCHEMA, Spread, Traffic, Tried,
};

/// Percent of limit of a case, as `summary` makes it: lowest, median, highest.
fn spread(median: f64) -> Spread {
    Spread { median, lowest: median - 1.25, highest: median + 0.75 }
}

fn case(point: (&str, f64), series: &str, percent_of_limit: f64) -> Case {
    let run = Run {
        seed: 1,
        void: None,
        values: BTreeMap::new(),
        per_second: BTreeMap::from([("in_order_mbit".into(), vec![5.125, 6.5, 7.25])]),
        flow_mbit: Vec::new(),
        drops: BTreeMap::from([("queue_full".into(), 17), ("stale".into(), 0)]),
        share_percent: BTreeMap::from([("a".into(), 61.5), ("b".into(), 38.5)]),
        congestion_control: None,
    };
    let link = |name: &str| LinkSummary {
        name: name.into(),
        rate_mbit: 5.0,
        rtt_ms: 10.0,
        loss: 0.0,
        jitter_ms: 0.0,
        follows: (name == "b").then(|| "generated hspa".into()),
    };
    Case {
        id: format!("{}/{series}", point.0),
        point: Point { axis: "ratio".into(), label: point.0.into(), value: point.1, group: None },
        series: series.into(),
        traffic: Traffic::Udp,
        bytes: None,
        links: vec![link("a"), link("b")],
        sum_mbit: 10.0,
        limit_mbit: 9.4125,
        seconds: 3.0,
        planned_runs: 1,
        runs: vec![run],
        tried: Vec::new(),
        summary: BTreeMap::from([
            ("percent_of_limit".into(), spread(percent_of_limit)),
            ("percent_of_sum".into(), spread(percent_of_limit - 5.5)),
            ("goodput_mbit".into(), spread(percent_of_limit / 16.0)),
            ("delay_p99_ms".into(), spread(33.5)),
        ]),
        checks: Vec::new(),
    }
}

fn results(experiment: &str, mode: Mode, cases: Vec<Case>) -> Results {
    let machine =
        Machine { cpu: "a cpu".into(), cores: 2, kernel: "9.9".into(), os: "an os".into() };
    Results {
        schema: SCHEMA,
        experiment: experiment.into(),
        title: "A made-up one".into(),
        source: "nobody".into(),
        mode,
        quick: false,
        commit: "0123456789abcdef".into(),
        dirty: false,
        date: "2026-12-02".into(),
        seed: 77,
        machine: (mode == Mode::Real).then_some(machine),
        by_second: false,
        one_by_one: false,
        cases,
    }
}

const PEERS: &str = r#"
[[figures]]
experiment = "peers"
traffic = "udp"
value = "goodput_mbit"
source = "somebody with a watch"
goal = { "5:5" = 9.0 }
peers = [{ name = "rival", at = { "5:5" = 4.0 } }, { name = "other", drawn = false, at = { "5:5" = 3 } }]

[[claims]]
experiment = "curves"
source = "the paper"
text = "it works"
"#;

/// Three experiments, one of each picture, and a README.
struct Bed {
    folder: TempDir,
    folders: Folders,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (first, second) = (("5:5", 1.0), ("8:2", 4.0));
        let mut failed = case(first, "default", 91.5);
        failed.checks = vec![
            Checked {
                value: "percent_of_limit".into(),
                at_least: Some(98.0),
                at_most: None,
                measured: Some(91.5),
                ok: false,
            },
            Checked {
                value: "delay_p99_ms".into(),
                at_least: None,
                at_most: Some(50.0),
                measured: Some(33.5),
                ok: true,
            },
        ];
        let mut void = case(second, "paper", 88.25);
        void.planned_runs = 2;
        void.runs.push(Run { void: Some("too busy".into()), ..void.runs[0].clone() });
        let simulated = vec![failed, case(first, "paper", 97.0), void];
        for one in [
            results("curves", Mode::Simulated, simulated),
            results(
                "curves",
                Mode::Real,
                vec![case(first, "default", 85.75), case(first, "paper", 96.0)],
            ),
            results("peers", Mode::Real, vec![case(first, "default", 80.0)]),
            results("seconds", Mode::Simulated, vec![case(first, "default", 80.0)]),
        ] {
            one.write(&at("results")).unwrap();
        }
        fs::write(at("peers.toml"), PEERS).unwrap();
        fs::write(at("README.md"), "before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
            .unwrap();
        let folders = Folders {
            results: at("results"),
            peers: at("peers.toml"),
            readme: Some(at("README.md")),
        };
        Self { folder, folders }
    }

    fn drawn() -> Self {
        let bed = Self::new();
        write(&bed.folders).unwrap();
        bed
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }
}

#[test]
fn every_number_in_the_tables_is_one_of_the_results() {
    let page = Bed::drawn().read("results/curves/README.md");
    // By hand from what is made up above: with the decimals of the tables.
    let known = [
        "9.41", // the limit
        "5.72", "4.47", "6.47", "86.0", "84.8", "86.8", "91.5", "90.2", "92.2", // 5:5 default
        "6.06", "4.81", "6.81", "91.5", "90.2", "92.2", "97.0", "95.8", "97.8", // paper
        "5.52", "4.27", "6.27", "82.8", "81.5", "83.5", "88.2", "87.0", "89.0", // 8:2 paper
        "5.36", "4.11", "6.11", "80.2", "79.0", "81.0", "85.8", "84.5",
        "86.5", // real default
        "6.00", "4.75", "6.75", "90.5", "89.2", "91.2", "96.0", "94.8", "96.8", // real paper
        "-5.8", "-1.0", "5.8", // real less simulated
        "33.5", "32.2", "34.2", // delays
        "61.5", "38.5", // shares
        "5.0", "10.0", "0.0", // links
        "9.9", // the kernel's release
    ];
    let words = page.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'));
    let numbers: Vec<_> =
        words.filter(|word| word.trim_matches(['.', '-']).contains('.')).collect();
    for number in &numbers {
        assert!(known.contains(&number.trim_end_matches('.')), "{number} in\n{page}");
    }
    for number in known {
        assert!(
            numbers.iter().any(|n| n.trim_end_matches('.') == number),
            "{number} not in\n{page}"
        );
    }
}

#[test]
fn what_people_found_stands_before_the_tables() {
    let bed = Bed::new();
    fs::write(bed.folders.results.join("curves/findings.md"), "The queue is full.\n\n").unwrap();
    write(&bed.folders).unwrap();
    let page = bed.read("results/curves/README.md");
    assert!(page.contains("\n## Findings\n\nThe queue is full.\n\n## UDP"), "{page}");
    assert!(!bed.read("results/peers/README.md").contains("## Findings"));
}

#[test]
fn what_does_not_hold_is_said_before_the_tables() {
    let page = Bed::drawn().read("results/curves/README.md");
    let (before, tables) = page.split_once("## UDP").unwrap();
    for said in [
        "| simulated | 0123456789ab | 2026-12-02 | 77 | 1, 2 | 3 | virtual time |",
        "| real | 0123456789ab | 2026-12-02 | 77 | 1 | 3 | a cpu, 2 cores, Linux 9.9, an os |",
        "> it works (the paper)",
        "1 of 2 checks hold.",
        "- **Failed**: UDP, 5:5, default, simulated: % of limit is 91.5, must be at least 98.",
        "- **Missing**: UDP, 8:2, paper, simulated: 1 of 2 runs count (too busy).",
        "- **Differs**: UDP, 5:5, default: real is 5.8 points of the limit below simulated.",
    ] {
        assert!(before.contains(said), "{said} not in\n{before}");
    }
    assert!(!before.contains("paper: real is"), "{before}");
    let row = |begin: &str| tables.lines().find(|line| line.starts_with(begin)).unwrap();
    assert!(row("| 5:5 | default").contains("**91.5 (90.2 to 92.2)** ✗"), "{tables}");
    assert!(row("| 5:5 | default").ends_with("| **-5.8** ⚠ |"), "{tables}");
    assert!(row("| 8:2 | paper").ends_with("| | | | simulated only |"), "{tables}");
    assert!(!tables.contains("stale 0"), "{tables}");
}

#[test]
fn quick_results_and_uncommitted_code_are_said() {
    let bed = Bed::new();
    let path = Results::path(&bed.folders.results, "seconds", Mode::Simulated);
    let told = Results::read(&path).unwrap();
    Results { quick: true, dirty: true, ..told }.write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    let page = bed.read("results/seconds/README.md");
    assert!(page.contains("- The simulated results are of a quick run"), "{page}");
    assert!(page.contains("- The simulated results are of code that no commit has."), "{page}");
}

#[test]
fn peers_stand_beside_ours_in_their_own_unit() {
    let bed = Bed::drawn();
    let page = bed.read("results/peers/README.md");
    for row in [
        "| Mbit/s | 5:5 |",
        "| **Ropewalk, default, real** | 5.00 |",
        "| rival | 4 |",
        "| other | 3 |",
        "| *goal* | 9 |",
        "Others: somebody with a watch.",
    ] {
        assert!(page.contains(row), "{row} not in\n{page}");
    }
    let svg = bed.read("results/peers/udp.svg");
    assert!(svg.contains("rival") && svg.contains("goal") && !svg.contains("other"), "{svg}");
}

#[test]
fn beside_many_points_peers_have_a_column_each() {
    let bed = Bed::new();
    let points = (1..=9_u8).map(|number| (format!("{number}:{number}"), f64::from(number)));
    let cases = points.map(|(label, value)| case((&label, value), "default", 80.0)).collect();
    results("peers", Mode::Real, cases).write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    let page = bed.read("results/peers/README.md");
    assert!(page.contains("| **Ropewalk, default, real** | rival | other | *goal* |"), "{page}");
    assert!(page.contains("| 5:5 | 5.00 | 4 | 3 | 9 |"), "{page}");
    assert!(page.contains("| 6:6 | 5.00 | | | |"), "{page}");
}

#[test]
fn the_better_link_stands_in_the_place_of_peers_without_figures() {
    let bed = Bed::new();
    let bbr = |series| Case { traffic: Traffic::TcpBbr, ..case(("5:5", 1.0), series, 80.0) };
    let cases = vec![bbr("default"), bbr("best-single")];
    results("peers", Mode::Real, cases).write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    let svg = bed.read("results/peers/tcp-bbr.svg");
    assert!(svg.contains("better link alone, real") && svg.contains("Ropewalk, real"), "{svg}");
}

#[test]
fn the_picture_follows_from_what_there_is() {
    let bed = Bed::drawn();
    let curves = bed.read("results/curves/udp.svg");
    for said in ["paper, simulated", "default, real", "limit", "8:2", "percent of the sum"] {
        assert!(curves.contains(said), "{said} not in\n{curves}");
    }
    let seconds = bed.read("results/seconds/udp-simulated.svg");
    assert!(seconds.contains("Mbit/s in each second"), "{seconds}");
    // White behind everything, whatever the page's colour.
    for svg in [curves, seconds] {
        let first = svg.split("<rect").nth(1).unwrap();
        assert!(first.contains("fill=\"#FFFFFF\"") && first.contains("width=\"900\""), "{first}");
    }
}

#[test]
fn links_that_vary_are_drawn_as_what_they_could_carry() {
    let bed = Bed::new();
    let cases = [("5:5", 1.0), ("8:2", 4.0)].map(|point| {
        let mut case = case(point, "default", 90.0);
        let capacity =
            ["a", "b"].map(|link| (format!("{}{link}", crate::measure::CAPACITY), vec![4.0; 3]));
        case.runs[0].per_second.extend(capacity);
        case
    });
    results("walk", Mode::Simulated, cases.to_vec()).write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    for name in ["udp-simulated-5-5", "udp-simulated-8-2"] {
        let svg = bed.read(&format!("results/walk/{name}.svg"));
        assert!(svg.contains("a could carry") && svg.contains("b could carry"), "{svg}");
    }
}

#[test]
fn each_group_and_each_series_that_tried_weights_has_a_picture() {
    let bed = Bed::new();
    let cases = ["slow", "fast"].map(|group| {
        let mut case = case(("", 1.0), "best", 90.0);
        case.point.label = format!("{group}, 0.1");
        case.point.group = Some(group.to_owned());
        let tried = |weight: u32| Tried {
            name: format!("a 1 : b {weight}"),
            goodput_mbit: (weight > 0).then(|| spread(5.0 + f64::from(weight))),
            best: weight == 3,
        };
        case.tried = (0..6).map(tried).collect();
        case
    });
    results("groups", Mode::Simulated, cases.to_vec()).write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    for group in ["slow", "fast"] {
        let curves = bed.read(&format!("results/groups/udp-{group}.svg"));
        assert!(curves.contains("best, simulated") && curves.contains("\n0.1\n"), "{curves}");
        let tried = bed.read(&format!("results/groups/udp-{group}-best-tried-simulated.svg"));
        assert!(tried.contains("\n1:5\n") && tried.contains("weights a:b"), "{tried}");
    }
    let page = bed.read("results/groups/README.md");
    let row = "| slow, 0.1 | best | simulated | a 1 : b 3 | a 1 : b 0: , a 1 : b 1: 6.00, a 1 : b 2: 7.00";
    assert!(page.contains(row), "{page}");
}

#[test]
fn an_experiment_that_asks_for_it_is_drawn_second_by_second() {
    let bed = Bed::new();
    let cases = [("5:5", 1.0), ("8:2", 4.0)].map(|point| case(point, "default", 90.0));
    let told = results("course", Mode::Simulated, cases.to_vec());
    Results { by_second: true, ..told }.write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    assert!(bed.read("results/course/udp-simulated-8-2.svg").contains("limit"));
}

#[test]
fn links_judged_one_by_one_have_tables_and_no_pictures() {
    let bed = Bed::new();
    let mut judged = case(("5:5", 1.0), "default", 90.0);
    let wait = Spread { median: 7.25, lowest: 7.25, highest: 7.25 };
    judged.summary.insert("link_wait_p95_ms".into(), wait);
    let told = results("judged", Mode::Simulated, vec![judged]);
    Results { one_by_one: true, ..told }.write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    let page = bed.read("results/judged/README.md");
    assert!(page.contains("queue p95, ms") && page.contains("| 7.2 |"), "{page}");
    assert!(!page.contains("!["), "{page}");
    let files = fs::read_dir(bed.folders.results.join("judged")).unwrap();
    assert_eq!(files.count(), 2, "results and page");
}

#[test]
fn the_index_has_a_line_for_each_experiment() {
    let index = Bed::drawn().read("results/README.md");
    let table = [
        (
            "curves",
            "UDP, % of limit: 91.5 (simulated), 85.8 (real)",
            "**1 of 2 failed** ✗",
            "**5.8** ⚠",
        ),
        ("peers", "UDP, % of limit: 80.0 (real)", "none", "real |"),
        ("seconds", "UDP, % of limit: 80.0 (simulated)", "none", "simulated only |"),
    ];
    for (name, figures, checks, end) in table {
        let begin = format!("| [{name}]({name}/README.md) |");
        let line = index.lines().find(|line| line.starts_with(&begin)).unwrap();
        for said in [figures, checks, end] {
            assert!(line.contains(said), "{said} not in {line}");
        }
    }
}

#[test]
fn the_index_names_settings_that_are_not_our_default_ones() {
    let bed = Bed::new();
    let point = ("5:5", 1.0);
    let old = results("old", Mode::Simulated, vec![case(point, "default", 80.0)]);
    for one in [
        Results { date: "2026-11-23".into(), ..old },
        results("old", Mode::Real, vec![case(point, "default", 81.0)]),
        results("theirs", Mode::Simulated, vec![case(point, "paper", 82.0)]),
    ] {
        one.write(&bed.folders.results).unwrap();
    }
    write(&bed.folders).unwrap();
    let index = bed.read("results/README.md");
    for said in [
        "UDP, % of limit: 80.0 (simulated, `paper`), 81.0 (real)",
        "UDP, % of limit: 82.0 (simulated, `paper`)",
    ] {
        assert!(index.contains(said), "{said} not in\n{index}");
    }
}

#[test]
fn the_readme_shows_the_experiment_with_most_figures_of_peers_between_its_markers() {
    let readme = Bed::drawn().read("README.md");
    assert!(
        readme.starts_with("before\n<!-- results -->\n")
            && readme.ends_with("<!-- /results -->\nafter\n")
    );
    let (head, row) = (
        "| Mbit/s | links | better link alone | best of the others | Ropewalk, simulated | Ropewalk, real |",
        "| 5:5 | 5 Mbit/s (10 ms) + 5 Mbit/s (10 ms) | | 4 (rival) | | **5** |",
    );
    for said in [head, row, "(benches/results/peers/udp.svg)", "| real | 0123456789ab |"] {
        assert!(readme.contains(said), "{said} not in\n{readme}");
    }
    assert!(!readme.contains("\nold\n"), "{readme}");
}

#[test]
fn the_readme_shows_the_points_that_are_asked_for_with_the_better_link_and_the_best_of_the_others()
{
    let bed = Bed::new();
    let peers = r#"
[[figures]]
experiment = "peers"
traffic = "udp"
value = "goodput_mbit"
source = "somebody with a watch"
short = ["8:2"]
peers = [
    { name = "link A", alone = true, at = { "5:5" = 4, "8:2" = 7 } },
    { name = "link B", alone = true, at = { "5:5" = 4, "8:2" = 2 } },
    { name = "rival", at = { "5:5" = 9, "8:2" = 3 } },
    { name = "other", at = { "8:2" = 6 } },
]
"#;
    fs::write(&bed.folders.peers, peers).unwrap();
    let cases = [("5:5", 1.0), ("8:2", 4.0)].map(|point| {
        let mut case = case(point, "default", 80.0);
        (case.links[1].loss, case.links[1].jitter_ms) = (0.005, 20.0);
        case
    });
    results("peers", Mode::Real, cases.to_vec()).write(&bed.folders.results).unwrap();
    write(&bed.folders).unwrap();
    let readme = bed.read("README.md");
    let row =
        "| 8:2 | 5 Mbit/s (10 ms) + 5 Mbit/s (10 ms ± 20, 0.5 % lost) | **7** | 6 (other) | | 5 |";
    assert!(readme.contains(row), "{readme}");
    assert!(!readme.contains("| 5:5 |"), "{readme}");
}

#[test]
fn a_readme_without_its_markers_is_refused() {
    for text in ["", "<!-- results -->", "<!-- /results --><!-- results -->"] {
        let error = overview::replaced(text, "x").unwrap_err().to_string();
        assert!(error.contains("<!-- /results -->"), "{error}");
    }
}

#[test]
fn the_same_results_give_the_same_bytes_and_a_check_sees_any_other() {
    let bed = Bed::new();
    let before = check(&bed.folders).unwrap();
    assert!(before.len() > 6, "{before:?}");
    assert_eq!(write(&bed.folders).unwrap(), before);
    assert_eq!(check(&bed.folders).unwrap(), Vec::<PathBuf>::new());

    let page = bed.folders.results.join("curves/README.md");
    fs::write(&page, "better figures").unwrap();
    let left = bed.folders.results.join("curves/gone.svg");
    fs::write(&left, "").unwrap();
    assert_eq!(check(&bed.folders).unwrap(), [page.clone(), left.clone()]);
    write(&bed.folders).unwrap();
    assert!(fs::read_to_string(&page).unwrap().starts_with("# curves: A made-up one"));
    assert!(!left.exists());
}

#[test]
fn what_is_committed_is_what_the_results_say() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = Folders {
        results: package.join("results"),
        peers: package.join("peers.toml"),
        readme: Some(package.join("../README.md")),
    };
    let stale = check(&folders).unwrap();
    let remedy = "cargo run --release -p ropewalk-benches -- report";
    assert!(stale.is_empty(), "draw them again with `{remedy}`: {stale:?}");
}

#[test]
fn the_figures_of_peers_in_this_repository_can_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers.toml");
    let peers = Peers::open(&path).unwrap();
    assert!(peers.figures.len() >= 5 && peers.claims.len() >= 6);
    for figures in &peers.figures {
        assert!(figures.peers.iter().all(|peer| !peer.at.is_empty()), "{figures:?}");
    }
}
