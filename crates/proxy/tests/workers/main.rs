//! The proxy on several workers: real threads, and real sockets in groups that the kernel leads datagrams to; a TUN
//! with a queue for each worker, whose other ends the tests hold.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod bed;
mod books;
mod clients;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ropewalk_control::api::{InviteWish, Request, Response, TunnelState, TunnelStatus};
use ropewalk_control::invitation::Invitation;
use ropewalk_proto::endpoint::EndpointStats;
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::tunnel::LinkState;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{PrivateKey, SchedulerKind, Scheduling};

use bed::{Bed, WORKERS, packet};
use clients::Crowd;

/// A server on the Internet.
const SERVER: [u8; 4] = [192, 0, 2, 80];

/// The inner address of a tunnel.
fn inner(tunnel: &TunnelStatus) -> [u8; 4] {
    tunnel.inner_v4.unwrap().octets()
}

/// Keys whose home this worker is.
fn keys_at(bed: &Bed, home: u16, count: usize) -> Vec<PrivateKey> {
    let keys = std::iter::repeat_with(|| PrivateKey::generate().unwrap());
    keys.filter(|key| bed.home(&key.public_key()) == home).take(count).collect()
}

/// A client at this worker that the registry tells of, and that begins to ask: with its key and its place.
fn one_client_at(home: u16) -> (Bed, Crowd, PrivateKey, usize) {
    let bed = Bed::new(&[]);
    let mut crowd = Crowd::new(&bed);
    let key = keys_at(&bed, home, 1).remove(0);
    bed.tell_of(&key, [10, 77, 9, 1]);
    let end = crowd.add(&key, None);
    (bed, crowd, key, end)
}

/// The sessions of each worker but the coordinator's, which are all others.
fn check_homes(bed: &Bed, sessions: usize) -> Vec<EndpointStats> {
    let others = bed.stats_of_others();
    for (worker, stats) in (1..).zip(&others) {
        for peer in &stats.peers {
            let session = peer.session.as_ref().unwrap();
            assert_eq!(bed.share().home(&peer.key), worker, "{}", peer.name);
            assert_eq!(bed.share().part_of(session.info.index), worker, "{}", peer.name);
            assert_eq!(peer.sessions, 1, "{}", peer.name);
            let links = session.tunnel.links.iter();
            assert_eq!(
                links.filter(|link| link.state == LinkState::Up).count(),
                4,
                "{}",
                peer.name
            );
        }
    }
    let status = bed.status();
    let up = status.tunnels.iter().filter(|tunnel| tunnel.state == TunnelState::Up);
    assert_eq!(up.clone().count(), sessions);
    assert!(up.into_iter().all(|tunnel| tunnel.links.len() == 4), "all links came to one worker");
    assert_eq!(status.drops.get("unknown_session"), None, "{:?}", status.drops);
    others
}

