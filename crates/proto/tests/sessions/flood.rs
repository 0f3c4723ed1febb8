//! Too many first messages: those with a cookie are served, the others get one.

use rand::RngCore;

use ropewalk_proto::crypto::cookie::Cookie;
use ropewalk_proto::crypto::freshness::Timestamp;
use ropewalk_proto::crypto::handshake::{Answer, Initiator, InitiatorConfig};
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::AdmissionCounters;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Duration;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::parameters::Parameters;
use ropewalk_proto::wire::hello::{
    FIRST_LEN, Hello, HelloKind, MAC_LEN, envelope, set_mac, write_with_proof,
};
use ropewalk_settings::PresharedKey;

use super::pair::{To, Tun, World, batch, is_connected, ms, peer};

/// The first byte of a first message with proof.
const WITH_PROOF: u8 = 0xd0;
/// The first byte of an answer with a cookie.
const COOKIE: u8 = 0xc0;

/// An address of a stranger, true or invented.
fn at(address: [u8; 4], port: u16) -> Path {
    Path { socket: SocketId(0), local: None, remote: (address, port).into() }
}

const HERE: [u8; 4] = [203, 0, 113, 9];

/// So many first messages from as many invented addresses, with a right mac and nothing behind it.
fn flood(world: &mut World, messages: u32) {
    let mac = HelloMac::new(&world.secret.public());
    world.flush();
    for _ in 0..messages {
        let index = SessionIndex::new(world.rng.next_u32());
        let mut forged = envelope(HelloKind::First, 1, index);
        forged.resize(FIRST_LEN, 0);
        world.rng.fill_bytes(&mut forged[24..]);
        let sum = mac.first(&Hello::parse(&forged).unwrap());
        set_mac(&mut forged, &sum);
        let [_, a, b, c] = world.rng.next_u32().to_be_bytes();
        give(world, at([198, a, b, c], 4000), &forged);
        // The cookies go to nobody.
        drain(world);
    }
}

fn give(world: &mut World, from: Path, datagram: &[u8]) {
    let (now, mut datagram) = (world.now, datagram.to_vec());
    world.proxy.handle_datagram(now, from, Ecn::NotEct, &mut datagram, &mut Tun::default());
}

fn drain(world: &mut World) -> Vec<Vec<u8>> {
    let mut batch = batch();
    world.proxy.poll_transmit(world.now, &mut batch);
    batch.sent.into_iter().map(|(_, datagram)| datagram).collect()
}

/// What the proxy answers to one datagram.
fn ask(world: &mut World, from: Path, datagram: &[u8]) -> Option<Vec<u8>> {
    drain(world);
    give(world, from, datagram);
    let mut answers = drain(world);
    assert!(answers.len() <= 1, "one question, {} answers", answers.len());
    assert!(answers.iter().all(|answer| answer.len() <= datagram.len()), "nothing is amplified");
    answers.pop()
}

/// A client that the proxy knows, driven by hand.
struct ByHand {
    config: InitiatorConfig,
    number: u32,
}

impl ByHand {
    fn new(world: &mut World) -> Self {
        let local = StaticSecret::generate(&mut world.rng);
        world.allow(local.public(), peer(200));
        let config = InitiatorConfig {
            local,
            remote: world.secret.public(),
            psk: PresharedKey::NONE,
            ciphers: CipherSet::offered(Capabilities { aes: true }),
            parameters: Parameters::default(),
        };
        Self { config, number: 0 }
    }

    /// A new question, newer than the last.
    fn question(&mut self, world: &mut World) -> Initiator {
        self.number += 1;
        let time = Duration::from_secs(1_900_000_000 + u64::from(self.number));
        let (index, time) = (SessionIndex::new(self.number), Timestamp::from_unix(time));
        Initiator::new(&self.config, &mut world.rng, index, time, None)
    }

    /// The cookie of an address, from a proxy that asks for it.
    fn cookie(&mut self, world: &mut World, from: Path) -> Cookie {
        let mut question = self.question(world);
        let answer = ask(world, from, question.message()).unwrap();
        match question.handle_answer(&answer) {
            Ok(Answer::Cookie(cookie)) => cookie,
            other => panic!("{other:?}"),
        }
    }
}

