//! Aggregates of one group, written in Rust, as accumulators of the engine for many groups.

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
    self, Accumulator, AccumulatorFactory, Failures, OrderKey, Retract, Values,
};
use slackwater_engine::{Error, Result as EngineResult};

use super::values::{Argument, Cell, Output, downcast, fits};
use crate::error::SqlError;
use crate::types::sql_name;

/// An aggregate function: the value of one group of rows.
///
/// Rows come in any order, and in parts that are merged: `add` and `merge` must give the same value in any
/// order, or the query's answer depends on the run. See `docs/functions.md`.
pub trait Aggregate: Default + Send + 'static {
    /// The arguments: an [`Argument`] or a tuple of them (`&'static str` for strings).
    type Arguments: Arguments;
    /// The result.
    type Value: Output;
    /// The state that is saved and sent: a [`Stored`] or a tuple of them.
    type State: State;

    /// Adds a row. Rows with a NULL argument are skipped, unless that argument is an `Option`.
    fn add(&mut self, row: <Self::Arguments as Arguments>::Row<'_>);

    /// Whether the aggregate implements [`Aggregate::retract`]. If not, all values of each group are kept
    /// where rows may be retracted, and added again to a new aggregate.
    const RETRACTS: bool = false;

    /// Removes a row that was added before. Called only if [`Aggregate::RETRACTS`] is true.
    fn retract(&mut self, _row: <Self::Arguments as Arguments>::Row<'_>) {}

    /// Adds the rows that another aggregate has seen.
    fn merge(&mut self, other: Self);

    /// The value of the rows so far; more rows may follow.
    fn value(&self) -> Self::Value;

    /// The state from which [`Aggregate::load`] makes an equal aggregate.
    fn save(&self) -> Self::State;

    /// The aggregate with a saved state.
    fn load(state: Self::State) -> Self;
}

/// The arguments of an aggregate.
pub trait Arguments: 'static {
    /// The arguments of a row.
    type Row<'a>;

    /// The types of the arguments.
    fn data_types() -> Vec<DataType>;

    /// Calls `add` with the number and the arguments of each row, except rows with a NULL that is not
    /// allowed.
    ///
    /// # Errors
    ///
    /// When a column has the wrong type.
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

/// A value in a saved state: `bool`, an integer, `f32`, `f64`, `String`, `Vec<u8>` (BYTES),
/// [`Time`](super::Time), or an `Option` of these.
pub trait Stored: Sized {
    /// The type of the value in a column.
    type Cell: Cell;

    /// The value as it is saved.
    fn store(self) -> Option<Self::Cell>;

    /// The saved value.
    ///
    /// # Errors
    ///
    /// When the column has the wrong type, or the value is missing.
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
                value.ok_or_else(|| "a part of the state is missing".to_string())
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
    String, &str, |value: &str| value.to_string();
    Vec<u8>, &[u8], |value: &[u8]| value.to_vec()
);

/// The saved state of an aggregate.
pub trait State: Sized {
    /// Several states as columns.
    fn columns(states: Vec<Self>) -> Vec<ArrayRef>;

    /// The state of a row.
    ///
    /// # Errors
    ///
    /// When the columns were not made by [`State::columns`].
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
state!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6);
state!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7);
state!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8);
state!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9);

/// An aggregate for each group, created with its first row or state.
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

    fn reset(&mut self, groups: &[u32]) {
        for &group in groups {
            self.groups[group as usize] = None;
        }
    }

    fn update(
        &mut self,
        groups: &[u32],
        arguments: &[ArrayRef],
        _: &[OrderKey],
    ) -> EngineResult<Failures> {
        let all = &mut self.groups;
        let added = A::Arguments::each(arguments, |row, values| {
            all[groups[row] as usize]
                .get_or_insert_default()
                .add(values);
        });
        added.map_err(|reason| self.failed(reason))?;
        Ok(Failures::new())
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
            // An empty group takes the state over unchanged: merging could change its last bits.
            match &mut self.groups[group as usize] {
                Some(of_group) => of_group.merge(state),
                empty => *empty = Some(state),
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        // Memory that the aggregates allocate themselves is not counted.
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
    marker: PhantomData<fn() -> A>,
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

/// A user's aggregate as a function of the planner.
pub struct UserAggregate {
    name: String,
    /// The name as it was written.
    shown: String,
    signature: Signature,
    arguments: Vec<DataType>,
    factory: Arc<dyn AccumulatorFactory>,
}

impl UserAggregate {
    /// The factory of the function's accumulators.
    pub fn factory(&self) -> &Arc<dyn AccumulatorFactory> {
        &self.factory
    }

    fn takes(&self, given: &[DataType]) -> bool {
        let mut pairs = given.iter().zip(&self.arguments);
        given.len() == self.arguments.len() && pairs.all(|(given, wanted)| fits(given, wanted))
    }
}

pub(super) fn user_aggregate<A: Aggregate>(name: &str) -> Arc<AggregateUDF> {
    let factory = Arc::new(Factory::<A> {
        name: name.to_lowercase().as_str().into(),
        marker: PhantomData,
    });
    aggregate_of(name, A::Arguments::data_types(), factory)
}

/// An aggregate function with these arguments and accumulators.
pub(super) fn aggregate_of(
    name: &str,
    arguments: Vec<DataType>,
    factory: Arc<dyn AccumulatorFactory>,
) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(UserAggregate {
        factory,
        name: name.to_lowercase(),
        shown: name.to_string(),
        signature: Signature::user_defined(Volatility::Immutable),
        arguments,
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
        // The planner hides errors from here; it asks for the type of the result next.
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
            "aggregate '{}' does not accept ({})",
            self.shown,
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
        let error = format!(
            "'{}' is computed by the engine, not by DataFusion",
            self.name
        );
        Err(DataFusionError::Internal(error))
    }
}

impl fmt::Debug for UserAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

// Function names are unique.
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
