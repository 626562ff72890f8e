//! Tests of every function against a naive computation over random groups, and of what all functions
//! share: states that merge, reading that changes nothing, `scan` row by row, `resize` and reuse.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Decimal128Array, Float64Array, Int64Array, StringViewArray, UInt32Array,
};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::testing::shown;

/// Rows belong to groups below this; the group at this number stays empty.
const GROUPS: u32 = 4;

#[derive(Debug, Clone)]
struct Case {
    groups: Vec<u32>,
    values: Vec<Option<i64>>,
    order: Vec<OrderKey>,
    /// Where the rows are split into two updates.
    cut: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let row = (
        0..GROUPS,
        prop::option::weighted(0.8, -6i64..6),
        (0i64..4, 0u32..3),
    );
    (
        prop::collection::vec(row, 0..40),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(rows, cut)| {
            let cut = cut.index(rows.len() + 1);
            let order = rows.iter().enumerate().map(|(index, row)| {
                // Positions count down, so that arrival is not the order that counts.
                (row.2.0, row.2.1, (100 - index) as u64)
            });
            Case {
                groups: rows.iter().map(|row| row.0).collect(),
                values: rows.iter().map(|row| row.1).collect(),
                order: order.collect(),
                cut,
            }
        })
}

impl Case {
    fn column(&self, of: &DataType) -> ArrayRef {
        let unsigned = of.is_unsigned_integer();
        let values = self
            .values
            .iter()
            .map(|v| v.map(|v| if unsigned { v.abs() } else { v }));
        let column: ArrayRef = Arc::new(values.collect::<Int64Array>());
        match of {
            DataType::Boolean => {
                let positive = self.values.iter().map(|v| v.map(|v| v > 0));
                Arc::new(positive.collect::<arrow_array::BooleanArray>())
            }
            // Cast through 32 bits: there is no cast from BIGINT to DATE.
            DataType::Date32 => {
                let days = arrow_cast::cast(&column, &DataType::Int32).unwrap();
                arrow_cast::cast(&days, of).unwrap()
            }
            _ => arrow_cast::cast(&column, of).unwrap(),
        }
    }

    /// The rows of a group.
    fn rows(&self, group: u32) -> Vec<usize> {
        (0..self.groups.len())
            .filter(|&row| self.groups[row] == group)
            .collect()
    }

    /// The values of a group that are not NULL.
    fn present(&self, group: u32) -> Vec<i64> {
        let rows = self.rows(group);
        rows.iter().filter_map(|&row| self.values[row]).collect()
    }
}

fn slice(columns: &[ArrayRef], from: usize, to: usize) -> Vec<ArrayRef> {
    columns.iter().map(|c| c.slice(from, to - from)).collect()
}

fn fresh(function: &AggregateFunction) -> Box<dyn Accumulator> {
    let mut accumulator = function.accumulator().unwrap();
    accumulator.resize(GROUPS as usize + 1);
    accumulator
}

fn values(accumulator: &mut dyn Accumulator) -> Vec<Option<String>> {
    let values = accumulator
        .evaluate(&(0..=GROUPS).collect::<Vec<_>>())
        .unwrap();
    assert!(values.failed.is_empty());
    shown(&values.column)
}

