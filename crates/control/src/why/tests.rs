use serde_json::{Value, json};

use super::*;
use crate::api::ModelLimit;

/// A client with two links that are up and carry nothing.
fn idle() -> Value {
    let link = |id: u8, name: &str| {
        json!({
            "id": id, "name": name, "state": "up", "state_age_s": 60.0, "srtt_ms": 20.5, "min_rtt_ms": 20.0,
            "loss_recent": 0.0, "cwnd": 12, "in_flight": 0, "waited_for_s": 0.0,
            "up": { "rate_bps": 0.0, "datagrams": 0, "bytes": 0 },
            "down": { "rate_bps": 0.0, "datagrams": 0, "bytes": 0 },
            "limits": { "no_demand_s": 0.0, "window_s": 0.0, "pace_s": 0.0, "cap_s": 0.0, "turn_s": 0.0,
                "off_s": 0.0 },
        })
    };
    json!({
        "version": 1,
        "daemon": { "role": "client", "program_version": "0", "pid": 7, "uptime_s": 100.0 },
        "tunnels": [{
            "peer": "vps", "peer_public_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
            "state": "up", "state_age_s": 50.0,
            "policy": { "scheduler": "free-window", "controller": "ccid2", "when_closed": "queue 100ms" },
            "up": { "rate_bps": 0.0, "packets": 0, "bytes": 0 },
            "down": { "rate_bps": 0.0, "packets": 0, "bytes": 0 },
            "queue": { "packets": 0, "bytes": 0 },
            "resequencer": { "held": 0, "held_bytes": 0, "in_order": 0, "late": 0, "duplicate": 0,
                "skipped_by_proof": 0, "skipped_by_deadline": 0, "released_by_full_buffer": 0,
                "wait_p50_ms": 18.0, "wait_p99_ms": 44.0 },
            "links": [link(0, "wlan"), link(1, "lte")],
        }],
    })
}

/// The document, with other values at these places.
fn with(mut document: Value, values: &[(&str, Value)]) -> Value {
    for (place, value) in values {
        let (folder, name) = place.rsplit_once('/').expect("a place");
        document.pointer_mut(folder).expect("a known place")[name] = value.clone();
    }
    document
}

fn read(document: Value) -> StatusReport {
    serde_json::from_value(document).expect("a status")
}

/// What happened in two seconds, at whose end these values hold.
fn judged(role: &str, values: &[(&str, Value)]) -> WhyReport {
    let role = [("/daemon/role", json!(role))];
    let later = [("/daemon/uptime_s", json!(102.0))];
    let earlier = with(idle(), &role);
    judge(&read(earlier.clone()), &read(with(with(earlier, &later), values)), &[])
}

const LINK: &str = "/tunnels/0/links/0";

