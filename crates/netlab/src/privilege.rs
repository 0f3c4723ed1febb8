//! What the emulated network needs from machine and user: probed, and the missing need named with
//! its remedy.
//!
//! It runs as root. Without root it runs inside a user namespace: the program starts itself again
//! through `unshare --user --map-root-user --net --mount` with an empty tmpfs on `/run`, so that
//! names of namespaces and sockets there are its own and vanish with it. One need remains outside
//! of any namespace: the user must be able to open `/dev/net/tun`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::error::LabError;
use crate::namespace::{Namespace, next_number};
use crate::tool;

/// Set for a program that was started again inside a user namespace, so that it does so once.
const INSIDE: &str = "ROPEWALK_NETLAB_INSIDE";
/// Names a file to which every skipped test appends one line, for the count of `scripts/test`.
const SKIPPED_FILE: &str = "ROPEWALK_SKIPPED_FILE";
/// Set to `1` where a missing need is a failure and not a reason to skip.
const REQUIRED: &str = "ROPEWALK_NETLAB_REQUIRED";

/// What runs first inside the user namespace: `/run` becomes private, then the program starts. The
/// folder for namespace names is made by `ip` itself.
const PRIVATE_RUN: &str = r#"mount -t tmpfs -o mode=755 tmpfs /run && exec "$0" "$@""#;

/// The system tools used, and the Debian package that has each.
const TOOLS: [(&str, &str); 7] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("curl", "curl"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
];

/// A need that this machine or user does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What is lacking, as a sentence without a full stop.
    pub need: String,
    /// What the user can do about it: a command, or advice.
    pub remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; remedy: {}", self.need, self.remedy)
    }
}

impl Missing {
    fn new(need: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { need: need.into(), remedy: remedy.into() }
    }
}

/// Makes sure that this *program* can build networks: probes every need, and where it does not run
/// as root, replaces itself by itself inside a user namespace. To be called before any thread and
/// any output.
///
/// # Errors
/// [`LabError::Missing`] with the first need not met.
pub fn enter_lab() -> Result<(), LabError> {
    if is_root() {
        return probe_inside().map_err(LabError::Missing);
    }
    probe_outside().map_err(LabError::Missing)?;
    let program = std::env::current_exe().map_err(LabError::io("finding the own program"))?;
    let mut again = inside_command(&program);
    again.args(std::env::args_os().skip(1));
    // `exec` returns only when it failed.
    Err(LabError::Io { what: "starting `unshare`".into(), source: again.exec() })
}

/// Whether [`enter_lab`] can succeed, without doing it.
///
/// # Errors
/// [`LabError::Missing`] with the first need not met.
pub fn probe() -> Result<(), LabError> {
    if is_root() { probe_inside() } else { probe_outside() }.map_err(LabError::Missing)
}

/// Runs `body` as (part of) the test `name` (its full path, as the test harness prints it) where
/// networks can be built. As root at once; without root the test program is started again inside a
/// user namespace for this one test. Where a need is missing the reason is printed, and the test
/// counts as skipped, or fails where `ROPEWALK_NETLAB_REQUIRED=1`.
///
/// # Panics
/// When the test fails, or a need is missing that is required.
pub fn lab_test(name: &str, body: impl FnOnce()) {
    if !is_root() {
        return again_inside(name, |command| command);
    }
    match probe_inside() {
        Ok(()) => body(),
        Err(missing) => lacking(name, &missing.to_string()),
    }
}

/// As [`lab_test`], while no other such test of this program runs: for those that measure time. Tests of
/// different programs do not run beside each other.
///
/// # Panics
/// As [`lab_test`].
pub fn lab_test_alone(name: &str, body: impl FnOnce()) {
    // Held by the process that the test harness started: the one inside a user namespace has one test.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    lab_test(name, body);
}

/// Whether a tool is there that only some of the tests and proofs use: its name, and the Debian package that has it.
///
/// # Errors
/// [`Missing`], with the package.
pub fn require_tool((program, package): (&str, &str)) -> Result<(), Missing> {
    if tool::find(program).is_some() {
        return Ok(());
    }
    Err(Missing::new(format!("{program} is missing"), format!("`sudo apt-get install {package}`")))
}

/// Runs the test `name` of this program again, inside a user namespace, by a command that `prepare` may
/// change. Where that is not possible the test counts as skipped, or fails where
/// `ROPEWALK_NETLAB_REQUIRED=1`.
///
/// # Panics
/// When the test fails there, there is no such test, or a need is missing that is required.
#[expect(clippy::panic, clippy::print_stdout, reason = "this is the assertion of a test")]
pub fn again_inside(name: &str, prepare: impl FnOnce(&mut Command) -> &mut Command) {
    if let Err(missing) = probe_outside() {
        return lacking(name, &missing.to_string());
    }
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("own program: {error}"));
    let mut command = inside_command(&program);
    command.args([name, "--exact", "--nocapture", "--include-ignored"]).stderr(Stdio::inherit());
    let ran = prepare(&mut command)
        .output()
        .unwrap_or_else(|error| panic!("starting `unshare`: {error}"));
    let output = String::from_utf8_lossy(&ran.stdout);
    println!("{output}");
    assert!(ran.status.success(), "{name} inside a user namespace: {}", ran.status);
    assert!(output.contains("test result: ok. 1 passed"), "there is no test `{name}`");
}

/// Says that a test was skipped for want of something, or fails it where `ROPEWALK_NETLAB_REQUIRED=1`.
///
/// # Panics
/// Then.
#[expect(clippy::panic, reason = "this is the assertion of a test")]
pub fn lacking(name: &str, need: &str) {
    if std::env::var(REQUIRED).is_ok_and(|value| value == "1") {
        panic!("{name} needs: {need}");
    }
    skipped(name, need);
}

