//! Who is measured when: all contenders once, then all again, part by part.

use std::collections::BTreeSet;

use super::contender::{Contender, Part};

/// One measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Job {
    /// Of all contenders.
    pub contender: usize,
    /// From 0.
    pub repetition: usize,
    /// What is measured.
    pub part: Part,
}

impl Job {
    /// Its name in a store.
    #[must_use]
    pub fn key(&self, contenders: &[Contender]) -> String {
        let name = contenders.get(self.contender).map_or("", |contender| contender.name.as_str());
        format!("{}, {name}, {}", self.part.as_str(), self.repetition + 1)
    }
}

/// Everything there is to do of these parts (all, if none is named), in the order in which it is done.
#[must_use]
pub fn jobs(contenders: &[Contender], repetitions: usize, only: &[Part]) -> Vec<Job> {
    let chosen: BTreeSet<Part> =
        if only.is_empty() { Part::all() } else { only.iter().copied().collect() };
    let mut jobs = Vec::new();
    for part in chosen {
        for repetition in 0..repetitions {
            let able = contenders.iter().enumerate().filter(|(_, one)| one.loads.contains(&part));
            jobs.extend(able.map(|(contender, _)| Job { contender, repetition, part }));
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_within_a_repetition() {
        let contenders: Vec<Contender> = ["a", "b"]
            .map(|name| toml::from_str(&format!("name = '{name}'\nkind = 'veth'")).unwrap())
            .into();
        let order: Vec<String> =
            jobs(&contenders, 2, &[Part::Udp]).iter().map(|job| job.key(&contenders)).collect();
        assert_eq!(order, ["udp, a, 1", "udp, b, 1", "udp, a, 2", "udp, b, 2"]);
        assert_eq!(jobs(&contenders, 1, &[]).len(), 6);
    }
}
