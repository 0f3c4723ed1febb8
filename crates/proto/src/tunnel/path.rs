//! Proof that the peer receives where its datagrams seem to come from (PROTOCOL §5.3).
//!
//! A path moves only on a newer datagram, and only after a challenge sent to the new address came back
//! from there. Until then the old path stays in use, and the new address gets at most three times the
//! bytes that came from it, so that nobody can aim a tunnel at a stranger.

use crate::path::Path;
use crate::time::{Duration, Instant};
use crate::wire::header::OVERHEAD;

/// A `PathChallenge` alone: header and tag, and 9 bytes of frame.
pub(super) const CHALLENGE_LEN: usize = OVERHEAD + 9;
/// Bytes sent to an unproven address for each byte that came from it (RFC 9000 §8.1).
const AMPLIFICATION: u64 = 3;
/// Time between challenges: about a round trip of a bad mobile link.
const RETRY: Duration = Duration::from_millis(250);
/// Challenges to one address; then it is forgotten until another datagram comes from there.
const MAX_TRIES: u32 = 8;

/// An address on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    path: Path,
    token: [u8; 8],
    received: u64,
    sent: u64,
    tries: u32,
    next: Instant,
}

/// The path in use and the one on trial.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validation {
    path: Path,
    proven: bool,
    trial: Option<Trial>,
}

impl Validation {
    /// A path that this end chose itself.
    pub(super) const fn trusted(path: Path) -> Self {
        Self { path, proven: true, trial: None }
    }

    /// A path from which the first datagram of a link came, `bytes` long.
    pub(super) fn learned(now: Instant, path: Path, bytes: usize, token: [u8; 8]) -> Self {
        let mut validation = Self { path, proven: false, trial: None };
        validation.start(now, path, bytes, token);
        validation
    }

    /// Where datagrams go.
    pub(super) const fn path(&self) -> Path {
        self.path
    }

    /// Whether the peer is known to receive there.
    pub(super) const fn is_proven(&self) -> bool {
        self.proven
    }

    /// Uses `path`, chosen by this end.
    pub(super) fn choose(&mut self, path: Path) {
        *self = Self::trusted(path);
    }

    /// An authentic datagram of `bytes` came from `path`. `newest`: it has the highest number of the
    /// link. `token` is drawn only if a trial starts.
    pub(super) fn on_received(
        &mut self,
        now: Instant,
        path: Path,
        bytes: usize,
        newest: bool,
        token: impl FnOnce() -> [u8; 8],
    ) {
        match &mut self.trial {
            Some(trial) if trial.path == path => {
                trial.received += bytes as u64;
                // It is still there: worth asking again, or a path that lost all tries stays unproven.
                if newest && trial.tries >= MAX_TRIES && now >= trial.next {
                    trial.tries = 0;
                }
            }
            _ if !newest => {}
            // The old path speaks again with a newer number: whoever raced it has lost.
            _ if path == self.path && self.proven => self.trial = None,
            _ => self.start(now, path, bytes, token()),
        }
    }

    fn start(&mut self, now: Instant, path: Path, bytes: usize, token: [u8; 8]) {
        let received = bytes as u64;
        self.trial = Some(Trial { path, token, received, sent: 0, tries: 0, next: now });
    }

    /// The challenge that is due, at most `len` bytes long as a datagram.
    pub(super) fn poll_challenge(&mut self, now: Instant, len: usize) -> Option<(Path, [u8; 8])> {
        let trial = self.trial.as_mut()?;
        let allowed = trial.sent + len as u64 <= trial.received * AMPLIFICATION;
        if now < trial.next || trial.tries >= MAX_TRIES || !allowed {
            return None;
        }
        trial.tries += 1;
        trial.sent += len as u64;
        trial.next = now + RETRY;
        Some((trial.path, trial.token))
    }

