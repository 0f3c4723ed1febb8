//! A sliding window over the numbers received under one key on one link (RFC 6479's ring of words:
//! moving the window clears whole words and shifts nothing).
//!
//! Ask [`check`](ReplayWindow::check) before the costly decryption, [`mark`](ReplayWindow::mark) only
//! after it succeeded: a forged number must not move the window.

use super::aead::OpenError;

/// How many numbers back a datagram may come. At 1 Gbit/s of full datagrams this is 90 ms of
/// reordering *inside one link*; the links do not disturb each other, each has its own window.
pub(crate) const WINDOW: u64 = 8_192;

/// One word more than the window, because the window's ends usually share no word.
const WORDS: usize = WINDOW as usize / 64 + 1;

/// The numbers received so far: everything above `highest` is new, everything [`WINDOW`] below is
/// refused.
#[derive(Clone, Debug)]
pub(crate) struct ReplayWindow {
    highest: Option<u64>,
    seen: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl ReplayWindow {
    /// Nothing received.
    #[must_use]
    pub(crate) const fn new() -> Self {
        Self { highest: None, seen: [0; WORDS] }
    }

    /// Whether `number` may still come.
    ///
    /// # Errors
    /// [`OpenError::Replayed`] or [`OpenError::OlderThanWindow`].
    pub(crate) const fn check(&self, number: u64) -> Result<(), OpenError> {
        let Some(highest) = self.highest else {
            return Ok(());
        };
        if number > highest {
            Ok(())
        } else if highest - number >= WINDOW {
            Err(OpenError::OlderThanWindow)
        } else if self.seen[word(number)] & bit(number) != 0 {
            Err(OpenError::Replayed)
        } else {
            Ok(())
        }
    }

    /// Remembers `number`. Call only for an authentic datagram that [`check`](Self::check) let pass.
    pub(crate) fn mark(&mut self, number: u64) {
        match self.highest {
            None => self.highest = Some(number),
            Some(highest) if number > highest => {
                let steps = (number / 64 - highest / 64).min(WORDS as u64);
                for step in 0..steps {
                    self.seen[word(number - step * 64)] = 0;
                }
                self.highest = Some(number);
            }
            Some(highest) if highest - number >= WINDOW => return,
            Some(_) => {}
        }
        self.seen[word(number)] |= bit(number);
    }
}

const fn word(number: u64) -> usize {
    (number / 64 % WORDS as u64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The rule, written down naively.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn check(&self, number: u64) -> Result<(), OpenError> {
            match self.0.last() {
                Some(highest) if highest.saturating_sub(number) >= WINDOW => {
                    Err(OpenError::OlderThanWindow)
                }
                _ if self.0.contains(&number) => Err(OpenError::Replayed),
                _ => Ok(()),
            }
        }
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(
            start in prop_oneof![Just(0_u64), any::<u64>(), Just(u64::MAX - 40_000)],
            steps in prop::collection::vec(
                prop_oneof![
                    8 => -40_i64..60,
                    2 => -9_000_i64..9_000,
                    1 => -20_000_i64..20_000,
                    1 => Just(8_191_i64), 1 => Just(-8_191_i64), 1 => Just(-8_192_i64),
                ],
                1..400,
            ),
        ) {
            let (mut window, mut model) = (ReplayWindow::new(), Model::default());
            let mut at = start;
            for step in steps {
                let highest = window.highest.unwrap_or(start);
                let near = (-40..=60).contains(&step);
                at = if near { at } else { highest }.saturating_add_signed(step);
                prop_assert_eq!(window.check(at), model.check(at), "number {}", at);
                if window.check(at).is_ok() {
                    window.mark(at);
                    model.0.insert(at);
                }
            }
        }
    }

    #[test]
    fn both_ends_of_the_window_are_exact() {
        let mut window = ReplayWindow::new();
        window.mark(20_000);
        assert_eq!(window.check(20_000), Err(OpenError::Replayed));
        assert_eq!(window.check(20_000 - WINDOW + 1), Ok(()));
        assert_eq!(window.check(20_000 - WINDOW), Err(OpenError::OlderThanWindow));
        assert_eq!(window.check(u64::MAX), Ok(()));
    }

    #[test]
    fn a_jump_over_the_whole_ring_forgets_nothing_and_invents_nothing() {
        let mut window = ReplayWindow::new();
        (0..10_000).for_each(|number| window.mark(number));
        window.mark(1 << 40);
        assert_eq!(window.check(1 << 40), Err(OpenError::Replayed));
        for back in 1..WINDOW {
            assert_eq!(window.check((1 << 40) - back), Ok(()), "{back}");
        }
    }
}
