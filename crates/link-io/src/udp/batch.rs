//! The outgoing batch: where the core puts its datagrams, already laid out for the kernel.
//!
//! The kernel takes a *train* in one call: datagrams of one path, one size and one ECN mark that lie
//! one behind the other in memory, the last of which may be shorter (`UDP_SEGMENT`). A sender that
//! stripes packets over links writes A, B, A, B; so each path has a *lane* of its own, and
//! consecutive datagrams of a lane are a train without having been copied.
//!
//! A lane whose socket cannot take more keeps what is left and is tried again when the socket is
//! writable; its memory is its bound. What is written to a full lane of such a socket is dropped and
//! counted: one link that hangs does not hold up the others.

use quinn_udp::EcnCodepoint;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink;
use std::ops::Range;

/// Bytes of a lane, and so of the longest train and the longest datagram: the largest UDP payload
/// over IPv4.
pub const LANE_BYTES: usize = 65_507;

/// Datagrams in a lane: as many as every kernel with `UDP_SEGMENT` takes in one train.
pub const LANE_DATAGRAMS: usize = 64;

/// Paths in one batch. More are sent in several batches; each costs 64 KiB of memory.
pub const LANES: usize = 16;

/// Datagrams that wait to be sent.
#[derive(Debug)]
pub struct OutBatch {
    lanes: Vec<Lane>,
    /// The lane used last: a burst on one path finds it at once.
    last: usize,
    reserved: Reserved,
    /// Takes what is written to a full lane of a blocked socket.
    scratch: Box<[u8]>,
    refused: bool,
    dropped: u64,
}

/// Where the bytes lent by `reserve` belong.
#[derive(Clone, Copy, Debug)]
enum Reserved {
    Nothing,
    Lane { lane: usize, len: usize, ecn: Ecn },
    Scratch,
}

impl Default for OutBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl OutBatch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lanes: (0..LANES).map(|_| Lane::new()).collect(),
            last: 0,
            reserved: Reserved::Nothing,
            scratch: vec![0; LANE_BYTES].into_boxed_slice(),
            refused: false,
            dropped: 0,
        }
    }

    /// Whether `reserve` refused a datagram since this was last asked: there is more to send than
    /// the batch held.
    pub fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// Datagrams dropped because their socket took no more and their lane was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Datagrams that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|lane| lane.entries.len() - lane.sent).sum()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(Lane::is_empty)
    }

    /// The lanes that hold datagrams.
    pub(super) fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut().filter(|lane| !lane.is_empty())
    }

    /// Forgets what waits for a socket that was closed.
    pub(super) fn discard(&mut self, socket: SocketId) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.is_for(socket)) {
            self.dropped += (lane.entries.len() - lane.sent) as u64;
            lane.clear();
        }
    }

    /// The lane that holds datagrams of `path`, or an empty one.
    fn lane_for(&mut self, path: Path) -> Option<usize> {
        let holds = |lane: &Lane| lane.path == Some(path) && !lane.is_empty();
        let lane = if holds(&self.lanes[self.last]) {
            self.last
        } else {
            self.lanes
                .iter()
                .position(holds)
                .or_else(|| self.lanes.iter().position(Lane::is_empty))?
        };
        self.last = lane;
        Some(lane)
    }
}

impl TransmitSink for OutBatch {
    fn reserve(&mut self, path: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        self.reserved = Reserved::Nothing;
        if len > LANE_BYTES {
            self.refused = true;
            return None;
        }
        let blocked = match self.lane_for(path) {
            Some(index) => {
                let lane = &mut self.lanes[index];
                if lane.is_empty() {
                    lane.start(path);
                }
                if lane.has_room(len) {
                    self.reserved = Reserved::Lane { lane: index, len, ecn };
                    let start = lane.used();
                    return Some(&mut lane.bytes[start..start + len]);
                }
                lane.blocked
            }
            None => self.lanes.iter().all(|lane| lane.blocked),
        };
        if blocked {
            // Flushing would not help now; to refuse would stop the other links too.
            self.reserved = Reserved::Scratch;
            return Some(&mut self.scratch[..len]);
        }
        self.refused = true;
        None
    }

    fn has_room(&mut self, paths: &[Path], len: usize) -> bool {
        let mut free = self.lanes.iter().filter(|lane| lane.is_empty()).count();
        let fits = paths.iter().all(|path| {
            let holds = |lane: &&Lane| lane.path == Some(*path) && !lane.is_empty();
            match self.lanes.iter().find(holds) {
                Some(lane) => lane.has_room(len) || lane.blocked,
                None if free > 0 => {
                    free -= 1;
                    len <= LANE_BYTES
                }
                None => self.lanes.iter().all(|lane| lane.blocked),
            }
        });
        self.refused |= !fits;
        fits
    }

