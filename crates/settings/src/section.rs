//! `[tunnel]` as it is written: in the config files of both daemons, and in scenarios of the lab.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use serde::{Deserialize, Serialize};

use crate::text::in_range;
use crate::{
    Acknowledge, BatcpSettings, Bitrate, Cipher, ControllerKind, LinkTerms, NatalieSettings,
    Network, Offload, Order, Parsed, PortRange, Profile, Redundant, Release, Resequencer,
    SafireSettings, SchedulerKind, Scheduling, SettingError, Switch, TunnelSettings, WhenClosed,
};

/// The section. What is absent is the default; what is the default is not written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TunnelSection {
    /// Which scheduler, controller and order, where nothing else is said.
    #[serde(skip_serializing_if = "is_default")]
    pub profile: Profile,
    /// Which link takes the next packet.
    #[serde(skip_serializing_if = "is_default")]
    pub scheduler: Option<SchedulerKind>,
    /// Settings of `natalie`.
    #[serde(skip_serializing_if = "is_default")]
    pub natalie: NatalieSettings,
    /// Settings of `batcp`.
    #[serde(skip_serializing_if = "is_default")]
    pub batcp: BatcpSettings,
    /// Settings of `safire`.
    #[serde(skip_serializing_if = "is_default")]
    pub safire: SafireSettings,
    /// Which packets go over two links at once.
    #[serde(skip_serializing_if = "is_default")]
    pub redundant: RedundantSection,
    /// What is said of links, by name or by a pattern of names.
    #[serde(skip_serializing_if = "is_default")]
    pub link: BTreeMap<String, LinkTerms>,
    /// How many datagrams may be in flight on a link.
    #[serde(skip_serializing_if = "is_default")]
    pub controller: Option<ControllerName>,
    /// With `fixed`: how many.
    #[serde(skip_serializing_if = "is_default")]
    pub fixed_window: Option<i64>,
    /// Which order the other end restores of what this end sends.
    #[serde(skip_serializing_if = "is_default")]
    pub order: Option<Order>,
    /// Who acknowledges what a sender of TCP has sent.
    #[serde(skip_serializing_if = "is_default")]
    pub acknowledge: Option<Acknowledge>,
    /// What happens to a packet when no link has room.
    #[serde(skip_serializing_if = "is_default")]
    pub when_closed: WhenClosed,
    /// With `queue`: how long a packet may wait.
    #[serde(skip_serializing_if = "is_default")]
    pub queue: Option<Parsed<Duration>>,
    /// Age of the keys at which new ones are agreed.
    #[serde(skip_serializing_if = "is_default")]
    pub rekey_after: Option<Parsed<Duration>>,
    /// Whether congestion marks are copied to datagrams.
    #[serde(skip_serializing_if = "is_default")]
    pub ecn: Option<bool>,
    /// Which cipher is offered.
    #[serde(skip_serializing_if = "is_default")]
    pub cipher: Cipher,
    /// Whether packets of a flow cross the TUN joined.
    #[serde(skip_serializing_if = "is_default")]
    pub tun_offload: Switch,
    /// Whether datagrams are sent in trains.
    #[serde(skip_serializing_if = "is_default")]
    pub udp_gso: Switch,
    /// Whether they are received so.
    #[serde(skip_serializing_if = "is_default")]
    pub udp_gro: Switch,
    /// How packets are put back in order.
    #[serde(skip_serializing_if = "is_default")]
    pub resequencer: ResequencerSection,
}

/// The name of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControllerName {
    /// [`ControllerKind::Model`]
    Model,
    /// [`ControllerKind::Ccid2`]
    Ccid2,
    /// [`ControllerKind::Fixed`]
    Fixed,
}

/// `[tunnel.redundant]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedundantSection {
    /// Packets that are marked as real time.
    #[serde(skip_serializing_if = "is_default")]
    pub marked: Option<bool>,
    /// Packets from or to these ports.
    #[serde(skip_serializing_if = "is_default")]
    pub ports: Vec<PortRange>,
    /// Packets from or to these networks.
    #[serde(skip_serializing_if = "is_default")]
    pub addresses: Vec<Network>,
    /// The most that the copies may cost.
    #[serde(skip_serializing_if = "is_default")]
    pub budget: Option<Bitrate>,
}

