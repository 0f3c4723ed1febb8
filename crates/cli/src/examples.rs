//! The examples of README and documentation: each command is one that the program has, each piece of a config is valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use clap::Parser as _;
use clap::error::ErrorKind;
use ropewalk_control::config::{ConfigError, ConfigFile as _, Source};
use toml::{Table, Value};

use crate::args::Arguments;

/// Reads a config of one of the daemons.
type Parse = fn(&Source) -> Result<(), ConfigError>;

/// What a client's config cannot do without.
const CLIENT: &str = r#"
private_key_file = "client.key"
[proxy]
address = "vps.example.org"
public_key = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk="
"#;

/// And a proxy's.
const PROXY: &str = r#"private_key_file = "proxy.key""#;

/// A private key for the examples, of nobody.
const KEY: &str = "GMh3KmNcd9Wp1cZ4uhBlJ4bGd0GHHGXYBeRk5Zqmp3Q=\n";

#[test]
fn every_command_of_an_example_is_understood() {
    let mut seen = 0;
    for (page, text) in pages() {
        for block in blocks(&text).filter(|block| block.language == "sh") {
            for command in ropewalk_commands(block.text) {
                let read = Arguments::try_parse_from(&command);
                assert!(read.is_ok(), "{}: {command:?}: {}", page.display(), read.unwrap_err());
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} were found");
}

#[test]
fn every_command_named_in_a_sentence_or_a_table_is_understood() {
    let mut seen = 0;
    // There, such a word is a label of the key schedule.
    let pages = pages().into_iter().filter(|(page, _)| !page.ends_with("PROTOCOL.md"));
    for (page, text) in pages {
        let outside = blocks(&text).fold(text.clone(), |rest, block| rest.replace(block.text, ""));
        // An ellipsis stands for words that the sentence leaves out.
        for code in outside.split('`').skip(1).step_by(2).filter(|code| !code.contains("...")) {
            for command in ropewalk_commands(&code.replace('\n', " ")) {
                seen += 1;
                let Err(error) = Arguments::try_parse_from(&command) else { continue };
                // A sentence may name a command without what must follow it.
                let only_short = [
                    ErrorKind::MissingRequiredArgument,
                    ErrorKind::MissingSubcommand,
                    ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
                    ErrorKind::DisplayHelp,
                    ErrorKind::DisplayVersion,
                ];
                let short = only_short.contains(&error.kind());
                assert!(short, "{}: {command:?}: {error}", page.display());
            }
        }
    }
    assert!(seen > 100, "only {seen} were found");
}

#[test]
fn every_piece_of_a_config_is_valid() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["client.key", "proxy.key"] {
        private(&folder.path().join(key), KEY);
    }
    let mut seen = 0;
    for (page, text) in pages() {
        for block in blocks(&text).filter(|block| block.language == "toml") {
            let first = block.text.lines().next().unwrap_or_default();
            let (file, least, parse): (_, _, Parse) = match first {
                "# client.toml" => ("client.toml", CLIENT, |source| {
                    ropewalk_client::Config::parse(source).map(drop)
                }),
                "# proxy.toml" => {
                    ("proxy.toml", PROXY, |source| ropewalk_proxy::Config::parse(source).map(drop))
                }
                _ => panic!("{}: a block must begin with its file's name: {first}", page.display()),
            };
            let mut config: Table = least.parse().unwrap();
            let piece = block.text.parse();
            merge(&mut config, piece.unwrap_or_else(|error| panic!("{}: {error}", page.display())));
            let path = folder.path().join(file);
            private(&path, &toml::to_string(&config).unwrap());
            let checked = Source::read(&path).and_then(|source| parse(&source));
            assert!(checked.is_ok(), "{}:\n{}\n{:?}", page.display(), block.text, checked.err());
            seen += 1;
        }
    }
    assert!(seen > 5, "only {seen} were found");
}

#[test]
fn every_unit_and_desktop_entry_starts_what_the_program_has() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let units = fs::read_dir(configs.join("systemd")).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for file in units.chain([configs.join("ropewalk-notify.desktop")]) {
        let text = fs::read_to_string(&file).unwrap();
        let starts = |line: &str| {
            let (key, command) = line.split_once('=')?;
            ["Exec", "ExecStart", "ExecReload"].contains(&key).then(|| command.to_owned())
        };
        for command in text.lines().filter_map(starts) {
            let named = command.strip_prefix("/usr/bin/").unwrap();
            for words in ropewalk_commands(named) {
                let read = Arguments::try_parse_from(&words);
                assert!(read.is_ok(), "{}: {words:?}: {}", file.display(), read.unwrap_err());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "only {seen} were found");
}

#[test]
fn every_shell_example_has_the_syntax_of_a_shell() {
    for (page, text) in pages() {
        for block in blocks(&text).filter(|block| block.language == "sh") {
            let read = Process::new("sh").args(["-n", "-c", block.text]).output().unwrap();
            let said = String::from_utf8_lossy(&read.stderr);
            assert!(read.status.success(), "{}: {said}\n{}", page.display(), block.text);
        }
    }
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_exist() {
    for (page, text) in pages() {
        let outside = blocks(&text).fold(text.clone(), |rest, block| rest.replace(block.text, ""));
        for target in outside.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
            let (path, heading) = target.0.split_once('#').unwrap_or((target.0, ""));
            if path.starts_with("http") {
                continue;
            }
            let to = match path {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            assert!(to.exists(), "{}: {} does not exist", page.display(), target.0);
            if !heading.is_empty() {
                let there = headings(&fs::read_to_string(&to).unwrap());
                let said = format!("{}: {} has {there:?}", page.display(), target.0);
                assert!(there.iter().any(|known| known == heading), "{said}");
            }
        }
    }
}

/// The README and every page of the documentation, with their paths.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = vec![root.join("README.md")];
    for folder in ["docs", "docs/operations"] {
        let files = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(files.filter(|path| path.extension().is_some_and(|kind| kind == "md")));
    }
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// Lines between two fences.
struct Block<'a> {
    language: &'a str,
    text: &'a str,
}

fn blocks(page: &str) -> impl Iterator<Item = Block<'_>> {
    page.split("\n```").skip(1).step_by(2).filter_map(|block| {
        let (language, text) = block.split_once('\n')?;
        Some(Block { language, text })
    })
}

/// The command lines of this program in a shell's lines, without what goes before and after it.
fn ropewalk_commands(text: &str) -> Vec<Vec<String>> {
    let parts = text.lines().flat_map(|line| line.split(['|', ';', '&', '<', '>']));
    let words = parts.map(|part| shlex::Shlex::new(part).collect::<Vec<_>>());
    words
        .filter_map(|mut words| {
            words.drain(..words.iter().position(|word| word != "sudo")?);
            (words.first().map(String::as_str) == Some("ropewalk")).then_some(words)
        })
        .collect()
}

/// The names by which links lead to the headings of a page.
fn headings(page: &str) -> Vec<String> {
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    let name = |line: &str| line.to_lowercase().chars().filter(kept).collect::<String>();
    let lines = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    lines.map(|line| name(line).replace(' ', "-")).collect()
}

/// Puts the keys of one table into another; sections become one.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(from)) => merge(into, from),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

/// Writes a file that only its owner reads.
fn private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}
