//! What a daemon carried over the last hours and days, and what happened.
//!
//! Rates of links are those of their datagrams with IP and UDP headers, as providers count; of all together those of the packets
//! inside. A proxy knows all together only. What is not known (no daemon ran, the machine slept) is absent, never zero.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::query;

/// What is asked for of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Seconds back from the present, within [`HistoryQuery::SINCE`].
    pub since_s: u64,
    /// Most points of each series, within [`HistoryQuery::POINTS`].
    pub points: u16,
    /// Most events, the newest; at most [`HistoryQuery::MOST_EVENTS`].
    pub events: u16,
    /// Only this link.
    pub link: Option<String>,
}

impl HistoryQuery {
    /// Seconds that may be asked for: from six of the finest steps to all that is kept.
    pub const SINCE: RangeInclusive<u64> = 60..=31 * 86_400;

    /// Points that a series may have: more than a graph has columns, and with 16 links an answer of some hundred kilobytes.
    pub const POINTS: RangeInclusive<u16> = 1..=400;

    /// Events of one answer: some pages.
    pub const MOST_EVENTS: u16 = 500;

    /// Where it is asked for.
    pub(crate) const PATH: &'static str = "/v1/history";

    /// What stands behind the `?` of a request.
    ///
    /// # Errors
    /// What is wrong there, and what is possible.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, String> {
        let names = ["since", "points", "events", "link"];
        let [since, points, events, link] = query::read(text, names)?;
        let default = Self::default();
        Ok(Self {
            since_s: number("since", since, &Self::SINCE)?.unwrap_or(default.since_s),
            points: number("points", points, &Self::POINTS)?.unwrap_or(default.points),
            events: number("events", events, &(0..=Self::MOST_EVENTS))?.unwrap_or(default.events),
            link,
        })
    }

    /// The path with what is asked for behind it.
    pub(crate) fn written(&self) -> String {
        let Self { since_s, points, events, link } = self;
        let values = [
            ("since", Some(since_s.to_string())),
            ("points", Some(points.to_string())),
            ("events", Some(events.to_string())),
            ("link", link.clone()),
        ];
        query::written(Self::PATH, &values)
    }
}

impl Default for HistoryQuery {
    /// A day.
    fn default() -> Self {
        Self { since_s: 86_400, points: 360, events: 50, link: None }
    }
}

fn number<T: FromStr + PartialOrd + fmt::Display>(
    name: &str,
    text: Option<String>,
    possible: &RangeInclusive<T>,
) -> Result<Option<T>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) if possible.contains(&number) => Ok(Some(number)),
        _ => {
            let (text, least, most) = (text.escape_debug(), possible.start(), possible.end());
            Err(format!("{name}={text} is no number from {least} to {most}"))
        }
    }
}

/// What a daemon remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// Whether and where it is kept.
    pub history: HistoryStatus,
    /// The present, in seconds since 1970 by the daemon's clock.
    pub now: u64,
    /// The first second of the first point.
    pub from: u64,
    /// Seconds of each point.
    pub step_s: u64,
    /// All links together: packets.
    pub all: Past,
    /// Each link, by name.
    pub links: Vec<LinkPast>,
    /// What was used on each day, by the calendar of the daemon's machine; the oldest first.
    pub used: Vec<DayUse>,
    /// What happened, the newest first.
    pub events: Vec<HistoryEvent>,
}

/// Rates both ways, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Bits per second, proxy to client.
    pub down_bps: Vec<Option<u64>>,
    /// Bits per second, client to proxy.
    pub up_bps: Vec<Option<u64>>,
    /// Bytes of the whole time, proxy to client.
    pub down_bytes: u64,
    /// Bytes of the whole time, client to proxy.
    pub up_bytes: u64,
}

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkPast {
    /// Its name.
    pub name: String,
    /// What it carried.
    #[serde(flatten)]
    pub past: Past,
    /// Round-trip time, milliseconds.
    pub rtt_ms: Vec<Option<f64>>,
    /// Share of the datagrams sent from this end that were lost, 0 to 1.
    pub loss: Vec<Option<f64>>,
}

/// What was used on one day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayUse {
    /// Such as `2026-11-27`.
    pub day: String,
    /// All links together: packets.
    pub all: Used,
    /// Each link that carried something, by name: datagrams with IP and UDP headers.
    pub links: Vec<LinkUse>,
}

/// Bytes both ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Proxy to client.
    pub down_bytes: u64,
    /// Client to proxy.
    pub up_bytes: u64,
}

impl Used {
    /// Both ways.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.down_bytes.saturating_add(self.up_bytes)
    }
}

/// What one link carried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUse {
    /// Its name.
    pub name: String,
    /// How much.
    #[serde(flatten)]
    pub used: Used,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// When, in seconds since 1970.
    pub at: u64,
    /// For programs.
    pub kind: EventKind,
    /// The link that it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// More about it, for people; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// What can happen. The numbers stand in files: one is never given to another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum EventKind {
    /// The daemon began.
    DaemonStarted = 1,
    /// It was told to stop.
    DaemonStopped = 2,
    /// It had ended without being told to, as its next start found.
    DaemonCrashed = 3,
    /// Its config was read again.
    ConfigReloaded = 4,
    /// The machine's clock was set.
    ClockSet = 5,
    /// The machine or the daemon stood still: it slept, say.
    StoodStill = 6,
    /// An interface is a link from now on.
    LinkAdded = 7,
    /// It is none any more.
    LinkRemoved = 8,
    /// A link carries packets.
    LinkUp = 9,
    /// It carries none any more.
    LinkDown = 10,
    /// Packets pass.
    TunnelUp = 11,
    /// No link is left.
    AllLinksLost = 12,
    /// The session with the proxy is over.
    SessionEnded = 13,
    /// Another proxy is in use.
    ProxyChanged = 14,
    /// Little is left of a link's allowance.
    AllowanceNearly = 15,
    /// Nothing is left of it.
    AllowanceUsed = 16,
    /// A new month of it began.
    AllowanceRenewed = 17,
}

