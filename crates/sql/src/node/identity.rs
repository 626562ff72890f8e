//! The identity of an operator's state, derived from the specification of the engine's operator.

use arrow_schema::{DataType, Schema, SortOptions, TimeUnit};
use slackwater_engine::accumulator::{AggregateFunction, Signature};
use slackwater_engine::operator::aggregate::{AggregateCall, AggregateSpec};
use slackwater_engine::operator::changelog::final_rows::FinalSpec;
use slackwater_engine::operator::changelog::join::ChangelogJoinSpec;
use slackwater_engine::operator::changelog::rows::RowOrder;
use slackwater_engine::operator::changelog::top_n::TopNSpec;
use slackwater_engine::operator::changelog::view::ViewSpec;
use slackwater_engine::operator::count_window::CountWindowSpec;
use slackwater_engine::operator::custom::CustomSpec;
use slackwater_engine::operator::session::SessionSpec;
use slackwater_engine::operator::temporal_join::TemporalJoinSpec;
use slackwater_engine::operator::{interval_join, join, over, window};

use crate::state::{
    Aggregate, AggregateForm, Call, Column, Custom, CustomInput, Direction, FinalRows, FirstRows,
    Frame, Function, IntervalJoin, JoinKind, MaterializedView, Over, OverCall, OverFunction, Side,
    SortColumn, StateIdentity, StreamJoin, TemporalJoin, TimedSide, Type, Unit, Window, WindowJoin,
    WindowKind, WindowRows,
};

/// The state of an aggregation over an input with these columns.
pub fn aggregate(spec: &AggregateSpec, input: &Schema) -> StateIdentity {
    StateIdentity::Aggregate(groups(spec, input, form(spec)))
}

/// The state of an aggregation in sessions.
pub fn session_aggregate(spec: &AggregateSpec, input: &Schema) -> StateIdentity {
    StateIdentity::Aggregate(groups(spec, input, AggregateForm::MergesSessions))
}

/// The rows of sessions.
pub fn session_rows(sessions: &SessionSpec, input: &Schema) -> StateIdentity {
    StateIdentity::SessionRows(WindowRows {
        rows: columns(input),
        keys: sessions.keys.clone(),
        window: window_of(sessions.windows),
    })
}

/// The rows of count windows.
pub fn count_window(spec: &CountWindowSpec) -> StateIdentity {
    StateIdentity::CountWindow(WindowRows {
        rows: columns(&spec.input),
        keys: spec.keys.clone(),
        window: window_of(spec.windows),
    })
}

/// The rows of a window join's inputs.
pub fn window_join(join: &join::JoinSpec) -> StateIdentity {
    let [left, right] = &join.sides;
    StateIdentity::WindowJoin(WindowJoin {
        left: side(&left.schema, &left.keys),
        right: side(&right.schema, &right.keys),
        window: window_of(join.windows),
    })
}

/// The rows of an interval join's inputs.
pub fn interval_join(join: &interval_join::IntervalJoinSpec) -> StateIdentity {
    let [left, right] = &join.sides;
    let [from_us, to_us] = join.bounds;
    StateIdentity::IntervalJoin(IntervalJoin {
        left: timed(left),
        right: timed(right),
        kind: join_kind(join.kind),
        from_us,
        to_us,
        broadcast: join.broadcast,
    })
}

/// The waiting rows of the stream, and the versions of the table.
pub fn temporal_join(spec: &TemporalJoinSpec) -> StateIdentity {
    let [stream_keys, table_keys] = spec.join.keys.clone();
    StateIdentity::TemporalJoin(TemporalJoin {
        stream_keys,
        table_keys,
        table: columns(&spec.join.table),
        pair: columns(&spec.join.schema),
    })
}

/// The rows of a stream join's inputs.
pub fn stream_join(join: &ChangelogJoinSpec) -> StateIdentity {
    let [left, right] = &join.sides;
    StateIdentity::StreamJoin(StreamJoin {
        left: side(&left.schema, &left.keys),
        right: side(&right.schema, &right.keys),
        kind: join_kind(join.kind),
        settles: join.settles(),
    })
}

