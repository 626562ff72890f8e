//! The receiver: blocking reads, the time after each read, and a tally of the rows.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use hdrhistogram::Histogram;
use slackwater_engine::time::now_ns;

use super::order::{Order, Received, Sent};
use super::query::{Query, WINDOW_NS};
use super::records::{STAMP_BASE, Schedule, TIME_BASE_MS};
use crate::common::{Interval, histogram};

/// Bytes per read: more than any setting writes in a millisecond.
const READ_BYTES: usize = 256 << 10;

/// The time without any row after which the query counts as stuck: windows close once a second, and
/// records flow at least once a second.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Windows start before this time: a day is longer than any point lasts.
const START_MAX_MS: u64 = 86_400_000;

/// Reads all rows.
pub fn receive(stream: &mut impl Read, mut tally: Tally) -> Result<Tally, String> {
    let mut bytes = vec![0; READ_BYTES];
    let mut end = 0;
    loop {
        let count = match stream.read(&mut bytes[end..]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(format!("no row arrived within {} s", TIMEOUT.as_secs()));
            }
            Err(error) => return Err(format!("can't read rows: {error}")),
        };
        if count == 0 {
            return match end {
                0 => Ok(tally),
                _ => Err("the rows ended in the middle of one".to_string()),
            };
        }
        tally.reads += 1;
        let now_ns = now_ns();
        let filled = end + count;
        let mut at = 0;
        while let Some(length) = bytes[at..filled].iter().position(|&byte| byte == b'\n') {
            tally.take(&bytes[at..at + length], now_ns)?;
            at += length + 1;
        }
        if at == 0 && filled == bytes.len() {
            return Err(format!("a row is longer than {READ_BYTES} bytes"));
        }
        bytes.copy_within(at..filled, 0);
        end = filled - at;
    }
}

/// The rows that arrived, and when.
pub struct Tally {
    query: Query,
    schedule: Schedule,
    start_ns: u64,
    interval: Interval,
    latencies: Histogram<u64>,
    /// Totals over the whole run.
    pub received: Received,
    /// Number of reads.
    pub reads: u64,
}

impl Tally {
    /// A tally for an order whose first record is due at `start_ns`.
    pub fn new(order: &Order, start_ns: u64, interval: Interval) -> Tally {
        Tally {
            query: order.query,
            schedule: order.schedule(),
            start_ns,
            interval,
            latencies: histogram(),
            received: Received::default(),
            reads: 0,
        }
    }

    /// Times from when the last record of a row was due to the row's receipt, within the interval.
    pub fn latencies(&self) -> &Histogram<u64> {
        &self.latencies
    }

    #[inline]
    fn take(&mut self, row: &[u8], now_ns: u64) -> Result<(), String> {
        let wrong = || {
            format!(
                "'{}' is not a valid row of this query",
                String::from_utf8_lossy(row)
            )
        };
        let mut fields = row.split(|&byte| byte == b',').map(number);
        let (Some(Some(first)), Some(Some(_sensor)), Some(Some(third)), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(wrong());
        };
        self.received.rows += 1;
        let offset_ns = match self.query {
            Query::Filter | Query::Wide => {
                self.received.stamps = self.received.stamps.wrapping_add(first);
                first.checked_sub(STAMP_BASE).ok_or_else(wrong)?
            }
            Query::Window => {
                self.received.records = self.received.records.wrapping_add(third);
                let start_ms = first.checked_sub(TIME_BASE_MS);
                let start_ms = start_ms.filter(|&start_ms| start_ms < START_MAX_MS);
                let start_ms = start_ms.ok_or_else(wrong)?;
                self.schedule.closes_ns(start_ms * 1_000_000 + WINDOW_NS)
            }
        };
        let due_ns = self.start_ns + offset_ns;
        if self.interval.contains(due_ns) {
            self.latencies
                .saturating_record(now_ns.saturating_sub(due_ns));
        }
        Ok(())
    }

    /// Checks that the rows are those that the records must produce.
    pub fn check(&self, sent: &Sent) -> Result<(), String> {
        let Received {
            rows,
            stamps,
            records,
        } = self.received;
        let (rows_due, as_sent) = match self.query {
            Query::Filter | Query::Wide => (sent.kept, stamps == sent.kept_stamps),
            Query::Window => (
                self.schedule.window_rows(sent.records),
                records == sent.records,
            ),
        };
        if rows != rows_due {
            return Err(format!(
                "{rows} rows arrived, but {} records produce {rows_due}",
                sent.records
            ));
        }
        match as_sent {
            true => Ok(()),
            false => Err(format!(
                "{rows} rows arrived, as many as {} records produce, but from other records",
                sent.records
            )),
        }
    }
}

/// Parses a number without a sign, as the engine writes it.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    // 19 digits always fit.
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0, |number: u64, &byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| number * 10 + u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 7_000;

    fn tally(query: Query) -> Tally {
        let order = Order {
            query,
            rate_per_s: 200,
            warm_up_ns: 0,
            time_ns: 0,
            core: 0,
        };
        let interval = Interval {
            begin_ns: START_NS + 1_000_000_000,
            end_ns: START_NS + 2_000_000_000,
        };
        Tally::new(&order, START_NS, interval)
    }

    /// A reader that returns a few bytes at a time.
    struct Pieces<'a>(&'a [u8]);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(7).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn split_rows_are_joined_and_timed_from_when_they_were_due() {
        let text =
            "1000000000995000,103,1400\n1000001000000000,100,1001\n1000001995000000,199,1499\n";
        let tally = receive(&mut Pieces(text.as_bytes()), tally(Query::Filter)).unwrap();
        assert_eq!((tally.received.rows, tally.latencies().len()), (3, 2));
        let stamps = 1_000_000_000_995_000 + 1_000_001_000_000_000 + 1_000_001_995_000_000;
        let mut sent = Sent {
            records: 6,
            unsent: 0,
            kept: 3,
            kept_stamps: stamps,
        };
        assert_eq!(tally.check(&sent), Ok(()));
        sent.kept_stamps += 1;
        assert!(
            tally
                .check(&sent)
                .unwrap_err()
                .contains("from other records")
        );
        sent.kept = 4;
        let lost = tally.check(&sent).unwrap_err();
        assert_eq!(lost, "3 rows arrived, but 6 records produce 4");
    }

    #[test]
    fn a_windows_rows_are_timed_from_the_record_that_closed_it() {
        let mut tally = tally(Query::Window);
        // The window ends at 1 s, where a record is due; the next one ends after the interval.
        let closed_ns = START_NS + 1_000_000_000;
        tally
            .take(b"1000000000000,100,2", closed_ns + 5_000)
            .unwrap();
        tally.take(b"1000000001000,100,2", closed_ns).unwrap();
        assert_eq!(tally.latencies().len(), 1);
        assert!((5_000..5_100).contains(&tally.latencies().max()));
        assert_eq!((tally.received.rows, tally.received.records), (2, 4));
    }

    #[test]
    fn an_invalid_row_is_an_error() {
        for row in [
            "",
            "1,2",
            "1000001000000000,1,x",
            "-1,2,3",
            "1,2,3",
            "1,2,3,4",
        ] {
            let taken = tally(Query::Filter).take(row.as_bytes(), 0);
            assert!(taken.unwrap_err().contains("is not a valid row"), "{row}");
        }
        let cut = receive(&mut Pieces(b"1000001000000000,1,2"), tally(Query::Filter));
        assert!(cut.err().unwrap().contains("in the middle"));
    }
}
