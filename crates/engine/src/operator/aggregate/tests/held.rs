//! Tests of a first phase that holds groups back, against aggregation in one phase.

use super::*;
use crate::operator::Progress;
use crate::operator::aggregate::combine::rows_of as stand_for;
use crate::operator::aggregate::combine::{FirstPhase, GROUPS_HELD_MAX};

fn let_go(first_phase: &mut FirstPhase, watermark: Option<i64>, output: &mut Output) {
    while first_phase.let_go(watermark, output).unwrap() == Progress::More {}
}

fn rows_of(chunks: &[Chunk]) -> usize {
    chunks.iter().map(Chunk::rows).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn two_senders_that_hold_groups_give_what_one_phase_gives(
        rows in random_rows(120),
        keys in key_sets(),
        window in prop::option::of(any::<bool>()),
        chunk_rows in 1usize..40,
        watermarks in prop::collection::vec(-30i64..30, 0..5),
        out_rows in 1usize..20,
    ) {
        let mut operator = aggregate(window, &keys, Emit::AtEnd);
        let mut senders = [0, 1].map(|_| {
            FirstPhase::new(operator.spec.clone(), &input_schema()).unwrap()
        });
        let mut output = Output::new(1000);
        // In order of time, so that no row is late, and a watermark may come before any of them.
        let mut rows = rows;
        rows.sort_by_key(|row| row.time);
        let mut sent = Output::new(out_rows);
        for (number, part) in rows.chunks(chunk_rows).enumerate() {
            let sender = &mut senders[number % 2];
            sender.process(chunk(part), &mut sent).unwrap();
            // Some senders see watermarks between rows, some are idle or send a barrier.
            match watermarks.get(number) {
                Some(at) if at % 3 == 0 => let_go(sender, None, &mut sent),
                Some(_) => let_go(sender, Some(part[0].time * 1000), &mut sent),
                None => {}
            }
        }
        senders.iter_mut().for_each(|sender| let_go(sender, None, &mut sent));
        prop_assert!(senders.iter().all(|sender| sender.held() == 0));
        for chunk in sent.take_chunks() {
            prop_assert!(chunk.rows() <= out_rows.max(chunk_rows));
            operator.process(0, chunk, &mut output).unwrap();
        }
        advance(&mut operator, MAX_WATERMARK, &mut output);
        let mut printed = printed(&output.take_chunks());
        printed.sort();
        if window.is_some() {
            prop_assert_eq!(printed, windowed_answer(&rows, &keys, i64::MIN, i64::MAX));
            return Ok(());
        }
        // A total without rows is a row.
        prop_assume!(!rows.is_empty());
        let mut groups = BTreeMap::<Cells, Vec<&Row>>::new();
        for row in &rows {
            groups.entry(key(row, &keys)).or_default().push(row);
        }
        let expected = groups.into_iter().map(|(key, rows)| cells(key, &rows));
        let mut expected = expected.collect::<Vec<_>>();
        expected.sort();
        prop_assert_eq!(printed, expected);
    }
}

fn row(number: i64, time: i64) -> Row {
    Row {
        text: Some(1),
        number: Some(number),
        value: Some(3),
        keep: Some(true),
        time,
        position: 0,
    }
}

#[test]
fn a_watermark_lets_go_of_the_windows_that_it_closes_and_of_no_other() {
    let spec = aggregate(Some(true), &[TEXT], Emit::Changes).spec.clone();
    let mut first_phase = FirstPhase::new(spec, &input_schema()).unwrap();
    let mut output = Output::new(1000);
    let rows = [1, 2, 12, 13, 25].map(|time| row(0, time));
    first_phase.process(chunk(&rows), &mut output).unwrap();
    assert_eq!((output.take_chunks().len(), first_phase.held()), (0, 3));
    let_go(&mut first_phase, Some(9_999), &mut output);
    assert_eq!(output.take_chunks().len(), 0);
    let_go(&mut first_phase, Some(20_000), &mut output);
    let chunks = output.take_chunks();
    assert_eq!((rows_of(&chunks), first_phase.held()), (2, 1));
    let rows = chunks.iter().map(|chunk| stand_for(chunk, 7));
    assert_eq!(rows.collect::<Vec<u64>>(), [2, 2]);
    let_go(&mut first_phase, None, &mut output);
    assert_eq!((rows_of(&output.take_chunks()), first_phase.held()), (1, 0));
}

#[test]
fn rows_of_their_own_groups_pass_and_no_more_than_the_limit_is_held() {
    let spec = aggregate(Some(false), &[NUMBER], Emit::Changes)
        .spec
        .clone();
    let mut first_phase = FirstPhase::new(spec, &input_schema()).unwrap();
    let mut output = Output::new(8192);
    let most = GROUPS_HELD_MAX as i64 + 1;
    let rows = (0..most).map(|number| row(number, 5)).collect::<Vec<Row>>();
    first_phase.process(chunk(&rows), &mut output).unwrap();
    assert_eq!(first_phase.held(), 0);
    assert_eq!(rows_of(&output.take_chunks()), rows.len());
    // Then chunks pass as they came: with the columns of the input.
    first_phase
        .process(chunk(&rows[..10]), &mut output)
        .unwrap();
    let chunks = output.take_chunks();
    assert_eq!((chunks.len(), chunks[0].batch.num_columns()), (1, 7));
    assert_eq!(first_phase.held(), 0);
}
