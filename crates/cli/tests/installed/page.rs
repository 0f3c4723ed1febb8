//! The page of the daemons in a real browser, with real daemons behind it.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_netlab::access::Access;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::privilege::{lab_test_alone, skipped};
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::tool;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::json;
use toml::Table;

use crate::browser::{Browser, PROGRAMS};

/// Longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const PAGE: &str = "http://127.0.0.1:9586/";

/// Where pictures of the page go, if anybody wants them.
const PICTURES: &str = "ROPEWALK_PICTURES";

/// Seconds of history on such a picture; else three.
const PICTURE_SECONDS: u32 = 75;

#[test]
fn a_browser_shows_the_links_live_on_a_phone_and_on_a_desktop() {
    const NAME: &str = "page::a_browser_shows_the_links_live_on_a_phone_and_on_a_desktop";
    lab_test_alone(NAME, || {
        let Some(program) = PROGRAMS.iter().find(|program| tool::find(program).is_some()) else {
            return skipped(NAME, "no Chromium (Debian: apt-get install chromium)");
        };
        let wan = |mbit, rtt| {
            let (rtt, queue) = (Duration::from_millis(rtt), Duration::from_millis(200));
            WanConfig::from(Access::symmetric(Bitrate::from_mbps(mbit), rtt, queue))
        };
        let config = TopologyConfig::new(vec![wan(8, 20), wan(2, 60)]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        for config in [0, 1] {
            let deployment = stage.deployment();
            let config =
                if config == 0 { deployment.client_config(0) } else { deployment.proxy_config() };
            control(config).insert("web".into(), "127.0.0.1:9586".into());
        }
        stage.start([0, 1]).unwrap();
        let pictures = std::env::var_os(PICTURES).map(PathBuf::from);
        let seconds = if pictures.is_some() { PICTURE_SECONDS } else { 3 };
        let profile = tempfile::tempdir().unwrap();
        let url = stage.url(1_000_000_000, 1);
        let (deployment, topology) = stage.split();
        let mut browser = Browser::start(topology.client(), program, profile.path());
        thread::scope(|scope| {
            let limit = Some(Duration::from_secs(u64::from(2 * seconds + 30)));
            let curl = Curl { interface: None, limit };
            scope.spawn(move || curl.download(topology.client(), &url, |_| {}).unwrap());
            for (size, scheme) in [((390, 844), "light"), ((1280, 800), "dark")] {
                browser.screen(size, scheme);
                browser.open(PAGE);
                let live = format!(
                    "document.querySelectorAll('section.link').length === 2 && \
                     document.querySelector('.link polyline').points.length > {seconds} && \
                     document.querySelector('.total .rate.down b').textContent.endsWith('Mbit/s') && \
                     [...document.querySelectorAll('.link .state')].every((state) => state.textContent === 'up')"
                );
                browser.wait_for(&live, PATIENCE + Duration::from_secs(seconds.into()));
                let text = browser.ask("document.body.innerText");
                let text = text.as_str().expect("a text");
                for part in
                    ["Ropewalk client", "wan0", "wan1", "RTT", "loss", "share", "inside 10.77.0.2"]
                {
                    assert!(text.contains(part), "{part} in {text}");
                }
                // Nothing is cut off at the side, and nothing is too small to read.
                let wide = browser.ask(
                    "[...document.querySelectorAll('b, span, dd, dt, p, h1, h2, h3')] \
                     .filter((e) => e.getBoundingClientRect().right > innerWidth - 16 || \
                     (e.textContent && parseFloat(getComputedStyle(e).fontSize) < 12)) \
                     .map((e) => e.textContent).join()",
                );
                assert_eq!(wide, "", "{size:?}");
                assert_eq!(browser.ask("document.documentElement.scrollWidth"), size.0);
                past_and_reasons(&mut browser);
                if let Some(folder) = &pictures {
                    let picture = STANDARD.decode(browser.picture()).unwrap();
                    std::fs::write(folder.join(format!("page-{}.png", size.0)), picture).unwrap();
                }
            }
        });
        let elsewhere: Vec<_> =
            browser.requests().into_iter().filter(|url| !url.starts_with(PAGE)).collect();
        assert!(elsewhere.iter().all(|url| url == "about:blank"), "{elsewhere:?}");
        let complaints = browser.complaints();
        // Browsers ask for an icon by themselves.
        let serious = complaints.iter().filter(|told| !told.to_string().contains("favicon"));
        assert_eq!(serious.count(), 0, "{complaints:?}");

        // A client of a fleet shows its proxies, and names from the network are text.
        let fleet = browser.ask(
            "showFleet({proxies: {why: 'it was the nearest at the start', since_s: 65, proxies: [\
             {id: 'fra-1', region: 'Frankfurt', addresses: ['203.0.113.7:51900'], rtt_ms: 20.2, load_percent: 12, \
              state: 'serving', in_use: true}, \
             {id: '<b>x</b>', addresses: ['203.0.113.8:51900'], rtt_ms: null, load_percent: 0, state: 'draining', in_use: false}]}}), \
             document.getElementById('fleet').innerText",
        );
        let fleet = fleet.as_str().unwrap();
        for part in [
            "Proxies",
            "fra-1",
            "in use",
            "Frankfurt",
            "RTT 20 ms",
            "<b>x</b>",
            "draining",
            "1 min 5 s",
        ] {
            assert!(fleet.contains(part), "{part} in {fleet}");
        }

        // Over what a link goes, and what limits it, are said in that order.
        let verdict = browser.ask(
            "[...verdict({name: 'wan0', carried: 'over TLS', model: null, up: {factor: 'rate', why: 'full'}, \
             down: {factor: 'rate', why: 'full'}}).children].map((line) => line.textContent).join()",
        );
        assert_eq!(verdict, "wan0,over TLS,rate: full");
        let notes = browser.ask(
            "[...judged({links: [], down: {why: 'full'}, up: {why: 'idle'}, repair: 'sent again', \
             redundancy: 'sent once'}, true).children].map((line) => line.textContent).join()",
        );
        assert_eq!(notes, "all down: full,all up: idle,sent again,sent once");
        sent_twice(&mut browser);
        days_and_times(&mut browser);

        // A link that fails is shown with its reason while the page stays.
        topology.client().ip("link set wan1 down").unwrap();
        let down = "[...document.querySelectorAll('.link')].some((link) => \
                    link.querySelector('.state').textContent === 'down' && \
                    link.querySelector('h3').textContent.startsWith('wan1') && \
                    !link.querySelector('p').hidden)";
        browser.wait_for(down, PATIENCE);

        // The numbers of both ends.
        for (namespace, line) in [
            (topology.client(), "ropewalk_link_state{link=\"wan1\",state=\"down\"} 1\n"),
            (topology.proxy(), "ropewalk_tunnel_state{peer=\"client0\",state=\"up\"} 1\n"),
        ] {
            let url = format!("{PAGE}metrics");
            let numbers = namespace.tool("curl", &["--silent", "--show-error", &url]).unwrap();
            assert!(numbers.contains(line), "{numbers}");
        }

        // A page of somebody else's whose name leads here sees nothing.
        browser.open("http://elsewhere.test:9586/v1/status");
        browser.wait_for("document.body.innerText.includes('own names only')", PATIENCE);

        // A daemon that is gone is no quiet link.
        browser.open(PAGE);
        browser.wait_for("document.querySelectorAll('section.link').length === 2", PATIENCE);
        deployment.stop_client(0).unwrap();
        browser.wait_for(
            "document.getElementById('silent').textContent.includes('does not answer')",
            PATIENCE,
        );
    });
}

/// The page shows what was carried before, each link upon the other, and what limits each now.
fn past_and_reasons(browser: &mut Browser) {
    // Of an hour and of a month: the links both ways, with an outline, a colour and an entry in the legend each. What was
    // there before is of another time, and fades until they come.
    for (place, range) in [(0, "hour"), (2, "month")] {
        let is_faded = browser.ask(&format!(
            "document.querySelectorAll('#ranges button')[{place}].click(), \
             Number(getComputedStyle(document.getElementById('charts')).opacity) < 1"
        ));
        assert_eq!(is_faded, true, "{range}");
        let shown = format!(
            "document.querySelector('#ranges [aria-pressed=true]').textContent === '{range}' && \
             getComputedStyle(document.getElementById('charts')).opacity === '1' && \
             document.querySelectorAll('#charts svg').length === 2 && \
             [...document.querySelectorAll('#charts path')].filter((path) => path.getAttribute('d') && \
             getComputedStyle(path).fill !== 'rgb(0, 0, 0)').length === 4 && \
             document.querySelectorAll('#charts .key').length === 2"
        );
        browser.wait_for(&shown, PATIENCE);
    }
    let text = browser.ask("document.getElementById('past').innerText");
    let text = text.as_str().expect("a text");
    for part in [
        "wan0: ",
        "wan1: ",
        "RTT",
        "full height",
        "used on",
        "link up",
        "tunnel up",
        "daemon started",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    browser.wait_for(
        "document.querySelectorAll('#verdicts .verdict').length === 2 && \
         document.getElementById('why').innerText.includes('all down: ')",
        PATIENCE,
    );
}

/// What goes over two links at once is said behind what is sent again, where a person wants that and anything did.
fn sent_twice(browser: &mut Browser) {
    let wanted = "ports 5060; copies of at most 1 Mbit/s";
    let again = "sent again from here: 4 packets, 1 given up";
    let twice = "sent over two links from here (ports 5060; copies of at most 1 Mbit/s): 500 packets (130 kB), \
                 once for want of budget 7 (7 kB), of room 3";
    let both = format!("{again} · {twice}");
    let cases = [(Some(wanted), 500, both.as_str()), (Some(wanted), 0, again), (None, 500, again)];
    for (redundant, packets, expected) in cases {
        let nothing = json!({ "rate_bps": 0, "bytes": 0 });
        let tunnel = json!({
            "peer": "vps", "state": "up", "state_age_s": 5, "up": nothing, "down": nothing, "links": [],
            "policy": { "redundant": redundant }, "repairs": { "sent_again": 4, "given_up": 1 },
            "redundancy": { "packets": packets, "bytes": 130_000, "over_budget": 7, "over_budget_bytes": 7_000,
                "no_room": 3 },
        });
        let said = browser.ask(&format!(
            "(() => {{ const card = new Tunnel(); card.show({tunnel}, 'client', 1); \
             return card.repair.textContent; }})()"
        ));
        assert_eq!(said, expected, "{redundant:?}, {packets} packets");
    }
}

/// Below the charts stand days where times alone would not say when, and times where they say something.
fn days_and_times(browser: &mut Browser) {
    // Up to 14:33 on July 3, by the browser's own clock: from when, and whether day and time are shown.
    for (from, has_day, has_time) in [
        ("2026, 6, 3, 13, 36", false, true),
        ("2026, 6, 2, 14, 36", true, true),
        ("2026, 6, 1, 14, 36", true, true),
        ("2026, 5, 3, 15, 0", true, false),
    ] {
        let shown = browser.ask(&format!(
            "(() => {{ \
               const moments = [new Date({from}), new Date(2026, 6, 3, 14, 33)]; \
               const [from, now] = moments.map((moment) => moment / 1000); \
               const none = {{down_bps: [null], up_bps: [null], down_bytes: 0, up_bytes: 0}}; \
               showPast({{history: {{state: 'on'}}, from, now, step_s: 360, all: none, links: [], used: [], events: []}}); \
               const spans = document.querySelectorAll('#charts > .head > span'); \
               return [spans[0], spans[2]].map((span, place) => [ \
                 span.textContent.includes(moments[place].toLocaleDateString([], {{month: 'short', day: 'numeric'}})), \
                 span.textContent.includes(moments[place].toLocaleTimeString([], {{hour: '2-digit', minute: '2-digit'}}))]); \
             }})()"
        ));
        let expected = json!([has_day, has_time]);
        assert_eq!(shown, json!([expected, expected]), "from {from}");
    }
}

/// `[control]` of a config.
fn control(config: &mut Table) -> &mut Table {
    config["control"].as_table_mut().expect("the lab names the socket")
}
