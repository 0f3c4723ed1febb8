//! Packets that were to go over two links at once, and went over one.

use ropewalk_settings::figures::rate;

use super::Span;
use crate::api::{LinkState, LinkStatus, RedundancyStatus};
use crate::words::some;

/// What there is to say of what this end sends; `None`: nothing is to go over two links, or all of it did.
pub(super) fn judge(span: &Span<'_>) -> Option<String> {
    let policy = &span.tunnel.policy;
    policy.redundant.as_ref()?;
    let before = span.before.and_then(|before| before.redundancy).unwrap_or_default();
    let after = span.tunnel.redundancy?;
    let grown = |of: fn(&RedundancyStatus) -> u64| of(&after).saturating_sub(of(&before));
    let is_up = |link: &&LinkStatus| matches!(link.state, LinkState::Up | LinkState::Suspect);
    // One link alone has no other: no setting changes that.
    let has_other = span.tunnel.links.iter().filter(is_up).count() > 1;
    let over_budget = grown(|copies| copies.over_budget);
    let no_room = if has_other { grown(|copies| copies.no_room) } else { 0 };
    if over_budget + no_room == 0 {
        return None;
    }
    let all = grown(|copies| copies.packets) + over_budget + no_room;
    // Without a name it would also change how a proxy sends to all others.
    let command = match policy.own {
        true => "ropewalk set --peer NAME redundant --budget",
        false => "ropewalk set redundant --budget",
    };
    let lacking = rate(span.rate(Some(before.over_budget_bytes), after.over_budget_bytes));
    let budget = format!("for want of budget (raise it by {lacking} or more with `{command}`)");
    let room = "for want of room on another link (backups take no copies)";
    let why = match (over_budget, no_room) {
        (_, 0) => budget,
        (0, _) => room.to_owned(),
        _ => format!("{over_budget} {budget}, {no_room} {room}"),
    };
    let once = over_budget + no_room;
    Some(format!(
        "{once} of {} that were to go over two links went over one: {why}",
        some(all, "packet")
    ))
}
