//! How the answer to `ropewalk why` looks.

use ropewalk_control::why::{BundleWhy, LinkWhy, TunnelWhy, Verdict, WhyReport};
use ropewalk_settings::figures::rate;

use super::Page;

/// The whole answer.
pub(crate) fn why(report: &WhyReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    page.line(0, &format!("What limited each link over the last {:.1} s:", report.over_s));
    for tunnel in &report.tunnels {
        one(&mut page, tunnel);
    }
    if report.tunnels.is_empty() {
        page.line(2, "There is no tunnel: no client may connect yet.");
    }
    page.text
}

fn one(page: &mut Page, tunnel: &TunnelWhy) {
    page.gap();
    let reason = tunnel.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    page.line(0, &format!("Tunnel with {}: {}{reason}", tunnel.peer, tunnel.state));
    if tunnel.links.is_empty() {
        page.line(2, "No links.");
        return;
    }
    for link in &tunnel.links {
        of_link(page, link);
    }
    bundle(page, "up", &tunnel.up);
    bundle(page, "down", &tunnel.down);
    let TunnelWhy { one_flow, repair, redundancy, .. } = tunnel;
    for note in one_flow.iter().chain(repair).chain(redundancy) {
        page.line(2, note);
    }
}

fn of_link(page: &mut Page, link: &LinkWhy) {
    let LinkWhy { name, up, down, model, carried } = link;
    if (up.factor, &up.why) == (down.factor, &down.why) {
        page.line(2, &format!("{name}: {}: {}", up.factor, up.why));
        carried.iter().for_each(|carried| page.line(4, carried));
        return;
    }
    let way = |page: &mut Page, way: &str, verdict: &Verdict| {
        let Verdict { factor, rate_bps, why, .. } = verdict;
        page.line(4, &format!("{way} {}, {factor}: {why}", rate(*rate_bps)));
    };
    page.line(2, name);
    carried.iter().for_each(|carried| page.line(4, carried));
    way(page, "up", up);
    way(page, "down", down);
    if let Some(model) = model {
        page.line(4, model);
    }
}

fn bundle(page: &mut Page, way: &str, bundle: &BundleWhy) {
    page.line(2, &format!("all together {way}: {}", bundle.why));
}

#[cfg(test)]
mod tests {
    use ropewalk_control::api::{Role, TunnelState};
    use ropewalk_control::why::Factor;

    use super::*;

    #[test]
    fn what_is_the_same_both_ways_is_said_once() {
        let verdict = |factor, why: &str| Verdict {
            factor,
            rate_bps: 1.5e6,
            could_bps: None,
            why: why.to_owned(),
        };
        let bundle = |why: &str| BundleWhy {
            packets_bps: 0.0,
            links_bps: 0.0,
            could_bps: 0.0,
            lost_bps: None,
            why: why.to_owned(),
        };
        let down = verdict(Factor::Down, "down for 12 s: no carrier");
        let report = WhyReport {
            role: Role::Client,
            over_s: 2.04,
            tunnels: vec![TunnelWhy {
                peer: "vps\u{1b}[2J".to_owned(),
                state: TunnelState::Up,
                reason: None,
                links: vec![
                    LinkWhy {
                        name: "wlan".to_owned(),
                        up: verdict(Factor::Window, "its window of 12 packets is full"),
                        down: verdict(Factor::Demand, "nothing is sent on it"),
                        model: Some("model of the way up: found 1.6 Mbit/s".to_owned()),
                        carried: Some("over TLS, because UDP is not answered here".to_owned()),
                    },
                    LinkWhy {
                        name: "lte".to_owned(),
                        up: down.clone(),
                        down,
                        model: None,
                        carried: None,
                    },
                ],
                up: bundle("1.4 Mbit/s of packets"),
                down: bundle("nothing to speak of is carried"),
                one_flow: Some("one flow goes over wlan".to_owned()),
                repair: Some("12 packets sent again".to_owned()),
                redundancy: Some("8 of 100 packets went over one".to_owned()),
            }],
        };
        let expected = "\
What limited each link over the last 2.0 s:

Tunnel with vps\u{fffd}[2J: up
  wlan
    over TLS, because UDP is not answered here
    up 1.5 Mbit/s, window: its window of 12 packets is full
    down 1.5 Mbit/s, no demand: nothing is sent on it
    model of the way up: found 1.6 Mbit/s
  lte: down: down for 12 s: no carrier
  all together up: 1.4 Mbit/s of packets
  all together down: nothing to speak of is carried
  one flow goes over wlan
  12 packets sent again
  8 of 100 packets went over one
";
        assert_eq!(why(&report, 80), expected);
    }
}
