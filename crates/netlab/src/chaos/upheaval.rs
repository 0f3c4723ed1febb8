//! What is done to a tunnel in use: the kinds of upheaval, what each may cost, and how a run draws them.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;
use serde::Serialize;

/// A kind of upheaval.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is described by `what`, which people read too")]
pub enum Kind {
    KillClient,
    KillProxy,
    PauseClient,
    PauseProxy,
    FirewallClient,
    FirewallProxy,
    TunClient,
    TunProxy,
    RoutesClient,
    RoutesProxy,
    Address,
    Rename,
    Interface,
    StormClient,
    StormProxy,
    DiskFull,
    DiskReadOnly,
    FilesClient,
    FilesProxy,
    Clock,
    Move,
    Rebind,
    Loss,
    Cut,
}

/// A calm lasts at least this long, and what has no longer bound of its own is whole within it.
pub const CALM: Duration = Duration::from_secs(5);

/// The client looks for the proxy again when it was silent for 10 s (docs/OPERATIONS.md); then it asks the name server, and
/// shakes hands over links that it asks in turn.
const MOVED: Duration = Duration::from_secs(20);

/// A firewall that changes all the time, and routes that the proxy itself makes and takes back, are looked at every 10 s
/// (docs/OPERATIONS.md), and our own table that was put back a moment ago is such a change.
const FIREWALL: Duration = Duration::from_secs(12);

/// The same, and connections that are begun after it: their first packets left without a translation, and they are tried again.
const TRANSLATED: Duration = Duration::from_secs(15);

/// A client that could not open a socket tries again after 5 s.
const REOPENED: Duration = Duration::from_secs(10);

/// The proxy looks at its host again 10 s after a look that failed (it may have found the TUN missing), or on news.
const LOOKED_AGAIN: Duration = Duration::from_secs(12);

impl Kind {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::KillClient,
        Self::KillProxy,
        Self::PauseClient,
        Self::PauseProxy,
        Self::FirewallClient,
        Self::FirewallProxy,
        Self::TunClient,
        Self::TunProxy,
        Self::RoutesClient,
        Self::RoutesProxy,
        Self::Address,
        Self::Rename,
        Self::Interface,
        Self::StormClient,
        Self::StormProxy,
        Self::DiskFull,
        Self::DiskReadOnly,
        Self::FilesClient,
        Self::FilesProxy,
        Self::Clock,
        Self::Move,
        Self::Rebind,
        Self::Loss,
        Self::Cut,
    ];

    /// Its name on the command line and in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KillClient => "kill-client",
            Self::KillProxy => "kill-proxy",
            Self::PauseClient => "pause-client",
            Self::PauseProxy => "pause-proxy",
            Self::FirewallClient => "firewall-client",
            Self::FirewallProxy => "firewall-proxy",
            Self::TunClient => "tun-client",
            Self::TunProxy => "tun-proxy",
            Self::RoutesClient => "routes-client",
            Self::RoutesProxy => "routes-proxy",
            Self::Address => "address",
            Self::Rename => "rename",
            Self::Interface => "interface",
            Self::StormClient => "storm-client",
            Self::StormProxy => "storm-proxy",
            Self::DiskFull => "disk-full",
            Self::DiskReadOnly => "disk-read-only",
            Self::FilesClient => "files-client",
            Self::FilesProxy => "files-proxy",
            Self::Clock => "clock",
            Self::Move => "move",
            Self::Rebind => "rebind",
            Self::Loss => "loss",
            Self::Cut => "cut",
        }
    }

    /// What is done.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::KillClient => "kill -9 of the client, started again 2 s later, as its unit says",
            Self::KillProxy => "kill -9 of the proxy, started again 2 s later (its unit waits 1 s)",
            Self::PauseClient => "SIGSTOP of the client, then SIGCONT",
            Self::PauseProxy => "SIGSTOP of the proxy, then SIGCONT",
            Self::FirewallClient => "`nft flush ruleset` at the client, or its table deleted",
            Self::FirewallProxy => "`nft flush ruleset` at the proxy, or its table deleted",
            Self::TunClient => "the client's TUN deleted",
            Self::TunProxy => "the proxy's TUN deleted",
            Self::RoutesClient => "all routes and rules of the client removed",
            Self::RoutesProxy => "all routes of the proxy removed",
            Self::Address => "another address for a link, and the first one again",
            Self::Rename => "a link's interface renamed, and back",
            Self::Interface => "a link's interface down, and up",
            Self::StormClient => "hundreds of interfaces and addresses come and go at the client",
            Self::StormProxy => "hundreds of interfaces and addresses come and go at the proxy",
            Self::DiskFull => "both disks of state full",
            Self::DiskReadOnly => "both disks of state read-only",
            Self::FilesClient => "no more file descriptors for the client, while a link goes down",
            Self::FilesProxy => {
                "no more file descriptors for the proxy, while an invitation is asked for"
            }
            Self::Clock => {
                "kill -9 of the client, started again with the clocks since boot far away"
            }
            Self::Move => "the proxy moves to another address, and its name with it",
            Self::Rebind => {
                "a NAT forgets all flows and gives other ports, perhaps another address"
            }
            Self::Loss => "a burst of losses on a link",
            Self::Cut => "a link cut without a word, or all of them",
        }
    }

    /// Whether connections may end by it: who is killed takes with it what it had acknowledged (docs/TCP.md), and who takes the
    /// proxy's firewall or its address away takes the translation of the open connections away.
    #[must_use]
    pub const fn may_end_connections(self) -> bool {
        matches!(
            self,
            Self::KillClient | Self::KillProxy | Self::Clock | Self::FirewallProxy | Self::Move
        )
    }

    /// Whether a daemon stands still in it.
    pub(super) const fn pauses(self) -> bool {
        matches!(self, Self::PauseClient | Self::PauseProxy)
    }

    /// Within which time all is to be as before.
    #[must_use]
    pub const fn bound(self) -> Duration {
        match self {
            Self::Move => MOVED,
            Self::FirewallClient | Self::RoutesProxy => FIREWALL,
            Self::FirewallProxy => TRANSLATED,
            Self::FilesClient => REOPENED,
            Self::TunProxy => LOOKED_AGAIN,
            _ => CALM,
        }
    }

    /// The shortest and the longest time that it lasts, in milliseconds.
    const fn lasts_ms(self) -> (u64, u64) {
        match self {
            // What systemd waits for a client (`RestartSec=` of its unit), and longer than for a proxy.
            Self::KillClient | Self::KillProxy | Self::Clock => (2000, 2000),
            Self::TunClient | Self::TunProxy | Self::FirewallClient | Self::FirewallProxy => (0, 0),
            Self::RoutesClient | Self::RoutesProxy | Self::Move => (0, 0),
            _ => (200, 3000),
        }
    }
}

