//! Tests of aggregation against a naive computation: windowed and running, every way of emitting.

mod combine;
mod examples;
mod held;
mod refire;
mod snapshots;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{
    BooleanArray, Int64Array, StringViewArray, TimestampMillisecondArray, UInt64Array,
};
use arrow_schema::TimeUnit;
use proptest::prelude::*;

use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::state::Mark;
use crate::testing::{advance, batch, rows, schema, shown, sorted_rows};
use crate::time::MAX_WATERMARK;

/// An input row; its window is the tumbling one of 10 ms.
#[derive(Debug, Clone)]
pub(super) struct Row {
    text: Option<u8>,
    number: Option<i64>,
    value: Option<i64>,
    keep: Option<bool>,
    time: i64,
    position: u64,
}

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);
const SIZE: i64 = 10;

// Columns of the input.
const TEXT: usize = 0;
const NUMBER: usize = 1;
const VALUE: usize = 2;
const KEEP: usize = 3;
const TIME: usize = 4;
const START: usize = 5;
const END: usize = 6;

fn input_schema() -> SchemaRef {
    schema(&[
        ("text", DataType::Utf8View),
        ("number", DataType::Int64),
        ("value", DataType::Int64),
        ("keep", DataType::Boolean),
        ("ts", MS),
        ("ws", MS),
        ("we", MS),
    ])
}

pub(super) fn random_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.8, 0u8..4),
        prop::option::weighted(0.8, 0i64..3),
        prop::option::weighted(0.8, -9i64..9),
        prop::option::weighted(0.9, any::<bool>()),
        -20i64..20,
    );
    prop::collection::vec(row, 0..most).prop_map(|rows| {
        let row = |(index, (text, number, value, keep, time))| Row {
            text,
            number,
            value,
            keep,
            time,
            position: index as u64,
        };
        rows.into_iter().enumerate().map(row).collect()
    })
}

fn start(row: &Row) -> i64 {
    row.time - row.time.rem_euclid(SIZE)
}

pub(super) fn chunk(rows: &[Row]) -> Chunk {
    let ms = |of: &dyn Fn(&Row) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(
            rows.iter().map(of),
        ))
    };
    let text = rows
        .iter()
        .map(|row| row.text.map(|text| format!("key {text}")));
    let number = rows.iter().map(|row| row.number);
    let value = rows.iter().map(|row| row.value);
    let keep = rows.iter().map(|row| row.keep);
    let batch = batch(vec![
        ("text", Arc::new(text.collect::<StringViewArray>())),
        ("number", Arc::new(number.collect::<Int64Array>())),
        ("value", Arc::new(value.collect::<Int64Array>())),
        ("keep", Arc::new(keep.collect::<BooleanArray>())),
        ("ts", ms(&|row| row.time)),
        ("ws", ms(&start)),
        ("we", ms(&|row| start(row) + SIZE)),
    ]);
    let positions = rows.iter().map(|row| row.position);
    Chunk {
        origin: Some(Origin {
            partitions: Partitions::One(0),
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: None,
        }),
        ..Chunk::new(batch, 0)
    }
}

/// The aggregates of all tests here: rows, sum, filtered count, distinct count, last value.
fn calls() -> Vec<AggregateCall> {
    let call = |function: AggregateFunction, arguments: &[usize], filter| AggregateCall {
        function,
        arguments: arguments.to_vec(),
        filter,
    };
    let distinct = AggregateFunction::Distinct {
        function: Box::new(AggregateFunction::Count),
        arguments: vec![DataType::Int64],
    };
    let last = AggregateFunction::FirstLast {
        last: true,
        ignore_nulls: false,
        of: DataType::Int64,
    };
    let sum = AggregateFunction::Sum {
        to: DataType::Int64,
    };
    vec![
        call(AggregateFunction::Count, &[], None),
        call(sum, &[VALUE], None),
        call(AggregateFunction::Count, &[VALUE], Some(KEEP)),
        call(distinct, &[VALUE], None),
        call(last, &[VALUE], Some(KEEP)),
    ]
}

/// The naive answer for the rows of one group.
fn answer(rows: &[&Row]) -> Vec<Option<i64>> {
    let values = rows
        .iter()
        .filter_map(|row| row.value)
        .collect::<Vec<i64>>();
    let kept = rows.iter().filter(|row| row.keep == Some(true));
    let distinct = values.iter().collect::<std::collections::BTreeSet<_>>();
    let last = kept.clone().max_by_key(|row| (row.time, row.position));
    vec![
        Some(rows.len() as i64),
        (!values.is_empty()).then(|| values.iter().sum()),
        Some(kept.filter(|row| row.value.is_some()).count() as i64),
        Some(distinct.len() as i64),
        last.and_then(|row| row.value),
    ]
}

