//! Tests of which windows rows get, and which rows are late.

use super::*;
use crate::chunk::Positions;
use arrow_array::{Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow_schema::{Field, Schema};

fn assign(
    windows: Windows,
    times: Vec<i64>,
    watermarks: Option<Vec<i64>>,
) -> (Vec<(i64, i64)>, u64) {
    let unit = DataType::Timestamp(TimeUnit::Millisecond, None);
    let schema = Arc::new(Schema::new(vec![Field::new("ts", unit.clone(), false)]));
    let out = Arc::new(Schema::new(vec![
        Field::new("ts", unit.clone(), false),
        Field::new("window_start", unit.clone(), false),
        Field::new("window_end", unit, false),
    ]));
    let batch = RecordBatch::try_new(
        schema,
        vec![Arc::new(TimestampMillisecondArray::from(times))],
    );
    let mut chunk = Chunk::new(batch.unwrap(), 0);
    chunk.origin = Some(Origin {
        partitions: crate::chunk::Partitions::One(0),
        positions: Positions::Run { first: 0 },
        watermarks: watermarks.map(|ms| Int64Array::from_iter_values(ms.iter().map(|w| w * 1000))),
    });
    let mut output = Output::new(1000);
    AssignWindows::new(0, windows, out)
        .process(chunk, &mut output)
        .unwrap();
    let mut rows = Vec::new();
    for chunk in output.take_chunks() {
        let column = |index: usize| {
            chunk
                .batch
                .column(index)
                .as_primitive::<TimestampMillisecondType>()
                .clone()
        };
        assert_eq!(column(2).value(0) - column(1).value(0), windows.size);
        assert!(chunk.origin.unwrap().watermarks.is_none());
        rows.extend((0..column(0).len()).map(|row| (column(0).value(row), column(1).value(row))));
    }
    (rows, output.rows_late())
}

#[test]
fn tumbling_windows_are_aligned_to_the_epoch_also_before_it() {
    let windows = Windows::new(10, 10, TimeUnit::Millisecond).unwrap();
    let (rows, late) = assign(windows, vec![0, 9, 10, -1, -10, 25], None);
    assert_eq!(
        rows,
        [(0, 0), (9, 0), (10, 10), (-1, -10), (-10, -10), (25, 20)]
    );
    assert_eq!(late, 0);
}

#[test]
fn a_window_whose_end_is_the_watermark_is_closed() {
    let windows = Windows::new(10, 10, TimeUnit::Millisecond).unwrap();
    let (rows, late) = assign(windows, vec![9, 9], Some(vec![9, 10]));
    assert_eq!((rows.as_slice(), late), (&[(9, 0)][..], 1));
}

#[test]
fn a_row_late_for_some_of_its_windows_joins_the_others_and_is_not_counted() {
    let windows = Windows::new(20, 10, TimeUnit::Millisecond).unwrap();
    let (rows, late) = assign(windows, vec![15, 15], Some(vec![25, 30]));
    assert_eq!((rows.as_slice(), late), (&[(15, 10)][..], 1));
}

#[test]
fn a_row_in_the_gap_between_windows_is_in_none_and_not_late() {
    let windows = Windows::new(5, 10, TimeUnit::Millisecond).unwrap();
    let (rows, late) = assign(windows, vec![4, 7], Some(vec![0, 0]));
    assert_eq!((rows.as_slice(), late), (&[(4, 0)][..], 0));
}

#[test]
fn regression_windows_beyond_64_bits_of_nanoseconds_refuse_their_row() {
    let windows = Windows::new(1_000_000, 1_000_000, TimeUnit::Nanosecond).unwrap();
    let unit = DataType::Timestamp(TimeUnit::Nanosecond, None);
    for times in [
        timestamp_column(vec![5, i64::MAX, i64::MIN, 1_999_999], TimeUnit::Nanosecond),
        timestamp_column(
            vec![0, i64::MAX / 1000, i64::MIN / 1000, 1],
            TimeUnit::Millisecond,
        ),
    ] {
        let input = crate::testing::batch(vec![("ts", times.clone())]);
        let schema = crate::testing::schema(&[
            ("ts", times.data_type().clone()),
            ("window_start", unit.clone()),
            ("window_end", unit.clone()),
        ]);
        let mut output = Output::new(100);
        AssignWindows::new(0, windows, schema)
            .process(Chunk::new(input, 0), &mut output)
            .unwrap();
        assert_eq!(output.rejected().len(), 2);
        let starts = output.take_chunks()[0].batch.column(1).clone();
        assert_eq!(timestamp_ticks(&starts).unwrap(), [0, 1_000_000]);
    }
}

#[test]
fn nonsense_windows_are_refused() {
    assert!(Windows::new(0, 1, TimeUnit::Millisecond).is_err());
    assert!(Windows::new(1, -1, TimeUnit::Millisecond).is_err());
    assert!(Windows::new(1_000_000, 1, TimeUnit::Millisecond).is_err());
    assert!(Windows::new(i64::MAX, i64::MAX, TimeUnit::Second).is_err());
    assert!(Windows::new(1500, 1500, TimeUnit::Nanosecond).is_err());
}

#[test]
fn cumulating_windows_grow_until_they_are_full() {
    let windows = Windows::cumulating(30, 10, TimeUnit::Millisecond).unwrap();
    for end in [-30, -20, -10, 0, 10, 20, 30] {
        assert_eq!(windows.start_of(end), (end - 1) - (end - 1).rem_euclid(30));
    }
    let unit = DataType::Timestamp(TimeUnit::Millisecond, None);
    let names = ["ts", "ws", "we"].map(|name| (name, unit.clone()));
    let times = timestamp_column(vec![-1, 0, 9, 10, 29], TimeUnit::Millisecond);
    let mut output = Output::new(2);
    AssignWindows::new(0, windows, crate::testing::schema(&names))
        .process(
            Chunk::new(crate::testing::batch(vec![("ts", times)]), 0),
            &mut output,
        )
        .unwrap();
    let mut found = Vec::new();
    for chunk in output.take_chunks() {
        let ticks = |column: usize| {
            timestamp_ticks(chunk.batch.column(column))
                .unwrap()
                .to_vec()
        };
        let edges = ticks(1).into_iter().zip(ticks(2));
        found.extend(ticks(0).into_iter().zip(edges));
    }
    let of = |time: i64, start: i64, ends: &[i64]| {
        ends.iter()
            .map(|&end| (time, (start, end)))
            .collect::<Vec<_>>()
    };
    let expected = [
        of(-1, -30, &[0]),
        of(0, 0, &[10, 20, 30]),
        of(9, 0, &[10, 20, 30]),
        of(10, 0, &[20, 30]),
        of(29, 0, &[30]),
    ];
    assert_eq!(found, expected.concat());
    assert!(Windows::cumulating(25, 10, TimeUnit::Millisecond).is_err());
}

#[test]
fn windows_take_rows_until_their_lateness_is_over() {
    let windows = Windows::new(10, 10, TimeUnit::Millisecond).unwrap();
    assert_eq!(
        format!("{windows:?}"),
        "Windows { size: 10, slide: 10, unit: Millisecond }"
    );
    let unit = DataType::Timestamp(TimeUnit::Millisecond, None);
    let names = ["ts", "ws", "we"].map(|name| (name, unit.clone()));
    let times = timestamp_column(vec![1, 2, 3], TimeUnit::Millisecond);
    let mut chunk = Chunk::new(crate::testing::batch(vec![("ts", times)]), 0);
    chunk.origin = Some(Origin {
        partitions: crate::chunk::Partitions::One(0),
        positions: Positions::Run { first: 0 },
        watermarks: Some(Int64Array::from(vec![10_000, 14_999, 15_000])),
    });
    let mut output = Output::new(100);
    AssignWindows::new(0, windows, crate::testing::schema(&names))
        .with_lateness(5_000)
        .process(chunk, &mut output)
        .unwrap();
    assert_eq!((output.take_chunks()[0].rows(), output.rows_late()), (2, 1));
}
