use std::slice;

use super::*;
use arrayvec::ArrayVec;
use ropewalk_proto::crypto::Cipher;
use ropewalk_proto::event::{DownReason, EndReason, SessionInfo};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::frame::CloseReason;

use crate::pool::Pools;

#[test]
fn the_state_of_a_peer_follows_its_events() {
    let (mut book, key) = book("10.9.0.0/24", true);
    let established = Event::SessionEstablished(SessionInfo {
        own: ArrayVec::new(),
        peer: ArrayVec::new(),
        cipher: Cipher::Aes256Gcm,
        index: SessionIndex::new(7),
        links: Some(2),
        name_servers: ArrayVec::new(),
        network: None,
    });
    let (a, b) = (LinkId(1), LinkId(2));
    let ended = |reason| Event::SessionEnded(reason);
    let table = [
        (established.clone(), TunnelState::Stalled, RouteChange::Keep),
        (Event::LinkUp(a), TunnelState::Up, RouteChange::Keep),
        (Event::InnerMtu(1400), TunnelState::Up, RouteChange::Route(1400)),
        (Event::LinkUp(b), TunnelState::Up, RouteChange::Keep),
        (Event::LinkDown(a, DownReason::NoAnswer), TunnelState::Up, RouteChange::Keep),
        (Event::LinkDown(b, DownReason::Left), TunnelState::Stalled, RouteChange::Keep),
        (Event::LinkUp(b), TunnelState::Up, RouteChange::Keep),
        (ended(EndReason::Replaced), TunnelState::Up, RouteChange::Keep),
        (established.clone(), TunnelState::Stalled, RouteChange::Keep),
        // Link 2 of the old session says nothing of the new one.
        (Event::LinkUp(a), TunnelState::Up, RouteChange::Keep),
        (Event::LinkDown(a, DownReason::NoAnswer), TunnelState::Stalled, RouteChange::Keep),
        (ended(EndReason::Closed(CloseReason::Shutdown)), TunnelState::Closed, RouteChange::Remove),
        (established, TunnelState::Stalled, RouteChange::Keep),
        (ended(EndReason::Idle), TunnelState::Idle, RouteChange::Remove),
    ];
    for (step, (event, state, change)) in (1..).zip(table) {
        let now = Instant::from_millis(1000 * step);
        let before = nth(&book, 0).state();
        let (peer, found) = book.note(now, &key, &event).unwrap();
        assert_eq!((peer.state(), found), (state, change), "step {step}: {event:?}");
        assert_eq!(peer.since() == now, before != state, "step {step}: {event:?}");
    }
    assert!(book.note(Instant::ZERO, &PublicKey::from_bytes([9; 32]), &Event::LinkUp(a)).is_none());
}

#[test]
fn a_peer_is_found_by_its_name_or_as_the_only_one() {
    let (mut book, key) = book("10.9.0.0/24", true);
    assert_eq!(&*book.named("peer 2").unwrap().name, "peer 2");
    for (name, help) in [("pear 2", "did you mean `peer 2`?"), ("x\n", "`ropewalk status` lists")] {
        let error = book.named(name).unwrap_err();
        assert_eq!(error.code, ErrorCode::NotFound);
        assert!(error.message.contains(help) && !error.message.contains('\n'), "{error}");
    }
    let error = book.only().unwrap_err();
    assert!(error.message.contains("2 peers: say which"), "{error}");
    book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
    assert_eq!(&*book.only().unwrap().name, "peer 1");
    book.remove(&PublicKey::from_bytes([2; 32]));
    book.note(Instant::ZERO, &key, &Event::SessionEnded(EndReason::Idle));
    assert_eq!(&*book.only().unwrap().name, "peer 1");
}

#[test]
fn a_client_is_found_by_its_key_after_others_came_and_went_and_got_new_keys() {
    let (mut book, first) = book("10.9.0.0/24", true);
    let key = |number: u8| PublicKey::from_bytes([number; 32]);
    let client = |number: u8, name: &str| PeerConfig {
        name: name.into(),
        public_key: key(number),
        ..configs().remove(0)
    };
    let (now, leases) = (Instant::ZERO, LeaseTable::default());
    let name = |book: &PeerBook, key| book.get(&key).map(|peer| peer.name.to_string());
    let come = [client(50, "c50"), client(51, "c51")];
    let (changed, _) = book.change(now, &BTreeSet::new(), &come, &leases);
    assert_eq!(changed, [key(50), key(51)]);
    let (changed, _) = book.change(now, &BTreeSet::new(), &come, &leases);
    assert!(changed.is_empty(), "nothing is new");
    // A new key of the same client takes its place; the registry may have told of it before.
    let again = PeerConfig { formerly: Some(Box::new(key(50))), ..client(60, "c50") };
    book.admit(now, &again, &leases);
    book.admit(now, &again, &leases);
    assert_eq!((name(&book, key(50)), name(&book, key(60))), (None, Some("c50".to_owned())));
    book.admit(now, &client(61, "c61"), &leases);
    book.change(now, &BTreeSet::from([first]), &[], &leases);
    assert_eq!(name(&book, first), None);
    for (number, expected) in [(51, "c51"), (60, "c50"), (61, "c61")] {
        assert_eq!(name(&book, key(number)).as_deref(), Some(expected));
    }
    let names: Vec<_> = book.iter().map(|peer| &*peer.name).collect();
    assert_eq!(names, ["peer 2", "c50", "c51", "c61"], "in their order");
}

