//! The firewall table of the rules in the kernel: put in place, followed, counted, and removed.
//!
//! It is replaced as a whole when a rule, an address or a control group changes. What it counted is added up before, and what was
//! learned for domains is put into the new sets in the same transaction. Once there was a rule it stays until the client ends:
//! connections of rules that are gone, the last one too, are refused by it.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use ropewalk_link_io::nft::{Count, NftError, Table};
use ropewalk_settings::Selector;

use super::cgroups::{Found, MAX_FOUND, MOUNT, Tree, is_news};
use super::chains::{By, Chosen, Scene, body};
use super::learned::{Answered, Learned, MAX_ADDRESSES};
use super::users::{PASSWD, id_of};
use super::watch::Watch;
use super::{Rule, RuleState, Tally};
use crate::host::Desired;
use crate::routes::Numbers;

/// What a client holds of it.
#[derive(Debug)]
pub struct Split {
    table: Table,
    /// Whether the table may stand.
    may_stand: bool,
    /// What the table was made of last.
    desired: Desired,
    /// Its text.
    body: String,
    watch: Option<Watching>,
    learned: Learned,
    /// What tables counted that were replaced.
    counted: BTreeMap<String, Count>,
    /// Rules of which was logged that addresses were forgotten.
    logged: Vec<u16>,
}

/// What is looked at, and for whom.
#[derive(Debug)]
struct Watching {
    watch: Arc<Watch>,
    selectors: Vec<Selector>,
}

/// What came of putting it in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether anything was changed.
    pub changed: bool,
    /// What became of each rule.
    pub states: Vec<RuleState>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// The rules as this machine is now.
struct Look {
    chosen: Vec<Chosen>,
    states: Vec<RuleState>,
    warnings: Vec<String>,
}

/// Why a rule by control groups chooses nothing.
const NO_GROUPS: &str = "this system has no control groups of version 2 where nft looks for them";

impl Split {
    /// With a table of this name. Nothing is done yet; one may have been left behind.
    #[must_use]
    pub fn new(table: Table) -> Self {
        Self {
            table,
            may_stand: true,
            desired: Desired::default(),
            body: String::new(),
            watch: None,
            learned: Learned::default(),
            counted: BTreeMap::new(),
            logged: Vec::new(),
        }
    }

    /// Makes the table what is desired; where there was no rule yet, there is none.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or `nft` refuses the rules. What stood before stands then.
    pub async fn apply(
        &mut self,
        numbers: &Numbers,
        desired: &Desired,
    ) -> Result<Applied, NftError> {
        if desired.rules.is_empty() && self.body.is_empty() {
            let changed = self.remove().await?;
            return Ok(Applied { changed, ..Applied::default() });
        }
        self.desired = desired.clone();
        let mut look = self.look().await;
        let changed = match self.put(numbers, &look.chosen).await {
            Err(NftError::Refused { .. }) if has_groups(&look) => {
                // One may have ended between the look and the word of nft.
                look = self.look().await;
                match self.put(numbers, &look.chosen).await {
                    Err(NftError::Refused { said, .. }) if has_groups(&look) => {
                        look.forget_groups(&said);
                        self.put(numbers, &look.chosen).await?
                    }
                    done => done?,
                }
            }
            done => done?,
        };
        let Look { states, warnings, .. } = look;
        Ok(Applied { changed, states, warnings })
    }

    /// Takes the table away, if there is one. Returns whether there was.
    ///
    /// # Errors
    /// When the right is missing, or `nft` refuses.
    pub async fn remove(&mut self) -> Result<bool, NftError> {
        self.watch = None;
        self.learned = Learned::default();
        self.desired = Desired::default();
        self.body.clear();
        if !self.may_stand {
            return Ok(false);
        }
        let removed = self.table.remove().await?;
        self.may_stand = false;
        self.counted.clear();
        Ok(removed)
    }

    /// Waits until a control group that may be meant begins or ends.
    pub async fn news(&self) {
        match &self.watch {
            Some(watching) => watching.watch.changed().await,
            None => pending().await,
        }
    }

    /// Follows the control groups; `None` where that changes nothing.
    ///
    /// # Errors
    /// As [`Split::apply`].
    pub async fn follow(&mut self, numbers: &Numbers) -> Result<Option<Applied>, NftError> {
        let look = self.look().await;
        if self.text(numbers, &look.chosen) == self.body {
            return Ok(None);
        }
        let desired = self.desired.clone();
        self.apply(numbers, &desired).await.map(Some)
    }

