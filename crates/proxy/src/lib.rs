//! The Ropewalk proxy daemon.

pub mod config;
#[cfg(target_os = "linux")]
pub mod guard;
pub mod host;
pub mod leases;
#[cfg(target_os = "linux")]
pub mod nat;
pub mod pool;

pub use config::Config;

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Always, in this version: the proxy daemon is not part of it.
pub fn run(config: Config) -> anyhow::Result<()> {
    drop(config);
    anyhow::bail!("the proxy daemon is not built yet")
}
