//! Every flag and subcommand, nothing else.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use humantime::Duration;
use ropewalk_netlab::generate::Kind;

/// The emulated network of Ropewalk's tests, by hand.
#[derive(Parser, Debug)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Serve pseudo-random bodies (GET /BYTES/SEED) and take uploads.
    HttpServer {
        /// Address and port.
        listen: SocketAddr,
        /// TCP congestion control of every connection.
        #[arg(long, default_value = "cubic")]
        congestion: String,
    },
    /// Send UDP packets at a constant rate; to where a hello comes from, unless told where.
    UdpSend {
        /// Where to.
        #[arg(long)]
        to: Option<SocketAddr>,
        /// Own address and port.
        #[arg(long)]
        listen: Option<SocketAddr>,
        /// Bits of payload per second.
        #[arg(long, default_value_t = 1_000_000)]
        rate: u64,
        /// Bytes of payload in a packet.
        #[arg(long, default_value_t = 1200)]
        size: usize,
        /// How long.
        #[arg(long, default_value = "10s")]
        duration: Duration,
    },
    /// Receive such a stream and count.
    UdpReceive {
        /// Own address and port.
        #[arg(long)]
        listen: Option<SocketAddr>,
        /// Ask the sender there for its stream.
        #[arg(long)]
        hello_to: Option<SocketAddr>,
        /// The stream is over when nothing came for this long.
        #[arg(long, default_value = "3s")]
        quiet: Duration,
        /// The longest time in all.
        #[arg(long, default_value = "60s")]
        limit: Duration,
    },
    /// ICMP echoes with the spread of their round trips.
    Ping {
        /// Whom.
        target: IpAddr,
        /// Out of which interface.
        #[arg(long)]
        interface: Option<String>,
        /// How many.
        #[arg(long, default_value_t = 10)]
        count: u32,
        /// From one to the next.
        #[arg(long, default_value = "100ms")]
        interval: Duration,
    },
    /// Build the emulated Internet and a shell in its client; leaving the shell takes it down.
    Topology(TopologyArgs),
    /// Download over two unequal links behind NAT with the real program, and print what came of it.
    Demo(DemoArgs),
    /// Run a scenario file on this machine's kernel with the real daemons, or in virtual time.
    Scenario(ScenarioArgs),
    /// Download over bare links and through the tunnel in virtual time, and on the kernel beside it.
    Tcp(TcpArgs),
    /// Run acceptance on this machine's kernel with the real daemons: all proofs, or those named.
    Prove(ProveArgs),
    /// Do to a tunnel in use what machines and networks do to it, and see whether all is well again after each.
    #[command(long_about = CHAOS, after_long_help = CHAOS_EXAMPLES)]
    Chaos(ChaosArgs),
    /// Generate a link whose rate varies as that of a radio link, and say what it is like.
    Generate(GenerateArgs),
    /// Build the emulated Internet, use it, take it down; says whether this machine can.
    Selftest,
}

#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The `ropewalk` to run; the one beside this program unless given.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ProveArgs {
    /// Which; all unless given.
    pub(crate) names: Vec<String>,
    /// Only print the names, what each shows and how long it takes.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print one JSON object after each.
    #[arg(long)]
    pub(crate) json: bool,
    /// A few seconds each, as the tests do.
    #[arg(long)]
    pub(crate) short: bool,
    /// How often a proof is repeated that is about every run of several.
    #[arg(long)]
    pub(crate) runs: Option<u32>,
    /// The `ropewalk` to run; the one beside this program unless given.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
}

const CHAOS: &str = "\
Do to a tunnel in use what machines and networks do to it, and see whether all is well again after each.

A client with three links behind NAT, a proxy that it knows by its name, and a server are set up in network namespaces. While a \
download (every byte is checked) and a call run through the tunnel, upheavals happen at random moments, every fourth time several \
at once: daemons are killed or paused, interfaces, addresses, routes, firewall tables and TUNs taken away, disks filled, links cut.

