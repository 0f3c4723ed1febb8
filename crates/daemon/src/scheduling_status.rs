//! What the schedulers make of links and flows, and what the links cost, in the words of the control API.

use std::collections::BTreeSet;

use ropewalk_control::api::{
    ApiError, ErrorCode, FlowPart, FlowStatus, FlowTableStatus, FlowWait, FlowsReport,
    LinkSpending, ModelLimit, ModelStatus, PathStatus, RecentFlowStatus, SensedStatus, ShareStatus,
    SpendingStatus,
};
use ropewalk_proto::congestion::{PathLimit, PathModel};
use ropewalk_proto::link::sensing::{Sensed, as_f64};
use ropewalk_proto::packet::FiveTuple;
use ropewalk_proto::sched::LinkShare;
use ropewalk_proto::sched::safire::Flow;
use ropewalk_proto::tunnel::{
    self, FlowCounts, FlowTables, Flows, Ledger, LinkState, LinkStats, PathRow, RecentFlow,
    RecentFlows,
};
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{Bitrate, Cost, SchedulerKind, shortened};

use crate::status::millis;

/// Bytes of a gigabyte, as providers count.
const GIGABYTE: f64 = 1e9;

/// What the scheduler makes of a link beside `all` of its tunnel.
#[must_use]
pub fn share(scheduler: SchedulerKind, link: &LinkStats, all: &[LinkStats]) -> Option<ShareStatus> {
    let LinkShare { weight, alpha, flows } = link.share;
    match scheduler {
        SchedulerKind::FreeWindow | SchedulerKind::Arrival | SchedulerKind::RoundRobin => None,
        SchedulerKind::Natalie | SchedulerKind::Batcp => {
            let carries = |link: &LinkStats| link.carries && link.state == LinkState::Up;
            let weight = weight.filter(|_| carries(link))?;
            let round = all.iter().filter(|link| carries(link));
            let sum: f64 = round.filter_map(|link| link.share.weight).sum();
            let batcp = scheduler == SchedulerKind::Batcp;
            Some(ShareStatus {
                share: (sum > 0.0).then(|| weight / sum),
                weight: (!batcp).then_some(weight),
                load: batcp.then_some(weight),
                ..ShareStatus::default()
            })
        }
        SchedulerKind::Safire => {
            Some(ShareStatus { flows, alpha_bps: alpha, ..ShareStatus::default() })
        }
    }
}

/// What is sensed of a link.
#[must_use]
pub fn sensed(sensed: &Sensed) -> SensedStatus {
    let rate = |rate: Option<Bitrate>| rate.map(as_f64);
    let kilobytes = |rate: Option<Bitrate>| rate.map(|rate| as_f64(rate) / 8e3);
    SensedStatus {
        capacity_told_bps: rate(sensed.told),
        capacity_raw_bps: rate(sensed.capacity.raw),
        capacity_bps: rate(sensed.capacity.filtered),
        available_raw_bps: rate(sensed.available.raw),
        available_bps: rate(sensed.available.filtered),
        others_raw_bps: rate(sensed.others.raw),
        others_bps: rate(sensed.others.filtered),
        throughput_raw_kbytes_s: kilobytes(sensed.throughput.raw),
        throughput_kbytes_s: kilobytes(sensed.throughput.filtered),
        rtt_raw_ms: sensed.rtt.raw.map(millis),
        rtt_ms: sensed.rtt.filtered.map(millis),
        loss_recent: sensed.loss_recent,
        loss_total: sensed.loss_total,
    }
}

/// What a congestion controller believes of a link.
#[must_use]
pub fn model(model: &PathModel) -> ModelStatus {
    let (limit, most) = match model.limit {
        PathLimit::Starting => (ModelLimit::Starting, None),
        PathLimit::Nothing => (ModelLimit::Nothing, None),
        PathLimit::Rate => (ModelLimit::Rate, None),
        PathLimit::Others => (ModelLimit::Others, None),
        PathLimit::Trial => (ModelLimit::Trial, None),
        PathLimit::Losses(most) => (ModelLimit::Losses, Some(as_f64(most))),
        PathLimit::Queue => (ModelLimit::Queue, None),
        PathLimit::Silence => (ModelLimit::Silence, None),
    };
    ModelStatus {
        rate_bps: model.rate.map(as_f64),
        min_rtt_ms: model.min_rtt.map(millis),
        queue_ms: millis(model.queue),
        usual_loss: model.usual_loss,
        limit,
        most_bps: most,
        why: limit.in_words(most),
    }
}

