//! What a running daemon says of itself, looked at twice; without names of clients and devices, without the addresses of anybody's
//! flows, and without the programs and domains that are chosen for the tunnel.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::thread;
use std::time::Duration;

use ropewalk_control::api::{
    DevicesReport, FlowWait, FlowsReport, LanStatus, PeerOrigin, PeersReport, Request, Response,
    Role, StatusReport, TunnelState,
};
use ropewalk_control::client::call_blocking;
use ropewalk_control::metrics;
use ropewalk_control::why::judge;
use ropewalk_settings::figures::rate;

use super::hide::Hider;
use crate::commands::{ask, status};
use crate::exit::Failure;
use crate::render;

/// Between the two looks: `ropewalk why` takes as long.
pub(crate) const BETWEEN: Duration = Duration::from_secs(2);

/// Tunnels that are told of in full: those with a session come first.
const MOST_TUNNELS: usize = 24;

/// Tunnels whose flows are asked for.
const MOST_FLOWING: usize = 8;

/// Flows of each that are looked at.
const MOST_FLOWS: usize = 1000;

/// Columns of what is made for terminals.
pub(crate) const COLUMNS: u16 = 110;

/// What was seen.
#[derive(Debug)]
pub(crate) struct Looked {
    earlier: StatusReport,
    later: StatusReport,
    flows: Vec<FlowsReport>,
    /// Of a proxy.
    peers: Option<PeersReport>,
    /// Of a client.
    devices: Option<DevicesReport>,
    /// Tunnels beyond [`MOST_TUNNELS`].
    left_out: usize,
}

/// Looks twice; of a proxy at one client, if that is said.
pub(crate) fn look(socket: &Path, peer: Option<&str>) -> Result<Looked, Failure> {
    let once = || -> Result<_, Failure> {
        let mut report = ask::status(Some(socket))?;
        if let Some(peer) = peer {
            status::select(&mut report, peer)?;
        }
        report.tunnels.sort_by_key(|tunnel| tunnel.session.is_none());
        let left_out = report.tunnels.len().saturating_sub(MOST_TUNNELS);
        report.tunnels.truncate(MOST_TUNNELS);
        Ok((report, left_out))
    };
    let (earlier, _) = once()?;
    // What flows carry is counted from the first question on.
    flows(socket, &earlier);
    thread::sleep(BETWEEN);
    let (later, left_out) = once()?;
    let flows = flows(socket, &later);
    let more = match later.daemon.role {
        Role::Client => Request::Devices,
        Role::Proxy => Request::Peers,
    };
    let (peers, devices) = match call_blocking(socket, &more) {
        Ok(Response::Peers(peers)) => (Some(*peers), None),
        Ok(Response::Devices(devices)) => (None, Some(*devices)),
        // The status says most of it.
        Ok(_) | Err(_) => (None, None),
    };
    Ok(Looked { earlier, later, flows, peers, devices, left_out })
}

/// What the flows of the tunnels do. Where that is not known, less is said.
fn flows(socket: &Path, report: &StatusReport) -> Vec<FlowsReport> {
    let up = report.tunnels.iter().filter(|tunnel| tunnel.state == TunnelState::Up);
    let of = |peer: &str| {
        let peer = (report.daemon.role == Role::Proxy).then_some(peer);
        ask::flows(Some(socket), peer, MOST_FLOWS).ok()
    };
    up.take(MOST_FLOWING).filter_map(|tunnel| of(&tunnel.peer)).collect()
}

impl Looked {
    /// The daemon's process.
    pub(crate) const fn pid(&self) -> u32 {
        self.later.daemon.pid
    }

