//! `ropewalk run`: start a program whose connections go around the tunnel, or through it.
//!
//! 1. The client is told of the application (`app:NAME`), if it does not know it.
//! 2. This process enters a control group of that name: by systemd, where that runs; else root makes one.
//! 3. When the client says that it has seen the group, this process becomes the program. So not even its first connection goes
//!    the wrong way; its children are in the same group.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use ropewalk_client::split::cgroups::Tree;
use ropewalk_control::CLIENT_SOCKET;
use ropewalk_control::api::{RoutesChange, RoutesReport};
use ropewalk_settings::selector::{app_of_scope, scope_of_app};
use ropewalk_settings::{Selector, Side, Text as _};
use rustix::process::geteuid;

use super::ask;
use crate::args::Run;
use crate::exit::Failure;

/// Where it is seen that systemd runs this machine (`sd_booted(3)`).
const SYSTEMD: &str = "/run/systemd/system";

/// Below the root of the control groups: the folder of those that are made without systemd. The client looks into slices.
const SLICE: &str = "ropewalk.slice";

/// How long the client may take to see the group, and the pause between two questions: it takes some 20 ms.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// Starts the program in the place of this one; returns only if that failed.
pub(crate) fn run(run: &Run) -> Result<(), Failure> {
    match start(run)? {}
}

fn start(run: &Run) -> Result<Infallible, Failure> {
    let app = app(run)?;
    let socket = run.daemon.socket.as_deref().unwrap_or(Path::new(CLIENT_SOCKET));
    if run.entered {
        await_group(socket, &app)?;
        return become_program(&run.program).map_err(Failure::from);
    }
    tell(socket, run.side(), &app)?;
    let scope = scope_of_app(&app, std::process::id());
    if Path::new(SYSTEMD).exists() {
        let own = std::env::current_exe().context("cannot find the own program")?;
        let words = through_systemd(&scope, &app, run, own.as_os_str(), geteuid().is_root());
        return become_program(&words)
            .context("systemd-run starts the program in a control group")
            .map_err(Failure::from);
    }
    enter(&scope)?;
    await_group(socket, &app)?;
    become_program(&run.program).map_err(Failure::from)
}

/// The name of the application.
fn app(run: &Run) -> Result<String, Failure> {
    let usual = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name = match &run.name {
        Some(name) => name.clone(),
        None => {
            let program = run.program.first().map(Path::new);
            let name = program.and_then(Path::file_name).unwrap_or_default();
            name.to_string_lossy().chars().map(usual).collect()
        }
    };
    Selector::from_text(&format!("app:{name}")).map_err(Failure::Usage)?;
    Ok(name)
}

/// Has the client know the application on this side.
fn tell(socket: &Path, side: Side, app: &str) -> Result<(), Failure> {
    let entry = Selector::App(app.to_owned());
    let known = ask::routes(socket, None)?;
    let (here, there, other) = match side {
        Side::Inside => (&known.routes, &known.exclude, "exclude"),
        Side::Outside => (&known.exclude, &known.routes, "routes"),
    };
    if there.contains(&entry) {
        return Err(Failure::Usage(format!(
            "{entry} stands in `{other}` of the client: take it out there first, or give another --name"
        )));
    }
    if !here.contains(&entry) {
        let change = RoutesChange { side, add: vec![entry], remove: Vec::new() };
        ask::routes(socket, Some(change))?;
    }
    Ok(())
}

/// The command line that starts this program again in a control group of this name, as a child of nobody: the same process.
fn through_systemd(scope: &str, app: &str, run: &Run, own: &OsStr, is_root: bool) -> Vec<OsString> {
    let side = match run.side() {
        Side::Inside => "--inside",
        Side::Outside => "--outside",
    };
    let mut words: Vec<OsString> = vec!["systemd-run".into()];
    // A user's programs are the user's manager's.
    words.extend((!is_root).then(|| "--user".into()));
    words.extend(["--scope", "--quiet", "--collect"].map(OsString::from));
    words.push(format!("--unit={scope}").into());
    words.extend(["--".into(), own.to_owned()]);
    words.extend(["run", side, "--entered", "--name", app].map(OsString::from));
    if let Some(socket) = &run.daemon.socket {
        words.extend(["--socket".into(), socket.clone().into_os_string()]);
    }
    words.push("--".into());
    words.extend(run.program.iter().cloned());
    words
}

/// Makes a control group and enters it; what earlier ones left empty is removed.
fn enter(scope: &str) -> Result<(), Failure> {
    if !geteuid().is_root() {
        return Err(Failure::Permission(
            "without systemd only root can make control groups: use sudo".to_owned(),
        ));
    }
    let tree = Tree::mounted().ok_or_else(|| {
        Failure::Failed(anyhow!(
            "this system has no control groups of version 2: a program cannot be told apart; use user:NAME in `exclude`"
        ))
    })?;
    let slice = tree.root().join(SLICE);
    for old in fs::read_dir(&slice).into_iter().flatten().flatten() {
        // One with processes stays.
        let _ = fs::remove_dir(old.path());
    }
    let group = slice.join(scope);
    let made = fs::create_dir_all(&group)
        .and_then(|()| fs::write(group.join("cgroup.procs"), std::process::id().to_string()));
    made.with_context(|| format!("cannot enter the control group {}", group.display()))?;
    Ok(())
}

