//! The clients of a fleet: they join, move, and say how it is with them.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use toml::Table;

use super::{Fleet, POLL, read};
use crate::address::SERVER_V4;
use crate::error::LabError;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tool;

impl Fleet {
    /// Lets a client join by an invitation of proxy `at`, and starts it. It knows no other proxy at first, so that it has its session there.
    ///
    /// # Errors
    /// When the invitation is refused, or the client does not start.
    pub fn join(&mut self, client: usize, at: usize) -> Result<(), LabError> {
        let invitation = self.invite(client, at)?;
        self.configure(client, &invitation, false)?;
        self.start_client(client)
    }

    /// An invitation of proxy `at` for a client.
    ///
    /// # Errors
    /// When it is refused.
    pub fn invite(&self, client: usize, at: usize) -> Result<String, LabError> {
        let told = self.ask(at, &["peer", "add", &self.clients[client].name])?;
        let invitation = told.lines().find(|line| line.starts_with("ropewalk:"));
        invitation.map(str::to_owned).ok_or_else(|| LabError::Malformed {
            what: "the output of `ropewalk peer add`",
            text: told.clone(),
        })
    }

    /// Lets a client join by an invitation, and starts it. It knows the other proxies that are named there.
    ///
    /// # Errors
    /// When the client refuses it, or does not start.
    pub fn join_by(&mut self, client: usize, invitation: &str) -> Result<(), LabError> {
        self.configure(client, invitation, true)?;
        self.start_client(client)
    }

    /// Writes the config of a client by an invitation, with or without the other proxies that are named there.
    fn configure(&self, client: usize, invitation: &str, others: bool) -> Result<(), LabError> {
        let name = self.clients[client].name.clone();
        let home = self.folder.path().join(&name);
        std::fs::create_dir(&home).map_err(LabError::io(format!("making {}", home.display())))?;
        let file = home.join("client.toml").display().to_string();
        let program = self.program.display().to_string();
        let namespace = &self.clients[client].namespace;
        let links = ["--link", "eth0", "--link", "eth1"];
        let words = [&["join", "--config", &file][..], &links, &[invitation]].concat();
        namespace.tool(&program, &words)?;
        let text =
            std::fs::read_to_string(&file).map_err(LabError::io("reading the client's config"))?;
        let malformed = |_| LabError::Malformed { what: "the client's config", text: text.clone() };
        let mut config: Table = toml::from_str(&text).map_err(malformed)?;
        let socket = self.folder.path().join(format!("{name}.sock")).display().to_string();
        let control = Table::from_iter([("socket".to_owned(), socket.into())]);
        config.insert("control".to_owned(), control.into());
        config.insert("state_dir".to_owned(), home.join("state").display().to_string().into());
        if !others && let Some(proxy) = config.get_mut("proxy").and_then(toml::Value::as_table_mut)
        {
            proxy.remove("other");
        }
        std::fs::write(&file, config.to_string())
            .map_err(LabError::io("writing the client's config"))
    }

