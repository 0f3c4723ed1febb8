use super::*;
use crate::crypto::aead::{Capabilities, Cipher, CipherSet, TAG_LEN};
use crate::crypto::freshness::{Freshness, FreshnessRecord, RetryToken, RetryTokens, Timestamp};
use crate::crypto::keys::{EpochKeys, HandshakeRole, KeyRing};
use crate::crypto::mac::HelloMac;
use crate::crypto::recent::{Outcome, RecentFirstMessages};
use crate::crypto::secret::StaticSecret;
use crate::error::DropReason;
use crate::time::{Duration, Instant};
use crate::units::{LinkId, SessionIndex};
use crate::wire::hello::answer::{Accept, RESPONSE_LEN, Refusal};
use crate::wire::hello::parameters::Parameters;
use crate::wire::hello::{FIRST_LEN, Hello, HelloKind, VERSIONS, envelope, set_mac};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use ropewalk_settings::PresharedKey;

const INDEX: SessionIndex = SessionIndex::new(0x12_3456);
const NOW: Instant = Instant::from_millis(7_000);
/// The responder's start by the wall clock.
const STARTED: Timestamp = Timestamp::from_unix(Duration::from_secs(1_000));

fn wall(seconds: u64) -> Timestamp {
    Timestamp::from_unix(Duration::from_secs(seconds))
}

/// A client and a proxy that know each other.
struct Ends {
    rng: StdRng,
    config: InitiatorConfig,
    responder: Responder,
    psk: PresharedKey,
    tokens: RetryTokens,
    record: FreshnessRecord,
}

impl Ends {
    fn new() -> Self {
        let mut rng = StdRng::seed_from_u64(42);
        let ciphers = CipherSet::offered(Capabilities { aes: true });
        let proxy = StaticSecret::generate(&mut rng);
        let psk = PresharedKey::from_bytes([9; 32]);
        let config = InitiatorConfig {
            local: StaticSecret::generate(&mut rng),
            remote: proxy.public(),
            psk: psk.clone(),
            ciphers,
            parameters: Parameters {
                rekey_interval: Some(Duration::from_secs(120)),
                ..Parameters::default()
            },
        };
        let tokens = RetryTokens::new(Instant::ZERO, &mut rng);
        let record = FreshnessRecord::since(STARTED);
        Self { rng, config, responder: Responder::new(proxy, ciphers), psk, tokens, record }
    }

    fn ask(&mut self, seconds: u64) -> Initiator {
        Initiator::new(&self.config, &mut self.rng, INDEX, wall(seconds), None)
    }

    /// What a proxy does with a datagram, as far as reading it.
    fn read(&mut self, datagram: &[u8]) -> Result<PendingFirst, FirstError> {
        match self.responder.inspect(datagram)? {
            Inspected::First(first) => self.responder.read(&mut self.rng, &first),
            Inspected::OtherVersion(_) => panic!("in our version"),
        }
    }

    /// What a proxy does with a datagram of a client it knows: the answer, and the keys if any.
    fn serve(&mut self, datagram: &[u8]) -> Result<(Vec<u8>, Option<EpochKeys>), FirstError> {
        let pending = self.read(datagram)?;
        match pending.judge(NOW, &self.record, &self.tokens) {
            Freshness::Stale => Ok((pending.retry(NOW, &mut self.rng, &mut self.tokens), None)),
            Freshness::Fresh(record) => {
                self.record = record;
                let accept = accept(pending.cipher().unwrap());
                let (answer, keys) = pending.accept(&self.psk, &accept);
                Ok((answer, Some(keys)))
            }
        }
    }
}

fn accept(cipher: Cipher) -> Accept {
    Accept {
        index: SessionIndex::new(0x65_4321),
        cipher,
        inner_v4: Some("10.9.0.7/24".parse().unwrap()),
        inner_v6: Some("fd00:9::7/64".parse().unwrap()),
        proxy_v4: Some("10.9.0.1".parse().unwrap()),
        proxy_v6: Some("fd00:9::1".parse().unwrap()),
        parameters: Parameters {
            rekey_interval: Some(Duration::from_secs(60)),
            ..Parameters::default()
        },
    }
}

