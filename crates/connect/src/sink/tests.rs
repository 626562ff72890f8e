//! Sinks through the public entry point.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::types::{Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, ListArray, PrimitiveArray, RecordBatch, StringViewArray,
    StructArray,
};
use arrow_schema::{DataType, Field, TimeUnit};
use proptest::prelude::*;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::link::{Sources, Waiter};
use slackwater_engine::sink::{Sink, SinkRequest};

use crate::source::tests::{read_all, request};
use crate::table::TableDefinition;
use crate::table::tests::table;

fn columns() -> [(&'static str, DataType); 6] {
    [
        ("n", DataType::Int64),
        ("x", DataType::Float64),
        ("s", DataType::Utf8View),
        ("t", DataType::Timestamp(TimeUnit::Microsecond, None)),
        ("d", DataType::Decimal128(10, 2)),
        ("day", DataType::Date32),
    ]
}

fn chunk() -> Chunk {
    let decimal = PrimitiveArray::<Decimal128Type>::from(vec![Some(-5), Some(1_250), None])
        .with_data_type(DataType::Decimal128(10, 2));
    let columns: [(&str, ArrayRef); 6] = [
        (
            "n",
            Arc::new(PrimitiveArray::<Int64Type>::from(vec![
                Some(1),
                None,
                Some(-3),
            ])),
        ),
        (
            "x",
            Arc::new(PrimitiveArray::<Float64Type>::from(vec![
                1.0,
                1e21,
                f64::NAN,
            ])),
        ),
        (
            "s",
            Arc::new(StringViewArray::from(vec![
                Some("a,\"b\"\n"),
                None,
                Some(""),
            ])),
        ),
        (
            "t",
            Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from(vec![
                0, 1, -1,
            ])),
        ),
        ("d", Arc::new(decimal)),
        ("day", Arc::new(Date32Array::from(vec![0, 16_572, -1]))),
    ];
    Chunk::new(RecordBatch::try_from_iter(columns).unwrap(), 0)
}

fn file_table(path: &Path, options: &[(&str, &str)]) -> TableDefinition {
    let own = [("connector", "file"), ("path", path.to_str().unwrap())];
    table(&columns(), &[&own, options].concat())
}

fn write(table: &TableDefinition, chunks: &[Chunk]) {
    let mut sink = crate::sink(table)
        .unwrap()
        .sink(&SinkRequest::new(0, 1))
        .unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    for chunk in chunks {
        sink.write(chunk).unwrap();
    }
    sink.finish(true).unwrap();
}

const CSV: &str = "n,x,s,t,d,day\n\
    1,1.0,\"a,\"\"b\"\"\n\",1970-01-01 00:00:00.000000,-0.05,1970-01-01\n\
    ,1e+21,,1970-01-01 00:00:00.000001,12.50,2015-05-17\n\
    -3,NaN,\"\",1969-12-31 23:59:59.999999,,1969-12-31\n";

