//! What a link costs, and how much that matters beside its throughput.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::{Text, by_text};

/// The price of a gigabyte, in some unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// How many.
    pub amount: f64,
    /// Of what: one unit for all links.
    pub unit: String,
}

/// Characters of the longest unit of money.
const MAX_UNIT: usize = 16;

impl Text for Cost {
    const EXPECTED: &'static str = "a price of a gigabyte with its unit, such as \"5 EUR/GB\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(split);
        let amount: f64 = number.trim().parse().map_err(|_| bad())?;
        let unit =
            unit.trim().strip_suffix("/GB").filter(|unit| !unit.is_empty()).ok_or_else(bad)?;
        if unit.chars().count() > MAX_UNIT || unit.chars().any(char::is_control) {
            return Err(format!("`{text}`: a unit has at most {MAX_UNIT} printable characters"));
        }
        if !(0.0..=1e9).contains(&amount) {
            return Err(format!("`{text}`: a price is from 0 to a thousand million"));
        }
        Ok(Self { amount, unit: unit.to_owned() })
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/GB", self.amount, self.unit)
    }
}

by_text!(Cost);

/// How much throughput and cost matter on a link: shares of one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Shares", into = "Shares")]
pub struct Importance {
    pub(crate) throughput: f64,
    pub(crate) cost: f64,
}

/// As they are written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shares {
    throughput: f64,
    cost: f64,
}

/// As a person writes them: throughput, then cost.
impl fmt::Display for Importance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.throughput, self.cost)
    }
}

impl Importance {
    /// The shares of throughput and of cost.
    ///
    /// # Errors
    /// One is no number from 0 to 1, or they do not sum to one (within a thousandth).
    pub fn new(throughput: f64, cost: f64) -> Result<Self, String> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        if share(throughput) && share(cost) && (throughput + cost - 1.0).abs() <= 1e-3 {
            return Ok(Self { throughput, cost });
        }
        Err(format!(
            "importance: throughput = {throughput} and cost = {cost} must be shares that sum to 1"
        ))
    }

    /// How much the throughput matters.
    #[must_use]
    pub const fn throughput(&self) -> f64 {
        self.throughput
    }

    /// How much the price matters.
    #[must_use]
    pub const fn cost(&self) -> f64 {
        self.cost
    }
}

impl Default for Importance {
    /// Only throughput matters: nothing is known of a price.
    fn default() -> Self {
        Self { throughput: 1.0, cost: 0.0 }
    }
}

impl TryFrom<Shares> for Importance {
    type Error = String;

    fn try_from(shares: Shares) -> Result<Self, String> {
        Self::new(shares.throughput, shares.cost)
    }
}

impl From<Importance> for Shares {
    fn from(Importance { throughput, cost }: Importance) -> Self {
        Self { throughput, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_are_no_shares_of_one_are_refused() {
        for (throughput, cost) in
            [(0.5, 0.6), (0.0, 0.0), (-0.5, 1.5), (f64::NAN, 1.0), (1.0, f64::INFINITY)]
        {
            let error = Importance::new(throughput, cost).expect_err("no shares");
            assert!(error.contains(&throughput.to_string()), "{error}");
        }
    }
}
