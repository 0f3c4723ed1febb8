//! Proof that the peer receives where its datagrams seem to come from (PROTOCOL §5.3).
//!
//! A path moves only on a newer datagram, and only after a challenge sent to the new address came back
//! from there. Until then the old path stays in use, and the new address gets at most three times the
//! bytes that came from it, so that nobody can aim a tunnel at a stranger. A fresh link has no old path: all
//! that is said on it before its proof counts, not only challenges.
//!
//! Whoever copies datagrams, sends them sooner from his own address and hands on what comes there, looks
//! like a NAT that changed: each true datagram comes second. What tells them apart is the old path. A NAT
//! that changed lets nothing through there any more; with an observer in between the peer still receives.
//! So the old path is asked too (RFC 9000 §9.3.3), and if it answers, from wherever the answer comes, it stays:
//!
//! ```text
//! newer datagram from elsewhere ─▶ ask both ─┬─ new answers, old does not within as long again ─▶ move
//!                                            └─ old answers: no move, and no trial for HOLD
//! moved ─▶ the old path is asked on, some tries; it answers after all ─▶ back
//! ```

use crate::path::Path;
use crate::time::{Duration, Instant, earliest};
use crate::wire::header::OVERHEAD;

/// A `PathChallenge` alone: header and tag, and 9 bytes of frame.
pub(in crate::tunnel) const CHALLENGE_LEN: usize = OVERHEAD + 9;
/// Bytes sent to an unproven address for each byte that came from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// Time between challenges: about a round trip of a bad mobile link.
const RETRY: Duration = Duration::from_millis(250);
/// Challenges to one address; then it is forgotten until another datagram comes from there.
const MAX_TRIES: u32 = 8;

/// Challenges to the path before: one may be lost, and three in a row are an answer.
const FORMER_TRIES: u32 = 3;
/// The answer of the path before is waited for as long as that of the new one took, within these bounds:
/// the one comes over the same links as the other, or a little later where somebody raced it.
const DECIDE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// No other address is tried for so long after the path before has answered: an observer who goes on
/// costs little, and a NAT that changes just then is followed within a second.
const HOLD: Duration = Duration::from_millis(500);

/// Bytes from and to an address that has proven nothing.
#[derive(Clone, Copy, Debug)]
struct Allowance {
    received: u64,
    sent: u64,
}

impl Allowance {
    const fn of(received: usize) -> Self {
        Self { received: received as u64, sent: 0 }
    }

    const fn allows(&self, bytes: usize) -> bool {
        self.sent + bytes as u64 <= self.received * AMPLIFICATION
    }
}

/// An address on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    path: Path,
    token: [u8; 8],
    allowance: Allowance,
    tries: u32,
    next: Instant,
    asked: Option<Instant>,
    /// It answered: the path moves then, unless the one before answers too.
    decide: Option<Instant>,
}

/// The path before the trial, which is asked whether the peer still receives there.
#[derive(Clone, Copy, Debug)]
struct Former {
    path: Path,
    token: [u8; 8],
    tries: u32,
    next: Instant,
}

/// The path in use and the one on trial.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct Validation {
    path: Path,
    /// What may be sent to the path in use, while it is not proven.
    unproven: Option<Allowance>,
    trial: Option<Trial>,
    former: Option<Former>,
    /// No trial begins before.
    hold: Option<Instant>,
}

impl Validation {
    /// A path that this end chose itself.
    pub(in crate::tunnel) const fn trusted(path: Path) -> Self {
        Self { path, unproven: None, trial: None, former: None, hold: None }
    }

    /// A path from which the first datagram of a link came, `bytes` long.
    pub(in crate::tunnel) fn learned(
        now: Instant,
        path: Path,
        bytes: usize,
        token: [u8; 8],
    ) -> Self {
        let unproven = Some(Allowance::of(bytes));
        let mut validation = Self { unproven, ..Self::trusted(path) };
        validation.start(now, path, bytes, token);
        validation
    }