#[test]
fn csv_in_one_file_under_its_name_only_when_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    let table = file_table(&path, &[("csv.header", "true")]);
    let connector = crate::sink(&table).unwrap();
    assert_eq!(connector.capabilities().max_instances, 1);
    let mut sink = connector.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink.write(&chunk()).unwrap();
    sink.flush().unwrap();
    let names = || {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), [format!(".out.csv.tmp-{}", std::process::id())]);
    sink.finish(true).unwrap();
    assert_eq!(names(), ["out.csv"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), CSV);

    let error = crate::sink(&table).unwrap().begin(false).unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    let over = file_table(&path, &[("overwrite", "true")]);
    let mut sink = crate::sink(&over)
        .unwrap()
        .sink(&SinkRequest::new(0, 1))
        .unwrap();
    sink.open(&mut Waiter::new().unwrap()).unwrap();
    sink.write(&chunk()).unwrap();
    sink.finish(false).unwrap();
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        CSV,
        "a failed query changes nothing"
    );
    assert_eq!(names(), ["out.csv"]);
    write(&over, &[]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn a_row_of_one_empty_column_is_still_a_row() {
    let folder = tempfile::tempdir().unwrap();
    for (null, data_type, expected) in [
        ("", DataType::Int64, ["0:1:7", "0:2:NULL"]),
        ("NA", DataType::Utf8View, ["0:1:NULL", "0:2:"]),
    ] {
        let path = folder.path().join(format!("out{null}.csv"));
        let own = [
            ("connector", "file"),
            ("path", path.to_str().unwrap()),
            ("csv.null", null),
        ];
        let table = table(&[("c", data_type.clone())], &own);
        let column: ArrayRef = if data_type == DataType::Int64 {
            Arc::new(PrimitiveArray::<Int64Type>::from(vec![Some(7), None]))
        } else {
            Arc::new(StringViewArray::from(vec![None, Some("")]))
        };
        write(
            &table,
            &[Chunk::new(
                RecordBatch::try_from_iter([("c", column)]).unwrap(),
                0,
            )],
        );
        let source = crate::source(&table).unwrap().source(request(&[0]));
        assert_eq!(read_all(&mut *source.unwrap()).strings, expected);
    }
}

#[test]
fn a_header_without_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv");
    write(&file_table(&path, &[("csv.header", "true")]), &[]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "n,x,s,t,d,day\n");
}

#[test]
fn gzip_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.csv.gz");
    write(
        &file_table(&path, &[("csv.header", "true")]),
        &[chunk(), chunk()],
    );
    let table = file_table(&path, &[("csv.header", "true")]);
    let drained = read_all(
        &mut *crate::source(&table)
            .unwrap()
            .source(request(&[0, 2]))
            .unwrap(),
    );
    assert_eq!(drained.strings[0], "0:2:1|a,\"b\"\n");
    assert_eq!(drained.strings[1], "0:4:NULL|NULL");
    assert_eq!(drained.strings[2], "0:5:-3|");
    assert_eq!(drained.strings.len(), 6);
}

#[test]
fn a_folder_of_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let part = |table: &TableDefinition, instances: usize| {
        let connector = crate::sink(table).unwrap();
        for instance in 0..instances {
            let mut sink = connector
                .sink(&SinkRequest::new(instance, instances))
                .unwrap();
            sink.open(&mut Waiter::new().unwrap()).unwrap();
            sink.write(&chunk()).unwrap();
            sink.finish(true).unwrap();
        }
    };
    let names = || {
        let entries = fs::read_dir(&path).unwrap();
        let names = entries.map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names = names.collect::<Vec<_>>();
        names.sort();
        names
    };
    part(&file_table(&path, &[]), 3);
    assert_eq!(names(), ["part-0.csv", "part-1.csv", "part-2.csv"]);
    let connector = crate::sink(&file_table(&path, &[])).unwrap();
    let error = connector.begin(false).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    fs::write(path.join("notes"), "").unwrap();
    part(
        &file_table(&path, &[("overwrite", "true"), ("format", "json")]),
        2,
    );
    assert_eq!(names(), ["notes", "part-0.json", "part-1.json"]);
}

