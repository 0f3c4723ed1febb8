//! Proxies of the fleet (PROTOCOL §4.2): a part of the list, which may take several frames. Each proxy says how long it is,
//! so that later versions can add to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use arrayvec::ArrayVec;
use ropewalk_settings::{KEY_LEN, PublicKey};

use super::super::cursor::{Reader, Truncated, Writer};
use crate::fleet::{FleetProxy, MAX_PROXIES, MAX_PROXY_ADDRESSES, ProxyId, ProxyState, Region};

/// The layout that this program writes and reads.
const VERSION: u8 = 1;

/// Bytes of the value before the proxies.
const HEAD_LEN: usize = 7;

/// Bytes of type, length and what stands before the proxies.
pub const FLEET_HEAD: usize = 3 + HEAD_LEN;

const SERVING: u8 = 0;
const DRAINING: u8 = 1;

const KIND_V4: u8 = 4;
const KIND_V6: u8 = 6;

/// A part of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FleetFrame<'a> {
    /// Which list it is: another one has a higher number.
    pub number: u32,
    /// How many proxies the whole list has.
    pub total: u8,
    /// Which of them the first of this frame is.
    pub first: u8,
    /// They, as they are written.
    proxies: &'a [u8],
}

impl<'a> FleetFrame<'a> {
    /// A part with proxies that [`emit_proxy`] wrote.
    #[must_use]
    pub const fn new(number: u32, total: u8, first: u8, proxies: &'a [u8]) -> Self {
        Self { number, total, first, proxies }
    }

    /// The proxies of this part; `None`: something of them cannot be read, or has no meaning.
    #[must_use]
    pub fn proxies(&self) -> Option<Vec<FleetProxy>> {
        let mut reader = Reader::new(self.proxies);
        let mut proxies = Vec::new();
        while !reader.rest().is_empty() {
            if proxies.len() == MAX_PROXIES {
                return None;
            }
            let len = reader.u16().ok()?;
            proxies.push(proxy(&mut Reader::new(reader.bytes(len.into()).ok()?))?);
        }
        Some(proxies)
    }

    /// `None`: it is of a later version, and skipped.
    pub(super) fn parse(value: &mut Reader<'a>) -> Result<Option<Self>, Truncated> {
        if value.u8()? != VERSION {
            return Ok(None);
        }
        let (number, total, first) = (value.u32()?, value.u8()?, value.u8()?);
        Ok(Some(Self { number, total, first, proxies: value.rest() }))
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let len = HEAD_LEN + self.proxies.len();
        writer.u16(u16::try_from(len).map_err(|_| Truncated)?)?;
        writer.u8(VERSION)?;
        writer.u32(self.number)?;
        writer.u8(self.total)?;
        writer.u8(self.first)?;
        writer.bytes(self.proxies)
    }
}

fn proxy(reader: &mut Reader<'_>) -> Option<FleetProxy> {
    let id = ProxyId::new(word(reader)?)?;
    let region = Region::new(word(reader)?)?;
    let public_key = PublicKey::from_bytes(reader.array::<KEY_LEN>().ok()?);
    let state = match reader.u8().ok()? {
        SERVING => ProxyState::Serving,
        // What a later version may add is no reason to stay.
        _ => ProxyState::Draining,
    };
    let load = reader.u8().ok()?;
    let mut addresses = ArrayVec::<SocketAddr, MAX_PROXY_ADDRESSES>::new();
    for _ in 0..reader.u8().ok()? {
        let ip = match reader.u8().ok()? {
            KIND_V4 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>().ok()?)),
            KIND_V6 => IpAddr::V6(Ipv6Addr::from(reader.array::<16>().ok()?)),
            _ => return None,
        };
        addresses.try_push(SocketAddr::new(ip.to_canonical(), reader.u16().ok()?)).ok()?;
    }
    Some(FleetProxy { id, region, addresses, public_key, state, load })
}

fn word<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
    let len = reader.u8().ok()?;
    str::from_utf8(reader.bytes(len.into()).ok()?).ok()
}

