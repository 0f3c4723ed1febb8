//! The body of the fuzz target `packets` on the committed corpus, without a fuzzer.

use std::path::Path;

#[path = "../../proto/fuzz/src/input.rs"]
mod input;
#[path = "../../proto/fuzz/src/packets.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz target")]
mod packets;

#[test]
fn the_corpus_of_packets_breaks_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/fuzz/corpus/packets");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is committed")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{} files are no corpus", files.len());
    for file in files {
        let data = std::fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| packets::run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}
