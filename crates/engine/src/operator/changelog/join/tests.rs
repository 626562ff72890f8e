//! Tests of joins of two changelogs against a nested loop over the remaining rows.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, StringViewArray};
use arrow_schema::{DataType, Schema};
use proptest::prelude::*;

use super::*;
use crate::error::Error;
use crate::operator::changelog::tests::{
    Change, KEY, NUMBER, Row, Table, chunk, halves, only_additions, part, random_changes,
    remaining, row_schema,
};
use crate::state::{BucketSet, Mark};
use crate::testing::rows;

const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
];

/// The condition `left.number <= right.number`; NULL for NULL; fails if the left number is `fails_at`.
#[derive(Debug)]
struct InOrder {
    fails_at: i64,
}

impl Expression for InOrder {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let column = |index: usize| batch.column(index).as_primitive::<Int64Type>().clone();
        let (left, right) = (column(NUMBER), column(4 + NUMBER));
        if left.iter().flatten().any(|number| number == self.fails_at) {
            return Err(Error::new("condition", "division by zero"));
        }
        let pairs = left.iter().zip(right.iter());
        let holds = pairs.map(|(left, right)| Some(left? <= right?));
        Ok(Arc::new(holds.collect::<BooleanArray>()))
    }
    fn data_type(&self) -> DataType {
        DataType::Boolean
    }
}

#[derive(Debug, Clone, Copy)]
struct Form {
    kind: JoinKind,
    keyed: bool,
    fails_at: Option<i64>,
    /// Whether the right side retracts nothing.
    right_stays: bool,
}

impl Form {
    /// The right side's changes as this form has them.
    fn right(&self, changes: Vec<Change>) -> Vec<Change> {
        match self.right_stays {
            true => only_additions(&changes),
            false => changes,
        }
    }
}

fn forms() -> impl Strategy<Value = Form> {
    let kind = prop::sample::select(KINDS.to_vec());
    (
        kind,
        any::<bool>(),
        prop::option::of(prop::sample::select(vec![2, 100])),
        any::<bool>(),
    )
        .prop_map(|(kind, keyed, fails_at, right_stays)| Form {
            kind,
            keyed,
            fails_at,
            right_stays,
        })
}

fn join(form: Form, retention_us: Option<i64>) -> ChangelogJoin {
    let side = |takes_back| ChangelogJoinSide {
        keys: if form.keyed { vec![KEY] } else { vec![] },
        schema: row_schema(),
        takes_back,
    };
    let of_side = row_schema();
    let fields = of_side.fields().iter().chain(of_side.fields()).cloned();
    let condition = form
        .fails_at
        .map(|fails_at| Arc::new(InOrder { fails_at }) as _);
    ChangelogJoin::new(ChangelogJoinSpec {
        sides: [side(true), side(!form.right_stays)],
        kind: form.kind,
        condition,
        retention_us,
        schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
    })
    .unwrap()
}

/// The rows of the join, as strings.
fn nested_loop(sides: [&[Row]; 2], form: Form) -> Table {
    let changes = |row: &Row| {
        chunk(&[Change {
            row: row.clone(),
            retracts: false,
        }])
    };
    let text = |row: Option<&Row>| match row {
        Some(row) => rows(&[changes(row)]).remove(0),
        None => "key=NULL, number=NULL, text=NULL, float=NULL".to_string(),
    };
    let mut joined = Vec::new();
    let mut has_partner = [vec![false; sides[0].len()], vec![false; sides[1].len()]];
    for (l, left) in sides[0].iter().enumerate() {
        for (r, right) in sides[1].iter().enumerate() {
            let same_key = !form.keyed || (left.key.is_some() && left.key == right.key);
            let fails = form.fails_at.is_some_and(|at| left.number == Some(at));
            let holds = match (form.fails_at, left.number, right.number) {
                (None, ..) => true,
                (_, Some(left), Some(right)) => left <= right,
                _ => false,
            };
            if same_key && (holds || fails) {
                let counts = form.kind != JoinKind::Semi || !fails;
                has_partner[0][l] |= counts;
                has_partner[1][r] |= counts;
                if !fails {
                    joined.push(format!("{}, {}", text(Some(left)), text(Some(right))));
                }
            }
        }
    }
    if form.kind.is_of_left() {
        let wanted = form.kind == JoinKind::Semi;
        let rows = sides[0].iter().zip(&has_partner[0]);
        let rows = rows.filter(|(_, has_partner)| **has_partner == wanted);
        return Table::of(rows.map(|(row, _)| text(Some(row))));
    }
    for side in 0..2 {
        for (row, has_partner) in sides[side].iter().zip(&has_partner[side]) {
            if form.kind.keeps(side) && !has_partner {
                let [left, right] = if side == 0 {
                    [Some(row), None]
                } else {
                    [None, Some(row)]
                };
                joined.push(format!("{}, {}", text(left), text(right)));
            }
        }
    }
    Table::of(joined)
}

