//! How the answer to `ropewalk links` looks.

use ropewalk_control::api::{BackupDuty, LinkStatus, StatusReport};
use ropewalk_settings::Usage;
use ropewalk_settings::figures::megabits;

use super::{Page, age, clean, decimal, is_up};

/// A table of the links of each tunnel, and why those that are not up are not, or go over TLS.
pub(crate) fn links(report: &StatusReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    for (place, tunnel) in report.tunnels.iter().enumerate() {
        if place > 0 {
            page.gap();
        }
        page.line(0, &format!("Tunnel with {}: {}", tunnel.peer, tunnel.state));
        if tunnel.links.is_empty() {
            page.line(2, "No links.");
            continue;
        }
        let columns = ["link", "state", "used", "RTT ms", "loss %", "up", "most", "down", "most"];
        let mut table = page.new_table(&columns, 3);
        let most = |most: Option<f64>| most.map_or_else(|| "-".to_owned(), megabits);
        for link in &tunnel.links {
            table.add_row([
                clean(&link.name),
                link.state.to_string(),
                used_now(link),
                decimal(link.srtt_ms, 1),
                decimal(link.loss_recent.map(|share| share * 100.0), 2),
                megabits(link.up.rate_bps),
                most(link.max_up_bps),
                megabits(link.down.rate_bps),
                most(link.max_down_bps),
            ]);
        }
        page.table(&table);
        for link in tunnel.links.iter().filter(|link| !is_up(link) || link.over_tls) {
            let reason = link.reason.as_deref().unwrap_or("no reason is known");
            let (name, state) = (&link.name, link.state);
            page.line(2, &format!("{name}: {state} for {}: {reason}", age(link.state_age_s)));
        }
    }
    if report.tunnels.is_empty() {
        page.line(0, "There is no tunnel: no client may connect yet.");
    } else {
        page.line(0, "Rates in Mbit/s of UDP payload.");
    }
    page.text
}

/// When it is to carry packets.
pub(super) fn used(link: &LinkStatus) -> Usage {
    link.told.as_ref().and_then(|told| told.usage).unwrap_or_default()
}

/// The same, and what it does now.
fn used_now(link: &LinkStatus) -> String {
    let usage = used(link);
    match link.backup {
        None => usage.to_string(),
        Some(BackupDuty::Rests) => format!("{usage}: rests"),
        Some(BackupDuty::Helps) => format!("{usage}: helps"),
        Some(BackupDuty::Carries) => format!("{usage}: carries"),
    }
}
