//! Flink's date and time functions. All times are in UTC.

use std::sync::Arc;

use arrow_arith::temporal::{DatePart, date_part};
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_cast::parse::string_to_datetime;
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use chrono::{Datelike, Months, NaiveDateTime, Utc};

use super::clock;
use super::pattern::{Pattern, moment};
use super::rows::Rows;
use super::scalar::{Overload, Scalar};
use super::values::{Argument, Time, downcast, fits};
use crate::names::UNITS;

const PLAIN: &str = "yyyy-MM-dd HH:mm:ss";
const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Functions for fields of a time, patterns and differences.
pub(super) fn functions() -> Vec<Scalar> {
    let part = |name: &str, part: DatePart| Scalar::new(name).with(Part(part));
    let date_format =
        Scalar::new("date_format")
            .with(Formatted)
            .with(Rows::new(|text: &str, pattern: &str| {
                let time = string_to_datetime(&Utc, text).map_err(|error| error.to_string())?;
                Ok::<String, String>(Pattern::cached(pattern)?.write(time.naive_utc()))
            }));
    let from_unixtime = Scalar::new("from_unixtime")
        .with(Rows::new(|seconds: i64| from_seconds(seconds, PLAIN)))
        .with(Rows::new(from_seconds));
    let unix_timestamp = clock::unix_timestamp()
        .with(Rows::new(|text: &str| to_seconds(text, PLAIN)))
        .with(Rows::new(to_seconds));
    vec![
        part("year", DatePart::Year),
        part("quarter", DatePart::Quarter),
        part("month", DatePart::Month),
        part("week", DatePart::Week),
        part("dayofyear", DatePart::DayOfYear),
        part("dayofmonth", DatePart::Day).alias("day"),
        part("dayofweek", DatePart::DayOfWeekSunday0),
        part("hour", DatePart::Hour),
        part("minute", DatePart::Minute),
        part("second", DatePart::Second),
        date_format,
        from_unixtime,
        unix_timestamp,
        Scalar::new("timestampdiff").with(Rows::new(difference)),
        Scalar::new("timestampadd").with(Added),
    ]
}

// A closure could not take `&str` for any lifetime here; a function can.
fn from_seconds(seconds: i64, pattern: &str) -> Result<String, String> {
    let micros = seconds.checked_mul(1_000_000);
    let micros =
        micros.ok_or_else(|| format!("{seconds} s from 1970 is out of the range of times"))?;
    Ok(Pattern::cached(pattern)?.write(moment(micros)?))
}

fn to_seconds(text: &str, pattern: &str) -> Result<i64, String> {
    let time = Pattern::cached(pattern)?.read(text)?;
    Ok(time.and_utc().timestamp())
}

/// `HOUR(ts)`: a field of a time.
struct Part(DatePart);

impl Overload for Part {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        match given {
            [DataType::Timestamp(_, None) | DataType::Date32] => Some(given.to_vec()),
            [DataType::Null] => Some(vec![MICROS]),
            _ => None,
        }
    }

    fn result(&self, _: &[DataType]) -> DataType {
        DataType::Int64
    }

    fn call(&self, columns: &[ArrayRef], _: usize, result: &DataType) -> Result<ArrayRef, String> {
        let parts = date_part(&columns[0], self.0).map_err(|error| error.to_string())?;
        let parts = cast(&parts, result).map_err(|error| error.to_string())?;
        if self.0 != DatePart::DayOfWeekSunday0 {
            return Ok(parts);
        }
        // In SQL, day 1 of the week is Sunday.
        let days = parts.as_any().downcast_ref::<<i64 as Argument>::Column>();
        let days = days.ok_or("the days of the week are not numbers")?;
        Ok(Arc::new(
            days.unary::<_, arrow_array::types::Int64Type>(|day| day + 1),
        ))
    }

    fn shape(&self) -> String {
        "TIMESTAMP".to_string()
    }
}

/// `DATE_FORMAT(ts, 'yyyy-MM-dd')`.
struct Formatted;

