//! Keeps the host's network as the daemon wants it: a task beside the event loop, which never waits
//! for it.
//!
//! ```text
//!  kernel's news ──┐
//!  what is wanted ─┼─▶ candidates ─▶ routes, rules, firewall ─▶ news to the daemon
//!  look-ups ───────┘
//! ```
//!
//! A link's routes are in place before the daemon hears of it, so its first datagram finds its way.
//! The kernel tells of every change to links, addresses, routes, rules, the firewall and most settings, and what
//! another program took away of these is put back because its removal is such news. The rest is looked at now and
//! then. A failure is tried again, ever less often.
//!
//! Control groups, names and the devices behind shared interfaces are news that everybody can make without end. What the
//! kernel tells of links comes before them.

mod beside;
mod lan;
mod pace;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use ipnet::{IpNet, Ipv6Net};
use ropewalk_link_io::netlink::Events;
use ropewalk_settings::{InterfaceName, NamePattern, Selector};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::config::{Config, Inbound, ShareConfig, TunConfig, prefixes};
use crate::daemon::Command;
use crate::host::linux::{LinuxNetwork, all_of};
use crate::host::{
    Candidate, Choice, Desired, HostNetwork, LinkDesired, Listed, NoWay, TunDesired, Unlocked,
};
use crate::household::handle::{Household, Started};
use crate::links::{Seat, choice};
use crate::names::Names;
use crate::split::chains::NAMES;
use crate::split::forwarder::{Forwarder, Learn, Settings};
use crate::split::{self, Rule, RuleState, Tally};
use beside::Bypassing;
use lan::Lans;
use pace::Pace;
use slots::Slots;

pub(crate) use beside::Bypass;
pub(crate) use lan::DevicesAsked;

/// How long to wait after the first news: an interface that comes up makes a dozen within some
/// milliseconds, and one that returns is to carry packets again well within two seconds.
const SETTLE: Duration = Duration::from_millis(100);

/// First pause after a failure; doubles up to [`LOOK_INTERVAL`].
const RETRY: Duration = Duration::from_secs(1);

/// How often everything is looked at without being asked to while the tunnel's name servers are in use, which other
/// programs may replace and nobody tells; and the longest pause after a failure: long against the few milliseconds that a
/// look takes, short against a person's patience.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// What the daemon wants beside the links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The TUN, once there was a session.
    pub(crate) tun: Option<TunDesired>,
    /// Where the proxy is.
    pub(crate) proxy: Vec<SocketAddr>,
    /// The TCP port to which links over TLS go, where they may.
    pub(crate) tls_port: Option<u16>,
    /// Name servers of the tunnel; none: names are looked up as without it.
    pub(crate) dns: Vec<IpAddr>,
    /// Whether the tunnel carries packets now. That alone changes nothing, and is told to nobody.
    pub(crate) connected: bool,
    /// Those of them that stand beyond the proxy, whatever is routed.
    pub(crate) dns_inside: bool,
    /// Which interfaces are to be links, if otherwise than at the start.
    pub(crate) choice: Option<Choice>,
    /// What may begin connections out of the tunnel, if otherwise than at the start.
    pub(crate) inbound: Option<Inbound>,
    /// What goes through the tunnel, and what of that around it, if otherwise than at the start.
    pub(crate) lists: Option<Lists>,
    /// Whose hosts use the tunnel too, and what they get, if otherwise than at the start.
    pub(crate) share: Option<ShareConfig>,
    /// The IPv6 networks of these hosts that the proxy routes here.
    pub(crate) prefix: Option<Ipv6Net>,
}

/// `routes` and `exclude`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pub(crate) routes: Vec<Selector>,
    pub(crate) exclude: Vec<Selector>,
}

impl Lists {
    /// As this config has them.
    pub(crate) fn of(tun: &TunConfig) -> Self {
        Self { routes: tun.routes.clone(), exclude: tun.exclude.clone() }
    }
}

