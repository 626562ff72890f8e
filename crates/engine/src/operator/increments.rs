//! Tests of what a standby does, for every kind of keyed state: increments that are applied as they come
//! give the state, and the further answers, of one full snapshot; and taking and applying one costs what
//! has changed, not what there is.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int8Array, Int64Array, RecordBatch, TimestampMicrosecondArray, UInt64Array,
};
use arrow_schema::{DataType, Schema, SchemaRef, SortOptions, TimeUnit};
use proptest::prelude::*;

use super::aggregate::{
    Aggregate, AggregateCall, AggregateSpec, Emit, Refires, WindowKey, output_types,
};
use super::changelog::aggregate::UpdatingAggregate;
use super::changelog::final_rows::{FinalRows, FinalSpec};
use super::changelog::join::{ChangelogJoin, ChangelogJoinSide, ChangelogJoinSpec};
use super::changelog::top_n::{TopN, TopNSpec, WindowTopN};
use super::count_window::{CountWindow, CountWindowSpec};
use super::interval_join::{IntervalJoin, IntervalJoinSpec, IntervalSide};
use super::join::{JoinKind, JoinSide, JoinSpec, WindowJoin};
use super::over::{Frame, Over, OverCall, OverFunction, OverSpec};
use super::session::{SessionAggregate, SessionRows, SessionSpec};
use super::table_join::TableJoinSpec;
use super::temporal_join::{TemporalJoin, TemporalJoinSpec};
use super::window::Windows;
use super::{Output, Stateful};
use crate::accumulator::AggregateFunction;
use crate::chunk::{Chunk, Origin, Partitions, Positions, RowKind};
use crate::expression::row_text;
use crate::state::{BucketSet, Mark, expire, work};
use crate::testing::{advance, batch, schema};
use crate::time::{EventTime, MAX_WATERMARK};

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const SIZE: i64 = 40;

/// Every operator with keyed state, and its forms that keep different things.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Running,
    Windowed,
    Refiring,
    Retracting,
    Forgetting,
    Sessions,
    RowsOfSessions,
    CountWindows,
    OverAll,
    OverFew,
    IntervalJoin,
    WindowJoin,
    TemporalJoin,
    StreamJoin,
    TopN,
    WindowTopN,
    AllAtEnd,
    FirstAtEnd,
}

const KINDS: [Kind; 18] = [
    Kind::Running,
    Kind::Windowed,
    Kind::Refiring,
    Kind::Retracting,
    Kind::Forgetting,
    Kind::Sessions,
    Kind::RowsOfSessions,
    Kind::CountWindows,
    Kind::OverAll,
    Kind::OverFew,
    Kind::IntervalJoin,
    Kind::WindowJoin,
    Kind::TemporalJoin,
    Kind::StreamJoin,
    Kind::TopN,
    Kind::WindowTopN,
    Kind::AllAtEnd,
    Kind::FirstAtEnd,
];

const TIME: usize = 0;
const KEY: usize = 1;
const NUMBER: usize = 2;
const WINDOW: usize = 3;

/// The columns of all inputs. The last one is the reach of sessions.
fn input() -> SchemaRef {
    schema(&[
        ("ts", US),
        ("k", DataType::Int64),
        ("n", DataType::Int64),
        ("ws", US),
        ("reach", US),
    ])
}

fn and(fields: &[(&str, DataType)]) -> SchemaRef {
    let more = schema(fields);
    let all = input()
        .fields()
        .iter()
        .chain(more.fields())
        .cloned()
        .collect::<Vec<_>>();
    Arc::new(Schema::new(all))
}

