//! Stories: what the client says, for how long, and what a person is shown meanwhile.

use std::time::Duration;

use ropewalk_control::api::StatusReport;
use serde_json::{Value, json};

use super::{Act, Watcher};

/// Between two looks.
const EVERY: u64 = 5;

/// A screen that is looked at for hours.
struct Screen {
    watcher: Watcher,
    /// Seconds since the machine started.
    now: u64,
}

impl Screen {
    fn new() -> Self {
        Self { watcher: Watcher::new(Duration::from_secs(EVERY)), now: 1000 }
    }

    /// One whose client has worked for a while.
    fn calm(report: &Value) -> Self {
        let mut screen = Self::new();
        assert_eq!(screen.shows(60, Some(report)), [] as [String; 0], "nothing is wrong");
        screen
    }

    /// What is shown while the client says this for so many seconds; `None`: it does not answer.
    fn shows(&mut self, seconds: u64, report: Option<&Value>) -> Vec<String> {
        let report = report.map(|report| {
            serde_json::from_value::<StatusReport>(report.clone()).expect("a status")
        });
        let mut shown = Vec::new();
        for _ in 0..seconds / EVERY {
            self.now += EVERY;
            let acts = self.watcher.look(Duration::from_secs(self.now), report.as_ref());
            shown.extend(acts.into_iter().map(|act| match act {
                Act::Show(note) => format!("{}: {}", note.summary, note.body),
                Act::Withdraw(topic) => format!("over: {topic:?}"),
            }));
        }
        shown
    }

    /// The machine sleeps, and nobody looks.
    fn sleeps(&mut self, seconds: u64) {
        self.now += seconds;
    }
}

/// A client with these links, `NAME=STATE` or `NAME=STATE: REASON` each.
fn client(state: &str, links: &[&str]) -> Value {
    let traffic = json!({ "rate_bps": 0.0, "packets": 0, "bytes": 0 });
    let of_link = json!({ "rate_bps": 0.0, "datagrams": 0, "bytes": 0 });
    let links = links.iter().map(|link| {
        let (name, rest) = link.split_once('=').expect("NAME=STATE");
        let (state, reason) = rest.split_once(": ").unwrap_or((rest, ""));
        json!({
            "name": name, "state": state, "reason": reason, "state_age_s": 0.0, "in_flight": 0,
            "up": of_link, "down": of_link,
        })
    });
    json!({
        "version": 1,
        "daemon": { "role": "client", "program_version": "1", "pid": 7, "uptime_s": 9.0 },
        "tunnels": [{
            "peer": "vps:51900", "state": state, "state_age_s": 0.0,
            "peer_public_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
            "policy": { "scheduler": "x", "controller": "x", "when_closed": "x" },
            "up": traffic, "down": traffic, "queue": { "packets": 0, "bytes": 0 },
            "resequencer": { "held": 0, "held_bytes": 0, "in_order": 0, "late": 0, "duplicate": 0,
                "skipped_by_proof": 0, "skipped_by_deadline": 0, "released_by_full_buffer": 0 },
            "links": links.collect::<Vec<_>>(),
        }],
    })
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_link_that_is_lost_and_comes_back_is_told_twice() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    let lost = client("up", &["lte=up", "wlan=down: no carrier"]);
    assert_eq!(screen.shows(60, Some(&lost)), ["wlan is lost: No carrier. lte carries on."]);
    assert_eq!(screen.shows(60, Some(&well)), ["wlan is back: "]);
    // Its interface is pulled out, so that the client has no such link any more.
    let gone = client("up", &["lte=up"]);
    let told = "wlan is lost: Its interface is gone. lte carries on.";
    assert_eq!(screen.shows(60, Some(&gone)), [told]);
    assert_eq!(screen.shows(3600, Some(&gone)), NOTHING);
}

#[test]
fn what_lasts_some_seconds_is_not_told() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    for away in [
        client("up", &["lte=up", "wlan=joining: no answer"]),
        client("stalled", &["lte=down: x", "wlan=down: x"]),
    ] {
        for _ in 0..5 {
            assert_eq!(screen.shows(5, Some(&away)), NOTHING);
            assert_eq!(screen.shows(20, Some(&well)), NOTHING);
        }
    }
}

