//! What the entries of a client's `routes` and `exclude` choose: packets by where they go, or by the program that sends them.

use std::fmt;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::host::is_dns_name;
use crate::text::{Text, by_text, shown_as_written};
use crate::{nearest, pattern};

/// On which side of the tunnel packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// Around it, as without a tunnel: what `exclude` says.
    Outside,
    /// Through it: what `routes` says.
    Inside,
}

shown_as_written!(Side);

/// What one entry chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selector {
    /// Packets to these addresses.
    Prefix(IpNet),
    /// Packets of this user's programs.
    User(User),
    /// Packets of programs in a unit of systemd, of the system or of any user: its name, or a pattern of names.
    Unit(String),
    /// Packets of programs in this control group (version 2), or in one below it: the path from the root, without a slash
    /// in front.
    Cgroup(String),
    /// Packets of programs that `ropewalk run` started under this name.
    App(String),
    /// Packets to the addresses that name servers give for this name or one below it: in lower case and ASCII (A-labels,
    /// RFC 5890), without a dot at the end.
    Domain(String),
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum User {
    /// By name.
    Name(String),
    /// By number.
    Id(u32),
}

/// The words in front of a colon.
const KINDS: [&str; 5] = ["user", "unit", "cgroup", "app", "domain"];

/// What the name of a unit ends with, if programs can run in it (`systemd.unit(5)`).
const UNITS: [&str; 3] = [".service", ".scope", ".slice"];

/// Bytes of the longest name of a file, and so of a control group.
const MAX_NAME: usize = 255;

/// Bytes and levels of the longest path of a control group: systemd makes six levels, containers within containers some more.
const MAX_PATH: usize = 512;
const MAX_LEVELS: usize = 16;

/// Bytes of the longest name of a user (`useradd(8)` takes 32) or of an application.
const MAX_WORD: usize = 64;

/// How the control group of an application is called, in front of its name and behind it.
const SCOPE: (&str, &str) = ("ropewalk-app-", ".scope");

impl Selector {
    /// The prefix, if it is one.
    #[must_use]
    pub const fn prefix(&self) -> Option<IpNet> {
        match self {
            Self::Prefix(net) => Some(*net),
            Self::User(_) | Self::Unit(_) | Self::Cgroup(_) | Self::App(_) | Self::Domain(_) => {
                None
            }
        }
    }

    /// Whether it chooses by control groups.
    #[must_use]
    pub const fn is_by_cgroup(&self) -> bool {
        matches!(self, Self::Unit(_) | Self::Cgroup(_) | Self::App(_))
    }

    /// Whether it chooses by names that are looked up.
    #[must_use]
    pub const fn is_by_domain(&self) -> bool {
        matches!(self, Self::Domain(_))
    }

    /// Whether the control group whose folder has this name is meant, wherever it stands. A path says where.
    #[must_use]
    pub fn means_folder(&self, name: &str) -> bool {
        match self {
            Self::Unit(unit) => pattern::matches(unit, name),
            Self::App(app) => app_of_scope(name) == Some(app),
            Self::Prefix(_) | Self::User(_) | Self::Cgroup(_) | Self::Domain(_) => false,
        }
    }

    /// Whether this name (lower case, ASCII, no dot at the end) is the domain or stands below it.
    #[must_use]
    pub fn means_domain(&self, name: &str) -> bool {
        let Self::Domain(domain) = self else { return false };
        let below = name.strip_suffix(domain.as_str());
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    }
}

/// How the control group of a program is called that was started under this name by the process of this number.
#[must_use]
pub fn scope_of_app(app: &str, process: u32) -> String {
    format!("{}{app}-{process}{}", SCOPE.0, SCOPE.1)
}

/// The name under which the programs in the control group of this name were started.
#[must_use]
pub fn app_of_scope(scope: &str) -> Option<&str> {
    let rest = scope.strip_prefix(SCOPE.0)?.strip_suffix(SCOPE.1)?;
    let (app, process) = rest.rsplit_once('-')?;
    let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(app).filter(|app| !app.is_empty())
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(net) => write!(f, "{net}"),
            Self::User(User::Name(name)) => write!(f, "user:{name}"),
            Self::User(User::Id(id)) => write!(f, "user:{id}"),
            Self::Unit(name) => write!(f, "unit:{name}"),
            Self::Cgroup(path) => write!(f, "cgroup:{path}"),
            Self::App(name) => write!(f, "app:{name}"),
            Self::Domain(name) => write!(f, "domain:{name}"),
        }
    }
}

by_text!(Selector);

impl Text for Selector {
    const EXPECTED: &'static str = "a prefix, such as \"10.0.0.0/8\", or user:NAME, unit:NAME, cgroup:PATH, app:NAME or \
        domain:NAME";

