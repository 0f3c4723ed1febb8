//! Every subcommand and flag, with the help that `--help` shows; nothing else.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ropewalk_control::config::scheduler::{
    Cost, Count, Direction, Formula, Importance, Preference, Rate, Scheduler, Weights, WhenFull,
};
use ropewalk_control::config::value::Text as _;
use serde::de::value::Error as ConfigNameError;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

/// One tunnel over all your links: a client bonds them, a proxy on a server unbundles them.
#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    after_long_help = "\
EXAMPLES
  On the server:
    sudo ropewalk keygen /etc/ropewalk/proxy.key       prints the proxy's public key
    sudo ropewalk check-config /etc/ropewalk/proxy.toml
    sudo ropewalk proxy --config /etc/ropewalk/proxy.toml
  On the laptop:
    sudo ropewalk keygen /etc/ropewalk/client.key      prints the client's public key
    sudo ropewalk client --config /etc/ropewalk/client.toml
    sudo ropewalk status                               each link, and what it carries

EXIT CODES
  0  it worked
  1  it failed
  2  wrong use, or an error in a config file
  3  no daemon answers
  4  no permission, or a missing capability"
)]
pub(crate) struct Arguments {
    /// What to log to standard error: error, warn, info, debug, trace, or a filter such as
    /// `info,ropewalk_proto=trace`
    #[arg(
        long,
        global = true,
        env = "ROPEWALK_LOG",
        default_value = "info",
        value_name = "LEVEL",
        help_heading = "Logging"
    )]
    pub(crate) log: String,

    /// How log lines look
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT", help_heading = "Logging")]
    pub(crate) log_format: LogFormat,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line, for programs
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the client: bond this machine's links into one tunnel
    #[command(after_long_help = "\
The client needs the capabilities CAP_NET_ADMIN and CAP_NET_RAW: run it with sudo or as the systemd unit.
Everything it sets up in the system is removed when it ends; after a crash, at its next start.

EXAMPLE
  sudo ropewalk client --config /etc/ropewalk/client.toml --log debug")]
    Client(Daemon),

    /// Run the proxy: the other end of the tunnels, and the way to the Internet
    #[command(after_long_help = "\
The proxy needs the capability CAP_NET_ADMIN: run it with sudo or as the systemd unit.
What it sets up in the system is removed when it ends, but for a guard: while no proxy runs, packets for
clients are unreachable and never leave by this machine's own routes. --purge removes that, too.

EXAMPLES
  sudo ropewalk proxy --config /etc/ropewalk/proxy.toml
  sudo ropewalk proxy --purge")]
    Proxy(Proxy),

    /// Show the tunnel and each of its links
    #[command(after_long_help = "\
Up is client to proxy, down is proxy to client, on both ends. A link's RTT, loss and window are those
seen by this end; so is what it senses of its links, for the direction in which it sends. Spending counts
from the daemon's start, at the prices that are told now.

EXAMPLES
  sudo ropewalk status
  sudo ropewalk status --json | jq '.tunnels[0].links[] | {name, state, srtt_ms}'
  sudo ropewalk status --peer laptop                  on a proxy: all about one client")]
    Status(Status),

    /// Change how a running daemon sends: its scheduler, or what is said of a link
    #[command(after_long_help = "\
Each end decides for what it sends: the client for what goes up, the proxy for what comes down. A change holds
until the daemon ends; what stands in the config file holds again at its next start. No packet is lost by it.
On a proxy it is for all clients, or with --peer for one; a later change for all is for that one, too.

EXAMPLES
  sudo ropewalk set scheduler natalie                       weighted rounds, by what others leave of each link
  sudo ropewalk set scheduler natalie --weights told
  sudo ropewalk set link wlan0 --weight 3
  sudo ropewalk set scheduler batcp
  sudo ropewalk set link lte0 --use when-needed --cost '5 EUR/GB'
  sudo ropewalk set --peer van scheduler safire             on a proxy: for one client
  sudo ropewalk set                                         show what is in force")]
    Set(Set),

    /// Show which flow is on which link, where the scheduler is safire
    #[command(after_long_help = "\
Each end has the flows that it sends. The most active come first: a flow's counter is 8 at its first packet, one
more for each, at most 64, and halved every second; at 0 the flow is over.

EXAMPLES
  sudo ropewalk set scheduler safire
  sudo ropewalk flows                                 the 20 most active, and what is known of each link
  sudo ropewalk flows --top 4096 --json | jq '.flows | group_by(.link) | map(length)'
  sudo ropewalk flows --peer laptop                   on a proxy with several clients")]
    Flows(Flows),

    /// Make a key, or print the public key of one
    #[command(after_long_help = "\
The private key goes into FILE, which only its owner can read; the public key goes to standard output
and is what the other end needs. A preshared key is the same file at both ends.

EXAMPLES
  ropewalk keygen client.key                make a key pair, print the public key
  ropewalk keygen --public < client.key     print the public key again
  ropewalk keygen --preshared laptop.psk    make a secret shared by both ends")]
    Keygen(Keygen),

    /// Check a client.toml or proxy.toml, and say what it means
    #[command(after_long_help = "\
Tells a client's file from a proxy's by its keys. An error is shown with its line, and with the name
that was probably meant. Key files named by the file are read, too.

