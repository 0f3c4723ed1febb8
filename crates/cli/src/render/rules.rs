//! How it looks what goes through the tunnel, and what around it, by program, user and domain.

use ropewalk_control::api::{RoutesReport, RuleStatus};
use ropewalk_settings::figures::size;
use ropewalk_settings::{Selector, Side};

use super::Page;

/// Both lists, and what became of their entries.
pub(crate) fn routes(report: &RoutesReport, columns: u16) -> String {
    let mut page = Page::new(columns);
    for (name, list) in [("routes", &report.routes), ("exclude", &report.exclude)] {
        page.fact(name, &in_list(list));
    }
    rules(&mut page, &report.rules);
    page.text
}

/// Each entry that is no prefix, if there are some.
pub(super) fn rules(page: &mut Page, rules: &[RuleStatus]) {
    if rules.is_empty() {
        return;
    }
    page.gap();
    page.line(0, "Chosen, the first that fits:");
    for rule in rules {
        page.line(2, &in_words(rule));
    }
}

fn in_list(list: &[Selector]) -> String {
    match list {
        [] => "none".to_owned(),
        list => list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn in_words(rule: &RuleStatus) -> String {
    let RuleStatus { rule, side, packets, bytes, cgroups, addresses, note } = rule;
    let way = match side {
        Side::Outside => "around the tunnel",
        Side::Inside => "through the tunnel",
    };
    let groups = match cgroups.len() {
        0 => None,
        1 => Some("1 control group".to_owned()),
        count => Some(format!("{count} control groups")),
    };
    let addresses = addresses.map(|count| format!("{count} addresses"));
    let sent = Some(format!("{packets} packets ({}) sent", size(*bytes)));
    let facts: Vec<String> = [sent, groups, addresses].into_iter().flatten().collect();
    let note = note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
    format!("{rule} {way}: {}{note}", facts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::Text as _;

    fn rule(entry: &str, side: Side) -> RuleStatus {
        RuleStatus {
            rule: Selector::from_text(entry).unwrap(),
            side,
            packets: 12,
            bytes: 3400,
            cgroups: Vec::new(),
            addresses: None,
            note: None,
        }
    }

    #[test]
    fn each_entry_says_where_it_leads_what_was_sent_and_why_it_chooses_nothing() {
        let app =
            RuleStatus { cgroups: vec!["a/b".to_owned()], ..rule("app:firefox", Side::Outside) };
        let unit = RuleStatus {
            note: Some("not running".to_owned()),
            ..rule("unit:a.service", Side::Inside)
        };
        let domain = RuleStatus { addresses: Some(7), ..rule("domain:example.org", Side::Inside) };
        let report = RoutesReport {
            routes: vec![unit.rule.clone(), domain.rule.clone()],
            exclude: vec![app.rule.clone()],
            rules: vec![app, unit, domain],
        };
        let expected = "  routes     unit:a.service, domain:example.org
  exclude    app:firefox

Chosen, the first that fits:
  app:firefox around the tunnel: 12 packets (3.4 kB) sent, 1 control group
  unit:a.service through the tunnel: 12 packets (3.4 kB) sent; not running
  domain:example.org through the tunnel: 12 packets (3.4 kB) sent, 7 addresses
";
        assert_eq!(routes(&report, 80), expected);
        let none = "  routes     none\n  exclude    none\n";
        assert_eq!(routes(&RoutesReport::default(), 80), none);
    }
}
