//! The server with clients of all kinds, over sockets of the loopback address.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that a test can wait for.
fn limits() -> Limits {
    Limits {
        connections: 4,
        streams: 2,
        threads: 4,
        header_bytes: 16 * 1024,
        header_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        write_time: Duration::from_millis(300),
        answer_time: Duration::from_millis(300),
        stream_time: Duration::from_millis(300),
    }
}

const LARGE: usize = 32 << 20;

fn routes() -> Routes {
    let kept = Mutex::new(Vec::new());
    Routes::default()
        .get("/metrics", |_, reply| {
            reply.send(Answer::text(StatusCode::OK, "up 1\n").closing());
        })
        .get("/kept", |_, reply| {
            reply.send(Answer::text(StatusCode::OK, "kept\n"));
        })
        .get("/large", |_, reply| {
            reply.send(Answer::new(StatusCode::OK, "x/y", vec![b'x'; LARGE]));
        })
        .get("/dropped", |_, reply| drop(reply))
        .get("/panics", |_, _| panic!("a handler that fails"))
        .get("/never", move |_, reply| kept.lock().unwrap().push(reply))
        .on(Method::POST, "/v1/{name}", 1_000, |asked, reply| {
            let said = format!("{} {}\n", asked.parts[0], asked.body.len());
            reply.send(Answer::text(StatusCode::OK, said));
        })
        .get("/healthz", |_, reply| {
            reply.send(Answer::text(StatusCode::OK, "ok\n"))
        })
        .open()
}

