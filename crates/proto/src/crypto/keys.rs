//! The keys of a session: several epochs to receive under, one to send under.
//!
//! An epoch is one run of the handshake (0) or of a rekey (1, 2, …). A datagram names its epoch
//! modulo 16, the *phase*. The rules (PROTOCOL §6.5):
//!
//! * The initiator sends under a new key as soon as it has it. The responder does so only after an
//!   authentic datagram under it: before that it cannot know that the initiator has the key.
//! * When the first authentic datagram under an epoch comes, all older receive keys get their time to
//!   die: max(3 x the largest one-way-delay spread, 10 s), so that what is in flight on the slowest
//!   link still opens. Until then they live.
//! * An epoch whose phase is still live is not installed: phases never confuse. A rekey every second
//!   keeps 11 or 12 receive keys alive, of at most 16.
//! * Replay windows belong to one key and one link. Asked before the decryption, marked after it.
//! * A link id is claimed once per key, and not while an older live key knows it.

use std::time::Duration;

use super::aead::{CLEAR_LEN, Cipher, OpenError, Opener, SealError, Sealer};
use super::replay::ReplayWindow;
use super::secret::DataKey;
use crate::time::{Instant, earliest};
use crate::units::LinkId;

/// Phases on the wire: the low nibble of a datagram's first byte.
pub(crate) const PHASES: u32 = 16;

/// Old receive keys live at least this long: longer than any reordering or queue that the
/// resequencer would still wait for, short enough for forward secrecy.
pub(crate) const MIN_OLD_KEY_LIFETIME: Duration = Duration::from_secs(10);

/// Which end of the handshake this is; it decides who switches keys first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeRole {
    /// Sent the first message: the client.
    Initiator,
    /// Answered it: the proxy.
    Responder,
}

/// What a handshake or a rekey gives: the keys of one epoch.
#[derive(Clone, Debug)]
pub struct EpochKeys {
    /// 0 for the handshake, then one more for each rekey.
    pub epoch: u32,
    /// The negotiated cipher; the same for the life of the session.
    pub cipher: Cipher,
    /// What this end seals with.
    pub send: DataKey,
    /// What this end opens with.
    pub receive: DataKey,
    /// The handshake hash: equal on both ends, unique to this run. The next rekey is bound to it.
    pub binding: [u8; 32],
}

/// Why the keys of an epoch could not be installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InstallError {
    /// Not the epoch after the newest: a late or repeated rekey. Ignore it.
    #[error("not the next epoch")]
    NotNext,
    /// A receive key of the same phase is still live. Try the rekey again later.
    #[error("the phase of this epoch is still in use")]
    PhaseLive,
}

/// The link id was given before, under this key or under an older one that still lives. Take another
/// ([`KeyRing::free_link`]); if there is none, rekey.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} was already given under a live key")]
pub struct LinkIdUsed(pub LinkId);

/// A datagram that was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The beginning of the buffer that was passed in.
    pub plaintext: &'a mut [u8],
    /// The epoch of its key.
    pub epoch: u32,
}

/// All live keys of a session.
pub struct KeyRing {
    role: HandshakeRole,
    /// By phase.
    receive: [Option<Box<ReceiveKey>>; PHASES as usize],
    newest: u32,
    /// The newest epoch under which the peer was heard.
    confirmed: Option<u32>,
    send: Option<SendKey>,
    /// The responder's next send key, until the initiator was heard under it.
    next_send: Option<SendKey>,
    old_key_lifetime: Duration,
}

struct SendKey {
    epoch: u32,
    sealer: Sealer,
}

struct ReceiveKey {
    epoch: u32,
    opener: Opener,
    /// Sorted by link; made when a link's first authentic datagram comes, so that an idle session
    /// stays small.
    windows: Vec<(LinkId, Box<ReplayWindow>)>,
    /// Link ids given under this epoch.
    links: LinkIds,
    /// When this key dies; `None` while no newer epoch was heard.
    expires: Option<Instant>,
}

impl KeyRing {
    /// The ring after the handshake.
    #[must_use]
    pub fn new(role: HandshakeRole, keys: &EpochKeys) -> Self {
        let mut ring = Self {
            role,
            receive: Default::default(),
            newest: keys.epoch,
            confirmed: None,
            send: None,
            next_send: None,
            old_key_lifetime: MIN_OLD_KEY_LIFETIME,
        };
        ring.put(keys, LinkIds::default());
        ring
    }

