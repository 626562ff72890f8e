//! Every operator with keyed state, and its forms that keep different things; and the rows that they get.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int8Array, Int64Array, TimestampMicrosecondArray, UInt64Array};
use arrow_schema::{DataType, Schema, SchemaRef, SortOptions, TimeUnit};

use crate::accumulator::AggregateFunction;
use crate::chunk::{Chunk, Origin, Partitions, Positions, RowKind};
use crate::operator::Stateful;
use crate::operator::aggregate::{
    Aggregate, AggregateCall, AggregateSpec, Emit, Refires, WindowKey, output_types,
};
use crate::operator::changelog::aggregate::UpdatingAggregate;
use crate::operator::changelog::final_rows::{FinalRows, FinalSpec};
use crate::operator::changelog::join::{ChangelogJoin, ChangelogJoinSide, ChangelogJoinSpec};
use crate::operator::changelog::top_n::{TopN, TopNSpec, WindowTopN};
use crate::operator::changelog::view::{Cuts, View, ViewRetention, ViewSpec};
use crate::operator::count_window::{CountWindow, CountWindowSpec};
use crate::operator::custom::sample::Tallies;
use crate::operator::custom::totals::Totals;
use crate::operator::custom::{Custom, CustomInput, CustomSpec};
use crate::operator::interval_join::{IntervalJoin, IntervalJoinSpec, IntervalSide};
use crate::operator::join::{JoinKind, JoinSide, JoinSpec, WindowJoin};
use crate::operator::over::{Frame, Over, OverCall, OverFunction, OverSpec};
use crate::operator::session::{SessionAggregate, SessionRows, SessionSpec};
use crate::operator::table_join::TableJoinSpec;
use crate::operator::temporal_join::{TemporalJoin, TemporalJoinSpec};
use crate::operator::window::Windows;
use crate::testing::{batch, schema};
use crate::time::EventTime;

const US: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
const SIZE: i64 = 40;

/// Every operator with keyed state, and its forms that keep different things.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    Running,
    Windowed,
    Refiring,
    Retracting,
    Forgetting,
    Sessions,
    RowsOfSessions,
    CountWindows,
    Custom,
    CustomAsTheyCome,
    CustomChangelog,
    OverAll,
    OverFew,
    IntervalJoin,
    WindowJoin,
    TemporalJoin,
    StreamJoin,
    ForgettingJoin,
    TopN,
    ForgettingTopN,
    WindowTopN,
    AllAtEnd,
    FirstAtEnd,
    ViewByKey,
    ViewOfAll,
}

pub const KINDS: [Kind; 25] = [
    Kind::Running,
    Kind::Windowed,
    Kind::Refiring,
    Kind::Retracting,
    Kind::Forgetting,
    Kind::Sessions,
    Kind::RowsOfSessions,
    Kind::CountWindows,
    Kind::Custom,
    Kind::CustomAsTheyCome,
    Kind::CustomChangelog,
    Kind::OverAll,
    Kind::OverFew,
    Kind::IntervalJoin,
    Kind::WindowJoin,
    Kind::TemporalJoin,
    Kind::StreamJoin,
    Kind::ForgettingJoin,
    Kind::TopN,
    Kind::ForgettingTopN,
    Kind::WindowTopN,
    Kind::AllAtEnd,
    Kind::FirstAtEnd,
    Kind::ViewByKey,
    Kind::ViewOfAll,
];

const TIME: usize = 0;
const KEY: usize = 1;
const NUMBER: usize = 2;
const WINDOW: usize = 3;

/// The columns of all inputs. The last one is the reach of sessions.
fn input() -> SchemaRef {
    schema(&[
        ("ts", US),
        ("k", DataType::Int64),
        ("n", DataType::Int64),
        ("ws", US),
        ("reach", US),
    ])
}

fn and(fields: &[(&str, DataType)]) -> SchemaRef {
    let more = schema(fields);
    let all = input()
        .fields()
        .iter()
        .chain(more.fields())
        .cloned()
        .collect::<Vec<_>>();
    Arc::new(Schema::new(all))
}