/// By which ways the task is asked.
pub(crate) struct Asked {
    pub(crate) bypass: mpsc::Receiver<Bypass>,
    pub(crate) counting: mpsc::Receiver<Counting>,
    pub(crate) devices: mpsc::Receiver<DevicesAsked>,
}

/// Somebody who wants to know what was counted of each rule.
pub(crate) type Counting = oneshot::Sender<BTreeMap<u16, Tally>>;

/// What the daemon hears.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// Every candidate for a link.
    pub(crate) seats: Vec<Seat>,
    /// All interfaces, if one that the config names is missing.
    pub(crate) known: Vec<String>,
    /// The inner addresses that the TUN has, with the routes into it; none before the first session.
    pub(crate) inner: Vec<IpAddr>,
    /// The addresses that the config gives shared interfaces.
    pub(crate) given: Vec<(String, IpNet)>,
    /// What could not be done, for people.
    pub(crate) problems: Vec<String>,
    /// Whether the kill switch could not be set as it should be.
    pub(crate) unlocked: bool,
    /// What they should know of the network they are in.
    pub(crate) warnings: Vec<String>,
    /// What became of each rule.
    pub(crate) rules: Vec<RuleState>,
}

impl News {
    /// A sentence for each interface of the config that is not there and that `is_wanted`.
    pub(crate) fn unknown_interfaces(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let missing = self.seats.iter().filter(|seat| seat.state == Err(NoWay::Missing));
        let names = missing.map(|seat| seat.interface.as_str()).filter(|name| is_wanted(name));
        let there = self.known.join(", ");
        names
            .map(|name| {
                format!("there is no interface {name} (there are: {there}); waiting for it")
            })
            .collect()
    }
}

impl News {
    /// A sentence for each inner address that lies in the network of a link: the proxy does not know this machine's. And one
    /// for each link whose network overlaps that of a shared interface: the config does not know where the links will be.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        let ways = self.seats.iter().filter_map(|seat| Some((seat, seat.state.as_ref().ok()?)));
        let networks = ways.flat_map(|(seat, ways)| {
            let of_family = [&ways.v4, &ways.v6].into_iter().flatten();
            of_family.flat_map(|way| &way.addresses).map(move |net| (&seat.interface, net))
        });
        let networks: Vec<(&String, &IpNet)> = networks.collect();
        let of_proxy = networks.iter().filter_map(|(interface, net)| {
            let inner = self.inner.iter().find(|inner| net.contains(*inner))?;
            Some(format!(
                "the address {inner} that the proxy gave lies in the network {} of {interface}: hosts there, or the \
                 tunnel, may not be reached; the proxy's owner can choose another pool (pool_v4, pool_v6)",
                net.trunc()
            ))
        });
        let of_config = networks.iter().filter_map(|(interface, net)| {
            let meets = |(shared, given): &&(String, IpNet)| {
                shared != *interface && (net.contains(given) || given.contains(*net))
            };
            let (shared, given) = self.given.iter().find(meets)?;
            Some(format!(
                "the network of {given}, the address of {shared}, overlaps {} of {interface}: hosts there, its router and what \
                 lies behind it may not be reached; write another `address` into [share]",
                net.trunc()
            ))
        });
        of_proxy.chain(of_config).collect()
    }
}

/// How the client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to stop.
    InOrder,
    /// Another start follows, or something took its ground away: the kill switch stays.
    KeepLock,
}

