//! Whether a key that is not known yet may join by the invitation that it shows: what the core is told.
//!
//! The order is that of the consequences: the book first, on disk (the token is used up, the key is bound), then the
//! addresses, then what is shown, then the answer. The disk may take seconds: until then the core is told to wait. The next start reads the
//! book, and so completes what a crash interrupted.

use ropewalk_proto::endpoint::{Claim, InvitationAuthority};
use ropewalk_settings::{InvitationToken, PublicKey};

use crate::config::Config;
use crate::registry::Registry;

/// All that a decision takes, for the time of one datagram.
pub struct InvitationCheck<'a> {
    /// What the file says.
    pub config: &'a Config,
    /// The book.
    pub registry: &'a mut dyn Registry,
}

impl InvitationAuthority for InvitationCheck<'_> {
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim {
        self.registry.show(self.config, *client, token)
    }
}