/// Checks a function in every way in which it is used; `expected(group)` is the naive answer.
fn check(
    function: &AggregateFunction,
    arguments: &[ArrayRef],
    case: &Case,
    expected: impl Fn(u32) -> Option<String>,
) {
    let expected = (0..=GROUPS).map(expected).collect::<Vec<_>>();
    let (rows, cut) = (case.groups.len(), case.cut);
    let all = (0..=GROUPS).collect::<Vec<_>>();
    let order = |from: usize, to: usize| match function.needs_order() {
        true => &case.order[from..to],
        false => &[],
    };
    let update = |accumulator: &mut Box<dyn Accumulator>, from: usize, to: usize| {
        let arguments = slice(arguments, from, to);
        accumulator
            .update(&case.groups[from..to], &arguments, order(from, to))
            .unwrap();
    };

    // In two updates, read in between.
    let mut whole = fresh(function);
    update(&mut whole, 0, cut);
    let first = whole.state(&all).unwrap();
    values(whole.as_mut());
    update(&mut whole, cut, rows);
    assert_eq!(values(whole.as_mut()), expected, "{function:?}");
    assert_eq!(
        whole.evaluate(&[0]).unwrap().column.data_type(),
        &function.data_type()
    );

    // The first part's state, taken before the second part came, merged into the second's.
    let mut merged = fresh(function);
    update(&mut merged, cut, rows);
    merged.merge(&all, &first).unwrap();
    assert_eq!(values(merged.as_mut()), expected, "merged {function:?}");

    // States by group, in another order, into groups of other numbers.
    let mut moved = fresh(function);
    let backwards = (0..=GROUPS).rev().collect::<Vec<_>>();
    let states = whole.state(&backwards).unwrap();
    moved.merge(&all, &states).unwrap();
    let mut there = values(moved.as_mut());
    there.reverse();
    assert_eq!(there, expected, "moved {function:?}");

    // Row by row.
    let (mut scanned, mut stepped) = (fresh(function), fresh(function));
    if rows > 0 {
        let scan = scanned
            .scan(&case.groups, arguments, order(0, rows))
            .unwrap();
        let steps = (0..rows).map(|row| {
            update(&mut stepped, row, row + 1);
            let value = stepped.evaluate(&case.groups[row..=row]).unwrap();
            shown(&value.column).remove(0)
        });
        assert_eq!(
            shown(&scan.column),
            steps.collect::<Vec<_>>(),
            "scan {function:?}"
        );
    }
    assert_eq!(
        values(scanned.as_mut()),
        expected,
        "after scan {function:?}"
    );

    // Cleared and used again.
    whole.resize(0);
    whole.resize(GROUPS as usize + 1);
    assert_eq!(values(whole.as_mut()), values(fresh(function).as_mut()));
    update(&mut whole, 0, rows);
    assert_eq!(values(whole.as_mut()), expected, "cleared {function:?}");
}

fn extreme(largest: bool, of: &DataType) -> AggregateFunction {
    let of = of.clone();
    AggregateFunction::Extreme { largest, of }
}

fn distinct(function: AggregateFunction, arguments: &[DataType]) -> AggregateFunction {
    AggregateFunction::Distinct {
        function: Box::new(function),
        arguments: arguments.to_vec(),
    }
}

fn first_last(last: bool, ignore_nulls: bool, of: DataType) -> AggregateFunction {
    AggregateFunction::FirstLast {
        last,
        ignore_nulls,
        of,
    }
}

