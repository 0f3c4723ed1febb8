//! The loop, with a toy role that carries packets as they are.

use crate::namespace::{ip, isolated, run};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::driver::{Driven, Driver, DriverError, Io, Turn};
use ropewalk_link_io::tun::{
    ChannelEnd, ChannelTun, Drained, LinuxTun, Tun, TunControl, TunCounters, TunError, TunOffload,
    TunOptions, TunQueue,
};
use ropewalk_link_io::udp::{ClientSocket, ProxySocket, ReceivedDatagram, SendError, Sockets};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::Instant;
use ropewalk_settings::Switch;
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::ops::ControlFlow;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

#[test]
fn packets_travel_from_tun_to_tun_both_ways_and_in_order() {
    isolated(|| async {
        // No more than a socket holds: nobody keeps a loop from sending more than the other takes in a turn.
        const PACKETS: u32 = 3000;
        let (mut near, mut near_end, near_commands) = toy(8192);
        let (mut far, mut far_end, _far_commands) = toy(8192);
        connect(&mut near, &mut far);
        for number in 0..PACKETS {
            let mut packet = number.to_be_bytes().to_vec();
            packet.resize(20 + (number as usize * 37) % 1300, 0xab);
            near_end.packets.try_send(packet.clone()).expect("room");
            far_end.packets.try_send(packet).expect("room");
        }
        let received = async {
            for number in 0..PACKETS {
                for end in [&mut far_end, &mut near_end] {
                    let packet = timeout(Duration::from_secs(10), end.delivered.recv()).await;
                    let packet = packet.expect("in time").expect("the driver runs");
                    assert_eq!(packet[..4], number.to_be_bytes());
                    assert_eq!(packet.len(), 20 + (number as usize * 37) % 1300);
                }
            }
            near_commands.send(Command::End).await.expect("the driver runs");
        };
        let ((), ended) = tokio::join!(received, async {
            tokio::select! {
                ended = near.run() => ended,
                ended = far.run() => ended,
            }
        });
        ended.expect("the near end was asked to end");
    });
}

#[test]
fn what_a_role_says_when_it_ends_is_still_sent() {
    isolated(|| async {
        let (mut near, _near_end, near_commands) = toy(8);
        let (mut far, mut far_end, _far_commands) = toy(8);
        connect(&mut near, &mut far);
        near_commands.try_send(Command::End).expect("room");
        near.run().await.expect("a clean end");
        tokio::select! {
            ended = far.run() => panic!("{ended:?}"),
            packet = timeout(Duration::from_secs(10), far_end.delivered.recv()) => {
                assert_eq!(packet.expect("in time").expect("the driver runs"), b"goodbye");
            }
        }
    });
}

#[test]
fn an_idle_loop_does_not_wake() {
    isolated(|| async {
        // Nobody can send a command any more either: this must not keep the loop awake.
        let (mut near, near_end, near_commands) = toy(8);
        drop(near_commands);
        let mut turns = Vec::new();
        for _ in 0..4 {
            let _ = timeout(Duration::from_millis(100), near.run()).await;
            turns.push(near.counters().turns);
        }
        // `run` was called again each time, which is a turn; the first one also settles.
        println!("turns after each 100 ms: {turns:?}");
        assert!(turns[3] - turns[0] <= 3, "{turns:?}");
        drop(near_end);
    });
}

#[test]
fn a_loop_rests_after_much_and_not_after_little() {
    isolated(|| async {
        for (packets, rests) in [(8, 0..=0), (1000, 1..=50)] {
            let (mut near, near_end, _near_commands) = toy(1024);
            for _ in 0..packets {
                near_end.packets.try_send(vec![1; 30]).expect("room");
            }
            let _ = timeout(Duration::from_millis(50), near.run()).await;
            let counters = near.counters();
            println!("{packets} packets: {counters:?}");
            assert_eq!(near.tun().counters().packets_in, packets);
            assert!(rests.contains(&counters.rests), "{counters:?}");
        }
    });
}

