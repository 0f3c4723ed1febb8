//! The proxy daemon on a real kernel, in network namespaces of the test's own: what it changes, what it
//! takes back, and what it says when it cannot start.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs::{File, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ropewalk_link_io::host::testing::Namespace;
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything a daemon does at once, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const LISA: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
const OTTO: &str = "Xf7dO2vUf2+ijuFdlp1bsOpTd01Ii9r53xxuASSz7yI=";

/// All that a proxy may change, as text; without the link-local addresses that the kernel draws for each
/// TUN, and the numbers that it gives to interfaces.
const STATE: &str = "(ip -o -4 addr; ip -o -6 addr) | grep -v fe80 | cut -d: -f2-
    (ip route show table all; ip -6 route show table all) | grep -v 'fe80\\|ff00'
    ip rule; ip -6 rule; nft list ruleset; ip -o link | cut -d' ' -f2
    cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding";

#[test]
fn everything_is_set_up_and_taken_back_but_the_guard_and_that_by_purge() {
    let Some(host) = Host::new("") else { return };
    let before = host.state();
    let mut proxy = host.start();
    let status = host.wait_ready(&mut proxy);

    assert_eq!(status["daemon"]["role"], "proxy");
    assert_eq!(status["proxy"]["listen"], "[::]:51900");
    assert_eq!(status["proxy"]["uplinks"], serde_json::json!(["up0"]));
    assert_eq!(status["proxy"]["pools"][0]["gateway"], "10.77.0.1");
    assert_eq!(status["proxy"]["pools"][0]["leased"], 1);
    assert!(status["proxy"]["conntrack"]["limit"].as_u64().unwrap() > 0);
    let lisa = &status["tunnels"][0];
    assert_eq!((&lisa["peer"], &lisa["state"]), (&"lisa".into(), &"idle".into()));
    assert_eq!(lisa["inner_v4"], "10.77.0.2");
    assert!(lisa["inner_v6"].as_str().unwrap().ends_with("::2"));
    let running = host.state();
    for expected in [
        "ropewalk-proxy0    inet 10.77.0.1/32",
        "unreachable 10.77.0.0/16 proto 115 metric 4000000000",
        "table inet ropewalk_proxy",
        "masquerade",
        "maxseg size set rt mtu",
    ] {
        assert!(running.contains(expected), "{expected} is missing in\n{running}");
    }
    assert!(running.ends_with("1\n1\n"), "forwarding is on: {running}");
    assert!(host.namespace.read("ip link show ropewalk-proxy0").contains("mtu 1440"));

    assert!(stop(&mut proxy).success(), "{}", host.log());
    let after = host.state();
    assert!(after.contains("unreachable 10.77.0.0/16"), "the guard stays:\n{after}");
    assert!(!after.contains("ropewalk-proxy0"), "the TUN is gone:\n{after}");
    assert!(!after.contains("masquerade"), "{after}");
    assert!(after.ends_with("0\n0\n"), "forwarding is off: {after}");
    assert!(!host.folder.path().join("proxy.sock").exists());

    let purged = host.run(&["--purge"]);
    assert!(purged.0.success(), "{}", purged.1);
    assert_eq!(host.state(), before);
}

#[test]
fn after_a_kill_the_next_start_takes_over_and_leases_stay() {
    let Some(host) = Host::new("") else { return };
    let before = host.state();
    let mut first = host.start();
    let leased = host.wait_ready(&mut first)["tunnels"][0]["inner_v4"].clone();
    let running = host.state();
    first.kill().unwrap();
    first.wait().unwrap();
    let killed = host.state();
    assert!(killed.contains("unreachable 10.77.0.0/16"), "the guard holds:\n{killed}");
    assert!(!killed.contains("ropewalk-proxy0 proto 115"), "no route into the dead TUN:\n{killed}");

    let mut second = host.start();
    assert_eq!(host.wait_ready(&mut second)["tunnels"][0]["inner_v4"], leased);
    assert_eq!(host.state(), running);
    let refused = host.run(&["--purge"]);
    assert_eq!(refused.0.code(), Some(1));
    assert!(refused.1.contains("another ropewalk proxy runs"), "{}", refused.1);
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(host.run(&["--purge"]).0.success());
    assert_eq!(host.state(), before);
}

