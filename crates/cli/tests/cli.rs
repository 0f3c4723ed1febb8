//! The program as its users run it: what it prints, and what its exit code says.
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use ropewalk_control::api::{
    DaemonStatus, LinkSpeed, Request, Response, Role, STATUS_VERSION, Speed, SpeedTestReport,
    SpeedTestState, StatusReport,
};
use ropewalk_control::invitation::Invitation;
use ropewalk_control::server::{Access, Options, Server};
use ropewalk_netlab::privilege::skipped;
use ropewalk_settings::{HostPort, InvitationToken, PublicKey};

const CLIENT: &str = include_str!("../../../configs/client.toml");
const PROXY: &str = include_str!("../../../configs/proxy.toml");

/// The public key that stands for "put yours here" in the samples.
const PLACEHOLDER: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

#[test]
fn help_teaches_and_wrong_use_is_told() {
    let help = run(&["--help"]);
    assert_eq!(code(&help), 0);
    for text in ["EXAMPLES", "EXIT CODES", "sudo ropewalk client", "sudo ropewalk join"] {
        assert!(stdout(&help).contains(text), "{text} is missing in\n{}", stdout(&help));
    }
    for command in [
        "client",
        "proxy",
        "join",
        "peer",
        "status",
        "history",
        "bugreport",
        "notify",
        "keygen",
        "check-config",
    ] {
        let help = run(&[command, "--help"]);
        assert_eq!(code(&help), 0);
        assert!(stdout(&help).contains("EXAMPLE"), "{command}: {}", stdout(&help));
    }
    let wrong: [(&[&str], &str); 12] = [
        (&[], "Usage"),
        (&["stauts"], "similar subcommand exists: 'status'"),
        (&["peer"], "Usage"),
        (&["peer", "add"], "NAME"),
        (&["peer", "add", "laptop", "--expires", "2"], "time unit"),
        (&["history", "--since", "2months"], "from 1min to 31d are possible"),
        (&["speedtest", "--seconds", "1"], "3..=60"),
        (&["speedtest", "--max", "5"], "has no unit"),
        (&["speedtest", "--max", "0.5 MB"], "is outside 1 MB to 1000 TB"),
        (&["keygen"], "FILE"),
        (&["keygen", "--public", "x"], "cannot be used with"),
        (&["--log", "loud", "status"], "`loud`: this is no level"),
    ];
    for (args, expected) in wrong {
        let output = run(args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
    }
}

/// An invitation of a proxy with this key, good until `expires`.
fn invitation(proxy: u8, expires: u64) -> String {
    let invitation = Invitation {
        addresses: vec![HostPort { host: "203.0.113.7".to_owned(), port: 51900 }],
        public_key: PublicKey::from_bytes([proxy; 32]),
        token: InvitationToken::from_bytes([proxy; 16]),
        expires,
        others: Vec::new(),
    };
    invitation.to_line().to_string()
}

/// A moment that no test lives to see.
const LATER: u64 = 100_000_000_000;

#[test]
fn an_invitation_that_is_damaged_or_out_of_date_writes_nothing_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("client.toml");
    let good = invitation(7, LATER);
    let table = [
        (good[..good.len() - 9].to_owned(), "cut off"),
        (good.replace("ropewalk:a", "ropewalk:b"), "invitation"),
        (good.replacen(&good[40..44], "aaaa", 1), "checksum is wrong"),
        ("hello".to_owned(), "begins with `ropewalk:`"),
        ("zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=".to_owned(), "this is a key"),
        (String::new(), "there is no invitation"),
        (invitation(7, 1_000_000_000), "expired"),
    ];
    for (line, expected) in table {
        for by_argument in [true, false] {
            let args = ["join", "--config", config.to_str().unwrap()];
            let done = match by_argument && !line.is_empty() {
                true => run(&[args.as_slice(), &[&*line]].concat()),
                false => run_with(&args, line.as_bytes()),
            };
            assert_eq!(code(&done), 2, "{line}: {}", stderr(&done));
            assert!(stderr(&done).contains(expected), "{line}: {}", stderr(&done));
            let secret = line.len() > 60 && stderr(&done).contains(&line[20..]);
            assert!(!secret, "a secret stays out of errors and logs");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn two_proxies_are_joined_in_turn_beside_each_other_or_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let join = |config: &str, more: &[&str], proxy| {
        let config = at(config);
        let args = [&["join", "--config", &*config], more].concat();
        run_with(&args, invitation(proxy, LATER).as_bytes())
    };
    let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let proxy_of = |name: &str, proxy: u8| {
        text(name).contains(&PublicKey::from_bytes([proxy; 32]).to_string())
    };
    assert_eq!(code(&join("client.toml", &[], 7)), 0);
    let (config, key) = (text("client.toml"), text("client.key"));
    for file in ["client.toml", "client.key", "client.invitation"] {
        assert_eq!(mode(&folder.path().join(file)), 0o600, "{file}");
    }

    // The first stays, whatever is tried.
    let refused = join("client.toml", &[], 9);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("--replace"), "{}", stderr(&refused));
    assert_eq!((text("client.toml"), text("client.key")), (config.clone(), key.clone()));

    // Beside it.
    let beside = join("work.toml", &[], 9);
    assert_eq!(code(&beside), 0, "{}", stderr(&beside));
    assert!(stdout(&beside).contains(&format!("--config {}", at("work.toml"))));
    assert!(proxy_of("work.toml", 9) && proxy_of("client.toml", 7));
    assert_ne!(text("work.key"), text("client.key"), "no proxy can tell that it is one machine");

    // In its place, and it is kept.
    assert_eq!(code(&join("client.toml", &["--replace", "--link", "wlan0"], 9)), 0);
    assert!(proxy_of("client.toml", 9));
    assert_eq!((text("client.toml.old"), text("client.key.old")), (config, key));
    for file in ["client.toml", "work.toml"] {
        let checked = run(&["check-config", &at(file)]);
        assert_eq!(code(&checked), 0, "{file}: {}", stderr(&checked));
    }
    // The invitation is gone when it is used up; the config is as good without it.
    std::fs::remove_file(folder.path().join("client.invitation")).unwrap();
    assert_eq!(code(&run(&["check-config", &at("client.toml")])), 0);
    // One that was put there for another proxy is found out.
    std::fs::write(folder.path().join("client.invitation"), invitation(7, LATER)).unwrap();
    let closed = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.path().join("client.invitation"), closed).unwrap();
    let mixed = run(&["check-config", &at("client.toml")]);
    assert_eq!(code(&mixed), 2);
    assert!(stderr(&mixed).contains("another proxy's"), "{}", stderr(&mixed));
}

