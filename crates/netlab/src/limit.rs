//! The most that an application can get through the tunnel: what headers leave of full packets.

use ropewalk_proto::wire::header::OVERHEAD;

/// Headers of inner IPv4 and TCP with timestamps (RFC 7323), in bytes.
pub const TCP_HEADERS: u16 = 52;
/// Headers of IPv4 and UDP, inner as outer, in bytes.
pub const UDP_HEADERS: u16 = 28;
/// What the tunnel adds to a full packet over IPv4: its own headers and tag (PROTOCOL §2), outer UDP and
/// IPv4; in bytes.
#[expect(clippy::cast_possible_truncation, reason = "32")]
pub const TUNNEL_OVERHEAD: u16 = OVERHEAD as u16 + UDP_HEADERS;

/// Of what links carry at IP level, the share that is payload behind `headers` bytes in packets of
/// `inner_mtu` bytes.
#[must_use]
pub fn payload_share(inner_mtu: u16, headers: u16) -> f64 {
    let outer = f64::from(inner_mtu) + f64::from(TUNNEL_OVERHEAD);
    f64::from(inner_mtu.saturating_sub(headers)) / outer
}

/// The same on a link without a tunnel, in full packets of 1500 bytes.
#[must_use]
pub fn bare_payload_share(headers: u16) -> f64 {
    1.0 - f64::from(headers) / 1500.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_those_of_full_packets_of_1500_bytes() {
        assert_eq!(TUNNEL_OVERHEAD, 60);
        assert_eq!(payload_share(1440, UDP_HEADERS), 1412.0 / 1500.0);
        assert_eq!(payload_share(1440, TCP_HEADERS), 1388.0 / 1500.0);
        assert_eq!(bare_payload_share(TCP_HEADERS), 1448.0 / 1500.0);
    }
}
