//! `ropewalk links` and `ropewalk reload` on running daemons, while packets go.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use rustix::process::Signal;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// How long to wait on a busy machine for what happens within moments.
const LONG: Duration = Duration::from_secs(30);

fn stage(clients: u8) -> Stage {
    let wan = |rtt_ms| {
        let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
        WanConfig::from(Access::symmetric(Bitrate::from_mbps(20), rtt, queue))
    };
    let config = TopologyConfig { clients, ..TopologyConfig::new(vec![wan(20), wan(30)]) };
    Stage::build(Path::new(PROGRAM), &config).unwrap()
}

fn ropewalk(args: &[&str], socket: &Path) -> Output {
    Command::new(PROGRAM).args(args).arg("--socket").arg(socket).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it says, if it works.
fn said(args: &[&str], socket: &Path) -> String {
    let done = ropewalk(args, socket);
    assert!(done.status.success(), "{args:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn status(socket: &Path) -> Value {
    serde_json::from_str(&said(&["status", "--json"], socket)).expect("JSON")
}

fn link(status: &Value, name: &str) -> Value {
    let links = status["tunnels"][0]["links"].as_array().expect("links");
    links.iter().find(|link| link["name"] == name).cloned().unwrap_or_default()
}

fn wait_for(socket: &Path, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        // A daemon that begins does not answer yet.
        let seen = ropewalk(&["status", "--json"], socket).stdout;
        let status = serde_json::from_slice(&seen).unwrap_or(Value::Null);
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{status:#}");
        thread::sleep(Duration::from_millis(30));
    }
}

#[test]
fn links_are_switched_and_set_while_packets_go_and_none_is_lost() {
    lab_test_alone("links_are_switched_and_set_while_packets_go_and_none_is_lost", || {
        let mut stage = stage(1);
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let socket = stage.deployment().folder().join("client0.sock");
        let is = |name: &'static str, state: &'static str| {
            move |status: &Value| link(status, name)["state"] == state
        };
        let came = thread::scope(|scope| {
            let stream = scope.spawn(|| stage.stream_down(6_000_000, mtu, Duration::from_secs(12)));
            thread::sleep(Duration::from_secs(1));
            let told = said(&["links", "disable", "wan1"], &socket);
            assert!(
                told.starts_with("wan1: ")
                    && told.contains("enabled = false")
                    && told.contains("until the client ends"),
                "{told}"
            );
            let off = status(&socket);
            assert_eq!(link(&off, "wan1")["state"], "disabled", "at once");
            assert!(link(&off, "wan1")["reason"].as_str().unwrap().contains("links disable"));
            thread::sleep(Duration::from_millis(700));
            assert!(said(&["links"], &socket).contains("wan1: disabled for "));
            said(&["links", "enable", "wan1"], &socket);
            wait_for(&socket, "wan1 again", is("wan1", "up"));
            let told =
                said(&["links", "set", "wan1", "max_down=2 Mbit/s", "metered=true"], &socket);
            assert!(told.contains("max_down = 2 Mbit/s, max_up = off, metered = true"), "{told}");
            let bound = wait_for(&socket, "wan1 again", is("wan1", "up"));
            assert_eq!(link(&bound, "wan1")["max_down_bps"], 2e6);
            thread::sleep(Duration::from_secs(1));
            said(&["links", "set", "wan1", "max_down=off", "use=backup"], &socket);
            wait_for(&socket, "a backup", |status| link(status, "wan1")["backup"] == "rests");
            stream.join().unwrap().unwrap()
        });
        assert_eq!(came.lost, 0, "{came:?}");

        let table: [(&[&str], &str); 7] = [
            (&["links", "disable", "wan0"], ""),
            (&["links", "disable", "wan1"], "wan1 is the last link that is not switched off"),
            (&["links", "enable", "wan2"], "there is no link `wan2`: did you mean `wan"),
            (&["links", "set", "wan0", "max_upp=1 Mbit/s"], "did you mean `max_up`?"),
            (&["links", "set", "wan0", "max_up=fast"], "max_up: "),
            (&["links", "set", "wan0", "use=sometimes"], "always, when-needed, backup"),
            (&["links", "set", "wan0", "enabled=true"], "`ropewalk links enable wan0`"),
        ];
        for (args, expected) in table {
            let done = ropewalk(args, &socket);
            let (code, error) = (done.status.code(), text(&done.stderr));
            assert!(error.contains(expected), "{args:?}: {error}");
            assert_eq!(code, Some(if expected.is_empty() { 0 } else { 2 }), "{args:?}: {error}");
        }
        let proxy = stage.deployment().folder().join("proxy.sock");
        let done = ropewalk(&["links", "disable", "wan0"], &proxy);
        assert!(text(&done.stderr).contains("this is a proxy"), "{}", text(&done.stderr));
    });
}

#[test]
fn a_policy_that_is_set_on_the_client_holds_for_what_comes_down_and_after_a_restart() {
    const NAME: &str =
        "a_policy_that_is_set_on_the_client_holds_for_what_comes_down_and_after_a_restart";
    lab_test_alone(NAME, || {
        let mut stage = stage(1);
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let folder = stage.deployment().folder().to_owned();
        let (file, socket) = (folder.join("client0.toml"), folder.join("client0.sock"));
        let proxy = folder.join("proxy.sock");
        let note = "# what I know of my links\n";
        std::fs::write(&file, format!("{note}{}", std::fs::read_to_string(&file).unwrap()))
            .unwrap();
        let down = |status: &Value| link(status, "wan1")["down"]["bytes"].as_u64().unwrap();
        // A stream of 12 Mbit/s, which one link carries alone.
        let carried = |stage: &Stage| {
            let before = down(&status(&socket));
            let came = stage.stream_down(12_000_000, mtu, Duration::from_secs(4)).unwrap();
            (came, down(&status(&socket)) - before)
        };
        said(&["set", "scheduler", "round-robin"], &proxy);
        let (_, both) = carried(&stage);
        assert!(both > 1_000_000, "both links carry at first: {both} bytes");

        let set = |change: &[&str]| {
            let config = file.display().to_string();
            let args = [&["links", "set", "wan1"][..], change, &["--save", "--config", &config]];
            said(&args.concat(), &socket)
        };
        let session = |status: &Value| status["tunnels"][0]["session"].clone();
        let id = link(&status(&socket), "wan1")["id"].clone();
        let told = set(&["use=when-needed", "cost=5 EUR/GB", "max_down=9 Mbit/s"]);
        assert!(told.contains("use = when-needed") && told.contains("This is saved in"), "{told}");
        wait_for(&proxy, "the proxy knows", |status| link(status, "wan1")["backup"] == "rests");
        let known = link(&status(&proxy), "wan1");
        assert_eq!(
            (&known["told"]["cost"], &known["max_down_bps"]),
            (&"5 EUR/GB".into(), &9e6.into())
        );
        assert_eq!(link(&status(&socket), "wan1")["id"], id, "it is the same link");
        let (came, cost) = carried(&stage);
        assert_eq!(came.lost, 0, "{came:?}");
        assert!(cost < 100_000, "{cost} bytes came over a link that was not needed");

        // All else of the file stays; the restarted client is told by it.
        let saved = std::fs::read_to_string(&file).unwrap();
        assert!(saved.starts_with(note) && saved.contains("use = \"when-needed\""), "{saved}");
        let before = session(&status(&socket));
        assert!(said(&["reload"], &socket).contains("nothing is changed"));
        assert_eq!(session(&status(&socket))["id"], before["id"]);
        *stage.deployment().client_config(0) = saved.parse().unwrap();
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 2).unwrap();
        wait_for(&proxy, "the proxy knows", |status| link(status, "wan1")["backup"] == "rests");
        let (_, cost) = carried(&stage);
        assert!(cost < 100_000, "{cost} bytes came over a link that was not needed");

        let args = ["links", "set", "wan1", "use=always", "--save"];
        let done = ropewalk(&args, &socket);
        let error = text(&done.stderr);
        assert!(error.contains("not saved: the running client has its config in"), "{error}");
    });
}

/// Changes a config file as a person would.
fn rewrite(file: &Path, change: impl FnOnce(&mut Table)) {
    let mut table: Table = std::fs::read_to_string(file).unwrap().parse().unwrap();
    change(&mut table);
    std::fs::write(file, table.to_string()).unwrap();
}

#[test]
fn a_client_makes_of_a_reload_what_it_can_and_says_what_waits() {
    lab_test_alone("a_client_makes_of_a_reload_what_it_can_and_says_what_waits", || {
        let mut stage = stage(1);
        stage.start(0..2).unwrap();
        let folder = stage.deployment().folder().to_owned();
        let (file, socket) = (folder.join("client0.toml"), folder.join("client0.sock"));
        assert!(said(&["reload"], &socket).contains("nothing is changed"));

        // What was set by hand is undone; what the file says now holds; a name waits.
        said(&["links", "set", "wan0", "max_up=3 Mbit/s"], &socket);
        rewrite(&file, |table| {
            let wan1 = table["link"][1].as_table_mut().unwrap();
            wan1.insert("use".into(), "backup".into());
            let tunnel: Table = "scheduler = \"natalie\"\necn = false".parse().unwrap();
            table.insert("tunnel".into(), tunnel.into());
            let tun: Table = "name = \"other0\"".parse().unwrap();
            table.insert("tun".into(), tun.into());
        });
        let told = said(&["reload"], &socket);
        for line in [
            "  link.wan0.max_up: 3 Mbit/s -> off\n",
            "  link.wan1.use: always -> backup\n",
            "  tunnel.scheduler: arrival -> natalie (weights auto",
            "Not in force until the daemon is restarted:\n",
            "  tun.name: stays ropewalk0 (other0 in the file)\n",
            "  tunnel.ecn: stays true (false in the file)\n",
        ] {
            assert!(told.contains(line), "`{line}`: {told}");
        }
        let now = wait_for(&socket, "what the file says", |status| {
            link(status, "wan1")["backup"] == "rests" && link(status, "wan0")["state"] == "up"
        });
        assert_eq!(now["tunnels"][0]["policy"]["scheduler"], "natalie");
        assert!(link(&now, "wan0")["max_up_bps"].is_null());

        // A bad config changes nothing, and is told with its place.
        let good = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, good.replace("natalie", "natali")).unwrap();
        let done = ropewalk(&["reload"], &socket);
        let error = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{error}");
        assert!(
            error.contains("client0.toml:") && error.contains("did you mean `natalie`?"),
            "{error}"
        );
        assert_eq!(status(&socket)["tunnels"][0]["policy"]["scheduler"], "natalie");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(ropewalk(&["reload"], &socket).status.code(), Some(2), "no config");

        // A hangup does the same.
        std::fs::write(&file, good.replace("natalie", "safire")).unwrap();
        let process = stage.deployment().client(0).unwrap();
        process.signal(Signal::HUP);
        process.wait_for_log("tunnel.scheduler is safire", LONG).unwrap();
        assert_eq!(status(&socket)["tunnels"][0]["policy"]["scheduler"], "safire");
    });
}