#[test]
fn a_hundred_clients_with_four_links_have_one_session_each_on_one_worker_over_fresh_keys_too() {
    let keys: Vec<_> = (0..100).map(|_| PrivateKey::generate().unwrap()).collect();
    let mut bed = Bed::new(&keys);
    let mut crowd = Crowd::new(&bed);
    for key in &keys {
        // Two links over IPv4, two over IPv6; the first message is raced over all of them.
        crowd.add(key, None);
    }
    crowd.run_until("all are connected", |crowd| crowd.connected() == 100);
    crowd.run_until("all links are up", |_| {
        let tunnels = bed.status().tunnels;
        let up = |tunnel: &TunnelStatus| {
            tunnel.links.iter().filter(|link| link.state.to_string() == "up").count()
        };
        tunnels.iter().all(|tunnel| up(tunnel) == 4)
    });
    let others = check_homes(&bed, 100);
    for stats in &others {
        assert!((10..60).contains(&stats.sessions), "{} sessions", stats.sessions);
    }

    // Packets down, by the queue of any worker. On a busy machine some wait too long, as in life: they are sent again.
    let tunnels = bed.status().tunnels;
    for round in 0..WORKERS {
        let number = |at: usize| u32::from(round) * 1000 + u32::try_from(at).unwrap();
        crowd.run_until("a packet came to each client by each worker", |crowd| {
            let missing = (0..100).filter(|at| !crowd.has_packet(*at, number(*at)));
            let missing: Vec<_> = missing.collect();
            for at in &missing {
                let home = bed.share().home(&tunnels[*at].peer_public_key);
                bed.send(
                    (home + round) % WORKERS,
                    packet(SERVER, inner(&tunnels[*at]), number(*at)),
                );
            }
            missing.is_empty()
        });
    }
    // And up, at the queue of each client's worker.
    let mut heard = BTreeSet::new();
    crowd.run_until("a packet came up from each client", |crowd| {
        for (tunnel, key) in tunnels.iter().zip(&keys) {
            if !heard.contains(&inner(tunnel)) {
                crowd.send(&key.public_key(), &packet(inner(tunnel), SERVER, 0));
            }
        }
        for worker in 0..WORKERS {
            for packet in bed.delivered(worker) {
                let from: [u8; 4] = packet[12..16].try_into().unwrap();
                let tunnel = tunnels.iter().find(|tunnel| inner(tunnel) == from).unwrap();
                assert_eq!(bed.share().home(&tunnel.peer_public_key), worker);
                heard.insert(from);
            }
        }
        heard.len() == 100
    });

    // Keys are a second old at most, where they are used.
    crowd.run_until("all have fresh keys", |crowd| {
        for (tunnel, key) in tunnels.iter().zip(&keys) {
            crowd.send(&key.public_key(), &packet(inner(tunnel), SERVER, 0));
        }
        crowd.rekeyed(2) == 100
    });
    check_homes(&bed, 100);
    assert_eq!(bed.status().proxy.unwrap().handshakes.completed, 100);
    bed.stop(&mut crowd);
    assert_eq!(
        crowd.count(|event| matches!(event, Event::SessionEnded(EndReason::Closed(_)))),
        100,
        "all were told"
    );
}

#[test]
fn a_client_that_connects_again_takes_the_place_of_its_older_session_wherever_its_question_leads() {
    let key = PrivateKey::generate().unwrap();
    let bed = Bed::new(std::slice::from_ref(&key));
    let mut crowd = Crowd::new(&bed);
    let mut asked = BTreeSet::new();
    let mut sessions = 0;
    while asked.len() < usize::from(WORKERS) {
        sessions += 1;
        assert!(sessions < 60, "the indices that clients draw lead everywhere: {asked:?}");
        crowd.forget_events();
        let newest = crowd.add(&key, None);
        crowd.run_until("the newest is connected", |crowd| crowd.is_connected(newest));
        asked.insert(bed.share().part_of(crowd.index_asked_with(newest)));
        if sessions > 1 {
            crowd.run_until("the older one is told", |crowd| {
                crowd.count(|event| matches!(event, Event::SessionEnded(EndReason::Closed(_)))) == 1
            });
        }
        let tunnel = bed.status().tunnels.remove(0);
        assert_eq!(tunnel.state, TunnelState::Up);
        // The old machine is switched off, so that it does not come back.
        crowd.keep_only(newest);
    }
    assert_eq!(bed.status().proxy.unwrap().handshakes.completed, sessions);
    let others: usize = bed.stats_of_others().iter().map(|stats| stats.sessions).sum();
    assert_eq!(others, usize::from(bed.home(&key.public_key()) != 0), "one session in all");
}

