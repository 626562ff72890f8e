//! The two ends of a lane, as a link of frames.
//!
//! A writer has one reader or, in a feed ([`super::feed`]), several. One of several may leave, or die
//! with its process, and the others still get everything: the writer stops waiting for it. But the writer
//! must not write where a frame is still lent out, so a reader of a feed marks that it is gone only when
//! the last frame that was lent to it has been returned.

use std::ops::Deref;

use crate::doorbell::Waker;
use crate::error::LinkError;
use crate::error::SendError;
use crate::frame::{AlignedBytes, FRAME_BYTES_MAX, Frame, INLINE_BYTES_MAX};
use crate::lane::cells::Cells;
use crate::lane::{
    Departure, FIRST, GONE, INLINE_MAX, LAST, LaneReader, LaneWriter, Lease, Piece, Put,
};
use crate::shm::peer::Peer;
use crate::sync::{Arc, Ordering};

const _: () = assert!(INLINE_MAX == INLINE_BYTES_MAX);

/// The mark of a writer that went in the middle of a frame.
const GONE_HALFWAY: u32 = 2;

/// A frame that is partly in the ring.
struct Halfway<P> {
    frame: Vec<P>,
    total: usize,
    /// The number of bytes that are in the ring.
    sent: usize,
}

/// The writing end of a lane. See [`crate::FrameSender`] for its methods.
pub struct Writer<P> {
    lane: LaneWriter,
    /// The readers, in the order of the lane's cursors. Never empty: the last one stays when it is gone.
    readers: Vec<Opposite>,
    halfway: Option<Halfway<P>>,
    /// Whether something was committed for which the readers were not woken.
    unrung: bool,
    broken: bool,
    /// A reader whose process has died, while others read on.
    lost: Option<Box<LinkError>>,
}

/// A reader, as its writer sees it.
pub(crate) struct Opposite {
    pub(crate) cells: Cells,
    pub(crate) waker: Waker,
    pub(crate) peer: Peer,
}

impl Opposite {
    /// Whether it has left normally.
    fn has_left(&self) -> bool {
        // Acquire: pairs with the Release in the drop of `Departure`.
        self.cells.reader_gone().load(Ordering::Acquire) != 0
    }

    fn is_gone(&self) -> bool {
        self.has_left() || self.peer.is_dead()
    }
}

impl<P: Deref<Target = [u8]>> Writer<P> {
    pub(crate) fn new(readers: Vec<Opposite>) -> Writer<P> {
        let cursors = readers.iter();
        let cursors = cursors.map(|reader| (reader.cells.clone(), reader.waker.clone()));
        Writer {
            lane: LaneWriter::new(cursors.collect()),
            readers,
            halfway: None,
            unrung: false,
            broken: false,
            lost: None,
        }
    }

