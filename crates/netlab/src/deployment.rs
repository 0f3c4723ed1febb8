//! The real program in the emulated Internet: keys, config files, the two daemons, and their status.
//!
//! Everything it writes (keys, configs, logs, control sockets, leases) is in one temporary folder.
//! The configs are the smallest that work; a test changes them as TOML tables before a start.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use toml::Table;

use crate::address::{PROXY_V4, client_interface};
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::scratch::Scratch;
use crate::tool;
use crate::topology::Topology;

/// The proxy's UDP port.
pub const PROXY_PORT: u16 = 51_900;
/// The name of the client's TUN.
pub const CLIENT_TUN: &str = "ropewalk0";
/// The name of the proxy's TUN.
pub const PROXY_TUN: &str = "ropewalk-proxy0";

/// The switches of the offloads, in `[tunnel]` of either config.
pub const OFFLOAD_KEYS: [&str; 3] = ["tun_offload", "udp_gso", "udp_gro"];

/// Names the value (`on`, `off`) of every offload that a test does not set itself, so that all tests can be run with each;
/// where it is absent, the daemons decide.
const OFFLOADS: &str = "ROPEWALK_NETLAB_OFFLOADS";

/// How long a daemon may take for what it does at once; generous for a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// One proxy and the clients of a topology, each a process of the real program. Dropped, all are
/// killed and their files removed.
#[derive(Debug)]
pub struct Deployment {
    program: PathBuf,
    proxy_config: Table,
    client_configs: Vec<Table>,
    proxy: Option<Process>,
    clients: Vec<Option<Process>>,
    // Last: removed when the processes have ended.
    folder: Scratch,
}

impl Deployment {
    /// Makes keys and configs for a proxy and every client of `topology`, each with all its WANs;
    /// `program` is the `ropewalk` to run. Nothing is started.
    ///
    /// # Errors
    /// When no folder can be made, or `ropewalk keygen` fails.
    pub fn prepare(topology: &Topology, program: &Path) -> Result<Self, LabError> {
        let folder = Scratch::create().map_err(LabError::io("making a temporary folder"))?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let keygen = |name: &str| -> Result<String, LabError> {
            let key = tool::run(&program.display().to_string(), &["keygen", &at(name)])?;
            Ok(key.trim().to_owned())
        };
        let proxy_key = keygen("proxy.key")?;
        let mut peers = Vec::new();
        let mut client_configs = Vec::new();
        let wans = 0..u8::try_from(topology.routers().len()).unwrap_or(u8::MAX);
        for client in 0..topology.clients().len() {
            let key = keygen(&format!("client{client}.key"))?;
            peers.push(table([
                ("name", format!("client{client}").into()),
                ("public_key", key.into()),
            ]));
            let mut config = table([
                ("private_key_file", at(&format!("client{client}.key")).into()),
                ("state_dir", at(&format!("client{client}.state")).into()),
                (
                    "proxy",
                    table([
                        ("address", format!("{PROXY_V4}:{PROXY_PORT}").into()),
                        ("public_key", proxy_key.clone().into()),
                    ])
                    .into(),
                ),
                ("control", table([("socket", at(&format!("client{client}.sock")).into())]).into()),
            ]);
            set_links(&mut config, wans.clone());
            client_configs.push(config);
        }
        let proxy_config = table([
            ("private_key_file", at("proxy.key").into()),
            ("state_dir", at("state").into()),
            ("control", table([("socket", at("proxy.sock").into())]).into()),
            ("peer", peers.into()),
        ]);
        Ok(Self {
            program: program.to_owned(),
            proxy_config,
            clients: client_configs.iter().map(|_| None).collect(),
            client_configs,
            proxy: None,
            folder,
        })
    }

    /// The folder with configs, logs and sockets.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The proxy's config; takes effect at its next start.
    pub fn proxy_config(&mut self) -> &mut Table {
        &mut self.proxy_config
    }

    /// The config of a client; takes effect at its next start.
    ///
    /// # Panics
    /// Where the topology has no such client.
    pub fn client_config(&mut self, client: u8) -> &mut Table {
        &mut self.client_configs[usize::from(client)]
    }

    /// Lets a client use only these WANs from its next start on.
    ///
    /// # Panics
    /// Where the topology has no such client.
    pub fn set_links(&mut self, client: u8, wans: impl IntoIterator<Item = u8>) {
        set_links(self.client_config(client), wans);
    }

    /// Starts (or starts again) the proxy and waits until it answers.
    ///
    /// # Errors
    /// When it ends early or does not answer in time; with the end of its log.
    pub fn start_proxy(&mut self, topology: &Topology) -> Result<(), LabError> {
        self.proxy = None;
        let config = self.proxy_config.clone();
        let mut process = self.start_through(&[], topology.proxy(), "proxy", "proxy", &config)?;
        process.wait_until("an answer to `status`", SOON, || self.status("proxy").is_ok())?;
        self.proxy = Some(process);
        Ok(())
    }

    /// Starts (or starts again) a client and returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    ///
    /// # Panics
    /// Where the topology has no such client.
    pub fn start_client(&mut self, topology: &Topology, client: u8) -> Result<(), LabError> {
        let index = usize::from(client);
        self.clients[index] = None;
        let config = self.client_configs[index].clone();
        let name = format!("client{client}");
        let process =
            self.start_through(&[], &topology.clients()[index], "client", &name, &config)?;
        self.clients[index] = Some(process);
        Ok(())
    }

