//! Command lines completed by real shells: by the scripts of `ropewalk completions`, and a socket that answers as a daemon.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::path::PathBuf;
use std::process::Command;
use std::thread::JoinHandle;

use ropewalk_control::api::{Response, StatusReport};
use ropewalk_control::server::{Access, Options, Server};
use ropewalk_netlab::privilege::lacking;
use ropewalk_netlab::tool::find;
use tempfile::TempDir;

/// `_ropewalk` is called as bash calls it at a tab.
const BASH: &str = r#"source <(ropewalk completions bash)
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _ropewalk ropewalk "${COMP_WORDS[COMP_CWORD]}" ""
    printf '%s\n' "${COMPREPLY[@]}""#;

/// fish completes a line without a terminal.
const FISH: &str = r#"ropewalk completions fish | source
    set line (string join " " -- $argv); complete -C "$line" | string replace -r '\t.*' ''; true"#;

/// zsh completes only at its prompt. So what adds the candidates is replaced, and `_ropewalk` called as the completion calls it:
/// it must be what `compinit` finds for the program, and what the names lead to. `_arguments` would need the prompt.
const ZSH: &str = r#"ropewalk completions zsh >$HOME/_ropewalk
    fpath=($HOME $fpath); autoload -U compinit; compinit -u -d $HOME/dump
    [[ $_comps[ropewalk] = _ropewalk ]] || { print -u2 "not registered"; exit 1 }
    compadd() { [[ $1 = -a ]] || { print -u2 "compadd $*"; exit 1 }; print -rl -- "${(@P)2}" }
    _arguments() { print -r -- words of clap; return 1 }
    words=("$@"); CURRENT=$#
    _ropewalk 2>&1"#;

#[test]
fn shells_complete_the_names_that_the_daemon_knows() {
    const NAME: &str = "shells_complete_the_names_that_the_daemon_knows";
    let daemon = Daemon::start();
    let socket = daemon.folder.path().join("client.sock");
    let line = ["ropewalk", "links", "--socket", socket.to_str().unwrap(), "disable"];
    for shell in installed(NAME) {
        let all = daemon.complete(shell, &[&line[..], &[""]].concat());
        assert_eq!(all, daemon.links, "{}", shell.name);
        if shell.name != "zsh" {
            // zsh chooses itself among the candidates, by the user's settings.
            let begun = daemon.links[0].get(..1).unwrap();
            let begin = daemon.links.iter().filter(|name| name.starts_with(begun));
            let offered = daemon.complete(shell, &[&line[..], &[begun]].concat());
            assert_eq!(offered, begin.cloned().collect::<Vec<_>>(), "{}", shell.name);
        }
    }
    daemon.stop();
}

#[test]
fn where_no_name_is_wanted_shells_offer_what_clap_knows_and_nothing_hidden() {
    const NAME: &str = "where_no_name_is_wanted_shells_offer_what_clap_knows_and_nothing_hidden";
    let daemon = Daemon::start();
    for shell in installed(NAME) {
        let offered = daemon.complete(shell, &["ropewalk", ""]);
        if shell.name == "zsh" {
            assert!(offered.contains(&"words of clap".to_owned()), "{offered:?}");
        } else {
            for (command, is_offered) in [
                ("links", true),
                ("doctor", true),
                ("complete", false),
                ("resolv-conf", false),
                ("lan-servers", false),
            ] {
                let found = offered.contains(&command.to_owned());
                assert_eq!(found, is_offered, "{}: {command} in {offered:?}", shell.name);
            }
            let below = daemon.complete(shell, &["ropewalk", "links", "d"]);
            assert!(below.contains(&"disable".to_owned()), "{}: {below:?}", shell.name);
        }
        let script = daemon.script(shell);
        assert!(!script.contains("resolv-conf"), "{}", shell.name);
    }
    daemon.stop();
}

/// A shell, and how it is asked for what it offers for the words of a command line.
#[derive(Clone, Copy)]
struct Shell {
    name: &'static str,
    options: &'static [&'static str],
    ask: &'static str,
}

const SHELLS: [Shell; 3] = [
    Shell { name: "bash", options: &["--norc"], ask: BASH },
    Shell { name: "zsh", options: &["-f"], ask: ZSH },
    Shell { name: "fish", options: &["--no-config"], ask: FISH },
];

/// Those that are here; `scripts/setup` installs them.
fn installed(test: &str) -> Vec<Shell> {
    let (here, missing): (Vec<_>, Vec<_>) =
        SHELLS.into_iter().partition(|shell| find(shell.name).is_some());
    for shell in missing {
        lacking(test, &format!("{0} (Debian: apt-get install {0})", shell.name));
    }
    here
}

/// A socket that answers with the sample of a client's status.
struct Daemon {
    folder: TempDir,
    links: Vec<String>,
    server: Server,
    answering: JoinHandle<()>,
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let access = Access::new(None).unwrap();
        let socket = folder.path().join("client.sock");
        let (server, mut commands) = Server::start(Options { socket, access, web: None }).unwrap();
        let sample = include_str!("../../control/tests/status/client.json");
        let report: StatusReport = serde_json::from_str(sample).unwrap();
        let mut links: Vec<_> =
            report.tunnels[0].links.iter().map(|link| link.name.clone()).collect();
        links.sort();
        assert!(links.len() > 1, "{links:?}");
        let answering = std::thread::spawn(move || {
            while let Some(command) = commands.blocking_recv() {
                command.answer(Ok(Response::Status(Box::new(report.clone()))));
            }
        });
        let program = PathBuf::from(env!("CARGO_BIN_EXE_ropewalk"));
        std::os::unix::fs::symlink(program, folder.path().join("ropewalk")).unwrap();
        Self { folder, links, server, answering }
    }

    /// What the shell offers for the last of these words.
    fn complete(&self, shell: Shell, words: &[&str]) -> Vec<String> {
        // fish takes `$argv` from its first argument on, the others have a name there.
        let name: &[&str] = if shell.name == "fish" { &[] } else { &["test"] };
        self.run(shell, shell.ask, &[name, words].concat()).lines().map(str::to_owned).collect()
    }

    /// What the shell reads at its start.
    fn script(&self, shell: Shell) -> String {
        self.run(shell, &format!("ropewalk completions {}", shell.name), &[])
    }

    fn run(&self, shell: Shell, script: &str, arguments: &[&str]) -> String {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = [self.folder.path().to_owned()].into_iter().chain(std::env::split_paths(&path));
        let output = Command::new(find(shell.name).unwrap())
            .args(shell.options)
            .args(["-c", script])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("PATH", std::env::join_paths(path).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", shell.name);
        String::from_utf8(output.stdout).unwrap()
    }

    fn stop(self) {
        drop(self.server);
        self.answering.join().unwrap();
    }
}
