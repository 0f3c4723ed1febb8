use std::os::unix::fs::PermissionsExt as _;

use super::*;

const NOW: u64 = 1_900_000_000;
const LATER: u64 = NOW + 3600;

struct Bed {
    folder: tempfile::TempDir,
    registry: PeersFile,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let registry = PeersFile::open(folder.path().join("state/peers.json")).unwrap();
        Self { folder, registry }
    }

    /// What the next start of the process reads.
    fn reopened(&self) -> PeersFile {
        PeersFile::open(self.registry.file.clone()).unwrap()
    }

    fn invite(&mut self, name: &str, n: u8) -> Result<Noted, RegistryError> {
        let wish = (&token(n), LATER);
        let (noted, draft) = self.registry.invite(name, false, wish, (&file(), 4, NOW))?;
        self.registry.write(draft)?;
        Ok(noted)
    }

    fn rotate(&mut self, name: &str, n: u8) -> Result<Noted, RegistryError> {
        let wish = (&token(n), LATER);
        let (noted, draft) = self.registry.invite(name, true, wish, (&file(), 4, NOW))?;
        self.registry.write(draft)?;
        Ok(noted)
    }

    fn remove(&mut self, name: &str) -> (Option<PublicKey>, usize) {
        let (key, voided, draft) = self.registry.remove(name, &file()).unwrap();
        self.registry.write(draft).unwrap();
        (key, voided)
    }

    fn show(&mut self, n: u8, by: u8) -> TokenCheck {
        let (shown, draft) = self.registry.show(&token(n), key(by), (1, 4, NOW + 1));
        assert_eq!(draft.is_some(), matches!(shown, TokenCheck::Bound(_)));
        draft.into_iter().for_each(|draft| self.registry.write(draft).unwrap());
        shown
    }
}

fn token(n: u8) -> InvitationToken {
    InvitationToken::from_bytes([n; 16])
}

fn key(n: u8) -> PublicKey {
    PublicKey::from_bytes([n; 32])
}

fn member(name: &str, n: u8, formerly: Option<u8>) -> Member {
    Member {
        name: name.into(),
        public_key: key(n),
        since: NOW + 1,
        formerly: formerly.map(key),
        disabled: false,
    }
}

/// The peers of the config file.
fn file() -> Vec<PeerConfig> {
    vec![PeerConfig { formerly: None, ..member("van", 99, None).config() }]
}

#[test]
fn the_first_key_is_bound_on_disk_and_the_second_is_told() {
    let mut bed = Bed::new();
    assert_eq!(bed.invite("laptop", 1).unwrap(), Noted::default());
    assert_eq!(bed.reopened().invitations().len(), 1);
    assert_eq!(bed.show(1, 10), TokenCheck::Bound(member("laptop", 10, None)));
    let after = bed.reopened();
    assert_eq!(after.members(), [member("laptop", 10, None)]);
    assert!(after.invitations().is_empty());
    let used = TokenCheck::Used { name: "laptop".into() };
    assert_eq!(bed.show(1, 11), used);
    assert_eq!(bed.show(9, 11), TokenCheck::Unknown);
    bed.registry = after;
    assert_eq!(bed.show(1, 11), used, "also after a restart");
    assert_eq!(bed.registry.members().len(), 1);
}

#[test]
fn the_file_is_its_owners_and_holds_no_token() {
    let mut bed = Bed::new();
    bed.invite("laptop", 0xab).unwrap();
    let file = bed.folder.path().join("state/peers.json");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("abababab") && text.contains("token_hash"), "{text}");
}

#[test]
fn an_expired_or_withdrawn_invitation_binds_nobody() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    let (late, _) = bed.registry.show(&token(1), key(10), (1, 4, LATER));
    let over = TokenCheck::Over { name: "laptop".into() };
    assert_eq!(late, over);
    assert_eq!(bed.invite("laptop", 2).unwrap().voided, 1, "a newer one takes its place");
    assert_eq!(bed.show(1, 10), over);
    assert_eq!(bed.remove("laptop"), (None, 1));
    assert_eq!(bed.show(2, 10), over);
    assert!(bed.registry.members().is_empty());
    // What nobody used is forgotten a month after it expired.
    bed.invite("phone", 3).unwrap();
    let month = LATER + REMEMBERED_S;
    let wish = (&token(4), month + 60);
    let (_, draft) = bed.registry.invite("x", false, wish, (&[], 4, month)).unwrap();
    assert_eq!(bed.registry.invitations()[0].name, "phone", "a draft changes nothing");
    bed.registry.write(draft).unwrap();
    assert_eq!(bed.registry.invitations().len(), 1);
}

#[test]
fn a_rotation_keeps_the_old_key_until_the_new_one_is_bound() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    bed.show(1, 10);
    assert_eq!(bed.rotate("laptop", 2).unwrap().replaces, Some(key(10)));
    assert_eq!(bed.registry.members(), [member("laptop", 10, None)]);
    assert_eq!(bed.show(2, 20), TokenCheck::Bound(member("laptop", 20, Some(10))));
    assert_eq!(bed.reopened().members(), [member("laptop", 20, Some(10))]);
    let (peers, _) = bed.registry.peers(&file());
    assert_eq!(peers[1].formerly.as_deref(), Some(&key(10)));
    assert_eq!(bed.remove("laptop"), (Some(key(20)), 0));
}

