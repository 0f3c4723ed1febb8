//! Clients of a proxy: who there is, who is invited, and what changes that.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::TunnelState;
use ropewalk_settings::PublicKey;

/// Whom to invite, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InviteWish {
    /// How the client is called on the proxy.
    pub name: String,
    /// Whether it is a new key for a client that has one; else one of that name is an error.
    #[serde(default)]
    pub again: bool,
    /// How long the invitation holds.
    pub lifetime_s: u64,
    /// Where the proxy is for that client, in place of what the proxy's config or host says; empty: that.
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// An invitation that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invited {
    /// How the client will be called.
    pub name: String,
    /// The line for `ropewalk join`: a secret until it was used.
    pub invitation: String,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
    /// The addresses of the proxy in it.
    pub addresses: Vec<String>,
    /// The proxy's public key in it.
    pub proxy_public_key: PublicKey,
    /// The key that goes out when the new one comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<PublicKey>,
    /// What the owner should know: an older invitation that is void, an address that may not be reached.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What was taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedPeer {
    /// Its name.
    pub name: String,
    /// Its key, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<PublicKey>,
    /// Open invitations that are void now.
    pub invitations: usize,
}

/// A client that was disabled, or is let in again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnabledPeer {
    /// Its name.
    pub name: String,
    /// Its key.
    pub public_key: PublicKey,
    /// Whether it is let in.
    pub enabled: bool,
    /// Whether that is new.
    pub changed: bool,
}

/// Who may connect to a proxy, and who is invited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeersReport {
    /// Whether the proxy runs; if not, what only a running one knows is absent.
    pub running: bool,
    /// The clients, those of the config file first.
    pub peers: Vec<PeerStatus>,
    /// The invitations that nobody used yet.
    pub invitations: Vec<OpenInvitation>,
}

/// A client of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub public_key: PublicKey,
    /// Where it is known from.
    pub origin: PeerOrigin,
    /// Whether it gets no session until it is enabled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
    /// Whether packets pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TunnelState>,
    /// How long ago something authentic came; absent: not since the proxy's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_s: Option<f64>,
    /// Bytes of inner packets from it since the proxy's start.
    #[serde(default)]
    pub up_bytes: u64,
    /// Bytes of inner packets to it since the proxy's start.
    #[serde(default)]
    pub down_bytes: u64,
    /// Its address inside the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inner_v6: Option<Ipv6Addr>,
    /// Where its links come from at present.
    #[serde(default)]
    pub remotes: Vec<SocketAddr>,
    /// The proxy of the fleet with which it has its session, where several share a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

/// Where a client is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerOrigin {
    /// A `[[peer]]` of the config file.
    Config,
    /// It joined by an invitation.
    Invitation,
}

/// An invitation that nobody used yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenInvitation {
    /// How the client will be called.
    pub name: String,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
    /// Whether it has expired.
    pub expired: bool,
    /// Whether a client of this name has a key already, which will go out.
    pub replaces: bool,
}
