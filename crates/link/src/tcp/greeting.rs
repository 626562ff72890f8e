//! The greeting as the writer sees it: a socket that connects, a message out, an answer in.
//!
//! The first write shows whether the connection is made: until then the socket takes nothing, and if it
//! failed, the write says why. So connecting needs no state of its own. With a seal, its handshake comes
//! first. A connection over frames says where it receives them, after the greeting, and learns where to send
//! them, after the answer.

use std::io::ErrorKind;

use crate::tcp::hello::{Answer, Hello, REPLY_BYTES, Reply};
use crate::tcp::line::Broken;
use crate::tcp::ready::Ready;
use crate::tcp::record::Record;
use crate::tcp::socket::Moved;
use crate::tcp::user::{OFFER_BYTES, Offer, Port, Stream};
use crate::tcp::wire::Wire;

/// A connection whose greeting is in progress.
pub(super) struct Greeting {
    wire: Wire,
    /// For the connection that the greeting becomes.
    ready: Ready,
    /// The greeting, and the offer.
    hello: Vec<u8>,
    sent: usize,
    reply: [u8; REPLY_BYTES],
    filled: usize,
    /// What the connection becomes if it is accepted.
    frames: Option<Frames>,
    /// When to give up.
    pub(super) deadline_ns: u64,
}

/// This end's part of a connection over frames.
struct Frames {
    port: Box<dyn Port>,
    own: Offer,
    peer: [u8; OFFER_BYTES],
    filled: usize,
}

impl Greeting {
    /// The greeting of a connection that becomes one over frames if there is a port.
    pub(super) fn new(
        wire: Wire,
        ready: Ready,
        hello: &Hello,
        deadline_ns: u64,
        port: Option<Box<dyn Port>>,
    ) -> Greeting {
        let mut hello = hello.encode().to_vec();
        let frames = port.map(|port| {
            let own = Offer::of(&*port);
            hello.extend(own.encode());
            Frames {
                port,
                own,
                peer: [0; OFFER_BYTES],
                filled: 0,
            }
        });
        Greeting {
            wire,
            ready,
            hello,
            sent: 0,
            reply: [0; REPLY_BYTES],
            filled: 0,
            frames,
            deadline_ns,
        }
    }

    /// The connection, once it is accepted, and the frames that it is to change over to.
    pub(super) fn into_wire(self) -> Result<(Wire, Ready, Option<Box<Stream>>), Broken> {
        let frames = self.frames.map(|frames| {
            let peer = Offer::decode(&frames.peer).map_err(Broken::Breach)?;
            Ok(Box::new(Stream::new(frames.port, frames.own, peer)))
        });
        Ok((self.wire, self.ready, frames.transpose()?))
    }

    /// What the peer doesn't do, for messages.
    pub(super) fn delay(&self) -> &'static str {
        if self.sent == 0 {
            return match self.wire.is_sealed() {
                false => "did not accept the connection",
                true => "did not accept the connection, or did not finish its handshake",
            };
        }
        match &self.frames {
            Some(_) if self.filled == REPLY_BYTES => {
                "did not say where it receives frames: give both the same 'link'"
            }
            _ => "did not answer the greeting",
        }
    }

    /// The last record of a writer that is dropped before it is answered. Only sent after a whole greeting:
    /// a connection that is not made yet, is in its handshake, or takes no more, ends without.
    pub(super) fn leave(&mut self, word: Record) {
        let all = self.hello.len();
        if self.sent < all
            && let Ok(Moved::Bytes(count)) = self.wire.send(&self.hello[self.sent..])
        {
            self.sent += count;
        }
        // Over frames, nobody would hear it: the other end has not changed over.
        if self.sent == all && self.frames.is_none() {
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
        while self.sent < self.hello.len() {
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
        let reply = reply.map_err(|unreadable| Broken::Breach(unreadable.reason()))?;
        if reply.answer == Answer::Accepted && !self.has_offer()? {
            return Ok(None);
        }
        Ok(Some(reply))
    }

    /// Reads the peer's offer, if there is to be one. Returns whether that is whole.
    fn has_offer(&mut self) -> Result<bool, Broken> {
        let Some(frames) = &mut self.frames else {
            return Ok(true);
        };
        while frames.filled < OFFER_BYTES {
            match self.wire.receive(&mut frames.peer[frames.filled..]) {
                Ok(Moved::Bytes(count)) => frames.filled += count,
                Ok(Moved::WouldBlock) => return Ok(false),
                Ok(Moved::End) => return Err(unanswered()),
                Err(error) => return Err(Broken::by(&error, "the greeting failed")),
            }
        }
        Ok(true)
    }
}

/// An acceptor says nothing to a writer without its token.
fn unanswered() -> Broken {
    let trouble = "closed the connection without an answer to the greeting, as it does for \
                   another deployment";
    Broken::Lost(trouble.to_owned())
}
