//! A connection to a server: commands go out, replies come back in their order, and nothing blocks.
//!
//! Bounds: one batch of commands at a time, of [`BATCH_MAX`]; one reply of at most
//! [`REPLY_BYTES_MAX`](crate::resp::REPLY_BYTES_MAX) in memory; [`ANSWER_NS`] for a batch, after which the
//! connection is given up. A subscription's messages have no time.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::resp::{self, Malformed, Reply};

/// The most commands of a batch.
pub const BATCH_MAX: usize = 16;
/// The time in which a batch is answered, connecting included. A master that takes longer counts as lost.
pub const ANSWER_NS: u64 = 500_000_000;
/// The most bytes that are read in one turn, so that one server can't hold up the others.
const READ_MAX: usize = 256 << 10;
/// The most messages of a subscription that are kept in one turn.
const MESSAGES_MAX: usize = 1_024;

/// A user's name and password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// The user; none is the default user.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

/// A password is never shown.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({:?})", self.user)
    }
}

/// Why a connection has ended.
#[derive(Debug)]
pub enum Lost {
    /// The operating system says so.
    System(io::Error),
    /// The server closed it.
    Closed,
    /// The server did not answer in time.
    Late,
    /// The server sent something else than replies.
    Malformed(Malformed),
    /// The server does not know the password.
    Login(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System(error) => write!(f, "{error}"),
            Self::Closed => write!(f, "closed the connection"),
            Self::Late => write!(f, "did not answer within {} ms", ANSWER_NS / 1_000_000),
            Self::Malformed(malformed) => write!(f, "{malformed}"),
            Self::Login(text) => write!(f, "rejects the login: {text}"),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Replies that are expected; the first of them of a login, if there is one.
    expected: usize,
    logs_in: bool,
    replies: VecDeque<Reply>,
    deadline: u64,
    is_subscription: bool,
}

impl Client {
    /// Starts to connect. A failure comes with the first reply.
    pub fn connect(address: SocketAddr, login: Option<&Login>, now: u64) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        let mut client = Self {
            stream,
            out: Vec::new(),
            input: Vec::new(),
            expected: 0,
            logs_in: login.is_some(),
            replies: VecDeque::new(),
            deadline: now + ANSWER_NS,
            is_subscription: false,
        };
        if let Some(login) = login {
            let words = ["AUTH"].into_iter().chain(login.user.as_deref());
            let words = words
                .chain([login.password.as_str()])
                .collect::<Vec<&str>>();
            client.out = resp::command(&words);
            client.expected = 1;
        }
        Ok(client)
    }

    /// Sends a batch. The one before must have been answered.
    pub fn ask(&mut self, commands: &[&[&str]], now: u64) {
        assert!(commands.len() <= BATCH_MAX, "a batch has a limit");
        assert!(
            self.replies.is_empty(),
            "a batch is taken before the next one"
        );
        for words in commands {
            self.out.extend_from_slice(&resp::command(words));
        }
        self.expected += commands.len();
        self.deadline = now + ANSWER_NS;
        self.send();
    }

    /// Writes what it can. An error is found by the next [`Self::step`].
    pub fn send(&mut self) {
        let _ = self.flush();
    }

    /// From now on replies come unasked.
    pub fn subscribe(&mut self, pattern: &str, now: u64) {
        self.ask(&[&["PSUBSCRIBE", pattern]], now);
        self.is_subscription = true;
    }

    /// Whether an answer is missing.
    pub fn waits(&self) -> bool {
        self.expected > 0
    }

    /// When to call [`Self::step`] at the latest.
    pub fn deadline(&self) -> Option<u64> {
        self.waits().then_some(self.deadline)
    }

    /// Whether there is something to write.
    pub fn writes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Reads and writes what it can, and returns the batch's replies when they are all there, or the messages
    /// of a subscription.
    pub fn step(&mut self, now: u64) -> Result<Option<Vec<Reply>>, Lost> {
        self.flush()?;
        let is_open = self.read()?;
        while let Some((reply, length)) = resp::parse(&self.input).map_err(Lost::Malformed)? {
            self.input.drain(..length);
            self.take(reply)?;
        }
        let batch = match (self.expected, self.replies.is_empty()) {
            (0, false) => Some(self.replies.drain(..).collect::<Vec<Reply>>()),
            _ => None,
        };
        match batch {
            Some(batch) => Ok(Some(batch)),
            None if !is_open => Err(Lost::Closed),
            None if self.waits() && now >= self.deadline => Err(Lost::Late),
            None => Ok(None),
        }
    }