    /// Tells `hider` which names in it are of hosts, of clients, of devices, and of what is chosen for the tunnel.
    pub(crate) fn learn(&self, hider: &mut Hider) {
        for rule in self.earlier.rules.iter().chain(&self.later.rules) {
            hider.learn_entry(&rule.rule);
            rule.cgroups.iter().for_each(|path| hider.learn_group(path));
        }
        for tunnel in &self.later.tunnels {
            match self.later.daemon.role {
                Role::Client => hider.learn_host(&tunnel.peer),
                Role::Proxy => hider.learn_client(&tunnel.peer),
            }
        }
        let forwards = self.later.proxy.iter().flat_map(|proxy| &proxy.forwards);
        forwards.for_each(|forward| hider.learn_client(&forward.to));
        if let Some(known) = &self.peers {
            let joined = known.peers.iter().map(|peer| &peer.name);
            let invited = known.invitations.iter().map(|invited| &invited.name);
            joined.chain(invited).for_each(|name| hider.learn_client(name));
        }
        let devices = self.devices.iter().flat_map(|report| &report.devices);
        let names = devices.filter_map(|device| device.name.as_deref());
        names.for_each(|name| hider.learn_device(name));
    }

    /// The same without names of clients, addresses of flows, and what is chosen for the tunnel, so that nothing that is made of it
    /// has them.
    pub(crate) fn without_names(mut self, hider: &mut Hider) -> Self {
        let role = self.later.daemon.role;
        let rename = |peer: &mut String, hider: &mut Hider| {
            if role == Role::Proxy {
                *peer = hider.client(peer);
            }
        };
        for report in [&mut self.earlier, &mut self.later] {
            for warning in &mut report.daemon.warnings {
                *warning = hider.prose(warning);
            }
            for tunnel in &mut report.tunnels {
                rename(&mut tunnel.peer, hider);
                let reasons = tunnel.links.iter_mut().map(|link| &mut link.reason);
                for reason in reasons.chain([&mut tunnel.reason]).flatten() {
                    *reason = hider.prose(reason);
                }
            }
            for forward in report.proxy.iter_mut().flat_map(|proxy| &mut proxy.forwards) {
                rename(&mut forward.to, hider);
                for text in forward.reason.iter_mut().chain(&mut forward.notes) {
                    *text = hider.prose(text);
                }
            }
            for rule in &mut report.rules {
                rule.rule = hider.entry(&rule.rule);
                rule.cgroups.clear();
                if let Some(note) = &mut rule.note {
                    *note = hider.prose(note);
                }
            }
        }
        for flows in &mut self.flows {
            rename(&mut flows.peer, hider);
            for flow in &mut flows.recent {
                flow.source = NOBODY;
                flow.destination = NOBODY;
            }
            for flow in &mut flows.flows {
                flow.source = NOBODY;
                flow.destination = NOBODY;
            }
        }
        self
    }

    /// As `ropewalk status` shows it.
    pub(crate) fn status(&self) -> String {
        let mut text = render::status(&self.later, false, COLUMNS);
        if self.left_out > 0 {
            text += &format!("\nand {} more clients\n", self.left_out);
        }
        text
    }

    /// The whole document.
    pub(crate) fn document(&self) -> Result<String, String> {
        serde_json::to_string_pretty(&self.later).map_err(|error| error.to_string())
    }

    /// What limits each link.
    pub(crate) fn why(&self) -> String {
        render::why(&judge(&self.earlier, &self.later, &self.flows), COLUMNS)
    }

    /// The numbers for Prometheus.
    pub(crate) fn numbers(&self) -> String {
        metrics::text(&self.later)
    }

    /// How many flows there are, of which kind, and what they wait for.
    pub(crate) fn flows(&self) -> String {
        if self.flows.is_empty() {
            return "no tunnel is up, or it tells of no flows\n".to_owned();
        }
        self.flows.iter().map(sum).collect()
    }

    /// How many clients a proxy has; `None` for a client.
    pub(crate) fn clients(&self) -> Option<String> {
        self.peers.as_ref().map(clients)
    }

    /// How many devices are behind a client, and whether they are handed out addresses; `None` where it shares nothing.
    pub(crate) fn devices(&self) -> Option<String> {
        self.devices.as_ref().filter(|report| !report.lans.is_empty()).map(devices)
    }
}