    fn commit(&mut self, len: usize) {
        match std::mem::replace(&mut self.reserved, Reserved::Nothing) {
            Reserved::Lane { lane, len: reserved, ecn } => {
                let lane = &mut self.lanes[lane];
                let start = lane.used();
                lane.entries.push(Entry { end: start + len.min(reserved), ecn });
            }
            Reserved::Scratch => self.dropped += 1,
            Reserved::Nothing => {}
        }
    }
}

/// The datagrams of one path.
#[derive(Debug)]
pub(super) struct Lane {
    path: Option<Path>,
    bytes: Box<[u8]>,
    entries: Vec<Entry>,
    /// How many of `entries` the kernel has.
    sent: usize,
    /// The kernel took no more when it was last tried.
    pub(super) blocked: bool,
}

/// One datagram: from the end of the one before it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    end: usize,
    ecn: Ecn,
}

/// Datagrams that one call can send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Train {
    pub(super) bytes: Range<usize>,
    /// Length of each datagram but the last, which may be shorter.
    pub(super) segment: usize,
    /// How many.
    pub(super) datagrams: usize,
    pub(super) ecn: Option<EcnCodepoint>,
}

impl Lane {
    fn new() -> Self {
        Self {
            path: None,
            bytes: vec![0; LANE_BYTES].into_boxed_slice(),
            entries: Vec::with_capacity(LANE_DATAGRAMS),
            sent: 0,
            blocked: false,
        }
    }

    fn start(&mut self, path: Path) {
        self.clear();
        self.path = Some(path);
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.sent = 0;
        self.blocked = false;
    }

    fn is_empty(&self) -> bool {
        self.sent == self.entries.len()
    }

    fn is_for(&self, socket: SocketId) -> bool {
        self.path.is_some_and(|path| path.socket == socket)
    }

    fn used(&self) -> usize {
        self.entries.last().map_or(0, |entry| entry.end)
    }

    fn has_room(&self, len: usize) -> bool {
        self.entries.len() < LANE_DATAGRAMS && self.used() + len <= LANE_BYTES
    }

    /// Where the datagrams go.
    pub(super) fn path(&self) -> Option<Path> {
        self.path
    }

    /// Bytes of a train.
    pub(super) fn contents(&self, train: &Train) -> &[u8] {
        &self.bytes[train.bytes.clone()]
    }

    /// The longest train, of at most `max` datagrams, at the head of what waits. It closes with a
    /// datagram that is shorter and in front of one that is longer or marked differently.
    pub(super) fn next_train(&self, max: usize) -> Option<Train> {
        let first = self.entries.get(self.sent)?;
        let start = match self.sent.checked_sub(1) {
            Some(before) => self.entries[before].end,
            None => 0,
        };
        let segment = first.end - start;
        let mut end = first.end;
        let mut datagrams = 1;
        for entry in &self.entries[self.sent + 1..] {
            let len = entry.end - end;
            // An empty datagram cannot be a segment.
            let full_so_far = end - start == segment * datagrams;
            if datagrams >= max
                || entry.ecn != first.ecn
                || len > segment
                || len == 0
                || !full_so_far
            {
                break;
            }
            end = entry.end;
            datagrams += 1;
        }
        let ecn = EcnCodepoint::from_bits(first.ecn.bits());
        Some(Train { bytes: start..end, segment, datagrams, ecn })
    }