#[test]
fn several_links_are_told_of_together() {
    let well = client("up", &["eth=up", "lte=up", "sat=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    let lost = client("up", &["eth=down: no carrier", "lte=up", "sat=up", "wlan=down: gone"]);
    let told = "eth and wlan are lost: eth: no carrier. wlan: gone. lte and sat carry on.";
    assert_eq!(screen.shows(60, Some(&lost)), [told]);
    let other = client("up", &["eth=up", "lte=down: x", "sat=up", "wlan=up"]);
    // The one is told sooner, and the other, in its place, when something may be told again.
    let told = ["eth and wlan are back: ", "lte is lost: X. eth, sat and wlan carry on."];
    assert_eq!(screen.shows(60, Some(&other)), told);
}

#[test]
fn of_all_links_lost_one_thing_is_told_and_one_when_it_is_over() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    let mut lost = client("stalled", &["lte=down: no answer", "wlan=down: no answer"]);
    lost["tunnels"][0]["reason"] = "no link answers".into();
    lost["daemon"]["kill_switch"] = "on".into();
    let told = "All links are lost: No link answers. Nothing leaves outside the tunnel.";
    assert_eq!(screen.shows(600, Some(&lost)), [told]);
    let told = "Connected again: lte and wlan carry packets.";
    assert_eq!(screen.shows(600, Some(&well)), [told]);
    // The proxy refuses.
    let mut refused = client("connecting", &["lte=joining: x", "wlan=joining: x"]);
    refused["tunnels"][0]["reason"] = "the proxy is full".into();
    let told = "Ropewalk is not connected: The proxy is full.";
    assert_eq!(screen.shows(60, Some(&refused)), [told]);
}

#[test]
fn a_link_that_comes_and_goes_is_told_so_once_until_it_is_steady() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let lost = client("up", &["lte=down: weak", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    let mut told = Vec::new();
    for _ in 0..12 {
        told.extend(screen.shows(30, Some(&lost)));
        told.extend(screen.shows(30, Some(&well)));
    }
    let once = "lte is lost: Weak. wlan carries on.";
    let expected = [
        once,
        "lte is back: ",
        once,
        "lte is back: ",
        "lte comes and goes: Lost 3 times in ten minutes. You hear of it when it rests. wlan carries on.",
    ];
    assert_eq!(told, expected);
    assert_eq!(screen.shows(700, Some(&well)), NOTHING, "it works, as it should");
    assert_eq!(screen.shows(60, Some(&lost)), [once], "from then on it is a link like others");

    // Another one ends lost.
    let mut screen = Screen::calm(&well);
    for _ in 0..6 {
        screen.shows(30, Some(&lost));
        screen.shows(30, Some(&well));
    }
    assert_eq!(screen.shows(500, Some(&lost)), NOTHING);
    assert_eq!(screen.shows(200, Some(&lost)), [once]);
}

#[test]
fn at_the_start_and_after_a_sleep_links_have_time() {
    let well = client("up", &["wlan=up"]);
    let mut away = client("idle", &["wlan=down: no carrier"]);
    away["tunnels"][0]["reason"] = "no link is usable".into();
    let told = "All links are lost: No link is usable.";
    let mut screen = Screen::new();
    assert_eq!(screen.shows(25, Some(&away)), NOTHING);
    assert_eq!(screen.shows(60, Some(&well)), NOTHING);
    screen.sleeps(8 * 3600);
    // As it was before, then without a network for a while.
    assert_eq!(screen.shows(5, Some(&well)), NOTHING);
    assert_eq!(screen.shows(20, Some(&away)), NOTHING);
    assert_eq!(screen.shows(600, Some(&well)), NOTHING);
    screen.sleeps(600);
    assert_eq!(screen.shows(60, Some(&away)), [told]);
    // One that has never worked in this session.
    assert_eq!(Screen::new().shows(90, Some(&away)), [told]);
}

#[test]
fn a_link_that_is_not_to_work_is_not_lost() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let off = client("up", &["lte=disabled: switched off", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    assert_eq!(screen.shows(600, Some(&off)), NOTHING);
    assert_eq!(screen.shows(600, Some(&well)), NOTHING, "nor is it back");

    let with = |used: u64, state: &str| {
        let mut report = client("up", &[state, "wlan=up"]);
        report["tunnels"][0]["links"][0]["allowance"] = json!({
            "bytes": 50_000_000_000_u64, "used": used, "since": "2026-11-01", "until": "2026-12-01",
            "stop": true,
        });
        report
    };
    let mut screen = Screen::calm(&with(1_000_000_000, "lte=up"));
    let nearly = "lte: 82 % of the allowance is used: 41 GB of 50 GB until 2026-12-01.";
    assert_eq!(screen.shows(60, Some(&with(41_000_000_000, "lte=up"))), [nearly]);
    assert_eq!(screen.shows(60, Some(&with(42_000_000_000, "lte=up"))), NOTHING);
    let over = "lte: the allowance is used up: 50 GB of 50 GB until 2026-12-01. It is not used before that day.";
    assert_eq!(screen.shows(60, Some(&with(50_000_000_000, "lte=down: used up"))), [over]);
    // A new month.
    let told = screen.shows(60, Some(&with(0, "lte=up")));
    assert_eq!(told, ["over: Allowance(\"lte\")"]);
}

#[test]
fn conditions_are_told_at_once_and_taken_away_when_they_are_over() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    let mut portal = client("up", &["lte=up", "wlan=joining: no answer"]);
    portal["tunnels"][0]["links"][1]["sign_in"] = "http://192.168.11.1/login".into();
    let told = "wlan wants a sign-in: Its network lets nothing through before, perhaps at \
        http://192.168.11.1/login. lte carries on meanwhile.";
    assert_eq!(screen.shows(5, Some(&portal)), [told]);
    assert_eq!(screen.shows(5, Some(&well)), ["over: SignIn(\"wlan\")"]);

    let mut failed = well.clone();
    failed["daemon"]["kill_switch"] = "failed".into();
    let told = screen.shows(5, Some(&failed));
    assert!(told.concat().starts_with("The kill switch is not set: "), "{told:?}");
    assert_eq!(screen.shows(5, Some(&well)), ["over: KillSwitch"]);

    let mut other = client("connecting", &["lte=joining: x", "wlan=joining: x"]);
    other["tunnels"][0]["trouble"] = "other-versions".into();
    other["tunnels"][0]["reason"] = "the proxy speaks version 2, this client 1".into();
    let told = screen.shows(5, Some(&other));
    assert!(told.concat().starts_with("Ropewalk needs an update: the proxy speaks"), "{told:?}");
}

#[test]
fn a_move_to_another_proxy_is_told_with_the_reason() {
    let with = |moves: u64, id: &str| {
        let mut report = client("up", &["wlan=up"]);
        report["proxies"] = json!({
            "choose": "auto", "why": "the nearest that answers", "since_s": 1.0, "moves": moves,
            "proxies": [{
                "id": id, "region": "Frankfurt", "addresses": [], "state": "serving",
                "public_key": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "load_percent": 1,
                "rtt_ms": null, "distance_ms": null, "answered_s": null, "in_use": true,
                "staying_flows": null, "wanted": true, "not_tried_for_s": null,
            }],
        });
        report
    };
    let mut screen = Screen::calm(&with(3, "par-1"));
    let told = "Ropewalk uses another proxy: fra-1 (Frankfurt): the nearest that answers.";
    assert_eq!(screen.shows(60, Some(&with(4, "fra-1"))), [told]);
    // The client was restarted, and counts from zero.
    assert_eq!(screen.shows(60, Some(&with(0, "fra-1"))), NOTHING);
}

#[test]
fn a_client_that_is_away_for_long_is_told_and_forgotten_when_it_is_back() {
    let well = client("up", &["lte=up", "wlan=up"]);
    let mut screen = Screen::calm(&well);
    assert_eq!(screen.shows(20, None), NOTHING, "an upgrade");
    assert_eq!(screen.shows(60, Some(&well)), NOTHING);
    let told = screen.shows(600, None);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("Ropewalk does not answer: "), "{told:?}");
    // Links that come up at its start are no news.
    let begins = client("connecting", &["lte=joining: x", "wlan=joining: x"]);
    assert_eq!(screen.shows(20, Some(&begins)), ["over: Client"]);
    assert_eq!(screen.shows(60, Some(&well)), NOTHING);
    // One that was never there is waited for without a word.
    assert_eq!(Screen::new().shows(3600, None), NOTHING);
}
