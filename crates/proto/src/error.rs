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
    /// An authentic first message that is not provably fresh; it was answered with a retry.
    FirstMessageStale = "handshake_stale",
    /// An exact copy of a first message seen within the last seconds.
    FirstMessageRepeated = "handshake_repeated",
    /// A handshake message over the limit of its rate.
    HandshakeRateLimited = "handshake_rate_limited",
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
