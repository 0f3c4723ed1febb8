//! How far something came that is said again until it is confirmed.

use crate::units::LinkId;

/// What is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It is to be said.
    Due,
    /// It was said in the datagram with this local number on this link.
    UnderWay(LinkId, u64),
    /// The peer has it.
    Confirmed,
}

impl Progress {
    /// What was said on a link of which `is_there` says no is said again.
    pub(crate) fn forget(&mut self, is_there: impl Fn(LinkId) -> bool) {
        if matches!(self, Self::UnderWay(link, _) if !is_there(*link)) {
            *self = Self::Due;
        }
    }

    /// The fate of a datagram is known: what was lost is said again.
    pub(crate) fn on_fate(&mut self, link: LinkId, number: u64, arrived: bool) {
        if *self == Self::UnderWay(link, number) {
            *self = if arrived { Self::Confirmed } else { Self::Due };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_or_said_on_a_link_that_is_gone_is_said_again() {
        let said = Progress::UnderWay(LinkId(1), 7);
        for (link, number, arrived, expected) in [
            (1, 7, true, Progress::Confirmed),
            (1, 7, false, Progress::Due),
            (1, 8, true, said),
            (2, 7, false, said),
        ] {
            let mut progress = said;
            progress.on_fate(LinkId(link), number, arrived);
            assert_eq!(progress, expected, "{link} {number} {arrived}");
        }
        for (progress, link, expected) in [
            (said, 1, said),
            (said, 2, Progress::Due),
            (Progress::Confirmed, 2, Progress::Confirmed),
        ] {
            let mut after = progress;
            after.forget(|there| there == LinkId(link));
            assert_eq!(after, expected, "{progress:?}");
        }
    }
}
