//! The task that keeps the host's network as the daemon wants it, beside the packets' way.
//!
//! The daemon's loop never waits for the kernel or for `nft`: it notes at the [`NetworkRequests`] which inner address
//! is to be routed, one entry for each address, so that a flood of changes stays small, and which ports are forwarded. This
//! task does what is noted, puts back what others took away, and looks at the table of connections.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use ropewalk_control::api::{ConntrackStatus, TurnedAwayStatus};
use ropewalk_link_io::netlink::{Changes, Events};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::{Config, Ipv6Mode, Uplinks};
use crate::core;
use crate::daemon::{Command, Host};
use crate::forward::conflicts::{self, Conflict};
use crate::forward::{Forwards, Ports};
use crate::host::{Counts, Desired, HostNetwork, Ipv6, TurnedAway};
use crate::nat::ConnectionTable;
use crate::status::HostFacts;

/// Bytes of the largest inner packet: what fits a path of 1500 over IPv4 (28 bytes of IP and UDP, 32 of
/// ours). The routes to the clients carry smaller ones.
pub const TUN_MTU: u16 = 1440;

/// A burst of changes (an interface comes up, a routing daemon starts) counts as one.
const SETTLE: Duration = Duration::from_secs(1);

/// How soon a look that failed is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// How often the kernel's table of connections and the firewall's counters are looked at, of whose growth nobody tells, while
/// nobody asks: an idle proxy sleeps.
const COUNTERS_INTERVAL: Duration = Duration::from_secs(60);

/// Who asks has them looked at, for the next who asks, at most this often.
const COUNTERS_PAUSE: Duration = Duration::from_secs(1);

/// Clients keep their inner IPv6 addresses then: most such losses pass.
const IPV6_LOST: &str =
    "this host has lost its IPv6 default route: IPv6 packets of clients cannot leave";

/// Where the daemon leaves what it wants, and finds what is known.
#[derive(Debug, Default)]
pub struct NetworkRequests {
    routes: RefCell<BTreeMap<IpAddr, Option<u32>>>,
    forwards: RefCell<Option<Forwards>>,
    facts: RefCell<HostFacts>,
    news: Notify,
    asked: Notify,
    stop: Notify,
}

impl NetworkRequests {
    /// The task ends as soon as it can.
    pub fn stop(&self) {
        self.stop.notify_one();
    }
}

impl Host for Rc<NetworkRequests> {
    fn route(&self, inner: IpAddr, mtu: Option<u16>) {
        self.routes.borrow_mut().insert(inner, mtu.map(u32::from));
        self.news.notify_one();
    }

    fn forward(&self, forwards: Forwards) {
        *self.forwards.borrow_mut() = Some(forwards);
        self.news.notify_one();
    }

    fn facts(&self) -> HostFacts {
        self.asked.notify_one();
        self.facts.borrow().clone()
    }
}

/// The hold on the host's network.
#[derive(Debug)]
pub struct Keeper<N> {
    network: N,
    desired: Desired,
    /// What is desired once IPv6 packets can leave; `None` if they can, or never shall.
    later: Option<Desired>,
    /// What the config says of one client's connections; the table may be too small for it.
    client_connections: u32,
    requests: Rc<NetworkRequests>,
    known: Known,
}

/// What was found, to tell of changes once.
#[derive(Debug, Default)]
struct Known {
    uplinks: Vec<String>,
    firewall: Vec<String>,
    failure: Option<String>,
    /// IPv6 was handed out, and cannot leave any more.
    ipv6_lost: bool,
    conntrack: Option<ConnectionTable>,
    conntrack_warned: bool,
    counts: Option<Counts>,
    conflicts: Vec<Conflict>,
}

impl<N: HostNetwork> Keeper<N> {
    /// Makes the host's network as `config` says, for the first time. With an error, what was done until
    /// then stands.
    pub async fn start(
        network: N,
        config: &Config,
        requests: Rc<NetworkRequests>,
    ) -> (Self, anyhow::Result<()>) {
        let mut keeper = Self {
            network,
            desired: desired(config, Ipv6::None),
            later: later(config),
            client_connections: config.client_connections,
            requests,
            known: Known::default(),
        };
        let mut done = keeper.look().await;
        // The kernel has the table of connections since rules ask for it.
        if done.is_ok() && keeper.desired.client_connections != keeper.share() {
            done = keeper.look().await;
        }
        let done = done.map(|_| ());
        (keeper, done)
    }

