//! The proxy's end: takes connections, and passes their datagrams to the proxy's own UDP port from a loopback address,
//! and back. So the workers, their steering, and every check of the core are the same as for UDP, and a packet that
//! came by UDP passes none of this.
//!
//! All of it runs on one thread of its own, so that no worker waits for it.
//!
//! | bound | of a stranger | of a client |
//! | --- | --- | --- |
//! | connections ([`admission`](crate::admission)) | 64, 8 from one source; 50 new ones a second, from one source 2 | 256 together, 64 from one source |
//! | time | 5 s for TLS, 10 s until a session sends it something | 15 min in which no session sends it anything |
//! | datagrams | 32 | as many as pass |
//! | memory | a buffer of TLS and one of ours, 16 KiB each | 512 KiB more, of what waits for 100 ms at most |

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use ropewalk_link_io::clock::Clock;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::wire::header::kind_of;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::admission::{Admission, Counts, Source};
use crate::carry::{End, Outgoing, receive, send};
use crate::frame::Reader;
use crate::tcp::tune;
use crate::trust::Identity;

/// Connections that wait in the kernel to be taken.
const BACKLOG: i32 = 128;

/// Time for the handshake of TLS: two round trips of the longest path, and a lost segment.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time until a session sends a stranger something: a client asks within a quarter of a second, and again after one.
const STRANGER_TIME: Duration = Duration::from_secs(10);
/// Datagrams of a stranger that are passed on: a client needs fewer than ten until it has a session.
const STRANGER_DATAGRAMS: u32 = 32;
/// A connection over which no session has sent anything for so long is closed. The longest keepalive that can be set is 10
/// minutes, and is answered. What a client sends keeps nothing: it may be one that was taken out.
const IDLE: Duration = Duration::from_secs(900);

/// Pause after the system gave no descriptor for another connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Bytes of the receive buffer behind the proxy's trains: some of the longest.
const RECV_BUFFER: usize = 1 << 20;

/// Longer than any datagram of a tunnel.
const BUFFER: usize = 2048;

/// Opens the port, and takes nothing yet. `[::]` takes IPv4 too, and is IPv4 alone where the host has no IPv6.
///
/// # Errors
/// The port is taken or forbidden.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let every = address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let lacks_ipv6 = |error: &io::Error| {
        let errno = Errno::from_io_error(error);
        every && matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
    };
    match bind_to(address) {
        Err(error) if lacks_ipv6(&error) => {
            bind_to(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()))
        }
        bound => bound,
    }
}

fn bind_to(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    // Connections of the proxy before this one may linger for a minute.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Takes connections until it is dropped.
#[derive(Debug)]
pub struct Listener {
    sources: Sources,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Begins to take connections at a port that [`bind`] opened, and to pass their datagrams to the proxy that listens
    /// at `proxy` for UDP.
    ///
    /// # Errors
    /// The system has no thread or descriptor to give.
    pub fn start(
        bound: std::net::TcpListener,
        identity: &Identity,
        proxy: SocketAddr,
        clock: Clock,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(bound)?
        };
        let sources = Sources::default();
        let server = Server {
            acceptor: identity.acceptor(),
            sources: sources.clone(),
            proxy: reachable(proxy),
            clock,
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tls".to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    _ = stopped => {}
                    () = server.run(listener) => {}
                }
            });
        })?;
        Ok(Self { sources, stop: Some(stop), thread: Some(thread) })
    }

    /// Who is connected.
    #[must_use]
    pub fn sources(&self) -> Sources {
        self.sources.clone()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // What a panic said stands in the log.
            drop(thread.join());
        }
    }
}

/// Where the proxy's own sockets are reached from this machine.
fn reachable(proxy: SocketAddr) -> SocketAddr {
    match proxy.ip().is_unspecified() {
        // A socket for all addresses takes IPv4 in any case.
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), proxy.port()),
        false => proxy,
    }
}

/// Who is connected, for the status.
#[derive(Clone, Debug, Default)]
pub struct Sources(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    admission: Admission,
    /// Where a connection comes from, by the address and port from which its datagrams reach the proxy.
    by_alias: BTreeMap<SocketAddr, SocketAddr>,
}

