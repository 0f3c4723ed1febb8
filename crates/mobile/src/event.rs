//! What the app is told: one JSON object each, with its kind under `event`.

use std::net::IpAddr;

use ropewalk_control::api::{LinkState, TunnelState};
use ropewalk_daemon::proxies::KeptProxy;
use serde::Serialize;

use crate::App;

/// One of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event<'a> {
    /// How it stands with the tunnel.
    State {
        /// In the words of the status document.
        state: TunnelState,
        /// Why packets do not pass.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The app is to open a TUN like this, and hand it over.
    Tun(&'a TunWish),
    /// The TUN is gone, or could not be used.
    TunLost {
        /// Why.
        reason: String,
    },
    /// A network carries packets now, or none any more.
    Link {
        /// The app's number for it.
        network: u64,
        /// Its name.
        name: &'a str,
        /// In the words of the status document.
        state: LinkState,
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The proxy refused a session.
    Refused {
        /// Why.
        reason: String,
    },
    /// The proxy knows this client's key: the invitation is used up.
    Joined,
    /// The app is to look these names up.
    Resolve {
        /// The names.
        names: Vec<&'a str>,
    },
    /// What the fleet told of itself, to be kept.
    Proxies {
        /// For `fleet` of the config.
        fleet: Vec<KeptProxy>,
    },
    /// A line of the log.
    Log {
        /// `error`, `warn`, `info`, `debug` or `trace`.
        level: &'a str,
        /// The line.
        text: &'a str,
    },
    /// The tunnel has ended; nothing comes after this.
    Stopped {
        /// Why, if nobody asked for it.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// What the TUN is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TunWish {
    /// Its addresses, at most one of each family.
    pub(crate) addresses: Vec<IpAddr>,
    /// Bytes of the largest packet.
    pub(crate) mtu: u16,
    /// Who answers for names through the tunnel.
    pub(crate) name_servers: Vec<IpAddr>,
}

impl Event<'_> {
    /// Tells the app.
    pub(crate) fn tell(&self, app: &dyn App) {
        // Texts and numbers always become JSON.
        if let Ok(json) = serde_json::to_string(self) {
            app.on_event(&json);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_an_object_that_names_its_kind() {
        let wish =
            TunWish { addresses: vec![[10, 77, 0, 2].into()], mtu: 1420, name_servers: Vec::new() };
        let table = [
            (
                Event::State { state: TunnelState::Up, reason: None },
                r#"{"event":"state","state":"up"}"#,
            ),
            (
                Event::Tun(&wish),
                r#"{"event":"tun","addresses":["10.77.0.2"],"mtu":1420,"name_servers":[]}"#,
            ),
            (Event::TunLost { reason: "x".into() }, r#"{"event":"tun-lost","reason":"x"}"#),
            (
                Event::Link { network: 7, name: "wifi", state: LinkState::Down, reason: None },
                r#"{"event":"link","network":7,"name":"wifi","state":"down"}"#,
            ),
            (Event::Refused { reason: "full".into() }, r#"{"event":"refused","reason":"full"}"#),
            (Event::Joined, r#"{"event":"joined"}"#),
            (Event::Resolve { names: vec!["vps"] }, r#"{"event":"resolve","names":["vps"]}"#),
            (Event::Proxies { fleet: Vec::new() }, r#"{"event":"proxies","fleet":[]}"#),
            (
                Event::Log { level: "info", text: "a\"b" },
                r#"{"event":"log","level":"info","text":"a\"b"}"#,
            ),
            (Event::Stopped { reason: None }, r#"{"event":"stopped"}"#),
        ];
        for (event, expected) in table {
            assert_eq!(serde_json::to_string(&event).unwrap(), expected);
        }
    }
}