/// Writes a proxy as [`FleetFrame`] has it.
///
/// # Errors
/// It does not fit.
pub fn emit_proxy(writer: &mut Writer<'_>, proxy: &FleetProxy) -> Result<(), Truncated> {
    let addresses: usize = proxy.addresses.iter().map(|a| if a.is_ipv4() { 7 } else { 19 }).sum();
    let (id, region) = (proxy.id.as_str(), proxy.region.as_str());
    let len = 2 + id.len() + region.len() + KEY_LEN + 3 + addresses;
    writer.u16(u16::try_from(len).map_err(|_| Truncated)?)?;
    for word in [id, region] {
        writer.u8(u8::try_from(word.len()).map_err(|_| Truncated)?)?;
        writer.bytes(word.as_bytes())?;
    }
    writer.bytes(proxy.public_key.as_bytes())?;
    writer.u8(match proxy.state {
        ProxyState::Serving => SERVING,
        ProxyState::Draining => DRAINING,
    })?;
    writer.u8(proxy.load)?;
    writer.u8(u8::try_from(proxy.addresses.len()).map_err(|_| Truncated)?)?;
    for address in &proxy.addresses {
        match address.ip() {
            IpAddr::V4(ip) => {
                writer.u8(KIND_V4)?;
                writer.bytes(&ip.octets())?;
            }
            IpAddr::V6(ip) => {
                writer.u8(KIND_V6)?;
                writer.bytes(&ip.octets())?;
            }
        }
        writer.u16(address.port())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::tests::proxy as a_proxy;
    use crate::wire::frame::{Frame, Frames, emit};
    use proptest::prelude::*;

    fn largest() -> FleetProxy {
        FleetProxy {
            id: ProxyId::new(&"z".repeat(32)).unwrap(),
            region: Region::new(&"R".repeat(32)).unwrap(),
            addresses: (0..8).map(|n| ([0x2001, 0xdb8, 0, 0, 0, 0, 0, n], 443).into()).collect(),
            state: ProxyState::Draining,
            load: 100,
            ..a_proxy("z", 9)
        }
    }

    fn written(proxies: &[FleetProxy]) -> Vec<u8> {
        let mut buffer = [0; 1024];
        let mut writer = Writer::new(&mut buffer);
        proxies.iter().for_each(|proxy| emit_proxy(&mut writer, proxy).unwrap());
        let len = writer.len();
        buffer[..len].to_vec()
    }

    #[test]
    fn proxies_read_back_as_written_and_may_grow() {
        let proxies = [a_proxy("fra-1", 1), largest()];
        let mut bytes = written(&proxies);
        assert_eq!(FleetFrame::new(7, 2, 0, &bytes).proxies().unwrap(), proxies);
        // A later version writes more behind the last proxy's addresses.
        let last = bytes.len() - written(&proxies[1..]).len();
        bytes[last + 1] += 2;
        bytes.extend([1, 2]);
        assert_eq!(FleetFrame::new(7, 2, 0, &bytes).proxies().unwrap(), proxies);
    }

    #[test]
    fn a_part_is_laid_out_as_the_protocol_says_and_one_of_a_later_version_is_skipped() {
        let proxies = written(&[a_proxy("a", 1)]);
        let mut buffer = [0; 128];
        let mut writer = Writer::new(&mut buffer);
        emit(&mut writer, &Frame::Fleet(FleetFrame::new(5, 3, 2, &proxies))).unwrap();
        let len = writer.len();
        assert_eq!(buffer[..FLEET_HEAD], [0x45, 0, 56, 1, 0, 0, 0, 5, 3, 2]);
        assert_eq!(buffer[10..17], [0, 47, 1, b'a', 2, b'e', b'u']);
        assert_eq!(buffer[49..len], [0, 0, 1, 4, 203, 0, 113, 1, 0xca, 0xbc]);
        let read = |bytes| Frames::new(bytes).collect::<Vec<_>>();
        assert_eq!(read(&buffer[..len]), [Ok(Frame::Fleet(FleetFrame::new(5, 3, 2, &proxies)))]);
        let mut later = buffer[..len].to_vec();
        later[3] = 2;
        assert_eq!(read(&later), [Ok(Frame::Padding)]);
    }

    #[test]
    fn what_cannot_be_read_is_no_list() {
        let whole = written(&[largest()]);
        for len in 1..whole.len() {
            assert_eq!(FleetFrame::new(1, 1, 0, &whole[..len]).proxies(), None, "cut to {len}");
        }
        // A name that is none, an address of no kind, and one address too many.
        let changed = |at: usize, to: u8| {
            let mut bytes = whole.clone();
            bytes[at] = to;
            FleetFrame::new(1, 1, 0, &bytes).proxies()
        };
        assert!(changed(0, 0).is_some(), "as it was");
        for (at, to) in [(3, b'Z'), (36, 0x1b), (103, 5), (102, 9)] {
            assert_eq!(changed(at, to), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = FleetFrame::new(0, 0, 0, &bytes).proxies();
        }
    }
}
