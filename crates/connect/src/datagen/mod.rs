//! Generators of rows. Row `n` is a function of the seed and `n`, so a generator needs no state,
//! and its rows do not depend on chunk sizes; disorder only changes the order of the numbers.

mod nexmark;
mod user_visits;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use arrow_array::ArrayRef;
use arrow_schema::{Schema, SchemaRef};

use crate::options::{OptionError, Options};

/// Events that may wait for their turn with `disorder`: 2^20 × 16 bytes = 16 MiB.
const DISORDER_EVENTS_MAX: u64 = 1 << 20;

/// 2015-07-15T00:00:00Z, the start of Nexmark's usual data. Not the clock, so that runs repeat.
const DEFAULT_START_MS: u64 = 1_436_918_400_000;

/// Half of the range of a time stamp in microseconds (year 148,000).
const START_MS_MAX: u64 = i64::MAX as u64 / 2_000;

/// The generator, and its parameters.
#[derive(Debug, Clone)]
pub(crate) struct GeneratorSpec {
    kind: Kind,
    times: Times,
    disorder_ns: u64,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Nexmark,
    UserVisits { addresses: u64 },
}

/// The inputs of a row besides its number.
#[derive(Debug, Clone, Copy)]
struct Times {
    seed: u64,
    start_ms: u64,
    events_per_second: u64,
}

impl Times {
    /// Event time after the start, in nanoseconds.
    fn since_start_ns(&self, number: u64) -> u64 {
        let time_ns = u128::from(number) * 1_000_000_000 / u128::from(self.events_per_second);
        u64::try_from(time_ns).unwrap_or(u64::MAX / 2)
    }

    /// Event time in milliseconds since 1970.
    fn time_ms(&self, number: u64) -> i64 {
        (self.start_ms + self.since_start_ns(number) / 1_000_000) as i64
    }

    /// A random number for the row.
    fn random(&self, number: u64) -> u64 {
        mix(mix(self.seed) ^ number)
    }
}

/// The finalizer of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators",
/// 2014): consecutive numbers give unrelated results.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl GeneratorSpec {
    pub(crate) fn read(
        options: &Options<'_>,
        schema: &Schema,
    ) -> Result<GeneratorSpec, OptionError> {
        options.required("generator", "nexmark")?;
        let choices = [("nexmark", 0), ("uservisits", 1)];
        let addresses = options.number("addresses", Some(10_000), 1..=1_000_000)?;
        let kind = match options.choice("generator", &choices, 0)? {
            0 => {
                nexmark::check(schema)?;
                if options.text("addresses").is_some() {
                    return Err(OptionError::new(
                        "addresses",
                        "does not belong to generator nexmark",
                        "leave it out",
                    ));
                }
                Kind::Nexmark
            }
            _ => {
                user_visits::check(schema)?;
                Kind::UserVisits {
                    addresses: addresses.unwrap_or_default(),
                }
            }
        };
        let number = |name, default, range| {
            options
                .number(name, Some(default), range)
                .map(Option::unwrap_or_default)
        };
        let times = Times {
            seed: number("seed", 1, 0..=u64::MAX)?,
            start_ms: number("start", DEFAULT_START_MS, 0..=START_MS_MAX)?,
            events_per_second: number("events_per_second", 1_000, 1..=1_000_000_000)?,
        };
        let disorder_ns = options.duration_ns("disorder")?.unwrap_or(0);
        let waiting = u128::from(disorder_ns) * u128::from(times.events_per_second) / 1_000_000_000;
        if waiting > u128::from(DISORDER_EVENTS_MAX) {
            return Err(OptionError::new(
                "disorder",
                format!(
                    "{waiting} events would wait for their turn, the limit is {DISORDER_EVENTS_MAX}"
                ),
                "lower it, or 'events_per_second'",
            ));
        }
        Ok(GeneratorSpec {
            kind,
            times,
            disorder_ns,
        })
    }

    /// The order in which rows come, after the first `skipped` of `rows`.
    pub(crate) fn order(&self, skipped: u64, rows: Option<u64>) -> Order {
        // Rows come in the order of their turns. Turns differ from event times by less than the disorder, so
        // a row comes at most `window` places after its number. So all rows before `first` have come, and the
        // other rows that have come are the first ones of an order that starts at `first`.
        let per_second = u128::from(self.times.events_per_second);
        let window = u128::from(self.disorder_ns) * per_second / 1_000_000_000 + 2;
        let first = match self.disorder_ns {
            0 => skipped,
            _ => skipped.saturating_sub(u64::try_from(window).unwrap_or(u64::MAX)),
        };
        let mut order = Order {
            times: self.times,
            disorder_ns: self.disorder_ns,
            next: first,
            waiting: BinaryHeap::new(),
        };
        for _ in first..skipped {
            order.next(rows);
        }
        order
    }
}

