//! What goes around the tunnel by domain and by application, with the real program: learned from the answers of a name server,
//! changed while the client runs, and gone at its end and after a kill.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use ropewalk_client::split::cgroups::Tree;
use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::dns::NameServer;
use ropewalk_netlab::privilege::{lab_test, lacking};
use ropewalk_netlab::process::Process;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::tool;

use super::machine::{PATIENCE, download, leaks, leaks_at_rest, stage, state, urls, watch};
use super::names::Machine;

const BYTES: u64 = 100_000;
const NAME: &str = "www.lab.test";

/// Where this machine's programs ask for names while domains are chosen.
const FORWARDER: &str = "nameserver 127.82.87.53\n";

/// What the program says at the client's socket.
fn ropewalk(stage: &mut Stage, words: &[&str]) -> String {
    let socket = stage.deployment().folder().join("client0.sock").display().to_string();
    let all = [words, &["--socket", &socket]].concat();
    tool::run(env!("CARGO_BIN_EXE_ropewalk"), &all).unwrap()
}

/// The addresses of the name, as this machine's programs are told.
fn look_up(stage: &Stage, machine: &Machine) -> String {
    let ask = [&machine.through()[1..], &["getent", "ahostsv4", NAME]].concat();
    stage.topology().client().tool("unshare", &ask).unwrap()
}

fn start(stage: &mut Stage, machine: &Machine) -> Process {
    let (deployment, topology) = stage.split();
    let mut client = machine.start(deployment, topology);
    let is_up = || deployment.client_status(0).is_ok_and(|s| s["tunnels"][0]["state"] == "up");
    client.wait_until("the tunnel", PATIENCE, is_up).unwrap();
    client
}

/// Whether a download leaves beside the tunnel.
fn leaves(stage: &Stage, url: &str) -> bool {
    let before = leaks(stage);
    download(stage.topology().client(), url, BYTES).unwrap();
    leaks(stage) > before
}

#[test]
fn a_domain_goes_around_the_tunnel_once_it_was_looked_up_and_as_long_as_it_is_excluded() {
    lab_test(
        "split::a_domain_goes_around_the_tunnel_once_it_was_looked_up_and_as_long_as_it_is_excluded",
        || {
            let mut stage = stage(20, "[tun]\nexclude = [\"domain:Lab.TEST.\"]");
            let url = urls(&stage, BYTES).into_iter().next().unwrap();
            let addresses: Vec<IpAddr> = vec![SERVER_V4.into()];
            let names = stage
                .topology()
                .server()
                .run(|| {
                    NameServer::serve(UdpSocket::bind((SERVER_V4, 53)).unwrap(), NAME, addresses)
                })
                .unwrap()
                .unwrap();
            stage.deployment().proxy_config().insert("dns".into(), SERVER_V4.to_string().into());
            stage.start_proxy().unwrap();
            let machine = Machine::new(stage.deployment().folder(), false);
            let before = format!("{}{}", state(stage.topology().client()), machine.resolv_conf());
            watch(&stage);

            let mut client = start(&mut stage, &machine);
            let is_forwarded = || machine.resolv_conf().contains(FORWARDER);
            client.wait_until("the forwarder", PATIENCE, is_forwarded).unwrap();
            assert!(!leaves(&stage, &url), "before it was looked up");
            assert!(look_up(&stage, &machine).contains(&SERVER_V4.to_string()));
            assert!(!names.asked().is_empty());
            assert!(leaves(&stage, &url), "after it was looked up");
            let shown = stage.deployment().client_status(0).unwrap();
            let rule = &shown["rules"][0];
            assert_eq!(
                (rule["rule"].as_str(), rule["side"].as_str(), rule["addresses"].as_u64()),
                (Some("domain:lab.test"), Some("outside"), Some(1))
            );
            assert!(rule["packets"].as_u64() > Some(0), "{rule}");

            // Taken out, and in again as another domain, while it runs.
            let told = ropewalk(&mut stage, &["set", "exclude", "--remove", "domain:lab.test"]);
            assert!(told.contains("exclude    none"), "{told}");
            let is_direct = || machine.resolv_conf().contains(&format!("nameserver {SERVER_V4}\n"));
            client.wait_until("the tunnel's own name server", PATIENCE, is_direct).unwrap();
            assert!(!leaves(&stage, &url), "no more");
            ropewalk(&mut stage, &["set", "exclude", "--add", "domain:www.lab.test"]);
            client.wait_until("the forwarder again", PATIENCE, is_forwarded).unwrap();
            look_up(&stage, &machine);
            assert!(leaves(&stage, &url), "again");
            // What the file says holds again after a reload.
            let reloaded = ropewalk(&mut stage, &["reload"]);
            assert!(reloaded.contains("tun.exclude: [domain:www.lab.test] -> [domain:lab.test]"));

            client.kill();
            let left = state(stage.topology().client());
            assert!(left.contains("ropewalk_split"), "{left}");
            let mut client = start(&mut stage, &machine);
            client.wait_until("the forwarder after a kill", PATIENCE, is_forwarded).unwrap();
            client.stop(PATIENCE).unwrap();
            let after = format!("{}{}", state(stage.topology().client()), machine.resolv_conf());
            assert_eq!(after, before, "{}", client.log());
        },
    );
}

#[test]
fn an_application_is_started_around_the_tunnel_from_its_first_packet_on() {
    let test = "split::an_application_is_started_around_the_tunnel_from_its_first_packet_on";
    lab_test(test, || {
        let writable = Tree::mounted().map(|tree| tree.root().join("ropewalk.slice"));
        let made = writable.as_deref().map(std::fs::create_dir_all);
        if !matches!(made, Some(Ok(()))) && !Path::new("/run/systemd/system").exists() {
            return lacking(test, "no control group can be made; run as root");
        }
        let mut stage = stage(20, "");
        let url = urls(&stage, BYTES).into_iter().next().unwrap();
        stage.start_proxy().unwrap();
        let machine = Machine::new(stage.deployment().folder(), false);
        watch(&stage);
        let mut client = start(&mut stage, &machine);
        assert!(!leaves(&stage, &url));

        let socket = stage.deployment().folder().join("client0.sock").display().to_string();
        let program = env!("CARGO_BIN_EXE_ropewalk");
        let fetch = |side: &str, name: &str| {
            let begin = ["run", side, "--name", name, "--socket", &socket, "--"];
            // Forked once, as a browser does.
            let script = format!("curl -sf -o /dev/null '{url}' & wait $!");
            let words = [&begin[..], &["sh", "-c", &script]].concat();
            stage.topology().client().tool(program, &words)
        };
        let begun = leaks(&stage);
        fetch("--outside", "fetch").unwrap();
        let after = leaks_at_rest(&stage);
        assert!(after > begun, "it went through the tunnel");
        fetch("--inside", "other").unwrap();
        assert_eq!(leaks_at_rest(&stage), after, "it went around the tunnel");
        let refused = fetch("--inside", "fetch").unwrap_err().to_string();
        assert!(refused.contains("app:fetch stands in `exclude`"), "{refused}");
        let told = ropewalk(&mut stage, &["set", "exclude"]);
        assert!(told.contains("app:fetch around the tunnel: "), "{told}");
        client.stop(PATIENCE).unwrap();
        // What is empty goes, and with it the folder around it.
        for folder in writable.iter().flat_map(|slice| std::fs::read_dir(slice).unwrap()) {
            let _ = std::fs::remove_dir(folder.unwrap().path());
        }
        writable.iter().for_each(|slice| drop(std::fs::remove_dir(slice)));
    });
}
