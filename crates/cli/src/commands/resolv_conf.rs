//! `ropewalk resolv-conf`: what systemd starts, as root, to write `/etc/resolv.conf` for a client that may not.

use std::io;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::exit::Failure;

/// Serves the client that is connected to standard input.
pub(crate) fn run() -> Result<(), Failure> {
    let input = io::stdin();
    if !matches!(socket_domain(&input), Ok(AddressFamily::UNIX)) {
        return Err(Failure::Usage(
            "standard input is no client: systemd starts this for each connection to ropewalk-resolv-conf.socket".to_owned(),
        ));
    }
    let client = input.as_fd().try_clone_to_owned().context("cannot use standard input")?;
    Ok(ropewalk_client::help_with_names(client.into())?)
}