#[test]
fn json_lines_with_rows_and_arrays() {
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    let inner = StructArray::from(vec![
        (
            Arc::new(Field::new("b", DataType::Boolean, true)),
            Arc::new(BooleanArray::from(vec![true, false])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("l", list.data_type().clone(), true)),
            Arc::new(list) as ArrayRef,
        ),
    ]);
    use arrow_array::Array;
    let text = StringViewArray::from(vec![Some("tab\t\"é\""), None]);
    let floats = PrimitiveArray::<Float64Type>::from(vec![0.5, f64::INFINITY]);
    let kind = inner.data_type().clone();
    let batch = RecordBatch::try_from_iter([
        ("e", Arc::new(inner) as ArrayRef),
        ("a \"b\"", Arc::new(text) as ArrayRef),
        ("f", Arc::new(floats) as ArrayRef),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.json");
    let columns = [
        ("e", kind),
        ("a \"b\"", DataType::Utf8View),
        ("f", DataType::Float64),
    ];
    let own = [
        ("connector", "file"),
        ("path", path.to_str().unwrap()),
        ("format", "json"),
    ];
    write(&table(&columns, &own), &[Chunk::new(batch.unwrap(), 0)]);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        "{\"e\":{\"b\":true,\"l\":[1,null]},\"a \\\"b\\\"\":\"tab\\t\\\"é\\\"\",\"f\":0.5}\n\
         {\"e\":{\"b\":false,\"l\":null},\"a \\\"b\\\"\":null,\"f\":null}\n"
    );
    let csv = crate::sink(&table(&columns, &own[..2])).err().unwrap();
    assert!(csv.to_string().contains("'format' = 'json'"), "{csv}");
}

#[test]
fn places_that_can_not_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| {
        crate::sink(&file_table(path, &[]))
            .err()
            .unwrap()
            .to_string()
    };
    fs::create_dir(folder.path().join("folder.csv")).unwrap();
    assert!(error(&folder.path().join("folder.csv")).contains("is a folder"));
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(error(&folder.path().join("file")).contains("is a file"));
    let table = file_table(&folder.path().join("none/out.csv"), &[]);
    let mut sink = crate::sink(&table)
        .unwrap()
        .sink(&SinkRequest::new(0, 1))
        .unwrap();
    let error = sink.open(&mut Waiter::new().unwrap()).unwrap_err();
    assert!(error.to_string().contains("can't write in"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_csv_writes_it_reads(
        rows in proptest::collection::vec(
            (proptest::option::of("[a-zNA,;\"\r\n\0é ]{0,20}"), proptest::option::of(any::<i64>())),
            1..30,
        ),
        delimiter in prop_oneof![Just(","), Just("\\t"), Just("1"), Just("-")],
        null in prop_oneof![Just(""), Just("NA"), Just("7")],
        header in prop_oneof![Just("true"), Just("false")],
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let own = [
            ("connector", "file"),
            ("path", path.to_str().unwrap()),
            ("csv.delimiter", delimiter),
            ("csv.null", null),
            ("csv.header", header),
        ];
        let table = table(&[("s", DataType::Utf8View), ("n", DataType::Int64)], &own);
        let text = rows.iter().map(|row| row.0.as_deref()).collect::<StringViewArray>();
        let numbers = rows.iter().map(|row| row.1).collect::<PrimitiveArray<Int64Type>>();
        let columns = [("s", Arc::new(text) as ArrayRef), ("n", Arc::new(numbers) as ArrayRef)];
        write(&table, &[Chunk::new(RecordBatch::try_from_iter(columns).unwrap(), 0)]);
        let drained =
            read_all(&mut *crate::source(&table).unwrap().source(request(&[0, 1])).unwrap());
        prop_assert_eq!(drained.rejected, vec![]);
        let read = drained.strings.iter().map(|row| row.splitn(3, ':').nth(2).unwrap().to_string());
        let word = |value: Option<String>| value.unwrap_or("NULL".into());
        let written = rows.iter().map(|(s, n)| {
            format!("{}|{}", word(s.clone()), word(n.map(|n| n.to_string())))
        });
        prop_assert_eq!(read.collect::<Vec<_>>(), written.collect::<Vec<_>>());
    }
}

fn tcp_table(address: &str, mode: &str) -> TableDefinition {
    table(
        &columns(),
        &[("connector", "tcp"), ("address", address), ("mode", mode)],
    )
}

/// A sink of that table, opened.
fn tcp_sink(table: &TableDefinition, waiter: &mut Waiter) -> Box<dyn Sink> {
    let sink = crate::sink(table).unwrap();
    let mut sink = sink.sink(&SinkRequest::new(0, 1)).unwrap();
    sink.open(waiter).unwrap();
    sink
}

/// Writes as the engine does: offers the row, and sleeps if it is not accepted.
fn write_when_ready(
    sink: &mut dyn Sink,
    waiter: &mut Waiter,
    chunks: usize,
    refused: impl Fn(),
) -> usize {
    let mut refusals = 0;
    for _ in 0..chunks {
        while !sink.ready().unwrap() {
            refusals += 1;
            refused();
            waiter.announce(slackwater_link::Listen::Everything);
            if sink.ready().unwrap() {
                waiter.retract();
                break;
            }
            let woken = waiter
                .wait(Some(Duration::from_secs(10)), Sources::All)
                .unwrap();
            assert_ne!(
                woken,
                slackwater_engine::link::Woken::TimedOut,
                "nobody woke the sink"
            );
        }
        sink.write(&chunk()).unwrap();
    }
    sink.flush().unwrap();
    refusals
}

#[test]
fn tcp_connects_and_waits_for_a_slow_peer() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let (refuse, refused) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = peer.accept().unwrap();
        refused.recv().unwrap();
        let mut bytes = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => return bytes,
                read => bytes += read,
            }
        }
    });
    let mut waiter = Waiter::new().unwrap();
    let mut sink = crate::sink(&tcp_table(&address, "connect"))
        .unwrap()
        .sink(&SinkRequest::new(0, 1))
        .unwrap();
    sink.open(&mut waiter).unwrap();
    let chunks = 100_000;
    let refusals = write_when_ready(&mut *sink, &mut waiter, chunks, || {
        // The peer starts to read when the sink is full, and has gone before the last write.
        let _ = refuse.send(());
    });
    sink.finish(true).unwrap();
    let header = CSV.find('\n').unwrap() + 1;
    assert_eq!(reader.join().unwrap(), chunks * (CSV.len() - header));
    assert!(refusals > 0);
}

