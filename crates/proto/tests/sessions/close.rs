//! How a session ends: in order, bounded, or at once.

use ropewalk_proto::client::ClientState;
use ropewalk_proto::endpoint::PeerConfig;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::time::Duration;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;

use super::opening::second_preferred;
use super::pair::{SERVER, World, inner, is_connected, ms, number_of, packet, peer};

/// The longest that an end which stops may take.
const LONGEST: Duration = ms(1000);

const CLOSED: EndReason = EndReason::Closed(CloseReason::Shutdown);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Client,
    Proxy,
}

const BOTH: [End; 2] = [End::Client, End::Proxy];

/// A client with links of these delays that has been connected for a while.
fn settled(seed: u64, delays: &[u64]) -> World {
    let mut world = World::with_client(seed, delays);
    world.echo = false;
    world.connect();
    world.run_for(ms(2000));
    world
}

/// Puts so many packets into the queue of an end, more than its windows let go.
fn burst(world: &mut World, end: End, packets: u32) {
    for number in 0..packets {
        match end {
            End::Client => world.send_up(0, &packet(inner(0), SERVER, 1200, number)),
            End::Proxy => world.send_down(&packet(SERVER, inner(0), 1200, number)),
        }
    }
}

fn stop(world: &mut World, end: End) {
    match end {
        End::Client => world.clients[0].client.close(world.now),
        End::Proxy => world.proxy.close(world.now),
    }
}

fn is_closed(world: &World, end: End) -> bool {
    match end {
        End::Client => world.clients[0].client.is_closed(),
        End::Proxy => world.proxy.is_closed(),
    }
}

/// Runs until an end has stopped; returns how long it took.
fn until_closed(world: &mut World, end: End) -> Duration {
    world.run_while(ms(5000), |world| !is_closed(world, end))
}

/// The numbers of the packets that came from an end.
fn came_from(world: &World, end: End) -> Vec<u32> {
    let tun = if end == End::Client { &world.proxy_tun } else { &world.clients[0].tun };
    tun.0.iter().map(|packet| number_of(packet)).collect()
}

fn waits(world: &World, end: End) -> usize {
    let tunnel = match end {
        End::Client => world.clients[0].client.stats().tunnel,
        End::Proxy => world.proxy.stats().peers[0].session.clone().map(|session| session.tunnel),
    };
    tunnel.unwrap().queued.0
}

/// Why an end says that the session is over.
fn told(world: &World, end: End) -> Option<EndReason> {
    let ended = |event: Event| match event {
        Event::SessionEnded(reason) => Some(reason),
        _ => None,
    };
    match end {
        End::Client => world.events(0).into_iter().find_map(ended),
        End::Proxy => world.proxy_events.iter().find_map(|told| ended(told.event.clone())),
    }
}

#[test]
fn what_waits_when_an_end_stops_goes_out_first_and_nothing_is_lost() {
    // Links far apart: the goodbye on one overtakes packets on the other. One link: some wait for longer than any may
    // while the tunnel goes on.
    let table: [(&[u64], u32); 3] = [(&[5, 90], 60), (&[90, 5, 40], 200), (&[80], 60)];
    for (delays, packets) in table {
        for end in BOTH {
            let mut world = settled(41, delays);
            burst(&mut world, end, packets);
            let waiting = waits(&world, end);
            stop(&mut world, end);
            let took = until_closed(&mut world, end);
            println!("{end:?}, links {delays:?}: {waiting} waited, it took {took:?}");
            assert!(waiting > 10 && took < LONGEST, "{end:?}, links {delays:?}");
            assert_eq!(
                came_from(&world, end),
                (0..packets).collect::<Vec<_>>(),
                "{end:?}, links {delays:?}"
            );
            let other = if end == End::Client { End::Proxy } else { End::Client };
            assert_eq!(
                (told(&world, end), told(&world, other)),
                (Some(EndReason::Stopped), Some(CLOSED))
            );
            assert_eq!(world.proxy.stats().sessions, 0);
        }
    }
}

