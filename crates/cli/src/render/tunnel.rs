//! One tunnel in a status: its session and its settings, its links, and what became of the packets in it.

use comfy_table::CellAlignment;
use ropewalk_control::api::{
    AllowanceStatus, FlowTableStatus, LinkStatus, OutagesStatus, PacketTraffic, Role, SensedStatus,
    ShareStatus, SpendingStatus, TunnelState, TunnelStatus,
};
use ropewalk_settings::LinkTerms;
use ropewalk_settings::figures::{megabits, rate, size};

use super::{Page, age, clean, decimal, is_up, links, model, optional};

/// All about it; `role`: of the daemon that says so.
pub(super) fn tunnel(page: &mut Page, role: Role, tunnel: &TunnelStatus) {
    page.gap();
    let reason = tunnel.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let ago = age(tunnel.state_age_s);
    let up = tunnel.links.iter().filter(|link| is_up(link)).count();
    let links = match tunnel.state {
        TunnelState::Up => format!(" over {up} of {} links", tunnel.links.len()),
        _ => String::new(),
    };
    let state = tunnel.state;
    page.line(0, &format!("Tunnel with {}: {state}{links} for {ago}{reason}", tunnel.peer));
    page.fact("key", &tunnel.peer_public_key.to_string());
    let inner: Vec<String> = [
        tunnel.inner_v4.map(|address| address.to_string()),
        tunnel.inner_v6.map(|address| address.to_string()),
        tunnel.inner_mtu.map(|mtu| format!("MTU {mtu}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !inner.is_empty() {
        page.fact("inside", &inner.join(", "));
    }
    if let Some(session) = &tunnel.session {
        page.fact(
            "session",
            &format!(
                "{}, {} old, {} rekeys, keys {} old",
                session.cipher,
                age(session.age_s),
                session.rekeys,
                age(session.key_age_s)
            ),
        );
    }
    let policy = &tunnel.policy;
    let settings = policy.settings.as_ref().map(|settings| format!(" ({settings})"));
    let restored = policy.order.as_ref().map(|order| format!(", order {order}"));
    page.fact(
        "sends by",
        &format!(
            "{}{}, {}{}, {}{}",
            policy.scheduler,
            settings.unwrap_or_default(),
            policy.controller,
            restored.unwrap_or_default(),
            policy.when_closed,
            if policy.own { "; settings of its own" } else { "" }
        ),
    );
    if let Some(redundant) = &policy.redundant {
        page.fact("sent twice", redundant);
    }
    page.fact("up", &traffic(&tunnel.up));
    page.fact("down", &traffic(&tunnel.down));
    page.fact(
        "waiting",
        &format!("{} packets ({}) for a link", tunnel.queue.packets, size(tunnel.queue.bytes)),
    );
    if let Some(flows) = &tunnel.flows {
        page.fact("flows", &flow_table(flows));
    }
    if let Some(spending) = &tunnel.spending {
        page.fact("spent", &spent(spending));
    }
    links_of(page, &tunnel.links);
    shares(page, tunnel);
    sensed(page, tunnel);
    model::models(page, role, &tunnel.links);
    order(page, tunnel);
    page.drops("Dropped", &tunnel.drops);
}

fn links_of(page: &mut Page, links: &[LinkStatus]) {
    page.gap();
    if links.is_empty() {
        page.line(0, "No links.");
        return;
    }
    let mut table = page.new_table(
        &[
            "link",
            "state",
            "RTT ms",
            "jitter ms",
            "loss %",
            "in flight",
            "MTU",
            "up Mbit/s",
            "down Mbit/s",
        ],
        2,
    );
    for link in links {
        let cwnd = optional(link.cwnd);
        table.add_row([
            clean(&link.name),
            link.state.to_string(),
            decimal(link.srtt_ms, 1),
            decimal(link.owd_variation_ms, 1),
            decimal(link.loss_recent.map(|share| share * 100.0), 2),
            format!("{} of {cwnd}", link.in_flight),
            optional(link.path_mtu),
            megabits(link.up.rate_bps),
            megabits(link.down.rate_bps),
        ]);
    }
    page.table(&table);
    page.gap();
    for link in links {
        path(page, link);
    }
}

/// Its title, whether any link has it, and how it looks.
type ShareColumn = (&'static str, bool, fn(&ShareStatus) -> String);

/// What is said of the links and what the scheduler makes of them, where there is something to say.
fn shares(page: &mut Page, tunnel: &TunnelStatus) {
    let links = || tunnel.links.iter();
    let shared = |value: fn(&ShareStatus) -> bool| {
        links().any(|link| link.share.as_ref().is_some_and(value))
    };
    if links().all(|link| link.told.is_none() && link.share.is_none()) {
        return;
    }
    // Only the columns that the scheduler has.
    let columns: [ShareColumn; 5] = [
        ("share %", shared(|s| s.share.is_some()), |s| {
            decimal(s.share.map(|share| share * 100.0), 1)
        }),
        ("weight", shared(|s| s.weight.is_some()), |s| optional(s.weight.map(weight))),
        ("load", shared(|s| s.load.is_some()), |s| decimal(s.load, 0)),
        ("flows", shared(|s| s.flows.is_some()), |s| optional(s.flows)),
        ("alpha Mbit/s", shared(|s| s.flows.is_some()), |s| optional(s.alpha_bps.map(megabits))),
    ];
    let columns: Vec<_> = columns.into_iter().filter(|(_, there, _)| *there).collect();
    let titles = columns.iter().map(|(title, ..)| *title);
    let header: Vec<_> = ["link"].into_iter().chain(titles).chain(["told"]).collect();
    let mut table = page.new_table(&header, 1);
    if let Some(told) = table.column_mut(header.len() - 1) {
        told.set_cell_alignment(CellAlignment::Left);
    }
    for link in links() {
        let share = link.share.unwrap_or_default();
        let told = link.told.as_ref().map(LinkTerms::in_words).filter(|told| !told.is_empty());
        let values = columns.iter().map(|(.., value)| value(&share));
        let row = [clean(&link.name)].into_iter().chain(values);
        table.add_row(row.chain([told.unwrap_or_else(|| "-".to_owned())]));
    }
    page.gap();
    page.line(0, "How this end shares what it sends among the links:");
    page.table(&table);
}

/// What this end senses of its links, the newest measurement and what is made of it, where there is some.
fn sensed(page: &mut Page, tunnel: &TunnelStatus) {
    let known = |sensed: &SensedStatus| {
        sensed.capacity_bps.or(sensed.capacity_told_bps).or(sensed.throughput_kbytes_s).is_some()
    };
    if !tunnel.links.iter().any(|link| link.sensed.as_ref().is_some_and(known)) {
        return;
    }
    let pair = |raw: Option<f64>, filtered: Option<f64>, shown: fn(f64) -> String| {
        let [raw, filtered] = [raw, filtered].map(|value| optional(value.map(shown)));
        format!("{raw} {filtered}")
    };
    let of_kilobytes = |kilobytes_s: f64| megabits(kilobytes_s * 8e3);
    let mut table = page.new_table(
        &["link", "capacity", "available", "throughput", "others", "RTT ms", "loss %"],
        1,
    );
    for link in &tunnel.links {
        let Some(sensed) = &link.sensed else { continue };
        let capacity = sensed.capacity_told_bps.or(sensed.capacity_bps);
        table.add_row([
            clean(&link.name),
            pair(sensed.capacity_raw_bps, capacity, megabits),
            pair(sensed.available_raw_bps, sensed.available_bps, megabits),
            pair(sensed.throughput_raw_kbytes_s, sensed.throughput_kbytes_s, of_kilobytes),
            pair(sensed.others_raw_bps, sensed.others_bps, megabits),
            pair(sensed.rtt_raw_ms, sensed.rtt_ms, |ms| format!("{ms:.1}")),
            decimal(sensed.loss_recent.map(|share| share * 100.0), 2),
        ]);
    }
    page.gap();
    page.line(0, "Sensed, in Mbit/s of what this end sends (newest, then filtered or told):");
    page.table(&table);
}

/// A weight: a told one as it is, one in bits per second as a rate.
fn weight(weight: f64) -> String {
    // A larger one cannot be told.
    if weight > 1e6 {
        return rate(weight);
    }
    let digits = if weight < 1e3 { 3 } else { 0 };
    let text = format!("{weight:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// How many flows a scheduler knows.
pub(super) fn flow_table(table: &FlowTableStatus) -> String {
    let FlowTableStatus { active, capacity, given_up } = table;
    format!("{active} active, room for {capacity}; {given_up} given up while active")
}

fn spent(spending: &SpendingStatus) -> String {
    let unit = &spending.unit;
    let each = spending.links.iter().map(|link| {
        let (amount, price) = (money(link.amount), link.price_per_gb);
        format!("{amount} on {} ({} at {price} {unit}/GB)", link.link, size(link.bytes))
    });
    let each: Vec<_> = each.collect();
    format!("{} {unit} since the daemon's start: {}", money(spending.amount), each.join(", "))
}

/// Cents, and of little money as much as shows that it is some.
fn money(amount: f64) -> String {
    if amount > 0.0 && amount < 0.1 { format!("{amount:.4}") } else { format!("{amount:.2}") }
}

/// State, path and totals of one link, as a sentence.
fn path(page: &mut Page, link: &LinkStatus) {
    let mut facts = vec![format!("{} for {}", link.state, age(link.state_age_s))];
    facts.extend(link.reason.clone());
    if let Some(interface) = link.interface.as_ref().filter(|interface| **interface != link.name) {
        facts.push(format!("interface {interface}"));
    }
    facts.extend(link.backup.map(|duty| format!("{}, {duty}", links::used(link))));
    if let Some(allowance) = &link.allowance {
        let AllowanceStatus { bytes: all, used, until, stop, .. } = allowance;
        let percent = u128::from(*used) * 100 / u128::from(*all).max(1);
        facts.push(format!(
            "{} ({percent} %) of its {} used until {until}{}",
            size(*used),
            size(*all),
            if *stop { ", then not used" } else { "" }
        ));
    }
    for (most, way) in [(link.max_up_bps, "up"), (link.max_down_bps, "down")] {
        facts.extend(most.map(|most| format!("at most {} {way}", rate(most))));
    }
    match (link.local, link.remote) {
        (Some(local), Some(remote)) => facts.push(format!("{local} -> {remote}")),
        (Some(one), None) | (None, Some(one)) => facts.push(one.to_string()),
        (None, None) => {}
    }
    facts.push(match link.keepalive_s {
        Some(seconds) if link.keepalive_searching => {
            format!("keepalive {} (looking for a longer one)", age(seconds))
        }
        Some(seconds) => format!("keepalive {}", age(seconds)),
        None => "no keepalive".to_owned(),
    });
    facts.push(format!("{} up, {} down", size(link.up.bytes), size(link.down.bytes)));
    if let Some(share) = link.loss_total {
        facts.push(format!("{:.2} % lost in all", share * 100.0));
    }
    page.line(2, &format!("{}: {}", link.name, facts.join(", ")));
}

fn order(page: &mut Page, tunnel: &TunnelStatus) {
    let order = &tunnel.resequencer;
    page.gap();
    if order.as_they_came > 0 {
        page.line(0, &format!("Delivered here as they came: {} packets", order.as_they_came));
        return;
    }
    page.line(
        0,
        &format!(
            "Put in order here: {} in order, {} late, {} duplicate, {} held now ({})",
            order.in_order,
            order.late,
            order.duplicate,
            order.held,
            size(order.held_bytes)
        ),
    );
    page.line(
        2,
        &format!(
            "skipped: {} by proof, {} by deadline; {} released by a full buffer",
            order.skipped_by_proof, order.skipped_by_deadline, order.released_by_full_buffer
        ),
    );
    if let (Some(median), Some(p99)) = (order.wait_p50_ms, order.wait_p99_ms) {
        page.line(2, &format!("wait of those held: median {median:.1} ms, p99 {p99:.1} ms"));
    }
    if let Some(repairs) = tunnel.repairs {
        page.line(
            0,
            &format!(
                "Sent again from here: {} packets ({}), {} given up; {} kept until they are confirmed ({})",
                repairs.sent_again,
                size(repairs.sent_again_bytes),
                repairs.given_up,
                repairs.kept,
                size(repairs.kept_bytes)
            ),
        );
    }
    if let Some(copies) = tunnel.redundancy.filter(|copies| *copies != Default::default()) {
        page.line(
            0,
            &format!(
                "Sent over two links from here: {} packets ({}); once for want of budget {} ({}), of room {}",
                copies.packets,
                size(copies.bytes),
                copies.over_budget,
                size(copies.over_budget_bytes),
                copies.no_room
            ),
        );
    }
    outages(page, &tunnel.outages);
    let acks = tunnel.local_acks;
    if acks.segments > 0 {
        page.line(
            0,
            &format!(
                "TCP acknowledged here: {} connections, {} segments; {} sent again, {} connections lost; {} kept until \
                 the receivers have it",
                acks.connections,
                acks.segments,
                acks.sent_again,
                acks.lost,
                size(acks.kept_bytes)
            ),
        );
    }
}

/// Outages that are shown one by one: the document has more.
const SHOWN_OUTAGES: usize = 5;

/// Links that carried nothing for a while.
fn outages(page: &mut Page, outages: &OutagesStatus) {
    if outages.count() == 0 && outages.brief == 0 {
        return;
    }
    let OutagesStatus { silent, refused, removed, peer, brief, moved_packets, newest, .. } =
        outages;
    page.line(
        0,
        &format!(
            "Links that carried nothing for a while: {silent} silent, {refused} refused by the kernel, {removed} taken \
             out here, {peer} told by the other end; {brief} answers were late; {moved_packets} packets went over \
             others"
        ),
    );
    for outage in newest.iter().take(SHOWN_OUTAGES) {
        page.line(2, &format!("{} ago {}", age(outage.ago_s), outage.in_words()));
    }
}

fn traffic(traffic: &PacketTraffic) -> String {
    let (rate, packets) = (rate(traffic.rate_bps), traffic.packets);
    format!("{rate}, {} in {packets} packets", size(traffic.bytes))
}