/// The rows that OVER functions look back at.
pub fn over(spec: &over::OverSpec) -> StateIdentity {
    StateIdentity::Over(Over {
        rows: TimedSide {
            rows: columns(&spec.input),
            keys: spec.keys.clone(),
            time: spec.time_column,
        },
        functions: spec.calls.iter().map(over_call).collect(),
    })
}

/// The keys of an operator that a build has added.
pub fn custom(
    spec: &CustomSpec,
    version: u32,
    arguments: &str,
    saved: &[DataType],
) -> StateIdentity {
    let inputs = spec.inputs.iter().map(|input| CustomInput {
        rows: columns(&input.schema),
        keys: input.keys.clone(),
        time: input.time_column,
    });
    let emitted = spec.schema.fields().iter().skip(spec.inputs[0].keys.len());
    let emitted = emitted.map(|field| Type::of(field.data_type()));
    StateIdentity::Custom(Custom {
        name: spec.name.clone(),
        version,
        arguments: arguments.to_string(),
        inputs: inputs.collect(),
        saved: saved.iter().map(Type::of).collect(),
        emitted: spec.emits_updates.then(|| emitted.collect()),
    })
}

/// The first rows of each partition.
pub fn first_rows(spec: &TopNSpec) -> StateIdentity {
    StateIdentity::FirstRows(FirstRows {
        rows: columns(&spec.input),
        keys: spec.partition.clone(),
        order: order(&spec.order),
        // If rows are never retracted, only the first ones are kept.
        kept: (!spec.takes_back).then_some(spec.limit as u64),
        window: spec.window.map(|window| window_of(window.windows)),
    })
}

/// The rows that remain when the input has ended.
pub fn final_rows(spec: &FinalSpec) -> StateIdentity {
    StateIdentity::FinalRows(FinalRows {
        rows: columns(&spec.schema),
        order: order(&spec.order),
        kept: spec.kept_max().map(|most| most as u64),
    })
}

/// The rows of a materialized view.
pub fn materialized_view(spec: &ViewSpec) -> StateIdentity {
    StateIdentity::MaterializedView(MaterializedView {
        rows: columns(&spec.schema),
        keys: spec.key.clone(),
    })
}

fn groups(spec: &AggregateSpec, input: &Schema, form: AggregateForm) -> Aggregate {
    let column = |&column: &usize| {
        let field = input.field(column);
        Column {
            name: without_table(field.name()).to_string(),
            data_type: Type::of(field.data_type()),
        }
    };
    let call = |call: &AggregateCall| Call {
        function: function(&call.function),
        arguments: call.arguments.iter().map(column).collect(),
        filter: call.filter.is_some(),
    };
    Aggregate {
        keys: spec.keys.iter().map(column).collect(),
        aggregates: spec.calls.iter().map(call).collect(),
        window: spec.window.map(|window| window_of(window.windows)),
        form,
    }
}

/// The name of a column without its table, which may have another name in another program.
fn without_table(name: &str) -> &str {
    let is_column = name
        .chars()
        .all(|c| c.is_alphanumeric() || "._".contains(c));
    match name.rsplit_once('.') {
        Some((_, column)) if is_column => column,
        _ => name,
    }
}

fn form(spec: &AggregateSpec) -> AggregateForm {
    match (spec.refires.is_some(), spec.is_updating()) {
        (true, _) if spec.emits_before => AggregateForm::RefiresWithBefore,
        (true, _) => AggregateForm::Refires,
        (false, true) if spec.takes_back => AggregateForm::TakesBack,
        (false, true) => AggregateForm::WithBefore,
        (false, false) => AggregateForm::Plain,
    }
}

