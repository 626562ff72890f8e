//! Reads: a SELECT over tables whose rows are at hand, as they are at one moment.
//!
//! ```text
//! text ─ prepare ─► Prepared: types of parameters, columns ─ plan, with values ─► Planned::Direct   no scan
//!                                                                             └─► Planned::Program  a query
//! ```
//!
//! The dialect is that of queries, with `'emit' = 'final'`: the rows are those that a query over the same
//! rows has at its end. In addition, a read may have parameters (`$1`), VALUES, and no FROM.

mod constants;
mod direct;
mod parameters;

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::LogicalPlan;
use sqlparser::ast::Query;
use sqlparser::tokenizer::{Span, TokenWithSpan};

use crate::connectors::Connectors;
use crate::error::{Result, SqlError};
use crate::program::{self, Program};
use crate::session::Session;
use crate::settings::Parallelism;
use crate::statement::{Placed, Statement, parse};
use crate::table::{Table, TableColumn, TableHandle};

pub use constants::constant_of;
pub use direct::{Direct, From};

/// A table that reads may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Readable {
    /// The name.
    pub name: String,
    /// The columns.
    pub schema: SchemaRef,
    /// The columns that identify a row; `None` if there may be equal rows. Without columns there is at most
    /// one row.
    pub key: Option<Vec<usize>>,
}

/// Plans reads of some tables.
pub struct Reader {
    session: Session,
    keys: direct::Keys,
}

/// A read whose names and types are checked.
pub struct Prepared {
    plan: LogicalPlan,
    parameters: Vec<DataType>,
    schema: SchemaRef,
    /// The read, if it needs no query, whatever the values of its parameters are.
    direct: Option<Direct>,
    is_explained: bool,
    tokens: Arc<[TokenWithSpan]>,
}

/// How a read is done.
pub enum Planned {
    /// Without a query.
    Direct(DirectRead),
    /// By a query over the tables' rows.
    Program(Box<Program>),
}

/// A read that needs no query.
pub struct DirectRead {
    /// What is read, and what is computed of it.
    pub direct: Direct,
    /// The values of the parameters.
    pub values: Vec<ScalarValue>,
    /// The rows of VALUES.
    pub constants: Vec<RecordBatch>,
}

/// The size of the stack for planning, as that of compiling.
const STACK_BYTES: usize = program::STACK_BYTES;

impl Reader {
    /// Plans reads of these tables.
    ///
    /// # Errors
    ///
    /// If two of them have the same name.
    pub fn new(tables: Vec<Readable>) -> Result<Reader> {
        let mut session = Session::new();
        session.is_read = true;
        session.settings.emit_final = true;
        session.settings.parallelism = Some(Parallelism::Fixed(1));
        let mut keys = direct::Keys::new();
        for table in tables {
            if let Some(key) = &table.key {
                keys.insert(table.name.clone(), key.clone());
            }
            session.add_table(declared(table))?;
        }
        Ok(Reader { session, keys })
    }

    /// Adds the views of a text of CREATE VIEW statements, which reads may name, too.
    ///
    /// # Errors
    ///
    /// If the text has other statements, or a view reads what is not there.
    pub fn define(&mut self, text: &str) -> Result<()> {
        stacker::grow(STACK_BYTES, || {
            for placed in parse(text)? {
                let (session, tokens) = (&mut self.session, placed.tokens.clone());
                let added = program::add_view(session, placed.statement);
                added.map_err(|error| error.among(&tokens))?;
            }
            Ok(())
        })
    }

    /// Checks a read, and says what it takes and returns.
    ///
    /// # Errors
    ///
    /// If the text is not a SELECT, or EXPLAIN of one, or a name or type in it is wrong.
    pub fn prepare(&self, text: &str) -> Result<Prepared> {
        stacker::grow(STACK_BYTES, || {
            let (query, is_explained, tokens) = select(text)?;
            let prepared = self.prepared(query, is_explained, tokens.clone());
            prepared.map_err(|error| error.among(&tokens))
        })
    }

