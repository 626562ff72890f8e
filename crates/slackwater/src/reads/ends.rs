//! The ends of a read's query: sources of a view's rows, and the sink from which the reader takes rows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, GenericListArray, RecordBatch, RecordBatchOptions, StructArray,
};
use arrow_schema::{DataType, Schema, SchemaRef};
use slackwater_engine::chunk::{Chunk, Positions};
use slackwater_engine::link::Waiter;
use slackwater_engine::operator::lookup_join::LookupConnector;
use slackwater_engine::sink::{
    Accepts, Delivery, Sink, SinkCapabilities, SinkCheckpoints, SinkConnector, SinkDescription,
    SinkRequest,
};
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest, SourceRows,
};
use slackwater_engine::time::now_ns;
use slackwater_engine::{Error, Result};
use slackwater_sql::SqlError;
use slackwater_sql::connectors::Connectors;
use slackwater_sql::functions::DeclaredFunction;
use slackwater_sql::read::constant_of;
use slackwater_sql::statement::{CreateFunction, CreateTable};
use slackwater_sql::table::Table;

use super::{AtCut, Failed, Limits, Scan};

/// What the ends of a query share with its reader.
pub struct Shared {
    pub limits: Limits,
    rows: OnceLock<Box<dyn AtCut>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Rows that the reader has not taken: what one step of the query has made.
    made: VecDeque<RecordBatch>,
    /// Why a source failed.
    failed: Option<Failed>,
}

