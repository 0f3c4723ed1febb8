//! Who may talk to a daemon: root, the daemon's own user, and the members of one group.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgrouplist};

/// Who may talk to a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Root and the daemon's own user.
    pub(super) users: [u32; 2],
    /// The group whose members may; without one, nobody else.
    pub(super) group: Option<u32>,
}

/// Why a group cannot be let in.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There is no such group.
    #[error("there is no group `{0}` (`groupadd --system {0}` makes it)")]
    NoGroup(String),
    /// The list of groups cannot be read.
    #[error("cannot look up the group `{group}`: {source}")]
    Lookup {
        /// The group.
        group: String,
        /// What the system said.
        source: nix::Error,
    },
}

impl Access {
    /// Root, the user of this process, and the members of this group.
    ///
    /// # Errors
    /// The group does not exist or cannot be looked up.
    pub fn new(group: Option<&str>) -> Result<Self, AccessError> {
        let group = match group {
            None => None,
            Some(name) => match Group::from_name(name) {
                Ok(Some(group)) => Some(group.gid.as_raw()),
                Ok(None) => return Err(AccessError::NoGroup(name.to_owned())),
                Err(source) => return Err(AccessError::Lookup { group: name.to_owned(), source }),
            },
        };
        Ok(Self::of_ids(geteuid().as_raw(), group))
    }

    /// Root, this user, and the members of this group, by their numbers.
    #[must_use]
    pub fn of_ids(owner: u32, group: Option<u32>) -> Self {
        Self { users: [0, owner], group }
    }

    /// The group the socket belongs to: the configured one, else the daemon's own.
    pub(super) fn group_id(&self) -> u32 {
        self.group.unwrap_or_else(|| getegid().as_raw())
    }

    /// Whether a peer with these credentials may talk to the daemon.
    pub(super) fn allows(&self, uid: u32, gid: u32) -> bool {
        if self.users.contains(&uid) {
            return true;
        }
        self.group.is_some_and(|group| gid == group || is_member(uid, gid, group))
    }
}

/// Whether this group is among the supplementary groups of a user.
fn is_member(uid: u32, gid: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = CString::new(user.name) else { return false };
    getgrouplist(&name, Gid::from_raw(gid))
        .is_ok_and(|groups| groups.iter().any(|other| other.as_raw() == group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_owner_and_group_are_let_in_and_nobody_else() {
        // No user of these numbers exists: membership by name has no say.
        let (owner, group, stranger) = (4_000_000, 4_000_001, 4_000_002);
        let closed = Access::of_ids(owner, None);
        let open = Access::of_ids(owner, Some(group));
        let cases = [
            (&closed, 0, 0, true),
            (&closed, owner, stranger, true),
            (&closed, stranger, stranger, false),
            // The group of the daemon is no group that was let in.
            (&closed, stranger, owner, false),
            (&open, stranger, group, true),
            (&open, stranger, stranger, false),
        ];
        for (access, uid, gid, allowed) in cases {
            assert_eq!(access.allows(uid, gid), allowed, "uid {uid} gid {gid}");
        }
    }

    #[test]
    fn a_group_that_does_not_exist_is_named() {
        let error = Access::new(Some("no-such-group-here")).unwrap_err().to_string();
        assert!(error.contains("groupadd --system no-such-group-here"), "{error}");
        assert_eq!(Access::new(Some("root")).unwrap().group_id(), 0);
    }
}
