//! Reads and writes dates and times. Everything is UTC.

use arrow_schema::TimeUnit;

/// Seconds since 1970-01-01T00:00:00Z and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// Units in a second.
pub(crate) fn units_per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// Digits of a second's fraction in the unit.
pub(crate) fn fraction_digits(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

impl Instant {
    /// In the unit, rounded down; `None` when it does not fit.
    pub(crate) fn in_unit(self, unit: TimeUnit) -> Option<i64> {
        let nanoseconds = i64::from(self.nanoseconds);
        // Divisions by constants are multiplications.
        let (per_second, part) = match unit {
            TimeUnit::Second => (1, 0),
            TimeUnit::Millisecond => (1_000, nanoseconds / 1_000_000),
            TimeUnit::Microsecond => (1_000_000, nanoseconds / 1_000),
            TimeUnit::Nanosecond => (1_000_000_000, nanoseconds),
        };
        // With 128 bits: the second that contains the earliest nanosecond begins before the range of 64 bits.
        let value = i128::from(self.seconds) * i128::from(per_second) + i128::from(part);
        i64::try_from(value).ok()
    }
}

/// Days since 1970-01-01 of a date of the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level
/// date algorithms"). The year begins in March, so that the leap day is the last one.
pub(crate) fn days_of_date(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_of_year = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_of_year + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
pub(crate) fn date_of_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_of_year + 2) / 5 + 1) as u32;
    let month = ((month_of_year + 2) % 12 + 1) as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    let mut value = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    Some(value)
}

/// Days since 1970-01-01 of `YYYY-MM-DD`.
pub(crate) fn parse_date(text: &[u8]) -> Option<i64> {
    let [_, _, _, _, b'-', _, _, b'-', _, _] = text else {
        return None;
    };
    let year = i64::from(number(&text[..4])?);
    checked_days(year, number(&text[5..7])?, number(&text[8..])?)
}

fn checked_days(year: i64, month: u32, day: u32) -> Option<i64> {
    let valid = (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    valid.then(|| days_of_date(year, month, day))
}

/// Reads time stamps, of which most have the same date as the one before.
#[derive(Debug)]
pub(crate) struct RecentDate {
    text: [u8; 10],
    days: i64,
}

impl Default for RecentDate {
    fn default() -> RecentDate {
        RecentDate {
            text: *b"1970-01-01",
            days: 0,
        }
    }
}

impl RecentDate {
    /// The same as [`parse_timestamp`].
    #[inline]
    pub(crate) fn parse_timestamp(&mut self, text: &[u8]) -> Option<Instant> {
        let (date, rest) = text.split_first_chunk::<10>()?;
        if *date != self.text {
            self.days = parse_date(date)?;
            self.text = *date;
        }
        time_of_day(self.days, rest)
    }
}

/// The seconds of the day at `HH:MM:SS`; `None` if it is written in another way or is a leap second.
#[inline]
fn usual_clock(text: [u8; 8]) -> Option<i64> {
    // The digits become 0 to 9, and the colons 0.
    let word = u64::from_le_bytes(text) ^ u64::from_le_bytes(*b"00:00:00");
    // Adding sets the high bit of what is more than a digit; for colons, of what is not 0.
    let limits = u64::from_le_bytes([0x76, 0x76, 0x7f, 0x76, 0x76, 0x7f, 0x76, 0x76]);
    if (word.wrapping_add(limits) | word) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    let [hour, _, _, minute, _, _, second, _] = pairs.to_le_bytes();
    let is_valid = hour < 24 && minute < 60 && second < 60;
    is_valid.then(|| i64::from(hour) * 3_600 + i64::from(minute) * 60 + i64::from(second))
}

/// Reads `HH:MM` or `HH:MM:SS` at the beginning: seconds of the day and the rest of the text.
fn parse_clock(text: &[u8]) -> Option<(i64, &[u8])> {
    if let Some((clock, rest)) = text.split_first_chunk::<8>()
        && let Some(seconds) = usual_clock(*clock)
    {
        return Some((seconds, rest));
    }
    let (clock, rest) = match text.get(5) {
        Some(b':') => (text.get(..8)?, &text[8..]),
        _ => (text.get(..5)?, &text[5..]),
    };
    if clock[2] != b':' {
        return None;
    }
    let hour = number(&clock[..2])?;
    let minute = number(&clock[3..5])?;
    let second = if clock.len() == 8 {
        number(&clock[6..])?
    } else {
        0
    };
    // A leap second (60) is the first second of the next minute, as in POSIX time.
    let valid = hour < 24 && minute < 60 && second <= 60;
    valid.then_some((i64::from(hour * 3_600 + minute * 60 + second), rest))
}

/// Reads `Z`, `+HH:MM`, `+HHMM` or `+HH`: the seconds to subtract.
fn parse_offset(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        b"" | b"Z" | b"z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.len() {
        2 => (number(digits)?, 0),
        4 => (number(&digits[..2])?, number(&digits[2..])?),
        5 if digits[2] == b':' => (number(&digits[..2])?, number(&digits[3..])?),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then(|| sign * i64::from(hours * 3_600 + minutes * 60))
}

/// Reads `YYYY-MM-DD[( |T)HH:MM[:SS[.fraction]][Z|±HH:MM]]`. Digits beyond the ninth of the
/// fraction are dropped.
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<Instant> {
    let days = parse_date(text.get(..10)?)?;
    time_of_day(days, &text[10..])
}

/// Reads what may follow a date.
fn time_of_day(days: i64, rest: &[u8]) -> Option<Instant> {
    if rest.is_empty() {
        return Some(Instant {
            seconds: days * 86_400,
            nanoseconds: 0,
        });
    }
    if !matches!(rest[0], b' ' | b'T' | b't') {
        return None;
    }
    let (second_of_day, mut rest) = parse_clock(&rest[1..])?;
    let mut nanoseconds = 0;
    if let [b'.' | b',', fraction @ ..] = rest {
        let digits = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 {
            return None;
        }
        let kept = digits.min(9);
        nanoseconds = number(&fraction[..kept])? * 10u32.pow(9 - kept as u32);
        rest = &fraction[digits..];
    }
    let offset = parse_offset(rest)?;
    Some(Instant {
        seconds: days * 86_400 + second_of_day - offset,
        nanoseconds,
    })
}

/// Reads the time of a web server's log: `17/May/2015:10:05:03 +0000`.
pub(crate) fn parse_log_time(text: &[u8]) -> Option<Instant> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    if text.len() != 26
        || text[2] != b'/'
        || text[6] != b'/'
        || text[11] != b':'
        || text[20] != b' '
    {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &text[3..6])? as u32 + 1;
    let days = checked_days(i64::from(number(&text[7..11])?), month, number(&text[..2])?)?;
    let (second_of_day, rest) = parse_clock(&text[12..20])?;
    if !rest.is_empty() {
        return None;
    }
    let offset = parse_offset(&text[21..])?;
    Some(Instant {
        seconds: days * 86_400 + second_of_day - offset,
        nanoseconds: 0,
    })
}

