//! What the owner of a link says of it (PROTOCOL §4.1): a hint that may grow. Its first five bytes are all that older ends
//! read and write.

use ropewalk_settings::{Bitrate, Cost, Direction, Importance, LinkPolicy, Text as _, Usage};

use super::super::cursor::{Reader, Truncated, Writer};

/// The link is used when needed only, or is a backup: older ends know no difference.
const KEPT_BACK: u8 = 1;
/// It is a backup.
const BACKUP: u8 = 1 << 1;
/// It carries no packets upstream.
const NOTHING_UP: u8 = 1 << 2;
/// It carries no packets downstream.
const NOTHING_DOWN: u8 = 1 << 3;

/// Bytes of the value that every version has: flags and bound.
const FIRST_LEN: usize = 5;
/// Bytes of what follows them, but for the unit of the price.
const SECOND_LEN: usize = 19;

/// Thousandths in one.
const MILLI: f64 = 1e3;
/// Millionths in one.
const MICRO: f64 = 1e6;

/// The policy of a link, as far as the proxy must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PolicyFrame<'a> {
    flags: u8,
    /// Most that the proxy sends on it, in units of 1,000 bit/s; 0: no bound.
    max_kbps: u32,
    /// What it carries downstream, in the same unit; 0: not told.
    rate_kbps: u32,
    /// In thousandths.
    weight: Option<u32>,
    /// What throughput matters on it, in thousandths; the rest is what cost does.
    throughput: Option<u16>,
    /// A gigabyte, in millionths of the unit.
    price: u64,
    /// In UTF-8; empty: no price is told.
    unit: &'a [u8],
}

impl<'a> PolicyFrame<'a> {
    /// What the proxy must know of this policy.
    #[must_use]
    pub fn new(policy: &'a LinkPolicy) -> Self {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let kbps = |rate: Option<Bitrate>| rate.map_or(0, Bitrate::as_kbps);
        Self {
            flags: flag(policy.usage != Usage::Always, KEPT_BACK)
                | flag(policy.usage == Usage::Backup, BACKUP)
                | flag(!policy.direction.includes(Direction::Up), NOTHING_UP)
                | flag(!policy.direction.includes(Direction::Down), NOTHING_DOWN),
            max_kbps: kbps(policy.max_down),
            rate_kbps: kbps(policy.rate_down),
            weight: policy.weight.map(thousandths),
            throughput: policy.importance.map(|shares| share(shares.throughput())),
            price: policy.cost.as_ref().map_or(0, |cost| millionths(cost.amount)),
            unit: policy.cost.as_ref().map_or(&[], |cost| cost.unit.as_bytes()),
        }
    }

    /// The policy, as far as it is told. What no honest end says of a price or a weight counts as not said.
    #[must_use]
    pub fn policy(&self) -> LinkPolicy {
        let usage = match (self.flags & KEPT_BACK != 0, self.flags & BACKUP != 0) {
            (false, _) => Usage::Always,
            (true, false) => Usage::WhenNeeded,
            (true, true) => Usage::Backup,
        };
        let direction = match (self.flags & NOTHING_UP != 0, self.flags & NOTHING_DOWN != 0) {
            (false, true) => Direction::Up,
            (true, false) => Direction::Down,
            (false, false) | (true, true) => Direction::Both,
        };
        let rate = |kbps: u32| (kbps > 0).then(|| Bitrate::from_kbps(kbps));
        let importance = self.throughput.and_then(|share| {
            let throughput = f64::from(share) / MILLI;
            Importance::new(throughput, 1.0 - throughput).ok()
        });
        let policy = LinkPolicy {
            usage,
            direction,
            max_up: None,
            max_down: rate(self.max_kbps),
            rate_up: None,
            rate_down: rate(self.rate_kbps),
            weight: self.weight.map(|weight| f64::from(weight) / MILLI),
            cost: self.cost(),
            importance,
        };
        match policy.check() {
            Ok(()) => policy,
            Err(_) => LinkPolicy { weight: None, ..policy },
        }
    }

    fn cost(&self) -> Option<Cost> {
        let unit = str::from_utf8(self.unit).ok()?;
        #[expect(clippy::cast_precision_loss, reason = "prices have at most 16 digits")]
        let amount = self.price as f64 / MICRO;
        Cost::from_text(&format!("{amount} {unit}/GB")).ok()
    }

    pub(super) fn parse(value: &mut Reader<'a>) -> Result<Self, Truncated> {
        let first = Self {
            flags: value.u8()?,
            max_kbps: value.u32()?,
            rate_kbps: 0,
            weight: None,
            throughput: None,
            price: 0,
            unit: &[],
        };
        if value.rest().is_empty() {
            return Ok(first);
        }
        Ok(Self {
            rate_kbps: value.u32()?,
            weight: Some(value.u32()?).filter(|weight| *weight != u32::MAX),
            throughput: Some(value.u16()?).filter(|share| *share != u16::MAX),
            price: value.u64()?,
            unit: {
                let len = value.u8()?;
                value.bytes(usize::from(len))?
            },
            ..first
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let len = FIRST_LEN + SECOND_LEN + self.unit.len();
        writer.u16(u16::try_from(len).map_err(|_| Truncated)?)?;
        writer.u8(self.flags)?;
        writer.u32(self.max_kbps)?;
        writer.u32(self.rate_kbps)?;
        writer.u32(self.weight.unwrap_or(u32::MAX))?;
        writer.u16(self.throughput.unwrap_or(u16::MAX))?;
        writer.u64(self.price)?;
        writer.u8(u8::try_from(self.unit.len()).map_err(|_| Truncated)?)?;
        writer.bytes(self.unit)
    }
}

/// A weight in thousandths; one above zero stays so, for zero means that the link carries nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a weight is from 0 to a million, and a cast saturates"
)]
fn thousandths(weight: f64) -> u32 {
    ((weight * MILLI).round() as u32).max(u32::from(weight > 0.0))
}

