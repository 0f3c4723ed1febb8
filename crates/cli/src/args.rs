//! Every subcommand and flag, with the help that `--help` shows; nothing else.

mod change;
mod clients;
mod files;
mod look;
mod run;

pub(crate) use change::{
    Devices, DevicesWhat, Links, LinksWhat, List, Reload, Saving, Set, SetRedundant, SetRoutes,
    SetScheduler, SetWhat,
};
pub(crate) use clients::{Fleet, FleetWhat, Invite, Join, Peer, PeerWhat};
pub(crate) use files::{
    CheckConfig, Client, Complete, Completions, Doctor, Keygen, LanServers, Man, Proxy, Reference,
};
pub(crate) use look::{
    Bugreport, Flows, Forward, History, Logs, Notify, Proxies, Speedtest, Status, Use, Watch, Why,
};
pub(crate) use run::Run;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// One tunnel over all your links: a client bonds them, a proxy on a server unbundles them.
#[derive(Debug, Parser)]
#[command(
    name = "ropewalk",
    version,
    after_long_help = "\
EXAMPLES
  On the server:
    sudo ropewalk proxy                the first start makes its key and its config
    sudo ropewalk peer add laptop      prints an invitation: one line, and a QR code
  On the laptop:
    sudo ropewalk join                 asks for that line; makes this machine's key and config
    sudo ropewalk client
    sudo ropewalk status               each link, and what it carries

EXIT CODES
  0  it worked
  1  it failed
  2  wrong use, or an error in a config file
  3  no daemon answers
  4  no permission, or a missing capability
  5  no desktop to show notifications on"
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
The client needs the capability CAP_NET_ADMIN: run it with sudo or as the systemd unit.
Everything it sets up in the system is removed when it ends; after a crash, at its next start. A kill switch
(kill_switch = true in the config) stays after a crash, on purpose. --purge removes all that a crash left, that too;
where the config is gone or wrong, what a client with the defaults leaves: it says so, and the exit code is 0 if it worked.

EXAMPLES
  sudo ropewalk client --log debug
  sudo ropewalk client --purge")]
    Client(Client),

    /// Run the proxy: the other end of the tunnels, and the way to the Internet
    #[command(after_long_help = "\
The proxy needs the capability CAP_NET_ADMIN: run it with sudo or as the systemd unit.
If there is no config, the first start makes one, and a key beside it, and says so; one of another name than the default
only with --init. A pool that overlaps an address or a route of this machine is refused. So is a changed pool outside which
clients have addresses: --drop-leases gives them others.
What it sets up in the system is removed when it ends, but for a guard: while no proxy runs, packets for
clients are unreachable and never leave by this machine's own routes. --purge removes that, too.

EXAMPLES
  sudo ropewalk proxy
  sudo ropewalk proxy --init --config /etc/ropewalk/proxy/second.toml
  sudo ropewalk proxy --purge")]
    Proxy(Proxy),

    /// Join a proxy by an invitation: make this machine's key and config
    #[command(after_long_help = "\
The private key is made here and never leaves this machine. The invitation is used up by the first connection of
`ropewalk client`. Without LINE, or with -, it is read from standard input, and does not get into your shell's history.

EXAMPLES
  sudo ropewalk join                                  asks for the line
  sudo ropewalk join ropewalk:aeag5...
  sudo ropewalk join --link wlan0 --link wwan0 -      only these interfaces
  ssh vps sudo ropewalk peer add laptop | sudo ropewalk join -
  sudo ropewalk join --config /etc/ropewalk/client/work.toml another proxy, beside the first")]
    Join(Join),

    /// Invite, list, disable and remove the clients of this proxy
    #[command(after_long_help = "\
Each command acts on the running proxy at once. While none runs, it changes what the next start reads.

EXAMPLES
  sudo ropewalk peer add laptop                       an invitation that holds for a day
  sudo ropewalk peer add phone --expires 10m --address vps.example.org
  sudo ropewalk peer list
  sudo ropewalk peer rotate laptop                    a new key for laptop; the old one works until the new one came
  sudo ropewalk peer disable laptop                   its session ends, it gets no other; `peer enable` lets it in again
  sudo ropewalk peer remove laptop                    its session ends, its key is refused")]
    Peer(Peer),

    /// Show the proxies that share a registry, and let one of them drain
    #[command(after_long_help = "\
