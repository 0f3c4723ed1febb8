//! What is kept on disk until `/etc/resolv.conf` is as it was, and what it says of what stands there now.

use serde::{Deserialize, Serialize};

use super::HEADER;
use super::place::Place;

/// Texts of ours that are kept in the record.
pub(super) const MAX_WRITTEN: usize = 4;

/// What is kept on disk until the file is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What is put back.
    pub(super) before: Place,
    /// What this client wrote, or was about to, oldest first: what stands there among them, whatever failed since.
    pub(super) written: Vec<String>,
    /// Whether the file could not be replaced as a whole.
    pub(super) in_place: bool,
    /// Whether it was read by root from where a less trusted user could have written it.
    #[serde(skip)]
    pub(super) others: bool,
}

impl Record {
    /// The same before `text` is written over what stands there now.
    pub(super) fn with(self, now: &Place, text: &str) -> Self {
        let standing = match now {
            Place::File { content } if content != text && !self.before.is_same(now) => {
                Some(content)
            }
            _ => None,
        };
        let mut written = self.written;
        written.retain(|old| old != text && Some(old) != standing);
        // A power cut may bring back one that was written over, but hardly one from long ago.
        let surplus = written.len().saturating_sub(MAX_WRITTEN - 2);
        written.drain(..surplus);
        written.extend(standing.cloned());
        written.push(text.to_owned());
        Self { written, ..self }
    }

    /// Whether what stands there now is a whole text of this client's, or what was before.
    pub(super) fn is_whole(&self, now: &Place) -> bool {
        self.written.iter().any(|text| now.is(text)) || self.before.is_same(now)
    }

    /// Whether this client wrote what stands there now.
    pub(super) fn is_ours(&self, now: &Place) -> bool {
        let Place::File { content } = now else { return false };
        // Only by us is it begun so, whatever the record says; a cut may have left less.
        if self.others && !content.starts_with(HEADER) && !HEADER.starts_with(content.as_str()) {
            return false;
        }
        let before = match &self.before {
            Place::File { content } => Some(content),
            Place::Absent | Place::Symlink { .. } => None,
        };
        self.written.contains(content)
            || self.in_place
                && self.written.iter().chain(before).any(|whole| whole.starts_with(content))
    }
}
