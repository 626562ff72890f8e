//! A worker: its process, and the two memories that it shares with the engine.

use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use crate::definition::{Definition, Failure, Mode, Problem};
use crate::layout::{Arguments, Flags, HEADER_BYTES, columns};
use crate::memory::Memory;
use crate::message::{ANY_ROW, FAILED, Message, READY, RESULT, START};
use crate::process::{ATTEMPTS, Heard, Process, interpreter, is_python};

/// How long the text of a function may take to load: large models are read there.
const START_PATIENCE: Duration = Duration::from_secs(300);

/// The longest reason that is read.
const REASON_BYTES_MAX: usize = 8 << 10;

/// How a call has ended without a result.
#[derive(Debug)]
pub enum Ended {
    /// It has raised an error; the worker lives.
    Failed(Failure),
    /// The worker is gone: why, and at which row.
    Died {
        failure: Failure,
        /// Whether it was killed because it has taken too long.
        is_late: bool,
    },
}

impl Ended {
    /// Why there is no result.
    pub fn failure(self) -> Failure {
        match self {
            Ended::Failed(failure) | Ended::Died { failure, .. } => failure,
        }
    }
}

/// A call.
pub struct Call<'a> {
    /// The kind of request.
    pub what: u32,
    /// The number of rows.
    pub rows: usize,
    /// The arguments.
    pub columns: &'a [ArrayRef],
    /// The types of the results, and how many values each has, if that is known.
    pub results: &'a [(DataType, Option<usize>)],
}

