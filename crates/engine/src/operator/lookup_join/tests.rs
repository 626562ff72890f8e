//! Tests of lookup joins against a naive loop, and of the requests to the table.

use std::sync::Mutex;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, BooleanArray, Int64Array, StringViewArray};
use arrow_schema::DataType;
use proptest::prelude::*;

use super::*;
use crate::chunk::{Origin, Partitions, Positions};
use crate::testing::{batch, schema};

/// A table of which key `k` has the rows `0..k % 4`; key 5 can't be read.
#[derive(Clone, Default)]
struct Shelf {
    /// The keys of each request.
    asked: Arc<Mutex<Vec<Vec<i64>>>>,
    cache: CacheSettings,
    /// Whether the table answers with a row that was not requested.
    lies: bool,
}

impl LookupConnector for Shelf {
    fn describe(&self) -> String {
        "shelf".to_string()
    }
    fn cache(&self) -> CacheSettings {
        self.cache
    }
    fn lookup(&self, request: &LookupRequest) -> Result<Box<dyn Lookup>> {
        assert_eq!(
            (&request.keys[..], &request.columns[..]),
            (&[0][..], &[0, 1][..])
        );
        Ok(Box::new(self.clone()))
    }
}

fn text(key: i64, number: i64) -> String {
    format!("row {number:020} of {key}")
}

impl Lookup for Shelf {
    fn open(&mut self) -> Result<()> {
        Ok(())
    }

    fn look_up(&mut self, keys: &[ArrayRef]) -> Result<Found> {
        let keys = keys[0].as_primitive::<Int64Type>().values();
        self.asked.lock().unwrap().push(keys.to_vec());
        let mut found = Vec::new();
        // Backwards: a database answers in any order.
        for (number, &key) in keys.iter().enumerate().rev() {
            found.extend((0..key % 4).map(|row| (number as u32 + u32::from(self.lies), key, row)));
        }
        let of = found.iter().map(|&(_, key, _)| key);
        let strings = found.iter().map(|&(_, key, row)| Some(text(key, row)));
        let of: ArrayRef = Arc::new(Int64Array::from_iter_values(of));
        let strings: ArrayRef = Arc::new(strings.collect::<StringViewArray>());
        let failed = keys.iter().position(|&key| key == 5);
        Ok(Found {
            rows: batch(vec![("id", of), ("text", strings)]),
            keys: found.iter().map(|&(number, ..)| number).collect(),
            failed: (failed.map(|number| (number as u32, "is torn".to_string())))
                .into_iter()
                .collect(),
        })
    }
}

/// Whether the length of the string is even or the stream's number is; fails if the number is 13.
#[derive(Debug)]
struct Condition;

fn holds(number: i64, text: &str) -> bool {
    (number + text.len() as i64 + i64::from(text.as_bytes()[23])) % 2 == 0
}

