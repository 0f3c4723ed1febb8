//! The client daemon on a real kernel, in network namespaces of the test's own: what it changes, what it
//! takes back, and what it says while it cannot reach its proxy.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::tun::{LinuxTun, TunOptions};
use ropewalk_settings::Switch;
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything a daemon does at once, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const PROXY_KEY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

/// All that a client may change, as text.
const STATE: &str =
    "ip -o -4 addr; ip -o -6 addr; ip route show table all; ip -6 route show table all
    ip rule; ip -6 rule; nft list ruleset; ip -o link | cut -d' ' -f2
    grep . /proc/sys/net/ipv4/conf/*/src_valid_mark";

/// Two links with a gateway each, of which nobody answers.
const LINKS: &str =
    "[[link]]\ninterface = \"wan0\"\nname = \"dsl\"\n[[link]]\ninterface = \"wan1\"\n";

#[test]
fn each_link_says_why_it_carries_nothing_and_so_does_the_tunnel() {
    let links = format!(
        "{LINKS}[[link]]\ninterface = \"usb7\"\n[[link]]\ninterface = \"lan0\"\nenabled = false\n"
    );
    let Some(host) = Host::new("203.0.113.5", &links) else { return };
    host.namespace.sh("ip route del default dev wan1");
    let mut client = host.start();
    let status = host.wait_for(&mut client, "the links", |status| {
        link(status, "dsl")["state"] == "joining" && link(status, "wan1")["reason"] == "no gateway"
    });
    let tunnel = &status["tunnels"][0];
    assert_eq!(
        (&tunnel["state"], &tunnel["peer"]),
        (&"connecting".into(), &"203.0.113.5:51900".into())
    );
    // The second is said after a few seconds, which a busy machine may take.
    let said = ["the proxy is being asked", "no answer"];
    assert!(
        said.iter().any(|said| tunnel["reason"].as_str().unwrap().contains(said)),
        "{tunnel:#}"
    );
    for (name, state, reason) in [
        ("dsl", "joining", "no answer from the proxy"),
        ("wan1", "down", "no gateway"),
        ("usb7", "down", "no such interface"),
        ("lan0", "disabled", "switched off in the config"),
    ] {
        let link = link(&status, name);
        assert_eq!(link["state"], state, "{name}");
        assert!(link["reason"].as_str().unwrap().starts_with(reason), "{link:#}");
    }
    let warnings = status["daemon"]["warnings"].to_string();
    assert!(warnings.contains("there is no interface usb7"), "{warnings}");
    assert!(warnings.contains("wan0") && warnings.contains("wan1"), "{warnings}");
    assert!(host.log().contains("there is no interface usb7"), "{}", host.log());
    assert!(stop(&mut client).success());
}

#[test]
fn a_gateway_in_the_config_stands_in_for_a_default_route() {
    let links = LINKS.trim_end().to_owned() + "\ngateway = \"198.51.100.1\"\nmetered = true\n";
    let Some(host) = Host::new("203.0.113.5", &links) else { return };
    host.namespace.sh("ip route del default dev wan1");
    let mut client = host.start();
    host.wait_for(&mut client, "the links", |status| link(status, "wan1")["state"] == "joining");
    let routes = host.namespace.read("ip route show table 7702");
    assert!(routes.contains("default via 198.51.100.1 dev wan1"), "{routes}");
    assert!(stop(&mut client).success());
}

#[test]
fn an_interface_that_vanishes_and_returns_is_used_again_and_the_other_goes_on() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    let mut client = host.start();
    let joining = |status: &Value, name: &str| link(status, name)["state"] == "joining";
    let before = host.wait_for(&mut client, "both", |s| joining(s, "dsl") && joining(s, "wan1"));
    host.namespace.sh("ip link del wan0");
    let without = host.wait_for(&mut client, "the loss", |status| {
        link(status, "dsl")["reason"] == "no such interface"
    });
    assert_eq!(link(&without, "wan1")["local"], link(&before, "wan1")["local"]);
    let routes = host.namespace.read("ip route show table 7701 2>/dev/null || true");
    assert!(!routes.contains("wan"), "{routes}");

    host.namespace.sh(&wan(0, 9));
    let after = host.wait_for(&mut client, "the return", |status| joining(status, "dsl"));
    assert_eq!(link(&after, "wan1")["local"], link(&before, "wan1")["local"]);
    assert!(link(&after, "dsl")["local"].as_str().unwrap().starts_with("192.0.2.9:"), "{after:#}");

    // Another address on the same interface.
    host.namespace.sh("ip addr del 192.0.2.9/24 dev wan0; ip addr add 192.0.2.7/24 dev wan0
         ip route add default via 192.0.2.1 dev wan0 metric 100");
    let moved = host.wait_for(&mut client, "the new address", |status| {
        link(status, "dsl")["local"].as_str().is_some_and(|local| local.starts_with("192.0.2.7:"))
    });
    assert_eq!(link(&moved, "wan1")["local"], link(&before, "wan1")["local"]);
    assert!(stop(&mut client).success());
}

#[test]
fn a_clean_end_and_the_start_after_a_kill_leave_nothing_behind() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    host.namespace.sh("echo 1 > /proc/sys/net/ipv4/conf/wan0/rp_filter");
    let before = host.state();
    let ready = |client: &mut Child| {
        host.wait_for(client, "the links", |status| link(status, "wan1")["state"] == "joining");
    };
    let mut first = host.start();
    ready(&mut first);
    assert!(host.state().contains("ropewalk0"));
    let running = host.state();
    assert!(stop(&mut first).success(), "{}", host.log());
    assert_eq!(host.state(), before);
    assert!(!host.path("client.sock").exists());

    let mut second = host.start();
    ready(&mut second);
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(host.state().contains("proto 114"), "the kill left something");
    let mut third = host.start();
    ready(&mut third);
    assert_eq!(host.state(), running);
    assert!(stop(&mut third).success());
    assert_eq!(host.state(), before);
}

#[test]
fn what_others_take_away_is_put_back() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    host.namespace.sh("echo 1 > /proc/sys/net/ipv4/conf/wan0/rp_filter");
    let mut client = host.start();
    host.wait_for(&mut client, "the links", |status| link(status, "wan1")["state"] == "joining");
    let running = host.state();
    // The kernel tells of the one and not of the other.
    for theft in ["ip rule del priority 5301; ip route flush table 7701", "nft flush ruleset"] {
        // What the client changes itself is news to it too: until it has heard all of that.
        std::thread::sleep(Duration::from_secs(1));
        host.namespace.sh(theft);
        assert_ne!(host.state(), running, "{theft}");
        wait_until("the state is as before", || host.state() == running);
    }
    assert!(stop(&mut client).success());
}

#[test]
fn what_keeps_it_from_starting_is_named_and_nothing_is_changed() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    host.namespace.sh("ip link add ropewalk0 type veth peer name other");
    let before = host.state();
    let (status, said) = host.run("client.toml");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("ropewalk0 is no usable TUN"), "{said}");
    assert_eq!(host.state(), before);
    host.namespace.sh("ip link del ropewalk0");

    let mut client = host.start();
    host.wait_for(&mut client, "the links", |status| link(status, "wan1")["state"] == "joining");
    let running = host.state();
    let (status, said) = host.run("client.toml");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("another daemon answers at"), "{said}");

    // With its own socket and TUN it would still take the other's rules for those of a crashed client.
    host.write_config("other.toml", "203.0.113.5", &format!("[tun]\nname = \"rope1\"\n{LINKS}"));
    let (status, said) = host.run("other.toml");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("another ropewalk client runs"), "{said}");
    assert_eq!(host.state(), running);
    assert!(stop(&mut client).success());
}

#[test]
fn a_tun_that_another_program_holds_is_named() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    let mut command = host.command("client.toml");
    let output = host.namespace.block_on(async move || {
        let options = TunOptions { name: "ropewalk0".to_owned(), mtu: 1400, offload: Switch::Auto };
        let holder = LinuxTun::open(&options).unwrap();
        let output = command.output().unwrap();
        drop(holder);
        output
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ropewalk0 is in use by another process"), "{said}");
}

#[test]
fn a_device_that_is_closed_to_the_user_is_named() {
    /// As for a user with the capabilities but without the right to the device.
    const CLOSED: &str = "mount --make-rprivate /; touch \"$1\"; chmod 000 \"$1\"
        mount --bind \"$1\" /dev/net/tun; shift
        exec setpriv --bounding-set=-dac_override,-dac_read_search -- \"$@\"";
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", CLOSED, "sh"]).arg(host.path("tun"));
    command.args([env!("CARGO_BIN_EXE_ropewalk"), "client", "--config"]);
    command.arg(host.path("client.toml"));
    let output = host.namespace.run(move || command.output().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("/dev/net/tun is closed to this user"), "{said}");
}

#[test]
fn a_tun_that_somebody_deletes_is_made_again() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    let before = host.state();
    let mut client = host.start();
    host.wait_for(&mut client, "the links", |status| link(status, "wan1")["state"] == "joining");
    // Numbers of interfaces, and the addresses that the kernel draws, are others then.
    let state = || host.namespace.read("ip -o link | cut -d' ' -f2; ip rule; nft list ruleset");
    let running = state();
    for _ in 0..2 {
        host.namespace.sh("ip link del ropewalk0");
        wait_until("the state is as before", || state() == running);
    }
    assert!(host.log().contains("ropewalk0: it was made again"), "{}", host.log());
    assert!(stop(&mut client).success());
    assert_eq!(host.state(), before);
}

#[test]
fn without_its_tun_the_client_ends_and_takes_the_rest_back() {
    let Some(host) = Host::new("203.0.113.5", LINKS) else { return };
    let before = host.state();
    let mut client = host.start();
    host.wait_for(&mut client, "the links", |status| link(status, "wan1")["state"] == "joining");
    client_stands_still(&client, || {
        host.namespace.sh("ip link del ropewalk0; ip link add ropewalk0 type veth peer name other");
    });
    assert_eq!(wait(&mut client).code(), Some(1));
    assert!(host.log().contains("ropewalk0 is no usable TUN"), "{}", host.log());
    host.namespace.sh("ip link del ropewalk0");
    assert_eq!(host.state(), before);
}

/// Does something while the client is stopped.
fn client_stands_still(client: &Child, work: impl FnOnce()) {
    let id = Pid::from_raw(i32::try_from(client.id()).unwrap());
    kill(id, Signal::SIGSTOP).unwrap();
    work();
    kill(id, Signal::SIGCONT).unwrap();
}

#[test]
fn a_proxy_whose_name_has_no_address_is_told() {
    let Some(host) = Host::new("no-such-host.invalid", LINKS) else { return };
    let mut client = host.start();
    let status = host.wait_for(&mut client, "the failure", |status| {
        let reason = status["tunnels"][0]["reason"].as_str().unwrap_or_default();
        reason.contains("cannot resolve no-such-host.invalid")
    });
    assert_eq!(link(&status, "dsl")["reason"], "the proxy's address is not known yet");
    assert!(stop(&mut client).success());
}

/// The script that makes interface `wan<n>` with this host number and its router's address.
fn wan(n: u8, host: u8) -> String {
    let net = ["192.0.2", "198.51.100"][usize::from(n)];
    format!(
        "ip link add wan{n} type veth peer name far{n}; ip link set far{n} up; ip link set wan{n} up
         ip addr add {net}.{host}/24 dev wan{n}
         ip route add default via {net}.1 dev wan{n} metric 10{n}\n"
    )
}

/// The link of this name in a status document.
fn link<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut links = status["tunnels"][0]["links"].as_array().into_iter().flatten();
    links.find(|link| link["name"] == name).unwrap_or(&Value::Null)
}

/// A host with two links and a config.
struct Host {
    namespace: Namespace,
    folder: TempDir,
}

impl Host {
    /// `None` where namespaces are not to be had.
    fn new(proxy: &str, config: &str) -> Option<Self> {
        let namespace = Namespace::open()?;
        namespace.sh(&format!(
            "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6; {}{}",
            wan(0, 2),
            wan(1, 2)
        ));
        let folder = tempfile::Builder::new().prefix("rwclientd").tempdir().unwrap();
        let host = Self { namespace, folder };
        host.write_config("client.toml", proxy, config);
        Some(host)
    }

    fn write_config(&self, name: &str, proxy: &str, config: &str) {
        let socket = self.path(name).with_extension("sock");
        let text = format!(
            "private_key = \"{PRIVATE}\"\nstate_dir = \"{}\"\n\
             [proxy]\naddress = \"{proxy}\"\npublic_key = \"{PROXY_KEY}\"\n\
             [control]\nsocket = \"{}\"\n{config}",
            self.path("state").display(),
            socket.display()
        );
        std::fs::write(self.path(name), text).unwrap();
        // There is a key in it.
        std::fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
    }

    fn state(&self) -> String {
        self.namespace.read(STATE)
    }

    fn command(&self, config: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_ropewalk"), "client"]);
        command.arg("--config").arg(self.path(config));
        command
    }

    fn start(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = self.command("client.toml");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.namespace.run(move || command.spawn().unwrap())
    }

    /// Runs a client that ends by itself; its exit code and what it said.
    fn run(&self, config: &str) -> (ExitStatus, String) {
        let mut command = self.command(config);
        let output = self.namespace.run(move || command.output().unwrap());
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn status(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
            .args(["status", "--json", "--socket"])
            .arg(self.path("client.sock"))
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Waits until the status is as wanted, and returns it.
    fn wait_for(&self, client: &mut Child, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut status = Value::Null;
        let begun = Instant::now();
        while !wanted(&status) {
            let ended = client.try_wait().unwrap();
            assert!(ended.is_none(), "ended with {ended:?}:\n{}", self.log());
            assert!(begun.elapsed() < SOON, "waited for {what}:\n{status:#}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
            status = self.status();
        }
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
fn stop(client: &mut Child) -> ExitStatus {
    kill(Pid::from_raw(i32::try_from(client.id()).unwrap()), Signal::SIGTERM).unwrap();
    wait(client)
}

fn wait(client: &mut Child) -> ExitStatus {
    let mut ended = None;
    wait_until("the end", || {
        ended = client.try_wait().unwrap();
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
