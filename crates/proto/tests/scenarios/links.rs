//! Links come up, and what no link has room for.

use ropewalk_netlab::lab::Towards;
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::{Keepalive, TunnelConfig};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::sched::WhenClosed;
use ropewalk_proto::tunnel::LinkState;

use super::{s, sender, settled};

#[test]
fn links_join_and_come_up() {
    let lab = settled(&TunnelConfig::default(), Keepalive::default(), &[(8.0, 10), (2.0, 100)]);
    for end in [lab.client.stats(), lab.proxy.stats()] {
        let links: Vec<_> = end.links.iter().map(|link| (link.state, link.path_mtu)).collect();
        assert_eq!(links, [(LinkState::Up, 1500); 2]);
        assert_eq!(end.inner_mtu, Some(1440));
    }
}

#[test]
fn the_papers_policy_drops_what_finds_no_room_and_fills_the_links_all_the_same() {
    let config = TunnelConfig { when_closed: WhenClosed::Drop, ..TunnelConfig::default() };
    for towards in [Towards::Client, Towards::Proxy] {
        let mut lab = settled(&config, Keepalive::default(), &[(8.0, 10), (2.0, 100)]);
        let start = lab.now;
        let mut streams = [Stream::at_rate(towards, 10.0, 1440, start, s(30))];
        run(&mut lab, &mut streams, start + s(30));
        let goodput = streams[0].mbit_between(start, start + s(30));
        let drops = sender(&lab, towards).drops;
        println!("{towards:?}: {goodput:.3} Mbit/s, {drops:?}");
        assert!(goodput > 0.95 * 9.6);
        assert!(drops.get(DropReason::NoRoom) > 0);
        assert_eq!(drops.get(DropReason::QueueTimeout), 0);
    }
}