#[test]
fn a_deadline_is_not_rested_through() {
    isolated(|| async {
        let (mut near, near_end, _near_commands) = toy(8192);
        near.role_mut().tick = Some((Duration::from_micros(20), Instant::ZERO));
        for _ in 0..8192 {
            near_end.packets.try_send(vec![1; 30]).expect("room");
        }
        let _ = timeout(Duration::from_millis(50), near.run()).await;
        assert_eq!(near.tun().counters().packets_in, 8192);
        assert_eq!(near.counters().rests, 0, "a tick is always due sooner");
    });
}

#[test]
fn deadlines_are_met_more_finely_than_by_milliseconds() {
    isolated(|| async {
        let (mut near, _near_end, _near_commands) = toy(8);
        near.role_mut().tick = Some((Duration::from_micros(300), Instant::ZERO));
        let _ = timeout(Duration::from_secs(1), near.run()).await;
        let mut late = std::mem::take(&mut near.role_mut().late);
        late.sort();
        println!(
            "{} ticks, late by at least {:?}, median {:?}",
            late.len(),
            late[0],
            late[late.len() / 2]
        );
        // A timer of whole milliseconds is never closer than 0.7 ms here.
        assert!(late[0] < Duration::from_micros(500));
    });
}

#[test]
fn a_role_that_always_has_more_to_send_starves_nobody() {
    isolated(|| async {
        let (mut near, near_end, near_commands) = toy(64);
        let (mut far, _far_end, _far_commands) = toy(64);
        connect(&mut near, &mut far);
        near.role_mut().flood = true;
        let other_task = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            near_end.packets.try_send(vec![1; 30]).expect("room");
            near_commands.send(Command::SetMtu(1234)).await.expect("the driver runs");
            while near_end.mtu() != 1234 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            near_commands.send(Command::End).await.expect("the driver runs");
        };
        let both = async { tokio::join!(near.run(), other_task) };
        let (ended, ()) = timeout(Duration::from_secs(10), both).await.expect("in time");
        ended.expect("a clean end");
        assert_eq!(near.tun().counters().packets_in, 1);
    });
}

#[test]
fn a_tun_that_is_not_ours_to_make_ends_the_loop_with_its_name_when_it_disappears() {
    isolated(|| async {
        let (mut near, near_end, _near_commands) = toy(8);
        drop(near_end);
        let ended = timeout(Duration::from_secs(10), near.run()).await.expect("in time");
        assert!(matches!(ended, Err(DriverError::Tun(TunError::Gone { .. }))), "{ended:?}");
    });
}

#[test]
fn a_tun_that_somebody_deletes_is_made_again_and_the_loop_goes_on() {
    isolated(|| async {
        let options = TunOptions { name: "rwdrv0".into(), mtu: 1400, offload: Switch::Auto };
        let (mut real, commands) = driver(LinuxTun::open(&options).expect("a TUN"));
        let first = real.tun().index();
        let deleted = async {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                ip("link del rwdrv0");
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            ip("addr add 10.9.0.1/24 dev rwdrv0");
            let own = UdpSocket::bind("10.9.0.1:0").expect("our address");
            own.send_to(b"into the new one", "10.9.0.7:9").expect("a route");
            tokio::time::sleep(Duration::from_millis(200)).await;
            commands.send(Command::SetMtu(1300)).await.expect("the driver runs");
            commands.send(Command::End).await.expect("the driver runs");
        };
        let both = async { tokio::join!(real.run(), deleted) };
        let (ended, ()) = timeout(Duration::from_secs(10), both).await.expect("in time");
        ended.expect("a clean end");
        assert_ne!(real.tun().index(), first);
        // Beside it the kernel sends what every new interface is told, of IPv6.
        assert!(real.role().queue.iter().any(|packet| packet.ends_with(b"into the new one")));
        assert!(run("ip", "link show rwdrv0").contains("mtu 1300"));
    });
}

