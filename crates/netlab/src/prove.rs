//! Acceptance on the real kernel with the real daemons: each proof builds its network, does what it
//! is about, and says what it measured beside what must be.
//!
//! `rw-netlab prove` runs them at full length; the tests of the program run the same functions in
//! short ([`Trial::short`]). A proof that cannot run (a missing tool, a daemon that does not start) is an
//! error; one whose figures are not as they must be has findings that are not `ok`.

mod bad_input;
mod both;
mod conntrack;
pub(crate) mod crash;
mod cut;
mod demo;
pub mod finding;
mod fleet;
mod flips;
mod flood;
mod hostile_peer;
mod lan;
mod leak;
mod look;
mod metadata;
mod mtu;
mod nat_idle;
mod neighbour;
mod purge;
mod rebind;
mod rekey;
mod replay;
mod restart;
mod routes;
mod sandbox;
mod secrecy;
mod several;
mod single;
pub(crate) mod snapshot;
mod spoof;
mod stranger;
mod tls_link;
mod upload;

use std::path::Path;
use std::time::Duration;

pub use self::finding::Finding;
use ropewalk_settings::Bitrate;

use crate::access::Access;
use crate::demo::QUEUE;
use crate::download::Download;
use crate::emulator::Bound;
use crate::error::LabError;
use crate::http::body_sha256;
use crate::stage::{Progress, Stage};
use crate::topology::TopologyConfig;

/// A proof that can be run by its name.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows, as a sentence without a full stop.
    pub shows: &'static str,
    /// About how many seconds it takes at full length.
    pub seconds: u32,
    /// Runs it.
    pub run: fn(&Trial<'_>) -> Result<Vec<Finding>, LabError>,
}

/// Every proof, in the order in which they run.
pub const PROOFS: &[Proof] = &[
    demo::PROOF,
    single::PROOF,
    upload::PROOF,
    several::PROOF,
    tls_link::PROOF,
    cut::PROOF,
    restart::PROOF,
    rekey::PROOF,
    both::PROOF,
    nat_idle::IDLE,
    nat_idle::AUTO,
    rebind::REBIND,
    mtu::MTU,
    secrecy::CAPTURE,
    crash::CRASH,
    leak::LEAK,
    routes::ROUTES,
    lan::LAN,
    bad_input::BAD_INPUT,
    spoof::SPOOF,
    neighbour::NEIGHBOUR,
    metadata::METADATA,
    conntrack::CONNTRACK,
    flips::FLIPS,
    flood::FLOOD,
    hostile_peer::PROOF,
    replay::REPLAY,
    replay::RACE,
    purge::PURGE,
    sandbox::PROOF,
    fleet::DEMO,
    fleet::DEATH,
    fleet::DRAIN,
    fleet::REGISTRY,
    fleet::PARTITION,
    fleet::TROUBLE,
    fleet::TRAVEL,
    fleet::SCALE,
];

/// How a proof is to be run.
#[derive(Clone, Copy)]
pub struct Trial<'a> {
    /// The `ropewalk` to run.
    pub program: &'a Path,
    /// A few seconds for CI in place of the full length.
    pub short: bool,
    /// How often it is repeated, where the proof is about every run of several; the proof's own number
    /// where `None`.
    pub runs: Option<u32>,
    /// Is told what goes on, a line at a time.
    pub say: &'a dyn Fn(&str),
}

impl Trial<'_> {
    /// One of two values, by the length of the trial.
    #[must_use]
    pub fn either<T>(&self, full: T, short: T) -> T {
        if self.short { short } else { full }
    }

    /// The number of repetitions, `usual` unless told otherwise.
    #[must_use]
    pub fn runs_or(&self, usual: u32) -> u32 {
        self.runs.unwrap_or(usual).max(1)
    }
}

impl Progress for Trial<'_> {
    fn say(&self, what: &str) {
        (self.say)(what);
    }
}

impl Proof {
    /// The proof of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        PROOFS.iter().find(|proof| proof.name == name)
    }

    /// About how long it takes at full length.
    #[must_use]
    pub const fn time(&self) -> Duration {
        Duration::from_secs(self.seconds as u64)
    }
}

/// A client with these links (Mbit/s and round-trip milliseconds) and queues as in the demo.
fn network(links: &[(u32, u64)]) -> TopologyConfig {
    let access = |(mbps, rtt_ms): &(u32, u64)| {
        let rtt = Duration::from_millis(*rtt_ms);
        Access::symmetric(Bitrate::from_mbps((*mbps).into()), rtt, QUEUE).into()
    };
    TopologyConfig::new(links.iter().map(access).collect())
}

/// Whether a download arrived whole and unaltered.
fn arrived(what: impl Into<String>, download: &Download, bytes: u64, seed: u64) -> Finding {
    let whole = download.complete && download.sha256 == body_sha256(bytes, seed);
    let told = match (whole, download.complete) {
        (true, _) => "as sent".to_owned(),
        (false, true) => "ALTERED".to_owned(),
        (false, false) => format!("{} of {bytes} bytes: {}", download.bytes, download.message),
    };
    Finding::holds(what, whole, told, "sha256 as sent")
}

/// How late the emulator was. It never changes a rate, and what it adds counts against the tunnel, so
/// that it is told and not judged: a proof that holds on a late emulator holds.
fn lateness(stage: &Stage) -> Result<Finding, LabError> {
    let told = stage.void_because(&Bound::default())?.unwrap_or_else(|| "in time".to_owned());
    Ok(Finding::holds("the emulator", true, told, ""))
}

/// Runs a proof in short and fails the test where a finding is not as it must be. Proofs measure time, so
/// the test is one that runs alone ([`lab_test_alone`](crate::privilege::lab_test_alone)).
///
/// # Panics
/// Then, with every finding; and when the proof could not be run.
#[expect(clippy::panic, clippy::print_stdout, reason = "this is the assertion of a test")]
pub fn assert_short(name: &str, program: &Path) {
    let Some(proof) = Proof::named(name) else { panic!("there is no proof `{name}`") };
    let say = |line: &str| println!("-- {line}");
    let trial = Trial { program, short: true, runs: None, say: &say };
    match (proof.run)(&trial) {
        Ok(findings) => {
            let table = finding::table(&findings);
            println!("{table}");
            assert!(!findings.is_empty() && findings.iter().all(|f| f.ok), "{name}:\n{table}");
        }
        Err(error) => panic!("{name}: {error}"),
    }
}
