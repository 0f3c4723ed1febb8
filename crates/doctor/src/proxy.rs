//! What is examined of a proxy: whether clients get in, and whether their packets get out.

use std::path::{Path, PathBuf};

use ropewalk_client::probe::{self, Survey};
use ropewalk_control::PROXY_SOCKET;
use ropewalk_control::api::Role;
use ropewalk_link_io::netlink::{AddressScope, Family, Interface, MAIN_TABLE};
use ropewalk_proxy::Config;
use ropewalk_proxy::config::Uplinks;
use ropewalk_proxy::forward::conflicts;
use ropewalk_proxy::overlap;
use ropewalk_proxy::port::{holder, tcp_holder};

use super::client::default_interface;
use super::common::Patient;
use super::finding::Finding;
use super::firewall::{self, Flow, Hook, Needed, Nft, State, Transport};
use super::{forward, forwarding, paths, port, rp_filter};
use crate::privilege;

/// All findings about the proxy of this config.
pub(super) fn examine(file: &Path) -> Vec<Finding> {
    let socket = |config: Option<&Config>| {
        config.map_or_else(|| PathBuf::from(PROXY_SOCKET), |config| config.control.socket.clone())
    };
    let patient = Patient::look(Role::Proxy, file, socket, meaning);
    let ports = patient.config.as_ref().map_or_else(Vec::new, ports);
    let lowest = patient.config.as_ref().map_or(u16::MAX, Config::lowest_port);
    let mut findings = patient.examine(privilege::proxy(lowest), false);
    let survey = match probe::survey(None) {
        Ok(survey) => survey,
        Err(error) => {
            findings.push(Finding::fail(
                "uplinks.unknown",
                "uplinks",
                format!("{error:#}"),
                "ip address",
            ));
            return findings;
        }
    };
    let Some(config) = &patient.config else { return findings };
    let tun = config.tun_name.as_str();
    let runs = patient.runs();
    findings.extend(pool(config, file));
    findings.extend(patient.leftovers(tun, &survey.interfaces, &[]));
    let uplinks = uplinks(config, &survey);
    findings.extend(port::judge(&port::Facts {
        ports: if runs {
            Vec::new()
        } else {
            ports.iter().map(|port| (*port, holder(*port))).collect()
        },
        tls: config.tls.as_ref().map(|tls| {
            let port = tls.listen.port();
            (port, if runs { None } else { tcp_holder(port) })
        }),
        uplinks: uplinks.clone(),
        clients: clients(&patient, config),
    }));
    let mut passed = uplinks.clone();
    passed.extend(runs.then(|| tun.to_owned()));
    let ipv6 =
        config.pools.v6().is_some() && survey.gateways.iter().any(|way| way.family == Family::V6);
    findings.extend(forwarding::judge(&forwarding::look(Role::Proxy, runs, ipv6, &passed)));
    findings.extend(rp_filter::judge_proxy(&filters(&survey, tun)));
    if let Nft::Rules(rules) = &patient.nft {
        let tls = config.tls.as_ref().map(|tls| tls.listen.port());
        let mut needed = needed(&ports, tls, tun, &uplinks);
        if !config.forwards.is_empty() {
            needed.extend(needed_by_forwards(tun, &uplinks));
        }
        findings.extend(firewall::judge_rules(rules, &needed));
    }
    findings.extend(forward::judge(&forwards(&patient, config)));
    for tunnel in patient.daemon.status().iter().flat_map(|report| &report.tunnels) {
        findings.extend(paths::judge_seen(&tunnel.peer, &tunnel.links));
    }
    findings
}

/// Whether the pools are others' already. A host that does not tell its routes is no finding: others say so.
fn pool(config: &Config, file: &Path) -> Option<Finding> {
    let overlap = overlap::find(config).ok()??;
    let advice = match overlap.solution() {
        Some(line) => format!("write {line} into {}", file.display()),
        None => format!("give another pool in {}", file.display()),
    };
    let check = format!("ropewalk check-config {}", file.display());
    Some(Finding::fail("pool.overlaps", "pool", overlap.to_string(), check).advise(advice))
}

fn forwards(patient: &Patient<Config>, config: &Config) -> forward::Facts {
    let proxy = patient.daemon.status().and_then(|report| report.proxy.as_ref());
    let in_words = config.forwards.iter().map(|one| format!("{} to {one}", one.ports_in_words()));
    forward::Facts {
        configured: in_words.collect(),
        conflicts: conflicts::find(&conflicts::ports(&config.forwards), true),
        seen: proxy.map(|proxy| proxy.forwards.clone()).unwrap_or_default(),
    }
}

