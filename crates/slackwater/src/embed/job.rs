//! A query that runs on a thread of its own.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::Error;
use super::results::{Results, Taking};
use super::session::{Offered, Prepared};
use crate::metrics::Look;
use crate::report::Report;
use crate::run::{Asker, Outcome, RunOptions, Screen, run_script};

/// How long a look at a query may take.
const LOOK: Duration = Duration::from_secs(1);

/// How long readers of sources may take to end after their query. A blocked one is left behind.
const SETTLING: Duration = Duration::from_secs(3);

/// The name of the thread that starts a query and watches it.
const THREAD: &str = "slackwater";

/// A query that runs.
#[derive(Debug)]
pub struct Job {
    results: Option<Arc<Results>>,
    asker: Asker,
    end: Arc<End>,
}

/// How a query ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// What it cost; `None` if it has not run.
    pub report: Option<Report>,
    /// Whether it was stopped before its inputs ended.
    pub stopped: bool,
    /// Why it failed, if it did.
    pub error: Option<Error>,
}

impl Ended {
    /// The report as JSON, as `slackwater run --report` writes it.
    pub fn report_json(&self) -> Option<String> {
        serde_json::to_string(self.report.as_ref()?).ok()
    }
}

#[derive(Debug, Default)]
struct End {
    ended: Mutex<Option<Arc<Ended>>>,
    came: Condvar,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Ended>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says how the query ended, also if its thread has panicked.
struct Ending {
    end: Arc<End>,
    results: Option<Arc<Results>>,
    ended: Option<Ended>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let ended = self.ended.take().unwrap_or_else(|| Ended {
            report: None,
            stopped: false,
            error: Some(Error::panicked()),
        });
        *self.end.lock() = Some(Arc::new(ended));
        self.end.came.notify_all();
        if let Some(results) = &self.results {
            results.end();
        }
    }
}

impl Error {
    fn panicked() -> Error {
        Error::query(
            "the engine has panicked: this is a bug",
            "the message on standard error says where",
        )
    }
}

/// Waits until the readers of sources have ended, and says which have not.
fn settle(offers: &[Offered]) {
    let until = Instant::now() + SETTLING;
    for offer in offers {
        let Offered::Custom(offer) = offer else {
            continue;
        };
        let left = until.saturating_duration_since(Instant::now());
        // The session's number is before the table.
        let table = offer.name().split_once('.').map_or("", |(_, table)| table);
        for partition in offer.custom().settle(left) {
            eprintln!(
                "note: table '{table}': partition {partition} is still being read {} s after the end of the \
                 query, and is left behind",
                SETTLING.as_secs()
            );
        }
    }
}

impl Job {
    /// Starts a query.
    ///
    /// # Errors
    ///
    /// If there is no further thread.
    pub fn start(prepared: &Prepared) -> Result<Job, Error> {
        let results = prepared.results();
        let asker = Asker::looking();
        let screen = results.clone();
        let screen = screen.map(|results| Arc::new(Taking(results)) as Arc<dyn Screen>);
        let options = RunOptions {
            settings: prepared.settings().to_vec(),
            asker: asker.clone(),
            state: prepared.state().cloned(),
            name: Some(prepared.name().to_string()),
            screen,
            ..RunOptions::default()
        };
        let script = prepared.script().clone();
        // They are offered until the query ends, and whoever pushes rows knows that it is going to read them.
        let offers = prepared.offers().to_vec();
        let expected = offers.iter().filter_map(|offer| match offer {
            Offered::Rows(offer) => Some(offer.feed().expect()),
            Offered::Custom(_) => None,
        });
        let expected = expected.collect::<Vec<_>>();
        let end = Arc::<End>::default();
        let ending = Ending {
            end: Arc::clone(&end),
            results: results.clone(),
            ended: None,
        };
        let run = move || {
            let mut ending = ending;
            let _expected = expected;
            let outcome = run_script(&script, &options);
            settle(&offers);
            ending.ended = Some(match outcome {
                Ok(Outcome::Finished(finished)) => {
                    // Who reads rows does not look at the report.
                    if let Some(line) = finished.report.warning(&finished.dead_letters) {
                        eprintln!("{line}");
                    }
                    Ended {
                        report: Some(finished.report),
                        stopped: finished.stopped,
                        error: None,
                    }
                }
                Ok(Outcome::Explained(_)) => Ended {
                    report: None,
                    stopped: false,
                    error: None,
                },
                Err(failure) => Ended {
                    report: failure.report().cloned(),
                    stopped: false,
                    error: Some(failure.into()),
                },
            });
        };
        let thread = std::thread::Builder::new().name(THREAD.to_string());
        let started = thread.spawn(run);
        started
            .map_err(|error| Error::query(format!("no thread: {error}"), "end other programs"))?;
        Ok(Job {
            results,
            asker,
            end,
        })
    }

    /// The rows of its SELECT; `None` if it has none.
    pub fn results(&self) -> Option<&Arc<Results>> {
        self.results.as_ref()
    }

    /// Ends the query: its open windows are not emitted.
    pub fn stop(&self) {
        self.asker.signals.raise();
    }

    /// Drops the rows of the query, which continues.
    pub fn drain(&self) {
        if let Some(results) = &self.results {
            results.abandon();
        }
    }

    /// Ends the query, whose rows nobody reads any more.
    pub fn abandon(&self) {
        self.drain();
        self.stop();
    }

    /// Waits for the end, but no longer than `limit`; `None` if the query still runs then.
    pub fn wait(&self, limit: Duration) -> Option<Arc<Ended>> {
        let is_running = |ended: &mut Option<Arc<Ended>>| ended.is_none();
        let waited = self
            .end
            .came
            .wait_timeout_while(self.end.lock(), limit, is_running);
        let (ended, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ended.clone()
    }

    /// The counts of the query so far, as JSON; `None` while it is compiled.
    pub fn progress(&self) -> Option<String> {
        let board = self.asker.board.as_ref()?.get()?;
        if !board.is_running() {
            return Some(board.json());
        }
        let (reply, answer) = sync_channel(1);
        self.asker.signals.look(Look::new(board, move |board| {
            // Whoever asked may not wait any more.
            let _ = reply.send(board.json());
        }));
        answer
            .recv_timeout(LOOK)
            .ok()
            .or_else(|| Some(board.json()))
    }
}
