//! A test in a network namespace of its own.

use std::future::Future;
use std::process::Command;

use ropewalk_link_io::host::testing::Namespace;

/// Runs `test` on a current-thread runtime in a new network namespace whose loopback is up.
pub(crate) fn isolated<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    if let Some(namespace) = Namespace::open() {
        namespace.block_on(test);
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
