//! The sample configs, the core and the lab have the same defaults.

use std::path::Path;

use ropewalk_netlab::scenario::Scenario;
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::{ControllerKind, Direction, Keepalive, TunnelSection, TunnelSettings};
use toml::Table;

const SAMPLES: [(&str, &str); 2] = [
    ("client.toml", include_str!("../../../configs/client.toml")),
    ("proxy.toml", include_str!("../../../configs/proxy.toml")),
];

#[test]
fn the_samples_show_every_setting_of_the_tunnel_with_its_default() {
    for (name, text) in SAMPLES {
        let sample: Table = text.parse().unwrap();
        let section: TunnelSection = sample["tunnel"].clone().try_into().unwrap();
        assert_eq!(section.resolve(), Ok(TunnelSettings::default()), "{name}");
        // What the profile says is commented out, and what has a meaning with one controller only.
        let TunnelSettings { scheduling, controller, order, .. } = TunnelSettings::default();
        for (key, value) in [
            ("scheduler", format!("\"{}\"", scheduling.scheduler)),
            ("controller", format!("\"{controller}\"")),
            ("order", format!("\"{order}\"")),
            ("fixed_window", ControllerKind::DEFAULT_WINDOW.to_string()),
        ] {
            assert!(text.contains(&format!("\n# {key} = {value}\n")), "{name}: {key}");
        }
        let shown = |key: &str| text.contains(&format!("\n{key} = "));
        for key in ["profile", "queue", "rekey_after", "ecn", "max_wait", "buffer", "release"] {
            assert!(shown(key), "{name}: {key}");
        }
    }
}

#[test]
fn the_core_and_the_lab_run_what_the_samples_show() {
    let scenario = Scenario::parse("name = 'x'\nlinks = [{ name = 'a' }]", Path::new(".")).unwrap();
    for sends in [Direction::Up, Direction::Down] {
        let core = TunnelConfig::new(&TunnelSettings::default(), sends);
        assert_eq!(format!("{:?}", scenario.core(sends).unwrap()), format!("{core:?}"));
    }
    let core = TunnelConfig::new(&TunnelSettings::default(), Direction::Up);
    assert_eq!(format!("{:?}", TunnelConfig::default()), format!("{core:?}"));

    let client: Table = SAMPLES[0].1.parse().unwrap();
    let shown: Keepalive = client["keepalive"].clone().try_into().unwrap();
    assert_eq!([shown, scenario.tunnel.keepalive], [Keepalive::default(); 2]);
}
