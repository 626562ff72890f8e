//! Pushes from other threads, and incarnations that resume.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;

use arrow_schema::DataType;
use proptest::prelude::*;
use slackwater_engine::source::{Resume, Tuning};

use super::*;
use crate::push::{self, NotPushed, Producer, Push, Pushed};
use crate::source::tests::{Drained, drain_until, request, row_text};
use crate::table::tests::table;

/// A table of its own for each test: tests share the process.
fn named(name: &str, options: &[(&str, &str)]) -> TableDefinition {
    let columns = [("n", DataType::Int64), ("s", DataType::Utf8View)];
    TableDefinition {
        name: name.into(),
        ..table(&columns, &[&[("connector", "http")], options].concat())
    }
}

/// A table that is read.
struct Reader {
    name: String,
    connector: Arc<dyn SourceConnector>,
    source: Box<dyn Source>,
    waiter: Waiter,
}

impl Reader {
    fn new(table: &TableDefinition, change: impl FnOnce(&mut SourceRequest)) -> Reader {
        Reader::of(crate::source(table).unwrap(), &table.name, change)
    }

    fn of(
        connector: Arc<dyn SourceConnector>,
        name: &str,
        change: impl FnOnce(&mut SourceRequest),
    ) -> Reader {
        let mut request = request(&[0, 1]);
        change(&mut request);
        let mut source = connector.source(request).unwrap();
        let mut waiter = Waiter::new().unwrap();
        assert_eq!(source.open(&mut waiter).unwrap(), [(0, "push".to_string())]);
        Reader {
            name: name.into(),
            connector,
            source,
            waiter,
        }
    }

    fn push(&self, rows: &str) -> Pushing {
        Pushing::start(&self.name, rows, None)
    }

    fn push_as(&self, name: &str, sequence: u64, rows: &str) -> Pushing {
        Pushing::start(&self.name, rows, Some((name, sequence)))
    }

    fn read(&mut self, rows: usize) -> Drained {
        drain_until(&mut *self.source, &mut self.waiter, |drained| {
            drained.strings.len() + drained.rejected.len() >= rows
        })
    }
}

/// A thread that pushes.
struct Pushing(
    JoinHandle<std::result::Result<Pushed, NotPushed>>,
    Receiver<()>,
);

impl Pushing {
    fn start(table: &str, rows: &str, producer: Option<(&str, u64)>) -> Pushing {
        let (table, rows) = (table.to_string(), rows.to_string().into());
        let producer = producer.map(|(name, sequence)| Producer {
            name: name.into(),
            sequence,
        });
        let (done, is_done) = channel();
        let pushing = std::thread::spawn(move || {
            let pushed = push::push(&table, Push { rows, producer });
            let _ = done.send(());
            pushed
        });
        Pushing(pushing, is_done)
    }

    fn is_answered(&self) -> bool {
        // The thread is gone if it had said so before.
        self.1.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Timeout)
    }

    fn answer(self) -> std::result::Result<Pushed, NotPushed> {
        self.0.join().unwrap()
    }

    #[track_caller]
    fn rows(self) -> u64 {
        let pushed = self.answer().unwrap();
        assert!(!pushed.repeated);
        pushed.rows
    }
}

const REPEATED: Pushed = Pushed {
    rows: 0,
    rejected: 0,
    repeated: true,
};

#[test]
fn rows_that_are_pushed_are_read_in_any_format() {
    for (format, rows) in [
        ("csv", "\u{feff}1,a\n2,\"b\nb\"\r\n\n3,c"),
        (
            "json",
            "{\"n\":1,\"s\":\"a\"}\n{\"s\":\"b\\nb\",\"n\":2}\n\n{\"n\":3,\"s\":\"c\"}\n",
        ),
    ] {
        let table = named(&format!("formats {format}"), &[("format", format)]);
        let mut reader = Reader::new(&table, |_| ());
        let pushing = reader.push(rows);
        let strings = reader.read(3).strings;
        assert_eq!(pushing.rows(), 3);
        let values = strings.iter().map(|row| row.splitn(3, ':').nth(2).unwrap());
        assert_eq!(values.collect::<Vec<_>>(), ["1|a", "2|b\nb", "3|c"]);
        // Positions continue: each row of the table has its own.
        let pushing = reader.push(rows);
        let later = reader.read(3).strings;
        assert_eq!(pushing.rows(), 3);
        let position = |row: &str| row.split(':').nth(1).unwrap().parse::<u64>().unwrap();
        let positions = strings.iter().chain(&later).map(|row| position(row));
        assert!(positions.is_sorted_by(|one, next| one < next), "{later:?}");
    }
}

