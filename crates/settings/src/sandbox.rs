//! Whether a daemon gives up, at its start, what it does not need of the machine.

use serde::Deserialize;

/// `sandbox` in the config files: on, unless somebody looks for a fault in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Sandbox(pub bool);

impl Default for Sandbox {
    fn default() -> Self {
        Self(true)
    }
}