#[test]
fn clients_that_go_and_come_and_how_to_send_reach_every_worker() {
    let bed = Bed::new(&[]);
    let keys: Vec<_> = (0..WORKERS).flat_map(|home| keys_at(&bed, home, 3)).collect();
    // Of each worker's clients one stays, one goes, one comes.
    let (before, after): (Vec<_>, Vec<_>) = (
        keys.iter().enumerate().filter(|(at, _)| at % 3 < 2).map(|(_, key)| key.clone()).collect(),
        keys.iter().enumerate().filter(|(at, _)| at % 3 != 1).map(|(_, key)| key.clone()).collect(),
    );
    let mut bed = bed;
    bed.reload(&before);
    let mut crowd = Crowd::new(&bed);
    let ends: Vec<_> = keys.iter().map(|key| crowd.add(key, None)).collect();
    let at = |kind: usize| {
        ends.iter().enumerate().filter(move |(at, _)| at % 3 == kind).map(|(_, end)| *end)
    };
    let workers = usize::from(WORKERS);
    crowd.run_until("those of the file are connected", |crowd| crowd.connected() == 2 * workers);
    assert!(at(2).all(|end| !crowd.is_connected(end)), "nobody else is let in");
    bed.wait_for_routes(&mut crowd, 2 * workers);

    bed.reload(&after);
    let gone: Vec<_> = at(1).collect();
    crowd.run_until("those that went are told, those that came are connected", |crowd| {
        gone.iter().all(|end| !crowd.is_connected(*end)) && crowd.connected() == 2 * workers
    });
    bed.wait_for_routes(&mut crowd, 2 * workers);
    let status = bed.status();
    assert_eq!(status.tunnels.len(), 2 * workers);

    let scheduling = Scheduling { scheduler: SchedulerKind::Safire, ..Scheduling::default() };
    let has_flows = |bed: &Bed| {
        let tunnels = bed.status().tunnels;
        tunnels.iter().filter(|tunnel| tunnel.flows.is_some()).count()
    };
    assert_eq!(has_flows(&bed), 0);
    let name = status.tunnels.last().unwrap().peer.clone();
    let one = Request::SetScheduling {
        peer: Some(name.clone()),
        scheduling: Box::new(scheduling.clone()),
    };
    bed.ask(one).unwrap();
    assert_eq!(has_flows(&bed), 1);
    bed.ask(Request::SetScheduling { peer: None, scheduling: Box::new(scheduling) }).unwrap();
    assert_eq!(has_flows(&bed), 2 * workers);
    for tunnel in &status.tunnels {
        let flows = bed.ask(Request::Flows { peer: Some(tunnel.peer.clone()), limit: 9 }).unwrap();
        let Response::Flows(flows) = flows else { panic!("{flows:?}") };
        assert_eq!(flows.peer, tunnel.peer);
    }
    assert!(bed.ask(Request::Flows { peer: Some("nobody".to_owned()), limit: 9 }).is_err());
    bed.stop(&mut crowd);
}

