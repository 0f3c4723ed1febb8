//! A proxy whose clients are shared by several endpoints, one for each core, and the kernel leads each datagram
//! to the one that its steering field names.

use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::endpoint::{EndpointStats, PeerStats};
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::LinkState;
use ropewalk_settings::{InvitationToken, PublicKey};

use super::pair::{To, World, is_connected, ms, peer};

const PARTS: u16 = 3;

/// A key whose home this is.
fn key_at(world: &mut World, home: u16) -> StaticSecret {
    loop {
        let secret = StaticSecret::generate(&mut world.rng);
        if world.share().home(&secret.public()) == home {
            return secret;
        }
    }
}

/// A client that the proxy knows, whose home this is.
fn client_at(world: &mut World, home: u16, delays: &[u64]) -> (usize, StaticSecret) {
    let secret = key_at(world, home);
    world.allow(secret.public(), peer(world.clients.len()));
    let config = world.client_config(secret.clone());
    (world.add_end(config, delays), secret)
}

/// The peers of all parts, each with its part.
fn peers(stats: &[EndpointStats]) -> impl Iterator<Item = (u16, &PeerStats)> {
    (0..).zip(stats).flat_map(|(part, stats)| stats.peers.iter().map(move |peer| (part, peer)))
}

fn granted(world: &World) -> u64 {
    world.stats_by_part().iter().map(|stats| stats.admission.grants).sum()
}

/// The first message of a client as it went over one of its links, with the part that it leads to.
fn first_message(world: &World, key: usize) -> (Vec<u8>, u16) {
    let record = world.record.as_ref().unwrap();
    let of_client = |to: &To, path| *to == To::Proxy && path == world.seen_as(key, 0);
    let (_, _, first) = record.iter().find(|(to, path, _)| of_client(to, *path)).unwrap();
    let index = u32::from_be_bytes([0, first[2], first[3], first[4]]);
    (first.clone(), u16::try_from(index % u32::from(world.share().parts())).unwrap())
}

#[test]
fn a_hundred_clients_with_four_links_have_one_session_each_at_their_home() {
    let mut world = World::shared(60, PARTS);
    for _ in 0..100 {
        let client = world.add_client(&[10, 20, 30, 40]);
        // The race is lost in part: answers are missing, and the same message goes out again.
        world.clients[client].wires.iter_mut().for_each(|wire| wire.loss = 100);
    }
    world.connect();
    world.run_for(ms(5_000));
    let stats = world.stats_by_part();
    let mut homes = [0; PARTS as usize];
    for (part, peer) in peers(&stats) {
        assert_eq!(world.share().home(&peer.key), part);
        let session = peer.session.as_ref().unwrap();
        assert_eq!(world.share().part_of(session.info.index), part);
        let up = session.tunnel.links.iter().filter(|link| link.state == LinkState::Up).count();
        assert_eq!((up, peer.sessions), (4, 1), "{}", peer.name);
        homes[usize::from(part)] += 1;
    }
    assert_eq!(homes.iter().sum::<i32>(), 100);
    assert!(homes.iter().all(|home| *home > 15), "{homes:?}");
    for stats in &stats {
        assert_eq!(stats.drops.get(DropReason::UnknownSession), 0);
    }
    for client in 0..100 {
        world.clients[client].wires.iter_mut().for_each(|wire| wire.loss = 0);
        world.ping(client, ms(2_000));
    }
}

#[test]
fn fresh_keys_leave_a_session_where_it_is() {
    let mut world = World::shared(61, PARTS);
    for home in 0..PARTS {
        let secret = key_at(&mut world, home);
        world.allow(secret.public(), peer(world.clients.len()));
        let mut config = world.client_config(secret);
        config.tunnel.rekey_after = ms(1_000);
        world.add_end(config, &[10, 30]);
    }
    world.connect();
    for _ in 0..8 {
        for client in 0..usize::from(PARTS) {
            world.ping(client, ms(500));
        }
        world.run_for(ms(1_000));
    }
    for client in 0..usize::from(PARTS) {
        let rekeys = world.events(client);
        let rekeys = rekeys.iter().filter(|event| matches!(event, Event::Rekeyed(_))).count();
        assert!(rekeys >= 5, "client {client}: {rekeys}");
        assert_eq!(world.sessions_of(client), 1);
    }
    for (part, peer) in peers(&world.stats_by_part()) {
        let session = peer.session.as_ref().unwrap();
        assert_eq!((world.share().part_of(session.info.index), peer.sessions), (part, 1));
    }
}

#[test]
fn a_newer_session_takes_the_place_of_the_older_one_wherever_its_first_message_leads() {
    for round in 0..4 {
        let mut world = World::shared(62 + round, PARTS);
        world.record = Some(Vec::new());
        let (_, secret) = client_at(&mut world, 1, &[10, 20]);
        world.connect();
        world.run_for(ms(1_000));
        let config = world.client_config(secret.clone());
        let second = world.add_end(config, &[10, 20]);
        world.run_while(ms(5_000), |world| !is_connected(&world.clients[second].client));
        world.run_for(ms(500));
        println!("it led to part {}", first_message(&world, second).1);
        let replaced = |event: &Event| *event == Event::SessionEnded(EndReason::Replaced);
        assert!(world.proxy_events.iter().any(|told| replaced(&told.event)));
        let stats = world.stats_by_part();
        let sessions: Vec<_> = stats.iter().map(|stats| stats.sessions).collect();
        assert_eq!(sessions, [0, 1, 0]);
        assert!(is_connected(&world.clients[second].client));
        // Told of it: another machine with this key was there a moment ago.
        let told = |event: &Event| matches!(event, Event::Displaced(_));
        assert!(world.events(second).iter().any(told), "{:?}", world.events(second));
    }
}

