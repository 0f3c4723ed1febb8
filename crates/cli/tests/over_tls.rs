//! Links over TLS where no UDP passes: when they begin and end, what they carry, and what strangers get.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{PROXY_V4, SERVER_V4, public_v4};
use ropewalk_netlab::download::Download;
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::ping::{Ping, Pinged};
use ropewalk_netlab::privilege::{lab_test, lab_test_alone};
use ropewalk_netlab::stage::{Progress, Stage};
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use rustix::process::Signal;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// How long to wait on a busy machine; UDP is asked for once a minute.
const LONG: Duration = Duration::from_secs(90);

/// The rate of each link, Mbit/s.
const RATE: u64 = 20;

/// Silent connections of one stranger, five times what one source may have.
const MANY: usize = 40;

struct Quiet;

impl Progress for Quiet {
    fn say(&self, _: &str) {}
}

/// Links of 20 Mbit/s and 20 ms, and a proxy that takes them over TLS, or does not.
fn stage(wans: usize, takes_tls: bool) -> Stage {
    let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
    let wan = || WanConfig::from(Access::symmetric(Bitrate::from_mbps(RATE), rtt, queue));
    let config = TopologyConfig::new((0..wans).map(|_| wan()).collect());
    let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
    if takes_tls {
        stage.deployment().proxy_config().insert("tls".into(), Table::new().into());
    }
    stage.start_proxy().unwrap();
    stage
}

fn start_client(stage: &mut Stage) {
    let (deployment, topology) = stage.split();
    deployment.start_client(topology, 0).unwrap();
}

/// Router `wan` lets no UDP through.
fn block(stage: &Stage, wan: usize) {
    let script = "table inet block { chain forward { type filter hook forward priority 0;\n\
                  meta l4proto udp drop\n}\n}";
    stage.topology().routers()[wan].namespace().nft(script).unwrap();
}

fn unblock(stage: &Stage, wan: usize) {
    stage.topology().routers()[wan].namespace().nft("delete table inet block").unwrap();
}

