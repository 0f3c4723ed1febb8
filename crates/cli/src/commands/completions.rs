//! `ropewalk completions`: what a shell needs to complete command lines.
//!
//! clap writes the script; where the name of a link or client is wanted, the daemon has it. (clap can ask the program itself
//! only by an interface that it calls unstable.) So in bash and zsh clap's function gets another name, and one of ours stands in
//! its place that asks [`complete`](super::complete) first; fish takes what each of several rules offers. Commands that the help
//! hides are no one's to type: the scripts do not offer them.

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Failure, print};

/// Not by `compgen -W`, which would expand what stands in a name.
const BASH: &str = r#"_ropewalk() {
    local name known=
    COMPREPLY=()
    while IFS= read -r name; do
        known=1
        [[ $name == "${COMP_WORDS[COMP_CWORD]}"* ]] && COMPREPLY+=("$name")
    done < <(ropewalk complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    [[ -n $known ]] || _ropewalk_words "$@"
}
"#;

const ZSH: &str = r#"_ropewalk() {
    local -a names
    names=(${(f)"$(ropewalk complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    if (( $#names )); then
        compadd -a names
    else
        _ropewalk_words "$@"
    fi
}
"#;

/// If there are names, no files are offered beside them (`-f`).
const FISH: &str = r#"
function __ropewalk_names
    set -g __ropewalk_known (ropewalk complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)
    set -q __ropewalk_known[1]
end
complete -c ropewalk -f -n __ropewalk_names -a '$__ropewalk_known'
"#;

/// Prints the script for `shell`.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut offered(&Arguments::command()), "ropewalk", &mut script);
    let script = String::from_utf8_lossy(&script);
    print(&match shell {
        Shell::Bash => with(&script, BASH),
        Shell::Zsh => with(&script, ZSH),
        Shell::Fish => format!("{script}{FISH}"),
        _ => script.into_owned(),
    })
}

/// The command with its visible subcommands only: clap writes hidden ones into each script.
fn offered(command: &Command) -> Command {
    let visible = command.get_subcommands().filter(|below| !below.is_hide_set());
    Command::new("ropewalk")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(visible)
}

/// The script with this function in the place of clap's, which it calls by another name.
fn with(script: &str, function: &str) -> String {
    script.replacen("_ropewalk() {", &format!("{function}\n_ropewalk_words() {{"), 1)
}
