//! What the systemd units give the daemons is enough, and no more than they need: an own user, a few capabilities, and a
//! supervisor that hears of readiness and life.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ropewalk_netlab::address::{SERVER_V4, SERVER_V6};
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::nobody::Nobody;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::{lab_test, skipped};
use ropewalk_netlab::process::Process;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use toml::Table;

const CLIENT: &str = include_str!("../../../../configs/systemd/ropewalk-client.service");
const PROXY: &str = include_str!("../../../../configs/systemd/ropewalk-proxy.service");

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// What stood in `resolv.conf` before.
const BEFORE: &str = "nameserver 192.168.10.1\n";

/// A service: its own runtime folder, a TUN that everybody may open (as most systems have it), root's /etc in which
/// `resolv.conf` is a link, to be written if the unit says so; then another user with these capabilities. `$1` is a folder
/// of its own, `$2` is `rw` or `ro`, `$3` the capabilities.
const AS_SERVICE: &str = r#"
set -e
mount --make-rprivate /
mkdir -p /run/ropewalk && mount -t tmpfs -o mode=755,uid=65534,gid=65534 tmpfs /run/ropewalk
mkdir "$1/devices" && mount -t tmpfs tmpfs "$1/devices"
mknod "$1/devices/tun" c 10 200 && chmod 666 "$1/devices/tun" && mount --bind "$1/devices/tun" /dev/net/tun
mkdir "$1/etc" && cp /etc/passwd /etc/group "$1/etc" && ln -s "$1/resolv.conf" "$1/etc/resolv.conf"
mount --bind "$1/etc" /etc && mount -o "remount,bind,$2" /etc
caps=$3
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --inh-caps "$caps" --ambient-caps "$caps" \
    --bounding-set "$caps" "$@"
"#;

#[test]
fn both_daemons_work_with_the_user_and_the_capabilities_of_their_units() {
    const NAME: &str = "units::both_daemons_work_with_the_user_and_the_capabilities_of_their_units";
    lab_test(NAME, || {
        let Some((nobody, program)) = another_user(NAME) else { return };
        let topology =
            Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap();
        let mut deployment = Deployment::prepare(&topology, &program).unwrap();
        let told = deployment.folder().join("notify");
        let told = UnixDatagram::bind(&told).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut proxy_config = deployment.proxy_config().clone();
        proxy_config.insert("dns".into(), SERVER_V4.to_string().into());
        // A port for which a capability is needed.
        proxy_config.insert("more_ports".into(), vec![443].into());
        let mut config = deployment.client_config(0).clone();
        let state = deployment.folder().join("client-state").display().to_string();
        config.insert("state_dir".into(), state.into());

        let proxy = start(&deployment, topology.proxy(), "proxy", &proxy_config, &granted(PROXY));
        let ready = hear(&told);
        assert!(ready.contains("READY=1\nSTATUS=on [::]:51900, 443: 0 of 1 peer"), "{ready}");
        let client = start(&deployment, topology.client(), "client", &config, &granted(CLIENT));
        let mut client = Reported { process: client, proxy };
        let is_up = || {
            let status = deployment.client_status(0).unwrap_or_default();
            status["tunnels"][0]["state"] == "up"
        };
        client.process.wait_until("the tunnel", PATIENCE, is_up).unwrap();
        for target in [SERVER_V4.into(), SERVER_V6.into()] {
            let pinged = Ping::new(target, 5).run(topology.client()).unwrap();
            assert_eq!(pinged.lost, 0, "{target}: {pinged:?}\n{}", client.logs());
        }
        let resolv_conf =
            || std::fs::read_to_string(deployment.folder().join("client/etc/resolv.conf"));
        let servers = || resolv_conf().unwrap().contains(&format!("nameserver {SERVER_V4}\n"));
        client.process.wait_until("the name server", PATIENCE, servers).unwrap();
        let status = deployment.client_status(0).unwrap();
        assert_eq!(status["daemon"]["warnings"].as_array().unwrap().len(), 0, "{status:#}");
        // As NetworkManager writes it in another network.
        let etc = deployment.folder().join("client/etc");
        let other = BEFORE.replace("10.1", "20.1");
        std::fs::write(etc.join("resolv.conf.new"), &other).unwrap();
        std::fs::rename(etc.join("resolv.conf.new"), etc.join("resolv.conf")).unwrap();
        client.process.wait_until("the name server again", PATIENCE, servers).unwrap();
        // The supervisor hears from both loops that they turn, and how things are.
        let mut heard = Vec::new();
        while heard.iter().filter(|told: &&String| told.contains("WATCHDOG=1")).count() < 20 {
            heard.push(hear(&told));
        }
        let has = |text: &str| heard.iter().any(|told| told.contains(text));
        assert!(has("STATUS=up over 2 of 2 links"), "{heard:?}");
        assert!(has("1 of 1 peer connected"), "{heard:?}");

        assert!(client.process.stop(PATIENCE).unwrap().success(), "{}", client.logs());
        assert_eq!(resolv_conf().unwrap(), other, "{}", client.logs());
        assert!(client.proxy.stop(PATIENCE).unwrap().success(), "{}", client.logs());
        drop(nobody);
    });
}

