//! What must hold after every step, and at the end of a schedule.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ropewalk_proto::client::ClientState;
use ropewalk_proto::endpoint::EndpointStats;
use ropewalk_proto::time::Duration;
use ropewalk_settings::PublicKey;

use super::{Machine, To, World};
use crate::Who;

impl World {
    /// Sessions that machines with this key took up.
    pub(super) fn taken_up(&self, key: &PublicKey) -> u64 {
        let with_key = self.machines.iter().filter(|machine| machine.key == *key);
        with_key.map(|machine| machine.established).sum()
    }

    pub(super) fn check(&mut self) {
        let stats = self.proxy.stats();
        for peer in &stats.peers {
            let taken_up = self.taken_up(&peer.key);
            assert!(peer.sessions <= taken_up, "{} sessions, {taken_up} taken up", peer.sessions);
        }
        assert!(stats.pending <= 2 * stats.peers.len(), "{} pending", stats.pending);
        assert!(self.book.0.len() <= 1, "an invitation bound {} keys", self.book.0.len());
        let guests = self.machines.iter().filter(|machine| machine.who == Who::Guest);
        let let_in = guests.filter(|machine| machine.established > 0).count();
        assert!(let_in <= self.book.0.len(), "{let_in} guests came in");
        let mut came = self.proxy_tun.0.clone();
        came.sort_unstable();
        assert!(came.windows(2).all(|two| two[0] < two[1]), "a packet came twice: {came:?}");
        assert!(came.last().is_none_or(|last| *last <= self.packets), "an invented packet");
        for (machine, before) in self.machines.iter().zip(&mut self.epochs) {
            if machine.who == Who::Stranger {
                assert_eq!(machine.established, 0, "a stranger has a session");
                assert!(stats.peers.iter().all(|peer| peer.key != machine.key));
            }
            let Some(client) = &machine.client else { continue };
            let Some(session) = client.session() else { continue };
            let Some(tunnel) = client.stats().tunnel else { continue };
            let index = session.index.get();
            assert!(before.0 != index || tunnel.epoch >= before.1, "an epoch came again");
            assert!(before.0 != index || tunnel.epoch <= before.1 + 1, "an epoch was left out");
            *before = (index, tunnel.epoch);
            let proxy = stats.peers.iter().find(|peer| peer.key == machine.key);
            let proxy = proxy.and_then(|peer| peer.session.as_ref());
            if let Some(proxy) = proxy.filter(|_| self.machines.len() == 1) {
                assert!(proxy.tunnel.epoch.abs_diff(tunnel.epoch) <= 1, "epochs apart");
            }
        }
    }

    /// What is left of the schedule when the network behaves again.
    pub(crate) fn finish(&mut self) {
        // Longer than every pause between two questions, and than keys that were replaced live.
        self.heal(Duration::from_secs(150));
        let old = self.seen.clone();
        let mut connected = BTreeSet::new();
        for at in 0..self.machines.len() {
            let Some(client) = &self.machines[at].client else { continue };
            if matches!(client.state(), ClientState::Connected { .. }) {
                connected.insert(*self.machines[at].key.as_bytes());
                let before = self.proxy_tun.0.len();
                self.send(at);
                self.flush();
                self.heal(Duration::from_secs(1));
                assert_eq!(self.proxy_tun.0.len(), before + 1, "the session carries nothing");
            }
        }
        for machine in &self.machines {
            let is_in = connected.contains(machine.key.as_bytes());
            let may = match machine.who {
                Who::Known(_) => true,
                Who::Guest => self.book.0.contains(&machine.key),
                Who::Stranger => false,
            };
            assert!(machine.client.is_none() || is_in == may, "{:?}: {is_in}, {may}", machine.who);
        }
        // Keys that are used are replaced, and the old ones die.
        for _ in 0..2 {
            for at in 0..self.machines.len() {
                let client = self.machines[at].client.as_ref();
                if client.is_some_and(|client| client.session().is_some()) {
                    self.send(at);
                    self.flush();
                }
            }
            self.heal(Duration::from_secs(15));
        }
        let before = self.shown();
        for datagram in old {
            if !(datagram.to == To::Proxy && datagram.is_handshake()) {
                self.arrive(&datagram);
            }
        }
        let after = self.shown();
        assert_eq!(before, after, "what was said under old keys counts");
    }

    /// All that shows, but for what counts refusals.
    fn shown(&self) -> String {
        let mut proxy: EndpointStats = self.proxy.stats();
        (proxy.drops, proxy.admission) = Default::default();
        for peer in &mut proxy.peers {
            peer.drops = Default::default();
            if let Some(session) = &mut peer.session {
                session.tunnel.drops = Default::default();
            }
        }
        let machine = |machine: &Machine| {
            let client = machine.client.as_ref()?;
            let mut stats = client.stats();
            stats.drops = Default::default();
            if let Some(tunnel) = &mut stats.tunnel {
                tunnel.drops = Default::default();
            }
            Some(format!("{stats:?} {:?} {:?}", client.state(), client.poll_timeout()))
        };
        let machines: Vec<_> = self.machines.iter().map(machine).collect();
        format!("{proxy:?} {:?} {machines:?}", self.proxy.poll_timeout())
    }

    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.shown().hash(&mut hasher);
        let established: Vec<_> = self.machines.iter().map(|machine| machine.established).collect();
        (self.now.as_micros(), &self.under_way, &self.seen, self.packets).hash(&mut hasher);
        (self.left, established, self.book.0.len()).hash(&mut hasher);
        hasher.finish()
    }
}
