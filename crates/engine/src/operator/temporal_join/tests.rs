//! Tests of temporal joins against a naive lookup, whatever comes first.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef};
use arrow_array::{Int64Array, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

mod snapshots;

use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::expression::Expression;
use crate::testing::{advance, batch, schema};
use crate::time::MAX_WATERMARK;

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// A row of either side.
#[derive(Debug, Clone, Copy)]
struct Row {
    key: Option<i64>,
    time: EventTime,
    number: i64,
}

fn chunk(rows: &[Row]) -> Chunk {
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>());
    let times = TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.time));
    let numbers = Int64Array::from_iter_values(rows.iter().map(|row| row.number));
    let columns = vec![
        ("k", keys),
        ("ts", Arc::new(times) as ArrayRef),
        ("n", Arc::new(numbers) as ArrayRef),
    ];
    let mut chunk = Chunk::new(batch(columns), 3);
    chunk.origin = Some(Origin {
        partitions: Partitions::One(0),
        positions: Positions::Run {
            first: rows.first().map_or(0, |row| row.number as u64),
        },
        watermarks: None,
    });
    chunk
}

/// The stream's number is not 5 less than the table's.
#[derive(Debug)]
struct Condition;

impl Expression for Condition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let numbers = [2, 5].map(|column| batch.column(column).as_primitive::<Int64Type>());
        let pairs = numbers[0].values().iter().zip(numbers[1].values());
        let holds = pairs.map(|(stream, table)| Some(stream + 5 != *table));
        Ok(Arc::new(holds.collect::<BooleanArray>()))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

fn join(keeps_unmatched: bool, conditional: bool) -> TemporalJoin {
    let side = [("k", DataType::Int64), ("ts", US), ("n", DataType::Int64)];
    let spec = TemporalJoinSpec {
        join: TableJoinSpec {
            keys: [vec![0], vec![0]],
            table: schema(&side),
            keeps_unmatched,
            only: None,
            condition: conditional.then(|| Arc::new(Condition) as _),
            schema: schema(&[side.clone(), side].concat()),
        },
        times: [1, 1],
    };
    TemporalJoin::new(spec).unwrap()
}

fn naive(
    stream: &[Row],
    table: &[Row],
    keeps_unmatched: bool,
    conditional: bool,
) -> Vec<(i64, Option<i64>)> {
    let mut found = Vec::new();
    for row in stream {
        let versions = table.iter();
        let versions = versions.filter(|version| {
            row.key.is_some() && version.key == row.key && version.time <= row.time
        });
        let version = versions.max_by_key(|version| (version.time, version.number));
        let number = version.map(|version| version.number);
        let number = number.filter(|number| !conditional || row.number + 5 != *number);
        if number.is_some() || keeps_unmatched {
            found.push((row.number, number));
        }
    }
    found.sort();
    found
}

fn any_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (prop::option::weighted(0.9, 0i64..4), 0i64..60);
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let row = |(number, (key, time)): (usize, (Option<i64>, i64))| Row {
            key,
            time: 1_000 * time,
            number: number as i64,
        };
        rows.into_iter().enumerate().map(row).collect()
    })
}

