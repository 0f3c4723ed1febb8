//! Links come up, and what no link has room for.

use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::{Collect, Towards};
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{TunnelLab, conditions, link_config, tunnels};
use ropewalk_netlab::stream::{Stream, run};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::tunnel::LinkState;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Keepalive, Profile, WhenClosed};

use super::{SEED, s, sender, settled};

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
fn each_end_counts_bytes_as_a_provider_does_and_those_of_links_that_left() {
    let mut lab = settled(&TunnelConfig::default(), Keepalive::Off, &[(8.0, 10), (2.0, 100)]);
    let mut streams = [Stream::at_rate(Towards::Client, 9.0, 1200, lab.now, s(2))];
    let until = lab.now + s(3);
    run(&mut lab, &mut streams, until);
    let left = lab.client.stats().links[1].id;
    lab.client.remove_link(lab.now, left, &mut Collect::default());
    lab.run_until(lab.now + s(1));
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    assert_eq!((client.links.len(), proxy.links.len()), (1, 1));
    for (place, link) in lab.links.iter().enumerate() {
        let name = format!("wan{place}");
        let (client, proxy) = (client.ledger.of(&name), proxy.ledger.of(&name));
        let (down, up) = (link.down.counters(), link.up.counters());
        println!("{name}: {client:?} {proxy:?}, carried {down:?} {up:?}");
        assert!(client.received > 10_000, "{client:?}");
        for (counted, carried) in [(client.received, down), (proxy.received, up)] {
            // A report may still have been under way when the link left.
            assert!((0..200).contains(&(carried.delivered_bytes - counted)), "{name}: {counted}");
        }
        assert!(client.sent >= proxy.received && proxy.sent >= client.received);
        assert_eq!(client.bytes(), client.sent + client.received);
    }
}

/// Two links; the second carries packets of 1,240 bytes at most.
fn wide_and_narrow(when_closed: WhenClosed) -> TunnelLab {
    let config = TunnelConfig { when_closed, ..TunnelConfig::of(Profile::Paper) };
    let mut lab = tunnels(&config, &config, SEED);
    for (place, mtu) in [1500, 1300].into_iter().enumerate() {
        let conditions = Conditions { mtu, ..conditions(10.0, 20, 100) };
        let path = lab.add_link(conditions.clone(), conditions, SEED);
        let link = link_config(&format!("wan{place}"), path, Keepalive::Off);
        lab.client.add_link(lab.now, &link).expect("few links");
    }
    lab.run_until(lab.now + s(5));
    lab
}

/// Hands packets of these lengths to the client without letting it send.
fn queue(lab: &mut TunnelLab, lens: impl IntoIterator<Item = usize>) {
    for (number, len) in (0..).zip(lens) {
        let packet = Inner::plain(Towards::Proxy, number, len).packet();
        lab.client.handle_packet(lab.now, &packet, &mut Collect::default());
    }
}

fn rooms(lab: &TunnelLab) -> Vec<u32> {
    let room =
        |link: &ropewalk_proto::tunnel::LinkStats| link.sender.window - link.sender.in_flight;
    lab.client.stats().links.iter().map(room).collect()
}

#[test]
fn a_large_packet_does_not_keep_those_behind_it_from_the_narrow_link() {
    let mut lab = wide_and_narrow(WhenClosed::Drop);
    let small: u32 = rooms(&lab).iter().sum::<u32>() - 1;
    queue(&mut lab, [1400].into_iter().chain((0..small).map(|_| 800)));
    lab.with_client(|_, _, _| ());
    assert_eq!(rooms(&lab), [0, 0], "each found its place");
    assert_eq!(lab.client.stats().drops.get(DropReason::NoRoom), 0);
}

#[test]
fn a_packet_that_has_become_too_big_for_all_links_goes_alone() {
    for when_closed in [WhenClosed::Drop, WhenClosed::Queue] {
        let mut lab = wide_and_narrow(when_closed);
        queue(&mut lab, [1400, 800, 1400, 800]);
        lab.with_client(|client, now, sink| client.remove_link(now, LinkId(0), sink));
        let (stats, came) = (lab.client.stats(), {
            lab.run_until(lab.now + super::ms(50));
            lab.delivered(Towards::Proxy).len()
        });
        assert_eq!((stats.drops.get(DropReason::PacketTooBig), stats.queued.0), (2, 0));
        assert_eq!((stats.drops.get(DropReason::NoRoom), came), (0, 2), "{when_closed:?}");
    }
}

#[test]
fn the_papers_policy_drops_what_finds_no_room_and_fills_the_links_all_the_same() {
    let when_closed = WhenClosed::Drop;
    let config = TunnelConfig { when_closed, ..TunnelConfig::of(Profile::Paper) };
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
