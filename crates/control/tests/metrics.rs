//! The numbers for Prometheus, read by another's parser, and the dashboard that asks for them.

use std::collections::{BTreeMap, BTreeSet};

use prometheus_parse::{Scrape, Value};
use ropewalk_control::api::{
    KnownProxy, LinkStatus, ProxiesReport, RedundancyStatus, RepairStatus, StallCounts,
    StallsStatus, StatusReport, TunnelStatus,
};
use ropewalk_control::metrics::{self, MAX_ALL_LINKS, MAX_LINKS, MAX_TUNNELS};
use ropewalk_settings::{KEY_LEN, PublicKey};

const CLIENT: &str = include_str!("status/client.json");
const PROXY: &str = include_str!("status/proxy.json");
const DASHBOARD: &str = include_str!("../../../configs/grafana.json");

#[test]
fn a_client_tells_of_each_link_in_prometheus_own_units() {
    let scrape = scrape(&metrics::text(&report(CLIENT)));
    let link = |name: &str, link: &str| value(&scrape, name, &[("link", link)]);
    // A client sends upstream.
    assert_eq!(link("ropewalk_link_sent_bytes_total", "wlan"), Value::Counter(9e6));
    assert_eq!(link("ropewalk_link_received_bytes_total", "wlan"), Value::Counter(560e6));
    assert_eq!(link("ropewalk_link_rtt_seconds", "wwan0"), Value::Gauge(0.058));
    assert_eq!(link("ropewalk_link_capacity_bytes_per_second", "wlan"), Value::Gauge(5e6));
    assert_eq!(link("ropewalk_link_allowance_used_bytes", "wwan0"), Value::Gauge(40.1e9));
    assert_eq!(value(&scrape, "ropewalk_tunnel_mtu_bytes", &[]), Value::Gauge(1432.0));
    assert_eq!(link("ropewalk_link_model_rate_bytes_per_second", "wlan"), Value::Gauge(4.5e6));
    assert_eq!(link("ropewalk_link_model_min_rtt_seconds", "wlan"), Value::Gauge(0.0205));
    assert_eq!(link("ropewalk_link_model_queue_seconds", "wlan"), Value::Gauge(0.003));
    assert_eq!(link("ropewalk_link_model_usual_loss_ratio", "wlan"), Value::Gauge(0.0125));
    let limit =
        |limit| value(&scrape, "ropewalk_link_model_limit", &[("link", "wlan"), ("limit", limit)]);
    assert_eq!((limit("rate"), limit("queue")), (Value::Gauge(1.0), Value::Gauge(0.0)));
    let state =
        |link, state| value(&scrape, "ropewalk_link_state", &[("link", link), ("state", state)]);
    assert_eq!(
        (state("eth0", "down"), state("eth0", "up")),
        (Value::Gauge(1.0), Value::Gauge(0.0))
    );
    // Not known: no line, and not zero.
    let rtt = scrape.samples.iter().filter(|sample| sample.metric == "ropewalk_link_rtt_seconds");
    assert_eq!(rtt.count(), 2);
}

#[test]
fn a_proxy_tells_of_each_peer_by_its_name_whatever_that_is() {
    let scrape = scrape(&metrics::text(&report(PROXY)));
    let of = |peer: &str| {
        let labels = [("peer", peer), ("link", "lte")];
        value(&scrape, "ropewalk_link_sent_bytes_total", &labels)
    };
    // A proxy sends downstream. The parser leaves the escapes as they stand on the line.
    assert_eq!(of("Käthe's \\\"van\\\" \\\\ 2"), Value::Counter(560e6));
    let twice = |link| {
        let labels = [("peer", "laptop"), ("link", link), ("state", "up")];
        value(&scrape, "ropewalk_link_state", &labels)
    };
    assert_eq!((twice("wlan"), twice("wlan#2")), (Value::Gauge(1.0), Value::Gauge(0.0)));
    let completed = value(&scrape, "ropewalk_handshakes_total", &[("outcome", "completed")]);
    assert_eq!(completed, Value::Counter(4.0));
}