    /// See [`crate::FrameSender::post`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn post(&mut self, frame: Vec<P>) -> Result<(), SendError<Vec<P>>> {
        let total = frame.iter().map(|piece| piece.len()).sum::<usize>();
        assert!(
            (1..=FRAME_BYTES_MAX).contains(&total),
            "a frame of {total} bytes, not between 1 and {FRAME_BYTES_MAX}"
        );
        self.leave_gone_behind();
        if self.is_closed() {
            return Err(SendError::Closed(frame));
        }
        if !self.move_on() {
            return Err(if self.broken {
                SendError::Closed(frame)
            } else {
                SendError::Full(frame)
            });
        }
        let mut halfway = Halfway {
            frame,
            total,
            sent: 0,
        };
        match self.put_next(&mut halfway) {
            Put::Done => {}
            Put::Full => return Err(SendError::Full(halfway.frame)),
            Put::Broken => return Err(SendError::Closed(halfway.frame)),
        }
        if halfway.sent < total {
            self.halfway = Some(halfway);
            self.move_on();
        }
        Ok(())
    }

    /// See [`crate::FrameSender::push`].
    pub fn push(&mut self, urgent: bool) {
        self.move_on();
        if std::mem::take(&mut self.unrung) {
            let urgent = urgent || self.lane.is_nearly_full();
            for reader in &self.readers {
                if urgent {
                    reader.waker.wake_urgent();
                } else {
                    reader.waker.wake();
                }
            }
        }
    }

    /// See [`crate::FrameSender::is_drained`].
    pub fn is_drained(&self) -> bool {
        self.halfway.is_none() || self.is_closed()
    }

    /// See [`crate::FrameSender::has_room`]: whether it takes a frame of 64 bytes or, if that is more,
    /// the first piece of a longer one.
    pub fn has_room(&mut self) -> bool {
        self.halfway.is_none() && self.lane.has_room(INLINE_MAX)
    }

    /// Whether the reader is gone; for several, whether all are.
    pub fn is_closed(&self) -> bool {
        self.broken || self.readers.iter().all(Opposite::is_gone)
    }

    /// See [`crate::FrameSender::error`].
    pub fn error(&self) -> Option<LinkError> {
        if self.broken {
            let names = self.readers.iter().map(|reader| reader.peer.name());
            return Some(LinkError::new(
                names.collect::<Vec<_>>().join(" or "),
                "its end of the shared memory holds an impossible position",
            ));
        }
        let dead = |reader: &&Opposite| !reader.has_left() && reader.peer.is_dead();
        let dead = self.readers.iter().find(dead);
        let death = dead.map(|reader| reader.peer.death());
        self.lost.as_deref().cloned().or(death)
    }

    /// See [`crate::FrameSender::lost`].
    pub fn lost(&self) -> Option<&LinkError> {
        self.lost.as_deref()
    }

    /// Stops waiting for readers that are gone, if there are several; returns whether there were any.
    fn leave_gone_behind(&mut self) -> bool {
        let before = self.readers.len();
        let mut reader = 0;
        while self.readers.len() > 1 && reader < self.readers.len() {
            let opposite = &self.readers[reader];
            if !opposite.is_gone() {
                reader += 1;
                continue;
            }
            if !opposite.has_left() {
                self.lost = Some(Box::new(opposite.peer.death()));
            }
            self.readers.remove(reader);
            self.lane.leave_behind(reader);
        }
        self.readers.len() < before
    }

    /// See [`crate::FrameSender::position`]. A frame that is partly in the ring counts that far.
    pub fn position(&self) -> u64 {
        self.lane.position()
    }

    /// See [`crate::FrameSender::is_acknowledged`].
    pub fn is_acknowledged(&mut self, position: u64) -> bool {
        self.lane.is_taken(position)
    }

    /// See [`crate::FrameSender::await_acknowledged`].
    pub fn await_acknowledged(&mut self, position: u64) -> bool {
        self.lane.await_taken(position)
    }

    /// At least how many short frames fit.
    pub fn free(&mut self) -> usize {
        self.lane.free_now() as usize
    }

    /// Writes the rest of a partly written frame; returns whether none is left.
    fn move_on(&mut self) -> bool {
        let Some(mut halfway) = self.halfway.take() else {
            return true;
        };
        while halfway.sent < halfway.total {
            match self.put_next(&mut halfway) {
                Put::Done => {}
                // The reader that was in the way may be gone.
                Put::Full if self.leave_gone_behind() => {}
                Put::Full => {
                    self.halfway = Some(halfway);
                    return false;
                }
                // Nobody will read the rest.
                Put::Broken => return false,
            }
        }
        true
    }

    /// Puts the next piece of a frame into the ring.
    fn put_next(&mut self, halfway: &mut Halfway<P>) -> Put {
        let rest = halfway.total - halfway.sent;
        let length = rest.min(self.lane.piece_max());
        let mut flags = 0;
        if halfway.sent == 0 {
            flags |= FIRST;
        }
        if length == rest {
            flags |= LAST;
        }
        let (frame, skip) = (&halfway.frame, halfway.sent);
        let put = self.lane.put(flags, halfway.total, length, |cells, start| {
            gather(frame, skip, length, |offset, bytes| {
                cells.write(start + offset, bytes);
            });
        });
        match put {
            Put::Done => {
                halfway.sent += length;
                self.unrung = true;
            }
            Put::Broken => self.broken = true,
            Put::Full => {}
        }
        put
    }
}

/// Passes `length` bytes of the pieces from byte `skip` on to a function, with their offsets from there.
fn gather<P: Deref<Target = [u8]>>(
    pieces: &[P],
    mut skip: usize,
    length: usize,
    mut write: impl FnMut(usize, &[u8]),
) {
    let mut written = 0;
    for piece in pieces {
        if skip >= piece.len() {
            skip -= piece.len();
            continue;
        }
        let bytes = &piece[skip..];
        let bytes = &bytes[..bytes.len().min(length - written)];
        skip = 0;
        write(written, bytes);
        written += bytes.len();
        if written == length {
            return;
        }
    }
}

impl<P> Drop for Writer<P> {
    fn drop(&mut self) {
        let mark = if self.halfway.is_some() {
            GONE_HALFWAY
        } else {
            GONE
        };
        for reader in &self.readers {
            // Release: whoever sees the end in `Reader::receive` also sees the last piece.
            reader.cells.writer_gone().store(mark, Ordering::Release);
            reader.waker.wake_urgent();
        }
    }
}

/// The reading end of a lane. See [`crate::FrameReceiver`] for its methods.
pub struct Reader {
    lane: LaneReader,
    peer: Peer,
    /// `None` once the reader has left.
    departure: Option<Arc<Departure>>,
    /// Whether there are other readers, for which the writer continues when this one has left.
    shared: bool,
    /// A frame in pieces: the bytes so far, and the total length.
    assembled: Option<(AlignedBytes, usize)>,
    lends: bool,
    ended: bool,
}

