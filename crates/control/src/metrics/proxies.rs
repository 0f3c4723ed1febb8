//! The proxies that a client knows.

use std::collections::BTreeSet;

use super::exposition::{Kind, Labels, Page, Value};
use crate::api::{KnownProxy, ProxiesReport};

/// Most proxies that are told of: those of a fleet, and those of the config.
const MAX_PROXIES: usize = 128;

/// The state of a proxy that takes new sessions.
const SERVING: &str = "serving";

/// Each by its id, else by where it is reached; of several that are called alike the first.
pub(super) fn families(page: &mut Page, report: &ProxiesReport) {
    let mut known: Vec<(Labels<'_>, &KnownProxy)> = Vec::new();
    let mut met = BTreeSet::new();
    for proxy in report.proxies.iter().take(MAX_PROXIES) {
        let address = || proxy.addresses.first().map(ToString::to_string);
        let name = proxy.id.clone().or_else(address);
        let name = name.unwrap_or_else(|| proxy.public_key.to_string());
        if met.insert(name.clone()) {
            let region = proxy.region.clone().unwrap_or_default();
            known.push((Labels::default().with("proxy", name).with("region", region), proxy));
        }
    }
    let mut gauge = |name, help, value: fn(&KnownProxy) -> Option<Value>| {
        let values =
            known.iter().filter_map(|(labels, proxy)| Some((labels.clone(), value(proxy)?)));
        page.family(name, Kind::Gauge, help, values);
    };
    let help = "Whether the proxy is the one in use.";
    gauge("proxy_in_use", help, |proxy| Some(Value::flag(proxy.in_use)));
    let help = "Whether the proxy takes new sessions.";
    gauge("proxy_serving", help, |proxy| Some(Value::flag(proxy.state == SERVING)));
    let help = "Round trip to the proxy; none where it did not answer lately.";
    gauge("proxy_rtt_seconds", help, |proxy| Value::millis(proxy.rtt_ms));
    let help = "How much of what it can carry the proxy carries.";
    gauge("proxy_load_ratio", help, |proxy| {
        Some(Value::Real(f64::from(proxy.load_percent) / 100.0))
    });
    let help = "How often another proxy was chosen.";
    page.counter("proxy_moves_total", help, Value::Whole(report.moves));
}
