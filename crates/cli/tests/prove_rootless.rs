//! The daemons without root: in a user namespace of an ordinary user, with everything real.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};

use ropewalk_netlab::privilege::{again_inside, skipped};
use ropewalk_netlab::prove::assert_short;
use ropewalk_netlab::unprivileged::Nobody;

/// Names the program to a run of this test inside a user namespace.
const PROGRAM: &str = "ROPEWALK_TEST_PROGRAM";

#[test]
fn a_user_without_root_runs_the_tunnel() {
    const NAME: &str = "a_user_without_root_runs_the_tunnel";
    let program = std::env::var_os(PROGRAM).map(PathBuf::from);
    let built = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
    if !nix::unistd::geteuid().is_root() {
        let program = program.as_deref().unwrap_or(built);
        return again_inside(NAME, |command| command.env(PROGRAM, program));
    }
    if let Some(program) = program {
        return assert_short("both", &program);
    }
    let nobody = match Nobody::prepare() {
        Ok(nobody) => nobody,
        Err(error) => return skipped(NAME, &error.to_string()),
    };
    let program = nobody.copy(built).unwrap();
    let test = nobody.copy(&std::env::current_exe().unwrap()).unwrap();
    let mut again = nobody.command(&test);
    again.env(PROGRAM, program).args([NAME, "--exact", "--nocapture"]);
    // This one reports, where that one is skipped.
    again.env_remove("ROPEWALK_SKIPPED_FILE");
    let ran = again.output().unwrap();
    let output = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    if let Some(line) = output.lines().find(|line| line.contains("cannot make a user namespace")) {
        return skipped(NAME, line);
    }
    assert!(ran.status.success() && output.contains("IPv6 inside IPv6"), "{output}");
}
