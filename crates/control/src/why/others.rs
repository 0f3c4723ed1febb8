//! What the other links of a tunnel do while one is idle.

use ropewalk_settings::figures::rate;

use super::Span;
use super::link::{Shares, Way, capacity, carried};
use crate::api::{LinkStatus, ModelLimit};

/// Packets waited for less than this share of the time: what waited was a burst.
pub(super) const LEAST_WAIT: f64 = 0.2;

/// Less than that is what keeps a link alive.
pub(super) const NOTHING_BPS: f64 = 8_000.0;

/// A link that carries this share of what it can is full: reports and headers are the rest.
pub(super) const AT_BOUND: f64 = 0.85;

/// The links beside one that is idle.
pub(super) struct Others<'a> {
    /// Bits per second that they carry.
    carried_bps: f64,
    /// Names of those that can carry no more.
    full: Vec<&'a str>,
}

impl<'a> Others<'a> {
    /// Those beside `link`; `None`: they are idle, too.
    pub(super) fn of(span: &Span<'a>, link: &LinkStatus, way: Way) -> Option<Self> {
        let others = span.tunnel.links.iter().filter(|other| !std::ptr::eq(*other, link));
        let busy: Vec<_> = others
            .map(|other| (other, carried(span, other, way)))
            .filter(|(_, carried)| *carried >= NOTHING_BPS)
            .collect();
        let carried_bps = busy.iter().map(|(_, carried)| carried).sum();
        let full = busy.iter().filter(|(other, carried)| is_full(span, other, way, *carried));
        let full = full.map(|(other, _)| other.name.as_str()).collect();
        (!busy.is_empty()).then_some(Self { carried_bps, full })
    }

    /// Why nothing of this end goes over the link.
    pub(super) fn leave_idle(&self, scheduler: &str) -> String {
        let carry = rate(self.carried_bps);
        match self.told_full() {
            None => format!(
                "it is idle by the choice of {scheduler}: the other links are enough for the {carry} that there are to send"
            ),
            Some(full) => format!(
                "it is idle by the choice of {scheduler}, though {full}: {carry} go over the other links"
            ),
        }
    }

    /// Why nothing of the other end comes over it.
    pub(super) fn come_elsewhere(&self, other_end: &str) -> String {
        format!(
            "it is idle by the choice of the {other_end}: {} come on the other links; why is known there: `ropewalk why`",
            rate(self.carried_bps)
        )
    }

    /// Which links are full, if there are some.
    pub(super) fn told_full(&self) -> Option<String> {
        let are = if self.full.len() == 1 { "is" } else { "are" };
        (!self.full.is_empty()).then(|| format!("{} {are} full", self.full.join(", ")))
    }
}

/// Whether a link that this end sends on can carry no more.
fn is_full(span: &Span<'_>, link: &LinkStatus, way: Way, carried: f64) -> bool {
    if !span.sends(way) {
        return false;
    }
    let shares = Shares::of(span, link);
    let limit = link.model.as_ref().map(|model| model.limit);
    shares.held() >= LEAST_WAIT
        || link.cwnd.is_some_and(|window| link.in_flight >= window)
        || capacity(link).is_some_and(|capacity| carried >= capacity * AT_BOUND)
        || limit.is_some_and(|limit| !matches!(limit, ModelLimit::Starting | ModelLimit::Nothing))
}
