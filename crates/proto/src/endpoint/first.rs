//! What is done about a first message, once it is judged: it is answered, goes to another part, or begins a session.

use super::Endpoint;
use super::admission::{Admission, Behind, OWNERS_PART, Verdict};
use super::invitation_authority::InvitationAuthority;
use super::share::{Handed, Question};
use crate::error::DropReason;
use crate::path::Path;
use crate::time::Instant;

impl Endpoint {
    /// Another part handed over a first message, or a copy of one.
    pub fn handle_handed(
        &mut self,
        now: Instant,
        handed: Handed,
        authority: &mut impl InvitationAuthority,
    ) {
        let Handed { path, question, .. } = handed;
        // Whoever is known is told. A copy may be one of a message that began a session, which is over.
        if self.closed && !matches!(question, Question::First(_) | Question::LetIn(_)) {
            return self.drops.count(DropReason::HandshakeUnexpected);
        }
        let digest = question.digest();
        let (admission, mut behind) = self.judges();
        let verdict = match (question, admission.recall(now, digest)) {
            (Question::Claim(first), _) => self.handle_claim(now, path, *first, authority),
            (Question::LetIn(first), _) => {
                let verdict = admission.decide(now, *first, &mut behind);
                admission.remember(now, digest, &verdict);
                verdict
            }
            (_, Some(known @ (Verdict::Answer(..) | Verdict::Silence(_)))) => known,
            (Question::First(first), None) => admission.admit(now, *first, &mut behind),
            // A claim is under way: the copy follows it.
            (Question::Copy(_), Some(known)) if self.share.part() != OWNERS_PART => known,
            // It is decided elsewhere, and the client asks again.
            (Question::First(_) | Question::Copy(_), _) => {
                Verdict::Silence(DropReason::FirstMessageRepeated)
            }
        };
        self.conclude(now, path, verdict, authority);
    }

    /// Who judges first messages, and what stands behind him.
    pub(super) fn judges(&mut self) -> (&mut Admission, Behind<'_>) {
        let Self { admission, peers, sessions, rng, .. } = self;
        (admission, Behind { peers, sessions, rng })
    }

    /// A datagram of a handshake type came.
    pub(super) fn handle_first(
        &mut self,
        now: Instant,
        path: Path,
        datagram: &[u8],
        authority: &mut impl InvitationAuthority,
    ) {
        let (admission, mut behind) = self.judges();
        let verdict = admission.handle_first(now, path.remote, datagram, &mut behind);
        if let Verdict::Answer(answer, _) | Verdict::Admitted(answer, _) = &verdict {
            debug_assert!(answer.len() <= datagram.len(), "never longer than the question");
        }
        self.conclude(now, path, verdict, authority);
    }

    /// Does what was decided about a first message that came from there.
    fn conclude(
        &mut self,
        now: Instant,
        path: Path,
        verdict: Verdict,
        authority: &mut impl InvitationAuthority,
    ) {
        let verdict = match verdict {
            Verdict::Invited(first, token) => {
                self.handle_invited(now, path, *first, &token, authority)
            }
            verdict => verdict,
        };
        self.carry_out(now, path, verdict);
    }

    /// Does what was decided, the owner included.
    pub(super) fn carry_out(&mut self, now: Instant, path: Path, verdict: Verdict) {
        let (answer, reason, admitted) = match verdict {
            Verdict::Silence(reason) => return self.drops.count(reason),
            Verdict::Elsewhere(to, question) => {
                let handed = Handed { to, path, question };
                let digest = handed.digest();
                if !self.handed.push(handed) {
                    self.drops.count(DropReason::HandshakeRateLimited);
                    digest.iter().for_each(|digest| self.note_lost(now, digest));
                }
                return;
            }
            Verdict::Invited(..) | Verdict::Waits => return,
            Verdict::Cookie(answer, reason) => {
                self.drops.count(reason);
                if !self.replies.push_cookie(path, answer) {
                    self.drops.count(DropReason::HandshakeRateLimited);
                }
                return;
            }
            Verdict::Answer(answer, reason) => (answer, reason, None),
            Verdict::Admitted(answer, admitted) => (answer, None, Some(admitted)),
        };
        if let Some(reason) = reason {
            self.drops.count(reason);
        }
        if !self.replies.push(path, answer) {
            self.drops.count(DropReason::HandshakeRateLimited);
        }
        if let Some(admitted) = admitted {
            self.start_session(now, *admitted);
        }
    }
}