#[test]
fn without_any_one_of_its_capabilities_a_daemon_says_what_is_missing() {
    const NAME: &str = "units::without_any_one_of_its_capabilities_a_daemon_says_what_is_missing";
    lab_test(NAME, || {
        let Some((_nobody, program)) = another_user(NAME) else { return };
        let topology = Topology::build(&TopologyConfig::new(vec![WanConfig::default()])).unwrap();
        let mut deployment = Deployment::prepare(&topology, &program).unwrap();
        let mut proxy_config = deployment.proxy_config().clone();
        proxy_config.insert("more_ports".into(), vec![443].into());
        let client_config = deployment.client_config(0).clone();
        let cases = [
            ("proxy", "net_admin", "CAP_NET_ADMIN to make the TUN"),
            ("proxy", "net_bind_service", "CAP_NET_BIND_SERVICE to listen on a port below 1024"),
            ("client", "net_admin", "CAP_NET_ADMIN to make the TUN"),
        ];
        for (role, capability, said) in cases {
            let (unit, config, namespace) = match role {
                "proxy" => (PROXY, &proxy_config, topology.proxy()),
                _ => (CLIENT, &client_config, topology.client()),
            };
            let granted = granted(unit);
            assert!(granted.contains(capability), "{granted}");
            let left = granted.replace(&format!(",+{capability}"), "");
            let mut process = start(&deployment, namespace, role, config, &left);
            let ended = process.wait(PATIENCE).unwrap();
            assert!(!ended.success() && process.log().contains(said), "{}", process.log());
            let folder = deployment.folder().join(role);
            std::fs::remove_dir_all(&folder).unwrap();
        }

        // And without the right to write root's files the name servers cannot be set.
        proxy_config.insert("dns".into(), SERVER_V4.to_string().into());
        let mut client_config = client_config;
        let state = deployment.folder().join("client-state").display().to_string();
        client_config.insert("state_dir".into(), state.into());
        let _proxy = start(&deployment, topology.proxy(), "proxy", &proxy_config, &granted(PROXY));
        let left = granted(CLIENT).replace(",+dac_override", "");
        let mut client = start(&deployment, topology.client(), "client", &client_config, &left);
        let warned = || {
            let status = deployment.client_status(0).unwrap_or_default();
            status["daemon"]["warnings"].to_string().contains("resolv.conf")
        };
        client.wait_until("a warning", PATIENCE, warned).unwrap();
    });
}

/// Two daemons with what they said.
struct Reported {
    process: Process,
    proxy: Process,
}

impl Reported {
    fn logs(&self) -> String {
        format!("client:\n{}\nproxy:\n{}", self.process.log(), self.proxy.log())
    }
}

/// A place for another user's program; `None`, and the test counts as skipped, where there is none.
fn another_user(test: &str) -> Option<(Nobody, PathBuf)> {
    match Nobody::prepare() {
        Ok(nobody) => {
            let program = nobody.copy(Path::new(env!("CARGO_BIN_EXE_ropewalk")));
            let program = program.expect("the program is copied");
            Some((nobody, program))
        }
        Err(error) => {
            skipped(test, &error.to_string());
            None
        }
    }
}

/// The capabilities of a unit, as `setpriv` wants them.
fn granted(unit: &str) -> String {
    let of = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key));
        line.expect("the unit says which").to_owned()
    };
    let ambient = of("AmbientCapabilities=");
    assert_eq!(ambient, of("CapabilityBoundingSet="));
    assert!(unit.contains("\nUser=ropewalk\n") && unit.contains("\nType=notify\n"));
    let words = ambient.split_whitespace().map(|word| word.trim_start_matches("CAP_"));
    let added: Vec<String> = words.map(|word| format!(",+{}", word.to_lowercase())).collect();
    format!("-all{}", added.concat())
}

/// Whether all of /etc may be written, but for what is named.
fn writes_to_etc(unit: &str) -> bool {
    let paths = unit.lines().filter_map(|line| line.strip_prefix("ReadWritePaths="));
    paths.flat_map(str::split_whitespace).any(|path| path == "/etc")
}

/// Starts a daemon as its unit does, with these capabilities.
fn start(
    deployment: &Deployment,
    namespace: &Namespace,
    role: &str,
    config: &Table,
    capabilities: &str,
) -> Process {
    let folder = deployment.folder();
    let own = folder.join(role);
    std::fs::create_dir(&own).expect("a folder of its own");
    std::fs::write(own.join("resolv.conf"), BEFORE).expect("a resolv.conf");
    let readable = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(own.join("resolv.conf"), readable).expect("readable by all");
    // Everything else belongs to the service's user.
    let mut everything = Command::new("chown");
    everything.args(["-R", "65534:65534"]).arg(folder);
    assert!(everything.status().expect("chown runs").success());
    let mut root = Command::new("chown");
    root.arg("0:0").arg(own.join("resolv.conf"));
    assert!(root.status().expect("chown runs").success());
    let notify = format!("NOTIFY_SOCKET={}", folder.join("notify").display());
    let own = own.display().to_string();
    let unit = if role == "proxy" { PROXY } else { CLIENT };
    let etc = if writes_to_etc(unit) { "rw" } else { "ro" };
    let through = [
        "env",
        &notify,
        "WATCHDOG_USEC=900000",
        "unshare",
        "--mount",
        "sh",
        "-c",
        AS_SERVICE,
        "sh",
        &own,
        etc,
        capabilities,
    ];
    let name = if role == "client" { "client0" } else { role };
    let started = deployment.start_through(&through, namespace, role, name, config);
    started.expect("it can be started")
}

fn hear(told: &UnixDatagram) -> String {
    let mut buffer = [0; 1024];
    loop {
        match told.recv(&mut buffer) {
            // A child of another test ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            heard => {
                let length = heard.expect("the supervisor hears something");
                return String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
        }
    }
}