/// Feeds both sides in turn, a chunk each.
fn feed(
    operator: &mut ChangelogJoin,
    sides: [&[Change]; 2],
    size: usize,
    buckets: &BucketSet,
) -> Vec<Chunk> {
    let mut output = Output::new(5);
    feed_into(operator, sides, size, buckets, &mut output);
    output.take_chunks()
}

fn feed_into(
    operator: &mut ChangelogJoin,
    sides: [&[Change]; 2],
    size: usize,
    buckets: &BucketSet,
    output: &mut Output,
) {
    let mut chunks = sides.map(|changes| changes.chunks(size));
    loop {
        let next = [chunks[0].next(), chunks[1].next()];
        for (side, changes) in next.iter().enumerate() {
            let Some(changes) = changes else { continue };
            let keys = operator.spec.sides[side].keys.clone();
            operator
                .process(side, part(&chunk(changes), &keys, buckets), output)
                .unwrap();
            while operator.rest(output).unwrap() == Progress::More {}
        }
        if next.iter().all(Option::is_none) {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_changelog_stands_for_the_join_of_what_remains(
        left in random_changes(30),
        right in random_changes(30),
        form in forms(),
        size in 1usize..12,
    ) {
        let right = form.right(right);
        let mut operator = join(form, None);
        let chunks = feed(&mut operator, [&left, &right], size, &BucketSet::all());
        let mut table = Table::default();
        table.apply(&chunks);
        let rows = [remaining(&left), remaining(&right)];
        prop_assert_eq!(table, nested_loop([&rows[0], &rows[1]], form));
        if rows.iter().all(Vec::is_empty) {
            prop_assert_eq!(operator.bytes(), 0);
        }
    }

    #[test]
    fn it_goes_on_from_snapshots_one_upon_the_other_in_two_halves(
        left in random_changes(40),
        right in random_changes(40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 2),
        form in forms(),
        seed in any::<u64>(),
    ) {
        let form = Form { keyed: true, ..form };
        let right = form.right(right);
        let cut_of = |changes: &[Change], cut: usize| cuts[cut].index(changes.len() + 1);
        let cuts = [0, 1].map(|cut| [cut_of(&left, cut), cut_of(&right, cut)]);
        let cuts = [
            [cuts[0][0].min(cuts[1][0]), cuts[0][1].min(cuts[1][1])],
            [cuts[0][0].max(cuts[1][0]), cuts[0][1].max(cuts[1][1])],
        ];
        let all = BucketSet::all();
        let mut one = join(form, None);
        let mut table = Table::default();
        let (mut batches, mut since, mut from) = (Vec::new(), Mark::default(), [0, 0]);
        for cut in cuts {
            let sides = [&left[from[0]..cut[0]], &right[from[1]..cut[1]]];
            table.apply(&feed(&mut one, sides, 4, &all));
            let mark = one.clock().end_interval();
            batches.extend(one.snapshot(&all, since).unwrap());
            (since, from) = (mark, cut);
        }
        for half in halves(seed) {
            let mut other = join(form, None);
            batches.iter().for_each(|batch| other.restore(batch).unwrap());
            other.discard(&BucketSet::of(|bucket| !half.contains(bucket))).unwrap();
            table.apply(&feed(&mut other, [&left[from[0]..], &right[from[1]..]], 3, &half));
        }
        let rows = [remaining(&left), remaining(&right)];
        prop_assert_eq!(table, nested_loop([&rows[0], &rows[1]], form));
    }

    #[test]
    fn how_many_pairs_are_refused_does_not_depend_on_which_side_came_first(
        left in random_changes(20),
        right in random_changes(20),
        form in forms(),
        size in 1usize..6,
    ) {
        let (left, right) = (only_additions(&left), only_additions(&right));
        let refused = |orders: [[&[Change]; 2]; 2]| {
            let mut operator = join(form, None);
            let mut output = Output::new(5);
            for sides in orders {
                feed_into(&mut operator, sides, size, &BucketSet::all(), &mut output);
            }
            output.rejected().len()
        };
        let left_first = refused([[&left, &[]], [&[], &right]]);
        prop_assert_eq!(left_first, refused([[&[], &right], [&left, &[]]]));
        prop_assert_eq!(left_first, refused([[&left, &right], [&[], &[]]]));
    }
}

fn row(key: u8, number: i64, retracts: bool) -> Change {
    let row = Row {
        key: Some(key),
        number: Some(number),
        text: None,
    };
    Change { row, retracts }
}

#[test]
fn rows_that_are_old_find_no_partner_and_are_dropped() {
    let form = Form {
        kind: JoinKind::Left,
        keyed: true,
        fails_at: None,
        right_stays: false,
    };
    let mut operator = join(form, Some(100));
    let all = BucketSet::all();
    let mut output = Output::new(100);
    feed(&mut operator, [&[], &[row(1, 7, false)]], 1, &all);
    operator.advance(1_000, &mut output).unwrap();
    let chunks = feed(&mut operator, [&[row(1, 1, false)], &[]], 1, &all);
    assert!(rows(&chunks)[0].ends_with("key=1, number=7, text=NULL, float=3.5"));
    operator.advance(1_100, &mut output).unwrap();
    let chunks = feed(&mut operator, [&[row(1, 2, false)], &[]], 1, &all);
    assert!(rows(&chunks)[0].ends_with("key=NULL, number=NULL, text=NULL, float=NULL"));
    // A row that was joined before is retracted as far as its partners are known.
    let chunks = feed(&mut operator, [&[row(1, 1, true)], &[]], 1, &all);
    assert!(chunks.is_empty(), "{chunks:?}");
}

#[test]
fn a_row_with_many_partners_comes_out_in_pieces() {
    let form = Form {
        kind: JoinKind::Inner,
        keyed: true,
        fails_at: None,
        right_stays: false,
    };
    let mut operator = join(form, None);
    let many = (0..40)
        .map(|number| row(1, number, false))
        .collect::<Vec<_>>();
    let chunks = feed(
        &mut operator,
        [&many, &[row(1, 0, false)]],
        40,
        &BucketSet::all(),
    );
    assert_eq!(chunks.iter().map(Chunk::rows).sum::<usize>(), 40);
    assert!(chunks.iter().all(|chunk| chunk.rows() <= 5));
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    let form = Form {
        kind: JoinKind::Inner,
        keyed: true,
        fails_at: None,
        right_stays: false,
    };
    let mut operator = join(form, None);
    let text: ArrayRef = Arc::new(StringViewArray::from(vec!["x"]));
    let side: ArrayRef = Arc::new(Int8Array::from(vec![1]));
    for columns in [
        vec![("text", text.clone())],
        vec![("side", side), ("text", text)],
    ] {
        let error = operator
            .restore(&crate::testing::batch(columns))
            .unwrap_err();
        assert!(error.to_string().contains("snapshot of"), "{error}");
    }
}

/// A semi or anti join by the key whose right side stays.
fn existence(kind: JoinKind, retention_us: Option<i64>) -> ChangelogJoin {
    let form = Form {
        kind,
        keyed: true,
        fails_at: None,
        right_stays: true,
    };
    join(form, retention_us)
}

#[test]
fn a_row_that_has_found_its_partner_is_not_kept() {
    for kind in [JoinKind::Semi, JoinKind::Anti] {
        let mut operator = existence(kind, None);
        let all = BucketSet::all();
        let right = [row(1, 0, false)];
        feed(&mut operator, [&[], &right], 1, &all);
        let before = operator.bytes();
        let left = (0..50).map(|number| row(1, number, false));
        let left = left.collect::<Vec<_>>();
        let chunks = feed(&mut operator, [&left, &[]], 50, &all);
        let came = chunks.iter().map(Chunk::rows).sum::<usize>();
        assert_eq!(came, if kind == JoinKind::Semi { 50 } else { 0 });
        assert_eq!(operator.bytes(), before, "{kind:?}");
        // A row that was waiting for a partner goes when the partner comes.
        let waiting = [row(2, 1, false), row(2, 1, false), row(2, 3, false)];
        feed(&mut operator, [&waiting, &[]], 3, &all);
        let chunks = feed(&mut operator, [&[], &[row(2, 0, false)]], 1, &all);
        assert_eq!(chunks.iter().map(Chunk::rows).sum::<usize>(), 3);
        assert_eq!(
            chunks[0].kinds.is_some(),
            kind == JoinKind::Anti || operator.makes_updates()
        );
        assert_eq!(operator.bytes(), 2 * before, "{kind:?}");
    }
}

#[test]
fn a_partner_that_was_forgotten_is_a_new_one_when_it_comes_again() {
    let mut operator = existence(JoinKind::Semi, Some(100));
    let all = BucketSet::all();
    let mut output = Output::new(100);
    operator.advance(1_000, &mut output).unwrap();
    feed(&mut operator, [&[], &[row(1, 0, false)]], 1, &all);
    // Old, but not yet looked for: state is searched every eighth of the time.
    operator.advance(1_099, &mut output).unwrap();
    operator.advance(1_100, &mut output).unwrap();
    let chunks = feed(&mut operator, [&[row(1, 7, false)], &[]], 1, &all);
    assert!(chunks.is_empty(), "{chunks:?}");
    let chunks = feed(&mut operator, [&[], &[row(1, 0, false)]], 1, &all);
    assert_eq!(rows(&chunks).len(), 1);
}