It asks etcd, which [registry] of the config names, whether or not a proxy runs here. docs/FLEET.md says what a fleet is.

EXAMPLES
  sudo ropewalk fleet                                 proxies, their state and load, and etcd's health
  sudo ropewalk fleet --json | jq '.proxies[] | {id, state, sessions}'
  sudo ropewalk fleet drain fra-1                     it takes no new sessions
  sudo ropewalk fleet undrain fra-1")]
    Fleet(Fleet),

    /// Show which ports of this proxy lead to clients, and what they have carried
    #[command(after_long_help = "\
Ports are forwarded by the [[forward]] sections of the proxy's config; `ropewalk reload` takes a change over, and nothing else is touched.

STATES
  active     it leads to a client that is connected
  away       its client is not connected to this proxy: who comes is told that it is unreachable
  waiting    no client of that name has joined yet
  refused    it leads nowhere; the reason says why

EXAMPLES
  sudo ropewalk forward
  sudo ropewalk forward --json | jq '.forwards[] | {port, to, state}'")]
    Forward(Forward),

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

    /// Show the links live: rates both ways as graphs, RTT, loss, share, state, and what limits each
    #[command(after_long_help = "\
For a terminal of 80x24 and up. Keys: q or Esc ends it, the arrows choose a link, of which the lowest lines say what
limits it, h turns to the last hour, day and month, and back. With NO_COLOR in the environment there are no colours.
On a proxy with several clients each has a row; --peer shows the links of one.

EXAMPLES
  sudo ropewalk watch
  sudo ropewalk watch --every 250ms
  sudo ropewalk watch --json | jq -c '.tunnels[0] | [.up.rate_bps, .down.rate_bps]'     one object a line")]
    Watch(Watch),

    /// Show the links in a table, switch one on or off, or change its settings
    #[command(after_long_help = "\
A change is made on the client, and holds at once and in both directions: the client tells the proxy. No packet is
lost by it. It lasts until the client ends or reads its config again (`ropewalk reload`); with --save it is written into
the config's [[link]] as well, whose comments stay.

KEYS
  use                    always; when-needed: only when the others have failed or are full; backup: only when all
                         others have failed
  direction              up, down or both: which way it carries packets
  max_up, max_down       the most that is sent on it, such as '5 Mbit/s'
  allowance              how much it may carry in a month, such as '50 GB'; allowance.reset_day (1 to 31) and
                         allowance.stop (true: then it is not used any more)
  cost                   of a gigabyte, such as '5 EUR/GB'; `ropewalk status` says what was spent
  weight                 its share beside the others' for the scheduler natalie with weights told; 0: no packets
  rate_up, rate_down     what it carries, where that is known and schedulers are to use it
  importance             for the scheduler batcp: of throughput and cost, such as 0.1,0.9
  metered, keepalive     as in the config; the link leaves for it, and comes again within some round trips

EXAMPLES
  sudo ropewalk links
  sudo ropewalk links disable wwan0
  sudo ropewalk links enable wwan0
  sudo ropewalk links set wwan0 use=when-needed cost='5 EUR/GB'
  sudo ropewalk links set wwan0 use=backup max_down='5 Mbit/s' --save
  sudo ropewalk links set wwan0 max_down=off
  sudo ropewalk links --json | jq '.[0].links[] | {name, state}'")]
    Links(Links),

    /// Show the devices behind this machine and what each has carried, or limit how much one may have
    #[command(after_long_help = "\
For a client that shares its tunnel with other devices ([share] in its config). A device is named as it calls itself
when it asks for an address, or by its hardware address; so it is in a limit, or by one of its addresses. What is counted
is what went through the tunnel or would have, not what devices send to each other.

