//! Which control groups (version 2) run now of those that rules mean.
//!
//! A rule of the firewall holds the number of a control group, which it has for one life only: a unit that is started again has
//! another. So they are looked for whenever one comes or goes.
//!
//! Units stand in slices, and those of users in the slices below their `user@UID.service`; nothing else has units inside. So
//! only these folders are looked through, a bounded number of them. Below that service a user makes folders as he likes: so
//! those of each user, and those of the system, are looked through and taken in turn, and nobody's keep others from being found.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use ropewalk_settings::Selector;
use ropewalk_settings::selector::is_plain_folder;
use rustix::fs::statfs;

/// Where control groups are mounted, and where `nft` looks for them.
pub const MOUNT: &str = "/sys/fs/cgroup";

/// Below that: nothing, or the folder of version 2 on a system that has both (systemd's "hybrid").
const PLACES: [&str; 2] = ["", "unified"];

/// The kernel's number of the file system (`CGROUP2_SUPER_MAGIC`, linux/magic.h).
const VERSION_2: u64 = 0x6367_7270;

/// Most folders that are looked through: some for each user who is logged in.
const MAX_FOLDERS: usize = 1024;

/// Most folders in one that are looked at: a busy machine has some hundred services.
const MAX_WITHIN: usize = 8192;

/// Levels of the deepest one: systemd makes six.
const MAX_LEVELS: usize = 16;

/// Most control groups that one rule means at a time: each has a rule of the firewall, which are asked in turn.
pub const MAX_FOUND: usize = 64;

/// The tree of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    root: PathBuf,
    below: String,
}

/// What was found for each selector, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The paths, from the root of the tree, sorted.
    pub paths: Vec<Vec<String>>,
    /// Whether there are more than are looked at.
    pub is_cut: bool,
}

