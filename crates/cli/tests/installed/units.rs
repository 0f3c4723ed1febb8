//! What the systemd units give the daemons is enough, and no more than they need: an own user, a few capabilities, and a
//! supervisor that hears of readiness and life.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ropewalk_netlab::address::{SERVER_V4, SERVER_V6};
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::{lab_test, skipped};
use ropewalk_netlab::process::Process;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use ropewalk_netlab::unprivileged::Nobody;
use toml::Table;

const CLIENT: &str = include_str!("../../../../configs/systemd/ropewalk-client.service");
const PROXY: &str = include_str!("../../../../configs/systemd/ropewalk-proxy.service");
const HELPER: &str = include_str!("../../../../configs/systemd/ropewalk-resolv-conf@.service");

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// The user of the units here: `nobody`.
const USER: &str = "65534";

/// What stood in `resolv.conf` before.
const BEFORE: &str = "nameserver 192.168.10.1\n";

/// A service: its own folders of runtime and state, a TUN that everybody may open (as most systems have it), root's /etc in
/// which `resolv.conf` is a link; all of it read-only but what follows, as `ProtectSystem=strict` has it; then another user
/// with these capabilities. `$1` is a folder of its own, `$2` what may be written, `$3` the user, `$4` the capabilities.
const AS_SERVICE: &str = r#"
set -e
mount --make-rprivate /
mkdir -p "$1/devices" && mount -t tmpfs tmpfs "$1/devices"
mknod "$1/devices/tun" c 10 200 && chmod 666 "$1/devices/tun" && mount --bind "$1/devices/tun" /dev/net/tun
if ! test -d "$1/etc"; then
    mkdir -p "$1/etc/cron.d" "$1/etc/sudoers.d" "$1/lib/ropewalk-resolv-conf"
    mkdir "$1/etc/ropewalk" "$1/run/ropewalk"
    install -d -o 65534 -g 65534 "$1/etc/ropewalk/client" "$1/etc/ropewalk/proxy" \
        "$1/run/ropewalk/client" "$1/run/ropewalk/proxy" "$1/lib/ropewalk-client" "$1/lib/ropewalk"
    cp /etc/passwd /etc/group "$1/etc" && ln -s "$1/resolv.conf" "$1/etc/resolv.conf"
fi
mount --bind "$1/etc" /etc && mount --bind "$1/run" /run && mount --bind "$1/lib" /var/lib
for path in $2; do mount --bind "$path" "$path"; done
while read -r _ _ _ _ at _; do
    case " $2 " in *" $at "*) continue ;; esac
    case "$at" in /proc* | /sys* | /dev* | "$1/devices") continue ;; esac
    # What another mount hides is not there.
    mount -o remount,bind,ro "$at" 2>/dev/null || test ! -e "$at"
done </proc/self/mountinfo
user=$3 caps=$4
shift 4
exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --inh-caps "$caps" --ambient-caps "$caps" \
    --bounding-set "$caps" "$@"
"#;

/// What a service that was taken over would write to become root.
const GRASP: &str = r#"
for file in /etc/ld.so.preload /etc/cron.d/x /etc/sudoers.d/x /etc/passwd /etc/x /root/.bashrc /root/x \
    /usr/local/bin/x /var/lib/ropewalk-resolv-conf/resolv.conf.json /run/ropewalk-resolv-conf.sock /etc/ropewalk/x \
    /etc/ropewalk/proxy/x /run/ropewalk/x /run/ropewalk/proxy/x /var/lib/ropewalk/x; do
    if echo x >>"$file"; then echo "wrote $file"; fi
