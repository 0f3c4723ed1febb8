//! Several clients on one proxy.

use std::net::{IpAddr, Ipv6Addr};

use ropewalk_proto::client::{ClientState, Trouble};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::endpoint::PeerConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::{Flows, InnerFilter};
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{PublicKey, SchedulerKind, Scheduling};

use super::pair::{PROXY, SERVER, World, inner, is_connected, ms, packet, peer};

/// A world with two connected clients.
fn two(seed: u64) -> World {
    let mut world = World::new(seed);
    world.add_client(&[10, 20]);
    world.add_client(&[15]);
    world.connect();
    world.run_for(ms(1500));
    world
}

#[test]
fn each_client_gets_its_own_packets_only() {
    let mut world = two(1);
    for client in 0..2 {
        world.ping(client, ms(200));
        let tun = &world.clients[client].tun.0;
        assert!(tun.iter().all(|packet| packet[16..20] == inner(client).octets()));
        assert_eq!(world.clients[1 - client].tun.0.len() * client, client);
    }
    world.send_down(&packet(SERVER, inner(7), 84, 1));
    assert_eq!(world.proxy.stats().drops.get(DropReason::UnknownDestination), 1);
}

#[test]
fn a_client_is_sent_to_by_settings_of_its_own_until_all_are_changed() {
    let mut world = two(9);
    let [own, other] = [world.clients[0].key, world.clients[1].key];
    let routes_flows = |world: &mut World| {
        let now = world.now;
        [own, other].map(|key| matches!(world.proxy.flows(now, &key, 1), Some(Flows::Routed(_))))
    };
    let safire = Scheduling::from(SchedulerKind::Safire);
    assert!(world.proxy.set_peer_scheduling(world.now, own, &safire));
    assert!(!world.proxy.set_peer_scheduling(world.now, PublicKey::from_bytes([9; 32]), &safire));
    assert_eq!(routes_flows(&mut world), [true, false]);
    world.ping(0, ms(200));

    // Its next session has them too.
    let refused = ["10.99.0.0/16".parse::<ipnet::IpNet>().unwrap()].into();
    let filter = InnerFilter { refused, ..peer(0).filter };
    world.allow(own, PeerConfig { filter, ..peer(0) });
    world.run_for(ms(5000));
    let sessions = world.proxy.stats().peers.iter().map(|peer| peer.sessions).max();
    assert_eq!((sessions, routes_flows(&mut world)), (Some(2), [true, false]));
    let spent = world.proxy.stats().peers.iter().find(|peer| peer.key == own).cloned().unwrap();
    let now: u64 = spent.session.unwrap().tunnel.ledger.iter().map(|(_, m)| m.bytes()).sum();
    let all: u64 = spent.ledger.iter().map(|(_, metered)| metered.bytes()).sum();
    assert!(all > now && now > 0, "bytes of the first session stay counted: {all} {now}");

    world.proxy.set_scheduling(world.now, &SchedulerKind::RoundRobin.into());
    assert_eq!(routes_flows(&mut world), [false, false]);
}

#[test]
fn ipv6_packets_find_their_client_too() {
    let mut world = World::new(7);
    let secret = StaticSecret::generate(&mut world.rng);
    let own: ipnet::Ipv6Net = "fd00:77::2/64".parse().unwrap();
    world.allow(secret.public(), PeerConfig { inner_v6: Some(own), ..peer(0) });
    let config = world.client_config(secret);
    world.add_end(config, &[10]);
    world.connect();
    world.run_for(ms(1500));
    assert_eq!(world.clients[0].client.session().unwrap().own.len(), 2);
    let packet = packet_v6("::", &own.addr().to_string());
    world.send_down(&packet);
    world.run_for(ms(50));
    assert_eq!(world.clients[0].tun.0, [packet]);
}

/// An IPv6 packet without a payload that anybody looks at.
fn packet_v6(from: &str, to: &str) -> Vec<u8> {
    let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
    let mut packet = vec![0; 60];
    packet[0] = 0x60;
    packet[4..8].copy_from_slice(&[0, 20, 17, 64]);
    packet[8..24].copy_from_slice(&octets(from));
    packet[24..40].copy_from_slice(&octets(to));
    packet
}