/// Stands for the addresses of a flow.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// One tunnel's flows in some lines.
fn sum(flows: &FlowsReport) -> String {
    let FlowsReport { peer, scheduler, left_out, uncounted_bytes, .. } = flows;
    let mut text = format!(
        "tunnel with {peer}, scheduler {scheduler}: {} flows, {left_out} more, {uncounted_bytes} bytes of others\n",
        flows.recent.len() + flows.flows.len()
    );
    let mut kinds = Counts::default();
    let mut waits = Counts::default();
    let mut links = Counts::default();
    for flow in &flows.recent {
        kinds.add(protocol(flow.protocol));
        waits.add(wait(&flow.waits_for));
        links.add(&match flow.links.len() {
            1 => "by one link".to_owned(),
            several => format!("by {several} links"),
        });
    }
    for flow in &flows.flows {
        kinds.add(protocol(flow.protocol));
        links.add(&format!("by {}", flow.link));
    }
    let bps: f64 = flows.recent.iter().map(|flow| flow.rate_bps).sum();
    if let Some(over_s) = flows.recent_over_s {
        text += &format!("  together {} over {over_s:.1} s\n", rate(bps));
    }
    for (what, counts) in [("of", kinds), ("waiting for", waits), ("carried", links)] {
        text += &counts.line(what);
    }
    text
}

const fn protocol(number: Option<u8>) -> &'static str {
    match number {
        Some(1 | 58) => "ICMP",
        Some(6) => "TCP",
        Some(17) => "UDP",
        Some(_) => "other protocols",
        None => "fragments",
    }
}

const fn wait(wait: &FlowWait) -> &'static str {
    match wait {
        FlowWait::Nothing => "nothing",
        FlowWait::Sender => "their senders",
        FlowWait::Receiver => "their receivers",
        FlowWait::Repair => "repairs",
        FlowWait::Turn { .. } => "their turn",
        FlowWait::Link { .. } => "a link where they arrive first",
        FlowWait::Bound { .. } => "a link that they have to take",
        FlowWait::Room => "room",
        FlowWait::Links => "a link that works",
    }
}

/// How many of each.
#[derive(Default)]
struct Counts(BTreeMap<String, usize>);

impl Counts {
    fn add(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    fn line(&self, what: &str) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let parts = self.0.iter().map(|(name, count)| format!("{count} {name}"));
        format!("  {what}: {}\n", parts.collect::<Vec<_>>().join(", "))
    }
}

fn clients(peers: &PeersReport) -> String {
    let mut states = Counts::default();
    for peer in &peers.peers {
        let state = peer.state.map_or_else(|| "not known".to_owned(), |state| state.to_string());
        states.add(&state);
        states.add(match peer.origin {
            PeerOrigin::Config => "of the config",
            PeerOrigin::Invitation => "joined by an invitation",
        });
    }
    let expired = peers.invitations.iter().filter(|invited| invited.expired).count();
    let open = peers.invitations.len() - expired;
    format!(
        "{} clients; {open} open invitations, {expired} expired ones\n{}",
        peers.peers.len(),
        states.line("of them")
    )
}

