//! What client and proxy configure alike: the tunnel itself (`[tunnel]`) and the control socket
//! (`[control]`). Both directions of a tunnel are the same machine, so each end has the same knobs for
//! what it sends (scheduler, controller, queue) and for what it receives (resequencer).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::error::ConfigError;
use super::scheduler::{
    BatcpSettings, Direction, LinkTerms, NatalieSettings, SafireSettings, Scheduler, Scheduling,
    SchedulingError,
};
use super::source::Source;
use super::value::{Parsed, absolute, in_range};

/// How a tunnel sends and receives.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelConfig {
    /// Which link takes the next packet, and what decides it.
    pub scheduling: Scheduling,
    /// How many datagrams may be in flight on a link.
    pub controller: Controller,
    /// What happens to a packet when no link has room.
    pub when_closed: WhenClosed,
    /// Age of the keys at which new ones are agreed.
    pub rekey_after: Duration,
    /// Whether inner congestion marks are copied out (RFC 6040). Outer ones are always combined at the exit.
    pub ecn: bool,
    /// Which cipher is offered.
    pub cipher: Cipher,
    /// How packets are put back in order.
    pub resequencer: ResequencerConfig,
    /// What is left to the kernel.
    pub offload: OffloadConfig,
}

/// Work that the kernel can do for many packets at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadConfig {
    /// Packets of a flow cross the TUN joined (TSO, USO).
    pub tun: Switch,
    /// Datagrams are sent in trains (`UDP_SEGMENT`).
    pub udp_gso: Switch,
    /// Datagrams are received in trains (`UDP_GRO`).
    pub udp_gro: Switch,
}

/// Whether an offload is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Where it works.
    #[default]
    Auto,
    /// Always: the daemon does not start where it does not work.
    On,
    /// Never.
    Off,
}

/// How many datagrams may be in flight on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Controller {
    /// TCP-like congestion control (RFC 4341).
    #[default]
    Ccid2,
    /// Always this many: a baseline, and for links of known capacity.
    Fixed {
        /// Window in datagrams.
        window: u32,
    },
}

/// What happens to a packet when no link has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenClosed {
    /// It waits at most this long, then it is dropped.
    Queue(Duration),
    /// It is dropped at once.
    Drop,
}

/// Which cipher is offered for the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cipher {
    /// AES-256-GCM where both processors have instructions for it, else ChaCha20-Poly1305.
    #[default]
    Auto,
    /// Always AES-256-GCM.
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// Always ChaCha20-Poly1305.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

/// How packets are put back in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResequencerConfig {
    /// Whether they are; if not, each is delivered as it comes.
    pub enabled: bool,
    /// Longest time a packet waits for those before it.
    pub max_wait: Duration,
    /// Most bytes held.
    pub buffer_bytes: u64,
    /// What the first two deadlines in a row release.
    pub release: Release,
}

/// What a missed deadline releases besides the packet that waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Also those that follow it without a gap.
    #[default]
    Drain,
    /// Only that one.
    One,
}

/// The socket on which a daemon answers `ropewalk status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// Its file.
    pub socket: PathBuf,
    /// The group whose members may use it besides root and the daemon's own user.
    pub group: Option<String>,
    /// Where the page and the numbers for Prometheus are served over TCP: an address of the loopback interface.
    pub web: Option<SocketAddr>,
}

/// Window of the fixed controller where none is said: 32 datagrams of 1400 bytes are 45 kB, which is
/// 8 Mbit/s at a round-trip time of 45 ms.
const DEFAULT_FIXED_WINDOW: u32 = 32;

/// The core remembers at most so many datagrams of a link in flight.
const MAX_FIXED_WINDOW: u32 = 32_768;

/// Longest wait of a packet for a link: beyond it, a queue only adds delay (bufferbloat).
const MAX_QUEUE: Duration = Duration::from_millis(100);

/// Least queue: shorter is `when_closed = "drop"`.
const MIN_QUEUE: Duration = Duration::from_millis(1);

/// WireGuard's REKEY_AFTER_TIME.
const DEFAULT_REKEY: Duration = Duration::from_secs(120);

/// More than one handshake a second is only load.
const MIN_REKEY: Duration = Duration::from_secs(1);

/// Forward secrecy should not be older than an hour.
const MAX_REKEY: Duration = Duration::from_secs(3600);

/// Cap of the resequencing deadline: what an application notices as a stall.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// Below it, timers decide more than links do.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// 250 Mbit/s over 500 ms are 16 MiB.
const DEFAULT_BUFFER: ByteSize = ByteSize::mib(16);

/// Fewer than 40 full packets hold back no link.
const MIN_BUFFER: ByteSize = ByteSize::kib(64);

/// 4 Gbit/s over 500 ms; a proxy has one of these for each client.
const MAX_BUFFER: ByteSize = ByteSize::mib(256);

