//! What waits for the stream. Pure.
//!
//! TCP never loses anything, so whatever is put into it waits there however long that takes. A tunnel is better off
//! with a short queue that drops: its packets are worth less with every millisecond, and its controllers find the rate
//! of a link by its delay and its losses. So TCP is given little at a time (`tcp`), the rest waits here, and what has
//! waited for [`MOST_WAIT`] is dropped from the head: of what is too old to be of use the oldest is the least so.

use std::collections::VecDeque;

use ropewalk_proto::time::{Duration, Instant};

use crate::frame::{framed, is_length, write};

/// The longest that a datagram waits, of the order of what a modem or a Wi-Fi access point queues: long enough that a
/// TCP connection below that pauses for a round trip to repair a loss goes on with a full pipe, short enough for a
/// call.
pub const MOST_WAIT: Duration = Duration::from_millis(100);

/// Bytes that wait at most, with their lengths: what 40 Mbit/s send in [`MOST_WAIT`], and 400 Mbit/s in 10 ms, so that
/// it bounds memory and seldom the rate.
const MOST_BYTES: usize = 512 * 1024;

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    datagrams: VecDeque<(Instant, Box<[u8]>)>,
    bytes: usize,
}

impl Queue {
    /// Appends a datagram. Returns whether it is one that the stream can carry.
    pub(crate) fn push(&mut self, now: Instant, datagram: &[u8]) -> bool {
        if !is_length(datagram.len()) {
            return false;
        }
        self.drop_old(now);
        self.bytes += framed(datagram.len());
        self.datagrams.push_back((now, datagram.into()));
        while self.bytes > MOST_BYTES {
            self.pop();
        }
        true
    }

    /// Writes what may leave now, in whole datagrams: as many as fit so many bytes, and at least one. Returns whether
    /// there was any.
    pub(crate) fn fill(&mut self, now: Instant, into: &mut Vec<u8>, most: usize) -> bool {
        self.drop_old(now);
        let before = into.len();
        while let Some((_, datagram)) = self.datagrams.front() {
            let written = into.len() - before;
            if written > 0 && written + framed(datagram.len()) > most {
                break;
            }
            write(datagram, into);
            self.pop();
        }
        into.len() > before
    }

    fn drop_old(&mut self, now: Instant) {
        while self.datagrams.front().is_some_and(|(since, _)| now.since(*since) > MOST_WAIT) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some((_, datagram)) = self.datagrams.pop_front() {
            self.bytes -= framed(datagram.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn what_waited_too_long_is_dropped_from_the_head() {
        let mut queue = Queue::default();
        for ms in [0, 40, 80, 120, 160] {
            assert!(queue.push(at(ms), &[u8::try_from(ms).unwrap()]));
        }
        let mut out = Vec::new();
        assert!(queue.fill(at(181), &mut out, 1000));
        assert_eq!(out, [0, 1, 120, 0, 1, 160], "80 waited for 101 ms");
        assert!(!queue.fill(at(181), &mut out, 1000));
        queue.push(at(200), &[1]);
        assert!(!queue.fill(at(301), &mut out, 1000), "too late altogether");
        assert_eq!((queue.bytes, queue.datagrams.len()), (0, 0));
    }

    #[test]
    fn a_record_holds_whole_datagrams_and_at_least_one() {
        let mut queue = Queue::default();
        for _ in 0..5 {
            queue.push(at(0), &[7; 1000]);
        }
        for expected in [2, 2, 1] {
            let mut out = vec![9];
            assert!(queue.fill(at(0), &mut out, 2004));
            assert_eq!(out.len(), 1 + expected * 1002);
        }
        queue.push(at(0), &[7; 1000]);
        let mut out = Vec::new();
        assert!(queue.fill(at(0), &mut out, 10));
        assert_eq!(out.len(), 1002);
    }

    #[test]
    fn memory_is_bounded_and_the_newest_stay() {
        let mut queue = Queue::default();
        for number in 0..2_000_u16 {
            let mut datagram = [0; 1472];
            datagram[..2].copy_from_slice(&number.to_be_bytes());
            queue.push(at(0), &datagram);
            assert!(queue.bytes <= MOST_BYTES);
        }
        let last = &queue.datagrams.back().unwrap().1;
        assert_eq!(last[..2], 1_999_u16.to_be_bytes());
        assert!(queue.bytes > MOST_BYTES - 1474);
    }

    #[test]
    fn what_no_tunnel_sends_is_not_carried() {
        let mut queue = Queue::default();
        assert!(!queue.push(at(0), &[]) && !queue.push(at(0), &[0; crate::frame::LONGEST + 1]));
        assert!(!queue.fill(at(0), &mut Vec::new(), 1000));
    }
}
