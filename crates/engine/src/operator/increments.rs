//! Tests of what a standby does, for every kind of keyed state: increments that are applied as they come
//! give the state, and the further answers, of one full snapshot; and taking and applying one costs what
//! has changed, not what there is.

mod kinds;

use arrow_array::RecordBatch;
use proptest::prelude::*;

use self::kinds::{KINDS, Kind, Row, chunk};
use super::{Output, Stateful};
use crate::chunk::Chunk;
use crate::expression::row_text;
use crate::state::{BucketSet, Mark, expire, work};
use crate::testing::advance;
use crate::time::{EventTime, MAX_WATERMARK, MIN_WATERMARK};

/// One input, and the watermark that follows it.
#[derive(Debug, Clone)]
struct Step {
    input: usize,
    chunk: Chunk,
    watermark: EventTime,
}

/// A random row: its key, its number, how much later than its step it is, and whether it retracts one.
type RandomRow = (i64, i64, i64, bool);

/// Steps for a kind: rows of random keys at times that move on, some of which are retracted later.
fn steps(kind: Kind, random: Vec<(usize, Vec<RandomRow>)>) -> Vec<Step> {
    let (mut time, mut position) = (0, 0);
    let mut there = [Vec::<Row>::new(), Vec::<Row>::new()];
    let step = |(input, rows): (usize, Vec<RandomRow>)| {
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

fn random_rows() -> impl Strategy<Value = Vec<RandomRow>> {
    let row = (0i64..7, 0i64..50, 0i64..12, prop::bool::weighted(0.3));
    prop::collection::vec(row, 0..12)
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
            (0usize..2, random_rows()), 1..24),
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
            (0usize..2, random_rows()), 1..40),
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

#[test]
fn rows_from_before_the_first_watermark_expire_at_the_same_time_after_a_restore() {
    let row = |number, time| Row {
        time,
        key: 1,
        number,
        retracted: false,
    };
    let kinds = [Kind::Forgetting, Kind::ForgettingJoin, Kind::ForgettingTopN];
    for (kind, has_base) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let (mut active, mut standby) = (kind.make(), kind.make());
        let mut output = Output::new(1000);
        let early = chunk(&[row(1, 90)], 0, kind.retracts());
        active.process(0, early, &mut output).unwrap();
        let mut since = Mark::default();
        if has_base {
            (since, _) = replicate(&mut *active, &mut *standby, since, MIN_WATERMARK);
        }
        advance(&mut *active, 100, &mut output);
        advance(&mut *active, 130, &mut output);
        replicate(&mut *active, &mut *standby, since, 130);
        // The row counts from 100, and not from the first watermark after the restore.
        let last = [
            (kind.inputs() - 1, Vec::new(), 145),
            (kind.inputs() - 1, vec![row(2, 150)], 146),
        ];
        let last = last.map(|(input, rows, watermark)| Step {
            input,
            chunk: chunk(&rows, 1, kind.retracts()),
            watermark,
        });
        let expected = answers(&mut *active, &last);
        assert_eq!(
            answers(&mut *standby, &last),
            expected,
            "{kind:?} {has_base}"
        );
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
