//! The local control API of Ropewalk's daemons, and what their config files have in common.
//!
//! A daemon answers on a Unix socket, HTTP and JSON, versioned by path: `GET /v1/status` gives the one
//! status document ([`api::StatusReport`]) that `ropewalk status` shows as a table and scripts read as
//! it is. Root, the daemon's own user and the members of one configured group may ask
//! ([`server::Access`]); the file's mode says so and the credentials of each connection are checked
//! again.
//!
//! `GET` and `PUT /v1/scheduling` read and change how the daemon sends, `GET /v1/flows` says which links
//! carry each flow, and what it waits for.
//!
//! `GET /metrics` gives [the numbers](metrics) of the status as Prometheus reads them. They and a page that shows the
//! links live are served on a TCP port of the loopback interface too where the config asks for that.
//! `PUT /v1/links` changes a link of a client, `GET` and `PUT /v1/routes` read and change what goes through its tunnel,
//! `POST /v1/reload` has a daemon read its config again. `POST`, `GET` and `DELETE /v1/speedtest` have a
//! client test how fast its links are; [`speed`] says what was found in sentences.
//!
//! On a proxy `GET`, `POST`, `PUT` and `DELETE /v1/peers` list, invite, disable and remove clients; what an [`invitation`]
//! is stands there. `GET /v1/forwards` shows which of its ports lead to clients.
//!
//! This crate knows nothing of packets and depends on no other crate of the workspace.

pub mod api;
pub mod client;
pub mod config;
pub mod folder;
pub mod invitation;
pub mod metrics;
mod query;
pub mod server;
pub mod speed;
pub mod why;
mod words;

use api::Role;

/// The folder of a daemon's config files and keys. Each daemon has a user of its own, whose folder it is: the other's user can
/// neither read it nor put anything there.
#[must_use]
pub const fn config_folder(role: Role) -> &'static str {
    match role {
        Role::Client => "/etc/ropewalk/client",
        Role::Proxy => "/etc/ropewalk/proxy",
    }
}

/// The folder for what of a daemon ends with the machine: its control socket, its lock. Only its owner makes files in it.
#[must_use]
pub const fn runtime_folder(role: Role) -> &'static str {
    match role {
        Role::Client => "/run/ropewalk/client",
        Role::Proxy => "/run/ropewalk/proxy",
    }
}

/// The config file of the client daemon where no other is said.
pub const CLIENT_CONFIG: &str = "/etc/ropewalk/client/client.toml";

/// The config file of the proxy daemon where no other is said.
pub const PROXY_CONFIG: &str = "/etc/ropewalk/proxy/proxy.toml";

/// The control socket of the client daemon where nothing else is configured.
pub const CLIENT_SOCKET: &str = "/run/ropewalk/client/client.sock";

/// The control socket of the proxy daemon where nothing else is configured.
pub const PROXY_SOCKET: &str = "/run/ropewalk/proxy/proxy.sock";
