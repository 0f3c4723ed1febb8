//! The runner as a user starts it: it refuses what it cannot do and says why, gives the same bytes for the
//! same seed, and goes on where it was stopped.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Two links, two series, two runs of 2 s.
const TINY: &str = r#"
title = "A small one"
source = "this test"
shows = "that it runs"
axis = "ratio"
traffic = ["udp"]
simulated = { runs = 2, seconds = 2 }
real = { runs = 1, seconds = 2, points = ["3:1"], series = ["default"] }
links = [
    { name = "a", rtt_ms = 4, both = { rate_mbit = 2, queue_ms = 100 } },
    { name = "b", rtt_ms = 4, both = { rate_mbit = 2, queue_ms = 100 } },
]
points = [
    { label = "2:2", value = 1 },
    { label = "3:1", value = 3, links = [
        { name = "a", both = { rate_mbit = 3 } },
        { name = "b", both = { rate_mbit = 1, loss = 0.01 } },
    ] },
]
series = [{ name = "default" }, { name = "best-single", uses = "best-alone" }]
checks = [
    { series = "default", value = "goodput_mbit", at_least_series = "best-single" },
]
"#;

/// A folder with experiment files, and the runner on it.
struct Bed {
    folder: TempDir,
}

impl Bed {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("scenarios")).unwrap();
        for (name, text) in files {
            fs::write(folder.path().join("scenarios").join(name), text).unwrap();
        }
        Self { folder }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk-benches"));
        command.args(arguments).arg("--scenarios").arg(self.at("scenarios"));
        command.arg("--out").arg(self.at("out")).env("CARGO_TARGET_DIR", self.at("target"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    fn results(&self) -> String {
        fs::read_to_string(self.at("out/tiny/simulated.json")).unwrap()
    }
}

/// What a call came to.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    output: String,
    errors: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            output: text(&output.stdout),
            errors: text(&output.stderr),
        }
    }
}

#[test]
fn the_list_tells_runs_and_times_of_each_experiment() {
    let bed = Bed::new(&[("tiny.toml", TINY)]);
    let listed = bed.run(&["list"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    // Two points: two runs of both links, and two of each link alone.
    assert!(listed.output.contains("tiny  12 + 1"), "{listed:?}");
    let json = bed.run(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&json.output).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["real_runs"]), (&"tiny".into(), &1.into()));
}

#[test]
fn an_unknown_experiment_is_refused_with_the_nearest_name() {
    let bed = Bed::new(&[("tiny.toml", TINY), ("other.toml", TINY)]);
    let ran = bed.run(&["run", "tinny"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.errors.contains("`tinny`; did you mean `tiny`?"), "{ran:?}");
}

#[test]
fn a_malformed_experiment_is_refused_with_line_and_key() {
    for (wrong, right, expected) in [
        ("axes = ", "axis = ", ["line 5", "axes"]),
        ("runs = \"x\"", "runs = 2", ["line 7", "invalid type"]),
        ("points = [\"9:1\"]", "points = [\"3:1\"]", ["line 8", "points: there is no `9:1`"]),
        ("rate_mbit = 0", "rate_mbit = 3", ["line 15", "point `3:1`: link `a`: rate_mbit"]),
        ("loss = 2.0", "loss = 0.01", ["line 15", "link `b`: no such loss"]),
        ("at_least_series = \"x\"", "at_least_series = \"best-single\"", ["line 22", "`x`"]),
        ("uses = \"all-but-one\"", "uses = \"best-alone\"", ["line 20", "all-but-one"]),
    ] {
        let bed = Bed::new(&[("tiny.toml", &TINY.replacen(right, wrong, 1))]);
        let ran = bed.run(&["run", "tiny"]);
        assert_eq!(ran.code, Some(2), "{wrong}: {ran:?}");
        for part in expected.into_iter().chain(["tiny.toml"]) {
            assert!(ran.errors.contains(part), "{wrong}: {part}: {ran:?}");
        }
    }
}

#[test]
fn one_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let bed = Bed::new(&[("tiny.toml", TINY)]);
    let mut seen = Vec::new();
    for (threads, seed) in [("1", "1"), ("3", "1"), ("2", "2")] {
        let ran = bed.run(&["run", "tiny", "--threads", threads, "--seed", seed]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.output.contains("3:1/best-single/udp"), "{ran:?}");
        seen.push(bed.results());
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
    let results: serde_json::Value = serde_json::from_str(&seen[0]).unwrap();
    let cases = results["cases"].as_array().unwrap();
    let ids: Vec<&str> = cases.iter().map(|case| case["id"].as_str().unwrap()).collect();
    let expected =
        ["2:2/default/udp", "2:2/best-single/udp", "3:1/default/udp", "3:1/best-single/udp"];
    assert_eq!(ids, expected);
    // The better one of the links alone, against the sum of both.
    let single = &cases[3];
    assert_eq!(
        (single["links"][0]["name"].as_str(), single["sum_mbit"].as_f64()),
        (Some("a"), Some(4.0))
    );
    let percent = |name: &str| single["summary"][name]["median"].as_f64().unwrap();
    assert!((69.0..71.0).contains(&percent("percent_of_sum")), "{single}");
    assert!((97.0..100.1).contains(&percent("percent_of_limit")), "{single}");
    assert_eq!(single["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_check_that_fails_is_told_and_is_exit_status_1() {
    let wanted = TINY.replace("at_least_series = \"best-single\"", "at_least = 99");
    let bed = Bed::new(&[("tiny.toml", &wanted)]);
    let ran = bed.run(&["run", "tiny", "--quick", "--json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let results: serde_json::Value = serde_json::from_str(&ran.output).unwrap();
    let check = &results[0]["cases"][0]["checks"][0];
    assert_eq!((&check["ok"], &check["at_least"]), (&false.into(), &99.0.into()));
}

#[test]
fn a_run_that_was_stopped_goes_on_where_it_was() {
    // Long enough to be stopped in the middle.
    let long = TINY.replacen("runs = 2, seconds = 2", "runs = 2, seconds = 40", 1);
    let bed = Bed::new(&[("tiny.toml", &long)]);
    assert_eq!(bed.run(&["run", "tiny"]).code, Some(0));
    let whole = bed.results();
    let folder = bed.at("target/ropewalk-benches");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left of a complete run");

    // Ended by a signal as soon as something is finished.
    let mut child = bed.command(&["run", "tiny", "--threads", "1"]).spawn().unwrap();
    let partial = folder.join("tiny-simulated.jsonl");
    let lines = |path: &Path| fs::read_to_string(path).unwrap_or_default().lines().count();
    let mut left = 0;
    while child.try_wait().unwrap().is_none() {
        if lines(&partial) >= 3 {
            child.kill().unwrap();
            child.wait().unwrap();
            left = lines(&partial);
            break;
        }
    }
    assert!((3..13).contains(&left), "{left} lines of 13 were finished");
    fs::remove_file(bed.at("out/tiny/simulated.json")).unwrap();
    let again = bed.run(&["run", "tiny"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(again.errors.contains("are finished already"), "{again:?}");
    assert_eq!(bed.results(), whole);
}
