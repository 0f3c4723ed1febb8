//! News of the network: something about links, addresses, routes or rules changed.
//!
//! A router may see thousands of route changes a second, so nothing is queued: changes are merged into one small set of
//! flags until somebody asks. When the kernel had to drop messages (`ENOBUFS`), every flag is raised: the reader then
//! reads everything again, which is what it does after any news.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

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
    /// The kernel dropped news because they came too fast; all other flags are raised too.
    pub overrun: bool,
}

/// Listens to the kernel's news, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Events {
    pending: Arc<Pending>,
    carriers: [JoinHandle<()>; 2],
    // Dropping the handle would end the connection.
    _handle: Handle,
}

#[derive(Debug, Default)]
struct Pending {
    flags: AtomicU8,
    news: Notify,
}

const LINKS: u8 = 1;
const ADDRESSES: u8 = 2;
const ROUTES: u8 = 4;
const RULES: u8 = 8;
const OVERRUN: u8 = 16;
const ALL: u8 = LINKS | ADDRESSES | ROUTES | RULES | OVERRUN;

impl Events {
    /// Starts to listen. Open it *before* the state is read for the first time, so that nothing falls between.
    ///
    /// # Errors
    /// [`NetlinkError::Open`] if the kernel gives no socket.
    pub fn open() -> Result<Self, NetlinkError> {
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
                let flags = flags_of(&message.payload);
                if flags != 0 {
                    seen.flags.fetch_or(flags, Ordering::AcqRel);
                    seen.news.notify_one();
                }
            }
        });
        Ok(Self { pending, carriers: [tokio::spawn(connection), reader], _handle: handle })
    }

    /// Waits for news, then `settle` longer so that a burst (an interface coming up makes a dozen) counts as one.
    ///
    /// Cancel safe: news not yet handed out are kept.
    pub async fn changed(&mut self, settle: Duration) -> Changes {
        while self.pending.flags.load(Ordering::Acquire) == 0 {
            self.pending.news.notified().await;
        }
        tokio::time::sleep(settle).await;
        let flags = self.pending.flags.swap(0, Ordering::AcqRel);
        Changes {
            links: flags & LINKS != 0,
            addresses: flags & ADDRESSES != 0,
            routes: flags & ROUTES != 0,
            rules: flags & RULES != 0,
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

fn flags_of(payload: &NetlinkPayload<RouteNetlinkMessage>) -> u8 {
    match payload {
        NetlinkPayload::Overrun(_) => ALL,
        NetlinkPayload::InnerMessage(message) => match message {
            RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => LINKS,
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => ADDRESSES,
            RouteNetlinkMessage::NewRoute(_) | RouteNetlinkMessage::DelRoute(_) => ROUTES,
            RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => RULES,
            _ => 0,
        },
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_raises_every_flag() {
        assert_eq!(flags_of(&NetlinkPayload::Overrun(Vec::new())), ALL);
        assert_eq!(flags_of(&NetlinkPayload::Noop), 0);
    }
}
