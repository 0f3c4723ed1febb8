//! A client that knows several proxies: which one it takes, when it moves, and what a move costs.

#![expect(clippy::unwrap_used, reason = "tests may stop")]
#![expect(clippy::print_stdout, reason = "the seed of a run that fails")]

mod world;

use ropewalk_proto::client::{ClientState, Trouble};
use ropewalk_proto::fleet::choice::Why;
use ropewalk_proto::fleet::{FleetEvent, Preference, ProxyState};
use ropewalk_proto::wire::hello::answer::Refusal;
use world::{World, ms};

/// Why the client moved, each time.
fn moves(world: &World) -> Vec<Why> {
    let why = world.events.iter().filter_map(|event| match event {
        FleetEvent::Moved { why, .. } => Some(*why),
        _ => None,
    });
    why.collect()
}

#[test]
fn the_nearest_proxy_is_taken_at_the_start_and_asked_alone_for_a_session() {
    let mut world = World::new(1, &[60, 20, 40]);
    let start = world.now;
    world.connect();
    assert_eq!((world.present(), world.client.why().0), (1, Why::Nearest));
    let took = world.now.since(start);
    assert!(took < ms(200), "{took:?}: a question, the wait for others, and two round trips");
    // One question over each of two links.
    assert_eq!([0, 2].map(|at| world.proxies[at].hellos), [2, 2]);
}

#[test]
fn who_knows_one_proxy_asks_nobody_whether_it_is_there() {
    let mut world = World::new(2, &[30]);
    let start = world.now;
    world.connect();
    let took = world.now.since(start);
    assert!(took < ms(130), "{took:?}");
    let hellos = world.proxies[0].hellos;
    world.run_for(ms(900_000));
    assert_eq!((world.proxies[0].hellos, world.client.why().0), (hellos, Why::Only));
}

#[test]
fn a_proxy_that_is_silent_at_the_start_is_no_obstacle() {
    let mut world = World::new(3, &[10, 50]);
    world.proxies[0].alive = false;
    world.connect();
    assert_eq!(world.present(), 1);
    // Nor is a network that comes late.
    let mut world = World::new(4, &[50, 10]);
    world.network = false;
    world.begin();
    world.run_for(ms(30_000));
    world.network = true;
    let back = world.now;
    while !world.is_connected() {
        world.run_for(ms(10));
        assert!(world.now.since(back) < ms(16_000));
    }
}

#[test]
fn after_the_death_of_a_proxy_packets_flow_through_the_next_best_within_two_seconds() {
    for seed in 10..20 {
        let mut world = World::new(seed, &[10, 50, 25]);
        world.loss = u32::try_from(seed % 2).unwrap() * 10;
        world.connect();
        let inner = world.client.session().unwrap().own.clone();
        let next = world.stream(&[7], 0, ms(2000));
        world.proxies[0].alive = false;
        world.stream(&[7], next, ms(6000));
        assert_eq!((world.present(), moves(&world)), (2, vec![Why::Silent]));
        assert!(world.moving.is_empty(), "nothing stays where nobody answers");
        assert!(world.longest_gap < ms(2000), "{:?}", world.longest_gap);
        assert_eq!(world.client.session().unwrap().own, inner, "the same addresses");
        let counted = world.client.stats().accepted.datagrams;
        assert!(counted >= 390, "{counted}: what the first session carried counts");
    }
}

#[test]
fn an_outage_of_the_network_moves_nobody() {
    for seed in 20..25 {
        let mut world = World::new(seed, &[10, 12]);
        world.connect();
        let next = world.stream(&[7], 0, ms(1000));
        world.network = false;
        let next = world.stream(&[7], next, ms(1000 * (seed - 18)));
        world.network = true;
        world.stream(&[7], next, ms(5000));
        assert_eq!((world.present(), moves(&world)), (0, vec![]), "seed {seed}");
        assert!(world.is_connected());
    }
}