Behind each is a calm of at least 5 s, in which the download and the call go on, both hosts' networks are as before, line by \
line, memory is back, and no daemon wrote an error. At the end both are stopped, and nothing of them is left.

The last lines are a table: how often each upheaval was done alone and beside others, how long it took until packets came \
again and until everything was as before, and how often something was not as it must be. The exit code is 0 only if that \
is never.";

const CHAOS_EXAMPLES: &str = "\
Examples:
  rw-netlab chaos --list                       the upheavals, and what each may cost
  rw-netlab chaos                              three minutes, with a new seed, which is printed
  rw-netlab chaos --seed 7 --seconds 600       the same upheavals again
  rw-netlab chaos --only tun-client --only cut these alone
  rw-netlab chaos --seconds 7200 --json        a night run; the last line is one JSON object";

#[derive(clap::Args, Debug)]
pub(crate) struct ChaosArgs {
    /// Draws the upheavals; a new one, which is printed, unless given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How long upheavals happen; the last calm, start and end come on top.
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) seconds: u64,
    /// Only upheavals of this kind; may be given several times.
    #[arg(long, value_name = "UPHEAVAL")]
    pub(crate) only: Vec<String>,
    /// How many times as long as on a machine that does nothing else it may take until all is as before.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) slack: u32,
    /// Only print the upheavals, and what each may cost.
    #[arg(long)]
    pub(crate) list: bool,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The `ropewalk` to run; the one beside this program unless given.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ScenarioArgs {
    /// Such as those of `crates/netlab/scenarios`.
    pub(crate) file: PathBuf,
    /// Run it in virtual time: needs no privilege and a second or two.
    #[arg(long = "virtual")]
    pub(crate) in_virtual_time: bool,
    /// A folder of recorded links (NAME.mm.gz); without it, links are generated.
    #[arg(long, env = "ROPEWALK_TRACES")]
    pub(crate) traces: Option<PathBuf>,
    /// Print one JSON object as the last line.
    #[arg(long)]
    pub(crate) json: bool,
    /// The `ropewalk` to run; the one beside this program unless given.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct GenerateArgs {
    /// lte-still, lte-driving, 5g, wlan-walking, starlink, hspa or hspa-modem.
    pub(crate) kind: Kind,
    /// Length of one round, up to an hour.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,
    /// The same seed and name give the same link.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Name of the link.
    #[arg(long, default_value = "a")]
    pub(crate) link: String,
    /// From the user, in place of to the user.
    #[arg(long)]
    pub(crate) up: bool,
    /// Write it as a mahimahi trace; compressed if the name ends in .gz.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TcpArgs {
    /// The beginnings of the names of those to run; all unless given.
    pub(crate) cells: Vec<String>,
    /// Also on this machine's kernel.
    #[arg(long)]
    pub(crate) real: bool,
    /// How often; medians are told.
    #[arg(long, default_value_t = 1)]
    pub(crate) runs: u32,
    /// How long each download lasts.
    #[arg(long, default_value = "30s")]
    pub(crate) duration: Duration,
    /// Print one JSON object after each.
    #[arg(long)]
    pub(crate) json: bool,
    /// The `ropewalk` to run; the one beside this program unless given.
    #[arg(long)]
    pub(crate) program: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TopologyArgs {
    /// An access link as MBIT,MS (rate, round-trip time); repeated for several WANs.
    #[arg(long = "wan", default_values = ["8,10", "2,100"], value_parser = parse_wan)]
    pub(crate) wans: Vec<(u64, u64)>,
    /// Router timeout of idle UDP flows.
    #[arg(long)]
    pub(crate) udp_timeout: Option<Duration>,
    /// Start no shell; stay until a signal.
    #[arg(long)]
    pub(crate) no_shell: bool,
}

fn parse_wan(text: &str) -> Result<(u64, u64), String> {
    let parsed = text
        .split_once(',')
        .and_then(|(rate, rtt)| Some((rate.trim().parse().ok()?, rtt.trim().parse().ok()?)));
    parsed.ok_or_else(|| "expected MBIT,MS, such as 8,10".to_owned())
}
