//! The parts that the example needs around its operator: a source of a few readings, a sink that prints,
//! and the catalog that makes both.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use slackwater_engine::Result;
use slackwater_engine::chunk::{Chunk, Positions};
use slackwater_engine::deploy::{Catalog, SourcePart, SourceParts};
use slackwater_engine::expression::{Column, Expression};
use slackwater_engine::intake::IntakeSpec;
use slackwater_engine::link::Waiter;
use slackwater_engine::operator::Operator;
use slackwater_engine::sink::Sink;
use slackwater_engine::source::{DeadLetters, Rejected, Source, SourcePoll, SourceRows};

use crate::ChangeDetector;

pub fn schema() -> SchemaRef {
    let sensor = Field::new("sensor", DataType::Utf8View, true);
    Arc::new(Schema::new(vec![
        sensor,
        Field::new("value", DataType::Int64, true),
    ]))
}

pub fn readings(sensors: Vec<&str>, values: Vec<i64>) -> Result<RecordBatch> {
    let sensors = Arc::new(StringViewArray::from(sensors));
    Ok(RecordBatch::try_new(
        schema(),
        vec![sensors, Arc::new(Int64Array::from(values))],
    )?)
}

/// A source of a few readings. A source returns one thing per poll, and never blocks.
struct Readings(std::vec::IntoIter<RecordBatch>);

impl Source for Readings {
    fn open(&mut self, _: &mut Waiter) -> Result<Vec<(u32, String)>> {
        Ok(vec![(0, "readings".to_string())])
    }
    fn poll(&mut self) -> Result<SourcePoll> {
        Ok(self.0.next().map_or(SourcePoll::End, |batch| {
            let positions = Positions::Run { first: 1 };
            let ingest_ns = slackwater_engine::time::now_ns();
            SourcePoll::Rows(SourceRows {
                batch,
                partition: 0,
                positions,
                ingest_ns,
                rejected: vec![],
            })
        }))
    }
    fn close(&mut self) {}
}

struct Printer;

impl Sink for Printer {
    fn open(&mut self, _: &mut Waiter) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, chunk: &Chunk) -> Result<()> {
        let (sensors, values) = (chunk.batch.column(0), chunk.batch.column(1));
        for row in 0..chunk.rows() {
            let value = values.as_primitive::<Int64Type>().value(row);
            println!("{} is now {value}", sensors.as_string_view().value(row));
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self, _complete: bool) -> Result<()> {
        Ok(())
    }
}

/// A catalog that makes the source, operator and sink of the plan.
pub struct Example;

impl Catalog for Example {
    fn source(&self, _: usize, _: SourcePart) -> Result<SourceParts> {
        let batches = vec![
            readings(vec!["tide", "wind", "tide"], vec![3, 12, 3])?,
            readings(vec!["wind", "tide", "wind"], vec![12, 4, 9])?,
        ];
        let types = [DataType::Utf8View, DataType::Int64]
            .into_iter()
            .enumerate();
        let columns = types.map(|(i, of)| Arc::new(Column::new(i, of)) as Arc<dyn Expression>);
        let intake = IntakeSpec {
            columns: columns.collect(),
            schema: schema(),
            event_time: None,
            partition_base: 0,
            idle_timeout_ns: None,
            unit_per_partition: false,
            forgets_ended: false,
            judged: Vec::new(),
        };
        let source = Box::new(Readings(batches.into_iter()));
        Ok(SourceParts {
            restored: Vec::new(),
            suspects: Vec::new(),
            recorder: None,
            notices: None,
            source,
            intake,
            dead_letters: self.dead_letters(0),
        })
    }
    fn operator(&self, _: usize) -> Result<Operator> {
        Ok(Operator::stateful(ChangeDetector::default()))
    }
    fn sink(&self, _: usize, _: usize, _: usize) -> Result<Box<dyn Sink>> {
        Ok(Box::new(Printer))
    }
    fn dead_letters(&self, _: usize) -> Arc<dyn DeadLetters> {
        Arc::new(Complain)
    }
}

struct Complain;

impl DeadLetters for Complain {
    fn name_partition(&self, _: u32, _: &str) {}
    fn reject(&self, rejected: &Rejected) -> Result<()> {
        eprintln!("refused: {}", rejected.reason);
        Ok(())
    }
}
