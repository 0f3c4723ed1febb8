//! `ropewalk why` names the limiting factor: situations arranged on real kernels, with real daemons.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// How long to wait for a situation on a busy machine.
const LONG: Duration = Duration::from_secs(40);

fn wan(mbps: u64, rtt_ms: u64, queue_ms: u64) -> Access {
    let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(queue_ms));
    Access::symmetric(Bitrate::from_mbps(mbps), rtt, queue)
}

/// Nine links, each in a situation of its own.
fn stage() -> Stage {
    let mut lossy = wan(20, 20, 200);
    lossy.upstream.loss = Loss::Bernoulli(0.05);
    let plain = || wan(20, 20, 200);
    let mut wans = vec![wan(4, 20, 250), lossy];
    wans.extend((2..8).map(|_| plain()));
    wans.push(wan(4, 160, 100));
    let config = TopologyConfig::new(wans.into_iter().map(WanConfig::from).collect());
    let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
    let deployment = stage.deployment();
    let counters = deployment.folder().join("counters.json").display().to_string();
    let config = deployment.client_config(0);
    let told: [(usize, &str); 5] = [
        (2, "max_up = \"1 Mbit/s\""),
        (3, "use = \"when-needed\""),
        (4, "allowance = { bytes = \"1 MB\", stop = true }"),
        (7, "enabled = false"),
        (8, "direction = \"down\""),
    ];
    for (link, text) in told {
        let more: Table = text.parse().unwrap();
        config["link"][link].as_table_mut().unwrap().extend(more);
    }
    // Used up before; a day that has not come yet is taken for one of this month.
    let used =
        r#"{ "version": 1, "links": { "wan4": { "since": "2999-01-01", "bytes": 1000000 } } }"#;
    std::fs::write(&counters, used).unwrap();
    config.insert("counters_file".into(), counters.into());
    let tunnel: Table = "profile = \"paper\"".parse().unwrap();
    config.insert("tunnel".into(), tunnel.into());
    // Nothing comes back where no UDP passes.
    let script = "table inet block { chain forward { type filter hook forward priority 0;\n\
                  meta l4proto udp drop\n}\n}";
    stage.topology().routers()[6].namespace().nft(script).unwrap();
    stage.topology().client().ip("link set wan5 down").unwrap();
    stage
}

