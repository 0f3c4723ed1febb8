//! What a datagram tells of the order in which packets were sent.

use crate::units::LinkId;

/// What an authenticated datagram tells the resequencer. Every datagram of every link must be offered,
/// with data or without, in the order of arrival: each is evidence.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The link it came on.
    pub link: LinkId,
    /// Its number on that link, expanded to 64 bits.
    pub local: u64,
    /// When the peer sent it, in µs by the peer's clock, unwrapped; any epoch, the same for all links.
    pub sent_us: i64,
    /// With data: the packet's number. Without: the sender's next one. Expanded to 64 bits.
    pub global: u64,
    /// Whether it carries a packet.
    pub kind: EvidenceKind,
}

/// Whether a datagram carries a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceKind {
    /// It does.
    Data {
        /// The global number of the packet before it on the same link; `None`: there was none, or it
        /// is too far back for the wire, or it was sent as copies.
        prev_on_link: Option<u64>,
    },
    /// It does, and the packet has to wait for no other than the one before it of its flow.
    FlowData {
        /// The global number of that one; `None`: there was none, or it is too far back for the wire.
        prev_of_flow: Option<u64>,
    },
    /// It does not; everything below its `global` was sealed before it.
    Mark,
}