fn calls() -> Vec<AggregateCall> {
    let int64 = || DataType::Int64;
    let distinct = AggregateFunction::Distinct {
        function: Box::new(AggregateFunction::Count),
        arguments: vec![int64()],
    };
    let functions = [
        (AggregateFunction::Count, vec![]),
        (AggregateFunction::Sum { to: int64() }, vec![NUMBER]),
        (AggregateFunction::Average, vec![NUMBER]),
        (
            AggregateFunction::Extreme {
                largest: true,
                of: int64(),
            },
            vec![NUMBER],
        ),
        (
            AggregateFunction::Extreme {
                largest: false,
                of: US,
            },
            vec![TIME],
        ),
        (distinct, vec![NUMBER]),
    ];
    let call = |(function, arguments)| AggregateCall {
        function,
        arguments,
        filter: None,
    };
    functions.into_iter().map(call).collect()
}

fn aggregation(windows: Option<Windows>) -> AggregateSpec {
    let window = windows.map(|windows| WindowKey {
        column: WINDOW,
        is_start: true,
        windows,
    });
    let mut types = output_types(window, &[DataType::Int64], &calls());
    if windows.is_some_and(|windows| !windows.is_fixed()) {
        types.insert(0, US);
    }
    let names = (0..types.len())
        .map(|column| format!("c{column}"))
        .collect::<Vec<_>>();
    let fields = names
        .iter()
        .map(String::as_str)
        .zip(types)
        .collect::<Vec<_>>();
    AggregateSpec {
        window,
        keys: vec![KEY],
        calls: calls(),
        time_column: Some(TIME),
        emit: Emit::Changes,
        refires: None,
        takes_back: false,
        starts_empty: false,
        emits_before: false,
        retention_us: None,
        schema: schema(&fields),
    }
}

fn sessions() -> SessionSpec {
    SessionSpec {
        keys: vec![KEY],
        time_column: TIME,
        reach_column: 4,
        windows: Windows::sessions(SIZE / 4, TimeUnit::Microsecond).unwrap(),
    }
}

fn pairs() -> SchemaRef {
    let fields = input().fields().iter().cloned().collect::<Vec<_>>();
    Arc::new(Schema::new([fields.clone(), fields].concat()))
}

impl Kind {
    fn retracts(self) -> bool {
        matches!(
            self,
            Kind::Retracting | Kind::StreamJoin | Kind::TopN | Kind::AllAtEnd
        )
    }

    fn inputs(self) -> usize {
        let joins = [
            Kind::IntervalJoin,
            Kind::WindowJoin,
            Kind::TemporalJoin,
            Kind::StreamJoin,
        ];
        1 + usize::from(joins.contains(&self))
    }

