//! What is answered at the control socket.

use ropewalk_control::api::{
    ApiError, ErrorCode, FlowsReport, KillSwitch, Request, Response, StatusReport,
};
use ropewalk_daemon::{offload, reload as reloading, scheduling_status};
use ropewalk_link_io::driver::Io;
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_settings::{NamePattern, Scheduling};

use super::Daemon;
use crate::status::{self, Facts};

/// Why a client takes no terms of a link with its scheduler.
const IS_CHANGED_BY: &str =
    "a client's link is set for both directions with `ropewalk links set LINK KEY=VALUE`";

impl Daemon {
    /// What somebody asked at the control socket.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        request: Request,
        io: &mut Io<'_>,
    ) -> Result<Response, ApiError> {
        match request {
            Request::ChangeLink(change) => self.change_link(now, &change, io),
            // Dealt with before.
            Request::Reload | Request::History(_) | Request::Devices | Request::LimitDevice(_) => {
                Err(reloading::is_busy())
            }
            Request::Scheduling { peer: Some(peer) }
            | Request::SetScheduling { peer: Some(peer), .. }
            | Request::Flows { peer: Some(peer), .. } => Err(scheduling_status::no_peers(&peer)),
            Request::RemovePeer { name } | Request::EnablePeer { name, .. } => {
                Err(scheduling_status::no_peers(&name))
            }
            Request::Invite(wish) => Err(scheduling_status::no_peers(&wish.name)),
            Request::Peers => Err(scheduling_status::has_no_peers()),
            Request::Forwards => Err(scheduling_status::has_no_forwards()),
            Request::Routes => Ok(Response::Routes(Box::new(self.routes_report()))),
            Request::ChangeRoutes(change) => self.change_routes(&change),
            Request::Proxies => Ok(Response::Proxies(self.proxies_report(now))),
            Request::UseProxy { name } => self.use_proxy(now, &name),
            Request::StartSpeedTest(wish) => self.start_speed_test(now, &wish),
            Request::SpeedTest { id } => self.show_speed_test(now, id),
            Request::EndSpeedTest { id } => self.end_speed_test(now, id),
            Request::Status => Ok(Response::Status(Box::new(self.report(now, io)))),
            Request::Scheduling { peer: None } => Ok(self.scheduling()),
            Request::SetScheduling { peer: None, scheduling } => {
                if let Some(name) = scheduling.terms.keys().next() {
                    let message = format!("link {}: {}", name.escape_debug(), IS_CHANGED_BY);
                    return Err(ApiError::new(ErrorCode::BadRequest, message));
                }
                self.set_scheduling(now, *scheduling);
                Ok(self.scheduling())
            }
            Request::Flows { peer: None, limit } => {
                Ok(Response::Flows(Box::new(self.flows(now, limit))))
            }
        }
    }

    fn scheduling(&self) -> Response {
        Response::Scheduling(Box::new(self.config.tunnel.scheduling.clone()))
    }

    fn flows(&mut self, now: Instant, limit: usize) -> FlowsReport {
        let flows = self.client.flows(now, limit);
        let links = self.client.stats().links;
        let known = |id: LinkId, name: &str| {
            let key = links.iter().find(|link| link.link.as_ref().is_some_and(|l| l.id == id));
            let link = key.and_then(|link| self.links.of(link.key));
            match link {
                Some(link) => (link.decision.name.clone(), Some(link.decision.interface.clone())),
                None => (name.to_owned(), None),
            }
        };
        let scheduler = self.config.tunnel.scheduling.scheduler;
        scheduling_status::flows(self.peer(now), scheduler, flows.as_ref(), known)
    }

    pub(super) fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling) {
        tracing::info!(scheduler = %scheduling.scheduler, "told how to schedule");
        self.client.set_scheduling(now, &scheduling);
        self.config.tunnel.scheduling = scheduling;
    }

    fn report(&self, now: Instant, io: &Io<'_>) -> StatusReport {
        let stats = self.client.stats();
        let mut warnings = self.news.problems.clone();
        warnings.extend(self.news.warnings.iter().cloned());
        warnings.extend(self.news.unknown_interfaces(|_| true));
        warnings.extend(self.news.overlaps());
        warnings.extend(self.budget.warnings().cloned());
        let history = self.history.status();
        warnings.extend(history.trouble.clone());
        warnings.extend(self.displaced.clone());
        warnings.extend(self.unknown_choice());
        let is_there = |pattern: &NamePattern| {
            self.news.seats.iter().any(|seat| pattern.matches(&seat.interface))
        };
        let absent = self.config.links.waited_for(is_there);
        warnings.extend(
            absent.map(|pattern| format!("no interface is called {pattern}; waiting for one")),
        );
        let links: Vec<_> = self.links.iter().map(|link| link.decision.name.as_str()).collect();
        // Without links there is nothing to compare with, and that is told elsewhere.
        if !links.is_empty()
            && let Err(error) = self.config.tunnel.scheduling.check_links(&links)
        {
            warnings.push(format!("what is said of it has no effect at present: {error}"));
        }
        let facts = Facts {
            now,
            started: self.started,
            keys_since: self.keys_since,
            config: &self.config,
            peer: (self.peer(now), self.client.present()),
            links: &self.links,
            carrier_trouble: &|socket| io.sockets.carrier_trouble(socket),
            allowances: self.budget.allowances(),
            state: self.client.state(),
            routed: self.is_routed(),
            stats: &stats,
            since: self.state.1,
            unresolved: self.resolved.trouble.as_deref(),
            warnings,
            history,
            kill_switch: match (self.config.kill_switch, self.news.unlocked) {
                (false, _) => KillSwitch::Off,
                (true, false) => KillSwitch::On,
                (true, true) => KillSwitch::Failed,
            },
            tun: io.tun.counters(),
            offload: offload::status(
                &self.config.tunnel.offload,
                io.tun.offload(),
                io.sockets.offload(),
            ),
            send_errors: &self.send_errors,
        };
        let proxies = Some(self.proxies_report(now)).filter(|report| report.proxies.len() > 1);
        let rules = self.rules();
        let report = status::report(facts, |socket| io.sockets.local_addr(socket));
        StatusReport { rules, proxies, ..report }
    }
}
