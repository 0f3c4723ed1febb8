//! A scenario file: links, traffic, settings of the tunnel, and what must come out. The same file
//! runs in virtual time and on the real kernel.
//!
//! The file ([`mod@file`]) is what a person writes: TOML, unknown names refused. A [`Scenario`] is what
//! it means: conditions per direction and moment, ready for [`Netem`] and
//! [`Emulator`](crate::emulator::Emulator).

mod capacity;
pub mod file;
mod outages;
mod rate;
mod tunnel;
mod value;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::rngs::SmallRng;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Direction;

use self::file::{
    Check, LinkSection, ScenarioFile, SettingsSection, TrafficSection, TunnelSection,
};
pub use self::outages::Outage;
pub use self::rate::{Folders, TraceSource};
use self::rate::{Rates, Way, delayed};
use self::value::{background, milliseconds, positive_rate, seconds, share};
use crate::loss::{GilbertElliott, Loss};
use crate::netem::{Conditions, Cut, Marking, Netem, Policer, QueueLimit, Rate};
use crate::trace::TraceError;

/// A scenario, checked and ready to run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// A short name, for tables and files of results.
    pub name: String,
    /// What it shows, for people.
    pub description: String,
    /// What decides losses and jitter.
    pub seed: u64,
    /// How long it runs; `None` until all traffic has ended.
    pub duration: Option<Duration>,
    /// The links, in the order of the file.
    pub links: Vec<Link>,
    /// What runs through the tunnel.
    pub traffic: Vec<TrafficSection>,
    /// How the tunnel is set.
    pub tunnel: TunnelSection,
    /// What must come out.
    pub checks: Vec<Check>,
}

/// One link of a scenario.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Which way the tunnel sends packets on it.
    pub direction: Direction,
    /// From the client.
    pub upstream: Course,
    /// To the client.
    pub downstream: Course,
    /// After how long without a packet its NAT forgets a UDP flow; `None` is the router's default.
    pub nat_udp_timeout: Option<Duration>,
    /// Whether others that send on it are on no counter of the client's interface.
    pub others_unseen: bool,
    /// When it is away, ascending.
    pub outages: Vec<Outage>,
}

/// What one direction of a link is like, from the beginning of the scenario to its end.
#[derive(Clone, PartialEq, Debug)]
pub struct Course {
    /// Before the beginning. A trace begins with the scenario, so until then its mean rate stands here.
    pub initial: Conditions,
    /// From the beginning on, by time since then, ascending.
    pub changes: Vec<(Duration, Conditions)>,
    /// Which traces it follows.
    pub traces: Vec<TraceSource>,
}

impl Course {
    /// A link in virtual time that follows this course from `start`.
    #[must_use]
    pub fn netem<T>(&self, start: Instant, rng: SmallRng) -> Netem<T> {
        let mut netem = Netem::new(start, self.initial.clone(), rng);
        for (at, conditions) in &self.changes {
            netem.plan_change(start + *at, conditions.clone());
        }
        netem
    }
}

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Not TOML, or a name or type that does not belong there. Says line and column.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("{place}: {problem}")]
    Invalid {
        /// Which link, traffic or check.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A trace cannot be used.
    #[error("{place}: {source}")]
    Trace {
        /// Which link.
        place: String,
        /// What is wrong with the trace.
        source: TraceError,
    },
}

impl Scenario {
    /// Reads a scenario file. Traces are looked for from its folder.
    ///
    /// # Errors
    /// If it cannot be read or makes no sense, with the place.
    pub fn open(path: &Path) -> Result<Self, ScenarioError> {
        Self::open_with(path, None)
    }

