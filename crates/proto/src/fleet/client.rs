//! The client of a fleet: it knows several proxies, has a session with one of them, and moves to another.
//!
//! Towards each proxy it is a [`Client`] of its own, over the same links. There are at most two at a time:
//!
//! | the second one is | because | until |
//! | --- | --- | --- |
//! | next | the present proxy is silent, drains, refuses, is not wanted, or is far away | it has a link, and takes the place of the present one; or the present one answers again |
//! | old | flows began there, and a flow stays where it began ([`Pins`]) | they are over |
//!
//! Who knows one proxy is a plain [`Client`] of it, and asks nobody else anything.
//!
//! Contract: as for a [`Client`].

mod links;
mod moving;
mod shown;
mod slot;
mod speed;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_settings::{LinkPolicy, PublicKey, Scheduling};

use super::choice::{Candidate, Watch, Why, nearest};
use super::pins::{Pins, Session};
use super::questions::Questions;
use super::{FleetList, ProxyId, ProxyState, Region};
use crate::client::{Client, ClientConfig, ClientEvent, LinkKey};
use crate::ecn::Ecn;
use crate::event::Event;
use crate::packet::PacketView;
use crate::path::Path;
use crate::sink::{PacketSink, TransmitSink};
use crate::time::{Duration, Instant, earliest};
use crate::timer::{Timer, Wakeup, sooner};
use slot::{Noting, Slot};

pub use links::FleetLink;
pub use shown::ProxyView;

/// At the start the first answer is waited for so long; then the first proxy is asked for a session, whoever is nearer.
const START_PATIENCE: Duration = Duration::from_millis(500);
/// Between the rounds of questions while a proxy is looked for.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// After so many such rounds in a row they come more slowly.
const QUICK_ROUNDS: u32 = 40;
/// The slow ones.
const ASK_SLOWLY: Duration = Duration::from_secs(15);
/// Between rounds while all is well: three rounds fall into the time for which a better proxy has to be better.
const ASK_OFTEN: Duration = Duration::from_secs(240);
/// For so long after the client came into another network rounds follow each other faster, and a better proxy is used soon.
const ROAMING: Duration = Duration::from_secs(60);
/// Rounds in that time.
const ASK_ROAMING: Duration = Duration::from_secs(5);
/// An answer older than this says nothing of now: two rounds may be lost.
const FRESH: Duration = Duration::from_secs(3 * 240 + 60);
/// A proxy without a session is silent after this; with one its links tell.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// A proxy that answers questions and gives no session is waited for so long.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);
/// The next proxy waits for so long until the present one has confirmed that the client moves.
const WORD_PATIENCE: Duration = Duration::from_secs(3);
/// A proxy that gave no session is not tried again for so long, while there are others.
const SHUN: Duration = Duration::from_secs(60);

/// Which proxies may be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Preference {
    /// All.
    #[default]
    Auto,
    /// Those with this name or region, or at this address.
    Named(String),
}

/// A proxy that the client's owner named, not a fleet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedProxy {
    /// Its key.
    pub public_key: PublicKey,
    /// Where it is, as far as that is known.
    pub addresses: Vec<SocketAddr>,
}

/// Something the user, the log, or the host's network wants to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FleetEvent {
    /// Of the session in use.
    Client(ClientEvent),
    /// The proxy in use told of its fleet.
    List(FleetList),
    /// Another proxy is in use.
    Moved {
        /// The one before.
        from: PublicKey,
        /// The one in use.
        to: PublicKey,
        /// The reason.
        why: Why,
    },
}

/// A proxy that is known, from whomever.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    key: PublicKey,
    id: Option<ProxyId>,
    region: Region,
    addresses: Vec<SocketAddr>,
    state: ProxyState,
    load: u8,
}

/// The session beside the present one.
enum Beside {
    /// It is being opened, since then, or waits for it.
    Next(Box<Slot>, Why, Instant),
    /// Flows that began there stay there.
    Old(Box<Slot>, Pins),
    /// Its flows are over; the proxy is being told.
    Closing(Box<Slot>),
}

