//! An emulated network for Ropewalk's tests and benchmarks, in virtual and in real time.

pub mod address;
pub mod error;
pub mod loss;
pub mod namespace;
pub mod netem;
pub mod privilege;
pub mod queue;
pub mod router;
pub mod tool;
pub mod topology;
pub mod trace;