    /// That many datagrams at the head are done with, sent or not.
    pub(super) fn pop(&mut self, datagrams: usize) {
        self.sent += datagrams;
        debug_assert!(self.sent <= self.entries.len(), "a train is made of entries");
        if self.is_empty() {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn path(port: u16) -> Path {
        Path {
            socket: SocketId(0),
            local: None,
            remote: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        }
    }

    fn push(batch: &mut OutBatch, path: Path, ecn: Ecn, len: usize) -> bool {
        match batch.reserve(path, ecn, len) {
            Some(bytes) => {
                bytes.fill(u8::try_from(len % 251).expect("below 251"));
                batch.commit(len);
                true
            }
            None => false,
        }
    }

    #[test]
    fn room_for_several_paths_is_room_for_one_behind_the_other() {
        let all: Vec<_> = (0..17).map(path).collect();
        let mut batch = OutBatch::new();
        assert!(batch.has_room(&all[..LANES], 1472), "a lane for each");
        assert!(!batch.has_room(&all, 1472) && batch.take_refused());
        for datagram in 0..LANE_DATAGRAMS {
            assert!(batch.has_room(&all[..2], 1000), "datagram {datagram}");
            assert!(push(&mut batch, all[0], Ecn::NotEct, 1000));
        }
        assert!(!batch.has_room(&all[..2], 1000), "the first lane is full");
        assert!(batch.has_room(&all[1..LANES], 1000));
        assert!(!batch.has_room(&all[1..], 1000), "one lane is taken");
        for one in &all[1..LANES] {
            assert!(push(&mut batch, *one, Ecn::NotEct, LANE_BYTES - 500));
        }
        assert!(batch.has_room(&all[1..LANES], 500) && !batch.has_room(&all[1..LANES], 501));
    }

    /// (bytes, datagrams) of each train of the only lane.
    fn trains(batch: &mut OutBatch, max: usize) -> Vec<(usize, usize)> {
        let mut trains = Vec::new();
        while let Some(lane) = batch.lanes_mut().next() {
            let train = lane.next_train(max).expect("the lane is not empty");
            trains.push((train.bytes.len(), train.datagrams));
            lane.pop(train.datagrams);
        }
        trains
    }

    #[test]
    fn datagrams_of_one_size_and_mark_are_one_train() {
        use Ecn::{Ce, Ect0, NotEct};
        type Case = (&'static str, &'static [(usize, Ecn)], &'static [(usize, usize)]);
        let table: &[Case] = &[
            ("one", &[(100, Ect0)], &[(100, 1)]),
            ("equal", &[(100, Ect0), (100, Ect0), (100, Ect0)], &[(300, 3)]),
            ("a shorter one closes", &[(100, Ect0), (50, Ect0), (50, Ect0)], &[(150, 2), (50, 1)]),
            ("a longer one starts again", &[(50, Ect0), (100, Ect0)], &[(50, 1), (100, 1)]),
            (
                "a mark closes",
                &[(100, Ect0), (100, Ce), (100, Ce), (100, NotEct)],
                &[(100, 1), (200, 2), (100, 1)],
            ),
            (
                "an empty one is alone",
                &[(0, Ect0), (10, Ect0), (0, Ect0)],
                &[(0, 1), (10, 1), (0, 1)],
            ),
        ];
        for (case, datagrams, expected) in table {
            let mut batch = OutBatch::new();
            for (len, ecn) in *datagrams {
                assert!(push(&mut batch, path(1), *ecn, *len), "{case}");
            }
            assert_eq!(trains(&mut batch, 64), *expected, "{case}");
        }
    }

    #[test]
    fn a_train_is_no_longer_than_the_kernel_allows() {
        let mut batch = OutBatch::new();
        for _ in 0..10 {
            push(&mut batch, path(1), Ecn::NotEct, 10);
        }
        assert_eq!(trains(&mut batch, 4), [(40, 4), (40, 4), (20, 2)]);
    }

    #[test]
    fn striped_paths_still_make_trains() {
        let mut batch = OutBatch::new();
        for _ in 0..8 {
            push(&mut batch, path(1), Ecn::NotEct, 100);
            push(&mut batch, path(2), Ecn::NotEct, 100);
        }
        assert_eq!(batch.len(), 16);
        assert_eq!(trains(&mut batch, 64), [(800, 8), (800, 8)]);
        assert!(batch.is_empty());
    }

    #[test]
    fn a_reservation_that_is_not_committed_leaves_nothing() {
        let mut batch = OutBatch::new();
        batch.reserve(path(1), Ecn::NotEct, 500).expect("room").fill(9);
        push(&mut batch, path(1), Ecn::NotEct, 100);
        batch.commit(100);
        assert_eq!(trains(&mut batch, 64), [(100, 1)]);
    }

    #[test]
    fn a_datagram_may_be_shortened_when_committed_but_not_lengthened() {
        let mut batch = OutBatch::new();
        batch.reserve(path(1), Ecn::NotEct, 500).expect("room");
        batch.commit(40);
        batch.reserve(path(1), Ecn::NotEct, 50).expect("room");
        batch.commit(60);
        assert_eq!(trains(&mut batch, 64), [(40, 1), (50, 1)]);
    }

    #[test]
    fn a_full_batch_refuses_and_says_so() {
        let mut batch = OutBatch::new();
        for _ in 0..LANE_DATAGRAMS {
            assert!(push(&mut batch, path(1), Ecn::NotEct, 10));
        }
        assert!(!batch.take_refused());
        assert!(!push(&mut batch, path(1), Ecn::NotEct, 10));
        assert!(batch.take_refused() && !batch.take_refused());
        for port in 2..=u16::try_from(LANES).expect("small") {
            assert!(push(&mut batch, path(port), Ecn::NotEct, 10));
        }
        assert!(!push(&mut batch, path(999), Ecn::NotEct, 10), "no lane is left");
        assert!(!push(&mut batch, path(999), Ecn::NotEct, LANE_BYTES + 1), "never fits");
    }

    #[test]
    fn a_blocked_lane_drops_when_full_and_stops_nobody_else() {
        let mut batch = OutBatch::new();
        for _ in 0..LANE_DATAGRAMS {
            push(&mut batch, path(1), Ecn::NotEct, 10);
        }
        batch.lanes_mut().for_each(|lane| lane.blocked = true);
        for _ in 0..3 {
            assert!(push(&mut batch, path(1), Ecn::NotEct, 10));
        }
        assert!(push(&mut batch, path(2), Ecn::NotEct, 10));
        assert_eq!((batch.len(), batch.dropped()), (LANE_DATAGRAMS + 1, 3));
        batch.discard(SocketId(0));
        assert!(batch.is_empty());
    }
}