#[test]
fn a_proxy_tells_of_each_port_that_leads_to_a_client() {
    let scrape = scrape(&metrics::text(&report(PROXY)));
    let laptop = [("protocol", "tcp"), ("port", "8443"), ("to", "laptop")];
    let boat = [("protocol", "both"), ("port", "5000-5010"), ("to", "boat")];
    for (name, labels, expected) in [
        ("ropewalk_forward_active", laptop, Value::Gauge(1.0)),
        ("ropewalk_forward_active", boat, Value::Gauge(0.0)),
        ("ropewalk_forward_connections_total", laptop, Value::Counter(12.0)),
        // A proxy sends downstream.
        ("ropewalk_forward_sent_bytes_total", laptop, Value::Counter(40e3)),
        ("ropewalk_forward_received_bytes_total", laptop, Value::Counter(700e3)),
        ("ropewalk_forward_received_packets_total", boat, Value::Counter(0.0)),
    ] {
        assert_eq!(value(&scrape, name, &labels), expected, "{name} {labels:?}");
    }
    assert!(!metrics::text(&report(CLIENT)).contains("ropewalk_forward_"));
}

/// The document of a daemon that knows how long packets of its first tunnel stood still when links went.
fn with_stalls(text: &str) -> StatusReport {
    let counts = |counts: [u64; 4], sum_ms| StallCounts { counts: counts.to_vec(), sum_ms };
    let stalls = StallsStatus {
        bounds_ms: vec![20.0, 50.0, 1000.0],
        silent: counts([0, 3, 2, 1], 3_500.0),
        refused: counts([1, 0, 0, 0], 12.5),
        ..StallsStatus::default()
    };
    let none = counts([0; 4], 0.0);
    let mut report = report(text);
    report.tunnels[0].outages.stalls =
        Some(StallsStatus { removed: none.clone(), peer: none, ..stalls });
    report
}