/// `[tunnel.resequencer]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResequencerSection {
    /// Whether packets are put in order.
    #[serde(skip_serializing_if = "is_default")]
    pub enabled: Option<bool>,
    /// How long a packet waits for those before it.
    #[serde(skip_serializing_if = "is_default")]
    pub max_wait: Option<Parsed<Duration>>,
    /// How much is held.
    #[serde(skip_serializing_if = "is_default")]
    pub buffer: Option<Parsed<ByteSize>>,
    /// What a missed deadline releases.
    #[serde(skip_serializing_if = "is_default")]
    pub release: Option<Release>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TunnelSection {
    /// What the section means.
    ///
    /// # Errors
    /// A value is outside its range, or has no meaning beside another.
    pub fn resolve(&self) -> Result<TunnelSettings, SettingError> {
        let defaults = TunnelSettings::of(self.profile);
        Ok(TunnelSettings {
            scheduling: self.scheduling()?,
            controller: self.controller()?,
            order: self.order.unwrap_or(defaults.order),
            acknowledge: self.acknowledge.unwrap_or(defaults.acknowledge),
            when_closed: self.when_closed,
            queue: self.queue(defaults.queue)?,
            rekey_after: bounded(
                &["rekey_after"],
                self.rekey_after,
                &TunnelSettings::REKEY_AFTER,
                defaults.rekey_after,
            )?,
            ecn: self.ecn.unwrap_or(defaults.ecn),
            cipher: self.cipher,
            resequencer: self.resequencer.resolve()?,
            offload: Offload {
                tun: self.tun_offload,
                udp_gso: self.udp_gso,
                udp_gro: self.udp_gro,
            },
        })
    }

    fn scheduling(&self) -> Result<Scheduling, SettingError> {
        let scheduling = Scheduling {
            scheduler: self.scheduler.unwrap_or_else(|| self.profile.scheduler()),
            // The rest of the profile is written out beside this.
            profile: None,
            natalie: self.natalie,
            batcp: self.batcp,
            safire: self.safire.clone(),
            redundant: self.redundant(),
            terms: self.link.clone(),
        };
        scheduling.check()?;
        Ok(scheduling)
    }

    /// Where copies have no effect, none is meant unless somebody says so.
    fn redundant(&self) -> Redundant {
        let defaults = match self.order.unwrap_or_else(|| self.profile.order()) {
            Order::Flow => self.profile.redundant(),
            Order::Global => Redundant::off(),
        };
        let RedundantSection { marked, ref ports, ref addresses, budget } = self.redundant;
        Redundant {
            marked: marked.unwrap_or(defaults.marked),
            ports: ports.clone(),
            addresses: addresses.clone(),
            budget: budget.unwrap_or(defaults.budget),
        }
    }

    fn controller(&self) -> Result<ControllerKind, SettingError> {
        let error = |problem| SettingError::new(["fixed_window"], problem);
        let without_window = |name: &str| {
            error(format!("it has no meaning with controller = \"{name}\""))
                .with_help("write controller = \"fixed\", or remove it")
        };
        let range = ControllerKind::WINDOW;
        let kind = match self.controller {
            None => self.profile.controller(),
            Some(ControllerName::Model) => ControllerKind::Model,
            Some(ControllerName::Ccid2) => ControllerKind::Ccid2,
            Some(ControllerName::Fixed) => ControllerKind::Fixed(ControllerKind::DEFAULT_WINDOW),
        };
        match (kind, self.fixed_window) {
            (kind, None) => Ok(kind),
            (ControllerKind::Ccid2 | ControllerKind::Model, Some(_)) => {
                Err(without_window(&kind.to_string()))
            }
            (ControllerKind::Fixed(_), Some(window)) => {
                let datagrams = u32::try_from(window).ok().filter(|n| range.contains(n));
                let outside = || {
                    error(format!(
                        "{window} is outside {} to {} datagrams",
                        range.start(),
                        range.end()
                    ))
                };
                datagrams.map(ControllerKind::Fixed).ok_or_else(outside)
            }
        }
    }

    fn queue(&self, default: Duration) -> Result<Duration, SettingError> {
        if self.when_closed == WhenClosed::Drop && self.queue.is_some() {
            let error =
                SettingError::new(["queue"], "it has no meaning with when_closed = \"drop\"");
            return Err(error.with_help("write when_closed = \"queue\", or remove it"));
        }
        bounded(&["queue"], self.queue, &TunnelSettings::QUEUE, default)
    }
}

impl ResequencerSection {
    fn resolve(&self) -> Result<Resequencer, SettingError> {
        let defaults = Resequencer::default();
        let idle = self.max_wait.is_some() || self.buffer.is_some() || self.release.is_some();
        if self.enabled == Some(false) && idle {
            let path = ["resequencer", "enabled"];
            return Err(SettingError::new(path, "without it the other settings have no meaning")
                .with_help("write enabled = true, or remove them"));
        }
        Ok(Resequencer {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            max_wait: bounded(
                &["resequencer", "max_wait"],
                self.max_wait,
                &Resequencer::MAX_WAIT,
                defaults.max_wait,
            )?,
            buffer: self.buffer(defaults.buffer)?,
            release: self.release.unwrap_or_default(),
        })
    }

    fn buffer(&self, default: usize) -> Result<usize, SettingError> {
        let Some(Parsed(size)) = self.buffer else { return Ok(default) };
        let range = Resequencer::BUFFER;
        let bytes = usize::try_from(size.as_u64()).ok().filter(|bytes| range.contains(bytes));
        bytes.ok_or_else(|| {
            let [least, most] =
                [range.start(), range.end()].map(|bytes| ByteSize::b(*bytes as u64));
            let problem = format!("{size} is outside {least} to {most}");
            SettingError::new(["resequencer", "buffer"], problem)
        })
    }
}