#[test]
fn a_client_of_which_was_told_before_it_is_let_in_keeps_its_session_and_its_former_key_goes() {
    let key = |number: u8| PublicKey::from_bytes([number; 32]);
    let (now, none) = (Instant::ZERO, LeaseTable::default());
    let client = |number: u8, v4: u8| PeerConfig {
        public_key: key(number),
        address_v4: Some([10, 9, 0, v4].into()),
        ..configs().remove(0)
    };
    let mut book = PeerBook::new(now, &[client(1, 1), client(2, 2)], &none, false);
    book.change(now, &BTreeSet::new(), &[client(3, 1)], &none);
    book.note(now, &key(3), &Event::LinkUp(LinkId(1)));
    let config = PeerConfig { formerly: Some(Box::new(key(1))), ..client(3, 1) };
    assert!(book.admit(now, &config, &none).is_connected());
    let keys: Vec<_> = book.iter().map(|peer| peer.public_key).collect();
    assert_eq!(keys, [key(3), key(2)], "it has the place of its former key");
    assert!(book.get(&key(1)).is_none() && book.is_connected(&key(3)));
    let owners: BTreeMap<IpNet, _> = book.take_moved().into_iter().collect();
    let nets: [IpNet; 2] = ["10.9.0.1/32", "10.9.0.2/32"].map(|net| net.parse().unwrap());
    assert_eq!(owners, BTreeMap::from([(nets[0], Some(key(3))), (nets[1], Some(key(2)))]));
}

#[test]
fn clients_that_come_and_go_leave_no_places_behind_and_the_others_stay_in_their_order() {
    let (mut book, _) = book("10.9.0.0/24", true);
    let leases = LeaseTable::default();
    let mut gone = BTreeSet::new();
    for number in 0..u16::try_from(3 * GAPS).unwrap() {
        let mut key = [7; 32];
        key[..2].copy_from_slice(&number.to_be_bytes());
        let public_key = PublicKey::from_bytes(key);
        let name = number.to_string().into();
        let come = [PeerConfig { name, public_key, ..configs().remove(0) }];
        let (changed, _) = book.change(Instant::ZERO, &gone, &come, &leases);
        assert_eq!(changed, [public_key]);
        gone = BTreeSet::from([public_key]);
        let names: Vec<_> = book.iter().map(|peer| &*peer.name).collect();
        assert_eq!(names, ["peer 1", "peer 2", &*number.to_string()]);
        assert!(book.get(&public_key).is_some());
    }
    assert!(book.peers.len() <= GAPS + 6, "{}", book.peers.len());
}

#[test]
fn a_client_that_is_disabled_says_so_with_and_without_a_session() {
    let (mut book, key) = book("10.9.0.0/24", true);
    let reason = |book: &PeerBook| book.get(&key).unwrap().reason().unwrap_or_default().to_owned();
    assert!(book.enable(&key, false) && !book.enable(&key, false));
    assert!(reason(&book).contains("peer enable"), "{}", reason(&book));
    assert!(book.enable(&key, true) && !reason(&book).contains("peer enable"));
    book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
    // As another proxy of the fleet says it.
    let disabled = PeerConfig { disabled: true, ..configs().remove(0) };
    let leases = leases("10.9.0.0/24");
    let (changed, freed) =
        book.change(Instant::ZERO, &BTreeSet::new(), slice::from_ref(&disabled), leases.table());
    assert_eq!((changed, freed), (vec![key], vec![]));
    let ended = Event::SessionEnded(EndReason::Withdrawn);
    book.note(Instant::ZERO, &key, &ended);
    assert!(reason(&book).contains("peer enable"), "{}", reason(&book));
    let (again, _) = book.change(Instant::ZERO, &BTreeSet::new(), &[disabled], leases.table());
    assert!(again.is_empty(), "nothing is new");
}

#[test]
fn a_client_that_was_never_here_takes_96_bytes_beside_its_name() {
    assert!(size_of::<Option<Peer>>() <= 96);
}

