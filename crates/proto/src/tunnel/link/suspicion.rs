//! A link on which an answer is overdue is suspect: it gets nothing new, what is under way on it goes over the others as
//! well, and it is asked until it answers. Long before it counts as [down](super::LinkState::Down).

use crate::time::{Duration, Instant};

/// How often a suspect link is asked: a handover of a radio link takes 50 to 150 ms, and its end must be seen at once.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);

/// What was done about an answer that is overdue.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct Suspicion {
    /// Since when the answer was missing that the link was last suspected for, and when it is asked again.
    known: Option<(Instant, Instant)>,
}

impl Suspicion {
    /// When there is something to do about an answer that has been missing `since` then, and takes `patience` at most.
    pub(super) fn due(&self, since: Instant, patience: Duration) -> Instant {
        match self.known {
            Some((known, again)) if known == since => again,
            _ => since + patience,
        }
    }

    /// Something was done. Returns whether it was the first time for this answer.
    pub(super) fn note(&mut self, now: Instant, since: Instant) -> bool {
        let known = self.known.replace((since, now + PROBE_INTERVAL));
        known.is_none_or(|(known, _)| known != since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_suspected_once_for_an_answer_and_asked_again_and_again() {
        let (at, patience) = (Instant::from_millis, Duration::from_millis(60));
        let mut suspicion = Suspicion::default();
        assert_eq!(suspicion.due(at(100), patience), at(160));
        assert!(suspicion.note(at(160), at(100)));
        assert_eq!(suspicion.due(at(100), patience), at(210));
        assert!(!suspicion.note(at(210), at(100)));
        assert_eq!(suspicion.due(at(100), patience), at(260));
        assert_eq!(suspicion.due(at(230), patience), at(290), "another answer");
        assert!(suspicion.note(at(290), at(230)));
    }
}