#[test]
fn shells_complete_every_subcommand_and_manual_pages_say_what_the_help_says() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert_eq!(code(&script), 0, "{}", stderr(&script));
        for command in ["check-config", "keygen", "flows"] {
            assert!(stdout(&script).contains(command), "{shell}: {command} is missing");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(code(&run(&["man", path])), 0);
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("ropewalk.1").contains("EXIT CODES"));
    assert!(page("ropewalk-status.1").contains("\\-\\-json"));
    let missing = run(&["man", "/nonexistent/folder"]);
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains("/nonexistent/folder"), "{}", stderr(&missing));
    assert_eq!(code(&run(&["completions", "bsh"])), 2);
}

#[test]
fn keys_are_made_for_their_owner_only_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.key");
    let path = file.to_str().unwrap();
    let made = run(&["keygen", path]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let public = stdout(&made);
    assert_eq!(public.trim().len(), 44);
    assert_eq!(mode(&file), 0o600);
    let secret = std::fs::read_to_string(&file).unwrap();
    assert_eq!(secret.trim().len(), 44);
    assert!(!stderr(&made).contains(secret.trim()));

    let again = run_with(&["keygen", "--public"], secret.as_bytes());
    assert_eq!(stdout(&again), public);

    let refused = run(&["keygen", path]);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("--force"), "{}", stderr(&refused));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), secret);

    assert_eq!(code(&run(&["keygen", "--force", path])), 0);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), secret);
    assert_eq!(mode(&file), 0o600);

    let shared = folder.path().join("laptop.psk");
    let made = run(&["keygen", "--preshared", shared.to_str().unwrap()]);
    assert_eq!(code(&made), 0);
    assert_eq!(stdout(&made), "");
    assert_eq!(mode(&shared), 0o600);

    for wrong in ["", "no key\n", "\u{0}\u{1}", PLACEHOLDER] {
        let output = run_with(&["keygen", "--public"], wrong.as_bytes());
        assert_eq!(code(&output), 2, "{wrong:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("is no private key"), "{}", stderr(&output));
    }
    let nowhere = run(&["keygen", "/nowhere/at/all.key"]);
    assert_eq!(code(&nowhere), 1);
    assert!(stderr(&nowhere).contains("/nowhere/at/all.key"), "{}", stderr(&nowhere));
}