/// How full the flow table is.
#[must_use]
pub fn flow_table(counts: FlowCounts) -> FlowTableStatus {
    FlowTableStatus {
        active: counts.held as u64,
        capacity: counts.capacity as u64,
        given_up: counts.displaced,
    }
}

/// What the links with a price cost, those that are `known` and those that carried something; `None`: none has one.
#[must_use]
pub fn spending(
    known: impl Iterator<Item = String>,
    price: impl Fn(&str) -> Option<Cost>,
    ledger: &Ledger,
) -> Option<SpendingStatus> {
    let mut unit: Option<String> = None;
    let mut links = Vec::new();
    let mut names: BTreeSet<String> = known.collect();
    // A name that was too long for the wire stands under its own already.
    let is_known = |name: &str| names.iter().any(|known| shortened(known).as_str() == name);
    let others = ledger.iter().map(|(name, _)| name.to_string());
    let others: Vec<_> = others.filter(|name| !is_known(name)).collect();
    names.extend(others);
    for name in names {
        let Some(cost) = price(&name) else { continue };
        // One for all, as far as one end says it; clients may say another one than their proxy.
        if *unit.get_or_insert_with(|| cost.unit.clone()) != cost.unit {
            continue;
        }
        let bytes = ledger.of(&name).bytes();
        #[expect(clippy::cast_precision_loss, reason = "money needs no 53 bits of precision")]
        let amount = bytes as f64 / GIGABYTE * cost.amount;
        links.push(LinkSpending { link: name, price_per_gb: cost.amount, bytes, amount });
    }
    let amount = links.iter().map(|link| link.amount).sum();
    unit.map(|unit| SpendingStatus { unit, amount, links })
}

/// The flows that this end sends; without a session an empty document. `known` gives the name and interface of a link that
/// the core calls so.
#[must_use]
pub fn flows(
    peer: String,
    scheduler: SchedulerKind,
    flows: Option<&Flows>,
    known: impl Fn(LinkId, &str) -> (String, Option<String>),
) -> FlowsReport {
    let report = FlowsReport { peer, scheduler: scheduler.to_string(), ..FlowsReport::default() };
    match flows {
        None => report,
        Some(Flows::Routed(tables)) => routed(report, tables, known),
        Some(Flows::Recent(recent)) => recent_flows(report, recent, known),
    }
}

/// The tables of flow routing.
fn routed(
    report: FlowsReport,
    tables: &FlowTables,
    known: impl Fn(LinkId, &str) -> (String, Option<String>),
) -> FlowsReport {
    let path = |row: &PathRow| (row.id, path(row, known(row.id, &row.name)));
    let paths: Vec<_> = tables.paths.iter().map(path).collect();
    let name = |id: LinkId| {
        let path = paths.iter().find(|(known, _)| *known == id);
        // It left, and nothing came of the flow since.
        path.map_or_else(|| format!("link {id}"), |(_, path)| path.link.clone())
    };
    let flow = |(flow, tuple): &(Flow, FiveTuple)| flow_status(flow, tuple, name(flow.link));
    FlowsReport {
        flows: tables.flows.iter().map(flow).collect(),
        left_out: tables.counts.held.saturating_sub(tables.flows.len()) as u64,
        table: Some(flow_table(tables.counts)),
        paths: paths.into_iter().map(|(_, path)| path).collect(),
        ..report
    }
}

/// What each flow did lately.
fn recent_flows(
    report: FlowsReport,
    recent: &RecentFlows,
    known: impl Fn(LinkId, &str) -> (String, Option<String>),
) -> FlowsReport {
    let names: Vec<_> = recent.links.iter().map(|(id, name)| (*id, known(*id, name).0)).collect();
    let name = |id: LinkId| {
        let found = names.iter().find(|(known, _)| *known == id);
        // It left meanwhile.
        found.map_or_else(|| format!("link {id}"), |(_, name)| name.clone())
    };
    let over_s = recent.over.as_secs_f64();
    FlowsReport {
        recent: recent.flows.iter().map(|flow| recent_flow(flow, over_s, &name)).collect(),
        recent_over_s: Some(over_s),
        left_out: recent.left_out as u64,
        uncounted_bytes: recent.beyond,
        ..report
    }
}

