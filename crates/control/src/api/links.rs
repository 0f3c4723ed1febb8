//! Changing one link of a running client.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is to be another of one link from now on, until the client ends or reads its config again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The link, as the status names it.
    pub name: String,
    /// Keys of `[[link]]` with their values as text: `enabled`, `priority`, `max_up`, `max_down`, `keepalive`, `metered`.
    pub values: BTreeMap<String, String>,
}

/// What holds for a link then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSettings {
    /// The link.
    pub name: String,
    /// The same keys with the values in force.
    pub values: BTreeMap<String, String>,
}
