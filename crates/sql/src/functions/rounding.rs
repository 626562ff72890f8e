//! `date_trunc('hour', ts)`, which is also `FLOOR(ts TO HOUR)`, `CEIL(ts TO HOUR)` and
//! `date_bin(length, ts)`. DataFusion's versions compute in nanoseconds, which end in 2262.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, IntervalMonthDayNanoType};
use arrow_array::{Array, ArrayRef, PrimitiveArray, StringViewArray};
use arrow_buffer::IntervalMonthDayNano;
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime};

use super::scalar::{Overload, Scalar};
use super::values::{downcast, fits};
use crate::names::CEIL;
use crate::types::INTERVAL;

const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The names of the units, for messages.
const UNITS: &str =
    "microsecond, millisecond, second, minute, hour, day, week, month, quarter, year";

const STRICT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: arrow_cast::display::FormatOptions::new(),
};

/// All three functions.
pub(super) fn functions() -> Vec<Scalar> {
    let rounded = |name: &str, up: bool| Scalar::new(name).with(Rounded { up });
    vec![
        rounded("date_trunc", false).alias("datetrunc"),
        rounded(CEIL, true),
        Scalar::new("date_bin").with(Binned),
    ]
}

#[derive(Clone, Copy)]
enum Unit {
    /// The unit's length in nanoseconds, and how much later than 1970 one of them starts.
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
        // 1970-01-01 was a Thursday.
        "week" => Ok(Unit::Fixed {
            ns: 7 * DAY_NS,
            from_ns: 4 * DAY_NS,
        }),
        "month" => Ok(Unit::Months(1)),
        "quarter" => Ok(Unit::Months(3)),
        "year" => Ok(Unit::Months(12)),
        other => Err(format!(
            "'{other}' is not a unit of time; the units are {UNITS}"
        )),
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

/// The last start of a unit at or before `time`, or the first at or after it. `None` if the result is out of
/// range.
fn round(time: i64, per_second: i64, unit: Unit, up: bool) -> Option<i64> {
    match unit {
        Unit::Fixed { ns, from_ns } => {
            let tick_ns = SECOND_NS / per_second;
            // Units smaller than a tick are a tick.
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

/// A function that rounds a time to the start of a unit.
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

    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        data_type: &DataType,
    ) -> Result<ArrayRef, String> {
        let units = downcast::<StringViewArray>(columns, 0)?;
        let failed = |error: arrow_schema::ArrowError| error.to_string();
        let (per_second, is_clock) = match data_type {
            DataType::Timestamp(unit, _) => (per_second(unit), false),
            DataType::Time32(unit) | DataType::Time64(unit) => (per_second(unit), true),
            _ => return Err("the argument is not a time".to_string()),
        };
        let is_seconds = matches!(data_type, DataType::Time32(_));
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
            let too_far = || "the time is out of range".to_string();
            rounded.ok_or_else(too_far).map(Some)
        });
        let rounded = rounded.collect::<Result<Vec<Option<i64>>, String>>()?;
        let mut rounded: ArrayRef = Arc::new(PrimitiveArray::<Int64Type>::from(rounded));
        if is_seconds {
            rounded = cast_with_options(&rounded, &DataType::Int32, &STRICT).map_err(failed)?;
        }
        cast_with_options(&rounded, data_type, &STRICT).map_err(failed)
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

/// The start of the bin that contains a time, where bins of a length are counted from an origin.
fn bin(time: i64, origin: i64, per_second: i64, length: IntervalMonthDayNano) -> Option<i64> {
    let IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    } = length;
    if months == 0 {
        let tick_ns = i128::from(SECOND_NS / per_second);
        let ns = i128::from(days) * i128::from(DAY_NS) + i128::from(nanoseconds);
        let since_ns = (i128::from(time) - i128::from(origin)) * tick_ns;
        let begin_ns = since_ns.div_euclid(ns) * ns;
        let start = i128::from(origin) + begin_ns.div_euclid(tick_ns);
        return i64::try_from(start).ok();
    }
    let moment = |ticks: i64| {
        let seconds = ticks.div_euclid(per_second);
        Some(DateTime::from_timestamp(seconds, 0)?.naive_utc())
    };
    let count = |time: NaiveDateTime| time.year() * 12 + time.month0() as i32;
    let (from, to) = (moment(origin)?, moment(time)?);
    let bins = (count(to) - count(from)).div_euclid(months);
    let start = |bins: i32| {
        let moved = bins.checked_mul(months)?;
        let size = Months::new(moved.unsigned_abs());
        let moved = match moved {
            0.. => from.checked_add_months(size)?,
            _ => from.checked_sub_months(size)?,
        };
        let below_second = origin.rem_euclid(per_second);
        moved
            .and_utc()
            .timestamp()
            .checked_mul(per_second)?
            .checked_add(below_second)
    };
    match start(bins)? {
        later if later > time => start(bins.checked_sub(1)?),
        start => Some(start),
    }
}

/// `date_bin(INTERVAL '15' MINUTE, ts)`, from 1970 or from another origin.
struct Binned;

impl Overload for Binned {
    fn fit(&self, given: &[DataType]) -> Option<Vec<DataType>> {
        let (length, time, origin) = match given {
            [length, time] => (length, time, None),
            [length, time, origin] => (length, time, Some(origin)),
            _ => return None,
        };
        let is_time = |data_type: &DataType| {
            let string = matches!(
                data_type,
                DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
            );
            string
                || matches!(
                    data_type,
                    DataType::Timestamp(_, None) | DataType::Date32 | DataType::Null
                )
        };
        let is_length = matches!(length, DataType::Interval(_) | DataType::Null);
        if !(is_length && is_time(time) && origin.is_none_or(is_time)) {
            return None;
        }
        let time = match time {
            DataType::Timestamp(_, None) => time.clone(),
            _ => MICROS,
        };
        let mut types = vec![INTERVAL, time.clone()];
        types.extend(origin.map(|_| time));
        Some(types)
    }