#[test]
fn each_situation_has_its_factor_and_a_sentence_with_its_numbers() {
    let at = |place: &str| format!("{LINK}{place}");
    // In two seconds 192 kB are 768 kbit/s.
    let sent = || (at("/up/bytes"), json!(192_000));
    let limit = |which: &str, seconds: f64| (at(&format!("/limits/{which}")), json!(seconds));
    let full = || limit("window_s", 2.0);
    let sensed = || (at("/sensed"), json!({ "capacity_bps": 8e6 }));
    type Case<'a> = (Vec<(String, Value)>, Factor, &'a [&'a str]);
    let table: Vec<Case<'_>> = vec![
        (vec![limit("no_demand_s", 2.0)], Factor::Demand, &["nothing is to be sent on it"]),
        (
            vec![sent(), sensed(), limit("no_demand_s", 1.8), limit("window_s", 0.2)],
            Factor::Demand,
            &["there is not more to send: it carries 768 kbit/s of 8 Mbit/s"],
        ),
        (
            vec![sent(), sensed(), full()],
            Factor::Window,
            &["its window of 12 packets is full", "768 kbit/s of 8 Mbit/s"],
        ),
        (
            vec![
                sent(),
                full(),
                ("/tunnels/0/policy/controller".into(), json!("fixed, window 12")),
            ],
            Factor::Window,
            &["its window of 12 packets is fixed, and full"],
        ),
        (
            vec![sent(), sensed(), full(), (at("/loss_recent"), json!(0.031))],
            Factor::Loss,
            &["it loses 3.1 % of what is sent", "its window at 12 packets", "of 8 Mbit/s"],
        ),
        (
            vec![sent(), full(), (at("/srtt_ms"), json!(95.0)), (at("/loss_recent"), json!(0.02))],
            Factor::Queue,
            &["its path is full: 75 ms of its round trip of 95 ms", "the shortest was 20 ms"],
        ),
        (
            vec![
                sent(),
                limit("cap_s", 1.5),
                limit("no_demand_s", 0.5),
                (at("/max_up_bps"), json!(8e5)),
            ],
            Factor::Cap,
            &["its cap of 800 kbit/s is reached 75 % of the time: 768 kbit/s"],
        ),
        (
            vec![sent(), limit("pace_s", 2.0), (at("/told"), json!({ "rate": "1 Mbit/s" }))],
            Factor::Pace,
            &["it was told to carry 1 Mbit/s"],
        ),
        (vec![sent(), limit("pace_s", 2.0)], Factor::Pace, &["leaves room for what others send"]),
        (
            vec![
                sent(),
                limit("turn_s", 2.0),
                (at("/share"), json!({ "share": 0.25 })),
                ("/tunnels/0/policy/scheduler".into(), json!("natalie")),
            ],
            Factor::Turn,
            &["it had room 100 % of the time", "natalie, which gives it 25 % of a round"],
        ),
        (vec![(at("/share"), json!({ "share": 0.0 }))], Factor::Weight, &["its weight is 0"]),
        (vec![(at("/backup"), json!("rests"))], Factor::Resting, &["it is kept back and rests"]),
        (
            vec![(at("/told"), json!({ "direction": "down" }))],
            Factor::Direction,
            &["packets down only"],
        ),
        (
            vec![
                (at("/state"), json!("down")),
                (at("/reason"), json!("no carrier")),
                (at("/state_age_s"), json!(12.4)),
            ],
            Factor::Down,
            &["down for 12 s: no carrier"],
        ),
        (
            vec![
                (at("/state"), json!("joining")),
                (
                    at("/reason"),
                    json!("no answer from the proxy for 6 s: asked 192.0.2.1 at UDP 51900"),
                ),
            ],
            Factor::Joining,
            &["asked 192.0.2.1 at UDP 51900"],
        ),
        (
            vec![(at("/state"), json!("disabled")), (at("/reason"), json!("switched off"))],
            Factor::Disabled,
            &["switched off"],
        ),
        (
            vec![
                (at("/state"), json!("down")),
                (at("/reason"), json!("its allowance is used up until 2026-12-01")),
                (
                    at("/allowance"),
                    json!({ "bytes": 5, "used": 5, "since": "", "until": "", "stop": true }),
                ),
            ],
            Factor::Allowance,
            &["used up until 2026-12-01"],
        ),
        (
            vec![
                ("/tunnels/0/state".into(), json!("stalled")),
                ("/tunnels/0/reason".into(), json!("no link answers")),
            ],
            Factor::Down,
            &["the tunnel is stalled: no link answers"],
        ),
    ];
    for (values, factor, words) in table {
        let borrowed: Vec<_> =
            values.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
        let verdict = &judged("client", &borrowed).tunnels[0].links[0].up;
        assert_eq!(verdict.factor, factor, "{values:?}: {verdict:?}");
        for word in words {
            assert!(verdict.why.contains(word), "`{word}`: {}", verdict.why);
        }
    }
}

