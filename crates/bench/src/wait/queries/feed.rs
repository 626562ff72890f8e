//! The feed: a thread that listens, and sends records at regular times to the query that connects.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use slackwater_engine::time::now_ns;

use crate::common::sleep_until;

/// Everything that is due is sent at once, this often.
const TICK_NS: u64 = 100_000;

/// Bytes of a record, with its line end.
const RECORD_BYTES: usize = 200;

/// Number of keys.
const SENSORS: u64 = 100;

/// Records of a write at most, after the feed was held up.
const RECORDS_MAX: u64 = 4_096;

/// Event time in milliseconds at the first record: a multiple of all windows.
const TIME_BASE_MS: u64 = 1_000_000_000_000;

/// A running feed.
pub struct Feed {
    address: SocketAddr,
    thread: JoinHandle<Result<(), String>>,
    end: mpsc::SyncSender<()>,
}

impl Feed {
    /// Starts a feed of this rate.
    pub fn start(rate_per_s: f64) -> Result<Feed, String> {
        let failed = |error: std::io::Error| format!("the feed can't listen: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (end, ended) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("feed".to_string());
        let thread = thread.spawn(move || serve(&listener, rate_per_s, &ended));
        Ok(Feed {
            address,
            thread: thread.map_err(failed)?,
            end,
        })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the feed, after the query; returns what went wrong.
    pub fn finish(self) -> Option<String> {
        // A feed that has ended does not hear it.
        let _ = self.end.try_send(());
        // If no query has connected, this one does, and the feed ends.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
        match self.thread.join() {
            Ok(sent) => sent.err(),
            Err(_) => Some("the feed panicked".to_string()),
        }
    }
}

/// Sends records until the query disconnects.
fn serve(
    listener: &TcpListener,
    rate_per_s: f64,
    ended: &mpsc::Receiver<()>,
) -> Result<(), String> {
    let (mut stream, _) = listener
        .accept()
        .map_err(|error| format!("the feed can't accept: {error}"))?;
    if ended.try_recv().is_ok() {
        return Ok(());
    }
    let begin_ns = now_ns();
    let mut record = [b'.'; RECORD_BYTES];
    record[RECORD_BYTES - 1] = b'\n';
    let mut batch = Vec::with_capacity(RECORDS_MAX as usize * RECORD_BYTES);
    let mut sent = 0;
    loop {
        let due_ns = begin_ns + (sent as f64 * 1e9 / rate_per_s) as u64;
        let tick_ns = due_ns.next_multiple_of(TICK_NS);
        let now_ns = sleep_until(tick_ns);
        let due = ((now_ns - begin_ns) as f64 * rate_per_s / 1e9) as u64 + 1;
        let until = due.min(sent + RECORDS_MAX);
        for number in sent..until {
            write(&mut record, number, (now_ns - begin_ns) / 1_000_000);
            batch.extend_from_slice(&record);
        }
        sent = sent.max(until);
        // The query closes its end when its time is over.
        if stream.write_all(&batch).is_err() {
            return Ok(());
        }
        batch.clear();
    }
}

/// Writes the fields that change: `ms,sensor,reading,` with a fixed number of digits.
fn write(record: &mut [u8; RECORD_BYTES], number: u64, offset_ms: u64) {
    let digits = |record: &mut [u8], mut value: u64| {
        for digit in record.iter_mut().rev() {
            *digit = b'0' + (value % 10) as u8;
            value /= 10;
        }
    };
    digits(&mut record[..13], TIME_BASE_MS + offset_ms);
    digits(&mut record[14..17], 100 + number % SENSORS);
    // Half of the readings are kept by a filter above zero.
    digits(&mut record[18..19], number / SENSORS % 2);
    for comma in [13, 17, 19] {
        record[comma] = b',';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_four_fields_of_fixed_length() {
        let mut record = [b'.'; RECORD_BYTES];
        write(&mut record, 123, 45);
        assert!(record.starts_with(b"1000000000045,123,1,..."));
        write(&mut record, 7, 1_000);
        assert!(record.starts_with(b"1000000001000,107,0,..."));
    }
}
