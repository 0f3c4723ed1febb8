//! `ropewalk doctor` on a real kernel: faults are planted one by one; each must be found, with the advice that fixes it, and
//! be gone when that advice was followed, word for word, or by `ropewalk doctor --fix`.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

mod client;
mod fixes;
mod proxy;
mod ward;

use std::process::Command;

use ward::PROGRAM;

#[test]
fn without_a_config_it_says_how_to_get_one_whoever_asks() {
    let table = [
        ("client", "sudo ropewalk join"),
        ("proxy", "sudo ropewalk proxy --config /nonexistent/x.toml"),
    ];
    for (role, command) in table {
        let arguments = ["doctor", "--config", "/nonexistent/x.toml", "--role", role];
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{out}{err}");
        assert!(out.contains("there is no /nonexistent/x.toml"), "{out}");
        assert!(out.contains(command), "{out}");
        assert!(err.contains("fail"), "{err}");
        for line in out.lines().filter(|line| !line.contains("sudo")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
