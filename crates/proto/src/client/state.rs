//! What a person asks first: is it connected, and if not, why not?

use std::fmt;

use crate::event::VersionList;
use crate::time::Instant;
use crate::wire::frame::CloseReason;
use crate::wire::hello::VERSION;
use crate::wire::hello::answer::Refusal;

/// How it stands with the session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientState {
    /// At least one link carries packets.
    Connected {
        /// When the session began.
        since: Instant,
    },
    /// The keys are shared, the links are being opened.
    Joining {
        /// When the session began.
        since: Instant,
    },
    /// No link of the session answers; it is tried further, and another is asked for beside.
    Stalled {
        /// When the last link went down.
        since: Instant,
        /// Why there is no other.
        trouble: Trouble,
    },
    /// There is no session; the proxy is being asked.
    Asking {
        /// Since when it is asked: when the session ended, the first link came, or the machine woke up.
        since: Instant,
        /// What is known of the reason.
        trouble: Trouble,
    },
    /// There is no session, and a pause before the proxy is asked again.
    Waiting {
        /// The end of the pause.
        until: Instant,
        /// The reason.
        trouble: Trouble,
    },
    /// There is no link to ask over.
    NoLinks,
    /// This end was stopped.
    Closed,
}

/// Why there is no session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nothing that counts came back. A proxy is silent to a client that has the wrong public key of
    /// the proxy, and to one whose own key it does not know.
    NoAnswer,
    /// The proxy knows this client and refuses it.
    Refused(Refusal),
    /// The proxy lists only these versions of the protocol. May be forged by an observer.
    OtherVersions(VersionList),
    /// Answers came that do not decrypt: the two ends' preshared keys differ, or an observer forges.
    NotAuthentic,
    /// The proxy ended the session.
    Closed(CloseReason),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAnswer => f.write_str(
                "no answer: the proxy cannot be reached, its address or public key is wrong here, \
                 or it does not know this client's key",
            ),
            Self::Refused(refusal) => fmt::Display::fmt(refusal, f),
            Self::OtherVersions(versions) => {
                write!(f, "the proxy speaks version ")?;
                for (place, version) in versions.iter().enumerate() {
                    let comma = if place > 0 { ", " } else { "" };
                    write!(f, "{comma}{version}")?;
                }
                write!(f, " of the protocol, this client {VERSION}")
            }
            Self::NotAuthentic => {
                f.write_str("the answers do not decrypt: the preshared keys differ")
            }
            Self::Closed(CloseReason::Shutdown) => f.write_str("the proxy stopped"),
            Self::Closed(CloseReason::Replaced) => {
                f.write_str("another machine connected with the same key")
            }
            Self::Closed(CloseReason::Removed) => f.write_str(
                "the proxy's owner took this client's key out: to come back, join with a new invitation",
            ),
            Self::Closed(CloseReason::Other(code)) => {
                write!(f, "the proxy ended the session (reason {code})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_says_what_to_look_at() {
        let versions = Trouble::OtherVersions([2, 3].into_iter().collect());
        let table = [
            (Trouble::NoAnswer, "public key"),
            (Trouble::Refused(Refusal::Disabled), "disabled"),
            (versions, "version 2, 3 of the protocol, this client 1"),
            (Trouble::NotAuthentic, "preshared"),
            (Trouble::Closed(CloseReason::Replaced), "same key"),
            (Trouble::Closed(CloseReason::Shutdown), "stopped"),
            (Trouble::Closed(CloseReason::Removed), "new invitation"),
            (Trouble::Refused(Refusal::InvitationUsed), "used before"),
            (Trouble::Refused(Refusal::InvitationExpired), "expired"),
            (Trouble::Refused(Refusal::InUse), "another machine"),
            (Trouble::Refused(Refusal::Draining), "undrain"),
            (Trouble::Refused(Refusal::Stopping), "being stopped"),
            (Trouble::Closed(CloseReason::Other(9)), "9"),
        ];
        for (trouble, part) in table {
            assert!(trouble.to_string().contains(part), "{trouble}");
        }
    }
}
