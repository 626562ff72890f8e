//! The greeting as the writer sees it: a socket that connects, a message out, an answer in.
//!
//! The first write shows whether the connection is made: until then the socket takes nothing, and if it
//! failed, the write says why. So connecting needs no state of its own.

use std::os::fd::OwnedFd;

use crate::tcp::hello::{HELLO_BYTES, Hello, REPLY_BYTES, Reply};
use crate::tcp::line::Broken;
use crate::tcp::ready::Ready;
use crate::tcp::record::Record;
use crate::tcp::socket::{self, Moved};

/// A connection whose greeting is in progress.
pub(super) struct Greeting {
    socket: OwnedFd,
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
    pub(super) fn new(socket: OwnedFd, ready: Ready, hello: &Hello, deadline_ns: u64) -> Greeting {
        Greeting {
            socket,
            ready,
            hello: hello.encode(),
            sent: 0,
            reply: [0; REPLY_BYTES],
            filled: 0,
            deadline_ns,
        }
    }

    pub(super) fn into_socket(self) -> (OwnedFd, Ready) {
        (self.socket, self.ready)
    }

    /// What the peer doesn't do, for messages.
    pub(super) fn delay(&self) -> &'static str {
        if self.sent == 0 {
            return "did not accept the connection";
        }
        "did not answer the greeting"
    }

    /// The last record of a writer that is dropped before it is answered. Only sent after a whole greeting: a
    /// connection that is not made yet, or takes no more, ends without.
    pub(super) fn leave(&mut self, word: Record) {
        if self.sent < HELLO_BYTES
            && let Ok(Moved::Bytes(count)) = socket::send(&self.socket, &self.hello[self.sent..])
        {
            self.sent += count;
        }
        if self.sent == HELLO_BYTES {
            let _ = socket::send(&self.socket, &word.encode());
        }
        socket::finish(&self.socket);
    }

    /// Sends the greeting and reads the answer, as far as they go without waiting.
    pub(super) fn go_on(&mut self) -> Result<Option<Reply>, Broken> {
        while self.sent < HELLO_BYTES {
            match socket::send(&self.socket, &self.hello[self.sent..]) {
                Ok(Moved::Bytes(count)) => self.sent += count,
                Ok(Moved::WouldBlock | Moved::End) => return Ok(None),
                Err(error) => return Err(Broken::Lost(format!("can't connect: {error}"))),
            }
        }
        while self.filled < REPLY_BYTES {
            match socket::receive(&self.socket, &mut self.reply[self.filled..]) {
                Ok(Moved::Bytes(count)) => self.filled += count,
                Ok(Moved::WouldBlock) => return Ok(None),
                Ok(Moved::End) => {
                    let trouble = "closed the connection during the greeting".to_owned();
                    return Err(Broken::Lost(trouble));
                }
                Err(error) => return Err(Broken::Lost(format!("the greeting failed: {error}"))),
            }
        }
        let reply = Reply::decode(&self.reply);
        reply
            .map(Some)
            .map_err(|unreadable| Broken::Breach(unreadable.reason()))
    }
}
