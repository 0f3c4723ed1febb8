//! What the far end told to have beyond holes (RFC 2018), as far as it says which segments are lost (RFC 6675).

use arrayvec::ArrayVec;

use crate::tunnel::local_ack::segment::{Range, beyond};

/// A segment is lost, and not only late, when the far end has so many beyond it (RFC 6675 §2, `DupThresh` and `IsLost`).
const PROOF: usize = 3;

/// Ranges whose segments need not be looked at again. An acknowledgement tells three or four, the latest first, most of which
/// the one before it told, too.
const MOST_KNOWN: usize = 8;

/// Which segments are marked is said by themselves; this finds what is to be marked, and what is lost, without a walk through all.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// Every kept segment that begins in one of these is marked. No two touch; the last that was told is the first.
    known: ArrayVec<Range, MOST_KNOWN>,
    /// Where the last marked segments begin, the very last one first.
    last: ArrayVec<u32, PROOF>,
}

impl Marks {
    /// If every segment is marked that begins from this number on up to another: that one.
    pub(super) fn known_to(&self, seq: u32) -> Option<u32> {
        self.known.iter().find(|range| contains(range, seq)).map(|range| range.1)
    }

    /// Every segment that begins in this range is marked.
    pub(super) fn remember(&mut self, range: Range) {
        let mut whole = range;
        self.known.retain(|other| {
            let is_apart = beyond(whole.0, other.1) > 0 || beyond(other.0, whole.1) > 0;
            if !is_apart {
                whole.0 = if beyond(whole.0, other.0) > 0 { other.0 } else { whole.0 };
                whole.1 = if beyond(other.1, whole.1) > 0 { other.1 } else { whole.1 };
            }
            is_apart
        });
        if self.known.is_full() {
            self.known.pop();
        }
        self.known.insert(0, whole);
    }

    /// A segment that begins here is kept, and not marked.
    pub(super) fn note_kept(&mut self, seq: u32) {
        self.known.retain(|range| !contains(range, seq));
    }

    /// A segment that begins here was marked.
    pub(super) fn note_marked(&mut self, seq: u32) {
        let at = self.last.iter().position(|other| beyond(seq, *other) > 0);
        let at = at.unwrap_or(self.last.len());
        if at == PROOF {
            return;
        }
        if self.last.is_full() {
            self.last.pop();
        }
        self.last.insert(at, seq);
    }

    /// The far end has all below `confirmed`.
    pub(super) fn confirm(&mut self, confirmed: u32) {
        self.known.retain(|range| beyond(range.1, confirmed) > 0);
        self.last.retain(|seq| beyond(*seq, confirmed) >= 0);
    }

    /// Whether no segment is marked.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// What is not marked and begins below this number is lost.
    pub(super) fn lost_below(&self) -> Option<u32> {
        self.last.get(PROOF - 1).copied()
    }
}

fn contains(range: &Range, seq: u32) -> bool {
    beyond(seq, range.0) >= 0 && beyond(range.1, seq) > 0
}