#[test]
fn what_others_take_away_is_put_back() {
    let Some(host) = Host::new("") else { return };
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    let running = host.state();
    host.namespace.sh("ip route del unreachable 10.77.0.0/16 metric 4000000000; nft flush ruleset");
    assert_ne!(host.state(), running);
    wait_until("the state is as before", || host.state() == running);
    // The TUN too, with its addresses and the routes into it.
    for _ in 0..2 {
        host.namespace.sh("ip link del ropewalk-proxy0");
        wait_until("the state is as before", || host.state() == running);
    }
    assert!(host.log().contains("ropewalk-proxy0: it was made again"), "{}", host.log());
    assert!(stop(&mut proxy).success());
}

#[test]
fn what_is_in_use_is_named_with_its_holder_and_nothing_is_changed() {
    let Some(host) = Host::new("") else { return };
    let before = host.state();
    let holder = host.namespace.run(|| UdpSocket::bind("[::]:51900").unwrap());
    let (status, said) = host.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("(process {}) holds the port", std::process::id())), "{said}");
    assert!(said.contains("51900 is in use"), "{said}");
    drop(holder);
    assert_eq!(host.state(), before);

    host.namespace.sh("ip link add ropewalk-proxy0 type veth peer name other");
    let before = host.state();
    let (status, said) = host.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("ropewalk-proxy0 is no usable TUN"), "{said}");
    assert_eq!(host.state(), before);
    host.namespace.sh("ip link del ropewalk-proxy0");

    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    let running = host.state();
    let (status, said) = host.run(&[]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("ropewalk (process {}) holds the port", proxy.id())), "{said}");
    assert_eq!(host.state(), running);
    assert!(stop(&mut proxy).success());
}

#[test]
fn a_proxy_that_must_not_start_leaves_the_leases_of_the_other_alone() {
    let Some(host) = Host::new("") else { return };
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    let leases = || std::fs::read_to_string(host.path("state/leases.json")).unwrap();
    let before = leases();
    assert!(before.contains("10.77.0.2"), "{before}");
    let config = std::fs::read_to_string(host.path("proxy.toml")).unwrap();
    for (port, reason) in [(51900, "holds the port"), (51901, "another ropewalk proxy runs")] {
        // With another pool and another peer nothing of the leases would stay.
        let other = format!("listen = \"[::]:{port}\"\npool_v4 = \"10.8.0.0/24\"\n{config}");
        std::fs::write(host.path("proxy.toml"), other.replace(LISA, OTTO)).unwrap();
        let (status, said) = host.run(&[]);
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{said}");
        assert_eq!(leases(), before, "{reason}");
    }
    assert!(stop(&mut proxy).success());
}

#[test]
fn a_pool_that_overlaps_a_route_or_an_address_of_the_host_is_refused_with_one_that_is_free() {
    let Some(host) = Host::new("pool_v6 = \"fd00:77::/64\"") else { return };
    let cases = [
        ("ip route add 10.77.128.0/24 dev up0", "the route 10.77.128.0/24 by up0", "10.88.0.0/16"),
        ("ip route add 10.0.0.0/8 via 192.0.2.9", "the route 10.0.0.0/8 by up0", "172.29.0.0/16"),
        ("ip route add blackhole 10.77.0.9 table 77", "the route 10.77.0.9/32", "10.88.0.0/16"),
        ("ip addr add 10.77.3.1/24 dev up1", "10.77.3.1/24 of up1", "10.88.0.0/16"),
        ("ip addr add fd00:77::9/128 dev up1", "fd00:77::9/128 of up1", "pool_v6 = \"fd"),
    ];
    let before = host.state();
    for (command, overlapped, free) in cases {
        host.namespace.sh(command);
        let changed = host.state();
        let check = host.check();
        for (status, said) in [host.run(&[]), check] {
            assert_eq!(status.code(), Some(2), "{command}: {said}");
            assert!(said.contains(overlapped) && said.contains(free), "{command}: {said}");
        }
        assert_eq!(host.state(), changed, "nothing is changed: {command}");
        host.namespace.sh(&command.replacen(" add ", " del ", 1));
        assert_eq!(host.state(), before, "{command}");
    }
    assert!(!host.path("state/leases.json").exists());
    // Its own guard of the run before is no reason, nor is a default route in halves.
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    assert_eq!(host.check().0.code(), Some(0), "{}", host.check().1);
    assert!(stop(&mut proxy).success());
    host.namespace.sh("ip route add 0.0.0.0/1 dev up0; ip route add 128.0.0.0/1 dev up0");
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    assert!(stop(&mut proxy).success());
}

