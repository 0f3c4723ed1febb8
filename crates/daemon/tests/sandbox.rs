//! What a process that has entered the sandbox can still do, and what not: tried, one by one.
//!
//! It is entered for good, so a process of its own tries each set: this program, started again for one test.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use ropewalk_control::api::{Role, SandboxState, SandboxStatus};
use ropewalk_control::config::ControlConfig;
use ropewalk_daemon::sandbox::{self, Needs};
use ropewalk_daemon::{file, service};
use ropewalk_settings::Sandbox;

/// Where a test that was started again finds its folder.
const FOLDER: &str = "ROPEWALK_SANDBOX_TEST";

/// Runs `body` in a process of its own, with a folder to work in.
fn alone(test: &str, body: impl FnOnce(&Path)) {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return body(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output =
        again.args([test, "--exact", "--nocapture"]).env(FOLDER, folder.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.contains("test result: ok. 1 passed"),
        "{told}\n{errors}"
    );
}

/// A daemon's files: `own` holds its config, `state` what survives it, `run` its socket; `other` is somebody else's.
fn needs(folder: &Path) -> Needs {
    for name in ["own", "other"] {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("file"), name).unwrap();
    }
    fs::write(folder.join("other/named.key"), "named").unwrap();
    fs::write(
        folder.join("own/daemon.toml"),
        "private_key_file = \"../other/named.key\"\n[[peer]]\n",
    )
    .unwrap();
    let control = ControlConfig { socket: folder.join("run/daemon.sock"), group: None, web: None };
    let mut needs = Needs::common(Role::Client, &folder.join("own/daemon.toml"), &control);
    needs.keep_in(&folder.join("state"), 0o700);
    // Nothing in it is of this machine.
    needs.programs = vec!["nft", "true"];
    needs
}