/// The task.
pub(crate) struct Network {
    host: LinuxNetwork,
    events: Events,
    choice: Choice,
    tun: String,
    lans: Lans,
    inbound: Inbound,
    lists: Lists,
    slots: Slots,
    wanted: watch::Receiver<Wanted>,
    asked: Asked,
    /// When the control groups may be followed.
    pace: Pace,
    /// When it may be heard again of what is handed out: a device that asks under ever other names has it told without end.
    lans_pace: Pace,
    /// Answers questions for names, while domains are chosen.
    forwarder: Option<Forwarder>,
    /// What its answers give.
    learned: (mpsc::Sender<Learn>, mpsc::Receiver<Learn>),
    bypassing: Bypassing,
    names: Names,
    daemon: mpsc::Sender<Command>,
    told: Option<News>,
    /// Warnings that the log has.
    logged: BTreeSet<String>,
}

/// Answers that may wait until their addresses are in place; who gives more waits too.
const WAITING_ANSWERS: usize = 64;

/// Where name servers are asked (RFC 1035 §4.2).
const DNS_PORT: u16 = 53;

/// How many warnings of the network are logged and shown, and in a client's life: who runs it could think up more without
/// end.
const MAX_WARNINGS: usize = 16;
const MAX_LOGGED: usize = 256;

impl Network {
    /// Takes hold of the host's network, and removes what a crashed client left behind. The helper is there if the client was
    /// started with something shared.
    ///
    /// # Errors
    /// When the right is missing or the kernel refuses.
    pub(crate) async fn open(
        config: &Config,
        wanted: watch::Receiver<Wanted>,
        asked: Asked,
        helper: Option<Started>,
        daemon: mpsc::Sender<Command>,
    ) -> anyhow::Result<Self> {
        let household = helper.map(Household::open).transpose()?;
        // Before the first look at the state, so that no change falls between.
        let events = Events::open(None)?;
        let mut host = LinuxNetwork::open(crate::routes::Numbers::default()).await?;
        if config.kill_switch {
            let done = host.lock(config.tun.name.as_str()).await;
            done.context("the kill switch (kill_switch = true) cannot be set")?;
            tracing::info!("the kill switch is set: nothing leaves outside the tunnel");
        } else {
            host.unlock().await?;
        }
        let mut names = Names::new(&config.state_dir);
        // Trouble is told again, and tried again, when the tunnel's servers are to be set.
        if let Err(error) = names.restore(config.tun.name.as_str()).await {
            tracing::warn!("{error:#}");
        }
        Ok(Self {
            host,
            events,
            choice: choice(&config.links),
            tun: config.tun.name.to_string(),
            lans: Lans::new(config.share.clone(), household),
            inbound: config.inbound.clone(),
            lists: Lists::of(&config.tun),
            slots: Slots::default(),
            wanted,
            asked,
            pace: Pace::new(Instant::now()),
            lans_pace: Pace::new(Instant::now()),
            forwarder: None,
            learned: mpsc::channel(WAITING_ANSWERS),
            bypassing: Bypassing::default(),
            names,
            daemon,
            told: None,
            logged: BTreeSet::new(),
        })
    }

