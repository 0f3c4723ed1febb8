//! To which client each `[[forward]]` leads, and how it is with it.
//!
//! A client is looked for by its name, wherever it stands: in the config, among those who joined, in the registry of a fleet. What
//! it has not found yet waits; a client that gets another address, or goes, is followed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_control::api::{
    ForwardState, ForwardStatus, ForwardTraffic, OpenInvitation, TunnelState,
};
use ropewalk_settings::{Network, PublicKey};

use super::{Forwarded, Forwards};
use crate::config::{Forward, PeerConfig};
use crate::peers::{Peer, PeerBook};
use crate::status::HostFacts;

/// All of them, in the order of the config.
#[derive(Debug, Default)]
pub struct ForwardBook(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    forward: Forward,
    client: Option<Client>,
    /// Whether its client may only not be known yet: it was not since the proxy's start.
    is_awaited: bool,
}

/// The client that a forward leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    key: PublicKey,
    /// Those of its addresses to which anybody may come.
    inner: Vec<IpAddr>,
}

impl ForwardBook {
    /// Those of the config at the proxy's start.
    #[must_use]
    pub fn new(forwards: &[Forward]) -> Self {
        let entry =
            |forward: &Forward| Entry { forward: forward.clone(), client: None, is_awaited: true };
        Self(forwards.iter().map(entry).collect())
    }

    /// From now on they are these. Those that stay are as they were.
    pub fn take_over(&mut self, forwards: &[Forward]) {
        let mut before = std::mem::take(&mut self.0);
        let entry = |forward: &Forward| {
            let known = before.iter().position(|entry| entry.forward == *forward);
            match known {
                Some(at) => before.swap_remove(at),
                None => Entry { forward: forward.clone(), client: None, is_awaited: false },
            }
        };
        self.0 = forwards.iter().map(entry).collect();
    }

    /// Whether any of these clients is one to which a port leads, or should.
    #[must_use]
    pub fn concerns(&self, gone: &BTreeSet<PublicKey>, come: &[PeerConfig]) -> bool {
        let is_among = |client: &Client| {
            gone.contains(&client.key) || come.iter().any(|peer| peer.public_key == client.key)
        };
        self.0.iter().any(|Entry { forward, client, .. }| {
            client.as_ref().is_some_and(is_among)
                || come.iter().any(|peer| *peer.name == *forward.to)
        })
    }

    /// Looks each client up again. Returns whether any port leads elsewhere than before.
    pub fn follow(&mut self, peers: &PeerBook) -> bool {
        if self.0.is_empty() {
            return false;
        }
        // A fleet may have a million clients: they are looked through once.
        let names: BTreeSet<&str> = self.0.iter().map(|entry| entry.forward.to.as_str()).collect();
        let named = peers.iter().filter(|peer| names.contains(&*peer.name));
        let named: BTreeMap<&str, &Peer> = named.map(|peer| (&*peer.name, peer)).collect();
        let mut changed = false;
        for entry in &mut self.0 {
            let client = named.get(entry.forward.to.as_str()).map(|peer| Client {
                key: peer.public_key,
                inner: peer.addresses().filter(|inner| entry.forward.lets_in(inner)).collect(),
            });
            if client == entry.client {
                continue;
            }
            let (ports, to) = (entry.forward.ports_in_words(), &entry.forward.to);
            match &client {
                Some(Client { inner, .. }) if inner.is_empty() => {
                    tracing::warn!("{ports} leads nowhere: `{to}` has no address for it");
                }
                Some(Client { inner, .. }) => {
                    tracing::info!("{ports} leads to `{to}` at {}", list(inner));
                }
                None => tracing::info!("{ports} waits: no client is called `{to}`"),
            }
            entry.is_awaited &= client.is_none();
            entry.client = client;
            changed = true;
        }
        changed
    }

    /// What the firewall is to do.
    #[must_use]
    pub fn forwards(&self) -> Forwards {
        let mut forwards = Forwards::default();
        for Entry { forward, client, is_awaited } in &self.0 {
            for transport in forward.transports() {
                if *is_awaited {
                    forwards.awaited.add(*transport, forward.ports);
                }
                let Some(client) = client.as_ref().filter(|client| !client.inner.is_empty()) else {
                    continue;
                };
                forwards.active.push(Forwarded {
                    transport: *transport,
                    ports: forward.ports,
                    from: forward.from.iter().copied().map(Network::net).collect(),
                    to: client.inner.clone(),
                    to_port: forward.to_port,
                });
            }
        }
        forwards
    }

