//! Dates, times and intervals as PostgreSQL writes them (DateStyle ISO), for every value that Arrow can hold.

use std::fmt::Write as _;

const MICROS_OF_SECOND: i64 = 1_000_000;
const MICROS_OF_DAY: i64 = 86_400 * MICROS_OF_SECOND;

/// A length of time in months, days, and microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub micros: i64,
}

/// Year, month and day of a day since 1970 in the Gregorian calendar (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The days since 1970 of a date such as `2024-02-29`.
pub fn days(date: &str) -> Option<i64> {
    let mut parts = date.split('-').map(|part| part.parse::<i64>().ok());
    let mut part = || parts.next().flatten();
    let (year, month, day) = (part()?, part()?, part()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1..=9_999).contains(&year) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted.div_euclid(400), shifted.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(arguments);
    debug_assert!(written.is_ok(), "a string takes everything");
}

/// The date, and whether it is before the year 1, which is said at the very end.
fn date(days: i64, out: &mut String) -> bool {
    let (year, month, day) = civil(days);
    let shown = if year > 0 { year } else { 1 - year };
    put(out, format_args!("{shown:04}-{month:02}-{day:02}"));
    year <= 0
}

/// `2024-02-29`.
pub fn write_date(days: i64, out: &mut String) {
    if date(days, out) {
        out.push_str(" BC");
    }
}

/// `12:34:56.789`.
pub fn write_time(micros: i64, out: &mut String) {
    let seconds = micros.div_euclid(MICROS_OF_SECOND);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    put(
        out,
        format_args!("{hours:02}:{minutes:02}:{:02}", seconds % 60),
    );
    let fraction = micros.rem_euclid(MICROS_OF_SECOND);
    if fraction > 0 {
        let digits = format!("{fraction:06}");
        put(out, format_args!(".{}", digits.trim_end_matches('0')));
    }
}

/// `2024-02-29 12:34:56.789`, and `+00` if it has a time zone: all times are UTC.
pub fn write_timestamp(micros: i64, zone: bool, out: &mut String) {
    let before_christ = date(micros.div_euclid(MICROS_OF_DAY), out);
    out.push(' ');
    write_time(micros.rem_euclid(MICROS_OF_DAY), out);
    out.push_str(if zone { "+00" } else { "" });
    out.push_str(if before_christ { " BC" } else { "" });
}

impl Interval {
    pub fn new(months: i32, days: i32, micros: i64) -> Interval {
        Interval {
            months,
            days,
            micros,
        }
    }

    /// `1 year 2 mons 3 days 04:05:06`.
    pub fn write(self, out: &mut String) {
        let start = out.len();
        let (years, months) = (self.months / 12, self.months % 12);
        for (count, unit) in [(years, "year"), (months, "mon"), (self.days, "day")] {
            if count != 0 {
                let space = if out.len() > start { " " } else { "" };
                let plural = if count == 1 { "" } else { "s" };
                put(out, format_args!("{space}{count} {unit}{plural}"));
            }
        }
        if self.micros != 0 || out.len() == start {
            out.push_str(if out.len() > start { " " } else { "" });
            out.push_str(if self.micros < 0 { "-" } else { "" });
            // The smallest number has no positive one: it is shown a microsecond shorter.
            write_time(self.micros.saturating_abs(), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(micros: i64, zone: bool) -> String {
        let mut out = String::new();
        write_timestamp(micros, zone, &mut out);
        out
    }

    #[test]
    fn times_are_written_as_postgresql_does() {
        assert_eq!(timestamp(0, false), "1970-01-01 00:00:00");
        assert_eq!(
            timestamp(1_709_210_096_789_000, true),
            "2024-02-29 12:34:56.789+00"
        );
        assert_eq!(timestamp(-1, false), "1969-12-31 23:59:59.999999");
        assert_eq!(
            timestamp(-62_135_596_800_000_001, true),
            "0001-12-31 23:59:59.999999+00 BC"
        );
        assert_eq!(timestamp(i64::MAX, false), "294247-01-10 04:00:54.775807");
        assert_eq!(days("2024-02-29"), Some(19_782));
        let mut out = String::new();
        write_date(19_782, &mut out);
        assert_eq!(out, "2024-02-29");
        out.clear();
        write_date(i64::from(i32::MIN), &mut out);
        assert_eq!(out, "5877642-06-23 BC");
    }

    #[test]
    fn intervals_are_written_as_postgresql_does() {
        let text = |months, days, micros| {
            let mut out = String::new();
            Interval::new(months, days, micros).write(&mut out);
            out
        };
        assert_eq!(text(0, 0, 0), "00:00:00");
        assert_eq!(
            text(14, 3, 14_706_500_000),
            "1 year 2 mons 3 days 04:05:06.5"
        );
        assert_eq!(text(-1, 1, -1_000_000), "-1 mons 1 day -00:00:01");
        assert_eq!(text(0, 0, 360_000_000_000), "100:00:00");
    }
}
