//! A small Internet in network namespaces: clients with several WANs, a masquerading router on
//! each, the provider network that joins them, the proxy, and a server beyond it.
//! [`crate::address`] has the picture and the addresses.
//!
//! A client looks like a laptop: one interface per WAN with an address and a default route of its
//! own metric in the main table; the program under test has to find each interface's gateway
//! itself. Nobody but a router knows a route to what is behind it, and nobody at all one to the
//! tunnel's inner addresses: what arrives at the server has passed the proxy's source NAT.
//!
//! Only the access links (client to router) are emulated; every other is a plain veth pair. No
//! interface aggregates segments (`gso_max_segs 1`), so that every packet on a wire is one that
//! could exist outside.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

use crate::access::{Access, AccessEnd, End, acquaint, plain_access};
use crate::address::{
    MAX_CLIENTS, MAX_WANS, PROXY_GATEWAY_V4, PROXY_GATEWAY_V6, PROXY_V4, PROXY_V6, ROUTER_WAN,
    SERVER_GATEWAY_V4, SERVER_GATEWAY_V6, SERVER_V4, SERVER_V6, UPLINK, client_interface,
    client_v4, client_v6, gateway_v4, gateway_v6, provider_v4, provider_v6,
};
use crate::emulator::{Direction, Emulator, LinkSpec, Port};
use crate::error::LabError;
use crate::namespace::{Cores, Namespace, next_number};
use crate::netem::{Conditions, Cut};
use crate::router::Router;

/// What the emulated Internet does about IPv6.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ipv6 {
    /// None anywhere.
    Off,
    /// Clients have global addresses; routers let in only answers.
    #[default]
    Routed,
    /// Routers masquerade IPv6 too.
    Masqueraded,
}

/// How strictly a client's kernel checks where a packet came from (RFC 3704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReversePath {
    /// Not at all.
    Off,
    /// Some route to the source must exist: the default of most distributions.
    #[default]
    Loose,
    /// The route to the source must lead out of the interface it came in by.
    Strict,
}

impl ReversePath {
    const fn as_sysctl(self) -> &'static str {
        match self {
            Self::Off => "0",
            Self::Strict => "1",
            Self::Loose => "2",
        }
    }
}

/// What to build.
#[derive(Clone, Debug)]
pub struct TopologyConfig {
    /// One entry for each WAN that every client has.
    pub wans: Vec<WanConfig>,
    /// How many clients, each with its own access links to the same routers.
    pub clients: u8,
    /// IPv6 outside of the tunnel.
    pub ipv6: Ipv6,
    /// The clients' check of incoming packets.
    pub reverse_path: ReversePath,
    /// Decides what the access links lose, and how long jitter delays.
    pub seed: u64,
}

/// One WAN: the access link of each client to it, and its router.
#[derive(Clone, Debug, Default)]
pub struct WanConfig {
    /// The access link; where `None` a plain veth pair, which has no limits and cannot be changed.
    pub access: Option<Access>,
    /// How long the router remembers an idle UDP flow; the kernel's default (30 s, then 120 s for
    /// an answered flow) where `None`.
    pub udp_timeout: Option<Duration>,
}

impl From<Access> for WanConfig {
    fn from(access: Access) -> Self {
        Self { access: Some(access), ..Self::default() }
    }
}

impl TopologyConfig {
    /// One client with these WANs, IPv6 routed, seed 1.
    #[must_use]
    pub fn new(wans: Vec<WanConfig>) -> Self {
        Self {
            wans,
            clients: 1,
            ipv6: Ipv6::default(),
            reverse_path: ReversePath::default(),
            seed: 1,
        }
    }
}

/// The emulated Internet; dropped, it is gone.
pub struct Topology {
    // First, so that the emulator lets go of its devices before their namespaces are removed.
    emulator: Option<Emulator>,
    /// The emulator's number of each link, by client and WAN.
    links: BTreeMap<(u8, u8), usize>,
    clients: Vec<Namespace>,
    routers: Vec<Router>,
    internet: Namespace,
    proxy: Namespace,
    server: Namespace,
    ipv6: Ipv6,
    /// What the names of its namespaces have in common.
    number: u32,
}

