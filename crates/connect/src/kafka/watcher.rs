//! Watches partitions on a thread of its own, because the worker must not wait for a broker's answer.
//!
//! One thread for each instance of a source. It sleeps until the next check for new partitions, or until it
//! is told that no broker is reachable; then it asks until one answers.
//!
//! Shutdown: the thread ends when its [`Watcher`] is dropped, at the latest when the answer for which it
//! waits has arrived or timed out.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use slackwater_engine::error::{Error, Result};
use slackwater_engine::link::Waker;

use super::client::Consumer;
use super::partitions::{NoTopic, Place, Planned, partitions_of};
use super::presence::Presence;
use super::settings::Cluster;

/// How often to ask a broker that does not answer, and how long it may take.
const RETRY: Duration = Duration::from_secs(1);

/// A topic that brokers don't know for this long counts as deleted; a broker that has just started may not
/// know it yet.
const TOPIC_MISSING_MAX: Duration = Duration::from_secs(30);

/// The most events that wait for the worker.
const NEWS_MAX: usize = 4;

/// An event that the thread has found.
pub(crate) enum WatcherEvent {
    /// New partitions, for this instance.
    Partitions(Vec<Place>),
    /// The query can't continue.
    Failed(Error),
}

/// The worker's end of the thread.
pub(crate) struct Watcher {
    asks: SyncSender<()>,
    news: Receiver<WatcherEvent>,
}

/// The state of the thread.
pub(crate) struct Watch {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) planned: Arc<Planned>,
    pub(crate) presence: Arc<Presence>,
    pub(crate) consumer: Arc<Consumer>,
    pub(crate) instance: usize,
    pub(crate) instances: usize,
    /// `None`: new partitions are not looked for.
    pub(crate) discovery_ns: Option<u64>,
    pub(crate) waker: Waker,
}

impl Watcher {
    pub(crate) fn start(watch: Watch) -> Result<Watcher> {
        let (asks, asked) = sync_channel(1);
        let (news_sender, news) = sync_channel(NEWS_MAX);
        let servers = watch.cluster.servers.clone();
        std::thread::Builder::new()
            .name("kafka watcher".into())
            .spawn(move || watch.run(&asked, &news_sender))
            .map_err(|error| Error::new(servers, format!("can't start the watcher: {error}")))?;
        Ok(Watcher { asks, news })
    }

    /// Starts checking brokers and topics until they are reachable again.
    pub(crate) fn look(&self) {
        // One waiting request is enough.
        let _ = self.asks.try_send(());
    }

    /// What was found since the last call.
    pub(crate) fn news(&self) -> Option<WatcherEvent> {
        self.news.try_recv().ok()
    }
}

impl Watch {
    fn run(self, asked: &Receiver<()>, news: &SyncSender<WatcherEvent>) {
        let mut known: Vec<u32> = self.planned.topics.iter().map(|t| t.partitions).collect();
        let interval = self.discovery_ns.map(Duration::from_nanos);
        let mut next = interval.map(|interval| Instant::now() + interval);
        loop {
            let told = match next {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => asked.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            let found = match told {
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(()) => self.wait_until_there(asked),
                Err(RecvTimeoutError::Timeout) => {
                    next = interval.map(|interval| Instant::now() + interval);
                    self.discover(&mut known)
                }
            };
            if let Some(found) = found {
                if news.send(found).is_err() {
                    return;
                }
                self.waker.wake();
            }
        }
    }

    /// Asks until a broker answers that knows all topics.
    fn wait_until_there(&self, asked: &Receiver<()>) -> Option<WatcherEvent> {
        let mut missing_since = None;
        loop {
            let begin = Instant::now();
            let answers = self.planned.topics.iter().find_map(|topic| {
                let answer = partitions_of(self.consumer.as_ref(), &topic.name, RETRY);
                answer.err().map(|error| (error, &topic.name))
            });
            match answers {
                None => {
                    self.presence.back();
                    return None;
                }
                Some((NoTopic::Unreachable, _)) => missing_since = None,
                Some((error, topic)) => {
                    self.presence.back();
                    let since = *missing_since.get_or_insert(begin);
                    if since.elapsed() > TOPIC_MISSING_MAX {
                        return Some(WatcherEvent::Failed(
                            self.cluster.no_topic(topic, error, ""),
                        ));
                    }
                }
            }
            let pause = RETRY.saturating_sub(begin.elapsed());
            std::thread::sleep(pause);
            if let Err(TryRecvError::Disconnected) = asked.try_recv() {
                return None;
            }
        }
    }

    /// Looks for partitions beyond the known ones.
    fn discover(&self, known: &mut [u32]) -> Option<WatcherEvent> {
        let mut mine = vec![];
        for (nth, topic) in self.planned.topics.iter().enumerate() {
            // Without an answer, the next check finds them.
            let Ok(now) = partitions_of(self.consumer.as_ref(), &topic.name, RETRY) else {
                continue;
            };
            for partition in known[nth]..now {
                let place = self.planned.place(nth, partition);
                if place.number as usize % self.instances.max(1) == self.instance {
                    mine.push(place);
                }
            }
            known[nth] = known[nth].max(now);
        }
        (!mine.is_empty()).then_some(WatcherEvent::Partitions(mine))
    }
}