fn established(answer: Answer) -> Established {
    let Answer::Established(session) = answer else { panic!("{answer:?}") };
    *session
}

/// Sends one datagram each way and says whether both opened.
fn can_talk(client: &EpochKeys, proxy: &EpochKeys) -> bool {
    let mut a = KeyRing::new(HandshakeRole::Initiator, client);
    let mut b = KeyRing::new(HandshakeRole::Responder, proxy);
    let clear = [0x10, 1, 0, 0, 0, 0, 0, 0];
    let one_way = |from: &mut KeyRing, to: &mut KeyRing| {
        let mut buffer = [b"inner".as_slice(), &[0; TAG_LEN]].concat();
        from.seal(LinkId(1), 0, &clear, &mut buffer).is_ok()
            && to
                .open(NOW, LinkId(1), 0, 0, &clear, &mut buffer)
                .is_ok_and(|opened| opened.plaintext == b"inner")
    };
    one_way(&mut a, &mut b) && one_way(&mut b, &mut a)
}

#[test]
fn a_question_and_an_answer_give_both_ends_the_same_keys() {
    let (with, without) = (Capabilities { aes: true }, Capabilities { aes: false });
    for (client, cipher) in [(with, Cipher::Aes256Gcm), (without, Cipher::ChaCha20Poly1305)] {
        let mut ends = Ends::new();
        ends.config.ciphers = CipherSet::offered(client);
        let mut initiator = ends.ask(2_000);
        let message = initiator.message().to_vec();
        let pending = ends.read(&message).unwrap();
        assert_eq!(pending.client, ends.config.local.public());
        assert_eq!((pending.index, pending.hello.timestamp), (INDEX, wall(2_000)));
        assert_eq!(pending.hello.parameters, ends.config.parameters);
        let (answer, proxy) = ends.serve(&message).unwrap();
        let session = established(initiator.handle_answer(&answer).unwrap());
        assert_eq!(session.accept, accept(cipher));
        let (client, proxy) = (session.keys, proxy.unwrap());
        assert_eq!((client.cipher, client.epoch), (cipher, 0));
        assert_eq!(client.binding, proxy.binding);
        assert!(client.send == proxy.receive && client.receive == proxy.send);
        assert!(client.send != client.receive);
        assert!(can_talk(&client, &proxy));
    }
}

