//! The machine: versions, what it is made of, its units, links, routes and our firewall tables.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use ropewalk_control::api::Role;
use ropewalk_settings::figures::size;

use super::program;

/// A part of the report that a program prints.
pub(crate) type Asked = (&'static str, &'static str, &'static [&'static str]);

/// Links and routes: title, program, arguments.
pub(crate) const NETWORK: [Asked; 7] = [
    ("Interfaces", "ip", &["-statistics", "link"]),
    ("Addresses", "ip", &["address"]),
    ("Rules", "ip", &["rule"]),
    ("Rules, IPv6", "ip", &["-6", "rule"]),
    ("Routes", "ip", &["route", "show", "table", "all"]),
    ("Routes, IPv6", "ip", &["-6", "route", "show", "table", "all"]),
    ("Firewall: tables", "nft", &["list", "tables"]),
];

/// The tables of a daemon in the firewall.
pub(crate) const fn tables(role: Role) -> &'static [Asked] {
    match role {
        Role::Client => &[
            ("Firewall: the client's table", "nft", &["list", "table", "inet", "ropewalk_client"]),
            ("Firewall: the kill switch", "nft", &["list", "table", "inet", "ropewalk_lock"]),
            // Without the addresses of domains.
            (
                "Firewall: chosen connections",
                "nft",
                &["--terse", "list", "table", "inet", "ropewalk_split"],
            ),
        ],
        Role::Proxy => {
            &[("Firewall: the proxy's table", "nft", &["list", "table", "inet", "ropewalk_proxy"])]
        }
    }
}

/// What systemd knows of a daemon's unit.
pub(crate) const UNIT: [&str; 2] = [
    "show",
    "--property=Id,LoadState,UnitFileState,FragmentPath,DropInPaths,ActiveState,SubState,Result,NRestarts,ExecMainCode,\
     ExecMainStatus,ActiveEnterTimestamp,InactiveEnterTimestamp,WatchdogTimestamp,MemoryCurrent,NeedDaemonReload",
];

/// Program, kernel, distribution, and the programs that the daemons use.
pub(crate) fn versions() -> String {
    let libc = if cfg!(target_env = "musl") { "musl, static" } else { "dynamic" };
    let build = if cfg!(debug_assertions) { ", a debug build" } else { "" };
    let own = std::env::current_exe().map(|path| path.display().to_string());
    let facts = [
        (
            "ropewalk",
            format!(
                "{} for {} ({libc}{build}), {}",
                env!("CARGO_PKG_VERSION"),
                std::env::consts::ARCH,
                own.unwrap_or_else(|error| error.to_string())
            ),
        ),
        (
            "package",
            program::first_line("dpkg-query", &["-W", "-f", "${Version} ${Status}", "ropewalk"]),
        ),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("its build", read("/proc/sys/kernel/version")),
        ("modules of security", read("/sys/kernel/security/lsm")),
        ("distribution", distribution()),
        ("virtual machine", program::first_line("systemd-detect-virt", &[])),
        ("systemd", program::first_line("systemctl", &["--version"])),
        ("nft", program::first_line("nft", &["--version"])),
        ("ip", program::first_line("ip", &["-V"])),
        ("resolvectl", program::first_line("resolvectl", &["--version"])),
        ("TUN", tun()),
    ];
    lines(&facts)
}

/// What the machine is made of, and how full it is.
pub(crate) fn resources(folders: &[&Path]) -> String {
    let memory = read("/proc/meminfo");
    let of_memory = |name: &str| {
        let line = memory.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(':').nth(1)).unwrap_or("?").trim().to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let [all, available, swap, free_swap] =
        ["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"].map(of_memory);
    let mut facts = vec![
        ("cores", cores.to_string()),
        ("load", read("/proc/loadavg")),
        ("running for", uptime()),
        ("memory", format!("{all}, {available} of it available")),
        ("swap", format!("{swap}, {free_swap} of it free")),
        ("connections", tracked()),
    ];
    for folder in folders {
        facts.push(("disk", format!("{}: {}", folder.display(), free(folder))));
    }
    lines(&facts)
}

fn lines(facts: &[(&str, String)]) -> String {
    facts.iter().map(|(name, value)| format!("{name:<20} {value}\n")).collect()
}

/// A file of the kernel's, on one line where it is one; or why not.
fn read(file: &str) -> String {
    match fs::read_to_string(file) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("({file}: {error})"),
    }
}

fn distribution() -> String {
    // os-release(5) names these two places.
    let texts = ["/etc/os-release", "/usr/lib/os-release"].map(fs::read_to_string);
    let text = texts.into_iter().find_map(Result::ok).unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    named.unwrap_or("(unknown)").trim_matches('"').to_owned()
}

fn tun() -> String {
    const DEVICE: &str = "/dev/net/tun";

    match fs::metadata(DEVICE) {
        Ok(found) => format!("{DEVICE}, mode {:04o}", found.mode() & 0o7777),
        Err(error) => format!("{DEVICE}: {error}"),
    }
}

fn uptime() -> String {
    let text = read("/proc/uptime");
    let seconds = text.split('.').next().and_then(|whole| whole.parse().ok());
    let passed = seconds.map(|seconds| humantime::format_duration(Duration::from_secs(seconds)));
    passed.map_or(text, |passed| passed.to_string())
}

/// How full the kernel's table of connections is, where there is one.
fn tracked() -> String {
    const TABLE: &str = "/proc/sys/net/netfilter/nf_conntrack_";

    let of = |name: &str| fs::read_to_string(format!("{TABLE}{name}"));
    match (of("count"), of("max")) {
        (Ok(count), Ok(most)) => format!("{} of {} tracked", count.trim(), most.trim()),
        _ => "not tracked here".to_owned(),
    }
}

fn free(folder: &Path) -> String {
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let all = disk.f_blocks.saturating_mul(disk.f_frsize);
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let files = format!("{} of {} files", disk.f_ffree, disk.f_files);
            format!("{} of {} free, {files}", size(free), size(all))
        }
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_tells_of_itself_whatever_it_lacks() {
        let told = versions();
        for name in ["ropewalk ", "kernel ", "distribution ", "nft ", "TUN "] {
            assert!(told.lines().any(|line| line.starts_with(name)), "{name}: {told}");
        }
        let told = resources(&[Path::new("/"), Path::new("/nowhere/at/all")]);
        let parts =
            [("memory ", "kB of it available"), ("disk ", " free, "), ("disk ", "/nowhere/at/all")];
        for (name, part) in parts {
            let is_told = |line: &str| line.starts_with(name) && line.contains(part);
            assert!(told.lines().any(is_told), "{name}{part}: {told}");
        }
    }
}
