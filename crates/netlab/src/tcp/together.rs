//! Connections of one application, as a download manager has them: what they carry together, and each of them.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::{Delivered, TcpFlow};
use crate::per_second::PerSecond;
use crate::stats::mbit;

/// What came over some connections, in the order in which it came.
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// How much came, and when; bytes since the arrival before.
    came: Vec<Delivered>,
    start: Option<Instant>,
    flows: Vec<f64>,
    complete: bool,
}

impl Together {
    /// Of these connections.
    #[must_use]
    pub fn of(flows: &[TcpFlow]) -> Self {
        let mut came: Vec<Delivered> = flows.iter().flat_map(increments).collect();
        // Stable: what came at the same moment stays in the order of the connections.
        came.sort_by_key(|arrival| arrival.at);
        Self {
            came,
            start: flows.iter().map(TcpFlow::start).min(),
            flows: flows.iter().map(TcpFlow::mbit).collect(),
            complete: flows.iter().all(TcpFlow::is_complete),
        }
    }

    /// How much came, and when, in bytes since the arrival before.
    #[must_use]
    pub fn came(&self) -> &[Delivered] {
        &self.came
    }

    /// Goodput in Mbit/s of payload from the first to the last byte that came.
    #[must_use]
    pub fn mbit(&self) -> f64 {
        let bytes = self.came.iter().map(|arrival| arrival.bytes).sum();
        match (self.came.first(), self.came.last()) {
            (Some(first), Some(last)) => mbit(bytes, last.at.since(first.at)),
            _ => 0.0,
        }
    }

    /// The goodput of each, from its own first to its own last byte.
    #[must_use]
    pub fn flows(&self) -> &[f64] {
        &self.flows
    }

    /// Whether all that was to come came as sent.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// From the first one's beginning to the last byte that came.
    #[must_use]
    pub fn length(&self) -> Duration {
        match (self.start, self.came.last()) {
            (Some(start), Some(last)) => last.at.since(start),
            _ => Duration::ZERO,
        }
    }

    /// What came in each second since the first byte.
    #[must_use]
    pub fn per_second(&self) -> PerSecond {
        let mut series = PerSecond::default();
        for arrival in &self.came {
            series.note(arrival.at.since(self.came[0].at), arrival.bytes);
        }
        series
    }

    /// The longest time without a byte of any of them, between the first and the last.
    #[must_use]
    pub fn longest_stall(&self) -> Duration {
        self.longest_stall_from(Instant::ZERO)
    }

    /// The same of times that end after `from`.
    #[must_use]
    pub fn longest_stall_from(&self, from: Instant) -> Duration {
        let pairs = self.came.windows(2).filter(|pair| pair[1].at > from);
        pairs.map(|pair| pair[1].at.since(pair[0].at)).max().unwrap_or_default()
    }
}

/// The arrivals of a connection, each with what it brought.
fn increments(flow: &TcpFlow) -> impl Iterator<Item = Delivered> {
    flow.arrivals().iter().scan(0, |before, arrival| {
        let bytes = arrival.bytes - std::mem::replace(before, arrival.bytes);
        Some(Delivered { at: arrival.at, bytes })
    })
}
