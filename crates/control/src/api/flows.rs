//! Which flow is on which link, and what is known of each link.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::FlowTableStatus;

/// Which flow is on which link, for what this end sends: the tables of `safire` (seed 002).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowsReport {
    /// The other end, as in [`TunnelStatus::peer`](super::TunnelStatus::peer).
    pub peer: String,
    /// The scheduler in force.
    pub scheduler: String,
    /// The path table, by link id; empty where another scheduler than `safire` decides, or there is no session.
    pub paths: Vec<PathStatus>,
    /// The most active flows, at most as many as were asked for.
    pub flows: Vec<FlowStatus>,
    /// Active flows that are not in this answer.
    pub left_out: u64,
    /// How full the flow table is; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<FlowTableStatus>,
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
