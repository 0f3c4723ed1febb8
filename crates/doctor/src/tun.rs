//! Whether a TUN can be made, and whether the kernel sends and receives trains of datagrams in one call.

use std::fs::File;
use std::io::ErrorKind;
use std::net::UdpSocket;

use nix::sys::socket::{setsockopt, sockopt};

use super::finding::Finding;

/// The device that makes TUNs.
const DEVICE: &str = "/dev/net/tun";

/// What there is to judge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// What opening the device said.
    pub(super) device: Device,
    /// The kernel cuts trains of datagrams (`UDP_SEGMENT`).
    pub(super) sends_trains: bool,
    /// It joins them (`UDP_GRO`).
    pub(super) receives_trains: bool,
}

/// What opening the device said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Opens,
    Missing,
    Denied,
    /// The file is there and the kernel knows no such device.
    NoDriver,
    Other(String),
}

pub(super) fn look() -> Facts {
    let device = match File::options().read(true).write(true).open(DEVICE) {
        Ok(_) => Device::Opens,
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Device::Missing,
            ErrorKind::PermissionDenied => Device::Denied,
            _ if error.raw_os_error() == Some(nix::libc::ENODEV)
                || error.raw_os_error() == Some(nix::libc::ENXIO) =>
            {
                Device::NoDriver
            }
            _ => Device::Other(error.to_string()),
        },
    };
    let socket = UdpSocket::bind("127.0.0.1:0").ok();
    let takes = |set: &dyn Fn(&UdpSocket) -> bool| socket.as_ref().is_some_and(set);
    Facts {
        device,
        sends_trains: takes(&|socket| setsockopt(socket, sockopt::UdpGsoSegment, &1200).is_ok()),
        receives_trains: takes(&|socket| setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok()),
    }
}

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let subject = "TUN";
    let fail = |id, found: String| Finding::fail(id, subject, found, "sudo modprobe tun");
    let device = match &facts.device {
        Device::Opens => {
            Finding::ok("tun", subject, format!("{DEVICE} opens; packets pass one by one"))
        }
        Device::Missing => fail("tun.missing", format!("{DEVICE} is not there"))
            .or(format!("sudo sh -c 'mkdir -p /dev/net && mknod -m 666 {DEVICE} c 10 200'"))
            .advise("in a container, give it the device: --device /dev/net/tun; else:"),
        Device::NoDriver => {
            fail("tun.no-driver", format!("{DEVICE} is there and the kernel has no TUN driver"))
                .advise("after an upgrade of the kernel, restart the machine first; else:")
        }
        Device::Denied => Finding::fail(
            "tun.denied",
            subject,
            format!("{DEVICE} is closed to this user"),
            format!("sudo chmod 666 {DEVICE}"),
        )
        .advise("run it with sudo, or as most systems have it:"),
        Device::Other(why) => fail("tun.broken", format!("{DEVICE} does not open: {why}")),
    };
    let offload = match (facts.sends_trains, facts.receives_trains) {
        (true, true) => Finding::ok(
            "offload",
            "UDP offload",
            "the kernel sends and receives trains of datagrams in one call",
        ),
        (sends, _) => {
            let lacks = if sends { "UDP_GRO (Linux 5.0)" } else { "UDP_SEGMENT (Linux 4.18)" };
            Finding::note(
                "offload.missing",
                "UDP offload",
                format!(
                    "this kernel lacks {lacks}: every datagram costs a call, so fast links cost more"
                ),
            )
        }
    };
    vec![device, offload]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_device_that_does_not_open_is_told_with_the_remedy() {
        let table = [
            (Device::Opens, "tun", Level::Ok, ""),
            (Device::Missing, "tun.missing", Level::Fail, "mknod -m 666 /dev/net/tun c 10 200"),
            (Device::Denied, "tun.denied", Level::Fail, "chmod 666 /dev/net/tun"),
            (Device::NoDriver, "tun.no-driver", Level::Fail, "modprobe tun"),
            (Device::Other("x".into()), "tun.broken", Level::Fail, "modprobe tun"),
        ];
        for (device, id, level, command) in table {
            let facts = Facts { device, sends_trains: true, receives_trains: true };
            let finding = &judge(&facts)[0];
            assert_eq!((finding.id, finding.level), (id, level));
            assert!(finding.commands.join("\n").contains(command), "{finding:?}");
        }
    }

    #[test]
    fn a_kernel_without_trains_is_a_note() {
        for (sends, receives, level) in
            [(true, true, Level::Ok), (false, true, Level::Note), (true, false, Level::Note)]
        {
            let facts =
                Facts { device: Device::Opens, sends_trains: sends, receives_trains: receives };
            assert_eq!(judge(&facts)[1].level, level);
        }
    }
}
