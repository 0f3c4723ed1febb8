//! The Ropewalk tunnel protocol: pure state machines without I/O, clock, threads or async.

pub mod congestion;
pub mod crypto;
pub mod ecn;
pub mod error;
pub mod link;
pub mod packet;
pub mod path;
pub mod reseq;
pub mod sink;
pub mod time;
pub mod units;
pub mod wire;