#[test]
fn a_run_repeats_byte_for_byte_from_its_seed_and_differs_from_another() {
    let run = |seed| {
        let mut ends = Ends::new();
        ends.rng = StdRng::seed_from_u64(seed);
        let first = ends.ask(2_000).message().to_vec();
        let answer = ends.serve(&first).unwrap().0;
        (first, answer)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn no_answer_is_longer_than_its_question_and_no_two_kinds_of_response_differ_in_length() {
    let mut ends = Ends::new();
    let first = ends.ask(2_000).message().to_vec();
    assert_eq!(first.len(), FIRST_LEN);
    let (response, _) = ends.serve(&first).unwrap();
    let (retry, _) = ends.serve(&first).unwrap();
    let refusal = ends.read(&first).unwrap().refuse(&ends.psk, Refusal::Full);
    assert_eq!(response.len(), RESPONSE_LEN);
    assert_eq!(refusal.len(), RESPONSE_LEN);
    for answer in [&response, &retry, &refusal] {
        assert!(answer.len() < first.len(), "{} bytes", answer.len());
        assert_eq!(answer[2..5], first[2..5], "the steering index");
    }
}

#[test]
fn nothing_that_identifies_the_client_stands_in_the_clear() {
    let mut ends = Ends::new();
    let first = ends.ask(2_000).message().to_vec();
    let (answer, _) = ends.serve(&first).unwrap();
    let public = ends.config.local.public();
    for datagram in [&first, &answer] {
        for secret in [&public.as_bytes()[..8], &[10, 9, 0, 7], &2_000_u64.to_be_bytes()] {
            assert!(datagram.windows(secret.len()).all(|window| window != secret));
        }
    }
}

#[test]
fn each_flipped_bit_of_each_message_is_refused_and_the_true_message_still_counts() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    for bit in 0..first.len() * 8 {
        let error = ends.serve(&flip(&first, bit)).map(|_| ()).unwrap_err();
        let expected = if bit < 8 {
            // Another type: of no handshake, or an answer.
            [FirstError::Malformed, FirstError::Unexpected].contains(&error)
        } else {
            error == FirstError::WrongMac
        };
        assert!(expected, "bit {bit}: {error:?}");
    }
    assert_eq!(ends.record, FreshnessRecord::since(STARTED));

    // Retry first, because it is what a stale first message gets.
    let stale = ends.ask(1).message().to_vec();
    let (retry, _) = ends.serve(&stale).unwrap();
    let (response, proxy) = ends.serve(&first).unwrap();
    let versions = answer_to_other_version(&ends, &first);
    for answer in [&retry, &response, &versions] {
        for bit in 0..answer.len() * 8 {
            let result = initiator.handle_answer(&flip(answer, bit));
            let error = result.map(|_| ()).unwrap_err();
            let reason = DropReason::from(error);
            assert!(
                [
                    DropReason::HandshakeMalformed,
                    DropReason::HandshakeUnexpected,
                    DropReason::AnswerWrongMac,
                ]
                .contains(&reason),
                "bit {bit}: {reason:?}"
            );
        }
    }
    let session = established(initiator.handle_answer(&response).unwrap());
    assert!(can_talk(&session.keys, &proxy.unwrap()));
}

/// An attacker who knows the proxy's public key can fix the mac: then Noise refuses.
#[test]
fn each_flipped_bit_under_a_mended_mac_is_not_authentic_and_the_true_message_still_counts() {
    let mut ends = Ends::new();
    let mac = HelloMac::new(&ends.config.remote);
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    // One bit of a byte is enough: each costs the Diffie-Hellman operations.
    for byte in (2..8).chain(24..first.len()) {
        let mut forged = flip(&first, byte * 8 + byte % 8);
        let fixed = mac.first(&Hello::parse(&forged).unwrap());
        set_mac(&mut forged, &fixed);
        let error = ends.read(&forged).map(|_| ()).unwrap_err();
        assert_eq!(error, FirstError::NotAuthentic, "byte {byte}");
    }
    let (response, proxy) = ends.serve(&first).unwrap();
    let question = Hello::parse(&first).unwrap().mac;
    for byte in 24..response.len() {
        let mut forged = flip(&response, byte * 8 + byte % 8);
        let fixed = mac.answer(&question, &Hello::parse(&forged).unwrap());
        set_mac(&mut forged, &fixed);
        let error = initiator.handle_answer(&forged).map(|_| ()).unwrap_err();
        assert_eq!(error, AnswerError::NotAuthentic, "byte {byte}");
    }
    let session = established(initiator.handle_answer(&response).unwrap());
    assert!(can_talk(&session.keys, &proxy.unwrap()));
}

#[test]
fn every_truncation_of_each_message_is_refused() {
    let mut ends = Ends::new();
    let mac = HelloMac::new(&ends.config.remote);
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    for len in 0..first.len() {
        assert!(ends.read(&first[..len]).is_err(), "{len}");
        if len >= 24 {
            let mut cut = first[..len].to_vec();
            let fixed = mac.first(&Hello::parse(&cut).unwrap());
            set_mac(&mut cut, &fixed);
            let error = ends.read(&cut).map(|_| ()).unwrap_err();
            assert_eq!(error, FirstError::Malformed, "{len}");
        }
    }
    let (response, _) = ends.serve(&first).unwrap();
    let question = Hello::parse(&first).unwrap().mac;
    for len in 0..response.len() {
        assert!(initiator.handle_answer(&response[..len]).is_err(), "{len}");
        if len >= 24 {
            let mut cut = response[..len].to_vec();
            let fixed = mac.answer(&question, &Hello::parse(&cut).unwrap());
            set_mac(&mut cut, &fixed);
            let error = initiator.handle_answer(&cut).map(|_| ()).unwrap_err();
            assert_eq!(error, AnswerError::NotAuthentic, "{len}");
        }
    }
    assert!(initiator.handle_answer(&response).is_ok());
}

#[test]
fn garbage_of_every_type_and_length_is_refused_without_a_panic() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let mut garbage = vec![0; 400];
    for len in 0..400 {
        ends.rng.fill_bytes(&mut garbage[..len]);
        for first_byte in [0x80, 0x90, 0xa0, 0xb0, 0x10, 0xff] {
            if let Some(byte) = garbage.first_mut() {
                *byte = first_byte;
            }
            assert!(ends.read(&garbage[..len]).is_err());
            assert!(initiator.handle_answer(&garbage[..len]).is_err());
        }
    }
}

