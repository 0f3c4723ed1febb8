//! Senders of TCP that were told that their segments have arrived.

use std::net::Ipv4Addr;

use ropewalk_proto::packet::checksum::{fold, sum};

use super::pair::{SERVER, World, inner, is_connected, ms, packet};

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A TCP segment of a connection to port 80 of the server, or back.
fn segment(
    (from, to): (Ipv4Addr, Ipv4Addr),
    flags: u8,
    (seq, ack): (u32, u32),
    payload: usize,
) -> Vec<u8> {
    let mut packet = packet(from, to, 40 + payload, 0);
    packet[9] = 6;
    let ports = if to == SERVER { [40_000_u16, 80] } else { [80, 40_000] };
    packet[20..22].copy_from_slice(&ports[0].to_be_bytes());
    packet[22..24].copy_from_slice(&ports[1].to_be_bytes());
    packet[24..28].copy_from_slice(&seq.to_be_bytes());
    packet[28..32].copy_from_slice(&ack.to_be_bytes());
    packet[32..36].copy_from_slice(&[5 << 4, flags, 0xff, 0xff]);
    let length = u16::try_from(packet.len() - 20).unwrap().to_be_bytes();
    let pseudo = sum(sum(0, &packet[12..20]), &[0, 6, length[0], length[1]]);
    let checksum = !fold(sum(pseudo, &packet[20..]));
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The flags of the TCP segments that a client's TUN got.
fn flags_at_client(world: &mut World) -> Vec<u8> {
    let tun = std::mem::take(&mut world.clients[0].tun.0);
    // The server also sends each packet back, with the ports as they are.
    let of_server = |packet: &&Vec<u8>| packet[9] == 6 && packet[20..22] == [0, 80];
    tun.iter().filter(of_server).map(|packet| packet[33]).collect()
}

#[test]
fn a_sender_hears_that_its_connection_is_over_two_minutes_after_the_session_that_acknowledged_it() {
    for comes_back in [false, true] {
        let mut world = World::with_client(9, &[10, 20]);
        world.connect();
        world.run_for(ms(500));
        let (up, down) = ((inner(0), SERVER), (SERVER, inner(0)));
        world.send_up(0, &segment(up, SYN, (0, 0), 0));
        world.run_for(ms(100));
        world.send_down(&segment(down, SYN | ACK, (0, 1), 0));
        world.run_for(ms(100));
        assert_eq!(flags_at_client(&mut world), [SYN | ACK]);
        world.send_up(0, &segment(up, ACK, (1, 1), 0));
        world.clients[0].wires.iter_mut().for_each(|wire| wire.upstream = false);
        world.send_up(0, &segment(up, ACK, (1, 1), 1000));
        world.run_for(ms(20));
        assert_eq!(flags_at_client(&mut world), [ACK], "it is acknowledged and goes nowhere");
        world.proxy.close(world.now);
        world.run_for(ms(2000));
        assert!(!is_connected(&world.clients[0].client), "the session is over");
        if comes_back {
            world.clients[0].wires.iter_mut().for_each(|wire| wire.upstream = true);
            world.restart_proxy();
            world.connect();
        }
        world.run_for(ms(if comes_back { 20_000 } else { 116_000 }));
        assert!(flags_at_client(&mut world).is_empty(), "it may still go on");
        world.run_for(ms(8000));
        let expected: &[u8] = if comes_back { &[] } else { &[RST | ACK] };
        assert_eq!(flags_at_client(&mut world), expected, "it comes back: {comes_back}");
    }
}

/// Of all sessions, segments that are kept.
fn kept(world: &World) -> Vec<usize> {
    let sessions = world.proxy.stats().peers.into_iter().filter_map(|peer| peer.session);
    sessions.map(|session| session.tunnel.local_acks.kept_segments).collect()
}

#[test]
fn clients_that_confirm_nothing_of_what_is_sent_to_them_leave_room_for_others() {
    /// Of 8 bytes: all fit into the window that a client tells.
    const SEGMENTS: u32 = 8000;
    /// A segment may take 2 KiB of memory, all together 256 MiB.
    const MOST_OF_ALL: usize = 128 * 1024;
    const HOSTILE: usize = 20;
    let mut world = World::new(10);
    for _ in 0..=HOSTILE {
        world.add_client(&[10]);
    }
    world.connect();
    world.run_for(ms(500));
    world.echo = false;
    let open = |world: &mut World, client: usize| {
        let (up, down) = ((inner(client), SERVER), (SERVER, inner(client)));
        world.send_up(client, &segment(up, SYN, (0, 0), 0));
        world.run_for(ms(30));
        world.send_down(&segment(down, SYN | ACK, (0, 1), 0));
        world.run_for(ms(30));
        world.send_up(client, &segment(up, ACK, (1, 1), 0));
        world.run_for(ms(30));
    };
    for client in 0..HOSTILE {
        open(&mut world, client);
    }
    for number in 0..SEGMENTS {
        for client in 0..HOSTILE {
            world.send_down(&segment((SERVER, inner(client)), ACK, (1 + 8 * number, 1), 8));
        }
        world.run_for(ms(1));
    }
    let hostile = kept(&world);
    println!("kept: {hostile:?}");
    let all: usize = hostile.iter().sum();
    assert!(all > MOST_OF_ALL / 2 && all <= MOST_OF_ALL, "{all}: bounded, and it was tried");

    open(&mut world, HOSTILE);
    for number in 0..1000 {
        world.send_down(&segment((SERVER, inner(HOSTILE)), ACK, (1 + 8 * number, 1), 8));
    }
    let now = kept(&world);
    assert_eq!(now.iter().sum::<usize>() - all, 1000, "the newcomer's are kept: {now:?}");
}
