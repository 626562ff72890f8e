//! A side that every instance has.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Several rows of one time are equal, in both inputs: each counts, and once, however many instances have
    /// stored it.
    #[test]
    fn a_side_that_every_instance_has_equals_a_nested_loop_through_snapshots_and_restarts(
        tried in any_tried(),
        everywhere in 0usize..2,
        mut rows in (random_rows(40), random_rows(40)),
        acts in prop::collection::vec(any_act(), 0..40),
        chunk_rows in 1usize..12,
        count in 1usize..4,
    ) {
        for row in rows.0.iter_mut().chain(&mut rows.1) {
            (row.number, row.time) = (row.number % 3, row.time / 6 * 6);
        }
        // Another kind, if the join depends on whether rows of that side have partners.
        let kind = match IntervalJoinSpec::may_broadcast(tried.kind, everywhere) {
            true => tried.kind,
            false => JoinKind::Inner,
        };
        let tried = Tried { kind, broadcast: Some(everywhere), ..tried };
        let expected = tried.nested_loop([&rows.0, &rows.1]);
        let mut run = Run::new(tried, [rows.0, rows.1], chunk_rows);
        run.act(Act::Restart(count));
        for act in acts {
            // No buckets move: rows of neither side are placed by key.
            if !matches!(act, Act::Move(_)) {
                run.act(act);
            }
        }
        prop_assert_eq!(run.end(), expected);
    }
}
