//! One link as its tunnel sees it: its state, its paths, both directions' bookkeeping, and what has to
//! be said on it.
//!
//! | state | leaves when | to |
//! | --- | --- | --- |
//! | `Joining` | client: `JoinAck` came; proxy: the path is proven | `Up` |
//! | `Up` | nothing confirmed for 1 s and 3 RTO while something waits for it | `Down` |
//! | `Down` | something sent since was confirmed | `Up` |
//!
//! A link that is `Up` carries packets once its path MTU is known, or [`SETTLE`] after it came up (or moved to
//! the other family).

use arrayvec::{ArrayString, ArrayVec};

use ropewalk_settings::{Bitrate, Keepalive, Terms, shortened};

use super::backup::Duty;
use super::feedback::settle;
use super::keepalive::KeepaliveTimer;
use super::ledger::Metered;
use super::limits::Limits;
use super::path::Validation;
use super::recent::Recent;
use super::weigh::Share;
use crate::config::{LinkConfig, MAX_LINKS, MAX_PATHS, Wishes};
use crate::link::mtu::{PathMtu, State as MtuState};
use crate::link::pacer::Pacer;
use crate::link::receiver::LinkReceiver;
use crate::link::sender::LinkSender;
use crate::link::sensing::Sensing;
use crate::path::Path;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;
use crate::wire::frame::{Halt, MAX_NAME};
use crate::wire::header::OVERHEAD;

/// A link is down when nothing was confirmed for this long (and three RTO).
const DEAD_AFTER: Duration = Duration::from_secs(1);
/// Time between probes of a link that is down.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// The same on a metered link that has been down for [`METERED_PATIENCE`].
const METERED_PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// When a dead metered link is given less attention.
const METERED_PATIENCE: Duration = Duration::from_secs(600);
/// How long the proxy probes a link that is down: behind a NAT only the client can open it again, and it
/// probes by itself once it has noticed.
const PROXY_PATIENCE: Duration = Duration::from_secs(60);
/// First interval between attempts to join; doubles up to [`PROBE_INTERVAL`] times two.
const JOIN_RETRY: Duration = Duration::from_millis(250);
/// Longest interval between attempts to join.
const JOIN_RETRY_MAX: Duration = Duration::from_secs(1);
/// How long a fresh link waits for its first path MTU before it carries packets all the same: a search
/// takes two or three round trips.
const SETTLE: Duration = Duration::from_secs(1);
/// An idle link says that nothing is under way on it this long after its last word, while others carry
/// packets (PROTOCOL §8).
pub(super) const MARK_INTERVAL: Duration = Duration::from_millis(25);

/// A link that carried packets to the client and falls silent is asked this long after its last word: a NAT
/// in front of it may have changed, and only the client can show the proxy its new address.
const SILENCE: Duration = Duration::from_millis(500);

/// A link on which nothing asks for a report is asked this often while the tunnel is in use: often enough for whoever
/// shares traffic out by round-trip times and losses, and 134 bytes there and back.
const SENSE_INTERVAL: Duration = Duration::from_secs(1);

/// The same on a backup that rests: it must be known whether it lives, but its bytes are spared.
const RESTING_SENSE_INTERVAL: Duration = Duration::from_secs(5);

/// Datagrams of its own that an end of an idle tunnel leaves unconfirmed: until then its reports ask for no answer.
const UNASKED: u64 = 16;

/// After the last of what others received the peer is told of silence so often, one less: each count halves what it has
/// heard, and one or two may be lost.
const SILENCES: u8 = 6;

/// A paced link busy for less than this carries a burst, and shows nothing of its capacity.
const LEAST_BUSY: Duration = Duration::from_millis(20);

/// When the tunnel carried packets, in either direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Without a pause of [`SENSE_INTERVAL`].
    pub(super) since: Instant,
    pub(super) last_packet: Instant,
}

impl Usage {
    pub(super) const fn new(now: Instant) -> Self {
        Self { since: now, last_packet: now }
    }

    pub(super) fn on_packet(&mut self, now: Instant) {
        if now > self.last_packet + SENSE_INTERVAL {
            self.since = now;
        }
        self.last_packet = now;
    }

