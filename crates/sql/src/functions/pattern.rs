//! Java's date and time patterns (`yyyy-MM-dd HH:mm:ss`), as Flink's `DATE_FORMAT` and related functions take
//! them.

use std::cell::RefCell;
use std::iter::Peekable;
use std::rc::Rc;
use std::str::Chars;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, NaiveTime, Timelike};

/// A parsed pattern.
pub(super) struct Pattern {
    parts: Vec<Part>,
}

enum Part {
    Text(String),
    /// A letter, and how many times it is repeated.
    Field(char, usize),
}

/// The supported letters.
const FIELDS: &str = "yuMLdDEaHhKkmsSnQGVzxXZ";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    ///
    /// An unsupported letter, or a quote that is not closed.
    pub(super) fn new(pattern: &str) -> Result<Pattern, String> {
        let mut parts: Vec<Part> = Vec::new();
        let mut rest = pattern.chars().peekable();
        while let Some(letter) = rest.next() {
            match letter {
                '\'' => parts.push(Part::Text(quoted(&mut rest, pattern)?)),
                letter if letter.is_ascii_alphabetic() => {
                    if !FIELDS.contains(letter) {
                        return Err(format!(
                            "'{letter}' in the pattern '{pattern}' is not supported; \
                             write literal text in single quotes"
                        ));
                    }
                    let mut times = 1;
                    while rest.next_if_eq(&letter).is_some() {
                        times += 1;
                    }
                    parts.push(Part::Field(letter, times));
                }
                other => parts.push(Part::Text(other.to_string())),
            }
        }
        Ok(Pattern { parts })
    }

    /// The pattern `text`, parsed only if it differs from the previous one.
    pub(super) fn cached(text: &str) -> Result<Rc<Pattern>, String> {
        thread_local! {
            static LAST: RefCell<Option<(String, Rc<Pattern>)>> = const { RefCell::new(None) };
        }
        LAST.with_borrow_mut(|last| match last {
            Some((known, pattern)) if known == text => Ok(Rc::clone(pattern)),
            _ => {
                let pattern = Rc::new(Pattern::new(text)?);
                *last = Some((text.to_string(), Rc::clone(&pattern)));
                Ok(pattern)
            }
        })
    }

    /// The time in the format of the pattern.
    pub(super) fn write(&self, time: NaiveDateTime) -> String {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field(letter, times) => write_field(*letter, *times, time, &mut out),
            }
        }
        out
    }

    /// The time in a string; fields that the pattern lacks are those of 1970-01-01 00:00.
    ///
    /// # Errors
    ///
    /// When the string does not match the pattern, or is not a valid time.
    pub(super) fn read(&self, text: &str) -> Result<NaiveDateTime, String> {
        let mut read = Read::default();
        let mut rest = text;
        for (index, part) in self.parts.iter().enumerate() {
            let next = self.parts.get(index + 1);
            let then_digits =
                matches!(next, Some(Part::Field(letter, _)) if !"EaGVzxXZ".contains(*letter));
            rest = match part {
                Part::Text(wanted) => rest.strip_prefix(wanted.as_str()),
                Part::Field(letter, times) => read.field(*letter, *times, then_digits, rest),
            }
            .ok_or_else(|| format!("'{text}' does not match the pattern"))?;
        }
        if !rest.is_empty() {
            return Err(format!("'{text}' has more characters than the pattern"));
        }
        read.time()
            .ok_or_else(|| format!("'{text}' is not a valid time"))
    }
}

/// A string in quotes; two quotes inside it are one.
fn quoted(rest: &mut Peekable<Chars<'_>>, pattern: &str) -> Result<String, String> {
    if rest.next_if_eq(&'\'').is_some() {
        return Ok("'".to_string());
    }
    let mut text = String::new();
    loop {
        match rest.next() {
            Some('\'') if rest.next_if_eq(&'\'').is_some() => text.push('\''),
            Some('\'') => return Ok(text),
            Some(other) => text.push(other),
            None => return Err(format!("a quote in the pattern '{pattern}' is not closed")),
        }
    }
}

fn number(value: i64, digits: usize, out: &mut String) {
    let sign = if value < 0 { "-" } else { "" };
    out.push_str(&format!("{sign}{:0digits$}", value.unsigned_abs()));
}