#[test]
fn a_client_with_the_wrong_proxy_key_meets_silence() {
    let mut ends = Ends::new();
    ends.config.remote = StaticSecret::from_bytes([3; 32]).public();
    let first = ends.ask(2_000).message().to_vec();
    assert_eq!(ends.read(&first).map(|_| ()), Err(FirstError::WrongMac));
}

#[test]
fn an_unknown_client_is_named_before_anything_is_answered() {
    let mut ends = Ends::new();
    let stranger = StaticSecret::from_bytes([3; 32]);
    ends.config.local = stranger.clone();
    let first = ends.ask(2_000).message().to_vec();
    assert_eq!(ends.read(&first).unwrap().client, stranger.public());
}

#[test]
fn nobody_can_speak_for_a_client_without_its_secret() {
    // A stranger who knows both public keys builds message 1 naming the client: the seal of the
    // payload needs the Diffie-Hellman of both static keys.
    let mut ends = Ends::new();
    let first = ends.ask(2_000).message().to_vec();
    let mac = HelloMac::new(&ends.config.remote);
    ends.config.local = StaticSecret::from_bytes([3; 32]);
    let stranger = ends.ask(2_000).message().to_vec();
    // Ephemeral and static key of the client's message, payload of the stranger's.
    let mut mixed = [&first[..104], &stranger[104..]].concat();
    let fixed = mac.first(&Hello::parse(&mixed).unwrap());
    set_mac(&mut mixed, &fixed);
    assert_eq!(ends.read(&mixed).map(|_| ()), Err(FirstError::NotAuthentic));
}

#[test]
fn with_different_preshared_keys_the_client_refuses_the_answer() {
    let mut ends = Ends::new();
    ends.psk = PresharedKey::NONE;
    let mut initiator = ends.ask(2_000);
    let (answer, _) = ends.serve(initiator.message()).unwrap();
    let error = initiator.handle_answer(&answer).unwrap_err();
    assert_eq!(error, AnswerError::NotAuthentic);
}

#[test]
fn a_response_to_another_question_is_refused() {
    let mut ends = Ends::new();
    let (mut one, mut two) = (ends.ask(2_000), ends.ask(2_001));
    let (answer, _) = ends.serve(one.message()).unwrap();
    assert_eq!(two.handle_answer(&answer).unwrap_err(), AnswerError::WrongMac);
    assert!(one.handle_answer(&answer).is_ok());
    assert_eq!(one.handle_answer(&answer).unwrap_err(), AnswerError::Unexpected);
}

#[test]
fn reflected_messages_are_refused_by_both_ends() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    assert_eq!(initiator.handle_answer(&first).unwrap_err(), AnswerError::Unexpected);
    let (answer, _) = ends.serve(&first).unwrap();
    assert_eq!(ends.read(&answer).map(|_| ()), Err(FirstError::Unexpected));
}

#[test]
fn an_answer_under_another_index_is_refused_even_with_a_mended_mac() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    let (mut answer, _) = ends.serve(&first).unwrap();
    answer[4] ^= 1;
    let mac = HelloMac::new(&ends.config.remote);
    let question = Hello::parse(&first).unwrap().mac;
    let fixed = mac.answer(&question, &Hello::parse(&answer).unwrap());
    set_mac(&mut answer, &fixed);
    assert_eq!(initiator.handle_answer(&answer).unwrap_err(), AnswerError::WrongMac);
}

#[test]
fn a_question_in_another_version_gets_one_list_of_versions_bound_to_it() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    let answer = answer_to_other_version(&ends, &first);
    assert!(answer.len() <= first.len());
    assert_eq!(answer[2..5], first[2..5]);
    let Answer::Versions(versions) = initiator.handle_answer(&answer).unwrap() else {
        panic!("a list of versions")
    };
    assert_eq!(versions.as_slice(), VERSIONS);
    // It may have been forged, so the attempt still counts.
    let (response, _) = ends.serve(&first).unwrap();
    assert!(initiator.handle_answer(&response).is_ok());
    // Another attempt does not take it.
    assert_eq!(ends.ask(2_001).handle_answer(&answer).unwrap_err(), AnswerError::WrongMac);
}

