//! What each subcommand does.

pub(crate) mod check_config;
pub(crate) mod daemon;
pub(crate) mod keygen;
pub(crate) mod status;