EXAMPLE
  ropewalk check-config /etc/ropewalk/client.toml")]
    CheckConfig(CheckConfig),

    /// Print what a shell needs to complete this program's command lines
    #[command(after_long_help = "\
The packages install it for bash, zsh and fish.

EXAMPLES
  ropewalk completions bash > /etc/bash_completion.d/ropewalk
  ropewalk completions zsh > ~/.zfunc/_ropewalk             a folder named in fpath
  ropewalk completions fish > ~/.config/fish/completions/ropewalk.fish")]
    Completions(Completions),

    /// Write the manual pages, one for each subcommand
    #[command(after_long_help = "\
They say what `--help` says. The packages install them.

EXAMPLES
  ropewalk man /usr/local/share/man/man1
  ropewalk man . && man ./ropewalk-status.1")]
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The folder; it must exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// The config file; the sample in configs/ shows every key with its default
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Proxy {
    /// The config file; the sample in configs/ shows every key with its default
    #[arg(long, value_name = "FILE", required_unless_present = "purge")]
    pub(crate) config: Option<PathBuf>,

    /// Remove everything that a stopped proxy has left on this machine, and end
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print the whole status document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The daemon's control socket [default: the client's, else the proxy's, in /run/ropewalk]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Show only this peer, in full
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The daemon's control socket [default: the client's, else the proxy's, in /run/ropewalk]
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,

    /// Print what is in force then as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// On a proxy: only what is sent to this client, as `ropewalk status` names it
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) peer: Option<String>,

    #[command(subcommand)]
    pub(crate) what: Option<SetWhat>,
}

#[derive(Debug, Args)]
pub(crate) struct Flows {
    /// How many flows, the most active first
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub(crate) top: u16,

    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The daemon's control socket [default: the client's, else the proxy's, in /run/ropewalk]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// On a proxy: towards this client, as `ropewalk status` names it
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SetWhat {
    /// Which link takes the next packet
    Scheduler(SetScheduler),

    /// What is said of one link
    Link(SetLink),
}

#[derive(Debug, Args)]
pub(crate) struct SetScheduler {
    /// free-window, round-robin, natalie, batcp or safire
    #[arg(value_name = "NAME", value_parser = choice::<Scheduler>)]
    pub(crate) name: Scheduler,

    /// natalie: weights from what others leave of each link (auto), or as told (told)
    #[arg(long, value_name = "FROM", value_parser = choice::<Weights>)]
    pub(crate) weights: Option<Weights>,

    /// natalie: shares of packets or of bytes
    #[arg(long, value_name = "WHAT", value_parser = choice::<Count>)]
    pub(crate) count: Option<Count>,

    /// natalie and batcp: pass (the next link takes the turn of a full one) or wait (as in the papers)
    #[arg(long, value_name = "WHAT", value_parser = choice::<WhenFull>)]
    pub(crate) when_full: Option<WhenFull>,

    /// batcp: prose (the better link carries more) or literal (the paper's formula as printed)
    #[arg(long, value_name = "READING", value_parser = choice::<Formula>)]
    pub(crate) formula: Option<Formula>,

    /// safire: the constant of its throughput formula
    #[arg(long, value_name = "NUMBER")]
    pub(crate) k: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct SetLink {
    /// The link, as `ropewalk status` names it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    /// Its share beside the others' where weights are told; 0: no packets on it
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) weight: Option<f64>,

    /// What it carries in the direction in which this end sends, such as "20 Mbit/s": no more is sent
    #[arg(long, value_name = "RATE", value_parser = Rate::from_text)]
    pub(crate) rate: Option<Rate>,

    /// What a gigabyte costs on it, such as "5 EUR/GB"
    #[arg(long, value_name = "PRICE", value_parser = Cost::from_text)]
    pub(crate) cost: Option<Cost>,

    /// batcp: first, also or when-needed
    #[arg(long = "use", value_name = "WHEN", value_parser = choice::<Preference>)]
    pub(crate) preference: Option<Preference>,

    /// batcp: what throughput and cost matter on it, in place of --use: shares of one, such as 0.1,0.9
    #[arg(long, value_name = "THROUGHPUT,COST", value_parser = importance, conflicts_with = "preference")]
    pub(crate) importance: Option<Importance>,

    /// Which way it carries packets: up, down or both
    #[arg(long, value_name = "WAY", value_parser = choice::<Direction>)]
    pub(crate) direction: Option<Direction>,
}

/// Reads two shares.
fn importance(text: &str) -> Result<Importance, String> {
    let number = |text: &str| text.trim().parse().ok();
    let both = text.split_once(',').and_then(|(a, b)| Some((number(a)?, number(b)?)));
    let (throughput, cost) = both.ok_or("write two shares of one, such as 0.1,0.9")?;
    Ok(Importance { throughput, cost })
}

/// Reads a choice by the names of the config file; an unknown one is refused with the names there are.
fn choice<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = T::deserialize(text.into_deserializer());
    read.map_err(|error: ConfigNameError| {
        ropewalk_control::config::error::explained(&error.to_string())
    })
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
    pub(crate) role: Option<Role>,
}

/// Whose config file it is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Role {
    /// A client.toml
    Client,
    /// A proxy.toml
    Proxy,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
