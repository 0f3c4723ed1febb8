//! Datagrams into both ends of an established tunnel: as they are, or sealed with the right keys, as a
//! peer out of its mind would.

use std::time::Duration;

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::pair::{TunnelLab, conditions, forger, link_config, tunnels};
use ropewalk_proto::config::{MAX_LINKS, TunnelConfig};
use ropewalk_proto::crypto::KeyRing;
use ropewalk_proto::error::DropCounters;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, TAG_LEN};
use ropewalk_settings::Keepalive;

use crate::input::Input;

/// Datagrams of one input: enough for any sequence worth finding.
const MOST: usize = 40;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let mut lab = established();
    let mut forgers = [forger(Towards::Client), forger(Towards::Proxy)];
    // Far above what the ends have used themselves.
    let mut number = 1000;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let choice = input.byte();
        let towards = if choice & 1 == 0 { Towards::Client } else { Towards::Proxy };
        let path = path(&lab, towards, choice);
        if choice & 2 == 0 {
            raw(&mut lab, towards, path, input.piece());
        } else {
            number += 1 + u64::from(choice >> 6);
            let forger = &mut forgers[usize::from(choice & 1)];
            let place = input.byte();
            let link = LinkId(place % 4);
            let kind = match (choice & 4 == 0, place & 128 == 0) {
                (true, true) => Kind::Frames,
                (false, true) => Kind::Data,
                (true, false) => Kind::FlowFrames,
                (false, false) => Kind::FlowData,
            };
            let datagram = sealed(forger, link, number, kind, input.piece());
            lab.inject(towards, path, &datagram);
        }
        let pause = u64::from(input.byte()).pow(2);
        let now = lab.now;
        lab.run_until(now + Duration::from_micros(pause * 100));
        bounds(&lab);
    }
    let now = lab.now;
    lab.run_until(now + Duration::from_secs(5));
    bounds(&lab);
}

fn established() -> TunnelLab {
    let config = TunnelConfig::default();
    let mut lab = tunnels(&config, &config, 1);
    for link in 0..2 {
        let conditions = conditions(10.0, 10 + 30 * link, 50);
        let path = lab.add_link(conditions.clone(), conditions, link);
        let added = lab.client.add_link(lab.now, &link_config("wan", path, Keepalive::Off));
        assert!(added.is_ok(), "few links");
    }
    lab.run_until(Instant::from_millis(300));
    lab
}

fn path(lab: &TunnelLab, towards: Towards, choice: u8) -> Path {
    let link = usize::from(choice >> 3 & 1);
    let (socket, remote) = match towards {
        Towards::Client => (SocketId(u16::from(choice >> 3 & 1)), PROXY),
        Towards::Proxy if choice & 16 == 0 => (SocketId(0), lab.links[link].outer),
        Towards::Proxy => (SocketId(0), ([203, 0, 113, choice >> 5], 9).into()),
    };
    Path { socket, local: None, remote }
}

/// What is not authentic changes nothing but counters, and delivers nothing.
fn raw(lab: &mut TunnelLab, towards: Towards, path: Path, datagram: &[u8]) {
    let shown = |lab: &TunnelLab| {
        let mut stats =
            if towards == Towards::Client { lab.client.stats() } else { lab.proxy.stats() };
        let drops: u64 = stats.drops.iter().map(|(_, count)| count).sum();
        stats.drops = DropCounters::default();
        (format!("{stats:?}"), drops)
    };
    // What is due by now is no stranger's doing.
    lab.run_until(lab.now);
    let before = shown(lab);
    lab.delivered(towards);
    lab.inject(towards, path, datagram);
    let after = shown(lab);
    assert_eq!(before.0, after.0, "a stranger changed the state");
    assert_eq!(before.1 + 1, after.1, "each is counted once");
    assert!(lab.delivered(towards).is_empty(), "a stranger delivered a packet");
}

fn sealed(forger: &mut KeyRing, link: LinkId, number: u64, kind: Kind, body: &[u8]) -> Vec<u8> {
    let low = u32::try_from(number & 0xff_ffff).unwrap_or(0);
    let receiver = SessionIndex::new(9);
    let clear = Clear { kind, phase: 0, link, receiver, number: low }.to_bytes();
    let mut datagram = clear.to_vec();
    datagram.extend_from_slice(body);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    let sealing = forger.seal(link, number, &clear, &mut datagram[CLEAR_LEN..]);
    assert!(sealing.is_ok(), "numbers only grow");
    datagram
}

fn bounds(lab: &TunnelLab) {
    let config = TunnelConfig::default();
    for stats in [lab.client.stats(), lab.proxy.stats()] {
        assert!(stats.links.len() <= MAX_LINKS);
        assert!(stats.reseq.held <= config.reseq.max_packets);
        assert!(stats.reseq.held_bytes <= config.reseq.settings.buffer);
        assert!(stats.queued.1 <= config.queue.bytes);
    }
}
