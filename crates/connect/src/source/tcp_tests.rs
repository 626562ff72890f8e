//! The tcp source on loopback.

use std::net::TcpListener;

use super::*;
use crate::source::tests::{Drained, drain, drain_until, request};
use crate::table::tests::table;
use arrow_schema::DataType;
use slackwater_engine::source::Tuning;
use std::io::Write;
use std::time::Duration;

/// Longer than any step of these tests takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn connector(address: &str, mode: &str, options: &[(&str, &str)]) -> TcpConnector {
    let own = [("address", address), ("mode", mode)];
    let options = [&own, options].concat();
    let table = table(&[("line", DataType::Utf8View)], &options);
    TcpConnector::new(&table, &Options::new(&table.options), Format::Raw).unwrap()
}

fn saved() -> SourceRequest {
    SourceRequest {
        saved: true,
        ..request(&[0])
    }
}

/// An opened source that listens, and its address.
fn listening(waiter: &mut Waiter, options: &[(&str, &str)]) -> (TcpSource, std::net::SocketAddr) {
    let mut source = connector("127.0.0.1:0", "listen", options).tcp_source(request(&[0]));
    assert!(source.open(waiter).unwrap().is_empty());
    let listening = source.listener.as_ref().unwrap();
    let address = listening.listener.local_addr().unwrap();
    (source, address)
}

/// Ends the connection with a reset: data that was not read is discarded.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

fn wait_for(
    source: &mut TcpSource,
    waiter: &mut Waiter,
    enough: impl Fn(&Drained) -> bool,
) -> Drained {
    drain_until(source, waiter, enough)
}

#[test]
fn connects_and_ends_with_the_peer() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = peer.accept().unwrap();
        for line in 0..20_000 {
            stream
                .write_all(format!("line {line}, some text\n").as_bytes())
                .unwrap();
            if line % 1_000 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        stream.write_all(b"the last").unwrap();
    });
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&address, "connect", &[]).tcp_source(request(&[0]));
    let partitions = source.open(&mut waiter).unwrap();
    assert_eq!(partitions, [(0, address)]);
    let rows = drain(&mut source, &mut waiter);
    sender.join().unwrap();
    assert_eq!(rows.strings.len(), 20_001);
    assert_eq!(rows.strings[19_999], "0:20000:line 19999, some text");
    assert_eq!(rows.strings[20_000], "0:20001:the last");
    assert_eq!(rows.ended, [0]);
}

#[test]
fn lingers_after_the_first_row_and_stamps_it() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let mut waiter = Waiter::new().unwrap();
    let linger_ns = 50_000_000;
    let request = SourceRequest {
        tuning: Arc::new(Tuning::new(linger_ns, 1_000)),
        ..request(&[0])
    };
    let mut source = connector(&address, "connect", &[]).tcp_source(request);
    source.open(&mut waiter).unwrap();
    let (mut stream, _) = peer.accept().unwrap();
    stream.write_all(b"half a li").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    waiter.look();
    assert!(
        matches!(source.poll().unwrap(), SourcePoll::Pending),
        "no row, no timer"
    );
    stream.write_all(b"ne\n").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let before_ns = now_ns();
    assert!(waiter.look());
    waiter.note_watched(before_ns);
    let SourcePoll::NotBefore { time_ns } = source.poll().unwrap() else {
        panic!("it lingers");
    };
    assert!((before_ns + linger_ns..=now_ns() + linger_ns).contains(&time_ns));
    stream.write_all(b"another\n").unwrap();
    let rows = drain_until(&mut source, &mut waiter, |rows| !rows.strings.is_empty());
    assert_eq!(
        rows.strings,
        ["0:1:half a line", "0:2:another"],
        "one chunk"
    );
    assert_eq!(rows.ingest_ns, [time_ns - linger_ns]);
    assert!(now_ns() >= time_ns);
}

/// The kernel names a socket once for all that has arrived: the end is not read with a read that does not
/// fill its buffer.
#[test]
fn bytes_and_the_end_that_arrive_together_are_both_read() {
    for mode in ["connect", "listen"] {
        let mut waiter = Waiter::new().unwrap();
        let end = [("on_close", "end")];
        let (mut source, mut stream) = match mode {
            "connect" => {
                let peer = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = peer.local_addr().unwrap().to_string();
                let mut source = connector(&address, mode, &end).tcp_source(request(&[0]));
                source.open(&mut waiter).unwrap();
                (source, peer.accept().unwrap().0)
            }
            _ => {
                let (mut source, address) = listening(&mut waiter, &end);
                let stream = TcpStream::connect(address).unwrap();
                wait_for(&mut source, &mut waiter, |rows| rows.started.len() == 1);
                (source, stream)
            }
        };
        // Nothing is there yet: the first look is over.
        waiter.look();
        assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
        stream.write_all(b"one\ntwo\n").unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(50));
        let rows = drain(&mut source, &mut waiter);
        assert_eq!((rows.strings.len(), rows.ended), (2, vec![0]), "{mode}");
        source.close();
    }
}

