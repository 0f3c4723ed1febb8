//! How a session comes about, and why not.

use rand::RngCore;

use ropewalk_proto::client::{ClientState, Trouble};
use ropewalk_proto::crypto::handshake::inquiry::{Inquiry, MIN_LEN};
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::crypto::{Cipher, CipherSet, StaticSecret};
use ropewalk_proto::endpoint::PeerConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::time::Duration;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_proto::wire::hello::{FIRST_LEN, Hello, HelloKind, envelope, set_mac};
use ropewalk_settings::PresharedKey;

use super::pair::{
    LISTEN, NAME_SERVERS, NOWHERE, PROXY, SERVER, To, World, inner, is_connected, key_of, link, ms,
    packet, peer,
};

/// First messages on their way up.
fn first_messages(world: &World) -> Vec<Vec<u8>> {
    let record = world.record.as_ref().unwrap();
    let sent = record.iter().filter(|(to, _, data)| *to == To::Proxy && data[0] == 0x80);
    sent.map(|(_, _, data)| data.clone()).collect()
}

fn trouble(world: &World) -> Trouble {
    match world.clients[0].client.state() {
        ClientState::Asking { trouble, .. }
        | ClientState::Waiting { trouble, .. }
        | ClientState::Stalled { trouble, .. } => trouble,
        state => panic!("{state:?}"),
    }
}

#[test]
fn the_link_that_answers_first_gives_the_session_and_the_others_join_it() {
    let mut world = World::with_client(1, &[200, 10, 80]);
    let took = world.connect();
    assert!(took <= ms(45), "two round trips of the fastest link, but {took:?}");
    world.run_for(ms(2000));
    assert_eq!(world.sessions_of(0), 1);
    let stats = world.clients[0].client.stats();
    assert_eq!(stats.tunnel.unwrap().links.len(), 3);
    assert!(stats.links.iter().all(|link| link.link.is_some()));
    let up: Vec<_> = world.clients[0]
        .events
        .iter()
        .filter(|told| matches!(told.event, Event::LinkUp(_)))
        .map(|told| told.link.unwrap())
        .collect();
    assert_eq!(up, [1, 2, 0].map(key_of));
    // The copies that came over the slow links got the same answer, which was not needed.
    assert_eq!(stats.drops.get(DropReason::HandshakeUnexpected), 2);
    let proxy = world.proxy.stats();
    assert_eq!((proxy.admission.grants, proxy.sessions, proxy.pending), (1, 1, 0));
    assert_eq!(proxy.drops.get(DropReason::FirstMessageRepeated), 2);
    world.ping(0, ms(500));
}

#[test]
fn both_ends_know_the_same_addresses_and_cipher() {
    let mut world = World::with_client(2, &[10]);
    world.connect();
    let mine = world.clients[0].client.session().unwrap().clone();
    let theirs = world.proxy.stats().peers[0].session.clone().unwrap().info;
    let client = format!("{}/16", inner(0)).parse().unwrap();
    let proxy = format!("{PROXY}/16").parse().unwrap();
    assert_eq!((mine.own.as_slice(), mine.peer.as_slice()), (&[client][..], &[proxy][..]));
    assert_eq!((theirs.own, theirs.peer), (mine.peer, mine.own));
    // The client has no inner IPv6 address with which to ask the other one.
    assert_eq!(mine.name_servers.as_slice(), &NAME_SERVERS[..1]);
    assert_eq!((mine.cipher, theirs.cipher), (Cipher::Aes256Gcm, Cipher::Aes256Gcm));
}

#[test]
fn lost_first_messages_only_cost_time() {
    for (lost, limit) in [(0, 50), (1, 380), (2, 1000), (3, 2250), (6, 6100)] {
        let mut world = World::with_client(3, &[10]);
        world.clients[0].wires[0].lose_first = lost;
        let took = world.connect();
        assert!(took <= ms(limit), "{lost} lost: {took:?}");
        assert_eq!(world.sessions_of(0), 1);
    }
}

#[test]
fn a_session_comes_about_over_links_that_lose_half() {
    for seed in 0..50 {
        let mut world = World::with_client(seed, &[30, 60]);
        world.clients[0].wires.iter_mut().for_each(|wire| wire.loss = 500);
        world.run_while(ms(20_000), |world| !is_connected(&world.clients[0].client));
    }
}

