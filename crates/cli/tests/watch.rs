//! `ropewalk watch` in a real terminal (tmux, 80x24), beside real daemons that carry packets.

#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::privilege::{lab_test, require_tool, skipped};
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// How long to wait on a busy machine for what happens within moments.
const LONG: Duration = Duration::from_secs(20);

/// How tmux writes the colour of a link that is up.
const GREEN: &str = "\u{1b}[38;5;2m";

/// A terminal of 80 columns and 24 lines; ended when dropped.
struct Pane(PathBuf);

impl Pane {
    /// Without colours it is as `NO_COLOR` has it.
    fn open(folder: &Path, no_color: bool) -> Self {
        let pane = Self(folder.join(if no_color { "plain.sock" } else { "colours.sock" }));
        let colours = if no_color { "NO_COLOR=1" } else { "-u NO_COLOR" };
        let shell = format!("env {colours} 'PS1=ready> ' sh");
        pane.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        // What is typed before the prompt would be written in front of it.
        pane.wait_for("a prompt", |seen| seen.contains("ready>"));
        pane
    }

    fn tmux(&self, args: &[&str]) -> String {
        let done =
            Command::new("tmux").arg("-S").arg(&self.0).args(args).output().expect("tmux runs");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn type_line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.tmux(&["send-keys", "Enter"]);
    }

    fn seen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn wait_for(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let seen = self.seen();
            if wanted(&seen) {
                return seen;
            }
            assert!(begun.elapsed() < LONG, "waited in vain for {what}:\n{seen}");
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.0).arg("kill-server").output();
    }
}

