//! Expressions, columns and windows as EXPLAIN shows them, in SQL.

use arrow_schema::{Schema, TimeUnit};
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::window::{WindowKind, Windows};

use crate::types::with_sql_casts;

mod expression;

pub use expression::{expression, literal};

/// The text without the types of literals: `Int64(1)` becomes `1`, `Utf8("a")` becomes `'a'`.
pub fn without_literal_types(text: &str) -> String {
    const TYPES: &[&str] = &[
        "UInt64(",
        "UInt32(",
        "Int64(",
        "Int32(",
        "Int16(",
        "Int8(",
        "Float64(",
        "Float32(",
        "LargeUtf8(",
        "Utf8View(",
        "Utf8(",
        "Boolean(",
    ];
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, data_type)) = TYPES
        .iter()
        .filter_map(|data_type| rest.find(data_type).map(|at| (at, data_type)))
        .min_by_key(|(at, data_type)| (*at, usize::MAX - data_type.len()))
    {
        shown.push_str(&rest[..at]);
        rest = &rest[at + data_type.len()..];
        if let Some(inside) = rest.strip_prefix('"') {
            let Some((literal, after)) = inside.split_once("\")") else {
                shown.push_str(data_type);
                continue;
            };
            shown.push_str(&format!("'{literal}'"));
            rest = after;
        } else if let Some((literal, after)) = rest.split_once(')') {
            match literal {
                "true" | "false" => shown.push_str(&literal.to_uppercase()),
                literal => shown.push_str(literal),
            }
            rest = after;
        }
    }
    shown + rest
}

/// The text without DataFusion's column numbers (`ip@3`) and without the types of constants (`Int64(1)`).
pub fn readable(text: &str) -> String {
    let text = without_literal_types(text);
    let mut shown = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let number_follows = characters.peek().is_some_and(char::is_ascii_digit);
        if character == '@' && number_follows {
            while characters.peek().is_some_and(char::is_ascii_digit) {
                characters.next();
            }
        } else {
            shown.push(character);
        }
    }
    // A column may have the name of a type: only the target of a cast is replaced.
    with_sql_casts(&shown.replace("count(1)", "count(*)"))
}

/// The names of columns as SQL would write them.
pub fn names(columns: &[usize], schema: &Schema) -> String {
    let names = columns.iter();
    let names = names.map(|&column| readable(schema.field(column).name()));
    names.collect::<Vec<String>>().join(", ")
}

/// The columns that rows are ordered by.
pub fn order(order: &RowOrder, schema: &Schema) -> String {
    let order = order.iter().map(|(column, options)| {
        let name = readable(schema.field(*column).name());
        let descending = if options.descending { " DESC" } else { "" };
        format!("{name}{descending}")
    });
    order.collect::<Vec<_>>().join(", ")
}

/// `tumbling 30 s`, `sliding 1 min every 10 s`, `sessions, gap 30 min`.
pub fn windows(windows: &Windows) -> String {
    let length = |ticks: i64| {
        let tick_ns: i128 = match windows.unit {
            TimeUnit::Second => 1_000_000_000,
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
            TimeUnit::Nanosecond => 1,
        };
        duration(i128::from(ticks) * tick_ns)
    };
    let (size, slide) = (windows.size, windows.slide);
    match windows.kind {
        WindowKind::Aligned if size == slide => format!("tumbling {}", length(size)),
        WindowKind::Aligned => format!("sliding {} every {}", length(size), length(slide)),
        WindowKind::Cumulating => format!("cumulating {} by {}", length(size), length(slide)),
        WindowKind::Session => format!("sessions, gap {}", length(size)),
        WindowKind::Count if size == slide => format!("windows of {size} rows"),
        WindowKind::Count => format!("windows of {size} rows every {slide}"),
    }
}