#[test]
fn an_address_that_answers_is_found_among_others() {
    let mut world = World::with_client(4, &[10]);
    let mut config = link(0);
    let good = config.paths[0];
    config.paths.clear();
    for _ in 0..7 {
        config.paths.push(ropewalk_proto::path::Path { remote: NOWHERE.into(), ..good });
    }
    config.paths.push(good);
    let end = &mut world.clients[0];
    end.client.set_link(world.now, key_of(0), Some(config), &mut end.tun).unwrap();
    let took = world.connect();
    assert!(took <= ms(45), "all addresses are asked at once, but {took:?}");
    assert_eq!(
        world.clients[0].client.stats().links[0].link.as_ref().unwrap().path.remote,
        LISTEN.into()
    );
}

#[test]
fn the_ladder_is_quick_at_first_and_then_patient_and_begins_again_with_a_link() {
    let mut world = World::with_client(5, &[10]);
    world.clients[0].wires[0].up = false;
    world.record = Some(Vec::new());
    world.run_for(ms(10_000));
    let early = first_messages(&world).len();
    assert!((9..=14).contains(&early), "{early} in the first ten seconds");
    world.run_for(Duration::from_secs(600));
    let late = first_messages(&world).len() - early;
    assert!((30..=70).contains(&late), "{late} in ten minutes");
    let mut different = first_messages(&world);
    different.dedup();
    assert!(different.len() * 2 > late, "later ones are fresh");
    assert_eq!(trouble(&world), Trouble::NoAnswer);
    world.clients[0].wires.push(super::pair::Wire::new(ms(10)));
    let end = &mut world.clients[0];
    end.client.set_link(world.now, key_of(1), Some(link(1)), &mut end.tun).unwrap();
    let took = world.connect();
    assert!(took <= ms(45), "{took:?}");
}

#[test]
fn the_time_of_asking_begins_with_the_first_link_and_again_after_a_sleep() {
    let mut world = World::with_client(31, &[10]);
    world.clients[0].wires[0].up = false;
    let asked_for = |world: &World| match world.clients[0].client.state() {
        ClientState::Asking { since, .. } => world.now.since(since),
        state => panic!("{state:?}"),
    };
    let set = |world: &mut World, config| {
        let end = &mut world.clients[0];
        end.client.set_link(world.now, key_of(0), config, &mut end.tun).unwrap();
    };
    world.run_for(ms(7000));
    assert_eq!(asked_for(&world), ms(7000));
    set(&mut world, None);
    world.run_for(ms(60_000));
    set(&mut world, Some(link(0)));
    world.run_for(ms(1000));
    assert_eq!(asked_for(&world), ms(1000), "without a link nobody was asked");
    world.clients[0].client.on_resume(world.now);
    world.run_for(ms(500));
    assert_eq!(asked_for(&world), ms(500), "nobody was asked while the machine slept");
}

#[test]
fn a_client_that_the_proxy_does_not_know_hears_nothing() {
    let mut world = World::new(6);
    let stranger = StaticSecret::generate(&mut world.rng);
    let config = world.client_config(stranger);
    world.add_end(config, &[10, 20]);
    world.record = Some(Vec::new());
    world.run_for(ms(20_000));
    let record = world.record.take().unwrap();
    assert!(record.iter().all(|(to, ..)| *to == To::Proxy));
    assert_eq!(trouble(&world), Trouble::NoAnswer);
    let stats = world.proxy.stats();
    assert!(stats.drops.get(DropReason::UnknownClient) > 0);
    assert_eq!((stats.sessions, stats.pending, stats.peers.len()), (0, 0, 0));
}

#[test]
fn a_client_with_the_wrong_key_of_the_proxy_hears_nothing_and_is_told_what_that_may_mean() {
    let mut world = World::new(7);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let mut config = world.client_config(secret);
    config.proxy = StaticSecret::generate(&mut world.rng).public();
    world.add_end(config, &[10]);
    world.record = Some(Vec::new());
    world.run_for(ms(20_000));
    assert!(world.record.take().unwrap().iter().all(|(to, ..)| *to == To::Proxy));
    assert!(world.proxy.stats().drops.get(DropReason::WrongMac) > 5);
    assert!(trouble(&world).to_string().contains("public key"));
}

#[test]
fn preshared_keys_that_differ_are_named_as_the_reason() {
    let mut world = World::new(8);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), PeerConfig { psk: PresharedKey::from_bytes([1; 32]), ..peer(0) });
    let config = world.client_config(secret);
    world.add_end(config, &[10]);
    world.run_for(ms(20_000));
    assert_eq!(trouble(&world), Trouble::NotAuthentic);
    let stats = world.proxy.stats();
    assert_eq!((stats.sessions, stats.pending), (0, 2), "the answers to two questions");
}

