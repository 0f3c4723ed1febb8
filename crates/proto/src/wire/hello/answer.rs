//! The sealed payload of a response (PROTOCOL §6.2): a session, or why not.
//!
//! ```text
//!  0        1          4        5       6       7       8       12       28        32        48
//! +--------+----------+--------+-------+-------+-------+-------+--------+---------+---------+------
//! | status | index    | cipher | flags | bits4 | bits6 | inner4| inner6 | proxy4  | proxy6  | param.
//! +--------+----------+--------+-------+-------+-------+-------+--------+---------+---------+------
//! ```
//!
//! A refusal has the same length: an observer cannot tell it from a session.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use super::parameters::{BadContent, MAX_ANSWER_LEN, Parameters};
use super::{ENVELOPE_LEN, FIRST_LEN, index_bytes, index_from_bytes};
use crate::crypto::aead::Cipher;
use crate::units::SessionIndex;

/// Bytes of the payload, padded; longer than all its parameters together.
pub const PAYLOAD_LEN: usize = 128;

/// Bytes of a whole response: envelope, ephemeral key, tag, payload.
pub const RESPONSE_LEN: usize = ENVELOPE_LEN + 32 + 16 + PAYLOAD_LEN;

const FIXED_LEN: usize = 48;
const _: () = assert!(FIXED_LEN + MAX_ANSWER_LEN <= PAYLOAD_LEN);
const _: () = assert!(RESPONSE_LEN <= FIRST_LEN, "an answer is never longer than the question");

const ACCEPTED: u8 = 0;

const INNER_V4: u8 = 1;
const INNER_V6: u8 = 2;
const PROXY_V4: u8 = 4;
const PROXY_V6: u8 = 8;

/// What the proxy gives the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accept {
    /// The index that the client writes into its datagrams.
    pub index: SessionIndex,
    /// The data cipher of the session.
    pub cipher: Cipher,
    /// The client's inner IPv4 address and the prefix of the tunnel's network.
    pub inner_v4: Option<Ipv4Net>,
    /// The client's inner IPv6 address and the prefix of the tunnel's network.
    pub inner_v6: Option<Ipv6Net>,
    /// The proxy's own inner IPv4 address.
    pub proxy_v4: Option<Ipv4Addr>,
    /// The proxy's own inner IPv6 address.
    pub proxy_v6: Option<Ipv6Addr>,
    /// What holds for this session.
    pub parameters: Parameters,
}

/// Why a client gets no session. Who is known, or has an invitation that counts no more, learns so in a sealed answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The two ends have no data cipher in common.
    #[error("the proxy supports none of the ciphers this client offers")]
    NoCommonCipher,
    /// The proxy has no inner address left for this client.
    #[error("the proxy has no inner address left for this client")]
    NoAddress,
    /// The proxy's administrator has disabled this client.
    #[error("this client is disabled on the proxy")]
    Disabled,
    /// The proxy carries as many sessions as it is allowed to.
    #[error("the proxy is full")]
    Full,
    /// The invitation let another key in before.
    #[error(
        "this invitation was used before, with another key: ask the proxy's owner for a new one \
         (`ropewalk peer add NAME` there), then `ropewalk join --replace`"
    )]
    InvitationUsed,
    /// The invitation is out of date, or was taken back.
    #[error(
        "this invitation has expired or was taken back: ask the proxy's owner for a new one \
         (`ropewalk peer add NAME` there), then `ropewalk join --replace`"
    )]
    InvitationExpired,
    /// Another machine uses a session with this client's key, and this one said that it yields.
    #[error(
        "another machine is connected with this client's key: each machine needs an invitation of its own; to use \
         the key here, start this client again"
    )]
    InUse,
    /// The proxy takes no new sessions until its operator says otherwise.
    #[error(
        "the proxy takes no new sessions: its operator has drained it, and ends that with `ropewalk fleet undrain` there"
    )]
    Draining,
    /// The proxy ends within a second.
    #[error("the proxy is being stopped")]
    Stopping,
    /// A reason that this version does not know.
    #[error("the proxy refused (reason {0})")]
    Other(u8),
}

impl Refusal {
    const fn to_wire(self) -> u8 {
        match self {
            Self::NoCommonCipher => 1,
            Self::NoAddress => 2,
            Self::Disabled => 3,
            Self::Full => 4,
            Self::InvitationUsed => 5,
            Self::InvitationExpired => 6,
            Self::InUse => 7,
            Self::Draining => 8,
            Self::Stopping => 9,
            // A refusal must never read as a session.
            Self::Other(ACCEPTED) => u8::MAX,
            Self::Other(number) => number,
        }
    }

    const fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::NoCommonCipher,
            2 => Self::NoAddress,
            3 => Self::Disabled,
            4 => Self::Full,
            5 => Self::InvitationUsed,
            6 => Self::InvitationExpired,
            7 => Self::InUse,
            8 => Self::Draining,
            9 => Self::Stopping,
            other => Self::Other(other),
        }
    }
}