#[test]
fn a_deleted_tun_that_there_is_no_descriptor_for_is_made_again_when_there_is_one() {
    isolated(|| async {
        let options = TunOptions { name: "rwdrv0".into(), mtu: 1400, offload: Switch::Auto };
        let tun = LinuxTun::open(&options).expect("a TUN");
        let (mut real, commands) = driver(Scarce { tun, shortages: 2 });
        let first = real.tun().index();
        let deleted = async {
            ip("link del rwdrv0");
            tokio::time::sleep(Duration::from_millis(1500)).await;
            commands.send(Command::SetMtu(1300)).await.expect("the driver runs");
            commands.send(Command::End).await.expect("the driver runs");
        };
        let both = async { tokio::join!(real.run(), deleted) };
        let (ended, ()) = timeout(Duration::from_secs(10), both).await.expect("in time");
        ended.expect("a clean end");
        assert_eq!(real.tun().shortages, 0);
        assert_ne!(real.tun().index(), first);
        let turns = real.counters().turns;
        assert!(turns < 100, "a TUN that is gone keeps nobody awake: {turns} turns");
        assert!(run("ip", "link show rwdrv0").contains("mtu 1300"));
    });
}

#[test]
fn a_loop_whose_tun_is_wanted_no_more_before_it_could_be_made_again_sleeps() {
    isolated(|| async {
        let options = TunOptions { name: "rwdrv0".into(), mtu: 1400, offload: Switch::Auto };
        let mut queues = TunQueue::open(&options, 2).expect("a TUN");
        let tun = queues.pop().expect("two queues").drive().expect("a runtime");
        let (mut real, commands) = driver(Scarce { tun, shortages: u32::MAX });
        let attach = async |attached| {
            commands.send(Command::SetAttached(attached)).await.expect("the driver runs");
        };
        attach(false).await;
        assert_eq!(real.turn().expect("a TUN"), Turn::Idle);
        ip("link del rwdrv0");
        for attached in [true, false] {
            attach(attached).await;
            assert_eq!(real.turn().expect("it waits"), Turn::Idle);
        }
        assert!(real.tun().shortages < u32::MAX, "it was not missed");
        let _ = timeout(Duration::from_millis(1500), real.run()).await;
        let turns = real.counters().turns;
        assert!(turns < 20, "nobody needs the TUN: {turns} turns");
    });
}

#[test]
fn a_tun_whose_name_somebody_took_ends_the_loop_and_says_so() {
    isolated(|| async {
        let options = TunOptions { name: "rwdrv0".into(), mtu: 1400, offload: Switch::Auto };
        let (mut real, _commands) = driver(LinuxTun::open(&options).expect("a TUN"));
        ip("link del rwdrv0");
        ip("link add rwdrv0 type veth peer name rwdrv1");
        let ended = timeout(Duration::from_secs(10), real.run()).await.expect("in time");
        let error = ended.expect_err("the name is taken");
        assert!(error.to_string().starts_with("rwdrv0 is no usable TUN interface"), "{error}");
    });
}

/// Commands of the toy.
enum Command {
    SetMtu(u16),
    SetAttached(bool),
    End,
}

/// Sends each packet as one datagram, and each datagram as one packet.
#[derive(Default)]
struct Toy {
    peer: Option<Path>,
    queue: VecDeque<Vec<u8>>,
    /// Interval, and the next tick.
    tick: Option<(Duration, Instant)>,
    /// How late each tick was.
    late: Vec<Duration>,
    flood: bool,
    ending: bool,
}

impl Driven for Toy {
    type Command = Command;

    fn handle_command(&mut self, _now: Instant, command: Command, io: &mut Io<'_>) {
        match command {
            Command::SetMtu(mtu) => io.tun.set_mtu(mtu).expect("the TUN is there"),
            Command::SetAttached(attached) => io.tun.set_attached(attached),
            Command::End => {
                self.ending = true;
                self.queue.push_back(b"goodbye".to_vec());
            }
        }
    }

    fn handle_packet(&mut self, _now: Instant, packet: &mut [u8], _sink: &mut impl PacketSink) {
        self.queue.push_back(packet.to_vec());
    }

    fn handle_datagram(
        &mut self,
        now: Instant,
        arrival: ReceivedDatagram,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        assert!(arrival.at <= now);
        sink.deliver(Packet::whole(datagram));
    }