/// A duration in the largest unit in which it is a whole number.
pub fn duration(nanoseconds: i128) -> String {
    let units: [(i128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let (unit_ns, unit) = units
        .into_iter()
        .find(|(unit_ns, _)| nanoseconds % unit_ns == 0)
        .unwrap_or((1, "ns"));
    format!("{} {unit}", nanoseconds / unit_ns)
}

/// An interval as a SQL literal: `INTERVAL '5' SECOND`, `INTERVAL '1 month 2 days'`.
pub fn interval(months: i128, days: i128, nanoseconds: i128) -> String {
    let units = [
        (60 * 60 * 1_000_000_000, "HOUR"),
        (60 * 1_000_000_000, "MINUTE"),
        (1_000_000_000, "SECOND"),
        (1_000_000, "MILLISECOND"),
        (1_000, "MICROSECOND"),
        (1, "NANOSECOND"),
    ];
    let mut parts = vec![];
    if months != 0 {
        parts.push((months, "MONTH"));
    }
    if days != 0 {
        parts.push((days, "DAY"));
    }
    if nanoseconds != 0 || parts.is_empty() {
        let unit = units.iter().find(|(unit_ns, _)| nanoseconds % unit_ns == 0);
        let &(unit_ns, unit) = unit.unwrap_or(&(1, "NANOSECOND"));
        // A length of zero is shown in seconds.
        let unit = if nanoseconds == 0 { "SECOND" } else { unit };
        parts.push((nanoseconds / unit_ns, unit));
    }
    match parts.as_slice() {
        [(count, unit)] => format!("INTERVAL '{count}' {unit}"),
        several => {
            let several = several
                .iter()
                .map(|(count, unit)| format!("{count} {}", unit.to_lowercase()));
            format!("INTERVAL '{}'", several.collect::<Vec<_>>().join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_have_no_types() {
        assert_eq!(
            without_literal_types(
                "bids.price + Int64(1) > coalesce(x,Utf8(\"a (b)\")) AND Boolean(true)"
            ),
            "bids.price + 1 > coalesce(x,'a (b)') AND TRUE"
        );
        assert_eq!(without_literal_types("UInt64(1), Int64(NULL"), "1, NULL");
    }

    #[test]
    fn column_numbers_and_types_of_constants_are_omitted() {
        assert_eq!(
            readable("ip@3 = me@home AND n@12 > 1"),
            "ip = me@home AND n > 1"
        );
        assert_eq!(
            readable("count(Int64(1)) FILTER (a >= Int32(60))"),
            "count(*) FILTER (a >= 60)"
        );
    }

    #[test]
    fn intervals_are_sql_literals() {
        let hour = 3_600_000_000_000;
        assert_eq!(interval(0, 0, 2 * hour), "INTERVAL '2' HOUR");
        assert_eq!(interval(0, 1, 0), "INTERVAL '1' DAY");
        assert_eq!(interval(14, -2, 0), "INTERVAL '14 month -2 day'");
        assert_eq!(
            interval(0, 1, hour + 1_000_000),
            "INTERVAL '1 day 3600001 millisecond'"
        );
        assert_eq!(interval(0, 0, 0), "INTERVAL '0' SECOND");
    }

    #[test]
    fn constants_are_sql_literals() {
        use datafusion_common::ScalarValue;
        for (value, expected) in [
            (ScalarValue::from("it's"), "'it''s'"),
            (ScalarValue::Boolean(Some(true)), "TRUE"),
            (ScalarValue::Int64(None), "NULL"),
            (ScalarValue::Int64(Some(-5)), "-5"),
            (ScalarValue::Date32(Some(19_782)), "DATE '2024-02-29'"),
            (
                ScalarValue::TimestampMillisecond(Some(1_709_210_096_789), None),
                "TIMESTAMP '2024-02-29 12:34:56.789'",
            ),
            (
                ScalarValue::DurationMicrosecond(Some(5_000_000)),
                "INTERVAL '5' SECOND",
            ),
        ] {
            assert_eq!(literal(&value), expected);
        }
    }

    #[test]
    fn durations_use_the_largest_whole_unit() {
        assert_eq!(duration(30_000_000_000), "30 s");
        assert_eq!(duration(90_000_000_000), "90 s");
        assert_eq!(duration(3_600_000_000_000), "1 h");
        assert_eq!(duration(1_500), "1500 ns");
    }
}
