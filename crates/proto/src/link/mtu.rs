//! The path MTU of one link in one direction: RFC 8899 (DPLPMTUD), at the sender.
//!
//! Sizes are those of whole IP packets: IP header, UDP header and datagram. Nothing is believed about a
//! path but what a padded, sealed probe has shown; ICMP and `EMSGSIZE` only say where to look.
//!
//! # Rounds
//!
//! Every question is put as a pair: a **probe** of the size in doubt and right behind it a **guard** of the
//! base size. The probe confirmed: the size passes. Only the guard confirmed, and the probe still not
//! after half of that time again: one try failed. Neither: the link lost both and nothing was learned
//! about sizes. So neither an outage nor congestion is taken for a small MTU; a size is given up after
//! `TRIES` failed tries.
//!
//! # States
//!
//! ```text
//! Base      the base size is not confirmed yet; it is used nevertheless   confirmed: Search
//!                                                                         three times no answer: Error
//! Search    sizes between the usable and the smallest failed one          none is left: Complete
//! Complete  nothing to do                                                 after RAISE_AFTER: Search
//! Error     the base size does not pass, or nothing does: the smallest    confirmed: Search
//!           size is used and the base size asked for, ever more rarely
//! ```
//!
//! The search tries the largest size first, for most paths carry it, then 1500, then halves the
//! `COMMON_SIZES` that are left.
//!
//! # A link that is back
//!
//! Where a link of the same name left, the size that it had is asked for before the base size, with the base size as its guard: one
//! round trip later the link carries packets again. If it does not pass at the first try, the search begins as always.
//!
//! # Black holes
//!
//! A router may begin to drop large packets silently. `BLACK_HOLE_LOSSES` losses of datagrams above the
//! base size, with none of at least their size confirmed in between, raise suspicion; then the usable
//! size itself is put in question as above. After `VERIFY_TRIES` failed tries it is a black hole: back to
//! the base size, and search below. This takes the sender's own detection of loss (at worst its timeout)
//! and three round trips. Any datagram of the doubted size that is confirmed ends the suspicion.

use crate::time::{Duration, Instant, earliest};

/// The base size (RFC 8899 §5.1.2): the smallest IPv6 MTU, which IPv4 paths have in practice too.
pub(crate) const BASE: u16 = 1280;

/// Bytes of the datagram that is tried when even the base size does not pass: as in QUIC, a path that
/// does not carry these is no path.
const LEAST_DATAGRAM: u16 = 1200;

/// Sizes at which paths end in practice: Ethernet less PPPoE (1492), GRE, IP-in-IP, 6in4 (1480, 1472,
/// 1476 and less), WireGuard (1420, 1412), IPsec (1438, 1400), LTE and satellite (1428, 1430, 1358), jumbo
/// frames. At most 20 bytes (1.5 %) apart below 1500: a path in between loses no more.
const COMMON_SIZES: [u16; 27] = [
    1300, 1320, 1340, 1358, 1376, 1392, 1400, 1412, 1420, 1428, 1438, 1450, 1460, 1472, 1476, 1480,
    1488, 1492, 1500, 2304, 4352, 6000, 7500, 8166, 8500, 8900, 9000,
];

/// The size that most paths have.
const USUAL: u16 = 1500;

/// Failed tries until a size counts as too big (MAX_PROBES of RFC 8899 §5.1.2).
const TRIES: u8 = 3;

/// The same when the usable size is doubted: the losses before count as well.
const VERIFY_TRIES: u8 = 2;

/// Losses in a row that raise suspicion: more than a tail of a burst, less than a window of any bulk
/// flow.
const BLACK_HOLE_LOSSES: u32 = 4;

/// How often a larger size is looked for when the search is over (PMTU_RAISE_TIMER, §5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// Between the end of a failed try and the next: another burst of loss has passed by then, and probes
/// never are a load (some 2,560 bytes in 50 ms at most).
const SPACING: Duration = Duration::from_millis(50);

/// How long a round takes at most while no answer has shown the round-trip time.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest wait for a round, and between rounds that got no answer while searching.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(8);

/// The longest time between questions for the base size in `Error`.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// Beyond half a round trip: what a receiver may wait with its report.
const REPORT_DELAY: Duration = Duration::from_millis(30);

/// A hint starts a verification at most this often: hints can be forged.
const HINT_SPACING: Duration = Duration::from_secs(1);

