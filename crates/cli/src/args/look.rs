//! The commands that look at a running daemon, and change nothing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ropewalk_control::api::SpeedTestWish;
use ropewalk_settings::{DataSize, Text as _};

use super::{RoleArgument, Target};

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Print the whole status document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// Show only this peer, in full
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Watch {
    /// How often to look, from 100ms to 1min
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = every)]
    pub(crate) every: Duration,

    /// Print the whole status document as JSON, one a line
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// On a proxy: the links of this client
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

/// Reads how often to look: no more often than a person sees.
fn every(text: &str) -> Result<Duration, String> {
    time(text, "100ms", "1min")
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Whose [default: the client's if it runs, else the proxy's]
    #[arg(value_enum)]
    pub(crate) role: Option<RoleArgument>,

    /// How many lines
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) lines: u16,

    /// Print where the log is as JSON, without its lines
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// How long to look, from 500ms to 1h
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = look)]
    pub(crate) over: Duration,

    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// On a proxy: only about this client
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

/// Reads how long to look: long enough for some packets.
fn look(text: &str) -> Result<Duration, String> {
    time(text, "500ms", "1h")
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// How far back, from 1min to 31d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = since)]
    pub(crate) since: Duration,

    /// Only this link
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,

    /// Only what happened, and more of it
    #[arg(long)]
    pub(crate) events: bool,

    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

/// Reads how far back: what is kept at most.
fn since(text: &str) -> Result<Duration, String> {
    time(text, "1min", "31d")
}

/// Reads a time between two others.
fn time(text: &str, least: &str, most: &str) -> Result<Duration, String> {
    let read = |text| humantime::parse_duration(text).map_err(|error| error.to_string());
    let time = read(text)?;
    let sense = read(least)?..=read(most)?;
    if sense.contains(&time) {
        Ok(time)
    } else {
        Err(format!("from {least} to {most} are possible"))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Speedtest {
    /// Only this link, as `ropewalk links` names it; can be said several times [default: all]
    #[arg(long = "link", value_name = "LINK")]
    pub(crate) links: Vec<String>,

    /// How long each link is filled in each way, from 3 to 60 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(3..=60))]
    pub(crate) seconds: u16,

    /// Only what comes down; with --up both, as without either
    #[arg(long)]
    pub(crate) down: bool,

    /// Only what goes up
    #[arg(long)]
    pub(crate) up: bool,

    /// The most data that the test may use, on all links and both ways, such as '200 MB'
    #[arg(long, value_name = "DATA", value_parser = data)]
    pub(crate) max: Option<u64>,

    /// Test links on which bytes cost, too: with what is left of their allowance, or with what --max says
    #[arg(long)]
    pub(crate) metered: bool,

    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

/// Reads an amount of data with which something can be found, in bytes.
fn data(text: &str) -> Result<u64, String> {
    match DataSize::from_text(text)? {
        DataSize(bytes) if bytes < SpeedTestWish::LEAST_BYTES => {
            Err("with less than 1 MB nothing can be found".to_owned())
        }
        DataSize(bytes) => Ok(bytes),
    }
}

/// Reads how long to count: the daemon counts for five seconds after it was asked.
fn count(text: &str) -> Result<Duration, String> {
    time(text, "500ms", "4s")
}

#[derive(Debug, Args)]
pub(crate) struct Flows {
    /// How long to count what each flow sends, from 500ms to 4s; not with the scheduler safire
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = count)]
    pub(crate) over: Duration,

    /// How many flows, the most active first
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=4096))]
    pub(crate) top: u16,

    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// On a proxy: towards this client, as `ropewalk status` names it
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Forward {
    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Proxies {
    /// Print the document as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Use {
    /// The ID, region or address of proxies, as `ropewalk proxies` shows them, or `auto`
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Bugreport {
    /// Whose [default: of each daemon of which there is a config or a socket here]
    #[arg(value_enum)]
    pub(crate) role: Option<RoleArgument>,

    /// The new file to write [default: ropewalk-bugreport-TIME.md in this folder]
    #[arg(long, value_name = "FILE", conflicts_with = "stdout")]
    pub(crate) output: Option<PathBuf>,

    /// Print the report, and write no file
    #[arg(long)]
    pub(crate) stdout: bool,

    /// Write one JSON document in place of a text
    #[arg(long)]
    pub(crate) json: bool,

    /// Leave addresses of the Internet and names of hosts as they are
    #[arg(long)]
    pub(crate) show_addresses: bool,

    /// How many lines of the log
    #[arg(long, value_name = "COUNT", default_value_t = 500)]
    pub(crate) lines: u16,

    /// The config file, where it is not the usual one
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// On a proxy: only about this client
    #[arg(long, value_name = "NAME")]
    pub(crate) peer: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Notify {
    /// Show one notification, to see whether it works, and end
    #[arg(long = "try")]
    pub(crate) only_try: bool,

    /// How often to ask the client, from 100ms to 1min
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = every)]
    pub(crate) every: Duration,

    #[command(flatten)]
    pub(crate) daemon: Target,
}
