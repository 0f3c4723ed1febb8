//! What is examined of a client: its links above all.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread;

use ropewalk_client::Config;
use ropewalk_client::host::{Candidate, Ways};
use ropewalk_client::names::{HELPER_STATE_DIR, record_in};
use ropewalk_client::probe::{self, Reply, Survey, Way, Web};
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{LinkState, LinkStatus, Role};
use ropewalk_link_io::netlink::{Family, MAIN_TABLE};
use ropewalk_settings::{DEFAULT_PORT, PublicKey};

use super::common::Patient;
use super::finding::Finding;
use super::firewall::{self, Flow, Hook, Needed, Nft, State};
use super::{
    chosen, forwarding, gateways, kill_switch, links, name, near, paths, reach, rp_filter, vpn,
};
use crate::privilege;

/// Addresses of the proxy that are asked over a link: more would pass what a proxy answers in a second.
const MOST_ADDRESSES: usize = 4;

/// Ports at which a proxy is looked for where it does not answer at those of the config.
const USUAL_PORTS: [u16; 2] = [DEFAULT_PORT, 443];

/// All findings about the client of this config.
pub(super) fn examine(file: &Path) -> Vec<Finding> {
    let socket = |config: Option<&Config>| {
        config.map_or_else(|| PathBuf::from(CLIENT_SOCKET), |config| config.control.socket.clone())
    };
    let patient = Patient::look(Role::Client, file, socket, meaning);
    let survey = match probe::survey(patient.config.as_ref()) {
        Ok(survey) => survey,
        Err(error) => {
            let mut findings = patient.examine(privilege::CLIENT, false);
            findings.push(Finding::fail(
                "links.unknown",
                "links",
                format!("{error:#}"),
                "ip address",
            ));
            return findings;
        }
    };
    let tun = patient.config.as_ref().map_or("ropewalk0", |config| config.tun.name.as_str());
    let Some(config) = &patient.config else {
        let mut findings = patient.examine(privilege::CLIENT, false);
        findings.extend(patient.leftovers(tun, &survey.interfaces, &[]));
        return findings;
    };
    let named = name::look(&config.proxy.addresses);
    let proxy: Vec<SocketAddr> =
        named.iter().flat_map(|one| one.addresses.iter().flatten().copied()).collect();
    let scene = Scene { patient: &patient, config, survey: &survey, proxy: &proxy };
    let seats = scene.seats();
    let (reach, sizes) = scene.try_links(&seats);
    let reached = reach.links.iter().flat_map(|link| &link.asked);
    let reached = reached.into_iter().any(|(_, reply)| matches!(reply, Reply::Answer(_)));

    let mut findings = patient.examine(privilege::CLIENT, reached);
    let folders = [config.state_dir.as_path(), Path::new(HELPER_STATE_DIR)];
    findings.extend(patient.leftovers(tun, &survey.interfaces, &folders.map(record_in)));
    let links: Vec<&str> = seats.iter().map(|seat| seat.interface).collect();
    findings.extend(vpn::judge(&vpn::Facts {
        interfaces: &survey.interfaces,
        gateways: &survey.gateways,
        left_out: &survey.left_out,
        links: &links,
        own: tun,
        file,
    }));
    findings.extend(near::judge(&survey.passed_over, file));
    let told = patient.daemon.status().map_or(&[][..], |report| &report.rules);
    findings.extend(chosen::judge(file, &chosen::look(config, told)));
    let shared: Vec<String> = config.share.iter().map(ToString::to_string).collect();
    let ipv6 = scene.has_inner_ipv6();
    findings.extend(forwarding::judge(&forwarding::look(
        Role::Client,
        patient.runs(),
        ipv6,
        &shared,
    )));
    findings.extend(name::judge(&named, file));
    let enabled = survey.candidates.iter().filter(|candidate| is_enabled(config, candidate));
    findings.extend(links::judge(&enabled.cloned().collect::<Vec<_>>()));
    findings.extend(gateways::judge(&scene.routers(&seats), file));
    findings.extend(rp_filter::judge_client(
        &scene.filters(&seats),
        patient.nft.works(),
        patient.runs(),
    ));
    if let Nft::Rules(rules) = &patient.nft {
        findings.push(kill_switch::judge(kill_switch::Facts {
            is_wanted: config.kill_switch,
            stands: rules.has_table("ropewalk_lock"),
            runs: patient.runs(),
        }));
        let needed: Vec<Needed> = seats.iter().flat_map(|seat| scene.needed(seat)).collect();
        findings.extend(firewall::judge_rules(rules, &needed));
    }
    let mut of_links = reach::judge(&reach);
    of_links.extend(paths::judge_mtu(&sizes));
    of_links.extend(paths::judge_nat(scene.shown()));
    // Link by link; what is about none of them comes first.
    of_links.sort_by_key(|one| seats.iter().position(|seat| seat.name == one.subject));
    findings.extend(of_links);
    findings
}

