//! The greeting as the writer sees it: a socket that connects, a message out, an answer in.
//!
//! The first write shows whether the connection is made: until then the socket takes nothing, and if it
//! failed, the write says why. So connecting needs no state of its own. With a seal, its handshake comes
//! first.

use std::io::ErrorKind;

use crate::tcp::hello::{HELLO_BYTES, Hello, REPLY_BYTES, Reply};
use crate::tcp::line::Broken;
use crate::tcp::ready::Ready;
use crate::tcp::record::Record;
use crate::tcp::socket::Moved;
use crate::tcp::wire::Wire;

/// A connection whose greeting is in progress.
pub(super) struct Greeting {
    wire: Wire,
    /// For the connection that the greeting becomes.
    ready: Ready,
    hello: [u8; HELLO_BYTES],
    sent: usize,
    reply: [u8; REPLY_BYTES],
    filled: usize,
    /// When to give up.
    pub(super) deadline_ns: u64,
}

impl Greeting {
    pub(super) fn new(wire: Wire, ready: Ready, hello: &Hello, deadline_ns: u64) -> Greeting {
        Greeting {
            wire,
            ready,
            hello: hello.encode(),
            sent: 0,
            reply: [0; REPLY_BYTES],
            filled: 0,
            deadline_ns,
        }
    }

    pub(super) fn into_wire(self) -> (Wire, Ready) {
        (self.wire, self.ready)
    }

    /// What the peer doesn't do, for messages.
    pub(super) fn delay(&self) -> &'static str {
        if self.sent == 0 {
            return match self.wire.is_sealed() {
                false => "did not accept the connection",
                true => "did not accept the connection, or did not finish its handshake",
            };
        }
        "did not answer the greeting"
    }

    /// The last record of a writer that is dropped before it is answered. Only sent after a whole greeting:
    /// a connection that is not made yet, is in its handshake, or takes no more, ends without.
    pub(super) fn leave(&mut self, word: Record) {
        if self.sent < HELLO_BYTES
            && let Ok(Moved::Bytes(count)) = self.wire.send(&self.hello[self.sent..])
        {
            self.sent += count;
        }
        if self.sent == HELLO_BYTES {
            let _ = self.wire.send(&word.encode());
        }
        self.wire.finish();
    }

    /// Sends the greeting and reads the answer, as far as they go without waiting.
    pub(super) fn go_on(&mut self) -> Result<Option<Reply>, Broken> {
        match self.wire.shake() {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(error) => return Err(Broken::by(&error, "can't connect")),
        }
        while self.sent < HELLO_BYTES {
            match self.wire.send(&self.hello[self.sent..]) {
                Ok(Moved::Bytes(count)) => self.sent += count,
                Ok(Moved::WouldBlock | Moved::End) => return Ok(None),
                Err(error) => return Err(Broken::by(&error, "can't connect")),
            }
        }
        if let Err(error) = self.wire.pay() {
            return Err(Broken::by(&error, "the greeting failed"));
        }
        while self.filled < REPLY_BYTES {
            match self.wire.receive(&mut self.reply[self.filled..]) {
                Ok(Moved::Bytes(count)) => self.filled += count,
                Ok(Moved::WouldBlock) => return Ok(None),
                Ok(Moved::End) => return Err(unanswered()),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(unanswered()),
                Err(error) => return Err(Broken::by(&error, "the greeting failed")),
            }
        }
        let reply = Reply::decode(&self.reply);
        reply
            .map(Some)
            .map_err(|unreadable| Broken::Breach(unreadable.reason()))
    }
}

/// An acceptor says nothing to a writer without its token.
fn unanswered() -> Broken {
    let trouble = "closed the connection without an answer to the greeting, as it does for \
                   another deployment";
    Broken::Lost(trouble.to_owned())
}
