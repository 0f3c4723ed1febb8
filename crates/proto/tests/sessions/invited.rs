//! Clients that the proxy does not know yet, with an invitation of its owner's (PROTOCOL §6.9).

use ropewalk_proto::client::{ClientState, Trouble};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{InvitationToken, PublicKey};

use super::pair::{To, World, is_connected, ms, peer};

/// The token of the n-th invitation.
fn token(n: u8) -> InvitationToken {
    InvitationToken::from_bytes([n; 16])
}

/// A client with a new key and this token.
fn guest(world: &mut World, n: u8, delays: &[u64]) -> (usize, PublicKey) {
    let secret = StaticSecret::generate(&mut world.rng);
    let key = secret.public();
    let mut config = world.client_config(secret);
    config.invitation = Some(token(n));
    (world.add_end(config, delays), key)
}

fn trouble(world: &World, client: usize) -> Trouble {
    match world.clients[client].client.state() {
        ClientState::Asking { trouble, .. } | ClientState::Waiting { trouble, .. } => trouble,
        state => panic!("{state:?}"),
    }
}

#[test]
fn the_first_key_that_shows_a_token_is_bound_and_gets_a_session_at_once() {
    let mut world = World::new(40);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    let (client, key) = guest(&mut world, 1, &[10, 40]);
    let took = world.run_while(ms(1000), |world| !is_connected(&world.clients[0].client));
    // Of its clock the proxy knows nothing yet: one retry, one session, one join.
    assert!(took <= ms(130), "{took:?}");
    assert_eq!(world.book.asked, 1, "copies over other links are not asked about again");
    assert_eq!(world.proxy.stats().peers[0].key, key);
    world.ping(client, ms(200));
    // From now on its key is enough.
    world.book.over.clear();
    world.clients[client].client.close(world.now);
    world.run_for(ms(2000));
    let ended = EndReason::Closed(CloseReason::Shutdown);
    assert_eq!(world.proxy_events.last().unwrap().event, Event::SessionEnded(ended));
}

#[test]
fn an_answer_that_is_lost_costs_no_invitation() {
    let mut world = World::new(41);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    guest(&mut world, 1, &[10]);
    // Everything reaches the proxy, nothing the client, for longer than an answer is repeated.
    world.clients[0].wires[0].downstream = false;
    world.run_for(ms(7_000));
    assert!(!is_connected(&world.clients[0].client));
    world.clients[0].wires[0].downstream = true;
    world.run_while(ms(20_000), |world| !is_connected(&world.clients[0].client));
    assert_eq!(world.book.asked, 1);
}

#[test]
fn a_token_used_twice_is_refused_and_who_used_it_first_goes_on() {
    let mut world = World::new(42);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    let (first, key) = guest(&mut world, 1, &[10]);
    world.connect();
    let (second, _) = guest(&mut world, 1, &[10]);
    world.run_for(ms(1000));
    assert_eq!(trouble(&world, second), Trouble::Refused(Refusal::InvitationUsed));
    assert!(world.events(second).contains(&Event::Refused(Refusal::InvitationUsed)));
    assert!(is_connected(&world.clients[first].client));
    let stats = world.proxy.stats();
    assert_eq!((stats.peers.len(), stats.peers[0].key, stats.sessions), (1, key, 1));
    // Asked again every 30 s, with the same answer.
    world.run_for(ms(65_000));
    assert_eq!(trouble(&world, second), Trouble::Refused(Refusal::InvitationUsed));
    assert!(world.book.asked <= 5, "{}", world.book.asked);
}

#[test]
fn an_invitation_that_is_over_is_refused_with_the_reason() {
    let mut world = World::new(43);
    world.book.over.insert(token(1).digest(), Refusal::InvitationExpired);
    let (client, _) = guest(&mut world, 1, &[10]);
    world.run_for(ms(1000));
    assert_eq!(trouble(&world, client), Trouble::Refused(Refusal::InvitationExpired));
    assert_eq!(world.proxy.stats().peers.len(), 0);
}

#[test]
fn a_token_that_was_never_given_is_met_with_silence() {
    let mut world = World::new(44);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    let (client, _) = guest(&mut world, 2, &[10, 20]);
    world.record = Some(Vec::new());
    world.run_for(ms(20_000));
    let record = world.record.take().unwrap();
    assert!(record.iter().all(|(to, ..)| *to == To::Proxy));
    assert_eq!(trouble(&world, client), Trouble::NoAnswer);
    let stats = world.proxy.stats();
    assert!(stats.drops.get(DropReason::UnknownInvitation) > 0);
    assert_eq!((stats.sessions, stats.pending, stats.peers.len()), (0, 0, 0));
}

