//! What sending again what was lost costs and saves.

use super::Span;
use super::link::Way;
use crate::api::{LinkStatus, RepairStatus, TunnelStatus};
use crate::words::{percent, some};

/// A link that loses less is not worth a word.
const LEAST_LOSS: f64 = 0.0005;

/// What there is to say of what this end sends; `None`: nothing was sent again.
pub(super) fn judge(span: &Span<'_>) -> Option<String> {
    let way = if span.sends(Way::Up) { Way::Up } else { Way::Down };
    let before = span.before.and_then(|before| before.repairs).unwrap_or_default();
    let after = span.tunnel.repairs?;
    let grown = |of: fn(&RepairStatus) -> u64| of(&after).saturating_sub(of(&before));
    let (again, given_up) = (grown(|all| all.sent_again), grown(|all| all.given_up));
    if again == 0 {
        return None;
    }
    let packets = |tunnel: &TunnelStatus| match way {
        Way::Up => tunnel.up.packets,
        Way::Down => tunnel.down.packets,
    };
    let all = packets(span.tunnel).saturating_sub(span.before.map_or(0, packets));
    #[expect(clippy::cast_precision_loss, reason = "the packets of some seconds are below 2^53")]
    let share = again as f64 / all.max(again) as f64;
    let mut text =
        format!("{} sent again, {} of what was sent", some(again, "packet"), percent(share));
    let lossy = |link: &&LinkStatus| link.loss_recent.is_some_and(|loss| loss >= LEAST_LOSS);
    let losses = span.tunnel.links.iter().filter(lossy);
    let losses =
        losses.map(|link| format!("{} on {}", percent(link.loss_recent.unwrap_or(0.0)), link.name));
    let losses: Vec<_> = losses.collect();
    if !losses.is_empty() {
        text += &format!(": so TCP does not see the loss of {}", losses.join(", "));
    }
    text += &match given_up {
        0 => "; none was given up".to_owned(),
        _ => format!("; but {} were given up, too old to be of use", some(given_up, "packet")),
    };
    Some(text)
}
