//! How the findings of `ropewalk doctor` look.

use ropewalk_doctor::{Examination, Finding, Level};

use super::Page;

/// Columns in front of what was found.
const INDENT: usize = 22;

/// All examinations; each finding with what fixes it, and the count at the end.
pub(crate) fn doctor(examinations: &[Examination], columns: u16) -> String {
    let mut page = Page::new(columns);
    for examination in examinations {
        page.line(0, &format!("{}: {}", examination.role, examination.config.display()));
        for finding in &examination.findings {
            one(&mut page, finding);
        }
        page.gap();
    }
    let count = |level| {
        let of = examinations.iter().flat_map(|examination| &examination.findings);
        of.filter(|finding| finding.level == level).count()
    };
    let counted =
        [(Level::Fail, "fail"), (Level::Warn, "warn"), (Level::Note, "note"), (Level::Ok, "ok")];
    let counted: Vec<_> = counted
        .into_iter()
        .filter_map(|(level, word)| {
            let count = count(level);
            (count > 0).then(|| format!("{count} {word}"))
        })
        .collect();
    page.line(0, &counted.join(", "));
    page.text
}

fn one(page: &mut Page, finding: &Finding) {
    let level = match finding.level {
        Level::Ok => "ok",
        Level::Note => "note",
        Level::Warn => "warn",
        Level::Fail => "FAIL",
    };
    // Wrapped by itself: the columns before it must not be.
    let mut wrapped = Page::new(page.columns);
    wrapped.line(INDENT, &finding.found);
    let found = wrapped.text.trim();
    let head = format!("  {level:<5} {:<13}", super::clean(&finding.subject));
    if head.chars().count() < INDENT {
        page.text.push_str(&format!("{head:<INDENT$}{found}\n"));
    } else {
        page.text.push_str(&format!("{head}\n{}{found}\n", " ".repeat(INDENT)));
    }
    if finding.commands.is_empty() {
        return;
    }
    let place = if finding.at_proxy { "on the proxy: " } else { "" };
    let advice = format!("{place}{}", finding.advice);
    if !advice.is_empty() {
        page.line(INDENT, &advice);
    }
    for command in &finding.commands {
        // Never wrapped, to be taken as a whole.
        page.text.push_str(&format!("{}{}\n", " ".repeat(INDENT + 4), super::clean(command)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_control::api::Role;

    #[test]
    fn a_finding_is_readable_at_80_columns_and_its_command_stays_whole() {
        let found = "a rule in the chain inet block out drops datagrams to UDP 51900, and that is a long sentence";
        let command = "sudo nft delete rule inet a-very-long-name-of-a-table another-long-name-of-a-chain handle 12";
        let findings = vec![
            Finding::ok("config", "config", "fine"),
            Finding::fail("firewall.rule", "wan1", found, command).advise("at once:"),
            Finding::note(
                "nat.seen",
                "a-long-name-of-a-peer wan0",
                "seen\u{1b}[2J at 198.51.100.2",
            ),
        ];
        let examination = Examination {
            role: Role::Client,
            config: "/etc/ropewalk/client/client.toml".into(),
            findings,
        };
        let text = doctor(&[examination], 80);
        let expected = format!(
            "client: /etc/ropewalk/client/client.toml\n  ok    config        fine\n  FAIL  wan1          \
             a rule in the chain inet block out drops datagrams to UDP\n{0}  51900, and that is a long sentence\n\
             {0}at once:\n{0}    {command}\n  note  a-long-name-of-a-peer wan0\n{0}seen\u{fffd}[2J at 198.51.100.2\n\n\
             1 fail, 1 note, 1 ok\n",
            " ".repeat(INDENT)
        );
        assert_eq!(text, expected);
        for line in text.lines().filter(|line| !line.contains("sudo")) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