fn meaning(config: &Config) -> String {
    let ports: Vec<_> = ports(config).iter().map(ToString::to_string).collect();
    format!("a proxy at UDP {}, public key {}", ports.join(", "), config.private_key.public_key())
}

fn ports(config: &Config) -> Vec<u16> {
    std::iter::once(config.listen.port()).chain(config.more_ports.iter().copied()).collect()
}

/// Interfaces to the Internet, as far as they are there.
fn uplinks(config: &Config, survey: &Survey) -> Vec<String> {
    let has_way = |one: &&Interface| survey.gateways.iter().any(|way| way.index == one.index);
    let named = |one: &&Interface| match &config.uplinks {
        Uplinks::Auto => one.name != config.tun_name.as_str(),
        Uplinks::Named(names) => names.iter().any(|name| name.as_str() == one.name),
    };
    let found = survey.interfaces.iter().filter(has_way).filter(named);
    found.map(|one| one.name.clone()).collect()
}

/// Who may connect: of the running proxy, else of its files.
fn clients(patient: &Patient<Config>, config: &Config) -> usize {
    match patient.daemon.status() {
        Some(report) => report.tunnels.len(),
        None => config.peers.len() + usize::from(config.registry_file().exists()),
    }
}

/// Interfaces by which clients may come in, and where their answers would leave.
fn filters(survey: &Survey, tun: &str) -> Vec<rp_filter::Interface> {
    let default = default_interface(survey);
    let of = |one: &Interface| {
        let public = one.addresses.iter().any(|address| {
            address.scope == AddressScope::Global
                && matches!(address.net, ipnet::IpNet::V4(v4) if !v4.addr().is_private())
        });
        let ways: Vec<_> = survey.gateways.iter().filter(|way| way.index == one.index).collect();
        let leads_out = public || !ways.is_empty();
        if one.loopback || one.name == tun || !one.up || !leads_out {
            return None;
        }
        let (filter, by_mark) = rp_filter::settings(&one.name);
        // A table of its own is there for its own answers.
        let own_table = ways.iter().any(|way| way.table != MAIN_TABLE);
        let other = default.filter(|index| *index != one.index && !own_table);
        let name = |index| survey.interfaces.iter().find(|other| other.index == index);
        let elsewhere = other
            .and_then(name)
            .map(|other| format!("answers to the Internet leave by {}", other.name));
        Some(rp_filter::Interface { name: one.name.clone(), filter, by_mark, elsewhere })
    };
    survey.interfaces.iter().filter_map(of).collect()
}

/// What the firewall must let through: datagrams of the tunnel in and out, which are not tracked as connections,
/// connections over TLS, and packets of clients both ways.
fn needed(ports: &[u16], tls: Option<u16>, tun: &str, uplinks: &[String]) -> Vec<Needed> {
    let mut needed: Vec<Needed> = ports
        .iter()
        .flat_map(|port| {
            let untracked = |hook| Flow { state: State::Untracked, ..Flow::new(hook) };
            let to = Flow { destination_port: Some(*port), ..untracked(Hook::Input) };
            let from = Flow { source_port: Some(*port), ..untracked(Hook::Output) };
            [
                (to, format!("datagrams to UDP {port} (which are not tracked as connections)")),
                (from, format!("datagrams from UDP {port} (which are not tracked as connections)")),
            ]
        })
        .map(|(flow, what)| Needed { subject: "clients".to_owned(), what, flow })
        .collect();
    needed.extend(tls.map(|port| Needed {
        subject: "clients".to_owned(),
        what: format!("connections to TCP {port}"),
        flow: Flow {
            transport: Transport::Tcp,
            destination_port: Some(port),
            ..Flow::new(Hook::Input)
        },
    }));
    for uplink in uplinks {
        let out = Flow {
            tun: Some(tun.to_owned()),
            input: Some(tun.to_owned()),
            output: Some(uplink.clone()),
            ..Flow::new(Hook::Forward)
        };
        let back = Flow {
            state: State::Established,
            input: out.output.clone(),
            output: out.input.clone(),
            ..out.clone()
        };
        needed.extend([out, back].map(|flow| Needed {
            subject: "clients".to_owned(),
            what: format!("packets between clients and {uplink}"),
            flow,
        }));
    }
    needed
}

/// The same where ports lead to clients: packets that begin something there.
fn needed_by_forwards(tun: &str, uplinks: &[String]) -> Vec<Needed> {
    let needed = |uplink: &String| Needed {
        subject: "forward".to_owned(),
        what: format!("new connections from {uplink} to forwarded ports"),
        flow: Flow {
            tun: Some(tun.to_owned()),
            input: Some(uplink.clone()),
            output: Some(tun.to_owned()),
            ..Flow::new(Hook::Forward)
        },
    };
    uplinks.iter().map(needed).collect()
}