pub(super) fn aggregate(window: Option<bool>, keys: &[usize], emit: Emit) -> Aggregate {
    refiring_aggregate(window, keys, emit, None)
}

pub(super) fn refiring_aggregate(
    window: Option<bool>,
    keys: &[usize],
    emit: Emit,
    refires: Option<Refires>,
) -> Aggregate {
    let window = window.map(|is_start| WindowKey {
        column: if is_start { START } else { END },
        is_start,
        windows: Windows::new(SIZE, SIZE, TimeUnit::Millisecond).unwrap(),
    });
    let input = input_schema();
    let key_types = keys.iter().map(|&key| input.field(key).data_type().clone());
    let types = output_types(window, &key_types.collect::<Vec<_>>(), &calls());
    let fields = types.into_iter().map(|of| ("c", of)).collect::<Vec<_>>();
    let spec = AggregateSpec {
        window,
        keys: keys.to_vec(),
        calls: calls(),
        time_column: Some(TIME),
        emit,
        refires,
        takes_back: false,
        starts_empty: false,
        emits_before: false,
        retention_us: None,
        schema: schema(&fields),
    };
    Aggregate::new(spec, &input).unwrap()
}

type Cells = Vec<Option<String>>;

/// A row's keys as they are printed.
fn key(row: &Row, keys: &[usize]) -> Cells {
    let cell = |&key: &usize| match key {
        TEXT => row.text.map(|text| format!("key {text}")),
        _ => row.number.map(|number| number.to_string()),
    };
    keys.iter().map(cell).collect()
}

fn cells(key: Cells, rows: &[&Row]) -> Cells {
    let values = answer(rows).into_iter().map(|v| v.map(|v| v.to_string()));
    key.into_iter().chain(values).collect()
}

/// The rows of chunks as printed cells; timestamps as their ticks.
fn printed(chunks: &[Chunk]) -> Vec<Cells> {
    let mut rows = Vec::new();
    for chunk in chunks {
        let columns = chunk.batch.columns().iter().map(|column| {
            shown(&match column.data_type() {
                DataType::Timestamp(..) => arrow_cast::cast(column, &DataType::Int64).unwrap(),
                _ => column.clone(),
            })
        });
        let columns = columns.collect::<Vec<_>>();
        rows.extend((0..chunk.rows()).map(|row| {
            let cells = columns.iter().map(|column| column[row].clone());
            cells.collect::<Cells>()
        }));
    }
    rows
}

/// The naive answer of a windowed aggregation, for windows that end after `from` and not after
/// `until`, sorted.
fn windowed_answer(rows: &[Row], keys: &[usize], from: i64, until: i64) -> Vec<Cells> {
    let mut groups = BTreeMap::<(i64, Cells), Vec<&Row>>::new();
    for row in rows {
        let end = start(row) + SIZE;
        if end > from && end <= until {
            groups.entry((end, key(row, keys))).or_default().push(row);
        }
    }
    let cells = groups.into_iter().map(|((end, key), rows)| {
        let front = [end - SIZE, end].map(|time| Some(time.to_string()));
        front.into_iter().chain(cells(key, &rows)).collect()
    });
    let mut cells = cells.collect::<Vec<Cells>>();
    cells.sort();
    cells
}