fn push_digits(out: &mut Vec<u8>, value: u32, digits: usize) {
    let mut divisor = 10u32.pow(digits as u32 - 1);
    for _ in 0..digits {
        out.push(b'0' + (value / divisor % 10) as u8);
        divisor /= 10;
    }
}

/// Writes days since 1970-01-01 as `YYYY-MM-DD`.
pub(crate) fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = date_of_days(days);
    match u32::try_from(year) {
        Ok(year) if year <= 9_999 => push_digits(out, year, 4),
        _ => out.extend_from_slice(format!("{year:+05}").as_bytes()),
    }
    out.push(b'-');
    push_digits(out, month, 2);
    out.push(b'-');
    push_digits(out, day, 2);
}

/// Writes a time stamp as `YYYY-MM-DD HH:MM:SS[.fff…]` with as many digits as the unit has.
pub(crate) fn write_timestamp(out: &mut Vec<u8>, value: i64, unit: TimeUnit) {
    let per_second = units_per_second(unit);
    let seconds = value.div_euclid(per_second);
    let part = value.rem_euclid(per_second);
    write_date(out, seconds.div_euclid(86_400));
    let second_of_day = seconds.rem_euclid(86_400) as u32;
    for (mark, part) in [
        (b' ', second_of_day / 3_600),
        (b':', second_of_day / 60 % 60),
        (b':', second_of_day % 60),
    ] {
        out.push(mark);
        push_digits(out, part, 2);
    }
    let digits = fraction_digits(unit);
    if digits > 0 {
        out.push(b'.');
        push_digits(out, part as u32, digits);
    }
}

