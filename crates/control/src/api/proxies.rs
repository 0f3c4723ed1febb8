//! The proxies that a client knows.

use std::net::SocketAddr;

use ropewalk_settings::PublicKey;
use serde::{Deserialize, Serialize};

/// All of them, and why the present one is in use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxiesReport {
    /// Which may be used: `auto`, or the ID, region or address of some.
    pub choose: String,
    /// Why the one in use was chosen, for people.
    pub why: String,
    /// How long it has been in use.
    pub since_s: f64,
    /// How often another was chosen since the client began.
    pub moves: u64,
    /// Those of the config first.
    pub proxies: Vec<KnownProxy>,
}

/// A proxy that a client knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownProxy {
    /// Its name in the fleet, where one was told.
    pub id: Option<String>,
    /// Where it stands, where that was told.
    pub region: Option<String>,
    /// Where it is reached.
    pub addresses: Vec<SocketAddr>,
    /// Its public key.
    pub public_key: PublicKey,
    /// `serving` or `draining`.
    pub state: String,
    /// How much of what it can carry it carries.
    pub load_percent: u8,
    /// The round trip; nothing where it did not answer lately.
    pub rtt_ms: Option<f64>,
    /// The round trip, and what its load and state count for: the lowest is chosen.
    pub distance_ms: Option<f64>,
    /// How long ago it answered.
    pub answered_s: Option<f64>,
    /// Whether it is in use.
    pub in_use: bool,
    /// So many flows that began there stay there, while another is in use.
    pub staying_flows: Option<usize>,
    /// Whether it may be used by what `choose` says.
    pub wanted: bool,
    /// It gave no session, and is not tried again for so long.
    pub not_tried_for_s: Option<f64>,
}
