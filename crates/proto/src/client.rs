//! The client: its links, the search for a session, and the tunnel while there is one.
//!
//! | has | asks for a session | because |
//! | --- | --- | --- |
//! | no session | at once, then by the ladder of `asking` | it needs one |
//! | a session | when a link went down and the others stay silent too, or nothing came up in time | the proxy may have forgotten it |
//! | a session, and the answer | not yet: asks the session once more, on the path that answered | it may have been the network |
//! | a session | no, and stops asking; for a while if no link is up | something authentic came |
//!
//! The first answer that counts makes a new tunnel, which takes the place of an old one; what the old one
//! had counted is kept ([`ClientStats`]). The links belong to the client: each tunnel gets all of them.
//!
//! Contract: as for a [`Tunnel`](crate::tunnel::Tunnel): after any `handle_*` call, [`Client::poll_transmit`] until it leaves
//! room in the batch, [`Client::poll_event`] until it has none, and one timer for
//! [`Client::poll_timeout`].

mod asking;
mod cookies;
mod links;
mod moving;
mod session;
mod snapshot;
mod speed;
mod state;

use std::collections::VecDeque;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use asking::{Asking, Origin, Outcome};
use cookies::CookieJar;
use links::LinkTable;
use session::Session;
use snapshot::Totals;

pub use links::SetLinkError;
pub use snapshot::{ClientLinkStats, ClientStats, HandshakeCounters};
pub use state::{ClientState, Trouble};

use ropewalk_settings::{InvitationToken, LinkPolicy, PresharedKey, PublicKey, Scheduling};

use crate::config::{LinkConfig, TunnelConfig};
use crate::crypto::aead::CipherSet;
use crate::crypto::handshake::Established;
use crate::crypto::secret::StaticSecret;
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::event::{DownReason, EndReason, Event, SessionInfo};
use crate::left::Left;
use crate::path::Path;
use crate::sink::{PacketSink, TransmitSink};
use crate::time::{Duration, Instant};
use crate::timer::{Timer, Wakeup, sooner};
use crate::tunnel::Flows;
use crate::units::{LinkId, SessionIndex};
use crate::wire::frame::CloseReason;
use crate::wire::header::{Clear, kind_of, steering_index};
use crate::wire::hello::answer::Refusal;
use crate::wire::hello::{HelloKind, VERSIONS};

/// After an authentic refusal: an administrator has to act first.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// After a proxy that drains refused: as often as one that is silent is asked in the end. It serves again without a word.
const DRAINING_PAUSE: Duration = Duration::from_secs(15);
/// After the proxy said that it stops: it probably restarts.
const SHUTDOWN_PAUSE: Duration = Duration::from_secs(1);
/// After another machine took over with the same key, for as long as it is there: this one yields.
const REPLACED_PAUSE: Duration = Duration::from_secs(60);
/// After the proxy's owner took the key out: only he can put it in again.
const REMOVED_PAUSE: Duration = Duration::from_secs(60);
/// After the proxy closed for a reason that we do not know.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(5);
/// A session whose links do not come up in this time may be unknown to the proxy: three tries to join,
/// over a satellite.
const JOIN_PATIENCE: Duration = Duration::from_secs(3);

/// After the machine stood still the links have this long to show that the proxy knows the session: two round trips of most
/// links, and short against a person's patience.
const RESUME_PATIENCE: Duration = Duration::from_millis(300);

/// A link as the owner of the client names it, for instance by the interface's index. It stays the same
/// over sessions and changes of address, unlike a [`LinkId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkKey(pub u32);

/// What a client needs to know.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// How the tunnel behaves.
    pub tunnel: TunnelConfig,
    /// The client's identity.
    pub secret: StaticSecret,
    /// The proxy's public key.
    pub proxy: PublicKey,
    /// What they share beside, or [`PresharedKey::NONE`].
    pub psk: PresharedKey,
    /// What lets this client in where the proxy does not know its key yet; forgotten with the first session.
    pub invitation: Option<InvitationToken>,
    /// The data ciphers to offer; see [`CipherSet::offered`].
    pub ciphers: CipherSet,
    /// The wall clock's time since 1970 at [`Instant::ZERO`]. Only needs to grow from run to run; a
    /// clock that went back costs one more round trip.
    pub wall_clock: Duration,
}

/// An [`Event`], with the link it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientEvent {
    /// Which link, if the event is about one.
    pub link: Option<LinkKey>,
    /// What happened.
    pub event: Event,
}

