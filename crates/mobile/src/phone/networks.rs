//! The networks: opens and closes their sockets, which the app binds, and tells the core.
//!
//! One network's trouble is its own. A network that the app describes again keeps what need not change: with the same
//! address its socket, and with other terms its link. Where the app says no address, the kernel is asked which one it would
//! choose there, so that addresses of a translator (464XLAT), which no list shows, are found, too. Where UDP is not
//! answered, [`Fallback`](ropewalk_tls::Fallback) says when a network goes over TLS.

mod joined;
mod over_tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ropewalk_daemon::held::Held;
use ropewalk_daemon::links::LinkResources;
use ropewalk_link_io::udp::{SendErrorKind, Sockets};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::MAX_LINKS;
use ropewalk_proto::path::Path;
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_settings::TlsUse;
use ropewalk_tls::Seen;

use crate::{App, Network};

pub(super) use joined::Joined;

/// All of them, by the app's numbers.
#[derive(Debug, Default)]
pub(super) struct Networks {
    joined: BTreeMap<u64, Joined>,
    /// For the core, which knows a network that comes again as another one: its counts begin at zero.
    next_key: u32,
}

/// What is changed with the networks.
pub(super) struct Resources<'a> {
    /// To the core a network is a link, or two: by UDP and over TLS.
    pub(super) links: LinkResources<'a, Held>,
    /// Binds the sockets.
    pub(super) app: &'a Arc<dyn App>,
}

/// What is to be done after a look at which networks go over TLS.
#[derive(Debug, Default)]
pub(super) struct TlsOutlook {
    /// Some go by other ways than before.
    pub(super) changed: bool,
    /// On the networks of these numbers UDP is to be asked for.
    pub(super) ask: Vec<u64>,
    /// When to look again, if nothing happens before.
    pub(super) at: Option<Instant>,
}

impl Networks {
    /// All, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Joined> {
        self.joined.values()
    }

    /// The network of this number.
    pub(super) fn get(&self, id: u64) -> Option<&Joined> {
        self.joined.get(&id)
    }

    /// The network that the core knows by this key.
    pub(super) fn of(&self, key: LinkKey) -> Option<&Joined> {
        self.joined.values().find(|joined| joined.has(key))
    }

    /// Adds a network, or changes the description of one that is there. It is used with the next [`reconcile`](Self::reconcile).
    ///
    /// # Errors
    /// There are as many as there can be.
    pub(super) fn set(&mut self, now: Instant, network: Network) -> Result<(), String> {
        if let Some(known) = self.joined.get_mut(&network.id) {
            known.network = network;
            return Ok(());
        }
        if self.joined.len() >= MAX_LINKS {
            return Err(format!("a tunnel has at most {MAX_LINKS} networks: take one out first"));
        }
        // One by UDP, one over TLS.
        let keys = [0, 1].map(|more| LinkKey(self.next_key.wrapping_add(more)));
        self.next_key = self.next_key.wrapping_add(2);
        self.joined.insert(network.id, Joined::new(now, keys, network));
        Ok(())
    }

    /// Takes a network out.
    pub(super) fn remove(&mut self, now: Instant, id: u64, resources: &mut Resources<'_>) {
        if let Some(mut joined) = self.joined.remove(&id) {
            joined.close(now, resources);
        }
    }

    /// Opens and closes sockets as described, changing only what differs, for proxies at these addresses. Returns the
    /// numbers of networks with a trouble that is new.
    pub(super) fn reconcile(
        &mut self,
        now: Instant,
        remotes: &[SocketAddr],
        resources: &mut Resources<'_>,
    ) -> Vec<u64> {
        let mut news = Vec::new();
        for (id, joined) in &mut self.joined {
            let before = joined.trouble.take();
            joined.trouble = joined.reconcile(now, remotes, resources);
            if joined.trouble.is_some() && joined.trouble != before {
                news.push(*id);
            }
        }
        news
    }

    /// Whether one of them has a trouble that may be over later.
    pub(super) fn have_trouble(&self) -> bool {
        self.joined.values().any(|joined| joined.trouble.is_some())
    }

    /// The kernel refused a datagram.
    pub(super) fn note_send_error(&mut self, path: Path, kind: SendErrorKind) {
        let owner = self.joined.values_mut().find(|joined| joined.owns(path.socket));
        if let Some(joined) = owner {
            joined.refused = Some(kind);
        }
    }

    /// Packets pass on this network (again).
    pub(super) fn note_up(&mut self, key: LinkKey) {
        if let Some(joined) = self.joined.values_mut().find(|joined| joined.has(key)) {
            joined.refused = None;
        }
    }

    /// Looks which networks are to go over TLS. `is_up` tells those that carry datagrams; `wait`: until when the
    /// proxy has this client wait for a session.
    pub(super) fn look_at_tls(
        &mut self,
        now: Instant,
        setting: TlsUse,
        wait: Option<Instant>,
        is_up: impl Fn(LinkKey) -> bool,
    ) -> TlsOutlook {
        let mut all = TlsOutlook::default();
        // What is told by the config does not change by itself.
        let of_auto = self.joined.iter_mut().filter(|_| setting == TlsUse::Auto);
        for (id, joined) in of_auto.filter(|(_, joined)| joined.is_open()) {
            let seen = Seen {
                udp: joined.key().is_some_and(&is_up),
                tls: joined.tls_key().is_some_and(&is_up),
                wait,
            };
            let outlook = joined.fallback.look(now, seen);
            all.changed |= outlook.changed;
            all.at = earliest(all.at, outlook.at);
            if outlook.changed {
                joined.tell_way();
            }
            if outlook.ask {
                all.ask.push(*id);
            }
        }
        all
    }

    /// The proxy answers on this network by UDP. Returns whether it goes by other ways than before.
    pub(super) fn note_udp_answer(&mut self, now: Instant, id: u64) -> bool {
        let joined = self.joined.get_mut(&id);
        joined.is_some_and(|joined| joined.fallback.on_udp_answer(now))
    }

    /// This phone stands still from now on: no connection is left that the kernel would keep.
    pub(super) fn hang_up(&mut self, sockets: &mut Sockets) {
        for open in self.joined.values_mut().filter_map(|joined| joined.over_tls.as_mut()) {
            sockets.close(open.socket);
            open.is_stale = true;
        }
    }

    /// This phone stood still: what goes over TLS needs another connection, and UDP is tried beside it. Returns whether
    /// there is something of that.
    pub(super) fn on_resume(&mut self, now: Instant) -> bool {
        let mut goes_over_tls = false;
        for joined in self.joined.values_mut() {
            // As if it had been asked for, and had answered.
            joined.fallback.on_udp_answer(now);
            if let Some(open) = &mut joined.over_tls {
                open.is_stale = true;
                goes_over_tls = true;
            }
        }
        goes_over_tls
    }
}