impl Default for TunnelConfig {
    fn default() -> Self {
        Self {
            scheduling: Scheduling::default(),
            controller: Controller::default(),
            when_closed: WhenClosed::default(),
            rekey_after: DEFAULT_REKEY,
            ecn: true,
            cipher: Cipher::default(),
            resequencer: ResequencerConfig::default(),
            offload: OffloadConfig::default(),
        }
    }
}

impl Default for WhenClosed {
    fn default() -> Self {
        Self::Queue(MAX_QUEUE)
    }
}

impl Default for ResequencerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_wait: MAX_WAIT,
            buffer_bytes: DEFAULT_BUFFER.as_u64(),
            release: Release::default(),
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ccid2 => f.write_str("ccid2"),
            Self::Fixed { window } => write!(f, "fixed ({window})"),
        }
    }
}

impl fmt::Display for WhenClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(most) => write!(f, "queue {}", humantime::format_duration(*most)),
            Self::Drop => f.write_str("drop"),
        }
    }
}

/// `[tunnel]` as it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelFile {
    scheduler: Scheduler,
    natalie: NatalieSettings,
    batcp: BatcpSettings,
    safire: Option<Spanned<SafireSettings>>,
    link: BTreeMap<String, Spanned<LinkTerms>>,
    controller: ControllerName,
    fixed_window: Option<Spanned<i64>>,
    when_closed: WhenClosedName,
    queue: Option<Spanned<Parsed<Duration>>>,
    rekey_after: Option<Spanned<Parsed<Duration>>>,
    ecn: Option<bool>,
    cipher: Cipher,
    tun_offload: Switch,
    udp_gso: Switch,
    udp_gro: Switch,
    resequencer: ResequencerFile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ControllerName {
    #[default]
    Ccid2,
    Fixed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WhenClosedName {
    #[default]
    Queue,
    Drop,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ResequencerFile {
    enabled: Option<Spanned<bool>>,
    max_wait: Option<Spanned<Parsed<Duration>>>,
    buffer: Option<Spanned<Parsed<ByteSize>>>,
    release: Option<Release>,
}

/// `[control]` as it stands in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlFile {
    socket: Option<Spanned<PathBuf>>,
    group: Option<Spanned<String>>,
    web: Option<Spanned<String>>,
}

impl TunnelFile {
    /// What the section means.
    ///
    /// # Errors
    /// A value out of its bounds, or one that has no meaning beside another.
    pub fn resolve(&self, source: &Source) -> Result<TunnelConfig, ConfigError> {
        Ok(TunnelConfig {
            scheduling: self.scheduling(source)?,
            controller: self.controller(source)?,
            when_closed: self.when_closed(source)?,
            rekey_after: bounded(
                source,
                self.rekey_after.as_ref(),
                DEFAULT_REKEY,
                MIN_REKEY,
                MAX_REKEY,
            )?,
            ecn: self.ecn.unwrap_or(true),
            cipher: self.cipher,
            resequencer: self.resequencer.resolve(source)?,
            offload: OffloadConfig {
                tun: self.tun_offload,
                udp_gso: self.udp_gso,
                udp_gro: self.udp_gro,
            },
        })
    }

    fn scheduling(&self, source: &Source) -> Result<Scheduling, ConfigError> {
        let terms =
            |(name, terms): (&String, &Spanned<LinkTerms>)| (name.clone(), terms.get_ref().clone());
        let scheduling = Scheduling {
            scheduler: self.scheduler,
            natalie: self.natalie,
            batcp: self.batcp,
            safire: self.safire.as_ref().map(|safire| safire.get_ref().clone()).unwrap_or_default(),
            terms: self.link.iter().map(terms).collect(),
        };
        scheduling.check().map_err(|error| self.located(source, &error))?;
        Ok(scheduling)
    }

    /// Whether what was resolved fits these links, where they are all that there can be, at the end that `sends` this
    /// way.
    ///
    /// # Errors
    /// A name that is no link's, or no link carries what this end sends.
    pub fn check_links(
        &self,
        source: &Source,
        resolved: &Scheduling,
        links: &[&str],
        sends: Direction,
    ) -> Result<(), ConfigError> {
        let named = resolved.check_links(links);
        let checked = named.and_then(|()| resolved.check_carries(links, sends));
        checked.map_err(|error| self.located(source, &error))
    }

    /// The error where it stands in the file.
    fn located(&self, source: &Source, error: &SchedulingError) -> ConfigError {
        let link = error.place.strip_prefix("link ").and_then(|name| self.link.get(name));
        let safire = self.safire.as_ref().filter(|_| error.place == "safire");
        let first = self.link.values().next();
        let spans = [link.map(Spanned::span), safire.map(Spanned::span), first.map(Spanned::span)];
        match spans.into_iter().flatten().next() {
            Some(span) => source.error(span, &error.to_string()),
            None => source.error_of_file(error.to_string()),
        }
    }

    fn controller(&self, source: &Source) -> Result<Controller, ConfigError> {
        match (&self.controller, &self.fixed_window) {
            (ControllerName::Ccid2, None) => Ok(Controller::Ccid2),
            (ControllerName::Fixed, None) => Ok(Controller::Fixed { window: DEFAULT_FIXED_WINDOW }),
            (ControllerName::Ccid2, Some(window)) => Err(source
                .error(window.span(), "`fixed_window` has no meaning with controller = \"ccid2\"")
                .with_help("write controller = \"fixed\", or remove it")),
            (ControllerName::Fixed, Some(window)) => match u32::try_from(*window.get_ref()) {
                Ok(datagrams) if (1..=MAX_FIXED_WINDOW).contains(&datagrams) => {
                    Ok(Controller::Fixed { window: datagrams })
                }
                _ => Err(source.error(
                    window.span(),
                    &format!("{} is outside 1 to {MAX_FIXED_WINDOW} datagrams", window.get_ref()),
                )),
            },
        }
    }

    fn when_closed(&self, source: &Source) -> Result<WhenClosed, ConfigError> {
        match (&self.when_closed, &self.queue) {
            (WhenClosedName::Drop, Some(queue)) => Err(source
                .error(queue.span(), "`queue` has no meaning with when_closed = \"drop\"")
                .with_help("write when_closed = \"queue\", or remove it")),
            (WhenClosedName::Drop, None) => Ok(WhenClosed::Drop),
            (WhenClosedName::Queue, queue) => {
                bounded(source, queue.as_ref(), MAX_QUEUE, MIN_QUEUE, MAX_QUEUE)
                    .map(WhenClosed::Queue)
            }
        }
    }
}

impl ResequencerFile {
    fn resolve(&self, source: &Source) -> Result<ResequencerConfig, ConfigError> {
        let buffer_bytes = match &self.buffer {
            None => DEFAULT_BUFFER.as_u64(),
            Some(size) if (MIN_BUFFER..=MAX_BUFFER).contains(&size.get_ref().0) => {
                size.get_ref().0.as_u64()
            }
            Some(size) => {
                let size_text = size.get_ref().0;
                let message = format!("{size_text} is outside {MIN_BUFFER} to {MAX_BUFFER}");
                return Err(source.error(size.span(), &message));
            }
        };
        let enabled = self.enabled.as_ref().is_none_or(|enabled| *enabled.get_ref());
        let idle = self.max_wait.is_some() || self.buffer.is_some() || self.release.is_some();
        if let Some(off) = self.enabled.as_ref().filter(|_| !enabled && idle) {
            return Err(source
                .error(off.span(), "without a resequencer its other settings have no meaning")
                .with_help("write enabled = true, or remove them"));
        }
        let max_wait = bounded(source, self.max_wait.as_ref(), MAX_WAIT, MIN_WAIT, MAX_WAIT)?;
        let release = self.release.unwrap_or_default();
        Ok(ResequencerConfig { enabled, max_wait, buffer_bytes, release })
    }
}

impl ControlFile {
    /// What the section means; `default` is the role's own socket.
    ///
    /// # Errors
    /// A relative path, an empty group, or an address that others than this machine reach.
    pub fn resolve(&self, source: &Source, default: &str) -> Result<ControlConfig, ConfigError> {
        let socket = match &self.socket {
            None => PathBuf::from(default),
            Some(path) => {
                absolute(path.get_ref()).map_err(|message| source.error(path.span(), &message))?;
                path.get_ref().clone()
            }
        };
        let group = match &self.group {
            Some(group) if group.get_ref().is_empty() || group.get_ref().contains('\0') => {
                return Err(source.error(group.span(), "this is not the name of a group"));
            }
            group => group.as_ref().map(|group| group.get_ref().clone()),
        };
        let web = self.web.as_ref().map(|text| web_address(source, text)).transpose()?;
        Ok(ControlConfig { socket, group, web })
    }
}

/// Where the page is served: for programs of this machine only, since whoever can connect may read it.
fn web_address(source: &Source, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
    let wrong = |message: &str, help: &str| Err(source.error(text.span(), message).with_help(help));
    match text.get_ref().parse::<SocketAddr>() {
        Err(_) => wrong(
            "this is no address with a port",
            "write one of this machine's own, such as \"127.0.0.1:9586\" or \"[::1]:9586\"",
        ),
        Ok(address) if !address.ip().is_loopback() => wrong(
            "the page and the numbers are for this machine only: other machines could read them here without a password",
            "write \"127.0.0.1:9586\", and from elsewhere use `ssh -L 9586:127.0.0.1:9586 HOST`, or a web server of \
             yours that asks for a password in front of it",
        ),
        Ok(address) if address.port() == 0 => wrong(
            "port 0 would be another one at each start",
            "write a port, such as \"127.0.0.1:9586\"",
        ),
        Ok(address) => Ok(address),
    }
}

/// A duration of the file within its bounds, or the default.
fn bounded(
    source: &Source,
    value: Option<&Spanned<Parsed<Duration>>>,
    default: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, ConfigError> {
    match value {
        None => Ok(default),
        Some(value) => in_range(value.get_ref().0, least, most)
            .map_err(|message| source.error(value.span(), &message)),
    }
}
