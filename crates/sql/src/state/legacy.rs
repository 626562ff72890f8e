//! The identity of state before it had a format of its own: strings that contain names of types of the
//! engine, of Arrow 59 and of DataFusion 55.
//!
//! **Frozen.** These strings are in manifests of format 1. They are derived from the identity alone, so that
//! renaming types elsewhere does not change them. New kinds of state have no old form: their arm of a `match`
//! is `Vec::new()`.

use super::{
    Aggregate, AggregateForm, Column, Frame, Function, JoinKind, OverCall, OverFunction, Side,
    Sink, SortColumn, StateIdentity, TimedSide, Type, Unit, Window, WindowKind,
};
use crate::types::with_sql_types;

/// The aspects of a state in a manifest of format 1: names and values.
pub type Aspects = Vec<(String, String)>;

/// The aspects of a state with this identity.
pub fn aspects(identity: &StateIdentity) -> Aspects {
    let aspects = match identity {
        StateIdentity::Source(source) => vec![("connector", source.connector.clone())],
        StateIdentity::Sink(sink) => vec![("output", output(sink))],
        StateIdentity::Aggregate(state) => aggregate(state),
        StateIdentity::SessionRows(state) | StateIdentity::CountWindow(state) => vec![
            ("rows", columns(&state.rows)),
            ("keys", format!("{:?}", state.keys)),
            ("windows", windows(state.window)),
        ],
        StateIdentity::WindowJoin(join) => vec![
            ("rows", sides(&join.left, &join.right)),
            ("windows", windows(join.window)),
        ],
        StateIdentity::IntervalJoin(join) => {
            let side = |side: &TimedSide| {
                let rows = columns(&side.rows);
                format!("{rows} by {:?} at {}", side.keys, side.time)
            };
            let kind = join.broadcast.map_or(join_kind(join.kind), |_| "broadcast");
            vec![
                (
                    "rows",
                    format!("{}; {}", side(&join.left), side(&join.right)),
                ),
                (
                    "interval",
                    format!("{kind} [{}, {}]", join.from_us, join.to_us),
                ),
            ]
        }
        StateIdentity::TemporalJoin(join) => vec![
            (
                "keys",
                format!("[{:?}, {:?}]", join.stream_keys, join.table_keys),
            ),
            ("table", columns(&join.table)),
            ("columns", columns(&join.pair)),
        ],
        StateIdentity::StreamJoin(join) => {
            let mut kind = join_kind(join.kind).to_string();
            if join.settles {
                kind.push_str(", forgets rows that have a partner");
            }
            vec![("rows", sides(&join.left, &join.right)), ("kind", kind)]
        }
        StateIdentity::Over(over) => {
            let TimedSide { rows, keys, time } = &over.rows;
            let functions = over.functions.iter().map(over_call);
            let functions = functions.collect::<Vec<_>>().join(", ");
            vec![
                ("rows", format!("{} by {keys:?} at {time}", columns(rows))),
                ("functions", format!("[{functions}]")),
            ]
        }
        StateIdentity::FirstRows(state) => vec![
            ("rows", columns(&state.rows)),
            ("keys", format!("{:?}", state.keys)),
            ("order", order(&state.order)),
            ("kept", kept(state.kept)),
            ("windows", state.window.map_or("none".to_string(), windows)),
        ],
        StateIdentity::FinalRows(state) => vec![
            ("rows", columns(&state.rows)),
            ("order", order(&state.order)),
            ("kept", kept(state.kept)),
        ],
        // There were none at that time.
        StateIdentity::MaterializedView(_) | StateIdentity::Custom(_) => Vec::new(),
    };
    let aspects = aspects.into_iter();
    aspects
        .map(|(name, value)| (name.to_string(), value))
        .collect()
}

/// The difference between the aspects of a manifest of format 1 and an identity; `None` if they are equal.
pub fn difference(stored: &[(String, String)], identity: &StateIdentity) -> Option<String> {
    let now = aspects(identity);
    let value = |aspects: &[(String, String)], name: &str| {
        // An aggregation may have two aspects `form`, of which the first is compared.
        let found = aspects.iter().find(|(aspect, _)| aspect == name);
        found.map(|(_, value)| without_parameters(value))
    };
    let shown = |value: Option<String>| match value {
        Some(value) => format!("'{}'", with_sql_types(&value)),
        None => "nothing".to_string(),
    };
    stored.iter().chain(&now).find_map(|(aspect, _)| {
        let (was, is) = (value(stored, aspect), value(&now, aspect));
        (was != is).then(|| {
            let (was, is) = (shown(was), shown(is));
            format!("its state has other {aspect}: {was} before, {is} now")
        })
    })
}