#[test]
fn a_config_is_checked_and_explained() {
    let folder = tempfile::tempdir().unwrap();
    let public = configs(folder.path());
    let client = run(&["check-config", folder.path().join("client.toml").to_str().unwrap()]);
    assert_eq!(code(&client), 0, "{}", stderr(&client));
    for text in [
        "client.toml: OK",
        "role        client",
        "proxy       vps.example.org:51900",
        &format!("its key     {public}"),
        "links       every interface with a default route",
        "TUN         ropewalk0, MTU auto",
        "routes      0.0.0.0/0, ::/0",
        "sends by    arrival, model, order flow, queue 100ms",
    ] {
        assert!(stdout(&client).contains(text), "{text} is missing in\n{}", stdout(&client));
    }
    let proxy = run(&["check-config", folder.path().join("proxy.toml").to_str().unwrap()]);
    assert_eq!(code(&proxy), 0, "{}", stderr(&proxy));
    for text in [
        "role        proxy",
        "listen      [::]:51900/udp",
        "NAT66",
        "peers       none",
        "clients to  the Internet and the proxy's inner address\n",
        "note        private networks behind the proxy, its neighbours and its other addresses are closed",
        "each client at most 4096 connections, 500 new ones a second",
        "speed tests 2 at a time; each client 10m and 5 GB in an hour",
    ] {
        assert!(stdout(&proxy).contains(text), "{text} is missing in\n{}", stdout(&proxy));
    }
}

#[test]
fn who_joined_a_proxy_by_an_invitation_is_counted_though_no_config_names_it() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let file = folder.path().join("proxy.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let state = format!("state_dir = {:?}", folder.path());
    std::fs::write(&file, text.replace("state_dir = \"/var/lib/ropewalk\"", &state)).unwrap();
    let check = || stdout(&run(&["check-config", file.to_str().unwrap()]));
    assert!(
        check().contains("peers       none yet: `ropewalk peer add NAME` invites one"),
        "{}",
        check()
    );
    let key = PublicKey::from_bytes([9; 32]);
    let book = format!(
        "{{\"version\":1,\"peers\":[{{\"name\":\"laptop\",\"public_key\":\"{key}\",\"since\":1}}],\"invitations\":[],\"over\":[]}}"
    );
    std::fs::write(folder.path().join("peers.json"), book).unwrap();
    let expected =
        "peers       1 of at most 1024, 1 of them joined by an invitation; client-to-client: off\n";
    assert!(check().contains(expected), "{}", check());
}

