//! Aggregates of one group, written in Rust, as the engine's accumulators of many groups.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use datafusion_common::{DataFusionError, Result as PlanResult};
use datafusion_expr::function::AccumulatorArgs;
use datafusion_expr::{
    Accumulator as DataFusionAccumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use slackwater_engine::accumulator::{
    self, Accumulator, AccumulatorFactory, OrderKey, Retract, Values,
};
use slackwater_engine::{Error, Result as EngineResult};

use super::values::{Argument, Cell, Output, downcast, fits};
use crate::error::SqlError;
use crate::types::sql_name;

/// An aggregate: the value of one group of rows.
///
/// Rows come in any order, and in parts that are merged: `add` and `merge` have to give the same value
/// whatever that order is, or the query's answer depends on the run. See `docs/functions.md`.
pub trait Aggregate: Default + Send + 'static {
    /// What it takes: an [`Argument`] or a tuple of them (`&'static str` for texts).
    type Arguments: Arguments;
    /// What it gives.
    type Value: Output;
    /// What of it is saved and sent: a [`Stored`] or a tuple of them.
    type State: State;

    /// Adds a row. Rows with a NULL are left out, unless that argument is an `Option`.
    fn add(&mut self, row: <Self::Arguments as Arguments>::Row<'_>);

    /// Whether it knows [`Aggregate::retract`]. If not, all values of each group are kept where rows are
    /// taken back, and added again to a new one.
    const RETRACTS: bool = false;

    /// Takes a row back that was added before. Called only of one that [`Aggregate::RETRACTS`].
    fn retract(&mut self, _row: <Self::Arguments as Arguments>::Row<'_>) {}

    /// Adds what another one has seen.
    fn merge(&mut self, other: Self);

    /// The present value; more rows may follow.
    fn value(&self) -> Self::Value;

    /// All that [`Aggregate::load`] needs to make the same one.
    fn save(&self) -> Self::State;

    /// The one that was saved.
    fn load(state: Self::State) -> Self;
}

/// What an aggregate takes.
pub trait Arguments: 'static {
    /// The arguments of a row.
    type Row<'a>;

    /// Their types.
    fn data_types() -> Vec<DataType>;

    /// Calls `add` with each row: its number, and its arguments where none is NULL that must not be.
    ///
    /// # Errors
    ///
    /// When a column is not of its type.
    fn each(columns: &[ArrayRef], add: impl FnMut(usize, Self::Row<'_>)) -> Result<(), String>;
}

impl<A: Argument + 'static> Arguments for A {
    type Row<'a> = A::Item<'a>;

    fn data_types() -> Vec<DataType> {
        vec![A::data_type()]
    }

    fn each(columns: &[ArrayRef], mut add: impl FnMut(usize, Self::Row<'_>)) -> Result<(), String> {
        let column = downcast::<A::Column>(columns, 0)?;
        for row in 0..column.len() {
            if let Some(value) = A::get(column, row) {
                add(row, value);
            }
        }
        Ok(())
    }
}

macro_rules! arguments {
    ($($argument:ident $column:ident $index:literal),*) => {
        impl<$($argument: Argument + 'static),*> Arguments for ($($argument),*) {
            type Row<'a> = ($($argument::Item<'a>),*);

            fn data_types() -> Vec<DataType> {
                vec![$($argument::data_type()),*]
            }

            fn each(columns: &[ArrayRef], mut add: impl FnMut(usize, Self::Row<'_>)) -> Result<(), String> {
                $(let $column = downcast::<$argument::Column>(columns, $index)?;)*
                for row in 0..columns.first().map_or(0, |column| column.len()) {
                    if let ($(Some($column)),*) = ($($argument::get($column, row)),*) {
                        add(row, ($($column),*));
                    }
                }
                Ok(())
            }
        }
    };
}

arguments!(A a 0, B b 1);
arguments!(A a 0, B b 1, C c 2);
arguments!(A a 0, B b 1, C c 2, D d 3);

/// A value that is saved: `bool`, whole numbers, `f32`, `f64`, `String`, [`Time`](super::Time), or an
/// `Option` of these.
pub trait Stored: Sized {
    /// Its plain type.
    type Cell: Cell;

    /// As it is saved.
    fn store(self) -> Option<Self::Cell>;

    /// As it was saved.
    ///
    /// # Errors
    ///
    /// When the column is not of its type, or the value is not there.
    fn read(columns: &[ArrayRef], index: usize, row: usize) -> Result<Self, String>;
}

macro_rules! stored {
    ($($rust:ty, $argument:ty, $read:expr);*) => {$(
        impl Stored for $rust {
            type Cell = $rust;

            fn store(self) -> Option<$rust> {
                Some(self)
            }

            fn read(columns: &[ArrayRef], index: usize, row: usize) -> Result<$rust, String> {
                let value = <Option<$rust> as Stored>::read(columns, index, row)?;
                value.ok_or_else(|| "a part of a state is missing".to_string())
            }
        }

        impl Stored for Option<$rust> {
            type Cell = $rust;

            fn store(self) -> Option<$rust> {
                self
            }

            fn read(columns: &[ArrayRef], index: usize, row: usize) -> Result<Option<$rust>, String> {
                let column = downcast::<<$argument as Argument>::Column>(columns, index)?;
                Ok(<$argument>::get(column, row).map($read))
            }
        }
    )*};
}

stored!(
    bool, bool, |value| value;
    i8, i8, |value| value;
    i16, i16, |value| value;
    i32, i32, |value| value;
    i64, i64, |value| value;
    f32, f32, |value| value;
    f64, f64, |value| value;
    super::Time, super::Time, |value| value;
    String, &str, |value: &str| value.to_string()
);

/// What is saved of an aggregate.
pub trait State: Sized {
    /// States as columns.
    fn columns(states: Vec<Self>) -> Vec<ArrayRef>;

    /// The state of a row.
    ///
    /// # Errors
    ///
    /// When the columns are not what [`State::columns`] has made.
    fn read(columns: &[ArrayRef], row: usize) -> Result<Self, String>;
}

impl<S: Stored> State for S {
    fn columns(states: Vec<S>) -> Vec<ArrayRef> {
        vec![S::Cell::column(states.into_iter().map(S::store).collect())]
    }

    fn read(columns: &[ArrayRef], row: usize) -> Result<S, String> {
        <S as Stored>::read(columns, 0, row)
    }
}

macro_rules! state {
    ($($part:ident $cells:ident $index:literal),*) => {
        impl<$($part: Stored),*> State for ($($part),*) {
            #[allow(non_snake_case)]
            fn columns(states: Vec<Self>) -> Vec<ArrayRef> {
                $(let mut $cells = Vec::with_capacity(states.len());)*
                for ($($part),*) in states {
                    $($cells.push($part.store());)*
                }
                vec![$($part::Cell::column($cells)),*]
            }

            fn read(columns: &[ArrayRef], row: usize) -> Result<Self, String> {
                Ok(($(<$part as Stored>::read(columns, $index, row)?),*))
            }
        }
    };
}

state!(A a 0, B b 1);
state!(A a 0, B b 1, C c 2);
state!(A a 0, B b 1, C c 2, D d 3);
state!(A a 0, B b 1, C c 2, D d 3, E e 4);
state!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5);

/// One of them per group, from its first row or state on.
struct Groups<A> {
    name: Arc<str>,
    groups: Vec<Option<A>>,
}

impl<A> Groups<A> {
    fn failed(&self, reason: String) -> Error {
        Error::new(self.name.as_ref(), reason)
    }
}

impl<A: Aggregate> Accumulator for Groups<A> {
    fn resize(&mut self, groups: usize) {
        self.groups.resize_with(groups, || None);
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> EngineResult<()> {
        let all = &mut self.groups;
        let added = A::Arguments::each(arguments, |row, values| {
            all[groups[row] as usize]
                .get_or_insert_default()
                .add(values);
        });
        added.map_err(|reason| self.failed(reason))
    }

    fn evaluate(&mut self, groups: &[u32]) -> EngineResult<Values> {
        let mut failed = Vec::new();
        let mut cells = Vec::with_capacity(groups.len());
        for (place, &group) in groups.iter().enumerate() {
            let of_group = &self.groups[group as usize];
            let value = of_group
                .as_ref()
                .map_or_else(|| A::default().value(), A::value);
            cells.push(match value.cell() {
                Ok(cell) => cell,
                Err(reason) => {
                    failed.push((place, reason));
                    None
                }
            });
        }
        let column = <A::Value as Output>::Cell::column(cells);
        Ok(Values { column, failed })
    }

    fn state(&mut self, groups: &[u32]) -> EngineResult<Vec<ArrayRef>> {
        let states = groups.iter().map(|&group| {
            let of_group = &self.groups[group as usize];
            of_group
                .as_ref()
                .map_or_else(|| A::default().save(), A::save)
        });
        Ok(A::State::columns(states.collect()))
    }

    fn merge(&mut self, groups: &[u32], states: &[ArrayRef]) -> EngineResult<()> {
        for (row, &group) in groups.iter().enumerate() {
            let state = A::State::read(states, row).map_err(|reason| self.failed(reason))?;
            let state = A::load(state);
            // An empty group takes it over as it is: merged into an empty one its last bits may differ.
            match &mut self.groups[group as usize] {
                Some(of_group) => of_group.merge(state),
                empty => *empty = Some(state),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        // What they hold elsewhere is not known.
        self.groups.capacity() * size_of::<Option<A>>()
    }
}

impl<A: Aggregate> Retract for Groups<A> {
    fn retract(&mut self, groups: &[u32], arguments: &[ArrayRef]) -> EngineResult<()> {
        let all = &mut self.groups;
        let taken = A::Arguments::each(arguments, |row, values| {
            all[groups[row] as usize]
                .get_or_insert_default()
                .retract(values);
        });
        taken.map_err(|reason| self.failed(reason))
    }
}

struct Factory<A> {
    name: Arc<str>,
    of: PhantomData<fn() -> A>,
}

impl<A> Factory<A> {
    fn groups(&self) -> Groups<A> {
        Groups {
            name: Arc::clone(&self.name),
            groups: Vec::new(),
        }
    }
}

impl<A> fmt::Debug for Factory<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<A: Aggregate> AccumulatorFactory for Factory<A> {
    fn accumulator(&self) -> EngineResult<Box<dyn Accumulator>> {
        Ok(Box::new(self.groups()))
    }

    fn data_type(&self) -> DataType {
        <A::Value as Output>::Cell::data_type()
    }

    fn signature(&self) -> accumulator::Signature {
        accumulator::Signature {
            name: self.name.to_string(),
            ..accumulator::Signature::default()
        }
    }

    fn retractable(&self) -> EngineResult<Option<Box<dyn Retract>>> {
        Ok(A::RETRACTS.then(|| Box::new(self.groups()) as Box<dyn Retract>))
    }
}

/// An aggregate as the planner knows it.
pub struct UserAggregate {
    name: String,
    signature: Signature,
    arguments: Vec<DataType>,
    factory: Arc<dyn AccumulatorFactory>,
}

impl UserAggregate {
    /// What makes its accumulators.
    pub fn factory(&self) -> &Arc<dyn AccumulatorFactory> {
        &self.factory
    }

    fn takes(&self, given: &[DataType]) -> bool {
        let mut pairs = given.iter().zip(&self.arguments);
        given.len() == self.arguments.len() && pairs.all(|(given, wanted)| fits(given, wanted))
    }
}

pub(super) fn user_aggregate<A: Aggregate>(name: &str) -> Arc<AggregateUDF> {
    let name = name.to_lowercase();
    Arc::new(AggregateUDF::new_from_impl(UserAggregate {
        factory: Arc::new(Factory::<A> {
            name: name.as_str().into(),
            of: PhantomData,
        }),
        name,
        signature: Signature::user_defined(Volatility::Immutable),
        arguments: A::Arguments::data_types(),
    }))
}

impl AggregateUDFImpl for UserAggregate {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> PlanResult<Vec<DataType>> {
        // The planner would bury what is said here; it asks for the result's type next.
        Ok(match self.takes(given) {
            true => self.arguments.clone(),
            false => given.to_vec(),
        })
    }

    fn return_type(&self, given: &[DataType]) -> PlanResult<DataType> {
        if self.takes(given) {
            return Ok(self.factory.data_type());
        }
        let list = |types: &[DataType]| {
            types
                .iter()
                .map(sql_name)
                .collect::<Vec<String>>()
                .join(", ")
        };
        let error = SqlError::new(format!(
            "aggregate '{}' takes no ({})",
            self.name,
            list(given)
        ))
        .hint(format!(
            "{}({})",
            self.name.to_uppercase(),
            list(&self.arguments)
        ));
        Err(DataFusionError::External(Box::new(error)))
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> PlanResult<Box<dyn DataFusionAccumulator>> {
        let error = format!("'{}' is computed by the engine", self.name);
        Err(DataFusionError::Internal(error))
    }
}

impl fmt::Debug for UserAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

// There is one function of a name.
impl PartialEq for UserAggregate {
    fn eq(&self, other: &UserAggregate) -> bool {
        self.name == other.name
    }
}

impl Eq for UserAggregate {}

impl Hash for UserAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}