/// An event time in microseconds as messages show it: `YYYY-MM-DD HH:MM:SS[.fff…]`, with the digits that it
/// has.
pub fn event_time_text(us: i64) -> String {
    let mut text = Vec::new();
    write_timestamp(&mut text, us, TimeUnit::Microsecond);
    let text = String::from_utf8(text).expect("digits and marks between them");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn micros(text: &str) -> Option<i64> {
        parse_timestamp(text.as_bytes())?.in_unit(TimeUnit::Microsecond)
    }

    #[test]
    fn forms_of_a_timestamp() {
        let expected = Some(1_431_857_103_000_000);
        for text in [
            "2015-05-17 10:05:03",
            "2015-05-17T10:05:03Z",
            "2015-05-17T10:05:03.000000000000",
            "2015-05-17 12:05:03+02:00",
            "2015-05-17 12:05:03+0200",
            "2015-05-17 04:35:03-05:30",
        ] {
            assert_eq!(micros(text), expected, "{text}");
        }
        assert_eq!(micros("2015-05-17 10:05"), Some(1_431_857_100_000_000));
        assert_eq!(micros("1970-01-01"), Some(0));
        assert_eq!(micros("1969-12-31 23:59:59.9999999"), Some(-1));
        assert_eq!(micros("2024-02-29"), Some(1_709_164_800_000_000));
        for wrong in [
            "",
            "2015",
            "2015-02-29",
            "2015-13-01",
            "2015-00-01",
            "2015-01-00",
            "2015-1-1",
            "2015-05-17 24:00:00",
            "2015-05-17 10:60:00",
            "2015-05-17 10:05:03.",
            "2015-05-17x",
            "2015-05-17 10",
            "2015-05-17 10:05:03 ",
            "2015-05-17 10:05:03+2",
            "20x5-05-17",
        ] {
            assert_eq!(micros(wrong), None, "{wrong}");
        }
        let far = parse_timestamp(b"9999-12-31 00:00:00").unwrap();
        assert_eq!(far.in_unit(TimeUnit::Nanosecond), None);
    }

    #[test]
    fn log_times() {
        let time = parse_log_time(b"17/May/2015:10:05:03 +0000").unwrap();
        assert_eq!(time.seconds, 1_431_857_103);
        let time = parse_log_time(b"17/May/2015:10:05:03 -0130").unwrap();
        assert_eq!(time.seconds, 1_431_857_103 + 5_400);
        for wrong in [
            &b"17/Mai/2015:10:05:03 +0000"[..],
            b"31/Jun/2015:10:05:03 +0000",
            b"",
        ] {
            assert_eq!(parse_log_time(wrong), None);
        }
    }

    #[test]
    fn written_with_the_digits_of_the_unit() {
        let written = |value, unit| {
            let mut out = vec![];
            write_timestamp(&mut out, value, unit);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(0, TimeUnit::Second), "1970-01-01 00:00:00");
        assert_eq!(
            written(-1, TimeUnit::Millisecond),
            "1969-12-31 23:59:59.999"
        );
        assert_eq!(
            written(1, TimeUnit::Microsecond),
            "1970-01-01 00:00:00.000001"
        );
        assert_eq!(
            written(i64::MAX, TimeUnit::Nanosecond),
            "2262-04-11 23:47:16.854775807"
        );
        assert_eq!(
            written(i64::MIN, TimeUnit::Second).len(),
            "-292277022657-01-27 08:29:52".len()
        );
    }

    proptest! {
        #[test]
        fn dates_there_and_back(days in -10_000_000i64..10_000_000) {
            let (year, month, day) = date_of_days(days);
            prop_assert_eq!(days_of_date(year, month, day), days);
        }

        #[test]
        fn a_recent_date_changes_nothing(
            stamps in prop::collection::vec(
                "(1970-01-01|2024-02-29|2023-02-29|20[0-9]{2}-[01][0-9]-[0-3][0-9])([ T][0-2][0-9]:[0-6][0-9]\
                 (:[0-6][0-9:;]([.,][0-9]{0,10})?)?(Z|[+]0[0-9]:?00)?)?.?",
                1..10,
            ),
        ) {
            let mut recent = RecentDate::default();
            for text in stamps {
                let text = text.as_bytes();
                prop_assert_eq!(recent.parse_timestamp(text), parse_timestamp(text));
            }
        }

        #[test]
        fn usual_clocks_are_read_like_any(
            text in prop::array::uniform8(prop_oneof![b'0'..=b'9', b'0'..=b';', any::<u8>()]),
            colons in prop_oneof![9 => Just(true), 1 => Just(false)],
        ) {
            let mut text = text;
            if colons {
                (text[2], text[5]) = (b':', b':');
            }
            let numbers = (number(&text[..2]), number(&text[3..5]), number(&text[6..]));
            let expected = match numbers {
                (Some(hour @ 0..24), Some(minute @ 0..60), Some(second @ 0..60))
                    if text[2] == b':' && text[5] == b':' =>
                {
                    Some(i64::from(hour * 3_600 + minute * 60 + second))
                }
                _ => None,
            };
            prop_assert_eq!(usual_clock(text), expected);
        }

        #[test]
        fn timestamps_there_and_back(value in -62_167_219_200_000_000i64..253_402_300_800_000_000) {
            let mut out = vec![];
            write_timestamp(&mut out, value, TimeUnit::Microsecond);
            let read = parse_timestamp(&out).and_then(|t| t.in_unit(TimeUnit::Microsecond));
            prop_assert_eq!(read, Some(value));
        }

        #[test]
        fn never_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_timestamp(&text), parse_log_time(&text), parse_date(&text));
        }
    }
}