    /// When the next challenge is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let trial = self.trial.as_ref()?;
        let allowed = trial.sent + CHALLENGE_LEN as u64 <= trial.received * AMPLIFICATION;
        (allowed && trial.tries < MAX_TRIES).then_some(trial.next)
    }

    /// A response came from `path`. `Some(moved)` if it proves the address on trial; `moved` says
    /// whether that is another than before.
    pub(super) fn on_response(&mut self, path: Path, token: [u8; 8]) -> Option<bool> {
        let trial = self.trial.take_if(|trial| trial.path == path && trial.token == token)?;
        let moved = self.path != trial.path;
        (self.path, self.proven) = (trial.path, true);
        Some(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::SocketId;

    const TOKEN: [u8; 8] = *b"whereami";
    const LEN: usize = 48;

    fn path(port: u16) -> Path {
        Path { socket: SocketId(0), local: None, remote: ([192, 0, 2, 1], port).into() }
    }

    #[test]
    fn a_link_that_moved_is_followed_after_one_proof() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, true, || TOKEN);
        assert_eq!(validation.path(), path(1));
        assert_eq!(validation.poll_challenge(Instant::ZERO, LEN), Some((path(2), TOKEN)));
        assert_eq!(validation.on_response(path(2), TOKEN), Some(true));
        assert_eq!(validation.path(), path(2));
    }

    #[test]
    fn a_proof_from_elsewhere_or_with_another_token_moves_nothing() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, true, || TOKEN);
        assert_eq!(validation.on_response(path(3), TOKEN), None);
        assert_eq!(validation.on_response(path(2), *b"notatall"), None);
        assert_eq!(validation.path(), path(1));
    }

    #[test]
    fn an_older_datagram_from_another_address_starts_nothing() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(2), 100, false, || TOKEN);
        assert_eq!(validation.poll_challenge(Instant::ZERO, LEN), None);
    }

    #[test]
    fn a_racing_observer_is_forgotten_when_the_peer_speaks_again() {
        let mut validation = Validation::trusted(path(1));
        validation.on_received(Instant::ZERO, path(9), 100, true, || TOKEN);
        validation.on_received(Instant::ZERO, path(1), 100, true, || TOKEN);
        assert_eq!(validation.poll_challenge(Instant::ZERO, LEN), None);
        assert_eq!(validation.path(), path(1));
    }

    #[test]
    fn no_timer_is_due_for_a_challenge_that_may_not_be_sent() {
        for received in 0..200 {
            let mut now = Instant::ZERO;
            let mut validation = Validation::learned(now, path(1), received, TOKEN);
            while let Some(due) = validation.poll_timeout() {
                now = now.max(due);
                let sent = validation.poll_challenge(now, CHALLENGE_LEN);
                assert!(sent.is_some(), "{received} bytes received");
            }
        }
    }

    #[test]
    fn a_racing_observer_does_not_keep_an_unproven_path_from_its_proof() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 100, TOKEN);
        validation.on_received(Instant::ZERO, path(9), 100, true, || *b"stranger");
        validation.on_received(Instant::ZERO, path(1), 100, true, || TOKEN);
        assert_eq!(validation.poll_challenge(Instant::ZERO, LEN), Some((path(1), TOKEN)));
        assert_eq!(validation.on_response(path(1), TOKEN), Some(false));
        assert!(validation.is_proven());
    }

    #[test]
    fn an_address_that_lost_all_challenges_is_asked_again_when_it_speaks() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 1000, TOKEN);
        let mut now = Instant::ZERO;
        while let Some(due) = validation.poll_timeout() {
            now = now.max(due);
            assert!(validation.poll_challenge(now, LEN).is_some());
        }
        now += RETRY;
        assert_eq!(validation.poll_challenge(now, LEN), None, "silence ends the tries");
        validation.on_received(now, path(1), 100, true, || TOKEN);
        assert_eq!(validation.poll_challenge(now, LEN), Some((path(1), TOKEN)));
        assert_eq!(validation.on_response(path(1), TOKEN), Some(false));
        assert!(validation.is_proven());
    }

    #[test]
    fn a_stranger_gets_at_most_three_times_what_came_from_there() {
        let mut validation = Validation::learned(Instant::ZERO, path(1), 40, TOKEN);
        let mut now = Instant::ZERO;
        let mut sent = 0;
        while let Some(due) = validation.poll_timeout() {
            now = now.max(due);
            let Some(_) = validation.poll_challenge(now, LEN) else { break };
            sent += LEN;
        }
        assert!(sent > 0 && sent <= 3 * 40, "{sent} bytes");
        assert!(!validation.is_proven());
    }
}
