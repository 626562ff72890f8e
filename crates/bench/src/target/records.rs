//! The records, the same for all settings: 200 bytes each, at a regular rate, and the rows that a query
//! must produce from them.
//!
//! ```text
//! 1000000012000000,1000000000012,137,1482,oystercatcher-point,ok,.............\n
//! due (ns)         event time (ms) sensor reading
//! 1000000012000000,1000000000012,oystercatcher-point,ok,54.3213,8.6042,137,87,.............,1482\n
//! the same with ten columns, for the query `wide`
//! ```
//!
//! - **Due times** are absolute and the same for all settings. From 1,000 records per second on, all
//!   records of a millisecond are due at its beginning, so that the time since a record was due does not
//!   include the spacing of the sender's writes. Below that rate, each record has its own due time.
//! - **Stamps** count from a power of ten at the first record, so they always have the same number of
//!   digits, and a program that copies bytes writes the same as one that formats numbers.
//! - **Event time** is the due time, so a window is closed by the first record that is due at or after
//!   its end ([`Schedule::closes_ns`]).

use super::query::{Query, READING_MIN_DROPPED, WINDOW_NS};

/// Bytes of a record, including the line end.
pub const RECORD_BYTES: usize = 200;

/// The stamp of a record that is due at time 0.
pub const STAMP_BASE: u64 = 1_000_000_000_000_000;

/// The event time in milliseconds at time 0: a multiple of the window.
pub const TIME_BASE_MS: u64 = 1_000_000_000_000;

/// Number of keys, and the first one.
pub const SENSORS: u64 = 100;
const SENSOR_BASE: u64 = 100;

/// The lowest reading; readings go up to 999 more.
const READING_BASE: u64 = 1_000;

/// From this rate on, all records of a millisecond are due at once.
const RATE_PER_TICK_MIN: u64 = 1_000;
const TICK_NS: u64 = 1_000_000;

/// The highest allowed rate: 400 MB per second, more than a loopback connection carries on the machines
/// that we know. With it and [`super::plan::SECONDS_MAX`] no product overflows.
pub const RATE_MAX: u64 = 2_000_000;

/// A record before its numbers are filled in; the column before the last one, or the last one, is filled up
/// with points.
const FILTER: &str = "due............_,time........_,sen,read,oystercatcher-point,ok,";
const WIDE: &str = "due............_,time........_,oystercatcher-point,ok,54.3213,8.6042,sen,87,";
const WIDE_END: &str = ",read";

/// When records are due, from the first one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Records per second, at most [`RATE_MAX`].
    pub rate_per_s: u64,
}

impl Schedule {
    /// When a record is due.
    #[inline]
    pub fn offset_ns(self, number: u64) -> u64 {
        let regular_ns = number * 1_000_000_000 / self.rate_per_s;
        match self.rate_per_s >= RATE_PER_TICK_MIN {
            true => regular_ns - regular_ns % TICK_NS,
            false => regular_ns,
        }
    }

    /// The first record that is due at this time or later; `offset_ns` is a multiple of a tick.
    pub fn first_at(self, offset_ns: u64) -> u64 {
        (offset_ns * self.rate_per_s).div_ceil(1_000_000_000)
    }

    /// When the record that closes the window ending at `end_ns` is due.
    pub fn closes_ns(self, end_ns: u64) -> u64 {
        self.offset_ns(self.first_at(end_ns))
    }

    /// Number of rows, over all keys, that windows over these first records have.
    pub fn window_rows(self, records: u64) -> u64 {
        let mut rows = 0;
        for window in 0.. {
            let first = self.first_at(window * WINDOW_NS);
            if first >= records {
                break;
            }
            let end = self.first_at((window + 1) * WINDOW_NS).min(records);
            // Keys come in turn, so this many consecutive records have this many keys.
            rows += (end - first).min(SENSORS);
        }
        rows
    }
}

/// The reading of a record.
#[inline]
pub fn reading(number: u64) -> u64 {
    // No pattern that a branch predictor could learn, and the same in sender and receiver.
    READING_BASE + fastrand::Rng::with_seed(number).u64(..1_000)
}

/// Whether the filter keeps a reading.
#[inline]
pub fn is_kept(reading: u64) -> bool {
    reading < READING_MIN_DROPPED
}

/// Writes records, most of whose bytes stay the same.
pub struct RecordWriter {
    record: [u8; RECORD_BYTES],
    /// Where the sensor and the reading begin.
    sensor: usize,
    reading: usize,
    offset_ns: Option<u64>,
}

