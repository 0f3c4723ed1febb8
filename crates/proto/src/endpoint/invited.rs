//! Clients that are not in the table and show an invitation: what the owner's word makes of their first messages.
//!
//! The client's home sends the message to the part that asks the owner ([`OWNERS_PART`](super::admission::OWNERS_PART)), and that part
//! back to the home, where the client is in the table by then ([`Share`](super::Share)).

use super::Endpoint;
use super::admission::Verdict;
use super::invitation_authority::{Claim, InvitationAuthority};
use super::peers::PeerConfig;
use super::share::Question;
use crate::crypto::handshake::PendingFirst;
use crate::error::DropReason;
use crate::path::Path;
use crate::time::Instant;
use crate::wire::hello::answer::Refusal;
use ropewalk_settings::{InvitationToken, PublicKey};

impl Endpoint {
    /// The owner has decided, later than he was asked: see [`Claim::Later`]. What waits of this client is answered. One that he
    /// lets in is in the table of its home before, by [`set_peers`](Self::set_peers): maybe none of its messages waits any more.
    pub fn settle_claim(&mut self, now: Instant, client: &PublicKey, claim: Claim) {
        let Some((path, first)) = self.waiting.take(client) else { return };
        if self.closed {
            return self.drops.count(DropReason::HandshakeUnexpected);
        }
        let verdict = self.judge_invited(now, path, first, claim);
        self.carry_out(now, path, verdict);
    }

    /// The home of a client that is not in its table asks for the owner's word.
    pub(super) fn handle_claim(
        &mut self,
        now: Instant,
        path: Path,
        first: PendingFirst,
        authority: &mut impl InvitationAuthority,
    ) -> Verdict {
        match first.hello.parameters.invitation.clone() {
            Some(token) => self.handle_invited(now, path, first, &token, authority),
            None => Verdict::Silence(DropReason::UnknownClient),
        }
    }

    /// A client that is not in the table shows an invitation.
    pub(super) fn handle_invited(
        &mut self,
        now: Instant,
        path: Path,
        first: PendingFirst,
        token: &InvitationToken,
        authority: &mut impl InvitationAuthority,
    ) -> Verdict {
        if self.closed {
            return Verdict::Silence(DropReason::HandshakeUnexpected);
        }
        let claim = authority.claim(&first.client, token);
        self.judge_invited(now, path, first, claim)
    }

    /// What the owner's word means for a client that is not in the table. If he lets it in, it is in the table before anything
    /// is answered.
    fn judge_invited(
        &mut self,
        now: Instant,
        path: Path,
        first: PendingFirst,
        claim: Claim,
    ) -> Verdict {
        let (client, digest) = (first.client, first.digest());
        let verdict = match claim {
            Claim::Unknown => Verdict::Silence(DropReason::UnknownInvitation),
            Claim::Refused(refusal) => self.admission.refuse_invited(first, refusal),
            Claim::Bound { config, instead_of } => {
                if let Some(old) = instead_of {
                    self.remove_peer(now, old);
                }
                if self.share.is_home(&client) {
                    self.let_in(now, first, *config)
                } else {
                    let question = Question::LetIn(Box::new(first));
                    Verdict::Elsewhere(self.share.home(&client), question)
                }
            }
            Claim::Later => {
                if self.waiting.put(path, first) {
                    Verdict::Waits
                } else {
                    Verdict::Silence(DropReason::HandshakeRateLimited)
                }
            }
        };
        self.admission.remember(now, digest, &verdict);
        verdict
    }

    fn let_in(&mut self, now: Instant, first: PendingFirst, config: PeerConfig) -> Verdict {
        match self.set_peer(now, first.client, config) {
            Ok(()) => {
                let (admission, mut behind) = self.judges();
                admission.decide(now, first, &mut behind)
            }
            // Its address is another's: the owner's book contradicts the table.
            Err(_) => self.admission.refuse_invited(first, Refusal::NoAddress),
        }
    }
}
