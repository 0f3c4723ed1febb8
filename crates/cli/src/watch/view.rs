//! What is shown of a status: a row for each link, or for each client of a proxy.

use ropewalk_control::api::{LinkState, LinkStatus, Role, StatusReport, TunnelState, TunnelStatus};
use ropewalk_control::why::{LinkWhy, Verdict, judge};

use crate::render::{age, clean};

/// One moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// Whose it is, and how it does.
    pub(crate) title: String,
    /// Packets of all rows together, bits per second.
    pub(crate) up_bps: f64,
    /// The same down.
    pub(crate) down_bps: f64,
    /// What can be chosen.
    pub(crate) rows: Vec<Row>,
    /// That it is not of now, and why.
    pub(crate) trouble: Option<String>,
}

/// A link, or a client of a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) name: String,
    /// In a word.
    pub(crate) state: String,
    /// How that is to be taken.
    pub(crate) health: Health,
    /// Its figures in a line.
    pub(crate) facts: String,
    /// Bits per second.
    pub(crate) up_bps: f64,
    /// The same down.
    pub(crate) down_bps: f64,
    /// What limits it: a sentence for each direction, or one for both; and what a model of it found.
    pub(crate) why: Vec<String>,
}

/// How a state is to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    /// It works.
    Good,
    /// It is on its way.
    Waiting,
    /// It does not work.
    Bad,
    /// Nobody wants it to.
    Off,
}

impl View {
    /// What there is to show of `report`; `before` is an earlier one of the same daemon.
    pub(crate) fn of(before: &StatusReport, report: &StatusReport) -> Self {
        let daemon = &report.daemon;
        let up_bps = report.tunnels.iter().map(|tunnel| tunnel.up.rate_bps).sum();
        let down_bps = report.tunnels.iter().map(|tunnel| tunnel.down.rate_bps).sum();
        let role = format!("ropewalk {} {}", daemon.role, daemon.program_version);
        let (title, rows) = match report.tunnels.as_slice() {
            [tunnel] => {
                let why = judge(before, report, &[]).tunnels.into_iter().next();
                let why = why.map(|why| why.links).unwrap_or_default();
                let links = tunnel.links.iter().map(|link| of_link(tunnel, link, &why));
                (format!("{role}  {}", of_tunnel(tunnel)), links.collect())
            }
            tunnels => {
                let up = tunnels.iter().filter(|tunnel| tunnel.state == TunnelState::Up).count();
                let what = if daemon.role == Role::Proxy { "clients connected" } else { "tunnels" };
                let rows = tunnels.iter().map(of_client).collect();
                (format!("{role}  {up} of {} {what}", tunnels.len()), rows)
            }
        };
        Self { title, up_bps, down_bps, rows, trouble: None }
    }
}

fn of_tunnel(tunnel: &TunnelStatus) -> String {
    let up = tunnel.links.iter().filter(|link| link.state == LinkState::Up).count();
    let (state, ago) = (tunnel.state, age(tunnel.state_age_s));
    let reason = tunnel.reason.as_ref().map(|reason| format!(": {}", clean(reason)));
    format!(
        "{state} for {ago} over {up} of {} links{}",
        tunnel.links.len(),
        reason.unwrap_or_default()
    )
}

fn of_link(tunnel: &TunnelStatus, link: &LinkStatus, why: &[LinkWhy]) -> Row {
    let health = match link.state {
        LinkState::Up => Health::Good,
        LinkState::Joining | LinkState::Suspect => Health::Waiting,
        LinkState::Down => Health::Bad,
        LinkState::Disabled => Health::Off,
    };
    let sum = |rate: fn(&LinkStatus) -> f64| tunnel.links.iter().map(rate).sum::<f64>();
    let share = |own: f64, all: f64| if all > 0.0 { own / all * 100.0 } else { 0.0 };
    let up = share(link.up.rate_bps, sum(|link| link.up.rate_bps));
    let down = share(link.down.rate_bps, sum(|link| link.down.rate_bps));
    let rtt = link.srtt_ms.map_or_else(|| "     -   ".to_owned(), |ms| format!("{ms:6.1} ms"));
    let loss = link
        .loss_recent
        .map_or_else(|| "   - ".to_owned(), |lost| format!("{:4.1} %", lost * 100.0));
    let said = why.iter().find(|said| said.name == link.name);
    let why = said.map(sentences).unwrap_or_default();
    Row {
        name: clean(&link.name),
        state: link.state.to_string(),
        health,
        facts: format!("RTT {rtt}  loss {loss}  share {up:3.0} % up {down:3.0} % down"),
        up_bps: link.up.rate_bps,
        down_bps: link.down.rate_bps,
        why,
    }
}

fn sentences(why: &LinkWhy) -> Vec<String> {
    let LinkWhy { up, down, model, carried, .. } = why;
    let carried = carried.iter().map(|carried| clean(carried));
    if up.why == down.why {
        let both = clean(&format!("{}: {}", up.factor, up.why));
        return carried.chain([both]).collect();
    }
    let one =
        |way, verdict: &Verdict| clean(&format!("{way}: {}: {}", verdict.factor, verdict.why));
    let model = model.iter().map(|model| clean(model));
    carried.chain([one("up", up), one("down", down)]).chain(model).collect()
}

fn of_client(tunnel: &TunnelStatus) -> Row {
    let health = match tunnel.state {
        TunnelState::Up => Health::Good,
        TunnelState::Connecting => Health::Waiting,
        TunnelState::Stalled => Health::Bad,
        TunnelState::Idle | TunnelState::Closed => Health::Off,
    };
    let up = tunnel.links.iter().filter(|link| link.state == LinkState::Up).count();
    let address = tunnel.inner_v4.map(|address| address.to_string()).unwrap_or_default();
    let links: Vec<_> =
        tunnel.links.iter().map(|link| format!("{} {}", link.name, link.state)).collect();
    let reason = tunnel.reason.iter().map(|reason| clean(reason));
    Row {
        name: clean(&tunnel.peer),
        state: tunnel.state.to_string(),
        health,
        facts: format!("{up} of {} links  {address}", tunnel.links.len()),
        up_bps: tunnel.up.rate_bps,
        down_bps: tunnel.down.rate_bps,
        why: reason.chain([clean(&links.join(", "))]).collect(),
    }
}