    /// Starts a client that has joined (again) and returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_client(&mut self, client: usize) -> Result<(), LabError> {
        self.clients[client].process = None;
        let host = &self.clients[client];
        let file = self.folder.path().join(&host.name).join("client.toml");
        let process = self.run_daemon(host, "client", &file)?;
        self.clients[client].process = Some(process);
        Ok(())
    }

    /// A client comes into other networks: its links keep their names, and have other addresses.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn move_client(&mut self, client: usize) -> Result<(), LabError> {
        let host = &self.clients[client];
        for (at, made) in (0..).zip(host.uplinks.clone()) {
            let uplink = self.next_uplink;
            self.next_uplink += 1;
            self.topology.address_uplink(&host.namespace, at, (made, uplink))?;
        }
        Ok(())
    }

    /// Why a client uses the proxy that it uses, as it says itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn why_of(&self, client: usize) -> Result<String, LabError> {
        Ok(self.known_to(client)?["why"].as_str().unwrap_or_default().to_owned())
    }

    /// The process of a client.
    pub fn client(&mut self, client: usize) -> Option<&mut Process> {
        self.clients[client].process.as_mut()
    }

    /// The network of a client.
    #[must_use]
    pub fn network_of(&self, client: usize) -> &Namespace {
        &self.clients[client].namespace
    }

    /// Waits until the tunnels of these clients are up.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub fn wait_up(&self, clients: impl IntoIterator<Item = usize>) -> Result<(), LabError> {
        for client in clients {
            self.wait(&format!("the tunnel of client {client}"), |fleet| {
                Ok(fleet.client_status(client)?["tunnels"][0]["state"] == "up")
            })?;
        }
        Ok(())
    }

    /// What `ropewalk status --json` says of a client.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn client_status(&self, client: usize) -> Result<Value, LabError> {
        self.status(&self.clients[client].name)
    }

    /// The proxy that a client uses, as `p-0` and so on; empty where it does not say.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn proxy_of(&self, client: usize) -> Result<String, LabError> {
        let report = self.known_to(client)?;
        let proxies = report["proxies"].as_array().into_iter().flatten();
        let present = proxies.filter(|proxy| proxy["in_use"] == true);
        Ok(present.filter_map(|proxy| proxy["id"].as_str()).next().unwrap_or_default().to_owned())
    }

    /// What `ropewalk proxies --json` says of a client.
    fn known_to(&self, client: usize) -> Result<Value, LabError> {
        let socket = self.socket(&self.clients[client].name);
        let program = self.program.display().to_string();
        let text = tool::run(&program, &["proxies", "--json", "--socket", &socket])?;
        read(text, "the output of `ropewalk proxies`")
    }

    /// The clients that were started.
    fn started(&self) -> impl Iterator<Item = usize> {
        (0..self.clients.len()).filter(|client| self.clients[*client].process.is_some())
    }

    /// Waits until each client that was started uses another proxy than this one. Returns how many do when time is over.
    ///
    /// # Errors
    /// When one does not answer.
    pub fn moved_from(&self, proxy: &str, within: Duration) -> Result<usize, LabError> {
        let started = Instant::now();
        loop {
            let mut moved = 0;
            for client in self.started() {
                let (present, status) = (self.proxy_of(client)?, self.client_status(client)?);
                let is_up = status["tunnels"][0]["state"] == "up";
                moved += usize::from(is_up && !present.is_empty() && present != proxy);
            }
            if moved == self.started().count() || started.elapsed() >= within {
                return Ok(moved);
            }
            thread::sleep(POLL);
        }
    }

    /// Has a client use a proxy, or `auto`.
    ///
    /// # Errors
    /// When it refuses.
    pub fn use_proxy(&self, client: usize, name: &str) -> Result<(), LabError> {
        let socket = self.socket(&self.clients[client].name);
        let program = self.program.display().to_string();
        tool::run(&program, &["use", name, "--socket", &socket]).map(|_| ())
    }

    /// The inner IPv4 address of each client that was started, as it says itself.
    ///
    /// # Errors
    /// When one does not answer.
    pub fn inner_addresses(&self) -> Result<Vec<String>, LabError> {
        let address = |client| {
            let status = self.client_status(client)?;
            Ok(status["tunnels"][0]["inner_v4"].as_str().unwrap_or_default().to_owned())
        };
        self.started().map(address).collect()
    }

    /// What a client has logged.
    #[must_use]
    pub fn log_of(&self, client: usize) -> String {
        self.clients[client].process.as_ref().map(Process::log).unwrap_or_default()
    }

    /// A socket at a client, one at the server, and where that one is.
    ///
    /// # Errors
    /// When one cannot be made.
    pub fn stream_sockets(
        &self,
        client: usize,
    ) -> Result<(UdpSocket, UdpSocket, SocketAddr), LabError> {
        let bind = |namespace: &Namespace, to: SocketAddr| {
            namespace.run(|| UdpSocket::bind(to))?.map_err(LabError::io("a socket for a stream"))
        };
        let near = bind(&self.clients[client].namespace, ([0; 4], 0).into())?;
        let far = bind(self.topology.server(), (SERVER_V4, 0).into())?;
        let at = far.local_addr().map_err(LabError::io("a socket for a stream"))?;
        Ok((near, far, at))
    }
}