#[test]
fn a_refusal_says_why_and_is_asked_again_seldom() {
    let chacha = CipherSet::only(Cipher::ChaCha20Poly1305);
    let disabled = PeerConfig { enabled: false, ..peer(0) };
    let homeless = PeerConfig { inner_v4: None, ..peer(0) };
    let table = [
        (Refusal::Disabled, disabled, chacha),
        (Refusal::NoAddress, homeless, chacha),
        (Refusal::NoCommonCipher, peer(0), CipherSet::from_wire(0)),
    ];
    for (refusal, config, ciphers) in table {
        let mut world = World::new(9);
        let secret = StaticSecret::generate(&mut world.rng);
        world.allow(secret.public(), config);
        let mut client = world.client_config(secret);
        client.ciphers = ciphers;
        world.add_end(client, &[10, 20]);
        world.run_for(ms(29_000));
        assert_eq!(trouble(&world), Trouble::Refused(refusal));
        assert_eq!(world.events(0), [Event::Refused(refusal)]);
        assert_eq!(world.proxy.stats().admission.refusals, 1);
        world.run_for(ms(2000));
        assert_eq!(world.proxy.stats().admission.refusals, 2);
        assert_eq!(world.proxy.stats().sessions, 0);
    }
}

#[test]
fn a_proxy_that_drains_says_so_to_whom_it_knows_and_to_nobody_else_and_sessions_go_on() {
    let mut world = World::with_client(11, &[10, 20]);
    world.connect();
    world.proxy.set_draining(true);
    let known = world.add_client(&[10]);
    let secret = StaticSecret::generate(&mut world.rng);
    let config = world.client_config(secret);
    let stranger = world.add_end(config, &[10]);
    world.run_for(ms(200));
    assert_eq!(world.events(known), [Event::Refused(Refusal::Draining)]);
    assert_eq!((world.events(stranger), world.proxy.stats().admission.refusals), (vec![], 1));
    world.ping(0, ms(100));

    world.run_for(ms(14_700));
    assert_eq!(world.proxy.stats().admission.refusals, 1, "it is asked again after 15 s");
    world.run_for(ms(300));
    assert_eq!(world.proxy.stats().admission.refusals, 2);
    assert_eq!(world.proxy.stats().sessions, 1);
    world.proxy.set_draining(false);
    world.run_while(ms(16_000), |world| !is_connected(&world.clients[known].client));
    assert_eq!(world.events(stranger), []);
}

#[test]
fn a_proxy_that_drains_answers_no_question_whether_it_is_there() {
    let mut world = World::with_client(12, &[10]);
    world.connect();
    world.run_for(ms(1000));
    let index = ropewalk_proto::units::SessionIndex::new(7);
    let question = Inquiry::new(&world.secret.public(), index, MIN_LEN);
    let from = world.seen_as(0, 0);
    for (draining, answers) in [(false, 1), (true, 0)] {
        world.proxy.set_draining(draining);
        let before = world.proxy.stats().admission.version_answers;
        world.inject(To::Proxy, from, question.datagram().to_vec());
        world.run_for(ms(100));
        let after = world.proxy.stats().admission.version_answers;
        assert_eq!(after - before, answers, "draining: {draining}");
    }
}

#[test]
fn a_full_proxy_says_so_and_a_client_that_returns_has_its_place() {
    let mut world = World::new(10);
    world.add_client(&[10]);
    world.restart_proxy_with_room(1);
    world.connect();
    world.add_client(&[10]);
    world.restart_proxy_with_room(1);
    world.run_for(ms(5000));
    let connected = world.clients.iter().filter(|end| is_connected(&end.client)).count();
    let refused = (0..2).filter(|at| world.events(*at).contains(&Event::Refused(Refusal::Full)));
    assert_eq!((connected, refused.count()), (1, 1));
}

#[test]
fn a_clock_that_went_back_is_healed_by_one_more_round_trip() {
    let mut world = World::new(11);
    let secret = StaticSecret::generate(&mut world.rng);
    world.allow(secret.public(), peer(0));
    let config = world.client_config(secret.clone());
    world.add_end(config.clone(), &[50, 60]);
    let usual = world.connect();
    world.clients.clear();
    let mut back = config;
    back.wall_clock -= Duration::from_secs(86_400 * 365);
    world.add_end(back, &[50, 60]);
    let took = world.connect();
    assert!(took <= usual + ms(101), "{took:?} instead of {usual:?}");
    assert_eq!(world.clients[0].client.stats().handshake.retries, 1);
    assert_eq!(world.proxy.stats().admission.retries, 1);
    assert_eq!(world.sessions_of(0), 1);
}