impl Expression for Condition {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let numbers = batch.column(1).as_primitive::<Int64Type>().values();
        let pairs = numbers.iter().zip(batch.column(3).as_string_view());
        let holds = pairs.map(|(&number, text)| match number {
            13 => Err(Error::new("condition", "thirteen")),
            _ => Ok(text.map(|text| holds(number, text))),
        });
        Ok(Arc::new(holds.collect::<Result<BooleanArray>>()?))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

fn join(shelf: &Shelf, keeps_unmatched: bool, conditional: bool) -> LookupJoin {
    let table = [("id", DataType::Int64), ("text", DataType::Utf8View)];
    let stream = [("key", DataType::Int64), ("n", DataType::Int64)];
    LookupJoin::new(LookupJoinSpec {
        connector: Arc::new(shelf.clone()),
        request: LookupRequest {
            keys: vec![0],
            columns: vec![0, 1],
        },
        keys: vec![0],
        table: schema(&table),
        keeps_unmatched,
        condition: conditional.then(|| Arc::new(Condition) as _),
        schema: schema(&[stream, table].concat()),
    })
    .unwrap()
}

fn chunk(keys: &[Option<i64>], first: usize) -> Chunk {
    let numbers = (first..first + keys.len()).map(|number| number as i64);
    let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let mut chunk = Chunk::new(batch(vec![("key", keys), ("n", numbers)]), 7);
    let positions = Positions::Run {
        first: first as u64,
    };
    chunk.origin = Some(Origin {
        partitions: Partitions::One(2),
        positions,
        watermarks: None,
    });
    chunk
}

/// The stream's number and the table's string of each emitted row; and the rejected numbers.
type Joined = (Vec<(i64, Option<String>)>, Vec<u64>);

fn run(join: &mut LookupJoin, keys: &[Option<i64>], input: usize, output: usize) -> Joined {
    let mut joined = Joined::default();
    join.begin_unit().unwrap();
    for (index, keys) in keys.chunks(input).enumerate() {
        let mut taken = Output::new(output);
        join.process(chunk(keys, index * input), &mut taken)
            .unwrap();
        for chunk in taken.take_chunks() {
            assert!(chunk.rows() <= output);
            let origin = chunk.origin.clone().unwrap();
            let numbers = chunk.batch.column(1).as_primitive::<Int64Type>().values();
            let strings = chunk.batch.column(3).as_string_view();
            for (row, &number) in numbers.iter().enumerate() {
                assert_eq!(origin.positions.at(row), number as u64);
                let text = strings
                    .is_valid(row)
                    .then(|| strings.value(row).to_string());
                joined.0.push((number, text));
            }
        }
        let refused = taken.rejected().iter();
        joined
            .1
            .extend(refused.map(|refused| refused.position.unwrap()));
    }
    joined.1.sort_unstable();
    joined.1.dedup();
    joined
}

fn naive(keys: &[Option<i64>], keeps_unmatched: bool, conditional: bool) -> Joined {
    let mut joined = Joined::default();
    for (number, key) in keys.iter().enumerate() {
        let rows = 0..key.map_or(0, |key| key % 4);
        let fails = conditional && number == 13 && !rows.is_empty();
        if *key == Some(5) || fails {
            joined.1.push(number as u64);
            continue;
        }
        let strings = rows.map(|row| text(key.unwrap(), row));
        let number = number as i64;
        let strings = strings.filter(|text| !conditional || holds(number, text));
        let before = joined.0.len();
        joined.0.extend(strings.map(|text| (number, Some(text))));
        if joined.0.len() == before && keeps_unmatched {
            joined.0.push((number, None));
        }
    }
    joined
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_same_as_one_by_one(
        keys in prop::collection::vec(prop::option::of(0i64..12), 0..60),
        (input, output) in (1usize..40, 1usize..20),
        (keeps_unmatched, conditional) in (any::<bool>(), any::<bool>()),
        rows_max in prop::sample::select(vec![0usize, 2, 6, 1_000]),
    ) {
        let cache = CacheSettings { rows_max, ttl_ns: None };
        let shelf = Shelf { cache, ..Shelf::default() };
        let mut join = join(&shelf, keeps_unmatched, conditional);
        let joined = run(&mut join, &keys, input, output);
        prop_assert_eq!(joined, naive(&keys, keeps_unmatched, conditional));
        for asked in shelf.asked.lock().unwrap().iter() {
            let mut distinct = asked.clone();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), asked.len(), "a key twice in one question");
        }
    }
}

#[test]
fn one_question_for_each_chunk_and_none_for_what_is_known() {
    let keys = [Some(1), Some(4), Some(1), None, Some(2), Some(4)];
    let shelf = Shelf::default();
    run(&mut join(&shelf, true, false), &keys, 3, 100);
    assert_eq!(*shelf.asked.lock().unwrap(), [[1, 4], [2, 4]]);
    // Key 4 has no rows, and that is cached too.
    let cache = CacheSettings {
        rows_max: 100,
        ttl_ns: None,
    };
    let shelf = Shelf {
        cache,
        ..Shelf::default()
    };
    let mut join = join(&shelf, true, false);
    run(&mut join, &keys, 3, 100);
    run(&mut join, &keys, 3, 100);
    assert_eq!(*shelf.asked.lock().unwrap(), [vec![1, 4], vec![2]]);
    assert!(join.bytes() > 0);
}

#[test]
fn an_answer_to_another_question_is_an_error() {
    let shelf = Shelf {
        lies: true,
        ..Shelf::default()
    };
    let mut join = join(&shelf, false, false);
    let error = join
        .process(chunk(&[Some(1)], 0), &mut Output::new(10))
        .unwrap_err();
    assert!(error.to_string().starts_with("shelf: answered"), "{error}");
}