#[test]
fn the_live_view_shows_the_links_in_a_terminal_and_leaves_it_as_it_was() {
    const NAME: &str = "the_live_view_shows_the_links_in_a_terminal_and_leaves_it_as_it_was";
    if let Err(missing) = require_tool(("tmux", "tmux")) {
        return skipped(NAME, &missing.to_string());
    }
    lab_test(NAME, || {
        let wan = |mbps, rtt_ms| {
            let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
            WanConfig::from(Access::symmetric(Bitrate::from_mbps(mbps), rtt, queue))
        };
        let config = TopologyConfig::new(vec![wan(12, 20), wan(4, 50), wan(8, 30)]);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        let deployment = stage.deployment();
        let third = deployment.client_config(0)["link"][2].as_table_mut().unwrap();
        third.insert("use".into(), "backup".into());
        stage.start_proxy().unwrap();
        let (deployment, topology) = stage.split();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 3).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let folder = stage.deployment().folder().to_owned();
        let watch = format!(
            "{PROGRAM} watch --every 250ms --socket {}",
            folder.join("client0.sock").display()
        );
        thread::scope(|scope| {
            let down = scope.spawn(|| stage.stream_down(13_500_000, mtu, Duration::from_secs(26)));
            let pane = Pane::open(&folder, false);
            pane.type_line("echo before");
            pane.wait_for("the shell", |seen| seen.contains("\nbefore"));
            pane.type_line(&watch);
            pane.wait_for("the view", |seen| seen.contains("q ends"));
            // Twelve seconds of graphs.
            thread::sleep(Duration::from_secs(12));
            let seen = pane.wait_for("packets", |seen| seen.contains("all down 13."));
            assert_eq!(seen.lines().count(), 24);
            for part in [
                "up for",
                "over 3 of 3 links",
                ">wan0 ",
                " wan1 ",
                " wan2 ",
                "RTT",
                "share",
                "% down",
                "\u{2588}",
            ] {
                assert!(seen.contains(part), "`{part}` is missing in\n{seen}");
            }
            assert!(seen.contains("wan0 up: no demand") || seen.contains("wan0 up: "), "{seen}");
            let coloured = pane.tmux(&["capture-pane", "-p", "-e"]);
            assert!(coloured.contains(GREEN), "{coloured:?}");
            if let Some(file) = std::env::var_os("ROPEWALK_WATCH_PICTURE") {
                std::fs::write(file, &coloured).unwrap();
            }
            pane.tmux(&["send-keys", "Down"]);
            pane.tmux(&["send-keys", "Down"]);
            let seen = pane.wait_for("the third link", |seen| seen.contains(">wan2 "));
            assert!(seen.contains("wan2 up: resting"), "{seen}");
            // A larger terminal, and a smaller one.
            pane.tmux(&["resize-window", "-x", "120", "-y", "40"]);
            pane.wait_for("taller graphs", |seen| {
                seen.lines().count() == 40 && seen.contains(">wan2")
            });
            pane.tmux(&["resize-window", "-x", "40", "-y", "10"]);
            pane.wait_for("a word", |seen| seen.contains("80x24 is meant"));
            pane.tmux(&["resize-window", "-x", "80", "-y", "24"]);
            pane.wait_for("the view again", |seen| seen.contains("q ends"));

            // However it ends, the terminal is as before: what was there is back, and what is typed is seen.
            pane.tmux(&["send-keys", "q"]);
            let after = pane.wait_for("the shell", |seen| {
                // What is typed before the prompt is back would stand in front of it.
                !seen.contains("q ends") && seen.trim_end().ends_with("ready>")
            });
            assert!(after.contains("\nbefore"), "{after}");
            pane.type_line("stty -a | grep -c ' icanon'; echo a''fter");
            pane.wait_for("a line as before", |seen| seen.contains("\n1\nafter"));
            pane.type_line(
                &format!("{watch} & sleep 2; kill -TERM $!; wait $!; echo s''topped")
                    .replace(" & sleep", " </dev/tty & sleep"),
            );
            pane.wait_for("the shell", |seen| {
                seen.contains("\nstopped") && !seen.contains("q ends")
            });
            pane.type_line("clear; stty -a | grep -c ' icanon'; echo still");
            pane.wait_for("a line as before", |seen| seen.contains("1\nstill"));
            drop(pane);

            let plain = Pane::open(&folder, true);
            // Under a shell that ignores the hang-up, as `nohup` does.
            plain.type_line(&format!("trap '' HUP; exec {watch}"));
            plain.wait_for("the view", |seen| seen.contains("q ends") && seen.contains("wan2"));
            let process = plain.tmux(&["display-message", "-p", "#{pane_pid}"]);
            let process = Path::new("/proc").join(process.trim());
            let line = std::fs::read_to_string(process.join("cmdline")).unwrap();
            assert!(line.contains("watch"), "{line:?} runs in the pane");
            let seen = plain.tmux(&["capture-pane", "-p", "-e"]);
            assert!(!seen.contains("\u{1b}[38"), "{seen:?}");
            drop(plain);
            let begun = Instant::now();
            // Who has ended but was not waited for has no command line either.
            while std::fs::read(process.join("cmdline")).is_ok_and(|line| !line.is_empty()) {
                assert!(begun.elapsed() < LONG, "it goes on though its terminal is gone");
                thread::sleep(Duration::from_millis(50));
            }
            drop(down.join().unwrap());
        });

        // For programs: one object a line, until nobody reads.
        let mut stream = Command::new(PROGRAM)
            .args(["watch", "--json", "--every", "100ms", "--socket"])
            .arg(folder.join("client0.sock"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(stream.stdout.take().unwrap()).lines();
        for _ in 0..3 {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(line["tunnels"][0]["links"].as_array().unwrap().len(), 3);
        }
        drop(lines);
        assert!(stream.wait().unwrap().success(), "nobody reads: it ends");
        let done = Command::new(PROGRAM).arg("watch").output().unwrap();
        assert_eq!(done.status.code(), Some(2), "no terminal");
        let log = Command::new(PROGRAM)
            .args(["logs", "--socket"])
            .arg(folder.join("client0.sock"))
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        assert!(
            log.contains("The client's log is a file: tail -f ") && log.contains("link is up"),
            "{log}"
        );
    });
}