    fn make(self) -> Box<dyn Stateful> {
        let fixed = || Windows::new(SIZE, SIZE, TimeUnit::Microsecond).unwrap();
        let top = |window| TopNSpec {
            partition: if window { vec![WINDOW, KEY] } else { vec![KEY] },
            window: window.then(|| WindowKey {
                column: WINDOW,
                is_start: true,
                windows: fixed(),
            }),
            order: vec![(NUMBER, SortOptions::default())],
            limit: 2,
            has_rank: false,
            takes_back: self.retracts(),
            emits_before: false,
            retention_us: None,
            input: input(),
            schema: input(),
        };
        let over = |frame| {
            let function = AggregateFunction::Sum {
                to: DataType::Int64,
            };
            let call = |function, arguments| OverCall {
                function,
                arguments,
                filter: None,
            };
            let number = call(OverFunction::RowNumber, vec![]);
            let sum = call(OverFunction::Aggregate { function, frame }, vec![NUMBER]);
            OverSpec {
                keys: vec![KEY],
                time_column: TIME,
                calls: if frame == Frame::Rows(None) {
                    vec![sum, number]
                } else {
                    vec![sum]
                },
                behind_us: 0,
                input: input(),
                schema: match frame {
                    Frame::Rows(None) => and(&[("s", DataType::Int64), ("r", DataType::UInt64)]),
                    _ => and(&[("s", DataType::Int64)]),
                },
            }
        };
        let at_end = |limit, takes_back| FinalSpec {
            order: vec![(NUMBER, SortOptions::default())],
            skip: 0,
            limit,
            takes_back,
            schema: input(),
        };
        let edges = [("we", US), ("wn", DataType::Int64)];
        match self {
            Kind::Running => Box::new(Aggregate::new(aggregation(None), &input()).unwrap()),
            Kind::Windowed => {
                Box::new(Aggregate::new(aggregation(Some(fixed())), &input()).unwrap())
            }
            Kind::Refiring => {
                let refires = Some(Refires {
                    every_ns: None,
                    lateness_us: 2 * SIZE,
                });
                let spec = AggregateSpec {
                    refires,
                    emits_before: true,
                    ..aggregation(Some(fixed()))
                };
                Box::new(Aggregate::new(spec, &input()).unwrap())
            }
            Kind::Retracting => {
                let spec = AggregateSpec {
                    takes_back: true,
                    ..aggregation(None)
                };
                Box::new(UpdatingAggregate::new(spec, &input()).unwrap())
            }
            Kind::Forgetting => {
                let spec = AggregateSpec {
                    retention_us: Some(SIZE),
                    ..aggregation(None)
                };
                Box::new(UpdatingAggregate::new(spec, &input()).unwrap())
            }
            Kind::Sessions => {
                let spec = aggregation(Some(sessions().windows));
                Box::new(SessionAggregate::new(spec, sessions(), &input()).unwrap())
            }
            Kind::RowsOfSessions => {
                let of_input = input();
                let fields = &of_input.fields()[..4];
                let edges = schema(&[("s", US), ("e", US)]);
                let all = fields
                    .iter()
                    .chain(edges.fields())
                    .cloned()
                    .collect::<Vec<_>>();
                let out = Arc::new(Schema::new(all));
                Box::new(SessionRows::new(sessions(), &input(), out).unwrap())
            }
            Kind::CountWindows => {
                let spec = CountWindowSpec {
                    keys: vec![KEY],
                    time_column: TIME,
                    windows: Windows::of_rows(4, 2, TimeUnit::Microsecond).unwrap(),
                    input: input(),
                    schema: and(&[[("s", US)].as_slice(), edges.as_slice()].concat()),
                };
                Box::new(CountWindow::new(spec).unwrap())
            }
            Kind::OverAll => Box::new(Over::new(over(Frame::Rows(None))).unwrap()),
            Kind::OverFew => Box::new(Over::new(over(Frame::Rows(Some(2)))).unwrap()),
            Kind::IntervalJoin => {
                let sides = [0, 1].map(|_| IntervalSide {
                    time_column: TIME,
                    keys: vec![KEY],
                    schema: input(),
                });
                let spec = IntervalJoinSpec {
                    sides,
                    bounds: [-SIZE / 2, SIZE / 2],
                    kind: JoinKind::Full,
                    condition: None,
                    behind_us: 0,
                    schema: pairs(),
                };
                Box::new(IntervalJoin::new(spec).unwrap())
            }
            Kind::WindowJoin => {
                let sides = [0, 1].map(|_| JoinSide {
                    window_column: WINDOW,
                    keys: vec![KEY],
                    schema: input(),
                });
                Box::new(WindowJoin::new(JoinSpec {
                    sides,
                    windows: fixed(),
                    is_start: true,
                    kind: JoinKind::Full,
                    condition: None,
                    schema: pairs(),
                }))
            }
            Kind::TemporalJoin => {
                let join = TableJoinSpec {
                    keys: [vec![KEY], vec![KEY]],
                    table: input(),
                    keeps_unmatched: true,
                    only: None,
                    condition: None,
                    schema: pairs(),
                };
                let spec = TemporalJoinSpec {
                    join,
                    times: [TIME, TIME],
                };
                Box::new(TemporalJoin::new(spec).unwrap())
            }
            Kind::StreamJoin => {
                let side = || ChangelogJoinSide {
                    keys: vec![KEY],
                    schema: input(),
                    takes_back: true,
                };
                let spec = ChangelogJoinSpec {
                    sides: [side(), side()],
                    kind: JoinKind::Full,
                    condition: None,
                    retention_us: None,
                    schema: pairs(),
                };
                Box::new(ChangelogJoin::new(spec).unwrap())
            }
            Kind::TopN => Box::new(TopN::new(top(false)).unwrap()),
            Kind::WindowTopN => Box::new(WindowTopN::new(top(true)).unwrap()),
            Kind::AllAtEnd => Box::new(FinalRows::new(at_end(None, true)).unwrap()),
            Kind::FirstAtEnd => Box::new(FinalRows::new(at_end(Some(3), false)).unwrap()),
        }
    }
}