/// Says that a test was skipped, where the test harness does not hide it, in one line.
pub fn skipped(name: &str, reason: &str) {
    let line = skip_line(name, reason);
    // Not `eprintln!`, which the harness captures. A closed standard error loses only this remark.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os(SKIPPED_FILE) {
        let opened = OpenOptions::new().create(true).append(true).open(file);
        let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// One line, since lines are counted.
fn skip_line(name: &str, reason: &str) -> String {
    let reason: Vec<_> = reason.split_whitespace().collect();
    format!("skipped: {name}: {}\n", reason.join(" "))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn inside_command(program: &std::path::Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", PRIVATE_RUN])
        .arg(program)
        .env(INSIDE, "1");
    command
}

/// The needs that are the same inside and outside of a user namespace.
fn probe_common() -> Result<(), Missing> {
    let lacking: Vec<_> =
        TOOLS.iter().filter(|(program, _)| tool::find(program).is_none()).collect();
    if !lacking.is_empty() {
        let programs: Vec<_> = lacking.iter().map(|(program, _)| *program).collect();
        let mut packages: Vec<_> = lacking.iter().map(|(_, package)| *package).collect();
        packages.dedup();
        return Err(Missing::new(
            format!("missing programs: {}", programs.join(", ")),
            format!("`sudo apt-get install {}`", packages.join(" ")),
        ));
    }
    probe_tun(File::options().read(true).write(true).open("/dev/net/tun").map(drop))
}

/// Turns the outcome of opening `/dev/net/tun` into the need it shows.
fn probe_tun(opened: io::Result<()>) -> Result<(), Missing> {
    let Err(error) = opened else { return Ok(()) };
    Err(match error.kind() {
        io::ErrorKind::PermissionDenied => Missing::new(
            "/dev/net/tun is not openable by you",
            "`sudo chmod 666 /dev/net/tun` (the default of most distributions)",
        ),
        io::ErrorKind::NotFound => Missing::new(
            "/dev/net/tun does not exist",
            "`sudo modprobe tun`; in a container, start it with `--device /dev/net/tun`",
        ),
        _ => Missing::new(format!("/dev/net/tun does not open: {error}"), "`sudo modprobe tun`"),
    })
}

/// Whether an ordinary user can make a user namespace in which networks can be built.
fn probe_outside() -> Result<(), Missing> {
    probe_common()?;
    if std::env::var_os(INSIDE).is_some() {
        return Err(Missing::new("the user namespace gives no root", "run as root: `sudo`"));
    }
    let answer = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--mount", "sh", "-c", PRIVATE_RUN, "true"])
        .output();
    match answer {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(user_namespaces_refused(String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(user_namespaces_refused(&error.to_string())),
    }
}

/// Names the switch that forbids user namespaces, as far as it can be told.
fn user_namespaces_refused(reason: &str) -> Missing {
    let is = |file: &str, value: &str| {
        std::fs::read_to_string(format!("/proc/sys/{file}")).is_ok_and(|text| text.trim() == value)
    };
    let remedy = if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "`sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or run as root"
    } else if is("kernel/unprivileged_userns_clone", "0") {
        "`sudo sysctl kernel.unprivileged_userns_clone=1`, or run as root"
    } else if is("user/max_user_namespaces", "0") {
        "`sudo sysctl user.max_user_namespaces=10000`, or run as root"
    } else {
        "run as root: `sudo`"
    };
    Missing::new(format!("you cannot make a user namespace ({reason})"), remedy)
}

/// Whether root (real, or of a user namespace) can make namespaces, veth pairs and nft tables.
fn probe_inside() -> Result<(), Missing> {
    probe_common()?;
    let namespace = Namespace::create(next_number(), "probe").map_err(|error| {
        Missing::new(
            format!("network namespaces cannot be made ({error})"),
            "give root CAP_SYS_ADMIN and CAP_NET_ADMIN (in a container: `--privileged`)",
        )
    })?;
    namespace.ip("link add probe0 type veth peer name probe1").map_err(|error| {
        Missing::new(format!("veth interfaces cannot be made ({error})"), "`sudo modprobe veth`")
    })?;
    namespace
        .nft(
            "table inet probe { chain c { type nat hook postrouting priority 100; masquerade; }; }",
        )
        .map_err(|error| {
            Missing::new(
                format!("nftables cannot masquerade ({error})"),
                "`sudo modprobe -a nf_tables nft_masq nft_chain_nat`",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_one_line_whatever_the_reason() {
        let line = skip_line("tests::a_test", "unshare failed:\n  not permitted\n\nremedy: sudo\n");
        assert_eq!(line, "skipped: tests::a_test: unshare failed: not permitted remedy: sudo\n");
    }

    #[test]
    fn a_tun_that_does_not_open_is_named_with_its_remedy() {
        assert_eq!(probe_tun(Ok(())), Ok(()));
        for (kind, need, remedy) in [
            (io::ErrorKind::PermissionDenied, "not openable by you", "chmod 666 /dev/net/tun"),
            (io::ErrorKind::NotFound, "does not exist", "modprobe tun"),
            (io::ErrorKind::Other, "does not open", "modprobe tun"),
        ] {
            let missing = probe_tun(Err(kind.into())).unwrap_err();
            assert!(missing.need.contains(need), "{missing}");
            assert!(missing.remedy.contains(remedy), "{missing}");
        }
    }
}
