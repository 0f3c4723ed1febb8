//! The page of throughput: what holds, then a table for each part.

use super::markdown::Table;
use super::values::number;
use crate::results::Spread;
use crate::throughput::NAME;
use crate::throughput::contender::Part;
use crate::throughput::figures::{Check, Figures, Measured};
use crate::throughput::load::{FULL, LOSSLESS_PERCENT, Ladder, SMALL, at_rate};
use crate::throughput::targets::{REFERENCE, pairs};
use crate::throughput::udp::Way;

/// A picture: its title, its file, the SVG.
pub type Drawn = (String, String, String);

/// The whole page.
#[must_use]
pub fn page(figures: &Figures, pictures: &[Drawn], findings: Option<String>) -> String {
    let mut page = "# throughput: how fast, and at what cost\n\n\
        Both ends of each tunnel and the generator on the cores of one machine, over veth pairs without limits; medians, with the \
        lowest and the highest of the repetitions. \"Up\" is from the client, \"s/GB\" the CPU seconds that one end of the tunnel \
        takes for a GB of payload, \"others\" the cores that the generator and whatever else ran kept busy. \
        Contenders take turns, so ratios count more than figures. Drawn by `ropewalk-benches report`; do not edit.\n"
        .to_owned();
    page += &format!("\n{}", provenance(figures));
    if figures.quick {
        page += "\nThis is of a quick run: for a look, not for figures.\n";
    }
    if figures.dirty {
        page += "\nThis is of code that no commit has.\n";
    }
    for one in &figures.contenders {
        if let Some(why) = &one.missing {
            page += &format!("\n**Missing**: {} {why}.\n", one.name);
        }
    }
    page += &format!("\n{}", checks(figures));
    if let Some(findings) = findings {
        page += &format!("\n## Findings\n\n{}\n", findings.trim());
    }
    page += &format!("\n## TCP\n\n{}\n{}", tcp(figures), cost(figures));
    for (title, file, _) in pictures {
        page += &format!("\n![{title}]({file})\n");
    }
    for ladder in [FULL, SMALL] {
        page += &format!("\n## UDP, packets of {} bytes\n\n{}", ladder.size, udp(figures, ladder));
    }
    page + &format!("\n## Idle\n\n{}", idle(figures))
}

/// Of the index of all results.
#[must_use]
pub fn line(figures: &Figures) -> String {
    let held = figures.checks.iter().filter(|check| check.ok).count();
    format!(
        "\n[{NAME}]({NAME}/README.md): how fast, and at what cost, beside {REFERENCE} and others; {held} of {} checks hold.\n",
        figures.checks.len()
    )
}

/// What had to hold.
#[must_use]
pub fn checks(figures: &Figures) -> String {
    let held = figures.checks.iter().filter(|check| check.ok).count();
    let mut table = Table::new(&["what", "measured", "must be", "holds"]);
    for Check { what, at_least, at_most, measured, ok } in &figures.checks {
        let measured = measured.map_or_else(|| "not measured".to_owned(), |m| number(m, 2));
        let least = at_least.map(|bound| format!("≥ {bound}"));
        let most = at_most.map(|bound| format!("≤ {bound}"));
        let must = least.or(most).unwrap_or_default();
        let holds = if *ok { "yes" } else { "**no** ✗" };
        table.row(&[what, &measured, &must, holds]);
    }
    format!("{held} of {} checks hold.\n\n{table}", figures.checks.len())
}

fn provenance(figures: &Figures) -> Table {
    let mut table = Table::new(&["commit", "date", "repetitions", "machine"]);
    let commit = figures.commit.get(..12).unwrap_or(&figures.commit);
    let machine = &figures.machine;
    let machine = format!(
        "{}, {} cores, Linux {}, {}",
        machine.cpu, machine.cores, machine.kernel, machine.os
    );
    table.row(&[commit, &figures.date, &figures.repetitions.to_string(), &machine]);
    table
}

/// Those that were measured in a part.
fn of(figures: &Figures, part: Part) -> impl Iterator<Item = &Measured> {
    let begins = match part {
        Part::Tcp => "tcp",
        Part::Udp => "udp",
        Part::Ping => "idle",
    };
    figures
        .contenders
        .iter()
        .filter(move |one| one.summary.keys().any(|name| name.starts_with(begins)))
}

fn spread(spread: Option<&Spread>, decimals: usize) -> String {
    let Some(spread) = spread else { return String::new() };
    let [low, middle, high] =
        [spread.lowest, spread.median, spread.highest].map(|figure| number(figure, decimals));
    if low == high { middle } else { format!("{middle} ({low} to {high})") }
}

