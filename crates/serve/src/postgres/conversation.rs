//! A client's conversation after it was let in: its statements are run one after the other.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::backend::{Backend, Cancelled, Parameter, Refusal, Session};
use crate::lock::lock;

use super::catalog::{Catalog, Facts};
use super::command::{Command, Fetch, recognize};
use super::copy::{Copy, Source};
use super::local;
use super::message::{self, Report, Severity, Transaction};
use super::rows::{Form, Running};
use super::settings::{self, Settings};
use super::statements::{Portals, StatementSet, Statements};
use super::wire::Wire;
use super::words;

/// What all conversations share.
pub struct Shared {
    pub backend: Arc<dyn Backend>,
    pub catalog: Catalog,
    /// Threads that answers without an end may occupy.
    pub streams: Arc<Semaphore>,
    /// How to cancel what a client does, by the key that it got.
    pub running: Mutex<Clients>,
}

/// The clients that were let in.
#[derive(Default)]
pub struct Clients {
    /// The number that was given last, which clients call a process.
    last: i32,
    /// By number: what a client must know to cancel a statement, and what it does.
    pub all: HashMap<i32, (u32, Slot)>,
}

impl Clients {
    /// Adds a client, and returns its number: one that no other has.
    pub fn add(&mut self, secret: u32, slot: &Slot) -> i32 {
        loop {
            self.last = self.last.wrapping_add(1) & i32::MAX;
            if let Entry::Vacant(place) = self.all.entry(self.last) {
                place.insert((secret, Arc::clone(slot)));
                return self.last;
            }
        }
    }
}

/// What a client does at the moment, if it does something.
pub type Slot = Arc<Mutex<Option<Cancelled>>>;

/// Why a statement has no answer.
pub enum Fault {
    /// The client is told.
    Report(Report),
    /// The client is gone.
    Gone,
}

impl From<Report> for Fault {
    fn from(report: Report) -> Fault {
        Fault::Report(report)
    }
}

impl From<io::Error> for Fault {
    fn from(_: io::Error) -> Fault {
        Fault::Gone
    }
}

/// A statement that has begun.
pub enum Opened {
    Empty,
    Done { tag: String, notices: Vec<String> },
    Rows(Running),
    Copy(Running, super::copy::Format),
    Fetch(Fetch),
}

/// A conversation.
pub struct Conversation {
    pub shared: Arc<Shared>,
    pub session: Option<Box<dyn Session>>,
    pub settings: Settings,
    pub facts: Facts,
    pub statements: Statements,
    pub portals: Portals,
    pub set: StatementSet,
    pub transaction: Transaction,
    /// Whether something was changed since BEGIN.
    pub changed: bool,
    /// An extended query has failed: its other messages are skipped until Sync.
    pub skips: bool,
    pub slot: Slot,
    /// When the present statement has taken too long.
    pub deadline: Option<Instant>,
}

/// What is asked: a text, where it begins in what the client sent, and the values of its parameters.
pub struct Asked<'a> {
    pub text: &'a str,
    /// The characters before it.
    pub before: usize,
    pub parameters: Vec<Parameter>,
}

impl Conversation {
    pub fn new(shared: Arc<Shared>, settings: Settings, facts: Facts, slot: Slot) -> Conversation {
        Conversation {
            shared,
            session: None,
            settings,
            facts,
            statements: Statements::default(),
            portals: Portals::default(),
            set: StatementSet::default(),
            transaction: Transaction::None,
            changed: false,
            skips: false,
            slot,
            deadline: None,
        }
    }

    /// What a statement is to this door.
    pub fn recognize(&self, text: &str) -> Command {
        recognize(text, settings::is_known, |words| {
            self.shared.catalog.answers(words)
        })
    }

    /// Runs the statements of a text, and says that the next one may come.
    pub async fn simple(&mut self, wire: &mut Wire, text: &str) -> Result<(), Fault> {
        let ranges = words::statements(text);
        if ranges.is_empty() {
            message::signal(&mut wire.out, message::EMPTY);
        }
        let (mut before, mut counted) = (0, 0);
        for range in ranges {
            before += text[counted..range.start].chars().count();
            counted = range.start;
            let asked = Asked {
                text: &text[range],
                before,
                parameters: vec![],
            };
            self.begin();
            let done = self.statement(wire, asked).await;
            self.end();
            // A text of many short statements must not hold up the other clients.
            tokio::task::yield_now().await;
            match done {
                Ok(()) => {}
                Err(Fault::Report(report)) => {
                    self.fail(wire, &report);
                    break;
                }
                Err(Fault::Gone) => return Err(Fault::Gone),
            }
        }
        if self.transaction == Transaction::None {
            self.portals.end_transaction();
        }
        message::ready(&mut wire.out, self.transaction);
        wire.send().await?;
        Ok(())
    }

