//! One link as its tunnel sees it. What belongs together is in a part of its own:
//!
//! | part | what it holds |
//! | --- | --- |
//! | [`Life`] | the state, and how a link that does not answer is asked again |
//! | [`Paths`] | where datagrams go, and the proof that the peer receives there |
//! | [`LinkMtu`] | the path MTU |
//! | [`KeepaliveTimer`] | how the NATs on the way are kept open |
//! | [`LinkSender`], [`LinkReceiver`] | numbers, window and loss; what came, and when to report it |
//! | [`Sensing`], [`Counters`] | what was measured |
//! | [`Agreed`] | what people said, and what follows for the packets that this end sends |
//! | [`Opening`] | when there is room for the next datagram |
//! | [`Activity`] | when it was last used |
//! | [`HeldUp`] | what its losses cost a flow |
//! | [`Suspicion`] | that it is silent: what was done about it |
//! | [`ControlQueue`] | what waits to be said without packets |

mod activity;
mod agreed;
mod counters;
mod held_up;
mod keepalive;
mod life;
mod limits;
mod mtu;
mod opening;
mod paths;
mod pending;
mod policy_news;
mod suspicion;
mod validation;

use arrayvec::{ArrayString, ArrayVec};
use ropewalk_settings::{Bitrate, ControllerKind, Keepalive, Terms, shortened};

pub(super) use activity::{Activity, SENSE_INTERVAL};
pub(super) use agreed::Agreed;
pub use agreed::Duty;
pub(super) use counters::Counters;
pub use counters::{Filler, Traffic};
pub(super) use held_up::HeldUp;
pub(super) use keepalive::{Due, KeepaliveTimer};
pub(super) use life::Life;
pub use life::LinkState;
pub use limits::{Limit, Limits};
pub(super) use mtu::LinkMtu;
pub(super) use opening::Opening;
pub(super) use paths::Paths;
pub(super) use pending::{ControlQueue, Pending};
pub(super) use policy_news::PolicyNews;
pub(super) use suspicion::Suspicion;
pub(super) use validation::Validation;

use super::usage::Usage;
use crate::config::{LinkConfig, MAX_PATHS};
use crate::event::Event;
use crate::link::carried::SizeEvidence;
use crate::link::mtu::PathMtu;
use crate::link::receiver::LinkReceiver;
use crate::link::sender::LinkSender;
use crate::link::sensing::Sensing;
use crate::link::sent::{Fate, Settled};
use crate::path::Path;
use crate::sched::LinkView;
use crate::time::{Duration, Instant};
use crate::timer::{LinkTimer, Timer, Wakeup, sooner};
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;
use crate::wire::header::OVERHEAD;
use life::Retry;

/// Datagrams of its own that an end of an idle tunnel leaves unconfirmed: until then its reports ask for no answer.
const UNASKED: u64 = 16;

/// Bytes of a full datagram at IP level: by it a window in datagrams tells a rate.
const FULL: u64 = 1500;

/// The part of a round trip after which a full window has room again, in the mean: reports come several times in one.
const SHUT: u32 = 4;

/// Where a link stands in the order of all packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbering {
    /// Global number of the last packet sent here.
    pub(super) previous: Option<u64>,
    /// The sender's next global number when something was last sent here.
    pub(super) told: u64,
    /// Whether the resequencer knows the link.
    pub(super) in_reseq: bool,
}

/// A queue that the model of a link does not aim at.
const STANDING_QUEUE: Duration = Duration::from_millis(20);

/// Delays that vary by more than this by themselves hide a queue as short as [`STANDING_QUEUE`] in single round trips.
const STEADY: Duration = Duration::from_millis(2);

/// A link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) name: ArrayString<MAX_NAME>,
    pub(super) life: Life,
    pub(super) paths: Paths,
    pub(super) mtu: LinkMtu,
    pub(super) keepalive: KeepaliveTimer,
    pub(super) sender: LinkSender,
    pub(super) receiver: LinkReceiver,
    pub(super) sensing: Sensing,
    pub(super) agreed: Agreed,
    pub(super) opening: Opening,
    pub(super) activity: Activity,
    pub(super) numbering: Numbering,
    pub(super) control: ControlQueue,
    pub(super) counters: Counters,
    pub(super) held_up: HeldUp,
    /// The bound that the scheduler sets.
    pub(super) scheduled_pace: Option<Bitrate>,
    pub(super) suspicion: Suspicion,
}

