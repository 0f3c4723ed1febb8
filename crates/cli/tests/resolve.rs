//! A proxy that is given by its name: found before there is a tunnel, and looked for beside the tunnel
//! when it has gone silent.

#![cfg(target_os = "linux")]

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4, public_v4};
use ropewalk_netlab::deployment::{CLIENT_TUN, Deployment, PROXY_PORT};
use ropewalk_netlab::dns::{NameServer, TYPE_A, TYPE_AAAA};
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};

/// Longer than the proxy may be silent (10 s) before it is looked for, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

const NAME: &str = "proxy.lab.test";

/// Gives the program name servers of its own: files for /etc/resolv.conf and /etc/nsswitch.conf, then the
/// program. (Another source of names than DNS would ask elsewhere.)
const WITH_NAME_SERVERS: &str = "mount --make-rprivate /; mount --bind \"$1\" /etc/resolv.conf
    if test -e /etc/nsswitch.conf; then mount --bind \"$2\" /etc/nsswitch.conf; fi
    shift 2; exec \"$@\"";

#[test]
fn a_proxys_name_is_looked_up_before_the_tunnel_and_past_it() {
    lab_test("a_proxys_name_is_looked_up_before_the_tunnel_and_past_it", || {
        let topology =
            Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap();
        let addresses: Vec<IpAddr> = vec![PROXY_V4.into(), PROXY_V6.into()];
        let names = topology
            .server()
            .run(|| NameServer::serve(UdpSocket::bind((SERVER_V4, 53)).unwrap(), NAME, addresses))
            .unwrap()
            .unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
        let mut deployment = Deployment::prepare(&topology, program).unwrap();
        deployment.start_proxy(&topology).unwrap();

        let config = deployment.client_config(0);
        config["proxy"]["address"] = format!("{NAME}:{PROXY_PORT}").into();
        let config = config.clone();
        let file = |name: &str, text: &str| {
            let path = deployment.folder().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let servers = file("resolv.conf", &format!("nameserver {SERVER_V4}\n"));
        let sources = file("nsswitch.conf", "hosts: files dns\n");
        let through =
            ["unshare", "--mount", "sh", "-ec", WITH_NAME_SERVERS, "sh", &servers, &sources];
        let mut client = deployment
            .start_through(&through, topology.client(), "client", "client0", &config)
            .unwrap();
        let is_up = |deployment: &Deployment| {
            deployment.client_status(0).is_ok_and(|status| status["tunnels"][0]["state"] == "up")
        };
        client.wait_until("the tunnel", PATIENCE, || is_up(&deployment)).unwrap();
        let log = client.log();
        for address in [format!("{PROXY_V4}:{PROXY_PORT}"), format!("[{PROXY_V6}]:{PROXY_PORT}")] {
            assert!(log.contains(&address), "{address} is missing in\n{log}");
        }
        let first = names.asked();
        for kind in [TYPE_A, TYPE_AAAA] {
            assert!(first.iter().any(|asked| asked.kind == kind), "{kind}: {first:?}");
        }

        // From now on the name server itself is reached through the tunnel, which then dies.
        let way = || {
            let server = SERVER_V4.to_string();
            topology.client().tool("ip", &["route", "get", &server]).unwrap()
        };
        assert!(way().contains(CLIENT_TUN), "{}", way());
        deployment.stop_proxy().unwrap();
        client
            .wait_until("another look-up", PATIENCE, || names.asked().len() > first.len())
            .unwrap();
        let outside = [0, 1].map(|wan| IpAddr::from(public_v4(wan, 0)));
        for asked in names.asked() {
            assert!(outside.contains(&asked.from.ip()), "{asked:?}");
        }
        client
            .wait_until("the way into the tunnel", PATIENCE, || way().contains(CLIENT_TUN))
            .unwrap();

        deployment.start_proxy(&topology).unwrap();
        client.wait_until("the tunnel again", PATIENCE, || is_up(&deployment)).unwrap();
    });
}
