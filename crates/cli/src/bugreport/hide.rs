//! Takes out of a report what is nobody's business but its owner's, and puts a word in its place that says what stood there.
//!
//! | stands in | for | by |
//! | --- | --- | --- |
//! | `<key-1>` | 32 bytes in base64: private, preshared and public keys alike, which nobody can tell apart | its shape |
//! | `<invitation>`, `<pem>`, `<token-1>` | invitations, blocks of keys and certificates, 32 letters and digits and more without a pause | its shape |
//! | `<mac-1>` | hardware addresses, those in names of interfaces too | its shape |
//! | `http://<host-1>/...` | addresses of the web: what is behind the host may be a secret, and so may a user before it | its shape |
//! | `<v4-1>`, `<v6-1>` | addresses of the Internet, and IPv6 addresses that are made of hardware addresses | its shape |
//! | `<host-1>` | names of hosts | being told ([`Hider::learn_host`]) |
//! | `<client-1>` | names of a proxy's clients | being told ([`Hider::learn_client`]) |
//! | `<device-1>` | names of the devices behind a client | being told ([`Hider::learn_device`]) |
//! | `app:<app-1>`, `cgroup:<cgroup-1>`, `domain:<host-1>`, `unit:<unit-1>`, `user:<user-1>` | entries of `routes` and `exclude` that are no prefixes | their shape, and being told ([`Hider::learn_entry`]) |
//! | `r<rule-1>` | numbers of rules, which are made of these | their shape |
//! | `/home/<user>` | home folders | its shape |
//!
//! What is equal has the same number throughout a report, so a reader can tell that two lines are about one address. Addresses of
//! the Internet and names of hosts can be left as they are ([`Hider::new`]); no setting shows a key.

mod chosen;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ropewalk_settings::{Selector, User};

use chosen::{Chosen, SCOPE};
use shapes::{Shape, Url};

/// Names that stand in every report with another meaning, and tell nothing about who has them.
const USUAL: [&str; 27] = [
    "client",
    "clients",
    "daemon",
    "debian",
    "down",
    "error",
    "host",
    "info",
    "key",
    "link",
    "links",
    "linux",
    "localhost",
    "log",
    "mac",
    "nobody",
    "peer",
    "proxy",
    "root",
    "ropewalk",
    "server",
    "token",
    "tunnel",
    "ubuntu",
    "up",
    "user",
    "warn",
];

/// Characters of the shortest name that is looked for in sentences.
const LEAST_NAME: usize = 2;

/// What has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    App,
    Client,
    Device,
    Group,
    Host,
    Key,
    Mac,
    Rule,
    Token,
    Unit,
    User,
    V4,
    V6,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Client => "client",
            Self::Device => "device",
            Self::Group => "cgroup",
            Self::Host => "host",
            Self::Key => "key",
            Self::Mac => "mac",
            Self::Rule => "rule",
            Self::Token => "token",
            Self::Unit => "unit",
            Self::User => "user",
            Self::V4 => "v4",
            Self::V6 => "v6",
        }
    }
}

/// Hides, and remembers what stands in for what.
#[derive(Debug, Default)]
pub(crate) struct Hider {
    shows_addresses: bool,
    known: BTreeMap<Kind, BTreeMap<String, usize>>,
    /// In small letters.
    hosts: BTreeSet<String>,
    /// Of clients, devices, programs and users: they are words like others, and looked for in sentences only.
    names: BTreeMap<String, Kind>,
}

impl Hider {
    /// With `shows_addresses` addresses of the Internet and names of hosts stay as they are.
    pub(crate) fn new(shows_addresses: bool) -> Self {
        Self { shows_addresses, ..Self::default() }
    }

    /// Whether addresses of the Internet stay as they are.
    pub(crate) const fn shows_addresses(&self) -> bool {
        self.shows_addresses
    }

    /// The name of a host, perhaps with a port behind it; an address is known by its shape.
    pub(crate) fn learn_host(&mut self, text: &str) {
        let bare = text.trim_start_matches('[');
        let bare = bare.split([']', '/']).next().unwrap_or_default();
        if bare.parse::<IpAddr>().is_ok() {
            return;
        }
        let name = bare.rsplit_once(':').map_or(bare, |(name, _)| name);
        let name = name.trim_matches('.').to_ascii_lowercase();
        if is_worth_looking_for(&name) && name.parse::<IpAddr>().is_err() {
            self.hosts.insert(name);
        }
    }

