//! The Ropewalk proxy daemon: the end of all tunnels, and their way to the Internet.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`config`] | `proxy.toml`, and what it means |
//! | [`pool`], [`leases`] | inner addresses, and whose they are across restarts |
//! | [`overlap`] | whether they are others' already |
//! | [`registry`] | who may come in and whose addresses are whose, whatever keeps it |
//! | [`inviting`], [`invitation_check`] | who joins by an invitation; [`offline`]: the same while no proxy runs |
//! | [`fleet`] | what `ropewalk fleet` shows and changes |
//! | [`first_start`] | keys and a config, where there are none |
//! | [`core`] | the config in the words of the protocol core |
//! | [`worker`] | what each worker owns: one core of the processor, one part of the clients |
//! | [`daemon`] | the coordinator's role in its event loop: a worker that has the books, too |
//! | [`worker_thread`], [`worker_group`] | the other workers' role and threads; the coordinator's hold on them |
//! | [`resources`] | what each worker is given: its sockets, its queue of the TUN |
//! | [`handover`] | packets and first messages that are another worker's |
//! | [`peers`], [`status`] | what `ropewalk status` shows |
//! | `tls` | links over TLS, where the config takes them |
//! | [`host`], [`guard`] | what is changed of the host's network |
//! | [`firewall`], [`nat`] | its firewall table; [`allow`], [`closed`]: what clients may reach, and what not |
//! | [`forward`] | ports of the host that lead to clients |
//! | [`network`] | the task that keeps it so |
//! | [`run`](mod@run) | start and end |
//!
//! What the client does alike stands in [`ropewalk_daemon`].

pub mod allow;
pub mod closed;
pub mod config;
pub mod core;
pub mod daemon;
#[cfg(target_os = "linux")]
pub mod firewall;
pub mod first_start;
pub mod fleet;
pub mod forward;
#[cfg(target_os = "linux")]
pub mod guard;
pub mod handover;
pub mod host;
pub mod invitation_check;
pub mod inviting;
pub mod leases;
#[cfg(target_os = "linux")]
pub mod nat;
#[cfg(target_os = "linux")]
pub mod network;
pub mod offline;
#[cfg(target_os = "linux")]
pub mod overlap;
pub mod peers;
pub mod pool;
#[cfg(target_os = "linux")]
pub mod port;
pub mod registry;
#[cfg(target_os = "linux")]
pub mod resources;
#[cfg(target_os = "linux")]
pub mod run;
pub mod status;
#[cfg(target_os = "linux")]
mod tls;
pub mod worker;
pub mod worker_group;
pub mod worker_thread;

pub use config::Config;
#[cfg(target_os = "linux")]
pub use run::{purge, run};
