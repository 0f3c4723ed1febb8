//! What the sender of a packet is told that fits no link (RFC 1191, RFC 8201).

use std::net::IpAddr;

use crate::crypto::limit::TokenBucket;
use crate::packet::{Packet, PacketView, icmp};
use crate::sink::PacketSink;
use crate::time::Instant;

/// ICMP answers a second at most (RFC 1812 §4.3.2.8): enough for every flow to learn its MTU.
const ANSWERS_PER_SECOND: u32 = 100;

/// ICMP answers to packets that are too big.
#[derive(Debug)]
pub(super) struct TooBig {
    /// The proxy's inner addresses: whom an answer comes from.
    gateways: Vec<IpAddr>,
    /// Answers that may be sent now.
    answers: TokenBucket,
}

impl TooBig {
    /// Answers come from the `gateways`, of the family of the packet.
    pub(super) fn new(now: Instant, gateways: Vec<IpAddr>) -> Self {
        Self { gateways, answers: TokenBucket::new(now, ANSWERS_PER_SECOND, ANSWERS_PER_SECOND) }
    }

    /// Tells the sender how much fits, if the rules and the rate allow it.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        packet: &PacketView<'_>,
        limit: u16,
        sink: &mut impl PacketSink,
    ) {
        let same_family = |from: &&IpAddr| from.is_ipv4() == packet.source().is_ipv4();
        let from = self.gateways.iter().find(same_family);
        let answer = from.and_then(|from| icmp::too_big(packet, limit, *from));
        if let Some(answer) = answer.filter(|_| self.answers.take(now)) {
            sink.deliver(Packet::whole(&answer));
        }
    }
}
