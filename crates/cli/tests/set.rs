//! `ropewalk set` on running daemons, while packets go.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::machine;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Changes at the proxy, in turn, while it sends.
const CHANGES: [&[&str]; 9] = [
    &["profile", "paper"],
    &["profile", "default"],
    &["scheduler", "natalie"],
    &["scheduler", "natalie", "--weights", "told", "--when-full", "wait"],
    &["scheduler", "batcp"],
    &["scheduler", "safire", "--k", "1.2"],
    &["scheduler", "free-window"],
    &["scheduler", "arrival"],
    &["redundant", "--addresses", "0.0.0.0/0", "--budget", "500 kbit/s"],
];

#[test]
fn a_change_while_packets_go_loses_none_and_holds_none_up() {
    lab_test("a_change_while_packets_go_loses_none_and_holds_none_up", || {
        let wan = |rtt_ms| {
            let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
            WanConfig::from(Access::symmetric(Bitrate::from_mbps(10), rtt, queue))
        };
        let config = TopologyConfig::new(vec![wan(20), wan(30)]);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let folder = stage.deployment().folder().to_owned();
        let changed = || {
            thread::scope(|scope| {
                let stream =
                    scope.spawn(|| stage.stream_down(5_000_000, mtu, Duration::from_secs(7)));
                thread::sleep(Duration::from_millis(800));
                let mut seen = Vec::new();
                for change in CHANGES {
                    let done = set(&folder.join("proxy.sock"), change);
                    assert!(done.status.success(), "{change:?}: {}", text(&done.stderr));
                    seen.push(text(&done.stdout));
                    thread::sleep(Duration::from_millis(400));
                }
                let flows = flows(&folder.join("proxy.sock"));
                (stream.join().unwrap().unwrap(), seen, flows)
            })
        };
        let ((came, seen, flows), machine) = machine::watched(changed);
        shows_the_stream(&flows);
        assert_eq!(came.lost, 0, "{came:?}");
        // Sender, both daemons and receiver may each be as late as an ordinary thread was.
        let late_ms = 4.0 * machine.wakes.max_ms;
        assert!(came.longest_gap_ms < 50.0 + late_ms, "{came:?}, {machine:?}");
        assert!(
            seen[0].starts_with("profile    paper: controller ccid2, order global"),
            "{seen:?}"
        );
        assert!(seen[5].contains("\nscheduler  safire (k 1.2"), "{seen:?}");

        // What went over two links at last came once.
        let (deployment, _) = stage.split();
        let [proxy, client] = [deployment.proxy_status(), deployment.client_status(0)]
            .map(|status| status.unwrap()["tunnels"][0].clone());
        let [sent, over] = ["packets", "over_budget"].map(|key| proxy["redundancy"][key].as_u64());
        assert!(sent > Some(10) && over > Some(10), "{}", proxy["redundancy"]);
        let doubled = client["resequencer"]["duplicate"].as_u64();
        assert!(doubled > Some(10), "{}", client["resequencer"]);
        let redundant = "DSCP 40 and above, addresses 0.0.0.0/0; copies of at most 500 kbit/s";
        assert_eq!(proxy["policy"]["redundant"], redundant);

        // The client's own choice, up, is its own.
        let client = folder.join("client0.sock");
        let done = set(&client, &["scheduler", "safire"]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let scheduler =
            |status: &serde_json::Value| status["tunnels"][0]["policy"]["scheduler"].clone();
        let (deployment, _) = stage.split();
        assert_eq!(scheduler(&deployment.client_status(0).unwrap()), "safire");
        assert_eq!(scheduler(&deployment.proxy_status().unwrap()), "arrival");
        refuses(&client);
        sends_to_one_otherwise(&folder.join("proxy.sock"), &mut stage);
    });
}

/// What is said of the flows that the daemon at this socket sends.
fn flows(socket: &Path) -> serde_json::Value {
    let flows = Command::new(PROGRAM).args(["flows", "--json", "--socket"]).arg(socket).output();
    serde_json::from_slice(&flows.expect("the program runs").stdout).expect("JSON")
}

/// A stream of 5 Mbit/s goes by arrival.
fn shows_the_stream(flows: &serde_json::Value) {
    let stream = &flows["recent"][0];
    let rate = stream["rate_bps"].as_f64().unwrap_or_default();
    assert!((4e6..6e6).contains(&rate), "{flows}");
    assert_eq!(stream["protocol"], 17, "{flows}");
    let shares = stream["links"].as_array().expect("links");
    let sum: f64 = shares.iter().filter_map(|part| part["share"].as_f64()).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{flows}");
    assert!(stream["why"].as_str().is_some_and(|why| !why.is_empty()), "{flows}");
}

/// The proxy has one client; what is said of it is its own.
fn sends_to_one_otherwise(socket: &Path, stage: &mut Stage) {
    let status = stage.deployment().proxy_status().expect("the proxy answers");
    let name = status["tunnels"][0]["peer"].as_str().expect("a peer has a name").to_owned();
    let done = set(socket, &["scheduler", "safire", "--peer", &name]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let status = stage.deployment().proxy_status().expect("the proxy answers");
    let policy = &status["tunnels"][0]["policy"];
    assert_eq!(
        (policy["scheduler"].as_str(), policy["own"].as_bool()),
        (Some("safire"), Some(true))
    );
    let general = text(&set(socket, &[]).stdout);
    assert!(general.contains("scheduler  arrival"), "{general}");
    let flows = flows(socket);
    assert_eq!(
        (flows["scheduler"].as_str(), flows["peer"].as_str()),
        (Some("safire"), Some(&*name))
    );
    assert_eq!(flows["paths"].as_array().map(Vec::len), Some(2), "{flows}");
    let done = set(socket, &["scheduler", "natalie", "--peer", "nobody"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("there is no peer `nobody`"), "{}", text(&done.stderr));
}

fn refuses(socket: &Path) {
    let table: [(&[&str], i32, &str); 6] = [
        (&["scheduler", "batcp", "--peer", "van"], 2, "this is a client"),
        (&["scheduler", "natali"], 2, "did you mean `natalie`?"),
        (&["scheduler", "batcp", "--weights", "told"], 2, "no meaning for the scheduler batcp"),
        (&["link", "wan0", "--weight", "1"], 2, "unrecognized subcommand"),
        (&["redundant"], 2, "say what"),
        (&["redundant", "--budget", "1 Gbit/s"], 2, "outside 10 kbit/s to 100 Mbit/s"),
    ];
    for (args, code, message) in table {
        let done = set(socket, args);
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(message), "{args:?}: {error}");
    }
}

fn set(socket: &Path, args: &[&str]) -> Output {
    let mut set = Command::new(PROGRAM);
    set.arg("set").args(args).arg("--socket").arg(socket);
    set.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
