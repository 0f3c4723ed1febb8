//! How much is sent while somebody else keeps the queue full: as much as CUBIC (RFC 9438) would.

/// RFC 9438 §4.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Places that confirm one more, until something is lost: as conservative slow start (RFC 9406 §4.2) has it.
const REGAIN: f64 = 4.0;
/// No smaller: with fewer in flight nothing could be overtaken.
const LEAST: f64 = 4.0;

/// A CUBIC window, in places.
#[derive(Clone, Debug)]
pub(super) struct Rival {
    pub(super) window: f64,
    largest: f64,
    reno: f64,
    epoch: f64,
    /// Nothing was lost yet: what was given way with is regained.
    regains: bool,
    /// Losses of lower numbers were answered.
    reacted: u64,
    /// Since when it is believed.
    pub(super) since: f64,
}

impl Rival {
    /// Begins with a window of so many places; `next` will be sent next.
    pub(super) fn new(t: f64, window: f64, next: u64) -> Self {
        let (largest, reno) = (window, window);
        Self { window, largest, reno, epoch: t, reacted: next, since: t, regains: true }
    }

    /// Something was lost, at most this number; `next` will be sent next.
    pub(super) fn on_loss(&mut self, t: f64, largest: u64, next: u64) {
        if largest < self.reacted {
            return;
        }
        self.regains = false;
        let shrank = self.window < self.largest;
        self.largest = if shrank { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (self.window * BETA).max(LEAST);
        self.reno = self.window;
        self.epoch = t;
        self.reacted = next;
    }

    /// So many places were confirmed.
    pub(super) fn on_confirmed(&mut self, t: f64, srtt: f64, places: f64, largest: u64) {
        if largest < self.reacted {
            return;
        }
        if self.regains {
            self.window += places / REGAIN;
            (self.largest, self.reno, self.epoch) = (self.window, self.window, t);
            return;
        }
        let k = (self.largest * (1.0 - BETA) / C).cbrt();
        let target = C * (t + srtt - self.epoch - k).powi(3) + self.largest;
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) * places / self.window;
        if target > self.window {
            self.window += ((target - self.window) / self.window).min(0.5) * places;
        }
        self.window = self.window.max(self.reno);
    }

    /// Nothing was lost yet: what was given way with is being regained.
    pub(super) fn regains(&self) -> bool {
        self.regains
    }

    /// So many places less.
    pub(super) fn give_way(&mut self, t: f64, places: f64, largest: u64) {
        if largest >= self.reacted {
            self.window = (self.window - places).max(LEAST);
        }
        self.hold(t);
    }

    /// Growth begins again from this window.
    pub(super) fn hold(&mut self, t: f64) {
        (self.largest, self.reno, self.epoch) = (self.window, self.window, t);
    }

    /// So many places more, once something was lost: before that the window grows faster.
    pub(super) fn push(&mut self, places: f64, largest: u64) {
        if largest >= self.reacted && !self.regains {
            self.window += places;
            self.largest = self.largest.max(self.window);
        }
    }

    /// Time in which less was sent on purpose does not count.
    pub(super) fn pause(&mut self, length: f64) {
        self.epoch += length;
    }
}
