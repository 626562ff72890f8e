//! The commands for a worker process: a bounded queue, and a thread that writes it to the control socket, so
//! that a process that doesn't read blocks no other thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, mpsc};

use rustix::process::{Signal, pidfd_send_signal};

use super::channel::Channel;
use super::protocol::ProcessCommand;

/// Commands that may wait for a process, in addition to those in its socket (a few hundred short ones). Five
/// per second ask for counters, and ten ticks per second of the latency controller may each set two workers
/// and a source, so a process that has not read for at least half a minute is killed. The longest command
/// moves 4,096 buckets and takes 32 KiB, one at a time; the others take a few hundred bytes.
pub const COMMANDS_QUEUED_MAX: usize = 1024;

type Queued = (ProcessCommand, Vec<OwnedFd>);

/// The queue of commands for one process.
pub struct Outbox {
    number: usize,
    pid: OwnedFd,
    queue: mpsc::SyncSender<Queued>,
    lost: Mutex<Option<String>>,
}

impl Outbox {
    /// The queue for process `number`; `pid` is the process's descriptor and `channel` leads to it.
    ///
    /// # Errors
    ///
    /// If the thread can't be started.
    pub fn new(number: usize, pid: OwnedFd, channel: Channel) -> io::Result<Outbox> {
        let (queue, queued) = mpsc::sync_channel(COMMANDS_QUEUED_MAX);
        // The thread ends with the queue. A process that doesn't read blocks it until the process is killed.
        std::thread::Builder::new()
            .name(format!("to process {number}"))
            .spawn(move || write(&channel, &queued))?;
        Ok(Outbox {
            number,
            pid,
            queue,
            lost: Mutex::new(None),
        })
    }

    /// Queues a command with descriptors. If too many commands are waiting, the process is killed, which its
    /// reader notices.
    pub fn put(&self, command: ProcessCommand, beside: Vec<OwnedFd>) {
        if let Err(mpsc::TrySendError::Full(_)) = self.queue.try_send((command, beside)) {
            let mut lost = self.lost.lock().expect("no thread panics under it");
            lost.get_or_insert_with(|| {
                format!(
                    "process {} does not read its commands: {COMMANDS_QUEUED_MAX} of them are waiting",
                    self.number
                )
            });
            drop(lost);
            self.kill();
        }
    }

    /// Kills the process.
    pub fn kill(&self) {
        // This has no effect on a process that has exited.
        let _ = pidfd_send_signal(&self.pid, Signal::KILL);
    }

    /// Why the process was killed, if it was because it didn't read.
    pub fn lost(&self) -> Option<String> {
        self.lost.lock().expect("no thread panics under it").clone()
    }
}

fn write(channel: &Channel, queued: &mpsc::Receiver<Queued>) {
    for (command, beside) in queued {
        let descriptors = beside.iter().map(|descriptor| descriptor.as_fd());
        let descriptors = descriptors.collect::<Vec<BorrowedFd<'_>>>();
        // The reader notices if the process has gone.
        let _ = channel.send(&command, &descriptors);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_process_that_does_not_read_is_lost_and_nobody_waits_for_it() {
        let (channel, _unread) = Channel::pair().unwrap();
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let pid = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let outbox = Outbox::new(3, pid, channel).unwrap();
        let begun = Instant::now();
        while outbox.lost().is_none() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it takes all of them"
            );
            outbox.put(ProcessCommand::CountSteps, Vec::new());
        }
        let reason = outbox.lost().unwrap();
        assert!(
            reason.contains("process 3") && reason.contains("1024"),
            "{reason}"
        );
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
