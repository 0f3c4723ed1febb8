//! Who lets strangers in (PROTOCOL §6.9).
//!
//! The core knows no invitations: it asks the proxy's owner, whose book outlives the process, and acts on what he
//! says. He is asked at most a few dozen times a second, and only by those who know the proxy's public key.

use super::PeerConfig;
use crate::crypto::secret::{InvitationToken, PublicKey};
use crate::wire::hello::answer::Refusal;

/// The owner's book of invitations.
pub trait Authority {
    /// A client that is not in the table shows a token. If it may come in, then its key is bound and the token is
    /// void for good before this returns, whatever happens to the process afterwards. Where several parts share the
    /// clients ([`Share`](super::Share)), only part 0 asks; the owner has told the other parts what concerns
    /// clients that they serve, by the way on which first messages are handed to them, before this returns.
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
}

/// Nobody is invited.
#[derive(Clone, Copy, Debug)]
pub struct NoInvitations;

impl Authority for NoInvitations {
    fn claim(&mut self, _: &PublicKey, _: &InvitationToken) -> Claim {
        Claim::Unknown
    }
}
