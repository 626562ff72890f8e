//! Clients that ask for too much, take too little, or leave.

use super::*;

#[test]
fn a_slow_reader_holds_up_its_own_rows_and_nothing_else() {
    let served = served();
    let mut slow = served.send("POST /v1/sql", "", b"ENDLESS");
    let mut head = [0; 1_000];
    slow.read_exact(&mut head).unwrap();
    let taken = || *served.fake.taken.lock().unwrap();
    // Until the buffers on the way are full.
    let mut last = 0;
    eventually("rest", || {
        std::thread::sleep(Duration::from_millis(300));
        std::mem::replace(&mut last, taken()) == taken()
    });
    assert_eq!(served.get("/v1/jobs").status, 200, "others are served");
    drop(slow);
    // Whoever leaves ends the work: a fixed number of batches later.
    let mut last = 0;
    eventually("end", || {
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, taken()) == taken()
    });
}

#[test]
fn a_statement_ends_when_its_client_leaves_or_has_no_more_time() {
    let served = served();
    let cancelled = || *served.fake.cancelled.lock().unwrap();
    let client = served.send("POST /v1/sql", "", b"WAIT");
    eventually("it runs", || {
        served.fake.subscribers.lock().unwrap().len() == 1
    });
    assert_eq!(cancelled(), 0);
    drop(client);
    eventually("it is cancelled", || cancelled() == 1);
    let limits = Limits {
        answer_time: Duration::from_millis(200),
        stream_time: Duration::from_millis(200),
        ..Limits::default()
    };
    let served = served_with(limits, None);
    served.sql("WAIT").refused(503, "limit", "busy");
    let cancelled = || *served.fake.cancelled.lock().unwrap();
    eventually("it is cancelled", || cancelled() == 1);
    // An answer without end is broken off, and changes are not.
    let endless = served.sql("ENDLESS");
    assert_eq!((endless.status, endless.is_whole), (200, false));
    let mut changes = served.send("GET /v1/views/v/changes", "", b"");
    eventually("it runs", || {
        served.fake.subscribers.lock().unwrap().len() == 2
    });
    std::thread::sleep(Duration::from_millis(600));
    let subscriber = served.fake.subscribers.lock().unwrap()[1].clone();
    subscriber.send(None).unwrap();
    let mut bytes = Vec::new();
    changes.read_to_end(&mut bytes).unwrap();
    assert!(answered(&bytes).ok().text().contains("event: end"));
}

#[test]
fn no_more_statements_run_at_a_time_than_there_are_threads() {
    let limits = Limits {
        threads: 2,
        ..Limits::default()
    };
    let served = served_with(limits, None);
    let running = || served.fake.subscribers.lock().unwrap().len();
    let waiting = (0..2).map(|_| served.send("POST /v1/sql", "", b"WAIT"));
    let waiting = waiting.collect::<Vec<_>>();
    eventually("two run", || running() == 2);
    let third = served.send("POST /v1/sql", "", b"WAIT");
    let fourth = served.send("GET /v1/jobs", "", b"");
    // What needs no thread is answered meanwhile.
    assert_eq!(served.get("/healthz").status, 200);
    assert_eq!(running(), 2);
    // One that leaves before its turn takes none.
    drop(third);
    drop(waiting);
    let mut bytes = Vec::new();
    (&fourth).read_to_end(&mut bytes).unwrap();
    assert_eq!(answered(&bytes).status, 200);
    eventually("all are cancelled", || {
        *served.fake.cancelled.lock().unwrap() == running()
    });
}

#[test]
fn giant_statements_are_refused_unread() {
    let served = served();
    let giant = "SELECT 1;".repeat(1 << 20);
    served
        .sql(&giant)
        .refused(413, "limit", "more than 1048576 bytes");
    let rows = "1,a\n".repeat(2 << 20);
    served
        .ask("POST /v1/tables/t", "", &rows)
        .refused(413, "limit", "4194304");
    assert!(served.fake.run.lock().unwrap().is_empty());
    assert!(served.fake.pushed.lock().unwrap().is_empty());
    // Just below, it is read.
    let text = format!("SELECT 1{}", " ".repeat(SQL_BYTES_MAX - 8));
    served.sql(&text).ok();
}

#[test]
fn listeners_leave_places_for_others() {
    let limits = Limits {
        streams: 2,
        connections: 4,
        ..Limits::default()
    };
    let served = served_with(limits, None);
    let followers = (0..2).map(|_| served.send("GET /v1/views/v/changes", "", b""));
    let followers = followers.collect::<Vec<_>>();
    eventually("both run", || {
        served.fake.subscribers.lock().unwrap().len() == 2
    });
    let more = served.get("/v1/views/v/changes");
    more.refused(503, "limit", "too many clients listen");
    // It was not left running.
    eventually("the third is cancelled", || {
        *served.fake.cancelled.lock().unwrap() == 1
    });
    assert_eq!(served.get("/v1/jobs").status, 200);
    drop(followers);
}