fn with_proof(question: &Initiator, cookie: &Cookie) -> Vec<u8> {
    let mut message = vec![0; question.message().len() + MAC_LEN];
    write_with_proof(&mut message, question.message(), &question.proof(cookie));
    message
}

fn counters(world: &World) -> AdmissionCounters {
    world.proxy.stats().admission
}

fn drops(world: &World, reason: DropReason) -> u64 {
    world.proxy.stats().drops.get(reason)
}

/// The first bytes of what went between a client and the proxy while there was no session.
fn handshakes(world: &World) -> Vec<u8> {
    let record = world.record.as_ref().unwrap();
    record.iter().map(|(_, _, data)| data[0]).filter(|first| *first >= 0x80).collect()
}

#[test]
fn who_comes_to_a_proxy_with_little_to_do_hears_of_no_cookies() {
    let mut world = World::with_client(1, &[10, 20]);
    world.record = Some(Vec::new());
    world.connect();
    assert!(handshakes(&world).iter().all(|first| [0x80, 0x90].contains(first)));
    assert_eq!((counters(&world).cookies, counters(&world).with_cookie), (0, 0));
    assert!(!world.proxy.is_asking_for_cookies());
    // A proof that nobody asked for does no harm.
    let mut client = ByHand::new(&mut world);
    let question = client.question(&mut world);
    let useless = with_proof(&question, &Cookie::from_bytes([7; MAC_LEN]));
    let answer = ask(&mut world, at(HERE, 1), &useless).unwrap();
    assert_eq!(answer[0], HelloKind::Response.first_byte());
}

#[test]
fn under_a_flood_a_client_is_in_one_round_trip_later() {
    let mut world = World::with_client(2, &[43, 97]);
    flood(&mut world, 3000);
    assert!(world.proxy.is_asking_for_cookies());
    world.record = Some(Vec::new());
    let start = world.now;
    while !is_connected(&world.clients[0].client) {
        // A hundred thousand a second.
        flood(&mut world, 100);
        world.run_for(ms(1));
        assert!(world.now.since(start) < ms(500), "{:?}", world.states());
    }
    let took = world.now.since(start);
    // The cookie, the session, the links: a round trip of the fastest link for each, and the link's proof.
    assert!((ms(256)..ms(262)).contains(&took), "{took:?}");
    assert_eq!((counters(&world).grants, counters(&world).with_cookie), (1, 1));
    let stats = world.clients[0].client.stats();
    assert!(stats.handshake.cookies >= 1 && stats.handshake.attempts == 1);
    for expected in [0x80, COOKIE, WITH_PROOF, 0x90] {
        assert!(handshakes(&world).contains(&expected), "{expected:#x}");
    }
    world.run_for(ms(1500));
    world.ping(0, ms(500));
}

#[test]
fn over_every_link_the_question_with_a_cookie_is_one_question() {
    let mut world = World::with_client(3, &[5, 6, 7]);
    flood(&mut world, 3000);
    // No luck for it.
    world.connect();
    world.run_for(ms(1000));
    let admission = counters(&world);
    assert_eq!((admission.grants, admission.retries), (1, 0));
    assert_eq!(world.sessions_of(0), 1);
    assert_eq!(world.clients[0].client.stats().handshake.cookies, 3, "one for each address");
}

#[test]
fn a_cookie_counts_for_the_address_and_port_that_it_went_to() {
    let mut world = World::new(4);
    let mut client = ByHand::new(&mut world);
    flood(&mut world, 3000);
    let cookie = client.cookie(&mut world, at(HERE, 5000));
    let question = client.question(&mut world);
    let message = with_proof(&question, &cookie);
    for elsewhere in [at(HERE, 5001), at([203, 0, 113, 10], 5000)] {
        let answer = ask(&mut world, elsewhere, &message).unwrap();
        assert_eq!(answer[0], COOKIE, "{elsewhere:?}");
    }
    assert_eq!(drops(&world, DropReason::HandshakeWrongCookie), 2);
    let answer = ask(&mut world, at(HERE, 5000), &message).unwrap();
    assert_eq!(answer[0], HelloKind::Response.first_byte());
    // Another message does not get by with the proof of this one.
    let mut other = with_proof(&client.question(&mut world), &cookie);
    let end = message.len() - MAC_LEN;
    other[end..].copy_from_slice(&message[end..]);
    assert_eq!(ask(&mut world, at(HERE, 5000), &other).unwrap()[0], COOKIE);
}

