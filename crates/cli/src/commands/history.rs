//! `ropewalk history`: what was carried over the last hours and days, and what happened.

use anyhow::Context as _;
use ropewalk_control::api::HistoryQuery;

use super::ask;
use crate::args::History;
use crate::exit::{Failure, print};
use crate::render;

/// Events below the charts; with `--events` there are more.
const FEW_EVENTS: u16 = 20;

/// Asks the daemon and prints what it remembers.
pub(crate) fn run(history: &History) -> Result<(), Failure> {
    let columns = render::columns();
    let default = HistoryQuery::default();
    let query = HistoryQuery {
        since_s: history.since.as_secs(),
        points: if history.json { default.points } else { render::chart_width(columns) },
        events: match (history.events, history.json) {
            (true, _) => HistoryQuery::MOST_EVENTS,
            (false, true) => default.events,
            (false, false) => FEW_EVENTS,
        },
        link: history.link.clone(),
    };
    let report = ask::history(history.daemon.socket.as_deref(), query)?;
    if history.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&render::history(&report, history.events, columns))
}