/// Whether a session is being sought.
enum Seek {
    /// No: there is one that answers, or there is nothing to ask over.
    Idle,
    /// Soon.
    At(Instant),
    /// Yes.
    Asking(Box<Asking>),
    /// There is one, which takes the place of the present one then, unless that answers.
    Answered(Instant, Box<Answered>),
}

/// A session that the proxy gave.
struct Answered {
    /// By which this end knows it.
    index: SessionIndex,
    /// Where the answer came.
    path: Path,
    established: Established,
}

/// The client's end.
pub struct Client {
    tunnel: TunnelConfig,
    origin: Origin,
    rng: StdRng,
    links: LinkTable,
    session: Option<Session>,
    /// What senders of TCP were told by the session that is over.
    left: Left,
    seek: Seek,
    cookies: CookieJar,
    closed: bool,
    trouble: Option<Trouble>,
    /// Since when a session is missing while there is a link to ask over.
    asking_since: Instant,
    /// Sum over the sessions that are over.
    totals: Totals,
    counters: HandshakeCounters,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// A client without links. `seed` must be unpredictable: ephemeral keys are drawn from it.
    #[must_use]
    pub fn new(now: Instant, config: ClientConfig, seed: [u8; 32]) -> Self {
        Self {
            tunnel: config.tunnel.clone(),
            origin: Origin::new(config),
            rng: StdRng::from_seed(seed),
            links: LinkTable::default(),
            session: None,
            left: Left::default(),
            seek: Seek::At(now),
            cookies: CookieJar::default(),
            closed: false,
            trouble: None,
            asking_since: now,
            totals: Totals::default(),
            counters: HandshakeCounters::default(),
            events: VecDeque::new(),
        }
    }

    /// Adds a link, changes it, or (with `None`) takes it out. A changed link gets a new id, so what was
    /// known of its path is no more than a first guess. `sink` takes packets that waited for the old link.
    ///
    /// # Errors
    /// [`SetLinkError`]; nothing changes then.
    pub fn set_link(
        &mut self,
        now: Instant,
        key: LinkKey,
        config: Option<LinkConfig>,
        sink: &mut impl PacketSink,
    ) -> Result<(), SetLinkError> {
        let had_links = !self.links.is_empty();
        let before = match config {
            Some(config) => self.links.set(key, config)?,
            None => self.links.remove(key),
        };
        self.note_links();
        let links = &self.links;
        self.cookies.retain(|path| links.paths(true).any(|known| known == *path));
        self.join_links(now);
        if let (Some(id), Some(session)) = (before, &mut self.session) {
            self.totals.keep_link(key, &session.tunnel, id);
            self.totals.forget_links(|key| self.links.contains(key));
            session.tunnel.remove_link(now, id, sink);
            self.take_events(now, Some((id, key)));
            self.join_links(now);
        }
        if !had_links && self.session.is_none() {
            self.asking_since = now;
        }
        match (&mut self.seek, &self.session) {
            _ if self.closed => {}
            (Seek::Asking(_), _) if self.links.is_empty() => self.seek = Seek::At(now),
            (Seek::Asking(asking), _) => asking.restart(now),
            // A session that this link's peer has forgotten would never answer its join.
            (Seek::Idle, Some(session)) if session.up.is_empty() => {
                self.seek = Seek::At(now + JOIN_PATIENCE);
            }
            _ => {}
        }
        Ok(())
    }

