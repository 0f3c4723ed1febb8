//! System calls: what is not listed is refused with EPERM, by seccomp (`seccomp(2)`).
//!
//! The list is that of the daemons, of `nft` and of `resolvectl` (which inherit it), with glibc and with musl, so it has more than
//! one call for some things. Numbers that are always allowed cost next to nothing on Linux 5.11 and later: the kernel asks the
//! filter once what it says of a number whatever its arguments are, and never again. So all that carries packets is allowed without a look at
//! its arguments.

use std::collections::BTreeMap;

use nix::libc;
use ropewalk_control::api::SandboxState;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Refuses every system call that is not listed.
pub(super) fn enter() -> SandboxState {
    let entered = programs().map_err(seccompiler::Error::from).and_then(|programs| {
        programs.iter().try_for_each(|program| apply_filter_all_threads(program))
    });
    match entered {
        Ok(()) => SandboxState::On,
        Err(error) => {
            tracing::warn!(
                "system calls cannot be closed to this program (seccomp): {error}; the daemon goes on without"
            );
            SandboxState::Unavailable
        }
    }
}

/// The filters, in the order in which they are entered: the second one closes this door behind itself.
fn programs() -> Result<[BpfProgram; 2], BackendError> {
    // The flags of this call stand in memory, where a filter sees nothing. Whoever is told that it does not exist uses the older one.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let newer = SeccompFilter::new(newer, SeccompAction::Allow, unknown, this_machine()?)?;
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let allowed = SeccompFilter::new(listed()?, refused, SeccompAction::Allow, this_machine()?)?;
    Ok([newer.try_into()?, allowed.try_into()?])
}

fn this_machine() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

/// The rules of each call that is allowed: none means always, of several one must hold.
fn listed() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let always = [PACKETS, FILES, EVENTS, SOCKETS, MEMORY, TIME, PROCESSES, SIGNALS, OLD];
    let always = always.into_iter().flatten().map(|call| (*call, Vec::new()));
    Ok(always.chain(narrow()?).collect())
}

/// What carries packets.
const PACKETS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_epoll_pwait,
    libc::SYS_clock_gettime,
];

/// Files, within what Landlock leaves of them.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    RENAMEAT,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_getcwd,
];

/// Linux 6.6; the same number on all machines. The library does not name it on all of them.
const FCHMODAT2: i64 = 452;

/// `renameat`, which the library does not name on all machines.
#[cfg(target_arch = "x86_64")]
const RENAMEAT: i64 = libc::SYS_renameat;
/// `renameat`, which the library does not name on all machines.
#[cfg(not(target_arch = "x86_64"))]
const RENAMEAT: i64 = 38;

/// Waiting.
const EVENTS: &[i64] = &[
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4,
    libc::SYS_pipe2,
    // Control groups that begin and end.
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
];

/// Sockets, once they are made.
const SOCKETS: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Memory.
const MEMORY: &[i64] =
    &[libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk, libc::SYS_membarrier];

/// Clocks, and randomness.
const TIME: &[i64] = &[
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
];

/// Threads, the programs that are started, and questions about this process. Which programs, Landlock says.
const PROCESSES: &[i64] = &[
    libc::SYS_execve,
    // Left to the other filter.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getresuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_capget,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Signals, within what Landlock leaves of them.
const SIGNALS: &[i64] = &[
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
];

/// Older calls for the same things, which newer machines do not have.
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];
/// Older calls for the same things, which newer machines do not have.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getrlimit,
    libc::SYS_getpgrp,
    libc::SYS_time,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_arch_prctl,
];

/// The families of sockets that carry no raw packets: those of packets, and of the kernel's own answers.
const FAMILIES: [i32; 2] = [libc::AF_INET, libc::AF_INET6];

/// The kinds of sockets of those families.
const KINDS: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_DGRAM];

/// The bits of a socket's kind; the rest says how it behaves (`socket(2)`).
const KIND: u64 = 0xf;

/// Every namespace of its own (`clone(2)`).
const NAMESPACES: u64 = number(
    libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET,
);

/// `TIOCSTI` and `TIOCLINUX`, which type into the terminal of whoever started the daemon (`ioctl_tty(2)`).
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// What a process may ask and set of itself: names, its parent's death, and what is never given back.
const OF_ITSELF: [i32; 8] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_PDEATHSIG,
    libc::PR_GET_DUMPABLE,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_SECCOMP,
    libc::PR_SET_VMA,
];

/// The calls that are allowed with some arguments only.
fn narrow() -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let one = |argument, length, operator, value| rule(&[(argument, length, operator, value)]);
    let mut sockets = vec![family(libc::AF_UNIX)?, family(libc::AF_NETLINK)?];
    for family in FAMILIES {
        for kind in KINDS {
            let family = (0, Dword, Eq, number(family));
            sockets.push(rule(&[family, (1, Dword, MaskedEq(KIND), number(kind))])?);
        }
    }
    let execute = number(libc::PROT_EXEC);
    let write = number(libc::PROT_WRITE);
    let of_itself: Result<Vec<_>, _> =
        OF_ITSELF.into_iter().map(|what| one(0, Dword, Eq, number(what))).collect();
    Ok(vec![
        (libc::SYS_socket, sockets),
        (libc::SYS_socketpair, vec![family(libc::AF_UNIX)?]),
        // No namespace of its own.
        (libc::SYS_clone, vec![one(0, Qword, MaskedEq(NAMESPACES), 0)?]),
        // Nothing that is written is executed: not at once, and not later.
        (
            libc::SYS_mmap,
            vec![one(2, Dword, MaskedEq(execute), 0)?, one(2, Dword, MaskedEq(write), 0)?],
        ),
        (libc::SYS_mprotect, vec![one(2, Dword, MaskedEq(execute), 0)?]),
        (libc::SYS_ioctl, vec![rule(&TYPING.map(|request| (1, Dword, Ne, request)))?]),
        (libc::SYS_prctl, of_itself?),
        // Limits are asked for, and not set.
        (libc::SYS_prlimit64, vec![one(2, Qword, Eq, 0)?]),
    ])
}

/// A socket of this family, of any kind.
fn family(family: i32) -> Result<SeccompRule, BackendError> {
    rule(&[(0, Dword, Eq, number(family))])
}

/// All of these must hold: argument, how much of it counts, and how it is compared with what.
fn rule(
    conditions: &[(u8, SeccompCmpArgLen, SeccompCmpOp, u64)],
) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.iter().cloned().map(|(argument, length, operator, value)| {
        SeccompCondition::new(argument, length, operator, value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// A number of C's, of which none is negative here.
const fn number(value: i32) -> u64 {
    value.cast_unsigned() as u64
}
