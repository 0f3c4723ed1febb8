//! Two tunnels on wires without delay or loss, for what does not show from outside.

use std::sync::Arc;

use arrayvec::ArrayString;

use ropewalk_settings::{Keepalive, LinkPolicy, PresharedKey};

use super::*;
use crate::crypto::rekey::RekeyContext;
use crate::crypto::{Cipher, DataKey, EpochKeys, HandshakeRole, StaticSecret};
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::packet::Packet;
use crate::path::{Path, SocketId};
use crate::sink::TransmitSink;
use crate::time::Duration;
use crate::timer::sooner;

/// Room for any datagram with frames, but for no probe.
const CONTROL: usize = 1000;

/// Steps at one moment that only a timer that spins can cause.
const SPIN: u32 = 100;

#[derive(Default)]
struct Tun(usize);

impl PacketSink for Tun {
    fn deliver(&mut self, _: Packet<'_>) {
        self.0 += 1;
    }
}

/// A batch with room for datagrams of up to so many bytes.
struct Batch {
    largest: usize,
    reserved: Vec<u8>,
    path: Option<Path>,
    queued: Vec<(Path, Vec<u8>)>,
}

impl Batch {
    fn new(largest: usize) -> Self {
        Self { largest, reserved: Vec::new(), path: None, queued: Vec::new() }
    }
}

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        if len > self.largest || self.queued.len() == 64 {
            return None;
        }
        self.path = Some(path);
        self.reserved = vec![0; len];
        Some(&mut self.reserved)
    }

    fn has_room(&mut self, paths: &[Path], len: usize) -> bool {
        len <= self.largest && self.queued.len() + paths.len() <= 64
    }

    fn commit(&mut self, len: usize) {
        self.reserved.truncate(len);
        let path = self.path.take().expect("reserved before");
        self.queued.push((path, mem::take(&mut self.reserved)));
    }
}

struct Pair {
    now: Instant,
    client: Tunnel,
    proxy: Tunnel,
}

/// Link `place` as the client sees it, and as the proxy does.
fn paths(place: u16) -> (Path, Path) {
    let path = |socket, ip, port| Path {
        socket: SocketId(socket),
        local: None,
        remote: ([192, 0, 2, ip], port).into(),
    };
    (path(place, 1, 4242), path(0, 2, 1000 + place))
}

fn packet() -> [u8; 40] {
    let mut packet = [0; 40];
    packet[0] = 0x45;
    packet[3] = 40;
    packet
}

impl Pair {
    /// With links that have settled.
    fn new(links: u16) -> Self {
        let (ours, theirs) = (StaticSecret::from_bytes([1; 32]), StaticSecret::from_bytes([2; 32]));
        let (up, down) = (DataKey::from_bytes([3; 32]), DataKey::from_bytes([4; 32]));
        let end = |side, role, local: &StaticSecret, remote: &StaticSecret, send, receive| {
            let cipher = Cipher::ChaCha20Poly1305;
            let keys = EpochKeys { epoch: 0, cipher, send, receive, binding: [7; 32] };
            let session = Established {
                side,
                keys: KeyRing::new(role, &keys),
                peer: SessionIndex::new(9),
                rekey: Credentials {
                    local: Arc::new(local.clone()),
                    remote: remote.public(),
                    psk: PresharedKey::NONE,
                    context: RekeyContext::from(&keys),
                },
                gateways: Vec::new(),
                peer_completes: false,
                peer_orders_flows: true,
                peer_tests_speed: true,
            };
            let (config, filter) = (TunnelConfig::default(), InnerFilter::default());
            Tunnel::new(Instant::ZERO, config, filter, session, [5; 32])
        };
        let (up2, down2) = (up.clone(), down.clone());
        let mut pair = Self {
            now: Instant::ZERO,
            client: end(Side::Client, HandshakeRole::Initiator, &ours, &theirs, up, down),
            proxy: end(Side::Proxy, HandshakeRole::Responder, &theirs, &ours, down2, up2),
        };
        (0..links).for_each(|place| pair.add_link(place));
        pair.run_for(Duration::from_secs(1));
        pair
    }

    fn add_link(&mut self, place: u16) {
        let config = LinkConfig {
            name: ArrayString::new(),
            paths: [paths(place).0].into_iter().collect(),
            keepalive: Keepalive::Off,
            metered: false,
            mtu: None,
            policy: LinkPolicy::default(),
        };
        self.client.add_link(self.now, &config).unwrap();
    }

    /// Carries what either end has to say until both are silent.
    fn exchange(&mut self) {
        for _ in 0..SPIN {
            if self.exchange_once() == 0 {
                return;
            }
        }
        panic!("the ends do not fall silent");
    }

