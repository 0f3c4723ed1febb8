//! Which control groups (version 2) run now of those that rules mean.
//!
//! A rule of the firewall holds the number of a control group, which it has for one life only: a unit that is started again has
//! another. So they are looked for whenever one comes or goes.
//!
//! Units stand in slices, and those of users in the slices below their `user@UID.service`; nothing else has units inside. So
//! only these folders are looked through, a bounded number of them.

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

    /// Looks through all folders in which units stand.
    fn walk(&self, selectors: &[&Selector], look_at: &mut impl FnMut(&Path), found: &mut Found) {
        let mut waiting = vec![String::new()];
        let mut seen = 0;
        while let Some(folder) = waiting.pop() {
            if seen == MAX_FOLDERS {
                found.is_cut = true;
                return;
            }
            seen += 1;
            let place = self.root.join(&folder);
            look_at(&place);
            // It ended meanwhile.
            let Ok(entries) = fs::read_dir(&place) else { continue };
            for entry in entries.flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
                if !is_folder || !is_plain_folder(&name) {
                    continue;
                }
                let path =
                    if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                for (selector, paths) in selectors.iter().zip(&mut found.paths) {
                    if !selector.means_folder(&name) {
                        continue;
                    }
                    match paths.len() < MAX_FOUND {
                        true => paths.push(path.clone()),
                        false => found.is_cut = true,
                    }
                }
                if has_units(&name) && path.split('/').count() < MAX_LEVELS {
                    waiting.push(path);
                }
            }
        }
    }
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
    name.ends_with(".slice") || (name.starts_with("user@") && name.ends_with(".service"))
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
