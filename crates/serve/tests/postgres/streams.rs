//! Answers that come piece by piece: cursors, portals, COPY, changes.

use std::io::Read as _;

use postgres::NoTls;
use postgres::fallible_iterator::FallibleIterator as _;

use super::raw::{Raw, message, query};
use super::{client, code, config, door, rows};
use slackwater_serve::postgres::Limits;

#[test]
fn cursors_return_the_rows_in_parts() {
    let (_door, mut client) = client();
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SELECT * FROM numbers LIMIT 2500")
        .unwrap();
    assert_eq!(
        rows(&mut client, "FETCH 2 FROM c"),
        [["0", "-"], ["1", "number 1"]]
    );
    assert!(rows(&mut client, "MOVE 1000 FROM c").is_empty());
    assert_eq!(rows(&mut client, "FETCH FORWARD 1 IN c"), [["1002", "-"]]);
    assert_eq!(rows(&mut client, "FETCH ALL c").len(), 1_497);
    assert!(rows(&mut client, "FETCH c").is_empty());
    assert_eq!(
        code(client.batch_execute("DECLARE c CURSOR FOR SELECT * FROM numbers")),
        "42P03"
    );
    client.batch_execute("ROLLBACK").unwrap();
    assert_eq!(code(client.batch_execute("FETCH c")), "34000");
}

#[test]
fn portals_return_the_rows_in_parts() {
    let (_door, mut client) = client();
    let mut transaction = client.transaction().unwrap();
    let portal = transaction
        .bind("SELECT * FROM numbers LIMIT 1500", &[])
        .unwrap();
    assert_eq!(
        transaction.query_portal(&portal, 1_001).unwrap().len(),
        1_001
    );
    let rest = transaction.query_portal(&portal, 1_001).unwrap();
    assert_eq!((rest.len(), rest[0].get::<_, i64>(0)), (499, 1_001));
    assert!(transaction.query_portal(&portal, 1).unwrap().is_empty());
    let rows = transaction
        .query_raw("SELECT * FROM numbers LIMIT 20000", &[] as &[i64])
        .unwrap();
    assert_eq!(rows.count().unwrap(), 20_000);
}

#[test]
fn tables_are_copied_in_all_formats() {
    let (_door, mut client) = client();
    let mut copied = |text: &str| {
        let mut bytes = vec![];
        client
            .copy_out(text)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    };
    assert_eq!(
        copied("COPY (SELECT * FROM numbers LIMIT 2) TO STDOUT"),
        b"0\t\\N\n1\tnumber 1\n"
    );
    let csv =
        copied("COPY (SELECT * FROM numbers LIMIT 2) TO STDOUT (FORMAT csv, HEADER, NULL 'no')");
    assert_eq!(csv, b"n,name\n0,no\n1,number 1\n");
    let binary = copied("COPY (SELECT * FROM numbers LIMIT 1) TO STDOUT WITH BINARY");
    assert_eq!(binary.len(), 11 + 8 + 2 + 4 + 8 + 4 + 2);
    assert_eq!(
        copied("COPY numbers TO STDOUT")
            .split(|byte| *byte == b'\n')
            .count(),
        10_001
    );
    assert_eq!(
        code(
            client
                .copy_out("COPY numbers TO STDOUT (FORMAT csv, FORCE_QUOTE *)")
                .map(drop)
        ),
        "0A000"
    );
    assert_eq!(
        code(client.batch_execute("COPY numbers FROM STDIN")),
        "0A000"
    );
}

#[test]
fn changes_arrive_until_they_are_cancelled() {
    let (_door, mut client) = client();
    let token = client.cancel_token();
    let mut changes = client
        .query_raw("SUBSCRIBE numbers", &[] as &[i64])
        .unwrap();
    for expected in 1..=3_i64 {
        assert_eq!(changes.next().unwrap().unwrap().get::<_, i64>(0), expected);
    }
    token.cancel_query(NoTls).unwrap();
    let last = loop {
        match changes.next() {
            Ok(Some(_)) => {}
            other => break other.map(drop),
        }
    };
    drop(changes);
    assert_eq!(code(last), "57014");
    client
        .batch_execute("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE numbers")
        .unwrap();
    assert_eq!(rows(&mut client, "FETCH 1 c"), [["1", "number 1"]]);
    assert!(!rows(&mut client, "FETCH ALL c").is_empty());
}

#[test]
fn there_are_fewer_changes_than_threads() {
    let limits = Limits {
        streams: 2,
        threads: 3,
        ..Limits::default()
    };
    let door = door(None, limits);
    let mut streams: Vec<Raw> = (0..2).map(|_| Raw::begun(door.address())).collect();
    for stream in &mut streams {
        stream.send(&query("SUBSCRIBE numbers"));
        stream.until(b'D');
    }
    let mut client = config(&door).connect(NoTls).unwrap();
    assert_eq!(code(client.batch_execute("SUBSCRIBE numbers")), "53300");
    assert_eq!(rows(&mut client, "SELECT * FROM numbers LIMIT 4").len(), 4);
    // A client that leaves gives its thread back.
    streams.clear();
    loop {
        let mut stream = Raw::begun(door.address());
        stream.send(&query("SUBSCRIBE numbers"));
        match stream.receive().unwrap().0 {
            b'T' => break,
            kind => assert_eq!(kind, b'E'),
        }
    }
}

/// The most time of a long answer passes while its rows are sent: a cancel must be heard there, too.
#[test]
fn an_answer_to_a_client_that_reads_slowly_is_cancelled() {
    let door = door(None, Limits::default());
    let mut slow = Raw::new(door.address());
    slow.send(&super::raw::startup("eve"));
    let key = loop {
        if let (b'K', key) = slow.receive().unwrap() {
            break key;
        }
    };
    slow.until(b'Z');
    slow.send(&query("SELECT endless FROM numbers LIMIT 9000000000"));
    slow.until(b'D');
    // Until the server waits for this client, which reads nothing.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let mut cancel = Raw::new(door.address());
    cancel.send(
        &[
            &16_u32.to_be_bytes()[..],
            &80_877_102_u32.to_be_bytes(),
            &key,
        ]
        .concat(),
    );
    assert_eq!(cancel.ended(), None);
    assert_eq!(slow.until(b'Z').1, ["57014"]);
    slow.send(&message(b'X', b""));
    assert_eq!(slow.ended(), None);
}
