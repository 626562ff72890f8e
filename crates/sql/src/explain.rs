//! Texts for `explain`: expressions, windows and operators as a reader of SQL would write them.

use arrow_schema::{SchemaRef, TimeUnit};
use slackwater_engine::operator::aggregate::AggregateSpec;
use slackwater_engine::operator::changelog::final_rows::FinalSpec;
use slackwater_engine::operator::changelog::join::ChangelogJoinSpec;
use slackwater_engine::operator::changelog::top_n::TopNSpec;
use slackwater_engine::operator::interval_join::IntervalJoinSpec;
use slackwater_engine::operator::join::JoinSpec;
use slackwater_engine::operator::lookup_join::LookupJoinSpec;
use slackwater_engine::operator::over::{OverFunction, OverSpec};
use slackwater_engine::operator::table_join::{Only, STREAM, TABLE, TableJoinSpec};
use slackwater_engine::operator::window::{WindowKind, Windows};

use crate::types::with_sql_types;

mod expression;

pub use expression::{expression, literal};

/// `Int64(1)` as `1`, `Utf8("a")` as `'a'`, as they were written.
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
    while let Some((at, of)) = TYPES
        .iter()
        .filter_map(|of| rest.find(of).map(|at| (at, of)))
        .min_by_key(|(at, of)| (*at, usize::MAX - of.len()))
    {
        shown.push_str(&rest[..at]);
        rest = &rest[at + of.len()..];
        if let Some(inside) = rest.strip_prefix('"') {
            let Some((literal, after)) = inside.split_once("\")") else {
                shown.push_str(of);
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

/// Without the column numbers that DataFusion shows (`ip@3`) and the types around its constants
/// (`Int64(1)`).
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
    let shown = shown.replace("count(1)", "count(*)");
    // A column may be called like a type; what is computed is named by how.
    match shown.contains('(') {
        true => with_sql_types(&shown),
        false => shown,
    }
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

/// A duration in the largest unit that holds it as a whole number.
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

/// An interval as it could be typed: `INTERVAL '5' SECOND`, `INTERVAL '1 month 2 days'`.
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
        // Nothing at all is shown in seconds.
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

/// An aggregation over an input with the columns of `input`.
pub fn aggregate(spec: &AggregateSpec, input: &SchemaRef) -> String {
    let name = |index: &usize| readable(input.field(*index).name());
    let mut keys = spec.keys.iter().map(name).collect::<Vec<_>>();
    let kind = match &spec.window {
        Some(window) => {
            keys.insert(0, "window".to_string());
            let mut kind = self::windows(&window.windows);
            if let Some(refires) = &spec.refires {
                if let Some(every_ns) = refires.every_ns {
                    kind.push_str(&format!(
                        ", emitted {} after a change",
                        duration(every_ns.into())
                    ));
                }
                if refires.lateness_us > 0 {
                    let lateness = duration(i128::from(refires.lateness_us) * 1000);
                    kind.push_str(&format!(", {lateness} for late rows"));
                }
            }
            kind
        }
        None if spec.is_final() => "when the input has ended".to_string(),
        None => "running".to_string(),
    };
    let first = spec.schema.fields().len() - spec.calls.len();
    let calls = spec.schema.fields()[first..]
        .iter()
        .map(|field| readable(field.name()));
    let calls = calls.collect::<Vec<_>>().join(", ");
    let by = if keys.is_empty() {
        String::new()
    } else {
        format!(" by {}", keys.join(", "))
    };
    format!(
        "{kind}: {}{by}",
        if calls.is_empty() { "distinct" } else { &calls }
    )
}

/// A window join.
pub fn join(spec: &JoinSpec) -> String {
    let name = |side: usize, index: usize| spec.sides[side].schema.field(index).name();
    let pairs = spec.sides[0].keys.iter().zip(&spec.sides[1].keys);
    let mut on = pairs
        .map(|(&l, &r)| format!("{} = {}", name(0, l), name(1, r)))
        .collect::<Vec<_>>();
    if let Some(condition) = &spec.condition {
        on.push(format!("{condition:#?}"));
    }
    let kind = format!("{:?}", spec.kind).to_lowercase();
    let on = if on.is_empty() {
        "the same window".to_string()
    } else {
        on.join(" and ")
    };
    format!("{kind}, {}: {on}", windows(&spec.windows))
}

/// Functions of the rows before each row.
pub fn over(spec: &OverSpec) -> String {
    let name = |index: &usize| readable(spec.input.field(*index).name());
    let calls = &spec.schema.fields()[spec.input.fields().len()..];
    let calls = calls.iter().map(|field| field.name().as_str());
    let calls = calls.collect::<Vec<&str>>().join(", ");
    let keys = spec.keys.iter().map(name).collect::<Vec<_>>();
    let by = match keys.is_empty() {
        true => String::new(),
        false => format!(" by {}", keys.join(", ")),
    };
    format!("{calls}{by} in the order of {}", name(&spec.time_column))
}

/// One of them, of the name that the planner gives it: that says the rest of OVER once more.
pub fn over_call(name: &str, function: &OverFunction) -> String {
    let name = readable(name);
    let starts = [" PARTITION BY ", " ORDER BY ", " ROWS ", " RANGE "];
    let call = starts.iter().filter_map(|start| name.find(start)).min();
    let frame = [" ROWS BETWEEN ", " RANGE BETWEEN "];
    let frame = frame.iter().filter_map(|start| name.rfind(start)).max();
    match (call, frame, function) {
        (Some(call), Some(frame), OverFunction::Aggregate { .. }) => {
            format!("{}{}", &name[..call], &name[frame..])
        }
        (Some(call), ..) => name[..call].to_string(),
        _ => name,
    }
}

/// An interval join.
pub fn interval_join(spec: &IntervalJoinSpec) -> String {
    let name = |side: usize, index: usize| spec.sides[side].schema.field(index).name();
    let pairs = spec.sides[0].keys.iter().zip(&spec.sides[1].keys);
    let mut on = pairs
        .map(|(&l, &r)| format!("{} = {}", name(0, l), name(1, r)))
        .collect::<Vec<_>>();
    if let Some(condition) = &spec.condition {
        on.push(format!("{condition:#?}"));
    }
    let [left, right] = [0, 1].map(|side| name(side, spec.sides[side].time_column));
    let [least, most] = spec.bounds.map(|bound| duration(i128::from(bound) * 1000));
    let kind = format!("{:?}", spec.kind).to_lowercase();
    let on = on.iter().map(|on| format!(" and {on}")).collect::<String>();
    format!("{kind}: {right} - {left} from {least} to {most}{on}")
}

/// A join of a stream with columns `stream` with a table.
pub fn table_join(spec: &TableJoinSpec, stream: &SchemaRef) -> String {
    let pairs = spec.keys[STREAM].iter().zip(&spec.keys[TABLE]);
    let mut on = pairs
        .map(|(&l, &r)| {
            format!(
                "{} = {}",
                stream.field(l).name(),
                spec.table.field(r).name()
            )
        })
        .collect::<Vec<_>>();
    if let Some(condition) = &spec.condition {
        on.push(format!("{condition:#?}"));
    }
    let kind = match spec.only {
        Some(Only::WithPartner) => "semi",
        Some(Only::WithoutPartner) => "anti",
        Some(Only::NotAmong) => "not in",
        None if spec.keeps_unmatched => "left",
        None => "inner",
    };
    match on.is_empty() {
        true => format!("{kind}: every pair"),
        false => format!("{kind}: {}", on.join(" and ")),
    }
}

/// A join with what `table`, whose physical columns these are, has now.
pub fn lookup_join(spec: &LookupJoinSpec, stream: &SchemaRef, table: &SchemaRef) -> String {
    let pairs = spec.keys.iter().zip(&spec.request.keys);
    let on = pairs.map(|(&key, &column)| {
        format!(
            "{} = {}",
            stream.field(key).name(),
            table.field(column).name()
        )
    });
    let mut on = on.collect::<Vec<_>>();
    if let Some(condition) = &spec.condition {
        on.push(format!("{condition:#?}"));
    }
    let kind = match spec.keeps_unmatched {
        true => "left",
        false => "inner",
    };
    let place = spec.connector.describe();
    format!("{kind}: {}, in {place}", on.join(" and "))
}

/// A join of two streams.
pub fn changelog_join(spec: &ChangelogJoinSpec) -> String {
    let name = |side: usize, index: usize| spec.sides[side].schema.field(index).name();
    let pairs = spec.sides[0].keys.iter().zip(&spec.sides[1].keys);
    let mut on = pairs
        .map(|(&l, &r)| format!("{} = {}", name(0, l), name(1, r)))
        .collect::<Vec<_>>();
    if let Some(condition) = &spec.condition {
        on.push(format!("{condition:#?}"));
    }
    let kind = format!("{:?}", spec.kind).to_lowercase();
    match on.is_empty() {
        true => format!("{kind}: every pair"),
        false => format!("{kind}: {}", on.join(" and ")),
    }
}

/// The first rows of each partition.
pub fn top_n(spec: &TopNSpec) -> String {
    let name = |column: usize| readable(spec.input.field(column).name());
    let order = spec.order.iter().map(|(column, options)| {
        let descending = if options.descending { " DESC" } else { "" };
        format!("{}{descending}", name(*column))
    });
    let order = order.collect::<Vec<_>>().join(", ");
    let partition = spec.partition.iter().map(|&column| name(column));
    let partition = partition.collect::<Vec<_>>().join(", ");
    let by = if partition.is_empty() {
        String::new()
    } else {
        format!(" by {partition}")
    };
    let kind = if spec.window.is_some() {
        ", at the end of the window"
    } else {
        ""
    };
    format!("first {}{by} in order of {order}{kind}", spec.limit)
}

/// The rows that are left at the end.
pub fn final_rows(spec: &FinalSpec) -> String {
    let order = spec.order.iter().map(|(column, options)| {
        let name = readable(spec.schema.field(*column).name());
        let descending = if options.descending { " DESC" } else { "" };
        format!("{name}{descending}")
    });
    let order = order.collect::<Vec<_>>().join(", ");
    let mut text = match (spec.skip, spec.limit) {
        (0, None) => "all rows".to_string(),
        (0, Some(limit)) => format!("first {limit}"),
        (skip, None) => format!("all rows after the first {skip}"),
        (skip, Some(limit)) => format!("{limit} after the first {skip}"),
    };
    if !order.is_empty() {
        text.push_str(&format!(" in order of {order}"));
    }
    text + ", when the input has ended"
}

/// One row for each value of a PRIMARY KEY.
pub fn by_primary_key(spec: &TopNSpec) -> String {
    let names = spec.partition.iter();
    let names = names.map(|&column| readable(spec.input.field(column).name()));
    let names = names.collect::<Vec<_>>().join(", ");
    format!("one row for each {names}: of several that are there the greatest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_shown_as_they_were_written() {
        assert_eq!(
            without_literal_types(
                "bids.price + Int64(1) > coalesce(x,Utf8(\"a (b)\")) AND Boolean(true)"
            ),
            "bids.price + 1 > coalesce(x,'a (b)') AND TRUE"
        );
        assert_eq!(without_literal_types("UInt64(1), Int64(NULL"), "1, NULL");
    }

    #[test]
    fn column_numbers_and_types_of_constants_are_left_out() {
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
    fn intervals_as_they_could_be_typed() {
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
    fn constants_as_they_could_be_typed() {
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
    fn durations_in_the_largest_whole_unit() {
        assert_eq!(duration(30_000_000_000), "30 s");
        assert_eq!(duration(90_000_000_000), "90 s");
        assert_eq!(duration(3_600_000_000_000), "1 h");
        assert_eq!(duration(1_500), "1500 ns");
    }
}
