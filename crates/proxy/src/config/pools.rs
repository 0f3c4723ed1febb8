//! `pool_v4` and `pool_v6`: where the clients' inner addresses come from.

use std::net::{Ipv4Addr, Ipv6Addr};

use blake2::digest::Digest as _;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{PublicKey, Text};
use toml::Spanned;

use super::{File, Ipv6Mode};
use crate::pool::{Pools, reserved};

/// `pool_v6` as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolV6 {
    Auto,
    Off,
    Prefix(Ipv6Net),
}

impl Text for PoolV6 {
    const EXPECTED: &'static str =
        "an IPv6 prefix such as \"fd12:3456:789a::/64\", or \"auto\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ if text.contains('/') => Ipv6Net::from_text(text).map(Self::Prefix),
            _ => Err(format!("`{text}` is not {}", Self::EXPECTED)),
        }
    }
}

/// The IPv6 pool where the file says `auto`: a unique local /64 (RFC 4193) whose 40 random bits are a
/// hash of what is its owner's: the proxy's public key, or the fleet's name. So they stay, and differ from those of others.
#[must_use]
pub fn unique_local_pool(owner: &[u8]) -> Ipv6Net {
    let mut hash = blake2::Blake2s256::new();
    hash.update(b"ropewalk unique local prefix");
    hash.update(owner);
    let hash = hash.finalize();
    let mut octets = [0; 16];
    octets[0] = 0xfd;
    octets[1..6].copy_from_slice(&hash[..5]);
    Ipv6Net::new(Ipv6Addr::from(octets), 64).expect("64 is a prefix length")
}

impl File {
    /// What both say, with `ipv6`. `public_key`: this proxy's.
    pub(super) fn pools(
        &self,
        source: &Source,
        public_key: &PublicKey,
    ) -> Result<Pools, ConfigError> {
        let v4 = match &self.pool_v4 {
            None => Ipv4Net::new(Ipv4Addr::new(10, 77, 0, 0), 16).expect("16 is a prefix length"),
            Some(prefix) if (8..=30).contains(&prefix.get_ref().0.prefix_len()) => {
                prefix.get_ref().0
            }
            Some(prefix) => {
                return Err(source.error(prefix.span(), "an IPv4 pool is a /8 to a /30"));
            }
        };
        // All proxies of a fleet give the same addresses.
        let auto = match &self.registry {
            Some(registry) => unique_local_pool(registry.get_ref().fleet.get_ref().as_bytes()),
            None => unique_local_pool(public_key.as_bytes()),
        };
        let v6 = match &self.pool_v6 {
            None => Some(auto),
            Some(pool) => match pool.get_ref().0 {
                PoolV6::Off => None,
                PoolV6::Auto => Some(auto),
                PoolV6::Prefix(prefix) if (32..=126).contains(&prefix.prefix_len()) => Some(prefix),
                PoolV6::Prefix(_) => {
                    return Err(source.error(pool.span(), "an IPv6 pool is a /32 to a /126"));
                }
            },
        };
        // fc00::/7 is never routed on the Internet (RFC 4193 section 4.1).
        let unique_local = v6.is_some_and(|v6| v6.addr().is_unique_local());
        if self.ipv6 == Ipv6Mode::Routed && unique_local {
            let help =
                "write ipv6 = \"nat66\", or pool_v6 = a prefix that the provider routes here";
            let message = "ipv6 = \"routed\", but pool_v6 is a unique local prefix";
            return Err(match &self.pool_v6 {
                Some(pool) => source.error(pool.span(), message),
                None => source.error_of_file(message),
            }
            .with_help(help));
        }
        let places = [
            (Some(IpNet::V4(v4)), self.pool_v4.as_ref().map(Spanned::span)),
            (v6.map(IpNet::V6), self.pool_v6.as_ref().map(Spanned::span)),
        ];
        for (pool, place) in places {
            if let (Some(pool), Some(place)) = (pool, place)
                && let Some((prefix, meaning)) = reserved(pool)
            {
                let message = format!("{pool} overlaps {prefix}, which is {meaning}");
                return Err(source.error(place, &message).with_help(
                    "write a private prefix, such as \"10.77.0.0/16\" or \"auto\" for IPv6",
                ));
            }
        }
        Ok(Pools::new(v4, v6))
    }
}