    /// Begins a statement: its time runs.
    pub fn begin(&mut self) {
        let limit = self.settings.statement_time_max();
        self.deadline = limit.map(|limit| Instant::now() + limit);
    }

    /// Ends a statement: there is nothing to cancel any longer.
    pub fn end(&mut self) {
        *lock(&self.slot) = None;
    }

    /// Tells the client of an error, which ends a transaction.
    pub fn fail(&mut self, wire: &mut Wire, report: &Report) {
        report.write(&mut wire.out);
        if self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
    }

    async fn statement(&mut self, wire: &mut Wire, asked: Asked<'_>) -> Result<(), Fault> {
        let command = self.recognize(asked.text);
        let opened = self.open(wire, &command, asked).await?;
        match opened {
            Opened::Rows(running) => {
                message::columns(&mut wire.out, &running.columns, |_| 0);
                let (_, rows, _) = self.pump(wire, running, Form::Rows(vec![]), None).await?;
                message::complete(&mut wire.out, &format!("SELECT {rows}"));
            }
            Opened::Fetch(fetch) => {
                let columns = self.portals.cursor(&fetch.cursor)?;
                if !fetch.moves {
                    message::columns(&mut wire.out, &columns, |_| 0);
                }
                self.fetch(wire, &fetch, Form::Rows(vec![])).await?;
            }
            other => self.finish(wire, other).await?,
        }
        Ok(())
    }

    /// Ends a statement that returns no rows to the client's query.
    pub async fn finish(&mut self, wire: &mut Wire, opened: Opened) -> Result<(), Fault> {
        match opened {
            Opened::Done { tag, notices } => {
                for notice in notices {
                    Report::notice(notice).write(&mut wire.out);
                }
                message::complete(&mut wire.out, &tag);
            }
            Opened::Copy(running, format) => {
                let columns = Arc::clone(&running.columns);
                message::copy_out(&mut wire.out, columns.len(), format.is_binary());
                format.begin(&columns, &mut wire.out);
                let form = Form::Copy(format.clone());
                let (_, rows, _) = self.pump(wire, running, form, None).await?;
                format.end(rows, &mut wire.out);
                message::signal(&mut wire.out, message::COPY_DONE);
                message::complete(&mut wire.out, &format!("COPY {rows}"));
            }
            Opened::Empty => message::signal(&mut wire.out, message::EMPTY),
            Opened::Rows(_) | Opened::Fetch(_) => {}
        }
        wire.send_if_full().await?;
        Ok(())
    }

