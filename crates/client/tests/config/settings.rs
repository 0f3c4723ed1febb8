//! Settings that a list, a word or a pattern says.

use std::time::Duration;

use ropewalk_client::config::{Config, Dns, Inbound, ShareConfig};
use ropewalk_settings::TlsUse;

use crate::{PRIVATE, PROXY, parse};

#[test]
fn links_go_over_tls_where_they_must_and_a_mistake_there_is_told() {
    let file = |tls: &str| {
        let proxy = format!("[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n{tls}");
        parse(&format!("private_key = \"{PRIVATE}\"\n{proxy}\n"))
    };
    let read = |tls: &str| file(tls).map(|config| (config.proxy.tls, config.proxy.tls_port));
    assert_eq!(read("").unwrap(), (TlsUse::Auto, 443));
    assert_eq!(read("tls = \"always\"\ntls_port = 8443").unwrap(), (TlsUse::Always, 8443));
    assert_eq!(file("").unwrap().proxy.tls_port_in_use(), Some(443));
    assert_eq!(file("tls = \"never\"").unwrap().proxy.tls_port_in_use(), None);
    for (tls, expected) in [
        ("tls = \"on\"", "5:7: unknown value `on`"),
        ("tls = true", "5:7: wanted string"),
        ("tls_port = 0", "5:12: port 0 is no port"),
        ("tls_port = 65536", "5:12: invalid value: integer `65536`"),
    ] {
        let error = file(tls).map(drop).expect_err(tls);
        assert!(error.contains(expected), "{tls}: {error}");
    }
}

#[test]
fn name_servers_are_the_proxys_none_or_a_few() {
    let with = |dns: &str| file(&format!("dns = {dns}"), "");
    let servers = ["9.9.9.9", "2620:fe::fe"].map(|ip| ip.parse().unwrap());
    for (dns, expected) in [
        ("\"proxy\"", Dns::Proxy),
        ("\"none\"", Dns::Untouched),
        ("[]", Dns::Untouched),
        ("\"9.9.9.9\"", Dns::Servers(servers[..1].to_vec())),
        ("[\"9.9.9.9\", \"2620:fe::fe\"]", Dns::Servers(servers.to_vec())),
    ] {
        assert_eq!(with(dns).unwrap().dns, expected, "{dns}");
    }
    for (dns, expected) in [
        ("\"auto\"", "`auto` is not \"proxy\", \"none\""),
        ("\"127.0.0.53\"", "no address that can be asked"),
        ("[\"proxy\", \"9.9.9.9\"]", "stand alone"),
        ("[\"1.1.1.1\", \"1.0.0.1\", \"9.9.9.9\", \"8.8.8.8\"]", "at most 3 are asked"),
    ] {
        let error = with(dns).unwrap_err();
        assert!(error.contains(expected), "{dns}: {error}");
    }
}

#[test]
fn what_comes_in_is_what_the_proxy_lets_through_nothing_or_some_ports() {
    let with = |inbound: &str| file(&format!("inbound = {inbound}"), "");
    for (inbound, expected) in
        [("\"proxy\"", Inbound::Proxy), ("\"none\"", Inbound::Nothing), ("[]", Inbound::Nothing)]
    {
        assert_eq!(with(inbound).unwrap().inbound, expected, "{inbound}");
    }
    let some = with("[\"443/tcp\", \"5000-5010/udp\", \"443/udp\"]").unwrap().inbound;
    assert_eq!(some.to_string(), "443/tcp, 5000-5010/udp, 443/udp");
    let many: Vec<_> = (1..=65).map(|port| format!("\"{port}/tcp\"")).collect();
    let many = format!("[{}]", many.join(","));
    for (inbound, expected) in [
        ("\"all\"", "`all` is not \"proxy\", \"none\", or ports"),
        ("\"443\"", "`443` is not"),
        ("\"443/sctp\"", "`443/sctp` is not"),
        ("\"0/tcp\"", "`0` is not a port"),
        ("\"9-7/tcp\"", "write \"7-9\""),
        ("[\"none\", \"443/tcp\"]", "stand alone"),
        ("[\"440-450/tcp\", \"443/tcp\"]", "443 has a port that stands here twice"),
        (many.as_str(), "65 ports; at most 64"),
    ] {
        let error = with(inbound).unwrap_err();
        assert!(error.contains(expected), "{inbound}: {error}");
    }
}

