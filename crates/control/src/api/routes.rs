//! What goes through a client's tunnel, and what around it.

use ropewalk_settings::{Selector, Side};
use serde::{Deserialize, Serialize};

/// Entries that are to be added to one of the two lists of a client, or taken out of it, until it ends or reads its config
/// again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutesChange {
    /// `inside` for `routes`, `outside` for `exclude`.
    pub side: Side,
    /// Those that are to be there. One that is there already stays.
    #[serde(default)]
    pub add: Vec<Selector>,
    /// Those that are not to be there any more.
    #[serde(default)]
    pub remove: Vec<Selector>,
}

/// Both lists, and what became of the entries that are no prefixes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoutesReport {
    /// What goes through the tunnel.
    pub routes: Vec<Selector>,
    /// What of that goes around it.
    pub exclude: Vec<Selector>,
    /// Each entry that is no prefix; those of `exclude` first, which count first.
    pub rules: Vec<RuleStatus>,
}

/// An entry of `routes` or `exclude` that is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// The entry.
    pub rule: Selector,
    /// Where what it chooses goes.
    pub side: Side,
    /// Packets that were sent by it since the client began, on connections that began while it was in force.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Of a unit, an application or a control group: the paths of those that run now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<String>,
    /// Of a domain: how many addresses are known now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<usize>,
    /// Why it chooses nothing at present, or less than is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
