//! The owner at the gate: what the core is told when a key that nobody knows shows an invitation.
//!
//! The order is that of the consequences: the book first, on disk (the token is used up, the key is bound), then the
//! addresses, then what is shown. A crash in between is mended by the next start, which reads the book.

use ropewalk_control::keys;
use ropewalk_daemon::core::public_key;
use ropewalk_proto::crypto::{InvitationToken, PublicKey};
use ropewalk_proto::endpoint::{Authority, Claim};
use ropewalk_proto::time::Instant;
use ropewalk_proto::wire::hello::answer::Refusal;

use crate::config::Config;
use crate::crew::Crew;
use crate::inviting;
use crate::leases::Leases;
use crate::peers::PeerBook;
use crate::register::{Register, Shown};
use crate::worker::Order;

/// All that a decision takes, for the time of one datagram.
pub struct Gate<'a> {
    /// The present.
    pub now: Instant,
    /// What the file says.
    pub config: &'a Config,
    /// Who is invited.
    pub register: &'a mut Register,
    /// Whose addresses are whose.
    pub leases: &'a mut Leases,
    /// Who is shown.
    pub peers: &'a mut PeerBook,
    /// The other workers: the client may be served by one of them.
    pub crew: &'a mut Crew,
}

impl Authority for Gate<'_> {
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim {
        let key = keys::PublicKey::from_bytes(*client.as_bytes());
        let bounds = (self.config.peers.len(), self.config.max_peers, inviting::now());
        let member = match self.register.show(token, key, bounds) {
            Ok(Shown::Bound(member)) => member,
            Ok(Shown::Unknown) => {
                tracing::debug!(%key, "an invitation that was never given: silence");
                return Claim::Unknown;
            }
            Ok(Shown::Used { name }) => {
                tracing::warn!(peer = name, %key, "refused: the invitation was used before, with another key");
                return Claim::Refused(Refusal::InvitationUsed);
            }
            Ok(Shown::Over { name }) => {
                tracing::warn!(peer = name, %key, "refused: the invitation has expired or was taken back");
                return Claim::Refused(Refusal::InvitationExpired);
            }
            Ok(Shown::Full { name }) => {
                tracing::warn!(
                    peer = name,
                    "refused: there are as many clients as `max_peers` allows"
                );
                return Claim::Refused(Refusal::Full);
            }
            Err(error) => {
                tracing::error!("a client with an invitation cannot be let in: {error}");
                return Claim::Unknown;
            }
        };
        let (peers, _) = self.register.peers(&self.config.peers);
        if let Err(error) = self.leases.admit(&peers) {
            tracing::error!(
                peer = member.name,
                "its addresses may be others after a restart: {error}"
            );
        }
        tracing::info!(peer = member.name, %key, "joined by its invitation, which is used up");
        if let Some(old) = &member.formerly {
            tracing::info!(peer = member.name, key = %old, "its former key is refused from now on");
        }
        let config = member.config();
        let core = self.peers.admit(self.now, &config, self.leases).for_core(self.config);
        let instead_of = member.formerly.as_ref().map(public_key);
        // Its home hears of it before it is handed the message; an order to this worker itself goes nowhere.
        if let Some(old) = &instead_of {
            self.crew.order(self.crew.home(old), Order::RemovePeer(*old));
        }
        let home = self.crew.home(client);
        self.crew.order(home, Order::SetPeers(vec![(*client, core.clone())]));
        self.crew.note_homes();
        Claim::Bound { config: Box::new(core), instead_of }
    }
}