    /// Runs until told to stop, then takes everything back; the kill switch not if the end is none in order (or this task
    /// is forgotten).
    ///
    /// # Errors
    /// When something could not be taken back.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<End>) -> anyhow::Result<()> {
        let mut retry = RETRY;
        let mut worked = self.update().await;
        let end = 'run: loop {
            let pause = if !worked {
                let pause = retry.min(LOOK_INTERVAL);
                retry = pause * 2;
                pause
            } else if self.names.is_set() {
                retry = RETRY;
                LOOK_INTERVAL
            } else {
                retry = RETRY;
                self.events.patience()
            };
            let pause = tokio::time::sleep(pause);
            tokio::pin!(pause);
            // What is small is done beside the pause, which goes on.
            loop {
                tokio::select! {
                    biased;
                    end = &mut stop => break 'run end.unwrap_or(End::KeepLock),
                    changed = self.wanted.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => break 'run End::KeepLock,
                    },
                    Some(Bypass { on, names, done }) = self.asked.bypass.recv() => {
                        // An asker who is gone needs no answer.
                        let _ = done.send(self.set_bypass(on, &names).await);
                        break;
                    }
                    _ = self.events.changed(SETTLE) => break,
                    () = &mut pause => break,
                    // What follows comes as often as any user of this machine likes.
                    () = news_of_groups(&self.host, &self.pace) => {
                        self.follow_groups().await;
                        self.pace.looked(Instant::now());
                    }
                    Some(asker) = self.asked.counting.recv() => {
                        let _ = asker.send(self.host.tallies().await);
                    }
                    Some(asker) = self.asked.devices.recv() => {
                        let _ = asker.send(self.lans.report(&self.host).await);
                    }
                    Some(Learn { answered, done }) = self.learned.1.recv() => {
                        let _ = done.send(self.host.place(&answered).await);
                    }
                    () = after_rest(&self.lans_pace, self.lans.news()) => {
                        self.lans_pace.looked(Instant::now());
                        break;
                    }
                }
            }
            worked = self.update().await;
        };
        self.lans.end().await;
        // Each whatever became of the others: whoever stops the client is not to be left locked in.
        let restored = self.names.restore(&self.tun).await;
        let removed = self.host.remove().await;
        let unlocked = match end {
            End::InOrder => self.host.unlock().await,
            End::KeepLock => Ok(()),
        };
        all_of([restored, removed, unlocked])
    }

    /// A control group began or ended: the rules follow it at once, and nothing else is looked at.
    async fn follow_groups(&mut self) {
        let (rules, warnings) = match self.host.follow_groups().await {
            Ok(Some(followed)) => followed,
            Ok(None) => return,
            // The next look tells more, and tries again.
            Err(error) => return tracing::warn!("{error:#}"),
        };
        let Some(told) = &mut self.told else { return };
        told.rules = rules;
        for warning in warnings {
            if !told.warnings.contains(&warning) && told.warnings.len() < MAX_WARNINGS {
                told.warnings.push(warning);
            }
        }
        let news = told.clone();
        // A daemon that is ending does not listen.
        let _ = self.daemon.send(Command::Network(news)).await;
    }

    /// Has questions for names answered here while domains are chosen and there are name servers to ask. Returns where this
    /// machine's programs ask.
    async fn forward_names(&mut self, rules: &[Rule], servers: &[IpAddr]) -> Vec<IpAddr> {
        let by_domain = rules.iter().filter(|rule| rule.selector.is_by_domain());
        let settings = Settings {
            servers: servers.iter().map(|server| SocketAddr::new(*server, DNS_PORT)).collect(),
            rules: by_domain.cloned().collect(),
            beside: self.bypassing.asked().clone(),
        };
        if settings.rules.is_empty() || servers.is_empty() {
            self.forwarder = None;
            return servers.to_vec();
        }
        match &self.forwarder {
            Some(forwarder) => forwarder.set(settings),
            None => match Forwarder::start(settings, self.learned.0.clone()).await {
                Ok(forwarder) => self.forwarder = Some(forwarder),
                Err(error) => {
                    tracing::warn!("questions for names cannot be answered at {NAMES}: {error}");
                    return servers.to_vec();
                }
            },
        }
        vec![NAMES.into()]
    }

    /// Has names looked up as wanted. What failed, for people.
    async fn apply_names(&mut self, servers: &[IpAddr]) -> Option<String> {
        let done = match (self.bypassing.is_restored(), servers) {
            (true, _) => return None,
            (false, []) => self.names.restore(&self.tun).await,
            (false, servers) => self.names.set(&self.tun, servers).await,
        };
        done.err().map(|error| format!("{error:#}"))
    }

    /// Empties the system's cache of names when the chosen domains have changed. Returns what failed, for people.
    async fn flush_cache(&mut self, states: &[RuleState]) -> Option<String> {
        let rules = states.iter().map(|state| &state.rule);
        let by_domain: Vec<Rule> =
            rules.filter(|rule| rule.selector.is_by_domain()).cloned().collect();
        // Otherwise the client does not see the answers.
        let is_asked =
            self.forwarder.is_some() && self.names.is_set() && !self.bypassing.is_restored();
        if !is_asked && !by_domain.is_empty() {
            return None;
        }
        let done = self.names.flush_cache(&by_domain).await;
        done.err().map(|error| format!("{error:#}"))
    }

    /// Looks at the host, makes it as wanted, and tells the daemon what is new. Returns whether all of it
    /// worked.
    async fn update(&mut self) -> bool {
        let (news, worked) = match self.apply().await {
            Ok(news) => {
                let worked = news.problems.is_empty();
                (news, worked)
            }
            Err(error) => {
                let mut news = self.told.clone().unwrap_or_default();
                news.problems = vec![format!("{error:#}")];
                news.unlocked |= error.downcast_ref::<Unlocked>().is_some();
                (news, false)
            }
        };
        if self.told.as_ref() != Some(&news) {
            let known = self.told.as_ref().map_or(&[][..], |told| &told.problems);
            for problem in news.problems.iter().filter(|problem| !known.contains(problem)) {
                tracing::warn!("{problem}");
            }
            let known = self.told.as_ref().map_or_else(Vec::new, News::overlaps);
            for overlap in news.overlaps().iter().filter(|overlap| !known.contains(overlap)) {
                tracing::warn!("{overlap}");
            }
            for warning in &news.warnings {
                if self.logged.len() < MAX_LOGGED && self.logged.insert(warning.clone()) {
                    tracing::warn!("{warning}");
                }
            }
            self.told = Some(news.clone());
            // A daemon that is ending does not listen.
            let _ = self.daemon.send(Command::Network(news)).await;
        }
        worked
    }

    /// Tells the daemon of links that cannot be used any more, before anything is done about routes: what is under way there
    /// has to go over the others at once.
    async fn tell_gone(&mut self, seats: &[Seat]) {
        let Some(told) = &self.told else { return };
        let mut gone = gone(told, seats);
        if gone.is_empty() {
            return;
        }
        // What `auto` takes no more has no reason yet: the same as if somebody had listed it.
        let no_more = gone.iter().filter(|(_, why)| why.is_none()).map(|(name, _)| name.as_str());
        let listed = no_more.filter_map(|name| InterfaceName::new(name).ok()).map(|name| Listed {
            name: NamePattern::exact(&name),
            gateways: Vec::new(),
            enabled: true,
        });
        let looked = self.host.candidates(&Choice::list(listed.collect()), &self.tun).await;
        for found in looked.map(|(found, _)| found).unwrap_or_default() {
            gone.insert(found.name, Some(found.state.err().unwrap_or(NoWay::NotMeant)));
        }
        let news = without(told, &gone);
        self.told = Some(news.clone());
        // A daemon that is ending does not listen.
        let _ = self.daemon.send(Command::Network(news)).await;
    }

    async fn apply(&mut self) -> anyhow::Result<News> {
        let Wanted {
            tun,
            proxy,
            tls_port,
            dns,
            connected: _,
            dns_inside,
            choice,
            inbound,
            lists,
            share,
            prefix,
        } = self.wanted.borrow_and_update().clone();
        if let Some(share) = share {
            self.lans.set(share);
        }
        let prefix = self.lans.used(prefix);
        self.choice = choice.unwrap_or_else(|| self.choice.clone());
        self.inbound = inbound.unwrap_or_else(|| self.inbound.clone());
        self.lists = lists.unwrap_or_else(|| self.lists.clone());
        let (candidates, left_out) = self.host.candidates(&self.choice, &self.tun).await?;
        let is_missing = |candidate: &Candidate| candidate.state == Err(NoWay::Missing);
        let known = match candidates.iter().any(is_missing) {
            true => self.host.names().await?,
            false => Vec::new(),
        };
        let seats = self.slots.seat(candidates);
        self.tell_gone(&seats).await;
        let links = seats.iter().filter_map(|seat| {
            let ways = seat.state.as_ref().ok()?.clone();
            Some(LinkDesired { name: seat.interface.clone(), slot: seat.slot, ways })
        });
        let inner = tun.as_ref().map(|tun| tun.inner.clone()).unwrap_or_default();
        let inside = dns.iter().copied().filter(|_| dns_inside).map(IpNet::from);
        // Of two alike the excluded counts.
        let routed = prefixes(&self.lists.routes).chain(inside).collect();
        let links = links.collect();
        let rules = split::rules(&self.lists.routes, &self.lists.exclude);
        let asked_at = self.forward_names(&rules, &dns).await;
        let desired = Desired {
            tun,
            links,
            proxy,
            tls_port,
            routed,
            excluded: prefixes(&self.lists.exclude).collect(),
            asked: self.bypassing.outside().to_vec(),
            shared: self.lans.shared(),
            addresses: self.lans.addresses(prefix),
            prefix,
            limited: self.lans.limited(),
            inbound: self.inbound.clone(),
            rules,
            name_servers: dns,
            forwarder: self.forwarder.as_ref().map(Forwarder::address),
        };
        let outcome = self.host.apply(&desired).await?;
        let problems = outcome.problems.into_iter().map(|problem| match problem.link {
            Some(link) => format!("link {link}: {}", problem.what),
            None => problem.what,
        });
        // The same trouble with several routes of one link is one trouble.
        let mut problems: BTreeSet<String> = problems.collect();
        // After the routes: the first question finds its way.
        // Without the rules nobody leads questions to where they are answered.
        let asked_at = if outcome.rules.is_empty() { &desired.name_servers } else { &asked_at };
        let has_tunnel = desired.tun.is_some();
        problems.extend(self.lans.apply(&self.host, asked_at, prefix, has_tunnel).await);
        problems.extend(self.apply_names(asked_at).await);
        problems.extend(self.flush_cache(&outcome.rules).await);
        let (unlocked, mut warnings) = (outcome.unlocked, outcome.warnings);
        warnings.splice(..0, left_out.iter().map(ToString::to_string));
        if warnings.len() > MAX_WARNINGS {
            let more = warnings.split_off(MAX_WARNINGS).len();
            warnings.push(format!("{more} more of the kind; `ropewalk doctor` has all"));
        }
        Ok(News {
            seats,
            known,
            inner,
            given: self.lans.addresses(None),
            problems: problems.into_iter().collect(),
            unlocked,
            warnings,
            rules: outcome.rules,
        })
    }
}