/// What a new link starts with.
pub(super) struct NewLink<'a> {
    pub(super) id: LinkId,
    pub(super) name: &'a str,
    pub(super) validation: Validation,
    pub(super) sender: LinkSender,
    /// Largest outer packet that may be tried.
    pub(super) max_mtu: u16,
}

impl Link {
    /// A link of the client's own.
    pub(super) fn joining(now: Instant, new: NewLink<'_>, config: &LinkConfig) -> Self {
        let keepalive = KeepaliveTimer::new(config.keepalive);
        let pending = Pending { join: true, ..Pending::default() };
        let mut link = Self::new(now, new, config.paths.clone(), keepalive, pending);
        link.agreed = Agreed::with(config.policy.clone(), config.metered);
        link
    }

    /// A link that the peer opened.
    pub(super) fn accepted(now: Instant, new: NewLink<'_>) -> Self {
        let keepalive = KeepaliveTimer::new(Keepalive::Off);
        let pending = Pending { join_ack: true, ..Pending::default() };
        Self::new(now, new, ArrayVec::new(), keepalive, pending)
    }

    fn new(
        now: Instant,
        new: NewLink<'_>,
        choices: ArrayVec<Path, MAX_PATHS>,
        keepalive: KeepaliveTimer,
        pending: Pending,
    ) -> Self {
        Self {
            id: new.id,
            name: shortened(new.name),
            life: Life::joining(now, pending.join),
            mtu: LinkMtu::new(now, new.validation.path().header_len(), new.max_mtu),
            paths: Paths::new(new.validation, choices),
            keepalive,
            receiver: LinkReceiver::new(new.id, 0).with_controller(new.sender.controller_kind()),
            sender: new.sender,
            sensing: Sensing::default(),
            agreed: Agreed::default(),
            opening: Opening::default(),
            activity: Activity::new(now),
            numbering: Numbering::default(),
            control: ControlQueue::with(pending),
            counters: Counters::new(now),
            held_up: HeldUp::new(now),
            scheduled_pace: None,
            suspicion: Suspicion::default(),
        }
    }

    /// Its window is kept by another controller, which finds out again what it carries.
    pub(super) fn set_controller(&mut self, kind: ControllerKind) {
        self.sender.set_controller(kind);
        self.receiver.follow_controller(kind);
    }

    /// Where its datagrams go.
    pub(super) fn path(&self) -> Path {
        self.paths.current()
    }

