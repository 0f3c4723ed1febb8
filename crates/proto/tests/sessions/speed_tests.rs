//! Speed tests between a client and a proxy that bounds them: what a session may have, and what all clients may.

use ropewalk_proto::endpoint::{PeerConfig, SpeedRules};
use ropewalk_proto::event::Event;
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::{InnerFilter, SPEED_LIFETIME, SpeedAnswer, SpeedError, SpeedPhase};
use ropewalk_proto::wire::frame::{SpeedLoad, SpeedRefusal};
use ropewalk_settings::SpeedTests;

use super::pair::{World, key_of, ms, peer};

/// Bytes of test data of a phase: wires of no rate take all at once.
const SOME: u64 = 300_000;

/// Of 100 kB so much is had at least: the proxy refuses when less than 64 KiB are left.
const LEAST_OF_100_KB: u64 = 100_000 - (64 << 10);

/// So many clients that have been connected for a while to a proxy that lets them test so much.
fn connected(seed: u64, clients: usize, limits: SpeedTests) -> World {
    let mut world = World::new(seed);
    world.echo = false;
    for _ in 0..clients {
        world.add_client(&[10, 20]);
    }
    world.restart_proxy_testing(Some(SpeedRules::new(limits)));
    world.connect();
    world.run_for(ms(2000));
    world
}

fn begin(
    world: &mut World,
    client: usize,
    load: SpeedLoad,
    length: Duration,
) -> Result<(), SpeedError> {
    let phase = SpeedPhase {
        links: [(key_of(0), SOME), (key_of(1), SOME)].into_iter().collect(),
        bytes: SOME,
        load,
        until: world.now + length,
    };
    let begun = world.clients[client].client.begin_speed_phase(world.now, &phase);
    world.flush();
    begun
}

fn answer(world: &World, client: usize) -> Option<SpeedAnswer> {
    world.clients[client].client.speed_answer()
}

/// Test data that a client received, bytes with IP and UDP headers.
fn came(world: &World, client: usize) -> u64 {
    let stats = world.clients[client].client.stats();
    let links = stats.links.iter().filter_map(|link| link.link.as_ref());
    links.map(|link| link.filler.received.bytes + 28 * link.filler.received.datagrams).sum()
}

/// After how long a client may test again that has used up its hour.
fn used_up(world: &World, client: usize) -> Duration {
    match answer(world, client) {
        Some(SpeedAnswer::Refused { why: SpeedRefusal::UsedUp, wait: Some(wait) }) => wait,
        other => panic!("{other:?}"),
    }
}

const fn refused(why: SpeedRefusal) -> Option<SpeedAnswer> {
    Some(SpeedAnswer::Refused { why, wait: None })
}

#[test]
fn a_phase_down_brings_test_data_up_to_its_bound_and_the_proxy_tells_of_the_test_once() {
    let mut world = connected(1, 1, SpeedTests::default());
    begin(&mut world, 0, SpeedLoad::Idle, ms(1000)).unwrap();
    world.run_for(ms(1000));
    assert_eq!((answer(&world, 0), came(&world, 0)), (Some(SpeedAnswer::Granted), 0));
    let trips = world.clients[0].client.speed_trips(key_of(1)).unwrap();
    assert!(trips.percentile(50).is_some_and(|trip| (ms(40)..ms(45)).contains(&trip)));
    begin(&mut world, 0, SpeedLoad::Down, ms(2000)).unwrap();
    world.run_for(ms(2000));
    let bytes = came(&world, 0);
    assert!((SOME - 3000..=SOME).contains(&bytes), "{bytes}");
    let told = world.proxy_events.iter().filter(|told| told.event == Event::SpeedTest).count();
    assert_eq!(told, 1);
}

#[test]
fn of_a_client_that_begins_test_after_test_the_owner_hears_once_a_minute_and_each_costs_a_second() {
    let mut world = connected(8, 1, SpeedTests { time: ms(60_000), ..SpeedTests::default() });
    let begin_and_end = |world: &mut World, times: usize| {
        for _ in 0..times {
            begin(world, 0, SpeedLoad::Idle, ms(1000)).unwrap();
            world.run_for(ms(30));
            world.clients[0].client.end_speed_test();
            world.run_for(ms(30));
        }
        world.proxy_events.iter().filter(|told| told.event == Event::SpeedTest).count()
    };
    assert_eq!(begin_and_end(&mut world, 20), 1);
    world.run_for(ms(60_000));
    assert_eq!(begin_and_end(&mut world, 20), 2);
    begin(&mut world, 0, SpeedLoad::Idle, ms(1000)).unwrap();
    world.run_for(ms(100));
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted), "a third of its minute is left");
    world.clients[0].client.end_speed_test();
    world.run_for(ms(30));
    begin_and_end(&mut world, 20);
    begin(&mut world, 0, SpeedLoad::Idle, ms(1000)).unwrap();
    world.run_for(ms(100));
    assert!(used_up(&world, 0) > ms(3_400_000));
}

#[test]
fn a_proxy_older_than_speed_tests_is_asked_for_none() {
    let mut world = World::new(2);
    world.add_client(&[10]);
    world.restart_proxy_testing(None);
    world.connect();
    assert_eq!(begin(&mut world, 0, SpeedLoad::Down, ms(1000)), Err(SpeedError::TooOld));
    world.run_for(ms(1000));
    assert_eq!((answer(&world, 0), came(&world, 0)), (None, 0));
}

#[test]
fn without_a_session_there_is_nothing_to_test() {
    let mut world = World::new(3);
    world.add_client(&[10]);
    assert_eq!(begin(&mut world, 0, SpeedLoad::Down, ms(1000)), Err(SpeedError::NoSession));
}

