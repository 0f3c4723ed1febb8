//! Ports of a proxy that lead to clients.

use super::exposition::{Kind, Labels, Page, Value};
use crate::api::{ForwardState, ForwardStatus};

/// Most forwards that are told of: as many as a config may have.
const MAX_FORWARDS: usize = 256;

/// What each of them carried, in the proxy's words: sent is what it led to the client.
pub(super) fn families(page: &mut Page, forwards: &[ForwardStatus]) {
    let mut family = |name, kind, help, value: fn(&ForwardStatus) -> u64| {
        let values = forwards.iter().take(MAX_FORWARDS).map(|forward| {
            let labels = Labels::default()
                .with("protocol", forward.protocol.to_string())
                .with("port", forward.port.to_string())
                .with("to", forward.to.clone());
            (labels, Value::Whole(value(forward)))
        });
        page.family(name, kind, help, values);
    };
    let help = "Whether the port leads to a client that is connected.";
    family("forward_active", Kind::Gauge, help, |one| (one.state == ForwardState::Active).into());
    let mut counter = |name, help, value: fn(&ForwardStatus) -> u64| {
        family(name, Kind::Counter, help, value);
    };
    let help = "Connections that began at the port.";
    counter("forward_connections_total", help, |one| one.traffic.connections);
    let help = "Packets that the port led to its client.";
    counter("forward_sent_packets_total", help, |one| one.traffic.down_packets);
    let help = "Bytes that the port led to its client.";
    counter("forward_sent_bytes_total", help, |one| one.traffic.down_bytes);
    let help = "Packets of the client's answers.";
    counter("forward_received_packets_total", help, |one| one.traffic.up_packets);
    let help = "Bytes of the client's answers.";
    counter("forward_received_bytes_total", help, |one| one.traffic.up_bytes);
}