    fn from_text(text: &str) -> Result<Self, String> {
        let Some((kind, name)) = text.split_once(':').filter(|(kind, _)| is_word(kind)) else {
            return match text.parse::<IpNet>() {
                Ok(_) => IpNet::from_text(text).map(Self::Prefix),
                Err(_) => Err(format!("`{text}` is not {}", Self::EXPECTED)),
            };
        };
        match kind {
            "user" => user(name),
            "unit" => unit(name),
            "cgroup" => cgroup(name),
            "app" => app(name),
            "domain" => domain(name),
            other => Err(match nearest(other, KINDS) {
                Some(near) => format!("`{other}:` is no kind of entry: did you mean `{near}:`?"),
                None => format!("`{other}:` is no kind of entry: write {}", Self::EXPECTED),
            }),
        }
    }
}

/// Whether it is a word, and not the begin of an IPv6 address.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphabetic())
        && text.bytes().any(|byte| !byte.is_ascii_hexdigit())
}

fn user(name: &str) -> Result<Selector, String> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return match name.parse() {
            // The largest number is the kernel's word for nobody at all.
            Ok(u32::MAX) | Err(_) => Err(format!("`user:{name}`: no user has this number")),
            Ok(id) => Ok(Selector::User(User::Id(id))),
        };
    }
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let body = name.strip_suffix('$').unwrap_or(name);
    if body.is_empty()
        || name.len() > MAX_WORD
        || body.starts_with('-')
        || !body.bytes().all(is_usual)
    {
        return Err(format!(
            "`user:{name}` names no user: write a name of /etc/passwd or a number, such as \"user:backup\" or \"user:1000\""
        ));
    }
    Ok(Selector::User(User::Name(name.to_owned())))
}

fn unit(name: &str) -> Result<Selector, String> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@*?".contains(&byte);
    let is_unit = UNITS.iter().any(|end| name.len() > end.len() && name.ends_with(end));
    if is_unit && name.len() <= MAX_NAME && name.bytes().all(is_usual) {
        return Ok(Selector::Unit(name.to_owned()));
    }
    Err(format!(
        "`unit:{name}` names no unit that programs run in: write its whole name or a pattern, such as \"unit:steam.service\" \
         or \"unit:app-firefox-*.scope\""
    ))
}

fn cgroup(path: &str) -> Result<Selector, String> {
    let below = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path);
    let below = below.trim_matches('/');
    if below.is_empty() {
        return Err(format!(
            "`cgroup:{path}` means every program: write the prefixes 0.0.0.0/0 and ::/0 for that"
        ));
    }
    let is_folder = |name: &str| {
        !matches!(name, "" | "." | "..") && name.len() <= MAX_NAME && is_plain_folder(name)
    };
    let is_path = below.split('/').count() <= MAX_LEVELS && below.split('/').all(is_folder);
    if !is_path || below.len() > MAX_PATH {
        return Err(format!(
            "`cgroup:{path}` is no path of a control group: write it as /proc/PID/cgroup shows it behind `0::`, such as \
             \"cgroup:system.slice/steam.service\""
        ));
    }
    Ok(Selector::Cgroup(below.to_owned()))
}

/// Whether the folder of a control group may be named in a rule of the firewall. A user may give those below their own nearly
/// any name.
#[must_use]
pub fn is_plain_folder(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'`$;{}".contains(&byte))
}

fn app(name: &str) -> Result<Selector, String> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > MAX_WORD || !name.bytes().all(is_usual) {
        return Err(format!(
            "`app:{name}`: the name of an application has 1 to {MAX_WORD} letters, digits, dots, dashes and underscores, such as \
             \"app:firefox\""
        ));
    }
    Ok(Selector::App(name.to_owned()))
}

