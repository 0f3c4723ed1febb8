//! The judgement on one link in one direction.

use ropewalk_settings::Direction;
use ropewalk_settings::figures::rate;

use super::others::{AT_BOUND, LEAST_WAIT, NOTHING_BPS, Others};
use super::{Factor, Span, Verdict, model};
use crate::api::{BackupDuty, LinkState, LinkStatus, TunnelState};
use crate::words::{age, millis, percent, some};

/// A round trip so many times the shortest that was seen, and longer by [`LEAST_QUEUE_MS`], stands in a queue for most
/// of it.
const QUEUE_FACTOR: f64 = 1.6;
const LEAST_QUEUE_MS: f64 = 8.0;

/// Losses above this keep a window small: it is about `sqrt(1.5 / loss)`, so 12 packets at 1 % (RFC 3448 §3.1 without
/// its timeouts).
const LEAST_LOSS: f64 = 0.01;

/// Others waited for the link for this share of the time.
const WAITED_FOR: f64 = 0.25;

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Up,
    Down,
}

/// What limits a link this way.
pub(super) fn verdict(span: &Span<'_>, link: &LinkStatus, way: Way) -> Verdict {
    let carried = carried(span, link, way);
    let held = absent(span, link).or_else(|| match span.sends(way) {
        true => kept_from(link, way),
        false => None,
    });
    let (factor, could, why) = match held {
        Some((factor, why)) => (factor, None, why),
        None if span.sends(way) => sent(span, link, way, carried),
        None => received(span, link, way, carried),
    };
    Verdict { factor, rate_bps: carried, could_bps: could, why }
}

/// Bits per second that a link carried this way.
pub(super) fn carried(span: &Span<'_>, link: &LinkStatus, way: Way) -> f64 {
    let of = |link: &LinkStatus| if way == Way::Up { link.up.bytes } else { link.down.bytes };
    span.rate(span.before(link).map(of), of(link))
}

/// What a link that this end sends on could carry, bits per second: told, found by its model, or measured.
pub(super) fn capacity(link: &LinkStatus) -> Option<f64> {
    let told = link.sensed.and_then(|sensed| sensed.capacity_told_bps);
    let found = link.model.as_ref().and_then(|model| model.rate_bps);
    told.or(found).or_else(|| link.sensed.and_then(|sensed| sensed.capacity_bps))
}

/// A link that carries nothing in either direction.
fn absent(span: &Span<'_>, link: &LinkStatus) -> Option<(Factor, String)> {
    let reason = link.reason.as_deref().unwrap_or("the reason is not known");
    let ago = age(link.state_age_s);
    let used_up = link.allowance.as_ref().is_some_and(|all| all.stop && all.used >= all.bytes);
    Some(match link.state {
        LinkState::Disabled => (Factor::Disabled, reason.to_owned()),
        LinkState::Down if used_up => (Factor::Allowance, reason.to_owned()),
        LinkState::Down => (Factor::Down, format!("down for {ago}: {reason}")),
        LinkState::Joining => (Factor::Joining, format!("not taken yet, for {ago}: {reason}")),
        LinkState::Up | LinkState::Suspect if span.tunnel.state != TunnelState::Up => {
            let reason = span.tunnel.reason.as_deref().unwrap_or("it is being made");
            (Factor::Down, format!("the tunnel is {}: {reason}", span.tunnel.state))
        }
        LinkState::Up | LinkState::Suspect => return None,
    })
}

