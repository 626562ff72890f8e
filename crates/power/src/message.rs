//! What head and hand say to each other: messages of one size over a socket pair that keeps their bounds.
//!
//! The head asks, and the hand answers each request once. In between the hand tells what happened. Some
//! messages carry a descriptor: the one by which the head undoes a change if the hand dies.
//!
//! Whatever does not decode ends the channel: both sides are of one program, so it is no message of theirs.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use slackwater_control::power::{Cpu, InstanceId};

/// The bytes of a message: kind, code, port, core, instance, two numbers, an IP address, a short string.
const SIZE: usize = 1 + 1 + 2 + 4 + 8 + 8 + 8 + 16 + TEXT_MAX;
/// The longest string of a message: energy preferences are the longest, `balance_performance`.
pub const TEXT_MAX: usize = 32;
/// Instead of a core or a number: none.
const NONE: u32 = u32::MAX;

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

/// The fields of every message; what they mean depends on the kind.
#[derive(Debug, Clone, Copy)]
struct Fields {
    kind: u8,
    code: u8,
    port: u16,
    cpu: u32,
    instance: u64,
    value: u64,
    more: u64,
    ip: [u8; 16],
    text: [u8; TEXT_MAX],
}

const BLANK: Fields = Fields {
    kind: 0,
    code: 0,
    port: 0,
    cpu: NONE,
    instance: 0,
    value: 0,
    more: 0,
    ip: [0; 16],
    text: [0; TEXT_MAX],
};

impl Fields {
    fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[0] = self.kind;
        bytes[1] = self.code;
        bytes[2..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.cpu.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.instance.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.value.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.more.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.ip);
        bytes[48..].copy_from_slice(&self.text);
        bytes
    }

    fn decode(bytes: &[u8; SIZE]) -> Self {
        let eight = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let (mut ip, mut text) = ([0; 16], [0; TEXT_MAX]);
        ip.copy_from_slice(&bytes[32..48]);
        text.copy_from_slice(&bytes[48..]);
        Self {
            kind: bytes[0],
            code: bytes[1],
            port: u16::from_le_bytes([bytes[2], bytes[3]]),
            cpu: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            instance: eight(8),
            value: eight(16),
            more: eight(24),
            ip,
            text,
        }
    }

    fn address(&self) -> SocketAddr {
        let ip = Ipv6Addr::from(self.ip).to_canonical();
        SocketAddr::new(ip, self.port)
    }

    fn at(self, address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip: ip.octets(),
            port: address.port(),
            ..self
        }
    }
}

/// A message of one side.
pub trait Message: Sized {
    /// The message's bytes.
    fn encode(&self) -> [u8; SIZE];
    /// The message in these bytes, if they are one.
    fn decode(bytes: &[u8; SIZE]) -> Option<Self>;
}

impl Message for Request {
    fn encode(&self) -> [u8; SIZE] {
        let of = |kind, instance| Fields {
            kind,
            instance,
            ..BLANK
        };
        let fields = match *self {
            Self::Hello => of(1, 0),
            Self::Adopt {
                instance,
                pid,
                uptime_s,
                address,
            } => Fields {
                cpu: pid,
                value: uptime_s,
                ..of(2, instance).at(address)
            },
            Self::Forget { instance } => of(3, instance),
            Self::Cap { cpu, khz } => Fields {
                cpu,
                value: u64::from(khz.unwrap_or(NONE)),
                ..of(4, 0)
            },
            Self::Pin { instance, cpu } => Fields {
                cpu,
                ..of(5, instance)
            },
            Self::KeepAway { instance } => of(6, instance),
            Self::Unpin { instance } => of(7, instance),
            Self::Beat {
                instance,
                master,
                beat_ns,
            } => Fields {
                value: beat_ns.unwrap_or(0),
                ..of(8, instance).at(master)
            },
            Self::Look => of(9, 0),
            Self::Energy { package } => Fields {
                cpu: package,
                ..of(10, 0)
            },
            Self::Count { instance } => of(11, instance),
        };
        fields.encode()
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let fields = Fields::decode(bytes);
        let instance = fields.instance;
        let khz = || u32::try_from(fields.value).ok();
        Some(match fields.kind {
            1 => Self::Hello,
            2 => Self::Adopt {
                instance,
                pid: fields.cpu,
                uptime_s: fields.value,
                address: fields.address(),
            },
            3 => Self::Forget { instance },
            4 => Self::Cap {
                cpu: fields.cpu,
                khz: Some(khz()?).filter(|khz| *khz != NONE),
            },
            5 => Self::Pin {
                instance,
                cpu: fields.cpu,
            },
            6 => Self::KeepAway { instance },
            7 => Self::Unpin { instance },
            8 => Self::Beat {
                instance,
                master: fields.address(),
                beat_ns: Some(fields.value).filter(|beat| *beat > 0),
            },
            9 => Self::Look,
            10 => Self::Energy {
                package: fields.cpu,
            },
            11 => Self::Count { instance },
            _ => return None,
        })
    }
}

