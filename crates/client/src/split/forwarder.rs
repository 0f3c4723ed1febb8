//! Hands the questions of this machine's programs to the tunnel's name servers, and has the addresses of chosen domains in place
//! before an answer is given back.
//!
//! It changes nothing in questions and answers, keeps none, and knows none by itself: each question goes to the servers in turn,
//! from a socket of its own, and the first answer that belongs to it comes back. What cannot be asked is not answered, and
//! whoever asked asks again. For a while names can be asked for elsewhere ([`Beside`]). An answer for a rule of `routes` whose addresses could not be put in place is a failure (SERVFAIL):
//! with the addresses alone a program would connect around the tunnel.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ropewalk_settings::Side;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::Rule;
use super::answers::{answered, failure, is_answer_to, is_question, name_of};
use super::chains::NAMES;
use super::learned::Answered;

/// Questions that may wait for an answer at a time, and connections over TCP. One more is dropped; who asked asks again.
const MAX_QUESTIONS: usize = 256;
const MAX_CONNECTIONS: usize = 64;

/// How long a server may take before the next one is asked: resolvers give up after 5 s.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long it may take until addresses are in place: `nft` takes milliseconds.
const PLACE_TIME: Duration = Duration::from_secs(2);

/// How long a connection over TCP may be idle (RFC 7766 §6.2.3: some seconds).
const IDLE: Duration = Duration::from_secs(10);

/// Bytes of the longest message (RFC 1035 §4.2.2).
const MAX_MESSAGE: usize = 65_535;

/// Bytes up to which an answer is read at once, in some microseconds. One of thousands of addresses takes milliseconds, for which
/// packets do not wait.
const SHORT: usize = 4096;

/// Pause after an error of a socket, and tries to have one port for both protocols.
const REST: Duration = Duration::from_millis(10);
const TRIES: u32 = 16;

/// Whom to ask, and what to look for in the answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name servers.
    pub servers: Vec<SocketAddr>,
    /// The rules by domain.
    pub rules: Vec<Rule>,
    /// Names that are asked for elsewhere.
    pub beside: Beside,
}

/// Names for which other servers are asked than for all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// In lower case, without a dot at the end.
    pub names: Vec<String>,
    /// Those servers.
    pub servers: Vec<SocketAddr>,
}

impl Settings {
    /// Whom to ask this question.
    fn servers_for(&self, question: &[u8]) -> &[SocketAddr] {
        let Beside { names, servers } = &self.beside;
        match !names.is_empty() && name_of(question).is_some_and(|name| names.contains(&name)) {
            true => servers,
            false => &self.servers,
        }
    }
}

/// Addresses that are to be put in place.
#[derive(Debug)]
pub struct Learn {
    /// What an answer gave.
    pub answered: Vec<Answered>,
    /// Told when it is so, or could not be.
    pub done: oneshot::Sender<bool>,
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    settings: watch::Sender<Arc<Settings>>,
    tasks: [JoinHandle<()>; 2],
}

