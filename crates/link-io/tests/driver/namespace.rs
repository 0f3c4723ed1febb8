//! A network namespace that lives as long as one thread.

use nix::sched::{CloneFlags, unshare};
use std::future::Future;
use std::process::Command;

/// Runs `test` on a current-thread runtime in a new network namespace whose loopback is up. Prints
/// why, and does nothing, where this is not possible.
pub(crate) fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        // Only this thread moves; processes that it starts follow it.
        if let Err(errno) = unshare(CloneFlags::CLONE_NEWNET) {
            println!("skipped: a new network namespace needs root (CAP_SYS_ADMIN): {errno}");
            return;
        }
        ip("link set lo up");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(test());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these arguments in the thread's namespace.
pub(crate) fn ip(arguments: &str) {
    run("ip", arguments);
}

/// Runs a program with these arguments in the thread's namespace and returns what it printed.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let output = Command::new(program)
        .args(arguments.split(' '))
        .output()
        .unwrap_or_else(|error| panic!("{program} {arguments}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
