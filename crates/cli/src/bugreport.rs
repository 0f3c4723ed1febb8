//! `ropewalk bugreport`: one text about a daemon and its machine that its owner can read through and attach to an issue.
//!
//! Every part is gathered by itself: what fails, hangs or panics costs that part, and the report says so. Then all names are known
//! that are to be hidden, and only then the parts are put together.
//!
//! | file | what |
//! | --- | --- |
//! | [`subject`] | which daemons |
//! | [`config`], [`folder`], [`daemon`], [`machine`] | what is gathered |
//! | [`program`] | other programs, within bounds |
//! | [`hide`] | what is taken out of all of it |
//! | [`report`] | how it is put together |
//! | [`mod@file`] | where it is written |

mod config;
mod daemon;
mod file;
mod folder;
mod hide;
mod machine;
mod program;
mod report;
mod subject;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use ropewalk_control::api::Role;
use ropewalk_control::runtime_folder;
use ropewalk_doctor::{Examination, examine};

use crate::args::Bugreport;
use crate::commands::logs::{self, Place};
use crate::exit::Failure;
use crate::render;
use daemon::Looked;
use hide::Hider;
use report::{Nature, Report};
use subject::Subject;

pub(crate) use file::write;
pub(crate) use subject::subjects;

/// How long an examination may take: with many links it asks for some seconds, and a name server that does not answer takes more.
const EXAMINED_WITHIN: Duration = Duration::from_secs(90);

/// How long looking at a daemon may take: the pause between, and four questions with the patience of each.
const LOOKED_WITHIN: Duration = Duration::from_secs(40);

/// What was gathered of one daemon.
struct Gathered<'a> {
    subject: &'a Subject,
    looked: Result<Looked, String>,
    examined: Result<Examination, String>,
    log: (String, Result<String, String>),
}

/// Gathers everything about these daemons. `progress` is told what is done at the moment.
///
/// # Errors
/// There is no client of the name that was said: all else is told in the report.
pub(crate) fn make<'a>(
    wanted: &Bugreport,
    subjects: &'a [Subject],
    progress: impl Fn(&str),
) -> Result<Report, Failure> {
    let mut gathered = Vec::new();
    for subject in subjects {
        gathered.push(gather(wanted, subject, &progress)?);
    }
    progress("asking the system for links, routes and the firewall ...");
    let mut hider = Hider::new(wanted.show_addresses);
    learn(&gathered, &mut hider);
    let made = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let user = if rustix::process::geteuid().is_root() { "root" } else { "an ordinary user" };
    let by = format!("ropewalk {}, as {user}", env!("CARGO_PKG_VERSION"));
    let mut report = Report::new(made, by, left_out(&hider));
    let nameless = |one: Gathered<'a>| {
        let looked = one.looked.map(|looked| looked.without_names(&mut hider));
        Gathered { looked, ..one }
    };
    let gathered: Vec<Gathered<'a>> = gathered.into_iter().map(nameless).collect();
    gathered.iter().for_each(|one| of_daemon(&mut report, &mut hider, one));
    of_machine(&mut report, &mut hider, subjects);
    gathered.iter().for_each(|one| of_documents(&mut report, &mut hider, one));
    Ok(report)
}

/// When a report begins, for the name of its file: such as `2026-11-27T163200Z`.
pub(crate) fn moment() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "")
}

fn gather<'a>(
    wanted: &Bugreport,
    subject: &'a Subject,
    progress: &impl Fn(&str),
) -> Result<Gathered<'a>, Failure> {
    let role = subject.role;
    progress(&format!("looking at the {role} for {} s ...", daemon::BETWEEN.as_secs()));
    let (socket, peer) = (subject.socket.clone(), wanted.peer.clone());
    let looked = within(LOOKED_WITHIN, move || daemon::look(&socket, peer.as_deref()));
    let looked = match looked {
        // A name that nobody has is the user's to put right, and not to be reported.
        Ok(Err(wrong @ Failure::Usage(_))) => return Err(wrong),
        Ok(looked) => looked.map_err(|failure| failure.to_string()),
        Err(why) => Err(why),
    };
    let pid = looked.as_ref().ok().map(Looked::pid);
    let log = log(role, pid, wanted.lines);
    progress(&format!(
        "examining the {role} (`ropewalk doctor`), which takes some seconds where something does not answer ..."
    ));
    let file = subject.file.clone();
    let examined = within(EXAMINED_WITHIN, move || examine(role, &file));
    Ok(Gathered { subject, looked, examined, log })
}

