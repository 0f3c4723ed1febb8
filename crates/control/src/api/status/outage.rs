//! Links that carried nothing for a while.

use serde::{Deserialize, Serialize};

use crate::words::{age, millis, some};

/// Links that fell silent, went, and returned, since the daemon's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutagesStatus {
    /// Outages of which nobody said anything: an answer was overdue.
    pub silent: u64,
    /// Outages of which this end's kernel told, which refused to send.
    pub refused: u64,
    /// Links that this end took out: their interface or address was gone, or a person said so.
    pub removed: u64,
    /// Outages of which the other end told.
    pub peer: u64,
    /// How often an answer was overdue and came within 200 ms all the same: these are no outages.
    pub brief: u64,
    /// Packets that were under way on these links and went over others, those of brief silences too.
    pub moved_packets: u64,
    /// How long these stood still, as a distribution; absent where the daemon is older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<StallsStatus>,
    /// The newest, the last one first.
    pub newest: Vec<OutageStatus>,
}

/// Outages of which a [stall](OutageStatus::stall_ms) is known, by how this end knew of them, and how long it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallsStatus {
    /// Where the ranges end, rising; each holds its end, and there is one more beyond the last.
    pub bounds_ms: Vec<f64>,
    /// Of `silent` outages.
    pub silent: StallCounts,
    /// Of `refused` ones.
    pub refused: StallCounts,
    /// Of `removed` ones.
    pub removed: StallCounts,
    /// Of `peer` ones.
    pub peer: StallCounts,
}

/// Stalls by their length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StallCounts {
    /// How many there were in each range.
    pub counts: Vec<u64>,
    /// All together.
    pub sum_ms: f64,
}

/// A time in which a link carried nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutageStatus {
    /// The link's name.
    pub link: String,
    /// How this end knew.
    pub how: OutageCause,
    /// How long ago it knew.
    pub ago_s: f64,
    /// Packets that were under way there and went over other links.
    pub moved_packets: u64,
    /// How long nothing of these was confirmed, from when the first was sent; absent where none was moved, or none is yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<f64>,
    /// After how long the link answered again, or one of its name was taken in; absent while it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_s: Option<f64>,
}

/// How an end knew that a link carries nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutageCause {
    /// An answer was overdue.
    Silent,
    /// This end's kernel refused to send.
    Refused,
    /// This end took it out.
    Removed,
    /// The other end said so.
    Peer,
}

impl OutageCause {
    /// For people.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Silent => "fell silent",
            Self::Refused => "the kernel refused to send",
            Self::Removed => "was taken out here",
            Self::Peer => "the other end said that it carries nothing",
        }
    }
}

impl OutagesStatus {
    /// How many there were.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.silent + self.refused + self.removed + self.peer
    }
}

impl OutageStatus {
    /// What happened, for people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut text = format!("{}: {}", self.link, self.how.in_words());
        if self.moved_packets > 0 {
            text += &format!("; {} over other links", some(self.moved_packets, "packet"));
            text += &match self.stall_ms {
                Some(stall) => format!(", nothing of them confirmed for {}", millis(stall)),
                None => ", nothing of them confirmed yet".to_owned(),
            };
        }
        match self.away_s {
            Some(away) if away < 9.95 => text + &format!("; back after {away:.1} s"),
            Some(away) => text + &format!("; back after {}", age(away)),
            None => text + "; not back",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outages_of_an_older_daemon_have_no_distribution() {
        let older = serde_json::json!({ "silent": 1, "refused": 0, "removed": 0, "peer": 0, "brief": 2,
            "moved_packets": 3, "newest": [] });
        let read: OutagesStatus = serde_json::from_value(older.clone()).expect("outages");
        assert_eq!(read.stalls, None);
        assert_eq!(serde_json::to_value(&read).expect("JSON"), older);
    }

    #[test]
    fn an_outage_is_told_in_a_sentence() {
        let outage = OutageStatus {
            link: "wlan".to_owned(),
            how: OutageCause::Silent,
            ago_s: 12.0,
            moved_packets: 45,
            stall_ms: Some(62.0),
            away_s: Some(1.23),
        };
        let back = "wlan: fell silent; 45 packets over other links, nothing of them confirmed for 62 ms; back after 1.2 s";
        assert_eq!(outage.in_words(), back);
        let gone =
            OutageStatus { moved_packets: 0, stall_ms: None, away_s: None, ..outage.clone() };
        assert_eq!(gone.in_words(), "wlan: fell silent; not back");
        let json = serde_json::to_value(&gone).expect("JSON");
        let expected = serde_json::json!({ "link": "wlan", "how": "silent", "ago_s": 12.0, "moved_packets": 0 });
        assert_eq!(json, expected);
        let waits =
            OutageStatus { how: OutageCause::Peer, stall_ms: None, away_s: Some(40.0), ..outage };
        assert!(waits.in_words().ends_with("nothing of them confirmed yet; back after 40 s"));
    }
}
