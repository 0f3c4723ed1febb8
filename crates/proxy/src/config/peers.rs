//! `[[peer]]`: the clients that the file names, and how many there may be.

mod prefix;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::Ipv6Net;
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{Parsed, PresharedKey, PublicKey};
use serde::Deserialize;
use toml::Spanned;

use crate::pool::Pools;

/// Peers where `max_peers` does not say otherwise: each may hold a resequencing buffer of 16 MiB.
const DEFAULT_MAX_PEERS: usize = 1024;

/// Most peers of one proxy: the IPv4 pool of /16 has about as many addresses.
pub const MAX_PEERS: usize = 65_000;

/// Most clients of a fleet: each proxy keeps all of them in memory.
const MAX_FLEET_PEERS: usize = 1_000_000;

/// Characters of the longest name of a peer.
const MAX_PEER_NAME: usize = 64;

/// One `[[peer]]`: a client that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// How it is called in `status` and in logs. Whoever keeps this client, too, shares the text.
    pub name: Arc<str>,
    /// Its public key.
    pub public_key: PublicKey,
    /// The secret shared besides the keys. Few have one: it is kept apart.
    pub preshared_key: Option<Box<PresharedKey>>,
    /// Its inner address, where the file fixes it, or a registry that several proxies share; else it is leased from the pool.
    pub address_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub address_v6: Option<Ipv6Addr>,
    /// The IPv6 network behind it, which the provider routes here.
    pub prefix_v6: Option<Ipv6Net>,
    /// The key that it had before, whose leased addresses are its own now.
    pub formerly: Option<Box<PublicKey>>,
    /// It gets no session, and is told so.
    pub disabled: bool,
}

/// The section as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerFile {
    name: Spanned<String>,
    public_key: Spanned<Parsed<PublicKey>>,
    preshared_key_file: Option<Spanned<PathBuf>>,
    address_v4: Option<Spanned<Parsed<Ipv4Addr>>>,
    address_v6: Option<Spanned<Parsed<Ipv6Addr>>>,
    pub(super) prefix_v6: Option<Spanned<Parsed<Ipv6Net>>>,
    #[serde(default)]
    disabled: bool,
}

/// The most peers: of this proxy or, `of_fleet`, of all that share its registry.
pub(super) fn max_peers(
    source: &Source,
    max_peers: Option<&Spanned<i64>>,
    of_fleet: bool,
) -> Result<usize, ConfigError> {
    let Some(max_peers) = max_peers else { return Ok(DEFAULT_MAX_PEERS) };
    let bound = if of_fleet { MAX_FLEET_PEERS } else { MAX_PEERS };
    match usize::try_from(*max_peers.get_ref()) {
        Ok(most) if (1..=bound).contains(&most) => Ok(most),
        _ => Err(source.error(
            max_peers.span(),
            &format!("{} is outside 1 to {bound} peers", max_peers.get_ref()),
        )),
    }
}

/// What the sections mean together: no two may have the same name, key or address.
pub(super) fn resolve(
    source: &Source,
    files: &[Spanned<PeerFile>],
    own_key: &PublicKey,
    pools: &Pools,
    max_peers: usize,
) -> Result<Vec<PeerConfig>, ConfigError> {
    if let Some(beyond) = files.get(max_peers) {
        let message = format!("{} peers, but max_peers is {max_peers}", files.len());
        return Err(source.error(beyond.span(), &message));
    }
    let mut seen = Seen::default();
    let mut networks = prefix::Networks::default();
    let mut peers = Vec::with_capacity(files.len());
    for file in files.iter().map(Spanned::get_ref) {
        let name = peer_name(source, &file.name)?;
        let key = file.public_key.get_ref().0;
        if key == *own_key {
            return Err(source
                .error(file.public_key.span(), "this is the proxy's own public key")
                .with_help(
                    "put the client's here: `ropewalk keygen --public < FILE` on the client",
                ));
        }
        let address_v4 = match &file.address_v4 {
            None => None,
            Some(address) => Some(
                pools
                    .check_v4(address.get_ref().0)
                    .map_err(|message| source.error(address.span(), &message))?,
            ),
        };
        let address_v6 = match &file.address_v6 {
            None => None,
            Some(address) => Some(
                pools
                    .check_v6(address.get_ref().0)
                    .map_err(|message| source.error(address.span(), &message))?,
            ),
        };
        let prefix_v6 = networks.resolve(source, file.prefix_v6.as_ref(), &name, pools)?;
        seen.note(source, file, &name)?;
        let preshared_key =
            file.preshared_key_file.as_ref().map(|name| source.key_file(name)).transpose()?;
        peers.push(PeerConfig {
            name: name.into(),
            public_key: key,
            preshared_key: preshared_key.map(Box::new),
            address_v4,
            address_v6,
            prefix_v6,
            formerly: None,
            disabled: file.disabled,
        });
    }
    Ok(peers)
}

fn peer_name(source: &Source, name: &Spanned<String>) -> Result<String, ConfigError> {
    let checked = check_peer_name(name.get_ref());
    checked.map_err(|message| source.error(name.span(), &message))?;
    Ok(name.get_ref().clone())
}

/// Whether a peer may be called so.
///
/// # Errors
/// What a name must be.
pub fn check_peer_name(name: &str) -> Result<(), String> {
    let long = name.chars().count() > MAX_PEER_NAME;
    if long || name.trim().is_empty() || name.chars().any(char::is_control) {
        return Err(format!("a peer's name has 1 to {MAX_PEER_NAME} printable characters"));
    }
    Ok(())
}

/// What must be different for each peer, and whose it is.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, String>,
    keys: BTreeMap<String, String>,
    addresses: BTreeMap<String, String>,
}

impl Seen {
    fn note(&mut self, source: &Source, file: &PeerFile, name: &str) -> Result<(), ConfigError> {
        let twice = |span, what: &str, other: Option<String>| match other {
            Some(other) => Err(source.error(span, &format!("{what} is already that of `{other}`"))),
            None => Ok(()),
        };
        let owner = || name.to_owned();
        if self.names.insert(owner(), owner()).is_some() {
            return Err(source.error(file.name.span(), &format!("two peers are called `{name}`")));
        }
        let key = file.public_key.get_ref().0.to_string();
        twice(file.public_key.span(), "this key", self.keys.insert(key, owner()))?;
        if let Some(address) = &file.address_v4 {
            let text = address.get_ref().0.to_string();
            twice(address.span(), "this address", self.addresses.insert(text, owner()))?;
        }
        if let Some(address) = &file.address_v6 {
            let text = address.get_ref().0.to_string();
            twice(address.span(), "this address", self.addresses.insert(text, owner()))?;
        }
        Ok(())
    }
}
