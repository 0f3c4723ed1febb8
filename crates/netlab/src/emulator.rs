//! The links in real time: Ethernet frames between pairs of TAP devices, each device in a network
//! namespace of its own.
//!
//! Most kernels of small machines lack netem, and netem shapes on the machine under test. This
//! emulator is one thread that drives one [`Netem`](crate::netem::Netem) per direction. It carries
//! whatever the devices send, ARP and neighbour discovery too; sizes and rates are counted at IP level
//! (frame without the 14 bytes of Ethernet).
//!
//! Departures follow virtual time, so that a late wake-up delays a frame but never the rate. How late
//! frames were is measured; [`Report::void_because`] says when a run is worth nothing.

mod frame;
mod lateness;
mod port;
mod worker;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ropewalk_proto::time::Instant;
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;

pub(crate) use self::frame::{ETHERNET_HEADER, MAX_FRAME};
pub use self::lateness::{Bound, Lateness};
pub use self::port::Port;
pub use self::worker::Scheduling;
use self::worker::{Command, Snapshot, Worker};
use crate::error::LabError;
use crate::netem::{Conditions, Counters, Waits};
use crate::scenario::Link;

/// One link to emulate.
#[derive(Clone, Debug)]
pub struct LinkSpec {
    /// The user's end.
    pub near: Port,
    /// The Internet's end.
    pub far: Port,
    /// From near to far.
    pub upstream: Conditions,
    /// From far to near.
    pub downstream: Conditions,
}

/// Which half of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the near end to the far end.
    Upstream,
    /// From the far end to the near end.
    Downstream,
}

/// A running emulator. Its devices and its thread are gone when it is dropped.
pub struct Emulator {
    links: usize,
    ports: Vec<Port>,
    /// Frames the kernel had thrown away at each port when the emulator began.
    drops_before: u64,
    clock: Clock,
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Makes the devices, sets them up and begins to carry frames. Links are known by their index
    /// in `links`. The seed decides what is lost and how long jitter delays.
    ///
    /// # Errors
    /// If a device cannot be made (no privilege, no such namespace, name taken), with its name.
    pub fn spawn(links: Vec<LinkSpec>, seed: u64) -> Result<Self, LabError> {
        let mut ports = Vec::with_capacity(2 * links.len());
        let mut conditions = Vec::with_capacity(2 * links.len());
        let count = links.len();
        for LinkSpec { near, far, upstream, downstream } in links {
            ports.extend([near, far]);
            conditions.extend([upstream, downstream]);
        }
        let devices = ports.iter().map(Port::open).collect::<Result<Vec<_>, _>>()?;
        let clock = Clock::start();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| LabError::io("making an eventfd")(error.into()))?;
        let bell = Arc::new(bell);
        let (commands, inbox) = mpsc::channel();
        let worker = Worker::new(clock, conditions, seed, inbox, Arc::clone(&bell));
        let thread = thread::Builder::new()
            .name("emulator".into())
            .spawn(move || worker.run(&devices))
            .map_err(LabError::io("starting the emulator's thread"))?;
        let drops_before = kernel_drops(&ports)?;
        Ok(Self {
            links: count,
            ports,
            drops_before,
            clock,
            commands: Some(commands),
            bell,
            thread: Some(thread),
        })
    }

    /// The emulator's time, for [`Self::plan`].
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Changes the conditions of one direction now; when it returns, the change has happened.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn update(
        &self,
        link: usize,
        direction: Direction,
        change: impl FnOnce(&mut Conditions) + Send + 'static,
    ) -> Result<(), LabError> {
        let lane = self.lane(link, direction)?;
        let change = Box::new(change);
        self.ask(|done| Command::Update { lane, change, done })
    }

    /// Changes both directions of a link now, one right after the other.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn update_both(
        &self,
        link: usize,
        change: impl Fn(&mut Conditions) + Clone + Send + 'static,
    ) -> Result<(), LabError> {
        self.update(link, Direction::Upstream, change.clone())?;
        self.update(link, Direction::Downstream, change)
    }

    /// Has the conditions of one direction replaced at `at`, exactly: all of them, also those that
    /// [`Self::update`] changed meanwhile.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn plan(
        &self,
        link: usize,
        direction: Direction,
        at: Instant,
        conditions: Conditions,
    ) -> Result<(), LabError> {
        let lane = self.lane(link, direction)?;
        self.ask(|done| Command::Plan { lane, at, conditions, done })
    }

    /// Has a link follow a scenario that begins at `start`. Its initial conditions are those that the
    /// emulator was spawned with.
    ///
    /// # Errors
    /// If there is no such link.
    pub fn follow(&self, link: usize, scenario: &Link, start: Instant) -> Result<(), LabError> {
        let upstream = scenario.upstream.changes.iter().map(|change| (Direction::Upstream, change));
        let downstream =
            scenario.downstream.changes.iter().map(|change| (Direction::Downstream, change));
        upstream.chain(downstream).try_for_each(|(direction, (at, conditions))| {
            self.plan(link, direction, start + *at, conditions.clone())
        })
    }

    /// What happened so far.
    ///
    /// # Errors
    /// If the thread or one of the namespaces is gone.
    pub fn report(&self) -> Result<Report, LabError> {
        let Snapshot { lanes, waits, lateness, longest_turn, refused, scheduling } =
            self.ask(Command::Snapshot)?;
        let (pairs, _) = lanes.as_chunks::<2>();
        let waits = waits.as_chunks::<2>().0.to_vec();
        let link = |[upstream, downstream]: &[_; 2]| LinkCounters {
            upstream: *upstream,
            downstream: *downstream,
        };
        let links = pairs.iter().map(link).collect();
        let unread = kernel_drops(&self.ports)?.saturating_sub(self.drops_before);
        let longest_turn_us = u64::try_from(longest_turn.as_micros()).unwrap_or(u64::MAX);
        Ok(Report { links, waits, lateness, longest_turn_us, unread, refused, scheduling })
    }

    fn lane(&self, link: usize, direction: Direction) -> Result<usize, LabError> {
        if link >= self.links {
            let links = self.links;
            return Err(LabError::Unsupported(format!("link {link} of {links} links")));
        }
        Ok(2 * link + usize::from(direction == Direction::Downstream))
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, LabError> {
        let gone = || LabError::Unsupported("the emulator's thread has ended".into());
        let (reply, answer) = mpsc::sync_channel(1);
        let commands = self.commands.as_ref().ok_or_else(gone)?;
        commands.send(command(reply)).map_err(|_| gone())?;
        self.ring();
        answer.recv().map_err(|_| gone())
    }

    fn ring(&self) {
        // Fails only at 2^64 - 1 unread rings; the thread is then awake anyway.
        let _ = rustix::io::write(self.bell.as_fd(), &1_u64.to_ne_bytes());
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.commands = None;
        self.ring();
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; the devices are gone either way.
            let _ = thread.join();
        }
    }
}