#[test]
fn a_question_in_another_version_that_is_shorter_than_the_answer_meets_silence() {
    let ends = Ends::new();
    let mac = HelloMac::new(&ends.config.remote);
    for (body, answered) in [(0, false), (VERSIONS.len(), false), (1 + VERSIONS.len(), true)] {
        let mut question = envelope(HelloKind::First, 99, INDEX);
        question.resize(24 + body, 0);
        let right = mac.first(&Hello::parse(&question).unwrap());
        set_mac(&mut question, &right);
        let Ok(Inspected::OtherVersion(asked)) = ends.responder.inspect(&question) else {
            panic!("a right mac1 in another version")
        };
        let answer = ends.responder.versions_answer(&asked);
        assert_eq!(answer.is_some(), answered, "{body} bytes of body");
        assert!(answer.is_none_or(|answer| answer.len() <= question.len()));
    }
    let mut unknown = envelope(HelloKind::First, 99, INDEX);
    unknown.resize(FIRST_LEN, 0);
    assert_eq!(ends.responder.inspect(&unknown).map(|_| ()), Err(FirstError::WrongMac));
}

#[test]
fn a_replay_gets_a_retry_and_never_a_session() {
    let mut ends = Ends::new();
    let first = ends.ask(2_000).message().to_vec();
    assert!(ends.serve(&first).unwrap().1.is_some());
    let after = ends.record;
    for _ in 0..50 {
        let (answer, keys) = ends.serve(&first).unwrap();
        assert_eq!(answer[0], HelloKind::Retry.first_byte());
        assert!(keys.is_none() && answer.len() < first.len());
    }
    assert_eq!(ends.record, after);
}

#[test]
fn a_clock_that_went_back_is_healed_by_one_more_round_trip() {
    let mut ends = Ends::new();
    let first = ends.ask(5_000).message().to_vec();
    assert!(ends.serve(&first).unwrap().1.is_some());

    let mut behind = ends.ask(3_000);
    let (answer, keys) = ends.serve(behind.message()).unwrap();
    assert!(keys.is_none());
    let Answer::Retry(token) = behind.handle_answer(&answer).unwrap() else { panic!("a retry") };
    let mut again = Initiator::new(&ends.config, &mut ends.rng, INDEX, wall(3_001), Some(token));
    let message = again.message().to_vec();
    let (answer, keys) = ends.serve(&message).unwrap();
    let session = established(again.handle_answer(&answer).unwrap());
    assert!(can_talk(&session.keys, &keys.unwrap()));

    // A recording of that exchange is worth nothing.
    assert!(ends.serve(&message).unwrap().1.is_none());
    // Nor is one of a message from before the clock went back.
    assert!(ends.serve(&first).unwrap().1.is_none());
}

#[test]
fn a_forged_token_heals_nothing() {
    let mut ends = Ends::new();
    let token = RetryToken::from_bytes(&[0; 24]);
    let behind = Initiator::new(&ends.config, &mut ends.rng, INDEX, wall(1), Some(token));
    assert!(ends.serve(behind.message()).unwrap().1.is_none());
}

#[test]
fn a_refusal_reaches_the_client_with_its_reason() {
    let mut ends = Ends::new();
    ends.config.ciphers = CipherSet::only(Cipher::ChaCha20Poly1305);
    ends.responder.clone_from(&Responder::new(
        StaticSecret::from_bytes([3; 32]),
        CipherSet::only(Cipher::Aes256Gcm),
    ));
    ends.config.remote = StaticSecret::from_bytes([3; 32]).public();
    let mut initiator = ends.ask(2_000);
    let pending = ends.read(initiator.message()).unwrap();
    assert_eq!(pending.cipher(), None);
    let answer = pending.refuse(&ends.psk, Refusal::NoCommonCipher);
    let Answer::Refused(reason) = initiator.handle_answer(&answer).unwrap() else {
        panic!("a refusal")
    };
    assert_eq!(reason, Refusal::NoCommonCipher);
}

