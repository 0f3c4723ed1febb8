//! Every knob of the core, with unit, default and reason. Values are valid by type; the daemons parse
//! text into them.

use arrayvec::{ArrayString, ArrayVec};
use wildmatch::WildMatch;

use crate::congestion::ControllerKind;
use crate::path::Path;
use crate::queue::QueueLimits;
use crate::reseq;
use crate::sched::{SchedulerConfig, Terms, WhenClosed};
use crate::time::Duration;
use crate::units::Bitrate;
use crate::wire::frame::{MAX_NAME, shortened};

/// Most links of one tunnel: more than any machine has, and a bound for every table by link.
pub const MAX_LINKS: usize = 16;

/// Most remote addresses tried for one link.
pub const MAX_PATHS: usize = 8;

/// How one end of a tunnel behaves. Both ends have their own: each governs its sending direction, and
/// its receiving resequencer.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// Which link carries a packet.
    pub scheduler: SchedulerConfig,
    /// What is said of links, by name or by a pattern of names; of others the default.
    pub terms: Vec<(String, Terms)>,
    /// How each link's window is found.
    pub controller: ControllerKind,
    /// What happens to a packet when all windows are closed.
    pub when_closed: WhenClosed,
    /// Bounds of the queue for [`WhenClosed::Queue`].
    pub queue: QueueLimits,
    /// Whether a packet's congestion mark is copied to its datagram (RFC 6040 §4.1, normal mode); if not, no
    /// datagram is ECN-capable (compatibility mode), for paths that drop those.
    pub ecn: bool,
    /// Whether small packets that leave at one moment for one link share a datagram (PROTOCOL §4).
    pub bundle: bool,
    /// Keys are replaced after this time if they were used. At least 1 s.
    pub rekey_after: Duration,
    /// The receiving side.
    pub reseq: reseq::Config,
    /// Largest outer IP packet tried by the path MTU search, in bytes.
    pub max_mtu: u16,
    /// Whether what this end delivers to completes partial checksums of TCP and UDP (a TUN with offload does), so that the
    /// peer may leave them.
    pub partial_checksums: bool,
}

impl TunnelConfig {
    /// What is said of the link of this name, of which the wire may carry only the beginning: under the name itself,
    /// else under the pattern (`*`, `?`) that leaves least open.
    #[must_use]
    pub fn terms_of(&self, link: &str) -> Terms {
        let exact = self.terms.iter().find(|(name, _)| shortened(name).as_str() == link);
        let patterns = || self.terms.iter().filter(|(name, _)| name.contains(['*', '?']));
        let meant = || patterns().filter(|(name, _)| WildMatch::new(name).matches(link));
        let literals =
            |(name, _): &&(String, Terms)| name.chars().filter(|c| !matches!(c, '*' | '?')).count();
        let told = exact.or_else(|| meant().max_by_key(literals));
        told.map_or_else(Terms::default, |(_, terms)| *terms)
    }

    /// How little a link is preferred where one is enough, as to ask for a session: a backup least, with BATCP the
    /// others by how much their price matters, else all alike. Below the paper's tenth for a preferred link nothing is
    /// told apart, so that a link of which nothing is said is as good as the best.
    #[must_use]
    pub fn reluctance(&self, link: &str, wishes: &Wishes) -> f64 {
        match self.scheduler {
            _ if wishes.backup => 2.0,
            SchedulerConfig::Batcp(_) => self.terms_of(link).importance.cost().max(0.1),
            _ => 0.0,
        }
    }
}

impl Default for TunnelConfig {
    fn default() -> Self {
        Self {
            scheduler: SchedulerConfig::default(),
            terms: Vec::new(),
            controller: ControllerKind::default(),
            when_closed: WhenClosed::default(),
            // 100 ms: longer only adds delay that the sender's TCP takes for path; 8 MiB bound the
            // memory at 640 Mbit/s.
            queue: QueueLimits { time: Duration::from_millis(100), bytes: 8 << 20 },
            ecn: true,
            bundle: true,
            // WireGuard's interval: a stolen key opens at most two minutes of traffic.
            rekey_after: Duration::from_secs(120),
            reseq: reseq::Config::default(),
            // Ethernet. Larger paths are rare, and a probe of 9,000 bytes is dear on a slow link.
            max_mtu: 1500,
            partial_checksums: false,
        }
    }
}

/// A link as the client wants it.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// For people: usually the interface's name.
    pub name: ArrayString<MAX_NAME>,
    /// Where the proxy may be reached over this interface, in order of preference; never empty.
    pub paths: ArrayVec<Path, MAX_PATHS>,
    /// How the NATs on this link are kept open.
    pub keepalive: Keepalive,
    /// Whether bytes cost money here: a dead metered link is probed less often.
    pub metered: bool,
    /// Largest outer IP packet, if the interface's own MTU is known.
    pub mtu: Option<u16>,
    /// What its owner wishes of it, at both ends.
    pub wishes: Wishes,
}

/// What the owner of a link wishes of it. The client tells the proxy, so that both directions obey.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wishes {
    /// It is kept back: it carries packets only when the others have failed or are full.
    pub backup: bool,
    /// Most that the client sends on it, at IP level; `None`: as much as it carries.
    pub most_up: Option<Bitrate>,
    /// The same of the proxy.
    pub most_down: Option<Bitrate>,
}

/// When an idle link says that it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keepalive {
    /// Never: for links without NAT or firewall.
    Off,
    /// After this much silence.
    Every(Duration),
    /// As seldom as the NAT allows (PROTOCOL §9).
    Auto,
}

impl Default for Keepalive {
    /// 15 s, as RFC 8445 §11 has it: the shortest UDP timeouts met in the field are 20 to 30 s.
    fn default() -> Self {
        Self::Every(Duration::from_secs(15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_the_terms_of_its_name_else_of_the_closest_pattern() {
        let terms = |weight| Terms { weight, ..Terms::default() };
        let config = TunnelConfig {
            terms: [("*", 2.0), ("wlan*", 3.0), ("wlan1", 4.0), ("a-name-of-twenty-one", 5.0)]
                .map(|(name, weight)| (name.to_owned(), terms(weight)))
                .into(),
            ..TunnelConfig::default()
        };
        let of = |name: &str| config.terms_of(name).weight;
        for (name, weight) in
            [("lte", 2.0), ("wlan0", 3.0), ("wlan1", 4.0), ("a-name-of-twent", 5.0)]
        {
            assert_eq!(of(name), weight, "{name}");
        }
        assert_eq!(TunnelConfig::default().terms_of("lte"), Terms::default());
    }
}