    /// What is shown of them. `proxy_of` knows with which other proxy of a fleet a client is connected.
    #[must_use]
    pub fn report(
        &self,
        peers: &PeerBook,
        invited: &[OpenInvitation],
        proxy_of: &dyn Fn(&PublicKey) -> Option<String>,
        host: &HostFacts,
    ) -> Vec<ForwardStatus> {
        let status = |Entry { forward, client, .. }: &Entry| {
            let found = client.as_ref().and_then(|client| Some((client, peers.get(&client.key)?)));
            let (state, reason) = match found {
                Some((client, peer)) => state(&forward.to, client, peer, proxy_of),
                None => (ForwardState::Waiting, Some(waits(&forward.to, invited))),
            };
            let counted = forward.transports().iter().filter_map(|transport| {
                host.forwards.get(&(*transport, forward.ports.first())).copied()
            });
            ForwardStatus {
                protocol: forward.protocol,
                port: forward.ports,
                to: forward.to.clone(),
                to_port: forward.to_port,
                from: forward.from.clone(),
                state,
                reason,
                inner: client.as_ref().map(|client| client.inner.clone()).unwrap_or_default(),
                notes: notes(forward, client.as_ref(), host),
                traffic: counted.fold(ForwardTraffic::default(), ForwardTraffic::with),
            }
        };
        self.0.iter().map(status).collect()
    }
}

impl Forward {
    /// Whether anybody may come to this address of the client: who comes by IPv4 reaches its IPv4 address, and the other way
    /// round.
    fn lets_in(&self, inner: &IpAddr) -> bool {
        let is_of_family = |net: IpNet| net.addr().is_ipv4() == inner.is_ipv4();
        self.from.is_empty() || self.from.iter().any(|from| is_of_family(from.net()))
    }
}

/// Why a forward to a client of this name waits.
fn waits(to: &str, invited: &[OpenInvitation]) -> String {
    match invited.iter().any(|open| open.name == to && !open.expired) {
        true => format!("{to} is invited, and has not joined yet"),
        false => format!("no client is called {to}: `ropewalk peer add NAME` invites one"),
    }
}

/// How it is with a forward to a client that is known, and why.
fn state(
    to: &str,
    client: &Client,
    peer: &Peer,
    proxy_of: &dyn Fn(&PublicKey) -> Option<String>,
) -> (ForwardState, Option<String>) {
    let why = peer.reason().unwrap_or("nobody knows why");
    if client.inner.is_empty() {
        let reason = match peer.addresses().next() {
            Some(_) => format!("`from` names networks of a family of which {to} has no address"),
            None => format!("{to} has no address: {why}"),
        };
        return (ForwardState::Refused, Some(reason));
    }
    let reason = match (peer.state(), proxy_of(&client.key)) {
        (TunnelState::Up, _) => return (ForwardState::Active, None),
        (TunnelState::Stalled, _) => format!("no link of {to} carries packets: {why}"),
        (_, Some(proxy)) => {
            format!("{to} is connected to {proxy}: only a [[forward]] of that proxy reaches it")
        }
        (_, None) => format!("{to} is not connected: {why}"),
    };
    (ForwardState::Away, Some(reason))
}

/// What the owner should know.
fn notes(forward: &Forward, client: Option<&Client>, host: &HostFacts) -> Vec<String> {
    let own = host.conflicts.iter().filter(|conflict| conflict.concerns(forward));
    let mut notes: Vec<String> = own.map(ToString::to_string).collect();
    if client.is_some() {
        notes.extend(host.failure.clone());
    }
    notes
}