fn server(limits: Limits) -> Server {
    let address = "127.0.0.1:0".parse().unwrap();
    Server::start(address, Access::default(), routes(), limits).unwrap()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// All that the server says until it closes the connection.
fn said(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that is reset has said what it said.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ask(server: &Server, request: &str) -> String {
    let mut stream = connect(server);
    let last = "HTTP/1.1\r\nconnection: close\r\n";
    let request = request.replacen("HTTP/1.1\r\n", last, 1);
    // The server may have closed the connection before all is written.
    let _ = stream.write_all(request.as_bytes());
    said(stream)
}

fn get(server: &Server, path: &str) -> String {
    ask(
        server,
        &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    )
}

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    assert!(
        answer.starts_with(&format!("HTTP/1.1 {status} ")),
        "not {status}: {answer:.300}"
    );
}

/// Others are still answered.
#[track_caller]
fn assert_serves(server: &Server) {
    let answer = get(server, "/metrics");
    assert_status(&answer, 200);
    assert!(answer.ends_with("\r\n\r\nup 1\n"), "{answer}");
}

#[test]
fn pages_are_answered_and_hints_given() {
    let server = server(Limits::default());
    assert_serves(&server);
    let answer = get(&server, "/metric");
    assert_status(&answer, 404);
    assert!(answer.contains("= try /metrics, /kept"), "{answer}");
    let answer = ask(&server, "POST /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_status(&answer, 405);
    assert!(answer.contains("allow: GET\r\n"), "{answer}");
    let answer = ask(&server, "HEAD /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_status(&answer, 200);
    assert!(answer.contains("content-length: 5"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "no body: {answer}");
    assert_status(&ask(&server, "what?\r\n\r\n"), 400);
    assert_status(
        &ask(
            &server,
            "GET /metrics HTTP/1.1\r\nhost: evil.example\r\n\r\n",
        ),
        403,
    );
}

#[test]
fn a_connection_serves_several_requests() {
    let server = server(Limits::default());
    let mut stream = connect(&server);
    for _ in 0..3 {
        let request = "GET /kept HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"kept\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
    }
}

#[test]
fn beyond_this_machine_only_with_a_token() {
    let start = |token: Option<&str>| {
        let access = Access::new(token.map(str::to_string));
        let address = "0.0.0.0:0".parse().unwrap();
        Server::start(address, access, routes(), Limits::default())
    };
    let error = start(None).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    let server = start(Some("secret")).unwrap();
    let ask = |path: &str, header: &str| {
        let port = server.address().port();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = "HTTP/1.1\r\nhost: a.example\r\nconnection: close";
        let request = format!("GET {path} {head}\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        said(stream)
    };
    assert_status(&ask("/metrics", ""), 401);
    assert_status(&ask("/nothing", ""), 401);
    assert_status(&ask("/metrics", "authorization: Bearer secreT\r\n"), 401);
    assert_status(&ask("/metrics", "authorization: Bearer secret\r\n"), 200);
    assert_status(&ask("/healthz", ""), 200);
}

#[test]
fn a_port_in_use_is_an_error_at_the_start() {
    let first = server(Limits::default());
    let address = first.address();
    let second = Server::start(address, Access::default(), routes(), Limits::default());
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(first);
    // The port is free again, though connections to it were open.
    Server::start(address, Access::default(), routes(), Limits::default()).unwrap();
}

#[test]
fn half_requests_end_and_make_room_for_others() {
    let server = server(limits());
    let half = |text: &str| {
        let mut stream = connect(&server);
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    let begin = Instant::now();
    // Four times as many as there are places.
    let halves = (0..16).map(|number| match number % 2 {
        0 => half("GET /metrics HTT"),
        _ => half(""),
    });
    let halves = halves.collect::<Vec<_>>();
    assert_serves(&server);
    for stream in halves {
        assert!(!said(stream).contains("200"), "nothing was asked");
    }
    assert!(begin.elapsed() < PATIENCE);
    assert_serves(&server);
}

#[test]
fn half_bodies_make_room_for_others() {
    let server = server(Limits {
        body_time: PATIENCE,
        header_time: PATIENCE,
        ..limits()
    });
    let mut half = Vec::new();
    for _ in 0..3 * limits().connections {
        let mut stream = connect(&server);
        let request = "POST /v1/x HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\
                       connection: close\r\n\r\n12345678";
        stream.write_all(request.as_bytes()).unwrap();
        half.push(stream);
        assert_serves(&server);
    }
    // The latest ones still have their places.
    let mut last = half.pop().unwrap();
    last.write_all(b"9").unwrap();
    assert!(said(last).ends_with("x 9\n"));
}

#[test]
fn a_body_that_does_not_come_or_is_too_large_is_refused() {
    let server = server(limits());
    let post = |body: &str| {
        let head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\n";
        ask(&server, &format!("{head}{body}"))
    };
    assert!(post("content-length: 5\r\n\r\nhello").ends_with("jobs 5\n"));
    assert_status(&post("content-length: 1001\r\n\r\n"), 413);
    let mut chunks = "transfer-encoding: chunked\r\n\r\n".to_string();
    for _ in 0..200 {
        chunks.push_str("a\r\n0123456789\r\n");
    }
    assert_status(&post(&chunks), 413);
    assert_status(&post("transfer-encoding: chunked\r\n\r\nwhat?\r\n"), 400);
    let mut broken = connect(&server);
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nhel";
    broken.write_all(head.as_bytes()).unwrap();
    broken.shutdown(Shutdown::Write).unwrap();
    assert!(!said(broken).contains("200 OK"));
    let mut silent = connect(&server);
    let head = "POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\nhel";
    silent.write_all(head.as_bytes()).unwrap();
    assert_status(&said(silent), 408);
    assert_serves(&server);
}

#[test]
fn giant_headers_are_refused() {
    let server = server(limits());
    let giant = "x".repeat(1 << 20);
    for request in [
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\na: {giant}\r\n\r\n"),
        format!("GET /{giant} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000)),
        giant,
    ] {
        let answer = ask(&server, &request);
        assert!(!answer.contains("200 OK"), "{answer:.100}");
    }
    assert_serves(&server);
}

#[test]
fn who_does_not_read_an_answer_is_left() {
    let server = server(limits());
    let lazy = (0..8).map(|_| {
        let mut stream = connect(&server);
        let request = "GET /large HTTP/1.1\r\nhost: localhost\r\n\r\n";
        // The server may already prefer others.
        let _ = stream.write_all(request.as_bytes());
        stream
    });
    let lazy = lazy.collect::<Vec<_>>();
    let begin = Instant::now();
    while !get(&server, "/metrics").ends_with("up 1\n") {
        assert!(begin.elapsed() < PATIENCE, "the places stay taken");
        std::thread::sleep(Duration::from_millis(10));
    }
    // A little longer than they may take.
    std::thread::sleep(2 * limits().write_time);
    for stream in lazy {
        assert!(said(stream).len() < LARGE, "the rest is not sent");
    }
    let whole = get(&server, "/large");
    assert_eq!(whole.split_once("\r\n\r\n").unwrap().1.len(), LARGE);
}

#[test]
fn a_handler_that_does_not_answer_is_not_waited_for() {
    let server = server(limits());
    assert_status(&get(&server, "/dropped"), 503);
    assert_status(&get(&server, "/never"), 503);
    get(&server, "/panics");
    assert_serves(&server);
}

/// A client of `/events`, and what it has heard until it has heard `count` events.
fn listen(server: &Server, count: usize) -> (TcpStream, String) {
    let mut stream = connect(server);
    let request = "GET /events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let (mut heard, mut byte) = (Vec::new(), [0]);
    // Other lines end with a carriage return, too.
    let ends = |heard: &[u8]| heard.windows(2).filter(|end| end == b"\n\n").count();
    while ends(&heard) < count && stream.read(&mut byte).unwrap_or(0) > 0 {
        heard.push(byte[0]);
    }
    (stream, String::from_utf8(heard).unwrap())
}

fn with_events(asked: &Arc<Mutex<usize>>) -> Server {
    let asked = Arc::clone(asked);
    let routes = routes().get("/events", move |_, reply| {
        let asked = Arc::clone(&asked);
        let every = Duration::from_millis(20);
        reply.send(Answer::events(every, move |piece| {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            piece.send("count", &format!("{{\"n\":\"{asked}\"}}"));
        }));
    });
    let address = "127.0.0.1:0".parse().unwrap();
    Server::start(address, Access::default(), routes, limits()).unwrap()
}

#[test]
fn events_are_asked_for_as_long_as_a_client_listens() {
    let asked = Arc::new(Mutex::new(0));
    let server = with_events(&asked);
    // Longer than a client may take to send or receive: listening is no delay.
    let (stream, heard) = listen(&server, 40);
    assert_status(&heard, 200);
    assert!(heard.contains("content-type: text/event-stream\r\n"));
    for number in 1..=40 {
        let event = format!("event: count\ndata: {{\"n\":\"{number}\"}}\n\n");
        assert!(heard.contains(&event), "{number}: {heard}");
    }
    drop(stream);
    let now = || *asked.lock().unwrap();
    // The server notices that the client has left, and then nothing is asked any more.
    let (begin, mut last) = (Instant::now(), now());
    loop {
        std::thread::sleep(Duration::from_millis(200));
        match now() {
            same if same == last => break,
            more => last = more,
        }
        assert!(begin.elapsed() < PATIENCE, "the timer goes on");
    }
}

#[test]
fn listeners_leave_places_for_others() {
    let asked = Arc::new(Mutex::new(0));
    let server = with_events(&asked);
    let kept = (0..2).map(|_| listen(&server, 1).0).collect::<Vec<_>>();
    let refused = get(&server, "/events");
    assert_status(&refused, 503);
    assert!(refused.contains("too many clients listen"), "{refused}");
    for _ in 0..8 {
        assert_serves(&server);
    }
    // They are still heard though others needed places.
    for mut stream in kept {
        let mut bytes = [0; 64];
        assert!(stream.read(&mut bytes).unwrap() > 0);
    }
    let begin = Instant::now();
    while !listen(&server, 1).1.contains("event: count") {
        assert!(begin.elapsed() < PATIENCE, "the places stay taken");
    }
}

#[test]
fn while_all_places_work_the_next_client_is_told_so() {
    let limits = Limits {
        answer_time: PATIENCE,
        ..limits()
    };
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeping = Arc::clone(&kept);
    let routes = routes().get("/kept-for-long", move |_, reply| {
        keeping.lock().unwrap().push(reply);
    });
    let address = "127.0.0.1:0".parse().unwrap();
    let server = Server::start(address, Access::default(), routes, limits).unwrap();
    let busy = (0..4).map(|_| {
        let mut stream = connect(&server);
        let request = "GET /kept-for-long HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        stream
    });
    let busy = busy.collect::<Vec<_>>();
    while kept.lock().unwrap().len() < busy.len() {
        std::thread::yield_now();
    }
    let told = said(connect(&server));
    assert_status(&told, 503);
    assert!(told.ends_with("there are too many connections\n"), "{told}");
    drop(busy);
    let begin = Instant::now();
    while !get(&server, "/metrics").ends_with("up 1\n") {
        assert!(begin.elapsed() < PATIENCE, "the places stay taken");
    }
}
