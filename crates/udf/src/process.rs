//! The process of a worker: how it is started, waited for, and ended.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::memory::Memory;
use crate::message::{BYTES, Message};
use crate::output::Output;
use crate::spawner;

/// The program of a worker.
const WORKER: &str = concat!(
    include_str!("worker_py/values.py"),
    "\n\n",
    include_str!("worker_py/columns.py"),
    "\n\n",
    include_str!("worker_py/aggregates.py"),
    "\n\n",
    include_str!("worker_py/operators.py"),
    "\n\n",
    include_str!("worker_py/main.py"),
);

/// The parts of it that run operators, for an interpreter in this process.
pub const OPERATORS: &str = concat!(
    include_str!("worker_py/values.py"),
    "\n\n",
    include_str!("worker_py/operators.py"),
);

/// What Python runs: it takes the socket away from standard input, and reads the program from it.
const LOADER: &str = "\
import os, socket, sys
if sys.version_info < (3, 9):
    sys.exit('Python 3.9 or later is needed, and this is ' + sys.version.split()[0])
connection = socket.socket(fileno=os.dup(0))
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), 'little')
text = connection.recv(size, socket.MSG_WAITALL)
space = {'__name__': 'slackwater_worker', '__file__': 'slackwater_worker.py'}
exec(compile(text, 'slackwater_worker.py', 'exec'), space)
space['main'](connection)
";

/// How long an interpreter may take to say its version.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

/// How often an interpreter is started that is killed before it has loaded its text.
pub const ATTEMPTS: usize = 3;

/// How long a worker may take to end.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// The workers of this program that have been started and not ended.
static RUNNING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// The numbers of the processes that are workers of this program: the system counts what they use for this
/// one only when they have ended.
pub fn running() -> BTreeSet<u32> {
    RUNNING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// A started process.
pub struct Process {
    child: Child,
    handle: OwnedFd,
    socket: UnixStream,
    output: Output,
}

/// How a process has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// How, after "its worker".
    pub how: String,
    /// Whether a signal has ended it: somebody may have killed it, and another one may live.
    pub is_killed: bool,
}

/// What came first.
pub enum Heard {
    Reply(Message),
    /// The process has ended, or has closed its socket.
    End,
    /// Nothing, for so long.
    Silence,
}

/// The interpreter of the environment.
pub fn interpreter() -> OsString {
    match std::env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty()) {
        Some(folder) => Path::new(&folder).join("bin/python3").into(),
        None => "python3".into(),
    }
}