#[test]
fn whose_an_address_is_follows_the_clients() {
    let key = |number: u8| PublicKey::from_bytes([number; 32]);
    let (now, none) = (Instant::ZERO, LeaseTable::default());
    // As the registry of a fleet has them.
    let client = |number: u8, v4: u8, v6: Option<&str>| PeerConfig {
        public_key: key(number),
        address_v4: Some([10, 9, 0, v4].into()),
        address_v6: v6.map(|v6| v6.parse().unwrap()),
        ..configs().remove(0)
    };
    let mut owners: BTreeMap<IpNet, PublicKey> = BTreeMap::new();
    let mut follow = |book: &mut PeerBook| {
        for (net, owner) in book.take_moved() {
            match owner {
                Some(owner) => owners.insert(net, owner),
                None => owners.remove(&net),
            };
        }
        let mut known: Vec<_> = book.iter().flat_map(taken_by).collect();
        known.sort_unstable();
        let found: Vec<_> = owners.iter().map(|(at, owner)| (*at, Some(*owner))).collect();
        assert_eq!(found, known);
        found.len()
    };
    let mut book = PeerBook::new(now, &[client(1, 1, None)], &none, false);
    assert_eq!(follow(&mut book), 1);
    book.change(now, &BTreeSet::new(), &[client(2, 2, Some("fd00:9::2"))], &none);
    assert_eq!(follow(&mut book), 2, "IPv6 is not handed out yet");
    book.hand_out_ipv6();
    assert_eq!(follow(&mut book), 3);
    // Each gets what the other had, in one part.
    let swapped = [client(1, 2, None), client(2, 1, Some("fd00:9::3"))];
    book.change(now, &BTreeSet::new(), &swapped, &none);
    assert_eq!(follow(&mut book), 3);
    let again = PeerConfig { formerly: Some(Box::new(key(2))), ..client(3, 1, None) };
    book.admit(now, &again, &none);
    book.admit(now, &client(4, 4, None), &none);
    assert_eq!(follow(&mut book), 3);
    book.change(now, &BTreeSet::from([key(1)]), &[client(5, 2, None)], &none);
    assert_eq!(follow(&mut book), 3);
    book.take_over(now, &[client(4, 2, None), client(6, 4, None)], &none);
    assert_eq!(follow(&mut book), 2);
    // It comes, is told of once more with the end of the one that had its address, and keeps that.
    book.change(now, &BTreeSet::new(), &[client(7, 2, None)], &none);
    book.change(now, &BTreeSet::from([key(4)]), &[client(7, 2, None)], &none);
    assert_eq!(follow(&mut book), 2);
}

#[test]
fn what_a_connected_client_gives_up_is_routed_to_it_no_more() {
    let key = |number: u8| PublicKey::from_bytes([number; 32]);
    let (now, none) = (Instant::ZERO, LeaseTable::default());
    let client = |number: u8, v4: u8, v6: &str| PeerConfig {
        public_key: key(number),
        address_v4: Some([10, 9, 0, v4].into()),
        address_v6: Some(v6.parse().unwrap()),
        ..configs().remove(0)
    };
    let nets =
        |nets: &[&str]| -> Vec<IpNet> { nets.iter().map(|net| net.parse().unwrap()).collect() };
    let change = |book: &mut PeerBook, come: &[PeerConfig]| {
        let (_, freed) = book.change(now, &BTreeSet::new(), come, &none);
        freed
    };
    let clients = [client(1, 1, "fd00:9::1"), client(2, 2, "fd00:9::2")];
    let mut book = PeerBook::new(now, &clients, &none, true);
    // To one that is not here nothing is routed.
    assert_eq!(change(&mut book, &[client(1, 3, "fd00:9::1")]), nets(&[]));
    for number in [1, 2] {
        book.note(now, &key(number), &Event::LinkUp(LinkId(1)));
    }
    assert_eq!(change(&mut book, &[client(1, 3, "fd00:9::1")]), nets(&[]), "nothing is new");
    // All of them: the session ends, and its end is told of what is the client's own by then.
    let freed = change(&mut book, &[client(1, 4, "fd00:9::1")]);
    assert_eq!(freed, nets(&["10.9.0.3/32", "fd00:9::1/128"]));
    let swapped = [client(1, 2, "fd00:9::2"), client(2, 4, "fd00:9::1")];
    let freed = change(&mut book, &swapped);
    let both = ["10.9.0.4/32", "fd00:9::1/128", "10.9.0.2/32", "fd00:9::2/128"];
    assert_eq!(freed, nets(&both));
    // Another one came with its addresses, has a session by now, and is told of once more.
    let heir = client(3, 2, "fd00:9::2");
    assert_eq!(change(&mut book, slice::from_ref(&heir)), nets(&[]));
    book.note(now, &key(3), &Event::LinkUp(LinkId(1)));
    assert_eq!(change(&mut book, &[client(1, 5, "fd00:9::5"), heir]), nets(&[]));
    // An address that is not handed out was not routed.
    let mut book = PeerBook::new(now, &clients, &none, false);
    book.note(now, &key(1), &Event::LinkUp(LinkId(1)));
    assert_eq!(change(&mut book, &[client(1, 1, "fd00:9::6")]), nets(&[]));
    assert_eq!(change(&mut book, &[client(1, 6, "fd00:9::6")]), nets(&["10.9.0.1/32"]));
}

