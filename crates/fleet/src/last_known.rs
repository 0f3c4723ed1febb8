//! The registry as a proxy last knew it, kept in a file of its own: what it serves from when it starts while etcd does not
//! answer.
//!
//! | a file | is |
//! | --- | --- |
//! | of this fleet, which was true within the last [`MAX_AGE`] | used until the registry was read |
//! | of another fleet, of a newer program, damaged, older, or of a time to come | not used; the reason is told |
//!
//! It names the clients with their keys and inner addresses, and the proxies that are to drain. Sessions, invitations and the
//! proxies that run are not kept: nobody needs them before etcd answers.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use ropewalk_settings::PublicKey;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::oneshot;

use crate::cache::{Client, MAX_CLIENTS, MAX_OTHERS};
use crate::layout::{FleetValue, is_id};

/// The version of the file.
const VERSION: u32 = 1;

/// How old it may be. Three days bridge an outage over a weekend at which nobody is there. A client that was removed while this
/// proxy did not run is let in again until etcd answers, so that a longer time would weaken `peer remove`.
pub const MAX_AGE: Duration = Duration::from_secs(72 * 60 * 60);

/// How far this host's clock may be behind the file: what NTP corrects after a start. Beyond that its age is not known.
const MAX_AHEAD: Duration = Duration::from_secs(5 * 60);

/// What writes the content of a file, on a thread that may take its time: a million clients take 150 MB, which are never in memory as a
/// whole.
pub type Content = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// The file of a proxy in which this is kept.
pub trait KeptFile: fmt::Debug + Send + Sync {
    /// What stands in it. This may wait for a disk.
    ///
    /// # Errors
    /// There is none ([`io::ErrorKind::NotFound`]), it is too long, others could have written it, or what the system says.
    fn read(&self) -> io::Result<Vec<u8>>;

    /// Has it replaced as a whole. Returns at once where it is told when it is on disk, or why it is not: then it is as it was.
    fn replace(&self, content: Content) -> oneshot::Receiver<io::Result<()>>;
}

/// What was known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastKnown {
    /// When it was true, in seconds since 1970.
    pub as_of: u64,
    /// The ids of the proxies that were to drain.
    pub drains: Vec<String>,
    /// The clients.
    pub clients: Vec<(PublicKey, Client)>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum NotUsed {
    /// There is none.
    #[error("there is none")]
    Missing,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    /// A newer program wrote it.
    #[error(
        "it was written by a newer version of ropewalk (format {found}, this program knows up to {VERSION}): install that \
         version again"
    )]
    Newer {
        /// The version that it says.
        found: u64,
    },
    /// It is not what was written.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It is of another fleet.
    #[error(
        "it is of the fleet `{fleet}` below {prefix} with the pool {pool_v4}, and the config names another one"
    )]
    OtherFleet {
        /// The fleet's name.
        fleet: String,
        /// What its keys begin with.
        prefix: String,
        /// Its pool.
        pool_v4: Ipv4Net,
    },
    /// It is too old.
    #[error(
        "it is {} old, and after {} a client that was removed meanwhile is not to be let in again",
        hours(.0),
        hours(&MAX_AGE)
    )]
    Old(
        /// Its age.
        Duration,
    ),
    /// It is of a time to come.
    #[error(
        "it was written {} after this host's present time, so that its age is not known: set the clock (NTP)",
        hours(.0)
    )]
    Ahead(
        /// By how much.
        Duration,
    ),
}

/// The file as it stands on disk, with its clients as they are kept here.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    fleet: String,
    prefix: String,
    pool_v4: Ipv4Net,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool_v6: Option<Ipv6Net>,
    as_of: u64,
    drains: Vec<String>,
    #[serde(serialize_with = "write_lines", deserialize_with = "read_lines")]
    clients: Vec<(PublicKey, Client)>,
}

/// One client as it stands there.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<T> {
    public_key: PublicKey,
    name: T,
    address_v4: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address_v6: Option<Ipv6Addr>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
}

