//! How many segments may be kept: of one tunnel, and of all tunnels of an endpoint together.
//!
//! A tunnel may keep a part of what is free, as flows may of a switch's buffer (dynamic thresholds, Choudhury and Hahne, IEEE/ACM
//! Transactions on Networking 6(2), 1998): some is always left for one that has nothing yet, however many keep what they can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Segments of all tunnels of an endpoint. Each has a buffer for a full one, however short it is: with what belongs to it at most
/// 2 KiB, so that all take 256 MiB.
const MOST_OF_ALL: usize = 128 * 1024;

/// A tunnel may have one part in so many of what the others leave: alone 16,384, 100 ms at 1.9 Gbit/s; each of a
/// hundred that keep what they can 1,225.
const PARTS: usize = 8;

/// Room is taken and given back in so many segments, so that the workers' tunnels rarely write to what they share.
const STEP: usize = 32;

/// What is kept by all tunnels of an endpoint. A clone counts the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptByAll(Arc<AtomicUsize>);

/// The room that a tunnel has taken of it; given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    all: KeptByAll,
    taken: usize,
}

impl Room {
    pub(super) const fn of(all: KeptByAll) -> Self {
        Self { all, taken: 0 }
    }

    /// Most segments that the tunnel may keep now.
    #[inline]
    pub(super) fn most(&self) -> usize {
        let others = self.all.0.load(Ordering::Relaxed).saturating_sub(self.taken);
        MOST_OF_ALL.saturating_sub(others) / PARTS
    }

    /// The tunnel keeps so many.
    #[inline]
    pub(super) fn set(&mut self, kept: usize) {
        if kept > self.taken || kept + 2 * STEP <= self.taken || kept == 0 {
            self.take(kept.next_multiple_of(STEP));
        }
    }

    fn take(&mut self, now: usize) {
        if now > self.taken {
            self.all.0.fetch_add(now - self.taken, Ordering::Relaxed);
        } else {
            self.all.0.fetch_sub(self.taken - now, Ordering::Relaxed);
        }
        self.taken = now;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.take(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of so many tunnels keeps all that it may.
    fn fill(rooms: &mut [Room]) {
        let mut kept = vec![0; rooms.len()];
        for _ in 0..MOST_OF_ALL {
            for (room, kept) in rooms.iter_mut().zip(&mut kept) {
                if *kept < room.most() {
                    *kept += 1;
                    room.set(*kept);
                }
            }
        }
    }

    #[test]
    fn however_many_tunnels_keep_what_they_can_all_are_bounded_and_a_new_one_has_room() {
        for (tunnels, each) in [(1, 16_384), (10, 7710), (100, 1224), (1000, 130)] {
            let all = KeptByAll::default();
            let mut rooms: Vec<_> = (0..tunnels).map(|_| Room::of(all.clone())).collect();
            fill(&mut rooms);
            let taken = all.0.load(Ordering::Relaxed);
            assert!(taken <= MOST_OF_ALL, "{tunnels} tunnels: {taken}");
            for room in &rooms {
                assert!(room.taken.abs_diff(each) <= each / 4, "{tunnels} tunnels: {room:?}");
            }
            assert!(Room::of(all.clone()).most() >= each / 2, "{tunnels} tunnels: {taken} taken");
            drop(rooms);
            assert_eq!(all.0.load(Ordering::Relaxed), 0, "{tunnels} tunnels");
        }
    }

    #[test]
    fn a_tunnel_that_keeps_nothing_takes_nothing() {
        let mut room = Room::default();
        room.set(1);
        assert_eq!(room.all.0.load(Ordering::Relaxed), STEP);
        room.set(0);
        assert_eq!(room.all.0.load(Ordering::Relaxed), 0);
    }
}
