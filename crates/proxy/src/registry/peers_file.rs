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

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_daemon::format::{self, NewerFormat};
use ropewalk_settings::{InvitationToken, PublicKey, nearest};
use serde::{Deserialize, Serialize};

use crate::config::{PeerConfig, check_peer_name};

/// The newest version of the file, which knows disabled clients.
const FILE_VERSION: u32 = 2;

/// The version of a file in which nobody is disabled: older programs read it.
const WITHOUT_DISABLED: u32 = 1;

/// Bytes of the longest file that is read: 65,000 clients take about 12 MiB, and a million, which are for `ropewalk fleet import` only,
/// about 180 MiB.
const MAX_FILE_BYTES: u64 = 256 << 20;

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
    /// It gets no session until it is enabled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disabled: bool,
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
                *peer.name == *member.name || peer.public_key == member.public_key
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
        if of_file.iter().any(|peer| *peer.name == *name) {
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

    /// Drafts the book with a client that gets no session from now on, or is let in again. Returns its key; without a draft it is so
    /// already.
    ///
    /// # Errors
    /// There is no client of this name here.
    pub fn enable(
        &self,
        name: &str,
        enabled: bool,
        of_file: &[PeerConfig],
    ) -> Result<(PublicKey, Option<Draft>), RegistryError> {
        let Some(place) = self.content.peers.iter().position(|member| member.name == name) else {
            let shown = name.escape_debug();
            let is_of_file = of_file.iter().any(|peer| *peer.name == *name);
            return Err(match is_of_file {
                true => RegistryError::Name(format!(
                    "`{shown}` is a [[peer]] of the config file: write `disabled = {}` there, and `ropewalk reload`",
                    !enabled
                )),
                false => self.no_peer(name, of_file),
            });
        };
        let member = &self.content.peers[place];
        if member.disabled != enabled {
            return Ok((member.public_key, None));
        }
        let mut content = Content::clone(&self.content);
        content.peers[place].disabled = !enabled;
        Ok((member.public_key, Some(Draft::of(content))))
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
            disabled: known.as_ref().is_some_and(|member| member.disabled),
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
        if of_file.iter().any(|peer| *peer.name == *name) {
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
        let knows_disabled = content.peers.iter().any(|member| member.disabled);
        let version = if knows_disabled { FILE_VERSION } else { WITHOUT_DISABLED };
        Self(Arc::new(Content { version, ..content }))
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
            name: self.name.as_str().into(),
            public_key: self.public_key,
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            prefix_v6: None,
            formerly: self.formerly.map(Box::new),
            disabled: self.disabled,
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
    if !(WITHOUT_DISABLED..=FILE_VERSION).contains(&content.version) {
        return Err(damaged(format!("there is no version {}", content.version)));
    }
    check_members(&content.peers).map_err(damaged)?;
    Ok(content)
}

/// Whether clients can be called so, and none has the key or the name of another.
fn check_members(members: &[Member]) -> Result<(), String> {
    let (mut keys, mut names) = (BTreeSet::new(), BTreeSet::new());
    for member in members {
        check_peer_name(&member.name)?;
        if !keys.insert(&member.public_key) || !names.insert(&*member.name) {
            return Err(format!("{} or its name stands twice", member.public_key));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
