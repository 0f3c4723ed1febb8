//! Sessions from the first message to the goodbye: a client and a proxy, or many, over a small network in
//! virtual time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "a failing seed is printed to be run again")]

mod close;
mod flood;
mod handshake;
mod hostile;
mod invited;
mod local_ack;
mod many;
mod opening;
mod pair;
mod restart;
mod shared;
mod speed_tests;
