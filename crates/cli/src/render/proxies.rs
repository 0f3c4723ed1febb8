//! How the proxies that a client knows look.

use comfy_table::CellAlignment;
use ropewalk_control::api::{KnownProxy, ProxiesReport};

use super::{Page, age, clean, decimal};

/// A table, and why the one in use was chosen.
pub(crate) fn proxies(report: &ProxiesReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    let header = ["", "proxy", "RTT ms", "load %", "state", "region", "address", "remark"];
    let mut table = page.new_table(&header, 2);
    for column in table.column_iter_mut().skip(4) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for proxy in &report.proxies {
        let mark = if proxy.in_use { "*" } else { "" };
        let address = proxy.addresses.first().map(ToString::to_string).unwrap_or_default();
        table.add_row([
            mark.to_owned(),
            clean(proxy.id.as_deref().unwrap_or("-")),
            decimal(proxy.rtt_ms, 1),
            proxy.load_percent.to_string(),
            clean(&proxy.state),
            clean(proxy.region.as_deref().unwrap_or("-")),
            address,
            remark(proxy),
        ]);
    }
    page.table(&table);
    page.gap();
    let since = age(report.since_s);
    page.line(0, &format!("* in use for {since}: {}.", clean(&report.why)));
    if report.choose != "auto" {
        page.line(
            0,
            &format!("Only {} may be used: `ropewalk use auto` ends that.", clean(&report.choose)),
        );
    }
    page.text
}

fn remark(proxy: &KnownProxy) -> String {
    let mut words = Vec::new();
    if let Some(flows) = proxy.staying_flows {
        words.push(format!("{flows} flows that began there stay"));
    }
    if let Some(seconds) = proxy.not_tried_for_s {
        words.push(format!("gave no session, not tried for {}", age(seconds)));
    }
    if !proxy.wanted {
        words.push("not asked for".to_owned());
    }
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::{KEY_LEN, PublicKey};

    fn proxy(id: &str, in_use: bool) -> KnownProxy {
        KnownProxy {
            id: Some(id.to_owned()),
            region: Some("eu".to_owned()),
            addresses: vec![([203, 0, 113, 7], 51_900).into()],
            public_key: PublicKey::from_bytes([1; KEY_LEN]),
            state: "serving".to_owned(),
            load_percent: 12,
            rtt_ms: Some(20.25),
            distance_ms: Some(20.25),
            answered_s: Some(1.0),
            in_use,
            staying_flows: None,
            wanted: true,
            not_tried_for_s: None,
        }
    }

    #[test]
    fn the_one_in_use_is_marked_and_the_reason_is_told() {
        let old = KnownProxy {
            staying_flows: Some(3),
            rtt_ms: None,
            wanted: false,
            ..proxy("ams-1\u{1b}[2J", false)
        };
        let report = ProxiesReport {
            choose: "fra-1".to_owned(),
            why: "the one before drains".to_owned(),
            since_s: 65.0,
            moves: 1,
            proxies: vec![proxy("fra-1", true), old],
        };
        let text = proxies(&report, 120);
        for part in [
            "*  fra-1",
            "20.2",
            "203.0.113.7:51900",
            "3 flows",
            "not asked for",
            "drains",
            "Only fra-1",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}'), "{text}");
    }
}
