//! Name servers that the proxy hands out: asked through the tunnel, and gone from the system's configuration afterwards.

use std::fs::Permissions;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk_netlab::address::{PROXY_V4, SERVER_V4, public_v4};
use ropewalk_netlab::deployment::{Deployment, PROXY_PORT};
use ropewalk_netlab::dns::NameServer;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::process::Process;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

const NAME: &str = "www.lab.test";
const ADDRESS: [u8; 4] = [192, 0, 2, 99];

/// What stood in `resolv.conf` before.
const BEFORE: &str = "# of the café's network\nnameserver 192.168.10.1\nsearch lan\n";

/// Runs a program with this folder as its /etc; with a second word that file alone is mounted (as containers do), so that
/// it cannot be replaced.
const WITH_ETC: &str = "mount --make-rprivate /; mount --bind \"$1\" /etc
    if test -n \"$2\"; then mount --bind \"$2\" /etc/resolv.conf; fi
    shift 2; exec \"$@\"";

/// A laptop with its own /etc and its own state folder.
pub(crate) struct Machine {
    pub(crate) etc: PathBuf,
    /// The file that is mounted alone, or nothing.
    alone: String,
    pub(crate) state: PathBuf,
}

impl Machine {
    pub(crate) fn new(folder: &Path, alone: bool) -> Self {
        let etc = folder.join(format!("etc-{alone}"));
        std::fs::create_dir(&etc).unwrap();
        for file in ["passwd", "group", "hosts"] {
            let _ = std::fs::copy(Path::new("/etc").join(file), etc.join(file));
        }
        std::fs::write(etc.join("nsswitch.conf"), "hosts: files dns\n").unwrap();
        std::fs::write(etc.join("resolv.conf"), BEFORE).unwrap();
        let file = folder.join("mounted.conf");
        std::fs::write(&file, BEFORE).unwrap();
        let state = folder.join(format!("state-{alone}"));
        let alone = if alone { file.display().to_string() } else { String::new() };
        Self { etc, alone, state }
    }

    pub(crate) fn through(&self) -> Vec<&str> {
        let etc = self.etc.to_str().unwrap();
        vec!["unshare", "--mount", "sh", "-ec", WITH_ETC, "sh", etc, &self.alone]
    }

    /// The names of the files in the folder of what is kept.
    pub(crate) fn kept(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.state).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    pub(crate) fn resolv_conf(&self) -> String {
        let file = if self.alone.is_empty() {
            self.etc.join("resolv.conf")
        } else {
            PathBuf::from(&self.alone)
        };
        std::fs::read_to_string(file).unwrap()
    }

    pub(crate) fn start(&self, deployment: &mut Deployment, topology: &Topology) -> Process {
        let mut config = deployment.client_config(0).clone();
        config.insert("state_dir".into(), self.state.display().to_string().into());
        let through = self.through();
        deployment.start_through(&through, topology.client(), "client", "client0", &config).unwrap()
    }
}

