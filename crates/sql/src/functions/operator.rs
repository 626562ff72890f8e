//! Operators that a build adds to the language: table functions, `FROM name(TABLE t …, arguments)`.
//!
//! A build registers a name, the names of the parameters, and a function that is asked for each call in a
//! query ([`Call`]) what the call does ([`Operator`]). `docs/operators.md` explains how to use it.

mod call;
mod keyed;
mod rows;

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field};
use slackwater_engine::operator::custom::KeyedFactory;
use slackwater_engine::operator::custom_rows::RowsFunction;

pub use call::{Call, Column, Constant, Given, Input, Wanted};
pub use keyed::{Change, KeyedOperator, Out, Row};
pub use slackwater_engine::operator::custom_rows::Rows;

/// What a call of an operator does in a query.
#[derive(Clone)]
pub struct Operator {
    kind: Kind,
    /// The operator's own columns.
    columns: Vec<(String, DataType)>,
    outputs: Vec<String>,
    keeps: Option<Vec<String>>,
    version: u32,
    takes_updates: bool,
    emits_updates: bool,
    forgets: bool,
    needs_order: bool,
    together: Option<usize>,
    dealt: bool,
}

/// The kinds of operators.
#[derive(Clone)]
pub enum Kind {
    /// An operator without state.
    Rows(Arc<dyn RowsFunction>),
    /// An operator with a state for each key.
    Keyed {
        /// Makes its functions.
        factory: Arc<dyn KeyedFactory>,
        /// The types of the saved state.
        saved: Vec<DataType>,
    },
}

impl Operator {
    fn new(kind: Kind, columns: Vec<(String, DataType)>) -> Operator {
        Operator {
            kind,
            columns,
            outputs: Vec::new(),
            keeps: None,
            version: 1,
            takes_updates: false,
            emits_updates: false,
            forgets: false,
            needs_order: false,
            together: None,
            dealt: false,
        }
    }

    /// An operator without state. `function` gets batches with the columns that the call has asked for
    /// ([`Input::column`]), in that order, and says which rows it keeps or makes. Its result must depend on
    /// the rows alone, one by one: how rows are cut into batches differs from run to run. An error means that
    /// at least one row fails: the function is called again with fewer rows, until those are found.
    pub fn rows(
        function: impl Fn(&RecordBatch) -> Result<Rows, String> + Send + Sync + 'static,
    ) -> Operator {
        let function = move |batch: &RecordBatch| Ok(vec![function(batch)?]);
        Operator::new(Kind::Rows(rows::function(function)), Vec::new())
    }

    /// An operator without state and with several outputs: `function` returns the rows of each of them.
    pub fn rows_to(
        outputs: &[&str],
        function: impl Fn(&RecordBatch) -> Result<Vec<Rows>, String> + Send + Sync + 'static,
    ) -> Operator {
        Operator::new(Kind::Rows(rows::function(function)), Vec::new()).outputs(outputs)
    }

    /// An operator with a state for each key, which emits rows with these columns after those of the key
    /// (and, with ORDER BY, the event time). There are as many names as [`KeyedOperator::Row`] has values.
    pub fn keyed<K: KeyedOperator>(operator: K, columns: &[&str]) -> Operator {
        let types = keyed::types::<K::Row>();
        let names = columns.iter().map(|name| (*name).to_string());
        let names = names.collect::<Vec<String>>();
        let kind = Kind::Keyed {
            factory: keyed::factory(operator, types.len()),
            saved: keyed::types::<K::Saved>(),
        };
        // A wrong number of names is an error of the call: `checked`.
        let missing = (names.len()..types.len()).map(|_| String::new());
        let names = names.iter().cloned().chain(missing);
        let none = types
            .iter()
            .cloned()
            .chain(std::iter::repeat(DataType::Null));
        let columns = names.zip(none).collect();
        Operator::new(kind, columns)
    }

    /// An operator without state with a function of the engine.
    pub fn of_function(function: Arc<dyn RowsFunction>) -> Operator {
        Operator::new(Kind::Rows(function), Vec::new())
    }

