//! One link of a tunnel: what is known of its two directions.
//!
//! Sending: [`sender`] gives numbers to datagrams, remembers them ([`sent`]) until a report says what
//! became of them or they count as lost (`loss`), and so feeds the round-trip time (`rtt`), the rate of
//! delivery (`delivery`) and the congestion controller, which may have its datagrams paced (`pacer`), in trains where the link is fast (`train`). What that
//! tells of the link is kept in [`sensing`], which softens the measured throughput by a Kalman filter (`kalman`).
//!
//! Receiving: [`receiver`] notes which numbers came ([`received`]), decides when the peer is told, and
//! measures how far datagrams overtake each other inside the link ([`reordering`]).

pub mod carried;
mod delivery;
mod kalman;
pub(crate) mod loss;
pub(crate) mod mtu;
mod one_way;
pub(crate) mod pacer;
pub mod received;
pub mod receiver;
pub mod reordering;
pub mod rtt;
pub mod sender;
pub mod sensing;
pub mod sent;
pub(crate) mod train;
