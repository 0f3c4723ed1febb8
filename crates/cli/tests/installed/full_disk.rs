//! A proxy whose disk is full: what is there goes on, what cannot be kept is refused and said, and nothing is lost.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};

#[test]
fn a_proxy_with_a_full_disk_refuses_what_it_cannot_keep_and_goes_on() {
    lab_test("full_disk::a_proxy_with_a_full_disk_refuses_what_it_cannot_keep_and_goes_on", || {
        let config = TopologyConfig::new(vec![WanConfig::default()]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        let state = stage.deployment().folder().join("state");
        std::fs::create_dir(&state).unwrap();
        let _disk = Disk::mount(&state);
        stage.start([0]).unwrap();
        let socket = stage.deployment().folder().join("proxy.sock");
        let invite = |name: &str| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ropewalk"));
            command
                .args(["peer", "add", name, "--address", "203.0.113.2", "--socket"])
                .arg(&socket);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        };
        let (done, said) = invite("before");
        assert!(done, "{said}");
        let book = std::fs::read(state.join("peers.json")).unwrap();
        let files = || -> BTreeSet<_> {
            std::fs::read_dir(&state).unwrap().map(|file| file.unwrap().file_name()).collect()
        };

        // Full to the last byte.
        let filler = state.join("filler");
        drop(std::fs::write(&filler, vec![0; 1 << 20]));
        let full = files();
        let (done, said) = invite("during");
        assert!(!done && said.contains("peers.json") && said.contains("No space left"), "{said}");
        assert_eq!(std::fs::read(state.join("peers.json")).unwrap(), book, "the old one is whole");
        assert_eq!(files(), full, "no half-written file stays");
        let pinged = Ping::new(SERVER_V4.into(), 5).run(stage.topology().client()).unwrap();
        assert_eq!(pinged.lost, 0, "packets do not care: {pinged:?}");
        assert_eq!(stage.proxy_status().unwrap().tunnel()["state"], "up");

        std::fs::remove_file(&filler).unwrap();
        let (done, said) = invite("after");
        assert!(done, "{said}");
        let book = std::fs::read_to_string(state.join("peers.json")).unwrap();
        assert!(book.contains("before") && book.contains("after") && !book.contains("during"));
    });
}

/// A disk of a few pages at this folder.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn mount(folder: &'a Path) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"]).arg(folder);
        assert!(mount.status().expect("mount runs").success());
        Self(folder)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Lazily: a daemon may still look at it.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}
