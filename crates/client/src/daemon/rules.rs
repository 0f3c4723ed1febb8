//! What goes through the tunnel and around it, as it is asked for and changed while the client runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk_control::api::{
    ApiError, ErrorCode, Response, RoutesChange, RoutesReport, RuleStatus,
};
use ropewalk_control::server;
use ropewalk_settings::{Selector, Side};
use tokio::sync::oneshot;

use super::Daemon;
use crate::config::check_lists;
use crate::network::Lists;
use crate::split::{RuleState, Tally};

/// How long an answer waits for what was counted: `nft` takes milliseconds.
const COUNT_TIME: Duration = Duration::from_millis(500);

impl Daemon {
    /// Both lists, and what became of their entries.
    pub(super) fn routes_report(&self) -> RoutesReport {
        let tun = &self.config.tun;
        let (routes, exclude) = (tun.routes.clone(), tun.exclude.clone());
        RoutesReport { routes, exclude, rules: self.rules() }
    }

    /// What became of each rule, so far without what was counted.
    pub(super) fn rules(&self) -> Vec<RuleStatus> {
        self.news.rules.iter().map(status_of).collect()
    }

    /// Other entries of one list from now on.
    pub(super) fn change_routes(&mut self, change: &RoutesChange) -> Result<Response, ApiError> {
        let refused = |message: String| ApiError::new(ErrorCode::BadRequest, message);
        let tun = &self.config.tun;
        let (mut routes, mut exclude) = (tun.routes.clone(), tun.exclude.clone());
        let list = match change.side {
            Side::Inside => &mut routes,
            Side::Outside => &mut exclude,
        };
        changed(list, change).map_err(refused)?;
        check_lists(&routes, &exclude, &self.config.dns)
            .map_err(|(_, message)| refused(message))?;
        // Which programs and domains somebody chooses is not for the log.
        let (added, removed) = (change.add.len(), change.remove.len());
        tracing::info!(side = %change.side, added, removed, "told what goes through the tunnel");
        self.set_routes(Lists { routes, exclude });
        Ok(Response::Routes(Box::new(self.routes_report())))
    }

    /// Has these lists hold.
    pub(super) fn set_routes(&mut self, lists: Lists) {
        if Lists::of(&self.config.tun) == lists {
            return;
        }
        self.config.tun.routes.clone_from(&lists.routes);
        self.config.tun.exclude.clone_from(&lists.exclude);
        self.wanted.send_modify(|wanted| wanted.lists = Some(lists));
    }

    /// Answers who asked at the control socket; with what was counted of the rules, where the answer has them. That is known to
    /// the task that keeps the host's network, for which nobody here waits.
    pub(super) fn count_and_answer(
        &self,
        asked: server::Command,
        mut answer: Result<Response, ApiError>,
    ) {
        let has_rules = rules_of(&mut answer).is_some_and(|rules| !rules.is_empty());
        let (asker, counted) = oneshot::channel();
        // Full: others are being told already; this one is told what is known without.
        if !has_rules || self.counting.try_send(asker).is_err() {
            return asked.answer(answer);
        }
        let ids: Vec<u16> = self.news.rules.iter().map(|state| state.rule.id).collect();
        tokio::spawn(async move {
            if let Ok(Ok(tallies)) = tokio::time::timeout(COUNT_TIME, counted).await
                && let Some(rules) = rules_of(&mut answer)
            {
                fill(rules, &ids, &tallies);
            }
            asked.answer(answer);
        });
    }
}

/// Makes a list what was asked for.
fn changed(list: &mut Vec<Selector>, change: &RoutesChange) -> Result<(), String> {
    for gone in &change.remove {
        let Some(at) = list.iter().position(|one| one == gone) else {
            let name = match change.side {
                Side::Inside => "routes",
                Side::Outside => "exclude",
            };
            return Err(format!("`{gone}` is not in {name}"));
        };
        list.remove(at);
    }
    for new in &change.add {
        if !list.contains(new) {
            list.push(new.clone());
        }
    }
    Ok(())
}

fn status_of(state: &RuleState) -> RuleStatus {
    let RuleState { rule, cgroups, note } = state;
    RuleStatus {
        rule: rule.selector.clone(),
        side: rule.side,
        packets: 0,
        bytes: 0,
        cgroups: cgroups.clone(),
        addresses: None,
        note: note.clone(),
    }
}

/// The rules of an answer that has some.
fn rules_of(answer: &mut Result<Response, ApiError>) -> Option<&mut Vec<RuleStatus>> {
    match answer {
        Ok(Response::Status(report)) => Some(&mut report.rules),
        Ok(Response::Routes(report)) => Some(&mut report.rules),
        Ok(_) | Err(_) => None,
    }
}

/// Puts in what was counted. The rules are in the order of their numbers.
fn fill(rules: &mut [RuleStatus], ids: &[u16], tallies: &BTreeMap<u16, Tally>) {
    for (rule, id) in rules.iter_mut().zip(ids) {
        let Some(tally) = tallies.get(id) else { continue };
        rule.packets = tally.packets;
        rule.bytes = tally.bytes;
        rule.addresses = rule.rule.is_by_domain().then_some(tally.addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split;
    use ropewalk_settings::Text as _;

    fn list(entries: &[&str]) -> Vec<Selector> {
        entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
    }

    #[test]
    fn entries_come_once_and_only_those_that_are_there_go() {
        let mut now = list(&["10.0.0.0/8", "user:7"]);
        let change = |add: &[&str], remove: &[&str]| RoutesChange {
            side: Side::Outside,
            add: list(add),
            remove: list(remove),
        };
        changed(&mut now, &change(&["user:7", "app:x"], &["10.0.0.0/8"])).unwrap();
        assert_eq!(now, list(&["user:7", "app:x"]));
        let error = changed(&mut now, &change(&[], &["app:y"])).unwrap_err();
        assert_eq!(error, "`app:y` is not in exclude");
    }

    #[test]
    fn each_rule_gets_what_was_counted_of_it() {
        let rules = split::rules(&list(&["domain:example.org"]), &list(&["user:7"]));
        let ids: Vec<u16> = rules.iter().map(|rule| rule.id).collect();
        let states =
            rules.into_iter().map(|rule| RuleState { rule, cgroups: Vec::new(), note: None });
        let mut shown: Vec<RuleStatus> = states.map(|state| status_of(&state)).collect();
        let tally = |packets| Tally { packets, bytes: 100 * packets, addresses: 3 };
        fill(&mut shown, &ids, &BTreeMap::from([(ids[0], tally(5)), (ids[1], tally(7))]));
        let told: Vec<_> =
            shown.iter().map(|one| (one.packets, one.bytes, one.addresses)).collect();
        assert_eq!(told, [(5, 500, None), (7, 700, Some(3))]);
    }
}
