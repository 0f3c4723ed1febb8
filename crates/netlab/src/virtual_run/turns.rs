//! Moments at which something happens to a link that the run must act on: interfaces that go down and come up, and links
//! that return.

use std::time::Duration;

use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::tunnel::LinkStats;

use crate::lab::PROXY;
use crate::netem::{Conditions, Cut};
use crate::pair::{TunnelLab, link_config};
use crate::scenario::Scenario;
use crate::scenario::file::OutageKind;

/// What happens. Of what happens to a link at the same moment, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// An outage is over.
    Comes(OutageKind),
    /// The link carries again, and how soon it is used is to be measured.
    Returns,
    /// An outage begins.
    Goes(OutageKind),
}

/// A moment of the scenario.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Turn {
    /// Since the beginning.
    pub(super) at: Duration,
    /// The place of the link.
    pub(super) link: usize,
    pub(super) what: What,
}

/// All of them, the last one first; returns where they are `watched`.
pub(super) fn turns(scenario: &Scenario, watched: bool) -> Vec<Turn> {
    let mut turns = Vec::new();
    for (link, of) in scenario.links.iter().enumerate() {
        for outage in &of.outages {
            turns.push(Turn { at: outage.from, link, what: What::Goes(outage.kind) });
            turns.push(Turn { at: outage.until, link, what: What::Comes(outage.kind) });
        }
    }
    if watched {
        let returns = scenario.returns().into_iter();
        turns.extend(returns.map(|(at, link)| Turn { at, link, what: What::Returns }));
    }
    turns.sort_unstable();
    turns.reverse();
    turns
}

/// The client's view of a link; `None` while it has none of this name.
pub(super) fn link_named(lab: &TunnelLab, name: &str) -> Option<LinkStats> {
    lab.client.stats().links.into_iter().find(|link| *link.name == *name)
}

/// An outage begins. A client that is told gives up the link, and says so over the others.
pub(super) fn go(lab: &mut TunnelLab, place: usize, kind: OutageKind, scenario: &Scenario) {
    match kind {
        // The links follow their courses.
        OutageKind::Silent => {}
        OutageKind::InterfaceDown | OutageKind::AddressLost => {
            if let Some(link) = link_named(lab, &scenario.links[place].name) {
                lab.with_client(|client, now, sink| client.remove_link(now, link.id, sink));
            }
        }
        OutageKind::RouterGone => cut_up(lab, place, Some(Cut::Arrivals)),
        OutageKind::NatForgets => lab.links[place].forget_mapping(),
    }
}

/// It is over.
pub(super) fn come(lab: &mut TunnelLab, place: usize, kind: OutageKind, scenario: &Scenario) {
    match kind {
        OutageKind::Silent | OutageKind::NatForgets => {}
        OutageKind::InterfaceDown | OutageKind::AddressLost => {
            let socket = SocketId(u16::try_from(place).unwrap_or(u16::MAX));
            let path = Path { socket, local: None, remote: PROXY };
            let name = &scenario.links[place].name;
            let config = link_config(name, path, scenario.tunnel.keepalive);
            lab.with_client(|client, now, _| {
                // One link was taken away before, so there is room.
                let _ = client.add_link(now, &config);
            });
        }
        OutageKind::RouterGone => cut_up(lab, place, None),
    }
}

/// Nothing passes to the proxy any more, or again.
fn cut_up(lab: &mut TunnelLab, place: usize, cut: Option<Cut>) {
    let now = lab.now;
    let up = &mut lab.links[place].up;
    let conditions = Conditions { cut, ..up.conditions().clone() };
    up.plan_change(now, conditions);
}
