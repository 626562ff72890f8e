//! What head and hand say to each other: messages of one size over a socket pair that keeps their bounds.
//!
//! The head asks, and the hand answers each request once. In between the hand tells what happened. Some
//! messages carry a descriptor: the one by which the head undoes a change if the hand dies.
//!
//! Whatever does not decode ends the channel: both sides are of one program, so it is no message of theirs.

use std::io;
use std::net::SocketAddr;

use slackwater_control::power::{Cpu, InstanceId};

mod channel;
mod encoding;

pub use channel::{Channel, Received};

/// The longest string of a message: energy preferences are the longest, `balance_performance`.
pub const TEXT_MAX: usize = 32;
/// What the head asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Send everything by which you can be undone.
    Hello,
    /// Verify that this process is the server that listens there, and manage it.
    Adopt {
        /// The number that the instance has from now on.
        instance: InstanceId,
        /// The process, as the server says.
        pid: u32,
        /// For how long the server says that it has run, in seconds.
        uptime_s: u64,
        /// Where the server listens.
        address: SocketAddr,
    },
    /// Undo everything for an instance, and forget it.
    Forget {
        /// The instance.
        instance: InstanceId,
    },
    /// Cap a core's frequency; none is what was found.
    Cap {
        /// The core.
        cpu: Cpu,
        /// The frequency.
        khz: Option<u32>,
    },
    /// Pin an instance to a core.
    Pin {
        /// The instance.
        instance: InstanceId,
        /// The core.
        cpu: Cpu,
    },
    /// Keep an instance off the cores to which others are pinned.
    KeepAway {
        /// The instance.
        instance: InstanceId,
    },
    /// Let an instance run where it ran before.
    Unpin {
        /// The instance.
        instance: InstanceId,
    },
    /// Set how often an instance looks at what its master sent; none is at once.
    Beat {
        /// The instance.
        instance: InstanceId,
        /// The master, whose connection is batched.
        master: SocketAddr,
        /// The time between two looks.
        beat_ns: Option<u64>,
    },
    /// Look at everything that is set, and set again what is no longer so. About once a second.
    Look,
    /// Say what the energy of a package is.
    Energy {
        /// The package's index.
        package: u32,
    },
    /// Say what the beat of an instance has done.
    Count {
        /// The instance.
        instance: InstanceId,
    },
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// As asked.
    Done,
    /// The operating system refused; the number says why.
    System,
    /// The core is not one that may be set, or the frequency is out of its range.
    NotAllowed,
    /// Somebody else changes this core's frequency.
    Conflict,
    /// The hand does not manage this instance.
    NotAdopted,
    /// There is no such process.
    NoProcess,
    /// The process is of another PID namespace.
    AnotherNamespace,
    /// The process started at another time than the server says.
    AnotherStart,
    /// The process does not own the socket that listens there.
    AnotherSocket,
    /// The instance has no connection to that master.
    NoConnection,
    /// There are as many instances as the hand manages at most.
    TooMany,
    /// This host has no such package.
    NoPackage,
}

/// What the hand says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// A request has ended.
    Answer(Answer),
    /// The descriptor along is a file that caps cores; this is what it held.
    File {
        /// The first of the cores.
        cpu: Cpu,
        /// What the file held.
        found: Text,
    },
    /// The descriptor along is an instance's connection to its master; this is its mark.
    Socket {
        /// The instance.
        instance: InstanceId,
        /// The low-water mark that was found.
        found: i32,
    },
    /// Close the descriptor of this instance's connection: the instance itself has closed it.
    Closed {
        /// The instance.
        instance: InstanceId,
    },
    /// An instance's process has ended.
    Gone {
        /// The instance.
        instance: InstanceId,
    },
    /// Cores have come or gone: all that was slowed was restored, and [`Request::Hello`] sends the files that
    /// there are now.
    Cores,
    /// The hand was told to end, and has restored everything.
    Ended,
    /// Somebody else has changed a core's frequency again and again: it is left alone.
    Conflict {
        /// The core.
        cpu: Cpu,
        /// What the file holds.
        khz: u32,
    },
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// How it ended.
    pub code: Code,
    /// With [`Code::System`]: the operating system's number.
    pub errno: i32,
    /// What was asked for, or what was set.
    pub value: u64,
    /// A second number.
    pub more: u64,
}

impl Answer {
    /// As asked.
    pub const DONE: Self = Self::of(Code::Done);

    /// An end without numbers.
    pub const fn of(code: Code) -> Self {
        Self {
            code,
            errno: 0,
            value: 0,
            more: 0,
        }
    }

    /// The operating system refused.
    pub fn refused(error: &io::Error) -> Self {
        Self {
            errno: error.raw_os_error().unwrap_or(libc::EIO),
            ..Self::of(Code::System)
        }
    }

    /// As asked, with a number.
    pub fn value(value: u64) -> Self {
        Self {
            value,
            ..Self::DONE
        }
    }

    /// Why it was not as asked, for people.
    pub fn reason(&self) -> String {
        let text = match self.code {
            Code::Done => "done",
            Code::System => return io::Error::from_raw_os_error(self.errno).to_string(),
            Code::NotAllowed => "not one of the cores that may be set, or out of the core's range",
            Code::Conflict => "another program sets this core's frequency, so it is left alone",
            Code::NotAdopted => "its process was not verified",
            Code::NoProcess => "there is no such process",
            Code::AnotherNamespace => "the process is of another PID namespace (a container)",
            Code::AnotherStart => "the process started at another time than the server says",
            Code::AnotherSocket => "the process does not own the socket that listens there",
            Code::NoConnection => "it has no connection to its master",
            Code::TooMany => "there are more instances than are managed",
            Code::NoPackage => "this host has no such package",
        };
        text.to_string()
    }
}

/// A short string inside a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text([u8; TEXT_MAX]);

impl Text {
    /// A string of at most [`TEXT_MAX`] bytes without zeros.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; TEXT_MAX];
        let fits = text.len() <= TEXT_MAX && !text.contains('\0');
        fits.then(|| {
            bytes[..text.len()].copy_from_slice(text.as_bytes());
            Self(bytes)
        })
    }

    /// The string.
    pub fn as_str(&self) -> &str {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(TEXT_MAX);
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }
}
