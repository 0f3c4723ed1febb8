//! How a fleet looks.

use std::time::Duration;

use ropewalk_proxy::fleet::{FleetReport, MemberReport, ProxyReport, ProxyState};
use ropewalk_settings::figures::size;

use super::Page;
use super::peers::moment;

/// How far an import is that began so long ago, in a line.
pub(crate) fn import_progress(settled: usize, of: usize, since: Duration) -> String {
    let settled_a_second = settled as f64 / since.as_secs_f64().max(0.001);
    let left_s = of.saturating_sub(settled) as f64 / settled_a_second.max(0.001);
    format!("{settled} of {of} clients, {settled_a_second:.0} a second, {left_s:.0} s left")
}

/// Its proxies, then the members of etcd.
pub(crate) fn fleet(report: &FleetReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    page.line(
        0,
        &format!(
            "Fleet {}: {} clients, {} open invitations, {} proxies",
            report.fleet,
            report.clients,
            report.invitations,
            report.proxies.len()
        ),
    );
    for proxy in &report.proxies {
        one(&mut page, proxy);
    }
    for id in &report.drained {
        page.line(0, &format!("{id}: does not run, and will drain when it does"));
    }
    page.gap();
    for each in &report.members {
        member(&mut page, each);
    }
    for (key, why) in &report.foreign {
        page.line(0, &format!("{key} is not read: {why}"));
    }
    if !report.foreign.is_empty() {
        page.line(0, "Delete what is not Ropewalk's (`etcdctl del KEY`), or use another prefix.");
    }
    page.text
}

fn one(page: &mut Page, proxy: &ProxyReport) {
    let state = match proxy.state {
        ProxyState::Serving => "serving",
        ProxyState::Draining => "draining",
    };
    let region = match proxy.region.as_str() {
        "" => String::new(),
        region => format!(" in {region}"),
    };
    page.line(
        0,
        &format!(
            "{}{region}: {state}, {} of {} sessions ({} %), ropewalk {}",
            proxy.id, proxy.sessions, proxy.capacity, proxy.load, proxy.program
        ),
    );
    page.fact("key", &proxy.public_key.to_string());
    let addresses: Vec<_> = proxy.addresses.iter().map(ToString::to_string).collect();
    page.fact("at", &addresses.join(", "));
    page.fact("since", &moment(proxy.since));
}

fn member(page: &mut Page, member: &MemberReport) {
    let leads = if member.leader { ", leads" } else { "" };
    let state = match (&member.version, member.bytes) {
        (Some(version), bytes) => {
            let bytes = u64::try_from(bytes.unwrap_or_default()).unwrap_or_default();
            format!("version {version}, database of {}{leads}", size(bytes))
        }
        (None, _) => "does not answer".to_owned(),
    };
    page.line(0, &format!("etcd at {}: {state}", member.endpoint));
    for problem in &member.problems {
        page.fact("problem", problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_an_import_is_stands_in_a_line() {
        for (settled, of, seconds, expected) in [
            (42, 1000, 1, "42 of 1000 clients, 42 a second, 23 s left"),
            (250_000, 1_000_000, 25, "250000 of 1000000 clients, 10000 a second, 75 s left"),
            (7, 7, 0, "7 of 7 clients, 7000 a second, 0 s left"),
        ] {
            assert_eq!(import_progress(settled, of, Duration::from_secs(seconds)), expected);
        }
    }
}