    fn prepared(
        &self,
        query: Query,
        is_explained: bool,
        tokens: Arc<[TokenWithSpan]>,
    ) -> Result<Prepared> {
        let count = parameters::count(&query)?;
        let plan = self.session.plan(query)?;
        if count == 0 {
            let plan = self.optimise(plan)?;
            return Ok(Prepared {
                schema: columns(&plan),
                direct: None,
                parameters: Vec::new(),
                plan,
                is_explained,
                tokens,
            });
        }
        let types = parameters::types(&plan, count)?;
        let plan = parameters::typed(plan, &types)?;
        let nulls = parameters::nulls(&types)?;
        let checked = self.optimise(parameters::replaced(plan.clone(), &nulls)?)?;
        // A parameter at a place where the optimizer expects a constant only costs a plan for each run.
        let open = self.optimise(plan.clone()).ok();
        let direct = open.and_then(|open| direct::of(&open, &self.keys));
        Ok(Prepared {
            schema: columns(&checked),
            direct,
            parameters: types,
            plan,
            is_explained,
            tokens,
        })
    }

    /// Plans a read with the values of its parameters, as text. `connectors` makes the connectors of a query
    /// from the rows of VALUES.
    ///
    /// # Errors
    ///
    /// If a value does not fit its parameter, or the read is not supported.
    pub fn plan<C: Connectors>(
        &self,
        prepared: &Prepared,
        values: &[Option<String>],
        connectors: impl FnOnce(Vec<RecordBatch>) -> C,
    ) -> Result<Planned> {
        let values = parameters::values(&prepared.parameters, values)?;
        if let Some(direct) = &prepared.direct {
            return Ok(Planned::Direct(DirectRead {
                direct: direct.clone(),
                values,
                constants: Vec::new(),
            }));
        }
        let planned = stacker::grow(STACK_BYTES, || {
            let plan = prepared.plan.clone();
            let plan = match values.is_empty() {
                true => plan,
                false => self.optimise(parameters::replaced(plan, &values)?)?,
            };
            let (plan, constants) = constants::taken_out(plan)?;
            if let Some(direct) = direct::of(&plan, &self.keys) {
                return Ok(Planned::Direct(DirectRead {
                    direct,
                    values,
                    constants,
                }));
            }
            let tokens = prepared.tokens.clone();
            let connectors = connectors(constants);
            let program = program::of_read(&self.session, &connectors, plan, tokens)?;
            Ok(Planned::Program(Box::new(program)))
        });
        planned.map_err(|error: SqlError| error.among(&prepared.tokens))
    }

    fn optimise(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.session.optimise(plan)
    }
}

impl Prepared {
    /// The types of the parameters `$1`, `$2`, …
    pub fn parameters(&self) -> &[DataType] {
        &self.parameters
    }

    /// The columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the read is only explained.
    pub fn is_explained(&self) -> bool {
        self.is_explained
    }

    /// The tables that the read names.
    pub fn tables(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        let visited = self.plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node
                && let Some(handle) = scan.source.downcast_ref::<TableHandle>()
            {
                names.insert(handle.0.name.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        });
        visited.expect("the closure never fails");
        names.into_iter().collect()
    }
}

/// The columns of a plan's rows. What a plan says of NULLs, the rows need not keep to.
fn columns(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

/// The query of a text with one SELECT or EXPLAIN of it.
fn select(text: &str) -> Result<(Query, bool, Arc<[TokenWithSpan]>)> {
    let mut statements = parse(text)?.into_iter();
    let (Some(placed), None) = (statements.next(), statements.next()) else {
        return Err(SqlError::new("a read is one SELECT statement"));
    };
    let Placed {
        statement, tokens, ..
    } = placed;
    let (statement, is_explained) = match statement {
        Statement::Explain(inner) => (*inner, true),
        statement => (statement, false),
    };
    match statement {
        Statement::Select(query) => Ok((*query, is_explained, tokens)),
        _ => Err(SqlError::new("only SELECT reads views").among(&tokens)),
    }
}

/// The option of a table with its connector.
pub const CONNECTOR: &str = "connector";

/// The connector of tables that reads may name.
pub const READABLE: &str = "view";

fn declared(table: Readable) -> Table {
    let columns = table.schema.fields().len();
    Table {
        name: table.name,
        physical: table.schema.clone(),
        metadata: Default::default(),
        schema: table.schema,
        columns: (0..columns).map(TableColumn::Physical).collect(),
        event_time: None,
        primary_key: Vec::new(),
        not_null: Default::default(),
        comment: None,
        column_comments: Default::default(),
        options: [(CONNECTOR.to_string(), READABLE.to_string())].into(),
        option_places: Default::default(),
        span: Span::empty(),
    }
}
