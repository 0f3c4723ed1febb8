//! Asking for a session (PROTOCOL §6.6): which first message is out, and when it goes out again.
//!
//! The same bytes go over every path of the links that a person prefers, and from the second round on of every link, by
//! a ladder: after 250 ms, 500 ms, ten times 1 s, 2 s,
//! 4 s, 8 s, and every 15 s from then on, each a quarter more or less by chance so that many clients of
//! one proxy do not ask in step. From [`FRESH_AFTER`] on the message is a new one, because the proxy
//! repeats an answer only for so long. Two questions are open at a time: the newest, and the one before,
//! whose answer may be under way. All have the same index.
//!
//! A cookie has the newest message go out again at once, over the path on which it came and with its proof, which then stands
//! behind every message on that path.
//!
//! What an observer can forge ends nothing: a cookie is obeyed a few times a second, a retry only adds a question, at most one for each and at
//! most one a second, and a list of versions only slows the ladder down.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, RngCore};

use ropewalk_settings::PublicKey;

use super::ClientConfig;
use super::cookies::CookieJar;
use super::links::LinkTable;
use super::snapshot::HandshakeCounters;
use crate::crypto::cookie::Cookie;
use crate::crypto::freshness::{RetryToken, Timestamp};
use crate::crypto::handshake::{Answer, AnswerError, Established, Initiator, InitiatorConfig};
use crate::crypto::recent;
use crate::crypto::rekey::RekeyContext;
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::event::VersionList;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::{Duration, Instant};
use crate::tunnel::Credentials;
use crate::units::SessionIndex;
use crate::wire::hello::answer::Refusal;
use crate::wire::hello::parameters::Parameters;
use crate::wire::hello::{MAC_LEN, write_with_proof};

/// Milliseconds between rounds; the last holds on. Quick at first, because a first message is small and a
/// person waits; then ever less, because a proxy that is away for minutes is away for long.
const LADDER: [u64; 16] = [
    250, 500, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 2000, 4000, 8000, 15_000,
];

/// The ladder's step after a list of versions: nothing changes until somebody installs another version.
const SLOW_STEP: usize = 13;

/// Age at which a first message is replaced by a new one.
const FRESH_AFTER: Duration = recent::LIFETIME;

/// A question that answers a retry is not given up for another retry before this age: longer than the
/// round trip of any ordinary link, so that forged retries do not push the true answer out.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Who asks whom; the same for every question.
pub(super) struct Origin {
    config: InitiatorConfig,
    secret: Arc<crate::crypto::secret::StaticSecret>,
    wall_clock: Duration,
}

impl Origin {
    pub(super) fn new(config: ClientConfig) -> Self {
        let parameters = Parameters {
            rekey_interval: Some(config.tunnel.rekey_after),
            invitation: config.invitation,
            partial_checksums: config.tunnel.partial_checksums,
            orders_flows: true,
            ..Parameters::default()
        };
        Self {
            secret: Arc::new(config.secret.clone()),
            config: InitiatorConfig {
                local: config.secret,
                remote: config.proxy,
                psk: config.psk,
                ciphers: config.ciphers,
                parameters,
            },
            wall_clock: config.wall_clock,
        }
    }

    /// The key of the proxy that is asked.
    pub(super) const fn proxy(&self) -> PublicKey {
        self.config.remote
    }

    /// The proxy knows this client's key from now on.
    pub(super) fn forget_invitation(&mut self) {
        self.config.parameters.invitation = None;
    }

    /// Whether another machine with this key may keep its session.
    pub(super) fn set_yields(&mut self, yields: bool) {
        self.config.parameters.yields = yields;
    }

    /// Questions to come tell of so many links.
    pub(super) fn announce(&mut self, links: usize) {
        self.config.parameters.links = u8::try_from(links).ok();
    }

    /// What the rekeys of a session are made with.
    pub(super) fn credentials(&self, context: RekeyContext) -> Credentials {
        Credentials {
            local: Arc::clone(&self.secret),
            remote: self.config.remote,
            psk: self.config.psk.clone(),
            context,
        }
    }

    fn ask(
        &self,
        now: Instant,
        rng: &mut StdRng,
        index: SessionIndex,
        token: Option<RetryToken>,
    ) -> Question {
        let time = self.wall_clock + Duration::from_nanos(now.as_nanos());
        let time = Timestamp::from_unix(time);
        let with_token = token.is_some();
        let initiator = Initiator::new(&self.config, rng, index, time, token);
        Question { initiator, made: now, with_token, retried: false, spent: false }
    }
}

/// A first message that waits for its answer.
struct Question {
    initiator: Initiator,
    made: Instant,
    with_token: bool,
    /// A retry to it was obeyed.
    retried: bool,
    /// It had its answer, which was useless.
    spent: bool,
}

/// What an answer brought.
pub(super) enum Outcome {
    Established(Box<Established>),
    Refused(Refusal),
    /// A new question is on its way.
    Retry,
    /// Proof of the path's address is wanted.
    Cookie(Cookie),
    Versions(VersionList),
}

/// The search for a session.
pub(super) struct Asking {
    index: SessionIndex,
    newest: Question,
    previous: Option<Question>,
    /// Rounds so far: the step of the ladder.
    round: usize,
    next: Instant,
    /// How many paths have the round that goes out; `None`: all.
    sent: Option<usize>,
    /// Where the newest question goes at once, whatever the round.
    again: Vec<Path>,
    /// Whether all links are asked, not only those that a person prefers.
    all_links: bool,
}

