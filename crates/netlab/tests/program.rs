//! The program `rw-netlab` as a user starts it: what a killed one leaves is removed, a signal takes
//! everything down, and it runs without root.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ropewalk_netlab::generate::summary::Summary;
use ropewalk_netlab::generate::{Direction, Draw, Kind};
use ropewalk_netlab::namespace::remove_stale;
use ropewalk_netlab::privilege::{lab_test, lab_test_alone, skipped};
use ropewalk_netlab::trace::Trace;
use ropewalk_netlab::unprivileged::Nobody;
use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rw-netlab");
/// Names the file to which the tests that measure nothing note when they run.
const NOTES: &str = "ROPEWALK_TEST_NOTES";

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    lab_test("what_a_killed_run_left_is_removed_by_the_next", || {
        let (mut killed, names) = topology_up();
        killed.kill().unwrap();
        // Not waited for: a killed process that nobody has looked at yet is still listed.
        assert!(exists(&names[0]), "{names:?}");
        killed.wait().unwrap();
        // A test beside this one may be removing the same names.
        remove_stale();
        let started = Instant::now();
        while names.iter().any(|name| exists(name)) {
            assert!(started.elapsed() < Duration::from_secs(10), "{names:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
}

#[test]
fn what_a_living_run_uses_is_not_removed() {
    lab_test("what_a_living_run_uses_is_not_removed", || {
        let (child, names) = topology_up();
        assert!(!remove_stale().iter().any(|name| names.contains(name)));
        assert!(names.iter().all(|name| exists(name)), "{names:?}");
        end(child, Signal::TERM);
    });
}

#[test]
fn signals_take_everything_down() {
    lab_test("signals_take_everything_down", || {
        for signal in [Signal::INT, Signal::TERM] {
            let (child, names) = topology_up();
            assert_eq!(names.len(), 6, "{names:?}");
            let code = end(child, signal);
            assert_eq!(code, Some(128 + signal.as_raw()));
            assert!(!names.iter().any(|name| exists(name)), "{names:?}");
        }
    });
}

#[test]
fn a_signal_removes_the_keys_and_logs_of_a_demo() {
    lab_test("a_signal_removes_the_keys_and_logs_of_a_demo", || {
        let folder = tempfile::tempdir().unwrap();
        // Its daemons start and never answer, so the demo waits for them.
        let daemon = folder.path().join("ropewalk");
        let script = "#!/bin/sh\ncase $1 in keygen) echo x | tee \"$2\"; exit;; status) exit 1;; esac\n\
                      while :; do echo alive; sleep 0.01; done\n";
        std::fs::write(&daemon, script).unwrap();
        std::fs::set_permissions(&daemon, PermissionsExt::from_mode(0o755)).unwrap();
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let child = Command::new(PROGRAM)
            .arg("demo")
            .arg("--program")
            .arg(&daemon)
            .env("TMPDIR", &temporary)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let found = || std::fs::read_dir(&temporary).unwrap().map_while(Result::ok).next();
        let started = Instant::now();
        while !found().is_some_and(|lab| lab.path().join("proxy.log").exists()) {
            assert!(started.elapsed() < Duration::from_secs(10), "no daemon was started");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(end(child, Signal::INT), Some(130));
        assert!(found().is_none(), "{:?}", found());
    });
}

#[test]
fn a_generated_link_is_written_and_described() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain.mm", "packed.mm.gz"] {
        let out = folder.path().join(name);
        let ran = Command::new(PROGRAM)
            .args(["generate", "hspa", "--seconds", "30", "--seed", "9", "--out"])
            .arg(&out)
            .output()
            .unwrap();
        let length = Duration::from_secs(30);
        let draw = Draw { seed: 9, link: "a", direction: Direction::Down, length };
        let trace = Kind::Hspa.generate(&draw).unwrap().trace;
        assert_eq!(Trace::open(&out).unwrap(), trace);
        let told = format!("mean {:.2} Mbit/s", Summary::of(&trace).mean_mbit);
        assert!(String::from_utf8_lossy(&ran.stdout).contains(&told), "{told}: {ran:?}");
    }
}

#[test]
fn a_user_without_root_can_build_and_use_it() {
    const NAME: &str = "a_user_without_root_can_build_and_use_it";
    let nobody = Nobody::prepare();
    let mut command = match &nobody {
        Ok(nobody) => nobody.command(&nobody.copy(Path::new(PROGRAM)).unwrap()),
        Err(error) if rustix::process::geteuid().is_root() => {
            return skipped(NAME, &error.to_string());
        }
        Err(_) => Command::new(PROGRAM),
    };
    let ran = command.arg("selftest").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (output, errors) = (text(&ran.stdout), text(&ran.stderr));
    if errors.contains("you cannot make a user namespace") {
        return skipped(NAME, &errors);
    }
    assert!(output.contains("NAT: the client is seen as 198.18.0.2:"), "{output}{errors}");
}

#[test]
fn tests_that_measure_time_run_one_by_one_without_root_too() {
    const NAME: &str = "tests_that_measure_time_run_one_by_one_without_root_too";
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let notes = folder.path().join("notes");
    std::fs::write(&notes, "").unwrap();
    std::fs::set_permissions(&notes, PermissionsExt::from_mode(0o666)).unwrap();
    let program = std::env::current_exe().unwrap();
    let nobody = Nobody::prepare();
    let mut tests = match &nobody {
        Ok(nobody) => nobody.command(&nobody.copy(&program).unwrap()),
        Err(error) if rustix::process::geteuid().is_root() => {
            return skipped(NAME, &error.to_string());
        }
        Err(_) => Command::new(&program),
    };
    let ran = tests
        .args(["measures_time_", "--test-threads", "2"])
        .env(NOTES, &notes)
        .env_remove("ROPEWALK_SKIPPED_FILE")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    if let Some(reason) = output.lines().find(|line| line.contains("cannot make a user namespace"))
    {
        return skipped(NAME, reason);
    }
    assert!(ran.status.success(), "{output}");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "in\nout\nin\nout\n", "{output}");
}

#[test]
fn measures_time_first() {
    note_alone("measures_time_first");
}

#[test]
fn measures_time_second() {
    note_alone("measures_time_second");
}

/// Notes begin and end of a measurement, for the test that asks for it.
fn note_alone(name: &str) {
    lab_test_alone(name, || {
        let Some(notes) = std::env::var_os(NOTES) else { return };
        let note = |what: &str| {
            let mut file = std::fs::File::options().append(true).open(&notes).unwrap();
            file.write_all(what.as_bytes()).unwrap();
        };
        note("in\n");
        // Longer than it takes to start the other one.
        std::thread::sleep(Duration::from_secs(1));
        note("out\n");
    });
}

#[test]
fn a_user_who_may_not_open_the_tun_is_told_the_remedy() {
    const NAME: &str = "a_user_who_may_not_open_the_tun_is_told_the_remedy";
    let mode = std::fs::metadata("/dev/net/tun").map(|tun| tun.permissions().mode() & 0o777);
    if !rustix::process::geteuid().is_root() || mode.unwrap_or(0o666) & 0o006 != 0 {
        return skipped(
            NAME,
            "everybody may open /dev/net/tun here, or nobody can be put in place",
        );
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let program = folder.path().join("rw-netlab");
    std::fs::copy(PROGRAM, &program).unwrap();
    let told = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .arg("selftest")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(!told.status.success() && errors.contains("sudo chmod 666 /dev/net/tun"), "{errors}");
}

/// Starts `rw-netlab topology` and waits until it is up; returns the names of its namespaces.
fn topology_up() -> (Child, Vec<String>) {
    let mut child = Command::new(PROGRAM)
        .args(["topology", "--no-shell"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut names = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        if line.starts_with("up ") {
            return (child, names);
        }
        names.push(line);
    }
    panic!("it ended early: {:?}", child.wait());
}

fn end(mut child: Child, signal: Signal) -> Option<i32> {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(20) {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("still running after {signal:?}");
}

fn exists(name: &str) -> bool {
    Path::new("/run/netns").join(name).exists()
}
