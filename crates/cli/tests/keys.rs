//! Where the private keys of running daemons are in their memory, as root finds them there.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of the tests fail as the tests do")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ropewalk_control::invitation::Invitation;
use ropewalk_netlab::address::PROXY_V4;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::tool;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};

/// Longer than anything a daemon does at once, even on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// Bytes of a key that are the same however X25519 clamps or masks its first and its last byte.
const INNER: std::ops::Range<usize> = 1..31;

/// Characters of a key in base64 that stand for whole bytes.
const WHOLE_CHARS: usize = 40;

/// Characters of an invitation that stand for its token.
const TOKEN_CHARS: std::ops::Range<usize> = 62..86;

#[test]
fn a_daemon_has_one_copy_of_its_private_key_and_none_of_its_text() {
    lab_test("a_daemon_has_one_copy_of_its_private_key_and_none_of_its_text", || {
        let config = TopologyConfig::new(vec![WanConfig::default(); 2]);
        let mut stage = Stage::build(Path::new(program()), &config).unwrap();
        let (deployment, topology) = stage.split();
        let folder = deployment.folder().to_owned();
        let key = |name: &str| fs::read_to_string(folder.join(name)).unwrap().trim().to_owned();
        let (proxy_key, client_key) = (key("proxy.key"), key("client0.key"));
        // Once in a file of its own, once in the config itself.
        let inline = deployment.client_config(0);
        inline.remove("private_key_file");
        inline.insert("private_key".to_owned(), client_key.clone().into());
        deployment.proxy_config().insert("workers".to_owned(), 3.into());
        deployment.start_proxy(topology).unwrap();
        // The folder writes the config over this file, whose mode stays.
        let config = folder.join("client0.toml");
        fs::write(&config, "").unwrap();
        fs::set_permissions(&config, Permissions::from_mode(0o600)).unwrap();
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 2).unwrap();

        let daemons = [
            ("proxy", deployment.proxy().unwrap().id(), proxy_key),
            ("client0", deployment.client(0).unwrap().id(), client_key),
        ];
        for (name, process, key) in daemons {
            // The config, read again, leaves no copy either.
            let socket = folder.join(format!("{name}.sock")).display().to_string();
            tool::run(program(), &["reload", "--socket", &socket]).unwrap();
            let bytes = STANDARD.decode(&key).unwrap();
            let found = Found::in_memory(process, &bytes[INNER], &key[..WHOLE_CHARS]);
            assert_eq!(found.raw.len(), 1, "copies of the {name}'s key: {found:?}");
            assert_eq!(found.text.len(), 0, "copies of its text: {found:?}");
            let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
            let core = limits.lines().find(|line| line.contains("core file size")).unwrap();
            assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        }
    });
}

#[test]
fn of_a_used_invitation_nothing_is_left_in_the_client() {
    lab_test("of_a_used_invitation_nothing_is_left_in_the_client", || {
        let config = TopologyConfig::new(vec![WanConfig::default(); 2]);
        let mut stage = Stage::build(Path::new(program()), &config).unwrap();
        let (deployment, topology) = stage.split();
        deployment.proxy_config().remove("peer");
        deployment.start_proxy(topology).unwrap();
        let folder = deployment.folder().to_owned();
        let socket = folder.join("proxy.sock").display().to_string();
        let address = PROXY_V4.to_string();
        let wish = ["peer", "add", "laptop", "--address", &address, "--socket", &socket];
        let said = tool::run(program(), &wish).unwrap();
        let line = said.split_whitespace().find(|word| word.starts_with("ropewalk:")).unwrap();
        let invitation: Invitation = line.parse().unwrap();

        let file = folder.join("laptop.invitation");
        fs::write(&file, line).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        let named = file.display().to_string();
        let proxy = deployment.client_config(0)["proxy"].as_table_mut().unwrap();
        proxy.insert("invitation_file".to_owned(), named.into());
        deployment.start_client(topology, 0).unwrap();
        deployment.wait_up(0, 2).unwrap();
        let client = deployment.client(0).unwrap();
        client.wait_until("the end of joining", SOON, || !file.exists()).unwrap();
        let secret = line.rsplit(':').next().unwrap();
        let found =
            Found::in_memory(client.id(), invitation.token.as_bytes(), &secret[TOKEN_CHARS]);
        assert_eq!((found.raw.len(), found.text.len()), (0, 0), "{found:?}");
    });
}

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ropewalk")
}

/// In which mappings a key was found.
#[derive(Debug, Default)]
struct Found {
    raw: Vec<String>,
    text: Vec<String>,
}

impl Found {
    /// What is in all memory that the process can write: these bytes, and this text.
    fn in_memory(process: u32, bytes: &[u8], text: &str) -> Self {
        let memory = fs::File::open(format!("/proc/{process}/mem")).unwrap();
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let (mut found, mut read) = (Self::default(), 0);
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let (range, rights) = (words.next().unwrap(), words.next().unwrap());
            let (from, to) = range.split_once('-').unwrap();
            let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
            if !rights.contains('w') {
                continue;
            }
            let mut content = vec![0; usize::try_from(to - from).unwrap()];
            // What the kernel itself maps cannot be read.
            if memory.read_exact_at(&mut content, from).is_err() {
                continue;
            }
            read += content.len();
            for at in places(&content, bytes) {
                found.raw.push(format!("{:#x} in {line}", from + at as u64));
            }
            for at in places(&content, text.as_bytes()) {
                found.text.push(format!("{:#x} in {line}", from + at as u64));
            }
        }
        assert!(read > 1 << 20, "the memory was read: {read} bytes of\n{maps}");
        found
    }
}

fn places(content: &[u8], pattern: &[u8]) -> Vec<usize> {
    let first = pattern[0];
    let starts = content.iter().enumerate().filter(|(_, byte)| **byte == first);
    starts.map(|(at, _)| at).filter(|at| content[*at..].starts_with(pattern)).collect()
}