    /// Whether it carries packets now.
    pub(super) fn is_on(self, now: Instant) -> bool {
        now < self.last_packet + SENSE_INTERVAL
    }
}

/// The states of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// Not taken by the peer yet.
    Joining,
    /// Alive.
    Up,
    /// Does not answer.
    Down,
}

/// Frames that wait for the link's next datagram.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub(super) join: bool,
    pub(super) join_ack: bool,
    pub(super) ping: bool,
    /// Tokens of challenges: a peer may ask at two addresses at a time.
    pub(super) responses: ArrayVec<[u8; 8], 2>,
    pub(super) echo_after: Option<(u32, u32)>,
    pub(super) echo: Option<u32>,
    pub(super) leaves: ArrayVec<Halt, MAX_LINKS>,
    pub(super) downs: ArrayVec<Halt, MAX_LINKS>,
    pub(super) mtu_hint: Option<u16>,
    /// What others receive on the link, in units of 1,000 bit/s: goes with what goes anyway.
    pub(super) others: Option<u32>,
    /// The client's rekey message, or the proxy's wish for one.
    pub(super) rekey: bool,
    /// The proxy's answer.
    pub(super) rekey_answer: bool,
}

impl Pending {
    /// Answers a challenge; of more than two the latest.
    pub(super) fn respond(&mut self, token: [u8; 8]) {
        self.responses.retain(|other| *other != token);
        if self.responses.is_full() {
            self.responses.remove(0);
        }
        self.responses.push(token);
    }

    /// Whether something is worth a datagram of its own.
    pub(super) fn any(&self) -> bool {
        self.join
            || self.join_ack
            || self.ping
            || !self.responses.is_empty()
            || self.echo_after.is_some()
            || self.echo.is_some()
            || self.mtu_hint.is_some()
            || !self.leaves.is_empty()
            || !self.downs.is_empty()
            || self.rekey
            || self.rekey_answer
    }
}

/// Datagrams and bytes, outer UDP payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    pub(super) fn count(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }

    /// Both together.
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { datagrams: self.datagrams + other.datagrams, bytes: self.bytes + other.bytes }
    }
}

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) name: ArrayString<MAX_NAME>,
    metered: bool,
    /// Largest outer packet that may be tried.
    max_mtu: u16,
    pub(super) state: LinkState,
    pub(super) since: Instant,
    /// The client's choices of remote address; empty on the proxy.
    paths: ArrayVec<Path, MAX_PATHS>,
    next_path: usize,
    pub(super) validation: Validation,
    pub(super) sender: LinkSender,
    pub(super) receiver: LinkReceiver,
    pub(super) mtu: PathMtu,
    /// The path MTU when last looked at.
    known_mtu: u16,
    pub(super) keepalive: KeepaliveTimer,
    pub(super) pending: Pending,
    /// What waits is more than an unproven address may get: until more comes from there.
    pub(super) held: bool,
    /// Global number of the last packet sent here.
    pub(super) previous_global: Option<u64>,
    /// The sender's next global number when something was last sent here.
    pub(super) told_global: u64,
    pub(super) last_sent: Instant,
    /// When something that elicits a report was last sent here.
    pub(super) last_asked: Instant,
    pub(super) last_received: Instant,
    /// Where its newest datagram came from.
    pub(super) received_path: Option<Path>,
    /// When a packet last came.
    pub(super) last_packet: Option<Instant>,
    retry_at: Option<Instant>,
    retry_interval: Duration,
    /// Pings sent in doubt since something was last confirmed.
    pub(super) nudges: u32,
    /// Whether the resequencer knows the link.
    pub(super) in_reseq: bool,
    /// An echo the peer asked for, and when it is due.
    pub(super) echo_due: Option<(u32, Instant)>,
    /// Since when it waits for its path MTU: since it came up, or its path moved to the other family.
    settling_since: Instant,
    /// [`SETTLE`] has passed since then.
    settled: bool,
    /// How much had been sent when the window was last full.
    limited_at: Option<u64>,
    /// How often the peer is yet to be told that others receive nothing.
    silences: u8,
    pub(super) pacer: Pacer,
    /// It had no room when last looked at.
    shut: bool,
    pub(super) sensing: Sensing,
    /// What a person says of it.
    pub(super) terms: Terms,
    /// What the scheduler makes of that and of what is sensed.
    pub(super) share: Share,
    /// What its owner wishes of it.
    wishes: Wishes,
    /// Most that this end sends on it, at IP level.
    most: Option<Bitrate>,
    pub(super) duty: Duty,
    /// What kept it from carrying more.
    pub(super) limits: Limits,
    pub(super) sent: Traffic,
    pub(super) received: Traffic,
    /// How much lately: what was sent, and received.
    pub(super) recent: Recent,
    /// The same with IP and UDP headers.
    pub(super) on_wire: Metered,
}

