//! The tcp source on loopback.

use super::*;
use crate::source::tests::{drain, drain_until, request};
use crate::table::tests::table;
use arrow_schema::DataType;
use slackwater_engine::source::Tuning;
use std::io::Write;

fn connector(address: &str, mode: Mode) -> TcpConnector {
    TcpConnector {
        schema: table(&[("line", DataType::Utf8View)], &[]).schema,
        format: Format::Raw,
        endpoint: Endpoint {
            address: address.into(),
            mode,
        },
    }
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
    let mut source = connector(&address, Mode::Connect).tcp_source(request(&[0]));
    let partitions = source.open(&mut waiter).unwrap();
    assert_eq!(partitions, [(0, address)]);
    let rows = drain(&mut source, &mut waiter);
    sender.join().unwrap();
    assert_eq!(rows.texts.len(), 20_001);
    assert_eq!(rows.texts[19_999], "0:20000:line 19999, some text");
    assert_eq!(rows.texts[20_000], "0:20001:the last");
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
    let mut source = connector(&address, Mode::Connect).tcp_source(request);
    source.open(&mut waiter).unwrap();
    let (mut stream, _) = peer.accept().unwrap();
    stream.write_all(b"half a li").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert!(
        matches!(source.poll().unwrap(), SourcePoll::Pending),
        "no row, no timer"
    );
    stream.write_all(b"ne\n").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let before_ns = now_ns();
    waiter.note_watched(before_ns);
    let SourcePoll::NotBefore { time_ns } = source.poll().unwrap() else {
        panic!("it lingers");
    };
    assert!((before_ns + linger_ns..=now_ns() + linger_ns).contains(&time_ns));
    stream.write_all(b"another\n").unwrap();
    let rows = drain_until(&mut source, &mut waiter, |rows| !rows.texts.is_empty());
    assert_eq!(rows.texts, ["0:1:half a line", "0:2:another"], "one chunk");
    assert_eq!(rows.ingest_ns, [time_ns - linger_ns]);
    assert!(now_ns() >= time_ns);
}

#[test]
fn listens_to_many_and_goes_on() {
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector("127.0.0.1:0", Mode::Listen).tcp_source(request(&[0]));
    assert!(source.open(&mut waiter).unwrap().is_empty());
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    let address = source
        .listener
        .as_ref()
        .unwrap()
        .listener
        .local_addr()
        .unwrap();
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
    assert_eq!(rows.texts.len(), 20 * 500);
    // It is still there for the next one.
    assert!(matches!(source.poll().unwrap(), SourcePoll::Pending));
    let mut late = TcpStream::connect(address).unwrap();
    late.write_all(b"late\n").unwrap();
    let rows = drain_until(&mut source, &mut waiter, |rows| !rows.texts.is_empty());
    assert_eq!(rows.texts, ["20:1:late"]);
}

#[test]
fn nobody_there_is_an_error_with_a_mend() {
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut waiter = Waiter::new().unwrap();
    let mut source = connector(&free, Mode::Connect).tcp_source(request(&[0]));
    let error = source.open(&mut waiter).unwrap_err();
    assert!(
        error.reason.contains("refused") && error.place == free,
        "{error}"
    );
}
