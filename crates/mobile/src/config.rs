//! What the app says of a tunnel, as JSON: the proxies, and what it likes otherwise. The app keeps it; it holds no secret.

use std::collections::BTreeSet;

use ropewalk_control::invitation::Invitation;
use ropewalk_daemon::proxies::{KeptProxy, fleet_of, preference};
use ropewalk_proto::fleet::{FleetList, Preference};
use ropewalk_settings::{
    DEFAULT_TLS_PORT, HostPort, OneOrMany, Parsed, PublicKey, TlsUse, TunnelSection, TunnelSettings,
};
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

use crate::Error;

/// Bytes of the longest config: 64 proxies of a fleet with 8 addresses each are 40 KiB.
const MAX_BYTES: usize = 256 << 10;

/// Most proxies that a config names, and most addresses of each: as in a `client.toml`.
const MAX_PROXIES: usize = 4;
const MAX_ADDRESSES: usize = 16;

/// A config that makes sense.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The proxies of one operator, at least one. The first comes first where none answers.
    pub proxies: Vec<ProxyConfig>,
    /// Which of all that are known may be used.
    pub choose: Preference,
    /// The fleet, as its proxies told in an earlier run.
    pub fleet: FleetList,
    /// When networks go over TLS.
    pub tls: TlsUse,
    /// The TCP port at which proxies take them.
    pub tls_port: u16,
    /// How the tunnel sends and receives.
    pub tunnel: TunnelSettings,
    /// Which lines of the log are told.
    pub log: LogLevel,
}

/// One proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyConfig {
    /// Names or addresses, at least one; all are tried.
    pub addresses: Vec<HostPort>,
    /// Its public key.
    pub public_key: PublicKey,
}

/// How much of the log is told as events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What ends the tunnel.
    Error,
    /// What a person should know.
    Warn,
    /// What happens to the session and its links.
    #[default]
    Info,
    /// What a developer asks for.
    Debug,
    /// Every timer.
    Trace,
}

impl LogLevel {
    pub(crate) const fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    proxies: Vec<ProxyFile>,
    choose: Option<String>,
    #[serde(default)]
    fleet: Vec<KeptProxy>,
    #[serde(default)]
    tls: TlsUse,
    tls_port: Option<u16>,
    #[serde(default)]
    tunnel: TunnelSection,
    #[serde(default)]
    log: LogLevel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyFile {
    addresses: OneOrMany<HostPort>,
    public_key: Parsed<PublicKey>,
}

impl Config {
    /// Reads a config.
    ///
    /// # Errors
    /// It is not understood, or makes no sense.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let wrong = |problem: String| Error::Config(format!("the config: {problem}"));
        if text.len() > MAX_BYTES {
            return Err(wrong(format!("{} bytes; at most {MAX_BYTES} are possible", text.len())));
        }
        let file: ConfigFile =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let tunnel = file.tunnel.resolve().map_err(|error| wrong(format!("tunnel: {error}")))?;
        if let Some(name) = tunnel.scheduling.terms.keys().next() {
            let name = name.escape_debug();
            return Err(wrong(format!(
                "tunnel: link {name}: what is said of a network stands in what describes it, for both directions"
            )));
        }
        let tls_port = file.tls_port.unwrap_or(DEFAULT_TLS_PORT);
        if tls_port == 0 {
            return Err(wrong("tls_port: port 0 is no port".to_owned()));
        }
        let choose = file.choose.as_deref().map_or(Ok(Preference::Auto), preference);
        Ok(Self {
            proxies: proxies(file.proxies).map_err(wrong)?,
            choose: choose.map_err(|problem| wrong(format!("choose: {problem}")))?,
            fleet: fleet_of(&file.fleet).map_err(|problem| wrong(format!("fleet: {problem}")))?,
            tls: file.tls,
            tls_port,
            tunnel,
            log: file.log,
        })
    }

