//! Two namespaces, joined by emulated links, and flows of UDP between them that are timed by the
//! kernel: when a packet was handed to the sending device, and when it came in at the other one.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use ropewalk_netlab::emulator::{Bound, Emulator, LinkSpec, Port, Report, Scheduling};
use ropewalk_netlab::namespace::{Namespace, next_number};
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::privilege::skipped;

/// IPv4 and UDP headers.
pub(crate) const HEADERS: usize = 28;
/// A measurement on a machine that stood still is repeated this often before the test fails.
const ATTEMPTS: u32 = 4;
/// Nothing came for so long: nothing will.
const QUIET: Duration = Duration::from_millis(600);

/// Links between two hosts, upstream from `near` to `far`.
pub(crate) struct Bed {
    pub(crate) emulator: Emulator,
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
}

impl Bed {
    /// A link for each of the conditions (upstream, downstream), without IPv6, whose hosts would
    /// send packets of their own.
    pub(crate) fn build(links: &[(Conditions, Conditions)]) -> Self {
        Self::build_with(links, false)
    }

    pub(crate) fn build_with(links: &[(Conditions, Conditions)], ipv6: bool) -> Self {
        let number = next_number();
        let [near, far] = ["emn", "emf"].map(|role| Namespace::create(number, role).unwrap());
        for host in [&near, &far] {
            let off = if ipv6 { "0" } else { "1" };
            host.sysctl(&[
                ("net.ipv6.conf.all.disable_ipv6", off),
                ("net.ipv6.conf.default.disable_ipv6", off),
            ])
            .unwrap();
        }
        let port = |host: &Namespace, link: usize, end: u8| Port {
            mac: Some(mac(link, end)),
            ..Port::new(Some(host.path()), format!("tap{link}"))
        };
        let specs = links.iter().enumerate().map(|(link, (upstream, downstream))| LinkSpec {
            near: port(&near, link, 1),
            far: port(&far, link, 2),
            upstream: upstream.clone(),
            downstream: downstream.clone(),
        });
        let emulator = Emulator::spawn(specs.collect(), 42).unwrap();
        for link in 0..links.len() {
            for (host, own, other) in [(&near, 1, 2), (&far, 2, 1)] {
                let v4 = v4(link, other);
                let mac = mac(link, other).map(|byte| format!("{byte:02x}")).join(":");
                let mut lines = format!(
                    "addr add {}/30 dev tap{link}\nneigh add {v4} lladdr {mac} dev tap{link}",
                    self::v4(link, own)
                );
                if ipv6 {
                    let own = v6(link, own);
                    lines += &format!("\naddr add {own}/64 dev tap{link} nodad");
                }
                host.ip(&lines).unwrap();
            }
        }
        Self { emulator, near, far }
    }

    /// A socket of one host on one link.
    pub(crate) fn socket(&self, host: &Namespace, address: IpAddr) -> UdpSocket {
        host.run(|| UdpSocket::bind(SocketAddr::new(address, 0))).unwrap().unwrap()
    }

    /// Sends `flow` upstream over `link` and returns what came, in the order of arrival.
    pub(crate) fn flow(&self, link: usize, flow: Flow) -> Vec<Sample> {
        let sender = self.socket(&self.near, v4(link, 1).into());
        let receiver = self.socket(&self.far, v4(link, 2).into());
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        let stamps = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
        setsockopt(
            &sender,
            sockopt::Timestamping,
            &(stamps
                | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
                | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY),
        )
        .unwrap();
        let incoming = stamps | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE;
        setsockopt(&receiver, sockopt::Timestamping, &incoming).unwrap();
        // Refused in a user namespace; the usual buffer holds what comes while this machine is quiet.
        let _ = setsockopt(&receiver, sockopt::RcvBufForce, &(8 << 20));
        // The kernel switches its receive timestamps on a moment after it was asked to.
        thread::sleep(Duration::from_millis(50));

        let sent_all = AtomicBool::new(false);
        thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&receiver, &sent_all));
            let sent = send(&sender, flow);
            sent_all.store(true, Ordering::Release);
            let received = receiving.join().unwrap();
            received
                .into_iter()
                .map(|(number, received_ns)| Sample {
                    number,
                    sent_ns: sent[usize::try_from(number).unwrap()],
                    received_ns,
                })
                .collect()
        })
    }
}

/// What a test sends: `count` packets of `size` bytes at IP level, one each `every`.
#[derive(Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) count: u32,
    pub(crate) size: usize,
    pub(crate) every: Duration,
}

/// One packet that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) number: u32,
    /// When the kernel gave it to the sending device; `None` if it did not say.
    pub(crate) sent_ns: Option<i64>,
    /// When it came out of the receiving device.
    pub(crate) received_ns: i64,
}

/// Repeats a measurement while the emulator calls it void, and returns the first that is sound. If
/// none is, the test fails, or is skipped where the system refused the emulator its priority.
pub(crate) fn measure<T>(name: &str, mut attempt: impl FnMut() -> (T, Report)) -> Option<T> {
    let mut reason = String::new();
    let mut refused = false;
    for _ in 0..ATTEMPTS {
        let (result, report) = attempt();
        println!("{}, {:?}", report.lateness, report.scheduling);
        match report.void_because(&Bound::default()) {
            None => return Some(result),
            Some(void) => reason = void,
        }
        println!("void: {reason}");
        refused = report.scheduling != Scheduling::RealTime;
    }
    assert!(refused, "{ATTEMPTS} void runs, the last because {reason}");
    skipped(name, &format!("no real-time priority, and {ATTEMPTS} void runs: {reason}"));
    None
}

