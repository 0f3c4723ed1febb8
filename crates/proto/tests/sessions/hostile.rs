//! What others may send: nothing of it changes anything but counters.

use rand::{Rng, RngCore};

use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::freshness::Timestamp;
use ropewalk_proto::crypto::handshake::{Initiator, InitiatorConfig};
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Duration;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::parameters::Parameters;
use ropewalk_proto::wire::hello::{Hello, HelloKind, envelope, set_mac};
use ropewalk_settings::{PresharedKey, Profile};

use super::pair::{SERVER, To, Tun, World, batch, inner, link, ms, packet, peer};

/// An address of an attacker's.
fn elsewhere() -> Path {
    Path { socket: SocketId(0), local: None, remote: ([100, 99, 0, 0], 666).into() }
}

/// Everything that a machine shows, without what counts refusals.
fn shown(world: &World) -> String {
    let mut proxy = world.proxy.stats();
    let mut client = world.clients[0].client.stats();
    proxy.drops = Default::default();
    proxy.admission = Default::default();
    for peer in &mut proxy.peers {
        peer.drops = Default::default();
        if let Some(session) = &mut peer.session {
            session.tunnel.drops = Default::default();
        }
    }
    client.drops = Default::default();
    if let Some(tunnel) = &mut client.tunnel {
        tunnel.drops = Default::default();
    }
    format!("{proxy:?}\n{client:?}\n{:?}", world.states())
}

fn dropped(world: &World) -> u64 {
    let proxy = world.proxy.stats().drops.iter().map(|(_, count)| count).sum::<u64>();
    proxy + world.clients[0].client.stats().drops.iter().map(|(_, count)| count).sum::<u64>()
}

/// Plays a datagram in and checks that it was counted once, changed nothing and was not answered.
fn play(world: &mut World, to: To, path: Path, datagram: &[u8]) {
    play_all(world, to, path, [datagram.to_vec()]);
}

/// The same for many, looked at together.
fn play_all(
    world: &mut World,
    to: To,
    path: Path,
    datagrams: impl IntoIterator<Item = Vec<u8>>,
) -> u64 {
    let (before, count) = (shown(world), dropped(world));
    let timers =
        |world: &World| (world.proxy.poll_timeout(), world.clients[0].client.poll_timeout());
    let timers_before = timers(world);
    let mut tun = Tun::default();
    let mut played = 0;
    for mut datagram in datagrams {
        played += 1;
        let (now, ecn) = (world.now, Ecn::NotEct);
        match to {
            To::Proxy => world.proxy.handle_datagram(now, path, ecn, &mut datagram, &mut tun),
            To::Client(at) => {
                let client = &mut world.clients[at].client;
                client.handle_datagram(now, path, ecn, &mut datagram, &mut tun);
            }
        }
    }
    assert!(tun.0.is_empty());
    assert_eq!(dropped(world), count + played);
    assert_eq!(shown(world), before);
    assert_eq!(timers(world), timers_before);
    let mut batch = batch();
    match to {
        To::Proxy => world.proxy.poll_transmit(world.now, &mut batch),
        To::Client(at) => world.clients[at].client.poll_transmit(world.now, &mut batch),
    }
    assert!(batch.sent.is_empty(), "answered");
    assert!(world.proxy.poll_event().is_none() && world.clients[0].client.poll_event().is_none());
    played
}

/// A running session under its second keys, and one recorded datagram of every kind in each direction: under the
/// keys that still live and those before, and all of a handshake with a client whose clock is behind.
fn recorded(seed: u64, profile: Profile) -> (World, Vec<(To, Path, Vec<u8>)>) {
    let mut world = World::new(seed);
    let secret = StaticSecret::generate(&mut world.rng);
    let mut config = world.client_config(secret.clone());
    config.tunnel = TunnelConfig { rekey_after: ms(2500), ..TunnelConfig::of(profile) };
    world.proxy.set_peer(world.now + ms(5000), secret.public(), peer(0)).unwrap();
    world.add_end(config, &[10, 20]);
    world.record = Some(Vec::new());
    world.connect();
    world.run_for(ms(1500));
    for number in 0..20 {
        world.send_up(0, &packet(inner(0), SERVER, 84 + 60 * number as usize, number));
        world.run_for(ms(20));
    }
    world.run_for(ms(1500));
    for number in 0..3 {
        world.send_up(0, &packet(inner(0), SERVER, 84 + 400 * number as usize, number));
        world.run_for(ms(20));
    }
    world.run_for(ms(500));
    world.flush();
    let mut record = world.record.take().unwrap();
    record.push(versions(&world, &record));
    let mut kinds: Vec<(To, Path, Vec<u8>)> = Vec::new();
    for (to, path, data) in record {
        let like = |(other, _, seen): &&(To, Path, Vec<u8>)| {
            *other == to && seen[0] == data[0] && seen.len().abs_diff(data.len()) < 8
        };
        if !kinds.iter().any(|kind| like(&kind)) {
            kinds.push((to, path, data));
        }
    }
    let first_bytes = |to: To| -> Vec<u8> {
        let mut bytes: Vec<_> =
            kinds.iter().filter(|(other, ..)| *other == to).map(|(_, _, data)| data[0]).collect();
        bytes.sort_unstable();
        bytes.dedup();
        bytes
    };
    let sent: &[u8] = match profile {
        Profile::Paper => &[0x10, 0x11, 0x20, 0x21, 0x80],
        Profile::Default => &[0x20, 0x21, 0x30, 0x31, 0x40, 0x41, 0x80],
    };
    assert_eq!(first_bytes(To::Proxy), sent);
    let answered = [0x20, 0x21, 0x30, 0x31, 0x40, 0x41, 0x90, 0xa0, 0xb0];
    assert_eq!(first_bytes(To::Client(0)), answered);
    (world, kinds)
}

