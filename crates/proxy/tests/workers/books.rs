//! The books of a running proxy are written beside its packets: a disk that takes its time holds up nobody but whoever waits
//! for just that, and a change holds when it is on disk, or never was.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_control::api::{ErrorCode, InviteWish, Request, Response};
use ropewalk_control::invitation::Invitation;
use ropewalk_proto::event::Event;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_proxy::leases::Leases;
use ropewalk_proxy::pool::Pools;
use ropewalk_proxy::registry::peers_file::PeersFile;
use ropewalk_settings::{InvitationToken, PrivateKey};

use crate::bed::{Bed, WORKERS, packet};
use crate::clients::Crowd;
use crate::{SERVER, inner, keys_at};

/// Long enough for whatever does not wait for the disk.
const A_WHILE: Duration = Duration::from_millis(600);

fn wish(name: &str) -> Request {
    invite(name, false)
}

/// A new key for a client that has one.
fn rotate(name: &str) -> Request {
    invite(name, true)
}

fn invite(name: &str, again: bool) -> Request {
    Request::Invite(InviteWish {
        name: name.to_owned(),
        again,
        lifetime_s: 3600,
        addresses: vec!["192.0.2.1:1".to_owned()],
    })
}

fn token(response: Response) -> InvitationToken {
    let Response::Invited(invited) = response else { panic!("{response:?}") };
    invited.invitation.parse::<Invitation>().unwrap().token
}

fn remove(name: &str) -> Request {
    Request::RemovePeer { name: name.to_owned() }
}

/// The book as the next start reads it.
fn on_disk(bed: &Bed) -> PeersFile {
    PeersFile::open(bed.folder().join("state/peers.json")).unwrap()
}

/// The addresses as the next start reads them.
fn leases(bed: &Bed) -> Leases {
    let pools = Pools::new("10.77.0.0/16".parse().unwrap(), None);
    Leases::as_written(bed.folder().join("state/leases.json"), pools).unwrap()
}

/// Whether a change of the book waits for the disk: a wish that leads to none has to wait behind it.
fn waits_for_disk(bed: &Bed) -> bool {
    let mut answer = bed.begin(remove("nobody"));
    // What is asked later is answered later.
    bed.status();
    answer.try_recv().is_err()
}

/// Turns the clients for this time.
fn run_for(crowd: &mut Crowd, time: Duration) {
    let begun = Instant::now();
    crowd.run_until("time passes", |_| begun.elapsed() >= time);
}

#[test]
fn packets_pass_and_questions_are_answered_while_the_disk_is_held_up() {
    let mut bed = Bed::new(&[]);
    // One of the coordinator's own clients.
    let keys = keys_at(&bed, 0, 1);
    bed.reload(&keys);
    let mut crowd = Crowd::new(&bed);
    let client = crowd.add(&keys[0], None);
    crowd.run_until("it is connected", |crowd| crowd.is_connected(client));
    let tunnel = bed.status().tunnels.remove(0);

    let disk = bed.disk();
    let held = disk.lock().unwrap();
    let mut invited = bed.begin(wish("laptop"));
    let mut again = bed.begin(wish("phone"));
    let mut removed = bed.begin(remove("laptop"));
    for number in 0..100 {
        crowd.run_until("a packet came", |crowd| {
            bed.send(0, packet(SERVER, inner(&tunnel), number));
            crowd.has_packet(client, number)
        });
        crowd.run_until("and one went", |crowd| {
            crowd.send(&keys[0].public_key(), &packet(inner(&tunnel), SERVER, number));
            !bed.delivered(0).is_empty()
        });
    }
    let Ok(Response::Peers(peers)) = bed.ask(Request::Peers) else { panic!("no list") };
    assert!(peers.invitations.is_empty(), "nothing has changed");
    assert!(invited.try_recv().is_err() && again.try_recv().is_err(), "nothing is answered");
    assert!(removed.try_recv().is_err());
    assert!(on_disk(&bed).invitations().is_empty());

    drop(held);
    token(invited.blocking_recv().unwrap().unwrap());
    token(again.blocking_recv().unwrap().unwrap());
    let Ok(Response::Removed(removed)) = removed.blocking_recv().unwrap() else { panic!() };
    assert_eq!((removed.public_key, removed.invitations), (None, 1), "in the order of asking");
    let open: Vec<_> = on_disk(&bed).invitations().iter().map(|open| open.name.clone()).collect();
    assert_eq!(open, ["phone"]);
    bed.stop(&mut crowd);
}