#[test]
fn a_link_that_is_idle_beside_a_busy_one_is_left_so_by_the_scheduler() {
    let other = "/tunnels/0/links/1";
    // In two seconds 1 MB are 4 Mbit/s. Nothing waited for a link.
    let busy = vec![
        (format!("{LINK}/limits/no_demand_s"), json!(2.0)),
        (format!("{other}/limits/no_demand_s"), json!(2.0)),
        (format!("{other}/up/bytes"), json!(1_000_000)),
    ];
    let enough = "it is idle by the choice of free-window: the other links are enough for the 4 Mbit/s that there \
                  are to send";
    let full = "it is idle by the choice of free-window, though lte is full: 4 Mbit/s go over the other links";
    let model = |limit: &str| json!({ "rate_bps": 9e6, "queue_ms": 1.0, "usual_loss": 0.0, "limit": limit, "why": "" });
    type Case<'a> = (&'a str, Value, &'a str);
    let table: [Case<'_>; 9] = [
        ("/sensed", json!({}), enough),
        ("/sensed", json!({ "capacity_bps": 9e6 }), enough),
        ("/sensed", json!({ "capacity_bps": 4.2e6 }), full),
        ("/in_flight", json!(11), enough),
        ("/in_flight", json!(12), full),
        ("/limits/window_s", json!(0.6), full),
        ("/model", model("nothing"), enough),
        ("/model", model("starting"), enough),
        ("/model", model("rate"), full),
    ];
    for (place, value, expected) in table {
        let mut values = busy.clone();
        values.push((format!("{other}{place}"), value));
        let borrowed: Vec<_> =
            values.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
        let verdict = &judged("client", &borrowed).tunnels[0].links[0].up;
        assert_eq!((verdict.factor, verdict.why.as_str()), (Factor::Turn, expected), "{values:?}");
    }
    // What the other end leaves idle, only that end can explain.
    let down = [
        ("/tunnels/0/links/1/down/bytes", json!(1_000_000)),
        ("/tunnels/0/links/1/in_flight", json!(12)),
    ];
    let verdict = &judged("client", &down).tunnels[0].links[0].down;
    let expected = "it is idle by the choice of the proxy: 4 Mbit/s come on the other links; why is known \
                    there: `ropewalk why`";
    assert_eq!((verdict.factor, verdict.why.as_str()), (Factor::Sender, expected));
}

#[test]
fn a_link_with_a_model_is_held_back_by_what_the_model_says() {
    let table = [
        ("starting", Factor::Starting, "starting: still looking for the rate; packets waited"),
        ("rate", Factor::Rate, "its rate; packets waited for that 90 % of the time: 768 kbit/s"),
        // The last packet left just before.
        ("nothing", Factor::Rate, "its rate; packets waited"),
        ("others", Factor::Others, "others use the same link: it keeps a fair part; packets"),
        ("trial", Factor::Loss, "losses: less is sent to see whether they cease; packets"),
        ("losses", Factor::Loss, "what exceeds 800 kbit/s; packets waited"),
        ("queue", Factor::Queue, "draining a queue; packets waited"),
        ("silence", Factor::Silence, "what was sent is not confirmed; packets waited"),
    ];
    for (limit, factor, words) in table {
        for held in ["pace_s", "window_s"] {
            let kind: ModelLimit = serde_json::from_value(json!(limit)).expect("a limit");
            let values = [
                (format!("{LINK}/up/bytes"), json!(192_000)),
                (format!("{LINK}/limits/{held}"), json!(1.8)),
                (format!("{LINK}/limits/no_demand_s"), json!(0.2)),
                (
                    format!("{LINK}/model"),
                    json!({ "rate_bps": 8e5, "min_rtt_ms": 20.0, "queue_ms": 3.0, "usual_loss": 0.01,
                        "limit": limit, "why": kind.in_words(Some(8e5)) }),
                ),
            ];
            let borrowed: Vec<_> =
                values.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
            let link = judged("client", &borrowed).tunnels[0].links[0].clone();
            assert_eq!(link.up.factor, factor, "{limit}: {link:?}");
            assert!(link.up.why.contains(words), "`{words}`: {}", link.up.why);
            let found = "model of the way up: found 800 kbit/s, 20 ms without a queue, queue 3.0 ms, usual loss 1.0 %";
            assert_eq!(link.model.as_deref(), Some(found));
        }
    }
}

