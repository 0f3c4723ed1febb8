//! What only a proxy has.

use super::exposition::{Kind, Labels, Page, Value};
use super::forwards;
use crate::api::{PoolStatus, ProxyStatus};

/// First messages, pools, the fleet's registry, the kernel's tables, and forwards.
pub(super) fn families(page: &mut Page, status: &ProxyStatus) {
    let counted = &status.handshakes;
    let by =
        |outcome: &str, count| (Labels::default().with("outcome", outcome), Value::Whole(count));
    let outcomes = [
        by("completed", counted.completed),
        by("unauthentic", counted.unauthentic),
        by("unknown_key", counted.unknown_key),
        by("replayed", counted.replayed),
        by("other_version", counted.other_version),
        by("rate_limited", counted.rate_limited),
        by("no_cookie", counted.no_cookie),
        by("wrong_cookie", counted.wrong_cookie),
        by("address_limited", counted.address_limited),
    ];
    let help = "First messages received, by what became of them.";
    page.family("handshakes_total", Kind::Counter, help, outcomes);
    let help = "First messages received with a right cookie, while there were too many.";
    page.counter("handshakes_with_cookie_total", help, Value::Whole(counted.with_cookie));

    let of_pools = |value: fn(&PoolStatus) -> Value| {
        let pools = status.pools.iter();
        pools.map(move |pool| {
            (Labels::default().with("prefix", pool.prefix.to_string()), value(pool))
        })
    };
    let leased = of_pools(|pool| Value::Whole(pool.leased));
    page.family("pool_leased_addresses", Kind::Gauge, "Inner addresses given to clients.", leased);
    #[expect(clippy::cast_precision_loss, reason = "an IPv6 prefix has more addresses than bits")]
    let sizes = of_pools(|pool| Value::Real(pool.size as f64));
    page.family("pool_addresses", Kind::Gauge, "Inner addresses that can be given.", sizes);

    if let Some(registry) = &status.registry {
        let answers = Value::flag(registry.begun && registry.away_s.is_none());
        page.gauge("registry_up", "Whether the registry of the fleet answers.", answers);
        let away = Value::Whole(registry.away_s.unwrap_or(0));
        let help = "Seconds for which the registry of the fleet has not answered.";
        page.gauge("registry_away_seconds", help, away);
        let age = Value::Whole(registry.copy_age_s.unwrap_or(0));
        let help = "Age in seconds of the copy from which clients are served until the registry of the fleet was read.";
        page.gauge("registry_copy_age_seconds", help, age);
        page.gauge("fleet_clients", "Clients of the fleet.", Value::Whole(registry.clients));
        let proxies = Value::Whole(registry.proxies);
        page.gauge("fleet_proxies", "Proxies of the fleet that run.", proxies);
        let sessions = Value::Whole(registry.sessions);
        page.gauge("fleet_sessions", "Sessions with all proxies of the fleet.", sessions);
        let draining = Value::flag(registry.draining);
        page.gauge("draining", "Whether this proxy takes no new sessions.", draining);
    }
    if let Some(table) = status.conntrack {
        let help = "Entries of the kernel's table of connections in use.";
        page.gauge("conntrack_entries", help, Value::Whole(table.count));
        let help = "Entries that the kernel's table of connections holds at most.";
        page.gauge("conntrack_limit", help, Value::Whole(table.limit));
    }
    if let Some(turned_away) = status.turned_away {
        let help = "Packets of clients to what is closed to them.";
        page.counter("refused_packets_total", help, Value::Whole(turned_away.refused));
        let help = "Connections dropped because one client had, began or was sent too many.";
        page.counter("bounded_connections_total", help, Value::Whole(turned_away.bounded));
    }
    forwards::families(page, &status.forwards);
}