impl Forwarder {
    /// Listens at a port of its own. What answers give goes to `learn`.
    ///
    /// # Errors
    /// When the system has no socket for it.
    pub async fn start(settings: Settings, learn: mpsc::Sender<Learn>) -> io::Result<Self> {
        let (listener, socket) = bind().await?;
        let address = listener.local_addr()?;
        let (settings, current) = watch::channel(Arc::new(settings));
        let asker = Asker { settings: current, learn };
        let tasks = [
            tokio::spawn(serve_datagrams(Arc::new(socket), asker.clone())),
            tokio::spawn(serve_connections(listener, asker)),
        ];
        Ok(Self { address, settings, tasks })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks these servers from now on.
    pub fn set(&self, settings: Settings) {
        self.settings.send_if_modified(|current| {
            let is_new = **current != settings;
            if is_new {
                *current = Arc::new(settings);
            }
            is_new
        });
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Sockets of both protocols at one port.
async fn bind() -> io::Result<(TcpListener, UdpSocket)> {
    let mut last = None;
    for _ in 0..TRIES {
        let listener = TcpListener::bind((NAMES, 0)).await?;
        match UdpSocket::bind(listener.local_addr()?).await {
            Ok(socket) => return Ok((listener, socket)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

async fn serve_datagrams(socket: Arc<UdpSocket>, asker: Asker) {
    let mut asked = JoinSet::new();
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            // Whoever asked is gone; the next one may be there.
            tokio::time::sleep(REST).await;
            continue;
        };
        while asked.try_join_next().is_some() {}
        let question = buffer[..length].to_vec();
        if asked.len() >= MAX_QUESTIONS || !is_question(&question) {
            continue;
        }
        let (socket, asker) = (Arc::clone(&socket), asker.clone());
        asked.spawn(async move {
            if let Some(answer) = asker.ask(&question, Protocol::Udp).await {
                // Whoever is gone needs none.
                let _ = socket.send_to(&answer, from).await;
            }
        });
    }
}

async fn serve_connections(listener: TcpListener, asker: Asker) {
    let mut served = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        while served.try_join_next().is_some() {}
        if served.len() < MAX_CONNECTIONS {
            let asker = asker.clone();
            served.spawn(async move {
                // It ends when the other end has no more questions, or no answer can be had.
                let _ = converse(stream, &asker).await;
            });
        }
    }
}

/// Answers the questions of one connection, in turn.
async fn converse(mut stream: TcpStream, asker: &Asker) -> io::Result<()> {
    loop {
        let question = timeout(IDLE, read(&mut stream)).await??;
        if !is_question(&question) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let answer = asker.ask(&question, Protocol::Tcp).await;
        let answer = answer.ok_or(io::ErrorKind::TimedOut)?;
        timeout(IDLE, write(&mut stream, &answer)).await??;
    }
}

/// By what a question is asked: as it came, since an answer may be too long for a datagram.
#[derive(Clone, Copy, Debug)]
enum Protocol {
    Udp,
    Tcp,
}

#[derive(Clone, Debug)]
struct Asker {
    settings: watch::Receiver<Arc<Settings>>,
    learn: mpsc::Sender<Learn>,
}

impl Asker {
    /// The answer to a question, with its addresses in place; none if no server gives one.
    async fn ask(&self, question: &[u8], protocol: Protocol) -> Option<Vec<u8>> {
        let settings = Arc::clone(&self.settings.borrow());
        for server in settings.servers_for(question).iter().copied() {
            let asked = async {
                match protocol {
                    Protocol::Udp => by_udp(question, server).await,
                    Protocol::Tcp => by_tcp(question, server).await,
                }
            };
            if let Ok(Ok(answer)) = timeout(PATIENCE, asked).await {
                return self.with_addresses(question, answer, &settings).await;
            }
        }
        None
    }

    /// The answer, once its addresses are in place.
    async fn with_addresses(
        &self,
        question: &[u8],
        answer: Vec<u8>,
        settings: &Arc<Settings>,
    ) -> Option<Vec<u8>> {
        let (answer, answered) = look_through(answer, settings).await?;
        if answered.is_empty() {
            return Some(answer);
        }
        let of = |id: u16| settings.rules.iter().find(|rule| rule.id == id);
        let is_inside =
            answered.iter().any(|one| of(one.rule).is_some_and(|rule| rule.side == Side::Inside));
        let (done, is_done) = oneshot::channel();
        let placed = async {
            // Both fail only while the client ends.
            self.learn.send(Learn { answered, done }).await.is_ok() && is_done.await == Ok(true)
        };
        let placed = timeout(PLACE_TIME, placed).await.unwrap_or(false);
        match failure(question) {
            Some(failure) if is_inside && !placed => Some(failure),
            Some(_) | None => Some(answer),
        }
    }
}

/// An answer, and what it gives to the rules.
async fn look_through(
    answer: Vec<u8>,
    settings: &Arc<Settings>,
) -> Option<(Vec<u8>, Vec<Answered>)> {
    if answer.len() <= SHORT {
        let found = answered(&answer, &settings.rules);
        return Some((answer, found));
    }
    let settings = Arc::clone(settings);
    let looked = tokio::task::spawn_blocking(move || {
        let found = answered(&answer, &settings.rules);
        (answer, found)
    });
    // A panic there would have been printed.
    looked.await.ok()
}

async fn by_udp(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; MAX_MESSAGE];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // Anybody can send something here.
        if is_answer_to(question, &buffer[..length]) {
            buffer.truncate(length);
            return Ok(buffer);
        }
    }
}

async fn by_tcp(question: &[u8], server: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    write(&mut stream, question).await?;
    let answer = read(&mut stream).await?;
    if is_answer_to(question, &answer) {
        Ok(answer)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// A message over TCP, which stands behind its length.
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidData)?;
    // In one write: two would be two packets.
    let whole = [&length.to_be_bytes()[..], message].concat();
    stream.write_all(&whole).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::answers::tests::{answer, question};
    use crate::split::rules;
    use ropewalk_settings::{Selector, Text as _};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A name server by both protocols that gives every name these addresses.
    async fn server(records: &'static [&'static str]) -> (SocketAddr, JoinSet<()>) {
        let local = (Ipv4Addr::LOCALHOST, 0);
        let (listener, socket) = loop {
            let listener = TcpListener::bind(local).await.unwrap();
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()).await {
                break (listener, socket);
            }
        };
        let address = listener.local_addr().unwrap();
        let reply = move |asked: &[u8]| {
            let id = u16::from_be_bytes([asked[0], asked[1]]);
            let records: Vec<_> = records.iter().map(|ip| ("www.example.org", 60, *ip)).collect();
            answer(id, "www.example.org", &records)
        };
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                // One that belongs to no question comes first.
                socket.send_to(&answer(1, "www.example.net", &[]), from).await.unwrap();
                socket.send_to(&reply(&buffer[..length]), from).await.unwrap();
            }
        });
        running.spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let asked = read(&mut stream).await.unwrap();
                write(&mut stream, &reply(&asked)).await.unwrap();
            }
        });
        (address, running)
    }

    fn settings(entry: &str, side: Side, server: SocketAddr) -> Settings {
        let list = [Selector::from_text(entry).unwrap()];
        let rules = match side {
            Side::Inside => rules(&list, &[]),
            Side::Outside => rules(&[], &list),
        };
        // One that answers nothing is passed over.
        let silent = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        Settings { servers: vec![silent, server], rules, ..Settings::default() }
    }

    async fn ask(forwarder: &Forwarder, id: u16) -> Vec<u8> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.send_to(&question(id, "www.example.org"), forwarder.address()).await.unwrap();
        let mut buffer = vec![0; 4096];
        let length = timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
        buffer.truncate(length);
        buffer
    }

    #[tokio::test]
    async fn addresses_of_a_chosen_domain_are_in_place_before_the_answer_is_given() {
        let (server, _running) = server(&["192.0.2.1", "2001:db8::1"]).await;
        let (learn, mut learned) = mpsc::channel(1);
        let settings = settings("domain:example.org", Side::Outside, server);
        let rule = settings.rules[0].id;
        let forwarder = Forwarder::start(settings, learn).await.unwrap();
        let (told, is_told) = oneshot::channel();
        let placing = tokio::spawn(async move {
            let Learn { answered, done } = learned.recv().await.unwrap();
            told.send(answered).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            done.send(true).unwrap();
            learned
        });
        let begun = std::time::Instant::now();
        let whole = ask(&forwarder, 7).await;
        assert!(begun.elapsed() >= Duration::from_millis(100), "it came too early");
        let records =
            [("www.example.org", 60, "192.0.2.1"), ("www.example.org", 60, "2001:db8::1")];
        assert_eq!(whole, answer(7, "www.example.org", &records));
        let expected = ["192.0.2.1", "2001:db8::1"].map(|address| Answered {
            rule,
            address: address.parse().unwrap(),
            ttl: Duration::from_secs(60),
        });
        assert_eq!(is_told.await.unwrap(), expected);
        drop(placing.await.unwrap());

        // Over TCP too, several questions over one connection.
        let mut stream = TcpStream::connect(forwarder.address()).await.unwrap();
        for id in [8, 9] {
            write(&mut stream, &question(id, "www.example.org")).await.unwrap();
            let whole = timeout(PATIENCE, read(&mut stream)).await.unwrap().unwrap();
            assert_eq!(whole, answer(id, "www.example.org", &records));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_put_in_place_is_a_failure_for_what_is_to_go_through_the_tunnel_only() {
        let (server, _running) = server(&["192.0.2.1"]).await;
        for (entry, side, code) in [
            ("domain:example.org", Side::Inside, 2),
            ("domain:example.org", Side::Outside, 0),
            ("domain:example.net", Side::Inside, 0),
        ] {
            let (learn, mut learned) = mpsc::channel::<Learn>(1);
            let forwarder = Forwarder::start(settings(entry, side, server), learn).await.unwrap();
            tokio::spawn(async move {
                while let Some(Learn { done, .. }) = learned.recv().await {
                    let _ = done.send(false);
                }
            });
            let answer = ask(&forwarder, 7).await;
            assert_eq!(answer[3] & 0xf, code, "{entry} {side:?}");
        }
    }

    #[tokio::test]
    async fn a_name_is_asked_for_elsewhere_for_a_while_and_no_other_is() {
        let (tunnels, _one) = server(&["192.0.2.1"]).await;
        let (own, _other) = server(&["192.0.2.2"]).await;
        let (learn, _learned) = mpsc::channel(1);
        let all = settings("domain:example.net", Side::Inside, tunnels);
        let forwarder = Forwarder::start(all.clone(), learn).await.unwrap();
        for (name, expected) in [("www.example.org", "192.0.2.2"), ("example.org", "192.0.2.1")] {
            let beside = Beside { names: vec![name.to_owned()], servers: vec![own] };
            forwarder.set(Settings { beside, ..all.clone() });
            let records = [("www.example.org", 60, expected)];
            let told = ask(&forwarder, 7).await;
            assert_eq!(told, answer(7, "www.example.org", &records), "{name}");
        }
    }

    #[tokio::test]
    async fn other_servers_are_asked_at_once_and_nothing_listens_after_the_end() {
        let (one, mut first) = server(&["192.0.2.1"]).await;
        let (other, _second) = server(&["192.0.2.2"]).await;
        let (learn, _learned) = mpsc::channel(1);
        let of = |server| settings("domain:example.net", Side::Outside, server);
        let forwarder = Forwarder::start(of(one), learn).await.unwrap();
        let from = |ip: &str| answer(7, "www.example.org", &[("www.example.org", 60, ip)]);
        assert_eq!(ask(&forwarder, 7).await, from("192.0.2.1"));
        forwarder.set(of(other));
        first.abort_all();
        assert_eq!(ask(&forwarder, 7).await, from("192.0.2.2"));
        let address = forwarder.address();
        drop(forwarder);
        let ended = async {
            while TcpStream::connect(address).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, ended).await.unwrap();
    }
}
