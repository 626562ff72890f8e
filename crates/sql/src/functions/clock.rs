//! Functions that read the clock. They return the time at which a row is processed, as in Flink's streaming
//! mode. A query that uses them may give another answer in every run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::{ArrayRef, Date32Array, Int64Array, TimestampMillisecondArray};
use arrow_schema::{DataType, TimeUnit};

use super::scalar::{Columns, Scalar};

/// Milliseconds since 1970, which never decrease: if the clock were set back, rows with this event time would
/// be late.
fn now_ms() -> i64 {
    static LATEST: AtomicI64 = AtomicI64::new(i64::MIN);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_millis() as i64);
    // Relaxed: nothing else depends on this number.
    LATEST.fetch_max(now, Ordering::Relaxed).max(now)
}

/// A function without arguments that reads the clock once for all rows of a chunk.
fn reading(
    name: &str,
    result: DataType,
    column: impl Fn(i64, usize) -> ArrayRef + Send + Sync + 'static,
) -> Scalar {
    Scalar::new(name).not_deterministic().with(Columns {
        arguments: Vec::new(),
        result,
        function: move |_: &[ArrayRef], rows| Ok(column(now_ms(), rows)),
    })
}

/// PROCTIME, CURRENT_TIMESTAMP and related functions.
pub(super) fn functions() -> Vec<Scalar> {
    let time = |name: &str| {
        let result = DataType::Timestamp(TimeUnit::Millisecond, None);
        reading(name, result, |now, rows| {
            Arc::new(TimestampMillisecondArray::from_value(now, rows))
        })
    };
    let date = reading("current_date", DataType::Date32, |now, rows| {
        let days = now.div_euclid(86_400_000) as i32;
        Arc::new(Date32Array::from_value(days, rows))
    });
    vec![
        time("proctime"),
        time("now")
            .alias("current_timestamp")
            .alias("current_row_timestamp"),
        time("localtimestamp"),
        date.alias("today"),
    ]
}

/// `UNIX_TIMESTAMP()`: seconds since 1970.
pub(super) fn unix_timestamp() -> Scalar {
    reading("unix_timestamp", DataType::Int64, |now, rows| {
        Arc::new(Int64Array::from_value(now.div_euclid(1000), rows))
    })
}
