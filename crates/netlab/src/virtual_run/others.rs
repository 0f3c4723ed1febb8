//! What others send on the links ([`Conditions::background`](crate::netem::Conditions::background)), as the client's
//! driver counts it on its interfaces: as if each link ended there.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use crate::pair::TunnelLab;

/// How often is counted.
const INTERVAL: Duration = Duration::from_millis(250);

/// What was counted so far.
#[derive(Default)]
pub(super) struct Others {
    counted: Option<Instant>,
    /// Bytes of each link, down and up.
    bytes: Vec<[u64; 2]>,
}

impl Others {
    /// Counts, if it is time.
    pub(super) fn count(&mut self, lab: &mut TunnelLab) {
        let since = lab.now.since(*self.counted.get_or_insert(lab.now));
        if since < INTERVAL {
            return;
        }
        self.counted = Some(lab.now);
        let links = lab.client.stats().links;
        self.bytes.resize(lab.links.len(), [0; 2]);
        for ((line, link), before) in lab.links.iter().zip(links).zip(&mut self.bytes) {
            let bytes = [&line.down, &line.up].map(|way| way.counters().background_bytes);
            if bytes != [0; 2] {
                lab.client.tell_others(link.id, bytes[0] - before[0], since);
                lab.client.on_others(link.id, bytes[1] - before[1], since);
            }
            *before = bytes;
        }
    }
}