    /// Puts these addresses in place. Returns whether they are.
    pub async fn place(&mut self, answered: &[Answered]) -> bool {
        let now = Instant::now();
        let change = self.learned.note(now, answered);
        self.log_forgotten();
        let rules = &self.desired.rules;
        let commands = change.commands(self.table.name(), rules);
        if commands.is_empty() {
            return answered.iter().all(|one| rules.iter().any(|rule| rule.id == one.rule));
        }
        let Err(error) = self.table.change(&commands).await else { return true };
        // An element may have gone at that very moment, or somebody took the table away: from scratch.
        tracing::debug!("{error}; the sets are made again");
        let all = self.learned.all(now).commands(self.table.name(), rules);
        match self.table.replace(&self.body, &all).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("addresses of domains cannot be put in place: {error}");
                // What the kernel does not have is not known.
                self.learned = Learned::default();
                false
            }
        }
    }

    /// What was counted of each rule.
    pub async fn tallies(&self) -> BTreeMap<u16, Tally> {
        let now = Instant::now();
        let standing = match self.desired.rules.is_empty() {
            true => BTreeMap::new(),
            // Who asks is told what is known.
            false => self.table.counters().await.unwrap_or_default(),
        };
        let tally = |rule: &Rule| {
            let of = |counted: &BTreeMap<String, Count>| {
                counted.get(&rule.name()).copied().unwrap_or_default()
            };
            let (before, now_counted) = (of(&self.counted), of(&standing));
            let tally = Tally {
                packets: before.packets + now_counted.packets,
                bytes: before.bytes + now_counted.bytes,
                addresses: self.learned.count(now, rule.id),
            };
            (rule.id, tally)
        };
        self.desired.rules.iter().map(tally).collect()
    }

    /// Says once of each rule that it has more addresses than are kept.
    fn log_forgotten(&mut self) {
        for rule in &self.desired.rules {
            if self.learned.forgotten(rule.id) > 0 && !self.logged.contains(&rule.id) {
                self.logged.push(rule.id);
                tracing::warn!("{}: {TOO_MANY}", rule.selector);
            }
        }
    }

    fn text(&self, numbers: &Numbers, chosen: &[Chosen]) -> String {
        let desired = &self.desired;
        let servers = desired.name_servers.iter().chain(&desired.asked);
        let servers: Vec<_> = servers.copied().collect();
        body(&Scene {
            numbers,
            tun: desired.tun.as_ref(),
            chosen,
            excluded: &desired.excluded,
            name_servers: &servers,
            forwarder: desired.forwarder,
        })
    }

    /// Puts the table in place. Returns whether it was another one.
    async fn put(&mut self, numbers: &Numbers, chosen: &[Chosen]) -> Result<bool, NftError> {
        let body = self.text(numbers, chosen);
        if self.table.stands(&body).await? {
            return Ok(false);
        }
        let rules = &self.desired.rules;
        let counted = match self.body.is_empty() {
            // What an earlier client counted is not ours.
            true => BTreeMap::new(),
            false => self.table.counters().await?,
        };
        self.learned.retain(rules);
        let elements = self.learned.all(Instant::now()).commands(self.table.name(), rules);
        self.may_stand = true;
        self.table.replace(&body, &elements).await?;
        self.body = body;
        for (name, more) in counted {
            let all = self.counted.entry(name).or_default();
            all.packets += more.packets;
            all.bytes += more.bytes;
        }
        let names: Vec<String> = rules.iter().map(Rule::name).collect();
        self.counted.retain(|name, _| names.contains(name));
        Ok(true)
    }

    /// Looks what the rules mean now.
    async fn look(&mut self) -> Look {
        let rules = self.desired.rules.clone();
        let groups = self.groups(&rules).await;
        let passwd = std::fs::read_to_string(PASSWD).unwrap_or_default();
        let mut look = Look { chosen: Vec::new(), states: Vec::new(), warnings: Vec::new() };
        let mut found = groups.as_ref().map(|(_, found)| found.paths.iter()).into_iter().flatten();
        for rule in rules {
            let mut state = RuleState { rule: rule.clone(), cgroups: Vec::new(), note: None };
            let by = match &rule.selector {
                Selector::User(user) => match id_of(user, &passwd) {
                    Some(id) => By::User(id),
                    None => {
                        let note = format!(
                            "no user has this name in {PASSWD}: write the number if another source knows it"
                        );
                        look.warnings.push(format!("{}: {note}", rule.selector));
                        state.note = Some(note);
                        By::Nothing
                    }
                },
                Selector::Unit(_) | Selector::App(_) | Selector::Cgroup(_) => match &groups {
                    Some((tree, all)) => {
                        state.cgroups = found.next().cloned().unwrap_or_default();
                        state.note = note_of(&rule.selector, &state.cgroups, all.is_cut);
                        By::Cgroups(state.cgroups.iter().map(|path| tree.named(path)).collect())
                    }
                    None => {
                        look.warnings.push(format!("{}: {NO_GROUPS} ({MOUNT})", rule.selector));
                        state.note = Some(NO_GROUPS.to_owned());
                        By::Nothing
                    }
                },
                Selector::Domain(_) => {
                    state.note = self.note_of_domain(&rule);
                    By::Addresses
                }
                // Never a rule.
                Selector::Prefix(_) => By::Nothing,
            };
            look.chosen.push(Chosen { rule, by });
            look.states.push(state);
        }
        look
    }

    /// The control groups of the rules that choose by them, in their order; `None`: there are none on this system.
    async fn groups(&mut self, rules: &[Rule]) -> Option<(Tree, Found)> {
        let selectors = rules.iter().map(|rule| &rule.selector);
        let selectors: Vec<Selector> =
            selectors.filter(|selector| selector.is_by_cgroup()).cloned().collect();
        if selectors.is_empty() {
            self.watch = None;
            return Some((Tree::at(MOUNT.into(), ""), Found::default()));
        }
        let tree = Tree::mounted()?;
        if self.watch.as_ref().is_none_or(|watching| watching.selectors != selectors) {
            let meant = selectors.clone();
            self.watch = match Watch::start(move |name| is_news(name, &meant)) {
                Ok(watch) => {
                    Some(Watching { watch: Arc::new(watch), selectors: selectors.clone() })
                }
                Err(error) => {
                    tracing::warn!(
                        "control groups that begin are seen late: they cannot be watched: {error}"
                    );
                    None
                }
            };
        }
        let watch = self.watch.as_ref().map(|watching| Arc::clone(&watching.watch));
        // Packets do not wait for folders.
        let looked = tokio::task::spawn_blocking(move || {
            let all: Vec<&Selector> = selectors.iter().collect();
            let found = tree.find(&all, |folder| {
                if let Some(watch) = &watch {
                    watch.look_at(folder);
                }
            });
            (tree, found)
        });
        // A panic there would have been printed.
        looked.await.ok()
    }

    fn note_of_domain(&self, rule: &Rule) -> Option<String> {
        let forgotten = self.learned.forgotten(rule.id);
        match (&self.desired.tun, self.desired.forwarder) {
            (None, _) => Some("addresses are learned once the tunnel is up".to_owned()),
            (Some(_), None) => Some(
                "names are not looked up by way of the client: the proxy hands out no name servers (write addresses of some \
                 to `dns`), or questions cannot be answered here"
                    .to_owned(),
            ),
            (Some(_), Some(_)) => (forgotten > 0).then(|| TOO_MANY.to_owned()),
        }
    }
}