impl Asking {
    /// Begins with a round at once. `taken` is the index of the session that is to be replaced: its links do not
    /// answer, so that all are asked at once.
    pub(super) fn begin(
        now: Instant,
        origin: &Origin,
        rng: &mut StdRng,
        taken: Option<SessionIndex>,
    ) -> Self {
        let mut index = SessionIndex::new(rng.next_u32());
        if Some(index) == taken {
            index = SessionIndex::new(index.get() ^ 1);
        }
        let newest = origin.ask(now, rng, index, None);
        let mut asking = Self {
            index,
            newest,
            previous: None,
            round: 0,
            next: now,
            sent: None,
            again: Vec::new(),
            all_links: taken.is_some(),
        };
        asking.start_round(now, rng);
        asking
    }

    pub(super) const fn index(&self) -> SessionIndex {
        self.index
    }

    /// The links changed: the ladder begins again.
    pub(super) fn restart(&mut self, now: Instant) {
        (self.round, self.next, self.sent) = (0, now, None);
    }

    pub(super) const fn poll_timeout(&self) -> Instant {
        self.next
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, origin: &Origin, rng: &mut StdRng) {
        if now < self.next {
            return;
        }
        if self.newest.spent || now >= self.newest.made + FRESH_AFTER {
            self.replace(origin.ask(now, rng, self.index, None));
        }
        // A preferred link that answers saves the others the question; one that does not holds nobody up for long.
        self.all_links = true;
        self.start_round(now, rng);
    }

    fn replace(&mut self, question: Question) {
        self.previous = Some(std::mem::replace(&mut self.newest, question));
    }

    fn start_round(&mut self, now: Instant, rng: &mut StdRng) {
        let step = LADDER[self.round.min(LADDER.len() - 1)];
        self.next = now + Duration::from_millis(rng.random_range(step * 3 / 4..=step * 5 / 4));
        self.round += 1;
        self.sent = Some(0);
    }

    /// The newest question goes over this path once more, at once.
    pub(super) fn ask_again(&mut self, path: Path) {
        if !self.again.contains(&path) {
            self.again.push(path);
        }
    }

    /// Puts what goes out into the batch. `false`: the batch is full.
    pub(super) fn poll_transmit(
        &mut self,
        now: Instant,
        links: &LinkTable,
        cookies: &CookieJar,
        counters: &mut HandshakeCounters,
        out: &mut impl TransmitSink,
    ) -> bool {
        let initiator = &self.newest.initiator;
        while let Some(path) = self.again.last() {
            if !send(initiator, *path, cookies.get(now, path), out) {
                return false;
            }
            self.again.pop();
            counters.sent += 1;
        }
        let Some(sent) = &mut self.sent else { return true };
        for path in links.paths(self.all_links).skip(*sent) {
            if !send(initiator, path, cookies.get(now, &path), out) {
                return false;
            }
            *sent += 1;
            counters.sent += 1;
        }
        self.sent = None;
        true
    }

    /// Takes a datagram that may be an answer to one of the open questions.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        origin: &Origin,
        rng: &mut StdRng,
        datagram: &[u8],
    ) -> Result<Outcome, DropReason> {
        let mut question = &mut self.newest;
        let mut answer = question.initiator.handle_answer(datagram);
        if let (Err(AnswerError::WrongMac), Some(previous)) = (&answer, &mut self.previous) {
            question = previous;
            answer = question.initiator.handle_answer(datagram);
        }
        match answer {
            Ok(Answer::Established(established)) => Ok(Outcome::Established(established)),
            Ok(Answer::Refused(refusal)) => Ok(Outcome::Refused(refusal)),
            Ok(Answer::Cookie(cookie)) => Ok(Outcome::Cookie(cookie)),
            Ok(Answer::Versions(versions)) => {
                self.slow_down();
                Ok(Outcome::Versions(versions))
            }
            Ok(Answer::Retry(token)) => {
                let too_soon = question.with_token && now < question.made + RETRY_PAUSE;
                if question.retried || too_soon {
                    return Err(DropReason::HandshakeUnexpected);
                }
                question.retried = true;
                self.replace(origin.ask(now, rng, self.index, Some(token)));
                self.round = 0;
                self.start_round(now, rng);
                Ok(Outcome::Retry)
            }
            Err(error) => {
                question.spent |= error == AnswerError::BadContent;
                Err(error.into())
            }
        }
    }

    fn slow_down(&mut self) {
        self.round = self.round.max(SLOW_STEP);
    }
}

/// Puts a first message into the batch, with the proof of a cookie where there is one. `false`: the batch is full.
fn send(
    initiator: &Initiator,
    path: Path,
    cookie: Option<&Cookie>,
    out: &mut impl TransmitSink,
) -> bool {
    let message = initiator.message();
    let len = message.len() + if cookie.is_some() { MAC_LEN } else { 0 };
    let Some(place) = out.reserve(path, Ecn::NotEct, len) else { return false };
    match cookie {
        Some(cookie) => write_with_proof(place, message, &initiator.proof(cookie)),
        None => place.copy_from_slice(message),
    }
    out.commit(len);
    true
}