#[test]
fn guessing_is_bounded_whatever_comes() {
    let mut world = World::new(45);
    for n in 0..250 {
        guest(&mut world, n, &[10]);
    }
    world.run_for(ms(500));
    assert!((100..=130).contains(&world.book.asked), "{}", world.book.asked);
    let limited = world.proxy.stats().drops.get(DropReason::HandshakeRateLimited);
    assert!(limited >= 100, "{limited}");
}

#[test]
fn a_new_key_for_a_name_takes_the_old_one_out_and_its_client_is_told() {
    let mut world = World::new(46);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    let (old, old_key) = guest(&mut world, 1, &[10]);
    world.connect();
    // Until the new key is bound the old one works.
    world.book.open.insert(token(2).digest(), (peer(0), Some(old_key)));
    world.run_for(ms(2000));
    world.ping(old, ms(200));
    let (_, new_key) = guest(&mut world, 2, &[30]);
    world.run_while(ms(1000), |world| !is_connected(&world.clients[1].client));
    world.run_for(ms(500));
    let removed = EndReason::Closed(CloseReason::Removed);
    assert!(world.events(old).contains(&Event::SessionEnded(removed)));
    assert_eq!(trouble(&world, old), Trouble::Closed(CloseReason::Removed));
    let keys: Vec<_> = world.proxy.stats().peers.iter().map(|peer| peer.key).collect();
    assert_eq!(keys, [new_key]);
    // And stays out.
    world.run_for(ms(120_000));
    assert!(!is_connected(&world.clients[old].client));
    assert!(is_connected(&world.clients[1].client));
}

#[test]
fn whoever_the_owner_decides_about_later_hears_nothing_before_and_is_in_at_once_then() {
    // In time for the first answer, after copies of the question, and after another question.
    for (later, seed) in [(15, 48), (2_000, 49), (7_000, 50)] {
        let mut world = World::new(seed);
        world.book.open.insert(token(1).digest(), (peer(0), None));
        world.book.put_off = Some(Vec::new());
        let (client, key) = guest(&mut world, 1, &[10, 40]);
        world.record = Some(Vec::new());
        world.run_for(ms(later));
        let record = world.record.take().unwrap();
        assert!(record.iter().all(|(to, ..)| *to == To::Proxy), "after {later} ms");
        // One that its client has replaced, at most, besides.
        let questions = if later < 5_000 { 1 } else { 2 };
        assert_eq!(world.book.asked, questions, "copies wait with the first: {later} ms");
        assert!(world.proxy.stats().peers.is_empty());
        world.decide();
        let took = world.run_while(ms(1000), |world| !is_connected(&world.clients[0].client));
        assert!(took <= ms(130), "{took:?} after {later} ms");
        assert_eq!(world.proxy.stats().peers[0].key, key);
        world.ping(client, ms(200));
    }
}

#[test]
fn of_two_clients_with_one_token_that_wait_for_the_owner_the_first_is_let_in() {
    let mut world = World::new(51);
    world.book.open.insert(token(1).digest(), (peer(0), None));
    world.book.put_off = Some(Vec::new());
    let (first, key) = guest(&mut world, 1, &[10]);
    let (second, _) = guest(&mut world, 1, &[30]);
    world.run_for(ms(1000));
    world.decide();
    world.run_for(ms(1000));
    assert!(is_connected(&world.clients[first].client));
    assert_eq!(trouble(&world, second), Trouble::Refused(Refusal::InvitationUsed));
    let stats = world.proxy.stats();
    assert_eq!((stats.peers.len(), stats.peers[0].key, stats.sessions), (1, key, 1));
}

#[test]
fn more_clients_than_may_wait_for_the_owner_come_in_when_they_ask_again() {
    let mut world = World::new(52);
    world.book.put_off = Some(Vec::new());
    for n in 0..200 {
        world.book.open.insert(token(n).digest(), (peer(n.into()), None));
        guest(&mut world, n, &[10]);
    }
    world.run_for(ms(4_000));
    assert!(world.proxy.stats().drops.get(DropReason::HandshakeRateLimited) >= 72);
    world.decide();
    world.run_for(ms(500));
    let connected = world.clients.iter().filter(|end| is_connected(&end.client)).count();
    assert!((100..=128).contains(&connected), "{connected}");
    world.connect();
}

#[test]
fn a_key_that_is_known_needs_no_invitation_and_uses_none_up() {
    let mut world = World::new(47);
    world.book.open.insert(token(1).digest(), (peer(1), None));
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let mut config = world.client_config(secret);
    config.invitation = Some(token(1));
    world.add_end(config, &[10]);
    world.connect();
    assert_eq!((world.book.asked, world.book.open.len()), (0, 1));
}
