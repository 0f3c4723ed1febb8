//! The kill switch: whatever becomes of the client, nothing leaves outside the tunnel; and after an orderly end everything
//! is as before.

use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ropewalk_netlab::address::{SERVER_V4, gateway_v4, provider_v4, provider_v6};
use ropewalk_netlab::error::LabError;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::process::bound_to_parent;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::tool;
use rustix::process::Signal;

use super::machine::{
    PATIENCE, download, guest, leaks, stage, start, state, try_to_leave, urls, wait_up, watch,
};

const BYTES: u64 = 300_000;

/// The providers' own networks are excluded.
const CONFIG: &str = "kill_switch = true\nshare = [\"ap\"]
    [tun]\nexclude = [\"198.18.0.0/15\", \"2001:db8:18::/48\"]";

/// Whether the router on the first link, and the excluded network behind it, answer in both families, be it by a refusal.
fn reaches_what_is_near(laptop: &Namespace) -> bool {
    let near: [IpAddr; 3] = [gateway_v4(0, 0).into(), provider_v4(0).into(), provider_v6(0).into()];
    let connect = || {
        near.iter().all(|address| {
            let refused = TcpStream::connect_timeout(&(*address, 81).into(), PATIENCE).unwrap_err();
            refused.kind() == ErrorKind::ConnectionRefused
        })
    };
    laptop.run(connect).unwrap()
}

#[test]
fn nothing_leaves_outside_the_tunnel_until_an_orderly_end_and_then_all_is_as_before() {
    lab_test(
        "lock::nothing_leaves_outside_the_tunnel_until_an_orderly_end_and_then_all_is_as_before",
        || {
            let mut stage = stage(20, CONFIG);
            let guest = guest(stage.topology().client());
            let before = state(stage.topology().client());
            let urls = urls(&stage, BYTES);
            for url in &urls {
                download(stage.topology().client(), url, BYTES).unwrap();
            }
            // What these have said last is still under way.
            thread::sleep(Duration::from_millis(500));
            watch(&stage);
            stage.start_proxy().unwrap();
            start(&mut stage);
            for namespace in [stage.topology().client(), &guest] {
                for url in &urls {
                    download(namespace, url, BYTES).unwrap();
                }
            }
            assert!(reaches_what_is_near(stage.topology().client()));
            assert_eq!(leaks(&stage), 0, "while the tunnel is up");

            // The proxy falls silent: still nothing.
            stage.deployment().stop_proxy().unwrap();
            try_to_leave(&stage, stage.topology().client(), Some("wan0"));
            stage.start_proxy().unwrap();
            stage.deployment().wait_up(0, 2).unwrap();

            stage.deployment().client(0).unwrap().kill();
            assert!(!state(stage.topology().client()).contains("ropewalk0:"), "the TUN stayed");
            for (namespace, interface) in
                [(stage.topology().client(), Some("wan0")), (&guest, None)]
            {
                try_to_leave(&stage, namespace, interface);
            }
            assert!(
                reaches_what_is_near(stage.topology().client()),
                "LAN or excluded networks are out of reach"
            );
            assert_eq!(leaks(&stage), 0, "after kill -9");

            // While the next one starts, too.
            let mut sending = stage.topology().client().spawn(send_without_end()).unwrap();
            start(&mut stage);
            thread::sleep(Duration::from_millis(500));
            for url in &urls {
                download(&guest, url, BYTES).unwrap();
            }
            assert_eq!(leaks(&stage), 0, "while the next client starts");
            sending.kill().unwrap();
            sending.wait().unwrap();

            stage.deployment().stop_client(0).unwrap();
            assert_eq!(state(stage.topology().client()), before);
            for url in &urls {
                download(stage.topology().client(), url, BYTES).unwrap();
            }
            assert!(leaks(&stage) > 0, "the watch sees nothing at all");

            // By hand after a crash, without another start.
            start(&mut stage);
            let refused = purge(&mut stage);
            assert!(refused.unwrap_err().to_string().contains("another ropewalk client runs"));
            stage.deployment().client(0).unwrap().kill();
            assert!(download(stage.topology().client(), &urls[0], BYTES).is_err());
            // What cannot be taken back keeps no kill switch in place.
            let refused = purge_through(&mut stage, READ_ONLY).unwrap_err().to_string();
            assert!(refused.contains("ip_forward"), "{refused}");
            let left = state(stage.topology().client());
            assert!(!left.contains("ropewalk_lock") && left.contains("ropewalk_client"), "{left}");
            download(stage.topology().client(), &urls[0], BYTES).unwrap();
            purge(&mut stage).unwrap();
            assert_eq!(state(stage.topology().client()), before);

            // Where the config was lost meanwhile, and where it is wrong.
            for broken in [None, Some("proxy = 7\n")] {
                start(&mut stage);
                stage.deployment().client(0).unwrap().kill();
                let config = stage.deployment().folder().join("client0.toml");
                match broken {
                    None => std::fs::remove_file(config).unwrap(),
                    Some(text) => std::fs::write(config, text).unwrap(),
                }
                purge(&mut stage).unwrap();
                assert_eq!(state(stage.topology().client()), before, "{broken:?}");
            }

            // And where the kill switch was switched off meanwhile.
            start(&mut stage);
            stage.deployment().client(0).unwrap().kill();
            stage.deployment().client_config(0)["kill_switch"] = false.into();
            start(&mut stage);
            stage.deployment().client(0).unwrap().kill();
            download(stage.topology().client(), &urls[0], BYTES).unwrap();
        },
    );
}

/// Sends a datagram to the server every 5 ms.
fn send_without_end() -> Command {
    let mut command = bound_to_parent("bash");
    let script =
        format!("while :; do echo out > /dev/udp/{SERVER_V4}/9; sleep 0.005; done 2>/dev/null");
    command.args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// What `ropewalk client --purge` says.
fn purge(stage: &mut Stage) -> Result<String, LabError> {
    purge_through(stage, "exec \"$@\"")
}

/// Runs a program that can switch no setting of the kernel.
const READ_ONLY: &str = "mount --make-rprivate /; mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; exec \"$@\"";

fn purge_through(stage: &mut Stage, script: &str) -> Result<String, LabError> {
    let config = stage.deployment().folder().join("client0.toml").display().to_string();
    let program = env!("CARGO_BIN_EXE_ropewalk");
    let purge = [program, "client", "--purge", "--config", &config];
    let words = [&["--mount", "sh", "-ec", script, "sh"][..], &purge].concat();
    stage.topology().client().run(|| tool::run("unshare", &words)).unwrap()
}

/// Whether the kill switch stands.
fn is_locked(stage: &Stage) -> bool {
    state(stage.topology().client()).contains("ropewalk_lock")
}

#[test]
fn it_stands_before_the_first_session_over_a_restart_and_with_a_broken_config() {
    lab_test(
        "lock::it_stands_before_the_first_session_over_a_restart_and_with_a_broken_config",
        || {
            let mut stage = stage(20, "kill_switch = true");
            let url = urls(&stage, BYTES).into_iter().next().unwrap();
            let before = state(stage.topology().client());
            watch(&stage);
            // No proxy answers: there is no session.
            let (deployment, topology) = stage.split();
            deployment.start_client(topology, 0).unwrap();
            let client = deployment.client(0).unwrap();
            client.wait_for_log("the client runs", PATIENCE).unwrap();
            assert!(is_locked(&stage));
            try_to_leave(&stage, stage.topology().client(), Some("wan0"));
            assert_eq!(leaks(&stage), 0, "before the first session");
            let shown = stage.deployment().client_status(0).unwrap();
            assert_eq!(shown["daemon"]["kill_switch"], "on");

            stage.start_proxy().unwrap();
            wait_up(&mut stage);
            let mut sending = stage.topology().client().spawn(send_without_end()).unwrap();
            let client = stage.deployment().client(0).unwrap();
            client.signal(Signal::USR1);
            assert!(client.wait(PATIENCE).unwrap().success());
            let left = state(stage.topology().client());
            assert!(left.contains("ropewalk_lock") && !left.contains("ropewalk_client"), "{left}");
            try_to_leave(&stage, stage.topology().client(), Some("wan0"));
            start(&mut stage);
            download(stage.topology().client(), &url, BYTES).unwrap();
            assert_eq!(leaks(&stage), 0, "over a restart");
            sending.kill().unwrap();
            sending.wait().unwrap();
            stage.deployment().stop_client(0).unwrap();
            assert_eq!(state(stage.topology().client()), before, "after a deliberate stop");

            let config = stage.deployment().folder().join("client0.toml");
            let text = std::fs::read_to_string(&config).unwrap();
            std::fs::write(&config, format!("{text}\nnonsense")).unwrap();
            let refused = run_client(&mut stage).unwrap_err().to_string();
            assert!(refused.contains("--purge") && is_locked(&stage), "{refused}");
            try_to_leave(&stage, stage.topology().client(), Some("wan0"));
            assert_eq!(leaks(&stage), 0, "with a broken config");
            purge(&mut stage).unwrap();
            assert_eq!(state(stage.topology().client()), before);
            std::fs::write(&config, text.replace("kill_switch = true", "nonsense")).unwrap();
            run_client(&mut stage).unwrap_err();
            assert_eq!(state(stage.topology().client()), before, "where nobody asked for it");
        },
    );
}

/// What `ropewalk client` says that ends at once.
fn run_client(stage: &mut Stage) -> Result<String, LabError> {
    let config = stage.deployment().folder().join("client0.toml").display().to_string();
    let words = ["client", "--config", &config];
    stage.topology().client().run(|| tool::run(env!("CARGO_BIN_EXE_ropewalk"), &words)).unwrap()
}
