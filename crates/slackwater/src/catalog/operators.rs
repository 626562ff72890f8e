//! Operators in Python: functions that return a table. A call in a query has workers of its own, because its
//! arguments and tables are part of what they load.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::DataType;
use slackwater_engine::operator::custom_rows::{Rows, RowsFailure, RowsFunction};
use slackwater_sql::functions::operator::{Call, Operator, OperatorFunction};
use slackwater_sql::statement::{Constants, NamedType, TableFunction};
use slackwater_sql::types::{of_tables, sql_name};
use slackwater_udf::{
    Constant, Definition, Failure, Function, KeyedBatch, KeyedRan, Table, TableRows, unsupported,
};

use super::keyed_operators::{Factory, Runner};

/// A function that returns a table, and its calls in this program.
pub struct Calls {
    /// The function, without the arguments of a call.
    definition: Definition,
    declared: TableFunction,
    /// The functions of calls by what their workers are told: equal calls share them.
    made: Mutex<BTreeMap<String, Arc<Function>>>,
}

impl Runner for Function {
    fn keyed(&self, batch: &KeyedBatch) -> Result<KeyedRan, Failure> {
        Function::keyed(self, batch)
    }

    fn table(&self, columns: &[ArrayRef], rows: usize) -> Result<TableRows, Failure> {
        Function::table(self, columns, rows)
    }
}

/// What the worker of a call is told, without a call.
pub fn unplanned(declared: &TableFunction) -> Table {
    let inputs = declared.inputs.iter().flatten().cloned();
    Table {
        inputs: inputs.collect(),
        parameters: declared
            .constants
            .iter()
            .map(|(name, _)| name.clone())
            .collect(),
        constants: None,
        columns: declared.columns.clone(),
        state: declared.state.clone(),
        outputs: declared.outputs.clone(),
        is_ordered: false,
    }
}

/// All types that a declaration names.
pub fn types(declared: &TableFunction) -> impl Iterator<Item = &DataType> {
    let inputs = declared.inputs.iter().flatten().flatten();
    let others = declared
        .columns
        .iter()
        .chain(declared.state.iter().flatten());
    inputs.chain(others).map(|(_, data_type)| data_type)
}

impl Calls {
    /// A function without calls.
    pub fn new(definition: Definition, declared: TableFunction) -> Calls {
        Calls {
            definition,
            declared,
            made: Mutex::default(),
        }
    }

    /// The functions of all calls.
    pub fn made(&self) -> Vec<Arc<Function>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().cloned().collect()
    }

    /// The function as the planner knows it.
    pub fn operator(self: &Arc<Calls>) -> Arc<OperatorFunction> {
        let calls = Arc::clone(self);
        let plan = move |call: &Call| {
            let run =
                |table: Table| -> Result<Arc<dyn Runner>, String> { Ok(calls.function(table)) };
            plan(&calls.definition.name, &calls.declared, call, run)
        };
        Arc::new(function(&self.definition.name, &self.declared, plan))
    }

    /// The function of a call.
    fn function(&self, table: Table) -> Arc<Function> {
        let told = format!("{table:?}");
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let function = made.entry(told).or_insert_with(|| {
            Arc::new(Function::new(Definition {
                table: Some(table),
                ..self.definition.clone()
            }))
        });
        Arc::clone(function)
    }
}

/// An operator as the planner knows it; `plan` says what a call does.
pub fn function(
    name: &str,
    declared: &TableFunction,
    plan: impl Fn(&Call) -> Result<Operator, String> + Send + Sync + 'static,
) -> OperatorFunction {
    let parameters = declared.constants.iter();
    let parameters = parameters.map(|(name, _)| name.as_str());
    let clauses = match (&declared.state, declared.needs_order) {
        (None, _) => "",
        (Some(_), true) => " [PARTITION BY k] ORDER BY ts",
        (Some(_), false) => " [PARTITION BY k] [ORDER BY ts]",
    };
    let tables = (1..=declared.inputs.len()).map(|number| match declared.inputs.len() {
        1 => format!("TABLE t{clauses}"),
        _ => format!("TABLE t{number}{clauses}"),
    });
    let tables = tables.collect::<Vec<String>>().join(", ");
    OperatorFunction::new(name, &parameters.collect::<Vec<&str>>(), plan).with_tables(tables)
}

