//! One proxy's place: the client towards it.

use std::net::SocketAddr;

use arrayvec::ArrayVec;
use ropewalk_settings::PublicKey;

use super::SILENT_AFTER;
use super::links::FleetLink;
use crate::client::{Client, ClientEvent, LinkKey};
use crate::config::LinkConfig;
use crate::fleet::pins::{Pins, Session};
use crate::packet::{Packet, PacketView};
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};

/// A link may have been down for a moment only: even a proxy that lost them all has so long to answer.
const MIN_PATIENCE: Duration = Duration::from_millis(150);

/// Events kept of a session that is being opened: more than it has.
const MAX_EVENTS: usize = 64;

/// The client towards one proxy.
pub(super) struct Slot {
    pub(super) key: PublicKey,
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) client: Client,
    /// What happened while it was not in use.
    pub(super) events: Vec<ClientEvent>,
    /// It has no links yet: the present proxy is to know first that the client moves.
    pub(super) waits: bool,
}

impl Slot {
    pub(super) const fn new(key: PublicKey, addresses: Vec<SocketAddr>, client: Client) -> Self {
        Self { key, addresses, client, events: Vec::new(), waits: false }
    }

    /// Whether a link of its session carries packets.
    pub(super) fn is_up(&self) -> bool {
        self.client.is_up()
    }

    /// How long its proxy may be silent before another is used.
    pub(super) fn patience(&self) -> Duration {
        self.client.patience().map_or(SILENT_AFTER, |patience| patience.max(MIN_PATIENCE))
    }

    /// The link as it leads to this proxy; it is taken out where it does not. One that waits has none.
    pub(super) fn set_link(
        &mut self,
        now: Instant,
        key: LinkKey,
        link: Option<&FleetLink>,
        sink: &mut impl PacketSink,
    ) {
        if self.waits {
            return;
        }
        let config = link.map(|link| LinkConfig {
            paths: paths(link, &self.addresses).collect(),
            ..link.config.clone()
        });
        let config = config.filter(|config| !config.paths.is_empty());
        // There are never more links than a client takes, and each has a path.
        let _ = self.client.set_link(now, key, config, sink);
    }

    pub(super) fn keep_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if self.events.len() < MAX_EVENTS {
                self.events.push(event);
            }
        }
    }
}

/// The paths of a link to these addresses, at most as many as a link has.
pub(super) fn paths<'a>(
    link: &'a FleetLink,
    addresses: &'a [SocketAddr],
) -> impl Iterator<Item = Path> + 'a {
    let is_first = |at: usize| {
        let before = &addresses[..at];
        !link.any_port || before.iter().all(|other| other.ip() != addresses[at].ip())
    };
    let paths: ArrayVec<Path, { crate::config::MAX_PATHS }> = addresses
        .iter()
        .enumerate()
        .filter(|(at, _)| is_first(*at))
        .filter_map(|(_, remote)| {
            let same = |(is_ipv4, _): &&(bool, _)| *is_ipv4 == remote.is_ipv4();
            let (_, socket) = link.sockets.iter().find(same)?;
            // The socket is bound to one address, so the path does not name it.
            Some(Path { socket: *socket, local: None, remote: *remote })
        })
        .take(crate::config::MAX_PATHS)
        .collect();
    paths.into_iter()
}

/// Notes which flows come down a session.
pub(super) struct Noting<'a, S> {
    pub(super) sink: &'a mut S,
    pub(super) pins: &'a mut Pins,
    pub(super) session: Session,
    pub(super) now: Instant,
}

impl<S: PacketSink> PacketSink for Noting<'_, S> {
    fn deliver(&mut self, packet: Packet<'_>) {
        if let Ok(view) = PacketView::parse(packet.bytes) {
            self.pins.down(self.now, &view, self.session);
        }
        self.sink.deliver(packet);
    }
}

#[cfg(test)]
mod tests {
    use arrayvec::ArrayString;
    use ropewalk_settings::{Keepalive, LinkPolicy};

    use super::*;
    use crate::path::SocketId;

    #[test]
    fn a_link_to_any_port_has_one_path_to_each_address_of_its_families() {
        let config = LinkConfig {
            name: ArrayString::new(),
            paths: ArrayVec::new(),
            keepalive: Keepalive::Off,
            metered: false,
            mtu: None,
            policy: LinkPolicy::default(),
        };
        let link = |any_port| FleetLink {
            config: config.clone(),
            sockets: [(true, SocketId(3))].into_iter().collect(),
            any_port,
        };
        let addresses =
            ["192.0.2.1:51900", "192.0.2.1:443", "[2001:db8::1]:51900", "192.0.2.2:51900"]
                .map(|address| address.parse().unwrap());
        let ports = |link: &FleetLink| -> Vec<String> {
            paths(link, &addresses).map(|path| path.remote.to_string()).collect()
        };
        assert_eq!(ports(&link(true)), ["192.0.2.1:51900", "192.0.2.2:51900"]);
        let all = ["192.0.2.1:51900", "192.0.2.1:443", "192.0.2.2:51900"];
        assert_eq!(ports(&link(false)), all);
    }
}
