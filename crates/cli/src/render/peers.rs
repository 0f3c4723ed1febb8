//! How clients and invitations of a proxy look.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropewalk_control::api::{
    EnabledPeer, Invited, PeerOrigin, PeerStatus, PeersReport, RemovedPeer,
};
use ropewalk_settings::figures::size;

use super::{Page, age};

/// What is said beside an invitation.
pub(crate) fn invited(invited: &Invited, columns: u16) -> String {
    let mut page = Page::new(columns);
    let holds = moment(invited.expires);
    page.line(0, &format!("An invitation for {}, good until {holds}:", invited.name));
    page.fact("proxy", &invited.addresses.join(", "));
    page.fact("its key", &invited.proxy_public_key.to_string());
    if let Some(old) = invited.replaces {
        page.fact("replaces", &format!("{old}, which works until the new key is there"));
    }
    for note in &invited.notes {
        page.fact("note", note);
    }
    page.line(
        0,
        "Type `sudo ropewalk join` on the client and give it this line. The first machine that has it is let in:",
    );
    page.text
}

/// What was taken out.
pub(crate) fn removed(removed: &RemovedPeer, columns: u16) -> String {
    let mut page = Page::new(columns);
    if let Some(key) = removed.public_key {
        page.line(0, &format!("{} is out: its key {key} is refused from now on.", removed.name));
    }
    if removed.invitations > 0 {
        page.line(0, &format!("The invitation for {} is void.", removed.name));
    }
    page.text
}

/// A client that was disabled, or is let in again.
pub(crate) fn enabled(client: &EnabledPeer, columns: u16) -> String {
    let mut page = Page::new(columns);
    let name = &client.name;
    let text = match (client.enabled, client.changed) {
        (true, true) => format!("{name} is let in again."),
        (true, false) => format!("{name} is not disabled: nothing has changed."),
        (false, true) => format!(
            "{name} is disabled: its session ends, and it is told why it gets no other. `ropewalk peer enable {name}` lets it \
             in again."
        ),
        (false, false) => format!("{name} was disabled before: nothing has changed."),
    };
    page.line(0, &text);
    page.text
}

/// All clients, then all open invitations.
pub(crate) fn peers(report: &PeersReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    if !report.running {
        page.line(0, "No proxy runs here; this is what its next start reads.");
        page.gap();
    }
    if report.peers.is_empty() && report.invitations.is_empty() {
        page.line(0, "No client has joined, and none is invited: ropewalk peer add NAME");
    }
    for peer in &report.peers {
        one(&mut page, peer);
    }
    if !report.invitations.is_empty() && !report.peers.is_empty() {
        page.gap();
    }
    for open in &report.invitations {
        let until = moment(open.expires);
        let holds = match open.expired {
            true => format!("expired at {until}"),
            false => format!("open until {until}"),
        };
        let new_key = if open.replaces { " for a new key" } else { "" };
        page.line(0, &format!("{}: invited{new_key}, {holds}", open.name));
    }
    page.text
}

fn one(page: &mut Page, peer: &PeerStatus) {
    let state = peer.state.map(|state| format!("{state}, ")).unwrap_or_default();
    let seen = match (peer.state, peer.last_seen_s) {
        (None, _) => String::new(),
        (Some(_), Some(ago)) => format!("heard of {} ago, ", age(ago)),
        (Some(_), None) => "not heard of since the proxy's start, ".to_owned(),
    };
    let origin = match peer.origin {
        PeerOrigin::Config => "from the config file",
        PeerOrigin::Invitation => "joined by invitation",
    };
    let disabled = if peer.disabled { "disabled, " } else { "" };
    page.line(0, &format!("{}: {disabled}{state}{seen}{origin}", peer.name));
    page.fact("key", &peer.public_key.to_string());
    let inner = [peer.inner_v4.map(|ip| ip.to_string()), peer.inner_v6.map(|ip| ip.to_string())];
    let inner: Vec<_> = inner.into_iter().flatten().collect();
    if !inner.is_empty() {
        page.fact("inside", &inner.join(", "));
    }
    if let Some(proxy) = &peer.proxy {
        page.fact("proxy", proxy);
    }
    if !peer.remotes.is_empty() {
        let remotes: Vec<_> = peer.remotes.iter().map(ToString::to_string).collect();
        page.fact("from", &remotes.join(", "));
    }
    if peer.up_bytes + peer.down_bytes > 0 {
        let (up, down) = (size(peer.up_bytes), size(peer.down_bytes));
        page.fact("traffic", &format!("{up} up, {down} down since the proxy's start"));
    }
}