const CODES: [Code; 12] = [
    Code::Done,
    Code::System,
    Code::NotAllowed,
    Code::Conflict,
    Code::NotAdopted,
    Code::NoProcess,
    Code::AnotherNamespace,
    Code::AnotherStart,
    Code::AnotherSocket,
    Code::NoConnection,
    Code::TooMany,
    Code::NoPackage,
];

impl Message for Report {
    fn encode(&self) -> [u8; SIZE] {
        let fields = match *self {
            Self::Answer(answer) => Fields {
                kind: 128,
                code: answer.code as u8,
                cpu: answer.errno as u32,
                value: answer.value,
                more: answer.more,
                ..BLANK
            },
            Self::File { cpu, found } => Fields {
                kind: 129,
                cpu,
                text: found.0,
                ..BLANK
            },
            Self::Socket { instance, found } => Fields {
                kind: 130,
                cpu: found as u32,
                instance,
                ..BLANK
            },
            Self::Closed { instance } => Fields {
                kind: 131,
                instance,
                ..BLANK
            },
            Self::Gone { instance } => Fields {
                kind: 132,
                instance,
                ..BLANK
            },
            Self::Ended => Fields { kind: 134, ..BLANK },
            Self::Conflict { cpu, khz } => Fields {
                kind: 133,
                cpu,
                value: u64::from(khz),
                ..BLANK
            },
        };
        fields.encode()
    }

    fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let fields = Fields::decode(bytes);
        let instance = fields.instance;
        Some(match fields.kind {
            128 => Self::Answer(Answer {
                code: *CODES.get(usize::from(fields.code))?,
                errno: fields.cpu as i32,
                value: fields.value,
                more: fields.more,
            }),
            129 => Self::File {
                cpu: fields.cpu,
                found: Text(fields.text),
            },
            130 => Self::Socket {
                instance,
                found: fields.cpu as i32,
            },
            131 => Self::Closed { instance },
            132 => Self::Gone { instance },
            133 => Self::Conflict {
                cpu: fields.cpu,
                khz: u32::try_from(fields.value).ok()?,
            },
            134 => Self::Ended,
            _ => return None,
        })
    }
}

/// One end of the socket pair.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// What was received.
#[derive(Debug)]
pub enum Received<M> {
    /// A message, and the descriptor that came along.
    Message(M, Option<OwnedFd>),
    /// Nothing is there now.
    Nothing,
    /// The other side is gone, or talks nonsense.
    End,
}