done 2>/dev/null
if ln -sf /etc/ropewalk/client/x /etc/resolv.conf 2>/dev/null; then echo "replaced resolv.conf"; fi
if mv /etc/cron.d /etc/ropewalk/client/ 2>/dev/null; then echo "moved cron.d"; fi
if touch /etc/ropewalk/client/own; then echo "its own folder"; fi
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
        prepare(&deployment, "client");
        let helpers = Helpers::listen(&deployment, &program);
        let client = run(&deployment, topology.client(), "client", &config, &granted(CLIENT));
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
        // From here on it does not read any more, and its socket takes ten messages: that keeps nobody from ending.
        let has = |text: &str| heard.iter().any(|told| told.contains(text));
        assert!(has("STATUS=up over 2 of 2 links"), "{heard:?}");
        assert!(has("1 of 1 peer connected"), "{heard:?}");

        // What runs as the client runs writes nothing of root's.
        let grasped = grasp(&deployment, &writable(&deployment, CLIENT), &granted(CLIENT));
        assert_eq!(grasped, "its own folder\n");
        assert!(servers() && !etc.join("ld.so.preload").exists());
        assert_eq!(std::fs::read_dir(etc.join("cron.d")).unwrap().count(), 0);

        // Killed, it leaves nothing either; the next one sets them again.
        client.process.kill();
        let restored = || resolv_conf().unwrap() == other;
        client.proxy.wait_until("what stood there before", PATIENCE, restored).unwrap();
        client.process = run(&deployment, topology.client(), "client", &config, &granted(CLIENT));
        client.process.wait_until("the name server once more", PATIENCE, servers).unwrap();
        fill(&told);

        assert!(client.process.stop(PATIENCE).unwrap().success(), "{}", client.logs());
        assert_eq!(resolv_conf().unwrap(), other, "{}", client.logs());
        let written = std::fs::symlink_metadata(etc.join("resolv.conf")).unwrap();
        assert_eq!((written.uid(), written.mode()), (0, 0o100_644));
        helpers.stop();
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

        // And without its helper the name servers cannot be set.
        proxy_config.insert("dns".into(), SERVER_V4.to_string().into());
        let mut client_config = client_config;
        let state = deployment.folder().join("client-state").display().to_string();
        client_config.insert("state_dir".into(), state.into());
        let _proxy = start(&deployment, topology.proxy(), "proxy", &proxy_config, &granted(PROXY));
        let granted = granted(CLIENT);
        let mut client = start(&deployment, topology.client(), "client", &client_config, &granted);
        let warned = || {
            let status = deployment.client_status(0).unwrap_or_default();
            status["daemon"]["warnings"].to_string().contains("resolv.conf")
        };
        client.wait_until("a warning", PATIENCE, warned).unwrap();
    });
}

#[test]
fn with_the_rights_of_older_units_a_client_could_write_what_makes_it_root() {
    const NAME: &str =
        "units::with_the_rights_of_older_units_a_client_could_write_what_makes_it_root";
    lab_test(NAME, || {
        let Some((_nobody, program)) = another_user(NAME) else { return };
        let topology = Topology::build(&TopologyConfig::new(vec![WanConfig::default()])).unwrap();
        let deployment = Deployment::prepare(&topology, &program).unwrap();
        prepare(&deployment, "client");
        let writable = format!("{} /etc", writable(&deployment, CLIENT));
        let grasped = grasp(&deployment, &writable, "-all,+net_admin,+dac_override");
        for what in ["wrote /etc/ld.so.preload", "wrote /etc/cron.d/x", "replaced resolv.conf"] {
            assert!(grasped.contains(what), "{grasped}");
        }
    });
}

/// What [`GRASP`] says it could do, as a service of the client's user.
fn grasp(deployment: &Deployment, writable: &str, capabilities: &str) -> String {
    let own = deployment.folder().join("client").display().to_string();
    let mut grasp = Command::new("unshare");
    grasp.args(["--mount", "sh", "-c", AS_SERVICE, "sh", &own, writable, USER, capabilities]);
    let said = grasp.args(["sh", "-c", GRASP]).output().expect("unshare runs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    String::from_utf8(said.stdout).expect("text")
}

/// The client's `ropewalk-resolv-conf.socket`, in the place of systemd: a helper of root's for each connection.
struct Helpers {
    ends: Arc<AtomicBool>,
    socket: PathBuf,
    thread: JoinHandle<()>,
}

impl Helpers {
    fn listen(deployment: &Deployment, program: &Path) -> Self {
        let own = deployment.folder().join("client");
        let socket = own.join("run/ropewalk-resolv-conf.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let user = USER.parse().expect("a number");
        std::os::unix::fs::chown(&socket, Some(user), Some(user)).expect("it is given away");
        std::fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("and closed");
        let capabilities = HELPER.contains("\nCapabilityBoundingSet=\n");
        assert!(capabilities && HELPER.contains("\nStandardInput=socket\n"));
        assert!(HELPER.contains("\nExecStart=/usr/bin/ropewalk resolv-conf\n"));
        let writable = writable(deployment, HELPER);
        let (own, program) = (own.display().to_string(), program.display().to_string());
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let serve = move || {
            let mut helpers = Vec::new();
            while let Ok((client, _)) = listener.accept() {
                if ended.load(Ordering::SeqCst) {
                    break;
                }
                let mut helper = Command::new("unshare");
                helper
                    .args(["--mount", "sh", "-c", AS_SERVICE, "sh", &own, &writable, "0", "-all"]);
                helper.args([&program, "resolv-conf"]).stdin(OwnedFd::from(client));
                helpers.push(helper.spawn().expect("a helper starts"));
            }
            for mut helper in helpers {
                assert!(helper.wait().expect("it is a child").success());
            }
        };
        Self { ends, socket, thread: thread::spawn(serve) }
    }

    /// Each has ended, with its clients.
    fn stop(self) {
        self.ends.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.socket).expect("it listens"));
        self.thread.join().expect("every helper did its work");
    }
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
    let user = if unit == CLIENT { "ropewalk-client" } else { "ropewalk-proxy" };
    let is_its_own = unit.contains(&format!("\nUser={user}\nGroup={user}\n"));
    assert!(is_its_own && unit.contains("\nSupplementaryGroups=ropewalk\n"));
    assert!(unit.contains("\nType=notify\n"));
    let words = ambient.split_whitespace().map(|word| word.trim_start_matches("CAP_"));
    let added: Vec<String> = words.map(|word| format!(",+{}", word.to_lowercase())).collect();
    format!("-all{}", added.concat())
}

