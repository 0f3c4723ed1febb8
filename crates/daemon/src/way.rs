//! By which of its two ways a link goes, UDP or TLS. To the core they are two links with keys of their own; for people, and for whoever
//! asks how a link does, it is one.

use ropewalk_proto::client::{ClientStats, LinkKey};
use ropewalk_proto::tunnel::{LinkState, LinkStats};

/// A link by the way that it goes.
#[derive(Clone, Copy, Debug)]
pub struct InUse<'a> {
    /// The core's name for it.
    pub key: LinkKey,
    /// Whether it goes over TLS.
    pub over_tls: bool,
    /// As it is in the present session; `None`: not in one.
    pub core: Option<&'a LinkStats>,
}

/// The way that a link with these keys goes: over TLS while it does, and not by UDP. `None`: it is open by neither.
#[must_use]
pub fn in_use(
    udp: Option<LinkKey>,
    tls: Option<LinkKey>,
    stats: &ClientStats,
) -> Option<InUse<'_>> {
    let core = |key: LinkKey| {
        let known = stats.links.iter().find(|known| known.key == key)?;
        known.link.as_ref()
    };
    let is_up = |key| core(key).is_some_and(|core| core.state == LinkState::Up);
    let (key, over_tls) = way(udp, tls, is_up)?;
    Some(InUse { key, over_tls, core: core(key) })
}

/// Of a link with these keys the one that it goes by, and whether that is the one over TLS.
fn way(
    udp: Option<LinkKey>,
    tls: Option<LinkKey>,
    is_up: impl Fn(LinkKey) -> bool,
) -> Option<(LinkKey, bool)> {
    match (udp, tls) {
        (Some(udp), Some(tls)) if is_up(tls) && !is_up(udp) => Some((tls, true)),
        (Some(udp), _) => Some((udp, false)),
        (None, tls) => tls.map(|tls| (tls, true)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_goes_over_tls_where_it_has_no_other_way_or_only_that_one_is_up() {
        let (udp, tls) = (LinkKey(3), LinkKey(0x1_0003));
        let (by_udp, over_tls) = (Some((udp, false)), Some((tls, true)));
        /// Its keys, those that are up, and its way.
        type Case<'a> = (Option<LinkKey>, Option<LinkKey>, &'a [LinkKey], Option<(LinkKey, bool)>);
        let table: [Case<'_>; 9] = [
            (None, None, &[], None),
            (Some(udp), None, &[], by_udp),
            (Some(udp), None, &[udp], by_udp),
            (None, Some(tls), &[], over_tls),
            (None, Some(tls), &[tls], over_tls),
            (Some(udp), Some(tls), &[], by_udp),
            (Some(udp), Some(tls), &[udp], by_udp),
            (Some(udp), Some(tls), &[udp, tls], by_udp),
            (Some(udp), Some(tls), &[tls], over_tls),
        ];
        for (udp, tls, up, expected) in table {
            let found = way(udp, tls, |key| up.contains(&key));
            assert_eq!(found, expected, "{udp:?} {tls:?}, up: {up:?}");
        }
    }
}
