//! The kafka source: topics whose partitions are the source's.
//!
//! Which instance reads a partition follows from the partition's number; there is no consumer group.
//! librdkafka fetches ahead into a queue per partition, up to a limit, and wakes the worker when one is no
//! longer empty. While the worker does not read, the queues stay full and nothing is fetched. If a broker is
//! not available, the source waits for it.
//!
//! Positions are offsets, so the same offsets give the same rows with the same positions. A restored source
//! resumes at the offsets of its checkpoint, wherever it would start otherwise.

mod bookmark;
mod messages;
mod metadata;
mod partition;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_schema::SchemaRef;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::TopicPartitionList;
use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::{Waiter, Waker};
use slackwater_engine::source::{
    Helped, Source, SourceConnector, SourceDescription, SourcePoll, SourceRequest,
};
use slackwater_engine::time::now_ns;

use super::count_bytes;
use super::helpers::Helpers;
use super::stream::{Collected, Linger, Shared as _};
use crate::block::{BlockPool, STREAM_BLOCK_BYTES};
use crate::format::Format;
use crate::kafka::client::{Consumer, Context, Verdict};
use crate::kafka::partitions::{Asked, Goal, PARTITIONS_MAX, Place, Planned, Range, plan};
use crate::kafka::presence::Presence;
use crate::kafka::queue::EventQueue;
use crate::kafka::settings::{Cluster, Scan, Startup};
use crate::kafka::watcher::{Watch, Watcher, WatcherEvent};
use crate::options::{OptionError, Options};
use crate::table::TableDefinition;
use messages::MessageBlock;
use metadata::Columns;
use partition::{Partition, Spec};

/// Memory for the blocks of an instance's partitions: with 4,096 of them, 16 KiB each.
const BLOCKS_BYTES_MAX: usize = PARTITIONS_MAX * 16 * 1024;

/// Bytes taken from the queues at once before rows are passed on: eight full blocks.
const BYTES_PER_POLL_MAX: usize = 8 * STREAM_BLOCK_BYTES;

/// Events of the client that are handled at once: errors, of which there are few.
const EVENTS_PER_POLL_MAX: usize = 256;

/// A table that is read from topics.
#[derive(Debug)]
pub(crate) struct KafkaConnector {
    columns: Columns,
    format: Format,
    cluster: Arc<Cluster>,
    scan: Scan,
    planned: Arc<Planned>,
    presence: Arc<Presence>,
}

impl KafkaConnector {
    /// Checks the options and asks a broker which partitions exist.
    pub(crate) fn new(
        table: &TableDefinition,
        options: &Options<'_>,
    ) -> std::result::Result<KafkaConnector, OptionError> {
        let columns = Columns::new(table)?;
        let format = Format::of_source(options, &columns.values)?;
        let cluster = Cluster::read(options)?;
        let scan = Scan::read(options, cluster.topics.len())?;
        let presence = Arc::new(Presence::new(&table.name, &cluster.servers));
        let planned = plan(&cluster, &presence).map_err(|error| {
            let option = if error.reason.contains("topic") {
                "topic"
            } else {
                "properties.bootstrap.servers"
            };
            let reason = format!("{}: {}", error.place, error.reason);
            OptionError::new(option, reason, error.hint)
        })?;
        if let Startup::Offsets(offsets) = &scan.startup {
            let count = planned.count() as i32;
            if let Some((partition, _)) = offsets.iter().find(|(partition, _)| *partition >= count)
            {
                let reason = format!("there is no partition {partition}");
                let hint = format!("topic '{}' has {count}, from 0", cluster.topics[0]);
                return Err(OptionError::new(
                    "scan.startup.specific-offsets",
                    reason,
                    hint,
                ));
            }
        }
        Ok(KafkaConnector {
            columns,
            format,
            cluster: Arc::new(cluster),
            scan,
            planned: Arc::new(planned),
            presence,
        })
    }
}

impl KafkaConnector {
    fn kafka_source(&self, request: SourceRequest) -> KafkaSource {
        let places = self
            .planned
            .of_instance(request.instance, request.instances);
        let share = BLOCKS_BYTES_MAX / places.len().max(1);
        KafkaSource {
            helpers: Helpers::new(&request),
            cluster: Arc::clone(&self.cluster),
            scan: self.scan.clone(),
            planned: Arc::clone(&self.planned),
            presence: Arc::clone(&self.presence),
            spec: Spec {
                columns: self.columns.clone(),
                format: self.format.clone(),
                pool: BlockPool::new(share.min(STREAM_BLOCK_BYTES)),
                request,
            },
            places,
            partitions: vec![],
            linger: Linger::default(),
            events: VecDeque::new(),
            woken: Arc::new(AtomicBool::new(true)),
            client: None,
        }
    }
}

