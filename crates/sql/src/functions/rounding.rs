//! `date_trunc('hour', ts)`, which is also `FLOOR(ts TO HOUR)`, and `CEIL(ts TO HOUR)`. DataFusion's goes
//! through nanoseconds, which end in 2262.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, NaiveDate};

use super::scalar::{Overload, Scalar};
use super::values::{downcast, fits};

const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// What `CEIL(ts TO unit)` is written as.
pub(crate) const CEIL: &str = "date_ceil";

/// Units, for messages.
const UNITS: &str =
    "microsecond, millisecond, second, minute, hour, day, week, month, quarter, year";

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow_cast::display::FormatOptions::new(),
};

/// Both functions.
pub(super) fn functions() -> Vec<Scalar> {
    let rounded = |name: &str, up: bool| Scalar::new(name).with(Rounded { up });
    vec![
        rounded("date_trunc", false).alias("datetrunc"),
        rounded(CEIL, true),
    ]
}

#[derive(Clone, Copy)]
enum Unit {
    /// Nanoseconds, and how much later than 1970 one begins.
    Fixed {
        ns: i64,
        from_ns: i64,
    },
    Months(i32),
}

const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 86_400 * SECOND_NS;

fn unit(name: &str) -> Result<Unit, String> {
    let fixed = |ns: i64| Ok(Unit::Fixed { ns, from_ns: 0 });
    match name.to_ascii_lowercase().as_str() {
        "microsecond" => fixed(1_000),
        "millisecond" => fixed(1_000_000),
        "second" => fixed(SECOND_NS),
        "minute" => fixed(60 * SECOND_NS),
        "hour" => fixed(3_600 * SECOND_NS),
        "day" => fixed(DAY_NS),
        // 1970 began with a Thursday.
        "week" => Ok(Unit::Fixed {
            ns: 7 * DAY_NS,
            from_ns: 4 * DAY_NS,
        }),
        "month" => Ok(Unit::Months(1)),
        "quarter" => Ok(Unit::Months(3)),
        "year" => Ok(Unit::Months(12)),
        other => Err(format!("'{other}' is not a unit of time: {UNITS}")),
    }
}

fn per_second(unit: &TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => SECOND_NS,
    }
}

/// The last begin of a unit at or before `time`, or the first at or after it. `None` where no time is so far
/// away.
fn round(time: i64, per_second: i64, unit: Unit, up: bool) -> Option<i64> {
    match unit {
        Unit::Fixed { ns, from_ns } => {
            let tick_ns = SECOND_NS / per_second;
            // A time has no smaller parts than its ticks.
            let (size, from) = ((ns / tick_ns).max(1), from_ns / tick_ns);
            let into = time.checked_sub(from)?.rem_euclid(size);
            match into {
                0 => Some(time),
                _ if up => time.checked_add(size - into),
                _ => time.checked_sub(into),
            }
        }
        Unit::Months(months) => {
            let day_ticks = 86_400 * per_second;
            let seconds = time.div_euclid(per_second);
            let date = DateTime::from_timestamp(seconds, 0)?.date_naive();
            let month = date.year().checked_mul(12)? + date.month0() as i32;
            let first = month - month.rem_euclid(months);
            let ticks = |month: i32| {
                let year = month.div_euclid(12);
                let first = NaiveDate::from_ymd_opt(year, month.rem_euclid(12) as u32 + 1, 1)?;
                let days = first.signed_duration_since(NaiveDate::default()).num_days();
                days.checked_mul(day_ticks)
            };
            let floor = ticks(first)?;
            match up && floor < time {
                true => ticks(first.checked_add(months)?),
                false => Some(floor),
            }
        }
    }
}

/// A time rounded to the begin of a unit.
struct Rounded {
    up: bool,
}

