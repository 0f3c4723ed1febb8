//! How much each address may ask for, once it has shown that it is one: a token bucket for each, in fixed memory.
//!
//! An address has its place in one of the sets of a table, by a hash that nobody else can compute. One that is not there
//! takes the place, *and the bucket*, of the fullest in its set. A full bucket is that of an address that did not ask lately,
//! so that its place is free; and nobody gets more by coming under many addresses than those before him left.

use std::net::{IpAddr, SocketAddr};

use rand::{CryptoRng, RngCore};

use crate::crypto::limit::TokenBucket;
use crate::crypto::mac::keyed16;
use crate::time::Instant;

/// First messages of an address a second, and at once: enough for the clients behind one NAT to return together within
/// seconds, a fiftieth of what the proxy decrypts in all.
const ALLOWANCE: (u32, u32) = (20, 40);

const SETS: usize = 512;
const WAYS: usize = 8;

/// Addresses in the table, 160 KiB: to keep all its buckets empty takes as many true addresses and 80,000 messages a second.
#[cfg(test)]
const CAPACITY: usize = SETS * WAYS;

/// What is left to each address: an IPv4 address, or an IPv6 network of 64 bits, as that is what a host has.
pub(super) struct AddressLimit {
    secret: [u8; 32],
    sets: Box<[[Entry; WAYS]]>,
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    bucket: TokenBucket,
}

impl AddressLimit {
    /// All of them may ask.
    pub(super) fn new<R: RngCore + CryptoRng>(now: Instant, rng: &mut R) -> Self {
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        let (rate, burst) = ALLOWANCE;
        let entry = Entry { tag: 0, bucket: TokenBucket::new(now, rate, burst) };
        Self { secret, sets: vec![[entry; WAYS]; SETS].into_boxed_slice() }
    }

    /// Whether this address may ask now; if so, it has.
    pub(super) fn take(&mut self, now: Instant, from: SocketAddr) -> bool {
        let digest = match from.ip().to_canonical() {
            IpAddr::V4(v4) => keyed16(&self.secret, &[&v4.octets()]),
            IpAddr::V6(v6) => keyed16(&self.secret, &[&v6.octets()[..8]]),
        };
        let [set, rest @ ..] = digest.map(u64::from);
        let tag = rest[..8].iter().fold(0, |tag, byte| tag << 8 | byte);
        let set = usize::try_from(set << 1 | rest[8] & 1).unwrap_or(0) % SETS;
        let entries = &mut self.sets[set];
        let known = entries.iter().position(|entry| entry.tag == tag);
        let place = known.or_else(|| (0..WAYS).max_by_key(|at| entries[*at].bucket.credit(now)));
        let Some(place) = place else { return false };
        entries[place].tag = tag;
        entries[place].bucket.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn limit() -> AddressLimit {
        AddressLimit::new(Instant::ZERO, &mut StdRng::seed_from_u64(1))
    }

    fn v4(number: u32) -> SocketAddr {
        (Ipv4Addr::from(number), 5000).into()
    }

    fn taken(limit: &mut AddressLimit, ms: u64, from: &str, times: usize) -> usize {
        let from = from.parse().unwrap();
        (0..times).filter(|_| limit.take(Instant::from_millis(ms), from)).count()
    }

    #[test]
    fn an_address_has_one_allowance_whatever_its_port_and_an_ipv6_network_too() {
        for (from, same, other) in [
            ("192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"),
            ("192.0.2.1:1", "[::ffff:192.0.2.1]:1", "192.0.3.1:1"),
            ("[2001:db8::1]:1", "[2001:db8::ffff:1]:9", "[2001:db8:0:1::1]:1"),
        ] {
            let mut limit = limit();
            assert_eq!(taken(&mut limit, 0, from, 100), 40, "{from}");
            assert_eq!(taken(&mut limit, 0, same, 100), 0, "{same}");
            assert_eq!(taken(&mut limit, 0, other, 100), 40, "{other}");
            assert_eq!(taken(&mut limit, 1000, same, 100), 20, "{same}, a second later");
        }
    }

    #[test]
    fn a_million_addresses_use_no_more_memory_and_get_no_more_than_the_table_has() {
        let mut limit = limit();
        let most = CAPACITY * 40;
        let taken = (0..1_000_000).filter(|number| limit.take(Instant::ZERO, v4(*number))).count();
        assert_eq!(limit.sets.len() * WAYS, CAPACITY);
        assert!(taken <= most, "{taken} of {most}");
        // Who comes again and again under new addresses meanwhile has none of it left.
        let again = (0..1_000_000).filter(|number| limit.take(Instant::ZERO, v4(!*number))).count();
        assert!(taken + again <= most, "{taken} and {again} of {most}");
    }

    #[test]
    fn addresses_that_used_up_theirs_do_not_get_it_back_by_pushing_each_other_out() {
        let mut limit = limit();
        let mut taken = 0;
        for _ in 0..100 {
            // Twice as many as there are places.
            for number in 0..2 * u32::try_from(CAPACITY).unwrap() {
                taken += usize::from(limit.take(Instant::ZERO, v4(number)));
            }
        }
        assert!(taken <= CAPACITY * 40, "{taken}");
    }

    #[test]
    fn a_thousand_busy_addresses_do_not_push_out_an_address_that_asks_now_and_then() {
        let mut limit = limit();
        let mut refused = 0;
        for ms in 0..5_000 {
            let now = Instant::from_millis(ms);
            for number in 0..100 {
                limit.take(now, v4(u32::try_from(ms % 10).unwrap() * 100 + number));
            }
            if ms % 250 == 0 {
                refused += usize::from(!limit.take(now, (Ipv6Addr::LOCALHOST, 7).into()));
            }
        }
        assert_eq!(refused, 0);
    }
}
