//! A network as it goes over TLS: to the core a link of its own beside that by UDP, so that one can begin before the other
//! ends. Both have the same name, and what the app says of the network holds for both.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ropewalk_daemon::links::TlsTerms;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::path::SocketId;
use ropewalk_proto::time::Instant;
use ropewalk_tls::{Binding, Dial, LINK_MTU, TlsCarrier};

use super::Resources;
use super::joined::link;
use crate::Network;

/// A network over TLS as it was given to the core.
#[derive(Debug)]
pub(super) struct OverTls {
    pub(super) socket: SocketId,
    pub(super) network: Network,
    sources: Vec<IpAddr>,
    /// Its connections may be dead: this phone stood still.
    pub(super) is_stale: bool,
}

impl OverTls {
    /// Opens a socket whose datagrams go over TLS, and gives the core the link with it.
    pub(super) fn open(
        now: Instant,
        key: LinkKey,
        network: &Network,
        sources: &[IpAddr],
        resources: &mut Resources<'_>,
    ) -> Result<Self, String> {
        let (app, id) = (Arc::clone(resources.app), network.id);
        let prepare = move |socket: BorrowedFd<'_>| app.bind_socket(socket, id);
        let links = &mut resources.links;
        let TlsTerms { port, names, clock, .. } = links.tls;
        let dial = Dial {
            binding: Binding::Prepared(Arc::new(prepare)),
            sources: sources.to_vec(),
            port,
            names: names.to_vec(),
        };
        let carrier = TlsCarrier::new(dial, clock)?;
        let opened = links.sockets.open_carried(Box::new(carrier));
        let socket = opened.map_err(|error| error.to_string())?;
        let families = sources.iter().map(|source| (source.is_ipv4(), socket));
        let link = link(network, Some(LINK_MTU), families, true);
        if let Err(error) = links.client.set_link(now, key, Some(link), links.sink) {
            links.sockets.close(socket);
            return Err(error.to_string());
        }
        let (network, sources) = (network.clone(), sources.to_vec());
        Ok(Self { socket, network, sources, is_stale: false })
    }

    /// Whether it can go on as a link of this network, whatever its policy is: that changes in place.
    pub(super) fn is_like(&self, network: &Network, sources: &[IpAddr]) -> bool {
        !self.is_stale && self.sources == sources && self.network.is_like(network)
    }
}
