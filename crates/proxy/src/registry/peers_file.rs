//! Who joined by an invitation, and who is invited: the owner's book, beside the config file.
//!
//! The file is JSON, mode 600, replaced as a whole and on disk before anything is answered, so that a crash at any moment
//! leaves a token either good or used up, never both. So a change is a [`Draft`] first, and holds when that is written: at once
//! beside a proxy that does not run, and by the [`Files`](crate::registry::files::Files) of one that carries packets. Of a token only a hash is kept: who reads the file cannot come in
//! with it. A damaged file is an error and is never overwritten.
//!
//! Where the config file and this one name the same client or the same key, the config file wins.
//!
//! | an invitation is | until | who shows it then |
//! | --- | --- | --- |
//! | open | the first key that shows it | is bound to the name |
//! | used | 1,024 later ones are over | is told so |
//! | expired, or taken back | the same, or 30 days after it expired | is told so |

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_daemon::format::{self, NewerFormat};
use ropewalk_settings::{InvitationToken, PublicKey, nearest};
use serde::{Deserialize, Serialize};

use crate::config::{PeerConfig, check_peer_name};

/// The version of the file.
const FILE_VERSION: u32 = 1;

/// Bytes of the longest file that is read: 65,000 clients take about 12 MiB.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Most open invitations.
const MAX_OPEN: usize = 1024;

/// Most invitations that are remembered when they are over.
const MAX_OVER: usize = 1024;

/// How long an invitation that nobody used is remembered after it expired.
const REMEMBERED_S: u64 = 30 * 24 * 60 * 60;

/// The book of one proxy.
#[derive(Debug)]
pub struct PeersFile {
    file: PathBuf,
    content: Arc<Content>,
}

/// The book after a change that is decided and does not hold yet. It was made of the book as it is: only one at a time.
#[derive(Clone, Debug)]
#[must_use = "nothing is changed until it is written"]
pub struct Draft(Arc<Content>);

/// A client that joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// How it is called.
    pub name: String,
    /// Its key.
    pub public_key: PublicKey,
    /// When the key was bound, in seconds since 1970.
    pub since: u64,
    /// The key that it had before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formerly: Option<PublicKey>,
}

/// An invitation that nobody used yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// How the client will be called.
    pub name: String,
    /// When it counts no more, in seconds since 1970.
    pub expires: u64,
    token_hash: String,
}

/// An invitation that counts no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Over {
    name: String,
    token_hash: String,
    /// Who used it; else it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<PublicKey>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    version: u32,
    peers: Vec<Member>,
    invitations: Vec<Open>,
    over: Vec<Over>,
}

/// What becomes of a token that somebody shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenCheck {
    /// It was never given.
    Unknown,
    /// It let another key in before.
    Used {
        /// As whom.
        name: String,
    },
    /// It is out of date, or was taken back.
    Over {
        /// For whom it was.
        name: String,
    },
    /// There are as many clients as may be; the invitation stays open.
    Full {
        /// For whom it is.
        name: String,
    },
    /// The key is bound when the draft is written.
    Bound(Member),
}

/// Why the book cannot be read or written, or a wish not be met.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The file exists and cannot be read.
    #[error("cannot read the clients that joined, {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the clients that joined, {}: {source}; nothing was changed", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error(
        "the file of the clients that joined, {}, is damaged: {what}; put back a copy of it, or move it away: all \
         clients but those of the config file then need new invitations",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where and how.
        what: String,
    },
    /// A newer program wrote the file, which stays as it is.
    #[error("cannot read the clients that joined, {}: {newer}", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        newer: NewerFormat,
    },
    /// The name cannot be used so; what to do.
    #[error("{0}")]
    Name(String),
    /// There is no such client.
    #[error("{0}")]
    NoPeer(String),
    /// There are too many.
    #[error("{0}")]
    Full(String),
}

/// What an invitation will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// The key that goes out when the new one comes.
    pub replaces: Option<PublicKey>,
    /// Invitations for the same name that are void by this one.
    pub voided: usize,
}

