//! The marker records which transaction of a sink was committed last.
//!
//! It is the offset of a consumer group that has no members, and is written in the transaction that it names:
//! brokers commit both or neither. So a later incarnation can find out whether it was committed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use slackwater_engine::error::{Error, Result};

use super::client::LOOK;
use super::token::Token;
use crate::kafka::presence::Presence;
use crate::kafka::settings::Cluster;

/// How long a broker may take: it answers once transactions that are about to end have ended, and one
/// that has just started reads its groups first.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one request may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The marker of one sink.
pub(super) struct Marker {
    /// The group's metadata, as transactions need it.
    pub(super) group: ConsumerGroupMetadata,
    /// The marker when it was read; `None`: there was none.
    pub(super) last: Option<Token>,
}

impl Marker {
    /// Asks brokers.
    pub(super) fn read(cluster: &Cluster, presence: &Arc<Presence>, group: &str) -> Result<Marker> {
        let place = format!("{} group {group}", cluster.servers);
        let broken = |error: KafkaError| {
            let reason = format!("no broker says what was committed last: {error}");
            Error::new(&place, reason).hint("start the broker, and let this user read the group")
        };
        let consumer = cluster.reader_of_group(presence, group)?;
        let begin = Instant::now();
        let last = loop {
            let mut list = TopicPartitionList::with_capacity(1);
            list.add_partition(&cluster.topics[0], 0);
            let error = match consumer.committed_offsets(list, ATTEMPT) {
                Ok(list) => match token(&list) {
                    Ok(token) => break token.transpose().map_err(|error| error.at(&place))?,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if begin.elapsed() > ANSWER_TIMEOUT {
                return Err(broken(error));
            }
            std::thread::sleep(LOOK);
        };
        let group = consumer.group_metadata();
        let group = group.ok_or_else(|| Error::new(&place, "the client knows no group"))?;
        Ok(Marker { group, last })
    }
}

/// The answer of the brokers.
fn token(list: &TopicPartitionList) -> std::result::Result<Option<Result<Token>>, KafkaError> {
    for element in list.elements() {
        element.error()?;
        if let Offset::Offset(_) = element.offset() {
            return Ok(Some(Token::parse(&metadata(list))));
        }
    }
    Ok(None)
}

/// The text beside the only offset of a list. (The library's own way panics when it is not UTF-8, and
/// anybody with the right to write the group may have written anything.)
fn metadata(list: &TopicPartitionList) -> String {
    // SAFETY: the list is alive, and its first element too where it has one.
    unsafe {
        let list = &*list.ptr();
        if list.cnt == 0 || (*list.elems).metadata.is_null() {
            return String::new();
        }
        let (text, bytes) = ((*list.elems).metadata, (*list.elems).metadata_size);
        let text = std::slice::from_raw_parts(text.cast::<u8>(), bytes);
        String::from_utf8_lossy(text).into_owned()
    }
}

/// The marker that a transaction commits.
pub(super) fn offsets(topic: &str, token: Token) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(1);
    let mut element = list.add_partition(topic, 0);
    // The offset is only informative; a number that is not a valid offset is omitted.
    let number = i64::try_from(token.number).unwrap_or(0);
    let _ = element.set_offset(Offset::Offset(number));
    element.set_metadata(token.to_string());
    list
}
