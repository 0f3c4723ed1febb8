//! Hosts that filter by the reverse path.

use ropewalk_client::host::HostNetwork;

use crate::{Lab, PROXY_V6, applied, ask, ask_at, lab, open, wanted};

/// Cases of strict reverse path filtering, each with what makes it hard.
const STRICT: [(&str, &str); 3] = [
    ("two links, the better default route by wan1", ""),
    ("a special route to the proxy by wan1", "ip route add 203.0.113.5 via 10.1.0.1 proto static"),
    (
        "two links with the same address",
        "ip addr del 10.2.0.2/24 dev wan2; ip addr add 10.1.0.2/24 dev wan2
         ip route add default via 10.1.0.1 dev wan2 metric 102",
    ),
];

#[test]
fn answers_arrive_on_every_link_under_strict_reverse_path_filtering() {
    for (case, script) in STRICT {
        let Some(lab) = lab() else { return };
        make_strict(&lab, script);
        applied(&lab.host, &["10.77.0.2"]);
        for mark in [0x5257_0001, 0x5257_0002] {
            let asked = lab.host.run(move || ask(mark));
            assert!(asked.is_ok(), "{case}, mark {mark:#x}: {asked:?}");
        }
    }
}

/// Shows that the test above can fail: the two hard cases really need the mark.
#[test]
fn without_the_mark_the_hard_cases_lose_the_answers() {
    for (case, script) in &STRICT[1..] {
        let Some(lab) = lab() else { return };
        make_strict(&lab, script);
        applied(&lab.host, &["10.77.0.2"]);
        lab.host.sh("nft flush ruleset");
        let asked = lab.host.run(|| ask(0x5257_0002));
        assert!(asked.is_err(), "{case}: {asked:?}");
    }
}

#[test]
fn answers_arrive_under_a_reverse_path_filter_for_ipv6() {
    let Some(lab) = lab() else { return };
    lab.host.sh(
        "nft 'table inet others { chain c { type filter hook prerouting priority mangle + 10
                meta nfproto ipv6 meta l4proto udp fib saddr . mark . iif oif missing drop
             }
             }'",
    );
    let asked = |mark| lab.host.run(move || ask_at(PROXY_V6, mark));
    applied(&lab.host, &["10.77.0.2"]);
    assert_eq!(asked(0x5257_0001).unwrap(), "2001:db8:1::2");
    assert_eq!(asked(0x5257_0002).unwrap(), "2001:db8:2::2");
    // Without the rule for what comes from the proxy the answer is dropped: the test can fail.
    lab.host.sh("ip -6 rule del from 2001:db8:2::2 priority 5303");
    assert!(asked(0x5257_0002).is_err());
}

#[test]
fn inner_packets_arrive_under_strict_reverse_path_filtering() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    lab.host.sh("echo 1 > /proc/sys/net/ipv4/conf/rope0/rp_filter");
    lab.host.block_on(async || {
        let mut network = open().await;
        let mut desired = wanted(&network, &["10.77.0.2"]).await;
        // Nothing is routed: only the rule for the inner address says that the TUN is the right way.
        desired.routed = Vec::new();
        network.apply(&desired).await.unwrap();
    });
    // `iif` makes the kernel ask the question of reverse path filtering.
    let answer = lab.host.read("ip route get 10.77.0.2 from 198.51.100.1 iif rope0");
    assert!(answer.contains("local"), "{answer}");

    // Without that rule the question has another answer: the test can fail.
    lab.host.sh("ip rule del from 10.77.0.2");
    let refused = lab.host.read(
        "ip route get 10.77.0.2 from 198.51.100.1 iif rope0 && echo accepted || echo refused",
    );
    assert_eq!(refused.trim(), "refused");
}

/// Strict on both links; the proxy's side answers by the link that the question came by.
pub(crate) fn make_strict(lab: &Lab, script: &str) {
    lab.host.sh("for n in 1 2; do echo 1 > /proc/sys/net/ipv4/conf/wan$n/rp_filter; done");
    lab.host.sh(script);
    if script.contains("addr del") {
        // Two routers of one make: the far side tells them apart by mark, as two real routers would by being two.
        lab.proxy.sh(
            "ip addr del 10.2.0.1/24 dev far2; ip addr add 10.1.0.1/24 dev far2
             ip route add 10.1.0.0/24 dev far2 table 2; ip rule add fwmark 2 table 2
             nft 'table inet t { chain c { type filter hook prerouting priority -150; iifname far2 ct mark set 2
                 }
                  chain o { type route hook output priority -150; ct mark 2 meta mark set 2
                 }
             }'",
        );
    }
}
