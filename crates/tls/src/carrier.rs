//! The client's end: a [`Carrier`] for the sockets of its event loop, with a connection to each address that it is told
//! to send to.
//!
//! A connection is made when there is something to send, and made again when it has ended and there is more; after a
//! failure ever less often. The core asks a link that does not answer again and again by itself, so nobody else has to.
//!
//! The proxies of a fleet are asked how far they are over every link, and so over each of these. A question to another
//! proxy never ends a connection: where there are too many, it is not sent.
//!
//! The work is done by a task for each connection on the same runtime, between turns of the event loop.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::udp::Carrier;
use ropewalk_proto::config::MAX_PATHS;
use ropewalk_proto::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::carry::{End, Outgoing, receive, send};
use crate::dial::{Dial, DialError};
use crate::frame::Reader;
use crate::trust::connector;

/// Connections of one link at a time: one to each address of a round of questions, which go to 16 proxies of a fleet and
/// to one address of each family, and to all addresses of two proxies that the client has a session with.
const MOST_LINES: usize = 2 * 16 + 2 * MAX_PATHS;

/// Datagrams that came and wait for the event loop; while there are as many nothing more is read, and TCP slows its
/// sender down. The loop takes them within a millisecond.
const MOST_WAITING: usize = 256;

/// Pause before another connection after the first failure; doubled at each further one.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Pause after a connection that had carried something.
const SHORT_PAUSE: Duration = Duration::from_secs(1);

/// What came.
type Incoming = (SocketAddr, Vec<u8>);

/// Carries the datagrams of one link.
#[derive(Debug)]
pub struct TlsCarrier {
    lines: Vec<Line>,
    /// What a task needs to begin.
    start: Start,
    incoming: mpsc::Receiver<Incoming>,
    /// Taken out of it while waiting.
    next: Option<Incoming>,
}

/// What a task needs to begin.
#[derive(Clone)]
struct Start {
    dial: Arc<Dial>,
    connector: TlsConnector,
    incoming: mpsc::Sender<Incoming>,
    clock: Clock,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start").field("dial", &self.dial).finish_non_exhaustive()
    }
}

/// The way to one address.
#[derive(Debug)]
struct Line {
    /// The proxy, as the core calls it: with its UDP port.
    remote: SocketAddr,
    outgoing: Arc<Outgoing>,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
    /// When there was last something to send.
    used: Instant,
}

/// How a line does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// It has carried a datagram since it was made.
    proven: bool,
    /// Failures in a row.
    failures: u32,
    /// When it ended, and why.
    ended: Option<(Instant, String)>,
}

impl TlsCarrier {
    /// No connection yet. To be used inside a runtime.
    ///
    /// # Errors
    /// The cryptography cannot do TLS 1.3, in the library's words.
    pub fn new(dial: Dial, clock: Clock) -> Result<Self, String> {
        let connector = connector().map_err(|error| error.to_string())?;
        let (sender, incoming) = mpsc::channel(MOST_WAITING);
        let start = Start { dial: Arc::new(dial), connector, incoming: sender, clock };
        Ok(Self { lines: Vec::new(), start, incoming, next: None })
    }

    /// The line to this address, made or made again if it is time for that.
    fn line(&mut self, now: Instant, remote: SocketAddr) -> Option<&mut Line> {
        let known = self.lines.iter().position(|line| line.remote == remote);
        let at = match known {
            Some(at) => {
                let line = &mut self.lines[at];
                line.used = now;
                if line.task.is_finished() {
                    if !line.state().may_retry(now) {
                        return None;
                    }
                    line.restart(now, &self.start);
                }
                at
            }
            None => {
                if self.lines.len() >= MOST_LINES {
                    let left = self.lines.iter().enumerate().filter(|(_, line)| line.is_left(now));
                    let (oldest, _) = left.min_by_key(|(_, line)| line.used)?;
                    self.lines.swap_remove(oldest);
                }
                self.lines.push(Line::begin(now, remote, State::default(), &self.start));
                self.lines.len() - 1
            }
        };
        Some(&mut self.lines[at])
    }
}

impl Carrier for TlsCarrier {
    fn send(&mut self, now: Instant, remote: SocketAddr, datagram: &[u8]) -> bool {
        self.line(now, remote).is_some_and(|line| line.outgoing.put(now, datagram))
    }

