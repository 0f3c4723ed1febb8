//! How the flows of a tunnel look: the tables of flow routing, or what each flow did lately.

use std::net::{IpAddr, SocketAddr};

use comfy_table::CellAlignment;
use ropewalk_control::api::{FlowPart, FlowsReport, RecentFlowStatus};
use ropewalk_settings::figures::{megabits, rate, size};

use super::tunnel::flow_table;
use super::{Page, clean, decimal, optional};

/// Both tables of flow routing, or what each flow did lately.
pub(crate) fn flows(report: &FlowsReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    let Some(counts) = &report.table else {
        match report.recent_over_s {
            Some(over_s) => recent(&mut page, report, over_s),
            None => page.line(0, "There is no session at present."),
        }
        return page.text;
    };
    page.line(0, &format!("Flows to {}: {}", report.peer, flow_table(counts)));
    page.gap();
    let mut paths = page
        .new_table(&["link", "flows", "capacity Mbit/s", "RTT ms", "loss %", "alpha Mbit/s"], 1);
    for path in &report.paths {
        paths.add_row([
            clean(&path.link),
            path.flows.to_string(),
            optional(path.capacity_bps.map(megabits)),
            decimal(path.rtt_ms, 1),
            decimal(Some(path.loss_recent * 100.0), 2),
            optional(path.alpha_bps.map(megabits)),
        ]);
    }
    page.table(&paths);
    if report.flows.is_empty() {
        return page.text;
    }
    page.gap();
    let mut flows = page.new_table(&["link", "activity", "", "from", "to"], 1);
    for column in flows.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for flow in &report.flows {
        let ended = if flow.counted { "" } else { " (ended)" };
        flows.add_row([
            clean(&flow.link),
            format!("{}{ended}", flow.activity),
            protocol(flow.protocol),
            end(flow.source, flow.source_port),
            end(flow.destination, flow.destination_port),
        ]);
    }
    page.table(&flows);
    if report.left_out > 0 {
        page.gap();
        page.line(0, &format!("{} more, less active: see --top", report.left_out));
    }
    page.text
}

/// What each flow did lately.
fn recent(page: &mut Page, report: &FlowsReport, over_s: f64) {
    let FlowsReport { peer, scheduler, recent, left_out, .. } = report;
    page.line(0, &format!("Flows to {peer} in the last {over_s:.1} s, by {scheduler}:"));
    if recent.is_empty() {
        page.line(2, "none: nothing is sent");
    }
    for flow in recent {
        page.gap();
        page.line(0, &format!("{} {}", protocol(flow.protocol), ends(flow)));
        page.line(2, &carried(flow));
        page.line(2, &format!("waits for {}", flow.why));
    }
    if *left_out > 0 {
        page.gap();
        page.line(0, &format!("{left_out} more, of which less is sent: see --top"));
    }
}

fn ends(flow: &RecentFlowStatus) -> String {
    let (from, to) =
        (end(flow.source, flow.source_port), end(flow.destination, flow.destination_port));
    format!("{from} > {to}")
}

/// How much of it went over which links, and where the rest is.
fn carried(flow: &RecentFlowStatus) -> String {
    let part = |part: &FlowPart| format!("{:.0} % {}", part.share * 100.0, part.link);
    let parts: Vec<_> = flow.links.iter().map(part).collect();
    let over = if parts.is_empty() { "nothing left".to_owned() } else { parts.join(", ") };
    format!(
        "{}: {over}; {} under way, {} waiting here",
        rate(flow.rate_bps),
        size(flow.under_way_bytes),
        size(flow.waiting_bytes)
    )
}

/// The name of the protocol, where it has one that people know.
fn protocol(number: Option<u8>) -> String {
    match number {
        Some(1 | 58) => "icmp".to_owned(),
        Some(6) => "tcp".to_owned(),
        Some(17) => "udp".to_owned(),
        Some(other) => format!("protocol {other}"),
        None => "fragments".to_owned(),
    }
}

fn end(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}
