//! Names that are looked up beside the tunnel for a while: the proxy's, when it may have moved and the tunnel may be dead.
//!
//! For that time this machine asks its own name servers again, as without a client. Not so while domains are to go through the
//! tunnel: programs would have their addresses from servers that nobody listens to, and connect around it. Then they go on
//! asking the client, which asks those servers for the proxy's name, and for no other.

use std::net::{IpAddr, SocketAddr};

use ropewalk_settings::Selector;
use tokio::sync::oneshot;

use super::{DNS_PORT, Network};
use crate::resolve::{RESOLV_CONF, name_servers};
use crate::split::forwarder::Beside;

/// Whether names are to be looked up beside the tunnel for a while, at the user's own name servers.
#[derive(Debug)]
pub(crate) struct Bypass {
    /// Whether; else everything as configured.
    pub(crate) on: bool,
    /// Which names: in lower case, without a dot at the end.
    pub(crate) names: Vec<String>,
    /// Told when it is so, or was tried: whether there is a name server to ask.
    pub(crate) done: oneshot::Sender<bool>,
}

/// What of it holds.
#[derive(Debug, Default)]
pub(super) struct Bypassing {
    on: bool,
    /// The name servers that are reached outside the tunnel for it.
    outside: Vec<IpAddr>,
    /// What the client asks them for by itself.
    asked: Beside,
}

impl Bypassing {
    /// The name servers that are reached outside the tunnel.
    pub(super) fn outside(&self) -> &[IpAddr] {
        &self.outside
    }

    /// What the client asks there for the programs.
    pub(super) const fn asked(&self) -> &Beside {
        &self.asked
    }

    /// Whether the user's own choice of name servers is back.
    pub(super) fn is_restored(&self) -> bool {
        self.on && self.asked.names.is_empty()
    }
}

impl Network {
    /// Has these names looked up beside the tunnel, or none any more. Returns whether there is a name server to ask.
    pub(super) async fn set_bypass(&mut self, on: bool, names: &[String]) -> bool {
        // While the tunnel carries them, its own name servers answer as well, and nobody else hears of it.
        let on = on && !(self.names.is_set() && self.wanted.borrow().connected);
        let asked = if on { self.asked_beside(names) } else { Beside::default() };
        let outside = if !on {
            Vec::new()
        } else if asked.names.is_empty() {
            if let Err(error) = self.names.restore(&self.tun).await {
                tracing::warn!("{error:#}");
            }
            name_servers(&RESOLV_CONF)
        } else {
            // A resolver on this machine is reached as always.
            let servers = asked.servers.iter().map(SocketAddr::ip);
            servers.filter(|server| !server.is_loopback()).collect()
        };
        let can_ask = !on || !outside.is_empty();
        self.bypassing = Bypassing { on, outside, asked };
        self.update().await;
        can_ask
    }

    /// What the client asks this machine's own name servers for, so that programs go on asking the client; nothing where they
    /// need not, or it cannot.
    fn asked_beside(&self, names: &[String]) -> Beside {
        let has_rules = self.told.as_ref().is_some_and(|told| !told.rules.is_empty());
        let is_asked = self.forwarder.is_some() && self.names.is_set() && has_rules;
        let must = is_asked && self.lists.routes.iter().any(Selector::is_by_domain);
        // A single word is completed by what stands in the user's file.
        let can = names.iter().all(|name| name.contains('.'));
        let servers = self.names.own().into_iter().map(|server| SocketAddr::new(server, DNS_PORT));
        let servers: Vec<_> = servers.collect();
        match must && can && !servers.is_empty() {
            true => Beside { names: names.to_vec(), servers },
            false => Beside::default(),
        }
    }
}
