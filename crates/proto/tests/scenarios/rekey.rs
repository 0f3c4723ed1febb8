//! Rekeys under load lose nothing.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::loss::Loss;
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::{Keepalive, TunnelConfig};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::tunnel::TunnelStats;

use super::{lost, s, settled};

#[test]
fn a_rekey_every_second_on_lossy_links_loses_no_packet() {
    let config = TunnelConfig { rekey_after: s(1), ..TunnelConfig::default() };
    let mut lab = settled(&config, Keepalive::default(), &[(20.0, 10), (20.0, 300)]);
    for link in &mut lab.links {
        for direction in [&mut link.down, &mut link.up] {
            let conditions =
                Conditions { loss: Loss::Bernoulli(0.02), ..direction.conditions().clone() };
            direction.handle_change(lab.now, conditions);
        }
    }
    let start = lab.now;
    let mut streams = [
        Stream::at_rate(Towards::Client, 2.0, 1200, start, s(60)),
        Stream::at_rate(Towards::Proxy, 2.0, 1200, start, s(60)),
    ];
    run(&mut lab, &mut streams, start + s(63));
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    let [down, up] = &streams;
    let downs: u64 = lab.links.iter().map(|link| lost(link.down.counters())).sum();
    let ups: u64 = lab.links.iter().map(|link| lost(link.up.counters())).sum();
    println!(
        "{} rekeys; down: {} packets missing, {downs} datagrams lost; up: {}, {ups}",
        client.epoch,
        down.missing(),
        up.missing()
    );
    // Sixty seconds, less what lost messages delay.
    assert!(client.epoch >= 40, "only {} rekeys", client.epoch);
    assert_eq!(client.epoch, proxy.epoch);
    for (name, end) in [("client", &client), ("proxy", &proxy)] {
        let drops: Vec<_> = end.drops.iter().collect();
        println!("{name}: {drops:?}");
        for reason in [
            DropReason::KeyPhaseUnknown,
            DropReason::NotAuthentic,
            DropReason::Replayed,
            DropReason::OlderThanWindow,
            DropReason::KeyWornOut,
        ] {
            assert_eq!(end.drops.get(reason), 0, "{name}: {reason:?}");
        }
    }
    // A window that 2 % of loss keeps small lets some packets wait too long, rekey or not.
    let waited = |end: &TunnelStats| end.drops.get(DropReason::QueueTimeout);
    assert!(down.missing() <= downs + waited(&proxy) && up.missing() <= ups + waited(&client));
    assert!(down.missing() > 0 && up.missing() > 0, "2 % loss is not nothing");
}