fn write_field(letter: char, times: usize, time: NaiveDateTime, out: &mut String) {
    let hour = i64::from(time.hour());
    match (letter, times) {
        ('y' | 'u', 2) => number(i64::from(time.year().rem_euclid(100)), 2, out),
        ('y' | 'u', times) => number(i64::from(time.year()), times, out),
        ('M' | 'L', 1 | 2) => number(i64::from(time.month()), times, out),
        ('M' | 'L', times) => out.push_str(name(MONTHS[time.month0() as usize], times)),
        ('d', times) => number(i64::from(time.day()), times, out),
        ('D', times) => number(i64::from(time.ordinal()), times, out),
        ('E', times) => {
            let day = DAYS[time.weekday().num_days_from_monday() as usize];
            out.push_str(name(day, times.max(3)));
        }
        ('a', _) => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        ('H', times) => number(hour, times, out),
        ('k', times) => number(if hour == 0 { 24 } else { hour }, times, out),
        ('K', times) => number(hour % 12, times, out),
        ('h', times) => number((hour + 11) % 12 + 1, times, out),
        ('m', times) => number(i64::from(time.minute()), times, out),
        ('s', times) => number(i64::from(time.second()), times, out),
        ('S', times) => {
            let nanos = format!("{:09}", time.nanosecond());
            let zeros = "0".repeat(times.saturating_sub(9));
            out.push_str(&nanos[..times.min(9)]);
            out.push_str(&zeros);
        }
        ('n', times) => number(i64::from(time.nanosecond()), times, out),
        ('Q', times) => number(i64::from(time.quarter()), times.min(2), out),
        ('G', _) => out.push_str(if time.year() > 0 { "AD" } else { "BC" }),
        ('X', _) => out.push('Z'),
        ('x' | 'Z', times) => out.push_str(if times == 1 && letter == 'x' {
            "+00"
        } else {
            "+0000"
        }),
        // Times are in UTC.
        _ => out.push_str("UTC"),
    }
}

/// A name: in full if the letter is repeated four times or more.
fn name(full: &'static str, times: usize) -> &'static str {
    match times {
        3 => &full[..3],
        5 => &full[..1],
        _ => full,
    }
}

/// The fields of a time that were read.
#[derive(Default)]
struct Read {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    hour: Option<u32>,
    half_day_hour: Option<u32>,
    afternoon: bool,
    minute: u32,
    second: u32,
    nanos: u32,
}

impl Read {
    /// Reads a field from the start of `rest`; `None` if it isn't there.
    fn field<'a>(
        &mut self,
        letter: char,
        times: usize,
        then_digits: bool,
        rest: &'a str,
    ) -> Option<&'a str> {
        match (letter, times) {
            ('M' | 'L', 3..) => {
                let (index, rest) = named(&MONTHS, times, rest)?;
                self.month = Some(index as u32 + 1);
                return Some(rest);
            }
            // The day of the week is ignored: it follows from the date.
            ('E', times) => return named(&DAYS, times.max(3), rest).map(|(_, rest)| rest),
            ('a', _) => {
                let half = rest.get(..2)?.to_uppercase();
                self.afternoon = half == "PM";
                return (half == "AM" || half == "PM").then(|| &rest[2..]);
            }
            ('G', _) => return rest.strip_prefix("AD"),
            ('X' | 'x' | 'Z' | 'V' | 'z', _) => {
                let zero = ["UTC", "GMT", "Z", "+00:00", "+0000", "+00"];
                return zero.iter().find_map(|zone| rest.strip_prefix(zone));
            }
            _ => {}
        }
        let most = match (letter, times) {
            ('S', times) => times,
            (_, times) if then_digits => times,
            ('y' | 'u', 2) => 2,
            (_, times) => times.max(9),
        };
        let digits = rest
            .bytes()
            .take(most)
            .take_while(u8::is_ascii_digit)
            .count();
        if digits == 0 || digits < times.min(most) {
            return None;
        }
        let value = rest[..digits].parse::<u32>().ok()?;
        match letter {
            'y' | 'u' if times == 2 => self.year = Some(2000 + value as i32),
            'y' | 'u' => self.year = i32::try_from(value).ok(),
            'M' | 'L' => self.month = Some(value),
            'd' => self.day = Some(value),
            'D' => self.day_of_year = Some(value),
            'H' => self.hour = Some(value),
            'k' => self.hour = Some(value % 24),
            'h' | 'K' => self.half_day_hour = Some(value % 12),
            'm' => self.minute = value,
            's' => self.second = value,
            'S' => {
                self.nanos =
                    value.checked_mul(10_u32.checked_pow(9_u32.checked_sub(digits as u32)?)?)?
            }
            'n' => self.nanos = value,
            _ => {}
        }
        Some(&rest[digits..])
    }

    fn time(&self) -> Option<NaiveDateTime> {
        let year = self.year.unwrap_or(1970);
        let date = match self.day_of_year {
            Some(day) if self.month.is_none() => NaiveDate::from_yo_opt(year, day)?,
            _ => NaiveDate::from_ymd_opt(year, self.month.unwrap_or(1), self.day.unwrap_or(1))?,
        };
        let half = self
            .half_day_hour
            .map(|hour| hour + if self.afternoon { 12 } else { 0 });
        let hour = self.hour.or(half).unwrap_or(0);
        let time = NaiveTime::from_hms_nano_opt(hour, self.minute, self.second, self.nanos)?;
        Some(NaiveDateTime::new(date, time))
    }
}