/// The list of versions with which a proxy of another version answers the first question of a record.
fn versions(world: &World, record: &[(To, Path, Vec<u8>)]) -> (To, Path, Vec<u8>) {
    let is_first = |(to, _, data): &&(To, Path, Vec<u8>)| *to == To::Proxy && data[0] == 0x80;
    let (_, _, question) = record.iter().find(is_first).unwrap();
    let question = Hello::parse(question).unwrap();
    let mut answer = envelope(HelloKind::Versions, 0, question.index);
    answer.extend_from_slice(&[2, 2, 3]);
    let mac = HelloMac::new(&world.secret.public());
    let sum = mac.answer(&question.mac, &Hello::parse(&answer).unwrap());
    set_mac(&mut answer, &sum);
    (To::Client(0), link(0).paths[0], answer)
}

#[test]
fn each_flipped_bit_of_each_kind_of_datagram_changes_nothing() {
    let (mut world, kinds) = recorded(1, Profile::Default);
    let mut played = 0;
    for (to, path, data) in &kinds {
        for from in [*path, elsewhere()] {
            let flipped = (0..data.len() * 8).map(|bit| {
                let mut flipped = data.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                flipped
            });
            played += play_all(&mut world, *to, from, flipped);
        }
    }
    println!("{} datagrams, {played} flipped ones", kinds.len());
    world.ping(0, ms(100));
}

#[test]
fn truncated_repeated_and_reflected_datagrams_change_nothing() {
    let (mut world, kinds) = recorded(2, Profile::Paper);
    for (to, path, data) in &kinds {
        for len in 1..data.len() {
            play(&mut world, *to, *path, &data[..len]);
        }
        let is_first = data[0] == 0x80;
        if !is_first {
            // A copy of a first message gets an answer; see below.
            play(&mut world, *to, *path, data);
            play(&mut world, *to, elsewhere(), data);
        }
        let back = if *to == To::Proxy { To::Client(0) } else { To::Proxy };
        play(&mut world, back, *path, data);
    }
    world.ping(0, ms(100));
}

#[test]
fn garbage_changes_nothing() {
    let (mut world, _) = recorded(3, Profile::Default);
    let index = world.clients[0].client.session().unwrap().index.get().to_be_bytes();
    let mine = world.proxy.stats().peers[0].session.clone().unwrap().info.index.get().to_be_bytes();
    play(&mut world, To::Proxy, elsewhere(), &[]);
    play(&mut world, To::Client(0), elsewhere(), &[]);
    for round in 0..20_000_u32 {
        let len = world.rng.random_range(1..300);
        let mut data = vec![0; len];
        world.rng.fill_bytes(&mut data);
        let types = [0x10, 0x20, 0x30, 0x40, 0x80, 0x90, 0xa0, 0xb0, data[0]];
        data[0] = types[round as usize % types.len()];
        let to = if round % 2 == 0 { To::Proxy } else { To::Client(0) };
        if let Some(place) = data.get_mut(2..5) {
            place.copy_from_slice(if to == To::Proxy { &mine[1..] } else { &index[1..] });
        }
        play(&mut world, to, elsewhere(), &data);
    }
    world.ping(0, ms(100));
}

#[test]
fn a_million_replayed_first_messages_make_no_session() {
    let count = 1_000_000_u32;
    let mut world = World::with_client(4, &[10, 20]);
    world.record = Some(Vec::new());
    world.connect();
    // A second session, so that there are messages of several ages.
    world.restart_proxy();
    world.run_for(ms(100));
    let mut firsts: Vec<_> = world.record.take().unwrap();
    firsts.retain(|(to, _, data)| *to == To::Proxy && data[0] == 0x80);
    world.send_up(0, &packet(inner(0), SERVER, 84, 1));
    world.run_for(ms(5000));
    world.ping(0, ms(200));
    let before = world.proxy.stats();
    assert_eq!((before.sessions, before.pending), (1, 0));
    let (mut answers, mut asked, mut given) = (0_u64, 0_u64, 0_u64);
    for round in 0..count {
        let (_, _, data) = &firsts[round as usize % firsts.len()];
        let mut data = data.clone();
        asked += data.len() as u64;
        world.proxy.handle_datagram(
            world.now,
            elsewhere(),
            Ecn::NotEct,
            &mut data,
            &mut Tun::default(),
        );
        let mut batch = batch();
        world.proxy.poll_transmit(world.now, &mut batch);
        for (path, answer) in batch.sent {
            if path == elsewhere() {
                assert!(answer.len() <= data.len());
                answers += 1;
                given += answer.len() as u64;
            }
        }
        if round % 100 == 0 {
            world.run_for(ms(10));
        }
    }
    let after = world.proxy.stats();
    println!("{count} replays: {answers} answers, {asked} bytes asked, {given} given");
    assert_eq!((after.sessions, after.pending), (1, 0));
    assert_eq!(after.admission.grants, before.admission.grants);
    assert_eq!(after.peers[0].sessions, before.peers[0].sessions);
    assert!(after.recent <= 4096);
    assert!(given <= asked);
    world.ping(0, ms(200));
}