    /// Where datagrams go.
    pub(in crate::tunnel) const fn path(&self) -> Path {
        self.path
    }

    /// Whether the peer is known to receive there.
    pub(in crate::tunnel) const fn is_proven(&self) -> bool {
        self.unproven.is_none()
    }

    /// Whether a datagram of `bytes` may go to the path in use.
    pub(in crate::tunnel) fn allows(&self, bytes: usize) -> bool {
        self.unproven.is_none_or(|allowance| allowance.allows(bytes))
    }

    /// A datagram of `bytes` left for `path`.
    pub(in crate::tunnel) fn on_sent(&mut self, path: &Path, bytes: usize) {
        if let Some(allowance) = self.allowance(path) {
            allowance.sent += bytes as u64;
        }
    }

    /// What may be sent to `path`, if it has proven nothing.
    fn allowance(&mut self, path: &Path) -> Option<&mut Allowance> {
        if self.is_settled() {
            return None;
        }
        if self.path == *path {
            return self.unproven.as_mut();
        }
        let trial = self.trial.as_mut().filter(|trial| trial.path == *path);
        trial.map(|trial| &mut trial.allowance)
    }

    /// Whether some address is asked, or may be before long.
    pub(in crate::tunnel) const fn is_asking(&self) -> bool {
        self.trial.is_some() || self.former.is_some()
    }

    /// Uses `path`, chosen by this end.
    pub(in crate::tunnel) fn choose(&mut self, path: Path) {
        *self = Self::trusted(path);
    }

    /// Whether the path in use is proven and no other is on trial.
    const fn is_settled(&self) -> bool {
        self.unproven.is_none() && self.trial.is_none()
    }

    /// An authentic datagram of `bytes` came from `path`. `newest`: it has the highest number of the
    /// link. `token` is drawn only if a trial starts.
    #[inline]
    pub(in crate::tunnel) fn on_received(
        &mut self,
        now: Instant,
        path: Path,
        bytes: usize,
        newest: bool,
        token: impl FnMut() -> [u8; 8],
    ) {
        // Nearly every datagram.
        if path != self.path || !self.is_settled() {
            self.on_news(now, path, bytes, newest, token);
        }
    }

    /// The same, where something is to be learned from it.
    fn on_news(
        &mut self,
        now: Instant,
        path: Path,
        bytes: usize,
        newest: bool,
        mut token: impl FnMut() -> [u8; 8],
    ) {
        if let Some(allowance) = self.allowance(&path) {
            allowance.received += bytes as u64;
        }
        match &mut self.trial {
            Some(trial) if trial.path == path => {
                // It is still there: worth asking again, or a path that lost all tries stays unproven.
                if newest && trial.tries >= MAX_TRIES && now >= trial.next {
                    trial.tries = 0;
                }
            }
            _ if !newest => {}
            // The old path speaks again with a newer number: whoever raced it has lost.
            _ if path == self.path && self.unproven.is_none() => self.trial = None,
            _ if self.hold.is_some_and(|until| now < until) => {}
            _ => {
                if self.unproven.is_none() {
                    let former = Former { path: self.path, token: token(), tries: 0, next: now };
                    self.former = Some(former);
                }
                self.start(now, path, bytes, token());
            }
        }
    }

    fn start(&mut self, now: Instant, path: Path, bytes: usize, token: [u8; 8]) {
        let allowance = Allowance::of(bytes);
        let (asked, decide) = (None, None);
        self.trial = Some(Trial { path, token, allowance, tries: 0, next: now, asked, decide });
    }