#[test]
fn packets_under_way_to_an_end_that_stops_still_come() {
    for end in BOTH {
        let other = if end == End::Client { End::Proxy } else { End::Client };
        let mut world = settled(42, &[20, 60]);
        burst(&mut world, other, 10);
        stop(&mut world, end);
        until_closed(&mut world, end);
        assert_eq!(came_from(&world, other), (0..10).collect::<Vec<_>>(), "{end:?}");
    }
}

#[test]
fn an_end_with_nothing_to_send_stops_in_a_round_trip() {
    for end in BOTH {
        let mut world = settled(43, &[10, 30]);
        stop(&mut world, end);
        let took = until_closed(&mut world, end);
        assert_eq!(took, ms(60), "{end:?}: there and back on the slower link");
        assert_eq!(world.proxy.stats().sessions, 0);
    }
}

#[test]
fn a_proxy_frees_the_session_of_a_client_that_stops_when_it_has_heard_it_on_every_link() {
    let mut world = settled(44, &[10, 30]);
    stop(&mut world, End::Client);
    world.run_for(ms(29));
    assert_eq!(world.proxy.stats().sessions, 1);
    world.run_for(ms(1));
    assert_eq!(world.proxy.stats().sessions, 0);
    // Nothing of it comes back.
    world.run_for(Duration::from_secs(100));
    assert_eq!((world.proxy.stats().sessions, world.sessions_of(0)), (0, 1));
    assert_eq!(world.states(), [ClientState::Closed]);
}

#[test]
fn a_peer_that_is_silent_holds_nobody_up_for_longer_than_a_second() {
    for end in BOTH {
        for packets in [0, 60] {
            let mut world = settled(45, &[10, 20]);
            world.clients[0].wires.iter_mut().for_each(|wire| wire.up = false);
            burst(&mut world, end, packets);
            stop(&mut world, end);
            let took = until_closed(&mut world, end);
            println!("{end:?}, {packets} packets: {took:?}");
            assert!((ms(900)..=LONGEST).contains(&took), "{end:?}, {packets} packets: {took:?}");
            assert_eq!(told(&world, end), Some(EndReason::Stopped));
        }
    }
}

#[test]
fn where_no_link_answers_or_there_is_no_session_there_is_nothing_to_wait_for() {
    let mut world = settled(46, &[10, 20]);
    world.clients[0].wires.iter_mut().for_each(|wire| wire.up = false);
    for end in BOTH {
        burst(&mut world, end, 60);
    }
    world.run_for(ms(5000));
    assert!(matches!(world.states()[..], [ClientState::Stalled { .. }]));
    for end in BOTH {
        stop(&mut world, end);
        world.flush();
        assert!(is_closed(&world, end), "{end:?}");
    }
    let mut world = World::with_client(46, &[10]);
    for end in BOTH {
        stop(&mut world, end);
        world.flush();
        assert!(is_closed(&world, end), "{end:?}, without a session");
    }
}

#[test]
fn a_goodbye_that_is_lost_is_said_again() {
    let mut world = settled(47, &[10]);
    world.clients[0].wires[0].lose_first = 2;
    stop(&mut world, End::Client);
    let took = until_closed(&mut world, End::Client);
    assert_eq!((took, world.proxy.stats().sessions), (ms(250 + 20), 0));
}

#[test]
fn a_goodbye_that_comes_on_one_link_alone_is_believed_after_a_while() {
    let mut world = settled(48, &[10, 20]);
    world.clients[0].wires[1].upstream = false;
    stop(&mut world, End::Client);
    world.run_for(ms(500));
    assert_eq!(world.proxy.stats().sessions, 1, "the other link may still bring packets");
    world.run_for(ms(10));
    assert_eq!((world.proxy.stats().sessions, told(&world, End::Proxy)), (0, Some(CLOSED)));
    assert!(until_closed(&mut world, End::Client) < ms(100));
}