/// The client's end of a fleet.
pub struct FleetClient {
    config: ClientConfig,
    rng: StdRng,
    links: BTreeMap<LinkKey, FleetLink>,
    named: Vec<NamedProxy>,
    list: FleetList,
    known: Vec<Known>,
    preference: Preference,
    present: Box<Slot>,
    why: Why,
    since: Instant,
    beside: Option<Beside>,
    questions: Questions,
    watch: Watch,
    /// The first proxy is chosen then at the latest; until then nobody is asked for a session.
    choosing: Option<Instant>,
    /// Since when the present proxy may be silent.
    doubt: Option<Instant>,
    /// Whether it had turned the client away when all was last looked at.
    turned_away: bool,
    /// When proxies are asked next, and how many rounds followed each other quickly.
    next_round: Instant,
    quick_rounds: u32,
    /// When all was last looked at.
    looked: Instant,
    /// What the last list changed counts from then on.
    follow_list: Instant,
    /// When the client last came into another network.
    roamed: Option<Instant>,
    shunned: BTreeMap<PublicKey, Instant>,
    moves: u64,
    closed: bool,
    events: VecDeque<FleetEvent>,
}

impl FleetClient {
    /// A client without links, of the proxy that the config names and of others that it is told of. `seed` must be
    /// unpredictable.
    #[must_use]
    pub fn new(now: Instant, config: ClientConfig, seed: [u8; 32]) -> Self {
        let mut rng = StdRng::from_seed(seed);
        let client = Client::new(now, config.clone(), draw(&mut rng));
        let first = config.proxy;
        Self {
            present: Box::new(Slot::new(first, Vec::new(), client)),
            named: vec![NamedProxy { public_key: first, addresses: Vec::new() }],
            config,
            rng,
            links: BTreeMap::new(),
            list: FleetList::default(),
            known: Vec::new(),
            preference: Preference::Auto,
            why: Why::Only,
            since: now,
            beside: None,
            questions: Questions::default(),
            watch: Watch::default(),
            choosing: None,
            doubt: None,
            turned_away: false,
            next_round: now,
            quick_rounds: 0,
            looked: now,
            follow_list: now,
            roamed: None,
            shunned: BTreeMap::new(),
            moves: 0,
            closed: false,
            events: VecDeque::new(),
        }
    }

