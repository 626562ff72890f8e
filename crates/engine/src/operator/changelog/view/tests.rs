//! Tests of views: what a cut shows, and that it stays as it was.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, TimestampMicrosecondArray};
use arrow_schema::{DataType, TimeUnit};
use proptest::prelude::*;

use super::*;
use crate::expression::row_text;
use crate::testing::{advance, batch, schema, sorted_rows};

const TIME: usize = 0;
const KEY: usize = 1;

fn spec(key: Option<Vec<usize>>) -> ViewSpec {
    ViewSpec {
        schema: schema(&[
            ("time", DataType::Timestamp(TimeUnit::Microsecond, None)),
            ("key", DataType::Int64),
            ("number", DataType::Int64),
        ]),
        key,
        retention: None,
    }
}

type Change = (RowKind, i64, i64, i64);

fn chunk(changes: &[Change]) -> Chunk {
    let column = |of: fn(&Change) -> i64| changes.iter().map(of).collect::<Vec<i64>>();
    let times = TimestampMicrosecondArray::from(column(|change| change.1));
    let keys = Int64Array::from(column(|change| change.2));
    let numbers = Int64Array::from(column(|change| change.3));
    let rows = batch(vec![
        ("time", Arc::new(times) as ArrayRef),
        ("key", Arc::new(keys)),
        ("number", Arc::new(numbers)),
    ]);
    let kinds = changes.iter().map(|change| change.0 as i8);
    Chunk {
        kinds: Some(Int8Array::from_iter_values(kinds)),
        ..Chunk::new(rows, 0)
    }
}

/// A reader of a view with one instance.
struct Reader {
    cuts: Arc<Cuts>,
    view: ViewCuts,
}

fn view(spec: ViewSpec) -> (View, Reader) {
    let (mut views, reader) = views(spec, 1);
    (views.remove(0), reader)
}

