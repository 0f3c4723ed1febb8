//! What `ropewalk status --json` says, read the way a script would: by the names of its fields.
//!
//! A field that is absent is not known yet; here it is `NaN` or zero, so that a bound on it fails.

use serde_json::Value;

/// The document of one daemon; its first tunnel is meant throughout.
#[derive(Clone, Debug, Default)]
pub struct Status(pub Value);

impl Status {
    /// The first tunnel.
    #[must_use]
    pub fn tunnel(&self) -> &Value {
        &self.0["tunnels"][0]
    }

    /// The longest packet that fits through the links in use, in bytes, if known.
    #[must_use]
    pub fn inner_mtu(&self) -> Option<u16> {
        self.tunnel()["inner_mtu"].as_u64().and_then(|mtu| mtu.try_into().ok())
    }

    /// The link of this name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&Value> {
        self.tunnel()["links"].as_array()?.iter().find(|link| link["name"] == name)
    }

    /// Whether the link of this name is up.
    #[must_use]
    pub fn is_up(&self, name: &str) -> bool {
        self.link(name).is_some_and(|link| link["state"] == "up")
    }

    /// The smoothed round-trip time of a link in milliseconds.
    #[must_use]
    pub fn srtt_ms(&self, name: &str) -> f64 {
        self.link(name).and_then(|link| link["srtt_ms"].as_f64()).unwrap_or(f64::NAN)
    }

    /// Bytes that the link has carried in a direction (`up` or `down`), as this end counts them.
    #[must_use]
    pub fn bytes(&self, name: &str, direction: &str) -> u64 {
        self.link(name).and_then(|link| link[direction]["bytes"].as_u64()).unwrap_or(0)
    }

    /// A figure of the resequencer.
    #[must_use]
    pub fn resequencer(&self, figure: &str) -> f64 {
        self.tunnel()["resequencer"][figure].as_f64().unwrap_or(f64::NAN)
    }

    /// How many sessions' keys were renewed.
    #[must_use]
    pub fn rekeys(&self) -> u64 {
        self.tunnel()["session"]["rekeys"].as_u64().unwrap_or(0)
    }

    /// Everything that was dropped, by reason, in the tunnel or before it was known whose it is.
    #[must_use]
    pub fn all_drops(&self) -> Vec<(String, u64)> {
        let tables = [&self.tunnel()["drops"], &self.0["drops"]];
        let counts = tables.into_iter().filter_map(Value::as_object).flatten();
        counts.filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?))).collect()
    }

    /// What was dropped for one of these reasons, in the tunnel or before it was known whose it is.
    #[must_use]
    pub fn drops(&self, reasons: &[&str]) -> u64 {
        let count = |table: &Value| -> u64 {
            reasons.iter().filter_map(|reason| table[*reason].as_u64()).sum()
        };
        count(&self.tunnel()["drops"]) + count(&self.0["drops"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_no_figure() {
        let status = Status(serde_json::json!({
            "drops": {"replayed": 2},
            "tunnels": [{
                "inner_mtu": 1440,
                "resequencer": {"late": 3},
                "drops": {"replayed": 1, "queue_full": 5},
                "links": [{"name": "wan0", "state": "up", "down": {"bytes": 7}}],
            }],
        }));
        assert_eq!(status.inner_mtu(), Some(1440));
        assert!(status.is_up("wan0") && !status.is_up("wan1"));
        assert_eq!((status.bytes("wan0", "down"), status.bytes("wan1", "down")), (7, 0));
        assert_eq!(status.resequencer("late"), 3.0);
        assert!(status.resequencer("wait_p99_ms").is_nan());
        assert_eq!(status.all_drops().iter().map(|(_, count)| count).sum::<u64>(), 8);
        assert_eq!(status.drops(&["replayed", "not_authentic"]), 3);
        assert_eq!(Status::default().inner_mtu(), None);
    }
}