#[test]
fn what_clients_of_a_proxy_reach_and_what_must_be_opened_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let file = folder.path().join("proxy.toml");
    let sample = std::fs::read_to_string(&file).unwrap();
    let check = |no_nat: &str, allow: &str, inbound: &str| {
        let text = sample
            .replace("no_nat = []", &format!("no_nat = [{no_nat}]"))
            .replace("allow = []", &format!("allow = [{allow}]"))
            .replace("inbound = []", &format!("inbound = [{inbound}]"));
        std::fs::write(&file, text).unwrap();
        let checked = run(&["check-config", file.to_str().unwrap()]);
        assert_eq!(code(&checked), 0, "{}", stderr(&checked));
        stdout(&checked)
    };
    let closed = "are closed: write those that clients need to `allow`";
    let answers = "only answers reach clients";
    let kept = check("\"192.168.0.0/16\", \"203.0.113.0/24\"", "", "");
    assert!(kept.contains("address, 192.168.0.0/16 (no_nat)\n") && kept.contains(closed), "{kept}");
    assert!(
        kept.contains("not the Internet in 203.0.113.0/24 stays closed; see `allow`"),
        "{kept}"
    );
    assert!(!kept.contains(answers), "{kept}");
    let allowed = check("", "\"10.0.0.5 443/tcp\"", "");
    assert!(allowed.contains("10.0.0.5/32 443/tcp") && !allowed.contains(closed), "{allowed}");
    let sources = check("\"10.77.5.0/24\"", "", "");
    assert!(sources.contains(answers), "{sources}");
    let inbound = check("\"10.77.5.0/24\"", "", "\"192.168.7.0/24\"");
    assert!(inbound.contains("to clients  connections from 192.168.7.0/24"), "{inbound}");
    assert!(!inbound.contains(answers), "{inbound}");
}

#[test]
fn what_a_config_does_to_its_machine_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let check = |name: &str, from: &str, to: &str| {
        let file = folder.path().join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace(from, to)).unwrap();
        let checked = run(&["check-config", file.to_str().unwrap()]);
        assert_eq!(code(&checked), 0, "{}", stderr(&checked));
        stdout(&checked)
    };
    let whole = check("client.toml", "kill_switch = false", "kill_switch = true");
    assert!(
        whole.contains("names       looked up at the servers that the proxy hands out"),
        "{whole}"
    );
    assert!(
        whole.contains("locked      nothing leaves") && !whole.contains("no way out"),
        "{whole}"
    );
    let part = check("client.toml", "\"0.0.0.0/0\", \"::/0\"", "\"0.0.0.0/0\"");
    assert!(part.contains("neither in `routes` nor in `exclude` has no way out"), "{part}");
    let chosen = check(
        "client.toml",
        "exclude = []",
        "exclude = [\"user:root\", \"unit:no-such.service\", \"domain:example.org\"]",
    );
    assert!(
        chosen.contains("but not     user:root, unit:no-such.service, domain:example.org"),
        "{chosen}"
    );
    assert!(chosen.contains("note        unit:no-such.service "), "{chosen}");
    assert!(chosen.contains("DNS over HTTPS"), "{chosen}");
    let limit = "limit = [{ device = \"TV\", down = \"5 Mbit/s\" }]";
    let shared = format!("\ninterfaces = [\"ap0\", \"ap1\"]\n{limit}");
    let shared = check("client.toml", "\ninterfaces = []", &shared);
    assert!(shared.contains("shared      with the hosts behind ap0, ap1"), "{shared}");
    assert!(shared.contains("limited     tv at most 5 Mbit/s down"), "{shared}");
    assert!(!shared.contains("handed out"), "{shared}");
    let household = "\ninterfaces = \"lan0\"\naddress = \"192.168.77.1/24\"\n";
    let household = check("client.toml", "\ninterfaces = [\"ap0\", \"ap1\"]\n", household);
    let told = "shared      with the hosts behind lan0, at 192.168.77.1/24";
    assert!(household.contains(told), "{household}");
    let servers = check("client.toml", "dns = \"proxy\"", "dns = [\"9.9.9.9\", \"2620:fe::fe\"]");
    assert!(servers.contains("names       looked up at 9.9.9.9, 2620:fe::fe"), "{servers}");
    let proxy = check("proxy.toml", "dns = []", "dns = \"9.9.9.9\"");
    assert!(proxy.contains("names       looked up by clients at 9.9.9.9"), "{proxy}");
}

