//! The side that answers: the proxy.

use rand::{CryptoRng, RngCore};
use snow::HandshakeState;

use super::prologue;
use crate::crypto::aead::{Cipher, CipherSet};
use crate::crypto::cookie::Cookie;
use crate::crypto::freshness::{Freshness, FreshnessRecord, RetryTokens, TOKEN_LEN};
use crate::crypto::keys::{EpochKeys, HandshakeRole};
use crate::crypto::mac::HelloMac;
use crate::crypto::noise;
use crate::crypto::secret::StaticSecret;
use crate::error::DropReason;
use crate::time::Instant;
use crate::units::SessionIndex;
use crate::wire::hello::answer::{self, Accept, RESPONSE_LEN, Refusal};
use crate::wire::hello::first::ClientHello;
use crate::wire::hello::{
    ENVELOPE_LEN, FIRST_LEN, Hello, HelloKind, MAC_LEN, MAX_VERSIONS, VERSION, VERSIONS, envelope,
    index_bytes, set_mac,
};
use ropewalk_settings::{PresharedKey, PublicKey};

/// Bytes of an answer with a cookie.
pub const COOKIE_ANSWER_LEN: usize = ENVELOPE_LEN + MAC_LEN;

const _: () = assert!(ENVELOPE_LEN + TOKEN_LEN <= FIRST_LEN);
const _: () = assert!(COOKIE_ANSWER_LEN <= FIRST_LEN);
const _: () = assert!(VERSIONS.len() <= MAX_VERSIONS);

/// Why a first message was dropped. Always: drop, count, keep no state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FirstError {
    /// Too short, or of no handshake type. Silence.
    #[error("not a handshake datagram")]
    Malformed,
    /// An answer; a responder never gets one (a reflection, perhaps). Silence.
    #[error("not a first message")]
    Unexpected,
    /// mac1 is wrong: the sender does not know our public key. Silence.
    #[error("made for another public key")]
    WrongMac,
    /// It does not decrypt: altered, or not made by the owner of the static key it names. Silence.
    #[error("not authentic")]
    NotAuthentic,
    /// Authentic, but its content breaks the format. Silence.
    #[error("its content breaks the format")]
    BadContent,
    /// Authentic, but the client speaks a newer version that we speak too: someone talked it down.
    /// Silence; the client falls back to asking in its newest version.
    #[error("in an older version than both ends speak")]
    Downgrade,
}

impl From<FirstError> for DropReason {
    fn from(error: FirstError) -> Self {
        match error {
            FirstError::Malformed => Self::HandshakeMalformed,
            FirstError::Unexpected => Self::HandshakeUnexpected,
            FirstError::WrongMac => Self::WrongMac,
            FirstError::NotAuthentic => Self::HandshakeNotAuthentic,
            FirstError::BadContent => Self::HandshakeBadContent,
            FirstError::Downgrade => Self::HandshakeDowngrade,
        }
    }
}

/// A proxy's identity: answers first messages, keeps nothing of them.
#[derive(Clone, Debug)]
pub struct Responder {
    local: StaticSecret,
    mac: HelloMac,
    ciphers: CipherSet,
}

/// A datagram whose mac1 is right: its sender knows our public key.
#[derive(Clone, Copy, Debug)]
pub enum Inspected<'a> {
    /// In our version.
    First(FirstMessage<'a>),
    /// In another version; count [`DropReason::OtherVersion`].
    OtherVersion(OtherVersion<'a>),
}

/// A first message in our version with a right mac1. Not authentic yet.
#[derive(Clone, Copy, Debug)]
pub struct FirstMessage<'a>(Hello<'a>);

impl FirstMessage<'_> {
    /// What tells this message from every other.
    #[must_use]
    pub const fn digest(&self) -> [u8; MAC_LEN] {
        self.0.mac
    }

    /// The client's index, as claimed.
    #[must_use]
    pub const fn index(&self) -> SessionIndex {
        self.0.index
    }

    /// What it has to show that it comes from a client with a cookie.
    #[must_use]
    pub const fn proof(&self) -> Option<&[u8; MAC_LEN]> {
        self.0.proof.as_ref()
    }
}

