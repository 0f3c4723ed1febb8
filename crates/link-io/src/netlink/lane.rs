//! Lanes: a part of what an interface sends waits in a queue of its own and leaves at a rate of its own.
//!
//! Each lane is a class of the kernel's token buckets (`tc-htb(8)`) at the root of the interface, with a queue of bytes
//! (`bfifo`) in it. A packet takes the lane whose number is its priority ([`Lane::priority`]), which a rule of the firewall
//! gives it; all others pass as if there were no lanes. What waits is not lost: a sender of TCP sees a slower path, and no
//! losses that it would have to repair.
//!
//! Ours are known by the number of the queue at the root. Where somebody else has put one there, it stays.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt};
use ropewalk_settings::Bitrate;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcHeader, TcMessage, TcOption};

use super::error::{or_gone, or_none};
use super::{Netlink, NetlinkError};

/// The number of our queues at the root of an interface ("rW"); `tc` shows it as `7257:`.
const ROOT: u16 = 0x7257;

/// How long what waits in a lane may take to leave, ms. The end of a tunnel that acknowledges for a receiver sends ahead as
/// much as all links carry in some round trips: what has no room in a slow lane has to come over the links again.
const ROOM_MS: u64 = 2000;

/// What has room in any lane, bytes: several packets that the kernel joined, at least; and at most, so that all lanes of a
/// household together take no more memory than a small machine has.
const ROOM: (u64, u64) = (512 << 10, 4 << 20);

/// What a lane that rested may send at once: 10 ms of its rate, and ten packets at least.
const BURST_MS: u64 = 10;
const LEAST_BURST: u64 = 15_000;

/// `linux/pkt_sched.h`: attributes of `htb`, the version of its options, frames of Ethernet, and the unit of its times.
const HTB_PARMS: u16 = 1;
const HTB_INIT: u16 = 2;
const HTB_VERSION: u32 = 3;
const ETHERNET: u8 = 1;
const NANOS_PER_TICK: u64 = 64;

/// `linux/rtnetlink.h`: the options of a queue, where they are no attributes.
const TCA_OPTIONS: u16 = 2;

/// One lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its number, from 1 on.
    pub number: u16,
    /// At which rate it sends, with the headers of Ethernet; 34 Gbit/s at most.
    pub rate: Bitrate,
}

impl Lane {
    /// What a rule of the firewall gives a packet as its priority (`meta priority set`), so that it takes this lane.
    #[must_use]
    pub fn priority(number: u16) -> String {
        format!("{ROOT:x}:{number:x}")
    }

    fn bytes_per_second(self) -> u64 {
        (self.rate.as_bps() / 8).max(1)
    }

    /// Bytes that may wait.
    fn room(self) -> u32 {
        let wanted = self.bytes_per_second().saturating_mul(ROOM_MS) / 1000;
        u32::try_from(wanted.clamp(ROOM.0, ROOM.1)).unwrap_or(u32::MAX)
    }

    /// `struct tc_htb_opt`.
    fn parameters(self) -> Vec<u8> {
        let rate = self.bytes_per_second();
        let burst = (rate * BURST_MS / 1000).max(LEAST_BURST);
        let ticks = burst.saturating_mul(1_000_000_000) / rate / NANOS_PER_TICK;
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        // How much of a lane leaves before the next one's turn; the kernel warns where it has to choose.
        let quantum = u32::try_from((rate / 10).clamp(1_514, 200_000)).unwrap_or(u32::MAX);
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(44);
        // The rate that it has, and the one that it may borrow up to: `struct tc_ratespec`, twice.
        for _ in 0..2 {
            bytes.extend_from_slice(&[0, ETHERNET]);
            bytes.extend_from_slice(&[0; 6]);
            bytes.extend_from_slice(&rate.to_ne_bytes());
        }
        let (level, priority) = (0, 0);
        for number in [ticks, ticks, quantum, level, priority] {
            bytes.extend_from_slice(&u32::to_ne_bytes(number));
        }
        bytes
    }
}

/// What stands at the root of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// What the kernel puts there by itself.
    Usual,
    /// Our lanes.
    Lanes,
    /// A queue of somebody else's; its kind, such as `cake`.
    Foreign(String),
}

impl Netlink {
    /// What stands at the roots of all interfaces, by their numbers. One without a queue is not among them; a kernel may know no
    /// queues at all.
    ///
    /// # Errors
    /// When the kernel's answer fails or cannot be understood.
    pub async fn roots(&self) -> Result<BTreeMap<u32, Root>, NetlinkError> {
        let found: Result<Vec<_>, _> = self.handle.qdisc().get().execute().try_collect().await;
        let what = "list the queues of interfaces";
        let found = or_none(found.map_err(|error| NetlinkError::during(what, &error)))?;
        let roots = found.iter().filter(|message| message.header.parent == TcHandle::ROOT);
        Ok(roots.filter_map(root_of).collect())
    }

    /// Puts these lanes at the root of an interface where nobody else has a queue; lanes that are there go, with what waits
    /// in them.
    ///
    /// # Errors
    /// When the interface is gone, the kernel has no token buckets (`sch_htb`), or the right is missing. Then there are none.
    pub async fn set_lanes(&self, index: u32, lanes: &[Lane]) -> Result<(), NetlinkError> {
        self.remove_lanes(index).await?;
        let done = self.add_lanes(index, lanes).await;
        if done.is_err() {
            // It is as good as gone; what is left is found the next time.
            let _ = self.remove_lanes(index).await;
        }
        done.map_err(|error| {
            NetlinkError::during(format!("limit rates on the interface number {index}"), &error)
        })
    }