    /// Opens one datagram in place: replay check, decryption, then the mark in the window.
    ///
    /// `number` is the full local number (expanded by the caller), `phase` the low nibble of the
    /// first clear byte, `sealed` everything behind the clear bytes. Nothing changes unless the
    /// datagram is authentic (a forgery is counted against the key).
    ///
    /// # Errors
    /// [`OpenError`]; the datagram is to be dropped and counted, and `sealed` means nothing then.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        link: LinkId,
        number: u64,
        phase: u8,
        clear: &[u8; CLEAR_LEN],
        sealed: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        let slot = self.receive.get_mut(usize::from(phase)).and_then(Option::as_mut);
        let key = slot.filter(|key| !key.is_expired(now)).ok_or(OpenError::KeyPhaseUnknown)?;
        let place = key.windows.binary_search_by_key(&link, |(id, _)| *id);
        if let Ok(at) = place {
            key.windows[at].1.check(number)?;
        }
        let plaintext = key.opener.open(link, number, clear, sealed)?;
        let at = place.unwrap_or_else(|at| {
            key.windows.insert(at, (link, Box::default()));
            at
        });
        key.windows[at].1.mark(number);
        let epoch = key.epoch;
        self.confirm(now, epoch);
        Ok(Opened { plaintext, epoch })
    }

    /// Seals one datagram in place under the current send key; see [`Sealer::seal`]. The clear bytes
    /// must carry [`send_phase`](Self::send_phase).
    ///
    /// # Errors
    /// [`SealError`]: the datagram cannot be sent now.
    pub fn seal(
        &mut self,
        link: LinkId,
        number: u64,
        clear: &[u8; CLEAR_LEN],
        buffer: &mut [u8],
    ) -> Result<(), SealError> {
        let send = self.send.as_mut().ok_or(SealError::Unconfirmed)?;
        send.sealer.seal(link, number, clear, buffer)
    }

    /// The epoch that [`seal`](Self::seal) uses; `None` for a responder that was not heard from yet.
    #[must_use]
    pub fn send_epoch(&self) -> Option<u32> {
        self.send.as_ref().map(|send| send.epoch)
    }

    /// The phase for the clear bytes of the next datagram.
    #[must_use]
    pub fn send_phase(&self) -> Option<u8> {
        self.send_epoch().map(phase)
    }

    /// The newest epoch installed.
    #[must_use]
    pub const fn newest_epoch(&self) -> u32 {
        self.newest
    }

    /// Whether the send key has sealed so much that a rekey should start; not while the next key only waits
    /// for the initiator to be heard under it.
    #[must_use]
    pub fn wants_rekey(&self) -> bool {
        self.next_send.is_none() && self.send.as_ref().is_some_and(|send| send.sealer.wants_rekey())
    }

    /// Whether a datagram can be sealed now.
    #[must_use]
    pub fn can_seal(&self) -> bool {
        self.send.as_ref().is_some_and(|send| !send.sealer.is_exhausted())
    }

    /// How many datagrams can be sealed before the send key is worn out.
    #[must_use]
    pub fn seals_left(&self) -> u64 {
        self.send.as_ref().map_or(0, |send| send.sealer.left())
    }

    /// Whether the keys of the next epoch could be installed now. Ask before starting a rekey and
    /// before answering one.
    #[must_use]
    pub fn can_install(&self, now: Instant) -> bool {
        let slot = &self.receive[slot(self.newest.wrapping_add(1))];
        slot.as_ref().is_none_or(|key| key.is_expired(now))
    }

    /// Installs the keys of the next epoch. `live` are the links that go on: their ids are claimed
    /// under the new key too.
    ///
    /// # Errors
    /// `InstallError`; the ring is unchanged then.
    pub fn install(
        &mut self,
        now: Instant,
        keys: &EpochKeys,
        live: impl IntoIterator<Item = LinkId>,
    ) -> Result<(), InstallError> {
        if keys.epoch != self.newest.wrapping_add(1) {
            return Err(InstallError::NotNext);
        }
        if !self.can_install(now) {
            return Err(InstallError::PhaseLive);
        }
        let mut links = LinkIds::default();
        live.into_iter().for_each(|link| links.insert(link));
        self.newest = keys.epoch;
        self.put(keys, links);
        Ok(())
    }

    /// Gives `link` out under the newest key.
    ///
    /// # Errors
    /// `LinkIdUsed` if it was given before under any live key.
    pub fn claim_link(&mut self, now: Instant, link: LinkId) -> Result<(), LinkIdUsed> {
        if self.is_link_used(now, link) {
            return Err(LinkIdUsed(link));
        }
        if let Some(key) = &mut self.receive[slot(self.newest)] {
            key.links.insert(link);
        }
        Ok(())
    }

    /// The lowest link id that may still be given under the newest key; `None`: rekey first.
    #[must_use]
    pub fn free_link(&self, now: Instant) -> Option<LinkId> {
        (0..=u8::MAX).map(LinkId).find(|&link| !self.is_link_used(now, link))
    }

    /// Sets how long old keys live from the largest spread of one-way delays between the links. Keys
    /// that are dying already keep their time.
    pub fn set_delay_spread(&mut self, spread: Duration) {
        self.old_key_lifetime = MIN_OLD_KEY_LIFETIME.max(spread.saturating_mul(3));
    }

    /// When an old key dies.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.receive.iter().flatten().fold(None, |next, key| earliest(next, key.expires))
    }

    /// Forgets the keys that have died. They are refused from that moment on, whether this is called
    /// or not; calling it gives the memory back.
    pub fn handle_timeout(&mut self, now: Instant) {
        for slot in &mut self.receive {
            if slot.as_ref().is_some_and(|key| key.is_expired(now)) {
                *slot = None;
            }
        }
    }

    /// How many receive keys are held.
    #[must_use]
    pub fn live_keys(&self) -> usize {
        self.receive.iter().flatten().count()
    }

    fn put(&mut self, keys: &EpochKeys, links: LinkIds) {
        self.receive[slot(keys.epoch)] = Some(Box::new(ReceiveKey {
            epoch: keys.epoch,
            opener: Opener::new(keys.cipher, &keys.receive),
            windows: Vec::new(),
            links,
            expires: None,
        }));
        let send = SendKey { epoch: keys.epoch, sealer: Sealer::new(keys.cipher, &keys.send) };
        match self.role {
            HandshakeRole::Initiator => self.send = Some(send),
            HandshakeRole::Responder => self.next_send = Some(send),
        }
    }

    /// The peer was heard under `epoch`.
    fn confirm(&mut self, now: Instant, epoch: u32) {
        if self.confirmed.is_some_and(|confirmed| confirmed >= epoch) {
            return;
        }
        self.confirmed = Some(epoch);
        if self.next_send.as_ref().is_some_and(|send| send.epoch == epoch) {
            self.send = self.next_send.take();
        }
        let dies = now + self.old_key_lifetime;
        for key in self.receive.iter_mut().flatten().filter(|key| key.epoch < epoch) {
            key.expires.get_or_insert(dies);
        }
    }

    fn is_link_used(&self, now: Instant, link: LinkId) -> bool {
        self.receive.iter().flatten().any(|key| !key.is_expired(now) && key.links.contains(link))
    }
}

#[cfg(test)]
impl KeyRing {
    /// Lets the present send key seal only so many more datagrams.
    pub(crate) fn allow_seals(&mut self, more: u64) {
        if let Some(send) = &mut self.send {
            send.sealer.set_limit(send.sealer.sealed() + more);
        }
    }
}

impl ReceiveKey {
    fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

/// The phase of an epoch on the wire.
#[must_use]
pub(crate) const fn phase(epoch: u32) -> u8 {
    (epoch % PHASES) as u8
}

const fn slot(epoch: u32) -> usize {
    phase(epoch) as usize
}

/// 256 bits, one a link id.
#[derive(Clone, Copy, Default)]
struct LinkIds([u64; 4]);

impl LinkIds {
    fn insert(&mut self, link: LinkId) {
        self.0[usize::from(link.0 / 64)] |= 1 << (link.0 % 64);
    }

    fn contains(&self, link: LinkId) -> bool {
        self.0[usize::from(link.0 / 64)] & 1 << (link.0 % 64) != 0
    }
}

#[cfg(test)]
mod tests;
