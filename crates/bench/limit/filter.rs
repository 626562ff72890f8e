//! A filter over records from a socket, as a careful programmer writes it by hand.
//!
//! One thread: a blocking read into a buffer of 64 KiB, `memchr` for line ends and commas, the one number
//! that the filter needs, and one write for the rows of each read. It checks nothing else of a record:
//! neither the number of fields, nor quotes, nor the other numbers, which it copies unchanged. An engine
//! that checks those is compared with it.
//!
//! A record is `due,time,sensor,reading,…`, or for the query `wide` ten fields, of which the first is `due`,
//! the seventh `sensor` and the last `reading`. A row is `due,sensor,reading`, of records whose reading is
//! below [`READING_MIN_DROPPED`].

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use memchr::{memchr, memchr_iter};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Readings from this value on are dropped; `bench target` uses the same number.
const READING_MIN_DROPPED: u64 = 1_500;

/// Bytes requested per read; a longer record is an error.
const READ_BYTES: usize = 64 << 10;

/// Counts of what was read and written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records read.
    pub records: u64,
    /// Rows written.
    pub rows: u64,
}

/// The fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// `due,time,sensor,reading,…`.
    Few,
    /// Ten: `due` is the first, `sensor` the seventh, `reading` the last.
    Ten,
}

/// Connects to the address that records come from and the one that rows go to, and filters until the
/// records end.
pub fn connect(from: &str, to: &str, fields: Fields) -> Result<Counts, String> {
    let open = |address: &str| {
        let stream = TcpStream::connect(address);
        stream.map_err(|error| format!("{address}: can't connect: {error}"))
    };
    let (mut records, mut rows) = (open(from)?, open(to)?);
    rows.set_nodelay(true)
        .map_err(|error| format!("{to}: {error}"))?;
    match fields {
        Fields::Few => filter(&mut records, &mut rows, keep),
        Fields::Ten => filter(&mut records, &mut rows, keep_of_ten),
    }
}

/// Pins this thread to a core.
pub fn pin(core: &str) -> Result<(), String> {
    let number = core.parse().ok();
    let number = number.filter(|&number: &usize| number < CpuSet::MAX_CPU);
    let number = number.ok_or_else(|| format!("--core {core}: expected a core's number"))?;
    let mut cores = CpuSet::new();
    cores.set(number);
    sched_setaffinity(None, &cores).map_err(|error| format!("--core {core}: {error}"))
}

/// Filters until the records end.
pub fn filter(
    records: &mut impl Read,
    rows: &mut impl Write,
    keep: impl Fn(&[u8]) -> Kept<'_>,
) -> Result<Counts, String> {
    let mut bytes = vec![0; READ_BYTES];
    let mut kept = Vec::with_capacity(READ_BYTES);
    let mut counts = Counts::default();
    let mut end = 0;
    loop {
        let count = match records.read(&mut bytes[end..]) {
            Ok(0) if end == 0 => return Ok(counts),
            Ok(0) => return Err("the input ends in the middle of a record".to_string()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("can't read records: {error}")),
        };
        let filled = end + count;
        let mut at = 0;
        // What was in the buffer before contains no line end.
        for line_end in memchr_iter(b'\n', &bytes[end..filled]) {
            counts.records += 1;
            let line = &bytes[at..end + line_end];
            let row = keep(line).ok_or_else(|| {
                let number = counts.records;
                let line = String::from_utf8_lossy(line);
                format!(
                    "record {number} is not valid: '{line}'; expected due,time,sensor,reading,… or ten fields"
                )
            })?;
            if let Some([due, sensor, reading]) = row {
                counts.rows += 1;
                kept.extend_from_slice(due);
                kept.push(b',');
                kept.extend_from_slice(sensor);
                kept.push(b',');
                kept.extend_from_slice(reading);
                kept.push(b'\n');
            }
            at = end + line_end + 1;
        }
        if at == 0 && filled == bytes.len() {
            return Err(format!("a record is longer than {READ_BYTES} bytes"));
        }
        if !kept.is_empty() {
            rows.write_all(&kept)
                .map_err(|error| format!("can't write rows: {error}"))?;
            kept.clear();
        }
        bytes.copy_within(at..filled, 0);
        end = filled - at;
    }
}

/// The fields of a record that make its row, if the filter keeps it; `None` if the line is not a valid
/// record.
type Kept<'a> = Option<Option<[&'a [u8]; 3]>>;

