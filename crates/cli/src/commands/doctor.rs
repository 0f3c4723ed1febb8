//! `ropewalk doctor`: examines the daemons of this machine, shows what is wrong and what fixes it, and fixes it on request.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use ropewalk_control::api::Role;
use ropewalk_control::config::Source;
use ropewalk_control::{CLIENT_CONFIG, PROXY_CONFIG};
use ropewalk_doctor::{Examination, Finding, Fix, Level, Outcome, examine};
use serde::Serialize;

use super::check_config::role_of;
use crate::args::{self, Doctor};
use crate::exit::{Failure, plain, print};
use crate::render;

/// The version of the JSON document: it grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    examinations: &'a [Examination],
}

/// Examines what is there, prints the findings, fixes them if that is wanted, and fails if something still does.
pub(crate) fn run(doctor: &Doctor) -> Result<(), Failure> {
    if doctor.fix && !doctor.yes && !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "--fix asks before each change, and standard input is no terminal: --yes agrees to all"
                .to_owned(),
        ));
    }
    let mut examinations = examine_all(doctor);
    if doctor.json {
        let document = Document { version: VERSION, examinations: &examinations };
        let mut json =
            serde_json::to_string_pretty(&document).context("cannot write the findings as JSON")?;
        json.push('\n');
        print(&json)?;
    } else {
        print(&render::doctor::doctor(&examinations, render::columns()))?;
    }
    if doctor.fix && fix(&examinations, doctor.yes)? {
        print("\nExamined again:\n")?;
        examinations = examine_all(doctor);
        print(&render::doctor::doctor(&examinations, render::columns()))?;
    }
    let findings = examinations.iter().flat_map(|examination| &examination.findings);
    match findings.filter(|finding| finding.level == Level::Fail).count() {
        0 => Ok(()),
        1 => Err(Failure::Failed(anyhow!("one finding fails"))),
        count => Err(Failure::Failed(anyhow!("{count} findings fail"))),
    }
}

fn examine_all(doctor: &Doctor) -> Vec<Examination> {
    patients(doctor).into_iter().map(|(role, config)| examine(role, &config)).collect()
}

/// Fixes what can be fixed here, each after a yes. Returns whether anything was done.
fn fix(examinations: &[Examination], agreed: bool) -> Result<bool, Failure> {
    let mut done = false;
    let fixable: Vec<(Role, &Finding, &Fix)> = examinations
        .iter()
        .flat_map(|one| one.findings.iter().map(|finding| (one.role, finding)))
        .filter(|(_, finding)| !finding.at_proxy)
        .filter_map(|(role, finding)| Some((role, finding, finding.fix.as_ref()?)))
        .collect();
    if fixable.is_empty() {
        print("\nNothing here can be fixed without you.\n")?;
    }
    for (role, finding, fix) in fixable {
        let text = format!("\n{}: {}\n  fix: {fix}\n", finding.subject, finding.found);
        print(&plain(&text))?;
        if !agreed && !asked("  do it? [y/N] ")? {
            print("  left as it is\n")?;
            continue;
        }
        match fix.apply(role) {
            Ok(Outcome::Edited { kept, by_reload }) => {
                let needed = needed(role, by_reload);
                print(&format!("  done; as it was: {}. {needed}\n", kept.display()))?;
                done = true;
            }
            Ok(Outcome::Done) => {
                print("  done\n")?;
                done = true;
            }
            Ok(Outcome::AlreadyThere { by_reload }) => {
                let needed = needed(role, by_reload);
                print(&format!("  the file says so already, and is left as it is. {needed}\n"))?;
            }
            // The others may work.
            Err(error) => print(&plain(&format!("  failed: {error:#}\n")))?,
        }
    }
    Ok(done)
}

/// What makes a running daemon use the change of its config.
fn needed(role: Role, by_reload: bool) -> String {
    match by_reload {
        true => "A running daemon needs `sudo ropewalk reload`, or a restart".to_owned(),
        false => {
            format!("A running daemon must be restarted: `sudo systemctl restart ropewalk-{role}`")
        }
    }
}

/// Whether the user says yes.
fn asked(question: &str) -> Result<bool, Failure> {
    print(question)?;
    std::io::stdout().flush().context("cannot ask")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Whose config is examined: the one that is named, else those that are there, else what a client's would be.
fn patients(doctor: &Doctor) -> Vec<(Role, PathBuf)> {
    if let Some(file) = &doctor.config {
        let role = doctor.role.map_or_else(|| guess(file), role);
        return vec![(role, file.clone())];
    }
    if let Some(wanted) = doctor.role {
        let (role, file) = match wanted {
            args::RoleArgument::Client => (Role::Client, CLIENT_CONFIG),
            args::RoleArgument::Proxy => (Role::Proxy, PROXY_CONFIG),
        };
        return vec![(role, file.into())];
    }
    let usual = [(Role::Client, CLIENT_CONFIG), (Role::Proxy, PROXY_CONFIG)];
    let mut there: Vec<(Role, PathBuf)> = usual
        .into_iter()
        .map(|(role, file)| (role, PathBuf::from(file)))
        // What cannot be looked at may be there.
        .filter(|(_, file)| !matches!(file.try_exists(), Ok(false)))
        .collect();
    if there.is_empty() {
        there.push((Role::Client, CLIENT_CONFIG.into()));
    }
    there
}

const fn role(of: args::RoleArgument) -> Role {
    match of {
        args::RoleArgument::Client => Role::Client,
        args::RoleArgument::Proxy => Role::Proxy,
    }
}

/// By its keys, else by its name.
pub(crate) fn guess(file: &Path) -> Role {
    let by_keys = Source::read(file).ok().and_then(|source| role_of(&source).ok());
    by_keys.map_or_else(
        || match file.file_name().is_some_and(|name| name.to_string_lossy().contains("proxy")) {
            true => Role::Proxy,
            false => Role::Client,
        },
        role,
    )
}