impl Topology {
    /// Builds it; whatever exists when a step fails is removed again.
    ///
    /// # Errors
    /// When the configuration exceeds the address plan, or a tool fails.
    pub fn build(config: &TopologyConfig) -> Result<Self, LabError> {
        let wans = u8::try_from(config.wans.len()).unwrap_or(u8::MAX);
        if wans > MAX_WANS || config.clients > MAX_CLIENTS {
            return Err(LabError::Unsupported(format!(
                "{wans} WANs and {} clients: the address plan has room for {MAX_WANS} and {MAX_CLIENTS}",
                config.clients
            )));
        }
        let number = next_number();
        let ipv6 = config.ipv6;
        let make_on = |cores: Cores, role: &str| -> Result<Namespace, LabError> {
            let namespace = Namespace::create_on(cores, number, role)?;
            namespace.sysctl(&settings(ipv6))?;
            Ok(namespace)
        };
        let make = |role: &str| make_on(Cores::OfItsMaker, role);

        let internet = make("internet")?;
        let proxy = make("proxy")?;
        let server = make("server")?;
        join_host(&internet, &proxy, "proxy", &HostAddresses::PROXY, ipv6)?;
        join_host(&internet, &server, "server", &HostAddresses::SERVER, ipv6)?;
        forward(&internet, ipv6)?;

        let clients: Vec<Namespace> = (0..config.clients)
            .map(|client| {
                let namespace = make_on(Cores::All, &format!("client{client}"))?;
                let check = config.reverse_path.as_sysctl();
                namespace.sysctl(&[
                    ("net.ipv4.conf.all.rp_filter", check),
                    ("net.ipv4.conf.default.rp_filter", check),
                ])?;
                Ok(namespace)
            })
            .collect::<Result<_, LabError>>()?;

        let mut routers = Vec::new();
        let (mut links, mut specs) = (BTreeMap::new(), Vec::new());
        for (wan, settings) in (0..wans).zip(&config.wans) {
            let router = make(&format!("router{wan}"))?;
            forward(&router, ipv6)?;
            join_router(&internet, &router, wan, ipv6)?;
            for (client, near) in (0..config.clients).zip(&clients) {
                let (near, far) = (
                    AccessEnd::new(near, client, wan, End::Near),
                    AccessEnd::new(&router, client, wan, End::Far),
                );
                match &settings.access {
                    None => plain_access(&near, &far)?,
                    Some(access) => {
                        links.insert((client, wan), specs.len());
                        specs.push(LinkSpec {
                            near: near.port(),
                            far: far.port(),
                            upstream: access.upstream.clone(),
                            downstream: access.downstream.clone(),
                        });
                    }
                }
            }
            routers.push(router);
        }
        let emulator = match specs.is_empty() {
            true => None,
            false => Some(Emulator::spawn(specs, config.seed)?),
        };

        let mut configured = Vec::new();
        for ((wan, settings), namespace) in (0..wans).zip(&config.wans).zip(routers) {
            let router = Router::configure(namespace, wan, config.clients, ipv6)?;
            if let Some(timeout) = settings.udp_timeout {
                router.set_udp_timeout(timeout)?;
            }
            for (client, client_namespace) in (0..config.clients).zip(&clients) {
                configure_client(client_namespace, client, wan, ipv6)?;
                acquaint(client_namespace, router.namespace(), client, wan, ipv6)?;
            }
            configured.push(router);
        }
        Ok(Self {
            emulator,
            links,
            clients,
            routers: configured,
            internet,
            proxy,
            server,
            ipv6,
            number,
        })
    }

    /// Cuts an access link without telling anybody: what is under way, and what comes, is lost.
    ///
    /// # Errors
    /// [`LabError::Unsupported`] where the link is plain or does not exist.
    pub fn cut(&self, client: u8, wan: u8) -> Result<(), LabError> {
        self.change_both(client, wan, |conditions| conditions.cut = Some(Cut::Everything))
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// As [`Topology::cut`].
    pub fn restore(&self, client: u8, wan: u8) -> Result<(), LabError> {
        self.change_both(client, wan, |conditions| conditions.cut = None)
    }

    /// Takes a client's interface to a WAN down, or up again as it was configured.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_interface(&self, client: u8, wan: u8, up: bool) -> Result<(), LabError> {
        let namespace = &self.clients[usize::from(client)];
        let interface = client_interface(wan);
        if !up {
            return namespace.ip(&format!("link set {interface} down"));
        }
        // Its addresses stay; routes and neighbours went with it.
        namespace.ip(&format!(
            "link set {interface} up\nroute replace default via {} dev {interface} metric {}",
            gateway_v4(client, wan),
            metric(wan),
        ))?;
        let router = self.routers[usize::from(wan)].namespace();
        acquaint(namespace, router, client, wan, Ipv6::Off)
    }

