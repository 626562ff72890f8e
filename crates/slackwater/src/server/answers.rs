//! The answers of a job's process to those who read its views: a thread for each conversation.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use bytes::Bytes;
use slackwater_connect::push::{self, NotPushed, Producer, Push, Pushed};

use super::protocol::{Ask, Told, Why};
use super::subscription::with_kinds;
use crate::hosts::channel::{Channel, Received};
use crate::run::Asker;
use crate::views::{Changes, Cut, Ending, Next, NotRead, Views};

/// The most conversations at a time.
const TALKS_MAX: usize = 512;

/// Rows of a message.
const ROWS: usize = 4096;

/// How long a push waits until the query has opened its sources, and how often it looks.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
const OPEN_PAUSE: Duration = Duration::from_millis(5);

/// How long a subscriber's thread waits for changes at a time: a wake-up in so long costs nothing.
const SILENCE: Duration = Duration::from_secs(24 * 3600);

/// What all conversations share.
pub struct Answers {
    shared: Arc<Shared>,
}

struct Shared {
    views: Arc<Views>,
    asker: Asker,
    held: Mutex<Held>,
}

/// What conversations hold.
#[derive(Default)]
struct Held {
    /// The number of conversations.
    talks: usize,
    /// The cuts, by their number.
    cuts: BTreeMap<u64, Vec<Arc<Cut>>>,
    /// The number of the last cut.
    last: u64,
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a conversation ends, or an answer is a refusal.
enum Fault {
    Refused(Why, String),
    NotPushed(NotPushed),
    /// The reader is gone.
    Gone,
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Fault {
        Fault::Gone
    }
}

impl From<NotRead> for Fault {
    fn from(none: NotRead) -> Fault {
        let why = match none {
            NotRead::Unknown(_) => Why::Unknown,
            NotRead::Over(_) => Why::NotRunning,
            NotRead::TimedOut(..) => Why::TimedOut,
            NotRead::TooMany => Why::Limit,
            NotRead::Refused(_) => Why::Failed,
        };
        Fault::Refused(why, none.to_string())
    }
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Refused(Why::Failed, error.to_string())
}

impl Answers {
    /// Answers from these views, and from what the asker is told.
    pub fn new(views: &Arc<Views>, asker: Asker) -> Answers {
        Answers {
            shared: Arc::new(Shared {
                views: Arc::clone(views),
                asker,
                held: Mutex::default(),
            }),
        }
    }

    /// Begins a conversation over a socket.
    pub fn begin(&self, socket: OwnedFd) {
        let channel = Channel::of(socket);
        let shared = Arc::clone(&self.shared);
        {
            let mut held = shared.held();
            if held.talks >= TALKS_MAX {
                let message = format!("a job has at most {TALKS_MAX} readers: try again");
                let _ = channel.send(&refusal(Why::Limit, message), &[]);
                return;
            }
            held.talks += 1;
        }
        let talking = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("reader".to_string());
        let spawned = thread.spawn(move || {
            let mut talk = Talk {
                shared: &talking,
                channel,
                cut: None,
            };
            talk.listen();
            drop(talk);
            talking.held().talks -= 1;
        });
        if spawned.is_err() {
            // The socket is closed with the closure.
            shared.held().talks -= 1;
        }
    }
}

fn refusal(why: Why, message: String) -> Told {
    Told::Refused { why, message }
}

/// Pushes rows. A query that has just started is about to open its sources.
fn pushed(table: &str, push: &Push) -> Result<Pushed, NotPushed> {
    let until = Instant::now() + OPEN_PATIENCE;
    loop {
        match push::push(table, push.clone()) {
            Err(NotPushed::NoTable(_) | NotPushed::NotRunning) if Instant::now() < until => {
                std::thread::sleep(OPEN_PAUSE);
            }
            pushed => return pushed,
        }
    }
}

fn not_pushed(mut none: NotPushed) -> Told {
    // The query reads the table: it has not opened it yet.
    if let NotPushed::NoTable(_) = none {
        none = NotPushed::NotRunning;
    }
    let why = match none {
        NotPushed::NoTable(_) | NotPushed::NotRunning => Why::Starting,
        NotPushed::TooLarge => Why::Limit,
        NotPushed::Busy => Why::Busy,
        NotPushed::BadName | NotPushed::BadRow { .. } => Why::Value,
        NotPushed::Unconfirmed => Why::Unconfirmed,
    };
    Told::NotPushed {
        why,
        message: none.to_string(),
        hint: none.hint(),
        line: match none {
            NotPushed::BadRow { line, .. } => Some(line),
            _ => None,
        },
    }
}

fn not_running() -> Fault {
    let message = "the query does not run now";
    Fault::Refused(Why::NotRunning, message.to_string())
}

/// A conversation.
struct Talk<'a> {
    shared: &'a Shared,
    channel: Channel,
    /// The number of the cut that it holds.
    cut: Option<u64>,
}