fn write_lines<S: Serializer>(
    clients: &[(PublicKey, Client)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(clients.iter().map(|(key, client)| Line {
        public_key: *key,
        name: &*client.name,
        address_v4: client.address_v4,
        address_v6: client.address_v6,
        disabled: client.disabled,
    }))
}

fn read_lines<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(PublicKey, Client)>, D::Error> {
    struct Lines;

    impl<'de> Visitor<'de> for Lines {
        type Value = Vec<(PublicKey, Client)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of clients")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut lines: A) -> Result<Self::Value, A::Error> {
            let mut clients = Vec::new();
            while let Some(line) = lines.next_element::<Line<String>>()? {
                let Line { public_key, name, address_v4, address_v6, disabled } = line;
                let name = name.into();
                clients.push((public_key, Client { name, address_v4, address_v6, disabled }));
            }
            Ok(clients)
        }
    }

    deserializer.deserialize_seq(Lines)
}

impl LastKnown {
    /// Writes what is to stand in the file of a proxy with this prefix and these terms.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(
        self,
        out: &mut dyn io::Write,
        prefix: &str,
        terms: &FleetValue,
    ) -> io::Result<()> {
        let Self { as_of, drains, clients } = self;
        let document = Document {
            version: VERSION,
            fleet: terms.name.clone(),
            prefix: prefix.to_owned(),
            pool_v4: terms.pool_v4,
            pool_v6: terms.pool_v6,
            as_of,
            drains,
            clients,
        };
        Ok(serde_json::to_writer(out, &document)?)
    }

    /// Reads the file of a proxy with this prefix and these terms, at `now` (in seconds since 1970).
    ///
    /// # Errors
    /// [`NotUsed`].
    pub fn read(
        file: &dyn KeptFile,
        (prefix, terms): (&str, &FleetValue),
        now: u64,
    ) -> Result<Self, NotUsed> {
        let json = file.read().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NotUsed::Missing,
            _ => NotUsed::Unreadable(error),
        })?;
        let document = document(&json)?;
        if (&*document.prefix, &document.fleet) != (prefix, &terms.name)
            || (document.pool_v4, document.pool_v6) != (terms.pool_v4, terms.pool_v6)
        {
            let Document { fleet, prefix, pool_v4, .. } = document;
            return Err(NotUsed::OtherFleet { fleet, prefix, pool_v4 });
        }
        let between = |from: u64, to: u64| Duration::from_secs(to.saturating_sub(from));
        let (age, ahead) = (between(document.as_of, now), between(now, document.as_of));
        if ahead > MAX_AHEAD {
            return Err(NotUsed::Ahead(ahead));
        }
        if age > MAX_AGE {
            return Err(NotUsed::Old(age));
        }
        let Document { as_of, drains, clients, .. } = document;
        Ok(Self { as_of, drains, clients })
    }
}

fn document(json: &[u8]) -> Result<Document, NotUsed> {
    #[derive(Deserialize)]
    struct Version {
        version: u64,
    }
    // A newer format may have any other fields.
    if let Ok(Version { version: found }) = serde_json::from_slice(json)
        && found > u64::from(VERSION)
    {
        return Err(NotUsed::Newer { found });
    }
    let damaged = |why: String| NotUsed::Damaged(why);
    let document: Document =
        serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
    if document.version != VERSION {
        return Err(damaged(format!("version {} is not {VERSION}", document.version)));
    }
    if document.clients.len() > MAX_CLIENTS || document.drains.len() > MAX_OTHERS {
        return Err(damaged("it has more clients or proxies than a fleet may have".to_owned()));
    }
    match document.drains.iter().find(|id| !is_id(id)) {
        Some(id) => Err(damaged(format!("`{}` is no proxy's id", id.escape_debug()))),
        None => Ok(document),
    }
}

