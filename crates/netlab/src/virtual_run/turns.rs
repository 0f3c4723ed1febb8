//! Moments at which something happens to a link that the run must act on: interfaces that go down and come up, and links
//! that return.

use std::time::Duration;

use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::tunnel::LinkStats;

use crate::lab::PROXY;
use crate::pair::{TunnelLab, link_config};
use crate::scenario::Scenario;

/// What happens. Of what happens to a link at the same moment, in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum What {
    /// The client's interface is up again.
    Up,
    /// The link carries again, and how soon it is used is to be measured.
    Returns,
    /// The client's interface goes down.
    Down,
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
        for down in &of.down {
            turns.push(Turn { at: down.from, link, what: What::Down });
            turns.push(Turn { at: down.until, link, what: What::Up });
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

/// The kernel tells the client that the interface is down: the client gives up the link, and says so over the others.
pub(super) fn take_down(lab: &mut TunnelLab, name: &str) {
    if let Some(link) = link_named(lab, name) {
        lab.with_client(|client, now, sink| client.remove_link(now, link.id, sink));
    }
}

/// The interface is up again.
pub(super) fn bring_up(lab: &mut TunnelLab, place: usize, scenario: &Scenario) {
    let socket = SocketId(u16::try_from(place).unwrap_or(u16::MAX));
    let path = Path { socket, local: None, remote: PROXY };
    let config = link_config(&scenario.links[place].name, path, scenario.tunnel.keepalive);
    lab.with_client(|client, now, _| {
        // One link was taken away before, so there is room.
        let _ = client.add_link(now, &config);
    });
}
