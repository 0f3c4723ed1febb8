//! A worker beside the coordinator, on a thread of its own: the role in its event loop, and how it starts and ends.
//!
//! It has no config, no book and no host: it carries out orders, and tells the coordinator what happens to its
//! clients. A worker that ends without being told to, or panics, ends the proxy: its clients would hang.

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::Poll;
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use ropewalk_daemon::{service, wakeup};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::{Driven, Driver, Io};
use ropewalk_link_io::tun::Tun;
use ropewalk_link_io::udp::{Bound, ReceivedDatagram, SendError, Sockets};
use ropewalk_proto::endpoint::{EndpointConfig, EndpointEvent, NoInvitations};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Duration, Instant, earliest};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::daemon::Command;
use crate::handover::Handover;
use crate::worker::{Order, Worker};

/// Pause before the coordinator, whose queue was full, is told again.
const TELL_AGAIN: Duration = Duration::from_millis(5);

/// Events that may wait for the coordinator. It takes them within a turn; one that does not for so long hangs.
const MAX_UNTOLD: usize = 1 << 16;

/// What happened to a worker's clients.
#[derive(Debug)]
pub struct News {
    /// The events of its core, in order.
    pub events: Vec<EndpointEvent>,
    /// All its sessions are over, as it was told, and it ends.
    pub ended: bool,
}

/// The role.
pub struct WorkerRole {
    worker: Worker,
    news: mpsc::Sender<Command>,
    untold: Vec<EndpointEvent>,
    tell_at: Option<Instant>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Serving,
    /// Told to say goodbye.
    Closing,
    /// The coordinator knows that all is said, or this one was told to end at once.
    Ended,
    /// The coordinator takes no news.
    Unheard,
}

impl WorkerRole {
    /// A worker that tells the coordinator there.
    #[must_use]
    pub fn new(worker: Worker, news: mpsc::Sender<Command>) -> Self {
        Self { worker, news, untold: Vec::new(), tell_at: None, state: State::Serving }
    }

    fn tell(&mut self, now: Instant) {
        let ended = self.state == State::Closing && self.worker.endpoint.is_closed();
        if self.untold.is_empty() && !ended {
            return;
        }
        let events = std::mem::take(&mut self.untold);
        match self.news.try_send(Command::News(News { events, ended })) {
            Ok(()) => {
                self.tell_at = None;
                if ended {
                    self.state = State::Ended;
                }
            }
            Err(TrySendError::Full(Command::News(News { events, .. }))) => {
                self.tell_at = Some(now + TELL_AGAIN);
                self.untold = events;
                if self.untold.len() > MAX_UNTOLD {
                    self.state = State::Unheard;
                }
            }
            // The coordinator is gone, and with it the proxy.
            Err(_) => self.state = State::Ended,
        }
    }
}

impl Driven for WorkerRole {
    type Command = Order;

    fn handle_command(&mut self, now: Instant, order: Order, io: &mut Io<'_>) {
        match &order {
            Order::Close => self.state = State::Closing,
            Order::End => self.state = State::Ended,
            _ => {}
        }
        self.worker.carry_out(now, order, io);
    }

    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.worker.handle_packet(now, packet, sink);
    }

    fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        self.worker.handle_partial(now, packet, sink);
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        self.worker.handle_datagram(now, arrival, datagram, sink, &mut NoInvitations);
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        wakeup::trace(now, || self.worker.endpoint.poll_timeout());
        self.worker.endpoint.handle_timeout(now, sink);
    }

    fn handle_send_error(&mut self, _now: Instant, path: Path, error: SendError) {
        self.worker.note_send_error(path, error);
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.worker.endpoint.poll_transmit(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let over = self.state == State::Closing && self.worker.endpoint.is_closed();
        let over = (over && self.tell_at.is_none()).then_some(Instant::ZERO);
        let core = self.worker.endpoint.poll_timeout().map(|(at, _)| at);
        earliest(over, earliest(core, self.tell_at))
    }

    fn handle_events(&mut self, now: Instant, io: &mut Io<'_>) -> ControlFlow<()> {
        self.worker.tend_queue(io);
        self.worker.end_of_batch(now);
        self.untold.extend(std::iter::from_fn(|| self.worker.endpoint.poll_event()));
        self.tell(now);
        match self.state {
            State::Serving | State::Closing => ControlFlow::Continue(()),
            State::Ended | State::Unheard => ControlFlow::Break(()),
        }
    }
}