#[expect(clippy::cast_precision_loss, reason = "the bytes of some seconds are below 2^53")]
fn recent_flow(
    flow: &RecentFlow,
    over_s: f64,
    name: &impl Fn(LinkId) -> String,
) -> RecentFlowStatus {
    let all: u64 = flow.carried.iter().map(|(_, bytes)| bytes).sum();
    let part = |(id, bytes): &(LinkId, u64)| FlowPart {
        link: name(*id),
        bytes: *bytes,
        share: *bytes as f64 / all.max(1) as f64,
    };
    let mut links: Vec<_> = flow.carried.iter().map(part).collect();
    links.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    let waits_for = match flow.wait {
        tunnel::FlowWait::Nothing => FlowWait::Nothing,
        tunnel::FlowWait::Sender => FlowWait::Sender,
        tunnel::FlowWait::Receiver => FlowWait::Receiver,
        tunnel::FlowWait::Repair => FlowWait::Repair,
        tunnel::FlowWait::Turn(flows) => FlowWait::Turn { flows: flows as u64 },
        tunnel::FlowWait::Link(link, later) => {
            FlowWait::Link { link: name(link), later_ms: later.map(millis) }
        }
        tunnel::FlowWait::Bound(link) => FlowWait::Bound { link: name(link) },
        tunnel::FlowWait::Room => FlowWait::Room,
        tunnel::FlowWait::Links => FlowWait::Links,
    };
    RecentFlowStatus {
        source: flow.tuple.source,
        destination: flow.tuple.destination,
        protocol: flow.tuple.protocol,
        source_port: flow.tuple.ports.map(|(source, _)| source),
        destination_port: flow.tuple.ports.map(|(_, destination)| destination),
        rate_bps: if over_s > 0.0 { all as f64 * 8.0 / over_s } else { 0.0 },
        links,
        under_way_bytes: flow.under_way,
        waiting_bytes: flow.waiting,
        to_repair: flow.to_repair,
        why: waits_for.in_words(flow.to_repair),
        waits_for,
    }
}

fn path(row: &PathRow, (link, interface): (String, Option<String>)) -> PathStatus {
    PathStatus {
        link,
        interface,
        flows: row.flows,
        capacity_bps: row.capacity,
        rtt_ms: row.rtt.map(millis),
        loss_recent: row.loss,
        alpha_bps: row.alpha,
    }
}

fn flow_status(flow: &Flow, tuple: &FiveTuple, link: String) -> FlowStatus {
    FlowStatus {
        hash: format!("{:016x}", flow.key.0),
        source: tuple.source,
        destination: tuple.destination,
        protocol: tuple.protocol,
        source_port: tuple.ports.map(|(source, _)| source),
        destination_port: tuple.ports.map(|(_, destination)| destination),
        link,
        activity: flow.activity,
        counted: flow.counted,
    }
}

/// A client was asked for its peers.
#[must_use]
pub fn has_no_peers() -> ApiError {
    ApiError::new(ErrorCode::BadRequest, "this is a client: only a proxy has peers")
}

/// A client was asked for forwards.
#[must_use]
pub fn has_no_forwards() -> ApiError {
    let message = "this is a client: only a proxy forwards ports; ask there";
    ApiError::new(ErrorCode::BadRequest, message)
}

/// A proxy was asked for the proxies that it knows.
#[must_use]
pub fn has_no_proxies() -> ApiError {
    ApiError::new(ErrorCode::BadRequest, "this is a proxy: only a client chooses among proxies")
}

/// A proxy was asked what goes through the tunnel.
#[must_use]
pub fn has_no_routes() -> ApiError {
    let message = "this is a proxy: what goes through a tunnel is said at its client";
    ApiError::new(ErrorCode::BadRequest, message)
}

/// A proxy was asked to test how fast links are.
#[must_use]
pub fn tests_no_links() -> ApiError {
    ApiError::new(
        ErrorCode::BadRequest,
        "this is a proxy: only a client tests how fast its links are; ask there",
    )
}