#[test]
fn of_what_comes_an_end_says_what_it_sees_and_who_knows_more() {
    let at = |place: &str| format!("{LINK}{place}");
    let came = || (at("/down/bytes"), json!(1_920_000));
    type Case<'a> = (Vec<(String, Value)>, Factor, &'a str);
    let table: Vec<Case<'_>> = vec![
        (vec![], Factor::Demand, "nothing is sent on it"),
        (vec![came()], Factor::Sender, "7.68 Mbit/s come; what limits it is known at the proxy"),
        (
            vec![came(), (at("/max_down_bps"), json!(8e6))],
            Factor::Cap,
            "its cap of 8 Mbit/s is reached: 7.68 Mbit/s",
        ),
        (
            vec![came(), (at("/waited_for_s"), json!(1.2))],
            Factor::Order,
            "waits for it 60 % of the time, half of them for 18 ms; 7.68 Mbit/s come",
        ),
    ];
    for (values, factor, words) in table {
        let borrowed: Vec<_> =
            values.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
        let verdict = &judged("client", &borrowed).tunnels[0].links[0].down;
        assert_eq!(verdict.factor, factor, "{values:?}: {verdict:?}");
        assert!(verdict.why.contains(words), "{}", verdict.why);
    }
    // At the proxy down is what it sends.
    let at_proxy = [
        (at("/down/bytes"), json!(192_000)),
        (at("/limits/window_s"), json!(2.0)),
        (at("/up/bytes"), json!(192_000)),
    ];
    let borrowed: Vec<_> =
        at_proxy.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
    let link = judged("proxy", &borrowed).tunnels[0].links[0].clone();
    assert_eq!((link.down.factor, link.up.factor), (Factor::Window, Factor::Sender));
    assert!(link.up.why.contains("known at the client"), "{}", link.up.why);
}

#[test]
fn what_the_bundle_loses_against_the_sum_is_told_part_by_part() {
    let other = "/tunnels/0/links/1";
    let at = |link: &str, place: &str| format!("{link}{place}");
    let values = [
        (at(LINK, "/up/bytes"), json!(2_000_000)),
        (at(LINK, "/limits/window_s"), json!(2.0)),
        (at(LINK, "/loss_recent"), json!(0.02)),
        (at(LINK, "/srtt_ms"), json!(95.0)),
        (at(other, "/up/bytes"), json!(500_000)),
        (at(other, "/limits/turn_s"), json!(2.0)),
        (at(other, "/sensed"), json!({ "capacity_bps": 6e6 })),
        ("/tunnels/0/up/bytes".to_owned(), json!(2_400_000)),
        (at(other, "/down/bytes"), json!(250_000)),
        ("/tunnels/0/down/bytes".to_owned(), json!(240_000)),
        ("/tunnels/0/resequencer/skipped_by_deadline".to_owned(), json!(1)),
    ];
    let borrowed: Vec<_> = values.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
    let why = judged("client", &borrowed);
    assert_eq!(
        why.tunnels[0].up.why,
        "9.6 Mbit/s of packets, over 10 Mbit/s on 2 links: headers and reports are 4.0 %; 160 kbit/s are lost \
         on the way; of 14 Mbit/s that the links could carry are unused 4 Mbit/s on lte (scheduler)"
    );
    assert_eq!(
        why.tunnels[0].down.why,
        "960 kbit/s of packets, over 1 Mbit/s on 1 link: headers and reports are 4.0 %; packets that \
         overtook others waited 18 ms for them, one in a hundred 44 ms; 1 packet waited for in vain"
    );
    assert_eq!(why.over_s, 2.0);
    let json = serde_json::to_string(&why).expect("JSON");
    assert_eq!(serde_json::from_str::<WhyReport>(&json).expect("it reads what it wrote"), why);
}