/// Whether a program is Python 3. Another one would show the text of a worker in its errors. Each is asked
/// once.
pub fn is_python(program: &OsString) -> io::Result<bool> {
    static KNOWN: Mutex<BTreeSet<OsString>> = Mutex::new(BTreeSet::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known().contains(program) {
        return Ok(true);
    }
    for _ in 0..ATTEMPTS {
        if let Some(is_python) = answers_as_python(program)? {
            if is_python {
                known().insert(program.clone());
            }
            return Ok(is_python);
        }
    }
    Err(io::Error::other(format!(
        "it was killed {ATTEMPTS} times while it started"
    )))
}

/// Whether a program is Python 3; `None` if it was killed before it could say so.
fn answers_as_python(program: &OsString) -> io::Result<Option<bool>> {
    let mut command = Command::new(program);
    command
        .args(["-I", "-S", "-c", "import sys; print(sys.version_info[0])"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = spawner::spawn(command)?;
    let mut said = [0; 2];
    let answer = child.stdout.as_mut().expect("it is a pipe");
    let patience = Timespec::try_from(ANSWER_PATIENCE).ok();
    let has_answered = poll(&mut [PollFd::new(answer, PollFlags::IN)], patience.as_ref());
    let is_python = matches!(has_answered, Ok(1..)) && answer.read_exact(&mut said).is_ok();
    let is_silent = matches!(has_answered, Ok(0));
    if !is_python && !is_silent {
        // Its output has ended, and so has it, or soon will.
        let begun = Instant::now();
        while begun.elapsed() < END_PATIENCE {
            if let Some(status) = child.try_wait()? {
                return Ok(status.signal().is_none().then_some(false));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    abandon(child);
    Ok(Some(is_python && said == *b"3\n"))
}

impl Process {
    /// Starts a process, which has these two memories.
    pub fn start(function: &str, python: &OsString, memories: [&Memory; 2]) -> io::Result<Process> {
        let (socket, theirs) = UnixStream::pair()?;
        let (output, input) = io::pipe()?;
        let mut command = Command::new(python);
        command
            // Unbuffered: what a function prints before it kills its process is seen.
            .args(["-u", "-c", LOADER])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(input.try_clone()?))
            .stderr(Stdio::from(input))
            // Ctrl-C is for the engine, which ends its workers.
            .process_group(0);
        let child = spawner::spawn(command)?;
        let number = Pid::from_raw(child.id() as i32).expect("a process has a number");
        let handle = pidfd_open(number, PidfdFlags::empty());
        let made = handle.map_err(io::Error::from).and_then(|handle| {
            let output = Output::forward(function, output, handle.try_clone()?)?;
            Ok((handle, output))
        });
        let (handle, output) = match made {
            Ok(made) => made,
            Err(error) => {
                abandon(child);
                return Err(error);
            }
        };
        let process = Process {
            child,
            handle,
            socket,
            output,
        };
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(process.child.id());
        drop(running);
        // If it has ended already, the first reply that does not come says so.
        let _ = process.hand_over(memories);
        Ok(process)
    }

    fn hand_over(&self, memories: [&Memory; 2]) -> io::Result<()> {
        use std::io::Write;
        let size = (WORKER.len() as u32).to_le_bytes();
        (&self.socket).write_all(&size)?;
        (&self.socket).write_all(WORKER.as_bytes())?;
        let descriptors = memories.map(|memory| memory.as_fd());
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let fits = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
        assert!(fits, "there is room for two descriptors");
        let bytes = [io::IoSlice::new(&[0])];
        sendmsg(&self.socket, &bytes, &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Sends a request; that it can't be sent is heard instead of its reply.
    pub fn send(&self, request: &Message) {
        let _ = request.send(&self.socket);
    }

    /// Waits for a reply.
    pub fn hear(&self, patience: Duration) -> Heard {
        let mut ends = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::new(&self.handle, PollFlags::IN),
        ];
        match poll(&mut ends, Timespec::try_from(patience).ok().as_ref()) {
            Ok(0) => return Heard::Silence,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Heard::End,
        }
        // A reply may have come before the end.
        if !ends[0].revents().is_empty() {
            let mut bytes = [0; BYTES];
            return match (&self.socket).read_exact(&mut bytes) {
                Ok(()) => Heard::Reply(Message::of(&bytes)),
                Err(_) => Heard::End,
            };
        }
        match ends[1].revents().is_empty() {
            // Interrupted: whoever waits counts the time.
            true => Heard::Silence,
            false => Heard::End,
        }
    }

    /// Ends a process that has failed, and says how it has ended.
    pub fn bury(&mut self) -> Death {
        // One that has only closed its socket has not.
        if !self.has_ended(END_PATIENCE) {
            let _ = self.child.kill();
        }
        match self.child.wait() {
            Ok(status) => Death {
                how: ending(status),
                is_killed: status.signal().is_some(),
            },
            Err(error) => Death {
                how: format!("can't be waited for: {error}"),
                is_killed: false,
            },
        }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The last lines that a process wrote that has ended.
    pub fn last_output(&self) -> String {
        self.output.last()
    }

    /// Tells the process to end: it has nothing more to read.
    pub fn dismiss(&self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// Whether the process has not ended.
    pub fn lives(&self) -> bool {
        !self.has_ended(Duration::ZERO)
    }

    fn has_ended(&self, patience: Duration) -> bool {
        let mut handle = [PollFd::new(&self.handle, PollFlags::IN)];
        let patience = Timespec::try_from(patience).ok();
        !matches!(poll(&mut handle, patience.as_ref()), Ok(0) | Err(_))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.dismiss();
        if !self.has_ended(END_PATIENCE) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        // This process may end next, and its threads with it.
        self.output.finish();
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.remove(&self.child.id());
    }
}

fn abandon(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn ending(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT)",
                7 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL: by somebody, or by the kernel if memory has run out)",
                11 => " (SIGSEGV)",
                15 => " (SIGTERM)",
                _ => "",
            };
            format!("was killed by signal {signal}{name}")
        }
        (None, Some(code)) => format!("has ended with code {code}"),
        (None, None) => "has ended".to_string(),
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ending_names_the_signal_or_the_code() {
        assert_eq!(
            ending(ExitStatus::from_raw(11)),
            "was killed by signal 11 (SIGSEGV)"
        );
        assert_eq!(
            ending(ExitStatus::from_raw(3 << 8)),
            "has ended with code 3"
        );
    }
}