    /// Reads what the app gives: a config, an invitation, or both, which must be of the same proxy.
    pub(crate) fn of(config: Option<&str>, invitation: Option<&Invitation>) -> Result<Self, Error> {
        match (config, invitation) {
            (Some(text), None) => Self::from_json(text),
            (None, Some(invitation)) => Self::from_json(&written(invitation)?),
            (Some(text), Some(invitation)) => {
                let config = Self::from_json(text)?;
                let is_same = config.proxies[0].public_key == invitation.public_key;
                if is_same { Ok(config) } else { Err(Error::OtherProxy) }
            }
            (None, None) => {
                Err(Error::Argument("there is neither a config nor an invitation".to_owned()))
            }
        }
    }
}

fn proxies(files: Vec<ProxyFile>) -> Result<Vec<ProxyConfig>, String> {
    if !(1..=MAX_PROXIES).contains(&files.len()) {
        return Err(format!("{} proxies; 1 to {MAX_PROXIES} are possible", files.len()));
    }
    let mut keys = BTreeSet::new();
    let mut proxies = Vec::new();
    for ProxyFile { addresses: OneOrMany(addresses), public_key: Parsed(public_key) } in files {
        if !(1..=MAX_ADDRESSES).contains(&addresses.len()) {
            let count = addresses.len();
            return Err(format!(
                "a proxy has {count} addresses; 1 to {MAX_ADDRESSES} are possible"
            ));
        }
        if !keys.insert(public_key) {
            return Err("two proxies have the same public key".to_owned());
        }
        proxies.push(ProxyConfig { addresses, public_key });
    }
    Ok(proxies)
}

#[derive(Serialize)]
struct Written {
    proxies: Vec<WrittenProxy>,
}

#[derive(Serialize)]
struct WrittenProxy {
    addresses: Vec<String>,
    public_key: PublicKey,
}

/// The config of a client that joins by this invitation.
fn written(invitation: &Invitation) -> Result<String, Error> {
    let proxy = |addresses: &[HostPort], public_key| WrittenProxy {
        addresses: addresses.iter().map(ToString::to_string).collect(),
        public_key,
    };
    let first = proxy(&invitation.addresses, invitation.public_key);
    let others = invitation.others.iter().map(|other| proxy(&other.addresses, other.public_key));
    let written = Written { proxies: std::iter::once(first).chain(others).collect() };
    serde_json::to_string(&written).map_err(|error| Error::Internal(error.to_string()))
}

/// The config that an invitation means, for the app to keep. The secret of the invitation is not in it.
///
/// # Errors
/// It is none, or has expired.
pub fn config_of_invitation(line: &str) -> Result<String, Error> {
    written(&invitation(line)?)
}

/// Reads an invitation that still counts.
pub(crate) fn invitation(line: &str) -> Result<Invitation, Error> {
    let invitation: Invitation = line.parse()?;
    invitation.check_expiry(std::time::SystemTime::now())?;
    Ok(invitation)
}

#[cfg(test)]
mod tests {
    use ropewalk_control::invitation::InvitingProxy;
    use ropewalk_settings::{INVITATION_TOKEN_LEN, InvitationToken, SchedulerKind, Text as _};

    use super::*;
    use crate::Code;

    const KEY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
    const OTHER_KEY: &str = "s1FpzOKrXrjZGZ0lFOp2qoMdQ3R9B+/ei0Kkn+3HyTg=";

    fn with(more: &str) -> Result<Config, Error> {
        Config::from_json(&format!(
            r#"{{"proxies": [{{"addresses": ["203.0.113.2"], "public_key": "{KEY}"}}]{more}}}"#
        ))
    }

    fn invitation_of(key: &str, expires: u64) -> Invitation {
        let other = InvitingProxy {
            addresses: vec![HostPort::from_text("198.51.100.1:443").unwrap()],
            public_key: OTHER_KEY.parse().unwrap(),
        };
        Invitation {
            addresses: vec![HostPort::from_text("vps.example.org").unwrap()],
            public_key: key.parse().unwrap(),
            token: InvitationToken::from_bytes([7; INVITATION_TOKEN_LEN]),
            expires,
            others: vec![other],
        }
    }

