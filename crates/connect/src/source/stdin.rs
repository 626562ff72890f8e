//! The stdin source: lines from the process's standard input, one partition.
//!
//! Standard input can't be made non-blocking without changing it for whoever shares it, so a thread reads it
//! and passes blocks through a short queue, waking the worker. It sleeps in the kernel when there is no
//! input.
//!
//! Shutdown: a thread that is blocked in `read` can't be stopped; it ends with the next input,
//! which has no receiver, or with the process.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use arrow_schema::SchemaRef;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::source::{
    Helped, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};
use slackwater_engine::time::now_ns;

use super::count_bytes;
use super::helpers::Helpers;
use super::stream::{Linger, Shared as _, StreamPartition, StreamSpec};
use crate::connector::{AtHome, ConnectorKind, Exclusive};
use crate::file_format::Formats;
use crate::format::Format;
use crate::parsers::Block;

/// The connector's entry in the table of connectors.
pub(crate) const CONNECTOR: ConnectorKind = ConnectorKind {
    name: "stdin",
    aliases: &[],
    source: Some(|table, options| {
        Ok(Arc::new(StdinConnector {
            schema: Arc::clone(&table.schema),
            format: Format::of_source(options, &table.schema)?,
        }))
    }),
    sink: None,
    lookup: None,
    formats: Formats::Lines,
    has_metadata: false,
    path: None,
    exclusive: Exclusive::Nothing,
    reads_standard_input: true,
    is_pushed: false,
    at_home: AtHome::Always,
    options: &[],
    source_options: &[],
    sink_options: &[],
    lookup_options: &[],
};

/// Bytes of one read: what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// Reads that wait for the worker: 2 MiB, what arrives at 200 MB/s while a batch lingers for 10 ms.
const READS_WAITING_MAX: usize = 32;

/// Two readers would split the lines between them at random.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// A table that is read from standard input.
#[derive(Debug)]
pub(crate) struct StdinConnector {
    pub(crate) schema: SchemaRef,
    pub(crate) format: Format,
}

impl SourceConnector for StdinConnector {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "stdin".into(),
            max_instances: 1,
            parsers: true,
            ends_with_peer: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(StdinSource {
            idle: request.instance > 0,
            helpers: Helpers::new(&request),
            spec: StreamSpec::new(&self.schema, &self.format, request),
            partitions: vec![],
            linger: Linger::default(),
            reads: None,
            part: None,
            told_end: false,
        }))
    }
}

/// What the thread has read.
struct Arrived {
    bytes: std::io::Result<Vec<u8>>,
    time_ns: u64,
}

struct StdinSource {
    /// There is only one partition, and another instance has it.
    idle: bool,
    spec: StreamSpec,
    helpers: Helpers<Block>,
    partitions: Vec<StreamPartition>,
    linger: Linger,
    reads: Option<Receiver<Arrived>>,
    /// The read that did not fit into the block, and how much of it was taken.
    part: Option<(Vec<u8>, usize, u64)>,
    told_end: bool,
}

/// Reads until the end, an error, or the receiver is gone.
fn read_all(mut input: impl Read, reads: &SyncSender<Arrived>, worker: &Waker) {
    loop {
        let mut bytes = vec![0; READ_BYTES];
        let read = match input.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
            Ok(length) => {
                bytes.truncate(length);
                Ok(bytes)
            }
        };
        let is_last = read.as_ref().map_or(true, Vec::is_empty);
        let sent = reads.send(Arrived {
            bytes: read,
            time_ns: now_ns(),
        });
        worker.wake();
        if is_last || sent.is_err() {
            return;
        }
    }
}

impl StdinSource {
    fn start(&mut self, input: impl Read + Send + 'static, waker: Waker) -> Result<()> {
        let (sender, receiver) = sync_channel(READS_WAITING_MAX);
        std::thread::Builder::new()
            .name("stdin".into())
            .spawn(move || read_all(input, &sender, &waker))
            .map_err(|error| Error::new("stdin", format!("can't start the reader: {error}")))?;
        self.reads = Some(receiver);
        self.partitions.push(self.spec.partition(0));
        Ok(())
    }

