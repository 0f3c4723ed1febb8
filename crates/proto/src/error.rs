//! Why something that came in was dropped: one reason, one counter.
//!
//! Nothing that is dropped is dropped silently. Every error of a parser or of the cryptography maps
//! to exactly one reason here, and a reason has exactly one consequence: the datagram is counted and
//! forgotten. No reason closes a session, because whoever can send us a bad datagram need not be the
//! peer.

/// Keeps the variants, their names in `status` and their number in one table.
macro_rules! drop_reasons {
    ($($(#[$doc:meta])+ $name:ident = $text:literal,)+) => {
        /// Why a datagram or a packet was dropped. The consequence is always the same: it is counted
        /// under [`as_str`](Self::as_str) and changes nothing else.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])+ $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of the counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// How many reasons there are: the length of a table of counters.
            pub const COUNT: usize = Self::ALL.len();

            /// The name of the counter.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// The place of this reason in a table of [`COUNT`](Self::COUNT) counters.
            #[must_use]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

drop_reasons! {
    /// A handshake datagram that is too short, or of no known type.
    HandshakeMalformed = "handshake_malformed",
    /// A handshake datagram of a type that this end never receives, or not in this state.
    HandshakeUnexpected = "handshake_unexpected",
    /// A first message whose mac1 is wrong: the sender does not know our public key (or it is
    /// garbage). It gets no answer.
    WrongMac = "handshake_wrong_mac",
    /// An answer that is not bound to the question we asked.
    AnswerWrongMac = "handshake_answer_wrong_mac",
    /// A handshake message in a version that this end does not speak.
    OtherVersion = "handshake_other_version",
    /// A handshake message that does not decrypt: altered, or made for or by another key, or with
    /// another preshared key.
    HandshakeNotAuthentic = "handshake_not_authentic",
    /// An authentic handshake message whose content breaks the format.
    HandshakeBadContent = "handshake_bad_content",
    /// An authentic first message in an older version than both ends speak: someone talked the
    /// client down.
    HandshakeDowngrade = "handshake_downgrade",
    /// An authentic first message of a client key that is not in the table of peers.
    UnknownClient = "handshake_unknown_client",
    /// An authentic first message of a client key that is not in the table, with an invitation that the proxy never
    /// gave.
    UnknownInvitation = "handshake_unknown_invitation",
    /// An authentic first message that is not provably fresh; it was answered with a retry.
    FirstMessageStale = "handshake_stale",
    /// An exact copy of a first message seen within the last seconds.
    FirstMessageRepeated = "handshake_repeated",
    /// A handshake message over the limit of its rate.
    HandshakeRateLimited = "handshake_rate_limited",
    /// A first message without a cookie, while the proxy has too many of them; it was answered with one.
    HandshakeNoCookie = "handshake_no_cookie",
    /// A first message with a cookie that does not count (any more), while the proxy has too many of them; it was answered
    /// with another.
    HandshakeWrongCookie = "handshake_wrong_cookie",
    /// A first message with a right cookie, from an address that has asked too often.
    HandshakeAddressLimited = "handshake_address_limited",
    /// Both ends have no data cipher in common.
    NoCommonCipher = "handshake_no_common_cipher",
    /// A transport datagram too short to hold a tag.
    DatagramTooShort = "datagram_too_short",
    /// A transport datagram under a key phase that is not live (any more).
    KeyPhaseUnknown = "key_phase_unknown",
    /// A transport datagram whose number was received before.
    Replayed = "replayed",
    /// A transport datagram older than the replay window.
    OlderThanWindow = "older_than_replay_window",
    /// A transport datagram that is not authentic: altered, reflected, or forged.
    NotAuthentic = "not_authentic",
    /// A transport datagram under a key that has refused more forgeries than its AEAD bears.
    KeyWornOut = "key_worn_out",
    /// A rekey message that breaks the format.
    RekeyMalformed = "rekey_malformed",
    /// A rekey message for an epoch that is past or too far ahead, or a second, different one for
    /// the present epoch.
    RekeyOutOfOrder = "rekey_out_of_order",
    /// A rekey message that does not decrypt, or names another static key than the session's.
    RekeyNotAuthentic = "rekey_not_authentic",
    /// A rekey message over the limit of its rate; the client repeats it.
    RekeyRateLimited = "rekey_rate_limited",
    /// A datagram that could not be sealed: its key has sealed as many as its AEAD bears, and fresh ones
    /// have not come.
    NotSealed = "not_sealed",
    /// A datagram of no known type, or shorter than its headers.
    DatagramMalformed = "datagram_malformed",
    /// A datagram for a session that does not exist (any more).
    UnknownSession = "unknown_session",
    /// An authentic datagram on a link that was never opened.
    UnknownLink = "unknown_link",
    /// A link beyond the most that a tunnel may have.
    TooManyLinks = "too_many_links",
    /// A link opened under an id that was given before.
    LinkIdUsed = "link_id_used",
    /// A frame that breaks the format; the rest of its datagram is lost with it.
    FrameMalformed = "frame_malformed",
    /// A frame that only the other end may send.
    FrameUnexpected = "frame_unexpected",
    /// A report about datagrams that were never sent.
    ReportInvalid = "report_invalid",
    /// A packet whose IP header contradicts its length, or that is neither IPv4 nor IPv6.
    PacketMalformed = "packet_malformed",
    /// A packet marked as one with a partial checksum that is no unfragmented TCP or UDP packet, or came to an end that
    /// completes none.
    PartialChecksum = "partial_checksum",
    /// A packet larger than any link carries; its sender was told if the rules allow it.
    PacketTooBig = "packet_too_big",
    /// Half of a packet that was sent in two parts, without the other half.
    PartAlone = "part_alone",
    /// A packet from an inner address that is not the peer's.
    ForeignSource = "foreign_source",
    /// A packet to another client.
    RefusedDestination = "refused_destination",
    /// A packet for an inner address that no session has.
    UnknownDestination = "unknown_destination",
    /// A packet from the TUN while there is no session.
    NoSession = "no_session",
    /// A packet that was marked on the way although its flow cannot see marks (RFC 6040 §4.2).
    CongestionMarkedNotCapable = "congestion_marked_not_capable",
    /// A packet that found the queue full.
    QueueFull = "queue_full",
    /// A packet that waited too long for a link.
    QueueTimeout = "queue_timeout",
    /// A packet given up because more waited than the schedule needs, for longer than a round trip.
    QueueStanding = "queue_standing",
    /// A packet that found all windows closed, under the policy `drop`.
    NoRoom = "no_room",
}

/// How often each reason applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropCounters([u64; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([0; DropReason::COUNT])
    }
}

impl DropCounters {
    /// One more.
    pub fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// `count` more.
    pub fn add(&mut self, reason: DropReason, count: u64) {
        self.0[reason.index()] += count;
    }

    /// The count of one reason.
    #[must_use]
    pub const fn get(&self, reason: DropReason) -> u64 {
        self.0[reason.index()]
    }

    /// Adds another table to this one.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// All reasons that applied at least once.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL
            .iter()
            .map(|reason| (*reason, self.get(*reason)))
            .filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_its_own_name_and_its_own_counter() {
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for (place, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
        }
    }
}