#[test]
fn a_draining_proxy_is_left_without_the_loss_of_a_packet_and_flows_stay_where_they_began() {
    let mut world = World::new(30, &[10, 30]);
    world.connect();
    world.tell_fleet(&[0, 1]);
    let next = world.stream(&[1], 0, ms(2000));
    world.proxies[0].state = ProxyState::Draining;
    world.tell_fleet(&[0, 1]);
    let next = world.stream(&[1], next, ms(35_000));
    assert_eq!((world.present(), moves(&world)), (1, vec![Why::Drained]));
    assert_eq!((&world.moving[..], world.told_first), (&[0][..], true));
    // A second flow begins, the first goes on.
    let next = world.stream(&[1, 2], next, ms(10_000));
    let staying = |world: &World| world.client.proxies(world.now)[0].staying;
    assert_eq!(staying(&world), Some(1));
    world.run_for(ms(1000));
    let all: Vec<u32> = (0..next).collect();
    assert_eq!((world.seen(0, 1), world.seen(1, 1)), (all.clone(), vec![]));
    assert_eq!(world.answers(1), all);
    assert_eq!((world.seen(0, 2).len(), world.seen(1, 2).len()), (0, 500));
    assert!(world.longest_gap < ms(100), "{:?}", world.longest_gap);
    // The first is over, and so is the old session.
    world.stream(&[2], next, ms(35_000));
    assert_eq!(staying(&world), None);
    assert!(world.proxies[0].endpoint.stats().peers[0].session.is_none());
    assert_eq!(moves(&world).len(), 1);
}

#[test]
fn a_proxy_that_is_farther_than_the_next_one_hears_that_its_client_moves_before_that_has_a_session()
{
    for seed in 32..40 {
        let mut world = World::new(seed, &[60, 5]);
        let first = world.named(0);
        world.client.set_named(world.now, vec![first], &mut world.tun);
        world.connect();
        world.tell_fleet(&[0, 1]);
        let next = world.stream(&[1], 0, ms(2000));
        // What is said is lost now and then, and said again.
        world.loss = if seed % 2 == 0 { 0 } else { 30 };
        world.proxies[0].state = ProxyState::Draining;
        world.tell_fleet(&[0, 1]);
        let next = world.stream(&[1], next, ms(15_000));
        assert_eq!((world.present(), moves(&world)), (1, vec![Why::Drained]), "seed {seed}");
        assert_eq!((&world.moving[..], world.told_first), (&[0][..], true), "seed {seed}");
        world.run_for(ms(3000));
        assert!(world.seen(1, 1).is_empty(), "seed {seed}");
        assert_eq!(world.seen(0, 1).last(), Some(&(next - 1)), "seed {seed}");
    }
}

#[test]
fn a_client_that_moves_keeps_its_session_though_its_proxy_hears_of_the_newer_one_too_early() {
    let mut world = World::new(31, &[10, 30]);
    world.connect();
    world.tell_fleet(&[0, 1]);
    let next = world.stream(&[1], 0, ms(2000));
    world.proxies[0].state = ProxyState::Draining;
    world.tell_fleet(&[0, 1]);
    let mut number = next;
    while world.present() == 0 {
        number = world.stream(&[1], number, ms(20));
        assert!(number - next < 400, "it moves within eight seconds");
    }
    let displace = |world: &mut World| {
        let key = world.proxies[0].endpoint.stats().peers[0].key;
        world.proxies[0].endpoint.displace_peer(world.now, key);
    };
    displace(&mut world);
    number = world.stream(&[1], number, ms(12_000));
    world.run_for(ms(1000));
    assert_eq!(world.seen(0, 1), (0..number).collect::<Vec<_>>(), "none is lost, none moves");
    // Later it is another one, or the time is over.
    displace(&mut world);
    world.stream(&[1], number, ms(1000));
    world.run_for(ms(100));
    assert!(world.proxies[0].endpoint.stats().peers[0].session.is_none());
    assert_eq!(world.seen(1, 1).last(), Some(&(number + 49)));
}