    #[test]
    fn a_config_has_defaults_for_all_but_the_proxies() {
        let config = with("").unwrap();
        assert_eq!(config.proxies[0].addresses[0].to_string(), "203.0.113.2:51900");
        assert_eq!((&config.choose, config.log), (&Preference::Auto, LogLevel::Info));
        assert_eq!((config.tls, config.tls_port), (TlsUse::Auto, 443));
        assert_eq!(config.tunnel, TunnelSettings::default());
        let config = with(
            r#", "tunnel": {"scheduler": "round-robin"}, "log": "off", "choose": "eu", "tls": "never", "tls_port": 8443"#,
        );
        let config = config.unwrap();
        assert_eq!((config.tls, config.tls_port), (TlsUse::Never, 8443));
        assert_eq!(config.tunnel.scheduling.scheduler, SchedulerKind::RoundRobin);
        assert_eq!((config.choose, config.log), (Preference::Named("eu".into()), LogLevel::Off));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_sentence() {
        let zero = format!("{}=", "A".repeat(43));
        let same = format!(r#"{{"addresses": "192.0.2.1", "public_key": "{KEY}"}}"#);
        let table = [
            ("{".to_owned(), "EOF"),
            (r#"{"proxies": []}"#.to_owned(), "0 proxies"),
            (format!(r#"{{"proxies": [{same}, {same}]}}"#), "same public key"),
            (
                format!(r#"{{"proxies": [{{"addresses": [], "public_key": "{KEY}"}}]}}"#),
                "0 addresses",
            ),
            (
                format!(r#"{{"proxies": [{{"addresses": "a b", "public_key": "{KEY}"}}]}}"#),
                "is not a host",
            ),
            (
                format!(r#"{{"proxies": [{{"addresses": "vps", "public_key": "{zero}"}}]}}"#),
                "zeros",
            ),
            (" ".repeat(MAX_BYTES + 1), "bytes; at most"),
        ];
        for (text, expected) in table {
            let error = Config::from_json(&text).unwrap_err();
            assert!(error.to_string().contains(expected), "{expected}: {error}");
            assert_eq!(error.code(), Code::Config);
        }
        for (more, expected) in [
            (r#", "proxy": 1"#, "unknown field `proxy`"),
            (r#", "choose": """#, "choose: an empty name"),
            (r#", "tunnel": {"queue": "1h"}"#, "tunnel: "),
            (r#", "tunnel": {"link": {"lte": {"weight": 1}}}"#, "link lte: what is said"),
            (r#", "log": "loud""#, "unknown variant `loud`"),
            (r#", "tls": "sometimes""#, "unknown variant `sometimes`"),
            (r#", "tls_port": 0"#, "tls_port: port 0"),
        ] {
            let error = with(more).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn an_invitation_means_a_config_without_its_secret() {
        let line = invitation_of(KEY, u64::MAX >> 24).to_line();
        let text = config_of_invitation(&line).unwrap();
        let config = Config::from_json(&text).unwrap();
        let keys: Vec<_> = config.proxies.iter().map(|one| one.public_key.to_string()).collect();
        assert_eq!(keys, [KEY, OTHER_KEY]);
        assert_eq!(config.proxies[0].addresses[0].to_string(), "vps.example.org:51900");
        assert_eq!(text.matches("addresses").count(), 2, "{text}");
        let expired = config_of_invitation(&invitation_of(KEY, 1).to_line()).unwrap_err();
        assert_eq!(expired.code(), Code::Invitation, "{expired}");
    }

    #[test]
    fn a_config_and_an_invitation_are_of_the_same_proxy() {
        let invited = invitation_of(KEY, 1);
        let text = written(&invited).unwrap();
        assert!(Config::of(Some(&text), Some(&invited)).is_ok());
        assert_eq!(Config::of(None, Some(&invited)).unwrap(), Config::from_json(&text).unwrap());
        let other = Config::of(Some(&text), Some(&invitation_of(OTHER_KEY, 1))).unwrap_err();
        assert_eq!(other.code(), Code::Invitation);
        assert_eq!(Config::of(None, None).unwrap_err().code(), Code::Argument);
    }
}