    /// The same with a folder of recordings.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, recordings: Option<&Path>) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.to_path_buf(), source })?;
        let traces = path.parent().unwrap_or(Path::new("."));
        Self::parse(&text, Folders { traces, recordings })
    }

    /// Reads a scenario with traces from these folders.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn parse<'a>(text: &str, folders: impl Into<Folders<'a>>) -> Result<Self, ScenarioError> {
        Self::from_file(toml::from_str(text)?, folders)
    }

    /// The scenario that a file means, with traces from these folders.
    ///
    /// # Errors
    /// If it makes no sense, with the place.
    pub fn from_file<'a>(
        file: ScenarioFile,
        folders: impl Into<Folders<'a>>,
    ) -> Result<Self, ScenarioError> {
        let duration = file.duration_s.map(|s| seconds("the scenario", "duration_s", s));
        let duration = duration.transpose()?;
        let mut reader = Reader { rates: Rates::new(folders.into(), file.seed, duration) };
        let mut links = Vec::with_capacity(file.links.len());
        for section in &file.links {
            let link = reader.link(section)?;
            if links.iter().any(|other: &Link| other.name == link.name) {
                return Err(invalid(&place(section), "the name is taken"));
            }
            links.push(link);
        }
        if links.is_empty() {
            return Err(invalid("links", "a scenario needs at least one"));
        }
        for (number, traffic) in (1..).zip(&file.traffic) {
            check_traffic(&format!("traffic {number}"), traffic)?;
        }
        let uploads = file.traffic.iter().filter(|traffic| traffic.is_upload());
        let mut used = uploads.map(|traffic| traffic.congestion.as_deref().unwrap_or("cubic"));
        if used.next().is_some_and(|first| used.any(|other| other != first)) {
            return Err(invalid("traffic", "all uploads use the same congestion control"));
        }
        let settings = &file.tunnel.settings;
        if let Some(name) = settings.link.keys().find(|name| links.iter().all(|l| l.name != **name))
        {
            return Err(invalid("tunnel", &format!("there is no link `{name}`")));
        }
        settings.resolve().map_err(|error| invalid("tunnel", &error.to_string()))?;
        for check in &file.checks {
            if check.minimum.is_none() && check.maximum.is_none() {
                let place = format!("check `{}`", check.name);
                return Err(invalid(&place, "needs a minimum or a maximum"));
            }
        }
        Ok(Self {
            name: file.name,
            description: file.description,
            seed: file.seed,
            duration,
            links,
            traffic: file.traffic,
            tunnel: file.tunnel,
            checks: file.checks,
        })
    }

    /// Which way the data of the first stream go, whatever its kind; down where there is none.
    #[must_use]
    pub fn direction(&self) -> Direction {
        let is_stream = |traffic: &&TrafficSection| traffic.kind != file::TrafficKind::Ping;
        match self.traffic.iter().find(is_stream).map(|traffic| traffic.direction) {
            Some(Direction::Up) => Direction::Up,
            _ => Direction::Down,
        }
    }

    /// What links with a trace follow, one line for each direction and trace.
    #[must_use]
    pub fn traces(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for link in &self.links {
            for (direction, course) in [("down", &link.downstream), ("up", &link.upstream)] {
                let sources = course.traces.iter();
                lines.extend(sources.map(|source| format!("{} {direction}: {source}", link.name)));
            }
        }
        lines
    }
}

/// Turns sections into what they mean.
struct Reader<'a> {
    rates: Rates<'a>,
}

/// What happens to one direction at some moment.
enum Event<'a> {
    Set(Vec<&'a SettingsSection>),
    Cut(Option<Cut>),
}

