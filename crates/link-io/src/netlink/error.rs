//! Errors of the kernel's network configuration, each with what was tried and what helps.

use std::io;

/// Why the kernel's network configuration could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// No netlink socket.
    #[error("cannot open a netlink socket: {0}")]
    Open(#[source] io::Error),
    /// The process may not change the network.
    #[error(
        "cannot {what}: the capability CAP_NET_ADMIN is missing (run as root, or give the service \
         AmbientCapabilities=CAP_NET_ADMIN)"
    )]
    Permission {
        /// What was tried, as in "add the route ...".
        what: String,
    },
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Kernel {
        /// What was tried.
        what: String,
        /// The kernel's error number.
        source: io::Error,
    },
    /// The kernel's answer could not be understood.
    #[error("cannot {what}: {why}")]
    Answer {
        /// What was tried.
        what: String,
        /// What was wrong with the answer.
        why: String,
    },
    /// There is no such interface.
    #[error("there is no interface named {0}")]
    NoInterface(String),
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;
const EADDRNOTAVAIL: i32 = 99;

impl NetlinkError {
    /// The error of `rtnetlink` while doing `what`.
    pub(super) fn during(what: impl Into<String>, error: &rtnetlink::Error) -> Self {
        let what = what.into();
        let rtnetlink::Error::NetlinkError(message) = error else {
            return Self::Answer { what, why: error.to_string() };
        };
        let source = message.to_io();
        match source.raw_os_error() {
            Some(EPERM | EACCES) => Self::Permission { what },
            _ => Self::Kernel { what, source },
        }
    }

    /// Whether the thing (or its interface) does not exist: what a removal wanted.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.code(), Some(ENOENT | ESRCH | ENODEV | EADDRNOTAVAIL))
    }

    /// Whether the thing is there already: what an addition wanted.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.code() == Some(EEXIST)
    }

    fn code(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::Open(_)
            | Self::Permission { .. }
            | Self::Answer { .. }
            | Self::NoInterface(_) => None,
        }
    }
}

/// Treats "it is there already" as done.
pub(super) fn or_present(result: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match result {
        Err(error) if error.is_present() => Ok(()),
        other => other,
    }
}

/// Treats "this kernel knows no such things" as "there are none".
pub(super) fn or_none<T: Default>(result: Result<T, NetlinkError>) -> Result<T, NetlinkError> {
    match result {
        Err(error) if error.code() == Some(EOPNOTSUPP) => Ok(T::default()),
        other => other,
    }
}

/// Treats "it does not exist" as done.
pub(super) fn or_gone(result: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match result {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}