#[test]
fn a_cookie_counts_for_two_to_four_minutes() {
    for (given, later, counts) in
        [(0, 119, true), (119, 120, true), (60, 181, false), (0, 999, false)]
    {
        let mut world = World::new(5);
        // The secret is as old as the proxy, which is a second old.
        world.run_for(Duration::from_secs(given));
        let mut client = ByHand::new(&mut world);
        flood(&mut world, 3000);
        let cookie = client.cookie(&mut world, at(HERE, 5000));
        world.run_for(Duration::from_secs(later));
        flood(&mut world, 3000);
        let question = client.question(&mut world);
        let answer = ask(&mut world, at(HERE, 5000), &with_proof(&question, &cookie)).unwrap();
        let response = HelloKind::Response.first_byte();
        assert_eq!(answer[0] == response, counts, "given at {given} s, shown {later} s later");
    }
}

#[test]
fn a_client_that_knows_no_cookies_is_served_by_luck() {
    let mut world = World::new(6);
    let mut old = ByHand::new(&mut world);
    flood(&mut world, 3000);
    let (mut served, mut asked) = (0, 0);
    while served == 0 {
        if world.rng.next_u32() & 1 == 0 {
            flood(&mut world, 2);
        }
        let question = old.question(&mut world);
        let answer = ask(&mut world, at(HERE, 5000), question.message()).unwrap();
        served += u32::from(answer[0] == HelloKind::Response.first_byte());
        asked += 1;
        assert!(asked < 1000, "never");
        world.run_for(ms(1));
    }
    assert!(asked > 1, "it was luck");
    assert!(world.proxy.is_asking_for_cookies());
}

#[test]
fn an_old_proxy_gets_no_proof_as_it_gives_no_cookies() {
    let mut world = World::with_client(7, &[10]);
    world.record = Some(Vec::new());
    world.clients[0].wires[0].lose_first = 3;
    world.connect();
    assert!(!handshakes(&world).contains(&WITH_PROOF));
}

#[test]
fn who_did_not_see_the_question_cannot_make_a_client_believe_in_a_cookie() {
    let mut world = World::with_client(8, &[40]);
    world.record = Some(Vec::new());
    world.run_for(ms(1));
    let (_, _, question) = world.record.take().unwrap().remove(0);
    world.record = Some(Vec::new());
    let index = Hello::parse(&question).unwrap().index;
    let mac = HelloMac::new(&world.secret.public());
    let path = Path { remote: super::pair::LISTEN.into(), ..at(HERE, 1) };
    for guess in 0..100 {
        let mut forged = envelope(HelloKind::Cookie, 1, index);
        forged.extend_from_slice(&[guess; MAC_LEN]);
        let sum = mac.answer(&[guess; MAC_LEN], &Hello::parse(&forged).unwrap());
        set_mac(&mut forged, &sum);
        world.inject(To::Client(0), path, forged);
    }
    world.connect();
    assert!(!handshakes(&world).contains(&WITH_PROOF));
    let stats = world.clients[0].client.stats();
    assert_eq!((stats.handshake.cookies, stats.drops.get(DropReason::AnswerWrongMac)), (0, 100));
}