fn why(socket: &Path, over: &str) -> Value {
    let mut ask = Command::new(PROGRAM);
    ask.args(["why", "--json", "--over", over, "--socket"]).arg(socket);
    let done = ask.output().expect("the program runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

fn schedule(socket: &Path, scheduler: &str) {
    let set = ["set", "scheduler", scheduler, "--socket"];
    let done = Command::new(PROGRAM).args(set).arg(socket).output().expect("the program runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The verdict on a link, one way.
fn verdict(report: &Value, link: u8, way: &str) -> (String, String) {
    let links = report["tunnels"][0]["links"].as_array().unwrap();
    let link = links.iter().find(|one| one["name"] == format!("wan{link}")).unwrap();
    let text = |key: &str| link[way][key].as_str().unwrap_or_default().to_owned();
    (text("factor"), text("why"))
}

/// A link, the way, its factor, and words of the sentence.
type Expected<'a> = (u8, &'a str, &'a str, &'a [&'a str]);

/// Asks until each link is in its situation.
fn expect(socket: &Path, over: &str, table: &[Expected<'_>]) -> Value {
    let begun = Instant::now();
    loop {
        let report = why(socket, over);
        let wrong: Vec<_> = table
            .iter()
            .map(|(link, way, factor, words)| (verdict(&report, *link, way), link, factor, words))
            .filter(|((found, why), _, factor, words)| {
                found != *factor || !words.iter().all(|word| why.contains(word))
            })
            .collect();
        if wrong.is_empty() {
            return report;
        }
        assert!(begun.elapsed() < LONG, "{wrong:#?}\nof\n{report:#}");
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn why_names_what_limits_each_link_in_arranged_situations() {
    lab_test("why_names_what_limits_each_link_in_arranged_situations", || {
        let mut stage = stage();
        stage.start_proxy().unwrap();
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 4).unwrap();
        let folder = deployment.folder().to_owned();
        let (client, proxy): (PathBuf, PathBuf) =
            (folder.join("client0.sock"), folder.join("proxy.sock"));

        // Nothing is to be sent.
        let idle: [Expected<'_>; 8] = [
            (0, "up", "demand", &["nothing is to be sent"]),
            (3, "up", "resting", &["the other links suffice"]),
            (4, "up", "allowance", &["its allowance is used up until"]),
            (5, "up", "down", &["down for", "s: "]),
            (
                6,
                "up",
                "joining",
                &["no answer from the proxy for", "asked 203.0.113.2 at UDP 51900"],
            ),
            (7, "up", "disabled", &["switched off"]),
            (8, "up", "direction", &["down only"]),
            (0, "down", "demand", &["nothing is sent on it"]),
        ];
        expect(&client, "1s", &idle);

        // More than all links carry is sent up; at the proxy, down.
        let mtu = stage.settled_mtu().unwrap();
        thread::scope(|scope| {
            let up = scope.spawn(|| stage.stream_up(60_000_000, mtu, Duration::from_secs(30)));
            thread::sleep(Duration::from_secs(2));
            let full: [Expected<'_>; 4] = [
                (0, "up", "queue", &["its path is full", "the shortest was"]),
                (1, "up", "loss", &["% of what is sent", "keeps its window at"]),
                (2, "up", "cap", &["its cap of 1 Mbit/s is reached"]),
                (8, "up", "direction", &[]),
            ];
            let seen = expect(&client, "2s", &full);
            let bundle = &seen["tunnels"][0]["up"];
            assert!(bundle["why"].as_str().unwrap().contains("lost on the way"), "{bundle:#}");
            // One flow goes on one link where the scheduler is safire: the others have room.
            schedule(&client, "safire");
            let begun = Instant::now();
            let turned = loop {
                let report = why(&client, "1s");
                let of = |link| verdict(&report, link, "up").0;
                let turned = [0, 1, 2].map(of).iter().filter(|factor| *factor == "turn").count();
                if turned >= 2 {
                    break report;
                }
                assert!(begun.elapsed() < LONG, "{report:#}");
            };
            let texts = [0, 1, 2].map(|link| verdict(&turned, link, "up").1);
            assert!(texts.iter().any(|text| text.contains("the choice of safire")), "{texts:?}");
            drop(up.join().unwrap());
        });
        // Each link has the same share of what comes, and one of them is slow.
        schedule(&proxy, "round-robin");
        thread::scope(|scope| {
            let down = scope.spawn(|| stage.stream_down(12_000_000, mtu, Duration::from_secs(25)));
            thread::sleep(Duration::from_secs(2));
            let slow: [Expected<'_>; 1] =
                [(8, "down", "order", &["slower than its partners", "waits for it"])];
            expect(&client, "2s", &slow);
            let at_proxy = why(&proxy, "1s");
            assert_eq!(at_proxy["role"], "proxy");
            drop(down.join().unwrap());
        });

        // A window that is fixed, and full.
        let (deployment, topology) = stage.split();
        let fixed: Table = "controller = \"fixed\"\nfixed_window = 3".parse().unwrap();
        deployment.client_config(0).insert("tunnel".into(), fixed.into());
        deployment.stop_client(0).unwrap();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 4).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        thread::scope(|scope| {
            let up = scope.spawn(|| stage.stream_up(60_000_000, mtu, Duration::from_secs(8)));
            thread::sleep(Duration::from_secs(2));
            let full: [Expected<'_>; 1] =
                [(1, "up", "window", &["its window of 3 packets is fixed, and full"])];
            expect(&client, "1s", &full);
            drop(up.join().unwrap());
        });
    });
}