fn key_sets() -> impl Strategy<Value = Vec<usize>> {
    prop::sample::select(vec![
        vec![],
        vec![TEXT],
        vec![NUMBER],
        vec![TEXT, NUMBER],
        vec![NUMBER, TEXT],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn windows_are_emitted_once_complete_and_in_pieces(
        rows in random_rows(60),
        keys in key_sets(),
        is_start in any::<bool>(),
        chunk_rows in 1usize..9,
        until in -20i64..20,
    ) {
        let mut operator = aggregate(Some(is_start), &keys, Emit::Changes);
        let mut output = Output::new(chunk_rows);
        for rows in rows.chunks(chunk_rows + 3) {
            operator.process(0, chunk(rows), &mut output).unwrap();
        }
        prop_assert!(output.take_chunks().is_empty(), "nothing is complete before a watermark");
        for (from, until, watermark) in [(i64::MIN, until, until * 1000), (until, i64::MAX, MAX_WATERMARK)] {
            output.ingest_ns = 77;
            advance(&mut operator, watermark, &mut output);
            let chunks = output.take_chunks();
            for chunk in &chunks {
                prop_assert!(chunk.rows() <= chunk_rows);
                prop_assert!(chunk.origin.is_none() && chunk.kinds.is_none());
                prop_assert_eq!(chunk.ingest_ns, 77);
            }
            let mut printed = printed(&chunks);
            printed.sort();
            prop_assert_eq!(printed, windowed_answer(&rows, &keys, from, until));
        }
        prop_assert_eq!(output.rows_late(), 0);
        prop_assert_eq!(KeyedState::snapshot(&mut operator, &crate::state::BucketSet::all(), Mark(0)).unwrap().len(), 0);
    }

    #[test]
    fn a_running_aggregation_emits_each_touched_key_once_per_chunk(
        rows in random_rows(60),
        keys in key_sets(),
        chunk_rows in 1usize..9,
    ) {
        let mut operator = aggregate(None, &keys, Emit::Changes);
        let mut groups = BTreeMap::<Cells, Vec<&Row>>::new();
        for part in rows.chunks(chunk_rows) {
            let mut expected = Vec::new();
            let mut kinds = Vec::new();
            let mut touched = Vec::new();
            for row in part {
                let key = key(row, &keys);
                if !touched.contains(&key) {
                    touched.push(key.clone());
                    kinds.push(if groups.contains_key(&key) { RowKind::Update } else { RowKind::Insert } as i8);
                }
                groups.entry(key).or_default().push(row);
            }
            for key in touched {
                let rows = &groups[&key];
                expected.push(cells(key, rows));
            }
            let mut output = Output::new(1000);
            operator.process(0, chunk(part), &mut output).unwrap();
            prop_assert_eq!(operator.advance(0, &mut output).unwrap(), Progress::Done);
            let chunks = output.take_chunks();
            prop_assert_eq!(chunks.len(), 1);
            prop_assert_eq!(printed(&chunks), expected);
            prop_assert_eq!(chunks[0].kinds.as_ref().unwrap().values().to_vec(), kinds);
        }
    }

    #[test]
    fn every_row_gives_one_update(rows in random_rows(40), keys in key_sets(), chunk_rows in 1usize..9) {
        let mut operator = aggregate(None, &keys, Emit::EveryRow);
        let mut groups = BTreeMap::<Cells, Vec<&Row>>::new();
        let mut output = Output::new(1000);
        let (mut expected, mut kinds) = (Vec::new(), Vec::new());
        for part in rows.chunks(chunk_rows) {
            operator.process(0, chunk(part), &mut output).unwrap();
        }
        for row in &rows {
            let key = key(row, &keys);
            kinds.push(if groups.contains_key(&key) { RowKind::Update } else { RowKind::Insert } as i8);
            let group = groups.entry(key.clone()).or_default();
            group.push(row);
            expected.push(cells(key, group));
        }
        let chunks = output.take_chunks();
        prop_assert_eq!(printed(&chunks), expected);
        let emitted = chunks.iter().flat_map(|chunk| chunk.kinds.as_ref().unwrap().values().to_vec());
        prop_assert_eq!(emitted.collect::<Vec<_>>(), kinds);
    }

    #[test]
    fn the_next_unit_of_work_knows_nothing_of_the_last(
        one in random_rows(30),
        two in random_rows(30),
        windowed in prop::option::of(any::<bool>()),
        keys in key_sets(),
    ) {
        let unit = |operator: &mut Aggregate, rows: &[Row]| {
            let mut output = Output::new(1000);
            operator.process(0, chunk(rows), &mut output).unwrap();
            advance(operator, MAX_WATERMARK, &mut output);
            operator.end_unit(&mut output).unwrap();
            sorted_rows(&output.take_chunks())
        };
        let mut used = aggregate(windowed, &keys, Emit::Changes);
        unit(&mut used, &one);
        let mut fresh = aggregate(windowed, &keys, Emit::Changes);
        prop_assert_eq!(unit(&mut used, &two), unit(&mut fresh, &two));
    }
}

#[test]
fn every_empty_unit_of_work_has_a_total_of_its_own() {
    let mut operator = aggregate(None, &[], Emit::Changes);
    for _ in 0..2 {
        let mut output = Output::new(1000);
        operator.end_unit(&mut output).unwrap();
        assert_eq!(sorted_rows(&output.take_chunks()).len(), 1);
    }
}
