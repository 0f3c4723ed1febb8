//! News of the network: something about links, addresses, routes, rules, the firewall or its settings changed.
//!
//! A router may see thousands of route changes a second, so nothing is queued: changes are merged into one small set of
//! flags until somebody asks. When the kernel had to drop messages (`ENOBUFS`), every flag is raised: the reader then
//! reads everything again, which is what it does after any news.
//!
//! Lesser news (the firewall, settings, the end of a route of our own) may come without end on a busy host, and most of
//! it concerns others: it is told of every ten seconds at most. So a host is looked at when something happened to it, and
//! an idle daemon sleeps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::{LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::{RouteMessage, RouteType};
use rtnetlink::sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, TokioSocket};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::NetlinkError;

/// What kinds of things changed since the last question. Says nothing about the new state: read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// An interface came, went, or changed its state.
    pub links: bool,
    /// An address came, went, or changed its state (for example became usable after duplicate detection).
    pub addresses: bool,
    /// A route changed.
    pub routes: bool,
    /// A routing rule changed (another program may have removed ours).
    pub rules: bool,
    /// Some table of the firewall changed.
    pub firewall: bool,
    /// Forwarding or the filter of reverse paths was switched, somewhere.
    pub settings: bool,
    /// One of many routes of our own is gone: taken back by ourselves, or by somebody else.
    pub own_routes: bool,
    /// The kernel dropped news because they came too fast; all other flags are raised too.
    pub overrun: bool,
}

/// Listens to the kernel's news, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Events {
    pending: Arc<Pending>,
    carriers: Vec<JoinHandle<()>>,
    /// Until then lesser news wait.
    rest_until: Option<Instant>,
    /// The burst that the news began is over by then.
    settled_at: Option<Instant>,
    /// When news of what is gone were last told without waiting for the end of the burst.
    hurried_at: Option<Instant>,
    // Dropping the handle would end the connection.
    _handle: Handle,
}

#[derive(Debug, Default)]
struct Pending {
    flags: AtomicU16,
    news: Notify,
    /// The kernel does not tell of the firewall or of settings.
    deaf: AtomicBool,
}

impl Pending {
    fn note(&self, flags: u16) {
        if flags != 0 {
            self.flags.fetch_or(flags, Ordering::AcqRel);
            self.news.notify_one();
        }
    }
}

const LINKS: u16 = 1;
const ADDRESSES: u16 = 2;
const ROUTES: u16 = 4;
const RULES: u16 = 8;
const OVERRUN: u16 = 16;
const FIREWALL: u16 = 32;
const SETTINGS: u16 = 64;
const OWN_ROUTES: u16 = 128;
const LESSER: u16 = FIREWALL | SETTINGS | OWN_ROUTES;
/// An interface or an address is gone: beside what changed.
const GONE: u16 = 256;
const ALL: u16 = GONE * 2 - 1;

/// Time after an answer that told of nothing but lesser news, until the next such.
const REST: Duration = Duration::from_secs(10);

/// How often the host is to be looked at where the kernel tells of everything that matters, but for a few settings.
const SELDOM: Duration = Duration::from_secs(600);

/// The kernel's group for changes of nftables (`NFNLGRP_NFTABLES`, linux/netfilter/nfnetlink.h).
const NFTABLES_GROUP: u32 = 7;

/// The kernel's groups for changes of forwarding and of the reverse path filter.
const SETTINGS_GROUPS: [u32; 2] =
    [MulticastGroup::Ipv4Netconf as u32, MulticastGroup::Ipv6Netconf as u32];

