//! Taking back a reduction of the window that turned out to be needless: because the echo of our clock
//! tells that the first transmission came (Eifel, RFC 3522), or because every repetition was told to have
//! come twice (RFC 3708).

use super::recovery::Partly;
use super::{Sender, State};

impl Sender {
    /// From here on what is sent again may turn out to be needless.
    pub(super) fn begin_undo(&mut self) {
        self.undo_from = Some(self.una);
        let under_way =
            self.board.again() + u32::from(self.probe_end.is_some() && self.probe_again);
        self.undo_left = (under_way > 0).then_some(under_way);
    }

    /// All is acknowledged that the state was about.
    pub(super) fn undo_at_end(&mut self) {
        if self.is_needless() {
            self.undo(false);
        } else {
            self.rack.recovered(false);
        }
        self.state = State::Open;
    }

    /// Every repetition was told to have been needless.
    pub(super) fn undo_by_duplicates(&mut self) -> bool {
        let is_needless = self.undo_from.is_some() && self.undo_left == Some(0);
        if is_needless {
            self.rack.recovered(true);
            self.undo(false);
        }
        is_needless
    }

    /// After a timeout; `proven`: by F-RTO.
    pub(super) fn undo_timeout(&mut self, proven: bool) -> bool {
        let is_needless = proven || self.is_needless();
        if is_needless {
            self.undo(true);
            self.timeouts_in_a_row = 0;
            self.state = State::Open;
        }
        is_needless
    }

    /// Part of what is being repaired is acknowledged.
    pub(super) fn undo_partly(&mut self, before: u64) -> Partly {
        if self.undo_from.is_none() || !self.first_came() {
            return Partly::GoOn;
        }
        self.note_reordering(before);
        if self.board.again() > 0 {
            return Partly::Wait;
        }
        self.forget_repairs();
        self.undo(true);
        self.keep_open();
        Partly::GoOn
    }

    fn is_needless(&self) -> bool {
        self.undo_from.is_some() && (self.undo_left == Some(0) || self.first_came())
    }

    /// Nothing was sent again, or the peer saw our clock as it was before that.
    fn first_came(&self) -> bool {
        self.repair_began.is_none_or(|began| self.echo < began)
    }

    /// Something unacknowledged was sent again.
    pub(super) fn was_repaired(&self) -> bool {
        self.board.again() > 0 || self.board.head().is_some_and(|head| head.ever_again)
    }

    /// Forgets when repetitions began, once none is unacknowledged.
    pub(super) fn forget_repairs(&mut self) {
        if !self.was_repaired() {
            self.repair_began = None;
        }
    }

    fn undo(&mut self, nothing_is_lost: bool) {
        self.stats.undone += 1;
        if nothing_is_lost {
            self.board.find_all();
        }
        if let Some(threshold) = self.prior_ssthresh {
            self.cwnd = self.cwnd.max(self.prior_cwnd);
            self.ssthresh = self.ssthresh.max(threshold);
        }
        self.undo_from = None;
        self.rack.advanced = true;
    }
}
