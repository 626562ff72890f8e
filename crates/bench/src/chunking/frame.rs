//! Blocks, acknowledgements and requests, each a frame of a link.
//!
//! A block's head takes a whole cache line, so that its pixels begin at one. A filter sends the frame
//! that it has received, head and pixels, without reading more than it needs.

use std::ops::{Deref, Range};
use std::sync::Arc;

use slackwater_link::Frame;

use super::image::{Image, LINE};
use super::order::LANES;

/// Bytes of a request.
const REQUEST_BYTES: usize = 24;

/// A part of a frame.
pub enum Piece {
    /// The head of a block.
    Head([u8; LINE]),
    /// Pixels of the image.
    Pixels(Arc<Image>, Range<usize>),
    /// A block as it was received.
    Block(Frame),
    /// Acknowledgements, or a request.
    Note(Vec<u8>),
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Piece::Head(line) => line,
            Piece::Pixels(image, range) => image.bytes(range.clone()),
            Piece::Block(frame) => frame,
            Piece::Note(bytes) => bytes,
        }
    }
}

/// The head of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The query that the block answers.
    pub query: u64,
    /// Position of the block's pixels in the image.
    pub offset: u64,
}

impl Head {
    /// The encoded head.
    pub fn encode(self) -> [u8; LINE] {
        let mut line = [0; LINE];
        line[..8].copy_from_slice(&self.query.to_le_bytes());
        line[8..16].copy_from_slice(&self.offset.to_le_bytes());
        line
    }

    /// Splits a block into head and pixels.
    pub fn split(block: &[u8]) -> Result<(Head, &[u8]), String> {
        let Some((line, pixels)) = block.split_at_checked(LINE).filter(|(_, p)| !p.is_empty())
        else {
            return Err(format!(
                "received a block of {} bytes, which is too short",
                block.len()
            ));
        };
        let head = Head {
            query: word(line, 0),
            offset: word(line, 8),
        };
        Ok((head, pixels))
    }
}

/// A query, as the source receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The query's number.
    pub query: u64,
    /// The requested blocks.
    pub blocks: Range<usize>,
}

impl Request {
    /// The encoded request.
    pub fn encode(&self) -> Vec<u8> {
        let words = [self.query, self.blocks.start as u64, self.blocks.end as u64];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Decodes a request; `blocks` is the number of blocks in the image.
    pub fn decode(bytes: &[u8], blocks: usize) -> Result<Request, String> {
        if bytes.len() != REQUEST_BYTES {
            return Err(format!(
                "received a request of {} bytes, which is not a valid length",
                bytes.len()
            ));
        }
        let (start, end) = (word(bytes, 8), word(bytes, 16));
        if start >= end || end > blocks as u64 {
            return Err(format!(
                "received a request for blocks {start} to {end} of {blocks}"
            ));
        }
        Ok(Request {
            query: word(bytes, 0),
            blocks: start as usize..end as usize,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(word)
}

/// The lane from a producer to a consumer that an acknowledgement names.
pub fn acknowledged(byte: u8) -> Result<(usize, usize), String> {
    let lane = usize::from(byte);
    if lane >= LANES {
        return Err(format!(
            "received an acknowledgement for lane {lane}, which does not exist"
        ));
    }
    Ok((lane / super::order::COPIES, lane % super::order::COPIES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_and_requests_are_decoded_as_they_are_encoded() {
        let head = Head {
            query: 7,
            offset: 4096,
        };
        let mut block = head.encode().to_vec();
        assert!(Head::split(&block).is_err() && Head::split(&block[..10]).is_err());
        block.extend([1, 2, 3]);
        assert_eq!(Head::split(&block), Ok((head, &[1, 2, 3][..])));
        let request = Request {
            query: 9,
            blocks: 3..5,
        };
        let bytes = request.encode();
        assert_eq!(Request::decode(&bytes, 5), Ok(request));
        assert!(Request::decode(&bytes, 4).is_err());
        assert!(Request::decode(&bytes[1..], 5).is_err());
        let empty = Request {
            query: 9,
            blocks: 3..3,
        };
        assert!(Request::decode(&empty.encode(), 5).is_err());
    }

    #[test]
    fn an_acknowledgement_names_producer_and_consumer() {
        assert_eq!(acknowledged(5), Ok((1, 2)));
        assert!(acknowledged(9).is_err());
    }
}
