//! The etcd of a fleet: its members, what they are asked beside the proxies, and who reaches them.
//!
//! etcd is asked by its HTTP gateway (`/v3/`, JSON in which keys and values are base64), with `curl`: no client of etcd's own is needed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{DATA, Fleet, Host, MEMBERS, QUOTA, read};
use crate::error::LabError;
use crate::process::Process;

/// As long as [`Fleet::fill`] writes a value, in units of 3 bytes: a megabyte is within the length of a request that etcd takes.
const FILLER: usize = 350_000;

/// More values of a megabyte than the quota of any test.
const MOST_FILLERS: usize = 64;

/// The keys of what fills etcd, and the first key behind them.
const FILLERS: (&str, &str) = ("/filler/", "/filler0");

impl Fleet {
    /// Starts a member of etcd (again) and returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_member(&mut self, at: usize) -> Result<(), LabError> {
        let url = |host: &Host, port: u16| format!("https://{}:{port}", host.address);
        let peer = |host: &Host| format!("http://{}:2380", host.address);
        let cluster: Vec<_> =
            self.members.iter().map(|host| format!("{}={}", host.name, peer(host))).collect();
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let host = &self.members[at];
        let mut arguments = vec![
            format!("--name={}", host.name),
            format!("--data-dir={}", file(&format!("{DATA}/{}", host.name))),
            format!("--listen-client-urls={}", url(host, 2379)),
            format!("--advertise-client-urls={}", url(host, 2379)),
            format!("--listen-peer-urls={}", peer(host)),
            format!("--initial-advertise-peer-urls={}", peer(host)),
            format!("--initial-cluster={}", cluster.join(",")),
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", file("ca.pem")),
            format!("--cert-file={}", file("host.pem")),
            format!("--key-file={}", file("host.key")),
            format!("--quota-backend-bytes={QUOTA}"),
        ];
        // Of one that is said twice etcd takes the last.
        arguments.extend(self.etcd_arguments.iter().cloned());
        let folder = self.folder.path();
        let process = Process::start(&host.namespace, folder, &host.name, "etcd", &arguments)?;
        self.members[at].process = Some(process);
        Ok(())
    }

    /// The process of a member of etcd.
    pub fn member(&mut self, at: usize) -> Option<&mut Process> {
        self.members[at].process.as_mut()
    }

    /// Which member leads, as proxy `at` sees it.
    ///
    /// # Errors
    /// When none does for a while.
    pub fn leader(&self, at: usize) -> Result<usize, LabError> {
        let mut found = None;
        self.wait("a leader of etcd", |fleet| {
            let report = fleet.report(at)?;
            let members = report["members"].as_array().into_iter().flatten();
            let leads = members.filter(|member| member["leader"] == true);
            let leader = leads.filter_map(|member| member["endpoint"].as_str()).next();
            let is_it = |host: &Host| {
                leader.is_some_and(|url| url.contains(&format!("/{}:", host.address)))
            };
            found = fleet.members.iter().position(is_it);
            Ok(found.is_some())
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Cuts a proxy off from etcd, or joins it again; its clients still reach it.
    ///
    /// # Errors
    /// When `nft` refuses.
    pub fn cut_from_etcd(&self, at: usize, cut: bool) -> Result<(), LabError> {
        let namespace = &self.proxies[at].namespace;
        match cut {
            true => namespace.nft(
                "table inet cut { chain out { type filter hook output priority 0; tcp dport 2379 drop; }; }",
            ),
            false => namespace.nft("delete table inet cut"),
        }
    }

    /// Members are started with these arguments, too, from their next start on.
    pub fn set_etcd_arguments(&mut self, arguments: &[&str]) {
        self.etcd_arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    /// Asks a member of etcd: `call` is what stands behind `/v3/`.
    ///
    /// # Errors
    /// When it does not answer. What it refuses is an answer, with a field `error`.
    pub fn etcd(&self, at: usize, call: &str, body: &Value) -> Result<Value, LabError> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let question = self.folder.path().join("question.json");
        let written = std::fs::write(&question, body.to_string());
        written.map_err(LabError::io(format!("writing {}", question.display())))?;
        let host = &self.members[at];
        let url = format!("https://{}:2379/v3/{call}", host.address);
        let (ca, certificate, key) = (file("ca.pem"), file("host.pem"), file("host.key"));
        let data = format!("@{}", question.display());
        let arguments = [
            &["--silent", "--show-error", "--max-time", "20", "--cacert", &ca][..],
            &["--cert", &certificate, "--key", &key, "--data-binary", &data, &url],
        ]
        .concat();
        read(host.namespace.tool("curl", &arguments)?, "an answer of etcd")
    }

    /// Writes a value into etcd beside the proxies.
    ///
    /// # Errors
    /// When etcd does not answer, or refuses.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<(), LabError> {
        let body = json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) });
        accepted(&self.etcd(0, "kv/put", &body)?)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// When etcd does not answer, or refuses.
    pub fn delete(&self, key: &str) -> Result<(), LabError> {
        accepted(&self.etcd(0, "kv/deleterange", &json!({ "key": STANDARD.encode(key) }))?)
    }

    /// Writes into etcd until it says that it is full.
    ///
    /// # Errors
    /// When it does not, or does not answer.
    pub fn fill(&self) -> Result<(), LabError> {
        // Zeros, in base64.
        let value = "AAAA".repeat(FILLER);
        for number in 0..MOST_FILLERS {
            let key = STANDARD.encode(format!("{}{number}", FILLERS.0));
            let answer = self.etcd(0, "kv/put", &json!({ "key": key, "value": value }))?;
            if answer["error"].as_str().is_some_and(|error| error.contains("space exceeded")) {
                return Ok(());
            }
            accepted(&answer)?;
        }
        Err(LabError::Unsupported(format!("{MOST_FILLERS} MB do not fill etcd")))
    }

    /// Takes away what filled etcd, as its operator does: deletes it, compacts, defragments each member, and ends the alarms.
    ///
    /// # Errors
    /// When a member does not answer, or refuses.
    pub fn make_room(&self) -> Result<(), LabError> {
        let (first, behind) = (STANDARD.encode(FILLERS.0), STANDARD.encode(FILLERS.1));
        let range = json!({ "key": first, "range_end": behind });
        let deleted = self.etcd(0, "kv/deleterange", &range)?;
        accepted(&deleted)?;
        let compaction = json!({ "revision": deleted["header"]["revision"], "physical": true });
        accepted(&self.etcd(0, "kv/compaction", &compaction)?)?;
        for member in 0..MEMBERS {
            accepted(&self.etcd(member, "maintenance/defragment", &json!({}))?)?;
        }
        let alarms = self.etcd(0, "maintenance/alarm", &json!({ "action": "GET" }))?;
        for alarm in alarms["alarms"].as_array().into_iter().flatten() {
            let end = json!({
                "action": "DEACTIVATE", "memberID": alarm["memberID"], "alarm": alarm["alarm"],
            });
            accepted(&self.etcd(0, "maintenance/alarm", &end)?)?;
        }
        Ok(())
    }
}

/// Whether an answer of etcd is no refusal.
fn accepted(answer: &Value) -> Result<(), LabError> {
    match answer.get("error") {
        None => Ok(()),
        Some(_) => Err(LabError::Malformed { what: "an answer of etcd", text: answer.to_string() }),
    }
}
