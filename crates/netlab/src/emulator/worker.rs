//! The thread that moves the frames.
//!
//! One turn: wait until a frame came, a frame is due or the owner asks something; note the time;
//! read what came; write what is due. The thread sleeps until shortly before the next frame is due
//! and then looks at the clock without sleeping, because a sleeper wakes late by tens of
//! microseconds. It may do so for a twentieth of the time: of thousands of frames a second some
//! are late by that much, and the programs under test have the core. With nothing under way it
//! sleeps until something comes.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use ropewalk_proto::time::{Instant, earliest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ScheduleParams, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};
use tun_rs::SyncDevice;

use super::Clock;
use super::frame::{MAX_FRAME, ecn, ip_size, mark_ce};
use super::lateness::{Histogram, Lateness};
use crate::cores;
use crate::netem::{Conditions, Counters, Netem, Waits};

/// Awake this long before a frame is due. A sleeper with a real-time priority wakes up to about
/// 60 µs late on a virtual machine; at 700 packets a second (8 Mbit/s) it costs 5 % of a core.
const AWAKE_BEFORE: Duration = Duration::from_micros(70);

/// Awake for one in so many parts of the time. Without this bound it was most of a core at 100 Mbit/s, and
/// where two cores had all of the network and both daemons, frames were late by milliseconds.
const AWAKE_ONE_IN: u32 = 20;

/// The most that may be saved of it for a burst of frames.
const AWAKE_SAVED: Duration = Duration::from_millis(1);

/// Frames read from, or written to, one device before the others have their turn: the time that a
/// frame may wait unseen stays below half a millisecond.
const BATCH: usize = 32;

/// Frame buffers kept for the next frames, in place of allocating.
const SPARE_BUFFERS: usize = 4_096;

/// What the owner asks for. Lanes are counted as devices are: 2n is upstream of link n (read from
/// its near device), 2n + 1 downstream.
pub(super) enum Command {
    Update { lane: usize, change: Change, done: SyncSender<()> },
    Plan { lane: usize, at: Instant, conditions: Conditions, done: SyncSender<()> },
    Snapshot(SyncSender<Snapshot>),
}

/// A change of conditions.
pub(super) type Change = Box<dyn FnOnce(&mut Conditions) + Send>;

/// What the thread knows of itself.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) lanes: Vec<Counters>,
    pub(super) waits: Vec<Waits>,
    pub(super) lateness: Lateness,
    pub(super) longest_turn: Duration,
    pub(super) refused: u64,
    pub(super) scheduling: Scheduling,
}

/// How the kernel schedules the emulator's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// Before all ordinary threads.
    RealTime,
    /// With the largest share among ordinary threads.
    Preferred,
    /// Like any thread: the system allowed nothing better.
    Ordinary,
}

pub(super) struct Worker {
    clock: Clock,
    lanes: Vec<Netem<Vec<u8>>>,
    commands: Receiver<Command>,
    /// Written to when a command was sent.
    bell: Arc<OwnedFd>,
    buffers: Vec<Vec<u8>>,
    lateness: Histogram,
    longest_turn: Duration,
    /// For how long it may still be awake before frames are due.
    awake_left: Duration,
    /// Frames that a device did not take.
    refused: u64,
    scheduling: Scheduling,
}

impl Worker {
    pub(super) fn new(
        clock: Clock,
        conditions: Vec<Conditions>,
        seed: u64,
        commands: Receiver<Command>,
        bell: Arc<OwnedFd>,
    ) -> Self {
        let now = clock.now();
        let lanes = (0..).zip(conditions).map(|(lane, conditions)| {
            // Every lane has numbers of its own: traffic on one does not change the losses of another.
            let rng = SmallRng::seed_from_u64(seed.wrapping_add(lane));
            Netem::new(now, conditions, rng)
        });
        Self {
            lanes: lanes.collect(),
            clock,
            commands,
            bell,
            buffers: Vec::new(),
            lateness: Histogram::new(),
            longest_turn: Duration::ZERO,
            awake_left: AWAKE_SAVED,
            refused: 0,
            scheduling: Scheduling::Ordinary,
        }
    }