/// What became of the frames of one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LinkCounters {
    /// From near to far.
    pub upstream: Counters,
    /// From far to near.
    pub downstream: Counters,
}

/// What the emulator did, and how well.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// By link.
    pub links: Vec<LinkCounters>,
    /// How long frames waited for their turn, by link: upstream and downstream.
    #[serde(skip)]
    pub waits: Vec<[Waits; 2]>,
    /// How late frames were written.
    pub lateness: Lateness,
    /// The longest time between two looks at the devices, in microseconds: a frame may have arrived
    /// that much earlier than the emulator believed.
    pub longest_turn_us: u64,
    /// Frames that the kernel threw away because the emulator did not read them in time.
    pub unread: u64,
    /// Frames that a device did not take (it is down, or gone).
    pub refused: u64,
    /// How the thread was scheduled.
    pub scheduling: Scheduling,
}

impl Report {
    /// Why nothing may be concluded from this run; `None` if it is sound.
    #[must_use]
    pub fn void_because(&self, bound: &Bound) -> Option<String> {
        let Self { lateness, longest_turn_us, unread, .. } = self;
        let exceeds = |micros: u64, bound: Duration| Duration::from_micros(micros) > bound;
        let overflow = |counters: &Counters| counters.overflow > 0;
        if exceeds(lateness.p99_us, bound.p99) || exceeds(lateness.max_us, bound.max) {
            Some(format!("{lateness}; allowed are p99 {:?}, max {:?}", bound.p99, bound.max))
        } else if exceeds(*longest_turn_us, bound.max) {
            Some(format!("devices were not looked at for {longest_turn_us} µs"))
        } else if *unread > 0 {
            Some(format!("{unread} frames were not read in time"))
        } else if self.links.iter().any(|l| overflow(&l.upstream) || overflow(&l.downstream)) {
            Some("more frames were under way than the emulator holds".into())
        } else {
            None
        }
    }
}

/// The monotonic clock, counted from the emulator's start.
#[derive(Clone, Copy)]
struct Clock {
    epoch: std::time::Instant,
}

impl Clock {
    fn start() -> Self {
        Self { epoch: std::time::Instant::now() }
    }

    fn now(self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }
}

fn kernel_drops(ports: &[Port]) -> Result<u64, LabError> {
    ports.iter().map(Port::kernel_drops).sum()
}
