use super::*;
use crate::crypto::aead::{CLEAR_LEN, OpenError, TAG_LEN};
use crate::crypto::keys::KeyRing;
use crate::crypto::secret::DataKey;
use crate::time::Instant;
use crate::units::LinkId;
use rand::SeedableRng;
use rand::rngs::StdRng;

const LINK: LinkId = LinkId(4);

struct End {
    local: StaticSecret,
    remote: PublicKey,
    psk: PresharedKey,
}

impl End {
    fn identity(&self) -> Identity<'_> {
        Identity { local: &self.local, remote: &self.remote, psk: &self.psk }
    }
}

/// A client, a proxy, and their keys after a handshake.
fn ends() -> (End, End, EpochKeys, EpochKeys) {
    let (client, proxy) = (StaticSecret::from_bytes([1; 32]), StaticSecret::from_bytes([2; 32]));
    let psk = PresharedKey::from_bytes([3; 32]);
    let (up, down) = (DataKey::from_bytes([4; 32]), DataKey::from_bytes([5; 32]));
    let keys = |send: &DataKey, receive: &DataKey| EpochKeys {
        epoch: 0,
        cipher: Cipher::Aes256Gcm,
        send: send.clone(),
        receive: receive.clone(),
        binding: [6; 32],
    };
    let end = |local: &StaticSecret, remote: &StaticSecret| End {
        local: local.clone(),
        remote: remote.public(),
        psk: psk.clone(),
    };
    (end(&client, &proxy), end(&proxy, &client), keys(&up, &down), keys(&down, &up))
}

fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1_000)
}

fn seal(ring: &mut KeyRing, number: u64) -> (u8, Vec<u8>) {
    let phase = ring.send_phase().unwrap();
    let mut buffer = [b"inner".as_slice(), &[0; TAG_LEN]].concat();
    ring.seal(LINK, number, &[phase; CLEAR_LEN], &mut buffer).unwrap();
    (phase, buffer)
}

fn open(
    ring: &mut KeyRing,
    now: Instant,
    number: u64,
    (phase, sealed): &(u8, Vec<u8>),
) -> Result<u32, OpenError> {
    let mut buffer = sealed.clone();
    let opened = ring.open(now, LINK, number, *phase, &[*phase; CLEAR_LEN], &mut buffer)?;
    assert_eq!(opened.plaintext, b"inner");
    Ok(opened.epoch)
}

#[test]
fn forty_rekeys_with_lost_doubled_and_late_messages_keep_both_ends_talking() {
    let mut rng = StdRng::seed_from_u64(3);
    let (client, proxy, client_keys, proxy_keys) = ends();
    let mut a = KeyRing::new(HandshakeRole::Initiator, &client_keys);
    let mut b = KeyRing::new(HandshakeRole::Responder, &proxy_keys);
    let mut context = RekeyContext::from(&client_keys);
    let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
    let mut late: Vec<Vec<u8>> = Vec::new();
    let (mut up, mut down) = (0, 0);
    let mut before = Vec::new();
    for epoch in 1..=40_u32 {
        let now = at(u64::from(epoch));
        let in_flight = seal(&mut a, up);
        before.push((up, in_flight));
        up += 1;

        let mut rekey = RekeyInitiator::start(&client.identity(), &context, &mut rng);
        assert_eq!(rekey.message().len(), REKEY_1_LEN);
        // The first copy's answer is lost; the second copy gets the very same.
        assert!(responder.is_next(rekey.message()) && b.can_install(now));
        let (lost, keys) = responder.respond(&proxy.identity(), rekey.message(), &mut rng).unwrap();
        let lost = lost.to_vec();
        b.install(now, &keys.unwrap(), [LINK]).unwrap();
        assert!(!responder.is_next(rekey.message()));
        let (message_2, none) =
            responder.respond(&proxy.identity(), rekey.message(), &mut rng).unwrap();
        assert_eq!((message_2, none.is_none()), (lost.as_slice(), true));
        assert_eq!(message_2.len(), REKEY_2_LEN);

        let keys = rekey.finish(&lost).unwrap();
        assert_eq!(rekey.finish(&lost).unwrap_err(), RekeyError::OutOfOrder);
        assert_eq!(keys.epoch, epoch);
        a.install(now, &keys, [LINK]).unwrap();
        context = RekeyContext::from(&keys);

        // Everything late is refused and changes nothing.
        for old in &late {
            let error = responder.respond(&proxy.identity(), old, &mut rng).unwrap_err();
            assert_eq!(error, RekeyError::OutOfOrder);
        }
        late.push(rekey.message().to_vec());

        // What was under way opens; then the new key, and the answer under it.
        let (number, datagram) = before.last().unwrap();
        assert_eq!(open(&mut b, now, *number, datagram), Ok(epoch - 1));
        let fresh = seal(&mut a, up);
        assert_eq!(open(&mut b, now, up, &fresh), Ok(epoch));
        up += 1;
        assert_eq!(b.send_epoch(), Some(epoch));
        let answer = seal(&mut b, down);
        assert_eq!(open(&mut a, now, down, &answer), Ok(epoch));
        down += 1;
    }
    for (number, datagram) in &before[..25] {
        assert!(open(&mut b, at(40), *number, datagram).is_err());
    }
}