    /// Runs until the owner has gone. There is one device for each lane.
    pub(super) fn run(mut self, devices: &[SyncDevice]) {
        self.scheduling = prefer_this_thread();
        let bell = Arc::clone(&self.bell);
        let mut waits: Vec<PollFd<'_>> = std::iter::once(PollFd::new(&bell, PollFlags::IN))
            .chain(devices.iter().map(|device| PollFd::new(device, PollFlags::IN)))
            .collect();
        let mut scratch = vec![0; MAX_FRAME];
        let (mut last, mut awake) = (self.clock.now(), false);
        loop {
            let now = self.clock.now();
            self.account_for_awake(now.since(last), awake);
            let sleep = self.time_to_sleep(now);
            (last, awake) = (now, sleep == Some(Duration::ZERO));
            let timeout = sleep.map(timespec);
            // An interrupted wait is one that ended early: nothing is ready, and the turn is empty.
            let ready = poll(&mut waits, timeout.as_ref()).unwrap_or(0);
            let began = self.clock.now();
            if ready > 0 {
                if !waits[0].revents().is_empty() && !self.handle_commands() {
                    return;
                }
                for (lane, device) in devices.iter().enumerate() {
                    let wait = &mut waits[lane + 1];
                    if !wait.revents().is_empty() && self.read(lane, device, &mut scratch).is_err()
                    {
                        // It would be ready for ever; the entry watches something else for nothing.
                        *wait = PollFd::new(&bell, PollFlags::empty());
                    }
                }
            }
            for lane in 0..devices.len() {
                // Lane 2n ends at device 2n + 1 and the other way round.
                self.write_due(lane, &devices[lane ^ 1]);
            }
            self.longest_turn = self.longest_turn.max(self.clock.now().since(began));
        }
    }

    /// How long nothing is to be done, unless something comes; `None` for ever.
    fn time_to_sleep(&self, now: Instant) -> Option<Duration> {
        let due = self.lanes.iter().fold(None, |due, lane| earliest(due, lane.poll_timeout()))?;
        Some(due.since(now).saturating_sub(AWAKE_BEFORE.min(self.awake_left)))
    }

    /// A turn took this long, and did not sleep if `awake`.
    fn account_for_awake(&mut self, turn: Duration, awake: bool) {
        let used = if awake { turn } else { Duration::ZERO };
        let left = self.awake_left.saturating_sub(used) + turn / AWAKE_ONE_IN;
        self.awake_left = left.min(AWAKE_SAVED);
    }

    /// Returns whether there still is an owner.
    fn handle_commands(&mut self) -> bool {
        // Resets the count; it cannot block, for the bell rang.
        let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8]);
        loop {
            match self.commands.try_recv() {
                Ok(command) => self.handle_command(command),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Owners wait for each answer; one that has gone needs none.
    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Update { lane, change, done } => {
                let lane = &mut self.lanes[lane];
                let mut conditions = lane.conditions().clone();
                change(&mut conditions);
                lane.handle_change(self.clock.now(), conditions);
                let _ = done.send(());
            }
            Command::Plan { lane, at, conditions, done } => {
                self.lanes[lane].plan_change(at, conditions);
                let _ = done.send(());
            }
            Command::Snapshot(reply) => {
                let _ = reply.send(Snapshot {
                    lanes: self.lanes.iter().map(Netem::counters).collect(),
                    waits: self.lanes.iter().map(|lane| lane.waits().clone()).collect(),
                    lateness: self.lateness.summary(),
                    longest_turn: self.longest_turn,
                    refused: self.refused,
                    scheduling: self.scheduling,
                });
            }
        }
    }

    /// Reads what a device has. An error means that the device is gone.
    fn read(&mut self, lane: usize, device: &SyncDevice, scratch: &mut [u8]) -> io::Result<()> {
        let now = self.clock.now();
        for _ in 0..BATCH {
            match device.recv(scratch) {
                Ok(length) => {
                    let frame = &scratch[..length];
                    let mut buffer = self.buffers.pop().unwrap_or_default();
                    buffer.clear();
                    buffer.extend_from_slice(frame);
                    self.lanes[lane].handle_packet(now, buffer, ip_size(frame), ecn(frame));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(lane, %error, "a device of the emulator is gone");
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Writes what is due on a lane to the device at its end.
    fn write_due(&mut self, lane: usize, device: &SyncDevice) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(mut delivery) = self.lanes[lane].poll_packet(now) else { return };
            if delivery.marked {
                mark_ce(&mut delivery.payload);
            }
            self.lateness.record(now.since(delivery.due));
            if device.send(&delivery.payload).is_err() {
                self.refused += 1;
            }
            if self.buffers.len() < SPARE_BUFFERS {
                self.buffers.push(delivery.payload);
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Before programs under test that are real-time themselves, as those of experiments are: they have 1.
const PRIORITY: ScheduleParams = ScheduleParams { sched_priority: 10 };

/// Asks the kernel to run this thread at once when it is woken. The network that it stands for is
/// not on this machine: the programs under test must not be able to slow it.
fn prefer_this_thread() -> Scheduling {
    // Without it an ordinary thread's timers may be 50 µs late; a real-time thread has none.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    cores::keep_to_the_emulators();
    let priority = ThreadPriority::from_posix(PRIORITY);
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    if set_thread_priority_and_policy(thread_native_id(), priority, policy).is_ok() {
        Scheduling::RealTime
    } else if rustix::process::setpriority_process(None, -20).is_ok() {
        Scheduling::Preferred
    } else {
        Scheduling::Ordinary
    }
}