#[test]
fn a_first_message_in_another_version_gets_one_answer_that_is_no_longer() {
    let mut world = World::with_client(12, &[10]);
    world.record = Some(Vec::new());
    world.run_for(ms(0));
    let mac = HelloMac::new(&world.secret.public());
    let question = first_messages(&world).remove(0);
    for len in [FIRST_LEN, 25, 24, 60, 1200] {
        let mut asked = question.clone();
        asked.resize(len, 0);
        asked[1] = 9;
        let sum = mac.first(&Hello::parse(&asked).unwrap());
        set_mac(&mut asked, &sum);
        world.record = Some(Vec::new());
        let from = world.seen_as(0, 0);
        world.proxy.handle_datagram(
            world.now,
            from,
            ropewalk_proto::ecn::Ecn::NotEct,
            &mut asked,
            &mut world.proxy_tun,
        );
        world.flush();
        let answers = world.record.take().unwrap();
        if len < 26 {
            assert_eq!(answers.len(), 0, "an answer would be longer than {len} bytes");
        } else {
            assert_eq!(answers.len(), 1);
            let (_, _, answer) = &answers[0];
            assert!(answer.len() <= len);
            assert_eq!(answer[0], HelloKind::Versions.first_byte());
            assert_eq!(answer[24..26], [1, 1], "one version: 1");
        }
    }
}

#[test]
fn lists_of_versions_are_limited_in_rate() {
    let mut world = World::with_client(13, &[10]);
    let mac = HelloMac::new(&world.secret.public());
    let from = world.seen_as(0, 0);
    for number in 0..3000_u32 {
        let mut asked =
            envelope(HelloKind::First, 2, ropewalk_proto::units::SessionIndex::new(number));
        asked.resize(FIRST_LEN, 0);
        let sum = mac.first(&Hello::parse(&asked).unwrap());
        set_mac(&mut asked, &sum);
        world.inject(To::Proxy, from, asked);
    }
    world.run_for(ms(100));
    assert_eq!(world.proxy.stats().admission.version_answers, 1000);
    assert!(is_connected(&world.clients[0].client), "others are not hindered");
}

#[test]
fn a_client_says_which_versions_the_proxy_speaks_but_goes_on_waiting() {
    let mut world = World::with_client(14, &[10]);
    world.clients[0].wires[0].up = false;
    world.record = Some(Vec::new());
    world.run_for(ms(0));
    let question = first_messages(&world)[0].clone();
    let question = Hello::parse(&question).unwrap();
    // As a proxy of another version answers, or an observer who knows the proxy's public key.
    let mut answer = envelope(HelloKind::Versions, 0, question.index);
    answer.extend_from_slice(&[2, 2, 3]);
    let mac = HelloMac::new(&world.secret.public());
    let sum = mac.answer(&question.mac, &Hello::parse(&answer).unwrap());
    set_mac(&mut answer, &sum);
    let path = link(0).paths[0];
    world.inject(To::Client(0), path, answer.clone());
    world.inject(To::Client(0), path, answer);
    world.run_for(ms(50));
    let versions: ropewalk_proto::event::VersionList = [2, 3].into_iter().collect();
    assert_eq!(world.events(0), [Event::OtherVersions(versions.clone())]);
    assert_eq!(trouble(&world), Trouble::OtherVersions(versions));
    // It was a forgery: the true answer still counts.
    world.clients[0].wires[0].up = true;
    world.connect();
}

#[test]
fn forged_retries_do_not_keep_the_true_answer_out() {
    let mut world = World::with_client(15, &[40]);
    let mac = HelloMac::new(&world.secret.public());
    let path = link(0).paths[0];
    world.record = Some(Vec::new());
    world.run_for(ms(0));
    let mut forged = 0;
    for _ in 0..400 {
        // The observer answers every first message at once.
        for question in first_messages(&world) {
            let question = Hello::parse(&question).unwrap();
            let mut answer = envelope(HelloKind::Retry, 1, question.index);
            let mut token = [0; 24];
            world.rng.fill_bytes(&mut token);
            answer.extend_from_slice(&token);
            let sum = mac.answer(&question.mac, &Hello::parse(&answer).unwrap());
            set_mac(&mut answer, &sum);
            world.inject(To::Client(0), path, answer);
            forged += 1;
        }
        world.record = Some(Vec::new());
        world.run_for(ms(1));
    }
    assert!(forged > 1);
    assert!(is_connected(&world.clients[0].client), "{:?}", world.states());
    assert!(world.clients[0].client.stats().handshake.retries <= 2);
}

