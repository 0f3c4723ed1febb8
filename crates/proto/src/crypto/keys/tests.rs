use super::*;
use crate::crypto::aead::TAG_LEN;

const LINK: LinkId = LinkId(1);

/// Keys of `epoch`, as the initiator and as the responder sees them.
fn epoch(epoch: u32) -> (EpochKeys, EpochKeys) {
    let tag = |direction: u8| {
        let mut key = [direction; 32];
        key[..4].copy_from_slice(&epoch.to_be_bytes());
        DataKey::from_bytes(key)
    };
    let keys = |send, receive| EpochKeys {
        epoch,
        cipher: Cipher::ChaCha20Poly1305,
        send: tag(send),
        receive: tag(receive),
        binding: [0; 32],
    };
    (keys(1, 2), keys(2, 1))
}

fn pair() -> (KeyRing, KeyRing) {
    let (initiator, responder) = epoch(0);
    (
        KeyRing::new(HandshakeRole::Initiator, &initiator),
        KeyRing::new(HandshakeRole::Responder, &responder),
    )
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

/// A datagram of `ring` as (phase, link, number, sealed bytes).
#[derive(Clone, Debug)]
struct Sent(u8, LinkId, u64, Vec<u8>);

fn send(ring: &mut KeyRing, link: LinkId, number: u64) -> Sent {
    let phase = ring.send_phase().unwrap();
    let mut buffer = [b"inner", [0; TAG_LEN].as_slice()].concat();
    ring.seal(link, number, &clear(phase, link), &mut buffer).unwrap();
    Sent(phase, link, number, buffer)
}

fn clear(phase: u8, link: LinkId) -> [u8; CLEAR_LEN] {
    [0x10 | phase, link.0, 0, 0, 0, 0, 0, 0]
}

/// The epoch a datagram opened under.
fn receive(ring: &mut KeyRing, now: Instant, sent: &Sent) -> Result<u32, OpenError> {
    let Sent(phase, link, number, mut sealed) = sent.clone();
    let opened = ring.open(now, link, number, phase, &clear(phase, link), &mut sealed)?;
    assert_eq!(opened.plaintext, b"inner");
    Ok(opened.epoch)
}

#[test]
fn a_responder_sends_nothing_before_it_has_heard_the_initiator() {
    let (mut a, mut b) = pair();
    assert_eq!(b.send_phase(), None);
    assert_eq!(b.seal(LINK, 0, &[0; 8], &mut [0; 20]), Err(SealError::Unconfirmed));
    let first = send(&mut a, LINK, 0);
    assert_eq!(receive(&mut b, at(0), &first), Ok(0));
    let answer = send(&mut b, LINK, 0);
    assert_eq!(receive(&mut a, at(0), &answer), Ok(0));
}

#[test]
fn a_reflected_datagram_is_not_authentic() {
    let (mut a, _) = pair();
    let own = send(&mut a, LINK, 0);
    assert_eq!(receive(&mut a, at(0), &own), Err(OpenError::NotAuthentic));
    assert_eq!(a.confirmed, None);
}

#[test]
fn a_replay_is_refused_before_and_a_forgery_after_the_decryption_and_neither_moves_the_window() {
    let (mut a, mut b) = pair();
    let (low, high) = (send(&mut a, LINK, 5), send(&mut a, LINK, 90_000));
    let mut forged = high.clone();
    forged.3[0] ^= 1;
    assert_eq!(receive(&mut b, at(0), &forged), Err(OpenError::NotAuthentic));
    assert_eq!(b.confirmed, None);
    assert_eq!(receive(&mut b, at(0), &low), Ok(0));
    assert_eq!(receive(&mut b, at(0), &forged), Err(OpenError::NotAuthentic));
    assert_eq!(receive(&mut b, at(0), &low), Err(OpenError::Replayed));
    assert_eq!(receive(&mut b, at(0), &high), Ok(0));
    let old = send(&mut a, LINK, 6);
    assert_eq!(receive(&mut b, at(0), &old), Err(OpenError::OlderThanWindow));
    let other_link = send(&mut a, LinkId(2), 6);
    assert_eq!(receive(&mut b, at(0), &other_link), Ok(0));
}

#[test]
fn the_responder_follows_to_a_new_key_only_after_an_authentic_datagram_under_it() {
    let (mut a, mut b) = pair();
    receive(&mut b, at(0), &send(&mut a, LINK, 0)).unwrap();
    let (initiator, responder) = epoch(1);
    b.install(at(1), &responder, [LINK]).unwrap();
    assert_eq!(b.send_epoch(), Some(0));
    a.install(at(1), &initiator, [LINK]).unwrap();
    assert_eq!(a.send_epoch(), Some(1));
    // One under the new key that was altered, and a late one under the old key, move nothing.
    let new = send(&mut a, LINK, 1);
    let mut forged = new.clone();
    forged.3[2] ^= 0x80;
    assert_eq!(receive(&mut b, at(1), &forged), Err(OpenError::NotAuthentic));
    assert_eq!((b.send_epoch(), b.poll_timeout()), (Some(0), None));
    assert_eq!(receive(&mut b, at(1), &new), Ok(1));
    assert_eq!(b.send_epoch(), Some(1));
    assert_eq!(b.poll_timeout(), Some(at(11)));
}

#[test]
fn an_old_key_opens_until_its_last_moment_and_not_after() {
    for (spread, life) in [(0, 10), (3, 10), (7, 21)] {
        let (mut a, mut b) = pair();
        b.set_delay_spread(Duration::from_secs(spread));
        let old: Vec<_> = (0..3).map(|number| send(&mut a, LINK, number)).collect();
        receive(&mut b, at(0), &old[0]).unwrap();
        let (initiator, responder) = epoch(1);
        b.install(at(1), &responder, [LINK]).unwrap();
        a.install(at(1), &initiator, [LINK]).unwrap();
        // As long as nothing was heard under the new key, the old one lives.
        assert_eq!(receive(&mut b, at(500), &old[1]), Ok(0));
        receive(&mut b, at(500), &send(&mut a, LINK, 3)).unwrap();
        let end = at(500 + life);
        assert_eq!(b.poll_timeout(), Some(end));
        let just_before = end - Duration::from_nanos(1);
        assert_eq!(receive(&mut b, just_before, &old[2]), Ok(0));
        assert_eq!(receive(&mut b, end, &old[2]), Err(OpenError::KeyPhaseUnknown));
        b.handle_timeout(end);
        assert_eq!((b.live_keys(), b.poll_timeout()), (1, None));
    }
}

#[test]
fn forty_rekeys_a_second_apart_wrap_the_phases_twice_and_lose_and_confuse_nothing() {
    let (mut a, mut b) = pair();
    let mut number = 0;
    let mut held: Vec<(u64, u32, Sent)> = Vec::new();
    let mut most = 0;
    for second in 0..40_u64 {
        let newest = u32::try_from(second).unwrap();
        if second > 0 {
            assert!(a.can_install(at(second)) && b.can_install(at(second)), "at {second}");
            let (initiator, responder) = epoch(newest);
            b.install(at(second), &responder, [LINK]).unwrap();
            a.install(at(second), &initiator, [LINK]).unwrap();
        }
        for _ in 0..3 {
            let sent = send(&mut a, LINK, number);
            number += 1;
            held.push((second, newest, sent));
        }
        let prompt = &held[held.len() - 3].2;
        assert_eq!(receive(&mut b, at(second), prompt), Ok(newest));
        assert_eq!(receive(&mut b, at(second), prompt), Err(OpenError::Replayed));
        assert_eq!(b.send_epoch(), Some(newest));
        let back = send(&mut b, LINK, second);
        assert_eq!(receive(&mut a, at(second), &back), Ok(newest));
        // A straggler of nine seconds ago still opens; one of a dead epoch never does, although its
        // phase may live again.
        if second >= 9 {
            let (_, epoch, straggler) = &held[usize::try_from(second - 9).unwrap() * 3 + 1];
            assert_eq!(receive(&mut b, at(second), straggler), Ok(*epoch));
        }
        for (sent_at, _, dead) in held.iter().skip(2).step_by(3) {
            if second >= sent_at + 11 {
                let error = receive(&mut b, at(second), dead).unwrap_err();
                // The phase is reborn every 16 s and then lives for 11 s.
                let reborn = (second - sent_at) % 16 < 11;
                let expected =
                    if reborn { OpenError::NotAuthentic } else { OpenError::KeyPhaseUnknown };
                assert_eq!(error, expected, "sent at {sent_at}, played at {second}");
            }
        }
        b.handle_timeout(at(second));
        most = most.max(b.live_keys());
    }
    assert!((11..=12).contains(&most), "{most} keys lived at once");
}

#[test]
fn an_epoch_whose_phase_still_lives_is_not_installed_and_nothing_changes() {
    let (mut a, mut b) = pair();
    receive(&mut b, at(0), &send(&mut a, LINK, 0)).unwrap();
    // No datagram under the new epochs ever comes, so no old key dies.
    for next in 1..16 {
        b.install(at(1), &epoch(next).1, [LINK]).unwrap();
    }
    assert!(!b.can_install(at(1)));
    assert_eq!(b.install(at(1), &epoch(16).1, [LINK]), Err(InstallError::PhaseLive));
    assert_eq!((b.newest_epoch(), b.live_keys()), (15, 16));
    assert_eq!(receive(&mut b, at(1), &send(&mut a, LINK, 1)), Ok(0));
}

#[test]
fn only_the_next_epoch_is_installed() {
    let (mut a, _) = pair();
    for wrong in [0, 2, 17] {
        let error = a.install(at(0), &epoch(wrong).0, []).unwrap_err();
        assert_eq!(error, InstallError::NotNext, "{wrong}");
    }
}

#[test]
fn a_link_id_is_given_once_per_key_and_free_again_when_the_keys_that_knew_it_are_dead() {
    let (mut a, mut b) = pair();
    receive(&mut b, at(0), &send(&mut a, LINK, 0)).unwrap();
    for id in 0..=255 {
        assert_eq!(b.free_link(at(0)), Some(LinkId(id)));
        b.claim_link(at(0), LinkId(id)).unwrap();
        assert_eq!(b.claim_link(at(0), LinkId(id)), Err(LinkIdUsed(LinkId(id))));
    }
    assert_eq!(b.free_link(at(0)), None);
    // After a rekey the links that go on keep their ids; the others are free once the old key dies.
    b.install(at(1), &epoch(1).1, [LinkId(0), LinkId(2)]).unwrap();
    a.install(at(1), &epoch(1).0, [LinkId(0), LinkId(2)]).unwrap();
    assert_eq!(b.free_link(at(1)), None);
    receive(&mut b, at(2), &send(&mut a, LinkId(0), 1)).unwrap();
    assert_eq!(b.free_link(at(11)), None);
    assert_eq!(b.free_link(at(12)), Some(LinkId(1)));
    assert_eq!(b.claim_link(at(12), LinkId(2)), Err(LinkIdUsed(LinkId(2))));
}

#[test]
fn random_phases_and_lengths_never_panic() {
    let (_, mut b) = pair();
    for phase in 0..=255_u8 {
        for len in 0..40 {
            let mut garbage = vec![phase; len];
            let error = b.open(at(0), LINK, 0, phase, &[phase; 8], &mut garbage).unwrap_err();
            let expected = match (phase, len) {
                (1.., _) => OpenError::KeyPhaseUnknown,
                (0, ..16) => OpenError::TooShort,
                _ => OpenError::NotAuthentic,
            };
            assert_eq!(error, expected);
        }
    }
}
