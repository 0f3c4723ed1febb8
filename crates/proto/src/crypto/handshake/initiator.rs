//! The side that asks: the client.

use arrayvec::ArrayVec;
use rand::{CryptoRng, RngCore};
use snow::HandshakeState;

use super::prologue;
use crate::crypto::aead::CipherSet;
use crate::crypto::cookie::Cookie;
use crate::crypto::freshness::{RetryToken, TOKEN_LEN, Timestamp};
use crate::crypto::keys::{EpochKeys, HandshakeRole};
use crate::crypto::mac::HelloMac;
use crate::crypto::noise;
use crate::crypto::secret::StaticSecret;
use crate::error::DropReason;
use crate::units::SessionIndex;
use crate::wire::hello::answer::{self, Accept, Refusal};
use crate::wire::hello::first::ClientHello;
use crate::wire::hello::parameters::Parameters;
use crate::wire::hello::{
    FIRST_LEN, Hello, HelloKind, MAC_LEN, MAX_VERSIONS, VERSION, VERSIONS, envelope, set_mac,
};
use ropewalk_settings::{PresharedKey, PublicKey};

/// What an initiator needs to know; the same for every attempt.
#[derive(Clone, Debug)]
pub struct InitiatorConfig {
    /// The client's identity.
    pub local: StaticSecret,
    /// The proxy's public key.
    pub remote: PublicKey,
    /// The secret they share beside, or [`PresharedKey::NONE`].
    pub psk: PresharedKey,
    /// The ciphers to offer.
    pub ciphers: CipherSet,
    /// The parameters to wish for.
    pub parameters: Parameters,
}

/// One attempt at a session: one first message, sent over all links and again until answered.
pub struct Initiator {
    state: HandshakeState,
    mac: HelloMac,
    index: SessionIndex,
    ciphers: CipherSet,
    message: Vec<u8>,
    question: [u8; MAC_LEN],
    is_done: bool,
}

/// A session, as the client gets it.
#[derive(Clone, Debug)]
pub struct Established {
    /// The keys of epoch 0.
    pub keys: EpochKeys,
    /// What the proxy gives.
    pub accept: Accept,
}

/// What an answer says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A session. The client sends a datagram under the keys at once: before that the proxy may not.
    Established(Box<Established>),
    /// The proxy knows us and refuses, authentically. Try again later, and show the reason.
    Refused(Refusal),
    /// The proxy wants proof of freshness: start a new attempt with this token and the same index. It
    /// may be forged by an observer, so this attempt stays valid, and a caller starts at most one new
    /// attempt for each.
    Retry(RetryToken),
    /// The proxy has much to do, and wants proof that the question came from the address that this answer went to: the
    /// same message again, from there, with the proof. It may be forged by an observer, so the attempt stays valid, and a
    /// caller limits how often it obeys.
    Cookie(Cookie),
    /// The proxy says that it speaks only these versions. It may be forged by an observer, so this
    /// attempt stays valid; show it if no session comes about.
    Versions(ArrayVec<u8, MAX_VERSIONS>),
}

/// Why an answer was not one. Always: drop, count, go on waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// Too short, or of no handshake type. Drop, count.
    #[error("not a handshake datagram")]
    Malformed,
    /// A first message (a reflection, perhaps our own), or an answer after the session was
    /// established (it came over several links). Drop, count.
    #[error("not an answer this attempt waits for")]
    Unexpected,
    /// It answers another question, or was made without seeing ours. Drop, count.
    #[error("not an answer to this question")]
    WrongMac,
    /// A response in a version that we did not ask in. Drop, count.
    #[error("in another version")]
    OtherVersion,
    /// It does not decrypt: altered, another proxy, or another preshared key. Drop, count; if nothing
    /// else comes, the two ends' preshared keys differ.
    #[error("not authentic: altered, or the preshared keys differ")]
    NotAuthentic,
    /// Its content breaks the format or chooses what was not offered. Drop, count. An authentic
    /// response with such content ends the attempt.
    #[error("its content breaks the format")]
    BadContent,
}

impl From<AnswerError> for DropReason {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Malformed => Self::HandshakeMalformed,
            AnswerError::Unexpected => Self::HandshakeUnexpected,
            AnswerError::WrongMac => Self::AnswerWrongMac,
            AnswerError::OtherVersion => Self::OtherVersion,
            AnswerError::NotAuthentic => Self::HandshakeNotAuthentic,
            AnswerError::BadContent => Self::HandshakeBadContent,
        }
    }
}