/// A share of one in thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is from 0 to 1, and a cast saturates"
)]
fn share(share: f64) -> u16 {
    (share * MILLI).round() as u16
}

/// A price in millionths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a price is from 0 to a thousand million, and a cast saturates"
)]
fn millionths(price: f64) -> u64 {
    (price * MICRO).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Frame, Frames, emit};
    use super::*;

    fn written(policy: &LinkPolicy) -> Vec<u8> {
        let mut buffer = [0; 128];
        let mut writer = Writer::new(&mut buffer);
        emit(&mut writer, &Frame::Policy(PolicyFrame::new(policy))).expect("room");
        let len = writer.len();
        buffer[..len].to_vec()
    }

    fn read(bytes: &[u8]) -> LinkPolicy {
        match Frames::new(bytes).next() {
            Some(Ok(Frame::Policy(frame))) => frame.policy(),
            other => panic!("{other:?}"),
        }
    }

    fn full() -> LinkPolicy {
        LinkPolicy {
            usage: Usage::WhenNeeded,
            direction: Direction::Down,
            max_down: Some(Bitrate::from_kbps(5000)),
            rate_down: Some(Bitrate::from_kbps(20_000)),
            weight: Some(2.5),
            cost: Some(Cost::from_text("5.25 EUR/GB").expect("a price")),
            importance: Some(Importance::new(0.1, 0.9).expect("shares of one")),
            ..LinkPolicy::default()
        }
    }

    #[test]
    fn a_policy_is_laid_out_as_the_protocol_says() {
        let expected = [
            &[0x42, 0, 27, 0b0101, 0, 0, 0x13, 0x88][..],
            &[0, 0, 0x4e, 0x20, 0, 0, 9, 0xc4, 0, 100],
            &[0, 0, 0, 0, 0, 0x50, 0x1b, 0xd0, 3],
            b"EUR",
        ]
        .concat();
        assert_eq!(written(&full()), expected);
        let none = written(&LinkPolicy::default());
        let not_told = [0xff; 6];
        assert_eq!(none[..12], [0x42, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((&none[12..18], &none[18..]), (&not_told[..], &[0; 9][..]));
    }

    #[test]
    fn what_the_proxy_must_know_survives_the_wire() {
        assert_eq!(read(&written(&full())), full());
        assert_eq!(read(&written(&LinkPolicy::default())), LinkPolicy::default());
        for usage in [Usage::Always, Usage::WhenNeeded, Usage::Backup] {
            for direction in [Direction::Both, Direction::Up, Direction::Down] {
                let policy = LinkPolicy { usage, direction, ..full() };
                assert_eq!(read(&written(&policy)), policy);
            }
        }
        let of_client = LinkPolicy {
            max_up: Some(Bitrate::from_kbps(1)),
            rate_up: Some(Bitrate::from_kbps(1)),
            ..LinkPolicy::default()
        };
        assert_eq!(read(&written(&of_client)), LinkPolicy::default(), "nothing of upstream");
        let small = LinkPolicy { weight: Some(1e-9), ..LinkPolicy::default() };
        assert_eq!(read(&written(&small)).weight, Some(0.001), "zero would be another thing");
    }

    #[test]
    fn an_older_end_says_less_and_a_newer_one_more() {
        let old = [0x42, 0, 5, 1, 0, 0, 0x13, 0x88];
        let expected = LinkPolicy {
            usage: Usage::WhenNeeded,
            max_down: Some(Bitrate::from_kbps(5000)),
            ..LinkPolicy::default()
        };
        assert_eq!(read(&old), expected);
        let mut newer = written(&full());
        newer[2] += 2;
        newer.extend([7, 7, 0x03]);
        assert_eq!(read(&newer), full());
        let parsed: Vec<_> = Frames::new(&newer).skip(1).collect();
        assert_eq!(parsed, [Ok(Frame::Ping)]);
        for len in (0..24).filter(|len| *len != 5) {
            let mut cut = written(&LinkPolicy::default());
            cut[2] = len;
            cut.truncate(3 + usize::from(len));
            assert_eq!(Frames::new(&cut).collect::<Vec<_>>(), [Err(Truncated)], "{len}");
        }
    }

    #[test]
    fn what_makes_no_sense_counts_as_not_said() {
        let mut bytes = written(&full());
        // A weight of four million, a share above one, a unit that is no text.
        bytes[12..16].copy_from_slice(&4_000_000_000_u32.to_be_bytes());
        bytes[16..18].copy_from_slice(&1001_u16.to_be_bytes());
        let last = bytes.len() - 1;
        bytes[last] = 0xff;
        let expected = LinkPolicy { weight: None, importance: None, cost: None, ..full() };
        assert_eq!(read(&bytes), expected);
        let mut dear = written(&full());
        dear[18..26].copy_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(read(&dear), LinkPolicy { cost: None, ..full() });
    }

    proptest! {
        #[test]
        fn whatever_is_said_a_policy_makes_sense_and_is_said_alike_again(value: Vec<u8>) {
            let value = &value[..value.len().min(200)];
            let len = u8::try_from(value.len()).expect("at most 200");
            let bytes = [&[0x42, 0, len][..], value].concat();
            if let Some(Ok(Frame::Policy(frame))) = Frames::new(&bytes).next() {
                let policy = frame.policy();
                prop_assert_eq!(policy.check(), Ok(()));
                prop_assert_eq!(read(&written(&policy)), policy);
            }
        }
    }
}
