//! Which interfaces are links, and how each reaches the proxy: a pure decision over what the config
//! asks for, what the host has, and where the proxy is.
//!
//! A link is one interface. For each address family in which the interface has a way out *and* the
//! proxy has an address it gets one socket; all addresses of the proxy in those families are its paths.
//!
//! | the interface | is |
//! | --- | --- |
//! | is listed and has a way out | a link, whatever kind of device it is |
//! | is listed with `enabled = false` | switched off |
//! | would be a link, and its allowance is used up | down until that begins again |
//! | is listed and has no way out | down, with the reason; taken up when that changes |
//! | is meant by a listed pattern, and not excluded | the same, once it is there |
//! | is not listed by name, `links = "auto"`, has a default route, is no tunnel and not excluded | a link |
//! | is not listed otherwise | none |

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use jiff::civil::Date;
use ropewalk_proto::config::MAX_PATHS;
use ropewalk_settings::{Keepalive, LinkPolicy};

use crate::config::{Allowance, LinkConfig, LinksConfig, Select};
use crate::host::{Choice, Listed, NoWay, Ways};

/// An interface that is, or could be, a link, with the number that stays with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Gives the link its key, routing table and mark.
    pub(crate) slot: u16,
    /// The interface.
    pub(crate) interface: String,
    /// The way out of it, or why there is none.
    pub(crate) state: Result<Ways, NoWay>,
}

/// What is decided about one interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decision {
    pub(crate) slot: Option<u16>,
    /// For people.
    pub(crate) name: String,
    pub(crate) interface: String,
    pub(crate) keepalive: Keepalive,
    /// Whether bytes cost money on it.
    pub(crate) metered: bool,
    /// How it is used, in both directions.
    pub(crate) policy: LinkPolicy,
    /// How much it may carry in a month.
    pub(crate) allowance: Option<Allowance>,
    /// How it is used, or why not.
    pub(crate) wish: Result<Wish, Obstacle>,
}

/// How a link is to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The system's number of the interface: another one is another interface.
    pub(crate) index: u32,
    /// Largest outer IP packet in bytes, as the interface has it.
    pub(crate) mtu: u16,
    /// One of our addresses for each family in use.
    pub(crate) sources: Vec<IpAddr>,
    /// The router for each of them, if there is one: behind another one is another network.
    pub(crate) gateways: Vec<Option<IpAddr>>,
    /// The proxy's addresses in those families, in order of preference; 1 to [`MAX_PATHS`].
    pub(crate) remotes: Vec<SocketAddr>,
}

impl Wish {
    /// Whether the two mean the same on this machine. Where the proxies are is the core's business.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.index, self.mtu, &self.sources, &self.gateways)
            == (other.index, other.mtu, &other.sources, &other.gateways)
    }
}

/// Why an interface is no link now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The config says so.
    Disabled,
    /// `auto`: it is not there, or has no default route.
    NotChosen,
    /// The host says so.
    NoWay(NoWay),
    /// Where the proxy is, is not known yet.
    Unresolved,
    /// The proxy has no address of the families that this interface has.
    NoFamily,
    /// Its allowance is used up, and begins again on this day.
    UsedUp(Date),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => {
                f.write_str("switched off in the config, or by `ropewalk links disable`")
            }
            Self::NotChosen => f.write_str("no such interface, or no default route by it"),
            Self::NoWay(why) => why.fmt(f),
            Self::Unresolved => f.write_str("the proxy's address is not known yet"),
            Self::UsedUp(until) => write!(f, "its allowance is used up until {until}"),
            Self::NoFamily => {
                f.write_str("the proxy has no address of the family (IPv4, IPv6) used here")
            }
        }
    }
}

/// What the host is asked for.
pub(crate) fn choice(config: &LinksConfig) -> Choice {
    let listed = config.listed.iter().map(|link| Listed {
        name: link.interface.clone(),
        gateways: link.gateways.clone(),
        enabled: link.enabled,
    });
    let (exclude, named) = (config.exclude.clone(), listed.collect());
    match config.select {
        Select::Auto => Choice::Auto { include: config.include.clone(), exclude, named },
        Select::Listed => Choice::List { exclude, named },
    }
}