    /// Takes our lanes away; where there are none that is fine.
    ///
    /// # Errors
    /// When the right is missing.
    pub async fn remove_lanes(&self, index: u32) -> Result<(), NetlinkError> {
        let roots = self.roots().await?;
        if roots.get(&index) != Some(&Root::Lanes) {
            return Ok(());
        }
        let message = message(index, lane(0), TcHandle::ROOT, Vec::new());
        let done = self.ask(RouteNetlinkMessage::DelQueueDiscipline(message), 0).await;
        let what = format!("take the limits of rates off the interface number {index}");
        or_gone(done.map_err(|error| NetlinkError::during(what, &error)))
    }

    async fn add_lanes(&self, index: u32, lanes: &[Lane]) -> Result<(), rtnetlink::Error> {
        let words = [HTB_VERSION, 10, 0, 0, 0];
        let options = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let attributes = vec![kind("htb"), nested(HTB_INIT, options)];
        let root = message(index, lane(0), TcHandle::ROOT, attributes);
        let new = NLM_F_CREATE | NLM_F_EXCL;
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(root), new).await?;
        for one in lanes {
            let attributes = vec![kind("htb"), nested(HTB_PARMS, one.parameters())];
            let class = message(index, lane(one.number), lane(0), attributes);
            self.ask(RouteNetlinkMessage::NewTrafficClass(class), new).await?;
            let room = DefaultNla::new(TCA_OPTIONS, one.room().to_ne_bytes().into());
            let attributes = vec![kind("bfifo"), TcAttribute::Other(room)];
            let queue = message(index, TcHandle::UNSPEC, lane(one.number), attributes);
            self.ask(RouteNetlinkMessage::NewQueueDiscipline(queue), new).await?;
        }
        Ok(())
    }

    async fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), rtnetlink::Error> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.handle.clone().request(request)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload {
                return Err(rtnetlink::Error::NetlinkError(error));
            }
        }
        Ok(())
    }
}

const fn lane(number: u16) -> TcHandle {
    TcHandle { major: ROOT, minor: number }
}

fn kind(name: &str) -> TcAttribute {
    TcAttribute::Kind(name.to_owned())
}

fn nested(number: u16, value: Vec<u8>) -> TcAttribute {
    TcAttribute::Options(vec![TcOption::Other(DefaultNla::new(number, value))])
}

fn message(
    index: u32,
    handle: TcHandle,
    parent: TcHandle,
    attributes: Vec<TcAttribute>,
) -> TcMessage {
    let header = TcHeader { index: index.cast_signed(), handle, parent, ..TcHeader::default() };
    TcMessage::from_parts(header, attributes)
}

fn root_of(message: &TcMessage) -> Option<(u32, Root)> {
    let name = message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(name) => Some(name.clone()),
        _ => None,
    })?;
    let root = match message.header.handle.major {
        0 => Root::Usual,
        ROOT if name == "htb" => Root::Lanes,
        _ => Root::Foreign(name),
    };
    Some((message.header.index.cast_unsigned(), root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane_of(mbit: u64) -> Lane {
        Lane { number: 1, rate: Bitrate::from_mbps(mbit) }
    }

    #[test]
    fn the_kernels_parameters_are_bytes_a_second_and_ticks_of_64_ns() {
        let bytes = lane_of(8).parameters();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(bytes.len(), 44);
        assert_eq!((bytes[1], bytes[13]), (ETHERNET, ETHERNET));
        assert_eq!((word(8), word(20)), (1_000_000, 1_000_000));
        // 15,000 bytes are 15 ms at this rate.
        assert_eq!((word(24), word(28)), (234_375, 234_375));
        assert_eq!((word(32), word(36), word(40)), (100_000, 0, 0));
        // 10 ms of a faster one.
        let bytes = lane_of(800).parameters();
        let ticks = u32::from_ne_bytes(bytes[24..28].try_into().unwrap());
        assert_eq!(ticks, 156_250);
    }

    #[test]
    fn what_may_wait_takes_two_seconds_within_bounds() {
        let rooms = [1, 8, 1000].map(|mbit| lane_of(mbit).room());
        assert_eq!(rooms, [512 << 10, 2_000_000, 4 << 20]);
        assert_eq!(Lane::priority(18), "7257:12");
    }

    #[test]
    fn a_kernel_that_knows_no_queues_has_none() {
        let refused = |code: i32| -> Result<Vec<TcMessage>, NetlinkError> {
            let source = std::io::Error::from_raw_os_error(code);
            Err(NetlinkError::Kernel { what: "list".to_owned(), source })
        };
        assert!(or_none(refused(95)).unwrap().is_empty());
        assert!(or_none(refused(12)).is_err());
    }

    #[test]
    fn a_queue_of_somebody_elses_is_told_from_ours_and_from_the_usual_one() {
        let root = |major, name: &str| {
            let handle = TcHandle { major, minor: 0 };
            root_of(&message(7, handle, TcHandle::ROOT, vec![kind(name)]))
        };
        assert_eq!(root(0, "fq_codel"), Some((7, Root::Usual)));
        assert_eq!(root(ROOT, "htb"), Some((7, Root::Lanes)));
        assert_eq!(root(1, "htb"), Some((7, Root::Foreign("htb".into()))));
        assert_eq!(root(ROOT, "cake"), Some((7, Root::Foreign("cake".into()))));
    }
}