    /// An operator with a state for each key, whose functions `factory` makes: what they save and emit has
    /// these names and types.
    pub fn of_factory(
        factory: Arc<dyn KeyedFactory>,
        saved: &[(String, DataType)],
        columns: &[(String, DataType)],
    ) -> Operator {
        // The names are part of the identity: a state in another order means something else.
        let fields = saved.iter();
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type.clone(), true));
        let saved = vec![DataType::Struct(fields.collect())];
        Operator::new(Kind::Keyed { factory, saved }, columns.to_vec())
    }

    /// The operator's own columns, for one without state that makes columns ([`Rows::Made`]): they follow
    /// those of the input.
    #[must_use]
    pub fn columns(mut self, columns: &[(&str, DataType)]) -> Operator {
        let columns = columns.iter();
        let columns = columns.map(|(name, data_type)| ((*name).to_string(), data_type.clone()));
        self.columns = columns.collect();
        self
    }

    /// The columns of the input that rows keep, for an operator without state; all, unless this is called.
    #[must_use]
    pub fn keeps(mut self, columns: &[&str]) -> Operator {
        self.keeps = Some(columns.iter().map(|name| (*name).to_string()).collect());
        self
    }

    /// The names of several outputs, which all have the same columns. A query reads one of them:
    /// `FROM f(…) OUTPUT name`.
    #[must_use]
    pub fn outputs(mut self, outputs: &[&str]) -> Operator {
        self.outputs = outputs.iter().map(|name| (*name).to_string()).collect();
        self
    }

    /// The version of the operator, 1 unless this is called. A query with another version does not resume
    /// from checkpoints of this one: change it when old states mean something else.
    #[must_use]
    pub fn version(mut self, version: u32) -> Operator {
        self.version = version;
        self
    }

    /// Says that the operator takes updates and deletions of rows, too. One without state must treat two
    /// versions of a row, and a row that is taken back, by their columns alone. One by key gets every change,
    /// without ORDER BY, and [`Row::change`] says what it is.
    #[must_use]
    pub fn takes_updates(mut self) -> Operator {
        self.takes_updates = true;
        self
    }

    /// Says that an operator by key retracts rows that it has emitted ([`Out::retract`]). Its rows have no
    /// event time.
    #[must_use]
    pub fn emits_updates(mut self) -> Operator {
        self.emits_updates = true;
        self
    }

    /// Says that the operator forgets its keys ([`Out::forget`]), so that its state does not grow for ever:
    /// there is no warning about it.
    #[must_use]
    pub fn forgets(mut self) -> Operator {
        self.forgets = true;
        self
    }

    /// Says that an operator by key needs ORDER BY: because the order of rows matters to it, or because it
    /// sets timers.
    #[must_use]
    pub fn needs_order(mut self) -> Operator {
        self.needs_order = true;
        self
    }

    /// Says that an operator without state hands on at most `rows` rows together, for rows that are large, or
    /// that cost much work later.
    #[must_use]
    pub fn together(mut self, rows: usize) -> Operator {
        self.together = Some(rows);
        self
    }

    /// Says that an operator without state costs much for each row: its rows are dealt among as many copies
    /// as the query's parallelism, if the query says `SET 'order' = 'none'`. By demand, unless the setting
    /// `balancer` is `'round_robin'`.
    #[must_use]
    pub fn dealt(mut self) -> Operator {
        self.dealt = true;
        self
    }

    /// Checks what the author of the operator has declared.
    fn checked(self) -> Result<Operator, String> {
        let wrong = self
            .columns
            .iter()
            .any(|(name, data_type)| name.is_empty() || *data_type == DataType::Null);
        let reason = match &self.kind {
            Kind::Keyed { .. } if wrong => "its rows have another number of values than names",
            Kind::Keyed { .. } if self.keeps.is_some() => {
                "only an operator without state keeps columns"
            }
            Kind::Keyed { .. } if self.takes_updates && self.needs_order => {
                "rows that are updated have no order, so it can't take updates and need an order"
            }
            Kind::Rows(_) if self.emits_updates => {
                "only an operator by key emits updates: one without state emits those that it takes"
            }
            Kind::Keyed { .. } if self.together.is_some() || self.dealt => {
                "only an operator without state hands on few rows together, or is dealt rows"
            }
            _ if self.together == Some(0) => "no rows together are none at all",
            _ if self.outputs.len() == 1 => "a single output needs no name",
            _ => return Ok(self),
        };
        Err(format!("is declared wrongly: {reason}"))
    }

    /// Its kind.
    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Its own columns.
    pub(crate) fn own(&self) -> &[(String, DataType)] {
        &self.columns
    }

    /// The names of its outputs; none if there is one.
    pub(crate) fn output_names(&self) -> &[String] {
        &self.outputs
    }

    /// The columns of the input that rows keep; `None` for all.
    pub(crate) fn kept(&self) -> Option<&[String]> {
        self.keeps.as_deref()
    }

    pub(crate) fn version_number(&self) -> u32 {
        self.version
    }

    pub(crate) fn accepts_updates(&self) -> bool {
        self.takes_updates
    }

    pub(crate) fn makes_updates(&self) -> bool {
        self.emits_updates
    }

    pub(crate) fn is_order_needed(&self) -> bool {
        self.needs_order
    }

    pub(crate) fn most_together(&self) -> Option<usize> {
        self.together
    }

    pub(crate) fn is_dealt(&self) -> bool {
        self.dealt
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.forgets
    }
}