impl EventKind {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::DaemonStarted,
        Self::DaemonStopped,
        Self::DaemonCrashed,
        Self::ConfigReloaded,
        Self::ClockSet,
        Self::StoodStill,
        Self::LinkAdded,
        Self::LinkRemoved,
        Self::LinkUp,
        Self::LinkDown,
        Self::TunnelUp,
        Self::AllLinksLost,
        Self::SessionEnded,
        Self::ProxyChanged,
        Self::AllowanceNearly,
        Self::AllowanceUsed,
        Self::AllowanceRenewed,
    ];

    /// The number of this kind in files.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind of this number; `None`: a newer program's.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// For people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::DaemonStarted => "started",
            Self::DaemonStopped => "stopped",
            Self::DaemonCrashed => "ended unexpectedly",
            Self::ConfigReloaded => "config reloaded",
            Self::ClockSet => "clock set",
            Self::StoodStill => "stood still",
            Self::LinkAdded => "link added",
            Self::LinkRemoved => "link removed",
            Self::LinkUp => "link up",
            Self::LinkDown => "link lost",
            Self::TunnelUp => "tunnel up",
            Self::AllLinksLost => "all links lost",
            Self::SessionEnded => "session ended",
            Self::ProxyChanged => "proxy changed",
            Self::AllowanceNearly => "allowance nearly used",
            Self::AllowanceUsed => "allowance used up",
            Self::AllowanceRenewed => "allowance renewed",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.in_words())
    }
}

/// Whether and where a daemon keeps its history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryStatus {
    /// Where it is now.
    pub state: HistoryState,
    /// For how many days it is kept.
    pub days: u8,
    /// Why it cannot be kept in its file, and what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Samples and events that were left out because the disk was too slow.
    #[serde(default)]
    pub left_out: u64,
}

/// Where a history is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryState {
    /// In a file of the state folder.
    On,
    /// In memory, until it can be written.
    Memory,
    /// In memory, until the machine's clock is set: nothing has a date yet.
    NoClock,
    /// Nowhere: the config has it so.
    #[default]
    Off,
}

impl fmt::Display for HistoryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.state, self.days) {
            (HistoryState::Off, _) => f.pad("off"),
            (HistoryState::NoClock, _) => f.pad("begins when this machine's clock is set"),
            (HistoryState::Memory, _) => f.pad("in memory only, and lost with the daemon"),
            (HistoryState::On, 1) => f.pad("1 day (`ropewalk history`)"),
            (HistoryState::On, days) => write!(f, "{days} days (`ropewalk history`)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_is_asked_for_goes_through_a_path_and_back() {
        let asked = HistoryQuery {
            since_s: 3600,
            points: 60,
            events: 0,
            link: Some("Käthes LTE & more".to_owned()),
        };
        for query in [asked, HistoryQuery::default()] {
            let path = query.written();
            let (before, behind) = path.split_once('?').unwrap();
            assert_eq!(before, "/v1/history");
            assert_eq!(HistoryQuery::read(Some(behind)), Ok(query));
        }
        assert_eq!(HistoryQuery::read(None), Ok(HistoryQuery::default()));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_what_is_possible() {
        for (text, expected) in [
            ("since=59", "since=59 is no number from 60 to 2678400"),
            ("since=2678401", "from 60 to 2678400"),
            ("since=-1", "from 60 to 2678400"),
            ("points=0", "points=0 is no number from 1 to 400"),
            ("points=401", "from 1 to 400"),
            ("events=501", "from 0 to 500"),
            ("events=99999999999999999999", "from 0 to 500"),
            ("until=5", "`since`, `points`, `events`, `link`"),
        ] {
            let error = HistoryQuery::read(Some(text)).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn each_kind_of_event_has_a_number_a_name_and_words_of_its_own() {
        let mut words = BTreeSet::new();
        for kind in EventKind::ALL {
            assert_eq!(EventKind::of_number(kind.number()), Some(kind));
            assert!(words.insert(kind.in_words()), "{kind:?}");
            let name = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<EventKind>(&name).unwrap(), kind);
        }
        assert_eq!([0, 18, 255].map(EventKind::of_number), [None; 3]);
    }

    #[test]
    fn what_is_not_known_is_null_and_what_is_not_there_is_absent() {
        let past = Past { down_bps: vec![None, Some(8)], ..Past::default() };
        let link = LinkPast { name: "lte".to_owned(), past, ..LinkPast::default() };
        let json = serde_json::to_value(&link).unwrap();
        assert_eq!(json["down_bps"], serde_json::json!([null, 8]));
        assert_eq!(serde_json::from_value::<LinkPast>(json).unwrap(), link);
        let event =
            HistoryEvent { at: 5, kind: EventKind::AllLinksLost, link: None, text: String::new() };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(json, "{\"at\":5,\"kind\":\"all-links-lost\"}");
    }
}