fn function(callee: &AggregateFunction) -> Function {
    match callee {
        AggregateFunction::Count => Function::Count,
        AggregateFunction::Sum { to } => Function::Sum { to: Type::of(to) },
        AggregateFunction::Average => Function::Average,
        AggregateFunction::Extreme {
            largest,
            of: data_type,
        } => match largest {
            true => Function::Max {
                data_type: Type::of(data_type),
            },
            false => Function::Min {
                data_type: Type::of(data_type),
            },
        },
        AggregateFunction::FirstLast {
            last,
            ignore_nulls,
            of: data_type,
        } => {
            let (data_type, ignore_nulls) = (Type::of(data_type), *ignore_nulls);
            match last {
                true => Function::Last {
                    ignore_nulls,
                    data_type,
                },
                false => Function::First {
                    ignore_nulls,
                    data_type,
                },
            }
        }
        AggregateFunction::Quantile {
            fraction,
            of: data_type,
        } => Function::Quantile {
            fraction: fraction.to_string(),
            data_type: Type::of(data_type),
        },
        AggregateFunction::Distinct {
            function: inner,
            arguments,
        } => Function::Distinct {
            function: Box::new(function(inner)),
            arguments: arguments.iter().map(Type::of).collect(),
        },
        AggregateFunction::Other(factory) => {
            let Signature {
                name,
                arguments,
                constants,
                order,
                ignore_nulls,
            } = factory.signature();
            Function::Other {
                function: name,
                arguments: arguments.iter().map(Type::of).collect(),
                constants,
                order: order.into_iter().map(direction).collect(),
                ignore_nulls,
            }
        }
    }
}

fn over_call(call: &over::OverCall) -> OverCall {
    let planned = match &call.function {
        over::OverFunction::Aggregate {
            function: callee,
            frame,
        } => OverFunction::Aggregate {
            function: function(callee),
            frame: match frame {
                over::Frame::Rows(rows) => Frame::Rows(*rows),
                over::Frame::Range(us) => Frame::Range(*us),
            },
        },
        over::OverFunction::RowNumber => OverFunction::RowNumber,
        over::OverFunction::Rank => OverFunction::Rank,
        over::OverFunction::DenseRank => OverFunction::DenseRank,
        over::OverFunction::Lag {
            offset,
            of: data_type,
        } => OverFunction::Lag {
            offset: *offset,
            data_type: Type::of(data_type),
        },
    };
    OverCall {
        function: planned,
        arguments: call.arguments.clone(),
        filter: call.filter,
    }
}

fn side(schema: &Schema, keys: &[usize]) -> Side {
    Side {
        rows: columns(schema),
        keys: keys.to_vec(),
    }
}

fn timed(side: &interval_join::IntervalSide) -> TimedSide {
    TimedSide {
        rows: columns(&side.schema),
        keys: side.keys.clone(),
        time: side.time_column,
    }
}

fn columns(schema: &Schema) -> Vec<Column> {
    let fields = schema.fields().iter().map(|field| Column {
        name: field.name().clone(),
        data_type: Type::of(field.data_type()),
    });
    fields.collect()
}

fn order(order: &RowOrder) -> Vec<SortColumn> {
    let columns = order.iter().map(|(column, options)| SortColumn {
        column: *column,
        descending: options.descending,
        nulls_first: options.nulls_first,
    });
    columns.collect()
}

fn direction(options: SortOptions) -> Direction {
    Direction {
        descending: options.descending,
        nulls_first: options.nulls_first,
    }
}

fn join_kind(kind: join::JoinKind) -> JoinKind {
    match kind {
        join::JoinKind::Inner => JoinKind::Inner,
        join::JoinKind::Left => JoinKind::Left,
        join::JoinKind::Right => JoinKind::Right,
        join::JoinKind::Full => JoinKind::Full,
        join::JoinKind::Semi => JoinKind::Semi,
        join::JoinKind::Anti => JoinKind::Anti,
    }
}

fn window_of(windows: window::Windows) -> Window {
    Window {
        kind: match windows.kind {
            window::WindowKind::Aligned => WindowKind::Aligned,
            window::WindowKind::Cumulating => WindowKind::Cumulating,
            window::WindowKind::Session => WindowKind::Session,
            window::WindowKind::Count => WindowKind::Count,
        },
        size: windows.size,
        slide: windows.slide,
        unit: match windows.unit {
            TimeUnit::Second => Unit::Second,
            TimeUnit::Millisecond => Unit::Millisecond,
            TimeUnit::Microsecond => Unit::Microsecond,
            TimeUnit::Nanosecond => Unit::Nanosecond,
        },
    }
}
