//! When a link goes over TLS: a pure decision about one link, over what is seen of it and the time.
//!
//! | the link goes by | until | then by |
//! | --- | --- | --- |
//! | UDP | nothing has answered for [`PATIENCE`] | both |
//! | both: the core uses what answers | UDP has answered for [`STEADY`] | UDP |
//! | | TLS answers, and UDP has not for [`WINDOW`] | TLS |
//! | TLS | it no longer answers, or UDP does, which is asked every [`ASK_AGAIN`] | both |
//!
//! Each way begins before the other ends, so that nothing is lost in between. In another network, after the machine slept
//! and with other settings UDP is tried at once ([`Fallback::again`]), beside TLS where that is in use: the outage may be
//! the same.

use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::TlsUse;

/// How long UDP may be silent. A link comes up within a few round trips, and a question that got lost is asked again
/// after a quarter of a second, a half and one; the first second of a Wi-Fi that has just come up often loses
/// everything.
const PATIENCE: Duration = Duration::from_secs(4);

/// UDP has come back when it has answered for so long: what lets a datagram through now and then is no way to send by.
const STEADY: Duration = Duration::from_secs(2);

/// How long UDP is tried beside TLS.
const WINDOW: Duration = Duration::from_secs(4);

/// How often UDP is asked for while TLS carries the link: a few datagrams.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// When it is asked for instead, where too many others are being asked: as long as two of them take.
const ASK_SOON: Duration = Duration::from_secs(5);

/// How one link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// By UDP; since when nothing answers.
    Udp(Option<Instant>),
    /// By both, since then; since when UDP answers.
    Both(Instant, Option<Instant>),
    /// By TLS; when UDP is asked for.
    Tls(Instant),
}

/// What is seen of a link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// It carries datagrams by UDP.
    pub udp: bool,
    /// It does over TLS.
    pub tls: bool,
    /// Until when the proxy has this client wait for a session: it has answered, so silence until then is not the
    /// network's doing. Only what it sealed counts, for anybody on the way can forge the rest.
    pub wait: Option<Instant>,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// It goes by other ways than before.
    pub changed: bool,
    /// UDP is to be asked for.
    pub ask: bool,
    /// When to look again, if nothing happens before.
    pub at: Option<Instant>,
}

impl Default for Fallback {
    fn default() -> Self {
        Self::Udp(None)
    }
}

impl Fallback {
    /// Whether it goes by UDP now.
    #[must_use]
    pub const fn uses_udp(self, setting: TlsUse) -> bool {
        match setting {
            TlsUse::Never => true,
            TlsUse::Always => false,
            TlsUse::Auto => matches!(self, Self::Udp(_) | Self::Both(..)),
        }
    }

    /// Whether it goes over TLS now.
    #[must_use]
    pub const fn uses_tls(self, setting: TlsUse) -> bool {
        match setting {
            TlsUse::Never => false,
            TlsUse::Always => true,
            TlsUse::Auto => matches!(self, Self::Both(..) | Self::Tls(_)),
        }
    }

    /// How it goes on when what was seen of it is old; `over_tls`: it goes over TLS, alone or beside UDP.
    #[must_use]
    pub const fn again(now: Instant, over_tls: bool) -> Self {
        if over_tls { Self::Both(now, None) } else { Self::Udp(None) }
    }

    /// Decides again.
    pub fn look(&mut self, now: Instant, seen: Seen) -> Outlook {
        let next = self.next(now, seen);
        let ask = matches!((*self, next), (Self::Tls(due), Self::Tls(_)) if due <= now);
        let ways = |it: Self| (it.uses_udp(TlsUse::Auto), it.uses_tls(TlsUse::Auto));
        let changed = ways(next) != ways(*self);
        *self = next;
        Outlook { changed, ask, at: next.due(seen).filter(|at| *at > now) }
    }

    /// UDP was asked for, and answered. Returns whether the link goes by other ways than before.
    pub fn on_udp_answer(&mut self, now: Instant) -> bool {
        let alone = matches!(self, Self::Tls(_));
        if alone {
            *self = Self::Both(now, None);
        }
        alone
    }

    /// UDP could not be asked for. Returns when it is, if it goes over TLS.
    pub fn ask_soon(&mut self, now: Instant) -> Option<Instant> {
        let Self::Tls(due) = self else { return None };
        *due = now + ASK_SOON;
        Some(*due)
    }

