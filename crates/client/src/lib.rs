//! The Ropewalk client daemon.
//!
//! | part | its one concern |
//! | --- | --- |
//! | [`config`] | what `client.toml` means |
//! | [`joining`], [`rejoining`] | the config that `ropewalk join` writes, the first time and later |
//! | `service` | the daemon from start to clean end |
//! | `daemon` | the role in the event loop: commands in, events out |
//! | `links` | which interfaces are links now; their sockets |
//! | `others` | what others send and receive on the links' interfaces |
//! | `allowance`, `counters` | what links carried of their monthly allowance; the file of it |
//! | `speed_test` | how fast the links are, one after the other and together |
//! | `captive` | whether a network wants a sign-in first |
//! | `udp_again` | whether UDP is answered again on a link that goes over TLS |
//! | [`probe`] | what `ropewalk doctor` tries without a daemon |
//! | `network` | keeps the host's network as the daemon wants it, beside the loop |
//! | [`host`], [`interfaces`], [`routes`] | what that means on this system |
//! | [`split`] | what goes through the tunnel by program, user and domain |
//! | [`near`] | which routes of the host win over the tunnel |
//! | [`names`] | which name servers this machine asks while the tunnel is up |
//! | [`lock`], [`share`] | the kill switch; the tunnel for hosts behind this one |
//! | [`household`] | what these are handed out: addresses, names, IPv6 |
//! | [`devices`] | what each of them has carried, and may have |
//! | [`unsolicited`] | what may come out of the tunnel, and to its addresses |
//! | `proxies` | the proxies of the fleet, as they were told last: the file of it |
//! | `resolve` | where the proxy is, asked outside the tunnel |
//! | `status` | the status document |
//! | `core` | what the config means to the protocol core |
//!
//! What the proxy does alike stands in [`ropewalk_daemon`].

pub mod config;
#[cfg(target_os = "linux")]
pub mod devices;
pub mod host;
#[cfg(target_os = "linux")]
pub mod household;
#[cfg(target_os = "linux")]
pub mod interfaces;
pub mod joining;
#[cfg(target_os = "linux")]
pub mod lock;
#[cfg(target_os = "linux")]
pub mod names;
#[cfg(target_os = "linux")]
pub mod near;
#[cfg(target_os = "linux")]
pub mod probe;
pub mod rejoining;
#[cfg(target_os = "linux")]
pub mod routes;
#[cfg(target_os = "linux")]
pub mod share;
#[cfg(target_os = "linux")]
pub mod split;
#[cfg(target_os = "linux")]
pub mod unsolicited;

#[cfg(target_os = "linux")]
mod allowance;
#[cfg(target_os = "linux")]
mod captive;
#[cfg(target_os = "linux")]
mod core;
#[cfg(target_os = "linux")]
mod counters;
#[cfg(target_os = "linux")]
mod daemon;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod others;
#[cfg(target_os = "linux")]
mod proxies;
#[cfg(target_os = "linux")]
mod resolve;
#[cfg(target_os = "linux")]
mod service;
#[cfg(target_os = "linux")]
mod speed_test;
#[cfg(target_os = "linux")]
mod status;
#[cfg(target_os = "linux")]
mod udp_again;

use std::path::{Path, PathBuf};

pub use config::Config;

/// By what a client that has ended is found again, beside the numbers that are always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// The TUN's name.
    pub tun: String,
    /// Where it kept what survives it.
    pub state_dir: PathBuf,
}

impl Traces {
    /// Of a client with this config.
    #[must_use]
    pub fn by(config: &Config) -> Self {
        Self { tun: config.tun.name.to_string(), state_dir: config.state_dir.clone() }
    }
}

impl Default for Traces {
    /// Of a client whose config says nothing else.
    fn default() -> Self {
        Self { tun: config::TUN_NAME.to_owned(), state_dir: config::STATE_DIR.into() }
    }
}

/// Runs the daemon until it is told to stop (SIGTERM, SIGINT), and takes everything back then; with SIGUSR1, which says that
/// another start follows, all but the kill switch. `file` is where the config
/// stands, to be read again when somebody asks (SIGHUP where there is no
/// terminal, `ropewalk reload`).
///
/// # Errors
/// What keeps it from starting (another client in this network namespace, the TUN's name is taken, a
/// capability is missing), or what ends it early (the TUN cannot be made again). What it had changed is taken back
/// then too. Trouble with a link or with reaching the proxy is no error: it is told by the status and
/// tried again.
#[cfg(target_os = "linux")]
pub fn run(config: Config, file: &Path) -> anyhow::Result<()> {
    service::run(config, file)
}

/// Sets the kill switch where the config in `file`, which cannot be used, asks for it, and returns whether it does.
///
/// # Errors
/// A client runs, or the system refuses.
#[cfg(target_os = "linux")]
pub fn lock_without_config(file: &Path) -> anyhow::Result<bool> {
    service::lock_without_config(file)
}

/// Takes everything back that a client has changed on this host and that did not end with it: after a crash, its kill
/// switch too.
///
/// # Errors
/// A client runs, or the system refuses: all that could not be taken back. The rest is.
#[cfg(target_os = "linux")]
pub fn purge(left: &Traces) -> anyhow::Result<()> {
    service::purge(left)
}

/// Writes `/etc/resolv.conf` for the client at the other end of this connection, as [`names`] says, until it ends.
///
/// # Errors
/// What stood in the file before cannot be put back; the client asked for what is not to be had.
#[cfg(target_os = "linux")]
pub fn help_with_names(client: std::os::unix::net::UnixStream) -> anyhow::Result<()> {
    service::help_with_names(client)
}

/// Hands out addresses for the client at the other end of this connection, as [`household`] says, until it ends. `folder` is that
/// of its files.
///
/// # Errors
/// The folder is another one, or cannot be had; the client asked for what is not understood.
#[cfg(target_os = "linux")]
pub fn help_with_lans(
    client: std::os::unix::net::UnixStream,
    folder: &Path,
    sandbox: ropewalk_settings::Sandbox,
) -> anyhow::Result<()> {
    service::help_with_lans(client, folder, sandbox)
}

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Always: this system is not supported yet.
#[cfg(not(target_os = "linux"))]
pub fn run(config: Config, file: &Path) -> anyhow::Result<()> {
    drop((config, file));
    anyhow::bail!("the client runs on Linux only, so far")
}

/// Sets the kill switch.
///
/// # Errors
/// Always: this system is not supported yet.
#[cfg(not(target_os = "linux"))]
pub fn lock_without_config(_file: &Path) -> anyhow::Result<bool> {
    anyhow::bail!("the client runs on Linux only, so far")
}

/// Takes everything back that a client has changed.
///
/// # Errors
/// Always: this system is not supported yet.
#[cfg(not(target_os = "linux"))]
pub fn purge(_left: &Traces) -> anyhow::Result<()> {
    anyhow::bail!("the client runs on Linux only, so far")
}
