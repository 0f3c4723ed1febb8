//! A home router on one WAN: masquerades what its clients send, keeps a conntrack table whose
//! timeouts can be set, and can misbehave as routers do: forget its table and give other ports,
//! get another public address, have a smaller MTU, and say nothing about it.
//!
//! From the Internet only answers come in; what belongs to no flow is dropped without an answer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::address::{
    ROUTER_WAN, client_v4, client_v6, gateway_v4, gateway_v6, provider_v4, provider_v6, public_v4,
    public_v6, router_lan,
};
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::topology::Ipv6;

/// The MTU of every interface that was not lowered.
pub const DEFAULT_MTU: u16 = 1500;

/// The first port that a router gives, the size of its range, and the number of ranges: a
/// rebinding moves on to the next range, so that a flow's port always changes.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 10_000;
const PORT_RANGES: u32 = 4;

/// Public addresses of a router, `.2` to `.200` (room for the provider and the broadcast).
const PUBLIC_ADDRESSES: u8 = 199;

/// One masquerading router.
#[derive(Debug)]
pub struct Router {
    namespace: Namespace,
    wan: u8,
    clients: u8,
    ipv6: Ipv6,
    port_range: AtomicU32,
    generation: u8,
    mtu: u16,
}

impl Router {
    /// Configures `namespace`, in which the interfaces `wan` and `lan<client>` exist, as the router
    /// of WAN `wan`.
    pub(crate) fn configure(
        namespace: Namespace,
        wan: u8,
        clients: u8,
        ipv6: Ipv6,
    ) -> Result<Self, LabError> {
        let router = Self {
            namespace,
            wan,
            clients,
            ipv6,
            port_range: AtomicU32::new(0),
            generation: 0,
            mtu: DEFAULT_MTU,
        };
        let mut lines = vec![
            format!("addr add {}/24 dev {ROUTER_WAN}", public_v4(wan, 0)),
            format!("link set {ROUTER_WAN} up"),
        ];
        if ipv6 != Ipv6::Off {
            lines.push(format!("addr add {}/64 dev {ROUTER_WAN} nodad", public_v6(wan, 0)));
        }
        for client in 0..clients {
            let lan = router_lan(client);
            lines.push(format!("addr add {}/24 dev {lan}", gateway_v4(client, wan)));
            if ipv6 != Ipv6::Off {
                lines.push(format!("addr add {}/64 dev {lan} nodad", gateway_v6(client, wan)));
            }
            lines.push(format!("link set {lan} up"));
        }
        router.namespace.ip(&lines.join("\n"))?;
        // An address that replaces another must survive the removal of the first.
        router.namespace.sysctl(&[("net.ipv4.conf.all.promote_secondaries", "1")])?;
        router.namespace.ip(&router.routes())?;
        router.namespace.nft(&router.rules())?;
        Ok(router)
    }

    /// The router's namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The present public address.
    #[must_use]
    pub const fn public_v4(&self) -> std::net::Ipv4Addr {
        public_v4(self.wan, self.generation)
    }

    /// The present public IPv6 address.
    #[must_use]
    pub const fn public_v6(&self) -> std::net::Ipv6Addr {
        match self.ipv6 {
            Ipv6::Masqueraded => public_v6(self.wan, self.generation),
            Ipv6::Off | Ipv6::Routed => public_v6(self.wan, 0),
        }
    }

