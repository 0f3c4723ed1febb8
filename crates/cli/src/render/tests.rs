use ropewalk_control::api::{
    ConntrackStatus, DaemonStatus, DatagramTraffic, HandshakeCounters, LinkState, PolicyStatus,
    PoolStatus, QueueStatus, ResequencerStatus, STATUS_VERSION, SessionStatus,
};
use ropewalk_control::keys::PublicKey;

use super::*;

#[test]
fn a_client_with_two_links_is_shown_whole() {
    let expected = "\
ropewalk client 0.1.0, process 4711, running for 3h 12m
  warning: rp_filter is strict on wlan0: replies may be dropped

Tunnel with vps.example.org:51900: up over 1 of 2 links for 1m 2s
  key        AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
  inside     10.77.0.2, fd12:3456:789a::2, MTU 1440
  session    aes-256-gcm, 1m 2s old, 0 rekeys, keys 1m 2s old
  sends by   free-window, ccid2, queue 100ms
  up         0.52 Mbit/s, 1.0 MiB in 1000 packets
  down       7.81 Mbit/s, 10.0 MiB in 8000 packets
  waiting    3 packets (4.2 KiB) for a link

TABLE

  wlan: up for 1m 2s, interface wlan0, 192.168.1.5:40000 -> 203.0.113.1:51900,
    keepalive 15s (looking for a longer one), 1.0 MiB up, 10.0 MiB down, 0.12 %
    lost in all
  wwan0: down for 4s 500ms, no gateway on wwan0, no keepalive, 0 B up, 0 B down

Put in order here: 8000 in order, 3 late, 0 duplicate, 2 held now (2.7 KiB)
  skipped: 4 by proof, 1 by deadline; 0 released by a full buffer
  wait of those held: median 1.2 ms, p99 11.0 ms
Dropped: 2 queue full
Dropped before any tunnel: 7 not authentic
";
    let shown = status(&client(), false);
    let table_start = shown.find("\n link").unwrap() + 1;
    let table_end = shown.find("\n\n  wlan: up").unwrap();
    let table = &shown[table_start..table_end];
    for text in ["12.3", "1.2", "0.10", "12 of 34", "1500", "0.52", "7.81", "wwan0", "down"] {
        assert!(table.contains(text), "{text} is missing in\n{table}");
    }
    assert_eq!(shown.replace(table, "TABLE"), expected);
}

#[test]
fn a_proxy_with_several_peers_lists_them_and_one_is_shown_whole() {
    let report = proxy();
    let list = status(&report, false);
    for text in [
        "listens    [::]:51900/udp, uplinks eth0",
        "pool       10.77.0.0/16: 2 of 65533 addresses leased",
        "pool       fd00::/64: 2 of 1.8e19 addresses leased",
        "conntrack  100 of 262144 entries",
        "ropewalk status --peer NAME",
        "laptop",
        "van",
        "1 of 2",
    ] {
        assert!(list.contains(text), "{text} is missing in\n{list}");
    }
    assert!(!list.contains("Put in order"), "{list}");
    assert!(status(&report, true).contains("Put in order"));
}

#[test]
fn whatever_stands_in_it_a_status_has_eighty_columns() {
    let mut long = client();
    let tunnel = &mut long.tunnels[0];
    tunnel.peer = "a-very-long-name-of-a-host.in-a-very-long-domain.example.org:51900".to_owned();
    tunnel.reason =
        Some("the proxy does not answer over any of the links; next try in 8 s".to_owned());
    tunnel.up = PacketTraffic { rate_bps: 9.99e9, packets: u64::MAX, bytes: u64::MAX };
    tunnel.resequencer.in_order = u64::MAX;
    tunnel.resequencer.late = u64::MAX;
    for link in &mut tunnel.links {
        link.name = "a-name-of-thirty-two-characters-".to_owned();
        link.state = LinkState::Disabled;
        link.local = Some("[2001:db8:1111:2222:3333:4444:5555:6666]:65535".parse().unwrap());
        link.remote = Some("[2001:db8:1111:2222:3333:4444:5555:7777]:65535".parse().unwrap());
        link.srtt_ms = Some(12_345.678);
        link.owd_variation_ms = Some(12_345.678);
        link.loss_recent = Some(1.0);
        link.cwnd = Some(65_535);
        link.in_flight = 65_535;
        link.up.rate_bps = 9.999e9;
        link.down.rate_bps = 9.999e9;
    }
    let mut peers = proxy();
    for tunnel in &mut peers.tunnels {
        tunnel.peer = "x".repeat(64);
    }
    peers.proxy.as_mut().unwrap().handshakes.unauthentic = u64::MAX;
    for report in [client(), long, proxy(), peers] {
        for full in [false, true] {
            let shown = status(&report, full);
            for line in shown.lines() {
                assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
                assert_eq!(line.trim_end(), line);
            }
        }
    }
}

#[test]
fn a_name_from_the_other_end_cannot_steer_the_terminal() {
    let mut report = proxy();
    report.tunnels[0].links[0].name = "\u{1b}[2J\n\rgone".to_owned();
    report.tunnels[0].reason = Some("\u{1b}]0;title\u{7}".to_owned());
    let shown = status(&report, true);
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}') && !shown.contains('\r'));
}

