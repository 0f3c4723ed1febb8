//! Runs on the kernel as a user starts them: refused with a remedy where they cannot be, stopped at any
//! moment, and leaving nothing behind.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::privilege::{lab_test, lacking};
use tempfile::TempDir;

const EXPERIMENT: &str = r#"
title = "A small one"
source = "this test"
shows = "that it is refused"
axis = "none"
traffic = ["udp"]
simulated = { runs = 1, seconds = 1 }
real = { runs = 1, seconds = 1 }
points = [{ label = "1", value = 1, links = [{ name = "a", both = { rate_mbit = 1 } }] }]
series = [{ name = "default" }]
"#;

/// In place of `ropewalk`: its daemons start and never answer, so that a run waits for them.
const PROGRAM: &str = "#!/bin/sh\ncase $1 in keygen) echo x | tee \"$2\"; exit;; status) exit 1;; esac\n\
                       while :; do echo alive; sleep 0.01; done\n";

/// A folder with an experiment, and a cargo that builds nothing and says that all is well.
struct Bed {
    folder: TempDir,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["scenarios", "tmp"] {
            fs::create_dir(bed.at(folder)).unwrap();
        }
        fs::write(bed.at("scenarios/tiny.toml"), EXPERIMENT).unwrap();
        bed.script("ropewalk", PROGRAM);
        fs::write(bed.at("ropewalk.d"), "ropewalk:\n").unwrap();
        let program = bed.at("ropewalk");
        let built = format!("{{\"target\":{{\"name\":\"ropewalk\"}},\"executable\":{program:?}}}");
        bed.script("cargo", &format!("#!/bin/sh\necho '{built}'\n"));
        bed
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// The runner behind `wrapper`.
    fn command(&self, wrapper: &[&str]) -> Command {
        let runner = env!("CARGO_BIN_EXE_ropewalk-benches");
        let words: Vec<&str> = wrapper.iter().copied().chain([runner]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["run", "tiny", "--real", "--scenarios"]);
        command.arg(self.at("scenarios")).arg("--out").arg(self.at("out"));
        command.env("CARGO", self.at("cargo")).env("CARGO_TARGET_DIR", self.at("target"));
        command.env("TMPDIR", self.at("tmp"));
        command
    }

    /// Starts a run and waits until its daemons do; returns what it has made.
    fn started(&self) -> (Child, Vec<PathBuf>) {
        let child = self.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begin = format!("ropewalk-lab-{}-", child.id());
        let lab = || listed(&self.at("tmp")).find(|path| has_name(path, &begin));
        let began = Instant::now();
        while !lab().is_some_and(|lab| lab.join("proxy.log").exists()) {
            assert!(began.elapsed() < Duration::from_secs(20), "no daemon was started");
            thread::sleep(Duration::from_millis(10));
        }
        let namespace = format!("rw{}-", child.id());
        let namespaces = listed(Path::new("/run/netns")).filter(|path| has_name(path, &namespace));
        let made: Vec<_> = lab().into_iter().chain(namespaces).collect();
        assert!(made.len() > 3, "{made:?}");
        (child, made)
    }
}

fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path())
}

fn has_name(path: &Path, begin: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a namespace with its own root can be had; else the test `name` is skipped, and that is said.
fn can_unshare(name: &str, options: &[&str]) -> bool {
    let tried = Command::new("unshare").args(options).arg("true").output();
    let reason = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => errors(&output),
        Err(error) => error.to_string(),
    };
    lacking(name, &format!("unshare {}: {reason}", options.join(" ")));
    false
}

#[test]
fn a_missing_tool_is_named_with_its_package() {
    const NAME: &str = "a_missing_tool_is_named_with_its_package";
    const OPTIONS: [&str; 3] = ["--user", "--map-root-user", "--mount"];
    if !can_unshare(NAME, &OPTIONS) {
        return;
    }
    // What is no file is no tool.
    let hide = "mount --bind /dev/null \"$(command -v curl)\" && exec \"$0\" \"$@\"";
    let wrapper: Vec<&str> =
        ["unshare"].into_iter().chain(OPTIONS).chain(["sh", "-c", hide]).collect();
    let bed = Bed::new();
    let refused = bed.command(&wrapper).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", errors(&refused));
    let expected = "missing programs: curl; remedy: `sudo apt-get install curl`";
    assert!(errors(&refused).contains(expected), "{}", errors(&refused));
    assert!(!bed.at("out").exists());
}

#[test]
fn a_missing_privilege_is_named_with_its_remedy() {
    const NAME: &str = "a_missing_privilege_is_named_with_its_remedy";
    if !can_unshare(NAME, &["--user", "--map-root-user"]) {
        return;
    }
    let drop = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
    let wrapper: Vec<&str> =
        ["unshare", "--user", "--map-root-user"].into_iter().chain(drop).collect();
    let refused = Bed::new().command(&wrapper).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", errors(&refused));
    assert!(errors(&refused).contains("; remedy: "), "{}", errors(&refused));
}

#[test]
fn a_program_that_does_not_build_is_no_figure() {
    lab_test("a_program_that_does_not_build_is_no_figure", || {
        let bed = Bed::new();
        bed.script("cargo", "#!/bin/sh\necho 'error: oh no' >&2\nexit 101\n");
        let refused = bed.command(&[]).output().unwrap();
        assert_eq!(refused.status.code(), Some(3));
        assert!(errors(&refused).contains("`ropewalk` does not build"), "{}", errors(&refused));
    });
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_and_a_signal_leaves_nothing() {
    const NAME: &str = "what_a_killed_run_left_is_removed_by_the_next_and_a_signal_leaves_nothing";
    lab_test(NAME, || {
        let bed = Bed::new();
        let (mut killed, left) = bed.started();
        killed.kill().unwrap();
        // Not waited for: a killed process that nobody has looked at yet is still listed.
        assert!(left.iter().all(|path| path.exists()), "{left:?}");
        killed.wait().unwrap();

        let (mut next, made) = bed.started();
        // Another test may be removing the same.
        let began = Instant::now();
        while left.iter().any(|path| path.exists()) {
            assert!(began.elapsed() < Duration::from_secs(10), "{left:?}");
            thread::sleep(Duration::from_millis(10));
        }
        let id = rustix::process::Pid::from_child(&next);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        assert_eq!(next.wait().unwrap().code(), Some(130));
        assert!(!made.iter().any(|path| path.exists()), "{made:?}");
        assert_eq!(listed(&bed.at("tmp")).count(), 0);
    });
}