/// A moment of the wall clock, to the minute, with its distance from the present.
pub(crate) fn moment(unix: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_secs(unix);
    let text = humantime::format_rfc3339_seconds(at).to_string();
    let text = text.get(..16).unwrap_or(&text).replace('T', " ");
    match at.duration_since(SystemTime::now()) {
        Ok(left) => format!("{text} UTC (in {})", age(left.as_secs_f64())),
        Err(_) => format!("{text} UTC"),
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_control::api::{OpenInvitation, TunnelState};
    use ropewalk_settings::PublicKey;

    use super::*;

    fn peer() -> PeerStatus {
        PeerStatus {
            name: "laptop".into(),
            public_key: PublicKey::from_bytes([7; 32]),
            origin: PeerOrigin::Invitation,
            disabled: false,
            state: Some(TunnelState::Up),
            last_seen_s: Some(2.04),
            up_bytes: 1 << 20,
            down_bytes: 1 << 30,
            inner_v4: Some([10, 77, 0, 2].into()),
            inner_v6: None,
            remotes: vec![
                "203.0.113.9:4711".parse().unwrap(),
                "[2001:db8::9]:4711".parse().unwrap(),
            ],
            proxy: None,
        }
    }

    #[test]
    fn a_client_is_shown_with_all_that_is_known() {
        let open = |name: &str, expires, expired, replaces| OpenInvitation {
            name: name.into(),
            expires,
            expired,
            replaces,
        };
        let report = PeersReport {
            running: true,
            peers: vec![peer()],
            invitations: vec![
                open("phone", 946_684_800, true, false),
                open("laptop", 946_684_800, true, true),
            ],
        };
        let expected = "\
laptop: up, heard of 2s ago, joined by invitation
  key        BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=
  inside     10.77.0.2
  from       203.0.113.9:4711, [2001:db8::9]:4711
  traffic    1.05 MB up, 1.07 GB down since the proxy's start

phone: invited, expired at 2000-01-01 00:00 UTC
laptop: invited for a new key, expired at 2000-01-01 00:00 UTC
";
        assert_eq!(peers(&report, 80), expected);
    }

    #[test]
    fn a_client_that_is_disabled_is_shown_so_with_the_way_back() {
        let disabled = PeerStatus { disabled: true, state: Some(TunnelState::Closed), ..peer() };
        let report = PeersReport { running: true, peers: vec![disabled], invitations: vec![] };
        let text = peers(&report, 80);
        assert!(text.starts_with("laptop: disabled, closed, heard of 2s ago"), "{text}");
        for (now, changed, expected) in [
            (false, true, "`ropewalk peer enable laptop`"),
            (false, false, "was disabled before"),
            (true, true, "let in again"),
            (true, false, "is not disabled"),
        ] {
            let public_key = PublicKey::from_bytes([7; 32]);
            let name = "laptop".to_owned();
            let told = enabled(&EnabledPeer { name, public_key, enabled: now, changed }, 200);
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn what_only_a_running_proxy_knows_is_not_made_up() {
        let quiet =
            PeerStatus { state: None, last_seen_s: None, up_bytes: 0, down_bytes: 0, ..peer() };
        let report = PeersReport { running: false, peers: vec![quiet], invitations: vec![] };
        let text = peers(&report, 80);
        assert!(text.contains("No proxy runs here") && !text.contains("heard"), "{text}");
        let unseen = PeerStatus { state: Some(TunnelState::Idle), last_seen_s: None, ..peer() };
        let report = PeersReport { running: true, peers: vec![unseen], invitations: vec![] };
        assert!(peers(&report, 80).contains("not heard of since the proxy's start"));
    }
}