/// Phase of the search (RFC 8899 §5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// The base size is not confirmed yet.
    Base,
    /// Larger sizes are tried.
    Search,
    /// The usable size is the largest that passes, as far as known.
    Complete,
    /// The base size does not pass.
    Error,
}

/// A probe and its guard.
#[derive(Clone, Copy, Debug)]
struct Round {
    size: u16,
    sent: Instant,
    guard_sent: bool,
    guard_acked: Option<Instant>,
    probe_lost: bool,
}

/// What the search found on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KnownMtu {
    usable: u16,
    /// The smallest size that failed, if one did.
    failed: Option<u16>,
}

/// Losses that may mean a black hole.
#[derive(Clone, Copy, Debug)]
struct Suspicion {
    smallest: u16,
    losses: u32,
}

/// The path MTU of one link in one direction.
#[derive(Clone, Debug)]
pub(crate) struct PathMtu {
    header_len: u16,
    max: u16,
    state: State,
    usable: u16,
    /// The smallest size that failed; one above `max` if none did.
    failed: u16,
    round: Option<Round>,
    /// No round begins before.
    next_round: Instant,
    /// Failed tries of the size in question.
    tries: u8,
    /// Rounds in a row without any answer.
    unanswered: u8,
    /// The usable size is in question.
    verifying: bool,
    /// How long the latest answer took.
    answer_time: Option<Duration>,
    raise_at: Instant,
    hint: Option<u16>,
    hint_taken: Option<Instant>,
    /// What a link of the same name had, until its size was asked for.
    remembered: Option<KnownMtu>,
    suspicion: Option<Suspicion>,
    black_holes: u64,
}

impl PathMtu {
    /// A path with `header_len` bytes of IP and UDP headers (28 or 48) on an interface with MTU `max`.
    #[must_use]
    pub(crate) fn new(now: Instant, header_len: u16, max: u16) -> Self {
        let mut path = Self {
            header_len,
            max: 0,
            state: State::Base,
            usable: 0,
            failed: 0,
            round: None,
            next_round: now,
            tries: 0,
            unanswered: 0,
            verifying: false,
            answer_time: None,
            raise_at: now,
            hint: None,
            hint_taken: None,
            remembered: None,
            suspicion: None,
            black_holes: 0,
        };
        path.reset(now, header_len, max);
        path
    }

    /// The link goes another way (another interface or address family): nothing is known of it.
    pub(crate) fn reset(&mut self, now: Instant, header_len: u16, max: u16) {
        self.header_len = header_len;
        self.max = max.max(header_len.saturating_add(1)).min(u16::MAX - 1);
        self.state = State::Base;
        self.usable = self.base();
        self.failed = self.max + 1;
        self.round = None;
        self.next_round = now;
        (self.tries, self.unanswered, self.verifying) = (0, 0, false);
        (self.answer_time, self.hint, self.suspicion) = (None, None, None);
        self.remembered = None;
    }

    /// What a link of the same name may ask for first if this one leaves now: what was found, once the search is over.
    #[must_use]
    pub(crate) fn known(&self) -> Option<KnownMtu> {
        let is_found =
            self.state == State::Complete && !self.verifying && self.usable > self.base();
        let failed = (self.failed <= self.max).then_some(self.failed);
        // What was not asked for yet is as true as it was.
        self.remembered.or(is_found.then_some(KnownMtu { usable: self.usable, failed }))
    }

    /// A link of the same name had this: its size is asked for first.
    pub(crate) fn remember(&mut self, known: KnownMtu) {
        let is_fresh = self.state == State::Base && self.round.is_none();
        if is_fresh && known.usable > self.base() && known.usable <= self.max {
            self.remembered = Some(known);
        }
    }

    /// The path may have changed (a NAT rebinding): the usable size is kept, and asked for at once.
    pub(crate) fn revalidate(&mut self, now: Instant) {
        if self.usable > self.base() {
            self.verify(now);
        }
    }

    /// The peer has another address of the same family, perhaps in another network. The usable size is kept
    /// while it is asked for at once: to fall to the base for two round trips would be told to every sender
    /// of larger packets, and they believe it for minutes. What was known of other sizes is forgotten.
    pub(crate) fn on_new_address(&mut self, now: Instant) {
        if self.usable <= self.base() {
            return self.reset(now, self.header_len, self.max);
        }
        self.failed = self.max + 1;
        (self.answer_time, self.hint, self.suspicion) = (None, None, None);
        self.verify(now);
    }