#[test]
fn a_user_whom_this_machine_does_not_know_does_not_fit_it() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let file = folder.path().join("client.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let named = text.replace("exclude = []", "exclude = \"user:nobody-of-this-name\"");
    std::fs::write(&file, named).unwrap();
    let checked = run(&["check-config", file.to_str().unwrap()]);
    assert_eq!(code(&checked), 2);
    let said = stderr(&checked);
    assert!(said.contains("`user:nobody-of-this-name`") && said.contains("/etc/passwd"), "{said}");
}

#[test]
fn an_error_in_a_config_shows_the_line_and_the_nearest_name() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let file = folder.path().join("client.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let line = text.lines().position(|line| line.starts_with("profile")).unwrap() + 1;
    std::fs::write(&file, text.replace("\nprofile =", "\nprofle =")).unwrap();
    let path = file.to_str().unwrap();
    let gutter = " ".repeat(line.to_string().len() + 1);
    for args in [vec!["check-config", path], vec!["client", "--config", path]] {
        let output = run(&args);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        let expected = format!(
            "error: {path}:{line}:1: unknown key `profle`\n{gutter}|\n{line} | profle = \
             \"default\"\n{gutter}| ^^^^^^\n{gutter}= did you mean `profile`?\n"
        );
        assert_eq!(stderr(&output), expected);
    }
    // Neither daemon's keys: the role must be said, and then the error is of that role.
    std::fs::write(&file, "private_key_file = \"client.key\"\n").unwrap();
    let unclear = run(&["check-config", path]);
    assert_eq!(code(&unclear), 2);
    assert!(stderr(&unclear).contains("--role client"), "{}", stderr(&unclear));
    let said = run(&["check-config", path, "--role", "client"]);
    assert!(stderr(&said).contains("missing key `proxy`"), "{}", stderr(&said));
    let said = run(&["check-config", path, "--role", "proxy"]);
    assert_eq!(code(&said), 0, "{}", stderr(&said));
    let missing = run(&["check-config", "/nowhere/client.toml"]);
    assert_eq!(code(&missing), 2);
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

#[test]
fn status_without_a_daemon_says_how_to_start_one() {
    let output = run(&["status", "--socket", "/nowhere/client.sock"]);
    assert_eq!(code(&output), 3);
    assert!(stderr(&output).contains("no daemon answers at /nowhere/client.sock"));
    assert!(stderr(&output).contains("ropewalk client --config FILE"));
}

#[test]
fn status_is_a_table_or_the_document() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let access = Access::new(None).unwrap();
    let (server, mut commands) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    let daemon = std::thread::spawn(move || {
        while let Some(command) = commands.blocking_recv() {
            command.answer(Ok(Response::Status(Box::new(status()))));
        }
    });
    let path = socket.to_str().unwrap();
    let table = run(&["status", "--socket", path]);
    assert_eq!(code(&table), 0, "{}", stderr(&table));
    assert!(stdout(&table).starts_with("ropewalk client 0.1.0, process 7, running for 1s 500ms\n"));
    let json = run(&["status", "--json", "--socket", path]);
    assert_eq!(code(&json), 0);
    assert_eq!(serde_json::from_slice::<StatusReport>(&json.stdout).unwrap(), status());
    let nobody = run(&["status", "--peer", "van", "--socket", path]);
    assert_eq!(code(&nobody), 2);
    assert!(stderr(&nobody).contains("there is no peer `van`"), "{}", stderr(&nobody));
    drop(server);
    daemon.join().unwrap();
}

