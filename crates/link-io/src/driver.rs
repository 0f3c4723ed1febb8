//! The event loop, the only one of the project: generic over the [`Driven`] (client or proxy) and the
//! [`Tun`], on a current-thread runtime.
//!
//! One turn takes a bounded share from each source and sends what came of it:
//!
//! 1. commands → [`Driven::handle_command`]
//! 2. sockets, one batch each → [`Driven::handle_datagram`]
//! 3. TUN, one batch → [`Driven::handle_packet`]
//! 4. [`Driven::handle_timeout`], if it is due
//! 5. [`Driven::handle_events`] and [`Driven::poll_transmit`] by turns, until there is nothing to send
//! 6. what the TUN's batch still holds is written
//!
//! Then the loop waits: for the TUN, the sockets, a command, or the deadline. A packet passes through
//! no lock, no channel and no other task; other tasks of the runtime (the control API, netlink) get
//! their share between turns. An idle loop does not wake at all.

use crate::clock::Clock;
use crate::moderation::Moderation;
use crate::timer::Timer;
use crate::tun::{Drained, Tun, TunControl, TunError};
use crate::udp::{ReceivedDatagram, SendError, Sockets};
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::packet::transport;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Instant, earliest};
use std::future::poll_fn;
use std::io;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::sync::mpsc;

/// Packets read from the TUN in one turn: as many trains of 44 as two links send in it, at less than
/// 1 µs a packet. What a download has piled up is to wait in the tunnel's queue, where a call goes
/// ahead of it, not in the TUN: with 176 a ping beside a download takes 1.4 times as long. With 704
/// a download is a tenth slower.
const TUN_BATCH: usize = 44 * 2 * TRANSMIT_ROUNDS;

/// Commands in one turn; they come from people and from the host network, so more only means that
/// something floods us.
const COMMAND_BATCH: usize = 16;

/// Batches sent in one turn; a role that has still more goes on in the next, after the other sources.
const TRANSMIT_ROUNDS: usize = 4;

/// Between two tries to make a TUN again that there was no room for: descriptors come free when connections end.
const TUN_PAUSE: Duration = Duration::from_millis(500);

/// What is driven: the client or the proxy.
///
/// Methods are called one after the other from one thread, and must not block. `now` never goes
/// back from one call to the next.
pub trait Driven {
    /// What the control API and the host network ask, through a bounded channel.
    type Command;

    /// A command came.
    fn handle_command(&mut self, now: Instant, command: Self::Command, io: &mut Io<'_>);

    /// A packet came from the TUN. Borrowed for the call, may be changed in place. Answers to its
    /// sender (ICMP) go to `sink`.
    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink);

    /// The same for a TCP or UDP packet whose checksum is partial. It is completed here for a role that says nothing of it.
    fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        transport::complete(packet);
        self.handle_packet(now, packet, sink);
    }

    /// A datagram came from a socket. Borrowed for the call, to be decrypted in place. `arrival.at`
    /// is the better time for one-way delays; it is not later than `now` and may go back.
    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    );

    /// What [`Driven::poll_timeout`] said is due.
    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink);

    /// The kernel refused datagrams. Called while the batch is sent, so possibly often for one path.
    fn handle_send_error(&mut self, now: Instant, path: Path, error: SendError);

    /// Puts what may be sent now into `out`, until there is no more or `out` refuses (then it is
    /// called again).
    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink);

    /// When [`Driven::handle_timeout`] must be called next. Asked after each turn. `None`: never.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Events of the core, and what follows from them: opening and closing sockets, setting the MTU.
    /// Called at least once a turn, before [`Driven::poll_transmit`] and again after anything was sent.
    /// `Break` ends the loop; what the role still has to send (a close message) is sent first.
    fn handle_events(&mut self, now: Instant, io: &mut Io<'_>) -> ControlFlow<()>;
}

/// What a role may do to the system between packets.
pub struct Io<'a> {
    /// Open and close sockets, read their counters.
    pub sockets: &'a mut Sockets,
    /// The TUN's name, index, MTU, counters.
    pub tun: &'a mut dyn TunControl,
    /// The wall clock, for what is compared with other machines.
    pub clock: Clock,
}

/// The loop and all that it owns.
pub struct Driver<R: Driven, T: Tun> {
    role: R,
    tun: T,
    /// The TUN is gone, and is made again then: there was no room for it.
    tun_again_at: Option<Instant>,
    sockets: Sockets,
    commands: Commands<R::Command>,
    timer: Timer,
    clock: Clock,
    counters: DriverCounters,
    moderation: Moderation,
}

