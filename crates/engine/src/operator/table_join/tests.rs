//! Tests of table joins against a naive nested loop, in the order of the stream.

use arrow_array::ArrayRef;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, StringViewArray};
use arrow_schema::DataType;
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::testing::{batch, rows, schema};

type Row = (Option<u8>, Option<u8>);

/// Two keys, one of them a string that is too long for its view, and the row's number.
fn chunk(rows: &[Row], first: usize) -> Chunk {
    let strings = rows
        .iter()
        .map(|row| row.0.map(|key| format!("key {key:020}")));
    let strings: ArrayRef = Arc::new(strings.collect::<StringViewArray>());
    let twos = rows.iter().map(|row| row.1.map(i64::from));
    let twos: ArrayRef = Arc::new(twos.collect::<Int64Array>());
    let numbers = (first..first + rows.len()).map(|number| number as i64);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let mut chunk = Chunk::new(batch(vec![("k", strings), ("l", twos), ("n", numbers)]), 7);
    chunk.origin = Some(Origin {
        partitions: crate::chunk::Partitions::One(2),
        positions: Positions::Run {
            first: first as u64,
        },
        watermarks: None,
    });
    chunk
}

/// The condition `(stream n + table n) % 3 != 0`; fails if the stream's number is 13.
#[derive(Debug)]
struct Condition;

impl Expression for Condition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let numbers = [2, 5].map(|column| batch.column(column).as_primitive::<Int64Type>());
        let pairs = numbers[0].values().iter().zip(numbers[1].values());
        let holds = pairs.map(|(&stream, &table)| match stream {
            13 => Err(Error::new("condition", "thirteen")),
            _ => Ok(Some((stream + table) % 3 != 0)),
        });
        let holds = holds.collect::<Result<BooleanArray>>()?;
        Ok(Arc::new(holds))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

fn spec(keys: &[usize], keeps_unmatched: bool, conditional: bool) -> TableJoinSpec {
    let side = [
        ("k", DataType::Utf8View),
        ("l", DataType::Int64),
        ("n", DataType::Int64),
    ];
    TableJoinSpec {
        keys: [keys.to_vec(), keys.to_vec()],
        table: schema(&side),
        keeps_unmatched,
        only: None,
        condition: conditional.then(|| Arc::new(Condition) as _),
        schema: schema(&[side.clone(), side].concat()),
    }
}

/// Pairs of row numbers, `None` for no partner.
fn naive(
    stream: &[Row],
    table: &[Row],
    keys: &[usize],
    keeps_unmatched: bool,
    conditional: bool,
) -> Vec<(i64, Option<i64>)> {
    let part = |row: &Row, key: usize| if key == 0 { row.0 } else { row.1 };
    let equal = |one: &Row, other: &Row| {
        let mut keys = keys.iter();
        keys.all(|&key| part(one, key).is_some() && part(one, key) == part(other, key))
    };
    let mut pairs = Vec::new();
    for (number, row) in stream.iter().enumerate() {
        let partners = table.iter().enumerate();
        let partners = partners.filter(|(partner, candidate)| {
            let holds = number != 13 && (number + partner) % 3 != 0;
            equal(row, candidate) && (!conditional || holds)
        });
        let before = pairs.len();
        pairs.extend(partners.map(|(partner, _)| (number as i64, Some(partner as i64))));
        // The condition fails for row 13: with a partner it is rejected.
        let fails = conditional && number == 13 && table.iter().any(|other| equal(row, other));
        if keeps_unmatched && pairs.len() == before && !fails {
            pairs.push((number as i64, None));
        }
    }
    pairs
}

fn feed(join: &mut TableJoin, stream: Chunk, output: &mut Output) {
    join.process(STREAM, stream, output).unwrap();
    let mut chunks = output.chunks.len();
    while join.rest(output).unwrap() == Progress::More {
        let more = output.chunks.len() - chunks;
        assert!(more <= 1, "one chunk a call");
        chunks = output.chunks.len();
    }
}

