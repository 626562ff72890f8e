//! Spans of time, for people and as SQL.

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Units of SQL's INTERVAL above the second, the largest first.
const INTERVALS: [(u64, &str); 3] = [(DAY, "DAY"), (HOUR, "HOUR"), (MINUTE, "MINUTE")];

/// The units in which spans are shown, the largest first: for one and for several.
const UNITS: [(u64, &str, &str); 7] = [
    (365 * DAY, "year", "years"),
    (DAY, "day", "days"),
    (HOUR, "h", "h"),
    (MINUTE, "min", "min"),
    (SECOND, "s", "s"),
    (MS, "ms", "ms"),
    (1, "us", "us"),
];

/// A span in its two largest units; of seconds and less, with a tenth.
pub fn span(us: u64) -> String {
    let Some(at) = UNITS.iter().position(|(unit_us, ..)| us >= *unit_us) else {
        return "0 s".to_string();
    };
    let part = |at: usize, us: u64| {
        let (unit_us, one, several) = UNITS[at];
        let whole = us / unit_us;
        let name = if whole == 1 { one } else { several };
        (whole, format!("{whole} {name}"))
    };
    let (unit_us, name, _) = UNITS[at];
    let ((whole, text), rest) = (part(at, us), us % unit_us);
    let tenths = rest * 10 / unit_us;
    match unit_us <= SECOND {
        true if tenths > 0 => format!("{whole}.{tenths} {name}"),
        true => text,
        false => match part(at + 1, rest) {
            (0, _) => text,
            (_, smaller) => format!("{text} {smaller}"),
        },
    }
}

/// A span as SQL writes it: `INTERVAL '90' MINUTE`. It is exact.
pub fn interval(us: u64) -> String {
    let mut units = INTERVALS
        .iter()
        .filter(|(unit_us, _)| us > 0 && us.is_multiple_of(*unit_us));
    match units.next() {
        Some((unit_us, name)) => format!("INTERVAL '{}' {name}", us / unit_us),
        None => format!("INTERVAL '{}' SECOND", decimal(us, SECOND)),
    }
}

/// A span as options write it: `90 s`. It is exact.
pub fn option(us: u64) -> String {
    match us {
        0..SECOND => format!("{} ms", decimal(us, MS)),
        us => format!("{} s", decimal(us, SECOND)),
    }
}

/// A multiple of a power of ten, with all its digits.
fn decimal(us: u64, unit_us: u64) -> String {
    let width = unit_us.ilog10() as usize;
    let digits = format!("{}.{:0width$}", us / unit_us, us % unit_us);
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (us, text) in [
            (0, "0 s"),
            (7, "7 us"),
            (1_500, "1.5 ms"),
            (SECOND, "1 s"),
            (12_340 * MS, "12.3 s"),
            (90 * SECOND, "1 min 30 s"),
            (HOUR, "1 h"),
            (25 * HOUR, "1 day 1 h"),
            (3 * DAY, "3 days"),
            (366 * DAY, "1 year 1 day"),
        ] {
            assert_eq!(span(us), text);
        }
    }

    #[test]
    fn settings_are_exact() {
        assert_eq!(interval(0), "INTERVAL '0' SECOND");
        assert_eq!(interval(90 * MINUTE), "INTERVAL '90' MINUTE");
        assert_eq!(interval(2 * DAY), "INTERVAL '2' DAY");
        assert_eq!(interval(1_150), "INTERVAL '0.00115' SECOND");
        assert_eq!(interval(61 * SECOND), "INTERVAL '61' SECOND");
        assert_eq!(option(1_100), "1.1 ms");
        assert_eq!(option(65 * SECOND), "65 s");
    }
}
