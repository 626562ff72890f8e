//! The query: per window of 30 s and address, the number of visits and the first send time.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use memchr::memchr;

/// Length of a window in milliseconds of send time.
const WINDOW_MS: i64 = 30_000;

/// A window is closed when send time has passed its end by this much, as in the engine's query.
const DELAY_MS: i64 = 1_000;

/// Longest address: `255.255.255.255`.
const ADDRESS_BYTES_MAX: usize = 15;

/// An address as a number, so that a look-up follows no pointer: its bytes, zeros, its length.
type Address = u128;

/// Visits of one address in one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Number of visits.
    pub count: u64,
    /// The smallest send time.
    pub first_ms: i64,
}

/// The groups of one window.
#[derive(Debug)]
pub struct Window {
    /// The start of the window, in milliseconds of send time.
    pub start_ms: i64,
    groups: HashMap<Address, Group, FixedState>,
}

impl Window {
    fn new(start_ms: i64) -> Window {
        Window {
            start_ms,
            groups: HashMap::default(),
        }
    }

    fn closes_at_ms(&self) -> i64 {
        self.start_ms + WINDOW_MS + DELAY_MS
    }

    /// Each address (its bytes, and how many of them are used) with its group.
    pub fn groups(&self) -> impl Iterator<Item = ([u8; 16], usize, Group)> {
        self.groups.iter().map(|(address, &group)| {
            let bytes = address.to_le_bytes();
            (bytes, usize::from(bytes[15]), group)
        })
    }
}

/// The open windows, the one of the last record first.
#[derive(Debug, Default)]
pub struct FixWindow {
    open: Vec<Window>,
    latest_ms: i64,
    /// The earliest time at which a window closes.
    close_at_ms: i64,
    rows_late: u64,
}

impl FixWindow {
    /// A `FixWindow` without windows.
    pub fn new() -> FixWindow {
        FixWindow {
            latest_ms: i64::MIN / 2,
            close_at_ms: i64::MAX,
            ..FixWindow::default()
        }
    }

    /// Adds a record; returns the window that it closes, if any.
    #[inline]
    pub fn add(&mut self, time_ms: i64, address: Address) -> Option<Window> {
        let in_last = match self.open.first() {
            Some(window) => (0..WINDOW_MS).contains(&(time_ms - window.start_ms)),
            None => false,
        };
        if !in_last && !self.find_window(time_ms) {
            return None;
        }
        let group = self.open[0].groups.entry(address).or_insert(Group {
            count: 0,
            first_ms: time_ms,
        });
        group.count += 1;
        group.first_ms = group.first_ms.min(time_ms);
        self.latest_ms = self.latest_ms.max(time_ms);
        if self.latest_ms < self.close_at_ms {
            return None;
        }
        self.close()
    }

    /// Moves the window of a time to the front; returns whether it is still open.
    #[cold]
    fn find_window(&mut self, time_ms: i64) -> bool {
        let start_ms = time_ms - time_ms.rem_euclid(WINDOW_MS);
        if start_ms + WINDOW_MS <= self.latest_ms - DELAY_MS {
            self.rows_late += 1;
            return false;
        }
        match self.open.iter().position(|w| w.start_ms == start_ms) {
            Some(place) => self.open.swap(0, place),
            None => {
                self.open.insert(0, Window::new(start_ms));
                self.close_at_ms = self.close_at_ms.min(self.open[0].closes_at_ms());
            }
        }
        true
    }

    /// Removes a window whose end send time has passed.
    #[cold]
    fn close(&mut self) -> Option<Window> {
        let passed = |window: &Window| window.closes_at_ms() <= self.latest_ms;
        let place = self.open.iter().position(passed)?;
        let closed = self.open.swap_remove(place);
        let next = self.open.iter().map(Window::closes_at_ms).min();
        self.close_at_ms = next.unwrap_or(i64::MAX);
        Some(closed)
    }

    /// The windows that are still open at the end.
    pub fn end(&mut self) -> Vec<Window> {
        std::mem::take(&mut self.open)
    }

    /// Records that came after their window was closed.
    pub fn rows_late(&self) -> u64 {
        self.rows_late
    }
}

