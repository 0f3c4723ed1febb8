use ropewalk_control::api::{
    ConntrackStatus, DaemonStatus, DatagramTraffic, FlowPart, FlowStatus, FlowTableStatus,
    FlowWait, FlowsReport, HandshakeCounters, KnownProxy, LinkSpending, LinkState, ModelLimit,
    ModelStatus, OffloadState, OutageCause, OutageStatus, OutagesStatus, PacketTraffic, PathStatus,
    PolicyStatus, PoolStatus, QueueStatus, RecentFlowStatus, RedundancyStatus, RepairStatus,
    ResequencerStatus, STATUS_VERSION, SensedStatus, SessionStatus, ShareStatus, SpendingStatus,
    TunnelState, TurnedAwayStatus,
};
use ropewalk_settings::PublicKey;

use super::*;

#[test]
fn a_client_with_two_links_is_shown_whole() {
    let expected = "\
ropewalk client 0.1.0, process 4711, running for 3h 12m
  warning: rp_filter is strict on wlan0: replies may be dropped
  offload    TUN on for reading only, UDP sending on, UDP receiving unavailable

Tunnel with vps.example.org:51900: up over 1 of 2 links for 1m 2s
  key        AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
  inside     10.77.0.2, fd12:3456:789a::2, MTU 1440
  session    aes-256-gcm, 1m 2s old, 0 rekeys, keys 1m 2s old
  sends by   free-window, ccid2, order global, queue 100ms
  up         520 kbit/s, 1.05 MB in 1000 packets
  down       7.81 Mbit/s, 10.5 MB in 8000 packets
  waiting    3 packets (4.3 kB) for a link

TABLE

  wlan: up for 1m 2s, interface wlan0, 192.168.1.5:40000 -> 203.0.113.1:51900,
    keepalive 15s (looking for a longer one), 1.05 MB up, 10.5 MB down, 0.12 %
    lost in all
  wwan0: down for 4s 500ms, no gateway on wwan0, no keepalive, 0 B up, 0 B down

Put in order here: 8000 in order, 3 late, 0 duplicate, 2 held now (2.8 kB)
  skipped: 4 by proof, 1 by deadline; 0 released by a full buffer
  wait of those held: median 1.2 ms, p99 11.0 ms
Dropped: 2 queue full
Dropped before any tunnel: 7 not authentic
";
    let shown = status(&client(), false, NARROW);
    let table_start = shown.find("\n link").unwrap() + 1;
    let table_end = shown.find("\n\n  wlan: up").unwrap();
    let table = &shown[table_start..table_end];
    for text in ["12.3", "1.2", "0.10", "12 of 34", "1500", "0.52", "7.81", "wwan0", "down"] {
        assert!(table.contains(text), "{text} is missing in\n{table}");
    }
    assert_eq!(shown.replace(table, "TABLE"), expected);
}

#[test]
fn a_client_that_knows_several_proxies_says_which_it_uses_and_why() {
    let known_proxy = |number: u8, id: Option<&str>| KnownProxy {
        id: id.map(str::to_owned),
        region: None,
        addresses: vec![([203, 0, 113, number], 51_900).into()],
        public_key: PublicKey::from_bytes([number; 32]),
        state: "serving".to_owned(),
        load_percent: 12,
        rtt_ms: None,
        distance_ms: None,
        answered_s: None,
        in_use: number == 1,
        staying_flows: None,
        wanted: true,
        not_tried_for_s: None,
    };
    for (id, expected) in [
        (Some("fra-1"), "  proxies    2 known, fra-1 in use for 1m 5s: it was the nearest"),
        (None, "  proxies    2 known, for 1m 5s this one: it was the nearest"),
    ] {
        let known = ProxiesReport {
            why: "it was the nearest at the start".to_owned(),
            since_s: 65.0,
            proxies: vec![known_proxy(1, id), known_proxy(2, None)],
            ..ProxiesReport::default()
        };
        let report = StatusReport { proxies: Some(Box::new(known)), ..client() };
        let shown = status(&report, false, NARROW);
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("ropewalk proxies"), "{shown}");
    }
}