impl SourceConnector for KafkaConnector {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }

    fn describe(&self) -> SourceDescription {
        SourceDescription {
            connector: "kafka".into(),
            max_instances: self.planned.count() as usize,
            partitions: Some(
                self.planned
                    .of_instance(0, 1)
                    .iter()
                    .map(Place::name)
                    .collect(),
            ),
            bounded: self.scan.bounded,
            parsers: true,
            // An offset always identifies the same message.
            replayable: true,
            ..SourceDescription::default()
        }
    }

    fn source(&self, request: SourceRequest) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.kafka_source(request)))
    }
}

/// The state of an open source. The queue is dropped before the consumer to which it belongs.
struct Client {
    events: EventQueue,
    watcher: Watcher,
    consumer: Arc<Consumer>,
    waker: Waker,
}

struct KafkaSource {
    cluster: Arc<Cluster>,
    scan: Scan,
    planned: Arc<Planned>,
    presence: Arc<Presence>,
    spec: Spec,
    /// This instance's partitions, as planned.
    places: Vec<Place>,
    partitions: Vec<Partition>,
    linger: Linger,
    helpers: Helpers<MessageBlock>,
    events: VecDeque<SourcePoll>,
    /// Whether the client has events other than messages, or the watcher has any.
    woken: Arc<AtomicBool>,
    client: Option<Client>,
}

impl KafkaSource {
    fn start(&mut self, waker: &Waker) -> Result<()> {
        let ring = {
            let (woken, waker) = (Arc::clone(&self.woken), waker.clone());
            move || {
                // Release: pairs with the swap in `hear`.
                woken.store(true, Ordering::Release);
                waker.wake();
            }
        };
        let count = self.places.len();
        let bounded = self.scan.bounded;
        let consumer = self
            .cluster
            .consumer(&self.presence, count, bounded, ring)?;
        let ranges = self.ranges(&consumer)?;
        // SAFETY: the consumer has a group's name, and `Client` drops the queue before it.
        let events = unsafe { EventQueue::consumer(consumer.client().native_ptr()) };
        let watcher = Watcher::start(Watch {
            cluster: Arc::clone(&self.cluster),
            planned: Arc::clone(&self.planned),
            presence: Arc::clone(&self.presence),
            consumer: Arc::clone(&consumer),
            instance: self.spec.request.instance,
            instances: self.spec.request.instances,
            discovery_ns: self.scan.discovery_ns,
            waker: waker.clone(),
        })?;
        self.client = Some(Client {
            events,
            watcher,
            consumer,
            waker: waker.clone(),
        });
        let places = std::mem::take(&mut self.places);
        self.assign(places.into_iter().zip(ranges).collect())
    }

    /// The range in which this instance's partitions are read.
    fn ranges(&self, consumer: &Consumer) -> Result<Vec<Range>> {
        let asked = Asked {
            cluster: &self.cluster,
            consumer,
            presence: &self.presence,
            places: &self.places,
        };
        let resume = &self.spec.request.resume;
        if resume.is_empty() {
            asked.ranges(&self.scan.startup, self.scan.bounded)
        } else {
            bookmark::check_known(&self.planned, resume)?;
            let goals = self.places.iter().map(|place| {
                let at = resume.iter().find(|resume| resume.name == place.name());
                at.map_or(Ok(Goal::later(self.scan.bounded)), Goal::of)
            });
            asked.resumed(&goals.collect::<Result<Vec<_>>>()?)
        }
    }

