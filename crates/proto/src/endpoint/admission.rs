//! From a first message to an answer, from cheap to costly (PROTOCOL §6.7).
//!
//! | step | what a stranger needs to come further | answer |
//! | --- | --- | --- |
//! | envelope, mac1 | the proxy's public key | silence |
//! | version | | the versions, at a limited rate |
//! | seen in the last seconds? | | the same answer again |
//! | rate, of those that end without a session: if it is too high, a cookie | to receive at its address, or luck | a cookie |
//! | rate of its address | another address | silence |
//! | decryption: two Diffie-Hellman operations | a key pair | silence |
//! | home | | none here: it is handed to the part that serves the client ([`Share`]) |
//! | table of peers, or an invitation | a client's private key, or a token of the owner's | silence |
//! | freshness | that key now, not a recording | a retry |
//! | enabled, cipher, room | the owner's consent | a sealed refusal |
//!
//! No answer is longer than its question, and none goes anywhere but back.
//!
//! A proxy that drains or stops goes through the same steps, and refuses at the last one: only clients that it knows learn of
//! it.

use std::net::SocketAddr;

use rand::RngCore;
use rand::rngs::StdRng;

use super::EndpointConfig;
use super::addresses::AddressLimit;
use super::load::Load;
use super::peers::PeerTable;
use super::sessions::Sessions;
use super::share::{Question, Share};
use super::snapshot::AdmissionCounters;
use crate::crypto::cookie::Cookies;
use crate::crypto::freshness::{Freshness, RetryTokens};
use crate::crypto::handshake::{
    COOKIE_ANSWER_LEN, FirstMessage, Inspected, OtherVersion, PendingFirst, Responder,
};
use crate::crypto::keys::EpochKeys;
use crate::crypto::limit::TokenBucket;
use crate::crypto::recent::{Outcome, RecentFirstMessages};
use crate::error::DropReason;
use crate::time::{Duration, Instant};
use crate::units::SessionIndex;
use crate::wire::hello::MAC_LEN;
use crate::wire::hello::answer::{Accept, Refusal};
use crate::wire::hello::parameters::{NameServers, Parameters};
use ropewalk_settings::{InvitationToken, PresharedKey, PublicKey};

/// Invitations shown a second by keys that are not in the table. Nobody finds 128 random bits at any rate: this bounds
/// what the owner's book is asked.
const CLAIMS: (u32, u32) = (50, 100);

/// A session that was heard of within this time is in use: three keepalives of an idle link.
const IN_USE: Duration = Duration::from_secs(45);

/// The part whose owner has the book of invitations.
pub(super) const OWNERS_PART: u16 = 0;

/// Lists of versions sent a second. Anyone with the proxy's public key can ask for them, and the clients of a fleet ask
/// every few minutes how far away each proxy is, all of them at once when one proxy dies.
const VERSION_ANSWERS: (u32, u32) = (1_000, 1_000);

/// Tries to draw a free index. With 2^20 of 2^24 in use, all fail once in 2^64.
const DRAWS: usize = 16;

/// More sessions than this are not allowed, whatever the configuration says, nor more than its share for a part; see
/// [`DRAWS`].
const MAX_SESSIONS: usize = 1 << 20;

/// What becomes of a first message.
pub(super) enum Verdict {
    /// Dropped.
    Silence(DropReason),
    /// Answered, without a session. The reason, if it is one to be counted.
    Answer(Vec<u8>, Option<DropReason>),
    /// Answered with a cookie, for the reason given.
    Cookie([u8; COOKIE_ANSWER_LEN], DropReason),
    /// The part of the proxy with this number answers.
    Elsewhere(u16, Question),
    /// Not in the table, with an invitation: the owner is to be asked, then [`Admission::remember`] what came of it.
    Invited(Box<PendingFirst>, InvitationToken),
    /// The owner decides later, and it waits for that.
    Waits,
    /// Answered with a session.
    Admitted(Vec<u8>, Box<Admitted>),
}

/// A session that was granted.
pub(super) struct Admitted {
    pub(super) client: PublicKey,
    pub(super) client_index: SessionIndex,
    pub(super) accept: Accept,
    pub(super) keys: EpochKeys,
    /// How many links the client announced.
    pub(super) links: Option<u8>,
    /// Whether it completes partial checksums.
    pub(super) completes: bool,
    /// Whether it restores the order within flows.
    pub(super) orders_flows: bool,
}