#[test]
fn ends_that_stop_at_the_same_time_lose_nothing_either() {
    for (after, packets) in [(0, 60), (0, 0), (15, 60), (60, 60)] {
        let mut world = settled(49, &[5, 90]);
        for end in BOTH {
            burst(&mut world, end, packets);
        }
        stop(&mut world, End::Client);
        world.run_for(ms(after));
        stop(&mut world, End::Proxy);
        for end in BOTH {
            assert!(until_closed(&mut world, end) < LONGEST);
            assert_eq!(came_from(&world, end), (0..packets).collect::<Vec<_>>(), "{end:?}");
            assert!(told(&world, end).is_some());
        }
    }
}

#[test]
fn over_links_that_lose_much_both_ends_stop_all_the_same() {
    let mut freed = 0;
    for seed in 0..50 {
        let mut world = settled(seed, &[10, 30]);
        world.clients[0].wires.iter_mut().for_each(|wire| wire.loss = 400);
        burst(&mut world, End::Client, 60);
        stop(&mut world, End::Client);
        assert!(until_closed(&mut world, End::Client) <= LONGEST);
        world.run_for(ms(600));
        freed += 1 - world.proxy.stats().sessions;
    }
    println!("{freed} of 50 sessions were freed");
    assert!(freed >= 49);
}

#[test]
fn an_end_that_stops_takes_no_more_packets() {
    for end in BOTH {
        let mut world = settled(50, &[10, 20]);
        stop(&mut world, end);
        burst(&mut world, end, 3);
        let drops = match end {
            End::Client => world.clients[0].client.stats().drops,
            End::Proxy => world.proxy.stats().drops,
        };
        assert_eq!(drops.get(DropReason::NoSession), 3, "{end:?}");
        until_closed(&mut world, end);
        assert!(came_from(&world, end).is_empty());
    }
}

#[test]
fn a_session_that_is_reset_is_gone_at_once_and_brings_nothing_more() {
    let table = [
        (false, EndReason::Withdrawn, CLOSED),
        (true, EndReason::Removed, EndReason::Closed(CloseReason::Removed)),
    ];
    for (removed, here, there) in table {
        let mut world = settled(51, &[10, 30]);
        burst(&mut world, End::Client, 5);
        burst(&mut world, End::Proxy, 60);
        let key = world.clients[0].key;
        match removed {
            true => drop(world.proxy.remove_peer(world.now, key)),
            false => world
                .proxy
                .set_peer(world.now, key, PeerConfig { inner_v4: None, ..peer(0) })
                .unwrap(),
        }
        world.flush();
        assert_eq!((world.proxy.stats().sessions, told(&world, End::Proxy)), (0, Some(here)));
        world.run_for(ms(50));
        assert_eq!(
            (came_from(&world, End::Client), told(&world, End::Client)),
            (vec![], Some(there))
        );
    }
}

#[test]
fn a_client_that_asks_a_proxy_that_stops_is_told_and_asks_again_after_a_second() {
    let mut world = settled(53, &[10]);
    // Its goodbye is not answered, so that it takes its second.
    world.clients[0].wires[0].up = false;
    stop(&mut world, End::Proxy);
    let second = world.add_client(&[10]);
    world.run_for(ms(200));
    assert_eq!(world.events(second), [Event::Refused(Refusal::Stopping)]);
    assert!(!is_closed(&world, End::Proxy));
    assert!(until_closed(&mut world, End::Proxy) < LONGEST, "nobody holds it up");
    world.restart_proxy();
    world.run_while(ms(1500), |world| !is_connected(&world.clients[second].client));
}

#[test]
fn the_last_words_go_over_the_preferred_link_first() {
    for reset in [false, true] {
        let mut world = settled(52, &[10, 30]);
        let key = world.clients[0].key;
        assert!(world.proxy.set_peer_scheduling(world.now, key, &second_preferred()));
        world.run_for(ms(100));
        world.record = Some(Vec::new());
        match reset {
            true => drop(world.proxy.remove_peer(world.now, key)),
            false => world.proxy.close(world.now),
        }
        world.flush();
        let said: Vec<_> =
            world.record.iter().flatten().map(|(_, path, _)| path.socket.0).collect();
        assert_eq!(said, [1, 0, 1, 0], "reset: {reset}");
    }
}
