//! Threads that parse blocks, and the queue from which they take them.
//!
//! A [`Task`] is done once, by whoever takes it first: a thread of the [`Team`], or the source that made it
//! and would otherwise wait. The results lie in the tasks, which the source keeps in its own order; so there
//! is nothing to sort, and a task that the source no longer wants is simply dropped.
//!
//! A thread is started when a task waits that nobody takes, until there are as many as the team may have. So
//! input that one thread keeps up with starts none.
//!
//! Locks are taken per block, never per row. A thread without work sleeps without a time-out.
//!
//! Shutdown: dropping the team ends its threads, each after the block that it is parsing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use slackwater_engine::link::Waker;
use slackwater_link::{allow_cores, allowed_cores};

/// Something to do that has a result.
pub(crate) trait Work: Send + 'static {
    /// The result.
    type Done: Send;

    /// Does it.
    fn work(self) -> Self::Done;
}

/// Work on its way to being done.
pub(crate) struct Task<W: Work> {
    stage: Mutex<Stage<W>>,
}

enum Stage<W: Work> {
    Waiting(W),
    /// Someone does it. With a waker, its source sleeps until it is done.
    Doing(Option<Waker>),
    Done(std::thread::Result<W::Done>),
    Taken,
}

/// What a source finds when it asks for a result.
pub(crate) enum Found<D> {
    /// Nobody has begun.
    Waiting,
    /// A thread is at it.
    Begun,
    /// The result.
    Done(D),
}

impl<W: Work> Task<W> {
    pub(crate) fn new(work: W) -> Arc<Task<W>> {
        Arc::new(Task {
            stage: Mutex::new(Stage::Waiting(work)),
        })
    }

    /// Does the work if nobody has begun; returns whether it did.
    pub(crate) fn run(&self) -> bool {
        let mut stage = lock(&self.stage);
        let work = match std::mem::replace(&mut *stage, Stage::Doing(None)) {
            Stage::Waiting(work) => work,
            other => {
                *stage = other;
                return false;
            }
        };
        drop(stage);
        // A panic is a bug of ours, and reaches the worker as if the source had parsed the block itself.
        let done = catch_unwind(AssertUnwindSafe(|| work.work()));
        let before = std::mem::replace(&mut *lock(&self.stage), Stage::Done(done));
        if let Stage::Doing(Some(waker)) = before {
            waker.wake();
        }
        true
    }

    /// Takes the result if there is one. If a thread is at it, `waker` is woken once it is done.
    pub(crate) fn take(&self, waker: Option<&Waker>) -> Found<W::Done> {
        let mut stage = lock(&self.stage);
        match &mut *stage {
            Stage::Waiting(_) => Found::Waiting,
            Stage::Doing(asked) => {
                *asked = waker.cloned();
                Found::Begun
            }
            Stage::Done(_) => match std::mem::replace(&mut *stage, Stage::Taken) {
                Stage::Done(Ok(done)) => Found::Done(done),
                Stage::Done(Err(panic)) => resume_unwind(panic),
                _ => unreachable!("the stage has just been looked at"),
            },
            Stage::Taken => unreachable!("a result is taken once"),
        }
    }
}

/// Threads that take tasks in the order in which they came.
pub(crate) struct Team<W: Work> {
    queue: Arc<Queue<W>>,
    threads: RefCell<Vec<JoinHandle<()>>>,
    /// The most threads.
    threads_max: Cell<usize>,
    /// The cores of the thread that has made the team.
    cores: Arc<[usize]>,
}

struct Queue<W: Work> {
    waiting: Mutex<Waiting<W>>,
    more: Condvar,
}

struct Waiting<W: Work> {
    /// At most as many as the sources of the team keep ahead of themselves, each of them a few.
    tasks: VecDeque<Arc<Task<W>>>,
    /// Threads that sleep.
    asleep: usize,
    closed: bool,
}

impl<W: Work> Team<W> {
    /// A team of at most `threads_max` threads. They run on any core that the caller may use, so it is called
    /// before the caller is pinned to one.
    pub(crate) fn new(threads_max: usize) -> Team<W> {
        Team {
            queue: Arc::new(Queue {
                waiting: Mutex::new(Waiting {
                    tasks: VecDeque::new(),
                    asleep: 0,
                    closed: false,
                }),
                more: Condvar::new(),
            }),
            threads: RefCell::default(),
            threads_max: Cell::new(threads_max),
            cores: allowed_cores().into(),
        }
    }

    /// The most threads of the team.
    pub(crate) fn threads_max(&self) -> usize {
        self.threads_max.get()
    }

