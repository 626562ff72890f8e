//! The partitions of a table's topics: their numbers, and the ranges in which they are read.
//!
//! A partition's number decides which instance reads it and orders rows of equal event time, so it must not
//! depend on which process asked at which time. The partitions that exist when the query is planned are
//! numbered in the order of (topic, partition). The numbers of later ones follow from a formula over the
//! planned ones.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{IsError as _, KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use slackwater_engine::error::{Error, Result};

use super::client::Consumer;
use super::presence::Presence;
use super::settings::{Cluster, Startup};

/// How long a broker may take to answer when the query is planned, and when it starts.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many events of a client are searched for the reason why it has no connection.
const EVENTS_MAX: usize = 64;

/// Partitions of one table: each has a queue and, once it has rows, a block of 16 KiB or more.
pub(crate) const PARTITIONS_MAX: usize = 4_096;

/// A topic as it was found when the query was planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) partitions: u32,
}

/// The topics of a table, sorted by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) topics: Vec<Topic>,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) number: u32,
    pub(crate) topic: String,
    pub(crate) partition: i32,
}

impl Place {
    /// The partition's name in messages.
    pub(crate) fn name(&self) -> String {
        format!("{}[{}]", self.topic, self.partition)
    }
}

impl Planned {
    pub(crate) fn count(&self) -> u32 {
        self.topics.iter().map(|topic| topic.partitions).sum()
    }

    /// Partition `partition` of the topic at `nth`, also one that did not exist then.
    pub(crate) fn place(&self, nth: usize, partition: u32) -> Place {
        let topic = &self.topics[nth];
        let number = if partition < topic.partitions {
            let before = self.topics[..nth].iter();
            before.map(|topic| topic.partitions).sum::<u32>() + partition
        } else {
            let later = partition - topic.partitions;
            self.count() + later * self.topics.len() as u32 + nth as u32
        };
        Place {
            number,
            topic: topic.name.clone(),
            partition: partition as i32,
        }
    }

    /// The partitions of instance `instance` of `instances`.
    pub(crate) fn of_instance(&self, instance: usize, instances: usize) -> Vec<Place> {
        let all = (0..self.topics.len()).flat_map(|nth| {
            let partitions = 0..self.topics[nth].partitions;
            partitions.map(move |partition| self.place(nth, partition))
        });
        let mine = all.filter(|place| place.number as usize % instances.max(1) == instance);
        mine.collect()
    }
}

/// Why there is no answer about a topic.
pub(crate) enum NoTopic {
    /// No broker answered.
    Unreachable,
    /// A broker answered that the topic does not exist.
    Missing,
    /// Another error.
    Refused(String),
}

/// Asks how many partitions the topic has.
pub(crate) fn partitions_of(
    consumer: &impl Asks,
    topic: &str,
    timeout: Duration,
) -> std::result::Result<u32, NoTopic> {
    let metadata =
        consumer
            .metadata(topic, timeout)
            .map_err(|error| match error.rdkafka_error_code() {
                Some(
                    Code::BrokerTransportFailure | Code::OperationTimedOut | Code::AllBrokersDown,
                ) => NoTopic::Unreachable,
                _ => NoTopic::Refused(error.to_string()),
            })?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let Some(found) = found else {
        return Err(NoTopic::Missing);
    };
    match found
        .error()
        .filter(|error| error.is_error())
        .map(Code::from)
    {
        None if found.partitions().is_empty() => Err(NoTopic::Missing),
        None => Ok(found.partitions().len() as u32),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Err(NoTopic::Missing),
        // The topic exists, and a leader is being elected.
        Some(Code::LeaderNotAvailable) if !found.partitions().is_empty() => {
            Ok(found.partitions().len() as u32)
        }
        Some(Code::LeaderNotAvailable) => Err(NoTopic::Missing),
        Some(code) => Err(NoTopic::Refused(code.to_string())),
    }
}

