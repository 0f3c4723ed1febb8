use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

use ropewalk_netlab::privilege::skipped;

use super::record::MAX_WRITTEN;
use super::*;

const BEFORE: &[u8] = b"# by hand, \xe4\xff\nnameserver 192.168.1.1\nsearch lan\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::write(folder.file(), BEFORE).unwrap();
        folder
    }
    fn file(&self) -> PathBuf {
        self.0.path().join("resolv.conf")
    }
    fn record(&self) -> PathBuf {
        self.0.path().join("state/record.json")
    }
    /// As after a start.
    fn open(&self) -> ResolvConf {
        ResolvConf::new(self.file(), self.record())
    }
    fn read(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }
    fn names(&self) -> Vec<String> {
        let list = std::fs::read_dir(self.0.path()).unwrap();
        list.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn servers(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|address| address.parse().unwrap()).collect()
}

#[test]
fn any_bytes_come_back_and_the_file_is_roots_and_everybody_reads_it() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.file(), Permissions::from_mode(0o640)).unwrap();
    let own = std::fs::metadata(folder.file()).unwrap();
    let mut conf = folder.open();
    conf.set(&servers(&["9.9.9.9", "2620:fe::fe", "1.1.1.1", "8.8.8.8"])).unwrap();
    let text = String::from_utf8(folder.read()).unwrap();
    assert!(text.ends_with("nameserver 9.9.9.9\nnameserver 2620:fe::fe\nnameserver 1.1.1.1\n"));
    assert_eq!(std::fs::metadata(folder.file()).unwrap().mode() & 0o777, 0o644);
    assert_eq!(conf.restore().unwrap(), Left::Restored);
    assert_eq!(folder.read(), BEFORE);
    let after = std::fs::metadata(folder.file()).unwrap();
    assert_eq!((after.mode(), after.uid()), (0o100_644, own.uid()));
    assert!(!folder.record().exists());
    assert_eq!(folder.names().len(), 2, "a temporary file stayed: {:?}", folder.names());
    assert_eq!(conf.restore().unwrap(), Left::Nothing);
}

#[test]
fn a_symlink_and_no_file_at_all_come_back_too() {
    let folder = Folder::new();
    for target in [Some("../run/resolve/stub.conf"), None] {
        let _ = std::fs::remove_file(folder.file());
        if let Some(target) = target {
            symlink(target, folder.file()).unwrap();
        }
        folder.open().set(&servers(&["9.9.9.9"])).unwrap();
        assert!(String::from_utf8(folder.read()).unwrap().contains("9.9.9.9"));
        assert_eq!(folder.open().restore().unwrap(), Left::Restored);
        match target {
            Some(target) => {
                assert_eq!(std::fs::read_link(folder.file()).unwrap(), Path::new(target));
            }
            None => assert!(!folder.file().exists()),
        }
    }
}

#[test]
fn wherever_it_is_cut_the_next_start_puts_back_what_was() {
    // What stands in the record and in the file after each step, first to last.
    let folder = Folder::new();
    folder.open().set(&servers(&["9.9.9.9"])).unwrap();
    let (record, ours) = (std::fs::read(folder.record()).unwrap(), folder.read());
    folder.open().set(&servers(&["1.1.1.1"])).unwrap();
    let (second_record, second_ours) = (std::fs::read(folder.record()).unwrap(), folder.read());
    assert_ne!((&record, &ours), (&second_record, &second_ours));
    for (step, record, file) in [
        ("recorded", &record, BEFORE),
        ("replaced", &record, &ours),
        ("recorded again", &second_record, &ours),
        ("replaced again", &second_record, &second_ours),
        ("put back", &second_record, BEFORE),
    ] {
        std::fs::write(folder.record(), record).unwrap();
        std::fs::write(folder.file(), file).unwrap();
        folder.open().restore().unwrap();
        assert_eq!(folder.read(), BEFORE, "{step}");
        assert!(!folder.record().exists(), "{step}");
    }
    // And what was half written beside them.
    let half = [
        folder.0.path().join(".resolv.conf.ropewalk-x1"),
        folder.record().with_file_name(".record.json.new-x1"),
    ];
    half.iter().for_each(|file| std::fs::write(file, "nameser").unwrap());
    folder.open().restore().unwrap();
    assert!(half.iter().all(|file| !file.exists()));
}