#[test]
fn a_changed_pool_that_would_take_addresses_away_asks_for_drop_leases() {
    let Some(host) = Host::new("") else { return };
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    assert!(stop(&mut proxy).success());
    let leases = || std::fs::read_to_string(host.path("state/leases.json")).unwrap();
    let before = leases();
    let config = std::fs::read_to_string(host.path("proxy.toml")).unwrap();
    let changed = format!("pool_v4 = \"10.8.0.0/24\"\n{config}");
    std::fs::write(host.path("proxy.toml"), changed).unwrap();
    for (status, said) in [host.run(&[]), host.check()] {
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("lisa at 10.77.0.2") && said.contains("--drop-leases"), "{said}");
    }
    assert_eq!(leases(), before);
    let mut proxy = host.start_with(&["--drop-leases"]);
    host.wait_ready(&mut proxy);
    assert!(stop(&mut proxy).success());
    assert!(leases().contains("10.8.0.2"), "{}", leases());
    // From then on it starts as ever.
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    assert!(stop(&mut proxy).success());
}

#[test]
fn files_of_a_newer_program_are_called_so_and_stay_as_they_are() {
    let Some(host) = Host::new("") else { return };
    std::fs::create_dir(host.path("state")).unwrap();
    for (name, known) in [("leases.json", 1), ("peers.json", 2)] {
        let file = host.path("state").join(name);
        let newer = "{\"version\": 3, \"something\": \"else\"}";
        std::fs::write(&file, newer).unwrap();
        let (status, said) = host.run(&["--drop-leases"]);
        assert_eq!(status.code(), Some(1), "{said}");
        let newer_format =
            format!("a newer version of ropewalk (format 3, this program knows up to {known})");
        for part in [name, &newer_format] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains("damaged"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), newer);
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn only_the_default_config_is_made_without_being_asked_for() {
    let Some(host) = Host::new("") else { return };
    std::fs::remove_file(host.path("proxy.toml")).unwrap();
    let (status, said) = host.run(&[]);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("there is no config") && said.contains("proxy.toml"), "{said}");
    assert!(said.contains("ropewalk proxy --init --config"), "{said}");
    assert!(!host.path("proxy.toml").exists() && !host.path("proxy.key").exists());

    // The defaults of what is made are those of this machine: only here, where the TUN's name is taken, it does not start.
    host.namespace.sh("ip link add ropewalk-proxy0 type veth peer name other");
    let (_, said) = host.run(&["--init"]);
    assert!(said.contains("first start: the config"), "{said}");
    assert!(host.path("proxy.toml").exists() && host.path("proxy.key").exists());
}

