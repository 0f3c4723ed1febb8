//! Which links go over TLS.

use std::net::IpAddr;

use ropewalk_link_io::driver::Io;
use ropewalk_proto::client::{ClientState, LinkKey, Trouble};
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_proto::tunnel::LinkState;
use tokio::sync::mpsc::error::TrySendError;

use super::Daemon;

impl Daemon {
    /// Looks which links are to go over TLS, if it is time: when one of them came up or went, and when one has been
    /// silent for long enough.
    pub(super) fn look_at_tls(&mut self, now: Instant, io: &mut Io<'_>) {
        if self.stopping || self.tls_at.is_none_or(|at| now < at) {
            return;
        }
        let stats = self.client.stats();
        let is_up = |key: LinkKey| {
            let mut links = stats.links.iter().filter(|link| link.key == key);
            links.any(|link| link.link.as_ref().is_some_and(|link| link.state == LinkState::Up))
        };
        let wait = told_to_wait(&self.client.state());
        let (setting, proxy) = (self.config.proxy.tls, self.client.present());
        let outlook = self.links.look_at_tls(now, setting, is_up, wait, proxy);
        self.tls_at = outlook.at;
        for question in outlook.ask {
            // Closed: this daemon ends.
            if let Err(TrySendError::Full(question)) = self.udp_again.try_send(question) {
                let soon = self.links.ask_soon(now, question.slot);
                self.tls_at = earliest(self.tls_at, soon);
            }
        }
        if outlook.changed {
            self.relink(now, io);
        }
    }

    /// The proxy answers by UDP on a link that goes over TLS.
    pub(super) fn on_udp_answer(&mut self, now: Instant, slot: u16, io: &mut Io<'_>) {
        if self.links.note_udp_answer(now, slot) {
            self.relink(now, io);
        }
    }

    /// The names by which the config knows addresses of proxies.
    pub(super) fn names_of_proxies(&self) -> Vec<(IpAddr, String)> {
        let endpoints = self.config.proxy.all_addresses();
        let found = endpoints.into_iter().zip(&self.resolved.each);
        let named = found.filter(|(endpoint, _)| endpoint.address().is_none());
        let each = named.flat_map(|(endpoint, addresses)| {
            addresses.iter().map(move |address| (address.ip(), endpoint.host.clone()))
        });
        each.collect()
    }
}

/// Until when the proxy has this client wait for a session. What it said before, while it is asked again or a session
/// stalls, says nothing of the network the client is in now. Neither does what an observer can forge.
fn told_to_wait(state: &ClientState) -> Option<Instant> {
    let ClientState::Waiting { until, trouble: Trouble::Refused(_) | Trouble::Closed(_) } = state
    else {
        return None;
    };
    Some(*until)
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::wire::frame::CloseReason;
    use ropewalk_proto::wire::hello::answer::Refusal;

    use super::*;

    #[test]
    fn only_a_pause_that_the_proxy_asked_for_is_waited_for() {
        let (since, until) = (Instant::from_millis(1), Instant::from_millis(2));
        let closed = || Trouble::Closed(CloseReason::Shutdown);
        let refused = || Trouble::Refused(Refusal::Full);
        let forged = || Trouble::OtherVersions([2].into_iter().collect());
        let table = [
            (ClientState::Waiting { until, trouble: closed() }, Some(until)),
            (ClientState::Waiting { until, trouble: refused() }, Some(until)),
            (ClientState::Waiting { until, trouble: forged() }, None),
            (ClientState::Waiting { until, trouble: Trouble::NotAuthentic }, None),
            (ClientState::Asking { since, trouble: closed() }, None),
            (ClientState::Asking { since, trouble: refused() }, None),
            (ClientState::Asking { since, trouble: forged() }, None),
            (ClientState::Stalled { since, trouble: refused() }, None),
            (ClientState::Connected { since }, None),
            (ClientState::NoLinks, None),
        ];
        for (state, expected) in table {
            assert_eq!(told_to_wait(&state), expected, "{state:?}");
        }
    }
}
