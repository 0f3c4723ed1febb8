//! Whether the config file is there and means something.

use std::path::Path;

use ropewalk_control::api::Role;
use ropewalk_control::config::ConfigError;

use super::finding::Finding;
use super::quoting;

/// The config file as it was found.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// There is none.
    Missing,
    /// It means something; shown in a few words.
    Good(String),
    /// It is wrong, or cannot be read.
    Wrong {
        /// What is wrong.
        message: String,
        /// Its line, where one is to blame.
        line: Option<usize>,
        /// What helps.
        help: Option<String>,
        /// The right to read it is missing.
        denied: bool,
    },
}

impl State {
    pub(super) fn wrong(error: &ConfigError) -> Self {
        Self::Wrong {
            message: error.message().to_owned(),
            line: error.position().map(|(line, _)| line),
            help: error.help().map(str::to_owned),
            denied: error.is_permission(),
        }
    }
}

pub(super) fn judge(role: Role, file: &Path, state: &State) -> Finding {
    let shown = file.display();
    let subject = "config";
    match state {
        State::Good(meaning) => Finding::ok("config", subject, format!("{shown}: {meaning}")),
        State::Missing => {
            let command = match role {
                Role::Client => "sudo ropewalk join".to_owned(),
                Role::Proxy => format!("sudo ropewalk proxy --config {}", quoting::file(file)),
            };
            let advice = match role {
                Role::Client => "ask for an invitation on the proxy (`ropewalk peer add NAME`):",
                Role::Proxy => "the first start makes one, with a key:",
            };
            Finding::fail("config.missing", subject, format!("there is no {shown}"), command)
                .advise(advice)
        }
        State::Wrong { denied: true, message, .. } => {
            Finding::fail("config.denied", subject, message.clone(), "sudo ropewalk doctor")
        }
        State::Wrong { message, line, help, .. } => {
            let at = line.map_or_else(String::new, |line| format!(", line {line}"));
            let found = format!("{shown}{at}: {message}");
            let command = match help.as_deref() {
                // The one help that is a command as it stands.
                Some(help) if help.starts_with("chmod 600 /") && !help.contains(',') => {
                    format!("sudo {help}")
                }
                _ => format!("sudoedit {}", quoting::file(file)),
            };
            let advice = help.as_ref().map_or_else(String::new, |help| format!("{help}:"));
            Finding::fail("config.wrong", subject, found, command).advise(advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_config_that_does_not_do_is_told_with_the_way_out() {
        let wrong = |help: Option<&str>, denied| State::Wrong {
            message: "unknown key".into(),
            line: Some(3),
            help: help.map(str::to_owned),
            denied,
        };
        let table = [
            (Role::Client, State::Missing, "config.missing", "sudo ropewalk join"),
            (Role::Proxy, State::Missing, "config.missing", "sudo ropewalk proxy --config /x.toml"),
            (Role::Client, wrong(None, true), "config.denied", "sudo ropewalk doctor"),
            (
                Role::Client,
                wrong(Some("did you mean `x`?"), false),
                "config.wrong",
                "sudoedit /x.toml",
            ),
            (Role::Client, wrong(Some("chmod 600 /k"), false), "config.wrong", "sudo chmod 600 /k"),
        ];
        for (role, state, id, command) in table {
            let finding = judge(role, Path::new("/x.toml"), &state);
            assert_eq!((finding.id, finding.level), (id, Level::Fail));
            assert_eq!(finding.commands, [command]);
        }
        let good = judge(Role::Client, Path::new("/x.toml"), &State::Good("two links".into()));
        assert_eq!((good.level, good.found.as_str()), (Level::Ok, "/x.toml: two links"));
    }
}