/// What a call of an operator does, which what `run` makes runs.
pub fn plan(
    name: &str,
    declared: &TableFunction,
    call: &Call,
    run: impl FnOnce(Table) -> Result<Arc<dyn Runner>, String>,
) -> Result<Operator, String> {
    let (wanted, given) = (declared.inputs.len(), call.inputs().len());
    if wanted != given {
        let tables = if wanted == 1 { "table" } else { "tables" };
        return Err(format!("takes {wanted} {tables}, not {given}"));
    }
    let (mut inputs, mut places) = (Vec::new(), Vec::new());
    for (input, columns) in call.inputs().iter().zip(&declared.inputs) {
        let columns = columns.clone().unwrap_or_else(|| {
            let fields = input.schema().fields().iter();
            let fields = fields.map(|field| (field.name().clone(), of_tables(field.data_type())));
            fields.collect::<Vec<NamedType>>()
        });
        let of_input = columns.iter();
        let of_input = of_input.map(|(name, data_type)| input.column_of(name, data_type.clone()));
        places.push(of_input.collect::<Result<Vec<usize>, String>>()?);
        inputs.push(columns);
    }
    for (column, data_type) in inputs.iter().flatten() {
        if let Some(part) = unsupported(data_type) {
            let part = sql_name(part);
            return Err(format!(
                "can't get the values of column '{column}', which are {part}; declare the columns that it \
                 reads: t TABLE (x DOUBLE)"
            ));
        }
    }
    let mut constants = Vec::new();
    for (name, kind) in &declared.constants {
        let constant = match kind {
            Constants::Booleans => call.optional(name)?.map(Constant::Boolean),
            Constants::Integers => call.optional(name)?.map(Constant::Integer),
            Constants::Numbers => call.optional(name)?.map(Constant::Number),
            Constants::Strings => call.optional(name)?.map(Constant::Text),
            Constants::Intervals => {
                let interval = call.optional::<std::time::Duration>(name)?;
                let us = interval.map(|interval| i64::try_from(interval.as_micros()));
                let us = us
                    .transpose()
                    .map_err(|_| format!("'{name}' is too long"))?;
                us.map(Constant::Interval)
            }
        };
        constants.extend(constant.map(|constant| (name.clone(), constant)));
    }
    let table = Table {
        inputs,
        constants: Some(constants),
        is_ordered: call.inputs()[0].is_ordered(),
        ..unplanned(declared)
    };
    let runner = run(table)?;
    Ok(match &declared.state {
        None => {
            let own = declared.columns.iter();
            let own = own.map(|(name, data_type)| (name.as_str(), data_type.clone()));
            let rows = RowsInPython {
                name: name.to_string(),
                runner,
                places: places.remove(0),
            };
            let operator = Operator::of_function(Arc::new(rows));
            let operator = operator.columns(&own.collect::<Vec<_>>());
            match declared.takes_updates {
                true => operator.takes_updates(),
                false => operator,
            }
        }
        Some(state) => {
            let factory = Factory {
                name: name.to_string(),
                runner,
                places,
                types: state
                    .iter()
                    .map(|(_, data_type)| data_type.clone())
                    .collect(),
            };
            let operator = Operator::of_factory(Arc::new(factory), state, &declared.columns);
            let outputs = declared.outputs.iter().map(String::as_str);
            let mut operator = operator
                .version(declared.version)
                .outputs(&outputs.collect::<Vec<&str>>());
            if declared.needs_order {
                operator = operator.needs_order();
            }
            if declared.forgets {
                operator = operator.forgets();
            }
            if declared.takes_updates {
                operator = operator.takes_updates();
            }
            if declared.emits_updates {
                operator = operator.emits_updates();
            }
            operator
        }
    })
}

/// A function without a state.
struct RowsInPython {
    name: String,
    runner: Arc<dyn Runner>,
    /// The places of its arguments in a batch.
    places: Vec<usize>,
}

impl fmt::Debug for RowsInPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl RowsFunction for RowsInPython {
    fn rows(&self, batch: &RecordBatch) -> Result<Vec<Rows>, RowsFailure> {
        let columns = self.places.iter();
        let columns = columns.map(|&place| Arc::clone(batch.column(place)));
        let columns = columns.collect::<Vec<ArrayRef>>();
        match self.runner.table(&columns, batch.num_rows()) {
            Ok(TableRows::Kept(kept)) => Ok(vec![Rows::Kept(kept)]),
            Ok(TableRows::Made(of, columns)) => Ok(vec![Rows::Made { of, columns }]),
            Err(failure) => Err(RowsFailure {
                reason: failure.reason,
                row: failure.row,
                is_final: failure.is_final,
            }),
        }
    }
}