impl Channel {
    /// A pair of ends.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// An end that another process has made.
    pub fn of(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// Sends a message, with a descriptor if there is one. An error is the end of the channel: nobody reads,
    /// or somebody has stopped reading.
    pub fn send(&self, message: &impl Message, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = message.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut buffer = SendAncillaryBuffer::new(&mut space);
        let descriptors = along.as_slice();
        if along.is_some() && !buffer.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("a descriptor does not fit"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut buffer, flags)?;
        match sent == SIZE {
            true => Ok(()),
            false => Err(io::Error::other("a message was cut")),
        }
    }

    /// Takes a message, if there is one.
    pub fn receive<M: Message>(&self) -> Received<M> {
        let mut bytes = [0; SIZE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut buffer = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let received = loop {
            match recvmsg(&self.socket, parts, &mut buffer, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Received::Nothing,
                Err(_) => return Received::End,
                Ok(received) => break received,
            }
        };
        let mut along = None;
        for message in buffer.drain() {
            if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
                along = descriptors.next();
            }
        }
        match M::decode(&bytes) {
            Some(message) if received.bytes == SIZE => Received::Message(message, along),
            _ => Received::End,
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    #[test]
    fn messages_come_back_as_they_were() {
        let address: SocketAddr = "127.0.0.1:6379".parse().unwrap();
        let six: SocketAddr = "[2001:db8::1]:6379".parse().unwrap();
        let requests = [
            Request::Hello,
            Request::Adopt {
                instance: 7,
                pid: 4711,
                uptime_s: 12,
                address,
            },
            Request::Forget { instance: 7 },
            Request::Cap {
                cpu: 3,
                khz: Some(1_000_000),
            },
            Request::Cap { cpu: 3, khz: None },
            Request::Pin {
                instance: 7,
                cpu: 3,
            },
            Request::KeepAway { instance: 7 },
            Request::Unpin { instance: 7 },
            Request::Beat {
                instance: 7,
                master: six,
                beat_ns: Some(20_000_000),
            },
            Request::Beat {
                instance: 7,
                master: address,
                beat_ns: None,
            },
            Request::Look,
            Request::Energy { package: 1 },
            Request::Count { instance: 7 },
        ];
        for request in requests {
            assert_eq!(Request::decode(&request.encode()), Some(request));
            assert_eq!(Report::decode(&request.encode()), None);
        }
        let reports = [
            Report::Answer(Answer::refused(&io::Error::from_raw_os_error(libc::EBUSY))),
            Report::Answer(Answer::value(5)),
            Report::File {
                cpu: 2,
                found: Text::new("2200000").unwrap(),
            },
            Report::Socket {
                instance: 7,
                found: 1,
            },
            Report::Closed { instance: 7 },
            Report::Gone { instance: 7 },
            Report::Ended,
            Report::Conflict {
                cpu: 1,
                khz: 800_000,
            },
        ];
        for report in reports {
            assert_eq!(Report::decode(&report.encode()), Some(report));
            assert_eq!(Request::decode(&report.encode()), None);
        }
        for (at, code) in CODES.into_iter().enumerate() {
            assert_eq!(code as usize, at);
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_none() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let mut bytes = [0; SIZE];
            random.fill(&mut bytes);
            bytes[0] %= 16;
            let _ = Request::decode(&bytes);
            bytes[0] |= 128;
            let _ = Report::decode(&bytes);
        }
    }

    #[test]
    fn descriptors_come_along_and_the_end_is_seen() {
        let (one, other) = Channel::pair().unwrap();
        assert!(matches!(other.receive::<Report>(), Received::Nothing));
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"there").unwrap();
        one.send(&Report::Closed { instance: 1 }, Some(file.as_fd()))
            .unwrap();
        one.send(&Report::Gone { instance: 2 }, None).unwrap();
        let Received::Message(Report::Closed { instance: 1 }, Some(along)) = other.receive() else {
            panic!("no message");
        };
        let (mut text, mut file) = (String::new(), File::from(along));
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "there");
        let gone = other.receive::<Report>();
        assert!(matches!(
            gone,
            Received::Message(Report::Gone { instance: 2 }, None)
        ));
        drop(one);
        assert!(matches!(other.receive::<Report>(), Received::End));
        assert!(other.send(&Request::Look, None).is_err());
    }
}