/// What this gives, if it ends in time and does not panic.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = mpsc::channel();
    // Nobody listens any more if it was too slow; the thread ends with the program.
    thread::spawn(move || drop(tell.send(work())));
    told.recv_timeout(limit).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => format!("it did not end within {} s", limit.as_secs()),
        mpsc::RecvTimeoutError::Disconnected => {
            "it ended by a fault of its own, which is worth a report, too".to_owned()
        }
    })
}

/// Where the log is from, and its last lines.
fn log(role: Role, pid: Option<u32>, lines: u16) -> (String, Result<String, String>) {
    match logs::place_of(pid, role) {
        Place::Journal { unit, .. } => {
            let lines = lines.to_string();
            let arguments =
                ["--no-pager", "--quiet", "--output", "cat", "--lines", &lines, "--unit", &unit];
            let had = program::run("journalctl", &arguments);
            let had = had.and_then(|text| match text.trim().is_empty() {
                true => Err(format!("the journal shows nothing of {unit} to this user")),
                false => Ok(text),
            });
            (program::line("journalctl", &arguments), had)
        }
        Place::File { path, .. } => {
            let shown = path.display().to_string();
            let last = logs::tail(&path, lines);
            let last = last.map_err(|error| format!("cannot read {shown}: {error}"));
            (shown, last)
        }
        Place::Elsewhere { to } => {
            (to.clone(), Err(format!("the log goes to {to}, and is kept nowhere else")))
        }
    }
}

fn learn(gathered: &[Gathered<'_>], hider: &mut Hider) {
    if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        hider.learn_host(name.trim());
    }
    for one in gathered {
        if let Ok(table) = &one.subject.config {
            config::learn(table, hider);
        }
        if let Ok(looked) = &one.looked {
            looked.learn(hider);
        }
    }
}

/// What is not in a report, or hidden in it.
fn left_out(hider: &Hider) -> Vec<String> {
    let addresses = match hider.shows_addresses() {
        true => {
            "Addresses of the Internet and names of hosts are NOT hidden, as --show-addresses said."
        }
        false => {
            "Addresses of the Internet, and names of this machine, of proxies and other hosts: `<v4-1>`, `<v6-1>`, `<host-1>`. \
             Those of private networks are shown. --show-addresses leaves all as they are."
        }
    };
    let always = [
        "Keys, private, preshared and public ones alike, stand as `<key-1>`; invitations, certificates and other long tokens as \
         `<invitation>`, `<pem>`, `<token-1>`. Files of keys, of invitations and of who joined are not read for it.",
        "Of the config, comments, and all that is no known setting.",
        "Hardware addresses (`<mac-1>`), names of home folders, and what is behind the host in an address of the web.",
        "Names of a proxy's clients (`<client-1>`), and of the devices behind a client (`<device-1>`).",
        "What `routes` and `exclude` choose beyond prefixes and numbers of users: `app:<app-1>`, `cgroup:<cgroup-1>`, \
         `unit:<unit-1>`, `user:<user-1>`, and domains as hosts: `domain:<host-1>`.",
        "What flows carry, and their addresses: flows are counted only.",
        "What is equal has the same number everywhere. Names that stand in sentences of other programs are found by their looks: \
         read it through.",
    ];
    std::iter::once(addresses).chain(always).map(str::to_owned).collect()
}

/// A part before anything is hidden in it: its title, where it is from, and what was found.
type Found = (String, String, Result<String, String>);

