//! Whether a network hands out routes that would lead past the tunnel.

use std::path::Path;

use ropewalk_client::near::PassedOver;

use super::finding::Finding;
use super::quoting;

pub(super) fn judge(passed_over: &[PassedOver], file: &Path) -> Vec<Finding> {
    if passed_over.is_empty() {
        return vec![Finding::ok(
            "routes",
            "routes",
            "no route of a network leads past the tunnel",
        )];
    }
    let finding = |route: &PassedOver| {
        let edit = format!("sudoedit {}", quoting::file(file));
        Finding::warn("routes.passed-over", &*route.interface, route.to_string(), edit)
            .advise("nothing is to be done if you do not know it; if it is wanted:")
    };
    passed_over.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use ropewalk_client::near::Why;

    use super::*;

    #[test]
    fn each_route_is_told_with_its_interface_and_what_to_do() {
        let file = Path::new("/etc/ropewalk/client/client.toml");
        assert_eq!(judge(&[], file)[0].id, "routes");
        let route = PassedOver {
            destination: "0.0.0.0/1".parse().unwrap(),
            interface: "wlan0".into(),
            gateway: Some("192.168.1.1".parse().unwrap()),
            why: Why::Network("DHCP"),
        };
        let found = judge(&[route], file).remove(0);
        assert_eq!((found.id, &*found.subject), ("routes.passed-over", "wlan0"));
        assert!(
            found.found.contains("0.0.0.0/1") && found.found.contains("`exclude`"),
            "{found:?}"
        );
        assert_eq!(found.commands, ["sudoedit /etc/ropewalk/client/client.toml"]);
    }
}
