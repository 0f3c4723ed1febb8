//! Who lets strangers in (PROTOCOL §6.9).
//!
//! The core knows no invitations: it asks the proxy's owner, whose book outlives the process, and acts on what he
//! says. He is asked at most a few dozen times a second, and only by those who know the proxy's public key.
//!
//! His book is on a disk, which may take seconds, and packets do not wait for it: he may say that he decides later
//! ([`Claim::Later`]). The first message waits here meanwhile, unanswered.

use super::PeerConfig;
use crate::crypto::handshake::PendingFirst;
use crate::path::Path;
use crate::wire::hello::answer::Refusal;
use ropewalk_settings::{InvitationToken, PublicKey};

/// The owner's book of invitations.
pub trait InvitationAuthority {
    /// A client that is not in the table shows a token. If it may come in, then its key is bound and the token is
    /// void for good before this says so, whatever happens to the process afterwards. Where several parts share the
    /// clients ([`Share`](super::Share)), only part 0 asks; the owner has told the other parts what concerns
    /// clients that they serve, by the way on which first messages are handed to them, before this says so.
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim;
}

/// What becomes of a claim.
#[derive(Debug)]
pub enum Claim {
    /// No such invitation was ever given: silence, as to every stranger.
    Unknown,
    /// The token was right once. Who shows it had it from the owner, and is told why it counts no more.
    Refused(Refusal),
    /// The client is one of the peers from now on.
    Bound {
        /// What the owner says of it.
        config: Box<PeerConfig>,
        /// The key that it had before: that is out.
        instead_of: Option<PublicKey>,
    },
    /// The owner decides later, and says so by [`Endpoint::settle_claim`](super::Endpoint::settle_claim).
    Later,
}

/// Nobody is invited.
#[derive(Clone, Copy, Debug)]
pub struct NoInvitations;

impl InvitationAuthority for NoInvitations {
    fn claim(&mut self, _: &PublicKey, _: &InvitationToken) -> Claim {
        Claim::Unknown
    }
}

/// First messages that wait for the owner; a kilobyte each. Beyond that the client asks again.
const MAX_WAITING: usize = 128;

/// First messages that wait for the owner's word: the newest of each client, with where it came from.
#[derive(Default)]
pub(super) struct Waiting(Vec<(Path, Box<PendingFirst>)>);

impl Waiting {
    /// `false`: too many wait.
    pub(super) fn put(&mut self, path: Path, first: PendingFirst) -> bool {
        self.0.retain(|(_, older)| older.client != first.client);
        let fits = self.0.len() < MAX_WAITING;
        if fits {
            self.0.push((path, Box::new(first)));
        }
        fits
    }

    /// What waits of this client.
    pub(super) fn take(&mut self, client: &PublicKey) -> Option<(Path, PendingFirst)> {
        let place = self.0.iter().position(|(_, first)| first.client == *client)?;
        let (path, first) = self.0.swap_remove(place);
        Some((path, *first))
    }
}