/// The text without the parameters of DataFusion's own functions, which were printed as they are in memory.
/// The name, types and columns of the call are compared anyway.
fn without_parameters(text: &str) -> String {
    const PARAMETERS: &str = ", AggregateFunctionParams {";
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(PARAMETERS) {
        shown.push_str(&rest[..at]);
        rest = after_braces(&rest[at + PARAMETERS.len()..]);
    }
    shown + rest
}

/// The text after the closing brace of an open one. Strings in between may contain braces.
fn after_braces(text: &str) -> &str {
    let mut depth = 1;
    let (mut is_string, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_string => is_escaped = true,
            '"' => is_string = !is_string,
            '{' if !is_string => depth += 1,
            '}' if !is_string => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

fn output(sink: &Sink) -> String {
    let Sink {
        connector,
        place,
        table,
        column,
    } = sink;
    match (table, column) {
        (Some(table), _) => format!("{connector} {place}, table {table}"),
        (None, Some(column)) => format!("{connector} topics of '{column}'"),
        (None, None) if place.is_empty() => connector.clone(),
        (None, None) => format!("{connector} {place}"),
    }
}

fn aggregate(state: &Aggregate) -> Vec<(&'static str, String)> {
    let calls = state.aggregates.iter().map(|call| {
        let filter = if call.filter { " FILTER" } else { "" };
        let arguments = columns(&call.arguments);
        format!("{}({arguments}){filter}", function(&call.function))
    });
    let mut aspects = vec![
        ("keys", columns(&state.keys)),
        ("aggregates", calls.collect::<Vec<_>>().join(", ")),
        ("windows", state.window.map_or("none".to_string(), windows)),
    ];
    let form = match state.form {
        AggregateForm::Plain => None,
        AggregateForm::Refires => Some("emitted more than once"),
        AggregateForm::RefiresWithBefore => Some("emitted more than once, says what was before"),
        AggregateForm::TakesBack => Some("takes rows back"),
        AggregateForm::WithBefore => Some("says what was before"),
        AggregateForm::MergesSessions => Some("merges sessions"),
    };
    aspects.extend(form.map(|form| ("form", form.to_string())));
    aspects
}

fn function(callee: &Function) -> String {
    let debug = |data_type: &Type| arrow(data_type).debug;
    match callee {
        Function::Count => "Count".to_string(),
        Function::Sum { to } => format!("Sum {{ to: {} }}", debug(to)),
        Function::Average => "Average".to_string(),
        Function::Min { data_type } => {
            format!("Extreme {{ largest: false, of: {} }}", debug(data_type))
        }
        Function::Max { data_type } => {
            format!("Extreme {{ largest: true, of: {} }}", debug(data_type))
        }
        Function::First {
            ignore_nulls,
            data_type,
        } => first_last(false, *ignore_nulls, data_type),
        Function::Last {
            ignore_nulls,
            data_type,
        } => first_last(true, *ignore_nulls, data_type),
        Function::Quantile {
            fraction,
            data_type,
        } => {
            let fraction = fraction.parse::<f64>().unwrap_or(f64::NAN);
            let data_type = debug(data_type);
            format!("Quantile {{ fraction: {fraction:?}, of: {data_type} }}")
        }
        Function::Distinct {
            function: inner,
            arguments,
        } => {
            let (inner, arguments) = (function(inner), types(arguments));
            format!("Distinct {{ function: {inner}, arguments: [{arguments}] }}")
        }
        // A user's function has no types.
        Function::Other {
            function,
            arguments,
            ..
        } if arguments.is_empty() => format!("Other({function})"),
        Function::Other {
            function,
            arguments,
            ..
        } => format!("Other({function}([{}]))", types(arguments)),
    }
}

fn types(all: &[Type]) -> String {
    let all = all.iter().map(|data_type| arrow(data_type).debug);
    all.collect::<Vec<_>>().join(", ")
}

fn first_last(last: bool, ignore_nulls: bool, data_type: &Type) -> String {
    let data_type = arrow(data_type).debug;
    format!("FirstLast {{ last: {last}, ignore_nulls: {ignore_nulls}, of: {data_type} }}")
}

fn over_call(call: &OverCall) -> String {
    let function = match &call.function {
        OverFunction::Aggregate {
            function: callee,
            frame,
        } => {
            let frame = match frame {
                Frame::Rows(rows) => format!("Rows({rows:?})"),
                Frame::Range(us) => format!("Range({us:?})"),
            };
            let callee = function(callee);
            format!("Aggregate {{ function: {callee}, frame: {frame} }}")
        }
        OverFunction::RowNumber => "RowNumber".to_string(),
        OverFunction::Rank => "Rank".to_string(),
        OverFunction::DenseRank => "DenseRank".to_string(),
        OverFunction::Lag { offset, data_type } => {
            format!("Lag {{ offset: {offset}, of: {} }}", arrow(data_type).debug)
        }
    };
    let (arguments, filter) = (&call.arguments, &call.filter);
    format!("OverCall {{ function: {function}, arguments: {arguments:?}, filter: {filter:?} }}")
}

fn sides(left: &Side, right: &Side) -> String {
    let side = |side: &Side| format!("{} by {:?}", columns(&side.rows), side.keys);
    format!("{}; {}", side(left), side(right))
}

fn columns(columns: &[Column]) -> String {
    let columns = columns.iter();
    let columns =
        columns.map(|column| format!("{} {}", column.name, arrow(&column.data_type).display));
    columns.collect::<Vec<_>>().join(", ")
}

fn order(order: &[SortColumn]) -> String {
    let columns = order.iter().map(|column| {
        let SortColumn {
            column,
            descending,
            nulls_first,
        } = column;
        format!(
            "({column}, SortOptions {{ descending: {descending}, nulls_first: {nulls_first} }})"
        )
    });
    format!("[{}]", columns.collect::<Vec<_>>().join(", "))
}

fn kept(limit: Option<u64>) -> String {
    limit.map_or("all".to_string(), |rows| rows.to_string())
}

fn join_kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "Inner",
        JoinKind::Left => "Left",
        JoinKind::Right => "Right",
        JoinKind::Full => "Full",
        JoinKind::Semi => "Semi",
        JoinKind::Anti => "Anti",
    }
}

