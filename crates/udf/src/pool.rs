//! A function, and the workers that run it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::builder::UInt32Builder;
use arrow_array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow_buffer::NullBuffer;
use arrow_select::filter::filter;
use arrow_select::take::take;

use crate::definition::{Definition, Failure, Problem};
use crate::message::CALL;
use crate::worker::{Call, Ended, Worker};

/// The deaths of workers one after the other, without a call that has succeeded, after which a function is
/// given up. A chunk of `n` rows is repeated in halves to find a row that kills, and that row once more: at
/// most
/// `log2 n + 2` deaths, which is 22 for the largest chunk.
const DEATHS_MAX: usize = 24;

/// A function. Any number of threads may call it; each call has a worker of its own.
pub struct Function {
    definition: Definition,
    workers: Mutex<Workers>,
    /// A worker was given back.
    returned: Condvar,
}

#[derive(Default)]
struct Workers {
    /// Those without a call; the last one was used last.
    idle: Vec<Worker>,
    /// All that have been started, or are being started.
    count: usize,
    /// Deaths since the last call that has succeeded.
    deaths: usize,
    /// Why the function can't be called any more.
    given_up: Option<Arc<str>>,
}

impl Function {
    /// A function, without workers: they start with the first calls.
    pub fn new(definition: Definition) -> Function {
        Function {
            definition,
            workers: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// What the function is.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Starts the first worker, so that what is wrong with the function is found before it is called. If it
    /// is not kept, it ends at once.
    ///
    /// # Errors
    ///
    /// If Python can't be started, or the text can't be loaded.
    pub fn start(&self, keep: bool) -> Result<(), Problem> {
        {
            let mut workers = self.workers();
            if workers.count > 0 {
                return Ok(());
            }
            workers.count += 1;
        }
        match Worker::start(&self.definition) {
            Ok(worker) if keep => self.give_back(Ok(worker)),
            Ok(_) => {
                self.workers().count -= 1;
                Ok(())
            }
            Err(problem) => self.give_back(Err(problem)),
        }
    }

    /// Ends the workers that have no call, and waits for them: then the system has counted what they used.
    pub fn end(&self) {
        let mut workers = self.workers();
        let idle = std::mem::take(&mut workers.idle);
        workers.count -= idle.len();
        drop(workers);
        // All at once; dropping each one waits for it.
        idle.iter().for_each(Worker::dismiss);
        drop(idle);
        self.returned.notify_all();
    }

    /// Keeps a worker that has no call, or counts one that is gone.
    fn give_back<E>(&self, worker: Result<Worker, E>) -> Result<(), E> {
        let mut workers = self.workers();
        let gone = match worker {
            Ok(worker) => {
                workers.idle.push(worker);
                Ok(())
            }
            Err(error) => {
                workers.count -= 1;
                Err(error)
            }
        };
        drop(workers);
        self.returned.notify_one();
        gone
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The results for columns of the declared types. An error means that at least one row fails.
    ///
    /// # Errors
    ///
    /// What the function has raised, or how its worker has died.
    pub fn call(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, Failure> {
        let nulls = columns.iter().fold(None, |nulls, column| {
            NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
        });
        let nulls = nulls.filter(|nulls| nulls.null_count() > 0 && !self.definition.takes_nulls);
        let Some(nulls) = nulls else {
            return self.call_worker(columns, rows);
        };
        let left = rows - nulls.null_count();
        if left == 0 {
            return Ok(new_null_array(&self.definition.result, rows));
        }
        let valid = BooleanArray::new(nulls.inner().clone(), None);
        let columns = columns.iter().map(|column| filter(column, &valid));
        let columns = columns.collect::<Result<Vec<ArrayRef>, _>>();
        let columns = columns.map_err(|error| Failure::of(error.to_string()))?;
        let results = self
            .call_worker(&columns, left)
            .map_err(|failure| Failure {
                row: failure.row.and_then(|row| nulls.valid_indices().nth(row)),
                ..failure
            })?;
        let mut places = UInt32Builder::with_capacity(rows);
        let mut place = 0;
        for is_valid in &nulls {
            places.append_option(is_valid.then_some(place));
            place += u32::from(is_valid);
        }
        take(&results, &places.finish(), None).map_err(|error| Failure::of(error.to_string()))
    }

    fn call_worker(&self, columns: &[ArrayRef], rows: usize) -> Result<ArrayRef, Failure> {
        if rows == 0 {
            return Ok(new_null_array(&self.definition.result, 0));
        }
        let results = [(self.definition.result.clone(), Some(rows))];
        let call = Call {
            what: CALL,
            rows,
            columns,
            results: &results,
        };
        Ok(self.call_once_more(&call)?.remove(0))
    }

    /// Makes a call, and once more for a single row that has killed its worker.
    pub(crate) fn call_once_more(&self, call: &Call<'_>) -> Result<Vec<ArrayRef>, Failure> {
        let mut is_repeated = false;
        loop {
            let (failure, is_late) = match self.attempt(call) {
                Ok(results) => return Ok(results),
                Err(Ended::Failed(failure)) => return Err(failure),
                Err(Ended::Died { failure, is_late }) => (failure, is_late),
            };
            // Somebody else may have killed it, or the kernel for the memory of others: a single row is to
            // blame if it kills two.
            let is_blamed = call.rows > 1 || is_repeated || is_late;
            if failure.is_final || is_blamed {
                return Err(failure);
            }
            is_repeated = true;
        }
    }

    /// Calls a worker once.
    pub(crate) fn attempt(&self, call: &Call<'_>) -> Result<Vec<ArrayRef>, Ended> {
        let mut worker = self.take().map_err(Ended::Failed)?;
        match worker.call(&self.definition, call) {
            Ok(results) => {
                self.workers().deaths = 0;
                let _ = self.give_back(Ok::<Worker, ()>(worker));
                Ok(results)
            }
            Err(Ended::Died { failure, is_late }) => {
                drop(worker);
                let _ = self.give_back(Err(()));
                let failure = self.after_death(failure);
                Err(Ended::Died { failure, is_late })
            }
            Err(failed) => {
                let _ = self.give_back(Ok::<Worker, ()>(worker));
                Err(failed)
            }
        }
    }

    /// Whether an aggregate function can retract rows. Starts a worker if there is none.
    ///
    /// # Errors
    ///
    /// If it can't be started.
    pub fn can_retract(&self) -> Result<bool, Failure> {
        let worker = self.take()?;
        let can_retract = worker.can_retract;
        let _ = self.give_back(Ok::<Worker, ()>(worker));
        Ok(can_retract)
    }

    /// Counts a death, and gives the function up if there were too many.
    fn after_death(&self, failure: Failure) -> Failure {
        let mut workers = self.workers();
        workers.deaths += 1;
        if workers.deaths < DEATHS_MAX {
            return failure;
        }
        let reason = format!(
            "its workers have died {DEATHS_MAX} times one after the other; the last time {}",
            failure.reason.trim_start_matches("its worker ")
        );
        workers.given_up = Some(Arc::from(reason.as_str()));
        Failure {
            reason,
            row: None,
            is_final: true,
        }
    }

    /// A worker without a call, or a new one. Waits if there are as many as there may be.
    fn take(&self) -> Result<Worker, Failure> {
        let may_start = |count: usize| self.definition.workers.is_none_or(|most| count < most);
        let mut workers = self.workers();
        loop {
            if let Some(reason) = &workers.given_up {
                return Err(Failure {
                    is_final: true,
                    ..Failure::of(reason.as_ref())
                });
            }
            if let Some(worker) = workers.idle.pop() {
                if worker.lives() {
                    return Ok(worker);
                }
                // Nobody has called it, so no row is to blame.
                workers.count -= 1;
                continue;
            }
            if may_start(workers.count) {
                break;
            }
            let waited = self.returned.wait(workers);
            workers = waited.unwrap_or_else(PoisonError::into_inner);
        }
        workers.count += 1;
        drop(workers);
        Worker::start(&self.definition).map_err(|problem| {
            let _ = self.give_back(Err(()));
            let mut reason = problem.message;
            if !problem.hint.is_empty() {
                reason = format!("{reason} ({})", problem.hint);
            }
            Failure {
                is_final: true,
                ..Failure::of(reason)
            }
        })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.end();
    }
}