    fn next(self, now: Instant, seen: Seen) -> Self {
        match self {
            Self::Udp(_) if seen.udp || seen.wait.is_some_and(|until| now < until) => {
                Self::Udp(None)
            }
            Self::Udp(silent) => {
                let silent = silent.unwrap_or(now);
                if now >= silent + PATIENCE {
                    Self::Both(now, None)
                } else {
                    Self::Udp(Some(silent))
                }
            }
            Self::Both(since, answers) if seen.udp => {
                let answers = answers.unwrap_or(now);
                if now >= answers + STEADY {
                    Self::Udp(None)
                } else {
                    Self::Both(since, Some(answers))
                }
            }
            Self::Both(since, _) if seen.tls && now >= since + WINDOW => Self::Tls(now + ASK_AGAIN),
            Self::Both(since, _) => Self::Both(since, None),
            Self::Tls(_) if !seen.tls => Self::Both(now, None),
            Self::Tls(due) if due <= now => Self::Tls(now + ASK_AGAIN),
            Self::Tls(due) => Self::Tls(due),
        }
    }

    /// When it changes by itself.
    fn due(self, seen: Seen) -> Option<Instant> {
        match self {
            Self::Udp(None) => seen.wait,
            Self::Udp(Some(silent)) => Some(silent + PATIENCE),
            Self::Both(_, Some(answers)) => Some(answers + STEADY),
            Self::Both(since, None) => seen.tls.then(|| since + WINDOW),
            Self::Tls(due) => Some(due),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Seen = Seen { udp: false, tls: false, wait: None };
    const BY_UDP: Seen = Seen { udp: true, ..NOTHING };
    const BY_TLS: Seen = Seen { tls: true, ..NOTHING };
    const BY_BOTH: Seen = Seen { udp: true, tls: true, wait: None };

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// What each look makes of it: whether it goes by UDP and over TLS, whether UDP is asked for, when it is looked at
    /// again.
    fn story(looks: &[(u64, Seen)]) -> Vec<(&'static str, bool, Option<u64>)> {
        let mut link = Fallback::default();
        let looks = looks.iter().map(|(ms, seen)| {
            let before = link;
            let outlook = link.look(at(*ms), *seen);
            let ways = |it: Fallback| (it.uses_udp(TlsUse::Auto), it.uses_tls(TlsUse::Auto));
            assert_eq!(outlook.changed, ways(before) != ways(link), "{before:?} {link:?}");
            let way = match ways(link) {
                (true, false) => "udp",
                (true, true) => "both",
                (false, _) => "tls",
            };
            (way, outlook.ask, outlook.at.map(|at| at.as_micros() / 1000))
        });
        looks.collect()
    }

    #[test]
    fn a_link_whose_udp_is_blocked_from_the_start_goes_over_tls() {
        let seen = story(&[
            (0, NOTHING),
            (3999, NOTHING),
            (4000, NOTHING),
            (4300, BY_TLS),
            (7999, BY_TLS),
            (8000, BY_TLS),
            (20_000, BY_TLS),
        ]);
        let expected = [
            ("udp", false, Some(4000)),
            ("udp", false, Some(4000)),
            ("both", false, None),
            ("both", false, Some(8000)),
            ("both", false, Some(8000)),
            ("tls", false, Some(68_000)),
            ("tls", false, Some(68_000)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn udp_is_asked_for_each_minute_and_gone_back_to_when_it_has_answered_for_a_while() {
        let mut link = Fallback::Tls(at(60_000));
        let asked = link.look(at(60_000), BY_TLS);
        assert_eq!(asked, Outlook { changed: false, ask: true, at: Some(at(120_000)) });
        assert!(!link.look(at(60_001), BY_TLS).ask);
        assert!(link.look(at(120_000), BY_TLS).ask);
        assert!(link.on_udp_answer(at(120_100)) && !link.on_udp_answer(at(120_101)));
        assert_eq!(link, Fallback::Both(at(120_100), None));
        assert!(!link.look(at(120_300), BY_BOTH).changed);
        // A moment without starts the time again.
        link.look(at(121_000), BY_TLS);
        assert_eq!(link.look(at(121_500), BY_BOTH).at, Some(at(123_500)));
        assert!(!link.look(at(123_499), BY_BOTH).changed);
        assert!(link.look(at(123_500), BY_BOTH).changed);
        assert_eq!(link, Fallback::Udp(None));
    }

    #[test]
    fn a_question_that_found_no_room_is_asked_soon() {
        let mut link = Fallback::Tls(at(60_000));
        assert!(link.look(at(60_000), BY_TLS).ask);
        assert_eq!(link.ask_soon(at(60_000)), Some(at(65_000)));
        let waits = Outlook { changed: false, ask: false, at: Some(at(65_000)) };
        assert_eq!(link.look(at(64_999), BY_TLS), waits);
        assert!(link.look(at(65_000), BY_TLS).ask);
        assert_eq!(Fallback::default().ask_soon(at(0)), None, "it goes by UDP");
    }

    #[test]
    fn udp_that_answers_once_and_never_again_is_left_alone_after_its_window() {
        let mut link = Fallback::Tls(at(60_000));
        link.on_udp_answer(at(1000));
        assert!(!link.look(at(4999), BY_TLS).changed);
        assert!(link.look(at(5000), BY_TLS).changed);
        assert_eq!(link, Fallback::Tls(at(65_000)));
    }

    #[test]
    fn a_link_that_works_asks_for_nothing_and_wakes_nobody() {
        let mut link = Fallback::default();
        assert_eq!(link.look(at(0), BY_UDP), Outlook::default());
        assert_eq!(link.look(at(1_000_000), BY_UDP), Outlook::default());
        assert_eq!(link, Fallback::Udp(None));
    }

    #[test]
    fn a_proxy_that_has_the_client_wait_is_no_reason_for_tls_and_its_silence_afterwards_is() {
        let told = |until| Seen { wait: Some(at(until)), ..NOTHING };
        let seen = story(&[
            (0, NOTHING),
            // Refused, and asked again after 30 s: refused once more.
            (3000, told(33_000)),
            (33_000, NOTHING),
            (37_000, told(63_000)),
            // Asked again, and no answer comes.
            (63_000, told(63_000)),
            (66_999, NOTHING),
            (67_000, NOTHING),
        ]);
        let expected = [
            ("udp", false, Some(4000)),
            ("udp", false, Some(33_000)),
            ("udp", false, Some(37_000)),
            ("udp", false, Some(63_000)),
            ("udp", false, Some(67_000)),
            ("udp", false, Some(67_000)),
            ("both", false, None),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn where_nothing_answers_both_are_tried_and_udp_at_once_when_tls_ends() {
        let seen = story(&[(0, NOTHING), (5000, NOTHING), (100_000, NOTHING), (100_001, BY_UDP)]);
        let expected = [
            ("udp", false, Some(4000)),
            ("both", false, None),
            ("both", false, None),
            ("both", false, Some(102_001)),
        ];
        assert_eq!(seen, expected);
        let mut link = Fallback::Tls(at(60_000));
        assert!(link.look(at(2000), NOTHING).changed);
        assert_eq!(link, Fallback::Both(at(2000), None));
    }

    #[test]
    fn what_begins_again_over_tls_tries_udp_beside_it() {
        let mut link = Fallback::again(at(1000), true);
        assert!(link.uses_udp(TlsUse::Auto) && link.uses_tls(TlsUse::Auto));
        assert!(!link.look(at(4999), BY_TLS).changed, "UDP has its time");
        assert!(link.look(at(5000), BY_TLS).changed);
        assert_eq!(link, Fallback::Tls(at(65_000)), "the same outage");
        let mut link = Fallback::again(at(1000), true);
        link.look(at(1100), BY_BOTH);
        assert!(link.look(at(3100), BY_BOTH).changed);
        assert_eq!(link, Fallback::Udp(None), "another network");
        assert_eq!(Fallback::again(at(1000), false), Fallback::default());
    }

    #[test]
    fn a_setting_that_is_told_counts_whatever_answers() {
        for link in [Fallback::Udp(None), Fallback::Both(at(0), None), Fallback::Tls(at(0))] {
            assert!(link.uses_udp(TlsUse::Never) && !link.uses_tls(TlsUse::Never));
            assert!(!link.uses_udp(TlsUse::Always) && link.uses_tls(TlsUse::Always));
        }
    }
}