    fn take(&mut self, reply: Reply) -> Result<(), Lost> {
        if std::mem::take(&mut self.logs_in) {
            self.expected -= 1;
            return match reply.error() {
                Some(text) => Err(Lost::Login(text.to_string())),
                None => Ok(()),
            };
        }
        match self.expected {
            0 if !self.is_subscription => Err(Lost::Malformed(Malformed::Many)),
            0 if self.replies.len() >= MESSAGES_MAX => Err(Lost::Malformed(Malformed::Many)),
            _ => {
                self.expected = self.expected.saturating_sub(1);
                self.replies.push_back(reply);
                Ok(())
            }
        }
    }

    fn flush(&mut self) -> Result<(), Lost> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(0) => return Err(Lost::Closed),
                Ok(written) => {
                    self.out.drain(..written);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => break,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Lost::System(error)),
                },
            }
        }
        Ok(())
    }

    /// Reads what is there; false if the server has closed the connection.
    fn read(&mut self) -> Result<bool, Lost> {
        let mut bytes = [0; 16 << 10];
        let before = self.input.len();
        while self.input.len() - before < READ_MAX {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(read) => self.input.extend_from_slice(&bytes[..read]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => break,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(Lost::System(error)),
                },
            }
        }
        Ok(true)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::now_ns;
    use std::net::TcpListener;
    use std::thread;

    /// A server that reads something and answers with these bytes; the connection then ends.
    fn answers(bytes: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1_024]);
            for part in bytes.chunks(5) {
                let _ = stream.write_all(part);
            }
        });
        address
    }

    fn ended(mut client: Client) -> Result<Vec<Reply>, Lost> {
        loop {
            if let Some(replies) = client.step(now_ns())? {
                return Ok(replies);
            }
            thread::yield_now();
        }
    }

    fn asked(bytes: &'static [u8], login: Option<&Login>) -> Result<Vec<Reply>, Lost> {
        let mut client = Client::connect(answers(bytes), login, now_ns()).unwrap();
        client.ask(&[&["PING"], &["ROLE"]], now_ns());
        ended(client)
    }

    #[test]
    fn a_batch_is_answered_in_order() {
        let replies = asked(b"+PONG\r\n$3\r\nabc\r\n", None).unwrap();
        assert_eq!(
            replies,
            [
                Reply::Status("PONG".to_string()),
                Reply::Bulk(b"abc".to_vec())
            ]
        );
        let login = Login {
            user: Some("power".to_string()),
            password: "secret".to_string(),
        };
        let replies = asked(b"+OK\r\n+PONG\r\n:1\r\n", Some(&login)).unwrap();
        assert_eq!(replies.len(), 2);
        assert!(!format!("{login:?}").contains("secret"));
        let refused = asked(b"-WRONGPASS invalid\r\n", Some(&login));
        assert!(matches!(refused, Err(Lost::Login(_))), "{refused:?}");
    }

    #[test]
    fn hostile_servers_are_errors() {
        assert!(matches!(asked(b"", None), Err(Lost::Closed)));
        assert!(matches!(asked(b"+PONG\r\n", None), Err(Lost::Closed)));
        assert!(matches!(
            asked(b"HTTP/1.1 400\r\n", None),
            Err(Lost::Malformed(_))
        ));
        let more = asked(b"+1\r\n+2\r\n+3\r\n+4\r\n", None);
        // Either all came in one turn, which is malformed, or the batch was complete before.
        assert!(
            matches!(more, Ok(_) | Err(Lost::Malformed(Malformed::Many))),
            "{more:?}"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut silent = Client::connect(address, None, 0).unwrap();
        silent.ask(&[&["PING"]], 0);
        assert!(matches!(silent.step(ANSWER_NS), Err(Lost::Late)));
        drop(listener);
        let mut refused = Client::connect(address, None, now_ns()).unwrap();
        refused.ask(&[&["PING"]], now_ns());
        assert!(matches!(
            ended(refused),
            Err(Lost::System(_) | Lost::Closed)
        ));
    }
}
