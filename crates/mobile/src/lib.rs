//! A Ropewalk client as a library, for apps that may not change the host's network: those of Android, whose `VpnService`
//! opens the TUN, sets addresses and routes, and binds sockets to networks.
//!
//! `include/ropewalk.h` is the C interface, and says of each call what it does; `docs/PHONE.md` says what an app has to do,
//! call by call. Rust programs use [`Tunnel`], which is the same without pointers.
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`c`] | the C interface: from pointers to values and back; all `unsafe` of this crate |
//! | [`Tunnel`] | a tunnel as its owner has it: one thread, and calls from any other |
//! | `phone` | the role in the event loop: what the app says goes in, events go out |
//! | `phone::events` | what follows from the events of the core |
//! | `phone::networks` | the networks, and their sockets |
//! | `phone::tls`, `phone::udp_again` | which networks go over TLS; whether UDP is answered again there |
//! | `phone::inner` | what the TUN is to be |
//! | `phone::status` | the status document |
//! | [`Config`], [`Network`] | what the app says, as JSON |
//! | `event` | what the app is told, as JSON |
//! | `log` | the log, as events |
//! | [`Error`] | why a call failed |
//!
//! There is no global state: two tunnels in one process know nothing of each other. What is beneath (the core, the event
//! loop, sockets in batches) is what the daemons run.

pub mod c;
mod config;
mod error;
mod event;
mod log;
mod network;
mod phone;
mod tunnel;

use std::io;
use std::os::fd::BorrowedFd;

pub use config::{Config, LogLevel, ProxyConfig, config_of_invitation};
pub use error::{Code, Error};
pub use network::Network;
pub use tunnel::{Options, Tunnel};

/// What the app does for its tunnel. Both are called on the tunnel's own thread, and packets wait meanwhile: they must
/// return soon.
pub trait App: Send + Sync {
    /// Binds a socket to the network of this number, before anything is sent on it. The socket is the library's: it is
    /// neither kept nor closed.
    ///
    /// # Errors
    /// It could not be bound; the network is not used then, and tried again after a while.
    fn bind_socket(&self, socket: BorrowedFd<'_>, network: u64) -> io::Result<()>;

    /// Something happened: one JSON object, as `docs/PHONE.md` lists them.
    fn on_event(&self, event: &str);
}
