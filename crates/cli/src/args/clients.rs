//! The commands by which a proxy and its clients come to know each other.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ropewalk_control::CLIENT_CONFIG;
use ropewalk_settings::{NamePattern, Text as _};

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// The invitation that `ropewalk peer add` printed; - reads it from standard input [default: -]
    #[arg(value_name = "LINE", num_args = 0..)]
    pub(crate) line: Vec<String>,

    /// The config file to write; key and invitation are put beside it
    #[arg(long, value_name = "FILE", default_value = CLIENT_CONFIG)]
    pub(crate) config: PathBuf,

    /// An interface to use as a link, or a pattern such as "wlan*"; can be repeated [default: each one with a default
    /// route, now and later]
    #[arg(long, value_name = "INTERFACE", value_parser = NamePattern::from_text)]
    pub(crate) link: Vec<NamePattern>,

    /// Replace an existing config and key; the old ones are kept as FILE.old, and all but the proxy is taken over
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Peer {
    /// The proxy's control socket [default: that of --config, else /run/ropewalk/proxy/proxy.sock]
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,

    /// The proxy's config file, for when it does not run [default: /etc/ropewalk/proxy/proxy.toml]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print what was done as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) what: PeerWhat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeerWhat {
    /// Invite a client: prints one line for `ropewalk join`, and a QR code
    Add(Invite),

    /// Who may connect, when they were last heard of, and who is invited
    List,

    /// Take a client out: its session ends and its key is refused from now on
    Remove {
        /// The client, as `ropewalk peer list` names it
        #[arg(value_name = "NAME")]
        name: String,
    },

    /// Give a client no session until `enable`: the one that it has ends, and it is told why; key and addresses stay
    Disable {
        /// The client, as `ropewalk peer list` names it
        #[arg(value_name = "NAME")]
        name: String,
    },

    /// Let a client in again that was disabled
    Enable {
        /// The client
        #[arg(value_name = "NAME")]
        name: String,
    },

    /// Invite a client again, for a new key; the old one works until the new one is there, then it is refused
    Rotate(Invite),
}

#[derive(Debug, Args)]
pub(crate) struct Fleet {
    /// The config file of a proxy of the fleet [default: /etc/ropewalk/proxy/proxy.toml]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// Print it as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) what: Option<FleetWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetWhat {
    /// Let a proxy take no new sessions, until `undrain`; also across its restarts
    Drain {
        /// The proxy, as `ropewalk fleet` names it
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Let a proxy take new sessions again
    Undrain {
        /// The proxy
        #[arg(value_name = "ID")]
        id: String,
    },

    /// Bring the clients of this proxy's own files into the registry; what is there stays, so it can be done again
    Import,

    /// Write the clients of the registry into this proxy's own files, for a proxy that is in no fleet any more
    Export {
        /// Also where files are there already; they stay, with the ending `.before`
        #[arg(long)]
        replace: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Invite {
    /// How the client is called in `status` and in logs
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// How long the invitation holds, such as 10m or 2days
    #[arg(long, value_name = "TIME", default_value = "1day", value_parser = humantime::parse_duration)]
    pub(crate) expires: Duration,

    /// Where the client finds this proxy, if otherwise than the config or this host says; can be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) address: Vec<String>,

    /// Draw the QR code wherever standard error goes [default: only on a terminal]
    #[arg(long)]
    pub(crate) qr: bool,
}
