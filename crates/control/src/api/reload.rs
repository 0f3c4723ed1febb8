//! What comes of reading the config again.

use serde::{Deserialize, Serialize};

/// What a running daemon made of its config file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadReport {
    /// The file.
    pub file: String,
    /// Each key whose value is another than the running daemon's, in the order of the sample file.
    pub changes: Vec<KeyChange>,
}

/// One key of the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// Its name, such as `tunnel.scheduler` or `link.wlan0.priority`.
    pub key: String,
    /// What the daemon ran with; of a secret only that it is another.
    pub before: String,
    /// What stands in the file.
    pub after: String,
    /// Whether that is in force now. If not, the daemon runs on with what was before, until it is restarted.
    pub applied: bool,
}

impl ReloadReport {
    /// Notes a key if its values differ. `applies`: whether it can be changed while the daemon runs.
    pub fn compare(&mut self, key: &str, [before, after]: [String; 2], applies: bool) {
        if before != after {
            self.changes.push(KeyChange { key: key.to_owned(), before, after, applied: applies });
        }
    }

    /// The same of a secret: only whether it differs is told, and a restart is needed.
    pub fn compare_secret<T: PartialEq>(&mut self, key: &str, before: &T, after: &T) {
        if before != after {
            let told = |text: &str| text.to_owned();
            let (before, after) = (told("(the one in use)"), told("(another one)"));
            self.changes.push(KeyChange { key: key.to_owned(), before, after, applied: false });
        }
    }

    /// The keys that wait for a restart.
    pub fn waiting(&self) -> impl Iterator<Item = &KeyChange> {
        self.changes.iter().filter(|change| !change.applied)
    }
}