    /// Takes the IPv4 address of a client's interface to a WAN away, or gives it back with what went with it.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_address(&self, client: u8, wan: u8, there: bool) -> Result<(), LabError> {
        let namespace = &self.clients[usize::from(client)];
        let (interface, address) = (client_interface(wan), client_v4(client, wan));
        if !there {
            return namespace.ip(&format!("addr del {address}/24 dev {interface}"));
        }
        namespace.ip(&format!("addr add {address}/24 dev {interface}"))?;
        self.set_interface(client, wan, true)
    }

    /// Changes the conditions of one direction of an access link, at once.
    ///
    /// # Errors
    /// As [`Topology::cut`].
    pub fn change(
        &self,
        client: u8,
        wan: u8,
        direction: Direction,
        change: impl FnOnce(&mut Conditions) + Send + 'static,
    ) -> Result<(), LabError> {
        let (emulator, link) = self.emulated(client, wan)?;
        emulator.update(link, direction, change)
    }

    /// Changes both directions of an access link.
    ///
    /// # Errors
    /// As [`Topology::cut`].
    pub fn change_both(
        &self,
        client: u8,
        wan: u8,
        change: impl Fn(&mut Conditions) + Clone + Send + 'static,
    ) -> Result<(), LabError> {
        let (emulator, link) = self.emulated(client, wan)?;
        emulator.update_both(link, change)
    }

    fn emulated(&self, client: u8, wan: u8) -> Result<(&Emulator, usize), LabError> {
        let link = self.links.get(&(client, wan));
        self.emulator.as_ref().zip(link.copied()).ok_or_else(|| {
            LabError::Unsupported(format!("client {client} has no emulated link to WAN {wan}"))
        })
    }

    /// Another host, with a namespace of its own, and with these uplinks to the Internet: `eth0` and so on, each a network of its own
    /// with a default route; IPv4 alone.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn add_host(&self, role: &str, uplinks: Range<u16>) -> Result<Namespace, LabError> {
        let host = Namespace::create(self.number, role)?;
        host.sysctl(&settings(Ipv6::Off))?;
        for (at, uplink) in (0..).zip(uplinks) {
            let (near, far) = (format!("eth{at}"), format!("up{uplink}"));
            veth((&host, &near), (&self.internet, &far))?;
            self.address_uplink(&host, at, (uplink, uplink))?;
        }
        Ok(host)
    }

    /// Another host, as of [`add_host`](Self::add_host), without an uplink; and the link that is its `eth0` when an emulator carries
    /// it, which has these conditions in both directions. Then [`address_uplink`](Self::address_uplink) gives it its addresses.
    ///
    /// # Errors
    /// When no namespace can be made.
    pub fn add_far_host(
        &self,
        role: &str,
        uplink: u16,
        conditions: &Conditions,
    ) -> Result<(Namespace, LinkSpec), LabError> {
        let host = self.add_host(role, 0..0)?;
        let link = LinkSpec {
            near: Port::new(Some(host.path()), "eth0"),
            far: Port::new(Some(self.internet.path()), format!("up{uplink}")),
            upstream: conditions.clone(),
            downstream: conditions.clone(),
        };
        Ok((host, link))
    }

    /// Gives uplink `at` of a host the addresses of an uplink in place of those that it has, as in another network; `made` is the uplink as
    /// which it was added.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn address_uplink(
        &self,
        host: &Namespace,
        at: u8,
        (made, uplink): (u16, u16),
    ) -> Result<(), LabError> {
        let (near, far) = (format!("eth{at}"), format!("up{made}"));
        let (address, gateway) = (Self::uplink_v4(uplink), uplink_gateway_v4(uplink));
        self.internet.ip(&format!(
            "addr flush dev {far}\naddr add {gateway}/30 dev {far}\nlink set {far} up"
        ))?;
        // The routes of an address go with it.
        host.ip(&format!(
            "addr flush dev {near}\naddr add {address}/30 dev {near}\nlink set {near} up\n\
             route add default via {gateway} dev {near} metric {}",
            metric(at)
        ))
    }

    /// The address of an uplink of [`add_host`](Self::add_host).
    #[must_use]
    pub const fn uplink_v4(uplink: u16) -> Ipv4Addr {
        let [high, low] = (uplink * 4 + 2).to_be_bytes();
        Ipv4Addr::new(198, 19, high, low)
    }

    /// The emulator of the access links, for its report; `None` where all are plain.
    #[must_use]
    pub const fn emulator(&self) -> Option<&Emulator> {
        self.emulator.as_ref()
    }

    /// The namespace of the first client.
    ///
    /// # Panics
    /// Where the topology was built without a client.
    #[must_use]
    pub fn client(&self) -> &Namespace {
        &self.clients[0]
    }

    /// The namespaces of all clients.
    #[must_use]
    pub fn clients(&self) -> &[Namespace] {
        &self.clients
    }

    /// The routers, one a WAN.
    #[must_use]
    pub fn routers(&self) -> &[Router] {
        &self.routers
    }

    /// Router `wan`, to make it misbehave.
    ///
    /// # Panics
    /// Where the topology has no such WAN.
    pub fn router_mut(&mut self, wan: u8) -> &mut Router {
        &mut self.routers[usize::from(wan)]
    }

    /// The clients' namespaces and the routers, to make a router misbehave while something runs in a
    /// client.
    pub fn clients_and_routers(&mut self) -> (&[Namespace], &mut [Router]) {
        (&self.clients, &mut self.routers)
    }

    /// The namespace that stands for the Internet between routers, proxy and server.
    #[must_use]
    pub const fn internet(&self) -> &Namespace {
        &self.internet
    }

    /// The proxy's namespace: a VPS with one uplink and no tunnel yet.
    #[must_use]
    pub const fn proxy(&self) -> &Namespace {
        &self.proxy
    }

    /// The server's namespace.
    #[must_use]
    pub const fn server(&self) -> &Namespace {
        &self.server
    }

    /// What was built of IPv6.
    #[must_use]
    pub const fn ipv6(&self) -> Ipv6 {
        self.ipv6
    }

    /// Every namespace, with its role.
    pub fn namespaces(&self) -> impl Iterator<Item = &Namespace> {
        self.clients.iter().chain(self.routers.iter().map(Router::namespace)).chain([
            &self.internet,
            &self.proxy,
            &self.server,
        ])
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.namespaces().map(Namespace::name)).finish()
    }
}