/// How the loop went.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DriverCounters {
    /// Passes over all sources.
    pub turns: u64,
    /// Times the loop slept until something happened.
    pub sleeps: u64,
    /// Times it let more come together first, because much came.
    pub rests: u64,
}

/// What a turn left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Turn {
    /// Nothing: wait for something to happen.
    Idle,
    /// A source or the role has more: turn again.
    More,
    /// The role wants to end.
    End,
}

impl<R: Driven, T: Tun> Driver<R, T> {
    /// A loop over `role`, that takes commands from `commands`. Sockets are the role's to open; some
    /// may be open already. Must be called inside the runtime, a current-thread one with I/O enabled.
    ///
    /// # Errors
    /// When there is no file descriptor left for the timer.
    pub fn new(
        role: R,
        tun: T,
        sockets: Sockets,
        commands: mpsc::Receiver<R::Command>,
        clock: Clock,
    ) -> io::Result<Self> {
        let commands = Commands { receiver: Some(commands), next: None };
        let (timer, counters) = (Timer::new(clock)?, DriverCounters::default());
        let moderation = Moderation::default();
        let tun_again_at = None;
        Ok(Self { role, tun, tun_again_at, sockets, commands, timer, clock, counters, moderation })
    }

    /// Turns until the role ends.
    ///
    /// # Errors
    /// [`DriverError`], when the TUN fails and cannot be made again, or the timer fails. Sockets never end the loop.
    pub async fn run(&mut self) -> Result<(), DriverError> {
        loop {
            match self.turn()? {
                Turn::End => return Ok(()),
                Turn::More => tokio::task::yield_now().await,
                Turn::Idle => {
                    let now = self.clock.now();
                    let deadline = earliest(self.role.poll_timeout(), self.tun_again_at);
                    let is_due = |at| deadline.is_some_and(|deadline| deadline <= at);
                    let rest = self.moderation.rest(now).filter(|rest| !is_due(now + *rest));
                    if let Some(rest) = rest {
                        self.rest(rest);
                        tokio::task::yield_now().await;
                    } else if is_due(now) {
                        tokio::task::yield_now().await;
                    } else {
                        self.wait(deadline).await?;
                        self.moderation.on_waited(self.clock.now().since(now));
                    }
                }
            }
        }
    }