#[test]
fn a_file_written_in_place_comes_back_wherever_the_writing_was_cut() {
    let folder = Folder::new();
    folder.open().set(&servers(&["9.9.9.9"])).unwrap();
    let mut record: Record =
        serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
    record.in_place = true;
    let ours = folder.read();
    let cuts = [&ours[..0], &ours[..1], &ours[..ours.len() - 1], &ours[..], &BEFORE[..20]];
    for cut in cuts {
        folder.open().save(&record).unwrap();
        std::fs::write(folder.file(), cut).unwrap();
        folder.open().restore().unwrap();
        assert_eq!(folder.read(), BEFORE, "{cut:?}");
    }
}

#[test]
fn what_was_comes_back_however_often_writing_failed() {
    let folder = Folder::new();
    let mut conf = folder.open();
    conf.set(&servers(&["9.9.9.9"])).unwrap();
    let standing = folder.read();
    // Recorded each time, and then the disk was full.
    for list in [["1.1.1.1"], ["1.1.1.1"], ["8.8.8.8"], ["1.1.1.1"], ["8.8.4.4"], ["9.9.9.10"]] {
        conf.set(&servers(&list)).unwrap();
        std::fs::write(folder.file(), &standing).unwrap();
    }
    let record: Record = serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
    assert!(record.written.len() <= MAX_WRITTEN, "{record:?}");
    conf.set(&servers(&["1.1.1.1"])).unwrap();
    assert_ne!(folder.read(), standing);
    assert_eq!(folder.open().restore().unwrap(), Left::Restored);
    assert_eq!(folder.read(), BEFORE);
}

#[test]
fn what_somebody_else_writes_is_what_comes_back() {
    let folder = Folder::new();
    let (list, begun) = (servers(&["9.9.9.9"]), Instant::now());
    let mut conf = folder.open();
    conf.set_at(&list, begun).unwrap();
    let ours = folder.read();
    // Each with another network than the one before.
    for round in 0..10_u8 {
        let edit = format!("nameserver 10.0.{round}.1\n");
        std::fs::write(folder.file(), &edit).unwrap();
        conf.set_at(&list, begun + INSISTING.1 / 2 * u32::from(round)).unwrap();
        assert_eq!(folder.read(), ours, "{round}");
        // A crash now puts back the new one.
        let record = std::fs::read(folder.record()).unwrap();
        assert_eq!(folder.open().restore().unwrap(), Left::Restored);
        assert_eq!(folder.read(), edit.as_bytes());
        std::fs::write(folder.record(), record).unwrap();
        std::fs::write(folder.file(), &ours).unwrap();
    }
    // A lease that writes what was before is no change.
    let last = b"nameserver 10.0.9.1\n";
    for _ in 0..10 {
        std::fs::write(folder.file(), last).unwrap();
        conf.set_at(&list, begun + INSISTING.1 * 5).unwrap();
        assert_eq!(folder.read(), ours);
    }
    assert_eq!(conf.restore().unwrap(), Left::Restored);
    assert_eq!(folder.read(), last);
}

#[test]
fn a_file_that_another_program_is_about_to_fill_is_not_taken_for_a_cut_of_ours() {
    let folder = Folder::new();
    let (mut conf, list) = (folder.open(), servers(&["9.9.9.9"]));
    conf.set(&list).unwrap();
    let mut record: Record =
        serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
    record.in_place = true;
    conf.save(&record).unwrap();
    let file = folder.file();
    std::fs::write(&file, "").unwrap();
    let writing = thread::spawn(move || {
        thread::sleep(SETTLE / 5);
        std::fs::write(file, "nameserver 10.0.0.1\n").unwrap();
    });
    conf.set(&list).unwrap();
    writing.join().unwrap();
    assert_eq!(conf.restore().unwrap(), Left::Restored);
    assert_eq!(folder.read(), b"nameserver 10.0.0.1\n");
}

#[test]
fn who_insists_on_the_file_or_edits_ours_keeps_it() {
    let folder = Folder::new();
    let list = servers(&["9.9.9.9"]);
    folder.open().set(&list).unwrap();
    let ours = folder.read();
    let part_of_ours = [&ours[..], b"nameserver 10.0.0.1\n"].concat();
    // How often the edit is written over before.
    for (edit, times) in [(b"nameserver 10.0.0.1\n".to_vec(), 3), (part_of_ours, 0)] {
        std::fs::write(folder.file(), BEFORE).unwrap();
        let mut conf = folder.open();
        let begun = Instant::now();
        conf.set_at(&list, begun).unwrap();
        for time in 0..times {
            std::fs::write(folder.file(), [&edit[..], &[b'#'; 9][..time]].concat()).unwrap();
            conf.set_at(&list, begun + INSISTING.1 / 10).unwrap();
            assert_eq!(folder.read(), ours);
        }
        std::fs::write(folder.file(), [&edit[..], b"# last\n"].concat()).unwrap();
        let last = folder.read();
        let error = conf.set_at(&list, begun + INSISTING.1 / 5).unwrap_err();
        assert!(error.to_string().contains("changed by another program"), "{error}");
        assert_eq!(folder.read(), last);
        // Not even after it was set aside for a while.
        assert_eq!(conf.restore().unwrap(), Left::Nothing);
        assert!(conf.set_at(&list, begun + INSISTING.1 * 9).is_err());
        assert_eq!(folder.read(), last);
        // And while the client was away.
        std::fs::write(folder.file(), BEFORE).unwrap();
        folder.open().set(&list).unwrap();
        std::fs::write(folder.file(), &edit).unwrap();
        assert_eq!(folder.open().restore().unwrap(), Left::Foreign);
        assert_eq!(folder.read(), edit);
    }
}

