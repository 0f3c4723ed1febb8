//! First messages made by hand: what somebody with a key, a wrong key or another version asks a proxy,
//! and what comes back.

use std::net::{SocketAddr, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand::rngs::StdRng;
use ropewalk_proto::crypto::aead::{Cipher, CipherSet};
use ropewalk_proto::crypto::freshness::{RetryToken, Timestamp};
use ropewalk_proto::crypto::handshake::{Initiator, InitiatorConfig};
use ropewalk_proto::crypto::mac::HelloMac;
use ropewalk_proto::crypto::secret::StaticSecret;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::parameters::Parameters;
use ropewalk_proto::wire::hello::{Hello, set_mac};
use ropewalk_settings::{PresharedKey, PublicKey};

use crate::address::PROXY_V4;
use crate::deployment::{Deployment, PROXY_PORT};
use crate::error::LabError;

/// Where the proxy listens.
pub(super) const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(PROXY_V4), PROXY_PORT);

/// Where the version stands in a first message.
const VERSION_AT: usize = 1;

/// Someone who talks to the proxy without the program.
pub(super) struct Stranger {
    config: InitiatorConfig,
    rng: StdRng,
}

impl Stranger {
    /// With the key of the deployment's client `client`.
    pub(super) fn with_key_of(deployment: &mut Deployment, client: u8) -> Result<Self, LabError> {
        let file = deployment.folder().join(format!("client{client}.key"));
        let text = std::fs::read_to_string(&file)
            .map_err(LabError::io(format!("reading {}", file.display())))?;
        Self::new(StaticSecret::new(&key(&text)?), deployment)
    }

    /// With a key that nobody knows.
    pub(super) fn unknown(deployment: &mut Deployment, seed: u64) -> Result<Self, LabError> {
        let secret = StaticSecret::generate(&mut StdRng::seed_from_u64(seed));
        Self::new(secret, deployment)
    }

    fn new(local: StaticSecret, deployment: &mut Deployment) -> Result<Self, LabError> {
        let remote = &deployment.client_config(0)["proxy"]["public_key"];
        let remote = key::<PublicKey>(remote.as_str().unwrap_or_default())?;
        // The same messages in every run: nothing is kept secret by them.
        let rng = StdRng::from_seed(*local.public().as_bytes());
        let config = InitiatorConfig {
            local,
            remote,
            psk: PresharedKey::NONE,
            ciphers: CipherSet::only(Cipher::ChaCha20Poly1305),
            parameters: Parameters::default(),
        };
        Ok(Self { config, rng })
    }

    /// An attempt at a session by a clock that is behind by `behind`, with the answer to a retry.
    pub(super) fn attempt(&mut self, behind: Duration, token: Option<RetryToken>) -> Initiator {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Timestamp::from_unix(now.saturating_sub(behind));
        Initiator::new(&self.config, &mut self.rng, SessionIndex::new(0x51_0000), time, token)
    }

    /// The same question in another version, with a right mac.
    pub(super) fn in_version(&mut self, version: u8) -> Vec<u8> {
        let mut message = self.attempt(Duration::ZERO, None).message().to_vec();
        message[VERSION_AT] = version;
        let mac =
            Hello::parse(&message).map(|hello| HelloMac::new(&self.config.remote).first(&hello));
        if let Ok(mac) = mac {
            set_mac(&mut message, &mac);
        }
        message
    }
}

/// Sends a datagram to the proxy and collects what comes back within `within`.
pub(super) fn ask(
    socket: &UdpSocket,
    question: &[u8],
    within: Duration,
) -> Result<Vec<Vec<u8>>, LabError> {
    let failed = || LabError::io("asking the proxy by hand");
    socket.send_to(question, PROXY).map_err(failed())?;
    let started = Instant::now();
    let mut answers = Vec::new();
    let mut buffer = [0; 2048];
    while let Some(left) = within.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left)).map_err(failed())?;
        if let Ok((length, PROXY)) = socket.recv_from(&mut buffer) {
            answers.push(buffer[..length].to_vec());
        }
    }
    Ok(answers)
}

fn key<K: FromStr>(text: &str) -> Result<K, LabError> {
    let malformed = |_| LabError::Malformed { what: "a key", text: "44 characters".into() };
    text.parse().map_err(malformed)
}
