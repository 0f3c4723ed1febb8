//! Sessions that end without a word, and how soon another is there.

use ropewalk_proto::client::{ClientState, Trouble};
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::path::Path;
use ropewalk_proto::time::Duration;
use ropewalk_proto::tunnel::LinkState;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_settings::{LinkPolicy, Usage};

use super::pair::{
    NOWHERE_V6, SERVER, World, inner, is_connected, key_of, link, ms, number_of, packet,
};

/// Packets down every 5 ms and a ping every 100 ms, for `time`. Returns the longest time without the
/// answer to a ping.
fn busy(world: &mut World, time: Duration) -> Duration {
    let (start, mut last, mut worst) = (world.now, world.now, Duration::ZERO);
    let mut sent = 0_u32;
    while world.now.since(start) < time {
        world.send_down(&packet(SERVER, inner(0), 1200, 0));
        if sent.is_multiple_of(20) {
            world.send_up(0, &packet(inner(0), SERVER, 84, 1));
        }
        sent += 1;
        world.run_for(ms(5));
        let tun = std::mem::take(&mut world.clients[0].tun.0);
        if tun.iter().any(|packet| number_of(packet) == 1) {
            last = world.now;
        }
        worst = worst.max(world.now.since(last));
    }
    worst
}

#[test]
fn a_ping_passes_within_three_seconds_after_the_proxy_was_restarted_in_mid_download() {
    let table: [&[u64]; 6] =
        [&[5], &[5, 50], &[50, 5], &[30, 30, 30], &[150, 20], &[5, 10, 50, 100]];
    for (seed, delays) in (0..).zip(table) {
        let mut world = World::with_client(seed, delays);
        world.connect();
        let usual = busy(&mut world, ms(3000));
        world.restart_proxy();
        let gap = busy(&mut world, ms(8000));
        println!("links {delays:?}: usually {usual:?}, after the restart {gap:?}");
        assert!(gap <= ms(3000), "links {delays:?}: {gap:?}");
        assert_eq!(world.sessions_of(0), 2, "links {delays:?}");
        assert!(usual <= ms(700));
    }
}

#[test]
fn the_proxy_knows_the_policy_of_a_link_when_it_changes_and_in_the_next_session() {
    let mut world = World::with_client(61, &[10, 20]);
    world.connect();
    world.run_for(ms(1000));
    let known = |world: &World| {
        let session = world.proxy.stats().peers[0].session.clone().unwrap();
        let mut links = session.tunnel.links;
        links.sort_by_key(|link| link.name);
        links.into_iter().map(|link| link.policy.usage).collect::<Vec<_>>()
    };
    assert_eq!(known(&world), [Usage::Always; 2]);
    let policy = LinkPolicy { usage: Usage::WhenNeeded, ..LinkPolicy::default() };
    world.clients[0].client.set_policy(key_of(1), policy.clone());
    world.flush();
    world.run_for(ms(50));
    assert_eq!(known(&world), [Usage::Always, Usage::WhenNeeded], "within a round trip");
    assert_eq!(world.sessions_of(0), 1);

    world.restart_proxy();
    busy(&mut world, ms(5000));
    assert_eq!(world.sessions_of(0), 2);
    assert_eq!(known(&world), [Usage::Always, Usage::WhenNeeded], "said with the join");

    let policy = LinkPolicy { usage: Usage::Backup, ..policy };
    world.clients[0].client.set_policy(key_of(1), policy);
    world.clients[0].client.set_policy(key_of(1), LinkPolicy::default());
    world.flush();
    world.run_for(ms(50));
    assert_eq!(known(&world), [Usage::Always; 2], "the last word counts");
}

/// What a client finds when the lid is opened again, and the time until a ping passes.
#[test]
fn a_client_that_slept_asks_at_once_and_has_another_session_within_a_second_if_it_needs_one() {
    for (seed, delays) in (0..).zip([&[5][..], &[50, 5], &[30, 30, 30], &[150, 20]]) {
        for forgotten in [false, true] {
            let mut world = World::with_client(seed, delays);
            world.connect();
            world.run_for(ms(5000));
            if forgotten {
                world.restart_proxy();
            }
            let now = world.now;
            world.clients[0].client.on_resume(now);
            world.flush();
            let gap = busy(&mut world, ms(4000));
            println!("links {delays:?}, forgotten: {forgotten}: no ping passed for {gap:?}");
            // A ping goes every 100 ms and has a round trip to make.
            assert!(gap <= ms(1300), "links {delays:?}, {forgotten}: {gap:?}");
            assert_eq!(world.sessions_of(0), 1 + usize::from(forgotten), "links {delays:?}");
        }
    }
}