fn tcp(figures: &Figures) -> String {
    let loads: Vec<(u8, Way)> =
        [1, 4].into_iter().flat_map(|connections| Way::ALL.map(|way| (connections, way))).collect();
    let mut headings = vec!["Gbit/s".to_owned()];
    headings.extend(
        loads.iter().map(|(connections, way)| format!("{connections} TCP, {}", way.as_str())),
    );
    headings.extend(Way::ALL.map(|way| format!("1 TCP, {}, × {REFERENCE}", way.as_str())));
    let mut table = Table::new(&headings);
    for one in of(figures, Part::Tcp) {
        let mut row = vec![one.name.clone()];
        for (connections, way) in &loads {
            let name = format!("tcp{connections}-{}.gbit", way.as_str());
            row.push(spread(one.summary.get(&name), 2));
        }
        // Through a NAT as through a NAT.
        let reference = figures
            .contenders
            .iter()
            .find(|other| other.nat == one.nat && other.name.split(',').next() == Some(REFERENCE));
        for way in Way::ALL {
            let name = format!("tcp1-{}.gbit", way.as_str());
            let ratios = pairs(Some(one), reference, &name, |one, other| one / other);
            row.push(spread(Spread::of(ratios).as_ref(), 2));
        }
        table.row(&row);
    }
    table.to_string()
}

fn cost(figures: &Figures) -> String {
    let mut headings = vec!["one TCP".to_owned()];
    for way in Way::ALL {
        let way = way.as_str();
        headings.extend([
            format!("{way}: client, s/GB"),
            format!("{way}: proxy, s/GB"),
            format!("{way}: others, cores"),
        ]);
    }
    headings.extend(["ping beside the download, ms".to_owned(), "p99, ms".to_owned()]);
    let mut table = Table::new(&headings);
    for one in of(figures, Part::Tcp) {
        let mut row = vec![one.name.clone()];
        for way in Way::ALL {
            for value in ["near_s_per_gb", "far_s_per_gb", "others_cores"] {
                let name = format!("tcp1-{}.{value}", way.as_str());
                row.push(spread(one.summary.get(&name), 2));
            }
        }
        for value in ["ping-beside.p50_ms", "ping-beside.p99_ms"] {
            row.push(spread(one.summary.get(value), 2));
        }
        table.row(&row);
    }
    table.to_string()
}

fn udp(figures: &Figures, ladder: Ladder) -> String {
    let mut text = String::new();
    for way in Way::ALL {
        let mut headings = vec![format!("{}: offered, thousand packets/s", way.as_str())];
        headings.extend(of(figures, Part::Udp).flat_map(|one| {
            ["came", "lost, %", "client, µs", "proxy, µs"]
                .map(|what| format!("{}: {what}", one.name))
        }));
        let mut table = Table::new(&headings);
        for rate in ladder.rates {
            let mut row = vec![number(*rate, 0)];
            for one in of(figures, Part::Udp) {
                for (value, decimals) in
                    [("kpps", 1), ("lost_percent", 2), ("near_us", 2), ("far_us", 2)]
                {
                    let spread = one.summary.get(&at_rate(ladder, way, *rate, value));
                    row.push(
                        spread.map_or_else(String::new, |spread| number(spread.median, decimals)),
                    );
                }
            }
            table.row(&row);
        }
        text += &format!("{table}\n");
    }
    let mut table = Table::new(&["without loss, thousand packets/s", "up", "down"]);
    for one in of(figures, Part::Udp) {
        let most = |way: Way| {
            let name = format!("udp{}-{}.lossless_kpps", ladder.size, way.as_str());
            spread(one.summary.get(&name), 1)
        };
        table.row(&[one.name.clone(), most(Way::Up), most(Way::Down)]);
    }
    let most = number(LOSSLESS_PERCENT, 1);
    format!(
        "{text}CPU in µs for each packet that came. Less than {most} % missing counts as no loss.\n\n{table}"
    )
}

fn idle(figures: &Figures) -> String {
    let mut table = Table::new(&[
        "",
        "round trip, ms",
        "client wakes, a second",
        "proxy wakes, a second",
        "proxy, % of a core",
        "session, KiB",
        "beginning one, µs",
    ]);
    for one in of(figures, Part::Ping) {
        let of = |name: &str, decimals| spread(one.summary.get(name), decimals);
        table.row(&[
            one.name.clone(),
            of("idle.p50_ms", 3),
            of("idle.near_sleeps", 1),
            of("idle.far_sleeps", 1),
            of("idle.far_core_percent", 2),
            of("sessions.kib", 1),
            of("sessions.us_to_begin", 0),
        ]);
    }
    table.to_string()
}
