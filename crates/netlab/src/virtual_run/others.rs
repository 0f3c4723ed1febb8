//! What others send on the links ([`Conditions::background`](crate::netem::Conditions::background)), as the client's
//! driver counts it on its interfaces: as if each link ended there, unless the scenario says that they are unseen.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use crate::pair::TunnelLab;
use crate::scenario::Link;

/// How often is counted.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was counted so far.
pub(super) struct Others {
    counted: Option<Instant>,
    links: Vec<Counted>,
}

/// On one link.
#[derive(Default)]
struct Counted {
    unseen: bool,
    /// Down and up.
    bytes: [u64; 2],
}

impl Others {
    /// Nothing was counted on these links.
    pub(super) fn on(links: &[Link]) -> Self {
        let counted = |link: &Link| Counted { unseen: link.others_unseen, bytes: [0; 2] };
        Self { counted: None, links: links.iter().map(counted).collect() }
    }

    /// Counts, if it is time.
    pub(super) fn count(&mut self, lab: &mut TunnelLab) {
        let since = lab.now.since(*self.counted.get_or_insert(lab.now));
        if since < INTERVAL {
            return;
        }
        self.counted = Some(lab.now);
        let links = lab.client.stats().links;
        let seen = lab.links.iter().zip(links).zip(&mut self.links);
        for ((line, link), counted) in seen.filter(|(_, counted)| !counted.unseen) {
            let bytes = [&line.down, &line.up].map(|way| way.counters().background_bytes);
            if bytes != [0; 2] {
                lab.client.tell_others(link.id, bytes[0] - counted.bytes[0], since);
                lab.client.on_others(link.id, bytes[1] - counted.bytes[1], since);
            }
            counted.bytes = bytes;
        }
    }
}