impl Shared {
    pub fn new(limits: Limits) -> Shared {
        Shared {
            limits,
            rows: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// The rows that the sources read.
    pub fn set(&self, rows: Box<dyn AtCut>) {
        let _ = self.rows.set(rows);
    }

    /// The next rows for the reader.
    pub fn take(&self) -> Option<RecordBatch> {
        self.state().made.pop_front()
    }

    /// Why a source failed, once.
    pub fn failed(&self) -> Option<Failed> {
        self.state().failed.take()
    }

    /// Notes why a source fails, and says so to the engine.
    fn fail(&self, failed: Failed) -> Error {
        let error = Error::new("", failed.to_string());
        self.state().failed = Some(failed);
        error
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connectors of a read's query.
pub struct Ends {
    shared: Arc<Shared>,
    constants: Vec<RecordBatch>,
}

impl Ends {
    pub fn new(shared: Arc<Shared>, constants: Vec<RecordBatch>) -> Ends {
        Ends { shared, constants }
    }
}

impl Connectors for Ends {
    fn source(&self, table: &Table) -> std::result::Result<Arc<dyn SourceConnector>, SqlError> {
        Ok(Arc::new(Rows {
            schema: table.physical.clone(),
            constant: constant_of(table).map(|number| self.constants[number].clone()),
            view: table.name.clone(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn sink(
        &self,
        table: Option<&Table>,
        _: &SchemaRef,
    ) -> std::result::Result<Arc<dyn SinkConnector>, SqlError> {
        match table {
            None => Ok(Arc::new(Taken(Arc::clone(&self.shared)))),
            Some(table) => Err(SqlError::new(format!("'{}' can't be written", table.name))),
        }
    }

    fn lookup(&self, _: &Table) -> std::result::Result<Option<Arc<dyn LookupConnector>>, SqlError> {
        Ok(None)
    }

    fn translate(&self, _: &mut CreateTable) -> std::result::Result<(), SqlError> {
        Ok(())
    }

    fn function(
        &self,
        create: &CreateFunction,
    ) -> std::result::Result<Arc<dyn DeclaredFunction>, SqlError> {
        let name = &create.name.value;
        Err(SqlError::new(format!(
            "function '{name}' can't be called by a read"
        )))
    }

    fn check(&self, _: &Table) -> std::result::Result<(), SqlError> {
        Ok(())
    }

    fn table_options(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The rows of a view, or of VALUES.
struct Rows {
    schema: SchemaRef,
    constant: Option<RecordBatch>,
    view: String,
    shared: Arc<Shared>,
}

impl SourceConnector for Rows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn describe(&self) -> SourceDescription {
        let connector = match self.constant {
            Some(_) => "rows of the statement",
            None => "materialized view",
        };
        SourceDescription {
            connector: connector.to_string(),
            max_instances: 1,
            bounded: true,
            replayable: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        let columns = request.projection;
        let scan: Scan = match &self.constant {
            Some(rows) => Box::new(std::iter::once(Ok(rows.project(&columns)?))),
            None => {
                let rows = self.shared.rows.get();
                let rows = rows.expect("a query starts after its cut is taken");
                let scan = rows.scan(&self.view, &columns);
                scan.map_err(|failed| self.shared.fail(failed))?
            }
        };
        Ok(Box::new(Scanned {
            schema: Arc::new(self.schema.project(&columns)?),
            scan,
            rest: None,
            chunk_rows: request.tuning.chunk_rows(),
            read: 0,
            shared: Arc::clone(&self.shared),
        }))
    }
}

/// A source that reads on its reader's thread, so it may block.
struct Scanned {
    /// The columns that are read, with those fields of ROWs that are used.
    schema: SchemaRef,
    scan: Scan,
    /// What is left of a batch that is larger than a chunk.
    rest: Option<RecordBatch>,
    chunk_rows: usize,
    read: u64,
    shared: Arc<Shared>,
}

impl Source for Scanned {
    fn open(&mut self, _: &mut Waiter) -> Result<Vec<(u32, String)>> {
        Ok(vec![(0, String::new())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        let next = match self.rest.take() {
            Some(rest) => Some(Ok(rest)),
            None => self.scan.next(),
        };
        let batch = match next {
            None => return Ok(SourcePoll::End),
            Some(batch) => batch.map_err(|failed| self.shared.fail(failed))?,
        };
        let rows = batch.num_rows().min(self.chunk_rows);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let first = self.read;
        self.read += rows as u64;
        Ok(SourcePoll::Rows(SourceRows {
            batch: fitted(&batch.slice(0, rows), &self.schema)?,
            partition: 0,
            positions: Positions::Run { first },
            ingest_ns: now_ns(),
            rejected: Vec::new(),
        }))
    }

    fn close(&mut self) {}
}

/// The batch with only those fields of ROWs that the schema has.
fn fitted(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| only(column, field.data_type()));
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // What a batch says of NULLs is not looked at.
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new_with_options(schema, columns, &rows)?)
}

fn only(column: &ArrayRef, wanted: &DataType) -> Result<ArrayRef> {
    if column.data_type() == wanted {
        return Ok(column.clone());
    }
    Ok(match wanted {
        DataType::Struct(fields) if column.as_struct_opt().is_some() => {
            let row = column.as_struct();
            let parts = fields
                .iter()
                .map(|field| match row.column_by_name(field.name()) {
                    Some(part) => only(part, field.data_type()),
                    None => Err(Error::new(
                        "",
                        format!("there is no field '{}'", field.name()),
                    )),
                });
            let parts = parts.collect::<Result<Vec<ArrayRef>>>()?;
            let nulls = row.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                parts,
                nulls,
                row.len(),
            )?)
        }
        DataType::List(field) if column.as_list_opt::<i32>().is_some() => {
            let list = column.as_list::<i32>();
            let values = only(list.values(), field.data_type())?;
            let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
            Arc::new(GenericListArray::try_new(
                field.clone(),
                offsets,
                values,
                nulls,
            )?)
        }
        _ => {
            let (own, wanted) = (column.data_type(), wanted);
            let error = format!("a view's rows have a column of type {own} instead of {wanted}");
            return Err(Error::new("", error));
        }
    })
}

/// Where the reader takes rows.
struct Taken(Arc<Shared>);

impl SinkConnector for Taken {
    fn describe(&self) -> SinkDescription {
        SinkDescription::new("reader", "")
    }

    fn capabilities(&self) -> SinkCapabilities {
        SinkCapabilities {
            max_instances: 1,
            max_instances_saved: 1,
            uses_waiter: false,
            accepts: Accepts::Rows,
            delivery: Delivery::ExactlyOnce,
            may_lose_prepared: false,
            client_waits_ms: &[],
        }
    }

    fn sink(&self, _: &SinkRequest) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Taken(Arc::clone(&self.0))))
    }

    fn begin(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn checkpoints(&self) -> Option<&dyn SinkCheckpoints> {
        None
    }
}

impl Sink for Taken {
    fn open(&mut self, _: &mut Waiter) -> Result<()> {
        Ok(())
    }

    fn ready(&mut self) -> Result<bool> {
        Ok(self.0.state().made.is_empty())
    }

    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        self.0.state().made.push_back(chunk.batch.clone());
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self, _: bool) -> Result<()> {
        Ok(())
    }
}
