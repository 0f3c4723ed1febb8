//! `client.toml`: the sample is the default, and every mistake is told with its place.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use ropewalk_client::config::{Allowance, Config, Dns, Inbound, Select};
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_settings::{
    Bitrate, ControllerKind, Keepalive, Mtu, TlsUse, TunnelSettings, Usage, WhenClosed,
};

const SAMPLE: &str = include_str!("../../../configs/client.toml");

/// The public key that stands for "put yours here" in the sample.
const PLACEHOLDER: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Of the private key above.
const OWN: &str = "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=";

const PROXY: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

#[test]
fn the_sample_says_what_a_minimal_file_means() {
    let sample = parse(&SAMPLE.replace(PLACEHOLDER, PROXY)).unwrap();
    let minimal = format!(
        "private_key = \"{PRIVATE}\"\n[proxy]\naddress = \"vps.example.org\"\npublic_key = \"{PROXY}\"\n"
    );
    assert_eq!(sample, parse(&minimal).unwrap());
    assert_eq!(sample.links.select, Select::Auto);
    assert_eq!(sample.tun.mtu, Mtu::Auto);
    assert_eq!(sample.tun.routes.len(), 2);
    assert_eq!(sample.tunnel, TunnelSettings::default());
}

#[test]
fn the_sample_as_it_is_asks_for_the_key() {
    let error = parse(SAMPLE).unwrap_err();
    assert_eq!(
        error.split_once(": ").unwrap().1.lines().next().unwrap(),
        "a key of only zeros is a placeholder: put the real key here"
    );
}

#[test]
fn every_key_that_the_sample_only_mentions_exists() {
    // Each commented line in turn, in the section in which it stands; [[link]] as a whole below.
    let mut mentioned = 0;
    let mut of_link = false;
    for (at, line) in SAMPLE.lines().enumerate() {
        of_link = (of_link || line == "# [[link]]") && !line.is_empty();
        if of_link {
            continue;
        }
        let Some(key) = line.strip_prefix("# ").filter(|line| is_setting(line)) else { continue };
        mentioned += 1;
        let text: Vec<&str> =
            SAMPLE.lines().enumerate().map(|(n, l)| if n == at { key } else { l }).collect();
        if let Err(error) = parse(&text.join("\n").replace(PLACEHOLDER, PROXY)) {
            assert!(!error.contains("unknown key"), "{key}: {error}");
        }
    }
    assert_eq!(mentioned, 11);
    let link = SAMPLE
        .replace(PLACEHOLDER, PROXY)
        .replace("# [[link]]\n# interface", "[[link]]\ninterface")
        .replace("# name = \"wlan\"", "name = \"wlan\"")
        .replace("# keepalive = \"auto\"", "keepalive = \"auto\"")
        .replace("# gateway", "gateway")
        .replace("# metered = false", "metered = true")
        .replace("# enabled", "enabled")
        .replace("# use = \"always\"", "use = \"backup\"")
        .replace("# direction", "direction")
        .replace("# weight", "weight")
        .replace("# cost", "cost")
        .replace("# importance", "importance")
        .replace("# rate_", "rate_")
        .replace("# max_", "max_")
        .replace("# allowance", "allowance");
    let config = parse(&link).unwrap();
    assert_eq!(config.links.select, Select::Auto);
    assert_eq!(config.links.listed[0].name, "wlan");
    assert_eq!(config.links.listed[0].keepalive, Keepalive::Auto);
    assert_eq!(config.links.listed[0].gateways, ["192.168.1.1".parse::<IpAddr>().unwrap()]);
    assert!(config.links.listed[0].metered);
    let policy = &config.links.listed[0].policy;
    assert_eq!(policy.usage, Usage::Backup);
    assert_eq!(policy.max_down, Some(Bitrate::from_bps(20_000_000)));
    assert_eq!(policy.rate_up, Some(Bitrate::from_mbps(10)));
    assert_eq!(policy.cost.as_ref().map(ToString::to_string).as_deref(), Some("5 EUR/GB"));
    assert!(policy.importance.is_some() && policy.weight == Some(1.0));
    let allowance = Allowance { bytes: 50_000_000_000, reset_day: 1, stop: false };
    assert_eq!(config.links.listed[0].allowance, Some(allowance));
    // The amount alone says the same.
    let short = link.replace(
        "allowance = { bytes = \"50 GB\", reset_day = 1, stop = false }",
        "allowance = \"50 GB\"",
    );
    assert_ne!(short, link);
    assert_eq!(parse(&short).unwrap().links.listed[0].allowance, Some(allowance));
}

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
    let file = |dns: &str| {
        parse(&format!(
            "private_key = \"{PRIVATE}\"\ndns = {dns}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n"
        ))
    };
    let servers = ["9.9.9.9", "2620:fe::fe"].map(|ip| ip.parse().unwrap());
    for (dns, expected) in [
        ("\"proxy\"", Dns::Proxy),
        ("\"none\"", Dns::Untouched),
        ("[]", Dns::Untouched),
        ("\"9.9.9.9\"", Dns::Servers(servers[..1].to_vec())),
        ("[\"9.9.9.9\", \"2620:fe::fe\"]", Dns::Servers(servers.to_vec())),
    ] {
        assert_eq!(file(dns).unwrap().dns, expected, "{dns}");
    }
    for (dns, expected) in [
        ("\"auto\"", "`auto` is not \"proxy\", \"none\""),
        ("\"127.0.0.53\"", "no address that can be asked"),
        ("[\"proxy\", \"9.9.9.9\"]", "stand alone"),
        ("[\"1.1.1.1\", \"1.0.0.1\", \"9.9.9.9\", \"8.8.8.8\"]", "at most 3 are asked"),
    ] {
        let error = file(dns).unwrap_err();
        assert!(error.contains(expected), "{dns}: {error}");
    }
}

