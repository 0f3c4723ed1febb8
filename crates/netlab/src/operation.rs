//! Random operations on a tunnel and its network.
//!
//! An operation means the same wherever it stands: links are named by place modulo their number, so that a list
//! from which some were taken out is still a list.

use std::time::Duration;

use rand::Rng;
use ropewalk_proto::ecn::Ecn;

use crate::lab::Towards;

/// What happens next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operation {
    /// Time passes; traffic runs as it is set.
    Wait(Duration),
    /// From now on packets of `len` bytes go this way every `gap`; `None`: none does.
    Traffic(Towards, Option<Load>),
    /// Datagrams are lost with this probability. On the way back it loses reports.
    Loss(u8, Towards, f64),
    /// Another delay and jitter, in ms; `reorder`: datagrams of the link overtake each other.
    #[expect(missing_docs, reason = "said above")]
    Delay { link: u8, towards: Towards, ms: u16, jitter_ms: u16, reorder: bool },
    /// Another rate, in kbit/s.
    Rate(u8, Towards, u32),
    /// CE marks with this probability.
    Mark(u8, Towards, f64),
    /// The largest packet at IP level.
    Mtu(u8, Towards, u16),
    /// The link is silent for this long; both ways, and what is under way is lost, too, or one way.
    Outage(u8, Option<Towards>, Duration),
    /// The link is as it was at first.
    Heal(u8),
    /// The client opens a link that is not in use.
    Join(u8),
    /// The client takes a link out.
    Leave(u8),
    /// The link's NAT takes another port, or another address.
    Rebind(u8, Rebinding),
    /// What is sent this way is scheduled in another way from now on: one of those that keep the order.
    Schedule(Towards, u8),
    /// Others send and receive so much on the client's interface, in kbit/s, until they do something else.
    Others(u8, u32),
    /// Somebody on the way plays a datagram in.
    Inject(Towards, Injection, u16),
}

/// What an end sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Between two packets in the mean.
    pub gap: Duration,
    /// Packets that come at once.
    pub burst: usize,
    /// Lengths are drawn between these.
    pub len: (usize, usize),
    /// The mark of every other packet.
    pub ecn: Ecn,
}

/// What a NAT changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebinding {
    /// Its port.
    Port,
    /// Its address.
    Address,
}

/// What is played in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injection {
    /// A recent datagram again, from its own address.
    Copy,
    /// A recent datagram again, from a stranger's address.
    CopyFromElsewhere,
    /// A recent datagram with a bit flipped.
    Flipped,
    /// The beginning of a recent datagram.
    Truncated,
    /// A recent datagram of the other direction.
    Reflected,
    /// Bytes.
    Garbage,
}

/// What kinds of operations a run has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    /// All of them.
    Wild,
    /// Links keep their order, and none leaves or falls: what is proven must be true.
    Orderly,
    /// Links join and leave all the time.
    Restless,
}

/// Draws a list of `count` operations.
pub fn draw(rng: &mut impl Rng, mood: Mood, count: usize) -> Vec<Operation> {
    let mut list = vec![
        Operation::Traffic(Towards::Client, Some(load(rng))),
        Operation::Traffic(Towards::Proxy, Some(load(rng))),
    ];
    for _ in 0..count {
        list.push(match mood {
            Mood::Wild => wild(rng),
            Mood::Orderly => orderly(rng),
            Mood::Restless => restless(rng),
        });
        list.push(Operation::Wait(Duration::from_micros(rng.random_range(1_000..300_000))));
    }
    list
}

fn wild(rng: &mut impl Rng) -> Operation {
    match rng.random_range(0..10) {
        0..=3 => orderly(rng),
        4..=5 => restless(rng),
        6 => Operation::Delay {
            link: rng.random(),
            towards: towards(rng),
            ms: rng.random_range(0..200),
            jitter_ms: rng.random_range(0..40),
            reorder: rng.random_bool(0.5),
        },
        7 => {
            let ways = [None, Some(Towards::Client), Some(Towards::Proxy)];
            let longest = [100, 1000, 3000, 30_000][rng.random_range(0..4)];
            let length = Duration::from_millis(rng.random_range(50..=longest));
            Operation::Outage(rng.random(), ways[rng.random_range(0..3)], length)
        }
        8 => {
            let what = [
                Injection::Copy,
                Injection::CopyFromElsewhere,
                Injection::Flipped,
                Injection::Truncated,
                Injection::Reflected,
                Injection::Garbage,
            ];
            Operation::Inject(towards(rng), what[rng.random_range(0..what.len())], rng.random())
        }
        _ => Operation::Loss(rng.random(), towards(rng), rng.random()),
    }
}

fn orderly(rng: &mut impl Rng) -> Operation {
    let (link, towards) = (rng.random(), towards(rng));
    match rng.random_range(0..14) {
        13 => Operation::Others(link, [0, 1, 3_000, u32::MAX][rng.random_range(0..4)]),
        12 => Operation::Schedule(towards, rng.random()),
        0..=1 => Operation::Loss(link, towards, [0.0, 0.001, 0.02, 0.1][rng.random_range(0..4)]),
        2 => Operation::Delay {
            link,
            towards,
            ms: rng.random_range(0..200),
            jitter_ms: rng.random_range(0..20),
            reorder: false,
        },
        3 => Operation::Rate(link, towards, rng.random_range(500..50_000)),
        4 => Operation::Mark(link, towards, [0.0, 0.01, 0.3][rng.random_range(0..3)]),
        5 => Operation::Mtu(link, towards, [1500, 1400, 1300, 1280][rng.random_range(0..4)]),
        6 => {
            let what = [Rebinding::Port, Rebinding::Address];
            Operation::Rebind(link, what[rng.random_range(0..2)])
        }
        7..=8 => Operation::Traffic(towards, rng.random_bool(0.8).then(|| load(rng))),
        9 => {
            let what = [Injection::Flipped, Injection::Reflected, Injection::Garbage];
            Operation::Inject(towards, what[rng.random_range(0..what.len())], rng.random())
        }
        10 => Operation::Join(link),
        _ => Operation::Heal(link),
    }
}

fn restless(rng: &mut impl Rng) -> Operation {
    if rng.random_bool(0.5) {
        Operation::Join(rng.random())
    } else {
        Operation::Leave(rng.random())
    }
}

fn load(rng: &mut impl Rng) -> Load {
    let longest = [60, 300, 1000, 1440, 1468][rng.random_range(0..5)];
    Load {
        gap: Duration::from_micros([2_000, 6_000, 20_000, 200_000][rng.random_range(0..4)]),
        burst: [1, 1, 3, 20][rng.random_range(0..4)],
        len: (rng.random_range(60..=longest), longest),
        ecn: [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][rng.random_range(0..4)],
    }
}

fn towards(rng: &mut impl Rng) -> Towards {
    if rng.random() { Towards::Client } else { Towards::Proxy }
}