const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn count_counts(case in cases()) {
        let one = case.column(&DataType::Int64);
        // NULL where the value is negative, so that rows have NULL in either argument.
        let two = case.values.iter().map(|v| v.filter(|v| *v >= 0)).collect::<Int64Array>();
        check(&AggregateFunction::Count, &[], &case, |group| {
            Some(case.rows(group).len().to_string())
        });
        check(&AggregateFunction::Count, std::slice::from_ref(&one), &case, |group| {
            Some(case.present(group).len().to_string())
        });
        check(&AggregateFunction::Count, &[one, Arc::new(two)], &case, |group| {
            Some(case.present(group).iter().filter(|v| **v >= 0).count().to_string())
        });
    }

    #[test]
    fn sum_and_average_of_every_integer_type(case in cases()) {
        for of in &INTEGERS {
            let unsigned = of.is_unsigned_integer();
            let to = if unsigned { DataType::UInt64 } else { DataType::Int64 };
            let present = |group: u32| {
                let values = case.present(group);
                values.iter().map(|v| if unsigned { v.abs() } else { *v }).collect::<Vec<i64>>()
            };
            let column = case.column(of);
            check(&AggregateFunction::Sum { to }, std::slice::from_ref(&column), &case, |group| {
                let values = present(group);
                (!values.is_empty()).then(|| values.iter().sum::<i64>().to_string())
            });
            check(&AggregateFunction::Average, &[column], &case, |group| {
                let values = present(group);
                let average = values.iter().sum::<i64>() as f64 / values.len() as f64;
                (!values.is_empty()).then(|| format!("{average:?}"))
            });
        }
    }

    #[test]
    fn sum_and_average_of_doubles_and_decimals(case in cases()) {
        for of in [DataType::Float32, DataType::Float64] {
            let column = case.column(&of);
            let sum = AggregateFunction::Sum { to: DataType::Float64 };
            check(&sum, std::slice::from_ref(&column), &case, |group| {
                let values = case.present(group);
                (!values.is_empty()).then(|| format!("{:?}", values.iter().sum::<i64>() as f64))
            });
            check(&AggregateFunction::Average, &[column], &case, |group| {
                let values = case.present(group);
                let average = values.iter().sum::<i64>() as f64 / values.len() as f64;
                (!values.is_empty()).then(|| format!("{average:?}"))
            });
        }
        let column = case.column(&DataType::Decimal128(10, 2));
        let sum = AggregateFunction::Sum { to: DataType::Decimal128(20, 2) };
        check(&sum, &[column], &case, |group| {
            let values = case.present(group);
            (!values.is_empty()).then(|| format!("{}.00", values.iter().sum::<i64>()))
        });
    }

    #[test]
    fn min_and_max_of_every_type(case in cases()) {
        for of in [
            DataType::Int8,
            DataType::Int32,
            DataType::Int64,
            DataType::UInt64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(10, 2),
            DataType::Date32,
            DataType::Boolean,
            DataType::Timestamp(TimeUnit::Second, None),
            DataType::Timestamp(TimeUnit::Millisecond, None),
            DataType::Timestamp(TimeUnit::Microsecond, None),
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        ] {
            let column = case.column(&of);
            let shown = shown(&column);
            for largest in [false, true] {
                check(&extreme(largest, &of), std::slice::from_ref(&column), &case, |group| {
                    // The string of the row that holds the extreme number.
                    let number = |row: &usize| case.values[*row].map(|v| {
                        if of.is_unsigned_integer() { v.abs() } else { v }
                    });
                    let rows = case.rows(group).into_iter().filter(|row| number(row).is_some());
                    let row = if largest { rows.max_by_key(number) } else { rows.min_by_key(number) };
                    row.and_then(|row| shown[row].clone())
                });
            }
        }
        let column = case.column(&DataType::Utf8View);
        for largest in [false, true] {
            check(&extreme(largest, &DataType::Utf8View), std::slice::from_ref(&column), &case, |group| {
                let values = case.present(group).into_iter().map(|v| v.to_string());
                if largest { values.max() } else { values.min() }
            });
        }
    }

    #[test]
    fn quantiles_of_doubles(case in cases()) {
        for (of, fraction) in [(DataType::Float64, 0.5), (DataType::Float32, 0.25), (DataType::Float64, 1.0)] {
            let column = case.column(&of);
            let function = AggregateFunction::Quantile { fraction, of: of.clone() };
            check(&function, &[column], &case, |group| {
                let mut values = case.present(group);
                values.sort_unstable();
                let place = fraction * (values.len().checked_sub(1)? as f64);
                let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
                let value = low as f64 + (high - low) as f64 * place.fract();
                Some(format!("{value:?}"))
            });
        }
    }

    #[test]
    fn first_and_last_by_time_partition_and_position(case in cases()) {
        for of in [DataType::Int64, DataType::Utf8View, DataType::Boolean] {
            let column = case.column(&of);
            let shown = shown(&column);
            for (last, ignore_nulls) in [(false, false), (false, true), (true, false), (true, true)] {
                let function = first_last(last, ignore_nulls, of.clone());
                check(&function, std::slice::from_ref(&column), &case, |group| {
                    let rows = case.rows(group).into_iter();
                    let rows = rows.filter(|&row| !ignore_nulls || case.values[row].is_some());
                    let key = |row: &usize| case.order[*row];
                    let row = if last { rows.max_by_key(key) } else { rows.min_by_key(key) };
                    row.and_then(|row| shown[row].clone())
                });
            }
        }
    }

    #[test]
    fn distinct_rows_count_once(case in cases()) {
        let set = |group: u32| {
            let values = case.present(group).into_iter();
            values.collect::<std::collections::BTreeSet<i64>>()
        };
        for of in [DataType::Int64, DataType::Utf8View] {
            let count = distinct(AggregateFunction::Count, std::slice::from_ref(&of));
            check(&count, &[case.column(&of)], &case, |group| Some(set(group).len().to_string()));
        }
        let numbers = case.column(&DataType::Int64);
        let sum = AggregateFunction::Sum { to: DataType::Int64 };
        let sum = distinct(sum, &[DataType::Int64]);
        check(&sum, std::slice::from_ref(&numbers), &case, |group| {
            (!set(group).is_empty()).then(|| set(group).iter().sum::<i64>().to_string())
        });
        // Two arguments: rows with a NULL in either are not counted.
        let signs = case.values.iter().map(|v| v.map(|v| v.signum())).collect::<Int64Array>();
        let pairs = distinct(AggregateFunction::Count, &[DataType::Int64, DataType::Int64]);
        check(&pairs, &[numbers, Arc::new(signs)], &case, |group| Some(set(group).len().to_string()));
    }
}

