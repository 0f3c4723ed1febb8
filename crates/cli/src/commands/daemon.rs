//! `ropewalk client` and `ropewalk proxy`: read the config, check the capabilities, run the daemon; or
//! remove what one left.

use std::path::Path;

use ropewalk_client::Traces;
use ropewalk_control::api::Role;
use ropewalk_control::config::ConfigFile as _;
use ropewalk_control::{CLIENT_CONFIG, PROXY_CONFIG, config_folder};
use ropewalk_daemon::secrecy;
use ropewalk_doctor::privilege::{CLIENT, PURGE, proxy as needed_by_proxy};
use ropewalk_proxy::config::STATE_DIR;
use ropewalk_proxy::first_start::{self, Made};

use crate::args;
use crate::exit::Failure;
use crate::privilege;

/// Runs the client daemon.
pub(crate) fn client(config: &Path) -> Result<(), Failure> {
    refuse_former(Role::Client, config)?;
    if config == Path::new(CLIENT_CONFIG) && matches!(config.try_exists(), Ok(false)) {
        return Err(Failure::Usage(format!(
            "there is no config {CLIENT_CONFIG} yet: join a proxy with `ropewalk join`, or name another with --config"
        )));
    }
    let file = config;
    secrecy::forbid_dumps();
    let config = match ropewalk_client::Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            if let Err(error) = ropewalk_client::lock_without_config(file) {
                tracing::error!("the config asks for a kill switch, and it is not set: {error:#}");
            }
            return Err(error.into());
        }
    };
    secrecy::lock_memory();
    privilege::require("client", CLIENT)?;
    Ok(ropewalk_client::run(config, file)?)
}

/// Runs the proxy daemon; the first time with a key and a config that are made here.
pub(crate) fn proxy(proxy: &args::Proxy) -> Result<(), Failure> {
    let config = proxy.config.as_path();
    refuse_former(Role::Proxy, config)?;
    secrecy::forbid_dumps();
    let may_make = proxy.init || config == Path::new(PROXY_CONFIG);
    if !may_make && matches!(config.try_exists(), Ok(false)) {
        let shown = config.display();
        return Err(Failure::Usage(format!(
            "there is no config {shown}: is the name right? `ropewalk proxy --init --config {shown}` makes it, with a new key"
        )));
    }
    if let Some(made) = first_start::make(config)? {
        let Made { config, key_file, key_was_there, public_key } = made;
        let kept = if key_was_there { "was there and is kept" } else { "is new" };
        tracing::info!("first start: the config {} is new, with defaults", config.display());
        tracing::info!(
            "first start: the key {} {kept}; its public key is {public_key}",
            key_file.display()
        );
        tracing::info!("first start: next, invite a client with `ropewalk peer add NAME`");
    }
    let file = config;
    let config = ropewalk_proxy::Config::load(file)?;
    secrecy::lock_memory();
    privilege::require("proxy", needed_by_proxy(config.lowest_port()))?;
    Ok(ropewalk_proxy::run(config, file, proxy.drop_leases)?)
}

/// Older versions had one folder for both daemons, `/etc/ropewalk`. The package moves what is there; elsewhere it must not be taken for
/// a first start, whose new key no client knows.
pub(crate) fn refuse_former(role: Role, config: &Path) -> Result<(), Failure> {
    let folder = Path::new(config_folder(role));
    let is_missing = || matches!(config.try_exists(), Ok(false));
    let (Ok(name), true) = (config.strip_prefix(folder), is_missing()) else { return Ok(()) };
    let Some(parent) = folder.parent() else { return Ok(()) };
    let former = parent.join(name);
    if matches!(former.try_exists(), Ok(false)) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "the config is where older versions had it: move {} and the files that it names to {}, or say --config {0}",
        former.display(),
        folder.display()
    )))
}

/// Removes what a crashed client has left on this machine. A config that is gone, or wrong by now, does not keep the kill
/// switch in place: then it is what a client with the defaults leaves.
pub(crate) fn purge_client(config: &Path) -> Result<(), Failure> {
    let traces = match ropewalk_client::Config::load(config) {
        Ok(config) => Traces::by(&config),
        Err(error) => {
            let traces = Traces::default();
            tracing::warn!(
                "{error}; what a client with the defaults leaves is removed (state_dir = \"{}\"): with another state_dir look \
                 into /etc/resolv.conf",
                traces.state_dir.display()
            );
            traces
        }
    };
    privilege::require("client --purge", CLIENT)?;
    Ok(ropewalk_client::purge(&traces)?)
}

/// Removes what a proxy has set up on this machine. A config that is gone, or wrong by now, says only where the file is that
/// remembers settings beside the firewall table.
pub(crate) fn purge_proxy(config: &Path) -> Result<(), Failure> {
    let state_dir = match ropewalk_proxy::Config::load(config) {
        Ok(config) => config.state_dir,
        Err(error) => {
            tracing::warn!("{error}; so what was switched is looked up in {STATE_DIR}");
            STATE_DIR.into()
        }
    };
    privilege::require("proxy --purge", PURGE)?;
    Ok(ropewalk_proxy::purge(&state_dir)?)
}