#[test]
fn every_push_begins_with_a_header() {
    let table = named("header", &[("csv.header", "true")]);
    let mut reader = Reader::new(&table, |_| ());
    for n in 1..4 {
        let pushing = reader.push(&format!("n,s\n{n},x\n"));
        let strings = reader.read(1).strings;
        assert!(strings[0].ends_with(&format!(":{n}|x")), "{strings:?}");
        assert_eq!(pushing.rows(), 1);
    }
}

#[test]
fn one_bad_row_refuses_the_whole_push() {
    let mut reader = Reader::new(&named("whole", &[]), |request| {
        request.tuning = Arc::new(Tuning::new(0, 2));
    });
    let refused = reader.push("1,a\n2,b\n3,c\n\nfour,d\n5,e\n").answer();
    let Err(NotPushed::BadRow { line: 5, reason }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(reason, "column 'n' (BIGINT): can't read 'four'");
    assert!(matches!(reader.source.poll().unwrap(), SourcePoll::Pending));
    let pushing = reader.push("6,f\n");
    assert_eq!(reader.read(1).strings, ["0:1:6|f"]);
    assert_eq!(pushing.rows(), 1);
    assert_eq!(reader.push("").rows(), 0);
}

#[test]
fn by_option_bad_rows_are_left_out() {
    let mut reader = Reader::new(&named("skip", &[("bad_rows", "skip")]), |_| ());
    let pushing = reader.push("1,a\nx\n3,c\n");
    let drained = reader.read(3);
    assert_eq!(drained.strings, ["0:1:1|a", "0:3:3|c"]);
    let rejected = &drained.rejected[0];
    assert_eq!(rejected.position, Some(2));
    assert!(
        rejected.reason.starts_with("line 2 of a push: "),
        "{rejected:?}"
    );
    let pushed = pushing.answer().unwrap();
    assert_eq!((pushed.rows, pushed.rejected), (2, 1));
    // The next row has a position of its own, also after bad rows only.
    let pushing = reader.push("y\n");
    assert_eq!(reader.read(1).rejected[0].position, Some(4));
    assert_eq!(pushing.answer().unwrap().rejected, 1);
}

#[test]
fn a_push_that_is_not_read_in_time_is_taken_back() {
    let options = [("timeout", "100 ms"), ("buffer_bytes", "65536")];
    let mut reader = Reader::new(&named("busy", &options), |_| ());
    // The first fills the buffer; others have no room, and then the time of the first is over, too.
    let rows = format!("1,{}\n", "x".repeat(70_000));
    let pushing = [(); 4].map(|()| reader.push(&rows));
    for pushing in pushing {
        assert_eq!(pushing.answer(), Err(NotPushed::Busy));
    }
    assert!(matches!(reader.source.poll().unwrap(), SourcePoll::Pending));
    let pushing = reader.push("2,y\n");
    assert_eq!(reader.read(1).strings, ["0:1:2|y"]);
    assert_eq!(pushing.rows(), 1);
}

#[test]
fn a_push_is_refused_without_its_table_or_its_query() {
    let rows = || Push {
        rows: "1,a\n".into(),
        producer: None,
    };
    let Err(NotPushed::NoTable(_)) = push::push("no such table", rows()) else {
        panic!("there is none");
    };
    let table = named("gone", &[]);
    let connector = crate::source(&table).unwrap();
    assert_eq!(push::push("gone", rows()), Err(NotPushed::NotRunning));
    let mut reader = Reader::of(Arc::clone(&connector), "gone", |_| ());
    let error = {
        let mut second = crate::source(&table)
            .unwrap()
            .source(request(&[0, 1]))
            .unwrap();
        second.open(&mut Waiter::new().unwrap()).unwrap_err()
    };
    assert!(error.to_string().contains("already pushed"), "{error}");
    let waits = reader.push("1,a\n");
    assert!(!waits.is_answered(), "nobody has read it");
    reader.source.close();
    assert_eq!(waits.answer(), Err(NotPushed::NotRunning));
    assert_eq!(push::push("gone", rows()), Err(NotPushed::NotRunning));
    // The next incarnation.
    let mut reader = Reader::of(connector, "gone", |_| ());
    let pushing = reader.push("2,b\n");
    assert_eq!(reader.read(1).strings, ["0:1:2|b"]);
    assert_eq!(pushing.rows(), 1);
    let large = Push {
        rows: vec![b'1'; PUSH_BYTES_MAX + 1].into(),
        producer: None,
    };
    assert_eq!(push::push("gone", large), Err(NotPushed::TooLarge));
    for name in ["", "a b", "é", &"x".repeat(65)] {
        let refused = reader.push_as(name, 1, "1,a\n").answer();
        assert_eq!(refused, Err(NotPushed::BadName), "{name}");
    }
}

#[test]
fn a_push_that_ends_in_the_middle_is_not_confirmed() {
    let mut reader = Reader::new(&named("middle", &[]), |request| {
        request.tuning = Arc::new(Tuning::new(0, 2));
    });
    let pushing = reader.push("1,a\n2,b\n3,c\n");
    reader.read(2);
    reader.source.close();
    assert_eq!(pushing.answer(), Err(NotPushed::Unconfirmed));
}

#[test]
fn with_checkpoints_a_push_is_answered_when_one_has_it() {
    let options = [("acknowledge", "checkpoint")];
    let table = named("kept", &options);
    let error = crate::source(&table).unwrap().source(request(&[0, 1]));
    let error = error.err().unwrap().to_string();
    assert!(error.contains("takes no checkpoints"), "{error}");
    let mut reader = Reader::new(&table, |request| request.saved = true);
    let pushing = reader.push_as("a", 1, "1,a\n2,b\n");
    reader.read(2);
    assert!(!pushing.is_answered(), "no checkpoint has it");
    reader.connector.stored("push", 2);
    assert!(!pushing.is_answered(), "no checkpoint has all of it");
    // A repetition waits for the same checkpoint.
    let again = reader.push_as("a", 1, "1,a\n2,b\n");
    assert!(!again.is_answered());
    // The last checkpoint comes after the end of the source.
    reader.source.close();
    reader.connector.stored("push", 3);
    assert_eq!(pushing.rows(), 2);
    assert_eq!(again.answer(), Ok(REPEATED));
}

#[test]
fn what_no_checkpoint_has_is_not_confirmed_when_the_query_starts_again() {
    let table = named("again", &[("acknowledge", "checkpoint")]);
    let connector = crate::source(&table).unwrap();
    let mut reader = Reader::of(Arc::clone(&connector), "again", |request| {
        request.saved = true;
    });
    let pushing = reader.push_as("a", 1, "1,a\n");
    assert_eq!(reader.read(1).strings, ["0:1:1|a"]);
    reader.source.close();
    let mut next = Reader::of(connector, "again", |request| request.saved = true);
    assert_eq!(pushing.answer(), Err(NotPushed::Unconfirmed));
    let pushing = next.push_as("a", 1, "1,a\n");
    assert_eq!(next.read(1).strings, ["0:1:1|a"]);
    next.connector.stored("push", 2);
    assert_eq!(pushing.rows(), 1);
}

#[test]
fn a_sequence_is_read_once() {
    let mut reader = Reader::new(&named("once", &[]), |_| ());
    let first = reader.push_as("a", 5, "1,a\n");
    reader.read(1);
    assert_eq!(first.rows(), 1);
    for old in [0, 4, 5] {
        assert_eq!(reader.push_as("a", old, "1,a\n").answer(), Ok(REPEATED));
    }
    // Two at the same time.
    let both = [(); 2].map(|()| reader.push_as("b", 1, "2,b\n"));
    let other = reader.push_as("a", 9, "3,c\n");
    let rows = reader.read(2).strings;
    assert_eq!(other.rows(), 1);
    // The second one may still wait to be looked at.
    let begin = std::time::Instant::now();
    while !both.iter().all(Pushing::is_answered) {
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert!(matches!(reader.source.poll().unwrap(), SourcePoll::Pending));
    }
    let repeated = both.map(|pushing| pushing.answer().unwrap().repeated);
    assert!(repeated[0] != repeated[1], "{repeated:?}");
    assert_eq!(rows.len(), 2);
}

#[test]
fn a_bookmark_that_is_not_valid_is_an_error() {
    let resume = Resume {
        name: "push".into(),
        position: 7,
        bookmark: Some("nonsense".into()),
        ended: false,
    };
    let request = SourceRequest {
        resume: [resume].into(),
        ..request(&[0, 1])
    };
    let connector = crate::source(&named("nonsense", &[])).unwrap();
    let mut source = connector.source(request).unwrap();
    let error = source.open(&mut Waiter::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[test]
fn only_the_first_instance_reads() {
    let connector = crate::source(&named("instances", &[])).unwrap();
    let second = SourceRequest {
        instance: 1,
        instances: 2,
        ..request(&[0])
    };
    let mut source = connector.source(second).unwrap();
    let opened = source.open(&mut Waiter::new().unwrap()).unwrap();
    assert!(opened.is_empty());
    assert!(matches!(source.poll().unwrap(), SourcePoll::End));
}

/// Pushes of two producers, each repeated until it is answered, over incarnations that end after so many
/// polls and resume from a checkpoint that was taken somewhere before.
fn exactly_once(name: &str, cuts: &[(usize, usize)], lines: &[usize], chunk_rows: usize) {
    let table = named(name, &[("acknowledge", "checkpoint")]);
    let connector = crate::source(&table).unwrap();
    let body = |producer: usize, sequence: usize| {
        let lines = lines[sequence % lines.len()];
        let rows = (0..lines).map(|line| format!("{line},{producer}.{sequence}\n"));
        rows.collect::<String>()
    };
    const SEQUENCES: usize = 6;
    // The rows before the stored checkpoint, and the checkpoint.
    let mut kept = Vec::<String>::new();
    let mut stored: Option<Resume> = None;
    let mut next = [0; 2];
    let mut cuts = cuts.iter().copied();
    while next != [SEQUENCES; 2] {
        let (polls, cut) = cuts.next().unwrap_or((usize::MAX, usize::MAX));
        let mut reader = Reader::of(Arc::clone(&connector), name, |request| {
            request.saved = true;
            request.tuning = Arc::new(Tuning::new(0, chunk_rows));
            request.resume = stored.iter().cloned().collect();
        });
        let start = |producer: usize, sequence: usize| {
            let text = body(producer, sequence);
            Pushing::start(
                name,
                &text,
                Some((&format!("p{producer}"), sequence as u64)),
            )
        };
        let mut pushing = [0, 1].map(|p| (next[p] < SEQUENCES).then(|| start(p, next[p])));
        let mut rows = kept.clone();
        let mut position = stored.as_ref().map_or(0, |stored| stored.position);
        let is_last = polls == usize::MAX;
        for poll in 0..polls {
            reader.waiter.look();
            match reader.source.poll().unwrap() {
                SourcePoll::Rows(read) => {
                    assert!(read.positions.at(0) >= position);
                    position = read.end().unwrap();
                    rows.extend((0..read.batch.num_rows()).map(|row| row_text(&read.batch, row)));
                }
                SourcePoll::Pending => std::thread::sleep(Duration::from_micros(300)),
                _ => panic!("nothing else comes"),
            }
            if poll == cut || is_last {
                let bookmark = reader.source.bookmark(0);
                stored = Some(Resume {
                    name: PARTITION.into(),
                    position,
                    bookmark,
                    ended: false,
                });
                kept = rows.clone();
                reader.connector.stored(PARTITION, position);
            }
            for producer in 0..2 {
                let is_done = |pushing: &Pushing| pushing.1.try_recv().is_ok();
                if let Some(done) = pushing[producer].take_if(|pushing| is_done(pushing)) {
                    done.answer().unwrap();
                    next[producer] += 1;
                    let more = next[producer] < SEQUENCES;
                    pushing[producer] = more.then(|| start(producer, next[producer]));
                }
            }
            if next == [SEQUENCES; 2] {
                break;
            }
        }
        reader.source.close();
        // Whoever waits for a checkpoint is told when the next incarnation begins.
        let mut other = Reader::of(Arc::clone(&connector), name, |request| request.saved = true);
        other.source.close();
        for (producer, pushing) in pushing.into_iter().enumerate() {
            if let Some(Ok(_)) = pushing.map(Pushing::answer) {
                next[producer] += 1;
            }
        }
    }
    let mut wanted = Vec::new();
    for producer in 0..2 {
        for sequence in 0..SEQUENCES {
            let text = body(producer, sequence);
            wanted.extend(text.lines().map(|line| line.replace(',', "|")));
        }
    }
    wanted.sort();
    kept.sort();
    assert_eq!(kept, wanted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_or_doubled_when_incarnations_end_anywhere(
        cuts in proptest::collection::vec((1_usize..20, 0_usize..20), 0..6),
        lines in proptest::collection::vec(1_usize..12, 1..5),
        chunk_rows in 1_usize..6,
    ) {
        exactly_once("everywhere", &cuts, &lines, chunk_rows);
    }
}