    /// One pass over all sources; does not wait. A TUN that is gone is made again.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn turn(&mut self) -> Result<Turn, DriverError> {
        self.counters.turns += 1;
        let mut more = self.take_commands();
        more |= self.take_datagrams();
        let mut is_gone = false;
        match self.take_packets() {
            Ok(drained) => more |= drained == Drained::No,
            Err(error) => {
                is_gone = true;
                more |= self.regain_tun(error)?;
            }
        }
        let now = self.clock.now();
        if self.role.poll_timeout().is_some_and(|deadline| deadline <= now) {
            self.role.handle_timeout(now, self.tun.sink());
        }
        let sent = self.transmit();
        if let Err(error) = self.tun.flush() {
            is_gone = true;
            more |= self.regain_tun(error)?;
        }
        if !is_gone {
            // A queue that was detached meanwhile wants no interface any more.
            self.tun_again_at = None;
        }
        Ok(match sent {
            Turn::Idle if more => Turn::More,
            sent => sent,
        })
    }

    /// The role.
    pub fn role(&self) -> &R {
        &self.role
    }

    /// The role.
    pub fn role_mut(&mut self) -> &mut R {
        &mut self.role
    }

    /// The TUN.
    pub fn tun(&self) -> &T {
        &self.tun
    }

    /// The sockets.
    pub fn sockets(&mut self) -> &mut Sockets {
        &mut self.sockets
    }

    /// How the loop went.
    pub fn counters(&self) -> DriverCounters {
        self.counters
    }

    /// Step 1.
    fn take_commands(&mut self) -> bool {
        let Self { role, tun, sockets, commands, clock, .. } = self;
        for _ in 0..COMMAND_BATCH {
            let Some(command) = commands.take() else { return false };
            let mut io = Io { sockets, tun, clock: *clock };
            role.handle_command(clock.now(), command, &mut io);
        }
        true
    }

    /// Step 2.
    fn take_datagrams(&mut self) -> bool {
        let Self { role, tun, sockets, moderation, .. } = self;
        sockets.recv_batch(|now, arrival, datagram| {
            moderation.on_carried();
            role.handle_datagram(now, arrival, datagram, tun.sink());
        })
    }

    /// Step 3.
    fn take_packets(&mut self) -> Result<Drained, TunError> {
        let Self { role, tun, clock, moderation, .. } = self;
        let now = clock.now();
        tun.read_batch(TUN_BATCH, |packet, checksum, sink| {
            moderation.on_carried();
            match checksum {
                Checksum::Whole => role.handle_packet(now, packet, sink),
                Checksum::Partial => role.handle_partial(now, packet, sink),
            }
        })
    }

    /// Makes the TUN again if that is what the error says; later where the machine has no room for it now. Returns whether there
    /// may be more to do.
    fn regain_tun(&mut self, error: TunError) -> Result<bool, DriverError> {
        let TunError::Gone { name } = &error else { return Err(error.into()) };
        let now = self.clock.now();
        if self.tun_again_at.is_some_and(|at| now < at) {
            return Ok(false);
        }
        match self.tun.reopen() {
            Ok(()) => {
                tracing::warn!("somebody deleted the TUN interface {name}: it was made again");
                self.tun_again_at = None;
                Ok(true)
            }
            Err(why) if why.is_shortage() => {
                if self.tun_again_at.replace(now + TUN_PAUSE).is_none() {
                    tracing::warn!(
                        "somebody deleted the TUN interface {name}, and it cannot be made again yet: {why}"
                    );
                }
                Ok(false)
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Step 5.
    fn transmit(&mut self) -> Turn {
        let Self { role, tun, sockets, clock, .. } = self;
        let mut flow = ControlFlow::Continue(());
        for _ in 0..TRANSMIT_ROUNDS {
            let now = clock.now();
            flow = role.handle_events(now, &mut Io { sockets, tun, clock: *clock });
            role.poll_transmit(now, sockets.out());
            let refused = sockets.out().take_refused();
            let sent = sockets.flush(|path, error| role.handle_send_error(now, path, error));
            match flow {
                // A message that did not fit is not worth waiting for.
                ControlFlow::Break(()) if !refused || sent == 0 => return Turn::End,
                ControlFlow::Continue(()) if sent == 0 => return Turn::Idle,
                ControlFlow::Break(()) | ControlFlow::Continue(()) => {}
            }
        }
        if flow.is_break() { Turn::End } else { Turn::More }
    }

    /// Leaves the processor to others for a moment, so that the next turn finds more. The whole thread rests: in the
    /// runtime's own sleep each datagram that comes would wake it.
    fn rest(&mut self, rest: Duration) {
        self.counters.rests += 1;
        thread::sleep(rest);
    }

    /// Sleeps until there is something to do.
    async fn wait(&mut self, deadline: Option<Instant>) -> Result<(), DriverError> {
        self.timer.set(deadline).map_err(DriverError::Timer)?;
        let Self { tun, tun_again_at, sockets, commands, timer, counters, .. } = self;
        let mut slept = false;
        poll_fn(|cx| {
            // Every source is asked, so that each of them will wake us; but one that is gone always would.
            let mut ready = tun_again_at.is_none() && tun.poll_readable(cx).is_ready();
            ready |= sockets.poll_ready(cx).is_ready();
            ready |= commands.poll_ready(cx).is_ready();
            ready |= timer.poll_expired(cx).is_ready();
            if ready {
                return Poll::Ready(());
            }
            slept = true;
            Poll::Pending
        })
        .await;
        counters.sleeps += u64::from(slept);
        if !slept {
            // The runtime has not looked at the system since; the other tasks have had no turn.
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}

/// The command channel, with one command that was taken out of it while waiting.
struct Commands<C> {
    /// `None` once nobody can send any more.
    receiver: Option<mpsc::Receiver<C>>,
    next: Option<C>,
}

impl<C> Commands<C> {
    fn take(&mut self) -> Option<C> {
        self.next.take().or_else(|| self.receiver.as_mut()?.try_recv().ok())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(receiver) = &mut self.receiver else { return Poll::Pending };
        match receiver.poll_recv(cx) {
            Poll::Ready(Some(command)) => {
                self.next = Some(command);
                Poll::Ready(())
            }
            Poll::Ready(None) => {
                self.receiver = None;
                Poll::Pending
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Why the loop ended without the role's wish.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The TUN is broken, or gone and cannot be made again.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The timer could not be set.
    #[error("setting the timer failed: {0}")]
    Timer(#[source] io::Error),
}
