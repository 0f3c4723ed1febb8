//! Who may come in, and whose inner addresses are whose: what the daemon knows of it, whatever keeps it.
//!
//! | kept by | what it is | file |
//! | --- | --- | --- |
//! | [`Files`](files::Files) | files of this proxy alone | [`files`], [`peers_file`] |
//! | [`Etcd`](etcd::Etcd) | what several proxies share in etcd | [`etcd`], [`fleet_file`], and the crate `ropewalk-fleet` |
//!
//! A packet loop never waits, for a disk or for a network: a call returns at once, and what takes its time comes back by the
//! loop's queue as [`News`], of which [`Registry::hear`] says what follows.

pub mod etcd;
pub mod files;
pub mod fleet_file;
pub mod inviting_proxies;
pub mod peers_file;

use std::fmt;
use std::io;
use std::sync::Arc;

use ropewalk_control::api::{EnabledPeer, OpenInvitation, RegistryStatus, RemovedPeer};
use ropewalk_control::server;
use ropewalk_fleet::changes::{ChangeError, Claimed, Removed};
use ropewalk_fleet::service::News as FleetNews;
use ropewalk_proto::endpoint::Claim;
use ropewalk_proto::fleet::FleetList;
use ropewalk_settings::{InvitationToken, PublicKey};

use crate::config::{Config, PeerConfig};
use crate::leases::{Lease, LeaseTable};

pub use peers_file::Member;

/// The clients of a proxy, their invitations and their addresses.
pub trait Registry: fmt::Debug {
    /// The clients of the config file, then those that joined; and those that are passed over, with the reason.
    fn peers(&self, of_file: &[PeerConfig]) -> (Vec<PeerConfig>, Vec<String>);

    /// The invitations that nobody used.
    fn invitations(&self) -> Vec<OpenInvitation>;

    /// The addresses that are kept here. Those of a registry that several proxies share come with its clients.
    fn leases(&self) -> &LeaseTable;

    /// How many IPv4 and how many IPv6 addresses are somebody's.
    fn leased(&self) -> (usize, usize) {
        (self.leases().len(), self.leases().len_v6())
    }

    /// How the client with this key is called, if there is one.
    fn name_of(&self, of_file: &[PeerConfig], key: &PublicKey) -> Option<String> {
        let (known, _) = self.peers(of_file);
        known.iter().find(|peer| peer.public_key == *key).map(|peer| peer.name.to_string())
    }

    /// The clients of the config file are these from now on, or a client joined: whoever has no addresses is given some.
    fn admit(&mut self, of_file: &[PeerConfig]);

    /// A key is no client's any more: its addresses are free.
    fn forget(&mut self, key: &PublicKey);

    /// Somebody at the control socket wants a client invited, removed, disabled or enabled. He is answered when that is so, or cannot be.
    fn ask(&mut self, config: &Config, asked: server::Command);

    /// A client that nobody knows shows a token. If it is to be let in that is later: an [`Outcome`] says so.
    fn show(&mut self, config: &Config, client: PublicKey, token: &InvitationToken) -> Claim;

    /// What was waited for is there. Returns what follows, in order.
    fn hear(&mut self, config: &Config, news: News) -> Vec<Outcome>;

    /// A session with this client began here, or has ended.
    fn note_session(&mut self, _client: PublicKey, _is_up: bool) {}

    /// This client moves to another proxy, and keeps its session here for the flows that began in it.
    fn keep_session(&mut self, _client: PublicKey) {}

    /// The proxy of the fleet with which a client has its session.
    fn proxy_of(&self, _client: &PublicKey) -> Option<String> {
        None
    }

    /// How it is with the registry, where it is one that several proxies share. So many clients of it can connect here.
    fn status(&self, _clients: usize) -> Option<RegistryStatus> {
        None
    }
}

/// What comes back to the loop.
#[derive(Debug)]
pub enum News {
    /// This file is on disk, or cannot be written.
    Written(files::Book, io::Result<()>),
    /// What became of the token that this client showed.
    Claimed(PublicKey, Result<Claimed, ChangeError>),
    /// What became of the wish that a client of this name is taken out.
    Removed(server::Command, String, Result<Removed, ChangeError>),
    /// What became of the wish that a client of this name is let in, or not: its key, and whether that is new.
    Enabled(server::Command, (String, bool), Result<(PublicKey, bool), ChangeError>),
    /// Something that the fleet's registry tells by itself.
    Fleet(FleetNews),
}

/// What follows from a change that holds.
#[derive(Debug)]
pub enum Outcome {
    /// This client is out; then the asker is to be told.
    Removed(server::Command, Box<RemovedPeer>),
    /// This client is disabled, or let in again; then the asker is to be told.
    Enabled(server::Command, Box<EnabledPeer>),
    /// This one is in, and waits for it; with its addresses, where [`Registry::leases`] does not have them.
    Bound(Member, Option<Lease>),
    /// The client with this key waits for this word.
    Settled(PublicKey, Claim),
    /// At another proxy, or by the registry's own hand, clients went and came.
    Changed {
        /// These keys are nobody's any more, or were nobody's for a moment: these are in `come`, too.
        gone: Vec<PublicKey>,
        /// These are clients now, or others than before.
        come: Vec<PeerConfig>,
    },
    /// All clients that are known are of another fleet.
    NotOurs,
    /// This client has a newer session with another proxy.
    Displaced(PublicKey),
    /// From now on no sessions begin here, or they do again.
    Draining(bool),
    /// Clients are to know these proxies.
    Fleet(Arc<FleetList>),
}
