//! The thread that reads the events of one worker process and waits for its end.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::Arc;

use rustix::process::Signal;
use slackwater_engine::recorder::Recorder;

use crate::hosts::channel::{Channel, Received};
use crate::hosts::host::{Exit, Hear, News, What};
use crate::hosts::outbox::Outbox;
use crate::hosts::protocol::{ProcessCommand, ProcessEvent};

/// Reads the events of one worker process.
pub struct Reader {
    number: usize,
    /// The number of the host's first process.
    first: usize,
    child: Child,
    channel: Channel,
    /// The memory in which the process records the rows that it is processing.
    recorder: Option<Recorder>,
    /// The queues of commands of all processes of the host.
    outboxes: Arc<Vec<Outbox>>,
    hear: Hear,
}

impl Reader {
    /// The reader of process `number`.
    pub fn new(
        number: usize,
        first: usize,
        child: Child,
        channel: Channel,
        recorder: Option<Recorder>,
        outboxes: Arc<Vec<Outbox>>,
        hear: Hear,
    ) -> Reader {
        Reader {
            number,
            first,
            child,
            channel,
            recorder,
            outboxes,
            hear,
        }
    }

    /// Reads until the process has ended, and then waits for its exit.
    pub fn run(mut self) {
        while let Ok(Some(received)) = self.channel.receive_with::<ProcessEvent>() {
            let Received {
                message,
                bytes,
                descriptors,
            } = received;
            match message {
                // State that moves within the host.
                ProcessEvent::Forward { process, command } if self.outbox(process).is_some() => {
                    if let Some(outbox) = self.outbox(process) {
                        outbox.put(ProcessCommand::Host(command), descriptors);
                    }
                }
                event => (self.hear)(News {
                    process: self.number,
                    what: What::Said {
                        event,
                        bytes,
                        state: descriptors.into_iter().next(),
                    },
                }),
            }
        }
        let status = self.child.wait();
        let lost = self.outbox(self.number).and_then(Outbox::lost);
        let exit = Exit {
            reason: lost.unwrap_or_else(|| how_it_died(&status)),
            is_crash: status.as_ref().is_ok_and(is_its_own_fault),
            noted: self.recorder.iter().flat_map(Recorder::read).collect(),
        };
        (self.hear)(News {
            process: self.number,
            what: What::Left(exit),
        });
    }

    /// The queue of a process of this host.
    fn outbox(&self, process: usize) -> Option<&Outbox> {
        self.outboxes.get(process.checked_sub(self.first)?)
    }
}

/// Whether the process itself crashed: these signals are rarely sent by others.
fn is_its_own_fault(status: &ExitStatus) -> bool {
    let faults = [
        Signal::SEGV,
        Signal::ABORT,
        Signal::BUS,
        Signal::ILL,
        Signal::FPE,
    ];
    let signal = status.signal();
    signal.is_some_and(|signal| faults.iter().any(|fault| fault.as_raw() == signal))
}

fn how_it_died(status: &io::Result<ExitStatus>) -> String {
    let Ok(status) = status else {
        return "died for an unknown reason".to_string();
    };
    match (status.signal(), status.code()) {
        (Some(9), _) => "was killed (signal 9), by a user or because memory ran out".to_string(),
        (Some(signal), _) => format!("was terminated by signal {signal}"),
        (None, Some(code)) => format!("exited (code {code}) before its part was done"),
        (None, None) => "died".to_string(),
    }
}