#[test]
fn packets_come_only_to_workers_that_have_clients() {
    let Some(host) = Host::new("workers = 4") else { return };
    let queues = |used: u8| {
        let expected = format!("numqueues {used} numdisabled {}", 4 - used);
        wait_until(&expected, || {
            host.namespace.read("ip -d link show ropewalk-proxy0").contains(&expected)
        });
    };
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    queues(1);
    // Of so many clients each worker has some.
    let alone = std::fs::read_to_string(host.path("proxy.toml")).unwrap();
    let keys = (10..50).map(|byte| (byte, STANDARD.encode([byte; 32])));
    let more =
        keys.map(|(at, key)| format!("[[peer]]\nname = \"c{at}\"\npublic_key = \"{key}\"\n"));
    let all = more.fold(alone.clone(), |all, peer| all + &peer);
    for (config, used) in [(&all, 4), (&alone, 1), (&all, 4)] {
        std::fs::write(host.path("proxy.toml"), config).unwrap();
        kill(Pid::from_raw(i32::try_from(proxy.id()).unwrap()), Signal::SIGHUP).unwrap();
        queues(used);
    }
    assert!(stop(&mut proxy).success(), "{}", host.log());
}

#[test]
fn a_peer_without_an_address_is_refused_with_the_reason_and_the_others_are_served() {
    let more =
        format!("pool_v4 = \"10.8.0.0/30\"\n[[peer]]\nname = \"otto\"\npublic_key = \"{OTTO}\"");
    let Some(host) = Host::new(&more) else { return };
    let mut proxy = host.start();
    let status = host.wait_ready(&mut proxy);
    let tunnels = status["tunnels"].as_array().unwrap();
    let reason = |peer: &str| {
        let tunnel = tunnels.iter().find(|tunnel| tunnel["peer"] == peer).unwrap();
        tunnel["reason"].as_str().unwrap_or_default().to_owned()
    };
    // The order of the file decides.
    assert!(reason("lisa").contains("the pool 10.8.0.0/30 is exhausted"), "{}", reason("lisa"));
    assert!(reason("otto").contains("not seen"), "{}", reason("otto"));
    assert!(host.log().contains("refused: the pool"), "{}", host.log());
    assert!(stop(&mut proxy).success());
}

#[test]
fn ipv6_is_handed_out_as_soon_as_it_can_leave_and_its_loss_is_told() {
    for mode in ["", "ipv6 = \"routed\"\npool_v6 = \"2001:db8:77::/64\""] {
        let Some(host) = Host::new(mode) else { return };
        host.namespace.sh("ip -6 route del default");
        let mut proxy = host.start();
        let status = host.wait_ready(&mut proxy);
        assert_eq!(status["tunnels"][0]["inner_v6"], Value::Null, "{mode}");
        let warnings = || host.status()["daemon"]["warnings"].to_string();
        assert!(warnings().contains("no IPv6 default route"), "{mode}: {}", warnings());
        assert!(host.state().ends_with("1\n0\n"), "{mode}: {}", host.state());

        host.namespace.sh("ip -6 route add default via 2001:db8:9::2");
        wait_until("an inner IPv6 address", || host.status()["tunnels"][0]["inner_v6"].is_string());
        assert_eq!(warnings(), "[]", "{mode}");
        assert!(host.state().ends_with("1\n1\n"), "{mode}: {}", host.state());

        host.namespace.sh("ip -6 route del default");
        wait_until("the loss is told", || warnings().contains("lost its IPv6 default route"));
        assert!(host.status()["tunnels"][0]["inner_v6"].is_string(), "{mode}");
        host.namespace.sh("ip -6 route add default via 2001:db8:9::2");
        wait_until("all is well again", || warnings() == "[]");
        assert!(stop(&mut proxy).success());
    }
}