/// A link that is not to carry what this end sends.
fn kept_from(link: &LinkStatus, way: Way) -> Option<(Factor, String)> {
    let told = link.told.as_ref();
    let direction = told.and_then(|told| told.direction).unwrap_or_default();
    match (direction, way) {
        (Direction::Up, Way::Down) => {
            return Some((Factor::Direction, "it is set to carry packets up only".to_owned()));
        }
        (Direction::Down, Way::Up) => {
            return Some((Factor::Direction, "it is set to carry packets down only".to_owned()));
        }
        _ => {}
    }
    if link.share.is_some_and(|share| share.share == Some(0.0)) {
        return Some((
            Factor::Weight,
            "its weight is 0: the scheduler gives it no share".to_owned(),
        ));
    }
    let rests = link.backup == Some(BackupDuty::Rests);
    rests
        .then(|| (Factor::Resting, "it is kept back and rests: the other links suffice".to_owned()))
}

/// A link that carries what this end sends: what held it back longest.
fn sent(
    span: &Span<'_>,
    link: &LinkStatus,
    way: Way,
    carried: f64,
) -> (Factor, Option<f64>, String) {
    let shares = Shares::of(span, link);
    // A measurement of less than what it carries is older than that.
    let capacity = capacity(link).filter(|capacity| *capacity > carried);
    let of = capacity.map_or_else(String::new, |capacity| format!(" of {}", rate(capacity)));
    let carries = format!("{}{of}", rate(carried));
    let (longest, share) = shares.longest();
    let others = Others::of(span, link, way);
    if shares.waited() < LEAST_WAIT {
        let (factor, why) = match (&others, carried) {
            (Some(others), ..NOTHING_BPS) => {
                (Factor::Turn, others.leave_idle(&span.tunnel.policy.scheduler))
            }
            (None, ..NOTHING_BPS) => (Factor::Demand, "nothing is to be sent on it".to_owned()),
            _ => (Factor::Demand, format!("there is not more to send: it carries {carries}")),
        };
        return (factor, capacity, why);
    }
    let time = percent(share);
    if let (Some(model), Factor::Window | Factor::Pace) = (&link.model, longest) {
        let held = format!("packets waited for that {time} of the time: {carries}");
        let (factor, why) = model::verdict(model, &held);
        return (factor, Some(carried), why);
    }
    let why = match longest {
        Factor::Window => return window(span, link, carried, capacity, &carries),
        Factor::Pace => {
            let told = link.told.as_ref().and_then(|told| told.rate);
            let cause = match told {
                Some(told) => format!("it was told to carry {}", rate(told.as_bps() as f64)),
                None => "it leaves room for what others send on it".to_owned(),
            };
            format!("{cause}, and packets waited for that {time} of the time: {carries}")
        }
        Factor::Cap => {
            let most = if span.sends(Way::Up) { link.max_up_bps } else { link.max_down_bps };
            let most = most.map_or_else(String::new, |most| format!(" of {}", rate(most)));
            format!("its cap{most} is reached {time} of the time: {carries}")
        }
        _ => {
            let scheduler = &span.tunnel.policy.scheduler;
            let full = others.and_then(|others| others.told_full());
            let full = full.map_or_else(String::new, |full| format!(" ({full})"));
            let share = link.share.and_then(|share| share.share);
            let share = share.map_or_else(String::new, |share| {
                format!(", which gives it {} of a round", percent(share))
            });
            format!(
                "it had room {time} of the time while packets waited for others{full}: that is the choice of \
                 {scheduler}{share}: {carries}"
            )
        }
    };
    // What is held back on purpose could do more.
    (longest, capacity.or(Some(carried)), why)
}