/// One that was drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Upheaval {
    /// Its kind.
    pub(super) kind: Kind,
    /// The link that it is about, if it is about one.
    pub(super) wan: u8,
    /// Chooses among its variants.
    pub(super) variant: u32,
    /// How long it lasts.
    pub(super) lasts: Duration,
}

/// Draws upheavals so that each kind has its turn before one comes again.
#[derive(Debug)]
pub(super) struct Deck<R> {
    rng: R,
    kinds: Vec<Kind>,
    left: Vec<Kind>,
    wans: u8,
}

impl<R: Rng> Deck<R> {
    /// A deck of these kinds, for a client with so many links.
    pub(super) const fn new(rng: R, kinds: Vec<Kind>, wans: u8) -> Self {
        Self { rng, kinds, left: Vec::new(), wans }
    }

    /// What comes next, all at once: one upheaval, every fourth time two or three.
    pub(super) fn draw(&mut self) -> Vec<Upheaval> {
        let count = match self.rng.random_range(0..16) {
            0..12 => 1,
            12..15 => 2,
            _ => 3,
        };
        let first = self.rng.random_range(0..self.wans);
        let mut drawn: Vec<Upheaval> = Vec::new();
        for place in 0..count {
            let kind = self.next_kind();
            if drawn.iter().any(|other| other.kind == kind) {
                // A deck that began again.
                self.left.push(kind);
                break;
            }
            let (least, most) = kind.lasts_ms();
            drawn.push(Upheaval {
                kind,
                // Two that are about a link are not about the same.
                wan: (first + place) % self.wans,
                variant: self.rng.random(),
                lasts: Duration::from_millis(self.rng.random_range(least..=most)),
            });
        }
        drawn
    }

    /// How long the tunnel is left alone before the next.
    pub(super) fn pause(&mut self) -> Duration {
        Duration::from_millis(self.rng.random_range(0..1500))
    }

    fn next_kind(&mut self) -> Kind {
        if self.left.is_empty() {
            self.left.clone_from(&self.kinds);
            self.left.shuffle(&mut self.rng);
        }
        self.left.pop().unwrap_or(Kind::Cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use std::collections::BTreeMap;

    fn deck(seed: u64) -> Deck<StdRng> {
        Deck::new(StdRng::seed_from_u64(seed), Kind::ALL.to_vec(), 3)
    }

    #[test]
    fn every_kind_has_its_turn_before_one_comes_again() {
        let mut deck = deck(7);
        let mut done = BTreeMap::<Kind, usize>::new();
        for _ in 0..200 {
            let drawn = deck.draw();
            assert!((1..=3).contains(&drawn.len()));
            for upheaval in drawn {
                assert!(upheaval.wan < 3 && upheaval.lasts <= Duration::from_secs(3));
                *done.entry(upheaval.kind).or_default() += 1;
            }
        }
        let (least, most) = (done.values().min(), done.values().max());
        assert_eq!(done.len(), Kind::ALL.len());
        // One put back by a deck that began again may come twice in it.
        assert!(most.unwrap() - least.unwrap() <= 2, "{done:?}");
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let drawn = |seed| {
            let mut deck = deck(seed);
            (0..50).map(|_| (deck.pause(), deck.draw())).collect::<Vec<_>>()
        };
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(3), drawn(4));
    }

    #[test]
    fn names_are_different_and_those_that_are_serialised() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert!(kind.bound() >= CALM, "{}", kind.name());
        }
    }
}
