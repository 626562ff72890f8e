//! What is counted of late rows, compared with a naive model: at any cut into chunks and after a resumption
//! the counts are those of the partition's rows, and a delay that they propose leaves as many rows as they
//! say.

use super::*;
use crate::counted::Counted;
use crate::operator::window::Windows;

/// For a row's time in milliseconds the least watermark, in microseconds, at which the row is late.
type Closes = fn(i64) -> Option<i64>;

/// Kinds of lateness.
fn kinds() -> Vec<(Lateness, Closes)> {
    let windows = |windows: std::result::Result<Windows, String>| windows.unwrap();
    let ms = TimeUnit::Millisecond;
    let of = |made, lateness_ms: i64| Lateness::Windows(windows(made), lateness_ms * 1_000);
    vec![
        (Lateness::Time, |time| Some(time * 1_000 + 1)),
        (Lateness::AtTime, |time| Some(time * 1_000)),
        (of(Windows::new(10, 10, ms), 0), |time| {
            Some((time.div_euclid(10) * 10 + 10) * 1_000)
        }),
        (of(Windows::new(10, 10, ms), 7), |time| {
            Some((time.div_euclid(10) * 10 + 17) * 1_000)
        }),
        (of(Windows::new(30, 10, ms), 0), |time| {
            Some((time.div_euclid(10) * 10 + 30) * 1_000)
        }),
        // Windows with gaps between them.
        (of(Windows::new(5, 20, ms), 0), |time| {
            let start = time.div_euclid(20) * 20;
            (time < start + 5).then_some((start + 5) * 1_000)
        }),
        (of(Windows::cumulating(30, 10, ms), 0), |time| {
            Some((time.div_euclid(30) * 30 + 30) * 1_000)
        }),
        (of(Windows::sessions(12, ms), 0), |time| {
            Some((time + 12) * 1_000)
        }),
    ]
}

fn spec_with(delay_us: i64) -> IntakeSpec {
    IntakeSpec {
        columns: vec![Arc::new(Column::new(0, MS))],
        event_time: Some(EventTimeSpec {
            column: 0,
            delay_us,
            marks_at_watermark: true,
        }),
        judged: kinds().into_iter().map(|(lateness, _)| lateness).collect(),
        ..spec()
    }
}

/// How many rows are late for each kind with a delay.
fn naive(times: &[i64], delay_us: i64) -> Vec<u64> {
    let kinds = kinds();
    let mut late = vec![0; kinds.len()];
    let mut largest: Option<i64> = None;
    for &time in times {
        for (late, (_, closes)) in late.iter_mut().zip(&kinds) {
            if let (Some(largest), Some(closed)) = (largest, closes(time)) {
                *late += u64::from(closed <= largest * 1_000 - delay_us);
            }
        }
        largest = largest.max(Some(time));
    }
    late
}

