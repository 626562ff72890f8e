//! The thread that starts processes.
//!
//! The kernel kills a worker when the thread that has started it ends (`PR_SET_PDEATHSIG`). The engine's
//! threads come and go, and workers outlive them; this one stays until the process ends. It waits in a
//! channel, which costs nothing.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Processes that wait to be started: each belongs to a thread that waits for it.
const WAITING_MAX: usize = 64;

struct Job {
    command: Command,
    reply: SyncSender<io::Result<Child>>,
}

static JOBS: OnceLock<Option<SyncSender<Job>>> = OnceLock::new();

/// Starts a process that ends when this one does.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let jobs = JOBS.get_or_init(|| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = thread::Builder::new().name("functions".to_string());
        thread.spawn(move || start(&receiver)).ok().map(|_| sender)
    });
    let Some(jobs) = jobs else {
        return command.spawn();
    };
    let (reply, child) = sync_channel(1);
    let ended = || io::Error::other("the thread that starts processes has ended");
    jobs.send(Job { command, reply }).map_err(|_| ended())?;
    child.recv().map_err(|_| ended())?
}

fn start(jobs: &Receiver<Job>) {
    for mut job in jobs {
        // Who has asked waits for it.
        let _ = job.reply.send(job.command.spawn());
        // The command holds the child's ends of its pipes.
        drop(job.command);
    }
}