#[test]
fn hosts_behind_a_client_are_reached_by_its_network_and_no_other_client_sends_in_their_name() {
    const HOST: &str = "2001:db8:7:1::20";
    const FAR: &str = "2001:db8::1";
    let mut world = World::new(8);
    world.echo = false;
    let secret = StaticSecret::generate(&mut world.rng);
    let own: ipnet::Ipv6Net = "fd00:77::2/64".parse().unwrap();
    let network: ipnet::Ipv6Net = "2001:db8:7:1::/64".parse().unwrap();
    let filter = InnerFilter { network: Some(network), ..peer(0).filter };
    world.allow(secret.public(), PeerConfig { inner_v6: Some(own), filter, ..peer(0) });
    let config = world.client_config(secret);
    world.add_end(config, &[10]);
    world.add_client(&[15]);
    world.connect();
    world.run_for(ms(1500));
    let told =
        |world: &World, client: usize| world.clients[client].client.session().unwrap().network;
    assert_eq!((told(&world, 0), told(&world, 1)), (Some(network), None));

    world.send_down(&packet_v6(FAR, HOST));
    world.send_down(&packet_v6(FAR, "2001:db8:7:2::20"));
    world.send_up(0, &packet_v6(HOST, FAR));
    world.run_for(ms(200));
    assert_eq!(world.clients[0].tun.0, [packet_v6(FAR, HOST)]);
    assert_eq!(world.proxy_tun.0, [packet_v6(HOST, FAR)]);
    assert_eq!(world.proxy.stats().drops.get(DropReason::UnknownDestination), 1);

    // Not its network, not its own network's way back, and not another client's network.
    world.send_up(0, &packet_v6("2001:db8:7:2::20", FAR));
    world.send_up(0, &packet_v6(HOST, "2001:db8:7:1::99"));
    world.send_up(1, &packet_v6(HOST, FAR));
    world.run_for(ms(200));
    assert_eq!(world.proxy_tun.0.len(), 1);
    let dropped = |reason| {
        let peers = world.proxy.stats().peers;
        peers.iter().map(|peer| peer.drops.get(reason)).sum::<u64>()
    };
    assert_eq!(dropped(DropReason::ForeignSource), 2);
    assert_eq!(dropped(DropReason::RefusedDestination), 1);
}

#[test]
fn a_spoofed_inner_source_is_dropped_and_counted() {
    let mut world = two(2);
    world.echo = false;
    world.send_up(0, &packet(inner(1), SERVER, 84, 1));
    world.send_up(0, &packet(SERVER, SERVER, 84, 2));
    world.run_for(ms(200));
    assert!(world.proxy_tun.0.is_empty());
    assert_eq!(
        world
            .proxy
            .stats()
            .peers
            .iter()
            .map(|peer| peer.drops.get(DropReason::ForeignSource))
            .sum::<u64>(),
        2
    );
}

#[test]
fn a_client_reaches_another_only_if_that_is_allowed() {
    let mut world = two(3);
    world.echo = false;
    let hello = packet(inner(0), inner(1), 84, 1);
    world.send_up(0, &hello);
    world.send_up(0, &packet(inner(0), PROXY, 84, 2));
    world.run_for(ms(200));
    assert_eq!(world.proxy_tun.0.len(), 1, "only the one to the proxy itself");
    assert_eq!(world.proxy.stats().drops.get(DropReason::RefusedDestination), 1);

    let mut open = peer(0);
    open.filter.refused = Default::default();
    let key = world.clients[0].key;
    world.proxy.set_peer(world.now, key, open).unwrap();
    world.run_for(ms(100));
    world.run_while(ms(5000), |world| !is_connected(&world.clients[0].client));
    world.run_for(ms(1500));
    world.proxy_tun.0.clear();
    world.send_up(0, &hello);
    world.run_for(ms(200));
    assert_eq!(world.proxy_tun.0.len(), 1);
}

#[test]
fn with_one_key_on_two_machines_the_newest_wins_and_both_are_told() {
    let mut world = World::new(4);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let config = world.client_config(secret.clone());
    world.add_end(config.clone(), &[10]);
    world.connect();
    world.run_for(ms(500));
    world.add_end(config, &[30]);
    world.run_while(ms(1000), |world| !is_connected(&world.clients[1].client));
    world.run_for(ms(100));
    let replaced = EndReason::Closed(CloseReason::Replaced);
    assert!(world.events(0).contains(&Event::SessionEnded(replaced)));
    let ClientState::Waiting { trouble, .. } = world.clients[0].client.state() else {
        panic!("{:?}", world.states())
    };
    assert_eq!(trouble, Trouble::Closed(CloseReason::Replaced));
    let told: Vec<_> = world.proxy_events.iter().map(|told| told.event.clone()).collect();
    assert!(told.contains(&Event::SessionEnded(EndReason::Replaced)));
    assert_eq!(world.proxy.stats().sessions, 1);
    assert!(world.events(1).iter().any(|event| matches!(event, Event::Displaced(_))));
    // No fight: the old one asks once a minute, and yields for as long as the new one is there.
    world.run_for(ms(300_000));
    assert!(is_connected(&world.clients[1].client));
    assert_eq!(world.proxy.stats().peers[0].sessions, 2);
    let ClientState::Waiting { trouble, .. } = world.clients[0].client.state() else {
        panic!("{:?}", world.states())
    };
    assert_eq!(trouble, Trouble::Refused(Refusal::InUse));
    // It comes back by itself when the other stops, or vanishes.
    world.clients[1].client.close(world.now);
    world.run_while(ms(70_000), |world| !is_connected(&world.clients[0].client));
    let displaced = |event: &Event| matches!(event, Event::Displaced(_));
    assert!(!world.events(0).iter().any(displaced), "the other had said goodbye");
}

