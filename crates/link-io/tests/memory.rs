//! Memory: none is asked for packet by packet, neither by the loop with real sockets and the whole core, nor by the
//! kernel's TUN.

use allocation_counter::measure;
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::{Driven, Driver, Io};
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::tun::{
    Drained, LinuxTun, Tun, TunControl, TunCounters, TunError, TunOffload, TunOptions,
};
use ropewalk_link_io::udp::{ClientSocket, ProxySocket, ReceivedDatagram, SendError, Sockets};
use ropewalk_netlab::direct::{Direct, PROXY};
use ropewalk_netlab::inner::Inner;
use ropewalk_netlab::lab::Towards;
use ropewalk_proto::client::Client;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::endpoint::Endpoint;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::Instant;
use ropewalk_settings::Switch;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Packets under way at a time, each way.
const BATCH: u64 = 64;
/// What may be asked for within 10,000 packets: by what time brings, by queues that grow where a busy machine lets more wait, and by the
/// test's own calls. One for each batch would be 156.
const AT_MOST: u64 = 20;
/// Buffers that may be added to those kept for packets, where a busy machine lets more wait than ever before: as many as are under way.
const KEPT_AT_MOST: i64 = 2 * BATCH as i64;

#[test]
fn the_loop_asks_for_no_memory_packet_by_packet() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh(&format!("ip addr add {}/32 dev lo", PROXY.ip()));
    namespace.run(|| {
        for (links, len, checksum) in
            [(1, 1400, Checksum::Whole), (2, 1400, Checksum::Partial), (2, 160, Checksum::Whole)]
        {
            let runtime = runtime();
            let mut ends = runtime.block_on(async { Ends::open(links, len, checksum) });
            runtime.block_on(ends.settle());
            runtime.block_on(ends.carry(120_000));
            for packets in [10_000, 40_000] {
                let asked = measure(|| runtime.block_on(ends.carry(packets)));
                println!("{links} links, {packets} packets of {len} bytes each way: {asked:?}");
                assert!(asked.count_current <= KEPT_AT_MOST, "{asked:?}");
                let returned = asked.count_total.saturating_sub_signed(asked.count_current);
                assert!(returned < AT_MOST * packets / 10_000, "{asked:?}");
            }
        }
    });
}

#[test]
fn the_tun_asks_for_no_memory_packet_by_packet() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.run(|| {
        for offload in [Switch::On, Switch::Off] {
            let runtime = runtime();
            let mut mirror = runtime.block_on(async { Mirror::open(offload) });
            runtime.block_on(mirror.carry(50));
            for trains in [200, 800] {
                let asked = measure(|| runtime.block_on(mirror.carry(trains)));
                println!("{offload:?}, {trains} trains of 30 packets there and back: {asked:?}");
                assert!(asked.count_total < AT_MOST, "{asked:?}");
            }
        }
    });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A client and a proxy, each in a loop of its own, with sockets of the kernel between them.
struct Ends {
    client: Driver<ClientRole, Mill>,
    proxy: Driver<ProxyRole, Mill>,
    at_client: Rc<Till>,
    at_proxy: Rc<Till>,
}

impl Ends {
    fn open(links: u8, len: usize, checksum: Checksum) -> Self {
        let partial_checksums = checksum == Checksum::Partial;
        let config = TunnelConfig { partial_checksums, ..TunnelConfig::default() };
        let cores = Direct::new(&config, 1, links).expect("room for one client");
        let Direct { mut clients, proxy, .. } = cores;
        let client = clients.remove(0);
        let clock = Clock::start();
        let mut sockets = Sockets::new(clock);
        let options = ClientSocket { interface: "lo".to_owned(), source: PROXY.ip(), mark: None };
        for _ in 0..links {
            sockets.open_client(&options).expect("loopback is there");
        }
        let (near, at_client) = Mill::new(Inner::plain(Towards::Proxy, 1, len).packet(), checksum);
        let client = driver(ClientRole(client), near, sockets, clock);
        let mut sockets = Sockets::new(clock);
        let options = ProxySocket { address: None, port: PROXY.port() };
        sockets.open_proxy(&options).expect("the port is free");
        let (far, at_proxy) = Mill::new(Inner::plain(Towards::Client, 1, len).packet(), checksum);
        let proxy = driver(ProxyRole(proxy), far, sockets, clock);
        Self { client, proxy, at_client, at_proxy }
    }