#[test]
fn stalls_are_a_histogram_whose_bounds_hold_all_that_is_below_them() {
    let text = metrics::text(&with_stalls(CLIENT));
    let expected = "\
# TYPE ropewalk_link_outage_stall_seconds histogram
ropewalk_link_outage_stall_seconds_bucket{cause=\"silent\",le=\"0.02\"} 0
ropewalk_link_outage_stall_seconds_bucket{cause=\"silent\",le=\"0.05\"} 3
ropewalk_link_outage_stall_seconds_bucket{cause=\"silent\",le=\"1\"} 5
ropewalk_link_outage_stall_seconds_bucket{cause=\"silent\",le=\"+Inf\"} 6
ropewalk_link_outage_stall_seconds_sum{cause=\"silent\"} 3.5
ropewalk_link_outage_stall_seconds_count{cause=\"silent\"} 6
";
    assert!(text.contains(expected), "{text}");
    let scrape = scrape(&text);
    let of = |cause: &str| {
        let found = value(&scrape, "ropewalk_link_outage_stall_seconds", &[("cause", cause)]);
        let Value::Histogram(buckets) = found else { panic!("{found:?} is no histogram") };
        buckets.iter().map(|bucket| (bucket.less_than, bucket.count)).collect::<Vec<_>>()
    };
    assert_eq!(of("refused"), [(0.02, 1.0), (0.05, 1.0), (1.0, 1.0), (f64::INFINITY, 1.0)]);
    // The first outage of a kind is to be seen as a change.
    assert_eq!(of("peer"), [(0.02, 0.0), (0.05, 0.0), (1.0, 0.0), (f64::INFINITY, 0.0)]);
    // A proxy tells of each peer, and of none without a figure.
    let text = metrics::text(&with_stalls(PROXY));
    let counts =
        text.lines().filter(|line| line.starts_with("ropewalk_link_outage_stall_seconds_count"));
    assert_eq!(counts.filter(|line| line.contains("{peer=\"")).count(), 4);
    assert!(!metrics::text(&report(CLIENT)).contains("ropewalk_link_outage_stall_seconds"));
}

fn known_proxy(number: u8, id: Option<&str>) -> KnownProxy {
    KnownProxy {
        id: id.map(str::to_owned),
        region: id.map(|_| "eu".to_owned()),
        addresses: vec![([203, 0, 113, number], 51_900).into()],
        public_key: PublicKey::from_bytes([number; KEY_LEN]),
        state: "serving".to_owned(),
        load_percent: 12,
        rtt_ms: Some(20.0),
        distance_ms: Some(20.0),
        answered_s: Some(1.0),
        in_use: number == 1,
        staying_flows: None,
        wanted: true,
        not_tried_for_s: None,
    }
}

fn with_proxies(proxies: Vec<KnownProxy>) -> StatusReport {
    let known = ProxiesReport { moves: 3, proxies, ..ProxiesReport::default() };
    StatusReport { proxies: Some(Box::new(known)), ..report(CLIENT) }
}

#[test]
fn a_client_tells_of_each_proxy_that_it_knows_and_of_none_where_there_is_only_one() {
    let silent =
        KnownProxy { rtt_ms: None, state: "draining".to_owned(), ..known_proxy(2, Some("ams-1")) };
    // One whose name is told by another, too, and one without a name.
    let known = vec![
        known_proxy(1, Some("fra-1")),
        silent,
        known_proxy(3, None),
        known_proxy(4, Some("fra-1")),
    ];
    let scrape = scrape(&metrics::text(&with_proxies(known)));
    let of = |name: &str, proxy: &str, region: &str| {
        value(&scrape, name, &[("proxy", proxy), ("region", region)])
    };
    assert_eq!(of("ropewalk_proxy_in_use", "fra-1", "eu"), Value::Gauge(1.0));
    assert_eq!(of("ropewalk_proxy_in_use", "203.0.113.3:51900", ""), Value::Gauge(0.0));
    assert_eq!(of("ropewalk_proxy_serving", "ams-1", "eu"), Value::Gauge(0.0));
    assert_eq!(of("ropewalk_proxy_rtt_seconds", "fra-1", "eu"), Value::Gauge(0.02));
    assert_eq!(of("ropewalk_proxy_load_ratio", "ams-1", "eu"), Value::Gauge(0.12));
    assert_eq!(value(&scrape, "ropewalk_proxy_moves_total", &[]), Value::Counter(3.0));
    let count = |name: &str| scrape.samples.iter().filter(|sample| sample.metric == name).count();
    assert_eq!((count("ropewalk_proxy_in_use"), count("ropewalk_proxy_rtt_seconds")), (3, 2));
    assert!(!metrics::text(&report(CLIENT)).contains("ropewalk_proxy_"));
}

#[test]
fn every_name_follows_the_rules_and_no_line_is_there_twice() {
    let reports = [
        report(CLIENT),
        report(PROXY),
        with_proxies(vec![known_proxy(1, None), known_proxy(2, None)]),
        with_stalls(PROXY),
    ];
    for text in reports.map(|report| metrics::text(&report)) {
        let mut seen = BTreeSet::new();
        for sample in scrape(&text).samples {
            let counts = matches!(sample.value, Value::Counter(_));
            // The parser gives no type to what a histogram has beside its buckets.
            let beside = ["_sum", "_count"].iter().any(|end| {
                let name = sample.metric.strip_suffix(end).unwrap_or_default();
                text.contains(&format!("# TYPE {name} histogram\n"))
            });
            let has_type = beside || !matches!(sample.value, Value::Untyped(_));
            assert!(has_type, "{sample:?} has no type");
            assert_eq!(counts, sample.metric.ends_with("_total"), "{}", sample.metric);
            let labels: BTreeMap<_, _> = sample.labels.iter().collect();
            assert!(seen.insert(format!("{} {labels:?}", sample.metric)), "{sample:?} twice");
        }
        // Each family stands together, with its help before its type.
        let mut families = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            assert!(families.insert(line), "{line} twice");
        }
        let helps = text.lines().filter(|line| line.starts_with("# HELP")).count();
        assert_eq!(helps, families.len());
    }
}

#[test]
fn however_many_peers_and_links_there_are_the_page_is_bounded() {
    let mut report = report(PROXY);
    let mut tunnel = report.tunnels[0].clone();
    tunnel.links = vec![tunnel.links[0].clone(); MAX_LINKS + 1];
    let idle = report.tunnels[2].clone();
    report.tunnels = vec![idle; MAX_TUNNELS];
    report.tunnels.push(tunnel);
    let scrape = scrape(&metrics::text(&report));
    let count = |name: &str| scrape.samples.iter().filter(|sample| sample.metric == name).count();
    assert_eq!(count("ropewalk_tunnel_state_seconds"), MAX_TUNNELS);
    // Who is connected is told of before who is not.
    assert_eq!(count("ropewalk_link_rtt_seconds"), MAX_LINKS);
    assert_eq!(value(&scrape, "ropewalk_tunnels_left_out", &[]), Value::Gauge(1.0));
}

#[test]
fn links_that_are_called_alike_are_told_apart_whatever_the_others_are_called() {
    let mut report = report(PROXY);
    let link = report.tunnels[0].links[0].clone();
    let called = |name: &str| LinkStatus { name: name.to_owned(), ..link.clone() };
    report.tunnels.truncate(1);
    report.tunnels[0].links = ["x", "x", "x#2", "x", "x#2"].map(called).into();
    let scrape = scrape(&metrics::text(&report));
    let samples =
        scrape.samples.iter().filter(|sample| sample.metric == "ropewalk_link_rtt_seconds");
    let names: Vec<_> = samples.filter_map(|sample| sample.labels.get("link")).collect();
    assert_eq!(names, ["x", "x#3", "x#2", "x#4", "x#2#2"]);
}

#[test]
fn all_links_together_are_bounded_and_those_beyond_are_counted() {
    let mut report = report(PROXY);
    let mut tunnel = report.tunnels[0].clone();
    tunnel.links = vec![tunnel.links[0].clone(); MAX_LINKS];
    let tunnels = MAX_ALL_LINKS / MAX_LINKS + 1;
    report.tunnels = (0..tunnels)
        .map(|number| TunnelStatus { peer: format!("peer {number}"), ..tunnel.clone() })
        .collect();
    let scrape = scrape(&metrics::text(&report));
    let rtt = scrape.samples.iter().filter(|sample| sample.metric == "ropewalk_link_rtt_seconds");
    assert_eq!(rtt.count(), MAX_ALL_LINKS);
    let left_out = u32::try_from(MAX_LINKS).expect("small");
    assert_eq!(value(&scrape, "ropewalk_links_left_out", &[]), Value::Gauge(f64::from(left_out)));
}

#[test]
fn numbers_that_are_none_have_no_line() {
    let mut report = report(CLIENT);
    report.tunnels[0].links[0].srtt_ms = Some(f64::NAN);
    report.tunnels[0].links[1].srtt_ms = Some(f64::INFINITY);
    assert!(!metrics::text(&report).contains("ropewalk_link_rtt_seconds"));
}

#[test]
fn the_dashboard_asks_only_for_what_there_is() {
    let model = report(CLIENT).tunnels[0].links[0].model.clone();
    let text = [CLIENT, PROXY].map(|text| {
        let mut report = with_stalls(text);
        report.tunnels[0].links[0].model.clone_from(&model);
        for tunnel in &mut report.tunnels {
            tunnel.repairs = Some(RepairStatus::default());
            tunnel.redundancy = Some(RedundancyStatus::default());
        }
        metrics::text(&report)
    });
    let text = text.concat();
    let scrape = scrape(&text);
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in &scrape.samples {
        let own = labels.entry(&sample.metric).or_default();
        own.extend(sample.labels.keys().map(String::as_str));
        own.extend(["job", "instance"]);
    }
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut queries = Vec::new();
    collect(&dashboard, &mut queries);
    assert!(queries.len() >= 10, "{queries:?}");
    for query in queries {
        let words: Vec<&str> =
            query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
        let names: Vec<_> = words.iter().filter(|word| word.starts_with("ropewalk_")).collect();
        assert!(!names.is_empty(), "{query} asks for nothing of ours");
        for name in names {
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let known = labels.get(name).unwrap_or_else(|| panic!("{name} in {query}"));
            for label in
                ["peer", "link", "state", "reason", "outcome", "quantile", "prefix", "cause"]
            {
                let asked = words.contains(&label);
                assert!(!asked || known.contains(label), "{name} has no label {label}: {query}");
            }
        }
    }
}

/// The queries of panels and variables.
fn collect<'a>(value: &'a serde_json::Value, queries: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field.as_str()) {
                    ("expr" | "definition", Some(query)) => queries.push(query),
                    _ => collect(field, queries),
                }
            }
        }
        serde_json::Value::Array(values) => {
            values.iter().for_each(|value| collect(value, queries));
        }
        _ => {}
    }
}

fn report(text: &str) -> StatusReport {
    serde_json::from_str(text).expect("a status document")
}

fn scrape(text: &str) -> Scrape {
    Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).expect("lines of the format")
}

/// The one sample of this name with these labels.
fn value(scrape: &Scrape, name: &str, labels: &[(&str, &str)]) -> Value {
    let fits = |sample: &&prometheus_parse::Sample| {
        let fit = |(label, value): &(&str, &str)| sample.labels.get(label) == Some(*value);
        sample.metric == name && labels.iter().all(fit)
    };
    let found: Vec<_> = scrape.samples.iter().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
    found[0].value.clone()
}