impl Reader {
    pub(crate) fn new(cells: Cells, writer: Waker, reader: Waker, peer: Peer) -> Reader {
        let departure = Departure {
            cells: cells.clone(),
            writer: writer.clone(),
        };
        Reader {
            lane: LaneReader::new(cells, writer, reader),
            peer,
            departure: Some(Arc::new(departure)),
            shared: false,
            assembled: None,
            lends: true,
            ended: false,
        }
    }

    /// The same reader as one of several of a feed.
    pub(crate) fn shared(mut self) -> Reader {
        self.shared = true;
        self
    }

    /// Sets whether frames may be lent from the ring. If not, every frame is copied out of it and its
    /// part of the ring is returned at once: for a reader that keeps frames.
    pub fn lend(&mut self, lends: bool) {
        self.lends = lends;
    }

    /// See [`crate::FrameReceiver::settle`].
    pub fn settle(&mut self) {
        self.lane.settle();
    }

    /// See [`crate::FrameReceiver::receive`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn receive(&mut self) -> Result<Option<Frame>, LinkError> {
        while !self.ended {
            // The order matters: first the end, then the pieces. The other way round, a piece that is
            // committed between the two looks would be lost after the end.
            let gone = self.gone();
            let dead = self.peer.is_dead();
            let piece = match self.lane.peek() {
                Ok(Some(piece)) => piece,
                Ok(None) if gone == 0 && !dead => {
                    self.lane.settle();
                    return Ok(None);
                }
                Ok(None) if gone == GONE && self.assembled.is_none() => {
                    self.ended = true;
                    return Ok(None);
                }
                Ok(None) if gone == 0 => return Err(self.fail(self.peer.death())),
                Ok(None) => {
                    let reason = "it closed the link in the middle of a frame";
                    return Err(self.fail(LinkError::new(self.peer.name(), reason)));
                }
                Err(reason) => return Err(self.nonsense(reason)),
            };
            if let Some(frame) = self.take(piece)? {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }

    /// See [`crate::FrameReceiver::is_closed`].
    pub fn is_closed(&self) -> bool {
        self.ended || (self.gone() == GONE && self.is_empty() && self.assembled.is_none())
    }

    /// Whether there is nothing to receive right now.
    pub fn is_empty(&self) -> bool {
        self.lane.is_empty()
    }

    fn gone(&self) -> u32 {
        // Acquire: pairs with the Release in the drop of `Writer`.
        self.lane.cells().writer_gone().load(Ordering::Acquire)
    }

    fn take(&mut self, piece: Piece) -> Result<Option<Frame>, LinkError> {
        let first = piece.flags & FIRST != 0;
        let last = piece.flags & LAST != 0;
        if piece.length == 0 {
            return Err(self.nonsense("an empty piece"));
        }
        if first != self.assembled.is_none() {
            return Err(self.nonsense("pieces of a frame in the wrong order"));
        }
        if first && last {
            if piece.length != piece.total {
                return Err(self.nonsense("a frame whose length differs from its piece's"));
            }
            return Ok(Some(self.whole(piece)));
        }
        if first {
            if piece.total > FRAME_BYTES_MAX {
                return Err(self.nonsense("a frame that is too long"));
            }
            self.assembled = Some((AlignedBytes::default(), piece.total));
        }
        let (bytes, total) = self.assembled.as_mut().expect("set above, or found set");
        if bytes.len() + piece.length > *total || (last && bytes.len() + piece.length < *total) {
            return Err(self.nonsense("pieces that don't make up their frame"));
        }
        bytes.extend(self.lane.cells().bytes(piece.start, piece.length));
        self.lane.release(piece);
        if !last {
            return Ok(None);
        }
        let (bytes, _) = self.assembled.take().expect("as above");
        Ok(Some(Frame::owned(bytes)))
    }

    fn whole(&mut self, piece: Piece) -> Frame {
        if piece.length > INLINE_BYTES_MAX && self.lends && self.lane.may_lend(&piece) {
            let departure = self.departure.as_ref().filter(|_| self.shared).cloned();
            return Frame::lent(Lease {
                hold: self.lane.lend(piece),
                start: piece.start,
                length: piece.length,
                _departure: departure,
            });
        }
        let bytes = self.lane.cells().bytes(piece.start, piece.length);
        let frame = if piece.length <= INLINE_BYTES_MAX {
            Frame::inline(bytes)
        } else {
            let mut owned = AlignedBytes::with_capacity(piece.length);
            owned.extend(bytes);
            Frame::owned(owned)
        };
        self.lane.release(piece);
        frame
    }

    fn nonsense(&mut self, what: &str) -> LinkError {
        let reason = format!("its lane of shared memory holds {what}");
        self.fail(LinkError::new(self.peer.name(), reason))
    }

    /// Ends the link: the writer is told, and the error is returned once.
    fn fail(&mut self, error: LinkError) -> LinkError {
        self.ended = true;
        self.departure = None;
        error
    }
}

#[cfg(test)]
mod tests;