/// The name that `rest` begins with, in any case.
fn named<'a>(names: &[&'static str], times: usize, rest: &'a str) -> Option<(usize, &'a str)> {
    names.iter().enumerate().find_map(|(index, full)| {
        let name = name(full, times);
        let found = rest.get(..name.len())?;
        found
            .eq_ignore_ascii_case(name)
            .then(|| (index, &rest[name.len()..]))
    })
}

/// The time `micros` microseconds after 1970.
pub(super) fn moment(micros: i64) -> Result<NaiveDateTime, String> {
    let time = DateTime::from_timestamp_micros(micros);
    time.map(|time| time.naive_utc())
        .ok_or_else(|| format!("{micros} µs from 1970 is out of the range of dates"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pattern: &str) -> String {
        let time = NaiveDate::from_ymd_opt(2024, 2, 9).unwrap();
        let time = time.and_hms_micro_opt(15, 4, 5, 678_900).unwrap();
        Pattern::new(pattern).unwrap().write(time)
    }

    #[test]
    fn patterns_are_written_as_java_writes_them() {
        let expected = [
            ("yyyy-MM-dd HH:mm:ss.SSS", "2024-02-09 15:04:05.678"),
            ("yy/M/d h:m a", "24/2/9 3:4 PM"),
            ("EEE, dd MMM uuuu", "Fri, 09 Feb 2024"),
            ("EEEE d. MMMM", "Friday 9. February"),
            ("'at' hh 'o''clock'", "at 03 o'clock"),
            ("DDD Q k K S SSSSSSSSS", "040 1 15 3 6 678900000"),
            ("yyyyMMdd'T'HHmmssX", "20240209T150405Z"),
        ];
        for (pattern, text) in expected {
            assert_eq!(written(pattern), text, "{pattern}");
        }
    }

    #[test]
    fn times_that_are_written_can_be_read() {
        for pattern in [
            "yyyy-MM-dd HH:mm:ss.SSSSSS",
            "yyyyMMddHHmmssSSSSSS",
            "EEE, dd MMM yyyy hh:mm:ss.SSSSSS a",
            "yy D k m s n",
        ] {
            let pattern = Pattern::new(pattern).unwrap();
            for micros in [
                0,
                951_782_400_000_001,
                1_709_210_096_123_456,
                1_704_067_199_999_999,
            ] {
                let time = moment(micros).unwrap();
                if time.year() < 2000 {
                    continue;
                }
                assert_eq!(pattern.read(&pattern.write(time)), Ok(time));
            }
        }
    }

    #[test]
    fn invalid_times_and_patterns_are_errors() {
        let pattern = Pattern::new("yyyy-MM-dd").unwrap();
        for text in ["2024-02-30", "2024-2-3", "2024-02", "2024-02-03 ", "x", ""] {
            assert!(pattern.read(text).is_err(), "{text}");
        }
        assert!(Pattern::new("yyyy-TT").is_err());
        assert!(Pattern::new("yyyy 'x").is_err());
    }
}
