//! The baseline of the seeds (Linux TEQL): each link in turn, one packet each. A link without room
//! passes its turn to the next.

use super::{LinkView, PacketMeta, Pick, Scheduler};
use crate::time::Instant;
use crate::units::LinkId;

/// Equal round-robin.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin {
    last: Option<LinkId>,
}

impl Scheduler for RoundRobin {
    fn pick(&mut self, _now: Instant, _packet: &PacketMeta, links: &[LinkView]) -> Pick {
        let after = |link: &LinkView| self.last.is_some_and(|last| link.id > last);
        let start = links.iter().position(after).unwrap_or(0);
        let turn = (start..links.len()).chain(0..start).find(|index| links[*index].room > 0);
        turn.map_or(Pick::Blocked, Pick::Send)
    }

    fn on_sent(&mut self, _now: Instant, _packet: &PacketMeta, link: LinkId) {
        self.last = Some(link);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{send, views};
    use super::*;

    fn turns(rooms: &[u32], count: usize) -> Vec<Pick> {
        let mut scheduler = RoundRobin::default();
        let links = views(rooms);
        (0..count).map(|_| send(&mut scheduler, &links)).collect()
    }

    #[test]
    fn links_take_turns() {
        let expected = [0, 1, 2, 0].map(Pick::Send);
        assert_eq!(turns(&[9, 9, 9], 4), expected);
    }

    #[test]
    fn a_closed_link_passes_its_turn() {
        assert_eq!(turns(&[9, 0, 9], 4), [0, 2, 0, 2].map(Pick::Send));
    }

    #[test]
    fn the_turn_survives_a_link_that_goes() {
        let mut scheduler = RoundRobin::default();
        let all = views(&[9, 9, 9]);
        assert_eq!(send(&mut scheduler, &all), Pick::Send(0));
        assert_eq!(send(&mut scheduler, &all), Pick::Send(1));
        let without_second = [all[0], all[2]];
        assert_eq!(send(&mut scheduler, &without_second), Pick::Send(1));
        assert_eq!(send(&mut scheduler, &without_second), Pick::Send(0));
    }
}