impl RecordWriter {
    /// A writer of a query's records that has not written anything.
    pub fn new(query: Query) -> RecordWriter {
        let (begin, end) = match query {
            Query::Filter | Query::Window => (FILTER, ""),
            Query::Wide => (WIDE, WIDE_END),
        };
        let mut record = [b'.'; RECORD_BYTES];
        record[..begin.len()].copy_from_slice(begin.as_bytes());
        let end_at = RECORD_BYTES - 1 - end.len();
        record[end_at..RECORD_BYTES - 1].copy_from_slice(end.as_bytes());
        record[RECORD_BYTES - 1] = b'\n';
        let place = |name: &str| begin.find(name).or_else(|| Some(end_at + end.find(name)?));
        RecordWriter {
            record,
            sensor: place("sen").expect("each record has a sensor"),
            reading: place("read").expect("each record has a reading"),
            offset_ns: None,
        }
    }

    /// Appends a record.
    #[inline]
    pub fn append(&mut self, number: u64, offset_ns: u64, reading: u64, batch: &mut Vec<u8>) {
        if self.offset_ns != Some(offset_ns) {
            self.offset_ns = Some(offset_ns);
            digits(&mut self.record[..16], STAMP_BASE + offset_ns);
            digits(
                &mut self.record[17..30],
                TIME_BASE_MS + offset_ns / 1_000_000,
            );
        }
        let (sensor, reads) = (self.sensor, self.reading);
        digits(
            &mut self.record[sensor..sensor + 3],
            SENSOR_BASE + number % SENSORS,
        );
        digits(&mut self.record[reads..reads + 4], reading);
        batch.extend_from_slice(&self.record);
    }
}

#[inline]
fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    debug_assert_eq!(number, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_bytes_and_fields() {
        let mut batch = Vec::new();
        let mut writer = RecordWriter::new(Query::Filter);
        writer.append(237, 12_345_678_901, 1_042, &mut batch);
        writer.append(238, 12_345_678_901, 1_999, &mut batch);
        assert_eq!(batch.len(), 2 * RECORD_BYTES);
        let text = String::from_utf8(batch).unwrap();
        let lines = text.lines().collect::<Vec<_>>();
        let fields = lines[0].split(',').collect::<Vec<_>>();
        let begin = ["1000012345678901", "1000000012345", "137", "1042"];
        assert_eq!(fields[..4], begin);
        assert_eq!(
            (fields[4], fields[5], fields.len()),
            ("oystercatcher-point", "ok", 7)
        );
        assert!(lines[1].starts_with("1000012345678901,1000000012345,138,1999,"));
    }

    #[test]
    fn a_wide_record_has_its_bytes_and_fields() {
        let mut batch = Vec::new();
        let mut writer = RecordWriter::new(Query::Wide);
        writer.append(237, 12_345_678_901, 1_042, &mut batch);
        assert_eq!(batch.len(), RECORD_BYTES);
        let text = String::from_utf8(batch).unwrap();
        let fields = text.trim_end().split(',').collect::<Vec<_>>();
        let used = [fields[0], fields[6], fields[9]];
        assert_eq!(used, ["1000012345678901", "137", "1042"]);
        assert_eq!((fields[1], fields.len()), ("1000000012345", 10));
        assert!(fields[8].bytes().all(|byte| byte == b'.'), "{text}");
    }

    #[test]
    fn records_of_a_millisecond_are_due_at_once() {
        let fast = Schedule { rate_per_s: 10_000 };
        let offsets = [0, 9, 10, 19, 20].map(|number| fast.offset_ns(number));
        assert_eq!(offsets, [0, 0, 1_000_000, 1_000_000, 2_000_000]);
        let slow = Schedule { rate_per_s: 300 };
        assert_eq!(slow.offset_ns(1), 3_333_333);
    }

    #[test]
    fn the_record_that_closes_a_window_is_the_first_one_at_its_end() {
        for rate_per_s in [1, 3, 100, 300, 1_000, 1_500, 10_000, 500_000] {
            let schedule = Schedule { rate_per_s };
            for end_ns in [WINDOW_NS, 5 * WINDOW_NS] {
                let offsets = (0..).map(|number| schedule.offset_ns(number));
                let closing = offsets.into_iter().find(|&offset| offset >= end_ns);
                assert_eq!(Some(schedule.closes_ns(end_ns)), closing, "{rate_per_s}/s");
            }
        }
    }

    #[test]
    fn windows_have_as_many_rows_as_keys_arrived() {
        for (rate_per_s, records) in [(100, 250), (30, 100), (1_000, 3_001), (7, 0)] {
            let schedule = Schedule { rate_per_s };
            let mut keys = std::collections::BTreeSet::new();
            for number in 0..records {
                keys.insert((schedule.offset_ns(number) / WINDOW_NS, number % SENSORS));
            }
            assert_eq!(schedule.window_rows(records), keys.len() as u64);
        }
    }

    #[test]
    fn half_of_the_readings_are_kept() {
        let kept = (0..100_000)
            .filter(|&number| is_kept(reading(number)))
            .count();
        // Three standard deviations of a fair coin are 474.
        assert!((49_500..50_500).contains(&kept), "{kept}");
        let digits = (0..100_000).all(|number| (1_000..2_000).contains(&reading(number)));
        assert!(digits);
    }
}