/// A first message in a version that we do not speak, with a right mac1.
#[derive(Clone, Copy, Debug)]
pub struct OtherVersion<'a>(Hello<'a>);

impl OtherVersion<'_> {
    /// The version it is written in.
    #[must_use]
    pub const fn version(&self) -> u8 {
        self.0.version
    }
}

/// An authentic first message: the client with this key made it, now or once.
pub struct PendingFirst {
    /// Who asks. Look it up before anything else.
    pub client: PublicKey,
    /// What it says.
    pub hello: ClientHello,
    /// By which it knows the session's datagrams.
    pub index: SessionIndex,
    state: HandshakeState,
    question: [u8; MAC_LEN],
    mac: HelloMac,
    ciphers: CipherSet,
}

impl Responder {
    /// A responder with this identity that uses these ciphers.
    #[must_use]
    pub fn new(local: StaticSecret, ciphers: CipherSet) -> Self {
        let mac = HelloMac::new(&local.public());
        Self { local, mac, ciphers }
    }

    /// Looks at a datagram of a handshake type: the only work that a stranger can cause.
    ///
    /// # Errors
    /// [`FirstError::Malformed`], [`FirstError::Unexpected`], [`FirstError::WrongMac`].
    pub fn inspect<'a>(&self, datagram: &'a [u8]) -> Result<Inspected<'a>, FirstError> {
        let hello = Hello::parse(datagram).map_err(|_| FirstError::Malformed)?;
        if hello.kind != HelloKind::First {
            return Err(FirstError::Unexpected);
        }
        if hello.version == VERSION && hello.len() < FIRST_LEN {
            return Err(FirstError::Malformed);
        }
        if !self.mac.is_first(&hello) {
            return Err(FirstError::WrongMac);
        }
        if hello.version != VERSION {
            return Ok(Inspected::OtherVersion(OtherVersion(hello)));
        }
        Ok(Inspected::First(FirstMessage(hello)))
    }

    /// Asks for proof that the sender is at its address, which this cookie is for.
    #[must_use]
    pub fn cookie_answer(
        &self,
        first: &FirstMessage<'_>,
        cookie: Cookie,
    ) -> [u8; COOKIE_ANSWER_LEN] {
        let Hello { index, mac: question, .. } = &first.0;
        let mut answer = [0; COOKIE_ANSWER_LEN];
        answer[..2].copy_from_slice(&[HelloKind::Cookie.first_byte(), VERSION]);
        answer[2..5].copy_from_slice(&index_bytes(*index));
        answer[ENVELOPE_LEN..].copy_from_slice(&self.mac.cover(question, cookie.to_bytes()));
        let bound = Hello::parse(&answer).map(|hello| self.mac.answer(question, &hello));
        set_mac(&mut answer, &bound.expect("it begins with an envelope"));
        answer
    }

    /// The one answer to a question in another version: the versions we speak. `None` if it would be
    /// longer than the question. The caller limits how often.
    #[must_use]
    pub fn versions_answer(&self, asked: &OtherVersion<'_>) -> Option<Vec<u8>> {
        let mut body = vec![u8::try_from(VERSIONS.len()).expect("at most MAX_VERSIONS")];
        body.extend_from_slice(VERSIONS);
        let hello = &asked.0;
        let answer = seal_answer(&self.mac, HelloKind::Versions, 0, hello.index, &hello.mac, &body);
        (answer.len() <= hello.len()).then_some(answer)
    }

    /// Decrypts a first message: two Diffie-Hellman operations.
    ///
    /// # Errors
    /// [`FirstError::NotAuthentic`], [`FirstError::BadContent`], [`FirstError::Downgrade`].
    pub fn read<R: RngCore + CryptoRng>(
        &self,
        rng: &mut R,
        first: &FirstMessage<'_>,
    ) -> Result<PendingFirst, FirstError> {
        let message = &first.0;
        let mut state = noise::responder(rng, &self.local, &prologue(message.head()));
        let payload =
            noise::read(&mut state, message.body()).map_err(|_| FirstError::NotAuthentic)?;
        let client = noise::remote_static(&state).ok_or(FirstError::NotAuthentic)?;
        let hello = ClientHello::parse(&payload).map_err(|_| FirstError::BadContent)?;
        if VERSIONS.iter().any(|&ours| ours > VERSION && ours <= hello.newest_version) {
            return Err(FirstError::Downgrade);
        }
        Ok(PendingFirst {
            client,
            hello,
            index: message.index,
            state,
            question: message.mac,
            mac: self.mac.clone(),
            ciphers: self.ciphers,
        })
    }
}

