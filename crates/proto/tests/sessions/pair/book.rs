//! The owner's side of invitations.

use std::collections::BTreeMap;

use ropewalk_proto::endpoint::{Claim, InvitationAuthority, PeerConfig};
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{InvitationToken, PublicKey};

/// The owner's book of invitations.
#[derive(Default)]
pub(crate) struct Book {
    /// By the token's digest: what it gives, and the key that it takes out.
    pub(crate) open: BTreeMap<[u8; 32], (PeerConfig, Option<PublicKey>)>,
    /// Why others count no more.
    pub(crate) over: BTreeMap<[u8; 32], Refusal>,
    /// How often it was asked.
    pub(crate) asked: usize,
    /// The owner decides later about whoever asks, if this is here: who did.
    pub(crate) put_off: Option<Vec<(PublicKey, InvitationToken)>>,
    /// Who was let in and who went out for it, that parts beside the first are to be told of.
    pub(super) told: Vec<(PublicKey, PeerConfig, Option<PublicKey>)>,
}

impl InvitationAuthority for Book {
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim {
        self.asked += 1;
        if let Some(put_off) = &mut self.put_off {
            put_off.push((*client, token.clone()));
            return Claim::Later;
        }
        let digest = token.digest();
        match (self.open.remove(&digest), self.over.get(&digest)) {
            (Some((config, instead_of)), _) => {
                self.over.insert(digest, Refusal::InvitationUsed);
                self.told.push((*client, config.clone(), instead_of));
                Claim::Bound { config: Box::new(config), instead_of }
            }
            (None, Some(refusal)) => Claim::Refused(*refusal),
            (None, None) => Claim::Unknown,
        }
    }
}
