//! What the bundle carries in one direction, against the sum of its links.

use ropewalk_settings::figures::rate;

use super::link::Way;
use super::{BundleWhy, Span, Verdict};
use crate::api::{LinkStatus, ResequencerStatus, TunnelStatus};
use crate::words::{millis, percent, some};

/// Less than this is not worth a word.
const LEAST_BPS: f64 = 10_000.0;

/// All links one way, with the verdict on each.
pub(super) fn judge(span: &Span<'_>, way: Way, links: &[(&LinkStatus, &Verdict)]) -> BundleWhy {
    let (tunnel, before) = (span.tunnel, span.before);
    let of = |tunnel: &TunnelStatus| match way {
        Way::Up => tunnel.up.bytes,
        Way::Down => tunnel.down.bytes,
    };
    let packets = span.rate(before.map(of), of(tunnel));
    let sum: f64 = links.iter().map(|(_, verdict)| verdict.rate_bps).sum();
    let could = |verdict: &Verdict| verdict.could_bps.unwrap_or(0.0).max(verdict.rate_bps);
    let all: f64 = links.iter().map(|(_, verdict)| could(verdict)).sum();
    let lost = links
        .iter()
        .map(|(link, verdict)| verdict.rate_bps * link.loss_recent.unwrap_or(0.0))
        .sum::<f64>();
    let lost = span.sends(way).then_some(lost);
    let mut text = match sum {
        ..LEAST_BPS => "nothing to speak of is carried".to_owned(),
        _ => format!(
            "{} of packets, over {} on {}: headers and reports are {}",
            rate(packets),
            rate(sum),
            some(used(links), "link"),
            percent(((sum - packets) / sum).max(0.0))
        ),
    };
    if let Some(lost) = lost.filter(|lost| *lost >= LEAST_BPS) {
        text += &format!("; {} are lost on the way", rate(lost));
    }
    let mut unused: Vec<_> = links
        .iter()
        .map(|(link, verdict)| (could(verdict) - verdict.rate_bps, link, verdict.factor))
        .filter(|(unused, ..)| *unused >= LEAST_BPS)
        .collect();
    unused.sort_by(|one, other| other.0.total_cmp(&one.0));
    if !unused.is_empty() {
        let each = unused.iter().map(|(unused, link, factor)| {
            format!("{} on {} ({})", rate(*unused), link.name, factor)
        });
        text += &format!(
            "; of {} that the links could carry are unused {}",
            rate(all),
            each.collect::<Vec<_>>().join(", ")
        );
    }
    if !span.sends(way) {
        text += &order(span);
    }
    BundleWhy { packets_bps: packets, links_bps: sum, could_bps: all, lost_bps: lost, why: text }
}

/// Links that carry something.
fn used(links: &[(&LinkStatus, &Verdict)]) -> u64 {
    links.iter().filter(|(_, verdict)| verdict.rate_bps >= LEAST_BPS).count() as u64
}

/// What putting packets in order costs.
fn order(span: &Span<'_>) -> String {
    let order = &span.tunnel.resequencer;
    let before = span.before.map(|before| before.resequencer).unwrap_or_default();
    let given_up =
        |order: &ResequencerStatus| order.skipped_by_deadline + order.released_by_full_buffer;
    let given_up = given_up(order).saturating_sub(given_up(&before));
    let mut text = String::new();
    if let (Some(median), Some(most)) = (order.wait_p50_ms, order.wait_p99_ms) {
        text += &format!(
            "; packets that overtook others waited {} for them, one in a hundred {}",
            millis(median),
            millis(most)
        );
    }
    if given_up > 0 {
        text += &format!("; {} waited for in vain", some(given_up, "packet"));
    }
    text
}