/// A proxy was asked to change a link.
#[must_use]
pub fn no_links(link: &str) -> ApiError {
    let link = link.escape_debug();
    ApiError::new(
        ErrorCode::BadRequest,
        format!("this is a proxy: the link `{link}` is its client's; ask there"),
    )
}

/// A client was asked for one of its peers.
#[must_use]
pub fn no_peers(peer: &str) -> ApiError {
    let peer = peer.escape_debug();
    let help = "only a proxy has peers; ask it, or leave the peer out";
    ApiError::new(
        ErrorCode::BadRequest,
        format!("this is a client, not the proxy of `{peer}`: {help}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_proto::link::sensing::Reading;
    use ropewalk_proto::packet::FlowKey;
    use ropewalk_proto::sched::safire::FlowTable;
    use ropewalk_proto::sched::{Life, PacketMeta};
    use ropewalk_proto::time::{Duration, Instant};
    use ropewalk_proto::tunnel::Metered;

    #[test]
    fn what_is_spent_is_bytes_both_ways_at_the_price_of_their_link() {
        let price = |name: &str| {
            let amount = match name {
                "lte" => 5.0,
                "wlan" => 0.0,
                _ => return None,
            };
            Some(Cost { amount, unit: "EUR".to_owned() })
        };
        let known = || ["dsl", "lte", "wlan"].into_iter().map(str::to_owned);
        assert_eq!(spending(known(), |_| None, &Ledger::default()), None, "nobody told a price");
        let mut ledger = Ledger::default();
        for (name, sent, received) in
            [("lte", 100_000_000, 300_000_000), ("dsl", 1, 1), ("wlan", 7, 0)]
        {
            ledger.add(shortened(name), Metered { sent, received });
        }
        let spent = spending(known(), price, &ledger).unwrap();
        assert_eq!((spent.unit.as_str(), spent.amount), ("EUR", 2.0));
        let links: Vec<_> =
            spent.links.iter().map(|l| (l.link.as_str(), l.bytes, l.amount)).collect();
        assert_eq!(links, [("lte", 400_000_000, 2.0), ("wlan", 7, 0.0)]);
    }

    #[test]
    fn a_flow_table_is_told_of_by_names_and_what_is_left_out_is_counted() {
        let flow = |key, link, counted: bool| {
            let mut table = FlowTable::new(Instant::ZERO);
            let mut packet = PacketMeta::of_len(100);
            packet.flow = FlowKey(key);
            packet.tuple.ports = Some((40_000, 443));
            packet.tuple.protocol = Some(6);
            if !counted {
                packet.life = Life::Ends;
            }
            table.note(&packet, LinkId(link));
            table.most_active(1)[0]
        };
        let row = PathRow {
            id: LinkId(1),
            name: shortened("wlan"),
            flows: 1,
            capacity: Some(8e6),
            rtt: None,
            loss: 0.01,
            alpha: Some(1e6),
        };
        let tables = FlowTables {
            paths: vec![row],
            flows: vec![flow(0xab, 1, true), flow(2, 9, false)],
            counts: FlowCounts { held: 5, capacity: 8, displaced: 3 },
        };
        let known = |_, name: &str| (name.to_owned(), Some("wlan0".to_owned()));
        let tables = Flows::Routed(tables);
        let report = flows("vps".to_owned(), SchedulerKind::Safire, Some(&tables), known);
        assert_eq!((report.left_out, report.table.unwrap().given_up), (3, 3));
        assert_eq!(report.paths[0].interface.as_deref(), Some("wlan0"));
        let first = &report.flows[0];
        assert_eq!((first.hash.as_str(), first.link.as_str()), ("00000000000000ab", "wlan"));
        assert_eq!(
            (first.destination_port, first.protocol, first.counted),
            (Some(443), Some(6), true)
        );
        assert_eq!((report.flows[1].link.as_str(), report.flows[1].counted), ("link 9", false));
        let none = flows("vps".to_owned(), SchedulerKind::Batcp, None, known);
        assert_eq!((none.scheduler.as_str(), none.table, none.flows.len()), ("batcp", None, 0));
    }

    #[test]
    fn a_flow_is_told_of_with_its_links_by_name_and_what_it_waits_for() {
        let mut tuple = FiveTuple::UNKNOWN;
        (tuple.protocol, tuple.ports) = (Some(6), Some((40_000, 443)));
        let flow = RecentFlow {
            key: tuple.key(),
            tuple,
            carried: [(LinkId(1), 25_000), (LinkId(0), 75_000)].into_iter().collect(),
            under_way: 20_000,
            waiting: 3_000,
            to_repair: 0,
            wait: tunnel::FlowWait::Link(LinkId(7), Some(Duration::from_millis(45))),
        };
        let recent = RecentFlows {
            over: Duration::from_secs(2),
            flows: vec![flow],
            links: [(LinkId(0), shortened("w")), (LinkId(1), shortened("l"))].into_iter().collect(),
            left_out: 4,
            beyond: 9,
        };
        let recent = Flows::Recent(Box::new(recent));
        let known = |_, name: &str| (format!("{name}an"), None);
        let flows = flows("vps".to_owned(), SchedulerKind::Arrival, Some(&recent), known);
        assert_eq!((flows.left_out, flows.uncounted_bytes, flows.recent_over_s), (4, 9, Some(2.0)));
        let flow = &flows.recent[0];
        assert_eq!((flow.rate_bps, flow.destination_port), (400e3, Some(443)));
        let links: Vec<_> =
            flow.links.iter().map(|part| (part.link.as_str(), part.share)).collect();
        assert_eq!(links, [("wan", 0.75), ("lan", 0.25)]);
        assert_eq!(flow.why, "link 7: it arrives there first, elsewhere 45 ms later");
    }

    #[test]
    fn what_a_controller_believes_has_units_and_a_sentence() {
        let believed = PathModel {
            rate: Some(Bitrate::from_mbps(48)),
            min_rtt: Some(Duration::from_millis(21)),
            queue: Duration::from_micros(3_500),
            noise: Duration::ZERO,
            usual_loss: 0.01,
            limit: PathLimit::Losses(Bitrate::from_mbps(50)),
        };
        let expected = serde_json::json!({
            "rate_bps": 48e6, "min_rtt_ms": 21.0, "queue_ms": 3.5, "usual_loss": 0.01,
            "limit": "losses", "most_bps": 50e6,
            "why": "losses: something on the way drops what exceeds 50 Mbit/s",
        });
        assert_eq!(serde_json::to_value(model(&believed)).unwrap(), expected);
        let fresh = PathModel { rate: None, min_rtt: None, limit: PathLimit::Starting, ..believed };
        let shown = model(&fresh);
        assert_eq!((shown.rate_bps, shown.min_rtt_ms, shown.most_bps), (None, None, None));
        assert_eq!(shown.why, "starting: still looking for the rate");
    }

    #[test]
    fn what_is_sensed_has_its_unit_in_its_name() {
        fn reading<T>(raw: T, filtered: T) -> Reading<T> {
            Reading { raw: Some(raw), filtered: Some(filtered) }
        }
        let rates = |raw, filtered| reading(Bitrate::from_mbps(raw), Bitrate::from_mbps(filtered));
        let told = Sensed {
            told: Some(Bitrate::from_mbps(10)),
            capacity: rates(9, 8),
            available: rates(7, 6),
            others: rates(2, 1),
            throughput: rates(4, 5),
            rtt: reading(Duration::from_millis(30), Duration::from_millis(25)),
            loss_recent: Some(0.01),
            loss_total: Some(0.02),
        };
        let shown = serde_json::to_value(sensed(&told)).unwrap();
        let expected = serde_json::json!({
            "capacity_told_bps": 10e6, "capacity_raw_bps": 9e6, "capacity_bps": 8e6,
            "available_raw_bps": 7e6, "available_bps": 6e6,
            "others_raw_bps": 2e6, "others_bps": 1e6,
            "throughput_raw_kbytes_s": 500.0, "throughput_kbytes_s": 625.0,
            "rtt_raw_ms": 30.0, "rtt_ms": 25.0,
            "loss_recent": 0.01, "loss_total": 0.02,
        });
        assert_eq!(shown, expected);
        let nothing = serde_json::to_value(sensed(&Sensed::default())).unwrap();
        assert_eq!(nothing, serde_json::json!({}), "what is not known is absent");
    }
}
