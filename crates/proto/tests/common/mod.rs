//! Two tunnels that already share keys, and what is sent through them.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;

use arrayvec::ArrayString;
use rand::SeedableRng;
use rand::rngs::StdRng;
use ropewalk_netlab::lab::{Lab, Towards};
use ropewalk_netlab::netem::{Conditions, QueueLimit, Rate};
use ropewalk_proto::config::{Keepalive, LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::rekey::Standing;
use ropewalk_proto::crypto::{
    Cipher, DataKey, EpochKeys, KeyRing, PresharedKey, Role, StaticSecret,
};
use ropewalk_proto::path::Path;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::{Credentials, Established, InnerFilter, Side, Tunnel};
use ropewalk_proto::units::{Bitrate, SessionIndex};

pub(crate) type TunnelLab = Lab<Tunnel, Tunnel>;

/// A link as the papers describe one: rate, round-trip time, queue in time.
pub(crate) fn conditions(mbps: f64, rtt_ms: u64, queue_ms: u64) -> Conditions {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    let bps = (mbps * 1e6) as u64;
    Conditions {
        rate: Rate::Fixed(Bitrate::from_bps(bps)),
        delay: Duration::from_micros(rtt_ms * 500),
        queue: QueueLimit::of_time(Duration::from_millis(queue_ms)),
        ..Conditions::default()
    }
}

/// Two tunnels with the same configuration, no links yet.
pub(crate) fn lab(config: &TunnelConfig, seed: u64) -> TunnelLab {
    let mut rng = StdRng::seed_from_u64(seed);
    let (client, proxy) = (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
    let (up, down) = (DataKey::from_bytes([1; 32]), DataKey::from_bytes([2; 32]));
    let psk = PresharedKey::from_bytes([3; 32]);
    let keys = |send: &DataKey, receive: &DataKey| EpochKeys {
        epoch: 0,
        cipher: Cipher::ChaCha20Poly1305,
        send: send.clone(),
        receive: receive.clone(),
        binding: [7; 32],
    };
    let end = |side, role, keys: &EpochKeys, local: &StaticSecret, remote: &StaticSecret, seed| {
        let session = Established {
            side,
            keys: KeyRing::new(role, keys),
            peer: SessionIndex::new(9),
            rekey: Credentials {
                local: Arc::new(local.clone()),
                remote: remote.public(),
                psk: psk.clone(),
                standing: Standing::from(keys),
            },
            gateways: vec!["10.77.0.1".parse().unwrap()],
        };
        Tunnel::new(Instant::ZERO, config.clone(), InnerFilter::default(), session, seed)
    };
    let of_client = end(Side::Client, Role::Initiator, &keys(&up, &down), &client, &proxy, [4; 32]);
    let of_proxy = end(Side::Proxy, Role::Responder, &keys(&down, &up), &proxy, &client, [5; 32]);
    Lab::new(of_client, of_proxy)
}

/// Opens one of the client's links over each of `paths`.
pub(crate) fn join(lab: &mut TunnelLab, name: &str, path: Path, keepalive: Keepalive) {
    let config = LinkConfig {
        name: ArrayString::from(name).unwrap(),
        paths: [path].into_iter().collect(),
        keepalive,
        metered: false,
        mtu: None,
    };
    lab.client.add_link(lab.now, &config).unwrap();
}

/// A lab with these links (rate in Mbit/s, round-trip time in ms; queues of 100 ms), joined and settled for
/// two seconds.
pub(crate) fn with_links(config: &TunnelConfig, links: &[(f64, u64)], seed: u64) -> TunnelLab {
    let mut lab = lab(config, seed);
    for (place, &(mbps, rtt)) in links.iter().enumerate() {
        let conditions = conditions(mbps, rtt, 100);
        let path = lab.add_link(conditions.clone(), conditions, seed + place as u64);
        join(&mut lab, &format!("wan{place}"), path, Keepalive::default());
    }
    lab.run_until(Instant::from_millis(2000));
    lab
}

/// A UDP packet of `len` bytes over IPv4 with a sequence number.
pub(crate) fn udp_packet(number: u64, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
    packet[8] = 64;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 77, 0, 2]);
    packet[16..20].copy_from_slice(&[192, 0, 2, 80]);
    packet[20..24].copy_from_slice(&[0x30, 0x39, 0, 80]);
    packet[24..26].copy_from_slice(&u16::try_from(len - 20).unwrap().to_be_bytes());
    packet[28..36].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The sequence number of such a packet.
pub(crate) fn number_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[28..36].try_into().unwrap())
}

/// Sends packets of `len` bytes towards one end at `mbps` (inner IP level) for `seconds`; returns what came.
pub(crate) fn constant_rate(
    lab: &mut TunnelLab,
    towards: Towards,
    mbps: f64,
    len: usize,
    seconds: u64,
) -> Flow {
    let from = match towards {
        Towards::Client => Towards::Proxy,
        Towards::Proxy => Towards::Client,
    };
    let interval = Duration::from_secs_f64(len as f64 * 8.0 / (mbps * 1e6));
    let start = lab.now;
    let end = start + Duration::from_secs(seconds);
    let mut flow = Flow { seconds: seconds as f64, ..Flow::default() };
    lab.delivered(towards);
    while lab.now < end {
        lab.send(from, &udp_packet(flow.sent, len));
        flow.sent += 1;
        let next = lab.now + interval;
        lab.run_until(next);
        flow.take(lab.delivered(towards).iter().map(|delivered| delivered.packet.as_slice()));
    }
    flow
}

/// What became of a flow.
#[derive(Default, Debug)]
pub(crate) struct Flow {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) bytes: u64,
    pub(crate) in_order: u64,
    pub(crate) seconds: f64,
    highest: Option<u64>,
}

impl Flow {
    fn take<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) {
        for packet in packets {
            let number = number_of(packet);
            self.received += 1;
            self.bytes += packet.len() as u64;
            self.in_order += u64::from(self.highest.is_none_or(|highest| number > highest));
            self.highest = self.highest.max(Some(number));
        }
    }

    pub(crate) fn mbps(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e6 / self.seconds
    }
}