    fn try_recv(&mut self) -> Option<Incoming> {
        self.next.take().or_else(|| self.incoming.try_recv().ok())
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.next.is_none() {
            match self.incoming.poll_recv(cx) {
                Poll::Ready(Some(incoming)) => self.next = Some(incoming),
                // Never closed: this end holds a sender.
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    fn trouble(&self) -> Option<String> {
        let states: Vec<State> = self.lines.iter().map(Line::state).collect();
        if states.iter().any(|state| state.proven && state.ended.is_none()) {
            return None;
        }
        let ended = states.into_iter().filter_map(|state| state.ended);
        ended.max_by_key(|(at, _)| *at).map(|(_, why)| why)
    }
}

impl Line {
    fn begin(now: Instant, remote: SocketAddr, mut state: State, start: &Start) -> Self {
        (state.proven, state.ended) = (false, None);
        let outgoing = Arc::new(Outgoing::default());
        let state = Arc::new(Mutex::new(state));
        let work = run(start.clone(), remote, Arc::clone(&outgoing), Arc::clone(&state));
        Self { remote, outgoing, state, task: tokio::spawn(work), used: now }
    }

    fn restart(&mut self, now: Instant, start: &Start) {
        *self = Self::begin(now, self.remote, self.state(), start);
    }

    /// Whether it can be forgotten: its connection has ended, and there was nothing to send for so long that the pause
    /// before another one is over.
    fn is_left(&self, now: Instant) -> bool {
        self.task.is_finished() && now.since(self.used) >= LONGEST_PAUSE
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    /// Notes the end of a connection, or of the attempt to make one.
    fn end(&mut self, now: Instant, why: String) {
        self.failures = if self.proven { 0 } else { self.failures.saturating_add(1) };
        self.ended = Some((now, why));
    }

    /// Whether another connection may be made.
    fn may_retry(&self, now: Instant) -> bool {
        let Some((at, _)) = &self.ended else { return true };
        let pause = match self.failures {
            0 => SHORT_PAUSE,
            // More doublings than these are longer than the longest pause.
            failures => (PAUSE * 2_u32.pow((failures - 1).min(8))).min(LONGEST_PAUSE),
        };
        now >= *at + pause
    }
}

/// One connection from its beginning to its end.
async fn run(start: Start, remote: SocketAddr, outgoing: Arc<Outgoing>, state: Arc<Mutex<State>>) {
    let clock = start.clock;
    let why = match start.dial.connect(&start.connector, remote.ip()).await {
        Ok(stream) => {
            tracing::debug!(%remote, "a connection over TLS is made");
            carry(&start, remote, stream, &outgoing, &state).await.to_string()
        }
        Err(error) => error.to_string(),
    };
    tracing::debug!(%remote, "no connection over TLS: {why}");
    state.lock().unwrap_or_else(PoisonError::into_inner).end(clock.now(), why);
}

/// Carries datagrams until the connection ends.
async fn carry(
    start: &Start,
    remote: SocketAddr,
    stream: TlsStream<TcpStream>,
    outgoing: &Outgoing,
    state: &Mutex<State>,
) -> DialError {
    let (mut read, write) = tokio::io::split(stream);
    let receiving = async {
        let mut reader = Reader::new();
        loop {
            let datagram = match receive(&mut read, &mut reader).await {
                Ok(datagram) => datagram.to_vec(),
                Err(end) => return end,
            };
            state.lock().unwrap_or_else(PoisonError::into_inner).proven = true;
            if start.incoming.send((remote, datagram)).await.is_err() {
                return End::Closed;
            }
        }
    };
    let end = tokio::select! {
        end = receiving => end,
        end = send(write, outgoing, &start.clock) => end,
    };
    let (address, why) = (SocketAddr::new(remote.ip(), start.dial.port), end.to_string());
    match end {
        End::NotOurs(_) => DialError::NotOurs { address, why },
        End::Closed | End::Io(_) => DialError::Ended { address, why },
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};

    use tokio::runtime::Builder;
    use tokio::time::sleep;

    use super::*;
    use crate::dial::Binding;

    #[test]
    fn questions_to_many_proxies_end_no_connection_and_those_that_ended_make_room_after_a_while() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Takes connections and says nothing, so that one to it goes on; at other addresses nobody listens.
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let dial = Dial {
                binding: Binding::Interface { name: "lo".to_owned(), mark: None },
                sources: vec![Ipv4Addr::LOCALHOST.into()],
                port: listener.local_addr().unwrap().port(),
                names: Vec::new(),
            };
            let mut carrier = TlsCarrier::new(dial, Clock::start()).unwrap();
            let at = Instant::from_millis;
            let remote = |last: usize| {
                let host = u8::try_from(last).unwrap();
                SocketAddr::new(IpAddr::from([127, 0, 0, host]), 51_900)
            };
            assert!(carrier.send(at(0), remote(1), b"of the session"));
            for other in 2..=MOST_LINES {
                assert!(carrier.send(at(1), remote(other), b"a question"));
            }
            assert!(!carrier.send(at(100_000), remote(200), b"one more"), "all go on");
            let ended = |carrier: &TlsCarrier| {
                carrier.lines.iter().filter(|line| line.task.is_finished()).count()
            };
            while ended(&carrier) < MOST_LINES - 1 {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(!carrier.send(at(60_000), remote(200), b"one more"), "all were used lately");
            for more in 200..200 + MOST_LINES - 1 {
                assert!(carrier.send(at(60_001), remote(more), b"one more"));
            }
            assert!(!carrier.send(at(60_001), remote(255), b"one more"));
            let first = carrier.lines.iter().find(|line| line.remote == remote(1)).unwrap();
            assert!(!first.task.is_finished());
            assert_eq!(carrier.lines.len(), MOST_LINES);
        });
    }

    #[test]
    fn pauses_grow_after_failures_and_are_short_after_a_connection_that_worked() {
        let at = Instant::from_millis;
        let mut state = State::default();
        assert!(state.may_retry(at(0)), "nothing has failed yet");
        let mut now = at(0);
        for seconds in [5, 10, 20, 40, 60, 60] {
            state.end(now, "refused".to_owned());
            let due = now + Duration::from_secs(seconds);
            assert!(!state.may_retry(due - Duration::from_nanos(1)) && state.may_retry(due));
            now = due;
        }
        state.proven = true;
        state.end(now, "reset".to_owned());
        assert!(!state.may_retry(now) && state.may_retry(now + SHORT_PAUSE));
        for _ in 0..100 {
            state.proven = false;
            state.end(now, "refused".to_owned());
        }
        assert!(state.may_retry(now + LONGEST_PAUSE));
    }
}
