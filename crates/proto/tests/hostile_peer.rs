//! A peer that holds the keys and says what it likes: what it can make the other end keep and do is bounded.

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_netlab::lab::Towards;

#[path = "../fuzz/src/hostile/mod.rs"]
#[expect(unreachable_pub, reason = "public for the fuzz targets")]
mod hostile;
#[path = "../fuzz/src/input.rs"]
mod input;

use hostile::{FLOODS, FRAME_KINDS, FRAMES, Seen};

/// Inputs drawn at random.
const ROUNDS: u64 = 150;

/// What an end may still keep when a hostile peer has been silent for 30 s: records of some 30,000 datagrams that it sent and
/// nobody confirmed.
const REST_BYTES: i64 = 8 << 20;

/// What was seen in all attacks.
fn add(most: &mut Seen, name: &str, seen: Seen) {
    assert!(seen.came > 0, "{name}: nothing came");
    assert!(seen.rest_bytes <= REST_BYTES, "{name}: {} bytes at rest", seen.rest_bytes);
    most.most_bytes = most.most_bytes.max(seen.most_bytes);
    most.rest_bytes = most.rest_bytes.max(seen.rest_bytes);
    most.most_answers = most.most_answers.max(seen.most_answers);
    most.epochs = most.epochs.max(seen.epochs);
    most.came += seen.came;
    most.delivered += seen.delivered;
    most.sent += seen.sent;
}

#[test]
fn whatever_a_peer_with_the_keys_says_memory_and_work_are_bounded() {
    let mut most = Seen::default();
    for seed in 0..ROUNDS {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let mut data = vec![0; 4000];
        rng.fill_bytes(&mut data);
        data[0] = seed.to_le_bytes()[0];
        add(&mut most, &format!("seed {seed}"), hostile::run(&data));
    }
    println!("in all: {most:?}");
    assert!(most.delivered > 0 && most.sent > 0 && most.epochs > 0, "the test would be empty");
}

#[test]
fn a_flood_of_one_kind_is_bounded_too() {
    let mut most = Seen::default();
    for victim in [Towards::Proxy, Towards::Client] {
        let frames = (0..FRAME_KINDS).map(|kind| (FRAMES, kind));
        let others = FLOODS.into_iter().map(|operation| (operation, 0));
        for (operation, kind) in frames.chain(others) {
            let mut rng = StdRng::seed_from_u64(1);
            let seen = hostile::flood(victim, operation, kind, &mut rng);
            println!("{victim:?} operation {operation} frames {kind}: {seen:?}");
            add(&mut most, &format!("operation {operation}, frames {kind}"), seen);
        }
    }
    println!("in all: {most:?}");
}

#[test]
fn the_corpus_of_hostile_peers_breaks_nothing() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/hostile");
    let entries = std::fs::read_dir(folder).expect("the corpus is committed");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 12, "{} files are no corpus", files.len());
    for file in files {
        println!("{}", file.display());
        hostile::run(&std::fs::read(&file).expect("readable"));
    }
}