#[test]
fn tcp_listens_and_is_not_ready_before_a_reader_connects() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut sink = crate::sink(&tcp_table(&free, "listen"))
        .unwrap()
        .sink(&SinkRequest::new(0, 1))
        .unwrap();
    sink.open(&mut waiter).unwrap();
    assert!(!sink.ready().unwrap());
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        let mut text = String::new();
        TcpStream::connect(free)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    });
    assert!(write_when_ready(&mut *sink, &mut waiter, 2, || ()) > 0);
    sink.finish(true).unwrap();
    let rows = &CSV[CSV.find('\n').unwrap() + 1..];
    assert_eq!(reader.join().unwrap(), format!("{rows}{rows}"));
}

#[test]
fn a_peer_that_goes_away_is_an_error_with_on_close_fail() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let mut table = tcp_table(&address, "connect");
    table.options.insert("on_close".into(), "fail".into());
    let mut sink = tcp_sink(&table, &mut Waiter::new().unwrap());
    drop(peer.accept().unwrap());
    let error = (0..1_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        sink.write(&chunk()).and_then(|()| sink.flush()).err()
    });
    let error = error.expect("writing to a closed connection fails at some point");
    assert_eq!(error.place, address);
}

/// Numbered rows of a column.
fn numbered(rows: std::ops::Range<i64>) -> Chunk {
    let column: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from_iter_values(rows));
    Chunk::new(RecordBatch::try_from_iter([("n", column)]).unwrap(), 0)
}

/// Rows that a reader has got: whole lines after the header.
fn numbers(text: &str) -> Vec<i64> {
    let whole = &text[..text.rfind('\n').map_or(0, |at| at + 1)];
    let mut lines = whole.lines();
    assert!(matches!(lines.next(), None | Some("n")), "{text}");
    lines.map(|line| line.parse().unwrap()).collect()
}

