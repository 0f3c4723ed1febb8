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
mod page;
mod peers;
mod proxies;
mod registry;
mod rules;
mod speedtest;
mod tunnel;
mod why;

use std::fmt::Display;
use std::time::Duration;

use comfy_table::Table;
use ropewalk_control::api::{
    LinkStatus, OffloadStatus, ProxiesReport, ProxyStatus, Role, StatusReport, TlsStatus,
    TunnelStatus, TurnedAwayStatus,
};
use ropewalk_settings::figures::megabits;

use page::Page;

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
            tunnel::tunnel(&mut page, daemon.role, each);
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

fn is_up(link: &LinkStatus) -> bool {
    link.state == ropewalk_control::api::LinkState::Up
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
