//! Tests of count windows against a naive computation over random rows of random partitions.

use arrow_array::ArrayRef;
use std::collections::BTreeMap;

use arrow_array::{StringViewArray, TimestampMillisecondArray, UInt64Array};
use proptest::prelude::*;

use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::state::{BucketSet, Mark, expire};
use crate::testing::{batch, schema, sorted_rows};
use crate::time::MIN_WATERMARK;

const MS: DataType = DataType::Timestamp(TimeUnit::Millisecond, None);

/// A row: time, key.
type Row = (i64, u8);

fn chunk(partition: usize, position: usize, rows: &[Row]) -> Chunk {
    let times = rows.iter().map(|row| row.0);
    let keys = rows
        .iter()
        .map(|row| Some(format!("a key of many bytes {}", row.1)));
    let numbers = (0..rows.len()).map(|row| (partition * 1000 + position + row) as i64);
    let batch = batch(vec![
        (
            "ts",
            Arc::new(TimestampMillisecondArray::from_iter_values(times)),
        ),
        ("k", Arc::new(keys.collect::<StringViewArray>())),
        ("n", Arc::new(Int64Array::from_iter_values(numbers))),
    ]);
    let positions = position as u64..(position + rows.len()) as u64;
    Chunk {
        origin: Some(Origin {
            partitions: Partitions::One(partition as u32),
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: None,
        }),
        ..Chunk::new(batch, 0)
    }
}

fn operator(size: i64, slide: i64) -> CountWindow {
    let input = [
        ("ts", MS),
        ("k", DataType::Utf8View),
        ("n", DataType::Int64),
    ];
    let own = [("ws", MS), ("we", MS), ("wn", DataType::Int64)];
    let all = input.iter().cloned().chain(own).collect::<Vec<_>>();
    CountWindow::new(CountWindowSpec {
        keys: vec![1],
        time_column: 0,
        windows: Windows::of_rows(size, slide, TimeUnit::Millisecond).unwrap(),
        input: schema(&input),
        schema: schema(&all),
    })
    .unwrap()
}

/// The rows of full windows as the operator prints them, sorted.
fn naive(partitions: &[Vec<Row>], size: usize, slide: usize) -> Vec<String> {
    let mut of_key = BTreeMap::<u8, Vec<(i64, usize, usize)>>::new();
    for (partition, rows) in partitions.iter().enumerate() {
        for (position, &(time, key)) in rows.iter().enumerate() {
            of_key
                .entry(key)
                .or_default()
                .push((time, partition, position));
        }
    }
    let mut chunks = Vec::new();
    for (key, mut rows) in of_key {
        rows.sort_unstable();
        for number in 0.. {
            let Some(window) = rows.get(number * slide..number * slide + size) else {
                break;
            };
            for &(time, partition, position) in window {
                let row = chunk(partition, position, &[(time, key)]);
                let mut columns = row.batch.columns().to_vec();
                let edge =
                    |ms: i64| -> ArrayRef { timestamp_column(vec![ms], TimeUnit::Millisecond) };
                columns.push(edge(window[0].0));
                columns.push(edge(window[size - 1].0 + 1));
                columns.push(Arc::new(Int64Array::from(vec![number as i64 + 1])));
                let schema = operator(1, 1).spec.schema;
                chunks.push(row.with_columns(schema, columns).unwrap());
            }
        }
    }
    sorted_rows(&chunks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn windows_hold_rows_in_order_of_time_however_they_come(
        partitions in prop::collection::vec(prop::collection::vec((0i64..40, 0u8..3), 0..30), 1..4),
        size in 1i64..6,
        slide in 1i64..8,
        steps in prop::collection::vec((any::<prop::sample::Index>(), 1usize..8, any::<u8>()), 1..40),
        chunk_rows in 1usize..20,
    ) {
        let mut one = operator(size, slide);
        let mut output = Output::new(chunk_rows);
        let mut next = vec![0; partitions.len()];
        let (mut stored, mut since) = (Vec::<RecordBatch>::new(), Mark::default());
        let mut watermark = MIN_WATERMARK;
        let mut steps = steps.iter().cycle();
        loop {
            let open = (0..next.len()).filter(|&p| next[p] < partitions[p].len());
            let open = open.collect::<Vec<usize>>();
            let (Some((which, most, what)), false) = (steps.next(), open.is_empty()) else {
                break;
            };
            let partition = *which.get(&open);
            let from = next[partition];
            let rows = &partitions[partition][from..];
            let rows = &rows[..rows.len().min(*most)];
            one.process(0, chunk(partition, from, rows), &mut output).unwrap();
            next[partition] += rows.len();
            // The highest possible watermark at which no row is late.
            let rest = (0..next.len()).flat_map(|p| &partitions[p][next[p]..]);
            let least = rest.map(|row| row.0 * 1000).min().unwrap_or(watermark);
            if what % 2 == 0 && least > watermark {
                watermark = least;
                while one.advance(watermark, &mut output).unwrap() == Progress::More {}
            }
            if what % 3 == 0 {
                stored.extend(one.snapshot(&BucketSet::all(), since).unwrap());
                since = one.clock().end_interval();
            }
            if what % 9 == 0 {
                let half = BucketSet::of(|bucket| bucket.wrapping_mul(7919) >> 3 & 1 == 1);
                one = operator(size, slide);
                stored.iter().for_each(|batch| one.restore(batch).unwrap());
                expire(&mut one, watermark).unwrap();
                let moved = one.snapshot(&half, Mark::default()).unwrap();
                one.discard(&half).unwrap();
                prop_assert!(one.snapshot(&half, Mark::default()).unwrap().is_empty());
                moved.iter().for_each(|batch| one.restore(batch).unwrap());
                stored = one.snapshot(&BucketSet::all(), Mark::default()).unwrap();
                since = one.clock().end_interval();
            }
        }
        while one.advance(MAX_WATERMARK, &mut output).unwrap() == Progress::More {}
        prop_assert_eq!(output.rows_late(), 0);
        let chunks = output.take_chunks();
        prop_assert!(chunks.iter().all(|chunk| chunk.rows() <= chunk_rows));
        prop_assert_eq!(sorted_rows(&chunks), naive(&partitions, size as usize, slide as usize));
        let kept = one.counters.iter().flat_map(|counter| &counter.rows);
        prop_assert_eq!(one.bytes, kept.map(|(_, row)| row.bytes()).sum::<usize>());
        one.end_unit(&mut output).unwrap();
        prop_assert_eq!(one.bytes, 0);
    }
}

#[test]
fn a_row_at_the_watermark_waits_and_one_behind_it_is_late() {
    let mut one = operator(1, 1);
    let mut output = Output::new(100);
    one.process(0, chunk(0, 0, &[(5, 1)]), &mut output).unwrap();
    assert_eq!(one.advance(5_000, &mut output).unwrap(), Progress::Done);
    one.process(0, chunk(1, 0, &[(5, 1), (4, 1)]), &mut output)
        .unwrap();
    assert_eq!(output.rows_late(), 1);
    while one.advance(5_001, &mut output).unwrap() == Progress::More {}
    assert_eq!(
        output.take_chunks().iter().map(Chunk::rows).sum::<usize>(),
        2
    );
}