impl PendingFirst {
    /// What tells the message from every other; that of [`FirstMessage::digest`].
    #[must_use]
    pub const fn digest(&self) -> [u8; MAC_LEN] {
        self.question
    }

    /// Whether the message is fresh, going by what is known of this client.
    #[must_use]
    pub fn judge(&self, now: Instant, record: &FreshnessRecord, tokens: &RetryTokens) -> Freshness {
        let token = self.hello.token.as_ref();
        let issued = token.and_then(|token| tokens.issued(now, token, &self.client, self.index));
        record.judge(&self.hello, issued)
    }

    /// Asks for proof that the message is fresh.
    pub fn retry<R: RngCore + CryptoRng>(
        &self,
        now: Instant,
        rng: &mut R,
        tokens: &mut RetryTokens,
    ) -> Vec<u8> {
        let token = tokens.issue(now, rng, &self.client, self.index).to_bytes();
        seal_answer(&self.mac, HelloKind::Retry, VERSION, self.index, &self.question, &token)
    }

    /// The best cipher of both ends; `None`: [`refuse`](Self::refuse) with
    /// [`Refusal::NoCommonCipher`].
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        self.ciphers.choose(self.hello.ciphers)
    }

    /// Grants a session. Returns the response and the keys of epoch 0.
    #[must_use]
    pub fn accept(self, psk: &PresharedKey, accept: &Accept) -> (Vec<u8>, EpochKeys) {
        let (answer, mut state) = self.respond(psk, &answer::accept_bytes(accept));
        (answer, noise::split(&mut state, HandshakeRole::Responder, 0, accept.cipher))
    }

    /// Refuses a session, sealed: only the client learns why.
    #[must_use]
    pub fn refuse(self, psk: &PresharedKey, refusal: Refusal) -> Vec<u8> {
        self.respond(psk, &answer::refusal_bytes(refusal)).0
    }

    fn respond(mut self, psk: &PresharedKey, payload: &[u8]) -> (Vec<u8>, HandshakeState) {
        noise::set_psk(&mut self.state, psk);
        let mut message = Vec::with_capacity(RESPONSE_LEN);
        noise::write(&mut self.state, payload, &mut message);
        let (index, question) = (self.index, self.question);
        let answer =
            seal_answer(&self.mac, HelloKind::Response, VERSION, index, &question, &message);
        debug_assert_eq!(answer.len(), RESPONSE_LEN);
        (answer, self.state)
    }
}

/// A whole answer: envelope, body, and the mac that binds it to the question.
fn seal_answer(
    mac: &HelloMac,
    kind: HelloKind,
    version: u8,
    index: SessionIndex,
    question: &[u8; MAC_LEN],
    body: &[u8],
) -> Vec<u8> {
    let mut answer = envelope(kind, version, index);
    answer.extend_from_slice(body);
    let bound = Hello::parse(&answer).map(|hello| mac.answer(question, &hello));
    set_mac(&mut answer, &bound.expect("it begins with an envelope"));
    answer
}
