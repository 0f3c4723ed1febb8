//! A phone: the library `ropewalk-mobile` as a C program loads it, with a real proxy, over two networks.
//!
//! `crates/mobile/tests/phone.c` plays the app. This test plays its user and the phone's system: it says which networks
//! there are, and gives the TUN its addresses and routes, as `VpnService` does with what the app takes from the event `tun`.
//! It runs as an app does: nothing of the host is changed by the library.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "the helpers of the test fail as the test does"
)]

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::download::{Curl, Download};
use ropewalk_netlab::http::body_sha256;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;
use toml::Table;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// The crate of the library.
const MOBILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../mobile");

/// Another build of the library than the one that comes with the test, to be measured.
const LIBRARY: &str = "ROPEWALK_PHONE_LIBRARY";

/// Longer than anything takes at once, even on a busy machine.
const LONG: Duration = Duration::from_secs(30);

/// UDP is asked for once a minute where it was not answered.
const ASKED_AGAIN: Duration = Duration::from_secs(90);

/// What the networks carry, in Mbit/s.
const MBIT: [u64; 2] = [8, 4];

/// The name of the TUN.
const TUN: &str = "phone0";

#[test]
fn a_phone_bonds_two_networks_and_goes_on_when_one_goes_and_comes_again() {
    let name = "a_phone_bonds_two_networks_and_goes_on_when_one_goes_and_comes_again";
    lab_test_alone(name, || {
        let folder = tempfile::tempdir().unwrap();
        let library = library();
        let program = compile(folder.path(), &library);
        let config = TopologyConfig::new(vec![wan(MBIT[0], 20), wan(MBIT[1], 40)]);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        stage.start_proxy().unwrap();
        let mut phone = Phone::start(stage.topology().client(), &program);
        let resting = phone.resources();

        // It joins, over a network whose address the kernel is asked for and one whose address is said.
        phone.order(&format!("invitation {}", invitation(&mut stage)));
        let config = phone.wait_for("config ");
        phone.order(r#"network {"id": 0, "name": "wifi", "mtu": 1500}"#);
        phone.order(
            r#"network {"id": 1, "name": "lte", "metered": true, "addresses": ["192.168.11.2"]}"#,
        );
        phone.wait_for_event("joined");
        let wish = phone.wait_for_event("tun");
        phone.open_tun(stage.topology().client(), &wish);
        phone.wait_for_up(0, "wifi");
        phone.wait_for_up(1, "lte");
        let up = phone.status();
        assert_eq!(up["tunnels"][0]["state"], "up", "{up:#}");
        assert_eq!(up["tunnels"][0]["inner_v4"], wish["addresses"][0], "{up:#}");
        assert_eq!(up["daemon"]["offload"]["tun"], "unavailable", "{up:#}");

        // One download over both. Path MTU and windows come to rest, as they do while a person types.
        thread::sleep(Duration::from_secs(3));
        let download = phone.download(&stage, 12_000_000, 1);
        let sum = MBIT.iter().sum::<u64>() as f64;
        let settled = download.mbit_between(Duration::from_secs(2), Duration::from_secs(7));
        let share = settled / sum * 100.0;
        println!("one download over both: {settled:.2} Mbit/s, {share:.0} % of the sum");
        assert!(settled > 0.75 * sum, "{settled:.2} of {sum} Mbit/s\n{:#}", phone.status());

        // One network goes in the middle of another, and comes again.
        let client = stage.topology().client();
        let url = stage.url(14_000_000, 2);
        let download = thread::scope(|scope| {
            let fetching = scope.spawn(|| fetch(client, &url));
            thread::sleep(Duration::from_secs(4));
            phone.order("remove 0");
            thread::sleep(Duration::from_secs(4));
            let alone = phone.status();
            assert_eq!(alone["tunnels"][0]["links"].as_array().unwrap().len(), 1, "{alone:#}");
            phone.order(r#"network {"id": 0, "name": "wifi", "mtu": 1500}"#);
            phone.wait_for_up(0, "wifi");
            fetching.join().unwrap()
        });
        assert!(download.complete, "{}", download.message);
        assert_eq!(download.sha256, body_sha256(14_000_000, 2));
        let stall = download.longest_stall_ms;
        println!("one of two networks taken away: nothing came for {stall:.0} ms");
        assert!(stall < 3_000.0, "{:?}", download.stalls);
        let again = phone.status();
        let carried = |link: &str| bytes(&again, link) > 100_000;
        assert!(carried("wifi") && carried("lte"), "{again:#}");

        // While it pauses nothing is sent, and the session is there afterwards.
        phone.order("pause");
        let before = phone.status();
        thread::sleep(Duration::from_secs(3));
        let after = phone.status();
        for link in ["wifi", "lte"] {
            assert_eq!(bytes(&before, link), bytes(&after, link), "{after:#}");
        }
        phone.order("resume");
        let short = phone.download(&stage, 500_000, 3);
        assert!(short.complete, "{}\n{:#}", short.message, phone.status());
        phone.report(&library, resting);

        // It ends, and nothing is left: no interface, no descriptor, no thread.
        phone.order("stop");
        let stopped = phone.wait_for_event("stopped");
        assert_eq!(stopped.get("reason"), None, "{stopped}");
        phone.order("free");
        let interfaces = client.tool("ip", &["link"]).unwrap();
        assert!(!interfaces.contains(TUN), "{interfaces}");
        // The runtime keeps a pair of sockets for signals, once in a process.
        let left = phone.resources();
        assert_eq!(left.threads, resting.threads);
        assert!(left.descriptors <= resting.descriptors + 2, "{left:?} after {resting:?}");
        wait_until(|| {
            let told = stage.proxy_status().unwrap().0;
            let tunnels = told["tunnels"].as_array().unwrap();
            tunnels.iter().any(|tunnel| tunnel["reason"] == "the client was stopped")
        });

        // The proxy knows its key: the next time the config is enough.
        phone.kept.clear();
        phone.order(&format!("config {config}"));
        phone.order(r#"network {"id": 0, "name": "wifi"}"#);
        let same = phone.wait_for_event("tun");
        assert_eq!(same["addresses"], wish["addresses"]);
        phone.order("free");
        let again = phone.resources();
        assert_eq!((again.descriptors, again.threads), (left.descriptors, left.threads));
        phone.end();
    });
}

#[test]
fn a_phone_whose_network_lets_no_udp_through_goes_over_tls_and_back() {
    let name = "a_phone_whose_network_lets_no_udp_through_goes_over_tls_and_back";
    lab_test_alone(name, || {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(folder.path(), &library());
        let config = TopologyConfig::new(vec![wan(MBIT[0], 20)]);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        stage.deployment().proxy_config().insert("tls".into(), Table::new().into());
        stage.start_proxy().unwrap();
        let block = "table inet block { chain forward { type filter hook forward priority 0;\n\
                     meta l4proto udp drop\n}\n}";
        stage.topology().routers()[0].namespace().nft(block).unwrap();
        let mut phone = Phone::start(stage.topology().client(), &program);
        phone.order(&format!("invitation {}", invitation(&mut stage)));
        phone.order(r#"network {"id": 0, "name": "wifi", "mtu": 1500}"#);
        phone.wait_for_event("joined");
        let wish = phone.wait_for_event("tun");
        phone.open_tun(stage.topology().client(), &wish);
        phone.wait_for_up(0, "wifi");
        let over_tls = phone.status();
        let link = &over_tls["tunnels"][0]["links"][0];
        assert_eq!(link["over_tls"], true, "{over_tls:#}");
        assert_eq!(link["reason"], "over TLS, because UDP is not answered here");
        assert_eq!(stage.proxy_status().unwrap().0["proxy"]["tls"]["clients"], 1);
        let download = phone.download(&stage, 3_000_000, 1);
        println!("over TLS: {:.2} Mbit/s of {}", download.mbit, MBIT[0]);

        // It hangs up while it pauses, and is there again afterwards.
        phone.order("pause");
        wait_until(|| stage.proxy_status().unwrap().0["proxy"]["tls"]["clients"] == 0);
        phone.order("resume");
        phone.download(&stage, 300_000, 2);

        let unblock = "delete table inet block";
        stage.topology().routers()[0].namespace().nft(unblock).unwrap();
        let begun = Instant::now();
        while !phone.status()["tunnels"][0]["links"][0]["over_tls"].is_null() {
            assert!(begun.elapsed() < ASKED_AGAIN, "it stays over TLS: {:#}", phone.status());
            thread::sleep(Duration::from_millis(200));
        }
        println!("by UDP again after {:.1} s", begun.elapsed().as_secs_f64());
        phone.download(&stage, 300_000, 3);
        phone.order("free");
        phone.end();
    });
}

fn wan(mbit: u64, rtt_ms: u64) -> WanConfig {
    let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
    WanConfig::from(Access::symmetric(Bitrate::from_mbps(mbit), rtt, queue))
}

/// Bytes that a link sent and received.
fn bytes(status: &Value, link: &str) -> u64 {
    let links = status["tunnels"][0]["links"].as_array().unwrap();
    let link = links.iter().find(|one| one["name"] == link).unwrap();
    link["up"]["bytes"].as_u64().unwrap() + link["down"]["bytes"].as_u64().unwrap()
}

/// The line that the proxy's owner gives to the phone's.
fn invitation(stage: &mut Stage) -> String {
    let socket = stage.deployment().folder().join("proxy.sock");
    let mut command = Command::new(PROGRAM);
    command.args(["peer", "add", "phone", "--address", "203.0.113.2:51900", "--socket"]);
    let output = command.arg(socket).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Where the library is: beside the test program, since it is built with it.
fn library() -> PathBuf {
    if let Some(other) = std::env::var_os(LIBRARY) {
        return PathBuf::from(other);
    }
    let own = std::env::current_exe().unwrap();
    let folders = own.ancestors().skip(1).take(2);
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libropewalk_mobile") && name.ends_with(".so")
    });
    // A build folder may hold older ones.
    let newest = files.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the library with the test")
}

fn compile(folder: &Path, library: &Path) -> PathBuf {
    let program = folder.join("phone");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    command.args([format!("{MOBILE}/tests/phone.c"), format!("-I{MOBILE}/include")]);
    command.arg(library).arg(format!("-Wl,-rpath,{}", library.parent().unwrap().display()));
    let output = command.output().expect("a C compiler: sudo apt-get install gcc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn fetch(client: &Namespace, url: &str) -> Download {
    let curl = Curl { interface: None, limit: Some(Duration::from_secs(60)) };
    curl.download(client, url, |_| {}).unwrap()
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "waited in vain");
        thread::sleep(Duration::from_millis(50));
    }
}

/// What a process has.
#[derive(Clone, Copy, Debug)]
struct Resources {
    descriptors: usize,
    threads: usize,
    resident_kib: u64,
}

/// The app as a process.
struct Phone {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    /// What came and was not asked for yet.
    kept: Vec<String>,
}

impl Phone {
    fn start(client: &Namespace, program: &Path) -> Self {
        let mut command = bound_to_parent(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = client.spawn(command).unwrap();
        let (orders, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut phone = Self { child, orders, lines, kept: Vec::new() };
        // It answers once the library is loaded.
        let said = phone.say("hello");
        assert!(said.ends_with("no such command"), "{said}");
        phone
    }

    /// Gives an order; returns how it went.
    fn say(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.wait_for("done ")
    }

    /// Gives an order that works.
    fn order(&mut self, order: &str) {
        let done = self.say(order);
        assert!(done.starts_with("0 "), "{order}: {done}\n{:#?}", self.kept);
    }

    /// The next line that begins so, without its beginning.
    fn wait_for(&mut self, beginning: &str) -> String {
        self.wait_for_line(|line| line.starts_with(beginning))[beginning.len()..].to_owned()
    }

    fn wait_for_line(&mut self, is_wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.kept.iter().position(|line| is_wanted(line)) {
                return self.kept.remove(at);
            }
            let left = LONG.saturating_sub(begun.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.kept.push(line),
                Err(error) => panic!("{error}; it said {:#?}", self.kept),
            }
        }
    }

    /// The next event of this kind.
    fn wait_for_event(&mut self, kind: &str) -> Value {
        let wanted = format!(r#"event {{"event":"{kind}""#);
        let line = self.wait_for_line(|line| line.starts_with(&wanted));
        serde_json::from_str(&line["event ".len()..]).unwrap()
    }

    /// Waits until a network carries packets.
    fn wait_for_up(&mut self, id: u64, name: &str) {
        let wanted =
            format!(r#"event {{"event":"link","network":{id},"name":"{name}","state":"up""#);
        self.wait_for_line(|line| line.starts_with(&wanted));
    }

    fn status(&mut self) -> Value {
        self.order("status");
        serde_json::from_str(&self.wait_for("status ")).unwrap()
    }

    /// What the system does with `VpnService.Builder`: a TUN with these addresses, to which everything is routed.
    fn open_tun(&mut self, client: &Namespace, wish: &Value) {
        self.order(&format!("tun {TUN}"));
        let address = wish["addresses"][0].as_str().unwrap();
        let mtu = &wish["mtu"];
        client
            .ip(&format!(
                "addr add {address}/32 dev {TUN}\nlink set {TUN} mtu {mtu} up\n\
                 route add 0.0.0.0/1 dev {TUN}\nroute add 128.0.0.0/1 dev {TUN}"
            ))
            .unwrap();
    }

    fn download(&self, stage: &Stage, length: u64, seed: u64) -> Download {
        let download = fetch(stage.topology().client(), &stage.url(length, seed));
        assert_eq!(download.sha256, body_sha256(length, seed), "{}", download.message);
        download
    }

    fn resources(&self) -> Resources {
        let place = PathBuf::from(format!("/proc/{}", self.child.id()));
        let count = |of: &str| std::fs::read_dir(place.join(of)).unwrap().count();
        let status = std::fs::read_to_string(place.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let resident_kib = resident.split_whitespace().next().unwrap().parse().unwrap();
        Resources { descriptors: count("fd"), threads: count("task"), resident_kib }
    }

    /// Prints what the library takes.
    fn report(&self, library: &Path, resting: Resources) {
        let now = self.resources();
        println!(
            "memory of the app: {} KiB before, {} KiB with a tunnel after the downloads; {} more threads and {} more \
             descriptors; {}: {} bytes",
            resting.resident_kib,
            now.resident_kib,
            now.threads - resting.threads,
            now.descriptors - resting.descriptors,
            library.display(),
            library.metadata().unwrap().len(),
        );
    }

    fn end(mut self) {
        writeln!(self.orders, "exit").unwrap();
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < LONG, "it does not end"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }
}
