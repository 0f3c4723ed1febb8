//! The main paper's scheduler (Evensen et al. 2011, Algorithm 1): among the links whose congestion window is
//! open, the one with the most free space in it. Ties go to the first link.

use super::{LinkView, PacketMeta, Pick, Scheduler};
use crate::time::Instant;

/// Algorithm 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeWindow;

impl Scheduler for FreeWindow {
    fn pick(&mut self, _now: Instant, _packet: &PacketMeta, links: &[LinkView]) -> Pick {
        let mut best = Pick::Blocked;
        let mut most = 0;
        for (index, link) in links.iter().enumerate() {
            if link.room > most {
                most = link.room;
                best = Pick::Send(index);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::views;
    use super::*;

    #[test]
    fn the_most_free_window_wins_and_ties_go_to_the_first_link() {
        let table: [(&[u32], Pick); 6] = [
            (&[3, 2], Pick::Send(0)),
            (&[2, 3], Pick::Send(1)),
            (&[3, 3], Pick::Send(0)),
            (&[0, 1, 1], Pick::Send(1)),
            (&[0, 0, 1], Pick::Send(2)),
            (&[0, 0], Pick::Blocked),
        ];
        for (rooms, expected) in table {
            let pick = FreeWindow.pick(Instant::ZERO, &PacketMeta::of_len(1400), &views(rooms));
            assert_eq!(pick, expected, "{rooms:?}");
        }
    }
}