/// What a new link starts with.
pub(super) struct NewLink<'a> {
    pub(super) id: LinkId,
    pub(super) name: &'a str,
    pub(super) validation: Validation,
    pub(super) sender: LinkSender,
    pub(super) receiver: LinkReceiver,
    pub(super) mtu: PathMtu,
    pub(super) max_mtu: u16,
}

impl Link {
    /// A link of the client's own.
    pub(super) fn joining(now: Instant, new: NewLink<'_>, config: &LinkConfig) -> Self {
        let mut link = Self::new(now, new, KeepaliveTimer::new(config.keepalive));
        link.paths = config.paths.clone();
        link.metered = config.metered;
        link.wish(config.wishes, config.wishes.most_up);
        link.pending.join = true;
        link.retry_at = Some(now + JOIN_RETRY);
        link
    }

    /// A link that the peer opened.
    pub(super) fn accepted(now: Instant, new: NewLink<'_>) -> Self {
        let mut link = Self::new(now, new, KeepaliveTimer::new(Keepalive::Off));
        link.pending.join_ack = true;
        link
    }

    fn new(now: Instant, new: NewLink<'_>, keepalive: KeepaliveTimer) -> Self {
        Self {
            id: new.id,
            name: shortened(new.name),
            metered: false,
            max_mtu: new.max_mtu,
            state: LinkState::Joining,
            since: now,
            paths: ArrayVec::new(),
            next_path: 0,
            validation: new.validation,
            sender: new.sender,
            receiver: new.receiver,
            known_mtu: new.mtu.mtu(),
            mtu: new.mtu,
            keepalive,
            pending: Pending::default(),
            held: false,
            previous_global: None,
            told_global: 0,
            last_sent: now,
            last_asked: now,
            last_received: now,
            received_path: None,
            last_packet: None,
            retry_at: None,
            retry_interval: JOIN_RETRY,
            nudges: 0,
            in_reseq: false,
            echo_due: None,
            settling_since: now,
            settled: false,
            limited_at: None,
            silences: 0,
            pacer: Pacer::default(),
            shut: false,
            sensing: Sensing::default(),
            terms: Terms::default(),
            share: Share::default(),
            wishes: Wishes::default(),
            most: None,
            duty: Duty::default(),
            limits: Limits::new(now),
            sent: Traffic::default(),
            received: Traffic::default(),
            recent: Recent::new(now),
            on_wire: Metered::default(),
        }
    }

    /// Where its datagrams go.
    pub(super) fn path(&self) -> Path {
        self.validation.path()
    }