#[test]
fn a_speed_test_is_asked_for_until_it_is_over_and_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("client.sock");
    let access = Access::new(None).unwrap();
    let (server, mut commands) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    // What goes down takes two looks; what goes up takes until somebody ends it.
    let daemon = std::thread::spawn(move || {
        let (mut looks, mut is_endless) = (0, false);
        while let Some(command) = commands.blocking_recv() {
            looks += 1;
            let (state, trouble) = match &command.request {
                Request::StartSpeedTest(wish) => {
                    (looks, is_endless) = (0, wish.up);
                    begun.send(wish.clone()).unwrap();
                    (SpeedTestState::Running, None)
                }
                Request::SpeedTest { id: 5 } if looks < 2 || is_endless => {
                    (SpeedTestState::Running, None)
                }
                Request::SpeedTest { id: 5 } => (SpeedTestState::Done, None),
                Request::EndSpeedTest { id: 5 } => {
                    (SpeedTestState::Stopped, Some("it was stopped".to_owned()))
                }
                other => panic!("{other:?}"),
            };
            let speed = Speed { rate_bps: 12e6, ..Speed::default() };
            let link =
                LinkSpeed { name: "lte".to_owned(), down: Some(speed), ..LinkSpeed::default() };
            let report =
                SpeedTestReport { id: 5, state, trouble, links: vec![link], ..Default::default() };
            command.answer(Ok(Response::SpeedTest(Box::new(report))));
        }
    });
    let path = socket.to_str().unwrap();
    let of_lte = ["speedtest", "--down", "--link", "lte", "--socket", path];
    let table = run(&of_lte);
    assert_eq!(code(&table), 0, "{}", stderr(&table));
    assert!(stdout(&table).contains("12.0"), "{}", stdout(&table));
    assert_eq!(stderr(&table), "", "the progress is for terminals");
    let wish = has_begun.recv().unwrap();
    assert_eq!((wish.links, wish.seconds, wish.up), (vec!["lte".to_owned()], 10, false));
    let json = run(&[&of_lte[..], &["--json"]].concat());
    let report: SpeedTestReport = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((code(&json), report.state), (0, SpeedTestState::Done));
    has_begun.recv().unwrap();
    let endless = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(["speedtest", "--socket", path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let wish = has_begun.recv().unwrap();
    assert!(wish.down && wish.up, "both, if nothing is said");
    kill(Pid::from_raw(i32::try_from(endless.id()).unwrap()), Signal::SIGINT).unwrap();
    let ended = endless.wait_with_output().unwrap();
    assert_eq!(code(&ended), 1);
    assert!(stdout(&ended).contains("12.0"), "what was found is shown: {}", stdout(&ended));
    assert!(stderr(&ended).contains("it was stopped"), "{}", stderr(&ended));
    drop(server);
    daemon.join().unwrap();
}

#[test]
fn a_stranger_is_told_that_socket_and_keys_are_closed() {
    const NAME: &str = "a_stranger_is_told_that_socket_and_keys_are_closed";
    if !geteuid().is_root() {
        return skipped(NAME, "only root can run the program as somebody else");
    }
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    let socket = folder.path().join("client.sock");
    let access = Access::new(None).unwrap();
    let (_server, _commands) =
        Server::start(Options { socket: socket.clone(), access, web: None }).unwrap();
    let user = user(folder.path());

    let status = user(&["status", "--socket", socket.to_str().unwrap()]);
    assert_eq!(code(&status), 4, "{}", stderr(&status));
    let told = stderr(&status);
    // The socket's group is root's, which is no group to become a member of.
    assert!(told.contains("use sudo (or name a group in [control]"), "{told}");

    let config = folder.path().join("client.toml");
    let closed = user(&["check-config", config.to_str().unwrap()]);
    assert_eq!(code(&closed), 4, "{}", stderr(&closed));
    assert!(stderr(&closed).contains("cannot read the key file"), "{}", stderr(&closed));
}

#[test]
fn a_user_without_capabilities_is_told_which_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    configs(folder.path());
    if geteuid().is_root() {
        for key in ["client.key", "proxy.key"] {
            nix::unistd::chown(&folder.path().join(key), Some(65534.into()), None).unwrap();
        }
    }
    let user = user(folder.path());
    for role in ["client", "proxy"] {
        let config = folder.path().join(format!("{role}.toml"));
        let refused = user(&[role, "--config", config.to_str().unwrap()]);
        assert_eq!(code(&refused), 4, "{}", stderr(&refused));
        for text in ["CAP_NET_ADMIN", "with sudo, or as the systemd unit"] {
            assert!(stderr(&refused).contains(text), "{text}: {}", stderr(&refused));
        }
    }
}

