//! How a status looks: in the columns of the terminal, and readable at 80, whatever stands in it.
//!
//! Names and reasons may come from the other end of a tunnel; control characters in them are replaced,
//! so that they cannot steer the terminal.

mod devices;
pub(crate) mod doctor;
mod fleet;
mod flows;
mod forwards;
mod history;
mod links;
mod model;
mod peers;
mod proxies;
mod registry;
mod rules;
mod speedtest;
mod why;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use ropewalk_control::api::{
    AllowanceStatus, FlowTableStatus, LinkStatus, OffloadStatus, OutagesStatus, PacketTraffic,
    ProxiesReport, ProxyStatus, Role, SensedStatus, ShareStatus, SpendingStatus, StatusReport,
    TlsStatus, TunnelState, TunnelStatus, TurnedAwayStatus,
};
use ropewalk_settings::LinkTerms;
use ropewalk_settings::figures::{megabits, rate, size};

pub(crate) use devices::devices;
pub(crate) use fleet::{fleet, import_progress};
pub(crate) use flows::flows;
pub(crate) use forwards::forwards;
pub(crate) use history::{chart_width, event_in_words, history, local};
pub(crate) use links::links;
pub(crate) use peers::{enabled, invited, moment, peers, removed};
pub(crate) use proxies::proxies;
pub(crate) use rules::routes;
pub(crate) use speedtest::{speed_progress, speed_test};
pub(crate) use why::why;

/// Columns of the narrowest terminal that is catered for, and of what is no terminal.
const NARROW: u16 = 80;

/// The columns of the terminal that standard output is.
pub(crate) fn columns() -> u16 {
    use std::io::IsTerminal as _;
    let output = std::io::stdout();
    let size = output.is_terminal().then(|| rustix::termios::tcgetwinsize(&output).ok()).flatten();
    size.map_or(NARROW, |size| size.ws_col.max(NARROW))
}

/// The whole report; `full` shows every tunnel with its links, as is always done where there is one.
pub(crate) fn status(report: &StatusReport, full: bool, columns: u16) -> String {
    let mut page = Page::new(columns);
    let daemon = &report.daemon;
    page.line(
        0,
        &format!(
            "ropewalk {} {}, process {}, running for {}",
            daemon.role,
            daemon.program_version,
            daemon.pid,
            age(daemon.uptime_s)
        ),
    );
    for warning in &daemon.warnings {
        page.line(2, &format!("warning: {warning}"));
    }
    if let Some(offload) = &daemon.offload {
        let OffloadStatus { tun, udp_gso, udp_gro } = offload;
        page.fact("offload", &format!("TUN {tun}, UDP sending {udp_gso}, UDP receiving {udp_gro}"));
    }
    if let Some(kill_switch) = daemon.kill_switch {
        page.fact("kill switch", &kill_switch.to_string());
    }
    if let Some(sandbox) = daemon.sandbox {
        page.fact("sandbox", &sandbox.to_string());
    }
    if let Some(history) = &daemon.history {
        page.fact("history", &history.to_string());
    }
    if let Some(proxy) = &report.proxy {
        proxy_lines(&mut page, proxy);
    }
    if let Some(known) = &report.proxies {
        page.fact("proxies", &proxies_line(known));
    }
    let one = full || daemon.role == Role::Client || report.tunnels.len() == 1;
    if one {
        for each in &report.tunnels {
            tunnel(&mut page, daemon.role, each);
        }
    } else {
        page.gap();
        let peers = tunnels(&page, &report.tunnels);
        page.table(&peers);
        if !report.tunnels.is_empty() {
            page.gap();
            page.line(0, "All about one of them: ropewalk status --peer NAME");
        }
    }
    rules::rules(&mut page, &report.rules);
    page.drops("Dropped before any tunnel", &report.drops);
    page.text
}

/// How many a client knows, and why it uses the one it does.
fn proxies_line(known: &ProxiesReport) -> String {
    let in_use = known.proxies.iter().find(|proxy| proxy.in_use);
    let (since, why, count) = (age(known.since_s), clean(&known.why), known.proxies.len());
    let used = match in_use.and_then(|proxy| proxy.id.as_deref()) {
        Some(id) => format!("{} in use for {since}", clean(id)),
        None => format!("for {since} this one"),
    };
    format!("{count} known, {used}: {why} (`ropewalk proxies` shows them)")
}

