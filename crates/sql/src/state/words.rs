//! The difference between two identities, in words for a user of SQL.

use super::{
    AggregateForm, Call, Column, CustomInput, Frame, Function, JoinKind, OverCall, OverFunction,
    Side, Sink, SortColumn, StateIdentity, TimedSide, Unit, Window, WindowKind,
};
use crate::explain::{duration, interval};

/// The difference between two identities; `None` if they are equal.
pub fn difference(before: &StateIdentity, now: &StateIdentity) -> Option<String> {
    if before == now {
        return None;
    }
    let (was, is) = (before.noun(), now.noun());
    if was != is {
        return Some(format!("it was {was}, and is {is}"));
    }
    let (before, now) = (before.aspects(), now.aspects());
    let pairs = before.into_iter().zip(now);
    let mut differ = pairs.filter(|(before, now)| before != now);
    Some(match differ.next() {
        Some(((aspect, was), (_, is))) => {
            format!("its state has other {aspect}: '{was}' before, '{is}' now")
        }
        None => "its state has another form".to_string(),
    })
}

impl StateIdentity {
    fn noun(&self) -> &'static str {
        match self {
            StateIdentity::Source(_) => "a source",
            StateIdentity::Sink(_) => "a sink",
            StateIdentity::Aggregate(_) => "an aggregation",
            StateIdentity::SessionRows(_) => "a session window",
            StateIdentity::CountWindow(_) => "a count window",
            StateIdentity::WindowJoin(_) => "a window join",
            StateIdentity::IntervalJoin(_) => "an interval join",
            StateIdentity::TemporalJoin(_) => "a temporal join",
            StateIdentity::StreamJoin(_) => "a join of streams",
            StateIdentity::Over(_) => "an OVER",
            StateIdentity::FirstRows(_) => "a top-N",
            StateIdentity::FinalRows(_) => "an ORDER BY",
            StateIdentity::MaterializedView(_) => "a materialized view",
            StateIdentity::Custom(_) => "an operator of the program's own",
        }
    }

    /// The parts of an identity, under names that users know; equal operators have equal names.
    fn aspects(&self) -> Vec<(&'static str, String)> {
        match self {
            StateIdentity::Source(source) => vec![("connector", source.connector.clone())],
            StateIdentity::Sink(sink) => vec![("output", output(sink))],
            StateIdentity::Aggregate(state) => vec![
                ("keys", columns(&state.keys)),
                ("aggregates", list(&state.aggregates, call)),
                ("windows", state.window.map_or("none".to_string(), window)),
                ("form", form(state.form).to_string()),
            ],
            StateIdentity::SessionRows(state) | StateIdentity::CountWindow(state) => vec![
                ("rows", columns(&state.rows)),
                ("keys", names(&state.rows, &state.keys)),
                ("windows", window(state.window)),
            ],
            StateIdentity::WindowJoin(join) => vec![
                ("rows", sides(&join.left, &join.right)),
                ("windows", window(join.window)),
            ],
            StateIdentity::IntervalJoin(join) => vec![
                (
                    "rows",
                    format!("{}; {}", timed(&join.left), timed(&join.right)),
                ),
                (
                    "interval",
                    format!(
                        "{}, from {} to {}",
                        join_kind(join.kind),
                        us(join.from_us),
                        us(join.to_us)
                    ),
                ),
                (
                    "broadcast",
                    match join.broadcast {
                        None => "no side".to_string(),
                        Some(0) => "the left side".to_string(),
                        Some(_) => "the right side".to_string(),
                    },
                ),
            ],
            StateIdentity::TemporalJoin(join) => vec![
                (
                    "keys",
                    format!(
                        "{} = {}",
                        names(&join.pair, &join.stream_keys),
                        names(&join.table, &join.table_keys)
                    ),
                ),
                ("table", columns(&join.table)),
                ("columns", columns(&join.pair)),
            ],
            StateIdentity::StreamJoin(join) => {
                let forgets = match join.settles {
                    true => ", discards rows with a partner",
                    false => "",
                };
                vec![
                    ("rows", sides(&join.left, &join.right)),
                    ("kind", format!("{}{forgets}", join_kind(join.kind))),
                ]
            }
            StateIdentity::Over(over) => {
                let rows = &over.rows.rows;
                let functions = list(&over.functions, |call| over_call(call, rows));
                vec![("rows", timed(&over.rows)), ("functions", functions)]
            }
            StateIdentity::FirstRows(state) => vec![
                ("rows", columns(&state.rows)),
                ("keys", names(&state.rows, &state.keys)),
                ("order", order(&state.rows, &state.order)),
                ("kept", kept(state.kept)),
                ("windows", state.window.map_or("none".to_string(), window)),
            ],
            StateIdentity::FinalRows(state) => vec![
                ("rows", columns(&state.rows)),
                ("order", order(&state.rows, &state.order)),
                ("kept", kept(state.kept)),
            ],
            StateIdentity::MaterializedView(state) => {
                let keys = state.keys.as_ref();
                let keys = keys.map(|keys| names(&state.rows, keys));
                vec![
                    ("rows", columns(&state.rows)),
                    ("keys", keys.unwrap_or_else(|| "none".to_string())),
                ]
            }
            StateIdentity::Custom(operator) => vec![
                ("name", operator.name.clone()),
                ("version", operator.version.to_string()),
                ("arguments", with_intervals(&operator.arguments)),
                ("rows", list(&operator.inputs, custom_input)),
                (
                    "saved values",
                    list(&operator.saved, |saved| saved.0.clone()),
                ),
                (
                    "emitted rows",
                    match &operator.emitted {
                        Some(emitted) => list(emitted, |emitted| emitted.0.clone()),
                        None => "never retracted".to_string(),
                    },
                ),
            ],
        }
    }
}

