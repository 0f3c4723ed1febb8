//! What passed a link, what waited for it and what it dropped, while traffic ran: as it is told.

use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use crate::lab::Towards;
use crate::netem::{Counters, Netem, Waits};
use crate::scenario_report::ScenarioReport;
use crate::stats::percent;

/// A link at some moment.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    /// Ours, the way the data go.
    pub(crate) data: Counters,
    /// Ours, the other way.
    pub(crate) back: Counters,
    /// Others', the way the data go.
    pub(crate) others: Counters,
    pub(crate) waits: Waits,
}

impl Reading {
    /// Of a link whose data go this way.
    pub(crate) fn of<T>(at: Instant, down: &Netem<T>, up: &Netem<T>, way: Towards) -> Self {
        let (data, back) = match way {
            Towards::Client => (down, up),
            Towards::Proxy => (up, down),
        };
        let (others, waits) = (data.foreign_counters(), data.waits().clone());
        Self { at, data: data.counters(), back: back.counters(), others, waits }
    }

    /// Notes what happened from `begin` to this moment on a link that carries `back` the other way.
    pub(crate) fn note(&self, report: &mut ScenarioReport, begin: &Self, back: Option<Bitrate>) {
        let waits = self.waits.since(&begin.waits);
        report.note("link_wait_p50_ms", waits.percentile_ms(50.0));
        report.note("link_wait_p95_ms", waits.percentile_ms(95.0));
        let dropped = |counters: &Counters| counters.queue_full + counters.policed;
        let received = self.data.received - begin.data.received;
        let dropped = dropped(&self.data) - dropped(&begin.data);
        report.note("link_dropped_percent", percent(dropped, received));
        let returned = self.back.delivered_bytes - begin.back.delivered_bytes;
        let seconds = self.at.since(begin.at).as_secs_f64();
        if let Some(rate) = back {
            let took = rate.time_for(returned).as_secs_f64();
            report.note("link_back_percent", 100.0 * took / seconds);
        }
    }

    /// Notes the share that others have of what was carried from `begin` to this moment.
    pub(crate) fn note_others(&self, report: &mut ScenarioReport, begin: &Self) {
        let since = |now: Counters, then: Counters| now.delivered_bytes - then.delivered_bytes;
        let (ours, others) = (since(self.data, begin.data), since(self.others, begin.others));
        report.note("others_share_percent", percent(others, ours + others));
    }
}