    /// The largest IP packet that may be sent now.
    #[must_use]
    pub(crate) fn mtu(&self) -> u16 {
        self.usable
    }

    /// The phase of the search.
    #[must_use]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Black holes found.
    #[must_use]
    pub(crate) fn black_holes(&self) -> u64 {
        self.black_holes
    }

    /// The size of an IP packet to be sent now, padded, as a probe; call until `None`. What is returned
    /// counts as sent unless [`on_unsent`](Self::on_unsent) says otherwise.
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<u16> {
        self.handle_timeout(now);
        let base = self.base();
        if let Some(round) = &mut self.round {
            let guard = !round.guard_sent && round.size != base;
            round.guard_sent = true;
            return guard.then_some(base);
        }
        if now < self.next_round {
            return None;
        }
        let size = self.in_question()?;
        self.round = Some(Round {
            size,
            sent: now,
            guard_sent: false,
            guard_acked: None,
            probe_lost: false,
        });
        Some(size)
    }

    /// What [`poll_probe`](Self::poll_probe) returned last could not be sent: it is returned again.
    pub(crate) fn on_unsent(&mut self) {
        match &mut self.round {
            Some(round) if round.guard_sent => round.guard_sent = false,
            _ => self.round = None,
        }
    }

    /// When [`poll_probe`](Self::poll_probe) has something to do or to conclude.
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let raise =
            (self.state == State::Complete && self.usable < self.max).then_some(self.raise_at);
        match &self.round {
            Some(round) if !round.guard_sent && round.size != self.base() => Some(round.sent),
            Some(round) => Some(self.end_of(round)),
            None => earliest(self.in_question().map(|_| self.next_round), raise),
        }
    }

    /// Draws the conclusions that time alone brings.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.state == State::Complete && self.usable < self.max && now >= self.raise_at {
            self.failed = self.max + 1;
            self.search(now);
        }
        if let Some(round) = self.round
            && now >= self.end_of(&round)
        {
            self.conclude(now, &round);
        }
    }

    /// A probe or guard of `size` was confirmed.
    pub(crate) fn on_probe_acked(&mut self, now: Instant, size: u16) {
        let base = self.base();
        match &mut self.round {
            Some(round) if round.size == size => {
                self.answer_time = Some(now.since(round.sent));
                self.round = None;
                self.next_round = now;
                if let Some(known) = self.remembered.take_if(|known| known.usable == size) {
                    // What failed above it is not asked for again before the next search.
                    let least = known.failed.unwrap_or(u16::MAX);
                    self.failed = least.min(self.max + 1);
                }
                self.passes(now, size);
            }
            Some(round) if size == base && round.guard_sent && round.guard_acked.is_none() => {
                round.guard_acked = Some(now);
                self.answer_time = Some(now.since(round.sent));
                self.unanswered = 0;
                self.handle_timeout(now);
            }
            // Later than its round was waited for: it passes all the same.
            _ => {
                if size > self.usable && size <= self.max {
                    self.passes(now, size);
                }
            }
        }
    }

    /// A probe or guard of `size` was found lost: with the guard confirmed the round is over at once.
    pub(crate) fn on_probe_lost(&mut self, now: Instant, size: u16) {
        if let Some(round) = &mut self.round
            && round.size == size
        {
            round.probe_lost = true;
            self.handle_timeout(now);
        }
    }

    /// A datagram that is no probe was confirmed; `size` of its IP packet.
    pub(crate) fn on_acked(&mut self, now: Instant, size: u16) {
        if self.suspicion.is_some_and(|suspicion| size >= suspicion.smallest) {
            self.suspicion = None;
        }
        if self.verifying && size >= self.usable {
            self.round = None;
            self.next_round = now;
            self.passes(now, self.usable);
        }
        if matches!(self.state, State::Base | State::Error) && size >= self.base() {
            self.round = None;
            self.next_round = now;
            self.passes(now, self.base());
        }
    }

    /// `count` datagrams that are no probes, in IP packets of `size`, were found lost.
    pub(crate) fn on_lost(&mut self, now: Instant, size: u16, count: u32) {
        if size <= self.base() || size > self.usable {
            return;
        }
        let suspicion = self.suspicion.get_or_insert(Suspicion { smallest: size, losses: 0 });
        suspicion.smallest = suspicion.smallest.min(size);
        suspicion.losses = suspicion.losses.saturating_add(count);
        if suspicion.losses >= BLACK_HOLE_LOSSES && !self.verifying {
            self.verify(now);
        }
    }

    /// The kernel refused a datagram or heard by ICMP that the path carries no more than `mtu`. Nothing
    /// is lowered for that, but the usable size is put in question, and `mtu` is the first one tried.
    pub(crate) fn on_hint(&mut self, now: Instant, mtu: u16) {
        if mtu < self.base() || mtu >= self.failed {
            return;
        }
        self.hint = Some(mtu);
        let lately = self.hint_taken.is_some_and(|taken| now.since(taken) < HINT_SPACING);
        if mtu < self.usable && !self.verifying && !lately {
            self.hint_taken = Some(now);
            self.verify(now);
        }
    }

    fn base(&self) -> u16 {
        BASE.min(self.max)
    }

    /// The size to be probed next.
    fn in_question(&self) -> Option<u16> {
        if self.verifying {
            return Some(self.usable);
        }
        match self.state {
            State::Base => Some(self.remembered.map_or(self.base(), |known| known.usable)),
            State::Error => Some(self.base()),
            State::Search => self.candidate(),
            State::Complete => None,
        }
    }

    fn candidate(&self) -> Option<u16> {
        let open = |size: &u16| (self.usable + 1..self.failed).contains(size) && *size <= self.max;
        [self.hint, Some(self.max), Some(USUAL)].into_iter().flatten().find(open).or_else(|| {
            let mut left = COMMON_SIZES.into_iter().filter(open);
            let count = left.clone().count();
            left.nth(count / 2)
        })
    }

    fn verify(&mut self, now: Instant) {
        self.verifying = true;
        (self.tries, self.unanswered) = (0, 0);
        self.round = None;
        self.next_round = now;
    }

    /// The size passes.
    fn passes(&mut self, now: Instant, size: u16) {
        self.remembered = None;
        (self.tries, self.unanswered) = (0, 0);
        (self.verifying, self.suspicion) = (false, None);
        self.usable = self.usable.max(size);
        if size >= self.failed {
            self.failed = self.max + 1;
        }
        if self.state == State::Complete && self.candidate().is_none() {
            return;
        }
        self.search(now);
    }

    /// Goes on searching, or is done.
    fn search(&mut self, now: Instant) {
        self.state = if self.candidate().is_some() { State::Search } else { State::Complete };
        self.raise_at = now + RAISE_AFTER;
    }

    fn conclude(&mut self, now: Instant, round: &Round) {
        self.round = None;
        if round.guard_acked.is_some() {
            self.try_failed(now, round.size);
        } else {
            self.no_answer(now);
        }
    }

    fn try_failed(&mut self, now: Instant, size: u16) {
        self.tries += 1;
        self.next_round = now + SPACING;
        if self.remembered.is_some() {
            // Its guard came, so that the base size passes.
            return self.passes(now, self.base());
        }
        if self.verifying && self.tries >= VERIFY_TRIES {
            self.black_holes += 1;
            self.verifying = false;
            (self.tries, self.suspicion) = (0, None);
            self.usable = self.base();
            self.failed = size;
            self.search(now);
        } else if !self.verifying && self.tries >= TRIES {
            self.tries = 0;
            self.failed = size;
            if self.hint == Some(size) {
                self.hint = None;
            }
            self.search(now);
        }
    }

    fn no_answer(&mut self, now: Instant) {
        self.unanswered = self.unanswered.saturating_add(1);
        self.remembered = None;
        let wait = SPACING * (1 << self.unanswered.min(12));
        self.next_round = now + wait.min(LONGEST_TIMEOUT);
        if matches!(self.state, State::Base | State::Error) {
            self.next_round = now + wait.min(LONGEST_RETRY);
            if self.unanswered >= TRIES {
                self.state = State::Error;
                self.usable = self.header_len.saturating_add(LEAST_DATAGRAM).min(self.base());
            }
        }
    }

    /// When a round is over at the latest.
    fn end_of(&self, round: &Round) -> Instant {
        match round.guard_acked {
            Some(_) if round.probe_lost => round.sent,
            Some(at) => at + at.since(round.sent) / 2 + REPORT_DELAY,
            None => {
                let usual =
                    self.answer_time.map_or(FIRST_TIMEOUT, |time| time * 3 + REPORT_DELAY * 4);
                round.sent + (usual * (1 << self.unanswered.min(3))).min(LONGEST_TIMEOUT)
            }
        }
    }
}

#[cfg(test)]
mod tests;
