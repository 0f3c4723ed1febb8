//! The commands that need no running daemon: they run one, or read and write files.

use std::path::PathBuf;

use clap::Args;
use ropewalk_control::{CLIENT_CONFIG, PROXY_CONFIG};

use super::RoleArgument;

#[derive(Debug, Args)]
pub(crate) struct Client {
    /// The config file, as `ropewalk join` writes it; the sample in configs/ shows every key with its default
    #[arg(long, value_name = "FILE", default_value = CLIENT_CONFIG)]
    pub(crate) config: PathBuf,

    /// Remove everything that a crashed client has left on this machine, its kill switch too, and end
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// The config file; the sample in configs/ shows every key with its default
    #[arg(long, value_name = "FILE", default_value = PROXY_CONFIG)]
    pub(crate) config: PathBuf,

    /// Make the config, and a key beside it, if there is none: without it only the default file is made
    #[arg(long, conflicts_with = "purge")]
    pub(crate) init: bool,

    /// Drop the addresses that clients have outside a changed pool: they get other ones
    #[arg(long, conflicts_with = "purge")]
    pub(crate) drop_leases: bool,

    /// Remove everything that a stopped proxy has left on this machine, and end
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// The config file [default: client/client.toml and proxy/proxy.toml in /etc/ropewalk, what is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Whose file it is, where its keys do not tell
    #[arg(long, value_enum)]
    pub(crate) role: Option<RoleArgument>,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Fix what can be fixed: each change is shown and asked for, and an edited file is kept as it was
    #[arg(long, conflicts_with = "json")]
    pub(crate) fix: bool,

    /// With --fix: do not ask
    #[arg(long, requires = "fix")]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Keygen {
    /// Where the secret is written; an existing file is not touched
    #[arg(value_name = "FILE", required_unless_present = "public")]
    pub(crate) file: Option<PathBuf>,

    /// Read a private key from standard input and print its public key
    #[arg(long, conflicts_with_all = ["file", "preshared", "force"])]
    pub(crate) public: bool,

    /// Make a preshared key instead of a key pair
    #[arg(long)]
    pub(crate) preshared: bool,

    /// Replace an existing file: the old key is lost
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// The file to check
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Whose file it is, where its keys do not tell
    #[arg(long, value_enum)]
    pub(crate) role: Option<RoleArgument>,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Complete {
    /// The words behind `ropewalk`, up to the one at the cursor
    #[arg(value_name = "WORD", last = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder; it must exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// The folder; it must exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct LanServers {
    /// The folder for its files, which the client names
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,

    /// Close no files to itself
    #[arg(long)]
    pub(crate) no_sandbox: bool,
}