/// The one-way delays in milliseconds, sorted.
pub(crate) fn delays(samples: &[Sample]) -> Vec<f64> {
    let mut delays: Vec<f64> = samples
        .iter()
        .filter_map(|sample| Some((sample.received_ns - sample.sent_ns?) as f64 / 1e6))
        .collect();
    assert!(delays.len() > samples.len() / 2, "the kernel gave too few send times");
    delays.sort_by(f64::total_cmp);
    delays
}

/// The element that a share of `percent` of the sorted list does not exceed.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// The address of an end (1 near, 2 far) of a link.
pub(crate) fn v4(link: usize, end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, u8::try_from(link).unwrap(), end)
}

/// As [`v4`].
pub(crate) fn v6(link: usize, end: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 0, 0, u16::try_from(link).unwrap(), 0, 0, 0, end.into())
}

fn mac(link: usize, end: u8) -> [u8; 6] {
    [2, 0, 0, 0, u8::try_from(link).unwrap(), end]
}

/// Returns when the kernel handed each packet to the device.
fn send(socket: &UdpSocket, flow: Flow) -> Vec<Option<i64>> {
    let mut payload = vec![0; flow.size - HEADERS];
    let start = Instant::now();
    (0..flow.count)
        .map(|number| {
            // After a late wake-up the missed ones follow at once: the mean rate stays.
            let due = start + flow.every * number;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            payload[..4].copy_from_slice(&number.to_be_bytes());
            socket.send(&payload).unwrap();
            // The device takes the packet within `send`, so its time is already there.
            read_message(socket, &mut [], MsgFlags::MSG_ERRQUEUE).map(|(_, stamp)| stamp)
        })
        .collect()
}

fn receive(socket: &UdpSocket, sent_all: &AtomicBool) -> Vec<(u32, i64)> {
    socket.set_read_timeout(Some(QUIET)).unwrap();
    let mut payload = [0; 2048];
    let mut received = Vec::new();
    loop {
        let done = sent_all.load(Ordering::Acquire);
        match read_message(socket, &mut payload, MsgFlags::empty()) {
            Some((length, stamp)) if length >= 4 => {
                let number = payload[..4].try_into().unwrap();
                received.push((u32::from_be_bytes(number), stamp));
            }
            Some(_) => panic!("a packet without a number"),
            None if done => return received,
            None => {}
        }
    }
}

/// The length of the next message and its software timestamp in nanoseconds; `None` if there is
/// none in time.
fn read_message(socket: &UdpSocket, payload: &mut [u8], flags: MsgFlags) -> Option<(usize, i64)> {
    // One timestamp (three times) and, on the error queue, one `sock_extended_err` with address.
    let mut control = cmsg_space!([u8; 48], [u8; 64]);
    let mut parts = [IoSliceMut::new(payload)];
    let message =
        recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)
            .ok()?;
    let stamp = message.cmsgs().unwrap().find_map(|message| match message {
        ControlMessageOwned::ScmTimestampsns(stamps) => {
            Some(stamps.system.tv_sec() * 1_000_000_000 + stamps.system.tv_nsec())
        }
        _ => None,
    });
    Some((message.bytes, stamp.expect("every message carries a timestamp")))
}

/// Sends one packet with this TOS or traffic class and returns with which it came.
pub(crate) fn received_tos(near: &UdpSocket, far: &UdpSocket, tos: u8) -> u8 {
    let there = far.local_addr().unwrap();
    far.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    if there.is_ipv4() {
        setsockopt(near, sockopt::Ipv4Tos, &i32::from(tos)).unwrap();
        setsockopt(far, sockopt::IpRecvTos, &true).unwrap();
    } else {
        setsockopt(near, sockopt::Ipv6TClass, &i32::from(tos)).unwrap();
        setsockopt(far, sockopt::Ipv6RecvTClass, &true).unwrap();
    }
    near.send_to(b"tos", there).unwrap();
    let mut control = cmsg_space!(i32);
    let mut payload = [0; 16];
    let mut parts = [IoSliceMut::new(&mut payload)];
    let (fd, flags) = (far.as_raw_fd(), MsgFlags::empty());
    let message =
        recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags).expect("a packet");
    let tos = message.cmsgs().unwrap().find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(tos) => Some(tos),
        ControlMessageOwned::Ipv6TClass(class) => u8::try_from(class).ok(),
        _ => None,
    });
    tos.expect("the kernel tells the TOS")
}

/// Processor time of the emulator's thread so far, in hundredths of a second.
pub(crate) fn emulator_ticks() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stat = threads
        .filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok())
        .find(|stat| stat.contains("(emulator)"))
        .expect("the emulator runs");
    // Behind the name in brackets: state is the first field, user and system time the 12th and 13th.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