/// A client that can request metadata.
pub(crate) trait Asks {
    fn metadata(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> std::result::Result<rdkafka::metadata::Metadata, KafkaError>;
}

impl Asks for Consumer {
    fn metadata(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> std::result::Result<rdkafka::metadata::Metadata, KafkaError> {
        self.fetch_metadata(Some(topic), timeout)
    }
}

impl Asks for super::client::Producer {
    fn metadata(
        &self,
        topic: &str,
        timeout: Duration,
    ) -> std::result::Result<rdkafka::metadata::Metadata, KafkaError> {
        use rdkafka::producer::Producer as _;
        self.client().fetch_metadata(Some(topic), timeout)
    }
}

/// Asks a broker for the partitions of all topics.
pub(crate) fn plan(cluster: &Cluster, presence: &Arc<Presence>) -> Result<Planned> {
    let asker = cluster.asker(presence)?;
    let begin = Instant::now();
    let mut topics = vec![];
    for name in &cluster.topics {
        let timeout = ANSWER_TIMEOUT.saturating_sub(begin.elapsed());
        let partitions = partitions_of(&asker, name, timeout).map_err(|error| {
            // The reason why connections fail is in the client's queue, among other events.
            for _ in 0..EVENTS_MAX {
                if !presence.reason().is_empty() {
                    break;
                }
                asker.poll(Duration::from_millis(1));
            }
            cluster.no_topic(name, error, &presence.reason())
        })?;
        topics.push(Topic {
            name: name.clone(),
            partitions,
        });
    }
    let planned = Planned { topics };
    if planned.count() as usize > PARTITIONS_MAX {
        let reason = format!("has more than {PARTITIONS_MAX} partitions");
        return Err(
            Error::new(cluster.topics.join(";"), reason).hint("read the topics in several tables")
        );
    }
    Ok(planned)
}

impl Cluster {
    /// The error for a topic about which there is no answer.
    pub(crate) fn no_topic(&self, topic: &str, error: NoTopic, reason: &str) -> Error {
        match error {
            NoTopic::Unreachable => {
                let timeout_s = ANSWER_TIMEOUT.as_secs();
                let what = format!("no broker answers within {timeout_s} s{reason}");
                Error::new(self.servers.clone(), what)
                    .hint("start the broker, or correct 'properties.bootstrap.servers'")
            }
            NoTopic::Missing => {
                let what = format!("there is no topic '{topic}'");
                Error::new(self.servers.clone(), what).hint("create it, or correct 'topic'")
            }
            NoTopic::Refused(what) => {
                Error::new(self.servers.clone(), format!("topic '{topic}': {what}"))
            }
        }
    }

    fn no_offsets(&self, error: &KafkaError, presence: &Presence) -> Error {
        let reason = match error.rdkafka_error_code() {
            Some(Code::BrokerTransportFailure | Code::OperationTimedOut | Code::AllBrokersDown) => {
                presence.reason()
            }
            _ => format!(": {error}"),
        };
        Error::new(
            self.servers.clone(),
            format!("no broker says where partitions begin and end{reason}"),
        )
        .hint("start the broker, or correct 'properties.bootstrap.servers'")
    }
}

/// The range in which a partition is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) begin: Offset,
    /// After the last offset that is read; `None`: no end.
    pub(crate) end: Option<i64>,
}

/// The client that is asked for offsets, and the partitions.
pub(crate) struct Asked<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) consumer: &'a Consumer,
    pub(crate) presence: &'a Presence,
    pub(crate) places: &'a [Place],
}

/// Where a restored partition resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Goal {
    /// The next offset; `None`: the first one that exists.
    pub(crate) next: Option<u64>,
    /// After the last offset that is read; `None`: no end.
    pub(crate) end: Option<u64>,
}

impl Asked<'_> {
    /// The range in which each partition is read, as of now.
    pub(crate) fn ranges(&self, startup: &Startup, bounded: bool) -> Result<Vec<Range>> {
        let count = self.places.len();
        let needs_end = bounded || matches!(startup, Startup::Latest | Startup::Timestamp(_));
        let ends = if needs_end {
            self.offsets(Offset::End)?
        } else {
            vec![Offset::Invalid; count]
        };
        let begins = match startup {
            // The first offset is not requested: it may be gone before it is used.
            Startup::Earliest => vec![Offset::Beginning; count],
            Startup::Latest => ends.clone(),
            Startup::Timestamp(time) => {
                let found = self.offsets(Offset::Offset(*time))?.into_iter().zip(&ends);
                // No message is that late: reading starts with the messages that arrive from now on.
                let or_end = found.map(|(found, end)| match found {
                    Offset::Offset(_) => found,
                    _ => *end,
                });
                or_end.collect()
            }
            Startup::Offsets(offsets) => {
                let named = self.places.iter().map(|place| {
                    let mut offsets = offsets.iter();
                    let named = offsets.find(|(partition, _)| *partition == place.partition);
                    named.map_or(Offset::Beginning, |(_, offset)| Offset::Offset(*offset))
                });
                named.collect()
            }
        };
        let ranges = begins.into_iter().zip(ends).map(|(begin, end)| Range {
            begin,
            end: match end {
                Offset::Offset(end) if bounded => Some(end),
                _ => None,
            },
        });
        Ok(ranges.collect())
    }

    /// The range in which each partition of a restored source is read: an error if brokers don't have the
    /// next offset.
    pub(crate) fn resumed(&self, goals: &[Goal]) -> Result<Vec<Range>> {
        let firsts = self.offsets(Offset::Beginning)?;
        let behinds = self.offsets(Offset::End)?;
        let there = firsts.into_iter().zip(behinds);
        let ranges = self.places.iter().zip(goals).zip(there);
        let ranges = ranges.map(|((place, goal), (first, behind))| {
            let is_over = goal.end.is_some_and(|end| goal.next.unwrap_or(0) >= end);
            if let (Offset::Offset(first), Offset::Offset(behind), Some(next), false) =
                (first, behind, goal.next, is_over)
            {
                check_there(place, next, first.max(0) as u64..=behind.max(0) as u64)?;
            }
            Ok(Range {
                begin: match goal.next {
                    Some(next) => Offset::Offset(next as i64),
                    None => Offset::Beginning,
                },
                end: goal.end.map(|end| end as i64),
            })
        });
        ranges.collect()
    }

    /// The offsets of each partition at a time (or `Beginning` or `End`), with one request.
    fn offsets(&self, time: Offset) -> Result<Vec<Offset>> {
        if self.places.is_empty() {
            return Ok(vec![]);
        }
        offsets_at(self.consumer, self.places, time)
            .map_err(|error| self.cluster.no_offsets(&error, self.presence))
    }
}

