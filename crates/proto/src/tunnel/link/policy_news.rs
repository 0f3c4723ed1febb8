//! A change of a link's policy on its way to the proxy: said until it is confirmed, and obeyed in the order in which it was
//! said.

/// What the peer is to know of a link's policy (client), or what it heard last (proxy).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct PolicyNews {
    /// The peer is to be told with the next datagram.
    due: bool,
    /// The local number of the datagram that told last, until its fate is known.
    told: Option<u64>,
    /// The local number of the newest datagram that the peer told in.
    heard: Option<u64>,
}

impl PolicyNews {
    /// It is another one now.
    pub(in crate::tunnel) fn change(&mut self) {
        self.due = true;
    }

    /// Whether the peer is to be told.
    pub(in crate::tunnel) const fn is_due(&self) -> bool {
        self.due
    }

    /// The peer is told in the datagram with this number.
    pub(in crate::tunnel) fn on_told(&mut self, number: u64) {
        (self.due, self.told) = (false, Some(number));
    }

    /// The fate of a datagram is known: what was lost is said again.
    pub(super) fn on_fate(&mut self, number: u64, arrived: bool) {
        if self.told == Some(number) {
            self.told = None;
            self.due |= !arrived;
        }
    }

    /// Whether nothing newer was heard than what a datagram with this number says.
    pub(in crate::tunnel) fn is_news(&mut self, number: u64) -> bool {
        let is_news = self.heard.is_none_or(|heard| heard < number);
        if is_news {
            self.heard = Some(number);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_said_again_until_it_arrived() {
        let mut news = PolicyNews::default();
        assert!(!news.is_due());
        news.change();
        assert!(news.is_due());
        news.on_told(7);
        news.on_fate(6, false);
        assert!(!news.is_due(), "another datagram was lost");
        news.on_fate(7, false);
        assert!(news.is_due());
        news.on_told(9);
        news.on_fate(9, true);
        news.on_fate(9, false);
        assert!(!news.is_due(), "it arrived");
    }

    #[test]
    fn a_change_while_one_is_under_way_is_said_whatever_becomes_of_the_first() {
        for arrived in [true, false] {
            let mut news = PolicyNews::default();
            news.change();
            news.on_told(7);
            news.change();
            news.on_fate(7, arrived);
            assert!(news.is_due());
        }
    }

    #[test]
    fn what_was_overtaken_is_no_news() {
        let mut news = PolicyNews::default();
        assert!([3, 5].into_iter().all(|number| news.is_news(number)));
        assert!(![3, 4, 5].into_iter().any(|number| news.is_news(number)));
        assert!(news.is_news(6));
    }
}