impl PeersFile {
    /// Reads the book; one that does not exist is empty.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn open(file: PathBuf) -> Result<Self, RegistryError> {
        let content = Arc::new(read(&file)?);
        Ok(Self { file, content })
    }

    /// The clients that joined, in the order in which they did.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.content.peers
    }

    /// The invitations that nobody used, expired ones included.
    #[must_use]
    pub fn invitations(&self) -> &[Open] {
        &self.content.invitations
    }

    /// The clients of the config file, then those that joined; and those that are passed over, with the reason.
    #[must_use]
    pub fn peers(&self, of_file: &[PeerConfig]) -> (Vec<PeerConfig>, Vec<String>) {
        let (mut peers, mut passed_over) = (of_file.to_vec(), Vec::new());
        for member in &self.content.peers {
            let same = |peer: &&PeerConfig| {
                peer.name == member.name || peer.public_key == member.public_key
            };
            match of_file.iter().find(same) {
                None => peers.push(member.config()),
                Some(peer) => passed_over.push(format!(
                    "`{}` joined by an invitation, and the config file has a peer `{}` with the same name or key, which \
                     counts: remove one of the two",
                    member.name, peer.name
                )),
            }
        }
        (peers, passed_over)
    }

    /// Drafts an invitation for `name`, with `token`, until `expires`. With `again` it is a new key for a client that has
    /// one, else the name must be free.
    ///
    /// # Errors
    /// The name cannot be used so, or there are too many.
    pub fn invite(
        &self,
        name: &str,
        again: bool,
        (token, expires): (&InvitationToken, u64),
        (of_file, max_peers, now): (&[PeerConfig], usize, u64),
    ) -> Result<(Noted, Draft), RegistryError> {
        check_peer_name(name).map_err(RegistryError::Name)?;
        let shown = name.escape_debug();
        if of_file.iter().any(|peer| peer.name == name) {
            return Err(RegistryError::Name(format!(
                "`{shown}` is a [[peer]] of the config file: change its key there, or take it out there first"
            )));
        }
        let known = self.content.peers.iter().find(|member| member.name == name);
        match (known, again) {
            (Some(_), false) => {
                return Err(RegistryError::Name(format!(
                    "`{shown}` has joined already: `ropewalk peer rotate {shown}` invites it again, `ropewalk peer \
                     remove {shown}` takes it out"
                )));
            }
            (None, true) => return Err(self.no_peer(name, of_file)),
            _ => {}
        }
        if known.is_none() && of_file.len() + self.content.peers.len() >= max_peers {
            return Err(RegistryError::Full(format!(
                "there are {max_peers} clients, as many as `max_peers` of the config allows"
            )));
        }
        let replaces = known.map(|member| member.public_key);
        let mut content = Content::clone(&self.content);
        content.prune(now);
        let voided = content.take_back(name);
        if content.invitations.len() >= MAX_OPEN {
            return Err(RegistryError::Full(format!(
                "{MAX_OPEN} invitations are open: take some back with `ropewalk peer remove NAME`"
            )));
        }
        let token_hash = hash(token);
        content.invitations.push(Open { name: name.to_owned(), expires, token_hash });
        Ok((Noted { replaces, voided }, Draft::of(content)))
    }

    /// Drafts the book without a client and its invitations. Returns its key, if it had one, and how many invitations are void,
    /// too.
    ///
    /// # Errors
    /// There is nothing of this name here.
    pub fn remove(
        &self,
        name: &str,
        of_file: &[PeerConfig],
    ) -> Result<(Option<PublicKey>, usize, Draft), RegistryError> {
        let mut content = Content::clone(&self.content);
        let voided = content.take_back(name);
        let place = content.peers.iter().position(|member| member.name == name);
        let key = place.map(|place| content.peers.remove(place).public_key);
        if key.is_none() && voided == 0 {
            return Err(self.no_peer(name, of_file));
        }
        Ok((key, voided, Draft::of(content)))
    }

    /// A key that is no client's shows a token. If it is to be bound there is a draft.
    pub fn show(
        &self,
        token: &InvitationToken,
        key: PublicKey,
        (others, max_peers, now): (usize, usize, u64),
    ) -> (TokenCheck, Option<Draft>) {
        let token_hash = hash(token);
        let place = self.content.invitations.iter().position(|open| open.token_hash == token_hash);
        let Some(place) = place else {
            let over = self.content.over.iter().find(|over| over.token_hash == token_hash);
            let shown = match over {
                None => TokenCheck::Unknown,
                Some(Over { name, used_by: Some(_), .. }) => {
                    TokenCheck::Used { name: name.clone() }
                }
                Some(Over { name, used_by: None, .. }) => TokenCheck::Over { name: name.clone() },
            };
            return (shown, None);
        };
        let mut content = Content::clone(&self.content);
        let Open { name, expires, token_hash } = content.invitations.remove(place);
        if expires <= now {
            return (TokenCheck::Over { name }, None);
        }
        let known = content.peers.iter_mut().find(|member| member.name == name);
        if known.is_none() && others + self.content.peers.len() >= max_peers {
            return (TokenCheck::Full { name }, None);
        }
        let bound = Member {
            name: name.clone(),
            public_key: key,
            since: now,
            formerly: known.as_ref().map(|member| member.public_key),
        };
        match known {
            Some(member) => *member = bound.clone(),
            None => content.peers.push(bound.clone()),
        }
        content.remember(Over { name, token_hash, used_by: Some(key) });
        (TokenCheck::Bound(bound), Some(Draft::of(content)))
    }

    /// Writes a draft, for who carries no packets. On return it is on disk, and holds.
    ///
    /// # Errors
    /// The file cannot be written. Nothing changes then.
    pub fn write(&mut self, draft: Draft) -> Result<(), RegistryError> {
        let written = (draft.content())().and_then(|json| file::replace(&self.file, &json));
        self.settle(draft, written)
    }

    /// A draft was written, and holds, or could not be.
    ///
    /// # Errors
    /// It could not be. Nothing changes then.
    pub fn settle(&mut self, draft: Draft, written: io::Result<()>) -> Result<(), RegistryError> {
        written.map_err(|source| RegistryError::Write { file: self.file.clone(), source })?;
        self.content = draft.0;
        Ok(())
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    fn no_peer(&self, name: &str, of_file: &[PeerConfig]) -> RegistryError {
        let shown = name.escape_debug();
        if of_file.iter().any(|peer| peer.name == name) {
            return RegistryError::Name(format!(
                "`{shown}` is a [[peer]] of the config file: take it out there, and start the proxy again"
            ));
        }
        let members = self.content.peers.iter().map(|member| member.name.as_str());
        let invited = self.content.invitations.iter().map(|open| open.name.as_str());
        let help = match nearest(name, members.chain(invited)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`ropewalk peer list` names them".to_owned(),
        };
        RegistryError::NoPeer(format!("no client `{shown}` has joined: {help}"))
    }
}