/// The payload of an acceptance.
#[must_use]
pub fn accept_bytes(accept: &Accept) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAYLOAD_LEN);
    out.push(ACCEPTED);
    out.extend_from_slice(&index_bytes(accept.index));
    let flag = |given: bool, bit: u8| if given { bit } else { 0 };
    let flags = flag(accept.inner_v4.is_some(), INNER_V4)
        | flag(accept.inner_v6.is_some(), INNER_V6)
        | flag(accept.proxy_v4.is_some(), PROXY_V4)
        | flag(accept.proxy_v6.is_some(), PROXY_V6);
    let (v4, v6) = (accept.inner_v4.unwrap_or_default(), accept.inner_v6.unwrap_or_default());
    out.extend_from_slice(&[accept.cipher.to_wire(), flags, v4.prefix_len(), v6.prefix_len()]);
    out.extend_from_slice(&v4.addr().octets());
    out.extend_from_slice(&v6.addr().octets());
    out.extend_from_slice(&accept.proxy_v4.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    out.extend_from_slice(&accept.proxy_v6.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
    accept.parameters.write(&mut out);
    out.resize(PAYLOAD_LEN, 0);
    out
}

/// The payload of a refusal.
#[must_use]
pub fn refusal_bytes(refusal: Refusal) -> Vec<u8> {
    let mut out = vec![0; PAYLOAD_LEN];
    out[0] = refusal.to_wire();
    out
}

/// Reads the payload of a response. Unknown flags are ignored.
///
/// # Errors
/// [`BadContent`].
pub fn parse(payload: &[u8]) -> Result<Result<Accept, Refusal>, BadContent> {
    let (&[status, a, b, c, cipher, flags, bits4, bits6], rest) =
        payload.split_first_chunk().ok_or(BadContent)?;
    if status != ACCEPTED {
        return Ok(Err(Refusal::from_wire(status)));
    }
    let (inner4, rest) = rest.split_first_chunk::<4>().ok_or(BadContent)?;
    let (inner6, rest) = rest.split_first_chunk::<16>().ok_or(BadContent)?;
    let (proxy4, rest) = rest.split_first_chunk::<4>().ok_or(BadContent)?;
    let (proxy6, rest) = rest.split_first_chunk::<16>().ok_or(BadContent)?;
    let inner_v4 = Ipv4Net::new((*inner4).into(), bits4).map_err(|_| BadContent);
    let inner_v6 = Ipv6Net::new((*inner6).into(), bits6).map_err(|_| BadContent);
    let given = |bit: u8| flags & bit != 0;
    Ok(Ok(Accept {
        index: index_from_bytes([a, b, c]),
        cipher: Cipher::from_wire(cipher).ok_or(BadContent)?,
        inner_v4: given(INNER_V4).then_some(inner_v4).transpose()?,
        inner_v6: given(INNER_V6).then_some(inner_v6).transpose()?,
        proxy_v4: given(PROXY_V4).then(|| (*proxy4).into()),
        proxy_v6: given(PROXY_V6).then(|| (*proxy6).into()),
        parameters: Parameters::parse(rest)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::super::parameters::NameServers;
    use super::*;
    use std::time::Duration;

    fn accept() -> Accept {
        Accept {
            index: SessionIndex::new(0xff_0001),
            cipher: Cipher::Aes256Gcm,
            inner_v4: Some("10.9.0.7/24".parse().unwrap()),
            inner_v6: Some("fd00:9::7/64".parse().unwrap()),
            proxy_v4: Some(Ipv4Addr::new(10, 9, 0, 1)),
            proxy_v6: Some("fd00:9::1".parse().unwrap()),
            parameters: Parameters {
                rekey_interval: Some(Duration::from_secs(120)),
                displaced: Some(Duration::from_secs(3)),
                name_servers: NameServers::of([[9, 9, 9, 9].into()]),
                ..Parameters::default()
            },
        }
    }

    #[test]
    fn an_acceptance_reads_back_with_each_combination_of_addresses() {
        for given in 0..16 {
            let mut accept = accept();
            accept.inner_v4 = accept.inner_v4.filter(|_| given & 1 != 0);
            accept.inner_v6 = accept.inner_v6.filter(|_| given & 2 != 0);
            accept.proxy_v4 = accept.proxy_v4.filter(|_| given & 4 != 0);
            accept.proxy_v6 = accept.proxy_v6.filter(|_| given & 8 != 0);
            let bytes = accept_bytes(&accept);
            assert_eq!(bytes.len(), PAYLOAD_LEN);
            assert_eq!(parse(&bytes), Ok(Ok(accept)));
        }
    }

    #[test]
    fn a_refusal_reads_back_and_is_as_long_as_an_acceptance() {
        let known = [
            Refusal::NoCommonCipher,
            Refusal::NoAddress,
            Refusal::Disabled,
            Refusal::Full,
            Refusal::Draining,
            Refusal::Stopping,
        ];
        for refusal in known.into_iter().chain([Refusal::Other(200)]) {
            let bytes = refusal_bytes(refusal);
            assert_eq!(bytes.len(), PAYLOAD_LEN);
            assert_eq!(parse(&bytes), Ok(Err(refusal)));
        }
        assert!(matches!(parse(&refusal_bytes(Refusal::Other(0))), Ok(Err(_))));
    }

    #[test]
    fn broken_acceptances_are_refused() {
        let good = accept_bytes(&accept());
        for len in 0..FIXED_LEN {
            assert_eq!(parse(&good[..len]), Err(BadContent), "{len} bytes");
        }
        for (name, at, value) in
            [("cipher", 4, 0), ("cipher", 4, 9), ("bits of IPv4", 6, 33), ("bits of IPv6", 7, 129)]
        {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(parse(&bad), Err(BadContent), "{name} {value}");
        }
    }
}