#[test]
fn the_clients_of_a_proxy_that_drains_move_within_seconds_and_not_all_at_once() {
    let moved = |seed| {
        let mut world = World::new(seed, &[10, 30]);
        world.connect();
        world.tell_fleet(&[0, 1]);
        world.run_for(ms(8000));
        world.proxies[0].state = ProxyState::Draining;
        world.tell_fleet(&[0, 1]);
        let start = world.now;
        while world.present() == 0 {
            world.run_for(ms(50));
            assert!(world.now.since(start) < ms(6000));
        }
        world.now.since(start)
    };
    let mut times: Vec<_> = (90..102).map(moved).collect();
    times.sort_unstable();
    assert!(times[0] >= ms(500), "{times:?}");
    assert!(times[11] - times[0] >= ms(2000), "{times:?}");
}

#[test]
fn a_proxy_that_is_asked_for_is_used_and_the_others_again_when_all_are() {
    let mut world = World::new(40, &[10, 30, 50]);
    world.connect();
    world.tell_fleet(&[0, 1, 2]);
    world.run_for(ms(500));
    for (name, expected) in [("p2", 2), ("eu", 0), ("203.0.113.2:4242", 1)] {
        world.client.set_preference(world.now, Preference::Named(name.to_owned()));
        world.run_for(ms(90_000));
        assert_eq!((world.present(), world.client.why().0), (expected, Why::Asked), "{name}");
    }
    world.proxies[1].alive = false;
    world.stream(&[1], 0, ms(10_000));
    assert_eq!(world.present(), 1, "no other was asked for");
    world.client.set_preference(world.now, Preference::Named("nobody".to_owned()));
    assert!(!world.client.knows_preferred());
    world.run_for(ms(10_000));
    assert_eq!(world.present(), 0, "a name that means none means all");
}

#[test]
fn a_nearer_proxy_is_taken_after_ten_minutes_and_not_for_a_moment() {
    let mut world = World::new(50, &[20, 30]);
    world.connect();
    world.proxies[1].delay = ms(10);
    world.run_for(ms(240_000));
    world.proxies[1].delay = ms(30);
    world.run_for(ms(1_200_000));
    assert_eq!(moves(&world), []);
    world.proxies[1].delay = ms(10);
    world.run_for(ms(1_500_000));
    assert_eq!((world.present(), moves(&world)), (1, vec![Why::Better]));
}

#[test]
fn who_comes_into_another_network_uses_the_proxy_that_is_near_there_within_a_minute_and_flows_stay()
{
    let mut world = World::new(55, &[10, 80]);
    world.connect();
    world.tell_fleet(&[0, 1]);
    let next = world.stream(&[1], 0, ms(5000));
    (world.proxies[0].delay, world.proxies[1].delay) = (ms(90), ms(15));
    world.change_network();
    let next = world.stream(&[1], next, ms(60_000));
    assert_eq!((world.present(), moves(&world)), (1, vec![Why::Better]));
    let next = world.stream(&[1, 2], next, ms(5000));
    world.run_for(ms(1000));
    assert_eq!(world.seen(0, 1).last(), Some(&(next - 1)), "the first stays");
    assert_eq!(world.seen(1, 2).len(), 250, "what begins goes to the near one");
    world.run_for(ms(1_200_000));
    assert_eq!(moves(&world).len(), 1);
}

#[test]
fn who_has_other_addresses_on_all_links_stays_with_a_proxy_that_is_far_by_then_until_flows_can_stay()
 {
    for seed in 56..60 {
        let mut world = World::new(seed, &[5, 75]);
        world.connect();
        world.tell_fleet(&[0, 1]);
        let next = world.stream(&[1], 0, ms(5000));
        (world.proxies[0].delay, world.proxies[1].delay) = (ms(75), ms(5));
        world.change_all_networks();
        let next = world.stream(&[1], next, ms(60_000));
        assert_eq!((world.present(), moves(&world)), (1, vec![Why::Better]), "seed {seed}");
        assert!(world.longest_gap < ms(2000), "{:?}", world.longest_gap);
        let next = world.stream(&[1, 2], next, ms(5000));
        world.run_for(ms(1000));
        assert_eq!(world.seen(0, 1).last(), Some(&(next - 1)), "the first stays");
        assert_eq!(world.seen(1, 2).len(), 250, "what begins goes to the near one");
    }
}

