//! Speed tests of a client: what is wished, how far it came, and what was found.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a client is to test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedTestWish {
    /// The links, as the status names them; empty: all.
    #[serde(default)]
    pub links: Vec<String>,
    /// How long each phase takes, in seconds.
    pub seconds: u16,
    /// Whether what comes down is tested.
    pub down: bool,
    /// Whether what goes up is tested.
    pub up: bool,
    /// Most bytes of the whole test, on all links and both ways, with IP and UDP headers; `None`: no bound but that of each link.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Whether links on which bytes cost may be tested, too.
    #[serde(default)]
    pub metered: bool,
}

impl SpeedTestWish {
    /// How long a phase may take, seconds: long enough to find a rate, and no longer than a person waits.
    pub const SECONDS: std::ops::RangeInclusive<u16> = 3..=60;

    /// The least bound that makes sense, bytes: a phase of it finds some Mbit/s.
    pub const LEAST_BYTES: u64 = 1_000_000;

    /// Whether it can be done.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn check(&self) -> Result<(), String> {
        let (least, most) = (Self::SECONDS.start(), Self::SECONDS.end());
        if !Self::SECONDS.contains(&self.seconds) {
            return Err(format!("a phase takes {least} to {most} s, not {}", self.seconds));
        }
        if !(self.down || self.up) {
            return Err("neither down nor up is to be tested".to_owned());
        }
        if self.max_bytes.is_some_and(|bytes| bytes < Self::LEAST_BYTES) {
            return Err("with less than 1 MB nothing can be found".to_owned());
        }
        Ok(())
    }
}

/// A speed test, while it goes on and when it is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpeedTestReport {
    /// By which it is asked for again.
    pub id: u64,
    /// How far it came.
    pub state: SpeedTestState,
    /// Why it ended before its time, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The proxy that the links lead to.
    pub proxy: String,
    /// What is done now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SpeedPhaseProgress>,
    /// What was found of each link, in the order of the status.
    pub links: Vec<LinkSpeed>,
    /// What was found of all tested links at once, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<TogetherSpeed>,
    /// Test data that it cost, both ways, with IP and UDP headers.
    pub test_bytes: u64,
    /// What it means, in sentences; when it is over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<String>,
}

/// How far a speed test came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeedTestState {
    /// It goes on.
    #[default]
    Running,
    /// All was tested.
    Done,
    /// It ended before.
    Stopped,
}

/// What a speed test does now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpeedPhaseProgress {
    /// Which phase it is, from 1.
    pub number: usize,
    /// How many there are.
    pub of: usize,
    /// The link; `None`: all that are tested, at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Which way; `None`: round trips of idle links are measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<SpeedWay>,
    /// For how long.
    pub elapsed_s: f64,
    /// Of how long.
    pub of_s: f64,
    /// Bits per second of packets and test data, lately.
    pub rate_bps: f64,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeedWay {
    /// Proxy to client.
    Down,
    /// Client to proxy.
    Up,
}

impl SpeedWay {
    /// Both, in the order in which they are tested.
    pub const BOTH: [Self; 2] = [Self::Down, Self::Up];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// What was found of one link alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSpeed {
    /// Its name.
    pub name: String,
    /// Why it was not tested, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The round trip of half of the questions at most, while nothing of the test went.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_rtt_ms: Option<f64>,
    /// What comes down it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Speed>,
    /// What goes up it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Speed>,
    /// Test data on it, both ways, with IP and UDP headers.
    pub test_bytes: u64,
}

impl LinkSpeed {
    /// What was found this way.
    #[must_use]
    pub const fn way(&self, way: SpeedWay) -> Option<&Speed> {
        match way {
            SpeedWay::Down => self.down.as_ref(),
            SpeedWay::Up => self.up.as_ref(),
        }
    }
}

/// What was found one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Speed {
    /// Bits per second that packets have: test data and packets that went beside it, without the headers of the tunnel.
    pub rate_bps: f64,
    /// The same with all headers, at IP level: what a provider means.
    pub wire_bps: f64,
    /// What of `rate_bps` was packets, not test data.
    pub other_bps: f64,
    /// The round trip meanwhile that half of the questions did not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p50_ms: Option<f64>,
    /// The same of 95 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p95_ms: Option<f64>,
    /// The share of datagrams that were lost, from 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Seconds over which it was found: not those in which the rate was looked for.
    pub over_s: f64,
    /// Whether the data that was allowed was used up before the time.
    #[serde(default)]
    pub cut_short: bool,
}

/// What was found of all links at once: those that were tested, but for backups, which carry packets only when all others have failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TogetherSpeed {
    /// What comes down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<SumSpeed>,
    /// What goes up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<SumSpeed>,
}

impl TogetherSpeed {
    /// What was found this way.
    #[must_use]
    pub const fn way(&self, way: SpeedWay) -> Option<&SumSpeed> {
        match way {
            SpeedWay::Down => self.down.as_ref(),
            SpeedWay::Up => self.up.as_ref(),
        }
    }
}

/// All links at once, one way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SumSpeed {
    /// The sum of the links' rates; round trips and loss are those of the worst link.
    pub sum: Speed,
    /// What the same links had alone, bits per second.
    pub alone_bps: f64,
    /// Each link's part, by its name.
    pub by_link: BTreeMap<String, Speed>,
}