impl Talk<'_> {
    fn listen(&mut self) {
        while let Ok(Some(Received { message, bytes, .. })) = self.channel.receive_with::<Ask>() {
            let told = match self.answer(message, &bytes) {
                Ok(()) => continue,
                Err(Fault::Gone) => return,
                Err(Fault::Refused(why, message)) => refusal(why, message),
                Err(Fault::NotPushed(none)) => not_pushed(none),
            };
            if self.channel.send(&told, &[]).is_err() {
                return;
            }
        }
    }

    fn answer(&mut self, ask: Ask, bytes: &[u8]) -> Result<(), Fault> {
        let shared = self.shared;
        let asked = &shared.asker;
        match ask {
            Ask::Cut {
                views,
                max_age_ns,
                limit_ns,
            } => {
                self.let_go();
                let names = views.iter().map(String::as_str).collect::<Vec<&str>>();
                let (max_age, limit) = (
                    Duration::from_nanos(max_age_ns),
                    Duration::from_nanos(limit_ns),
                );
                self.wait_for_views(limit)?;
                let cuts = self.shared.views.cuts(&names, max_age, limit)?;
                let number = {
                    let mut held = self.shared.held();
                    held.last += 1;
                    let number = held.last;
                    held.cuts.insert(number, cuts);
                    number
                };
                self.cut = Some(number);
                Ok(self.channel.send(&Told::Cut(number), &[])?)
            }
            Ask::Scan { cut, view, columns } => {
                let found = self
                    .shared
                    .held()
                    .cuts
                    .get(&cut)
                    .and_then(|cuts| cuts.get(view).cloned());
                let Some(found) = found else {
                    return Err(failed("the cut is not there any longer"));
                };
                for batch in found.batches(ROWS) {
                    let batch = batch.map_err(failed)?;
                    let batch = match &columns {
                        Some(columns) => batch.project(columns).map_err(failed)?,
                        None => batch,
                    };
                    self.send(&batch)?;
                }
                self.end()
            }
            Ask::Get {
                view,
                max_age_ns,
                limit_ns,
            } => {
                let keys = read(bytes).map_err(failed)?;
                let (max_age, limit) = (
                    Duration::from_nanos(max_age_ns),
                    Duration::from_nanos(limit_ns),
                );
                self.wait_for_views(limit)?;
                let cut = self.shared.views.cut(&view, max_age, limit)?;
                self.send(&cut.get(keys).map_err(failed)?)
            }
            Ask::Push { table, producer } => {
                let push = Push {
                    rows: Bytes::copy_from_slice(bytes),
                    producer: producer.map(|(name, sequence)| Producer { name, sequence }),
                };
                let Pushed {
                    rows,
                    rejected,
                    repeated,
                } = pushed(&table, &push).map_err(Fault::NotPushed)?;
                let told = Told::Pushed {
                    rows,
                    rejected,
                    repeated,
                };
                Ok(self.channel.send(&told, &[])?)
            }
            Ask::Look => self.text(asked.look(|board| {
                let (job, counts) = (&board.job().json, board.json());
                format!("{{\"job\":{job},\"counts\":{counts}}}")
            })),
            Ask::Metrics { partitions } => {
                self.text(asked.look(move |board| board.page_with(partitions)))
            }
            Ask::Why => self.text(asked.why()),
            Ask::Target { sink, target_ns } => {
                let nodes = asked.look(move |board| {
                    let sinks = board.job().sinks.iter();
                    let named = |table: &str| sink.as_deref().is_none_or(|sink| sink == table);
                    let sinks = sinks.filter(|(_, table)| named(table));
                    sinks.map(|(node, _)| *node).collect::<Vec<usize>>()
                });
                let nodes = nodes.filter(|nodes| !nodes.is_empty());
                match nodes.is_some_and(|nodes| asked.retarget(nodes, target_ns)) {
                    true => self.end(),
                    false => Err(not_running()),
                }
            }
            Ask::Subscribe { view, limit_ns } => {
                self.subscribe(&view, Duration::from_nanos(limit_ns))
            }
        }
    }

    fn subscribe(&self, view: &str, limit: Duration) -> Result<(), Fault> {
        self.wait_for_views(limit)?;
        let (cut, changes) = self.shared.views.subscribe(view, limit)?;
        let mut rows = 0;
        for batch in cut.batches(ROWS) {
            let batch = batch.map_err(failed)?;
            rows += batch.num_rows();
            self.send(&with_kinds(&batch, None).map_err(failed)?)?;
        }
        if rows == 0 {
            // The schema, and that the first rows were all.
            let none = RecordBatch::new_empty(cut.schema().clone());
            self.send(&with_kinds(&none, None).map_err(failed)?)?;
        }
        drop(cut);
        std::thread::scope(|scope| {
            // A subscriber that leaves is noticed at once, though nothing is sent to it.
            scope.spawn(|| {
                let mut looked = [PollFd::new(&self.channel, PollFlags::IN)];
                while poll(&mut looked, None) == Err(Errno::INTR) {}
                changes.cancel();
            });
            let sent = self.send_changes(view, &changes);
            let sent = sent.and_then(|()| self.end());
            if let Err(Fault::Refused(why, message)) = &sent {
                let _ = self.channel.send(&refusal(*why, message.clone()), &[]);
            }
            // Ends the thread, and with it the conversation.
            let _ = shutdown(self.channel.as_fd(), Shutdown::Both);
        });
        Err(Fault::Gone)
    }

    /// Sends changes until there are no more.
    fn send_changes(&self, view: &str, changes: &Changes) -> Result<(), Fault> {
        loop {
            let chunk = match changes.next(Instant::now() + SILENCE) {
                Next::Changes(chunk) => chunk,
                Next::TimedOut => continue,
                Next::Ended(Ending::Whole) => return Ok(()),
                Next::Ended(Ending::Over) => {
                    let message = format!("the query of '{view}' was stopped or has failed");
                    return Err(Fault::Refused(Why::NotRunning, message));
                }
                Next::Ended(Ending::Restarted) => {
                    let message = format!(
                        "the query of '{view}' resumes from its last checkpoint, and changes that were sent \
                        may come again: subscribe again, which begins with all rows"
                    );
                    return Err(Fault::Refused(Why::NotRunning, message));
                }
                Next::Ended(Ending::Overrun) => {
                    let message = format!("the subscriber of '{view}' was too slow");
                    return Err(Fault::Refused(Why::Limit, message));
                }
            };
            let kinds = chunk.kinds.as_ref();
            self.send(&with_kinds(&chunk.batch, kinds).map_err(failed)?)?;
        }
    }

    fn send(&self, batch: &RecordBatch) -> Result<(), Fault> {
        let bytes = written(batch).map_err(failed)?;
        Ok(self.channel.send_with(&Told::Rows, &bytes, &[])?)
    }

    /// Waits until the views are known: the process may just have started.
    fn wait_for_views(&self, limit: Duration) -> Result<(), Fault> {
        match self.shared.views.wait_until_known(limit) {
            true => Ok(()),
            false => Err(not_running()),
        }
    }

    fn text(&self, text: Option<String>) -> Result<(), Fault> {
        let text = text.ok_or_else(not_running)?;
        Ok(self.channel.send_with(&Told::Text, text.as_bytes(), &[])?)
    }

    fn end(&self) -> Result<(), Fault> {
        Ok(self.channel.send(&Told::End, &[])?)
    }

    /// Lets go of the cut that it holds.
    fn let_go(&mut self) {
        if let Some(number) = self.cut.take() {
            self.shared.held().cuts.remove(&number);
        }
    }
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Rows as a stream of Arrow's IPC format.
///
/// # Errors
///
/// If a type can't be written.
pub fn written(batch: &RecordBatch) -> Result<Vec<u8>, arrow_schema::ArrowError> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    writer.into_inner()
}

/// The columns in a stream of Arrow's IPC format.
fn read(bytes: &[u8]) -> Result<Vec<ArrayRef>, arrow_schema::ArrowError> {
    let mut reader = StreamReader::try_new(bytes, None)?;
    match reader.next() {
        Some(batch) => Ok(batch?.columns().to_vec()),
        None => Ok(Vec::new()),
    }
}