#[test]
fn names_are_looked_up_through_the_tunnel_and_the_system_is_as_before_at_the_end_and_after_a_kill()
{
    lab_test(
        "names::names_are_looked_up_through_the_tunnel_and_the_system_is_as_before_at_the_end_and_after_a_kill",
        || {
            let topology =
                Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap();
            let addresses: Vec<IpAddr> = vec![ADDRESS.into()];
            let names = topology
                .server()
                .run(|| {
                    NameServer::serve(UdpSocket::bind((SERVER_V4, 53)).unwrap(), NAME, addresses)
                })
                .unwrap()
                .unwrap();
            let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
            let mut deployment = Deployment::prepare(&topology, program).unwrap();
            deployment.proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
            deployment.start_proxy(&topology).unwrap();

            for alone in [false, true] {
                let machine = Machine::new(deployment.folder(), alone);
                let mut client = machine.start(&mut deployment, &topology);
                let is_set =
                    || machine.resolv_conf().contains(&format!("nameserver {SERVER_V4}\n"));
                client.wait_until("the tunnel's name server", PATIENCE, is_set).unwrap();

                let ask = [&machine.through()[1..], &["getent", "ahostsv4", NAME]].concat();
                let answer = topology.client().tool("unshare", &ask).unwrap();
                assert!(answer.contains("192.0.2.99"), "{answer}");
                let asked = names.asked();
                assert!(
                    !asked.is_empty() && asked.iter().all(|asked| asked.from.ip() == PROXY_V4),
                    "{asked:?}"
                );
                client.stop(PATIENCE).unwrap();
                assert_eq!(machine.resolv_conf(), BEFORE, "{}", client.log());
                assert_eq!(machine.kept(), ["history.ring"]);

                // Killed, it stays; the next start puts it back before it asks for anything.
                let mut client = machine.start(&mut deployment, &topology);
                client.wait_until("the tunnel's name server again", PATIENCE, is_set).unwrap();
                client.kill();
                assert!(is_set());
                deployment.stop_proxy().unwrap();
                let mut client = machine.start(&mut deployment, &topology);
                let is_back = || machine.resolv_conf() == BEFORE;
                client.wait_until("what stood there", PATIENCE, is_back).unwrap();
                deployment.start_proxy(&topology).unwrap();

                // What another program writes meanwhile is what comes back.
                client.wait_until("the tunnel's name server", PATIENCE, is_set).unwrap();
                let edit = "nameserver 192.168.55.1\n";
                let file = if alone {
                    PathBuf::from(&machine.alone)
                } else {
                    machine.etc.join("resolv.conf")
                };
                std::fs::write(file, edit).unwrap();
                client.wait_until("the tunnel's name server once more", PATIENCE, is_set).unwrap();
                client.stop(PATIENCE).unwrap();
                assert_eq!(machine.resolv_conf(), edit);
            }
        },
    );
}

/// What systemd-resolved writes.
const STUB: &str = "# systemd-resolved\nnameserver 127.0.0.53\noptions edns0 trust-ad\n";

/// A `resolvectl` that writes down what it is told, and forgets nothing.
const RESOLVECTL: &str = "#!/bin/sh
    cd \"$(dirname \"$0\")\"; echo \"$*\" >> said
    case \"$#$1\" in
      2dns) echo \"Link 9 ($2): $(cat servers 2>/dev/null)\";;
      2revert) rm -f servers;;
      *dns) shift 2; echo \"$*\" > servers;;
    esac\n";

#[test]
fn where_names_are_looked_up_by_systemd_resolved_it_is_told_and_no_file_is_touched() {
    lab_test(
        "names::where_names_are_looked_up_by_systemd_resolved_it_is_told_and_no_file_is_touched",
        || {
            let topology =
                Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap();
            let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
            let mut deployment = Deployment::prepare(&topology, program).unwrap();
            deployment.proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
            deployment.start_proxy(&topology).unwrap();
            let machine = Machine::new(deployment.folder(), false);
            std::fs::write(machine.etc.join("resolv.conf"), STUB).unwrap();
            let tools = deployment.folder().join("tools");
            std::fs::create_dir(&tools).unwrap();
            std::fs::write(tools.join("resolvectl"), RESOLVECTL).unwrap();
            std::fs::set_permissions(tools.join("resolvectl"), Permissions::from_mode(0o755))
                .unwrap();
            let said = || std::fs::read_to_string(tools.join("said")).unwrap_or_default();

            let path = std::env::var("PATH").unwrap_or_default();
            let path = format!("PATH={}:{path}", tools.display());
            let through = [&["env", &path], &machine.through()[..]].concat();
            let mut config = deployment.client_config(0).clone();
            config.insert("state_dir".into(), machine.state.display().to_string().into());
            // What stands in for it is a script, which starts other programs.
            config.insert("sandbox".into(), false.into());
            let start = || {
                deployment
                    .start_through(&through, topology.client(), "client", "client0", &config)
                    .unwrap()
            };
            let told = format!("dns ropewalk0 {SERVER_V4}\n");
            for _ in 0..2 {
                let mut client = start();
                client
                    .wait_until("resolvectl to be told", PATIENCE, || said().contains(&told))
                    .unwrap();
                for line in ["domain ropewalk0 ~.\n", "default-route ropewalk0 yes\n"] {
                    assert!(said().contains(line), "{}", said());
                }
                assert_eq!(machine.resolv_conf(), STUB);
                client.stop(PATIENCE).unwrap();
                assert!(said().ends_with("revert ropewalk0\n"), "{}", said());
                assert_eq!(machine.resolv_conf(), STUB);
                std::fs::remove_file(tools.join("said")).unwrap();
            }
        },
    );
}

