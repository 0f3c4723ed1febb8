//! Tab in zsh and fish themselves: subcommands, flags, and the names that a running daemon knows. (Bash: `cli.rs`.)

#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs;
use std::path::Path;
use std::process::Command;

use ropewalk_control::api::{Response, StatusReport};
use ropewalk_control::server::{Access, Options, Server};
use ropewalk_netlab::privilege::skipped;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// Types a line and Tab into an interactive zsh on a terminal of its own. What completion functions hand to `compadd` goes to a
/// file, and after it `END`, which the key Ctrl+X writes.
const ZSH: &str = r#"
folder=$1 line=$2 offers=$3
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($folder \$fpath); autoload -Uz compinit; compinit -u -D; LISTMAX=9999"
zpty -w shell "compadd() {
    local -a found
    # Calls with these flags only sort out words, and offer none.
    if [[ \" \$* \" != *' -'[OAD]' '* ]]; then
        builtin compadd -O found \"\$@\"
        print -rl -- \$found >>$offers
    fi
    builtin compadd \"\$@\"
}"
zpty -w shell "end() { print -r -- END >>$offers }; zle -N end; bindkey '^X' end; print rea''dy"
while zpty -r shell part; do seen+=$part; [[ $seen == *ready* ]] && break; done
zpty -w -n shell "$line"$'\t\x18'
for (( i = 0; i < 600; i++ )); do grep -qsx END $offers && break; sleep 0.05; done
zpty -d shell
"#;

/// What fish offers at the end of a line, without the descriptions.
const FISH: &str = r#"source $argv[1]/ropewalk.fish; complete -C $argv[2] | string split -f 1 \t"#;

#[test]
fn zsh_completes_subcommands_flags_and_the_names_that_the_daemon_knows() {
    completes("zsh", |folder, line| {
        let offers = folder.join("offers");
        let _ = fs::remove_file(&offers);
        let mut zsh = Command::new("zsh");
        zsh.args(["-f", "-c", ZSH, "zsh"]).arg(folder).arg(line).arg(&offers);
        let done = zsh.env("PATH", path(folder)).output().unwrap();
        let text = fs::read_to_string(&offers).unwrap_or_default();
        let ended = text.strip_suffix("END\n");
        ended.unwrap_or_else(|| panic!("{line}: {text}{done:?}")).to_owned()
    });
}

#[test]
fn fish_completes_subcommands_flags_and_the_names_that_the_daemon_knows() {
    completes("fish", |folder, line| {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", FISH]).arg(folder).arg(line);
        let done = fish.env("PATH", path(folder)).env("HOME", folder).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    });
}

/// Asks a shell, by `ask`, which gets a folder with the program and its scripts, and a line.
fn completes(shell: &str, ask: impl Fn(&Path, &str) -> String) {
    if Command::new(shell).arg("--version").output().is_err() {
        let name =
            format!("{shell}_completes_subcommands_flags_and_the_names_that_the_daemon_knows");
        return skipped(&name, &format!("needs {shell} (apt-get install {shell})"));
    }
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(PROGRAM, folder.path().join("ropewalk")).unwrap();
    for (shell, file) in [("zsh", "_ropewalk"), ("fish", "ropewalk.fish")] {
        let script = Command::new(PROGRAM).args(["completions", shell]).output().unwrap();
        fs::write(folder.path().join(file), script.stdout).unwrap();
    }
    let report: StatusReport =
        serde_json::from_str(include_str!("../../control/tests/status/client.json")).unwrap();
    let mut names: Vec<_> = report.tunnels[0].links.iter().map(|link| link.name.clone()).collect();
    names.sort();
    assert!(names.len() > 1, "{names:?}");
    let socket = folder.path().join("client.sock");
    let access = Access::new(None).unwrap();
    let (server, mut questions) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    let daemon = std::thread::spawn(move || {
        while let Some(question) = questions.blocking_recv() {
            question.answer(Ok(Response::Status(Box::new(report.clone()))));
        }
    });

    let sorted = |line: &str| {
        let mut words: Vec<_> = ask(folder.path(), line).lines().map(str::to_owned).collect();
        words.sort();
        words.dedup();
        words
    };
    let exactly: [(&str, &[&str]); 3] = [
        ("ropewalk comp", &["completions"]),
        ("ropewalk links --socket /nowhere ena", &["enable"]),
        ("ropewalk set scheduler natalie --wei", &["--weights"]),
    ];
    for (line, expected) in exactly {
        assert_eq!(sorted(line), expected, "{line}");
    }
    let links = sorted("ropewalk links ");
    for word in ["disable", "enable", "set"] {
        assert!(links.iter().any(|offer| offer == word), "{word} is not in {links:?}");
    }
    let disable = format!("ropewalk links --socket {} disable ", socket.display());
    assert_eq!(sorted(&disable), names);
    let begun = names[0].get(..2).unwrap();
    let fit: Vec<_> = names.iter().filter(|name| name.starts_with(begun)).cloned().collect();
    assert_eq!(sorted(&format!("{disable}{begun}")), fit);

    drop(server);
    daemon.join().unwrap();
}

/// The program first, then what this machine has.
fn path(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default())
}
