//! `ropewalk speedtest` on real processes and shaped links: its figures, allowances, the proxy's bounds, and clients that go away.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// How long to wait on a busy machine for what happens within moments.
const LONG: Duration = Duration::from_secs(30);

/// The links: Mbit/s at IP level, and the round trip in ms.
const LINKS: [(u32, u32); 2] = [(20, 20), (8, 40)];

/// The allowance of the second link in the test of that, bytes.
const ALLOWANCE: u64 = 8_000_000;

fn stage(clients: u8) -> Stage {
    let wan = |(mbps, rtt_ms): (u32, u32)| {
        let (rtt, queue) = (Duration::from_millis(rtt_ms.into()), Duration::from_millis(100));
        WanConfig::from(Access::symmetric(Bitrate::from_mbps(mbps.into()), rtt, queue))
    };
    let config = TopologyConfig { clients, ..TopologyConfig::new(LINKS.map(wan).to_vec()) };
    Stage::build(Path::new(PROGRAM), &config).unwrap()
}

/// The control socket of a daemon.
fn socket(stage: &mut Stage, daemon: &str) -> PathBuf {
    stage.deployment().folder().join(format!("{daemon}.sock"))
}

fn command(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).arg("--socket").arg(socket).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(socket: &Path, args: &[&str]) -> Output {
    command(socket, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a test found that came to its end.
fn found(socket: &Path, args: &[&str]) -> Value {
    let done = run(socket, &[&["speedtest", "--json"], args].concat());
    assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Why a test did not.
fn refused(socket: &Path, args: &[&str], code: i32) -> String {
    let done = run(socket, &[&["speedtest"], args].concat());
    assert_eq!(done.status.code(), Some(code), "{}{}", text(&done.stdout), text(&done.stderr));
    text(&done.stderr)
}

fn wait_for(stage: &Stage, what: &str, wanted: impl Fn(&Status) -> bool) {
    let begun = Instant::now();
    loop {
        let status = stage.client_status().unwrap_or_default();
        if wanted(&status) {
            return;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{:#}", status.0);
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn assert_within(found: &Value, expected: f64, percent: f64) {
    let number = found.as_f64().unwrap_or(f64::NAN);
    let differs = (number - expected).abs() / expected * 100.0;
    assert!(differs <= percent, "{found} is not {expected}, {differs:.1} % off");
}

#[test]
fn shaped_links_are_found_as_fast_as_they_are_alone_and_together_and_beside_other_packets() {
    const NAME: &str =
        "shaped_links_are_found_as_fast_as_they_are_alone_and_together_and_beside_other_packets";
    lab_test_alone(NAME, || {
        let mut stage = stage(1);
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let client = socket(&mut stage, "client0");
        let report = found(&client, &["--seconds", "5"]);
        println!("{report:#}");
        for (link, (mbps, rtt_ms)) in LINKS.into_iter().enumerate() {
            let link = &report["links"][link];
            for way in ["down", "up"] {
                let speed = &link[way];
                assert_within(&speed["wire_bps"], f64::from(mbps) * 1e6, 10.0);
                assert!(speed["rate_bps"].as_f64() < speed["wire_bps"].as_f64(), "{speed}");
                assert!(speed["loss"].as_f64().is_some_and(|loss| loss < 0.05), "{speed}");
                let loaded = ["rtt_p50_ms", "rtt_p95_ms"].map(|rtt| speed[rtt].as_f64().unwrap());
                let idle = link["idle_rtt_ms"].as_f64().unwrap();
                assert!(idle <= loaded[0] + 5.0 && loaded[0] <= loaded[1], "{link}");
                assert!(loaded[1] < idle + 150.0, "more than the queue holds: {link}");
            }
            assert_within(&link["idle_rtt_ms"], rtt_ms.into(), 40.0);
        }
        let sum: u32 = LINKS.iter().map(|(mbps, _)| mbps).sum();
        for way in ["down", "up"] {
            let together = &report["together"][way];
            assert_within(&together["sum"]["wire_bps"], f64::from(sum) * 1e6, 10.0);
            assert!(together["by_link"]["wan1"]["rate_bps"].as_f64() > Some(6e6), "{together}");
        }
        assert!(report["summary"][0].as_str().unwrap().starts_with("The links together: down "));

        let came = thread::scope(|scope| {
            let stream = scope.spawn(|| stage.stream_down(5_000_000, mtu, Duration::from_secs(14)));
            thread::sleep(Duration::from_millis(500));
            let report = found(&client, &["--down", "--seconds", "3"]);
            let sum = &report["together"]["down"]["sum"];
            assert_within(&sum["wire_bps"], 28e6, 10.0);
            assert_within(&sum["other_bps"], 5e6, 20.0);
            assert_eq!(report["links"][0]["up"], Value::Null);
            stream.join().unwrap().unwrap()
        });
        println!("{came:?}");
        assert!(came.lost * 50 < came.sent, "the test takes what packets leave: {came:?}");
    });
}

#[test]
fn an_allowance_is_spared_and_one_that_is_used_up_is_not_tested() {
    lab_test_alone("an_allowance_is_spared_and_one_that_is_used_up_is_not_tested", || {
        let mut stage = stage(1);
        stage.start_proxy().unwrap();
        let (deployment, topology) = stage.split();
        let counts = deployment.folder().join("counters.json").display().to_string();
        let config = deployment.client_config(0);
        config.insert("counters_file".into(), counts.into());
        let allowance: Table = "bytes = \"8 MB\"\nreset_day = 28\nstop = true".parse().unwrap();
        config["link"][1].as_table_mut().unwrap().insert("allowance".into(), allowance.into());
        deployment.start_client(topology, 0).unwrap();
        wait_for(&stage, "both links", |status| status.is_up("wan0") && status.is_up("wan1"));
        let client = socket(&mut stage, "client0");
        let report = found(&client, &["--seconds", "3"]);
        assert!(report["links"][0]["down"]["rate_bps"].is_number(), "{report:#}");
        let skipped = report["links"][1]["skipped"].as_str().unwrap();
        assert!(skipped.contains("1 % of its allowance, 80 kB, is too little"), "{skipped}");
        assert_eq!(report["together"], Value::Null);

        let report = found(&client, &["--seconds", "3", "--link", "wan1", "--metered"]);
        println!("{report:#}");
        assert_within(&report["links"][0]["down"]["wire_bps"], 8e6, 20.0);
        assert_eq!(report["links"][0]["down"]["cut_short"], false, "half of it is enough for 3 s");
        // The count is a second old at most.
        thread::sleep(Duration::from_millis(1500));
        let status = stage.client_status().unwrap();
        let used = status.link("wan1").unwrap()["allowance"]["used"].as_u64().unwrap();
        assert!((2_000_000..ALLOWANCE).contains(&used), "{used}");
        assert!(status.is_up("wan1"), "it is not stopped");

        // Packets use up the rest.
        let mtu = stage.settled_mtu().unwrap();
        stage.stream_up(26_000_000, mtu, Duration::from_secs(10)).unwrap();
        wait_for(&stage, "the stop", |status| !status.is_up("wan1"));
        let why = refused(&client, &["--link", "wan1", "--metered"], 1);
        assert!(why.contains("wan1: its allowance is used up until"), "{why}");
        let nobody = refused(&client, &["--link", "wan2"], 2);
        assert!(nobody.contains("there is no link `wan2`: did you mean `wan"), "{nobody}");
    });
}

#[test]
fn a_proxy_forbids_and_bounds_tests_and_takes_the_change_over_at_once() {
    lab_test_alone("a_proxy_forbids_and_bounds_tests_and_takes_the_change_over_at_once", || {
        let mut stage = stage(1);
        let off: Table = "enabled = false".parse().unwrap();
        stage.deployment().proxy_config().insert("speed_test".into(), off.into());
        stage.start(0..2).unwrap();
        let (client, proxy) = (socket(&mut stage, "client0"), socket(&mut stage, "proxy"));
        let why = refused(&client, &["--seconds", "3"], 1);
        assert!(why.contains("the proxy's owner allows no speed tests"), "{why}");
        let why = refused(&proxy, &["--seconds", "3"], 2);
        assert!(why.contains("this is a proxy: only a client tests"), "{why}");

        let file = proxy.with_extension("toml");
        let config = std::fs::read_to_string(&file).unwrap();
        let bounded = config.replace("enabled = false", "data = \"6 MB\"");
        assert_ne!(bounded, config);
        std::fs::write(&file, bounded).unwrap();
        let done = run(&proxy, &["reload"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let done = run(&client, &["speedtest", "--json", "--seconds", "5", "--link", "wan0"]);
        let why = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{why}");
        assert!(why.contains("what the proxy lets it test in an hour: try again in"), "{why}");
        let report: Value = serde_json::from_slice(&done.stdout).unwrap();
        let tested = report["test_bytes"].as_u64().unwrap();
        assert!((3_000_000..7_000_000).contains(&tested), "{tested}");
        assert_within(&report["links"][0]["down"]["wire_bps"], 20e6, 20.0);
        assert_eq!(report["links"][0]["down"]["cut_short"], true);
    });
}

#[test]
fn one_test_goes_on_at_a_time_and_ends_when_nobody_asks_for_it() {
    lab_test_alone("one_test_goes_on_at_a_time_and_ends_when_nobody_asks_for_it", || {
        let mut stage = stage(2);
        let one: Table = "at_once = 1".parse().unwrap();
        stage.deployment().proxy_config().insert("speed_test".into(), one.into());
        stage.start(0..2).unwrap();
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 1).unwrap();
        deployment.wait_up(1, 2).unwrap();
        let (first, second) = (socket(&mut stage, "client0"), socket(&mut stage, "client1"));
        let asking = command(&first, &["speedtest", "--seconds", "60"]).spawn().unwrap();
        let mut asking = Killed(asking);
        let tested = |stage: &Stage| stage.client_status().unwrap().bytes("wan0", "down");
        let begun = Instant::now();
        while tested(&stage) < 2_000_000 {
            assert!(begun.elapsed() < LONG, "it does not begin");
            thread::sleep(Duration::from_millis(50));
        }
        let why = refused(&first, &["--seconds", "3"], 3);
        assert!(why.contains("a speed test goes on already"), "{why}");
        let why = refused(&second, &["--seconds", "3"], 1);
        assert!(why.contains("as many speed tests of others as it may"), "{why}");

        asking.0.kill().unwrap();
        // It is waited for, and the proxy's grant ends.
        thread::sleep(Duration::from_secs(5));
        let before = tested(&stage);
        thread::sleep(Duration::from_secs(1));
        let more = tested(&stage) - before;
        assert!(more < 50_000, "{more} bytes in a second");
        let report = found(&second, &["--seconds", "3", "--link", "wan0", "--down"]);
        assert_within(&report["links"][0]["down"]["wire_bps"], 20e6, 10.0);
    });
}

/// A program that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