impl Overload for Rounded {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let [unit, time] = given else { return None };
        if !fits(unit, &DataType::Utf8View) {
            return None;
        }
        let time = match time {
            DataType::Timestamp(_, None) | DataType::Time64(_) | DataType::Time32(_) => {
                time.clone()
            }
            DataType::Date32
            | DataType::Null
            | DataType::Utf8
            | DataType::Utf8View
            | DataType::LargeUtf8 => MICROS,
            _ => return None,
        };
        Some(vec![DataType::Utf8View, time])
    }

    fn result(&self, arguments: &[DataType]) -> DataType {
        arguments[1].clone()
    }

    fn call(&self, columns: &[ArrayRef], rows: usize, of: &DataType) -> Result<ArrayRef, String> {
        let units = downcast::<StringViewArray>(columns, 0)?;
        let failed = |error: arrow_schema::ArrowError| error.to_string();
        let (per_second, is_clock) = match of {
            DataType::Timestamp(unit, _) => (per_second(unit), false),
            DataType::Time32(unit) | DataType::Time64(unit) => (per_second(unit), true),
            _ => return Err("its argument is not a time".to_string()),
        };
        let is_seconds = matches!(of, DataType::Time32(_));
        let mut times = columns[1].clone();
        if is_seconds {
            times = cast_with_options(&times, &DataType::Int32, &STRICT).map_err(failed)?;
        }
        let times = cast_with_options(&times, &DataType::Int64, &STRICT).map_err(failed)?;
        let times = times.as_primitive::<Int64Type>();
        let rounded = (0..rows).map(|row| {
            if times.is_null(row) || units.is_null(row) {
                return Ok(None);
            }
            let name = units.value(row);
            let unit = unit(name)?;
            if is_clock && !matches!(unit, Unit::Fixed { ns, .. } if ns < DAY_NS) {
                return Err(format!("a TIME has no {name}"));
            }
            let rounded = round(times.value(row), per_second, unit, self.up);
            let too_far = || "the time is too far away".to_string();
            rounded.ok_or_else(too_far).map(Some)
        });
        let rounded = rounded.collect::<Result<Vec<Option<i64>>, String>>()?;
        let mut rounded: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(rounded));
        if is_seconds {
            rounded = cast_with_options(&rounded, &DataType::Int32, &STRICT).map_err(failed)?;
        }
        cast_with_options(&rounded, of, &STRICT).map_err(failed)
    }

    fn shape(&self) -> String {
        "unit, TIMESTAMP".to_string()
    }

    fn check(&self, constants: &[Option<&str>]) -> Result<(), String> {
        match constants.first().copied().flatten() {
            Some(name) => unit(name).map(drop),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(text: &str, name: &str, up: bool) -> String {
        let time = text.parse::<chrono::NaiveDateTime>().unwrap().and_utc();
        let millis = round(time.timestamp_millis(), 1_000, unit(name).unwrap(), up).unwrap();
        let time = DateTime::from_timestamp_millis(millis).unwrap();
        time.naive_utc().to_string()
    }

    #[test]
    fn times_before_1970_and_far_away_are_rounded() {
        let floor = |text, name| rounded(text, name, false);
        assert_eq!(
            floor("1969-12-31T23:59:59.500", "second"),
            "1969-12-31 23:59:59"
        );
        assert_eq!(
            floor("1969-12-31T23:59:59.500", "year"),
            "1969-01-01 00:00:00"
        );
        assert_eq!(
            floor("5000-06-01T12:00:00", "quarter"),
            "5000-04-01 00:00:00"
        );
        assert_eq!(floor("0001-01-01T00:00:00", "week"), "0001-01-01 00:00:00");
        assert_eq!(floor("2024-03-03T10:00:00", "week"), "2024-02-26 00:00:00");
        assert_eq!(
            floor("-0001-05-06T00:00:00", "year"),
            "-0001-01-01 00:00:00"
        );
    }

    #[test]
    fn what_lies_on_a_begin_stays_and_the_rest_goes_up() {
        let ceil = |text, name| rounded(text, name, true);
        assert_eq!(ceil("2024-03-01T00:00:00", "month"), "2024-03-01 00:00:00");
        assert_eq!(
            ceil("2024-12-01T00:00:00.001", "month"),
            "2025-01-01 00:00:00"
        );
        assert_eq!(
            ceil("1969-12-31T23:59:59.500", "minute"),
            "1970-01-01 00:00:00"
        );
        assert_eq!(ceil("9999-12-31T23:00:00", "day"), "+10000-01-01 00:00:00");
    }

    #[test]
    fn what_has_no_begin_is_an_error_and_not_another_time() {
        let month = unit("month").unwrap();
        assert_eq!(round(i64::MIN, 1_000, month, false), None);
        assert_eq!(
            round(i64::MAX, 1_000_000_000, unit("day").unwrap(), true),
            None
        );
        assert!(unit("fortnight").is_err());
    }
}
