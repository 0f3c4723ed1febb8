//! Why a call failed.

use ropewalk_control::invitation::{Expired, InvitationError};
use ropewalk_link_io::tun::TunError;

/// The kinds of errors, as numbers of the C interface. Those that exist never change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Code {
    /// It worked.
    Ok = 0,
    /// A pointer, length or number makes no sense, or a text is not UTF-8: a fault of the app.
    Argument = 1,
    /// The invitation is none, is damaged, has expired, or is another proxy's.
    Invitation = 2,
    /// The config or the description of a network is not understood.
    Config = 3,
    /// The call comes too early or too late: before the start, or the start a second time.
    Order = 4,
    /// The tunnel has ended.
    Stopped = 5,
    /// Too much waits already, or the tunnel did not answer in time: try again.
    Busy = 6,
    /// The buffer is too small.
    TooSmall = 7,
    /// This call would wait for the thread that makes it: it may not be made in a callback.
    WrongThread = 8,
    /// The descriptor is no TUN that can be used.
    Descriptor = 9,
    /// The system refuses: no memory for a thread, no randomness.
    System = 10,
    /// A fault of this library.
    Internal = 11,
}

/// Why a call failed, with what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A fault of the app.
    #[error("{0}")]
    Argument(String),
    /// The line is no invitation.
    #[error(transparent)]
    Invitation(#[from] InvitationError),
    /// It is out of date.
    #[error(transparent)]
    Expired(#[from] Expired),
    /// It is another proxy's than the config says.
    #[error(
        "the invitation is another proxy's than the first one of the config: make a new config of it"
    )]
    OtherProxy,
    /// A config or network is not understood.
    #[error("{0}")]
    Config(String),
    /// The tunnel was not started.
    #[error("the tunnel was not started yet: call ropewalk_tunnel_start first")]
    NotStarted,
    /// It was started before.
    #[error("the tunnel was started before: a tunnel starts once")]
    StartedBefore,
    /// It has ended.
    #[error("the tunnel has ended: free it, and make a new one")]
    Stopped,
    /// Too much waits already.
    #[error("too many calls wait for the tunnel: try again in a moment")]
    Full,
    /// It does not answer.
    #[error("the tunnel did not answer in time: a callback may hold it up")]
    NoAnswer,
    /// The caller's buffer is too small.
    #[error("the buffer is too small: {needed} bytes are needed")]
    TooSmall {
        /// Bytes that it must have.
        needed: usize,
    },
    /// A callback would wait for itself.
    #[error("this call waits for the tunnel's thread and may not be made in a callback of it")]
    WrongThread,
    /// The descriptor is no TUN.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The system refuses.
    #[error("{0}")]
    System(String),
    /// A fault of this library.
    #[error("a fault of the library: {0}")]
    Internal(String),
}

impl Error {
    /// Its kind.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Argument(_) => Code::Argument,
            Self::Invitation(_) | Self::Expired(_) | Self::OtherProxy => Code::Invitation,
            Self::Config(_) => Code::Config,
            Self::NotStarted | Self::StartedBefore => Code::Order,
            Self::Stopped => Code::Stopped,
            Self::Full | Self::NoAnswer => Code::Busy,
            Self::TooSmall { .. } => Code::TooSmall,
            Self::WrongThread => Code::WrongThread,
            Self::Tun(_) => Code::Descriptor,
            Self::System(_) => Code::System,
            Self::Internal(_) => Code::Internal,
        }
    }
}