/// A view with several instances.
fn views(spec: ViewSpec, instances: usize) -> (Vec<View>, Reader) {
    let cuts = Arc::new(Cuts::default());
    let view = cuts.add();
    cuts.begin(&[instances]);
    let views = (0..instances).map(|_| View::new(spec.clone(), view.clone()).unwrap());
    (views.collect(), Reader { cuts, view })
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn take(view: &mut View, changes: &[Change]) -> Vec<Chunk> {
    let mut output = Output::new(1000);
    view.process(0, chunk(changes), &mut output).unwrap();
    output.take_chunks()
}

fn shown(cut: &Cut) -> Vec<String> {
    let rows = cut.batches(2).map(|batch| Chunk::new(batch.unwrap(), 0));
    sorted_rows(&rows.collect::<Vec<Chunk>>())
}

/// A new cut: its barrier passes as soon as the reader asks.
fn cut(view: &mut View, reader: &Reader) -> Arc<Cut> {
    let view = RefCell::new(view);
    let ask = || {
        if let Some(number) = reader.cuts.issue() {
            view.borrow_mut().publish(number);
        }
    };
    reader.view.cut(Duration::ZERO, soon(), &ask).unwrap()
}

#[test]
fn a_cut_stays_as_it_was_while_the_view_goes_on() {
    use RowKind::*;
    let (mut view, cuts) = view(spec(Some(vec![KEY])));
    let passed = take(&mut view, &[(Insert, 1, 7, 70), (Insert, 1, 8, 80)]);
    assert_eq!(passed[0].rows(), 2);
    let first = cut(&mut view, &cuts);
    take(
        &mut view,
        &[
            (UpdateBefore, 1, 7, 70),
            (Update, 2, 7, 71),
            (Delete, 1, 8, 80),
        ],
    );
    let second = cut(&mut view, &cuts);
    assert_eq!(shown(&first).len(), 2);
    assert!(shown(&first)[0].ends_with("70"), "{:?}", shown(&first));
    assert_eq!(shown(&second).len(), 1);
    assert!(shown(&second)[0].ends_with("71"), "{:?}", shown(&second));
    let keys = |keys: &[i64]| vec![Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef];
    let found = second.get(keys(&[8, 7, 9])).unwrap();
    assert_eq!(found.num_rows(), 1);
    assert!(row_text(&found, 0).ends_with("71"));
    assert_eq!(first.get(keys(&[8, 7, 9])).unwrap().num_rows(), 2);
    // A cut that is young enough is shared, and no barrier is sent for it.
    let shared = cuts
        .view
        .cut(Duration::from_secs(3600), soon(), &|| unreachable!());
    assert_eq!(shared.unwrap().number(), 2);
    let none = cuts.view.cut(Duration::ZERO, Instant::now(), &|| ());
    assert_eq!(none.err(), Some(NoCut::TimedOut));
}

#[test]
fn a_cut_has_the_rows_of_all_instances_at_one_barrier() {
    let (mut both, reader) = views(spec(Some(vec![KEY])), 2);
    let of = |instance: usize| {
        let all = (0..40i64).map(|key| (RowKind::Insert, 1, key, key));
        let encoder = Encoder::packed(spec(None).schema, vec![KEY]).unwrap();
        let all = all.collect::<Vec<Change>>();
        let encoded = encoder.encode(&chunk(&all)).unwrap();
        let is_its = |row: &usize| bucket(encoded.key(*row).hash()) % 2 == instance;
        let own = (0..all.len()).filter(is_its).map(|row| all[row]);
        own.collect::<Vec<Change>>()
    };
    for (instance, view) in both.iter_mut().enumerate() {
        take(view, &of(instance));
    }
    let (first, others) = both.split_first_mut().unwrap();
    let views = RefCell::new((first, &mut others[0]));
    let steps = Cell::new(0);
    let ask = || {
        let number = reader.cuts.issue().unwrap();
        let (first, second) = &mut *views.borrow_mut();
        first.publish(number);
        // What the first one does now belongs to the next cut.
        take(first, &[(RowKind::Insert, 9, of(0)[0].2, 1234)]);
        second.publish(number);
        steps.set(steps.get() + 1);
    };
    let cut = reader.view.cut(Duration::ZERO, soon(), &ask).unwrap();
    assert_eq!((cut.rows(), steps.get()), (40, 1));
    assert!(shown(&cut).iter().all(|row| !row.ends_with("1234")));
    assert_eq!(cut.schema(), &spec(None).schema);
}

#[test]
fn readers_that_come_while_a_barrier_is_on_its_way_share_the_next_one() {
    let (mut view, reader) = view(spec(Some(vec![KEY])));
    take(&mut view, &[(RowKind::Insert, 1, 1, 1)]);
    let asked = |max_age: u64| {
        let until = Instant::now() + Duration::from_millis(1);
        let found = reader.view.cut(Duration::from_secs(max_age), until, &|| ());
        found.map(|cut| cut.number())
    };
    assert_eq!(reader.cuts.issue(), None, "nobody has asked");
    assert_eq!(asked(0), Err(NoCut::TimedOut));
    assert_eq!(reader.cuts.issue(), Some(1));
    assert_eq!(asked(0), Err(NoCut::TimedOut));
    assert_eq!(asked(0), Err(NoCut::TimedOut));
    assert_eq!(reader.cuts.issue(), None, "one is on its way");
    view.publish(1);
    assert_eq!(asked(3600), Ok(1));
    assert_eq!(asked(0), Err(NoCut::TimedOut));
    assert_eq!(reader.cuts.issue(), Some(2));
    // The end of the input makes further barriers unnecessary.
    view.publish(u64::MAX);
    assert_eq!(asked(0), Ok(u64::MAX));
    reader.cuts.end(true);
    assert_eq!(asked(0), Ok(u64::MAX), "the rows stay readable");
}

#[test]
fn an_earlier_incarnation_publishes_nothing() {
    let (mut old, reader) = view(spec(Some(vec![KEY])));
    take(&mut old, &[(RowKind::Insert, 1, 1, 1)]);
    reader.cuts.end(false);
    let until = Instant::now() + Duration::from_millis(1);
    let none = reader.view.cut(Duration::ZERO, until, &|| unreachable!());
    assert_eq!(none.err(), Some(NoCut::TimedOut), "the next one may begin");
    reader.cuts.begin(&[1]);
    let mut new = View::new(spec(Some(vec![KEY])), reader.view.clone()).unwrap();
    old.publish(u64::MAX);
    assert_eq!(cut(&mut new, &reader).rows(), 0);
    reader.cuts.end(true);
    let none = reader
        .view
        .cut(Duration::from_secs(9), soon(), &|| unreachable!());
    assert_eq!(none.err(), Some(NoCut::Over));
}

/// Applies what a subscriber gets to the rows at its cut.
fn followed(cut: &Cut, changes: &Changes) -> (Vec<String>, Ending) {
    let mut rows = BTreeMap::new();
    let mut apply = |chunk: &Chunk| {
        for row in 0..chunk.rows() {
            let key = chunk
                .batch
                .column(KEY)
                .as_primitive::<Int64Type>()
                .value(row);
            let kind = chunk.kinds.as_ref().map_or(0, |kinds| kinds.value(row));
            match RowKind::is_retraction(kind) {
                true if kind == RowKind::UpdateBefore as i8 => None,
                true => rows.remove(&key),
                false => rows.insert(key, row_text(&chunk.batch, row)),
            };
        }
    };
    let first = cut.batches(usize::MAX);
    first.for_each(|batch| apply(&Chunk::new(batch.unwrap(), 0)));
    let ending = loop {
        match changes.next(Instant::now()) {
            Next::Changes(chunk) => apply(&chunk),
            Next::TimedOut => break Ending::Restarted,
            Next::Ended(ending) => break ending,
        }
    };
    let mut rows = rows.into_values().collect::<Vec<String>>();
    rows.sort();
    (rows, ending)
}

/// An instance passes a barrier and ends while another has yet to come to it, or to its own end: what the
/// first has done since the barrier is told as changes, and so is not in the cut.
#[test]
fn regression_an_instance_that_ends_before_others_reach_a_barrier_is_in_the_cut_as_it_was_there() {
    for sees_barrier in [true, false] {
        let (mut both, reader) = views(spec(None), 2);
        let [one, other] = both.as_mut_slice() else {
            unreachable!();
        };
        take(one, &[(RowKind::Insert, 1, 1, 10)]);
        take(other, &[(RowKind::Insert, 1, 2, 20)]);
        let (one, other) = (RefCell::new(one), RefCell::new(other));
        let ask = || {
            let Some(number) = reader.cuts.issue() else {
                return;
            };
            one.borrow_mut().publish(number);
            take(*one.borrow_mut(), &[(RowKind::Insert, 1, 3, 30)]);
            one.borrow_mut().publish(u64::MAX);
            if sees_barrier {
                other.borrow_mut().publish(number);
            }
            take(*other.borrow_mut(), &[(RowKind::Insert, 1, 4, 40)]);
            other.borrow_mut().publish(u64::MAX);
        };
        let (cut, changes) = reader.view.subscribe(soon(), &ask).unwrap();
        assert_eq!(shown(&cut).len(), if sees_barrier { 2 } else { 3 });
        let (rows, ending) = followed(&cut, &changes);
        assert_eq!((rows.len(), ending), (4, Ending::Whole), "{rows:?}");
        let last = reader.view.cut(Duration::ZERO, soon(), &|| ()).unwrap();
        assert!(last.is_last());
        assert_eq!(shown(&last).len(), 4);
    }
}

#[test]
fn a_slow_subscriber_is_cut_off() {
    let (mut view, reader) = view(spec(Some(vec![KEY])));
    let (cut, changes) = subscribed(&mut view, &reader);
    for number in 0..=CHANGES_MAX as i64 {
        take(&mut view, &[(RowKind::Insert, 1, 1, number)]);
    }
    assert_eq!(followed(&cut, &changes), (vec![], Ending::Overrun));
    assert!(view.subscribers.is_empty());
    // The query goes on, and so do others.
    let (cut, changes) = subscribed(&mut view, &reader);
    take(&mut view, &[(RowKind::Insert, 1, 2, 2)]);
    view.publish(u64::MAX);
    let (rows, ending) = followed(&cut, &changes);
    assert_eq!((rows.len(), ending), (2, Ending::Whole));
}

fn subscribed(view: &mut View, reader: &Reader) -> (Arc<Cut>, Arc<Changes>) {
    let view = RefCell::new(view);
    let ask = || {
        if let Some(number) = reader.cuts.issue() {
            view.borrow_mut().publish(number);
        }
    };
    reader.view.subscribe(soon(), &ask).unwrap()
}

#[test]
fn there_are_so_many_subscribers_and_no_more() {
    let (mut view, reader) = view(spec(None));
    let mut all = Vec::new();
    for _ in 0..SUBSCRIBERS_MAX {
        all.push(subscribed(&mut view, &reader));
    }
    let more = reader.view.subscribe(soon(), &|| unreachable!());
    assert_eq!(more.err(), Some(NoCut::TooMany));
    all.pop();
    subscribed(&mut view, &reader);
}

#[test]
fn a_cut_shows_no_row_that_has_expired() {
    let (mut view, reader) = view(ViewSpec {
        retention: Some(ViewRetention {
            column: TIME,
            us: 1_000_000,
        }),
        ..spec(Some(vec![KEY]))
    });
    let rows = (0..50).map(|key| (RowKind::Insert, key * 1000, key, key));
    take(&mut view, &rows.collect::<Vec<Change>>());
    let mut output = Output::new(1000);
    let mut gone = 0;
    for watermark in [1_000_000, 1_010_000, 1_020_000] {
        advance(&mut view, watermark, &mut output);
        // Rows from after the watermark less the retention.
        let kept = (0..50).filter(|key| key * 1000 + 1_000_000 > watermark);
        let cut = cut(&mut view, &reader);
        assert_eq!(shown(&cut).len(), kept.count(), "at {watermark}");
        let expired = vec![Arc::new(Int64Array::from(vec![0])) as ArrayRef];
        assert_eq!(cut.get(expired).unwrap().num_rows(), 0);
        gone += output.take_chunks().iter().map(Chunk::rows).sum::<usize>();
    }
    // At the end of the input nothing remains that is no longer shown.
    advance(&mut view, MAX_WATERMARK, &mut output);
    gone += output.take_chunks().iter().map(Chunk::rows).sum::<usize>();
    assert_eq!(gone, 21);
    assert_eq!(cut(&mut view, &reader).rows(), 29);
}

#[test]
fn a_view_without_a_key_counts_copies() {
    use RowKind::*;
    let (mut view, cuts) = view(spec(None));
    take(&mut view, &[(Insert, 1, 7, 70), (Insert, 1, 7, 70)]);
    assert_eq!(shown(&cut(&mut view, &cuts)).len(), 2);
    take(&mut view, &[(Delete, 1, 7, 70), (Insert, 1, 7, 71)]);
    let rows = shown(&cut(&mut view, &cuts));
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0], rows[1]);
    // What was never there can't go.
    take(&mut view, &[(Delete, 5, 5, 5)]);
    assert_eq!(shown(&cut(&mut view, &cuts)).len(), 2);
}