fn meaning(config: &Config) -> String {
    let proxy: Vec<_> = config.proxy.addresses.iter().map(ToString::to_string).collect();
    let pending = match config.proxy.invitation {
        Some(_) => ", by an invitation that is not used yet",
        None => "",
    };
    format!("a client of {}{pending}", proxy.join(", "))
}

/// Whether the config lets this interface be a link.
fn is_enabled(config: &Config, candidate: &Candidate) -> bool {
    config.links.of(&candidate.name).is_none_or(|link| link.enabled)
}

/// A link with a way out.
struct Seat<'a> {
    /// As `status` calls it.
    name: String,
    interface: &'a str,
    ways: &'a Ways,
    /// What the daemon says of it.
    shown: Option<&'a LinkStatus>,
}

/// Everything that is looked at together.
struct Scene<'a> {
    patient: &'a Patient<Config>,
    config: &'a Config,
    survey: &'a Survey,
    /// Where the proxy is.
    proxy: &'a [SocketAddr],
}

impl<'a> Scene<'a> {
    /// The links as the daemon has them.
    fn shown(&self) -> &'a [LinkStatus] {
        let tunnel = self.patient.daemon.status().and_then(|report| report.tunnels.first());
        tunnel.map_or(&[], |tunnel| &tunnel.links)
    }

    /// Whether the proxy has given an inner IPv6 address.
    fn has_inner_ipv6(&self) -> bool {
        let tunnel = self.patient.daemon.status().and_then(|report| report.tunnels.first());
        tunnel.is_some_and(|tunnel| tunnel.inner_v6.is_some())
    }

    fn seats(&self) -> Vec<Seat<'a>> {
        self.survey
            .candidates
            .iter()
            .filter(|candidate| is_enabled(self.config, candidate))
            .filter_map(|candidate| {
                let interface = candidate.name.as_str();
                let named =
                    self.config.links.of(interface).filter(|link| link.interface.is_exact());
                let shown =
                    self.shown().iter().find(|link| link.interface.as_deref() == Some(interface));
                Some(Seat {
                    name: named.map_or_else(|| interface.to_owned(), |link| link.name.clone()),
                    interface,
                    ways: candidate.state.as_ref().ok()?,
                    shown,
                })
            })
            .collect()
    }

    /// The ways over a link to these addresses.
    fn ways(&self, seat: &Seat<'_>, remotes: &[SocketAddr]) -> Vec<Way> {
        let ways = remotes.iter().filter_map(|remote| {
            let source = seat.ways.to(remote.ip())?.source;
            let mark = self.survey.marks.get(&seat.ways.index).copied();
            Some(Way { interface: seat.interface.to_owned(), source, mark, remote: *remote })
        });
        ways.take(MOST_ADDRESSES).collect()
    }

    fn routers(&self, seats: &[Seat<'_>]) -> Vec<gateways::Router> {
        let neighbours = std::fs::read_to_string("/proc/net/arp").unwrap_or_default();
        let router = |seat: &Seat<'_>| {
            let address = seat.ways.v4.as_ref()?.gateway?;
            let IpAddr::V4(v4) = address else { return None };
            let hardware = gateways::hardware(&neighbours, seat.interface, v4);
            Some(gateways::Router { interface: seat.interface.to_owned(), address, hardware })
        };
        seats.iter().filter_map(router).collect()
    }

    /// What reverse path filtering does to the proxy's answers.
    fn filters(&self, seats: &[Seat<'_>]) -> Vec<rp_filter::Interface> {
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        let of = |seat: &Seat<'_>| {
            let own = seat.ways.v4.as_ref()?.source;
            let (filter, by_mark) = rp_filter::settings(seat.interface);
            let special = self.proxy.iter().find_map(|remote| {
                let IpAddr::V4(v4) = remote.ip() else { return None };
                let (way, is_default) = rp_filter::route_to(&routes, v4)?;
                (!is_default && way != seat.interface)
                    .then(|| format!("the main table has a route to {v4} by {way}"))
            });
            let twin = || {
                let other = seats.iter().find(|other| {
                    other.interface != seat.interface
                        && other.ways.v4.as_ref().is_some_and(|way| way.source == own)
                })?;
                Some(format!("{} has the same address {own}", other.interface))
            };
            let elsewhere = special.or_else(twin);
            Some(rp_filter::Interface {
                name: seat.interface.to_owned(),
                filter,
                by_mark,
                elsewhere,
            })
        };
        seats.iter().filter_map(of).collect()
    }

    /// Whether strict filtering drops the answer to a question over this way while no client has set its rules.
    fn is_deaf(&self, way: &Way) -> bool {
        let IpAddr::V4(remote) = way.remote.ip() else { return false };
        if self.patient.runs() || rp_filter::settings(&way.interface).0 != 1 {
            return false;
        }
        let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
        rp_filter::route_to(&routes, remote).is_none_or(|(by, _)| by != way.interface)
    }

    /// The flows of a link that the firewall must let through.
    fn needed(&self, seat: &Seat<'_>) -> Vec<Needed> {
        let interface = seat.interface.to_owned();
        let flows = self.ways(seat, self.proxy).into_iter().flat_map(|way| {
            let (port, ipv4) = (way.remote.port(), way.remote.is_ipv4());
            let out = Flow {
                ipv4,
                output: Some(interface.clone()),
                destination_port: Some(port),
                ..Flow::new(Hook::Output)
            };
            let back = Flow {
                ipv4,
                state: State::Established,
                input: Some(interface.clone()),
                source_port: Some(port),
                ..Flow::new(Hook::Input)
            };
            [
                (out, format!("datagrams to UDP {port}")),
                (back, format!("the proxy's answers from UDP {port}")),
            ]
        });
        flows.map(|(flow, what)| Needed { subject: seat.name.clone(), what, flow }).collect()
    }

    fn is_filtered(&self, seat: &Seat<'_>) -> bool {
        let Nft::Rules(rules) = &self.patient.nft else { return false };
        self.needed(seat).iter().any(|needed| rules.drops(&needed.flow))
    }

    /// Tries all links beside each other. A link that the daemon has up is not tried: it shows itself.
    fn try_links(&self, seats: &[Seat<'_>]) -> (reach::Facts<'a>, Vec<paths::Sizes>) {
        let key = self.config.proxy.public_key;
        let trials: Vec<Trial> = seats.iter().map(|seat| self.trial(seat)).collect();
        let found: Vec<(reach::Tried, Option<probe::PathMtu>)> = thread::scope(|scope| {
            let running: Vec<_> =
                trials.into_iter().map(|trial| scope.spawn(move || trial.run(&key))).collect();
            running.into_iter().filter_map(|one| one.join().ok()).collect()
        });
        let sizes = seats
            .iter()
            .zip(&found)
            .map(|(seat, (_, path))| paths::Sizes {
                link: seat.name.clone(),
                interface: seat.interface.to_owned(),
                mtu: seat.ways.mtu,
                path: *path,
                black_holes: seat.shown.map_or(0, |link| link.black_holes),
            })
            .collect();
        let links: Vec<reach::Tried> = found.into_iter().map(|(tried, _)| tried).collect();
        let replies = links.iter().flat_map(|link| &link.asked);
        let reached = replies.into_iter().any(|(_, reply)| matches!(reply, Reply::Answer(_)));
        let elsewhere = if reached { Vec::new() } else { self.look_elsewhere(seats, &key) };
        let facts = reach::Facts {
            links,
            elsewhere,
            is_known: !self.proxy.is_empty(),
            key: key.to_string(),
            file: &self.patient.file,
        };
        (facts, sizes)
    }

    fn trial(&self, seat: &Seat<'_>) -> Trial {
        // What goes over TLS shows nothing of UDP.
        let up = seat.shown.filter(|link| link.state == LinkState::Up && !link.over_tls);
        let ways = self.ways(seat, self.proxy);
        let heard: Vec<Way> = ways.iter().filter(|way| !self.is_deaf(way)).cloned().collect();
        Trial {
            link: seat.name.clone(),
            interface: seat.interface.to_owned(),
            mtu: u16::try_from(seat.ways.mtu.min(1500)).unwrap_or(1500),
            is_deaf: !ways.is_empty() && heard.is_empty() && up.is_none(),
            is_filtered: self.is_filtered(seat),
            ways: heard,
            tls_port: self.config.proxy.tls_port_in_use(),
            known: up.and_then(|link| {
                let rtt = link.srtt_ms.unwrap_or_default().clamp(0.0, 1e6) / 1e3;
                let reply = Reply::Answer(std::time::Duration::from_secs_f64(rtt));
                let path =
                    link.path_mtu.map(|mtu| probe::PathMtu { passes: Some(mtu), told: false });
                Some((link.remote?, reply, path))
            }),
        }
    }

    /// The proxy's hosts at the usual ports, over the first link that has a way.
    fn look_elsewhere(&self, seats: &[Seat<'_>], key: &PublicKey) -> Vec<(SocketAddr, Reply)> {
        let others: Vec<SocketAddr> = self
            .proxy
            .iter()
            .flat_map(|at| USUAL_PORTS.map(|port| SocketAddr::new(at.ip(), port)))
            .filter(|at| !self.proxy.contains(at))
            .collect();
        let ways = seats.iter().map(|seat| self.ways(seat, &others));
        let ways =
            ways.map(|ways| ways.into_iter().filter(|way| !self.is_deaf(way)).collect::<Vec<_>>());
        let Some(ways) = ways.into_iter().find(|ways| !ways.is_empty()) else { return Vec::new() };
        ask_all(&ways, key)
    }
}

/// Asks over all these ways beside each other.
fn ask_all(ways: &[Way], key: &PublicKey) -> Vec<(SocketAddr, Reply)> {
    thread::scope(|scope| {
        let running: Vec<_> = ways
            .iter()
            .map(|way| scope.spawn(move || (way.remote, probe::ask(way, key))))
            .collect();
        running.into_iter().filter_map(|one| one.join().ok()).collect()
    })
}

/// What is tried over one link, on a thread of its own.
struct Trial {
    link: String,
    interface: String,
    /// Largest packet worth trying: no path of the Internet carries more.
    mtu: u16,
    is_deaf: bool,
    is_filtered: bool,
    ways: Vec<Way>,
    /// The TCP port to which links over TLS go, where they may.
    tls_port: Option<u16>,
    /// What the daemon knows of a link that is up: where, how far, how large.
    known: Option<(SocketAddr, Reply, Option<probe::PathMtu>)>,
}

impl Trial {
    fn run(self, key: &PublicKey) -> (reach::Tried, Option<probe::PathMtu>) {
        let (asked, path) = match self.known {
            Some((remote, reply, path)) => (vec![(remote, reply)], path),
            None => {
                let asked = ask_all(&self.ways, key);
                let answers = |way: &&Way| {
                    asked
                        .iter()
                        .any(|(at, reply)| *at == way.remote && matches!(reply, Reply::Answer(_)))
                };
                let path =
                    self.ways.iter().find(answers).map(|way| probe::path_mtu(way, key, self.mtu));
                (asked, path)
            }
        };
        let silent = asked.iter().all(|(_, reply)| *reply == Reply::Silence);
        let web = match self.ways.first() {
            Some(way) if silent && !self.is_deaf => Some(probe::web(way).unwrap_or(Web::Silence)),
            _ => None,
        };
        let answers = asked.iter().any(|(_, reply)| matches!(reply, Reply::Answer(_)));
        let over_tls = self.ways.first().zip(self.tls_port).filter(|_| !answers);
        let tls = over_tls.map(|(way, port)| probe::ask_over_tls(way, port, key));
        let tried = reach::Tried {
            link: self.link,
            interface: self.interface,
            asked,
            tls,
            web,
            is_deaf: self.is_deaf,
            is_filtered: self.is_filtered,
        };
        (tried, path)
    }
}

/// The best default way of IPv4 packets in the main table.
pub(super) fn default_interface(survey: &Survey) -> Option<u32> {
    let main = survey.gateways.iter().filter(|way| way.table == MAIN_TABLE);
    main.filter(|way| way.family == Family::V4).map(|way| way.index).next()
}
