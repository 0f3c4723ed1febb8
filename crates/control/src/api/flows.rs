//! Which links carry each flow, for what it waits, and what flow routing knows of each link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::FlowTableStatus;
use crate::words::{millis, some};

/// Which links carry the flows that this end sends: the tables of `safire` (Mark and Zhang 2007), or with any
/// other scheduler what each flow did lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsReport {
    /// The other end, as in [`TunnelStatus::peer`](super::TunnelStatus::peer).
    pub peer: String,
    /// The scheduler in force.
    pub scheduler: String,
    /// The path table, by link id; empty where another scheduler than `safire` decides, or there is no session.
    pub paths: Vec<PathStatus>,
    /// `safire`: the most active flows, at most as many as were asked for.
    pub flows: Vec<FlowStatus>,
    /// Flows that are not in this answer.
    pub left_out: u64,
    /// How full the flow table is; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<FlowTableStatus>,
    /// With any other scheduler: the busiest flows lately, at most as many as were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<RecentFlowStatus>,
    /// Over how long their bytes were counted: since somebody asked before, if that was not long ago. Absent with `safire`
    /// and where there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recent_over_s: Option<f64>,
    /// Bytes of flows that were not counted in that time because too many were.
    #[serde(default)]
    pub uncounted_bytes: u64,
}

/// What a flow did lately, and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentFlowStatus {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Protocol number; absent for fragments, which have a flow by addresses alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Bits per second of its packets, those too that were sent again.
    pub rate_bps: f64,
    /// The links that carried it, the one that carried most first.
    pub links: Vec<FlowPart>,
    /// Bytes that left and are not confirmed; zero where nothing is sent again.
    pub under_way_bytes: u64,
    /// Bytes that wait at this end.
    pub waiting_bytes: u64,
    /// Packets of it that were lost and have to be sent again.
    pub to_repair: u64,
    /// What it waits for.
    pub waits_for: FlowWait,
    /// The same, for people.
    pub why: String,
}

/// What one link carried of a flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowPart {
    /// The link.
    pub link: String,
    /// Bytes of packets.
    pub bytes: u64,
    /// Its share of the flow, 0 to 1.
    pub share: f64,
}

/// What a flow waits for at the end that sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum FlowWait {
    /// Nothing: what comes of it goes at once.
    Nothing,
    /// Its sender.
    Sender,
    /// Its receiver, which takes no more at present.
    Receiver,
    /// The repair of lost packets.
    Repair,
    /// Its turn.
    Turn {
        /// Flows that take turns.
        flows: u64,
    },
    /// A link where it arrives first, although that has no room at the moment.
    Link {
        /// The link.
        link: String,
        /// By how much later it would arrive on the soonest link that has room; absent where none has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        later_ms: Option<f64>,
    },
    /// A link that it has to take.
    Bound {
        /// The link.
        link: String,
    },
    /// Room on any link.
    Room,
    /// A link that carries packets.
    Links,
}

impl FlowWait {
    /// For people; so many packets of it have to be sent again.
    #[must_use]
    pub fn in_words(&self, to_repair: u64) -> String {
        match self {
            Self::Nothing => "nothing: what comes goes at once".to_owned(),
            Self::Sender => "its sender: no more of it has come".to_owned(),
            Self::Receiver => "its receiver: the window is full".to_owned(),
            Self::Repair => {
                format!("a repair: {} lost, to be sent again", some(to_repair, "packet"))
            }
            Self::Turn { flows } => format!("its turn: {} share the links", some(*flows, "flow")),
            Self::Link { link, later_ms: Some(later) } => {
                format!("{link}: it arrives there first, elsewhere {} later", millis(*later))
            }
            Self::Link { link, later_ms: None } => {
                format!("{link}: it arrives there first, and no link has room")
            }
            Self::Bound { link } => format!("{link}: it is to go there"),
            Self::Room => "room: no link has any".to_owned(),
            Self::Links => "a link: none carries packets".to_owned(),
        }
    }
}

/// A row of the path table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathStatus {
    /// The link.
    pub link: String,
    /// The client's interface; absent on a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Active flows on it, N.
    pub flows: u32,
    /// What it carries at most: as told, else as measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bps: Option<f64>,
    /// Smoothed round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Share of recent datagrams lost, 0 to 1.
    pub loss_recent: f64,
    /// What one TCP flow can expect of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha_bps: Option<f64>,
}

/// A row of the flow table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// Hash of what names the flow, 16 hexadecimal digits.
    pub hash: String,
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Protocol number; absent for fragments, which have a flow by addresses alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<u8>,
    /// Where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Where the protocol has ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Name of its link.
    pub link: String,
    /// Activity counter, 1 to 64: 8 at the first packet, one more for each, halved every second.
    pub activity: u8,
    /// Whether it counts among its link's active flows: not after FIN or RST.
    pub counted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_flow_waits_for_is_said_in_a_sentence_of_its_own() {
        let link = || "wlan".to_owned();
        let table = [
            (FlowWait::Nothing, r#"{"what":"nothing"}"#, "goes at once"),
            (FlowWait::Sender, r#"{"what":"sender"}"#, "no more of it has come"),
            (FlowWait::Receiver, r#"{"what":"receiver"}"#, "the window is full"),
            (FlowWait::Repair, r#"{"what":"repair"}"#, "3 packets lost, to be sent again"),
            (FlowWait::Turn { flows: 2 }, r#"{"what":"turn","flows":2}"#, "2 flows share"),
            (
                FlowWait::Link { link: link(), later_ms: Some(45.2) },
                r#"{"what":"link","link":"wlan","later_ms":45.2}"#,
                "wlan: it arrives there first, elsewhere 45 ms later",
            ),
            (
                FlowWait::Link { link: link(), later_ms: None },
                r#"{"what":"link","link":"wlan"}"#,
                "no link has room",
            ),
            (FlowWait::Bound { link: link() }, r#"{"what":"bound","link":"wlan"}"#, "to go there"),
            (FlowWait::Room, r#"{"what":"room"}"#, "no link has any"),
            (FlowWait::Links, r#"{"what":"links"}"#, "none carries packets"),
        ];
        for (wait, json, words) in table {
            assert_eq!(serde_json::to_string(&wait).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<FlowWait>(json).expect("read again"), wait);
            assert!(wait.in_words(3).contains(words), "{wait:?}: {}", wait.in_words(3));
        }
    }

    #[test]
    fn a_document_of_an_older_daemon_is_still_read() {
        let older = r#"{"peer":"van","scheduler":"arrival","paths":[],"flows":[],"left_out":0}"#;
        let report: FlowsReport = serde_json::from_str(older).expect("it is complete");
        assert_eq!((report.recent.len(), report.recent_over_s), (0, None));
    }
}