#[test]
fn ages_are_said_as_people_say_them() {
    let cases = [
        (0.0, "0s"),
        (0.25, "200ms"),
        (4.5, "4s 500ms"),
        (62.9, "1m 2s"),
        (11_525.0, "3h 12m"),
        (200_000.0, "2days 7h"),
        (-1.0, "0s"),
        (f64::NAN, "0s"),
        (f64::INFINITY, "0s"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(age(seconds), expected, "{seconds}");
    }
}

fn client() -> StatusReport {
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            role: Role::Client,
            program_version: "0.1.0".to_owned(),
            pid: 4711,
            uptime_s: 11_525.0,
            warnings: vec!["rp_filter is strict on wlan0: replies may be dropped".to_owned()],
        },
        tunnels: vec![one_tunnel("vps.example.org:51900")],
        drops: [("not authentic".to_owned(), 7)].into(),
        proxy: None,
    }
}

fn proxy() -> StatusReport {
    let pool = |prefix: &str, gateway: &str, size| PoolStatus {
        prefix: prefix.parse().unwrap(),
        gateway: gateway.parse().unwrap(),
        leased: 2,
        size,
    };
    StatusReport {
        daemon: DaemonStatus { role: Role::Proxy, warnings: Vec::new(), ..client().daemon },
        tunnels: vec![one_tunnel("laptop"), one_tunnel("van")],
        proxy: Some(ProxyStatus {
            listen: "[::]:51900".parse().unwrap(),
            pools: vec![
                pool("10.77.0.0/16", "10.77.0.1", 65_533),
                pool("fd00::/64", "fd00::1", (1 << 64) - 2),
            ],
            uplinks: vec!["eth0".to_owned()],
            handshakes: HandshakeCounters { completed: 3, unauthentic: 1, ..Default::default() },
            conntrack: Some(ConntrackStatus { count: 100, limit: 262_144 }),
        }),
        ..client()
    }
}

fn one_tunnel(peer: &str) -> TunnelStatus {
    let up = LinkStatus {
        id: Some(0),
        name: "wlan".to_owned(),
        interface: Some("wlan0".to_owned()),
        state: LinkState::Up,
        reason: None,
        state_age_s: 62.0,
        local: Some("192.168.1.5:40000".parse().unwrap()),
        remote: Some("203.0.113.1:51900".parse().unwrap()),
        srtt_ms: Some(12.34),
        rttvar_ms: Some(2.0),
        owd_variation_ms: Some(1.2),
        loss_recent: Some(0.001),
        loss_total: Some(0.0012),
        path_mtu: Some(1500),
        black_holes: 0,
        cwnd: Some(34),
        in_flight: 12,
        keepalive_s: Some(15.0),
        keepalive_searching: true,
        up: DatagramTraffic { rate_bps: 520_000.0, datagrams: 1000, bytes: 1 << 20 },
        down: DatagramTraffic { rate_bps: 7_810_000.0, datagrams: 8000, bytes: 10 << 20 },
    };
    let down = LinkStatus {
        id: None,
        name: "wwan0".to_owned(),
        interface: Some("wwan0".to_owned()),
        state: LinkState::Down,
        reason: Some("no gateway on wwan0".to_owned()),
        state_age_s: 4.5,
        local: None,
        remote: None,
        srtt_ms: None,
        rttvar_ms: None,
        owd_variation_ms: None,
        loss_recent: None,
        loss_total: None,
        path_mtu: None,
        black_holes: 0,
        cwnd: None,
        in_flight: 0,
        keepalive_s: None,
        keepalive_searching: false,
        up: DatagramTraffic::default(),
        down: DatagramTraffic::default(),
    };
    TunnelStatus {
        peer: peer.to_owned(),
        peer_public_key: PublicKey::from_bytes([1; 32]),
        state: TunnelState::Up,
        reason: None,
        state_age_s: 62.0,
        inner_v4: Some("10.77.0.2".parse().unwrap()),
        inner_v6: Some("fd12:3456:789a::2".parse().unwrap()),
        inner_mtu: Some(1440),
        session: Some(SessionStatus {
            cipher: "aes-256-gcm".to_owned(),
            age_s: 62.0,
            key_age_s: 62.0,
            rekeys: 0,
        }),
        policy: PolicyStatus {
            scheduler: "free-window".to_owned(),
            controller: "ccid2".to_owned(),
            when_closed: "queue 100ms".to_owned(),
        },
        up: PacketTraffic { rate_bps: 520_000.0, packets: 1000, bytes: 1 << 20 },
        down: PacketTraffic { rate_bps: 7_810_000.0, packets: 8000, bytes: 10 << 20 },
        queue: QueueStatus { packets: 3, bytes: 4300 },
        resequencer: ResequencerStatus {
            held: 2,
            held_bytes: 2800,
            in_order: 8000,
            late: 3,
            skipped_by_proof: 4,
            skipped_by_deadline: 1,
            wait_p50_ms: Some(1.2),
            wait_p99_ms: Some(11.0),
            ..Default::default()
        },
        links: vec![up, down],
        drops: [("queue full".to_owned(), 2), ("never".to_owned(), 0)].into(),
    }
}