    /// A packet came from the TUN.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        self.slot_for(now, packet).client.handle_packet(now, packet, sink);
    }

    /// The same for a TCP or UDP packet whose checksum is partial.
    pub fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.slot_for(now, packet).client.handle_partial(now, packet, sink);
    }

    /// Whose packet it is.
    fn slot_for(&mut self, now: Instant, packet: &[u8]) -> &mut Slot {
        if let Some(Beside::Old(old, pins)) = &mut self.beside
            && old.is_up()
            && let Ok(view) = PacketView::parse(packet)
            && pins.up(now, &view) == Session::Old
        {
            return old;
        }
        &mut self.present
    }

    /// A datagram came from a socket.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        if self.questions.take(now, datagram) {
            return self.look(now, sink);
        }
        match &mut self.beside {
            Some(Beside::Next(slot, ..) | Beside::Closing(slot)) if slot.client.owns(datagram) => {
                slot.client.handle_datagram(now, path, ecn, datagram, sink);
            }
            Some(Beside::Old(slot, pins)) => {
                let (client, session) = match slot.client.owns(datagram) {
                    true => (&mut slot.client, Session::Old),
                    false => (&mut self.present.client, Session::New),
                };
                let mut sink = Noting { sink, pins, session, now };
                client.handle_datagram(now, path, ecn, datagram, &mut sink);
            }
            _ => self.present.client.handle_datagram(now, path, ecn, datagram, sink),
        }
    }

    /// The kernel refused a datagram on this path.
    pub fn on_send_refused(&mut self, now: Instant, path: Path) {
        self.slots().for_each(|slot| slot.client.on_send_refused(now, path));
    }

    /// All datagrams that were received together are in.
    pub fn end_of_batch(&mut self, now: Instant) {
        self.slots().for_each(|slot| slot.client.end_of_batch(now));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.slots().for_each(|slot| slot.client.handle_timeout(now, sink));
        self.look(now, sink);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and why. Early calls are harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let beside = self.beside().and_then(|slot| slot.client.poll_timeout());
        let own = self.own_timeout().map(|at| (at, Timer::Handshake));
        sooner(own, sooner(self.present.client.poll_timeout(), beside))
    }

    fn own_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let beside = match &self.beside {
            Some(Beside::Old(_, pins)) => Some(pins.over_at()),
            Some(Beside::Next(..)) if self.may_ask_next() => Some(self.looked),
            Some(Beside::Next(slot, _, since)) if slot.waits => Some(*since + WORD_PATIENCE),
            Some(Beside::Next(_, _, since)) => Some(*since + OPENING_PATIENCE),
            Some(Beside::Closing(_)) | None => None,
        };
        if !self.has_choice() || self.links.is_empty() {
            return beside;
        }
        if self.has_new_doubt() || self.is_newly_turned_away() {
            return Some(self.looked);
        }
        let doubt = self.doubt.map(|since| since + self.present.patience());
        let better = earliest(self.watch.poll_timeout(self.hysteresis(self.looked)), self.choosing);
        // One that is waited for in vain is looked at again with the next round.
        let due = [doubt, better, Some(self.follow_list)]
            .into_iter()
            .flatten()
            .filter(|at| *at > self.looked)
            .min();
        earliest(Some(self.next_round), earliest(beside, due))
    }

    /// Fills the batch with all that may be sent now. Call again after a flush until it leaves room.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        if !self.closed && !self.questions.poll_transmit(out) {
            return;
        }
        self.slots().for_each(|slot| slot.client.poll_transmit(now, out));
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<FleetEvent> {
        self.take_events();
        self.events.pop_front()
    }

    /// Ends the sessions, within a second. Asks for no other.
    pub fn close(&mut self, now: Instant) {
        (self.closed, self.choosing) = (true, None);
        if matches!(self.beside, Some(Beside::Next(..))) {
            self.drop_beside(now);
        }
        self.slots().for_each(|slot| slot.client.close(now));
    }

    /// Whether nothing is left to say or to hear after [`close`](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.present.client.is_closed() && self.beside().is_none_or(|slot| slot.client.is_closed())
    }

    /// The machine stood still for a while: nothing that is known need be true any more.
    pub fn on_resume(&mut self, now: Instant) {
        self.slots().for_each(|slot| slot.client.on_resume(now));
        self.doubt = None;
        self.roam(now);
    }

    /// Another scheduler, and what is said of links, from now on and for sessions to come.
    pub fn set_scheduling(&mut self, now: Instant, scheduling: &Scheduling) {
        self.config.tunnel.scheduling = scheduling.clone();
        self.slots().for_each(|slot| slot.client.set_scheduling(now, scheduling.clone()));
    }

    /// Another policy for a link that there is.
    pub fn set_policy(&mut self, key: LinkKey, policy: &LinkPolicy) {
        if let Some(link) = self.links.get_mut(&key) {
            link.config.policy.clone_from(policy);
        }
        self.slots().for_each(|slot| slot.client.set_policy(key, policy.clone()));
    }

    /// What others sent on a link's interface, in bytes since the last count, over `interval`.
    pub fn on_others(&mut self, key: LinkKey, bytes: u64, interval: Duration) {
        self.slots().for_each(|slot| slot.client.on_others(key, bytes, interval));
    }

    /// The same of what they received: the proxy is told.
    pub fn tell_others(&mut self, key: LinkKey, bytes: u64, interval: Duration) {
        self.slots().for_each(|slot| slot.client.tell_others(key, bytes, interval));
    }

    /// The flows that the present session sends; see [`Tunnel::flows`](crate::tunnel::Tunnel::flows).
    #[must_use]
    pub fn flows(&mut self, now: Instant, most: usize) -> Option<crate::tunnel::Flows> {
        self.present.client.flows(now, most)
    }

    /// The present one and the one beside it.
    fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        let beside = self.beside.as_mut().map(|beside| match beside {
            Beside::Next(slot, ..) | Beside::Old(slot, _) | Beside::Closing(slot) => &mut **slot,
        });
        std::iter::once(&mut *self.present).chain(beside)
    }

    fn beside(&self) -> Option<&Slot> {
        self.beside.as_ref().map(|beside| match beside {
            Beside::Next(slot, ..) | Beside::Old(slot, _) | Beside::Closing(slot) => &**slot,
        })
    }

    /// Takes what happened in the sessions.
    fn take_events(&mut self) {
        while let Some(event) = self.present.client.poll_event() {
            self.note(event);
        }
        match &mut self.beside {
            // They count when it is in use.
            Some(Beside::Next(slot, ..)) => slot.keep_events(),
            // Nobody is told of what becomes of one that is left.
            Some(Beside::Old(slot, _) | Beside::Closing(slot)) => {
                while slot.client.poll_event().is_some() {}
            }
            None => {}
        }
    }

    fn note(&mut self, event: ClientEvent) {
        match event.event {
            Event::Fleet(list) => return self.events.push_back(FleetEvent::List(list)),
            // A client of a fleet is known at all of its proxies.
            Event::SessionEstablished(_) => self.config.invitation = None,
            _ => {}
        }
        self.events.push_back(FleetEvent::Client(event));
    }
}

fn draw(rng: &mut StdRng) -> [u8; 32] {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    seed
}
