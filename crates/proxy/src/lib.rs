//! The Ropewalk proxy daemon.

pub mod config;
pub mod leases;
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