#[test]
fn a_proxy_with_several_peers_lists_them_and_one_is_shown_whole() {
    let report = proxy();
    let list = status(&report, false, NARROW);
    for text in [
        "listens    [::]:51900, 443/udp, uplinks eth0",
        "over TLS   [::]:443/tcp: 2 connections of clients, 1 not known yet",
        "pool       10.77.0.0/16: 2 of 65533 addresses leased",
        "pool       fd00::/64: 2 addresses leased",
        "conntrack  100 of 262144 entries",
        "refused    12 packets of clients to what is closed to them",
        "ropewalk status --peer NAME",
        "laptop",
        "van",
        "1 of 2",
    ] {
        assert!(list.contains(text), "{text} is missing in\n{list}");
    }
    assert!(!list.contains("Put in order"), "{list}");
    assert!(status(&report, true, NARROW).contains("Put in order"));
    assert!(!status(&report, true, NARROW).contains("Sent again"));
    let mut repairing = client();
    repairing.tunnels[0].repairs = Some(RepairStatus {
        sent_again: 12,
        sent_again_bytes: 16_800,
        given_up: 1,
        kept: 40,
        kept_bytes: 56_000,
    });
    let outage = |ago_s| OutageStatus {
        link: "wlan".to_owned(),
        how: OutageCause::Silent,
        ago_s,
        moved_packets: 45,
        stall_ms: Some(62.0),
        away_s: Some(1.2),
    };
    let newest = (1..=6).map(|number| outage(f64::from(number))).collect();
    repairing.tunnels[0].outages =
        OutagesStatus { silent: 6, moved_packets: 270, newest, ..OutagesStatus::default() };
    let repairing = status(&repairing, true, NARROW);
    let mut twice = client();
    twice.tunnels[0].policy.redundant = Some("ports 5060; copies of at most 1 Mbit/s".to_owned());
    twice.tunnels[0].redundancy = Some(RedundancyStatus {
        packets: 500,
        bytes: 130_000,
        over_budget: 7,
        over_budget_bytes: 7_000,
        no_room: 3,
    });
    let twice = status(&twice, true, NARROW);
    for text in [
        "  sent twice ports 5060; copies of at most 1 Mbit/s",
        "Sent over two links from here: 500 packets (130 kB); once for want of budget",
        "(7 kB), of room 3",
    ] {
        assert!(twice.contains(text), "{text} is missing in\n{twice}");
    }
    assert!(repairing.contains("12 packets (16.8 kB), 1 given up"), "{repairing}");
    assert!(repairing.contains("nothing for a while: 6 silent, 0 refused"), "{repairing}");
    assert!(repairing.contains("  5s ago wlan: fell silent; 45 packets over"), "{repairing}");
    assert!(!repairing.contains("  6s ago"), "{repairing}");
    let mut plain = client();
    plain.tunnels[0].resequencer = ResequencerStatus { as_they_came: 7, ..Default::default() };
    let plain = status(&plain, true, NARROW);
    assert!(plain.contains("Delivered here as they came: 7 packets"), "{plain}");
    assert!(!plain.contains("Put in order"), "{plain}");
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
        link.told = Some(
            serde_json::from_str(
                r#"{ "weight": 999999.5, "rate": "999 Mbit/s", "cost": "1000000000 EUR/GB",
                     "importance": { "throughput": 0.125, "cost": 0.875 }, "direction": "both" }"#,
            )
            .unwrap(),
        );
        link.sensed = Some(SensedStatus {
            capacity_told_bps: Some(9.999e9),
            capacity_raw_bps: Some(9.999e9),
            capacity_bps: Some(9.999e9),
            available_raw_bps: Some(9.999e9),
            available_bps: Some(9.999e9),
            others_raw_bps: Some(9.999e9),
            others_bps: Some(9.999e9),
            throughput_raw_kbytes_s: Some(1.25e6),
            throughput_kbytes_s: Some(1.25e6),
            rtt_raw_ms: Some(12_345.6),
            rtt_ms: Some(12_345.6),
            loss_recent: Some(1.0),
            loss_total: Some(1.0),
        });
        let limit = ModelLimit::Losses;
        link.model = Some(ModelStatus {
            rate_bps: Some(9.999e9),
            min_rtt_ms: Some(12_345.6),
            queue_ms: 12_345.6,
            usual_loss: 1.0,
            limit,
            most_bps: Some(9.999e9),
            why: limit.in_words(Some(9.999e9)),
        });
        link.share = Some(ShareStatus {
            share: Some(1.0),
            weight: Some(9.999e9),
            load: Some(1000.0),
            flows: Some(32_768),
            alpha_bps: Some(9.999e9),
        });
    }
    tunnel.flows =
        Some(FlowTableStatus { active: u64::MAX, capacity: u64::MAX, given_up: u64::MAX });
    tunnel.spending = Some(SpendingStatus {
        unit: "sixteen-letters-".to_owned(),
        amount: 1.8e19,
        links: Vec::new(),
    });
    let mut peers = proxy();
    for tunnel in &mut peers.tunnels {
        tunnel.peer = "x".repeat(64);
    }
    peers.proxy.as_mut().unwrap().handshakes.unauthentic = u64::MAX;
    for report in [client(), long, proxy(), peers] {
        for full in [false, true] {
            let shown = status(&report, full, NARROW);
            for line in shown.lines() {
                assert!(
                    line.chars().count() <= usize::from(NARROW),
                    "{} columns: {line}",
                    line.chars().count()
                );
                assert_eq!(line.trim_end(), line);
            }
        }
    }
}

