//! Rows of a tcp sink that wait for its peer.
//!
//! They begin with a whole row, so that the next peer can be sent what the last one did not receive, from the
//! beginning of a row on, after the header if the format has one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use memchr::{memchr2_iter, memrchr};
use slackwater_engine::error::{Error, Result};

use crate::encode::Encoder;
use crate::format::Format;

/// Bytes for the peer.
#[derive(Debug)]
pub(crate) struct Backlog {
    /// The bytes, which begin with a row or with the header.
    bytes: Vec<u8>,
    /// How many of the bytes were passed to the kernel.
    sent: usize,
    /// Bytes that were ever appended.
    written: u64,
    /// The header; empty if the format has none.
    header: Vec<u8>,
    /// Whether the header must still be sent to this peer, or is at the beginning of `bytes`.
    has_header: bool,
    /// Whether a line end within quotes does not end a row.
    has_quotes: bool,
}

impl Backlog {
    pub(crate) fn new(format: &Format, schema: &SchemaRef) -> Backlog {
        let mut header = Vec::new();
        Encoder::new(format, schema).finish(&mut header);
        Backlog {
            bytes: Vec::new(),
            sent: 0,
            written: 0,
            header,
            // The encoder writes the first header.
            has_header: true,
            has_quotes: matches!(format, Format::Csv(_)),
        }
    }

    /// Appends rows.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let before = self.bytes.len();
        let encoded = encode(&mut self.bytes);
        self.written += (self.bytes.len() - before) as u64;
        encoded
    }

    /// The bytes that the kernel has not accepted.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How many bytes wait.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes that were ever appended.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// How many of these were passed to the kernel, at least.
    pub(crate) fn handed(&self) -> u64 {
        self.written.saturating_sub(self.left() as u64)
    }

    /// Records that the kernel has accepted this many more bytes.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Discards the bytes that were sent: all of them if nothing is left, else whole rows once they are more
    /// than this many bytes.
    pub(crate) fn forget_sent(&mut self, bytes_max: usize) {
        if self.left() == 0 {
            self.has_header &= self.bytes.is_empty();
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > bytes_max {
            self.forget_rows();
        }
    }

    /// The peer is gone: a row that it may have received in part goes to the next one.
    pub(crate) fn rewind(&mut self) {
        self.forget_rows();
        self.sent = 0;
    }

    fn forget_rows(&mut self) {
        let sent = &self.bytes[..self.sent];
        let whole = match self.has_quotes {
            true => end_of_csv_rows(sent),
            false => memrchr(b'\n', sent).map_or(0, |at| at + 1),
        };
        self.has_header &= whole == 0;
        self.bytes.drain(..whole);
        self.sent -= whole;
    }

    /// A new peer has connected, and has received nothing yet.
    pub(crate) fn begin_again(&mut self) {
        if !self.has_header {
            self.bytes.splice(0..0, self.header.iter().copied());
            self.has_header = true;
        }
    }
}

/// The end of the last whole row in bytes that begin with a row: a line end outside of quotes. Quotes within
/// quotes are doubled.
fn end_of_csv_rows(bytes: &[u8]) -> usize {
    let (mut end, mut is_quoted) = (0, false);
    for at in memchr2_iter(b'"', b'\n', bytes) {
        match bytes[at] {
            b'"' => is_quoted = !is_quoted,
            _ if !is_quoted => end = at + 1,
            _ => {}
        }
    }
    end
}

