//! Several endpoints that share the proxy's clients: one for each core.
//!
//! A client's public key names its *home*, one of the parts. All that is known of a client stands there and
//! nowhere else: its freshness record, the answers to its first messages, its sessions, its counts. So nothing
//! about a client is ever agreed on between parts: a newer session finds the older one beside it, and a
//! recorded first message finds the record of the one it was copied from, whichever part it is shown to.
//!
//! ```text
//!   steering field                 PROTOCOL §2: at one place in every datagram; the kernel takes it modulo the parts
//!     a session's datagram         the index that its home drew: leads home
//!     a first message              the index that the client drew: leads to *some* part, the same for all copies
//!                                  over all links. That part decrypts it, learns the key, and hands it home.
//!     what claims an invitation    the home of an unknown key hands it to part 0, whose owner has the book
//! ```
//!
//! The part that decrypts does the two Diffie-Hellman operations that a stranger can cause; the home does those
//! of the answer. Copies follow by their digest alone. A first message that the kernel leads to another part
//! than the one before it is decrypted once more, and is still answered by its home as before.

use std::collections::VecDeque;
use std::fmt;

use crate::crypto::handshake::PendingFirst;
use crate::path::Path;
use crate::units::SessionIndex;
use crate::wire::hello::MAC_LEN;
use ropewalk_settings::PublicKey;

/// Which part of the clients an endpoint serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    part: u16,
    parts: u16,
}

impl Share {
    /// All clients.
    pub const WHOLE: Self = Self { part: 0, parts: 1 };

    /// Most parts: with more, a part would have too few of the 2^24 indices to find a free one quickly.
    pub const MAX_PARTS: u16 = 64;

    /// The part with this number, from 0, of so many; `None` if there is no such part.
    #[must_use]
    pub const fn new(part: u16, parts: u16) -> Option<Self> {
        if part < parts && parts <= Self::MAX_PARTS { Some(Self { part, parts }) } else { None }
    }

    /// Its number.
    #[must_use]
    pub const fn part(self) -> u16 {
        self.part
    }

    /// How many there are.
    #[must_use]
    pub const fn parts(self) -> u16 {
        self.parts
    }

    /// The part that serves a client. Keys are points of a curve, so their low bits are as good as drawn; who
    /// makes keys until they fall on one part gains nothing, for only the owner's clients count.
    #[must_use]
    pub fn home(self, client: &PublicKey) -> u16 {
        let [a, b, c, d, e, f, g, h, ..] = *client.as_bytes();
        let home = u64::from_le_bytes([a, b, c, d, e, f, g, h]) % u64::from(self.parts);
        u16::try_from(home).unwrap_or(0)
    }

    /// Whether this part serves it.
    #[must_use]
    pub fn is_home(self, client: &PublicKey) -> bool {
        self.home(client) == self.part
    }

    /// An index that the kernel leads to this part, made of a number that was drawn.
    #[must_use]
    pub const fn index(self, drawn: u32) -> SessionIndex {
        let (part, parts) = (self.part as u32, self.parts as u32);
        let drawn = drawn & SessionIndex::MAX;
        let index = drawn - drawn % parts + part;
        SessionIndex::new(if index > SessionIndex::MAX { index - parts } else { index })
    }

    /// The part that the kernel leads datagrams with this index to.
    #[must_use]
    pub const fn part_of(self, index: SessionIndex) -> u16 {
        // Less than `parts`, so that it fits.
        (index.get() % self.parts as u32) as u16
    }
}

/// A first message on its way to another part.
pub struct Handed {
    /// The part.
    pub to: u16,
    /// Where it came from, and where the answer goes: by the socket that stands in the same place there.
    pub(super) path: Path,
    pub(super) question: Question,
}

impl Handed {
    /// What names the message, if this is the message and not a copy of it: for
    /// [`Endpoint::note_lost`](super::Endpoint::note_lost).
    #[must_use]
    pub fn digest(&self) -> Option<[u8; MAC_LEN]> {
        matches!(self.question, Question::First(_)).then(|| self.question.digest())
    }
}

/// What is handed over.
pub(super) enum Question {
    /// To the home: it was decrypted here.
    First(Box<PendingFirst>),
    /// To part 0: the client is not in its home's table, and claims an invitation.
    Claim(Box<PendingFirst>),
    /// To the home: the owner has let the client in.
    LetIn(Box<PendingFirst>),
    /// After the message itself: a copy of it came.
    Copy([u8; MAC_LEN]),
}

impl Question {
    /// What tells the message from every other.
    pub(super) fn digest(&self) -> [u8; MAC_LEN] {
        match self {
            Self::First(first) | Self::Claim(first) | Self::LetIn(first) => first.digest(),
            Self::Copy(digest) => *digest,
        }
    }
}

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed")
            .field("to", &self.to)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// First messages that wait to be handed over; more are dropped. A batch of datagrams in makes at most as many,
/// and they are polled before the next one is read.
const MAX_WAITING: usize = 256;

/// What waits to be handed over.
#[derive(Default)]
pub(super) struct Outgoing(VecDeque<Handed>);

impl Outgoing {
    /// `false`: there are too many; the client asks again.
    pub(super) fn push(&mut self, handed: Handed) -> bool {
        let fits = self.0.len() < MAX_WAITING;
        if fits {
            self.0.push_back(handed);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<Handed> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_no_parts_beyond_the_last() {
        let most = Share::MAX_PARTS;
        for (part, parts, there) in [
            (0, 0, false),
            (0, 1, true),
            (1, 1, false),
            (most - 1, most, true),
            (0, most + 1, false),
        ] {
            assert_eq!(Share::new(part, parts).is_some(), there, "{part} of {parts}");
        }
        assert_eq!(Share::new(0, 1), Some(Share::WHOLE));
    }

    #[test]
    fn a_first_message_may_go_to_another_thread() {
        fn may_go<T: Send>() {}
        may_go::<Handed>();
    }

    proptest! {
        #[test]
        fn an_index_leads_to_the_part_that_drew_it(parts in 1..=Share::MAX_PARTS, part: u16, drawn: u32) {
            let share = Share::new(part % parts, parts).unwrap();
            let index = share.index(drawn);
            prop_assert_eq!(share.part_of(index), share.part());
            prop_assert!(index.get().abs_diff(drawn & SessionIndex::MAX) < u32::from(parts));
        }

        #[test]
        fn one_part_draws_every_index(drawn: u32) {
            prop_assert_eq!(Share::WHOLE.index(drawn), SessionIndex::new(drawn));
        }

        #[test]
        fn a_client_has_one_home(key: [u8; 32], parts in 1..=Share::MAX_PARTS) {
            let key = PublicKey::from_bytes(key);
            let shares = (0..parts).filter_map(|part| Share::new(part, parts));
            prop_assert_eq!(shares.filter(|share| share.is_home(&key)).count(), 1);
        }
    }
}
