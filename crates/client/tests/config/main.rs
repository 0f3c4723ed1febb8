//! `client.toml`: the sample is the default, and every mistake is told with its place.

mod mistakes;
mod settings;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ropewalk_client::config::{Allowance, Config, Select};
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_settings::{
    Bitrate, ControllerKind, Keepalive, Mtu, TunnelSettings, Usage, WhenClosed,
};

const SAMPLE: &str = include_str!("../../../../configs/client.toml");

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
    // Each commented line in turn, in the section in which it stands; [[link]] as a whole below, and [[share.limit]].
    let mut mentioned = 0;
    let mut of_link = false;
    for (at, line) in SAMPLE.lines().enumerate() {
        let begins = ["# [[link]]", "# [[share.limit]]"].contains(&line);
        of_link = (of_link || begins) && !line.is_empty();
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
    assert_eq!(mentioned, 13);
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
    let household = SAMPLE
        .replace(PLACEHOLDER, PROXY)
        .replace("\ninterfaces = []", "\ninterfaces = [\"lan0\"]")
        .replace("# address = \"192.168.77.1/24\"", "address = \"192.168.77.1/24\"")
        .replace("# range = \"192", "range = \"192")
        .replace("# [[share.limit]]\n# device", "[[share.limit]]\ndevice")
        .replace("# down = \"", "down = \"")
        .replace("# up = \"", "up = \"");
    let share = parse(&household).unwrap().share;
    assert!(share.range.unwrap().is_within(share.address.unwrap()));
    assert_eq!(share.limits[0].to_string(), "kids-tablet at most 5 Mbit/s down, 1 Mbit/s up");
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
