//! The datagen source: generated rows, which only depend on the seed and not on the chunks.
//!
//! A row's position is its number, so a restored query resumes at a position without a bookmark. The
//! pace starts over with the next row.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SchemaRef};
use slackwater_engine::chunk::Positions;
use slackwater_engine::error::Result;
use slackwater_engine::link::Waiter;
use slackwater_engine::source::{
    Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest, SourceRows, Spread,
};
use slackwater_engine::time::now_ns;

use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::datagen::{Columns, GeneratorSpec, Order};
use crate::file_format::Formats;
use crate::options::{OptionError, Options, Rate, option};
use crate::pacer::{Pace, Pacer};

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "datagen",
    aliases: &[],
    source: Some(|table, options| Ok(Arc::new(DatagenConnector::new(table, options)?))),
    sink: None,
    lookup: None,
    formats: Formats::None,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: false,
    is_pushed: false,
    at_home: AtHome::Never,
    options: &[],
    source_options: &[
        option("generator", "required", "`nexmark` or `uservisits`"),
        option("seed", "`1`", "seed of the random numbers"),
        option("rows", "unlimited", "number of rows"),
        option(
            "rate",
            "as fast as possible",
            "rows per second: `'10000/s'`. A row's ingest time is the time at which it is due",
        ),
        option(
            "rate_max",
            "none",
            "with `rate_period`: `'500000/s'`. Once in each period the rate rises from `rate` to this \
             rate and falls again, as traffic does over a day",
        ),
        option("rate_period", "none", "`'60 s'`: the period of `rate_max`"),
        option(
            "events_per_second",
            "`1000`",
            "rows per second of event time",
        ),
        option(
            "start",
            "`1436918400000`",
            "event time of the first row, in ms since 1970",
        ),
        option(
            "disorder",
            "none",
            "`'500 ms'`: every row is delayed at random by less than this, so no row is out of order by \
             more",
        ),
        option(
            "addresses",
            "`10000`",
            "`uservisits`: number of distinct addresses, up to 1,000,000",
        ),
    ],
    sink_options: &[],
    lookup_options: &[],
};

/// A table of generated rows.
#[derive(Debug)]
pub(crate) struct DatagenConnector {
    pub(crate) schema: SchemaRef,
    pub(crate) spec: GeneratorSpec,
    pub(crate) rows: Option<u64>,
    pub(crate) pacer: Option<Arc<Pacer>>,
}

impl SourceConnector for DatagenConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "datagen".into(),
            max_instances: 1,
            partitions: Some(vec![partition_name(&Columns::new(
                &self.spec,
                &self.schema,
            ))]),
            parsers: false,
            spread: Spread::default(),
            bounded: self.rows.is_some(),
            redelivers: false,
            keeps_positions: false,
            ends_with_peer: false,
            transient_partitions: false,
            replayable: true,
            total_bytes: None,
            rows_per_s: self.pacer.as_ref().map(|pacer| pacer.rows_per_s()),
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        let fields = request
            .projection
            .iter()
            .map(|&column| self.schema.field(column).clone());
        let read = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let columns = Columns::new(&self.spec, &read);
        let name = partition_name(&columns);
        let known = request.resume.iter().find(|known| known.name == name);
        // Positions begin with 1.
        let made = known.map_or(0, |known| known.position.saturating_sub(1));
        let made = self.rows.map_or(made, |rows| made.min(rows));
        let rows_left = self.rows.map(|rows| rows - made);
        let has_ended = known.is_some_and(|known| known.ended);
        // The only partition belongs to the first instance.
        let is_idle = request.instance > 0;
        let has_rows = !is_idle && !has_ended;
        Ok(Box::new(DatagenSource {
            order: self.spec.order(if has_rows { made } else { 0 }, self.rows),
            rows_left: if has_rows { rows_left } else { Some(0) },
            told_end: is_idle,
            columns,
            read,
            pacer: self.pacer.clone(),
            numbers: vec![],
            made,
            held: None,
            request,
        }))
    }
}

fn partition_name(columns: &Columns) -> String {
    format!("datagen {}", columns.name())
}

struct DatagenSource {
    request: SourceRequest,
    read: SchemaRef,
    columns: Columns,
    order: Order,
    pacer: Option<Arc<Pacer>>,
    /// `None`: forever.
    rows_left: Option<u64>,
    /// Event numbers of the current chunk.
    numbers: Vec<u64>,
    /// Rows generated so far, including those before the query was restored.
    made: u64,
    /// Paced rows and when they are due.
    held: Option<(u64, SourceRows)>,
    told_end: bool,
}

