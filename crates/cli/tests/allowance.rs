//! Monthly allowances on a real kernel: counted, warned of, stopped at, over restarts; with a full disk and a damaged file.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;
use serde_json::Value;

const LONG: Duration = Duration::from_secs(60);

/// What the second link may carry.
const ALLOWANCE: u64 = 8_000_000;

/// Two WANs of 8 Mbit/s, the second with an allowance; the counts are kept at the given place below the folder.
fn stage(counters: &str) -> (Stage, PathBuf) {
    let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
    let wan = || Access::symmetric(Bitrate::from_mbps(8), rtt, queue).into();
    let config = TopologyConfig::new(vec![wan(), wan()]);
    let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
    stage.start_proxy().unwrap();
    let deployment = stage.deployment();
    let file = deployment.folder().join(counters);
    let config = deployment.client_config(0);
    config.insert("counters_file".into(), file.display().to_string().into());
    let allowance: toml::Table = "bytes = \"8 MB\"\nreset_day = 28\nstop = true".parse().unwrap();
    config["link"][1].as_table_mut().unwrap().insert("allowance".into(), allowance.into());
    (stage, file)
}

fn start(stage: &mut Stage) {
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0).unwrap();
    wait_for(stage, "the tunnel", |status| {
        status.tunnel()["state"] == "up" && status.is_up("wan0")
    });
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

fn wan1(status: &Status) -> Value {
    status.link("wan1").cloned().unwrap_or_default()
}

/// Downloads this many bytes and checks them.
fn download(stage: &Stage, bytes: u64) {
    let curl = Curl { interface: None, limit: Some(LONG) };
    let download = curl.download(stage.topology().client(), &stage.url(bytes, 5), |_| ()).unwrap();
    assert!(download.complete, "{}", download.message);
    assert_eq!(download.sha256, body_sha256(bytes, 5));
}

#[test]
fn a_link_is_warned_of_and_stopped_and_still_is_after_a_restart_while_the_download_goes_on() {
    lab_test(
        "a_link_is_warned_of_and_stopped_and_still_is_after_a_restart_while_the_download_goes_on",
        || {
            let (mut stage, file) = stage("state/counters.json");
            start(&mut stage);
            wait_for(&stage, "both links", |status| status.is_up("wan1"));
            let before = wan1(&stage.client_status().unwrap());
            assert_eq!(before["allowance"]["bytes"], ALLOWANCE);
            // Three times what is left; the link stops on the way.
            download(&stage, 24_000_000);
            let stopped = wait_for(&stage, "the stop", |status| wan1(status)["state"] == "down");
            let link = wan1(&stopped);
            println!("{:#}", link["allowance"]);
            assert!(link["reason"].as_str().unwrap().starts_with("its allowance is used up until"));
            let used = link["allowance"]["used"].as_u64().unwrap();
            // At most a second of the link more.
            assert!((ALLOWANCE..ALLOWANCE + 1_500_000).contains(&used), "{used}");
            let warnings = stopped.0["daemon"]["warnings"].to_string();
            assert!(warnings.contains("link wan1 has used up its allowance"), "{warnings}");
            let log = stage.deployment().client(0).unwrap().log();
            assert!(log.contains("% of its allowance until"), "warned before: {log}");
            stage.deployment().stop_client(0).unwrap();
            assert!(std::fs::read_to_string(&file).unwrap().contains("\"wan1\""));

            start(&mut stage);
            let renewed = wait_for(&stage, "the stop", |status| {
                wan1(status)["reason"].as_str().is_some_and(|r| r.starts_with("its allowance"))
            });
            assert!(wan1(&renewed)["allowance"]["used"].as_u64().unwrap() >= used);
            download(&stage, 500_000);
            stage.deployment().stop_client(0).unwrap();

            // A damaged file costs the month's count, and nothing else.
            std::fs::write(&file, "{\"version\": 1, \"links\": {\"wa").unwrap();
            start(&mut stage);
            let renewed = wait_for(&stage, "both links", |status| status.is_up("wan1"));
            let warnings = renewed.0["daemon"]["warnings"].to_string();
            assert!(warnings.contains("counted from zero"), "{warnings}");
            assert!(file.with_extension("damaged").exists());
        },
    );
}

#[test]
fn a_full_disk_is_told_and_counting_and_the_tunnel_go_on() {
    lab_test("a_full_disk_is_told_and_counting_and_the_tunnel_go_on", || {
        /// A disk of four pages, full, where the counts belong, for this process only.
        const FULL: &str =
            "mount --make-rprivate /; mkdir -p \"$1\"; mount -t tmpfs -o size=16k full \"$1\"
            dd if=/dev/zero of=\"$1/other\" bs=4k 2>/dev/null || true; shift; exec \"$@\"";
        let (mut stage, file) = stage("full/counters.json");
        let folder = file.parent().unwrap().display().to_string();
        let (deployment, topology) = stage.split();
        let config = deployment.client_config(0).clone();
        let through = ["unshare", "--mount", "sh", "-ec", FULL, "sh", &folder];
        let client = topology.client();
        let mut process =
            deployment.start_through(&through, client, "client", "client0", &config).unwrap();
        let told = wait_for(&stage, "the trouble", |status| {
            let warnings = status.0["daemon"]["warnings"].to_string();
            // Before the tunnel is up, the download would pass beside it.
            status.tunnel()["state"] == "up"
                && status.is_up("wan1")
                && warnings.contains("cannot write the counts of allowances")
        });
        println!("{}", told.0["daemon"]["warnings"]);
        assert!(told.0["daemon"]["warnings"].to_string().contains("No space left"));
        download(&stage, 2_000_000);
        let counted = wait_for(&stage, "the count", |status| {
            wan1(status)["allowance"]["used"].as_u64().is_some_and(|used| used > 300_000)
        });
        assert!(counted.is_up("wan1"));
        assert!(process.ended().is_none());
        process.stop(LONG).unwrap();
    });
}