    /// The name of a client of this proxy.
    pub(crate) fn learn_client(&mut self, name: &str) {
        self.learn_name(Kind::Client, name);
    }

    /// The name of a device behind this client.
    pub(crate) fn learn_device(&mut self, name: &str) {
        self.learn_name(Kind::Device, name);
    }

    /// An entry of `routes` or `exclude`.
    pub(crate) fn learn_entry(&mut self, entry: &Selector) {
        match entry {
            // A single word (`local`) tells nothing, and stands everywhere.
            Selector::Domain(name) if name.contains('.') => self.learn_host(name),
            Selector::App(name) => self.learn_name(Kind::App, name),
            Selector::Unit(name) => self.learn_name(Kind::Unit, name),
            Selector::Cgroup(path) => self.learn_group(path),
            Selector::User(User::Name(name)) => self.learn_name(Kind::User, name),
            Selector::Prefix(_) | Selector::Domain(_) | Selector::User(User::Id(_)) => {}
        }
    }

    /// The path of a control group that is chosen.
    pub(crate) fn learn_group(&mut self, path: &str) {
        self.learn_name(Kind::Group, path);
    }

    fn learn_name(&mut self, kind: Kind, name: &str) {
        if is_worth_looking_for(&name.to_ascii_lowercase()) {
            self.names.entry(name.to_owned()).or_insert(kind);
        }
    }

    /// What stands in for the name of a client, where it is certain that it is one.
    pub(crate) fn client(&mut self, name: &str) -> String {
        self.stand_in(Kind::Client, name)
    }

    /// What stands in for the name of a device, where it is certain that it is one.
    pub(crate) fn device(&mut self, name: &str) -> String {
        self.stand_in(Kind::Device, name)
    }

    /// An entry of `routes` or `exclude` without what it names. Prefixes and numbers of users stay.
    pub(crate) fn entry(&mut self, entry: &Selector) -> Selector {
        match entry {
            Selector::Domain(_) if self.shows_addresses => entry.clone(),
            Selector::Domain(name) => Selector::Domain(self.stand_in(Kind::Host, name)),
            Selector::App(name) => Selector::App(self.stand_in(Kind::App, name)),
            Selector::Unit(name) => Selector::Unit(self.stand_in(Kind::Unit, name)),
            Selector::Cgroup(path) => Selector::Cgroup(self.stand_in(Kind::Group, path)),
            Selector::User(User::Name(name)) => {
                Selector::User(User::Name(self.stand_in(Kind::User, name)))
            }
            Selector::Prefix(_) | Selector::User(User::Id(_)) => entry.clone(),
        }
    }

    /// A text of programs, or a document whose names of clients were replaced: all that is known by its shape, and hosts.
    pub(crate) fn text(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let (mut before, mut rest) = (None, text);
        while !rest.is_empty() {
            let length = match self.found(before, rest) {
                Some((length, instead)) => {
                    shown.push_str(&instead);
                    length
                }
                None => {
                    let length = step(rest);
                    shown.push_str(&rest[..length]);
                    length
                }
            };
            let (passed, after) = rest.split_at(length);
            (before, rest) = (passed.chars().next_back(), after);
        }
        shown
    }

    /// Sentences of people and lines of a log: the same, and names of clients, devices, programs and users.
    pub(crate) fn prose(&mut self, text: &str) -> String {
        let shown = self.text(text);
        if self.names.is_empty() { shown } else { self.without_names(&shown) }
    }

    /// What hides the beginning of `rest`, and how many bytes of it.
    fn found(&mut self, before: Option<char>, rest: &str) -> Option<(usize, String)> {
        if let Some((length, shape)) = shapes::at(before, rest)
            && let Some(instead) = self.instead(shape)
        {
            return Some((length, instead));
        }
        let length = self.host_at(before, rest)?;
        let name = rest[..length].to_ascii_lowercase();
        Some((length, self.stand_in(Kind::Host, &name)))
    }

