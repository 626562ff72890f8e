//! Clients that want to do harm: the server's memory is bounded, and honest clients are answered meanwhile.
//!
//! The tests with the numbers that the documentation promises are slow: `make test-hostile`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use postgres::{Client, Config, NoTls};

use super::child::Server;
use super::raw::{Raw, message, query, startup};

/// The memory that a server may take for hostile clients: its limits allow some megabytes for buffers.
const MEMORY_MAX: usize = 96 << 20;
/// The same where they send the longest statements that are allowed.
const LONG_MEMORY_MAX: usize = 320 << 20;

/// A client that wants nothing but answers, on a connection that it has and on new ones.
struct Honest {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Honest {
    fn new(server: &Server) -> Honest {
        let (stop, answers) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(server.address.port())
            .user("ada")
            .password("secret");
        let (stops, counts) = (Arc::clone(&stop), Arc::clone(&answers));
        let mut client = config.connect(NoTls).unwrap();
        let run = move || {
            let mut n = 1;
            while !stops.load(Ordering::Relaxed) {
                ask(&mut client, n);
                // A new connection may be refused while hostile ones have all places, but not by the lobby.
                ask(&mut config.connect(NoTls).unwrap(), n);
                n += 3;
                counts.fetch_add(1, Ordering::Relaxed);
            }
        };
        Honest {
            stop,
            answers,
            thread: Some(std::thread::spawn(run)),
        }
    }

    /// Waits until the client has got some more answers.
    fn is_answered(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        while self.answers.load(Ordering::Relaxed) < before + 3 {
            assert!(
                !self.thread.as_ref().unwrap().is_finished(),
                "the honest client has failed"
            );
            std::thread::yield_now();
        }
    }

