//! What only links over frames can have: a network that carries none, and an end without them.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slackwater_link::Waiter;
use slackwater_link::tcp::{Carrier, Place, Port, Settings, Transport, Writer};

use crate::harness::*;

/// A transport whose packets never arrive: another network.
struct Deaf(Arc<dyn Transport>);

struct DeafPort(Box<dyn Port>);

impl Transport for Deaf {
    fn open(&self) -> io::Result<Box<dyn Port>> {
        Ok(Box::new(DeafPort(self.0.open()?)))
    }
}

impl Port for DeafPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn place(&self) -> Place {
        self.0.place()
    }

    fn send(&mut self, _address: [u8; 8], _packet: [&[u8]; 2]) -> bool {
        true
    }

    fn flush(&mut self) -> bool {
        true
    }

    fn receive(&mut self, _take: &mut dyn FnMut(&[u8]) -> bool) {}
}

fn short() -> Settings {
    Settings {
        heartbeat_after: Duration::from_millis(50),
        peer_timeout: Duration::from_millis(300),
        // A busy machine answers late, which would be another error.
        handshake_timeout: TOO_LONG,
        connect_timeout: Duration::from_secs(5),
        ..settings()
    }
}

fn error_of_a_writer_over(carrier: Carrier) -> String {
    let waiter = Waiter::new().expect("a waiter");
    // The reader waits for longer than the writer pauses between its attempts.
    let acceptor = bind(settings());
    let mut reader = acceptor.reader(LINK, "the writer", &waiter);
    let address = acceptor.local_address();
    let mut writer: Writer<Vec<u8>> = Writer::connect_guarded(
        address,
        IDENTITY,
        LINK,
        "the reader",
        &waiter,
        short(),
        carrier,
    );
    let end = Instant::now() + TOO_LONG;
    let mut is_posted = false;
    while !writer.is_closed() {
        assert!(Instant::now() < end, "not noticed");
        is_posted |= !is_posted && writer.post(pieces(0, 100)).is_ok();
        writer.push(false);
        // An error of its own, or none yet.
        let _ = reader.receive();
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.error().expect("an error").to_string()
}

#[test]
fn a_network_that_carries_no_frames_is_an_error_that_names_it() {
    let mut carrier = crate::writing();
    carrier.transport = carrier.transport.map(|transport| {
        let deaf: Arc<dyn Transport> = Arc::new(Deaf(transport));
        deaf
    });
    let error = error_of_a_writer_over(carrier);
    assert!(error.contains("the reader (127.0.0.1:"), "{error}");
    assert!(error.contains("no frame of it arrived"), "{error}");
    assert!(error.contains("'link'"), "{error}");
}

#[test]
fn an_end_without_frames_is_an_error() {
    let mut carrier = crate::writing();
    carrier.transport = None;
    let error = error_of_a_writer_over(carrier);
    assert!(
        error.contains("did not answer the greeting") || error.contains("without an answer"),
        "{error}"
    );
}