fn calls() -> Vec<AggregateCall> {
    let int64 = || DataType::Int64;
    let distinct = AggregateFunction::Distinct {
        function: Box::new(AggregateFunction::Count),
        arguments: vec![int64()],
    };
    let functions = [
        (AggregateFunction::Count, vec![]),
        (AggregateFunction::Sum { to: int64() }, vec![NUMBER]),
        (AggregateFunction::Average, vec![NUMBER]),
        (
            AggregateFunction::Extreme {
                largest: true,
                of: int64(),
            },
            vec![NUMBER],
        ),
        (
            AggregateFunction::Extreme {
                largest: false,
                of: US,
            },
            vec![TIME],
        ),
        (distinct, vec![NUMBER]),
    ];
    let call = |(function, arguments)| AggregateCall {
        function,
        arguments,
        filter: None,
    };
    functions.into_iter().map(call).collect()
}

fn aggregation(windows: Option<Windows>) -> AggregateSpec {
    let window = windows.map(|windows| WindowKey {
        column: WINDOW,
        is_start: true,
        windows,
    });
    let mut types = output_types(window, &[DataType::Int64], &calls());
    if windows.is_some_and(|windows| !windows.is_fixed()) {
        types.insert(0, US);
    }
    let names = (0..types.len())
        .map(|column| format!("c{column}"))
        .collect::<Vec<_>>();
    let fields = names
        .iter()
        .map(String::as_str)
        .zip(types)
        .collect::<Vec<_>>();
    AggregateSpec {
        window,
        keys: vec![KEY],
        calls: calls(),
        time_column: Some(TIME),
        emit: Emit::Changes,
        refires: None,
        takes_back: false,
        starts_empty: false,
        emits_before: false,
        retention_us: None,
        schema: schema(&fields),
    }
}

fn sessions() -> SessionSpec {
    SessionSpec {
        keys: vec![KEY],
        time_column: TIME,
        reach_column: 4,
        windows: Windows::sessions(SIZE / 4, TimeUnit::Microsecond).unwrap(),
    }
}

fn pairs() -> SchemaRef {
    let fields = input().fields().iter().cloned().collect::<Vec<_>>();
    Arc::new(Schema::new([fields.clone(), fields].concat()))
}

impl Kind {
    pub fn retracts(self) -> bool {
        matches!(
            self,
            Kind::Retracting
                | Kind::CustomChangelog
                | Kind::StreamJoin
                | Kind::TopN
                | Kind::AllAtEnd
                | Kind::ViewOfAll
        )
    }

    pub fn inputs(self) -> usize {
        let joins = [
            Kind::IntervalJoin,
            Kind::WindowJoin,
            Kind::TemporalJoin,
            Kind::StreamJoin,
            Kind::Custom,
            Kind::CustomAsTheyCome,
        ];
        1 + usize::from(joins.contains(&self))
    }

