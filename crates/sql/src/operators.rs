//! Operators that a build adds, as table functions: their node in a plan. `operators/function.rs` parses
//! their calls, `operators/split.rs` those of SPLIT.

mod arguments;
mod declared;
mod function;
mod split;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use datafusion_common::{
    Column, DFSchema, DFSchemaRef, DataFusionError, ExprSchema, Result, ScalarValue, TableReference,
};
use datafusion_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::error::SqlError;
use crate::explain;
use crate::functions::operator::{Given, Kind, Operator};

pub use declared::DeclaredOperators;
pub use function::Operators;

/// A call of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorNode {
    /// The name in lower case.
    pub name: String,
    /// The arguments, as a message shows them.
    pub arguments: String,
    /// The arguments.
    pub given: ByName<Vec<(String, Option<Given>)>>,
    /// The tables.
    pub inputs: Vec<OperatorInput>,
    /// The output that is read, by its number; `None` if there is one.
    pub output: Option<usize>,
    /// What the call does.
    pub operator: ByName<Operator>,
    schema: DFSchemaRef,
}

/// A table of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OperatorInput {
    /// The plan of the table.
    pub plan: LogicalPlan,
    /// The columns of PARTITION BY.
    pub keys: Vec<Column>,
    /// The column of ORDER BY.
    pub time: Option<Column>,
    /// The columns that the operator asks for, and the types that it wants.
    pub wanted: Vec<(Column, DataType)>,
}

/// Something that follows from the name and the arguments of a call, and is not compared.
#[derive(Clone)]
pub struct ByName<T>(pub T);

impl<T> fmt::Debug for ByName<T> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl<T> PartialEq for ByName<T> {
    fn eq(&self, _: &ByName<T>) -> bool {
        true
    }
}

impl<T> Eq for ByName<T> {}

/// The columns of a table that an operator without state keeps.
pub fn kept(operator: &Operator, input: &DFSchema) -> Vec<usize> {
    let names = input.fields().iter().enumerate();
    match operator.kept() {
        None => (0..input.fields().len()).collect(),
        Some(kept) => {
            let kept = kept.iter().filter_map(|name| {
                let mut names = names.clone();
                names.find(|(_, field)| field.name() == name)
            });
            kept.map(|(index, _)| index).collect()
        }
    }
}

impl OperatorNode {
    fn new(
        name: String,
        given: Vec<(String, Option<Given>)>,
        operator: Operator,
        inputs: Vec<OperatorInput>,
        output: Option<usize>,
    ) -> Result<OperatorNode> {
        let schema = Arc::new(schema(&name, &operator, &inputs)?);
        Ok(OperatorNode {
            name,
            arguments: shown(&given, explain::literal),
            given: ByName(given),
            inputs,
            output,
            operator: ByName(operator),
            schema,
        })
    }

    /// The columns of the output.
    pub fn schema_fields(&self) -> Vec<Arc<Field>> {
        self.schema.fields().iter().cloned().collect()
    }

    /// Whether the operator keeps a state for each key.
    pub fn is_keyed(&self) -> bool {
        matches!(self.operator.0.kind(), Kind::Keyed { .. })
    }
}

/// The columns of the output.
fn schema(name: &str, operator: &Operator, inputs: &[OperatorInput]) -> Result<DFSchema> {
    let mut fields: Vec<(Option<TableReference>, Arc<Field>)> = Vec::new();
    let first = &inputs[0];
    let input = first.plan.schema();
    match operator.kind() {
        Kind::Rows(_) => {
            let kept = kept(operator, input).into_iter();
            fields.extend(kept.map(|index| {
                let (table, field) = input.qualified_field(index);
                (table.cloned(), Arc::clone(field))
            }));
        }
        Kind::Keyed { .. } => {
            for key in &first.keys {
                let field = input.field_from_column(key)?;
                let field = Field::new(field.name(), field.data_type().clone(), true);
                fields.push((None, Arc::new(field)));
            }
            // A row that retracts another has the same values in every column.
            let time = first.time.as_ref().filter(|_| !operator.makes_updates());
            if let Some(time) = time {
                // The finest unit of all inputs.
                let units = inputs.iter().filter_map(|input| {
                    let time = input.time.as_ref()?;
                    Some(
                        input
                            .plan
                            .schema()
                            .field_from_column(time)
                            .ok()?
                            .data_type()
                            .clone(),
                    )
                });
                let of_time = input.field_from_column(time)?.data_type().clone();
                let unit = units.fold(
                    of_time,
                    |finest, unit| if unit > finest { unit } else { finest },
                );
                fields.push((None, Arc::new(Field::new(&time.name, unit, true))));
            }
        }
    }
    for (own, data_type) in operator.own() {
        if fields.iter().any(|(_, field)| field.name() == own) {
            let error = format!(
                "{} adds a column '{own}', and its table has one of that name",
                name
            );
            let error =
                SqlError::new(error).hint(format!("rename it: (SELECT {own} AS …, … FROM t)"));
            return Err(DataFusionError::External(Box::new(error)));
        }
        fields.push((None, Arc::new(Field::new(own, data_type.clone(), true))));
    }
    DFSchema::new_with_metadata(fields, Default::default())
}