impl Overload for Formatted {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        match given {
            [
                DataType::Timestamp(_, None) | DataType::Date32 | DataType::Null,
                pattern,
            ] if fits(pattern, &DataType::Utf8View) => Some(vec![MICROS, DataType::Utf8View]),
            _ => None,
        }
    }

    fn result(&self, _: &[DataType]) -> DataType {
        DataType::Utf8View
    }

    fn call(&self, columns: &[ArrayRef], rows: usize, _: &DataType) -> Result<ArrayRef, String> {
        let times = downcast::<PrimitiveArray<TimestampMicrosecondType>>(columns, 0)?;
        let patterns = downcast::<StringViewArray>(columns, 1)?;
        let strings = (0..rows).map(|row| {
            if times.is_null(row) || patterns.is_null(row) {
                return Ok(None);
            }
            let pattern = Pattern::cached(patterns.value(row))?;
            Ok(Some(pattern.write(moment(times.value(row))?)))
        });
        let strings = strings.collect::<Result<Vec<Option<String>>, String>>()?;
        Ok(Arc::new(StringViewArray::from_iter(strings)))
    }

    fn shape(&self) -> String {
        "TIMESTAMP, STRING".to_string()
    }

    fn check(&self, constants: &[Option<&str>]) -> Result<(), String> {
        match constants.get(1).copied().flatten() {
            Some(pattern) => Pattern::new(pattern).map(drop),
            None => Ok(()),
        }
    }
}

/// A unit of time: a number of months, or of microseconds.
enum Unit {
    Months(i64),
    Micros(i64),
}

const DAY_US: i64 = 86_400_000_000;

fn unit(name: &str) -> Result<Unit, String> {
    Ok(match name.to_uppercase().as_str() {
        "MICROSECOND" => Unit::Micros(1),
        "MILLISECOND" => Unit::Micros(1000),
        "SECOND" => Unit::Micros(1_000_000),
        "MINUTE" => Unit::Micros(60_000_000),
        "HOUR" => Unit::Micros(3_600_000_000),
        "DAY" => Unit::Micros(DAY_US),
        "WEEK" => Unit::Micros(7 * DAY_US),
        "MONTH" => Unit::Months(1),
        "QUARTER" => Unit::Months(3),
        "YEAR" => Unit::Months(12),
        other => {
            return Err(format!(
                "'{other}' is not a unit of time; the units are {}",
                UNITS.join(", ")
            ));
        }
    })
}

/// The number of whole units from one time to another.
fn difference(name: &str, from: Time, to: Time) -> Result<i64, String> {
    match unit(name)? {
        Unit::Micros(micros) => {
            let difference = to.micros.checked_sub(from.micros);
            Ok(difference.ok_or("the difference is too large")? / micros)
        }
        Unit::Months(months) => {
            let (from, to) = (moment(from.micros)?, moment(to.micros)?);
            Ok(whole_months(from, to) / months)
        }
    }
}

fn whole_months(from: NaiveDateTime, to: NaiveDateTime) -> i64 {
    let count = |time: NaiveDateTime| i64::from(time.year()) * 12 + i64::from(time.month0());
    let months = count(to) - count(from);
    let rest = |time: NaiveDateTime| (time.day(), time.time());
    // A month is complete on the same day and time.
    if months > 0 && rest(to) < rest(from) {
        months - 1
    } else if months < 0 && rest(to) > rest(from) {
        months + 1
    } else {
        months
    }
}

/// `TIMESTAMPADD(DAY, 3, ts)`.
struct Added;

impl Added {
    fn add(name: &str, count: i64, micros: i64, to_date: bool) -> Result<i64, String> {
        let too_far = || "the time is out of range".to_string();
        match unit(name)? {
            Unit::Micros(unit) if to_date && unit < DAY_US => {
                Err(format!("a DATE has no {name}: CAST it to TIMESTAMP"))
            }
            Unit::Micros(unit) => {
                let span = count.checked_mul(unit).ok_or_else(too_far)?;
                micros.checked_add(span).ok_or_else(too_far)
            }
            Unit::Months(unit) => {
                let months = count.checked_mul(unit).ok_or_else(too_far)?;
                let size = u32::try_from(months.unsigned_abs()).map_err(|_| too_far())?;
                let time = moment(micros)?;
                let moved = match months {
                    0.. => time.checked_add_months(Months::new(size)),
                    _ => time.checked_sub_months(Months::new(size)),
                };
                Ok(moved.ok_or_else(too_far)?.and_utc().timestamp_micros())
            }
        }
    }
}