/// Waits for news that others make, and not before the rest behind the last of them is over.
async fn after_rest(pace: &Pace, news: impl Future<Output = ()>) {
    tokio::time::sleep_until(pace.rests_until()).await;
    news.await;
}

/// Waits until control groups that may be meant began or ended, and may be followed.
async fn news_of_groups(host: &LinuxNetwork, pace: &Pace) {
    tokio::time::sleep_until(pace.rests_until()).await;
    host.news_of_groups().await;
}

/// The links that were told to be usable and are not any more, each with the reason if it is known.
fn gone(told: &News, seats: &[Seat]) -> BTreeMap<String, Option<NoWay>> {
    let usable = told.seats.iter().filter(|seat| seat.state.is_ok());
    let gone = usable.filter_map(|seat| {
        let now = seats.iter().find(|now| now.interface == seat.interface);
        match now.map(|now| now.state.as_ref().err()) {
            Some(None) => None,
            Some(Some(why)) => Some((seat.interface.clone(), Some(*why))),
            None => Some((seat.interface.clone(), None)),
        }
    });
    gone.collect()
}

/// What was told, without these.
fn without(told: &News, gone: &BTreeMap<String, Option<NoWay>>) -> News {
    let mut news = told.clone();
    for seat in &mut news.seats {
        if let Some(why) = gone.get(&seat.interface) {
            seat.state = Err(why.unwrap_or(NoWay::Missing));
        }
    }
    news
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Way, Ways};

    #[tokio::test]
    async fn news_that_others_make_without_end_are_heard_of_behind_a_rest() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        pace.looked(begun);
        assert!(pace.rests_until() > begun);
        after_rest(&pace, std::future::ready(())).await;
        assert!(Instant::now() >= pace.rests_until());
    }

    #[test]
    fn an_inner_or_given_address_in_the_network_of_a_link_is_told() {
        let way = |net: &str| {
            let net: IpNet = net.parse().unwrap();
            Some(Way { source: net.addr(), addresses: vec![net], gateway: None })
        };
        let ways = Ways { index: 3, mtu: 1500, v4: way("10.77.3.4/16"), v6: way("fd00:7::5/64") };
        let seat = Seat { slot: 0, interface: "wlan0".to_owned(), state: Ok(ways) };
        let news = |inner: &[&str]| News {
            seats: vec![seat.clone()],
            inner: inner.iter().map(|inner| inner.parse().unwrap()).collect(),
            ..News::default()
        };
        assert_eq!(news(&["10.78.0.2", "fd00:8::2"]).overlaps(), [""; 0]);
        let told = news(&["10.77.0.2", "fd00:7::2"]).overlaps();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("10.77.0.2") && told[0].contains("10.77.0.0/16 of wlan0"));
        assert!(told[1].contains("fd00:7::2") && told[1].contains("fd00:7::/64 of wlan0"));
        let household = |shared: &str, net: &str| News {
            seats: vec![seat.clone()],
            given: vec![(shared.to_owned(), net.parse().unwrap())],
            ..News::default()
        };
        for (shared, net, expected) in [
            ("lan0", "10.78.0.1/24", 0),
            ("lan0", "10.77.9.1/24", 1),
            ("lan0", "10.0.0.1/8", 1),
            ("wlan0", "10.77.3.4/16", 0),
        ] {
            let told = household(shared, net).overlaps();
            assert_eq!(told.len(), expected, "{net} {told:?}");
            assert!(told.iter().all(|one| one.contains("overlaps 10.77.0.0/16 of wlan0")));
        }
    }

    #[test]
    fn of_links_that_are_gone_the_daemon_hears_first_and_nothing_else_is_said() {
        let way = |net: &str| {
            let net: IpNet = net.parse().unwrap();
            Some(Way { source: net.addr(), addresses: vec![net], gateway: None })
        };
        let usable = |address: &str| Ok(Ways { index: 3, mtu: 1500, v4: way(address), v6: None });
        let seat = |slot, interface: &str, state| Seat { slot, interface: interface.into(), state };
        let told = News {
            seats: vec![
                seat(0, "wlan0", usable("192.0.2.7/24")),
                seat(1, "usb0", usable("198.51.100.7/24")),
                seat(2, "usb1", Err(NoWay::NoCarrier)),
            ],
            ..News::default()
        };
        // Another address, and a link that is new, are told with their routes.
        let moved = seat(0, "wlan0", usable("192.0.2.8/24"));
        let new = seat(2, "usb1", usable("203.0.113.7/24"));
        let now = [moved.clone(), told.seats[1].clone(), new.clone()];
        assert_eq!(gone(&told, &now), BTreeMap::new());
        for (now, why) in [
            (
                vec![moved.clone(), seat(1, "usb0", Err(NoWay::Down)), new.clone()],
                Some(NoWay::Down),
            ),
            (vec![moved, new], None),
        ] {
            let gone = gone(&told, &now);
            assert_eq!(gone, BTreeMap::from([("usb0".to_owned(), why)]));
            let mut expected = told.clone();
            expected.seats[1].state = Err(why.unwrap_or(NoWay::Missing));
            assert_eq!(without(&told, &gone), expected);
        }
    }
}
