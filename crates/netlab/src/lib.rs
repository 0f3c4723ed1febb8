//! An emulated network for Ropewalk's tests and benchmarks, in virtual and in real time.

pub mod access;
pub mod address;
pub mod deployment;
pub mod download;
pub mod emulator;
pub mod error;
pub mod http;
pub mod lab;
pub mod loss;
pub mod namespace;
pub mod netem;
pub mod ping;
pub mod privilege;
pub mod process;
pub mod profile;
pub mod prove;
pub mod queue;
pub mod router;
pub mod scenario;
pub mod stats;
pub mod tool;
pub mod topology;
pub mod trace;
pub mod traffic;
