//! The commands that change a running daemon.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ropewalk_control::CLIENT_CONFIG;
use ropewalk_settings::{
    Bitrate, Count, DeviceSelector, Formula, Network, PortRange, Profile, SchedulerKind, Selector,
    Text, Weights, WhenFull,
};
use serde::de::value::Error as ConfigNameError;
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use super::Target;

/// Whether a change outlives the client that runs.
#[derive(Debug, Args)]
pub(crate) struct Saving {
    /// Write the change into the client's config file, too, so that it holds after a restart
    #[arg(long, global = true)]
    pub(crate) save: bool,

    /// The client's config file, for --save
    #[arg(long, value_name = "FILE", default_value = CLIENT_CONFIG, global = true)]
    pub(crate) config: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Links {
    #[command(flatten)]
    pub(crate) daemon: Target,

    /// Print the links, or what holds then, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) saving: Saving,

    #[command(subcommand)]
    pub(crate) what: Option<LinksWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LinksWhat {
    /// Use a link (again)
    Enable {
        /// The link, as `ropewalk links` names it
        #[arg(value_name = "LINK")]
        name: String,
    },

    /// Do not use a link any more
    Disable {
        /// The link, as `ropewalk links` names it
        #[arg(value_name = "LINK")]
        name: String,
    },

    /// Change settings of a link
    Set {
        /// The link, as `ropewalk links` names it
        #[arg(value_name = "LINK")]
        name: String,

        /// A key of the config's link and its value, such as use=when-needed or max_up='5 Mbit/s'; off takes it back
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = setting)]
        values: Vec<(String, String)>,
    },
}

/// Reads a key and its value.
fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE, such as use=when-needed")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct Devices {
    #[command(flatten)]
    pub(crate) daemon: Target,

    /// Print the devices, or what holds then, as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) saving: Saving,

    #[command(subcommand)]
    pub(crate) what: Option<DevicesWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DevicesWhat {
    /// Limit how much a device may have
    Limit {
        /// The device: its name, its hardware address, or one of its addresses
        #[arg(value_name = "DEVICE", value_parser = DeviceSelector::from_text)]
        device: DeviceSelector,

        /// The most that comes to it, such as '5 Mbit/s'; off: as much as there is
        #[arg(long, value_name = "RATE", required_unless_present = "up")]
        down: Option<String>,

        /// The most that it sends through the tunnel, such as '1 Mbit/s'; off: as much as there is
        #[arg(long, value_name = "RATE")]
        up: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Reload {
    /// Print what changed as JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) daemon: Target,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) daemon: Target,

    /// Print what is in force then as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// On a proxy: only what is sent to this client, as `ropewalk status` names it
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) peer: Option<String>,

    #[command(subcommand)]
    pub(crate) what: Option<SetWhat>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SetWhat {
    /// Scheduler, controller, order and acknowledgements that belong together
    Profile(SetProfile),

    /// Which link takes the next packet
    Scheduler(SetScheduler),

    /// Which packets go over two links at once, and how much that may cost
    Redundant(SetRedundant),

    /// On a client: what goes through the tunnel
    Routes(SetRoutes),

    /// On a client: what goes around the tunnel, of what would go through it
    Exclude(SetRoutes),
}

#[derive(Debug, Args)]
pub(crate) struct SetRoutes {
    /// Add these entries, such as 10.0.0.0/8,user:backup,unit:steam.service,domain:example.org
    #[arg(long, value_name = "ENTRIES", value_parser = list::<Selector>)]
    pub(crate) add: Option<List<Selector>>,

    /// Take these entries out
    #[arg(long, value_name = "ENTRIES", value_parser = list::<Selector>)]
    pub(crate) remove: Option<List<Selector>>,
}

#[derive(Debug, Args)]
pub(crate) struct SetProfile {
    /// default or paper
    #[arg(value_name = "NAME", value_parser = choice::<Profile>)]
    pub(crate) name: Profile,
}

#[derive(Debug, Args)]
pub(crate) struct SetScheduler {
    /// arrival, free-window, round-robin, natalie, batcp or safire
    #[arg(value_name = "NAME", value_parser = choice::<SchedulerKind>)]
    pub(crate) name: SchedulerKind,

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
pub(crate) struct SetRedundant {
    /// Packets that their sender marked as real time (DSCP 40 and above): yes or no
    #[arg(long, value_name = "ANSWER", value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) marked: Option<bool>,

    /// UDP and TCP packets from or to these ports, such as 5060,16384-32767; none
    #[arg(long, value_name = "PORTS", value_parser = list::<PortRange>)]
    pub(crate) ports: Option<List<PortRange>>,

    /// Packets from or to these addresses or prefixes, such as 192.0.2.7,2001:db8::/32; none
    #[arg(long, value_name = "NETWORKS", value_parser = list::<Network>)]
    pub(crate) addresses: Option<List<Network>>,

    /// The most that the copies may cost, with all headers, such as "1 Mbit/s"
    #[arg(long, value_name = "RATE", value_parser = Bitrate::from_text)]
    pub(crate) budget: Option<Bitrate>,
}

/// Values that are written with commas between them.
#[derive(Clone, Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// Reads values with commas between them, or `none`.
fn list<T: Text>(text: &str) -> Result<List<T>, String> {
    if text.trim() == "none" {
        return Ok(List(Vec::new()));
    }
    let values: Result<_, _> = text.split(',').map(|value| T::from_text(value.trim())).collect();
    values.map(List)
}

/// Reads a choice by the names of the config file; an unknown one is refused with the names there are.
fn choice<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = T::deserialize(text.into_deserializer());
    read.map_err(|error: ConfigNameError| {
        ropewalk_control::config::error::explained(&error.to_string())
    })
}