fn domain(name: &str) -> Result<Selector, String> {
    let wrong = || {
        format!(
            "`domain:{name}` is no name of a domain: write it without a path, such as \"domain:example.org\"; the names below it \
             are meant too"
        )
    };
    if name.starts_with("*.") || name.starts_with('.') {
        let bare = name.trim_start_matches(['*', '.']);
        return Err(format!(
            "`domain:{name}`: write \"domain:{bare}\"; the names below it are meant too"
        ));
    }
    // Longer than any name in letters of another script that fits into 253 bytes of ASCII.
    if name.len() > 4 * MAX_NAME {
        return Err(wrong());
    }
    let ascii = idna::domain_to_ascii(name).map_err(|_| wrong())?;
    let bare = ascii.strip_suffix('.').unwrap_or(&ascii);
    if is_dns_name(bare) { Ok(Selector::Domain(bare.to_owned())) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_entry_is_read_and_shown_as_it_is_kept() {
        let same = [
            "10.0.0.0/8",
            "2001:db8::/32",
            "cafe::/16",
            "::/0",
            "user:backup",
            "user:1000",
            "user:_apt",
            "user:PC01$",
            "unit:steam.service",
            "unit:app-*firefox*.scope",
            "unit:user-1000.slice",
            "unit:getty@tty1.service",
            "unit:dev-disk\\x2dby.service",
            "cgroup:user.slice/user-1000.slice",
            "app:firefox",
            "app:google-chrome.beta",
            "domain:example.org",
            "domain:_dmarc.example.org",
            "domain:local",
        ];
        for text in same {
            assert_eq!(Selector::from_text(text).unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("cgroup:/system.slice/a.service/", "cgroup:system.slice/a.service"),
            ("cgroup:/sys/fs/cgroup/system.slice", "cgroup:system.slice"),
            ("domain:Example.ORG.", "domain:example.org"),
            ("domain:bücher.example", "domain:xn--bcher-kva.example"),
            ("domain:BÜCHER.example", "domain:xn--bcher-kva.example"),
            ("domain:xn--bcher-kva.example", "domain:xn--bcher-kva.example"),
        ] {
            assert_eq!(Selector::from_text(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_chooses_nothing_says_why() {
        let long = format!("app:{}", "a".repeat(65));
        let deep = format!("cgroup:{}", "a/".repeat(17));
        for (text, expected) in [
            ("everything", "is not a prefix"),
            ("10.0.0.1/8", "write \"10.0.0.0/8\""),
            ("usr:backup", "did you mean `user:`?"),
            ("process:firefox", "is no kind of entry: write a prefix"),
            ("user:", "names no user"),
            ("user:-x", "names no user"),
            ("user:two words", "names no user"),
            ("user:4294967295", "no user has this number"),
            ("user:4294967296000", "no user has this number"),
            ("unit:steam", "write its whole name"),
            ("unit:.service", "write its whole name"),
            ("unit:a/b.service", "write its whole name"),
            ("unit:a\".service", "write its whole name"),
            ("cgroup:", "means every program"),
            ("cgroup:/", "means every program"),
            ("cgroup:a/../b", "is no path"),
            ("cgroup:a//b", "is no path"),
            ("cgroup:a\"b", "is no path"),
            (&deep, "is no path"),
            ("app:", "1 to 64"),
            ("app:fire fox", "1 to 64"),
            (&long, "1 to 64"),
            ("domain:", "is no name of a domain"),
            ("domain:*.example.org", "write \"domain:example.org\""),
            ("domain:.example.org", "write \"domain:example.org\""),
            ("domain:https://example.org", "is no name of a domain"),
            ("domain:example.org/path", "is no name of a domain"),
            ("domain:a..b", "is no name of a domain"),
            ("domain:192.0.2.1", "is no name of a domain"),
        ] {
            let message = Selector::from_text(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_domain_means_itself_and_what_stands_below_it() {
        let domain = Selector::from_text("domain:example.org").unwrap();
        for (name, expected) in [
            ("example.org", true),
            ("www.example.org", true),
            ("a.b.example.org", true),
            ("notexample.org", false),
            ("example.org.evil.test", false),
            ("org", false),
            ("", false),
        ] {
            assert_eq!(domain.means_domain(name), expected, "{name}");
        }
        assert!(!Selector::App("example.org".to_owned()).means_domain("example.org"));
    }

    #[test]
    fn the_control_group_of_an_application_is_known_by_its_name() {
        let scope = scope_of_app("google-chrome", 4711);
        assert_eq!(scope, "ropewalk-app-google-chrome-4711.scope");
        for (scope, app) in [
            (scope.as_str(), Some("google-chrome")),
            ("ropewalk-app-a-1.scope", Some("a")),
            ("ropewalk-app-a-.scope", None),
            ("ropewalk-app--1.scope", None),
            ("ropewalk-app-a-x.scope", None),
            ("ropewalk-app-a-1.service", None),
            ("app-a-1.scope", None),
        ] {
            assert_eq!(app_of_scope(scope), app, "{scope}");
        }
        let chrome = Selector::from_text("app:google-chrome").unwrap();
        assert!(chrome.means_folder(&scope) && !chrome.means_folder("google-chrome"));
        assert!(!Selector::from_text("app:google").unwrap().means_folder(&scope));
        let unit = Selector::from_text("unit:app-*firefox*.scope").unwrap();
        assert!(unit.means_folder("app-gnome-firefox-77.scope"));
        assert!(!unit.means_folder("app-gnome-firefox-77.service"));
    }

    #[test]
    fn a_folder_with_a_name_that_a_rule_would_obey_is_not_named() {
        for (name, expected) in [
            ("app-org.gnome\\x2dTerminal-7.scope", true),
            ("user@1000.service", true),
            ("", false),
            ("a b", false),
            ("a\"; flush ruleset", false),
            ("a\n", false),
            ("ü", false),
        ] {
            assert_eq!(is_plain_folder(name), expected, "{name:?}");
        }
    }
}
