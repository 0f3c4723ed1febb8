//! Memory: none is asked for once a tunnel is in its stride, and a session that rests keeps little.

use std::net::Ipv4Addr;

use allocation_counter::measure;
use ipnet::Ipv4Net;
use ropewalk_netlab::direct::{Direct, inner};
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::endpoint::PeerConfig;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_settings::{PresharedKey, PublicKey};

/// Packets of a batch, each way.
const BATCH: u64 = 32;
/// What an idle session may keep at the proxy.
const IDLE_SESSION: i64 = 64 << 10;
/// What the proxy may keep of a client that was never here, its name of 10 to 11 bytes included.
const UNSEEN_CLIENT: i64 = 180;

/// One batch each way, and the reports on it.
fn batch(ends: &mut Direct, up: &[u8], down: &[u8]) {
    for _ in 0..BATCH {
        ends.packet_up(0, up);
        ends.packet_down(down);
    }
    ends.exchange(0);
}

#[test]
fn what_is_asked_for_is_counted() {
    let asked = measure(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!((asked.count_total, asked.bytes_total, asked.bytes_current), (1, 100, 0));
}

#[test]
fn in_the_steady_state_no_packet_costs_an_allocation() {
    for links in [1, 2, 4] {
        for len in [160, 1400] {
            let mut ends = Direct::new(&TunnelConfig::default(), 1, links).unwrap();
            ends.connect().unwrap();
            let up = Inner::plain(Towards::Proxy, 1, len).packet();
            let down = Inner::plain(Towards::Client, 1, len).packet();
            // 2 ms each: until windows, buffers and queues have their sizes, and the ten seconds that a model remembers are over.
            (0..6000).for_each(|_| batch(&mut ends, &up, &down));
            let before = (ends.at_proxy.packets, ends.at_clients.packets);
            let asked = measure(|| (0..1000).for_each(|_| batch(&mut ends, &up, &down)));
            let came = (ends.at_proxy.packets - before.0, ends.at_clients.packets - before.1);
            assert_eq!(came, (1000 * BATCH, 1000 * BATCH), "{links} links, {len} bytes");
            assert_eq!(asked.count_total, 0, "{links} links, {len} bytes: {asked:?}");
        }
    }
}

#[test]
fn an_idle_session_keeps_little_memory_at_the_proxy_whatever_it_carried_before() {
    const CLIENTS: u32 = 100;
    let mut ends = Direct::new(&TunnelConfig::default(), CLIENTS, 2).unwrap();
    let empty = Direct::new(&TunnelConfig::default(), CLIENTS, 2).unwrap();
    ends.connect().unwrap();
    for client in 0..CLIENTS {
        let mut down = Inner::plain(Towards::Client, 1, 1400).packet();
        down[16..20].copy_from_slice(&inner(client).octets());
        let mut up = Inner::plain(Towards::Proxy, 1, 1400).packet();
        up[12..16].copy_from_slice(&inner(client).octets());
        for _ in 0..50 {
            for _ in 0..BATCH {
                ends.packet_up(client as usize, &up);
                ends.packet_down(&down);
            }
            ends.exchange(client as usize);
        }
    }
    let carried = ends.at_proxy.packets + ends.at_clients.packets;
    assert!(carried > u64::from(CLIENTS) * 50 * BATCH, "{carried}: the test would be empty");
    for _ in 0..60 {
        for client in 0..CLIENTS as usize {
            ends.pass(client, Duration::from_millis(10));
            ends.exchange(client);
        }
    }
    let freed = |ends: Direct| {
        let Direct { proxy, .. } = ends;
        -measure(|| drop(proxy)).bytes_current
    };
    let kept = (freed(ends) - freed(empty)) / i64::from(CLIENTS);
    println!("{kept} bytes for each idle session");
    assert!(kept <= IDLE_SESSION, "{kept} bytes for each idle session");
}

#[test]
fn a_client_that_was_never_here_takes_little_memory_at_the_proxy() {
    // As many as fit into tables of a power of two: with others up to twice as much of those is unused.
    const CLIENTS: u32 = 14_000;
    let client = |number: u32| {
        let mut key = [1; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        let inner = Ipv4Addr::from(0x0a40_0002 + number);
        let peer = PeerConfig {
            name: format!("client{number}").into(),
            psk: PresharedKey::NONE,
            inner_v4: Ipv4Net::new(inner, 10).ok(),
            inner_v6: None,
            filter: InnerFilter {
                sources: [inner.into()].into_iter().collect(),
                ..InnerFilter::default()
            },
            enabled: true,
        };
        (PublicKey::from_bytes(key), peer)
    };
    let mut ends = Direct::new(&TunnelConfig::default(), 1, 1).unwrap();
    let kept = measure(|| {
        for (key, peer) in (0..CLIENTS).map(client) {
            ends.proxy.set_peer(Instant::ZERO, key, peer).unwrap();
        }
    });
    let each = kept.bytes_current / i64::from(CLIENTS);
    println!("{each} bytes for each client that was never here");
    assert!(each <= UNSEEN_CLIENT, "{each} bytes for each client that was never here");
}
