//! The access link between a client and a router: its conditions, its two ends, and what they know
//! of each other from the start.
//!
//! The ends have fixed hardware addresses in each other's neighbour tables, so that a long cut stays
//! silent and does not end in "no route to host".

use std::net::IpAddr;
use std::time::Duration;

use ropewalk_settings::Bitrate;

use crate::address::{client_interface, client_v4, client_v6, gateway_v4, gateway_v6, router_lan};
use crate::emulator::Port;
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::netem::Conditions;
use crate::queue::{QueueLimit, Rate};
use crate::topology::{Ipv6, veth};

/// What an access link does in each direction.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Access {
    /// Client to router.
    pub upstream: Conditions,
    /// Router to client.
    pub downstream: Conditions,
}

impl Access {
    /// The same in both directions: a constant rate, half of the round-trip time, and a queue that
    /// holds what the rate carries in `queue`.
    #[must_use]
    pub fn symmetric(rate: Bitrate, rtt: Duration, queue: Duration) -> Self {
        let conditions = Conditions {
            rate: Rate::Fixed(rate),
            delay: rtt / 2,
            queue: QueueLimit::of_time(queue),
            ..Conditions::default()
        };
        Self { upstream: conditions.clone(), downstream: conditions }
    }
}

/// Which end of an access link.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Near = 1,
    Far = 2,
}

/// One end of an access link that is still to be made.
pub(crate) struct AccessEnd<'a> {
    namespace: &'a Namespace,
    interface: String,
    mac: [u8; 6],
}

impl<'a> AccessEnd<'a> {
    pub(crate) fn new(namespace: &'a Namespace, client: u8, wan: u8, end: End) -> Self {
        let interface = match end {
            End::Near => client_interface(wan),
            End::Far => router_lan(client),
        };
        Self { namespace, interface, mac: access_mac(client, wan, end) }
    }

    pub(crate) fn port(&self) -> Port {
        Port { mac: Some(self.mac), ..Port::new(Some(self.namespace.path()), &self.interface) }
    }
}

/// A locally administered hardware address that says where it belongs.
const fn access_mac(client: u8, wan: u8, end: End) -> [u8; 6] {
    [0x02, 0, 0, client, wan, end as u8]
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Makes an access link without emulation.
pub(crate) fn plain_access(near: &AccessEnd<'_>, far: &AccessEnd<'_>) -> Result<(), LabError> {
    veth((near.namespace, &near.interface), (far.namespace, &far.interface))?;
    for end in [near, far] {
        end.namespace.ip(&format!("link set {} address {}", end.interface, mac_text(end.mac)))?;
    }
    Ok(())
}

/// Makes both ends of an access link know each other's hardware address for good.
pub(crate) fn acquaint(
    client_namespace: &Namespace,
    router: &Namespace,
    client: u8,
    wan: u8,
    ipv6: Ipv6,
) -> Result<(), LabError> {
    let know = |namespace: &Namespace, interface: &str, address: IpAddr, end: End| {
        let mac = mac_text(access_mac(client, wan, end));
        namespace.ip(&format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"))
    };
    let (near, far) = (client_interface(wan), router_lan(client));
    know(client_namespace, &near, gateway_v4(client, wan).into(), End::Far)?;
    know(router, &far, client_v4(client, wan).into(), End::Near)?;
    if ipv6 != Ipv6::Off {
        know(client_namespace, &near, gateway_v6(client, wan).into(), End::Far)?;
        know(router, &far, client_v6(client, wan).into(), End::Near)?;
    }
    Ok(())
}
