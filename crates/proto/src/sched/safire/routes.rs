//! Which links a flow may take, by its destination: of the routes that match, that of the longest prefix decides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use arrayvec::ArrayString;
use ipnet::IpNet;
use ropewalk_settings::{SafireSettings, shortened};

use crate::wire::frame::MAX_NAME;

/// The destination prefixes that have links of their own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Routes {
    /// With their number, the longest prefix first.
    prefixes: Vec<(IpNet, u32)>,
    /// The links of each by name, as the wire carries it; in the order of their numbers.
    links: Vec<Vec<ArrayString<MAX_NAME>>>,
}

impl Routes {
    /// These routes, numbered in this order; those beyond [`SafireSettings::MAX_ROUTES`] are ignored.
    pub(super) fn new(routes: &BTreeMap<IpNet, Vec<String>>) -> Self {
        let routes = routes.iter().take(SafireSettings::MAX_ROUTES);
        let mut prefixes: Vec<_> = routes.clone().map(|(prefix, _)| *prefix).zip(0..).collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.prefix_len()));
        let short = |names: &Vec<String>| names.iter().map(|name| shortened(name)).collect();
        Self { prefixes, links: routes.map(|(_, names)| short(names)).collect() }
    }

    /// The bit of the route to `destination`, if there is one.
    pub(super) fn bit(&self, destination: IpAddr) -> Option<u64> {
        let route = self.prefixes.iter().find(|(prefix, _)| prefix.contains(&destination));
        route.map(|(_, number)| 1 << number)
    }

    /// The bits of the routes that allow the link of this name.
    pub(super) fn allowing(&self, link: &ArrayString<MAX_NAME>) -> u64 {
        let allowing = self.links.iter().enumerate().filter(|(_, names)| names.contains(link));
        allowing.fold(0, |bits, (number, _)| bits | 1 << number)
    }
}