/// Kernel parameters of every namespace, before its interfaces are made. A new namespace copies
/// some of the initial one's, so that each is set whatever its usual default.
fn settings(ipv6: Ipv6) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", "0"),
        // Ping sockets for the group root, the only one that a user namespace surely has.
        ("net.ipv4.ping_group_range", "0 0"),
    ];
    settings.extend(match ipv6 {
        Ipv6::Off => {
            [("net.ipv6.conf.all.disable_ipv6", "1"), ("net.ipv6.conf.default.disable_ipv6", "1")]
        }
        // Addresses are usable at once: nobody else can have them.
        Ipv6::Routed | Ipv6::Masqueraded => {
            [("net.ipv6.conf.default.accept_dad", "0"), ("net.ipv6.conf.default.accept_ra", "0")]
        }
    });
    settings
}

fn forward(namespace: &Namespace, ipv6: Ipv6) -> Result<(), LabError> {
    namespace.sysctl(&[("net.ipv4.ip_forward", "1")])?;
    if ipv6 != Ipv6::Off {
        namespace.sysctl(&[("net.ipv6.conf.all.forwarding", "1")])?;
    }
    Ok(())
}

const fn uplink_gateway_v4(uplink: u16) -> Ipv4Addr {
    let [high, low] = (uplink * 4 + 1).to_be_bytes();
    Ipv4Addr::new(198, 19, high, low)
}

