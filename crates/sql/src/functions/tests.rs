//! Aggregates written in Rust: split into parts, saved and merged in another order, they give the same value
//! as one that has seen all rows.

use std::sync::Arc;

use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, PrimitiveArray, StringViewArray};
use slackwater_engine::accumulator::Accumulator;

use super::aggregate::{Aggregate, UserAggregate, user_aggregate};
use super::{Functions, install};

/// The sum of the numbers whose string is not empty, and the largest string.
#[derive(Default)]
struct Both {
    sum: i64,
    largest: Option<String>,
}

impl Aggregate for Both {
    type Arguments = (Option<i64>, &'static str);
    type Value = Result<Option<i64>, String>;
    type State = (i64, Option<String>);

    fn add(&mut self, (number, text): (Option<i64>, &str)) {
        let sum = if text.is_empty() {
            0
        } else {
            number.unwrap_or(1000)
        };
        self.merge(Both {
            sum,
            largest: Some(text.to_string()),
        });
    }

    fn merge(&mut self, other: Both) {
        self.sum += other.sum;
        self.largest = self.largest.take().max(other.largest);
    }

    fn value(&self) -> Result<Option<i64>, String> {
        match self.largest.as_deref() {
            Some("z") => Err("z is too large".to_string()),
            largest => Ok(largest.map(|text| self.sum + text.len() as i64)),
        }
    }

    fn save(&self) -> (i64, Option<String>) {
        (self.sum, self.largest.clone())
    }

    fn load((sum, largest): (i64, Option<String>)) -> Both {
        Both { sum, largest }
    }
}

const GROUPS: u32 = 4;

fn accumulator() -> Box<dyn Accumulator> {
    let function = user_aggregate::<Both>("both");
    let user = (function.inner().as_ref() as &dyn std::any::Any).downcast_ref::<UserAggregate>();
    let mut accumulator = user.unwrap().factory().accumulator().unwrap();
    accumulator.resize(GROUPS as usize);
    accumulator
}

/// Pseudo-random rows: group, number, string.
fn rows(count: usize) -> Vec<(u32, Option<i64>, Option<&'static str>)> {
    let strings = [Some("a"), None, Some(""), Some("bcd"), Some("zz")];
    let mut seed = 7_u64;
    let mut below = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % bound
    };
    let row = |_| {
        let group = below(u64::from(GROUPS) - 1) as u32;
        let number = (below(5) > 0).then(|| below(100) as i64 - 50);
        (group, number, strings[below(5) as usize])
    };
    (0..count).map(row).collect()
}

fn add(to: &mut dyn Accumulator, rows: &[(u32, Option<i64>, Option<&str>)]) {
    let groups = rows.iter().map(|row| row.0).collect::<Vec<u32>>();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1)));
    let strings: ArrayRef = Arc::new(StringViewArray::from_iter(rows.iter().map(|row| row.2)));
    to.update(&groups, &[numbers, strings], &[]).unwrap();
}

fn values(accumulator: &mut dyn Accumulator) -> Vec<Option<i64>> {
    let values = accumulator.evaluate(&[0, 1, 2, 3]).unwrap();
    assert!(values.failed.is_empty());
    let column = values
        .column
        .as_any()
        .downcast_ref::<PrimitiveArray<Int64Type>>();
    column.unwrap().iter().collect()
}

#[test]
fn parts_that_are_saved_and_merged_give_the_whole() {
    let rows = rows(500);
    let mut whole = accumulator();
    add(whole.as_mut(), &rows);
    let expected = values(whole.as_mut());
    assert_eq!(expected[3], None, "a group without rows");
    for part in [1, 7, 100, 499] {
        let mut merged = accumulator();
        for rows in rows.chunks(part).rev() {
            let mut one = accumulator();
            add(one.as_mut(), rows);
            let state = one.state(&[0, 1, 2, 3]).unwrap();
            // Reading a state does not end the accumulator.
            assert_eq!(values(one.as_mut()).len(), 4);
            merged.merge(&[0, 1, 2, 3], &state).unwrap();
        }
        assert_eq!(values(merged.as_mut()), expected, "parts of {part}");
    }
    whole.resize(0);
    whole.resize(GROUPS as usize);
    assert_eq!(values(whole.as_mut()), [None; 4]);
}

#[test]
fn a_failing_value_affects_only_its_own_group() {
    let mut accumulator = accumulator();
    add(
        accumulator.as_mut(),
        &[(0, Some(1), Some("z")), (1, Some(1), Some("a"))],
    );
    let values = accumulator.evaluate(&[1, 0]).unwrap();
    assert_eq!(values.failed, [(1, "z is too large".to_string())]);
    assert!(values.column.is_valid(0) && values.column.is_null(1));
}

#[test]
fn regression_functions_that_are_added_at_once_are_all_there() {
    let names = (0..32).map(|number| format!("added_at_once_{number}"));
    let names = names.collect::<Vec<String>>();
    std::thread::scope(|scope| {
        for name in &names {
            scope.spawn(move || {
                let mut functions = Functions::default();
                functions.scalar(name, |value: i64| value);
                install(functions).unwrap();
            });
        }
    });
    let all = super::names();
    for name in &names {
        assert!(all.contains(name), "{name} is missing");
    }
}