#[test]
fn whoever_joins_by_an_invitation_is_served_at_home_and_goes_when_removed() {
    let mut bed = Bed::new(&[]);
    let mut crowd = Crowd::new(&bed);
    for home in 0..WORKERS {
        let name = format!("guest{home}");
        let invite = |again| {
            let wish = InviteWish {
                name: name.clone(),
                again,
                lifetime_s: 3600,
                addresses: vec!["192.0.2.1:1".to_owned()],
            };
            let Response::Invited(invited) = bed.ask(Request::Invite(wish)).unwrap() else {
                panic!()
            };
            invited.invitation.parse::<Invitation>().unwrap().token
        };
        let first = crowd.add(&keys_at(&bed, home, 1)[0], Some(invite(false)));
        crowd.run_until("the guest is connected", |crowd| crowd.is_connected(first));
        // Another key for the same name, at another worker: the first one goes.
        let second = crowd.add(&keys_at(&bed, (home + 1) % WORKERS, 1)[0], Some(invite(true)));
        crowd.run_until("the new key is in, and the old one out", |crowd| {
            crowd.is_connected(second) && !crowd.is_connected(first)
        });
        let tunnel = bed.status().tunnels.pop().unwrap();
        assert_eq!(tunnel.peer, name);
        crowd.run_until("its packets come", |crowd| {
            bed.send(home, packet(SERVER, inner(&tunnel), 7));
            crowd.has_packet(second, 7)
        });
        // Disabled: its session ends, and it is told why it gets no other.
        let disable = |enabled| {
            let request = Request::EnablePeer { name: name.clone(), enabled };
            let Response::Enabled(done) = bed.ask(request).unwrap() else { panic!() };
            done.changed
        };
        assert!(!disable(true) && disable(false) && !disable(false));
        crowd.run_until("it is refused", |crowd| {
            crowd.count(|event| *event == Event::Refused(Refusal::Disabled)) > 0
        });
        bed.wait_for_routes(&mut crowd, 0);
        assert!(disable(true));
        crowd.forget_events();
        bed.ask(Request::RemovePeer { name: name.clone() }).unwrap();
        crowd.run_until("it is told", |crowd| !crowd.is_connected(second));
        assert_eq!(bed.status().tunnels.len(), 0);
        bed.wait_for_routes(&mut crowd, 0);
    }
    bed.stop(&mut crowd);
}

#[test]
fn an_address_that_a_connected_client_gives_up_is_routed_to_it_no_more() {
    for home in 0..WORKERS {
        let (mut bed, mut crowd, key, end) = one_client_at(home);
        let leads_to =
            |bed: &Bed, address: [u8; 4]| bed.routes().into_keys().eq([IpAddr::from(address)]);
        crowd.run_until("it is connected, with its route", |crowd| {
            crowd.is_connected(end) && leads_to(&bed, [10, 77, 9, 1])
        });
        // It is asked to connect again, and is told its new address then.
        bed.tell_of(&key, [10, 77, 9, 2]);
        crowd.run_until("the route of its new address is the only one", |crowd| {
            crowd.is_connected(end) && leads_to(&bed, [10, 77, 9, 2])
        });
        bed.stop(&mut crowd);
    }
}

#[test]
fn the_session_of_a_client_that_went_and_came_again_is_over_though_both_are_told_at_once() {
    for home in 0..WORKERS {
        let (mut bed, mut crowd, key, end) = one_client_at(home);
        crowd.run_until("it is connected, and the registry knows", |crowd| {
            crowd.is_connected(end) && bed.sessions().contains(&key.public_key())
        });
        bed.wait_for_routes(&mut crowd, 1);
        bed.tell_of_again(&key, [10, 77, 9, 1]);
        let removed = Event::SessionEnded(EndReason::Closed(CloseReason::Removed));
        crowd.run_until("its session is over", |crowd| {
            crowd.count(|event| *event == removed) == 1 && bed.sessions().is_empty()
        });
        bed.wait_for_routes(&mut crowd, 0);
        bed.stop(&mut crowd);
    }
}

#[test]
fn a_worker_that_dies_ends_the_proxy_with_its_reason() {
    let mut bed = Bed::new(&[]);
    let last = WORKERS - 1;
    bed.take_tun_from(last);
    let failure = bed.failure(Duration::from_secs(20));
    assert_eq!(
        failure,
        format!(
            "worker {last} of {WORKERS} ended: TUN interface rw{last} is gone: somebody deleted it"
        )
    );
}

#[test]
fn packets_for_nobody_are_counted_wherever_they_come() {
    let bed = Bed::new(&[]);
    let mut crowd = Crowd::new(&bed);
    for worker in 0..WORKERS {
        bed.send(worker, packet(SERVER, [10, 77, 200, 200], 1));
    }
    crowd.run_until("they are counted", |_| {
        bed.status().drops.get("unknown_destination") == Some(&u64::from(WORKERS))
    });
    let anybody: IpAddr = [10, 77, 200, 200].into();
    assert!(!bed.routes().contains_key(&anybody));
}
