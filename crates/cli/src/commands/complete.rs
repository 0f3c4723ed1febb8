//! `ropewalk complete`: names that only a running daemon knows, for the scripts of `ropewalk completions`.
//!
//! A script passes the words behind `ropewalk` up to the cursor, the last of them perhaps empty or begun. Where the command
//! line wants the name of a link or of a client there, those of the daemon are printed, one a line; else nothing. No error is
//! told: the shell shows what it has.

use std::path::Path;

use clap::{Arg, CommandFactory as _};
use ropewalk_control::PROXY_SOCKET;
use ropewalk_control::api::{Request, Response};
use ropewalk_control::client::call_blocking;

use super::ask;
use crate::args::Arguments;
use crate::exit::{Failure, print};

/// What can be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Links,
    Peers,
}

/// Prints the names that can stand at the end of these words.
pub(crate) fn run(words: &[String]) -> Result<(), Failure> {
    let Some((names, socket)) = wanted(words) else { return Ok(()) };
    let socket = socket.map(Path::new);
    let mut found = match names {
        Names::Links => links(socket),
        Names::Peers => peers(socket.unwrap_or(Path::new(PROXY_SOCKET))),
    };
    found.retain(|name| is_plain(name));
    found.sort();
    found.dedup();
    let lines = found.iter().map(|name| format!("{name}\n"));
    print(&lines.collect::<String>())
}

/// Whether a shell takes it as it stands: a name may come from the other end.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@%".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
}

fn links(socket: Option<&Path>) -> Vec<String> {
    let Ok(report) = ask::status(socket) else { return Vec::new() };
    let links = report.tunnels.into_iter().flat_map(|tunnel| tunnel.links);
    links.map(|link| link.name).collect()
}

/// Clients, and those who are invited to be one.
fn peers(socket: &Path) -> Vec<String> {
    let Ok(Response::Peers(report)) = call_blocking(socket, &Request::Peers) else {
        return Vec::new();
    };
    let invited = report.invitations.into_iter().map(|open| open.name);
    report.peers.into_iter().map(|peer| peer.name).chain(invited).collect()
}

/// What the last word is to name, and the socket that the words before it say.
fn wanted(words: &[String]) -> Option<(Names, Option<&str>)> {
    let (_, before) = words.split_last()?;
    let mut command = Arguments::command();
    // Gives each subcommand its global flags.
    command.build();
    let (mut command, mut path) = (&command, Vec::new());
    let (mut socket, mut place, mut waiting): (_, usize, Option<&Arg>) = (None, 0, None);
    for word in before {
        if let Some(flag) = waiting.take() {
            if flag.get_long() == Some("socket") {
                socket = Some(word.as_str());
            }
        } else if let Some(flag) = word.strip_prefix("--") {
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let known = command.get_arguments().find(|arg| arg.get_long() == Some(name));
            match (known.filter(|arg| arg.get_action().takes_values()), value) {
                (Some(_), Some(value)) if name == "socket" => socket = Some(value),
                (Some(arg), None) => waiting = Some(arg),
                _ => {}
            }
        } else if let Some(below) = command.find_subcommand(word) {
            path.push(below.get_name());
            (command, place) = (below, 0);
        } else {
            place += 1;
        }
    }
    let arg = match waiting {
        Some(flag) => flag,
        None => command.get_positionals().nth(place)?,
    };
    Some((named(&path, arg)?, socket))
}

fn named(path: &[&str], arg: &Arg) -> Option<Names> {
    let is_link =
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "LINK"));
    match path {
        _ if arg.get_long() == Some("peer") => Some(Names::Peers),
        ["peer", "remove" | "rotate" | "disable" | "enable"] if arg.is_positional() => {
            Some(Names::Peers)
        }
        _ if is_link => Some(Names::Links),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_shell_would_read_otherwise_is_not_offered() {
        for name in ["", "-rf", "$(reboot)", "a b", "a;b", "`x`", "a'b", "*", "a\u{1b}", "é"] {
            assert!(!is_plain(name), "{name}");
        }
        for name in ["wan0", "lte", "enp3s0f1.100", "wl-home", "laptop_2"] {
            assert!(is_plain(name), "{name}");
        }
    }

    #[test]
    fn each_place_of_a_name_is_known_and_no_other() {
        let (links, peers) = (Some(Names::Links), Some(Names::Peers));
        let table = [
            ("links disable ", links, None),
            ("links enable w", links, None),
            ("links set ", links, None),
            ("links set wan0 ", None, None),
            ("links --socket /x/y.sock set ", links, Some("/x/y.sock")),
            ("--log debug links disable --socket=/z ", links, Some("/z")),
            ("history --link w", links, None),
            ("history --since ", None, None),
            ("speedtest --link ", links, None),
            ("speedtest --link wan0 --link w", links, None),
            ("speedtest --link wan0 ", None, None),
            ("set --peer ", peers, None),
            ("status --peer v", peers, None),
            ("peer remove ", peers, None),
            ("peer rotate ", peers, None),
            ("peer disable ", peers, None),
            ("peer enable l", peers, None),
            ("peer add ", None, None),
            ("status ", None, None),
            ("nonsense ", None, None),
            ("", None, None),
        ];
        for (line, names, socket) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let found = wanted(&words);
            assert_eq!(found.map(|(names, _)| names), names, "{line}");
            assert_eq!(found.and_then(|(_, socket)| socket), socket, "{line}");
        }
        assert_eq!(wanted(&[]), None);
    }
}