#[test]
fn regression_a_sink_whose_reader_leaves_waits_for_the_next_one() {
    for mode in ["listen", "connect"] {
        let peer = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = peer.local_addr().unwrap().to_string();
        // If the sink listens, the address must be free again.
        let peer = Some(peer).filter(|_| mode == "connect");
        let options = [
            ("connector", "tcp"),
            ("address", &*address),
            ("mode", mode),
            ("csv.header", "true"),
        ];
        let table = table(&[("n", DataType::Int64)], &options);
        let mut waiter = Waiter::new().unwrap();
        let mut sink = tcp_sink(&table, &mut waiter);
        let join = || match &peer {
            Some(peer) => peer.accept().unwrap().0,
            None => TcpStream::connect(&address).unwrap(),
        };
        let wait_ready = |sink: &mut dyn Sink| {
            while !sink.ready().unwrap() {
                waiter.announce(slackwater_link::Listen::Everything);
                if sink.ready().unwrap() {
                    waiter.retract();
                    return;
                }
                let woken = waiter.wait(Some(Duration::from_secs(30)), Sources::All);
                assert_ne!(woken.unwrap(), slackwater_engine::link::Woken::TimedOut);
            }
        };
        let mut got = Vec::new();
        let mut next = 0;
        for nth in 0..4 {
            let mut reader = join();
            wait_ready(&mut *sink);
            let mut text = String::new();
            // Rows that the last reader did not receive come first.
            let mut buffer = vec![0; 1 << 16];
            let from = next;
            while numbers(&text).last().is_none_or(|&last| last < from + 20) {
                sink.write(&numbered(next..next + 10)).unwrap();
                sink.flush().unwrap();
                next += 10;
                let read = reader.read(&mut buffer).unwrap();
                text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
            }
            assert!(
                text.starts_with("n\n"),
                "each reader gets the names: {text}"
            );
            got.extend(numbers(&text));
            drop(reader);
            // The sink notices when it writes, and accepts no more rows then.
            let begin = std::time::Instant::now();
            while sink.connections_lost() == nth {
                assert!(begin.elapsed() < Duration::from_secs(30), "{mode}");
                sink.write(&numbered(next..next + 10)).unwrap();
                sink.flush().unwrap();
                next += 10;
            }
            assert!(!sink.ready().unwrap(), "{mode}: nobody reads");
        }
        let mut reader = join();
        wait_ready(&mut *sink);
        sink.write(&numbered(next..next + 10)).unwrap();
        sink.finish(true).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        got.extend(numbers(&text));
        // The rows are in order, none of them twice, and the last ones are there.
        assert!(
            got.is_sorted_by(|one, other| one < other),
            "{mode}: {got:?}"
        );
        assert_eq!(got.last(), Some(&(next + 9)), "{mode}");
    }
}

#[test]
fn a_checkpoint_waits_for_rows_that_have_not_left() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let mut saved = SinkRequest::new(0, 1);
    saved.epoch = Some(1);
    let mut waiter = Waiter::new().unwrap();
    let connector = crate::sink(&tcp_table(&address, "connect")).unwrap();
    let mut sink = connector.sink(&saved).unwrap();
    sink.open(&mut waiter).unwrap();
    let mut reader = peer.accept().unwrap().0;
    sink.write(&chunk()).unwrap();
    sink.flush().unwrap();
    assert_eq!(sink.prepare(false).unwrap(), None, "all has left");
    // More than the sockets hold.
    while sink.ready().unwrap() {
        sink.write(&chunk()).unwrap();
    }
    sink.flush().unwrap();
    let prepared = sink.prepare(false).unwrap().expect("something waits");
    let mut bytes = vec![];
    let all = std::thread::spawn(move || reader.read_to_end(&mut bytes).unwrap());
    let finished = std::thread::spawn(move || sink.finish(true));
    connector.secure(&prepared).unwrap();
    finished.join().unwrap().unwrap();
    assert!(all.join().unwrap() as u64 >= prepared.parse::<u64>().unwrap());
    // A sink that is dropped with rows in its buffer has not delivered them.
    let mut sink = connector.sink(&saved).unwrap();
    sink.open(&mut waiter).unwrap();
    let _silent = peer.accept().unwrap();
    while sink.ready().unwrap() {
        sink.write(&chunk()).unwrap();
    }
    let prepared = sink.prepare(false).unwrap().expect("something waits");
    sink.finish(false).unwrap();
    let error = connector.secure(&prepared).unwrap_err();
    assert_eq!(error.place, address);
}