impl Hash for OperatorNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.arguments.hash(state);
        self.inputs.hash(state);
        self.output.hash(state);
    }
}

impl PartialOrd for OperatorNode {
    fn partial_cmp(&self, _: &OperatorNode) -> Option<Ordering> {
        None
    }
}

impl OperatorInput {
    /// The columns that the operator reads, whatever is read of it.
    fn own_columns(&self) -> impl Iterator<Item = &Column> {
        let wanted = self.wanted.iter().map(|(column, _)| column);
        self.keys.iter().chain(&self.time).chain(wanted)
    }
}

impl UserDefinedLogicalNodeCore for OperatorNode {
    fn name(&self) -> &str {
        "Operator"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().map(|input| &input.plan).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        let columns = self.inputs.iter().flat_map(OperatorInput::own_columns);
        columns.cloned().map(Expr::Column).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Operator: {}({})", self.name, self.arguments)
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<OperatorNode> {
        let columns = exprs.into_iter().map(|expression| match expression {
            Expr::Column(column) => Ok(column),
            _ => Err(DataFusionError::Internal(
                "an operator reads columns".into(),
            )),
        });
        let mut columns = columns.collect::<Result<Vec<Column>>>()?.into_iter();
        let inputs = self
            .inputs
            .iter()
            .zip(inputs)
            .map(|(input, plan)| OperatorInput {
                plan,
                keys: columns.by_ref().take(input.keys.len()).collect(),
                time: columns
                    .by_ref()
                    .take(usize::from(input.time.is_some()))
                    .next(),
                // The types come first: a zip takes of the first what the second doesn't have.
                wanted: {
                    let types = input.wanted.iter().map(|(_, data_type)| data_type.clone());
                    types
                        .zip(columns.by_ref())
                        .map(|(data_type, column)| (column, data_type))
                        .collect()
                },
            });
        let inputs = inputs.collect();
        OperatorNode::new(
            self.name.clone(),
            self.given.0.clone(),
            self.operator.0.clone(),
            inputs,
            self.output,
        )
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let needed = self.inputs.iter().map(|input| {
            let schema = input.plan.schema();
            let mut needed = Vec::new();
            if !self.is_keyed() {
                let kept = kept(&self.operator.0, schema);
                let read = output_columns.iter().filter_map(|&column| kept.get(column));
                needed.extend(read.copied());
            }
            for column in input.own_columns() {
                needed.push(schema.index_of_column(column).ok()?);
            }
            // Rows are counted by a column.
            if needed.is_empty() {
                needed.push(0);
            }
            needed.sort_unstable();
            needed.dedup();
            Some(needed)
        });
        needed.collect()
    }
}

/// The arguments, with constants as `literal` shows them.
pub fn shown(
    arguments: &[(String, Option<Given>)],
    literal: impl Fn(&ScalarValue) -> String,
) -> String {
    let shown = arguments.iter().filter_map(|(name, value)| {
        Some(match value.as_ref()? {
            Given::Constant(value) => format!("{name} => {}", literal(value)),
            Given::Columns(columns) => format!("{name} => DESCRIPTOR({})", columns.join(", ")),
        })
    });
    shown.collect::<Vec<String>>().join(", ")
}
