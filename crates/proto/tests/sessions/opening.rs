//! Over which links a session is asked for, and what the proxy is told of them.

use std::net::SocketAddr;

use ropewalk_proto::client::ClientConfig;
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::event::Event;
use ropewalk_settings::{Importance, LinkPolicy, LinkTerms, SchedulerKind, Scheduling, Usage};

use super::pair::{SERVER, To, World, inner, is_connected, key_of, link, ms, packet, peer};

/// What makes the second link the preferred one.
pub(crate) fn second_preferred() -> Scheduling {
    let terms = [(0, 0.1), (1, 0.9)].map(|(at, throughput)| {
        let importance = Importance::new(throughput, 1.0 - throughput).expect("shares of one");
        let told = LinkTerms { importance: Some(importance), ..LinkTerms::default() };
        (link(at).name.to_string(), told)
    });
    Scheduling { terms: terms.into(), ..SchedulerKind::Batcp.into() }
}

/// A client that prefers its second link, with these delays, before it has asked.
fn with_preference(seed: u64, delays: &[u64]) -> World {
    let mut world = World::new(seed);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let tunnel = TunnelConfig { scheduling: second_preferred(), ..TunnelConfig::default() };
    let config = ClientConfig { tunnel, ..world.client_config(secret) };
    world.add_end(config, delays);
    world
}

/// The links over which first messages went, in this order.
fn asked(world: &World) -> Vec<u8> {
    let asked = world.record.iter().flatten();
    let asked = asked.filter(|(to, _, data)| *to == To::Proxy && data[0] == 0x80);
    asked
        .map(|(_, path, _)| path.remote)
        .map(|remote| match remote {
            SocketAddr::V4(remote) => remote.ip().octets()[3],
            SocketAddr::V6(_) => panic!("{remote}"),
        })
        .collect()
}

#[test]
fn a_session_is_asked_for_over_the_preferred_link_and_the_others_join_it() {
    let mut world = with_preference(53, &[10, 30, 5]);
    // Nothing is said of the third: it is as good as the best.
    world.record = Some(Vec::new());
    world.connect();
    assert_eq!(asked(&world), [1, 2]);
    world.run_for(ms(1000));
    assert_eq!(world.proxy.stats().peers[0].session.clone().unwrap().tunnel.links.len(), 3);
}

#[test]
fn a_backup_is_not_asked_unless_the_others_are_silent() {
    for (silent, links) in [(false, &[1][..]), (true, &[1, 0, 1])] {
        let mut world = World::with_client(57, &[10, 10]);
        let policy = LinkPolicy { usage: Usage::Backup, ..LinkPolicy::default() };
        let end = &mut world.clients[0];
        let backup = LinkConfig { policy, ..link(0) };
        end.client.set_link(world.now, key_of(0), Some(backup), &mut end.tun).unwrap();
        end.wires[1].up = !silent;
        world.record = Some(Vec::new());
        world.connect();
        assert_eq!(asked(&world), links);
    }
}

#[test]
fn where_the_preferred_link_is_dead_the_others_are_asked_soon() {
    let mut world = with_preference(54, &[10, 10]);
    world.clients[0].wires[1].up = false;
    world.record = Some(Vec::new());
    let took = world.connect();
    println!("connected in {took:?}");
    assert!((ms(150)..ms(400)).contains(&took), "{took:?}");
    assert_eq!(asked(&world), [1, 0, 1]);
}

#[test]
fn for_a_session_beside_one_that_does_not_answer_all_links_are_asked_at_once() {
    let mut world = with_preference(55, &[10, 10]);
    world.connect();
    world.run_for(ms(2000));
    world.record = Some(Vec::new());
    world.restart_proxy();
    world.send_up(0, &packet(inner(0), SERVER, 84, 1));
    world.run_while(ms(5000), |world| world.sessions_of(0) < 2);
    assert_eq!(asked(&world), [0, 1]);
}

#[test]
fn the_proxy_is_told_how_many_links_there_are() {
    for links in [1, 2, 16] {
        let mut world = World::with_client(56, &vec![10; links]);
        world.connect();
        let told = |world: &World| {
            let mut sessions = world.proxy_events.iter().filter_map(|told| match &told.event {
                Event::SessionEstablished(info) => Some(info.links),
                _ => None,
            });
            sessions.next_back().unwrap()
        };
        assert_eq!(told(&world), u8::try_from(links).ok());
        // One that comes or goes is told of in the next question.
        let end = &mut world.clients[0];
        end.client.set_link(world.now, key_of(links - 1), None, &mut end.tun).unwrap();
        if links > 1 {
            world.restart_proxy();
            world.send_up(0, &packet(inner(0), SERVER, 84, 1));
            world.run_while(ms(8000), |world| {
                world.sessions_of(0) < 2 || !is_connected(&world.clients[0].client)
            });
            assert_eq!(told(&world), u8::try_from(links - 1).ok());
        }
    }
}