#[test]
fn listens_to_many_peers_and_continues() {
    let mut waiter = Waiter::new().unwrap();
    let (mut source, address) = listening(&mut waiter, &[]);
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    let senders = (0..20).map(|sender| {
        std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for line in 0..500 {
                stream
                    .write_all(format!("{sender} {line}\n").as_bytes())
                    .unwrap();
                if line % 100 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        })
    });
    let senders = senders.collect::<Vec<_>>();
    let rows = drain_until(&mut source, &mut waiter, |rows| rows.ended.len() == 20);
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
    assert_eq!(rows.started.len(), 20);
    assert_eq!(rows.strings.len(), 20 * 500);
    // The source is still there for the next peer.
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(b"late\n").unwrap();
    let rows = drain_until(&mut source, &mut waiter, |rows| !rows.strings.is_empty());
    assert_eq!(rows.strings, ["20:1:late"]);
}

#[test]
fn nobody_there_is_an_error_with_a_hint() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&free, "connect", &[]).tcp_source(request(&[0]));
    let error = source.open(&mut waiter).unwrap_err();
    assert!(
        error.reason.contains("refused") && error.place == free,
        "{error}"
    );
}

#[test]
fn regression_a_peer_that_restarts_does_not_end_a_query_with_state() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&address, "connect", &[]).tcp_source(saved());
    assert_eq!(source.open(&mut waiter).unwrap(), [(0, address)]);
    let mut stream = peer.accept().unwrap().0;
    let endings: [fn(TcpStream); 3] = [drop, reset, drop];
    for (nth, end) in endings.into_iter().enumerate() {
        stream.write_all(b"one\ntwo\nand a h").unwrap();
        // A reset would discard what was not read.
        wait_for(&mut source, &mut waiter, |rows| rows.strings.len() == 2);
        stream.write_all(b"al").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        waiter.look();
        assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
        end(stream);
        let rows = wait_for(&mut source, &mut waiter, |rows| rows.lost == 1);
        let number = nth as u32;
        if nth == 1 {
            // An incomplete line is rejected, and kept.
            let [rejected] = &rows.rejected[..] else {
                panic!("{rows:?}");
            };
            assert_eq!(
                (&*rejected.record, rejected.position),
                ("and a hal", Some(3))
            );
            assert!(rejected.reason.contains("broke"), "{}", rejected.reason);
        } else {
            assert_eq!(rows.strings, [format!("{number}:3:and a hal")]);
        }
        // Its partition stays until the next peer is there.
        assert_eq!(rows.ended, Vec::<u32>::new());
        stream = peer.accept().unwrap().0;
        let rows = wait_for(&mut source, &mut waiter, |rows| rows.ended.len() == 1);
        assert_eq!((rows.started, rows.ended), (vec![number + 1], vec![number]));
    }
    source.close();
}

#[test]
fn regression_a_reset_is_an_error() {
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&address, "connect", &[]).tcp_source(request(&[0]));
    source.open(&mut waiter).unwrap();
    let mut stream = peer.accept().unwrap().0;
    stream.write_all(b"a\nb\nc").unwrap();
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.strings.len() == 2);
    assert_eq!(rows.strings, ["0:1:a", "0:2:b"]);
    reset(stream);
    // The rows that came are passed on before the error.
    let begin = std::time::Instant::now();
    let mut rejected = vec![];
    let error = loop {
        assert!(begin.elapsed() < PATIENCE);
        waiter.look();
        match source.poll() {
            Ok(SourcePoll::Rows(rows)) => rejected.extend(rows.rejected),
            Ok(SourcePoll::End) => panic!("a silent end"),
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error,
        }
    };
    assert_eq!(error.place, address);
    assert!(
        error.to_string().contains("'on_close' = 'reconnect'"),
        "{error}"
    );
    assert_eq!(rejected[0].record, "c");
}

#[test]
fn a_query_with_state_waits_for_a_peer_that_is_not_there_yet() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let free = free.unwrap().to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&free, "connect", &[]).tcp_source(saved());
    // The connection is a partition already, and holds others back.
    assert_eq!(source.open(&mut waiter).unwrap(), [(0, free.clone())]);
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    let peer = TcpListener::bind(&free).unwrap();
    let sender = std::thread::spawn(move || peer.accept().unwrap().0.write_all(b"a\n"));
    let rows = wait_for(&mut source, &mut waiter, |rows| !rows.strings.is_empty());
    assert_eq!((rows.started, rows.ended), (vec![1], vec![0]));
    assert_eq!((rows.strings, rows.lost), (vec!["1:1:a".to_string()], 0));
    sender.join().unwrap().unwrap();
}