#[test]
fn expired_rows_go_on_as_deletions() {
    use RowKind::*;
    let (mut view, cuts) = view(ViewSpec {
        retention: Some(ViewRetention {
            column: TIME,
            us: 8 * 64,
        }),
        ..spec(Some(vec![KEY]))
    });
    take(&mut view, &[(Insert, 0, 1, 1), (Insert, 600, 2, 2)]);
    let mut output = Output::new(1000);
    for watermark in 500..700 {
        advance(&mut view, watermark, &mut output);
    }
    let gone = output.take_chunks();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].kinds.as_ref().unwrap().value(0), Delete as i8);
    assert!(row_text(&gone[0].batch, 0).ends_with("1"));
    assert_eq!(shown(&cut(&mut view, &cuts)).len(), 1);
    // The end of the stream makes nothing old.
    advance(&mut view, MAX_WATERMARK, &mut output);
    assert!(output.take_chunks().is_empty());
}

fn changes() -> impl Strategy<Value = Vec<(u8, i64, i64)>> {
    prop::collection::vec((0u8..4, 0i64..12, 0i64..1000), 0..40)
}

proptest! {
    /// A view has the rows of a map, at every cut; slices give what one snapshot gives.
    #[test]
    fn a_view_is_a_map(chunks in prop::collection::vec(changes(), 1..12)) {
        let (mut view, cuts) = view(spec(Some(vec![KEY])));
        let mut map = BTreeMap::new();
        let (mut copy, copied) = super::tests::view(spec(Some(vec![KEY])));
        let mut since = Mark::default();
        let mut earlier = Vec::new();
        let mut followers = Vec::new();
        for changes in &chunks {
            let changes = changes.iter().map(|&(kind, key, value)| match kind {
                0 => {
                    map.remove(&key);
                    (RowKind::Delete, 0, key, value)
                }
                1 => (RowKind::UpdateBefore, 0, key, value),
                2 => {
                    map.insert(key, value);
                    (RowKind::Insert, 0, key, value)
                }
                _ => {
                    map.insert(key, value);
                    (RowKind::Update, 0, key, value)
                }
            });
            take(&mut view, &changes.collect::<Vec<Change>>());
            let cut = cut(&mut view, &cuts);
            let expected = map.iter().map(|(&key, &value)| (RowKind::Insert, 0, key, value));
            let expected = sorted_rows(&[chunk(&expected.collect::<Vec<Change>>())]);
            prop_assert_eq!(shown(&cut), expected.clone());
            earlier.push((cut, expected));
            followers.push(subscribed(&mut view, &cuts));
            // An increment in slices, of which the last is taken after further changes.
            let next = view.begin(since);
            let mut slices = Vec::new();
            while let Some(slice) = view.next(3).unwrap() {
                slices.extend(slice);
            }
            for slice in &slices {
                copy.restore(slice).unwrap();
            }
            since = next;
            let copied = super::tests::cut(&mut copy, &copied);
            prop_assert_eq!(shown(&copied), shown(&earlier.last().unwrap().0));
        }
        // Whenever somebody has subscribed, the rows at the cut and the changes after it are the rows now.
        let now = earlier.last().unwrap().1.clone();
        view.publish(u64::MAX);
        for (cut, changes) in followers {
            prop_assert_eq!(followed(&cut, &changes), (now.clone(), Ending::Whole));
        }
        for (cut, expected) in earlier {
            prop_assert_eq!(shown(&cut), expected);
        }
    }
}
