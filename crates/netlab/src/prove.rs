//! Acceptance on the real kernel with the real daemons: each proof builds its network, does what it
//! is about, and says what it measured beside what must be.
//!
//! `rw-netlab prove` runs them at full length; the tests of the program run the same functions in
//! short ([`Trial::short`]). A proof that cannot run (a missing tool, a daemon that does not start) is an
//! error; one whose figures are not as they must be has findings that are not `ok`.

pub mod finding;

use std::path::Path;
use std::time::Duration;

pub use self::finding::Finding;
use crate::error::LabError;

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
pub const PROOFS: &[Proof] = &[];

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
    /// Tells what goes on.
    pub fn say(&self, line: impl AsRef<str>) {
        (self.say)(line.as_ref());
    }

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

/// Runs a proof in short and fails the test where a finding is not as it must be.
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