    fn result(&self, arguments: &[DataType]) -> DataType {
        arguments[1].clone()
    }

    fn call(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        data_type: &DataType,
    ) -> Result<ArrayRef, String> {
        let DataType::Timestamp(unit, _) = data_type else {
            return Err("the argument is not a time".to_string());
        };
        let lengths = downcast::<PrimitiveArray<IntervalMonthDayNanoType>>(columns, 0)?;
        let ticks = |column: &ArrayRef| {
            let ticks = cast_with_options(column, &DataType::Int64, &STRICT);
            let ticks = ticks.map_err(|error| error.to_string())?;
            Ok::<_, String>(ticks.as_primitive::<Int64Type>().clone())
        };
        let times = ticks(&columns[1])?;
        let origins = columns.get(2).map(ticks).transpose()?;
        let bins = (0..rows).map(|row| {
            let origin = match &origins {
                Some(origins) => origins.is_valid(row).then(|| origins.value(row)),
                None => Some(0),
            };
            let Some(origin) = origin.filter(|_| times.is_valid(row) && lengths.is_valid(row))
            else {
                return Ok(None);
            };
            let length = lengths.value(row);
            let rest =
                i128::from(length.days) * i128::from(DAY_NS) + i128::from(length.nanoseconds);
            if !matches!((length.months, rest), (0, 1..) | (1.., 0)) {
                return Err(
                    "the length of a bin is either in months or in days and smaller units"
                        .to_string(),
                );
            }
            let start = bin(times.value(row), origin, per_second(unit), length);
            start
                .ok_or_else(|| "the time is out of range".to_string())
                .map(Some)
        });
        let bins = bins.collect::<Result<Vec<Option<i64>>, String>>()?;
        let bins = PrimitiveArray::<Int64Type>::from(bins);
        cast_with_options(&bins, data_type, &STRICT).map_err(|error| error.to_string())
    }

    fn shape(&self) -> String {
        "INTERVAL, TIMESTAMP".to_string()
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
    fn exact_times_stay_and_others_are_rounded_up() {
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
    fn bins_are_counted_from_their_origin() {
        let days = |days| IntervalMonthDayNano::new(0, days, 0);
        let months = |months| IntervalMonthDayNano::new(months, 0, 0);
        assert_eq!(bin(-1, 0, 1, days(1)), Some(-86_400));
        assert_eq!(bin(100_000, 50_000, 1, days(1)), Some(50_000));
        assert_eq!(bin(100_000, 200_000, 1, days(1)), Some(27_200));
        assert_eq!(
            bin(95_630_630_400_001, 0, 1_000, days(1)),
            Some(95_630_630_400_000)
        );
        let day = 86_400;
        assert_eq!(bin(40 * day, 0, 1, months(1)), Some(31 * day));
        assert_eq!(bin(30 * day, 0, 1, months(1)), Some(0));
        assert_eq!(bin(-day, 0, 1, months(3)), Some(-92 * day));
        assert_eq!(bin(40 * day, 14 * day, 1, months(1)), Some(14 * day));
        assert_eq!(bin(i64::MIN, 0, 1, months(1)), None);
    }

    #[test]
    fn times_out_of_range_are_errors() {
        let month = unit("month").unwrap();
        assert_eq!(round(i64::MIN, 1_000, month, false), None);
        assert_eq!(
            round(i64::MAX, 1_000_000_000, unit("day").unwrap(), true),
            None
        );
        assert!(unit("fortnight").is_err());
    }
}