impl Sources {
    /// Where the connection comes from whose datagrams reach the proxy from this address; `None`: it is none.
    #[must_use]
    pub fn of(&self, alias: SocketAddr) -> Option<SocketAddr> {
        self.lock().by_alias.get(&alias).copied()
    }

    /// How many there are and were.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.lock().admission.counts()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All that a connection needs.
#[derive(Clone)]
struct Server {
    acceptor: TlsAcceptor,
    sources: Sources,
    proxy: SocketAddr,
    clock: Clock,
}

impl Server {
    async fn run(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let Some(place) = Place::take(&self.sources, self.clock, from) else {
                        // Closed at once; it is counted.
                        continue;
                    };
                    let server = self.clone();
                    spawn_local(async move {
                        let end = server.serve(stream, place).await;
                        tracing::debug!(%from, "a connection over TLS ended: {end}");
                    });
                }
                Err(error) => {
                    tracing::debug!("no connection is taken: {error}");
                    sleep(EXHAUSTED).await;
                }
            }
        }
    }

    /// One connection from its beginning to its end.
    async fn serve(&self, stream: TcpStream, mut place: Place) -> Ended {
        tune(&SockRef::from(&stream));
        let stream = match timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Ended::Tls(error),
            Err(_) => return Ended::Late,
        };
        let socket = match place.open(self.proxy) {
            Ok(socket) => socket,
            Err(error) => return Ended::Local(error),
        };
        let (mut read, write) = tokio::io::split(stream);
        let (clock, outgoing) = (&self.clock, Outgoing::default());
        let activity = Activity { proven: Cell::new(false), moved: Cell::new(clock.now()) };
        tokio::select! {
            end = up(&mut read, &socket, &activity) => end,
            end = down(&socket, &outgoing, &activity, clock, &mut place) => end,
            end = send(write, &outgoing, clock) => end.into(),
            end = watch(&activity, clock) => end,
        }
    }
}

/// What has passed on a connection.
struct Activity {
    /// A session has sent it something.
    proven: Cell<bool>,
    /// When one last did.
    moved: Cell<Instant>,
}

/// Passes what a client sends to the proxy.
async fn up<R: tokio::io::AsyncRead + Unpin>(
    stream: &mut R,
    socket: &UdpSocket,
    activity: &Activity,
) -> Ended {
    let mut reader = Reader::new();
    let mut passed = 0;
    loop {
        let datagram = match receive(stream, &mut reader).await {
            Ok(datagram) => datagram,
            Err(end) => return end.into(),
        };
        if !activity.proven.get() {
            passed += 1;
            if passed > STRANGER_DATAGRAMS {
                return Ended::Stranger;
            }
        }
        // A datagram may be lost: while the proxy starts again, nobody listens there.
        let _ = socket.send(datagram).await;
    }
}

/// Passes what the proxy sends to a client. Of a session it speaks to nobody but a client of its own.
async fn down(
    socket: &UdpSocket,
    outgoing: &Outgoing,
    activity: &Activity,
    clock: &Clock,
    place: &mut Place,
) -> Ended {
    let mut buffer = [0; BUFFER];
    loop {
        let datagram = match socket.recv(&mut buffer).await {
            Ok(len) => &buffer[..len],
            // The answer to a datagram for which nobody listened.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Ended::Local(error),
        };
        let now = clock.now();
        if datagram.first().copied().and_then(kind_of).is_some() {
            activity.moved.set(now);
            if !activity.proven.replace(true) {
                place.prove();
            }
        }
        outgoing.put(now, datagram);
    }
}