    /// Moves the bytes that have arrived into the block; returns whether that was all.
    fn take_reads(&mut self) -> Result<bool> {
        let (Some(reads), Some(partition)) = (&self.reads, self.partitions.first_mut()) else {
            return Ok(true);
        };
        let (helpers, request) = (&mut self.helpers, &self.spec.request);
        while !partition.room().is_empty() || helpers.hand_over(partition, 1, request) {
            let (bytes, from, time_ns) = match self.part.take() {
                Some(part) => part,
                None => match reads.try_recv() {
                    Ok(Arrived {
                        bytes: Ok(bytes),
                        time_ns,
                    }) if !bytes.is_empty() => {
                        count_bytes(request, bytes.len());
                        (bytes, 0, time_ns)
                    }
                    Ok(Arrived {
                        bytes: Ok(_),
                        time_ns,
                    }) => {
                        partition.end(time_ns);
                        return Ok(true);
                    }
                    Ok(Arrived {
                        bytes: Err(error), ..
                    }) => {
                        return Err(Error::new("stdin", format!("can't read: {error}")));
                    }
                    Err(TryRecvError::Empty) => return Ok(true),
                    Err(TryRecvError::Disconnected) => {
                        partition.end(now_ns());
                        return Ok(true);
                    }
                },
            };
            let room = partition.room();
            let taken = room.len().min(bytes.len() - from);
            room[..taken].copy_from_slice(&bytes[from..from + taken]);
            partition.filled(taken, time_ns);
            if from + taken < bytes.len() {
                self.part = Some((bytes, from + taken, time_ns));
            }
        }
        // While others parse, there will be room when one of them is done.
        Ok(partition.is_ahead())
    }
}

impl Source for StdinSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        if self.idle {
            return Ok(vec![]);
        }
        if IN_USE.swap(true, Ordering::Relaxed) {
            return Err(Error::new("stdin", "is already read by another table")
                .hint("read it once, and use the table in several queries"));
        }
        self.helpers.wakes(waiter.waker());
        self.start(std::io::stdin(), waiter.waker())?;
        Ok(vec![(0, "stdin".into())])
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        if self.idle || self.told_end {
            return Ok(SourcePoll::End);
        }
        loop {
            let is_all = !self.linger.is_handing_out() && self.take_reads()?;
            let (linger, request) = (&mut self.linger, &self.spec.request);
            if let Some(poll) = self.helpers.poll(&mut self.partitions, linger, request) {
                return Ok(poll);
            }
            if self
                .partitions
                .first()
                .is_some_and(StreamPartition::is_finished)
            {
                self.told_end = true;
                return Ok(SourcePoll::PartitionEnded { partition: 0 });
            }
            if is_all && let Some(pending) = self.helpers.pending(&self.partitions) {
                return Ok(pending);
            }
        }
    }

    fn take_helped(&mut self) -> Helped {
        self.helpers.take_helped()
    }

    fn close(&mut self) {
        self.reads = None;
        self.partitions.clear();
        self.helpers.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tests::{drain, request};
    use crate::table::tests::table;
    use arrow_schema::DataType;

    #[test]
    fn lines_cross_reads_and_the_last_needs_no_line_end() {
        let table = table(&[("line", DataType::Utf8View)], &[]);
        let mut waiter = Waiter::new().unwrap();
        let mut text = String::new();
        for line in 0..50_000 {
            text.push_str(&format!("line {line}\r\n"));
        }
        text.push_str("the last");
        for parsers in [1, 3] {
            let request = SourceRequest {
                parsers,
                ..request(&[0])
            };
            let mut source = StdinSource {
                idle: false,
                helpers: Helpers::new(&request),
                spec: StreamSpec::new(&table.schema, &Format::Raw, request),
                partitions: vec![],
                linger: Linger::default(),
                reads: None,
                part: None,
                told_end: false,
            };
            source.helpers.wakes(waiter.waker());
            source.helpers.at_once();
            let input = std::io::Cursor::new(text.clone());
            source.start(input, waiter.waker()).unwrap();
            let rows = drain(&mut source, &mut waiter);
            assert_eq!(rows.strings.len(), 50_001);
            assert_eq!(rows.strings[49_999], "0:50000:line 49999");
            assert_eq!(rows.strings[50_000], "0:50001:the last");
            assert_eq!(rows.ended, [0]);
            let helped = source.take_helped();
            assert_eq!(helped.threads > 0, parsers > 1, "{helped:?}");
        }
    }
}