#[test]
fn a_wide_terminal_is_used() {
    let mut report = client();
    report.daemon.warnings = vec!["word ".repeat(30)];
    let longest = |columns| {
        let shown = status(&report, false, columns);
        shown.lines().map(|line| line.chars().count()).max()
    };
    assert!(longest(NARROW) <= Some(80) && longest(160) > Some(150), "{:?}", longest(160));
}

#[test]
fn what_a_scheduler_makes_of_the_links_is_shown_with_what_was_told() {
    let told = |text: &str| Some(serde_json::from_str(text).unwrap());
    let mut report = proxy();
    let tunnel = &mut report.tunnels[0];
    tunnel.policy.scheduler = "batcp".to_owned();
    tunnel.policy.settings = Some("formula prose, a full link passes its turn".to_owned());
    tunnel.policy.own = true;
    tunnel.links[0].told = told(r#"{ "use": "backup" }"#);
    tunnel.links[0].share =
        Some(ShareStatus { share: Some(0.75), load: Some(3.0), ..Default::default() });
    tunnel.links[1].told = told(r#"{ "use": "when-needed", "cost": "5 EUR/GB" }"#);
    let spending = |link: &str, price_per_gb, bytes, amount| LinkSpending {
        link: link.to_owned(),
        price_per_gb,
        bytes,
        amount,
    };
    tunnel.spending = Some(SpendingStatus {
        unit: "EUR".to_owned(),
        amount: 2.01,
        links: vec![
            spending("wwan0", 5.0, 400_000_000, 2.0),
            spending("wwan1", 1.0, 10_000_000, 0.01),
        ],
    });
    let shown = status(&report, true, NARROW);
    let expected = "\
  sends by   batcp (formula prose, a full link passes its turn), ccid2, order
               global, queue 100ms; settings of its own
";
    assert!(shown.contains(expected), "{shown}");
    let expected = "\
  spent      2.01 EUR since the daemon's start: 2.00 on wwan0 (400 MB at 5
               EUR/GB), 0.0100 on wwan1 (10 MB at 1 EUR/GB)
";
    assert!(shown.contains(expected), "{shown}");
    let shares = shown.split_once("How this end shares").unwrap().1;
    let rows: Vec<Vec<_>> =
        shares.lines().skip(1).take(3).map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["link", "share", "%", "load", "told"]);
    assert_eq!(rows[1], ["wlan", "75.0", "3", "use", "backup"]);
    assert_eq!(rows[2], ["wwan0", "-", "-", "cost", "5", "EUR/GB,", "use", "when-needed"]);
}

#[test]
fn each_scheduler_has_its_own_columns() {
    let mut report = client();
    let table = [
        (ShareStatus { weight: Some(3.0), ..Default::default() }, vec!["weight"], "3"),
        (ShareStatus { weight: Some(8.4e6), ..Default::default() }, vec!["weight"], "8.4 Mbit/s"),
        (
            ShareStatus { weight: Some(500_000.25), ..Default::default() },
            vec!["weight"],
            " 500000 ",
        ),
        (ShareStatus { weight: Some(0.25), ..Default::default() }, vec!["weight"], " 0.25 "),
        (
            ShareStatus { flows: Some(12), alpha_bps: Some(1e6), ..Default::default() },
            vec!["flows", "alpha Mbit/s"],
            "12",
        ),
    ];
    for (share, columns, value) in table {
        report.tunnels[0].links[0].share = Some(share);
        let shown = status(&report, false, NARROW);
        let shares = shown.split_once("How this end shares").unwrap().1;
        for text in columns.iter().chain([&value]) {
            assert!(shares.contains(text), "{text} is missing in\n{shown}");
        }
        assert!(!shares.contains("load"), "{shown}");
    }
}