/// The window was full for most of the time: what keeps it from growing.
fn window(
    span: &Span<'_>,
    link: &LinkStatus,
    carried: f64,
    capacity: Option<f64>,
    carries: &str,
) -> (Factor, Option<f64>, String) {
    let packets = some(u64::from(link.cwnd.unwrap_or(0)), "packet");
    let trip = link.srtt_ms.unwrap_or(0.0);
    let least = link.min_rtt_ms.unwrap_or(trip);
    let is_fixed = span.tunnel.policy.controller.starts_with("fixed");
    if !is_fixed && trip >= least * QUEUE_FACTOR && trip - least >= LEAST_QUEUE_MS {
        let why = format!(
            "its path is full: {} of its round trip of {} are a queue on the way (the shortest was {}); its \
             window is {packets}: {}",
            millis(trip - least),
            millis(trip),
            millis(least),
            rate(carried)
        );
        return (Factor::Queue, Some(carried), why);
    }
    let loss = link.loss_recent.unwrap_or(0.0);
    if !is_fixed && loss >= LEAST_LOSS {
        let why = format!(
            "it loses {} of what is sent, which keeps its window at {packets} in a round trip of {}: {carries}",
            percent(loss),
            millis(trip)
        );
        return (Factor::Loss, capacity.or(Some(carried)), why);
    }
    let grows = if is_fixed { "is fixed, and" } else { "is" };
    let why = format!(
        "its window of {packets} {grows} full, for a round trip of {}: {carries}",
        millis(trip)
    );
    (Factor::Window, capacity.or(Some(carried)), why)
}

/// What comes on a link: only what this end sees of it.
fn received(
    span: &Span<'_>,
    link: &LinkStatus,
    way: Way,
    carried: f64,
) -> (Factor, Option<f64>, String) {
    let most = if way == Way::Up { link.max_up_bps } else { link.max_down_bps };
    if let Some(most) = most.filter(|most| carried >= most * AT_BOUND) {
        let why = format!("its cap of {} is reached: {}", rate(most), rate(carried));
        return (Factor::Cap, Some(most), why);
    }
    let other = if way == Way::Up { "client" } else { "proxy" };
    if carried < NOTHING_BPS {
        return match Others::of(span, link, way) {
            Some(others) => (Factor::Sender, None, others.come_elsewhere(other)),
            None => (Factor::Demand, None, "nothing is sent on it".to_owned()),
        };
    }
    let waited = link.waited_for_s - span.before(link).map_or(0.0, |before| before.waited_for_s);
    let share = if span.seconds > 0.0 { waited / span.seconds } else { 0.0 };
    if share >= WAITED_FOR {
        let wait = span.tunnel.resequencer.wait_p50_ms;
        let wait = wait.map_or_else(String::new, |ms| format!(", half of them for {}", millis(ms)));
        let why = format!(
            "it is slower than its partners: what came on them waits for it {} of the time{wait}; {} come on it",
            percent(share.min(1.0)),
            rate(carried)
        );
        return (Factor::Order, None, why);
    }
    let why = format!(
        "{} come; what limits it is known at the {other}: `ropewalk why` there",
        rate(carried)
    );
    (Factor::Sender, None, why)
}

/// For which share of the time each thing held a link back.
pub(super) struct Shares {
    window: f64,
    pace: f64,
    cap: f64,
    turn: f64,
}

impl Shares {
    pub(super) fn of(span: &Span<'_>, link: &LinkStatus) -> Self {
        let after = link.limits.unwrap_or_default();
        let before = span.before(link).and_then(|before| before.limits).unwrap_or_default();
        let all = after.total() - before.total();
        let share = |after: f64, before: f64| if all > 0.0 { (after - before) / all } else { 0.0 };
        Self {
            window: share(after.window_s, before.window_s),
            pace: share(after.pace_s, before.pace_s),
            cap: share(after.cap_s, before.cap_s),
            turn: share(after.turn_s, before.turn_s),
        }
    }

    /// For which share of it packets waited.
    pub(super) fn waited(&self) -> f64 {
        self.held() + self.turn
    }

    /// For which share of it they waited, and the link had no room.
    pub(super) fn held(&self) -> f64 {
        self.window + self.pace + self.cap
    }

    fn longest(&self) -> (Factor, f64) {
        let all = [
            (Factor::Window, self.window),
            (Factor::Pace, self.pace),
            (Factor::Cap, self.cap),
            (Factor::Turn, self.turn),
        ];
        all.into_iter().fold(all[0], |most, one| if one.1 > most.1 { one } else { most })
    }
}
