//! `proxy.toml`: the sample is the default, and every mistake is told with its place.

use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};
use ropewalk_proxy::config::{CertificateFiles, Config, Ipv6Mode, TlsConfig, Uplinks};
use ropewalk_settings::{InterfaceName, SpeedTests};

const SAMPLE: &str = include_str!("../../../configs/proxy.toml");

const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

/// Of the private key above.
const OWN: &str = "pOCSkrZRwni5dyxWn1+puxPZBrRqtoyd+dwrRAn4ogk=";

const PEER: &str = "zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=";

const OTHER: &str = "Xf7dO2vUf2+ijuFdlp1bsOpTd01Ii9r53xxuASSz7yI=";

#[test]
fn the_sample_says_what_a_minimal_file_means() {
    let sample = parse(SAMPLE).unwrap();
    assert_eq!(sample, parse(&format!("private_key = \"{PRIVATE}\"\n")).unwrap());
    assert_eq!(sample.listen, "[::]:51900".parse().unwrap());
    assert_eq!(sample.pools.v4(), "10.77.0.0/16".parse().unwrap());
    assert_eq!(sample.ipv6, Ipv6Mode::Nat66);
    assert_eq!(sample.uplinks, Uplinks::Auto);
    assert_eq!(sample.leases_file(), Path::new("/var/lib/ropewalk/leases.json"));
}

#[test]
fn the_automatic_ipv6_pool_is_unique_local_and_belongs_to_the_key() {
    let pool = parse(SAMPLE).unwrap().pools.v6().unwrap();
    assert_eq!(pool.prefix_len(), 64);
    assert_eq!(pool.addr().octets()[0], 0xfd);
    // The subnet id and the rest are zero; the 40 bits are not.
    assert_eq!(pool.addr().octets()[6..], [0; 10]);
    assert_ne!(pool.addr().octets()[1..6], [0; 5]);
    let other =
        parse(&format!("private_key = \"{}\"", "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="));
    assert_ne!(other.unwrap().pools.v6().unwrap(), pool);
}