    /// A challenge that is due, to be sent at once; call until `None`.
    pub(in crate::tunnel) fn poll_challenge(&mut self, now: Instant) -> Option<(Path, [u8; 8])> {
        let allowed = self.may_challenge();
        let trial = self.trial.as_mut().filter(|_| allowed);
        trial.and_then(|trial| trial.poll_challenge(now)).or_else(|| {
            let former = self.former.as_mut().filter(|former| now >= former.next)?;
            let asked = (former.path, former.token);
            former.tries += 1;
            former.next = now + RETRY;
            if former.tries > FORMER_TRIES {
                self.former = None;
                return None;
            }
            Some(asked)
        })
    }

    /// When the next challenge or decision is due.
    pub(in crate::tunnel) fn poll_timeout(&self) -> Option<Instant> {
        let allowed = self.may_challenge();
        let trial = self.trial.as_ref().and_then(|trial| trial.poll_timeout(allowed));
        earliest(trial, self.former.map(|former| former.next))
    }

    /// Whether the address on trial may be sent a challenge.
    fn may_challenge(&self) -> bool {
        let Some(trial) = &self.trial else { return false };
        match &self.unproven {
            Some(allowance) if trial.path == self.path => allowance.allows(CHALLENGE_LEN),
            _ => trial.allowance.allows(CHALLENGE_LEN),
        }
    }

    /// Moves to an address that has answered, if the path before has not in its time. Returns whether it
    /// moved.
    pub(in crate::tunnel) fn handle_timeout(&mut self, now: Instant) -> bool {
        let due = |trial: &mut Trial| trial.decide.is_some_and(|decide| now >= decide);
        match self.trial.take_if(due) {
            Some(trial) => self.settle(trial.path),
            None => false,
        }
    }

    /// A response came from `path`. `Some(moved)` if it decides the trial; `moved` says whether the path is
    /// another than before.
    pub(in crate::tunnel) fn on_response(
        &mut self,
        now: Instant,
        path: Path,
        token: [u8; 8],
    ) -> Option<bool> {
        // Whoever relays it: the token was sent to the path before, and only the peer can answer.
        if let Some(former) = self.former.take_if(|former| former.token == token) {
            (self.trial, self.hold) = (None, Some(now + HOLD));
            return Some(self.settle(former.path));
        }
        let trial = self.trial.as_mut()?;
        if trial.path != path || trial.token != token {
            return None;
        }
        if self.unproven.is_none() && self.former.is_some() {
            let took = now.since(trial.asked.unwrap_or(now));
            trial.decide = trial.decide.or(Some(now + took.clamp(DECIDE.0, DECIDE.1)));
            return None;
        }
        self.trial = None;
        Some(self.settle(path))
    }

    fn settle(&mut self, path: Path) -> bool {
        let moved = self.path != path;
        (self.path, self.unproven) = (path, None);
        moved
    }
}

impl Trial {
    fn poll_challenge(&mut self, now: Instant) -> Option<(Path, [u8; 8])> {
        let asks = self.decide.is_none() && self.tries < MAX_TRIES;
        if now < self.next || !asks {
            return None;
        }
        self.tries += 1;
        self.next = now + RETRY;
        self.asked = Some(now);
        Some((self.path, self.token))
    }

    fn poll_timeout(&self, allowed: bool) -> Option<Instant> {
        let asks = (allowed && self.tries < MAX_TRIES).then_some(self.next);
        self.decide.or(asks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SocketId;

    const TOKEN: [u8; 8] = *b"whereami";

    impl Validation {
        /// Asks, and sends the challenge.
        fn challenge(&mut self, now: Instant) -> Option<(Path, [u8; 8])> {
            let asked = self.poll_challenge(now)?;
            self.on_sent(&asked.0, CHALLENGE_LEN);
            Some(asked)
        }
    }

    fn path(port: u16) -> Path {
        Path { socket: SocketId(0), local: None, remote: ([192, 0, 2, 1], port).into() }
    }

    /// First one for the path before, then [`TOKEN`] for the new one.
    fn tokens() -> impl FnMut() -> [u8; 8] {
        let mut tokens = [*b"tokenold", TOKEN].into_iter().cycle();
        move || tokens.next().unwrap()
    }

    #[test]
    fn a_link_that_moved_is_followed_after_one_proof() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, true, tokens());
        assert_eq!(validation.path(), path(1));
        assert_eq!(validation.challenge(Instant::ZERO), Some((path(2), TOKEN)));
        assert_eq!(validation.challenge(Instant::ZERO).map(|(path, _)| path), Some(path(1)));
        assert_eq!(validation.challenge(Instant::ZERO), None);
        let answered = Instant::from_millis(40);
        assert_eq!(validation.on_response(answered, path(2), TOKEN), None);
        assert!(!validation.handle_timeout(Instant::from_millis(79)));
        assert_eq!(validation.path(), path(1), "the old path may answer as late as the new one");
        assert!(validation.handle_timeout(Instant::from_millis(80)));
        assert_eq!(validation.path(), path(2));
    }

