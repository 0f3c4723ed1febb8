//! One link of a tunnel: what is known of its two directions.
//!
//! Receiving: [`receiver`] notes which numbers came ([`received`]), decides when the peer is told, and
//! measures how far datagrams overtake each other inside the link ([`reordering`]).

pub mod received;
pub mod receiver;
pub mod reordering;
pub mod rtt;