/// The partition's counts after its rows were read in chunks, and the source resumed after `stop` of them.
fn counted(times_ms: &[i64], delay_us: i64, chunk_rows: &[usize], stop: usize) -> Counted {
    let mut states: Vec<PartitionState> = Vec::new();
    let parts = [
        0..stop.min(times_ms.len()),
        stop.min(times_ms.len())..times_ms.len(),
    ];
    let mut chunk_rows = chunk_rows.iter().cycle();
    for part in parts {
        let mut says = Vec::new();
        let mut first = part.start;
        while first < part.end {
            let end = part.end.min(first + chunk_rows.next().unwrap());
            says.push(times(0, first as u64, &times_ms[first..end]));
            first = end;
        }
        let script = Script {
            partitions: vec![(0, "partition 0".to_string())],
            says: says.into(),
        };
        let letters = Arc::new(Letters::default());
        let mut intake = Intake::new(Box::new(script), spec_with(delay_us), letters);
        intake.resume(states);
        intake.open(&mut Waiter::new().unwrap()).unwrap();
        drain(&mut intake);
        states = intake.partition_states();
        // As a checkpoint stores it.
        for state in &mut states {
            let written = serde_json::to_string(&state.counted).unwrap();
            state.counted = serde_json::from_str(&written).unwrap();
        }
    }
    *states.remove(0).counted.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn counts_are_those_of_the_rows_and_a_proposal_keeps_what_it_promises(
        steps in prop::collection::vec((0i64..4, prop::option::weighted(0.3, 0i64..90)), 0..300),
        delay_ms in 0i64..40,
        chunk_rows in prop::collection::vec(1usize..60, 1..6),
        stop in 0usize..300,
        kept in 0u64..=1_000,
    ) {
        let mut at = 0;
        let times = steps.iter().map(|(step, back)| {
            at += step;
            at - back.unwrap_or(0)
        });
        let times = times.collect::<Vec<i64>>();
        let found = counted(&times, delay_ms * 1_000, &chunk_rows, stop);
        prop_assert_eq!(found.rows, times.len() as u64);
        prop_assert_eq!(found.largest, times.iter().max().map(|time| time * 1_000));

        let mut behind = Vec::new();
        for (row, time) in times.iter().enumerate() {
            let by = times[..row].iter().max().map_or(0, |largest| largest - time);
            behind.extend((by > 0).then_some(by * 1_000));
        }
        prop_assert_eq!(found.behind.total(), behind.len() as u64);
        prop_assert_eq!(found.behind_max_us, behind.iter().copied().max().unwrap_or(0));
        for (boundary_us, _) in found.behind.filled() {
            let above = behind.iter().filter(|by| **by > boundary_us as i64).count();
            prop_assert_eq!(found.behind.above(boundary_us), above as u64);
        }

        let late = found.judged.iter().map(|judged| judged.rows_late);
        prop_assert_eq!(late.collect::<Vec<u64>>(), naive(&times, delay_ms * 1_000));
        for (number, judged) in found.judged.iter().enumerate() {
            prop_assert_eq!(judged.rows_late_by_start, 0);
            // All rows are in time with the longest delay, and not with a shorter one.
            prop_assert_eq!(naive(&times, judged.delay_max_us)[number], 0);
            if judged.delay_max_us > 0 {
                prop_assert!(naive(&times, judged.delay_max_us - 1)[number] > 0);
            }
            let rest = judged.rows * (1_000 - kept) / 1_000;
            let proposed_us = judged.delays.boundary_above(rest);
            let promised = judged.delays.above(proposed_us);
            prop_assert!(promised <= rest);
            let again = counted(&times, proposed_us as i64, &chunk_rows, stop);
            prop_assert_eq!(again.judged[number].rows_late, promised);
        }
    }
}

#[test]
fn of_partitions_beyond_the_limit_only_the_rows_are_counted() {
    let spec = spec_with(0);
    let most = spec.partitions_counted() as u32;
    let rows = [most - 1, most].map(|number| times(number, 0, &[100, 20]));
    let (mut intake, _) = intake(spec, most + 1, rows.into());
    drain(&mut intake);
    let seen = intake.examine();
    let [within, beyond] = [most - 1, most].map(|number| &seen[number as usize].counted);
    assert_eq!((within.rows, within.behind.total()), (2, 1));
    assert_eq!((beyond.rows, beyond.largest), (2, Some(100_000)));
    assert_eq!((beyond.behind.total(), beyond.judged.len()), (0, 0));
    let mut both = within.clone();
    both.merge(beyond);
    assert_eq!(&both, within);
    // They were not counted from their first row on.
    assert!(Counted::of(&[Lateness::Time], Some(beyond)).rows_only);
}

#[test]
fn rows_that_a_silence_has_made_late_are_counted_by_its_length() {
    let spec = IntakeSpec {
        idle_timeout_ns: Some(1_000_000),
        judged: vec![Lateness::Time],
        ..spec()
    };
    let (mut intake, _) = intake(spec, 2, vec![times(0, 1, &[100])]);
    intake.partitions.get_mut(&1).unwrap().last_row_ns = 0;
    assert_eq!(control(&drain(&mut intake)), ["watermark 95"]);
    intake.partitions.get_mut(&1).unwrap().last_row_ns = now_ns() + 999_000_000_000;
    intake.source = Box::new(Script {
        partitions: vec![],
        says: [times(1, 1, &[50, 97, 94, 200, 190])].into(),
    });
    drain(&mut intake);
    let counted = &intake.examine()[1].counted;
    let judged = &counted.judged[0];
    // 190 is late by its own partition's watermark of 195.
    assert_eq!((judged.rows_late, judged.rows_late_by_start), (3, 2));
    assert_eq!(
        (judged.first_closed, judged.last_closed),
        (Some(50_001), Some(190_001))
    );
    assert_eq!(counted.silences.total(), 2);
    // The silence was of a second, and some time since the test has begun.
    assert_eq!(counted.silences.above(1_000_000), 2);
}
