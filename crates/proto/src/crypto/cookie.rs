//! Cookies: proof that a client receives at the address that its first message came from (PROTOCOL §6.3).
//!
//! A proxy that has too many first messages answers one with a cookie in place of decrypting it: a mac, under a secret of its
//! own, over the address and port that the message came from. The client repeats its message with a second mac, whose key is
//! the cookie. So a sender who invents addresses gets nothing decrypted, and one with true addresses is limited for each of
//! them. The proxy keeps nothing for it. This is the method of WireGuard (its paper, section 5.3), with one difference: the
//! cookie is covered by a pad of BLAKE2s, keyed by what both ends know and made from the question's mac. No cookie is longer
//! than that, so that no cipher is needed, and the mac of the answer shows what was altered.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rand::{CryptoRng, RngCore};
use subtle::ConstantTimeEq;

use super::mac::keyed16;
use super::rotating::RotatingSecret;
use crate::time::Instant;
use crate::wire::hello::MAC_LEN;

/// A cookie counts at least this long, and its secret is replaced as often: as in WireGuard, long enough for a client that
/// asks now and then, short enough that one who got an address's cookies once cannot use them for long.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(120);

/// Proof of one address and port, before one proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cookie([u8; MAC_LEN]);

impl Cookie {
    /// From the wire; any bytes are a cookie, few are a right one.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; MAC_LEN]) -> Self {
        Self(bytes)
    }

    /// The wire's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; MAC_LEN] {
        self.0
    }

    /// What a first message with this mac ends with. That mac covers all the rest of the message, so that it stands for it.
    #[must_use]
    pub fn prove(&self, mac: &[u8; MAC_LEN]) -> [u8; MAC_LEN] {
        let mut key = [0; 32];
        key[..MAC_LEN].copy_from_slice(&self.0);
        keyed16(&key, &[mac])
    }
}

/// Gives cookies and knows them again.
pub(crate) struct Cookies {
    secret: RotatingSecret,
}

impl Cookies {
    /// With fresh secrets.
    pub(crate) fn new<R: RngCore + CryptoRng>(now: Instant, rng: &mut R) -> Self {
        Self { secret: RotatingSecret::new(now, rng, COOKIE_LIFETIME) }
    }

    /// The cookie of an address and port.
    pub(crate) fn give<R: RngCore + CryptoRng>(
        &mut self,
        now: Instant,
        rng: &mut R,
        to: SocketAddr,
    ) -> Cookie {
        self.secret.rotate(now, rng);
        cookie(self.secret.current(), to)
    }

    /// Whether this proof, of a first message with this mac, was made with a cookie that was given to this address and port
    /// and still counts.
    pub(crate) fn is_proof<R: RngCore + CryptoRng>(
        &mut self,
        now: Instant,
        rng: &mut R,
        from: SocketAddr,
        mac: &[u8; MAC_LEN],
        proof: &[u8; MAC_LEN],
    ) -> bool {
        self.secret.rotate(now, rng);
        let mut secrets = self.secret.both().into_iter();
        secrets.any(|secret| cookie(secret, from).prove(mac).ct_eq(proof).into())
    }
}

fn cookie(secret: &[u8; 32], of: SocketAddr) -> Cookie {
    let address = match of.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Cookie(keyed16(secret, &[&address.octets(), &of.port().to_be_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const MAC: [u8; MAC_LEN] = [7; MAC_LEN];

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1_000)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_cookie_proves_one_address_and_port_and_one_message() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut cookies = Cookies::new(at(0), &mut rng);
        let mine = address("192.0.2.1:5000");
        let proof = cookies.give(at(0), &mut rng, mine).prove(&MAC);
        let mut other_message = MAC;
        other_message[3] ^= 1;
        let mut altered = proof;
        altered[15] ^= 1;
        for (from, mac, proof, expected) in [
            ("192.0.2.1:5000", MAC, proof, true),
            ("192.0.2.1:5001", MAC, proof, false),
            ("192.0.2.2:5000", MAC, proof, false),
            ("[2001:db8::1]:5000", MAC, proof, false),
            ("192.0.2.1:5000", other_message, proof, false),
            ("192.0.2.1:5000", MAC, altered, false),
        ] {
            let is_proof = cookies.is_proof(at(1), &mut rng, address(from), &mac, &proof);
            assert_eq!(is_proof, expected, "{from} {mac:?}");
        }
        let other_proxy = &mut Cookies::new(at(0), &mut rng);
        assert!(!other_proxy.is_proof(at(1), &mut rng, mine, &MAC, &proof));
    }

    #[test]
    fn a_cookie_counts_over_one_change_of_the_secret_and_not_over_two() {
        let mut rng = StdRng::seed_from_u64(2);
        let from = address("[2001:db8::1]:5000");
        for (given, asked, counts) in
            [(0, 119, true), (0, 239, true), (0, 240, false), (119, 239, true), (0, 3600, false)]
        {
            let mut cookies = Cookies::new(at(0), &mut rng);
            let proof = cookies.give(at(given), &mut rng, from).prove(&MAC);
            let is_proof = cookies.is_proof(at(asked), &mut rng, from, &MAC, &proof);
            assert_eq!(is_proof, counts, "given at {given} s, shown at {asked} s");
        }
        let mut cookies = Cookies::new(at(0), &mut rng);
        let proof = cookies.give(at(0), &mut rng, from).prove(&MAC);
        assert!(cookies.is_proof(at(120), &mut rng, from, &MAC, &proof), "the first change");
        assert!(!cookies.is_proof(at(240), &mut rng, from, &MAC, &proof), "the second");
    }
}
