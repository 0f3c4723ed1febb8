//! The parts of a list that came, until it is whole. A list counts as a whole or not at all.

use super::{FleetList, FleetProxy, MAX_PROXIES};
use crate::wire::frame::FleetFrame;

/// What the peer told of the fleet.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// The highest number of a list that came.
    number: Option<u32>,
    /// Its proxies, as far as they came; empty when it is whole.
    places: Vec<Option<FleetProxy>>,
    whole: bool,
}

/// A part that no honest proxy sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Senseless;

impl Gathering {
    /// A part came. Returns the list when it makes it whole, once.
    pub(crate) fn take(&mut self, frame: &FleetFrame<'_>) -> Result<Option<FleetList>, Senseless> {
        let (total, first) = (usize::from(frame.total), usize::from(frame.first));
        let proxies = frame.proxies().ok_or(Senseless)?;
        if total > MAX_PROXIES || first + proxies.len() > total {
            return Err(Senseless);
        }
        match self.number {
            Some(number) if frame.number < number => return Ok(None),
            Some(number) if frame.number == number => {}
            _ => {
                *self = Self { number: Some(frame.number), places: vec![None; total], whole: false }
            }
        }
        if self.whole {
            return Ok(None);
        }
        if self.places.len() != total {
            return Err(Senseless);
        }
        for (place, proxy) in self.places[first..].iter_mut().zip(proxies) {
            *place = Some(proxy);
        }
        if self.places.iter().any(Option::is_none) {
            return Ok(None);
        }
        self.whole = true;
        let proxies = std::mem::take(&mut self.places).into_iter().flatten().collect();
        FleetList::new(proxies).map(Some).map_err(|_| Senseless)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::proxy;
    use super::*;
    use crate::wire::cursor::Writer;
    use crate::wire::frame::emit_proxy;

    fn told(
        gathering: &mut Gathering,
        (number, total, first): (u32, u8, u8),
        proxies: &[FleetProxy],
    ) -> Result<Option<Vec<String>>, Senseless> {
        let mut buffer = [0; 1200];
        let mut writer = Writer::new(&mut buffer);
        proxies.iter().for_each(|proxy| emit_proxy(&mut writer, proxy).unwrap());
        let len = writer.len();
        let list = gathering.take(&FleetFrame::new(number, total, first, &buffer[..len]))?;
        Ok(list.map(|list| list.iter().map(|proxy| proxy.id.to_string()).collect()))
    }

    #[test]
    fn a_list_counts_when_all_of_it_came_in_any_order_and_once() {
        let (a, b, c) = (proxy("a", 1), proxy("b", 2), proxy("c", 3));
        let mut gathering = Gathering::default();
        assert_eq!(told(&mut gathering, (1, 3, 2), std::slice::from_ref(&c)), Ok(None));
        assert_eq!(told(&mut gathering, (1, 3, 2), std::slice::from_ref(&c)), Ok(None));
        let whole = told(&mut gathering, (1, 3, 0), &[a.clone(), b]).unwrap().unwrap();
        assert_eq!(whole, ["a", "b", "c"]);
        assert_eq!(told(&mut gathering, (1, 3, 0), std::slice::from_ref(&a)), Ok(None), "a copy");
        assert_eq!(
            told(&mut gathering, (0, 1, 0), std::slice::from_ref(&a)),
            Ok(None),
            "an older one"
        );
        assert_eq!(told(&mut gathering, (2, 0, 0), &[]), Ok(Some(vec![])), "nobody is left");
    }

    #[test]
    fn a_newer_list_takes_the_place_of_one_that_did_not_become_whole() {
        let (a, b) = (proxy("a", 1), proxy("b", 2));
        let mut gathering = Gathering::default();
        assert_eq!(told(&mut gathering, (1, 2, 0), std::slice::from_ref(&a)), Ok(None));
        assert_eq!(told(&mut gathering, (2, 2, 1), std::slice::from_ref(&b)), Ok(None));
        assert_eq!(told(&mut gathering, (1, 2, 1), std::slice::from_ref(&b)), Ok(None));
        let whole = told(&mut gathering, (2, 2, 0), std::slice::from_ref(&a)).unwrap();
        assert_eq!(whole.unwrap(), ["a", "b"]);
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let (a, b) = (proxy("a", 1), proxy("b", 2));
        let table: [(_, &[FleetProxy]); 4] = [
            ((1, 65, 0), &[]),
            ((1, 1, 0), &[a.clone(), b.clone()]),
            ((1, 1, 1), std::slice::from_ref(&a)),
            ((1, 2, 0), &[a.clone(), a.clone()]),
        ];
        for (head, proxies) in table {
            assert_eq!(told(&mut Gathering::default(), head, proxies), Err(Senseless), "{head:?}");
        }
        let mut gathering = Gathering::default();
        assert_eq!(told(&mut gathering, (1, 2, 0), std::slice::from_ref(&a)), Ok(None));
        let other_length = told(&mut gathering, (1, 3, 1), std::slice::from_ref(&b));
        assert_eq!(other_length, Err(Senseless));
    }
}