impl DatagenSource {
    fn make(&mut self, rows: usize) -> Result<SourceRows> {
        self.numbers.clear();
        for _ in 0..rows {
            let number = self.order.next(self.rows_left.map(|left| self.made + left));
            self.numbers.push(number);
        }
        let columns = self.columns.make(&self.numbers);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.read), columns, &options)?;
        let positions = Positions::Run {
            first: self.made + 1,
        };
        self.made += rows as u64;
        if let Some(left) = &mut self.rows_left {
            *left -= rows as u64;
        }
        Ok(SourceRows {
            batch,
            partition: 0,
            positions,
            ingest_ns: now_ns(),
            rejected: vec![],
        })
    }
}

impl Source for DatagenSource {
    fn open(&mut self, _waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        Ok(if self.told_end {
            vec![]
        } else {
            vec![(0, partition_name(&self.columns))]
        })
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if let Some((due_ns, rows)) = self.held.take() {
            if now_ns() < due_ns {
                self.held = Some((due_ns, rows));
                return Ok(SourcePoll::NotBefore { time_ns: due_ns });
            }
            return Ok(SourcePoll::Rows(rows));
        }
        if self.rows_left == Some(0) {
            let ended = std::mem::replace(&mut self.told_end, true);
            return Ok(if ended {
                SourcePoll::End
            } else {
                SourcePoll::PartitionEnded { partition: 0 }
            });
        }
        let chunk_rows = self.request.tuning.chunk_rows();
        let rows_max = match &self.pacer {
            None => chunk_rows,
            Some(pacer) => pacer.rows_max(self.request.tuning.linger_ns(), chunk_rows, now_ns()),
        };
        let left = usize::try_from(self.rows_left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut rows = self.make(rows_max.min(left))?;
        let Some(pacer) = &self.pacer else {
            return Ok(SourcePoll::Rows(rows));
        };
        let now_ns = now_ns();
        let due = pacer.take(rows.batch.num_rows(), now_ns);
        rows.ingest_ns = due.first_ns;
        if due.last_ns <= now_ns {
            return Ok(SourcePoll::Rows(rows));
        }
        self.held = Some((due.last_ns, rows));
        Ok(SourcePoll::NotBefore {
            time_ns: due.last_ns,
        })
    }

    fn close(&mut self) {
        self.held = None;
    }
}

/// The pace: `rate`, or up and down between that and `rate_max` once in each `rate_period`.
fn pacer(options: &Options<'_>) -> std::result::Result<Option<Pacer>, OptionError> {
    let low = options.rate("rate")?;
    let high = options.rate("rate_max")?;
    let period_ns = options.duration_ns("rate_period")?;
    let (low, high, period_ns) = match (low, high, period_ns) {
        (low, None, None) => return Ok(low.map(Pacer::new)),
        (Some(low), Some(high), Some(period_ns)) if period_ns > 0 => (low, high, period_ns),
        _ => {
            return Err(OptionError::new(
                "rate_max",
                "a rate that changes needs its bounds and how long a round takes",
                "write 'rate' = '1000/s', 'rate_max' = '50000/s', 'rate_period' = '60 s'",
            ));
        }
    };
    let per_ns = |rate: Rate| rate.rows as f64 / rate.per_ns as f64;
    if per_ns(high) < per_ns(low) {
        return Err(OptionError::new(
            "rate_max",
            "is below 'rate'",
            "'rate' is the lowest, 'rate_max' the highest",
        ));
    }
    Ok(Some(Pacer::of(Pace::Day {
        low: per_ns(low),
        high: per_ns(high),
        period_ns: period_ns as f64,
    })))
}

impl DatagenConnector {
    /// Reads the options.
    pub(crate) fn new(
        table: &crate::table::TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<DatagenConnector, OptionError> {
        let pacer = pacer(options)?;
        Ok(DatagenConnector {
            schema: Arc::clone(&table.schema),
            spec: GeneratorSpec::read(options, &table.schema)?,
            rows: options.number("rows", None, 0..=u64::MAX / 2)?,
            pacer: pacer.map(Arc::new),
        })
    }
}