fn wait_for(stage: &Stage, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let begun = Instant::now();
    loop {
        let status = stage.client_status().unwrap_or_default();
        if wanted(&status) {
            return status;
        }
        assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{:#}", status.tunnel());
        thread::sleep(Duration::from_millis(50));
    }
}

fn is_over_tls(status: &Status, link: &str) -> bool {
    status.is_up(link) && status.link(link).is_some_and(|link| link["over_tls"] == true)
}

fn is_by_udp(status: &Status, link: &str) -> bool {
    status.is_up(link) && status.link(link).is_some_and(|link| link["over_tls"].is_null())
}

fn reason(status: &Status, link: &str) -> String {
    let link = status.link(link).cloned().unwrap_or_default();
    link["reason"].as_str().unwrap_or_default().to_owned()
}

/// The client reads its config again, with this word for `tls`.
fn reload_with(stage: &mut Stage, tls: &str) {
    let deployment = stage.deployment();
    let proxy = deployment.client_config(0)["proxy"].as_table_mut().unwrap();
    proxy.insert("tls".into(), tls.into());
    let text = deployment.client_config(0).to_string();
    let folder = deployment.folder();
    std::fs::write(folder.join("client0.toml"), text).unwrap();
    let socket = folder.join("client0.sock");
    let done = Command::new(PROGRAM).args(["reload", "--socket"]).arg(socket).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// Echoes of six seconds, 50 ms apart, and how many had no answer.
fn lost(stage: &Stage, what: &str) -> usize {
    let ping = Ping { interval: Duration::from_millis(50), ..Ping::new(SERVER_V4.into(), 120) };
    let pinged = ping.run(stage.topology().client()).unwrap();
    println!("{what}: {pinged:?}");
    pinged.lost
}

/// A download, and echoes beside it.
fn loaded(stage: &Stage, bytes: u64, seed: u64) -> (Download, Pinged) {
    let client = stage.topology().client();
    let (download, pinged) = thread::scope(|scope| {
        let ping = Ping::new(SERVER_V4.into(), 50);
        let pinging = scope.spawn(move || ping.run(client).unwrap());
        let download = stage.download(bytes, seed, LONG, "a download", &Quiet).unwrap();
        (download, pinging.join().unwrap())
    });
    assert_eq!(download.sha256, body_sha256(bytes, seed), "{}", download.message);
    (download, pinged)
}

/// How much of the link's rate a download got.
fn share(what: &str, download: &Download, pinged: &Pinged) -> f64 {
    let share = download.mbit / RATE as f64;
    println!(
        "{what}: {:.1} Mbit/s, {:.0} % of the link's rate; beside it {:.0} ms (median), {:.0} ms (95 %), {} of {} lost",
        download.mbit,
        share * 100.0,
        pinged.rtt.p50_ms,
        pinged.rtt.p95_ms,
        pinged.lost,
        pinged.sent
    );
    share
}

#[test]
fn a_link_without_udp_goes_over_tls_beside_one_with_it() {
    lab_test("a_link_without_udp_goes_over_tls_beside_one_with_it", || {
        let mut stage = stage(2, true);
        block(&stage, 1);
        let begun = Instant::now();
        start_client(&mut stage);
        let status = wait_for(&stage, "both links", |status| {
            is_by_udp(status, "wan0") && is_over_tls(status, "wan1")
        });
        println!("over TLS after {:.1} s", begun.elapsed().as_secs_f64());
        assert_eq!(reason(&status, "wan1"), "over TLS, because UDP is not answered here");
        assert_eq!(reason(&status, "wan0"), "");
        let proxy = stage.proxy_status().unwrap();
        // The proxy sees where it really comes from.
        let seen = proxy.link("wan1").unwrap();
        let remote = seen["remote"].as_str().unwrap();
        assert!(remote.starts_with(&format!("{}:", public_v4(1, 0))), "{seen:#}");
        assert_eq!(seen["over_tls"], true);
        assert_eq!(proxy.0["proxy"]["tls"]["clients"], 1, "{:#}", proxy.0["proxy"]);

        let (download, pinged) = loaded(&stage, 20_000_000, 1);
        let share = share("by UDP and over TLS", &download, &pinged);
        assert!(share > 1.2, "more than one link carries: {download:?}");
        let status = stage.client_status().unwrap();
        assert!(status.bytes("wan1", "down") > 2_000_000, "{:#}", status.tunnel());

        // Another network, for all that the client can see, and UDP is asked at once.
        unblock(&stage, 1);
        stage.topology().set_address(0, 1, false).unwrap();
        wait_for(&stage, "the end of the link", |status| !status.is_up("wan1"));
        stage.topology().set_address(0, 1, true).unwrap();
        let returned = Instant::now();
        wait_for(&stage, "the link by UDP", |status| is_by_udp(status, "wan1"));
        let took = returned.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
}

#[test]
fn the_only_link_carries_all_over_tls_and_goes_back_to_udp_without_loss() {
    let name = "the_only_link_carries_all_over_tls_and_goes_back_to_udp_without_loss";
    lab_test_alone(name, || {
        let mut stage = stage(1, true);
        block(&stage, 0);
        start_client(&mut stage);
        wait_for(&stage, "the tunnel", |status| is_over_tls(status, "wan0"));
        let socket = stage.deployment().folder().join("client0.sock");
        let why = Command::new(PROGRAM).args(["why", "--socket"]).arg(&socket).output().unwrap();
        let said = String::from_utf8_lossy(&why.stdout);
        assert!(said.contains("over TLS, because UDP is not answered here"), "{said}");

        let (download, pinged) = loaded(&stage, 20_000_000, 2);
        let clean = share("over TLS, nothing lost", &download, &pinged);
        assert!(clean > 0.6, "{download:?}");
        // Who tests links, or remembers them, does it with this one, too.
        let ask = |words: &[&str]| -> Value {
            let mut program = Command::new(PROGRAM);
            let done = program.args(words).args(["--json", "--socket"]).arg(&socket).output();
            let done = done.unwrap();
            assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
            serde_json::from_slice(&done.stdout).unwrap()
        };
        let found = ask(&["speedtest", "--seconds", "5", "--down"]);
        let found = found["links"][0]["down"]["wire_bps"].as_f64().unwrap();
        assert!((0.3..1.5).contains(&(found / 1e6 / RATE as f64)), "{found} bit/s");
        let past = ask(&["history", "--since", "1h"]);
        let trips = past["links"][0]["rtt_ms"].as_array().unwrap();
        assert!(trips.iter().any(Value::is_number), "{past:#}");
        // The queue is neither the kernel's nor ours: no more than the link's and a round trip or two.
        assert!(pinged.rtt.p50_ms < 250.0, "{pinged:?}");

        let lose = |loss| {
            let change = move |conditions: &mut Conditions| conditions.loss = loss;
            stage.topology().change_both(0, 0, change).unwrap();
        };
        lose(Loss::Bernoulli(0.01));
        let (download, pinged) = loaded(&stage, 8_000_000, 3);
        let lossy = share("over TLS, 1 % lost", &download, &pinged);
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let has_bbr = known.is_ok_and(|known| known.contains("bbr"));
        println!("the kernel has BBR: {has_bbr}");
        assert!(lossy > if has_bbr { 0.4 } else { 0.1 }, "{download:?}");
        lose(Loss::None);

        unblock(&stage, 0);
        let client = stage.topology().client();
        let pinged = thread::scope(|scope| {
            let interval = Duration::from_millis(50);
            let ping = Ping { interval, ..Ping::new(SERVER_V4.into(), 1500) };
            let pinging = scope.spawn(move || ping.run(client).unwrap());
            wait_for(&stage, "UDP", |status| is_by_udp(status, "wan0"));
            pinging.join().unwrap()
        });
        println!("back by UDP: {pinged:?}");
        assert_eq!(pinged.lost, 0, "{pinged:?}");
        let status = stage.client_status().unwrap();
        assert_eq!(reason(&status, "wan0"), "");
        let proxy = stage.proxy_status().unwrap();
        assert_eq!(proxy.0["proxy"]["tls"]["clients"], 0, "{:#}", proxy.0["proxy"]);
    });
}

#[test]
fn each_of_two_links_over_tls_is_asked_for_udp() {
    lab_test("each_of_two_links_over_tls_is_asked_for_udp", || {
        let mut stage = stage(2, true);
        block(&stage, 0);
        block(&stage, 1);
        start_client(&mut stage);
        wait_for(&stage, "both links", |status| {
            ["wan0", "wan1"].iter().all(|link| is_over_tls(status, link))
        });
        // Both are due together, and UDP does not come back on the first.
        unblock(&stage, 1);
        let status = wait_for(&stage, "UDP on wan1", |status| is_by_udp(status, "wan1"));
        assert!(is_over_tls(&status, "wan0"), "{:#}", status.tunnel());
    });
}

#[test]
fn a_link_over_tls_goes_on_after_sleep_in_another_network_and_with_other_settings() {
    let name = "a_link_over_tls_goes_on_after_sleep_in_another_network_and_with_other_settings";
    lab_test(name, || {
        // Connections and sessions are made again within one; UDP would be waited for four.
        const TWO_SECONDS: usize = 40;
        let mut stage = stage(1, true);
        block(&stage, 0);
        start_client(&mut stage);
        wait_for(&stage, "the tunnel", |status| is_over_tls(status, "wan0"));
        // By then it has left UDP.
        thread::sleep(Duration::from_secs(6));

        let (deployment, topology) = stage.split();
        let (process, client) = (deployment.client(0).unwrap(), topology.client());
        thread::scope(|scope| {
            // Something is due all the time, by which the client finds out.
            let busy = scope.spawn(move || Ping::new(SERVER_V4.into(), 60).run(client));
            thread::sleep(Duration::from_secs(1));
            process.signal(Signal::STOP);
            thread::sleep(Duration::from_secs(4));
            process.signal(Signal::CONT);
            busy.join().unwrap().unwrap();
        });
        process.wait_for_log("stood still", LONG).unwrap();
        assert!(lost(&stage, "after sleep") < TWO_SECONDS);

        stage.topology().client().ip("link set wan0 mtu 1400").unwrap();
        assert!(lost(&stage, "in another network, for all that can be seen") < TWO_SECONDS);
        wait_for(&stage, "the link over TLS", |status| is_over_tls(status, "wan0"));

        unblock(&stage, 0);
        reload_with(&mut stage, "never");
        wait_for(&stage, "the link by UDP", |status| is_by_udp(status, "wan0"));
        reload_with(&mut stage, "auto");
        assert!(is_by_udp(&stage.client_status().unwrap(), "wan0"), "UDP works, and stays");
        assert_eq!(lost(&stage, "with other settings"), 0);
    });
}

#[test]
fn a_proxy_that_said_goodbye_is_found_over_tls_where_udp_passes_no_more() {
    let name = "a_proxy_that_said_goodbye_is_found_over_tls_where_udp_passes_no_more";
    lab_test(name, || {
        let mut stage = stage(1, true);
        start_client(&mut stage);
        wait_for(&stage, "the link by UDP", |status| is_by_udp(status, "wan0"));
        stage.deployment().stop_proxy().unwrap();
        wait_for(&stage, "the end of the session", |status| !status.is_up("wan0"));
        // The client goes elsewhere, and the last that it heard of the proxy was that it stops.
        block(&stage, 0);
        stage.start_proxy().unwrap();
        wait_for(&stage, "the link over TLS", |status| is_over_tls(status, "wan0"));
    });
}

#[test]
fn a_proxy_that_takes_no_links_over_tls_is_told() {
    lab_test("a_proxy_that_takes_no_links_over_tls_is_told", || {
        let mut stage = stage(1, false);
        block(&stage, 0);
        start_client(&mut stage);
        let status = wait_for(&stage, "what was tried", |status| {
            reason(status, "wan0").contains("over TLS: ")
        });
        let reason = reason(&status, "wan0");
        let told = format!(
            "over TLS: TCP {PROXY_V4}:443 refuses: the proxy takes no links over TLS there (`[tls]` in its proxy.toml)"
        );
        assert!(reason.contains(&told), "{reason}");
        assert!(reason.contains(&format!("asked {PROXY_V4} at UDP 51900")), "{reason}");
    });
}

#[test]
fn strangers_at_the_port_are_few_and_short_and_a_client_comes_in_beside_them() {
    lab_test("strangers_at_the_port_are_few_and_short_and_a_client_comes_in_beside_them", || {
        let mut stage = stage(2, true);
        let deployment = stage.deployment();
        let proxy = deployment.client_config(0)["proxy"].as_table_mut().unwrap();
        proxy.insert("tls".into(), "always".into());
        let at = SocketAddr::from((PROXY_V4, 443));
        let tls = |stage: &Stage, key: &str| -> u64 {
            stage.proxy_status().unwrap().0["proxy"]["tls"][key].as_u64().unwrap()
        };
        let wait = |stage: &Stage, what: &str, done: &dyn Fn(&Stage) -> bool| {
            let begun = Instant::now();
            while !done(stage) {
                assert!(begun.elapsed() < LONG, "waited in vain for {what}");
                thread::sleep(Duration::from_millis(50));
            }
        };

        // Somebody connects again and again and says nothing.
        let silent = || -> Vec<TcpStream> {
            (0..MANY).map(|_| TcpStream::connect_timeout(&at, LONG).unwrap()).collect()
        };
        let held = stage.topology().server().run(silent).unwrap();
        wait(&stage, "the refusals", &|stage| tls(stage, "refused") >= (MANY - 8) as u64);
        assert!(tls(&stage, "strangers") <= 8, "{}", tls(&stage, "strangers"));

        // Another takes it for a web server without TLS.
        let begun = Instant::now();
        let router = stage.topology().routers()[1].namespace();
        let answer = router.run(|| {
            let mut stream = TcpStream::connect_timeout(&at, LONG).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: vps\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            // A reset ends it, too.
            let _ = stream.read_to_end(&mut answer);
            answer
        });
        let answer = answer.unwrap();
        assert!(answer.len() < 64 && begun.elapsed() < Duration::from_secs(10), "{answer:?}");

        // A client from elsewhere has its own room.
        start_client(&mut stage);
        let status = wait_for(&stage, "the client", |status| {
            ["wan0", "wan1"].iter().all(|link| is_over_tls(status, link))
        });
        assert_eq!(reason(&status, "wan0"), "over TLS, as the config says (tls = \"always\")");
        wait(&stage, "the end of the silent ones", &|stage| tls(stage, "strangers") == 0);
        assert!(tls(&stage, "unproven") >= 8);
        drop(held);
        assert_eq!(tls(&stage, "clients"), 2);
        let pinged = Ping::new(SERVER_V4.into(), 20).run(stage.topology().client()).unwrap();
        assert_eq!(pinged.lost, 0, "{pinged:?}");
    });
}