fn any_rows(most: usize) -> impl Strategy<Value = Vec<Row>> {
    let row = (
        prop::option::weighted(0.8, 0u8..4),
        prop::option::weighted(0.8, 0u8..2),
    );
    prop::collection::vec(row, 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_table_join_is_a_nested_loop_in_the_order_of_the_stream(
        stream in any_rows(40),
        table in any_rows(30),
        keys in prop::sample::select(vec![vec![], vec![0], vec![1], vec![0, 1]]),
        (keeps_unmatched, conditional) in any::<(bool, bool)>(),
        pieces in (1usize..20, 1usize..20),
        limit in 1usize..12,
    ) {
        let mut join = TableJoin::new(spec(&keys, keeps_unmatched, conditional));
        let mut output = Output::new(limit);
        let mut first = 0;
        for piece in table.chunks(pieces.0) {
            join.process(TABLE, chunk(piece, first), &mut output).unwrap();
            first += piece.len();
        }
        first = 0;
        for piece in stream.chunks(pieces.1) {
            feed(&mut join, chunk(piece, first), &mut output);
            first += piece.len();
        }
        let refused = output.rejected().iter().map(|rejected| (rejected.partition, rejected.position));
        prop_assert!(refused.eq(output.rejected().iter().map(|_| (Some(2), Some(13)))));
        let mut found = Vec::new();
        for chunk in output.take_chunks() {
            prop_assert!(chunk.rows() <= limit + pieces.1, "{} rows", chunk.rows());
            prop_assert_eq!(chunk.ingest_ns, 7);
            let origin = chunk.origin.as_ref().unwrap();
            let numbers = [2, 5].map(|column| chunk.batch.column(column).as_primitive::<Int64Type>().clone());
            for row in 0..chunk.rows() {
                let stream = numbers[0].value(row);
                prop_assert_eq!(origin.positions.at(row), stream as u64);
                found.push((stream, numbers[1].is_valid(row).then(|| numbers[1].value(row))));
            }
        }
        prop_assert_eq!(found, naive(&stream, &table, &keys, keeps_unmatched, conditional));
    }
}

#[test]
fn an_empty_table_pads_or_drops_every_row() {
    for keeps_unmatched in [false, true] {
        let mut join = TableJoin::new(spec(&[0], keeps_unmatched, false));
        let mut output = Output::new(100);
        feed(&mut join, chunk(&[(Some(1), None)], 0), &mut output);
        let rows = rows(&output.take_chunks());
        match keeps_unmatched {
            false => assert!(rows.is_empty(), "{rows:?}"),
            true => assert!(rows[0].ends_with("k=NULL, l=NULL, n=NULL"), "{rows:?}"),
        }
    }
}

#[test]
fn the_table_is_the_same_in_the_next_unit_of_work() {
    let mut join = TableJoin::new(spec(&[0], false, false));
    let mut output = Output::new(100);
    join.process(TABLE, chunk(&[(Some(1), None)], 0), &mut output)
        .unwrap();
    for _ in 0..2 {
        feed(&mut join, chunk(&[(Some(1), None)], 0), &mut output);
        assert_eq!(output.take_chunks().len(), 1);
        join.end_unit(&mut output).unwrap();
    }
    let late = join.process(TABLE, chunk(&[(Some(1), None)], 0), &mut output);
    assert!(late.is_err(), "half a table was joined");
}

const ONLY: [Only; 3] = [Only::WithPartner, Only::WithoutPartner, Only::NotAmong];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn rows_that_come_out_alone_are_those_of_a_nested_loop(
        stream in any_rows(40),
        table in any_rows(12),
        key in prop::sample::select(vec![None, Some(0), Some(1)]),
        conditional in any::<bool>(),
        size in 1usize..20,
        limit in 1usize..12,
    ) {
        let keys = key.into_iter().collect::<Vec<usize>>();
        for only in ONLY {
            let conditional = conditional && only != Only::NotAmong;
            let spec = TableJoinSpec { only: Some(only), ..spec(&keys, false, conditional) };
            let mut join = TableJoin::new(spec);
            let mut output = Output::new(limit);
            join.process(TABLE, chunk(&table, 0), &mut output).unwrap();
            let mut first = 0;
            for piece in stream.chunks(size) {
                feed(&mut join, chunk(piece, first), &mut output);
                first += piece.len();
            }
            let mut found = Vec::new();
            for chunk in output.take_chunks() {
                prop_assert_eq!(chunk.batch.num_columns(), 3);
                let origin = chunk.origin.as_ref().unwrap();
                let numbers = chunk.batch.column(2).as_primitive::<Int64Type>();
                for row in 0..chunk.rows() {
                    prop_assert_eq!(origin.positions.at(row), numbers.value(row) as u64);
                    found.push(numbers.value(row));
                }
            }
            prop_assert_eq!(found, alone(only, &stream, &table, &keys, conditional), "{:?}", only);
        }
    }
}

/// The numbers of the rows that are emitted alone.
fn alone(only: Only, stream: &[Row], table: &[Row], keys: &[usize], conditional: bool) -> Vec<i64> {
    let pairs = naive(stream, table, keys, false, conditional);
    let has_partner = |number: &i64| pairs.iter().any(|pair| pair.0 == *number);
    let part = |row: &Row, key: usize| if key == 0 { row.0 } else { row.1 };
    let is_null = |row: &Row| keys.iter().any(|&key| part(row, key).is_none());
    // A pair for which the condition fails is rejected: nothing is known about its row.
    let candidates = naive(stream, table, keys, false, false);
    let fails =
        |number: &i64| conditional && *number == 13 && candidates.iter().any(|pair| pair.0 == 13);
    let numbers = 0..stream.len() as i64;
    let wanted = |number: &i64| match only {
        Only::WithPartner => has_partner(number),
        Only::WithoutPartner => !has_partner(number) && !fails(number),
        Only::NotAmong => {
            let is_known = !is_null(&stream[*number as usize]) && !table.iter().any(is_null);
            table.is_empty() || (is_known && !has_partner(number))
        }
    };
    numbers.filter(wanted).collect()
}