fn numbers(chunks: &[Chunk]) -> Vec<(i64, Option<i64>)> {
    let mut found = Vec::new();
    for chunk in chunks {
        let columns = [2, 5].map(|column| chunk.batch.column(column).as_primitive::<Int64Type>());
        let partner = |row| columns[1].is_valid(row).then(|| columns[1].value(row));
        found.extend((0..chunk.rows()).map(|row| (columns[0].value(row), partner(row))));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_row_meets_the_version_at_its_time_whatever_comes_first(
        stream in any_rows(60),
        table in any_rows(60),
        (keeps_unmatched, conditional) in any::<(bool, bool)>(),
        // The next step: rows of the stream or the table, or a watermark this far behind.
        acts in prop::collection::vec((0usize..3, 1usize..9), 0..60),
    ) {
        // The rows' times are shuffled over a span; the watermark is the smallest time to come.
        let mut join = join(keeps_unmatched, conditional);
        let mut output = Output::new(7);
        let (mut streamed, mut versioned) = (0, 0);
        let mut watermark = EventTime::MIN;
        let last = [(0, 100), (1, 100)];
        for (act, count) in acts.into_iter().chain(last) {
            match act {
                0 => {
                    let next = (streamed + count).min(stream.len());
                    let part = chunk(&stream[streamed..next]);
                    join.process(STREAM, part, &mut output).unwrap();
                    streamed = next;
                }
                1 => {
                    let next = (versioned + count).min(table.len());
                    let part = chunk(&table[versioned..next]);
                    join.process(TABLE, part, &mut output).unwrap();
                    versioned = next;
                }
                _ => {
                    let rest = stream[streamed..].iter().chain(&table[versioned..]);
                    let earliest = rest.map(|row| row.time).min().unwrap_or(60_000);
                    watermark = watermark.max(earliest - count as i64);
                    advance(&mut join, watermark, &mut output);
                }
            }
        }
        advance(&mut join, MAX_WATERMARK, &mut output);
        let mut found = numbers(&output.take_chunks());
        found.sort();
        prop_assert_eq!(found, naive(&stream, &table, keeps_unmatched, conditional));
        prop_assert_eq!(output.rows_late(), 0);
    }
}

#[test]
fn versions_that_no_row_can_need_are_forgotten_and_the_others_are_not() {
    let mut join = join(false, false);
    let mut output = Output::new(100);
    let mut most = 0;
    for round in 0..3_000i64 {
        // Ten keys change all the time, one changed once at the beginning.
        let mut table = (0..10).map(|key| Row {
            key: Some(key),
            time: 10_000 * round,
            number: round,
        });
        let mut table = table.by_ref().collect::<Vec<Row>>();
        if round == 0 {
            table.push(Row {
                key: Some(99),
                time: 0,
                number: 4_242,
            });
        }
        join.process(TABLE, chunk(&table), &mut output).unwrap();
        let row = |key| Row {
            key: Some(key),
            time: 10_000 * round + 1,
            number: 7,
        };
        let stream = chunk(&[row(3), row(99)]);
        join.process(STREAM, stream, &mut output).unwrap();
        advance(&mut join, 10_000 * round + 5_000, &mut output);
        let found = numbers(&output.take_chunks());
        assert_eq!(found, [(7, Some(round)), (7, Some(4_242))]);
        most = most.max(join.versions.rows());
    }
    assert!(most < 3_000, "{most} rows are kept for 11 keys");
}

#[test]
fn the_last_of_several_versions_of_one_time_counts() {
    let mut join = join(false, false);
    let mut output = Output::new(100);
    let row = |number| Row {
        key: Some(1),
        time: 5,
        number,
    };
    // The later position comes first.
    for number in [8, 2] {
        join.process(TABLE, chunk(&[row(number)]), &mut output)
            .unwrap();
    }
    join.process(STREAM, chunk(&[row(0)]), &mut output).unwrap();
    advance(&mut join, MAX_WATERMARK, &mut output);
    assert_eq!(numbers(&output.take_chunks()), [(0, Some(8))]);
    join.end_unit(&mut output).unwrap();
    join.process(STREAM, chunk(&[row(0)]), &mut output).unwrap();
    advance(&mut join, MAX_WATERMARK, &mut output);
    assert!(
        output.take_chunks().is_empty(),
        "a version of the unit before"
    );
}

#[test]
fn a_row_whose_version_may_be_forgotten_is_late() {
    let mut join = join(true, false);
    let mut output = Output::new(100);
    let row = |time, number| Row {
        key: Some(1),
        time,
        number,
    };
    join.process(TABLE, chunk(&[row(0, 1), row(8_000, 2)]), &mut output)
        .unwrap();
    advance(&mut join, 10_000, &mut output);
    let stream = [row(5_000, 10), row(9_500, 11), row(20_000, 12)];
    join.process(STREAM, chunk(&stream), &mut output).unwrap();
    assert_eq!(output.rows_late(), 1);
    advance(&mut join, MAX_WATERMARK, &mut output);
    let found = numbers(&output.take_chunks());
    assert_eq!(found, [(11, Some(2)), (12, Some(2))]);
}