What comes too fast for a limit waits, and is dropped only when that becomes too much. A limit lasts until the client ends or
reads its config again (`ropewalk reload`); with --save it is written into the config's [[share.limit]] as well.
Whoever is behind this machine can call his device as he likes, and give it another hardware address: a limit is for
fairness, and no protection against abuse.

EXAMPLES
  sudo ropewalk devices
  sudo ropewalk devices --json | jq '.devices[] | {name, down: .down.rate_bps, up: .up.rate_bps}'
  sudo ropewalk devices limit tv --down '5 Mbit/s'
  sudo ropewalk devices limit 52:54:00:12:34:56 --down '2 Mbit/s' --up '500 kbit/s' --save
  sudo ropewalk devices limit tv --down off")]
    Devices(Devices),

    /// Show the proxies that the client knows: how far away each is, its state, and why one is in use
    #[command(after_long_help = "\
A client knows the proxies of its config, and those of which a proxy of its fleet told. It uses the nearest, where load and
draining count as distance; another one at once when that one is silent or drains, or when another was 30 % nearer for ten
minutes. Flows stay on the proxy where they began, for up to ten minutes, where the one before still answers.

EXAMPLES
  sudo ropewalk proxies
  sudo ropewalk proxies --json | jq '.proxies[] | {id, rtt_ms, in_use}'")]
    Proxies(Proxies),

    /// Use one proxy, or those of one region, or the nearest again
    #[command(after_long_help = "\
It holds until the client ends or reads its config again; `choose` in the config holds from then on. No packet is lost by it:
flows stay on the proxy where they began, for up to ten minutes.

EXAMPLES
  sudo ropewalk use fra-1
  sudo ropewalk use eu-central
  sudo ropewalk use auto")]
    Use(Use),

    /// Have a running daemon read its config again
    #[command(after_long_help = "\
Says what changed, key by key, and what is not in force until a restart. What was changed by hand (`set`, `links`) is
undone: the daemon then does what the file says. A config with an error changes nothing: it is shown, and the exit code
is 2. On a proxy clients come and go; sessions of those that stay go on. SIGHUP does the same, and logs it.

EXAMPLES
  sudo ropewalk reload
  sudo ropewalk reload --socket /run/ropewalk/proxy/proxy.sock
  sudo ropewalk check-config /etc/ropewalk/client/client.toml && sudo ropewalk reload")]
    Reload(Reload),

    /// Say where a daemon's log is, and show its last lines
    #[command(after_long_help = "\
EXAMPLES
  sudo ropewalk logs
  sudo ropewalk logs proxy --lines 100
  sudo ropewalk logs --json")]
    Logs(Logs),

    /// Say what limits each link now, and what the bundle loses against the sum of its links
    #[command(after_long_help = "\
Looks at the daemon for a while and names for each link and direction the one thing that limits it: no demand, its
window or rate, the queue on its path, losses, others on it, its pace or cap, the scheduler, a slower partner, or why
it carries nothing.
An end knows why it does not send more: the client for what goes up, the proxy for what comes down.

EXAMPLES
  sudo ropewalk why
  sudo ropewalk why --over 10s                        judged by ten seconds
  sudo ropewalk why --json | jq '.tunnels[0].links[] | {name, up: .up.factor, down: .down.factor}'
  sudo ropewalk why --peer laptop                     on a proxy: about one client")]
    Why(Why),

    /// Start a program whose connections go around the tunnel, or through it
    #[command(after_long_help = "\
The client is told of the application (app:NAME, in `exclude` or `routes`), until it ends or reads its config again. The
program starts when the client has its control group, and its children are in the same one; programs that run already stay
where they are. It is started as you, where systemd runs; else as root. Whoever may ask the client may do this: root, and
the group in its [control].

EXAMPLES
  ropewalk run --outside -- firefox                   as without a tunnel
  ropewalk run --outside --name call -- chromium --app=https://meet.example.org
  sudo ropewalk run --inside -- curl https://example.org      where only some programs go through the tunnel
  sudo ropewalk set routes                            what goes which way, and how much was sent")]
    Run(Run),

    /// Show what was carried over the last hours and days, and what happened
    #[command(after_long_help = "\