#[test]
fn what_was_recorded_before_a_client_was_taken_out_of_the_table_makes_no_session_after() {
    let mut world = World::with_client(7, &[10]);
    world.record = Some(Vec::new());
    world.connect();
    let mut first = world.record.take().unwrap().remove(0).2;
    let key = world.clients[0].key;
    world.clients.clear();
    world.proxy.remove_peer(world.now, key);
    // Longer than a copy gets the answer that the original had.
    world.run_for(ms(6000));
    world.proxy.set_peer(world.now, key, peer(0)).unwrap();
    let grants = world.proxy.stats().admission.grants;
    let (now, ecn) = (world.now, Ecn::NotEct);
    world.proxy.handle_datagram(now, elsewhere(), ecn, &mut first, &mut Tun::default());
    let after = world.proxy.stats();
    assert_eq!((after.admission.grants, after.pending), (grants, 0));
    assert_eq!(after.admission.retries, 1);
}

#[test]
fn a_flood_of_forged_first_messages_keeps_nothing_and_is_limited() {
    let mut world = World::with_client(5, &[10]);
    world.record = Some(Vec::new());
    world.connect();
    world.run_for(ms(1500));
    let first = world.record.take().unwrap().remove(0).2;
    let mac = HelloMac::new(&world.secret.public());
    let before = world.proxy.stats();
    for _ in 0..5000 {
        // Whoever knows the proxy's public key can make the mac right.
        let mut forged = first.clone();
        world.rng.fill_bytes(&mut forged[24..]);
        let sum = mac.first(&Hello::parse(&forged).unwrap());
        set_mac(&mut forged, &sum);
        world.proxy.handle_datagram(
            world.now,
            elsewhere(),
            Ecn::NotEct,
            &mut forged,
            &mut Tun::default(),
        );
    }
    let after = world.proxy.stats();
    let decrypted = after.drops.get(DropReason::HandshakeNotAuthentic);
    assert_eq!(decrypted, 1010, "half of the burst, and a few by luck");
    let (asked, limited) = (DropReason::HandshakeNoCookie, DropReason::HandshakeRateLimited);
    assert_eq!(
        (after.drops.get(asked), after.admission.cookies),
        (8, 8),
        "as many as are sent at once"
    );
    assert_eq!(after.drops.get(limited), 5000 - decrypted - 8);
    assert_eq!(after.recent, before.recent);
    world.ping(0, ms(100));
}

#[test]
fn a_client_that_asks_without_end_is_limited_as_strangers_are() {
    let mut world = World::new(21);
    let local = StaticSecret::generate(&mut world.rng);
    world.allow(local.public(), peer(0));
    let config = InitiatorConfig {
        local,
        remote: world.secret.public(),
        psk: PresharedKey::NONE,
        ciphers: CipherSet::offered(Capabilities { aes: true }),
        parameters: Parameters::default(),
    };
    for number in 0..2500 {
        // All in the future of the one before, so that each is fresh.
        let time = Timestamp::from_unix(Duration::from_secs(1_900_000_000 + u64::from(number)));
        let asked = Initiator::new(&config, &mut world.rng, SessionIndex::new(number), time, None);
        let mut first = asked.message().to_vec();
        let tun = &mut Tun::default();
        world.proxy.handle_datagram(world.now, elsewhere(), Ecn::NotEct, &mut first, tun);
    }
    let grants = world.proxy.stats().admission.grants;
    assert_eq!(grants, 1011, "half of the burst, the one that was spared, and a few by luck");
}

#[test]
fn copies_of_a_session_that_race_from_another_address_move_nothing() {
    let mut world = World::with_client(6, &[10, 20]);
    world.connect();
    world.run_for(ms(1500));
    let paths = |world: &World| -> Vec<Path> {
        let session = world.proxy.stats().peers[0].session.clone().unwrap();
        session.tunnel.links.iter().map(|link| link.path).collect()
    };
    let before = paths(&world);
    for number in 0..200 {
        world.record = Some(Vec::new());
        world.send_up(0, &packet(inner(0), SERVER, 84, number));
        for (to, _, data) in world.record.take().unwrap() {
            if to == To::Proxy {
                world.inject(To::Proxy, elsewhere(), data);
            }
        }
        world.run_for(ms(15));
        assert_eq!(paths(&world), before);
    }
    world.ping(0, ms(100));
}