    /// Carries what either end has to say now; returns how many datagrams that was.
    fn exchange_once(&mut self) -> usize {
        let mut up = Batch::new(usize::MAX);
        self.client.poll_transmit(self.now, &mut up);
        let sent = up.queued.len();
        for (path, mut datagram) in up.queued {
            let from = paths(path.socket.0).1;
            let tun = &mut Tun::default();
            self.proxy.handle_datagram(self.now, from, Ecn::NotEct, &mut datagram, tun);
        }
        self.proxy.end_of_batch(self.now);
        let mut down = Batch::new(usize::MAX);
        self.proxy.poll_transmit(self.now, &mut down);
        let answered = down.queued.len();
        for (path, mut datagram) in down.queued {
            let from = paths(path.remote.port() - 1000).0;
            let tun = &mut Tun::default();
            self.client.handle_datagram(self.now, from, Ecn::NotEct, &mut datagram, tun);
        }
        self.client.end_of_batch(self.now);
        sent + answered
    }

    fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        let mut steps = 0;
        self.exchange();
        let next = |pair: &Self| {
            let [client, proxy] = [&pair.client, &pair.proxy].map(Tunnel::poll_timeout);
            sooner(client, proxy).map(|(at, _)| at)
        };
        while let Some(due) = next(self).filter(|due| *due <= end) {
            steps = if due > self.now { 0 } else { steps + 1 };
            assert!(steps < SPIN, "a timer spins at {:?}", self.now);
            self.now = self.now.max(due);
            self.client.handle_timeout(self.now, &mut Tun::default());
            self.proxy.handle_timeout(self.now, &mut Tun::default());
            self.exchange();
        }
        self.now = end;
    }

    fn send_down(&mut self, count: usize) {
        for _ in 0..count {
            self.proxy.handle_packet(self.now, &packet(), &mut Tun::default());
            self.exchange();
        }
    }
}

#[test]
fn a_proxy_whose_key_wears_out_gets_a_fresh_one_each_time() {
    let mut pair = Pair::new(1);
    for epoch in 1..=4 {
        pair.send_down(30);
        // Half of what it may seal.
        pair.proxy.session.keys.allow_seals(20);
        pair.run_for(Duration::from_secs(2));
        let epochs =
            (pair.client.session.keys.newest_epoch(), pair.proxy.session.keys.newest_epoch());
        assert_eq!(epochs, (epoch, epoch));
        assert_eq!(
            pair.proxy.session.keys.send_epoch(),
            Some(pair.proxy.session.keys.newest_epoch())
        );
    }
}

#[test]
fn a_client_that_says_all_the_time_that_it_moves_is_heard_once_in_ten_seconds() {
    let mut pair = Pair::new(1);
    let mut heard = 0;
    for _ in 0..25 {
        pair.client.tell_moving();
        pair.run_for(Duration::from_secs(1));
        while let Some(event) = pair.proxy.poll_event() {
            heard += usize::from(event == Event::Moving);
        }
    }
    assert_eq!(heard, 3);
}

#[test]
fn an_end_whose_key_is_worn_out_waits_in_silence() {
    for side in [Side::Client, Side::Proxy] {
        let mut pair = Pair::new(2);
        let end = if side == Side::Client { &mut pair.client } else { &mut pair.proxy };
        end.session.keys.allow_seals(0);
        for _ in 0..50 {
            pair.client.handle_packet(pair.now, &packet(), &mut Tun::default());
            pair.send_down(1);
            pair.run_for(Duration::from_millis(100));
        }
        let end = if side == Side::Client { &pair.client } else { &pair.proxy };
        assert!(!end.session.keys.can_seal());
        let refused = end.session.drops.get(DropReason::NotSealed);
        assert!(refused <= 1, "{refused} tries");
        assert!(
            end.session.drops.get(DropReason::QueueTimeout) > 10,
            "packets wait in vain, and are counted"
        );
    }
}

#[test]
fn probes_that_find_the_batch_full_are_sent_with_the_next_one() {
    let mut pair = Pair::new(0);
    pair.add_link(0);
    let start = pair.now;
    while pair.client.links[0].mtu.search.mtu() < 1500 {
        assert!(pair.now.since(start) < Duration::from_millis(100), "a try was counted as failed");
        // Small datagrams fit into what is left of a batch, and only then it is flushed.
        let mut batch = Batch::new(CONTROL);
        pair.client.poll_transmit(pair.now, &mut batch);
        for (path, mut datagram) in batch.queued {
            let from = paths(path.socket.0).1;
            let tun = &mut Tun::default();
            pair.proxy.handle_datagram(pair.now, from, Ecn::NotEct, &mut datagram, tun);
        }
        pair.proxy.end_of_batch(pair.now);
        pair.exchange_once();
        pair.now += Duration::from_millis(1);
        pair.client.handle_timeout(pair.now, &mut Tun::default());
        pair.proxy.handle_timeout(pair.now, &mut Tun::default());
    }
}