/// A row: its time, key and number, and whether it is retracted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Row {
    time: EventTime,
    key: i64,
    number: i64,
    retracted: bool,
}

fn chunk(rows: &[Row], position: u64, retracts: bool) -> Chunk {
    let micros = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_iter_values(
            rows.iter().map(of),
        ))
    };
    let numbers = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
    };
    let batch = batch(vec![
        ("ts", micros(|row| row.time)),
        ("k", numbers(|row| row.key)),
        ("n", numbers(|row| row.number)),
        ("ws", micros(|row| row.time / SIZE * SIZE)),
        ("reach", micros(|row| row.time)),
    ]);
    let kind = |row: &Row| match row.retracted {
        true => RowKind::Delete as i8,
        false => RowKind::Insert as i8,
    };
    let positions = position..position + rows.len() as u64;
    Chunk {
        kinds: retracts.then(|| rows.iter().map(kind).collect::<Int8Array>()),
        origin: Some(Origin {
            partitions: Partitions::One(0),
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: None,
        }),
        ..Chunk::new(batch, 0)
    }
}

/// One input, and the watermark that follows it.
#[derive(Debug, Clone)]
struct Step {
    input: usize,
    chunk: Chunk,
    watermark: EventTime,
}

/// Steps for a kind: rows of random keys at times that move on, some of which are retracted later.
fn steps(kind: Kind, random: Vec<(usize, Vec<(i64, i64, i64, bool)>)>) -> Vec<Step> {
    let (mut time, mut position) = (0, 0);
    let mut there = [Vec::<Row>::new(), Vec::<Row>::new()];
    let step = |(input, rows): (usize, Vec<(i64, i64, i64, bool)>)| {
        let input = input % kind.inputs();
        time += 9;
        let rows = rows.into_iter().map(|(key, number, later, takes_back)| {
            let there = &mut there[input];
            if takes_back && kind.retracts() && !there.is_empty() {
                let row = there.swap_remove(number as usize % there.len());
                return Row {
                    retracted: true,
                    ..row
                };
            }
            let row = Row {
                time: time + later,
                key,
                number,
                retracted: false,
            };
            there.push(row);
            row
        });
        let rows = rows.collect::<Vec<Row>>();
        position += rows.len() as u64;
        Step {
            input,
            chunk: chunk(&rows, position - rows.len() as u64, kind.retracts()),
            watermark: time - 7,
        }
    };
    random.into_iter().map(step).collect()
}

/// An operator that has seen a watermark: what came before the first one counts from it, wherever that is.
fn made(kind: Kind) -> Box<dyn Stateful> {
    let mut operator = kind.make();
    advance(&mut *operator, -100, &mut Output::new(1000));
    operator
}

fn take(operator: &mut dyn Stateful, steps: &[Step], output: &mut Output) {
    for step in steps {
        operator
            .process(step.input, step.chunk.clone(), output)
            .unwrap();
        while operator.rest(output).unwrap() == super::Progress::More {}
        advance(operator, step.watermark, output);
    }
}

/// What comes out until the end, sorted.
fn answers(operator: &mut dyn Stateful, steps: &[Step]) -> Vec<String> {
    let mut output = Output::new(1000);
    take(operator, steps, &mut output);
    advance(operator, MAX_WATERMARK, &mut output);
    let chunks = output.take_chunks();
    let kind = |chunk: &Chunk, row: usize| chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
    let rows = chunks.iter().flat_map(|chunk| {
        let rows = 0..chunk.rows();
        rows.map(|row| format!("{} {}", kind(chunk, row), row_text(&chunk.batch, row)))
    });
    let mut rows = rows.collect::<Vec<String>>();
    rows.sort();
    rows
}

