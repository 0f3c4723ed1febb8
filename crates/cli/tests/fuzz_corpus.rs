//! The body of the fuzz target `config` on the committed corpus and on the samples, without a fuzzer.

use std::path::Path;

#[path = "../../proto/fuzz/src/config.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz target")]
mod config;

#[test]
fn the_corpus_of_config_files_breaks_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("../proto/fuzz/corpus/config");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is committed")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert!(files.len() >= 12, "{} files are no corpus", files.len());
    files.extend(["client", "proxy"].map(|name| root.join(format!("../../configs/{name}.toml"))));
    files.sort();
    for file in files {
        let data = std::fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| config::run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}
