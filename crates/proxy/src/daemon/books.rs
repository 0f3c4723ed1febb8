//! What follows when a change of the books is on disk: clients come in and go out.

use std::io;

use ropewalk_control::api::{RemovedPeer, Response};
use ropewalk_proto::endpoint::Claim;
use ropewalk_proto::time::Instant;
use ropewalk_settings::PublicKey;

use super::{Daemon, Host};
use crate::registry::Member;
use crate::registry_writer::{Book, Done};
use crate::worker::Order;

impl<H: Host> Daemon<H> {
    /// A file is on disk, or cannot be written.
    pub(super) fn handle_written(&mut self, now: Instant, book: Book, written: io::Result<()>) {
        if book == Book::Leases {
            return self.registry_writer.leases_written(written);
        }
        match self.registry_writer.written(written) {
            Some(Done::Removed(asked, removed)) => {
                self.take_out(now, &removed);
                asked.answer(Ok(Response::Removed(removed)));
            }
            Some(Done::Bound(member)) => self.let_in(now, &member),
            Some(Done::Failed(client)) => self.settle(now, &client, Claim::Unknown),
            None => {}
        }
        while let Some((client, claim)) = self.registry_writer.take_up(&self.config) {
            self.settle(now, &client, claim);
        }
    }

    /// Takes a client out that is in the registry no more: its session, then what is shown of it.
    fn take_out(&mut self, now: Instant, removed: &RemovedPeer) {
        let (known, _) = self.registry_writer.registry().peers(&self.config.peers);
        // The config file, read again meanwhile, may name it.
        let gone = |key: &_| known.iter().all(|peer| peer.public_key != *key);
        if let Some(key) = removed.public_key.as_ref().filter(|key| gone(key)) {
            self.end_peer(now, *key);
            self.peers.remove(key);
            self.registry_writer.forget(key);
        }
        tracing::info!(peer = removed.name, "removed");
    }

    /// Lets a client in that joined by an invitation, and answers what it asked.
    fn let_in(&mut self, now: Instant, member: &Member) {
        let (name, client) = (&member.name, member.public_key);
        tracing::info!(peer = name, key = %client, "joined by its invitation, which is used up");
        let (known, passed_over) = self.registry_writer.registry().peers(&self.config.peers);
        if known.iter().all(|peer| peer.public_key != client || peer.name != *name) {
            // The config file, read again since the invitation, names another one so.
            passed_over.iter().for_each(|why| tracing::warn!("{why}"));
            return self.settle(now, &client, Claim::Unknown);
        }
        self.registry_writer.admit(&known);
        let config = member.config();
        let core =
            self.peers.admit(now, &config, self.registry_writer.leases()).for_core(&self.config);
        // The home of each hears of it before it is handed the message.
        if let Some(old) = member.formerly {
            tracing::info!(peer = name, key = %old, "its former key is refused from now on");
            match self.group.home(&old) {
                0 => drop(self.worker.endpoint.remove_peer(now, old)),
                home => self.group.order(home, Order::RemovePeer(old)),
            }
        }
        let peers = vec![(client, core.clone())];
        match self.group.home(&client) {
            0 => self.worker.set_peers(now, peers),
            home => self.group.order(home, Order::SetPeers(peers)),
        }
        self.group.note_homes();
        let claim = Claim::Bound { config: Box::new(core), instead_of: None };
        self.settle(now, &client, claim);
    }

    fn settle(&mut self, now: Instant, client: &PublicKey, claim: Claim) {
        self.worker.endpoint.settle_claim(now, client, claim);
    }
}