#[test]
fn a_link_is_not_shared_with_and_nothing_is_locked_unless_told() {
    let none = file("", "").unwrap();
    assert!(!none.kill_switch && none.share == ShareConfig::default());
    let both = file("kill_switch = true\nshare = [\"ap0\", \"ap1\"]", "").unwrap();
    assert!(both.kill_switch);
    let shared = &both.share.interfaces;
    assert_eq!(shared.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ap0", "ap1"]);
    let link = "[[link]]\ninterface = \"ap0\"";
    let error = file("share = \"ap0\"", link).unwrap_err();
    assert!(error.contains("`ap0` is a link"), "{error}");
    let other = format!("{link}\nenabled = false\n[[link]]\ninterface = \"wan0\"");
    assert_eq!(file("share = \"ap0\"", &other).unwrap().share.interfaces.len(), 1);
    // Devices are behind it: it is no automatic link either.
    let links =
        file("links = \"auto\"\nexclude_interfaces = \"wlx*\"\nshare = \"ap0\"", "").unwrap().links;
    let excluded: Vec<_> = links.exclude.iter().map(ToString::to_string).collect();
    assert_eq!(excluded, ["wlx*", "ap0"]);
    let many: Vec<_> = (0..17).map(|n| format!("\"ap{n}\"")).collect();
    let error = file(&format!("share = [{}]", many.join(",")), "").unwrap_err();
    assert!(error.contains("at most 16"), "{error}");
    for state_dir in ["\"state\"", "\"\""] {
        assert!(file(&format!("state_dir = {state_dir}"), "").is_err());
    }
}

#[test]
fn a_household_is_a_section_of_its_own() {
    let read = |below: &str| file("", &format!("[share]\n{below}")).unwrap().share;
    let plain = read("interfaces = \"lan0\"");
    assert!(!plain.dhcp && plain.limits.is_empty() && plain.address.is_none());
    assert_eq!(plain.lease, Duration::from_secs(12 * 3600));
    let whole = read(
        "interfaces = [\"lan0\"]\naddress = \"192.168.77.1/24\"\ndhcp = true\n\
         range = \"192.168.77.20-192.168.77.99\"\nlease = \"1h\"\n\
         [[share.limit]]\ndevice = \"Kids-Tablet\"\ndown = \"5 Mbit/s\"\n\
         [[share.limit]]\ndevice = \"52:54:00:12:34:56\"\nup = \"1 Mbit/s\"\ndown = \"2 Mbit/s\"\n",
    );
    assert!(whole.dhcp);
    assert_eq!(whole.address, Some("192.168.77.1/24".parse().unwrap()));
    assert_eq!(whole.range.unwrap().to_string(), "192.168.77.20-192.168.77.99");
    assert_eq!(whole.lease, Duration::from_secs(3600));
    let limits: Vec<_> = whole.limits.iter().map(ToString::to_string).collect();
    let expected = [
        "kids-tablet at most 5 Mbit/s down",
        "52:54:00:12:34:56 at most 2 Mbit/s down, 1 Mbit/s up",
    ];
    assert_eq!(limits, expected);
}

#[test]
fn what_does_not_fit_together_in_a_household_is_told() {
    let two = "interfaces = [\"lan0\", \"lan1\"]\n";
    let limit = "[[share.limit]]\ndevice = \"tv\"\ndown = \"5 Mbit/s\"\n";
    for (below, expected) in [
        ("dhcp = true", "`dhcp`, but `interfaces` names none"),
        ("address = \"192.168.77.1/24\"", "`address`, but `interfaces` names none"),
        (limit, "a limit of a device, but `interfaces`"),
        (&*format!("{two}address = \"192.168.77.1/24\""), "`address` goes with one interface"),
        (&*format!("{two}range = \"10.0.0.1-10.0.0.2\""), "`range` goes with one interface"),
        ("interfaces = [\"lan0\", \"lan0\"]", "`lan0` stands here twice"),
        ("interfaces = \"lan0\"\naddress = \"192.168.77.0/24\"", "no host can have the address"),
        ("interfaces = \"lan0\"\naddress = \"192.168.77.1\"", "with its network's prefix"),
        ("interfaces = \"lan0\"\naddress = \"192.168.77.1/31\"", "a /8 to a /30"),
        ("interfaces = \"lan0\"\nrange = \"10.0.0.9-10.0.0.2\"", "ends before it begins"),
        ("interfaces = \"lan0\"\nrange = \"10.0.0.9\"", "is not a range of addresses"),
        (
            "interfaces = \"lan0\"\naddress = \"192.168.77.1/24\"\nrange = \"10.0.0.1-10.0.0.2\"",
            "10.0.0.1-10.0.0.2 does not lie in 192.168.77.0/24",
        ),
        ("interfaces = \"lan0\"\nlease = \"1m\"", "an address is lent for 2m to 31days"),
        (&*format!("{two}{limit}{limit}"), "two limits of `tv`"),
        (
            &*format!("{two}[[share.limit]]\ndevice = \"tv\""),
            "tv: a limit says `down`, `up` or both",
        ),
        (&*format!("{two}[[share.limit]]\ndevice = \"the tv\"\n"), "is not a device"),
        ("interface = \"lan0\"", "unknown key `interface`"),
    ] {
        let below = format!("[share]\n{below}");
        let error = file("", &below).map(drop).expect_err(&below);
        assert!(error.contains(expected), "{below}: {error}");
    }
}

#[test]
fn patterns_choose_interfaces_and_adjust_links() {
    let top =
        "links = \"auto\"\ninclude_interfaces = [\"wl*\", \"usb?\"]\nexclude_interfaces = \"wlx*\"";
    let below = "[[link]]\ninterface = \"wl*\"\nmetered = true\n[[link]]\ninterface = \"wlan0\"";
    let links = file(top, below).unwrap().links;
    assert_eq!((links.include.len(), links.exclude.len()), (2, 1));
    let metered = |name: &str| links.of(name).map(|link| link.metered);
    assert_eq!(
        [metered("wlan0"), metered("wlp3s0"), metered("usb0")],
        [Some(false), Some(true), None]
    );
    let listed = "[[link]]\ninterface = \"wl*\"";
    let refused = [
        ("include_interfaces = \"wl*\"", listed, "goes with links = \"auto\""),
        ("exclude_interfaces = \"wl*\"", "[[link]]\ninterface = \"wlan0\"", "has `wl*`"),
    ];
    for (top, below, expected) in refused {
        let error = file(top, below).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn prefixes_are_bounded_together_at_the_longer_list() {
    let list = |count: usize| -> String {
        let prefixes: Vec<_> = (0..count).map(|n| format!("\"10.0.{n}.0/24\"")).collect();
        format!("[{}]", prefixes.join(", "))
    };
    let text = |routes: usize, exclude: usize| {
        format!(
            "private_key_file = \"client.key\"\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n\
             [tun]\nroutes = {}\nexclude = {}\n",
            list(routes),
            list(exclude)
        )
    };
    assert!(parse(&text(200, 48)).is_ok());
    for (routes, exclude, place) in [(200, 49, "6:10: "), (49, 200, "7:11: ")] {
        let error = parse(&text(routes, exclude)).unwrap_err();
        let expected = format!("{place}routes and exclude have 249 prefixes; at most 248");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn users_programs_and_domains_stand_in_one_list_and_alone_route_nothing_else() {
    let with = |top: &str, routes: &str, exclude: &str| {
        file(top, &format!("[tun]\nroutes = {routes}\nexclude = {exclude}\n"))
    };
    let only = with("", "[\"user:backup\", \"domain:Example.org.\"]", "[]").unwrap().tun;
    let shown: Vec<String> = only.routes.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["user:backup", "domain:example.org"]);
    assert!(!only.routes_all(true) && !only.routes_all(false));
    let all = with("", "[\"0.0.0.0/0\", \"user:1000\"]", "\"app:firefox\"").unwrap().tun;
    assert!(all.routes_all(true) && !all.routes_all(false));
    let many: Vec<String> = (0..65).map(|n| format!("\"user:{n}\"")).collect();
    let (fits, many) = (format!("[{}]", many[1..].join(", ")), format!("[{}]", many.join(", ")));
    assert!(with("", "[]", &fits).is_ok());
    for (top, routes, exclude, expected) in [
        ("", "[]", many.as_str(), "8:11: routes and exclude have 65 entries that are no prefixes"),
        ("", fits.as_str(), "\"app:x\"", "7:10: routes and exclude have 65 entries"),
        ("", "[\"app:x\"]", "[\"app:x\"]", "8:11: `app:x` stands in routes and in exclude"),
        ("dns = \"none\"", "[\"domain:a.test\"]", "[]", "7:10: `domain:a.test` needs the answers"),
        ("dns = \"none\"", "[]", "[\"domain:a.test\"]", "8:11: `domain:a.test` needs the answers"),
    ] {
        let error = with(top, routes, exclude).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// A file with these lines before `[proxy]` and behind it.
fn file(top: &str, below: &str) -> Result<Config, String> {
    parse(&format!(
        "private_key = \"{PRIVATE}\"\n{top}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n{below}"
    ))
}