/// Enters all of it. Returns false, and says so, where this kernel has not all.
fn enter(needs: &Needs) -> bool {
    // Asks for its version (`landlock_create_ruleset(2)`): the sixth refuses all that is tried here.
    let files =
        call(libc::SYS_landlock_create_ruleset, &[0, 0, 1]).is_ok_and(|version| version >= 6);
    let calls = fs::read_to_string("/proc/self/status").unwrap().contains("\nSeccomp:");
    sandbox::enter(Sandbox::default(), needs);
    let status = sandbox::status().unwrap();
    if files && calls {
        assert!(status.is_whole(), "{status}");
        return true;
    }
    assert!(std::env::var_os("ROPEWALK_NETLAB_REQUIRED").is_none(), "{status}");
    drop(writeln!(io::stderr(), "skipped: this kernel has not all of the sandbox: {status}"));
    false
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn files_that_are_needed_are_open_and_all_others_closed() {
    alone("files_that_are_needed_are_open_and_all_others_closed", |folder| {
        let at = |name: &str| folder.join(name);
        let needs = needs(folder);
        let abstract_name =
            SocketAddr::from_abstract_name(format!("rw-{}", std::process::id())).unwrap();
        let _outside = UnixListener::bind_addr(&abstract_name).unwrap();
        if !enter(&needs) {
            return;
        }

        let write = |path: PathBuf| OpenOptions::new().write(true).open(path).map(drop);
        let list = |path: &str| fs::read_dir(path).map(drop);
        let run = |program: &str| {
            let mut command = Command::new(program);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .status()
                .map(|status| assert!(status.success()))
        };
        let open: Vec<(&str, io::Result<()>)> = vec![
            ("the config", fs::read(at("own/daemon.toml")).map(drop)),
            ("a file beside it", fs::read(at("own/file")).map(drop)),
            ("a new config", file::replace(&at("own/daemon.toml"), b"new")),
            ("a used invitation removed", fs::remove_file(at("own/file"))),
            ("a key that the config names", fs::read(at("other/named.key")).map(drop)),
            ("state written", file::replace(&at("state/leases.json"), b"new")),
            (
                "state in a folder of its own",
                file::replace(&at("state/more/counters.json"), b"new"),
            ),
            ("state read", fs::read(at("state/leases.json")).map(drop)),
            ("what a kill left of it swept", file::sweep(&at("state/leases.json"))),
            ("state aside", fs::rename(at("state/leases.json"), at("state/aside"))),
            ("the control socket", UnixListener::bind(at("run/daemon.sock")).map(drop)),
            (
                "an answer there",
                UnixStream::connect(at("run/daemon.sock")).map(drop).or_else(refused),
            ),
            ("its end", fs::remove_file(at("run/daemon.sock"))),
            ("counters of interfaces", fs::read("/proc/thread-self/net/dev").map(drop)),
            (
                "a setting of the kernel",
                fs::read("/proc/sys/net/ipv4/conf/all/rp_filter").map(drop),
            ),
            ("nothing", write("/dev/null".into())),
            ("a program that was named", run("true")),
            ("a thread", thread::Builder::new().spawn(|| ()).map(|thread| thread.join().unwrap())),
            ("a runtime", service::runtime().map(drop).map_err(io::Error::other)),
        ];
        for (what, result) in open {
            assert!(result.is_ok(), "{what}: {result:?}");
        }
        if is_root() {
            let forwarding = "/proc/sys/net/ipv4/ip_forward";
            let now = fs::read(forwarding).unwrap();
            // A container's may be read-only.
            let written = fs::write(forwarding, now).map_err(|error| error.kind());
            assert_ne!(written, Err(io::ErrorKind::PermissionDenied));
        }

        let make = |name: &str| File::create_new(at(name)).map(drop);
        let program = at("state/program");
        let made = OpenOptions::new().write(true).create_new(true).mode(0o700).open(&program);
        made.and_then(|mut made| made.write_all(b"#!/bin/sh\n")).unwrap();
        let closed: Vec<(&str, io::Result<()>)> = vec![
            ("another's file", fs::read(at("other/file")).map(drop)),
            (
                "another's file, through a link",
                symlink(at("other/file"), at("state/link"))
                    .and_then(|()| fs::read(at("state/link")).map(drop)),
            ),
            ("another's file written", write(at("other/file"))),
            (
                "another's file cut",
                OpenOptions::new()
                    .append(true)
                    .open(at("other/file"))
                    .and_then(|file| file.set_len(0)),
            ),
            ("another's file removed", fs::remove_file(at("other/file"))),
            ("another's file taken", fs::rename(at("other/file"), at("state/file"))),
            ("a file put there", fs::rename(at("state/aside"), at("other/aside"))),
            ("a hard link to it", fs::hard_link(at("other/file"), at("state/hard"))),
            ("the named key written", write(at("other/named.key"))),
            ("a list of files", list(&at("other").display().to_string())),
            ("a list of all files", list("/")),
            ("programs", list("/usr/bin")),
            ("a new file elsewhere", make("new")),
            ("a new folder elsewhere", fs::create_dir(at("folder"))),
            ("a file for all", File::create_new(std::env::temp_dir().join("rw-sandbox")).map(drop)),
            (
                "a kernel setting of other things",
                fs::read("/proc/sys/kernel/core_pattern").map(drop),
            ),
            ("what another process was started with", fs::read("/proc/1/environ").map(drop)),
            ("another process", fs::read("/proc/1/status").map(drop)),
            ("a disk", list("/dev")),
            ("the machine's devices", list("/sys")),
            ("logs and mail", list("/var")),
            ("a shell", run("/bin/sh")),
            ("a program of its own", run(&program.display().to_string())),
            (
                "an abstract socket of another process",
                UnixStream::connect_addr(&abstract_name).map(drop),
            ),
        ];
        for (what, result) in closed {
            let kind = result.as_ref().err().map(io::Error::kind);
            // A second name elsewhere is refused as one on another disk is.
            let refused = [io::ErrorKind::PermissionDenied, io::ErrorKind::CrossesDevices];
            assert!(kind.is_some_and(|kind| refused.contains(&kind)), "{what}: {result:?}");
        }
        // Who is outside.
        let parent = call(libc::SYS_kill, &[call(libc::SYS_getppid, &[]).unwrap(), 0]);
        assert_eq!(parent, Err(Errno::EPERM), "a signal");
    });
}

/// Nobody listens any more: it was asked all the same.
fn refused(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::ConnectionRefused { Ok(()) } else { Err(error) }
}

/// A system call that does nothing with these arguments, whatever it answers.
#[expect(
    unsafe_code,
    reason = "calls that nobody else makes; none is given an address that is valid"
)]
fn call(number: i64, arguments: &[i64]) -> Result<i64, Errno> {
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(0);
    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(argument);
    // SAFETY: null is no address that anything is read from or written to.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e) })
}

/// No descriptor.
const NONE: i64 = -1;