impl Initiator {
    /// Begins an attempt. `index` is by which the client will know the session's datagrams; `time` is
    /// the wall clock's and should be later than in every attempt before; `token` is the answer to a
    /// retry.
    #[must_use]
    pub fn new<R: RngCore + CryptoRng>(
        config: &InitiatorConfig,
        rng: &mut R,
        index: SessionIndex,
        time: Timestamp,
        token: Option<RetryToken>,
    ) -> Self {
        let hello = ClientHello {
            timestamp: time,
            ciphers: config.ciphers,
            newest_version: VERSIONS.iter().copied().max().unwrap_or(VERSION),
            token,
            parameters: config.parameters.clone(),
        };
        let mac = HelloMac::new(&config.remote);
        let mut message = envelope(HelloKind::First, VERSION, index);
        let head = prologue(&message[..8]);
        let mut state = noise::initiator(rng, &config.local, &config.remote, &config.psk, &head);
        noise::write(&mut state, &hello.to_bytes(), &mut message);
        debug_assert_eq!(message.len(), FIRST_LEN);
        let question = Hello::parse(&message).map(|hello| mac.first(&hello));
        let question = question.expect("it begins with an envelope");
        set_mac(&mut message, &question);
        let ciphers = config.ciphers;
        Self { state, mac, index, ciphers, message, question, is_done: false }
    }

    /// The first message: these very bytes go over every link, and again when no answer comes (for up
    /// to `recent::LIFETIME`; then begin a new attempt).
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// What [`message`](Self::message) ends with where it goes by an address that there is a cookie for.
    #[must_use]
    pub fn proof(&self, cookie: &Cookie) -> [u8; MAC_LEN] {
        cookie.prove(&self.question)
    }

    /// The client's index.
    #[must_use]
    pub const fn index(&self) -> SessionIndex {
        self.index
    }

    /// Takes a datagram that may be an answer.
    ///
    /// # Errors
    /// [`AnswerError`]: the attempt is as if the datagram had not come.
    pub fn handle_answer(&mut self, datagram: &[u8]) -> Result<Answer, AnswerError> {
        let hello = Hello::parse(datagram).map_err(|_| AnswerError::Malformed)?;
        if self.is_done || hello.kind == HelloKind::First {
            return Err(AnswerError::Unexpected);
        }
        if hello.index != self.index || !self.mac.is_answer(&self.question, &hello) {
            return Err(AnswerError::WrongMac);
        }
        if hello.kind == HelloKind::Versions {
            return read_versions(hello.body());
        }
        if hello.version != VERSION {
            return Err(AnswerError::OtherVersion);
        }
        if hello.kind == HelloKind::Cookie {
            let covered = hello.body().first_chunk().ok_or(AnswerError::BadContent)?;
            let cookie = Cookie::from_bytes(self.mac.cover(&self.question, *covered));
            return Ok(Answer::Cookie(cookie));
        }
        if hello.kind == HelloKind::Retry {
            let token: &[u8; TOKEN_LEN] =
                hello.body().first_chunk().ok_or(AnswerError::BadContent)?;
            return Ok(Answer::Retry(RetryToken::from_bytes(token)));
        }
        let payload =
            noise::read(&mut self.state, hello.body()).map_err(|_| AnswerError::NotAuthentic)?;
        // The Noise state has moved on: whatever the payload holds, this attempt has had its answer.
        self.is_done = true;
        match answer::parse(&payload).map_err(|_| AnswerError::BadContent)? {
            Err(refusal) => Ok(Answer::Refused(refusal)),
            Ok(accept) if !self.ciphers.contains(accept.cipher) => Err(AnswerError::BadContent),
            Ok(accept) => {
                let keys =
                    noise::split(&mut self.state, HandshakeRole::Initiator, 0, accept.cipher);
                Ok(Answer::Established(Box::new(Established { keys, accept })))
            }
        }
    }
}

/// A count and as many versions; what follows is ignored.
fn read_versions(body: &[u8]) -> Result<Answer, AnswerError> {
    let (&count, rest) = body.split_first().ok_or(AnswerError::BadContent)?;
    let versions = rest.get(..usize::from(count)).ok_or(AnswerError::BadContent)?;
    Ok(Answer::Versions(versions.iter().copied().take(MAX_VERSIONS).collect()))
}