#[test]
fn the_supervisor_is_told_of_start_and_end() {
    let Some(host) = Host::new("") else { return };
    let told = UnixDatagram::bind(host.path("notify")).unwrap();
    told.set_read_timeout(Some(SOON)).unwrap();
    let hear = || {
        let mut buffer = [0; 512];
        let length = told.recv(&mut buffer).expect("the supervisor hears of it");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut proxy = host.start();
    let ready = hear();
    let status = "STATUS=on [::]:51900: 0 of 1 peer connected, 0 bit/s down, 0 bit/s up";
    assert!(ready.contains("READY=1") && ready.contains(status), "{ready}");
    // Ready means that it answers and that the host's network is set up.
    assert!(!host.status().is_null());
    assert!(host.state().contains("masquerade"));
    // It lives on, as its loop says itself, several times in the time that the watchdog waits.
    for _ in 0..3 {
        let beat = hear();
        assert!(beat.contains("WATCHDOG=1") && beat.contains(status), "{beat}");
    }
    assert!(stop(&mut proxy).success());
    assert!(std::iter::repeat_with(hear).take(100).any(|told| told.contains("STOPPING=1")));
}

#[test]
fn garbage_is_counted_and_gets_no_answer() {
    let Some(host) = Host::new("") else { return };
    let mut proxy = host.start();
    host.wait_ready(&mut proxy);
    let answered = host.namespace.run(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        for garbage in [&b"x"[..], &[0; 40], &[1; 200], &[0xff; 1200]] {
            socket.send_to(garbage, "127.0.0.1:51900").unwrap();
        }
        socket.recv(&mut [0; 2000]).is_ok()
    });
    assert!(!answered);
    wait_until("all of them are counted", || {
        let drops = host.status()["drops"].clone();
        drops.as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>() >= 4
    });
    assert!(stop(&mut proxy).success());
}

/// A host with an uplink and a config.
struct Host {
    namespace: Namespace,
    folder: TempDir,
}

impl Host {
    /// `config` stands before the one peer of every host. `None` where namespaces are not to be had.
    fn new(config: &str) -> Option<Self> {
        let namespace = Namespace::open()?;
        namespace.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
             ip link add up0 type veth peer name up1; ip link set up0 up; ip link set up1 up
             ip addr add 192.0.2.1/24 dev up0; ip addr add 2001:db8:9::1/64 dev up0 nodad
             ip route add default via 192.0.2.2; ip -6 route add default via 2001:db8:9::2");
        let folder = tempfile::Builder::new().prefix("rwproxyd").tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let text = format!(
            "private_key = \"{PRIVATE}\"\nstate_dir = \"{}\"\n{config}\n[[peer]]\nname = \"lisa\"\n\
             public_key = \"{LISA}\"\n[control]\nsocket = \"{}\"\n",
            at("state"),
            at("proxy.sock")
        );
        std::fs::write(at("proxy.toml"), text).unwrap();
        // There is a key in it.
        std::fs::set_permissions(at("proxy.toml"), Permissions::from_mode(0o600)).unwrap();
        Some(Self { namespace, folder })
    }

    fn state(&self) -> String {
        self.namespace.read(STATE)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_ropewalk"), "proxy"]);
        command.arg("--config").arg(self.path("proxy.toml")).args(arguments);
        command.env("NOTIFY_SOCKET", self.path("notify")).env("WATCHDOG_USEC", "900000");
        command
    }

    fn start(&self) -> Child {
        self.start_with(&[])
    }

    fn start_with(&self, arguments: &[&str]) -> Child {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.namespace.run(move || command.spawn().unwrap())
    }

    /// Runs a proxy that ends by itself; its exit code and what it said.
    fn run(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let mut command = self.command(arguments);
        let output = self.namespace.run(move || command.output().unwrap());
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// What `ropewalk check-config` says of its config.
    fn check(&self) -> (ExitStatus, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
        command.arg("check-config").arg(self.path("proxy.toml"));
        let output = self.namespace.run(move || command.output().unwrap());
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn status(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
            .args(["status", "--json", "--socket"])
            .arg(self.path("proxy.sock"))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    fn wait_ready(&self, proxy: &mut Child) -> Value {
        let mut status = Value::Null;
        wait_until("an answer to `status`", || {
            let ended = proxy.try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?}:\n{}", self.log());
            status = self.status();
            !status.is_null()
        });
        status
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A clean end.
fn stop(proxy: &mut Child) -> ExitStatus {
    kill(Pid::from_raw(i32::try_from(proxy.id()).unwrap()), Signal::SIGTERM).unwrap();
    let mut ended = None;
    wait_until("the end", || {
        ended = proxy.try_wait().unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < SOON, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