#[test]
fn of_two_clients_that_show_one_token_while_the_disk_is_held_up_one_is_let_in_and_one_is_told() {
    for home in 0..WORKERS {
        let mut bed = Bed::new(&[]);
        let mut crowd = Crowd::new(&bed);
        let token = token(bed.ask(wish("laptop")).unwrap());
        let disk = bed.disk();
        let held = disk.lock().unwrap();
        // Each asks over four links; one is served by this worker, the other by the next.
        let keys = [home, (home + 1) % WORKERS].map(|home| keys_at(&bed, home, 1).remove(0));
        let ends = keys.each_ref().map(|key| crowd.add(key, Some(token.clone())));
        run_for(&mut crowd, A_WHILE);
        assert_eq!(crowd.connected(), 0, "nobody is let in before that is on disk");
        assert!(bed.status().tunnels.is_empty() && on_disk(&bed).members().is_empty());

        drop(held);
        let freed = Instant::now();
        crowd.run_until("one is in", |crowd| crowd.connected() == 1);
        println!("home {home}: connected {} ms after the disk", freed.elapsed().as_millis());
        crowd.run_until("the other is told", |crowd| {
            crowd.count(|event| *event == Event::Refused(Refusal::InvitationUsed)) == 1
        });
        let members = on_disk(&bed);
        assert_eq!(members.members().len(), 1);
        let winner = ends.into_iter().zip(&keys).find(|(end, _)| crowd.is_connected(*end));
        assert_eq!(members.members()[0].public_key, winner.unwrap().1.public_key());
        assert_eq!(crowd.connected(), 1);
        bed.stop(&mut crowd);
    }
}

#[test]
fn what_cannot_be_written_is_refused_and_nobody_is_let_in_until_it_can() {
    let mut bed = Bed::new(&[]);
    let mut crowd = Crowd::new(&bed);
    let token = token(bed.ask(wish("laptop")).unwrap());
    // The folder is a file for a while: nothing can be written into it, whoever runs this.
    let (state, aside) = (bed.folder().join("state"), bed.folder().join("aside"));
    fs::rename(&state, &aside).unwrap();
    fs::write(&state, "").unwrap();
    for request in [wish("phone"), remove("laptop")] {
        let error = bed.ask(request).unwrap_err();
        assert_eq!(error.code, ErrorCode::Failed, "{error}");
        assert!(error.message.contains("nothing was changed"), "{error}");
    }
    let end = crowd.add(&PrivateKey::generate().unwrap(), Some(token));
    run_for(&mut crowd, A_WHILE);
    assert!(!crowd.is_connected(end));
    let Ok(Response::Peers(peers)) = bed.ask(Request::Peers) else { panic!("no list") };
    assert_eq!((peers.peers.len(), peers.invitations.len()), (0, 1), "all is as it was");

    fs::remove_file(&state).unwrap();
    fs::rename(&aside, &state).unwrap();
    crowd.run_until("it asks again, and is in", |crowd| crowd.is_connected(end));
    assert_eq!(on_disk(&bed).members().len(), 1);
    bed.stop(&mut crowd);
}

#[test]
fn what_is_being_written_when_the_proxy_is_told_to_stop_is_on_disk_when_it_has_ended() {
    let mut bed = Bed::new(&[]);
    let keys = keys_at(&bed, 1, 2);
    let mut crowd = Crowd::new(&bed);
    let (disk, (say_held, is_held)) = (bed.disk(), std::sync::mpsc::channel());
    let holder = thread::spawn(move || {
        let _held = disk.lock().unwrap();
        say_held.send(()).unwrap();
        thread::sleep(A_WHILE);
    });
    is_held.recv().unwrap();
    bed.reload(&keys[..1]);
    // While that is written the next waits for it.
    bed.reload(&keys);
    let invited = bed.begin(wish("laptop"));
    bed.stop(&mut crowd);
    assert_eq!(on_disk(&bed).invitations().len(), 1);
    assert_eq!(leases(&bed).table().len(), 2);
    assert!(invited.blocking_recv().is_err(), "nobody is told by a proxy that has ended");
    holder.join().unwrap();
}