#[test]
fn the_network_behind_a_client_is_its_own_while_it_has_an_ipv6_address() {
    let network: IpNet = "2001:db8:7::/56".parse().unwrap();
    let mut configs = configs();
    configs[0].prefix_v6 = Some("2001:db8:7::/56".parse().unwrap());
    let (now, key, leases) = (Instant::ZERO, configs[0].public_key, leases("10.9.0.0/24"));
    let mut book = PeerBook::new(now, &configs, leases.table(), false);
    let is_routed = |book: &PeerBook| nth(book, 0).networks().any(|net| net == network);
    assert!(!is_routed(&book) && !book.take_moved().contains(&(network, Some(key))));
    book.hand_out_ipv6();
    assert!(is_routed(&book) && book.take_moved().contains(&(network, Some(key))));
    configs[0].prefix_v6 = None;
    let freed = book.take_over(now, &configs, leases.table());
    assert!(freed.contains(&network) && freed.len() == 3, "{freed:?}");
    assert!(!is_routed(&book) && book.take_moved().contains(&(network, None)));
}

#[test]
fn ipv6_is_handed_out_only_when_it_can_leave() {
    let (book, _) = book("10.9.0.0/24", false);
    let addresses = |book: &PeerBook| nth(book, 0).addresses().count();
    assert_eq!(addresses(&book), 1);
    let (mut later, _) = self::book("10.9.0.0/24", false);
    later.hand_out_ipv6();
    assert_eq!(addresses(&later), 2);
}

#[test]
fn those_that_stay_are_as_they_were_and_those_that_go_are_gone() {
    let (mut book, key) = book("10.9.0.0/24", true);
    book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
    let mut renamed = configs().remove(0);
    renamed.name = "another name".into();
    let freed = book.take_over(Instant::from_millis(5), &[renamed], leases("10.9.0.0/24").table());
    assert_eq!(freed, [] as [IpNet; 0]);
    let peer = book.only().unwrap();
    assert_eq!((peer.state(), &*peer.name), (TunnelState::Up, "another name"));
    assert_eq!(book.iter().count(), 1);
    let back = book.take_over(Instant::from_millis(9), &configs(), leases("10.9.0.0/24").table());
    assert_eq!((back.len(), book.named("peer 2").unwrap().state()), (0, TunnelState::Idle));
    assert_eq!(book.named("peer 1").unwrap().state(), TunnelState::Up);
    let moved = book.take_over(Instant::from_millis(9), &configs(), leases("10.8.0.0/24").table());
    assert_eq!(moved.len(), 4, "two addresses of each: {moved:?}");
}

#[test]
fn a_peer_without_a_lease_says_why_and_the_others_do_not() {
    let (book, _) = book("10.9.0.0/30", true);
    assert_eq!(nth(&book, 0).addresses().count(), 2);
    assert_eq!(nth(&book, 1).addresses().count(), 0);
    let reason = nth(&book, 1).reason().unwrap();
    assert!(reason.contains("refused: the pool 10.9.0.0/30 is exhausted"), "{reason}");
    assert!(!nth(&book, 0).reason().unwrap().contains("refused"));
}

fn nth(book: &PeerBook, at: usize) -> &Peer {
    book.iter().nth(at).unwrap()
}

fn book(pool: &str, ipv6: bool) -> (PeerBook, PublicKey) {
    let book = PeerBook::new(Instant::ZERO, &configs(), leases(pool).table(), ipv6);
    (book, PublicKey::from_bytes([1; 32]))
}

fn leases(pool: &str) -> crate::leases::Leases {
    let folder = tempfile::tempdir().unwrap();
    let pools = Pools::new(pool.parse().unwrap(), Some("fd00:9::/64".parse().unwrap()));
    crate::leases::Leases::open(folder.path().join("leases.json"), pools, &configs(), false)
        .unwrap()
}

fn configs() -> Vec<PeerConfig> {
    let peer = |n: u8| PeerConfig {
        name: format!("peer {n}").into(),
        public_key: PublicKey::from_bytes([n; 32]),
        preshared_key: None,
        address_v4: None,
        address_v6: None,
        prefix_v6: None,
        formerly: None,
        disabled: false,
    };
    vec![peer(1), peer(2)]
}