    /// Whether it carries packets now.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.state == LinkState::Up
            && self.validation.is_proven()
            && (self.mtu_is_known() || now >= self.settling_since + SETTLE)
            && !self.sender.must_stop()
    }

    /// Whether this end sends packets on it now, as the scheduler says.
    pub(super) fn carries(&self, now: Instant) -> bool {
        self.duty == Duty::Carries && self.terms.carries && self.is_usable(now)
    }

    /// Whether this end sends packets on it that find no room elsewhere.
    pub(super) fn helps(&self, now: Instant) -> bool {
        self.duty == Duty::Helps && self.terms.carries && self.is_usable(now)
    }

    /// What its owner wishes of it, and the most that this end shall send.
    pub(super) fn wish(&mut self, wishes: Wishes, most: Option<Bitrate>) {
        (self.wishes, self.most) = (wishes, most);
        // Nothing goes on a backup before somebody looked whether it is needed.
        self.set_duty(if wishes.backup { Duty::Rests } else { Duty::Carries });
    }

    pub(super) const fn is_backup(&self) -> bool {
        self.wishes.backup
    }

    pub(super) const fn wishes(&self) -> Wishes {
        self.wishes
    }

    /// The peer hears of a rest by the next datagram; if there was something to rest from, at once.
    pub(super) fn set_duty(&mut self, duty: Duty) {
        let rests = duty == Duty::Rests && self.duty != Duty::Rests;
        self.pending.ping |= rests && self.state == LinkState::Up;
        self.duty = duty;
    }

    /// How fast this end may send on it, if that is bounded: what the path carries, and the owner allows.
    #[inline]
    pub(super) fn pace(&self) -> Option<Bitrate> {
        match (self.path_rate(), self.most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        }
    }

    /// Whether its owner's bound is what paces it.
    pub(super) fn is_capped(&self) -> bool {
        self.most.is_some() && self.most == self.pace()
    }

    /// As the controller says, else what others leave of the rate that was told, where they are counted and the scheduler
    /// yields to them. With nobody counted a window is not paced at the told rate: an unseen host may have most of it.
    fn path_rate(&self) -> Option<Bitrate> {
        self.sender.pacing_rate().or(self.share.pace)
    }

    /// What it carries, if that is told, and no more than this end may send.
    pub(super) fn told_rate(&self) -> Option<Bitrate> {
        match (self.terms.rate, self.most) {
            (Some(rate), Some(most)) => Some(rate.min(most)),
            (rate, most) => rate.or(most),
        }
    }

    /// Datagrams that may leave now.
    pub(super) fn room(&self, now: Instant) -> u32 {
        let shut = self.pace().is_some_and(|rate| !self.pacer.is_open(now, rate));
        if shut { 0 } else { self.sender.room() }
    }

    /// All that could be sent now was: notes whether there is more room.
    pub(super) fn note_room(&mut self, now: Instant) {
        self.shut = self.room(now) == 0;
    }

    /// When a paced link has room again, while its window has. One with room is not waited for: packets may wait for
    /// their turn on another.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        let rate = self.pace().filter(|_| self.shut && self.sender.room() > 0)?;
        self.pacer.opens_at(rate)
    }

    /// Whether the path MTU search has had its first result.
    fn mtu_is_known(&self) -> bool {
        matches!(self.mtu.state(), MtuState::Complete | MtuState::Error)
    }

    /// When the link carries packets although its path MTU search has not ended.
    fn settles_at(&self) -> Option<Instant> {
        let waiting = self.state == LinkState::Up && !self.settled && !self.mtu_is_known();
        waiting.then_some(self.settling_since + SETTLE)
    }

    /// Notes that the time to wait for the search is over: its timer has had its effect.
    pub(super) fn settle_by_time(&mut self, now: Instant) {
        self.settled |= self.settles_at().is_some_and(|at| at <= now);
    }

    /// The path is another than `before`. Behind another port of the same NAT nothing else changed
    /// (RFC 9000 §9.4); another address may be another network. Over the other family it carries packets
    /// again when its path MTU is known.
    pub(super) fn moved(&mut self, now: Instant, before: Path) {
        let path = self.path();
        if path.remote.ip() == before.remote.ip() {
            return self.mtu.revalidate(now);
        }
        self.sensing.reset();
        let receiver = &mut self.receiver;
        self.sender.on_new_path(now, |settled| settle(now, &settled, None, receiver));
        if path.header_len() == before.header_len() {
            return self.mtu.on_new_address(now);
        }
        self.mtu.reset(now, path.header_len(), self.max_mtu);
        (self.settling_since, self.settled) = (now, false);
    }

    /// Tells the peer when the path MTU has fallen.
    pub(super) fn watch_mtu(&mut self) {
        let mtu = self.mtu.mtu();
        if mtu < self.known_mtu {
            self.pending.mtu_hint = Some(mtu);
        }
        self.known_mtu = mtu;
    }

    /// The largest inner packet that fits, in bytes.
    pub(super) fn inner_mtu(&self) -> u16 {
        self.mtu.mtu().saturating_sub(self.path().header_len() + OVERHEAD as u16)
    }

    pub(super) fn enter(&mut self, now: Instant, state: LinkState) {
        (self.state, self.since) = (state, now);
        (self.settling_since, self.settled) = (now, false);
        self.retry_interval = PROBE_INTERVAL;
        self.retry_at = (state == LinkState::Down).then_some(now);
        if state == LinkState::Down {
            self.keepalive.on_down();
        }
    }

    /// When it will be down unless something is confirmed.
    fn dead_at(&self) -> Option<Instant> {
        if self.state != LinkState::Up {
            return None;
        }
        Some(self.sender.unanswered_since()? + DEAD_AFTER.max(self.sender.rtt().base_rto() * 3))
    }

    /// When to ask again because something is unanswered: a single lost datagram must not take a link down.
    fn nudge_at(&self) -> Option<Instant> {
        if self.state != LinkState::Up {
            return None;
        }
        let patience = self.sender.rtt().base_rto() * self.nudges.saturating_add(1);
        Some(self.sender.unanswered_since()? + patience)
    }

    /// Asks again if it is time.
    pub(super) fn nudge(&mut self, now: Instant) {
        if self.nudge_at().is_some_and(|at| at <= now) {
            self.nudges += 1;
            self.pending.ping = true;
        }
    }

    /// Whether a path MTU probe may be sent: the link lives, and is proven to be the peer's.
    pub(super) fn may_probe(&self) -> bool {
        self.state == LinkState::Up && self.validation.is_proven()
    }

    /// Whether nothing was confirmed for too long.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        self.dead_at().is_some_and(|at| at <= now)
    }

    /// Asks again where no answer came: a join, or a probe of a link that is down; over each of the
    /// addresses in turn.
    pub(super) fn retry(&mut self, now: Instant) {
        if self.retry_at.is_none_or(|at| at > now) {
            return;
        }
        if let Some(path) = self.paths.get(self.next_path % self.paths.len().max(1)).copied() {
            self.choose(now, path);
            self.next_path = self.next_path.wrapping_add(1);
        }
        let interval = match self.state {
            LinkState::Joining => {
                self.pending.join = true;
                self.retry_interval = (self.retry_interval * 2).min(JOIN_RETRY_MAX);
                self.retry_interval
            }
            LinkState::Down if self.is_accepted() && now.since(self.since) >= PROXY_PATIENCE => {
                return self.retry_at = None;
            }
            LinkState::Down => {
                self.pending.ping = true;
                let tired = self.metered && now.since(self.since) >= METERED_PATIENCE;
                if tired { METERED_PROBE_INTERVAL } else { PROBE_INTERVAL }
            }
            LinkState::Up => return self.retry_at = None,
        };
        self.retry_at = Some(now + interval);
    }

    /// Whether the peer opened it: the proxy's view.
    fn is_accepted(&self) -> bool {
        self.paths.is_empty()
    }

    /// Nobody knows how it does: it is asked without waiting for its time.
    pub(super) fn ask_now(&mut self, now: Instant) {
        match self.state {
            LinkState::Up => self.pending.ping = true,
            LinkState::Joining | LinkState::Down => self.retry_at = Some(now),
        }
    }

    /// Something came although the link is down: one question shows whether the other direction works too.
    pub(super) fn ask_if_down(&mut self) {
        self.pending.ping |= self.state == LinkState::Down;
    }

    /// The client's own path from which the peer answered: by then another may be on trial.
    pub(super) fn settle_path(&mut self, now: Instant, path: Path) {
        if self.paths.contains(&path) && self.path() != path {
            self.choose(now, path);
        }
    }

    /// The peer answers on a path of this or another link: asks there at once, or where this one is.
    pub(super) fn ask_over(&mut self, now: Instant, path: Path) {
        if self.state != LinkState::Up {
            self.settle_path(now, path);
        }
        match self.state {
            LinkState::Joining => self.pending.join = true,
            LinkState::Up | LinkState::Down => self.pending.ping = true,
        }
    }

    /// Uses one of the client's own paths.
    fn choose(&mut self, now: Instant, path: Path) {
        let before = self.path();
        self.validation.choose(path);
        if before != path {
            self.keepalive.on_path_changed();
        }
        if before.header_len() != path.header_len() {
            self.mtu.reset(now, path.header_len(), self.max_mtu);
        }
    }

    /// Whether a mark is due, or when it will be: others carried packets since the last word here.
    pub(super) fn mark_at(&self, next_global: u64) -> Option<Instant> {
        let waited_for = self.state == LinkState::Up && self.duty != Duty::Rests;
        let behind = waited_for && self.told_global < next_global;
        behind.then_some(self.last_sent + MARK_INTERVAL)
    }

    /// When the client asks whether its link still works, because packets came until shortly before its
    /// last word.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        let recent = self.last_packet.is_some_and(|at| at + SILENCE > self.last_sent);
        let doubtful = self.state == LinkState::Up && !self.is_accepted() && recent;
        doubtful.then(|| self.last_sent + SILENCE)
    }

    /// Has the peer told what others receive here; of silence only as often as its filter needs to forget them.
    pub(super) fn tell_others(&mut self, rate: Bitrate) {
        let kbps = u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX);
        self.silences = match self.pending.others {
            _ if kbps > 0 => SILENCES,
            None => self.silences.saturating_sub(1),
            Some(_) => self.silences,
        };
        self.pending.others = (self.silences > 0).then_some(kbps);
    }

    /// Whether the report that leaves now asks to be confirmed. On an idle tunnel one that says nothing but what the
    /// next one says too does not: its confirmation would wake both ends for nothing. Now and then it does all the
    /// same, so that this end need not remember all that it sent.
    pub(super) fn wants_confirmation(&self, now: Instant, in_use: bool) -> bool {
        let srtt = self.sender.rtt().srtt().unwrap_or_default();
        let news =
            in_use || self.receiver.has_unconfirmed_gaps() || self.sender.unconfirmed() >= UNASKED;
        news && self.receiver.wants_elicit(now, srtt)
    }

    /// Whether the window limits this sender, for a datagram of so many places about to be sent: it was full within the
    /// last window of datagrams (RFC 7661 §4.1).
    pub(super) fn is_window_limited(&mut self, places: u8) -> bool {
        let last = self.sender.position() + u64::from(places.saturating_sub(1));
        if self.sender.room() <= u32::from(places) {
            self.limited_at = Some(last);
        }
        let window = u64::from(self.sender.window());
        self.limited_at.is_some_and(|at| last <= at + window)
    }

    /// Whether the pacing limits it: the link has been busy without a pause for a round trip.
    pub(super) fn is_paced(&self, now: Instant) -> bool {
        // The owner's bound says nothing of the path.
        let trip = self.path_rate().and_then(|_| self.sender.rtt().srtt());
        trip.is_some_and(|trip| self.pacer.busy_for(now) >= trip.max(LEAST_BUSY))
    }

    /// When it is asked how it does: the tunnel has been in use for as long, and nothing on this link shows it.
    pub(super) fn probe_at(&self, usage: Usage) -> Option<Instant> {
        let unknown = self.state == LinkState::Up && usage.last_packet > self.last_asked;
        let rests = self.duty == Duty::Rests;
        let interval = if rests { RESTING_SENSE_INTERVAL } else { SENSE_INTERVAL };
        unknown.then(|| self.last_asked.max(usage.since) + interval)
    }

    /// When its NATs must hear of it.
    pub(super) fn keepalive_at(&self) -> Option<Instant> {
        let last_used = self.last_sent.max(self.last_received);
        let up = self.state == LinkState::Up;
        up.then(|| self.keepalive.poll_timeout(self.last_sent, last_used)).flatten()
    }

    /// The earliest of the timers that need no datagram to have their effect.
    pub(super) fn poll_silent(&self) -> Option<Instant> {
        [
            self.sender.poll_timeout(),
            self.settles_at(),
            self.dead_at(),
            self.nudge_at(),
            self.retry_at,
            self.echo_due.map(|(_, at)| at),
        ]
        .into_iter()
        .fold(None, earliest)
    }

    /// The earliest of the link's timers.
    pub(super) fn poll_timeout(&self, next_global: u64, usage: Usage) -> Option<Instant> {
        [
            (!self.held).then(|| self.receiver.poll_timeout()).flatten(),
            self.may_probe().then(|| self.mtu.poll_timeout()).flatten(),
            self.validation.poll_timeout(),
            self.keepalive_at(),
            self.mark_at(next_global),
            self.doubt_at(),
            self.probe_at(usage),
        ]
        .into_iter()
        .fold(self.poll_silent(), earliest)
    }
}
