//! What the client does to the machine it runs on, beside its links, with the real program on a real kernel: name servers,
//! the kill switch, a hotspot, what goes around the tunnel, and what a crash leaves.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod crash;
mod hotspot;
mod lock;
mod machine;
mod names;
mod split;
