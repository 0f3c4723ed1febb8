//! Many clients that are in the registry and run nowhere. Some of them ask for a session now and then, by hand.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_proto::crypto::aead::{Cipher, CipherSet};
use ropewalk_proto::crypto::freshness::Timestamp;
use ropewalk_proto::crypto::handshake::{Answer, Initiator, InitiatorConfig};
use ropewalk_proto::crypto::secret::StaticSecret;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::parameters::Parameters;
use ropewalk_settings::{PresharedKey, PrivateKey, PublicKey};
use serde_json::{Value, json};

use super::{Fleet, SOON};
use crate::deployment::PROXY_PORT;
use crate::error::LabError;

/// Clients with the numbers from 1 to this one can ask for a session. Of the others nobody has the private key.
pub const WITH_KEYS: u32 = 1_000;

/// Clients of files get inner addresses from the one behind this on, of the usual pool: 10.77.0.255.
const FIRST_INNER: u32 = 0x0a4d_00ff;

/// Bytes of the longest answer to a first message, and some more.
const ANSWER_BYTES: usize = 2048;

/// From one handshake to the next: so few strangers are none too many for a proxy, which would ask them for cookies.
const PACE: Duration = Duration::from_millis(2);

/// The proxy may write its copy a while after its start, where clients are told of for long.
const COPY: Duration = Duration::from_secs(120);