fn proxy_lines(page: &mut Page, proxy: &ProxyStatus) {
    let ports = std::iter::once(proxy.listen.to_string())
        .chain(proxy.more_ports.iter().map(ToString::to_string));
    let ports: Vec<_> = ports.collect();
    let (ports, uplinks) = (ports.join(", "), proxy.uplinks.join(", "));
    page.fact("listens", &format!("{ports}/udp, uplinks {uplinks}"));
    if let Some(TlsStatus { listen, clients, strangers, refused, unproven }) = proxy.tls {
        page.fact(
            "over TLS",
            &format!(
                "{listen}/tcp: {clients} connections of clients, {strangers} not known yet; {refused} \
                 refused, {unproven} ended unknown"
            ),
        );
    }
    for pool in &proxy.pools {
        // All of a /64 would say nothing.
        let all = Some(pool.size).filter(|size| *size < 1_000_000_000);
        let of = all.map_or_else(String::new, |size| format!("of {size} "));
        page.fact("pool", &format!("{}: {} {of}addresses leased", pool.prefix, pool.leased));
    }
    let shakes = &proxy.handshakes;
    page.fact(
        "handshakes",
        &format!(
            "{} completed; refused: {} not authentic, {} of unknown keys, {} replayed, {} of other \
             versions, {} over the limit of all, {} of an address; in a flood: {} without and {} \
             with a wrong cookie, {} with a right one",
            shakes.completed,
            shakes.unauthentic,
            shakes.unknown_key,
            shakes.replayed,
            shakes.other_version,
            shakes.rate_limited,
            shakes.address_limited,
            shakes.no_cookie,
            shakes.wrong_cookie,
            shakes.with_cookie
        ),
    );
    if !proxy.forwards.is_empty() {
        page.fact("forwards", &forwards::line(&proxy.forwards));
    }
    if let Some(registry) = &proxy.registry {
        page.fact("fleet", &registry::line(registry));
    }
    if let Some(conntrack) = &proxy.conntrack {
        page.fact("conntrack", &format!("{} of {} entries", conntrack.count, conntrack.limit));
    }
    if let Some(TurnedAwayStatus { refused, bounded }) = proxy.turned_away {
        page.fact(
            "refused",
            &format!(
                "{refused} packets of clients to what is closed to them, {bounded} connections over a client's limits"
            ),
        );
    }
}

fn tunnels(page: &Page, tunnels: &[TunnelStatus]) -> Table {
    let mut table = page
        .new_table(&["peer", "state", "inner address", "links up", "up Mbit/s", "down Mbit/s"], 3);
    for tunnel in tunnels {
        let up = tunnel.links.iter().filter(|link| is_up(link)).count();
        table.add_row([
            clean(&tunnel.peer),
            tunnel.state.to_string(),
            optional(tunnel.inner_v4),
            format!("{up} of {}", tunnel.links.len()),
            megabits(tunnel.up.rate_bps),
            megabits(tunnel.down.rate_bps),
        ]);
    }
    table
}

fn tunnel(page: &mut Page, role: Role, tunnel: &TunnelStatus) {
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

fn flow_table(table: &FlowTableStatus) -> String {
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
    let OutagesStatus { silent, refused, removed, peer, brief, moved_packets, newest } = outages;
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

/// What is printed, line by line.
struct Page {
    text: String,
    columns: u16,
}

impl Page {
    fn new(columns: u16) -> Self {
        Self { text: String::new(), columns }
    }

    /// A line, broken between words where it is too long; what follows is indented two more.
    fn line(&mut self, indent: usize, text: &str) {
        let text = clean(text);
        let mut column = indent;
        self.text.push_str(&" ".repeat(indent));
        let mut first = true;
        for word in text.split_whitespace() {
            let width = word.chars().count();
            if !first && column + 1 + width > usize::from(self.columns) {
                self.text.push('\n');
                self.text.push_str(&" ".repeat(indent + 2));
                column = indent + 2;
            } else if !first {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += width;
            first = false;
        }
        self.text.push('\n');
    }

    fn fact(&mut self, name: &str, value: &str) {
        // The padding is kept apart from the words that are wrapped.
        let mut wrapped = Self::new(self.columns);
        wrapped.line(13, value);
        let value = wrapped.text.trim_start();
        self.text.push_str(&format!("  {name:<10} {value}"));
    }

    /// A table without lines; the columns from `numbers` on are aligned to the right.
    fn new_table(&self, header: &[&str], numbers: usize) -> Table {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.columns)
            .set_header(header);
        for column in table.column_iter_mut().skip(numbers) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    fn table(&mut self, table: &Table) {
        for line in table.lines() {
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    fn drops(&mut self, title: &str, drops: &BTreeMap<String, u64>) {
        let counted: Vec<String> = drops
            .iter()
            .filter(|&(_, count)| *count > 0)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        if !counted.is_empty() {
            self.line(0, &format!("{title}: {}", counted.join(", ")));
        }
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }
}

fn is_up(link: &LinkStatus) -> bool {
    link.state == ropewalk_control::api::LinkState::Up
}

fn traffic(traffic: &PacketTraffic) -> String {
    let (rate, packets) = (rate(traffic.rate_bps), traffic.packets);
    format!("{rate}, {} in {packets} packets", size(traffic.bytes))
}

fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Seconds as people say them; fractions only below ten.
pub(crate) fn age(seconds: f64) -> String {
    let known = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    let rounded = if known < Duration::from_secs(10) {
        Duration::from_millis(u64::try_from(known.as_millis()).unwrap_or(0) / 100 * 100)
    } else {
        Duration::from_secs(known.as_secs())
    };
    let text = humantime::format_duration(rounded).to_string();
    // Two units say enough: 3h 12m.
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests;