/// Calls `add` with the send time and the address of each record; returns how many there were.
pub fn read_records(
    text: &[u8],
    mut add: impl FnMut(i64, Address) -> Result<(), String>,
) -> Result<u64, String> {
    let mut rows = 0;
    let mut at = 0;
    while at < text.len() {
        rows += 1;
        let broken =
            || format!("line {rows} is not a valid record: expected send time, page, address");
        let comma = |from: usize| Some(from + memchr(b',', text.get(from..)?)?);
        let time_end = comma(at).ok_or_else(broken)?;
        let page_end = comma(time_end + 1).ok_or_else(broken)?;
        let address_end = comma(page_end + 1).ok_or_else(broken)?;
        let time_ms = number(&text[at..time_end]);
        let address = address(text, page_end + 1, address_end).ok_or_else(broken)?;
        add(time_ms, address)?;
        let newline = memchr(b'\n', &text[address_end..]);
        at = newline.map_or(text.len(), |length| address_end + length + 1);
    }
    Ok(rows)
}

/// The number that these digits represent.
#[inline]
fn number(digits: &[u8]) -> i64 {
    let next = |number: i64, &digit: &u8| number.wrapping_mul(10) + i64::from(digit & 15);
    digits.iter().fold(0, next)
}

/// The address at `start..end`; `None` if it is too long.
#[inline]
fn address(text: &[u8], start: usize, end: usize) -> Option<Address> {
    let length = end - start;
    if length > ADDRESS_BYTES_MAX {
        return None;
    }
    let bytes = match text.get(start..start + 16) {
        Some(bytes) => bytes.try_into().ok()?,
        None => {
            let mut bytes = [0; 16];
            bytes[..length].copy_from_slice(&text[start..end]);
            bytes
        }
    };
    let kept = u128::from_le_bytes(bytes) & ((1 << (8 * length)) - 1);
    Some(kept | (length as u128) << 120)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The rows of closed windows in the order in which they were closed, and the number of late records.
    fn run(text: &str) -> (Vec<(i64, String, u64, i64)>, u64) {
        let mut rows = Vec::new();
        let mut take = |window: Window| {
            let mut sorted = BTreeMap::new();
            for (bytes, length, group) in window.groups() {
                sorted.insert(String::from_utf8(bytes[..length].to_vec()).unwrap(), group);
            }
            let start_ms = window.start_ms;
            rows.extend(
                sorted
                    .into_iter()
                    .map(|(address, g)| (start_ms, address, g.count, g.first_ms)),
            );
        };
        let mut query = FixWindow::new();
        let read = read_records(text.as_bytes(), |time_ms, address| {
            if let Some(closed) = query.add(time_ms, address) {
                take(closed);
            }
            Ok(())
        });
        assert_eq!(read.unwrap(), text.lines().count() as u64);
        query.end().into_iter().for_each(take);
        (rows, query.rows_late())
    }

    #[test]
    fn counts_per_window_and_address_and_keeps_the_first_time() {
        let text = "10,1,1.2.3.4,x\n30000,2,255.255.255.255,y\n5,3,1.2.3.4,z\n7,1,1.2.3.40,";
        let (rows, late) = run(text);
        let row =
            |start: i64, address: &str, count, first| (start, address.to_string(), count, first);
        let expected = [
            row(0, "1.2.3.4", 2, 5),
            row(0, "1.2.3.40", 1, 7),
            row(30_000, "255.255.255.255", 1, 30_000),
        ];
        let mut sorted = rows.clone();
        sorted.sort();
        assert_eq!((sorted.as_slice(), late), (&expected[..], 0));
    }

    #[test]
    fn a_window_closes_a_second_after_its_end_and_later_records_are_late() {
        let open = "0,1,1.1.1.1,\n30999,1,1.1.1.1,\n1,1,1.1.1.1,\n";
        assert_eq!(run(open).0[0].2, 2);
        let closed = "0,1,1.1.1.1,\n31000,1,1.1.1.1,\n1,1,1.1.1.1,\n";
        let (rows, late) = run(closed);
        assert_eq!((rows[0].2, late), (1, 1));
    }

    #[test]
    fn an_invalid_record_is_an_error_with_its_line() {
        for text in ["1,2", "1\n", "1,2,3\n", "1,2,an address that is too long,"] {
            let error = read_records(text.as_bytes(), |_, _| Ok(())).unwrap_err();
            assert!(error.starts_with("line 1 is"), "{error}");
        }
    }
}