    /// Begins a statement. What it returns is not yet taken.
    pub async fn open(
        &mut self,
        wire: &mut Wire,
        command: &Command,
        asked: Asked<'_>,
    ) -> Result<Opened, Fault> {
        let ends = matches!(
            command,
            Command::Commit | Command::Rollback | Command::RollbackToSavepoint
        );
        if self.transaction == Transaction::Failed && !ends && *command != Command::Empty {
            let message =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Report::error("25P02", message).into());
        }
        if let Some(opened) = self.part_of_set(wire, command, &asked).await? {
            return Ok(opened);
        }
        let done = |tag: &str| Opened::Done {
            tag: tag.to_owned(),
            notices: vec![],
        };
        Ok(match command {
            Command::Empty => Opened::Empty,
            Command::Begin => {
                if self.transaction == Transaction::Open {
                    let message = "there is already a transaction in progress";
                    Report::warning("25001", message).write(&mut wire.out);
                }
                (self.transaction, self.changed) = (Transaction::Open, false);
                done("BEGIN")
            }
            Command::Commit | Command::Rollback => {
                done(self.end_transaction(wire, *command == Command::Commit))
            }
            Command::Savepoint => done("SAVEPOINT"),
            Command::Release => done("RELEASE"),
            Command::RollbackToSavepoint => {
                self.warn_of_changes(wire);
                if self.transaction == Transaction::Failed {
                    self.transaction = Transaction::Open;
                }
                done("ROLLBACK")
            }
            Command::Set { name, value } => {
                let told = self.settings.set(name, value.as_deref())?;
                tell(wire, told);
                done("SET")
            }
            Command::Reset(name) => {
                match name {
                    Some(name) => tell(wire, self.settings.set(name, None)?),
                    None => tell(wire, self.settings.reset()),
                }
                done("RESET")
            }
            Command::Show(name) => {
                Opened::Rows(Running::of_batch(local::show(&self.settings, name)))
            }
            Command::Declare { name, query, hold } => {
                let inner = asked.part(query.clone());
                let running = self.query(wire, inner).await?;
                self.portals.declare(name, running, *hold)?;
                done("DECLARE CURSOR")
            }
            Command::Fetch(fetch) => Opened::Fetch(fetch.clone()),
            Command::Close(name) => {
                self.portals.close_cursor(name.as_deref())?;
                done("CLOSE CURSOR")
            }
            Command::Copy(copy) => self.copy(wire, copy, asked).await?,
            Command::Deallocate(name) => {
                self.statements.deallocate(name.as_deref())?;
                done("DEALLOCATE")
            }
            Command::Discard => {
                self.statements.clear();
                self.portals.clear();
                tell(wire, self.settings.reset());
                done("DISCARD ALL")
            }
            Command::Nothing(tag) => done(tag),
            Command::Catalog => Opened::Rows(self.ask_catalog(wire, asked).await?),
            Command::Other => self.ask_session(wire, asked).await?,
        })
    }

    fn end_transaction(&mut self, wire: &mut Wire, commits: bool) -> &'static str {
        let was = self.transaction;
        if was == Transaction::None {
            Report::warning("25P01", "there is no transaction in progress").write(&mut wire.out);
        }
        let commits = commits && was != Transaction::Failed;
        if !commits {
            self.warn_of_changes(wire);
        }
        self.transaction = Transaction::None;
        self.portals.end_transaction();
        if commits { "COMMIT" } else { "ROLLBACK" }
    }

    /// What was created or dropped in a transaction stays as it is.
    fn warn_of_changes(&mut self, wire: &mut Wire) {
        if std::mem::take(&mut self.changed) {
            let message =
                "what the transaction has changed is not undone: statements take effect at once";
            Report::warning("25000", message).write(&mut wire.out);
        }
    }

    async fn copy(
        &mut self,
        wire: &mut Wire,
        copy: &Copy,
        asked: Asked<'_>,
    ) -> Result<Opened, Fault> {
        let running = match &copy.source {
            Source::Unsupported(message) => return Err(Report::error("0A000", *message).into()),
            Source::Query(range) => self.query(wire, asked.part(range.clone())).await?,
            Source::Table(name, columns) => {
                let columns = columns
                    .as_ref()
                    .map_or("*", |range| &asked.text[range.clone()]);
                let text = format!("SELECT {columns} FROM {}", &asked.text[name.clone()]);
                let asked = Asked {
                    text: &text,
                    before: 0,
                    parameters: vec![],
                };
                self.query(wire, asked).await?
            }
        };
        Ok(Opened::Copy(running, copy.format.clone()))
    }

    /// Begins a query within another statement.
    async fn query(&mut self, wire: &mut Wire, asked: Asked<'_>) -> Result<Running, Fault> {
        let opened = match self.recognize(asked.text) {
            Command::Catalog => return self.ask_catalog(wire, asked).await,
            Command::Show(name) => {
                return Ok(Running::of_batch(local::show(&self.settings, &name)));
            }
            Command::Other => self.ask_session(wire, asked).await?,
            _ => return Err(Report::error("42601", "this is not a query").into()),
        };
        match opened {
            Opened::Rows(running) => Ok(running),
            _ => Err(Report::error("42601", "the statement returns no rows").into()),
        }
    }
}

impl<'a> Asked<'a> {
    /// A part of the text, with the same parameters.
    fn part(&self, range: std::ops::Range<usize>) -> Asked<'a> {
        Asked {
            before: self.before + self.text[..range.start].chars().count(),
            text: &self.text[range],
            parameters: self.parameters.clone(),
        }
    }
}

/// A refusal whose place is counted from an earlier beginning.
pub fn moved(mut refusal: Refusal, begin: usize) -> Refusal {
    refusal.position = refusal.position.map(|position| position + begin);
    refusal
}

fn tell(wire: &mut Wire, changes: impl IntoIterator<Item = (&'static str, String)>) {
    for (name, value) in changes {
        message::parameter_status(&mut wire.out, name, &value);
    }
}

impl Report {
    /// Whether the connection has to end.
    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Fatal
    }
}