impl Overload for Added {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        match given {
            [unit, count, time]
                if fits(unit, &DataType::Utf8View) && fits(count, &DataType::Int64) =>
            {
                let time = match time {
                    DataType::Timestamp(_, None) | DataType::Date32 => time.clone(),
                    DataType::Null => MICROS,
                    _ => return None,
                };
                Some(vec![DataType::Utf8View, DataType::Int64, time])
            }
            _ => None,
        }
    }

    fn result(&self, arguments: &[DataType]) -> DataType {
        arguments[2].clone()
    }

    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        result: &DataType,
    ) -> Result<ArrayRef, String> {
        let units = downcast::<StringViewArray>(columns, 0)?;
        let counts = downcast::<<i64 as Argument>::Column>(columns, 1)?;
        // Nanoseconds below a microsecond are added again later.
        let strict = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let micros =
            cast_with_options(&columns[2], &MICROS, &strict).map_err(|error| error.to_string())?;
        let back =
            cast_with_options(&micros, result, &strict).map_err(|error| error.to_string())?;
        let micros = downcast::<PrimitiveArray<TimestampMicrosecondType>>(&[micros], 0)?.clone();
        let to_date = result == &DataType::Date32;
        let moved = (0..rows).map(|row| {
            if units.is_null(row) || counts.is_null(row) || micros.is_null(row) {
                return Ok(None);
            }
            Added::add(
                units.value(row),
                counts.value(row),
                micros.value(row),
                to_date,
            )
            .map(Some)
        });
        let moved = moved.collect::<Result<Vec<Option<i64>>, String>>()?;
        let moved: ArrayRef = Arc::new(PrimitiveArray::<TimestampMicrosecondType>::from(moved));
        let moved =
            cast_with_options(&moved, result, &strict).map_err(|error| error.to_string())?;
        restore_below_micros(&columns[2], &back, moved, result)
    }

    fn shape(&self) -> String {
        "unit, BIGINT, TIMESTAMP".to_string()
    }
}

/// Adds the digits that a cast to microseconds has removed: `before - back`.
fn restore_below_micros(
    before: &ArrayRef,
    back: &ArrayRef,
    moved: ArrayRef,
    result: &DataType,
) -> Result<ArrayRef, String> {
    if !matches!(result, DataType::Timestamp(TimeUnit::Nanosecond, None)) {
        return Ok(moved);
    }
    type Nanos = PrimitiveArray<arrow_array::types::TimestampNanosecondType>;
    let columns = [Arc::clone(before), Arc::clone(back), moved];
    let column = |index| downcast::<Nanos>(&columns, index);
    let (before, back, moved) = (column(0)?, column(1)?, column(2)?);
    let nanos = (0..moved.len()).map(|row| {
        moved
            .is_valid(row)
            .then(|| moved.value(row) + (before.value(row) - back.value(row)))
    });
    Ok(Arc::new(Nanos::from_iter(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        let time = string_to_datetime(&Utc, text).unwrap();
        Time {
            micros: time.timestamp_micros(),
        }
    }

    #[test]
    fn months_are_complete_on_the_same_day_and_time() {
        let months = |from, to| difference("MONTH", time(from), time(to)).unwrap();
        assert_eq!(months("2024-01-31T10:00:00", "2024-02-29T10:00:00"), 0);
        assert_eq!(months("2024-01-15T10:00:00", "2024-02-15T10:00:00"), 1);
        assert_eq!(months("2024-01-15T10:00:00", "2024-02-15T09:59:59"), 0);
        assert_eq!(months("2024-02-15T10:00:00", "2024-01-15T10:00:01"), 0);
        assert_eq!(months("2024-02-15T10:00:00", "2023-02-15T10:00:00"), -12);
    }

    #[test]
    fn times_out_of_range_are_errors() {
        assert!(Added::add("YEAR", i64::MAX, 0, false).is_err());
        assert!(Added::add("YEAR", 300_000, 0, false).is_err());
        assert!(Added::add("DAY", i64::MAX, 0, false).is_err());
        assert!(Added::add("HOUR", 1, 0, true).is_err());
        assert!(difference("SECOND", Time { micros: i64::MIN }, Time { micros: 1 }).is_err());
    }
}
