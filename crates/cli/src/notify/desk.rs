//! The desktop: `org.freedesktop.Notifications` on the session's D-Bus (Desktop Notifications Specification 1.2).
//!
//! Whoever shows notifications may be started by the first of them, end, and come again. Numbers of notifications belong to who gave
//! them, and are forgotten with him.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use zbus::zvariant::{DynamicType, Value};
use zbus::{Connection, Message};

use super::note::{Act, Note, Topic, Urgency};

/// Who shows notifications, and where: name and interface are the same.
const SCREEN: (&str, &str) = ("org.freedesktop.Notifications", "/org/freedesktop/Notifications");

/// The bus itself.
const BUS: (&str, &str) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");

/// Only one in a session has this name.
const OWN_NAME: &str = "io.github.ropewalk.Notify";

/// How the program is called on the screen.
const PROGRAM: &str = "Ropewalk";

/// How long an answer may take: who shows notifications may have to be started.
const PATIENCE: Duration = Duration::from_secs(10);

/// The screen decides how long it shows something.
const AS_USUAL: i32 = -1;

/// Why a notification is not on the screen.
#[derive(Debug)]
pub(crate) enum Unshown {
    /// Nobody shows any at present, or he did not want this one.
    Nobody(String),
    /// There is no bus, or it is gone: the session may be over.
    Bus(String),
}

impl fmt::Display for Unshown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody(why) => write!(f, "nobody shows notifications here: {why}"),
            Self::Bus(why) => write!(f, "this session has no D-Bus: {why}"),
        }
    }
}

/// What shows notifications.
#[derive(Debug)]
pub(crate) struct Desk {
    bus: Connection,
    /// Who shows them: his name on the bus.
    shower: Option<String>,
    takes_markup: bool,
    /// The numbers of those that he shows.
    ids: BTreeMap<Topic, u32>,
}

impl Desk {
    /// Connects to the bus of this session.
    pub(crate) async fn open() -> Result<Self, Unshown> {
        let bus = match tokio::time::timeout(PATIENCE, Connection::session()).await {
            Ok(Ok(bus)) => bus,
            Ok(Err(error)) => return Err(Unshown::Bus(error.to_string())),
            Err(_) => return Err(Unshown::Bus(slow())),
        };
        Ok(Self { bus, shower: None, takes_markup: false, ids: BTreeMap::new() })
    }

    /// Whether no other one of this program shows notifications in this session, from now on.
    pub(crate) async fn is_only(&self) -> Result<bool, Unshown> {
        // D-Bus Specification, RequestName: the flag, and the answer where another one has it.
        const DO_NOT_QUEUE: u32 = 4;
        const EXISTS: u32 = 3;

        let reply = self.call(BUS, "RequestName", &(OWN_NAME, DO_NOT_QUEUE)).await?;
        let body = reply.body();
        let answer: u32 = body.deserialize().map_err(not_understood)?;
        Ok(answer != EXISTS)
    }

    /// Whether the bus is there.
    pub(crate) async fn check(&mut self) -> Result<(), Unshown> {
        self.find_shower().await.map(drop)
    }

    /// Does it.
    pub(crate) async fn act(&mut self, act: &Act) -> Result<(), Unshown> {
        match act {
            Act::Show(note) => self.show(note).await,
            Act::Withdraw(topic) => self.withdraw(topic).await,
        }
    }

    async fn show(&mut self, note: &Note) -> Result<(), Unshown> {
        self.meet().await?;
        let replaces = self.ids.get(&note.topic).copied().unwrap_or_default();
        let body = if self.takes_markup { escaped(&note.body) } else { note.body.clone() };
        let urgency: u8 = match note.urgency {
            Urgency::Low => 0,
            Urgency::Normal => 1,
            Urgency::Critical => 2,
        };
        let hints = HashMap::from([
            ("urgency", Value::from(urgency)),
            ("category", Value::from("network")),
        ]);
        let actions: Vec<&str> = Vec::new();
        let (summary, body) = (note.summary.as_str(), body.as_str());
        let notification = (PROGRAM, replaces, note.icon, summary, body, actions, hints, AS_USUAL);
        let reply = self.call(SCREEN, "Notify", &notification).await?;
        let body = reply.body();
        let id: u32 = body.deserialize().map_err(not_understood)?;
        self.ids.insert(note.topic.clone(), id);
        Ok(())
    }

    async fn withdraw(&mut self, topic: &Topic) -> Result<(), Unshown> {
        let Some(id) = self.ids.remove(topic) else { return Ok(()) };
        match self.call(SCREEN, "CloseNotification", &id).await {
            // The user closed it, or the program that showed it has ended.
            Ok(_) | Err(Unshown::Nobody(_)) => Ok(()),
            Err(gone) => Err(gone),
        }
    }

    /// Learns what he can who shows notifications, if it is not the same as before.
    async fn meet(&mut self) -> Result<(), Unshown> {
        let mut shower = self.find_shower().await?;
        if shower.is_some() && shower == self.shower {
            return Ok(());
        }
        self.ids.clear();
        // This may start him.
        let reply = self.call(SCREEN, "GetCapabilities", &()).await?;
        let body = reply.body();
        let can: Vec<String> = body.deserialize().map_err(not_understood)?;
        self.takes_markup = can.iter().any(|one| one == "body-markup");
        if shower.is_none() {
            shower = self.find_shower().await?;
        }
        self.shower = shower;
        Ok(())
    }

    async fn find_shower(&self) -> Result<Option<String>, Unshown> {
        match self.call(BUS, "GetNameOwner", &SCREEN.0).await {
            Ok(reply) => {
                let body = reply.body();
                Ok(Some(body.deserialize().map_err(not_understood)?))
            }
            Err(Unshown::Nobody(_)) => Ok(None),
            Err(gone) => Err(gone),
        }
    }

    async fn call<B>(
        &self,
        (name, path): (&str, &str),
        method: &str,
        body: &B,
    ) -> Result<Message, Unshown>
    where
        B: Serialize + DynamicType,
    {
        let call = self.bus.call_method(Some(name), path, Some(name), method, body);
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(zbus::Error::MethodError(error, detail, _))) => {
                Err(Unshown::Nobody(detail.unwrap_or_else(|| error.to_string())))
            }
            Ok(Err(error)) => Err(Unshown::Bus(error.to_string())),
            Err(_) => Err(Unshown::Nobody(slow())),
        }
    }
}

fn slow() -> String {
    format!("no answer within {} s", PATIENCE.as_secs())
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` has")]
fn not_understood(error: zbus::Error) -> Unshown {
    Unshown::Nobody(format!("the answer is not understood: {error}"))
}

/// As text within markup: a reason may come from a network.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_no_markup() {
        let text = "http://x/?a=1&b=<b>2</b>";
        assert_eq!(escaped(text), "http://x/?a=1&amp;b=&lt;b&gt;2&lt;/b&gt;");
    }
}
