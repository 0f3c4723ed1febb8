//! Both ends on this machine: a carrier, a listener, and a socket in the place of the proxy's.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::future::poll_fn;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink as _;
use ropewalk_tls::{
    Binding, Dial, DialError, Identity, Listener, TlsCarrier, bind, exchange, make_identity,
};
use tokio::net::UdpSocket;
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Far longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// The first byte of a datagram of a session, and of one that is none's (PROTOCOL §2).
const OF_SESSION: u8 = 0x10;
const OF_NO_SESSION: u8 = 0x00;

fn run<T>(work: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn identity() -> Identity {
    let made = make_identity().unwrap();
    Identity::from_pem(made.as_bytes(), made.as_bytes()).unwrap()
}

/// A listener at a free port, which passes datagrams to `proxy`.
fn listen(proxy: SocketAddr) -> (Listener, u16) {
    let bound = bind(SocketAddr::new(LOOPBACK, 0)).unwrap();
    let port = bound.local_addr().unwrap().port();
    (Listener::start(bound, &identity(), proxy, Clock::start()).unwrap(), port)
}

fn dial(port: u16) -> Dial {
    let binding = Binding::Interface { name: "lo".to_owned(), mark: None };
    Dial { binding, sources: vec![LOOPBACK], port, names: Vec::new() }
}

/// The sockets of a client with one link over TLS, to a proxy at this address.
struct Client {
    sockets: Sockets,
    path: Path,
}

impl Client {
    fn new(port: u16, proxy: SocketAddr) -> Self {
        let clock = Clock::start();
        let mut sockets = Sockets::new(clock);
        let carrier = TlsCarrier::new(dial(port), clock).unwrap();
        let socket: SocketId = sockets.open_carried(Box::new(carrier)).unwrap();
        Self { sockets, path: Path { socket, local: None, remote: proxy } }
    }

    fn send(&mut self, datagram: &[u8]) {
        let out = self.sockets.out();
        out.reserve(self.path, Ecn::NotEct, datagram.len()).unwrap().copy_from_slice(datagram);
        out.commit(datagram.len());
        self.sockets.flush(|path, error| panic!("{path:?}: {error:?}"));
    }

    /// Sends it again and again until `proxy` has it, and returns from where it came there.
    async fn reach(&mut self, proxy: &UdpSocket, datagram: &[u8]) -> SocketAddr {
        let begun = Instant::now();
        let mut buffer = [0; 2048];
        while begun.elapsed() < LONG {
            self.send(datagram);
            let came = timeout(Duration::from_millis(50), proxy.recv_from(&mut buffer)).await;
            if let Ok(Ok((len, from))) = came {
                assert_eq!(buffer[..len], *datagram);
                return from;
            }
        }
        panic!("it does not come through: {:?}", self.sockets.carrier_trouble(self.path.socket));
    }

    async fn receive(&mut self) -> Vec<u8> {
        let Self { sockets, path } = self;
        let mut came = Vec::new();
        while came.is_empty() {
            timeout(LONG, poll_fn(|cx| sockets.poll_ready(cx))).await.unwrap();
            sockets.recv_batch(|_, arrival, datagram| {
                assert_eq!(arrival.path, *path);
                came.push(datagram.to_vec());
            });
        }
        assert_eq!(came.len(), 1, "{came:?}");
        came.remove(0)
    }
}

#[test]
fn datagrams_pass_both_ways_and_the_proxy_knows_from_where_they_come() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let (listener, port) = listen(proxy.local_addr().unwrap());
        let sources = listener.sources();
        let mut client = Client::new(port, proxy.local_addr().unwrap());
        let alias = client.reach(&proxy, &[OF_NO_SESSION, 1, 2, 3]).await;
        assert_eq!(alias.ip(), IpAddr::from([127, 77, 0, 1]));
        assert_eq!(sources.of(alias).unwrap().ip(), LOOPBACK);
        assert_eq!((sources.counts().clients, sources.counts().strangers), (0, 1));

        proxy.send_to(&[OF_NO_SESSION, 4], alias).await.unwrap();
        assert_eq!(client.receive().await, [OF_NO_SESSION, 4]);
        assert_eq!(sources.counts().clients, 0, "no session has begun");
        let large = [&[OF_SESSION][..], &[7; 1471]].concat();
        proxy.send_to(&large, alias).await.unwrap();
        assert_eq!(client.receive().await, large);
        assert_eq!((sources.counts().clients, sources.counts().strangers), (1, 0));

        assert_eq!(client.reach(&proxy, &large).await, alias);
        drop(client);
        let begun = Instant::now();
        while sources.of(alias).is_some() {
            assert!(begun.elapsed() < LONG, "the connection does not end");
            sleep(Duration::from_millis(10)).await;
        }
        let counts = sources.counts();
        assert_eq!((counts.clients, counts.strangers, counts.unproven), (0, 0, 0));
    });
}

#[test]
fn a_source_that_comes_again_reaches_the_proxy_from_the_address_that_it_had() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let (listener, port) = listen(proxy.local_addr().unwrap());
        let mut aliases = Vec::new();
        for _ in 0..3 {
            let mut client = Client::new(port, proxy.local_addr().unwrap());
            let alias = client.reach(&proxy, &[OF_NO_SESSION, 1]).await;
            aliases.push(alias.ip());
            drop(client);
            let begun = Instant::now();
            while listener.sources().of(alias).is_some() {
                assert!(begun.elapsed() < LONG, "the connection does not end");
                sleep(Duration::from_millis(10)).await;
            }
            // It was sent until it came, and may have come more than once.
            while proxy.try_recv_from(&mut [0; 16]).is_ok() {}
        }
        let first: IpAddr = [127, 77, 0, 1].into();
        assert_eq!(aliases, [first; 3], "so that what it used up there counts");
    });
}

