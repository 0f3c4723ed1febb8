use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

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
fn any_bytes_the_mode_and_the_owner_come_back() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.file(), Permissions::from_mode(0o640)).unwrap();
    let before = std::fs::metadata(folder.file()).unwrap();
    let mut conf = folder.open();
    conf.set(&servers(&["9.9.9.9", "2620:fe::fe", "1.1.1.1", "8.8.8.8"])).unwrap();
    let text = String::from_utf8(folder.read()).unwrap();
    assert!(text.ends_with("nameserver 9.9.9.9\nnameserver 2620:fe::fe\nnameserver 1.1.1.1\n"));
    assert_eq!(std::fs::metadata(folder.file()).unwrap().mode() & 0o777, 0o644);
    assert_eq!(conf.restore().unwrap(), Left::Restored);
    assert_eq!(folder.read(), BEFORE);
    let after = std::fs::metadata(folder.file()).unwrap();
    assert_eq!(
        (after.mode(), after.uid(), after.gid()),
        (before.mode(), before.uid(), before.gid())
    );
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