type Plan = dyn Fn(&Call) -> Result<Operator, String> + Send + Sync;

/// An operator of the language.
#[derive(Clone)]
pub struct OperatorFunction {
    /// The name in lower case.
    pub name: String,
    /// The names of the parameters, in order.
    pub parameters: Vec<String>,
    /// The tables of a call as messages show them, if they are known before it is asked.
    tables: Option<String>,
    plan: Arc<Plan>,
}

impl OperatorFunction {
    /// An operator with a name, and the names of its parameters; `plan` says what a call does.
    pub fn new(
        name: &str,
        parameters: &[&str],
        plan: impl Fn(&Call) -> Result<Operator, String> + Send + Sync + 'static,
    ) -> OperatorFunction {
        OperatorFunction {
            name: name.to_lowercase(),
            parameters: parameters.iter().map(|name| (*name).to_string()).collect(),
            tables: None,
            plan: Arc::new(plan),
        }
    }

    /// Says what tables a call gives, for messages.
    #[must_use]
    pub fn with_tables(mut self, tables: String) -> OperatorFunction {
        self.tables = Some(tables);
        self
    }

    /// What a call does.
    ///
    /// # Errors
    ///
    /// What is wrong with the call.
    pub fn operator(&self, call: &Call) -> Result<Operator, String> {
        let operator = (self.plan)(call)?.checked()?;
        call.asked().is_without_state = matches!(operator.kind, Kind::Rows(_));
        Ok(operator)
    }

    /// An example of a call, for messages: what is known before and after the operator was asked for a call.
    pub fn form(&self, call: Option<&Call>) -> String {
        let asked = call.map(Call::asked);
        let is_without_state = asked.as_ref().is_some_and(|asked| asked.is_without_state);
        let clauses = match is_without_state {
            true => "",
            false => " [PARTITION BY k] [ORDER BY ts]",
        };
        let tables = match (&self.tables, asked.as_ref().and_then(|asked| asked.tables)) {
            (Some(tables), _) => tables.clone(),
            (None, None | Some(0 | 1)) => format!("TABLE t{clauses}"),
            (None, Some(several)) => {
                let tables = (1..=several).map(|number| format!("TABLE t{number}{clauses}"));
                tables.collect::<Vec<String>>().join(", ")
            }
        };
        let arguments = self.parameters.iter().map(|name| {
            let is_column = asked
                .as_ref()
                .is_some_and(|asked| asked.columns.contains(name));
            let value = if is_column { "DESCRIPTOR(…)" } else { "…" };
            format!(", {name} => {value}")
        });
        format!("{}({tables}{})", self.name, arguments.collect::<String>())
    }
}

impl fmt::Debug for OperatorFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