/// Runs the program as an ordinary user: where the test runs as root as `nobody`, who may look into
/// `folder` for it.
fn user(folder: &Path) -> impl Fn(&[&str]) -> Output {
    let root = geteuid().is_root();
    let built = Path::new(env!("CARGO_BIN_EXE_ropewalk"));
    let program = if root { folder.join("ropewalk") } else { built.to_owned() };
    if root {
        open_to_all(folder);
        // Not by this process: another test's child may inherit a file open for writing, which nobody can run.
        assert!(Command::new("cp").arg(built).arg(&program).status().unwrap().success());
    }
    move |args| {
        let mut command = Command::new(&program);
        command.args(args).current_dir("/");
        if root {
            // Supplementary groups of root's would otherwise stay.
            command.uid(65534).gid(65534);
        }
        command.output().unwrap()
    }
}

/// The samples with new keys beside them; returns the proxy's public key.
fn configs(folder: &Path) -> String {
    let make = |name: &str| {
        let made = run(&["keygen", folder.join(name).to_str().unwrap()]);
        stdout(&made).trim().to_owned()
    };
    make("client.key");
    let public = make("proxy.key");
    let client = CLIENT.replace("/etc/ropewalk/client/", "").replace(PLACEHOLDER, &public);
    std::fs::write(folder.join("client.toml"), client).unwrap();
    std::fs::write(folder.join("proxy.toml"), PROXY.replace("/etc/ropewalk/proxy/", "")).unwrap();
    public
}

fn status() -> StatusReport {
    StatusReport {
        version: STATUS_VERSION,
        daemon: DaemonStatus {
            role: Role::Client,
            program_version: "0.1.0".to_owned(),
            pid: 7,
            uptime_s: 1.5,
            warnings: Vec::new(),
            offload: None,
            kill_switch: None,
            sandbox: None,
            history: None,
        },
        tunnels: Vec::new(),
        drops: [].into(),
        proxy: None,
        rules: Vec::new(),
        proxies: None,
    }
}

fn run(args: &[&str]) -> Output {
    run_with(args, b"")
}

fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ropewalk"))
        .args(args)
        .env_remove("ROPEWALK_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read its input may have ended before all of it is written.
    drop(child.stdin.take().unwrap().write_all(input));
    child.wait_with_output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn mode(file: &Path) -> u32 {
    std::fs::metadata(file).unwrap().permissions().mode() & 0o777
}

fn open_to_all(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_reference_pages_are_what_the_program_writes() {
    let written = tempfile::tempdir().unwrap();
    let done = run(&["reference", written.path().to_str().unwrap()]);
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations");
    for page in ["commands.md", "settings.md"] {
        let read = |folder: &Path| std::fs::read_to_string(folder.join(page)).unwrap_or_default();
        let same = read(written.path()) == read(&kept);
        assert!(same, "{page} is old; run: cargo run -p ropewalk-cli -- reference docs/operations");
    }
}