    fn handle_timeout(&mut self, now: Instant, _sink: &mut impl PacketSink) {
        if let Some((interval, due)) = &mut self.tick {
            if *due > Instant::ZERO {
                self.late.push(now.since(*due));
            }
            *due = now + *interval;
        }
    }

    fn handle_send_error(&mut self, _now: Instant, path: Path, error: SendError) {
        panic!("{path:?}: {error:?}");
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut impl TransmitSink) {
        let Some(peer) = self.peer else { return };
        if self.flood {
            // More than a batch holds, again and again.
            self.queue.resize(5000, vec![9; 1000]);
        }
        while let Some(packet) = self.queue.front() {
            let Some(bytes) = out.reserve(peer, Ecn::NotEct, packet.len()) else { return };
            bytes.copy_from_slice(packet);
            out.commit(packet.len());
            self.queue.pop_front();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.tick.map(|(_, due)| due)
    }

    fn handle_events(&mut self, _now: Instant, _io: &mut Io<'_>) -> ControlFlow<()> {
        if self.ending { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A TUN that cannot be made again a few times, since no descriptor is free.
struct Scarce {
    tun: LinuxTun,
    shortages: u32,
}

impl TunControl for Scarce {
    fn name(&self) -> &str {
        self.tun.name()
    }

    fn index(&self) -> u32 {
        self.tun.index()
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), TunError> {
        self.tun.set_mtu(mtu)
    }

    fn counters(&self) -> TunCounters {
        self.tun.counters()
    }

    fn offload(&self) -> TunOffload {
        self.tun.offload()
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.tun.deliver(packet);
    }

    fn set_attached(&mut self, attached: bool) {
        self.tun.set_attached(attached);
    }
}

impl Tun for Scarce {
    type Sink = <LinuxTun as Tun>::Sink;

    fn read_batch(
        &mut self,
        limit: usize,
        handle: impl FnMut(&mut [u8], Checksum, &mut Self::Sink),
    ) -> Result<Drained, TunError> {
        self.tun.read_batch(limit, handle)
    }

    fn sink(&mut self) -> &mut Self::Sink {
        self.tun.sink()
    }

    fn flush(&mut self) -> Result<(), TunError> {
        self.tun.flush()
    }

    fn reopen(&mut self) -> Result<(), TunError> {
        if self.shortages == 0 {
            return self.tun.reopen();
        }
        self.shortages -= 1;
        let source = rustix::io::Errno::MFILE.into();
        Err(TunError::Io { name: self.name().to_owned(), action: "opening", source })
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.tun.poll_readable(cx)
    }
}

type Commands = mpsc::Sender<Command>;

fn driver<T: Tun>(tun: T) -> (Driver<Toy, T>, Commands) {
    let (commands, receiver) = mpsc::channel(4);
    let clock = Clock::start();
    let driver = Driver::new(Toy::default(), tun, Sockets::new(clock), receiver, clock);
    (driver.expect("a descriptor is free"), commands)
}

fn toy(capacity: usize) -> (Driver<Toy, ChannelTun>, ChannelEnd, Commands) {
    let (tun, end) = ChannelTun::new("toy", 1400, capacity);
    let (driver, commands) = driver(tun);
    (driver, end, commands)
}

/// Gives each toy the other as its peer.
fn connect(near: &mut Driver<Toy, ChannelTun>, far: &mut Driver<Toy, ChannelTun>) {
    let source = "127.0.0.1".parse().expect("an address");
    let options = ClientSocket { interface: "lo".into(), source, mark: None };
    let client = near.sockets().open_client(&options).expect("loopback");
    let proxy = far.sockets().open_proxy(&ProxySocket { address: None, port: 0 }).expect("a port");
    let client_address = near.sockets().local_addr(client).expect("open");
    let port = far.sockets().local_addr(proxy).expect("open").port();
    near.role_mut().peer =
        Some(Path { socket: client, local: None, remote: (source, port).into() });
    far.role_mut().peer = Some(Path { socket: proxy, local: Some(source), remote: client_address });
}
