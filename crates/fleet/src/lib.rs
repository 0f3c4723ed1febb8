//! The registry that the proxies of a fleet share, in etcd: clients, invitations, inner addresses, proxies, sessions
//! (docs/FLEET.md).
//!
//! | file | its one idea |
//! | --- | --- |
//! | [`layout`] | where things stand, and how they are written |
//! | [`store`] | the way to etcd, and its errors in words |
//! | `listing` | many keys are read in pages |
//! | [`changes`] | what is changed: transactions |
//! | [`cache`] | the copy in memory |
//! | `addresses` | which inner addresses are taken, a bit for each |
//! | [`differences`] | what differs between a copy and the next one |
//! | [`mirror`] | keeps the copy true: list and watch |
//! | [`last_known`] | what a proxy knew before it was started, from a file of its own |
//! | `keeping` | when that file is written |
//! | `words` | what a proxy says of its clients' sessions, on its way to the thread of [`service`] |
//! | [`presence`] | what a proxy says of itself, under a lease |
//! | [`transfer`] | clients of files, brought in and taken out |
//! | [`service`] | all of it on a thread, for a running proxy |

mod addresses;
pub mod cache;
pub mod changes;
pub mod differences;
mod keeping;
pub mod last_known;
pub mod layout;
mod listing;
pub mod mirror;
pub mod presence;
pub mod service;
pub mod store;
pub mod transfer;
mod words;

use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_settings::PublicKey;

pub use layout::ProxyState;

/// A proxy of the fleet, as its clients are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetProxy {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub region: String,
    /// Where clients find it.
    pub addresses: Vec<SocketAddr>,
    /// Its public key.
    pub public_key: PublicKey,
    /// Whether it takes new sessions.
    pub state: ProxyState,
    /// How much of its capacity is used, in percent.
    pub load: u8,
}

/// The proxies that the registry has, for clients.
#[must_use]
pub fn proxies(cache: &cache::Cache) -> Arc<[FleetProxy]> {
    let proxies = cache.proxies.iter().map(|(id, value)| FleetProxy {
        id: id.clone(),
        region: value.region.chars().take(layout::MAX_ID).collect(),
        addresses: value.addresses.iter().copied().take(layout::MAX_ADDRESSES).collect(),
        public_key: value.public_key,
        state: match cache.drains.contains_key(id) {
            true => ProxyState::Draining,
            false => value.state,
        },
        load: value.load.min(100),
    });
    proxies.collect()
}