/// The parts about one daemon, what is read first at the beginning.
fn of_daemon(report: &mut Report, hider: &mut Hider, one: &Gathered<'_>) {
    let Gathered { subject, looked, examined, log } = one;
    let (role, socket, file) = (subject.role, subject.socket.display(), subject.file.display());
    let title = |what: &str| format!("{}: {what}", capital(role));
    let seen = |show: fn(&Looked) -> String| looked.as_ref().map(show).map_err(Clone::clone);
    let command = |name: &str| format!("ropewalk {name} --socket {socket}");

    let examined = match examined {
        Ok(examination) => Ok(findings(examination.clone(), hider)),
        Err(why) => Err(why.clone()),
    };
    let config = match &subject.config {
        Ok(table) => config::as_toml(role, table, hider),
        Err(why) => Err(why.clone()),
    };
    let unit = logs::unit_of(role);
    let of_unit = [machine::UNIT[0], machine::UNIT[1], unit.as_str()];
    let mut parts: Vec<Found> = vec![
        (title("status"), command("status"), seen(Looked::status)),
        (title("doctor"), format!("ropewalk doctor --config {file}"), examined),
        (title("why"), command("why"), seen(Looked::why)),
        (title("flows"), "GET /v1/flows, counted".to_owned(), seen(Looked::flows)),
        (title("config"), file.to_string(), config),
        (title("unit"), format!("systemctl show {unit}"), program::run("systemctl", &of_unit)),
    ];
    if let Ok(Some(clients)) = looked.as_ref().map(Looked::clients) {
        parts.push((title("clients"), "GET /v1/peers, counted".to_owned(), Ok(clients)));
    }
    if let Ok(Some(devices)) = looked.as_ref().map(Looked::devices) {
        parts.push((title("devices"), "GET /v1/devices, counted".to_owned(), Ok(devices)));
    }
    let of_config = subject.file.parent().map(Path::to_owned);
    let of_state = config::state_folder(role, subject.config.as_ref().ok());
    let of_runtime = Some(PathBuf::from(runtime_folder(role)));
    for folder in [of_config, of_state, of_runtime].into_iter().flatten() {
        let shown = folder.display().to_string();
        parts.push((title(&shown), format!("ls {shown}"), folder::list(&folder)));
    }
    add(report, hider, parts);
    let (title, (from, lines)) = (title("log"), log);
    report.add(hider, (title.as_str(), from.as_str()), Nature::Log, lines.clone());
}

/// What `ropewalk doctor` found, as it shows it.
fn findings(mut examination: Examination, hider: &mut Hider) -> String {
    for finding in &mut examination.findings {
        // Before they are wrapped: a name may have several words.
        let texts = [&mut finding.subject, &mut finding.found, &mut finding.advice];
        for text in texts.into_iter().chain(&mut finding.commands) {
            *text = hider.prose(text);
        }
    }
    render::doctor::doctor(&[examination], daemon::COLUMNS)
}

/// The parts about the machine.
fn of_machine(report: &mut Report, hider: &mut Hider, subjects: &[Subject]) {
    let states: Vec<_> = subjects
        .iter()
        .filter_map(|one| config::state_folder(one.role, one.config.as_ref().ok()))
        .collect();
    let folders: Vec<&Path> =
        [Path::new("/")].into_iter().chain(states.iter().map(PathBuf::as_path)).collect();
    let mut parts: Vec<Found> = vec![
        ("Versions".to_owned(), "--version of each, /proc".to_owned(), Ok(machine::versions())),
        ("Machine".to_owned(), "/proc".to_owned(), Ok(machine::resources(&folders))),
    ];
    let of_daemons = subjects.iter().flat_map(|one| machine::tables(one.role));
    for (title, program, arguments) in machine::NETWORK.iter().chain(of_daemons) {
        let from = program::line(program, arguments);
        parts.push(((*title).to_owned(), from, program::run(program, arguments)));
    }
    add(report, hider, parts);
}

/// What is for programs rather than for people, and long.
fn of_documents(report: &mut Report, hider: &mut Hider, one: &Gathered<'_>) {
    let (role, socket) = (one.subject.role, one.subject.socket.display());
    let (document, numbers) = match &one.looked {
        Ok(looked) => (looked.document(), Ok(looked.numbers())),
        Err(why) => (Err(why.clone()), Err(why.clone())),
    };
    let title = |what: &str| format!("{}: {what}", capital(role));
    let parts = vec![
        (title("the whole status"), format!("ropewalk status --json --socket {socket}"), document),
        (title("numbers"), "GET /metrics, made of that".to_owned(), numbers),
    ];
    add(report, hider, parts);
}

fn add(report: &mut Report, hider: &mut Hider, parts: Vec<Found>) {
    for (title, from, found) in parts {
        report.add(hider, (title.as_str(), from.as_str()), Nature::Output, found);
    }
}

const fn capital(role: Role) -> &'static str {
    match role {
        Role::Client => "Client",
        Role::Proxy => "Proxy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_or_panics_costs_no_more_than_itself() {
        assert_eq!(within(Duration::from_secs(9), || 7), Ok(7));
        let limit = Duration::from_millis(20);
        let slow = within(limit, || thread::sleep(Duration::from_secs(3)));
        assert_eq!(slow, Err("it did not end within 0 s".to_owned()));
        let broken = within(Duration::from_secs(9), || -> u8 { panic!("on purpose") });
        assert!(broken.unwrap_err().contains("a fault of its own"));
    }

    #[test]
    fn it_says_whether_addresses_are_hidden() {
        let says = |shows| left_out(&Hider::new(shows)).concat();
        assert!(says(true).contains("NOT hidden") && !says(false).contains("NOT hidden"));
        assert!(says(true).contains("`<key-1>`"));
    }
}
