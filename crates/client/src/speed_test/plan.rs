//! What a speed test does: which links it tests, with how much data, and in which order. Pure.
//!
//! | the link | is tested with |
//! | --- | --- |
//! | costs nothing by the byte | as much as it carries in the time |
//! | has an allowance | at most 1 % of it, and what is left but for a part; with `--metered` all that is left but for that part |
//! | is metered or has a price, and no allowance | nothing; with `--metered` what `--max` says, without which nothing |
//!
//! What is left at the start of each step is shared evenly among the steps that are still to come.

use ropewalk_control::api::{SpeedTestWish, SpeedWay};
use ropewalk_proto::client::LinkKey;
use ropewalk_settings::{Direction, Usage, figures};

/// Of what is left of an allowance so large a part, a twentieth, is left alone: other packets need it meanwhile.
const KEPT_BACK: u64 = 20;

/// So large a part of an allowance, a hundredth, may a test use that nobody said more of.
const UNASKED: u64 = 100;

/// With less than this many bytes in a step nothing is found.
const LEAST_OF_STEP: u64 = 100_000;

/// Of what a link may carry in a test, so many parts of a hundred are test data: the rest is reports and questions.
const TEST_DATA_PERCENT: u64 = 97;

/// A link that a test could be about.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Its name.
    pub(crate) name: String,
    /// The core's name for it, or why it carries nothing now.
    pub(crate) key: Result<LinkKey, String>,
    /// Which way it carries packets.
    pub(crate) direction: Direction,
    /// When it does.
    pub(crate) usage: Usage,
    /// Whether bytes cost on it.
    pub(crate) costs: bool,
    /// The bytes of its allowance, and those that are left of it.
    pub(crate) allowance: Option<(u64, u64)>,
}

/// How a link is tested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LinkPlan {
    pub(super) key: LinkKey,
    pub(super) direction: Direction,
    /// Whether it carries packets together with the others.
    pub(super) joins: bool,
    /// The bytes that it may still carry for the test; `None`: nobody bounds them.
    pub(super) budget: Option<u64>,
    /// The bytes of its allowance that a test must leave.
    pub(super) reserve: u64,
}

/// What is done for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The round trips of all links are measured while they are idle.
    Rest,
    /// Queues that the step before filled become empty.
    Pause,
    /// The link in this place is filled.
    Alone(usize, SpeedWay),
    /// All links that carry packets together are filled.
    Together(SpeedWay),
}

impl Step {
    /// Which way links are filled.
    pub(super) const fn way(self) -> Option<SpeedWay> {
        match self {
            Self::Rest | Self::Pause => None,
            Self::Alone(_, way) | Self::Together(way) => Some(way),
        }
    }

    /// Whether it fills this link, which is in this place.
    pub(super) fn fills(self, at: usize, link: &LinkPlan) -> bool {
        match self {
            Self::Rest | Self::Pause => false,
            Self::Alone(place, _) => place == at,
            Self::Together(way) => link.joins && link.carries(way),
        }
    }
}

impl LinkPlan {
    /// Whether it carries packets this way.
    pub(super) fn carries(&self, way: SpeedWay) -> bool {
        self.direction.includes(match way {
            SpeedWay::Down => Direction::Down,
            SpeedWay::Up => Direction::Up,
        })
    }
}

/// How this link is tested.
///
/// # Errors
/// Why it is not, for people.
pub(super) fn link(wish: &SpeedTestWish, candidate: &Candidate) -> Result<LinkPlan, String> {
    let Candidate { key, direction, usage, allowance, .. } = candidate;
    let left = allowance.map_or(0, |(_, left)| left);
    let plan = LinkPlan {
        key: key.clone()?,
        direction: *direction,
        joins: *usage != Usage::Backup,
        budget: budget(wish, candidate)?,
        reserve: left / KEPT_BACK,
    };
    let mut wished = ways(wish);
    if wished.any(|way| plan.carries(way)) {
        return Ok(plan);
    }
    Err(format!("it carries nothing that way: direction = \"{direction}\""))
}

/// How many bytes it may carry for a test.
fn budget(wish: &SpeedTestWish, candidate: &Candidate) -> Result<Option<u64>, String> {
    const ENOUGH: u64 = SpeedTestWish::LEAST_BYTES;
    let Some((all, left)) = candidate.allowance else {
        return match (candidate.costs, wish.metered, wish.max_bytes) {
            (false, ..) | (true, true, Some(_)) => Ok(None),
            (true, false, _) => {
                Err("bytes cost on it: --metered with --max DATA tests it".to_owned())
            }
            (true, true, None) => {
                Err("bytes cost on it: say with --max DATA how many a test may use".to_owned())
            }
        };
    };
    let (unasked, most) = (all / UNASKED, left - left / KEPT_BACK);
    if most < ENOUGH {
        return Err(format!("too little is left of its allowance: {}", figures::size(left)));
    }
    match wish.metered {
        true => Ok(Some(most)),
        false if unasked < ENOUGH => Err(format!(
            "1 % of its allowance, {}, is too little for a test: --metered lets it use more",
            figures::size(unasked)
        )),
        false => Ok(Some(unasked.min(most))),
    }
}

fn ways(wish: &SpeedTestWish) -> impl Iterator<Item = SpeedWay> {
    let wished = [(wish.down, SpeedWay::Down), (wish.up, SpeedWay::Up)];
    wished.into_iter().filter_map(|(wished, way)| wished.then_some(way))
}