#[test]
fn a_daemon_or_a_link_that_began_again_is_judged_by_what_came_since() {
    let begun = [
        ("/daemon/pid", json!(8)),
        ("/daemon/uptime_s", json!(4.0)),
        ("/tunnels/0/links/0/up/bytes", json!(500_000)),
    ];
    let restarted = judged("client", &begun);
    assert_eq!(restarted.over_s, 4.0);
    assert_eq!(restarted.tunnels[0].links[0].up.rate_bps, 1e6);
    let nothing = judge(&read(idle()), &read(idle()), &[]);
    assert_eq!(nothing.tunnels[0].links[0].up.rate_bps, 0.0, "no time has passed");
}

/// A download of which so much waits, and for what.
fn download(waiting_bytes: u64, waits_for: &Value) -> FlowsReport {
    let report = json!({
        "peer": "vps", "scheduler": "arrival", "paths": [], "flows": [], "left_out": 0, "recent_over_s": 2.0,
        "recent": [{
            "source": "10.77.0.2", "destination": "192.0.2.80", "protocol": 6, "source_port": 40_000,
            "destination_port": 443, "rate_bps": 7.5e6, "links": [], "under_way_bytes": 20_000,
            "waiting_bytes": waiting_bytes, "to_repair": 0, "waits_for": waits_for, "why": "",
        }],
    });
    serde_json::from_value(report).expect("flows")
}

#[test]
fn one_flow_that_leaves_a_link_idle_is_told_with_the_reason() {
    let lte = "/tunnels/0/links/1";
    let limits = |turn_s: f64| {
        json!({ "no_demand_s": 2.0 - turn_s, "window_s": 0.0, "pace_s": 0.0, "cap_s": 0.0, "turn_s": turn_s,
            "off_s": 0.0 })
    };
    let later = json!({ "what": "link", "link": "wlan", "later_ms": 150.0 });
    let table = [
        (
            2.0,
            download(48_000, &later),
            "a packet would be later there by about 150 ms, and what waits here is gone over wlan in 48 ms",
        ),
        (0.0, download(0, &json!({ "what": "receiver" })), "its receiver's window is full"),
        (0.0, download(0, &json!({ "what": "sender" })), "its sender has too little under way"),
    ];
    for (turn_s, flows, words) in table {
        let values = [
            ("/daemon/uptime_s", json!(102.0)),
            ("/tunnels/0/policy/scheduler", json!("arrival")),
            ("/tunnels/0/links/0/up/bytes", json!(2_000_000)),
            ("/tunnels/0/links/1/limits", limits(turn_s)),
        ];
        let why = judge(&read(idle()), &read(with(idle(), &values)), std::slice::from_ref(&flows));
        let text = why.tunnels[0].one_flow.clone().expect("one flow");
        let begins = "one flow, tcp to 192.0.2.80:443, is 100 % of what is sent (7.5 Mbit/s); it goes over wlan while lte is idle: ";
        assert!(text.starts_with(begins) && text.contains(words), "`{words}`: {text}");

        let both = with(idle(), &values);
        let both = with(both, &[("/tunnels/0/links/1/up/bytes", json!(1_500_000))]);
        let why = judge(&read(idle()), &read(both), std::slice::from_ref(&flows));
        assert_eq!(why.tunnels[0].one_flow, None, "both links are used");
        let down = with(idle(), &values);
        let down = with(down, &[(&format!("{lte}/state"), json!("down"))]);
        let why = judge(&read(idle()), &read(down), &[flows]);
        assert_eq!(why.tunnels[0].one_flow, None, "there is no other link");
    }
}