#[test]
fn an_owner_forbids_tests_also_those_that_go_on() {
    let mut world = connected(4, 1, SpeedTests::default());
    begin(&mut world, 0, SpeedLoad::Idle, ms(20_000)).unwrap();
    world.run_for(ms(500));
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted));
    world.proxy.set_speed_tests(SpeedTests { enabled: false, ..SpeedTests::default() });
    world.run_for(ms(500));
    assert_eq!(answer(&world, 0), refused(SpeedRefusal::Forbidden));
    begin(&mut world, 0, SpeedLoad::Down, ms(1000)).unwrap();
    world.run_for(ms(1000));
    assert_eq!((answer(&world, 0), came(&world, 0)), (refused(SpeedRefusal::Forbidden), 0));
}

#[test]
fn as_many_clients_test_at_a_time_as_the_owner_lets_and_one_that_dies_makes_room_within_a_second() {
    let mut world = connected(5, 3, SpeedTests { at_once: 2, ..SpeedTests::default() });
    for client in 0..3 {
        begin(&mut world, client, SpeedLoad::Idle, ms(60_000)).unwrap();
        world.run_for(ms(300));
    }
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted));
    assert_eq!(answer(&world, 1), Some(SpeedAnswer::Granted));
    assert_eq!(answer(&world, 2), refused(SpeedRefusal::Busy));
    // The next phase of a test keeps its place.
    begin(&mut world, 0, SpeedLoad::Idle, ms(60_000)).unwrap();
    world.run_for(ms(300));
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted));
    assert_eq!(answer(&world, 2), refused(SpeedRefusal::Busy));
    world.clients[1].wires.iter_mut().for_each(|wire| wire.up = false);
    world.run_for(ms(1300));
    assert_eq!(answer(&world, 2), Some(SpeedAnswer::Granted), "it asks again by itself");
    world.clients[1].wires.iter_mut().for_each(|wire| wire.up = true);
    world.run_for(ms(5000));
    assert_eq!(answer(&world, 1), refused(SpeedRefusal::Busy), "its place is another's");
    world.clients[0].client.end_speed_test();
    world.run_for(ms(500));
    assert_eq!(answer(&world, 1), Some(SpeedAnswer::Granted));
}

#[test]
fn while_a_link_of_the_test_is_silent_it_is_renewed_over_one_that_answers() {
    for tested in [&[0][..], &[0, 1][..]] {
        let mut world = connected(10, 1, SpeedTests::default());
        let links = tested.iter().map(|at| (key_of(*at), SOME)).collect();
        let until = world.now + ms(10_000);
        let phase = SpeedPhase { links, bytes: SOME, load: SpeedLoad::Idle, until };
        world.clients[0].client.begin_speed_phase(world.now, &phase).unwrap();
        world.run_for(ms(1000));
        // The faster one.
        world.clients[0].wires[0].up = false;
        for _ in 0..60 {
            world.run_for(ms(50));
            let answered = world.clients[0].client.speed_answered_at().unwrap();
            let ago = world.now.since(answered);
            assert!(ago < SPEED_LIFETIME, "{tested:?}: {ago:?}");
        }
        assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted));
    }
}

#[test]
fn what_a_client_may_use_in_an_hour_is_bounded_over_its_sessions() {
    let limits = SpeedTests { time: ms(3000), ..SpeedTests::default() };
    let mut world = connected(6, 1, limits);
    begin(&mut world, 0, SpeedLoad::Idle, ms(60_000)).unwrap();
    world.run_for(ms(2500));
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted));
    world.run_for(ms(1500));
    assert!((ms(3_590_000)..=ms(3_600_000)).contains(&used_up(&world, 0)));

    // Another session is no other client.
    let key = world.clients[0].key;
    let filter =
        InnerFilter { refused: ["10.99.0.0/16".parse().unwrap()].into(), ..peer(0).filter };
    world.allow(key, PeerConfig { filter, ..peer(0) });
    world.run_for(ms(8000));
    assert_eq!(world.sessions_of(0), 2);
    begin(&mut world, 0, SpeedLoad::Down, ms(1000)).unwrap();
    world.run_for(ms(1000));
    assert!(used_up(&world, 0) > ms(3_500_000));
    assert_eq!(came(&world, 0), 0);
    world.run_for(ms(3_600_000));
    begin(&mut world, 0, SpeedLoad::Idle, ms(1000)).unwrap();
    world.run_for(ms(900));
    assert_eq!(answer(&world, 0), Some(SpeedAnswer::Granted), "an hour later");
}

#[test]
fn the_data_of_a_client_is_bounded_whatever_it_asks_for() {
    let mut world = connected(7, 1, SpeedTests { data: 100_000, ..SpeedTests::default() });
    for _ in 0..3 {
        begin(&mut world, 0, SpeedLoad::Down, ms(1500)).unwrap();
        world.run_for(ms(1500));
    }
    let bytes = came(&world, 0);
    assert!((LEAST_OF_100_KB..=100_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_client_that_only_downloads_is_told_when_its_data_is_used_up() {
    // No number of datagrams is exactly as long.
    let mut world = connected(9, 1, SpeedTests { data: 100_001, ..SpeedTests::default() });
    begin(&mut world, 0, SpeedLoad::Down, ms(5000)).unwrap();
    world.run_for(ms(1000));
    assert!(used_up(&world, 0) > ms(3_500_000));
    let bytes = came(&world, 0);
    assert!((LEAST_OF_100_KB..=100_001).contains(&bytes), "{bytes}");
}