/// The arguments of a call with intervals as in SQL. Those that are stored have months, days and nanoseconds;
/// in a string a quote would be doubled.
fn with_intervals(arguments: &str) -> String {
    let mut parts = arguments.split("INTERVAL '");
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let of_part = || {
            let (numbers, rest) = part.split_once('\'')?;
            let numbers = numbers.split(' ').map(|number| number.parse().ok());
            match numbers.collect::<Option<Vec<i128>>>()?.as_slice() {
                [months, days, ns] => Some(interval(*months, *days, *ns) + rest),
                _ => None,
            }
        };
        shown += &of_part().unwrap_or_else(|| format!("INTERVAL '{part}"));
    }
    shown
}

fn custom_input(input: &CustomInput) -> String {
    let time = input
        .time
        .map(|time| format!(" at {}", name(&input.rows, time)));
    let keys = names(&input.rows, &input.keys);
    format!(
        "{} by {keys}{}",
        columns(&input.rows),
        time.unwrap_or_default()
    )
}

fn list<T>(all: &[T], word: impl Fn(&T) -> String) -> String {
    all.iter().map(word).collect::<Vec<String>>().join(", ")
}

fn output(sink: &Sink) -> String {
    let parts = [
        Some(sink.connector.clone()),
        (!sink.place.is_empty()).then(|| sink.place.clone()),
        sink.table.as_ref().map(|table| format!("table {table}")),
        sink.column.as_ref().map(|column| format!("by '{column}'")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn columns(columns: &[Column]) -> String {
    list(columns, |column| {
        format!("{} {}", column.name, column.data_type.0)
    })
}

/// The names of columns, with their numbers, because names may not be unique.
fn names(rows: &[Column], numbers: &[usize]) -> String {
    list(numbers, |&number| name(rows, number))
}

fn name(rows: &[Column], number: usize) -> String {
    let name = rows.get(number).map_or("", |column| &column.name);
    format!("{name} (column {})", number + 1)
}

fn sides(left: &Side, right: &Side) -> String {
    let side = |side: &Side| {
        let (rows, keys) = (columns(&side.rows), names(&side.rows, &side.keys));
        format!("{rows} by {keys}")
    };
    format!("{}; {}", side(left), side(right))
}

fn timed(side: &TimedSide) -> String {
    let TimedSide { rows, keys, time } = side;
    let (keys, time) = (names(rows, keys), name(rows, *time));
    format!("{} by {keys} at {time}", columns(rows))
}

fn order(rows: &[Column], order: &[SortColumn]) -> String {
    list(order, |column| {
        let direction = direction(column.descending, column.nulls_first);
        format!("{} {direction}", name(rows, column.column))
    })
}

fn direction(descending: bool, nulls_first: bool) -> String {
    let direction = if descending { "DESC" } else { "ASC" };
    let nulls = if nulls_first { "FIRST" } else { "LAST" };
    format!("{direction} NULLS {nulls}")
}

fn kept(limit: Option<u64>) -> String {
    limit.map_or("all".to_string(), |rows| rows.to_string())
}

fn call(call: &Call) -> String {
    let filter = if call.filter { " FILTER" } else { "" };
    format!(
        "{}{filter}",
        function(&call.function, &columns(&call.arguments))
    )
}

/// A call of a function.
fn function(callee: &Function, arguments: &str) -> String {
    let nulls = |ignored: bool| if ignored { " IGNORE NULLS" } else { "" };
    match callee {
        Function::Count => format!("COUNT({arguments})"),
        Function::Sum { to } => format!("SUM({arguments}) as {}", to.0),
        Function::Average => format!("AVG({arguments})"),
        Function::Min { data_type } => format!("MIN({arguments}) as {}", data_type.0),
        Function::Max { data_type } => format!("MAX({arguments}) as {}", data_type.0),
        Function::First {
            ignore_nulls,
            data_type,
        } => {
            format!(
                "FIRST_VALUE({arguments}){} as {}",
                nulls(*ignore_nulls),
                data_type.0
            )
        }
        Function::Last {
            ignore_nulls,
            data_type,
        } => {
            format!(
                "LAST_VALUE({arguments}){} as {}",
                nulls(*ignore_nulls),
                data_type.0
            )
        }
        Function::Quantile {
            fraction,
            data_type,
        } => {
            format!(
                "PERCENTILE_CONT({fraction}, {arguments}) as {}",
                data_type.0
            )
        }
        Function::Distinct {
            function: inner,
            arguments: types,
        } => {
            let types = list(types, |data_type| data_type.0.clone());
            function(inner, &format!("DISTINCT {arguments} as {types}"))
        }
        Function::Other {
            function,
            arguments: types,
            constants,
            order,
            ignore_nulls,
        } => {
            let types = list(types, |data_type| data_type.0.clone());
            let constants = constants.iter().map(|constant| format!(", {constant}"));
            let constants = constants.collect::<String>();
            let order = list(order, |column| {
                direction(column.descending, column.nulls_first)
            });
            let parts = [
                (!types.is_empty()).then(|| format!(" of {types}")),
                (!order.is_empty()).then(|| format!(" ORDER BY {order}")),
                ignore_nulls.then(|| " IGNORE NULLS".to_string()),
            ];
            let parts = parts.into_iter().flatten().collect::<String>();
            format!("{function}({arguments}{constants}){parts}")
        }
    }
}

fn over_call(call: &OverCall, rows: &[Column]) -> String {
    let arguments = names(rows, &call.arguments);
    let called = match &call.function {
        OverFunction::Aggregate {
            function: callee,
            frame,
        } => {
            let frame = match frame {
                Frame::Rows(None) => "all rows before".to_string(),
                Frame::Rows(Some(rows)) => format!("{rows} rows before"),
                Frame::Range(None) => "all times before".to_string(),
                Frame::Range(Some(range_us)) => format!("{} before", us(*range_us)),
            };
            format!("{} over {frame}", function(callee, &arguments))
        }
        OverFunction::RowNumber => "ROW_NUMBER()".to_string(),
        OverFunction::Rank => "RANK()".to_string(),
        OverFunction::DenseRank => "DENSE_RANK()".to_string(),
        OverFunction::Lag { offset, data_type } => {
            format!("LAG({arguments}, {offset}) as {}", data_type.0)
        }
    };
    match call.filter {
        Some(filter) => format!("{called} FILTER {}", name(rows, filter)),
        None => called,
    }
}

fn form(form: AggregateForm) -> &'static str {
    match form {
        AggregateForm::Plain => "emitted once or when it changes",
        AggregateForm::Refires => "emitted more than once",
        AggregateForm::RefiresWithBefore => "emitted more than once, with the previous row",
        AggregateForm::TakesBack => "with retractions",
        AggregateForm::WithBefore => "with the previous row",
        AggregateForm::MergesSessions => "merges sessions",
    }
}

fn join_kind(kind: JoinKind) -> &'static str {
    match kind {
        JoinKind::Inner => "inner",
        JoinKind::Left => "left",
        JoinKind::Right => "right",
        JoinKind::Full => "full",
        JoinKind::Semi => "semi",
        JoinKind::Anti => "anti",
    }
}

fn us(us: i64) -> String {
    duration(i128::from(us) * 1_000)
}

fn window(window: Window) -> String {
    let tick_ns = match window.unit {
        Unit::Second => 1_000_000_000,
        Unit::Millisecond => 1_000_000,
        Unit::Microsecond => 1_000,
        Unit::Nanosecond => 1,
    };
    let length = |ticks: i64| duration(i128::from(ticks) * tick_ns);
    let (size, slide) = (window.size, window.slide);
    let windows = match window.kind {
        WindowKind::Aligned if size == slide => format!("tumbling {}", length(size)),
        WindowKind::Aligned => format!("sliding {} every {}", length(size), length(slide)),
        WindowKind::Cumulating => format!("cumulating {} by {}", length(size), length(slide)),
        WindowKind::Session => format!("sessions, gap {}", length(size)),
        WindowKind::Count if size == slide => format!("windows of {size} rows"),
        WindowKind::Count => format!("windows of {size} rows every {slide}"),
    };
    // Windows over times of another precision have other edges in the state.
    let decimals = match window.unit {
        Unit::Second => 0,
        Unit::Millisecond => 3,
        Unit::Microsecond => 6,
        Unit::Nanosecond => 9,
    };
    format!("{windows}, of TIMESTAMP({decimals})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_shown_as_in_sql() {
        let stored =
            "gap => INTERVAL '0 0 300000000000', x => 'an INTERVAL ''5', y => INTERVAL '1 0 0'";
        let shown = "gap => INTERVAL '5' MINUTE, x => 'an INTERVAL ''5', y => INTERVAL '1' MONTH";
        assert_eq!(with_intervals(stored), shown);
    }
}
