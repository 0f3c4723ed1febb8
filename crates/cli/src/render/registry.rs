//! The registry that a proxy shares with others, in one line of its status.

use std::time::Duration;

use ropewalk_control::api::RegistryStatus;

use super::age;

/// The fleet, how much of it is known, from where, and since when its registry is away.
pub(super) fn line(registry: &RegistryStatus) -> String {
    let draining = if registry.draining { ", drains" } else { "" };
    let span = |seconds| age(Duration::from_secs(seconds).as_secs_f64());
    let copy = registry
        .copy_age_s
        .map(|old| format!(" (from the copy on this proxy's disk, {} old)", span(old)));
    let known = format!(
        "{} as {}{draining}: {} clients{}, {} proxies, {} sessions",
        registry.fleet,
        registry.id,
        registry.clients,
        copy.unwrap_or_default(),
        registry.proxies,
        registry.sessions
    );
    match (registry.away_s, &registry.away_why) {
        (Some(away), why) => {
            let why = why.as_deref().unwrap_or_default();
            format!("{known}; its registry has been away for {}: {why}", span(away))
        }
        (None, _) if !registry.begun => format!("{known}; its registry has not answered yet"),
        (None, _) => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_told_with_what_is_known_and_from_where() {
        let read = RegistryStatus {
            fleet: "home".to_owned(),
            id: "fra-1".to_owned(),
            begun: true,
            clients: 3,
            proxies: 2,
            sessions: 1,
            ..RegistryStatus::default()
        };
        let away = RegistryStatus {
            away_s: Some(75),
            away_why: Some("no answer".to_owned()),
            ..read.clone()
        };
        let silent = RegistryStatus { begun: false, draining: true, ..read.clone() };
        let copied = RegistryStatus { begun: false, copy_age_s: Some(7_200), ..away.clone() };
        for (registry, expected) in [
            (read, "home as fra-1: 3 clients, 2 proxies, 1 sessions"),
            (
                silent,
                "home as fra-1, drains: 3 clients, 2 proxies, 1 sessions; its registry has not answered yet",
            ),
            (
                away,
                "home as fra-1: 3 clients, 2 proxies, 1 sessions; its registry has been away for 1m 15s: no answer",
            ),
            (
                copied,
                "home as fra-1: 3 clients (from the copy on this proxy's disk, 2h old), 2 proxies, 1 sessions; its registry \
                 has been away for 1m 15s: no answer",
            ),
        ] {
            assert_eq!(line(&registry), expected);
        }
    }
}
