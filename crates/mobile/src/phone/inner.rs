//! What the TUN is to be, and when the app is to be told.
//!
//! When an app opens the TUN again, all packets stop for a moment. So the app is told when the addresses or name servers are
//! others, or when packets became smaller than the TUN lets pass; not each time that the search for a path's MTU came
//! further. What is longer than a link carries is answered by the core meanwhile (ICMP).

use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_proto::event::SessionInfo;
use ropewalk_settings::{Mtu, is_name_server};

use crate::event::TunWish;

/// What is known of it.
#[derive(Debug, Default)]
pub(super) struct Inner {
    addresses: Vec<IpAddr>,
    name_servers: Vec<IpAddr>,
    /// Largest packet that fits through all links, once a path was measured.
    fits: Option<u16>,
    told: Option<TunWish>,
}

impl Inner {
    /// A session gives these. A network that the proxy routes to this client (`session.network`) is for hosts behind it, and no
    /// app is told of it: the TUN has addresses of its own only.
    pub(super) fn note_session(&mut self, session: &SessionInfo) {
        self.addresses = session.own.iter().map(IpNet::addr).collect();
        let servers = session.name_servers.iter().copied();
        self.name_servers = servers.filter(|server| is_name_server(*server)).collect();
    }

    /// Packets of so many bytes fit.
    pub(super) fn note_mtu(&mut self, fits: u16) {
        self.fits = Some(fits);
    }

    /// The TUN is gone: the app is told of the next one whatever it knows.
    pub(super) fn forget(&mut self) {
        self.told = None;
    }

    /// What the app is to be told, if it is to be told something.
    pub(super) fn news(&mut self) -> Option<&TunWish> {
        let fits = self.fits.filter(|_| !self.addresses.is_empty())?;
        let has_v6 = self.addresses.iter().any(IpAddr::is_ipv6);
        let wish = TunWish {
            addresses: self.addresses.clone(),
            mtu: Mtu::Auto.of_tun(fits, has_v6),
            name_servers: self.name_servers.clone(),
        };
        let is_known = self.told.as_ref().is_some_and(|told| {
            (&told.addresses, &told.name_servers) == (&wish.addresses, &wish.name_servers)
                && told.mtu <= wish.mtu
        });
        if is_known {
            return None;
        }
        self.told = Some(wish);
        self.told.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(addresses: &[&str], fits: Option<u16>) -> Inner {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Inner { addresses, fits, ..Inner::default() }
    }

    #[test]
    fn the_app_is_told_once_a_session_and_a_path_are_known() {
        assert_eq!(with(&[], Some(1400)).news(), None);
        assert_eq!(with(&["10.77.0.2"], None).news(), None);
        let mut inner = with(&["10.77.0.2", "fd00::2"], Some(1200));
        assert_eq!(inner.news().map(|wish| wish.mtu), Some(1280), "IPv6 needs that");
        assert_eq!(inner.news(), None, "once");
    }

    #[test]
    fn a_smaller_mtu_and_other_addresses_are_told_and_a_larger_mtu_with_the_next_of_these() {
        let mut inner = with(&["10.77.0.2"], Some(1400));
        let mtu = |inner: &mut Inner| inner.news().map(|wish| wish.mtu);
        assert_eq!(mtu(&mut inner), Some(1400));
        inner.note_mtu(1440);
        assert_eq!(mtu(&mut inner), None);
        inner.note_mtu(1300);
        assert_eq!(mtu(&mut inner), Some(1300));
        inner.note_mtu(1440);
        inner.name_servers = vec!["10.77.0.1".parse().unwrap()];
        assert_eq!(mtu(&mut inner), Some(1440));
        inner.forget();
        assert_eq!(mtu(&mut inner), Some(1440), "the TUN was lost");
    }
}