/// All that a worker takes with it.
pub struct WorkerParts<T> {
    /// Its number, from 1.
    pub number: u16,
    /// Its sockets, none yet.
    pub sockets: Sockets,
    /// Its socket at each port.
    pub bound: Vec<Bound>,
    /// Makes its queue of the TUN, inside its runtime.
    pub tun: T,
    /// What its core is told.
    pub core: EndpointConfig,
    /// Nobody can predict it.
    pub seed: [u8; 32],
    /// Its ways to the others.
    pub handover: Handover,
    /// Where its orders come.
    pub orders: mpsc::Receiver<Order>,
    /// Where it tells what happens.
    pub news: mpsc::Sender<Command>,
    /// The clock of all.
    pub clock: Clock,
}

/// A thread that was started.
#[derive(Debug)]
pub struct Started {
    /// When its loop is ready to turn; dropped if it cannot.
    pub ready: oneshot::Receiver<()>,
    /// How it ended; dropped if it panicked.
    pub ended: oneshot::Receiver<anyhow::Result<()>>,
    /// The thread.
    pub thread: JoinHandle<()>,
}

/// Starts a worker on a thread of its own.
///
/// # Errors
/// The system gives no thread.
pub fn start<T, M>(parts: WorkerParts<M>) -> anyhow::Result<Started>
where
    T: Tun,
    M: FnOnce() -> anyhow::Result<T> + Send + 'static,
{
    let name = format!("worker-{}", parts.number);
    start_thread(name, move |ready| serve(parts, ready))
}

fn start_thread(
    name: String,
    work: impl FnOnce(oneshot::Sender<()>) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<Started> {
    let (say_ready, ready) = oneshot::channel();
    let (say_ended, ended) = oneshot::channel();
    let failed = format!("cannot start the thread {name}");
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let result = work(say_ready);
            drop(say_ended.send(result));
        })
        .context(failed)?;
    Ok(Started { ready, ended, thread })
}

/// All threads, for the time of the proxy.
#[derive(Debug, Default)]
pub struct WorkerThreads(Vec<(mpsc::Sender<Order>, Started)>);

/// Time for a worker to end that was told to: it is at most in the middle of a turn.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

impl WorkerThreads {
    /// One more, that takes its orders there.
    pub fn add(&mut self, orders: mpsc::Sender<Order>, started: Started) {
        self.0.push((orders, started));
    }

