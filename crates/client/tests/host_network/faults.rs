//! What fails on the host is told with what to do, and the rest works.

use ropewalk_client::host::HostNetwork;
use ropewalk_client::host::linux::LinuxNetwork;
use ropewalk_client::routes::Numbers;
use ropewalk_link_io::nft::Table;

use crate::reverse_path::make_strict;
use crate::{applied, ask, lab, open, wanted};

#[test]
fn a_link_that_vanished_since_it_was_listed_is_a_problem_of_that_link_only() {
    let Some(lab) = lab() else { return };
    let outcome = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        let done = tokio::process::Command::new("ip").args(["link", "del", "wan2"]).status().await;
        assert!(done.unwrap().success());
        network.apply(&desired).await.unwrap()
    });
    assert!(!outcome.problems.is_empty());
    assert!(
        outcome.problems.iter().all(|problem| problem.link.as_deref() == Some("wan2")),
        "{outcome:?}"
    );
    assert_eq!(lab.host.run(|| ask(0x5257_0001)).unwrap(), "10.1.0.2");
}

#[test]
fn without_nft_the_links_still_work_and_the_remedy_is_told() {
    let Some(lab) = lab() else { return };
    let outcome = lab.host.block_on(async || {
        let numbers = Numbers::default();
        let table = Table::new(&numbers.firewall).with_program("/nowhere/nft");
        let mut network = LinuxNetwork::open_with(numbers, table).await.unwrap();
        let desired = wanted(&network, &["10.77.0.2"]).await;
        network.apply(&desired).await.unwrap()
    });
    assert_eq!(outcome.problems.len(), 1);
    assert!(outcome.problems[0].what.contains("apt install nftables"), "{outcome:?}");
    assert_eq!(lab.host.run(|| ask(0x5257_0002)).unwrap(), "10.2.0.2");
}

#[test]
fn a_kill_switch_that_somebody_flushed_is_put_back_without_a_tun_too() {
    let Some(lab) = lab() else { return };
    let error = lab.host.block_on(async || {
        let mut network = open().await;
        network.lock("rope0").await.unwrap();
        let desired = wanted(&network, &["10.77.0.2"]).await;
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-ec", "nft flush ruleset; ip link del rope0"]);
        assert!(shell.status().await.unwrap().success());
        network.apply(&desired).await.unwrap_err()
    });
    assert!(error.to_string().contains("rope0"), "{error:#}");
    assert!(lab.host.read("nft list ruleset").contains("ropewalk_lock"));
}

#[test]
fn an_nft_that_refuses_is_told_and_what_it_remembers_is_not_lost() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    applied(&lab.host, &["10.77.0.2"]);
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("nft");
    std::fs::write(&broken, "#!/bin/sh\necho out of order >&2; exit 1\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = lab.host.block_on(async move || {
        let numbers = Numbers::default();
        let table = Table::new(&numbers.firewall).with_program(&broken);
        let mut network = LinuxNetwork::open_with(numbers, table).await.unwrap();
        let desired = wanted(&network, &["10.77.0.2"]).await;
        let outcome = network.apply(&desired).await.unwrap();
        // From now on it works.
        std::fs::write(&broken, "#!/bin/sh\nexec nft \"$@\"\n").unwrap();
        assert_eq!(network.apply(&desired).await.unwrap().problems, []);
        network.remove().await.unwrap();
        outcome
    });
    assert!(outcome.problems[0].what.contains("out of order"), "{outcome:?}");
    let marks = lab.host.read("cat /proc/sys/net/ipv4/conf/wan?/src_valid_mark | xargs");
    assert_eq!(marks.trim(), "0 0");
    assert_eq!(lab.host.read("nft list ruleset"), "");
}

#[test]
fn a_setting_that_cannot_be_written_is_told_and_the_links_still_work() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    let outcomes = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        // As in most containers; for this thread and what it starts.
        #[expect(deprecated, reason = "its `unsafe` successor adds nothing for this flag")]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
        let script = "mount --make-rprivate /; mount --bind /proc/sys /proc/sys
             mount -o remount,ro,bind /proc/sys";
        let done = tokio::process::Command::new("sh").args(["-ec", script]).status().await;
        assert!(done.unwrap().success());
        [network.apply(&desired).await.unwrap(), network.apply(&desired).await.unwrap()]
    });
    for outcome in outcomes {
        let links: Vec<_> =
            outcome.problems.iter().map(|problem| problem.link.as_deref()).collect();
        assert_eq!(links, [Some("wan1"), Some("wan2")], "{outcome:?}");
        assert!(outcome.problems[0].what.contains("src_valid_mark"), "{outcome:?}");
        assert!(outcome.problems[0].what.contains("read-only"), "{outcome:?}");
    }
    for mark in [0x5257_0001, 0x5257_0002] {
        assert!(lab.host.run(move || ask(mark)).is_ok(), "mark {mark:#x}");
    }
}

#[test]
fn without_the_capability_the_error_names_it() {
    let Some(lab) = lab() else { return };
    let error = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap();
        network.apply(&desired).await.unwrap_err()
    });
    assert!(format!("{error:#}").contains("CAP_NET_ADMIN"), "{error:#}");
}