#[test]
fn a_machine_that_yielded_comes_back_when_the_other_vanished() {
    let mut world = World::new(14);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let config = world.client_config(secret);
    world.add_end(config.clone(), &[10]);
    world.connect();
    world.add_end(config, &[30]);
    world.run_while(ms(1000), |world| !is_connected(&world.clients[1].client));
    world.run_for(ms(1000));
    world.clients[1].wires[0].up = false;
    world.run_while(ms(130_000), |world| !is_connected(&world.clients[0].client));
}

#[test]
fn a_client_that_asks_beside_its_own_session_is_not_told_of_another_machine() {
    let mut world = two(15);
    world.clients[0].wires.iter_mut().for_each(|wire| wire.up = false);
    world.run_for(ms(5_000));
    world.clients[0].wires.iter_mut().for_each(|wire| wire.up = true);
    world.run_for(ms(20_000));
    assert!(is_connected(&world.clients[0].client));
    let displaced = |event: &Event| matches!(event, Event::Displaced(_));
    assert!(!world.events(0).iter().any(displaced), "{:?}", world.events(0));
}

#[test]
fn a_client_taken_out_of_the_table_is_told_and_comes_back_when_it_is_in_again() {
    let mut world = two(5);
    let key = world.clients[0].key;
    assert!(world.proxy.remove_peer(world.now, key));
    assert!(!world.proxy.remove_peer(world.now, key));
    world.run_for(ms(100));
    let closed = EndReason::Closed(CloseReason::Removed);
    assert!(world.events(0).contains(&Event::SessionEnded(closed)));
    assert_eq!(world.proxy_events.last().unwrap().event, Event::SessionEnded(EndReason::Removed));
    world.run_for(ms(10_000));
    assert!(!is_connected(&world.clients[0].client) && is_connected(&world.clients[1].client));
    world.proxy.set_peer(world.now, key, peer(0)).unwrap();
    world.run_while(ms(90_000), |world| !is_connected(&world.clients[0].client));
}

#[test]
fn clients_that_get_each_others_addresses_in_one_change_come_back_with_them() {
    let mut world = two(17);
    let [one, other] = [world.clients[0].key, world.clients[1].key];
    let connected =
        |world: &World| [0, 1].map(|client: usize| is_connected(&world.clients[client].client));
    let left = world.proxy.set_peers(world.now, [(one, peer(1)), (other, peer(0))]);
    assert!(left.is_empty(), "{left:?}");
    world.run_for(ms(100));
    world.run_while(ms(5000), |world| connected(world) != [true, true]);
    let address = |client: usize| {
        world.events(client).iter().rev().find_map(|event| match event {
            Event::SessionEstablished(info) => Some(info.own[0].addr()),
            _ => None,
        })
    };
    assert_eq!([address(0), address(1)], [1, 0].map(|client| Some(IpAddr::V4(inner(client)))));
    // Whoever loses his address to another, and is given none, is refused.
    world.run_for(ms(1000));
    let left = world.proxy.set_peers(world.now, [(one, peer(0))]);
    assert_eq!(left.iter().map(|name| &**name).collect::<Vec<_>>(), ["client0"]);
    world.run_for(ms(100));
    world.run_while(ms(5000), |world| !connected(world)[0]);
    assert_eq!(connected(&world), [true, false]);
    world.proxy.set_peers(world.now, [(other, peer(1))]);
    world.run_while(ms(90_000), |world| connected(world) != [true, true]);
}

#[test]
fn a_hundred_clients_with_four_links_each_share_a_proxy() {
    let mut world = World::new(6);
    for _ in 0..100 {
        world.add_client(&[5, 10, 20, 40]);
    }
    let took = world.connect();
    println!("all connected in {took:?}");
    assert!(took <= ms(100));
    world.run_for(ms(2000));
    for client in 0..100 {
        world.send_up(client, &packet(inner(client), SERVER, 84, 9));
    }
    world.run_for(ms(500));
    let stats = world.proxy.stats();
    assert_eq!((stats.sessions, stats.pending), (100, 0));
    for (at, end) in world.clients.iter().enumerate() {
        assert!(end.tun.0.iter().any(|packet| packet[16..20] == inner(at).octets()), "{at}");
        assert_eq!(end.client.stats().tunnel.unwrap().links.len(), 4);
    }
    // All come back after a restart, at once.
    world.restart_proxy();
    for client in 0..100 {
        world.send_up(client, &packet(inner(client), SERVER, 84, 9));
    }
    world.run_for(ms(5000));
    assert_eq!(world.proxy.stats().sessions, 100);
    world.run_for(Duration::from_secs(1));
}