/// The proxy's name, which the user's own name server knows, and that on the proxy's inner address does not.
const PROXY_NAME: &str = "proxy.lab.test";

#[test]
fn the_proxy_is_looked_up_at_the_users_own_servers_past_tunnel_and_kill_switch() {
    lab_test(
        "names::the_proxy_is_looked_up_at_the_users_own_servers_past_tunnel_and_kill_switch",
        || {
            let topology =
                Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap();
            let own = topology
                .server()
                .run(|| {
                    let socket = UdpSocket::bind((SERVER_V4, 53)).unwrap();
                    NameServer::serve(socket, PROXY_NAME, vec![PROXY_V4.into()])
                })
                .unwrap()
                .unwrap();
            let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
            let mut deployment = Deployment::prepare(&topology, program).unwrap();
            let inside = "10.77.0.1";
            deployment.proxy_config().insert("dns".into(), inside.into());
            deployment.start_proxy(&topology).unwrap();
            let of_the_tunnel = topology
                .proxy()
                .run(|| {
                    let socket = UdpSocket::bind((inside, 53)).unwrap();
                    NameServer::serve(socket, NAME, vec![ADDRESS.into()])
                })
                .unwrap()
                .unwrap();
            let machine = Machine::new(deployment.folder(), false);
            let before = format!("nameserver {SERVER_V4}\n");
            std::fs::write(machine.etc.join("resolv.conf"), &before).unwrap();
            let config = deployment.client_config(0);
            config.insert("kill_switch".into(), true.into());
            config["proxy"]["address"] = format!("{PROXY_NAME}:{PROXY_PORT}").into();

            let mut client = machine.start(&mut deployment, &topology);
            let is_set = || machine.resolv_conf().contains(&format!("nameserver {inside}\n"));
            client.wait_until("the tunnel's name server", PATIENCE, is_set).unwrap();
            let ask = [&machine.through()[1..], &["getent", "ahostsv4", NAME]].concat();
            let answer = topology.client().tool("unshare", &ask).unwrap();
            assert!(answer.contains("192.0.2.99"), "{answer}");
            assert!(
                of_the_tunnel
                    .asked()
                    .iter()
                    .all(|asked| asked.from.ip().to_string() == "10.77.0.2")
            );
            let first = own.asked().len();

            // Silent for 10 s: the tunnel's own server cannot be asked where the proxy is.
            deployment.stop_proxy().unwrap();
            let is_asked = || own.asked().len() > first;
            client.wait_until("another look-up", PATIENCE, is_asked).unwrap();
            let outside = [0, 1].map(|wan| IpAddr::from(public_v4(wan, 0)));
            for asked in own.asked() {
                assert!(outside.contains(&asked.from.ip()), "{asked:?}");
            }
            client.wait_until("the tunnel's name server again", PATIENCE, is_set).unwrap();
            deployment.start_proxy(&topology).unwrap();
            let is_up =
                || deployment.client_status(0).is_ok_and(|s| s["tunnels"][0]["state"] == "up");
            client.wait_until("the tunnel again", PATIENCE, is_up).unwrap();
            client.stop(PATIENCE).unwrap();
            assert_eq!(machine.resolv_conf(), before);
        },
    );
}