/// What an admitted first message changes.
pub(super) struct Behind<'a> {
    pub(super) peers: &'a mut PeerTable,
    pub(super) sessions: &'a Sessions,
    pub(super) rng: &'a mut StdRng,
}

/// The proxy's admission check.
pub(super) struct Admission {
    share: Share,
    responder: Responder,
    recent: RecentFirstMessages,
    load: Load,
    cookies: Cookies,
    addresses: AddressLimit,
    version_answers: TokenBucket,
    claims: TokenBucket,
    tokens: RetryTokens,
    inner_v4: Option<std::net::Ipv4Addr>,
    inner_v6: Option<std::net::Ipv6Addr>,
    name_servers: NameServers,
    max_sessions: usize,
    rekey_interval: Duration,
    partial_checksums: bool,
    /// Why no session begins, for a while or for good.
    shut: Option<Refusal>,
    speed_tests: bool,
    pub(super) counters: AdmissionCounters,
}

impl Admission {
    pub(super) fn new(
        now: Instant,
        responder: Responder,
        config: &EndpointConfig,
        rng: &mut StdRng,
    ) -> Self {
        let share = config.share;
        Self {
            share,
            responder,
            recent: RecentFirstMessages::new(),
            load: Load::new(now),
            cookies: Cookies::new(now, rng),
            addresses: AddressLimit::new(now, rng),
            version_answers: TokenBucket::new(now, VERSION_ANSWERS.0, VERSION_ANSWERS.1),
            claims: TokenBucket::new(now, CLAIMS.0, CLAIMS.1),
            tokens: RetryTokens::new(now, rng),
            inner_v4: config.inner_v4,
            inner_v6: config.inner_v6,
            name_servers: config.name_servers.clone(),
            max_sessions: config.max_sessions.min(MAX_SESSIONS / usize::from(share.parts())),
            rekey_interval: config.tunnel.rekey_after,
            partial_checksums: config.tunnel.partial_checksums,
            shut: None,
            speed_tests: config.speed.is_some(),
            counters: AdmissionCounters::default(),
        }
    }

    /// From now on no session begins, for this reason; with `None` they do again.
    pub(super) const fn shut(&mut self, reason: Option<Refusal>) {
        self.shut = reason;
    }

    /// First messages kept to answer copies.
    pub(super) fn recent_len(&self) -> usize {
        self.recent.len()
    }

    /// When there are too many first messages, and when there no longer are.
    pub(super) const fn load(&mut self) -> &mut Load {
        &mut self.load
    }

    /// Whether only first messages with a cookie are decrypted, as there are too many.
    pub(super) const fn is_asking_for_cookies(&self) -> bool {
        self.load.is_asking()
    }

