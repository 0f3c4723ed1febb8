//! A set of inner addresses in little memory: the lowest free one is given first, so that most stand side by side.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// 256 addresses that differ in their last byte, a bit for each.
type Block = [u64; 4];

/// The set: an eighth of a byte for each address, where most of a block are in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSet {
    blocks: BTreeMap<u128, Block>,
    /// How many of them are IPv6.
    v6: usize,
}

impl AddressSet {
    /// Puts an address in. Returns whether it was not in the set.
    pub(crate) fn insert(&mut self, address: IpAddr) -> bool {
        let (block, word, bit) = place(address);
        let word = &mut self.blocks.entry(block).or_default()[word];
        let is_new = *word & bit == 0;
        *word |= bit;
        self.v6 += usize::from(is_new && address.is_ipv6());
        is_new
    }

    /// Takes an address out.
    pub(crate) fn remove(&mut self, address: IpAddr) {
        let (at, word, bit) = place(address);
        let Some(block) = self.blocks.get_mut(&at) else { return };
        self.v6 -= usize::from(block[word] & bit != 0 && address.is_ipv6());
        block[word] &= !bit;
        if *block == Block::default() {
            self.blocks.remove(&at);
        }
    }

    /// Whether an address is in the set.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let (block, word, bit) = place(address);
        self.blocks.get(&block).is_some_and(|block| block[word] & bit != 0)
    }

    /// How many IPv6 addresses are in the set.
    pub(crate) fn len_v6(&self) -> usize {
        self.v6
    }
}

/// The block of an address, and in it the word and the bit. IPv4 addresses are those that IPv6 has for them (RFC 4291 section 2.5.5.2).
fn place(address: IpAddr) -> (u128, usize, u64) {
    let v6 = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let [.., last] = v6.octets();
    (u128::from(v6) >> 8, usize::from(last / 64), 1_u64 << (last % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_the_set_from_when_they_are_put_in_until_they_are_taken_out() {
        let all = "10.77.0.2 10.77.0.63 10.77.0.64 10.77.0.255 10.77.1.2 255.255.255.255 0.0.0.0 \
                   fd00::2 fd00::ff fd00::1:2 :: ::2";
        let all: Vec<IpAddr> = all.split(' ').map(|text| text.parse().unwrap()).collect();
        let mut set = AddressSet::default();
        for (at, address) in all.iter().enumerate() {
            assert!(set.insert(*address) && !set.insert(*address), "{address}");
            let known = all.iter().filter(|address| set.contains(**address)).count();
            assert_eq!(known, at + 1, "{address}");
            assert_eq!(set.len_v6(), all[..=at].iter().filter(|one| one.is_ipv6()).count());
        }
        for (at, address) in all.iter().enumerate() {
            set.remove(*address);
            set.remove(*address);
            assert!(!set.contains(*address), "{address}");
            let left = all.iter().filter(|address| set.contains(**address)).count();
            assert_eq!(left, all.len() - at - 1, "{address}");
        }
        assert!(set.blocks.is_empty() && set.len_v6() == 0);
    }

    #[test]
    fn addresses_side_by_side_take_a_block_for_256() {
        let mut set = AddressSet::default();
        for number in 0..65_536 {
            set.insert(std::net::Ipv4Addr::from(0x0a4d_0000 + number).into());
        }
        assert_eq!(set.blocks.len(), 256);
    }
}
