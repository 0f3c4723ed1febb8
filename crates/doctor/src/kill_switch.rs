//! Whether packets can leave outside the tunnel, and whether that is as the config says.

use super::finding::Finding;

/// What there is to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The config asks for it.
    pub(super) is_wanted: bool,
    /// Its firewall table stands.
    pub(super) stands: bool,
    /// A client runs.
    pub(super) runs: bool,
}

pub(super) fn judge(facts: Facts) -> Finding {
    let subject = "kill switch";
    match facts {
        Facts { is_wanted: true, stands: true, .. } => {
            Finding::ok("kill-switch", subject, "on: nothing leaves outside the tunnel")
        }
        Facts { is_wanted: true, stands: false, runs: true } => Finding::fail(
            "kill-switch.gone",
            subject,
            "the config asks for it, and its table ropewalk_lock is not there: packets may leave outside the tunnel",
            "sudo systemctl restart ropewalk-client",
        )
        .advise("something removes it (`nft monitor` shows what), or the client started without it:"),
        Facts { is_wanted: true, stands: false, runs: false } => Finding::note(
            "kill-switch.later",
            subject,
            "it begins with the client: until then packets leave as without one",
        ),
        Facts { is_wanted: false, stands: true, runs: true } => Finding::note(
            "kill-switch.other",
            subject,
            "on, although the config does not ask for it: the next start takes it away",
        ),
        Facts { is_wanted: false, .. } => Finding::ok(
            "kill-switch",
            subject,
            "off: before the first session, and while no client runs, packets leave beside the tunnel",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn what_the_config_says_and_what_stands_are_compared() {
        for (is_wanted, stands, runs, id, level) in [
            (true, true, true, "kill-switch", Level::Ok),
            (true, true, false, "kill-switch", Level::Ok),
            (true, false, true, "kill-switch.gone", Level::Fail),
            (true, false, false, "kill-switch.later", Level::Note),
            (false, true, true, "kill-switch.other", Level::Note),
            (false, false, true, "kill-switch", Level::Ok),
            (false, false, false, "kill-switch", Level::Ok),
        ] {
            let found = judge(Facts { is_wanted, stands, runs });
            assert_eq!((found.id, found.level), (id, level), "{is_wanted} {stands} {runs}");
        }
    }
}