    /// Sets how long an idle UDP flow is remembered (whole seconds, at least one), whether it has
    /// been answered or not. Flows that exist keep their deadline until their next packet.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_udp_timeout(&self, timeout: Duration) -> Result<(), LabError> {
        let seconds = timeout.as_secs().max(1).to_string();
        self.namespace.sysctl(&[
            ("net.netfilter.nf_conntrack_udp_timeout", &seconds),
            ("net.netfilter.nf_conntrack_udp_timeout_stream", &seconds),
        ])
    }

    /// Rebinds: forgets all flows, and gives other source ports from here on.
    ///
    /// # Errors
    /// When `nft` or `conntrack` fails.
    pub fn rebind(&self) -> Result<(), LabError> {
        let next = |range| Some((range + 1) % PORT_RANGES);
        let _ = self.port_range.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        self.namespace.nft(&format!("flush chain inet lab nat\n{}", self.nat_rules()))?;
        self.forget_flows()
    }

    /// Gives the router the next public address instead of its present one (the IPv6 address only
    /// where it masquerades IPv6), forgets all flows and gives other ports.
    ///
    /// # Errors
    /// When a tool fails, or after 198 changes.
    pub fn change_public_address(&mut self) -> Result<(), LabError> {
        let next = self.generation + 1;
        if next >= PUBLIC_ADDRESSES {
            return Err(LabError::Unsupported("the router has no further public address".into()));
        }
        let (wan, old) = (self.wan, self.generation);
        let mut lines = vec![
            format!("addr add {}/24 dev {ROUTER_WAN}", public_v4(wan, next)),
            format!("addr del {}/24 dev {ROUTER_WAN}", public_v4(wan, old)),
        ];
        if self.ipv6 == Ipv6::Masqueraded {
            lines.push(format!("addr add {}/64 dev {ROUTER_WAN} nodad", public_v6(wan, next)));
            lines.push(format!("addr del {}/64 dev {ROUTER_WAN}", public_v6(wan, old)));
        }
        self.generation = next;
        lines.push(self.routes());
        self.namespace.ip(&lines.join("\n"))?;
        self.rebind()
    }

    /// Lets nothing larger than `mtu` bytes (IP packet) through, in either direction. A larger
    /// packet that may not be fragmented is answered with an ICMP error, unless that is off
    /// ([`Router::set_icmp_errors`]).
    ///
    /// # Errors
    /// When `ip` refuses the value (IPv6 needs at least 1280).
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), LabError> {
        self.mtu = mtu;
        self.namespace.ip(&self.routes())
    }

    /// Whether ICMP errors (unreachable, too big, time exceeded) leave or pass this router. Without
    /// them a small MTU is a black hole.
    ///
    /// # Errors
    /// When `nft` fails.
    pub fn set_icmp_errors(&self, enabled: bool) -> Result<(), LabError> {
        let mut script = String::from("flush chain inet lab icmp_errors\n");
        if !enabled {
            script.push_str(
                "add rule inet lab icmp_errors icmp type \
                 { destination-unreachable, time-exceeded, parameter-problem } drop\n\
                 add rule inet lab icmp_errors icmpv6 type \
                 { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } drop\n",
            );
        }
        self.namespace.nft(&script)
    }

    /// Takes its ways to the Internet away, so that it answers with ICMP, or gives them back.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_uplink(&self, up: bool) -> Result<(), LabError> {
        match up {
            true => self.namespace.ip(&self.routes()),
            false => self.namespace.ip("route replace unreachable default metric 0"),
        }
    }

    /// The flows the router knows, one a line, as `conntrack -L` prints them.
    ///
    /// # Errors
    /// When `conntrack` fails.
    pub fn flows(&self) -> Result<Vec<String>, LabError> {
        Ok(self.namespace.tool("conntrack", &["-L"])?.lines().map(str::to_owned).collect())
    }

    /// Forgets all flows; the next packet of each makes a new one.
    ///
    /// # Errors
    /// When `conntrack` fails.
    pub fn forget_flows(&self) -> Result<(), LabError> {
        self.namespace.tool("conntrack", &["-F"]).map(|_| ())
    }

    /// The routes in both directions with the present MTU. `lock` makes the kernel obey it when it
    /// forwards; an interface's MTU would also drop silently what comes in.
    fn routes(&self) -> String {
        let Self { wan, mtu, .. } = *self;
        let mut lines = vec![format!(
            "route replace default via {} dev {ROUTER_WAN} mtu lock {mtu}",
            provider_v4(wan)
        )];
        if self.ipv6 != Ipv6::Off {
            let via = provider_v6(wan);
            lines.push(format!("route replace default via {via} dev {ROUTER_WAN} mtu lock {mtu}"));
        }
        for client in 0..self.clients {
            let (lan, to) = (router_lan(client), client_v4(client, wan));
            lines.push(format!("route replace {to}/32 dev {lan} mtu lock {mtu}"));
            if self.ipv6 != Ipv6::Off {
                let to = client_v6(client, wan);
                lines.push(format!("route replace {to}/128 dev {lan} mtu lock {mtu}"));
            }
        }
        lines.join("\n")
    }

    fn rules(&self) -> String {
        format!(
            r#"
table inet lab {{
    chain nat {{
        type nat hook postrouting priority srcnat;
    }}
    chain icmp_errors {{
    }}
    chain forward {{
        type filter hook forward priority filter;
        jump icmp_errors
        iifname "{ROUTER_WAN}" ct state established,related accept
        iifname "{ROUTER_WAN}" drop
    }}
    chain input {{
        type filter hook input priority filter;
        iifname "{ROUTER_WAN}" ct state established,related accept
        iifname "{ROUTER_WAN}" icmp type echo-request accept
        iifname "{ROUTER_WAN}" icmpv6 type {{ echo-request, nd-neighbor-solicit, nd-neighbor-advert }} accept
        iifname "{ROUTER_WAN}" drop
    }}
    chain output {{
        type filter hook output priority filter;
        jump icmp_errors
    }}
}}
{}"#,
            self.nat_rules()
        )
    }

    fn nat_rules(&self) -> String {
        let first = FIRST_PORT + self.port_range.load(Ordering::Relaxed) * PORTS;
        let last = first + PORTS - 1;
        let which = match self.ipv6 {
            Ipv6::Off | Ipv6::Routed => "meta nfproto ipv4 ",
            Ipv6::Masqueraded => "",
        };
        let rule = format!("add rule inet lab nat oifname \"{ROUTER_WAN}\" {which}");
        format!(
            "{rule}meta l4proto {{ tcp, udp }} masquerade to :{first}-{last}\n{rule}masquerade\n"
        )
    }
}
