//! What became of each of the newest global numbers: two bits a number.

/// Numbers in a word of a bitmap.
const WORD: u64 = u64::BITS as u64;

/// What became of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It has not been delivered, nor given up.
    Missing,
    /// Nobody waits for it any more. It may still come.
    GivenUp,
    /// It was delivered.
    Delivered,
    /// It is below the window: nobody remembers, and nobody waits for it.
    Below,
}

/// The fates of the numbers below [`Window::end`], as many as the window spans. The bitmaps are made when they are needed.
#[derive(Debug)]
pub(super) struct Window {
    /// Numbers that it spans, a multiple of those in a word.
    span: u64,
    /// The first number that ever was in it.
    begin: u64,
    end: u64,
    /// What a number has in common with its place: one less than a power of two, and not less than the span.
    mask: u64,
    /// A bit for each place.
    delivered: Vec<u64>,
    given_up: Vec<u64>,
}

impl Window {
    /// One that spans at least so many numbers, the first of which is `begin`.
    pub(super) fn new(span: usize, begin: u64) -> Self {
        let span = (span as u64).max(1).next_multiple_of(WORD);
        let mask = span.next_power_of_two() - 1;
        Self { span, begin, end: begin, mask, delivered: Vec::new(), given_up: Vec::new() }
    }

    /// Forgets everything: `begin` is the next number.
    pub(super) fn restart(&mut self, begin: u64) {
        (self.begin, self.end) = (begin, begin);
    }

    /// The first number that can come.
    pub(super) const fn begin(&self) -> u64 {
        self.begin
    }

    /// One above the highest number in it.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// The lowest number in it, once its highest is below `end`.
    pub(super) fn base(&self, end: u64) -> u64 {
        end.saturating_sub(self.span).max(self.begin)
    }

    /// Takes in all numbers below `end`, and loses the lowest for them.
    #[inline]
    pub(super) fn advance(&mut self, end: u64) {
        if end <= self.end {
            return;
        }
        if self.delivered.is_empty() {
            let words = usize::try_from((self.mask + 1) / WORD).unwrap_or(0);
            (self.delivered, self.given_up) = (vec![0; words], vec![0; words]);
        }
        let mut number = self.end.max(end.saturating_sub(self.span));
        while number < end {
            let (word, bit) = self.place(number);
            // From here on to the end of the word, or of the numbers.
            let count = (WORD - number % WORD).min(end - number);
            let mask = (u64::MAX >> (WORD - count)) << bit;
            for map in [&mut self.delivered, &mut self.given_up] {
                if let Some(word) = map.get_mut(word) {
                    *word &= !mask;
                }
            }
            number += count;
        }
        self.end = end;
    }

    /// What became of a number. One that has not been taken in is missing.
    #[inline]
    pub(super) fn fate(&self, number: u64) -> Fate {
        if number >= self.end {
            return Fate::Missing;
        }
        if number < self.base(self.end) {
            return Fate::Below;
        }
        let (word, bit) = self.place(number);
        let is_set = |map: &[u64]| map.get(word).is_some_and(|word| word >> bit & 1 == 1);
        if is_set(&self.delivered) {
            Fate::Delivered
        } else if is_set(&self.given_up) {
            Fate::GivenUp
        } else {
            Fate::Missing
        }
    }

    /// A number in the window was delivered.
    #[inline]
    pub(super) fn deliver(&mut self, number: u64) {
        if self.spans(number) {
            let (word, bit) = self.place(number);
            if let Some(word) = self.delivered.get_mut(word) {
                *word |= 1 << bit;
            }
        }
    }

    /// A number in the window is given up.
    pub(super) fn give_up(&mut self, number: u64) {
        if self.spans(number) {
            let (word, bit) = self.place(number);
            if let Some(word) = self.given_up.get_mut(word) {
                *word |= 1 << bit;
            }
        }
    }

    /// The numbers that were not delivered, as ranges from the lowest to one above the highest, rising.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut next = self.base(self.end);
        std::iter::from_fn(move || {
            let is_delivered = |number: &u64| self.fate(*number) == Fate::Delivered;
            let from = (next..self.end).find(|number| !is_delivered(number))?;
            let to = (from..self.end).find(is_delivered).unwrap_or(self.end);
            next = to;
            Some((from, to))
        })
    }

    #[inline]
    fn spans(&self, number: u64) -> bool {
        (self.base(self.end)..self.end).contains(&number)
    }

    /// The word of a number, and its bit there.
    #[inline]
    fn place(&self, number: u64) -> (usize, u64) {
        let index = number & self.mask;
        (usize::try_from(index / WORD).unwrap_or(usize::MAX), index % WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_missing_until_it_is_delivered_or_given_up_and_forgotten_below_the_window() {
        let mut window = Window::new(100, 1_000);
        assert_eq!(window.span, 128);
        window.advance(1_070);
        window.deliver(1_000);
        window.deliver(1_064);
        window.give_up(1_001);
        window.deliver(999);
        window.deliver(1_070);
        let table = [
            (999, Fate::Below),
            (1_000, Fate::Delivered),
            (1_001, Fate::GivenUp),
            (1_002, Fate::Missing),
            (1_064, Fate::Delivered),
            (1_070, Fate::Missing),
        ];
        for (number, fate) in table {
            assert_eq!(window.fate(number), fate, "{number}");
        }
        let ranges: Vec<_> = window.undelivered().collect();
        assert_eq!(ranges, [(1_001, 1_064), (1_065, 1_070)]);
        // The window moves: its oldest numbers give their bits to others.
        window.advance(1_129);
        let fates = [1_000, 1_001, 1_064, 1_128].map(|number| window.fate(number));
        assert_eq!(fates, [Fate::Below, Fate::GivenUp, Fate::Delivered, Fate::Missing]);
    }

    #[test]
    fn however_far_the_window_moves_no_new_number_has_an_old_fate() {
        for step in [1, 2, 63, 64, 65, 127, 128, 129, 1 << 40] {
            let mut window = Window::new(128, 7);
            let mut end = 7;
            for _ in 0..300 {
                let before = end;
                end += step;
                window.advance(end);
                let new = window.base(end).max(before)..end;
                for number in new.clone() {
                    assert_eq!(window.fate(number), Fate::Missing, "{number}, steps of {step}");
                }
                new.for_each(|number| window.deliver(number));
            }
            assert_eq!(window.fate(end - 1), Fate::Delivered);
        }
    }

    #[test]
    fn a_delivered_number_stays_so_while_the_window_spans_it() {
        let mut window = Window::new(128, 0);
        for number in 0..1_000 {
            window.advance(number + 1);
            window.deliver(number);
            assert!(window.undelivered().next().is_none(), "{number}");
        }
    }
}