/// Decides about every interface that is a candidate or named in the config: those of the config first,
/// in its order. A pattern is no interface: what it means is there or not.
pub(crate) fn decide(config: &LinksConfig, seats: &[Seat], proxy: &[SocketAddr]) -> Vec<Decision> {
    let exact = || config.listed.iter().filter(|link| link.interface.is_exact());
    let is_named = |seat: &&Seat| exact().any(|link| link.interface.as_str() == seat.interface);
    let named = exact().map(|link| decide_named(link, seats, proxy));
    let others = seats.iter().filter(|seat| !is_named(seat)).map(|seat| {
        let said = config.of(&seat.interface);
        Decision {
            slot: Some(seat.slot),
            name: seat.interface.clone(),
            interface: seat.interface.clone(),
            keepalive: said.map_or(config.keepalive, |said| said.keepalive),
            metered: said.is_some_and(|said| said.metered),
            policy: said.map(|said| said.policy.clone()).unwrap_or_default(),
            allowance: said.and_then(|said| said.allowance),
            wish: wish(seat, proxy),
        }
    });
    named.chain(others).collect()
}

fn decide_named(link: &LinkConfig, seats: &[Seat], proxy: &[SocketAddr]) -> Decision {
    let seat = seats.iter().find(|seat| seat.interface == link.interface.as_str());
    let wish = match seat {
        _ if !link.enabled => Err(Obstacle::Disabled),
        Some(seat) => wish(seat, proxy),
        None => Err(Obstacle::NotChosen),
    };
    Decision {
        slot: seat.map(|seat| seat.slot),
        name: link.name.clone(),
        interface: link.interface.to_string(),
        keepalive: link.keepalive,
        metered: link.metered,
        policy: link.policy.clone(),
        allowance: link.allowance,
        wish,
    }
}