impl Draft {
    /// A book of these clients, without invitations.
    pub fn of_members(peers: Vec<Member>) -> Self {
        Self::of(Content { peers, ..Content::default() })
    }

    fn of(content: Content) -> Self {
        Self(Arc::new(Content { version: FILE_VERSION, ..content }))
    }

    /// What is to stand in the file, to be made on any thread.
    pub(crate) fn content(&self) -> impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static {
        let content = Arc::clone(&self.0);
        move || Ok(serde_json::to_vec_pretty(&*content)?)
    }
}

impl Member {
    /// What the proxy is told of it.
    #[must_use]
    pub fn config(&self) -> PeerConfig {
        PeerConfig {
            name: self.name.clone(),
            public_key: self.public_key,
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            formerly: self.formerly,
        }
    }
}

impl Content {
    /// Open invitations for this name are over. Returns how many there were.
    fn take_back(&mut self, name: &str) -> usize {
        let (gone, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.invitations).into_iter().partition(|open| open.name == name);
        self.invitations = open;
        let voided = gone.len();
        for Open { name, token_hash, .. } in gone {
            self.remember(Over { name, token_hash, used_by: None });
        }
        voided
    }

    fn remember(&mut self, over: Over) {
        self.over.push(over);
        let beyond = self.over.len().saturating_sub(MAX_OVER);
        self.over.drain(..beyond);
    }

    /// Forgets invitations that expired long ago.
    fn prune(&mut self, now: u64) {
        self.invitations.retain(|open| open.expires.saturating_add(REMEMBERED_S) > now);
    }
}

/// What is kept of a token.
fn hash(token: &InvitationToken) -> String {
    token.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read(file: &Path) -> Result<Content, RegistryError> {
    let failed = |source| RegistryError::Read { file: file.to_path_buf(), source };
    let damaged = |what: String| RegistryError::Damaged { file: file.to_path_buf(), what };
    let text = match folder::read(file, MAX_FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(damaged(error.to_string()));
        }
        text => text.map_err(failed)?.bytes,
    };
    let newer = |newer| RegistryError::Newer { file: file.to_path_buf(), newer };
    format::check(&text, FILE_VERSION).map_err(newer)?;
    let content: Content =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if content.version != FILE_VERSION {
        return Err(damaged(format!("version {} is not {FILE_VERSION}", content.version)));
    }
    let mut seen = std::collections::BTreeSet::new();
    for member in &content.peers {
        check_peer_name(&member.name).map_err(damaged)?;
        let key = member.public_key.to_string();
        if !seen.insert(key.clone()) || !seen.insert(format!("name {}", member.name)) {
            return Err(damaged(format!("{key} or its name stands twice")));
        }
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
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
        assert_eq!(peers[1].formerly, Some(key(10)));
        assert_eq!(bed.remove("laptop"), (Some(key(20)), 0));
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
        for (name, expected) in
            [("van", "of the config file"), ("labtop", "did you mean `laptop`?")]
        {
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
            (with("").replace(":1,", ":0,"), "version 0 is not 1"),
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
}