    /// Starts to read partitions.
    fn assign(&mut self, places: Vec<(Place, Range)>) -> Result<()> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        let mut list = TopicPartitionList::with_capacity(places.len());
        for (place, range) in &places {
            let partition =
                Partition::new(&self.spec, place, range, &client.consumer, &client.waker)?;
            if !partition.is_finished() {
                list.add_partition_offset(&place.topic, place.partition, range.begin)
                    .map_err(|error| Error::new(place.name(), error.to_string()))?;
            }
            self.partitions.push(partition);
        }
        client
            .consumer
            .incremental_assign(&list)
            .map_err(|error| Error::new(self.cluster.servers.clone(), error.to_string()))
    }

    /// Handles the events of the client and the watcher since the last call.
    fn hear(&mut self) -> Result<()> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        match client.watcher.news() {
            Some(WatcherEvent::Failed(error)) => return Err(error),
            Some(WatcherEvent::Partitions(places)) => return self.begin_new(places),
            None => {}
        }
        // Acquire: pairs with the store in `start`. A later wake-up is seen the next time.
        if !self.woken.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        for _ in 0..EVENTS_PER_POLL_MAX {
            if client.events.length() == 0 {
                return Ok(());
            }
            match client.consumer.poll(Duration::ZERO) {
                None => {}
                Some(Err(error)) => {
                    heed(client, &self.cluster.servers, &error)?;
                }
                // Fetched before the partition had a queue of its own.
                Some(Ok(message)) => {
                    let is_its = |partition: &&mut Partition| {
                        partition.is(message.topic(), message.partition())
                    };
                    if let Some(partition) = self.partitions.iter_mut().find(is_its) {
                        partition.push(&message);
                    }
                }
            }
        }
        // The queue only wakes the worker if it was empty.
        self.woken.store(true, Ordering::Release);
        Ok(())
    }

    fn begin_new(&mut self, places: Vec<Place>) -> Result<()> {
        for place in &places {
            self.events.push_back(SourcePoll::PartitionStarted {
                partition: place.number,
                name: place.name(),
            });
        }
        // Everything that was written since they were created is new.
        let range = Range {
            begin: rdkafka::Offset::Beginning,
            end: None,
        };
        self.assign(
            places
                .into_iter()
                .map(|place| (place, range.clone()))
                .collect(),
        )
    }

    /// Takes messages from the queues; returns whether that was all.
    fn read(&mut self) -> Result<bool> {
        let Some(client) = &self.client else {
            return Ok(true);
        };
        let rows_max = self.spec.request.tuning.chunk_rows();
        let mut budget = BYTES_PER_POLL_MAX;
        let mut begin_ns = None;
        let mut is_all = true;
        let (count, request) = (self.partitions.len(), &self.spec.request);
        for partition in &mut self.partitions {
            if !partition.look() {
                continue;
            }
            let time_ns = *begin_ns.get_or_insert_with(now_ns);
            loop {
                let before = partition.bytes();
                let failed = partition.read(rows_max, budget, time_ns);
                let bytes = partition.bytes() - before;
                budget = budget.saturating_sub(bytes);
                count_bytes(request, bytes);
                if let Err(error) = failed {
                    heed(client, &partition.name(), &error)?;
                    break;
                }
                let has_more = partition.is_readable() && budget > 0;
                if !has_more || !self.helpers.hand_over(partition, count, request) {
                    break;
                }
            }
            // While others parse, there will be room when one of them is done.
            let waits = partition.is_ahead() && partition.is_block_full();
            is_all &= !partition.is_readable() || waits;
        }
        Ok(is_all)
    }

    /// Takes the first finished partition out.
    fn ended_partition(&mut self) -> Option<u32> {
        let index = self.partitions.iter().position(Partition::is_finished)?;
        let partition = self.partitions.remove(index);
        if let Some(client) = &self.client {
            // Messages beyond the end would only use memory. Nothing depends on this.
            let _ = client.consumer.incremental_unassign(&partition.as_list());
        }
        Some(partition.number())
    }
}

/// Handles an error of librdkafka.
fn heed(client: &Client, place: &str, error: &KafkaError) -> Result<()> {
    let context: &Context = client.consumer.client().context();
    match context.judge(place, error) {
        Verdict::Passes => {}
        Verdict::Away | Verdict::TopicMissing => client.watcher.look(),
        Verdict::Fails(error) => return Err(error),
    }
    Ok(())
}

impl Source for KafkaSource {
    fn open(&mut self, waiter: &mut Waiter) -> Result<Vec<(u32, String)>> {
        let places = self.places.iter();
        let known = places.map(|place| (place.number, place.name())).collect();
        self.helpers.wakes(waiter.waker());
        if !self.places.is_empty() || self.scan.discovery_ns.is_some() {
            self.start(&waiter.waker())?;
        }
        Ok(known)
    }

    fn poll(&mut self) -> Result<SourcePoll> {
        loop {
            let mut is_all = false;
            if !self.linger.is_handing_out() {
                self.hear()?;
                is_all = self.read()?;
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let (linger, request) = (&mut self.linger, &self.spec.request);
            if let Some(poll) = self.helpers.poll(&mut self.partitions, linger, request) {
                return Ok(poll);
            }
            if let Some(partition) = self.ended_partition() {
                return Ok(SourcePoll::PartitionEnded { partition });
            }
            if self.partitions.is_empty() && self.scan.discovery_ns.is_none() {
                return Ok(SourcePoll::End);
            }
            if is_all && let Some(pending) = self.helpers.pending(&self.partitions) {
                return Ok(pending);
            }
        }
    }

    fn bookmark(&mut self, partition: u32) -> Option<String> {
        let mut partitions = self.partitions.iter();
        let found = partitions.find(|found| found.number() == partition)?;
        Some(found.bookmark().to_string())
    }

    fn take_helped(&mut self) -> Helped {
        self.helpers.take_helped()
    }

    fn close(&mut self) {
        self.partitions.clear();
        self.helpers.close();
        self.client = None;
    }
}

#[cfg(test)]
mod tests;
