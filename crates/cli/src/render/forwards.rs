//! How the ports look that lead to clients.

use ropewalk_control::api::{ForwardState, ForwardStatus, ForwardTraffic, ForwardsReport};
use ropewalk_settings::figures::size;

use super::{Page, clean};

/// Each with where it leads, and what it has carried.
pub(crate) fn forwards(report: &ForwardsReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    if report.forwards.is_empty() {
        page.line(
            0,
            "No port leads to a client: write a [[forward]] into the proxy's config, then `ropewalk reload`.",
        );
    }
    for forward in &report.forwards {
        one(&mut page, forward);
    }
    page.text
}

/// The same in a line, for the status.
pub(crate) fn line(forwards: &[ForwardStatus]) -> String {
    let count = |state| forwards.iter().filter(|forward| forward.state == state).count();
    let states =
        [ForwardState::Active, ForwardState::Away, ForwardState::Waiting, ForwardState::Refused];
    let counts = states.map(|state| (count(state), state)).into_iter().filter(|(of, _)| *of > 0);
    let counts: Vec<_> = counts.map(|(count, state)| format!("{count} {state}")).collect();
    format!("{} (`ropewalk forward` shows them)", counts.join(", "))
}

fn one(page: &mut Page, forward: &ForwardStatus) {
    let ForwardStatus { protocol, port, to, to_port, from, state, reason, inner, notes, traffic } =
        forward;
    let (ports, to) = (format!("{} {port}", protocol.in_words()), clean(to));
    let to = if port.is_one() { format!("{to} port {to_port}") } else { to };
    let reason = reason.as_deref().map(|reason| format!(": {}", clean(reason)));
    page.line(0, &format!("{ports} to {to}: {state}{}", reason.unwrap_or_default()));
    if !inner.is_empty() {
        let inner: Vec<_> = inner.iter().map(ToString::to_string).collect();
        page.fact("inside", &inner.join(", "));
    }
    if !from.is_empty() {
        let from: Vec<_> = from.iter().map(ToString::to_string).collect();
        page.fact("only from", &from.join(", "));
    }
    if *traffic != ForwardTraffic::default() {
        page.fact("carried", &carried(traffic));
    }
    for note in notes {
        page.fact("note", &clean(note));
    }
}

fn carried(traffic: &ForwardTraffic) -> String {
    let (down, up) = (size(traffic.down_bytes), size(traffic.up_bytes));
    format!(
        "{} connections, {} packets ({down}) to the client, {} ({up}) from it",
        traffic.connections, traffic.down_packets, traffic.up_packets
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::ForwardProtocol;
    use ropewalk_settings::{Network, PortRange, Text as _};

    fn forward(port: &str, state: ForwardState) -> ForwardStatus {
        ForwardStatus {
            protocol: ForwardProtocol::Tcp,
            port: PortRange::from_text(port).unwrap(),
            to: "laptop".to_owned(),
            to_port: 443,
            from: Vec::new(),
            state,
            reason: None,
            inner: Vec::new(),
            notes: Vec::new(),
            traffic: ForwardTraffic::default(),
        }
    }

    #[test]
    fn each_port_says_where_it_leads_what_it_carried_and_what_is_in_the_way() {
        let active = ForwardStatus {
            from: vec![Network::from_text("198.51.100.0/24").unwrap()],
            inner: vec![[10, 77, 0, 5].into(), "fd77::5".parse().unwrap()],
            notes: vec!["nginx (process 7) listens at TCP 8443".to_owned()],
            traffic: ForwardTraffic {
                connections: 12,
                down_packets: 300,
                down_bytes: 40_000,
                up_packets: 500,
                up_bytes: 700_000,
            },
            ..forward("8443", ForwardState::Active)
        };
        let waiting = ForwardStatus {
            protocol: ForwardProtocol::Both,
            to: "bo\u{1b}at".to_owned(),
            reason: Some("no client is called so".to_owned()),
            ..forward("5000-5010", ForwardState::Waiting)
        };
        let report = ForwardsReport { forwards: vec![active, waiting] };
        let expected = "\
TCP 8443 to laptop port 443: active
  inside     10.77.0.5, fd77::5
  only from  198.51.100.0/24
  carried    12 connections, 300 packets (40 kB) to the client, 500 (700 kB) from it
  note       nginx (process 7) listens at TCP 8443
";
        let text = forwards(&report, 100);
        assert!(text.starts_with(expected), "{text}");
        let end = text.strip_prefix(expected).unwrap();
        assert!(end.starts_with("TCP and UDP 5000-5010 to bo"), "{end}");
        assert!(end.ends_with("at: waiting: no client is called so\n"), "{end}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
        assert_eq!(line(&report.forwards), "1 active, 1 waiting (`ropewalk forward` shows them)");
    }

    #[test]
    fn where_nothing_is_forwarded_it_is_said_how_to() {
        assert!(forwards(&ForwardsReport::default(), 80).contains("[[forward]]"));
    }
}
