//! What real daemons remember: what links carried and what happened, over a restart, a crash and a reload; with a full and a read-only
//! disk.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::gateway_v4;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Longer than anything here takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// What is downloaded.
const BYTES: u64 = 4_000_000;

/// Two WANs of 8 Mbit/s.
fn stage() -> Stage {
    let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
    let wan = || Access::symmetric(Bitrate::from_mbps(8), rtt, queue).into();
    let config = TopologyConfig::new(vec![wan(), wan()]);
    Stage::build(Path::new(PROGRAM), &config).unwrap()
}

fn start(stage: &mut Stage) {
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0).unwrap();
    deployment.wait_up(0, 2).unwrap();
}

fn download(stage: &Stage) {
    let curl = Curl { interface: None, limit: Some(LONG) };
    let url = stage.url(BYTES, 5);
    let download = curl.download(stage.topology().client(), &url, |_| ()).unwrap();
    assert!(download.complete, "{}", download.message);
}

fn wait_for(stage: &Stage, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = stage.client_status().unwrap_or_default();
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{:#}", status.0);
        thread::sleep(Duration::from_millis(50));
    }
}

fn run(words: &[&str], socket: &Path) -> Output {
    Command::new(PROGRAM).args(words).arg("--socket").arg(socket).output().unwrap()
}