/// What is refused whatever its arguments are.
const DANGEROUS: &[(&str, i64, &[i64])] = &[
    ("acct", libc::SYS_acct, &[1]),
    ("add_key", libc::SYS_add_key, &[]),
    ("adjtimex", libc::SYS_adjtimex, &[]),
    ("bpf", libc::SYS_bpf, &[]),
    ("capset", libc::SYS_capset, &[]),
    ("chroot", libc::SYS_chroot, &[]),
    ("clock_settime", libc::SYS_clock_settime, &[]),
    ("delete_module", libc::SYS_delete_module, &[]),
    ("execveat", libc::SYS_execveat, &[NONE]),
    ("fanotify_init", libc::SYS_fanotify_init, &[]),
    ("finit_module", libc::SYS_finit_module, &[NONE]),
    ("fsopen", libc::SYS_fsopen, &[]),
    ("init_module", libc::SYS_init_module, &[]),
    ("io_uring_enter", libc::SYS_io_uring_enter, &[NONE]),
    ("io_uring_register", libc::SYS_io_uring_register, &[NONE]),
    ("io_uring_setup", libc::SYS_io_uring_setup, &[]),
    ("kcmp", libc::SYS_kcmp, &[]),
    ("kexec_file_load", libc::SYS_kexec_file_load, &[NONE, NONE]),
    ("kexec_load", libc::SYS_kexec_load, &[0, 1]),
    ("keyctl", libc::SYS_keyctl, &[]),
    ("memfd_create", libc::SYS_memfd_create, &[]),
    ("mount", libc::SYS_mount, &[]),
    ("mount_setattr", libc::SYS_mount_setattr, &[NONE]),
    ("move_mount", libc::SYS_move_mount, &[NONE]),
    ("mknodat", libc::SYS_mknodat, &[NONE]),
    ("name_to_handle_at", libc::SYS_name_to_handle_at, &[NONE]),
    ("open_by_handle_at", libc::SYS_open_by_handle_at, &[NONE]),
    ("open_tree", libc::SYS_open_tree, &[NONE]),
    ("perf_event_open", libc::SYS_perf_event_open, &[]),
    ("personality", libc::SYS_personality, &[0xffff_ffff]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, &[NONE]),
    ("pivot_root", libc::SYS_pivot_root, &[]),
    ("process_vm_readv", libc::SYS_process_vm_readv, &[]),
    ("process_vm_writev", libc::SYS_process_vm_writev, &[]),
    ("ptrace", libc::SYS_ptrace, &[NONE]),
    ("quotactl", libc::SYS_quotactl, &[]),
    ("reboot", libc::SYS_reboot, &[]),
    ("request_key", libc::SYS_request_key, &[]),
    ("setdomainname", libc::SYS_setdomainname, &[0, 1]),
    ("setgid", libc::SYS_setgid, &[NONE]),
    ("setgroups", libc::SYS_setgroups, &[NONE]),
    ("sethostname", libc::SYS_sethostname, &[0, 1]),
    ("setns", libc::SYS_setns, &[NONE]),
    ("setpriority", libc::SYS_setpriority, &[NONE]),
    ("setrlimit", libc::SYS_setrlimit, &[NONE]),
    ("setuid", libc::SYS_setuid, &[NONE]),
    ("settimeofday", libc::SYS_settimeofday, &[1, 1]),
    ("swapoff", libc::SYS_swapoff, &[]),
    ("swapon", libc::SYS_swapon, &[]),
    ("syslog", libc::SYS_syslog, &[NONE]),
    ("umount2", libc::SYS_umount2, &[]),
    ("unshare", libc::SYS_unshare, &[]),
    ("userfaultfd", libc::SYS_userfaultfd, &[NONE]),
    ("vhangup", libc::SYS_vhangup, &[]),
];

/// Of these nobody is refused by anything else: a process may do that with itself.
const ANYBODYS: [&str; 5] = ["execveat", "memfd_create", "personality", "unshare", "setuid"];

