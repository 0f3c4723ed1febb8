//! The packets that wait, in the order of their numbers.
//!
//! Slot 0 stands for the expected number; the slots exist only while something waits, so an idle
//! session holds nothing.

use std::collections::VecDeque;

use super::pool::{Early, Pool};
use crate::packet::Packet;
use crate::time::Instant;

/// What is known of a number at or above the expected one.
#[derive(Debug)]
pub(super) enum Slot {
    /// It may still come.
    Missing,
    /// It was proven lost.
    Lost,
    /// It came early.
    Held(Early),
}

/// The arrival that started the wait for a hole.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstBehind {
    global: u64,
    /// When it came.
    pub(super) arrived: Instant,
    /// SOWD of the link it came on, at that time.
    pub(super) delay_us: i64,
}

/// The packets that wait.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    slots: VecDeque<Slot>,
    /// In the order of arrival. Numbers below the expected one are taken off when they get to the
    /// front; at most twice as many as the buffer spans, since all of them were stored while the front
    /// one waited.
    arrivals: VecDeque<FirstBehind>,
    pool: Pool,
    held: usize,
    bytes: usize,
}

impl Buffer {
    /// Packets that wait.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing is known of any number from the expected one on.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.arrivals.is_empty()
    }

    /// Numbers from the expected one to the highest that waits.
    pub(super) fn span(&self) -> u64 {
        self.slots.len() as u64
    }

    /// The slot of the number `offset` above the expected one, if the buffer spans it.
    pub(super) fn slot(&self, offset: u64) -> Option<&Slot> {
        self.slots.get(usize::try_from(offset).ok()?)
    }

    /// How far above the expected number the lowest waiting packet is.
    pub(super) fn lowest(&self) -> Option<u64> {
        let index = self.slots.iter().position(|slot| matches!(slot, Slot::Held(_)))?;
        Some(index as u64)
    }

    /// Copies a packet in, `offset` above the expected number. The caller has checked the bounds and
    /// that the slot is free.
    pub(super) fn store(
        &mut self,
        offset: usize,
        packet: &Packet<'_>,
        global: u64,
        now: Instant,
        delay_us: i64,
    ) {
        self.reach(offset);
        self.slots[offset] = Slot::Held(self.pool.copy(packet, now));
        self.arrivals.push_back(FirstBehind { global, arrived: now, delay_us });
        self.held += 1;
        self.bytes += packet.bytes.len();
    }

    /// Notes that the number `offset` above the expected one will not come.
    pub(super) fn mark_lost(&mut self, offset: usize) {
        self.reach(offset);
        if let slot @ Slot::Missing = &mut self.slots[offset] {
            *slot = Slot::Lost;
        }
    }

    /// The number `offset` above the expected one came after all.
    pub(super) fn unmark_lost(&mut self, offset: u64) {
        if let Ok(offset) = usize::try_from(offset)
            && let Some(slot @ Slot::Lost) = self.slots.get_mut(offset)
        {
            *slot = Slot::Missing;
        }
    }

    /// Takes the slot of the expected number; `None` if the buffer spans nothing.
    pub(super) fn pop(&mut self) -> Option<Slot> {
        let slot = self.slots.pop_front()?;
        if let Slot::Held(early) = &slot {
            self.held -= 1;
            self.bytes -= early.packet().bytes.len();
        }
        Some(slot)
    }

    /// Takes back the memory of a delivered packet; `limit` bounds the pool in bytes.
    pub(super) fn recycle(&mut self, early: Early, limit: usize) {
        self.pool.recycle(early, limit);
    }

    /// The first arrival among the packets from `expected` on.
    pub(super) fn first_behind(&self) -> Option<FirstBehind> {
        self.arrivals.front().copied()
    }

    /// Forgets the arrivals of what was released, and every slot if nothing waits.
    pub(super) fn trim(&mut self, expected: u64) {
        if self.is_empty() {
            return;
        }
        if self.held == 0 {
            self.slots.clear();
            self.arrivals.clear();
        }
        while self.arrivals.front().is_some_and(|first| first.global < expected) {
            self.arrivals.pop_front();
        }
    }

    /// Bytes kept for packets to come.
    pub(super) fn spare_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Whether memory is kept for packets to come.
    pub(super) fn has_spare(&self) -> bool {
        self.pool.bytes() > 0
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self) {
        self.pool = Pool::default();
        self.slots.shrink_to_fit();
        self.arrivals.shrink_to_fit();
    }

    fn reach(&mut self, offset: usize) {
        while self.slots.len() <= offset {
            self.slots.push_back(Slot::Missing);
        }
    }
}
