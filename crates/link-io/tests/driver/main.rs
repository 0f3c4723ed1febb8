//! The drivers on a real kernel: each test in a network namespace of its own, that is gone with the
//! thread it was made in. Without root the tests that need one say so and pass.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests fail and talk like tests"
)]

mod event_loop;
mod namespace;
mod sockets;
mod tun;