    /// When [`Load::handle_timeout`] is due.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.load.poll_timeout()
    }

    /// All steps.
    pub(super) fn handle_first(
        &mut self,
        now: Instant,
        from: SocketAddr,
        datagram: &[u8],
        behind: &mut Behind<'_>,
    ) -> Verdict {
        let first = match self.responder.inspect(datagram) {
            Ok(Inspected::First(first)) => first,
            // Who asks whether a proxy is here wants a session.
            Ok(Inspected::OtherVersion(_)) if self.shut.is_some() => {
                return Verdict::Silence(DropReason::HandshakeUnexpected);
            }
            Ok(Inspected::OtherVersion(asked)) => return self.list_versions(now, &asked),
            Err(error) => return Verdict::Silence(error.into()),
        };
        self.counters.first_messages += 1;
        let digest = first.digest();
        if let Some(verdict) = self.recall(now, digest) {
            return verdict;
        }
        let with_cookie = match self.load.note_first(now) {
            false => false,
            true => match self.ask_for_cookie(now, from, &first, behind.rng) {
                Ok(with_cookie) => with_cookie,
                Err(verdict) => return verdict,
            },
        };
        let pending = match self.responder.read(behind.rng, &first) {
            Ok(pending) => pending,
            // Not authentic: it may push nothing out of the table.
            Err(error) => return Verdict::Silence(error.into()),
        };
        let home = self.share.home(&pending.client);
        if home != self.share.part() {
            let verdict = Verdict::Elsewhere(home, Question::First(Box::new(pending)));
            self.remember(now, digest, &verdict);
            return verdict;
        }
        let client = pending.client;
        let verdict = self.admit(now, pending, behind);
        if matches!(verdict, Verdict::Admitted(..))
            && behind.peers.get_mut(&client).is_some_and(|peer| peer.is_spared(now))
        {
            self.load.give_back(with_cookie);
        }
        verdict
    }

    /// There are too many first messages. Whether this one has a cookie and may be decrypted for that, or by luck without;
    /// else what becomes of it.
    fn ask_for_cookie(
        &mut self,
        now: Instant,
        from: SocketAddr,
        first: &FirstMessage<'_>,
        rng: &mut StdRng,
    ) -> Result<bool, Verdict> {
        let proof = first.proof();
        let digest = first.digest();
        if proof.is_some_and(|proof| self.cookies.is_proof(now, rng, from, &digest, proof)) {
            self.counters.with_cookie += 1;
            if !self.addresses.take(now, from) {
                return Err(Verdict::Silence(DropReason::HandshakeAddressLimited));
            }
            if !self.load.take_with_cookie(now) {
                return Err(Verdict::Silence(DropReason::HandshakeRateLimited));
            }
            return Ok(true);
        }
        if self.load.take_by_luck(now) {
            return Ok(false);
        }
        if !self.load.take_answer(now) {
            return Err(Verdict::Silence(DropReason::HandshakeRateLimited));
        }
        self.counters.cookies += 1;
        let cookie = self.cookies.give(now, rng, from);
        let reason = match proof {
            Some(_) => DropReason::HandshakeWrongCookie,
            None => DropReason::HandshakeNoCookie,
        };
        Err(Verdict::Cookie(self.responder.cookie_answer(first, cookie), reason))
    }

    /// A first message of this digest came before: what became of it, if it is known here.
    pub(super) fn recall(&self, now: Instant, digest: [u8; MAC_LEN]) -> Option<Verdict> {
        let repeated = DropReason::FirstMessageRepeated;
        // The session that an answer may have begun is over when the proxy stops.
        let is_over = self.shut == Some(Refusal::Stopping);
        Some(match self.recent.outcome(now, &digest)? {
            Outcome::Answered(answer) if answer.is_empty() || is_over => Verdict::Silence(repeated),
            Outcome::Answered(answer) => Verdict::Answer(answer.clone(), Some(repeated)),
            Outcome::Handed(to) => Verdict::Elsewhere(*to, Question::Copy(digest)),
        })
    }

    /// The steps from the table on, at the home of the client.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        first: PendingFirst,
        behind: &mut Behind<'_>,
    ) -> Verdict {
        let digest = first.digest();
        if let Some(token) = &first.hello.parameters.invitation
            && !behind.peers.contains(&first.client)
        {
            if !self.claims.take(now) {
                return Verdict::Silence(DropReason::HandshakeRateLimited);
            }
            let token = token.clone();
            if self.share.part() == OWNERS_PART {
                return Verdict::Invited(Box::new(first), token);
            }
            let verdict = Verdict::Elsewhere(OWNERS_PART, Question::Claim(Box::new(first)));
            self.remember(now, digest, &verdict);
            return verdict;
        }
        let verdict = self.decide(now, first, behind);
        self.remember(now, digest, &verdict);
        verdict
    }

    /// A message that was read here did not come to its home: the next round of its client is read again.
    pub(super) fn note_lost(&mut self, now: Instant, digest: &[u8; MAC_LEN]) {
        self.recent.note_lost(now, digest);
    }

    /// Copies of this message get the same answer for some seconds.
    pub(super) fn remember(&mut self, now: Instant, digest: [u8; MAC_LEN], verdict: &Verdict) {
        let outcome = match verdict {
            Verdict::Silence(_) | Verdict::Waits => Outcome::Answered(Vec::new()),
            Verdict::Answer(answer, _) | Verdict::Admitted(answer, _) => {
                Outcome::Answered(answer.clone())
            }
            Verdict::Elsewhere(to, _) => Outcome::Handed(*to),
            // Not decided yet, or not read.
            Verdict::Invited(..) | Verdict::Cookie(..) => return,
        };
        self.recent.insert(now, digest, outcome);
    }

    /// Tells a client that is not in the table, sealed, why its invitation counts no more.
    pub(super) fn refuse_invited(&mut self, first: PendingFirst, refusal: Refusal) -> Verdict {
        self.counters.refusals += 1;
        Verdict::Answer(first.refuse(&PresharedKey::NONE, refusal), Some(DropReason::UnknownClient))
    }

    fn list_versions(&mut self, now: Instant, asked: &OtherVersion<'_>) -> Verdict {
        let answer = self.responder.versions_answer(asked).filter(|_| {
            // Asked last: what gets no answer takes no token.
            self.version_answers.take(now)
        });
        match answer {
            Some(answer) => {
                self.counters.version_answers += 1;
                Verdict::Answer(answer, Some(DropReason::OtherVersion))
            }
            None => Verdict::Silence(DropReason::OtherVersion),
        }
    }

    /// The steps for an authentic first message of a client that should be in the table.
    pub(super) fn decide(
        &mut self,
        now: Instant,
        first: PendingFirst,
        behind: &mut Behind<'_>,
    ) -> Verdict {
        let Behind { peers, sessions, rng } = behind;
        let Some(peer) = peers.get_mut(&first.client) else {
            return Verdict::Silence(DropReason::UnknownClient);
        };
        match first.judge(now, &peer.freshness(), &self.tokens) {
            Freshness::Fresh(record) => peer.set_freshness(record),
            Freshness::Stale => {
                self.counters.retries += 1;
                let answer = first.retry(now, rng, &mut self.tokens);
                return Verdict::Answer(answer, Some(DropReason::FirstMessageStale));
            }
        }
        // Its older sessions make room when this one is used, or soon after.
        let others = sessions.len().saturating_sub(peer.count());
        let heard = peer.session().and_then(|index| sessions.get(index)).map(|s| s.last_heard);
        let displaced = heard.map(|heard| now.since(heard)).filter(|ago| *ago < IN_USE);
        let config = peer.config();
        let granted = if !config.enabled {
            Err(Refusal::Disabled)
        } else if first.hello.parameters.yields && displaced.is_some() {
            Err(Refusal::InUse)
        } else if let Some(reason) = self.shut {
            Err(reason)
        } else if config.inner_v4.is_none() && config.inner_v6.is_none() {
            Err(Refusal::NoAddress)
        } else if others >= self.max_sessions {
            Err(Refusal::Full)
        } else {
            first.cipher().ok_or(Refusal::NoCommonCipher).and_then(|cipher| {
                Ok((cipher, free_index(self.share, sessions, rng).ok_or(Refusal::Full)?))
            })
        };
        let (cipher, index) = match granted {
            Ok(granted) => granted,
            Err(refusal) => {
                self.counters.refusals += 1;
                let reason =
                    (refusal == Refusal::NoCommonCipher).then_some(DropReason::NoCommonCipher);
                return Verdict::Answer(first.refuse(&config.psk, refusal), reason);
            }
        };
        let mut name_servers = self.name_servers.clone();
        if config.inner_v4.is_none() {
            name_servers.v4.clear();
        }
        if config.inner_v6.is_none() {
            name_servers.v6.clear();
        }
        let accept = Accept {
            index,
            cipher,
            inner_v4: config.inner_v4,
            inner_v6: config.inner_v6,
            proxy_v4: self.inner_v4.filter(|_| config.inner_v4.is_some()),
            proxy_v6: self.inner_v6.filter(|_| config.inner_v6.is_some()),
            parameters: Parameters {
                rekey_interval: Some(self.rekey_interval),
                displaced,
                name_servers,
                partial_checksums: self.partial_checksums,
                orders_flows: true,
                speed_tests: self.speed_tests,
                network: config.filter.network.filter(|_| config.inner_v6.is_some()),
                ..Parameters::default()
            },
        };
        self.counters.grants += 1;
        let (client, client_index) = (first.client, first.index);
        let links = first.hello.parameters.links;
        let completes = first.hello.parameters.partial_checksums;
        let orders_flows = first.hello.parameters.orders_flows;
        let (answer, keys) = first.accept(&config.psk, &accept);
        Verdict::Admitted(
            answer,
            Box::new(Admitted {
                client,
                client_index,
                accept,
                keys,
                links,
                completes,
                orders_flows,
            }),
        )
    }
}

/// An index of this part that no session has.
fn free_index(share: Share, sessions: &Sessions, rng: &mut StdRng) -> Option<SessionIndex> {
    (0..DRAWS).map(|_| share.index(rng.next_u32())).find(|index| !sessions.contains(*index))
}
