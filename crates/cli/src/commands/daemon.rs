//! `ropewalk client` and `ropewalk proxy`: read the config, check the capabilities, run the daemon; or
//! remove what a proxy left.

use std::path::Path;

use ropewalk_control::config::ConfigFile as _;

use crate::exit::Failure;
use crate::privilege;

/// Runs the client daemon.
pub(crate) fn client(config: &Path) -> Result<(), Failure> {
    let config = ropewalk_client::Config::load(config)?;
    privilege::require("client", privilege::CLIENT)?;
    Ok(ropewalk_client::run(config)?)
}

/// Runs the proxy daemon.
pub(crate) fn proxy(config: &Path) -> Result<(), Failure> {
    let config = ropewalk_proxy::Config::load(config)?;
    let ports = config.more_ports.iter().copied();
    let lowest = ports.chain([config.listen.port()]).min().unwrap_or_default();
    privilege::require("proxy", privilege::proxy(lowest))?;
    Ok(ropewalk_proxy::run(config)?)
}

/// Removes what a proxy has set up on this machine.
pub(crate) fn purge() -> Result<(), Failure> {
    privilege::require("proxy --purge", privilege::PURGE)?;
    Ok(ropewalk_proxy::purge()?)
}
