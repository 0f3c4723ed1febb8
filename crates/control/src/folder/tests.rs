use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;

use ropewalk_netlab::privilege::skipped;

use super::*;

/// The less trusted user.
const USER: u32 = 65534;

/// A folder of root's, and in it one that another user owns.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// `None`, and the test counts as skipped, where this process can give nothing away.
    fn prepare(test: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        std::fs::create_dir(&own).unwrap();
        if !is_root() || chown(&own, Some(USER), Some(USER)).is_err() {
            skipped(test, "only root gives files away");
            return None;
        }
        std::fs::write(folder.path().join("secret"), "root's").unwrap();
        Some(Self { folder })
    }

    fn root(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn own(&self, name: &str) -> PathBuf {
        self.folder.path().join("own").join(name)
    }

    fn secret(&self) -> (Vec<u8>, u32, u32) {
        let found = std::fs::metadata(self.root("secret")).unwrap();
        (std::fs::read(self.root("secret")).unwrap(), found.uid(), found.mode())
    }
}

#[test]
fn root_reads_nothing_but_plain_bounded_files_where_another_user_can_put_them() {
    const NAME: &str = "root_reads_nothing_but_plain_bounded_files_where_another_user_can_put_them";
    let Some(place) = Place::prepare(NAME) else { return };
    std::fs::write(place.own("plain"), "text").unwrap();
    symlink(place.root("secret"), place.own("link")).unwrap();
    symlink(place.folder.path(), place.own("folder")).unwrap();
    std::fs::hard_link(place.root("secret"), place.own("hard")).unwrap();
    std::fs::create_dir(place.own("dir")).unwrap();
    rustix::fs::mknodat(CWD, place.own("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .unwrap();
    let _socket = UnixListener::bind(place.own("socket")).unwrap();
    File::create(place.own("sparse")).unwrap().set_len(1 << 30).unwrap();

    let plain = read(&place.own("plain"), 4).unwrap();
    assert!(*plain.bytes == b"text"[..] && plain.is_others);
    for (name, why) in [
        ("link", "symbolic link"),
        ("folder/secret", "symbolic link"),
        ("hard", "several names"),
        ("dir", "no regular file"),
        ("fifo", "no regular file"),
        ("socket", "no regular file"),
        ("sparse", "longer than 4096 bytes"),
        ("nowhere", "No such file"),
    ] {
        let error = read(&place.own(name), 4096).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
    }
    // A link of root's own is root's word, whatever it leads to.
    symlink(place.own("plain"), place.root("by-root")).unwrap();
    symlink("secret", place.root("relative")).unwrap();
    assert!(read(&place.root("by-root"), 4096).unwrap().is_others);
    let own = read(&place.root("relative"), 4096).unwrap();
    assert!(*own.bytes == b"root's"[..] && !own.is_others);
    symlink(place.own("link"), place.root("by-way")).unwrap();
    assert!(read(&place.root("by-way"), 4096).is_err());
    // Nor is a file in root's folder that another may write.
    chown(place.root("secret"), Some(USER), None).unwrap();
    assert!(read(&place.root("secret"), 4096).unwrap().is_others);
}

#[test]
fn links_of_root_are_followed_as_the_kernel_does_and_none_without_end() {
    const NAME: &str = "links_of_root_are_followed_as_the_kernel_does_and_none_without_end";
    let Some(place) = Place::prepare(NAME) else { return };
    std::fs::create_dir(place.root("a")).unwrap();
    symlink("../a/../secret", place.root("a/up")).unwrap();
    symlink("a", place.root("b")).unwrap();
    assert_eq!(*read(&place.root("b/up"), 9).unwrap().bytes, b"root's"[..]);
    symlink("loop", place.root("loop")).unwrap();
    assert!(read(&place.root("loop"), 9).is_err());
    // A descriptor that this process was given, of any kind.
    let (reading, writing) = rustix::pipe::pipe().unwrap();
    File::from(writing).write_all(b"piped").unwrap();
    let piped = read(Path::new(&format!("/dev/fd/{}", reading.as_raw_fd())), 9).unwrap();
    assert_eq!(*piped.bytes, b"piped"[..]);
    // In a folder where everybody may write (/tmp) root follows its own links only.
    std::fs::create_dir(place.root("tmp")).unwrap();
    std::fs::set_permissions(place.root("tmp"), Permissions::from_mode(0o1777)).unwrap();
    symlink("../secret", place.root("tmp/link")).unwrap();
    assert!(read(&place.root("tmp/link"), 9).is_ok());
    chown_link(&place.root("tmp/link"));
    assert!(read(&place.root("tmp/link"), 9).is_err());
}

fn chown_link(link: &Path) {
    std::os::unix::fs::lchown(link, Some(USER), Some(USER)).unwrap();
}

#[test]
fn what_root_makes_in_another_users_folder_is_that_users_and_nothing_else_changes() {
    const NAME: &str =
        "what_root_makes_in_another_users_folder_is_that_users_and_nothing_else_changes";
    let Some(place) = Place::prepare(NAME) else { return };
    let before = place.secret();
    let folder = Folder::open(&place.own("")).unwrap();
    assert!(folder.is_others() && !Folder::open(place.folder.path()).unwrap().is_others());
    let new = folder.open_or_make(OsStr::new("new"), 0o600).unwrap();
    assert_eq!(
        (new.metadata().unwrap().uid(), new.metadata().unwrap().mode() & 0o777),
        (USER, 0o600)
    );
    folder.open_or_make(OsStr::new("new"), 0o600).unwrap();

    symlink(place.root("secret"), place.own("link")).unwrap();
    symlink(place.root("planted"), place.own("dangling")).unwrap();
    std::fs::hard_link(place.root("secret"), place.own("hard")).unwrap();
    rustix::fs::mknodat(CWD, place.own("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0)
        .unwrap();
    for name in ["link", "dangling", "hard", "fifo"] {
        assert!(folder.open_or_make(OsStr::new(name), 0o600).is_err(), "{name}");
    }
    assert!(!place.root("planted").exists());
    // A folder that is a link is none, and one that was moved away stays the one that was opened.
    symlink(place.folder.path(), place.own("sub")).unwrap();
    assert!(Folder::open(&place.own("sub")).is_err());
    assert!(Folder::make(&place.own("sub/more"), 0o700).is_err());
    assert!(!place.root("more").exists());
    Folder::make(&place.own("deep/er"), 0o700).unwrap();
    assert!(place.own("deep/er").is_dir());
    std::fs::rename(place.own(""), place.root("moved")).unwrap();
    symlink("/", place.root("own")).unwrap();
    std::fs::write(folder.at(OsStr::new("late")), "x").unwrap();
    assert!(place.root("moved/late").exists());
    assert_eq!(place.secret(), before);
}