impl Reader<'_> {
    fn link(&mut self, link: &LinkSection) -> Result<Link, ScenarioError> {
        let place = place(link);
        let timeout = link.nat_udp_timeout_s.map(|s| seconds(&place, "nat_udp_timeout_s", s));
        Ok(Link {
            name: link.name.clone(),
            direction: link.direction.unwrap_or_default(),
            upstream: self.course(&place, link, Direction::Up)?,
            downstream: self.course(&place, link, Direction::Down)?,
            nat_udp_timeout: timeout.transpose()?,
            others_unseen: link.others_unseen.unwrap_or_default(),
            outages: outages::all(&place, link)?,
        })
    }

    fn course(
        &mut self,
        place: &str,
        link: &LinkSection,
        direction: Direction,
    ) -> Result<Course, ScenarioError> {
        let profile = link.profile.map(crate::profile::Profile::conditions);
        let mut now = profile.map_or_else(Conditions::default, |pair| match direction {
            Direction::Up => pair.upstream,
            _ => pair.downstream,
        });
        if let Some(rtt) = link.rtt_ms {
            now.delay = milliseconds(place, "rtt_ms", rtt)? / 2;
        }
        let mut way = Way::new(place, &link.name, direction);
        for settings in ours(direction, &link.both, &link.up, &link.down) {
            self.rates.apply(&mut way, Duration::ZERO, settings, &mut now.rate)?;
            apply(place, settings, &mut now)?;
        }
        let mut initial = now.clone();
        let mut changes = Vec::new();
        if let Rate::Trace(trace) = &now.rate {
            initial.rate = Rate::Fixed(trace.mean_rate());
            changes.push((Duration::ZERO, now.clone()));
        }
        for (at, event) in events(place, link, direction)? {
            match event {
                Event::Cut(cut) => now.cut = cut,
                Event::Set(sections) => {
                    for settings in sections {
                        self.rates.apply(&mut way, at, settings, &mut now.rate)?;
                        apply(place, settings, &mut now)?;
                    }
                }
            }
            changes.push((at, now.clone()));
        }
        let (delays, traces) = way.finish();
        Ok(Course { changes: delayed(changes, delays), initial, traces })
    }
}

/// Applies what a section says but for the rate, and leaves alone what it does not mention.
fn apply(
    place: &str,
    settings: &SettingsSection,
    conditions: &mut Conditions,
) -> Result<(), ScenarioError> {
    if let Some(ms) = settings.delay_ms {
        conditions.delay = milliseconds(place, "delay_ms", ms)?;
    }
    if let Some(ms) = settings.jitter_ms {
        conditions.jitter = milliseconds(place, "jitter_ms", ms)?;
    }
    if let Some(reorder) = settings.reorder {
        conditions.keep_order = !reorder;
    }
    if let Some(loss) = &settings.loss {
        conditions.loss = read_loss(loss).ok_or_else(|| invalid(place, "no such loss exists"))?;
    }
    if let Some(ms) = settings.queue_ms {
        let time = milliseconds(place, "queue_ms", ms)?;
        conditions.queue = QueueLimit { time: Some(time), ..conditions.queue };
    }
    if let Some(packets) = settings.queue_packets {
        conditions.queue.packets = packets;
    }
    if let Some(mtu) = settings.mtu {
        conditions.mtu = mtu;
    }
    let mut marking = conditions.marking;
    if let Some(ms) = settings.mark_above_ms {
        marking.above = Some(milliseconds(place, "mark_above_ms", ms)?);
    }
    if let Some(probability) = settings.mark_probability {
        marking =
            Marking { probability: share(place, "mark_probability", probability)?, ..marking };
    }
    conditions.marking = marking;
    if let Some(mbit) = settings.background_mbit {
        conditions.background = background(place, mbit)?;
    }
    if let Some(policer) = settings.policer {
        conditions.policer = Some(Policer {
            rate: positive_rate(place, policer.rate_mbit)?,
            burst: milliseconds(place, "burst_ms", policer.burst_ms)?,
        });
    }
    Ok(())
}

