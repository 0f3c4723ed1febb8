//! The status document as Prometheus reads it (text exposition format 0.0.4).
//!
//! One table for each thing that is measured; a family's lines stand together, as the format wants them. Names and units
//! are Prometheus' own: base units (seconds, bytes), `_total` for what only grows. *Sent* and *received* are this
//! daemon's: on a client sent is upstream, on a proxy downstream. What is not known yet has no line.
//!
//! **How many series there can be**: labels are the names of peers (on a proxy only) and of links, and words of this
//! module. At most [`MAX_TUNNELS`] tunnels, [`MAX_LINKS`] links of each and [`MAX_ALL_LINKS`] links in all are told of; how
//! many are left out is told too.
//! Forwarded ports have their client's name and their own numbers; a config has at most 256 of them.
//! On a proxy a link is called as its client calls it, so a client can make a series of each name that it thinks of, but
//! no more than these at a time.

mod exposition;
mod forwards;
mod link;
mod proxies;
mod proxy;
mod tunnel;

use crate::api::{LinkStatus, Role, StatusReport, TunnelStatus};
use exposition::{Kind, Labels, Page, Value};
use link::links_of;

/// The media type of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Most tunnels that are told of: as many clients as a proxy has room for where its config says nothing.
pub const MAX_TUNNELS: usize = 1024;

/// Most links of a tunnel that are told of: as many as a client may list.
pub const MAX_LINKS: usize = 64;

/// Most links of all tunnels together: eight for each tunnel, and an answer of at most about 35 MB.
pub const MAX_ALL_LINKS: usize = 8 * MAX_TUNNELS;

/// The document in Prometheus' text format.
#[must_use]
pub fn text(report: &StatusReport) -> String {
    let role = report.daemon.role;
    let tunnels = shown(report);
    let links: Vec<(Labels<'_>, &LinkStatus)> =
        tunnels.iter().flat_map(|tunnel| links_of(role, tunnel)).take(MAX_ALL_LINKS).collect();
    let tunnels: Vec<(Labels<'_>, &TunnelStatus)> =
        tunnels.into_iter().map(|tunnel| (peer(role, tunnel), tunnel)).collect();

    let mut page = Page::default();
    daemon(&mut page, report, tunnels.len(), links.len());
    each(&mut page, role, tunnel::FAMILIES, &tunnels);
    tunnel::several(&mut page, &tunnels);
    each(&mut page, role, link::FAMILIES, &links);
    link::several(&mut page, &links);
    if let Some(status) = &report.proxy {
        proxy::families(&mut page, status);
    }
    if let Some(known) = &report.proxies {
        proxies::families(&mut page, known);
    }
    page.0
}

/// Those that are told of: who is connected comes first.
fn shown(report: &StatusReport) -> Vec<&TunnelStatus> {
    let (there, away): (Vec<_>, Vec<_>) =
        report.tunnels.iter().partition(|tunnel| tunnel.session.is_some());
    there.into_iter().chain(away).take(MAX_TUNNELS).collect()
}

/// Whose tunnel: a client has only one.
fn peer(role: Role, tunnel: &TunnelStatus) -> Labels<'_> {
    match role {
        Role::Client => Labels::default(),
        Role::Proxy => Labels::default().with("peer", tunnel.peer.clone()),
    }
}

/// What the daemon tells of itself.
fn daemon(page: &mut Page, report: &StatusReport, tunnels: usize, links: usize) {
    let daemon = &report.daemon;
    let build = Labels::default()
        .with("role", daemon.role.to_string())
        .with("version", daemon.program_version.clone());
    page.family("build_info", Kind::Gauge, "The daemon that answers.", [(build, Value::Whole(1))]);
    page.gauge("uptime_seconds", "Since the start of the daemon.", Value::Real(daemon.uptime_s));
    let warnings = Value::count(daemon.warnings.len());
    page.gauge("warnings", "Warnings that `ropewalk status` shows at present.", warnings);
    let all = report.tunnels.len();
    let help = "Tunnels: one of a client, one for each peer of a proxy.";
    page.gauge("tunnels", help, Value::count(all));
    let left_out = Value::count(all.saturating_sub(tunnels));
    page.gauge("tunnels_left_out", "Tunnels beyond those that are told of here.", left_out);
    let all: usize = report.tunnels.iter().map(|tunnel| tunnel.links.len()).sum();
    let left_out = Value::count(all.saturating_sub(links));
    page.gauge("links_left_out", "Links beyond those that are told of here.", left_out);
    let drops = report.drops.iter().map(|(reason, count)| {
        (Labels::default().with("reason", reason.clone()), Value::Whole(*count))
    });
    let help = "Dropped before it could be ascribed to a tunnel.";
    page.family("dropped_total", Kind::Counter, help, drops);
}

/// One name, of each tunnel or of each link.
struct Family<T> {
    /// Without the prefix of all.
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(Role, &T) -> Option<Value>,
}

impl<T> Family<T> {
    const fn gauge(
        name: &'static str,
        help: &'static str,
        value: fn(Role, &T) -> Option<Value>,
    ) -> Self {
        Self { name, kind: Kind::Gauge, help, value }
    }

    const fn counter(
        name: &'static str,
        help: &'static str,
        value: fn(Role, &T) -> Option<Value>,
    ) -> Self {
        Self { name, kind: Kind::Counter, help, value }
    }
}

/// One line of each family for each of them.
fn each<T>(page: &mut Page, role: Role, families: &[Family<T>], all: &[(Labels<'_>, &T)]) {
    for family in families {
        let values = all
            .iter()
            .filter_map(|(labels, one)| Some((labels.clone(), (family.value)(role, one)?)));
        page.family(family.name, family.kind, family.help, values);
    }
}

/// Of what a client sends and a proxy sends that of this end.
fn sent<T>(role: Role, by_client: T, by_proxy: T) -> T {
    match role {
        Role::Client => by_client,
        Role::Proxy => by_proxy,
    }
}