#[test]
fn regression_first_value_of_distinct_rows_keeps_its_order() {
    let function = distinct(
        first_last(false, false, DataType::Int64),
        &[DataType::Int64],
    );
    assert!(function.needs_order());
    let mut accumulator = fresh(&function);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 7]));
    let order = [(3, 0, 0), (1, 0, 1), (2, 0, 2)];
    accumulator.update(&[0, 0, 0], &[column], &order).unwrap();
    assert_eq!(values(accumulator.as_mut())[0].as_deref(), Some("8"));
}

#[test]
fn rows_without_an_order_are_told_apart_by_their_values() {
    for numbers in [[5, 3, 4], [4, 5, 3], [3, 4, 5]] {
        let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        for (last, expected) in [(false, "3"), (true, "5")] {
            let mut accumulator = fresh(&first_last(last, false, DataType::Int64));
            let order = [(0, u32::MAX, 0); 3];
            accumulator
                .update(&[0, 0, 0], std::slice::from_ref(&column), &order)
                .unwrap();
            assert_eq!(values(accumulator.as_mut())[0].as_deref(), Some(expected));
        }
    }
}

#[test]
fn a_sum_that_overflows_fails_for_its_group_only() {
    let mut sum = fresh(&AggregateFunction::Sum {
        to: DataType::Int64,
    });
    let column: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 5, i64::MAX, 1]));
    sum.update(&[0, 1, 2, 0], &[column], &[]).unwrap();
    let values = sum.evaluate(&[2, 0, 1]).unwrap();
    let max = i64::MAX.to_string();
    assert_eq!(
        shown(&values.column),
        [Some(max.as_str()), None, Some("5")].map(|v| v.map(String::from))
    );
    assert_eq!(values.failed.len(), 1);
    assert_eq!(values.failed[0].0, 1);
    assert!(
        values.failed[0].1.contains("9223372036854775808"),
        "{}",
        values.failed[0].1
    );
}

#[test]
fn whether_a_sum_overflows_does_not_depend_on_order() {
    // In this order a 64-bit sum would overflow on the way; the total is 0.
    for numbers in [
        [i64::MAX, i64::MAX, -i64::MAX, -i64::MAX],
        [i64::MAX, -i64::MAX, i64::MAX, -i64::MAX],
    ] {
        let mut sum = fresh(&AggregateFunction::Sum {
            to: DataType::Int64,
        });
        let column: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        sum.update(&[0; 4], &[column], &[]).unwrap();
        assert_eq!(values(sum.as_mut())[0].as_deref(), Some("0"));
    }
    let mut sum = fresh(&AggregateFunction::Sum {
        to: DataType::UInt64,
    });
    let column: ArrayRef = Arc::new(arrow_array::UInt64Array::from(vec![u64::MAX, 1]));
    sum.update(&[0, 0], &[column], &[]).unwrap();
    assert_eq!(sum.evaluate(&[0]).unwrap().failed.len(), 1);
}