/// A worker that has loaded its function.
pub struct Worker {
    /// Whether its function can retract rows.
    pub can_retract: bool,
    process: Process,
    arguments: Memory,
    results: Memory,
    /// How arguments and results are stored.
    flags: [Flags; 2],
}

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    ///
    /// If Python can't be started, or the function's text can't be loaded.
    pub fn start(definition: &Definition) -> Result<Worker, Problem> {
        let mut attempt = 1;
        loop {
            match Worker::start_once(definition) {
                // By the kernel if memory was short, or by somebody: the text is not to blame.
                Err(problem) if problem.is_killed && attempt < ATTEMPTS => attempt += 1,
                started => return started,
            }
        }
    }

    fn start_once(definition: &Definition) -> Result<Worker, Problem> {
        let python = definition.python.as_ref();
        let python = python.map_or_else(interpreter, OsString::from);
        let cannot = |error: io::Error| {
            let python = python.to_string_lossy();
            Problem::new(
                format!(
                    "function '{}': can't start '{python}': {error}",
                    definition.name
                ),
                "install Python 3.9 or later, or name another one: SET 'python' = '/path/to/python3'",
            )
        };
        let (arguments, results) = (
            Memory::new().map_err(cannot)?,
            Memory::new().map_err(cannot)?,
        );
        if !is_python(&python).map_err(cannot)? {
            return Err(Problem::new(
                format!(
                    "function '{}': '{}' is not Python 3",
                    definition.name,
                    python.to_string_lossy()
                ),
                "name an interpreter of Python 3.9 or later: SET 'python' = '/path/to/python3'",
            ));
        }
        let process = Process::start(&definition.name, &python, [&arguments, &results]);
        let mut worker = Worker {
            process: process.map_err(cannot)?,
            arguments,
            results,
            can_retract: false,
            flags: match definition.mode {
                Mode::Rows => [Flags::Bytes; 2],
                // The value of a group is a value of Python in either mode.
                Mode::Columns if definition.is_aggregate => [Flags::Bits, Flags::Bytes],
                Mode::Columns => [Flags::Bits; 2],
            },
        };
        worker.load(definition)?;
        Ok(worker)
    }

    fn load(&mut self, definition: &Definition) -> Result<(), Problem> {
        let name = &definition.name;
        let told = definition.told();
        let grown = self.arguments.grow(told.len());
        grown.map_err(|error| Problem::new(format!("function '{name}': {error}"), ""))?;
        self.arguments.write(0, &told);
        self.process.send(&self.request(START, 0, told.len()));
        let begun = Instant::now();
        loop {
            match self.process.hear(START_PATIENCE) {
                Heard::Reply(reply) if reply.what == READY => {
                    self.can_retract = reply.row == 1;
                    return match self.results.follow(reply.size as usize) {
                        Ok(()) => Ok(()),
                        Err(error) => Err(Problem::new(format!("function '{name}': {error}"), "")),
                    };
                }
                Heard::Reply(reply) => return Err(not_loaded(name, &self.reason(&reply))),
                Heard::Silence if begun.elapsed() < START_PATIENCE => {}
                Heard::Silence => {
                    self.process.kill();
                    let seconds = START_PATIENCE.as_secs();
                    return Err(Problem::new(
                        format!("function '{name}': its text was not loaded within {seconds} s"),
                        "move what takes so long out of the text, for example into the first call",
                    ));
                }
                Heard::End => {
                    let death = self.process.bury();
                    let message = format!("function '{name}': its worker {death} while it started");
                    let said = self.process.last_output();
                    return Err(Problem {
                        is_killed: death.is_killed,
                        ..Problem::new(message, said)
                    });
                }
            }
        }
    }

    fn request(&self, what: u32, rows: usize, length: usize) -> Message {
        Message {
            what,
            row: rows as i64,
            size: self.arguments.size() as u64,
            length: length as u64,
        }
    }

    /// The results of a call.
    pub fn call(
        &mut self,
        definition: &Definition,
        call: &Call<'_>,
    ) -> Result<Vec<ArrayRef>, Ended> {
        let failed = |reason: String| Ended::Failed(Failure::of(reason));
        let [flags, of_results] = self.flags;
        let arguments = Arguments::of(call.columns, flags).map_err(failed)?;
        let written = arguments.write(&mut self.arguments);
        written.map_err(|error| failed(format!("can't get shared memory: {error}")))?;
        self.results.write(0, &(-1_i64).to_le_bytes());
        self.process
            .send(&self.request(call.what, call.rows, arguments.bytes()));
        let reply = self.reply(definition)?;
        let followed = usize::try_from(reply.size).map_err(io::Error::other);
        let followed = followed.and_then(|size| self.results.follow(size));
        followed.map_err(|error| failed(format!("can't map the result: {error}")))?;
        match reply.what {
            RESULT => columns(&self.results, call.results, of_results).map_err(failed),
            FAILED => {
                let row = usize::try_from(reply.row)
                    .ok()
                    .filter(|row| *row < call.rows);
                Err(Ended::Failed(Failure {
                    row,
                    is_final: reply.row == ANY_ROW,
                    ..Failure::of(self.reason(&reply))
                }))
            }
            _ => Err(failed("the worker has sent an unknown message".to_string())),
        }
    }

    /// Waits for the end of a call, which may take its time as long as rows move on.
    fn reply(&mut self, definition: &Definition) -> Result<Message, Ended> {
        let (mut begun, mut row) = (Instant::now(), self.row());
        loop {
            let left = definition.timeout.saturating_sub(begun.elapsed());
            match self.process.hear(left) {
                Heard::Reply(reply) => return Ok(reply),
                Heard::End => {
                    let death = self.process.bury();
                    return Err(self.died(format!("its worker {death}"), false));
                }
                Heard::Silence if begun.elapsed() < definition.timeout => {}
                Heard::Silence if self.row() != row => (begun, row) = (Instant::now(), self.row()),
                Heard::Silence => {
                    self.process.kill();
                    let what = match definition.mode {
                        Mode::Rows => "a row",
                        Mode::Columns => "a chunk",
                    };
                    let timeout = definition.timeout;
                    let reason = format!(
                        "it has taken longer than {timeout:?} for {what}, and its worker was killed \
                         ('timeout' sets the limit)"
                    );
                    return Err(self.died(reason, true));
                }
            }
        }
    }

    /// The row that a function of rows is at.
    fn row(&self) -> Option<usize> {
        let row = self.results.read(0, 8)?;
        let row = row.try_into().expect("8 bytes were read");
        usize::try_from(i64::from_le_bytes(row)).ok()
    }

    fn died(&self, reason: String, is_late: bool) -> Ended {
        let failure = Failure {
            row: self.row(),
            ..Failure::of(reason)
        };
        Ended::Died { failure, is_late }
    }

    /// Whether its process has not ended.
    pub fn lives(&self) -> bool {
        self.process.lives()
    }

    fn reason(&self, reply: &Message) -> String {
        let length = usize::try_from(reply.length).unwrap_or(usize::MAX);
        let bytes = self
            .results
            .read(HEADER_BYTES, length.min(REASON_BYTES_MAX));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }

    /// Tells the worker to end. Dropping it waits for the end.
    pub fn dismiss(&self) {
        self.process.dismiss();
    }
}

/// What a worker says of a text that it can't load: `LINE COLUMN MESSAGE`, 0 for what it doesn't know.
fn not_loaded(name: &str, said: &str) -> Problem {
    let mut words = said.splitn(3, ' ');
    let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
    let (line, column) = (number().unwrap_or(0), number().unwrap_or(0));
    let message = words.next().unwrap_or(said);
    let hint = match message.split(':').next().unwrap_or_default() {
        "ModuleNotFoundError" => {
            "install it for the interpreter that runs the function, or name another one: \
             SET 'python' = '/path/to/python3'"
        }
        "MemoryError" => "raise the function's option 'memory'",
        _ => "",
    };
    Problem {
        place: (line > 0).then_some((line, column)),
        ..Problem::new(format!("function '{name}': {message}"), hint)
    }
}
