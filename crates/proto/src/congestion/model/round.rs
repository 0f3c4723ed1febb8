//! Round trips, counted by what is confirmed.

/// A round ends when what was sent at its beginning is confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    /// How many there were.
    pub(super) number: u64,
    end: u64,
    /// Whether the report that is being applied began this one.
    pub(super) begins: bool,
    /// What was lost and confirmed in it, and in the one before.
    pub(super) present: Tally,
    pub(super) before: Tally,
}

/// Places of the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) lost: f64,
    pub(super) confirmed: f64,
}

impl Tally {
    /// Lost or confirmed.
    pub(super) fn settled(self) -> f64 {
        self.lost + self.confirmed
    }
}

impl Round {
    /// So many places were confirmed, up to the number `largest`; `next` will be sent next.
    pub(super) fn on_confirmed(&mut self, places: f64, largest: u64, next: u64) {
        self.present.confirmed += places;
        self.begins = largest >= self.end;
        if self.begins {
            self.number += 1;
            self.end = next;
            self.before = std::mem::take(&mut self.present);
        }
    }

    /// What was lost and confirmed so far says nothing of what comes.
    pub(super) fn forget(&mut self) {
        (self.present, self.before) = (Tally::default(), Tally::default());
    }

    /// The round lasts until what is sent from now on is confirmed.
    pub(super) fn restart(&mut self, next: u64) {
        self.end = next;
    }
}
