//! The owner at the gate: what the core is told when a key that nobody knows shows an invitation.
//!
//! The order is that of the consequences: the book first, on disk (the token is used up, the key is bound), then the
//! addresses, then what is shown, then the answer. The disk may take seconds: until then the core is told to wait. A crash in
//! between is mended by the next start, which reads the book.

use ropewalk_proto::endpoint::{Authority, Claim};
use ropewalk_settings::{InvitationToken, PublicKey};

use crate::clerk::Clerk;
use crate::config::Config;

/// All that a decision takes, for the time of one datagram.
pub struct Gate<'a> {
    /// What the file says.
    pub config: &'a Config,
    /// Who keeps the book.
    pub clerk: &'a mut Clerk,
}

impl Authority for Gate<'_> {
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim {
        self.clerk.show(self.config, *client, token)
    }
}