#[test]
fn a_proxy_that_chooses_a_cipher_that_was_not_offered_gets_no_session() {
    let mut ends = Ends::new();
    ends.config.ciphers = CipherSet::only(Cipher::ChaCha20Poly1305);
    let mut initiator = ends.ask(2_000);
    let pending = ends.read(initiator.message()).unwrap();
    let (answer, _) = pending.accept(&ends.psk, &accept(Cipher::Aes256Gcm));
    assert_eq!(initiator.handle_answer(&answer).unwrap_err(), AnswerError::BadContent);
}

#[test]
fn the_copies_of_a_first_message_over_other_links_get_the_same_answer() {
    let mut ends = Ends::new();
    let mut recent = RecentFirstMessages::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    let mut answers = Vec::new();
    let mut sessions = 0;
    for _ in 0..3 {
        let Ok(Inspected::First(message)) = ends.responder.inspect(&first) else { panic!() };
        if let Some(Outcome::Answered(answer)) = recent.outcome(NOW, &message.digest()) {
            answers.push(answer.clone());
            continue;
        }
        let (answer, keys) = ends.serve(&first).unwrap();
        sessions += usize::from(keys.is_some());
        recent.insert(NOW, message.digest(), Outcome::Answered(answer.clone()));
        answers.push(answer);
    }
    assert_eq!((sessions, answers.len()), (1, 3));
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    assert!(initiator.handle_answer(&answers[2]).is_ok());
}

#[test]
fn sessions_share_no_keys() {
    let mut ends = Ends::new();
    let mut seen = Vec::new();
    for second in 0..20 {
        let first = ends.ask(2_000 + second).message().to_vec();
        let keys = ends.serve(&first).unwrap().1.unwrap();
        assert!(!seen.contains(&keys.send) && !seen.contains(&keys.receive));
        seen.extend([keys.send, keys.receive]);
    }
}

/// The list of versions that a first message gets when it names a version unknown to the proxy, as if
/// the question had been `first` itself.
fn answer_to_other_version(ends: &Ends, first: &[u8]) -> Vec<u8> {
    // A proxy of another version sees our message as it is; ours sees one that names version 99. The
    // envelope is all that counts for the answer, so ask with 99 and bind to the true question.
    let mac = HelloMac::new(&ends.config.remote);
    let mut other = first.to_vec();
    other[1] = 99;
    let right = mac.first(&Hello::parse(&other).unwrap());
    set_mac(&mut other, &right);
    let Ok(Inspected::OtherVersion(asked)) = ends.responder.inspect(&other) else {
        panic!("a right mac1 in another version")
    };
    assert_eq!(asked.version(), 99);
    let mut answer = ends.responder.versions_answer(&asked).unwrap();
    let question = Hello::parse(first).unwrap().mac;
    let rebound = mac.answer(&question, &Hello::parse(&answer).unwrap());
    set_mac(&mut answer, &rebound);
    answer
}

fn flip(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut flipped = bytes.to_vec();
    flipped[bit / 8] ^= 1 << (bit % 8);
    flipped
}

#[test]
fn another_proxy_cannot_answer_for_ours() {
    let mut ends = Ends::new();
    let mut initiator = ends.ask(2_000);
    let first = initiator.message().to_vec();
    // It knows both public keys and the preshared key, not our proxy's secret: it makes a response
    // from its own run and fixes the mac.
    let mut other = Ends::new();
    let secret = StaticSecret::from_bytes([3; 32]);
    other.config.remote = secret.public();
    other.config.local = ends.config.local.clone();
    other.responder = Responder::new(secret, other.config.ciphers);
    let theirs = other.ask(2_000).message().to_vec();
    let (mut answer, _) = other.serve(&theirs).unwrap();
    let mac = HelloMac::new(&ends.config.remote);
    let question = Hello::parse(&first).unwrap().mac;
    let fixed = mac.answer(&question, &Hello::parse(&answer).unwrap());
    set_mac(&mut answer, &fixed);
    assert_eq!(initiator.handle_answer(&answer).unwrap_err(), AnswerError::NotAuthentic);
}
