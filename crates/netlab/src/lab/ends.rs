//! The machines that can stand at an end of the lab: a bare tunnel, a client, a proxy.

use ropewalk_proto::client::Client;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::Endpoint;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::Tunnel;

use super::End;

/// They have the same calls.
macro_rules! end {
    ($machine:ty) => {
        impl End for $machine {
            fn handle_packet(
                &mut self,
                now: Instant,
                packet: &mut [u8],
                sink: &mut impl PacketSink,
            ) {
                Self::handle_packet(self, now, packet, sink);
            }
            fn handle_datagram(
                &mut self,
                now: Instant,
                path: Path,
                ecn: Ecn,
                datagram: &mut [u8],
                sink: &mut impl PacketSink,
            ) {
                Self::handle_datagram(self, now, path, ecn, datagram, sink);
            }
            fn end_of_batch(&mut self, now: Instant) {
                Self::end_of_batch(self, now);
            }
            fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
                Self::handle_timeout(self, now, sink);
            }
            fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
                Self::poll_transmit(self, now, out);
            }
            fn poll_timeout(&self) -> Option<Instant> {
                Self::poll_timeout(self).map(|(at, _)| at)
            }
        }
    };
}

end!(Tunnel);
end!(Client);
end!(Endpoint);