    /// Waits until a client's tunnel is up with at least `links` links, and returns its status.
    ///
    /// # Errors
    /// When the client has ended, or that does not happen within 15 s; with the end of its log.
    ///
    /// # Panics
    /// Where the topology has no such client.
    pub fn wait_up(&mut self, client: u8, links: usize) -> Result<Value, LabError> {
        let mut latest = Value::Null;
        let Some(mut process) = self.clients[usize::from(client)].take() else {
            return Err(LabError::Unsupported(format!("client {client} was not started")));
        };
        let waited = process.wait_until(&format!("{links} links up"), SOON, || {
            latest = self.client_status(client).unwrap_or_default();
            let tunnel = &latest["tunnels"][0];
            let up = tunnel["links"].as_array().into_iter().flatten();
            tunnel["state"] == "up" && up.filter(|link| link["state"] == "up").count() >= links
        });
        self.clients[usize::from(client)] = Some(process);
        waited.map(|()| latest)
    }

    /// What `ropewalk status --json` says of a client.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn client_status(&self, client: u8) -> Result<Value, LabError> {
        self.status(&format!("client{client}"))
    }

    /// What `ropewalk status --json` says of the proxy.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn proxy_status(&self) -> Result<Value, LabError> {
        self.status("proxy")
    }

    /// The proxy's process, if it was started.
    pub fn proxy(&mut self) -> Option<&mut Process> {
        self.proxy.as_mut()
    }

    /// A client's process, if it was started.
    pub fn client(&mut self, client: u8) -> Option<&mut Process> {
        self.clients.get_mut(usize::from(client))?.as_mut()
    }

    /// Asks a client to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// When it still runs after 15 s.
    pub fn stop_client(&mut self, client: u8) -> Result<(), LabError> {
        self.client(client).map_or(Ok(()), |process| process.stop(SOON).map(|_| ()))
    }

    /// Asks the proxy to end (SIGTERM) and waits.
    ///
    /// # Errors
    /// When it still runs after 15 s.
    pub fn stop_proxy(&mut self) -> Result<(), LabError> {
        self.proxy().map_or(Ok(()), |process| process.stop(SOON).map(|_| ()))
    }

    /// Starts a daemon (`client` or `proxy`) with any config in any namespace, through other programs
    /// (such as `setpriv` with its arguments, to take a capability away), and returns at once. The
    /// caller owns it; `name` is that of its config and its log.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_through(
        &self,
        through: &[&str],
        namespace: &Namespace,
        role: &str,
        name: &str,
        config: &Table,
    ) -> Result<Process, LabError> {
        let file = self.folder().join(format!("{name}.toml"));
        let config = match std::env::var(OFFLOADS) {
            Ok(value) => with_offloads(config.clone(), &value),
            Err(_) => config.clone(),
        };
        std::fs::write(&file, config.to_string())
            .map_err(LabError::io(format!("writing {}", file.display())))?;
        let own = [self.program.as_os_str(), role.as_ref(), "--config".as_ref(), file.as_os_str()];
        let words: Vec<&OsStr> = through.iter().map(AsRef::as_ref).chain(own).collect();
        Process::start(namespace, self.folder(), name, words[0], &words[1..])
    }

    fn status(&self, name: &str) -> Result<Value, LabError> {
        let socket = self.folder().join(format!("{name}.sock")).display().to_string();
        let program = self.program.display().to_string();
        let text = tool::run(&program, &["status", "--json", "--socket", &socket])?;
        serde_json::from_str(&text)
            .map_err(|_| LabError::Malformed { what: "the output of `ropewalk status`", text })
    }
}

fn table<const N: usize>(entries: [(&str, toml::Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The same config, with this value of each offload of which it says nothing.
fn with_offloads(mut config: Table, value: &str) -> Table {
    let tunnel = config.entry("tunnel").or_insert_with(|| Table::new().into());
    if let Some(tunnel) = tunnel.as_table_mut() {
        for key in OFFLOAD_KEYS {
            tunnel.entry(key).or_insert_with(|| value.into());
        }
    }
    config
}

fn set_links(config: &mut Table, wans: impl IntoIterator<Item = u8>) {
    let link = |wan| table([("interface", client_interface(wan).into())]);
    let links: Vec<Table> = wans.into_iter().map(link).collect();
    config.insert("link".into(), links.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offload_that_a_test_sets_stays_as_it_is() {
        let before: Table = toml::from_str("[tunnel]\nudp_gso = \"on\"\necn = false").unwrap();
        let tunnel = with_offloads(before, "off")["tunnel"].as_table().unwrap().clone();
        let of = |key: &str| tunnel[key].as_str().unwrap();
        assert_eq!(["udp_gso", "udp_gro", "tun_offload"].map(of), ["on", "off", "off"]);
        assert_eq!(tunnel["ecn"].as_bool(), Some(false));
        assert_eq!(with_offloads(Table::new(), "on")["tunnel"]["udp_gro"].as_str(), Some("on"));
    }
}