    /// Waits until all are ready.
    ///
    /// # Errors
    /// Why one cannot be.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let of = self.0.len() + 1;
        for (number, (_, worker)) in (1..).zip(&mut self.0) {
            if (&mut worker.ready).await.is_err() {
                return Err(failure(number, of, (&mut worker.ended).await.ok()));
            }
        }
        Ok(())
    }

    /// Waits until one ends that was not told to.
    pub async fn first_failure(&mut self) -> anyhow::Error {
        let of = self.0.len() + 1;
        poll_fn(|context| {
            for (number, (_, worker)) in (1..).zip(&mut self.0) {
                if worker.ended.is_terminated() {
                    continue;
                }
                match Pin::new(&mut worker.ended).poll(context) {
                    // It was told to: the coordinator ends next.
                    Poll::Ready(Ok(Ok(()))) | Poll::Pending => {}
                    Poll::Ready(ended) => return Poll::Ready(failure(number, of, ended.ok())),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Ends all that are left. One that does not end in time goes with the process.
    pub async fn end(self) {
        for (orders, _) in &self.0 {
            // One that takes no orders has ended, or hangs.
            drop(orders.try_send(Order::End));
        }
        for (_, mut worker) in self.0 {
            let gone = worker.ended.is_terminated()
                || tokio::time::timeout(ENDS_WITHIN, &mut worker.ended).await.is_ok();
            if gone {
                // A panic was told before.
                drop(worker.thread.join());
            }
        }
    }
}

/// Why the proxy cannot go on without a worker.
fn failure(number: usize, of: usize, ended: Option<anyhow::Result<()>>) -> anyhow::Error {
    let worker = format!("worker {number} of {of}");
    match ended {
        Some(Err(error)) => error.context(format!("{worker} ended")),
        Some(Ok(())) => anyhow!("{worker} ended without being told to"),
        None => anyhow!("{worker} panicked (what it said stands above)"),
    }
}

fn serve<T: Tun>(
    parts: WorkerParts<impl FnOnce() -> anyhow::Result<T>>,
    ready: oneshot::Sender<()>,
) -> anyhow::Result<()> {
    let WorkerParts { mut sockets, bound, tun, core, seed, handover, orders, news, clock, .. } =
        parts;
    service::runtime()?.block_on(async {
        let adopted = bound.into_iter().map(|bound| sockets.adopt(bound));
        let ids: Vec<SocketId> = adopted.collect::<Result<_, _>>()?;
        let worker = Worker::new(clock.now(), core, seed, ids, handover);
        let mut driver =
            Driver::new(WorkerRole::new(worker, news), tun()?, sockets, orders, clock)?;
        // Nobody waits for it where the start failed elsewhere.
        let _ = ready.send(());
        driver.run().await?;
        match driver.role().state {
            State::Unheard => Err(anyhow!("the coordinator takes no news: its loop hangs")),
            State::Serving | State::Closing | State::Ended => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::LocalSet;

    type Work = fn(oneshot::Sender<()>) -> anyhow::Result<()>;

    fn threads(works: &[Work]) -> WorkerThreads {
        let mut threads = WorkerThreads::default();
        for work in works {
            threads.add(mpsc::channel(1).0, start_thread("worker".to_owned(), *work).unwrap());
        }
        threads
    }

    fn run<T>(work: impl Future<Output = T>) -> T {
        LocalSet::new().block_on(&service::runtime().unwrap(), work)
    }

    fn goes_on(ready: oneshot::Sender<()>) -> anyhow::Result<()> {
        let _ = ready.send(());
        Ok(())
    }

    #[test]
    fn a_worker_that_dies_is_told_with_its_reason() {
        let fails: Work = |ready| {
            let _ = ready.send(());
            Err(anyhow!("its TUN is gone"))
        };
        let panics: Work = |ready| {
            let _ = ready.send(());
            panic!("a test of what a panic does")
        };
        for (work, expected) in [
            (fails, "worker 2 of 3 ended: its TUN is gone"),
            (panics, "worker 2 of 3 panicked (what it said stands above)"),
        ] {
            run(async {
                let mut threads = threads(&[goes_on, work]);
                threads.ready().await.unwrap();
                let failure = threads.first_failure().await;
                assert_eq!(format!("{failure:#}"), expected);
                threads.end().await;
            });
        }
    }

    #[test]
    fn a_worker_that_cannot_start_is_told_with_its_reason() {
        let fails: Work = |_| Err(anyhow!("no descriptor is left"));
        let panics: Work = |_| panic!("a test of what a panic does");
        for (work, expected) in [
            (fails, "worker 1 of 2 ended: no descriptor is left"),
            (panics, "worker 1 of 2 panicked (what it said stands above)"),
        ] {
            run(async {
                let error = threads(&[work]).ready().await.unwrap_err();
                assert_eq!(format!("{error:#}"), expected);
            });
        }
    }

    #[test]
    fn workers_that_end_as_told_are_no_failure() {
        run(async {
            let mut threads = threads(&[goes_on, goes_on]);
            threads.ready().await.unwrap();
            let patience = Duration::from_millis(100);
            let failure = tokio::time::timeout(patience, threads.first_failure()).await;
            assert!(failure.is_err(), "{failure:?}");
            threads.end().await;
        });
    }
}