#[test]
fn what_repair_costs_and_saves_is_told_while_anything_is_sent_again() {
    let repairs = |again, given_up| json!({ "sent_again": again, "given_up": given_up, "kept": 0, "kept_bytes": 0 });
    let judged = |again, given_up| {
        let values = [
            ("/tunnels/0/repairs", repairs(again, given_up)),
            ("/tunnels/0/up/packets", json!(1000)),
            ("/tunnels/0/links/1/loss_recent", json!(0.012)),
        ];
        judged("client", &values).tunnels[0].repair.clone()
    };
    assert_eq!(judged(0, 0), None);
    let told = "12 packets sent again, 1.2 % of what was sent: so TCP does not see the loss of 1.2 % on lte; none was given up";
    assert_eq!(judged(12, 0).as_deref(), Some(told));
    let told = judged(12, 2).expect("told");
    assert!(told.ends_with("but 2 packets were given up, too old to be of use"), "{told}");
}

#[test]
fn packets_that_go_once_for_want_of_budget_or_room_are_told_with_what_helps() {
    let wanted =
        || ("/tunnels/0/policy/redundant", json!("ports 5060; copies of at most 1 Mbit/s"));
    let counted = |packets: u64, over_budget: u64, no_room: u64| {
        let copies = json!({ "packets": packets, "bytes": 200 * packets, "over_budget": over_budget,
            "over_budget_bytes": 3_000 * over_budget, "no_room": no_room });
        ("/tunnels/0/redundancy", copies)
    };
    let told = |values: &[(&str, Value)]| judged("client", values).tunnels[0].redundancy.clone();

    let budget =
        "for want of budget (raise it by 96 kbit/s or more with `ropewalk set redundant --budget`)";
    let room = "for want of room on another link (backups take no copies)";
    let begins =
        |once| format!("{once} of 100 packets that were to go over two links went over one: ");
    for (counts, expected) in [
        (counted(100, 0, 0), None),
        (counted(92, 8, 0), Some(begins(8) + budget)),
        (counted(98, 0, 2), Some(begins(2) + room)),
        (counted(90, 8, 2), Some(format!("{}8 {budget}, 2 {room}", begins(10)))),
    ] {
        assert_eq!(told(&[wanted(), counts]), expected);
    }

    assert_eq!(told(&[counted(92, 8, 0)]), None, "nothing is to go over two links any more");
    let alone = ("/tunnels/0/links/1/state", json!("down"));
    assert_eq!(told(&[wanted(), counted(0, 0, 2), alone]), None, "there is no other link");
    let (proxy, own) = (("/daemon/role", json!("proxy")), ("/tunnels/0/policy/own", json!(true)));
    let own = told(&[proxy, own, wanted(), counted(92, 8, 0)]).expect("told");
    assert!(own.contains("`ropewalk set --peer NAME redundant --budget`"), "{own}");
    let long_ago = read(with(idle(), &[wanted(), counted(90, 8, 2)]));
    assert_eq!(judge(&long_ago, &long_ago, &[]).tunnels[0].redundancy, None);
}

#[test]
fn a_link_that_is_up_over_tls_says_so_and_its_verdicts_are_as_ever() {
    let told = "over TLS, because UDP is not answered here";
    let (over_tls, reason, state) =
        (format!("{LINK}/over_tls"), format!("{LINK}/reason"), format!("{LINK}/state"));
    for (is, expected) in [("up", Some(told)), ("down", None)] {
        let values = [
            (over_tls.as_str(), json!(true)),
            (reason.as_str(), json!(told)),
            (state.as_str(), json!(is)),
        ];
        let links = &judged("client", &values).tunnels[0].links;
        assert_eq!(links[0].carried.as_deref(), expected, "{is}");
        assert_eq!(links[1].carried, None, "the other goes by UDP");
    }
    let by_udp = judged("client", &[(reason.as_str(), json!("no socket for IPv6"))]);
    assert_eq!(by_udp.tunnels[0].links[0].carried, None);
}