    fn end(mut self) {
        self.is_answered();
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn ask(client: &mut Client, n: i64) {
    let row = client
        .query_one("SELECT n, name FROM numbers WHERE n = $1", &[&n])
        .unwrap();
    assert_eq!((row.get(0), row.get(1)), (n, format!("number {n}")));
}

/// Runs an attack on a server, and checks that honest clients are answered during it and that memory is
/// bounded.
fn attack(passwords: &str, memory_max: usize, attack: impl FnOnce(&Server, &Honest)) {
    let server = Server::new(passwords);
    let honest = Honest::new(&server);
    honest.is_answered();
    let before = server.memory_max();
    attack(&server, &honest);
    honest.end();
    let taken = server.memory_max() - before;
    println!("the server has taken {} MB", taken >> 20);
    assert!(taken < memory_max, "the server has taken {taken} bytes");
}

/// Connections that say nothing, or the beginning of something, and stay.
fn connections(count: usize) {
    attack("ada:secret", MEMORY_MAX, |server, honest| {
        let mut kept = vec![];
        for at in 0..count {
            let mut raw = Raw::new(server.address);
            let begin = startup("eve");
            raw.send(&begin[..at % begin.len()]);
            kept.push(raw);
            if at % 500 == 0 {
                honest.is_answered();
            }
        }
        honest.is_answered();
    });
}

#[test]
fn many_connections_do_not_keep_others_out() {
    connections(1_000);
}

#[test]
#[ignore = "slow: make test-hostile"]
fn ten_thousand_connections_do_not_keep_others_out() {
    connections(10_000);
}

/// Clients that ask for rows without an end and read nothing, or a byte now and then.
fn slow_readers(count: usize) {
    attack("", MEMORY_MAX, |server, honest| {
        let mut readers: Vec<Raw> = (0..count).map(|_| Raw::begun(server.address)).collect();
        for (at, reader) in readers.iter_mut().enumerate() {
            let text = [
                "SELECT n FROM numbers LIMIT 9000000000",
                "COPY (SELECT n FROM numbers LIMIT 9000000000) TO STDOUT",
            ];
            reader.send(&query(text[at % 2]));
        }
        honest.is_answered();
        for reader in &mut readers {
            assert!(reader.receive().is_some());
        }
        honest.is_answered();
    });
}

#[test]
fn slow_readers_hold_up_nobody() {
    slow_readers(40);
}

#[test]
#[ignore = "slow: make test-hostile"]
fn two_hundred_slow_readers_hold_up_nobody() {
    slow_readers(200);
}

/// Clients that announce a long message and send little of it; and many that leave in the middle.
#[test]
fn half_requests_hold_up_nobody() {
    attack("", MEMORY_MAX, |server, honest| {
        let half = &query(&"x".repeat(1_000_000))[..100];
        let mut kept: Vec<Raw> = (0..200).map(|_| Raw::begun(server.address)).collect();
        for raw in &mut kept {
            raw.send(half);
        }
        honest.is_answered();
        kept.truncate(100);
        for _ in 0..200 {
            Raw::begun(server.address).send(half);
        }
        honest.is_answered();
    });
}

/// Statements and parameters that are too long are skipped without being kept.
fn giants(rounds: usize) {
    attack("", LONG_MEMORY_MAX, |server, honest| {
        let mut raw = Raw::begun(server.address);
        let long = query(&format!("SELECT '{}'", "x".repeat(10 << 20)));
        let prepared = message(b'P', &long[5..]);
        for _ in 0..rounds {
            assert!(raw.send(&long));
            assert_eq!(raw.until(b'Z').1, ["54000"]);
            assert!(raw.send(&prepared));
            assert!(raw.send(&message(b'S', b"")));
            assert_eq!(raw.until(b'Z').1, ["54000"]);
        }
        honest.is_answered();
        // As long as allowed, of words as short as possible.
        for text in ["(", "x ", "pg_a ", ";", "BEGIN;", "'", "$1,", "/*"] {
            let text = format!("SELECT {}", text.repeat((1 << 20) / text.len() - 10));
            assert!(raw.send(&query(&text)));
            raw.until(b'Z');
            honest.is_answered();
        }
        // A length that nobody means.
        for length in [0, 3, u32::MAX, i32::MAX as u32] {
            let mut raw = Raw::begun(server.address);
            raw.send(&[&b"Q"[..], &length.to_be_bytes()].concat());
            raw.ended();
        }
        for length in [0, 7, 10_001, u32::MAX] {
            let mut raw = Raw::new(server.address);
            raw.send(&[length.to_be_bytes(), (3_u32 << 16).to_be_bytes()].concat());
            assert_eq!(raw.ended(), None);
        }
    });
}

#[test]
fn statements_of_ten_megabytes_are_refused() {
    giants(3);
}

#[test]
#[ignore = "slow: make test-hostile"]
fn many_statements_of_ten_megabytes_are_refused() {
    giants(200);
}

/// What a client prepares and binds is kept, and bounded in bytes, too.
#[test]
fn what_a_client_keeps_is_bounded() {
    attack("", LONG_MEMORY_MAX, |server, honest| {
        let mut kept: Vec<Raw> = (0..20).map(|_| Raw::begun(server.address)).collect();
        for raw in &mut kept {
            raw.send(&query("BEGIN"));
            raw.until(b'Z');
            let mut codes = vec![];
            for at in 0..40 {
                let name = format!("{at}{}\0", "n".repeat(900_000));
                raw.send(&message(
                    b'P',
                    format!("{name}SHOW TimeZone\0\0\0").as_bytes(),
                ));
                raw.send(&message(b'S', b""));
                codes.extend(raw.until(b'Z').1);
                raw.send(&query("ROLLBACK; BEGIN"));
                raw.until(b'Z');
            }
            assert_eq!(codes, vec!["54000"; 36]);
        }
        honest.is_answered();
    });
}

/// Passwords are guessed as fast as connections can be made; the guesser does not wait for an answer.
fn guesses(count: usize) {
    attack("ada:secret", MEMORY_MAX, |server, honest| {
        let first = b"SCRAM-SHA-256\0\0\0\0\x13n,,n=,r=guessguess1";
        let last = b"c=biws,r=guessguess1,p=Z3Vlc3NndWVzc2d1ZXNzZ3Vlc3NndWVzc2d1ZXNzMTI=";
        for at in 0..count {
            let mut raw = Raw::new(server.address);
            raw.send(&[startup("ada"), message(b'p', first), message(b'p', last)].concat());
            if at % 4 == 0 {
                raw.until(b'R');
            }
            if at % 500 == 0 {
                honest.is_answered();
            }
        }
        honest.is_answered();
        // Who waits for the answer gets one.
        let mut raw = Raw::new(server.address);
        raw.send(&[startup("ada"), message(b'p', first), message(b'p', last)].concat());
        assert_eq!(raw.until(b'E').1, ["28P01"]);
        assert_eq!(raw.ended(), None);
    });
}

#[test]
fn wrong_passwords_at_speed_keep_nobody_out() {
    guesses(1_000);
}

#[test]
#[ignore = "slow: make test-hostile"]
fn twenty_thousand_wrong_passwords_keep_nobody_out() {
    guesses(20_000);
}