#[test]
fn on_close_says_what_a_close_means() {
    let mut waiter = Waiter::new().unwrap();
    // The table ends, although the query has state.
    let peer = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = peer.local_addr().unwrap().to_string();
    let end = [("on_close", "end")];
    let mut source = connector(&address, "connect", &end).tcp_source(saved());
    source.open(&mut waiter).unwrap();
    peer.accept().unwrap().0.write_all(b"a").unwrap();
    let rows = drain(&mut source, &mut waiter);
    assert_eq!((&*rows.strings[0], rows.ended), ("0:1:a", vec![0]));
    // A listening source that ends with its last peer.
    let (mut source, address) = listening(&mut waiter, &end);
    let mut senders = [0, 1].map(|_| TcpStream::connect(address).unwrap());
    wait_for(&mut source, &mut waiter, |rows| rows.started.len() == 2);
    for sender in &mut senders {
        sender.write_all(b"a").unwrap();
    }
    drop(senders);
    assert_eq!(drain(&mut source, &mut waiter).strings.len(), 2);
    // The table does not end, although the query has no state.
    let reconnect = [("on_close", "reconnect")];
    let address = peer.local_addr().unwrap().to_string();
    let mut source = connector(&address, "connect", &reconnect).tcp_source(request(&[0]));
    source.open(&mut waiter).unwrap();
    drop(peer.accept().unwrap());
    let next = std::thread::spawn(move || peer.accept().unwrap().0.write_all(b"b\n"));
    let rows = wait_for(&mut source, &mut waiter, |rows| !rows.strings.is_empty());
    assert_eq!((&*rows.strings[0], rows.lost), ("1:1:b", 1));
    next.join().unwrap().unwrap();
}

#[test]
fn wrong_options_are_errors() {
    let refused = |options: &[(&str, &str)]| {
        let table = table(&[("line", DataType::Utf8View)], options);
        let connector = TcpConnector::new(&table, &Options::new(&table.options), Format::Raw);
        connector.unwrap_err().to_string()
    };
    let address = ("address", "127.0.0.1:9000");
    let error = refused(&[address, ("on_close", "fail")]);
    assert!(error.contains("'reconnect' or 'end'"), "{error}");
    let error = refused(&[address, ("connections_max", "3")]);
    assert!(error.contains("'mode' = 'listen'"), "{error}");
    let error = refused(&[address, ("mode", "listen"), ("connections_max", "0")]);
    assert!(error.contains("from 1 to 65536"), "{error}");
}

#[test]
fn records_of_hostile_peers_are_rejected_and_other_peers_continue() {
    let mut waiter = Waiter::new().unwrap();
    let (mut source, address) = listening(&mut waiter, &[]);
    let connect = || TcpStream::connect(address).unwrap();
    let (silent, mut half, mut torn, mut good) = (connect(), connect(), connect(), connect());
    half.write_all(b"half a line").unwrap();
    torn.write_all(b"a line\nhalf").unwrap();
    good.write_all(b"good\n").unwrap();
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.strings.len() == 2);
    assert_eq!(rows.started, [0, 1, 2, 3]);
    drop(half);
    reset(torn);
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.ended.len() == 2);
    assert_eq!(rows.strings, ["1:1:half a line"]);
    assert_eq!((rows.lost, rows.rejected.len()), (1, 1));
    assert_eq!(rows.rejected[0].record, "half");
    reset(silent);
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.ended.len() == 1);
    assert_eq!(
        (rows.lost, rows.rejected.len()),
        (1, 0),
        "no line, no bad record"
    );
    good.write_all(b"still there\n").unwrap();
    let rows = wait_for(&mut source, &mut waiter, |rows| !rows.strings.is_empty());
    assert_eq!(rows.strings, ["3:2:still there"]);
}

#[test]
fn connections_beyond_the_limit_wait_their_turn() {
    let mut waiter = Waiter::new().unwrap();
    let (mut source, address) = listening(&mut waiter, &[("connections_max", "4")]);
    let connect = |nth: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{nth}\n").as_bytes()).unwrap();
        stream
    };
    let first = [0, 1, 2, 3].map(connect);
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.strings.len() == 4);
    assert_eq!(rows.started.len(), 4);
    let others = (4..50).map(connect).collect::<Vec<_>>();
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    assert_eq!(source.connections.len(), 4);
    drop((first, others));
    let rows = wait_for(&mut source, &mut waiter, |rows| rows.ended.len() == 50);
    assert_eq!(rows.strings.len(), 46);
}

/// Only the eight peers that always had a full block of text were ever read.
#[test]
fn regression_busy_peers_do_not_starve_others() {
    let mut waiter = Waiter::new().unwrap();
    let (mut source, address) = listening(&mut waiter, &[]);
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let busy = (0..10).map(|_| {
        let mut stream = TcpStream::connect(address).unwrap();
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            let lines = "busy\n".repeat(100_000);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                if stream.write_all(lines.as_bytes()).is_err() {
                    return;
                }
            }
        })
    });
    let busy = busy.collect::<Vec<_>>();
    wait_for(&mut source, &mut waiter, |rows| rows.chunks > 100);
    let mut quiet = TcpStream::connect(address).unwrap();
    quiet.write_all(b"quiet\n").unwrap();
    wait_for(&mut source, &mut waiter, |rows| {
        rows.strings
            .last()
            .is_some_and(|text| text.ends_with(":quiet"))
    });
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    source.close();
    busy.into_iter().for_each(|sender| sender.join().unwrap());
}