    /// A trial of path 9 by a racing observer; the tokens for the new path and for the old one.
    fn raced() -> (Validation, [u8; 8], [u8; 8]) {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(9), 100, true, tokens());
        let asked: Vec<_> = std::iter::from_fn(|| validation.challenge(Instant::ZERO)).collect();
        let [(new, new_token), (old, old_token)] = asked[..] else { panic!("{asked:?}") };
        assert_eq!((new, old), (path(9), path(1)));
        (validation, new_token, old_token)
    }

    #[test]
    fn an_observer_who_relays_the_challenge_moves_nothing_while_the_old_path_lives() {
        let (mut validation, new, old) = raced();
        assert_eq!(validation.on_response(Instant::from_millis(20), path(9), new), None);
        // The observer was sooner with this answer, too.
        assert_eq!(validation.on_response(Instant::from_millis(35), path(9), old), Some(false));
        assert!(!validation.handle_timeout(Instant::from_millis(100)));
        validation.on_received(Instant::from_millis(100), path(9), 100, true, || TOKEN);
        assert_eq!(validation.challenge(Instant::from_millis(100)), None, "held");
        let later = Instant::from_millis(600);
        validation.on_received(later, path(9), 100, true, || TOKEN);
        assert!(validation.challenge(later).is_some(), "not for ever");
        assert_eq!(validation.path(), path(1));
    }

    #[test]
    fn a_move_is_taken_back_when_the_old_path_answers_after_all() {
        let (mut validation, new, old) = raced();
        assert_eq!(validation.on_response(Instant::from_millis(20), path(9), new), None);
        assert!(validation.handle_timeout(Instant::from_millis(40)));
        assert_eq!(validation.path(), path(9));
        let again = Instant::from_millis(250);
        assert_eq!(validation.poll_timeout(), Some(again), "the first question may have been lost");
        assert_eq!(validation.challenge(again), Some((path(1), old)));
        assert_eq!(validation.on_response(Instant::from_millis(300), path(9), old), Some(true));
        assert_eq!((validation.path(), validation.is_proven()), (path(1), true));
    }

    #[test]
    fn the_old_path_is_asked_three_times_and_then_left() {
        let (mut validation, new, old) = raced();
        assert_eq!(validation.on_response(Instant::from_millis(20), path(9), new), None);
        let mut asked = 1;
        while let Some(due) = validation.poll_timeout() {
            validation.handle_timeout(due);
            asked += std::iter::from_fn(|| validation.challenge(due)).count();
        }
        assert_eq!((asked, validation.path()), (3, path(9)));
        assert_eq!(validation.on_response(Instant::from_millis(2000), path(9), old), None);
    }

    #[test]
    fn a_proof_from_elsewhere_or_with_another_token_moves_nothing() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, true, tokens());
        assert_eq!(validation.on_response(Instant::ZERO, path(3), TOKEN), None);
        assert_eq!(validation.on_response(Instant::ZERO, path(2), *b"notatall"), None);
        assert_eq!(validation.path(), path(1));
    }

    #[test]
    fn an_older_datagram_from_another_address_starts_nothing() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, false, || TOKEN);
        assert_eq!(validation.challenge(Instant::ZERO), None);
    }

    #[test]
    fn a_racing_observer_is_forgotten_when_the_peer_speaks_again() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(9), 100, true, || TOKEN);
        validation.on_received(Instant::ZERO, path(1), 100, true, || TOKEN);
        let asked = std::iter::from_fn(|| validation.challenge(Instant::ZERO));
        assert!(asked.into_iter().all(|(asked, _)| asked == path(1)));
        assert_eq!(validation.path(), path(1));
    }

    #[test]
    fn no_timer_is_due_for_a_challenge_that_may_not_be_sent() {
        for received in 0..200 {
            let mut now = Instant::ZERO;
            let mut validation = Validation::learned(now, path(1), received, TOKEN);
            while let Some(due) = validation.poll_timeout() {
                now = now.max(due);
                let sent = validation.challenge(now);
                assert!(sent.is_some(), "{received} bytes received");
            }
        }
    }

    #[test]
    fn a_racing_observer_does_not_keep_an_unproven_path_from_its_proof() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 100, TOKEN);
        validation.on_received(Instant::ZERO, path(9), 100, true, || *b"stranger");
        validation.on_received(Instant::ZERO, path(1), 100, true, || TOKEN);
        assert_eq!(validation.challenge(Instant::ZERO), Some((path(1), TOKEN)));
        assert_eq!(validation.on_response(Instant::ZERO, path(1), TOKEN), Some(false));
        assert!(validation.is_proven());
    }

    #[test]
    fn an_address_that_lost_all_challenges_is_asked_again_when_it_speaks() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 1000, TOKEN);
        let mut now = Instant::ZERO;
        while let Some(due) = validation.poll_timeout() {
            now = now.max(due);
            assert!(validation.challenge(now).is_some());
        }
        now += RETRY;
        assert_eq!(validation.challenge(now), None, "silence ends the tries");
        validation.on_received(now, path(1), 100, true, || TOKEN);
        assert_eq!(validation.challenge(now), Some((path(1), TOKEN)));
        assert_eq!(validation.on_response(Instant::ZERO, path(1), TOKEN), Some(false));
        assert!(validation.is_proven());
    }

    #[test]
    fn what_is_said_beside_challenges_counts_too_and_racing_earns_nothing() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 40, TOKEN);
        assert!(validation.allows(120) && !validation.allows(121));
        validation.on_sent(&path(1), 100);
        assert!(!validation.allows(21));
        assert_eq!(validation.challenge(Instant::ZERO), None);
        assert_eq!(validation.poll_timeout(), None, "not before more came");
        // Another address takes its place for a moment, and begins with an allowance of its own.
        validation.on_received(Instant::ZERO, path(9), 40, true, tokens());
        assert!(validation.challenge(Instant::ZERO).is_some());
        assert!(!validation.allows(21), "that of the path in use is as it was");
        validation.on_received(Instant::ZERO, path(1), 10, true, || TOKEN);
        assert!(validation.allows(50) && !validation.allows(51));
        assert_eq!(validation.challenge(Instant::ZERO), Some((path(1), TOKEN)));
        assert_eq!(validation.on_response(Instant::ZERO, path(1), TOKEN), Some(false));
        assert!(validation.allows(usize::MAX));
    }

    #[test]
    fn a_stranger_gets_at_most_three_times_what_came_from_there() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 40, TOKEN);
        let mut now = Instant::ZERO;
        let mut sent = 0;
        while let Some(due) = validation.poll_timeout() {
            now = now.max(due);
            let Some(_) = validation.challenge(now) else { break };
            sent += CHALLENGE_LEN;
        }
        assert!(sent > 0 && sent <= 3 * 40, "{sent} bytes");
        assert!(!validation.is_proven());
    }
}
