//! The small number of each interface that may be a link.

use crate::host::Candidate;
use crate::links::Seat;
use crate::routes::MAX_LINKS;

/// The small number of each interface, by its place: it stays with the name for as long as there are
/// numbers left, so that a link that returns is the same link.
#[derive(Debug, Default)]
pub(super) struct Slots(Vec<String>);

impl Slots {
    pub(super) fn seat(&mut self, candidates: Vec<Candidate>) -> Vec<Seat> {
        let names: Vec<String> =
            candidates.iter().map(|candidate| candidate.name.clone()).collect();
        let seats = candidates.into_iter().filter_map(|candidate| {
            let slot = self.slot_of(&candidate.name, &names)?;
            Some(Seat { slot, interface: candidate.name, state: candidate.state })
        });
        seats.collect()
    }

    fn slot_of(&mut self, name: &str, present: &[String]) -> Option<u16> {
        let known = self.0.iter().position(|known| known == name);
        let place = known.or_else(|| {
            if self.0.len() < usize::from(MAX_LINKS) {
                self.0.push(name.to_owned());
                return Some(self.0.len() - 1);
            }
            // Names that come and go without end (usb0, usb1, ...): the number of one that is away.
            let away = self.0.iter().position(|known| !present.contains(known))?;
            name.clone_into(&mut self.0[away]);
            Some(away)
        })?;
        u16::try_from(place).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NoWay;

    fn seat(slots: &mut Slots, names: &[&str]) -> Vec<(u16, String)> {
        let candidate =
            |name: &&str| Candidate { name: (*name).to_owned(), state: Err(NoWay::Down) };
        let seats = slots.seat(names.iter().map(candidate).collect());
        seats.into_iter().map(|seat| (seat.slot, seat.interface)).collect()
    }

    #[test]
    fn an_interface_that_returns_has_its_number_again() {
        let mut slots = Slots::default();
        assert_eq!(seat(&mut slots, &["a", "b"]), [(0, "a".into()), (1, "b".into())]);
        assert_eq!(seat(&mut slots, &["c", "b"]), [(2, "c".into()), (1, "b".into())]);
        assert_eq!(seat(&mut slots, &["b", "a"]), [(1, "b".into()), (0, "a".into())]);
    }

    #[test]
    fn names_without_end_get_the_numbers_of_those_that_are_away() {
        let mut slots = Slots::default();
        for round in 0..1000 {
            let name = format!("usb{round}");
            let seats = seat(&mut slots, &["stays", &name]);
            assert_eq!(seats.len(), 2);
            assert_eq!(seats[0], (0, "stays".into()));
            assert!(seats[1].0 > 0 && seats[1].0 < MAX_LINKS, "{seats:?}");
        }
        let many: Vec<String> = (0..100).map(|n| format!("all{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(seat(&mut slots, &many).len(), usize::from(MAX_LINKS));
    }
}