/// A time for people, who want to know it in hours and minutes.
pub(crate) fn hours(time: &Duration) -> String {
    let minutes = time.as_secs() / 60;
    match minutes / 60 {
        0 => format!("{minutes} min"),
        hours => format!("{hours} h {} min", minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Unknown;

    const NOW: u64 = 1_900_000_000;
    const PREFIX: &str = "/ropewalk/";

    /// A file with this content.
    #[derive(Debug)]
    struct Fixed(Result<Vec<u8>, io::ErrorKind>);

    impl KeptFile for Fixed {
        fn read(&self) -> io::Result<Vec<u8>> {
            self.0.clone().map_err(io::Error::from)
        }

        fn replace(&self, _: Content) -> oneshot::Receiver<io::Result<()>> {
            oneshot::channel().1
        }
    }

    fn terms(name: &str) -> FleetValue {
        FleetValue {
            version: 1,
            name: name.into(),
            pool_v4: "10.77.0.0/16".parse().unwrap(),
            pool_v6: Some("fd00:9::/64".parse().unwrap()),
            unknown: Unknown::new(),
        }
    }

    fn known() -> LastKnown {
        let client = |number: u8, address_v6| {
            let key = PublicKey::from_bytes([number; 32]);
            let name = format!("client \"{number}\"").into();
            let (address_v4, disabled) = ([10, 77, 0, number].into(), number == 2);
            (key, Client { name, address_v4, address_v6, disabled })
        };
        LastKnown {
            as_of: NOW,
            drains: vec!["fra-1".to_owned()],
            clients: vec![client(1, None), client(2, Some("fd00:9::2".parse().unwrap()))],
        }
    }

    fn read(json: &str, now: u64) -> Result<LastKnown, NotUsed> {
        let file = Fixed(Ok(json.as_bytes().to_vec()));
        LastKnown::read(&file, (PREFIX, &terms("home")), now)
    }

    fn written() -> String {
        let mut json = Vec::new();
        known().write(&mut json, PREFIX, &terms("home")).unwrap();
        String::from_utf8(json).unwrap()
    }

    #[test]
    fn what_was_written_is_read_for_three_days() {
        let last = NOW + MAX_AGE.as_secs();
        for now in [NOW, NOW + 60, last, NOW - MAX_AHEAD.as_secs()] {
            assert_eq!(read(&written(), now).unwrap(), known());
        }
        assert!(matches!(read(&written(), last + 1), Err(NotUsed::Old(_))));
        let ahead = read(&written(), NOW - MAX_AHEAD.as_secs() - 1);
        assert!(matches!(ahead, Err(NotUsed::Ahead(_))), "{ahead:?}");
    }

    #[test]
    fn what_is_damaged_newer_or_of_another_fleet_is_not_used_and_the_reason_is_told() {
        let good = written();
        let half = &good[..good.len() / 2];
        let table = [
            ("", "damaged: EOF"),
            (half, "damaged: EOF"),
            ("\0\0", "damaged: expected value"),
            (
                &good.replace("\"version\":1", "\"version\":2"),
                "newer version of ropewalk (format 2",
            ),
            (&good.replace("\"version\":1", "\"version\":0"), "version 0 is not 1"),
            (&good.replace("\"as_of\"", "\"as_at\""), "unknown field `as_at`"),
            (&good.replace("10.77.0.2", "10.77.0.256"), "damaged: invalid IPv4"),
            (&good.replace("fra-1", "Fra 1"), "`Fra 1` is no proxy's id"),
            (&good.replace("\"home\"", "\"work\""), "of the fleet `work` below /ropewalk/"),
            (&good.replace("/ropewalk/", "/other/"), "below /other/ with the pool 10.77.0.0/16"),
            (&good.replace("10.77.0.0/16", "10.8.0.0/16"), "with the pool 10.8.0.0/16"),
            (&good.replace("fd00:9::/64", "fd00:8::/64"), "the config names another one"),
        ];
        for (json, expected) in table {
            let told = read(json, NOW).unwrap_err().to_string();
            assert!(told.contains(expected), "{expected}: {told}");
        }
        for (kind, expected) in [
            (io::ErrorKind::NotFound, "there is none"),
            (io::ErrorKind::PermissionDenied, "it cannot be read: permission denied"),
        ] {
            let file = Fixed(Err(kind));
            let told = LastKnown::read(&file, (PREFIX, &terms("home")), NOW).unwrap_err();
            assert_eq!(told.to_string(), expected);
        }
    }

    #[test]
    fn an_age_is_told_in_hours_and_minutes() {
        for (seconds, told) in [(59, "0 min"), (3_599, "59 min"), (7_380, "2 h 3 min")] {
            assert_eq!(hours(&Duration::from_secs(seconds)), told);
        }
        assert_eq!(hours(&MAX_AGE), "72 h 0 min");
    }
}
