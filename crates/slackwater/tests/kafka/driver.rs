//! Sources and sinks without an engine: what a worker would do with them, step by step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch, StringViewArray};
use arrow_schema::{DataType, Field, Schema};
use slackwater_connect::{Findings, TableDefinition};
use slackwater_engine::Result;
use slackwater_engine::chunk::Chunk;
use slackwater_engine::link::Waiter;
use slackwater_engine::sink::{Sink, SinkConnector, SinkRequest};
use slackwater_engine::source::{Resume, Source, SourcePoll, SourceRequest, Tuning};

use super::broker::Broker;

/// Longer than anything takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(60);

/// A table of one column, `line STRING`.
pub fn definition(broker: &Broker, topic: &str, options: &[(&str, &str)]) -> TableDefinition {
    let address = broker.address();
    let usual = [
        ("connector", "kafka"),
        ("topic", topic),
        ("properties.bootstrap.servers", &address),
    ];
    let options = usual.iter().chain(options);
    TableDefinition {
        name: "t".into(),
        schema: Arc::new(Schema::new(vec![Field::new(
            "line",
            DataType::Utf8View,
            true,
        )])),
        metadata: BTreeMap::new(),
        primary_key: Vec::new(),
        findings: Findings::Look,
        options: options
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        formats: Vec::new(),
    }
}

/// A source while it is read.
pub struct Reading {
    source: Box<dyn Source>,
    _waiter: Waiter,
    partitions: BTreeMap<u32, Resume>,
    /// The lines that were read, each with its partition's name and offset.
    pub lines: Vec<(String, u64, String)>,
    pub is_over: bool,
}

impl Reading {
    /// Opens it; `resume` is what [`Reading::cut`] said.
    pub fn open(definition: &TableDefinition, resume: &[Resume]) -> Result<Reading> {
        Reading::open_with(definition, resume, 1)
    }

    /// The same with several threads that may parse.
    pub fn open_with(
        definition: &TableDefinition,
        resume: &[Resume],
        parsers: usize,
    ) -> Result<Reading> {
        let mut all = definition.clone();
        all.options.insert("format".into(), "raw".into());
        let source = slackwater_connect::source(&all).unwrap_or_else(|error| panic!("{error}"));
        let mut source = source.source(SourceRequest {
            projection: vec![0],
            instance: 0,
            instances: 1,
            here: Arc::new([0]),
            parsers,
            tuning: Arc::new(Tuning::new(0, 7)),
            unit_per_partition: false,
            bytes_read: Arc::new(AtomicU64::new(0)),
            resume: resume.into(),
            saved: true,
        })?;
        let mut waiter = Waiter::new().unwrap();
        let mut partitions = BTreeMap::new();
        for (number, name) in source.open(&mut waiter)? {
            partitions.insert(number, begun(name, resume));
        }
        Ok(Reading {
            source,
            _waiter: waiter,
            partitions,
            lines: vec![],
            is_over: false,
        })
    }

    /// One step, after which a barrier could come.
    pub fn step(&mut self) {
        match self.source.poll().unwrap_or_else(|error| panic!("{error}")) {
            SourcePoll::Rows(rows) => {
                let partition = self.partitions.get_mut(&rows.partition).unwrap();
                let lines = rows.batch.column(0);
                let lines = lines.as_any().downcast_ref::<StringViewArray>().unwrap();
                for row in 0..rows.batch.num_rows() {
                    let offset = rows.positions.at(row);
                    partition.position = partition.position.max(offset + 1);
                    let line = lines.value(row).to_string();
                    self.lines.push((partition.name.clone(), offset, line));
                }
            }
            SourcePoll::PartitionStarted { partition, name } => {
                self.partitions.insert(partition, begun(name, &[]));
            }
            SourcePoll::PartitionEnded { partition } => {
                self.partitions.get_mut(&partition).unwrap().ended = true;
            }
            SourcePoll::End => self.is_over = true,
            SourcePoll::Pending | SourcePoll::NotBefore { .. } => {
                std::thread::sleep(Duration::from_millis(1));
            }
            SourcePoll::EndOfWork => unreachable!("nobody asked for units of work"),
            SourcePoll::ConnectionLost => unreachable!("a broker is waited for by its client"),
        }
    }

    /// Reads until so many lines are there, or to the end.
    pub fn read(&mut self, lines: usize) {
        let begin = Instant::now();
        while self.lines.len() < lines && !self.is_over {
            assert!(begin.elapsed() < PATIENCE, "stuck at {:?}", self.lines);
            self.step();
        }
    }