/// Numbers of the rows in the order in which they come: by event time plus a random delay below the disorder.
/// So no row comes after a row whose event time is later by the disorder or more.
#[derive(Debug)]
pub(crate) struct Order {
    times: Times,
    disorder_ns: u64,
    next: u64,
    waiting: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Order {
    /// The next row's number, of `rows` in total. The caller asks at most that many times.
    pub(crate) fn next(&mut self, rows: Option<u64>) -> u64 {
        if self.disorder_ns == 0 {
            self.next += 1;
            return self.next - 1;
        }
        loop {
            let next_ns = self.times.since_start_ns(self.next);
            let has_next = rows.is_none_or(|rows| self.next < rows);
            match self.waiting.peek() {
                // No row that is still to come has an earlier turn.
                Some(Reverse((turn_ns, number))) if !has_next || *turn_ns <= next_ns => {
                    let number = *number;
                    self.waiting.pop();
                    return number;
                }
                _ => {
                    assert!(has_next, "more rows asked for than there are");
                    let delay_ns = mix(self.times.random(self.next)) % self.disorder_ns;
                    self.waiting.push(Reverse((next_ns + delay_ns, self.next)));
                    self.next += 1;
                }
            }
        }
    }
}

/// Generates the columns that are read.
pub(crate) enum Columns {
    Nexmark(Box<nexmark::NexmarkColumns>),
    UserVisits(user_visits::UserVisitColumns),
}

impl Columns {
    pub(crate) fn new(spec: &GeneratorSpec, read: &SchemaRef) -> Columns {
        match spec.kind {
            Kind::Nexmark => {
                Columns::Nexmark(Box::new(nexmark::NexmarkColumns::new(spec.times, read)))
            }
            Kind::UserVisits { addresses } => Columns::UserVisits(
                user_visits::UserVisitColumns::new(spec.times, addresses, read),
            ),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Columns::Nexmark(_) => "nexmark",
            Columns::UserVisits(_) => "uservisits",
        }
    }

    /// The columns of the rows with these numbers.
    pub(crate) fn make(&mut self, numbers: &[u64]) -> Vec<ArrayRef> {
        match self {
            Columns::Nexmark(columns) => columns.make(numbers),
            Columns::UserVisits(columns) => columns.make(numbers),
        }
    }
}

/// The error for an unknown column of a generator.
fn unknown_column(generator: &str, name: &str, known: &[&str]) -> OptionError {
    let mut hint = format!("its columns are {}", known.join(", "));
    if let Some(near) = crate::options::nearest(name, known) {
        hint = format!("did you mean '{near}'? {hint}");
    }
    OptionError::table(
        format!("generator {generator} has no column '{name}'"),
        hint,
    )
}

/// The error for a column of a generator with a type that it can't have.
fn wrong_type(generator: &str, field: &arrow_schema::Field, wanted: &str) -> OptionError {
    let found = crate::format::sql_type_name(field.data_type());
    let reason = format!(
        "column '{}' of generator {generator} can't be {found}",
        field.name()
    );
    OptionError::table(reason, format!("declare it as {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(disorder_ns: u64, seed: u64) -> Order {
        spec(disorder_ns, seed).order(0, None)
    }

    fn spec(disorder_ns: u64, seed: u64) -> GeneratorSpec {
        let times = Times {
            seed,
            start_ms: 0,
            events_per_second: 1_000,
        };
        GeneratorSpec {
            kind: Kind::Nexmark,
            times,
            disorder_ns,
        }
    }

    proptest! {
        #[test]
        fn disorder_is_bounded_and_loses_nothing(
            rows in 1u64..3_000, disorder_ms in 1u64..600, seed: u64,
        ) {
            let mut order = order(disorder_ms * 1_000_000, seed);
            let numbers = (0..rows).map(|_| order.next(Some(rows))).collect::<Vec<_>>();
            let mut latest = 0;
            for &number in &numbers {
                prop_assert!(number + disorder_ms > latest);
                latest = latest.max(number);
            }
            let mut sorted = numbers;
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..rows));
        }

        #[test]
        fn an_order_resumes_anywhere(
            rows in 1u64..2_000, disorder_us in 0u64..600_000, seed: u64,
            events_per_second in prop_oneof![Just(1u64), Just(7), Just(1_000), Just(1_000_000)],
            cut in any::<prop::sample::Index>(),
            is_endless: bool,
        ) {
            let mut spec = spec(disorder_us * 1_000, seed);
            spec.times.events_per_second = events_per_second;
            let in_all = (!is_endless).then_some(rows);
            let cut = cut.index(rows as usize + 1) as u64;
            let mut whole = spec.order(0, in_all);
            let mut rest = spec.order(cut, in_all);
            for row in 0..rows {
                let number = whole.next(in_all);
                if row >= cut {
                    prop_assert_eq!(rest.next(in_all), number);
                }
            }
        }
    }

    #[test]
    fn disorder_is_really_there_and_depends_on_the_seed() {
        let numbers = |seed| {
            let mut order = order(100_000_000, seed);
            (0..1_000).map(|_| order.next(None)).collect::<Vec<_>>()
        };
        assert!(
            numbers(1)
                .windows(2)
                .filter(|pair| pair[0] > pair[1])
                .count()
                > 300
        );
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
