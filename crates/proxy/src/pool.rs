//! The pools of inner addresses: which addresses of a prefix a client may have.
//!
//! The first host address is the proxy's own ([`Pools::gateway_v4`]); the first and, in IPv4, the last
//! address of the prefix are never given (network and broadcast address; in IPv6 the first is the
//! subnet-router anycast address, RFC 4291 section 2.6.1).

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The pools of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pools {
    v4: Ipv4Net,
    v6: Option<Ipv6Net>,
}

impl Pools {
    /// Pools of these prefixes (IPv4 at most /30, IPv6 at most /126: the config file sees to it).
    #[must_use]
    pub fn new(v4: Ipv4Net, v6: Option<Ipv6Net>) -> Self {
        Self { v4: v4.trunc(), v6: v6.map(|v6| v6.trunc()) }
    }

    /// The IPv4 prefix.
    #[must_use]
    pub fn v4(&self) -> Ipv4Net {
        self.v4
    }

    /// The IPv6 prefix; `None`: clients get no IPv6.
    #[must_use]
    pub fn v6(&self) -> Option<Ipv6Net> {
        self.v6
    }

    /// The proxy's own IPv4 address in the tunnel.
    #[must_use]
    pub fn gateway_v4(&self) -> Ipv4Addr {
        self.v4_at(1)
    }

    /// The proxy's own IPv6 address in the tunnel.
    #[must_use]
    pub fn gateway_v6(&self) -> Option<Ipv6Addr> {
        self.v6.map(|prefix| v6_at(prefix, 1))
    }

    /// Addresses that clients can have in the IPv4 pool.
    #[must_use]
    pub fn size_v4(&self) -> u64 {
        // Without network, broadcast and the proxy's own.
        (1u64 << (32 - u32::from(self.v4.prefix_len()))).saturating_sub(3)
    }

    /// Addresses that clients can have in the IPv6 pool; 0 without one.
    #[must_use]
    pub fn size_v6(&self) -> u128 {
        let Some(prefix) = self.v6 else { return 0 };
        (1u128 << (128 - u32::from(prefix.prefix_len()))).saturating_sub(2)
    }

    /// The address with this offset from the start of the IPv4 prefix.
    pub(crate) fn v4_at(&self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.v4.network()).wrapping_add(offset))
    }

    /// Whether a client may have this address.
    ///
    /// # Errors
    /// Why not, for the user.
    pub(crate) fn check_v4(&self, address: Ipv4Addr) -> Result<Ipv4Addr, String> {
        let pool = self.v4;
        if !pool.contains(&address) {
            return Err(format!("{address} is not in pool_v4 = \"{pool}\""));
        }
        if address == self.gateway_v4() {
            return Err(format!("{address} is the proxy's own address in {pool}"));
        }
        if address == pool.network() || address == pool.broadcast() {
            return Err(format!("{address} is the network or broadcast address of {pool}"));
        }
        Ok(address)
    }

    /// Whether a client may have this address.
    ///
    /// # Errors
    /// Why not, for the user.
    pub(crate) fn check_v6(&self, address: Ipv6Addr) -> Result<Ipv6Addr, String> {
        let Some(pool) = self.v6 else {
            return Err("pool_v6 is off: clients get no IPv6 address".to_owned());
        };
        if !pool.contains(&address) {
            return Err(format!("{address} is not in pool_v6, which is \"{pool}\""));
        }
        if Some(address) == self.gateway_v6() {
            return Err(format!("{address} is the proxy's own address in {pool}"));
        }
        if address == pool.network() {
            return Err(format!("{address} is the router anycast address of {pool}"));
        }
        Ok(address)
    }
}

/// The address with this offset from the start of an IPv6 prefix.
pub(crate) fn v6_at(prefix: Ipv6Net, offset: u128) -> Ipv6Addr {
    Ipv6Addr::from(u128::from(prefix.network()).wrapping_add(offset))
}

/// Which prefix with a meaning of its own a pool overlaps, and that meaning.
#[must_use]
pub(crate) fn reserved(pool: IpNet) -> Option<(&'static str, &'static str)> {
    const V4: [(&str, &str); 5] = [
        ("0.0.0.0/8", "\"this network\" (RFC 1122)"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved (RFC 1112)"),
    ];
    const V6: [(&str, &str); 3] = [
        ("::/8", "reserved: the unspecified address, loopback, mapped IPv4 addresses (RFC 4291)"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    ];
    let list: &[_] = if pool.addr().is_ipv4() { &V4 } else { &V6 };
    let of_pool = |(prefix, _): &&(&str, &str)| {
        prefix.parse().is_ok_and(|prefix: IpNet| overlap(pool, prefix))
    };
    list.iter().find(of_pool).copied()
}

/// Whether two prefixes have an address in common.
pub(crate) fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_a_client_may_have_pass() {
        let pools = Pools::new("10.9.0.0/29".parse().unwrap(), Some("fd00::/125".parse().unwrap()));
        assert_eq!(pools.size_v4(), 5);
        assert_eq!(pools.size_v6(), 6);
        for (address, fits) in [
            ("10.9.0.0", false),
            ("10.9.0.1", false),
            ("10.9.0.2", true),
            ("10.9.0.6", true),
            ("10.9.0.7", false),
            ("10.9.0.8", false),
        ] {
            assert_eq!(pools.check_v4(address.parse().unwrap()).is_ok(), fits, "{address}");
        }
        for (address, fits) in [
            ("fd00::", false),
            ("fd00::1", false),
            ("fd00::2", true),
            ("fd00::7", true),
            ("fd00::8", false),
        ] {
            assert_eq!(pools.check_v6(address.parse().unwrap()).is_ok(), fits, "{address}");
        }
        let pools = Pools::new("10.9.0.0/30".parse().unwrap(), None);
        assert_eq!((pools.size_v4(), pools.size_v6()), (1, 0));
        assert!(pools.check_v6("fd00::2".parse().unwrap()).is_err());
    }
}
