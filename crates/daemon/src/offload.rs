//! What is left to the kernel: from the config to the drivers, and from the drivers to the status.

use ropewalk_control::api::{OffloadState, OffloadStatus};
use ropewalk_link_io::offload::UdpOffload;
use ropewalk_link_io::tun::TunOffload;
use ropewalk_link_io::udp::OffloadInUse;
use ropewalk_settings::{Offload, Switch};

/// What the config wishes of the sockets.
#[must_use]
pub const fn udp(config: &Offload) -> UdpOffload {
    UdpOffload { gso: config.udp_gso, gro: config.udp_gro }
}

/// What is in use.
#[must_use]
pub const fn status(config: &Offload, tun: TunOffload, udp: OffloadInUse) -> OffloadStatus {
    OffloadStatus {
        tun: match tun {
            TunOffload { reads: true, writes: false } => OffloadState::ReadsOnly,
            TunOffload { reads, .. } => state(config.tun, reads),
        },
        udp_gso: state(config.udp_gso, udp.gso),
        udp_gro: state(config.udp_gro, udp.gro),
    }
}

const fn state(wish: Switch, in_use: bool) -> OffloadState {
    match (wish, in_use) {
        (Switch::Off, _) => OffloadState::Off,
        (_, true) => OffloadState::On,
        (_, false) => OffloadState::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forbidden_is_told_from_what_is_missing() {
        use OffloadState::{Off, On, ReadsOnly, Unavailable};
        let table = [
            (Switch::Auto, (true, true), (true, false), [On, On, Unavailable]),
            (Switch::On, (true, false), (true, true), [ReadsOnly, On, On]),
            (Switch::Auto, (false, false), (false, true), [Unavailable, Unavailable, On]),
            (Switch::Off, (false, false), (false, false), [Off; 3]),
        ];
        for (wish, (reads, writes), (gso, gro), [of_tun, udp_gso, udp_gro]) in table {
            let config = Offload { tun: wish, udp_gso: wish, udp_gro: wish };
            let shown = status(&config, TunOffload { reads, writes }, OffloadInUse { gso, gro });
            assert_eq!(shown, OffloadStatus { tun: of_tun, udp_gso, udp_gro }, "{wish:?}");
        }
    }
}
