//! The bodies of the fuzz targets on the committed corpus, without a fuzzer.

use std::path::Path;

#[path = "../fuzz/src/datagram.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod datagram;
#[path = "../fuzz/src/handshake.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod handshake;
#[path = "../fuzz/src/input.rs"]
mod input;
#[path = "../fuzz/src/operations.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod operations;
#[path = "../fuzz/src/segments.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod segments;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus is committed")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() >= 12, "{target}: {} files are no corpus", files.len());
    for file in files {
        let data = std::fs::read(&file).expect("readable");
        let outcome = std::panic::catch_unwind(|| run(&data));
        assert!(outcome.is_ok(), "{}", file.display());
    }
}

#[test]
fn the_corpus_of_datagrams_breaks_nothing() {
    replay("datagram", datagram::run);
}

#[test]
fn the_corpus_of_handshakes_breaks_nothing() {
    replay("handshake", handshake::run);
}

#[test]
fn the_corpus_of_operations_breaks_nothing() {
    replay("operations", operations::run);
}

#[test]
fn the_corpus_of_segments_breaks_nothing() {
    replay("segments", segments::run);
}