#[test]
fn what_cannot_be_put_back_is_not_taken_away() {
    let folder = Folder::new();
    let list = servers(&["9.9.9.9"]);
    // Ours, without a record: what was before is not known.
    folder.open().set(&list).unwrap();
    let ours = folder.read();
    std::fs::remove_file(folder.record()).unwrap();
    let error = folder.open().set(&list).unwrap_err();
    assert!(error.to_string().contains("is not known"), "{error}");
    assert_eq!(folder.read(), ours);
    // A record that cannot be understood.
    std::fs::write(folder.record(), "{").unwrap();
    for error in [folder.open().set(&list).unwrap_err(), folder.open().restore().unwrap_err()] {
        assert!(matches!(error, ResolvConfError::Damaged { .. }), "{error}");
    }
    // No file, and one without end.
    std::fs::remove_file(folder.record()).unwrap();
    std::fs::write(folder.file(), vec![b'#'; 70_000]).unwrap();
    assert!(matches!(folder.open().set(&list), Err(ResolvConfError::Odd { .. })));
    std::fs::remove_file(folder.file()).unwrap();
    std::fs::create_dir(folder.file()).unwrap();
    assert!(matches!(folder.open().set(&list), Err(ResolvConfError::Odd { .. })));
    // Nowhere to keep it: a file stands where the folder should.
    std::fs::remove_dir(folder.file()).unwrap();
    std::fs::write(folder.file(), BEFORE).unwrap();
    let mut conf = ResolvConf::new(folder.file(), folder.file().join("record.json"));
    assert!(conf.set(&list).is_err());
    assert_eq!(folder.read(), BEFORE);
}

/// What the less trusted user has in its record.
const PROGRAM: &str = "\u{7f}ELF\u{2}\u{1}\u{1}\u{0}";

/// A folder of state that another user owns, with a client of root's that was killed: our text stands in the file, and the
/// record is that user's. `None`, and the test counts as skipped, where this process can give nothing away.
fn of_another_user(test: &str) -> Option<(Folder, String)> {
    let folder = Folder::new();
    folder.open().set(&servers(&["9.9.9.9"])).unwrap();
    let state = folder.0.path().join("state");
    let given = [state, folder.record()].map(|path| chown(path, Some(65534), Some(65534)).is_ok());
    if !rustix::process::geteuid().is_root() || given.contains(&false) {
        skipped(test, "only root gives files away");
        return None;
    }
    let ours = String::from_utf8(folder.read()).unwrap();
    Some((folder, ours))
}

/// A record as the other user makes it, of the form that older versions wrote.
fn crafted(before: &serde_json::Value, written: &str) -> Vec<u8> {
    let record = serde_json::json!({ "before": before, "written": [written], "in_place": false });
    serde_json::to_vec(&record).unwrap()
}

fn text_file(content: &str) -> serde_json::Value {
    serde_json::json!({ "kind": "file", "content": content, "mode": 0o4755, "uid": 65534, "gid": 0 })
}

