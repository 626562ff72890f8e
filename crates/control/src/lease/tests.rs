//! Single steps of both halves.

use super::{Answer, Beat, Do, Grantor, Holder, Standing, Terms};

const S: u64 = 1_000_000_000;
const TERMS: Terms = Terms {
    host_timeout_ns: 3 * S,
};

fn granted(beat: &Beat) -> Answer {
    Answer {
        epoch: beat.epoch,
        number: beat.number,
        is_granted: true,
    }
}

fn beat_of(what: Do) -> Beat {
    match what {
        Do::Beat(beat) => beat,
        other => panic!("no beat: {other:?}"),
    }
}

#[test]
fn an_answer_is_good_from_the_time_of_its_beat() {
    let (mut holder, first) = Holder::begin(TERMS, 7, 10 * S);
    assert_eq!(holder.next_ns(), Some(10 * S + TERMS.beat_ns()));
    // Two seconds later: good until 13 s, and not 15 s.
    assert_eq!(holder.answered(12 * S, &granted(&first)), Do::Start);
    let second = beat_of(holder.due(12 * S, true));
    assert_eq!((second.number, second.is_silent), (2, false));
    assert_eq!(
        holder.due(13 * S - 1, true),
        Do::Beat(Beat {
            number: 3,
            ..second
        })
    );
    assert_eq!(holder.due(13 * S, true), Do::Kill);
    assert_eq!(holder.next_ns(), None);
    // An answer that comes too late changes nothing.
    assert_eq!(holder.answered(13 * S, &granted(&second)), Do::Nothing);
}

#[test]
fn an_answer_after_the_deadline_kills_even_if_the_timer_is_late() {
    let (mut holder, first) = Holder::begin(TERMS, 7, 10 * S);
    assert_eq!(holder.answered(13 * S, &granted(&first)), Do::Kill);
}

#[test]
fn a_silence_begins_when_it_is_agreed_on() {
    let (mut holder, first) = Holder::begin(TERMS, 7, 0);
    holder.answered(0, &granted(&first));
    let silent = beat_of(holder.due(S, false));
    assert!(silent.is_silent);
    // Its answer is lost: there is still a deadline, and it is said again.
    let again = beat_of(holder.due(2 * S, false));
    assert!(again.is_silent && holder.next_ns().is_some());
    // The answer to any beat of the silence will do.
    assert_eq!(holder.answered(2 * S, &granted(&silent)), Do::Nothing);
    assert_eq!(holder.next_ns(), None);
    assert_eq!(holder.due(100 * S, false), Do::Nothing);
    // Work begins with a beat, and with a deadline.
    let active = holder.worked(100 * S).unwrap();
    assert!(!active.is_silent && active.number == 4);
    assert_eq!(holder.worked(100 * S), None);
    assert_eq!(holder.due(103 * S, true), Do::Kill);
}

#[test]
fn work_cancels_a_silence_that_is_not_agreed_on() {
    let (mut holder, first) = Holder::begin(TERMS, 7, 0);
    holder.answered(0, &granted(&first));
    let silent = beat_of(holder.due(S, false));
    assert!(holder.worked(S).is_some_and(|beat| !beat.is_silent));
    assert_eq!(holder.answered(S, &granted(&silent)), Do::Nothing);
    assert!(holder.next_ns().is_some());
}

#[test]
fn what_was_never_granted_is_over_at_once() {
    let mut grantor = Grantor::new(TERMS, 7, 0);
    assert_eq!(grantor.next_ns(), Some(3 * S));
    assert_eq!(grantor.look(3 * S), Standing::Over);
    let (_, first) = Holder::begin(TERMS, 7, 0);
    assert!(!grantor.heard(3 * S, &first).unwrap().is_granted);
}

#[test]
fn lost_after_the_timeout_and_over_when_the_lease_has_run_out() {
    let (mut grantor, (_, first)) = (Grantor::new(TERMS, 7, 0), Holder::begin(TERMS, 7, 0));
    assert!(grantor.heard(S, &first).unwrap().is_granted);
    assert_eq!(grantor.look(4 * S - 1), Standing::Held);
    let over_ns = S + TERMS.certain_ns();
    assert_eq!(grantor.look(4 * S), Standing::Lost { over_ns });
    assert_eq!(grantor.next_ns(), Some(over_ns));
    // A host that was given up does not come back with this lease.
    let late = Beat { number: 2, ..first };
    assert!(!grantor.heard(4 * S, &late).unwrap().is_granted);
    assert_eq!(grantor.look(over_ns - 1), Standing::Lost { over_ns });
    assert_eq!(grantor.look(over_ns), Standing::Over);
}

#[test]
fn the_agents_word_ends_the_waiting() {
    let (mut grantor, (_, first)) = (Grantor::new(TERMS, 7, 0), Holder::begin(TERMS, 7, 0));
    grantor.heard(S, &first);
    grantor.give_up();
    grantor.confirmed();
    assert_eq!(grantor.look(S), Standing::Over);
}

#[test]
fn a_silent_host_that_is_given_up_is_unknown() {
    let (mut grantor, (_, first)) = (Grantor::new(TERMS, 7, 0), Holder::begin(TERMS, 7, 0));
    let silent = Beat {
        number: 2,
        is_silent: true,
        ..first
    };
    grantor.heard(S, &first);
    grantor.heard(S, &silent);
    assert_eq!(
        (grantor.look(1_000 * S), grantor.next_ns()),
        (Standing::Silent, None)
    );
    // A beat that was overtaken says nothing any more.
    assert_eq!(grantor.heard(1_000 * S, &first), None);
    grantor.give_up();
    assert_eq!(
        (grantor.look(2_000 * S), grantor.next_ns()),
        (Standing::Unknown, None)
    );
    assert!(
        !grantor
            .heard(2_000 * S, &Beat { number: 3, ..first })
            .unwrap()
            .is_granted
    );
}

#[test]
fn times_near_the_end_of_the_clock_do_not_overflow() {
    let terms = Terms {
        host_timeout_ns: u64::MAX,
    };
    let (mut holder, first) = Holder::begin(terms, u64::MAX, u64::MAX - 1);
    assert_eq!(holder.answered(u64::MAX - 1, &granted(&first)), Do::Start);
    let mut grantor = Grantor::new(terms, u64::MAX, u64::MAX - 1);
    assert!(grantor.heard(u64::MAX - 1, &first).unwrap().is_granted);
    grantor.give_up();
    assert_eq!(grantor.look(u64::MAX), Standing::Over);
}