/// Everything that an operator holds, sorted.
fn content(operator: &mut dyn Stateful) -> Vec<String> {
    let state = operator.state().unwrap();
    let batches = state.snapshot(&BucketSet::all(), Mark::default()).unwrap();
    let rows = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| row_text(batch, row)));
    // The values of a DISTINCT aggregate come in the order of a hash table.
    let rows = rows.map(|row| {
        let values = row.split([',', ' ', '[', ']']);
        let mut values = values.filter(|value| !value.is_empty()).collect::<Vec<_>>();
        values.sort_unstable();
        values.join(", ")
    });
    let mut rows = rows.collect::<Vec<String>>();
    rows.sort();
    rows
}

/// Takes an increment since `since` and applies it; returns the next mark and the number of its rows.
fn replicate(
    from: &mut dyn Stateful,
    to: &mut dyn Stateful,
    since: Mark,
    watermark: EventTime,
) -> (Mark, usize) {
    let from = from.state().unwrap();
    let batches = from.snapshot(&BucketSet::all(), since).unwrap();
    let mark = from.clock().end_interval();
    let to = to.state().unwrap();
    for batch in &batches {
        to.restore(batch).unwrap();
    }
    expire(to, watermark).unwrap();
    (mark, batches.iter().map(|batch| batch.num_rows()).sum())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 12 } else { 200 }))]

    #[test]
    fn increments_as_they_come_give_what_a_full_snapshot_gives(
        random in prop::collection::vec(
            (0usize..2, prop::collection::vec((0i64..6, 0i64..50, 0i64..12, prop::bool::weighted(0.3)), 0..12)),
            1..24),
        each in 1usize..5,
        rest in any::<prop::sample::Index>(),
    ) {
        for kind in KINDS {
            let steps = steps(kind, random.clone());
            let (before, after) = steps.split_at(rest.index(steps.len()) + 1);
            let (mut active, mut standby, mut fresh) = (made(kind), made(kind), made(kind));
            let mut output = Output::new(1000);
            let mut since = Mark::default();
            for (number, steps) in before.chunks(each).enumerate() {
                take(&mut *active, steps, &mut output);
                let watermark = steps[steps.len() - 1].watermark;
                // A checkpoint that failed: the next increment is since an earlier one.
                let (mark, _) = match number % 3 {
                    1 => (active.state().unwrap().clock().end_interval(), 0),
                    _ => replicate(&mut *active, &mut *standby, since, watermark),
                };
                since = if number % 3 == 1 { since } else { mark };
            }
            let watermark = before[before.len() - 1].watermark;
            replicate(&mut *active, &mut *standby, since, watermark);
            replicate(&mut *active, &mut *fresh, Mark::default(), watermark);
            prop_assert_eq!(content(&mut *standby), content(&mut *fresh), "{:?}", kind);
            let expected = answers(&mut *active, after);
            prop_assert_eq!(answers(&mut *standby, after), expected.clone(), "{:?} standby", kind);
            prop_assert_eq!(answers(&mut *fresh, after), expected, "{:?} fresh", kind);
        }
    }
}