/// How many bytes of a sink have been sent, for checkpoints that wait for them.
#[derive(Debug)]
pub(crate) struct Handed {
    place: String,
    state: Mutex<HandedState>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct HandedState {
    bytes: u64,
    /// Whether a checkpoint waits: waking nobody is a system call, too.
    is_awaited: bool,
    /// Whether the sink has ended: nothing more is sent.
    is_closed: bool,
}

impl Handed {
    pub(crate) fn new(place: &str) -> Handed {
        Handed {
            place: place.to_string(),
            state: Mutex::default(),
            moved: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, HandedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, bytes: u64) {
        let mut state = self.state();
        if state.bytes != bytes {
            state.bytes = bytes;
            if std::mem::take(&mut state.is_awaited) {
                self.moved.notify_all();
            }
        }
    }

    pub(crate) fn close(&self) {
        self.state().is_closed = true;
        self.moved.notify_all();
    }

    /// Waits until this many bytes were sent. Fails if the peer accepts none, or is not connected, for this
    /// long, or if the sink ends.
    pub(crate) fn wait(&self, bytes: u64, patience: Duration) -> Result<()> {
        let mut state = self.state();
        let (mut before, mut moved) = (state.bytes, Instant::now());
        while state.bytes < bytes {
            if state.bytes > before {
                moved = Instant::now();
            }
            before = state.bytes;
            let left = patience.checked_sub(moved.elapsed());
            let (Some(left), false) = (left, state.is_closed) else {
                let left = bytes - state.bytes;
                let reason =
                    format!("nobody reads the rows: {left} bytes of a checkpoint are left");
                return Err(Error::new(&self.place, reason).hint("does the reader run?"));
            };
            state.is_awaited = true;
            let waited = self.moved.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::table::tests::table;
    use arrow_schema::DataType;
    use proptest::prelude::*;

    fn backlog(format: &str, header: &str) -> Backlog {
        let options = [("format", format), ("csv.header", header)];
        let options = &options[..if format == "csv" { 2 } else { 1 }];
        let table = table(&[("s", DataType::Utf8View)], options);
        let format = Format::of_sink(&Options::new(&table.options), &table.schema).unwrap();
        Backlog::new(&format, &table.schema)
    }

    proptest! {
        /// However much the peers receive before they disconnect: each gets the header and then whole rows,
        /// except for the last row of one that disconnected; together they have all rows, in order and none
        /// twice.
        #[test]
        fn the_next_peer_continues_with_a_whole_row(
            rows in prop::collection::vec("[a\n\"]{0,6}", 1..30),
            taken in prop::collection::vec((1usize..20, any::<bool>(), 0usize..8), 1..40),
            header in any::<bool>(),
        ) {
            let mut backlog = backlog("csv", if header { "true" } else { "false" });
            let row = |text: &String| format!("\"{}\"\n", text.replace('"', "\"\""));
            let names = if header { "s\n" } else { "" };
            backlog.append(|bytes| {
                bytes.extend_from_slice(names.as_bytes());
                bytes.extend(rows.iter().flat_map(|text| row(text).into_bytes()));
                Ok(())
            }).unwrap();
            let (mut got, mut peer) = (String::new(), String::new());
            let whole = |peer: &str| {
                let text = &peer[..end_of_csv_rows(peer.as_bytes())];
                let text = text.strip_prefix(names);
                text.unwrap_or_default().to_string()
            };
            for (bytes, leaves, bytes_max) in taken {
                let bytes = bytes.min(backlog.left());
                peer.push_str(std::str::from_utf8(&backlog.unsent()[..bytes]).unwrap());
                backlog.sent(bytes);
                backlog.forget_sent(bytes_max);
                if leaves {
                    backlog.rewind();
                    got.push_str(&whole(&peer));
                    peer.clear();
                    backlog.begin_again();
                }
            }
            peer.push_str(std::str::from_utf8(backlog.unsent()).unwrap());
            got.push_str(&whole(&peer));
            prop_assert_eq!(got, rows.iter().map(row).collect::<String>());
        }
    }

    #[test]
    fn lines_of_json_end_with_their_line_end() {
        let mut backlog = backlog("json", "");
        let line = b"{\"s\":\"\\\"\"}\n";
        backlog
            .append(|bytes| {
                bytes.extend_from_slice(line);
                bytes.extend_from_slice(line);
                Ok(())
            })
            .unwrap();
        backlog.sent(line.len() + 3);
        assert_eq!(backlog.handed(), line.len() as u64 + 3);
        backlog.rewind();
        backlog.begin_again();
        assert_eq!(backlog.unsent(), line);
    }

    #[test]
    fn a_checkpoint_waits_for_rows_that_were_not_sent() {
        let handed = std::sync::Arc::new(Handed::new("here:1"));
        handed.note(5);
        handed.wait(5, Duration::ZERO).unwrap();
        let error = handed.wait(6, Duration::ZERO).unwrap_err().to_string();
        assert!(
            error.contains("here:1") && error.contains("1 bytes"),
            "{error}"
        );
        let waiting = std::sync::Arc::clone(&handed);
        let waits = std::thread::spawn(move || waiting.wait(10, Duration::from_secs(30)));
        handed.note(8);
        handed.note(10);
        waits.join().unwrap().unwrap();
        // The end of the sink ends the wait, too.
        let waiting = std::sync::Arc::clone(&handed);
        let waits = std::thread::spawn(move || waiting.wait(11, Duration::from_secs(30)));
        handed.close();
        waits.join().unwrap().unwrap_err();
        handed.wait(10, Duration::ZERO).unwrap();
    }
}
