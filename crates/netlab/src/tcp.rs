//! TCP in virtual time: a sender and a receiver that do what those of Linux do, over whatever carries their
//! packets ([`crate::network`]).
//!
//! What a tunnel makes of TCP depends on how losses are found and repaired, so a connection here has all
//! that Linux has of it by default: selective acknowledgements with duplicates told (RFC 2018, 2883), RACK
//! and tail loss probes (RFC 8985), proportional rate reduction (RFC 6937), timeouts with their undoing by
//! timestamps, duplicates and F-RTO (RFC 6298, 3522, 3708, 5682), CUBIC with HyStart (RFC 9438), delayed
//! and held-back acknowledgements, and windows that follow the path. No crate has that: `smoltcp`, the one
//! that is well kept, knows neither selective acknowledgements in its sender nor RACK, and would repair one
//! loss a round trip. `docs/SIMULATION.md` says what is left out and how far it is from the kernel.
//!
//! | file | its one idea |
//! | --- | --- |
//! | `flow` | one connection with its application, as it is measured |
//! | `together` | several at once |
//! | `endpoint` | one end: handshake, numbers on the wire |
//! | `segment` | one packet |
//! | `sender` | what is sent when, and again |
//! | `receiver` | what came, when to say so, how much may come |
//! | `scoreboard`, `rack`, `rtt`, `cubic`, `hystart` | what the sender knows |

mod cubic;
mod endpoint;
mod flow;
mod hystart;
mod rack;
mod receiver;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod together;

use std::time::Duration;

use ropewalk_proto::time::Instant;

pub use flow::{Delivered, Load, Sample, TcpFlow};
pub(crate) use segment::read;
pub use sender::SenderStats;
pub use together::Together;

/// The kernel's clock ticks this often (`CONFIG_HZ=250`, as common distributions have it); its timers go off
/// at a tick.
const TICK: Duration = Duration::from_millis(4);
/// The least that a timer for segments under way is given beyond the round trip.
const TIMEOUT_MARGIN: Duration = Duration::from_millis(2);

/// The tick at which a timer goes off that is set to `time` at `now`.
fn after(now: Instant, time: Duration) -> Instant {
    let tick = TICK.as_nanos();
    let ticks = now.since(Instant::ZERO).as_nanos() / tick + time.as_nanos().div_ceil(tick).max(1);
    Instant::from_nanos(u64::try_from(ticks * tick).unwrap_or(u64::MAX))
}

/// The clock of timestamps, in milliseconds; never zero.
fn clock(now: Instant) -> u32 {
    u32::try_from(now.as_micros() / 1000).unwrap_or(u32::MAX - 1) + 1
}

/// The number of the connection that a packet belongs to; `None` if it is none's.
#[must_use]
pub fn flow_of(packet: &[u8]) -> Option<u16> {
    read(packet).map(|(flow, _)| flow)
}

#[cfg(test)]
mod tests;