    /// What a checkpoint would have.
    pub fn cut(&mut self) -> Vec<Resume> {
        let cut = self.partitions.iter().map(|(&number, partition)| Resume {
            bookmark: self.source.bookmark(number),
            ..partition.clone()
        });
        cut.collect()
    }

    /// How many threads have parsed besides this one.
    pub fn helpers(&mut self) -> usize {
        self.source.take_helped().threads
    }

    /// The lines alone, sorted.
    pub fn sorted(&self) -> Vec<String> {
        let lines = self.lines.iter().map(|(_, _, line)| line.clone());
        let mut sorted = lines.collect::<Vec<_>>();
        sorted.sort();
        sorted
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.source.close();
    }
}

fn begun(name: String, resume: &[Resume]) -> Resume {
    let known = resume.iter().find(|resume| resume.name == name);
    known.cloned().unwrap_or(Resume {
        name,
        position: 0,
        bookmark: None,
        ended: false,
    })
}

/// What a reader of committed rows finds in the topic now, in the order of its only partition.
pub fn committed(broker: &Broker, topic: &str) -> Vec<String> {
    let bounded = [("scan.bounded.mode", "latest-offset")];
    let mut reading = Reading::open(&definition(broker, topic, &bounded), &[]).unwrap();
    reading.read(usize::MAX);
    let lines = reading.lines.iter().map(|(_, _, line)| line.clone());
    lines.collect()
}

/// Waits for committed rows: a broker acknowledges a commit before readers see it.
pub fn assert_committed(broker: &Broker, topic: &str, expected: &[String]) {
    let begin = Instant::now();
    loop {
        let found = committed(broker, topic);
        if found == expected {
            return;
        }
        let is_part = found.len() < expected.len() && expected.starts_with(&found);
        let (there, all) = (found.len(), expected.len());
        assert!(is_part, "{topic}: {there} rows instead of {all}: {found:?}");
        assert!(
            begin.elapsed() < PATIENCE,
            "{topic}: only {there} rows of {all}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A sink's connector, as the program that begins or restores a query makes it.
pub fn connector(broker: &Broker, topic: &str, options: &[(&str, &str)]) -> Arc<dyn SinkConnector> {
    slackwater_connect::sink(&definition(broker, topic, options))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A sink while it is written.
pub struct Writing {
    pub connector: Arc<dyn SinkConnector>,
    pub sink: Box<dyn Sink>,
    _waiter: Waiter,
}

impl Writing {
    /// The sink of an incarnation.
    pub fn open(connector: &Arc<dyn SinkConnector>, epoch: u64) -> Result<Writing> {
        let request = SinkRequest {
            epoch: Some(epoch),
            ..SinkRequest::new(0, 1)
        };
        let mut sink = connector.sink(&request)?;
        let mut waiter = Waiter::new().unwrap();
        sink.open(&mut waiter)?;
        Ok(Writing {
            connector: Arc::clone(connector),
            sink,
            _waiter: waiter,
        })
    }

    /// The sink of a query that begins from nothing.
    pub fn begin(broker: &Broker, topic: &str, options: &[(&str, &str)]) -> Writing {
        let connector = connector(broker, topic, options);
        connector.begin(true).unwrap();
        Writing::open(&connector, 1).unwrap()
    }

    /// Writes numbers, in chunks of ten.
    pub fn write(&mut self, numbers: std::ops::Range<usize>) -> Result<()> {
        let numbers = numbers.collect::<Vec<_>>();
        for numbers in numbers.chunks(10) {
            let begin = Instant::now();
            while !self.sink.ready()? {
                assert!(begin.elapsed() < PATIENCE, "it is never ready");
                std::thread::sleep(Duration::from_millis(1));
            }
            let lines = numbers.iter().map(|number| Some(format!("{number:06}")));
            let lines = Arc::new(StringViewArray::from_iter(lines)) as ArrayRef;
            let batch = RecordBatch::try_from_iter([("line", lines)])?;
            self.sink.write(&Chunk::new(batch, 0))?;
        }
        self.sink.flush()
    }

    /// A checkpoint's part in the sink.
    pub fn prepare(&mut self) -> Result<Option<String>> {
        self.sink.flush()?;
        self.sink.prepare(false)
    }
}

/// The lines of numbers.
pub fn lines(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{number:06}")).collect()
}
