//! What this end's congestion controller believes of its links, where it models them.

use comfy_table::CellAlignment;
use ropewalk_control::api::{LinkStatus, Role};
use ropewalk_settings::figures::megabits;

use super::{Page, clean, decimal, optional};

/// A row for each link that has a model; nothing where none has.
pub(super) fn models(page: &mut Page, role: Role, links: &[LinkStatus]) {
    let known: Vec<_> =
        links.iter().filter_map(|link| Some((link, link.model.as_ref()?))).collect();
    if known.is_empty() {
        return;
    }
    let header = ["link", "Mbit/s", "RTT ms", "queue ms", "usual loss %", "what limits it"];
    let mut table = page.new_table(&header, 1);
    if let Some(why) = table.column_mut(header.len() - 1) {
        why.set_cell_alignment(CellAlignment::Left);
    }
    for (link, model) in known {
        table.add_row([
            clean(&link.name),
            optional(model.rate_bps.map(megabits)),
            decimal(model.min_rtt_ms, 1),
            decimal(Some(model.queue_ms), 1),
            decimal(Some(model.usual_loss * 100.0), 2),
            clean(&model.why),
        ]);
    }
    let way = if role == Role::Client { "up" } else { "down" };
    page.gap();
    page.line(0, &format!("Found of the way {way} (the RTT without a queue, the queue now):"));
    page.table(&table);
}
