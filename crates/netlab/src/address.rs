//! The address plan of the emulated Internet. Everything is fixed, so that a capture or a log can
//! be read without a key; the ranges are those reserved for documentation and benchmarks
//! (RFC 5737, RFC 2544, RFC 3849) and, behind the routers, the usual private ones.
//!
//! ```text
//!  client 0                    router 0                          internet
//! ┌───────────────────┐      ┌───────────────────────────┐     ┌──────────────────┐
//! │ wan0 192.168.10.2 ╞══════╡ lan0 192.168.10.1         │     │                  │
//! │                   │      │        wan 198.18.0.2     ├─────┤ 198.18.0.1       │      proxy
//! │ wan1 192.168.11.2 ╞═══╗╔═╡ lan1 192.168.20.1         │     │                  │     ┌────────────────────┐
//! └───────────────────┘   ║║ └───────────────────────────┘     │      203.0.113.1 ├─────┤ eth0 203.0.113.2   │
//!  client 1               ║║  router 1                         │                  │     └────────────────────┘
//! ┌───────────────────┐   ║║ ┌───────────────────────────┐     │                  │      server
//! │ wan0 192.168.20.2 ╞═══╫╝ │        wan 198.18.1.2     ├─────┤ 198.18.1.1       │     ┌────────────────────┐
//! │                   │   ╚══╡ lan0 192.168.11.1         │     │        192.0.2.1 ├─────┤ eth0 192.0.2.2     │
//! │ wan1 192.168.21.2 ╞══════╡ lan1 192.168.21.1         │     │                  │     └────────────────────┘
//! └───────────────────┘      └───────────────────────────┘     └──────────────────┘
//! ```
//!
//! A double line is an emulated access link (rate, delay, loss, queue), a single one a plain veth.
//! The NAT stands behind the access link, as at home. Client and router use third octet
//! `10 (client + 1) + wan`. A router's public address is `.2`, and `.3` and up after
//! [`crate::router::Router::change_public_address`].
//!
//! IPv6 has the same shape: `2001:db8:a00:<third octet>::/64` behind the routers,
//! `2001:db8:18:<wan>::/64` between router and Internet, `2001:db8:203::/64` for the proxy and
//! `2001:db8:192::/64` for the server.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The largest number of WANs of a client: the third octet has one digit for them.
pub const MAX_WANS: u8 = 9;
/// The largest number of clients: the third octet stays below 100.
pub const MAX_CLIENTS: u8 = 8;

/// The proxy's public address.
pub const PROXY_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// The proxy's public IPv6 address.
pub const PROXY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x203, 0, 0, 0, 0, 2);
/// The proxy's gateway, in the Internet's namespace.
pub const PROXY_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The proxy's IPv6 gateway.
pub const PROXY_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x203, 0, 0, 0, 0, 1);
/// The server on the Internet, beyond the proxy.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The server's IPv6 address.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x192, 0, 0, 0, 0, 2);
/// The server's gateway, in the Internet's namespace.
pub const SERVER_GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The server's IPv6 gateway.
pub const SERVER_GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x192, 0, 0, 0, 0, 1);

/// The name of the uplink interface of proxy and server.
pub const UPLINK: &str = "eth0";
/// The name of a router's interface towards the Internet.
pub const ROUTER_WAN: &str = "wan";

/// The name of a client's interface to WAN `wan`.
#[must_use]
pub fn client_interface(wan: u8) -> String {
    format!("wan{wan}")
}

/// The name of a router's interface towards client `client`.
#[must_use]
pub fn router_lan(client: u8) -> String {
    format!("lan{client}")
}

/// The third octet of the network between a client and a router.
const fn lan(client: u8, wan: u8) -> u8 {
    10 * (client + 1) + wan
}

/// The address of client `client` on WAN `wan`.
#[must_use]
pub const fn client_v4(client: u8, wan: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, lan(client, wan), 2)
}

/// The IPv6 address of client `client` on WAN `wan`.
#[must_use]
pub const fn client_v6(client: u8, wan: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xa00, lan(client, wan) as u16, 0, 0, 0, 2)
}

/// The router's address on that network: the client's gateway.
#[must_use]
pub const fn gateway_v4(client: u8, wan: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, lan(client, wan), 1)
}

/// The router's IPv6 address on that network.
#[must_use]
pub const fn gateway_v6(client: u8, wan: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xa00, lan(client, wan) as u16, 0, 0, 0, 1)
}

/// The public address number `generation` (0 at first) of router `wan`.
#[must_use]
pub const fn public_v4(wan: u8, generation: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, wan, 2 + generation)
}

/// The public IPv6 address number `generation` of router `wan`.
#[must_use]
pub const fn public_v6(wan: u8, generation: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x18, wan as u16, 0, 0, 0, 2 + generation as u16)
}

/// The Internet's address towards router `wan`.
#[must_use]
pub const fn provider_v4(wan: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18, wan, 1)
}

/// The Internet's IPv6 address towards router `wan`.
#[must_use]
pub const fn provider_v6(wan: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x18, wan as u16, 0, 0, 0, 1)
}
