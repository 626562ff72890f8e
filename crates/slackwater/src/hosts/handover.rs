//! State that moves with its buckets between processes: a memory file with frames of the message format, one
//! after the other. The parent passes its descriptor on unread, so rows never pass through the parent.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use arrow_array::RecordBatch;
use rustix::fs::{MemfdFlags, memfd_create};
use slackwater_engine::chunk::{Chunk, Message};
use slackwater_engine::wire::{Decoder, Encoder};
use slackwater_engine::{Error, Result};

/// Bytes of the length that precedes each frame.
const LENGTH_BYTES: usize = 8;

/// Writes state to a memory file; returns `None` without state.
///
/// # Errors
///
/// If there is no memory, or the state can't be written as frames.
pub fn seal(state: &[RecordBatch]) -> Result<Option<OwnedFd>> {
    if state.is_empty() {
        return Ok(None);
    }
    let mut file = File::from(
        memfd_create("slackwater-state", MemfdFlags::CLOEXEC)
            .map_err(|error| no_file(error.into()))?,
    );
    let (mut encoder, mut frames) = (Encoder::new(), Vec::new());
    for batch in state {
        let message = Message::Chunk(Chunk::new(batch.clone(), 0));
        encoder.encode(&message, &mut frames)?;
        for frame in frames.drain(..) {
            let length = frame.iter().map(|piece| piece.len() as u64).sum::<u64>();
            file.write_all(&length.to_le_bytes()).map_err(no_file)?;
            for piece in frame {
                file.write_all(&piece).map_err(no_file)?;
            }
        }
    }
    Ok(Some(file.into()))
}

/// Reads state from a memory file.
///
/// # Errors
///
/// If the file holds anything else.
pub fn open(file: Option<OwnedFd>) -> Result<Vec<RecordBatch>> {
    let mut state = Vec::new();
    let Some(file) = file else {
        return Ok(state);
    };
    let mut file = File::from(file);
    file.rewind().map_err(no_file)?;
    let mut decoder = Decoder::new();
    loop {
        let mut length = [0; LENGTH_BYTES];
        match file.read(&mut length).map_err(no_file)? {
            0 => return Ok(state),
            read => file.read_exact(&mut length[read..]).map_err(no_file)?,
        }
        let length = u64::from_le_bytes(length);
        let mut frame = Vec::new();
        (&mut file)
            .take(length)
            .read_to_end(&mut frame)
            .map_err(no_file)?;
        if let Some(Message::Chunk(chunk)) = decoder.decode(frame.into())? {
            state.push(chunk.batch);
        }
    }
}

fn no_file(error: std::io::Error) -> Error {
    Error::new("state that moves to another process", error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn state_comes_out_as_it_went_in() {
        let batch = |first: i64| {
            let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
            let numbers = Int64Array::from_iter_values(first..first + 1000);
            RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers)]).unwrap()
        };
        for state in [vec![], vec![batch(0)], vec![batch(0), batch(5)]] {
            let file = seal(&state).unwrap();
            assert_eq!(file.is_none(), state.is_empty());
            assert_eq!(open(file).unwrap(), state);
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
        let numbers = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![numbers]).unwrap();
        let file = File::from(seal(&[batch]).unwrap().unwrap());
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        assert!(open(Some(file.into())).is_err());
    }
}
