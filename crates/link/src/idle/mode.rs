//! The modes of waiting, as users write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The permitted delay of [`WaitMode::Auto`] if none is given: a hundredth of other engines' default, and
/// long enough that sleeping costs at most 2 % of a core.
pub const DELAY_DEFAULT: Duration = Duration::from_millis(1);

/// The longest sleep, spin or permitted delay: beyond 10 s, a batch job is better.
pub const SLEEP_MAX: Duration = Duration::from_secs(10);

/// How a worker waits when it has found nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// Interrupts or sleeping, whichever costs less for what arrives: `auto`.
    Auto {
        /// How long a message may wait before the worker looks; the host's oversleep comes on top.
        delay: Duration,
    },
    /// Never waits: takes a whole core, and has the least delay: `poll`.
    Poll,
    /// Sleeps until it is woken: a wake-up per message at low rates, none in silence: `interrupt`.
    Interrupt,
    /// Sleeps for this long and finds what has come meanwhile; nobody has to wake it: `sleep:200us`.
    Sleep(Duration),
    /// Polls for this long, then waits to be woken: `spin:50us`.
    SpinThenPark {
        /// How long it polls.
        spin: Duration,
    },
    /// Polls a few times, then sleeps from 1 µs on, twice as long each time, up to about 1 ms:
    /// `backoff`.
    BackOff,
}

impl WaitMode {
    /// All modes as they are written, for messages.
    pub const WRITTEN: &'static str =
        "'auto', 'poll', 'interrupt', 'sleep:200us', 'spin:50us' or 'backoff'";
}

impl Default for WaitMode {
    fn default() -> WaitMode {
        WaitMode::Auto {
            delay: DELAY_DEFAULT,
        }
    }
}

/// The mode as it is written. The delay of `auto` is not part of it: it is a setting of its own.
impl fmt::Display for WaitMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitMode::Auto { .. } => formatter.write_str("auto"),
            WaitMode::Poll => formatter.write_str("poll"),
            WaitMode::Interrupt => formatter.write_str("interrupt"),
            WaitMode::Sleep(time) => write!(formatter, "sleep:{}", Written(*time)),
            WaitMode::SpinThenPark { spin } => write!(formatter, "spin:{}", Written(*spin)),
            WaitMode::BackOff => formatter.write_str("backoff"),
        }
    }
}

impl FromStr for WaitMode {
    type Err = WaitModeError;

    fn from_str(text: &str) -> Result<WaitMode, WaitModeError> {
        let (name, time) = match text.trim().split_once(':') {
            Some((name, time)) => (name.trim_end(), Some(time)),
            None => (text.trim(), None),
        };
        let duration = |time: &str| {
            parse(time.trim())
                .filter(|time| (Duration::from_nanos(1)..=SLEEP_MAX).contains(time))
                .ok_or(WaitModeError::Time)
        };
        match (name, time) {
            ("auto", None) => Ok(WaitMode::default()),
            ("poll", None) => Ok(WaitMode::Poll),
            ("interrupt", None) => Ok(WaitMode::Interrupt),
            ("sleep", Some(time)) => Ok(WaitMode::Sleep(duration(time)?)),
            ("spin", Some(time)) => Ok(WaitMode::SpinThenPark {
                spin: duration(time)?,
            }),
            ("backoff", None) => Ok(WaitMode::BackOff),
            ("sleep" | "spin", None) => Err(WaitModeError::Time),
            _ => Err(WaitModeError::Name),
        }
    }
}

/// Why a string is not a valid [`WaitMode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitModeError {
    /// There is no mode of that name, or it takes no time.
    Name,
    /// The time is missing, not a time, zero, or above [`SLEEP_MAX`].
    Time,
}

impl fmt::Display for WaitModeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitModeError::Name => {
                write!(formatter, "the way to wait must be {}", WaitMode::WRITTEN)
            }
            WaitModeError::Time => write!(
                formatter,
                "'sleep:' and 'spin:' need a time from 1 ns to {}, such as 'sleep:200us'",
                Written(SLEEP_MAX)
            ),
        }
    }
}

impl std::error::Error for WaitModeError {}

/// The units of times, the largest first.
const UNITS_NS: [(&str, u64); 5] = [
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

/// Parses `200us`, `1.5 ms`, `2s`. The engine parses durations of SQL, but this crate can't use it and
/// needs fewer units.
fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, unit_ns) = UNITS_NS.iter().find(|(name, _)| *name == unit)?;
    // Digits and points only: neither negative nor infinite nor NaN.
    let nanoseconds = number.parse::<f64>().ok()? * *unit_ns as f64;
    // Above 2^63 the conversion saturates, which is above every limit.
    Some(Duration::from_nanos(nanoseconds.round() as u64))
}

/// A time, written in the largest unit in which it is whole.
struct Written(Duration);

impl fmt::Display for Written {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        let (name, unit_ns) = UNITS_NS
            .iter()
            .find(|(_, unit_ns)| nanoseconds.is_multiple_of(u128::from(*unit_ns)))
            .expect("the last unit is one nanosecond");
        write!(formatter, "{}{name}", nanoseconds / u128::from(*unit_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for text in [
            "auto",
            "poll",
            "interrupt",
            "sleep:200us",
            "sleep:1ms",
            "sleep:10s",
            "sleep:1500ns",
            "spin:50us",
            "backoff",
        ] {
            let mode = text.parse::<WaitMode>().unwrap();
            assert_eq!(mode.to_string(), text);
        }
        for text in [" sleep : 0.2 ms ", "sleep:200µs", "sleep:200 us"] {
            let mode = text.parse::<WaitMode>();
            assert_eq!(mode, Ok(WaitMode::Sleep(Duration::from_micros(200))));
        }
    }

    #[test]
    fn an_invalid_mode_is_an_error_that_lists_the_modes() {
        for text in ["", "Auto", "sleeping", "poll:1ms", "auto:1ms", "sleep 1 ms"] {
            let error = text.parse::<WaitMode>().unwrap_err();
            assert_eq!(error, WaitModeError::Name, "{text}");
            assert!(error.to_string().contains("'interrupt'"));
        }
        for text in [
            "sleep",
            "sleep:",
            "sleep:0us",
            "sleep:200",
            "sleep:-1ms",
            "sleep:1.2.3ms",
            "sleep:10001ms",
            "sleep:99999999999999999999999s",
            "sleep:1h",
            "spin",
            "spin:us",
        ] {
            let error = text.parse::<WaitMode>().unwrap_err();
            assert_eq!(error, WaitModeError::Time, "{text}");
            assert!(error.to_string().contains("to 10s"), "{error}");
        }
    }
}
