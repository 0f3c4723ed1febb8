//! Three hosts and nothing between them: a client with several links to the proxy, and a server behind it.
//!
//! ```text
//!  client                        proxy                          server
//! ┌─────────────────────┐      ┌────────────────────────┐      ┌──────────────────┐
//! │ wan0 192.168.10.2   ├──────┤ lan0 192.168.10.1      │      │                  │
//! │ wan1 192.168.11.2   ├──────┤ lan1 192.168.11.1      ├──────┤ eth0 192.0.2.2   │
//! │ ...                 │      │ lo   203.0.113.2       │      │                  │
//! └─────────────────────┘      └────────────────────────┘      └──────────────────┘
//! ```
//!
//! Unlike those of [`ropewalk_netlab::topology`] these links aggregate segments, as network cards do.

use std::net::Ipv4Addr;

use anyhow::Result;
use ropewalk_netlab::namespace::{Namespace, next_number};

/// The proxy, on every link.
pub const PROXY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
/// The server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Links that are there; a contender may use fewer.
pub const LINKS: u8 = 4;

/// The hosts. Dropped, they are gone.
#[derive(Debug)]
pub struct Network {
    /// Where the tunnel begins.
    pub client: Namespace,
    /// Where it ends.
    pub proxy: Namespace,
    /// Beyond its end.
    pub server: Namespace,
}

impl Network {
    /// Makes all of it.
    ///
    /// # Errors
    /// When a namespace or an interface cannot be made.
    pub fn build() -> Result<Self> {
        let number = next_number();
        let make = |role: &str| -> Result<Namespace> {
            let host = Namespace::create(number, role)?;
            host.sysctl(&[
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                ("net.ipv4.ping_group_range", "0 0"),
                ("net.ipv6.conf.all.disable_ipv6", "1"),
                ("net.ipv6.conf.default.disable_ipv6", "1"),
            ])?;
            Ok(host)
        };
        let (client, proxy, server) = (make("client0")?, make("proxy")?, make("server")?);
        proxy.sysctl(&[("net.ipv4.ip_forward", "1")])?;
        proxy.ip(&format!("addr add {PROXY}/32 dev lo"))?;
        for link in 0..LINKS {
            let net = 10 + link;
            pair((&client, &interface(link)), (&proxy, &format!("lan{link}")))?;
            client.ip(&format!(
                "addr add 192.168.{net}.2/24 dev wan{link}\nlink set wan{link} up\n\
                 route add default via 192.168.{net}.1 dev wan{link} metric {}",
                100 + link
            ))?;
            proxy
                .ip(&format!("addr add 192.168.{net}.1/24 dev lan{link}\nlink set lan{link} up"))?;
        }
        pair((&proxy, "eth0"), (&server, "eth0"))?;
        proxy.ip("addr add 192.0.2.1/24 dev eth0\nlink set eth0 up")?;
        server.ip(&format!("addr add {SERVER}/24 dev eth0\nlink set eth0 up"))?;
        Ok(Self { client, proxy, server })
    }

    /// Hides everything that leaves for the server behind the proxy's address, for contenders that do not do
    /// so themselves.
    ///
    /// # Errors
    /// When `nft` refuses.
    pub fn masquerade(&self) -> Result<()> {
        self.proxy.nft(
            "table ip bench { chain out { type nat hook postrouting priority 100; \
             oifname \"eth0\" masquerade; }; }",
        )?;
        Ok(())
    }
}

/// The client's interface of a link.
#[must_use]
pub fn interface(link: u8) -> String {
    format!("wan{link}")
}

fn pair(near: (&Namespace, &str), far: (&Namespace, &str)) -> Result<()> {
    let (name, peer, host) = (near.1, far.1, far.0.name());
    near.0.ip(&format!("link add {name} type veth peer name {peer} netns {host}"))?;
    Ok(())
}
