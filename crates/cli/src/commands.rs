//! What each subcommand does.

pub(crate) mod ask;
pub(crate) mod check_config;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod fleet;
pub(crate) mod flows;
pub(crate) mod join;
pub(crate) mod keygen;
pub(crate) mod links;
pub(crate) mod logs;
pub(crate) mod man;
pub(crate) mod peer;
pub(crate) mod proxies;
pub(crate) mod reference;
pub(crate) mod reload;
pub(crate) mod resolv_conf;
pub(crate) mod set;
pub(crate) mod speedtest;
pub(crate) mod status;
pub(crate) mod watch;
pub(crate) mod why;