#[test]
fn root_takes_from_another_users_record_a_choice_of_name_servers_and_nothing_else() {
    const NAME: &str =
        "root_takes_from_another_users_record_a_choice_of_name_servers_and_nothing_else";
    let Some((folder, ours)) = of_another_user(NAME) else { return };
    let link = |target: &str| serde_json::json!({ "kind": "symlink", "target": target });
    let long = format!("search {}\n", "a".repeat(5000));
    for (before, why) in [
        (text_file(PROGRAM), "holds what is no text"),
        (text_file("#!/bin/sh\nid\n"), "begins as a program"),
        (text_file("nameserver 192.168.1.1\n* * * * * root id\n"), "line 2 is none of resolv.conf"),
        (text_file("nameserver evil\n"), "line 1 names no address"),
        (text_file(&long), "line 1 is too long"),
        (text_file(&"#\n".repeat(40_000)), "longer than 65536 bytes"),
        (text_file("# \u{200b}\n"), "holds what is no text"),
        (link("/etc/shadow"), "no program keeps a resolv.conf at /etc/shadow"),
        (link("../run/systemd/resolve/../../../etc/shadow"), "no program keeps"),
    ] {
        std::fs::write(folder.record(), crafted(&before, &ours)).unwrap();
        let error = folder.open().restore().unwrap_err().to_string();
        assert!(error.contains(why), "{before}: {error}");
        assert_eq!(folder.read(), ours.as_bytes(), "{before}");
    }
    let honest =
        "# by hand, \u{e4}\nnameserver 192.168.1.1\r\nnameserver fe80::1%eth0\nsearch lan\n\n";
    std::fs::write(folder.record(), crafted(&text_file(honest), &ours)).unwrap();
    assert_eq!(folder.open().restore().unwrap(), Left::Restored);
    let bytes: Vec<u8> = honest.chars().map(|byte| u8::try_from(byte).unwrap()).collect();
    assert_eq!(folder.read(), bytes);
    let after = std::fs::metadata(folder.file()).unwrap();
    assert_eq!((after.mode(), after.uid(), after.gid()), (0o100_644, 0, 0));
    let stub = "../run/systemd/resolve/stub-resolv.conf";
    std::fs::write(folder.file(), &ours).unwrap();
    std::fs::write(folder.record(), crafted(&link(stub), &ours)).unwrap();
    assert_eq!(folder.open().restore().unwrap(), Left::Restored);
    assert_eq!(std::fs::read_link(folder.file()).unwrap(), Path::new(stub));
}

#[test]
fn root_puts_nothing_over_a_file_that_is_not_begun_as_ours() {
    const NAME: &str = "root_puts_nothing_over_a_file_that_is_not_begun_as_ours";
    let Some((folder, _)) = of_another_user(NAME) else { return };
    let theirs = "nameserver 192.168.1.1\n";
    std::fs::write(folder.file(), theirs).unwrap();
    let record = crafted(&text_file("nameserver 6.6.6.6\n"), theirs);
    std::fs::write(folder.record(), record).unwrap();
    assert_eq!(folder.open().restore().unwrap(), Left::Foreign);
    assert_eq!(folder.read(), theirs.as_bytes());
}

/// What is put somewhere, and how.
type Plant<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn no_link_no_fifo_and_no_endless_file_in_the_place_of_the_record_moves_root() {
    const NAME: &str = "no_link_no_fifo_and_no_endless_file_in_the_place_of_the_record_moves_root";
    let Some((folder, ours)) = of_another_user(NAME) else { return };
    let record = folder.record();
    let outside = folder.0.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let good = crafted(&text_file("nameserver 6.6.6.6\n"), &ours);
    let target = outside.join("record.json");
    let half = outside.join(".record.json.new-x1");
    for file in [&target, &half] {
        std::fs::write(file, &good).unwrap();
    }
    let fifo = |path: &Path| {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    };
    let sparse = |path: &Path| {
        std::fs::File::create(path).unwrap().set_len(1 << 30).unwrap();
    };
    let plants: [Plant<'_>; 5] = [
        ("a link", &|path| symlink(&target, path).unwrap()),
        ("a hard link", &|path| std::fs::hard_link(&target, path).unwrap()),
        ("a FIFO", &fifo),
        ("a file without end", &sparse),
        ("a folder", &|path| std::fs::create_dir(path).unwrap()),
    ];
    for (what, plant) in plants {
        let _ = std::fs::remove_file(&record);
        plant(&record);
        assert!(folder.open().restore().is_err(), "{what}");
        assert_eq!(folder.read(), ours.as_bytes(), "{what}");
    }
    // The folder of state is a link itself, which that user made where it could.
    std::fs::remove_dir_all(folder.0.path().join("state")).unwrap();
    let own = folder.0.path().join("own");
    std::fs::create_dir(&own).unwrap();
    symlink(&outside, own.join("state")).unwrap();
    chown(&own, Some(65534), Some(65534)).unwrap();
    let mut conf = ResolvConf::new(folder.file(), own.join("state/record.json"));
    assert!(conf.restore().is_err());
    assert!(conf.set(&servers(&["9.9.9.9"])).is_err());
    assert_eq!(folder.read(), ours.as_bytes());
    assert_eq!(std::fs::read(&target).unwrap(), good);
    assert!(half.exists(), "swept through a link");
}