/// Takes a snapshot in slices of `entries`, with steps and closing windows in between; the steps that were
/// not needed for that are left.
fn in_slices(
    operator: &mut dyn Stateful,
    since: Mark,
    entries: usize,
    steps: &mut &[Step],
    output: &mut Output,
) -> (Mark, Vec<RecordBatch>) {
    let mark = operator.state().unwrap().sliced().unwrap().begin(since);
    let mut batches = Vec::new();
    while let Some(slice) = operator
        .state()
        .unwrap()
        .sliced()
        .unwrap()
        .next(entries)
        .unwrap()
    {
        batches.extend(slice);
        if let Some((step, rest)) = steps.split_first() {
            take(operator, std::slice::from_ref(step), output);
            *steps = rest;
        }
    }
    (mark, batches)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 400 }))]

    #[test]
    fn slices_are_one_cut_whatever_changes_between_them(
        random in prop::collection::vec(
            (0usize..2, prop::collection::vec((0i64..9, 0i64..50, 0i64..12, any::<bool>()), 0..9)), 1..40),
        cuts in prop::collection::vec((1usize..6, 1usize..8, any::<bool>()), 1..6),
    ) {
        let kinds = KINDS.into_iter();
        for kind in kinds.filter(|kind| kind.make().state().unwrap().sliced().is_some()) {
            let all = steps(kind, random.clone());
            let mut left = &all[..];
            let (mut active, mut standby, mut model) = (made(kind), made(kind), made(kind));
            let mut output = Output::new(1000);
            let mut since = Mark::default();
            for &(before, entries, gives_up) in &cuts {
                let (now, rest) = left.split_at(before.min(left.len()));
                take(&mut *active, now, &mut output);
                take(&mut *model, now, &mut Output::new(1000));
                left = rest;
                let at_cut = content(&mut *model);
                if gives_up {
                    let sliced = active.state().unwrap().sliced().unwrap();
                    sliced.begin(since);
                    sliced.next(entries).unwrap();
                    sliced.give_up();
                    continue;
                }
                let from = all.len() - left.len();
                let (mark, batches) =
                    in_slices(&mut *active, since, entries, &mut left, &mut output);
                for batch in &batches {
                    standby.state().unwrap().restore(batch).unwrap();
                }
                if let Some(last) = all[..from].last() {
                    expire(standby.state().unwrap(), last.watermark).unwrap();
                }
                prop_assert_eq!(content(&mut *standby), at_cut, "{:?}", kind);
                take(&mut *model, &all[from..all.len() - left.len()], &mut Output::new(1000));
                since = mark;
            }
            prop_assert_eq!(content(&mut *active), content(&mut *model), "{:?}", kind);
            prop_assert_eq!(answers(&mut *active, left), answers(&mut *model, left), "{:?}", kind);
        }
    }
}

/// The number of keys of a large state, and of those that change in an interval.
const MANY: i64 = 3_000;
const FEW: i64 = 10;

/// The most entries that the work for `FEW` keys may touch: a key has up to four rows on each of two sides,
/// all of which count their partners, is listed twice on each, and a row is read and written.
const WORK_MAX: usize = 16 * FEW as usize;

#[test]
fn taking_and_applying_an_increment_costs_what_has_changed() {
    for kind in KINDS {
        let (mut active, mut standby) = (kind.make(), kind.make());
        let rows = |keys: i64, time, number: i64| {
            let row = |key| Row {
                time,
                key: key * MANY / keys,
                number,
                retracted: false,
            };
            (0..keys).map(row).collect::<Vec<Row>>()
        };
        let mut since = Mark::default();
        for round in 0..4 {
            let keys = if round == 0 { MANY } else { FEW };
            let rows = rows(keys, 100 + round, 50 - round);
            let steps = (0..kind.inputs()).map(|input| Step {
                input,
                chunk: chunk(&rows, round as u64 * MANY as u64, kind.retracts()),
                watermark: 100,
            });
            let steps = steps.collect::<Vec<Step>>();
            take(&mut *active, &steps, &mut Output::new(100_000));
            work::take();
            let (mark, rows) = replicate(&mut *active, &mut *standby, since, 100);
            let done = work::take();
            since = mark;
            if round == 0 {
                assert!(rows > 0, "{kind:?}");
            } else {
                // An only key has all rows of the state, but few of them change.
                assert!(rows <= WORK_MAX, "{kind:?}: {rows} rows");
                assert!(done <= WORK_MAX, "{kind:?}: {done} entries");
            }
        }
        assert_eq!(content(&mut *active), content(&mut *standby), "{kind:?}");
    }
}