/// Makes a veth pair whose ends never see the initial namespace.
pub(crate) fn veth(near: (&Namespace, &str), far: (&Namespace, &str)) -> Result<(), LabError> {
    near.0.ip(&format!(
        "link add {} gso_max_segs 1 type veth peer name {} gso_max_segs 1 netns {}",
        near.1,
        far.1,
        far.0.name()
    ))
}

/// The addresses of a host on the Internet and of its gateway.
struct HostAddresses {
    v4: Ipv4Addr,
    v6: std::net::Ipv6Addr,
    gateway_v4: Ipv4Addr,
    gateway_v6: std::net::Ipv6Addr,
}

impl HostAddresses {
    const PROXY: Self = Self {
        v4: PROXY_V4,
        v6: PROXY_V6,
        gateway_v4: PROXY_GATEWAY_V4,
        gateway_v6: PROXY_GATEWAY_V6,
    };
    const SERVER: Self = Self {
        v4: SERVER_V4,
        v6: SERVER_V6,
        gateway_v4: SERVER_GATEWAY_V4,
        gateway_v6: SERVER_GATEWAY_V6,
    };
}

/// Joins proxy or server to the Internet.
fn join_host(
    internet: &Namespace,
    host: &Namespace,
    port: &str,
    addresses: &HostAddresses,
    ipv6: Ipv6,
) -> Result<(), LabError> {
    let HostAddresses { v4, v6, gateway_v4, gateway_v6 } = addresses;
    veth((host, UPLINK), (internet, port))?;
    internet.ip(&format!("addr add {gateway_v4}/24 dev {port}\nlink set {port} up"))?;
    host.ip(&format!(
        "addr add {v4}/24 dev {UPLINK}\nlink set {UPLINK} up\n\
         route add default via {gateway_v4} dev {UPLINK}"
    ))?;
    if ipv6 != Ipv6::Off {
        internet.ip(&format!("addr add {gateway_v6}/64 dev {port} nodad"))?;
        host.ip(&format!(
            "addr add {v6}/64 dev {UPLINK} nodad\nroute add default via {gateway_v6} dev {UPLINK}"
        ))?;
    }
    Ok(())
}

/// Joins a router's WAN side to the Internet; the router configures its own end.
fn join_router(
    internet: &Namespace,
    router: &Namespace,
    wan: u8,
    ipv6: Ipv6,
) -> Result<(), LabError> {
    let port = format!("router{wan}");
    veth((router, ROUTER_WAN), (internet, &port))?;
    internet.ip(&format!("addr add {}/24 dev {port}\nlink set {port} up", provider_v4(wan)))?;
    if ipv6 != Ipv6::Off {
        internet.ip(&format!("addr add {}/64 dev {port} nodad", provider_v6(wan)))?;
    }
    if ipv6 == Ipv6::Routed {
        // The provider knows the prefixes it delegated. One route a client's network; those
        // without a client lead to a router that drops.
        let routes: Vec<String> = (0..MAX_CLIENTS)
            .map(|client| {
                let prefix = client_v6(client, wan);
                format!(
                    "route add {prefix}/128 via {} dev {port}",
                    crate::address::public_v6(wan, 0)
                )
            })
            .collect();
        internet.ip(&routes.join("\n"))?;
    }
    Ok(())
}

/// Gives a client's interface its address and its default route, as a laptop's network service
/// would: in the main table, with a metric of its own.
/// The metric of a client's default route over a WAN.
const fn metric(wan: u8) -> u32 {
    100 * (wan as u32 + 1)
}

fn configure_client(
    client_namespace: &Namespace,
    client: u8,
    wan: u8,
    ipv6: Ipv6,
) -> Result<(), LabError> {
    let interface = client_interface(wan);
    let metric = metric(wan);
    client_namespace.ip(&format!(
        "addr add {}/24 dev {interface}\nlink set {interface} up\n\
         route add default via {} dev {interface} metric {metric}",
        client_v4(client, wan),
        gateway_v4(client, wan),
    ))?;
    if ipv6 != Ipv6::Off {
        client_namespace.ip(&format!(
            "addr add {}/64 dev {interface} nodad\n\
             route add default via {} dev {interface} metric {metric}",
            client_v6(client, wan),
            gateway_v6(client, wan),
        ))?;
    }
    Ok(())
}