    /// Waits until the links carry the longest packets.
    async fn settle(&mut self) {
        for _ in 0..600 {
            tokio::select! {
                ended = self.client.run() => unreachable!("{ended:?}"),
                ended = self.proxy.run() => unreachable!("{ended:?}"),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
            let tunnel = self.client.role().0.stats().tunnel;
            if tunnel.is_some_and(|tunnel| tunnel.inner_mtu >= Some(1440)) {
                return;
            }
        }
        unreachable!("the links do not come up: {:?}", self.client.role().0.stats());
    }

    /// Carries so many packets each way.
    async fn carry(&mut self, packets: u64) {
        let Self { client, proxy, at_client, at_proxy } = self;
        let feeding = async {
            for _ in 0..packets / BATCH {
                for till in [&at_client, &at_proxy] {
                    till.feed(BATCH);
                }
                while at_client.came() < at_proxy.fed() || at_proxy.came() < at_client.fed() {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::select! {
            ended = client.run() => unreachable!("{ended:?}"),
            ended = proxy.run() => unreachable!("{ended:?}"),
            fed = timeout(Duration::from_secs(60), feeding) => fed.expect("every packet comes"),
        }
    }
}

fn driver<R: Driven<Command = ()>>(
    role: R,
    tun: Mill,
    sockets: Sockets,
    clock: Clock,
) -> Driver<R, Mill> {
    let (_, commands) = mpsc::channel(1);
    Driver::new(role, tun, sockets, commands, clock).expect("a descriptor is free")
}

struct ClientRole(Client);

struct ProxyRole(Endpoint);

/// What both cores do alike.
macro_rules! role {
    ($role:ty) => {
        impl Driven for $role {
            type Command = ();

            fn handle_command(&mut self, _: Instant, (): (), _: &mut Io<'_>) {}

            fn handle_packet(
                &mut self,
                now: Instant,
                packet: &mut [u8],
                sink: &mut impl PacketSink,
            ) {
                self.0.handle_packet(now, packet, sink);
            }

            fn handle_partial(
                &mut self,
                now: Instant,
                packet: &mut [u8],
                sink: &mut impl PacketSink,
            ) {
                let _ = self.0.handle_partial(now, packet, sink);
            }

            fn handle_datagram(
                &mut self,
                now: Instant,
                arrival: ReceivedDatagram,
                datagram: &mut [u8],
                sink: &mut impl PacketSink,
            ) {
                self.0.handle_datagram(now, arrival.path, arrival.ecn, datagram, sink);
            }

            fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
                self.0.handle_timeout(now, sink);
            }

            fn handle_send_error(&mut self, _: Instant, path: Path, error: SendError) {
                unreachable!("{path:?}: {error:?}");
            }

            fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
                self.0.poll_transmit(now, out);
            }

            fn poll_timeout(&self) -> Option<Instant> {
                self.0.poll_timeout().map(|(at, _)| at)
            }

            fn handle_events(&mut self, now: Instant, _: &mut Io<'_>) -> ControlFlow<()> {
                self.0.end_of_batch(now);
                while self.0.poll_event().is_some() {}
                ControlFlow::Continue(())
            }
        }
    };
}

role!(ClientRole);
role!(ProxyRole);

/// A TUN in fixed memory: gives copies of one packet, as many as were fed to it, and counts what comes.
struct Mill {
    packet: Vec<u8>,
    copy: Vec<u8>,
    checksum: Checksum,
    sink: Count,
}

/// The test's hand on it.
#[derive(Default)]
struct Till {
    fed: Cell<u64>,
    given: Cell<u64>,
    came: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Till {
    fn feed(&self, packets: u64) {
        self.fed.set(self.fed.get() + packets);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn fed(&self) -> u64 {
        self.fed.get()
    }

    fn came(&self) -> u64 {
        self.came.get()
    }

    fn has_more(&self) -> bool {
        self.given.get() < self.fed.get()
    }
}

impl Mill {
    fn new(packet: Vec<u8>, checksum: Checksum) -> (Self, Rc<Till>) {
        let till = Rc::<Till>::default();
        let sink = Count { till: Rc::clone(&till), checksum };
        (Self { copy: packet.clone(), packet, checksum, sink }, till)
    }
}

impl TunControl for Mill {
    fn name(&self) -> &str {
        "mill"
    }

    fn index(&self) -> u32 {
        0
    }

    fn set_mtu(&mut self, _: u16) -> Result<(), TunError> {
        Ok(())
    }

    fn counters(&self) -> TunCounters {
        TunCounters::default()
    }

    fn offload(&self) -> TunOffload {
        TunOffload::default()
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.sink.deliver(Packet::whole(packet));
    }
}

impl Tun for Mill {
    type Sink = Count;

    fn read_batch(
        &mut self,
        limit: usize,
        mut handle: impl FnMut(&mut [u8], Checksum, &mut Count),
    ) -> Result<Drained, TunError> {
        for _ in 0..limit {
            let till = &self.sink.till;
            if !till.has_more() {
                return Ok(Drained::Yes);
            }
            till.given.set(till.given.get() + 1);
            self.copy.copy_from_slice(&self.packet);
            handle(&mut self.copy, self.checksum, &mut self.sink);
        }
        Ok(Drained::No)
    }

    fn sink(&mut self) -> &mut Count {
        &mut self.sink
    }

    fn flush(&mut self) -> Result<(), TunError> {
        Ok(())
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sink.till.has_more() {
            return Poll::Ready(());
        }
        *self.sink.till.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Counts what comes as it went.
struct Count {
    till: Rc<Till>,
    checksum: Checksum,
}

impl Count {
    fn note(&self, checksum: Checksum) {
        assert_eq!(checksum, self.checksum);
        self.till.came.set(self.till.came.get() + 1);
    }
}

impl PacketSink for Count {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.note(packet.checksum);
    }
}

/// A TUN of the kernel that sends every packet back to where it came from, and a socket that hears itself.
struct Mirror {
    tun: LinuxTun,
    socket: UdpSocket,
    train: Vec<u8>,
    heard: Vec<u8>,
}

impl Mirror {
    /// Bytes of payload of each packet.
    const PAYLOAD: usize = 1000;
    const PACKETS: usize = 30;

    fn open(offload: Switch) -> Self {
        let options = TunOptions { name: "rwmem0".to_owned(), mtu: 1400, offload };
        let tun = LinuxTun::open(&options).expect("a TUN");
        let address = std::process::Command::new("ip")
            .args(["addr", "add", "10.9.0.1/24", "dev", "rwmem0"])
            .status();
        assert!(address.expect("`ip` is there").success());
        let socket = UdpSocket::bind("10.9.0.1:5000").expect("our address");
        let payload = i32::try_from(Self::PAYLOAD).expect("small");
        setsockopt(&socket, UdpGsoSegment, &payload).expect("Linux 4.18");
        socket.set_nonblocking(true).expect("a socket");
        Self { tun, socket, train: vec![7; Self::PAYLOAD * Self::PACKETS], heard: vec![0; 2000] }
    }

    async fn carry(&mut self, trains: usize) {
        let Self { tun, socket, train, heard } = self;
        let neighbour = SocketAddr::from(([10, 9, 0, 2], 6000));
        for _ in 0..trains {
            socket.send_to(train, neighbour).expect("a route");
            let mut came = 0;
            while came < Self::PACKETS {
                let woken = poll_fn(|cx| tun.poll_readable(cx));
                let came_in_time = timeout(Duration::from_secs(10), woken).await;
                came_in_time.expect("a packet");
                let drained = tun.read_batch(64, |packet, checksum, sink| {
                    if packet[0] == 0x45 && packet[9] == 17 {
                        turn_round(packet);
                        sink.deliver(Packet { bytes: packet, checksum });
                    }
                });
                drained.map(|_: Drained| ()).expect("the TUN is there");
                tun.flush().expect("the TUN is there");
                while let Ok((len, _)) = socket.recv_from(heard) {
                    assert_eq!(len, Self::PAYLOAD);
                    came += 1;
                }
            }
        }
    }
}

/// Exchanges addresses and ports of a UDP packet; the checksums stay right.
fn turn_round(packet: &mut [u8]) {
    for offset in 0..4 {
        packet.swap(12 + offset, 16 + offset);
    }
    packet.swap(20, 22);
    packet.swap(21, 23);
}