#[test]
fn what_comes_in_is_what_the_proxy_lets_through_nothing_or_some_ports() {
    let file = |inbound: &str| {
        parse(&format!(
            "private_key = \"{PRIVATE}\"\ninbound = {inbound}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n"
        ))
    };
    for (inbound, expected) in
        [("\"proxy\"", Inbound::Proxy), ("\"none\"", Inbound::Nothing), ("[]", Inbound::Nothing)]
    {
        assert_eq!(file(inbound).unwrap().inbound, expected, "{inbound}");
    }
    let some = file("[\"443/tcp\", \"5000-5010/udp\", \"443/udp\"]").unwrap().inbound;
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
        let error = file(inbound).unwrap_err();
        assert!(error.contains(expected), "{inbound}: {error}");
    }
}

#[test]
fn a_link_is_not_shared_with_and_nothing_is_locked_unless_told() {
    let file = |top: &str, below: &str| {
        parse(&format!(
            "private_key = \"{PRIVATE}\"\n{top}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n{below}"
        ))
    };
    let none = file("", "").unwrap();
    assert!(!none.kill_switch && none.share.is_empty());
    let both = file("kill_switch = true\nshare = [\"ap0\", \"ap1\"]", "").unwrap();
    assert!(both.kill_switch);
    assert_eq!(both.share.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ap0", "ap1"]);
    let link = "[[link]]\ninterface = \"ap0\"";
    let error = file("share = \"ap0\"", link).unwrap_err();
    assert!(error.contains("`ap0` is a link"), "{error}");
    let other = format!("{link}\nenabled = false\n[[link]]\ninterface = \"wan0\"");
    assert_eq!(file("share = \"ap0\"", &other).unwrap().share.len(), 1);
    let many: Vec<_> = (0..17).map(|n| format!("\"ap{n}\"")).collect();
    let error = file(&format!("share = [{}]", many.join(",")), "").unwrap_err();
    assert!(error.contains("at most 16"), "{error}");
    for state_dir in ["\"state\"", "\"\""] {
        assert!(file(&format!("state_dir = {state_dir}"), "").is_err());
    }
}

#[test]
fn patterns_choose_interfaces_and_adjust_links() {
    let file = |top: &str, below: &str| {
        parse(&format!(
            "private_key = \"{PRIVATE}\"\n{top}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n{below}"
        ))
    };
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
fn a_whole_file_is_read() {
    let text = format!(
        r#"
private_key_file = "client.key"
keepalive = "4s"

[proxy]
address = ["vps.example.org:4000", "192.0.2.7", "[2001:db8::7]:4001"]
public_key = "{PROXY}"
preshared_key_file = "client.psk"

[tun]
name = "bond0"
mtu = 1400
routes = "10.0.0.0/8"
exclude = ["10.1.0.0/16"]

[[link]]
interface = "wlan0"
name = "wlan"

[[link]]
interface = "wwan0"
keepalive = "off"
gateway = ["10.64.64.1", "fe80::1"]
metered = true

[[link]]
interface = "eth0"
enabled = false

[tunnel]
scheduler = "round-robin"
controller = "fixed"
fixed_window = 7
when_closed = "drop"
rekey_after = "1s"
ecn = false
cipher = "chacha20-poly1305"
[tunnel.resequencer]
max_wait = "200ms"
buffer = "1MiB"
release = "one"

[control]
socket = "/run/mine.sock"
group = "wheel"
"#
    );
    let config = parse(&text).unwrap();
    let addresses: Vec<String> = config.proxy.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["vps.example.org:4000", "192.0.2.7:51900", "[2001:db8::7]:4001"]);
    assert!(config.proxy.preshared_key.is_some());
    assert_eq!(config.tun.mtu, Mtu::AtMost(1400));
    assert_eq!(config.links.select, Select::Listed);
    let links: Vec<_> =
        config.links.listed.iter().map(|l| (l.name.as_str(), l.keepalive, l.enabled)).collect();
    let four = Keepalive::Every(Duration::from_secs(4));
    assert_eq!(
        links,
        [("wlan", four, true), ("wwan0", Keepalive::Off, true), ("eth0", four, false)]
    );
    let gateways: Vec<_> = config.links.listed.iter().map(|link| link.gateways.len()).collect();
    assert_eq!(gateways, [0, 2, 0]);
    let metered: Vec<_> = config.links.listed.iter().map(|link| link.metered).collect();
    assert_eq!(metered, [false, true, false]);
    assert_eq!(config.tunnel.controller, ControllerKind::Fixed(7));
    assert_eq!(config.tunnel.when_closed, WhenClosed::Drop);
    assert_eq!(config.tunnel.resequencer.buffer, 1 << 20);
    assert_eq!(config.control.group.as_deref(), Some("wheel"));
}

/// What is inserted into a valid file (before `[proxy]`, in `[proxy]`, or behind it), and the error.
#[test]
fn mistakes_are_told_with_place_and_remedy() {
    let top = [
        ("keepaliv = \"15s\"", "2:1: unknown key `keepaliv`", "did you mean `keepalive`?"),
        (
            "keepalive = 15",
            "2:13: invalid type: integer `15`, expected a duration such as \"15s\"",
            "",
        ),
        ("keepalive = \"15\"", "2:13: `15` is not a duration such as \"15s\", or \"auto\"", ""),
        ("keepalive = \"of\"", "2:13: `of` is not a duration", "\"off\""),
        ("keepalive = \"1h\"", "2:13: 1h is outside 500ms to 10m", ""),
        ("links = \"atuo\"", "2:9: unknown value `atuo`", "did you mean `auto`?"),
        ("links = \"listed\"", "there is no [[link]]", "links = \"auto\""),
        (
            "exclude_interfaces = [\"docker0\", \"br 0\"]",
            "2:34: `br 0` is not the name of an interface",
            "",
        ),
        (
            "zebra = 1",
            "2:1: unknown key `zebra`",
            "valid here: private_key, private_key_file, proxy",
        ),
        (
            "private_key = \"x\"",
            "2:15: a key is 44 characters of base64 (32 bytes); this has 1",
            "",
        ),
        ("keepalive = \"15s\"\nkeepalive = \"16s\"", "3:1: duplicate key", ""),
        ("keepalive = \"15s", "2:", ""),
        ("keepalive", "2:", ""),
        ("[tunnel", "2:", ""),
    ];
    let below = [
        ("[tunel]", "5:2: unknown key `tunel`", "did you mean `tunnel`?"),
        (
            "[tunnel]\nscheduler = \"free-windows\"",
            "6:13: unknown value `free-windows`",
            "did you mean `free-window`?",
        ),
        (
            "[tunnel]\ncontroler = \"fixed\"",
            "6:1: unknown key `controler`",
            "did you mean `controller`?",
        ),
        ("[tunnel]\nqueue = \"101ms\"", "6:9: queue: 101ms is outside 1ms to 100ms", ""),
        (
            "[tunnel]\nqueue = \"1 fortnight\"",
            "6:9: `1 fortnight` is not a duration with its unit",
            "",
        ),
        (
            "[tunnel]\nqueue = 100",
            "6:9: invalid type: integer `100`, expected a duration with its unit",
            "",
        ),
        (
            "[tunnel]\nwhen_closed = \"drop\"\nqueue = \"50ms\"",
            "7:9: queue: it has no meaning",
            "when_closed = \"queue\"",
        ),
        (
            "[tunnel]\nfixed_window = 3",
            "6:16: fixed_window: it has no meaning",
            "controller = \"fixed\"",
        ),
        (
            "[tunnel]\ncontroller = \"fixed\"\nfixed_window = 0",
            "7:16: fixed_window: 0 is outside 1 to 32768",
            "",
        ),
        ("[tunnel]\nrekey_after = \"999ms\"", "6:15: rekey_after: 999ms is outside 1s to 1h", ""),
        (
            "[tunnel]\ncipher = \"aes-128-gcm\"",
            "6:10: unknown value `aes-128-gcm`",
            "did you mean `aes-256-gcm`?",
        ),
        (
            "[tunnel]\nscheduler = \"natali\"",
            "6:13: unknown value `natali`",
            "did you mean `natalie`?",
        ),
        (
            "[tunnel.link.a]\nweight = 1",
            "5:",
            "a client says what it says of a link in its [[link]], for both directions",
        ),
        ("[[link]]\ninterface = \"a\"\nweight = -1", "5:", "a: weight = -1 is no number from 0"),
        ("[[link]]\ninterface = \"a\"\nweight = nan", "5:", "a: weight = NaN is no number from 0"),
        ("[[link]]\ninterface = \"a\"\ncost = \"5\"", "7:8", "such as \"5 EUR/GB\""),
        (
            "[[link]]\ninterface = \"a\"\ncost = \"5 EUR/GB\"\n[[link]]\ninterface = \"b\"\n\
             cost = \"5 USD/GB\"",
            "link b: its cost is in USD",
            "use one unit for all",
        ),
        (
            "[[link]]\ninterface = \"a\"\nimportance = { throughput = 0.5, cost = 0.6 }",
            "7:14: importance:",
            "must be shares that sum to 1",
        ),
        (
            "[[link]]\ninterface = \"a\"\nuse = \"sometimes\"",
            "7:7: unknown value `sometimes`",
            "when-needed",
        ),
        (
            "[[link]]\ninterface = \"a\"\nweight = 0",
            "no link that may carry packets upstream has a weight",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\ndirection = \"up\"",
            "no link may carry packets downstream",
            "",
        ),
        (
            "[[link]]\ninterface = \"wlan0\"\n[tunnel.safire.routes]\n\"10.0.0.0/8\" = [\"lte\"]",
            "7:",
            "there is no link `lte`: there are wlan0",
        ),
        ("[tunnel]\necn = \"yes\"", "6:7: invalid type: string \"yes\", expected a boolean", ""),
        ("[tunnel.resequencer]\nbuffer = \"16\"", "6:10: `16` has no unit", ""),
        (
            "[tunnel.resequencer]\nbuffer = \"1GiB\"",
            "6:10: resequencer buffer: 1.0 GiB is outside 64.0 KiB to 256.0 MiB",
            "",
        ),
        (
            "[tunnel.resequencer]\nrelease = \"none\"",
            "6:11: unknown value `none`",
            "did you mean `one`?",
        ),
        (
            "[tunnel.resequencer]\nenabled = false\nmax_wait = \"9ms\"",
            "6:11: resequencer enabled: without it the other settings have no meaning",
            "write enabled = true, or remove them",
        ),
        ("[tun]\nmtu = 1279", "6:7: 1279 is outside 1280 to 9000 bytes", ""),
        (
            "[tun]\nname = \"a-name-much-too-long\"",
            "6:8: `a-name-much-too-long` has 20 characters",
            "",
        ),
        (
            "[tun]\nroutes = [\"10.0.0.1/8\"]",
            "6:11: `10.0.0.1/8` has bits set beyond its length",
            "10.0.0.0/8",
        ),
        ("[tun]\nroutes = [\"everything\"]", "6:11: `everything` is not a prefix", "domain:NAME"),
        ("[tun]\nroutes = [\"usr:backup\"]", "6:11: `usr:` is no kind of entry", "`user:`"),
        (
            "[tun]\nexclude = [\"unit:steam\"]",
            "6:12: `unit:steam` names no unit",
            "unit:steam.service",
        ),
        ("[tun]\nexclude = \"domain:*.a.test\"", "6:11: `domain:*.a.test`", "\"domain:a.test\""),
        ("[[link]]\nname = \"a\"", "5:1: missing key `interface`", ""),
        ("[[link]]\ninterface = \"a\"\nenabled = false", "no link is enabled", ""),
        (
            "[[link]]\ninterface = \"a\"\nallowance = { bytes = \"50 gigs\" }",
            "7:23: `gigs` is no unit of data here: write an amount of data with its unit",
            "\"50 GB\"",
        ),
        (
            "[[link]]\ninterface = \"a\"\nallowance = { bytes = \"50 Gbit\" }",
            "7:23: `50 Gbit` means bits",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\nallowance = 50",
            "7:13: invalid type: integer `50`, expected an amount for each month, such as \"50 GB\", or",
            "",
        ),
        ("[[link]]\ninterface = \"a\"\nallowance = \"50 Gbit\"", "7:13: `50 Gbit` means bits", ""),
        (
            "[[link]]\ninterface = \"a\"\nallowance = { bytes = \"5 GB\", stopp = true }",
            "7:31: unknown key `stopp`",
            "did you mean `stop`?",
        ),
        ("[[link]]\ninterface = \"a\"\nmax_up = \"5 MB/s\"", "7:10: `5 MB/s` is bytes", ""),
        (
            "[[link]]\ninterface = \"a\"\nallowance = { bytes = 50 }",
            "7:23: invalid type: integer `50`",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\nallowance = { bytes = \"5 GB\", reset_day = 32 }",
            "7:43: 32 is no day of a month",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\nuse = \"bakup\"",
            "7:7: unknown value `bakup`",
            "did you mean `backup`?",
        ),
        (
            "[[link]]\ninterface = \"a\"\nmax_up = \"5\"",
            "7:10: `5` is not a rate with its unit",
            "",
        ),
        (
            "[[link]]\ninterface = \"wl*\"\nname = \"a\"",
            "7:8: several links cannot have one name",
            "remove `name`",
        ),
        (
            "[[link]]\ninterface = \"wl/*\"",
            "6:13: `wl/*` is not the name of an interface or a pattern",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\n[[link]]\ninterface = \"a\"",
            "8:13: the interface `a` is listed twice",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\nname = \"b\"\n[[link]]\ninterface = \"b\"",
            "9:13: two links are called `b`",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\ngateway = [\"10.0.0.1\", \"10.0.0.2\"]",
            "7:11: a link's gateway is one IPv4 address",
            "",
        ),
        ("[[link]]\ninterface = \"a\"\ngateway = []", "7:11: a link's gateway is one IPv4", ""),
        (
            "[[link]]\ninterface = \"a\"\ngateway = \"0.0.0.0\"",
            "7:11: `0.0.0.0` is no router's address",
            "",
        ),
        (
            "[[link]]\ninterface = \"a\"\ngateway = \"fritz.box\"",
            "7:11: `fritz.box` is not an address",
            "",
        ),
        ("[control]\nsocket = \"run/x\"", "6:10: `run/x` is not an absolute path", ""),
        (
            "[control]\nweb = \"0.0.0.0:9586\"",
            "6:7: the page and the numbers are for this machine only",
            "write \"127.0.0.1:9586\", and from elsewhere use `ssh -L 9586:127.0.0.1:9586 HOST`",
        ),
        ("[control]\nweb = \"192.168.1.2:9586\"", "6:7: the page and the numbers", "ssh -L"),
        ("[control]\nweb = \"[::]:9586\"", "6:7: the page and the numbers", "ssh -L"),
        ("[control]\nweb = \"[::ffff:127.0.0.1]:9586\"", "6:7: the page and the numbers", "ssh -L"),
        (
            "[control]\nweb = \"127.0.0.1\"",
            "6:7: this is no address with a port",
            "\"127.0.0.1:9586\"",
        ),
        (
            "[control]\nweb = \"localhost:9586\"",
            "6:7: this is no address with a port",
            "\"[::1]:9586\"",
        ),
        (
            "[control]\nweb = \"127.0.0.1:0\"",
            "6:7: port 0 would be another one at each start",
            "write a port",
        ),
        ("[control]\nweb = 9586", "6:7: invalid type: integer `9586`", ""),
        ("[control]\nsockets = \"/run/x\"", "6:1: unknown key `sockets`", "did you mean `socket`?"),
    ];
    let base = format!(
        "private_key_file = \"client.key\"\n@TOP\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n@BELOW"
    );
    for (mistake, place, help) in top {
        check(&base.replace("@TOP", mistake).replace("@BELOW", ""), mistake, place, help);
    }
    for (mistake, place, help) in below {
        check(&base.replace("@TOP\n", "").replace("@BELOW", mistake), mistake, place, help);
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
    let file = |top: &str, routes: &str, exclude: &str| {
        parse(&format!(
            "private_key = \"{PRIVATE}\"\n{top}\n[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n\
             [tun]\nroutes = {routes}\nexclude = {exclude}\n"
        ))
    };
    let only = file("", "[\"user:backup\", \"domain:Example.org.\"]", "[]").unwrap().tun;
    let shown: Vec<String> = only.routes.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["user:backup", "domain:example.org"]);
    assert!(!only.routes_all(true) && !only.routes_all(false));
    let all = file("", "[\"0.0.0.0/0\", \"user:1000\"]", "\"app:firefox\"").unwrap().tun;
    assert!(all.routes_all(true) && !all.routes_all(false));
    let many: Vec<String> = (0..65).map(|n| format!("\"user:{n}\"")).collect();
    let (fits, many) = (format!("[{}]", many[1..].join(", ")), format!("[{}]", many.join(", ")));
    assert!(file("", "[]", &fits).is_ok());
    for (top, routes, exclude, expected) in [
        ("", "[]", many.as_str(), "8:11: routes and exclude have 65 entries that are no prefixes"),
        ("", fits.as_str(), "\"app:x\"", "7:10: routes and exclude have 65 entries"),
        ("", "[\"app:x\"]", "[\"app:x\"]", "8:11: `app:x` stands in routes and in exclude"),
        ("dns = \"none\"", "[\"domain:a.test\"]", "[]", "7:10: `domain:a.test` needs the answers"),
        ("dns = \"none\"", "[]", "[\"domain:a.test\"]", "8:11: `domain:a.test` needs the answers"),
    ] {
        let error = file(top, routes, exclude).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_must_be_said_is_asked_for() {
    let key = "private_key_file = \"client.key\"\n";
    let proxy = format!("[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n");
    let cases = [
        (String::new(), "missing key `proxy`", ""),
        (proxy.clone(), "missing key `private_key_file`", "ropewalk keygen FILE"),
        (
            format!("{key}private_key = \"{PRIVATE}\"\n{proxy}"),
            "1:20: `private_key` and `private_key_file` are both given",
            "",
        ),
        (format!("{key}[proxy]\naddress = \"vps\"\n"), "2:1: missing key `public_key`", ""),
        (format!("{key}[proxy]\naddress = []\npublic_key = \"{PROXY}\""), "3:11: 0 addresses", ""),
        (
            format!("{key}[proxy]\naddress = \"vps:0\"\npublic_key = \"{PROXY}\""),
            "3:11: `vps:0`: the port must be 1 to 65535",
            "",
        ),
        (
            format!("{key}[proxy]\naddress = \"0.0.0.0:51900\"\npublic_key = \"{PROXY}\""),
            "3:11: `0.0.0.0:51900` cannot be sent to: it is no machine's address",
            "",
        ),
        (
            format!("{key}[proxy]\naddress = [\"vps\", \"[fe80::1]:1\"]\npublic_key = \"{PROXY}\""),
            "3:19: `[fe80::1]:1` cannot be sent to: a link-local address",
            "",
        ),
        (
            format!("{key}[proxy]\naddress = \"vps\"\npublic_key = \"{OWN}\""),
            "4:14: this is the client's own public key",
            "on the proxy",
        ),
        (
            format!("private_key_file = \"none\"\n{proxy}"),
            "1:20: the key file none: a key is 44 characters",
            "ropewalk keygen FILE",
        ),
    ];
    for (text, place, help) in cases {
        check(&text, &text, place, help);
    }
}

#[test]
fn no_error_shows_a_secret() {
    let secret = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0MTI=";
    let proxy = format!("[proxy]\naddress = \"vps\"\npublic_key = \"{PROXY}\"\n");
    for line in [
        format!("private_kye = \"{secret}\""),
        format!("private_key = \"{secret}\" x"),
        format!("private_key = \"{}\"", &secret[..43]),
        format!("private_key = {secret}"),
        format!("private_key = [\"{secret}\"]"),
        format!("keepalive = \"{secret}\""),
        format!("links = \"{secret}\""),
        format!("\"{secret}\" = 1"),
    ] {
        let error = parse(&format!("{line}\n{proxy}")).unwrap_err();
        assert!(!error.contains("c2VjcmV0"), "{line}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }

    /// Cut, doubled, replaced at random places: most errors are deep in the file.
    #[test]
    fn no_mutation_of_a_valid_file_panics(
        at in 0..SAMPLE.len(),
        length in 0..40usize,
        insert in prop_oneof![
            any::<String>(),
            "[\\[\\]\"'=.,#{}\n\\\\]{1,8}",
            "(-?[0-9]{1,30}|[0-9]{1,20}(s|ms|m|h|MiB|EiB|y))",
            Just("\u{feff}".to_owned()),
        ],
    ) {
        let mut text = SAMPLE.replace(PLACEHOLDER, PROXY);
        let start = (0..=at).rev().find(|&n| text.is_char_boundary(n)).unwrap();
        let end = (start + length).min(text.len());
        let end = (0..=end).rev().find(|&n| text.is_char_boundary(n)).unwrap().max(start);
        text.replace_range(start..end, &insert);
        if let Err(error) = parse(&text) {
            let lines = text.lines().count().max(1);
            let line = error.split(':').nth(1).and_then(|n| n.parse::<usize>().ok());
            prop_assert!(line.is_none_or(|line| line <= lines + 1), "{}", error);
        }
    }
}

fn parse(text: &str) -> Result<Config, String> {
    let keys = [
        "client.key",
        "/etc/ropewalk/client/client.key",
        "client.psk",
        "/etc/ropewalk/client/client.psk",
    ];
    let keys = keys.map(|name| (name.into(), PRIVATE.to_owned())).into();
    let source = Source::from_text(Path::new("client.toml"), text, KeyFiles::Given(keys));
    Config::parse(&source).map_err(|error| error.to_string())
}

fn check(text: &str, mistake: &str, place: &str, help: &str) {
    let error = parse(text).map(drop).expect_err(mistake);
    assert!(error.contains(place), "{mistake}\nexpected {place}\n{error}");
    assert!(error.contains(help), "{mistake}\nexpected {help}\n{error}");
}

/// `key = value`, with nothing but a key before the sign.
fn is_setting(line: &str) -> bool {
    line.split_once(" = ").is_some_and(|(key, _)| {
        !key.is_empty()
            && key.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit())
    })
}
