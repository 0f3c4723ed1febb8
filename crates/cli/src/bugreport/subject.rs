//! Whose report it is: which daemon, its config file, its socket.

use std::path::{Path, PathBuf};

use ropewalk_control::api::Role;
use ropewalk_control::{CLIENT_CONFIG, CLIENT_SOCKET, PROXY_CONFIG, PROXY_SOCKET};
use toml::Table;

use super::config;
use crate::args::{Bugreport, RoleArgument};
use crate::commands::ask;
use crate::commands::doctor::guess;
use crate::exit::Failure;

/// A daemon that is reported on, whether or not it runs.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) role: Role,
    pub(crate) file: PathBuf,
    /// What the file says, or why that is not known.
    pub(crate) config: Result<Table, String>,
    pub(crate) socket: PathBuf,
}

impl Subject {
    /// The daemon of this role with what was said of it on the command line, else with what its config says, else as usual.
    fn new(role: Role, file: Option<&Path>, socket: Option<&Path>) -> Self {
        let (usual_file, usual_socket) = match role {
            Role::Client => (CLIENT_CONFIG, CLIENT_SOCKET),
            Role::Proxy => (PROXY_CONFIG, PROXY_SOCKET),
        };
        let file = file.map_or_else(|| PathBuf::from(usual_file), Path::to_owned);
        let config = config::read(&file);
        let of_config = || config.as_ref().ok().and_then(config::socket);
        let socket = socket.map(Path::to_owned).or_else(of_config);
        let socket = socket.unwrap_or_else(|| PathBuf::from(usual_socket));
        Self { role, file, config, socket }
    }

    /// Whether there is a sign of it on this machine; what cannot be looked at may be there.
    fn is_here(&self) -> bool {
        let may_be = |path: &Path| !matches!(path.try_exists(), Ok(false));
        may_be(&self.file) || may_be(&self.socket)
    }
}

/// Those that are asked for; else those of which there is a sign; else the client, of which is told what is missing.
pub(crate) fn subjects(wanted: &Bugreport) -> Result<Vec<Subject>, Failure> {
    let (file, socket) = (wanted.config.as_deref(), wanted.daemon.socket.as_deref());
    let role = match (wanted.role, file, socket) {
        (Some(RoleArgument::Client), ..) => Some(Role::Client),
        (Some(RoleArgument::Proxy), ..) => Some(Role::Proxy),
        (None, Some(file), _) => Some(guess(file)),
        (None, None, Some(_)) => ask::status(socket).ok().map(|report| report.daemon.role),
        // Only a proxy has clients.
        (None, None, None) => wanted.peer.as_ref().map(|_| Role::Proxy),
    };
    if wanted.peer.is_some() && role == Some(Role::Client) {
        return Err(Failure::Usage("--peer is for a proxy: only a proxy has clients".to_owned()));
    }
    if let Some(role) = role {
        return Ok(vec![Subject::new(role, file, socket)]);
    }
    let mut all: Vec<Subject> =
        [Role::Client, Role::Proxy].map(|role| Subject::new(role, file, socket)).into();
    if socket.is_none() && all.iter().any(Subject::is_here) {
        all.retain(Subject::is_here);
    } else {
        all.truncate(1);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_the_one_that_was_said_else_that_of_the_config_else_the_usual_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.toml");
        std::fs::write(&file, "[control]\nsocket = \"/run/x.sock\"\n").unwrap();
        let socket = |file: Option<&Path>, socket: Option<&str>| {
            Subject::new(Role::Proxy, file, socket.map(Path::new)).socket
        };
        assert_eq!(socket(Some(&file), Some("/y.sock")), Path::new("/y.sock"));
        assert_eq!(socket(Some(&file), None), Path::new("/run/x.sock"));
        let none = folder.path().join("none.toml");
        assert_eq!(socket(Some(&none), None), Path::new(PROXY_SOCKET));
        assert!(Subject::new(Role::Client, Some(&file), Some(&none)).is_here());
        assert!(!Subject::new(Role::Client, Some(&none), Some(&none)).is_here());
    }
}
