//! The Ropewalk client daemon.

pub mod config;
pub mod host;
#[cfg(target_os = "linux")]
pub mod interfaces;
#[cfg(target_os = "linux")]
pub mod routes;

pub use config::Config;

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// Always, in this version: the client daemon is not part of it.
pub fn run(config: Config) -> anyhow::Result<()> {
    drop(config);
    anyhow::bail!("the client daemon is not built yet")
}