fn list(inner: &[IpAddr]) -> String {
    inner.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
    use ropewalk_proto::event::Event;
    use ropewalk_proto::time::Instant;
    use ropewalk_proto::units::LinkId;

    use super::*;
    use crate::allow::Transport;
    use crate::config::Config;
    use crate::forward::conflicts::Conflict;
    use crate::leases::Leases;

    fn config(text: &str) -> Config {
        let text =
            format!("private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n{text}");
        Config::parse(&Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk)).unwrap()
    }

    const THREE: &str = "pool_v6 = \"fd00:9::/64\"\n\
        [[forward]]\nprotocol = \"both\"\nport = 8443\nto = \"laptop\"\nto_port = 443\n\
        [[forward]]\nprotocol = \"udp\"\nport = \"5000-5010\"\nto = \"laptop\"\nfrom = \"2001:db8::/32\"\n\
        [[forward]]\nprotocol = \"tcp\"\nport = 22\nto = \"boat\"\n";

    fn client(number: u8, name: &str) -> PeerConfig {
        PeerConfig {
            name: name.into(),
            public_key: PublicKey::from_bytes([number; 32]),
            disabled: false,
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            prefix_v6: None,
            formerly: None,
        }
    }

    /// A book of these clients.
    fn peers(known: &[PeerConfig], ipv6: bool) -> PeerBook {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let leases = Leases::open(file, config(THREE).pools, known, false).unwrap();
        PeerBook::new(Instant::ZERO, known, leases.table(), ipv6)
    }

    fn leads(book: &ForwardBook) -> Vec<String> {
        let active = book.forwards().active;
        let shown = |one: &Forwarded| {
            let (word, to) = (one.transport.as_str(), list(&one.to));
            format!("{word} {} to {to} {}", one.ports, one.to_port)
        };
        active.iter().map(shown).collect()
    }

    #[test]
    fn a_forward_waits_for_its_client_follows_its_addresses_and_ends_with_it() {
        let config = config(THREE);
        let mut book = ForwardBook::new(&config.forwards);
        assert!(!book.follow(&peers(&[], true)), "nobody is known, as before");
        assert_eq!(leads(&book), [] as [&str; 0]);
        let awaited = book.forwards().awaited;
        assert_eq!((awaited.tcp.len(), awaited.udp.len()), (2, 2));

        let laptop = [client(1, "laptop")];
        assert!(book.concerns(&BTreeSet::new(), &laptop));
        assert!(book.follow(&peers(&laptop, false)) && !book.follow(&peers(&laptop, false)));
        // The other one is for those who come by IPv6 only.
        assert_eq!(leads(&book), ["tcp 8443 to 10.77.0.2 443", "udp 8443 to 10.77.0.2 443"]);
        assert_eq!(book.forwards().awaited.tcp.len(), 1, "boat is not known yet");
        assert!(book.follow(&peers(&laptop, true)));
        assert_eq!(leads(&book)[0], "tcp 8443 to 10.77.0.2, fd00:9::2 443");
        assert_eq!(leads(&book)[2], "udp 5000-5010 to fd00:9::2 5000");

        let key = BTreeSet::from([PublicKey::from_bytes([1; 32])]);
        assert!(book.concerns(&key, &[]) && !book.concerns(&BTreeSet::new(), &[client(3, "c")]));
        assert!(book.follow(&peers(&[], true)));
        let forwards = book.forwards();
        assert!(forwards.active.is_empty() && forwards.awaited.udp.is_empty(), "{forwards:?}");
    }

    #[test]
    fn what_the_config_brings_later_is_not_awaited_and_what_stays_is_as_it_was() {
        let config = config(THREE);
        let mut book = ForwardBook::new(&config.forwards);
        book.follow(&peers(&[client(1, "laptop")], true));
        let mut changed = config.forwards.clone();
        changed[2].to = "van".to_owned();
        book.take_over(&changed);
        assert!(!book.follow(&peers(&[client(1, "laptop")], true)));
        assert_eq!(leads(&book).len(), 3);
        assert!(book.forwards().awaited.is_empty(), "its connections end");
        book.take_over(&[]);
        assert_eq!(book.forwards(), Forwards::default());
    }

    #[test]
    fn a_forward_says_how_it_is_with_its_client() {
        let config = config(THREE);
        let mut book = ForwardBook::new(&config.forwards);
        let mut known = peers(&[client(1, "laptop")], false);
        book.follow(&known);
        let open = |expired| OpenInvitation {
            name: "boat".to_owned(),
            expires: 1,
            expired,
            replaces: false,
        };
        let shown = |known: &PeerBook, invited: &[OpenInvitation], proxy: Option<&str>| {
            let proxy_of = |_: &PublicKey| proxy.map(str::to_owned);
            let report = book.report(known, invited, &proxy_of, &HostFacts::default());
            let words = |one: ForwardStatus| {
                let reason = one.reason.unwrap_or_default();
                format!("{}: {reason}", one.state)
            };
            report.into_iter().map(words).collect::<Vec<_>>()
        };
        let at_first = shown(&known, &[open(true)], None);
        for (found, expected) in at_first.iter().zip([
            "away: laptop is not connected: not seen since the proxy's start",
            "refused: `from` names networks of a family of which laptop has no address",
            "waiting: no client is called boat: `ropewalk peer add NAME` invites one",
        ]) {
            assert_eq!(found, expected);
        }
        let elsewhere = shown(&known, &[open(false)], Some("fra-1"));
        assert!(elsewhere[0].contains("connected to fra-1"), "{elsewhere:?}");
        assert_eq!(elsewhere[2], "waiting: boat is invited, and has not joined yet");
        known.note(Instant::ZERO, &PublicKey::from_bytes([1; 32]), &Event::LinkUp(LinkId(1)));
        assert_eq!(shown(&known, &[], None)[0], "active: ");
    }

    #[test]
    fn what_is_counted_for_both_protocols_is_told_together_with_what_is_in_the_way() {
        let config = config(THREE);
        let book = ForwardBook::new(&config.forwards);
        let traffic = |connections| ForwardTraffic { connections, ..ForwardTraffic::default() };
        let host = HostFacts {
            forwards: [(Transport::Tcp, 2), (Transport::Udp, 3)]
                .map(|(transport, count)| ((transport, 8443), traffic(count)))
                .into(),
            conflicts: vec![Conflict::Listener {
                transport: Transport::Tcp,
                port: 22,
                holder: Some("sshd (process 7)".to_owned()),
            }],
            ..HostFacts::default()
        };
        let report = book.report(&peers(&[], false), &[], &|_| None, &host);
        assert_eq!(report[0].traffic.connections, 5);
        assert_eq!(report[1].traffic, ForwardTraffic::default());
        assert!(report[0].notes.is_empty() && report[1].notes.is_empty());
        assert!(report[2].notes[0].contains("sshd (process 7)"), "{:?}", report[2].notes);
    }
}
