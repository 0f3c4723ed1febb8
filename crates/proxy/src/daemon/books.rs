//! What follows when a change of the books is on disk: clients come in and go out.

use std::collections::BTreeSet;
use std::sync::Arc;

use ropewalk_control::api::{EnabledPeer, RemovedPeer, Response};
use ropewalk_proto::endpoint::Claim;
use ropewalk_proto::fleet::FleetList;
use ropewalk_proto::time::Instant;
use ropewalk_settings::PublicKey;

use super::{Daemon, Host};
use crate::config::PeerConfig;
use crate::leases::Lease;
use crate::registry::{Member, News, Outcome};
use crate::worker::Order;

impl<H: Host> Daemon<H> {
    /// Something that the registry waited for is there.
    pub(super) fn handle_registry(&mut self, now: Instant, news: News) {
        for outcome in self.registry.hear(&self.config, news) {
            match outcome {
                Outcome::Removed(asked, removed) => {
                    self.take_out(now, &removed);
                    asked.answer(Ok(Response::Removed(removed)));
                }
                Outcome::Enabled(asked, enabled) => {
                    self.enable(now, &enabled);
                    asked.answer(Ok(Response::Enabled(enabled)));
                }
                Outcome::Bound(member, lease) => self.let_in(now, &member, lease),
                Outcome::Settled(client, claim) => self.settle(now, &client, claim),
                Outcome::Changed { gone, come } => self.change_peers(now, gone, &come),
                Outcome::NotOurs => {
                    let gone = self.peers.iter().map(|peer| peer.public_key).collect();
                    self.change_peers(now, gone, &[]);
                }
                Outcome::Displaced(client) => self.displace(now, client),
                Outcome::Draining(draining) => self.drain(draining),
                Outcome::Fleet(list) => self.tell_fleet(&list),
            }
        }
    }

    /// Takes a client out that is in the registry no more: its session, then what is shown of it.
    fn take_out(&mut self, now: Instant, removed: &RemovedPeer) {
        // The config file, read again meanwhile, may name it.
        let gone = |key: &&_| self.registry.name_of(&self.config.peers, key).is_none();
        if let Some(key) = removed.public_key.as_ref().filter(gone).copied() {
            self.end_peer(now, key);
            self.peers.remove(&key);
            // Before its addresses are another's.
            self.follow_clients();
            self.registry.forget(&key);
        }
        tracing::info!(peer = removed.name, "removed");
    }

    /// A client gets no session from now on, and the one that it has ends; or it is let in again.
    fn enable(&mut self, now: Instant, client: &EnabledPeer) {
        let EnabledPeer { name, public_key, enabled, .. } = client;
        if self.peers.enable(public_key, *enabled) {
            self.tell_homes(now, &[*public_key]);
        }
        match enabled {
            true => tracing::info!(peer = name, "enabled: it is let in again"),
            false => {
                tracing::info!(peer = name, "disabled: it gets no session until it is enabled");
            }
        }
    }

    /// Lets a client in that joined by an invitation, and answers what it asked. `lease`: its addresses, where they stand in no table
    /// here.
    fn let_in(&mut self, now: Instant, member: &Member, lease: Option<Lease>) {
        let (name, client) = (&member.name, member.public_key);
        tracing::info!(peer = name, key = %client, "joined by its invitation, which is used up");
        // The config file, read again meanwhile, may name it.
        let gone = |key: &PublicKey| self.registry.name_of(&self.config.peers, key).is_none();
        let former = member.formerly.filter(gone);
        // The home of each hears of it before it is handed the message.
        if let Some(old) = former {
            tracing::info!(peer = name, key = %old, "its former key is refused from now on");
            // While it is still known, so that its routes go, and the registry hears of the end.
            self.end_peer(now, old);
        }
        let known = self.registry.name_of(&self.config.peers, &client);
        if known.as_ref() != Some(name) {
            let (_, passed_over) = self.registry.peers(&self.config.peers);
            // The config file, read again since the invitation, names another one so.
            passed_over.iter().for_each(|why| tracing::warn!("{why}"));
            if let Some(old) = former {
                self.peers.remove(&old);
                self.follow_clients();
            }
            return self.settle(now, &client, Claim::Unknown);
        }
        self.registry.admit(&self.config.peers);
        let config = PeerConfig {
            address_v4: lease.map(|lease| lease.v4),
            address_v6: lease.and_then(|lease| lease.v6),
            formerly: former.map(Box::new),
            ..member.config()
        };
        let peer = self.peers.admit(now, &config, self.registry.leases());
        let core = peer.for_core(&self.config, &self.inside);
        self.follow_clients();
        let peers = vec![(client, core.clone())];
        match self.group.home(&client) {
            0 => self.worker.set_peers(now, peers),
            home => self.group.order(home, Order::SetPeers(peers)),
        }
        let claim = Claim::Bound { config: Box::new(core), instead_of: None };
        self.settle(now, &client, claim);
    }

    /// Clients went and came at another proxy.
    fn change_peers(&mut self, now: Instant, gone: Vec<PublicKey>, come: &[PeerConfig]) {
        let gone: BTreeSet<_> =
            gone.into_iter().filter(|key| self.peers.get(key).is_some()).collect();
        for key in &gone {
            // While it is still known, so that its routes go.
            self.end_peer(now, *key);
        }
        let (changed, freed) = self.peers.change(now, &gone, come, self.registry.leases());
        freed.into_iter().for_each(|net| self.host.route(net, None));
        self.tell_homes(now, &changed);
        // In a fleet this is often: all clients are looked through only if one of these matters.
        if self.forwards.concerns(&gone, come) {
            self.follow_clients();
        }
    }

    /// A client has a newer session with another proxy: the one here ends.
    fn displace(&mut self, now: Instant, client: PublicKey) {
        match self.group.home(&client) {
            0 => {
                self.worker.endpoint.displace_peer(now, client);
                self.take_events(now);
            }
            home => self.group.order(home, Order::DisplacePeer(client)),
        }
    }

    /// No sessions begin here from now on, or they do again.
    fn drain(&mut self, draining: bool) {
        if draining {
            tracing::info!("draining: no session begins here until `ropewalk fleet undrain`");
        } else {
            tracing::info!("draining no more: sessions begin here again");
        }
        self.worker.endpoint.set_draining(draining);
        self.group.order_all(|| Order::SetDraining(draining));
    }

    /// Clients are to know these proxies.
    fn tell_fleet(&mut self, list: &Arc<FleetList>) {
        tracing::debug!(proxies = list.len(), "clients are told of the fleet");
        self.worker.endpoint.set_fleet(list);
        self.group.order_all(|| Order::SetFleet(Arc::clone(list)));
    }

    fn settle(&mut self, now: Instant, client: &PublicKey, claim: Claim) {
        self.worker.endpoint.settle_claim(now, client, claim);
    }
}