    /// The threads that were started.
    pub(crate) fn started(&self) -> usize {
        self.threads.borrow().len()
    }

    /// Hands a task to whoever is free.
    pub(crate) fn submit(&self, task: Arc<Task<W>>) {
        let mut waiting = lock(&self.queue.waiting);
        // What a source has done itself, or has dropped, is of no use here any longer.
        waiting.tasks.retain(|task| Arc::strong_count(task) > 1);
        let is_behind = !waiting.tasks.is_empty();
        waiting.tasks.push_back(task);
        let wakes = waiting.asleep > 0;
        drop(waiting);
        if wakes {
            self.queue.more.notify_one();
        } else if is_behind || self.started() == 0 {
            self.start_another();
        }
    }

    fn start_another(&self) {
        let mut threads = self.threads.borrow_mut();
        let number = threads.len();
        if number >= self.threads_max.get() {
            return;
        }
        let (queue, cores) = (Arc::clone(&self.queue), Arc::clone(&self.cores));
        let thread = std::thread::Builder::new()
            .name(format!("parser-{number}"))
            .spawn(move || {
                // Where it can't, it shares the core of the worker that has started it.
                let thread = rustix::thread::gettid().as_raw_nonzero().get();
                let _ = allow_cores(thread as u64, &cores);
                queue.serve();
            });
        match thread {
            Ok(thread) => threads.push(thread),
            // The source parses what these threads don't.
            Err(_) => self.threads_max.set(number),
        }
    }
}

impl<W: Work> Queue<W> {
    /// Does tasks until the team is closed.
    fn serve(&self) {
        while let Some(task) = self.next() {
            task.run();
        }
    }

    fn next(&self) -> Option<Arc<Task<W>>> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.closed {
                return None;
            }
            if let Some(task) = waiting.tasks.pop_front() {
                return Some(task);
            }
            waiting.asleep += 1;
            waiting = self
                .more
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
            waiting.asleep -= 1;
        }
    }
}

impl<W: Work> Drop for Team<W> {
    fn drop(&mut self) {
        let mut waiting = lock(&self.queue.waiting);
        waiting.closed = true;
        waiting.tasks.clear();
        drop(waiting);
        self.queue.more.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // The threads catch panics.
            let _ = thread.join();
        }
    }
}

/// No panic can leave what the locks protect half-changed: they are held for single assignments.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Square(u64);

    impl Work for Square {
        type Done = u64;

        fn work(self) -> u64 {
            assert!(self.0 < 1_000, "a square that is too large");
            self.0 * self.0
        }
    }

    /// Takes a result as a source does that can't sleep.
    fn result(task: &Task<Square>) -> u64 {
        loop {
            match task.take(None) {
                Found::Done(done) => return done,
                Found::Waiting => drop(task.run()),
                Found::Begun => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn tasks_are_done_once_whoever_takes_them() {
        for threads in 0..4 {
            let team = Team::new(threads);
            assert_eq!(team.started(), 0);
            let tasks = (0..500).map(|number| Task::new(Square(number)));
            let tasks = tasks.collect::<Vec<_>>();
            tasks.iter().for_each(|task| team.submit(Arc::clone(task)));
            for (number, task) in tasks.iter().enumerate() {
                assert_eq!(result(task), (number * number) as u64);
            }
            assert!(team.started() <= threads && (threads == 0 || team.started() > 0));
        }
    }

    #[test]
    fn a_panic_reaches_who_takes_the_result() {
        let team = Team::new(1);
        let task = Task::new(Square(1_000));
        team.submit(Arc::clone(&task));
        let panic = catch_unwind(AssertUnwindSafe(|| result(&task)));
        let panic = panic.unwrap_err();
        let text = panic.downcast_ref::<&str>().unwrap();
        assert_eq!(*text, "a square that is too large");
        // The thread goes on.
        let next = Task::new(Square(3));
        team.submit(Arc::clone(&next));
        assert_eq!(result(&next), 9);
    }

    #[test]
    fn a_second_thread_starts_only_if_tasks_wait() {
        let team = Team::new(8);
        for number in 0..100 {
            let task = Task::new(Square(number));
            team.submit(Arc::clone(&task));
            assert_eq!(result(&task), number * number);
        }
        assert_eq!(team.started(), 1);
    }

    #[test]
    fn tasks_that_nobody_wants_any_longer_are_dropped_with_the_team() {
        let team = Team::new(2);
        for number in 0..100 {
            team.submit(Task::new(Square(number)));
        }
        drop(team);
    }
}