#[test]
fn what_is_sensed_is_shown_raw_and_filtered_once_there_is_some() {
    let mut report = client();
    assert!(!status(&report, false, NARROW).contains("Sensed"));
    report.tunnels[0].links[0].sensed = Some(SensedStatus {
        capacity_told_bps: Some(10e6),
        capacity_raw_bps: Some(9.1e6),
        capacity_bps: Some(9.5e6),
        available_bps: Some(8e6),
        throughput_raw_kbytes_s: Some(125.0),
        throughput_kbytes_s: Some(250.0),
        rtt_raw_ms: Some(31.0),
        rtt_ms: Some(25.5),
        loss_recent: Some(0.015),
        ..Default::default()
    });
    let shown = status(&report, false, NARROW);
    let table = shown.split_once("Sensed").unwrap().1;
    let row: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
    let expected =
        ["wlan", "9.10", "10.0", "-", "8.00", "1.00", "2.00", "-", "-", "31.0", "25.5", "1.50"];
    assert_eq!(row, expected, "{shown}");
}

#[test]
fn the_model_of_a_link_is_shown_for_the_way_that_this_end_sends() {
    let limit = ModelLimit::Others;
    let model = ModelStatus {
        rate_bps: Some(48.2e6),
        min_rtt_ms: Some(21.0),
        queue_ms: 3.1,
        usual_loss: 0.004,
        limit,
        most_bps: None,
        why: limit.in_words(None),
    };
    for (mut report, way) in [(client(), "up"), (proxy(), "down")] {
        assert!(!status(&report, true, NARROW).contains("Found of the way"));
        report.tunnels[0].links[0].model = Some(model.clone());
        let shown = status(&report, true, NARROW);
        let expected = format!(
            "\
Found of the way {way} (the RTT without a queue, the queue now):
 link  Mbit/s  RTT ms  queue ms  usual loss %  what limits it
 wlan    48.2    21.0       3.1          0.40  others use the same link: it
                                               keeps a fair part
"
        );
        assert!(shown.contains(&expected), "{shown}");
    }
}

#[test]
fn flows_are_shown_with_their_links_and_what_is_left_out_is_said() {
    let flow = |activity, source: &str, port, protocol, counted| FlowStatus {
        hash: "0".repeat(16),
        source: source.parse().unwrap(),
        destination: "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap(),
        protocol,
        source_port: port,
        destination_port: port,
        link: "wlan".to_owned(),
        activity,
        counted,
    };
    let mut report = FlowsReport {
        peer: "van".to_owned(),
        scheduler: "safire".to_owned(),
        paths: vec![PathStatus {
            link: "wlan".to_owned(),
            flows: 41,
            capacity_bps: Some(8e6),
            loss_recent: 0.01,
            ..Default::default()
        }],
        flows: vec![
            flow(64, "fd12:3456:789a:1111:2222:3333:4444:5555", Some(65_535), Some(6), false),
            flow(9, "10.77.0.2", None, None, true),
        ],
        left_out: 39,
        table: Some(FlowTableStatus { active: 41, capacity: 32_768, given_up: 3 }),
        ..FlowsReport::default()
    };
    let shown = flows(&report, NARROW);
    for text in [
        "Flows to van: 41 active, room for 32768; 3 given up while active",
        "8.00",
        "64 (ended)",
        "tcp",
        "fragments",
        "10.77.0.2",
        "39 more, less active: see --top",
    ] {
        assert!(shown.contains(text), "{text} is missing in\n{shown}");
    }
    assert!(shown.lines().all(|line| line.chars().count() <= usize::from(NARROW)), "{shown}");
    report.table = None;
    assert_eq!(flows(&report, NARROW), "There is no session at present.\n");
}

#[test]
fn each_flow_is_shown_with_its_links_and_what_it_waits_for() {
    let wait = FlowWait::Link { link: "wlan".to_owned(), later_ms: Some(45.0) };
    let part = |link: &str, share| FlowPart { link: link.to_owned(), bytes: 1, share };
    let flow = RecentFlowStatus {
        source: "192.0.2.1".parse().unwrap(),
        destination: "10.77.0.2".parse().unwrap(),
        protocol: Some(6),
        source_port: Some(443),
        destination_port: Some(51_234),
        rate_bps: 48.2e6,
        links: vec![part("wlan", 0.71), part("lte", 0.29)],
        under_way_bytes: 210 << 10,
        waiting_bytes: 96 << 10,
        to_repair: 0,
        why: wait.in_words(0),
        waits_for: wait,
    };
    let mut report = FlowsReport {
        peer: "van".to_owned(),
        scheduler: "arrival".to_owned(),
        recent: vec![flow],
        recent_over_s: Some(1.03),
        left_out: 3,
        ..FlowsReport::default()
    };
    let expected = "\
Flows to van in the last 1.0 s, by arrival:

tcp 192.0.2.1:443 > 10.77.0.2:51234
  48.2 Mbit/s: 71 % wlan, 29 % lte; 215 kB under way, 98.3 kB waiting here
  waits for wlan: it arrives there first, elsewhere 45 ms later

3 more, of which less is sent: see --top
";
    assert_eq!(flows(&report, NARROW), expected);
    (report.recent, report.left_out) = (Vec::new(), 0);
    assert!(flows(&report, NARROW).ends_with("\n  none: nothing is sent\n"));
}