/// Changes and outages of one direction, in the order in which they happen.
fn events<'a>(
    place: &str,
    link: &'a LinkSection,
    direction: Direction,
) -> Result<Vec<(Duration, Event<'a>)>, ScenarioError> {
    let mut events = Vec::new();
    for change in &link.changes {
        let sections: Vec<_> =
            ours(direction, &change.both, &change.up, &change.down).into_iter().collect();
        if !sections.is_empty() {
            events.push((seconds(place, "at_s of a change", change.at_s)?, Event::Set(sections)));
        }
    }
    let cuts = link.outages.iter().filter(|outage| outage.kind.cuts());
    let mut outages = Vec::new();
    for outage in cuts.filter(|outage| outage.direction.includes(direction)) {
        outages.extend(outages::of(place, outage)?.into_iter().map(|one| (one, outage.lose)));
    }
    outages.sort_by_key(|(outage, _)| *outage);
    if let Some(pair) = outages.windows(2).find(|pair| pair[1].0.from < pair[0].0.until) {
        let problem = format!("the outage at {:?} begins within the one before", pair[1].0.from);
        return Err(invalid(place, &problem));
    }
    for (Outage { from, until, .. }, lose) in outages {
        let cut = match lose {
            file::Lose::Everything => Cut::Everything,
            file::Lose::Arrivals => Cut::Arrivals,
        };
        events.push((from, Event::Cut(Some(cut))));
        events.push((until, Event::Cut(None)));
    }
    // Stable: of two at the same moment, the one named first happens first.
    events.sort_by_key(|event| event.0);
    Ok(events)
}

/// The sections that hold for a direction, the more special one last.
fn ours<'a>(
    direction: Direction,
    both: &'a Option<SettingsSection>,
    up: &'a Option<SettingsSection>,
    down: &'a Option<SettingsSection>,
) -> impl IntoIterator<Item = &'a SettingsSection> {
    let special = if direction == Direction::Up { up } else { down };
    both.iter().chain(special)
}

fn read_loss(loss: &file::LossSection) -> Option<Loss> {
    let loss = match *loss {
        file::LossSection::Share(share) => Loss::Bernoulli(share),
        file::LossSection::Bursts { mean, burst } => {
            Loss::GilbertElliott(GilbertElliott::from_mean_and_burst(mean, burst)?)
        }
        file::LossSection::Chain { good_to_bad, bad_to_good, loss_in_good, loss_in_bad } => {
            Loss::GilbertElliott(GilbertElliott {
                good_to_bad,
                bad_to_good,
                loss_in_good,
                loss_in_bad,
            })
        }
    };
    loss.is_valid().then_some(loss)
}

fn check_traffic(place: &str, traffic: &TrafficSection) -> Result<(), ScenarioError> {
    seconds(place, "start_s", traffic.start_s)?;
    traffic.duration_s.map(|s| seconds(place, "duration_s", s)).transpose()?;
    traffic.rate_mbit.map(|mbit| positive_rate(place, mbit)).transpose()?;
    if traffic.kind == file::TrafficKind::Udp && traffic.rate_mbit.is_none() {
        return Err(invalid(place, "a UDP stream needs rate_mbit"));
    }
    let is_tcp = matches!(traffic.kind, file::TrafficKind::Tcp | file::TrafficKind::Http);
    if traffic.flows == 0 || traffic.flows > file::MAX_FLOWS || (!is_tcp && traffic.flows > 1) {
        let problem = format!("flows must be 1 to {}, and 1 but for tcp and http", file::MAX_FLOWS);
        return Err(invalid(place, &problem));
    }
    let down = traffic.direction != Direction::Up;
    if traffic.beside.is_some() && (traffic.kind != file::TrafficKind::Tcp || !down) {
        return Err(invalid(place, "beside the tunnel there is tcp downstream only"));
    }
    let fetched = is_tcp && down && traffic.bytes.is_some() && traffic.beside.is_none();
    if traffic.times == 0 || traffic.times > file::MAX_TIMES || (traffic.times > 1 && !fetched) {
        let problem = format!(
            "times must be 1 to {}, and 1 but for tcp and http downstream with bytes",
            file::MAX_TIMES
        );
        return Err(invalid(place, &problem));
    }
    if traffic.duration_s.is_none() && traffic.bytes.is_none() {
        return Err(invalid(place, "needs bytes or duration_s, else it never ends"));
    }
    Ok(())
}

fn place(link: &LinkSection) -> String {
    format!("link `{}`", link.name)
}

fn invalid(place: &str, problem: &str) -> ScenarioError {
    ScenarioError::Invalid { place: place.to_owned(), problem: problem.to_owned() }
}

#[cfg(test)]
mod tests;