    /// Another policy for a link that there is, from now on and for sessions to come: the link stays what it is, and the
    /// proxy is told.
    pub fn set_policy(&mut self, key: LinkKey, policy: LinkPolicy) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.config.policy.clone_from(&policy);
        if let (Some(id), Some(session)) = (link.id, &mut self.session) {
            session.tunnel.set_policy(id, policy);
        }
        self.note_links();
    }

    /// A packet came from the TUN. Without a session it is dropped and counted. `sink` takes what its
    /// sender has to be told.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        match &mut self.session {
            Some(session) => session.tunnel.handle_packet(now, packet, sink),
            None => self.totals.drops.count(DropReason::NoSession),
        }
    }

    /// The same for a TCP or UDP packet whose checksum is partial.
    pub fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        match &mut self.session {
            Some(session) => session.tunnel.handle_partial(now, packet, sink),
            None => self.totals.drops.count(DropReason::NoSession),
        }
    }

    /// A datagram came from a socket: an answer, or one of the session's.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        let Some(&first) = datagram.first() else {
            return self.totals.drops.count(DropReason::DatagramMalformed);
        };
        if HelloKind::from_first_byte(first).is_some() {
            return self.handle_answer(now, path, datagram);
        }
        if kind_of(first).is_none() {
            return self.totals.drops.count(DropReason::DatagramMalformed);
        }
        let index = steering_index(datagram);
        let session = self.session.as_mut().filter(|session| Some(session.info.index) == index);
        let Some(session) = session else {
            return self.totals.drops.count(DropReason::UnknownSession);
        };
        if session.tunnel.handle_datagram(now, path, ecn, datagram, sink) {
            let link = Clear::parse(datagram).ok().and_then(|clear| self.links.key_of(clear.link));
            self.take_events(now, None);
            if let (Some(_), Some(session), false) = (link, &self.session, self.closed) {
                // The proxy has the session, and reaches us on a link that we have: nothing to ask for.
                // With none up we do not reach it, and it will forget the session.
                self.seek = match session.up.is_empty() {
                    true => Seek::At(now + JOIN_PATIENCE),
                    false => Seek::Idle,
                };
            }
        }
    }

    /// The kernel refused a datagram on this path, for want of the interface, the address or a route: what is under way there
    /// goes over the other links.
    pub fn on_send_refused(&mut self, now: Instant, path: Path) {
        if let Some(session) = &mut self.session {
            session.tunnel.on_send_refused(now, path);
        }
    }

    /// All datagrams that were received together are in.
    pub fn end_of_batch(&mut self, now: Instant) {
        if let Some(session) = &mut self.session {
            session.tunnel.end_of_batch(now);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.left.handle_timeout(now, sink);
        if let Some(session) = &mut self.session {
            session.tunnel.handle_timeout(now, sink);
            self.take_events(now, None);
            // An old key may have died just now, and set link ids free.
            self.join_links(now);
        }
        match &mut self.seek {
            Seek::At(at) if *at <= now && !self.links.is_empty() => {
                self.counters.attempts += 1;
                let taken = self.session.as_ref().map(|session| session.info.index);
                let asking = Asking::begin(now, &self.origin, &mut self.rng, taken);
                self.seek = Seek::Asking(Box::new(asking));
            }
            Seek::Asking(asking) => asking.handle_timeout(now, &self.origin, &mut self.rng),
            Seek::Answered(at, _) if *at <= now => {
                if let Seek::Answered(_, answered) = std::mem::replace(&mut self.seek, Seek::Idle) {
                    self.start_session(now, *answered);
                }
            }
            Seek::At(_) | Seek::Answered(..) | Seek::Idle => {}
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and why. Early calls are harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let seek = match &self.seek {
            Seek::At(at) if !self.links.is_empty() => Some(*at),
            Seek::Asking(asking) => Some(asking.poll_timeout()),
            Seek::Answered(at, _) => Some(*at),
            Seek::At(_) | Seek::Idle => None,
        };
        let tunnel = self.session.as_ref().and_then(|session| session.tunnel.poll_timeout());
        let left = self.left.poll_timeout().map(|at| (at, Timer::LocalAcknowledgement));
        sooner(sooner(seek.map(|at| (at, Timer::Handshake)), left), tunnel)
    }

    /// Fills the batch with all that may be sent now. Call again after a flush until it leaves room.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        if let Seek::Asking(asking) = &mut self.seek
            && !asking.poll_transmit(now, &self.links, &self.cookies, &mut self.counters, out)
        {
            return;
        }
        if let Some(session) = &mut self.session {
            session.tunnel.poll_transmit(now, out);
            if session.tunnel.is_closed() {
                // The proxy may have begun it.
                self.take_events(now, None);
                self.end_session(now, EndReason::Stopped);
            }
        }
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Ends the session, within a second: what waits goes out, and the proxy is told and answers. Asks for no
    /// other.
    pub fn close(&mut self, now: Instant) {
        (self.closed, self.seek) = (true, Seek::Idle);
        if let Some(session) = &mut self.session {
            session.tunnel.close(now);
        }
    }

    /// Whether nothing is left to say or to hear after [`close`](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed && self.session.is_none()
    }

    /// The present session.
    #[must_use]
    pub fn session(&self) -> Option<&SessionInfo> {
        self.session.as_ref().map(|session| &session.info)
    }

    /// How it stands with the session, and if there is none, why.
    #[must_use]
    pub fn state(&self) -> ClientState {
        let trouble = || self.trouble.clone().unwrap_or(Trouble::NoAnswer);
        match (&self.session, &self.seek) {
            _ if self.closed => ClientState::Closed,
            _ if self.links.is_empty() => ClientState::NoLinks,
            (Some(session), _) if !session.up.is_empty() => {
                ClientState::Connected { since: session.since }
            }
            (Some(session), _) if session.was_up => {
                ClientState::Stalled { since: session.changed, trouble: trouble() }
            }
            (Some(session), _) => ClientState::Joining { since: session.since },
            (None, Seek::At(until)) if self.trouble.is_some() => {
                ClientState::Waiting { until: *until, trouble: trouble() }
            }
            (None, _) => ClientState::Asking { since: self.asking_since, trouble: trouble() },
        }
    }

    fn tell(&mut self, link: Option<LinkKey>, event: Event) {
        self.events.push_back(ClientEvent { link, event });
    }

    /// A datagram of a handshake type came.
    fn handle_answer(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        let Seek::Asking(asking) = &mut self.seek else {
            return self.totals.drops.count(DropReason::HandshakeUnexpected);
        };
        match asking.handle_answer(now, &self.origin, &mut self.rng, datagram) {
            Ok(Outcome::Established(established)) => {
                let established = *established;
                let answered = Answered { index: asking.index(), path, established };
                self.counters.answers += 1;
                let Some(session) = &mut self.session else {
                    return self.start_session(now, answered);
                };
                let at = now + session.grace(&path);
                session.tunnel.ask_over(now, path);
                self.seek = Seek::Answered(at, Box::new(answered));
            }
            Ok(Outcome::Refused(refusal)) => self.on_refused(now, refusal),
            Ok(Outcome::Retry) => self.counters.retries += 1,
            Ok(Outcome::Cookie(cookie)) => {
                let is_there = self.links.paths(true).any(|known| known == path);
                if !is_there || !self.cookies.take(now, path, cookie) {
                    return self.totals.drops.count(DropReason::HandshakeUnexpected);
                }
                self.counters.cookies += 1;
                asking.ask_again(path);
            }
            Ok(Outcome::Versions(versions)) => {
                self.totals.drops.count(DropReason::OtherVersion);
                // Whoever lists our own version did not read our question: a forgery.
                let differs = !versions.iter().any(|version| VERSIONS.contains(version));
                let trouble = Trouble::OtherVersions(versions.clone());
                if differs && self.trouble.as_ref() != Some(&trouble) {
                    self.trouble = Some(trouble);
                    self.tell(None, Event::OtherVersions(versions));
                }
            }
            Err(reason) => {
                self.totals.drops.count(reason);
                if reason == DropReason::HandshakeNotAuthentic && self.trouble.is_none() {
                    self.trouble = Some(Trouble::NotAuthentic);
                }
            }
        }
    }

    fn on_refused(&mut self, now: Instant, refusal: Refusal) {
        self.counters.refusals += 1;
        let pause = match refusal {
            Refusal::InUse => REPLACED_PAUSE,
            Refusal::Draining => DRAINING_PAUSE,
            Refusal::Stopping => SHUTDOWN_PAUSE,
            Refusal::NoCommonCipher
            | Refusal::NoAddress
            | Refusal::Disabled
            | Refusal::Full
            | Refusal::InvitationUsed
            | Refusal::InvitationExpired
            | Refusal::Other(_) => REFUSED_PAUSE,
        };
        self.seek = Seek::At(now + pause);
        self.trouble = Some(Trouble::Refused(refusal));
        self.tell(None, Event::Refused(refusal));
    }

    /// Asks again after the proxy ended the session.
    fn on_closed(&mut self, now: Instant, reason: CloseReason) {
        self.end_session(now, EndReason::Closed(reason));
        let pause = match reason {
            CloseReason::Shutdown => SHUTDOWN_PAUSE,
            CloseReason::Replaced => REPLACED_PAUSE,
            CloseReason::Removed => REMOVED_PAUSE,
            CloseReason::Other(_) => UNKNOWN_PAUSE,
        };
        self.trouble = Some(Trouble::Closed(reason));
        if reason == CloseReason::Replaced {
            self.origin.set_yields(true);
        }
        if !self.closed {
            self.seek = Seek::At(now + pause);
        }
    }

    /// The machine stood still for a while (it slept, say): nothing that is known of links or session need be true any
    /// more. All links are asked at once, and another session is asked for unless one of them answers soon.
    pub fn on_resume(&mut self, now: Instant) {
        if self.closed {
            return;
        }
        if let Some(session) = &mut self.session {
            session.tunnel.ask_all(now);
        } else {
            self.asking_since = now;
        }
        match (&mut self.seek, &self.session) {
            (Seek::Asking(asking), _) => asking.restart(now),
            (Seek::Idle, Some(session)) => {
                self.seek = Seek::At(now + session.patience().max(RESUME_PATIENCE));
            }
            (Seek::At(at), Some(_)) => *at = (*at).min(now + RESUME_PATIENCE),
            // What the proxy asked us to wait for is waited for.
            (Seek::At(at), None) if self.trouble.is_none() => *at = now,
            (Seek::At(_) | Seek::Idle, None) | (Seek::Answered(..), _) => {}
        }
    }

    /// Opens every link that the tunnel does not have yet.
    fn join_links(&mut self, now: Instant) {
        let Some(session) = self.session.as_mut().filter(|_| !self.closed) else { return };
        for link in self.links.iter_mut().filter(|link| link.id.is_none()) {
            // No id left: asked again after the rekey, and when the keys before it are dead. No room: after a
            // link has left.
            link.id = session.tunnel.add_link(now, &link.config).ok();
        }
    }

    /// Another scheduler, and what is said of links, from now on and for sessions to come.
    pub fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling) {
        if let Some(session) = &mut self.session {
            session.tunnel.set_scheduling(now, scheduling.clone());
        }
        self.tunnel.scheduling = scheduling;
        self.note_links();
    }

    /// What a question for a session depends on: how many links there are, and which are preferred.
    fn note_links(&mut self) {
        self.origin.announce(self.links.len());
        self.links.note_reluctance(|link| self.tunnel.reluctance(&link.name, &link.policy));
    }

    /// What others sent on a link's interface, in bytes since the last count, over `interval`.
    pub fn on_others(&mut self, key: LinkKey, bytes: u64, interval: Duration) {
        if let (Some(session), Some(id)) = (&mut self.session, self.links.id_of(key)) {
            session.tunnel.on_others(id, bytes, interval);
        }
    }

    /// The same of what they received: the proxy is told.
    pub fn tell_others(&mut self, key: LinkKey, bytes: u64, interval: Duration) {
        if let (Some(session), Some(id)) = (&mut self.session, self.links.id_of(key)) {
            session.tunnel.tell_others(id, bytes, interval);
        }
    }

    /// The flows that this end sends; see [`Tunnel::flows`](crate::tunnel::Tunnel::flows).
    #[must_use]
    pub fn flows(&mut self, now: Instant, most: usize) -> Option<Flows> {
        Some(self.session.as_mut()?.tunnel.flows(now, most))
    }

    /// Passes the tunnel's events on, by the owner's names. `removed` is a link that the table has
    /// forgotten.
    fn take_events(&mut self, now: Instant, removed: Option<(LinkId, LinkKey)>) {
        while let Some(event) = self.session.as_mut().and_then(|s| s.tunnel.poll_event()) {
            let id = link_of(&event);
            let gone = removed.filter(|(gone, _)| Some(*gone) == id).map(|(_, key)| key);
            let key = gone.or_else(|| self.links.key_of(id?));
            let Some(session) = &mut self.session else { return };
            session.note(now, &event);
            match event {
                Event::Closed(reason) => return self.on_closed(now, reason),
                Event::Rekeyed(_) => self.join_links(now),
                Event::LinkDown(_, DownReason::NoAnswer)
                    if matches!(self.seek, Seek::Idle) && !self.closed =>
                {
                    self.seek = Seek::At(now + session.patience());
                }
                // The proxy needed its place while it was dead. We still want it: under another id.
                Event::LinkDown(id, DownReason::Left) => {
                    if let Some(key) = self.links.forget_id(id) {
                        self.totals.keep_link(key, &session.tunnel, id);
                        self.join_links(now);
                    }
                }
                Event::LinkUp(_) => self.trouble = None,
                _ => {}
            }
            self.tell(key, event);
        }
    }

    /// A seed for a tunnel.
    fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }
}

/// The link that an event is about.
fn link_of(event: &Event) -> Option<LinkId> {
    match event {
        Event::LinkUp(id) | Event::LinkDown(id, _) | Event::PathMoved(id, _) => Some(*id),
        _ => None,
    }
}
