//! How the tables of flow routing look.

use std::net::{IpAddr, SocketAddr};

use comfy_table::CellAlignment;
use ropewalk_control::api::{FlowStatus, FlowsReport};

use super::{Page, clean, decimal, flow_table, megabits, optional, table};

/// Both tables.
pub(crate) fn flows(report: &FlowsReport) -> String {
    let mut page = Page::default();
    let Some(counts) = &report.table else {
        page.line(0, &format!("No flows are kept: the scheduler is {}.", report.scheduler));
        let help = match report.scheduler.as_str() {
            "safire" => "There is no session at present.",
            _ => {
                "Only safire puts whole flows on links (`ropewalk set scheduler safire`); the others \
                 put packets."
            }
        };
        page.line(0, help);
        return page.0;
    };
    page.line(0, &format!("Flows to {}: {}", report.peer, flow_table(counts)));
    page.gap();
    let mut paths =
        table(&["link", "flows", "capacity Mbit/s", "RTT ms", "loss %", "alpha Mbit/s"], 1);
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
        return page.0;
    }
    page.gap();
    let mut flows = table(&["link", "activity", "", "from", "to"], 1);
    for column in flows.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for flow in &report.flows {
        let ended = if flow.counted { "" } else { " (ended)" };
        flows.add_row([
            clean(&flow.link),
            format!("{}{ended}", flow.activity),
            protocol(flow),
            end(flow.source, flow.source_port),
            end(flow.destination, flow.destination_port),
        ]);
    }
    page.table(&flows);
    if report.left_out > 0 {
        page.gap();
        page.line(0, &format!("{} more, less active: see --top", report.left_out));
    }
    page.0
}

/// The name of the protocol, where it has one that people know.
fn protocol(flow: &FlowStatus) -> String {
    match flow.protocol {
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