#[test]
fn packets_before_the_session_are_dropped_and_counted() {
    let mut world = World::with_client(16, &[10]);
    world.send_up(0, &packet(inner(0), SERVER, 84, 1));
    world.send_down(&packet(SERVER, inner(0), 84, 1));
    assert_eq!(world.clients[0].client.stats().drops.get(DropReason::NoSession), 1);
    assert_eq!(world.proxy.stats().drops.get(DropReason::UnknownDestination), 1);
}

#[test]
fn a_client_that_stops_says_so() {
    let mut world = World::with_client(17, &[10, 20]);
    world.connect();
    world.run_for(ms(500));
    let end = &mut world.clients[0];
    end.client.close(world.now);
    assert!(!end.client.is_closed());
    world.run_for(ms(50));
    assert!(world.clients[0].client.is_closed());
    assert_eq!(world.proxy.stats().sessions, 0);
    let last = world.proxy_events.last().unwrap();
    let closed = EndReason::Closed(CloseReason::Shutdown);
    assert_eq!((last.peer, &last.event), (world.clients[0].key, &Event::SessionEnded(closed)));
    assert_eq!(world.states(), [ClientState::Closed]);
    world.run_for(Duration::from_secs(100));
    assert_eq!(world.proxy.stats().sessions, 0);
}

#[test]
fn links_come_and_go_while_packets_flow() {
    let mut world = World::with_client(18, &[10, 20, 30]);
    world.connect();
    world.run_for(ms(1000));
    for round in 0..8 {
        let at = round % 3;
        let end = &mut world.clients[0];
        let config = (round % 2 == 0).then(|| link(at));
        end.client.set_link(world.now, key_of(at), config, &mut end.tun).unwrap();
        world.ping(0, ms(300));
        let end = &mut world.clients[0];
        end.client.set_link(world.now, key_of(at), Some(link(at)), &mut end.tun).unwrap();
        world.ping(0, ms(300));
        world.run_for(ms(1500));
        assert_eq!(world.clients[0].client.stats().tunnel.unwrap().links.len(), 3);
        assert_eq!(world.proxy.stats().peers[0].session.clone().unwrap().tunnel.links.len(), 3);
    }
    assert_eq!(world.sessions_of(0), 1);
    for at in 0..3 {
        let end = &mut world.clients[0];
        end.client.set_link(world.now, key_of(at), None, &mut end.tun).unwrap();
    }
    assert_eq!(world.states(), [ClientState::NoLinks]);
    world.run_for(ms(5000));
    let end = &mut world.clients[0];
    end.client.set_link(world.now, key_of(1), Some(link(1)), &mut end.tun).unwrap();
    world.connect();
    world.run_for(ms(1500));
    world.ping(0, ms(300));
}

#[test]
fn hundreds_of_links_later_the_ids_have_not_run_out() {
    let mut world = World::with_client(19, &[5, 5]);
    world.connect();
    let ids = |world: &World| {
        let links = world.clients[0].client.stats().links;
        links.iter().filter(|link| link.link.is_some()).count()
    };
    let mut refused = 0;
    for round in 0..600 {
        let end = &mut world.clients[0];
        end.client
            .set_link(world.now, key_of(round % 2), Some(link(round % 2)), &mut end.tun)
            .unwrap();
        world.run_for(ms(120));
        if ids(&world) < 2 {
            // Nobody touches the links again: the ids are free when the old keys are dead.
            refused += 1;
            let took = world.run_while(ms(12_000), |world| ids(world) < 2);
            println!("round {round}: a link waited {took:?} for its id");
        }
    }
    let rekeys = world.events(0).iter().filter(|event| matches!(event, Event::Rekeyed(_))).count();
    println!("{rekeys} rekeys, {} sessions, {refused} links waited", world.sessions_of(0));
    assert!(refused > 0);
    assert_eq!(rekeys, refused, "none in vain");
    assert_eq!(world.clients[0].client.stats().tunnel.unwrap().links.len(), 2);
    world.run_for(ms(1500));
    world.ping(0, ms(300));
}