#[test]
fn a_proxy_takes_clients_in_and_out_and_the_others_notice_nothing() {
    lab_test_alone("a_proxy_takes_clients_in_and_out_and_the_others_notice_nothing", || {
        let mut stage = stage(2);
        let second =
            stage.deployment().proxy_config()["peer"].as_array_mut().unwrap().pop().unwrap();
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let folder = stage.deployment().folder().to_owned();
        let at = |name: &str| -> PathBuf { folder.join(name) };
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 1).unwrap();
        // It asks and asks: both ends read their configs again in the middle of that, and nothing comes of it.
        let (proxy, socket) = (at("proxy.sock"), at("client1.sock"));
        wait_for(&socket, "a first message", |status| {
            status["tunnels"][0]["state"] == "connecting"
        });
        for _ in 0..10 {
            deployment.client(1).unwrap().signal(Signal::HUP);
            deployment.proxy().unwrap().signal(Signal::HUP);
            thread::sleep(Duration::from_millis(50));
        }
        let came = thread::scope(|scope| {
            let stream = scope.spawn(|| stage.stream_down(4_000_000, mtu, Duration::from_secs(14)));
            thread::sleep(Duration::from_millis(500));
            rewrite(&at("proxy.toml"), |table| {
                table["peer"].as_array_mut().unwrap().push(second);
                table.insert("max_peers".into(), 9.into());
            });
            let told = said(&["reload"], &proxy);
            assert!(told.contains("  peer.client1: no client -> a client\n"), "{told}");
            assert!(told.contains("  max_peers: stays 1024 (9 in the file)\n"), "{told}");
            wait_for(&socket, "a session", |status| status["tunnels"][0]["state"] == "up");
            // And in the middle of a session.
            said(&["reload"], &socket);
            rewrite(&at("proxy.toml"), |table| {
                table["peer"].as_array_mut().unwrap().pop();
            });
            let told = said(&["reload"], &proxy);
            assert!(told.contains("  peer.client1: a client -> no client\n"), "{told}");
            wait_for(&socket, "the end of it", |status| status["tunnels"][0]["state"] != "up");
            stream.join().unwrap().unwrap()
        });
        assert_eq!(came.lost, 0, "{came:?}");
        assert_eq!(status(&proxy)["tunnels"].as_array().unwrap().len(), 1);
    });
}