#[test]
fn each_flipped_bit_and_each_truncation_changes_nothing_and_the_true_message_still_counts() {
    let mut rng = StdRng::seed_from_u64(4);
    let (client, proxy, client_keys, proxy_keys) = ends();
    let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
    let context = RekeyContext::from(&client_keys);
    let mut rekey = RekeyInitiator::start(&client.identity(), &context, &mut rng);
    let message_1 = rekey.message().to_vec();
    for bit in 0..message_1.len() * 8 {
        // All bits of the clear epoch, one of each sealed byte: each costs Diffie-Hellman operations.
        if bit >= 32 && bit % 8 != bit / 8 % 8 {
            continue;
        }
        let mut forged = message_1.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let error = responder.respond(&proxy.identity(), &forged, &mut rng).unwrap_err();
        let expected = if bit < 32 { RekeyError::OutOfOrder } else { RekeyError::NotAuthentic };
        assert_eq!(error, expected, "bit {bit}");
    }
    for len in 0..message_1.len() {
        let error = responder.respond(&proxy.identity(), &message_1[..len], &mut rng).unwrap_err();
        assert_eq!(error, RekeyError::Malformed);
    }
    let (message_2, keys) = responder.respond(&proxy.identity(), &message_1, &mut rng).unwrap();
    let (message_2, proxy_new) = (message_2.to_vec(), keys.unwrap());
    for bit in 0..message_2.len() * 8 {
        let mut forged = message_2.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let error = rekey.finish(&forged).unwrap_err();
        let expected = if bit < 32 { RekeyError::OutOfOrder } else { RekeyError::NotAuthentic };
        assert_eq!(error, expected, "bit {bit}");
    }
    for len in 0..message_2.len() {
        assert_eq!(rekey.finish(&message_2[..len]).unwrap_err(), RekeyError::Malformed);
    }
    let client_new = rekey.finish(&message_2).unwrap();
    assert!(client_new.send == proxy_new.receive && client_new.receive == proxy_new.send);
    assert!(client_new.send != client_keys.send && client_new.receive != client_keys.receive);
}

#[test]
fn a_rekey_by_another_key_for_another_session_or_with_another_secret_is_refused() {
    let mut rng = StdRng::seed_from_u64(5);
    let (client, proxy, client_keys, proxy_keys) = ends();
    let own = RekeyContext::from(&client_keys);
    let stranger = End { local: StaticSecret::from_bytes([9; 32]), ..ends().0 };
    let other_session = RekeyContext { binding: [7; 32], ..own };
    for (name, who, context) in
        [("another key", &stranger, own), ("another session", &client, other_session)]
    {
        let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
        let rekey = RekeyInitiator::start(&who.identity(), &context, &mut rng);
        let error = responder.respond(&proxy.identity(), rekey.message(), &mut rng).unwrap_err();
        assert_eq!(error, RekeyError::NotAuthentic, "{name}");
    }
    let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
    let without = End { psk: PresharedKey::NONE, ..ends().1 };
    let mut rekey = RekeyInitiator::start(&client.identity(), &own, &mut rng);
    let (answer, _) = responder.respond(&without.identity(), rekey.message(), &mut rng).unwrap();
    assert_eq!(rekey.finish(answer).unwrap_err(), RekeyError::NotAuthentic);
}

#[test]
fn a_second_different_message_for_the_epoch_just_begun_is_refused() {
    let mut rng = StdRng::seed_from_u64(6);
    let (client, proxy, client_keys, proxy_keys) = ends();
    let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
    let context = RekeyContext::from(&client_keys);
    let one = RekeyInitiator::start(&client.identity(), &context, &mut rng);
    let two = RekeyInitiator::start(&client.identity(), &context, &mut rng);
    responder.respond(&proxy.identity(), one.message(), &mut rng).unwrap();
    let error = responder.respond(&proxy.identity(), two.message(), &mut rng).unwrap_err();
    assert_eq!(error, RekeyError::OutOfOrder);
}

#[test]
fn a_reflected_message_is_refused() {
    let mut rng = StdRng::seed_from_u64(7);
    let (client, proxy, client_keys, proxy_keys) = ends();
    let context = RekeyContext::from(&client_keys);
    let mut rekey = RekeyInitiator::start(&client.identity(), &context, &mut rng);
    let own = rekey.message().to_vec();
    assert_eq!(rekey.finish(&own).unwrap_err(), RekeyError::Malformed);
    let mut responder = RekeyResponder::new(RekeyContext::from(&proxy_keys));
    let (message_2, _) = responder.respond(&proxy.identity(), &own, &mut rng).unwrap();
    let message_2 = message_2.to_vec();
    let error = responder.respond(&proxy.identity(), &message_2, &mut rng).unwrap_err();
    assert_eq!(error, RekeyError::Malformed);
}
