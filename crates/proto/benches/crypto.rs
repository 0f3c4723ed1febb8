//! What the cryptography costs: a handshake at each end, and sealing and opening a datagram of 1,400 bytes.
//!
//! `cargo bench -p ropewalk-proto --bench crypto`.

use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use rand::SeedableRng;
use rand::rngs::StdRng;
use ropewalk_proto::crypto::aead::{Capabilities, Cipher, CipherSet, Opener, Sealer, TAG_LEN};
use ropewalk_proto::crypto::freshness::Timestamp;
use ropewalk_proto::crypto::handshake::{Initiator, InitiatorConfig, Inspected, Responder};
use ropewalk_proto::crypto::{DataKey, StaticSecret};
use ropewalk_proto::time::Duration;
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::hello::answer::Accept;
use ropewalk_proto::wire::hello::parameters::Parameters;
use ropewalk_settings::PresharedKey;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    handshake(&mut criterion);
    for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        datagram(&mut criterion, cipher);
    }
    criterion.final_summary();
}

fn handshake(criterion: &mut Criterion) {
    let mut rng = StdRng::seed_from_u64(42);
    let ciphers = CipherSet::offered(Capabilities { aes: true });
    let (proxy, psk) = (StaticSecret::generate(&mut rng), PresharedKey::from_bytes([9; 32]));
    let config = InitiatorConfig {
        local: StaticSecret::generate(&mut rng),
        remote: proxy.public(),
        psk: psk.clone(),
        ciphers,
        parameters: Parameters::default(),
    };
    let responder = Responder::new(proxy, ciphers);
    let index = SessionIndex::new(1);
    let wall = Timestamp::from_unix(Duration::from_secs(2_000));
    let mut group = criterion.benchmark_group("handshake");
    let mut ask = StdRng::seed_from_u64(1);
    group.bench_function("client asks", |bencher| {
        bencher.iter(|| Initiator::new(black_box(&config), &mut ask, index, wall, None));
    });
    let first = Initiator::new(&config, &mut rng, index, wall, None);
    let mut answer = |message: &[u8]| {
        let Ok(Inspected::First(first)) = responder.inspect(message) else {
            unreachable!("a first message of our version")
        };
        let pending = responder.read(&mut rng, &first).expect("authentic");
        let accept = Accept {
            index,
            cipher: pending.cipher().expect("both know one"),
            inner_v4: None,
            inner_v6: None,
            proxy_v4: None,
            proxy_v6: None,
            parameters: Parameters::default(),
        };
        pending.accept(&psk, &accept).0
    };
    group.bench_function("proxy answers", |bencher| {
        bencher.iter(|| answer(black_box(first.message())));
    });
    let mut asks = StdRng::seed_from_u64(2);
    group.bench_function("client takes the answer", |bencher| {
        bencher.iter_batched(
            || {
                let initiator = Initiator::new(&config, &mut asks, index, wall, None);
                let answer = answer(initiator.message());
                (initiator, answer)
            },
            |(mut initiator, answer)| initiator.handle_answer(&answer).is_ok(),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

fn datagram(criterion: &mut Criterion, cipher: Cipher) {
    let key = DataKey::from_bytes([1; 32]);
    let (mut sealer, mut opener) = (Sealer::new(cipher, &key), Opener::new(cipher, &key));
    let mut number = 0;
    let mut buffer = vec![7; 1400 + TAG_LEN];
    criterion.bench_function(&format!("seal and open {}", cipher.as_str()), |bencher| {
        bencher.iter(|| {
            number += 1;
            sealer.seal(LinkId(0), number, &[0; 8], &mut buffer).expect("within the limits");
            opener.open(LinkId(0), number, &[0; 8], &mut buffer).expect("as sealed").len()
        });
    });
}