fn decimal_sum(values: &[i128]) -> Values {
    let of = DataType::Decimal128(38, 0);
    let mut sum = fresh(&AggregateFunction::Sum { to: of.clone() });
    let column = Decimal128Array::from(values.to_vec()).with_data_type(of);
    sum.update(&vec![0; values.len()], &[Arc::new(column)], &[])
        .unwrap();
    let states = sum.state(&[0]).unwrap();
    let mut merged = fresh(&AggregateFunction::Sum {
        to: DataType::Decimal128(38, 0),
    });
    merged.merge(&[1], &states).unwrap();
    let (direct, merged) = (sum.evaluate(&[0]).unwrap(), merged.evaluate(&[1]).unwrap());
    assert_eq!(shown(&direct.column), shown(&merged.column));
    direct
}

#[test]
fn a_decimal_sum_beyond_its_digits_fails_and_comes_back() {
    let largest = 10i128.pow(38) - 1;
    assert_eq!(
        shown(&decimal_sum(&[largest - 1, 1]).column),
        [Some(largest.to_string())]
    );
    for sign in [1, -1] {
        assert_eq!(decimal_sum(&[sign * largest, sign]).failed.len(), 1);
        // Three times the largest number exceeds 128 bits in between.
        let there_and_back = [sign * largest; 3].into_iter().chain([-sign * largest; 2]);
        let values = decimal_sum(&there_and_back.collect::<Vec<_>>());
        assert_eq!(shown(&values.column), [Some((sign * largest).to_string())]);
    }
}

#[test]
fn regression_a_decimal_sum_of_exactly_minus_two_to_the_127_fails() {
    let half = i128::MIN / 2;
    assert_eq!(decimal_sum(&[half, half]).failed.len(), 1);
}

#[test]
fn nan_is_the_largest_double() {
    let column: ArrayRef = Arc::new(Float64Array::from(vec![
        Some(f64::NAN),
        Some(f64::INFINITY),
        None,
        Some(-0.5),
        Some(f64::NAN),
    ]));
    for (largest, expected) in [(true, ["NaN", "NaN"]), (false, ["-0.5", "NaN"])] {
        let mut accumulator = fresh(&extreme(largest, &DataType::Float64));
        accumulator
            .update(&[0, 0, 0, 0, 1], std::slice::from_ref(&column), &[])
            .unwrap();
        let values = values(accumulator.as_mut());
        assert_eq!(values[0].as_deref(), Some(expected[0]));
        assert_eq!(values[1].as_deref(), Some(expected[1]));
        assert_eq!(values[2], None);
    }
}

#[test]
fn strings_of_any_length_and_content() {
    let long = "x".repeat(1000);
    let column: ArrayRef = Arc::new(StringViewArray::from(vec!["", "a\0b", &long, "ä", "a"]));
    let groups = [0; 5];
    let mut least = fresh(&extreme(false, &DataType::Utf8View));
    least
        .update(&groups, std::slice::from_ref(&column), &[])
        .unwrap();
    assert_eq!(values(least.as_mut())[0].as_deref(), Some(""));
    let mut most = fresh(&extreme(true, &DataType::Utf8View));
    let no_umlaut = arrow_select::take::take(&column, &UInt32Array::from(vec![0, 1, 2, 4]), None);
    most.update(&groups[..4], &[no_umlaut.unwrap()], &[])
        .unwrap();
    assert_eq!(values(most.as_mut())[0].as_deref(), Some(long.as_str()));
}

#[test]
fn types_without_a_rule_are_refused_when_the_accumulator_is_made() {
    let sum = AggregateFunction::Sum {
        to: DataType::Utf8View,
    };
    let error = sum.accumulator().err().unwrap();
    assert!(error.to_string().contains("SUM"), "{error}");
    // AVG learns its type with the first rows; digits without their scale would be wrong.
    let column = Decimal128Array::from(vec![150]).with_data_type(DataType::Decimal128(5, 2));
    let mut average = fresh(&AggregateFunction::Average);
    average.update(&[0], &[Arc::new(column)], &[]).unwrap_err();
}