/// An error if the next offset does not exist and never will.
fn check_there(place: &Place, next: u64, there: RangeInclusive<u64>) -> Result<()> {
    if there.contains(&next) {
        return Ok(());
    }
    let (first, behind) = (there.start(), there.end());
    let (what, hint) = if next < *first {
        (
            format!("the first offset that brokers still have is {first}"),
            "the rows between are gone: start over, and keep the topic's rows for longer \
             (retention.ms, retention.bytes) than a query may be down",
        )
    } else {
        (
            format!("brokers have offsets up to {behind}"),
            "the topic was created again, or lost rows: start over",
        )
    };
    let reason = format!("the checkpoint resumes at offset {next}, but {what}");
    Err(Error::new(place.name(), reason).hint(hint))
}

fn offsets_at(
    consumer: &Consumer,
    places: &[Place],
    time: Offset,
) -> std::result::Result<Vec<Offset>, KafkaError> {
    let mut times = TopicPartitionList::with_capacity(places.len());
    for place in places {
        times.add_partition_offset(&place.topic, place.partition, time)?;
    }
    let answer = consumer.offsets_for_times(times, ANSWER_TIMEOUT)?;
    let found = places.iter().map(|place| {
        let element = answer.find_partition(&place.topic, place.partition);
        let element = element.ok_or(KafkaError::OffsetFetch(Code::UnknownPartition))?;
        element.error()?;
        Ok(element.offset())
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(counts: &[u32]) -> Planned {
        let topics = counts.iter().enumerate().map(|(nth, &partitions)| Topic {
            name: format!("t{nth}"),
            partitions,
        });
        Planned {
            topics: topics.collect(),
        }
    }

    #[test]
    fn every_partition_has_one_number_and_one_reader() {
        let planned = planned(&[1, 4, 2]);
        let mut numbers = vec![];
        for instance in 0..3 {
            numbers.extend(
                planned
                    .of_instance(instance, 3)
                    .iter()
                    .map(|place| place.number),
            );
        }
        numbers.sort_unstable();
        assert_eq!(numbers, (0..7).collect::<Vec<_>>());
        assert_eq!(planned.place(1, 3).name(), "t1[3]");
        assert_eq!(planned.place(1, 3).number, 4);
    }

    #[test]
    fn later_partitions_have_unique_numbers_whoever_finds_them_first() {
        let planned = planned(&[2, 1]);
        let mut numbers = vec![];
        for later in 0..3 {
            numbers.push(planned.place(0, 2 + later).number);
            numbers.push(planned.place(1, 1 + later).number);
        }
        assert_eq!(numbers, (3..9).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_offset_is_an_error_with_both_offsets() {
        let place = planned(&[1, 4]).place(1, 3);
        for next in [5, 7, 9] {
            check_there(&place, next, 5..=9).unwrap();
        }
        let gone = check_there(&place, 4, 5..=9).unwrap_err().to_string();
        for part in ["t1[3]", "offset 4", "still have is 5", "retention.ms"] {
            assert!(gone.contains(part), "{part:?} is not in: {gone}");
        }
        let anew = check_there(&place, 10, 5..=9).unwrap_err().to_string();
        for part in ["t1[3]", "offset 10", "up to 9", "created again"] {
            assert!(anew.contains(part), "{part:?} is not in: {anew}");
        }
    }
}
