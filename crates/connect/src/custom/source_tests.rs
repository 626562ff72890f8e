//! Custom sources, as the engine uses them.

use std::sync::mpsc;
use std::thread;

use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use arrow_schema::DataType;
use proptest::prelude::*;
use slackwater_engine::error::Error;
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{Resume, SourcePoll, SourceRequest};

use super::lane::WAITING_PIECES_MAX;
use super::source::Bookmark;
use super::*;
use crate::feed::Given;
use crate::source::resume_tests::read_with_cuts;
use crate::source::tests::{Drained, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

/// A table that the offer of this name fills or takes.
pub(super) fn offered(name: &str) -> TableDefinition {
    let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
    table(&columns, &[("connector", "custom"), ("name", name)])
}

/// Numbers from `begin` as strings, for the column `n` to cast; `x` for each that `is_bad`.
pub(super) fn numbers(begin: u64, rows: u64, is_bad: impl Fn(u64) -> bool) -> RecordBatch {
    let values = (begin..begin + rows).map(|n| match is_bad(n) {
        true => "x".to_string(),
        false => n.to_string(),
    });
    let n: ArrayRef = Arc::new(StringViewArray::from_iter_values(values));
    let s = (begin..begin + rows).map(|n| format!("s{n}"));
    let s: ArrayRef = Arc::new(StringViewArray::from_iter_values(s));
    RecordBatch::try_from_iter([("s", s), ("n", n)]).unwrap()
}

fn piece(rows: RecordBatch, offset: Option<&str>) -> Piece {
    Piece {
        rows,
        bad: Vec::new(),
        offset: offset.map(str::to_string),
    }
}

/// Reads a partition.
type Read = dyn Fn(&Outlet) + Send + Sync;

/// Reads each partition with a function.
struct With(Arc<Read>);

/// Can't be stopped.
struct Stays;

impl Reader for With {
    fn start(&self, outlet: Outlet) -> Result<Box<dyn Reading>> {
        let read = Arc::clone(&self.0);
        thread::spawn(move || {
            read(&outlet);
            outlet.end();
        });
        Ok(Box::new(Stays))
    }
}

impl Reading for Stays {
    fn stop(&self) {}
}

fn terms(partitions: u32, has_offsets: bool) -> Terms {
    Terms {
        partitions,
        has_offsets,
        ends: false,
    }
}

pub(super) fn source_of(
    name: &str,
    partitions: u32,
    has_offsets: bool,
    read: impl Fn(&Outlet) + Send + Sync + 'static,
) -> Offer {
    let reader = Box::new(With(Arc::new(read)));
    Offer::new(name, Custom::source(reader, terms(partitions, has_offsets)))
}

/// What an opened source gives until it ends, or an error.
fn drained(name: &str, request: SourceRequest) -> Result<Drained> {
    let mut source = crate::source(&offered(name)).unwrap().source(request)?;
    source.open(&mut Waiter::new().unwrap())?;
    let mut drained = Drained::default();
    loop {
        let poll = source.poll();
        if poll.is_err() {
            source.close();
        }
        match poll? {
            SourcePoll::Pending => thread::yield_now(),
            poll => {
                if drained.take(poll) {
                    break;
                }
            }
        }
    }
    source.close();
    Ok(drained)
}

fn opened(name: &str) -> Box<dyn slackwater_engine::source::Source> {
    let connector = crate::source(&offered(name)).unwrap();
    let mut source = connector.source(request(&[0])).unwrap();
    source.open(&mut Waiter::new().unwrap()).unwrap();
    source
}

#[test]
fn partitions_have_their_own_offsets_and_end_on_their_own() {
    let _offer = source_of("own offsets", 2, true, |outlet| {
        let partition = u64::from(outlet.partition());
        for n in 0..3 {
            let rows = numbers(partition * 10 + n, 1, |_| false);
            let given = outlet.push(piece(rows, Some(&n.to_string())), None);
            assert_eq!(given, Ok(Given::Taken));
        }
    });
    let mut read = drained("own offsets", request(&[0, 1])).unwrap();
    read.strings.sort();
    assert_eq!(
        read.strings,
        [
            "0:1:0|s0",
            "0:2:1|s1",
            "0:3:2|s2",
            "1:1:10|s10",
            "1:2:11|s11",
            "1:3:12|s12"
        ]
    );
    read.ended.sort();
    assert_eq!(read.ended, [0, 1]);
    let described = crate::source(&offered("own offsets")).unwrap().describe();
    assert_eq!(
        described.partitions,
        Some(vec!["t[0]".into(), "t[1]".into()])
    );
    assert!(described.replayable && described.ends_with_peer && !described.bounded);
}

#[test]
fn a_source_without_offsets_is_not_replayable() {
    let _offer = source_of("no offsets", 1, false, |_| {});
    let described = crate::source(&offered("no offsets")).unwrap().describe();
    assert!(!described.replayable && !described.redelivers && !described.keeps_positions);
    drained("no offsets", request(&[0])).unwrap();
}

#[test]
fn rows_with_wrong_values_are_rejected_at_their_positions() {
    let _offer = source_of("bad rows", 1, true, |outlet| {
        let given = Piece {
            // Row 1 of the piece was not made at all.
            bad: vec![Bad {
                row: 1,
                reason: "broken".into(),
                record: "?".repeat(10_000),
            }],
            ..piece(numbers(0, 4, |n| n == 2), Some("a"))
        };
        assert_eq!(outlet.push(given, None), Ok(Given::Taken));
        let only_bad = piece(numbers(5, 2, |_| true), Some("b"));
        assert_eq!(outlet.push(only_bad, None), Ok(Given::Taken));
    });
    let mut small = request(&[0, 1]);
    small.tuning = Arc::new(slackwater_engine::source::Tuning::new(0, 1));
    let read = drained("bad rows", small).unwrap();
    assert_eq!(read.strings, ["0:1:0|s0", "0:3:1|s1", "0:5:3|s3"]);
    let rejected = read.rejected.iter();
    let rejected =
        rejected.map(|bad| (bad.position.unwrap(), bad.reason.as_str(), bad.record.len()));
    let reason = "column 'n': 'x' is not a valid BIGINT";
    assert_eq!(
        rejected.collect::<Vec<_>>(),
        [
            (2, "broken", 4096),
            (4, reason, 13),
            (6, reason, 13),
            (7, reason, 13)
        ]
    );
    assert_eq!(read.rejected[1].record, "{s: s2, n: x}");
}

#[test]
fn what_does_not_have_the_columns_is_refused() {
    let (told, hear) = mpsc::channel();
    let _offer = source_of("columns", 1, true, move |outlet| {
        let n: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let rows = RecordBatch::try_from_iter([("n", n)]).unwrap();
        told.send(outlet.push(piece(rows, Some("a")), None))
            .unwrap();
        let long = "x".repeat(20_000);
        told.send(outlet.push(piece(numbers(0, 1, |_| false), Some(&long)), None))
            .unwrap();
    });
    let read = drained("columns", request(&[0, 1])).unwrap();
    assert!(read.strings.is_empty());
    let error = hear.recv().unwrap().unwrap_err();
    assert_eq!(error, "there is no column 's'; the columns are: n");
    let error = hear.recv().unwrap().unwrap_err();
    assert_eq!(
        error,
        "an offset has 20000 bytes, and at most 16384 are stored"
    );
}

#[test]
fn a_reader_that_fails_ends_the_query_after_its_rows() {
    let _offer = source_of("fails", 1, true, |outlet| {
        outlet
            .push(piece(numbers(0, 1, |_| false), Some("a")), None)
            .unwrap();
        outlet.fail(Error::new("", "the server is gone").hint("start it"));
    });
    let mut source = opened("fails");
    let mut rows = 0;
    let error = loop {
        match source.poll() {
            Ok(SourcePoll::Rows(_)) => rows += 1,
            Ok(_) => thread::yield_now(),
            Err(error) => break error,
        }
    };
    assert_eq!(rows, 1);
    assert_eq!(
        error.to_string(),
        "table 't', partition 0: the server is gone (start it)"
    );
    assert!(error.is_final);
    source.close();
}

#[test]
fn a_reader_that_is_gone_without_a_word_ends_the_query() {
    struct Drops;
    impl Reader for Drops {
        fn start(&self, outlet: Outlet) -> Result<Box<dyn Reading>> {
            drop(outlet);
            Ok(Box::new(Stays))
        }
    }
    let _offer = Offer::new("drops", Custom::source(Box::new(Drops), terms(1, true)));
    let error = drained("drops", request(&[0])).unwrap_err().to_string();
    assert!(error.contains("is gone"), "{error}");
}

#[test]
fn a_full_lane_makes_the_reader_wait_until_it_is_closed() {
    let (told, hear) = mpsc::channel();
    let offer = source_of("full", 1, false, move |outlet| {
        for n in 0..WAITING_PIECES_MAX as u64 {
            let given = outlet.push(piece(numbers(n, 1, |_| false), None), None);
            assert_eq!(given, Ok(Given::Taken));
        }
        let full = outlet.push(piece(numbers(0, 1, |_| false), None), Some(Duration::ZERO));
        told.send(full).unwrap();
        told.send(outlet.push(piece(numbers(0, 1, |_| false), None), None))
            .unwrap();
        told.send(outlet.push(piece(numbers(0, 1, |_| false), None), None))
            .unwrap();
    });
    let mut source = opened("full");
    assert_eq!(hear.recv().unwrap(), Ok(Given::Full));
    while !matches!(source.poll().unwrap(), SourcePoll::Rows(_)) {}
    assert_eq!(hear.recv().unwrap(), Ok(Given::Taken));
    source.close();
    assert_eq!(hear.recv().unwrap(), Ok(Given::Closed));
    assert!(offer.custom().settle(Duration::from_secs(60)).is_empty());
}

#[test]
fn a_reader_waits_for_the_one_before_it_and_is_left_behind_if_it_stays() {
    let (free, stays) = mpsc::channel::<()>();
    let stays = Mutex::new(stays);
    let (told, hear) = mpsc::channel();
    let offer = source_of("turns", 1, false, move |outlet| {
        outlet.wait_for_turn(Duration::from_secs(60));
        told.send(outlet.number).unwrap();
        let _ = stays.lock().unwrap().recv();
    });
    let mut first = opened("turns");
    assert_eq!(hear.recv().unwrap(), 1);
    // Its query still takes rows: nobody waits for it.
    assert!(offer.custom().settle(Duration::from_secs(60)).is_empty());
    first.close();
    assert_eq!(offer.custom().settle(Duration::from_millis(1)), [0]);
    let mut second = opened("turns");
    hear.recv_timeout(Duration::from_millis(1)).unwrap_err();
    free.send(()).unwrap();
    assert_eq!(hear.recv().unwrap(), 2);
    second.close();
    drop(free);
    assert!(offer.custom().settle(Duration::from_secs(60)).is_empty());
}

#[test]
fn a_checkpoint_with_other_partitions_is_refused() {
    let _offer = source_of("partitions", 1, true, |_| {});
    let resume = |name: &str, bookmark: &str, ended| Resume {
        name: name.into(),
        position: 7,
        bookmark: Some(bookmark.into()),
        ended,
    };
    let with = |resume: Resume| SourceRequest {
        resume: Arc::new([resume]),
        ..request(&[0])
    };
    let error = drained("partitions", with(resume("t[1]", "", false))).unwrap_err();
    let said =
        "table 't': the checkpoint has rows of t[1], but the source has 1 partitions, from 0";
    assert!(error.to_string().starts_with(said), "{error}");
    let ended = drained("partitions", with(resume("t[1]", "", true))).unwrap();
    assert_eq!(ended.ended, [0]);
    let read = drained("partitions", with(resume("t[0]", "", true))).unwrap();
    assert!(
        read.strings.is_empty() && read.ended.is_empty(),
        "it has ended before"
    );
    let error = drained("partitions", with(resume("t[0]", "nonsense", false))).unwrap_err();
    assert!(
        error.to_string().contains("offset can't be read"),
        "{error}"
    );
}

#[test]
fn the_bookmark_of_version_1_is_read() {
    let bookmark = Bookmark {
        offset: Some("json 7".into()),
        position: 8,
    };
    let golden = r#"{"offset":"json 7","position":8}"#;
    assert_eq!(serde_json::to_string(&bookmark).unwrap(), golden);
    assert_eq!(serde_json::from_str::<Bookmark>(golden).unwrap(), bookmark);
}

/// Reads so many rows after the offset, in pieces of sizes that differ in each attempt; some without an
/// offset, and some rows bad.
fn reads_on(rows: u64, seed: u64) -> impl Fn(&Outlet) + Send + Sync {
    let attempts = Mutex::new(0);
    move |outlet| {
        let attempt = {
            let mut attempts = attempts.lock().unwrap();
            *attempts += 1;
            *attempts
        };
        let mut next = outlet.offset().map_or(0, |offset| offset.parse().unwrap());
        let mut random = seed ^ (attempt + u64::from(outlet.partition())).wrapping_mul(0x9E37_79B9);
        while next < rows {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let size = (random >> 33) % 7;
            let size = size.min(rows - next);
            next += size;
            let has_offset = !(random >> 60).is_multiple_of(3);
            let offset = has_offset.then(|| next.to_string());
            let rows = numbers(next - size, size, |n| n % 5 == 3);
            if outlet.push(piece(rows, offset.as_deref()), None) != Ok(Given::Taken) {
                return;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn resumes_at_any_cut_with_pieces_of_any_size(
        rows in 0..40u64,
        partitions in 1..4u32,
        chunk_rows in 1..9usize,
        seed in any::<u64>(),
        cuts in proptest::collection::vec(0..30usize, 0..5),
    ) {
        let name = format!("cuts {seed} {rows} {partitions} {chunk_rows} {cuts:?}");
        let _offer = source_of(&name, partitions, true, reads_on(rows, seed));
        let read = read_with_cuts(&offered(&name), &[0], chunk_rows, 1, &cuts);
        let good = (0..rows).filter(|n| n % 5 != 3).map(|n| format!("{}:{n}", n + 1));
        let good = good.collect::<Vec<_>>();
        let bad = (0..rows).filter(|n| n % 5 == 3);
        let bad = bad.map(|n| format!("{}:column 'n': 'x' is not a valid BIGINT", n + 1));
        let bad = bad.collect::<Vec<_>>();
        let whole = read.iter().all(|(_, read)| read.rows == good && read.refused == bad);
        prop_assert!(whole && read.len() == partitions as usize, "{read:?}");
    }
}