#[test]
fn one_link_that_is_cut_does_not_cost_the_session() {
    for seed in 0..10 {
        let mut world = World::with_client(seed, &[10, 60]);
        world.connect();
        busy(&mut world, ms(2000));
        world.clients[0].wires[0].up = false;
        busy(&mut world, ms(6000));
        world.clients[0].wires[0].up = true;
        busy(&mut world, ms(3000));
        assert_eq!(world.sessions_of(0), 1);
        assert!(is_connected(&world.clients[0].client));
    }
}

#[test]
fn an_idle_client_whose_only_busy_link_is_cut_keeps_its_session_too() {
    for seed in 0..10 {
        let mut world = World::with_client(seed, &[10, 200]);
        world.connect();
        world.run_for(ms(5000));
        world.clients[0].wires[0].up = false;
        for _ in 0..50 {
            world.send_up(0, &packet(inner(0), SERVER, 84, 1));
            world.run_for(ms(100));
        }
        world.ping(0, ms(500));
        world.run_for(ms(20_000));
        assert_eq!(world.sessions_of(0), 1);
    }
}

#[test]
fn a_long_outage_of_all_links_ends_in_the_old_session_or_a_new_one() {
    // After half an hour the proxy has forgotten the session: the next round of the ladder finds it.
    for (outage, limit) in [(2, 1500), (30, 1500), (300, 1500), (3000, 19_000)] {
        let outage = Duration::from_secs(outage);
        let mut world = World::with_client(1, &[10, 60]);
        world.connect();
        busy(&mut world, ms(2000));
        world.clients[0].wires.iter_mut().for_each(|wire| wire.up = false);
        let number = packet(inner(0), SERVER, 84, 1);
        world.send_up(0, &number);
        world.run_for(outage);
        assert!(matches!(world.clients[0].client.state(), ClientState::Stalled { .. }));
        world.clients[0].wires.iter_mut().for_each(|wire| wire.up = true);
        let back = world.connect();
        println!("after {outage:?}: back in {back:?}");
        assert!(back <= ms(limit), "after {outage:?}: {back:?}");
        world.run_for(ms(1500));
        world.ping(0, ms(200));
    }
}

#[test]
fn an_idle_client_finds_a_restarted_proxy_by_its_keepalive() {
    let mut world = World::with_client(2, &[10, 20]);
    world.connect();
    world.run_for(ms(60_000));
    world.restart_proxy();
    world.run_for(ms(20_000));
    assert_eq!(world.sessions_of(0), 2);
    assert!(is_connected(&world.clients[0].client));
}

#[test]
fn counts_go_on_over_a_restart_of_the_proxy() {
    let mut world = World::with_client(3, &[10, 20]);
    world.connect();
    busy(&mut world, ms(2000));
    let before = world.clients[0].client.stats();
    world.restart_proxy();
    busy(&mut world, ms(3500));
    let after = world.clients[0].client.stats();
    assert_eq!(world.sessions_of(0), 2);
    assert!(after.delivered.datagrams > before.delivered.datagrams);
    assert!(after.accepted.datagrams >= before.accepted.datagrams);
    for (now, then) in after.links.iter().zip(&before.links) {
        assert!(now.sent.bytes > then.sent.bytes && now.received.bytes > then.received.bytes);
        let link = now.link.as_ref().unwrap();
        assert!(link.sent.bytes < now.sent.bytes, "the session's own count is smaller");
    }
}

#[test]
fn a_proxy_that_stops_says_so_and_the_client_returns_when_it_is_back() {
    let mut world = World::with_client(4, &[10, 20]);
    world.connect();
    world.run_for(ms(500));
    world.proxy.close(world.now);
    world.run_for(ms(50));
    assert!(world.proxy.is_closed());
    let closed = CloseReason::Shutdown;
    assert!(world.events(0).contains(&Event::SessionEnded(EndReason::Closed(closed))));
    let ClientState::Waiting { trouble, .. } = world.clients[0].client.state() else {
        panic!("{:?}", world.states())
    };
    assert_eq!(trouble, Trouble::Closed(closed));
    world.run_for(ms(300));
    world.restart_proxy();
    let took = world.connect();
    assert!(took <= ms(800), "{took:?}");
}