impl Look {
    /// `nft` takes no rules by control groups.
    fn forget_groups(&mut self, said: &str) {
        for (chosen, state) in self.chosen.iter_mut().zip(&mut self.states) {
            if let By::Cgroups(_) = chosen.by {
                chosen.by = By::Nothing;
                state.note = Some(format!(
                    "nft or the kernel takes no rules by control groups (nftables 1.0 and Linux 5.13 do): {said}"
                ));
                self.warnings.push(format!(
                    "{}: nft or the kernel takes no rules by control groups (nftables 1.0 and Linux 5.13 do)",
                    chosen.rule.selector
                ));
            }
        }
    }
}

fn has_groups(look: &Look) -> bool {
    let mut all = look.chosen.iter();
    all.any(|chosen| matches!(&chosen.by, By::Cgroups(groups) if !groups.is_empty()))
}

/// What is told of a domain with more addresses than are kept.
const TOO_MANY: &str = "it has more addresses than are kept (4096): those that were answered longest ago are forgotten";
const _: () = assert!(MAX_ADDRESSES == 4096);

fn note_of(selector: &Selector, paths: &[String], is_cut: bool) -> Option<String> {
    if is_cut {
        return Some(format!(
            "more control groups than can be looked at, or more than {MAX_FOUND} that are meant: the rest is not chosen"
        ));
    }
    if !paths.is_empty() {
        return None;
    }
    Some(match selector {
        Selector::App(_) => "not running: `ropewalk run` starts it".to_owned(),
        _ => "not running".to_owned(),
    })
}