/// What a unit lets its service write, and the folder of these tests, which stands for its /tmp.
fn writable(deployment: &Deployment, unit: &str) -> String {
    assert!(unit.contains("\nProtectSystem=strict\n"));
    let of = |key: &str, folder: &str| -> Vec<String> {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key));
        lines.flat_map(str::split_whitespace).map(|path| format!("{folder}{path}")).collect()
    };
    let mut paths = of("ReadWritePaths=", "");
    paths.extend(of("RuntimeDirectory=", "/run/"));
    paths.extend(of("StateDirectory=", "/var/lib/"));
    paths.push(deployment.folder().display().to_string());
    paths.join(" ")
}

/// A folder of its own for a service.
fn prepare(deployment: &Deployment, role: &str) {
    let folder = deployment.folder();
    let own = folder.join(role);
    for made in [own.clone(), own.join("run"), own.join("lib")] {
        std::fs::create_dir(made).expect("a folder of its own");
    }
    std::fs::write(own.join("resolv.conf"), BEFORE).expect("a resolv.conf");
    let readable = Permissions::from_mode(0o644);
    std::fs::set_permissions(own.join("resolv.conf"), readable).expect("readable by all");
    // Everything else belongs to the service's user.
    let mut everything = Command::new("chown");
    everything.args(["-R", "65534:65534"]).arg(folder);
    assert!(everything.status().expect("chown runs").success());
    let mut root = Command::new("chown");
    root.arg("0:0").args(["resolv.conf", "run", "lib"].map(|name| own.join(name)));
    assert!(root.status().expect("chown runs").success());
}

/// Starts a daemon as its unit does, with these capabilities.
fn start(
    deployment: &Deployment,
    namespace: &Namespace,
    role: &str,
    config: &Table,
    capabilities: &str,
) -> Process {
    prepare(deployment, role);
    run(deployment, namespace, role, config, capabilities)
}

/// The same in a folder that is there.
fn run(
    deployment: &Deployment,
    namespace: &Namespace,
    role: &str,
    config: &Table,
    capabilities: &str,
) -> Process {
    let folder = deployment.folder();
    let notify = format!("NOTIFY_SOCKET={}", folder.join("notify").display());
    let own = folder.join(role).display().to_string();
    let writable = writable(deployment, if role == "proxy" { PROXY } else { CLIENT });
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
        &writable,
        USER,
        capabilities,
    ];
    let name = if role == "client" { "client0" } else { role };
    let started = deployment.start_through(&through, namespace, role, name, config);
    started.expect("it can be started")
}

/// Sends to the supervisor's socket until it takes no more.
fn fill(told: &UnixDatagram) {
    let sender = UnixDatagram::unbound().expect("a socket");
    sender.set_nonblocking(true).expect("a socket");
    let address = told.local_addr().expect("it is bound");
    let path = address.as_pathname().expect("it has a path");
    while sender.send_to(b"WATCHDOG=1", path).is_ok() {}
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