    /// What stands in for a shape; `None`: it may be seen.
    fn instead(&mut self, shape: Shape) -> Option<String> {
        Some(match shape {
            Shape::Invitation => "<invitation>".to_owned(),
            Shape::Pem => "<pem>".to_owned(),
            Shape::Home => "/home/<user>".to_owned(),
            Shape::Key(key) => self.stand_in(Kind::Key, &key),
            Shape::Token(token) => self.stand_in(Kind::Token, &token),
            Shape::Mac(mac) => self.stand_in(Kind::Mac, &mac),
            Shape::MacInName(kind, mac) => kind + &self.stand_in(Kind::Mac, &mac),
            Shape::Address(_) if self.shows_addresses => return None,
            Shape::Address(address) => self.address(address),
            Shape::Url(url) => self.url(&url),
            Shape::Chosen(Chosen::Entry("domain", _)) if self.shows_addresses => return None,
            Shape::Chosen(chosen) => self.chosen(chosen),
        })
    }

    fn chosen(&mut self, chosen: Chosen) -> String {
        match chosen {
            Chosen::Entry(word, name) => {
                let kind = match word {
                    "app" => Kind::App,
                    "cgroup" => Kind::Group,
                    "domain" => Kind::Host,
                    "unit" => Kind::Unit,
                    _ => Kind::User,
                };
                format!("{word}:{}", self.stand_in(kind, &name))
            }
            Chosen::Group(before, path) => before + &self.stand_in(Kind::Group, &path),
            Chosen::Scope(app) => format!("{SCOPE}{}.scope", self.stand_in(Kind::App, &app)),
            Chosen::Rule(before, number) => before.to_owned() + &self.stand_in(Kind::Rule, &number),
        }
    }

    fn address(&mut self, address: IpAddr) -> String {
        // The same machine, whichever way it is written.
        let address = address.to_canonical();
        let kind = if address.is_ipv4() { Kind::V4 } else { Kind::V6 };
        self.stand_in(kind, &address.to_string())
    }

    fn url(&mut self, url: &Url) -> String {
        let Url { scheme, host, has_more } = url;
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
            _ => (host.as_str(), ""),
        };
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let is_own = bare == "localhost" || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        let shown = match bare.parse::<IpAddr>() {
            _ if is_own || self.shows_addresses => name.to_owned(),
            Ok(address) => match self.text(bare) {
                same if same == bare => name.to_owned(),
                _ => self.address(address),
            },
            Err(_) => self.stand_in(Kind::Host, &bare.to_ascii_lowercase()),
        };
        let port = if port.is_empty() { String::new() } else { format!(":{port}") };
        let more = if *has_more { "/..." } else { "" };
        format!("{scheme}://{shown}{port}{more}")
    }

    /// The bytes of a known host's name at the beginning of `rest`.
    fn host_at(&self, before: Option<char>, rest: &str) -> Option<usize> {
        let within = |c: char| c.is_alphanumeric() || c == '-';
        if self.shows_addresses || before.is_some_and(within) {
            return None;
        }
        let is_here = |name: &&String| {
            let Some((here, after)) = rest.split_at_checked(name.len()) else { return false };
            here.eq_ignore_ascii_case(name) && !after.starts_with(within)
        };
        self.hosts.iter().filter(is_here).map(String::len).max()
    }

    fn without_names(&mut self, text: &str) -> String {
        let names = std::mem::take(&mut self.names);
        // By their first words, for there may be thousands.
        let mut known: BTreeMap<&str, Vec<(&str, Kind)>> = BTreeMap::new();
        for (name, kind) in &names {
            known.entry(first_word(name)).or_default().push((name.as_str(), *kind));
        }
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            let word = first_word(rest);
            // A full stop may belong to a name, or end a sentence.
            let words = [word, word.trim_end_matches('.')];
            let begin_so = words.into_iter().filter_map(|word| known.get(word)).flatten();
            let here = begin_so.filter(|(name, _)| is_whole(rest, name));
            let length = match here.max_by_key(|(name, _)| name.len()) {
                Some((name, kind)) => {
                    shown.push_str(&self.stand_in(*kind, name));
                    name.len()
                }
                None => {
                    let length = word.len().max(next.len_utf8());
                    shown.push_str(&rest[..length]);
                    length
                }
            };
            rest = &rest[length..];
        }
        drop(known);
        self.names = names;
        shown
    }

    fn stand_in(&mut self, kind: Kind, what: &str) -> String {
        let known = self.known.entry(kind).or_default();
        let next = known.len() + 1;
        let number = *known.entry(what.to_owned()).or_insert(next);
        format!("<{}-{number}>", kind.word())
    }
}