#[test]
fn name_servers_are_addresses_that_a_client_could_ask_and_few() {
    let file = |dns: &str| parse(&format!("private_key = \"{PRIVATE}\"\ndns = {dns}\n"));
    let two = file("[\"9.9.9.9\", \"2620:fe::fe\"]").unwrap().dns;
    assert_eq!(two, ["9.9.9.9", "2620:fe::fe"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert_eq!(file("\"10.77.0.1\"").unwrap().dns.len(), 1);
    for (dns, expected) in [
        ("\"127.0.0.53\"", "no address at which a client could ask"),
        ("\"fe80::1\"", "no address at which a client could ask"),
        ("\"0.0.0.0\"", "no address at which a client could ask"),
        ("\"dns.example.org\"", "an address"),
        ("[\"1.1.1.1\", \"8.8.8.8\", \"9.9.9.9\"]", "at most 2 are handed out"),
    ] {
        let error = file(dns).unwrap_err();
        assert!(error.contains(expected), "{dns}: {error}");
    }
}

#[test]
fn the_peer_of_the_sample_needs_only_its_key() {
    let text = SAMPLE
        .replace("# [[peer]]", "[[peer]]")
        .replace("# name =", "name =")
        .replace("# public_key =", "public_key =")
        .replace("# preshared_key_file", "preshared_key_file")
        .replace("# address_v4", "address_v4");
    let error = parse(&text).unwrap_err();
    assert!(error.contains("a key of only zeros is a placeholder"), "{error}");
    let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let config = parse(&text.replace(zeros, PEER)).unwrap();
    assert_eq!(&*config.peers[0].name, "laptop");
    assert_eq!(config.peers[0].address_v4, Some("10.77.0.5".parse().unwrap()));
    assert!(config.peers[0].preshared_key.is_some());
}

#[test]
fn a_whole_file_is_read() {
    let text = format!(
        r#"
private_key_file = "proxy.key"
listen = "192.0.2.1:4000"
pool_v4 = "10.9.0.0/24"
pool_v6 = "2001:db8:9::/64"
ipv6 = "routed"
no_nat = ["10.0.0.0/8", "2001:db8::/32"]
uplinks = ["eth0", "eth1"]
client_to_client = true
allow = ["192.168.7.0/24", "10.0.0.5 443/tcp"]
inbound = "::/0"
client_connections = 100
client_connection_rate = 10
max_peers = 2
state_dir = "/srv/ropewalk"
[tun]
name = "rw"
[[peer]]
name = "van"
public_key = "{PEER}"
address_v6 = "2001:db8:9::5"
prefix_v6 = "2001:db8:a:100::/56"
[[peer]]
name = "boat"
public_key = "{OTHER}"
[speed_test]
at_once = 1
time = "5m"
data = "2 GB"
[tunnel]
rekey_after = "1h"
[control]
socket = "/run/p.sock"
"#
    );
    let config = parse(&text).unwrap();
    assert_eq!(config.peers.len(), 2);
    let prefixes: Vec<_> = config.peers.iter().map(|peer| peer.prefix_v6).collect();
    assert_eq!(prefixes, [Some("2001:db8:a:100::/56".parse().unwrap()), None]);
    assert_eq!(config.no_nat.len(), 2);
    let names = ["eth0", "eth1"].map(|name| InterfaceName::new(name).unwrap());
    assert_eq!(config.uplinks, Uplinks::Named(names.into()));
    assert!(config.client_to_client);
    let allow: Vec<_> = config.allow.iter().map(ToString::to_string).collect();
    assert_eq!(allow, ["192.168.7.0/24", "10.0.0.5/32 443/tcp"]);
    assert_eq!(config.inbound, ["::/0".parse::<ipnet::IpNet>().unwrap()]);
    assert_eq!((config.client_connections, config.client_connection_rate), (100, 10));
    let tests = SpeedTests {
        enabled: true,
        at_once: 1,
        time: Duration::from_secs(300),
        data: 2_000_000_000,
    };
    assert_eq!(config.speed_tests, tests);
    assert_eq!(config.tun_name.as_str(), "rw");
    assert_eq!(config.ipv6, Ipv6Mode::Routed);
}

#[test]
fn mistakes_are_told_with_place_and_remedy() {
    let peer = format!("[[peer]]\nname = \"a\"\npublic_key = \"{PEER}\"\n");
    let cases = [
        ("lisen = \"[::]:1\"".to_owned(), "2:1: unknown key `lisen`", "did you mean `listen`?"),
        ("listen = \"51900\"".into(), "2:10: `51900` is not an address with a port", "[::]:51900"),
        ("listen = 51900".into(), "2:10: invalid type: integer `51900`, expected an address", ""),
        ("listen = \"[::]:0\"".into(), "2:10: port 0 would be another port", "51900"),
        ("pool_v4 = \"10.77.1.0/16\"".into(), "2:11: `10.77.1.0/16` has bits set", "10.77.0.0/16"),
        ("pool_v4 = \"10.77.0.0/31\"".into(), "2:11: an IPv4 pool is a /8 to a /30", ""),
        ("pool_v4 = \"fd00::/64\"".into(), "2:11: `fd00::/64` is not an IPv4 prefix", ""),
        ("pool_v6 = \"automatic\"".into(), "2:11: `automatic` is not an IPv6 prefix", "\"auto\""),
        ("pool_v6 = \"fd00::/127\"".into(), "2:11: an IPv6 pool is a /32 to a /126", ""),
        ("ipv6 = \"nat\"".into(), "2:8: unknown value `nat`", "did you mean `nat66`?"),
        ("ipv6 = \"routed\"".into(), "pool_v6 is a unique local prefix", "nat66"),
        ("pool_v6 = \"fd00::/64\"\nipv6 = \"routed\"".into(), "2:11: ipv6 = \"routed\", but", ""),
        ("uplinks = []".into(), "2:11: no uplink", "auto"),
        ("uplinks = [\"eth0\", \"a b\"]".into(), "2:20: `a b` is not the name of an interface", ""),
        ("no_nat = [\"10.0.0.0/40\"]".into(), "2:11: `10.0.0.0/40` is not a prefix", ""),
        ("allow = \"lan\"".into(), "2:9: `lan` is not a network", "192.168.7.0/24"),
        ("allow = [\"10.0.0.5 443\"]".into(), "2:10: `10.0.0.5 443` is not a network", "443/tcp"),
        ("inbound = [\"all\"]".into(), "2:12: `all` is not a prefix", ""),
        ("client_connections = 0".into(), "2:22: 0 is outside 1 to 262144 connections", ""),
        ("client_connection_rate = 200000".into(), "2:26: 200000 is outside 1 to 100000", ""),
        ("max_peers = 0".into(), "2:13: 0 is outside 1 to 65000 peers", ""),
        ("max_peers = 65001".into(), "2:13: 65001 is outside 1 to 65000 peers", ""),
        ("max_peers = \"many\"".into(), "2:13: invalid type: string \"many\", expected", ""),
        ("[speed_test]\nat_once = 0".into(), "3:11: 0 is outside 1 to 64 tests", "enabled = false"),
        ("[speed_test]\ntime = \"2h\"".into(), "3:8: 2h is outside 10s to 1h", ""),
        ("[speed_test]\ndata = \"5\"".into(), "3:8: `5` has no unit", "50 GB"),
        ("state_dir = \"state\"".into(), "2:13: `state` is not an absolute path", ""),
        ("client_to_client = 1".into(), "2:20: invalid type: integer `1`, expected a boolean", ""),
        ("[[peers]]".into(), "2:3: unknown key `peers`", "did you mean `peer`?"),
        (
            format!("{peer}adress_v4 = \"10.77.0.5\""),
            "5:1: unknown key `adress_v4`",
            "`address_v4`",
        ),
        (format!("{peer}address_v4 = \"10.78.0.5\""), "5:14: 10.78.0.5 is not in pool_v4", ""),
        (format!("{peer}address_v4 = \"10.77.0.1\""), "5:14: 10.77.0.1 is the proxy's own", ""),
        (format!("{peer}address_v6 = \"fd00::5\""), "5:14: fd00::5 is not in pool_v6", ""),
        (format!("pool_v6 = \"off\"\n{peer}address_v6 = \"fd00::5\""), "6:14: pool_v6 is off", ""),
        (format!("{peer}prefix_v6 = \"2001:db8::/40\""), "5:13: the network behind a client", ""),
        (format!("{peer}prefix_v6 = \"2001:db8::/80\""), "5:13: the network behind a client", ""),
        (format!("{peer}prefix_v6 = \"2001:db8::1/64\""), "5:13: `2001:db8::1/64` has bits", ""),
        (format!("{peer}prefix_v6 = \"fd00:7::/64\""), "5:13: fd00:7::/64 is a unique local", ""),
        (format!("{peer}prefix_v6 = \"fe80::/64\""), "5:13: fe80::/64 overlaps fe80::/10", ""),
        (
            format!("pool_v6 = \"off\"\n{peer}prefix_v6 = \"2001:db8::/64\""),
            "6:13: pool_v6 is off",
            "",
        ),
        (
            format!(
                "pool_v6 = \"2001:db8:9::/64\"\nipv6 = \"routed\"\n{peer}prefix_v6 = \"2001:db8:9::/56\""
            ),
            "7:13: 2001:db8:9::/56 overlaps pool_v6, which is \"2001:db8:9::/64\"",
            "",
        ),
        (
            format!(
                "{peer}prefix_v6 = \"2001:db8:9::/56\"\n[[peer]]\nname = \"b\"\npublic_key = \"{OTHER}\"\n\
                 prefix_v6 = \"2001:db8:9:1::/64\""
            ),
            "9:13: 2001:db8:9:1::/64 overlaps 2001:db8:9::/56, that of `a`",
            "",
        ),
        (format!("{peer}{peer}"), "6:8: two peers are called `a`", ""),
        (
            format!("{peer}{}", peer.replace("\"a\"", "\"b\"")),
            "7:14: this key is already that of `a`",
            "",
        ),
        (
            format!(
                "{peer}address_v4 = \"10.77.0.5\"\n[[peer]]\nname = \"b\"\npublic_key = \"{OTHER}\"\naddress_v4 = \"10.77.0.5\""
            ),
            "9:14: this address is already that of `a`",
            "",
        ),
        (
            format!("[[peer]]\nname = \"a\"\npublic_key = \"{OWN}\""),
            "4:14: this is the proxy's own",
            "on the client",
        ),
        (
            format!("[[peer]]\nname = \"\"\npublic_key = \"{PEER}\""),
            "3:8: a peer's name has 1 to 64",
            "",
        ),
        ("[[peer]]\nname = \"a\"".into(), "2:1: missing key `public_key`", ""),
        (
            format!("max_peers = 1\n{peer}[[peer]]\nname = \"b\"\npublic_key = \"{OTHER}\""),
            "2 peers, but max_peers is 1",
            "",
        ),
        (format!("{peer}preshared_key_file = \"none.psk\""), "5:22: the key file none.psk", ""),
    ];
    for (mistake, place, help) in cases {
        let text = format!("private_key_file = \"proxy.key\"\n{mistake}\n");
        let error = parse(&text).map(drop).expect_err(&mistake);
        assert!(error.contains(place), "{mistake}\nexpected {place}\n{error}");
        assert!(error.contains(help), "{mistake}\nexpected {help}\n{error}");
    }
}

/// A forward with these lines besides the protocol and the client.
fn forward(lines: &str) -> String {
    format!("[[forward]]\nprotocol = \"tcp\"\nto = \"laptop\"\n{lines}\n")
}

#[test]
fn the_forward_of_the_sample_is_one() {
    let mut of_forward = false;
    let lines = SAMPLE.lines().map(|line| {
        of_forward = (of_forward || line == "# [[forward]]") && !line.is_empty();
        if of_forward { line.trim_start_matches("# ") } else { line }
    });
    let config = parse(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    let [forward] = config.forwards.as_slice() else { panic!("{:?}", config.forwards) };
    assert_eq!(forward.ports_in_words(), "TCP 8443");
    let said = "laptop port 443, from 198.51.100.0/24, 2001:db8::7";
    assert_eq!(forward.to_string(), said);
}

#[test]
fn ports_lead_to_clients_that_need_not_be_known_yet() {
    let text = format!(
        "private_key = \"{PRIVATE}\"\n{}[[forward]]\nprotocol = \"both\"\nport = \"5000-5010\"\nto = \"Käthes Bus\"\n",
        forward("port = 443")
    );
    let forwards = parse(&text).unwrap().forwards;
    assert_eq!((forwards[0].to_port, forwards[0].ports_in_words().as_str()), (443, "TCP 443"));
    assert_eq!(forwards[1].to_string(), "Käthes Bus");
    assert_eq!(forwards[1].ports_in_words(), "TCP and UDP 5000-5010");
    assert!(parse(SAMPLE).unwrap().forwards.is_empty());
}

#[test]
fn a_forward_that_cannot_be_is_told_with_what_to_write() {
    let udp = |port: &str| forward(&format!("port = {port}")).replace("tcp", "udp");
    let many: String = (1..=257).map(|port| forward(&format!("port = {port}"))).collect();
    let nets: Vec<_> = (0..65).map(|net| format!("\"10.{net}.0.0/16\"")).collect();
    let cases = [
        (forward(""), "missing key `port`", ""),
        (forward("port = 0"), "`0` is not a port or a range of ports", "16384-32767"),
        (forward("port = \"5010-5000\""), "ends before it begins", "5000-5010"),
        (forward("port = 443").replace("tcp", "sctp"), "unknown value `sctp`", "`tcp`"),
        (forward("port = 443").replace("laptop", ""), "1 to 64 printable characters", ""),
        (forward("port = 443\nto_port = 70000"), "70000 is no port", "1 to 65535"),
        (forward("port = \"1-2\"\nto_port = 5"), "several ports keep their numbers", "`to_port`"),
        (forward("port = 443\nfrom = []"), "nobody may come in", "lets everybody in"),
        (forward("port = 443\nfrom = \"lan\""), "`lan` is not an address or a prefix", "2001:db8"),
        (forward("port = 443\nfrom = \"10.0.0.1/8\""), "bits set", "10.0.0.0/8"),
        (
            forward(&format!("port = 443\nfrom = [{}]", nets.join(","))),
            "65 networks; at most 64",
            "",
        ),
        (forward("ports = 443"), "unknown key `ports`", "`port`"),
        // A port that is taken.
        (
            forward("port = 443") + &forward("port = \"400-500\""),
            "TCP 443 leads to `laptop` already",
            "one client",
        ),
        (
            udp("53") + &forward("port = 53").replace("tcp", "both"),
            "UDP 53 leads to `laptop` already",
            "one client",
        ),
        (udp("51900"), "UDP 51900 is the proxy's own: clients connect there (`listen`)", "another"),
        (udp("\"400-500\""), "UDP 443 is the proxy's own: clients connect there (`more", "another"),
        (
            forward("port = 9586") + "[control]\nweb = \"127.0.0.1:9586\"\n",
            "TCP 9586 is the proxy's own: its page is there",
            "another",
        ),
        (
            forward("port = 443") + "[tls]\n",
            "TCP 443 is the proxy's own: clients connect there over TLS",
            "another",
        ),
        (many, "257 forwards; at most 256 are possible", "in a row"),
    ];
    for (mistake, expected, help) in cases {
        let text = format!("private_key = \"{PRIVATE}\"\nmore_ports = [443]\n{mistake}");
        let error = parse(&text).map(drop).expect_err(&mistake);
        assert!(error.contains(expected), "{mistake}\nexpected {expected}\n{error}");
        assert!(error.contains(help), "{mistake}\nexpected {help}\n{error}");
    }
    // The other protocol's port is another one.
    let tunnel = forward("port = 51900") + &forward("port = 443") + &udp("442");
    let text = format!("private_key = \"{PRIVATE}\"\nmore_ports = [443]\n{tunnel}");
    assert_eq!(parse(&text).unwrap().forwards.len(), 3);
}

#[test]
fn links_over_tls_are_taken_where_the_config_says_so_and_a_mistake_there_is_told() {
    let file = |tls: &str| parse(&format!("private_key = \"{PRIVATE}\"\n{tls}\n"));
    assert_eq!(file("").unwrap().tls, None);
    assert_eq!(file("").unwrap().lowest_port(), 51900);
    let plain = file("[tls]").unwrap();
    assert_eq!(plain.lowest_port(), 443);
    assert_eq!(plain.tls_file(), Path::new("/var/lib/ropewalk/tls.pem"));
    let listen = "[::]:443".parse().unwrap();
    assert_eq!(plain.tls, Some(TlsConfig { listen, files: None }));
    // As the sample mentions it.
    let sample = SAMPLE
        .replace("# [tls]", "[tls]")
        .replace("# listen = ", "listen = ")
        .replace("# certificate_file", "certificate_file")
        .replace("# key_file", "key_file");
    let files = CertificateFiles { certificate: "fullchain.pem".into(), key: "privkey.pem".into() };
    assert_eq!(parse(&sample).unwrap().tls, Some(TlsConfig { listen, files: Some(files) }));
    for (tls, expected) in [
        ("listen = \"[::]:0\"", "3:10: port 0 would be another port at each start"),
        ("listen = \"443\"", "3:10: "),
        ("certificate_file = \"a.pem\"", "3:20: certificate_file and key_file belong together"),
        ("key_file = \"a.key\"", "3:12: certificate_file and key_file belong together"),
        ("port = 443", "3:1: unknown key `port`"),
    ] {
        let error = file(&format!("[tls]\n{tls}")).map(drop).expect_err(tls);
        assert!(error.contains(expected), "{tls}: {error}");
    }
}

#[test]
fn a_key_of_tls_that_others_may_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    std::fs::write(&key, "").unwrap();
    let text = format!(
        "private_key = \"{PRIVATE}\"\n[tls]\ncertificate_file = \"c.pem\"\nkey_file = {key:?}\n"
    );
    let with_mode = |mode: u32| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
        parse(&text)
    };
    assert!(with_mode(0o600).is_ok());
    let error = with_mode(0o640).map(drop).unwrap_err();
    assert!(error.contains("4:12: others may read the private key"), "{error}");
    assert!(error.contains("chmod 600"), "{error}");
}

const TLS: &str =
    "tls_ca_file = \"ca.pem\"\ntls_certificate_file = \"a.pem\"\ntls_key_file = \"a.key\"\n";

#[test]
fn a_shared_registry_is_read_and_its_pool_belongs_to_the_fleet() {
    let file = |key: &str, more: &str| {
        let text = format!(
            "private_key = \"{key}\"\n[registry]\nendpoints = [\"https://10.0.0.1:2379\"]\nid = \"fra-1\"\n{TLS}{more}"
        );
        parse(&text)
    };
    let config = file(PRIVATE, "fleet = \"home\"").unwrap();
    let registry = config.registry.unwrap();
    assert_eq!((registry.fleet.as_str(), registry.id.as_str()), ("home", "fra-1"));
    assert_eq!((registry.prefix.as_str(), registry.region.as_str()), ("/ropewalk", ""));
    assert_eq!(registry.capacity, 1024, "as many as max_peers");
    assert_eq!(registry.tls.unwrap().key, Path::new("a.key"), "beside the config");
    let other = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
    let same = file(other, "fleet = \"home\"").unwrap();
    assert_eq!(same.pools, config.pools, "another proxy of the fleet");
    assert_ne!(file(PRIVATE, "fleet = \"work\"").unwrap().pools, config.pools);
    assert!(parse(SAMPLE).unwrap().registry.is_none());
    let of_most = |most: u32| {
        let local = "endpoints = [\"http://127.0.0.1:2379\"]\nfleet = \"home\"\nid = \"a\"\n";
        parse(&format!("private_key = \"{PRIVATE}\"\nmax_peers = {most}\n[registry]\n{local}"))
    };
    assert_eq!(of_most(1_000_000).unwrap().max_peers, 1_000_000);
    assert!(of_most(1_000_001).unwrap_err().contains("outside 1 to 1000000"));
}

#[test]
fn a_mistake_in_the_registry_is_told_with_what_to_write() {
    let peer = format!("[[peer]]\nname = \"a\"\npublic_key = \"{PEER}\"\n");
    let https = "endpoints = [\"https://10.0.0.1:2379\"]\nfleet = \"home\"\nid = \"a\"\n";
    let local = "endpoints = [\"http://127.0.0.1:2379\"]\nfleet = \"home\"\nid = \"a\"\n";
    let cases = [
        (https.to_owned(), "https needs tls_ca_file, tls_certificate_file and tls_key_file"),
        (https.replace("https", "http"), "another machine without TLS"),
        (https.replace("https://", ""), "is not a URL such as"),
        (format!("{local}{TLS}"), "does not use the files of TLS"),
        (local.replace("[\"http://127.0.0.1:2379\"]", "[]"), "0 endpoints"),
        (local.replace("\"a\"", "\"Fra 1\""), "small letters, digits and hyphens"),
        (local.replace("\"home\"", "\"\""), "1 to 64 printable characters"),
        (format!("{local}prefix = \"ropewalk/\""), "a prefix begins with a slash"),
        (format!("{local}capacity = 0"), "at least 1 client"),
        (format!("{local}region = \"{}\"", "x".repeat(33)), "at most 32 printable bytes"),
        (format!("{local}tls_ca_file = \"ca.pem\""), "belong together"),
        (format!("{local}{peer}"), "no [[peer]] here"),
        (format!("{local}{peer}{peer}prefix_v6 = \"2001:db8:7::/56\""), "so that a fleet has none"),
        (format!("{local}colour = 1"), "unknown key `colour`"),
    ];
    for (mistake, expected) in cases {
        let text = format!("private_key = \"{PRIVATE}\"\n[registry]\n{mistake}\n");
        let error = parse(&text).map(drop).expect_err(&mistake);
        assert!(error.contains(expected), "{mistake}\nexpected {expected}\n{error}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn no_value_of_any_key_panics(
        key in prop::sample::select(&["listen", "pool_v4", "pool_v6", "no_nat", "allow", "inbound", "client_connections", "uplinks", "max_peers", "state_dir", "ipv6"][..]),
        value in prop_oneof![
            "[0-9]{1,3}\\.[0-9]{1,3}\\.0\\.0/[0-9]{1,3}".prop_map(|text| format!("{text:?}")),
            "[0-9a-f:]{1,12}/[0-9]{1,3}".prop_map(|text| format!("{text:?}")),
            any::<String>().prop_map(|text| format!("{text:?}")),
            any::<i64>().prop_map(|number| number.to_string()),
            "[\\[\\]{}\",0-9]{0,12}",
        ],
    ) {
        let _ = parse(&format!("private_key_file = \"proxy.key\"\n{key} = {value}\n[[peer]]\nname = \"a\"\npublic_key = \"{PEER}\"\n"));
    }

    #[test]
    fn no_mutation_of_a_valid_file_panics(
        at in 0..SAMPLE.len(),
        length in 0..40usize,
        insert in any::<String>(),
    ) {
        let mut text = SAMPLE.to_owned();
        text.replace_range(at..(at + length).min(SAMPLE.len()), &insert);
        let _ = parse(&text);
    }
}

fn parse(text: &str) -> Result<Config, String> {
    let keys = ["proxy.key", "/etc/ropewalk/proxy/proxy.key", "/etc/ropewalk/proxy/laptop.psk"];
    let keys = keys.map(|name| (name.into(), PRIVATE.to_owned())).into();
    let source = Source::from_text(Path::new("proxy.toml"), text, KeyFiles::Given(keys));
    Config::parse(&source).map_err(|error| error.to_string())
}