    /// Whether it carries packets now.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        self.may_probe() && self.life.has_settled(now, &self.mtu.search) && !self.sender.must_stop()
    }

    /// Whether this end sends packets on it now, as the scheduler says.
    pub(super) fn carries(&self, now: Instant) -> bool {
        self.does(Duty::Carries, now)
    }

    /// Whether this end sends packets on it that find no room elsewhere.
    pub(super) fn helps(&self, now: Instant) -> bool {
        self.does(Duty::Helps, now)
    }

    fn does(&self, duty: Duty, now: Instant) -> bool {
        self.agreed.duty() == duty && self.may_carry(now)
    }

    /// Whether this end could send packets on it now.
    pub(super) fn may_carry(&self, now: Instant) -> bool {
        self.agreed.terms.carries && self.is_usable(now)
    }

    /// A person says this of it.
    pub(super) fn set_terms(&mut self, terms: Terms) {
        self.agreed.terms = terms;
        self.sender.on_rate_told(terms.rate);
        self.sensing.on_rate_told(self.agreed.told_rate());
    }

    /// The peer hears of a rest by the next datagram; if there was something to rest from, at once.
    pub(super) fn set_duty(&mut self, duty: Duty) {
        let rests = self.agreed.set_duty(duty);
        self.control.pending.ping |= rests && self.life.is_up();
    }

    /// How fast this end may send on it, if that is bounded: what the path carries, and the owner allows.
    #[inline]
    pub(super) fn pace(&self) -> Option<Bitrate> {
        self.agreed.capped(self.path_rate())
    }

    /// As the controller says, else what others leave of the rate that was told, where they are counted and the scheduler
    /// yields to them. With nobody counted a window is not paced at the told rate: an unseen host may have most of it.
    fn path_rate(&self) -> Option<Bitrate> {
        self.sender.pacing_rate().or(self.scheduled_pace)
    }

    /// Datagrams that may leave now.
    pub(super) fn room(&self, now: Instant) -> u32 {
        self.opening.room(now, self.pace(), &self.sender)
    }

    /// Whether a copy of a packet that went elsewhere may leave on it now: its window has room, and its pace allows it.
    pub(super) fn takes_copy(&self, now: Instant) -> bool {
        let paced = self.pace().is_none_or(|rate| self.opening.pacer().is_open_for_copy(now, rate));
        paced && self.sender.room() > 0 && !self.sender.is_suspect(now)
    }

    /// What a scheduler sees of it for each packet.
    #[inline]
    pub(super) fn view(&self, now: Instant) -> LinkView {
        LinkView::of_room(self.id, self.room(now))
    }

    /// The same, and when a packet of `len` bytes would arrive on it.
    pub(super) fn view_with_arrival(&self, now: Instant, len: usize) -> LinkView {
        let pace = self.pace();
        let view = LinkView::of_room(self.id, self.opening.room(now, pace, &self.sender));
        if self.sender.is_suspect(now) {
            // Nobody knows whether it arrives at all.
            return LinkView { arrives_us: Some(i64::MAX), ..view };
        }
        let rate = self.carried_rate();
        let wait = if pace.is_some() {
            let on_wire = len + OVERHEAD + usize::from(self.path().header_len());
            self.opening.pacer().free_at().since(now) + rate.time_for(on_wire as u64)
        } else if self.sender.room() == 0 {
            self.sender.rtt().srtt().unwrap_or_default() / SHUT
        } else {
            Duration::ZERO
        };
        let wait = wait + self.opening_queue();
        let wait = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
        LinkView {
            arrives_us: self.sender.one_way_us().map(|delay| delay.saturating_add(wait)),
            held_up_us: self.held_up_us(),
            rate: rate.as_bps() / 8,
            doubles_us: self.doubles_us(),
            ..view
        }
    }

    /// How long it takes until the rate has doubled that an opening link carries, µs.
    fn doubles_us(&self) -> Option<i64> {
        let trip = self.sender.rtt().srtt().filter(|_| self.sender.is_opening())?;
        i64::try_from(trip.as_micros()).ok()
    }

    /// By how much later than its delay says a packet among many is of use, µs: those behind it wait for what the link loses, and
    /// for one that is late because delays vary.
    pub(super) fn held_up_us(&self) -> i64 {
        self.held_up.us().saturating_add(self.varies_us())
    }

    /// By how much later the latest of many packets is because delays vary, µs.
    pub(super) fn varies_us(&self) -> i64 {
        // The round trip's deviation would count a queue that grows, too.
        let of_path = self.sender.delay_noise();
        let varies = of_path.or_else(|| self.sender.rtt().rttvar()).unwrap_or_default() * 2;
        i64::try_from(varies.as_micros()).unwrap_or(i64::MAX)
    }

    /// Whether datagrams wait in front of the link. On a long one that is a small part of a round trip. Where datagrams overtake each
    /// other the shortest round trip is that of the quickest, and says nothing of a usual one.
    pub(super) fn shows_queue(&self) -> bool {
        let reorders = !self.sender.lateness().is_zero();
        self.is_queue_long() || (!reorders && self.sender.rtt().shows_queue())
    }

    /// Whether the model of the path shows a queue longer than it aims at, and than delays vary by themselves.
    pub(super) fn is_queue_long(&self) -> bool {
        let of_model = self.sender.path_model();
        of_model.is_some_and(|model| model.queue > STANDING_QUEUE + model.noise * 3)
    }

    /// Whether delays hardly vary by themselves, so that each round trip tells of a queue.
    pub(super) fn is_steady(&self) -> bool {
        self.sender.path_model().is_none_or(|model| model.noise < STEADY)
    }

    /// How long packets wait in front of a link that is still opening: nothing is paced there yet, so that the queue is of our making.
    fn opening_queue(&self) -> Duration {
        if !self.sender.is_opening() || !self.sender.rtt().shows_queue() {
            return Duration::ZERO;
        }
        self.sender.path_model().map_or(Duration::ZERO, |model| model.queue)
    }

    /// What it carries: what its controller believes, its pace, or what its window makes of a round trip.
    pub(super) fn carried_rate(&self) -> Bitrate {
        let of_window = || {
            let trip = self.sender.rtt().srtt().unwrap_or_default();
            Bitrate::from_bytes_in(u64::from(self.sender.window()) * FULL, trip)
        };
        let known =
            self.sender.believed_rate().map(|rate| self.agreed.capped(Some(rate)).unwrap_or(rate));
        known.or_else(|| self.pace()).unwrap_or_else(of_window)
    }

    /// All that could be sent now was: notes whether there is more room.
    pub(super) fn note_room(&mut self, now: Instant) {
        self.opening.note_room(self.room(now));
    }

    /// When a paced link has room again, while its window has.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.opening.opens_at(self.pace(), &self.sender)
    }

    /// Whether the window limits this sender, for a datagram of so many places about to be sent.
    pub(super) fn is_window_limited(&mut self, now: Instant, places: u8) -> bool {
        self.opening.is_window_limited(now, places, &self.sender)
    }

    /// Whether it was full within the last round trip.
    pub(super) fn is_full(&self, now: Instant) -> bool {
        self.opening.is_full(now, self.sender.rtt().srtt())
    }

    /// Whether the pacing limits it.
    pub(super) fn is_paced(&self, now: Instant) -> bool {
        // The owner's bound says nothing of the path.
        let trip = self.path_rate().and_then(|_| self.sender.rtt().srtt());
        self.opening.is_paced(now, trip)
    }

    /// What keeps it from carrying more; `waits`: packets wait for a link.
    pub(super) fn note_limit(&mut self, now: Instant, waits: bool) {
        let limit = match () {
            () if !self.carries(now) && !self.helps(now) => Limit::Off,
            () if !waits => Limit::Demand,
            () if self.sender.room() == 0 => Limit::Window,
            () if self.room(now) > 0 => Limit::Turn,
            () if self.agreed.is_cap(self.pace()) => Limit::Cap,
            () => Limit::Pace,
        };
        self.counters.limits.note(now, limit);
    }

    /// The path is another than `before`. Behind another port of the same NAT nothing else changed
    /// (RFC 9000 §9.4); another address may be another network. Over the other family it carries packets
    /// again when its path MTU is known. The fates of datagrams that this decides are `told`.
    pub(super) fn moved(&mut self, now: Instant, before: Path, mut told: impl FnMut(&Settled)) {
        let path = self.path();
        if path.remote.ip() == before.remote.ip() {
            return self.mtu.search.revalidate(now);
        }
        self.sensing.reset();
        let (receiver, policy) = (&mut self.receiver, &mut self.control.policy);
        self.sender.on_new_path(now, |settled| {
            settle(now, &settled, None, receiver, policy);
            told(&settled);
        });
        if path.header_len() == before.header_len() {
            return self.mtu.search.on_new_address(now);
        }
        self.mtu.restart(now, path.header_len());
        self.life.restart_settling(now);
    }

    /// Tells the peer when the path MTU has fallen.
    pub(super) fn watch_mtu(&mut self) {
        if let Some(mtu) = self.mtu.poll_fall() {
            self.control.pending.mtu_hint = Some(mtu);
        }
    }

    /// The largest inner packet that fits, in bytes.
    pub(super) fn inner_mtu(&self) -> u16 {
        self.mtu.search.mtu().saturating_sub(self.path().header_len() + OVERHEAD as u16)
    }

    pub(super) fn enter(&mut self, now: Instant, state: LinkState) {
        self.life.enter(now, state);
        if state == LinkState::Down {
            self.keepalive.on_down();
        }
    }

    /// Whether nothing was confirmed for too long.
    pub(super) fn is_dead(&self, now: Instant) -> bool {
        self.life.is_dead(now, &self.sender)
    }

    /// When an answer is overdue, and when the link is asked again then.
    pub(super) fn overdue_at(&self) -> Option<Instant> {
        let since = self.sender.unanswered_since().filter(|_| self.life.is_up())?;
        Some(self.suspicion.due(since, self.sender.rtt().patience()?))
    }

    /// Whether an answer is overdue for this long.
    pub(super) fn is_silent(&self, now: Instant, overdue: Duration) -> bool {
        let since = self.sender.unanswered_since();
        let due = since.zip(self.sender.rtt().patience()).map(|(since, patience)| since + patience);
        due.is_some_and(|due| now >= due + overdue)
    }

    /// If an answer is overdue: asks for one. Returns whether it was not known before.
    pub(super) fn suspect(&mut self, now: Instant) -> bool {
        let overdue = self.overdue_at().is_some_and(|at| at <= now);
        let Some(since) = self.sender.unanswered_since().filter(|_| overdue) else { return false };
        self.control.pending.ping = true;
        self.suspicion.note(now, since)
    }

    /// Whether a path MTU probe may be sent: the link lives, and is proven to be the peer's.
    pub(super) fn may_probe(&self) -> bool {
        self.life.is_up() && self.paths.validation.is_proven()
    }

    /// Asks again where no answer came: a join, or a probe of a link that is down; over each of the
    /// addresses in turn.
    fn retry(&mut self, now: Instant) {
        if !self.life.is_retry_due(now) {
            return;
        }
        if let Some(path) = self.paths.take_turn() {
            self.choose(now, path);
        }
        match self.life.retry(now, self.paths.is_accepted(), self.agreed.metered) {
            Some(Retry::Join) => self.control.pending.join = true,
            Some(Retry::Ping) => self.control.pending.ping = true,
            None => {}
        }
    }

    /// Nobody knows how it does: it is asked without waiting for its time.
    pub(super) fn ask_now(&mut self, now: Instant) {
        match self.life.state() {
            LinkState::Up => self.control.pending.ping = true,
            LinkState::Joining | LinkState::Down => self.life.retry_now(now),
        }
    }

    /// Something came although the link is down: one question shows whether the other direction works too.
    pub(super) fn ask_if_down(&mut self) {
        self.control.pending.ping |= self.life.is_down();
    }

    /// The client's own path from which the peer answered: by then another may be on trial.
    pub(super) fn settle_path(&mut self, now: Instant, path: Path) {
        if self.paths.is_other_choice(path) {
            self.choose(now, path);
        }
    }

    /// The peer answers on a path of this or another link: asks there at once, or where this one is.
    pub(super) fn ask_over(&mut self, now: Instant, path: Path) {
        if !self.life.is_up() {
            self.settle_path(now, path);
        }
        match self.life.state() {
            LinkState::Joining => self.control.pending.join = true,
            LinkState::Up | LinkState::Down => self.control.pending.ping = true,
        }
    }

    /// Uses one of the client's own paths.
    fn choose(&mut self, now: Instant, path: Path) {
        let before = self.path();
        self.paths.validation.choose(path);
        if before != path {
            self.keepalive.on_path_changed();
        }
        if before.header_len() != path.header_len() {
            self.mtu.restart(now, path.header_len());
        }
    }

    /// Whether a mark is due, or when it will be: packets below `owed` left on others since the last word here.
    pub(super) fn mark_at(&self, owed: u64) -> Option<Instant> {
        let waited_for = self.life.is_up() && self.agreed.duty() != Duty::Rests;
        let behind = waited_for && self.numbering.told < owed;
        behind.then(|| self.activity.mark_at())
    }

    /// When the client asks whether its link still works, because packets came until shortly before its
    /// last word.
    fn doubt_at(&self) -> Option<Instant> {
        let doubtful = self.life.is_up() && !self.paths.is_accepted();
        doubtful.then(|| self.activity.doubt_at()).flatten()
    }

    /// When it is asked how it does.
    fn probe_at(&self, usage: Usage) -> Option<Instant> {
        let rests = self.agreed.duty() == Duty::Rests;
        self.life.is_up().then(|| self.activity.probe_at(usage, rests)).flatten()
    }

    /// When its NATs must hear of it.
    pub(super) fn keepalive_at(&self) -> Option<Instant> {
        let (last_sent, last_used) = self.activity.last_used();
        self.life.is_up().then(|| self.keepalive.poll_timeout(last_sent, last_used)).flatten()
    }

    /// Has the peer told what others receive here.
    pub(super) fn tell_others(&mut self, rate: Bitrate) {
        self.control.tell_others(rate);
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

    /// Does what is due. Returns the event of a path that moved. Another link says after each `rhythm` of silence that it is
    /// there, and does so now: this one joins in. The fates of datagrams that this decides are `told`.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        usage: Usage,
        rhythm: Option<Duration>,
        mut told: impl FnMut(&Settled),
    ) -> Option<Event> {
        let before = self.path();
        let moved = self.paths.validation.handle_timeout(now);
        if moved {
            self.moved(now, before, &mut told);
        }
        let (mtu, receiver) = (&mut self.mtu.search, &mut self.receiver);
        let policy = &mut self.control.policy;
        let settle = |settled: Settled| {
            settle(now, &settled, Some(&mut *mtu), receiver, policy);
            told(&settled);
        };
        if self.sender.handle_timeout(now, settle) {
            self.sensing.on_fates(now, self.sender.fates());
        }
        self.mtu.search.handle_timeout(now);
        self.life.settle_by_time(now, &self.mtu.search);
        self.retry(now);
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let asks = due(self.doubt_at()) || due(self.probe_at(usage));
        self.control.pending.ping |= asks | self.life.nudge(now, &self.sender);
        self.control.handle_timeout(now);
        self.keep_alive(now, rhythm);
        moved.then(|| Event::PathMoved(self.id, self.path()))
    }

    fn keep_alive(&mut self, now: Instant, rhythm: Option<Duration>) {
        let near = self.keepalive.slack(rhythm);
        if self.keepalive_at().is_none_or(|at| at > now + near) {
            return;
        }
        match self.keepalive.handle_timeout(now) {
            Some(Due::Ping) => self.control.pending.ping = true,
            Some(Due::EchoAfter { token, delay }) => {
                let delay_ms = u32::try_from(delay.as_millis()).unwrap_or(u32::MAX);
                self.control.pending.echo_after = Some((token, delay_ms));
            }
            None => {}
        }
    }

    /// The earliest of the timers that need no datagram to have their effect.
    pub(super) fn poll_silent(&self) -> Option<Wakeup> {
        self.soonest([
            (self.sender.poll_timeout(), LinkTimer::Retransmission),
            (self.life.poll_timeout(&self.sender, &self.mtu.search), LinkTimer::Liveness),
            (self.control.echo_due.map(|(_, at)| at), LinkTimer::Echo),
        ])
    }

    /// The earliest of the link's timers.
    pub(super) fn poll_timeout(&self, owed: u64, usage: Usage) -> Option<Wakeup> {
        let report = (!self.control.held).then(|| self.receiver.poll_timeout()).flatten();
        let probe = self.may_probe().then(|| self.mtu.search.poll_timeout()).flatten();
        let speaking = self.soonest([
            (report, LinkTimer::Report),
            (probe, LinkTimer::PathMtu),
            (self.paths.validation.poll_timeout(), LinkTimer::PathValidation),
            (self.keepalive_at(), LinkTimer::Keepalive),
            (self.mark_at(owed), LinkTimer::Mark),
            (self.doubt_at(), LinkTimer::Silence),
            (self.probe_at(usage), LinkTimer::Sense),
        ]);
        sooner(self.poll_silent(), speaking)
    }

    fn soonest<const N: usize>(&self, timers: [(Option<Instant>, LinkTimer); N]) -> Option<Wakeup> {
        let least = |least: Option<(Instant, LinkTimer)>, (at, timer)| match (least, at) {
            (Some((least, _)), Some(at)) if at < least => Some((at, timer)),
            (None, Some(at)) => Some((at, timer)),
            _ => least,
        };
        let soonest = timers.into_iter().fold(None, least);
        soonest.map(|(at, timer)| (at, Timer::Link(self.id, timer)))
    }
}

/// One datagram's fate is known: tells whom it concerns. No `mtu`: it went over another path.
pub(super) fn settle(
    now: Instant,
    settled: &Settled,
    mtu: Option<&mut PathMtu>,
    receiver: &mut LinkReceiver,
    policy: &mut PolicyNews,
) {
    let arrived = matches!(settled.fate, Fate::Confirmed | Fate::ConfirmedLate);
    policy.on_fate(settled.number, arrived);
    let carried = &settled.sent.carried;
    if let Some(token) = carried.report.filter(|_| arrived) {
        receiver.on_report_confirmed(now, token);
    }
    match (carried.size, mtu) {
        (SizeEvidence::Probe(size), Some(mtu)) if arrived => mtu.on_probe_acked(now, size),
        (SizeEvidence::Probe(size), Some(mtu)) => mtu.on_probe_lost(now, size),
        (SizeEvidence::Large(size), Some(mtu)) if arrived => mtu.on_acked(now, size),
        (SizeEvidence::Large(size), Some(mtu)) => mtu.on_lost(now, size, 1),
        (SizeEvidence::None, _) | (_, None) => {}
    }
}