#[test]
fn a_name_from_the_other_end_cannot_steer_the_terminal() {
    let mut report = proxy();
    report.tunnels[0].links[0].name = "\u{1b}[2J\n\rgone".to_owned();
    report.tunnels[0].reason = Some("\u{1b}]0;title\u{7}".to_owned());
    let shown = status(&report, true, NARROW);
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
            offload: Some(OffloadStatus {
                tun: OffloadState::ReadsOnly,
                udp_gso: OffloadState::On,
                udp_gro: OffloadState::Unavailable,
            }),
            kill_switch: None,
            sandbox: None,
            history: None,
        },
        tunnels: vec![one_tunnel("vps.example.org:51900")],
        drops: [("not authentic".to_owned(), 7)].into(),
        proxy: None,
        rules: Vec::new(),
        proxies: None,
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
            more_ports: vec![443],
            tls: Some(TlsStatus {
                listen: "[::]:443".parse().unwrap(),
                clients: 2,
                strangers: 1,
                refused: 0,
                unproven: 7,
            }),
            listen: "[::]:51900".parse().unwrap(),
            pools: vec![
                pool("10.77.0.0/16", "10.77.0.1", 65_533),
                pool("fd00::/64", "fd00::1", (1 << 64) - 2),
            ],
            uplinks: vec!["eth0".to_owned()],
            handshakes: HandshakeCounters { completed: 3, unauthentic: 1, ..Default::default() },
            conntrack: Some(ConntrackStatus { count: 100, limit: 262_144 }),
            turned_away: Some(TurnedAwayStatus { refused: 12, bounded: 3 }),
            forwards: Vec::new(),
            registry: None,
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
        sign_in: None,
        state_age_s: 62.0,
        local: Some("192.168.1.5:40000".parse().unwrap()),
        remote: Some("203.0.113.1:51900".parse().unwrap()),
        over_tls: false,
        srtt_ms: Some(12.34),
        min_rtt_ms: Some(10.0),
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
        limits: None,
        waited_for_s: 0.0,
        backup: None,
        allowance: None,
        max_up_bps: None,
        max_down_bps: None,
        told: None,
        share: None,
        sensed: None,
        model: None,
    };
    let down = LinkStatus {
        id: None,
        name: "wwan0".to_owned(),
        interface: Some("wwan0".to_owned()),
        state: LinkState::Down,
        reason: Some("no gateway on wwan0".to_owned()),
        sign_in: None,
        state_age_s: 4.5,
        local: None,
        remote: None,
        over_tls: false,
        srtt_ms: None,
        min_rtt_ms: None,
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
        limits: None,
        waited_for_s: 0.0,
        backup: None,
        allowance: None,
        max_up_bps: None,
        max_down_bps: None,
        told: None,
        share: None,
        sensed: None,
        model: None,
    };
    TunnelStatus {
        peer: peer.to_owned(),
        peer_public_key: PublicKey::from_bytes([1; 32]),
        state: TunnelState::Up,
        reason: None,
        trouble: None,
        state_age_s: 62.0,
        inner_v4: Some("10.77.0.2".parse().unwrap()),
        inner_v6: Some("fd12:3456:789a::2".parse().unwrap()),
        inner_mtu: Some(1440),
        session: Some(SessionStatus {
            cipher: "aes-256-gcm".to_owned(),
            age_s: 62.0,
            key_age_s: 62.0,
            rekeys: 0,
            leaves_checksums: true,
        }),
        policy: PolicyStatus {
            scheduler: "free-window".to_owned(),
            settings: None,
            own: false,
            controller: "ccid2".to_owned(),
            order: Some("global".to_owned()),
            redundant: None,
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
        repairs: None,
        redundancy: None,
        outages: Default::default(),
        local_acks: Default::default(),
        links: vec![up, down],
        flows: None,
        spending: None,
        drops: [("queue full".to_owned(), 2), ("never".to_owned(), 0)].into(),
    }
}