fn windows(window: Window) -> String {
    let kind = match window.kind {
        WindowKind::Aligned => "",
        WindowKind::Cumulating => "kind: Cumulating, ",
        WindowKind::Session => "kind: Session, ",
        WindowKind::Count => "kind: Count, ",
    };
    let unit = match window.unit {
        Unit::Second => "Second",
        Unit::Millisecond => "Millisecond",
        Unit::Microsecond => "Microsecond",
        Unit::Nanosecond => "Nanosecond",
    };
    let Window { size, slide, .. } = window;
    format!("Windows {{ {kind}size: {size}, slide: {slide}, unit: {unit} }}")
}

/// The name of a type in Arrow 59.
struct Arrow {
    /// `{}`
    display: String,
    /// `{:?}`
    debug: String,
}

impl Arrow {
    fn plain(name: &str) -> Arrow {
        Arrow {
            display: name.to_string(),
            debug: name.to_string(),
        }
    }

    fn of_unit(name: &str, decimals: &str, rest: &str) -> Arrow {
        let (short, long) = match decimals {
            "0" => ("s", "Second"),
            "3" => ("ms", "Millisecond"),
            "6" => ("µs", "Microsecond"),
            _ => ("ns", "Nanosecond"),
        };
        Arrow {
            display: format!("{name}({short})"),
            debug: format!("{name}({long}{rest})"),
        }
    }
}

#[cfg(test)]
pub(super) fn arrow_strings(data_type: &Type) -> (String, String) {
    let Arrow { display, debug } = arrow(data_type);
    (display, debug)
}