impl Events {
    /// Starts to listen. Open it *before* the state is read for the first time, so that nothing falls between. Of
    /// many routes that come and go by our own doing the protocol number is `own`: what appears there is no news, and what
    /// disappears is lesser news.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the kernel gives no socket.
    pub fn open(own: Option<u8>) -> Result<Self, NetlinkError> {
        let (connection, handle, mut messages) = rtnetlink::new_multicast_connection(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
            MulticastGroup::Ipv4Rule,
            MulticastGroup::Ipv6Rule,
        ])
        .map_err(NetlinkError::Open)?;
        let pending = Arc::new(Pending::default());
        let seen = Arc::clone(&pending);
        let reader = tokio::spawn(async move {
            while let Some((message, _from)) = messages.next().await {
                seen.note(flags_of(&message.payload, own));
            }
        });
        let mut carriers = vec![tokio::spawn(connection), reader];
        for (protocol, groups, flag) in [
            (NETLINK_NETFILTER, &[NFTABLES_GROUP][..], FIREWALL),
            (NETLINK_ROUTE, &SETTINGS_GROUPS, SETTINGS),
        ] {
            match subscribe(protocol, groups) {
                Ok(socket) => {
                    carriers.push(tokio::spawn(listen(socket, flag, Arc::clone(&pending))));
                }
                Err(error) => {
                    tracing::debug!(%error, "the kernel does not tell of the firewall or of settings");
                    pending.deaf.store(true, Ordering::Release);
                }
            }
        }
        Ok(Self {
            pending,
            carriers,
            rest_until: None,
            settled_at: None,
            hurried_at: None,
            _handle: handle,
        })
    }

    /// How often the host should be looked at without news: seldom, unless the kernel cannot tell of all that matters.
    #[must_use]
    pub fn patience(&self) -> Duration {
        if self.pending.deaf.load(Ordering::Acquire) { REST } else { SELDOM }
    }

    /// Waits for news, then `settle` longer so that a burst (an interface coming up makes a dozen) counts as one. Of what is
    /// gone it tells at once, but not more often than four times in `settle`.
    ///
    /// Cancel safe: news not yet handed out are kept, and the time they have already waited counts.
    pub async fn changed(&mut self, settle: Duration) -> Changes {
        while self.settled_at.is_none() {
            let flags = self.pending.flags.load(Ordering::Acquire);
            let news = self.pending.news.notified();
            match turn(flags, self.rest_until, Instant::now()) {
                Turn::Tell => self.settled_at = Some(Instant::now() + settle),
                Turn::Wait => news.await,
                // Whichever comes first is looked at again.
                Turn::Rest(until) => drop(tokio::time::timeout_at(until, news).await),
            }
        }
        while let Some(settled_at) = self.settled_at {
            let is_gone = self.pending.flags.load(Ordering::Acquire) & GONE != 0;
            let hurried = self.hurried_at.map(|at| at + settle / 4);
            let now = Instant::now();
            let Some(tell_at) = told_at(settled_at, is_gone, hurried).filter(|at| *at > now) else {
                self.hurried_at = is_gone.then_some(now).or(self.hurried_at);
                break;
            };
            // Whichever comes first is looked at again.
            drop(tokio::time::timeout_at(tell_at, self.pending.news.notified()).await);
        }
        self.settled_at = None;
        let flags = self.pending.flags.swap(0, Ordering::AcqRel);
        if flags & !LESSER == 0 {
            self.rest_until = Some(Instant::now() + REST);
        }
        Changes {
            links: flags & LINKS != 0,
            addresses: flags & ADDRESSES != 0,
            routes: flags & ROUTES != 0,
            rules: flags & RULES != 0,
            firewall: flags & FIREWALL != 0,
            settings: flags & SETTINGS != 0,
            own_routes: flags & OWN_ROUTES != 0,
            overrun: flags & OVERRUN != 0,
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for carrier in &self.carriers {
            carrier.abort();
        }
    }
}

/// What becomes of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is none.
    Wait,
    /// It is not worth another look before then.
    Rest(Instant),
    /// It is told.
    Tell,
}

fn turn(flags: u16, rest_until: Option<Instant>, now: Instant) -> Turn {
    match rest_until.filter(|until| *until > now) {
        _ if flags == 0 => Turn::Wait,
        Some(until) if flags & !LESSER == 0 => Turn::Rest(until),
        _ => Turn::Tell,
    }
}

/// When news are told of a burst that is over at `settled_at`, where those of what `is_gone` may be told again from `hurried`
/// on.
fn told_at(settled_at: Instant, is_gone: bool, hurried: Option<Instant>) -> Option<Instant> {
    match hurried {
        _ if !is_gone => Some(settled_at),
        None => None,
        Some(again) => Some(again.min(settled_at)),
    }
}

fn subscribe(protocol: isize, groups: &[u32]) -> io::Result<TokioSocket> {
    let mut socket: TokioSocket = AsyncSocket::new(protocol)?;
    socket.socket_mut().bind_auto()?;
    groups.iter().try_for_each(|group| socket.socket_ref().add_membership(*group))?;
    Ok(socket)
}

/// Notes each message, whatever it says.
async fn listen(socket: TokioSocket, flag: u16, pending: Arc<Pending>) {
    loop {
        // What is longer is cut off: nobody reads it.
        let mut start = [0; 64];
        match socket.recv(&mut &mut start[..]).await {
            Ok(()) => {}
            // Messages were lost: that there were some is all there is to know.
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
            Err(error) => {
                tracing::debug!(%error, "the kernel tells no more of the firewall or of settings");
                pending.deaf.store(true, Ordering::Release);
                return pending.note(flag);
            }
        }
        pending.note(flag);
    }
}