    pub fn make(self) -> Box<dyn Stateful> {
        let view = |key| -> Box<dyn Stateful> {
            let spec = ViewSpec {
                schema: input(),
                key,
                retention: Some(ViewRetention {
                    column: TIME,
                    us: SIZE,
                }),
            };
            Box::new(View::new(spec, Arc::new(Cuts::default()).add()).unwrap())
        };
        let fixed = || Windows::new(SIZE, SIZE, TimeUnit::Microsecond).unwrap();
        let top = |window| TopNSpec {
            partition: if window { vec![WINDOW, KEY] } else { vec![KEY] },
            window: window.then(|| WindowKey {
                column: WINDOW,
                is_start: true,
                windows: fixed(),
            }),
            order: vec![(NUMBER, SortOptions::default())],
            limit: 2,
            has_rank: false,
            takes_back: self.retracts(),
            emits_before: false,
            retention_us: None,
            input: input(),
            schema: input(),
        };
        let over = |frame| {
            let function = AggregateFunction::Sum {
                to: DataType::Int64,
            };
            let call = |function, arguments| OverCall {
                function,
                arguments,
                filter: None,
            };
            let number = call(OverFunction::RowNumber, vec![]);
            let sum = call(OverFunction::Aggregate { function, frame }, vec![NUMBER]);
            OverSpec {
                keys: vec![KEY],
                time_column: TIME,
                calls: if frame == Frame::Rows(None) {
                    vec![sum, number]
                } else {
                    vec![sum]
                },
                behind_us: 0,
                input: input(),
                schema: match frame {
                    Frame::Rows(None) => and(&[("s", DataType::Int64), ("r", DataType::UInt64)]),
                    _ => and(&[("s", DataType::Int64)]),
                },
            }
        };
        let at_end = |limit, takes_back| FinalSpec {
            order: vec![(NUMBER, SortOptions::default())],
            skip: 0,
            limit,
            takes_back,
            schema: input(),
        };
        let edges = [("we", US), ("wn", DataType::Int64)];
        match self {
            Kind::Running => Box::new(Aggregate::new(aggregation(None), &input()).unwrap()),
            Kind::Windowed => {
                Box::new(Aggregate::new(aggregation(Some(fixed())), &input()).unwrap())
            }
            Kind::Refiring => {
                let refires = Some(Refires {
                    every_ns: None,
                    lateness_us: 2 * SIZE,
                });
                let spec = AggregateSpec {
                    refires,
                    emits_before: true,
                    ..aggregation(Some(fixed()))
                };
                Box::new(Aggregate::new(spec, &input()).unwrap())
            }
            Kind::Retracting => {
                let spec = AggregateSpec {
                    takes_back: true,
                    ..aggregation(None)
                };
                Box::new(UpdatingAggregate::new(spec, &input()).unwrap())
            }
            Kind::Forgetting => {
                let spec = AggregateSpec {
                    retention_us: Some(SIZE),
                    ..aggregation(None)
                };
                Box::new(UpdatingAggregate::new(spec, &input()).unwrap())
            }
            Kind::Sessions => {
                let spec = aggregation(Some(sessions().windows));
                Box::new(SessionAggregate::new(spec, sessions(), &input()).unwrap())
            }
            Kind::RowsOfSessions => {
                let of_input = input();
                let fields = &of_input.fields()[..4];
                let edges = schema(&[("s", US), ("e", US)]);
                let all = fields
                    .iter()
                    .chain(edges.fields())
                    .cloned()
                    .collect::<Vec<_>>();
                let out = Arc::new(Schema::new(all));
                Box::new(SessionRows::new(sessions(), &input(), out).unwrap())
            }
            Kind::CountWindows => {
                let spec = CountWindowSpec {
                    keys: vec![KEY],
                    time_column: TIME,
                    windows: Windows::of_rows(4, 2, TimeUnit::Microsecond).unwrap(),
                    input: input(),
                    schema: and(&[[("s", US)].as_slice(), edges.as_slice()].concat()),
                };
                Box::new(CountWindow::new(spec).unwrap())
            }
            Kind::Custom | Kind::CustomAsTheyCome | Kind::CustomChangelog => {
                let is_ordered = self == Kind::Custom;
                let emits_updates = self == Kind::CustomChangelog;
                let of_input = CustomInput {
                    keys: vec![KEY],
                    time_column: is_ordered.then_some(TIME),
                    schema: input(),
                };
                let mut columns = vec![("k", DataType::Int64)];
                columns.extend(is_ordered.then_some(("ts", US)));
                columns.extend([("n", DataType::Int64), ("sum", DataType::Int64)]);
                let spec = CustomSpec {
                    name: "tally".to_string(),
                    inputs: vec![of_input; self.inputs()],
                    behind_us: 0,
                    schema: schema(&columns),
                    emits_updates,
                    factory: match emits_updates {
                        true => Arc::new(Totals {
                            number: NUMBER,
                            mistake: 0,
                        }),
                        false => Arc::new(Tallies {
                            number: NUMBER,
                            has_timers: is_ordered,
                            events_max: None,
                        }),
                    },
                };
                Box::new(Custom::new(spec).unwrap())
            }
            Kind::OverAll => Box::new(Over::new(over(Frame::Rows(None))).unwrap()),
            Kind::OverFew => Box::new(Over::new(over(Frame::Rows(Some(2)))).unwrap()),
            Kind::IntervalJoin => {
                let sides = [0, 1].map(|_| IntervalSide {
                    time_column: TIME,
                    keys: vec![KEY],
                    schema: input(),
                });
                let spec = IntervalJoinSpec {
                    sides,
                    bounds: [-SIZE / 2, SIZE / 2],
                    kind: JoinKind::Full,
                    broadcast: None,
                    condition: None,
                    behind_us: 0,
                    schema: pairs(),
                };
                Box::new(IntervalJoin::new(spec).unwrap())
            }
            Kind::WindowJoin => {
                let sides = [0, 1].map(|_| JoinSide {
                    window_column: WINDOW,
                    keys: vec![KEY],
                    schema: input(),
                });
                Box::new(WindowJoin::new(JoinSpec {
                    sides,
                    windows: fixed(),
                    is_start: true,
                    kind: JoinKind::Full,
                    condition: None,
                    schema: pairs(),
                }))
            }
            Kind::TemporalJoin => {
                let join = TableJoinSpec {
                    keys: [vec![KEY], vec![KEY]],
                    table: input(),
                    keeps_unmatched: true,
                    only: None,
                    condition: None,
                    schema: pairs(),
                };
                let spec = TemporalJoinSpec {
                    join,
                    times: [TIME, TIME],
                };
                Box::new(TemporalJoin::new(spec).unwrap())
            }
            Kind::StreamJoin | Kind::ForgettingJoin => {
                let side = || ChangelogJoinSide {
                    keys: vec![KEY],
                    schema: input(),
                    takes_back: true,
                };
                let spec = ChangelogJoinSpec {
                    sides: [side(), side()],
                    kind: JoinKind::Full,
                    condition: None,
                    retention_us: (self == Kind::ForgettingJoin).then_some(SIZE),
                    schema: pairs(),
                };
                Box::new(ChangelogJoin::new(spec).unwrap())
            }
            Kind::TopN => Box::new(TopN::new(top(false)).unwrap()),
            Kind::ForgettingTopN => {
                let spec = TopNSpec {
                    retention_us: Some(SIZE),
                    ..top(false)
                };
                Box::new(TopN::new(spec).unwrap())
            }
            Kind::WindowTopN => Box::new(WindowTopN::new(top(true)).unwrap()),
            Kind::AllAtEnd => Box::new(FinalRows::new(at_end(None, true)).unwrap()),
            Kind::FirstAtEnd => Box::new(FinalRows::new(at_end(Some(3), false)).unwrap()),
            Kind::ViewByKey => view(Some(vec![KEY])),
            Kind::ViewOfAll => view(None),
        }
    }
}

/// A row: its time, key and number, and whether it is retracted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub time: EventTime,
    pub key: i64,
    pub number: i64,
    pub retracted: bool,
}

pub fn chunk(rows: &[Row], position: u64, retracts: bool) -> Chunk {
    let micros = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(TimestampMicrosecondArray::from_iter_values(
            rows.iter().map(of),
        ))
    };
    let numbers = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(of)))
    };
    let batch = batch(vec![
        ("ts", micros(|row| row.time)),
        ("k", numbers(|row| row.key)),
        ("n", numbers(|row| row.number)),
        ("ws", micros(|row| row.time / SIZE * SIZE)),
        ("reach", micros(|row| row.time)),
    ]);
    let kind = |row: &Row| match row.retracted {
        true => RowKind::Delete as i8,
        false => RowKind::Insert as i8,
    };
    let positions = position..position + rows.len() as u64;
    Chunk {
        kinds: retracts.then(|| rows.iter().map(kind).collect::<Int8Array>()),
        origin: Some(Origin {
            partitions: Partitions::One(0),
            positions: Positions::List(UInt64Array::from_iter_values(positions)),
            watermarks: None,
        }),
        ..Chunk::new(batch, 0)
    }
}
