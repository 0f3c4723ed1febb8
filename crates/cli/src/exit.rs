//! Why the program fails, and the exit code that says so (documented in `ropewalk --help`).

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::process::ExitCode;

use ropewalk_control::client::ClientError;
use ropewalk_control::config::ConfigError;
use ropewalk_link_io::netlink::NetlinkError;
use ropewalk_link_io::nft::NftError;
use ropewalk_link_io::sysctl::SysctlError;
use ropewalk_link_io::tun::TunError;
use ropewalk_link_io::udp::OpenError;
use ropewalk_proxy::leases::LeaseError;
use ropewalk_proxy::overlap::Overlap;

/// Why the program fails.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was tried and did not work.
    Failed(anyhow::Error),
    /// Wrong use, beyond what the command line parser sees, or a config that does not fit this host.
    Usage(String),
    /// An error in a config file.
    Config(ConfigError),
    /// No daemon answers at any of the usual sockets.
    NoDaemon(String),
    /// A daemon does not answer as it should.
    Daemon(ClientError),
    /// A missing permission or capability, with the remedy.
    Permission(String),
    /// There is no desktop to show anything on.
    NoDesktop(String),
}

impl Failure {
    /// Whether it is that no daemon answers.
    pub(crate) const fn is_no_daemon(&self) -> bool {
        matches!(self, Self::NoDaemon(_) | Self::Daemon(ClientError::NotRunning { .. }))
    }

    /// The exit code.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::Config(error) if error.is_permission() => 4,
            Self::Config(_) => 2,
            Self::NoDaemon(_) => 3,
            Self::Daemon(ClientError::NotRunning { .. } | ClientError::Timeout { .. }) => 3,
            Self::Daemon(ClientError::Permission { .. }) => 4,
            Self::Daemon(ClientError::Refused(error)) => match error.code {
                ropewalk_control::api::ErrorCode::Forbidden => 4,
                ropewalk_control::api::ErrorCode::Busy => 3,
                ropewalk_control::api::ErrorCode::Failed => 1,
                // What was asked for does not exist or makes no sense.
                ropewalk_control::api::ErrorCode::NotFound
                | ropewalk_control::api::ErrorCode::BadRequest => 2,
            },
            Self::Daemon(ClientError::Version { .. } | ClientError::Protocol { .. }) => 1,
            Self::Permission(_) => 4,
            Self::NoDesktop(_) => 5,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // With all causes, each after a colon.
            Self::Failed(error) => write!(f, "{error:#}"),
            Self::Usage(message)
            | Self::NoDaemon(message)
            | Self::Permission(message)
            | Self::NoDesktop(message) => f.write_str(message),
            Self::Config(error) => error.fmt(f),
            Self::Daemon(error) => error.fmt(f),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Daemon(error)
    }
}

impl From<anyhow::Error> for Failure {
    /// A lack of permission anywhere among the causes decides the exit code.
    fn from(error: anyhow::Error) -> Self {
        if error.chain().any(names_the_right) {
            return Self::Permission(format!("{error:#}"));
        }
        let denied = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| cause.kind() == io::ErrorKind::PermissionDenied);
        if denied {
            return Self::Permission(format!("{error:#} (run it with sudo?)"));
        }
        // What the config says does not fit this host.
        let is_of_config = |cause: &(dyn std::error::Error + 'static)| {
            cause.is::<Overlap>()
                || matches!(cause.downcast_ref(), Some(LeaseError::OutsidePool { .. }))
        };
        if error.chain().any(is_of_config) {
            return Self::Usage(format!("{error:#}"));
        }
        match error.downcast::<ConfigError>() {
            Ok(error) => Self::Config(error),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Whether an error says that a right is missing, and which.
fn names_the_right(cause: &(dyn std::error::Error + 'static)) -> bool {
    matches!(cause.downcast_ref(), Some(TunError::Privilege { .. } | TunError::Device))
        || matches!(cause.downcast_ref(), Some(NetlinkError::Permission { .. }))
        || matches!(cause.downcast_ref(), Some(NftError::Permission { .. }))
        || matches!(cause.downcast_ref(), Some(SysctlError::Permission { .. }))
        || matches!(cause.downcast_ref(), Some(OpenError::Privilege { .. }))
}

/// The same text without what a terminal obeys: names, reasons and logs come from a daemon, or whoever stands in its place.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && c != '\n' && c != '\t';
    match text.contains(obeyed) {
        true => text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect(),
        false => text.into(),
    }
}

/// Prints to standard output, as [`plain`] has it; a reader who has seen enough (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;

    let mut output = io::stdout().lock();
    match output.write_all(plain(text).as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Failed(
            anyhow::Error::new(error).context("cannot write to standard output"),
        )),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn nothing_that_is_printed_moves_the_terminal() {
        assert_eq!(plain("a\tb\nü│"), "a\tb\nü│");
        assert_eq!(
            plain("\u{1b}[2J\u{9b}1m\r\u{7f}\u{7}x"),
            "\u{fffd}[2J\u{fffd}1m\u{fffd}\u{fffd}\u{fffd}x"
        );
    }

    #[test]
    fn a_cause_without_permission_decides_the_exit_code() {
        let denied = Err::<(), _>(io::Error::from(io::ErrorKind::PermissionDenied))
            .context("cannot open /dev/net/tun")
            .unwrap_err();
        assert!(matches!(Failure::from(denied), Failure::Permission(text)
            if text.starts_with("cannot open /dev/net/tun: permission denied")));
        let taken =
            Err::<(), _>(io::Error::from(io::ErrorKind::AddrInUse)).context("x").unwrap_err();
        assert!(matches!(Failure::from(taken), Failure::Failed(_)));
    }

    #[test]
    fn an_error_that_names_the_missing_right_is_one_of_permission() {
        let what = || "set the rules".to_owned();
        let name = || "rope0".to_owned();
        let errors: [anyhow::Error; 6] = [
            TunError::Privilege { name: name() }.into(),
            TunError::Device.into(),
            NetlinkError::Permission { what: what() }.into(),
            NftError::Permission { what: what() }.into(),
            SysctlError::Permission { key: what(), value: "1".to_owned() }.into(),
            OpenError::Privilege { what: "binding", capability: "CAP_NET_RAW" }.into(),
        ];
        for error in errors {
            let said = error.to_string();
            let failure = Failure::from(error.context("cannot start"));
            assert!(
                matches!(&failure, Failure::Permission(text)
                    if *text == format!("cannot start: {said}")),
                "{failure:?}"
            );
        }
        let other = NftError::Refused { what: what(), said: "syntax".to_owned() };
        assert!(matches!(Failure::from(anyhow::Error::new(other)), Failure::Failed(_)));
    }
}
