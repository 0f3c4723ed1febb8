//! What stands in the log at `info`: what happened, and nothing while nothing happens.

use std::path::Path;
use std::thread;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test_alone;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::TopologyConfig;
use ropewalk_settings::Bitrate;

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// With fresh keys each second as many as in half an hour.
const STEADY: Duration = Duration::from_secs(15);

/// Times that a link goes and comes: what would be a bad day.
const FLAPS: usize = 4;

#[test]
fn a_steady_tunnel_writes_nothing_and_a_link_that_flaps_little() {
    lab_test_alone("log::a_steady_tunnel_writes_nothing_and_a_link_that_flaps_little", || {
        // Emulated ones, whose carrier can be taken away.
        let (rtt, queue) = (Duration::from_millis(20), Duration::from_millis(100));
        let wan = || Access::symmetric(Bitrate::from_mbps(8), rtt, queue).into();
        let config = TopologyConfig::new(vec![wan(), wan()]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        for config in ["client", "proxy"] {
            let deployment = stage.deployment();
            let config = match config {
                "client" => deployment.client_config(0),
                _ => deployment.proxy_config(),
            };
            let tunnel = toml::Table::from_iter([("rekey_after".to_owned(), "1s".into())]);
            config.insert("tunnel".into(), tunnel.into());
        }
        stage.start([0, 1]).unwrap();
        stage.settled_mtu().unwrap();
        let lines = |stage: &mut Stage| {
            let deployment = stage.deployment();
            let client = deployment.client(0).unwrap().log();
            let proxy = deployment.proxy().unwrap().log();
            (client, proxy)
        };
        let before = lines(&mut stage);
        let pings = u16::try_from(STEADY.as_secs() * 5).unwrap();
        thread::scope(|scope| {
            let client = stage.topology().client();
            scope.spawn(move || Ping::new(SERVER_V4.into(), pings.into()).run(client).unwrap());
            thread::sleep(STEADY);
        });
        let rekeys = stage.client_status().unwrap().rekeys();
        assert!(rekeys >= 5, "{rekeys}");
        let now = lines(&mut stage);
        for (before, now) in [(&before.0, &now.0), (&before.1, &now.1)] {
            let fresh = now.lines().filter(|line| !before.contains(line));
            // A busy machine may keep a process waiting for seconds, which is news.
            let fresh: Vec<_> = fresh.filter(|line| !line.contains("stood still")).collect();
            assert!(fresh.is_empty(), "{rekeys} rekeys are no news: {fresh:#?}");
        }

        for _ in 0..FLAPS {
            for (state, is_up) in [("off", false), ("on", true)] {
                stage.topology().client().ip(&format!("link set wan1 carrier {state}")).unwrap();
                let begun = std::time::Instant::now();
                while stage.client_status().unwrap().is_up("wan1") != is_up {
                    assert!(begun.elapsed() < PATIENCE, "{state}: {}", lines(&mut stage).0);
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
        let after = lines(&mut stage);
        for (who, before, after) in [("client", before.0, after.0), ("proxy", before.1, after.1)] {
            let new = after.lines().count() - before.lines().count();
            assert!(new <= 4 * FLAPS, "{who}: {new} lines for {FLAPS} times\n{after}");
            assert!(!after.contains("ERROR"), "{after}");
        }
    });
}