impl Tree {
    /// The tree of version 2 as it is mounted here, if it is.
    #[must_use]
    pub fn mounted() -> Option<Self> {
        let mut trees =
            PLACES.into_iter().map(|below| Self::at(Path::new(MOUNT).join(below), below));
        trees.find(|tree| {
            let found = statfs(&tree.root);
            found.is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind == VERSION_2))
        })
    }

    /// A tree in this folder, which `nft` knows by this path below [`MOUNT`].
    #[must_use]
    pub fn at(root: PathBuf, below: &str) -> Self {
        Self { root, below: below.to_owned() }
    }

    /// Its folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// How a rule of the firewall names this control group: its level below the root, and its path below [`MOUNT`].
    #[must_use]
    pub fn named(&self, path: &str) -> (usize, String) {
        let level = path.split('/').count();
        let below = if self.below.is_empty() { "" } else { "/" };
        (level, format!("{}{below}{path}", self.below))
    }

    /// The control groups that these selectors mean. Each folder is handed to `look_at` before it is read, so that whoever
    /// watches it misses nothing.
    pub fn find(&self, selectors: &[&Selector], mut look_at: impl FnMut(&Path)) -> Found {
        let mut found = Found { paths: vec![Vec::new(); selectors.len()], is_cut: false };
        for (selector, paths) in selectors.iter().zip(&mut found.paths) {
            if let Selector::Cgroup(path) = selector {
                paths.extend(self.is_there(path, &mut look_at).then(|| path.clone()));
            }
        }
        if selectors.iter().any(|one| matches!(one, Selector::Unit(_) | Selector::App(_))) {
            self.walk(selectors, &mut look_at, &mut found);
        }
        for paths in &mut found.paths {
            paths.sort();
        }
        found
    }

    /// Whether the control group at this path runs. Its folder, or that in which it would begin, is looked at.
    fn is_there(&self, path: &str, look_at: &mut impl FnMut(&Path)) -> bool {
        let mut folder = self.root.clone();
        for name in path.split('/') {
            look_at(&folder);
            folder.push(name);
            if !folder.is_dir() {
                return false;
            }
        }
        true
    }

    /// Looks through all folders in which units stand, level by level, and one of each owner in turn.
    fn walk(&self, selectors: &[&Selector], look_at: &mut impl FnMut(&Path), found: &mut Found) {
        let mut waiting = Queues::from([(String::new(), VecDeque::from([String::new()]))]);
        let mut meant = vec![Queues::new(); selectors.len()];
        let mut seen = 0;
        while !waiting.is_empty() && seen < MAX_FOLDERS {
            let owners: Vec<String> = waiting.keys().cloned().collect();
            for owner in owners.into_iter().take(MAX_FOLDERS - seen) {
                let next = waiting.get_mut(&owner).and_then(VecDeque::pop_front);
                let Some(folder) = next else { continue };
                seen += 1;
                for (path, name) in self.within(&folder, look_at, &mut found.is_cut) {
                    let owner = owner_of(&path);
                    for (selector, of) in selectors.iter().zip(&mut meant) {
                        if selector.means_folder(&name) {
                            let of = of.entry(owner.to_owned()).or_default();
                            push(of, path.clone(), MAX_FOUND, &mut found.is_cut);
                        }
                    }
                    if has_units(&name) && path.split('/').count() < MAX_LEVELS {
                        let folders = waiting.entry(owner.to_owned()).or_default();
                        push(folders, path, MAX_FOLDERS, &mut found.is_cut);
                    }
                }
            }
            waiting.retain(|_, folders| !folders.is_empty());
        }
        found.is_cut |= !waiting.is_empty();
        for (paths, of) in found.paths.iter_mut().zip(meant) {
            paths.extend(in_turn(of, &mut found.is_cut));
        }
    }

    /// The folders in one, with their paths and names. It is looked at before.
    fn within(
        &self,
        folder: &str,
        look_at: &mut impl FnMut(&Path),
        is_cut: &mut bool,
    ) -> Vec<(String, String)> {
        let place = self.root.join(folder);
        look_at(&place);
        // It ended meanwhile.
        let Ok(entries) = fs::read_dir(&place) else { return Vec::new() };
        let folders = entries.flatten().filter_map(|entry| {
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let name = entry.file_name().to_str()?.to_owned();
            (is_folder && is_plain_folder(&name)).then_some(name)
        });
        let mut names: Vec<String> = folders.take(MAX_WITHIN + 1).collect();
        *is_cut |= names.len() > MAX_WITHIN;
        names.truncate(MAX_WITHIN);
        let path = |name: &str| match folder {
            "" => name.to_owned(),
            folder => format!("{folder}/{name}"),
        };
        names.into_iter().map(|name| (path(&name), name)).collect()
    }
}

/// Paths by their owners.
type Queues = BTreeMap<String, VecDeque<String>>;

/// Adds a path, as long as there are fewer than `most`.
fn push(queue: &mut VecDeque<String>, path: String, most: usize, is_cut: &mut bool) {
    match queue.len() < most {
        true => queue.push_back(path),
        false => *is_cut = true,
    }
}

/// At most [`MAX_FOUND`] of these, one of each owner in turn.
fn in_turn(mut of: Queues, is_cut: &mut bool) -> Vec<String> {
    let all: usize = of.values().map(VecDeque::len).sum();
    let mut taken = Vec::new();
    while taken.len() < all.min(MAX_FOUND) {
        taken.extend(of.values_mut().filter_map(VecDeque::pop_front));
    }
    taken.truncate(MAX_FOUND);
    *is_cut |= all > MAX_FOUND;
    taken
}

/// Whose folder this is: the part of its path that leads to the service of a user, who makes what is below; empty for what is
/// the system's.
fn owner_of(path: &str) -> &str {
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        if is_of_user(part) {
            return &path[..end];
        }
        end += 1;
    }
    ""
}

/// Whether the folder of this name is news for rules with these selectors: it may be meant, or units that are meant may begin
/// in it.
#[must_use]
pub fn is_news(name: &str, selectors: &[Selector]) -> bool {
    selectors.iter().any(|selector| match selector {
        Selector::Cgroup(path) => path.split('/').any(|part| part == name),
        Selector::Unit(_) | Selector::App(_) => has_units(name) || selector.means_folder(name),
        Selector::Prefix(_) | Selector::User(_) | Selector::Domain(_) => false,
    })
}

