//! One flow that goes over one link while another is idle, and why: it is the usual reason why a download is no faster.

use ropewalk_settings::figures::rate;

use super::link::{Shares, Way};
use super::others::{LEAST_WAIT, NOTHING_BPS};
use super::{Factor, Span, Verdict};
use crate::api::{FlowWait, FlowsReport, LinkStatus, RecentFlowStatus};
use crate::words::{millis, percent};

/// A flow that has this share of all that is sent is the one that counts.
const MOST: f64 = 0.8;

/// A flow of less fills no link, bits per second.
const LEAST_BPS: f64 = 200_000.0;

/// A link that carries less than this share of the busiest one is idle beside it.
const IDLE: f64 = 0.1;

/// What there is to say of it; `None`: several flows are sent, or the links are used alike. `links`: those of the way in which
/// this end sends, with the verdict on each.
pub(super) fn judge(
    span: &Span<'_>,
    way: Way,
    links: &[(&LinkStatus, &Verdict)],
    flows: &FlowsReport,
) -> Option<String> {
    if !span.sends(way) || flows.recent_over_s.is_none_or(|over_s| over_s <= 0.0) {
        return None;
    }
    let all: f64 = flows.recent.iter().map(|flow| flow.rate_bps).sum();
    let flow = flows.recent.first().filter(|flow| flow.rate_bps >= LEAST_BPS.max(MOST * all))?;
    let carries = |factor| {
        !matches!(
            factor,
            Factor::Disabled
                | Factor::Allowance
                | Factor::Down
                | Factor::Joining
                | Factor::Direction
                | Factor::Weight
                | Factor::Resting
        )
    };
    let usable = || links.iter().filter(|(_, verdict)| carries(verdict.factor));
    let by_rate = |one: &&(&LinkStatus, &Verdict), other: &&(&LinkStatus, &Verdict)| {
        one.1.rate_bps.total_cmp(&other.1.rate_bps)
    };
    let (busy, carried) = usable().max_by(by_rate)?;
    let (idle, rest) = usable().min_by(by_rate)?;
    if rest.rate_bps > (IDLE * carried.rate_bps).max(NOTHING_BPS) {
        return None;
    }
    Some(format!(
        "one flow, {}, is {} of what is sent ({}); it goes over {} while {} is idle: {}",
        name(flow),
        percent(flow.rate_bps / all),
        rate(flow.rate_bps),
        busy.name,
        idle.name,
        reason(span, flow, (busy, carried.rate_bps), idle)
    ))
}

/// Why the idle link gets nothing of it.
fn reason(
    span: &Span<'_>,
    flow: &RecentFlowStatus,
    (busy, carried_bps): (&LinkStatus, f64),
    idle: &LinkStatus,
) -> String {
    let waits = Shares::of(span, idle).waited() >= LEAST_WAIT;
    if waits && span.tunnel.policy.scheduler == "arrival" {
        #[expect(clippy::cast_precision_loss, reason = "a queue has less than 2^53 bytes")]
        let waiting_ms = flow.waiting_bytes as f64 * 8e3 / carried_bps.max(1.0);
        let later = match &flow.waits_for {
            FlowWait::Link { link, later_ms: Some(later) } if *link == busy.name => Some(*later),
            _ => idle.srtt_ms.zip(busy.srtt_ms).map(|(idle, busy)| (idle - busy) / 2.0),
        };
        let later = later.filter(|later| *later > 0.0);
        let later = later.map_or_else(String::new, |ms| format!(" by about {}", millis(ms)));
        return format!(
            "a packet would be later there{later}, and what waits here is gone over {} in {}",
            busy.name,
            millis(waiting_ms)
        );
    }
    if waits {
        return format!("that is the choice of {}", span.tunnel.policy.scheduler);
    }
    match flow.waits_for {
        FlowWait::Receiver => {
            "its receiver's window is full: it takes no more at a time".to_owned()
        }
        _ => "its sender has too little under way to need it: nothing waits here".to_owned(),
    }
}

/// Where it goes, for people.
fn name(flow: &RecentFlowStatus) -> String {
    let protocol = match flow.protocol {
        Some(6) => "tcp",
        Some(17) => "udp",
        _ => "another protocol",
    };
    match flow.destination_port {
        Some(port) => {
            format!("{protocol} to {}", std::net::SocketAddr::new(flow.destination, port))
        }
        None => format!("{protocol} to {}", flow.destination),
    }
}