/// Waits until the client has this process's control group in its rules.
fn await_group(socket: &Path, app: &str) -> Result<(), Failure> {
    let group = own_group().context("cannot find the own control group")?;
    let is_apps = group.rsplit('/').next().and_then(app_of_scope) == Some(app);
    if !is_apps {
        return Err(Failure::Failed(anyhow!(
            "this process is in the control group {group}, which is none of app:{app}"
        )));
    }
    let begun = Instant::now();
    loop {
        let known = ask::routes(socket, None)?;
        if is_placed(&known, app, &group) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            let why = note_of(&known, app).unwrap_or("`ropewalk status` may say why").to_owned();
            return Err(Failure::Failed(anyhow!(
                "the client has not taken the control group {group} into its rules within {} s: {why}",
                PATIENCE.as_secs()
            )));
        }
        thread::sleep(PAUSE);
    }
}

fn is_placed(known: &RoutesReport, app: &str, group: &str) -> bool {
    let mut rules = known.rules.iter().filter(|rule| rule.rule == Selector::App(app.to_owned()));
    rules.any(|rule| rule.cgroups.iter().any(|path| path == group))
}

fn note_of<'a>(known: &'a RoutesReport, app: &str) -> Option<&'a str> {
    let mut rules = known.rules.iter();
    rules.find(|rule| rule.rule == Selector::App(app.to_owned()))?.note.as_deref()
}

/// The control group of version 2 that this process is in: its path from the root.
fn own_group() -> io::Result<String> {
    group_in(&fs::read_to_string("/proc/self/cgroup")?)
        .ok_or_else(|| io::Error::other("/proc/self/cgroup names none of version 2"))
}

/// The same in the words of `/proc/PID/cgroup` (`cgroups(7)`).
fn group_in(text: &str) -> Option<String> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_matches('/').to_owned())
}

/// Becomes this program; returns only if that failed.
fn become_program(words: &[OsString]) -> anyhow::Result<Infallible> {
    let (program, arguments) = words.split_first().context("no program was named")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", PathBuf::from(program).display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command as Subcommand};
    use clap::Parser as _;

    fn parsed(words: &[&str]) -> Run {
        match Arguments::try_parse_from([&["ropewalk", "run"][..], words].concat()) {
            Ok(Arguments { command: Subcommand::Run(run), .. }) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_application_is_called_like_its_program_or_as_told() {
        for (words, expected) in [
            (&["--outside", "--", "firefox"][..], Some("firefox")),
            (&["--outside", "/opt/My App/chat+", "--flag"], Some("chat_")),
            (&["--inside", "--name", "work", "--", "firefox", "-P", "work"], Some("work")),
            (&["--inside", "--name", "two words", "--", "x"], None),
            (&["--inside", "/"], None),
        ] {
            let name = app(&parsed(words)).ok();
            assert_eq!(name.as_deref(), expected, "{words:?}");
        }
    }

    #[test]
    fn one_side_must_be_said_and_a_program() {
        for words in [
            &["run", "firefox"][..],
            &["run", "--outside"],
            &["run", "--outside", "--inside", "--", "firefox"],
        ] {
            let whole = [&["ropewalk"][..], words].concat();
            assert!(Arguments::try_parse_from(whole).is_err(), "{words:?}");
        }
    }

    #[test]
    fn systemd_starts_this_program_again_in_a_scope_of_the_users_or_of_the_systems_manager() {
        let run = parsed(&["--outside", "--socket", "/run/x.sock", "--", "firefox", "--new"]);
        let words = |is_root| {
            let own = OsStr::new("/usr/bin/ropewalk");
            let words = through_systemd("s.scope", "firefox", &run, own, is_root);
            let words = words.iter().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        let rest = "--scope --quiet --collect --unit=s.scope -- /usr/bin/ropewalk run --outside --entered --name firefox \
                    --socket /run/x.sock -- firefox --new";
        assert_eq!(words(true), format!("systemd-run {rest}"));
        assert_eq!(words(false), format!("systemd-run --user {rest}"));
        let again = words(true);
        let again: Vec<&str> = again.split(' ').skip_while(|word| *word != "run").skip(1).collect();
        let again = parsed(&again);
        assert!(again.entered && again.side() == Side::Outside);
        assert_eq!(again.program, ["firefox", "--new"].map(OsString::from));
    }

    #[test]
    fn the_own_group_is_that_of_version_2() {
        for (text, expected) in [
            ("0::/user.slice/a.scope\n", Some("user.slice/a.scope")),
            ("9:name=systemd:/x\n0::/ropewalk.slice/y.scope\n", Some("ropewalk.slice/y.scope")),
            ("0::/\n", Some("")),
            ("9:name=systemd:/x\n", None),
        ] {
            assert_eq!(group_in(text).as_deref(), expected, "{text}");
        }
    }
}