/// What is done, in order: each link alone, both ways, then all together.
pub(super) fn steps(wish: &SpeedTestWish, links: &[Result<LinkPlan, String>]) -> Vec<Step> {
    let tested = || {
        let places = links.iter().enumerate();
        places.filter_map(|(at, link)| Some((at, link.as_ref().ok()?)))
    };
    let mut steps = vec![Step::Rest];
    for (at, link) in tested() {
        let ways = ways(wish).filter(|way| link.carries(*way));
        steps.extend(ways.map(|way| Step::Alone(at, way)));
    }
    let several = |step: &Step| tested().filter(|(at, link)| step.fills(*at, link)).count() > 1;
    steps.extend(ways(wish).map(Step::Together).filter(several));
    steps
}

/// The bytes of test data in a step that is the first of `steps` to come, of those that may still be carried. `None`: too few for
/// anything to be found.
pub(super) fn of_step(left: Option<u64>, steps: usize) -> Option<u64> {
    let steps = u64::try_from(steps.max(1)).unwrap_or(u64::MAX);
    let bytes = left.map_or(u64::MAX, |left| left / steps / 100 * TEST_DATA_PERCENT);
    (bytes >= LEAST_OF_STEP).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const GB: u64 = 1_000 * MB;

    fn wish() -> SpeedTestWish {
        SpeedTestWish {
            links: Vec::new(),
            seconds: 10,
            down: true,
            up: true,
            max_bytes: None,
            metered: false,
        }
    }

    fn candidate() -> Candidate {
        Candidate {
            name: "lte".to_owned(),
            key: Ok(LinkKey(3)),
            direction: Direction::Both,
            usage: Usage::Always,
            costs: false,
            allowance: None,
        }
    }

    fn budgeted(
        wish: &SpeedTestWish,
        allowance: Option<(u64, u64)>,
    ) -> Result<Option<u64>, String> {
        let candidate = Candidate { costs: allowance.is_none(), allowance, ..candidate() };
        link(wish, &candidate).map(|plan| plan.budget)
    }

    #[test]
    fn a_link_with_an_allowance_is_tested_with_little_of_it_or_if_so_said_with_what_is_left() {
        let metered = SpeedTestWish { metered: true, ..wish() };
        let table = [
            (10 * GB, 8 * GB, Ok(100 * MB), Ok(7_600 * MB)),
            (10 * GB, 60 * MB, Ok(57 * MB), Ok(57 * MB)),
            (10 * GB, MB, Err("too little is left"), Err("too little is left")),
            (10 * GB, 0, Err("too little is left"), Err("too little is left")),
            (50 * MB, 50 * MB, Err("1 % of its allowance, 500 kB, is too"), Ok(47_500_000)),
        ];
        for (all, left, unasked, asked) in table {
            for (wish, expected) in [(wish(), unasked), (metered.clone(), asked)] {
                match (budgeted(&wish, Some((all, left))), expected) {
                    (found, Ok(bytes)) => assert_eq!(found, Ok(Some(bytes)), "{left} of {all}"),
                    (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                    (found, _) => panic!("{left} of {all}: {found:?}"),
                }
            }
        }
        let plan = link(&wish(), &Candidate { allowance: Some((GB, GB)), ..candidate() }).unwrap();
        assert_eq!(plan.reserve, 50 * MB, "others need it");
    }

    #[test]
    fn a_link_on_which_bytes_cost_is_tested_only_with_so_many_as_were_said() {
        let metered = SpeedTestWish { metered: true, ..wish() };
        let bounded = SpeedTestWish { max_bytes: Some(5 * MB), ..metered.clone() };
        assert!(budgeted(&wish(), None).unwrap_err().contains("--metered with --max"));
        assert!(budgeted(&metered, None).unwrap_err().contains("say with --max"));
        assert_eq!(budgeted(&bounded, None), Ok(None), "the bound of all is its own");
        let bounded = SpeedTestWish { metered: false, ..bounded };
        assert!(budgeted(&bounded, None).is_err());
    }

    #[test]
    fn links_are_tested_alone_in_their_ways_and_then_together_but_for_backups() {
        let down = Candidate { direction: Direction::Down, ..candidate() };
        let backup = Candidate { usage: Usage::Backup, ..candidate() };
        let gone = Candidate { key: Err("it is down".to_owned()), ..candidate() };
        let planned = |wish: &SpeedTestWish, candidates: [&Candidate; 4]| {
            let links: Vec<_> = candidates.iter().map(|one| link(wish, one)).collect();
            steps(wish, &links)
        };
        let (alone, together) = (Step::Alone, Step::Together);
        let (ways_down, ways_up) = (SpeedWay::Down, SpeedWay::Up);
        let found = planned(&wish(), [&gone, &candidate(), &down, &backup]);
        let expected = [
            Step::Rest,
            alone(1, ways_down),
            alone(1, ways_up),
            alone(2, ways_down),
            alone(3, ways_down),
            alone(3, ways_up),
            together(ways_down),
        ];
        assert_eq!(found, expected);
        let up = SpeedTestWish { down: false, ..wish() };
        let found = planned(&up, [&candidate(), &down, &candidate(), &gone]);
        assert_eq!(found, [Step::Rest, alone(0, ways_up), alone(2, ways_up), together(ways_up)]);
        let why = link(&up, &down).unwrap_err();
        assert_eq!(why, "it carries nothing that way: direction = \"down\"");
    }

    #[test]
    fn what_is_left_is_shared_among_the_steps_that_come() {
        assert_eq!(of_step(None, 3), Some(u64::MAX));
        assert_eq!(of_step(Some(4 * MB), 4), Some(970_000));
        assert_eq!(of_step(Some(4 * MB), 0), Some(3_880_000));
        assert_eq!(of_step(Some(400_000), 4), None);
        assert_eq!(of_step(Some(0), 1), None);
    }
}