/// The Arrow type of a name of [`data_type`]. Tables and functions had no other types while manifests had
/// format 1.
fn arrow(data_type: &Type) -> Arrow {
    let name = data_type.0.as_str();
    let inner = |open: &str| name.strip_prefix(open)?.strip_suffix('>');
    let digits = |open: &str| name.strip_prefix(open)?.strip_suffix(')');
    if let Some(item) = inner("ARRAY<") {
        let (item, is_nullable) = item_of(item);
        let Arrow { display, debug } = arrow(&Type(item.to_string()));
        let (shown, nullable) = nullability(is_nullable);
        return Arrow {
            display: format!("List({shown}{display})"),
            debug: format!("List(Field {{ data_type: {debug}{nullable} }})"),
        };
    }
    if let Some(fields) = inner("ROW<") {
        let fields = fields_of(fields).into_iter().map(|(name, data_type)| {
            let (data_type, is_nullable) = item_of(data_type);
            let Arrow { display, debug } = arrow(&Type(data_type.to_string()));
            let (shown, nullable) = nullability(is_nullable);
            // Arrow omits the default name of an item.
            let named = match name.as_str() {
                "item" => String::new(),
                name => format!("name: {name:?}, "),
            };
            (
                format!("{name:?}: {shown}{display}"),
                format!("Field {{ {named}data_type: {debug}{nullable} }}"),
            )
        });
        let (display, debug): (Vec<String>, Vec<String>) = fields.unzip();
        return Arrow {
            display: format!("Struct({})", display.join(", ")),
            debug: format!("Struct([{}])", debug.join(", ")),
        };
    }
    if let Some(decimals) = digits("TIMESTAMP(") {
        return Arrow::of_unit("Timestamp", decimals, ", None");
    }
    if let Some(decimals) = digits("TIME(") {
        return Arrow::of_unit("Time64", decimals, "");
    }
    if let Some(decimals) = digits("TIME32(") {
        return Arrow::of_unit("Time32", decimals, "");
    }
    if let Some(decimals) = digits("DURATION(") {
        return Arrow::of_unit("Duration", decimals, "");
    }
    for (sql, arrow) in [("DECIMAL(", "Decimal128"), ("DECIMAL256(", "Decimal256")] {
        if let Some(digits) = digits(sql) {
            return Arrow::plain(&format!("{arrow}({digits})"));
        }
    }
    Arrow::plain(match name {
        "NULL" => "Null",
        "BOOLEAN" => "Boolean",
        "TINYINT" => "Int8",
        "SMALLINT" => "Int16",
        "INT" => "Int32",
        "BIGINT" => "Int64",
        "TINYINT UNSIGNED" => "UInt8",
        "SMALLINT UNSIGNED" => "UInt16",
        "INT UNSIGNED" => "UInt32",
        "BIGINT UNSIGNED" => "UInt64",
        "FLOAT16" => "Float16",
        "FLOAT" => "Float32",
        "DOUBLE" => "Float64",
        "DATE" => "Date32",
        "DATE64" => "Date64",
        "INTERVAL YEAR TO MONTH" => "Interval(YearMonth)",
        "INTERVAL DAY TO SECOND" => "Interval(DayTime)",
        "INTERVAL" => "Interval(MonthDayNano)",
        "BYTES" => "Binary",
        "BYTES64" => "LargeBinary",
        "BYTESVIEW" => "BinaryView",
        "STRING" => "Utf8View",
        "STRING32" => "Utf8",
        "STRING64" => "LargeUtf8",
        other => other,
    })
}

fn nullability(is_nullable: bool) -> (&'static str, &'static str) {
    match is_nullable {
        true => ("", ", nullable: true"),
        false => ("non-null ", ""),
    }
}

/// The name of a nested type, and whether it may be NULL.
fn item_of(text: &str) -> (&str, bool) {
    match text.strip_suffix(" NOT NULL") {
        Some(item) => (item, false),
        None => (text, true),
    }
}

/// The names and types of the fields in ROW<…>.
fn fields_of(text: &str) -> Vec<(String, &str)> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some(quoted) = rest.strip_prefix('`') {
        let mut name = String::new();
        let mut end = 0;
        let mut chars = quoted.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            match c {
                '`' if chars.next_if(|&(_, next)| next == '`').is_some() => name.push('`'),
                '`' => {
                    end = at + 1;
                    break;
                }
                c => name.push(c),
            }
        }
        let data_type = quoted[end..].trim_start();
        let length = end_of_type(data_type);
        fields.push((name, &data_type[..length]));
        rest = data_type[length..].trim_start_matches(", ");
    }
    fields
}

/// The end of the type at the start of a text: a comma outside of brackets and quoted names.
fn end_of_type(text: &str) -> usize {
    let (mut depth, mut is_name) = (0, false);
    for (at, c) in text.char_indices() {
        match c {
            '`' => is_name = !is_name,
            _ if is_name => {}
            '<' | '(' => depth += 1,
            '>' | ')' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}
