//! `ropewalk lan-servers`: what the client starts, before it enters its sandbox, to run `dnsmasq` for the devices behind it.

use std::io;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use ropewalk_settings::Sandbox;
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::args::LanServers;
use crate::exit::Failure;

/// Serves the client that is connected to standard input.
pub(crate) fn run(wanted: &LanServers) -> Result<(), Failure> {
    let input = io::stdin();
    if !matches!(socket_domain(&input), Ok(AddressFamily::UNIX)) {
        return Err(Failure::Usage(
            "standard input is no client: a client that shares its tunnel starts this".to_owned(),
        ));
    }
    let client = input.as_fd().try_clone_to_owned().context("cannot use standard input")?;
    let sandbox = Sandbox(!wanted.no_sandbox);
    Ok(ropewalk_client::help_with_lans(client.into(), &wanted.folder, sandbox)?)
}
