//! A tunnel that is not alone on its access link: others' connections cross its first link beside it, as they are
//! or through a second tunnel.

use std::net::SocketAddr;

use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_settings::Keepalive;

use crate::lab::{Delivered, PROXY, Towards};
use crate::limit::UDP_HEADERS;
use crate::netem::{Conditions, Cut};
use crate::network::Network;
use crate::pair::{TunnelLab, link_config, tunnels};
use crate::tcp;

/// The tunnel and who is there beside it.
pub struct Company {
    /// The tunnel, whose first link is shared.
    pub lab: TunnelLab,
    /// Connections from this number on are others'.
    pub others_from: u16,
    /// Through what theirs go, if not as they are. Its datagrams cross the first link of the other.
    second: Option<TunnelLab>,
    /// What came of theirs.
    came: Vec<(Towards, Delivered)>,
}

impl Company {
    /// Nobody is there.
    #[must_use]
    pub const fn nobody(lab: TunnelLab) -> Self {
        Self { lab, others_from: u16::MAX, second: None, came: Vec::new() }
    }

    /// Others' connections go through a tunnel set like this from now on.
    pub fn open_second(&mut self, client: &TunnelConfig, proxy: &TunnelConfig, seed: u64) {
        let mut second = tunnels(client, proxy, seed);
        second.run_until(self.lab.now);
        second.record = true;
        // All that it sends is recorded on the way into a link that carries nothing, and crosses the shared one.
        let nowhere = Conditions { cut: Some(Cut::Arrivals), ..Conditions::default() };
        let path = second.add_link(nowhere.clone(), nowhere, seed);
        // A tunnel without links has room for one.
        let _ = second.client.add_link(second.now, &link_config("a", path, Keepalive::default()));
        self.second = Some(second);
    }

    /// The longest packet that others may send.
    #[must_use]
    pub fn others_mtu(&self, bare: u16) -> u16 {
        let inner = |tunnel: &TunnelLab| tunnel.client.stats().inner_mtu;
        self.second.as_ref().map_or(bare, |tunnel| inner(tunnel).unwrap_or(1200))
    }

    /// Hands what the second tunnel sent to the shared link, and what came out of that to the second tunnel, or to
    /// whoever asks.
    fn exchange(&mut self) {
        let now = self.lab.now;
        let Some(second) = &mut self.second else {
            return self.came.append(&mut self.lab.foreign);
        };
        for (towards, delivered) in std::mem::take(&mut self.lab.foreign) {
            let path = path(towards, second.links[0].outer);
            second.inject(towards, path, &delivered.packet);
        }
        for (towards, _, datagram) in std::mem::take(&mut second.recorded) {
            let size = datagram.len() + usize::from(UDP_HEADERS);
            self.lab.links[0].share(now, towards, datagram, size);
        }
    }
}

/// Where a datagram comes from that goes towards this end, by whose client is seen at `outer`.
const fn path(towards: Towards, outer: SocketAddr) -> Path {
    let remote = match towards {
        Towards::Client => PROXY,
        Towards::Proxy => outer,
    };
    Path { socket: SocketId(0), local: None, remote }
}

impl Network for Company {
    fn now(&self) -> Instant {
        self.lab.now
    }

    fn send(&mut self, from: Towards, packet: &[u8]) {
        if tcp::read(packet).is_none_or(|(flow, _)| flow < self.others_from) {
            self.lab.send(from, packet);
        } else if let Some(second) = &mut self.second {
            second.send(from, packet);
            self.exchange();
        } else {
            let now = self.lab.now;
            self.lab.links[0].share(now, from.opposite(), packet.to_vec(), packet.len());
        }
    }

    fn delivered(&mut self, at: Towards) -> Vec<Delivered> {
        let mut delivered = self.lab.delivered(at);
        delivered.extend(self.second.iter_mut().flat_map(|second| second.delivered(at)));
        let others = self.came.extract_if(.., |(towards, _)| *towards == at);
        delivered.extend(others.map(|(_, delivered)| delivered));
        delivered
    }

    fn next_event(&self) -> Option<Instant> {
        earliest(self.lab.next_event(), self.second.as_ref().and_then(TunnelLab::next_event))
    }

    fn run_until(&mut self, end: Instant) {
        // What one tunnel does matters to the other at once.
        while self.second.is_some()
            && let Some(next) = self.next_event().filter(|next| *next < end)
        {
            self.step(next);
        }
        self.step(end);
    }
}

impl Company {
    fn step(&mut self, at: Instant) {
        let at = at.max(self.lab.now);
        self.lab.run_until(at);
        if let Some(second) = &mut self.second {
            second.run_until(at);
        }
        self.exchange();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pair::conditions;
    use crate::stream::run_all;
    use crate::tcp::{Load, TcpFlow};

    const LENGTH: Duration = Duration::from_secs(20);

    fn site() -> Company {
        let config = TunnelConfig::default();
        let mut lab = tunnels(&config, &config, 1);
        let path = lab.add_link(conditions(10.0, 20, 100), conditions(10.0, 20, 100), 1);
        lab.client.add_link(lab.now, &link_config("a", path, Keepalive::default())).unwrap();
        Company::nobody(lab)
    }

    /// What one connection through the tunnel and one of others beside it get, Mbit/s.
    fn side_by_side(mut site: Company) -> [f64; 2] {
        site.run_until(Instant::from_millis(3_000));
        let start = site.now();
        site.others_from = 1;
        let flow = |mtu| TcpFlow::new(Towards::Client, Load::For(LENGTH), mtu, start);
        let mut flows = [flow(1_400), flow(site.others_mtu(1500).min(1_400))];
        run_all(&mut site, &mut [], &mut flows, start + LENGTH);
        assert!(flows.iter().all(|flow| flow.wrong() == 0));
        let theirs = site.lab.links[0].down.foreign_counters().delivered_bytes;
        assert!(theirs > flows[1].received(), "all of theirs crosses the shared link");
        [0, 1].map(|flow| flows[flow].mbit_between(start, start + LENGTH))
    }

    #[test]
    fn a_connection_beside_the_tunnel_shares_its_link() {
        let [ours, theirs] = side_by_side(site());
        assert!(ours > 2.0 && theirs > 2.0, "{ours} {theirs}");
        assert!((8.0..10.0).contains(&(ours + theirs)), "{ours} {theirs}");
    }

    #[test]
    fn two_tunnels_share_a_link_about_equally() {
        let mut site = site();
        let config = TunnelConfig::default();
        site.open_second(&config, &config, 2);
        let [ours, theirs] = side_by_side(site);
        assert!(ours > 2.5 && theirs > 2.5, "{ours} {theirs}");
        assert!((8.0..9.3).contains(&(ours + theirs)), "{ours} {theirs}");
    }
}