#[inline]
fn keep(line: &[u8]) -> Kept<'_> {
    let comma = |from: usize| Some(from + memchr(b',', line.get(from..)?)?);
    let due_end = comma(0)?;
    let time_end = comma(due_end + 1)?;
    let sensor_end = comma(time_end + 1)?;
    let reading_end = comma(sensor_end + 1).unwrap_or(line.len());
    let reading = &line[sensor_end + 1..reading_end];
    let is_kept = number(reading)? < READING_MIN_DROPPED;
    Some(is_kept.then(|| [&line[..due_end], &line[time_end + 1..sensor_end], reading]))
}

#[inline]
fn keep_of_ten(line: &[u8]) -> Kept<'_> {
    let mut commas = memchr_iter(b',', line);
    let due_end = commas.next()?;
    // Four fields lie between, and two after the sensor.
    let sensor_begin = commas.nth(4)? + 1;
    let sensor_end = commas.next()?;
    let reading = &line[commas.nth(1)? + 1..];
    let is_kept = number(reading)? < READING_MIN_DROPPED;
    Some(is_kept.then(|| [&line[..due_end], &line[sensor_begin..sensor_end], reading]))
}

/// The number that these digits represent.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
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
    use std::net::TcpListener;

    use super::*;

    const RECORDS: &str = "17,3,100,1499,somewhere,ok,...\n18,3,101,1500,somewhere,ok,...\n\
                           19,4,102,7\n";
    const ROWS: &str = "17,100,1499\n19,102,7\n";

    /// A reader that returns a few bytes at a time.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(self.1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn rows_do_not_depend_on_how_reads_split_records() {
        for piece in 1..RECORDS.len() + 1 {
            let mut rows = Vec::new();
            let counts = filter(&mut Pieces(RECORDS.as_bytes(), piece), &mut rows, keep).unwrap();
            assert_eq!(
                counts,
                Counts {
                    records: 3,
                    rows: 2
                }
            );
            assert_eq!(String::from_utf8(rows).unwrap(), ROWS);
        }
    }

    #[test]
    fn an_invalid_record_is_an_error_with_its_number() {
        for (text, says) in [
            ("1,2,3,4\n1,2,3\n", "record 2 is not valid: '1,2,3'"),
            ("1,2,3,x,5\n", "record 1 is not valid"),
            ("\n", "record 1 is not valid"),
            ("1,2,3,4", "in the middle"),
        ] {
            let error = filter(&mut Pieces(text.as_bytes(), 99), &mut Vec::new(), keep);
            let error = error.unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let long = vec![b'1'; READ_BYTES + 1];
        let error = filter(&mut Pieces(&long, READ_BYTES), &mut Vec::new(), keep);
        assert!(error.unwrap_err().contains("longer than"));
    }

    #[test]
    fn three_of_ten_fields_make_a_row() {
        let record = |reading: &str| format!("17,3,somewhere,ok,1.5,2.5,100,87,...,{reading}\n");
        let text = record("1499") + &record("1500");
        let mut rows = Vec::new();
        filter(&mut Pieces(text.as_bytes(), 7), &mut rows, keep_of_ten).unwrap();
        assert_eq!(rows, b"17,100,1499\n");
        for line in ["17,3,a,ok,1,2,100,87", "1,2,3,4,5,6,7,8,9,10,11", ""] {
            assert_eq!(keep_of_ten(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn it_connects_to_both_ends() {
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let (from, to) = (listen(), listen());
        let (from_address, to_address) = (address(&from), address(&to));
        let filtering =
            std::thread::spawn(move || connect(&from_address, &to_address, Fields::Few));
        let (mut records, _) = from.accept().unwrap();
        let (mut rows, _) = to.accept().unwrap();
        records.write_all(RECORDS.as_bytes()).unwrap();
        drop(records);
        let mut text = String::new();
        rows.read_to_string(&mut text).unwrap();
        assert_eq!(text, ROWS);
        assert_eq!(filtering.join().unwrap().unwrap().rows, 2);
        let refused = connect("127.0.0.1:1", "127.0.0.1:1", Fields::Ten).unwrap_err();
        assert!(
            refused.starts_with("127.0.0.1:1: can't connect"),
            "{refused}"
        );
        assert!(pin("first").is_err());
    }
}
