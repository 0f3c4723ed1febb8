//! Other programs of this machine, asked for what they print: within a time, up to a length, and without a pager.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long one may take: the table of a router's routes is printed in a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often it is looked whether one has ended that closed its output.
const LOOK: Duration = Duration::from_millis(10);

/// How long one may go on after that.
const END: Duration = Duration::from_secs(1);

/// Bytes of output that are read. What is shown of it is less ([`super::report::MOST_OF_A_PART`]), and may be its end.
const MOST: u64 = 4 << 20;

/// Bytes that are read of what one complains.
const MOST_COMPLAINT: u64 = 4 << 10;

/// Where programs are that a user's PATH often lacks.
const MORE_PLACES: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// What a program printed, if it worked.
///
/// # Errors
/// In words: it is not there, did not end, or failed, with what it said.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let ran = start(program, arguments)?;
    match ran.worked {
        true => Ok(ran.output),
        false if ran.complaint.is_empty() => Err(format!("{program} failed")),
        false => Err(format!("{program} says: {}", ran.complaint)),
    }
}

/// The first line of what a program printed, whatever its exit code; in place of it why there is none.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> String {
    match start(program, arguments) {
        Ok(ran) => {
            let lines = ran.output.lines().chain(ran.complaint.lines());
            lines.map(str::trim).find(|line| !line.is_empty()).unwrap_or("(nothing)").to_owned()
        }
        Err(why) => format!("({why})"),
    }
}

/// The line by which a person would have it.
pub(crate) fn line(program: &str, arguments: &[&str]) -> String {
    [&[program][..], arguments].concat().join(" ")
}

/// A program that has ended.
struct Ran {
    output: String,
    complaint: String,
    worked: bool,
}

fn start(program: &str, arguments: &[&str]) -> Result<Ran, String> {
    let path = match std::env::var("PATH") {
        Ok(path) if !path.is_empty() => format!("{path}:{MORE_PLACES}"),
        _ => MORE_PLACES.to_owned(),
    };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path).env("LC_ALL", "C.UTF-8").env("SYSTEMD_PAGER", "");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program} cannot be started: {error}"),
    })?;
    let output = reader(child.stdout.take(), MOST);
    let complaint = reader(child.stderr.take(), MOST_COMPLAINT);
    let Ok(output) = output.recv_timeout(PATIENCE) else {
        end(&mut child);
        return Err(format!("{program} did not end within {} s", PATIENCE.as_secs()));
    };
    // Of one that has more to say than is read, that is enough.
    let is_full = output.len() as u64 >= MOST;
    let worked = !is_full && ended(&mut child).is_some_and(|status| status.success());
    end(&mut child);
    let complaint = complaint.recv_timeout(END).unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let complaint = text(&complaint).trim().to_owned();
    Ok(Ran { output: text(&output), complaint, worked: worked || is_full })
}

/// Reads on a thread of its own, which ends with the program or with what it may read.
fn reader(from: Option<impl Read + Send + 'static>, most: u64) -> Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // What came before an error is worth showing.
            drop(from.take(most).read_to_end(&mut bytes));
        }
        // Whoever waited may have given up.
        drop(tell.send(bytes));
    });
    told
}

/// How it ended, soon after it has closed its output.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < END {
        match child.try_wait() {
            Ok(None) => thread::sleep(LOOK),
            Ok(ended) => return ended,
            Err(_) => return None,
        }
    }
    None
}

/// Ends it, if it has not ended, and lets the system forget it.
fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_prints_is_had_and_why_it_does_not_is_said() {
        let sh = |script: &str| run("sh", &["-c", script]);
        assert_eq!(sh("echo a; echo b"), Ok("a\nb\n".to_owned()));
        assert_eq!(sh("echo no right >&2; exit 1"), Err("sh says: no right".to_owned()));
        assert_eq!(sh("exit 3"), Err("sh failed".to_owned()));
        let missing = run("no-such-program-here", &[]);
        assert_eq!(missing, Err("no-such-program-here is not installed".to_owned()));
        assert_eq!(first_line("sh", &["-c", "echo; echo ' 1.2 '; exit 1"]), "1.2");
        assert_eq!(first_line("sh", &["-c", "echo old >&2"]), "old");
        let missing = "(no-such-program-here is not installed)";
        assert_eq!(first_line("no-such-program-here", &[]), missing);
        assert_eq!(line("ip", &["-6", "rule"]), "ip -6 rule");
    }

    #[test]
    fn one_that_never_stops_printing_is_stopped() {
        let begun = Instant::now();
        let output = run("sh", &["-c", "while :; do echo 0123456789012345678901234567890; done"]);
        assert_eq!(output.map(|text| text.len() as u64), Ok(MOST));
        assert!(begun.elapsed() < PATIENCE);
    }
}
