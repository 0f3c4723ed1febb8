//! Every subcommand with its options, as clap knows them.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _};

use super::{cell, head};
use crate::args::Arguments;

/// The page.
pub(super) fn page() -> String {
    let mut program = Arguments::command().term_width(100);
    program.build();
    let mut page = head("Commands");
    page += "\nMost commands need root: put `sudo` before them. `--help` after a command says the same, and so does its manual page \
             (`man ropewalk-status`).\n";
    let mut contents = String::new();
    let mut sections = section(&program, &[], &mut contents);
    for command in shown(&program) {
        sections += &section(command, &[&program], &mut contents);
        for part in shown(command) {
            sections += &section(part, &[&program, command], &mut contents);
        }
    }
    page + "\n| command | |\n| --- | --- |\n" + &contents + &sections
}

/// The subcommands that people are told of.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help")
}

/// One command below its parents, and its line in the table of contents.
fn section(command: &Command, parents: &[&Command], contents: &mut String) -> String {
    let name = parents.iter().chain([&command]).map(|part| part.get_name());
    let name = name.collect::<Vec<_>>().join(" ");
    let about = text(command.get_about());
    *contents += &format!("| [`{name}`](#{}) | {} |\n", name.replace(' ', "-"), cell(&about));
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let mut section = format!("\n## {name}\n\n{about}.\n\n```text\n{usage}\n```\n");
    let rows: String = command
        .get_arguments()
        .filter(|argument| !inherited(argument, parents))
        .map(|argument| {
            format!("| {} | {} |\n", cell(&written(argument)), cell(&meaning(argument)))
        })
        .collect();
    if !rows.is_empty() {
        section += &format!("\n| | |\n| --- | --- |\n{rows}");
    }
    let more = text(command.get_after_long_help());
    if !more.is_empty() {
        section += &format!("\n```text\n{more}\n```\n");
    }
    section
}

/// Whether a parent has it already, or every command has it.
fn inherited(argument: &Arg, parents: &[&Command]) -> bool {
    let known =
        |parent: &&Command| parent.get_arguments().any(|other| other.get_id() == argument.get_id());
    let everywhere = ["help", "version"].contains(&argument.get_id().as_str());
    argument.is_hide_set() || everywhere || (argument.is_global_set() && parents.iter().any(known))
}

/// How an argument is written on the command line.
fn written(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    match argument.get_long() {
        None => format!("`{values}`"),
        Some(long) if argument.get_action().takes_values() => format!("`--{long} {values}`"),
        Some(long) => format!("`--{long}`"),
    }
}

/// What an argument means, with its values, default and variable of the environment.
fn meaning(argument: &Arg) -> String {
    let mut meaning = text(argument.get_long_help().or(argument.get_help()));
    let values: Vec<_> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !values.is_empty() {
        meaning += &format!("; one of {}", values.join(", "));
    }
    let defaults = argument.get_default_values();
    if argument.get_action().takes_values() && !defaults.is_empty() {
        let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
        meaning += &format!(" [default: `{}`]", defaults.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        meaning += &format!(" [environment: `{}`]", variable.to_string_lossy());
    }
    meaning
}

fn text(styled: Option<&StyledStr>) -> String {
    styled.map(ToString::to_string).unwrap_or_default().trim_end().to_owned()
}