/// Ends a connection that stays a stranger's, or that no session uses any more.
async fn watch(activity: &Activity, clock: &Clock) -> Ended {
    sleep(STRANGER_TIME).await;
    if !activity.proven.get() {
        return Ended::Stranger;
    }
    loop {
        let still = clock.now().since(activity.moved.get());
        match IDLE.checked_sub(still).filter(|left| !left.is_zero()) {
            Some(left) => sleep(left).await,
            None => return Ended::Idle,
        }
    }
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    #[error("it took too long for its handshake of TLS")]
    Late,
    #[error("it has not shown that it is a client's")]
    Stranger,
    #[error("no session has sent anything over it for 15 minutes")]
    Idle,
    #[error("its datagrams cannot be passed on: {0}")]
    Local(io::Error),
    #[error(transparent)]
    Stream(#[from] End),
}

/// A connection's place among all; free again when it is dropped.
struct Place {
    sources: Sources,
    source: Source,
    alias: Ipv4Addr,
    from: SocketAddr,
    proven: bool,
    /// From where its datagrams reach the proxy.
    local: Option<SocketAddr>,
    clock: Clock,
}

impl Place {
    fn take(sources: &Sources, clock: Clock, from: SocketAddr) -> Option<Self> {
        let source = Source::of(from.ip());
        let alias = sources.lock().admission.take(clock.now(), source)?;
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let sources = sources.clone();
        Some(Self { sources, source, alias, from, proven: false, local: None, clock })
    }

    /// The socket from which its datagrams reach the proxy. Towards a proxy that listens at one IPv6 address only, that
    /// is this address itself, and all sources count as one.
    fn open(&mut self, proxy: SocketAddr) -> io::Result<UdpSocket> {
        let own = if proxy.is_ipv4() { IpAddr::V4(self.alias) } else { proxy.ip() };
        let kind = Type::DGRAM.nonblocking().cloexec();
        let raw = Socket::new(Domain::for_address(proxy), kind, Some(Protocol::UDP))?;
        if set_socket_recv_buffer_size_force(&raw, RECV_BUFFER).is_err() {
            // A smaller one loses more of the proxy's bursts, no more.
            let _ = raw.set_recv_buffer_size(RECV_BUFFER);
        }
        raw.bind(&SocketAddr::new(own, 0).into())?;
        raw.connect(&proxy.into())?;
        let socket = UdpSocket::from_std(raw.into())?;
        let local = socket.local_addr()?;
        self.sources.lock().by_alias.insert(local, self.from);
        self.local = Some(local);
        Ok(socket)
    }

    fn prove(&mut self) {
        self.proven = true;
        self.sources.lock().admission.prove(self.source);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.sources.lock();
        table.admission.leave(self.clock.now(), self.source, self.proven);
        if let Some(local) = self.local {
            table.by_alias.remove(&local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proxy_is_reached_where_it_listens() {
        for (listen, expected) in [
            ("[::]:51900", "127.0.0.1:51900"),
            ("0.0.0.0:4000", "127.0.0.1:4000"),
            ("192.0.2.1:51900", "192.0.2.1:51900"),
            ("[2001:db8::1]:51900", "[2001:db8::1]:51900"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()), expected.parse().unwrap());
        }
    }

    #[test]
    fn only_what_a_session_sends_keeps_a_connection() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (clock, sources) = (Clock::start(), Sources::default());
            let from = "192.0.2.1:1000".parse().unwrap();
            let mut place = Place::take(&sources, clock, from).unwrap();
            let proxy = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            socket.connect(proxy.local_addr().unwrap()).await.unwrap();
            proxy.connect(socket.local_addr().unwrap()).await.unwrap();
            let long_ago = Instant::ZERO;
            let activity = Activity { proven: Cell::new(false), moved: Cell::new(long_ago) };
            let is_client = || (activity.moved.get() > long_ago, sources.counts().clients);

            // A client that was taken out sends what looks like a session's, and gets refusals.
            let mut framed = Vec::new();
            crate::frame::write(&[0x10, 1, 2], &mut framed);
            let end = up(&mut &framed[..], &socket, &activity).await;
            assert!(matches!(end, Ended::Stream(End::Closed)), "{end}");
            let outgoing = Outgoing::default();
            let patience = Duration::from_millis(500);
            proxy.send(&[0x00, 1]).await.unwrap();
            let passing = down(&socket, &outgoing, &activity, &clock, &mut place);
            assert!(timeout(patience, passing).await.is_err());
            assert_eq!(is_client(), (false, 0));

            proxy.send(&[0x10, 1]).await.unwrap();
            let passing = down(&socket, &outgoing, &activity, &clock, &mut place);
            assert!(timeout(patience, passing).await.is_err());
            assert_eq!(is_client(), (true, 1));
        });
    }
}