/// Whether units stand in the control group of this name (`systemd.slice(5)`, `user@.service(5)`).
fn has_units(name: &str) -> bool {
    name.ends_with(".slice") || is_of_user(name)
}

/// Whether this is the service in which a user's own units are.
fn is_of_user(name: &str) -> bool {
    name.starts_with("user@") && name.ends_with(".service")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Text as _;

    const FOLDERS: [&str; 10] = [
        "init.scope",
        "system.slice/cron.service",
        "system.slice/steam.service/inside.service",
        "system.slice/system-getty.slice/getty@tty1.service",
        "user.slice/user-1000.slice/session-2.scope",
        "user.slice/user-1000.slice/user@1000.service/app.slice/steam.service",
        "user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-7.scope",
        "user.slice/user-1000.slice/user@1000.service/app.slice/ropewalk-app-chat-99.scope",
        "user.slice/user-1000.slice/user@1000.service/app.slice/bad\"name.service",
        "machine.slice/x.scope",
    ];

    fn tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        for path in FOLDERS {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        fs::write(folder.path().join("system.slice/cgroup.procs"), "").unwrap();
        let tree = Tree::at(folder.path().to_owned(), "");
        (folder, tree)
    }

    fn selectors(entries: &[&str]) -> Vec<Selector> {
        entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
    }

    fn find(tree: &Tree, entries: &[&str]) -> Vec<Vec<String>> {
        let selectors = selectors(entries);
        tree.find(&selectors.iter().collect::<Vec<_>>(), |_| ()).paths
    }

    #[test]
    fn units_are_found_in_the_slices_of_the_system_and_of_users_and_nowhere_else() {
        let (_folder, tree) = tree();
        let app = "user.slice/user-1000.slice/user@1000.service/app.slice";
        for (entry, expected) in [
            ("unit:cron.service", vec!["system.slice/cron.service".to_owned()]),
            (
                "unit:steam.service",
                vec!["system.slice/steam.service".to_owned(), format!("{app}/steam.service")],
            ),
            ("unit:inside.service", vec![]),
            (
                "unit:getty@*.service",
                vec!["system.slice/system-getty.slice/getty@tty1.service".to_owned()],
            ),
            ("unit:app-*firefox*.scope", vec![format!("{app}/app-gnome-firefox-7.scope")]),
            ("unit:user-1000.slice", vec!["user.slice/user-1000.slice".to_owned()]),
            ("unit:bad*.service", vec![]),
            ("app:chat", vec![format!("{app}/ropewalk-app-chat-99.scope")]),
            ("app:cha", vec![]),
            ("cgroup:machine.slice/x.scope", vec!["machine.slice/x.scope".to_owned()]),
            ("cgroup:machine.slice/y.scope", vec![]),
            ("cgroup:system.slice/cgroup.procs", vec![]),
        ] {
            assert_eq!(find(&tree, &[entry]), [expected], "{entry}");
        }
        let both = find(&tree, &["app:chat", "unit:cron.service"]);
        assert_eq!(both.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn where_a_group_would_begin_is_looked_at_before_it_is_there() {
        let (folder, tree) = tree();
        let looked_at = |entry: &str| {
            let selectors = selectors(&[entry]);
            let mut places = Vec::new();
            tree.find(&selectors.iter().collect::<Vec<_>>(), |place| {
                places.push(place.strip_prefix(folder.path()).unwrap().display().to_string());
            });
            places
        };
        assert_eq!(looked_at("cgroup:machine.slice/y/z"), ["", "machine.slice"]);
        assert_eq!(looked_at("cgroup:a/b"), [""]);
        let all = looked_at("unit:new.service");
        for place in ["", "system.slice", "system.slice/system-getty.slice", "user.slice"] {
            assert!(all.iter().any(|one| one == place), "{place} in {all:?}");
        }
        assert!(!all.iter().any(|one| one.ends_with("cron.service")), "{all:?}");
        assert_eq!(all.len(), 8, "{all:?}");
    }

    #[test]
    fn folders_without_end_are_looked_through_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..=MAX_FOUND {
            fs::create_dir(folder.path().join(format!("a-{number}.service"))).unwrap();
        }
        let tree = Tree::at(folder.path().to_owned(), "");
        let all = selectors(&["unit:a-*.service"]);
        let found = tree.find(&all.iter().collect::<Vec<_>>(), |_| ());
        assert_eq!((found.paths[0].len(), found.is_cut), (MAX_FOUND, true));
        for number in 0..=MAX_FOLDERS {
            fs::create_dir(folder.path().join(format!("{number}.slice"))).unwrap();
        }
        let one = selectors(&["unit:a-1.service"]);
        let mut places = 0;
        let found = tree.find(&one.iter().collect::<Vec<_>>(), |_| places += 1);
        assert_eq!((places, found.is_cut), (MAX_FOLDERS, true));
        let deep = "a.slice/".repeat(MAX_LEVELS + 4);
        fs::create_dir_all(folder.path().join("deep.slice").join(deep)).unwrap();
        assert!(tree.find(&one.iter().collect::<Vec<_>>(), |_| ()).is_cut);
    }

    #[test]
    fn folders_of_one_user_without_end_keep_nobody_elses_from_being_found() {
        let (folder, tree) = tree();
        let greedy = "user.slice/user-1001.slice/user@1001.service";
        for number in 0..MAX_FOLDERS + 100 {
            let path = format!("{greedy}/{number}.slice/steam.service");
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        let deep = "a.slice/".repeat(MAX_LEVELS + 4);
        fs::create_dir_all(folder.path().join(greedy).join(deep)).unwrap();
        let entry = selectors(&["unit:steam.service"]);
        let mut places = 0;
        let found = tree.find(&entry.iter().collect::<Vec<_>>(), |_| places += 1);
        assert_eq!((places, found.paths[0].len(), found.is_cut), (MAX_FOLDERS, MAX_FOUND, true));
        let app = "user.slice/user-1000.slice/user@1000.service/app.slice";
        for other in ["system.slice/steam.service".to_owned(), format!("{app}/steam.service")] {
            assert!(found.paths[0].contains(&other), "{other} was pushed out");
        }
        let later = format!("{app}/x.slice/y.slice/late.service");
        fs::create_dir_all(folder.path().join(&later)).unwrap();
        assert_eq!(find(&tree, &["unit:late.service"]), [vec![later]]);
    }

    #[test]
    fn a_folder_belongs_to_the_user_in_whose_service_it_is() {
        let user = "user.slice/user-1000.slice/user@1000.service";
        for (path, expected) in [
            ("system.slice/cron.service", ""),
            ("user.slice/user-1000.slice", ""),
            (user, user),
            (&format!("{user}/app.slice/user@0.service/a.slice"), user),
        ] {
            assert_eq!(owner_of(path), expected, "{path}");
        }
    }

    #[test]
    fn a_rule_names_the_group_as_nft_does() {
        let new = Tree::at("/sys/fs/cgroup".into(), "");
        let hybrid = Tree::at("/sys/fs/cgroup/unified".into(), "unified");
        assert_eq!(new.named("a.slice/b.service"), (2, "a.slice/b.service".to_owned()));
        assert_eq!(hybrid.named("a.slice"), (1, "unified/a.slice".to_owned()));
    }

    #[test]
    fn only_names_that_may_be_meant_are_news() {
        let all = selectors(&["unit:steam.service", "app:chat", "cgroup:one/two"]);
        for (name, expected) in [
            ("steam.service", true),
            ("cron.service", false),
            ("ropewalk-app-chat-7.scope", true),
            ("new.slice", true),
            ("user@1000.service", true),
            ("two", true),
            ("three", false),
        ] {
            assert_eq!(is_news(name, &all), expected, "{name}");
        }
        assert!(!is_news("new.slice", &selectors(&["cgroup:one/two", "user:7"])));
    }
}