fn devices(report: &DevicesReport) -> String {
    let of_lan = |lan: &LanStatus| {
        let LanStatus { interface, dhcp, leases, .. } = lan;
        let trouble = lan.trouble.as_deref().map_or_else(String::new, |why| format!(" ({why})"));
        format!("{interface}: addresses handed out: {dhcp}{trouble}, {leases} lent\n")
    };
    let lans: String = report.lans.iter().map(of_lan).collect();
    let count = report.devices.len() + report.left_out;
    let named = report.devices.iter().filter(|device| device.name.is_some()).count();
    let limited = report.devices.iter().filter(|device| device.limit.is_some()).count();
    format!("{lans}{count} devices, of which {named} say a name, and {limited} have a limit\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::RuleStatus;
    use ropewalk_settings::{Selector, Side, Text as _};

    fn looked(role: Role) -> Looked {
        let text = match role {
            Role::Client => include_str!("../../../control/tests/status/client.json"),
            Role::Proxy => include_str!("../../../control/tests/status/proxy.json"),
        };
        let mut later: StatusReport = serde_json::from_str(text).unwrap();
        later.daemon.warnings.push("Käthe's \"van\" \\ 2 and laptop: look".to_owned());
        let flow = r#"{"source":"10.77.0.2","destination":"192.168.7.9","protocol":6,"source_port":5,
            "destination_port":443,"rate_bps":5e6,"links":[{"link":"wlan","bytes":5,"share":1.0}],
            "under_way_bytes":5,"waiting_bytes":5,"to_repair":0,"waits_for":{"what":"room"},"why":"room"}"#;
        let peer = later.tunnels[0].peer.clone();
        let flows = FlowsReport {
            peer,
            scheduler: "arrival".to_owned(),
            recent: vec![serde_json::from_str(flow).unwrap()],
            recent_over_s: Some(2.0),
            ..FlowsReport::default()
        };
        let earlier = later.clone();
        Looked { earlier, later, flows: vec![flows], peers: None, devices: None, left_out: 0 }
    }

    #[test]
    fn nothing_that_is_made_of_a_proxys_status_names_a_client() {
        let seen = looked(Role::Proxy);
        let mut hider = Hider::new(false);
        seen.learn(&mut hider);
        let seen = seen.without_names(&mut hider);
        let made =
            [seen.status(), seen.document().unwrap(), seen.why(), seen.numbers(), seen.flows()];
        for text in made {
            let text = hider.text(&text);
            for name in ["laptop", "Käthe", "\"van", "192.168.7.9", "s1FpzOKrXrjZGZ0lFOp2qo"] {
                assert!(!text.contains(name), "{name} in {text}");
            }
        }
        assert!(seen.document().unwrap().contains("<client-"));
    }

    #[test]
    fn nothing_that_is_made_of_a_clients_status_says_what_is_chosen_for_the_tunnel() {
        let mut seen = looked(Role::Client);
        let rule = |entry: &str, note: &str| RuleStatus {
            rule: Selector::from_text(entry).unwrap(),
            side: Side::Outside,
            packets: 5,
            bytes: 500,
            cgroups: vec!["user.slice/user-1000.slice/app-banking-7.scope".to_owned()],
            addresses: None,
            note: Some(note.to_owned()),
        };
        let warning = "domain:bank.example: no; user.slice/user-1000.slice/app-banking-7.scope";
        seen.later.daemon.warnings.push(warning.to_owned());
        seen.later.rules = vec![
            rule("domain:bank.example", "asked at www.bank.example"),
            rule("unit:app-banking-*.scope", "not running"),
            rule("user:berta", "no user has this name"),
            rule("user:1000", "of berta"),
        ];
        seen.earlier = seen.later.clone();
        let mut hider = Hider::new(false);
        seen.learn(&mut hider);
        let seen = seen.without_names(&mut hider);
        for text in [seen.status(), seen.document().unwrap(), seen.why(), seen.numbers()] {
            let text = hider.text(&text);
            for name in ["bank", "berta", "app-"] {
                assert!(!text.contains(name), "{name} in {text}");
            }
        }
        let status = seen.status();
        for entry in ["domain:<host-", "unit:<unit-1>", "user:<user-1>", "user:1000 around"] {
            assert!(status.contains(entry), "{entry} in {status}");
        }
    }

    #[test]
    fn a_clients_proxy_is_a_host_and_its_flows_are_summed() {
        let seen = looked(Role::Client);
        let mut hider = Hider::new(false);
        seen.learn(&mut hider);
        let seen = seen.without_names(&mut hider);
        let status = hider.text(&seen.status());
        assert!(status.contains("<host-1>:51900") && !status.contains("vps.example"), "{status}");
        assert!(status.contains("wlan"), "{status}");
        let flows = hider.text(&seen.flows());
        let expected = "\
tunnel with <host-1>:51900, scheduler arrival: 1 flows, 0 more, 0 bytes of others
  together 5 Mbit/s over 2.0 s
  of: 1 TCP
  waiting for: 1 room
  carried: 1 by one link
";
        assert_eq!(flows, expected);
    }
}