/// `own`: the protocol number of our own routes, if there are many.
fn flags_of(payload: &NetlinkPayload<RouteNetlinkMessage>, own: Option<u8>) -> u16 {
    let is_own = |route: &RouteMessage| Some(u8::from(route.header.protocol)) == own;
    match payload {
        NetlinkPayload::Overrun(_) => ALL,
        NetlinkPayload::InnerMessage(message) => match message {
            RouteNetlinkMessage::NewLink(link) if carries(link) => LINKS,
            RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => LINKS | GONE,
            RouteNetlinkMessage::NewAddress(_) => ADDRESSES,
            RouteNetlinkMessage::DelAddress(_) => ADDRESSES | GONE,
            RouteNetlinkMessage::NewRoute(route) if is_own(route) => 0,
            // A guard is missed at once.
            RouteNetlinkMessage::DelRoute(route)
                if is_own(route) && route.header.kind == RouteType::Unicast =>
            {
                OWN_ROUTES
            }
            RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => ROUTES,
            RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => RULES,
            _ => 0,
        },
        _ => 0,
    }
}

/// Whether an interface is up and has a carrier.
fn carries(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtnetlink::packet_route::address::AddressMessage;

    #[test]
    fn an_overrun_raises_every_flag() {
        assert_eq!(flags_of(&NetlinkPayload::Overrun(Vec::new()), None), ALL);
        assert_eq!(flags_of(&NetlinkPayload::Noop, None), 0);
    }

    #[test]
    fn what_we_do_ourselves_to_our_routes_is_no_news_and_their_end_is_little() {
        const OWN: u8 = 177;
        let route = |protocol: u8, kind| {
            let mut route = RouteMessage::default();
            (route.header.protocol, route.header.kind) = (protocol.into(), kind);
            route
        };
        let flags = |message| flags_of(&NetlinkPayload::InnerMessage(message), Some(OWN));
        for (protocol, kind, came, went) in [
            (OWN, RouteType::Unicast, 0, OWN_ROUTES),
            (OWN, RouteType::Unreachable, 0, ROUTES),
            (4, RouteType::Unicast, ROUTES, ROUTES),
        ] {
            assert_eq!(
                flags(RouteNetlinkMessage::NewRoute(route(protocol, kind))),
                came,
                "{kind:?}"
            );
            assert_eq!(
                flags(RouteNetlinkMessage::DelRoute(route(protocol, kind))),
                went,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn what_is_gone_is_told_at_once_and_a_flapping_interface_not_without_end() {
        let now = Instant::now();
        let (settled, again) = (now + REST, now + REST / 4);
        for (is_gone, hurried, expected) in [
            (false, None, Some(settled)),
            (false, Some(again), Some(settled)),
            (true, None, None),
            (true, Some(again), Some(again)),
            (true, Some(settled + REST), Some(settled)),
        ] {
            assert_eq!(told_at(settled, is_gone, hurried), expected, "{is_gone} {hurried:?}");
        }
    }

    #[test]
    fn an_interface_without_a_carrier_and_an_address_that_went_are_gone() {
        let link = |flags| {
            let mut link = LinkMessage::default();
            link.header.flags = flags;
            flags_of(&NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)), None)
        };
        assert_eq!(link(LinkFlags::Up | LinkFlags::LowerUp | LinkFlags::Running), LINKS);
        assert_eq!(link(LinkFlags::Up), LINKS | GONE);
        assert_eq!(link(LinkFlags::empty()), LINKS | GONE);
        let address = RouteNetlinkMessage::DelAddress(AddressMessage::default());
        assert_eq!(flags_of(&NetlinkPayload::InnerMessage(address), None), ADDRESSES | GONE);
    }

    #[test]
    fn lesser_news_are_told_seldom_and_others_at_once() {
        let now = Instant::now();
        let rest = now + REST;
        for (flags, rest_until, expected) in [
            (0, None, Turn::Wait),
            (0, Some(rest), Turn::Wait),
            (FIREWALL, None, Turn::Tell),
            (FIREWALL, Some(now), Turn::Tell),
            (FIREWALL | SETTINGS | OWN_ROUTES, Some(rest), Turn::Rest(rest)),
            (FIREWALL | LINKS, Some(rest), Turn::Tell),
            (ROUTES, Some(rest), Turn::Tell),
            (ALL, Some(rest), Turn::Tell),
        ] {
            assert_eq!(turn(flags, rest_until, now), expected, "{flags:#b}");
        }
    }
}