#[test]
fn proxies_become_known_by_the_list_alone_and_go_with_it() {
    let mut world = World::new(60, &[10, 20, 30]);
    let first = world.named(0);
    world.client.set_named(world.now, vec![first], &mut world.tun);
    world.loss = 300;
    world.connect();
    world.tell_fleet(&[0, 1, 2]);
    world.run_for(ms(5000));
    let known = |world: &World| -> Vec<_> {
        world.client.proxies(world.now).into_iter().map(|proxy| proxy.id.unwrap()).collect()
    };
    assert_eq!(known(&world), ["p0", "p1", "p2"]);
    world.tell_fleet(&[0, 2]);
    world.run_for(ms(5000));
    assert_eq!(known(&world), ["p0", "p2"]);
    world.loss = 0;
    world.proxies[0].alive = false;
    world.stream(&[1], 0, ms(5000));
    assert_eq!(world.present(), 2);
    // What its owner named is known whatever a list says.
    world.tell_fleet(&[2]);
    world.run_for(ms(2000));
    assert_eq!(world.client.proxies(world.now).len(), 2);
}

#[test]
fn a_proxy_that_stops_or_refuses_is_left_at_once() {
    let mut world = World::new(70, &[10, 20]);
    world.connect();
    let next = world.stream(&[1], 0, ms(1000));
    world.proxies[0].endpoint.close(world.now);
    world.stream(&[1], next, ms(3000));
    assert_eq!((world.present(), moves(&world)), (1, vec![Why::Refused]));
    assert!(world.longest_gap < ms(400), "{:?}", world.longest_gap);
}

#[test]
fn a_proxy_that_drains_is_not_chosen_and_one_that_drains_meanwhile_says_so_at_once() {
    let mut world = World::new(72, &[10, 30]);
    world.proxies[0].endpoint.set_draining(true);
    let start = world.now;
    world.connect();
    assert_eq!((world.present(), world.client.why().0), (1, Why::Nearest));
    assert!(world.now.since(start) < ms(1000), "it waits for the answer of the other in vain");

    let mut world = World::new(73, &[10, 30]);
    let start = world.now;
    world.begin();
    // It has said that it is there, and was not asked for a session yet.
    world.run_for(ms(30));
    world.proxies[0].endpoint.set_draining(true);
    while !world.is_connected() {
        world.run_for(ms(1));
        let took = world.now.since(start);
        assert!(took < ms(500), "{took:?}: {:?}", world.client.state());
    }
    assert_eq!((world.present(), moves(&world)), (1, vec![Why::Refused]));
}

#[test]
fn who_knows_only_a_proxy_that_drains_is_told_and_let_in_when_it_no_longer_does() {
    let mut world = World::new(74, &[10]);
    world.proxies[0].endpoint.set_draining(true);
    world.begin();
    world.run_for(ms(200));
    let ClientState::Waiting { trouble, .. } = world.client.state() else {
        panic!("{:?}", world.client.state())
    };
    assert_eq!(trouble, Trouble::Refused(Refusal::Draining));
    world.proxies[0].endpoint.set_draining(false);
    world.run_for(ms(16_000));
    assert!(world.is_connected());
}

#[test]
fn a_client_that_stops_says_goodbye_in_both_sessions() {
    let mut world = World::new(80, &[10, 20]);
    world.connect();
    world.tell_fleet(&[0, 1]);
    world.proxies[0].state = ProxyState::Draining;
    world.stream(&[1], 0, ms(2000));
    world.tell_fleet(&[0, 1]);
    world.stream(&[1], 100, ms(3000));
    assert_eq!(world.present(), 1);
    world.client.close(world.now);
    world.run_for(ms(1500));
    assert!(world.client.is_closed());
    for proxy in &world.proxies {
        assert!(proxy.endpoint.stats().peers[0].session.is_none());
    }
}