#[test]
fn dangerous_system_calls_are_refused_and_arguments_are_looked_at() {
    alone("dangerous_system_calls_are_refused_and_arguments_are_looked_at", |folder| {
        for (name, number, arguments) in DANGEROUS {
            if ANYBODYS.contains(name) {
                assert_ne!(call(*number, arguments), Err(Errno::EPERM), "{name}, before");
            }
        }
        let needs = needs(folder);
        if !enter(&needs) {
            return;
        }
        for (name, number, arguments) in DANGEROUS {
            assert_eq!(call(*number, arguments), Err(Errno::EPERM), "{name}");
        }
        assert_eq!(
            call(libc::SYS_clone3, &[]),
            Err(Errno::ENOSYS),
            "so that libraries use the older one"
        );
        assert_eq!(call(500, &[]), Err(Errno::EPERM), "one that nobody knows yet");

        let number = |value: i32| i64::from(value);
        let socket = |family: i32, kind: i32| (libc::SYS_socket, [number(family), number(kind), 0]);
        let shaped = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (write, execute) = (libc::PROT_WRITE, libc::PROT_EXEC);
        // What, the call, whether it passes the filter: it may fail then, but not so.
        let table = [
            ("UDP", socket(libc::AF_INET, libc::SOCK_DGRAM | shaped), true),
            ("UDP over IPv6", socket(libc::AF_INET6, libc::SOCK_DGRAM), true),
            ("TCP", socket(libc::AF_INET, libc::SOCK_STREAM | shaped), true),
            ("netlink", socket(libc::AF_NETLINK, libc::SOCK_RAW | shaped), true),
            ("a local socket", socket(libc::AF_UNIX, libc::SOCK_STREAM), true),
            ("raw packets", socket(libc::AF_INET, libc::SOCK_RAW), false),
            ("raw packets, shaped", socket(libc::AF_INET6, libc::SOCK_RAW | shaped), false),
            ("frames", socket(libc::AF_PACKET, libc::SOCK_RAW), false),
            ("Bluetooth", socket(libc::AF_BLUETOOTH, libc::SOCK_RAW), false),
            ("the kernel's ciphers", socket(libc::AF_ALG, libc::SOCK_SEQPACKET), false),
            ("a virtual machine's host", socket(libc::AF_VSOCK, libc::SOCK_STREAM), false),
            ("a user namespace", (libc::SYS_clone, [number(libc::CLONE_NEWUSER), 0, 0]), false),
            ("a network namespace", (libc::SYS_clone, [number(libc::CLONE_NEWNET), 0, 0]), false),
            ("memory to write", (libc::SYS_mmap, [0, 0, number(write)]), true),
            ("memory to execute", (libc::SYS_mmap, [0, 0, number(execute)]), true),
            ("memory for both", (libc::SYS_mmap, [0, 0, number(write | execute)]), false),
            ("memory closed", (libc::SYS_mprotect, [0, 0, 0]), true),
            ("memory made executable", (libc::SYS_mprotect, [0, 0, number(execute)]), false),
            ("a question to a file", (libc::SYS_ioctl, [NONE, 0x541b, 0]), true),
            ("typing", (libc::SYS_ioctl, [NONE, 0x5412, 0]), false),
            ("typing, with other upper bits", (libc::SYS_ioctl, [NONE, 0x1_0000_5412, 0]), false),
            ("pasting", (libc::SYS_ioctl, [NONE, 0x541c, 0]), false),
            ("its own limits", (libc::SYS_prlimit64, [0, 0, 0]), true),
            ("other limits", (libc::SYS_prlimit64, [0, 0, 1]), false),
            ("core dumps again", (libc::SYS_prctl, [number(libc::PR_SET_DUMPABLE), 1, 0]), false),
            (
                "the end with its parent",
                (libc::SYS_prctl, [number(libc::PR_SET_PDEATHSIG), 0, 0]),
                true,
            ),
        ];
        for (what, (number, arguments), passes) in table {
            let answer = call(number, &arguments);
            assert_eq!(answer != Err(Errno::EPERM), passes, "{what}: {answer:?}");
        }
    });
}

#[test]
fn threads_and_programs_of_a_process_that_entered_are_in_it() {
    alone("threads_and_programs_of_a_process_that_entered_are_in_it", |folder| {
        let mut needs = needs(folder);
        needs.programs.push("cat");
        if !enter(&needs) {
            return;
        }
        let other = folder.join("other/file");
        let read = {
            let other = other.clone();
            thread::spawn(move || fs::read(other).map_err(|error| error.kind()))
        };
        assert_eq!(read.join().unwrap(), Err(io::ErrorKind::PermissionDenied));
        let output = Command::new("cat")
            .env("LC_ALL", "C")
            .arg(folder.join("own/file"))
            .arg(&other)
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"own");
        assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied"));
    });
}

#[test]
fn nothing_is_given_up_where_the_config_says_so() {
    alone("nothing_is_given_up_where_the_config_says_so", |folder| {
        let needs = needs(folder);
        sandbox::enter(Sandbox(false), &needs);
        let off = SandboxStatus { files: SandboxState::Off, system_calls: SandboxState::Off };
        assert_eq!(sandbox::status(), Some(off));
        assert_eq!(fs::read(folder.join("other/file")).unwrap(), b"other");
        assert_ne!(call(libc::SYS_unshare, &[]), Err(Errno::EPERM));
    });
}