#[test]
fn a_client_is_disabled_on_disk_until_it_is_enabled_whatever_its_key() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    bed.show(1, 10);
    let enable = |bed: &mut Bed, enabled| {
        let (key, draft) = bed.registry.enable("laptop", enabled, &file()).unwrap();
        let changed = draft.is_some();
        draft.into_iter().for_each(|draft| bed.registry.write(draft).unwrap());
        (key, changed)
    };
    let version = |bed: &Bed| {
        let text = std::fs::read_to_string(&bed.registry.file).unwrap();
        text.contains("\"version\": 2")
    };
    assert_eq!(enable(&mut bed, true), (key(10), false));
    assert_eq!(enable(&mut bed, false), (key(10), true));
    assert_eq!(enable(&mut bed, false), (key(10), false));
    assert!(bed.reopened().members()[0].disabled && version(&bed));
    // A new key does not let it in.
    bed.rotate("laptop", 2).unwrap();
    let bound = Member { disabled: true, ..member("laptop", 20, Some(10)) };
    assert_eq!(bed.show(2, 20), TokenCheck::Bound(bound.clone()));
    assert!(bound.config().disabled);
    assert_eq!(enable(&mut bed, true), (key(20), true));
    assert!(!bed.reopened().members()[0].disabled && !version(&bed), "older programs read it");
    for (name, expected) in [("van", "write `disabled = true` there"), ("labtop", "`laptop`")] {
        let error = bed.registry.enable(name, false, &file()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn names_that_cannot_be_used_say_what_to_do() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    bed.show(1, 10);
    let long = "x".repeat(65);
    let table = [
        ("laptop", false, "`ropewalk peer rotate laptop`"),
        ("van", false, "is a [[peer]] of the config file"),
        ("van", true, "is a [[peer]] of the config file"),
        ("labtop", true, "did you mean `laptop`?"),
        ("zzzzzzzz", true, "`ropewalk peer list`"),
        ("", false, "1 to 64 printable"),
        ("a\nb", false, "1 to 64 printable"),
        (&*long, false, "1 to 64 printable"),
    ];
    for (name, again, expected) in table {
        let wish = (&token(7), LATER);
        let error = bed.registry.invite(name, again, wish, (&file(), 4, NOW)).unwrap_err();
        assert!(error.to_string().contains(expected), "{name}: {error}");
    }
    for (name, expected) in [("van", "of the config file"), ("labtop", "did you mean `laptop`?")] {
        let error = bed.registry.remove(name, &file()).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn a_proxy_that_is_full_keeps_the_invitation_open() {
    let mut bed = Bed::new();
    for n in 1..=4 {
        bed.invite(&format!("c{n}"), n).unwrap();
    }
    for n in 1..=3 {
        assert!(matches!(bed.show(n, n), TokenCheck::Bound(_)));
    }
    assert_eq!(bed.show(4, 4), TokenCheck::Full { name: "c4".into() });
    let error = bed.invite("c5", 5).unwrap_err().to_string();
    assert!(error.contains("`max_peers`"), "{error}");
    bed.remove("c1");
    assert!(matches!(bed.show(4, 4), TokenCheck::Bound(_)));
}

#[test]
fn where_the_config_file_names_the_same_it_counts() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    bed.show(1, 10);
    for of_file in [member("laptop", 77, None), member("other", 10, None)] {
        let of_file = [of_file.config()];
        let (peers, passed_over) = bed.registry.peers(&of_file);
        assert_eq!(peers, of_file);
        assert!(passed_over[0].contains("`laptop` joined by an invitation"), "{passed_over:?}");
    }
    assert_eq!(bed.registry.peers(&file()).0.len(), 2);
}

#[test]
fn what_cannot_be_written_has_not_happened() {
    let mut bed = Bed::new();
    bed.invite("laptop", 1).unwrap();
    // The folder is a file now: nothing can be written into it, whoever runs this.
    let folder = bed.folder.path().join("state");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    let (shown, draft) = bed.registry.show(&token(1), key(10), (1, 4, NOW));
    assert!(matches!(shown, TokenCheck::Bound(_)));
    let error = bed.registry.write(draft.unwrap()).unwrap_err().to_string();
    assert!(error.contains("nothing was changed"), "{error}");
    assert!(bed.registry.members().is_empty());
    std::fs::remove_file(&folder).unwrap();
    assert!(matches!(bed.show(1, 11), TokenCheck::Bound(_)), "the token is still good");
}

#[test]
fn a_damaged_file_says_what_to_do_and_stays_as_it_is() {
    let one = format!("{{\"name\":\"a\",\"public_key\":\"{}\",\"since\":1}}", key(1));
    let with = |peers: &str| {
        format!("{{\"version\":1,\"peers\":[{peers}],\"invitations\":[],\"over\":[]}}")
    };
    let table = [
        (String::new(), "EOF"),
        ("{\"version\":1".to_owned(), "line 1 column"),
        (with("").replace(":1,", ":0,"), "there is no version 0"),
        (with("").replace("over", "ofer"), "unknown field `ofer`"),
        (with(&format!("{one},{one}")), "stands twice"),
        (with(&one.replace("\"a\"", "\"\"")), "printable"),
        ("\0\0\0".to_owned(), "line 1 column"),
    ];
    for (text, expected) in table {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("peers.json");
        std::fs::write(&file, &text).unwrap();
        let error = PeersFile::open(file.clone()).unwrap_err().to_string();
        assert!(error.contains("is damaged") && error.contains("move it away"), "{error}");
        assert!(error.contains(expected), "{text:?}: {error}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
