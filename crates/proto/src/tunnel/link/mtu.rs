//! The path MTU of a link, and what the peer has to know of it.

use crate::link::mtu::PathMtu;
use crate::time::Instant;

/// The search for the path MTU.
#[derive(Debug)]
pub(in crate::tunnel) struct LinkMtu {
    pub(in crate::tunnel) search: PathMtu,
    /// The path MTU when last looked at.
    known: u16,
    /// Largest outer packet that may be tried.
    most: u16,
}

impl LinkMtu {
    /// A search that begins now, for datagrams with `header_len` bytes of IP and UDP.
    pub(super) fn new(now: Instant, header_len: u16, most: u16) -> Self {
        let search = PathMtu::new(now, header_len, most);
        Self { known: search.mtu(), search, most }
    }

    /// Starts again, for another length of the headers.
    pub(super) fn restart(&mut self, now: Instant, header_len: u16) {
        self.search.reset(now, header_len, self.most);
    }

    /// The path MTU, if it has fallen since it was last asked for.
    pub(super) fn poll_fall(&mut self) -> Option<u16> {
        let mtu = self.search.mtu();
        let fell = mtu < self.known;
        self.known = mtu;
        fell.then_some(mtu)
    }
}