The daemon remembers rates, RTT and losses of each link (in steps of 10 s for an hour, of a minute for a day, of 15 min
for a month), what was used on each day, and what happened; [history] in its config says for how long. Links count
datagrams with IP and UDP headers, as providers do; packets are what is inside. A blank in a chart is time of which nothing
is known. A proxy remembers what all its clients carry together. Times are those of this machine.

EXAMPLES
  sudo ropewalk history                               the last 24 hours
  sudo ropewalk history --since 1h --link wlan0
  sudo ropewalk history --since 7d --events           only what happened
  sudo ropewalk history --since 30d --json | jq '.used[] | {day, links}'")]
    History(History),

    /// Test how fast each link is, alone and together with the others, up and down
    #[command(after_long_help = "\
On the client: each link is filled with test data for ten seconds a way, and then all at once. The test data is the tunnel's own,
between this client and its proxy, so what is found is what packets get. Packets go first; the table has them in its rates,
and a sentence says how much they were. The round trip is measured before and while the link is full: the difference is the queue.

A link with an allowance is tested with at most 1 % of it, and one that is metered or has a price not at all; --metered tests
them with as much as is left of the allowance, or as --max says. The proxy's owner may bound tests, or forbid them ([speed_test]
of its config). Ctrl-C ends the test, and what was found by then is shown; the exit code is 1 then.

EXAMPLES
  sudo ropewalk speedtest                             all links: some 25 s for one, 65 s for two
  sudo ropewalk speedtest --link wlan0 --down --seconds 5
  sudo ropewalk speedtest --link wwan0 --metered --max '50 MB'
  sudo ropewalk speedtest --json | jq '.links[] | {name, down: .down.rate_bps, up: .up.rate_bps}'")]
    Speedtest(Speedtest),

    /// Change how a running daemon sends: its scheduler, which packets go over two links, what goes through the tunnel
    #[command(after_long_help = "\
Each end decides for what it sends: the client for what goes up, the proxy for what comes down. How a link is used is
said once for both, on the client (`ropewalk links set`). A change holds
until the daemon ends; what stands in the config file holds again at its next start. No packet is lost by it.
On a proxy it is for all clients, or with --peer for one; a later change for all is for that one, too.

EXAMPLES
  sudo ropewalk set profile paper                           the papers' system; default brings the other back
  sudo ropewalk set scheduler natalie                       weighted rounds, by what others leave of each link
  sudo ropewalk set scheduler natalie --weights told
  sudo ropewalk set scheduler batcp
  sudo ropewalk set redundant --ports 5060,16384-32767      a call goes over two links at once
  sudo ropewalk set --peer van scheduler safire             on a proxy: for one client
  sudo ropewalk set exclude --add user:backup,domain:example.org      around the tunnel, on a client
  sudo ropewalk set routes --remove 0.0.0.0/0,::/0 --add unit:steam.service      only these through it
  sudo ropewalk set                                         show what is in force")]
    Set(Set),

    /// Show which links carry each flow, and what it waits for
    #[command(after_long_help = "\
Each end has the flows that it sends. Their bytes are counted for a second, and the busiest come first.
With the scheduler safire each flow is on one link, and its tables are shown: the most active flows come first. A
flow's counter is 8 at its first packet, one more for each, at most 64, and halved every second; at 0 the flow is over.

EXAMPLES
  sudo ropewalk flows                                 the 20 busiest
  sudo ropewalk flows --over 4s --json | jq '.recent[] | {destination, rate_bps, why}'
  sudo ropewalk flows --top 4096 --json | jq '.flows | group_by(.link) | map(length)'      with safire
  sudo ropewalk flows --peer laptop                   on a proxy with several clients")]
    Flows(Flows),

    /// Find out what is wrong, before the start or while a daemon runs, and how to fix it
    #[command(after_long_help = "\
Looks at the config and its keys, at this machine (rights, TUN, nft and the rules of other firewalls, rp_filter,
forwarding, clock, buffers, other tunnels, what a crash left) and, on a client, at each link: whether the proxy answers,
at which ports, which sizes pass, whether the network wants a sign-in, and what its NAT does. Without --fix it changes
nothing. Run it with sudo: without, it sees less. It takes some seconds if something does not answer.

