//! A link as it goes over TLS: to the core a link of its own beside that by UDP, so that one can begin before the other
//! ends. Both have the same name, and what people say of the link holds for both.

use arrayvec::ArrayVec;
use ropewalk_daemon::links::TlsTerms;
use ropewalk_link_io::udp::Sockets;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::LinkConfig;
use ropewalk_proto::fleet::FleetLink;
use ropewalk_proto::path::SocketId;
use ropewalk_settings::{Keepalive, LinkPolicy, shortened};
use ropewalk_tls::{Binding, Dial, LINK_MTU, TlsCarrier};

use super::decide::{Decision, Wish};
use crate::routes::Numbers;

/// Set in the keys of links over TLS: the others' are slots, which are smaller.
const OVER_TLS: u32 = 1 << 16;

/// A link over TLS as it was given to the core.
#[derive(Debug)]
pub(super) struct OpenOverTls {
    pub(super) key: LinkKey,
    pub(super) socket: SocketId,
    pub(super) wish: Wish,
    pub(super) policy: LinkPolicy,
    keepalive: Keepalive,
    metered: bool,
    port: u16,
}

impl OpenOverTls {
    /// Opens a socket, and says what the core is to be given.
    pub(super) fn open(
        slot: u16,
        wish: &Wish,
        decision: &Decision,
        terms: TlsTerms<'_>,
        sockets: &mut Sockets,
    ) -> Result<(Self, FleetLink), String> {
        let mark = Some(Numbers::default().mark_of(slot));
        let dial = Dial {
            binding: Binding::Interface { name: decision.interface.clone(), mark },
            sources: wish.sources.clone(),
            port: terms.port,
            names: terms.names.to_vec(),
        };
        let carrier = TlsCarrier::new(dial, terms.clock)?;
        let opened = sockets.open_carried(Box::new(carrier));
        let socket = opened.map_err(|error| error.to_string())?;
        let config = LinkConfig {
            name: shortened(&decision.name),
            // They follow from where the proxy in use is.
            paths: ArrayVec::new(),
            keepalive: decision.keepalive,
            metered: decision.metered,
            mtu: Some(LINK_MTU),
            policy: decision.policy.clone(),
        };
        let families = wish.sources.iter().map(|source| (source.is_ipv4(), socket));
        let link = FleetLink { config, sockets: families.take(2).collect(), any_port: true };
        let Decision { keepalive, metered, .. } = *decision;
        let (wish, policy) = (wish.clone(), decision.policy.clone());
        let key = LinkKey(u32::from(slot) | OVER_TLS);
        Ok((Self { key, socket, wish, policy, keepalive, metered, port: terms.port }, link))
    }

    /// Whether it is what is wished now, whatever its policy is: that changes in place.
    pub(super) fn is_like(&self, wish: &Wish, decision: &Decision, port: u16) -> bool {
        self.wish.is_like(wish)
            && (self.keepalive, self.metered, self.port)
                == (decision.keepalive, decision.metered, port)
    }
}
