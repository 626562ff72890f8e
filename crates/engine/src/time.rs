//! The two times of a stream, event time (in the data) and the engine's clock (of this host), and
//! durations as users write them.

use rustix::time::{ClockId, clock_gettime};

/// Event time in microseconds since 1970-01-01T00:00:00Z.
///
/// Finer time stamps are rounded down. Windows begin and end on whole microseconds, so
/// `window_end <= watermark` has the same answer for the rounded watermark as for the exact one.
pub type EventTime = i64;

/// The watermark before any row was seen: it closes nothing.
pub const MIN_WATERMARK: EventTime = i64::MIN;

/// The watermark of an input that has ended: it holds nobody back and closes every window.
pub const MAX_WATERMARK: EventTime = i64::MAX;

/// Nanoseconds on the engine's clock, `CLOCK_MONOTONIC`. All processes of a host share it; what travels to
/// other hosts is a stamp of the deployment's clock ([`crate::counters::clock`]).
///
/// Read per chunk, never per row: one call costs tens of nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // The kernel counts both from the start of the machine: neither is negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Measures consecutive steps with one reading of the clock for each: a step begins when the one before it
/// ended.
#[derive(Debug, Clone, Copy)]
pub struct Laps {
    last_ns: u64,
    /// Whether the last reading says nothing about the next step.
    is_old: bool,
}

impl Laps {
    /// Begins now.
    pub fn now() -> Laps {
        Laps::at(now_ns())
    }

    /// Begins at this time, which was read just now.
    pub fn at(now_ns: u64) -> Laps {
        Laps {
            last_ns: now_ns,
            is_old: false,
        }
    }

    /// Forgets the last reading: time passes that belongs to no step.
    pub fn forget(&mut self) {
        self.is_old = true;
    }

    /// Begins now, if the last reading was forgotten.
    pub fn begin(&mut self) {
        if self.is_old {
            *self = Laps::now();
        }
    }

    /// Ends a step: the time since the one before it ended, in nanoseconds.
    pub fn lap(&mut self) -> u64 {
        let before = std::mem::replace(self, Laps::now());
        self.last_ns.saturating_sub(before.last_ns)
    }

    /// The last reading of the clock.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }
}

/// Parses a duration such as `10 ms`, `5s`, `1 min`, `0.5 s`, `200us`, `PT10S` into nanoseconds. `None`
/// if it is not a valid duration, or longer than 2^63 nanoseconds (292 years).
pub fn parse_duration_ns(text: &str) -> Option<u64> {
    let text = text.trim();
    if text.starts_with(['P', 'p']) {
        return parse_iso_ns(text);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')?;
    let (number, unit) = text.split_at(digits);
    let number = number.replace('_', "");
    let unit_ns: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
        "us" | "µs" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
        "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "minute" | "minutes" => 60 * 1_000_000_000,
        "h" | "hour" | "hours" => 3_600 * 1_000_000_000,
        "d" | "day" | "days" => 86_400 * 1_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    // Nine digits reach a nanosecond of a second; for a day, further digits are below a microsecond.
    let fraction = &fraction[..fraction.len().min(9)];
    let scale = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = if fraction.is_empty() {
        0
    } else {
        fraction.parse().ok()?
    };
    let duration_ns =
        whole.checked_mul(u128::from(unit_ns))? + fraction * u128::from(unit_ns) / scale;
    u64::try_from(duration_ns)
        .ok()
        .filter(|&ns| ns <= i64::MAX as u64)
}

/// Parses an ISO 8601 duration, `P1DT2H30M5.5S`, without years and months, whose length is not fixed.
fn parse_iso_ns(text: &str) -> Option<u64> {
    let text = text[1..].to_ascii_uppercase();
    let (days, times) = text.split_once('T').unwrap_or((&text, ""));
    if days.is_empty() && times.is_empty() {
        return None;
    }
    let mut total_ns = 0_u64;
    for (mut part, units) in [(days, "D"), (times, "HMS")] {
        let mut left = units;
        while !part.is_empty() {
            let end = part.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, unit) = (&part[..end], &part[end..end + 1]);
            // Each unit once, the longest first.
            left = &left[left.find(unit)? + 1..];
            part = &part[end + 1..];
            total_ns = total_ns.checked_add(parse_duration_ns(&format!("{number} {unit}"))?)?;
        }
    }
    Some(total_ns).filter(|&ns| ns <= i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_follow_each_other() {
        let mut laps = Laps::at(now_ns() - 1_000_000);
        let begin = laps.last_ns();
        let (one, other) = (laps.lap(), laps.lap());
        assert!(one >= 1_000_000);
        assert_eq!(laps.last_ns(), begin + one + other);
        // A time that was forgotten counts for no step.
        let mut laps = Laps::at(0);
        laps.begin();
        assert_eq!(laps.last_ns(), 0);
        laps.forget();
        laps.begin();
        assert!(laps.last_ns() >= begin);
    }

    #[test]
    fn durations_in_all_units() {
        for (text, expected) in [
            ("10 ms", Some(10_000_000)),
            ("5 s", Some(5_000_000_000)),
            ("1 min", Some(60_000_000_000)),
            ("200us", Some(200_000)),
            ("1.5 s", Some(1_500_000_000)),
            ("7 ns", Some(7)),
            ("2 hours", Some(7_200_000_000_000)),
            ("2m", Some(120_000_000_000)),
            ("3 millis", Some(3_000_000)),
            ("PT10S", Some(10_000_000_000)),
            ("pt1.5s", Some(1_500_000_000)),
            ("P1DT2H3M4S", Some(93_784_000_000_000)),
            ("P2D", Some(172_800_000_000_000)),
            ("P", None),
            ("PT", None),
            ("P1Y", None),
            ("P1M", None),
            ("PT1S1M", None),
            ("PT10", None),
            ("PTS", None),
            ("PT-1S", None),
            ("Pé", None),
            ("10", None),
            ("ms", None),
            (". ms", None),
            ("-1 ms", None),
            ("1.2.3 s", None),
            ("99999999999999999999 d", None),
            ("340282366920938463463374607431768211455 d", None),
            ("", None),
        ] {
            assert_eq!(parse_duration_ns(text), expected, "{text}");
        }
    }
}