    /// Whether IPv6 packets of clients can leave.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.desired.ipv6 != Ipv6::None
    }

    /// Lets go without an end.
    #[must_use]
    pub fn release(self) -> N {
        self.network
    }

    /// Keeps it so until the requests says stop.
    pub async fn keep(mut self, mut events: Events, commands: mpsc::Sender<Command>) -> N {
        let mut counters = tokio::time::interval(COUNTERS_INTERVAL);
        counters.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let requests = Rc::clone(&self.requests);
        let mut look_at = Instant::now() + events.patience();
        let mut counted = Instant::now();
        loop {
            tokio::select! {
                () = requests.stop.notified() => return self.network,
                () = requests.news.notified() => {
                    self.set_routes().await;
                    if !self.take_forwards() {
                        continue;
                    }
                }
                _ = counters.tick() => {
                    self.look_at_counters().await;
                    counted = Instant::now();
                    self.publish();
                    continue;
                }
                () = requests.asked.notified() => {
                    if counted.elapsed() >= COUNTERS_PAUSE {
                        self.look_at_counters().await;
                        self.publish();
                        counted = Instant::now();
                    }
                    continue;
                }
                changes = events.changed(SETTLE) => {
                    let only_rules = Changes { rules: true, ..Changes::default() };
                    if changes == only_rules {
                        continue;
                    }
                }
                () = tokio::time::sleep_until(look_at) => {}
            }
            let found = self.look().await;
            look_at = Instant::now() + if found.is_ok() { events.patience() } else { RETRY };
            let ipv6_came = matches!(found, Ok(true));
            self.note_failure(found.err());
            if ipv6_came && commands.send(Command::HandOutIpv6).await.is_err() {
                // The loop is over; it says stop next.
                tracing::debug!("nobody is left to hand out IPv6");
            }
        }
    }

    /// Looks at everything and puts right what is not as desired. Says whether IPv6 became possible.
    async fn look(&mut self) -> anyhow::Result<bool> {
        let tun = self.desired.tun.clone();
        let mut ipv6_came = false;
        if self.later.is_some() || self.has_ipv6() {
            let has_uplink = self.network.has_ipv6_uplink(&tun).await?;
            if has_uplink && let Some(later) = self.later.take() {
                self.desired = later;
                ipv6_came = true;
            }
            self.known.note_ipv6(has_uplink || !self.has_ipv6());
        }
        self.desired.client_connections = self.share();
        let outcome = self.network.apply(&self.desired).await?;
        if outcome.changed {
            tracing::debug!("the host's network is as desired again");
        }
        for warning in &outcome.warnings {
            if !self.known.firewall.contains(warning) {
                tracing::warn!("{warning}");
            }
        }
        self.known.firewall = outcome.warnings;
        self.look_at_conflicts().await;
        self.known.uplinks = match self.desired.uplinks.as_slice() {
            [] => self.network.uplinks(&tun).await?,
            named => named.to_vec(),
        };
        self.look_at_counters().await;
        self.publish();
        Ok(ipv6_came)
    }

    /// Notes which ports are to be forwarded from now on. Says whether that is another answer than before.
    fn take_forwards(&mut self) -> bool {
        let Some(forwards) = self.requests.forwards.borrow_mut().take() else { return false };
        if let Some(later) = &mut self.later {
            later.forwards = forwards.clone();
        }
        let changed = self.desired.forwards != forwards;
        self.desired.forwards = forwards;
        changed
    }

    /// Looks for programs that listen at forwarded ports, on another thread: the kernel may have long lists.
    async fn look_at_conflicts(&mut self) {
        let ports: Ports = self.desired.forwards.ports();
        let found = match ports.is_empty() {
            true => Ok(Vec::new()),
            // Other processes are closed to this one.
            false => tokio::task::spawn_blocking(move || conflicts::find(&ports, false)).await,
        };
        // A panic of that thread was already printed.
        let Ok(found) = found else { return };
        let known = &self.known.conflicts;
        for conflict in found.iter().filter(|one| one.is_listener() && !known.contains(one)) {
            tracing::warn!("{conflict}");
        }
        self.known.conflicts = found;
    }

    async fn look_at_counters(&mut self) {
        self.known.look_at_connections();
        match self.network.counts().await {
            Ok(counts) => self.known.counts = Some(counts),
            Err(error) => tracing::debug!("the firewall's counters cannot be read: {error:#}"),
        }
    }

    /// Most connections of one client, by the config and the kernel's table.
    fn share(&self) -> u32 {
        let wanted = self.client_connections;
        self.known.conntrack.map_or(wanted, |table| table.share(wanted))
    }

    /// Does what stands at the requests.
    async fn set_routes(&mut self) {
        let wanted = std::mem::take(&mut *self.requests.routes.borrow_mut());
        for (inner, mtu) in wanted {
            let done = match mtu {
                Some(mtu) => self.network.set_client(inner, mtu).await,
                None => self.network.remove_client(inner).await,
            };
            // The next look tries again: the network knows what is wanted.
            if let Err(error) = done {
                self.note_failure(Some(error));
            }
        }
    }

    fn note_failure(&mut self, failure: Option<anyhow::Error>) {
        let failure =
            failure.map(|error| format!("the host's network is not as it should be: {error:#}"));
        if failure != self.known.failure {
            match &failure {
                Some(failure) => tracing::warn!("{failure}"),
                None => tracing::info!("the host's network is as it should be again"),
            }
            self.known.failure = failure;
            self.publish();
        }
    }

    fn publish(&self) {
        let known = &self.known;
        let mut warnings = known.firewall.clone();
        warnings.extend(known.failure.clone());
        warnings.extend(known.conntrack.and_then(|table| table.warning()));
        if self.later.is_some() {
            warnings.push(
                "this host has no IPv6 default route: clients get no inner IPv6 address until it has one"
                    .to_owned(),
            );
        }
        if known.ipv6_lost {
            warnings.push(IPV6_LOST.to_owned());
        }
        let conntrack = known
            .conntrack
            .map(|ConnectionTable { count, limit }| ConntrackStatus { count, limit });
        let listeners = known.conflicts.iter().filter(|conflict| conflict.is_listener());
        warnings.extend(listeners.map(ToString::to_string));
        let turned_away = known.counts.as_ref().map(|counts| {
            let TurnedAway { refused, bounded } = counts.turned_away;
            TurnedAwayStatus { refused, bounded }
        });
        let forwards = known.counts.as_ref().map(|counts| counts.forwards.clone());
        *self.requests.facts.borrow_mut() = HostFacts {
            uplinks: known.uplinks.clone(),
            conntrack,
            turned_away,
            forwards: forwards.unwrap_or_default(),
            conflicts: known.conflicts.clone(),
            failure: known.failure.clone(),
            warnings,
        };
    }
}

