//! The drivers on a real kernel: each test in a network namespace of its own, that is gone with the
//! thread it was made in.

#![expect(clippy::panic, reason = "helpers of tests fail like tests")]

mod event_loop;
mod inherited;
mod namespace;
mod prepared;
mod queues;
mod sockets;
mod steering;
mod tun;
