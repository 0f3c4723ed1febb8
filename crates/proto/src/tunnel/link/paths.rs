//! Where the datagrams of a link go: the client's choices of remote address, and the proof of the one in use.

use arrayvec::ArrayVec;

use super::validation::Validation;
use crate::config::MAX_PATHS;
use crate::path::Path;

/// The path in use, and the others that there are.
#[derive(Clone, Debug)]
pub(in crate::tunnel) struct Paths {
    /// The client's choices of remote address; empty on the proxy.
    choices: ArrayVec<Path, MAX_PATHS>,
    next: usize,
    pub(in crate::tunnel) validation: Validation,
}

impl Paths {
    /// The path in use, and the client's choices.
    pub(super) const fn new(validation: Validation, choices: ArrayVec<Path, MAX_PATHS>) -> Self {
        Self { choices, next: 0, validation }
    }

    /// The path in use.
    pub(in crate::tunnel) const fn current(&self) -> Path {
        self.validation.path()
    }

    /// Whether the peer opened the link: the proxy's view.
    pub(super) fn is_accepted(&self) -> bool {
        self.choices.is_empty()
    }

    /// The choice whose turn it is.
    pub(super) fn take_turn(&mut self) -> Option<Path> {
        let path = self.choices.get(self.next % self.choices.len().max(1)).copied()?;
        self.next = self.next.wrapping_add(1);
        Some(path)
    }

    /// Whether `path` is a choice of the client, and another than the one in use.
    pub(super) fn is_other_choice(&self, path: Path) -> bool {
        self.choices.contains(&path) && self.current() != path
    }
}
