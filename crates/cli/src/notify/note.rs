//! What a person is shown.

use crate::exit::plain;

/// Characters of the longest title, which desktops show on one line.
const MOST_SUMMARY: usize = 80;

/// Characters of the longest text: some lines.
const MOST_BODY: usize = 300;

/// What a notification is about. On the screen there is one for each topic: a later one takes the place of the one before. What is
/// more urgent comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    /// The kill switch could not be set.
    KillSwitch,
    /// Which links work, and whether any does.
    Links,
    /// The network of this link wants a sign-in.
    SignIn(String),
    /// The ends speak different versions of the protocol.
    Versions,
    /// The allowance of this link.
    Allowance(String),
    /// Which proxy is in use.
    Proxy,
    /// The client does not answer.
    Client,
}

/// How much it is in somebody's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It may be missed.
    Low,
    /// It is shown for some seconds.
    Normal,
    /// It stays until somebody takes it away.
    Critical,
}

/// One notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) topic: Topic,
    pub(crate) urgency: Urgency,
    /// By the names of the Icon Naming Specification.
    pub(crate) icon: &'static str,
    /// The title.
    pub(crate) summary: String,
    pub(crate) body: String,
}

impl Note {
    /// One of this urgency. Titles and texts may come from a network, a proxy or a config: they are cut, and hold nothing but text.
    pub(crate) fn new(topic: Topic, urgency: Urgency, summary: &str, body: &str) -> Self {
        let icon = match urgency {
            Urgency::Low => "network-transmit-receive",
            Urgency::Normal => "network-offline",
            Urgency::Critical => "network-error",
        };
        let (summary, body) = (cut(summary, MOST_SUMMARY), cut(body, MOST_BODY));
        Self { topic, urgency, icon, summary, body }
    }
}

/// What is to be done on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Show this, in the place of what is shown of its topic.
    Show(Note),
    /// Take away what is shown of this topic, which is over.
    Withdraw(Topic),
}

impl Act {
    pub(crate) const fn topic(&self) -> &Topic {
        match self {
            Self::Show(note) => &note.topic,
            Self::Withdraw(topic) => topic,
        }
    }
}

/// On one line, and no longer than this.
fn cut(text: &str, most: usize) -> String {
    let line = plain(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= most {
        return line;
    }
    let begin: String = line.chars().take(most.saturating_sub(1)).collect();
    begin + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_any_length_becomes_a_line_of_text() {
        assert_eq!(cut(" a\n b\u{1b}[2J\t", 9), "a b\u{fffd}[2J");
        assert_eq!(cut(&"é".repeat(9), 4), "ééé…");
        let note = Note::new(Topic::Proxy, Urgency::Low, &"x".repeat(999), &"y ".repeat(999));
        assert_eq!(note.summary.chars().count(), MOST_SUMMARY);
        assert_eq!(note.body.chars().count(), MOST_BODY);
    }
}
