//! Every mistake is told with its place and a remedy, nothing shows a secret, and no text panics.

use proptest::prelude::*;

use crate::{OWN, PLACEHOLDER, PRIVATE, PROXY, SAMPLE, check, parse};

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