#[test]
fn a_first_message_is_good_for_one_session_whichever_part_it_is_shown_to() {
    let mut world = World::shared(70, PARTS);
    world.record = Some(Vec::new());
    let (client, _) = client_at(&mut world, 1, &[10]);
    world.connect();
    let (first, _) = first_message(&world, client);
    assert_eq!(granted(&world), 1);
    // At once, when its answer is repeated; later, when it is stale; and much later.
    for pause in [0, 6_000, 200_000] {
        world.run_for(ms(pause));
        for part in 0..PARTS {
            world.misled = Some(part);
            let path = world.seen_as(client, 0);
            world.inject(To::Proxy, path, first.clone());
            world.run_for(Duration::ZERO);
            world.run_until(world.now);
            world.misled = None;
        }
        world.run_for(ms(100));
        assert_eq!(granted(&world), 1, "after {pause} ms");
        assert!(is_connected(&world.clients[client].client));
    }
    let stats = world.stats_by_part();
    assert_eq!((stats[1].sessions, stats[1].pending), (1, 0));
}

#[test]
fn a_first_message_that_found_no_way_to_its_home_is_answered_in_the_next_round() {
    let mut world = World::shared(75, PARTS);
    world.cut = true;
    for _ in 0..12 {
        world.add_client(&[10, 20, 30]);
    }
    world.run_for(ms(100));
    let connected =
        |world: &World| world.clients.iter().filter(|end| is_connected(&end.client)).count();
    assert!(connected(&world) < 12, "some are read elsewhere");
    world.cut = false;
    let took = world.run_while(ms(1_000), |world| connected(world) < 12);
    println!("{took:?} later all are connected");
    assert_eq!(granted(&world), 12);
}

#[test]
fn a_client_whose_home_does_not_know_it_hears_nothing() {
    let mut world = World::shared(71, PARTS);
    for home in 0..PARTS {
        let secret = key_at(&mut world, home);
        let config = world.client_config(secret);
        world.add_end(config, &[10, 20]);
    }
    world.run_for(ms(3_000));
    for stats in world.stats_by_part() {
        assert_eq!((stats.admission.grants, stats.admission.retries), (0, 0));
        assert!(stats.drops.get(DropReason::UnknownClient) > 0);
    }
}

#[test]
fn an_invitation_is_claimed_at_the_first_part_and_its_client_served_at_its_home() {
    for (home, later) in (0..PARTS).flat_map(|home| [(home, false), (home, true)]) {
        let mut world = World::shared(80 + u64::from(home), PARTS);
        let token = InvitationToken::from_bytes([9; 16]);
        // The key that goes out for it has its session at another part.
        let (old, former) = client_at(&mut world, (home + 1) % PARTS, &[10]);
        world.connect();
        let mut terms = peer(0);
        terms.name = "again".into();
        world.book.open.insert(token.digest(), (terms, Some(former.public())));
        let secret = key_at(&mut world, home);
        let key: PublicKey = secret.public();
        let mut config = world.client_config(secret);
        config.invitation = Some(token);
        world.book.put_off = later.then(Vec::new);
        let guest = world.add_end(config, &[10, 40]);
        if later {
            world.run_for(ms(1_000));
            assert!(is_connected(&world.clients[old].client), "nothing is decided yet");
            world.decide();
        }
        let took = world.run_while(ms(5_000), |world| !is_connected(&world.clients[guest].client));
        assert!(took <= ms(130), "{took:?}, home {home}");
        assert_eq!(world.book.asked, 1 + usize::from(later), "home {home}");
        let stats = world.stats_by_part();
        let found: Vec<_> = peers(&stats).map(|(part, peer)| (part, peer.key)).collect();
        assert_eq!(found, [(home, key)]);
        world.run_for(ms(500));
        assert!(!is_connected(&world.clients[old].client));
        // A second machine with the same token is told so.
        let secret = key_at(&mut world, (home + 2) % PARTS);
        let mut config = world.client_config(secret);
        config.invitation = Some(InvitationToken::from_bytes([9; 16]));
        let late = world.add_end(config, &[10]);
        world.run_for(ms(2_000));
        let told = |event: &Event| matches!(event, Event::Refused(_));
        assert!(world.events(late).iter().any(told), "home {home}");
    }
}

#[test]
fn a_packet_for_nobody_here_is_offered_elsewhere_and_counted_only_if_nobody_takes_it() {
    let mut world = World::shared(90, 2);
    let packet = super::pair::packet(super::pair::SERVER, super::pair::inner(7), 100, 1);
    for (taken, counted) in [(true, 0), (false, 1)] {
        let mut asked = Vec::new();
        let mut tun = super::pair::Tun::default();
        let now = Instant::from_millis(2_000);
        world.proxy.handle_packet_or(now, &packet, &mut tun, |to| {
            asked.push(to);
            taken
        });
        assert_eq!(asked, [std::net::IpAddr::V4(super::pair::inner(7))]);
        assert_eq!(world.proxy.stats().drops.get(DropReason::UnknownDestination), counted);
    }
}
