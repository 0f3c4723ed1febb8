//! The bodies of the fuzz targets `config` and `invitation` on the committed corpus and on the samples, without a fuzzer.

use std::path::{Path, PathBuf};

#[path = "../../proto/fuzz/src/config.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz target")]
mod config;

#[path = "../../proto/fuzz/src/invitation.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz target")]
mod invitation;

#[test]
fn the_corpus_of_config_files_breaks_nothing() {
    let mut files = corpus("config", 12);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    files.extend(["client", "proxy"].map(|name| root.join(format!("../../configs/{name}.toml"))));
    files.sort();
    for file in files {
        let data = std::fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| config::run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}

#[test]
fn the_corpus_of_invitations_breaks_nothing() {
    let files = corpus("invitation", 12);
    for file in files {
        let data = std::fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| invitation::run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}

fn corpus(target: &str, at_least: usize) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/fuzz/corpus").join(target);
    let files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is committed")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(files.len() >= at_least, "{} files are no corpus", files.len());
    files
}
