//! What links had that left, for when they are back.
//!
//! An interface that goes and comes back is a new link for both ends, under another id. What they both know it by is its name, which the client
//! says within the authenticated session. So each end keeps for itself what the link had in the direction in which it sends: what the
//! path carried ([`KnownPath`]) and how large packets may be ([`KnownMtu`]). One-way delays are not kept: they are known from the first
//! word on the link.
//!
//! None of it is believed: the size is asked for once more, and half of the rate is tried when a burst shows that it may still be so. So a
//! name that two links share, or an interface that is in another network now, costs nothing but the try.

use std::net::IpAddr;

use arrayvec::ArrayString;

use crate::config::MAX_LINKS;
use crate::congestion::{KNOWN_FOR, KnownPath};
use crate::link::mtu::KnownMtu;
use crate::time::Instant;
use crate::tunnel::link::Link;
use crate::wire::frame::MAX_NAME;

/// Names that are remembered: as many as a tunnel has links at a time. A client chooses its links' names; beyond these the one that left first
/// is forgotten.
const MOST: usize = MAX_LINKS;

/// What a link had.
#[derive(Clone, Copy, Debug)]
struct Had {
    name: ArrayString<MAX_NAME>,
    /// Where its peer was.
    peer: IpAddr,
    path: Option<KnownPath>,
    mtu: Option<KnownMtu>,
    /// When it is forgotten.
    until: Instant,
}

/// The links that left and are not back, the newest last.
#[derive(Debug, Default)]
pub(super) struct LeftBehind(Vec<Had>);

impl LeftBehind {
    /// `link` leaves.
    pub(super) fn note(&mut self, now: Instant, link: &Link) {
        let (path, mtu) = (link.sender.known_path(now), link.mtu.search.known());
        // One that was never up says nothing against what one of its name had.
        if path.is_some() || mtu.is_some() {
            let peer = link.path().remote.ip();
            self.put(now, Had { name: link.name, peer, path, mtu, until: now + KNOWN_FOR });
        }
    }

    fn put(&mut self, now: Instant, had: Had) {
        self.0.retain(|other| other.name != had.name && now < other.until);
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(had);
    }

    /// `link` was taken in, and begins with what one of its name had.
    pub(super) fn give(&mut self, now: Instant, link: &mut Link) {
        let Some(had) = self.take(now, &link.name) else { return };
        if let Some(mtu) = had.mtu {
            link.mtu.search.remember(mtu);
        }
        if let Some(path) = had.path {
            // Another port is the same NAT; another address may be another network (PROTOCOL §5.3).
            let is_same_way = path.is_same_way && had.peer == link.path().remote.ip();
            link.sender.on_known_path(KnownPath { is_same_way, ..path });
        }
    }

    fn take(&mut self, now: Instant, name: &str) -> Option<Had> {
        let at = self.0.iter().position(|had| had.name.as_str() == name)?;
        Some(self.0.remove(at)).filter(|had| now < had.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::shortened;

    fn had(name: &str, now: Instant) -> Had {
        let peer = IpAddr::from([192, 0, 2, 1]);
        Had { name: shortened(name), peer, path: None, mtu: None, until: now + KNOWN_FOR }
    }

    #[test]
    fn what_a_link_had_is_given_once_and_not_after_some_minutes() {
        let (mut left, now) = (LeftBehind::default(), Instant::from_millis(1000));
        left.put(now, had("usb0", now));
        left.put(now, had("wlan0", now));
        assert!(left.take(now, "eth0").is_none());
        assert!(left.take(now, "usb0").is_some());
        assert!(left.take(now, "usb0").is_none(), "it is under way");
        assert!(left.take(now + KNOWN_FOR, "wlan0").is_none());
        assert!(left.0.is_empty());
    }

    #[test]
    fn a_client_that_thinks_of_ever_more_names_is_remembered_by_the_last_sixteen() {
        let mut left = LeftBehind::default();
        for n in 0..1000 {
            let now = Instant::from_millis(n);
            left.put(now, had(&format!("wan{n}"), now));
            assert!(left.0.len() <= MOST, "{}", left.0.len());
        }
        let now = Instant::from_millis(1000);
        assert!(left.take(now, "wan983").is_none());
        assert!(left.take(now, "wan984").is_some());
        left.put(now + KNOWN_FOR, had("wan", now + KNOWN_FOR));
        assert_eq!(left.0.len(), 1, "the others were too long ago");
    }

    #[test]
    fn a_name_has_what_the_newest_of_its_links_had() {
        let mut left = LeftBehind::default();
        for n in 0..3 {
            let now = Instant::from_millis(n);
            left.put(now, had("usb0", now));
        }
        let newest = left.take(Instant::from_millis(3), "usb0").expect("it is there");
        assert_eq!(newest.until, Instant::from_millis(2) + KNOWN_FOR);
        assert!(left.0.is_empty());
    }
}