#[test]
fn a_session_without_a_word_for_half_an_hour_is_forgotten() {
    let mut world = World::with_client(5, &[10]);
    world.connect();
    world.run_for(ms(500));
    world.clients[0].wires[0].up = false;
    world.run_for(Duration::from_secs(29 * 60));
    assert_eq!(world.proxy.stats().sessions, 1);
    world.run_for(Duration::from_secs(2 * 60));
    assert_eq!(world.proxy.stats().sessions, 0);
    assert_eq!(world.proxy_events.last().unwrap().event, Event::SessionEnded(EndReason::Idle));
    world.clients[0].wires[0].up = true;
    world.run_while(ms(20_000), |world| !is_connected(&world.clients[0].client));
    world.run_for(ms(1500));
    world.ping(0, ms(300));
}

#[test]
fn a_proxy_that_forgets_while_only_the_way_up_is_cut_is_asked_again() {
    for delays in [&[10][..], &[10, 60]] {
        let mut world = World::with_client(6, delays);
        world.connect();
        busy(&mut world, ms(2000));
        world.clients[0].wires.iter_mut().for_each(|wire| wire.upstream = false);
        // What still comes down shows that the proxy has the session, but not that it will keep it.
        busy(&mut world, ms(5000));
        world.restart_proxy();
        world.run_for(ms(60_000));
        world.clients[0].wires.iter_mut().for_each(|wire| wire.upstream = true);
        let back = world.run_while(ms(20_000), |world| !is_connected(&world.clients[0].client));
        println!("links {delays:?}: back in {back:?}");
        world.run_for(ms(1500));
        world.ping(0, ms(300));
    }
}

#[test]
fn a_link_that_comes_back_uses_the_address_that_answered() {
    for (seed, answers) in (0..30).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let mut world = World::with_client(seed, &[300]);
        let mut config = link(0);
        let good = config.paths[0];
        config.paths.insert(1 - answers, Path { remote: NOWHERE_V6.into(), ..good });
        let end = &mut world.clients[0];
        end.client.set_link(world.now, key_of(0), Some(config), &mut end.tun).unwrap();
        world.connect();
        world.run_for(ms(3000));
        for outage in [4000, 4100, 4200, 4300, 4400].map(ms) {
            world.clients[0].wires[0].up = false;
            world.send_up(0, &packet(inner(0), SERVER, 84, 1));
            world.run_for(outage);
            world.clients[0].wires[0].up = true;
            let back = world.connect();
            println!("after {outage:?}: back in {back:?}");
            // It stays up, and on the address that works.
            for _ in 0..20 {
                world.send_up(0, &packet(inner(0), SERVER, 84, 1));
                world.run_for(ms(250));
                let stats = world.clients[0].client.stats();
                let link = stats.links[0].link.as_ref().unwrap();
                assert_eq!((link.path, link.state), (good, LinkState::Up), "after {outage:?}");
            }
        }
        // The client asks for another session as well, and is often answered first.
        assert_eq!(world.sessions_of(0), 1, "seed {seed}, address {answers}");
    }
}

#[test]
fn a_link_that_the_proxy_took_out_while_it_was_dead_joins_again() {
    let delays = [20, 1].into_iter().chain([20; 14]).collect::<Vec<u64>>();
    let mut world = World::with_client(8, &delays);
    world.connect();
    world.run_for(ms(2000));
    world.clients[0].wires[0].up = false;
    world.run_for(ms(30_000));
    // The new link's `Join` overtakes the `Leave` of the one that it replaces: the table is full.
    let end = &mut world.clients[0];
    end.client.set_link(world.now, key_of(1), Some(link(1)), &mut end.tun).unwrap();
    world.run_for(ms(2000));
    world.clients[0].wires[0].up = true;
    world.run_for(ms(5000));
    let states = |world: &World| {
        let links = world.clients[0].client.stats().links;
        links.iter().filter_map(|link| Some(link.link.as_ref()?.state)).collect::<Vec<_>>()
    };
    assert_eq!(states(&world), [LinkState::Up; 16]);
    assert_eq!(world.sessions_of(0), 1);
    let left = world.events(0).into_iter().filter(|event| matches!(event, Event::LinkDown(..)));
    println!("{:?}", left.collect::<Vec<_>>());
}