fn text(words: &[&str], socket: &Path) -> String {
    let done = run(words, socket);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn history(words: &[&str], socket: &Path) -> Value {
    let words = [&["history", "--json", "--since", "1h"], words].concat();
    serde_json::from_str(&text(&words, socket)).unwrap()
}

fn events(report: &Value, kind: &str) -> Vec<Value> {
    let events = report["events"].as_array().unwrap().iter();
    events.filter(|event| event["kind"] == kind).cloned().collect()
}

fn bytes(report: &Value) -> u64 {
    report["all"]["down_bytes"].as_u64().unwrap()
}

/// Has the client read its config again, with this `[history]`.
fn reload(stage: &mut Stage, days: i64, socket: &Path) -> String {
    let deployment = stage.deployment();
    let file = deployment.folder().join("client0.toml");
    let config = deployment.client_config(0);
    config.insert("history".into(), Table::from_iter([("days".to_owned(), days.into())]).into());
    std::fs::write(&file, config.to_string()).unwrap();
    text(&["reload"], socket)
}

#[test]
fn what_links_carried_and_what_happened_is_told_over_a_restart_a_crash_and_a_reload() {
    const NAME: &str =
        "what_links_carried_and_what_happened_is_told_over_a_restart_a_crash_and_a_reload";
    lab_test(NAME, || {
        let mut stage = stage();
        stage.start_proxy().unwrap();
        start(&mut stage);
        let folder = stage.deployment().folder().to_owned();
        let (client, proxy): (PathBuf, PathBuf) =
            (folder.join("client0.sock"), folder.join("proxy.sock"));
        let file = folder.join("client0.state/history.ring");
        download(&stage);
        stage.topology().client().ip("link set wan1 down").unwrap();
        wait_for(&stage, "the loss", |status| !status.is_up("wan1"));
        let back = format!(
            "link set wan1 up\nroute add default via {} dev wan1 metric 101",
            gateway_v4(0, 1)
        );
        stage.topology().client().ip(&back).unwrap();
        wait_for(&stage, "the return", |status| status.is_up("wan1"));

        // While it runs, and before anything of this minute is written.
        let seen = history(&[], &client);
        assert!(bytes(&seen) >= BYTES, "{}", seen["all"]);
        let links = seen["links"].as_array().unwrap();
        let names: Vec<_> = links.iter().map(|link| link["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["wan0", "wan1"]);
        let carried: u64 = links.iter().map(|link| link["down_bytes"].as_u64().unwrap()).sum();
        assert!(carried > bytes(&seen), "with headers: {carried}");
        for link in links {
            let rates = link["down_bps"].as_array().unwrap().iter();
            let most = rates.filter_map(Value::as_u64).max().unwrap();
            assert!((500_000..10_000_000).contains(&most), "{}: {most}", link["name"]);
            let trips = link["rtt_ms"].as_array().unwrap().iter();
            assert!(trips.filter_map(Value::as_f64).all(|ms| (15.0..2000.0).contains(&ms)));
        }
        for (kind, count) in [("daemon-started", 1), ("tunnel-up", 1), ("link-up", 3)] {
            assert_eq!(events(&seen, kind).len(), count, "{kind}: {:#}", seen["events"]);
        }
        let lost = events(&seen, "link-down");
        assert!(lost.len() == 1 && lost[0]["link"] == "wan1", "{lost:?}");
        assert!(!lost[0]["text"].as_str().unwrap().is_empty());
        let shown = text(&["history", "--since", "10min"], &client);
        for part in ["all packets\n", "wan0\n", "used on", "wan1: link lost: "] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        let one = history(&["--link", "wan0"], &client);
        assert_eq!(one["links"].as_array().unwrap().len(), 1);
        let unknown = run(&["history", "--link", "wan7"], &client);
        assert_eq!(unknown.status.code(), Some(2));
        let status = stage.client_status().unwrap();
        assert_eq!(status.0["daemon"]["history"]["state"], "on");

        // A proxy remembers all its clients together.
        let of_proxy = history(&[], &proxy);
        assert!(bytes(&of_proxy) >= BYTES && of_proxy["links"].as_array().unwrap().is_empty());
        assert!(!of_proxy.to_string().contains("client0"), "{of_proxy:#}");

        // After a stop in order all of it is there, and after a crash what was written.
        stage.deployment().stop_client(0).unwrap();
        let metadata = std::fs::metadata(&file).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, metadata.len()), (0o600, 2_788_352));
        start(&mut stage);
        let seen = history(&[], &client);
        assert!(bytes(&seen) >= BYTES);
        assert_eq!(events(&seen, "daemon-stopped").len(), 1);
        assert_eq!(events(&seen, "daemon-crashed").len(), 0);
        stage.deployment().client(0).unwrap().kill();
        start(&mut stage);
        let seen = history(&[], &client);
        assert!(bytes(&seen) >= BYTES);
        assert_eq!(events(&seen, "daemon-crashed").len(), 1, "{:#}", seen["events"]);

        // Switched off, it leaves nothing; switched on, it begins again.
        let said = reload(&mut stage, 0, &client);
        assert!(said.contains("history.days"), "{said}");
        let shown = text(&["history"], &client);
        assert!(shown.starts_with("Nothing is remembered"), "{shown}");
        assert!(!file.exists());
        reload(&mut stage, 7, &client);
        let seen = history(&[], &client);
        assert!(bytes(&seen) < BYTES && seen["history"]["days"] == 7, "{:#}", seen["history"]);
        assert!(file.exists());
    });
}

/// A disk of four pages, or one that is read-only, where the history belongs, for this process only.
const DISK: &str = "mount --make-rprivate /; mkdir -p \"$1\"; mount -t tmpfs -o \"$2\" disk \"$1\"
    shift 2; exec \"$@\"";

#[test]
fn with_a_full_or_read_only_disk_it_is_told_and_goes_on_in_memory() {
    lab_test("with_a_full_or_read_only_disk_it_is_told_and_goes_on_in_memory", || {
        let mut stage = stage();
        stage.start_proxy().unwrap();
        for (options, why) in [("size=16k", "No space left"), ("ro", "Read-only file system")] {
            let (deployment, topology) = stage.split();
            let state = deployment.folder().join("disk").display().to_string();
            let mut config = deployment.client_config(0).clone();
            config.insert("state_dir".into(), state.clone().into());
            let through = ["unshare", "--mount", "sh", "-ec", DISK, "sh", &state, options];
            let client = topology.client();
            let mut process =
                deployment.start_through(&through, client, "client", "client0", &config).unwrap();
            // Before the tunnel is up, the download would pass beside it.
            let told = wait_for(&stage, "the trouble", |status| {
                status.tunnel()["state"] == "up"
                    && status.is_up("wan1")
                    && status.0["daemon"]["history"]["state"] == "memory"
            });
            let warnings = told.0["daemon"]["warnings"].to_string();
            assert!(warnings.contains("the history cannot be kept in") && warnings.contains(why));
            download(&stage);
            let socket = stage.deployment().folder().join("client0.sock");
            let seen = history(&[], &socket);
            assert!(bytes(&seen) >= BYTES, "{}", seen["all"]);
            assert_eq!(events(&seen, "tunnel-up").len(), 1);
            assert!(process.ended().is_none());
            process.stop(LONG).unwrap();
        }
    });
}
