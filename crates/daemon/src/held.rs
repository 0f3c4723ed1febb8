//! Packets that the core gave while no TUN was at hand; delivered before anything newer.

use std::borrow::Cow;

use ropewalk_proto::packet::Packet;
use ropewalk_proto::sink::PacketSink;

/// The packets.
#[derive(Debug, Default)]
pub struct Held(Vec<Vec<u8>>);

impl Held {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Delivers them.
    pub fn release(&mut self, sink: &mut impl PacketSink) {
        for packet in self.0.drain(..) {
            sink.deliver(Packet::whole(&packet));
        }
    }
}

impl PacketSink for Held {
    /// Bounded by what the resequencer may hold: it is asked once for each link that goes.
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.extend(packet.completed().map(Cow::into_owned));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_packets_are_delivered_once_and_in_order() {
        struct Seen(Vec<u8>);
        impl PacketSink for Seen {
            fn deliver(&mut self, packet: Packet<'_>) {
                self.0.extend_from_slice(packet.bytes);
            }
        }
        let (mut held, mut seen) = (Held::default(), Seen(Vec::new()));
        held.deliver(Packet::whole(&[1]));
        held.deliver(Packet::whole(&[2]));
        held.release(&mut seen);
        assert!(held.is_empty());
        held.release(&mut seen);
        assert_eq!(seen.0, [1, 2]);
    }
}