impl Known {
    /// Tells when the IPv6 packets of clients cannot leave any more, and when they can again.
    fn note_ipv6(&mut self, can_leave: bool) {
        match (self.ipv6_lost, can_leave) {
            (false, false) => tracing::warn!("{IPV6_LOST}"),
            (true, true) => tracing::info!("this host has an IPv6 default route again"),
            _ => {}
        }
        self.ipv6_lost = !can_leave;
    }

    /// Warns once each time the table becomes nearly full.
    fn look_at_connections(&mut self) {
        self.conntrack = match ConnectionTable::read() {
            Ok(table) => table,
            Err(error) => {
                tracing::debug!(%error, "the table of connections cannot be read");
                None
            }
        };
        let warning = self.conntrack.and_then(|table| table.warning());
        if let Some(warning) = warning.as_ref().filter(|_| !self.conntrack_warned) {
            tracing::warn!("{warning}");
        }
        self.conntrack_warned = warning.is_some();
    }
}

/// What the config wants of the host, with this done about IPv6.
fn desired(config: &Config, ipv6: Ipv6) -> Desired {
    let wanted = |is_ipv4: bool| is_ipv4 || ipv6 != Ipv6::None;
    let mut own = core::gateways(&config.pools);
    own.retain(|own| wanted(own.is_ipv4()));
    let mut inner = core::prefixes(&config.pools);
    inner.retain(|inner| wanted(inner.addr().is_ipv4()));
    Desired {
        tun: config.tun_name.as_str().to_owned(),
        mtu: TUN_MTU.into(),
        own,
        inner,
        ipv6,
        no_nat: config.no_nat.clone(),
        ports: std::iter::once(config.listen.port()).chain(config.more_ports.clone()).collect(),
        allow: config.allow.clone(),
        inbound: config.inbound.clone(),
        name_servers: config.dns.clone(),
        client_connections: config.client_connections,
        client_connection_rate: config.client_connection_rate,
        uplinks: match &config.uplinks {
            Uplinks::Auto => Vec::new(),
            Uplinks::Named(names) => names.iter().map(|name| name.as_str().to_owned()).collect(),
        },
        client_to_client: config.client_to_client,
        // Whose clients these are is told later: until then nothing of theirs ends.
        forwards: Forwards { awaited: conflicts::ports(&config.forwards), ..Forwards::default() },
    }
}

/// What it wants where IPv6 packets can leave.
fn later(config: &Config) -> Option<Desired> {
    config.pools.v6()?;
    let ipv6 = match config.ipv6 {
        Ipv6Mode::Nat66 => Ipv6::Nat66,
        Ipv6Mode::Routed => Ipv6::Routed,
    };
    Some(desired(config, ipv6))
}