#[test]
fn an_observer_who_forges_cookies_has_the_client_send_little_and_keeps_it_from_nothing() {
    let mut world = World::with_client(9, &[43]);
    flood(&mut world, 3000);
    let mac = HelloMac::new(&world.secret.public());
    let path = Path { remote: super::pair::LISTEN.into(), ..at(HERE, 1) };
    world.record = Some(Vec::new());
    let start = world.now;
    let mut forgeries = 0;
    while !is_connected(&world.clients[0].client) {
        world.run_for(ms(1));
        let record = world.record.as_ref().unwrap();
        let seen = record.iter().rev().find(|(to, _, data)| *to == To::Proxy && data[0] >= 0x80);
        let Some(question) = seen.map(|(_, _, data)| Hello::parse(data).unwrap().mac) else {
            continue;
        };
        // Every millisecond for a while, then the observer rests for two seconds.
        if world.now.since(start).as_millis() % 4000 < 2000 {
            let index = Hello::parse(&record[0].2).unwrap().index;
            let mut forged = envelope(HelloKind::Cookie, 1, index);
            forged.extend_from_slice(&[9; MAC_LEN]);
            let sum = mac.answer(&question, &Hello::parse(&forged).unwrap());
            set_mac(&mut forged, &sum);
            world.inject(To::Client(0), path, forged);
            forgeries += 1;
        }
        assert!(world.now.since(start) < ms(6000), "{:?}", world.states());
        flood(&mut world, 3);
    }
    let sent = world.clients[0].client.stats().handshake.sent;
    assert!(forgeries > 500 && sent < 30, "{forgeries} forged, {sent} sent");
}

#[test]
fn a_copy_of_a_message_with_proof_makes_no_second_session() {
    let mut world = World::new(10);
    let mut client = ByHand::new(&mut world);
    flood(&mut world, 3000);
    let cookie = client.cookie(&mut world, at(HERE, 5000));
    let message = with_proof(&client.question(&mut world), &cookie);
    let answer = ask(&mut world, at(HERE, 5000), &message).unwrap();
    let grants = counters(&world).grants;
    for port in 0..5000 {
        let again = ask(&mut world, at(HERE, port), &message).unwrap();
        assert_eq!(again, answer, "the same answer");
    }
    world.run_for(ms(6000));
    flood(&mut world, 3000);
    // Its own address: decrypted once more, and stale.
    let late = ask(&mut world, at(HERE, 5000), &message).unwrap();
    assert_eq!(late[0], HelloKind::Retry.first_byte());
    assert_eq!(counters(&world).grants, grants);
}

#[test]
fn one_address_with_a_cookie_uses_up_its_own_allowance_only() {
    let mut world = World::new(11);
    let mut client = ByHand::new(&mut world);
    flood(&mut world, 3000);
    let cookie = client.cookie(&mut world, at(HERE, 5000));
    let response = HelloKind::Response.first_byte();
    let mut served = 0;
    for _ in 0..200 {
        let question = client.question(&mut world);
        let answer = ask(&mut world, at(HERE, 5000), &with_proof(&question, &cookie));
        served += u32::from(answer.is_some_and(|answer| answer[0] == response));
    }
    assert_eq!(served, 40);
    assert_eq!(drops(&world, DropReason::HandshakeAddressLimited), 160);
    let other = at([203, 0, 113, 10], 5000);
    let cookie = client.cookie(&mut world, other);
    let question = client.question(&mut world);
    let answer = ask(&mut world, other, &with_proof(&question, &cookie)).unwrap();
    assert_eq!(answer[0], response);
}

#[test]
fn many_true_addresses_are_limited_together() {
    let mut world = World::new(12);
    let mut stranger = ByHand::new(&mut world);
    stranger.config.local = StaticSecret::generate(&mut world.rng);
    flood(&mut world, 3000);
    let before = drops(&world, DropReason::UnknownClient);
    for number in 0..3000_u16 {
        let [a, b] = number.to_be_bytes();
        let from = at([198, 18, a, b], 5000);
        let cookie = stranger.cookie(&mut world, from);
        let question = stranger.question(&mut world);
        ask(&mut world, from, &with_proof(&question, &cookie));
    }
    assert_eq!(drops(&world, DropReason::UnknownClient) - before, 2000, "the burst");
}

#[test]
fn when_the_flood_is_over_no_cookies_are_asked_for() {
    let mut world = World::new(13);
    flood(&mut world, 3000);
    world.run_for(ms(4900));
    assert!(world.proxy.is_asking_for_cookies());
    world.run_for(ms(200));
    assert!(!world.proxy.is_asking_for_cookies(), "without another datagram");
    let mut client = ByHand::new(&mut world);
    let question = client.question(&mut world);
    let answer = ask(&mut world, at(HERE, 1), question.message()).unwrap();
    assert_eq!(answer[0], HelloKind::Response.first_byte());
}