#[test]
fn a_config_read_again_while_clients_come_in_and_go_out_stays_right() {
    let mut bed = Bed::new(&[]);
    let mut crowd = Crowd::new(&bed);
    let keys = keys_at(&bed, 0, 3);
    let [of_file, goes, comes] = keys.as_slice() else { unreachable!("three were asked for") };
    let invitation = token(bed.ask(wish("goes")).unwrap());
    let gone = crowd.add(goes, Some(invitation));
    crowd.run_until("the first is in", |crowd| crowd.is_connected(gone));
    let invitation = token(bed.ask(wish("comes")).unwrap());

    let disk = bed.disk();
    let held = disk.lock().unwrap();
    let removed = bed.begin(remove("goes"));
    let come = crowd.add(comes, Some(invitation));
    bed.reload(std::slice::from_ref(of_file));
    let file = crowd.add(of_file, None);
    crowd.run_until("that of the file is in", |crowd| crowd.is_connected(file));
    let peers = |bed: &Bed| -> Vec<_> {
        bed.status().tunnels.iter().map(|tunnel| tunnel.peer_public_key).collect()
    };
    assert_eq!(peers(&bed), [of_file.public_key(), goes.public_key()]);
    assert!(crowd.is_connected(gone) && !crowd.is_connected(come));

    drop(held);
    crowd.run_until("one is out, and one in", |crowd| {
        crowd.is_connected(come) && !crowd.is_connected(gone)
    });
    assert!(removed.blocking_recv().unwrap().is_ok());
    assert_eq!(peers(&bed), [of_file.public_key(), comes.public_key()]);
    let addresses: Vec<_> = bed.status().tunnels.iter().map(inner).collect();
    bed.stop(&mut crowd);
    // The newest of what waited for the disk is what the next start reads.
    let leases = leases(&bed);
    assert_eq!(leases.table().len(), 2);
    for (key, address) in [of_file, comes].into_iter().zip(addresses) {
        assert_eq!(leases.table().get(&key.public_key()).unwrap().v4.octets(), address);
    }
}

#[test]
fn a_former_key_is_out_with_its_routes_and_its_session_before_the_new_one_has_a_session() {
    for home in 0..WORKERS {
        let mut bed = Bed::new(&[]);
        let mut crowd = Crowd::new(&bed);
        let keys = [home, (home + 1) % WORKERS].map(|home| keys_at(&bed, home, 1).remove(0));
        let [old, new] = keys.each_ref().map(PrivateKey::public_key);
        let invitation = token(bed.ask(wish("laptop")).unwrap());
        let former = crowd.add(&keys[0], Some(invitation));
        crowd.run_until("it is connected", |crowd| crowd.is_connected(former));
        bed.wait_for_routes(&mut crowd, 1);
        assert_eq!(bed.sessions(), BTreeSet::from([old]));

        let invitation = token(bed.ask(rotate("laptop")).unwrap());
        let disk = bed.disk();
        let held = disk.lock().unwrap();
        let latter = crowd.add(&keys[1], Some(invitation));
        crowd.run_until("the new key is being written", |_| waits_for_disk(&bed));
        // Who has the new key is switched off before anything is answered.
        crowd.keep_only(former);
        drop(held);
        crowd.run_until("the former key is out, and leaves nothing behind", |crowd| {
            !crowd.is_connected(former) && bed.routes().is_empty() && bed.sessions().is_empty()
        });
        crowd.keep_only(latter);
        crowd.run_until("the new key is in", |crowd| crowd.is_connected(latter));
        bed.wait_for_routes(&mut crowd, 1);
        assert_eq!(bed.sessions(), BTreeSet::from([new]));
        bed.stop(&mut crowd);
    }
}

#[test]
fn a_former_key_is_out_although_the_config_file_names_the_new_one_otherwise_meanwhile() {
    for home in 0..WORKERS {
        let mut bed = Bed::new(&[]);
        let mut crowd = Crowd::new(&bed);
        let keys = keys_at(&bed, home, 2);
        let invitation = token(bed.ask(wish("laptop")).unwrap());
        let former = crowd.add(&keys[0], Some(invitation));
        crowd.run_until("it is connected", |crowd| crowd.is_connected(former));
        let invitation = token(bed.ask(rotate("laptop")).unwrap());
        let disk = bed.disk();
        let held = disk.lock().unwrap();
        let latter = crowd.add(&keys[1], Some(invitation));
        crowd.run_until("the new key is being written", |_| waits_for_disk(&bed));
        bed.reload(&keys[1..]);
        assert_eq!(bed.status().tunnels.len(), 2);
        drop(held);
        crowd.run_until("the former key is out, and that of the file is in", |crowd| {
            !crowd.is_connected(former) && crowd.is_connected(latter)
        });
        bed.wait_for_routes(&mut crowd, 1);
        let tunnels = bed.status().tunnels;
        let known: Vec<_> = tunnels.iter().map(|tunnel| tunnel.peer_public_key).collect();
        assert_eq!(known, [keys[1].public_key()]);
        bed.stop(&mut crowd);
    }
}