#[test]
fn a_connection_that_ends_is_made_again() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let at = proxy.local_addr().unwrap();
        let (listener, port) = listen(at);
        let mut client = Client::new(port, at);
        let alias = client.reach(&proxy, &[OF_NO_SESSION, 1]).await;
        proxy.send_to(&[OF_SESSION], alias).await.unwrap();
        client.receive().await;
        drop(listener);
        let trouble = |client: &Client| client.sockets.carrier_trouble(client.path.socket);
        let begun = Instant::now();
        while trouble(&client).is_none() {
            assert!(begun.elapsed() < LONG, "nothing is told of the end");
            sleep(Duration::from_millis(10)).await;
        }
        let bound = bind(SocketAddr::new(LOOPBACK, port)).unwrap();
        let _listener = Listener::start(bound, &identity(), at, Clock::start()).unwrap();
        client.reach(&proxy, &[OF_NO_SESSION, 2]).await;
    });
}

#[test]
fn whoever_speaks_no_tls_or_says_nothing_is_closed_soon() {
    let (listener, port) = listen(SocketAddr::new(LOOPBACK, 9));
    let wait_for = |strangers| {
        let begun = Instant::now();
        while listener.sources().counts().strangers != strangers {
            assert!(begun.elapsed() < LONG, "{strangers}: {:?}", listener.sources().counts());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let connect = || {
        let stream = TcpStream::connect((LOOPBACK, port)).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    };
    let mut scanner = connect();
    scanner.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let begun = Instant::now();
    // What TLS says against it, and the end.
    let _ = scanner.read_to_end(&mut Vec::new());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    wait_for(0);

    // Eight that say nothing, each of which takes a place for the time of a handshake.
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..8).map(|_| connect()).collect();
    wait_for(8);
    let _ = connect().read(&mut [0]);
    let counts = listener.sources().counts();
    assert_eq!((counts.strangers, counts.refused), (8, 1), "a ninth one is closed at once");
    for stream in &mut silent {
        let _ = stream.read(&mut [0]);
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4) && took < LONG, "{took:?}");
    wait_for(0);
    assert_eq!(listener.sources().counts().unproven, 9);
}

#[test]
fn a_stranger_may_ask_little_and_not_for_long() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let (listener, port) = listen(proxy.local_addr().unwrap());
        let mut client = Client::new(port, proxy.local_addr().unwrap());
        let alias = client.reach(&proxy, &[OF_NO_SESSION]).await;
        let mut buffer = [0; 16];
        let mut passed = 1;
        let begun = Instant::now();
        while listener.sources().of(alias).is_some() {
            assert!(begun.elapsed() < LONG, "it goes on and on");
            client.send(&[OF_NO_SESSION, 1]);
            let pause = Duration::from_millis(5);
            while let Ok(Ok(_)) = timeout(pause, proxy.recv_from(&mut buffer)).await {
                passed += 1;
            }
        }
        assert!(passed <= 40, "{passed} datagrams of a stranger");
        assert_eq!(listener.sources().counts().unproven, 1);
    });
}

#[test]
fn a_question_alone_is_answered_or_told_why_not() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let (listener, port) = listen(proxy.local_addr().unwrap());
        let (dial, question) = (dial(port), b"\0question");
        let ask = |patience| exchange(&dial, LOOPBACK, question, patience, |it| it == b"\0answer");
        let answering = async {
            let mut buffer = [0; 100];
            let (len, from) = proxy.recv_from(&mut buffer).await.unwrap();
            assert_eq!(buffer[..len], *question);
            for answer in [&b"\0another"[..], b"\0answer"] {
                proxy.send_to(answer, from).await.unwrap();
            }
        };
        let (answered, ()) = tokio::join!(ask(LONG), answering);
        assert!(answered.unwrap());
        assert!(!ask(Duration::from_millis(300)).await.unwrap(), "nobody answers");
        drop(listener);
        let refused = ask(LONG).await.unwrap_err();
        assert!(matches!(refused, DialError::Refused(_)), "{refused}");
        let told = refused.to_string();
        assert!(told.starts_with(&format!("TCP 127.0.0.1:{port} refuses: ")), "{told}");
        assert!(told.contains("`[tls]` in its proxy.toml"), "{told}");
    });
}

#[test]
fn who_may_bind_no_socket_has_somebody_else_do_it() {
    run(async {
        let proxy = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
        let (_listener, port) = listen(proxy.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // It refuses the first time.
        let prepare = move |_: BorrowedFd<'_>| match count.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::Error::other("not now")),
            _ => Ok(()),
        };
        let dial = Dial { binding: Binding::Prepared(Arc::new(prepare)), ..dial(port) };
        let patience = Duration::from_millis(300);
        let ask = || exchange(&dial, LOOPBACK, b"\0question", patience, |_| false);
        let refused = ask().await.unwrap_err().to_string();
        assert!(refused.ends_with("was not bound to its network: not now"), "{refused}");
        assert!(!ask().await.unwrap(), "it connects, and nobody answers");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    });
}
