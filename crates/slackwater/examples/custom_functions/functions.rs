//! The functions: two of one row, two aggregates. `docs/functions.md` explains the traits.

use slackwater::functions::{Aggregate, Functions};

/// Adds them to the language.
pub fn add(functions: &mut Functions) {
    functions
        .scalar("count_char", |text: &str, wanted: &str| {
            text.matches(wanted).count() as i64
        })
        // An error rejects the row, and only an Option receives NULL.
        .scalar(
            "grade",
            |points: i64, points_max: Option<i64>| -> Result<String, String> {
                let points_max = points_max.unwrap_or(100);
                if !(0..=points_max).contains(&points) {
                    return Err(format!("{points} points of {points_max}"));
                }
                Ok(["E", "D", "C", "B", "A"][(points * 5 / (points_max + 1)) as usize].to_string())
            },
        )
        .aggregate::<WeightedAverage>("weighted_average")
        .aggregate::<Longest>("longest");
}

/// `WEIGHTED_AVERAGE(value, weight)` of whole numbers: exact, whatever the order.
#[derive(Default)]
struct WeightedAverage {
    total: i64,
    weight: i64,
    overflowed: bool,
}

impl Aggregate for WeightedAverage {
    type Arguments = (i64, i64);
    type Value = Result<Option<f64>, String>;
    type State = (i64, i64, bool);

    fn add(&mut self, (value, weight): (i64, i64)) {
        let (product, too_large) = value.overflowing_mul(weight);
        self.merge(WeightedAverage {
            total: product,
            weight,
            overflowed: too_large,
        });
    }

    // Where rows are taken back, it subtracts; without this all its rows would be kept.
    const RETRACTS: bool = true;

    fn retract(&mut self, (value, weight): (i64, i64)) {
        match weight.checked_neg() {
            Some(weight) => self.add((value, weight)),
            None => self.overflowed = true,
        }
    }

    fn merge(&mut self, other: WeightedAverage) {
        let (total, one) = self.total.overflowing_add(other.total);
        let (weight, two) = self.weight.overflowing_add(other.weight);
        self.overflowed |= other.overflowed | one | two;
        (self.total, self.weight) = (total, weight);
    }

    fn value(&self) -> Result<Option<f64>, String> {
        match self.overflowed {
            true => Err("the total is too large".to_string()),
            false => Ok((self.weight != 0).then(|| self.total as f64 / self.weight as f64)),
        }
    }

    fn save(&self) -> (i64, i64, bool) {
        (self.total, self.weight, self.overflowed)
    }

    fn load((total, weight, overflowed): (i64, i64, bool)) -> WeightedAverage {
        WeightedAverage {
            total,
            weight,
            overflowed,
        }
    }
}

/// `LONGEST(text)`; of several the first in the alphabet.
#[derive(Default)]
struct Longest(Option<String>);

impl Longest {
    fn take(&mut self, text: String) {
        let rank = |text: &str| (std::cmp::Reverse(text.chars().count()), text.to_string());
        if self
            .0
            .as_deref()
            .is_none_or(|known| rank(&text) < rank(known))
        {
            self.0 = Some(text);
        }
    }
}

impl Aggregate for Longest {
    type Arguments = &'static str;
    type Value = Option<String>;
    type State = Option<String>;

    fn add(&mut self, text: &str) {
        self.take(text.to_string());
    }

    fn merge(&mut self, other: Longest) {
        if let Some(text) = other.0 {
            self.take(text);
        }
    }

    fn value(&self) -> Option<String> {
        self.0.clone()
    }

    fn save(&self) -> Option<String> {
        self.0.clone()
    }

    fn load(state: Option<String>) -> Longest {
        Longest(state)
    }
}