impl Fleet {
    /// Files of a proxy on which these clients, by their numbers from 1 on, joined before it had a registry.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn file_clients(&self, at: usize, clients: RangeInclusive<u32>) -> Result<(), LabError> {
        let folder = self.state_of(at);
        let peer =
            |number: u32| json!({ "name": name(number), "public_key": key(number), "since": 1 });
        let lease = |number: u32| {
            let inner = Ipv4Addr::from(FIRST_INNER + number);
            json!({ "public_key": key(number), "address_v4": inner })
        };
        let peers = (r#"{"version":1,"peers":["#, r#"],"invitations":[],"over":[]}"#);
        write(&folder.join("peers.json"), peers, clients.clone().map(peer))?;
        let leases = (r#"{"version":1,"leases":["#, "]}");
        write(&folder.join("leases.json"), leases, clients.map(lease))
    }

    /// Has clients with these numbers ask proxy `at` for a session, one after the other, on the host of client `host`. Each waits so long
    /// for its answer; nobody uses what he gets. Returns how long the answers took that brought a session.
    ///
    /// # Errors
    /// When a socket or the proxy's key is missing.
    pub fn handshakes(
        &self,
        at: usize,
        host: usize,
        clients: impl IntoIterator<Item = u32>,
        patience: Duration,
    ) -> Result<Vec<Duration>, LabError> {
        let failed = || LabError::io("asking a proxy for a session");
        let bound = self.network_of(host).run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let socket = bound.map_err(failed())?;
        let proxy = SocketAddr::from((self.proxies[at].address, PROXY_PORT));
        socket.connect(proxy).map_err(failed())?;
        let remote = self.key_of(at)?;
        // The same indices in every run: nothing is kept secret by them.
        let mut rng = StdRng::seed_from_u64(11);
        let mut took = Vec::new();
        for client in clients {
            let config = InitiatorConfig {
                local: secret(client),
                remote,
                psk: PresharedKey::NONE,
                ciphers: CipherSet::only(Cipher::ChaCha20Poly1305),
                parameters: Parameters::default(),
            };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let (index, time) = (SessionIndex::new(rng.next_u32()), Timestamp::from_unix(now));
            let attempt = Initiator::new(&config, &mut rng, index, time, None);
            let begun = Instant::now();
            took.extend(answered(&socket, attempt, patience).map_err(failed())?);
            thread::sleep(PACE.saturating_sub(begun.elapsed()));
        }
        Ok(took)
    }

    /// A proxy has no copy of the registry on its disk, as before its first start.
    ///
    /// # Errors
    /// When it cannot be taken away.
    pub fn forget_copy(&self, at: usize) -> Result<(), LabError> {
        let copy = self.state_of(at).join("fleet.json");
        match std::fs::remove_file(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::io(format!("removing {}", copy.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Waits until a proxy that was started then has written its copy of the registry: it does nothing more by itself for a minute.
    ///
    /// # Errors
    /// When that takes longer than it may.
    pub fn wait_for_copy(&self, at: usize, started: SystemTime) -> Result<(), LabError> {
        let copy = self.state_of(at).join("fleet.json");
        self.wait_for("the proxy's copy on its disk", COPY, |_| {
            let written = std::fs::metadata(&copy).and_then(|file| file.modified());
            Ok(written.is_ok_and(|written| written >= started))
        })?;
        // What was told last is on its way to the disk.
        thread::sleep(Duration::from_secs(1));
        Ok(())
    }

    /// Waits until a handshake of this client at proxy `at` brings a session, or does not. Returns how long that took.
    ///
    /// # Errors
    /// When it does not come to that.
    pub fn wait_for_handshake(
        &self,
        at: usize,
        host: usize,
        client: u32,
        granted: bool,
    ) -> Result<Duration, LabError> {
        const PATIENCE: Duration = Duration::from_millis(300);
        let begun = Instant::now();
        let mut last = Duration::ZERO;
        self.wait_for("a proxy to follow the registry", SOON, |fleet| {
            last = begun.elapsed();
            let took = fleet.handshakes(at, host, [client], PATIENCE)?;
            Ok(took.is_empty() != granted)
        })?;
        Ok(last)
    }

    /// The public key of a proxy.
    fn key_of(&self, at: usize) -> Result<PublicKey, LabError> {
        let file = self.folder.path().join(format!("{}.key", self.proxies[at].name));
        let text = std::fs::read_to_string(&file)
            .map_err(LabError::io(format!("reading {}", file.display())))?;
        let malformed = |_| LabError::Malformed { what: "a key", text: "44 characters".into() };
        text.parse::<PrivateKey>().map(|key| key.public_key()).map_err(malformed)
    }
}

/// How long the answer took, if it is a session.
fn answered(
    socket: &UdpSocket,
    mut attempt: Initiator,
    patience: Duration,
) -> io::Result<Option<Duration>> {
    let begun = Instant::now();
    socket.send(attempt.message())?;
    let mut buffer = [0; ANSWER_BYTES];
    while let Some(left) = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left))?;
        // Nothing came in time, or nobody listens: the next look at the time ends it.
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        match attempt.handle_answer(&buffer[..length]) {
            Ok(Answer::Established(_)) => return Ok(Some(begun.elapsed())),
            // It is refused, or told to ask otherwise.
            Ok(_) => return Ok(None),
            // That was the answer to another one.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// How a client is called.
pub fn name(number: u32) -> String {
    format!("client-{number}")
}

/// The key of a client; of most of them as good as drawn.
fn key(number: u32) -> PublicKey {
    if number <= WITH_KEYS {
        return secret(number).public();
    }
    let mut bytes = [0; 32];
    StdRng::seed_from_u64(number.into()).fill_bytes(&mut bytes);
    PublicKey::from_bytes(bytes)
}

/// The private key of one that has one.
fn secret(number: u32) -> StaticSecret {
    StaticSecret::generate(&mut StdRng::seed_from_u64(number.into()))
}

/// Writes a list, between a beginning and an end, an entry at a time: there may be a million.
fn write(
    file: &Path,
    (begin, end): (&str, &str),
    entries: impl Iterator<Item = Value>,
) -> Result<(), LabError> {
    let write = || -> io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        out.write_all(begin.as_bytes())?;
        for (at, entry) in entries.enumerate() {
            let comma: &[u8] = if at == 0 { b"" } else { b"," };
            out.write_all(comma)?;
            serde_json::to_writer(&mut out, &entry)?;
        }
        out.write_all(end.as_bytes())?;
        out.flush()
    };
    write().map_err(LabError::io(format!("writing {}", file.display())))
}