fn wish(seat: &Seat, proxy: &[SocketAddr]) -> Result<Wish, Obstacle> {
    let ways = seat.state.as_ref().map_err(|why| Obstacle::NoWay(*why))?;
    if proxy.is_empty() {
        return Err(Obstacle::Unresolved);
    }
    let reachable = proxy.iter().filter(|remote| ways.to(remote.ip()).is_some());
    let remotes: Vec<SocketAddr> = reachable.copied().take(MAX_PATHS).collect();
    let in_use = |source: &IpAddr| remotes.iter().any(|to| to.is_ipv4() == source.is_ipv4());
    let used = [&ways.v4, &ways.v6].into_iter().flatten().filter(|way| in_use(&way.source));
    let (sources, gateways): (Vec<_>, Vec<_>) = used.map(|way| (way.source, way.gateway)).unzip();
    if sources.is_empty() {
        return Err(Obstacle::NoFamily);
    }
    let mtu = u16::try_from(ways.mtu).unwrap_or(u16::MAX);
    Ok(Wish { index: ways.index, mtu, sources, gateways, remotes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Way;
    use ropewalk_settings::{Bitrate, NamePattern, Text as _, Usage};

    fn ways(sources: &[&str]) -> Ways {
        let way = |v4: bool| {
            let source = sources.iter().map(|text| text.parse::<IpAddr>().unwrap());
            let source = source.into_iter().find(|source| source.is_ipv4() == v4)?;
            Some(Way { source, addresses: vec![source.into()], gateway: None })
        };
        Ways { index: 7, mtu: 1500, v4: way(true), v6: way(false) }
    }

    fn seat(slot: u16, interface: &str, state: Result<Ways, NoWay>) -> Seat {
        Seat { slot, interface: interface.into(), state }
    }

    fn listed(interface: &str, enabled: bool) -> LinkConfig {
        LinkConfig {
            interface: NamePattern::from_text(interface).unwrap(),
            name: format!("the-{interface}"),
            keepalive: Keepalive::Off,
            gateways: Vec::new(),
            metered: false,
            enabled,
            policy: LinkPolicy::default(),
            allowance: None,
        }
    }

    fn config(select: Select, listed: Vec<LinkConfig>) -> LinksConfig {
        let (include, exclude) = (Vec::new(), Vec::new());
        LinksConfig { select, include, exclude, keepalive: Keepalive::Auto, listed }
    }

    fn proxy(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    const V4: &str = "203.0.113.5:1";
    const V6: &str = "[2001:db8::5]:1";

    /// One listed interface; its state, the proxy's addresses, what is decided.
    #[test]
    fn a_listed_interface_is_a_link_or_says_why_not() {
        let both = ["192.0.2.7", "2001:db8:1::7"];
        type Case<'a> = (Result<Ways, NoWay>, &'a [&'a str], Result<(usize, usize), Obstacle>);
        let cases: [Case<'_>; 11] = [
            (Ok(ways(&both)), &[V4, V6], Ok((2, 2))),
            (Ok(ways(&both)), &[V4], Ok((1, 1))),
            (Ok(ways(&both[..1])), &[V4, V6], Ok((1, 1))),
            (Ok(ways(&both[1..])), &[V4, V6], Ok((1, 1))),
            (Ok(ways(&both[..1])), &[V6], Err(Obstacle::NoFamily)),
            (Ok(ways(&both)), &[], Err(Obstacle::Unresolved)),
            (Err(NoWay::Missing), &[V4], Err(Obstacle::NoWay(NoWay::Missing))),
            (Err(NoWay::NoCarrier), &[V4], Err(Obstacle::NoWay(NoWay::NoCarrier))),
            (Err(NoWay::NoAddress), &[V4], Err(Obstacle::NoWay(NoWay::NoAddress))),
            (Err(NoWay::NoGateway), &[V4], Err(Obstacle::NoWay(NoWay::NoGateway))),
            (Err(NoWay::Down), &[], Err(Obstacle::NoWay(NoWay::Down))),
        ];
        let config = config(Select::Listed, vec![listed("wan0", true)]);
        for (state, addresses, expected) in cases {
            let decided = decide(&config, &[seat(3, "wan0", state.clone())], &proxy(addresses));
            let [link] = &decided[..] else { panic!("{decided:?}") };
            assert_eq!((link.slot, link.name.as_str()), (Some(3), "the-wan0"));
            assert_eq!(link.keepalive, Keepalive::Off);
            let found = link.wish.as_ref().map(|wish| (wish.sources.len(), wish.remotes.len()));
            assert_eq!(found, expected.as_ref().map(|counts| *counts), "{state:?} {addresses:?}");
        }
    }

    #[test]
    fn a_disabled_link_is_shown_and_neither_asked_for_nor_used() {
        let config = config(Select::Listed, vec![listed("wan0", false), listed("wan1", true)]);
        let Choice::List { named, .. } = choice(&config) else { panic!("a list") };
        let asked: Vec<_> = named.iter().map(|one| (one.name.as_str(), one.enabled)).collect();
        assert_eq!(asked, [("wan0", false), ("wan1", true)]);
        let seats = [seat(0, "wan1", Ok(ways(&["192.0.2.7"])))];
        let decided = decide(&config, &seats, &proxy(&[V4]));
        assert_eq!(decided[0].wish, Err(Obstacle::Disabled));
        assert!(decided[1].wish.is_ok());
    }

    #[test]
    fn auto_takes_what_the_host_offers_and_adjusts_what_is_listed() {
        let config = config(
            Select::Auto,
            vec![listed("usb0", true), listed("wan1", true), listed("lan0", false)],
        );
        assert!(matches!(choice(&config), Choice::Auto { .. }));
        let good = || Ok(ways(&["192.0.2.7"]));
        let seats = [seat(0, "wan0", good()), seat(1, "wan1", good())];
        let decided = decide(&config, &seats, &proxy(&[V4]));
        let shown: Vec<_> = decided
            .iter()
            .map(|link| (link.name.as_str(), link.keepalive, link.wish.as_ref().err().copied()))
            .collect();
        assert_eq!(
            shown,
            [
                ("the-usb0", Keepalive::Off, Some(Obstacle::NotChosen)),
                ("the-wan1", Keepalive::Off, None),
                ("the-lan0", Keepalive::Off, Some(Obstacle::Disabled)),
                ("wan0", Keepalive::Auto, None),
            ]
        );
    }

    #[test]
    fn a_named_gateway_is_asked_for_and_a_metered_link_is_one() {
        let mut link = listed("wan1", true);
        link.gateways = vec!["192.0.2.1".parse().unwrap()];
        link.metered = true;
        let gateways = link.gateways.clone();
        let asked = Listed { name: link.interface.clone(), gateways, enabled: true };
        let listed_only = config(Select::Listed, vec![link]);
        assert_eq!(choice(&listed_only), Choice::list(vec![asked.clone()]));
        let auto = LinksConfig { select: Select::Auto, ..listed_only };
        assert_eq!(choice(&auto).named("wan1"), Some(&asked));
        let seats = ["wan0", "wan1"].map(|name| seat(0, name, Ok(ways(&["192.0.2.7"]))));
        let metered: Vec<_> = decide(&auto, &seats, &proxy(&[V4]))
            .into_iter()
            .map(|link| (link.interface, link.metered))
            .collect();
        assert_eq!(metered, [("wan1".into(), true), ("wan0".into(), false)]);
    }

    #[test]
    fn the_settings_of_a_pattern_are_those_of_each_interface_that_it_means() {
        let mut pattern = listed("wan*", true);
        pattern.metered = true;
        pattern.policy.usage = Usage::Backup;
        pattern.policy.max_down = Some(Bitrate::from_mbps(5));
        let config = config(Select::Listed, vec![pattern, listed("wan1", true)]);
        let seats = ["wan1", "wan2"].map(|name| seat(0, name, Ok(ways(&["192.0.2.7"]))));
        let decided: Vec<_> = decide(&config, &seats, &proxy(&[V4]))
            .into_iter()
            .map(|link| (link.name, link.metered, link.keepalive, link.policy))
            .collect();
        let (none, kept_back) = (
            LinkPolicy::default(),
            LinkPolicy {
                usage: Usage::Backup,
                max_down: Some(Bitrate::from_mbps(5)),
                ..LinkPolicy::default()
            },
        );
        assert_eq!(
            decided,
            [
                ("the-wan1".into(), false, Keepalive::Off, none),
                ("wan2".into(), true, Keepalive::Off, kept_back)
            ]
        );
    }

    #[test]
    fn the_paths_keep_the_order_of_preference_and_are_bounded() {
        let many: Vec<String> = (1..=12).map(|port| format!("203.0.113.5:{port}")).collect();
        let mut addresses: Vec<&str> = vec![V6];
        addresses.extend(many.iter().map(String::as_str));
        let config = config(Select::Listed, vec![listed("wan0", true)]);
        let seats = [seat(0, "wan0", Ok(ways(&["192.0.2.7"])))];
        let decided = decide(&config, &seats, &proxy(&addresses));
        let wish = decided[0].wish.as_ref().unwrap();
        assert_eq!(wish.remotes.len(), MAX_PATHS);
        assert_eq!(wish.remotes[0], "203.0.113.5:1".parse().unwrap());
        assert_eq!(wish.sources, ["192.0.2.7".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn only_the_order_of_the_addresses_does_not_count() {
        let seat = seat(0, "wan0", Ok(ways(&["192.0.2.7"])));
        let wish_for = |addresses: &[&str]| wish(&seat, &proxy(addresses)).unwrap();
        let base = wish_for(&["203.0.113.5:1", "203.0.113.6:1"]);
        assert!(base.is_like(&wish_for(&["203.0.113.6:1", "203.0.113.5:1"])));
        assert!(base.is_like(&wish_for(&["203.0.113.5:1"])), "the core follows addresses");
        for other in [
            Wish { index: 8, ..base.clone() },
            Wish { mtu: 1400, ..base.clone() },
            Wish { sources: vec!["192.0.2.8".parse().unwrap()], ..base.clone() },
            Wish { gateways: vec![Some("192.0.2.1".parse().unwrap())], ..base.clone() },
        ] {
            assert!(!base.is_like(&other), "{other:?}");
        }
    }
}