Each finding is ok, a note, a warning (it could be better) or a failure, with the commands that fix it. The exit code is
0 if nothing fails, else 1. With --fix it counts what still fails afterwards.

EXAMPLES
  sudo ropewalk doctor                                on a client or a proxy; running or not
  sudo ropewalk doctor --fix                          shows each change, asks, and keeps a copy of what it edits
  sudo ropewalk doctor --config /etc/ropewalk/client/work.toml
  sudo ropewalk doctor --json | jq '.examinations[].findings[] | select(.level == \"fail\") | .commands'")]
    Doctor(Doctor),

    /// Write one file about a daemon and its machine, to be attached to an issue
    #[command(after_long_help = "\
In it are: versions, status, the findings of `ropewalk doctor` and `ropewalk why`, the log's last lines, the settings, the unit,
links, routes, our firewall tables, and counts of flows. It is a text that begins with a table of all parts; what could not be had
is in it with the reason, and costs nothing else. It takes some seconds, as `ropewalk doctor` does, and asks the proxy the same.
Without sudo it has what this user may see. The exit code is 0 if it was written.

Secrets are not in it: no keys, invitations, hardware addresses, names of a proxy's clients and of devices behind a client, comments
of the config. Addresses of the Internet and names of hosts are hidden, too; equal ones have equal numbers. Read it through before
you send it.

EXAMPLES
  sudo ropewalk bugreport                             writes ropewalk-bugreport-TIME.md into this folder
  sudo ropewalk bugreport proxy --peer laptop         about one client of a proxy
  sudo ropewalk bugreport --stdout | less
  sudo ropewalk bugreport --json --output report.json")]
    Bugreport(Bugreport),

    /// Show notifications on this desktop: links lost and back, a sign-in that is wanted, an allowance used up
    #[command(after_long_help = "\
It runs in your own session, as you, and asks the client every 5 s. For that the client's config names a group ([control], group),
and you are a member of it. What lasts only some seconds is not told; what comes and goes is told once.
If the client does not run, it waits for it.

EXAMPLES
  ropewalk notify --try                               shows one, to see whether it works
  systemctl --user enable --now ropewalk-notify       at every login
  ropewalk notify")]
    Notify(Notify),

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
  ropewalk check-config /etc/ropewalk/client/client.toml")]
    CheckConfig(CheckConfig),

    /// Print what a shell needs to complete this program's command lines
    #[command(after_long_help = "\
The packages install it for bash, zsh and fish. There names of links and clients are completed too, as the running daemon
has them (`ropewalk complete -- WORDS` prints them), for whoever may ask it: root, and the group in its [control].

EXAMPLES
  ropewalk completions bash > /etc/bash_completion.d/ropewalk
  ropewalk completions zsh > ~/.zfunc/_ropewalk             a folder named in fpath
  ropewalk completions fish > ~/.config/fish/completions/ropewalk.fish")]
    Completions(Completions),

    /// Print the names of links or clients that can stand at the end of these words: for the scripts of `completions`
    #[command(hide = true)]
    Complete(Complete),

    /// Write /etc/resolv.conf for the client at standard input: systemd starts it (ropewalk-resolv-conf.socket)
    #[command(hide = true)]
    ResolvConf,

    /// Run dnsmasq for the client at standard input: the client starts it
    #[command(hide = true)]
    LanServers(LanServers),

    /// Write the manual pages, one for each subcommand
    #[command(after_long_help = "\
They say what `--help` says. The packages install them.

EXAMPLES
  ropewalk man /usr/local/share/man/man1
  ropewalk man . && man ./ropewalk-status.1")]
    Man(Man),

    /// Write the reference pages of the documentation: every command, every setting
    #[command(hide = true)]
    Reference(Reference),
}

/// Which daemon is asked.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The daemon's control socket [default: the client's, else the proxy's, in /run/ropewalk]
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
}

/// Whose config file, or log, it is.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleArgument {
    /// The client's
    Client,
    /// The proxy's
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
