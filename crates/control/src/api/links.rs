//! Changing one link of a running client.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What is to be another of one link from now on, until the client ends or reads its config again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The link, as the status names it.
    pub name: String,
    /// Keys of `[[link]]` with their values as text, such as `use`, `max_down` or `allowance.stop`; `off` for what is not
    /// to be said any more.
    pub values: BTreeMap<String, String>,
}

/// What holds for a link then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSettings {
    /// The link.
    pub name: String,
    /// Its interface.
    #[serde(default)]
    pub interface: String,
    /// The config file of the client, in which it can be made to last.
    #[serde(default)]
    pub file: PathBuf,
    /// The same keys with the values in force.
    pub values: BTreeMap<String, String>,
}
