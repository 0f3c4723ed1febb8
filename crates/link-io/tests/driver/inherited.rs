//! A TUN that somebody else opened, as the system of a phone does for an app.

use crate::namespace::{ip, isolated, run};
use crate::tun::echo_tcp;
use ropewalk_link_io::tun::inherited::check;
use ropewalk_link_io::tun::{Drained, InheritedTun, Tun, TunControl, TunError, TunOffload};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::sink::PacketSink;
use rustix::ioctl;
use std::fs::File;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::time::timeout;
use tun_rs::{DeviceBuilder, SyncDevice};

#[test]
fn what_is_handed_over_is_used_as_it_is_and_no_offload_that_was_asked_for_before() {
    isolated(|| async {
        let parent = device("rwdrv7");
        let fd = descriptor(&parent);
        // TUN_F_CSUM and TUN_F_TSO4, as a daemon with offload leaves them behind.
        const TUNSETOFFLOAD: ioctl::Opcode = ioctl::opcode::write::<std::ffi::c_uint>(b'T', 208);
        #[expect(unsafe_code, reason = "rustix knows no ioctl of a TUN")]
        // SAFETY: the descriptor is a TUN, and this ioctl takes a number.
        unsafe { ioctl::ioctl(&fd, ioctl::IntegerSetter::<TUNSETOFFLOAD>::new_usize(3)) }
            .expect("every kernel has these");
        drop(parent);
        let mut tun = InheritedTun::new();
        tun.replace(Some(fd)).expect("a TUN");
        assert_eq!((tun.name(), tun.is_open()), ("rwdrv7", true));
        let (sent, received) = echo_tcp(&mut tun, "10.9.0.1".parse().expect("one")).await;
        assert_eq!(sent, received);
        let counters = tun.counters();
        assert_eq!(counters.calls_in, counters.packets_in, "one by one");
        assert_eq!(tun.offload(), TunOffload::default());
    });
}

#[test]
fn another_tun_takes_the_place_of_the_one_before_which_is_closed() {
    isolated(|| async {
        let mut tun = InheritedTun::new();
        for name in ["rwdrv1", "rwdrv2", "rwdrv3"] {
            let parent = device(name);
            tun.replace(Some(descriptor(&parent))).expect("a TUN");
            drop(parent);
            let there = run("ip", "link show");
            assert_eq!((there.matches("rwdrv").count(), tun.name()), (1, name), "{there}");
        }
        tun.replace(None).expect("nothing is refused");
        assert!(!tun.is_open());
        assert!(!run("ip", "link show").contains("rwdrv"));
    });
}

#[test]
fn while_it_is_detached_nothing_is_read_or_written_and_then_what_waited() {
    isolated(|| async {
        let parent = device("rwdrv0");
        let mut tun = InheritedTun::new();
        tun.replace(Some(descriptor(&parent))).expect("a TUN");
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        let socket = UdpSocket::bind("10.9.0.1:5000").expect("our address");
        tun.set_attached(false);
        socket.send_to(&[7; 100], "10.9.0.2:6000").expect("a route");
        let woken = timeout(Duration::from_millis(200), poll_fn(|cx| tun.poll_readable(cx))).await;
        assert!(woken.is_err(), "a packet waits, and nobody is woken for it");
        assert_eq!(datagrams(&mut tun), 0);
        tun.sink().deliver(Packet::whole(&[0x45; 20]));
        assert_eq!(tun.counters().dropped_out, 1);
        tun.set_attached(true);
        let woken = timeout(Duration::from_secs(10), poll_fn(|cx| tun.poll_readable(cx)));
        woken.await.expect("it waits still");
        assert_eq!(datagrams(&mut tun), 1);
    });
}

#[test]
fn a_tun_that_is_deleted_is_given_up_and_the_loop_goes_on_without() {
    isolated(|| async {
        let parent = device("rwdrv0");
        let mut tun = InheritedTun::new();
        tun.replace(Some(descriptor(&parent))).expect("a TUN");
        drop(parent);
        assert_eq!(datagrams(&mut tun), 0);
        ip("link del rwdrv0");
        // The kernel tells nobody who waits for packets of it; whoever writes one learns it.
        assert!(tun.is_open());
        tun.sink().deliver(Packet::whole(&[0x45; 20]));
        assert!(!tun.is_open());
        tun.sink().deliver(Packet::whole(&[0x45; 20]));
        assert_eq!((tun.counters().packets_out, tun.counters().dropped_out), (0, 2));
        tun.flush().expect("no error");
        let woken = timeout(Duration::from_millis(100), poll_fn(|cx| tun.poll_readable(cx))).await;
        assert!(woken.is_err(), "nobody is woken for nothing");
    });
}

#[test]
fn a_descriptor_that_is_no_tun_is_refused_with_the_reason() {
    isolated(|| async {
        let null = File::open("/dev/null").expect("it is there");
        let unnamed = File::options().read(true).write(true).open("/dev/net/tun");
        let unnamed = unnamed.expect("root may open it");
        let tap = DeviceBuilder::new().name("rwdrv4").layer(tun_rs::Layer::L2).build_sync();
        let tap = tap.expect("a TAP");
        let offload = DeviceBuilder::new().name("rwdrv5").offload(true).build_sync();
        let offload = offload.expect("a TUN with headers");
        let table = [
            (null.as_fd(), "ioctl"),
            (unnamed.as_fd(), "File descriptor in bad state"),
            (tap.as_fd(), "TAP"),
            (offload.as_fd(), "IFF_VNET_HDR"),
        ];
        let mut tun = InheritedTun::new();
        for (fd, expected) in table {
            let said = check(fd).expect_err("no TUN of use").to_string();
            assert!(said.contains(expected), "{expected}: {said}");
            let fd = fd.try_clone_to_owned().expect("a descriptor is free");
            assert!(matches!(tun.replace(Some(fd)), Err(TunError::NoTun { .. })));
            assert!(!tun.is_open());
        }
        let good = device("rwdrv6");
        assert_eq!(check(good.as_fd()).expect("a TUN").as_deref(), Some("rwdrv6"));
    });
}

fn device(name: &str) -> SyncDevice {
    let builder = DeviceBuilder::new().name(name).mtu(1400).packet_information(false);
    builder.build_sync().expect("a TUN")
}

/// What the opener hands over.
fn descriptor(device: &SyncDevice) -> OwnedFd {
    device.as_fd().try_clone_to_owned().expect("a descriptor is free")
}

/// Reads all that is there; returns how many of it are datagrams of IPv4.
fn datagrams(tun: &mut InheritedTun) -> usize {
    let mut count = 0;
    let drained = tun.read_batch(1000, |packet, _, _| {
        // Not the kernel's own IPv6 announcements.
        count += usize::from(packet[0] == 0x45 && packet[9] == 17);
    });
    assert_eq!(drained.expect("no error"), Drained::Yes);
    count
}