/// A duration at this path within its range, or the default.
fn bounded(
    path: &[&str],
    value: Option<Parsed<Duration>>,
    range: &RangeInclusive<Duration>,
    default: Duration,
) -> Result<Duration, SettingError> {
    let Some(Parsed(value)) = value else { return Ok(default) };
    in_range(value, range).map_err(|problem| SettingError::new(path.iter().copied(), problem))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TunnelSection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn an_empty_section_means_the_defaults_and_is_written_empty() {
        assert_eq!(read("").resolve(), Ok(TunnelSettings::default()));
        assert_eq!(toml::to_string(&TunnelSection::default()).unwrap(), "");
    }

    #[test]
    fn a_profile_is_the_default_of_scheduler_controller_order_and_acknowledge_only() {
        let paper = read("profile = \"paper\"").resolve().unwrap();
        assert_eq!(paper.scheduling.scheduler, SchedulerKind::FreeWindow);
        assert_eq!((paper.controller, paper.order), (ControllerKind::Ccid2, Order::Global));
        assert_eq!(paper.acknowledge, Acknowledge::EndToEnd);
        assert!(paper.scheduling.redundant.is_off());
        let defaults = TunnelSettings::default();
        let as_default = TunnelSettings {
            scheduling: defaults.scheduling.clone(),
            controller: defaults.controller,
            order: defaults.order,
            acknowledge: defaults.acknowledge,
            ..paper
        };
        assert_eq!(as_default, defaults, "nothing else differs");
        let mixed = "profile = \"paper\"\nscheduler = \"arrival\"\ncontroller = \"model\"";
        let mixed = read(mixed).resolve().unwrap();
        assert_eq!(mixed.scheduling.scheduler, SchedulerKind::Arrival);
        assert_eq!((mixed.controller, mixed.order), (ControllerKind::Model, Order::Global));
    }

    #[test]
    fn what_is_marked_goes_over_two_links_where_that_has_an_effect() {
        let table = [
            ("", true),
            ("redundant.marked = false", false),
            ("order = \"global\"", false),
            ("order = \"global\"\nredundant.marked = true", true),
            ("profile = \"paper\"", false),
            ("profile = \"paper\"\norder = \"flow\"", false),
            ("profile = \"paper\"\norder = \"flow\"\nredundant.marked = true", true),
        ];
        for (text, marked) in table {
            let settings = read(text).resolve().unwrap();
            assert_eq!(settings.scheduling.redundant.marked, marked, "{text}");
            let noted = settings.without_effect().iter().any(|note| note.contains("two links"));
            assert_eq!(noted, marked && settings.order == Order::Global, "{text}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = r#"
            scheduler = "batcp"
            controller = "fixed"
            fixed_window = 7
            order = "global"
            acknowledge = "end-to-end"
            queue = "20ms"
            rekey_after = "2s"
            ecn = false
            cipher = "aes-256-gcm"
            udp_gro = "off"
            batcp = { formula = "literal" }
            redundant = { marked = true, ports = [5060], budget = "2 Mbit/s" }
            link = { a = { rate = "20 Mbit/s", use = "backup" } }
            resequencer = { max_wait = "30ms", buffer = "1MiB", release = "one" }
        "#;
        let section = read(text);
        assert_eq!(read(&toml::to_string(&section).unwrap()), section);
        let settings = section.resolve().unwrap();
        assert_eq!(settings.controller, ControllerKind::Fixed(7));
        assert_eq!(settings.order, Order::Global);
        assert_eq!(settings.acknowledge, Acknowledge::EndToEnd);
        assert_eq!(settings.resequencer.buffer, 1 << 20);
        assert_eq!(settings.queue, Duration::from_millis(20));
    }

    #[test]
    fn a_value_out_of_its_range_or_without_meaning_is_refused_with_its_path() {
        let table = [
            ("redundant.budget = \"1 kbit/s\"", "redundant budget: 1 kbit/s is outside"),
            ("queue = \"101ms\"", "queue: 101ms is outside 1ms to 100ms"),
            ("when_closed = \"drop\"\nqueue = \"9ms\"", "queue: it has no meaning"),
            ("fixed_window = 7", "fixed_window: it has no meaning"),
            ("controller = \"fixed\"\nfixed_window = 0", "0 is outside 1 to 32768 datagrams"),
            ("rekey_after = \"999ms\"", "999ms is outside 1s to 1h"),
            ("resequencer.max_wait = \"1s\"", "resequencer max_wait: 1s is outside 1ms to 500ms"),
            ("resequencer.buffer = \"1GiB\"", "1.0 GiB is outside 64.0 KiB to 256.0 MiB"),
            (
                "resequencer = { enabled = false, release = \"one\" }",
                "resequencer enabled: without it the other settings have no meaning",
            ),
        ];
        for (text, expected) in table {
            let error = read(text).resolve().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
