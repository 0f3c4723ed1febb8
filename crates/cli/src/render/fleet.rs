//! How a fleet looks.

use ropewalk_proxy::fleet::{FleetReport, MemberReport, ProxyReport, ProxyState};
use ropewalk_settings::figures::size;

use super::Page;
use super::peers::moment;

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