/// How far to go on where nothing is hidden: to the end of letters and digits, within which nothing begins.
fn step(rest: &str) -> usize {
    match shapes::run(rest, |byte| byte.is_ascii_alphanumeric()) {
        0 => rest.chars().next().map_or(0, char::len_utf8),
        length => length,
    }
}

/// Whether a character can be part of a name that is one word.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.')
}

/// The characters of a word that a text begins with; none where it begins with another character.
fn first_word(text: &str) -> &str {
    let length = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
    &text[..length]
}

/// Whether a text begins with this name, and not with a longer word.
fn is_whole(text: &str, name: &str) -> bool {
    let after = text.strip_prefix(name);
    after.is_some_and(|after| !after.trim_start_matches('.').starts_with(is_of_word))
}

/// `name`: in small letters.
fn is_worth_looking_for(name: &str) -> bool {
    name.chars().count() >= LEAST_NAME && !USUAL.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Text as _;

    #[test]
    fn what_is_equal_has_the_same_number_and_what_is_harmless_stays() {
        let mut hider = Hider::new(false);
        hider.learn_host("vps.example.org:51900");
        hider.learn_host("203.0.113.7:51900");
        hider.learn_host("[2001:db8::7]:51900");
        let text = "vps.example.org:51900 is 203.0.113.7, VPS.example.org, 198.51.100.1:443 and \
            203.0.113.7/32; 10.77.0.2 by wlan0 (192.168.1.5, 00:1b:21:12:34:56, fe80::1%wlan0)";
        let expected = "<host-1>:51900 is <v4-1>, <host-1>, <v4-2>:443 and \
            <v4-1>/32; 10.77.0.2 by wlan0 (192.168.1.5, <mac-1>, fe80::1%wlan0)";
        assert_eq!(hider.text(text), expected);
        assert_eq!(hider.text("::ffff:203.0.113.7 enx001b21123456"), "<v4-1> enx<mac-1>");
        let others = "myvps.example.org, vps.example.organ";
        assert_eq!(hider.text(others), others);
        assert_eq!(hider.text("/home/anna/a /var/lib"), "/home/<user>/a /var/lib");
    }

    #[test]
    fn no_secret_passes_wherever_it_stands() {
        let key = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
        let odd = "/+B60cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";
        let invitation = format!("ropewalk:{}", "aeag5dwsy".repeat(12));
        let hex = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----";
        let contexts = ["", " ", "x=", "\"", "(", "'", "/", ":", "key", "key_", "é", "[[", "\\n"];
        for secret in [key, odd, &invitation, &invitation.to_ascii_uppercase(), hex, pem] {
            for (before, after) in contexts.iter().flat_map(|b| contexts.map(|a| (*b, a))) {
                // Letters glued to a text of letters make another text, which nobody has in a file.
                if (before == "key" && secret != key && secret != odd) || after == "key" {
                    continue;
                }
                for shows in [false, true] {
                    let shown = Hider::new(shows).prose(&format!("{before}{secret}{after}"));
                    let part = &secret[secret.len() / 3..secret.len() / 3 + 16];
                    assert!(!shown.contains(part), "{before:?} {after:?}: {shown}");
                }
            }
        }
    }

    #[test]
    fn no_text_takes_long() {
        let begun = std::time::Instant::now();
        let mut hider = Hider::new(false);
        hider.learn_client("a b");
        let parts = ["a/", "1.", ":", "aa:", "aa:b", "http://", "ropewalk:", "/home/", "a ", "A1"];
        let chosen = ["app:", "user:1", "ropewalk-app-", "socket cgroupv2 level 1 \"", "@r"];
        for part in parts.into_iter().chain(chosen) {
            let text = part.repeat((1 << 18) / part.len());
            assert!(!hider.prose(&text).is_empty());
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
    }

    #[test]
    fn addresses_of_the_web_lose_what_may_be_secret() {
        let mut hider = Hider::new(false);
        let table = [
            ("https://root:pw@10.0.0.1:2379", "https://10.0.0.1:2379"),
            ("https://etcd.example:2379/v3", "https://<host-1>:2379/..."),
            ("http://login.cafe.example/?mac=1", "http://<host-2>/..."),
            ("http://203.0.113.2/", "http://<v4-1>/..."),
            ("'http://[2a02::5]:80/x'", "'http://<v6-1>:80/...'"),
            ("http://127.0.0.1:9586/metrics", "http://127.0.0.1:9586/..."),
            ("http://localhost", "http://localhost"),
        ];
        for (url, expected) in table {
            assert_eq!(hider.text(url), expected, "{url}");
        }
        let mut open = Hider::new(true);
        let shown = open.text("https://u:pw@etcd.example:2379/?x=1 198.51.100.1 enx001b21123456");
        assert_eq!(shown, "https://etcd.example:2379/... 198.51.100.1 enx<mac-1>");
    }

    #[test]
    fn names_of_clients_are_hidden_in_sentences_and_words_that_contain_them_stay() {
        let mut hider = Hider::new(false);
        for name in ["van", "anna's phone", "up", "laptop.2"] {
            hider.learn_client(name);
        }
        let text = "peer=\"van\" up; advantage, van-2 and `anna's phone`, van. laptop.2: caravan";
        let expected = "peer=\"<client-1>\" up; advantage, van-2 and `<client-2>`, <client-1>. \
            <client-3>: caravan";
        assert_eq!(hider.prose(text), expected);
        assert_eq!(hider.client("up"), "<client-4>", "a usual word too, where it is certain");
        assert_eq!(hider.text("van"), "van", "a document has other words in it");
        hider.learn_device("tv-of-anna");
        assert_eq!(hider.prose("tv-of-anna, not tv-of-anna2"), "<device-1>, not tv-of-anna2");
    }

    #[test]
    fn what_somebody_chooses_for_the_tunnel_is_hidden_as_an_entry_and_as_a_word() {
        let mut hider = Hider::new(false);
        let entries = ["domain:example.org", "app:chat", "unit:a.service", "user:anna", "user:7"];
        let entries = entries.map(|text| Selector::from_text(text).unwrap());
        entries.iter().for_each(|entry| hider.learn_entry(entry));
        hider.learn_group("system.slice/b.service");
        let text = "domain:example.org and www.example.org, app:chat (ropewalk-app-chat-9.scope), \
            unit:a.service, user:anna, user:7, cgroup:c.slice, 0x52590a1f goto r0a1f, \
            socket cgroupv2 level 2 \"system.slice/b.service\"";
        let expected = "domain:<host-1> and www.<host-1>, app:<app-1> (ropewalk-app-<app-1>.scope), \
            unit:<unit-1>, user:<user-1>, user:7, cgroup:<cgroup-1>, 0x5259<rule-1> goto r<rule-1>, \
            socket cgroupv2 level 2 \"<cgroup-2>\"";
        assert_eq!(hider.text(text), expected);
        assert_eq!(hider.text(expected), expected, "hidden twice");
        let words = "chat of anna in a.service (/sys/fs/cgroup/system.slice/b.service)";
        assert_eq!(
            hider.prose(words),
            "<app-1> of <user-1> in <unit-1> (/sys/fs/cgroup/<cgroup-2>)"
        );
        let shown = entries.map(|entry| hider.entry(&entry).to_string());
        assert_eq!(
            shown,
            ["domain:<host-1>", "app:<app-1>", "unit:<unit-1>", "user:<user-1>", "user:7"]
        );
        let mut open = Hider::new(true);
        assert_eq!(open.prose("domain:example.org app:chat"), "domain:example.org app:<app-1>");
    }
}
